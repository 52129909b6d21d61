"""Layer lists of hybrids: some layers hold a fixed state instead of a cache, or nothing at all. One function per family.

Each takes the Reader of a file and gives its layers. Sources: the modelling code of each family (the class named there).
"""

from dataclasses import replace
from functools import partial

from ..config import Counted, Dense, Layer, MoE
from .config_file import show
from .standard import standard_layers


def qwen3_next(reader):
    """Three gated-DeltaNet layers for each gated attention layer (Qwen3NextGatedDeltaNet, Qwen3NextAttention)."""
    f, d = reader.f, reader.d
    n_layers = f.layers()
    every = f.size("full_attention_interval", 4)
    kinds = f.list("layer_types", n_layers, ("linear_attention", "full_attention"))
    if kinds is None:
        kinds = ["linear_attention" if (i + 1) % every else "full_attention" for i in range(n_layers)]
    else:
        f.defaulted.pop("full_attention_interval", None)
    keys = f.size("linear_num_key_heads") * f.size("linear_key_head_dim")
    v_heads, v_dim = f.size("linear_num_value_heads"), f.size("linear_value_head_dim")
    values, kernel = v_heads * v_dim, f.size("linear_conv_kernel_dim")
    conv = 2 * keys + values
    weights = d * (2 * keys + 2 * values + 2 * v_heads) + conv * kernel + 2 * v_heads + v_dim + values * d
    state = v_heads * f.size("linear_key_head_dim") * v_dim + conv * kernel
    delta = Counted("gated DeltaNet", weights + d, state_elements=state)
    h, n_kv, head_dim = reader.heads()
    attention = reader.gqa(h, n_kv, head_dim, rope=reader.rope(head_dim))
    gate = Counted("an output gate of attention", (d + attention.bias) * h * head_dim)
    sparse = reader.sparse_layers(n_layers)

    def extras(i):
        return (delta if kinds[i] == "linear_attention" else gate, *reader.extras(sparse[i]))

    reader.refuse("gated DeltaNet")
    return standard_layers(
        reader,
        kinds=kinds,
        attention=lambda i, kind: attention if kind == "full_attention" else None,
        extras=extras,
    )


_MINIMAX = {"full_attention": "full_attn", "linear_attention": "linear_attn", "mlp": "mlp"}


def minimax_m1(reader):
    """attn_type_list: 0 = lightning attention, a fixed state of head_dim x head_dim per head; 1 = softmax attention (MiniMaxLightningAttention)."""
    f, d = reader.f, reader.d
    n_layers = f.layers()
    types = f.list("attn_type_list", n_layers, (0, 1))
    kinds = f.list("layer_types", n_layers, ("full_attention", "linear_attention"))
    if kinds and types is None:
        types = [int(kind == "full_attention") for kind in kinds]
    if types is None:
        raise ValueError(
            "attn_type_list is missing: a minimax_m1 says there which layers hold a state and which a cache"
        )
    h, n_kv, head_dim = reader.heads()
    if f.size("shared_intermediate_size", 0, lowest=0):
        raise ValueError("shared_intermediate_size is not 0: a shared expert of minimax_m1 is not read here")
    width = h * head_dim
    lightning = Counted("lightning attention", 5 * d * width + width + d, state_elements=h * head_dim**2)
    attention = reader.gqa(h, n_kv, head_dim, rope=reader.rope(head_dim))
    for part in ("full_attention", "linear_attention", "mlp"):
        for end in ("alpha", "beta"):
            f.number(f"layernorm_{part}_{end}", None)
            f.number(f"{_MINIMAX[part]}_{end}_factor", None)
    f.flag("postnorm", False)
    for name in ("lightning attention", "a residual taken after the norm, and scaled"):
        reader.refuse(name)
    kinds = ["full_attention" if entry == 1 else "linear_attention" for entry in types]
    return standard_layers(
        reader,
        kinds=kinds,
        attention=lambda i, kind: attention if kind == "full_attention" else None,
        extras=lambda i: () if kinds[i] == "full_attention" else (lightning,),
    )


