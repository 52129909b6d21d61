"""predict and check: one printed line each, the same line on every machine.

    predict(None, 131_072, unit="B")        a guess not yet written down: prints the truth
    predict(65_536, 131_072, unit="B")      prints how far the guess is from it
    check_close("cached = uncached", got, want)
    check_close("as published", ratio, 71.1, tol=0.001)
    check_shape("logits", logits, [2, 16, 1000])
    check_equal("d_ff", width, 11_008)

`predict` never raises, whatever the reader writes. A check_* states a claim of the book: when the claim fails it raises
AssertionError with what came and what was expected. Errors are printed as bounds, never as figures, because the last
digits differ from one CPU to the next. Every bound is relative: a share of the largest expected number.
"""

import math
import numbers

import numpy as np

# How close two ways of computing the same are, by dtype, relative to the largest expected number; the exercises' checkers
# use it too. A sum of n terms rounds n times, by u = 2**-53 (float64), 2**-24 (float32) at most; with signs as good as random R
# roundings in a row come to u * sqrt(R). R = 10,000 makes 100 u: 6e-6 in float32; float64 has two digits to spare. In float16
# (u = 2**-11) and bfloat16 (u = 2**-8) a kernel adds in float32 and rounds once a sum: a dozen sums make 4 u, three times that here.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 0.005, "bfloat16": 0.05}
TOLERANCES |= {"complex128": TOLERANCES["float64"], "complex64": TOLERANCES["float32"]}


def is_tensor(x):
    """True for a torch tensor, found out without importing torch."""
    return hasattr(x, "detach") and type(x).__module__.split(".")[0] == "torch"


def as_array(x):
    """x as a float64 (or complex128) numpy array. ValueError if it is not made of numbers."""
    if is_tensor(x):
        x = x.detach().cpu()
        return x.to_dense().numpy() if x.is_complex() else x.double().numpy()
    if isinstance(x, list | tuple) and any(is_tensor(entry) for entry in x):
        return np.stack([as_array(entry) for entry in x])
    try:
        array = np.asarray(x)
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"got {type(x).__name__}, expected numbers: a number, a list, an array or a tensor"
        ) from error


def show(x, digits=6):
    """A short text for a value: thousands separated, floats to `digits`, long things cut. Never an address."""
    if isinstance(x, bool | np.bool_) or x is None:
        return str(x)
    if isinstance(x, str):
        x = "".join(c if c.isprintable() else " " for c in x[:81])  # one line, whatever is in it
        return x if len(x) <= 80 else x[:77] + "..."
    if isinstance(x, numbers.Integral):
        return f"{int(x):,}" if abs(int(x)) < 10**30 else f"an integer of {len(str(abs(int(x))))} digits"
    if isinstance(x, numbers.Real):
        value = float(x)
        if value == int(value) if math.isfinite(value) else False:
            return f"{value:,.1f}" if abs(value) < 1e15 else f"{value:.{digits}g}"
        return f"{value:,.{digits}g}" if 1e-4 <= abs(value) < 1e15 else f"{value:.{digits}g}"
    if isinstance(x, numbers.Complex):
        return f"{complex(x):.{digits}g}"
    if is_tensor(x) or isinstance(x, np.ndarray):
        if len(x.shape) == 0:
            return show(x.item(), digits)
        if math.prod(x.shape) <= 16:
            return show(x.tolist(), digits)
        return f"{str(x.dtype).replace('torch.', '')} {list(x.shape)}"
    if isinstance(x, dict):
        inside = ", ".join(f"{show(key)}: {show(value, digits)}" for key, value in list(x.items())[:8])
        return "{" + inside + (", ..." if len(x) > 8 else "") + "}"
    if isinstance(x, set | frozenset):
        return (
            "{"
            + ", ".join(sorted(show(entry, digits) for entry in x)[:8])
            + (", ..." if len(x) > 8 else "")
            + "}"
        )
    if isinstance(x, list | tuple):
        inside = ", ".join(show(entry, digits) for entry in x[:8]) + (", ..." if len(x) > 8 else "")
        return f"({inside})" if isinstance(x, tuple) else f"[{inside}]"
    return a_kind(x)


def a_kind(x):
    """'a list', 'an int': what x is, never what is in it."""
    name = type(x).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _distance(guess, truth, tol):
    """In words, how far a guess is from the truth."""
    if isinstance(truth, str | bool | np.bool_) or truth is None:
        if isinstance(truth, str) and isinstance(guess, str):
            return "right" if guess.strip().casefold() == truth.strip().casefold() else "not the same"
        return "right" if type(guess) is type(truth) and guess == truth else "not the same"
    if isinstance(truth, dict):
        return _by_entry(guess, truth, tol)
    if isinstance(truth, set | frozenset):
        return "right" if guess == truth else "not the same"
    if isinstance(guess, str | bool | np.bool_):
        return f"the guess is {a_kind(guess)}, the truth a number"
    a, b = as_array(guess), as_array(truth)
    if a.shape != b.shape:
        return f"the guess has shape {list(a.shape)}, the truth {list(b.shape)}"
    if np.isnan(a).any() and not np.isnan(b).any():
        return "the guess is not a number (NaN)"
    with np.errstate(all="ignore"):
        close = (np.abs(a - b) <= tol * np.abs(b)) | (a == b) | (np.isnan(a) & np.isnan(b))
    if close.all():
        return "right"
    if a.size > 1:
        return f"{int(close.sum())} of {a.size} right"
    a, b = a.item(), b.item()
    if isinstance(a, complex) or a * b <= 0 or not (math.isfinite(a) and math.isfinite(b)):
        return f"off by {show(a - b) if isinstance(a, complex) else f'{a - b:,.6g}'}"
    high = abs(a) > abs(b)
    factor = max(abs(a), abs(b)) / min(abs(a), abs(b))
    if factor < 1.1:
        return f"too {'large' if high else 'small'} by {100 * abs(a - b) / abs(b):.2g} %"
    return f"too {'large' if high else 'small'} by a factor of {factor:,.4g}"


