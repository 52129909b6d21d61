"""How the experiments' results are drawn: the same in every chapter that shows them."""

from book.experiments.stats import by_seed, effect
from book.experiments.variants import ABLATIONS, ADDED, CACHES, TITLES, build
from book.figures import COLORS
from lib.arithmetic import kv_elements_per_token

LOOKS = {"2019": ("old", "-"), "learned": ("k", "--"), "+rope": ("rope", "--"), "modern": ("new", "-")}


def draw_intervals(ax, intervals, values, xlabel):
    """One bar per name, its 95 % interval: violet where it leaves 0 out, grey where it is not resolved; dots are the seeds."""
    for i, (name, it) in enumerate(intervals.items()):
        color = COLORS["new"] if it.resolved else COLORS["old"]
        ax.plot([it.low, it.high], [i, i], color=color, lw=5, solid_capstyle="round")
        ax.plot(values[name], [i] * it.n, "o", color=COLORS["ink"], ms=7)
    ax.axvline(0, color=COLORS["ink"], lw=1.5)
    ax.set_yticks(range(len(intervals)), intervals)
    ax.set(ylim=(len(intervals) - 0.4, -0.6), xlabel=xlabel)


def draw_rates(axes, rates, bits, wide, bigram):
    """Held-out bits (mean, lowest and highest seed) and the widest attention row against the peak learning rate, with and without QK-norm.

    bits: (variant, rate) -> tensor of seeds; wide: (variant, rate) -> number.
    """
    for v, color, dashes, words in (
        ("no_qk_norm", "old", "--", "without QK-norm"),
        ("modern", "new", "-", "with QK-norm"),
    ):
        axes[0].plot(
            rates, [bits[v, r].mean() for r in rates], "o" + dashes, color=COLORS[color], label=words
        )
        low, high = ([f(bits[v, r]) for r in rates] for f in (min, max))
        axes[0].fill_between(rates, low, high, color=COLORS[color], alpha=0.2)
        axes[1].plot(rates, [wide[v, r] for r in rates], "o" + dashes, color=COLORS[color])
    axes[0].axhline(bigram, color=COLORS["faint"], zorder=0)
    axes[0].text(
        rates[-1], bigram + 0.01, "bigram table", fontsize=12, color="#666666", ha="right", va="bottom"
    )
    axes[0].set(xscale="log", xlabel="peak learning rate", title="held-out bits per byte")
    axes[1].set(xscale="log", yscale="log", xlabel="peak learning rate", title="widest range of a row")
    axes[0].legend()


def draw_upgrades(axes, results):
    """Left: each upgrade added to 2019 + RoPE; right: each taken back from the modern block. Returns both, {variant: Interval}."""
    sides = []
    for ax, variants, base, words in (
        (axes[0], ADDED, "+rope", "added to 2019 + RoPE"),
        (axes[1], ABLATIONS, "modern", "taken back from the modern block"),
    ):
        names = {
            v: TITLES[v].removeprefix("modern, ").removeprefix("2019 + RoPE").strip(" +,") for v in variants
        }
        start, found = by_seed(results, base), {v: effect(results, v, base) for v in variants}
        seeds = {
            names[v]: [b - start[s] for s, b in by_seed(results, v).items() if s in start] for v in variants
        }
        draw_intervals(ax, {names[v]: found[v] for v in variants}, seeds, "bits per byte against its base")
        ax.set_title(words)
        sides.append(found)
    return sides


def draw_cache(ax, results):
    """Held-out bits against the numbers cached per token and layer: the mean and every seed, MLA apart. Returns {variant: numbers}."""
    configs = {v: build(v).config for v in CACHES}
    kept = {v: kv_elements_per_token(c) // c.n_layers for v, c in configs.items()}
    for prefix, color, marker, words in (("kv", "new", "o", "MHA, GQA, MQA"), ("mla", "k", "s", "MLA")):
        of = sorted((v for v in kept if v.startswith(prefix)), key=kept.get)
        bits = {v: list(by_seed(results, v).values()) for v in of}
        mean = [sum(bits[v]) / len(bits[v]) for v in of]
        ax.plot([kept[v] for v in of], mean, marker + "-", color=COLORS[color], ms=11, label=words)
        for v in of:
            ax.plot([kept[v]] * len(bits[v]), bits[v], marker, color=COLORS[color], ms=5, alpha=0.5)
    ax.set(xscale="log", xlabel="numbers cached per token and layer (log)", ylabel="held-out bits per byte")
    ax.set_xticks(sorted(set(kept.values())), sorted(set(kept.values())))
    ax.minorticks_off()
    ax.legend()
    return kept
