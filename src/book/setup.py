"""Makes .venv and installs the book in it, pinned by requirements.lock. Standard library only: it runs before anything else.

    python3 src/book/setup.py

It can be interrupted and started again at any point. A stamp in .venv holds a hash of pyproject.toml, requirements.lock and the
Python version, so a second run that finds nothing changed ends at once, whatever the files' times are.
The file must parse on an old Python 3 too, to say there that the Python is too old.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, ".venv")
PYTHON = (
    os.path.join(VENV, "Scripts", "python.exe") if os.name == "nt" else os.path.join(VENV, "bin", "python")
)
STAMP = os.path.join(VENV, ".book-setup")
LOCK = os.path.join(ROOT, "requirements.lock")
EXTRAS = "test,kernels,site,hub"
OLDEST, NEWEST = (3, 11), (3, 13)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def say(text):
    print("setup: " + text, flush=True)


def dotted(version):
    return ".".join(map(str, version))


def output_of(command):
    """What a command prints; empty where it cannot run."""
    try:
        return subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ).stdout.decode()
    except OSError:
        return ""


def works(*command):
    quiet = subprocess.DEVNULL
    return subprocess.call(command, stdout=quiet, stderr=quiet) == 0


def version_of(python):
    """(major, minor) of an interpreter, or () if it does not run."""
    return tuple(
        int(n) for n in output_of([python, "-c", "import sys; print(*sys.version_info[:2])"]).split()
    )


def fits(version):
    return OLDEST <= tuple(version) <= NEWEST


def find_python():
    """An interpreter that the book runs on: this one, or a python3.NN on the PATH."""
    if fits(sys.version_info[:2]):
        return sys.executable
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found and fits(version_of(found)):
            say(f"this is Python {sys.version.split()[0]}; using {found}")
            return found
    sys.exit(
        f"setup: Python 3.11, 3.12 or 3.13 is needed; this is {sys.version.split()[0]} ({sys.executable}), "
        "and no python3.13, python3.12 or python3.11 is on the PATH.\n"
        "Install one of them, or name it: make setup PYTHON=/path/to/python3.12"
    )


def content_hash(version):
    """What the environment is made from. By content, not by time: a fresh checkout has new times on old files."""
    # The folder too: an editable install holds its path, so a moved checkout installs anew.
    digest = hashlib.sha256(f"{dotted(version)} {EXTRAS} {ROOT}".encode())
    for name in ("pyproject.toml", "requirements.lock"):
        with open(os.path.join(ROOT, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()


def run(*command):
    code = subprocess.call(command, cwd=ROOT)
    if code:
        sys.exit(f"setup: failed (exit {code}): {' '.join(command)}\nRun the same command again to resume.")


def make_venv():
    python = find_python()
    if not works(python, "-c", "import ensurepip, venv"):
        sys.exit(
            f"setup: {python} comes without venv and pip. On Debian and Ubuntu: apt-get install python3-venv"
        )
    say(f"making .venv with {python}")
    run(python, "-m", "venv", "--clear", VENV)


def install_cpu_torch():
    """On Linux, PyPI's torch brings some GB of CUDA. Where there is no NVIDIA driver, PyTorch's own CPU build is enough.

    Not where the user has told pip where packages come from (a mirror, a folder of wheels): then nothing else is asked.
    """
    if (
        not sys.platform.startswith("linux")
        or os.path.exists("/proc/driver/nvidia")
        or shutil.which("nvidia-smi")
    ):
        return
    chosen = re.search(
        r"(index-url|find-links|no-index)=", output_of([PYTHON, "-m", "pip", "config", "list"])
    )
    if chosen or works(PYTHON, "-c", "import torch"):
        return
    with open(LOCK) as f:
        pin = next(line.strip() for line in f if line.startswith("torch=="))
    say(f"no NVIDIA driver here: taking the CPU build of {pin}")
    command = [PYTHON, "-m", "pip", "install", "--no-deps", "--retries", "1", "--index-url", CPU_INDEX, pin]
    if subprocess.call(command, cwd=ROOT):
        say("that index did not answer; PyPI's build is taken (larger, works as well)")


def setup():
    version = version_of(PYTHON)
    if not fits(version) or not works(PYTHON, "-m", "pip", "--version"):
        if os.path.exists(VENV):
            say(".venv is incomplete, or of a Python that does not fit: it is made anew")
        make_venv()
        version = version_of(PYTHON)
    wanted = content_hash(version)
    if os.path.exists(STAMP):
        with open(STAMP) as f:
            if f.read().strip() == wanted:
                say(f".venv is up to date (Python {dotted(version)})")
                return
        os.unlink(STAMP)  # an interrupted install must not look finished
    say(
        "installing into .venv, pinned by requirements.lock; some minutes the first time, and it resumes if stopped"
    )
    install_cpu_torch()
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check"]
    run(*pip, "--constraint", LOCK, "--editable", f".[{EXTRAS}]")
    with open(STAMP + ".tmp", "w") as f:
        f.write(wanted + "\n")
    os.replace(STAMP + ".tmp", STAMP)
    say(f"done (Python {dotted(version)})")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(f"setup: unknown argument {' '.join(sys.argv[1:])}; it takes none")
    try:
        setup()
    except KeyboardInterrupt:
        sys.exit("\nsetup: interrupted; run the same command again to resume")
