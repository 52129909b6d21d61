"""Chapter 02: the width rule as a staircase, and the pictures of the two feed-forward layers."""

from types import SimpleNamespace

import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

from book.explore import Explorer, Fact, Stops
from book.figures import COLORS, thousands
from lib.arithmetic import swiglu_width

SMALLEST_D, LARGEST_D = 512, 8192
RATIO = 8 / 3


def table(d, multiplier, multiple_of):
    """The width at d, and the staircase from SMALLEST_D to LARGEST_D in steps of 16."""
    widths = np.arange(SMALLEST_D, LARGEST_D + 1, 16)
    stairs = np.array([swiglu_width(int(w), multiplier, multiple_of) for w in widths])
    d_ff = swiglu_width(d, multiplier, multiple_of)
    wanted = RATIO * d * multiplier
    line = RATIO * multiplier * widths
    return {
        "d": d,
        "d_ff": d_ff,
        "wanted": wanted,
        "parameters": 3 * d * d_ff,
        "gelu_parameters": 8 * d * d,
        "ratio": 3 * d_ff / (8 * d),
        "steps": d_ff // multiple_of,
        "multiple_of": multiple_of,
        "widths": widths,
        "stairs": stairs,
        "line": line,
        "waste": np.maximum(0.0, 1 - line / stairs),
        "share": max(0.0, 1 - wanted / d_ff),
    }


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1.25, 1])
    for ax in (left, right):  # in ratios: equal steps are large beside a small width
        ax.set(xscale="log", xlim=(SMALLEST_D / 1.1, 1.1 * LARGEST_D), xlabel="model width d (log)")
        ax.set_xticks([512, 1024, 2048, 4096, 8192], ["512", "1,024", "2,048", "4,096", "8,192"])
    left.set(yscale="log", ylim=(1000, 48_000), title="feed-forward width d_ff")
    left.set_yticks([1024, 2048, 4096, 8192, 16384, 32768], ["1,024", "2,048", "4,096", "8,192", "16,384", "32,768"])  # fmt: skip
    ends = np.array([SMALLEST_D, LARGEST_D])
    left.plot(ends, RATIO * ends, color=COLORS["faint"], lw=2)
    left.text(
        LARGEST_D, RATIO * LARGEST_D / 1.5, "8/3 d", ha="right", va="top", fontsize=13, color=COLORS["old"]
    )
    right.set(ylim=(-2, 72), title="share that is rounding, %")
    for ax in (left, right):
        ax.minorticks_off()
    return SimpleNamespace(
        stairs=left.plot([], [], color=COLORS["new"], drawstyle="steps-post")[0],
        line=left.plot([], [], color=COLORS["old"], ls="--", lw=1.6)[0],
        here=left.plot([], [], "o", color=COLORS["cached"], ms=12)[0],
        note=left.text(0.02, 0.97, "", transform=left.transAxes, fontsize=16, fontweight="bold", va="top"),
        waste=right.plot([], [], color=COLORS["new"], lw=1.6)[0],
        wasted=right.plot([], [], "o", color=COLORS["cached"], ms=12)[0],
    )


def draw(moving, t):
    moving.stairs.set_data(t["widths"], t["stairs"])
    moving.line.set_data(t["widths"], t["line"])
    moving.here.set_data([t["d"]], [t["d_ff"]])
    moving.note.set_text(f"d = {thousands(t['d'])}  →  d_ff = {thousands(t['d_ff'])}")
    moving.waste.set_data(t["widths"], 100 * t["waste"])
    moving.wasted.set_data([t["d"]], [100 * t["share"]])


def say(t):
    return (
        f"{t['wanted']:,.1f} becomes {t['steps']} × {t['multiple_of']:,} = {t['d_ff']:,} ({t['share']:.1%} of it is rounding). "
        f"Three matrices of that width have {t['ratio']:.4f} times the parameters of a GELU MLP at 4d."
    )


