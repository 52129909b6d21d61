"""Layer lists that must be computed: one more flag than the common rules know, or two kinds of attention.

Each takes the Reader of a file and gives its layers. Sources: the modelling code of each family (the class named there).
"""

from dataclasses import replace
from functools import partial

from ..config import Counted, Layer
from .config_file import show
from .standard import standard_layers

INDEXER = "a sparse-attention indexer"

# ---- one more flag or one hidden part than the common rules know


def chatglm(reader):
    """The base is 10000 * rope_ratio; groups count only with multi_query_attention (modeling_chatglm.py of the repository)."""
    f = reader.f
    base = 10000.0 * f.number("rope_ratio")
    if not f.flag("rmsnorm", True) or not f.flag("post_layer_norm", True):
        raise ValueError(
            "rmsnorm or post_layer_norm is false: only the chatglm with RMSNorm and a final norm is known here"
        )
    f.raw = f.raw | {"rope_theta": base}
    h = f.size("n_heads")
    grouped = f.flag("multi_query_attention", False)
    n_kv = reader.kv_heads(h) if grouped else h
    f.touch("n_kv_heads")
    head_dim = reader.head_dim(h)
    attention = reader.gqa(h, n_kv, head_dim, rope=reader.rope(head_dim))
    return standard_layers(reader, attention=lambda i, kind: attention)


def deepseek_v32(reader):
    """An indexer in every layer picks the keys; it caches one key of its own per token (DeepseekV32Indexer)."""
    f = reader.f
    heads, width, rank = f.size("index_n_heads"), f.size("index_head_dim"), f.size("q_lora_rank")
    weights = rank * heads * width + reader.d * (width + heads) + 2 * width
    indexer = Counted(INDEXER, weights, kv_elements=width)
    picked = f.size("index_topk")
    f.warn(
        f"each query reads the {picked:,} keys that the indexer picks: time and FLOPs below count the whole cache"
    )
    return standard_layers(reader, extras=lambda i: (indexer,))


def gpt_oss(reader):
    """A sink per query head, biases on router and experts (GptOssAttention, GptOssExperts)."""
    if not {"rope_scaling", "rope_parameters"} & set(reader.f.raw):
        raise ValueError(
            "rope_scaling is missing: the class of gpt_oss stretches RoPE with YaRN unless the file says otherwise"
        )
    h, moe = reader.f.size("n_heads"), reader.sparse()
    one = 2 * moe.d_ff + reader.d
    sinks = Counted("attention sinks", h)
    biases = Counted("biases of experts and router", moe.experts * (one + 1), moe.active * one + moe.experts)
    return standard_layers(reader, extras=lambda i: (sinks, biases))


def granite_swa(reader):
    """layer_rope_theta: a base per layer; 0 or null turns none (GraniteSWAModel)."""
    f = reader.f
    n_layers = f.layers()
    bases = f.list("layer_rope_theta", n_layers)
    layers = list(standard_layers(reader))
    if bases is None:
        return layers
    for i, base in enumerate(bases):
        part = f.child({"base": base}, f"layer_rope_theta[{i}]")
        base = None if base == 0 else part.number(f"layer_rope_theta[{i}].base", None)
        x = layers[i].attention
        rope = None if base is None else replace(x.rope, base=float(base))
        layers[i] = replace(layers[i], attention=replace(x, rope=rope))
    return layers


# ---- two kinds of attention in one model


def llama4(reader):
    """Chunks where RoPE turns, the whole past where it does not; dense layers have a width of their own (Llama4TextConfig)."""
    f = reader.f
    n_layers = f.layers()
    turns = reader.turns(n_layers)
    chunk = f.size("attention_chunk_size") if not f.is_null("attention_chunk_size") else None
    class_kinds = ["chunked_attention" if turn and chunk else "full_attention" for turn in turns]
    kinds = f.list("layer_types", n_layers, ("chunked_attention", "full_attention")) or class_kinds
    if "chunked_attention" in kinds:
        if chunk is None:
            raise ValueError("layer_types names chunked_attention, and attention_chunk_size is null")
        reader.refuse("chunked attention")
    step = f.size("interleave_moe_layer_step", 1)
    listed = f.list("moe_layers", allowed=range(n_layers))
    sparse = set(range(step - 1, n_layers, step) if listed is None else listed)
    h, n_kv, head_dim = reader.heads()
    rope = reader.rope(head_dim)
    moe = reader.sparse() if sparse else None
    if moe:
        moe = type(moe)(
            moe.experts, moe.active, moe.d_ff, moe.d_ff
        )  # the shared expert is one more of the same width
    f.touch("d_ff", "intermediate_size_mlp")
    dense = reader.dense(f.size("intermediate_size_mlp")) if len(sparse) < n_layers else None
    for i, kind in enumerate(kinds):
        window = chunk if kind == "chunked_attention" else None
        attention = reader.gqa(h, n_kv, head_dim, rope=rope if turns[i] else None, window=window)
        yield Layer(attention, moe if i in sparse else dense)


