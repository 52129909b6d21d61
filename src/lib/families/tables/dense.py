"""Dense families of the Llama kind: RMSNorm, RoPE, gated feed-forward, grouped heads; with windows, QK-norm or other places of the norms. Data, no code."""

from ..family import (
    BIASES,
    GAIN_LAST,
    GEMMA,
    MROPE,
    MULTIPLIERS,
    SINKS,
    SOFTCAPS,
    Experts,
    Family,
    Part,
    defaults,
)

# fmt: off
LLAMA = Family(defaults=defaults(1e4, 2048, n_kv_heads="n_heads"), **BIASES)
MISTRAL = Family(defaults=defaults(1e4, 131072, sliding_window=4096), windows="all")
QWEN2 = Family(
    defaults=defaults(1e4, 32768, sliding_window=4096, max_window_layers=28), bias=True, out_bias=False, windows="late", switched=True,
    refuse=MROPE,
)
QWEN3 = Family(
    defaults=defaults(1e4, 32768, head_dim=128, sliding_window=4096, max_window_layers=28), bias=("attention_bias", False), qk_norm=True,
    windows="late", switched=True,
)
OLMO2 = Family(
    defaults=defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"), bias=("attention_bias", False),
    norm=GAIN_LAST, place="post", qk_norm="width",
)
GLM = Family(
    defaults=defaults(1e4, 131072, 1.5625e-7, head_dim=128), bias=("attention_bias", True),
    out_bias=False, rotary=0.5, layout="adjacent",
)
GRANITE = Family(
    defaults=defaults(1e4, 2048, n_kv_heads="n_heads", embedding_multiplier=1.0, attention_multiplier=1.0)
    | {"residual_multiplier": 1.0, "logits_scaling": 1.0},
    scale="attention_multiplier", embed="embedding_multiplier", refuse=MULTIPLIERS, **BIASES,
)
APERTUS = Family(  # ApertusConfig, ApertusMLP: two learned coefficients of xIELU per layer
    defaults=defaults(1.2e7, 65536, 1e-5, n_kv_heads="n_heads"), bias=("attention_bias", False), gated=False,
    activation="xielu", qk_norm=True, stretched=True, parts=(Part("the activation xIELU", "2", "dense"),),
    only={"output_vocab_size": (None,)},
)
EXAONE4 = Family(  # Exaone4Attention: RoPE on window layers only, if there are any
    defaults=defaults(1e4, 2048, 1e-5, sliding_window=None), place="post", qk_norm=True, windows="listed", nope="hybrid",
    ignored=("sliding_window_pattern",),
)

