"""One training run: a variant, a learning rate, a seed -> what was measured, as a dictionary that JSON can
hold.

The recipe, the same for every variant: float32, AdamW (betas 0.9, 0.95; weight decay 0.1 on matrices), gradients
clipped to norm 1, linear warm-up over the first tenth of the steps, then a cosine down to a tenth of the peak, no
dropout; 512 bytes an update. A run reads the beginning of the training text once, window by window, in an order that
depends on the seed alone: all variants of a seed see the same batches. RECIPE is raised when any of this, or what a
variant is, changes a run; how fast a step is computed does not (`fast.py`).
"""

import math
from contextlib import contextmanager
from itertools import islice

import torch
import torch.nn.functional as F

from book.experiments.fast import speed_up
from book.experiments.variants import SIZES, build, count
from lib.attention import GQAttention, causal_mask, repeat_kv

RECIPE = 2  # 1: the runs of 128 and 256 steps, before the rates were scanned
BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
WARM_UP, FLOOR = 0.1, 0.1  # shares of the steps and of the peak
WINDOWS = 128  # of the held-out text, max_len bytes each, the same in every run
PROBES = 2  # of those windows: where the attention logits are looked at
KEPT = (1, 2, 4, 8, 16, 32, 64, 128)  # last bytes of the context that stay, the rest is another text's
REACH = 384  # places where that is asked at the end of a run, a third of them on the way
FIRST = 20  # single losses that a run records, to be found again by a test


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
    yield from windows(ids, length, n)[drawn(n, seed)].split(batch)


def drawn(n, seed):
    """The order in which a run of this seed reads its n windows, int64 [n]."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(10_000 + seed))


def windows(ids, length, n):
    """The first n windows of length + 1, each beginning at the last byte of the one before: every byte is
    predicted once."""
    n = min(n, (len(ids) - 1) // length)
    return ids[torch.arange(n)[:, None] * length + torch.arange(length + 1)]


def loss_of(model, x):
    """Mean cross-entropy in nats of windows [B, T + 1]."""
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten())


@torch.no_grad()
def position_bits(model, held_out):
    """Bits of each position's prediction, mean over the held-out windows [W, T + 1] -> float64 [T]."""
    total = 0.0
    for x in held_out.split(16):
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten(), reduction="none")
        total = total + loss.view(len(x), -1).double().sum(0)
    return total / len(held_out) / math.log(2)


def bits_per_byte(model, held_out):
    """Mean over the held-out windows, in bits."""
    return position_bits(model, held_out).mean().item()


