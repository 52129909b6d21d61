"""One house style for every picture of the book: colours that mean the same thing in every chapter.

    from book.figures import COLORS, style

    style()                                            # once, in a chapter's first cell
    fig, ax = plt.subplots()
    _ = ax.plot(m, score, color=COLORS["q"])
    plt.show()

The colours are Okabe and Ito's set for colour-blind readers with one dark violet added. Where two of them meet in one
picture they also differ in lightness, so a black-and-white print stays readable; use `LINES` when even that is not enough.
"""

import math
import re
from types import MappingProxyType

import matplotlib as mpl
import matplotlib.patches
from IPython import get_ipython
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FuncFormatter

# A colour is a meaning. Do not use "cached" for anything that is not held in memory between two steps.
COLORS = MappingProxyType(
    {
        "q": "#0072B2",  # blue
        "k": "#E69F00",  # orange
        "v": "#009E73",  # green
        "cached": "#D55E00",  # red: what stays in memory from one token to the next
        "latent": "#56B4E9",  # sky blue: MLA's compressed vector
        "rope": "#CC79A7",  # pink: whatever a rotation touched
        "old": "#8C8C8C",  # grey: the block of 2019
        "new": "#4B2A8C",  # violet: the block of today
        "weights": "#3A3A3A",  # parameters, as opposed to what is cached
        "seen": "#009E73",  # met in training
        "unseen": "#D55E00",  # never met in training
        "ink": "#1A1A1A",
        "faint": "#D4D4D4",
        "paper": "#FFFFFF",
    }
)
CYCLE = tuple(COLORS[name] for name in ("q", "k", "v", "cached", "latent", "rope", "new", "old"))
LINES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))  # for readers who see no colour at all

# Sizes are for the last row of a lecture room: a 9 x 4.5 inch picture, shown at the width of the slide.
HOUSE = MappingProxyType(
    {
        "figure.figsize": (9.0, 4.5),
        "figure.dpi": 100,
        "savefig.dpi": 100,
        "figure.facecolor": COLORS["paper"],
        "savefig.facecolor": COLORS["paper"],
        "figure.constrained_layout.use": True,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same picture on every machine
        "font.size": 14,
        "text.hinting": "no_hinting",  # letters keep their shapes; a third cheaper, which every move of a slider pays
        "axes.titlesize": 16,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.labelsize": 14,
        "xtick.labelsize": 12,
        "ytick.labelsize": 12,
        "legend.fontsize": 12,
        "legend.frameon": False,
        "axes.edgecolor": "#555555",
        "axes.labelcolor": COLORS["ink"],
        "text.color": COLORS["ink"],
        "xtick.color": "#333333",
        "ytick.color": "#333333",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#E4E4E4",
        "grid.linewidth": 1.0,
        "lines.linewidth": 2.6,
        "lines.markersize": 9,
        "axes.prop_cycle": mpl.cycler(color=CYCLE),
    }
)


def style():
    """Make the house style this kernel's default for every figure from here on; in a notebook each says in words what it draws."""
    mpl.rcParams.update(HOUSE)
    if shell := get_ipython():
        bundle = shell.display_formatter.mimebundle_formatter
        bundle.for_type(Figure, lambda fig, **_: ({}, {"image/png": {"alt": in_words(fig)}}))


def in_words(fig):
    """What a static picture draws, panel by panel, from its own titles, axes, legends and labels: the text for those who cannot see it."""
    panels = []
    for ax in fig.axes:
        if ax.get_label() == "<colorbar>":
            continue
        titles = " ".join(filter(None, (ax.get_title(loc=at) for at in ("left", "center", "right"))))
        axes = f"{ax.get_ylabel()} against {ax.get_xlabel()}".strip()
        axes = axes.removeprefix("against ").removesuffix(" against")
        ticks = [text for axis in (ax.xaxis, ax.yaxis) if ax.axison for text in named_ticks(axis)]
        legend = ax.get_legend()
        names = [text.get_text() for text in legend.get_texts()] if legend else []
        words = [text.get_text() for text in ax.texts if re.search(r"\w", text.get_text())]
        said = [
            titles,
            axes if axes != "against" else "",
            *(", ".join(part) for part in (ticks, names, words)),
        ]
        panels.append(
            ": ".join(dict.fromkeys(re.sub(r"\s+", " ", part).strip() for part in said if part.strip()))
        )
    told = [f"{i}. {panel}" if len(panels) > 1 else panel for i, panel in enumerate(filter(None, panels), 1)]
    count = f"Chart with {len(panels)} panels" if len(panels) > 1 else "Chart"
    return f"{count}. {'; '.join(told)}."


