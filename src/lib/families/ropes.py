"""RoPE as config.json files spell it: four spellings of one fact, two bases, partial rotary under five names."""

from dataclasses import replace
from math import isfinite

from ..config import Rope, Scaling
from ..frequencies import rope_attention_factor
from .config_file import show

KINDS = {
    "default": None,
    "linear": "linear",
    "dynamic": "dynamic",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
    "proportional": "proportional",
    "mrope": None,
}
_KNOWN = frozenset(
    str.split(
        """rope_type type rope_theta factor original_max_position_embeddings low_freq_factor high_freq_factor
        beta_fast beta_slow truncate attention_factor mscale mscale_all_dim short_factor long_factor
        partial_rotary_factor alpha max_position_embeddings short_mscale long_mscale mrope_section finetuned"""
    )
)


def read_ropes(reader, width, kinds):
    """Kind of layer -> Rope, from rope_theta and rope_scaling, from rope_parameters (flat or per kind), or both if they agree."""
    return {kind: _rope(reader, width, kind) for kind in sorted(set(kinds))}


def _rope(reader, width, kind):
    f, family = reader.f, reader.family
    slides = kind == "sliding_attention"
    f.touch("rope_scaling", "rope_parameters", "original_max_position_embeddings")
    new, old = _new_entry(reader, kind), f.table("rope_scaling")
    if slides and family.scaled_full_only:
        old = None
    base = _base(reader, new, old, slides and family.local_base is not None)
    scaling, base_used = _scaling(reader, new, "rope_parameters", base, width)
    if old is not None:
        older = _scaling(reader, old, "rope_scaling", base, width)
        if new is not None and older != (scaling, base_used):
            raise ValueError(
                "rope_scaling and rope_parameters describe different scalings: which one is meant?"
            )
        scaling, base_used = older
    rotary = width if family.attention == "mla" else _rotary_dim(reader, new, width)
    return Rope(float(base_used), scaling, None if rotary == width else rotary, _layout(reader))


def _layout(reader):
    f, layout = reader.f, reader.family.layout
    if layout == "rope_interleave":
        layout = "adjacent" if f.flag("rope_interleave", True) else "half"
        f.defaulted.pop("rope_interleave", None)  # no published file of these families spells it
    if f.flag("rope_interleaved", False):
        raise ValueError("rope_interleaved = true: pairs in another layout than the class of this family has")
    f.defaulted.pop("rope_interleaved", None)
    return layout


def _new_entry(reader, kind):
    """rope_parameters for this kind of layer: flat, or an object per kind."""
    f, family = reader.f, reader.family
    table = f.table("rope_parameters")
    if table is None:
        return None
    if not any(isinstance(value, dict) for value in table.values()):
        if kind != "sliding_attention" or not family.scaled_full_only:
            return table
        return None if family.local_base else {key: table[key] for key in table if key == "rope_theta"}
    if kind not in table:
        raise ValueError(
            f"rope_parameters has no entry for {kind}: it has {', '.join(sorted(map(str, table)))}"
        )
    if not isinstance(table[kind], dict):
        raise ValueError(
            f"rope_parameters.{kind} = {show(table[kind])}: expected an object of fields, {{...}}"
        )
    return table[kind]


def _part(reader, entry, prefix):
    return reader.f.child(entry, prefix)


def _base(reader, new, old, local):
    """The one base that every spelling in the file agrees on; else the class default, reported."""
    f, given = reader.f, {}
    for entry, prefix in ((new, "rope_parameters"), (old, "rope_scaling")):
        if entry is not None and entry.get("rope_theta") is not None:
            name = f"{prefix}.rope_theta"
            given[name] = _part(reader, entry, prefix).number(name)
    f.touch("rope_local_base_freq")
    name = "rope_local_base_freq" if local else "base"
    if f.has(name):
        given[f.find(name)[0]] = f.number(name)
    if len(set(given.values())) > 1:
        pairs = " and ".join(f"{key} = {show(value)}" for key, value in given.items())
        raise ValueError(f"{pairs} disagree: which RoPE base is meant?")
    key, base = next(iter(given.items()), (f.keys(name)[0], None))
    if base is None:
        f.touch(name)
        base = reader.family.local_base if local else f.defaults.get("base")
        if base is None:
            raise ValueError(f"{key} is missing: a {f.model_type} cannot be read without its RoPE base")
        f.warn(
            f"{key} is not in the file: the RoPE base is the class default of {f.model_type}, {base:g}",
            doubt=False,
        )
    if not base > 1:
        raise ValueError(f"{key} = {show(base)}: a RoPE base is above 1 (10000 originally)")
    return base


