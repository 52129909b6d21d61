"""RoPE: one program per token turns a block of heads, and reads the token's row of cos and sin once for all of them."""

import torch
import triton
import triton.language as tl

from lib.config import LAYOUTS
from lib.kernels.launch import Launch, check_dtypes, check_width, power_of_two


@triton.jit
def rope_kernel(X, COS, SIN, Y, heads, T, dh, x0, x1, x2, x3, c0, c1, c2, s0, s1, s2, HALF: tl.constexpr,
                PAIR: tl.constexpr, STEP: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    b, t = token // T, token % T
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    i = tl.arange(0, BLOCK)
    cos = tl.load(COS + b * c0 + t * c1 + i * c2, mask=i < HALF, other=0.0)[None, :]
    sin = tl.load(SIN + b * s0 + t * s1 + i * s2, mask=i < HALF, other=0.0)[None, :]
    first = (i * PAIR)[None, :]  # "half" pairs i with i + r/2, "adjacent" 2i with 2i + 1
    inside = (head < heads) & (i < HALF)[None, :]
    x = X + b * x0 + head * x1 + t * x2
    y = Y + (b * heads + head) * T * dh + t * dh
    left = tl.load(x + first * x3, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + (first + STEP) * x3, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + first, (left * cos - right * sin).to(Y.dtype.element_ty), mask=inside)
    tl.store(y + first + STEP, (left * sin + right * cos).to(Y.dtype.element_ty), mask=inside)
    if REST > 0:  # partial rotary: the rest passes
        j = (2 * HALF + tl.arange(0, REST))[None, :]
        inside = (head < heads) & (j < dh)
        tl.store(y + j, tl.load(x + j * x3, mask=inside, other=0.0), mask=inside)


def plan(x, cos, sin, layout="half"):
    """(Launch, y)"""
    check_dtypes(x=x)
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    if cos.dtype != torch.float32 or sin.dtype != torch.float32:
        raise ValueError(
            f"cos is {cos.dtype} and sin {sin.dtype}: tables are float32 (lib.rope_cache makes them)"
        )
    if x.dim() != 4:
        raise ValueError(f"x {list(x.shape)}: expected [B, heads, T, dh]")
    B, heads, T, dh = x.shape
    half = cos.shape[-1]
    if 2 * half > dh or list(cos.shape) not in ([T, half], [B, 1, T, half]) or sin.shape != cos.shape:
        raise ValueError(
            f"cos {list(cos.shape)}, sin {list(sin.shape)} and x {list(x.shape)}: expected tables [T, r/2] or"
            " [B, 1, T, r/2] with r at most dh (slice the table to this call's positions)"
        )
    check_width(1024, dh=dh)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    per_row = cos.dim() == 4
    arguments = {"X": x, "COS": cos, "SIN": sin, "Y": y, "heads": heads, "T": T, "dh": dh}
    arguments |= {f"x{i}": s for i, s in enumerate(x.stride())}
    for name, table in (("c", cos), ("s", sin)):
        strides = (table.stride(0) if per_row else 0, table.stride(-2), table.stride(-1))
        arguments |= {f"{name}{i}": s for i, s in enumerate(strides)}
    block, rest = power_of_two(half), dh - 2 * half
    group = min(power_of_two(heads), max(1, 4096 // block))
    constants = {"HALF": half, "PAIR": 1 if layout == "half" else 2, "STEP": half if layout == "half" else 1,
                 "HEADS": group, "BLOCK": block, "REST": power_of_two(rest) if rest else 0}  # fmt: skip
    return Launch(rope_kernel, (B * T, -(-heads // group)), arguments, constants, 4, 1), y


def apply_rope(x, cos, sin, layout="half"):
    """(a, b) -> (a cos - b sin, a sin + b cos) for each pair: `lib.apply_rope` as one kernel.

    Shapes: x [B, heads, T, dh] in any strides, cos and sin [T, r/2] or [B, 1, T, r/2], float32 -> like x, contiguous
    Raises: ValueError that says what it takes; dh up to 1,024.
    """
    launch, y = plan(x, cos, sin, layout)
    launch.run()
    return y
