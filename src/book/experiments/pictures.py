"""How the experiments' results are drawn: the same in every chapter that shows them."""

from book.figures import COLORS

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
