"""A hub to try a class out on one machine. NOT for real students as it stands: see "What to change" below.

`python -m book.classroom.hub` sets the BOOK_CLASS_ variables and starts it.

What to change for real use (notebooks/classroom.md says why):
  authenticator    one password for everybody lets anyone in as anyone: use your university's OAuth, LDAP or PAM
  spawner          all servers run as one OS user, who can read every folder: use SystemdSpawner, DockerSpawner or KubeSpawner
  memory, cores    this spawner bounds one process; those three bound a student (mem_limit, cpu_limit)
  address          loopback only: put a TLS proxy in front, and only then another address
"""

import os
import sys
from pathlib import Path

from jupyterhub.spawner import SimpleLocalProcessSpawner

from book.classroom import handout

c = get_config()  # noqa: F821 (JupyterHub defines it)
folder = Path(os.environ["BOOK_CLASS_FOLDER"])
here = Path(handout.__file__).parent

c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ['BOOK_CLASS_PORT']}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{os.environ['BOOK_CLASS_HUB_PORT']}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{os.environ['BOOK_CLASS_PROXY_PORT']}"
c.ConfigurableHTTPProxy.command = os.environ["BOOK_CLASS_PROXY"].split(os.pathsep)
c.ConfigurableHTTPProxy.pid_file = str(folder / "proxy.pid")
c.ConfigurableHTTPProxy.log_level = "warn"
c.JupyterHub.db_url = f"sqlite:///{folder / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(folder / "cookie_secret")
c.JupyterHub.log_level = os.environ.get("BOOK_CLASS_LOG", "WARN")

c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = os.environ["BOOK_CLASS_PASSWORD"]
c.Authenticator.allow_all = True
c.Authenticator.username_pattern = r"[a-z][a-z0-9-]{0,31}"  # a name becomes a folder


class ClassSpawner(SimpleLocalProcessSpawner):
    """One OS user for all; what each process may allocate is bounded, so that one cell cannot take the room down."""

    def make_preexec_fn(self, name):
        enter_home, limit = super().make_preexec_fn(name), self.mem_limit

        def preexec():
            enter_home()
            if limit and sys.platform == "linux":
                import resource

                # Private writable memory, which is what a cell allocates: MemoryError there, not the kernel's OOM killer here.
                # RLIMIT_AS would also count torch's mapped libraries and weights.
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        return preexec


def give_chapters(spawner):
    home = folder / "students" / spawner.user.name
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    copied, kept = handout.hand_out(os.environ["BOOK_CLASS_SOURCE"], home / "work")
    spawner.log.info("%s: %d files handed out, %d kept", spawner.user.name, len(copied), len(kept))


c.JupyterHub.spawner_class = ClassSpawner
c.SimpleLocalProcessSpawner.home_dir_template = str(folder / "students" / "{username}")
c.Spawner.notebook_dir = "~/work"
c.Spawner.default_url = "/lab"
c.Spawner.cmd = [sys.executable, "-m", "book.classroom.server"]
c.Spawner.pre_spawn_hook = give_chapters
c.Spawner.mem_limit = f"{os.environ.get('BOOK_CLASS_MEMORY_GIB', '4')}G"

# A whole class logs in within the same minute: the last in the queue may wait, and must not be told that it failed.
c.Spawner.start_timeout = 300
c.Spawner.http_timeout = 300
c.JupyterHub.concurrent_spawn_limit = 100
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # show the progress page at once
c.Spawner.poll_interval = (
    5  # a server that died is noticed, and can be started again, within this many seconds
)

c.Spawner.environment = {
    # One thread a kernel. With torch's default every kernel takes all cores, and twenty of them crawl.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Shared and filled beforehand: the first import in an empty home otherwise scans all fonts, once a student.
    "MPLCONFIGDIR": str(folder / "matplotlib"),
    "JUPYTER_CONFIG_PATH": str(here),
    **{
        name: os.environ[name]
        for name in ("BOOK_CLASS_RUN", "BOOK_CLASS_CULL_SECONDS", "BOOK_CLASS_MAX_KERNELS")
        if name in os.environ
    },
}
