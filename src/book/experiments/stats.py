"""What a few seeds can tell: paired differences and their 95 % intervals."""

import math
from functools import lru_cache
from typing import NamedTuple


@lru_cache(maxsize=64)
def t_quantile(df, level=0.95):
    """t with P(|T| < t) = level, T having Student's distribution with `df` degrees of freedom: 4.303 for df 2, 0.95.

    Raises: ValueError for fewer than one degree of freedom or a level outside (0, 1).
    """
    if df < 1 or not 0 < level < 1:
        raise ValueError(
            f"df = {df}, level = {level}: expected at least 1 (two pairs) and a level between 0 and 1"
        )
    # T = sqrt(df) tan(a): the density of the angle a is cos(a)**(df - 1), up to a constant
    steps = 20_000
    weights = [math.cos((i + 0.5) * math.pi / 2 / steps) ** (df - 1) for i in range(steps)]
    wanted, total = level * math.fsum(weights), 0.0
    for i, weight in enumerate(weights):
        if total + weight >= wanted:
            return math.sqrt(df) * math.tan((i + (wanted - total) / weight) * math.pi / 2 / steps)
        total += weight


class Interval(NamedTuple):
    """A mean over n seeds and its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def resolved(self):
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def __str__(self):
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]" + (
            "" if self.resolved else "  not resolved"
        )


def interval(values):
    """mean +- t s / sqrt(n), s the standard deviation with n - 1. Assumes that seeds scatter like a normal distribution.

    Raises: ValueError for fewer than two values or one that is not finite (a run that diverged has no difference).
    """
    values = list(values)
    if len(values) < 2 or not all(v is not None and math.isfinite(v) for v in values):
        raise ValueError(f"{values}: expected at least two finite numbers")
    n, mean = len(values), math.fsum(values) / len(values)
    s = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = t_quantile(n - 1) * s / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def by_seed(results, variant, lr=None):
    """{seed: final bits per byte} of a variant; lr only where the file holds more than one rate of it.

    Raises: ValueError if nothing or more than one run a seed fits.
    """
    runs = [r for r in results["runs"] if r["variant"] == variant and lr in (None, r["lr"])]
    bits = {r["seed"]: r["bits_per_byte"] for r in runs}
    if not runs or len(bits) < len(runs):
        raise ValueError(f"{variant}, lr {lr}: {len(runs)} runs for {len(bits)} seeds: expected one a seed")
    return bits


def _differences(results, variant, base):
    own, other = by_seed(results, variant), by_seed(results, base)
    common = sorted(own.keys() & other.keys())
    return {seed: own[seed] - other[seed] for seed in common}


def effect(results, variant, base):
    """Bits per byte of `variant` minus `base`, seed by seed (the same windows in the same order) -> Interval."""
    return interval(_differences(results, variant, base).values())


def total_effect(results, variants, base):
    """The sum of the variants' effects, to stand beside the effect of all of them at once -> Interval over the seeds that all
    of them have."""
    parts = [_differences(results, v, base) for v in variants]
    common = sorted(set.intersection(*(set(part) for part in parts)))
    return interval([sum(part[seed] for part in parts) for seed in common])
