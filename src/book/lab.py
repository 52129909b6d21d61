"""Copies the chapters to work/ and opens JupyterLab there. A copy that exists is the reader's, and is never overwritten.

python -m book.lab [--copy-only] [what JupyterLab takes, such as --no-browser]
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from book.paths import NOTEBOOKS, WORK, chapters

RECORD = ".copied.json"  # in work/: which edition of each chapter was copied, to tell when the book has a newer one


def reader_copy(path):
    """The chapter's text for a reader: unpaired (saving it must not look for a .py), solutions folded."""
    nb = json.loads(Path(path).read_text(encoding="utf-8"))
    nb["metadata"].pop("jupytext", None)
    for cell in nb["cells"]:
        if "solution" in cell["metadata"].get("tags", []):
            cell["metadata"].setdefault("jupyter", {})["source_hidden"] = True
    return json.dumps(nb, indent=1, ensure_ascii=False) + "\n"


def copy_chapters(source=NOTEBOOKS, target=WORK, say=print):
    """Copies what is not there yet. Returns (new, kept, newer): names copied, names kept, kept where the book has moved on."""
    source, target = Path(source), Path(target)
    target.mkdir(parents=True, exist_ok=True)
    record = target / RECORD
    try:
        editions = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        editions = {}
    new, kept, newer = [], [], []
    for path in chapters(suffix=".ipynb", folder=source):
        text = reader_copy(path)
        edition = hashlib.sha256(text.encode()).hexdigest()
        copy = target / path.name
        if copy.exists():
            kept.append(path.name)
            if editions.get(path.name, edition) != edition:
                newer.append(path.name)
            continue
        write_atomically(copy, text)
        editions[path.name] = edition
        new.append(path.name)
    write_atomically(record, json.dumps(editions, indent=1, sort_keys=True) + "\n")
    if new:
        say(f"lab: new in {target.name}/: {', '.join(new)}")
    if kept:
        say(f"lab: kept as you left them: {', '.join(kept)}")
    for name in newer:
        say(f"lab: the book has a newer {name}; rename yours and run this again to get it beside yours")
    return new, kept, newer


def write_atomically(path, text):
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".copy-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def lab_command(arguments, folder=WORK):
    """JupyterLab on loopback, with its random token. What the user adds comes last, so it wins."""
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={folder}",
    ]
    command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    first = chapters(suffix=".ipynb", folder=folder)[:1]
    command += [f"--LabApp.default_url=/lab/tree/{path.name}" for path in first]
    if (
        hasattr(os, "geteuid") and os.geteuid() == 0
    ):  # a container's usual user; the server listens on loopback only
        command.append("--ServerApp.allow_root=True")
    return command + list(arguments)


def main(argv=None):
    arguments = sys.argv[1:] if argv is None else list(argv)
    new, kept, _ = copy_chapters()
    if not new and not kept:
        print("lab: notebooks/ holds no executed chapter yet (make notebooks makes them)")
    if "--copy-only" in arguments:
        return 0
    print(
        "lab: starting JupyterLab on this machine only; the address with its token follows. Ctrl-C stops it.",
        flush=True,
    )
    environment = {
        **os.environ,
        "JUPYTER_PREFER_ENV_PATH": "1",
    }  # this environment's kernel before one from elsewhere
    command = lab_command(arguments)
    if os.name == "posix":
        os.execve(command[0], command, environment)
    try:
        return subprocess.call(command, env=environment)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
