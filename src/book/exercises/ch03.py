"""Exercises of chapter 03: RoPE derived."""

from math import pi

from book.exercises.core import Exercise, Mistake
from lib.frequencies import inv_freq as lib_inv_freq

inv_freq = Exercise(
    id="03.inv_freq",
    title="Write the frequencies of RoPE",
    kind="implement",
    cases=[(8, 10_000.0), (64, 100_000.0), (6, 500_000.0), (128, 10_000.0)],
    reference=lambda dh, base: lib_inv_freq(dh, base),
    mistakes=[
        Mistake(
            lambda dh, base: [base ** (2 * i / dh) for i in range(dh // 2)],
            "The exponent has lost its minus sign: the pairs get faster instead of slower.",
            "Which pair is to turn slowest, and how far does yours turn in one token?",
        ),
        Mistake(
            lambda dh, base: [base ** (-(2 * i + 1) / dh) for i in range(dh // 2)],
            "The exponent is odd: pair 0 then turns by less than one radian per token.",
            "What is the frequency of the first pair?",
        ),
        Mistake(
            lambda dh, base: [base ** (-(2 * i - 1) / dh) for i in range(dh // 2)],
            "The exponent is 2i - 1 over d with i counted from 0: pair 0 turns by more than one radian per token.",
            "Does i start at 0 or at 1 in your formula?",
        ),
        Mistake(
            lambda dh, base: [base ** (-2 * i / dh) for i in range(1, dh // 2 + 1)],
            "i starts at 1: the fastest pair is missing.",
            "What is base ** 0?",
        ),
        Mistake(
            lambda dh, base: [base ** (-i / dh) for i in range(dh // 2)],
            "The factor 2 is missing: the slowest pair has a wavelength of 2 pi sqrt(base) only.",
            "How many dimensions make a pair?",
        ),
        Mistake(
            lambda dh, base: [base ** (-2 * i / dh) for i in range(dh)],
            "That is one frequency per dimension; a pair shares one.",
            "How many angles are there for dh dimensions?",
        ),
        Mistake(
            lambda dh, base: [10_000.0 ** (-2 * i / dh) for i in range(dh // 2)],
            "The base is fixed at 10,000.",
            "What does `rope_theta` of a config change in your function?",
        ),
    ],
)


def _pair_cases():
    import torch

    g = torch.Generator().manual_seed(3)
    shapes = ((4, 0), (4, 1), (6, 7), (8, 40), (2, 133))
    return [
        (torch.randn(dh, generator=g, dtype=torch.float64), m, lib_inv_freq(dh, 10_000.0)) for dh, m in shapes
    ]


def _turn(x, position, theta, sign=1.0, layout="adjacent", degrees=False):
    import torch

    angle = position * torch.tensor(theta, dtype=x.dtype)
    angle = angle * pi / 180 if degrees else angle
    cos, sin = angle.cos(), sign * angle.sin()
    if layout == "adjacent":
        a, b = x[0::2], x[1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten()
    a, b = x.chunk(2)
    return torch.cat([a * cos - b * sin, a * sin + b * cos])


def _added(x, position, theta):
    import torch

    angle = position * torch.tensor(theta, dtype=x.dtype)
    return x + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten()


def _stretched(x, position, theta):
    import torch

    angle = position * torch.tensor(theta, dtype=x.dtype)
    a, b = x[0::2], x[1::2]
    return torch.stack(
        [a * angle.cos() + b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1
    ).flatten()


rotate = Exercise(
    id="03.rotate",
    title="Rotate one vector, neighbours paired",
    kind="implement",
    cases=_pair_cases,
    reference=lambda x, position, theta: _turn(x, position, theta),
    mistakes=[
        Mistake(
            lambda x, position, theta: _turn(x, position, theta, sign=-1.0),
            "It turns the other way round: by minus the angle. A model trained like that is fine; one trained the usual way is not.",
            "Which of the two terms in the first component carries the minus sign?",
        ),
        Mistake(
            lambda x, position, theta: _turn(x, position + 1, theta),
            "Positions are counted from 1: position 0 must leave x as it is.",
            "What should your function return at position 0?",
        ),
        Mistake(
            lambda x, position, theta: _turn(x, position, theta, degrees=True),
            "The angle was taken to be in degrees; theta is in radians per token.",
            "By how much does the first pair turn from one token to the next?",
        ),
        Mistake(
            lambda x, position, theta: _turn(x, position, theta, layout="half"),
            "Dimension i is paired with i + dh/2. That is a layout too, but here neighbours make a pair.",
            "Which two entries of x does theta[0] turn?",
        ),
        Mistake(
            _added,
            "Something is added to x: those are the sinusoidal positions of 2017. RoPE multiplies.",
            "Does the length of your result equal the length of x?",
        ),
        Mistake(
            _stretched,
            "No minus sign: this is no rotation, lengths change.",
            "What is the determinant of your 2 x 2 matrix?",
        ),
    ],
)

proof = Exercise(
    id="03.proof",
    title="One line that proves the relative property",
    kind="choose",
    options=("a", "b", "c", "d"),
    reference="c",
    seed=2,
    mistakes=[
        Mistake(
            "a",
            "The transpose of a rotation turns BACK: R(m theta)^T is R(-m theta).",
            "What is R(a)^T R(a)?",
        ),
        Mistake(
            "b",
            "Rotations compose by adding angles; they are not distributive over products of angles.",
            "What is R(a) R(b) for a = b?",
        ),
        Mistake(
            "d",
            "Equal lengths say nothing of the score: it depends on the angle between the two.",
            "Do two vectors of length 1 always have the same dot product?",
        ),
    ],
)

slowest = Exercise(
    id="03.slowest",
    title="The slowest pair of SmolLM2",
    kind="predict",
    reference=lambda: 2 * pi * 100_000 ** (62 / 64),
    mistakes=[
        Mistake(2 * pi * 100_000, "That is the bound 2 pi base; the last pair does not quite reach it.", "What is i for the last of 32 pairs?"),
        Mistake(lambda: 2 * pi * 100_000 ** (63 / 64), "The exponent is 2i/dh with i = 31.", "What is 2 * 31?"),
        Mistake(lambda: 2 * pi * 100_000 ** (31 / 64), "The factor 2 in the exponent is missing.", "Which exponent has the last pair?"),
        Mistake(lambda: 100_000 ** (62 / 64), "That is 1 / theta: the tokens for one radian.", "How many radians are a full turn?"),
        Mistake(2 * pi, "That is the fastest pair.", "Which pair turns by one radian per token?"),
        Mistake(lambda: 2 * pi * 10_000 ** (62 / 64), "The base is 100,000 in this model.", "Which field of the config is the base?"),
    ],
)  # fmt: skip


def _score_cases():
    import torch

    from lib import rope_cache

    g = torch.Generator().manual_seed(5)
    cases = []
    for T, dh, start in ((5, 4, 0), (4, 6, 40), (3, 8, 300)):
        cos, sin = rope_cache(T, dh, start=start)
        q, k, v = (torch.randn(1, 1, T, dh, generator=g, dtype=torch.float64) for _ in range(3))
        cases.append((q, k, v, cos.double(), sin.double()))
    return cases


def _attention(q, k, v, cos, sin, turned="qk"):
    from lib import apply_rope, attend

    q = apply_rope(q, cos, sin) if "q" in turned else q
    k = apply_rope(k, cos, sin) if "k" in turned else k
    v = apply_rope(v, cos, sin) if "v" in turned else v
    out = attend(q, k, v, implementation="explicit")
    return apply_rope(out, cos, sin) if "o" in turned else out


def _given(q, k, v, cos, sin):
    from lib import apply_rope, attend

    q, k, v = (apply_rope(x, cos, sin) for x in (q, k, v))
    return attend(q, k, v)


fault = Exercise(
    id="03.fault",
    title="Find the fault in an attention with RoPE",
    kind="find the fault",
    cases=_score_cases,
    reference=lambda q, k, v, cos, sin: _attention(q, k, v, cos, sin),
    given=_given,
    mistakes=[
        Mistake(
            lambda q, k, v, cos, sin: _attention(q, k, v, cos, sin, "qkv"),
            "The values are rotated too, so the output depends on where in the text the tokens stand.",
            "If all positions move by 100, which of q k^T and the sum of values change?",
        ),
        Mistake(
            lambda q, k, v, cos, sin: _attention(q, k, v, cos, sin, "q"),
            "Now the keys are not rotated: the score depends on the query's own position.",
            "What does the score of two equal positions depend on?",
        ),
        Mistake(
            lambda q, k, v, cos, sin: _attention(q, k, v, cos, sin, "k"),
            "Now the queries are not rotated: the score depends on the key's position alone.",
            "What does the score of two equal positions depend on?",
        ),
        Mistake(
            lambda q, k, v, cos, sin: _attention(q, k, v, cos, sin, ""),
            "Now nothing is rotated: the order of the past is lost.",
            "Where else in this model would a position enter?",
        ),
        Mistake(
            lambda q, k, v, cos, sin: _attention(q, k, v, cos, sin, "o"),
            "The output is rotated, after the dot product; the scores know nothing of positions.",
            "Before or after which product must the angles enter?",
        ),
    ],
)
