"""Attention for many queries: a block of queries stays, the keys and values come in blocks, the softmax is corrected on the way."""

import torch
import triton
import triton.language as tl

from lib.kernels.launch import (
    DTYPES,
    Launch,
    check_attention,
    check_blocks,
    check_dtypes,
    check_width,
    mask_strides,
    power_of_two,
    product_dtype,
)

WIDEST = 256


@triton.jit
def prefill_kernel(Q, K, V, MASK, Y, T, S, dh, d_v, scale, q0, q1, q2, q3, k0, k1, k2, k3, v0, v1, v2, v3, m0, m1, m2, m3,
                   h, GROUP: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr, QUERIES: tl.constexpr,
                   KEYS: tl.constexpr, WIDTH: tl.constexpr, V_WIDTH: tl.constexpr):  # fmt: skip
    b, head = tl.program_id(1).to(tl.int64) // h, tl.program_id(1) % h
    first = (tl.program_id(0) * QUERIES).to(tl.int64)
    m, n, i, j = tl.arange(0, QUERIES), tl.arange(0, KEYS), tl.arange(0, WIDTH), tl.arange(0, V_WIDTH)
    t = tl.program_id(0) * QUERIES + m
    q_at = Q + b * q0 + head * q1 + first * q2
    q = tl.load(
        q_at + m[:, None] * q2 + i[None, :] * q3, mask=(t < T)[:, None] & (i < dh)[None, :], other=0.0
    ).to(DOT)
    best = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    out = tl.zeros((QUERIES, V_WIDTH), tl.float32)
    end = (
        S if MASKED else tl.minimum(S, S - T + (tl.program_id(0) + 1) * QUERIES)
    )  # causal: nothing later is looked at
    k_at, v_at = K + b * k0 + head // GROUP * k1, V + b * v0 + head // GROUP * v1
    may = MASK + b * m0 + head * m1 + first * m2
    for start in range(0, end, KEYS):
        s = start + n
        k = tl.load(
            k_at + n[None, :] * k2 + i[:, None] * k3, mask=(s < S)[None, :] & (i < dh)[:, None], other=0.0
        ).to(DOT)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if MASKED:
            real = (t < T)[:, None] & (s < S)[None, :]
            see = tl.load(may + m[:, None] * m2 + n[None, :] * m3, mask=real, other=0) != 0
        else:
            see = (s[None, :] <= S - T + t[:, None]) & (s < S)[None, :]
        scores = tl.where(see, scores, float("-inf"))
        new = tl.maximum(best, tl.max(scores, axis=1))
        safe = tl.where(new == float("-inf"), 0.0, new)  # a row that has seen nothing yet
        p = tl.exp(scores - safe[:, None])
        keep = tl.exp(best - safe)
        v = tl.load(
            v_at + n[:, None] * v2 + j[None, :] * v3, mask=(s < S)[:, None] & (j < d_v)[None, :], other=0.0
        ).to(DOT)
        total = total * keep + tl.sum(p, axis=1)
        out = out * keep[:, None] + tl.dot(p.to(DOT), v, input_precision="ieee")
        best = new
        k_at += KEYS * k2
        v_at += KEYS * v2
        may += KEYS * m3
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]  # a query that may look nowhere gets zeros
    y_at = Y + ((b * h + head) * T + first) * d_v
    tl.store(
        y_at + m[:, None] * d_v + j[None, :],
        out.to(Y.dtype.element_ty),
        mask=(t < T)[:, None] & (j < d_v)[None, :],
    )


def plan(q, k, v, mask=None, scale=None, queries=None, keys=None):
    """(Launch, y). queries and keys: the block sizes (None: chosen by the width and the dtype)."""
    dtype = check_dtypes(q=q, k=k, v=v)
    check_attention(q, k, v, mask)
    check_blocks(queries=queries, keys=keys)
    (B, h, T, dh), (n_kv, S), d_v = q.shape, k.shape[1:3], v.shape[-1]
    check_width(WIDEST, **{"the head width of q and k": dh, "the head width of v": d_v})
    points, strides, masked = mask_strides(mask, B, h, T, S)
    wide = max(dh, d_v) > 128 or DTYPES[dtype] == tl.float32
    queries = queries or min(power_of_two(T, 16), 32 if wide else 64)
    keys = keys or min(power_of_two(S, 16), 32)
    y = torch.empty(B, h, T, d_v, dtype=dtype, device=q.device)
    arguments = {"Q": q, "K": k, "V": v, "MASK": q if points is None else points, "Y": y, "T": T, "S": S, "dh": dh,
                 "d_v": d_v, "scale": dh**-0.5 if scale is None else scale}  # fmt: skip
    for name, numbers in (("q", q.stride()), ("k", k.stride()), ("v", v.stride()), ("m", strides)):
        arguments |= {f"{name}{i}": s for i, s in enumerate(numbers)}
    constants = {"GROUP": h // n_kv, "MASKED": masked, "DOT": product_dtype(dtype), "QUERIES": queries, "KEYS": keys,
                 "WIDTH": power_of_two(dh, 16), "V_WIDTH": power_of_two(d_v, 16)}  # fmt: skip
    grid = (-(-T // queries), B * h)
    return Launch(prefill_kernel, grid, arguments | {"h": h}, constants, 8 if wide else 4, 2), y
