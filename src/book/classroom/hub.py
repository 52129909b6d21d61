"""python -m book.classroom.hub: a real JupyterHub on this machine, to try a class out.

Loopback only, one OS user, one password for everybody: for trying it out. What to change for a real class is written in
jupyterhub_config.py beside this file and in notebooks/classroom.md.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from book.classroom import handout
from book.paths import BUILD

HERE = Path(__file__).parent
RUN = "BOOK_CLASS_RUN"  # in the environment of every process that a hub starts, so that all of them can be found and ended


def install_proxy(folder=BUILD / "proxy"):
    """The command that runs configurable-http-proxy; npm brings it at first use, as package-lock.json pins it."""
    node = shutil.which("node")
    script = Path(folder) / "node_modules/configurable-http-proxy/bin/configurable-http-proxy"
    ours = (HERE / "proxy/package-lock.json").read_text()
    stamp = Path(folder) / "installed.json"
    if node and script.exists() and stamp.exists() and stamp.read_text() == ours:
        return [node, str(script)]
    npm = shutil.which("npm")
    if not node or not npm:
        raise FileNotFoundError(
            "configurable-http-proxy needs Node 18 or newer with npm, and neither may be missing from PATH: "
            "`apt install nodejs npm`, `brew install node` or `conda install nodejs`"
        )
    print(f"installing configurable-http-proxy into {folder} (once) ...", flush=True)
    shutil.copytree(HERE / "proxy", folder, dirs_exist_ok=True)
    stamp.unlink(missing_ok=True)  # written last: an install that was cut short is done again
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or not script.exists():
        raise RuntimeError(f"npm could not install configurable-http-proxy:\n{done.stderr.strip()[-2000:]}")
    stamp.write_text(ours)
    return [node, str(script)]


def free_ports(count):
    """`count` different loopback ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def check_port(port):
    """Raises ValueError if `port` is no port, or if somebody listens there."""
    if not 1024 <= port <= 65535:
        raise ValueError(f"--port {port}: expected 1024 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(
                f"port {port} is in use: perhaps a hub is running already; choose another with --port"
            ) from error


def prepare_folder(folder):
    """The hub's folder: readable by its owner only, with matplotlib's font list made once for all students."""
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    fonts = folder / "matplotlib"
    if not any(fonts.glob("fontlist-*.json")):
        fonts.mkdir(exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", "import matplotlib.font_manager"],
            env={**os.environ, "MPLCONFIGDIR": str(fonts)},
            check=True,
        )
    return folder


def start(folder, source, port, password, memory_gib=4.0, extra=None, log=None):
    """Start the hub and wait until it answers. Returns its Popen; `.run` marks all its processes (see `stop`)."""
    if len(password) < 8:
        raise ValueError(f"a password of {len(password)} characters: JupyterHub wants at least 8")
    if not 0.5 <= memory_gib <= 1024:
        raise ValueError(
            f"--memory-gib {memory_gib}: expected 0.5 to 1024, the bound on one process of a student"
        )
    check_port(port)
    folder, proxy = prepare_folder(folder), install_proxy()
    hub_port, proxy_port = free_ports(2)
    environment = {
        **os.environ,
        RUN: secrets.token_hex(8),
        "BOOK_CLASS_FOLDER": str(folder),
        "BOOK_CLASS_SOURCE": str(handout.source_folder(source)),
        "BOOK_CLASS_PORT": str(port),
        "BOOK_CLASS_HUB_PORT": str(hub_port),
        "BOOK_CLASS_PROXY_PORT": str(proxy_port),
        "BOOK_CLASS_PROXY": os.pathsep.join(proxy),
        "BOOK_CLASS_PASSWORD": password,
        "BOOK_CLASS_MEMORY_GIB": f"{memory_gib:g}",
        **(extra or {}),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterhub", "-f", str(HERE / "jupyterhub_config.py")],
        cwd=folder,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT if log else None,
        start_new_session=True,  # Ctrl-C reaches `stop`, which ends everything in order
    )
    process.run = environment[RUN]
    try:
        # The hub itself first: a proxy asked before its hub is up prints an error for each question.
        for asked in (hub_port, port):
            _wait_until_up(process, f"http://127.0.0.1:{asked}/hub/api/")
    except BaseException:
        stop(process)
        raise
    return process


def _wait_until_up(process, url, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the hub ended with exit code {process.returncode}; its log says why")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if "version" in json.load(answer):
                    return
        except (urllib.error.URLError, OSError, ValueError):
            pass
        time.sleep(0.3)
    raise TimeoutError(f"the hub did not answer at {url} within {seconds} s; its log says why")


def processes(run):
    """Every living process of the hub with this mark: itself, the proxy, the servers, the kernels."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN) == run and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return found


def stop(process, seconds=60):
    """End the hub in order, then whatever it left. Returns how many processes had to be killed."""
    import psutil

    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
    # Servers end with the hub, their kernels a moment later.
    _, left = psutil.wait_procs(processes(process.run), timeout=5)
    for each in left:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(left, timeout=5)
    process.wait(10)
    return len(left)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m book.classroom.hub", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--folder", default=BUILD / "class", help="hub state and the students' work")
    parser.add_argument("--source", help="what students get; build/student, or the chapters, when not given")
    parser.add_argument(
        "--memory-gib", type=float, default=4.0, help="bound on what one process may allocate"
    )
    arguments = parser.parse_args(argv)
    password = secrets.token_urlsafe(9)
    try:
        process = start(arguments.folder, arguments.source, arguments.port, password, arguments.memory_gib)
    except (ValueError, FileNotFoundError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        f"\nJupyterHub is at http://127.0.0.1:{arguments.port} (this machine only)\n"
        "any name of a-z, 0-9 and - that begins with a letter,\n"
        f"password {password} (new at every start, not shown again)\n"
        f"the students' work lies in {Path(arguments.folder).resolve() / 'students'} and is never overwritten\n"
        "one OS user, no isolation: for trying it out; notebooks/classroom.md says what a real class needs\n"
        "Ctrl-C ends it\n",
        flush=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        print("stopping the servers ...", flush=True)
        stop(process)


if __name__ == "__main__":
    sys.exit(main())