width_explorer = Explorer(
    "swiglu-width",
    table,
    setup,
    draw,
    say,
    title="Which width does the rule give, and what does rounding up cost?",
    alt="Left: feed-forward width against model width, both log, a staircase above the line 8/3 d. Right: the share of it that is rounding. The chosen width is a dot in both.",
    knobs=[
        Stops("d", [512, 576, 768, 1024, 2048, 3072, 4096, 5120, 6656, 8192], 4096, label="model width d"),
        Stops("multiplier", [1.0, 1.3, 1.5], 1.0, label="multiplier"),
        Stops("multiple_of", [1, 16, 64, 256, 1024, 4096], 256, label="multiple of"),
    ],
    player={"d": None, "multiple_of": None, "multiplier": None},
    presets={
        "4,096 with a small d": {"d": 512, "multiple_of": 4096},
        "Llama-3-8B": {"multiplier": 1.3, "multiple_of": 1024},
    },
    facts=[
        Fact({}, "d_ff", 11008, source="SPEC 2: Llama 7B"),
        Fact({"d": 5120}, "d_ff", 13824, source="SPEC 2: Llama 13B"),
        Fact(
            {"d": 8192, "multiplier": 1.3, "multiple_of": 4096}, "d_ff", 28672, source="SPEC 2: Llama-2-70B"
        ),
        Fact({"multiplier": 1.3, "multiple_of": 1024}, "d_ff", 14336, source="SPEC 2: Llama-3-8B"),
        Fact({"d": 512, "multiple_of": 64}, "d_ff", 1408, source="SPEC 2"),
    ],
    size=(10.0, 4.6),
)


def draw_matrices(
    axes,
    d=4,
    ratios=((4.0, 4.0), (8 / 3, 8 / 3, 8 / 3)),
    names=(("W_up", "W_down"), ("W_gate", "W_up", "W_down")),
):
    """Two tall rectangles, three short ones: the same area. Returns one line a matrix: name, width, height, area in d^2."""
    lines = []
    for ax, heights, labels, title in zip(
        axes, ratios, names, ("GELU MLP, 4d", "SwiGLU, 8/3 d"), strict=True
    ):
        for i, (height, label) in enumerate(zip(heights, labels, strict=True)):
            color = (
                COLORS["q"] if label == "W_gate" else COLORS["old"] if len(heights) == 2 else COLORS["new"]
            )
            ax.add_patch(
                Rectangle((i * (d + 0.6), 0), d, height * d, fc=color, ec=COLORS["paper"], alpha=0.85)
            )
            ax.text(
                i * (d + 0.6) + d / 2,
                height * d / 2,
                label,
                ha="center",
                va="center",
                color=COLORS["paper"],
                fontsize=15,
                fontweight="bold",
            )
            lines.append(f"{title:<14} {label:<7} 1 d x {height:.3f} d = {height:.3f} d^2")
        ax.set(xlim=(-0.3, 3 * (d + 0.6)), ylim=(0, 4 * d + 0.5), title=title, aspect="equal")
        ax.axis("off")
    return "\n".join(lines)


def draw_swiglu(ax):
    """The flow of the layer: widths and matrices; returns it in words."""
    boxes = [  # x, y, width, text, colour
        (0.0, 1.5, 1.3, "$x$   [$d$]", "ink"),
        (3.0, 2.6, 2.0, "$z$   [$d_{ff}$]", "new"),
        (3.0, 0.4, 2.0, "$u$   [$d_{ff}$]", "old"),
        (6.6, 1.5, 2.6, "silu($z$) $\\odot$ $u$   [$d_{ff}$]", "ink"),
        (11.2, 1.5, 1.3, "out   [$d$]", "ink"),
    ]
    arrows = [
        ((1.35, 1.95), (2.95, 2.85), "$W_{gate}$"),
        ((1.35, 1.65), (2.95, 0.75), "$W_{up}$"),
        ((5.05, 2.85), (6.55, 1.95), "silu"),
        ((5.05, 0.75), (6.55, 1.65), ""),
        ((9.25, 1.8), (11.15, 1.8), "$W_{down}$"),
    ]
    ax.set(xlim=(-0.1, 12.7), ylim=(0.2, 3.4))
    ax.axis("off")
    for start, end, text in arrows:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": COLORS["weights"], "lw": 1.8})
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        if text:
            ax.text(*middle, text, ha="center", va="center", fontsize=14, backgroundcolor=COLORS["paper"])
    for x, y, width, text, color in boxes:
        ax.add_patch(
            FancyBboxPatch((x, y), width, 0.6, "round,pad=0.03", fc=COLORS["paper"], ec=COLORS[color], lw=2.2)
        )
        ax.text(x + width / 2, y + 0.3, text, ha="center", va="center", fontsize=14)
    return "x [d] -> gate z and features u [d_ff] -> silu(z) * u [d_ff] -> out [d]"
