"""What one row of the tables can say: the fields of a family, and what several rows share."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """What the block does not run, counted beside it. `count` is a sum of products of sizes: "d h dh + h".

    The sizes: d, V, h, n_kv, dh, dv, f (dense width), m (expert width), experts; else a whole number or a field of the file.
    on: "all" layers, those with "attention", "sparse" or "dense" ones, one kind of layer, "model" (once, outside the layers)
    or "head" (the same, where there is a language head).
    key: (field, class default): only where that flag is true. state, kv: numbers kept per sequence, and per token.
    """

    name: str
    count: str = "0"
    on: str = "all"
    key: tuple | None = None
    state: str = "0"
    kv: str = "0"


@dataclass(frozen=True)
class Family:
    """One row.

    keys         spellings that replace the common ones        defaults   class defaults, by canonical name or key
    norm         rms | layer, unit_offset, gain_last, gain, bias           place   where norms stand (config.Layer)
                 or (key, class default, where it is true, where it is false)
    bias, out_bias, ffn_bias   a constant, or (key, class default)
    qk_norm      a constant, or (key, class default, kind); kinds: those of config.GQA, and beside.QK_PARTS (counted, not run)
    activation   class default; fixed: the class ignores what the file says
    windows      None no layer; "all" every layer; n: all but every n-th; "late" from max_window_layers on; "early" every second one before it; "nope" the NoPE layers;
                 "listed": layer_types must say it
    switched     the window counts only if use_sliding_window is true
    kinds        words of layer_types -> ours; a kind in `idle` has no attention (a Part holds its state)
    nope         None; "list" no_rope_layers (1 means RoPE); "full" every full-attention layer; "hybrid" the same if there are windows
    rotary       share of the head that turns, where no field says it (None: a field must); layout: the pairs; positions: rope | none | a kind of beside.POSITIONS
    partial      the class turns a share of the head if a field says so (implied by a rotary other than 1)
    local_base   a second base for window layers; scaled_full_only: rope_scaling is for full layers
    scale        key of the softmax scale: "query_pre_attn_scalar" (to the power -1/2) or "attention_multiplier"
    moe          None or Experts; attention: "gqa" | "mla"; build: a function of layers or hybrids for a special layer list
    embed        None, "sqrt" (sqrt(d)) or a key
    parts        what stands beside attention and feed-forward (Part)
    v_dim        the key of a head width of V that differs; stretched: the class stretches RoPE unless the file says otherwise
    only         key -> values that are read; any other is refused, since it changes a number
    refuse       key -> (neutral value, what the block does not run; None: not read at all); always: what it never runs; ignored: known, no number
    """

    keys: dict = field(default_factory=dict)
    defaults: dict = field(default_factory=dict)
    tied: bool = False
    norm: dict = field(default_factory=lambda: {"kind": "rms"})
    place: object = "pre"
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
    kinds: dict = field(default_factory=dict)
    idle: tuple = ()
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
    parts: tuple = ()
    v_dim: str | None = None
    stretched: bool = False
    only: dict = field(default_factory=dict)
    refuse: dict = field(default_factory=dict)
    always: tuple = ()
    ignored: tuple = ()


@dataclass(frozen=True)
class Experts:
    """How a family places and sizes its experts. width, shared: canonical names or keys; shared_count times the width.

    where: "all", "leading" (first_k_dense_replace dense layers first), "listed" (mlp_layer_types must say it) or "step" (every
    decoder_sparse_step-th, mlp_only_layers not), "range" (moe_layer_start_index to moe_layer_end_index, each moe_layer_interval-th).
    shared_gate: one more vector of d for the shared expert.
    """

    width: str = "moe_intermediate_size"
    where: str = "all"
    shared: str | None = None
    shared_count: str | None = None
    shared_gate: bool = False
    gated: bool = True


def mamba(inner, rank, state, kernel, bias, conv_bias, on="linear_attention", name="Mamba"):
    """The Parts of a Mamba layer (MambaMixer), and the norm before it, from the names of its fields."""
    return (
        Part(name, f"3 d {inner} + {inner} {kernel} + 2 {inner} {rank} + 3 {inner} {state} + 2 {inner} + d", on,
             state=f"{inner} {state} + {inner} {kernel}"),
        Part(f"biases of {name}", f"2 {inner} + d", on, bias), Part("a bias of the convolution", inner, on, conv_bias),
    )  # fmt: skip


def mamba2(
    heads,
    head_dim,
    groups,
    state,
    kernel,
    bias,
    conv_bias,
    on="linear_attention",
    gain=None,
    norm="d",
    out_bias=None,
):
    """The Parts of a Mamba-2 layer (Mamba2Mixer), and the norm before it, from the names of its fields; gain: the flag of its own norm."""
    inner, conv = f"{heads} {head_dim}", f"{heads} {head_dim} + 2 {groups} {state}"
    return (
        Part("Mamba-2", f"3 d {inner} + 2 d {groups} {state} + d {heads} + {inner} {kernel} + 2 {groups} {state} {kernel} + 3 {heads} + {norm}",
             on, state=f"{inner} {state} + {inner} {kernel} + 2 {groups} {state} {kernel}"),
        Part("a norm inside Mamba-2", inner, on, gain), Part("biases of Mamba-2", f"{inner} + {conv} + {heads}", on, bias),
        Part("a bias of Mamba-2's output", "d", on, out_bias or bias), Part("a bias of the convolution", conv, on, conv_bias),
    )  # fmt: skip


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
SINKS = Part("attention sinks", "h", "attention")
ROUTER_BIAS = Part("a bias of the router", "experts", "sparse")
_K, _V = "linear_num_key_heads linear_key_head_dim", "linear_num_value_heads linear_value_head_dim"
DELTA = Part(  # Qwen3NextGatedDeltaNet and the norm before it
    "gated DeltaNet", f"2 d {_K} + 3 d {_V} + 2 d linear_num_value_heads + 2 {_K} linear_conv_kernel_dim + {_V} linear_conv_kernel_dim"
    " + 2 linear_num_value_heads + linear_value_head_dim + d", "linear_attention",
    state=f"{_V} linear_key_head_dim + 2 {_K} linear_conv_kernel_dim + {_V} linear_conv_kernel_dim",
)
_P = "linear_num_heads linear_head_dim"
KDA_STATE = f"{_P} linear_head_dim + 3 {_P} linear_conv_kernel_dim"
KDA = f"4 d {_P} + d linear_num_heads + 3 {_P} linear_conv_kernel_dim + linear_num_heads + {_P} + linear_head_dim + d"
OLD = {"max_len": ("n_positions", "n_ctx"), "eps": ("layer_norm_epsilon",)}
MROPE = {"use_mrope": (False, "RoPE over several axes")}
