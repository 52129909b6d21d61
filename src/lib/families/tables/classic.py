"""Families of LayerNorm, ungated feed-forwards, learned positions or parallel parts: the block before and beside Llama's. Data, no code."""

from dataclasses import replace

from ..family import BIASES, LAYER_NORM, OLD, PARALLEL, Family, defaults

# fmt: off
COHERE = Family(
    defaults=defaults(5e5, 8192, 1e-5, n_kv_heads="n_heads", logit_scale=0.0625), tied=True,
    norm={"kind": "layer"}, place="parallel", bias=("attention_bias", False), layout="adjacent",
    qk_norm=("use_qk_norm", False, "layer_heads"), refuse={"logit_scale": (1.0, "a logits multiplier")},
    always=PARALLEL,
)
GPT2 = Family(
    keys={"d_ff": ("n_inner",), "activation": ("activation_function",), **OLD},
    defaults={"max_len": 1024, "eps": 1e-5, "d_ff": "4d", "n_kv_heads": "always n_heads"}, tied=True,
    norm=LAYER_NORM, bias=True, ffn_bias=True, gated=False, activation="gelu_new", positions="learned",
    refuse={
        "scale_attn_by_inverse_layer_idx": (False, "a softmax scale per layer"),
        "scale_attn_weights": (True, "unscaled attention"), "add_cross_attention": (False, None),
    },
)
PHI = Family(
    defaults=defaults(1e4, 2048, 1e-5, n_kv_heads="n_heads"), norm=LAYER_NORM, place="parallel",
    bias=True, ffn_bias=True, gated=False, activation="gelu_new", rotary=0.5, build="phi",
    qk_norm=("qk_layernorm", False, "layer"), always=PARALLEL,
)

CLASSIC = {
    "gpt2": GPT2,
    "gpt_bigcode": Family(
        keys={"d_ff": ("n_inner",), "activation": ("activation_function",), **OLD},
        defaults={"max_len": 1024, "eps": 1e-5, "d_ff": "4d", "multi_query": True}, tied=True,
        norm=LAYER_NORM, bias=True, ffn_bias=True, gated=False, activation="gelu_pytorch_tanh",
        positions="learned", build="gpt_bigcode",
        refuse={"scale_attn_weights": (True, "unscaled attention"), "add_cross_attention": (False, None)},
    ),
    "gpt_neox": Family(
        defaults=defaults(1e4, 2048, 1e-5, n_kv_heads="always n_heads"), norm=LAYER_NORM,
        place="parallel2", bias=("attention_bias", True), ffn_bias=True, gated=False, activation="gelu",
        rotary=0.25, build="gpt_neox",
    ),
    "falcon": Family(
        keys={
            "n_kv_heads": ("num_kv_heads", "n_head_kv"), "d_ff": ("ffn_hidden_size",),
            "activation": ("activation",), "eps": ("layer_norm_epsilon",),
        },
        defaults=defaults(1e4, 2048, 1e-5, d_ff="4d", multi_query=True, new_decoder_architecture=False),
        tied=True, norm=LAYER_NORM, place="parallel", bias=("bias", False), ffn_bias=("bias", False),
        gated=False, activation="gelu", build="falcon",
        refuse={
            "apply_residual_connection_post_layernorm": (False, "a residual taken after the norm"),
            "alibi": (False, "ALiBi positions"),
        },
    ),
    "phi": PHI,
    "phi-msft": replace(PHI, defaults=PHI.defaults | {"d_ff": "4d"}, rotary=None),
    "cohere": COHERE,
    "cohere2": Family(
        defaults=COHERE.defaults | {"base": 1e4, "sliding_window": 4096}, tied=True,
        norm={"kind": "layer"}, place="parallel", bias=("attention_bias", False), layout="adjacent",
        windows=4, nope="full", refuse={"logit_scale": (1.0, "a logits multiplier")}, always=PARALLEL,
    ),
    "nemotron": Family(
        defaults=defaults(1e4, 4096, 1e-5, n_kv_heads="n_heads"),
        norm=LAYER_NORM | {"unit_offset": True}, gated=False, activation="relu2", rotary=0.5,
        always=("LayerNorm with a gain of 1 + weight",), **BIASES,
    ),
    "starcoder2": Family(
        keys={"activation": ("hidden_act",), "eps": ("norm_epsilon", "layer_norm_epsilon")},
        defaults=defaults(1e4, 4096, 1e-5, sliding_window=None), tied=True, norm=LAYER_NORM,
        bias=("use_bias", True), ffn_bias=("use_bias", True), gated=False, activation="gelu_pytorch_tanh",
        windows="all", ignored=("activation_function", "scale_attn_weights"),
    ),
    "olmo": Family(
        defaults={"base": 1e4, "max_len": 2048, "n_kv_heads": "n_heads"},
        norm={"kind": "layer", "gain": False, "eps": 1e-5}, bias=("attention_bias", False),
        refuse={"clip_qkv": (None, "clipping of q, k and v")},
    ),
}
