"""Rotary position embeddings: tables of cos and sin, the rotation, and the permutation between the two layouts.

Tables are float32 whatever the model's dtype: a bfloat16 position already rounds 257 to 256.
"""

import torch

from lib.config import LAYOUTS, Rope
from lib.frequencies import inv_freq, rope_attention_factor
from lib.norms import wide


def rope_cache(T, dh, base=10000.0, scaling=None, start=0, length=None, device=None):
    """cos(m theta_i), sin(m theta_i) for positions m = start .. start+T-1 and theta_i = base ** (-2i/dh).

    Shapes: -> cos, sin [T, dh/2], float32. dh is the rotary width. scaling and length: see `lib.inv_freq`.
    Source: Su et al. 2021, arXiv 2104.09864, eq. 15.
    """
    theta = torch.tensor(inv_freq(dh, base, scaling, length), dtype=torch.float32, device=device)  # [dh/2]
    positions = torch.arange(start, start + T, device=device).float()  # exact up to 2**24; [T]
    angles = torch.outer(positions, theta)  # [T, dh/2]
    factor = rope_attention_factor(scaling, length)
    return angles.cos() * factor, angles.sin() * factor


def rope_table(rope: Rope, head_dim, max_len, length=None, device=None):
    """The table of one config.Rope for positions 0 .. max_len-1: cos, sin [max_len, rotary_dim/2]."""
    return rope_cache(max_len, rope.rotary_dim or head_dim, rope.base, rope.scaling, 0, length, device)


def check_table(cos, width):
    """A layer knows its rotary width; for `apply_rope` alone, a table that is too narrow is partial rotary."""
    if 2 * cos.shape[-1] != width:
        raise ValueError(
            f"the table turns {2 * cos.shape[-1]} dimensions, this layer's rotary width is {width}"
        )


def apply_rope(x, cos, sin, layout="half", implementation="torch"):
    """Turn each pair of x by its angle: (a, b) -> (a cos - b sin, a sin + b cos).

    Shapes: x [B, heads, T, dh], cos and sin [T, r/2] (or [B, 1, T, r/2], a row of positions each) -> like x, in x.dtype
    layout "half" pairs i with i + r/2 (Hugging Face), "adjacent" pairs 2i with 2i+1 (the paper, Meta, DeepSeek).
    r < dh is partial rotary: the last dh - r dimensions pass unchanged. The rotation runs in float32 at least.
    implementation "triton": one kernel (lib.kernels).
    Raises: ValueError if the table is wider than the head or has not one row a token.
    """
    r = 2 * cos.shape[-1]
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    if r > x.shape[-1]:
        raise ValueError(
            f"the table turns {r} dimensions and x has {x.shape[-1]} a head: was it built for the whole width d?"
        )
    if cos.dim() < 2 or x.dim() < 2 or cos.shape[-2] != x.shape[-2]:
        raise ValueError(
            f"table {list(cos.shape)} and x {list(x.shape)}: expected one table row [r/2] for each token of x [B, heads, T, dh]"
            " (slice the table to this call's positions; are heads and tokens swapped?)"
        )
    if implementation == "triton":
        from lib.kernels.rope import apply_rope as kernel

        return kernel(x, cos, sin, layout)
    turn, rest = wide(x[..., :r]), x[..., r:]
    if layout == "half":
        a, b = turn.chunk(2, dim=-1)  # [B, heads, T, r/2]
    else:
        a, b = turn[..., 0::2], turn[..., 1::2]
    pair = (a * cos - b * sin, a * sin + b * cos)
    turned = (
        torch.cat(pair, dim=-1) if layout == "half" else torch.stack(pair, dim=-1).flatten(-2)
    )  # [B, heads, T, r]
    turned = turned.to(x.dtype)
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned  # [B, heads, T, dh]


def layout_permutation(head_dim, to="half", rotary_dim=None):
    """Indices that reorder one head's rows into layout `to` from the other layout; dimensions past rotary_dim stay.

    From adjacent to half: evens, then odds: [0, 2, 4, 6, 1, 3, 5, 7] for 8. -> int64 [head_dim]
    """
    r = rotary_dim or head_dim
    if r % 2 or r > head_dim:
        raise ValueError(
            f"rotary width {r} of a head of {head_dim}: expected an even number of at most {head_dim}"
        )
    if to not in LAYOUTS:
        raise ValueError(f"layout {to!r}: expected one of {', '.join(LAYOUTS)}")
    order = torch.arange(r)
    order = torch.cat([order[0::2], order[1::2]]) if to == "half" else order.view(2, -1).T.flatten()
    return torch.cat([order, torch.arange(r, head_dim)])


def permute_heads(w, n_heads, to="half", rotary_dim=None):
    """Reorder the rows of each head: the same model in the other layout.

    w: a q or k weight [n_heads*dh, d], its bias [n_heads*dh], or a q/k-norm gain (n_heads = 1 for one shared by all heads).
    For k, n_heads is the number of KV heads. Raises: ValueError if the rows do not divide into the heads.
    """
    if w.shape[0] % n_heads:
        raise ValueError(
            f"{w.shape[0]} rows do not divide into {n_heads} heads: for k give the number of KV heads"
        )
    head_dim = w.shape[0] // n_heads
    order = layout_permutation(head_dim, to, rotary_dim).to(w.device)
    return w.unflatten(0, (n_heads, head_dim))[:, order].flatten(0, 1)
