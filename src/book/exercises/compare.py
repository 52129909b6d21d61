"""Are two answers the same, and if not, where: for numbers, text, choices, lists, dicts, numpy and torch. Torch is not imported."""

import math
import numbers

import numpy as np

from book.predict import TOLERANCES, a_kind, as_array, is_tensor, show

TYPED_TOL = 5e-3  # relative: a value typed by hand
COMPUTED_TOL = TOLERANCES["float32"]  # a float that the reader's code returned, perhaps computed in float32
LARGEST = 50_000_000  # entries that a comparison is willing to look at


def is_array(x):
    return is_tensor(x) or isinstance(x, np.ndarray)


def is_number(x):
    if isinstance(x, bool | np.bool_):
        return False
    return isinstance(x, numbers.Number) or (is_array(x) and len(x.shape) == 0 and dtype_name(x) != "bool")


def dtype_name(x):
    return str(x.dtype).replace("torch.", "")


def text_key(text):
    """How two texts are compared: capitals, outer blanks and a full stop do not count."""
    return " ".join(str(text).split()).strip(" .()").casefold()


def _set_key(entries):
    return {text_key(entry) if isinstance(entry, str) else entry for entry in entries}


def _close(a, b, tol):
    """Entry by entry, for two float arrays of one shape: relative, and the largest entry counts with a tenth of it.

    An infinite entry of b equals itself alone: no distance is small beside it.
    """
    with np.errstate(all="ignore"):
        finite = np.abs(b[np.isfinite(b)])
        scale = finite.max() if finite.size else 0.0
        near = np.isfinite(b) & (np.abs(a - b) <= tol * (np.abs(b) + 0.1 * scale))
        return (a == b) | near | (np.isnan(a) & np.isnan(b))


def difference(got, want, tol=None, number_tol=TYPED_TOL):
    """None if `got` is the same answer as `want`; otherwise one line that says where it is not.

    tol: relative, for everything; None = book.predict.TOLERANCES for arrays, number_tol for Python's floats, exact for integers.
    """
    if want is None:
        return None if got is None else f"expected None, got {brief(got)}"
    if isinstance(want, bool | np.bool_):
        same = isinstance(got, bool | np.bool_) or (
            is_array(got) and not len(got.shape) and dtype_name(got) == "bool"
        )
        return None if same and bool(got) == bool(want) else f"expected {want}, got {brief(got)}"
    if isinstance(want, str):
        same = isinstance(got, str) and text_key(got) == text_key(want)
        return None if same else f"expected {want!r}, got {brief(got)}"
    if isinstance(want, set | frozenset):
        if not isinstance(got, set | frozenset | list | tuple):
            return f"expected a set such as {{...}}, got {brief(got)}"
        return None if _set_key(got) == _set_key(want) else f"expected {brief(want)}, got {brief(got)}"
    if isinstance(want, dict):
        return _dict_difference(got, want, tol, number_tol)
    if is_array(want) and len(want.shape) > 0:
        return _array_difference(got, want, tol)
    if isinstance(want, list | tuple):
        return _list_difference(got, want, tol, number_tol)
    if is_number(want):
        return _number_difference(got, want, tol, number_tol)
    if type(got) is type(want) and got == want:
        return None
    return f"expected {brief(want)}, got {brief(got)}"


def _dict_difference(got, want, tol, number_tol):
    if not isinstance(got, dict):
        return f"expected a dict with the keys {brief(list(want))}, got {brief(got)}"
    if set(got) != set(want):
        return f"expected the keys {brief(list(want))}, got {brief(list(got))}"
    for key, value in want.items():
        problem = difference(got[key], value, tol, number_tol)
        if problem:
            return f"{show(key)}: {problem}"
    return None


def _list_difference(got, want, tol, number_tol):
    if is_array(got) and len(got.shape) == 1:
        got = got.tolist() if len(got) < 10_000 else got
    if not isinstance(got, list | tuple):
        return f"expected a {type(want).__name__} of {len(want)}, got {brief(got)}"
    if len(got) != len(want):
        return f"expected {len(want)} entries, got {len(got)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        problem = difference(a, b, tol, number_tol)
        if problem:
            return f"entry {i}: {problem}"
    return None


def _number_difference(got, want, tol, number_tol):
    if not is_number(got):
        return f"expected a number, got {brief(got)}"
    a, b = (x.item() if is_array(x) else x for x in (got, want))
    if isinstance(a, complex) or isinstance(b, complex):
        same = abs(a - b) <= (tol or number_tol) * abs(b)
    elif isinstance(b, numbers.Integral) and tol is None:
        same = a == b
    elif math.isfinite(b):
        same = a == b or (math.isfinite(a) and abs(a - b) <= (number_tol if tol is None else tol) * abs(b))
    else:
        same = a == b or (math.isnan(a) and math.isnan(b))
    return None if same else f"expected {show(b)}, got {show(a)}"


def _array_difference(got, want, tol):
    kind = "torch tensor" if is_tensor(want) else "numpy array"
    if not is_array(got) or is_tensor(got) != is_tensor(want):
        return f"expected a {kind} of shape {list(want.shape)}, got {brief(got)}"
    if list(got.shape) != list(want.shape):
        return f"expected shape {list(want.shape)}, got shape {list(got.shape)}"
    if dtype_name(got) != dtype_name(want):
        return f"expected dtype {dtype_name(want)}, got {dtype_name(got)}"
    if math.prod(want.shape) > LARGEST:
        return f"an array of {math.prod(want.shape):,} entries is too large to compare"
    a, b = as_array(got), as_array(want)
    exact = dtype_name(want) not in TOLERANCES
    good = (a == b) if exact else _close(a, b, tol or TOLERANCES[dtype_name(want)])
    if good.all():
        return None
    first = tuple(int(i) for i in np.argwhere(~good)[0])
    wrong = int((~good).sum())
    return f"{wrong:,} of {good.size:,} entries differ, first at {list(first)}: expected {figure(b[first])}, got {figure(a[first])}"


def same(got, want, tol=None):
    return difference(got, want, tol) is None


def figure(x):
    """One entry of an array to 4 digits: as many as another CPU agrees on."""
    return f"{x:.4g}" if np.isfinite(x) else str(x)


def brief(x):
    """What x is, in a few words that are the same on every machine."""
    if isinstance(x, str):
        return repr(show(x))
    if isinstance(x, bool | np.bool_) or x is None or x is ...:
        return str(x)
    if is_array(x) and len(x.shape) > 0:
        kind = "tensor" if is_tensor(x) else "array"
        text = f"{dtype_name(x)} {kind} {list(x.shape)}"
        row = x
        if math.prod(x.shape) == 0:
            return text
        while len(row.shape) > 1:
            row = row[0]
        figures = ", ".join(figure(value) for value in np.atleast_1d(as_array(row[:4])))
        return f"{text} starting {figures}"
    if isinstance(x, list | tuple | set | frozenset | dict) or is_number(x):
        return show(x)
    return a_kind(x)
