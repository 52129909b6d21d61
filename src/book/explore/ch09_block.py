"""Chapter 09: the residual stream by depth, with the norm before each part, after it, or nowhere."""

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, leaves, thousands

D, TOKENS, MOST = 64, 16, 96  # width and tokens of the toy stream, most layers of a knob
PRE, POST, NONE = "before (today)", "after (2017)", "no norm"
LOWEST, HIGHEST = 0.3, 1e6


@lru_cache(maxsize=1)
def _draw():
    """An embedding of RMS 1, and a random matrix for each part (two a layer) that keeps the size of what goes in."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((TOKENS, D))
    return x / rms(x), rng.standard_normal((2 * MOST, D, D), dtype=np.float32) / np.sqrt(D)


def rms(x):
    return np.sqrt((x * x).mean(-1, keepdims=True))


@lru_cache(maxsize=256)
def walk(place, layers, branch):
    """Stream sizes [2 layers + 1] and the share that each writer (embedding first, then every part) has in the final stream.

    A part is a random matrix times `branch`. A share is of the squared length; writers are random, hence nearly orthogonal.
    """
    x, parts = _draw()
    sizes, written = [1.0], [1.0]
    for part in parts[: 2 * layers]:
        inside = x / rms(x) if place == PRE else x
        add = branch * inside @ part
        written.append(float((add * add).mean()))
        x = x + add
        if place == POST:
            square = float((x * x).mean())
            written = [w / square for w in written]
            x = x / rms(x)
        sizes.append(float(np.sqrt((x * x).mean())))
    share = np.array(written)
    return np.array(sizes), share / share.sum()


def table(place, layers, branch, scaled):
    """branch: how large a part's output is beside an input of size 1; scaled "yes": divided by sqrt(2 layers), as GPT-2 starts."""
    each = branch / np.sqrt(2 * layers) if scaled == "yes" else branch
    sizes, share = walk(place, layers, float(each))
    later = share[1:].reshape(layers, 2).sum(1)  # both parts of a layer together
    return {
        "place": place,
        "layers": layers,
        "each": float(each),
        "sizes": sizes,
        "final": float(sizes[-1]),
        "embedding": float(share[0]),
        "first": float(later[0]),
        "last": float(later[-1]),
        "depth": np.arange(len(sizes)) / 2,
        "share": np.concatenate([share[:1], later]),
        "all": {name: walk(name, layers, float(each))[0] for name in (PRE, POST, NONE)},
    }


LINE = {PRE: (COLORS["new"], "-"), POST: (COLORS["k"], (0, (6, 2))), NONE: (COLORS["old"], (0, (2, 1.5)))}


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.15])
    left.set(
        yscale="log",
        xlim=(-1, MOST + 4),
        ylim=(LOWEST, HIGHEST),
        xlabel="layer",
    )
    left.set_title("size of the stream (RMS)", pad=14)  # an arrow may stand on the upper edge
    right.set(
        yscale="log",
        xlim=(-1, MOST + 1),
        ylim=(1e-7, 2),
        xlabel="layer that wrote it (0 = embedding)",
        title="share of the final stream",
    )
    names = [PRE, POST, NONE]
    lines = {name: left.plot([], [], color=LINE[name][0], ls=LINE[name][1])[0] for name in names}
    for i, name in enumerate(names):
        at = {"transform": left.transAxes, "ha": "right", "fontsize": 13, "fontweight": "bold"}
        left.text(0.98, 0.78 - 0.085 * i, name, color=LINE[name][0], **at)
    out = {name: left.plot([], [], "^", color=LINE[name][0], ms=11, clip_on=False)[0] for name in names}
    return SimpleNamespace(
        lines=lines,
        out=out,
        dot=left.plot([], [], "o", ms=12, mec=COLORS["ink"])[0],
        share=right.plot([], [], "o-", ms=6, lw=1.5)[0],
        note=right.text(0.97, 0.05, "", transform=right.transAxes, ha="right", fontsize=14, fontweight="bold"),
    )  # fmt: skip


def draw(moving, t):
    for name, line in moving.lines.items():
        leaves(line, moving.out[name], t["depth"], t["all"][name], HIGHEST)
    color = LINE[t["place"]][0]
    moving.dot.set_data([t["layers"]], [t["final"]])  # off the axes where the stream is
    moving.dot.set_color(color)
    draw_share(moving.share, t)
    moving.note.set_text(f"embedding: {percent(t['embedding'])}")


def draw_share(line, t):
    """Who wrote the final stream; a share too small for the axis leaves it."""
    line.set_data(np.arange(len(t["share"])), np.where(t["share"] > 0, t["share"], 1e-300))
    line.set_color(LINE[t["place"]][0])


def percent(share):
    return f"{share:.1%}" if share >= 1e-3 else f"{share:.0e}"


def say(t):
    final = thousands(float(f"{t['final']:.3g}"))
    wrote = ", ".join(f"{who} {percent(t[who])}" for who in ("embedding", "first", "last"))
    norm = "No norm" if t["place"] == NONE else f"Norm {t['place']}"
    return (
        f"{norm}, {t['layers']} layers, each part adds {t['each']:.2g} to a stream of 1: it ends at {final}. "
        f"Who wrote it (embedding, first layer, last layer): {wrote}."
    )


stream_explorer = Explorer(
    "residual-stream",
    table,
    setup,
    draw,
    say,
    title="What becomes of the residual stream with depth?",
    alt="Left: RMS of the residual stream by layer, logarithmic, for the norm before each part, after it, and nowhere. Right: which share of the final stream each layer wrote.",
    knobs=[
        Choice("place", [PRE, POST, NONE], label="norm"),
        Stops("layers", [2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96], 32, label="layers"),
        Stops("branch", [0.1, 0.2, 0.5, 1.0, 2.0], 1.0, label="size of a part's output"),
        Choice("scaled", ["no", "yes"], label="divide by √(2 layers)"),
    ],
    player={"layers": None, "place": None, "scaled": None, "branch": [0.2, 1.0]},
    presets={"GPT-2's start": {"scaled": "yes", "place": POST}, "small parts": {"branch": 0.2}},
    facts=[
        Fact({}, "final", 65**0.5, 0.05, "pre-norm adds a variance of 1 a part: sqrt(1 + 2 * 32)"),
        Fact({"place": POST}, "final", 1.0, 1e-9, "post-norm normalises the stream itself"),
        Fact({"place": POST, "layers": 8}, "embedding", 2.0**-16, 0.2, "post-norm halves what came before at every part"),
        Fact({"scaled": "yes"}, "final", 2**0.5, 0.04, "GPT-2's start: sqrt(1 + 1), whatever the depth"),
    ],
    size=(11.0, 4.6),
)  # fmt: skip


def draw_streams(axes, layers=12, branch=1.0):
    """The explorer's right panel for the three places of the norm. Returns (place, final size, embedding, first, last) rows."""
    rows = []
    for ax, place in zip(axes, (PRE, POST, NONE), strict=True):
        t = table(place, layers, branch, "no")
        draw_share(ax.plot([], [], "o-", ms=7, lw=1.5)[0], t)
        ax.set(yscale="log", ylim=(1e-8, 2), xlim=(-0.5, layers + 0.5))
        ax.set_xticks(range(0, layers + 1, 4))
        ax.set_title(place, fontsize=14)
        rows.append((place, t["final"], t["embedding"], t["first"], t["last"]))
    return rows
