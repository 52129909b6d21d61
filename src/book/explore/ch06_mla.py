"""Chapter 06: what a layer of attention caches and computes while decoding, MLA beside MHA, GQA and MQA, on a roofline."""

from types import SimpleNamespace

import numpy as np
from matplotlib.patches import FancyBboxPatch

from book.explore import Explorer, Fact, Stops
from book.figures import COLORS, binary_size, thousands

# A round, made-up accelerator: the lesson is the shape of the roof, not a product.
PEAK = 1000e12  # FLOP/s
BANDWIDTH = 4e12  # bytes/s
LAYERS = 61  # DeepSeek-V3's, for the totals
BYTES = 2  # bf16
LOWEST = 1e-3  # GiB: where the bars start
KINDS = ("MHA", "GQA", "MQA", "MLA")
COLOR = {"MHA": COLORS["old"], "GQA": COLORS["k"], "MQA": COLORS["v"], "MLA": COLORS["latent"]}


def table(n_heads, kv_lora_rank, rope_dim, nope_dim, v_dim, groups, context):
    """Per token and layer: elements cached; per decoded token: FLOPs and bytes of attention over `context` keys.

    MHA, GQA and MQA keep keys of nope + rope and values of v for each KV head, so all four have the same head shape.
    """
    head = nope_dim + rope_dim + v_dim
    heads = {"MHA": n_heads, "GQA": min(groups, n_heads), "MQA": 1}
    elements = {kind: n * head for kind, n in heads.items()} | {"MLA": kv_lora_rank + rope_dim}
    flops = dict.fromkeys(heads, 2 * n_heads * head) | {"MLA": 2 * n_heads * (2 * kv_lora_rank + rope_dim)}
    intensity = {kind: flops[kind] / (BYTES * elements[kind]) for kind in KINDS}
    rate = {kind: min(PEAK, BANDWIDTH * intensity[kind]) for kind in KINDS}
    return {
        "elements": elements,
        "bytes_per_token": {kind: LAYERS * BYTES * n for kind, n in elements.items()},
        "gib": {kind: LAYERS * BYTES * n * context / 2**30 for kind, n in elements.items()},
        "flops_per_key": flops,
        "intensity": intensity,
        "rate": rate,
        "step_ms": {kind: 1e3 * LAYERS * context * flops[kind] / rate[kind] for kind in KINDS},
        "ratio": elements["MHA"] / elements["MLA"],
        "as_groups": elements["MLA"] / (2 * nope_dim),
        "context": context,
        "groups": heads["GQA"],
    }


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.15])
    left.set(
        xscale="log", xlim=(LOWEST, 3e4), ylim=(3.6, -0.6), title="cache, 61 layers, bf16", xlabel="GiB (log)"
    )
    left.set_yticks(range(4), KINDS)
    left.grid(axis="y", visible=False)
    bars = left.barh(range(4), [1] * 4, left=LOWEST, color=[COLOR[k] for k in KINDS], height=0.62)
    sizes = [left.text(1.3 * LOWEST, i, "", va="center", fontsize=13, fontweight="bold") for i in range(4)]
    x = np.logspace(-0.5, 4, 100)
    right.plot(x, np.minimum(PEAK, BANDWIDTH * x) / 1e12, color=COLORS["weights"])
    right.set(
        xscale="log", yscale="log", xlim=(0.4, 8000), ylim=(1, 2500), title="decode attention on a roofline"
    )
    right.set(xlabel="FLOP per byte of cache", ylabel="attainable TFLOP/s")
    dots = [right.plot([], [], "o", ms=14, color=COLOR[k], mec=COLORS["ink"])[0] for k in KINDS]
    names = [right.text(0, 0, k, fontsize=13, fontweight="bold") for k in KINDS]
    return SimpleNamespace(bars=list(bars), sizes=sizes, dots=dots, names=names)


def draw(moving, t):
    for i, kind in enumerate(KINDS):
        gib = t["gib"][kind]
        moving.bars[i].set_width(gib - LOWEST)
        moving.sizes[i].set_text(f"{thousands(float(f'{gib:.3g}'))} GiB")
        x, y = t["intensity"][kind], t["rate"][kind] / 1e12
        moving.dots[i].set_data([x], [y])
        moving.names[i].set_position(
            (x * 1.35, y * (1.3 if kind == "MLA" else 0.62))
        )  # two dots may share the roof
    same = t["elements"]["MHA"] == t["elements"]["GQA"]  # no fewer KV heads than heads: one dot, one name
    moving.names[0].set_text("MHA = GQA" if same else "MHA")
    moving.names[1].set_text("" if same else "GQA")


def say(t):
    limit = "bandwidth" if t["rate"]["MLA"] < PEAK else "FLOPs"
    return (
        f"MLA keeps {t['elements']['MLA']:,} numbers per token and layer, MHA {t['elements']['MHA']:,}: {t['ratio']:.1f} times as many. "
        f"At {t['context']:,} tokens MLA's cache is {binary_size(t['gib']['MLA'] * 2**30)}; decoding it does {t['intensity']['MLA']:.0f} FLOP per byte "
        f"and is bound by {limit} here."
    )