_BLOCKS = {
    "M": "mamba", "*": "attention", "-": "mlp", "E": "moe",
    "linear_attention": "mamba", "mamba": "mamba", "full_attention": "attention", "attention": "attention",
    "mlp": "mlp", "moe": "moe",
}  # fmt: skip


def nemotron_h(reader):
    """One sub-layer per block: Mamba-2, attention without RoPE, experts or feed-forward (NemotronHBlock)."""
    f = reader.f
    pattern, listed = (
        f.text("hybrid_override_pattern", None),
        f.list("layers_block_type", allowed=tuple(_BLOCKS)),
    )
    if pattern is None and listed is None:
        raise ValueError("hybrid_override_pattern and layers_block_type are missing: which block is what?")
    blocks = [_BLOCKS.get(entry) for entry in (pattern if listed is None else listed)]
    if None in blocks:
        raise ValueError(f"hybrid_override_pattern = {show(pattern)}: known letters are M, *, - and E")
    if None not in (pattern, listed) and [_BLOCKS.get(entry) for entry in pattern] != blocks:
        raise ValueError("hybrid_override_pattern and layers_block_type disagree")
    if f.layers(default=len(blocks)) != len(blocks):
        raise ValueError(f"num_hidden_layers = {f.layers()}, and the pattern has {len(blocks)} blocks")
    f.defaulted.pop("num_hidden_layers", None)
    if f.find("tied")[1] is True:
        raise ValueError(
            "tie_word_embeddings = true: NemotronHForCausalLM has a head of its own whatever this says"
        )
    parts = {name: make(reader) for name, make in _HYBRID.items() if name in blocks}
    for name, keys in _HYBRID_FIELDS.items():
        f.touch(*keys) if name not in blocks else None
    reader.refuse("one sub-layer per block")
    return [parts[block] for block in blocks]


def _mamba(reader):
    f, d = reader.f, reader.d
    heads, groups, state = f.size("mamba_num_heads"), f.size("n_groups"), f.size("ssm_state_size")
    inner, kernel = heads * f.size("mamba_head_dim"), f.size("conv_kernel")
    conv = inner + 2 * groups * state
    bias = f.flag("use_bias", False)
    if f.flag("mamba_proj_bias", False):
        f.warn("mamba_proj_bias = true is not used: the class takes use_bias for these projections")
    projections = d * (inner + conv + heads) + inner * d + bias * (inner + conv + heads + d)
    weights = projections + conv * (kernel + f.flag("use_conv_bias", True)) + 3 * heads + inner
    f.touch("time_step_min", "time_step_max", "time_step_floor", "time_step_limit", "chunk_size", "expand")
    f.touch("use_mamba_kernels", "mamba_hidden_act", "mamba_ssm_cache_dtype", "mamba_dt_rank")
    reader.refuse("Mamba-2")
    mixer = Counted("Mamba-2", weights + d, state_elements=inner * state + conv * kernel)
    return Layer(None, None, counted=(mixer,))


def _hybrid_moe(reader):
    f = reader.f
    width = f.size("moe_intermediate_size")
    shared = f.size("moe_shared_expert_intermediate_size")
    if f.size("n_shared_experts", 1, lowest=0) not in (0, 1):
        raise ValueError(
            f"n_shared_experts = {f.size('n_shared_experts')}: one of moe_shared_expert_intermediate_size is known"
        )
    reader.activation()
    latent, bias = f.size("moe_latent_size", None), f.flag("mlp_bias", False)
    parts = []
    if latent:
        parts.append(Counted("projections into the experts' latent space and back", 2 * reader.d * latent))
        reader.refuse("experts in a latent space")
    if bias:
        parts.append(
            Counted("biases beside the experts", shared + reader.d + ((latent + reader.d) if latent else 0))
        )
    moe = MoE(f.size("experts"), f.size("active"), width, shared, gated=False, d_in=latent)
    return Layer(None, moe, counted=tuple(parts))


