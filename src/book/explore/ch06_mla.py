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


def table(n_heads, kv_lora_rank, rope_dim, nope_dim, v_dim, groups, gpus, context):
    """On each GPU of a tensor-parallel server, per token and layer: elements cached; per decoded token: FLOPs and bytes of
    attention over `context` keys. A GPU has its share of the query heads, and the KV heads that those read.

    MHA, GQA and MQA keep keys of nope + rope and values of v for each KV head, so all four have the same head shape.
    """
    head = nope_dim + rope_dim + v_dim
    mine = -(-n_heads // gpus)
    heads = {"MHA": mine, "GQA": -(-min(groups, n_heads) // gpus), "MQA": 1}
    elements = {kind: n * head for kind, n in heads.items()} | {"MLA": kv_lora_rank + rope_dim}
    flops = dict.fromkeys(heads, 2 * mine * head) | {"MLA": 2 * mine * (2 * kv_lora_rank + rope_dim)}
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
        "gpus": gpus,
    }


def _ms(t, kind):
    return thousands(float(f"{t['step_ms'][kind]:.2g}"))


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.15])
    left.set(
        xscale="log",
        xlim=(LOWEST, 3e4),
        ylim=(3.6, -0.6),
        title="cache on each GPU, 61 layers, bf16",
        xlabel="GiB (log)",
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
        moving.names[i].set_text(f"{kind} {_ms(t, kind)} ms")
    alike = {}  # dots on one spot get one name
    for i, kind in enumerate(KINDS):
        alike.setdefault((t["intensity"][kind], t["rate"][kind]), []).append(i)
    for first, *others in alike.values():
        if others:
            names = " = ".join(KINDS[i] for i in (first, *others))
            moving.names[first].set_text(moving.names[first].get_text().replace(KINDS[first], names))
        for i in others:
            moving.names[i].set_text("")


def say(t):
    limit = "bandwidth" if t["rate"]["MLA"] < PEAK else "FLOPs"
    where = f"Each of {t['gpus']} GPUs: " if t["gpus"] > 1 else ""
    return (
        f"{where}MLA keeps {t['elements']['MLA']:,} numbers per token and layer, MHA {t['elements']['MHA']:,}: {t['ratio']:.1f} times as many. "
        f"At {t['context']:,} tokens MLA's cache is {binary_size(t['gib']['MLA'] * 2**30)}; decoding it does {t['intensity']['MLA']:.0f} FLOP per byte "
        f"and is bound by {limit} here: {_ms(t, 'MLA')} ms."
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
        Stops("gpus", [1, 2, 4, 8], 1, label="GPUs"),
        Stops("context", [1024, 4096, 16384, 32768, 65536, 131072, 1048576], 131072, unit="tokens", label="context"),
    ],
    player={"n_heads": [32, 128, 256], "kv_lora_rank": None, "rope_dim": [0, 64], "gpus": [1, 8], "context": [4096, 131072, 1048576]},
    presets={"double the heads": {"n_heads": 256}, "d_R = 0": {"rope_dim": 0}, "1M tokens": {"context": 1048576}, "8 GPUs": {"gpus": 8}},
    facts=[
        Fact({}, lambda t: t["bytes_per_token"]["MLA"], 70272, source="SPEC 5: DeepSeek-V3, bf16"),
        Fact({}, lambda t: t["bytes_per_token"]["MHA"], 4997120, source="SPEC 5"),
        Fact({}, "ratio", 71.1, 0.001, source="SPEC 5"),
        Fact({}, "as_groups", 2.25, 1e-12, source="SPEC 5"),
        Fact({"context": 131072}, lambda t: t["gib"]["MLA"], 8.58, 0.001, source="SPEC 5: 8.58 GiB at 128K"),
        Fact({"gpus": 8}, lambda t: t["bytes_per_token"]["MLA"], 70272, source="one latent for all heads: not split"),
        Fact({"gpus": 8}, lambda t: t["bytes_per_token"]["GQA"], 39040, source="8 KV heads, one per GPU: 320 * 61 * 2"),
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


def _box(ax, x, y, width, text, color, kept, size=14):
    face = COLORS["cached"] if kept else COLORS["paper"]
    ax.add_patch(FancyBboxPatch((x, y), width, 0.55, "round,pad=0.03", fc=face, ec=COLORS[color], lw=2))
    ink = COLORS["paper"] if kept else COLORS["ink"]
    ax.text(x + width / 2, y + 0.27, text, ha="center", va="center", fontsize=size, color=ink)


def draw_layer(ax):
    """The flow of one MLA layer, what is cached filled; returns the boxes as text, one line each."""
    boxes = [  # x, y, width, text, in words, colour, cached
        (4.5, 0.1, 1.6, "$x$", "x [d]", "ink", False),
        (0.1, 1.6, 1.7, "$q^C_j$", "q^C [h, d_nope]", "q", False),
        (2.0, 1.6, 1.7, "$q^R_j$", "q^R [h, d_R], rotated", "q", False),
        (4.3, 1.6, 2.0, "$c$", "latent c [d_c]", "cached", True),
        (8.0, 1.6, 2.0, "$k^R$", "rope key k^R [d_R], rotated", "cached", True),
        (3.2, 3.1, 1.5, "$k^C_j$", "k^C [h, d_nope]", "k", False),
        (5.0, 3.1, 1.3, "$v_j$", "v [h, d_v]", "v", False),
        (
            1.2,
            4.5,
            4.0,
            r"$(q_j^{C\top} k_j^C + q_j^{R\top} k^R)\,/\sqrt{d_{nope} + d_R}$",
            "score of head j",
            "ink",
            False,
        ),
    ]
    arrows = [  # from, to, label, where on the way
        ((4.7, 0.7), (1.9, 1.55), r"$W^{DQ}$, norm, $W^{UQ}$", 0.5),
        ((5.3, 0.7), (5.3, 1.55), r"$W^{DKV}$, norm", 0.5),
        ((5.9, 0.7), (8.8, 1.55), r"$W^{KR}$, rotate", 0.5),
        ((5.0, 2.2), (4.1, 3.05), r"$W^{UK}_j$", 0.5),
        ((5.5, 2.2), (5.6, 3.05), r"$W^{UV}_j$", 0.5),
        ((0.9, 2.2), (2.0, 4.45), "", 0.5),
        ((2.85, 2.2), (2.7, 4.45), "", 0.5),
        ((3.9, 3.7), (3.6, 4.45), "", 0.5),
        ((8.9, 2.2), (5.25, 4.6), "", 0.5),
    ]
    ax.set(xlim=(0, 10.2), ylim=(0, 5.2))
    ax.axis("off")
    for start, end, text, share in arrows:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": COLORS["weights"], "lw": 1.6})
        middle = [a + share * (b - a) for a, b in zip(start, end, strict=True)]
        if text:
            ax.text(*middle, text, ha="center", va="center", fontsize=12, backgroundcolor=COLORS["paper"])
    for x, y, width, text, _, color, kept in boxes:
        _box(ax, x, y, width, text, color, kept)
    return "\n".join(f"{'cached' if kept else 'made  '}  {words}" for *_, words, _, kept in boxes[1:])
