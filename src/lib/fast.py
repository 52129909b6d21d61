"""The plain model with faster single steps: prefill is the plain model's own, one token at a time goes another way to the same logits.

`fast_decode(model)` stays in PyTorch: fewer, larger products over weights that lie as this machine reads them best.
`lib.compile_decode(model)` (in lib.compiled) does the step in C++. `load_model(path, decode="fast" | "compiled")` is the switch for both.
"""

import torch
import torch.nn.functional as F

from lib.attention import attend
from lib.checks import check_call, check_ids
from lib.config import GQA, Dense
from lib.rope import apply_rope

DTYPES = (torch.float32, torch.bfloat16)


def not_taken(model, devices):
    """What of a model the faster steps do not run, by name: they know the Llama block and leave variety to the plain one."""
    names, weight = [], model.emb.weight
    if weight.device.type not in devices or weight.dtype not in DTYPES:
        names.append(
            f"{weight.dtype} on {weight.device} (float32 and bfloat16 on {' and '.join(devices)} are taken)"
        )
    norm = model.config.norm
    if norm.kind != "rms" or norm.unit_offset or norm.gain_last:
        names.append("a norm other than Llama's RMSNorm")
    if model.config.embed_scale != 1.0:
        names.append("a scaled embedding")
    for layer in model.config.layers:
        a, ffn = layer.attention, layer.ffn
        if not isinstance(a, GQA):
            names.append(f"{type(a).__name__} attention")
        elif a.bias or a.out_bias:
            names.append("attention biases")
        elif a.qk_norm == "width":
            names.append("QK-norm over the whole width")
        if layer.norms != "pre":
            names.append(f"norms in place {layer.norms!r}")
        if not isinstance(ffn, Dense) or not ffn.gated or ffn.activation != "silu" or ffn.bias:
            names.append("a feed-forward other than SwiGLU without biases")
    return list(dict.fromkeys(names))


class StepModel:
    """What `generate` needs of a model, around a plain one: calls of one token on a started cache go to `step`, all others to it.

    `plain` is the model itself, unchanged. The caches are the plain ones, so that a text may change between the two at any token.
    """

    devices = ("cpu",)

    def __init__(self, model):
        refused = not_taken(model, self.devices)
        if refused:
            raise ValueError(
                f"{type(self).__name__} does not take {', '.join(refused)}: decode with the plain model"
            )
        self.plain, self.config, self.emb = model, model.config, model.emb
        self.new_cache = model.new_cache

    @torch.no_grad()
    def __call__(self, idx, cache=None, pad=None, last=False):
        """As the plain model's call: idx [B, T] -> logits [B, T, V], or [B, 1, V] of the last token."""
        if cache is None or cache.length == 0 or not isinstance(idx, torch.Tensor) or idx.shape[1:] != (1,):
            return self.plain(idx, cache, pad, last)
        check_ids(idx)
        return self.step(idx, cache, check_call(self.plain, idx, cache, pad))

    def column(self, call):
        return torch.tensor([call.start], device=self.emb.weight.device)

    def tables(self, call):
        """attention -> this position's rows of cos and sin, [1, r/2] or [B, 1, 1, r/2], and None, None on a NoPE layer."""
        column = self.column(call)
        attentions = {layer.attention for layer in self.config.layers}
        return {a: self.plain._rows(a, column, call) for a in attentions}


def product(x, w):
    """x w^T: x [B, n], w [rows, n] -> [B, rows]. One bfloat16 row is a matrix times a vector, which PyTorch has a faster loop for."""
    return torch.mv(w, x[0])[None] if len(x) == 1 and w.dtype == torch.bfloat16 else F.linear(x, w)


def normed(x, norm):
    """The norm in one call in float32. In bfloat16 PyTorch's own casts after the gain and Llama's before, so that goes the plain way."""
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps) if x.dtype == torch.float32 else norm(x)


class FastDecode(StepModel):
    """Steps in PyTorch. Copies, made once: wq, wk, wv as one matrix, w_gate and w_up as one, and the head; in float32 on the CPU
    with the output axis contiguous, else as they are. Later changes of the plain model's weights do not reach them."""

    devices = ("cpu", "cuda")

    def __init__(self, model):
        super().__init__(model)
        groups = ("wq", "wk", "wv"), ("wo",), ("w_gate", "w_up"), ("w_down",)
        parts = [vars(b.attn)["_modules"] | vars(b.ffn)["_modules"] for b in model.blocks]
        self.products = [[self._fused(*(part[name] for name in group)) for group in groups] for part in parts]
        self.head = self._fused(model.head)

    @staticmethod
    def _fused(*linears):
        weights = [linear.weight.detach() for linear in linears]
        if weights[0].dtype != torch.float32 or weights[0].device.type != "cpu":
            return torch.cat(weights)
        rows, n = sum(len(w) for w in weights), weights[0].shape[1]
        relaid = torch.empty(n, rows)
        for to, w in zip(relaid.split([len(w) for w in weights], dim=1), weights):
            to.copy_(w.t())
        return relaid.t()

    def step(self, idx, cache, call):
        masks, column = {}, self.column(call)
        for layer, kv in zip(self.config.layers, cache.layers):
            window = layer.attention.window
            if window not in masks:
                masks[window] = self.plain._mask(column, kv, window, call.pad)
        return self.through(idx, self.tables(call), masks, [kv.append for kv in cache.layers])

    def through(self, idx, tables, masks, appends):
        """idx [B, 1] through the layers -> logits [B, 1, V]. All that knows the position comes from outside: the rows of cos and sin
        of each kind of attention, the mask of each window, and for each layer what stores k and v and returns those to look at."""
        x = self.emb.weight[idx[:, 0]]  # [B, d]
        for block, layer, append, (w_qkv, w_o, w_gu, w_down) in zip(
            self.plain.blocks, self.config.layers, appends, self.products
        ):
            a = layer.attention
            y = product(normed(x, block.attn_norm), w_qkv)  # [B, (h + n_kv) dh + n_kv d_v]
            qk, v = y.split([(a.n_heads + a.n_kv_heads) * a.head_dim, a.n_kv_heads * a.d_v], dim=-1)
            qk = qk.view(len(x), -1, 1, a.head_dim)  # [B, h + n_kv, 1, dh]
            if a.qk_norm:
                q, k = qk.split([a.n_heads, a.n_kv_heads], dim=1)
                qk = torch.cat([block.attn.q_norm(q), block.attn.k_norm(k)], dim=1)
            if a.rope is not None:
                qk = apply_rope(qk, *tables[a], a.rope.layout)
            q, k = qk.split([a.n_heads, a.n_kv_heads], dim=1)
            k, v = append(k, v.view(len(x), -1, 1, a.d_v))
            x = x + product(attend(q, k, v, masks[a.window], a.scale).flatten(1), w_o)
            gate, up = product(normed(x, block.ffn_norm), w_gu).chunk(2, dim=-1)
            x = x + product(F.silu(gate) * up, w_down)
        return product(normed(x, self.plain.norm), self.head)[:, None]  # [B, 1, V]


def fast_decode(model):
    """The same logits by larger PyTorch products: a model for `generate`, of which `plain` is the model given, unchanged.

    Takes what `lib.compile_decode` takes, on CUDA too, holds a second copy of the weights, and needs no compiler. float32: equal to
    the plain path to 1e-5 of the largest logit; bfloat16: to 0.05. Raises: ValueError naming what it does not take.
    """
    return FastDecode(model)
