"""Exercises that know the mistakes people make: `check("01.rms_norm", my_rms_norm)` in a chapter. How to write one: see core.

check(id, answer)      prints the verdict, never raises
mine("01.rms_norm")    the reader's function once its check has passed, the reference until then: what a chapter goes on with
verdict(id, answer)    the same as an object, for tests
progress("01")         which exercises of a chapter are done; progress() for all chapters
ALL                    id -> Exercise, of every chapter (imports every chNN.py when first used)
"""

import importlib
import pkgutil

from book.exercises.core import Exercise, Mistake, Verdict
from book.exercises.kept import keep, mine, stale, watch
from book.exercises.progress import progress, record

__all__ = ["ALL", "Exercise", "Mistake", "Verdict", "check", "mine", "progress", "verdict"]


def _modules(chapter=""):
    return sorted(
        m.name
        for m in pkgutil.iter_modules(__path__)
        if m.name.startswith(f"ch{chapter}") and m.name[2:4].isdigit()
    )


def _collect(chapter=""):
    found = {}
    for name in _modules(chapter):
        module = importlib.import_module(f"{__name__}.{name}")
        for value in vars(module).values():
            if isinstance(value, Exercise) and found.setdefault(value.id, value) is not value:
                raise ValueError(f"two exercises are named {value.id!r}; the second is in {name}.py")
    return found


def __getattr__(name):
    if name == "ALL":
        value = globals()["ALL"] = _collect()
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(exercise_id):
    """The Exercise of this id, or None."""
    return _collect(str(exercise_id)[:2]).get(exercise_id)


def verdict(exercise, answer):
    """The Verdict on an answer; `exercise` is an id or an Exercise."""
    if not isinstance(exercise, Exercise):
        found = find(exercise)
        if found is None:
            there = ", ".join(_collect(str(exercise)[:2])) or "none"
            return Verdict("error", f"no exercise has this name; chapter {str(exercise)[:2]} has: {there}")
        exercise = found
    older = stale(answer)
    return Verdict("error", older) if older else exercise.judge(answer)


def check(exercise, answer=None):
    """Print what is right or wrong with an answer: a line or a few. Never raises."""
    name = "check"
    try:
        name = (
            exercise.id if isinstance(exercise, Exercise) else exercise if isinstance(exercise, str) else name
        )
        result = verdict(exercise, answer)
        own = getattr(answer, "__name__", "")
        solution = isinstance(own, str) and own.endswith("_solution")
        if result.state == "correct" and not solution:
            record(name)
            keep(name, answer)
        untouched = result.state == "not attempted"
        print(result.text if untouched else f"{name}{' solution' if solution else ''}: {result.text}")
    except BaseException as problem:  # noqa: BLE001  an object whose every attribute raises, or a fault in the exercise
        print(f"{name}: the checker could not read this answer ({type(problem).__name__}).")


watch()