def gemma4(reader):
    """Full layers have their own head width and KV heads, and with attention_k_eq_v take V from K's projection (Gemma4TextAttention)."""
    f, d = reader.f, reader.d
    if not f.has("rope_parameters"):
        raise ValueError(
            "rope_parameters is missing: a gemma4_text turns its two kinds of layers differently, and says how there"
        )
    for key in ("num_kv_shared_layers", "hidden_size_per_layer_input"):
        if f.size(key, lowest=0):
            raise ValueError(
                f"{key} = {f.size(key)}: Gemma 4 with shared KV layers or per-layer inputs is not read here"
            )
    if f.flag("use_double_wide_mlp", False):
        raise ValueError("use_double_wide_mlp = true is not read here")
    f.defaulted.pop("use_double_wide_mlp", None)
    n_layers = f.layers()
    kinds = reader.kinds(n_layers)
    if kinds[-1] != "full_attention":
        raise ValueError("layer_types: the last layer of a gemma4_text is full_attention, and here it is not")
    h, n_kv, head_dim = reader.heads()
    same_kv = f.flag("attention_k_eq_v", False)
    shapes = _gemma4_shapes(reader, kinds, n_kv, head_dim, same_kv)
    window = reader.window()
    with_experts = f.flag("enable_moe_block", False)
    dense, moe = reader.dense(), reader.sparse() if with_experts else None
    beside = []
    if with_experts:
        expert = 3 * d * moe.d_ff
        fixed = d * moe.experts + d + moe.experts + 3 * d  # router, its two scales, three more norms
        beside = [
            Counted(
                "experts beside the feed-forward", moe.experts * expert + fixed, moe.active * expert + fixed
            )
        ]
        reader.refuse("a mixture of experts")
    f.touch("experts", "active", "moe_intermediate_size")
    made = {}
    for i, kind in enumerate(kinds):
        if (kind, shapes[i]) not in made:
            heads, width = shapes[i]
            slides = kind == "sliding_attention"
            rope = reader.ropes(width, kinds)[kind]
            attention = reader.gqa(h, heads, width, rope=rope, window=window if slides else None, scale=1.0)
            shared = (
                [Counted("V taken from the projection of K", -(d + attention.bias) * heads * width)]
                if same_kv and not slides
                else []
            )
            made[kind, shapes[i]] = Layer(attention, dense, "sandwich", tuple(beside + shared))
        yield made[kind, shapes[i]]


def _gemma4_shapes(reader, kinds, n_kv, head_dim, same_kv):
    """(KV heads, head width) per layer: global_head_dim and num_global_key_value_heads, or per_layer_config of transformers 5."""
    f = reader.f
    per_layer = f.table("per_layer_config")
    wide = f.size("global_head_dim", None if per_layer else 512)
    heads = f.size("num_global_key_value_heads", None if per_layer else n_kv) if same_kv else None
    f.touch("num_global_key_value_heads")
    full = (heads or n_kv, wide or head_dim)
    shapes = [full if kind == "full_attention" else (n_kv, head_dim) for kind in kinds]
    for index, entry in (per_layer or {}).items():
        good = str(index).isdecimal() and int(index) < len(kinds) and isinstance(entry, dict)
        if not good:
            raise ValueError(
                f"per_layer_config has {show(index)}: expected the number of a layer below {len(kinds)}, and an object"
            )
        unknown = set(entry) - {"head_dim", "num_key_value_heads"}
        if unknown:
            raise ValueError(
                f"per_layer_config.{index} has {', '.join(sorted(map(str, unknown)))}: not read here"
            )
        part = f.child(entry, f"per_layer_config.{index}")
        name = partial("per_layer_config.{}.{}".format, index)
        shapes[int(index)] = (
            part.size(name("num_key_value_heads"), n_kv),
            part.size(name("head_dim"), head_dim),
        )
    return shapes


