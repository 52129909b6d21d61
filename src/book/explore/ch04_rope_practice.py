"""Chapter 04: the spectrum of wavelengths, which of them training has seen, and what each kind of scaling does to it."""

from math import log, pi
from types import SimpleNamespace

import numpy as np

from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, thousands
from lib.config import Scaling
from lib.frequencies import inv_freq, rope_attention_factor

# label -> (lib's kind, its factor; None: tested / trained). NTK with the base raised once, for the tested length, is what `dynamic` with factor 1
# gives there; a config that says `dynamic` has a factor of its own (InternLM2.5: 2.0), and the base then rises faster than the length.
KINDS = {
    "none": None,
    "linear": ("linear", None),
    "NTK": ("dynamic", 1.0),
    "dynamic, factor 2": ("dynamic", 2.0),
    "yarn": ("yarn", None),
    "llama3": ("llama3", None),
}
LONGEST = 4e7  # the pictures end here, in tokens; what is longer leaves them
CLOSE = 1 + 1e-9

# rope_scaling of Phi-3.5-mini's config.json, one divisor per pair (there as float32; these are the two digits behind them).
PHI35 = {
    name: tuple(map(float, words.split()))
    for name, words in {
        "short_factor": """
            1 1.02 1.03 1.03 1.05 1.05 1.05 1.05 1.05 1.07 1.1 1.11 1.16 1.16 1.17 1.29 1.34 1.68 1.79 1.82 1.85
            1.88 1.91 1.94 1.99 2.02 2.02 2.02 2.02 2.02 2.02 2.03 2.03 2.03 2.03 2.03 2.03 2.03 2.03 2.03 2.08
            2.09 2.19 2.22 2.59 2.73 2.75 2.84
        """,
        "long_factor": """
            1.08 1.11 1.14 1.34 1.59 1.6 1.62 2.62 3.23 3.23 4.79 7.4 7.7 9.09 12.2 17.67 24.46 28.57 30.42
            30.84 32.59 32.93 42.32 44.96 50.34 50.45 57.55 57.93 58.21 60.14 62.61 62.62 62.71 63.14 63.14
            63.77 63.93 63.96 63.97 64.03 64.07 64.08 64.12 64.41 64.48 64.51 64.53 64.84
        """,
    }.items()
}
# The sizes of three config.json files, as the files give them; chapter 04 adds their RoPE fields.
SHAPES = {
    "SmolLM3-3B": {
        "model_type": "smollm3",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "num_hidden_layers": 36,
        "vocab_size": 128256,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": True,
    },
    "Gemma-3-1B": {
        "model_type": "gemma3_text",
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "num_hidden_layers": 26,
        "head_dim": 256,
        "vocab_size": 262144,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-06,
    },
    "Llama-3-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False,
    },
}


def scaling_for(kind, factor, trained, tested):
    """The Scaling that stretches `trained` tokens by `factor` (or by a factor of its own, see KINDS)."""
    if KINDS[kind] is None or factor <= 1:
        return None
    name, own = KINDS[kind]
    return Scaling(name, own or factor, trained, tested)


def table(base, head_dim, trained, tested, kind):
    """Each pair's frequency before and after scaling, and whether it turns to an angle that training never showed."""
    factor = max(1.0, tested / trained)
    scaling = scaling_for(kind, factor, trained, tested)
    plain = np.array(inv_freq(head_dim, base))
    scaled = np.array(inv_freq(head_dim, base, scaling, tested))
    full_turn = plain * trained >= 2 * pi
    farther = scaled * tested > plain * trained * CLOSE
    divided_by = plain / scaled
    return {
        "factor": factor,
        "pairs": np.arange(head_dim // 2),
        "n": head_dim // 2,
        "before": 2 * pi / plain,
        "after": 2 * pi / scaled,
        "divided_by": divided_by,
        "new": farther & ~full_turn,
        "n_new": int((farther & ~full_turn).sum()),
        "n_turned": int(full_turn.sum()),
        "n_kept": int((divided_by < CLOSE).sum()),
        "n_divided": int((divided_by * CLOSE > factor).sum()) if factor > 1 else 0,
        "slowest": float(2 * pi / scaled[-1]),
        "attention_factor": rope_attention_factor(scaling, tested),
        "trained": trained,
        "tested": tested,
        "kind": kind,
        "base": base,
    }


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1.35, 1])
    left.set(
        yscale="log",
        xlim=(-0.02, 1.02),
        ylim=(3, LONGEST),
        xlabel="pair, fast to slow",
        title="wavelength, tokens",
    )
    right.set(
        yscale="log",
        xlim=(-0.02, 1.02),
        ylim=(0.8, 180),
        xlabel="pair, fast to slow",
        title="frequency divided by",
    )
    right.set_yticks([2**i for i in range(8)], [str(2**i) for i in range(8)])
    right.minorticks_off()
    for ax in (left, right):
        ax.set_xticks([0, 0.5, 1], ["first", "middle", "last"])
    return SimpleNamespace(
        before=left.plot([], [], color=COLORS["faint"], lw=6)[0],
        trained=left.axhline(1, color=COLORS["old"], lw=2),
        tested=left.axhline(1, color=COLORS["ink"], lw=2, ls="--"),
        trained_name=left.text(0.0, 1, "", fontsize=12, color=COLORS["old"], va="top"),
        tested_name=left.text(0.0, 1, "", fontsize=12, va="bottom"),
        good=left.plot([], [], "o", color=COLORS["seen"], ms=6)[0],
        bad=left.plot([], [], "X", color=COLORS["unseen"], ms=9)[0],
        beyond=left.plot([], [], "^", color=COLORS["ink"], ms=10, clip_on=False)[0],
        note=left.text(0.98, 0.03, "", transform=left.transAxes, fontsize=15, fontweight="bold", ha="right"),
        stretch=right.plot([], [], "o-", color=COLORS["rope"], ms=5, lw=2)[0],
        factor=right.axhline(1, color=COLORS["ink"], lw=2, ls="--"),
        factor_name=right.text(0.0, 1, "tested / trained", fontsize=12, va="bottom"),
    )


