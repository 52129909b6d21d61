"""Exercises of chapter 02: SwiGLU and its width. No torch until an exercise that needs it is checked."""

from book.exercises.core import Exercise, Mistake
from lib.arithmetic import swiglu_width


def _up(width, multiple_of):
    return multiple_of * -(-width // multiple_of)


def _nearest(d, multiplier, multiple_of):
    return multiple_of * round(int(multiplier * (8 * d // 3)) / multiple_of)


def _down(d, multiplier, multiple_of):
    return int(multiplier * (8 * d // 3)) // multiple_of * multiple_of


def _no_truncation(d, multiplier, multiple_of):
    exact = multiplier * 8 * d / 3
    return multiple_of * -int(-exact // multiple_of)


width = Exercise(
    id="02.width",
    title="Write the width rule",
    kind="implement",
    # the last but one tells truncation from none, the last is a multiple already
    cases=[(4096, 1.0, 256), (5120, 1.0, 256), (8192, 1.3, 4096), (4096, 1.3, 1024), (2048, 1.5, 256), (448, 1.3, 8), (3072, 1.0, 256)],
    reference=lambda d, multiplier, multiple_of: swiglu_width(d, multiplier, multiple_of),
    mistakes=[
        Mistake(_nearest, "It rounds to the nearest multiple; the rule rounds UP.", "Which multiple of 256 lies above 10,922?"),
        Mistake(_down, "It rounds down; the rule rounds UP.", "Is your result ever smaller than 8/3 d?"),
        Mistake(
            lambda d, multiplier, multiple_of: (int(multiplier * (8 * d // 3)) // multiple_of + 1) * multiple_of,
            "It always goes one step further: a width that is a multiple already must stay.",
            "What should come out for 8,192 and a multiple of 256?",
        ),
        Mistake(
            _no_truncation,
            "8/3 d is not truncated before the multiplier; a small model shows the difference.",
            "For d = 448 and 1.3: what is int(8 * 448 / 3), and what is 1.3 times that?",
        ),
        Mistake(
            lambda d, multiplier, multiple_of: _up(8 * d // 3, multiple_of),
            "The multiplier is not used.",
            "What should happen to the width when it goes from 1.0 to 1.3?",
        ),
        Mistake(
            lambda d, multiplier, multiple_of: int(multiplier * _up(8 * d // 3, multiple_of)),
            "The multiplier acts after the rounding, so the result need not be a multiple.",
            "Is your result divisible by multiple_of?",
        ),
        Mistake(
            lambda d, multiplier, multiple_of: _up(int(multiplier * 4 * d), multiple_of),
            "It starts from 4 d: that is the width for two matrices.",
            "How many matrices does SwiGLU have, and what is 8 d^2 divided by 3 d?",
        ),
    ],
)  # fmt: skip

d5120 = Exercise(
    id="02.d5120",
    title="The d_ff of a SwiGLU with d = 5120",
    kind="predict",
    reference=lambda: swiglu_width(5120, multiple_of=256),
    seed=4,
    mistakes=[
        Mistake(13653, "That is 8/3 d, truncated; it is not yet a multiple of 256.", "How many steps of 256 cover 13,653?"),
        Mistake(107 * 128, "That is rounded up to a multiple of 128; Llama's `multiple_of` is 256.", "Is your number divisible by 256?"),
        Mistake(lambda: 8 / 3 * 5120, "That is 8/3 d itself.", "How many steps of 256 cover it?"),
        Mistake(lambda: 53 * 256, "Rounded down: 53 steps fall short of 13,653.", "Does the rule round up or down?"),
        Mistake(4 * 5120, "4 d is the width of the GELU layer: with three matrices that is half as many parameters again.", "What is 3 d d_ff for it?"),
        Mistake(lambda: swiglu_width(5120, 1.3, 1024), "That has Llama 3's multiplier in it.", "Does the question ask for equal parameters?"),
    ],
)  # fmt: skip


def _layer_cases():
    import torch

    g = torch.Generator().manual_seed(2)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64) / 2

    return [(draw(3, d), draw(d_ff, d), draw(d_ff, d), draw(d, d_ff)) for d, d_ff in ((4, 7), (6, 5), (5, 5))]


def _glu(act, gate=True):
    def layer(x, w_gate, w_up, w_down):
        hidden = act(x @ w_gate.T)
        return (hidden * (x @ w_up.T) if gate else hidden) @ w_down.T

    return layer


def _silu(z):
    return z * z.sigmoid()


def _gelu(z):
    import torch

    return torch.nn.functional.gelu(z)


swiglu = Exercise(
    id="02.swiglu",
    title="Write SwiGLU",
    kind="implement",
    cases=_layer_cases,
    reference=_glu(_silu),
    mistakes=[
        Mistake(
            lambda x, w_gate, w_up, w_down: _glu(_silu)(x, w_up, w_gate, w_down),
            "Gate and up are swapped: the activation stands on the wrong branch.",
            "Which of the two decides how much passes?",
        ),
        Mistake(
            _glu(lambda z: z.sigmoid()),
            "The gate is a plain sigmoid: that is the GLU of 2016. Swish is z times its sigmoid.",
            "What does your gate do to z = -10, and what does silu?",
        ),
        Mistake(
            _glu(_gelu),
            "The gate is a GELU: that is GeGLU, which Gemma runs.",
            "Which activation does `hidden_act: silu` name?",
        ),
        Mistake(
            lambda x, w_gate, w_up, w_down: (_silu(x @ w_gate.T) * _silu(x @ w_up.T)) @ w_down.T,
            "silu acts on both branches; the up branch stays linear.",
            "Which of the two is the gate?",
        ),
        Mistake(
            lambda x, w_gate, w_up, w_down: (_silu(x @ w_gate.T) + x @ w_up.T) @ w_down.T,
            "The branches are added; a gate multiplies.",
            "What should be left of a feature whose gate is 0?",
        ),
        Mistake(
            _glu(lambda z: z.relu()),
            "The gate is a ReLU: that is ReGLU.",
            "What does your gate give at z = -1, and what does silu?",
        ),
        Mistake(
            _glu(lambda z: z),
            "The gate has no activation: that is the bilinear layer.",
            "Where is the sigmoid?",
        ),
        Mistake(
            lambda x, w_gate, w_up, w_down: _silu(x @ w_gate.T) * (x @ w_up.T),
            "The down projection is missing: the result is d_ff wide.",
            "How wide must a layer's output be to be added to x?",
        ),
        Mistake(
            _glu(_silu, gate=False),
            "The up projection is not used.",
            "What is multiplied with the opened gate?",
        ),
        Mistake(
            lambda x, w_gate, w_up, w_down: _silu((x @ w_gate.T) * (x @ w_up.T)) @ w_down.T,
            "The activation stands around the product; it belongs on the gate alone.",
            "What comes out where the gate is far below zero, and should anything?",
        ),
    ],
)

copied = Exercise(
    id="02.copied",
    title="A SwiGLU layer that copies d_ff = 4d",
    kind="predict",
    reference=lambda: 3 * 1600 * 4 * 1600,
    mistakes=[
        Mistake(
            2 * 1600 * 4 * 1600,
            "That is two matrices at 4 d, the GELU layer; three at 8/3 d have as many.",
            "How many matrices has SwiGLU, and which width did the copy keep?",
        ),
        Mistake(4 * 1600 * 4 * 1600, "Four matrices were counted.", "Name them: which is the fourth?"),
    ],
)


def _fused_cases():
    import torch

    g = torch.Generator().manual_seed(3)
    sizes = ((3, 4), (5, 2), (2, 6))
    return [
        (
            torch.randn(2, d, generator=g, dtype=torch.float64),
            torch.randn(2 * d_ff, d, generator=g, dtype=torch.float64),
        )
        for d, d_ff in sizes
    ]


def _gated(x, gate, up):
    return _silu(x @ gate.T) * (x @ up.T)


def _given(x, w_fused):
    gate, up = w_fused.chunk(2, dim=0)
    z = x @ gate.T
    return z * z.sigmoid() * (x @ up.T)


fused = Exercise(
    id="02.fused",
    title="Find the fault in reading a fused, interleaved tensor",
    kind="find the fault",
    cases=_fused_cases,
    reference=lambda x, w_fused: _gated(x, w_fused[0::2], w_fused[1::2]),
    given=_given,
    mistakes=[
        Mistake(
            lambda x, w_fused: _gated(x, *w_fused.chunk(2, dim=0)),
            "The tensor is split in halves; its rows alternate gate, up, gate, up.",
            "Which rows belong to feature 0?",
        ),
        Mistake(
            lambda x, w_fused: _gated(x, *w_fused.chunk(2, dim=0)[::-1]),
            "The tensor is split in halves, and the halves are swapped; its rows alternate gate, up, gate, up.",
            "Which rows belong to feature 0?",
        ),
        Mistake(
            lambda x, w_fused: _gated(x, w_fused[1::2], w_fused[0::2]),
            "The rows are taken apart rightly and then swapped: the even rows are the gates.",
            "Which of the two goes through silu?",
        ),
    ],
)
