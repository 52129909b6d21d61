"""What a model costs, from its configuration alone: parameters, cache, FLOPs, bandwidth. Plain integers, no torch.

A count is an exact integer. A time is a lower bound: bytes that must move divided by the bandwidth that moves them.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from .config import GQA, LARGEST, MLA, Dense, ModelConfig, MoE


def _whole(lowest=1, highest=LARGEST, /, **sizes):
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise ValueError(f"{name} = {value!r}: expected a whole number from {lowest} to {highest:,}")


def _positive(**numbers):
    for name, value in numbers.items():
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
        if not good:
            raise ValueError(f"{name} = {value!r}: expected a positive finite number")


def _bytes(elements, bytes_per_element):
    """Whole bytes for that many elements; a 4-bit element is 0.5 bytes."""
    _positive(bytes_per_element=bytes_per_element)
    return ceil(elements * Fraction(bytes_per_element))


def _model(cfg):
    known = isinstance(cfg, ModelConfig)
    if not known:
        raise ValueError(f"cfg is {type(cfg).__name__}: expected a ModelConfig (read_config(path) makes one)")


# ---- the formulas on bare numbers


def swiglu_width(d, multiplier=None, multiple_of=256):
    """d_ff = round_up(multiplier * int(8 d / 3), multiple_of): three matrices of d_ff cost what two of 4d cost.

    The rule of Llama's own code: truncate 8/3 d, apply the optional multiplier and truncate again, then round UP.
    """
    _whole(d=d, multiple_of=multiple_of)
    width = 8 * d // 3
    if multiplier is not None:
        _positive(multiplier=multiplier)
        width = int(multiplier * width)
    return multiple_of * -(-width // multiple_of)


def kv_cache_bytes(n_layers, n_kv_heads, head_dim, tokens=1, batch=1, bytes_per_element=2):
    """2 * n_layers * n_kv_heads * head_dim * tokens * batch * bytes_per_element: K and V, never Q. In bytes."""
    _whole(n_layers=n_layers, n_kv_heads=n_kv_heads, head_dim=head_dim, batch=batch)
    _whole(0, tokens=tokens)
    return _bytes(2 * n_layers * n_kv_heads * head_dim * tokens * batch, bytes_per_element)


def mla_cache_bytes(n_layers, kv_lora_rank, qk_rope_head_dim, tokens=1, batch=1, bytes_per_element=2):
    """n_layers * (kv_lora_rank + qk_rope_head_dim) * tokens * batch * bytes_per_element: no factor 2, no heads. In bytes."""
    _whole(n_layers=n_layers, kv_lora_rank=kv_lora_rank, qk_rope_head_dim=qk_rope_head_dim, batch=batch)
    _whole(0, tokens=tokens)
    return _bytes(n_layers * (kv_lora_rank + qk_rope_head_dim) * tokens * batch, bytes_per_element)


# ---- parameters


@dataclass(frozen=True)
class Parameters:
    """Unique parameters by part; `head` is 0 when it is the embedding. total = the sum of the parts; active: per token.

    attention includes biases and QK-norm gains; ffn includes routers; counted: parts that the block does not run.
    """

    total: int
    embedding: int
    head: int
    attention: int
    ffn: int
    norms: int
    counted: int
    active: int


def _attention(d, a):
    """(matrix entries, the rest): the first cost a multiply and an add for each token, the rest are biases and gains."""
    if a is None:
        return 0, 0
    if isinstance(a, MLA):
        width = a.n_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim)
        latent = a.kv_lora_rank + a.qk_rope_head_dim
        query = d * width if a.q_lora_rank is None else a.q_lora_rank * (d + width)
        expand = a.kv_lora_rank * a.n_heads * (a.qk_nope_head_dim + a.v_head_dim)
        matrices = query + d * latent + expand + a.n_heads * a.v_head_dim * d
        biases = (latent + d + (a.q_lora_rank or 0)) if a.bias else 0
        return matrices, biases + a.kv_lora_rank * a.latent_norm + (a.q_lora_rank or 0)
    q, k, v = a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim, a.n_kv_heads * a.d_v
    out = a.n_heads * a.d_v
    gains = {False: 0, "width": q + k}.get(a.qk_norm, 2 * a.head_dim)
    return d * (q + k + v + out), (q + k + v) * a.bias + d * a.out_bias + gains


def _ffn(d, f, experts=None):
    """(matrix entries, biases) of a feed-forward layer; `experts` of a MoE's experts (None = all of them)."""
    if f is None:
        return 0, 0
    matrices = 3 if f.gated else 2
    if isinstance(f, Dense):
        return matrices * d * f.d_ff, ((matrices - 1) * f.d_ff + d) * f.bias
    used = f.experts if experts is None else experts
    return matrices * (used * f.d_ff * (f.d_in or d) + f.shared_d_ff * d) + d * f.experts, 0


