"""Chapter 05: what a cache costs beside a real model's weights, and how query heads share key/value heads."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, binary_size
from lib.arithmetic import kv_cache_bytes, mla_cache_bytes

H = 32  # query heads of the wiring picture


@dataclass(frozen=True)
class Served:
    """What serving needs to know of a model. groups: (layers, KV heads, head_dim, window or None); mla: (layers, d_c, d_R)."""

    parameters: int
    longest: int  # max_position_embeddings
    source: str
    groups: tuple = ()
    mla: tuple = ()


# From each model's config.json, whose name on the Hugging Face hub is the source; parameters are counted from the same file.
MODELS = {
    "SmolLM2-135M": Served(134_515_008, 8192, "HuggingFaceTB/SmolLM2-135M-Instruct", ((30, 3, 64, None),)),
    "Qwen3-0.6B": Served(596_049_920, 40_960, "Qwen/Qwen3-0.6B", ((28, 8, 128, None),)),
    "Gemma-3-1B": Served(999_885_952, 32_768, "google/gemma-3-1b-it", ((22, 1, 256, 512), (4, 1, 256, None))),
    "Llama-2-7B": Served(6_738_415_616, 4096, "meta-llama/Llama-2-7b-hf", ((32, 32, 128, None),)),
    "Llama-3-8B": Served(8_030_261_248, 8192, "meta-llama/Meta-Llama-3-8B", ((32, 8, 128, None),)),
    "gpt-oss-20b": Served(
        20_914_757_184, 131_072, "openai/gpt-oss-20b", ((12, 8, 64, 128), (12, 8, 64, None))
    ),
    "Llama-3-70B": Served(70_553_706_496, 8192, "meta-llama/Meta-Llama-3-70B", ((80, 8, 128, None),)),
    "DeepSeek-V3": Served(671_026_404_352, 163_840, "deepseek-ai/DeepSeek-V3", mla=(61, 512, 64)),
}


def cache_bytes(model, tokens, batch=1, bytes_per_element=2, windows=True):
    """Bytes of a model's cache; with windows a window layer keeps min(window, tokens)."""
    m = MODELS[model]
    total = mla_cache_bytes(*m.mla, tokens, batch, bytes_per_element) if m.mla else 0
    for layers, n_kv, head_dim, window in m.groups:
        kept = min(window, tokens) if window and windows else tokens
        total += kv_cache_bytes(layers, n_kv, head_dim, kept, batch, bytes_per_element)
    return total


def crossover(model, batch, weights, bytes_per_element):
    """The first number of tokens a user at which the cache of `batch` users weighs as much as the weights."""
    low, high = 1, 10**9
    while low < high:
        middle = (low + high) // 2
        big = cache_bytes(model, middle, batch, bytes_per_element) >= weights
        low, high = (low, middle) if big else (middle + 1, high)
    return low


CONTEXTS = [512 * 2**i for i in range(12)]  # 512 .. 1,048,576


def served(model, context, users, cache_bits, weight_bits, device_gib):
    """GiB throughout: a card's driver reports its memory in them (an "80 GB" A100 has 81,920 MiB)."""
    weights, each = MODELS[model].parameters * weight_bits // 8, cache_bits / 8
    cache = cache_bytes(model, context, users, each)
    device = device_gib * 2**30
    one = cache_bytes(model, context, 1, each)
    return {
        "model": model,
        "bytes_per_token": cache_bytes(model, 1, 1, each),
        "weights_gib": weights / 2**30,
        "cache_gib": cache / 2**30,
        "device_gib": float(device_gib),
        "context": context,
        "users": users,
        "fits": max(0, device - weights) // one,
        "crossover": crossover(model, users, weights, each),
        "longest": MODELS[model].longest,
        "line": np.array([cache_bytes(model, c, users, each) / 2**30 for c in CONTEXTS]),
    }


LOW, HIGH, FULL = 1e-3, 1e6, 170  # GiB that the right picture shows; per cent that the left one does


