"""Attention with fewer key/value heads than query heads: MHA, GQA and MQA are one module."""

import torch
import torch.nn.functional as F
from torch import nn

from lib.config import GQA, Norm, Rope
from lib.norms import make_norm, wide
from lib.rope import apply_rope, check_table


def causal_mask(q_columns, k_columns, window=None, pad=None):
    """True where a query may look: at its own column and earlier ones, at most window - 1 back, never at padding.

    Shapes: q_columns [T], k_columns [S], pad [B] (left padding of each row) or None -> bool [T, S] or [B, 1, T, S]

        queries 3 and 4 of 5 keys:   key 0 1 2 3 4
                           query 3       x x x x .
                           query 4       x x x x x

    A padding query sees itself, so that its row stays finite; nobody reads it.
    """
    ago = q_columns[:, None] - k_columns[None, :]
    mask = (ago >= 0) if window is None else (ago >= 0) & (ago < window)  # [T, S]
    if pad is None:
        return mask
    real = k_columns[None, :] >= pad[:, None]  # [B, S]
    return ((mask & real[:, None]) | (ago == 0))[:, None]  # [B, 1, T, S]


def repeat_kv(x, group_size):
    """Each KV head in place, group_size times: heads 0,0,1,1 and never 0,1,0,1. [B, n_kv, S, dh] -> [B, h, S, dh]"""
    return x.repeat_interleave(group_size, dim=1)


def attend(q, k, v, mask=None, scale=None, implementation="sdpa"):
    """softmax(scale * q k^T) v, query head j using KV head j // (h / n_kv).

    Shapes: q [B, h, T, dh], k [B, n_kv, S, dh], v [B, n_kv, S, d_v] -> [B, h, T, d_v]
    mask: bool, True = may look, broadcastable to [B, h, T, S]; None = causal, the last query aligned with the last key.
    scale: None = dh ** -0.5. implementation: "sdpa" (PyTorch's kernels), "explicit" (the oracle, softmax in float32) or
    "triton" (lib.kernels: chapter 11).
    Raises: ValueError if the heads do not divide or there are more queries than keys without a mask.
    """
    (h, T), (n_kv, S) = q.shape[1:3], k.shape[1:3]
    if h % n_kv or v.shape[:3] != k.shape[:3] or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}: expected [B, heads, tokens, width], query heads a multiple"
            " of KV heads, q and k alike in width, k and v in heads and tokens (were heads and tokens swapped?)"
        )
    if mask is None and T > S:
        raise ValueError(f"{T} queries and {S} keys without a mask: a causal query is one of the keys")
    if implementation == "triton":
        from lib.kernels.attention import attend as kernel

        return kernel(q, k, v, mask, scale)
    if mask is None and 1 < T < S:  # is_causal would align the first query with the first key
        mask = causal_mask(torch.arange(S - T, S, device=q.device), torch.arange(S, device=q.device))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if implementation == "explicit":
        return _explicit(q, k, v, mask, scale)
    if implementation != "sdpa":
        raise ValueError(f"implementation {implementation!r}: expected 'sdpa', 'explicit' or 'triton'")
    if n_kv < h and (T == 1 or n_kv == 1):
        return _folded(q, k, v, mask, scale)
    causal = mask is None and T > 1
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=n_kv < h
    )


def _explicit(q, k, v, mask, scale):
    group = q.shape[1] // k.shape[1]
    if mask is None and q.shape[2] > 1:
        columns = torch.arange(q.shape[2], device=q.device)
        mask = causal_mask(columns, columns)
    return _written_out(q, repeat_kv(k, group), repeat_kv(v, group), mask, scale)


def _written_out(q, k, v, mask, scale):
    """As many heads of k and v as of q; mask None: every query sees every key. Softmax in float32 at least."""
    scores = wide(q) * scale @ wide(k).transpose(-1, -2)  # [B, h, T, S]
    if mask is None:
        weights = scores.softmax(-1)
    else:  # a query that may look nowhere gets zeros, as from SDPA, and not 0/0
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).masked_fill(~mask, 0.0)
    return (weights @ wide(v)).to(q.dtype)  # [B, h, T, d_v]


