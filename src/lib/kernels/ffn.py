"""SwiGLU between its matrices: silu(gate) * up in one pass."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from lib.kernels.launch import Launch, check_dtypes

BLOCK = 1024


@triton.jit
def silu_mul_kernel(GATE, UP, Y, n, g0, g1, u0, u1, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < n
    gate = tl.load(GATE + row * g0 + col * g1, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(UP + row * u0 + col * u1, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(Y + row * n + col, y.to(Y.dtype.element_ty), mask=inside)


def plan(gate, up):
    """(Launch, y): gate and up may be the two halves of one matrix's output."""
    check_dtypes(gate=gate, up=up)
    if gate.shape != up.shape or gate.dim() < 1 or not gate.shape[-1]:
        raise ValueError(
            f"gate {list(gate.shape)} and up {list(up.shape)}: expected the same shape [..., d_ff], d_ff at least 1"
        )
    n = gate.shape[-1]
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    g, u = gate.reshape(-1, n), up.reshape(-1, n)
    arguments = {"GATE": g, "UP": u, "Y": y, "n": n, "g0": g.stride(0), "g1": g.stride(1), "u0": u.stride(0),
                 "u1": u.stride(1)}  # fmt: skip
    return Launch(silu_mul_kernel, (len(g), -(-n // BLOCK)), arguments, {"BLOCK": BLOCK}, 4, 1), y


def silu_mul(gate, up):
    """silu(gate) * up, in float32, rounded once. Shapes: [..., d_ff] twice -> [..., d_ff]."""
    launch, y = plan(gate, up)
    launch.run()
    return y


def swiglu(x, w_gate, w_up, w_down):
    """W_down (silu(W_gate x) * (W_up x)): `lib.ffn.swiglu`, with the part between the matrices in one kernel."""
    return F.linear(silu_mul(F.linear(x, w_gate), F.linear(x, w_up)), w_down)