DENSE = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "ministral": Family(defaults=defaults(1e4, 131072, sliding_window=4096), windows="all"),
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "smollm3": Family(
        defaults=defaults(2e6, 32768), tied=True, windows="nope", switched=True, nope="list", **BIASES,
    ),
    "olmo2": OLMO2,
    "olmo3": Family(
        defaults=defaults(5e5, 2048, 1e-5, n_kv_heads="n_heads", sliding_window=4096), norm=GAIN_LAST,
        bias=("attention_bias", False), place="post", qk_norm="width", windows=4, scaled_full_only=True,
    ),
    "gemma": Family(
        defaults=defaults(1e4, 8192, head_dim=256), tied=True, norm=GEMMA,
        bias=("attention_bias", False), activation="gelu_pytorch_tanh", fixed=True, embed="sqrt",
        ignored=("use_bidirectional_attention",),
    ),
    "gemma2": Family(
        keys={"activation": ("hidden_activation",)},
        defaults=defaults(1e4, 8192, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256)
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        tied=True, norm=GEMMA, place="sandwich", bias=("attention_bias", False),
        activation="gelu_pytorch_tanh", windows=2, scale="query_pre_attn_scalar", embed="sqrt",
        refuse=SOFTCAPS, ignored=("use_bidirectional_attention", "hidden_act"),
    ),
    "gemma3_text": Family(
        keys={
            "activation": ("hidden_activation",),
            "sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern"),
        },
        defaults=defaults(1e6, 131072, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256),
        tied=True, norm=GEMMA, place="sandwich", bias=("attention_bias", False),
        activation="gelu_pytorch_tanh", qk_norm=True, windows=6, local_base=1e4, scaled_full_only=True,
        scale="query_pre_attn_scalar", embed="sqrt",
        refuse=SOFTCAPS | {"use_bidirectional_attention": (False, "attention in both directions")},
    ),
    "gemma4_text": Family(
        keys={"activation": ("hidden_activation",)},
        defaults=defaults(1e6, 131072, head_dim=256, sliding_window=512), tied=True, place="sandwich",
        norm=GAIN_LAST, bias=("attention_bias", False),
        activation="gelu_pytorch_tanh", qk_norm=True, windows=6, local_base=1e4, moe=Experts(),
        build="gemma4", embed="sqrt", partial=True, refuse={"final_logit_softcapping": (None, "a logit softcap")},
        always=("RMSNorm of v", "a scalar per layer"),
        ignored=("use_bidirectional_attention", "vocab_size_per_layer_input"),
    ),
    "phi3": Family(
        defaults=defaults(1e4, 4096, 1e-5, n_kv_heads="n_heads", sliding_window=None), windows="all",
        partial=True, ignored=("attention_bias",),
    ),
    "glm": GLM,
    "glm4": Family(
        defaults=GLM.defaults, bias=GLM.bias, out_bias=False, rotary=0.5, layout="adjacent",
        place="sandwich",
    ),
    "chatglm": Family(
        keys={
            "V": ("padded_vocab_size", "vocab_size"), "n_layers": ("num_layers", "num_hidden_layers"),
            "n_kv_heads": ("multi_query_group_num",), "d_ff": ("ffn_hidden_size",), "max_len": ("seq_length",),
            "eps": ("layernorm_epsilon",),
        },
        defaults={"eps": 1e-5, "max_len": 2048, "rope_ratio": 1.0}, bias=("add_qkv_bias", False),
        out_bias=("add_bias_linear", True), ffn_bias=("add_bias_linear", True), fixed=True,
        layout="adjacent", rotary=0.5, build="chatglm",
        refuse={"apply_residual_connection_post_layernorm": (False, "a residual taken after the norm")},
    ),
    "granite": GRANITE,
    "hunyuan_v1_dense": Family(
        defaults=defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"),
        qk_norm=("use_qk_norm", True, True), bias=("attention_bias", False), ignored=("mlp_bias",),
        always=("QK-norm after RoPE",),
    ),
    "internlm2": Family(defaults=defaults(1e4, 2048, n_kv_heads="n_heads"), bias=("bias", True)),
    "ernie4_5": Family(
        defaults=defaults(5e5, 131072, 1e-5, head_dim=128), tied=True, bias=("use_bias", False),
        ffn_bias=("use_bias", False), layout="adjacent",
    ),
    "seed_oss": Family(
        defaults=defaults(1e4, 524288, head_dim=128), bias=("attention_bias", True),
        out_bias=("attention_out_bias", False), ffn_bias=("mlp_bias", False),
    ),
    "nemotron-nas": Family(defaults=defaults(1e4, 131072), build="nemotron_nas", **BIASES),
    # ---- 2025 and 2026
    "apertus": APERTUS,
    "apertus1p5_text": APERTUS,
    "arcee": Family(  # ArceeMLP
        defaults=defaults(1e4, 4096, 1e-5, n_kv_heads="n_heads"), gated=False, activation="relu2", **BIASES,
    ),
    "bitnet": Family(  # BitNetAttention.attn_sub_norm, BitNetMLP.ffn_sub_norm
        defaults=defaults(5e5, 2048, 1e-5, n_kv_heads="n_heads"), bias=("attention_bias", False), activation="relu2",
        parts=(Part("a norm before wo", "d", "attention"), Part("a norm before w_down", "f", "dense")),
    ),
    "cwm": Family(  # CwmConfig: the first and every fourth layer see the whole past
        defaults=defaults(1e6, 131072, 1e-5, sliding_window=8192, head_dim=128), windows="listed", stretched=True,
        ffn_bias=("mlp_bias", False),
    ),
    "diffllama": Family(  # DiffLlamaAttention: four vectors that make lambda, and a norm without a gain
        defaults=defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"), bias=("attention_bias", False),
        parts=(Part("differential attention", "4 dh", "attention"),), ignored=("lambda_std_dev",),
    ),
    "doge": Family(  # DogeAttention.A and dt_proj, DogeDecoderLayer.input_residual and post_attention_residual
        defaults=defaults(1e4, 2048, n_kv_heads="n_heads"), qk_norm=True, **BIASES,
        parts=(
            Part("a learned mask of the keys", "n_kv + n_kv dh n_kv", "attention"),
            Part("a bias of the learned mask", "n_kv", "attention", ("attention_bias", False)),
            Part("a gain on each residual", "2 d"),
        ),
        only={"is_moe": (False,), "sliding_window": (None,)}, ignored=("keep_window_size", "experts", "active"),
    ),
    "emu3_text_model": Family(defaults=defaults(1e6, 9216, 1e-5, n_kv_heads=8), bias=False),  # Emu3TextConfig
    "exaone": Family(defaults=defaults(5e5, 4096, 1e-5, n_kv_heads=8), **BIASES),  # ExaoneConfig: the class of Llama
    "exaone4": EXAONE4,
    "granite_swa": Family(  # GraniteSWAAttention.sinks; layer_rope_theta
        defaults=GRANITE.defaults | {"eps": 1e-5, "max_len": 8192, "sliding_window": 128}, tied=True,
        scale="attention_multiplier", embed="embedding_multiplier", windows="listed", parts=(SINKS,), build="granite_swa",
        refuse=MULTIPLIERS, **BIASES,
    ),
    "helium": Family(  # HeliumRMSNorm, apply_rotary_pos_emb of modeling_helium
        defaults=defaults(1e5, 4096, 1e-8, head_dim=128, n_kv_heads="n_heads"), norm=GAIN_LAST, layout="adjacent",
        bias=("attention_bias", False), out_bias=False, ffn_bias=("mlp_bias", False), build="helium",
    ),
    "hyperclovax": Family(  # HyperCLOVAXDecoderLayer.post_norm1
        defaults=GRANITE.defaults, scale="attention_multiplier", embed="embedding_multiplier", refuse=MULTIPLIERS,
        place=("use_post_norm", True, "sandwich", "pre"), **BIASES,
    ),
    "internlm3": Family(  # InternLM3Config: bias means the feed-forward and wo
        keys={"attention_bias": ("attention_bias", "qkv_bias"), "mlp_bias": ("mlp_bias", "bias")},
        defaults=defaults(1e4, 32768, 1e-5, n_kv_heads=2, head_dim=128), bias=("attention_bias", False),
        out_bias=("mlp_bias", False), ffn_bias=("mlp_bias", False),
    ),
    "iquestcoder": Family(  # IQuestCoderConfig: the class of Llama
        defaults=defaults(1e4, 131072, 1e-5, n_kv_heads=8, head_dim=128), **BIASES,
        only={"clip_qkv": (None,), "use_sliding_window": (False,)},
    ),
    "ministral3": Family(  # Ministral3Attention
        defaults=defaults(1e6, 262144, 1e-5, n_kv_heads=8, head_dim=128, sliding_window=None), windows="all",
        stretched=True, always=("attention temperature tuning",),
    ),
    "modernbert-decoder": Family(  # ModernBertDecoderLayer: no norm before the first attention; the head has a layer of its own
        keys={"eps": ("norm_eps",), "base": ("global_rope_theta",)},
        defaults={"max_len": 8192, "eps": 1e-5, "n_kv_heads": "always n_heads", "sliding_window": 64}, tied=True,
        norm={"kind": "layer"}, activation="gelu", windows="listed", **BIASES,
        parts=(
            Part("a norm of the embedding, none before the first attention", "0", "model"),
            Part("a layer and a norm before the head", "d d + d", "head"),
            Part("a bias of the head", "V", "head", ("decoder_bias", True)),
            Part("a bias of the layer before the head", "d", "head", ("classifier_bias", False)),
        ),
        only={"norm_bias": (False,)}, ignored=("local_attention", "classifier_activation", "initializer_cutoff_factor"),
    ),
    "nanochat": Family(  # NanoChatRMSNorm has no gain; NanoChatAttention turns q and k before their norm
        defaults=defaults(1e4, 2048, n_kv_heads="n_heads", final_logit_softcapping=15.0), norm={"kind": "rms", "gain": False},
        bias=("attention_bias", False), gated=False, activation="relu2",
        always=("QK-norm without gains", "a norm of the embedding"), refuse={"final_logit_softcapping": (None, "a logit softcap")},
    ),
    "vaultgemma": Family(  # VaultGemmaDecoderLayer: Gemma 2 with two norms
        keys={"activation": ("hidden_activation",)},
        defaults=defaults(1e4, 8192, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256)
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        tied=True, norm=GEMMA, bias=("attention_bias", False), activation="gelu_pytorch_tanh", windows=2,
        scale="query_pre_attn_scalar", embed="sqrt", refuse=SOFTCAPS, ignored=("hidden_act",),
    ),
}
