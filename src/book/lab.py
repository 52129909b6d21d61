"""Copies the chapters to work/ and opens JupyterLab there. A copy that exists is the reader's, and is never overwritten.

python -m book.lab [--copy-only] [--reset CHAPTER] [what JupyterLab takes, such as --no-browser]
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from book.contents import EDITION
from book.copies import START, chapter_copy, start_page
from book.paths import NOTEBOOKS, WORK, chapters

RECORD = (
    ".copied.json"  # in work/: what was copied, to tell a reader's own changes from ours, and editions apart
)
SETTINGS = Path(__file__).parent / "labsettings"  # JupyterLab's and IPython's settings for a reader
CULLED_AFTER = 2 * 60 * 60  # seconds without a cell run; a notebook's text is never touched by this


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _aside(path, why):
    """Renames a reader's file so that nothing of it is lost: 05_kv_cache.ipynb -> 05_kv_cache (why).ipynb, numbered if need be."""
    for n in range(1, 1000):
        name = f"{path.stem} ({why}{f' {n}' if n > 1 else ''}){path.suffix}"
        if not path.with_name(name).exists():
            path.rename(path.with_name(name))
            return name
    raise ValueError(f"{path.parent.name}/ holds a thousand copies of {path.name} already: tidy up first")


def copy_chapters(source=NOTEBOOKS, target=WORK, say=print, reset=None):
    """Copies what is not there yet, and the first page. Returns (new, kept, newer): names copied, kept, kept where the book has moved on.

    A file that its reader has changed is never overwritten. One of an earlier edition moves aside under a name that says so, one
    that was never touched is replaced; progress and exercise ids stay. reset: a chapter to copy afresh, the old one beside it.
    Raises: ValueError if `reset` names no chapter.
    """
    source, target = Path(source), Path(target)
    target.mkdir(parents=True, exist_ok=True)
    record = target / RECORD
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
        known = known if isinstance(known, dict) else {}
    except (FileNotFoundError, ValueError):
        known = {}
    first_edition = bool(known) and "edition" not in known
    texts = known.get("files", known) if isinstance(known.get("files", known), dict) else {}
    again = {path.name for path in chapters(reset, suffix=".ipynb", folder=source)} if reset else set()
    new, kept, newer, moved = [], [], [], {}
    for path in chapters(suffix=".ipynb", folder=source):
        copy, stamp = target / path.name, _digest(path.read_text(encoding="utf-8"))
        old = texts.get(path.name)
        old = old if isinstance(old, dict) else {"copy": old, "book": None}
        if copy.exists():
            untouched = _digest(copy.read_text(encoding="utf-8", errors="replace")) == old["copy"]
            moved_on = old["book"] not in (None, stamp) or (first_edition and old["copy"] is not None)
            if path.name in again and not untouched:
                moved[path.name] = _aside(copy, "before the reset")
            elif first_edition and not untouched:
                moved[path.name] = _aside(copy, "first edition")
            elif not (untouched and (moved_on or path.name in again)):
                kept.append(path.name)
                newer += [path.name] if moved_on else []
                continue
        text = chapter_copy(path)
        write_atomically(copy, text)
        texts[path.name] = {"copy": _digest(text), "book": stamp}
        new.append(path.name)
    if new and not (target / START).exists():
        write_atomically(target / START, start_page())
    write_atomically(
        record, json.dumps({"edition": EDITION, "files": texts}, indent=1, sort_keys=True) + "\n"
    )
    if new:
        say(f"lab: new in {target.name}/: {', '.join(new)}")
    for name, old in moved.items():
        say(f"lab: your {name} is now {old!r}; the new one stands beside it")
    if kept:
        say(f"lab: kept as you left them: {', '.join(kept)}")
    for name in newer:
        say(
            f"lab: the book has a newer {name}: `make lab RESET={name[:2]}` brings it and keeps yours beside it"
        )
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
    command += [
        f"--MappingKernelManager.cull_idle_timeout={CULLED_AFTER}",
        "--MappingKernelManager.cull_connected=True",
    ]
    if (Path(folder) / START).exists():
        command.append(f"--LabApp.default_url=/lab/tree/{START}")
    if (
        hasattr(os, "geteuid") and os.geteuid() == 0
    ):  # a container's usual user; the server listens on loopback only
        command.append("--ServerApp.allow_root=True")
    return command + list(arguments)


def lab_environment(environment):
    """Before anything from elsewhere: this environment's packages, our settings (labconfig/) and our kernel (kernels/python3)."""
    added = dict(environment) | {"JUPYTER_PREFER_ENV_PATH": "1"}
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):
        added[name] = os.pathsep.join([str(SETTINGS), *filter(None, [environment.get(name)])])
    return added


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m book.lab", description=__doc__.splitlines()[0])
    parser.add_argument("--copy-only", action="store_true", help="copy the chapters and stop")
    parser.add_argument(
        "--reset", metavar="CHAPTER", help="05: a fresh copy of this chapter; yours stays beside it"
    )
    args, arguments = parser.parse_known_args(argv)
    try:
        new, kept, _ = copy_chapters(reset=args.reset or None)
    except (ValueError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    if not new and not kept:
        print("lab: notebooks/ holds no executed chapter yet (make notebooks makes them)")
    if args.copy_only:
        return 0
    print(
        "lab: starting JupyterLab on this machine only; the address with its token follows. Ctrl-C stops it.",
        flush=True,
    )
    environment, command = lab_environment(os.environ), lab_command(arguments)
    if os.name == "posix":
        os.execve(command[0], command, environment)
    try:
        return subprocess.call(command, env=environment)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
