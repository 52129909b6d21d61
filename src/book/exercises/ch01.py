"""Exercises of chapter 01: RMSNorm."""

from book.exercises.core import Exercise, Mistake


def _cases():
    """Random gains; d = 5, 7, 4, 8, 6: all different; one case overflows in fp16, one is ruled by eps."""
    import torch

    g = torch.Generator().manual_seed(1)

    def draw(*shape, scale=1.0, dtype=torch.float32):
        return (torch.randn(*shape, generator=g) * scale + 0.5).to(dtype)

    return [
        (torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.ones(4), 0.0),
        (draw(3, 5), draw(5), 1e-6),
        (draw(2, 3, 7, scale=30), draw(7), 1e-5),
        (torch.full((1, 4), 300.0, dtype=torch.float16), draw(4, dtype=torch.float16), 1e-6),
        (torch.full((8,), 1e-3), draw(8), 1e-5),
        (draw(2, 6, dtype=torch.bfloat16), draw(6, dtype=torch.bfloat16), 1e-6),
    ]


def _plain(x, weight, eps):
    y = x.float()
    y = y * (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return y.to(x.dtype) * weight


def _rms_norm(x, weight, eps):
    from lib import rms_norm

    return rms_norm(x, weight, eps)


def _scaled(x, weight, factor):
    """The cast back and the gain, which every mistake but one gets right."""
    return (x.float() * factor).to(x.dtype) * weight


def _no_upcast(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def _mean_removed(x, weight, eps):
    y = x.float() - x.float().mean(-1, keepdim=True)
    return (y * (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype) * weight


def _standard_deviation(x, weight, eps):
    return _scaled(x, weight, 1 / (x.float().var(-1, keepdim=True, correction=0) + eps).sqrt())


def _eps_outside(x, weight, eps):
    return _scaled(x, weight, 1 / (x.float().pow(2).mean(-1, keepdim=True).sqrt() + eps))


def _sum(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).sum(-1, keepdim=True) + eps).rsqrt())


def _unbiased(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps).rsqrt())


def _unit_length(x, weight, eps):
    return _scaled(x, weight, 1 / x.float().norm(dim=-1, keepdim=True))


def _no_eps(x, weight, eps):
    return _scaled(x, weight, x.float().pow(2).mean(-1, keepdim=True).rsqrt())


def _eps_squared(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).mean(-1, keepdim=True) + eps**2).rsqrt())


def _eps_floor(x, weight, eps):
    return _scaled(x, weight, x.float().pow(2).mean(-1, keepdim=True).clamp(min=eps).rsqrt())


def _mean_of_sizes(x, weight, eps):
    return _scaled(x, weight, 1 / (x.float().abs().mean(-1, keepdim=True) + eps))


def _square_of_mean(x, weight, eps):
    return _scaled(x, weight, (x.float().mean(-1, keepdim=True).pow(2) + eps).rsqrt())


def _first_axis(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).mean(0, keepdim=True) + eps).rsqrt())


def _median(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).median(-1, keepdim=True).values + eps).rsqrt())


def _largest(x, weight, eps):
    return _scaled(x, weight, 1 / (x.float().abs().amax(-1, keepdim=True) + eps))


def _multiplied(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).mean(-1, keepdim=True) + eps).sqrt())


def _gain_inside(x, weight, eps):
    y = x.float() * weight.float()
    return (y * (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def _gain_divides(x, weight, eps):
    return _scaled(x, 1 / weight, (x.float().pow(2).mean(-1, keepdim=True) + eps).rsqrt())


def _gain_added(x, weight, eps):
    return _rms_norm(x, None, eps) + weight


def _double_root(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).mean(-1, keepdim=True).sqrt() + eps).rsqrt())


def _no_root(x, weight, eps):
    return _scaled(x, weight, 1 / (x.float().pow(2).mean(-1, keepdim=True) + eps))


def _one_plus_weight(x, weight, eps):
    return _rms_norm(x, 1 + weight, eps)


