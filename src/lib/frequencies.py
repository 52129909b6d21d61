"""The frequencies of RoPE as plain floats: how fast each pair of dimensions turns, in radians a token. No torch here.

Sources: Su et al. 2021 (arXiv 2104.09864) for the base rule; Peng et al. 2023 (arXiv 2309.00071) for yarn and dynamic NTK;
the `rope_scaling` conventions of Hugging Face transformers for the field names and for llama3 and longrope.
"""

from math import ceil, floor, log, pi, sqrt

from lib.config import Scaling


def inv_freq(dh, base=10000.0, scaling=None, length=None):
    """base ** (-2 i / dh) for i = 0 .. dh/2 - 1, then stretched as `scaling` says. Radians a token.

    dh: the rotary width (even). length: tokens that this sequence may reach; only "dynamic" and "longrope" look at it
    (None = no longer than the training length).
    Raises: ValueError for an odd width, a base <= 1, factor lists of the wrong length, or a kind that is counted only.
    """
    if not isinstance(dh, int) or dh <= 0 or dh % 2:
        raise ValueError(
            f"rotary width {dh!r}: expected an even whole number, because RoPE turns pairs of dimensions"
        )
    if not base > 1:
        raise ValueError(f"RoPE base {base!r}: expected a number above 1 (10000 originally)")
    if scaling is not None and scaling.kind == "proportional":
        raise ValueError("proportional partial RoPE is counted, not run: there is no table of it")
    if scaling is not None and scaling.kind == "dynamic":
        base = dynamic_base(dh, base, scaling, length)
    plain = [float(base) ** (-2 * i / dh) for i in range(dh // 2)]
    if scaling is None or scaling.kind == "dynamic":
        return plain
    if scaling.kind == "linear":
        return [f / scaling.factor for f in plain]
    if scaling.kind == "llama3":
        return [_llama3(f, scaling) for f in plain]
    if scaling.kind == "yarn":
        low, high = yarn_range(dh, base, scaling)
        ramp = [
            min(max((i - low) / (high - low), 0.0), 1.0) for i in range(dh // 2)
        ]  # 0 = fast, kept; 1 = slow, divided
        return [f * (1 - r) + f / scaling.factor * r for f, r in zip(plain, ramp)]
    factors = scaling.long_factor if _is_long(scaling, length) else scaling.short_factor
    if len(factors) != dh // 2:
        raise ValueError(
            f"longrope has {len(factors)} factors: expected one per pair, {dh // 2} for a rotary width of {dh}"
        )
    return [f / s for f, s in zip(plain, factors)]


def wavelengths(dh, base=10000.0, scaling=None, length=None):
    """2 pi / inv_freq: tokens for one full turn of each pair, from 2 pi to about 2 pi base."""
    return [2 * pi / f for f in inv_freq(dh, base, scaling, length)]


def dynamic_base(dh, base, scaling, length=None):
    """The base of "dynamic" NTK scaling for a sequence of `length` tokens; the trained base up to the training length."""
    if dh <= 2:
        raise ValueError(
            f"dynamic scaling of a rotary width of {dh}: expected more than one pair (its exponent is dh / (dh - 2))"
        )
    length = max(length or 0, scaling.original_max_len)
    stretch = scaling.factor * length / scaling.original_max_len - (scaling.factor - 1)
    return base * stretch ** (dh / (dh - 2))


def _llama3(f, s: Scaling):
    """Short wavelengths stay, long ones are divided by factor, the band between is blended in turns per training length."""
    turns = s.original_max_len * f / (2 * pi)  # how often this pair turned over within the training length
    if turns > s.high_freq_factor:
        return f
    if turns < s.low_freq_factor:
        return f / s.factor
    if s.low_freq_factor == s.high_freq_factor:
        raise ValueError(
            f"llama3 scaling with low_freq_factor = high_freq_factor = {s.low_freq_factor!r}, and a pair turns exactly so often:"
            " it is neither kept nor divided"
        )
    keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    return keep * f + (1 - keep) * f / s.factor


def yarn_range(dh, base, scaling):
    """The pairs between which yarn blends, as indices: below low a pair is kept, above high it is divided by factor."""

    def pair_that_turns(times):
        return dh * log(scaling.original_max_len / (times * 2 * pi)) / (2 * log(base))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, dh - 1)
    return low, high + 0.001 if low == high else high  # the ramp never divides by zero


def yarn_mscale(factor, mscale=1.0):
    """0.1 mscale ln(factor) + 1, and 1 for a factor of at most 1: yarn's temperature (arXiv 2309.00071, eq. 22)."""
    return 0.1 * mscale * log(factor) + 1.0 if factor > 1 else 1.0


def rope_attention_factor(scaling, length=None):
    """What cos and sin are multiplied by (so a score is multiplied by its square). 1.0 for every kind but yarn and longrope.

    A given attention_factor is final. DeepSeek's yarn names mscale and mscale_all_dim: their ratio acts here, and
    mscale_all_dim acts once more in the softmax scale of MLA.
    """
    if scaling is None or scaling.kind not in ("yarn", "longrope"):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.kind == "longrope":
        return sqrt(1 + log(scaling.factor) / log(scaling.original_max_len)) if scaling.factor > 1 else 1.0
    if scaling.mscale and scaling.mscale_all_dim:
        return yarn_mscale(scaling.factor, scaling.mscale) / yarn_mscale(
            scaling.factor, scaling.mscale_all_dim
        )
    return yarn_mscale(scaling.factor)


def _is_long(scaling, length):
    return length is not None and length > scaling.original_max_len
