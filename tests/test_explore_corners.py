"""What is written in a picture can be read at every corner of the knobs, and no value is drawn where it is not. Draws with Agg; about 15 s."""

import itertools
import random

import pytest
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from book.explore import ALL, Explorer, Linear, player

MIXED = 24  # corners drawn in which several knobs are at an end
ARROWS = "^v<>"  # what stands at the edge of an axis for a value beyond it
SLACK = 2.0  # pixels: a box holds room for the tails of letters


def settings(explorer):
    """The defaults, the presets, each knob alone at its ends (each of its choices), and a fixed sample of corners."""
    found = [explorer.defaults, *(explorer.defaults | at for at in explorer.presets.values())]
    for knob in explorer.knobs:
        ends = knob.stops if knob.choice else (knob.stops[0], knob.stops[-1])
        found += [explorer.defaults | {knob.name: stop} for stop in ends]
    ends = [(k.stops[0], k.stops[-1]) for k in explorer.knobs]
    mixed = [dict(zip(explorer.defaults, picked, strict=True)) for picked in itertools.product(*ends)]
    found += random.Random(12).sample(mixed, min(MIXED, len(mixed)))
    return [dict(at) for at in dict.fromkeys(tuple(at.items()) for at in found)]


def shrunk(box):
    return Bbox.from_extents(box.x0 + SLACK, box.y0 + SLACK, box.x1 - SLACK, box.y1 - SLACK)


def meet(a, b):
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


def written(figure, renderer):
    """[(words, box, axes it was written into or None)] of everything that is read: texts, titles, tick labels, legends."""
    found = []

    def add(text, ax=None):
        if text.get_visible() and text.get_text().strip():
            found.append((text.get_text(), shrunk(text.get_window_extent(renderer)), ax))

    for text in figure.texts:
        add(text)
    for ax in figure.axes:
        for text in (*ax.texts, *(child for child in ax.get_children() if isinstance(child, Text))):
            add(text, ax if text in ax.texts else None)
        if ax.get_legend():
            found.append(("the legend", shrunk(ax.get_legend().get_window_extent(renderer)), None))
        if ax.axison:
            for axis in (ax.xaxis, ax.yaxis):
                add(axis.label)
                low, high = sorted(axis.get_view_interval())
                for tick in axis.get_major_ticks():
                    if low <= tick.get_loc() <= high and tick.label1.get_visible():
                        add(tick.label1)
    unique = {}
    for words, box, ax in found:
        unique[words, tuple(box.extents)] = (words, box, ax)
    return list(unique.values())


def markers(ax):
    """[(marker, box of its core, point in pixels, whether a line joins it)] of the markers that this panel has."""
    found = []
    for line in ax.lines:
        marker, points = line.get_marker(), line.get_xydata()
        if marker in ("None", None, "", " ") or line.get_markersize() < 5 or not line.get_visible():
            continue
        if line.get_markerfacecolor() == "none":  # a ring: what is in it can be read
            continue
        half = 0.35 * line.get_markersize() * ax.figure.dpi / 72
        joined = line.get_linestyle() != "None"  # a line that leaves the axes is seen to leave
        for x, y in line.get_transform().transform(points):
            core = Bbox.from_extents(x - half, y - half, x + half, y + half)
            found.append((marker, core, (x, y), joined))
    return found


def faults(explorer, at):
    """What is wrong with the picture at these settings, one line each."""
    return explorer._drawn(explorer.table(**at), lambda stage: list(_faults(stage)))


def _faults(stage):
    renderer, figure = stage.canvas.get_renderer(), stage.figure
    texts = written(figure, renderer)
    for (a, box, _), (b, other, _) in itertools.combinations(texts, 2):
        if meet(box, other):
            yield f"{a!r} lies on {b!r}"
    for words, box, home in texts:
        if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1:
            yield f"{words!r} leaves the picture"
        for ax in figure.axes:
            if home is not None and ax is not home and meet(box, ax.bbox):
                yield f"{words!r} runs into the panel {ax.get_title(loc='left') or ax.get_title()!r}"
    for ax in figure.axes:
        area, marked = ax.bbox.padded(1.0), markers(ax)
        beyond = [m for m, _, (x, y), joined in marked if not (joined or area.contains(x, y))]
        arrows = [m for m, *_ in marked if m in ARROWS]
        if beyond and not arrows:
            yield f"{len(beyond)} markers {beyond[0]!r} lie beyond the axes and no arrow says so"
        for words, box, _ in texts:
            for marker, core, (x, y), _ in marked:
                if area.contains(x, y) and meet(box, core):
                    yield f"{words!r} lies on a marker {marker!r}"
        for bar in (p for p in ax.patches if type(p) is Rectangle and p.get_width() and p.get_height()):
            box = bar.get_window_extent()
            if (box.x1 > area.x1 or box.y1 > area.y1 or box.x0 < area.x0 or box.y0 < area.y0) and not arrows:
                yield "a bar ends beyond the axes and no arrow says so"


