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