def _by_entry(guess, truth, tol):
    """The same for a dict: which entries are right, how far the others are off, and which are still empty."""
    if not isinstance(guess, dict):
        return f"the guess is {a_kind(guess)}; expected a dict with the entries {', '.join(map(show, truth))}"
    found = {}
    for name, value in truth.items():
        if name not in guess:
            found[name] = "is missing"
        elif guess[name] is None or guess[name] is ...:
            found[name] = "no guess yet"
        else:
            try:
                found[name] = _distance(guess[name], value, tol)
            except Exception:  # noqa: BLE001  whatever a reader wrote
                found[name] = "cannot be compared"
    found |= {name: "is not asked for" for name in guess if name not in truth}
    if set(found.values()) == {"right"}:
        return "right"
    return "; ".join(f"{show(name)}: {words}" for name, words in found.items())


def _empty(guess):
    """Nothing written down yet: None, or a dict of nothing but None."""
    return (
        guess is None
        or guess is ...
        or (isinstance(guess, dict) and all(value is None or value is ... for value in guess.values()))
    )


def predict(guess, truth, unit="", tol=0.005):
    """Print the truth, and how far the guess is from it: a factor, or a difference; for a dict entry by entry.

    None, or a dict of None, = no guess yet. unit stands behind both; within tol (relative) a guess counts as right. Never raises.
    """
    try:
        unit = f" {unit}" if unit else ""
        line = f"truth: {show(truth)}{unit}"
        if not _empty(guess):
            try:
                line = f"guess: {show(guess)}{unit}   {line}   {_distance(guess, truth, tol)}"
            except Exception:  # noqa: BLE001  whatever a reader wrote
                line = f"guess: {a_kind(guess)}   {line}   the two cannot be compared"
        print(line)
    except Exception as problem:  # noqa: BLE001  a truth that cannot even be shown
        print(f"predict: nothing to show ({type(problem).__name__})")


def _fail(name, why):
    raise AssertionError(f"{name}: {why}")


def tolerance(*values):
    """The bound in TOLERANCES for the coarsest dtype among the values; plain numbers and integers count as float64."""
    names = [str(getattr(value, "dtype", "float64")).replace("torch.", "") for value in values]
    return max(TOLERANCES.get(name, TOLERANCES["float64"]) for name in names)


def check_close(name, got, want, tol=None, scale=None):
    """Assert max |got - want| < tol * scale (equal shapes; a NaN fails, equal infinities pass) and print tol.

    tol: relative; None = by dtype, see TOLERANCES. scale: the largest finite |want| unless given; where zero is expected it
    must be given: the size of the numbers that cancel.
    """
    try:
        a, b = as_array(got), as_array(want)
        tol = tolerance(got, want) if tol is None else tol
        sizes = np.abs(b[np.isfinite(b)])
        scale = float(as_array(scale)) if scale is not None else sizes.max() if sizes.size else 1.0
    except ValueError as problem:
        _fail(name, f"got {show(got)}, expected {show(want)}: {problem}")
    if a.shape != b.shape:
        _fail(name, f"got shape {list(a.shape)}, expected {list(b.shape)}")
    if not scale > 0:
        _fail(
            name,
            "zero is expected, so nothing says what is close: give scale=, the size of the numbers that cancel",
        )
    with np.errstate(all="ignore"):
        error = np.where(a == b, 0.0, np.abs(a - b)) / scale
    if error.size and not (error < tol).all():
        worst = np.unravel_index(int(np.argmax(np.where(np.isnan(error), np.inf, error))), error.shape)
        where = f" at {list(map(int, worst))}" if worst else ""
        _fail(
            name,
            f"got {show(a[worst])}, expected {show(b[worst])}{where}: {error[worst]:.2g} of {show(scale, 3)} apart, allowed {tol:g}",
        )
    print(f"ok  {name}: relative error below {tol:g}")


def check_shape(name, tensor, shape):
    """Assert that tensor.shape equals shape and print it."""
    got = getattr(tensor, "shape", None)
    if got is None:
        _fail(name, f"got {a_kind(tensor)} without a shape, expected {list(shape)}")
    if list(got) != list(shape):
        _fail(name, f"got shape {list(got)}, expected {list(shape)}")
    print(f"ok  {name}: shape {list(got)}")


def check_equal(name, got, want):
    """Assert that got equals want exactly (arrays entry by entry, shapes too) and print it."""
    if is_tensor(got) or is_tensor(want) or isinstance(got, np.ndarray) or isinstance(want, np.ndarray):
        try:
            a, b = as_array(got), as_array(want)
        except ValueError as problem:
            _fail(name, f"got {show(got)}, expected {show(want)}: {problem}")
        if a.shape != b.shape:
            _fail(name, f"got shape {list(a.shape)}, expected {list(b.shape)}")
        wrong = int((a != b).sum())
        if wrong:
            first = tuple(int(i) for i in np.argwhere(a != b)[0])
            _fail(
                name,
                f"{wrong} of {a.size} differ, first at {list(first)}: got {show(a[first])}, expected {show(b[first])}",
            )
        print(f"ok  {name}: {show(want) if a.size <= 16 else f'equal in all {a.size:,} entries'}")
        return
    if got != want:
        _fail(name, f"got {show(got)}, expected {show(want)}")
    print(f"ok  {name}: {show(want)}")
