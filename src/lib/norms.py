"""Normalisation: LayerNorm (2019) and RMSNorm (today), with the conventions that real families differ in."""

import torch
from torch import nn

from lib.config import Norm


def wide(x):
    """x in the dtype of its statistics: float32 at least, float64 stays. Whole numbers are refused: the result, cast back to
    them, would lose its fraction."""
    if not x.is_floating_point():
        raise ValueError(f"x is {x.dtype}: expected a floating-point tensor (write 1.0, not 1)")
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _check_weight(x, weight, what):
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ValueError(
            f"{what} has shape {list(weight.shape)} and x has shape {list(x.shape)}: expected [{x.shape[-1]}], the last axis of x"
            " (a norm runs over the last axis: are heads or tokens there?)"
        )


def rms_norm(x, weight=None, eps=1e-6, unit_offset=False, gain_last=False, implementation="torch"):
    """weight * x / sqrt(mean(x**2, last axis) + eps).

    Shapes: x [..., d], weight [d] or None (no gain) -> [..., d], in x.dtype
    Dtypes: statistics in float32 at least. gain_last False (Llama): one cast back to x.dtype, then the gain;
    True (Gemma, OLMo 2, gpt-oss): the gain in float32, then one cast. unit_offset True (Gemma): the gain is 1 + weight.
    implementation "triton": one kernel (lib.kernels).
    Raises: ValueError if weight.shape != x.shape[-1:].
    Source: Zhang & Sennrich 2019, arXiv 1910.07467, eq. 4.
    """
    _check_weight(x, weight, "weight")
    if implementation == "triton":
        from lib.kernels.norms import rms_norm as kernel

        return kernel(x, weight, eps, unit_offset, gain_last)
    y = wide(x)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    if weight is None:
        return y.to(x.dtype)
    if not gain_last:
        y = y.to(x.dtype)
    return (y * _gain(weight, unit_offset)).to(x.dtype)


def _gain(weight, unit_offset):
    return 1 + wide(weight) if unit_offset else weight  # in bfloat16 1 + 2**-8 is 1


def layer_norm(x, weight=None, bias=None, eps=1e-5, unit_offset=False):
    """weight * (x - mean) / sqrt(var + eps) + bias over the last axis, var being the mean squared deviation.

    Shapes: x [..., d], weight and bias [d] or None -> [..., d], in x.dtype; all of it in float32 at least, then one cast.
    unit_offset True (Nemotron): the gain is 1 + weight.
    Raises: ValueError if weight or bias does not fit the last axis.
    Source: Ba et al. 2016, arXiv 1607.06450.
    """
    _check_weight(x, weight, "weight")
    _check_weight(x, bias, "bias")
    y = wide(x)
    y = y - y.mean(-1, keepdim=True)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * _gain(weight, unit_offset)
    return (y if bias is None else y + bias).to(x.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` with a learned gain [d]: ones at the start, or zeros where the gain is 1 + weight."""

    implementation = "torch"  # lib.kernels.use changes it

    def __init__(self, d, eps=1e-6, unit_offset=False, gain_last=False):
        super().__init__()
        self.eps, self.unit_offset, self.gain_last = eps, unit_offset, gain_last
        self.weight = nn.Parameter(torch.zeros(d) if unit_offset else torch.ones(d))

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps, self.unit_offset, self.gain_last, self.implementation)

    def extra_repr(self):
        return f"{len(self.weight)}, eps={self.eps}"


class LayerNorm(nn.Module):
    """`layer_norm` with a learned gain [d] (zeros at the start where it is 1 + weight) and, by default, a shift [d]."""

    def __init__(self, d, eps=1e-5, bias=True, unit_offset=False):
        super().__init__()
        self.eps, self.unit_offset = eps, unit_offset
        self.weight = nn.Parameter(torch.zeros(d) if unit_offset else torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d)) if bias else None

    def forward(self, x):
        return layer_norm(x, self.weight, self.bias, self.eps, self.unit_offset)


def make_norm(norm: Norm, d):
    """The module that a config.Norm describes, for a last axis of d."""
    if not norm.gain:
        raise ValueError(
            "Norm.gain = False: the block runs norms with a gain only (a gainless norm is counted, not run)"
        )
    if norm.kind == "layer":
        return LayerNorm(d, norm.eps, norm.bias, norm.unit_offset)
    return RMSNorm(d, norm.eps, norm.unit_offset, norm.gain_last)