def draw(moving, t):
    at = t["pairs"] / max(t["n"] - 1, 1)
    moving.before.set_data(at, t["before"])
    for line, name, length, words in (
        (moving.trained, moving.trained_name, t["trained"], "trained"),
        (moving.tested, moving.tested_name, t["tested"], "tested"),
    ):
        line.set_ydata([length, length])
        name.set_text(f"{words} {thousands(length)}")
        name.set_y(length * (0.8 if words == "trained" else 1.2))
    moving.trained_name.set_va("top")
    if t["tested"] < t["trained"]:  # keep the two names apart
        moving.trained_name.set_y(t["trained"] * 1.2)
        moving.trained_name.set_va("bottom")
        moving.tested_name.set_y(t["tested"] * 0.8)
        moving.tested_name.set_va("top")
    else:
        moving.tested_name.set_va("bottom")
    moving.good.set_data(at[~t["new"]], t["after"][~t["new"]])
    moving.bad.set_data(at[t["new"]], t["after"][t["new"]])
    over = np.nonzero(t["after"] > LONGEST)[0]  # an arrow where the row of pairs leaves the picture
    moving.beyond.set_data(at[over[:1]], [LONGEST / 1.5] * len(over[:1]))
    moving.note.set_text(f"{t['n_new']} of {t['n']} pairs meet new angles")
    moving.stretch.set_data(at, t["divided_by"])
    moving.factor.set_ydata([t["factor"], t["factor"]])
    moving.factor_name.set_y(1.1 * t["factor"])


def say(t):
    done = (
        "No scaling."
        if t["kind"] == "none" or t["factor"] == 1
        else (
            f"{t['kind']}: {t['n_kept']} pair{'' if t['n_kept'] == 1 else 's'} kept, {t['n_divided']} divided by {t['factor']:g} or more."
        )
    )
    temperature = f" Cos and sin times {t['attention_factor']:.3f}." if t["attention_factor"] != 1 else ""
    return (
        f"{t['n_turned']} of {t['n']} pairs completed a turn in {t['trained']:,} tokens. At {t['tested']:,} tokens {t['n_new']} meet angles "
        f"never trained. {done}{temperature}"
    )


