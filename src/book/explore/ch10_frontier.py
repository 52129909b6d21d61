"""Chapter 10: what one sequence keeps against parameters for 53 published models, at any context, counted right and by the usual formula."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from book.configs import frontier
from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, binary_size
from lib.arithmetic import format_count

ROWS = frontier()
LABELLED = (
    "llama-2-7b",
    "llama-3-70b",
    "deepseek-v3",
    "starcoder2-7b",
    "gemma-3-1b",
    "minimax-m1",
    "gpt-oss-20b",
)
# Where a label may stand, in letters' heights from its dot, the nearest first: its middle, to the side it is written to.
PLACES = [(side, far * x, far * y) for far in (0.8, 1.4, 2.0, 2.8, 3.6) for side, x, y in (
    ("left", 1, 0), ("right", -1, 0), ("left", 0.7, 1), ("right", -0.7, 1), ("left", 0.7, -1), ("right", -0.7, -1), ("center", 0, 1.3), ("center", 0, -1.3))]  # fmt: skip
CONTEXTS = [2**n for n in range(10, 21)]
CARD = 80e9
# kind of cache -> (marker, colour)
KINDS = {
    "MHA": ("s", "old"),
    "GQA": ("o", "k"),
    "MQA": ("v", "v"),
    "MLA": ("D", "latent"),
    "windows": ("^", "new"),
    "few layers": ("P", "q"),
}


def kind_of(row):
    """What the cache of a model owes its size to."""
    if "MLA" in row.kind:
        return "MLA"
    if row.windowed:
        return "windows"
    if " + " in row.kind or row.kind.startswith(("Mamba", "gated")):
        return "few layers"
    return row.kind.split()[0]


def lowest(parameters, cache):
    """Indices of the models that no larger model undercuts: from the largest down, each with less cache than all before."""
    order = sorted(range(len(parameters)), key=lambda i: (-parameters[i], cache[i]))
    found, least = [], float("inf")
    for i in order:
        if cache[i] < least:
            found.append(i)
            least = cache[i]
    return found[::-1]


def table(context, formula, model, size="total"):
    """Bytes that one sequence of `context` tokens keeps, for every model: keys, values, indexers and states, and by 2 L n_kv (d / h)."""
    right = np.array([row.sequence_bytes(context) for row in ROWS], float)
    usual = np.array([row.naive_bytes(context) for row in ROWS], float)
    parameters = np.array([row.active if size == "active" else row.parameters for row in ROWS], float)
    shown = right if formula == "right" else usual
    at = next(i for i, row in enumerate(ROWS) if row.name == model)
    edge = lowest(parameters, shown)
    return {
        "context": context,
        "parameters": parameters,
        "right": right,
        "usual": usual,
        "shown": shown,
        "frontier": [ROWS[i].name for i in edge],
        "edge_x": parameters[edge],
        "edge_y": shown[edge],
        "wrong": sum(row.naive_bytes(context) != row.cache_bytes(context) for row in ROWS),
        "size": size,
        "over_card": int((shown > CARD).sum()),
        "model": model,
        "kind": kind_of(ROWS[at]),
        "bytes": int(right[at]),
        "usual_bytes": int(usual[at]),
        "model_parameters": int(parameters[at]),
        "at": at,
    }


def axes_for(ax):
    """The still parts of one panel; returns what moves."""
    ax.set(xscale="log", yscale="log", xlim=(8e7, 1.5e12), ylim=(2e6, 1.5e13))
    ax.set_xticks([1e8, 1e9, 1e10, 1e11, 1e12], ["0.1B", "1B", "10B", "100B", "1T"])
    ax.set_yticks([2**20 * 10, 2**30 / 10, 2**30, 2**30 * 10, 2**30 * 100, 2**40], ["10 MiB", "0.1 GiB", "1 GiB", "10 GiB", "100 GiB", "1 TiB"])  # fmt: skip
    ax.minorticks_off()
    ax.axhline(CARD, color=COLORS["faint"], lw=3)
    moving = SimpleNamespace(
        card=ax.text(8.8e7, CARD * 1.25, "an 80 GB card", fontsize=12, color=COLORS["old"], va="center"),
        edge=ax.plot([], [], color=COLORS["cached"], lw=2.2, ls="--", label="least for the size")[0],
        dots={},
        labels={},
    )
    for kind, (marker, color) in KINDS.items():
        moving.dots[kind] = ax.plot([], [], marker, ls="", ms=9, color=COLORS[color], mec=COLORS["ink"], mew=0.6, label=kind)[0]  # fmt: skip
    for name in LABELLED:
        moving.labels[name] = ax.text(1e9, 1e9, name, fontsize=12, va="center")
    return moving


def move(moving, t):
    members = {kind: [i for i, row in enumerate(ROWS) if kind_of(row) == kind] for kind in KINDS}
    for kind, dots in moving.dots.items():
        dots.set_data(t["parameters"][members[kind]], t["shown"][members[kind]])
    moving.edge.set_data(t["edge_x"], t["edge_y"])
    to_pixels = moving.edge.axes.transData.transform
    dots = to_pixels(np.column_stack([t["parameters"], t["shown"]]))
    corners = to_pixels(np.column_stack([t["edge_x"], t["edge_y"]]))
    parts = np.linspace(0, 1, 12)[:, None]
    edge = [a + parts * (b - a) for a, b in pairwise(corners)]  # the dashed line is not written upon either
    busy = np.concatenate([dots, dots, dots, *edge])
    taken = []  # boxes of the labels that stand already
    along = [("left", x, up) for up in (0.8, -0.8, 1.6, -1.6) for x in (0.5, 6, 12, 18, 24, 30, 36)]
    place(moving.card, to_pixels((8e7, CARD)), along, busy, taken)
    for i, row in enumerate(ROWS):
        if row.name in moving.labels:
            place(moving.labels[row.name], dots[i], PLACES, busy, taken)


def place(label, start, places, dots, taken):
    """Put the label at the first of `places` around `start` (pixels) where it lies on the fewest dots and labels."""
    high = label.get_fontsize() * label.figure.dpi / 72
    wide = 0.62 * high * len(label.get_text())
    area, boxes = label.axes.bbox, []
    for side, right, up in places:
        x, y = start[0] + right * high, start[1] + up * high
        x -= {"left": 0, "center": wide / 2, "right": wide}[side]
        boxes.append((x, y - 0.6 * high, x + wide, y + 0.6 * high))
    x0, y0, x1, y1 = np.array(boxes).T
    radius = 0.45 * high
    x, y = dots.T[:, :, None]
    bad = ((x > x0 - radius) & (x < x1 + radius) & (y > y0 - radius) & (y < y1 + radius)).sum(0)
    for left, low, right, high_end in taken:
        bad += 9 * ((x0 < right) & (left < x1) & (y0 < high_end) & (low < y1))
    bad += 9 * ((x0 < area.x0) | (x1 > area.x1) | (y0 < area.y0) | (y1 > area.y1))
    best = int(bad.argmin())
    taken.append(boxes[best])
    middle = ((x0 + x1) / 2)[best], ((y0 + y1) / 2)[best]
    label.set_ha("center")
    label.set_position(label.axes.transData.inverted().transform(middle))


def setup(fig):
    ax = fig.subplots()
    moving = axes_for(ax)
    moving.ring = ax.plot([], [], "o", ms=20, mfc="none", mec=COLORS["cached"], mew=3)[0]
    moving.note = ax.text(0.02, 0.97, "", transform=ax.transAxes, fontsize=15, fontweight="bold", va="top")
    ax.set(xlabel="parameters (log)", ylabel="kept for one sequence (log)")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=13)
    return moving


def draw(moving, t):
    move(moving, t)
    moving.ring.set_data([t["parameters"][t["at"]]], [t["shown"][t["at"]]])
    moving.note.set_text(f"{t['context']:,} tokens in bf16")


def say(t):
    right, usual = t["bytes"], t["usual_bytes"]
    verdict = (
        "and the usual formula agrees" if right == usual else f"the usual formula says {binary_size(usual)}"
    )
    return (
        f"{t['model']} ({format_count(t['model_parameters'])} parameters{' per token' * (t['size'] == 'active')}, {t['kind']}): {binary_size(right)} at {t['context']:,} tokens, "
        f"{verdict}. The usual formula is wrong for {t['wrong']} of {len(ROWS)} models here."
    )


frontier_explorer = Explorer(
    "cache-frontier",
    table,
    setup,
    draw,
    say,
    title="Which models carry many parameters with a small cache, and at which context?",
    alt="What one sequence keeps against parameters, both log, a dot for each of 53 models; a dashed line joins the lowest.",
    knobs=[
        Stops("context", CONTEXTS, 131072, unit="tokens", label="context"),
        Choice("formula", {"right": "counted right", "usual": "2 L n_kv (d / h)"}, label="cache"),
        Choice("size", {"total": "all of them", "active": "used by one token"}, label="parameters"),
        Choice("model", [row.name for row in ROWS], "deepseek-v3", label="ring around"),
    ],
    player={
        "context": None,
        "formula": None,
        "size": None,
        "model": ["deepseek-v3", "llama-3-70b", "llama-2-7b", "gemma-3-1b", "gpt-oss-20b"],
    },
    facts=[
        Fact({"context": 131072}, "wrong", 26, source="issue: 26 of 53 at 128K"),
        Fact({"context": 1024}, "wrong", 21, source="facts.csv: 21 of 53 per token"),
        Fact({"model": "deepseek-v3"}, "bytes", 9_210_691_584, source="facts.csv"),
        Fact({"model": "llama-3-70b"}, "bytes", 40 * 2**30, source="SPEC 4"),
        Fact({"model": "gemma-3-1b"}, "bytes", 548_405_248, source="facts.csv"),
    ],
    size=(11.0, 5.6),
)


def draw_frontier(axes, contexts):
    """Small multiples: the explorer's picture at a few contexts. Returns one line each: the models on the lowest edge."""
    lines = []
    for ax, context in zip(axes, contexts, strict=True):
        t = table(context, "right", "deepseek-v3")
        moving = axes_for(ax)
        move(moving, t)
        for label in moving.labels.values():
            label.set_visible(False)
        ax.set(title=f"{context:,} tokens", xlabel="parameters")
        lines.append(f"{context:,} tokens, least cache for the size:\n   {', '.join(t['frontier'])}")
    return "\n".join(lines)
