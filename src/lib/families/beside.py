"""Parts beside attention and feed-forward that several families share: counted, not run. Each takes the Reader of a file."""

from ..config import Counted

POSITIONS = {"learned": "learned positions", "alibi": "ALiBi positions", "sinusoidal": "sinusoids added to the embedding"}
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
