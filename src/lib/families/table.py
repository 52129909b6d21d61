"""What a config.json does not say: one row per model_type. Data, no code.

A row holds the spellings, class defaults and constants of a family, read from its published modelling code. A class default
that a file leaves out is used and reported; a constant (QK-norm, where norms stand, hidden biases) is in no file at all.
"""

from dataclasses import dataclass, field

_words = str.split

# ---- fields that change no number here: ids, dropout, initialisation, training, serving
HARMLESS = frozenset(
    _words(
        """_name_or_path _attn_implementation_autoset add_classification_head apply_query_key_layer_scaling
        architectures attention_softmax_in_fp32 attn_implementation auto_map aux_loss_alpha bias_dropout_fusion
        cache_implementation chunk_size_feed_forward do_sample dtype ep_size fp32_residual_connection id2label
        initializer_range is_decoder is_encoder_decoder is_llama_config label2id max_window_layers mlp_only_layers
        model_max_length model_type moe_shared_expert_overlap mtp_layers_block_type mtp_transformer_layers n_group
        norm_topk_prob num_logits_to_keep num_mtp_modules num_nextn_predict_layers output_attentions
        output_hidden_states output_router_logits pretraining_tp problem_type rescale_prenorm_residual
        residual_in_fp32 return_dict return_dict_in_generate reorder_and_upcast_attn routed_scaling_factor
        router_jitter_noise scale_attention_softmax_in_fp32 scoring_func seq_aux shared_moe_mode task_specific_params
        tie_encoder_decoder tokenizer_class topk_group topk_method torch_dtype torchscript transformers_version
        unsloth_fixed unsloth_version use_bfloat16 use_cache use_mtp use_routing_bias use_rotary_pos_emb original_rope
        runner_max_sequence_length quantization quantization_config mlp_type norm_type gradient_checkpointing
        max_length temperature top_k top_p repetition_penalty pruned_heads finetuning_task prefix"""
    )
)
HARMLESS_ENDINGS = ("_token_id", "_token_index", "dropout", "_pdrop", "_loss_coef", "_token_ids")
HARMLESS_STARTS = ("summary_",)
# features that a class does not have: false says so, true is reported
HARMLESS_OFF = frozenset(
    _words("attention_bias mlp_bias use_bias qkv_bias use_mrope use_qk_norm tie_lm_head")
)

# a nested text model without a model_type of its own: outer model_type -> inner
NESTED = {
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "mistral3": "mistral",
    "llava": "llama",
}


@dataclass(frozen=True)
class Family:
    """One row.

    keys         spellings that replace the common ones        defaults   class defaults, by canonical name or key
    norm         rms | layer, unit_offset, gain_last, gain, bias           place   where norms stand (config.Layer)
    bias, out_bias, ffn_bias   a constant, or (key, class default)
    qk_norm      a constant, or (key, class default, kind)
    activation   class default; fixed: the class ignores what the file says
    windows      None no layer; "all" every layer; n: all but every n-th; "late" from max_window_layers on; "nope" the NoPE layers
    switched     the window counts only if use_sliding_window is true
    nope         None; "list" no_rope_layers (1 means RoPE); "full" every full-attention layer of a model with windows
    rotary       share of the head that turns, where no field says it (None: a field must); layout: the pairs; positions: rope | learned
    partial      the class turns a share of the head if a field says so (implied by a rotary other than 1)
    local_base   a second base for window layers; scaled_full_only: rope_scaling is for full layers
    scale        key of the softmax scale: "query_pre_attn_scalar" (to the power -1/2) or "attention_multiplier"
    moe          None or Experts; attention: "gqa" | "mla"; build: a function of layers or hybrids for a special layer list
    embed        None, "sqrt" (sqrt(d)) or a key
    refuse       key -> (neutral value, what the block does not run); always: what it never runs; ignored: known, no number
    """

    keys: dict = field(default_factory=dict)
    defaults: dict = field(default_factory=dict)
    tied: bool = False
    norm: dict = field(default_factory=lambda: {"kind": "rms"})
    place: str = "pre"
    bias: object = False
    out_bias: object = None  # None = as bias
    ffn_bias: object = False
    gated: bool = True
    activation: str = "silu"
    fixed: bool = False
    qk_norm: object = False
    windows: object = None
    switched: bool = False
    nope: str | None = None
    rotary: float | None = 1.0
    partial: bool = False
    layout: str = "half"
    positions: str = "rope"
    local_base: float | None = None
    scaled_full_only: bool = False
    scale: str | None = None
    moe: object = None
    attention: str = "gqa"
    build: str | None = None
    embed: str | None = None
    refuse: dict = field(default_factory=dict)
    always: tuple = ()
    ignored: tuple = ()