@torch.no_grad()
def reach(model, ids, n, length, kept=KEPT):
    """How many bytes back does it read? [[k, bits per byte], ..]: one byte after `length` others is predicted at `n` places of
    `ids`, while all of its context but the last k bytes is taken from another of these places.

    The places, the bytes to predict and the foreign contexts are the same for every k and every model.
    """
    ends = torch.linspace(length, len(ids) - 1, n).long()
    own = ids[ends[:, None] - length + torch.arange(length)]  # [n, length]
    foreign, column, out = own.roll(n // 2, 0), torch.arange(length), []
    for k in kept:
        x = torch.where(column >= length - k, own, foreign)
        logits = torch.cat([model(part)[:, -1] for part in x.split(16)])
        out.append([k, _number(F.cross_entropy(logits.double(), ids[ends]).item() / math.log(2))])
    return out


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


def _attention(model, x):
    """(q [B, h, T, dh], k [B, n_kv, T, dh], logits [B, h, T, T]) of each layer; the logits before the mask."""
    heard = []
    with _listening(model, heard):
        model(x)
    for attention, args in heard:
        fields = attention.fields
        q, k, _ = attention.project(*args[:3])
        scale = fields.head_dim**-0.5 if fields.scale is None else fields.scale
        yield q, k, q @ repeat_kv(k, fields.group_size).transpose(-1, -2) * scale


@torch.no_grad()
def attention_logits(model, x):
    """What each layer's softmax gets, before the mask, for windows x [B, T] -> a list of [B, h, T, T]."""
    return [logits for _, _, logits in _attention(model, x)]


STATE = (
    "largest", "entropy", "lowest_entropy", "range", "mean_range", "gap", "mean_gap", "q_rms", "k_rms",
)  # fmt: skip


@torch.no_grad()
def attention_state(model, x):
    """The attention logits of windows x [B, T], q k / sqrt(dh) where the mask allows it -> the numbers of STATE.

    largest         the largest |logit|: not what saturates a softmax, which does not see a common shift
    entropy         nats, mean over layers; lowest_entropy: of the most decided layer
    range, gap      a row's largest logit minus its smallest, and minus its second: the largest row of any layer and head;
                    mean_range, mean_gap: mean over rows and heads, in the layer where that is largest
    q_rms, k_rms    root mean square of what is multiplied (after norm and rotation), in the layer where it is largest
    All but `largest`, q_rms and k_rms are over the later half of the queries, each of which has at least T / 2 keys.
    """
    per_layer, columns = [], torch.arange(x.shape[1])
    mask = causal_mask(columns, columns)
    for q, k, logits in _attention(model, x):
        largest = logits[..., mask].abs().max()
        late, allowed = logits[..., x.shape[1] // 2 :, :], mask[x.shape[1] // 2 :]
        top = late.masked_fill(~allowed, float("-inf"))
        entropy = torch.special.entr(top.softmax(-1)).sum(-1).mean()
        first, second = top.topk(2, -1).values.unbind(-1)
        gap, range_ = first - second, first - late.masked_fill(~allowed, float("inf")).amin(-1)
        rms = [z.pow(2).mean().sqrt() for z in (q, k)]
        per_layer.append(
            torch.stack([largest, entropy, range_.max(), range_.mean(), gap.max(), gap.mean(), *rms]).double()
        )
    if not per_layer:
        return (float("nan"),) * len(STATE)
    layers = torch.stack(per_layer)
    most = layers.amax(0).tolist()
    return most[0], layers[:, 1].mean().item(), layers[:, 1].min().item(), *most[2:]


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
    reach_at=(),
    every=1,
    stop=None,
    keep=None,
):
    """Train one variant. `step` is called after each step; stop: end after so many of the `steps` (a test looks at the first);
    keep: a list that gets the trained model.

    Returns first (the first FIRST training losses), loss (nats, the mean of each `every` steps), held_out ([step, bits per
    byte] at `checks`: steps, or how many, evenly, the last at the end), by_position (bits of each position, at the end),
    reach ([step, [[k, bits], ..]] at the steps `reach_at`) and, unless probe_every is None, probes ([step, *STATE] each
    `probe_every` steps, before that step's update, and at the end) and grad_norm (before clipping, at those steps). A loss
    that is not finite ends the run; "finished" says whether it reached the last step.
    """
    length = sizes["max_len"]
    model = speed_up(build(variant, sizes, seed))
    held_out = windows(held_out_ids, length, WINDOWS)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=BETAS, fused=True)
    due = {round(steps * (i + 1) / checks) for i in range(checks)} if isinstance(checks, int) else set(checks)
    losses, checked, probes, norms, reached = [], [], [], [], []

    def probe(at):
        probes.append([at, *(_number(v, 4) for v in attention_state(model, held_out[:PROBES, :-1]))])

    for at, x in enumerate(islice(batches(train_ids, steps, batch, length, seed), stop)):
        probed = probe_every is not None and at % probe_every == 0
        if probed:
            probe(at)
        for group in optimizer.param_groups:
            group["lr"] = schedule(at, steps, lr)
        loss = loss_of(model, x)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if probed:
            norms.append(_number(norm.item(), 4))
        optimizer.step()
        if at + 1 in due:
            checked.append([at + 1, _number(bits_per_byte(model, held_out))])
        if at + 1 in reach_at:
            n = REACH if at + 1 == steps else REACH // 3
            reached.append([at + 1, reach(model, held_out_ids, n, length)])
        if step is not None:
            step()
    if keep is not None:
        keep.append(model)
    finished = len(losses) == steps and math.isfinite(losses[-1])
    run = {
        "parameters": count(model), "finished": finished, "first": [_number(v) for v in losses[:FIRST]],
        "loss": _means(losses, every), "held_out": checked,
        "bits_per_byte": checked[-1][1] if finished and checked else None,
        "by_position": [_number(v, 3) for v in position_bits(model, held_out).tolist()] if finished else None,
    }  # fmt: skip
    if reach_at:
        run["reach"] = reached
    if probe_every is not None:
        probe(len(losses))
        run.update(probes=probes, grad_norm=norms)
    return run


def _means(values, every):
    parts = [values[i : i + every] for i in range(0, len(values), every)]
    return [_number(sum(part) / len(part), 4) for part in parts]
