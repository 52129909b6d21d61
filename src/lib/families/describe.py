"""What a config.json implies, as a page that a person reads: python -m lib describe PATH."""

import textwrap
from collections import Counter

from .. import arithmetic as a
from ..config import MLA
from .config_file import show
from .implied import (
    BANDWIDTH,
    Facts,
    added,
    cache_kinds,
    count_of,
    counted_parts,
    distinct,
    lengths,
    not_counted,
    not_run,
    stated_fields,
    why_naive_fails,
)

# ---- the page


def _norm(cfg):
    kind = "RMSNorm" if cfg.norm.kind == "rms" else "LayerNorm"
    if cfg.norm.unit_offset:
        kind += ", gain 1 + w"
    if cfg.norm.kind == "layer" and not cfg.norm.bias:
        kind += ", no shift" if cfg.norm.gain else ", no weights"
    places = {
        "pre": "before each part",
        "post": "after each part, before the sum",
        "sandwich": "before and after each part",
        "parallel": "one, before both parts at once",
        "parallel2": "two, before both parts at once",
    }
    seen = Counter(layer.norms for layer in cfg.layers)
    return f"{kind}; {' / '.join(places[place] for place in seen)}"


_NAMES = {
    ("silu", True): "SwiGLU", ("gelu", True): "GeGLU", ("gelu_tanh", True): "GeGLU", ("relu", True): "ReGLU",
    ("silu", False): "SiLU", ("gelu", False): "GELU", ("gelu_tanh", False): "GELU", ("relu", False): "ReLU",
    ("relu2", False): "squared ReLU", ("relu2", True): "squared-ReLU GLU",
    ("xielu", False): "xIELU", ("xielu", True): "xIELU GLU",
}  # fmt: skip


def _widths(values, d):
    seen = distinct(values)
    if isinstance(seen, list):
        return f"d_ff from {seen[0]:,} to {seen[-1]:,} ({seen[0] / d:.2f} to {seen[-1] / d:.2f} d)"
    return f"d_ff {seen:,} = {seen / d:.2f} d"


def _ffn(f):
    lines, d, n = [], f.cfg.d, f.cfg.n_layers
    if f.dense:
        x = f.dense[0]
        where = "" if len(f.dense) == n else f" in {count_of(f.dense, n)}"
        lines.append(
            f"{_NAMES[x.activation, x.gated]}, {3 if x.gated else 2} matrices, {_widths([y.d_ff for y in f.dense], d)}{where}"
        )
    if f.moe:
        x = f.moe[0]
        shared = f", and a shared part of {x.shared_d_ff:,}" if x.shared_d_ff else ""
        where = "" if len(f.moe) == n else f" in {count_of(f.moe, n)}"
        lines.append(
            f"{x.active} of {x.experts} experts, {3 if x.gated else 2} matrices, {_widths([y.d_ff for y in f.moe], d)}{shared}{where}"
        )
    return lines or ["none"]


def _attention(f):
    n, lines = f.cfg.n_layers, []
    for x, layers in Counter(f.shapes()).items():
        where = "" if layers == n else f", in {layers} of {n} layers"
        lines.append(x + where)
    for name, layers in Counter(
        c.name for layer in f.cfg.layers for c in layer.counted if c.state_elements
    ).items():
        lines.append(f"{name}, in {layers} of {n} layers: a fixed state, no cache")
    idle = sum(
        layer.attention is None and not any(c.state_elements for c in layer.counted) for layer in f.cfg.layers
    )
    if idle:
        lines.append(f"none at all in {idle} of {n} layers")
    return lines or ["none"]


_NOT_ROPE = {
    "learned positions": "learned, added to the embedding",
    "ALiBi positions": "ALiBi: the score falls with the distance, by a slope per head",
}


def _positions(f):
    n, lines = len(f.attention), []
    for x, layers in Counter(
        (x.rope, x.qk_rope_head_dim if isinstance(x, MLA) else x.head_dim) for x in f.attention
    ).items():
        rope, width = x
        where = "" if layers == n else f", {layers} of {n} attention layers"
        if rope is None:
            lines.append(_NOT_ROPE.get(f.positions, f.positions) or f"none (NoPE){where}")
            continue
        share = f", {rope.rotary_dim} of {width} dimensions turn" if rope.rotary_dim else ""
        s = rope.scaling
        stretch = f", {s.kind} scaling x{s.factor:g}" if s else ""
        since = f" beyond {s.original_max_len:,}" if s and s.original_max_len else ""
        pairs = "adjacent pairs" if rope.layout == "adjacent" else "half-split pairs"
        lines.append(f"RoPE, base {rope.base:,.0f}{stretch}{since}{share}, {pairs}{where}")
    return lines or ["none"]


