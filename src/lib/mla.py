"""Multi-head latent attention: one latent and one shared rotated key a token, and two ways to compute the same thing.

Letters: B batch, T queries, S keys, h heads, n = qk_nope_head_dim, r = qk_rope_head_dim, c = kv_lora_rank, v = v_head_dim.
Source: DeepSeek-AI 2024, arXiv 2405.04434, section 2.1; names as in DeepSeek's checkpoints, without "_proj".
"""

import torch
from torch import nn

from lib.attention import attend
from lib.cache import KVCache, LatentCache
from lib.config import MLA, Norm, Rope
from lib.norms import make_norm
from lib.rope import apply_rope, check_table

FLOPS_PER_BYTE = (
    7.0  # two CPU cores in float32, as the book's benchmark measures them; an H100 in bfloat16 has about 300
)


class MLAttention(nn.Module):
    """expanded(): per-head keys and values are made from the latent; absorbed(): the query moves into latent space.

    forward() takes the absorbed form for short calls on a latent cache (decoding) and the expanded form otherwise.
    The softmax scale is (n + r) ** -0.5 in both forms unless given: absorption changes the order of the products only.
    """

    def __init__(self, d, n_heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim,
                 rope=Rope(layout="adjacent"), scale=None, bias=False, latent_norm=True, norm=Norm(), implementation="sdpa"):  # fmt: skip
        super().__init__()
        c = MLA(
            n_heads,
            q_lora_rank,
            kv_lora_rank,
            qk_nope_head_dim,
            qk_rope_head_dim,
            v_head_dim,
            rope,
            scale,
            bias,
            latent_norm,
        )
        self.fields, self.implementation = c, implementation
        qk_head_dim = qk_nope_head_dim + qk_rope_head_dim
        if q_lora_rank is None:
            self.wq = nn.Linear(d, n_heads * qk_head_dim, bias=False)
        else:
            self.wq_a = nn.Linear(d, q_lora_rank, bias=bias)
            self.q_norm = make_norm(norm, q_lora_rank)
            self.wq_b = nn.Linear(q_lora_rank, n_heads * qk_head_dim, bias=False)
        self.wkv_a = nn.Linear(d, kv_lora_rank + qk_rope_head_dim, bias=bias)
        self.kv_norm = make_norm(norm, kv_lora_rank) if latent_norm else nn.Identity()
        self.wkv_b = nn.Linear(kv_lora_rank, n_heads * (qk_nope_head_dim + v_head_dim), bias=False)
        self.wo = nn.Linear(n_heads * v_head_dim, d, bias=bias)
        self.scale = scale if scale is not None else qk_head_dim**-0.5

    def queries(self, x, cos, sin):
        """x [B, T, d] -> q_nope [B, h, T, n], q_rope [B, h, T, r] (rotated)."""
        c = self.fields
        check_table(cos, c.qk_rope_head_dim)
        q = self.wq(x) if c.q_lora_rank is None else self.wq_b(self.q_norm(self.wq_a(x)))
        q = q.unflatten(-1, (c.n_heads, -1)).transpose(1, 2)  # [B, h, T, n + r]
        q_nope, q_rope = q.split([c.qk_nope_head_dim, c.qk_rope_head_dim], dim=-1)
        return q_nope, apply_rope(q_rope, cos, sin, c.rope.layout)

    def latents(self, x, cos, sin):
        """x [B, T, d] -> [B, T, c + r]: the normalised latent and the rotated key, exactly what is cached."""
        c = self.fields
        latent, k_rope = self.wkv_a(x).split([c.kv_lora_rank, c.qk_rope_head_dim], dim=-1)
        k_rope = apply_rope(k_rope.unsqueeze(1), cos, sin, c.rope.layout).squeeze(1)  # one key for all heads
        return torch.cat([self.kv_norm(latent), k_rope], dim=-1)  # [B, T, c + r]

    def up_projections(self):
        """W_UK [h, n, c] and W_UV [h, v, c]: two views of wkv_b's weight."""
        c = self.fields
        w = self.wkv_b.weight.unflatten(0, (c.n_heads, -1))  # [h, n + v, c]
        return w.split([c.qk_nope_head_dim, c.v_head_dim], dim=1)

    def expand(self, latents):
        """Latents [B, S, c + r] -> keys [B, h, S, n + r] and values [B, h, S, v]: W_UK c and W_UV c, the rope key copied."""
        c = self.fields
        latent, k_rope = latents.split([c.kv_lora_rank, c.qk_rope_head_dim], dim=-1)
        kv = self.wkv_b(latent).unflatten(-1, (c.n_heads, -1)).transpose(1, 2)  # [B, h, S, n + v]
        k_nope, v = kv.split([c.qk_nope_head_dim, c.v_head_dim], dim=-1)
        k_rope = k_rope.unsqueeze(1).expand(-1, c.n_heads, -1, -1)  # [B, h, S, r]
        return torch.cat([k_nope, k_rope], dim=-1), v

    def expanded(self, x, cos, sin, cache=None, mask=None):
        """x [B, T, d] -> [B, T, d] through per-head keys and values. A KVCache keeps those; a LatentCache keeps the
        latents and expands ALL of them at every call."""
        q = torch.cat(self.queries(x, cos, sin), dim=-1)  # [B, h, T, n + r]
        latents = self.latents(x, cos, sin)
        if isinstance(cache, LatentCache):
            (latents,) = cache.append(latents)
        k, v = self.expand(latents)
        if isinstance(cache, KVCache):
            k, v = cache.append(k, v)
        out = attend(q, k, v, mask, self.scale, self.implementation)  # [B, h, T, v]
        return self.wo(out.transpose(1, 2).flatten(2))  # [B, T, d]

    def absorbed(self, x, cos, sin, cache=None, mask=None):
        """The same, with the parenthesis moved: q^T (W_UK c) = (W_UK^T q)^T c, and W_UV after the weighted sum.

        What is left is MQA with one key of width c + r and one value of width c (the key's own first part).
        """
        q_nope, q_rope = self.queries(x, cos, sin)
        latents = self.latents(x, cos, sin)
        if cache is not None:
            if not isinstance(cache, LatentCache):
                raise ValueError(
                    f"the absorbed form reads latents, not {type(cache).__name__}: give it a LatentCache"
                )
            (latents,) = cache.append(latents)
        w_uk, w_uv = self.up_projections()
        q = torch.cat([torch.einsum("bhtn,hnc->bhtc", q_nope, w_uk), q_rope], dim=-1)  # [B, h, T, c + r]
        k = latents.unsqueeze(1)  # [B, 1, S, c + r]
        v = k[..., : self.fields.kv_lora_rank]  # [B, 1, S, c]
        out = attend(q, k, v, mask, self.scale, self.implementation)  # [B, h, T, c]
        out = torch.einsum("bhtc,hvc->bhtv", out, w_uv)
        return self.wo(out.transpose(1, 2).flatten(2))  # [B, T, d]

    def crossover(self, flops_per_byte=FLOPS_PER_BYTE):
        """Queries a call from which expanding the cache once costs less than absorbing, for many keys. Per head and key:

            c (n + v) + flops_per_byte * bytes * (n + r + v)   =   queries * (2 c - n - v)
            multiply-adds that make a key and a value,             the extra width of each score (c + r for n + r)
            which are written and read again                       and of each value (c for v)

        flops_per_byte: what the machine computes while it moves one byte (a multiply-add is two); 0 counts arithmetic alone.
        inf where the latent is so narrow that absorbing is never dearer.
        """
        a = self.fields
        c, n, r, v = a.kv_lora_rank, a.qk_nope_head_dim, a.qk_rope_head_dim, a.v_head_dim
        written = self.wkv_b.weight.element_size() * (
            n + r + v
        )  # bytes; reading doubles, a multiply-add halves
        extra = 2 * c - n - v
        return (c * (n + v) + flops_per_byte * written) / extra if extra > 0 else float("inf")

    def forward(self, x, cos, sin, cache=None, mask=None):
        short = isinstance(cache, LatentCache) and x.shape[1] < self.crossover()
        return self.absorbed(x, cos, sin, cache, mask) if short else self.expanded(x, cos, sin, cache, mask)
