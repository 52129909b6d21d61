"""Exercises of chapter 01 that look behind the norm: its gradient, and a gain folded away."""

from book.exercises.core import Exercise, Mistake


def _upstream_cases():
    """float64, and widths 4 to 7; eps rules one case; one, two and three axes."""
    import torch

    g = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64) + 0.3

    return [
        (draw(4), draw(4), 1e-6, draw(4)),
        (draw(3, 5), draw(5), 1e-5, draw(3, 5)),
        (1e-3 * draw(2, 6), draw(6), 1e-5, draw(2, 6)),
        (20 * draw(2, 3, 7), draw(7), 1e-6, draw(2, 3, 7)),
    ]


def _backward(x, weight, eps, upstream):
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    shared = (into * x).mean(-1, keepdim=True)
    return r * into - r**3 * x * shared


def _divisor_constant(x, weight, eps, upstream):
    return upstream * weight * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()


def _variant(weighted=True, power=3, factor=1.0, sign=-1.0, mean=True):
    """The gradient with one thing wrong."""

    def wrong(x, weight, eps, upstream):
        r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
        into = upstream * weight if weighted else upstream
        shared = (into * x).mean(-1, keepdim=True) if mean else (into * x).sum(-1, keepdim=True)
        return r * into + sign * factor * r**power * x * shared

    return wrong


def _layer_norm_gradient(x, weight, eps, upstream):
    y = x - x.mean(-1, keepdim=True)
    into = upstream * weight
    r = (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return r * (into - into.mean(-1, keepdim=True)) - r**3 * y * (into * y).mean(-1, keepdim=True)


def _gain_on_first_part(x, weight, eps, upstream):
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return r * upstream * weight - r**3 * x * (upstream * x).mean(-1, keepdim=True)


def _gain_afterwards(x, weight, eps, upstream):
    return weight * _variant(weighted=False)(x, weight, eps, upstream)


def _without_eps(x, weight, eps, upstream):
    return _backward(x, weight, 0.0, upstream)


def _shared_by_all(x, weight, eps, upstream):
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).mean()


def _upstream_for_x(x, weight, eps, upstream):
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * into * (into * x).mean(-1, keepdim=True)


def _gradient_of_weight(x, weight, eps, upstream):
    y = upstream * x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return y.reshape(-1, y.shape[-1]).sum(0)


backward = Exercise(
    id="01.backward",
    title="Write RMSNorm's gradient",
    kind="implement",
    cases=_upstream_cases,
    reference=_backward,
    mistakes=[
        Mistake(_divisor_constant, "The divisor is treated as a constant; every entry of x is in it.", "What does a larger x[0] do to the output at place 1?"),
        Mistake(_variant(sign=1.0), "The second part has the wrong sign: a larger x makes the divisor larger and the output smaller.", "What is the sum of x times your gradient, and what must it be with eps 0?"),
        Mistake(_variant(mean=False), "The sum over the features is not divided by d: the divisor holds a mean.", "What is the derivative of mean(x**2) with respect to x[0]?"),
        Mistake(_variant(factor=2.0), "A factor of 2 too many: the square's 2 meets the root's 1/2.", "What is the derivative of m ** -0.5, and that of x ** 2?"),
        Mistake(_variant(factor=0.5), "A factor of 2 is missing: the square's 2 meets the root's 1/2.", "What is the derivative of m ** -0.5, and that of x ** 2?"),
        Mistake(_variant(power=2), "The second part needs one more power of r = 1 / rms.", "By what factor must the gradient shrink when x doubles?"),
        Mistake(_variant(power=1), "The second part needs r to the third: the derivative of m ** -0.5 is -0.5 m ** -1.5.", "By what factor must the gradient shrink when x doubles?"),
        Mistake(_variant(weighted=False), "The gain is not used.", "What is the gradient when every gain is 0?"),
        Mistake(lambda x, weight, eps, upstream: upstream * weight, "Neither part has the norm in it: only the gain is undone.", "What is y when the gain is 1, and how does it depend on x?"),
        Mistake(lambda x, weight, eps, upstream: _divisor_constant(x, 1.0, eps, upstream), "The gain is not used, and the divisor is treated as a constant.", "Which entries of x does the divisor hold?"),
        Mistake(lambda x, weight, eps, upstream: upstream * weight * (x.pow(2).mean(-1, keepdim=True) + eps).sqrt(), "upstream is multiplied by the root mean square; the norm divides by it.", "What happens to the gradient when x doubles?"),
        Mistake(lambda x, weight, eps, upstream: _backward(x, weight, eps, upstream) - _divisor_constant(x, weight, eps, upstream), "Only the part through the divisor is there; x is above the line as well.", "What is the gradient if the divisor were a constant?"),
        Mistake(_gain_afterwards, "The gain is multiplied in at the end: upstream passes it before it reaches the norm.", "Which of the features' gains does the sum over features see?"),
        Mistake(_gain_on_first_part, "The gain is missing from the second part.", "What arrives at x / rms: upstream, or upstream times the gain?"),
        Mistake(_layer_norm_gradient, "This is LayerNorm's gradient: a mean is subtracted.", "Is there a mean of x in RMSNorm?"),
        Mistake(_without_eps, "eps is not used; it is part of the divisor.", "What is your gradient at x = 0?"),
        Mistake(_shared_by_all, "The mean in the second part runs over all tokens.", "Does the gradient of one token depend on another token's x?"),
        Mistake(_upstream_for_x, "The second part points along upstream; it must point along x.", "In which direction does the derivative of mean(x**2) point?"),
        Mistake(_gradient_of_weight, "This is the gradient of the weight; the one of x is asked for.", "Which shape must it have?"),
    ],
)  # fmt: skip


