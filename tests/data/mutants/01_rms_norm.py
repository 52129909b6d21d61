"""Exercise 01.rms_norm; written by hand, without reading its checker."""

import torch


def solution(x, weight, eps):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def draw(rng):
    dtype = rng.choice([torch.float32, torch.bfloat16, torch.float16])
    b, t, d = rng.randint(2, 3), rng.randint(4, 6), rng.randint(7, 12)
    x = torch.randn(b, t, d) * rng.choice([1e-3, 1.0, 300.0]) + rng.choice([0.0, 0.5])
    return x.to(dtype), (1 + torch.randn(d) / 2).to(dtype), rng.choice([1e-6, 1e-5, 1e-2])


def mean_over_tokens(x, weight, eps):
    """the mean over the token axis"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-2, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def mean_over_everything(x, weight, eps):
    """one mean for the whole tensor"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean() + eps)
    return y.to(x.dtype) * weight


def sum_for_mean(x, weight, eps):
    """the sum of squares instead of the mean"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def no_root(x, weight, eps):
    """divides by the mean square, without the root"""
    y = x.float()
    y = y / (y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def root_multiplied(x, weight, eps):
    """multiplies by the root instead of dividing"""
    y = x.float()
    y = y * torch.sqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def eps_outside_root(x, weight, eps):
    """eps added to the root"""
    y = x.float()
    y = y / (y.pow(2).mean(-1, keepdim=True).sqrt() + eps)
    return y.to(x.dtype) * weight


def eps_forgotten(x, weight, eps):
    """no eps"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True))
    return y.to(x.dtype) * weight


def eps_fixed(x, weight, eps):
    """eps is always 1e-6, whatever was asked for"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return y.to(x.dtype) * weight


def eps_subtracted_as_max(x, weight, eps):
    """clamps the mean square at eps instead of adding it"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True).clamp(min=eps))
    return y.to(x.dtype) * weight


def mean_subtracted(x, weight, eps):
    """LayerNorm: subtracts the mean first"""
    y = x.float()
    y = y - y.mean(-1, keepdim=True)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def variance_for_mean_square(x, weight, eps):
    """divides by the standard deviation"""
    y = x.float()
    y = y * torch.rsqrt(y.var(-1, keepdim=True, unbiased=False) + eps)
    return y.to(x.dtype) * weight


def absolute_mean(x, weight, eps):
    """divides by the mean absolute value"""
    y = x.float()
    y = y / (y.abs().mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def gain_forgotten(x, weight, eps):
    """no gain"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype)


def gain_offset(x, weight, eps):
    """Gemma's gain, 1 + weight"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * (1 + weight)


def gain_before_cast(x, weight, eps):
    """the gain in float32, then the cast"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y * weight).to(x.dtype)


def no_upcast(x, weight, eps):
    """the statistics in the dtype of x"""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def squares_before_upcast(x, weight, eps):
    """squares in the dtype of x, the mean in float32"""
    y = x.float() * torch.rsqrt(x.pow(2).float().mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


def stays_float32(x, weight, eps):
    """never cast back"""
    y = x.float()
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight


def unbiased_mean(x, weight, eps):
    """divides by d - 1"""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps)
    return y.to(x.dtype) * weight


def in_place(x, weight, eps):
    """overwrites x"""
    y = x.float()
    x.copy_(y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps))
    return x.mul_(2) * weight / 2
