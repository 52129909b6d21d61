"""Layer lists of the older families: learned positions, ALiBi, parallel parts, biases in odd places.

Each takes the Reader of a file and gives its layers. Sources: the modelling code of each family (the class named there).
"""

from dataclasses import replace

from ..config import Counted, Layer
from .beside import add_head_bias, add_positions
from .config_file import show
from .standard import standard_layers


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


def stablelm(reader):
    """StableLmDecoderLayer: one norm before both parts where use_parallel_residual."""
    parallel = reader.f.flag("use_parallel_residual", False)
    if parallel:
        reader.refuse("parallel attention and feed-forward")
    return [replace(x, norms="parallel" if parallel else "pre") for x in standard_layers(reader)]


def gpt_neo(reader):
    """attention_types: [[kinds, how often], ..]; attention_layers is the same, written out (GPTNeoConfig)."""
    f = reader.f
    n_layers, window = f.layers(), f.size("window_size")
    pairs = f.list("attention_types") or [[["global", "local"], -(-n_layers // 2)]]
    if not all(
        isinstance(x, list)
        and len(x) == 2
        and isinstance(x[0], list)
        and isinstance(x[1], int)
        and 0 < x[1] <= n_layers
        for x in pairs
    ):
        raise ValueError(f"attention_types = {show(pairs)}: expected pairs of a list of kinds and a number")
    kinds = [kind for names, times in pairs for kind in names * times]
    listed = f.list("attention_layers", n_layers, ("global", "local"))
    if len(kinds) != n_layers or set(kinds) - {"global", "local"} or listed not in (None, kinds):
        raise ValueError(
            f"attention_types = {show(pairs)}: expected {n_layers} layers, each global or local, as in attention_layers"
        )
    if "local" in kinds:
        reader.refuse("local attention")
        f.warn(
            f"{kinds.count('local')} of {n_layers} layers read the last {window} tokens only, and the class keeps all of them"
        )
    h = f.size("n_heads")
    attention = reader.gqa(h, h, reader.head_dim(h), rope=None, scale=1.0)
    return standard_layers(reader, kinds=["full_attention"] * n_layers, attention=lambda i, kind: attention)


def gpt_neox_japanese(reader):
    """The feed-forward is a multiple of d; the last layer's attention alone has a bias (GPTNeoXJapaneseLayer)."""
    dense = reader.dense(reader.f.size("multiple") * reader.d)
    bias = Counted("a bias of the last attention", reader.d)
    *layers, last = standard_layers(reader, ffn=lambda i: dense)
    return [*layers, replace(last, counted=(*last.counted, bias))]


def mpt(reader):
    """attn_config holds the attention's own fields; with qk_ln or a clip it is another attention (MptAttentionConfig)."""
    f = reader.f
    part = f.child(f.table("attn_config") or {}, "attn_config")
    for key, value in (
        ("attn_type", "multihead_attention"),
        ("alibi", True),
        ("qk_ln", False),
        ("clip_qkv", None),
        ("prefix_lm", False),
    ):
        given = part.find(f"attn_config.{key}")[1]
        if given is not None and given != value:
            raise ValueError(
                f"attn_config.{key} = {show(given)}: an mpt is read here with {show(value)} only"
            )
    scale = part.number("attn_config.softmax_scale", None)
    h = f.size("n_heads")
    attention = reader.gqa(h, h, reader.head_dim(h), rope=None, **({"scale": scale} if scale else {}))
    dense = reader.dense(f.size("expansion_ratio") * reader.d)
    return standard_layers(reader, attention=lambda i, kind: attention, ffn=lambda i: dense)


def openai_gpt(reader):
    """GPT-1 has no norm at the end (OpenAIGPTModel)."""
    reader.counted.append(Counted("no final norm", -2 * reader.d))
    return standard_layers(reader)


def opt(reader):
    """word_embed_proj_dim: embeddings of another width, with a projection on each side (OPTDecoder.project_in)."""
    width = reader.f.size("word_embed_proj_dim", reader.d)
    if width != reader.d:
        raise ValueError(
            f"word_embed_proj_dim = {width} and hidden_size = {reader.d}: embeddings of another width are not read here"
        )
    reader.f.defaulted.pop("word_embed_proj_dim", None)
    return standard_layers(reader)