def _hybrid_attention(reader):
    if reader.f.flag("attention_bias", False):
        reader.f.warn("attention_bias = true is not used: the attention of the class has no biases")
    h, n_kv, head_dim = reader.heads()
    return Layer(reader.gqa(h, n_kv, head_dim, rope=None), None)


_HYBRID = {
    "mamba": _mamba,
    "attention": _hybrid_attention,
    "mlp": lambda reader: Layer(None, reader.dense()),
    "moe": _hybrid_moe,
}
_HYBRID_FIELDS = {
    "mamba": (
        "use_bias",
        "use_conv_bias",
        "conv_kernel",
        "n_groups",
        "ssm_state_size",
        "mamba_num_heads",
        "mamba_head_dim",
    ),
    "attention": ("n_kv_heads", "head_dim", "attention_bias"),
    "mlp": ("d_ff", "mlp_bias"),
    "moe": (
        "experts",
        "active",
        "moe_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "n_shared_experts",
        "moe_latent_size",
    ),
}


# ---- states counted by the row's Parts


def only_states(reader):
    """Every layer holds a state and nothing else (MambaBlock)."""
    f = reader.f
    f.defaulted.pop("max_position_embeddings", None)  # there is no such limit
    reader.refuse("a layer without attention")
    kinds = ["linear_attention"] * f.layers()
    f.touch("head_dim", "n_kv_heads")
    if not f.has("intermediate_size") and f.has("expand"):
        f.raw = f.raw | {"intermediate_size": f.size("expand") * reader.d}
    return standard_layers(reader, kinds=kinds, attention=lambda i, kind: None, ffn=lambda i: None)


def bamba(reader):
    """attn_layer_indices: the layers with attention; the others are Mamba-2 (BambaConfig.layers_block_type)."""
    n_layers = reader.f.layers()
    full = reader.f.list("attn_layer_indices", allowed=range(n_layers)) or []
    kinds = ["full_attention" if i in full else "linear_attention" for i in range(n_layers)]
    return standard_layers(reader, kinds=kinds)


