"""Exercise 01.backward; written by hand, without reading its checker."""

import torch


def solution(x, weight, eps, upstream):
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).mean(-1, keepdim=True)


def draw(rng):
    t, d = rng.randint(3, 5), rng.randint(6, 9)
    x = torch.randn(t, d, dtype=torch.float64) * rng.choice([0.1, 1.0, 4.0])
    weight = 1 + torch.randn(d, dtype=torch.float64) / 2
    return x, weight, rng.choice([1e-6, 1e-2]), torch.randn(t, d, dtype=torch.float64)


def divisor_constant(x, weight, eps, upstream):
    """the divisor taken for a constant"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return r * upstream * weight


def sign(x, weight, eps, upstream):
    """the second term added"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into + r**3 * x * (into * x).mean(-1, keepdim=True)


def gain_forgotten(x, weight, eps, upstream):
    """no gain anywhere"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return r * upstream - r**3 * x * (upstream * x).mean(-1, keepdim=True)


def gain_only_in_first(x, weight, eps, upstream):
    """the gain missing in the second term"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return r * upstream * weight - r**3 * x * (upstream * x).mean(-1, keepdim=True)


def gain_only_in_second(x, weight, eps, upstream):
    """the gain missing in the first term"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return r * upstream - r**3 * x * (upstream * weight * x).mean(-1, keepdim=True)


def gain_at_the_end(x, weight, eps, upstream):
    """the gain multiplies the result, outside the mean"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return weight * (r * upstream - r**3 * x * (upstream * x).mean(-1, keepdim=True))


def sum_for_mean(x, weight, eps, upstream):
    """the sum instead of the mean in the second term"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).sum(-1, keepdim=True)


def r_squared(x, weight, eps, upstream):
    """r squared instead of cubed"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**2 * x * (into * x).mean(-1, keepdim=True)


def r_once(x, weight, eps, upstream):
    """r to the first power in the second term"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * (into - x * (into * x).mean(-1, keepdim=True))


def half(x, weight, eps, upstream):
    """a half left over from the root's derivative"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - 0.5 * r**3 * x * (into * x).mean(-1, keepdim=True)


def twice(x, weight, eps, upstream):
    """the square's 2 left in the second term"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - 2 * r**3 * x * (into * x).mean(-1, keepdim=True)


def x_forgotten(x, weight, eps, upstream):
    """the outer x missing in the second term"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * (into * x).mean(-1, keepdim=True)


def diagonal_only(x, weight, eps, upstream):
    """only x_i's own part of the divisor, no sum over the others"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * into * x / x.shape[-1]


def layer_norm_term(x, weight, eps, upstream):
    """LayerNorm's third term, the mean of the upstream, too"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * (into - into.mean(-1, keepdim=True)) - r**3 * x * (into * x).mean(-1, keepdim=True)


def eps_forgotten(x, weight, eps, upstream):
    """no eps"""
    r = x.pow(2).mean(-1, keepdim=True).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).mean(-1, keepdim=True)


def mean_over_tokens(x, weight, eps, upstream):
    """the second term's mean over the tokens"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).mean(-2, keepdim=True)


def float32_result(x, weight, eps, upstream):
    """computed in float32"""
    x, weight, upstream = x.float(), weight.float(), upstream.float()
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).mean(-1, keepdim=True)


def of_the_weight(x, weight, eps, upstream):
    """the gain's gradient"""
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return (upstream * x * r).sum(0)