def _fold_cases():
    import torch

    g = torch.Generator().manual_seed(6)
    return [
        (torch.randn(out, d, generator=g), torch.randn(d, generator=g)) for out, d in ((3, 5), (4, 4), (7, 2))
    ]


fold = Exercise(
    id="01.fold",
    title="Fold a gain into the next matrix",
    kind="implement",
    cases=_fold_cases,
    reference=lambda W, gain: W * gain,
    mistakes=[
        Mistake(lambda W, gain: (W.T * gain[: len(W)]).T if len(gain) >= len(W) else W * gain, "The gain is multiplied into the rows, which are outputs; it belongs to the inputs.", "Which axis of W meets the entries of the norm's output?"),
        Mistake(lambda W, gain: W / gain, "The matrix is divided by the gain: the gain then counts twice the wrong way.", "What is W' when every gain is 2?"),
        Mistake(lambda W, gain: W * (1 + gain), "A 1 is added to the gain: that is Gemma's convention.", "What is W' when every gain is 0?"),
        Mistake(lambda W, gain: W + gain, "The gain is added.", "What is W' when every gain is 0?"),
        Mistake(lambda W, gain: W - gain, "The gain is subtracted; it is a factor.", "What is W' when every gain is 0?"),
        Mistake(lambda W, gain: W * gain.sum(), "All columns get the sum of the gains: each feature has a gain of its own.", "What is W' when one gain is 0 and the others are 1?"),
        Mistake(lambda W, gain: W * gain.flip(0), "The gains are in reverse order.", "Which column meets the first feature?"),
        Mistake(lambda W, gain: W @ gain, "This is the matrix times the gain, a vector; the columns are to be scaled.", "Which shape must W' have?"),
        Mistake(lambda W, gain: (W * gain).T, "The columns are scaled, and the matrix came out transposed.", "Which shape must W' have?"),
        Mistake(lambda W, gain: W * gain**2, "The gain is in it twice.", "What is W' when every gain is 2?"),
        Mistake(lambda W, gain: W * gain.abs(), "The sign of the gain is lost.", "What does a gain of -1 do to its feature?"),
        Mistake(lambda W, gain: W * gain.mean(), "One factor for all columns: each feature has a gain of its own.", "What is W' when one gain is 0 and the others are 1?"),
        Mistake(lambda W, gain: W, "The gain is not used.", "What is W' when every gain is 2?"),
    ],
)  # fmt: skip
