"""The port doctor's chart: what a fault in RoPE does to a model, position by position.

    ids, _ = excerpts(text, tokenizer, n=3, length=288)          # book.evidence
    states = {name: run(model, ids, name) for name in FAULTS}
    for name, (kl, loss) in curves(model, ids, states).items(): ...

Each fault is a table, a layout or a run of positions; weights stay as they are. The model is a half-split one without scaling.
"""

from dataclasses import replace
from math import pi

import torch

FAULTS = (
    "right",
    "wrong layout",
    "base a tenth",
    "scaling left out",
    "positions in bf16",
    "cache restarted",
)
PROMPT = 64  # tokens in the cache when the positions start again at 0
FACTOR = 8.0  # scaling left out: pairs that turn less than once in SHORT tokens are so many times too fast
SHORT = 8192
# Positions are told in groups, [first, after the last); 257 is the first whole number that bfloat16 does not have.
GROUPS = ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 80), (80, 128), (128, 192), (192, 257), (257, 272), (272, 287))  # fmt: skip
MOST = 10  # positions looked at in one group, evenly spaced


def positions_and_frequencies(fault, base, width, T):
    """(positions [T], theta [width/2]) in float32 for a model of this base that has the fault."""
    from lib import inv_freq

    n = torch.arange(T).float()
    theta = torch.tensor(inv_freq(width, base / 10 if fault == "base a tenth" else base))
    if fault == "scaling left out":
        theta = torch.where(SHORT * theta / (2 * pi) < 1, FACTOR * theta, theta)
    if fault == "positions in bf16":
        n = n.bfloat16().float()
    if fault == "cache restarted":
        n = torch.where(n < PROMPT, n, n - PROMPT)
    return n, theta


@torch.no_grad()
def run(model, ids, fault):
    """What the head is given for ids [B, T] by a model with this fault: [B, T, d]. The model itself stays as it is.

    Raises: ValueError for an unknown fault.
    """
    if fault not in FAULTS:
        raise ValueError(f"fault {fault!r}: expected one of {', '.join(FAULTS)}")
    attention = model.config.layers[0].attention
    n, theta = positions_and_frequencies(fault, attention.rope.base, attention.head_dim, ids.shape[1])
    angles = torch.outer(n, theta)
    fields = [block.attn.fields for block in model.blocks]
    try:
        x = model.emb(ids)
        for block, own in zip(model.blocks, fields, strict=True):
            layout = "adjacent" if fault == "wrong layout" else own.rope.layout
            block.attn.fields = replace(own, rope=replace(own.rope, layout=layout))
            x = block(x, angles.cos(), angles.sin())
        return model.norm(x)
    finally:
        for block, own in zip(model.blocks, fields, strict=True):
            block.attn.fields = own


@torch.no_grad()
def curves(model, ids, states, groups=GROUPS):
    """{fault: (KL from the right model, loss minus the right model's)}, both [groups], nats, means over excerpts and positions.

    states: {fault: what `run` gave}, "right" among them. Position t is the prediction of ids[:, t + 1].
    """
    head = model.emb.weight if model.head is None else model.head.weight
    made = {name: torch.zeros(2, len(groups)) for name in states}
    for i, (first, end) in enumerate(groups):
        at = torch.linspace(first, end - 1, min(MOST, end - first)).round().long()
        wanted = ids[:, at + 1, None]
        right = (states["right"][:, at] @ head.T).log_softmax(-1)
        for name, x in states.items():
            other = (x[:, at] @ head.T).log_softmax(-1)
            made[name][0, i] = (right.exp() * (right - other)).sum(-1).mean().clamp(min=0)  # rounding
            made[name][1, i] = (right - other).gather(-1, wanted).mean()
    return {name: (kl, loss) for name, (kl, loss) in made.items()}