def _norm(cfg):
    return cfg.d * (cfg.norm.gain + cfg.norm.bias)


def parameters(cfg):
    """Parameters(total, embedding, head, attention, ffn, norms, counted, active): unique weights, a tied head once.

    active: what one token's forward pass uses: of the experts only those that it is sent to (the embedding counts whole).
    """
    _model(cfg)
    embedding = cfg.V * cfg.d
    attention = sum(sum(_attention(cfg.d, layer.attention)) for layer in cfg.layers)
    ffn = sum(sum(_ffn(cfg.d, layer.ffn)) for layer in cfg.layers)
    idle = sum(
        sum(_ffn(cfg.d, f)) - sum(_ffn(cfg.d, f, f.active))
        for layer in cfg.layers
        if isinstance(f := layer.ffn, MoE)
    )
    norms = _norm(cfg) * (1 + sum(layer.n_norms for layer in cfg.layers))
    parts = [c for layer in cfg.layers for c in layer.counted] + list(cfg.counted)
    counted = sum(c.parameters for c in parts)
    idle += sum(c.parameters - c.active for c in parts if c.active is not None)
    head = 0 if cfg.tied else cfg.head_rows * cfg.d
    total = embedding + head + attention + ffn + norms + counted
    return Parameters(total, embedding, head, attention, ffn, norms, counted, total - idle)


# ---- the cache


def _kv_elements(a):
    if a is None:
        return 0
    if isinstance(a, MLA):
        return a.kv_lora_rank + a.qk_rope_head_dim
    return a.n_kv_heads * (a.head_dim + a.d_v)


def _kept(layer, tokens):
    window = layer.attention.window if isinstance(layer.attention, GQA) else None
    return min(tokens, window) if window else tokens


def kv_elements_per_token(cfg):
    """Numbers that one more token adds to the cache, all layers, windows ignored (what a new token costs while they fill)."""
    _model(cfg)
    return sum(_kv_elements(layer.attention) for layer in cfg.layers)


def kv_bytes_per_token(cfg, bytes_per_element=2):
    """kv_elements_per_token in bytes (2 = bf16 or fp16)."""
    return _bytes(kv_elements_per_token(cfg), bytes_per_element)


def kv_bytes(cfg, tokens, batch=1, bytes_per_element=2, capped=True):
    """Bytes of keys and values for `batch` sequences of `tokens`; capped: a window layer keeps min(window, tokens).

    capped=False is what an engine reserves that gives every layer the full length.
    """
    _model(cfg)
    _whole(0, tokens=tokens)
    _whole(batch=batch)
    kept = (
        (_kv_elements(layer.attention), _kept(layer, tokens) if capped else tokens) for layer in cfg.layers
    )
    return _bytes(batch * sum(elements * length for elements, length in kept), bytes_per_element)


def _divide(a, gpus):
    """Whether query heads divide by gpus, and KV heads by gpus or gpus by KV heads."""
    n = a.n_kv_heads
    return a.n_heads % gpus == 0 and max(n, gpus) % min(n, gpus) == 0


