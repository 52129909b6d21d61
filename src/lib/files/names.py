"""What other people call the tensors: where each parameter of our model lies in a Hugging Face checkpoint."""

import re

from lib.config import MLA

# Our module -> its Hugging Face name. A tuple (name, part, order) is a share of a fused tensor.
OUTSIDE = {"emb": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
LAYER = {
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
    "attn.wo": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "ffn.w_gate": "mlp.gate_proj",
    "ffn.w_up": "mlp.up_proj",
    "ffn.w_down": "mlp.down_proj",
}
LATENT = {
    "attn.wq": "self_attn.q_proj",
    "attn.wq_a": "self_attn.q_a_proj",
    "attn.q_norm": "self_attn.q_a_layernorm",
    "attn.wq_b": "self_attn.q_b_proj",
    "attn.wkv_a": "self_attn.kv_a_proj_with_mqa",
    "attn.kv_norm": "self_attn.kv_a_layernorm",
    "attn.wkv_b": "self_attn.kv_b_proj",
}
# HF's post_attention_layernorm is the norm BEFORE the feed-forward in a pre-norm model and the one AFTER attention in the others.
NORMS = {
    "pre": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "post": {"attn_post_norm": "post_attention_layernorm", "ffn_post_norm": "post_feedforward_layernorm"},
    "sandwich": {
        "attn_norm": "input_layernorm",
        "attn_post_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "ffn_post_norm": "post_feedforward_layernorm",
    },
}
_FUSED = {
    "attn.wq": ("self_attn.qkv_proj", 0, "flat"),
    "attn.wk": ("self_attn.qkv_proj", 1, "flat"),
    "attn.wv": ("self_attn.qkv_proj", 2, "flat"),
    "ffn.w_gate": ("mlp.gate_up_proj", 0, "flat"),
    "ffn.w_up": ("mlp.gate_up_proj", 1, "flat"),
}
# model_type -> what differs from the tables above
MODEL_TYPES = {
    **{name: {} for name in ("llama", "mistral", "qwen2", "qwen3", "smollm3", "ernie4_5")},
    **{name: {} for name in ("olmo2", "olmo3", "gemma", "gemma3_text", "deepseek_v2", "deepseek_v3")},
    "phi3": _FUSED,
    "starcoder2": {"ffn.w_up": "mlp.c_fc", "ffn.w_down": "mlp.c_proj"},
}


def hf_name(name, config):
    """Where a parameter of our model lies in a checkpoint: (tensor name, part, order), part None = the whole tensor."""
    stem, _, suffix = name.rpartition(".")
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)", stem)
    if not block:
        return f"{OUTSIDE[stem]}.{suffix}", None, None
    layer = config.layers[int(block[1])]
    table = (
        LAYER
        | (LATENT if isinstance(layer.attention, MLA) else {})
        | NORMS[layer.norms]
        | MODEL_TYPES[config.model_type]
    )
    theirs = table[block[2]]
    theirs, part, order = theirs if isinstance(theirs, tuple) else (theirs, None, None)
    return f"model.layers.{block[1]}.{theirs}.{suffix}", part, order
