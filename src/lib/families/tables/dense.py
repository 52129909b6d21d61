"""Dense families of the Llama kind: RMSNorm, RoPE, gated feed-forward, grouped heads; with windows, QK-norm or other places of the norms. Data, no code."""

from ..family import BIASES, GAIN_LAST, GEMMA, MROPE, MULTIPLIERS, SOFTCAPS, Experts, Family, defaults

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
}
