"""Chapter 11: the latent kernel's block sizes against registers, shared memory, occupancy and the bytes that it asks for."""

import json
from functools import cache
from types import SimpleNamespace

from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, binary_size
from book.paths import NOTEBOOKS
from lib.kernels.cards import A100, H100, resident
from lib.kernels.costs import latent_intensity

HEADS, C, R, KEYS = 128, 512, 64, 4096  # DeepSeek-V3, one sequence of 4,096 tokens
CARDS = {"A100": A100, "H100": H100}


@cache
def measured():
    """What `python -m book.compiled --write` read from the cubins."""
    return json.loads((NOTEBOOKS / "results" / "kernels.json").read_text(encoding="utf-8"))["latent"]


def table(rows, keys, stages, card):
    """One program holds `rows` heads and takes `keys` latents at a time, `stages` blocks of them on the way at once."""
    chosen = CARDS[card]
    found = measured()[str(chosen.capability)][f"{rows} {keys} {stages}"]
    fits, limit = resident(chosen, found["registers"], found["shared"], found["threads"])
    intensity = latent_intensity(HEADS, C, R, KEYS, rows)
    return {
        "rows": rows,
        "keys": keys,
        "card": chosen.name,
        "registers": found["registers"],
        "spilled": found["stack"],
        "shared": found["shared"],
        "most_shared": chosen.shared_per_program,
        "resident": fits,
        "limit": limit,
        "occupancy": fits * found["threads"] / chosen.threads,
        "bytes": HEADS // rows * KEYS * (C + R) * 2,
        "once": KEYS * (C + R) * 2,
        "intensity": intensity,
        "ridge": chosen.ridge,
    }


BARS = ("registers per thread, of 255", "shared memory, of what a program may have", "threads resident, of the most", "FLOP per byte, of the ridge")  # fmt: skip


def shares(t):
    return [t["registers"] / 255, t["shared"] / t["most_shared"], t["occupancy"], t["intensity"] / t["ridge"]]


def setup(fig):
    ax = fig.subplots()
    ax.set(xlim=(0, 3), ylim=(3.6, -0.6), xlabel="share of the limit (1 = the limit)")
    ax.set_yticks(range(4), BARS)
    ax.grid(axis="y", visible=False)
    ax.axvline(1, color=COLORS["ink"], lw=1.5)
    bars = ax.barh(
        range(4), [1] * 4, height=0.6, color=[COLORS[c] for c in ("weights", "cached", "k", "latent")]
    )
    veil = {"fc": COLORS["paper"], "ec": "none", "alpha": 0.85, "pad": 1}
    return SimpleNamespace(
        bars=list(bars), notes=[ax.text(0, i, "", va="center", fontsize=13, bbox=veil) for i in range(4)]
    )


def draw(moving, t):
    texts = [
        f"{t['registers']}" + (f", {t['spilled']} B spilled" if t["spilled"] else ""),
        binary_size(t["shared"]) + ("" if t["shared"] <= t["most_shared"] else ": does not start"),
        f"{100 * t['occupancy']:.0f}%",
        f"{t['intensity']:.0f} of {t['ridge']:.0f}",
    ]
    for bar, note, share, text in zip(moving.bars, moving.notes, shares(t), texts, strict=True):
        bar.set_width(share)
        note.set_text(text)
        note.set_position((share + 0.03, note.get_position()[1]))


def say(t):
    spill = f" {t['spilled']} bytes per thread spill to memory." if t["spilled"] else ""
    start = (
        f"{t['resident']} program{'s fit' if t['resident'] > 1 else ' fits'} on a multiprocessor of an {t['card']}, limited by {t['limit']}."
        if t["resident"]
        else f"The kernel does not start on an {t['card']}: too much shared memory."
    )
    times = t["bytes"] // t["once"]
    many = "once" if times == 1 else f"{times} times"
    return (
        f"{t['rows']} heads per program: the latents are asked for {many}, {binary_size(t['bytes'])}; "
        f"{t['intensity']:.0f} FLOP per byte. {start}{spill}"
    )


block_explorer = Explorer(
    "kernel-blocks",
    table,
    setup,
    draw,
    say,
    title="What does a larger block buy, and what does it cost?",
    alt="Four bars as shares of their limits: registers, shared memory, resident threads, FLOP per byte of the latent kernel.",
    knobs=[
        Stops("rows", [16, 32, 64, 128], 32, label="heads per program"),
        Stops("keys", [16, 32, 64], 32, label="latents per step"),
        Stops("stages", [1, 2, 3], 2, label="steps in flight"),
        Choice("card", ["A100", "H100"]),
    ],
    player=("rows", "keys", "card"),
    presets={"read eight times": {"rows": 16}, "spills": {"rows": 128}},
    facts=[
        Fact({"rows": 16}, "bytes", 8 * 4096 * 576 * 2, source="8 blocks of 16 heads, each 4,096 latents of 576 numbers"),
        Fact({"rows": 128}, "intensity", 241.78, 1e-3, source="chapter 06: 242 FLOP per byte"),
        Fact({"card": "A100"}, "ridge", 153.0, 0.01, source="A100 data sheet: 312 TFLOPS, 2,039 GB/s"),
    ],
    size=(10.0, 4.4),
)  # fmt: skip


def draw_roofline(ax, card, dots):
    """dots: {name: (FLOP per byte, colour)} under one card's roof; returns what is drawn as a table."""
    reach = {name: min(card.flops, x * card.bandwidth) / 1e12 for name, (x, _) in dots.items()}
    x = [0.1, card.ridge, 30_000]
    ax.plot(x, [min(card.flops, i * card.bandwidth) / 1e12 for i in x], color=COLORS["weights"])
    for name, (intensity, color) in dots.items():
        ax.plot([intensity], [reach[name]], "o", ms=12, color=COLORS[color], mec=COLORS["ink"])
        place = (
            (-14, 14) if reach[name] * 1e12 == card.flops else (12, -14)
        )  # above the roof, or under the slope
        ax.annotate(
            name.replace(" per program", ""),
            (intensity, reach[name]),
            place,
            textcoords="offset points",
            fontsize=11,
        )
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="attainable TFLOP/s", title=card.name)
    ax.set(xlim=(0.1, 30_000), ylim=(0.15, 4000))
    return reach