def _on_gpu(a, gpus):
    if not isinstance(a, GQA):
        return _kv_elements(a)
    if not _divide(a, gpus):
        fits = next(g for g in range(gpus, 0, -1) if _divide(a, g))
        raise ValueError(
            f"{a.n_heads} query heads and {a.n_kv_heads} KV heads do not divide evenly over {gpus} GPUs;"
            f" over {fits} they would"
        )
    return max(1, a.n_kv_heads // gpus) * (a.head_dim + a.d_v)


def kv_bytes_per_gpu(cfg, tokens, gpus, batch=1, bytes_per_element=2):
    """sum over layers of max(1, n_kv / gpus) (d_h + d_v) min(window, tokens): bytes on EACH of `gpus` in tensor parallelism.

    KV heads split as far as they go; with fewer heads than GPUs each is kept gpus / n_kv times. MLA's latent belongs to
    all heads at once, so every GPU keeps the whole of it.
    Raises: ValueError where query heads do not divide by gpus, or neither of gpus and KV heads divides the other.
    Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3 (heads split); Shazeer 2019, arXiv 1911.02150 (one KV head).
    """
    _model(cfg)
    _whole(0, tokens=tokens)
    _whole(batch=batch, gpus=gpus)
    total = sum(_on_gpu(layer.attention, gpus) * _kept(layer, tokens) for layer in cfg.layers)
    return _bytes(batch * total, bytes_per_element)


def state_elements(cfg):
    """Numbers of fixed state per sequence (linear attention, Mamba): the same at every length."""
    _model(cfg)
    return sum(c.state_elements for layer in cfg.layers for c in layer.counted)


def extra_kv_elements_per_token(cfg):
    """Numbers per token that a model caches beside its keys and values (an indexer's keys); not in kv_elements_per_token."""
    _model(cfg)
    return sum(c.kv_elements for layer in cfg.layers for c in layer.counted)


def sequence_bytes(cfg, tokens, batch=1, bytes_per_element=2):
    """Everything that `batch` sequences hold: windowed keys and values, extra cached keys, fixed state. In bytes."""
    beside = extra_kv_elements_per_token(cfg) * tokens + state_elements(cfg)
    return kv_bytes(cfg, tokens, batch, bytes_per_element) + _bytes(batch * beside, bytes_per_element)


def naive_kv_elements_per_token(cfg):
    """2 L n_kv (d // h): what the usual calculator says. It reads four fields and ignores the rest.

    h and n_kv as the file states them (cfg.stated_heads); a calculator that finds no n_kv takes h.
    """
    _model(cfg)
    heads = cfg.stated_heads
    if heads is None:
        first = next((layer.attention for layer in cfg.layers if layer.attention is not None), None)
        if first is None:
            return 0
        heads = first.n_heads, getattr(first, "n_kv_heads", first.n_heads)
    return 2 * cfg.n_layers * heads[1] * (cfg.d // heads[0])


# ---- time: FLOPs and bytes


def _matmul_entries(cfg):
    """Matrix entries that one token meets: not the embedding look-up; the head always, tied or not."""
    total = cfg.head_rows * cfg.d
    for layer in cfg.layers:
        used = layer.ffn.active if isinstance(layer.ffn, MoE) else None
        total += _attention(cfg.d, layer.attention)[0] + _ffn(cfg.d, layer.ffn, used)[0]
        total += sum(c.parameters if c.active is None else c.active for c in layer.counted)
    return total


def _score_width(a, absorbed):
    """Multiply-adds per query, key and layer: the scores and the weighted sum of values."""
    if a is None:
        return 0
    if isinstance(a, MLA):
        if absorbed:
            return a.n_heads * (2 * a.kv_lora_rank + a.qk_rope_head_dim)
        return a.n_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)
    return a.n_heads * (a.head_dim + a.d_v)


def flops_per_token(cfg, context=0):
    """FLOPs to decode one token with `context` tokens before it: 2 per matrix entry that it meets, 2 per score term.

    The query sees context + 1 keys, itself among them, at most `window` of them. MLA in its absorbed form. Norms, softmax
    and the recurrence of linear layers are left out: all are small beside the matrices.
    """
    _model(cfg)
    _whole(0, context=context)
    scores = sum(_score_width(layer.attention, True) * _kept(layer, context + 1) for layer in cfg.layers)
    return 2 * (_matmul_entries(cfg) + scores)


def prefill_flops(cfg, tokens, batch=1):
    """FLOPs to read a prompt of `tokens`, causal: query t sees min(t, window) keys. MLA expanded; the head once per sequence."""
    _model(cfg)
    _whole(tokens=tokens, batch=batch)
    scores = 0
    for layer in cfg.layers:
        w = _kept(layer, tokens)
        pairs = w * (w + 1) // 2 + (tokens - w) * w
        scores += _score_width(layer.attention, False) * pairs
    head = cfg.head_rows * cfg.d
    return 2 * batch * ((_matmul_entries(cfg) - head) * tokens + head + scores)


def weight_bytes_per_step(cfg, batch=1, bytes_per_weight=2):
    """Bytes of weights that one decode step reads. Of the experts at most min(experts, batch * active); not the look-up table."""
    _whole(batch=batch)
    p = parameters(cfg)
    read = p.total - (0 if cfg.tied else p.embedding)
    for layer in cfg.layers:
        if isinstance(f := layer.ffn, MoE):
            read -= sum(_ffn(cfg.d, f)) - sum(_ffn(cfg.d, f, min(f.experts, batch * f.active)))
        for c in layer.counted:
            read -= 0 if c.active is None else c.parameters - min(c.parameters, batch * c.active)
    return _bytes(read, bytes_per_weight)


def decode_bytes(cfg, context, batch=1, bytes_per_weight=2, bytes_per_element=2):
    """Bytes that one decode step must read for `batch` sequences: the weights once, every sequence's cache."""
    return weight_bytes_per_step(cfg, batch, bytes_per_weight) + sequence_bytes(
        cfg, context, batch, bytes_per_element
    )


def arithmetic_intensity(cfg, context, batch=1, bytes_per_weight=2, bytes_per_element=2):
    """FLOPs per byte of one decode step. Below a device's own ratio (FLOP/s over B/s) the step waits for memory."""
    flops = batch * flops_per_token(cfg, context)
    return flops / decode_bytes(cfg, context, batch, bytes_per_weight, bytes_per_element)


def decode_seconds(cfg, context, bandwidth, batch=1, bytes_per_weight=2, bytes_per_element=2):
    """Least seconds for one decode step: bytes / bandwidth (bytes per second; a vendor's 1 TB/s is 1e12)."""
    _positive(bandwidth=bandwidth)
    return decode_bytes(cfg, context, batch, bytes_per_weight, bytes_per_element) / bandwidth


def decode_tokens_per_second(cfg, context, bandwidth, batch=1, bytes_per_weight=2, bytes_per_element=2):
    """Most tokens per second, all sequences together, that the bandwidth allows."""
    return batch / decode_seconds(cfg, context, bandwidth, batch, bytes_per_weight, bytes_per_element)


def users_per_device(cfg, device_bytes, tokens, bytes_per_weight=2, bytes_per_element=2):
    """Sequences of `tokens` that fit beside the weights in device_bytes (80 GB is 80 * 10**9); 0 if the weights do not fit.

    Activations, fragmentation and the engine's own memory are left out: a real server holds fewer.
    """
    _whole(1, 10**18, device_bytes=device_bytes)
    _whole(tokens=tokens)
    free = device_bytes - _bytes(parameters(cfg).total, bytes_per_weight)
    each = sequence_bytes(cfg, tokens, 1, bytes_per_element)
    if each == 0:
        raise ValueError(
            "this model keeps no cache and no state: the number of users is not limited by memory"
        )
    return max(0, free // each)


def longest_context(cfg, device_bytes, batch=1, bytes_per_weight=2, bytes_per_element=2):
    """Most tokens for each of `batch` sequences beside the weights; 0 if none; never above 10**9 (windows alone never fill up)."""
    _whole(1, 10**18, device_bytes=device_bytes)
    free = device_bytes - _bytes(parameters(cfg).total, bytes_per_weight)
    low, high = 0, LARGEST
    while low < high:
        middle = (low + high + 1) // 2
        fits = sequence_bytes(cfg, middle, batch, bytes_per_element) <= free
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


# ---- figures that a person reads


def _scaled(value, step, units):
    unit = 0
    while abs(value) >= step - 0.5 and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    text = f"{value:,.0f}" if unit == 0 else f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    return f"{text} {units[unit]}"


def format_bytes(n):
    """Memory in binary units: 70272 -> '68.6 KiB' (1 KiB = 1024 bytes)."""
    return _scaled(n, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_bytes_decimal(n):
    """A vendor's decimal units: 70272 -> '70.3 kB' (1 kB = 1000 bytes)."""
    return _scaled(n, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def format_count(n):
    """A count in words: 596049920 -> '596 million'."""
    return _scaled(n, 1000, ("", "thousand", "million", "billion", "trillion")).strip()
