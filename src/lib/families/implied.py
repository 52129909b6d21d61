"""What a configuration implies: the facts that `describe` puts on its page, as plain values."""

import re
from dataclasses import replace

from .. import arithmetic as a
from ..config import GQA, MLA, Dense, MoE, Rope

BANDWIDTH = 10**12  # bytes per second of the bandwidth bound, unless something else is asked for: 1 TB/s
MOST_GPUS = 4096


def count_of(items, total, what="layers"):
    return f"{len(items)} of {total} {what}"


def distinct(values):
    """The one value that every layer has, else a sorted list of those that occur; None where there is none."""
    seen = sorted(set(values))
    return None if not seen else seen[0] if len(seen) == 1 else seen


def _number(value):
    """1000000.0 -> 1000000: a base that is a whole number reads better without its decimal point."""
    return int(value) if float(value).is_integer() else value


def sharing(x):
    return "MHA" if x.n_kv_heads == x.n_heads else "MQA" if x.n_kv_heads == 1 else f"GQA {x.group_size}:1"


class Facts:
    """The parts of a configuration that the page and the JSON both speak of."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.attention = [layer.attention for layer in cfg.layers if layer.attention is not None]
        self.gqa = [x for x in self.attention if isinstance(x, GQA)]
        self.mla = [x for x in self.attention if isinstance(x, MLA)]
        self.dense = [layer.ffn for layer in cfg.layers if isinstance(layer.ffn, Dense)]
        self.moe = [layer.ffn for layer in cfg.layers if isinstance(layer.ffn, MoE)]
        self.ropes = [x.rope for x in self.attention if x.rope is not None]
        self.windows = [x.window for x in self.gqa if x.window]
        beside = [c.name for layer in cfg.layers for c in layer.counted]
        # what gives positions in RoPE's place, in all layers at once: a layer without RoPE has none only if this is None
        self.positions = next((c.name for c in cfg.counted if c.name.endswith("positions")), None)
        self.nope = [
            i
            for i, layer in enumerate(cfg.layers)
            if layer.attention and layer.attention.rope is None and not self.positions
        ]
        qk = next((x.qk_norm if x.qk_norm == "width" else "head" for x in self.gqa if x.qk_norm), False)
        self.qk_norm = qk or next((name for name in beside if name.startswith("LayerNorm of q and k")), False)

    def kind(self):
        kinds = ["MLA"] if self.mla else []
        kinds += [sharing(x) for x in self.gqa]
        kinds += sorted({c.name for layer in self.cfg.layers for c in layer.counted if c.state_elements})
        return " + ".join(dict.fromkeys(kinds)) or "none"

    def shapes(self):
        """One line per attention layer: what it is and how wide."""
        for x in self.attention:
            if isinstance(x, MLA):
                yield (
                    f"MLA, {x.n_heads} heads, q and k {x.qk_nope_head_dim} + {x.qk_rope_head_dim} wide, v {x.v_head_dim};"
                    f" cached: {x.kv_lora_rank} + {x.qk_rope_head_dim}"
                )
                continue
            heads = f"{x.n_kv_heads} KV head{'s' * (x.n_kv_heads > 1)}"
            yield f"{sharing(x)}, {x.n_heads} query heads, {heads}, each {x.head_dim} wide"

    def scalings(self):
        found = {}
        for rope in self.ropes:
            s = rope.scaling
            if s is not None:
                found[s.kind] = {
                    "kind": s.kind,
                    "factor": _number(s.factor),
                    "original_max_len": s.original_max_len,
                }
        return list(found.values())


# ---- the cache by kind of layer


def _bare(attention):
    """The attention without what no cache depends on: equal ones are one kind."""
    if isinstance(attention, MLA):
        return replace(attention, rope=Rope(), scale=None, bias=False)
    return replace(attention, rope=None, qk_norm=False, bias=False, out_bias=False, scale=None)


def lengths(tokens):
    """Three lengths, tokens / 32, tokens / 4 and tokens, as far as they are whole numbers."""
    return tuple(dict.fromkeys(n for n in (tokens // 32, tokens // 4, tokens) if n > 0))


_SPELLED = {
    "n_kv_heads": "kv_heads|key_value_heads|query_group", "head_dim": "head_dim$", "window": "window|chunk_size",
    "kv_lora_rank": "kv_lora_rank", "qk_rope_head_dim": "qk_rope_head_dim",
}  # fmt: skip


def _behind(cfg, attention):
    """{the file's key: its value} behind each number of an attention layer's cache, where a field says that very number."""
    latent = isinstance(attention, MLA)
    names = ("kv_lora_rank", "qk_rope_head_dim") if latent else ("n_kv_heads", "head_dim", "window")
    found = {}
    for name in names:
        value, like = getattr(attention, name), re.compile(_SPELLED[name])
        fields = sorted(cfg.fields, key=lambda field: field[0] != name)  # the common name first
        keys = [key for ours, key, said, _ in fields if like.search(ours) and said == value]
        found |= {keys[0]: value} if keys and value else {}
    return found


def _label(attention):
    if isinstance(attention, MLA):
        return "MLA latent", f"({attention.kv_lora_rank} + {attention.qk_rope_head_dim})"
    window = f", window {attention.window:,}" if attention.window else ""
    return (
        f"{sharing(attention)}{window}",
        f"{attention.n_kv_heads} x ({attention.head_dim} + {attention.d_v})",
    )


def _spread(attention, gpus):
    """How an attention layer's cache lies on several GPUs, in words."""
    if isinstance(attention, MLA):
        return "whole on each: a latent has no heads to split"
    n = attention.n_kv_heads
    if n >= gpus:
        return f"split: {n // gpus} of {n} KV heads on each"
    return f"replicated: 1 of {n} KV head{'s' * (n > 1)} on each, so {gpus // n} copies of each head"


def cache_kinds(cfg, tokens, batch=1, gpus=8):
    """What is cached in bf16, kind by kind: a list of dictionaries, one per shape of attention and per extra part.

    Per token for one sequence; bytes_at and bytes_at_per_gpu for `batch` sequences, one value per length of `lengths(tokens)`.
    Per GPU: None where the heads do not divide (`spread` says why); a fixed state and extra keys count whole on every GPU.
    """
    if not 1 <= gpus <= MOST_GPUS:
        raise ValueError(f"gpus = {gpus!r}: expected a whole number from 1 to {MOST_GPUS:,}")
    at, shapes, extras = lengths(tokens), {}, {}
    for layer in cfg.layers:
        if layer.attention is not None:
            shapes.setdefault(_bare(layer.attention), []).append(layer)
        for c in layer.counted:
            if c.kv_elements or c.state_elements:
                extras.setdefault(c.name, []).append(c)
    return [_attention_kind(cfg, x, layers, at, batch, gpus) for x, layers in shapes.items()] + [
        _extra_kind(name, parts, at, batch) for name, parts in extras.items()
    ]


def _attention_kind(cfg, attention, layers, at, batch, gpus):
    part = cfg.replace(layers=tuple(layers))
    kind, formula = _label(attention)
    try:
        each = [a.kv_bytes_per_gpu(part, t, gpus, batch) for t in at]
        one, spread = a.kv_bytes_per_gpu(part, 1, gpus), _spread(attention, gpus)
    except ValueError as error:
        each, one, spread = None, None, str(error)
    return {
        "kind": kind, "layers": len(layers), "formula": f"{len(layers)} x {formula}", "fields": _behind(cfg, attention),
        "elements_per_token": a.kv_elements_per_token(part), "bytes_per_token": a.kv_bytes_per_token(part),
        "bytes_at": [a.kv_bytes(part, t, batch) for t in at],
        "bytes_per_token_per_gpu": one, "bytes_at_per_gpu": each, "spread": spread,
    }  # fmt: skip


def _extra_kind(name, parts, at, batch):
    per_token, state = sum(c.kv_elements for c in parts), sum(c.state_elements for c in parts)
    size = [2 * batch * (per_token * t + state) for t in at]
    formula = f"{len(parts)} x {parts[0].kv_elements}"
    return {
        "kind": name, "layers": len(parts), "fields": {},
        "formula": f"a fixed state of {state:,} numbers per sequence, at any length" if state else formula,
        "elements_per_token": per_token, "bytes_per_token": 2 * per_token, "bytes_at": size,
        "bytes_per_token_per_gpu": 2 * per_token, "bytes_at_per_gpu": size,
        "spread": "whole on each, at most: an engine may split it by its own heads" if state else "whole on each",
    }  # fmt: skip


def added(kinds, key):
    """The sum over kinds; None where one kind has none (its heads do not divide)."""
    values = [kind[key] for kind in kinds]
    if None in values:
        return None
    return [sum(column) for column in zip(*values)] if values and isinstance(values[0], list) else sum(values)


# ---- where the numbers come from, and what is left out

_GROUPS = (
    ("embedding, head", r"^(V|d|tied)$"),
    ("positions", r"^(base|max_len)$|rope(?!_head)|rotary|alibi|original_max"),
    ("state", r"^linear_|mamba|ssm_|conv|n_groups|time_step|lru|shortconv"),
    ("feed-forward", r"^(d_ff|active|activation)$|expert|moe|mlp|ffn|intermediate|first_k_dense|decoder_sparse"),
    ("attention", r"head|lora_rank|attention|attn|qkv|qk_|kv_|multi_query|window|sliding|chunk|layer_types|index_|^n_layers$"),
    ("other", ""),
)  # fmt: skip


def stated_fields(cfg):
    """Group -> the fields of the file that this reader asked for: dictionaries of name, key, value, from ("file" or "class")."""
    found = {group: [] for group, _ in _GROUPS}
    for name, key, value, source in cfg.fields:
        if re.search(r"[\[.]\d", key):
            continue  # an entry of a list that is named itself
        group = next(group for group, pattern in _GROUPS if re.search(pattern, name))
        found[group].append({"name": name, "key": key, "value": value, "from": source})
    return {group: rows for group, rows in found.items() if rows}


def counted_parts(cfg):
    """Parts that are counted and not run: dictionaries of name, layers (0 = outside them), parameters, active in all."""
    inside = [c for layer in cfg.layers for c in layer.counted]
    rows = []
    for name in dict.fromkeys(c.name for c in (*inside, *cfg.counted)):
        mine = [c for c in (*inside, *cfg.counted) if c.name == name]
        active = sum(c.parameters if c.active is None else c.active for c in mine)
        rows.append({
            "name": name, "layers": sum(c.name == name for c in inside),
            "parameters": sum(c.parameters for c in mine), "active": active,
        })  # fmt: skip
    return rows


def not_run(cfg):
    """What this book's block does not run, by name; empty where it runs all of it."""
    return list(dict.fromkeys([*cfg.unsupported, *(part["name"] for part in counted_parts(cfg))]))


def not_counted(cfg):
    """What no number on the page contains: what every model needs beside it, and what this file's own notes say."""
    return ["activations, workspace, pages and padding of an engine"] + [
        x for x in cfg.warnings if "counted" in x
    ]


def as_json(cfg, tokens=131072, batch=1, bandwidth=BANDWIDTH, gpus=8):
    """The same facts as a dictionary of plain values. A field that differs between layers is a list of its values."""
    f, p = Facts(cfg), a.parameters(cfg)
    kinds = cache_kinds(cfg, tokens, batch, gpus)
    scalings = f.scalings()
    return {
        "model_type": cfg.model_type,
        "n_layers": cfg.n_layers,
        "d": cfg.d,
        "V": cfg.V,
        "max_len": cfg.max_len,
        "n_heads": distinct(x.n_heads for x in f.attention),
        "n_kv_heads": distinct(x.n_kv_heads for x in f.gqa),
        "head_dim": distinct(
            [x.head_dim for x in f.gqa] + [x.qk_nope_head_dim + x.qk_rope_head_dim for x in f.mla]
        ),
        "v_head_dim": distinct([x.d_v for x in f.gqa] + [x.v_head_dim for x in f.mla]),
        "kv_lora_rank": distinct(x.kv_lora_rank for x in f.mla),
        "qk_rope_head_dim": distinct(x.qk_rope_head_dim for x in f.mla),
        "d_ff": distinct(x.d_ff for x in f.dense + f.moe),
        "experts": distinct(x.experts for x in f.moe),
        "experts_per_token": distinct(x.active for x in f.moe),
        "attention": f.kind(),
        "attention_layers": len(f.attention),
        "windows": distinct(f.windows),
        "window_layers": len(f.windows),
        "nope_layers": f.nope,
        "rope_base": distinct(_number(rope.base) for rope in f.ropes),
        "rope_scaling": None if not scalings else scalings[0] if len(scalings) == 1 else scalings,
        "rotary_dim": distinct(
            x.rope.rotary_dim or (x.qk_rope_head_dim if isinstance(x, MLA) else x.head_dim)
            for x in f.attention
            if x.rope
        ),
        "positions": f.positions or ("RoPE" if f.ropes else None),
        "qk_norm": f.qk_norm,
        "norm": cfg.norm.kind,
        "norm_place": distinct(layer.norms for layer in cfg.layers),
        "head_rows": cfg.head_rows,
        "tied": cfg.tied,
        "parameters": p.total,
        "active_parameters": p.active,
        "parameters_by_part": {
            key: value for key, value in vars(p).items() if key not in ("total", "active")
        },
        "tokens": tokens,
        "batch": batch,
        "kv_elements_per_token": a.kv_elements_per_token(cfg),
        "kv_bytes_per_token": a.kv_bytes_per_token(cfg),
        "kv_bytes_at_tokens": a.kv_bytes(cfg, tokens, batch),
        "kv_bytes_at_tokens_uncapped": a.kv_bytes(cfg, tokens, batch, capped=False),
        "extra_kv_elements_per_token": a.extra_kv_elements_per_token(cfg),
        "state_elements": a.state_elements(cfg),
        "naive_kv_elements_per_token": a.naive_kv_elements_per_token(cfg),
        "flops_per_token": a.flops_per_token(cfg, tokens),
        "decode_bytes": a.decode_bytes(cfg, tokens, batch),
        "arithmetic_intensity": a.arithmetic_intensity(cfg, tokens, batch),
        "bandwidth": bandwidth,
        "decode_seconds": a.decode_seconds(cfg, tokens, bandwidth, batch),
        "cache_lengths": list(lengths(tokens)),
        "cache_bytes_at_lengths": added(kinds, "bytes_at"),
        "gpus": gpus,
        "cache_bytes_at_lengths_per_gpu": added(kinds, "bytes_at_per_gpu"),
        "cache_by_kind": kinds,
        "fields": [row for rows in stated_fields(cfg).values() for row in rows],
        "counted": counted_parts(cfg),
        "not_counted": not_counted(cfg),
        "unsupported": list(cfg.unsupported),
        "warnings": list(cfg.warnings),
    }


def why_naive_fails(cfg, tokens=None):
    """Why 2 L n_kv (d // h) is wrong for this model: a list of reasons, empty where it is right."""
    f, reasons = Facts(cfg), []
    h, n_kv = cfg.stated_heads or (None, None)
    if f.mla:
        x = f.mla[0]
        reasons.append(
            f"MLA caches {x.kv_lora_rank} + {x.qk_rope_head_dim} numbers per layer: no factor 2, no heads"
        )
    if len(f.attention) < cfg.n_layers:
        reasons.append(f"only {count_of(f.attention, cfg.n_layers)} keep a cache")
    used = sorted({x.n_kv_heads for x in f.gqa})
    if f.gqa and used != [n_kv] and n_kv is not None:
        reasons.append(f"the file reads as {n_kv} KV heads, and the model has {' or '.join(map(str, used))}")
    widths = sorted({x.head_dim for x in f.gqa})
    if f.gqa and h and widths != [cfg.d // h]:
        reasons.append(f"a head is {' or '.join(map(str, widths))} wide, and d // h is {cfg.d // h}")
    capped = [w for w in f.windows if tokens is not None and w < tokens]
    if capped:
        reasons.append(
            f"windows cap {count_of(capped, cfg.n_layers)} at {' or '.join(f'{w:,}' for w in sorted(set(capped)))} tokens"
        )
    return reasons
