"""Exercise 07.project; written by hand, without reading its checker."""

import torch

from lib import apply_rope, rms_norm, rope_cache


def solution(x, w_q, gain, cos, sin):
    q = (x @ w_q.T).unflatten(-1, (-1, gain.numel())).transpose(1, 2)
    return apply_rope(rms_norm(q, gain), cos, sin)


def draw(rng):
    b, t, d, h, dh = rng.randint(1, 2), rng.randint(4, 6), rng.choice([10, 14]), rng.randint(2, 3), 8
    cos, sin = rope_cache(t, dh)
    return torch.randn(b, t, d), torch.randn(h * dh, d), 1 + torch.randn(dh) / 2, cos, sin


def _heads(x, w_q, gain):
    return (x @ w_q.T).unflatten(-1, (-1, gain.numel())).transpose(1, 2)


def unmended(x, w_q, gain, cos, sin):
    """RoPE before the norm, as it was"""
    return rms_norm(apply_rope(_heads(x, w_q, gain), cos, sin), gain)


def norm_dropped(x, w_q, gain, cos, sin):
    """the norm taken out"""
    return apply_rope(_heads(x, w_q, gain), cos, sin)


def gain_dropped(x, w_q, gain, cos, sin):
    """the norm without its gain"""
    return apply_rope(rms_norm(_heads(x, w_q, gain)), cos, sin)


def gain_after_rope(x, w_q, gain, cos, sin):
    """the gain after RoPE"""
    return apply_rope(rms_norm(_heads(x, w_q, gain)), cos, sin) * gain


def normed_twice(x, w_q, gain, cos, sin):
    """the norm before and after"""
    return rms_norm(apply_rope(rms_norm(_heads(x, w_q, gain), gain), cos, sin), gain)


def rope_dropped(x, w_q, gain, cos, sin):
    """no RoPE"""
    return rms_norm(_heads(x, w_q, gain), gain)


def turned_twice(x, w_q, gain, cos, sin):
    """RoPE before and after the norm"""
    return apply_rope(rms_norm(apply_rope(_heads(x, w_q, gain), cos, sin), gain), cos, sin)


def whole_width(x, w_q, gain, cos, sin):
    """OLMo 2's norm over all heads at once"""
    q = x @ w_q.T
    q = rms_norm(q, gain.repeat(q.shape[-1] // gain.numel()))
    return apply_rope(q.unflatten(-1, (-1, gain.numel())).transpose(1, 2), cos, sin)


def norm_of_x(x, w_q, gain, cos, sin):
    """normalises the layer's input instead of the queries"""
    return apply_rope(_heads(rms_norm(x), w_q, gain) * gain, cos, sin)


def cos_sin_swapped(x, w_q, gain, cos, sin):
    """cos and sin exchanged"""
    return apply_rope(rms_norm(_heads(x, w_q, gain), gain), sin, cos)


def turned_back(x, w_q, gain, cos, sin):
    """turned the other way"""
    return apply_rope(rms_norm(_heads(x, w_q, gain), gain), cos, -sin)


def adjacent_pairs(x, w_q, gain, cos, sin):
    """adjacent pairs"""
    return apply_rope(rms_norm(_heads(x, w_q, gain), gain), cos, sin, layout="adjacent")


def heads_interleaved(x, w_q, gain, cos, sin):
    """the head taken from the fast axis of the width"""
    q = (x @ w_q.T).unflatten(-1, (gain.numel(), -1)).permute(0, 3, 1, 2)
    return apply_rope(rms_norm(q, gain), cos, sin)


def viewed(x, w_q, gain, cos, sin):
    """a view where a transpose belongs"""
    q = (x @ w_q.T).reshape(x.shape[0], -1, x.shape[1], gain.numel())
    return apply_rope(rms_norm(q, gain), cos, sin)


def not_transposed_back(x, w_q, gain, cos, sin):
    """tokens before heads in the result"""
    return solution(x, w_q, gain, cos, sin).transpose(1, 2)


def gain_offset(x, w_q, gain, cos, sin):
    """Gemma's 1 + gain"""
    return apply_rope(rms_norm(_heads(x, w_q, gain), 1 + gain), cos, sin)


def scaled_too(x, w_q, gain, cos, sin):
    """the scale of the scores put into the queries"""
    return solution(x, w_q, gain, cos, sin) / gain.numel() ** 0.5


def first_position(x, w_q, gain, cos, sin):
    """every token turned by the second position's angle"""
    return apply_rope(rms_norm(_heads(x, w_q, gain), gain), cos[1:2].expand_as(cos), sin[1:2].expand_as(sin))