@dataclass(frozen=True)
class Experts:
    """How a family places and sizes its experts. width, shared: canonical names or keys; shared_count times the width.

    where: "all", "leading" (first_k_dense_replace dense layers first) or "step" (every decoder_sparse_step-th, mlp_only_layers not).
    shared_gate: one more vector of d for the shared expert.
    """

    width: str = "moe_intermediate_size"
    where: str = "all"
    shared: str | None = None
    shared_count: str | None = None
    shared_gate: bool = False
    gated: bool = True


def _defaults(base, max_len, eps=1e-6, **more):
    return {"base": base, "max_len": max_len, "eps": eps} | more


_BIASES = {"bias": ("attention_bias", False), "ffn_bias": ("mlp_bias", False)}
_GEMMA = {"kind": "rms", "unit_offset": True, "gain_last": True}
_LAYER_NORM = {"kind": "layer", "bias": True}
_PARALLEL = ("parallel attention and feed-forward",)
_MULTIPLIERS = {
    "residual_multiplier": (1.0, "a residual multiplier"),
    "logits_scaling": (1.0, "a logits multiplier"),
}
_SOFTCAPS = {
    "attn_logit_softcapping": (None, "an attention softcap"),
    "final_logit_softcapping": (None, "a logit softcap"),
}
_DEEPSEEK_MOE = Experts(where="leading", shared_count="n_shared_experts")
_QWEN_MOE_FIELDS = {"experts": ("num_experts", "num_local_experts")}
_ROUTED = {"experts": ("n_routed_experts", "num_local_experts")}

_OLD = {"max_len": ("n_positions", "n_ctx"), "eps": ("layer_norm_epsilon",)}
_MROPE = {"use_mrope": (False, "RoPE over several axes")}
# fmt: off
_LLAMA = Family(defaults=_defaults(1e4, 2048, n_kv_heads="n_heads"), **_BIASES)
_MISTRAL = Family(defaults=_defaults(1e4, 131072, sliding_window=4096), windows="all")
_QWEN2 = Family(
    defaults=_defaults(1e4, 32768), bias=True, out_bias=False, windows="late", switched=True,
    refuse=_MROPE,
)
_QWEN3 = Family(
    defaults=_defaults(1e4, 32768, head_dim=128), bias=("attention_bias", False), qk_norm=True,
    windows="late", switched=True,
)
_OLMO2 = Family(
    defaults=_defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"), bias=("attention_bias", False),
    place="post", qk_norm="width",
)
_GLM = Family(
    defaults=_defaults(1e4, 131072, 1.5625e-7, head_dim=128), bias=("attention_bias", True),
    out_bias=False, rotary=0.5, layout="adjacent",
)
_DEEPSEEK_V3 = Family(
    keys=_ROUTED, defaults=_defaults(1e4, 4096), attention="mla", bias=("attention_bias", False), moe=_DEEPSEEK_MOE,
    layout="rope_interleave", ignored=("n_kv_heads", "head_dim", "mlp_bias"),
)
_COHERE = Family(
    defaults=_defaults(5e5, 8192, 1e-5, n_kv_heads="n_heads", logit_scale=0.0625), tied=True,
    norm={"kind": "layer"}, place="parallel", bias=("attention_bias", False), layout="adjacent",
    refuse={"logit_scale": (1.0, "a logits multiplier"), "use_qk_norm": (False, "LayerNorm of q and k, head by head")},
    always=_PARALLEL,
)
_GPT2 = Family(
    keys={"d_ff": ("n_inner",), "activation": ("activation_function",), **_OLD},
    defaults={"max_len": 1024, "eps": 1e-5, "d_ff": "4d", "n_kv_heads": "always n_heads"}, tied=True,
    norm=_LAYER_NORM, bias=True, ffn_bias=True, gated=False, activation="gelu_new", positions="learned",
    refuse={
        "scale_attn_by_inverse_layer_idx": (False, "a softmax scale per layer"),
        "scale_attn_weights": (True, "unscaled attention"), "add_cross_attention": (False, "cross-attention"),
    },
)
_GRANITE = Family(
    defaults=_defaults(1e4, 2048, n_kv_heads="n_heads", embedding_multiplier=1.0, attention_multiplier=1.0)
    | {"residual_multiplier": 1.0, "logits_scaling": 1.0},
    scale="attention_multiplier", embed="embedding_multiplier", refuse=_MULTIPLIERS, **_BIASES,
)

