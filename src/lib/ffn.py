"""Feed-forward layers: two matrices around a GELU (2019), three with a gate (SwiGLU, today)."""

import torch.nn.functional as F
from torch import nn

from lib.arithmetic import swiglu_width  # noqa: F401  the width rule is plain arithmetic; it belongs to this subject
from lib.config import Dense

ACTIVATION = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


def swiglu(x, w_gate, w_up, w_down):
    """W_down (silu(W_gate x) * (W_up x)).

    Shapes: x [..., d], w_gate and w_up [d_ff, d], w_down [d, d_ff] (rows are outputs, as nn.Linear stores them) -> [..., d]
    Source: Shazeer 2020, arXiv 2002.05202, eq. 6.
    """
    return F.linear(F.silu(F.linear(x, w_gate)) * F.linear(x, w_up), w_down)


class SwiGLU(nn.Module):
    """Three matrices: the gate decides how much of each of the d_ff features passes. activation "silu" is SwiGLU."""

    implementation = "torch"  # lib.kernels.use changes it; "triton" has a kernel for silu

    def __init__(self, d, d_ff, activation="silu", bias=False):
        super().__init__()
        Dense(d_ff, True, activation, bias)  # validates
        self.w_gate = nn.Linear(d, d_ff, bias=bias)
        self.w_up = nn.Linear(d, d_ff, bias=bias)
        self.w_down = nn.Linear(d_ff, d, bias=bias)
        self.activation = activation

    def forward(self, x):
        if self.implementation == "triton" and self.activation == "silu":
            from lib.kernels.ffn import silu_mul

            return self.w_down(silu_mul(self.w_gate(x), self.w_up(x)))
        return self.w_down(ACTIVATION[self.activation](self.w_gate(x)) * self.w_up(x))


class GELUMLP(nn.Module):
    """Two matrices: w_down(gelu(w_up x)), d_ff = 4 d unless given, with biases as in 2019."""

    def __init__(self, d, d_ff=None, bias=True, activation="gelu"):
        super().__init__()
        d_ff = 4 * d if d_ff is None else d_ff
        Dense(d_ff, False, activation, bias)  # validates
        self.w_up = nn.Linear(d, d_ff, bias=bias)
        self.w_down = nn.Linear(d_ff, d, bias=bias)
        self.activation = activation

    def forward(self, x):
        return self.w_down(ACTIVATION[self.activation](self.w_up(x)))


def make_ffn(ffn: Dense, d):
    """The module that a config.Dense describes."""
    if not isinstance(ffn, Dense):
        raise ValueError(
            f"the block runs dense feed-forward layers only; {type(ffn).__name__} is counted, not run"
        )
    return (SwiGLU if ffn.gated else GELUMLP)(d, ffn.d_ff, activation=ffn.activation, bias=ffn.bias)