mla_explorer = Explorer(
    "mla-roofline",
    table,
    setup,
    draw,
    say,
    title="What does attention cache, and what does a decode step do with each byte of it?",
    alt="Left: cache size of MHA, GQA, MQA and MLA as bars. Right: each kind as a dot on a roofline of FLOP per byte.",
    knobs=[
        Stops("n_heads", [8, 16, 32, 64, 128, 256], 128, label="heads h"),
        Stops("kv_lora_rank", [64, 128, 256, 512, 1024, 2048], 512, label="latent width d_c"),
        Stops("rope_dim", [0, 16, 32, 64, 128], 64, label="rope key d_R"),
        Stops("nope_dim", [32, 64, 128, 192, 256], 128, label="head without rope"),
        Stops("v_dim", [32, 64, 128, 192, 256], 128, label="value width"),
        Stops("groups", [2, 4, 8, 16, 32], 8, label="GQA's KV heads"),
        Stops("context", [1024, 4096, 16384, 32768, 65536, 131072, 1048576], 131072, unit="tokens", label="context"),
    ],
    player={"n_heads": [32, 64, 128, 256], "kv_lora_rank": None, "rope_dim": [0, 64, 128], "context": [4096, 131072, 1048576]},
    presets={"double the heads": {"n_heads": 256}, "d_R = 0": {"rope_dim": 0}, "1M tokens": {"context": 1048576}},
    facts=[
        Fact({}, lambda t: t["bytes_per_token"]["MLA"], 70272, source="SPEC 5: DeepSeek-V3, bf16"),
        Fact({}, lambda t: t["bytes_per_token"]["MHA"], 4997120, source="SPEC 5"),
        Fact({}, "ratio", 71.1, 0.001, source="SPEC 5"),
        Fact({}, "as_groups", 2.25, 1e-12, source="SPEC 5"),
        Fact({"context": 131072}, lambda t: t["gib"]["MLA"], 8.58, 0.001, source="SPEC 5: 8.58 GiB at 128K"),
        Fact({"rope_dim": 0}, lambda t: t["elements"]["MLA"], 512, source="DeepSeek-V3's d_c alone"),
    ],
    size=(11.0, 4.8),
)  # fmt: skip


def read_queries(T, S, n_heads=128, c=512, n=128, v=128):
    """Extra FLOPs of T queries over S keys: expanding every key once, against absorbing (moved queries, wider scores)."""
    T = np.asarray(T, float)
    return {
        "expand": 2.0 * n_heads * c * (n + v) * S + 0 * T,
        "absorb": 2.0 * n_heads * T * (c * (n + v) + S * (2 * c - n - v)),
    }


def draw_cached(ax):
    """The flow of one MLA layer with what is cached in red; returns the boxes as text, one line each."""
    boxes = [  # x, y, width, text, colour, cached
        (4.4, 0.2, 2.2, "x   [d]", "ink", False),
        (0.2, 1.7, 2.9, "q   [h, n + r]", "q", False),
        (4.1, 1.7, 2.8, "latent c   [d_c]", "cached", True),
        (8.2, 1.7, 2.8, "rope key k^R   [d_R]", "cached", True),
        (3.0, 3.3, 2.5, "keys k^C   [h, n]", "k", False),
        (5.8, 3.3, 2.4, "values   [h, v]", "v", False),
    ]
    arrows = [((4.6, 0.75), (2.2, 1.65), "W_DQ, norm, W_UQ"), ((5.5, 0.75), (5.5, 1.65), "W_DKV, norm")]
    arrows += [
        ((6.4, 0.75), (9.2, 1.65), "W_KR, rotate"),
        ((5.1, 2.3), (4.4, 3.25), "W_UK"),
        ((5.9, 2.3), (6.8, 3.25), "W_UV"),
    ]
    ax.set(xlim=(0, 11.2), ylim=(0, 4.1))
    ax.axis("off")
    for x, y, width, text, color, cached in boxes:
        face = COLORS["cached"] if cached else COLORS["paper"]
        ax.add_patch(FancyBboxPatch((x, y), width, 0.55, "round,pad=0.03", fc=face, ec=COLORS[color], lw=2.5))
        ink = COLORS["paper"] if cached else COLORS["ink"]
        ax.text(
            x + width / 2, y + 0.27, text, ha="center", va="center", fontsize=14, color=ink, fontweight="bold"
        )
    for start, end, text in arrows:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": COLORS["weights"], "lw": 1.8})
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        ax.text(*middle, text, ha="center", va="center", fontsize=12, backgroundcolor=COLORS["paper"])
    return "\n".join(f"{'cached' if cached else 'made  '}  {text}" for *_, text, _, cached in boxes[1:])
