"""Exercise 07.scores; written by hand, without reading its checker."""

import math

import torch

from lib import apply_rope, rms_norm, rope_cache


def solution(q, k, g_q, g_k, cos, sin):
    q, k = apply_rope(rms_norm(q, g_q), cos, sin), apply_rope(rms_norm(k, g_k), cos, sin)
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def draw(rng):
    h, t, dh = rng.randint(2, 3), rng.randint(4, 6), rng.choice([8, 12])
    cos, sin = rope_cache(t, dh)
    q, k = torch.randn(1, h, t, dh) * rng.choice([1.0, 5.0]), torch.randn(1, h, t, dh) + 0.3
    return q, k, 1 + torch.randn(dh) / 2, 1 + torch.randn(dh) / 2, cos, sin


def _scaled(q, k):
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def norm_after_rope(q, k, g_q, g_k, cos, sin):
    """RoPE first, then the norm"""
    return _scaled(rms_norm(apply_rope(q, cos, sin), g_q), rms_norm(apply_rope(k, cos, sin), g_k))


def unscaled(q, k, g_q, g_k, cos, sin):
    """no division by the root of dh"""
    return _scaled(_turned(q, g_q, cos, sin), _turned(k, g_k, cos, sin)) * math.sqrt(q.shape[-1])


def _turned(x, gain, cos, sin):
    return apply_rope(rms_norm(x, gain), cos, sin)


def divided_by_dh(q, k, g_q, g_k, cos, sin):
    """divided by dh instead of its root"""
    return _turned(q, g_q, cos, sin) @ _turned(k, g_k, cos, sin).transpose(-1, -2) / q.shape[-1]


def gains_swapped(q, k, g_q, g_k, cos, sin):
    """the gains exchanged"""
    return _scaled(_turned(q, g_k, cos, sin), _turned(k, g_q, cos, sin))


def one_gain(q, k, g_q, g_k, cos, sin):
    """the queries' gain for both"""
    return _scaled(_turned(q, g_q, cos, sin), _turned(k, g_q, cos, sin))


def no_gains(q, k, g_q, g_k, cos, sin):
    """no gains"""
    return _scaled(_turned(q, None, cos, sin), _turned(k, None, cos, sin))


def no_rope(q, k, g_q, g_k, cos, sin):
    """no RoPE"""
    return _scaled(rms_norm(q, g_q), rms_norm(k, g_k))


def no_norm(q, k, g_q, g_k, cos, sin):
    """no norm"""
    return _scaled(apply_rope(q, cos, sin), apply_rope(k, cos, sin))


def keys_not_normed(q, k, g_q, g_k, cos, sin):
    """only the queries are normalised"""
    return _scaled(_turned(q, g_q, cos, sin), apply_rope(k, cos, sin))


def keys_not_turned(q, k, g_q, g_k, cos, sin):
    """only the queries are turned"""
    return _scaled(_turned(q, g_q, cos, sin), rms_norm(k, g_k))


def cos_sin_swapped(q, k, g_q, g_k, cos, sin):
    """cos and sin exchanged"""
    return _scaled(_turned(q, g_q, sin, cos), _turned(k, g_k, sin, cos))


def turned_back(q, k, g_q, g_k, cos, sin):
    """turned the other way"""
    return _scaled(_turned(q, g_q, cos, -sin), _turned(k, g_k, cos, -sin))


def adjacent_pairs(q, k, g_q, g_k, cos, sin):
    """adjacent pairs instead of halves"""
    q, k = (apply_rope(rms_norm(x, g), cos, sin, layout="adjacent") for x, g in ((q, g_q), (k, g_k)))
    return _scaled(q, k)


def transposed(q, k, g_q, g_k, cos, sin):
    """keys by queries"""
    return _scaled(_turned(k, g_k, cos, sin), _turned(q, g_q, cos, sin))


def masked(q, k, g_q, g_k, cos, sin):
    """with a causal mask"""
    s = _scaled(_turned(q, g_q, cos, sin), _turned(k, g_k, cos, sin))
    return s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf"))


def softmaxed(q, k, g_q, g_k, cos, sin):
    """with the softmax"""
    return _scaled(_turned(q, g_q, cos, sin), _turned(k, g_k, cos, sin)).softmax(-1)


def unit_length(q, k, g_q, g_k, cos, sin):
    """unit length instead of unit root mean square"""
    unit = torch.nn.functional.normalize
    return _scaled(apply_rope(unit(q, dim=-1) * g_q, cos, sin), apply_rope(unit(k, dim=-1) * g_k, cos, sin))


def norm_over_tokens(q, k, g_q, g_k, cos, sin):
    """statistics over the tokens"""
    q = q * q.pow(2).mean(-2, keepdim=True).add(1e-6).rsqrt() * g_q
    k = k * k.pow(2).mean(-2, keepdim=True).add(1e-6).rsqrt() * g_k
    return _scaled(apply_rope(q, cos, sin), apply_rope(k, cos, sin))


def scaled_twice(q, k, g_q, g_k, cos, sin):
    """queries and keys both divided by the root of dh"""
    return _scaled(_turned(q, g_q, cos, sin), _turned(k, g_k, cos, sin)) / math.sqrt(q.shape[-1])
