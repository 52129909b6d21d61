"""Layer lists that must be computed: one more flag than the common rules know, or two kinds of attention.

Each takes the Reader of a file and gives its layers. Sources: the modelling code of each family (the class named there).
"""

from functools import partial

from ..config import Counted, Layer
from .beside import add_head_bias, add_positions
from .config_file import show
from .reader import standard_layers

# ---- one more flag or one hidden part than the common rules know


def gpt_bigcode(reader):
    """multi_query alone says that there is one KV head; no head count does."""
    f = reader.f
    h = f.size("n_heads")
    n_kv = 1 if f.flag("multi_query") else h
    if f.has("n_kv_heads") and f.size("n_kv_heads") != n_kv:
        raise ValueError(
            f"num_key_value_heads = {f.size('n_kv_heads')} and multi_query, which means {n_kv}, disagree"
        )
    attention = reader.gqa(h, n_kv, reader.head_dim(h), rope=None)
    return standard_layers(reader, attention=lambda i, kind: attention)


def falcon(reader):
    """num_kv_heads counts only in the new decoder architecture; else multi_query decides (FalconAttention)."""
    f = reader.f
    h, head_dim = f.size("n_heads"), None
    new, multi_query = f.flag("new_decoder_architecture"), f.flag("multi_query")
    parallel = f.flag("parallel_attn", True) or new
    stated = f.size("n_kv_heads", None)
    n_kv = (stated or h) if new else 1 if multi_query else h
    if h % n_kv:
        raise ValueError(f"num_kv_heads = {n_kv} and num_attention_heads = {h}: expected a divisor")
    if stated not in (None, n_kv):
        f.warn(
            f"num_kv_heads = {stated} is ignored: multi_query is {str(multi_query).lower()}, so there are {n_kv}"
        )
    norms = f.size("num_ln_in_parallel_attn", 2 if new else 1, highest=2)
    f.defaulted.pop("num_ln_in_parallel_attn", None)
    place = "pre" if not parallel else "parallel2" if new and norms == 2 else "parallel"
    if parallel:
        reader.refuse("parallel attention and feed-forward")
    head_dim = reader.head_dim(h)
    alibi = f.flag("alibi", False)
    f.defaulted.pop("alibi", None)
    if alibi:
        add_positions(reader, "alibi")
    rope = None if alibi else reader.rope(head_dim)
    layer = Layer(reader.gqa(h, n_kv, head_dim, rope=rope), reader.dense(), place)
    return [layer] * f.layers()


def gpt_neox(reader):
    parallel = reader.f.flag("use_parallel_residual", True)
    if parallel:
        reader.refuse("parallel attention and feed-forward")
    layers = standard_layers(reader)
    return [Layer(x.attention, x.ffn, "parallel2" if parallel else "pre") for x in layers]


def phi(reader):
    """PhiForCausalLM's head carries a bias."""
    add_head_bias(reader)
    return standard_layers(reader)


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
    indexer = Counted("a sparse-attention indexer", weights, kv_elements=width)
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
