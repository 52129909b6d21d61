"""Which exercises are done. Kept in `.progress.json`, only in a reader's folder: one named `work`, or one that has the file already.

So a chapter that is executed for commit, or under a test, writes nothing and prints the same each time.
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path

FILE = ".progress.json"
_session = set()  # done since this kernel started; also where there is no reader's folder


def _file(folder=None):
    folder = Path.cwd() if folder is None else Path(folder)
    return folder / FILE if folder.name == "work" or (folder / FILE).exists() else None


def load(folder=None):
    """The ids done in this folder. A missing, corrupt or foreign file counts as nothing done."""
    path = _file(folder)
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path else {}
        return {entry for entry in found["done"] if isinstance(entry, str)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def record(exercise_id, folder=None):
    """Adds one id; atomic, and silent where the folder cannot be written (progress is not worth an error)."""
    _session.add(exercise_id)
    with contextlib.suppress(OSError):
        path = _file(folder)
        done = load(folder)
        if path is None or exercise_id in done:
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=FILE, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                json.dump({"done": sorted(done | {exercise_id})}, f, indent=1)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


def progress(chapter=None, folder=None):
    """Print which exercises are done: of one chapter ("01"), or of all."""
    from book.exercises import ALL

    done = load(folder) | _session
    shown = {k: e for k, e in ALL.items() if chapter is None or e.chapter == str(chapter).zfill(2)}
    if chapter is None:
        for number in sorted({e.chapter for e in shown.values()}):
            ids = [k for k, e in shown.items() if e.chapter == number]
            print(
                f"{number}  "
                + "".join("#" if k in done else "." for k in ids)
                + f"  {len(done & set(ids))} of {len(ids)}"
            )
    else:
        for k, e in shown.items():
            print(f"[{'x' if k in done else ' '}] {k}: {e.title}")
    print(
        f"{len(done & set(shown))} of {len(shown)} exercises done"
        + ("" if chapter is None else f" in chapter {str(chapter).zfill(2)}")
    )
