"""Runs code that may do anything and says what happened: nothing gets out but an Outcome.

Survives: every exception (SystemExit and KeyboardInterrupt too), an endless loop, floods of output, a changed argument, changed
random seeds. The clock is SIGALRM, so a loop is stopped only in the main thread on Unix and only between two Python bytecodes:
not on Windows, and not inside one call into C (a huge matmul, `sum(itertools.count())`). os._exit and using up the memory are
not survived either; both would need another process.
"""

import contextlib
import copy
import linecache
import random
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from dataclasses import dataclass

import numpy as np

from book.exercises.compare import is_array, is_number
from book.predict import as_array, is_tensor

LIMIT = 3.0  # seconds for all the cases of one check together


class _OutOfTime(BaseException):
    pass


@dataclass
class Outcome:
    """kind: "value" (then value), "raised" (then error and text), or "time" (stopped by the clock)."""

    kind: str
    value: object = None
    error: type | None = None
    text: str = ""
    changed: str | None = None  # the name of an argument that the function changed


class _Sink:
    """Takes whatever is printed and keeps nothing."""

    encoding = "utf-8"

    def write(self, text):
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False


@contextlib.contextmanager
def _quiet():
    """Nothing that runs inside prints, displays or warns."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(_Sink()))
        stack.enter_context(contextlib.redirect_stderr(_Sink()))
        shell = _shell()
        if shell is not None:
            from IPython.core.displaypub import CapturingDisplayPublisher

            before, shell.display_pub = shell.display_pub, CapturingDisplayPublisher()
            stack.callback(setattr, shell, "display_pub", before)
            shell.ask_exit = _no_exit  # exit() would end the kernel, and every variable with it
            stack.callback(delattr, shell, "ask_exit")
        yield


def _no_exit():
    raise SystemExit


def _shell():
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


@contextlib.contextmanager
def _same_seeds():
    """The CPU's random numbers start from one seed inside, so that a check prints the same each time; outside they go on as before."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state(), torch.get_rng_state() if torch else None
    random.seed(0)
    np.random.seed(0)
    if torch:
        torch.default_generator.manual_seed(0)  # torch.manual_seed formats a traceback for each absent device
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch and states[2] is not None:
            torch.set_rng_state(states[2])


def _call(function, args):
    """The border: the clock only ever raises above this frame, in code that is being checked."""
    return function(*args)


_delays = random.Random(0)


def _raise_in_handlers(frame, event, arg):
    """A trace function that raises at the next line: the way out of a loop whose `except:` swallows the first exception.

    Python then drops the trace, so the next alarm is set for a few microseconds later, at random: in loops inside loops that all
    catch everything, one of them soon falls between two `try`. Frames that are entered later are left alone.
    """
    if event == "call":
        return None
    if event == "line":
        signal.setitimer(signal.ITIMER_REAL, _delays.uniform(2e-6, 60e-6), 0.05)
        raise _OutOfTime
    return _raise_in_handlers


class _Clock:
    """Raises _OutOfTime inside `with` once the deadline (time.monotonic) is over; again every 50 ms, should somebody catch it."""

    def __init__(self, deadline):
        self.deadline, self.fired = deadline, 0
        self.usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    def __enter__(self):
        if self.usable:
            self.began, self.tracer = time.monotonic(), sys.gettrace()
            self.handler = signal.signal(signal.SIGALRM, self.stop)
            wait = max(self.deadline - self.began, 0.001)
            self.timer = signal.setitimer(signal.ITIMER_REAL, wait, 0.05)

    def stop(self, number, frame):
        inside = []
        while frame is not None and frame.f_code is not _call.__code__:
            inside.append(frame)
            frame = frame.f_back
        if frame is None:
            return  # the checked code has ended already
        self.fired += 1
        if self.fired > 1:  # somebody catches everything: raise once more where it is caught
            for each in inside:
                each.f_trace = _raise_in_handlers
            sys.settrace(_raise_in_handlers)
        raise _OutOfTime

    def __exit__(self, *error):
        if not self.usable:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.handler)
        if self.fired:
            sys.settrace(self.tracer)
        before, interval = self.timer
        if before:  # a clock around this one goes on
            signal.setitimer(
                signal.ITIMER_REAL, max(before - (time.monotonic() - self.began), 1e-3), interval
            )


def _where(error, code):
    """', in line 3 of f: `y = x / 0`': the last line of the reader's own code that the error went through."""
    if code is None:
        return ""
    frames = [
        f for f, _ in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == code.co_filename
    ]
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == code.co_filename]
    if not frames:
        return ""
    frame, number = frames[-1], lines[-1]
    source = linecache.getline(code.co_filename, number).strip()
    place = f", in line {number - frame.f_code.co_firstlineno + 1} of {frame.f_code.co_name}"
    return place + (f": `{source[:80]}`" if source else "")


def _message(error):
    """The error's own first line, without addresses and paths that differ from one run to the next."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001  a __str__ that fails
        text = ""
    first = text.splitlines()[0] if text else ""
    first = re.sub(r"0x[0-9a-fA-F]+", "0x..", first)
    first = re.sub(r"(/[\w.\-]+){2,}/", "../", first)
    return first if len(first) <= 160 else first[:157].rsplit(" ", 1)[0] + " .."


def _state(x):
    """What is compared before and after a call: a copy of everything that can be changed in place."""
    if is_tensor(x):
        return x.detach().clone()
    if is_array(x):
        return x.copy()
    if isinstance(x, dict):
        return {key: _state(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_state(entry) for entry in x]
    return x if is_number(x) or isinstance(x, str | bool) else None


def _unchanged(now, before):
    try:
        return _equal(now, before)
    except Exception:  # noqa: BLE001  something is there now that cannot be compared
        return False


def _equal(now, before):
    if is_array(before):
        alike = now.shape == before.shape and now.dtype == before.dtype
        return alike and np.array_equal(as_array(now), as_array(before), equal_nan=True)
    if isinstance(before, dict):
        return set(now) == set(before) and all(_equal(now[key], before[key]) for key in before)
    if isinstance(before, list):
        return len(now) == len(before) and all(_equal(a, b) for a, b in zip(now, before, strict=True))
    return before is None or repr(now) == repr(before)


def run(function, args=(), names=(), deadline=None, watch=True, own=True):
    """function(*copies of args) -> Outcome. `names` are the arguments' names, for the one that was changed.

    watch False: arguments may change; own False: the function is not the reader's, so an error tells no line of it.
    What goes wrong in here and not in the function is raised, so that it can never pass for an outcome.
    """
    code = getattr(function, "__code__", None) if own else None
    args = copy.deepcopy(tuple(args))
    before = _state(args) if watch else []
    deadline = time.monotonic() + LIMIT if deadline is None else deadline
    with _same_seeds(), _quiet():
        try:
            with _Clock(deadline):
                value = _call(function, args)
        except _OutOfTime:
            return Outcome("time")
        except RecursionError as error:
            text = f"RecursionError: it calls itself without end{_where(error, code)}"
            return Outcome("raised", error=RecursionError, text=text)
        except BaseException as error:  # noqa: BLE001  sys.exit and KeyboardInterrupt of a reader's code too
            message = _message(error)
            text = type(error).__name__ + (f": {message}" if message else "") + _where(error, code)
            return Outcome("raised", error=type(error), text=text)
    names = [*names, *(f"argument {i + 1}" for i in range(len(names), len(args)))]
    changed = (name for name, now, old in zip(names, args, before, strict=False) if not _unchanged(now, old))
    return Outcome("value", value, changed=next(changed, None))