def _windows(f):
    if not f.windows:
        return "none: every attention layer sees the whole past"
    parts = [
        f"{width:,} tokens in {n} of {len(f.attention)} attention layers"
        for width, n in sorted(Counter(f.windows).items())
    ]
    return "; ".join(parts)


def _biases(f):
    parts = [name for name, on in (("q, k, v", any(getattr(x, "bias", False) for x in f.attention)),
                                   ("o", any(getattr(x, "out_bias", False) for x in f.gqa)),
                                   ("feed-forward", any(x.bias for x in f.dense))) if on]  # fmt: skip
    return ", ".join(parts) or "none"


def _qk_norm(f):
    said = {"width": "over the whole width", "head": "each head's q and k"}
    return said.get(f.qk_norm, f.qk_norm) or ("of the latents" if f.mla else "none")


def _head(cfg):
    if cfg.labels is None:
        return "the embedding itself (tied)" if cfg.tied else "a matrix of its own"
    return f"a score row for each of {cfg.labels} labels" if cfg.labels else "none: a base model"


def _row(label, text):
    return f"  {label:<14} {text}"


def block_rows(f):
    """(label, lines about this model, what the 2019 block has)."""
    cfg = f.cfg
    return [
        ("norm", [_norm(cfg)], "LayerNorm before each part"),
        ("feed-forward", _ffn(f), "GELU, 2 matrices, 4 d"),
        ("attention", _attention(f), "MHA"),
        ("positions", _positions(f), "learned, added"),
        ("windows", [_windows(f)], "none"),
        (
            "QK-norm",
            [_qk_norm(f)],
            "none",
        ),
        ("biases", [_biases(f)], "everywhere"),
        ("head", [_head(cfg)], "tied"),
    ]


def _block(f):
    rows = [("", ["this model"], "the 2019 block (GPT-2)"), *block_rows(f)]
    width = min(96, max(len(_row("", texts[0])) for _, texts, _ in rows))
    lines = []
    for label, texts, beside in rows:
        lines.append(f"{_row(label, texts[0]):<{width}}   {beside}")
        lines += [_row("", text) for text in texts[1:]]
    return lines


def _parameters(cfg):
    p = a.parameters(cfg)
    lines = [_row("total", f"{p.total:,} ({a.format_count(p.total)}), {a.format_bytes(2 * p.total)} in bf16")]
    if p.active != p.total:
        lines.append(_row("active", f"{p.active:,} ({a.format_count(p.active)}) for each token"))
    for label, value in (("embedding", p.embedding), ("head", p.head), ("attention", p.attention), ("feed-forward", p.ffn),
                         ("norms", p.norms), ("other parts", p.counted)):  # fmt: skip
        if value or label == "head":
            note = (
                ("  the embedding, counted once" if cfg.tied else "  none")
                if label == "head" and not value
                else f"{value / p.total:>8.1%}"
            )
            lines.append(f"  {label:<15}{value:>19,}{note}")
    return lines


def _columns(label, cells):
    return f"  {label:<47}" + "".join(f"{cell:>13}" for cell in cells)


def _sizes(label, per_token, at):
    return _columns(label, [a.format_bytes(per_token), *map(a.format_bytes, at)])


def _cache(cfg, tokens, batch, gpus):
    """The table: kinds of layer, per token and at three lengths, together, and on each of several GPUs."""
    kinds, at = cache_kinds(cfg, tokens, batch, gpus), lengths(tokens)
    together, each = added(kinds, "bytes_at"), added(kinds, "bytes_at_per_gpu")
    lines = [_columns("", ["per token", *(f"at {t:,}" for t in at)])]
    for kind in kinds:
        label = f"{kind['kind']} in {kind['layers']} of {cfg.n_layers} layers"
        lines.append(_sizes(label, kind["bytes_per_token"], kind["bytes_at"]))
        fields = ", ".join(f"{key} {value:,}" for key, value in kind["fields"].items())
        lines.append(f"    {kind['formula']}{'; ' if fields else ''}{fields}")
    if not kinds:
        return [*lines, _columns("nothing is cached", [])]
    lines.append(_sizes("together, on one GPU", added(kinds, "bytes_per_token"), together))
    if any(layer.attention and getattr(layer.attention, "window", None) for layer in cfg.layers):
        lines.append(_sizes("if windows were not used", a.kv_bytes_per_token(cfg), [
            a.sequence_bytes(cfg, t, batch) - a.kv_bytes(cfg, t, batch) + a.kv_bytes(cfg, t, batch, capped=False) for t in at
        ]))  # fmt: skip
    label = f"on each of {gpus} GPUs"
    lines.append(
        _columns(label, ["see below"])
        if each is None
        else _sizes(label, added(kinds, "bytes_per_token_per_gpu"), each)
    )
    lines += [f"    {kind['kind']}: {kind['spread']}" for kind in kinds]
    return lines


