"""The 2019 block: LayerNorm, GELU at 4 d, learned absolute positions, multi-head attention, biases, a tied head."""

import torch
from torch import nn

from lib.attention import GQAttention
from lib.checks import check_tie
from lib.config import GQA, Counted, Dense, Layer, ModelConfig, Norm
from lib.ffn import GELUMLP
from lib.norms import LayerNorm


class GPT2Block(nn.Module):
    """x + attn(norm(x)), then x + mlp(norm(x)): pre-norm already, everything else older."""

    def __init__(self, d, n_heads, d_ff=None):
        super().__init__()
        self.attn_norm, self.ffn_norm = LayerNorm(d), LayerNorm(d)
        self.attn = GQAttention(d, n_heads, n_heads, qk_norm=False, rope=None, bias=True, out_bias=True)
        self.ffn = GELUMLP(d, d_ff, activation="gelu_tanh")

    def forward(self, x, cache=None):
        x = x + self.attn(self.attn_norm(x), cache=cache)
        return x + self.ffn(self.ffn_norm(x))


class GPT2LM(nn.Module):
    """Token ids [B, T] -> logits [B, T, V]; a position past max_len has no row in the table and is refused."""

    def __init__(self, V, d=256, n_layers=4, n_heads=8, max_len=1024, d_ff=None, tie=True):
        super().__init__()
        self.emb, self.pos = nn.Embedding(V, d), nn.Embedding(max_len, d)
        self.blocks = nn.ModuleList(GPT2Block(d, n_heads, d_ff) for _ in range(n_layers))
        self.norm = LayerNorm(d)
        self.head = nn.Linear(d, V, bias=False)
        if tie:
            self.head.weight = self.emb.weight
        self.config = gpt2_style(V, d, n_layers, n_heads, max_len, d_ff, tie)

    def forward(self, idx):
        check_tie(self)
        T = idx.shape[1]
        if T > len(self.pos.weight):
            raise ValueError(
                f"{T} tokens: the learned position table has {len(self.pos.weight)} rows (max_len) and no more"
            )
        x = self.emb(idx) + self.pos(torch.arange(T, device=idx.device))  # [B, T, d]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # [B, T, V]


def gpt2_style(V, d=256, n_layers=4, n_heads=8, max_len=1024, d_ff=None, tie=True):
    """The 2019 model as a ModelConfig, for `lib.arithmetic`; learned positions and output biases are counted parts."""
    attention = GQA(n_heads, n_heads, d // n_heads, rope=None, bias=True, out_bias=True)
    layer = Layer(attention, Dense(d_ff or 4 * d, gated=False, activation="gelu_tanh", bias=True))
    positions = Counted("learned positions", max_len * d)
    norm = Norm("layer", eps=1e-5, bias=True)
    return ModelConfig(
        V,
        d,
        (layer,) * n_layers,
        norm,
        tie,
        max_len,
        counted=(positions,),
        unsupported=("learned positions",),
    )