def helium(reader):
    """wo is d x d whatever the heads are (HeliumAttention), so they must fill d."""
    h, _, head_dim = reader.heads()
    if h * head_dim != reader.d:
        raise ValueError(
            f"head_dim = {head_dim}: the {h} heads of a helium fill hidden_size = {reader.d} exactly"
        )
    return standard_layers(reader)


def laguna(reader):
    """num_attention_heads_per_layer; the gate has one number per head, or per head and dimension (LagunaAttention)."""
    f = reader.f
    kinds = reader.kinds(f.layers())
    n_kv, head_dim = f.size("n_kv_heads"), f.size("head_dim")
    heads = f.list("num_attention_heads_per_layer", len(kinds)) or [f.size("n_heads")] * len(kinds)
    per_head = f.find("gating")[1]
    if per_head not in (True, "per-head", "per-element"):
        raise ValueError(f"gating = {show(per_head)}: known are true, per-head and per-element")
    ropes, window = reader.ropes(head_dim, kinds), reader.window()
    sparse = reader.sparse_layers(len(kinds))

    def attention(i, kind):
        width = window if kind == "sliding_attention" else None
        h = heads[i]
        if not isinstance(h, int) or isinstance(h, bool) or not 0 < h < 10**6 or h % n_kv:
            raise ValueError(
                f"num_attention_heads_per_layer[{i}] = {show(h)}: expected a multiple of {n_kv} KV heads"
            )
        return reader.gqa(h, n_kv, head_dim, rope=ropes[kind], window=width)

    def extras(i):
        width = 1 if per_head != "per-element" else head_dim
        return (
            Counted("an output gate of attention", reader.d * heads[i] * width),
            *reader.extras(sparse[i]),
        )

    return standard_layers(reader, kinds=kinds, attention=attention, extras=extras)


def mimo_v2_flash(reader):
    """Window layers have twice the KV heads, and sinks (MiMoV2FlashAttention)."""
    f = reader.f
    kinds = reader.kinds(f.layers())
    h, n_kv, head_dim = reader.heads()
    ropes, window = reader.ropes(head_dim, kinds), reader.window()
    made = {"full_attention": reader.gqa(h, n_kv, head_dim, rope=ropes.get("full_attention"))}
    if "sliding_attention" in kinds:
        made["sliding_attention"] = reader.gqa(
            h, 2 * n_kv, head_dim, rope=ropes["sliding_attention"], window=window
        )
    return standard_layers(reader, kinds=kinds, attention=lambda i, kind: made[kind])


def minimax_m3(reader):
    """Dense layers have a width of their own; layers of another kind pick blocks of keys (MiniMaxM3VLTextConfig)."""
    f = reader.f
    f.touch("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks", "index_local_blocks")
    sparse = reader.sparse_layers(f.layers())
    dense = None if all(sparse) else reader.dense(f.size("dense_intermediate_size"))
    f.touch("dense_intermediate_size")
    moe = reader.sparse() if any(sparse) else None
    return standard_layers(reader, ffn=lambda i: moe if sparse[i] else dense)


def cohere2_moe(reader):
    """Dense layers before the experts turn q and k by a rule of their own (Cohere2MoeAttention.force_rope)."""
    f = reader.f
    if "dense" in (f.list("mlp_layer_types") or []):
        raise ValueError(
            "mlp_layer_types has dense layers: a cohere2_moe is read here with experts in every layer"
        )
    f.touch("prefix_dense_sliding_window_pattern", "prefix_dense_intermediate_size")
    return standard_layers(reader)


def glm_moe_dsa(reader):
    """indexer_types: a shared layer takes the keys that the last full one picked, and has no indexer (GlmMoeDsaConfig)."""
    full = reader.f.list("indexer_types", reader.f.layers(), ("full", "shared"))
    layers = list(deepseek_v32(reader))
    if full:
        layers = [
            layer
            if kind == "full"
            else replace(layer, counted=tuple(c for c in layer.counted if c.name != INDEXER))
            for layer, kind in zip(layers, full, strict=True)
        ]
    return layers
