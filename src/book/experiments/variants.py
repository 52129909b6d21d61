"""The models that are compared: the 2019 block, the modern block, and the blocks between the two: each of the seven upgrades
added to the old one or taken back from today's. Beside them, for loss against cache: eight heads whose keys and values
are kept in seven ways.

All have the same width and depth; d_ff takes up what a change saves or costs, so that every variant has the parameters
of the 2019 model within 1 %.
"""

from dataclasses import replace

import torch
from torch import nn

from lib.arithmetic import parameters
from lib.config import GQA, MLA, Dense, Norm, Rope, llama_style
from lib.gpt2 import GPT2LM, gpt2_style
from lib.model import LlamaStyleLM

SIZES = {"V": 256, "d": 128, "n_layers": 5, "n_heads": 4, "max_len": 128}
N_KV_HEADS = 2  # of the modern block's 4 heads
TOLERANCE = 0.01  # parameters, relative to the 2019 model

UPGRADES = {  # what the modern block has and the 2019 block has not, and how it is called when it is taken back
    "rope": "learned",
    "rmsnorm": "layernorm",
    "swiglu": "gelu",
    "gqa": "mha",
    "qk_norm": "no_qk_norm",
    "no_biases": "biases",
    "untied": "tied",
}
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
    "+rope": "2019 + RoPE",
    "+rope+rmsnorm": "2019 + RoPE + RMSNorm",
    "+rope+swiglu": "2019 + RoPE + SwiGLU",
    "+rope+gqa": "2019 + RoPE + 2 KV heads",
    "+rope+qk_norm": "2019 + RoPE + QK-norm",
    "+rope+no_biases": "2019 + RoPE, no biases",
    "+rope+untied": "2019 + RoPE, untied",
    "kv8": "MHA, 8 KV heads",
    "kv4": "GQA, 4 KV heads",
    "kv2": "GQA, 2 KV heads",
    "kv1": "MQA, 1 KV head",
    "mla120": "MLA, latent 120",
    "mla56": "MLA, latent 56",
    "mla24": "MLA, latent 24",
}
ABLATIONS = tuple(TITLES)[2:9]
ADDED = tuple(v for v in TITLES if v.startswith("+rope+"))
CACHES = tuple(v for v in TITLES if v.startswith(("kv", "mla")))


def upgrades(variant):
    """Which of UPGRADES a block between 2019 and today has. Raises: ValueError for an unknown variant."""
    if variant == "2019":
        return set()
    if variant.startswith("+") and set(variant[1:].split("+")) <= set(UPGRADES):
        return set(variant[1:].split("+"))
    missing = {name for name, back in UPGRADES.items() if back == variant}
    if variant != "modern" and not missing:
        raise ValueError(f"no variant {variant!r}; there are: {', '.join(TITLES)}")
    return set(UPGRADES) - missing


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
    config = llama_style(
        s["V"], s["d"], s["n_layers"], s["n_heads"], min(N_KV_HEADS, s["n_heads"]), d_ff, s["max_len"]
    )
    layer = config.layers[0]
    if variant in CACHES:
        layer = replace(layer, attention=_cached(variant, s["d"]))
        return config.replace(layers=(layer,) * s["n_layers"])
    has = upgrades(variant)
    attention = replace(
        layer.attention,
        rope=layer.attention.rope if "rope" in has else None,
        n_kv_heads=layer.attention.n_kv_heads if "gqa" in has else s["n_heads"],
        qk_norm="qk_norm" in has,
        bias="no_biases" not in has,
        out_bias="no_biases" not in has,
    )
    gated = "swiglu" in has
    ffn = Dense(d_ff, gated, "silu" if gated else "gelu_tanh", bias="no_biases" not in has)
    layer = replace(layer, attention=attention, ffn=ffn)
    norm = (
        config.norm if "rmsnorm" in has else Norm("layer", eps=1e-5, bias=True)
    )  # of q and k too, as in ViT-22B
    return config.replace(layers=(layer,) * s["n_layers"], norm=norm, tied="untied" not in has)


def _cached(variant, d):
    """Attention of 8 heads of d / 8. No QK-norm anywhere: MLA has none on its keys either. MLA's widths are in DeepSeek-V3's
    proportions (rope keys half as wide as the others, values as wide), its latents chosen so that it caches as many
    numbers as 4, 2 and 1 KV heads."""
    n, dh = int(variant.strip("kvmla")), d // 8
    if variant.startswith("kv"):
        return GQA(8, n, dh, rope=Rope(), qk_norm=False)
    return MLA(8, None, n, dh, dh // 2, dh)


def _make(variant, s, d_ff):
    if variant == "2019":
        return GPT2LM(s["V"], s["d"], s["n_layers"], s["n_heads"], s["max_len"])
    config = _config(variant, s, d_ff)
    learned = config.layers[0].attention.rope is None
    return (LearnedPositions if learned else LlamaStyleLM.from_config)(config)


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