FAMILIES = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "ministral": Family(defaults=_defaults(1e4, 131072, sliding_window=4096), windows="all"),
    "mixtral": Family(defaults=_defaults(1e6, 131072, 1e-5), windows="all", moe=Experts("d_ff")),
    "qwen2": _QWEN2,
    "qwen2_moe": Family(
        keys=_QWEN_MOE_FIELDS, defaults=_defaults(1e4, 32768, qkv_bias=True), bias=("qkv_bias", True),
        out_bias=False, windows="late", switched=True,
        moe=Experts(where="step", shared="shared_expert_intermediate_size", shared_gate=True),
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": Family(
        keys=_QWEN_MOE_FIELDS, defaults=_defaults(1e4, 32768), bias=("attention_bias", False),
        qk_norm=True, windows="all", switched=True, moe=Experts(where="step"),
    ),
    "qwen3_next": Family(
        keys=_QWEN_MOE_FIELDS, defaults=_defaults(1e4, 32768, head_dim=256), norm=_GEMMA,
        bias=("attention_bias", False), qk_norm=True, rotary=0.25,
        moe=Experts(where="step", shared="shared_expert_intermediate_size", shared_gate=True),
        build="qwen3_next", ignored=("use_sliding_window",),
    ),
    "smollm3": Family(
        defaults=_defaults(2e6, 32768), tied=True, windows="nope", switched=True, nope="list", **_BIASES,
    ),
    "olmo": Family(
        defaults={"base": 1e4, "max_len": 2048, "n_kv_heads": "n_heads"},
        norm={"kind": "layer", "gain": False, "eps": 1e-5}, bias=("attention_bias", False),
        refuse={"clip_qkv": (None, "clipping of q, k and v")},
    ),
    "olmo2": _OLMO2,
    "olmo3": Family(
        defaults=_defaults(5e5, 2048, 1e-5, n_kv_heads="n_heads", sliding_window=4096),
        bias=("attention_bias", False), place="post", qk_norm="width", windows=4, scaled_full_only=True,
    ),
    "gemma": Family(
        defaults=_defaults(1e4, 8192, head_dim=256), tied=True, norm=_GEMMA,
        bias=("attention_bias", False), activation="gelu_pytorch_tanh", fixed=True, embed="sqrt",
        ignored=("use_bidirectional_attention",),
    ),
    "gemma2": Family(
        keys={"activation": ("hidden_activation",)},
        defaults=_defaults(1e4, 8192, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256)
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        tied=True, norm=_GEMMA, place="sandwich", bias=("attention_bias", False),
        activation="gelu_pytorch_tanh", windows=2, scale="query_pre_attn_scalar", embed="sqrt",
        refuse=_SOFTCAPS, ignored=("use_bidirectional_attention", "hidden_act"),
    ),
    "gemma3_text": Family(
        keys={
            "activation": ("hidden_activation",),
            "sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern"),
        },
        defaults=_defaults(1e6, 131072, head_dim=256, sliding_window=4096, query_pre_attn_scalar=256),
        tied=True, norm=_GEMMA, place="sandwich", bias=("attention_bias", False),
        activation="gelu_pytorch_tanh", qk_norm=True, windows=6, local_base=1e4, scaled_full_only=True,
        scale="query_pre_attn_scalar", embed="sqrt",
        refuse=_SOFTCAPS | {"use_bidirectional_attention": (False, "attention in both directions")},
    ),
    "gemma4_text": Family(
        keys={"activation": ("hidden_activation",)},
        defaults=_defaults(1e6, 131072, head_dim=256, sliding_window=512), tied=True, place="sandwich",
        norm={"kind": "rms", "gain_last": True}, bias=("attention_bias", False),
        activation="gelu_pytorch_tanh", qk_norm=True, windows=6, local_base=1e4, moe=Experts(),
        build="gemma4", embed="sqrt", partial=True, refuse={"final_logit_softcapping": (None, "a logit softcap")},
        always=("RMSNorm of v", "a scalar per layer"),
        ignored=("use_bidirectional_attention", "vocab_size_per_layer_input"),
    ),
    "phi": Family(
        defaults=_defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"), norm=_LAYER_NORM, place="parallel",
        bias=True, ffn_bias=True, gated=False, activation="gelu_new", rotary=0.5, build="phi",
        refuse={"qk_layernorm": (False, "LayerNorm of q and k")}, always=_PARALLEL,
    ),
    "phi3": Family(
        defaults=_defaults(1e4, 4096, 1e-5, n_kv_heads="n_heads", sliding_window=None), windows="all",
        partial=True, ignored=("attention_bias",),
    ),
    "glm": _GLM,
    "glm4": Family(
        defaults=_GLM.defaults, bias=_GLM.bias, out_bias=False, rotary=0.5, layout="adjacent",
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
    "glm4_moe": Family(
        keys=_ROUTED, defaults=_defaults(1e4, 131072, 1e-5), bias=("attention_bias", False), out_bias=False,
        qk_norm=("use_qk_norm", False, True), rotary=0.5, moe=_DEEPSEEK_MOE,
    ),
    "glm4_moe_lite": Family(
        keys=_ROUTED, defaults=_defaults(1e4, 202752, 1e-5), attention="mla", bias=("attention_bias", False),
        moe=_DEEPSEEK_MOE, layout="rope_interleave", ignored=("n_kv_heads", "head_dim"),
    ),
    "deepseek_v2": Family(
        keys=_ROUTED, defaults=_defaults(1e4, 2048), attention="mla", bias=("attention_bias", False), moe=_DEEPSEEK_MOE,
        layout="adjacent", ignored=("n_kv_heads", "head_dim", "mlp_bias"),
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "deepseek_v32": Family(
        keys=_ROUTED, defaults=_defaults(1e4, 163840), attention="mla", bias=("attention_bias", False),
        moe=_DEEPSEEK_MOE, layout="adjacent", build="deepseek_v32",
        ignored=("n_kv_heads", "head_dim", "mlp_bias"),
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": Family(
        keys={"d_ff": ("n_inner",), "activation": ("activation_function",), **_OLD},
        defaults={"max_len": 1024, "eps": 1e-5, "d_ff": "4d", "multi_query": True}, tied=True,
        norm=_LAYER_NORM, bias=True, ffn_bias=True, gated=False, activation="gelu_pytorch_tanh",
        positions="learned", build="gpt_bigcode",
        refuse={"scale_attn_weights": (True, "unscaled attention"), "add_cross_attention": (False, "cross-attention")},
    ),
    "gpt_neox": Family(
        defaults=_defaults(1e4, 2048, 1e-5, n_kv_heads="always n_heads"), norm=_LAYER_NORM,
        place="parallel2", bias=("attention_bias", True), ffn_bias=True, gated=False, activation="gelu",
        rotary=0.25, build="gpt_neox",
    ),
    "falcon": Family(
        keys={
            "n_kv_heads": ("num_kv_heads", "n_head_kv"), "d_ff": ("ffn_hidden_size",),
            "activation": ("activation",), "eps": ("layer_norm_epsilon",),
        },
        defaults=_defaults(1e4, 2048, 1e-5, d_ff="4d", multi_query=True, new_decoder_architecture=False),
        tied=True, norm=_LAYER_NORM, place="parallel", bias=("bias", False), ffn_bias=("bias", False),
        gated=False, activation="gelu", build="falcon",
        refuse={
            "apply_residual_connection_post_layernorm": (False, "a residual taken after the norm"),
            "alibi": (False, "ALiBi positions"),
        },
    ),
    "cohere": _COHERE,
    "cohere2": Family(
        defaults=_COHERE.defaults | {"base": 1e4, "sliding_window": 4096}, tied=True,
        norm={"kind": "layer"}, place="parallel", bias=("attention_bias", False), layout="adjacent",
        windows=4, nope="full", refuse={"logit_scale": (1.0, "a logits multiplier")}, always=_PARALLEL,
    ),
    "gpt_oss": Family(
        defaults=_defaults(1.5e5, 131072, 1e-5, head_dim=64, sliding_window=128),
        bias=("attention_bias", True), windows=2, moe=Experts("d_ff"), build="gpt_oss",
        always=("attention sinks", "a clamped SwiGLU"),
        ignored=("swiglu_limit", "swiglu_alpha", "initial_context_length"),
    ),
    "granite": _GRANITE,
    "granitemoe": Family(
        defaults=_GRANITE.defaults, bias=("attention_bias", False), scale="attention_multiplier",
        embed="embedding_multiplier", moe=Experts("d_ff"), refuse=_MULTIPLIERS,
    ),
    "hunyuan_v1_dense": Family(
        defaults=_defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"),
        qk_norm=("use_qk_norm", True, True), bias=("attention_bias", False), ignored=("mlp_bias",),
        always=("QK-norm after RoPE",),
    ),
    "internlm2": Family(defaults=_defaults(1e4, 2048, n_kv_heads="n_heads"), bias=("bias", True)),
    "ernie4_5": Family(
        defaults=_defaults(5e5, 131072, 1e-5, head_dim=128), tied=True, bias=("use_bias", False),
        ffn_bias=("use_bias", False), layout="adjacent",
    ),
    "minimax_m2": Family(
        defaults=_defaults(5e6, 196608, head_dim=128), qk_norm=("use_qk_norm", True, "width"), rotary=None,
        moe=Experts("d_ff"), ignored=("qk_norm_type", "shared_intermediate_size"),
    ),
    "minimax_m1": Family(
        defaults=_defaults(1e6, 131072, 1e-5), moe=Experts("d_ff"), rotary=None, build="minimax_m1",
        ignored=("sliding_window",),
    ),
    "nemotron": Family(
        defaults=_defaults(1e4, 4096, 1e-5, n_kv_heads="n_heads"),
        norm=_LAYER_NORM | {"unit_offset": True}, gated=False, activation="relu2", rotary=0.5,
        always=("LayerNorm with a gain of 1 + weight",), **_BIASES,
    ),
    "nemotron_h": Family(
        keys={"activation": ("mlp_hidden_act",)}, defaults={"eps": 1e-5, "max_len": 4096, "head_dim": 128},
        bias=False, ffn_bias=("mlp_bias", False), gated=False, activation="relu2", build="nemotron_h",
        ignored=("base", "partial_rotary_factor", "sliding_window", "attention_bias", "rope_parameters"),
    ),
    "nemotron-nas": Family(defaults=_defaults(1e4, 131072), build="nemotron_nas", **_BIASES),
    "seed_oss": Family(
        defaults=_defaults(1e4, 524288, head_dim=128), bias=("attention_bias", True),
        out_bias=("attention_out_bias", False), ffn_bias=("mlp_bias", False),
    ),
    "starcoder2": Family(
        keys={"activation": ("hidden_act",), "eps": ("norm_epsilon", "layer_norm_epsilon")},
        defaults=_defaults(1e4, 4096, 1e-5, sliding_window=None), tied=True, norm=_LAYER_NORM,
        bias=("use_bias", True), ffn_bias=("use_bias", True), gated=False, activation="gelu_pytorch_tanh",
        windows="all", ignored=("activation_function", "scale_attn_weights"),
    ),
    "llama4_text": Family(
        keys={"experts": ("num_local_experts",)},
        defaults=_defaults(5e5, 131072, 1e-5, head_dim=128, attention_chunk_size=8192)
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
