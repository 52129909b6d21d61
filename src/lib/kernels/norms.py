"""RMSNorm in one pass: one program per row, the row stays in registers between the sum of squares and the result."""

import torch
import triton
import triton.language as tl

from lib.kernels.launch import Launch, check_dtypes, check_width, power_of_two

WIDEST = 32_768


@triton.jit
def rms_norm_kernel(X, R, W, SUM, Y, n1, n2, d, eps, x0, x1, x2, x3, r0, r1, r2, r3, w0,
                    RESIDUAL: tl.constexpr, GAIN: tl.constexpr, UNIT_OFFSET: tl.constexpr, GAIN_LAST: tl.constexpr,
                    BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i0, i1, i2 = row // (n1 * n2), row // n2 % n1, row % n2
    col = tl.arange(0, BLOCK)
    inside = col < d
    x = tl.load(X + i0 * x0 + i1 * x1 + i2 * x2 + col * x3, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:  # the sum is stored for the next residual, and normalised as it is stored
        r = tl.load(R + i0 * r0 + i1 * r1 + i2 * r2 + col * r3, mask=inside, other=0.0).to(tl.float32)
        total = (x + r).to(SUM.dtype.element_ty)
        tl.store(SUM + row * d + col, total, mask=inside)
        x = total.to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / d + eps)
    if GAIN:
        w = tl.load(W + col * w0, mask=inside, other=0.0).to(tl.float32)
        if UNIT_OFFSET:
            w = 1.0 + w
        if not GAIN_LAST:  # Llama's order: both in x.dtype, then the product
            w = w.to(Y.dtype.element_ty).to(tl.float32)
            y = y.to(Y.dtype.element_ty).to(tl.float32)
        y = y * w
    tl.store(Y + row * d + col, y.to(Y.dtype.element_ty), mask=inside)


def plan(x, residual=None, weight=None, eps=1e-6, unit_offset=False, gain_last=False):
    """(Launch, y, sum or None): the launch and the tensors that it fills."""
    named = {"x": x, "residual": residual}
    check_dtypes(**{k: t for k, t in named.items() if t is not None})
    if residual is not None and residual.shape != x.shape:
        raise ValueError(f"residual {list(residual.shape)} and x {list(x.shape)}: expected the same shape")
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ValueError(f"weight {list(weight.shape)}: expected [{x.shape[-1]}], the last axis of x")
    if weight is not None:
        check_dtypes(weight=weight)
    if not isinstance(eps, int | float) or isinstance(eps, bool) or not 0 <= eps < float("inf"):
        raise ValueError(f"eps = {eps!r}: expected a number of at least 0, such as 1e-6")
    if not 1 <= x.dim() <= 4:
        raise ValueError(f"x {list(x.shape)}: expected one to four axes, the last of them normalised")
    d = x.shape[-1]
    check_width(WIDEST, **{"the last axis of x": d})
    x4 = x[(None,) * (4 - x.dim())]
    r4 = x4 if residual is None else residual[(None,) * (4 - x.dim())]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = torch.empty_like(y) if residual is not None else None
    arguments = {"X": x4, "R": r4, "W": x if weight is None else weight, "Y": y, "SUM": y if total is None else total,
                 "n1": x4.shape[1], "n2": x4.shape[2], "d": d, "eps": eps,
                 **{f"x{i}": s for i, s in enumerate(x4.stride())}, **{f"r{i}": s for i, s in enumerate(r4.stride())},
                 "w0": 0 if weight is None else weight.stride(0)}  # fmt: skip
    constants = {"RESIDUAL": residual is not None, "GAIN": weight is not None, "UNIT_OFFSET": unit_offset,
                 "GAIN_LAST": gain_last, "BLOCK": power_of_two(d)}  # fmt: skip
    warps = min(16, max(1, power_of_two(d) // 512))
    return Launch(rms_norm_kernel, (y.numel() // d,), arguments, constants, warps, 1), y, total


def rms_norm(x, weight=None, eps=1e-6, unit_offset=False, gain_last=False):
    """weight * x / sqrt(mean(x**2, last axis) + eps): `lib.rms_norm` as one kernel, one read and one write.

    Shapes: x [..., d], up to four axes in any strides, weight [d] or None -> [..., d], in x.dtype; d up to 32,768
    Dtypes: float32, bfloat16, float16; statistics in float32. unit_offset, gain_last: as in `lib.rms_norm`.
    Raises: ValueError that says what it takes.
    """
    launch, y, _ = plan(x, None, weight, eps, unit_offset, gain_last)
    launch.run()
    return y


def add_rms_norm(x, residual, weight=None, eps=1e-6, unit_offset=False, gain_last=False):
    """s = x + residual, rounded to x.dtype, and rms_norm(s): both read once, (s, y) written once. Shapes as `rms_norm`."""
    launch, y, total = plan(x, residual, weight, eps, unit_offset, gain_last)
    launch.run()
    return total, y
