"""The layer list of a family that needs nothing special, or little: attention, feed-forward and what stands beside them."""

from ..config import Layer
from .beside import row_parts, row_place


def standard_layers(reader, kinds=None, attention=None, ffn=None, extras=None):
    """The layer list of a family that needs nothing special; a special one replaces attention(i, kind), ffn(i) or extras(i)."""
    family = reader.family
    kinds = kinds or reader.kinds(reader.f.layers())
    sparse = reader.sparse_layers(len(kinds))
    attention = attention or _attention(reader, kinds)
    if family.moe and not any(sparse):
        reader.no_experts()
    parts = {}
    if ffn is None:
        parts = {
            True: reader.sparse() if any(sparse) else None,
            False: None if all(sparse) else reader.dense(),
        }
    if all(sparse) and family.moe.width != "d_ff":
        reader.f.touch("d_ff")  # written, and used by no layer
    place, made = row_place(reader), {}
    for i, kind in enumerate(kinds):
        mixer, mlp = attention(i, kind), ffn(i) if ffn else parts[sparse[i]]
        more = extras(i) if extras else reader.extras(sparse[i])
        more = (*more, *reader.beside) if mixer else more
        if (mixer, mlp, kind) not in made:
            made[mixer, mlp, kind] = row_parts(reader, mixer, mlp, kind)
        yield Layer(mixer, mlp, place, (*more, *made[mixer, mlp, kind]))


def _attention(reader, kinds):
    """attention(i, kind) of a common family: equal layers share one object."""
    idle = set(reader.family.idle)
    used = [kind for kind in kinds if kind not in idle]
    if reader.family.attention == "mla":
        made = {
            kind: reader.mla(lambda width, kind=kind: reader.ropes(width, used)[kind]) for kind in set(used)
        } | dict.fromkeys(idle)
        return lambda i, kind: made[kind]
    h, n_kv, head_dim = reader.heads()
    turned = reader.family.positions == "rope"
    nope = reader.nope(kinds)
    turning = [kind for kind, skip in zip(kinds, nope, strict=True) if not skip and kind not in idle]
    ropes = reader.ropes(head_dim, turning) if turned else dict.fromkeys(used)
    window = reader.window() if "sliding_attention" in kinds else None
    made = {(kind, skip): None for kind in idle for skip in (True, False)}

    def attention(i, kind):
        key = kind, nope[i]
        if key not in made:
            made[key] = reader.gqa(
                h,
                n_kv,
                head_dim,
                rope=None if nope[i] else ropes[kind],
                window=window if kind == "sliding_attention" else None,
            )
        return made[key]

    return attention
