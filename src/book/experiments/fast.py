"""The same model in fewer passes over memory, for training only: `speed_up(model)` changes how lib's modules compute, not
what; parameters, names and results stay (a test holds both together).

Products and attention are near the processor's peak already; what is saved is everything around them: a norm and the
rotation as one node of the graph each, q, k and v from one product, q's and k's heads normalised and rotated together.
"""

import torch
import torch.nn.functional as F
from torch.autograd import Function

from lib.attention import GQAttention
from lib.norms import LayerNorm, RMSNorm


class _RMS(Function):
    """w x / sqrt(mean(x**2) + eps), w broadcast over x's leading axes."""

    @staticmethod
    def forward(ctx, x, w, eps):
        r = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        unit = x * r
        ctx.save_for_backward(unit, r, w)
        return unit * w

    @staticmethod
    def backward(ctx, dy):
        unit, r, w = ctx.saved_tensors
        dw = (dy * unit).sum_to_size(w.shape)
        du = dy * w
        mean = (du * unit).mean(-1, keepdim=True)
        return du.addcmul_(unit, mean, value=-1).mul_(r), dw, None


class _Rotate(Function):
    """RoPE in the half layout, x cos + (-b, a) sin for x = (a, b); the gradient turns back."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx, dy):
        cos, sin = ctx.saved_tensors
        return _turn(dy, cos, -sin), None, None


def _turn(x, cos, sin):
    half = x.shape[-1] // 2
    return (x * cos).addcmul_(torch.cat([x[..., half:], x[..., :half]], -1), sin)


class _FastRMSNorm(RMSNorm):
    def forward(self, x):
        return _RMS.apply(x, self.weight, self.eps)


class _FastLayerNorm(LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class _FastAttention(GQAttention):
    def project(self, x, cos=None, sin=None):
        c = self.fields
        both = (c.n_heads + c.n_kv_heads) * c.head_dim
        linears = (self.wq, self.wk, self.wv)
        bias = torch.cat([m.bias for m in linears]) if c.bias else None
        qk, v = F.linear(x, torch.cat([m.weight for m in linears]), bias).split(
            [both, c.n_kv_heads * c.d_v], -1
        )
        qk = qk.unflatten(-1, (-1, c.head_dim))  # [B, T, h + n_kv, dh]
        if c.qk_norm:
            qk = self._normalised(qk)
        if c.rope is not None:
            qk = _Rotate.apply(qk, torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None])
        q, k = qk.transpose(1, 2).split([c.n_heads, c.n_kv_heads], 1)
        return q, k, v.unflatten(-1, (c.n_kv_heads, -1)).transpose(1, 2)

    def _normalised(self, qk):
        heads = (self.fields.n_heads, self.fields.n_kv_heads)

        def rows(name):
            gains = zip((self.q_norm, self.k_norm), heads)
            return torch.cat([getattr(m, name).expand(n, -1) for m, n in gains])  # [h + n_kv, dh]

        if isinstance(self.q_norm, RMSNorm):
            return _RMS.apply(qk, rows("weight"), self.q_norm.eps)
        return torch.addcmul(
            rows("bias"), F.layer_norm(qk, qk.shape[-1:], None, None, self.q_norm.eps), rows("weight")
        )


def speed_up(model):
    """`model`, whose norms and attention layers compute the same in less time. Float32, RoPE in the half layout over whole
    heads and per-head QK-norm only: what the experiments train."""
    faster = {RMSNorm: _FastRMSNorm, LayerNorm: _FastLayerNorm, GQAttention: _FastAttention}
    for module in model.modules():
        if type(module) in faster:
            module.__class__ = faster[type(module)]
    return model
