"""What a kernel remembers of a reader's answers: the functions that passed, and the names whose last cell stopped with an error."""

import re
import sys

_passed = {}  # exercise id -> the reader's function that its check called correct
_stale = {}  # name -> the error with which the cell that should have bound it stopped
_cell = {"source": "", "before": {}}
BINDS = re.compile(r"^(?:async +def|def|class) +(\w+)|^(\w+) *(?::[^=\n]+)?=(?!=)", re.MULTILINE)


def keep(exercise_id, function):
    _passed[exercise_id] = function


def mine(exercise_id):
    """The reader's function once its check has passed in this kernel; until then the exercise's own reference.

    rms_norm = mine("01.rms_norm")   # and the chapter goes on with it: the same numbers either way
    Raises: KeyError if no exercise has this id, TypeError if its answer is not a function.
    """
    from book.exercises import find

    exercise = find(exercise_id)
    if exercise is None:
        raise KeyError(f"mine({exercise_id!r}): no exercise has this name")
    if not exercise.is_function:
        raise TypeError(f"mine({exercise_id!r}): the answer of this exercise is a value, not a function")
    return _passed.get(exercise_id, exercise.reference)


def stale(answer):
    """Why this answer is older than its cell, in one sentence; empty where it is not."""
    shell = _shell()
    for name, error in _stale.items() if shell else ():
        if shell.user_ns.get(name) is answer and re.search(rf"\b{name}\b", _cell["source"]):
            return (
                f"not judged. The cell that makes `{name}` stopped with {error} when it last ran, so this is the"
                " answer from before.\n  Question: what does the line say that the error points to?"
            )
    return ""


def _shell():
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _names(source):
    return {function or value for function, value in BINDS.findall(source)}


def _before(info):
    _cell["source"] = info.raw_cell or ""
    _cell["before"] = {
        name: space[name] for space in [_shell().user_ns] for name in _names(_cell["source"]) if name in space
    }


def _after(result):
    error = result.error_before_exec or result.error_in_exec
    space = _shell().user_ns
    for name in _names(_cell["source"]):
        unchanged = name in _cell["before"] and space.get(name) is _cell["before"][name]
        if error is not None and unchanged:
            kind = type(error).__name__
            _stale[name] = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
        else:
            _stale.pop(name, None)


def watch():
    """Looks at every cell that runs in this kernel from now on. Once; does nothing outside IPython."""
    shell = _shell()
    if shell and not getattr(shell, "_book_watches", False):
        shell._book_watches = True
        shell.events.register("pre_run_cell", _before)
        shell.events.register("post_run_cell", _after)
