"""What the tests of public faults share: the cases, a register of the checks, and small forms of the functions under test."""

import json
from pathlib import Path

import torch

from lib import apply_rope, attend, rope_cache
from tolerances import as_printed as close  # a case's numbers are printed ones

__all__ = ["CASES", "close", "register", "score", "turn", "uniform"]

DATA = Path(__file__).parent / "data"
CASES, SECOND = (
    {c["id"]: c for c in map(json.loads, (DATA / name).read_text().splitlines())}
    for name in ("cases.jsonl", "cases_second.jsonl")
)


def register(cases=CASES):
    """(checks by case id, the decorator that adds one): @case("RMS-01")."""
    checks = {}

    def case(name):
        def keep(check):
            assert name in cases and name not in checks
            checks[name] = check
            return check

        return keep

    return checks, case


def turn(x, position, layout="half", base=1e4, r=None):
    cos, sin = rope_cache(1, r or x.shape[-1], base, start=position)
    return apply_rope(x[None], cos, sin, layout)[0]


def score(q, k, m, n, layout="half"):
    return turn(q, m, layout) @ turn(k, n, layout)


def uniform(t, s, mask=None):
    """Equal scores over v = 1, 2, 3 ..: the output is the mean of what is visible."""
    zeros, v = torch.zeros(1, 1, s, 1), torch.arange(1.0, s + 1).view(1, 1, s, 1)
    return attend(zeros[:, :, :t], zeros, v, mask).flatten()
