"""Chapter 08: which share of a model its embedding is, tied and untied, and what tying saves. No torch."""

from types import SimpleNamespace

import numpy as np

from book import configs
from book.explore import Explorer, Fact, Stops
from book.figures import COLORS, binary_size
from lib.arithmetic import format_count, parameters
from lib.families import read_config

HEAD = 64  # width of a head; with it n_kv heads follow from d and the group size
WIDTHS = np.unique(np.geomspace(256, 16384, 97).round())  # the curve's x positions
REAL = ("gpt2", "smollm2-135m", "ernie-4.5-0.3b", "qwen3-0.6b", "gemma-3-1b", "llama-3.2-1b", "smollm3-3b") + (
    "qwen2.5-7b", "llama-3-8b", "command-r-v01", "llama-3-70b", "deepseek-v3")  # fmt: skip


def layer_parameters(d, group, ratio):
    """q, k, v and the output, three matrices of the feed-forward layer, two norms; whole heads, whole features."""
    kv = HEAD * np.maximum(1, np.round(d / (HEAD * group)))
    return 2 * d * d + 2 * d * kv + 3 * d * np.round(ratio * d) + 2 * d


def table(V, d, L, ratio, group):
    """Parameters of a Llama-shaped model (no biases, no QK-norm), and the share of the embedding along a range of widths."""
    embedding = V * d
    rest = int(L * layer_parameters(d, group, ratio)) + d
    body = L * layer_parameters(WIDTHS, group, ratio) + WIDTHS
    curve = V * WIDTHS
    return {
        "V": V,
        "d": d,
        "embedding": embedding,
        "layers": rest,
        "tied": embedding + rest,
        "untied": 2 * embedding + rest,
        "share": embedding / (embedding + rest),
        "both": 2 * embedding / (2 * embedding + rest),
        "saved": embedding / (2 * embedding + rest),
        "saved_bytes": 2 * embedding,
        "widths": WIDTHS,
        "share_curve": curve / (curve + body),
        "both_curve": 2 * curve / (2 * curve + body),
    }


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1.15, 1])
    left.set(xlim=(0, 100), ylim=(1.75, -0.75), xlabel="share of the untied model, %", title="parameters")
    left.set_yticks([0, 1], ["untied", "tied"])
    left.grid(axis="y", visible=False)
    parts = {"embedding": COLORS["new"], "head": COLORS["latent"], "layers": COLORS["faint"]}
    untied = [left.barh(0, 1, color=c, height=0.5, label=name)[0] for name, c in parts.items()]
    tied = [left.barh(1, 1, color=c, height=0.5)[0] for c in (parts["embedding"], parts["layers"])]
    totals = [
        left.text(1, y, "", va="center", fontsize=15, fontweight="bold") for y in (-0.42, 0.58)
    ]  # above the bars
    left.legend(loc="lower center", ncols=3, columnspacing=1.2, handlelength=1.2)
    right.set(
        xscale="log",
        xlim=(230, 18000),
        ylim=(0, 128),
        xlabel="model width d",
        title="share of embedding and head, %",
    )
    right.set_xticks([256, 1024, 4096, 16384], ["256", "1,024", "4,096", "16,384"])
    right.set_yticks(range(0, 101, 20))  # the legend stands above 100
    right.minorticks_off()
    both = right.plot([], [], color=COLORS["latent"], ls="--", label="untied, both matrices")[0]
    share = right.plot([], [], color=COLORS["new"], label="tied, the one matrix")[0]
    dots = [
        right.plot([], [], "o", ms=12, color=COLORS[c], mec=COLORS["ink"], clip_on=False)[0]
        for c in ("new", "latent")
    ]
    right.legend(loc="upper right")
    return SimpleNamespace(untied=untied, tied=tied, totals=totals, both=both, share=share, dots=dots)


def draw(moving, t):
    whole = t["untied"]
    embedding, layers = 100 * t["embedding"] / whole, 100 * t["layers"] / whole
    for bar, start, width in zip(
        moving.untied, (0, embedding, 2 * embedding), (embedding, embedding, layers), strict=True
    ):
        bar.set_x(start)
        bar.set_width(width)
    for bar, start, width in zip(moving.tied, (0, embedding), (embedding, layers), strict=True):
        bar.set_x(start)
        bar.set_width(width)
    moving.totals[0].set_text(f"{format_count(t['untied'])}, untied")
    moving.totals[1].set_text(f"{format_count(t['tied'])}, tied")
    moving.share.set_data(t["widths"], 100 * t["share_curve"])
    moving.both.set_data(t["widths"], 100 * t["both_curve"])
    moving.dots[0].set_data([t["d"]], [100 * t["share"]])
    moving.dots[1].set_data([t["d"]], [100 * t["both"]])


