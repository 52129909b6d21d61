"""Parts beside attention and feed-forward that several families share: counted, not run. Each takes the Reader of a file."""

from math import prod

from ..config import GQA, Counted, MoE
from .config_file import show

POSITIONS = {
    "learned": "learned positions",
    "alibi": "ALiBi positions",
    "sinusoidal": "sinusoids added to the embedding",
}
# kind of QK-norm -> (name, weights of h query heads and n KV heads of width w)
QK_PARTS = {
    "layer": ("LayerNorm of q and k", lambda h, n, w: 4 * w),
    "layer_heads": ("LayerNorm of q and k, head by head", lambda h, n, w: (h + n) * w),
}


def add_positions(reader, kind):
    """Positions that are no RoPE: learned ones are weights, ALiBi's slopes are constants."""
    if kind == "none":
        return
    size = reader.max_len * reader.d if kind == "learned" else 0
    reader.counted.append(Counted(POSITIONS[kind], size))


def add_head_bias(reader):
    if reader.labels is None:  # a base model or a classifier has no language head
        reader.counted.append(Counted("a bias of the head", reader.f.size("V")))


def qk_part(kind, h, n_kv, head_dim):
    """A QK-norm that is counted and not run, or None where the block runs it."""
    if kind not in QK_PARTS:
        return None
    name, size = QK_PARTS[kind]
    return Counted(name, size(h, n_kv, head_dim))


def beside_experts(reader):
    """The gate and the biases of a shared expert."""
    family = reader.family
    parts = [Counted("a gate of the shared expert", reader.d)] if family.moe.shared_gate else []
    width = reader.sparse().shared_d_ff
    if width and reader.switch(family.ffn_bias):
        parts.append(Counted("biases of the shared expert", (1 + family.gated) * width + reader.d))
    return tuple(parts)


# ---- what a row of the tables says beside its common rules


def row_parts(reader, attention, ffn, kind):
    """The row's Parts that belong to one layer."""
    place = {"all", kind} | ({"attention"} if attention else set())
    place |= {"sparse"} if isinstance(ffn, MoE) else {"dense"} if ffn else set()
    return [
        row_part(reader, part, attention, ffn)
        for part in reader.family.parts
        if part.on in place and has_part(reader, part)
    ]


def has_part(reader, part):
    return part.key is None or reader.f.flag(*part.key)


def row_part(reader, part, attention=None, ffn=None):
    """A Part of the row -> Counted."""
    sizes = {"d": reader.d, "V": reader.f.size("V")}
    if isinstance(attention, GQA):
        sizes |= {
            "h": attention.n_heads,
            "n_kv": attention.n_kv_heads,
            "dh": attention.head_dim,
            "dv": attention.d_v,
        }
    elif attention:
        sizes |= {
            "h": attention.n_heads,
            "dh": attention.qk_nope_head_dim + attention.qk_rope_head_dim,
            "dv": attention.v_head_dim,
        }
    if isinstance(ffn, MoE):
        sizes |= {"m": ffn.d_ff, "experts": ffn.experts}
    elif ffn:
        sizes["f"] = ffn.d_ff

    def size(word):
        return (
            int(word) if word.isdecimal() else sizes[word] if word in sizes else reader.f.size(word, lowest=0)
        )

    def count(text):
        return sum(prod(size(word) for word in term.split()) for term in text.split("+"))

    return Counted(part.name, count(part.count), kv_elements=count(part.kv), state_elements=count(part.state))


def row_place(reader):
    rule = reader.family.place
    return rule if isinstance(rule, str) else rule[2] if reader.f.flag(*rule[:2]) else rule[3]


def check_row(reader):
    """What the row does not read is refused before anything is counted."""
    f, family = reader.f, reader.family
    for key, values in family.only.items():
        value = f.find(key)[1]
        if value is not None and value not in values:
            raise ValueError(
                f"{f.find(key)[0]} = {show(value)}: a {f.model_type} is read here with {show(values[0])} only"
            )
    if family.stretched and not f.has("rope_scaling") and not f.has("rope_parameters"):
        raise ValueError(
            f"rope_scaling is missing: the class of {f.model_type} stretches RoPE unless the file says otherwise"
        )