spectrum_explorer = Explorer(
    "rope-spectrum",
    table,
    setup,
    draw,
    say,
    title="Which wavelengths has the model seen, and which turn to angles that are new?",
    alt="Left: wavelength of each pair on a log scale, with the trained and the tested length as lines. Right: what each frequency is divided by.",
    knobs=[
        Stops("base", [100.0, 10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 5_000_000.0], 10_000.0, label="RoPE base"),
        Stops("head_dim", [16, 32, 64, 128, 256], 128, label="rotary width"),
        Stops("trained", [2048, 4096, 8192, 32_768], 4096, unit="tokens", label="trained length"),
        Stops("tested", [2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072], 16_384, unit="tokens", label="tested length"),
        Choice("kind", list(KINDS), "NTK", label="scaling"),
    ],
    player={"tested": None, "kind": None, "base": [10_000.0, 500_000.0, 5_000_000.0], "trained": [4096, 8192]},
    presets={"Llama 3's base": {"base": 500_000.0, "trained": 8192}, "llama3, 8 times": {"base": 500_000.0, "trained": 8192, "tested": 65_536, "kind": "llama3"}},
    facts=[
        Fact({"base": 10_000.0, "trained": 4096, "kind": "none"}, "n_turned", 46, source="46 of 64 at base 1e4 in 4,096 tokens"),
        Fact({"base": 500_000.0, "trained": 8192}, "n_turned", 35, source="35 of 64 at base 5e5 in 8,192 tokens"),
        Fact({"tested": 16_384, "kind": "dynamic, factor 2"}, "n_new", 0, source="InternLM2.5's factor 2.0: the slowest pair is divided by 7"),
        Fact({"tested": 16_384, "kind": "NTK"}, "slowest", 2 * pi * 4 * 10_000 ** (126 / 128), 1e-12,
             "bloc97: the NTK base interpolates the slowest pair by the whole factor"),
        Fact({"base": 500_000.0, "trained": 8192, "tested": 65_536, "kind": "llama3"}, "n_kept", 29, source="llama3 x8 at dh 128: 29 kept"),
        Fact({"base": 500_000.0, "trained": 8192, "tested": 65_536, "kind": "llama3"}, "n_divided", 29, source="llama3 x8 at dh 128: 29 divided"),
        Fact({"kind": "yarn", "tested": 16_384}, "attention_factor", 0.1 * log(4) + 1, 1e-12, "arXiv 2309.00071, eq. 22"),
        Fact({"kind": "linear", "tested": 16_384}, "n_new", 0, source="linear: every angle lies among the trained ones"),
    ],
    size=(11.0, 4.8),
)  # fmt: skip


def draw_ribbons(ax, order, rotary_dim=None):
    """Two ribbons of indices, adjacent above and half-split below, and a line for each row that moves; pairs share a colour.

    order: for each place of the lower ribbon, the place above it comes from. Returns the pairs as text, one line each.
    """
    n, r = len(order), rotary_dim or len(order)
    palette = [COLORS[name] for name in ("q", "k", "v", "rope", "latent", "new", "cached", "ink")]
    lines = []
    for place, source in enumerate(order):
        pair = source // 2 if source < r else None
        color = COLORS["faint"] if pair is None else palette[pair % len(palette)]
        ax.plot([source, place], [0.78, 0.22], color=color, lw=3, zorder=1)
        for x, y, number in ((source, 0.88, source), (place, 0.12, source)):
            ax.plot([x], [y], "s", ms=30, color=color, zorder=2)
            ax.text(
                x,
                y,
                str(number),
                ha="center",
                va="center",
                fontsize=16,
                fontweight="bold",
                color=COLORS["paper"],
            )
    where = {source: place for place, source in enumerate(order)}
    for i in range(r // 2):
        lines.append(
            f"pair {i}: rows {2 * i} and {2 * i + 1} above, places {where[2 * i]} and {where[2 * i + 1]} below"
        )
    ax.set(xlim=(-1.0, n - 0.3), ylim=(-0.05, 1.05))
    ax.text(-0.6, 0.88, "adjacent", ha="right", va="center", fontsize=14)
    ax.text(-0.6, 0.12, "half-split", ha="right", va="center", fontsize=14)
    ax.axis("off")
    return "\n".join(lines)


FAULT_COLORS = {
    "wrong layout": "unseen",
    "base a tenth": "q",
    "scaling left out": "k",
    "positions in bf16": "v",
    "cache restarted": "new",
}


def draw_port_chart(fig, curves, groups):
    """KL and loss of `book.ports.curves` against the position, on a log scale; returns the KL as text, a line for each fault."""
    axes = fig.subplots(1, 2)
    at = [(first + end + 1) / 2 for first, end in groups]
    for ax, title in zip(axes, ("KL from the right model, nats", "loss minus its loss, nats"), strict=True):
        ax.set(xscale="log", xlim=(0.9, 330), xlabel="token of the text", title=title)
        ax.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        ax.minorticks_off()
    axes[0].set_yscale("symlog", linthresh=0.01, linscale=0.5)
    axes[0].set_ylim(-0.002, 8)
    axes[0].set_yticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    chosen = [0, 1, 2, 4, 6, 7, 9, 11, 12]
    lines = ["token".ljust(19) + "".join(f"{groups[i][0] + 1:>6}" for i in chosen)]
    for name, color in FAULT_COLORS.items():
        for ax, values in zip(axes, curves[name], strict=True):
            ax.plot(at, values, "o-", color=COLORS[color], ms=4, label=name if ax is axes[0] else None)
        told = [curves[name][0][i].item() for i in chosen]
        lines.append(name.ljust(19) + "".join(f"{v:>6.1f}" if v >= 1 else f"{v:>6.2f}" for v in told))
    fig.legend(loc="outside lower center", ncols=5)
    return "\n".join(lines)