def named_ticks(axis):
    """The names along an axis that has names in the place of numbers."""
    texts = (
        [tick.get_text() for tick in axis.get_ticklabels()]
        if isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter) or axis.have_units()
        else []
    )
    return [text for text in texts if re.search(r"[^\W\d]", re.sub(r"\$.*?\$", "", text))]


def thousands(value):
    """12345.0 -> '12,345'; 0.00123 -> '0.00123'; at most four significant digits below 1,000."""
    if isinstance(value, str) or not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def binary_size(n_bytes):
    """Bytes in KiB, MiB, GiB or TiB with three significant digits: 131072 -> '128 KiB', 343597383680 -> '320 GiB'."""
    size, units = float(n_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    digits = f"{size:,.0f}" if size >= 100 or size == int(size) else f"{size:.3g}"
    return f"{digits} {units[0]}"


def leaves(line, mark, x, y, top):
    """Draw y against x as far as the axis goes; where y passes `top`, the line ends there and `mark` points the way out."""
    over = [i for i, value in enumerate(y) if value > top]
    line.set_data(x[: over[0] + 1], y[: over[0] + 1]) if over else line.set_data(
        x, y
    )  # clipped by the axes, not bent
    mark.set_data([x[over[0]]] if over else [], [top] if over else [])


def label_bars(ax, bars, texts, gap=4, **text):
    """Write one text above each bar of a static picture; returns the texts. `gap` is in points."""
    made = []
    for bar, words in zip(bars, texts, strict=True):
        at = (bar.get_x() + bar.get_width() / 2, bar.get_height())
        keys = {"ha": "center", "va": "bottom", "fontsize": 12} | text
        made.append(ax.annotate(words, at, xytext=(0, gap), textcoords="offset points", **keys))
    return made


def draw_cached(axes, h=8, n_kv=2, head_dim=128, latent=512, rope_key=64):
    """What MHA, GQA, MQA and MLA keep per token and layer, one panel each; returns a line of text for each.

    h query heads at the top; in the red frame what stays in memory: keys and values of each KV head, or one latent and one rope key.
    Above MLA's latent, hollow, the h keys and values that are made from it and not kept.
    """
    lines, x = [], [i + 0.5 for i in range(h)]
    for ax, kind in zip(axes, ("MHA", f"GQA-{n_kv}", "MQA", "MLA"), strict=True):
        heads = {"MHA": h, "MQA": 1}.get(kind, n_kv)
        ax.set(xlim=(-0.7, h + 0.7), ylim=(-1.35, 3.35))
        ax.axis("off")
        ax.set_title(kind, loc="center")
        ax.plot(x, [3] * h, "o", color=COLORS["q"], ms=11)
        if kind == "MLA":
            numbers, what = latent + rope_key, f"{latent} + {rope_key}"
            for at in x:
                ax.plot([at, at, h * 0.42], [2.85, 1.75, 0.45], color=COLORS["old"], lw=1.2)
                ax.plot([at], [2.0], "s", mfc=COLORS["paper"], mec=COLORS["k"], ms=10)
                ax.plot([at], [1.5], "s", mfc=COLORS["paper"], mec=COLORS["v"], ms=10)
            ax.barh([0.1], [h * 0.84], left=0, height=0.5, color=COLORS["latent"])
            ax.barh([0.1], [h * 0.12], left=h * 0.88, height=0.5, color=COLORS["rope"])
            ax.text(h * 0.42, 0.08, "latent", ha="center", va="center", fontsize=13)
        else:
            numbers, what = 2 * heads * head_dim, f"2 x {heads} x {head_dim}"
            at = [(i + 0.5) * h / heads for i in range(heads)]
            for i, top in enumerate(x):
                ax.plot([top, at[i * heads // h]], [2.8, 0.5], color=COLORS["old"], lw=1.2)
            ax.plot(at, [0.35] * heads, "s", color=COLORS["k"], ms=11)
            ax.plot(at, [-0.15] * heads, "s", color=COLORS["v"], ms=11)
        ax.add_patch(
            mpl.patches.Rectangle((-0.45, -0.5), h + 0.9, 1.2, fill=False, ec=COLORS["cached"], lw=2.5)
        )
        ax.text(
            h / 2, -0.65, f"{what} = {numbers:,}", ha="center", va="top", fontsize=14, color=COLORS["cached"]
        )
        lines.append(f"{kind:<6} {what:<11} = {numbers:>5,} numbers per token and layer")
    return "\n".join(lines)