def granitemoehybrid(reader):
    """Without experts the shared feed-forward alone remains; position_embedding_type other than rope turns nothing."""
    f = reader.f
    turns = f.text("position_embedding_type", None) == "rope"
    sized = f.find("mamba_d_head")[1]
    if sized in (None, "auto"):
        f.raw = f.raw | {"mamba_d_head": f.size("mamba_expand") * reader.d // f.size("mamba_n_heads")}
    kinds = reader.kinds(f.layers())
    h, n_kv, head_dim = reader.heads()
    attention = reader.gqa(h, n_kv, head_dim, rope=reader.rope(head_dim) if turns else None)
    f.touch("base", "rope_parameters", "rope_scaling")
    moe = reader.sparse() if f.size("experts", lowest=0) else reader.dense(f.size("shared_intermediate_size"))
    reader.no_experts()
    return standard_layers(
        reader,
        kinds=kinds,
        attention=lambda i, kind: attention if kind == "full_attention" else None,
        ffn=lambda i: moe,
    )


def jamba(reader):
    """Every attn_layer_period-th layer has attention, every expert_layer_period-th experts (JambaConfig)."""
    f = reader.f
    n_layers = f.layers()
    every, first = f.size("attn_layer_period"), f.size("attn_layer_offset", lowest=0)
    kinds = ["full_attention" if i % every == first else "linear_attention" for i in range(n_layers)]
    every, first = f.size("expert_layer_period"), f.size("expert_layer_offset", lowest=0)
    sparse = [f.size("experts") > 1 and i % every == first for i in range(n_layers)]
    moe, dense = reader.sparse() if any(sparse) else None, reader.dense()
    reader.no_experts()
    return standard_layers(reader, kinds=kinds, ffn=lambda i: moe if sparse[i] else dense)


def lfm2(reader):
    """d_ff is two thirds of intermediate_size, rounded up, where block_auto_adjust_ff_dim (Lfm2MLP)."""
    f = reader.f
    width = f.size("d_ff")
    if f.flag("block_auto_adjust_ff_dim") and not reader.family.moe:
        width = int(2 * width / 3)
        if not f.is_null("block_ffn_dim_multiplier"):
            width = int(f.number("block_ffn_dim_multiplier") * width)
            step = f.size("block_multiple_of")
            width = step * -(-width // step)
    f.touch("block_ffn_dim_multiplier", "block_multiple_of")
    sparse = reader.sparse_layers(f.layers())
    dense, moe = reader.dense(width), reader.sparse() if any(sparse) else None
    return standard_layers(reader, ffn=lambda i: moe if sparse[i] else dense)


def olmo_hybrid(reader):
    """Layers with a state are normed before their parts, layers with attention after them."""
    reader.refuse("norms before in some layers and after in others")
    return [replace(x, norms="pre" if x.attention is None else "post") for x in standard_layers(reader)]


# ---- blocks listed one by one


def nemotron_nas(reader):
    """block_configs: attention present, absent or linear; a width by ffn_mult (modeling_decilm.py of the repository)."""
    f = reader.f
    n_layers = f.layers()
    blocks = f.list("block_configs", n_layers)
    if blocks is None:
        raise ValueError("block_configs is missing: a nemotron-nas says everything about its layers there")
    h = f.size("n_heads")
    head_dim = reader.head_dim(h)
    f.touch("n_kv_heads", "d_ff")
    rope = reader.rope(head_dim)
    made = {}
    for i, block in enumerate(blocks):
        key = show(block) if len(show(block)) < 60 else repr(block)
        if key not in made:
            made[key] = _nas_layer(reader, f"block_configs[{i}]", block, h, head_dim, rope)
        yield made[key]


def _nas_layer(reader, where, block, h, head_dim, rope):
    parts = {}
    for name in ("attention", "ffn"):
        entry = block.get(name) if isinstance(block, dict) else None
        if not isinstance(entry, dict):
            raise ValueError(f"{where}.{name} = {show(entry)}: expected an object of fields, {{...}}")
        parts[name] = reader.f.child(entry, f"{where}.{name}"), partial("{}.{}".format, f"{where}.{name}")
    d, extras = reader.d, []
    part, key = parts["attention"]
    attention = None
    for name in ("num_sink_tokens", "sparsify", "window_length"):
        if part.find(key(name))[1] is not None:
            raise ValueError(f"{key(name)} = {show(part.find(key(name))[1])}: not read here")
    if part.flag(key("replace_with_linear"), False):
        extras.append(Counted("a linear layer in place of attention, with its norm", d * d + d))
    elif not part.flag(key("no_op"), False):
        group = part.size(key("n_heads_in_group"))
        if h % group:
            raise ValueError(f"{key('n_heads_in_group')} = {group}: {h} heads do not divide into such groups")
        attention = reader.gqa(h, h // group, head_dim, rope=rope)
    part, key = parts["ffn"]
    ffn = None
    if part.find(key("sparsify"))[1] is not None:
        raise ValueError(f"{key('sparsify')}: not read here")
    if part.flag(key("replace_with_linear"), False):
        extras.append(Counted("a linear layer in place of the feed-forward, with its norm", d * d + d))
    elif not part.flag(key("no_op"), False):
        width = int(2 * part.number(key("ffn_mult"), highest=1000) * d / 3)
        width = Dense(256 * -(-width // 256)).d_ff
        ffn = reader.dense(width)
    if attention is None:
        reader.refuse("a layer without attention")
    return Layer(attention, ffn, counted=tuple(extras))
