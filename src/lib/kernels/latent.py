"""MLA, absorbed: every head looks at the same latents, and a latent that has been read is key and value at once."""

import torch
import triton
import triton.language as tl

from lib.kernels.decode import join, scratch
from lib.kernels.launch import (
    Launch,
    check_blocks,
    check_dtypes,
    check_width,
    mask_strides,
    power_of_two,
    product_dtype,
    split_count,
)

WIDEST = 512


@triton.jit
def latent_kernel(Q, LATENT, MASK, BEST, TOTAL, PART, h, T, S, c, r, scale, q0, q1, q2, q3, l0, l1, l2, m0, m1, m2, m3, per_part,
                  MASKED: tl.constexpr, DOT: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, C: tl.constexpr,
                  R: tl.constexpr):  # fmt: skip
    part, parts, b = tl.program_id(0), tl.num_programs(0), tl.program_id(2).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)  # row = head * T + query
    head, t = row // T, row % T
    i, j, n = tl.arange(0, C), tl.arange(0, R), tl.arange(0, KEYS)
    q = Q + b * q0 + head[:, None] * q1 + t[:, None] * q2
    q_c = tl.load(q + i[None, :] * q3, mask=(head < h)[:, None] & (i < c)[None, :], other=0.0).to(DOT)
    q_r = tl.load(q + (c + j)[None, :] * q3, mask=(head < h)[:, None] & (j < r)[None, :], other=0.0).to(DOT)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    out = tl.zeros((ROWS, C), tl.float32)
    end = tl.minimum(S, (part + 1) * per_part)
    at = LATENT + b * l0 + (part * per_part).to(tl.int64) * l1
    for start in range(part * per_part, end, KEYS):
        s = start + n
        latent = tl.load(
            at + n[:, None] * l1 + i[None, :] * l2, mask=(s < end)[:, None] & (i < c)[None, :], other=0.0
        ).to(DOT)
        rope = tl.load(
            at + n[:, None] * l1 + (c + j)[None, :] * l2,
            mask=(s < end)[:, None] & (j < r)[None, :],
            other=0.0,
        ).to(DOT)
        scores = tl.dot(q_c, tl.trans(latent), input_precision="ieee")
        scores = (scores + tl.dot(q_r, tl.trans(rope), input_precision="ieee")) * scale
        see = (s < end)[None, :] & (head < h)[:, None] & (s[None, :] <= S - T + t[:, None])
        if MASKED:
            see = (s < end)[None, :] & (head < h)[:, None]
            may = MASK + b * m0 + head[:, None] * m1 + t[:, None] * m2 + s[None, :] * m3
            see = see & (tl.load(may, mask=see, other=0) != 0)
        scores = tl.where(see, scores, float("-inf"))
        new = tl.maximum(best, tl.max(scores, axis=1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(scores - safe[:, None])
        keep = tl.exp(best - safe)
        total = total * keep + tl.sum(p, axis=1)
        # the value: the latent, read above
        out = out * keep[:, None] + tl.dot(p.to(DOT), latent, input_precision="ieee")
        best = new
        at += KEYS * l1
    left = ((b * h + head) * T + t) * parts + part
    tl.store(BEST + left, best, mask=head < h)
    tl.store(TOTAL + left, total, mask=head < h)
    tl.store(PART + left[:, None] * c + i[None, :], out, mask=(head < h)[:, None] & (i < c)[None, :])


def plan(q, latents, c, mask=None, scale=None, rows=None, keys=None, parts=None, warps=8, stages=None):
    """([first pass, second pass], y). rows, keys: block sizes; parts: programs per block of rows (None: chosen)."""
    dtype = check_dtypes(q=q, latents=latents)
    check_blocks(parts, rows=rows, keys=keys)
    if q.dim() != 4 or latents.dim() != 3 or q.shape[0] != latents.shape[0] or q.shape[3] != latents.shape[2]:
        raise ValueError(
            f"q {list(q.shape)} and latents {list(latents.shape)}: expected [B, h, T, c + r] and [B, S, c + r]"
        )
    (B, h, T, width), S = q.shape, latents.shape[1]
    if not 0 < c < width:
        raise ValueError(
            f"c = {c} of {width} numbers per token: expected the latent's width, below the whole (d_c of d_c + d_R)"
        )
    check_width(WIDEST, **{"c, the latent's width": c})
    check_width(WIDEST, **{"r, the width of the shared rope key": width - c})
    if mask is None and T > S:
        raise ValueError(f"{T} queries and {S} keys without a mask: a causal query is one of the keys")
    points, strides, masked = mask_strides(mask, B, h, T, S)
    narrow = dtype != torch.float32
    rows = rows or min(power_of_two(h * T, 16), 32 if narrow else 16)
    keys, stages = keys or (32 if narrow else 16), stages or (2 if narrow else 1)
    blocks = -(-h * T // rows)
    parts = parts or split_count(S, B * blocks, keys)
    left = scratch(B * h * T, parts, c, q.device)
    y = torch.empty(B, h, T, c, dtype=dtype, device=q.device)
    arguments = {"Q": q, "LATENT": latents, "MASK": q if points is None else points, **left, "h": h, "T": T, "S": S, "c": c,
                 "r": width - c, "scale": width**-0.5 if scale is None else scale}  # fmt: skip
    for name, numbers in (("q", q.stride()), ("l", latents.stride()), ("m", strides)):
        arguments |= {f"{name}{i}": s for i, s in enumerate(numbers)}
    constants = {"MASKED": masked, "DOT": product_dtype(dtype), "ROWS": rows, "KEYS": keys, "C": power_of_two(c, 16),
                 "R": power_of_two(width - c, 16)}  # fmt: skip
    first = Launch(
        latent_kernel, (parts, blocks, B), arguments | {"per_part": -(-S // parts)}, constants, warps, stages
    )
    return [first, join(left, y, parts, c)], y


def attend_latent(q, latents, c, mask=None, scale=None):
    """softmax(scale * q latents^T) latents[..., :c]: `lib.attend` where the value is the
    key's own first part, each latent read once per block of heads.

    Shapes: q [B, h, T, c + r], latents [B, S, c + r] in any strides -> [B, h, T, c], contiguous. c and r up to 512.
    mask, scale: as in `lib.attend`. Raises: ValueError that says what it takes.
    """
    launches, y = plan(q, latents, c, mask, scale)
    for launch in launches:
        launch.run()
    return y
