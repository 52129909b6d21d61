"""Families in which some layers hold a fixed state: linear attention, state spaces. Data, no code."""

from dataclasses import replace

from ..family import (
    DELTA,
    GEMMA,
    KDA,
    KDA_STATE,
    MULTIPLIERS,
    QWEN_MOE_FIELDS,
    Experts,
    Family,
    Part,
    defaults,
    mamba,
    mamba2,
)

# fmt: off
MAMBA = Family(  # MambaMixer
    keys={"eps": ("layer_norm_epsilon",)}, defaults={"eps": 1e-5, "max_len": 10**9, "expand": 2}, tied=True, build="only_states",
    parts=mamba("intermediate_size", "time_step_rank", "state_size", "conv_kernel", ("use_bias", False), ("use_conv_bias", True)),
    ignored=("n_heads", "d_ff", "expand", "residual_in_fp32", "time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme",
             "time_step_floor", "use_mambapy", "use_associative_scan", "mixer_rms_eps", "activation"),
)
LFM2 = Family(  # Lfm2ShortConv, Lfm2MLP
    keys={"eps": ("norm_eps",), "d_ff": ("intermediate_size", "block_ff_dim"), "tied": ("tie_word_embeddings", "tie_embedding"),
          "experts": ("num_experts",), "first_k_dense_replace": ("num_dense_layers",)},
    defaults=defaults(1e6, 128000, 1e-5, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0, block_multiple_of=256),
    tied=True, qk_norm=True, windows="listed", kinds={"conv": "conv"}, idle=("conv",), build="lfm2",
    parts=(Part("a short convolution", "4 d d + d conv_L_cache + d", "conv", state="d conv_L_cache"),
           Part("biases of the short convolution", "5 d", "conv", ("conv_bias", False))),
    ignored=("full_attn_idxs", "block_use_xavier_init", "conv_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale",
             "block_norm_eps", "block_use_swiglu", "block_dim", "conv_dim", "conv_dim_out", "num_heads", "use_pos_enc", "use_expert_bias"),
)
QWEN3_5 = Family(  # Qwen3_5GatedDeltaNet: Qwen3-Next with dense feed-forwards
    defaults=defaults(1e4, 32768, head_dim=256), norm=GEMMA, bias=("attention_bias", False), qk_norm=True, rotary=0.25,
    build="qwen3_next",
)
_MAMBA_2 = ("mamba_chunk_size", "mamba_expand", "time_step_limit", "z_loss_coefficient")

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
    "bailing_hybrid": Family(  # BailingHybridKimiDeltaAttention, BailingHybridMLAttention.g_proj
        keys={"experts": ("num_experts",), "active": ("num_experts_per_tok", "num_experts_per_token"),
              "max_len": ("max_position_embeddings", "model_max_length"), "linear_num_heads": ("linear_num_heads", "num_attention_heads"),
              "linear_conv_kernel_dim": ("linear_conv_kernel_dim", "short_conv_kernel_size")},
        defaults=defaults(6e6, 262144), only={"tied": (False,)}, attention="mla", bias=("attention_bias", False), layout="adjacent", windows="listed",
        idle=("linear_attention",), moe=Experts(where="leading", shared_count="num_shared_experts"),
        parts=(Part("Kimi delta attention", KDA + " + 2 d linear_num_heads linear_head_dim", "linear_attention", state=KDA_STATE),
               Part("an output gate of attention", "d h", "attention")),
        ignored=("n_kv_heads", "head_dim", "layer_group_size", "kda_safe_gate", "kda_lower_bound", "mtp_loss_scaling_factor",
                 "moe_renormalize", "num_expert_group"),
    ),
    "bamba": Family(  # BambaMixer, BambaConfig.attn_layer_indices
        defaults=defaults(1e4, 262144, 1e-5, n_kv_heads=8), rotary=0.5, build="bamba",
        bias=("attention_bias", False), ffn_bias=("mlp_bias", False), idle=("linear_attention",),
        parts=mamba2("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
                     ("mamba_proj_bias", False), ("mamba_conv_bias", True)), ignored=_MAMBA_2,
    ),
    "falcon_h1": Family(  # FalconH1DecoderLayer: both kinds side by side in each layer
        defaults=defaults(1e4, 8192, 1e-5, n_kv_heads=8), bias=("attention_bias", False), ffn_bias=("mlp_bias", False),
        parts=mamba2("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv", ("mamba_proj_bias", False),
                     ("mamba_conv_bias", True), "all", ("mamba_rms_norm", False), "0", ("projectors_bias", False)),
        always=("attention and Mamba-2 side by side", "multipliers on every projection"),
        ignored=(*_MAMBA_2, "mamba_d_ssm", "mamba_norm_before_gate", "lm_head_multiplier", "embedding_multiplier", "mlp_multipliers",
                 "key_multiplier", "attention_out_multiplier", "attention_in_multiplier", "ssm_multipliers", "ssm_in_multiplier",
                 "ssm_out_multiplier", "mlp_expansion_factor", "mamba_use_mlp", "attn_layer_indices"),
    ),
    "falcon_mamba": MAMBA,
    "granitemoehybrid": Family(  # GraniteMoeHybridDecoderLayer
        defaults=defaults(1e4, 2048, n_kv_heads="n_heads", embedding_multiplier=1.0, attention_multiplier=1.0)
        | {"residual_multiplier": 1.0, "logits_scaling": 1.0, "mamba_expand": 2},
        bias=("attention_bias", False), scale="attention_multiplier", embed="embedding_multiplier", refuse=MULTIPLIERS,
        windows="listed", kinds={"mamba": "linear_attention", "attention": "full_attention"}, idle=("linear_attention",),
        moe=Experts("d_ff", shared="shared_intermediate_size"), build="granitemoehybrid",
        parts=mamba2("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
                     ("mamba_proj_bias", False), ("mamba_conv_bias", True)), ignored=(*_MAMBA_2, "init_method", "normalization_function"),
    ),
    "jamba": Family(  # JambaAttentionDecoderLayer, JambaMambaMixer with three norms
        keys={"experts": ("num_experts",)}, defaults={"eps": 1e-6, "max_len": 262144, "n_kv_heads": 8, "mamba_expand": 2},
        positions="none", idle=("linear_attention",), moe=Experts("d_ff"), build="jamba",
        parts=(*mamba("mamba_expand d", "mamba_dt_rank", "mamba_d_state", "mamba_d_conv", ("mamba_proj_bias", False), ("mamba_conv_bias", True)),
               Part("norms inside Mamba", "mamba_dt_rank + 2 mamba_d_state", "linear_attention")),
        ignored=("use_mamba_kernels", "use_mambapy", "use_associative_scan", "sliding_window"),
    ),
    "kimi_linear": Family(  # KimiLinearKimiDeltaAttention: the gates have a low rank; MLA without positions
        keys={"experts": ("num_experts",), "active": ("num_experts_per_tok", "num_experts_per_token"),
              "max_len": ("max_position_embeddings", "model_max_length")},
        defaults={"eps": 1e-5, "max_len": 1048576}, only={"tied": (False,)}, attention="mla", bias=("attention_bias", False), positions="none",
        windows="listed", idle=("linear_attention",), moe=Experts(where="leading", shared_count="num_shared_experts"),
        parts=(Part("Kimi delta attention", KDA + " + 2 d linear_head_dim + 2 linear_head_dim linear_num_heads linear_head_dim",
                    "linear_attention", state=KDA_STATE),),
        ignored=("n_kv_heads", "head_dim", "moe_renormalize", "num_expert_group", "mla_use_nope", "moe_router_activation_func"),
    ),
    "lara_mini": Family(  # LaraMiniGatedDeltaNet; RoPE where apply_rotary_pos_emb is called
        keys=QWEN_MOE_FIELDS, defaults=defaults(1e4, 131072, head_dim=128), tied=True, bias=("attention_bias", False), qk_norm=True,
        windows="listed", idle=("linear_attention",), moe=Experts(shared="shared_expert_intermediate_size"), parts=(DELTA,),
        always=("a layer without attention",),
    ),
    "lfm2": LFM2,
    "lfm2_moe": replace(LFM2, moe=Experts(where="leading")),
    "lfm3": Family(  # Lfm3DecoderLayer
        keys={"eps": ("norm_eps",)}, defaults=defaults(1e6, 128000, 1e-5, head_dim=128, sliding_window=None), tied=True,
        bias=("attention_bias", False), qk_norm=True, windows="listed", kinds={"conv": "conv"}, idle=("conv",), partial=True,
        place=("use_sandwich_norm", True, "sandwich", "pre"),
        parts=(Part("a short convolution", "4 d d + d conv_L_cache + d", "conv", state="d conv_L_cache"),
               Part("biases of the short convolution", "5 d", "conv", ("conv_bias", False)),
               Part("a norm after the short convolution", "d", "conv", ("use_sandwich_norm", True)),
               Part("an output gate of attention", "d h", "attention", ("use_attention_gate", True))),
    ),
    "mamba": MAMBA,
    "mamba2": Family(  # Mamba2Mixer
        keys={"eps": ("layer_norm_epsilon",)}, defaults={"eps": 1e-5, "max_len": 10**9}, build="only_states",
        parts=mamba2("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", ("use_bias", False), ("use_conv_bias", True)),
        ignored=("expand", "residual_in_fp32", "time_step_rank", "time_step_min", "time_step_max", "time_step_floor",
                 "time_step_limit", "chunk_size", "activation"),
    ),
    "minimax": Family(  # MiniMaxLightningAttention
        defaults=defaults(1e6, 131072, 1e-5, n_kv_heads=8), moe=Experts("d_ff"), partial=True, build="minimax_m1",
        ignored=("sliding_window", "block_size"),
    ),
    "olmo_hybrid": Family(  # OlmoHybridLinearAttentionDecoderLayer before, OlmoHybridAttentionDecoderLayer after
        defaults=defaults(1e4, 65536, n_kv_heads="n_heads"), bias=("attention_bias", False), qk_norm="width", windows="listed",
        idle=("linear_attention",), parts=(DELTA,), build="olmo_hybrid",
        ignored=("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor", "linear_allow_neg_eigval"),
    ),
    "qwen3_5_moe_text": replace(QWEN3_5, keys=QWEN_MOE_FIELDS, moe=Experts(shared="shared_expert_intermediate_size", shared_gate=True)),
    "qwen3_5_text": QWEN3_5,
}
