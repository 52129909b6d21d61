"""What a notebook trains while the reader waits: models of about 70,000 parameters, for seconds."""

import copy

import torch

from book.corpus import load_corpus, split
from book.experiments.training import (
    PROBES,
    as_bytes,
    attention_logits,
    attention_state,
    batches,
    bits_per_byte,
    loss_of,
    train,
    windows,
)

SMALL = {"V": 256, "d": 48, "n_layers": 2, "n_heads": 4, "max_len": 64}


def _texts(text):
    train_text, held_out_text = split(load_corpus() if text is None else text)
    return as_bytes(train_text), as_bytes(held_out_text)[: 32 * 64 + 1]


def quick_run(steps=60, seed=0, variants=("2019", "modern"), text=None):
    """A few seconds of the same training, live, on short windows.

    Returns {variant: {"parameters", "loss" [steps], "bits_per_byte", ..}}. Too small to decide anything:
    it shows the loop.
    """
    ids, held_out = _texts(text)
    return {
        v: train(v, 3e-3, seed, ids, held_out, steps, batch=8, sizes=SMALL, probe_every=steps, checks=1)
        for v in variants
    }


def kicked(variant, factors=(1, 2, 4, 8, 16), size=1e-2, steps=200, seed=0, text=None):
    """What one step of a fixed size does to attention whose W_q and W_k have grown. A small model is trained; then, for each
    factor c, all W_q and W_k are multiplied by c, and each of their weights is moved by `size` against its gradient's sign,
    as the first step of Adam does, however small the gradient.

    Returns a row per factor: {"factor", "moved", "range", "before", "after"}. moved: root mean square over the first layer of how
    far the logits moved, each row less its mean (a softmax does not see it); range: largest minus smallest logit of a row,
    before; before, after: bits per byte of the held-out text.
    Without a norm after W_q and W_k, `moved` grows about as c and the range as c squared; with one, `moved` falls about as 1 / c.
    """
    ids, held_out = _texts(text)
    kept, rows = [], []
    train(
        variant, 3e-3, seed, ids, held_out, steps, batch=8, sizes=SMALL, probe_every=None, checks=1, keep=kept
    )
    judged = windows(held_out, SMALL["max_len"], 32)
    x = next(batches(ids, steps, 8, SMALL["max_len"], seed))
    for factor in factors:
        model = copy.deepcopy(kept[0])
        weights = [w for block in model.blocks for w in (block.attn.wq.weight, block.attn.wk.weight)]
        with torch.no_grad():
            for w in weights:
                w.mul_(factor)
        before, range_ = bits_per_byte(model, judged), attention_state(model, judged[:PROBES, :-1])[3]
        logits = attention_logits(model, judged[:PROBES, :-1])[0]
        gradients = torch.autograd.grad(loss_of(model, x), weights)
        with torch.no_grad():
            for w, g in zip(weights, gradients):
                w.sub_(g.sign(), alpha=size)
        moved = attention_logits(model, judged[:PROBES, :-1])[0] - logits  # [B, h, T, T]
        allowed = torch.ones(moved.shape[-2:], dtype=torch.bool).tril()
        mean = moved.masked_fill(~allowed, 0).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
        rms = (moved - mean)[..., allowed].square().mean().sqrt().item()
        rows.append(
            {
                "factor": factor,
                "moved": rms,
                "range": range_,
                "before": before,
                "after": bits_per_byte(model, judged),
            }
        )
    return rows