def say(t):
    return (
        f"The embedding has {t['embedding']:,} parameters: {t['share']:.1%} of the tied model. Untied, both matrices are {t['both']:.1%}. "
        f"Tying saves {t['saved']:.1%}, {binary_size(t['saved_bytes'])} in bf16."
    )


LLAMA_70B = {"d": 8192, "L": 80, "ratio": 3.5, "group": 8}
tied_explorer = Explorer(
    "tied-share",
    table,
    setup,
    draw,
    say,
    title="Which share of the model is its embedding, and what does tying save?",
    alt="Left: two stacked bars, the untied model and the shorter tied one. Right: share of the embedding against model width.",
    knobs=[
        Stops("V", [256, 32000, 49152, 100352, 128256, 151936, 262144], 128256, unit="tokens", label="vocabulary V"),
        Stops("d", [256, 576, 768, 1024, 2048, 3072, 4096, 5120, 8192, 16384], 2048, label="model width d"),
        Stops("L", [4, 8, 16, 24, 30, 32, 48, 64, 80, 126], 16, label="layers L"),
        Stops("ratio", [8 / 3, 3.0, 3.5, 4.0], 4.0, label="d_ff / d", text=lambda v: f"{v:.2f}"),
        Stops("group", [1, 2, 3, 4, 8, 16], 4, label="heads per KV head"),
    ],
    player={"d": None, "V": None, "L": [16, 30, 80]},
    presets={"SmolLM2": {"V": 49152, "d": 576, "L": 30, "ratio": 8 / 3, "group": 3}, "Llama-3-70B": LLAMA_70B},
    facts=[
        Fact({}, "tied", 1235814400, source="Llama-3.2-1B, CHAPTERS 08"),
        Fact({}, "untied", 1498482688, source="rasbt/LLMs-from-scratch#822"),
        Fact({}, "share", 0.2125, 0.0003, source="Llama-3.2-1B: 21.3 %"),
        Fact({"V": 49152, "d": 576, "L": 30, "ratio": 8 / 3, "group": 3}, "tied", 134515008, source="SPEC 9: SmolLM2"),
        Fact({"V": 151936, "d": 1024}, "embedding", 155582464, source="SPEC 7: Qwen3-0.6B"),
        Fact(LLAMA_70B, "untied", 70553706496, source="SPEC 4: Llama-3-70B"),
    ],
    size=(10.5, 4.6),
)  # fmt: skip


def real_models():
    """name, ties, V d, total and both shares, for the models of REAL, from their config.json."""
    rows = []
    for name in REAL:
        cfg = read_config(configs.path(name))
        p = parameters(cfg)
        rows.append(
            {
                "name": name,
                "tied": cfg.tied,
                "embedding": p.embedding,
                "total": p.total,
                "share": p.embedding / p.total,
                "both": (p.embedding + p.head) / p.total,
            }
        )
    return rows


def draw_real(ax, rows):
    """The explorer's bars for real models: embedding and, where untied, head, each as a share of the model."""
    for i, row in enumerate(rows):
        ax.barh(
            i, 100 * row["share"], color=COLORS["new"], height=0.62, label="embedding" if i == 0 else None
        )
        ax.barh(
            i,
            100 * (row["both"] - row["share"]),
            left=100 * row["share"],
            color=COLORS["latent"],
            height=0.62,
        )
        words = f"{100 * row['both']:.1f} %" + ("" if row["tied"] else ", untied")
        ax.text(100 * row["both"] + 0.6, i, words, va="center", fontsize=12)
    ax.barh(0, 0, color=COLORS["latent"], label="head, where it is a second matrix")
    ax.set_yticks(range(len(rows)), [f"{row['name']}  {format_count(row['total'])}" for row in rows])
    ax.set(xlim=(0, 40), ylim=(len(rows) - 0.4, -0.6), xlabel="share of the model, %")
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower right")
