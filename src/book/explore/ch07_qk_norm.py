"""Chapter 07: what growing query and key weights do to attention, with QK-norm and without."""

from functools import lru_cache
from math import log, sqrt
from types import SimpleNamespace

import numpy as np

from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, thousands

QUERIES = 8  # the figures are means and maxima over so many queries
GAINS = tuple(2.0 ** (i / 2) for i in range(-2, 11))  # of both q and k: 0.5 .. 32
KEPT = 12  # keys whose weight is drawn
WITH, WITHOUT = "with QK-norm", "without"


@lru_cache(maxsize=16)
def _draw(dh, context):
    """q [8, dh] and k [context, dh], standard normal: how projections of a normalised x start out."""
    rng = np.random.default_rng(7)
    return rng.standard_normal((QUERIES, dh)), rng.standard_normal((context, dh), dtype=np.float32)


def rms(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True))


def scores_of(q, k):
    return q @ k.T / sqrt(q.shape[-1])


@lru_cache(maxsize=16)
def base_scores(dh, context):
    """q k^T / sqrt(dh) at gain 1, no norm; [8, context]."""
    return scores_of(*_draw(dh, context))


def attention(logits):
    """(weights of each row, mean entropy in nats)."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(-1)
    return p, float(entropy.mean()) + 0.0


@lru_cache(maxsize=512)
def look(gain, dh, context, norm, norm_gain):
    """(largest |logit|, mean entropy, the twelve largest weights of the first query) when q and k are `gain` times as large."""
    if norm == WITH:  # the norm undoes the gain of the weights, to the last digits, and has one of its own
        q, k = _draw(dh, context)
        logits = norm_gain**2 * scores_of(rms(gain * q), rms(gain * k))
    else:
        logits = gain**2 * base_scores(dh, context)
    p, entropy = attention(logits)
    return float(np.abs(logits).max()), max(entropy, 0.0), np.sort(p[0])[::-1][:KEPT]


def table(gain, dh, context, norm, norm_gain):
    """gain: of both q and k, hence squared in a logit; norm_gain: the norm's own learned gain, the same in every channel."""
    with_norm = [look(1.0, dh, context, WITH, norm_gain)] * len(
        GAINS
    )  # flat: the dot, computed at its own gain, shows it
    without = [look(g, dh, context, WITHOUT, norm_gain) for g in GAINS]
    largest, entropy, weights = look(gain, dh, context, norm, norm_gain)
    return {
        "gain": gain,
        "norm": norm,
        "context": context,
        "dh": dh,
        "norm_gain": norm_gain,
        "largest": largest,
        "entropy": entropy,
        "weights": weights,
        "top": float(weights[0]),
        "bound": sqrt(dh) * norm_gain**2,
        "uniform": log(context),
        "curves": {WITH: ([r[0] for r in with_norm], [r[1] for r in with_norm]), WITHOUT: ([r[0] for r in without], [r[1] for r in without])},
    }  # fmt: skip


LOWEST, HIGHEST = 0.3, 1e4
LINE = {WITH: (COLORS["new"], "-"), WITHOUT: (COLORS["old"], (0, (6, 2)))}


def setup(fig):
    left, middle, right = fig.subplots(1, 3, width_ratios=[1.15, 1.15, 1])
    ticks = [0.5, 1, 2, 4, 8, 16, 32]
    for ax in (left, middle):
        ax.set(xscale="log", xlim=(0.45, 36), xlabel="gain of q and of k")
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
    left.set(yscale="log", ylim=(LOWEST, HIGHEST), title="largest logit, in size")
    middle.set(ylim=(-0.4, 12), title="entropy, nats")
    right.set(ylim=(0, 1.05), title="weights of one query", xlabel="its 12 largest")
    right.set_xticks([])
    bars = right.bar(range(KEPT), [0.5] * KEPT, color=COLORS["new"], width=0.8)
    curves = {}
    for name, (color, dashes) in LINE.items():
        curves[name] = [ax.plot([], [], color=color, ls=dashes)[0] for ax in (left, middle)]
    left.text(0.5, 4000, "without", color="#6A6A6A", fontsize=13, fontweight="bold")
    left.text(0.5, 1500, "with QK-norm", color=COLORS["new"], fontsize=13, fontweight="bold")
    return SimpleNamespace(
        curves=curves,
        bound=left.plot([], [], color=COLORS["cached"], ls=":", lw=2)[0],
        bound_name=left.text(33, 1, "bound", color=COLORS["cached"], fontsize=12, ha="right", va="bottom"),
        dots=[ax.plot([], [], "o", ms=12, mec=COLORS["ink"])[0] for ax in (left, middle)],
        uniform=middle.plot([], [], color=COLORS["faint"], lw=2)[0],
        uniform_name=middle.text(34, 1, "all keys alike", color="#6A6A6A", fontsize=12, ha="right", va="bottom"),
        bars=list(bars),
        top=right.text(0.98, 0.93, "", transform=right.transAxes, ha="right", fontsize=13, fontweight="bold"),
    )  # fmt: skip