def _folded(q, k, v, mask, scale):
    """The query heads of a group as more rows of one head: K and V are read once and never repeated."""
    (B, h, T, _), n_kv = q.shape, k.shape[1]
    if mask is None and T > 1:
        columns = torch.arange(T, device=q.device)
        mask = causal_mask(columns, columns)
    if mask is not None:
        mask = mask.expand(B, h, T, -1).reshape(B, n_kv, h // n_kv * T, -1)  # [B, n_kv, group*T, S]
    rows = q.reshape(B, n_kv, h // n_kv * T, -1)  # [B, n_kv, group*T, dh]
    if (
        q.device.type == "cpu" and k.shape[-1] != v.shape[-1]
    ):  # SDPA has no kernel for that there, and copies K and V
        return _written_out(rows, k, v, mask, scale).view(B, h, T, -1)
    return F.scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=scale).view(B, h, T, -1)


class GQAttention(nn.Module):
    """n_heads query heads over n_kv_heads key/value heads: MHA if equal, MQA if 1. Field names as in config.GQA.

    qk_norm True: an RMSNorm with a gain of head_dim on each head's q and k, before RoPE; "width": one over all heads,
    before the split. head_dim None = d // n_heads. rope None = no rotation (a NoPE layer).
    """

    def __init__(self, d, n_heads, n_kv_heads, qk_norm=True, head_dim=None, v_head_dim=None, rope=Rope(), window=None,
                 bias=False, out_bias=False, scale=None, norm=Norm(), implementation="sdpa"):  # fmt: skip
        super().__init__()
        if head_dim is None:
            if d % n_heads:
                raise ValueError(f"d = {d} is not divisible by n_heads = {n_heads}: give head_dim")
            head_dim = d // n_heads
        c = GQA(
            n_heads, n_kv_heads, head_dim, v_head_dim, rope, window, qk_norm, bias, out_bias, scale
        )  # validates
        self.fields, self.implementation = c, implementation
        self.wq = nn.Linear(d, n_heads * head_dim, bias=bias)
        self.wk = nn.Linear(d, n_kv_heads * head_dim, bias=bias)  # fewer K/V heads
        self.wv = nn.Linear(d, n_kv_heads * c.d_v, bias=bias)
        self.wo = nn.Linear(n_heads * c.d_v, d, bias=out_bias)
        q_width, k_width = (
            (n_heads * head_dim, n_kv_heads * head_dim) if qk_norm == "width" else (head_dim, head_dim)
        )
        self.q_norm = make_norm(norm, q_width) if qk_norm else nn.Identity()
        self.k_norm = make_norm(norm, k_width) if qk_norm else nn.Identity()

    def project(self, x, cos=None, sin=None):
        """x [B, T, d] -> q [B, h, T, dh], k [B, n_kv, T, dh], v [B, n_kv, T, d_v]: split, normalised, rotated."""
        c = self.fields
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        if c.qk_norm == "width":
            q, k = self.q_norm(q), self.k_norm(k)
        q = q.unflatten(-1, (c.n_heads, -1)).transpose(1, 2)  # [B, h, T, dh]
        k = k.unflatten(-1, (c.n_kv_heads, -1)).transpose(1, 2)  # [B, n_kv, T, dh]
        v = v.unflatten(-1, (c.n_kv_heads, -1)).transpose(1, 2)  # [B, n_kv, T, d_v]
        if c.qk_norm in (True, "head"):
            q, k = self.q_norm(q), self.k_norm(k)
        if c.rope is not None:
            if cos is None:
                raise ValueError(
                    "this layer rotates q and k and no cos, sin came: give the table rows of this call's positions"
                )
            check_table(cos, c.rope.rotary_dim or c.head_dim)
            q, k = (apply_rope(x, cos, sin, c.rope.layout, self.implementation) for x in (q, k))
        return q, k, v

    def forward(self, x, cos=None, sin=None, cache=None, mask=None):
        """x [B, T, d] -> [B, T, d]. cache: this layer's KVCache; mask None = causal, within the layer's window."""
        T = x.shape[1]
        q, k, v = self.project(x, cos, sin)
        if mask is None and self.fields.window is not None:
            start = cache.length if cache is not None else 0
            new = torch.arange(start, start + T, device=x.device)
            mask = causal_mask(new, new if cache is None else cache.columns(T, x.device), self.fields.window)
        if cache is not None:
            k, v = cache.append(k, v)
        out = attend(q, k, v, mask, self.fields.scale, self.implementation)  # [B, h, T, d_v]
        return self.wo(out.transpose(1, 2).flatten(2))  # [B, T, d]