def served_setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.35])
    left.set(xlim=(-0.7, 0.7), ylim=(0, FULL), ylabel="% of the device's memory", title="one device")
    left.set_xticks([])
    left.axhline(100, color=COLORS["ink"], lw=2.5)
    left.text(-0.68, 102, "full", fontsize=13)
    right.set(xscale="log", yscale="log", xlim=(400, 1.4e6), ylim=(LOW, HIGH))
    right.set(xlabel="context, tokens per user (log)", ylabel="GiB (log)", title="cache against context")
    right.set_xticks([1024, 8192, 65536, 524288], ["1K", "8K", "64K", "512K"])
    bars = [left.bar([0], [1], width=0.8, color=COLORS[c])[0] for c in ("weights", "cached")]
    inside = left.text(0, 0, "weights", ha="center", va="center", fontsize=14, color=COLORS["paper"])
    above = left.text(0, 0, "", ha="center", fontsize=14, fontweight="bold", color=COLORS["cached"])
    return SimpleNamespace(
        bars=bars,
        inside=inside,
        above=above,
        users=left.text(
            0.5, -0.04, "", transform=left.transAxes, fontsize=14, fontweight="bold", ha="center", va="top"
        ),
        beyond=left.plot([], [], "^", color=COLORS["cached"], ms=14, clip_on=False)[0],
        cache=right.plot([], [], color=COLORS["cached"])[0],
        weights=right.plot([], [], color=COLORS["weights"], ls="--")[0],
        device=right.plot([], [], color=COLORS["old"], ls=":", lw=3)[0],
        names=[
            right.text(1.5e6, 1, f"{w}\n888 GiB", fontsize=12, color=COLORS[c])
            for w, c in (("weights", "weights"), ("device", "old"))
        ],
        cross=right.plot([], [], "s", color=COLORS["weights"], ms=11)[0],
        here=right.plot([], [], "o", color=COLORS["cached"], ms=13, mec=COLORS["ink"])[0],
    )


def gibibytes(gib):
    return binary_size(gib * 2**30)


def served_draw(moving, t):
    """A bar that is higher than the picture leaves it, with an arrow and its number; so do lines and the dot."""
    weights, cache = 100 * t["weights_gib"] / t["device_gib"], 100 * t["cache_gib"] / t["device_gib"]
    for bar, bottom, height in zip(moving.bars, (0.0, weights), (weights, cache), strict=True):
        bar.set_y(bottom)
        bar.set_height(height)
    moving.inside.set_text("weights" if weights > 9 else "")
    moving.inside.set_y(min(weights, FULL) / 2)
    over = weights + cache > 120
    share = f" ({weights + cache:,.0f} % in all)" if over else ""
    moving.above.set_text(f"cache {gibibytes(t['cache_gib'])}{share}")
    top = weights + cache + 2
    moving.above.set_y(125 if over else max(top, 103) if top > 90 else top)  # never across the line "full"
    moving.above.set_bbox({"fc": COLORS["paper"], "ec": "none", "pad": 1.5} if over else None)
    moving.beyond.set_data([0] if weights + cache > FULL else [], [FULL] if weights + cache > FULL else [])
    moving.users.set_text(f"room for {t['fits']:,} user{'' if t['fits'] == 1 else 's'}")
    moving.cache.set_data(CONTEXTS, t["line"])
    levels = (t["weights_gib"], t["device_gib"])
    for line, name, name_of, gib in zip(
        (moving.weights, moving.device), moving.names, ("weights", "device"), levels, strict=True
    ):
        line.set_data([400, 1.4e6], [gib, gib])
        name.set_text(f"{name_of}\n{gibibytes(gib)}")
    # Beside the axes, where nothing is drawn; two levels that are close push their names apart.
    apart = max(levels) / min(levels) < 30
    for name, gib in zip(moving.names, levels, strict=True):
        name.set_va("center" if not apart else "bottom" if gib == max(levels) else "top")
        name.set_position((1.5e6, gib))
    inside = CONTEXTS[0] <= t["crossover"] <= CONTEXTS[-1]
    moving.cross.set_data([t["crossover"]] if inside else [], [t["weights_gib"]] if inside else [])
    moving.here.set_data([t["context"]], [t["cache_gib"]])


def served_say(t):
    beyond = f" (above the {t['longest']:,} tokens of its config)" if t["crossover"] > t["longest"] else ""
    return (
        f"{t['model']}: {binary_size(t['bytes_per_token'])} per token. {t['users']:,} × {t['context']:,} tokens keep "
        f"{gibibytes(t['cache_gib'])} beside {gibibytes(t['weights_gib'])} of weights; {t['device_gib']:,.0f} GiB hold {t['fits']:,} users. "
        f"Cache = weights at {t['crossover']:,} tokens per user{beyond}."
    )


