"""What a file says of its stored weights: quantised by which method, to how many bits, and the cache with them."""

from .config_file import show

PLACES = (
    "quantization_config",
    "quantization",
    "compression_config",
)  # Hugging Face; MLX; older compressed-tensors


def quantisation(*levels):
    """A list of one note if any level of the file speaks of quantised weights, else of none.

    The counts of this library are of the model, in bf16: the note says that the file's bytes are others.
    """
    for level in levels:
        for place in PLACES:
            if level.get(place):
                return [_note(level[place])]
    return []


def _note(table):
    if not isinstance(table, dict):
        return f"the file's weights are quantised ({show(table)}): not 2 bytes a parameter"
    names = [table[key] for key in ("quant_method", "quant_algo", "mode", "quant_type") if table.get(key)]
    bits = _bits(table)
    parts = [name if isinstance(name, str) and len(name) < 40 else show(name) for name in names]
    parts += [f"{' and '.join(f'{n:g}' for n in bits)}-bit weights"] if bits else []
    cache = next((table[key] for key in ("kv_cache_scheme", "kv_cache_quant_algo") if table.get(key)), None)
    said = f"the file's weights are quantised ({', '.join(parts) or 'it does not say how'}): not 2 bytes a parameter"
    if isinstance(cache, dict) and cache.get("num_bits"):
        cache = f"{show(cache['num_bits'])} bits"
    return said + (
        f"; it asks for a quantised cache too ({cache if isinstance(cache, str) else show(cache)})"
        if cache
        else ""
    )


def _bits(table):
    """The widths that any part of it states, in any tool's words."""
    groups = table.get("config_groups")
    groups = groups.values() if isinstance(groups, dict) else ()
    weights = [group.get("weights") for group in groups if isinstance(group, dict)]
    stated = [table.get(key) for key in ("bits", "w_bit", "nbits")]
    stated += [part.get("num_bits") for part in weights if isinstance(part, dict)]
    stated += [4 * (table.get("load_in_4bit") is True), 8 * (table.get("load_in_8bit") is True)]
    return sorted(
        {n for n in stated if isinstance(n, int | float) and not isinstance(n, bool) and 0 < n <= 16}
    )
