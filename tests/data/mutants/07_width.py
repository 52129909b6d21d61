"""Exercise 07.width; written by hand, without reading its checker."""

import torch

from lib import rms_norm


def solution(q, gain, n_heads):
    return rms_norm(q, gain).unflatten(-1, (n_heads, -1)).transpose(1, 2)


def draw(rng):
    b, t, h, dh = rng.randint(1, 2), rng.randint(4, 6), rng.randint(2, 3), rng.choice([7, 8])
    return torch.randn(b, t, h * dh) * rng.choice([0.1, 1.0, 5.0]), 1 + torch.randn(h * dh) / 2, h


def _split(q, n_heads):
    return q.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def per_head(q, gain, n_heads):
    """each head normalised for itself"""
    return rms_norm(_split(q, n_heads)) * gain.view(n_heads, 1, -1)


def first_heads_gain(q, gain, n_heads):
    """the first head's gains for all"""
    dh = len(gain) // n_heads
    return rms_norm(q, gain[:dh].repeat(n_heads)).unflatten(-1, (n_heads, -1)).transpose(1, 2)


def no_gain(q, gain, n_heads):
    """no gain"""
    return _split(rms_norm(q), n_heads)


def no_norm(q, gain, n_heads):
    """the gain without the norm"""
    return _split(q * gain, n_heads)


def only_split(q, gain, n_heads):
    """only the heads"""
    return _split(q, n_heads)


def not_transposed(q, gain, n_heads):
    """[B, T, h, dh]"""
    return rms_norm(q, gain).unflatten(-1, (n_heads, -1))


def viewed(q, gain, n_heads):
    """a view to [B, h, T, dh] without the transpose"""
    return rms_norm(q, gain).reshape(q.shape[0], n_heads, q.shape[1], -1)


def heads_interleaved(q, gain, n_heads):
    """the head from the fast axis"""
    return rms_norm(q, gain).unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)


def last_axes_swapped(q, gain, n_heads):
    """[B, h, dh, T]"""
    return _split(rms_norm(q, gain), n_heads).transpose(-1, -2)


def heads_for_width(q, gain, n_heads):
    """n_heads taken for the head width"""
    return rms_norm(q, gain).unflatten(-1, (-1, n_heads)).transpose(1, 2)


def over_tokens(q, gain, n_heads):
    """statistics over the tokens"""
    return _split(q * q.pow(2).mean(1, keepdim=True).add(1e-6).rsqrt() * gain, n_heads)


def layer_norm(q, gain, n_heads):
    """LayerNorm: the mean is taken off"""
    return _split(rms_norm(q - q.mean(-1, keepdim=True), gain), n_heads)


def offset(q, gain, n_heads):
    """1 + gain"""
    return _split(rms_norm(q, 1 + gain), n_heads)


def unit_length(q, gain, n_heads):
    """unit length instead of unit root mean square"""
    return _split(torch.nn.functional.normalize(q, dim=-1) * gain, n_heads)


def gain_inside(q, gain, n_heads):
    """the gain before the norm"""
    return _split(rms_norm(q * gain), n_heads)


def whole_tensor(q, gain, n_heads):
    """one root mean square for all tokens"""
    return _split(q * q.pow(2).mean().add(1e-6).rsqrt() * gain, n_heads)


def width_of_a_head(q, gain, n_heads):
    """divides the sum of squares by the head's width"""
    return _split(q * (q.pow(2).sum(-1, keepdim=True) * n_heads / q.shape[-1] + 1e-6).rsqrt() * gain, n_heads)
