"""Families in which some layers hold a fixed state: linear attention, state spaces. Data, no code."""

from ..family import GEMMA, QWEN_MOE_FIELDS, Experts, Family, defaults

# fmt: off
HYBRID = {
    "qwen3_next": Family(
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 32768, head_dim=256), norm=GEMMA,
        bias=("attention_bias", False), qk_norm=True, rotary=0.25,
        moe=Experts(where="step", shared="shared_expert_intermediate_size", shared_gate=True),
        build="qwen3_next", ignored=("use_sliding_window",),
    ),
    "minimax_m1": Family(
        defaults=defaults(1e6, 131072, 1e-5), moe=Experts("d_ff"), rotary=None, build="minimax_m1",
        ignored=("sliding_window",),
    ),
    "nemotron_h": Family(
        keys={"activation": ("mlp_hidden_act",), "layers_block_type": ("layers_block_type", "layer_types")},
        defaults={"eps": 1e-5, "max_len": 4096, "head_dim": 128},
        bias=False, ffn_bias=("mlp_bias", False), gated=False, activation="relu2", build="nemotron_h",
        ignored=("base", "partial_rotary_factor", "sliding_window", "rope_parameters"),
    ),
}
