"""One training run: a variant, a learning rate, a seed -> what was measured, as a dictionary that JSON can
hold.

Chosen before anything was run, the same for every variant, and not tuned since: AdamW (betas 0.9, 0.95;
weight decay 0.1 on matrices), gradients clipped to norm 1, linear warm-up over the first tenth of the
steps, then a cosine down to a tenth of the peak, no dropout. A run reads the beginning of the training
text once, window by window, in an order that depends on the seed alone: all variants of a seed see the
same batches.
"""

import math
from contextlib import contextmanager

import torch
import torch.nn.functional as F

from book.experiments.variants import SIZES, build, count
from lib.attention import GQAttention, causal_mask, repeat_kv

BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
WARM_UP, FLOOR = 0.1, 0.1  # shares of the steps and of the peak
WINDOWS = 128  # of the held-out text, max_len bytes each, the same in every run
PROBES = 2  # of those windows: where the attention logits are looked at


def schedule(step, steps, peak):
    """The learning rate of a step (0 .. steps - 1)."""
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return peak * (step + 1) / warm
    done = (step - warm) / max(1, steps - 1 - warm)
    return peak * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))


def as_bytes(text):
    """bytes -> int64 token ids [n]; the vocabulary is the 256 bytes."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def batches(ids, steps, batch, length, seed):
    """The [batch, length + 1] windows of every step: the text's first windows, each once, in an order that
    the seed decides.

    Raises: ValueError if the text has fewer than steps * batch * length + 1 bytes.
    """
    n = steps * batch
    if len(ids) < n * length + 1:
        raise ValueError(
            f"a training text of {len(ids):,} bytes: {steps} steps of {batch} windows read"
            f" {n * length + 1:,} once"
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(10_000 + seed))
    yield from windows(ids, length, n)[order].split(batch)


def windows(ids, length, n):
    """The first n windows of length + 1, each beginning at the last byte of the one before: every byte is
    predicted once."""
    n = min(n, (len(ids) - 1) // length)
    return ids[torch.arange(n)[:, None] * length + torch.arange(length + 1)]


def loss_of(model, x):
    """Mean cross-entropy in nats of windows [B, T + 1]."""
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten())


@torch.no_grad()
def bits_per_byte(model, held_out):
    """Mean over the held-out windows, in bits."""
    losses = [loss_of(model, part).item() * len(part) for part in held_out.split(16)]
    return sum(losses) / len(held_out) / math.log(2)


@contextmanager
def _listening(model, heard):
    """Each attention layer's inputs, while the model runs."""
    hooks = [
        m.register_forward_pre_hook(lambda m, args: heard.append((m, args)))
        for m in model.modules()
        if isinstance(m, GQAttention)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def attention_state(model, x):
    """The attention logits of windows x [B, T]: (largest |logit|, mean entropy, entropy of the most
    decided layer), nats.

    A logit is what the softmax gets: q k / sqrt(dh) where the mask allows it. Entropies are over the later
    half of the queries, each of which has at least T / 2 keys.
    """
    heard, largest, entropies = [], [], []
    with _listening(model, heard):
        model(x)
    for attention, args in heard:
        fields = attention.fields
        q, k, _ = attention.project(*args[:3])
        scale = fields.head_dim**-0.5 if fields.scale is None else fields.scale
        logits = q @ repeat_kv(k, fields.group_size).transpose(-1, -2) * scale  # [B, h, T, T]
        columns = torch.arange(x.shape[1])
        mask = causal_mask(columns, columns)
        largest.append(logits[..., mask].abs().max().item())
        p = logits.masked_fill(~mask, float("-inf")).softmax(-1)[..., x.shape[1] // 2 :, :]
        entropies.append(torch.special.entr(p).sum(-1).mean().item())
    return max(largest), sum(entropies) / len(entropies), min(entropies)


def _number(x, digits=5):
    """A JSON number; None for what is not finite."""
    return round(x, digits) if math.isfinite(x) else None


def train(
    variant,
    lr,
    seed,
    train_ids,
    held_out_ids,
    steps,
    batch=4,
    sizes=SIZES,
    probe_every=16,
    checks=2,
    step=None,
):
    """Train one variant. `step` is called after each step.

    Returns loss (each step's training loss, nats), held_out ([step, bits per byte], `checks` times, the
    last at the end), probes ([step, largest logit, entropy, lowest layer entropy] each `probe_every`
    steps, before that step's update, and at the end). A loss that is not finite ends the run; "finished"
    says whether it reached the last step.
    """
    length = sizes["max_len"]
    model = build(variant, sizes, seed)
    held_out = windows(held_out_ids, length, WINDOWS)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=BETAS)
    due = {round(steps * (i + 1) / checks) for i in range(checks)}
    losses, checked, probes = [], [], []

    def probe(at):
        probes.append([at, *(_number(v, 4) for v in attention_state(model, held_out[:PROBES, :-1]))])

    for at, x in enumerate(batches(train_ids, steps, batch, length, seed)):
        if at % probe_every == 0:
            probe(at)
        for group in optimizer.param_groups:
            group["lr"] = schedule(at, steps, lr)
        loss = loss_of(model, x)
        losses.append(_number(loss.item(), 4))
        if losses[-1] is None:
            break
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if at + 1 in due:
            checked.append([at + 1, _number(bits_per_byte(model, held_out))])
        if step is not None:
            step()
    probe(len(losses))
    return {
        "parameters": count(model), "finished": losses[-1] is not None, "loss": losses, "held_out": checked,
        "bits_per_byte": checked[-1][1] if len(losses) == steps and checked else None, "probes": probes,
    }  # fmt: skip
