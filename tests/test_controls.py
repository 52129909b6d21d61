"""Every claim about behaviour beside its control: the claim's check passes on the real thing and FAILS on the control.

A control differs in what the claim names alone (same shapes, norms, data, seeds), and fails by value. `pytest tests/test_controls.py -s`
prints the table. About 10 s, most of it SmolLM2's first eight blocks.
"""

import functools
import math

import pytest
import torch
from torch.nn import functional as F

import lib
from book.evidence import excerpts, held_out_purity, layer_inputs, same_size
from book.experiments import load_results, table_curves

ROWS = {}


def claim(chapter, text, control, threshold, *, below=False):
    """Registers function(which) -> value, which is "real" or "control". The claim is value > threshold, or < where `below`."""

    def keep(measure):
        ROWS[f"{chapter}-{measure.__name__}"] = (text, control, threshold, below, measure)
        return measure

    return keep


@functools.cache
def middle_layer():
    """Inputs of SmolLM2's ninth feed-forward part on eight excerpts, which tokens begin with a capital, and its gate."""
    from book.corpus import load_corpus

    folder = lib.find_model()
    model = lib.load_model(folder, torch.float32)
    ids, words = excerpts(load_corpus().decode(), lib.load_tokenizer(folder))
    x = layer_inputs(model, ids, 8)[:, 1:].flatten(0, 1).double()
    capital = torch.tensor([word.strip()[:1].isupper() for piece in words for word in piece[1:]])
    return x, capital, model.blocks[8].ffn.w_gate.weight.detach().double()


@claim(
    "02",
    "the trained gate's features pick capitals on a text they were not chosen on",
    "a random gate of the same row norms",
    0.5,
)
def gate(which):
    x, capital, w = middle_layer()
    return held_out_purity(x @ (w if which == "real" else same_size(w, 1)).T, capital)[1]


@claim(
    "02",
    "two features multiply, at any size of the input",
    "16 GELU units fitted to the product",
    1e-9,
    below=True,
)
def product(which):
    g = torch.Generator().manual_seed(3)
    z, u = torch.randn(2, 2000, generator=g, dtype=torch.float64)
    if which == "real":
        made = F.silu(3 * z) * 3 * u - F.silu(-3 * z) * 3 * u
    else:
        w = torch.randn(2, 16, generator=g, dtype=torch.float64)
        x = torch.stack([z, u], 1)
        made = (F.gelu(3 * x @ w) @ torch.linalg.lstsq(F.gelu(x @ w), (z * u)[:, None]).solution)[:, 0]
    return ((made - 9 * z * u).norm() / (9 * z * u).norm()).item()


@claim("02", "a feature's value changes across its gate's direction", "a GELU unit", 1.0)
def saddle(which):
    t = torch.linspace(-1, 1, 41, dtype=torch.float64)
    x1, x2 = 1 + 0.5 * t, 0.5 - t
    z = x1 + 0.5 * x2
    value = F.silu(z) * (0.5 * x1 - x2) if which == "real" else F.gelu(z)
    return (value.max() - value.min()).item()


# ---- SmolLM2's attention


@functools.cache
def attention_rows():
    """Weights of SmolLM2's 270 heads on a short text, and the length of every token's stream before each block."""
    folder = lib.find_model()
    model = lib.load_model(folder)
    text = "The old lighthouse keeper climbed the stairs every evening. When the light was burning, he wrote one line in his book."
    idx = torch.tensor([lib.load_tokenizer(folder).encode(text).ids])
    T = idx.shape[1]
    cos, sin = lib.rope_cache(T, 64, 100_000.0)
    mask = lib.causal_mask(torch.arange(T), torch.arange(T))
    x, weights, streams = model.emb(idx), [], []
    with torch.no_grad():
        for block in model.blocks:
            q, k, _ = block.attn.project(block.attn_norm(x), cos, sin)
            s = (q @ lib.repeat_kv(k, 3).transpose(-1, -2) / 8)[0].masked_fill(~mask, -torch.inf)
            weights.append(s.softmax(-1)[:, T // 2 :])
            streams.append(x[0].square().mean(-1).sqrt())
            x = block(x, cos, sin)
    return torch.stack(weights), torch.stack(streams)


@claim(
    "07", "a third of the heads put more than half of their weight on the first token", "the second token", 60
)
def sinks(which):
    weights, _ = attention_rows()
    return float((weights[..., 0 if which == "real" else 1].mean(-1) > 0.5).sum())


@claim("07", "one token's stream is far longer than the others' from the middle on", "the second token's", 20)
def massive(which):
    _, streams = attention_rows()
    return (streams[15, 0 if which == "real" else 1] / streams[15, 2:].median()).item()


# ---- the training runs


def ends(name, variant, lr=None):
    runs = load_results(name, quiet=True)["runs"]
    return torch.tensor(
        [r["bits_per_byte"] for r in runs if r["variant"] == variant and lr in (None, r["lr"])]
    )


def at_step(name, variant, step):
    """Mean held-out bits at a step, and the bigram table of the bytes read until then."""
    runs = [r for r in load_results(name, quiet=True)["runs"] if r["variant"] == variant]
    return sum(dict(map(tuple, r["held_out"]))[step] for r in runs) / len(runs), table_curves([step], name)[
        0
    ][1]


@claim(
    "07",
    "with QK-norm a rate ten times too large still beats a bigram table (bits below it)",
    "without QK-norm",
    0.0,
)
def rate(which):
    return (
        table_curves([256], "rates")[0][1]
        - ends("rates", "modern" if which == "real" else "no_qk_norm", 3e-2).mean().item()
    )


@pytest.mark.parametrize("name", ROWS)
def test_the_claim_holds_and_its_control_fails(name):
    text, control, threshold, below, measure = ROWS[name]
    real, other = measure("real"), measure("control")
    print(
        f"\n{name:<14} {real:10.3g} {'<' if below else '>'} {threshold:g} : {text}\n{'':<14} {other:10.3g}     control: {control}"
    )
    assert (real < threshold) if below else (real > threshold)
    assert not ((other < threshold) if below else (other > threshold))
    assert math.isfinite(other), "a control fails by its value"