def _scaling(reader, entry, prefix, base, width):
    """(Scaling or None, base): the base moves where the file gives a fixed NTK alpha."""
    if entry is None:
        return None, base
    f, part = reader.f, _part(reader, entry, prefix)

    def key(name):
        return f"{prefix}.{name}"

    names = [name for name in ("rope_type", "type") if entry.get(name) is not None]
    kind = part.text(key(names[0])) if names else "default"
    if len(names) == 2 and KINDS.get(part.text(key("type")), "?") != KINDS.get(kind, "?"):
        raise ValueError(
            f"{key('rope_type')} = {show(kind)} and {key('type')} = {show(entry['type'])} disagree"
        )
    if kind not in KINDS:
        raise ValueError(f"{key(names[0])} = {show(kind)}: known kinds of scaling are {', '.join(KINDS)}")
    if not names and entry.get("factor") is not None:
        raise ValueError(f"{key('factor')} is given without {key('rope_type')}: which kind of scaling is it?")
    known = _KNOWN | {"attn_factor"} if kind == "yarn" else _KNOWN
    unknown = sorted(str(name) for name in entry if name not in known and entry[name] is not None)
    if unknown:
        f.warn(f"fields of {prefix} that this reader does not know, and did not use: {', '.join(unknown)}")
        reader.refuse(f"{', '.join(unknown)} of {prefix}, which may change the rotation")
    if kind == "proportional":
        reader.refuse("proportional partial RoPE")
        return Scaling("proportional"), base
    if kind == "mrope":
        reader.refuse("RoPE over several axes")
    if KINDS[kind] is None:
        return None, base
    kind = KINDS[kind]
    if kind == "dynamic" and entry.get("alpha") is not None:
        alpha = part.number(key("alpha"))
        if width <= 2:
            raise ValueError(f"{key('alpha')} needs a rotary width above 2, and it is {width}")
        moved = base * alpha ** (width / (width - 2))
        if not isfinite(moved):
            raise ValueError(f"{key('alpha')} = {show(alpha)}: the base is no longer a finite number")
        f.warn(
            f"{key('alpha')} = {show(alpha)}: the base is {base:g} * alpha^({width}/{width - 2}) = {moved:.6g} at every length"
        )
        return None, moved
    if kind == "linear":
        return Scaling("linear", float(part.number(key("factor")))), base
    return _stretched(reader, part, key, kind, width), base