def _usual(cfg, tokens, batch):
    """The usual formula beside the truth, and why it differs."""
    per_token, naive = a.kv_elements_per_token(cfg), a.naive_kv_elements_per_token(cfg)
    capped, guess = a.kv_bytes(cfg, tokens, batch), 2 * naive * tokens * batch
    beyond = f"beyond the {cfg.max_len:,} tokens that the file declares"
    lines = [_row(f"at {tokens:,}", beyond)] if tokens > cfg.max_len else []
    if naive == per_token and guess == capped:
        return [*lines, _row("usual formula", "2 L n_kv (d / h) is right for this model")]
    ratio = (
        "right"
        if naive == per_token
        else f"{naive / per_token:.3g} times the truth"
        if per_token
        else "the truth is 0"
    )
    said = f"2 L n_kv (d / h) says {naive:,} per token ({ratio})"
    if capped and guess != capped:
        said += f", {a.format_bytes(guess)} ({guess / capped:.3g} times)"
    return [
        *lines, _row("usual formula", said), *(_row("", f"- {reason}") for reason in why_naive_fails(cfg, tokens))
    ]  # fmt: skip


def _value(value):
    if isinstance(value, list | dict):
        return f"({len(value)} entries)"
    whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    return f"{int(value):,}" if whole else show(value)


def _fields(cfg):
    """Every field that a number came from, by part; * = not in the file, taken from the class."""
    lines = []
    for group, rows in stated_fields(cfg).items():
        told = [f"{row['key']} {_value(row['value'])}{'*' * (row['from'] == 'class')}" for row in rows]
        told = ", ".join(
            text.replace(" ", "\u00a0") for text in told
        )  # a line ends between fields, never within one
        first, rest = f"  {group:<17}", " " * 19
        wrapped = textwrap.wrap(
            told, 110, initial_indent=first, subsequent_indent=rest, break_long_words=False
        )
        lines += [line.replace("\u00a0", " ") for line in wrapped]
    return lines


def _counted(cfg):
    lines = [
        _row(
            "weights",
            "each once: matrices, biases, gains, routers, all experts; a tied head is the embedding",
        ),
        _row("cache", "keys and values in bf16; a window layer keeps at most its window"),
    ]
    for part in counted_parts(cfg):
        lines.append(_row("", f"{part['name']}: {part['parameters']:,}"))
    return lines + [_row("not", f"{text}") for text in not_counted(cfg)]


def _rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(cfg, tokens, batch, bandwidth):
    moved, weights = a.decode_bytes(cfg, tokens, batch), a.weight_bytes_per_step(cfg, batch)
    seconds = a.decode_seconds(cfg, tokens, bandwidth, batch)
    flops = a.flops_per_token(cfg, tokens)
    return [
        _row(
            "reads",
            f"{a.format_bytes(weights)} of weights and {a.format_bytes(moved - weights)} of cache in bf16",
        ),
        _row(
            "computes",
            f"{batch * flops:.3g} FLOPs, {a.arithmetic_intensity(cfg, tokens, batch):.2f} per byte",
        ),
        _row(
            "bound",
            f"at {a.format_bytes_decimal(bandwidth)}/s not below {1000 * seconds:.3g} ms, not above {_rate(batch / seconds)} tokens/s",
        ),
    ]


def page(cfg, tokens=131072, batch=1, bandwidth=BANDWIDTH, name="", gpus=8):
    """The description as text."""
    f = Facts(cfg)
    title = f"{name + ': ' if name else ''}{cfg.model_type or 'a model'}, {cfg.n_layers} layers, d = {cfg.d:,}, V = {cfg.V:,}"
    lines = [title, "", "The block", *_block(f), "", "Parameters", *_parameters(cfg)]
    who = "one sequence" if batch == 1 else f"{batch} sequences"
    lines += [
        "",
        f"The cache of {who}, in bf16",
        *_cache(cfg, tokens, batch, gpus),
        *_usual(cfg, tokens, batch),
    ]
    lines += ["", f"One decode step, {who} of {tokens:,} tokens", *_time(cfg, tokens, batch, bandwidth)]
    if cfg.fields:
        note = (
            " (* not in the file: the default of the class)"
            if any(x[3] == "class" for x in cfg.fields)
            else ""
        )
        lines += ["", f"The fields behind the numbers{note}", *_fields(cfg)]
    lines += ["", "What is counted", *_counted(cfg)]
    names = ", ".join(not_run(cfg))
    lines += ["", "This book's block", f"  {'does not run: ' + names if names else 'runs it'}"]
    if cfg.warnings:
        lines += ["", "Read with care", *(f"  - {warning}" for warning in cfg.warnings)]
    return "\n".join(lines)
