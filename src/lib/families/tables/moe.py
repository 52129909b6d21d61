"""Families with a mixture of experts and common attention. Data, no code."""

from ..family import (
    BIASES,
    DEEPSEEK_MOE,
    GAIN_LAST,
    MULTIPLIERS,
    QWEN_MOE_FIELDS,
    ROUTED,
    Experts,
    Family,
    defaults,
)

# fmt: off
GRANITE = Family(
    defaults=defaults(1e4, 2048, n_kv_heads="n_heads", embedding_multiplier=1.0, attention_multiplier=1.0)
    | {"residual_multiplier": 1.0, "logits_scaling": 1.0},
    scale="attention_multiplier", embed="embedding_multiplier", refuse=MULTIPLIERS, **BIASES,
)

MOE = {
    "mixtral": Family(defaults=defaults(1e6, 131072, 1e-5), windows="all", moe=Experts("d_ff")),
    "qwen2_moe": Family(
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 32768, qkv_bias=True, sliding_window=4096, max_window_layers=28), bias=("qkv_bias", True),
        out_bias=False, windows="early", switched=True,
        moe=Experts(where="step", shared="shared_expert_intermediate_size", shared_gate=True),
    ),
    "qwen3_moe": Family(
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 32768, sliding_window=4096), bias=("attention_bias", False),
        qk_norm=True, windows="all", switched=True, moe=Experts(where="step"),
    ),
    "glm4_moe": Family(
        keys=ROUTED, defaults=defaults(1e4, 131072, 1e-5), bias=("attention_bias", False), out_bias=False,
        qk_norm=("use_qk_norm", False, True), rotary=0.5, moe=DEEPSEEK_MOE,
    ),
    "gpt_oss": Family(
        defaults=defaults(1.5e5, 131072, 1e-5, head_dim=64, sliding_window=128), norm=GAIN_LAST,
        bias=("attention_bias", True), windows=2, moe=Experts("d_ff"), build="gpt_oss",
        always=("attention sinks", "a clamped SwiGLU"),
        ignored=("swiglu_limit", "swiglu_alpha", "initial_context_length"),
    ),
    "granitemoe": Family(
        defaults=GRANITE.defaults, bias=("attention_bias", False), scale="attention_multiplier",
        embed="embedding_multiplier", moe=Experts("d_ff"), refuse=MULTIPLIERS,
    ),
    "minimax_m2": Family(
        defaults=defaults(5e6, 196608, head_dim=128), qk_norm=("use_qk_norm", True, "width"), rotary=None,
        moe=Experts("d_ff"), ignored=("qk_norm_type", "shared_intermediate_size"),
    ),
    "llama4_text": Family(
        keys={"experts": ("num_local_experts",)},
        defaults=defaults(5e5, 131072, 1e-5, head_dim=128, attention_chunk_size=8192)
        | {"use_qk_norm": True, "attn_temperature_tuning": True},
        bias=("attention_bias", False), layout="adjacent", nope="list", moe=Experts("d_ff"),
        build="llama4",
        refuse={
            "use_qk_norm": (False, "an L2 norm of q and k without a gain"),
            "attn_temperature_tuning": (False, "attention temperature tuning"),
        },
        ignored=("floor_scale", "attn_scale"),
    ),
}