def draw(moving, t):
    for name, (largest, entropy) in t["curves"].items():
        moving.curves[name][0].set_data(GAINS, largest)
        moving.curves[name][1].set_data(GAINS, entropy)
    moving.bound.set_data([0.45, 36], [t["bound"]] * 2)
    moving.bound_name.set_position((33, t["bound"] * 1.3))
    moving.uniform.set_data([0.45, 36], [t["uniform"]] * 2)
    moving.uniform_name.set_position((34, t["uniform"] + 0.4))
    color = LINE[t["norm"]][0]
    for dot, value in zip(moving.dots, (t["largest"], t["entropy"]), strict=True):
        dot.set_data([t["gain"]], [value])
        dot.set_color(color)
    draw_weights(moving.bars, t)
    moving.top.set_text(f"largest {t['top']:.2g}")


def draw_weights(bars, t):
    """The twelve largest weights as bar heights."""
    for bar, weight in zip(bars, t["weights"], strict=True):
        bar.set_height(weight)
        bar.set_color(LINE[t["norm"]][0])


def say(t):
    bounded = f"QK-norm holds every logit below {t['bound']:.4g}" if t["norm"] == WITH else "nothing holds it"
    return (
        f"Gain {t['gain']:.3g} on q and k, {t['norm']}: the largest logit is {thousands(t['largest'])} ({bounded}). "
        f"Entropy {t['entropy']:.2f} of at most {t['uniform']:.2f} nats; the first key has {t['top']:.1%} of the weight."
    )


qk_explorer = Explorer(
    "qk-norm",
    table,
    setup,
    draw,
    say,
    title="What happens to attention when query and key weights grow?",
    alt="Three panels: largest logit and entropy against the gain of q and k, with and without QK-norm, and the twelve largest weights of one query as bars.",
    knobs=[
        Stops("gain", list(GAINS), 2.0, label="gain of q and k", text=lambda g: f"{g:.3g}"),
        Choice("norm", [WITHOUT, WITH], label="QK-norm"),
        Stops("norm_gain", [0.5, 1.0, 1.5, 2.0, 3.0, 4.0], 1.0, label="the norm's own gain"),
        Stops("dh", [16, 32, 64, 128, 256], 128, label="head width dh"),
        Stops("context", [64, 256, 1024, 4096, 16384], 4096, unit="keys", label="context"),
    ],
    player={"gain": None, "norm": None, "norm_gain": [1.0, 2.0, 4.0], "dh": [64, 128]},
    presets={"gain 16": {"gain": 16.0}, "gain 16, QK-norm": {"gain": 16.0, "norm": WITH}, "the norm's own gain 4": {"norm": WITH, "norm_gain": 4.0}},
    facts=[
        Fact({"gain": 16.0}, lambda t: t["largest"] / look(1.0, 128, 4096, WITHOUT, 1.0)[0], 256, 1e-9, "SPEC 6: gain 16 on both, 256 times"),
        Fact({"norm": WITH}, "bound", 11.3137, 1e-5, "SPEC 6: sqrt(128)"),
        Fact({"gain": 1.0}, "entropy", 7.8, 0.01, "CHAPTERS 07: 7.8 nats at gain 1"),
        Fact({"gain": 16.0}, lambda t: t["entropy"] < 0.05, True, source="CHAPTERS 07: about 0 at gain 16"),
        Fact({"gain": 16.0, "norm": WITH}, "entropy", 7.8, 0.01, "CHAPTERS 07: with QK-norm it stays"),
    ],
    size=(11.0, 4.5),
)  # fmt: skip
