"""What a configuration implies: the facts that `describe` puts on its page, as plain values."""

from .. import arithmetic as a
from ..config import GQA, MLA, Dense, MoE

BANDWIDTH = 10**12  # bytes per second of the bandwidth bound, unless something else is asked for: 1 TB/s


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
        self.nope = [
            i for i, layer in enumerate(cfg.layers) if layer.attention and layer.attention.rope is None
        ]

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


def as_json(cfg, tokens=131072, batch=1, bandwidth=BANDWIDTH):
    """The same facts as a dictionary of plain values. A field that differs between layers is a list of its values."""
    f, p = Facts(cfg), a.parameters(cfg)
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
        "qk_norm": next((x.qk_norm if x.qk_norm == "width" else "head" for x in f.gqa if x.qk_norm), False),
        "norm": cfg.norm.kind,
        "norm_place": distinct(layer.norms for layer in cfg.layers),
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
