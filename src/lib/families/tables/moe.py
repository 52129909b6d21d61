"""Families with a mixture of experts and common attention. Data, no code."""

from ..family import (
    BIASES,
    DEEPSEEK_MOE,
    GAIN_LAST,
    LAYER_NORM,
    MULTIPLIERS,
    PARALLEL,
    QWEN_MOE_FIELDS,
    ROUTED,
    ROUTER_BIAS,
    SINKS,
    Experts,
    Family,
    Part,
    defaults,
)

# fmt: off
GRANITE = Family(
    defaults=defaults(1e4, 2048, n_kv_heads="n_heads", embedding_multiplier=1.0, attention_multiplier=1.0)
    | {"residual_multiplier": 1.0, "logits_scaling": 1.0},
    scale="attention_multiplier", embed="embedding_multiplier", refuse=MULTIPLIERS, **BIASES,
)
GRANITE_MOE = defaults(1e4, 2048, n_kv_heads="n_heads", embedding_multiplier=1.0, attention_multiplier=1.0) | {
    "residual_multiplier": 1.0, "logits_scaling": 1.0,
}

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
    # ---- 2025 and 2026
    "afmoe": Family(  # AfmoeAttention: a gate, RoPE on window layers only; AfmoeMoE.expert_bias
        keys={"first_k_dense_replace": ("num_dense_layers",), **QWEN_MOE_FIELDS},
        defaults=defaults(1e4, 16384, 1e-5, head_dim=128, n_kv_heads="n_heads"), bias=("attention_bias", False), place="sandwich",
        qk_norm=True, windows="listed", nope="full", moe=Experts(where="leading", shared_count="num_shared_experts"),
        parts=(Part("an output gate of attention", "d h dh", "attention"), ROUTER_BIAS),
        refuse={"mup_enabled": (False, "a scaled embedding")}, ignored=("global_attn_every_n_layers", "route_scale", "route_norm", "score_func"),
    ),
    "aria_text": Family(  # AriaTextMoELayer
        keys={"experts": ("moe_num_experts",), "active": ("moe_topk",)},
        defaults=defaults(1e4, 2048, n_kv_heads="n_heads"), bias=("attention_bias", False),
        ffn_bias=("mlp_bias", False), moe=Experts("d_ff", shared_count="moe_num_shared_experts"),
    ),
    "beam": Family(  # BeamAttention: a gate with a bias per head, RoPE on window layers only
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 8192, head_dim=128, final_logit_softcapping=30.0),
        bias=("attention_bias", False), place="sandwich", qk_norm=True, windows="listed", nope="full", moe=Experts(where="listed"),
        parts=(Part("an output gate of attention", "d h dh + h", "attention"),),
        refuse={"final_logit_softcapping": (None, "a logit softcap")},
    ),
    "cohere2_moe": Family(  # Cohere2MoeDecoderLayer
        keys={"eps": ("layer_norm_eps",), **QWEN_MOE_FIELDS},
        defaults=defaults(1e4, 8192, 1e-5, head_dim=128, n_kv_heads="n_heads", logit_scale=0.0625), tied=True,
        norm={"kind": "layer"}, place="parallel", bias=("attention_bias", False), layout="adjacent", windows="listed", nope="full",
        moe=Experts("d_ff", shared_count="num_shared_experts"), build="cohere2_moe", only={"rms_norm_eps": (None,)},
        refuse={"logit_scale": (1.0, "a logits multiplier")}, always=PARALLEL,
        ignored=("sliding_window_pattern", "expert_selection_fn", "shared_expert_combination_strategy"),
    ),
    "dots1": Family(  # Dots1Config
        keys=ROUTED, defaults=defaults(1e4, 2048, n_kv_heads="n_heads", sliding_window=None), bias=("attention_bias", False),
        qk_norm=True, windows="listed", moe=DEEPSEEK_MOE,
    ),
    "ernie4_5_moe": Family(  # Ernie4_5_MoeConfig
        keys={"experts": ("moe_num_experts",), "active": ("moe_k",)},
        defaults=defaults(5e5, 131072, 1e-5, n_kv_heads=4, moe_layer_start_index=1, moe_layer_end_index=-1), tied=True,
        bias=("use_bias", False), ffn_bias=("use_bias", False), layout="adjacent",
        moe=Experts(where="range", shared_count="moe_num_shared_experts"),
        parts=(ROUTER_BIAS, Part("a bias of the head", "V", "head", ("use_bias", False))),
        ignored=("moe_norm_min", "moe_capacity", "moe_use_aux_free"),
    ),
    "exaone_moe": Family(  # ExaoneMoeAttention: RoPE on window layers only, if there are any
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 2048, 1e-5, sliding_window=None), qk_norm=True, windows="listed", nope="hybrid",
        moe=Experts(where="leading", shared_count="num_shared_experts"), ignored=("sliding_window_pattern",),
    ),
    "flex_olmo": Family(  # FlexOlmoDecoderLayer
        keys=QWEN_MOE_FIELDS, defaults=defaults(5e5, 4096, n_kv_heads="n_heads"), norm=GAIN_LAST, bias=("attention_bias", False),
        place="post", qk_norm="width", moe=Experts("d_ff"),
    ),
    "flint": Family(  # FlintAttention: sinks, RoPE on window layers only
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 262144, head_dim=128), bias=("attention_bias", False), qk_norm=True,
        windows="listed", nope="full", moe=Experts(where="step", shared="shared_expert_intermediate_size"), parts=(SINKS,),
    ),
    "granitemoe_swa": Family(  # GraniteMoeSWAAttention.sinks
        defaults=GRANITE_MOE | {"sliding_window": 128}, bias=("attention_bias", False), scale="attention_multiplier",
        embed="embedding_multiplier", windows="listed", moe=Experts("d_ff", shared="shared_intermediate_size"), parts=(SINKS,),
        build="granite_swa", refuse=MULTIPLIERS,
    ),
    "granitemoeshared": Family(  # GraniteMoeSharedMLP
        defaults=GRANITE_MOE, bias=("attention_bias", False), scale="attention_multiplier", embed="embedding_multiplier",
        moe=Experts("d_ff", shared="shared_intermediate_size"), refuse=MULTIPLIERS,
    ),
    "hy_v3": Family(  # HYV3Config
        keys=QWEN_MOE_FIELDS, defaults=defaults(11158840.0, 131072, 1e-5, head_dim=128), bias=("attention_bias", False), qk_norm=True,
        moe=Experts(where="leading", shared_count="num_shared_experts"),
        ignored=("router_scaling_factor", "enable_moe_fp32_combine"), ffn_bias=("mlp_bias", False),
    ),
    "kolibri1": Family(  # Kolibri1DecoderLayer
        keys={"experts": ("num_local_experts", "num_experts")}, defaults=defaults(1e4, 262144, head_dim=128, sliding_window=None),
        place="sandwich", qk_norm=True, windows="listed", nope="hybrid", moe=Experts(shared="shared_expert_intermediate_size"),
    ),
    "laguna": Family(  # LagunaAttention.g_proj, LagunaTopKRouter.e_score_correction_bias
        keys=QWEN_MOE_FIELDS, defaults=defaults(5e5, 131072), bias=("attention_bias", False), qk_norm=True, windows="listed",
        partial=True, moe=Experts(where="listed", shared="shared_expert_intermediate_size"), parts=(ROUTER_BIAS,), build="laguna",
        only={"moe_router_logit_softcapping": (0,)}, ignored=("moe_routed_scaling_factor", "moe_apply_router_weight_on_input"),
    ),
    "mellum": Family(  # MellumConfig
        keys={"experts": ("num_local_experts", "num_experts")}, defaults=defaults(1e4, 131072, head_dim=128),
        bias=("attention_bias", False), qk_norm=True, windows="listed", moe=Experts(where="listed"),
        ignored=("mtp_layer_types", "mtp_mlp_layer_types"),
    ),
    "mimo_v2_flash": Family(  # MiMoV2FlashAttention
        keys=ROUTED, defaults=defaults(5e6, 131072, 1e-5), bias=("attention_bias", False), out_bias=False, v_dim="v_head_dim",
        windows="listed", partial=True, moe=Experts(where="listed"), build="mimo_v2_flash",
        parts=(Part("attention sinks", "h", "sliding_attention"),), always=("a scaled V",), ignored=("attention_value_scale",),
    ),
    "minimax_m3_vl_text": Family(  # MiniMaxM3VLSparseMoeBlock
        keys={"experts": ("num_local_experts", "num_experts")}, defaults=defaults(5e6, 524288, head_dim=128), norm=GAIN_LAST,
        qk_norm=True, rotary=None, moe=Experts("d_ff", where="listed", shared="shared_intermediate_size"), build="minimax_m3",
        always=("a clamped SwiGLU",), ignored=("swiglu_alpha", "swiglu_limit"),
    ),
    "olmoe": Family(  # OlmoeAttention
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 4096, 1e-5, n_kv_heads="n_heads"), bias=("attention_bias", False), qk_norm="width",
        moe=Experts("d_ff"), refuse={"clip_qkv": (None, "clipping of q, k and v")},
    ),
    "phimoe": Family(  # PhimoeConfig: LayerNorm
        keys={"eps": ("rms_norm_eps",)}, defaults=defaults(1e6, 131072, 1e-5, sliding_window=None), norm=LAYER_NORM,
        bias=("attention_bias", False), windows="all", moe=Experts("d_ff"),
        parts=(Part("a bias of the head", "V", "head", ("lm_head_bias", False)),), ignored=("input_jitter_noise",),
    ),
    "sarvam_moe": Family(  # SarvamMoeConfig: the class of GLM-4.5
        keys=ROUTED, defaults=defaults(8e6, 131072), bias=("attention_bias", False), out_bias=False,
        qk_norm=("use_qk_norm", True, True), partial=True, moe=DEEPSEEK_MOE,
    ),
    "solar_open": Family(  # SolarOpenConfig
        keys=ROUTED, defaults=defaults(1e6, 131072, 1e-5, head_dim=128), bias=("attention_bias", False), out_bias=False, partial=True,
        moe=Experts(shared_count="n_shared_experts"),
    ),
    "dbrx": Family(  # DbrxAttention, DbrxExperts: their fields stand in attn_config and ffn_config (table.LIFTED)
        keys={
            "n_kv_heads": ("attn_config.kv_n_heads",), "base": ("attn_config.rope_theta",), "max_len": ("max_seq_len",),
            "d_ff": ("ffn_config.ffn_hidden_size",), "experts": ("ffn_config.moe_num_experts",),
            "active": ("ffn_config.moe_top_k",), "activation": ("ffn_config.ffn_act_fn",),
        },
        defaults={"base": 1e4, "max_len": 2048}, norm={"kind": "layer", "eps": 1e-5}, moe=Experts("d_ff"),
        refuse={"attn_config.clip_qkv": (None, "clipping of q, k and v")}, only={"tied": (False,)},
        ignored=("ffn_config.moe_jitter_eps", "ffn_config.moe_loss_weight", "ffn_config.moe_normalize_expert_weights",
                 "ffn_config.uniform_expert_assignment", "attn_config.attn_pdrop"),
    ),
}