@pytest.mark.parametrize("name", list(ALL))
def test_every_corner_can_be_read(name):
    explorer = ALL[name]
    found = {}
    for at in settings(explorer):
        for fault in faults(explorer, at):
            found.setdefault(fault, at)
    assert not found, "\n".join(f"{fault}   at {at}" for fault, at in found.items())


# What the text beside each explorer asks the reader to try. Where no kernel runs, each is a state of the player.
TRIES = {
    "block-parts": [
        {"ffn": "copied"},
        {"attention": "MLA", "context": 131072},
        *({"size": "tiny", "positions": p, "context": c} for p in ("learned", "rope") for c in (4096, 131072)),
    ],
    "rmsnorm-scale": [
        {"scale": 251.0, "dtype": "fp16"},
        {"scale": 251.0, "dtype": "bf16"},
        *({"scale": 1e-3, "shift": 0.0, "eps": eps} for eps in (1e-6, 1e-5, 1e-3)),
        {"shift": 0.0},
        {"shift": 2.0},
    ],
    "swiglu-width": [{"multiple_of": 4096, "d": 512}],
    "rope-clock": [{"m": 5 + i, "n": 2 + i} for i in (0, 35)] + [{"m": 20, "n": 13}, {"speed": 1.0}],
    "rope-distance": [{"pairs": pairs} for pairs in (1, 2, 4, 8, 16, 32, 64)],
    "rope-spectrum": [{"tested": 16_384, "kind": kind} for kind in ("none", "linear", "NTK", "yarn", "llama3")],
    "attention-wiring": [{"n_kv": 32}, {"n_kv": 8}, {"n_kv": 1}, {"how": "tile"}],
    "kv-cache": [{"context": 32_768}, {"users": 64}, {"model": "Llama-3-8B"}, {"model": "DeepSeek-V3"}],
    "mla-roofline": [{"n_heads": 256}, {"rope_dim": 0}, {"context": 1_048_576}],
    "qk-norm": [{"gain": 16.0}, {"gain": 16.0, "norm": "with QK-norm"}, {"norm": "with QK-norm", "norm_gain": 4.0}],
    "tied-share": [{"V": 49152, "d": 576, "L": 30, "ratio": 8 / 3, "group": 3}, {"d": 8192, "L": 80, "ratio": 3.5, "group": 8}],
    "residual-stream": [{"place": place, "layers": 12} for place in ("before (today)", "after (2017)", "no norm")],
    "cache-frontier": [{"context": 1024}, {"context": 1_048_576}, {"formula": "usual"}],
    "kernel-blocks": [{"rows": 128}, {"rows": 16}],
}  # fmt: skip


@pytest.mark.parametrize("name", list(ALL))
def test_what_the_text_asks_for_can_be_done_without_a_kernel(name):
    explorer = ALL[name]
    knobs = {k.name: k for k in explorer.knobs}
    offered = {n: {knobs[n].stops[i] for i in picked} for n, picked in player.stops(explorer).items()}
    presets = [explorer.settings(**at) for at in explorer.presets.values()]
    for asked in TRIES[name]:
        by_hand = all(value in offered.get(n, ()) for n, value in asked.items())
        assert by_hand or explorer.settings(**asked) in presets, f"{asked}: neither stops nor a preset"


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda ax: ax.text(5, 5, "upon it"), "'a name' lies on 'upon it'"),
        (lambda ax: ax.figure.text(0.95, 0.5, "beyond the edge"), "'beyond the edge' leaves the picture"),
        (lambda ax: ax.plot([5.2], [5.1], "o", ms=12), "'a name' lies on a marker 'o'"),
        (lambda ax: ax.plot([5], [12], "o", ms=12, clip_on=False), "1 markers 'o' lie beyond the axes and no arrow says so"),
        (lambda ax: ax.bar([2], [30]), "a bar ends beyond the axes and no arrow says so"),
        (lambda ax: ax.text(0, 4, "beside", ha="right", va="center"), "'beside' lies on '4'"),
    ],
)  # fmt: skip
def test_a_spoilt_picture_is_found(spoil, fault):
    def explorer(spoil):
        def setup(fig):
            ax = fig.subplots()
            name = ax.text(5, 5, "a name", va="center")
            spoil(ax)
            ax.set(xlim=(0, 10), ylim=(0, 10))
            return [name]

        alt, knobs = "Nothing but a name in the middle of two axes.", [Linear("x", 0, 1, 0)]
        return Explorer(
            "spoilt",
            lambda x: {},
            setup,
            lambda moving, t: None,
            lambda t: "",
            title="One name",
            alt=alt,
            knobs=knobs,
        )

    def ask(e):
        return faults(e, e.defaults)

    assert ask(explorer(lambda ax: None)) == []
    assert fault in ask(explorer(spoil))
