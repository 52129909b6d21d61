"""Where things lie in a checkout: one place, so that every command works from any folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
MODELS = ROOT / "models"
WORK = ROOT / "work"
BUILD = ROOT / "build"


def chapters(which=None, suffix=".py", folder=NOTEBOOKS):
    """The chapter files NN_topic, in order; `which` ("05", "5" or "05_kv_cache") picks one of them.

    Raises: ValueError if `which` names no chapter, with the chapters that there are.
    """
    found = sorted(p for p in Path(folder).glob(f"[0-9][0-9]_*{suffix}"))
    if not which:
        return found
    picked = [p for p in found if p.stem == Path(which).stem or p.stem[:2] == str(which).zfill(2)]
    if not picked:
        there = ", ".join(p.stem for p in found) or "none"
        raise ValueError(f"no chapter {which!r} in {Path(folder).name}/; there are: {there}")
    return picked