cache_explorer = Explorer(
    "kv-cache",
    served,
    served_setup,
    served_draw,
    served_say,
    title="What fills the memory: the weights or the cache?",
    alt="Left: weights and cache stacked as a share of a device's memory. Right: cache in GiB against context, log-log, with the weights and the device as levels.",
    knobs=[
        Choice("model", list(MODELS), "Llama-2-7B"),
        Stops("context", CONTEXTS, 4096, unit="tokens", label="context"),
        Stops("users", [1, 2, 4, 8, 16, 32, 64, 128, 256], 4, label="users at once"),
        Stops("cache_bits", [4, 8, 16, 32], 16, unit="bits", label="a cached number"),
        Stops("weight_bits", [4, 8, 16, 32], 16, unit="bits", label="a weight"),
        Stops("device_gib", [8, 16, 24, 48, 80, 140, 640, 1120, 2240], 24, unit="GiB", label="memory"),
    ],
    player={"model": None, "context": CONTEXTS[::2], "users": [1, 4, 64, 256], "device_gib": [24, 80, 640]},
    presets={
        "one user": {"context": 32_768, "users": 1},
        "a full card": {"model": "Llama-3-8B", "context": 8192, "users": 64, "device_gib": 80},
        "MLA": {"model": "DeepSeek-V3", "device_gib": 2240, "context": 131_072, "users": 64},
    },
    facts=[
        Fact({}, "bytes_per_token", 524_288, source="SPEC 4: Llama-2-7B, fp16"),
        Fact({"users": 1}, "crossover", 25_706, source="about 25.7k tokens"),
        Fact({"model": "Llama-3-8B"}, "bytes_per_token", 131_072, source="SPEC 4: 128 KiB"),
        Fact({"model": "Llama-3-8B", "users": 1}, "crossover", 122_533, source="about 122.5k tokens"),
        Fact({"model": "Llama-3-70B"}, "bytes_per_token", 327_680, source="SPEC 4: 320 KiB"),
        Fact({"model": "Qwen3-0.6B"}, "bytes_per_token", 114_688, source="112 KiB, not 56"),
        Fact({"model": "DeepSeek-V3"}, "bytes_per_token", 70_272, source="SPEC 5"),
        Fact(
            {"model": "gpt-oss-20b", "context": 8192, "users": 32},
            "cache_gib",
            6_543_114_240 / 2**30,
            1e-12,
            source="alvarobartt/hf-mem#60: rolling buffers",
        ),
    ],
    size=(11.0, 4.8),
)


def speed_axes(ax):
    """Axes and legend of the chapter's speed picture."""
    ax.set(
        xscale="log", xlabel="context, tokens (log)", ylabel="tokens/s of one user, at most", ylim=(0, 215)
    )
    ax.set_xticks([1024, 8192, 65536], ["1K", "8K", "64K"])
    ax.legend()


# ---- who reads whose keys


def kv_head(j, n_kv, how="repeat"):
    """The KV head that query head j reads."""
    return j // (H // n_kv) if how == "repeat" else j % n_kv


def wired(n_kv, how):
    """Cost relative to MHA, and which KV head each of the 32 query heads reads. 32 layers, heads of 128, two bytes."""
    mha, mine = kv_cache_bytes(32, H, 128), kv_cache_bytes(32, n_kv, 128)
    return {
        "n_kv": n_kv,
        "reads": [kv_head(j, n_kv, how) for j in range(H)],
        "wrong": sum(kv_head(j, n_kv, how) != kv_head(j, n_kv) for j in range(H)),
        "kind": "MHA" if n_kv == H else "MQA" if n_kv == 1 else f"GQA-{n_kv}",
        "bytes_per_token": mine,
        "mha_bytes_per_token": mha,
        "cache_share": 100 * mine / mha,
        "projection_share": 100 * (2 * H + 2 * n_kv) / (4 * H),  # wq, wo and the narrower wk, wv; any d
        "score_share": 100.0,  # every query head still meets every key
    }


X_Q = np.arange(H) + 0.5


