"""What one row of the tables can say: the fields of a family, and what several rows share."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """One row.

    keys         spellings that replace the common ones        defaults   class defaults, by canonical name or key
    norm         rms | layer, unit_offset, gain_last, gain, bias           place   where norms stand (config.Layer)
    bias, out_bias, ffn_bias   a constant, or (key, class default)
    qk_norm      a constant, or (key, class default, kind); kinds: those of config.GQA, and beside.QK_PARTS (counted, not run)
    activation   class default; fixed: the class ignores what the file says
    windows      None no layer; "all" every layer; n: all but every n-th; "late" from max_window_layers on; "early" every second one before it; "nope" the NoPE layers
    switched     the window counts only if use_sliding_window is true
    nope         None; "list" no_rope_layers (1 means RoPE); "full" every full-attention layer of a model with windows
    rotary       share of the head that turns, where no field says it (None: a field must); layout: the pairs; positions: rope | learned | alibi
    partial      the class turns a share of the head if a field says so (implied by a rotary other than 1)
    local_base   a second base for window layers; scaled_full_only: rope_scaling is for full layers
    scale        key of the softmax scale: "query_pre_attn_scalar" (to the power -1/2) or "attention_multiplier"
    moe          None or Experts; attention: "gqa" | "mla"; build: a function of layers or hybrids for a special layer list
    embed        None, "sqrt" (sqrt(d)) or a key
    refuse       key -> (neutral value, what the block does not run; None: not read at all); always: what it never runs; ignored: known, no number
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


def defaults(base, max_len, eps=1e-6, **more):
    return {"base": base, "max_len": max_len, "eps": eps} | more


# fmt: off
BIASES = {"bias": ("attention_bias", False), "ffn_bias": ("mlp_bias", False)}
GAIN_LAST = {"kind": "rms", "gain_last": True}
GEMMA = GAIN_LAST | {"unit_offset": True}
LAYER_NORM = {"kind": "layer", "bias": True}
PARALLEL = ("parallel attention and feed-forward",)
MULTIPLIERS = {
    "residual_multiplier": (1.0, "a residual multiplier"),
    "logits_scaling": (1.0, "a logits multiplier"),
}
SOFTCAPS = {
    "attn_logit_softcapping": (None, "an attention softcap"),
    "final_logit_softcapping": (None, "a logit softcap"),
}
DEEPSEEK_MOE = Experts(where="leading", shared_count="n_shared_experts")
QWEN_MOE_FIELDS = {"experts": ("num_experts", "num_local_experts")}
ROUTED = {"experts": ("n_routed_experts", "num_local_experts")}
OLD = {"max_len": ("n_positions", "n_ctx"), "eps": ("layer_norm_epsilon",)}
MROPE = {"use_mrope": (False, "RoPE over several axes")}