def _no_gain(x, weight, eps):
    return _rms_norm(x, None, eps)


def _whole_tensor(x, weight, eps):
    return _scaled(x, weight, (x.float().pow(2).mean() + eps).rsqrt())


def _not_cast_back(x, weight, eps):
    return x.float() * (x.float().pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight.float()


_NO_UPCAST = Mistake(
    _no_upcast,
    "The squares are taken in x's own dtype: in fp16 300 ** 2 is inf, so the row comes out as 0, without an error.",
    "What is the largest number that fp16 holds, and what is its square root?",
)

rms_norm = Exercise(
    id="01.rms_norm",
    title="Write RMSNorm",
    kind="implement",
    cases=_cases,
    reference=_rms_norm,
    plain=_plain,
    mistakes=[
        _NO_UPCAST,
        Mistake(_mean_removed, "The mean is subtracted: that is LayerNorm's first step, and RMSNorm leaves it out.", "What does your function return for x = [5, 5, 5, 5]?"),
        Mistake(_standard_deviation, "x is divided by its standard deviation, and that removes the mean from the divisor.", "For which x is the standard deviation 0 and the root mean square is not?"),
        Mistake(_eps_outside, "eps is added after the root; every published norm adds it to the mean square, inside.", "With mean square 1e-6 and eps 1e-5, what is the divisor in each form?"),
        Mistake(_sum, "The squares are summed, not averaged, so the output shrinks with the width.", "How long should the output of a vector with d entries be: 1, or sqrt(d)?"),
        Mistake(_unbiased, "The sum of squares is divided by d - 1; no mean was estimated, so nothing has to be corrected.", "What would a vector of width 1 be divided by?"),
        Mistake(_double_root, "The root is taken twice: rsqrt of something that already was a root.", "If x doubles, by what factor does your output grow, and by what factor should it?"),
        Mistake(_no_root, "The root is missing: x is divided by its mean square.", "If x doubles, by what factor does your output change, and by what factor should it?"),
        Mistake(_one_plus_weight, "The gain is 1 + weight: Gemma stores its weights like that, this function is given the gain itself.", "Which of the two gives 0 when the weight is 0?"),
        Mistake(_no_gain, "The weight is not used.", "What should come out when every weight is 0?"),
        Mistake(_whole_tensor, "One mean square is taken over the whole tensor: every token then depends on all the others.", "Over which axis do the features of one token lie?"),
        Mistake(_unit_length, "x is divided by its length, so every output has length 1 (and eps is nowhere).", "What is the root MEAN square of a vector of length 1 and width 4?"),
        Mistake(_no_eps, "eps is not used.", "What comes out for a row of zeros?"),
        Mistake(_eps_squared, "eps is squared before it is added; it is added to the mean square as it is.", "Which number is 1e-5 compared with: x, or x squared?"),
        Mistake(_eps_floor, "eps is a lower limit of the mean square in your function; it is added to it, always.", "With mean square 1e-5 and eps 1e-5, what is under the root?"),
        Mistake(_mean_of_sizes, "x is divided by the mean of its absolute values; the entries are to be squared, averaged, and the root taken.", "For x = [1, 7], what are mean |x| and the root mean square?"),
        Mistake(_square_of_mean, "The mean is squared: it must be the mean of the squares.", "What do you divide x = [1, -1] by?"),
        Mistake(_first_axis, "The mean runs over the first axis; each token has a mean square of its own, over its features.", "If a second token is added to x, may the first token's output change?"),
        Mistake(_median, "The median of the squares is taken; the norm needs their mean.", "For x = [0, 0, 3], what are the median and the mean of the squares?"),
        Mistake(_largest, "x is divided by its largest entry.", "For x = [1, 7], what is the root mean square?"),
        Mistake(_multiplied, "x is multiplied by the root mean square instead of divided by it.", "If x doubles, by what factor does your output grow, and by what factor should it grow?"),
        Mistake(_gain_inside, "The gain is applied before the mean square is taken, so the norm undoes much of it.", "What should the output do when every gain is doubled?"),
        Mistake(_gain_divides, "The output is divided by the weight.", "What does a gain of 2 do to the output?"),
        Mistake(_gain_added, "The weight is added; it is a gain, a factor for each feature.", "What should come out of feature 3 when its gain is 0?"),
        Mistake(_not_cast_back, "The output is fp32 although x is not: the rest of the model would be computed in fp32 from here on.", "In which dtype must the residual stream get its values back?"),
    ],
)  # fmt: skip


def _overflow():
    import torch

    return _no_upcast(torch.full((4,), 300.0, dtype=torch.float16), 1.0, 1e-6)[0].item()


overflow = Exercise(
    id="01.overflow",
    title="A norm that squares in fp16, given four copies of 300",
    kind="predict",
    reference=_overflow,
    mistakes=[
        Mistake(1.0, "1.0 is the right norm of this row; the careless one never gets there.", "What is 300 ** 2 in fp16?"),
        Mistake(float("inf"), "The mean square is inf, and it stands below the line.", "What is 300 / sqrt(inf)?" ),
        Mistake(float("nan"), "NaN needs inf / inf or 0 * inf; here a finite number is divided by inf.", "What is 300 / sqrt(inf)?"),
        Mistake(lambda: 300 / 65504**0.5, "You stopped the mean square at 65,504. fp16 does not stop at its largest number.", "What is 65,504 + 10,000 in fp16?"),
        Mistake(300.0, "The row is scaled, only by the wrong factor.", "Which factor is 1 / sqrt(inf)?"),
    ],
)  # fmt: skip


def _eps_parts(divisor):
    """The output for eight copies of 1e-3 at both eps, given what x is divided by."""
    return {"1e-6": 1e-3 / divisor(1e-6, 1e-6), "1e-5": 1e-3 / divisor(1e-6, 1e-5)}


eps = Exercise(
    id="01.eps",
    title="Eight copies of 1e-3 under two eps",
    kind="predict",
    reference=lambda: _eps_parts(lambda mean_square, eps: (mean_square + eps) ** 0.5),
    mistakes=[
        Mistake(lambda: _eps_parts(lambda mean_square, eps: mean_square**0.5), "Without eps both would be 1; but here eps is as large as the mean square.", "What is the mean square of eight copies of 1e-3?"),
        Mistake(lambda: _eps_parts(lambda mean_square, eps: mean_square**0.5 + eps), "eps is added outside the root.", "What is sqrt(1e-6 + 1e-5), and what is sqrt(1e-6) + 1e-5?"),
        Mistake(lambda: _eps_parts(lambda mean_square, eps: (8 * mean_square + eps) ** 0.5), "The eight squares are summed, not averaged.", "What is the mean of eight copies of the same square?"),
        Mistake(lambda: _eps_parts(lambda mean_square, eps: (mean_square**0.5 + eps) ** 0.5), "1e-3 is the mean of x; eps is added to the mean of its squares.", "What is the square of 1e-3?"),
        Mistake(lambda: dict(zip(("1e-5", "1e-6"), eps.expected.values(), strict=True)), "Both numbers are right, and in each other's place.", "Which eps makes the divisor larger?"),
        Mistake(lambda: _eps_parts(lambda mean_square, eps: mean_square + eps), "The root is missing.", "Which power of x has the mean square, and which the output's divisor?"),
    ],
)  # fmt: skip

scale = Exercise(
    id="01.scale",
    title="What 1,000 x does to the gradient",
    kind="choose",
    options=("a", "b", "c", "d"),
    reference="b",
    mistakes=[
        Mistake("a", "The output stays the same, so a step of a given size in x no longer changes it as much.", "By how much does y change when an x of length 24,000 moves by 1, and when one of length 24 does?"),
        Mistake("c", "The factor goes the other way.", "By how much does y change when an x of length 24,000 moves by 1, and when one of length 24 does?"),
        Mistake("d", "Only the part along x is 0: y depends on the direction of x.", "Does the output change when x is turned?"),
    ],
)  # fmt: skip
