"""How close is close: every tolerance of the tests, from the dtype and the length of the sums, never from one CPU's digits.

    assert_close(got, want, (60, 14))        max |got - want| <= rtol * max |want|, both sums on the way: 60 and 14 terms
    assert_close(logits, want, model_sums(lm.config, keys=23))
    assert_close(alone, zeros, (14,), scale=x.norm() * y.norm())    want is zero: what the numbers that cancel are made of
    as_printed(got, [0.365148, 0.730297])    a number that a page prints to six digits
    assert distance(wrong, want) > 0.01      how far a control is away, in units of the largest |want|

A sum of n terms rounds n times. Each rounding is off by at most u (half the spacing of numbers at 1) and their signs are as
good as random, so R of them in a row come to about u * sqrt(R) of the largest entry, in whatever order a CPU adds
(N. J. Higham and T. Mary, "A new approach to probabilistic rounding error analysis", 2019). Hence

    rtol = SAFETY * u * sqrt(R),    R = all terms of all sums on the longest way from input to output

In float16 and bfloat16 a kernel adds in float32 and rounds once a sum: there R is the number of sums.
An absolute number is right on one machine only: what is 2e-5 of logits of size 1 is 1e-3 of logits of size 50.
tests/test_tolerances.py reads the tests and the chapters and finds tolerances that are written down anywhere else.
"""

import math
import os

import torch

from lib.config import MLA

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
NARROW = (torch.bfloat16, torch.float16)
SAFETY = 4.0
used = []  # (share of the allowed difference, test): conftest.py reports the largest


def rtol(dtype, sums):
    """SAFETY * u * sqrt(R): the largest allowed max |got - want| / max |want|.

    sums: terms of each sum on the longest way, e.g. (d, head_dim, keys). A step without a sum counts as a sum of 1.
    """
    if dtype not in UNIT:
        raise ValueError(f"no rounding unit for {dtype}; there are {[str(d) for d in UNIT]}")
    sums = tuple(sums)
    if not sums or min(sums) < 1:
        raise ValueError(f"sums = {sums}: expected the number of terms of each sum, 1 or more")
    return SAFETY * UNIT[dtype] * math.sqrt(len(sums) if dtype in NARROW else sum(sums))


def wide(x):
    return x.detach().double().cpu() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64)


def distance(got, want, scale=None):
    """max |got - want| / scale; scale: max |want| unless given. A NaN is infinitely far away.

    Raises: ValueError for two shapes, or if the scale is not above zero.
    """
    a, b = wide(got), wide(want)
    if a.shape != b.shape:
        raise ValueError(f"got shape {list(a.shape)}, expected {list(b.shape)}")
    scale = b.abs().max().item() if scale is None else wide(scale).item()
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(
            f"the scale is {scale}: where zero is expected, give scale=, the size of the numbers that cancel"
        )
    apart = (a - b).abs().max().item() / scale
    return math.inf if math.isnan(apart) else apart


def assert_close(got, want, sums, dtype=None, scale=None, what=""):
    """max |got - want| <= rtol(dtype, sums) * scale. dtype: the coarser of the two unless given (what was computed in)."""
    dtype = dtype or max((got.dtype, want.dtype), key=UNIT.__getitem__)
    apart, bound = distance(got, want, scale), rtol(dtype, sums)
    assert apart <= bound, (
        f"{what} {apart:.3g} of the scale apart, {bound:.3g} allowed: {dtype}, sums {tuple(sums)}"
    )
    used.append((apart / bound, os.environ.get("PYTEST_CURRENT_TEST", "")))


def as_printed(got, want, digits=6):
    """A result equals a number that is printed to `digits` significant digits: half a unit of the last is 5e-digits at most."""
    apart = distance(got, want)
    assert apart <= 5 * 10.0**-digits, f"got {got}, printed {want}: {apart:.3g} apart at {digits} digits"


def attention_sums(d, attention, keys):
    """The sums of one attention layer: projections, scores, softmax and weighted values over `keys` keys, output."""
    a = attention
    if isinstance(a, MLA):
        way = (d, a.q_lora_rank or 1, a.q_lora_rank or 1, a.kv_lora_rank, a.kv_lora_rank)
        return (
            *way,
            a.qk_nope_head_dim + a.qk_rope_head_dim,
            keys,
            keys,
            a.kv_lora_rank,
            a.n_heads * a.v_head_dim,
        )
    return (d, a.head_dim, a.head_dim, keys, keys, a.n_heads * a.d_v)


def model_sums(config, keys):
    """The sums of a whole model: per layer two norms, attention, two products of the feed-forward; then norm and head."""
    way = ()
    for layer in config.layers:
        way += (
            config.d,
            *attention_sums(config.d, layer.attention, keys),
            config.d,
            config.d,
            layer.ffn.d_ff,
        )
    return (*way, config.d, config.d)
