"""What a config.json implies, as a page that a person reads, and as JSON: python -m lib describe PATH."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from .. import arithmetic as a
from ..config import MLA
from . import read_config
from .implied import BANDWIDTH, Facts, as_json, count_of, distinct, why_naive_fails

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


def _positions(f):
    n, lines = len(f.attention), []
    learned = any(c.name == "learned positions" for c in f.cfg.counted)
    for x, layers in Counter(
        (x.rope, x.qk_rope_head_dim if isinstance(x, MLA) else x.head_dim) for x in f.attention
    ).items():
        rope, width = x
        where = "" if layers == n else f", {layers} of {n} attention layers"
        if rope is None:
            lines.append("learned, added to the embedding" if learned else f"none (NoPE){where}")
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


def _row(label, text):
    return f"  {label:<14} {text}"


def _block(f):
    cfg = f.cfg
    qk = next((x.qk_norm for x in f.gqa if x.qk_norm), False)
    rows = [
        ("norm", [_norm(cfg)], "LayerNorm before each part"),
        ("feed-forward", _ffn(f), "GELU, 2 matrices, 4 d"),
        ("attention", _attention(f), "MHA"),
        ("positions", _positions(f), "learned, added"),
        ("windows", [_windows(f)], "none"),
        (
            "QK-norm",
            [
                "over the whole width"
                if qk == "width"
                else "each head's q and k"
                if qk
                else "of the latents"
                if f.mla
                else "none"
            ],
            "none",
        ),
        ("biases", [_biases(f)], "everywhere"),
        ("head", ["the embedding itself (tied)" if cfg.tied else "a matrix of its own"], "tied"),
    ]
    rows.insert(0, ("", ["this model"], "the 2019 block (GPT-2)"))
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
                "  the embedding, counted once"
                if label == "head" and not value
                else f"{value / p.total:>8.1%}"
            )
            lines.append(f"  {label:<15}{value:>19,}{note}")
    return lines


def _cache(cfg, tokens, batch):
    per_token, naive = a.kv_elements_per_token(cfg), a.naive_kv_elements_per_token(cfg)
    capped, full = a.kv_bytes(cfg, tokens, batch), a.kv_bytes(cfg, tokens, batch, capped=False)
    each = f"{tokens:,} tokens" + (f" x {batch}" if batch > 1 else "")
    lines = [
        _row("one token", f"{per_token:,} elements, {a.format_bytes(a.kv_bytes_per_token(cfg))} in bf16"),
        _row(
            each,
            f"{a.format_bytes(capped)}"
            + (f"; {a.format_bytes(full)} if windows were not used" if full != capped else ""),
        ),
    ]
    if tokens > cfg.max_len:
        lines.append(_row("", f"beyond the {cfg.max_len:,} tokens that the file declares"))
    if extra := a.extra_kv_elements_per_token(cfg):
        lines.append(_row("beside it", f"{extra:,} elements per token of an indexer"))
    if state := a.state_elements(cfg):
        lines.append(
            _row(
                "fixed state",
                f"{state:,} elements per sequence, {a.format_bytes(2 * state)} in bf16, at any length",
            )
        )
    reasons = why_naive_fails(cfg, tokens)
    guess = 2 * naive * tokens * batch
    if naive == per_token and guess == capped:
        lines.append(_row("usual formula", "2 L n_kv (d / h) is right for this model"))
        return lines
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
    lines.append(_row("usual formula", said))
    return lines + [_row("", f"- {reason}") for reason in reasons]


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


def page(cfg, tokens=131072, batch=1, bandwidth=BANDWIDTH, name=""):
    """The description as text."""
    f = Facts(cfg)
    title = f"{name + ': ' if name else ''}{cfg.model_type or 'a model'}, {cfg.n_layers} layers, d = {cfg.d:,}, V = {cfg.V:,}"
    lines = [title, "", "The block", *_block(f), "", "Parameters", *_parameters(cfg)]
    lines += ["", "The cache", *_cache(cfg, tokens, batch)]
    who = "one sequence" if batch == 1 else f"{batch} sequences"
    lines += ["", f"One decode step, {who} of {tokens:,} tokens", *_time(cfg, tokens, batch, bandwidth)]
    names = list(
        dict.fromkeys(
            [
                *cfg.unsupported,
                *(c.name for c in cfg.counted),
                *(c.name for x in cfg.layers for c in x.counted),
            ]
        )
    )
    lines += ["", "This book's block", f"  {'does not run: ' + ', '.join(names) if names else 'runs it'}"]
    if cfg.warnings:
        lines += ["", "Read with care", *(f"  - {warning}" for warning in cfg.warnings)]
    return "\n".join(lines)


def _name(path):
    path = Path(path)
    return (
        path.resolve().name
        if path.is_dir()
        else path.parent.resolve().name
        if path.name == "config.json"
        else path.stem
    )


def main(argv=None):
    """python -m lib describe. Returns the exit code: 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m lib describe", description="Which block a config describes, and what it costs."
    )
    parser.add_argument("path", metavar="PATH", help="a config.json, a model folder, or a .gguf file")
    parser.add_argument("--tokens", type=int, default=131072, help="tokens in each sequence (131072)")
    parser.add_argument("--batch", type=int, default=1, help="sequences (1)")
    parser.add_argument(
        "--bandwidth",
        type=float,
        default=BANDWIDTH / 1e9,
        metavar="GB/S",
        help="memory bandwidth in GB per second (1000)",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    args = parser.parse_args(argv)
    try:
        cfg = read_config(args.path)
        options = args.tokens, args.batch, args.bandwidth * 1e9
        if args.json:
            text = json.dumps(as_json(cfg, *options), indent=2)
        else:
            text = page(cfg, *options, name=_name(args.path))
    except (ValueError, OSError) as error:
        print(f"describe: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(text)
    return 0
