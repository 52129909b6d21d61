"""Attention for one query: few rows and many keys, so the keys are split over programs, and a second pass joins the parts.

Each part leaves its own maximum, its sum of exponentials and its weighted sum of values, all three in float32: that is enough to
join any number of parts, in any order.
"""

import torch
import triton
import triton.language as tl

from lib.kernels.launch import (
    Launch,
    check_attention,
    check_blocks,
    check_dtypes,
    check_width,
    mask_strides,
    power_of_two,
    product_dtype,
    split_count,
)

WIDEST = 256


@triton.jit
def decode_kernel(Q, K, V, MASK, BEST, TOTAL, PART, S, dh, d_v, scale, q0, q1, q3, k0, k1, k2, k3, v0, v1, v2, v3, m0, m1, m3,
                  n_kv, per_part, GROUP: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr, ROWS: tl.constexpr,
                  KEYS: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr):  # fmt: skip
    part, parts = tl.program_id(0), tl.num_programs(0)
    b, kv = tl.program_id(2).to(tl.int64) // n_kv, tl.program_id(2) % n_kv
    g = tl.program_id(1) * ROWS + tl.arange(
        0, ROWS
    )  # the query heads of this KV head: K and V are read once for all
    head = kv * GROUP + g
    i, j = tl.arange(0, WIDTH), tl.arange(0, V_WIDTH)
    q = tl.load(Q + b * q0 + head[:, None] * q1 + i[None, :] * q3, mask=(g < GROUP)[:, None] & (i < dh)[None, :],
                other=0.0).to(DOT)  # fmt: skip
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    out = tl.zeros((ROWS, V_WIDTH), tl.float32)
    end = tl.minimum(S, (part + 1) * per_part)
    n = tl.arange(0, KEYS)
    k_at = K + b * k0 + kv * k1 + (part * per_part).to(tl.int64) * k2
    v_at = V + b * v0 + kv * v1 + (part * per_part).to(tl.int64) * v2
    for start in range(part * per_part, end, KEYS):
        s = start + n
        k = tl.load(
            k_at + n[None, :] * k2 + i[:, None] * k3, mask=(s < end)[None, :] & (i < dh)[:, None], other=0.0
        ).to(DOT)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        see = (s < end)[None, :] & (g < GROUP)[:, None]
        if MASKED:
            see = see & (
                tl.load(MASK + b * m0 + head[:, None] * m1 + s[None, :] * m3, mask=see, other=0) != 0
            )
        scores = tl.where(see, scores, float("-inf"))
        new = tl.maximum(best, tl.max(scores, axis=1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(scores - safe[:, None])
        keep = tl.exp(best - safe)
        v = tl.load(
            v_at + n[:, None] * v2 + j[None, :] * v3, mask=(s < end)[:, None] & (j < d_v)[None, :], other=0.0
        ).to(DOT)
        total = total * keep + tl.sum(p, axis=1)
        out = out * keep[:, None] + tl.dot(p.to(DOT), v, input_precision="ieee")
        best = new
        k_at += KEYS * k2
        v_at += KEYS * v2
    row = ((b * n_kv + kv) * GROUP + g) * parts + part
    tl.store(BEST + row, best, mask=g < GROUP)
    tl.store(TOTAL + row, total, mask=g < GROUP)
    tl.store(PART + row[:, None] * d_v + j[None, :], out, mask=(g < GROUP)[:, None] & (j < d_v)[None, :])


@triton.jit
def join_kernel(BEST, TOTAL, PART, Y, parts, d_v, PARTS: tl.constexpr, V_WIDTH: tl.constexpr):
    """One row: the parts, each scaled from its own maximum to the common one, added, divided once."""
    row = tl.program_id(0).to(tl.int64)
    p, j = tl.arange(0, PARTS), tl.program_id(1) * V_WIDTH + tl.arange(0, V_WIDTH)
    best = tl.load(BEST + row * parts + p, mask=p < parts, other=float("-inf"))
    most = tl.max(best, axis=0)
    share = tl.exp(best - tl.where(most == float("-inf"), 0.0, most))
    total = tl.sum(share * tl.load(TOTAL + row * parts + p, mask=p < parts, other=0.0), axis=0)
    part = tl.load(PART + (row * parts + p[:, None]) * d_v + j[None, :], mask=(p < parts)[:, None] & (j < d_v)[None, :],
                   other=0.0)  # fmt: skip
    y = tl.sum(part * share[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(Y + row * d_v + j, y.to(Y.dtype.element_ty), mask=j < d_v)


def scratch(rows, parts, d_v, device):
    """What the first pass leaves for the second: BEST and TOTAL [rows, parts], PART [rows, parts, d_v], float32."""
    shapes = {"BEST": (rows, parts), "TOTAL": (rows, parts), "PART": (rows, parts, d_v)}
    return {name: torch.empty(shape, dtype=torch.float32, device=device) for name, shape in shapes.items()}


def join(left, y, parts, d_v):
    """The Launch of the second pass: `left` (from `scratch`) into y [.., d_v]."""
    width = min(power_of_two(d_v), 128)
    constants = {"PARTS": power_of_two(parts), "V_WIDTH": width}
    arguments = {**left, "Y": y, "parts": parts, "d_v": d_v}
    return Launch(join_kernel, (y.numel() // d_v, -(-d_v // width)), arguments, constants, 4, 1)


def plan(q, k, v, mask=None, scale=None, keys=None, parts=None):
    """([first pass, second pass], y). keys: the block size; parts: programs per KV head (None: chosen)."""
    dtype = check_dtypes(q=q, k=k, v=v)
    check_attention(q, k, v, mask)
    check_blocks(parts, keys=keys)
    if q.shape[2] != 1:
        raise ValueError(f"q {list(q.shape)}: expected one query, T = 1 (lib.kernels.prefill takes more)")
    (B, h, _, dh), (n_kv, S), d_v = q.shape, k.shape[1:3], v.shape[-1]
    check_width(WIDEST, **{"the head width of q and k": dh, "the head width of v": d_v})
    points, strides, masked = mask_strides(mask, B, h, 1, S)
    group = h // n_kv
    rows = min(power_of_two(group, 16), 64)
    keys = keys or (32 if dtype == torch.float32 else 64)
    blocks = -(-group // rows)
    parts = parts or split_count(S, B * n_kv * blocks, keys)
    left = scratch(B * h, parts, d_v, q.device)
    y = torch.empty(B, h, 1, d_v, dtype=dtype, device=q.device)
    arguments = {"Q": q, "K": k, "V": v, "MASK": q if points is None else points, **left, "S": S, "dh": dh, "d_v": d_v,
                 "scale": dh**-0.5 if scale is None else scale, "q0": q.stride(0), "q1": q.stride(1), "q3": q.stride(3)}  # fmt: skip
    arguments |= {f"{n}{i}": s for n, t in (("k", k), ("v", v)) for i, s in enumerate(t.stride())}
    arguments |= {
        "m0": strides[0],
        "m1": strides[1],
        "m3": strides[3],
        "n_kv": n_kv,
        "per_part": -(-S // parts),
    }
    constants = {"GROUP": group, "MASKED": masked, "DOT": product_dtype(dtype), "ROWS": rows, "KEYS": keys,
                 "WIDTH": power_of_two(dh, 16), "V_WIDTH": power_of_two(d_v, 16)}  # fmt: skip
    first = Launch(decode_kernel, (parts, blocks, B * n_kv), arguments, constants, 4, 2)
    return [first, join(left, y, parts, d_v)], y
