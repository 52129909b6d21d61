"""The models that are compared: the 2019 block, the modern block, and the modern block with one upgrade
taken back.

All have the same width, depth and number of heads; d_ff takes up what a change saves or costs, so that
every variant has the parameters of the 2019 model within 1 %.
"""

from dataclasses import replace

import torch
from torch import nn

from lib.arithmetic import parameters
from lib.config import Dense, Norm, llama_style
from lib.gpt2 import GPT2LM, gpt2_style
from lib.model import LlamaStyleLM

SIZES = {"V": 256, "d": 128, "n_layers": 5, "n_heads": 4, "max_len": 128}
N_KV_HEADS = 2  # of the modern block's 4 heads
TOLERANCE = 0.01  # parameters, relative to the 2019 model

TITLES = {
    "2019": "2019 block",
    "modern": "modern block",
    "layernorm": "modern, LayerNorm for RMSNorm",
    "gelu": "modern, GELU MLP for SwiGLU",
    "learned": "modern, learned positions for RoPE",
    "mha": "modern, 4 KV heads for 2",
    "no_qk_norm": "modern, without QK-norm",
    "biases": "modern, with biases",
    "tied": "modern, tied embeddings",
}
ABLATIONS = tuple(TITLES)[2:]


class LearnedPositions(nn.Module):
    """A LlamaStyleLM without RoPE and a learned vector a position: a mixture that lib itself does not
    offer."""

    def __init__(self, config):
        super().__init__()
        self.lm, self.pos = LlamaStyleLM.from_config(config), nn.Embedding(config.max_len, config.d)
        self.config = config

    def forward(self, idx):
        x = self.lm.emb(idx) + self.pos.weight[: idx.shape[1]]  # [B, T, d]
        for block in self.lm.blocks:
            x = block(x)
        return self.lm.head(self.lm.norm(x))  # [B, T, V]


def _config(variant, s, d_ff):
    """The modern configuration with one thing changed."""
    config = llama_style(
        s["V"], s["d"], s["n_layers"], s["n_heads"], min(N_KV_HEADS, s["n_heads"]), d_ff, s["max_len"]
    )
    layer = config.layers[0]
    attention, ffn, norm, tied = layer.attention, layer.ffn, config.norm, config.tied
    if variant == "layernorm":  # of q and k too, as in ViT-22B
        norm = Norm("layer", eps=1e-5, bias=True)
    elif variant == "gelu":
        ffn = Dense(d_ff, gated=False, activation="gelu_tanh")
    elif variant == "learned":
        attention = replace(attention, rope=None)
    elif variant == "mha":
        attention = replace(attention, n_kv_heads=attention.n_heads)
    elif variant == "no_qk_norm":
        attention = replace(attention, qk_norm=False)
    elif variant == "biases":
        attention, ffn = replace(attention, bias=True, out_bias=True), replace(ffn, bias=True)
    elif variant == "tied":
        tied = True
    elif variant != "modern":
        raise ValueError(f"no variant {variant!r}; there are: {', '.join(TITLES)}")
    layer = replace(layer, attention=attention, ffn=ffn)
    return config.replace(layers=(layer,) * s["n_layers"], norm=norm, tied=tied)


def _make(variant, s, d_ff):
    if variant == "2019":
        return GPT2LM(s["V"], s["d"], s["n_layers"], s["n_heads"], s["max_len"])
    return (LearnedPositions if variant == "learned" else LlamaStyleLM.from_config)(_config(variant, s, d_ff))


def count(model):
    """Parameters, a tied matrix once."""
    return sum(p.numel() for p in model.parameters())


def width(variant, sizes=SIZES):
    """The d_ff whose parameter count is nearest to the 2019 model's; None for the 2019 model itself (4 d)."""
    if variant == "2019":
        return None
    target = parameters(
        gpt2_style(sizes["V"], sizes["d"], sizes["n_layers"], sizes["n_heads"], sizes["max_len"])
    ).total
    with torch.device("meta"):
        few, more = count(_make(variant, sizes, 8)), count(_make(variant, sizes, 9))
    return 8 + round((target - few) / (more - few))


def build(variant, sizes=SIZES, seed=0):
    """The variant's model, initialised from `seed`; its parameter count is checked against the 2019 model's.

    Initialisation, the same rule for all: normal with standard deviation 0.02 (GPT-2's), divided by sqrt(2
    n_layers) for the two matrices of a block that write into the residual stream; biases 0, gains 1.
    Raises: ValueError for an unknown variant or counts that differ by more than 1 %.
    """
    model = _make(variant, sizes, width(variant, sizes))
    target = count(GPT2LM(sizes["V"], sizes["d"], sizes["n_layers"], sizes["n_heads"], sizes["max_len"]))
    if abs(count(model) - target) > TOLERANCE * target:
        raise ValueError(
            f"{variant}: {count(model):,} parameters, the 2019 model has {target:,}: not comparable"
        )
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if p.dim() == 2:
            writes = name.endswith(("attn.wo.weight", "ffn.w_down.weight"))
            std = 0.02 / (2 * sizes["n_layers"]) ** 0.5 if writes else 0.02
            nn.init.normal_(p, 0.0, std, generator=generator)
        else:
            (nn.init.zeros_ if name.endswith("bias") else nn.init.ones_)(p)
    return model
