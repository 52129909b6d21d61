"""Toy models for the tests: every kind of layer that the block runs, all sizes pairwise different, random gains and biases."""

import torch

from lib.config import GQA, MLA, Dense, Layer, ModelConfig, Norm, Rope, Scaling
from lib.model import LlamaStyleLM

V, D, D_FF = 97, 60, 44  # head_dim is 14 or 10: never d / n_heads
YARN = Scaling("yarn", factor=8.0, original_max_len=16, mscale=1.0, mscale_all_dim=0.7)
MLA_SIZES = {
    "n_heads": 5,
    "kv_lora_rank": 18,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 7,
}


def gqa(**fields):
    return GQA(**{"n_heads": 6, "n_kv_heads": 2, "head_dim": 14, **fields})


def layer(attention, norms="pre", **ffn):
    return Layer(attention, Dense(D_FF, **ffn), norms)


LATENT = MLA(q_lora_rank=22, rope=Rope(layout="adjacent", scaling=YARN), scale=0.31, **MLA_SIZES)
ROPED, NOPE, WINDOW = gqa(), gqa(rope=None), gqa(window=5)
LAYERS = {
    "mha": [layer(gqa(n_kv_heads=6))],
    "gqa": [layer(ROPED)],
    "mqa": [layer(gqa(n_kv_heads=1))],
    "qk_norm": [layer(gqa(qk_norm=True))],
    "width_norm_after": [layer(gqa(qk_norm="width"), "post")],
    "biases": [layer(gqa(bias=True, out_bias=True), bias=True)],
    "nope": [layer(ROPED), layer(NOPE)],
    "window": [layer(WINDOW), layer(ROPED)],
    "window_one": [layer(gqa(window=1)), layer(ROPED)],
    "two_bases": [layer(gqa(window=3, rope=Rope(1e4))), layer(gqa(rope=Rope(1e6)))],
    "sandwich": [layer(gqa(qk_norm=True, scale=0.2), "sandwich", activation="gelu_tanh")],
    "partial_adjacent": [layer(gqa(rope=Rope(rotary_dim=6, layout="adjacent")))],
    "value_width": [layer(gqa(v_head_dim=10))],
    "two_matrices": [layer(ROPED, gated=False, activation="relu2", bias=True)],
    "linear": [layer(gqa(rope=Rope(scaling=Scaling("linear", 3.0))))],
    "llama3": [layer(gqa(rope=Rope(5e5, Scaling("llama3", 8.0, 16, None, 1.0, 4.0))))],
    "yarn": [layer(gqa(rope=Rope(scaling=Scaling("yarn", 4.0, 16))))],
    "dynamic": [layer(gqa(rope=Rope(scaling=Scaling("dynamic", 2.0, 16))))],
    "longrope": [
        layer(
            gqa(
                rope=Rope(
                    scaling=Scaling("longrope", 4.0, 16, short_factor=(1.1,) * 7, long_factor=(3.0,) * 7)
                )
            )
        )
    ],
    "mla": [layer(LATENT)],
    "mla_no_q_lora": [layer(MLA(q_lora_rank=None, **MLA_SIZES))],
    "mla_bias_half": [layer(MLA(q_lora_rank=22, rope=Rope(layout="half"), bias=True, **MLA_SIZES))],
    "mla_and_window": [layer(LATENT), layer(WINDOW), layer(NOPE)],
}
NORMS = {"sandwich": Norm(unit_offset=True, gain_last=True), "two_matrices": Norm("layer", 1e-5, bias=True)}


def config(kind, **changes):
    fields = {
        "layers": tuple(LAYERS[kind]),
        "norm": NORMS.get(kind, Norm()),
        "max_len": 64,
        "tied": kind == "gqa",
    }
    return ModelConfig(V, D, **{**fields, **changes})


def randomise(module, seed=0):
    """Every gain, bias and matrix random: all-ones gains and zero biases hide a dropped one."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            x = torch.randn(p.shape, generator=draw)
            if p.dim() == 1:
                x = 0.3 * x + (1.0 if name.endswith("norm.weight") or name == "weight" else 0.0)
            else:
                x = x if name.startswith("emb") else x * p.shape[-1] ** -0.5
            p.copy_(x)
    return module.eval().requires_grad_(False)


def model(kind, dtype=torch.float32, seed=0, **changes):
    return randomise(LlamaStyleLM.from_config(config(kind, **changes)), seed).to(dtype)


def tokens(B, T, seed=0, vocab=V):
    return torch.randint(0, vocab, (B, T), generator=torch.Generator().manual_seed(seed))


def feed(lm, idx, chunks, pad=None, max_len=None):
    """The logits of idx [B, T] fed in chunks through a cache that was told their sum, and the cache."""
    cache, logits, start = lm.new_cache(idx.shape[0], max_len, text=idx.shape[1]), [], 0
    for size in chunks:
        logits.append(
            lm(
                idx[:, start : start + size],
                cache=cache,
                **({"pad": pad} if pad is not None and not start else {}),
            )
        )
        start += size
    assert start == idx.shape[1]
    return torch.cat(logits, dim=1), cache