def _stretched(reader, part, key, kind, width):
    f, max_len = reader.f, reader.max_len
    trained = part.size(key("original_max_position_embeddings"), None)
    top = f.size("original_max_position_embeddings", None)
    if None not in (trained, top) and trained != top:
        raise ValueError(
            f"{key('original_max_position_embeddings')} = {trained} and original_max_position_embeddings = {top} disagree"
        )
    trained = trained or top
    if kind == "dynamic":  # whatever else the file says, the formula counts from max_position_embeddings
        if trained not in (None, max_len):
            f.warn(
                f"original_max_position_embeddings = {trained} is not used by dynamic scaling: it starts at"
                f" max_position_embeddings, {max_len}"
            )
        trained = max_len
    if trained is None:
        if kind in ("llama3", "longrope"):
            raise ValueError(
                f"{key('original_max_position_embeddings')} is missing: {kind} scaling cannot be computed without it"
            )
        trained = max_len
        if kind == "yarn":
            f.warn(
                f"{key('original_max_position_embeddings')} is not in the file: taken as max_position_embeddings, {max_len}"
            )
    fields = {"original_max_len": trained, "max_len": max_len}
    if kind == "longrope":
        fields |= {name: _factors(part, key(name), width) for name in ("short_factor", "long_factor")}
        fields["factor"] = float(part.number(key("factor"), None) or max_len / trained)
    elif kind == "yarn":
        fields["factor"] = part.number(key("factor"), None)
        if fields["factor"] is None:
            fields["factor"] = max_len / trained
            f.warn(
                f"{key('factor')} is not in the file: derived, max_position_embeddings {max_len} / {trained} ="
                f" {fields['factor']:g}"
            )
        fields["factor"] = float(fields["factor"])
    else:
        fields["factor"] = float(part.number(key("factor")))
    if kind == "dynamic":
        reader.stretch = max(reader.stretch, fields["factor"])
        fields["max_len"] = reader.longest()
    if kind == "llama3":
        fields["low_freq_factor"] = float(part.number(key("low_freq_factor")))
        fields["high_freq_factor"] = float(part.number(key("high_freq_factor")))
    if kind == "yarn":
        fields["beta_fast"] = float(part.number(key("beta_fast"), 32.0))
        fields["beta_slow"] = float(part.number(key("beta_slow"), 1.0))
        fields["truncate"] = part.flag(key("truncate"), True)
        for name in ("mscale", "mscale_all_dim"):
            fields[name] = part.number(key(name), None, zero=True) or None  # 0 is off, as absent
    if kind in ("yarn", "longrope"):
        fields["attention_factor"] = part.number(key("attention_factor"), None)
    scaling = Scaling(kind, **fields)
    share = part.number(key("attn_factor"), None) if kind == "yarn" else None
    if share is None:
        return scaling
    if scaling.attention_factor is not None:
        raise ValueError(
            f"{key('attn_factor')} = {show(share)} and {key('attention_factor')} = {show(scaling.attention_factor)}:"
            " the first multiplies yarn's own factor, the second replaces it; which is meant?"
        )
    f.warn(f"{key('attn_factor')} = {show(share)}: taken as what multiplies yarn's own factor of cos and sin")
    return replace(scaling, attention_factor=share * rope_attention_factor(scaling))


def _factors(part, name, width):
    values = part.list(name)
    if values is None:
        raise ValueError(f"{name} is missing: longrope has one factor per pair of dimensions")
    if len(values) * 2 > width:
        raise ValueError(f"{name} has {len(values)} entries: expected one per pair, at most {width // 2}")
    for value in values:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e30:
            raise ValueError(f"{name} holds {show(value)}: expected positive numbers")
    return tuple(float(value) for value in values)


def _rotary_dim(reader, new, head_dim):
    """How many dimensions of each head turn: a width, or a share of the head, under five names."""
    f, given = reader.f, {}
    if f.has("rotary_dim"):
        given["rotary_dim"] = f.size("rotary_dim")
    shares = {name: f.number(name, None) for name in ("partial_rotary_factor", "rotary_pct", "rope_percent")}
    if new is not None:
        name = "rope_parameters.partial_rotary_factor"
        shares[name] = _part(reader, new, "rope_parameters").number(name, None)
    for name, share in shares.items():
        if share is not None:
            if share > 1:
                raise ValueError(f"{name} = {show(share)}: a share of the head is at most 1")
            given[name] = int(head_dim * share)
    if len(set(given.values())) > 1:
        pairs = " and ".join(f"{name} ({width} dimensions)" for name, width in given.items())
        raise ValueError(f"{pairs} disagree about how much of a head of {head_dim} turns")
    if not given:
        if reader.family.rotary is None:
            raise ValueError(
                f"rotary_dim is missing: a {f.model_type} cannot be read without the share of a head that turns"
            )
        if reader.family.rotary != 1.0:
            f.warn(
                f"how much of a head turns is not in the file: {reader.family.rotary:g} of it, by the class of {f.model_type}",
                doubt=False,
            )
        given["rotary_dim"] = int(head_dim * reader.family.rotary)
    name, width = next(iter(given.items()))
    if width != head_dim and not (reader.family.partial or reader.family.rotary != 1.0):
        reader.refuse("partial rotary in a class that turns whole heads")
        f.warn(
            f"{name} turns {width} of {head_dim} dimensions: the class of {f.model_type} knows whole heads only"
        )
    if width > head_dim or width < 2 or width % 2:
        raise ValueError(
            f"{name}: {width} of {head_dim} dimensions would turn; expected an even number from 2 to {head_dim}"
        )
    return width
