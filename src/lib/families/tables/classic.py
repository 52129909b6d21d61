"""Families of LayerNorm, ungated feed-forwards, learned positions or parallel parts: the block before and beside Llama's. Data, no code."""

from dataclasses import replace

from ..family import BIASES, LAYER_NORM, OLD, PARALLEL, Family, Part, defaults

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
GPTJ = Family(  # GPTJBlock, CodeGenBlock: one norm, biases in the feed-forward and the head only
    keys=GPT2.keys, defaults={"max_len": 2048, "eps": 1e-5, "d_ff": "4d", "n_kv_heads": "always n_heads", "base": 1e4},
    norm=LAYER_NORM, place="parallel", ffn_bias=True, gated=False, activation="gelu_new", rotary=None, layout="adjacent",
    parts=(Part("a bias of the head", "V", "head"),), always=PARALLEL,
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
    "biogpt": Family(  # BioGptLearnedPositionalEmbedding: two rows more than positions
        defaults={"max_len": 1024, "eps": 1e-12, "n_kv_heads": "always n_heads", "scale_embedding": True}, tied=True,
        norm=LAYER_NORM, bias=True, ffn_bias=True, gated=False, activation="gelu", positions="learned",
        parts=(Part("two more learned positions", "2 d", "model"),), refuse={"scale_embedding": (False, "a scaled embedding")},
        ignored=("layerdrop",),
    ),
    "bloom": Family(  # BloomModel.word_embeddings_layernorm, build_alibi_tensor
        defaults={"max_len": 2048, "eps": 1e-5, "d_ff": "4d", "n_kv_heads": "always n_heads"}, tied=True, norm=LAYER_NORM,
        keys={"d": ("hidden_size", "n_embed"), "max_len": ("seq_length",)}, bias=True, ffn_bias=True, gated=False,
        activation="gelu_pytorch_tanh", fixed=True, positions="alibi",
        parts=(Part("a norm of the embedding", "2 d", "model"),),
        refuse={"apply_residual_connection_post_layernorm": (False, "a residual taken after the norm")},
        ignored=("slow_but_exact",),
    ),
    "codegen": GPTJ,
    "ctrl": Family(  # CTRLModel: sinusoids; CTRLLMHeadModel's head carries a bias
        keys={"d_ff": ("dff",), **OLD}, defaults={"max_len": 256, "eps": 1e-6, "n_kv_heads": "always n_heads"}, tied=True,
        norm=LAYER_NORM, bias=True, ffn_bias=True, gated=False, activation="relu", fixed=True,
        positions="sinusoidal", embed="sqrt", parts=(Part("a bias of the head", "V", "head"),),
    ),
    "gptj": GPTJ,
    "gpt_neo": Family(  # GPTNeoSelfAttention: no scale, window_size on every other layer
        keys={"n_layers": ("num_layers",), "n_heads": ("num_heads",), **GPT2.keys, "d_ff": ("intermediate_size",),
              "max_len": ("max_position_embeddings",)},
        defaults={"max_len": 2048, "eps": 1e-5, "d_ff": "4d", "n_kv_heads": "always n_heads", "window_size": 256}, tied=True,
        norm=LAYER_NORM, out_bias=True, ffn_bias=True, gated=False, activation="gelu_new", positions="learned",
        build="gpt_neo",
    ),
    "gpt_neox_japanese": Family(  # GPTNeoXJapaneseLayer: only the last layer's attention has a bias
        keys={"multiple": ("intermediate_multiple_size",)},
        defaults=defaults(1e4, 2048, 1e-5, n_kv_heads="always n_heads", multiple=4), tied=True, norm=LAYER_NORM,
        gated=False, activation="gelu", partial=True, build="gpt_neox_japanese",
    ),
    "jais2": Family(  # Jais2Config
        defaults=defaults(1e4, 8192, 1e-5, n_kv_heads="n_heads"), norm=LAYER_NORM, bias=("attention_bias", True),
        ffn_bias=("mlp_bias", True), gated=False, activation="relu2",
    ),
    "mpt": Family(  # MptConfig, MptAttentionConfig; MptForCausalLM ties its head
        keys={"d": ("d_model",), "n_heads": ("n_heads",), "n_layers": ("n_layers",), "max_len": ("max_seq_len",),
              "eps": ("layer_norm_epsilon",)},
        defaults={"max_len": 2048, "eps": 1e-5, "n_kv_heads": "always n_heads", "expansion_ratio": 4}, tied=True,
        norm={"kind": "layer"}, gated=False, activation="gelu", fixed=True, positions="alibi", build="mpt",
        only={"no_bias": (True,), "logit_scale": (None,), "embedding_fraction": (1, 1.0)},
        ignored=("init_device", "learned_pos_emb", "norm_type"),
    ),
    "openai-gpt": Family(  # Block of modeling_openai: norms after each residual
        keys={"activation": ("afn",), **OLD}, tied=True, norm=LAYER_NORM, place="post", bias=True, ffn_bias=True,
        defaults={"max_len": 512, "eps": 1e-5, "d_ff": "4d", "n_kv_heads": "always n_heads"}, gated=False,
        activation="gelu_new", positions="learned", build="openai_gpt", always=("a norm after each residual",),
    ),
    "opt": Family(  # OPTLearnedPositionalEmbedding: two rows more than positions
        keys={"d_ff": ("ffn_dim",)}, defaults={"max_len": 2048, "n_kv_heads": "always n_heads"}, tied=True,
        norm=LAYER_NORM | {"eps": 1e-5}, bias=("enable_bias", True), ffn_bias=("enable_bias", True), gated=False,
        activation="relu", positions="learned", parts=(Part("two more learned positions", "2 d", "model"),),
        only={"do_layer_norm_before": (True,), "_remove_final_layer_norm": (False,), "layer_norm_elementwise_affine": (True,)},
        build="opt", ignored=("layerdrop", "init_std"),
    ),
    "persimmon": Family(  # PersimmonAttention.q_layernorm
        defaults=defaults(1e4, 16384, 1e-5, n_kv_heads="always n_heads"), norm=LAYER_NORM, bias=True, ffn_bias=True,
        gated=False, activation="relu2", rotary=0.5, qk_norm=("qk_layernorm", True, "layer"),
    ),
    "stablelm": Family(  # StableLmLayerNormPerHead has one norm per head
        defaults=defaults(1e4, 4096, 1e-5, n_kv_heads=32), norm=LAYER_NORM, bias=("use_qkv_bias", False), out_bias=False,
        rotary=0.25, qk_norm=("qk_layernorm", False, "layer_heads"), build="stablelm",
    ),
    "xglm": Family(  # XGLMSinusoidalPositionalEmbedding
        keys={"n_layers": ("num_layers",), "n_heads": ("attention_heads",), "d_ff": ("ffn_dim",)},
        defaults={"max_len": 2048, "n_kv_heads": "always n_heads", "scale_embedding": True}, tied=True,
        norm=LAYER_NORM | {"eps": 1e-5}, bias=True, ffn_bias=True, gated=False, activation="gelu",
        positions="sinusoidal", refuse={"scale_embedding": (False, "a scaled embedding")},
        only={"add_cross_attention": (False,)}, ignored=("layerdrop", "init_std"),
    ),
}
