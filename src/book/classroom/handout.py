"""What a student finds in the work folder: copies of the chapters, never written over what is there.

python -m book.classroom.handout SOURCE FOLDER      (what a start hook on Kubernetes runs)
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from book.paths import BUILD, NOTEBOOKS

_SKIP = (".", "__pycache__")  # hidden files, checkpoints, the `.~name` backups of a save


def source_folder(folder=None):
    """The folder that is handed out: `folder`, else build/student, else the chapters as they stand.

    Raises: FileNotFoundError if it holds no notebook.
    """
    student = BUILD / "student"
    picked = Path(folder) if folder else student if any(student.glob("*.ipynb")) else NOTEBOOKS
    if not any(picked.glob("*.ipynb")):
        raise FileNotFoundError(
            f"no notebook (*.ipynb) in {picked}: expected the student copies; `make student` writes them"
        )
    return picked.resolve()


def names(folder):
    """The notebooks of a folder that is handed out."""
    return {path.name for path in Path(folder).glob("*.ipynb")}


def _handed_out(source):
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if any(part.startswith(_SKIP) for part in parts) or path.is_symlink() or not path.is_file():
            continue
        # In notebooks/ the .py sources and the lecturer's page lie beside the chapters; students get neither.
        if len(parts) == 1 and source == NOTEBOOKS and path.suffix != ".ipynb":
            continue
        yield path, Path(*parts)


def hand_out(source, folder):
    """Copy every file of `source` that `folder` does not have yet. Returns (copied, kept), relative paths.

    A file that exists is never touched, whatever it holds: it may be an hour of somebody's work. Who wants a fresh copy
    renames the old one and starts the server again.
    """
    source, folder = Path(source).resolve(), Path(folder)
    if not source.is_dir():
        raise FileNotFoundError(f"nothing to hand out: {source} is not a folder")
    copied, kept = [], []
    for path, name in _handed_out(source):
        target = folder / name
        if os.path.lexists(target):
            kept.append(str(name))
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all, and os.link refuses to replace: a copy cut short, or made twice at once, harms nothing.
        handle, half = tempfile.mkstemp(dir=target.parent, prefix=".handout-")
        os.close(handle)
        try:
            shutil.copyfile(path, half)
            os.chmod(half, 0o644)
            try:
                os.link(half, target)
                copied.append(str(name))
            except FileExistsError:
                kept.append(str(name))
        finally:
            os.unlink(half)
    return copied, kept


def main(argv=None):
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 2:
        print("usage: python -m book.classroom.handout SOURCE FOLDER", file=sys.stderr)
        return 2
    try:
        copied, kept = hand_out(*arguments)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(copied)} files handed out, {len(kept)} kept as they are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
