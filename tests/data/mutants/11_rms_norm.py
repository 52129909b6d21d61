"""Exercise 11.rms_norm; written by hand, without reading its checker. The mutants are in PyTorch: a kernel each would take minutes."""

import torch
import triton
import triton.language as tl


@triton.jit
def _norm_kernel(X, W, Y, d, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < d
    x = tl.load(X + row * d + col, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(W + col, mask=inside, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / d + eps)
    tl.store(Y + row * d + col, y.to(W.dtype.element_ty) * w, mask=inside)  # element_ty: the gain's dtype


def solution(x, weight, eps):
    y, d = torch.empty(x.shape), x.shape[1]
    _norm_kernel[(len(x),)](x.contiguous(), weight, y, d, eps, BLOCK=triton.next_power_of_2(d))
    return y


def _norm(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def draw(rng):
    n, d = rng.randint(2, 5), rng.choice([6, 8, 11, 16, 20])
    return torch.randn(n, d) * rng.choice([0.01, 1.0, 10.0]), 1 + torch.randn(d) / 2, rng.choice([1e-6, 1e-2])


def _block(d):
    return 1 << (d - 1).bit_length()


def mean_over_block(x, weight, eps):
    """divides by the block, a power of two, not by d"""
    return x * (x.pow(2).sum(-1, keepdim=True) / _block(x.shape[1]) + eps).rsqrt() * weight


def masked_with_ones(x, weight, eps):
    """the lanes past d are loaded as 1"""
    d = x.shape[1]
    return x * ((x.pow(2).sum(-1, keepdim=True) + _block(d) - d) / d + eps).rsqrt() * weight


def not_masked(x, weight, eps):
    """no mask: the next row's numbers are in the sum"""
    n, d = x.shape
    flat = torch.cat([x.flatten(), torch.zeros(_block(d))])
    rows = torch.stack([flat[i * d : i * d + _block(d)] for i in range(n)])
    return x * (rows.pow(2).sum(-1, keepdim=True) / d + eps).rsqrt() * weight


def half_a_block(x, weight, eps):
    """the block is the power of two below: the last columns stay 0"""
    d = x.shape[1]
    b = 1 << (d.bit_length() - 1)
    y = torch.zeros_like(x)
    y[:, :b] = x[:, :b] * (x[:, :b].pow(2).sum(-1, keepdim=True) / d + eps).rsqrt() * weight[:b]
    return y


def one_program(x, weight, eps):
    """one program: only the first row is written"""
    y = torch.zeros_like(x)
    y[0] = _norm(x, weight, eps)[0]
    return y


def last_row_missing(x, weight, eps):
    """one program too few"""
    y = _norm(x, weight, eps)
    y[-1] = 0
    return y


def row_not_offset(x, weight, eps):
    """every program reads the first row"""
    return _norm(x, weight, eps)[:1].repeat(len(x), 1)


def weight_by_row(x, weight, eps):
    """the gain's first entry for the whole row"""
    return _norm(x, torch.ones_like(weight), eps) * weight[0]


def no_gain(x, weight, eps):
    """no gain"""
    return _norm(x, torch.ones_like(weight), eps)


def no_eps(x, weight, eps):
    """no eps"""
    return _norm(x, weight, 0.0)


def eps_outside(x, weight, eps):
    """eps added to the root"""
    return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps) * weight


def sum_for_mean(x, weight, eps):
    """the sum instead of the mean"""
    return x * (x.pow(2).sum(-1, keepdim=True) + eps).rsqrt() * weight


def root_multiplied(x, weight, eps):
    """multiplies by the root"""
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def no_root(x, weight, eps):
    """divides by the mean square"""
    return x / (x.pow(2).mean(-1, keepdim=True) + eps) * weight


def mean_subtracted(x, weight, eps):
    """LayerNorm"""
    return _norm(x - x.mean(-1, keepdim=True), weight, eps)


def over_rows(x, weight, eps):
    """the mean down the columns"""
    return x * (x.pow(2).mean(0, keepdim=True) + eps).rsqrt() * weight


def half_precision(x, weight, eps):
    """stored in float16"""
    return _norm(x, weight, eps).half()


def eps_fixed(x, weight, eps):
    """eps is always 1e-6"""
    return _norm(x, weight, 1e-6)