def wiring(ax):
    """The fixed part of the wiring picture and its movable artists."""
    ax.set(xlim=(-0.4, H + 0.4), ylim=(-0.5, 1.42))
    ax.axis("off")
    ax.plot(X_Q, np.ones(H), "o", color=COLORS["q"], ms=8)
    ax.text(H / 2, 1.16, f"{H} query heads", ha="center", fontsize=13, color=COLORS["q"])
    lines = [ax.plot([], [], color=COLORS["old"], lw=1.6)[0] for _ in range(H)]
    keys = ax.plot([], [], "s", color=COLORS["k"], ms=11)[0]
    values = ax.plot([], [], "s", color=COLORS["v"], ms=11)[0]
    note = ax.text(H / 2, -0.48, "", ha="center", fontsize=13)
    return SimpleNamespace(lines=lines, keys=keys, values=values, note=note)


def wire(moving, t):
    n_kv = t["n_kv"]
    at = (np.arange(n_kv) + 0.5) * H / n_kv
    group = H // n_kv
    for j, (line, kv) in enumerate(zip(moving.lines, t["reads"], strict=True)):
        line.set_data([X_Q[j], at[kv]], [1, 0.08])
        line.set_color(COLORS["ink" if kv != j // group else "old"])
    for squares, height in ((moving.keys, 0.0), (moving.values, -0.2)):
        squares.set_data(at, np.full(n_kv, height))
        squares.set_markersize(7 if n_kv == H else 11)  # 32 of the larger ones would be a bar
    words = f"{n_kv} key and value heads" if n_kv > 1 else "1 key and value head"
    moving.note.set_text(words)


BARS = (
    ("cache", "cache_share", "cached"),
    ("projection weights", "projection_share", "weights"),
    ("score FLOPs", "score_share", "old"),
)


def wired_setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1.7, 1])
    moving = wiring(left)
    moving.kind = left.text(0, 1.34, "", fontsize=16, fontweight="bold")
    right.set(xlim=(0, 128), ylim=(2.6, -0.6), xlabel="% of MHA", title="what is left of MHA")
    right.set_yticks(range(3), [name for name, *_ in BARS])
    right.set_xticks([0, 25, 50, 75, 100])
    right.grid(axis="y", visible=False)
    moving.bars = list(right.barh(range(3), [1] * 3, color=[COLORS[c] for *_, c in BARS], height=0.6))
    moving.shares = [right.text(0, i, "", va="center", fontsize=14, fontweight="bold") for i in range(3)]
    return moving


def wired_draw(moving, t):
    wire(moving, t)
    moving.kind.set_text(f"{t['kind']}: {binary_size(t['bytes_per_token'])} per token")
    for bar, share, (_, key, _) in zip(moving.bars, moving.shares, BARS, strict=True):
        bar.set_width(t[key])
        share.set_text(f"{t[key]:.3g} %")
        share.set_x(t[key] + 2)


def wired_say(t):
    wrong = (
        f" {t['wrong']} of {H} query heads read another head's keys (black lines): the tiled order is not the one the weights were trained in."
        if t["wrong"]
        else ""
    )
    return (
        f"{t['kind']}, 32 layers, heads of 128: {t['bytes_per_token']:,} B per token, {t['cache_share']:.3g} % of MHA's "
        f"{t['mha_bytes_per_token']:,}. Scores cost as many FLOPs as before.{wrong}"
    )


wiring_explorer = Explorer(
    "attention-wiring",
    wired,
    wired_setup,
    wired_draw,
    wired_say,
    title="Whose keys does a query head read?",
    alt="Left: 32 query heads joined to the KV heads that they read. Right: cache, projection weights and score FLOPs as % of MHA.",
    knobs=[
        Stops("n_kv", [1, 2, 4, 8, 16, 32], 8, label="KV heads"),
        Choice("how", {"repeat": "repeat: 0 0 1 1", "tile": "tile: 0 1 0 1 (wrong)"}, label="order"),
    ],
    player=("n_kv", "how"),
    presets={
        "MQA": {"n_kv": 1},
        "tiled": {"how": "tile"},
    },
    facts=[
        Fact({}, "bytes_per_token", 131_072, source="the seed's question 1: 128 KiB"),
        Fact({"n_kv": 32}, "bytes_per_token", 524_288, source="Llama-2-7B"),
        Fact({"n_kv": 1}, "cache_share", 100 / 32, 1e-12, source="MQA: h times smaller"),
    ],
    size=(11.0, 4.6),
)
