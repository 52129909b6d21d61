"""Families with multi-head latent attention. Data, no code."""

from ..family import DEEPSEEK_MOE, ROUTED, SINKS, Family, Part, defaults

# fmt: off
DEEPSEEK_V3 = Family(
    keys=ROUTED, defaults=defaults(1e4, 4096), attention="mla", bias=("attention_bias", False), moe=DEEPSEEK_MOE,
    layout="rope_interleave", ignored=("n_kv_heads", "head_dim", "mlp_bias"),
)

MLA = {
    "glm4_moe_lite": Family(
        keys=ROUTED, defaults=defaults(1e4, 202752, 1e-5), attention="mla", bias=("attention_bias", False),
        moe=DEEPSEEK_MOE, layout="rope_interleave", ignored=("n_kv_heads", "head_dim"),
    ),
    "deepseek_v2": Family(
        keys=ROUTED, defaults=defaults(1e4, 2048), attention="mla", bias=("attention_bias", False), ffn_bias=("mlp_bias", False),
        moe=DEEPSEEK_MOE, layout="adjacent", ignored=("n_kv_heads", "head_dim"),
    ),
    "deepseek_v3": DEEPSEEK_V3,
    "kimi_k2": DEEPSEEK_V3,
    "deepseek_v32": Family(
        keys=ROUTED, defaults=defaults(1e4, 163840), attention="mla", bias=("attention_bias", False),
        moe=DEEPSEEK_MOE, layout="adjacent", build="deepseek_v32",
        ignored=("n_kv_heads", "head_dim", "mlp_bias"),
    ),
    # ---- 2025 and 2026
    "axk1": Family(  # AXK1MoE.post_mlp_layernorm
        keys=ROUTED, defaults=defaults(1e4, 32768), attention="mla", bias=("attention_bias", False), moe=DEEPSEEK_MOE,
        layout="rope_interleave", parts=(Part("a norm after the experts", "d", "sparse"),), ignored=("n_kv_heads", "head_dim"),
    ),
    "axk2": Family(  # AXK2GatedRMSNorm, AXK2Attention.q_gate_proj
        keys=ROUTED, defaults=defaults(1e4, 131072), attention="mla", bias=("attention_bias", False), moe=DEEPSEEK_MOE,
        layout="adjacent", build="deepseek_v32", ignored=("n_kv_heads", "head_dim"),
        parts=(
            Part("an output gate of attention, and queries from two latents", "q_lora_rank h dh + 2 q_lora_rank h dv", "attention"),
            Part("a gated norm before attention", "2 gated_norm_rank d"),
            Part("a gated norm before the experts", "2 gated_norm_rank d", "sparse"),
        ),
    ),
    "glm_moe_dsa": Family(  # GlmMoeDsaConfig.indexer_types
        keys=ROUTED, defaults=defaults(1e4, 202752, 1e-5), attention="mla", bias=("attention_bias", False), moe=DEEPSEEK_MOE,
        layout="adjacent", build="glm_moe_dsa", ignored=("n_kv_heads", "head_dim", "mlp_bias"),
    ),
    "hy_v4": Family(  # HYV4Attention: sinks and a gate; HYV4HyperConnection: hc_mult streams in place of one residual
        keys=ROUTED, defaults=defaults(1e4, 262144, 1e-5), attention="mla", bias=("attention_bias", False), moe=DEEPSEEK_MOE,
        layout="adjacent", build="glm_moe_dsa", ignored=("n_kv_heads", "head_dim", "hc_eps", "hc_magnitude", "learnable_sink_init", "swiglu_limit"),
        parts=(
            SINKS, Part("an output gate of attention", "d h dv", "attention"),
            Part("hyper-connections", "4 hc_mult hc_mult d + 4 hc_mult + 4"),
            Part("hyper-connections before the head", "hc_mult hc_mult d + hc_mult + 1", "model"),
        ),
        always=("a clamped SwiGLU",),
    ),
    "minicpm3": Family(  # MiniCPM3Config: three multipliers
        defaults=defaults(1e4, 32768, 1e-5), tied=True, attention="mla", bias=("attention_bias", False), ffn_bias=("mlp_bias", False),
        embed="scale_emb", always=("a residual multiplier", "a logits multiplier"),
        ignored=("n_kv_heads", "head_dim", "scale_depth", "dim_model_base"),
    ),
    "sarvam_mla": DEEPSEEK_V3,  # SarvamMLAConfig: the class of DeepSeek-V3
    "youtu": Family(  # YoutuConfig: MLA with a dense feed-forward
        defaults=defaults(1e4, 131072), tied=True, attention="mla", bias=("attention_bias", False), layout="rope_interleave",
        ignored=("n_kv_heads", "head_dim", "embedding_initializer_range", "mlp_bias"),
    ),
}
