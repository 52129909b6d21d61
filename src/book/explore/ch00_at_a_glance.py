"""Chapter 00: a block put together from old and new parts, and what each choice does to parameters, FLOPs and cache."""

from types import SimpleNamespace

from matplotlib.patches import Rectangle

from book.explore import Choice, Explorer, Fact, Stops
from book.figures import COLORS, binary_size
from lib.arithmetic import (
    flops_per_token,
    format_count,
    kv_bytes,
    kv_bytes_per_token,
    parameters,
    swiglu_width,
)
from lib.config import GQA, MLA, Counted, Dense, Layer, ModelConfig, Norm, Rope

# name -> (d, layers, heads, KV heads of its GQA, vocabulary, the width rule's multiple)
SIZES = {
    "tiny": (256, 4, 8, 2, 1000, 16),
    "124M": (768, 12, 12, 4, 50257, 256),
    "7B": (4096, 32, 32, 8, 32000, 256),
    "70B": (8192, 80, 64, 8, 128256, 256),
}
SHAPE = {"tiny": "this chapter's", "124M": "GPT-2's", "7B": "Llama-2-7B's", "70B": "Llama-3-70B's"}
OLD = {"norm": "layer", "ffn": "gelu", "positions": "learned", "attention": "MHA", "qk_norm": "no", "biases": "yes", "head": "tied"}  # fmt: skip
NEW = {"norm": "rms", "ffn": "swiglu", "positions": "rope", "attention": "GQA", "qk_norm": "yes", "biases": "no", "head": "untied"}  # fmt: skip
# The six changes in chapter order: knob, what it is called, where it is taught; biases went silently with them.
CHANGES = (
    ("norm", "RMSNorm for LayerNorm", "01"),
    ("ffn", "SwiGLU for GELU", "02"),
    ("positions", "RoPE for a table", "03, 04"),
    ("attention", "GQA for MHA", "05, 06"),
    ("qk_norm", "QK-norm added", "07"),
    ("head", "untied head", "08"),
    ("biases", "no biases", "09"),
)
LOWEST, HIGHEST = (
    1 / 90,
    24,
)  # the ends of the axis: no setting of the knobs goes below 1/64 or above 4.3, and a number stands to the right


def block_config(size="7B", context=4096, **parts):
    """The ModelConfig of a block built from `parts` (the rest as in 2019); a learned table has `context` rows."""
    d, n_layers, h, n_kv, V, multiple = SIZES[size]
    p, dh = OLD | parts, SIZES[size][0] // SIZES[size][2]
    bias, rope = p["biases"] == "yes", Rope() if p["positions"] == "rope" else None
    if p["attention"] == "MLA":  # the sizes of DeepSeek-V2's rule: d_c = 4 dh, d_R = dh / 2
        attention = MLA(h, None, 4 * dh, dh, dh // 2, dh, bias=bias)
    else:
        heads = {"MHA": h, "GQA": n_kv, "MQA": 1}[p["attention"]]
        attention = GQA(h, heads, dh, rope=rope, qk_norm=p["qk_norm"] == "yes", bias=bias, out_bias=bias)
    width = swiglu_width(d, multiple_of=multiple) if p["ffn"] == "swiglu" else 4 * d
    gated = p["ffn"] != "gelu"
    ffn = Dense(width, gated=gated, activation="silu" if gated else "gelu_tanh", bias=bias)
    norm = Norm("rms") if p["norm"] == "rms" else Norm("layer", eps=1e-5, bias=True)
    counted = (Counted("learned positions", context * d),) if p["positions"] == "learned" else ()
    layers = (Layer(attention, ffn),) * n_layers
    return ModelConfig(V, d, layers, norm, p["head"] == "tied", context, counted=counted)


def cost(cfg, context):
    """parameters, FLOPs to make one more token after `context`, bytes of cache per token and for `context` (bf16)."""
    return {
        "parameters": parameters(cfg).total,
        "flops": flops_per_token(cfg, context),
        "cache": kv_bytes_per_token(cfg),
        "cache_at": kv_bytes(cfg, context),
    }


def table(size, context, **parts):
    """Cost of the 2019 block and of the block with these parts, and new / old of each."""
    old = cost(block_config(size, context), context)
    new = cost(block_config(size, context, **parts), context)
    same = [name for knob, name, _ in CHANGES if parts[knob] == OLD[knob]]
    return {
        "size": size, "context": context, "old": old, "new": new, "parts": parts, "changed": len(CHANGES) - len(same),
        "ratio": {key: new[key] / old[key] for key in old},
    }  # fmt: skip


def one_at_a_time(size="7B", context=4096):
    """[(name, chapter, table)]: each change alone against the 2019 block, then all of them together."""
    rows = [(name, where, table(size, context, **OLD | {k: NEW[k]})) for k, name, where in CHANGES]
    return [*rows, ("all together", "09", table(size, context, **NEW))]


# ---- the picture: three bars that start at 1


ROWS = ("parameters", "flops", "cache")
NAMES = {"parameters": "parameters", "flops": "FLOPs per token", "cache": "cache per token"}


def factor(value):
    """0.878 -> '−12 %'; 0.125 -> '1 / 8'; 2.5 -> '× 2.5'."""
    if value == 1:
        return "the same"
    if 0.5 < value < 1.6:
        return f"{100 * (value - 1):+.2g} %".replace("-", "−")
    return f"1 / {1 / value:.3g}" if value <= 0.5 else f"× {value:.3g}"


def make_bars(ax, fontsize=14):
    """Bars of three ratios on a log axis around 1, at their start: the 2019 block itself."""
    ax.set(xscale="log", xlim=(LOWEST, HIGHEST), ylim=(2.75, -0.75))
    ax.minorticks_off()
    ax.set_xticks([1 / 64, 1 / 16, 1 / 4, 1, 4, 16], ["1/64", "1/16", "1/4", "1", "4", "16"])
    ax.grid(axis="y", visible=False)
    ax.axvline(1, color=COLORS["old"], lw=3)
    bars = [ax.add_patch(Rectangle((1, i - 0.3), 0.0, 0.6, fc=COLORS["new"])) for i in range(3)]
    texts = [ax.text(1.06, i, "", va="center", fontsize=fontsize, fontweight="bold") for i in range(3)]
    return bars, texts


def set_bars(bars, texts, ratio):
    for bar, text, key in zip(bars, texts, ROWS, strict=True):
        r = ratio[key]
        bar.set_x(min(r, 1))
        bar.set_width(abs(r - 1))
        text.set_x(max(r, 1) * 1.12)
        text.set_text(factor(ratio[key]))


def setup(fig):
    left, right = fig.subplots(1, 2, width_ratios=[1.55, 1])
    bars, texts = make_bars(left)
    left.set_yticks(range(3), [NAMES[key] for key in ROWS], fontsize=14)
    left.set(xlabel="times the 2019 block (log)", title="your block against the block of 2019")
    right.axis("off")
    right.set(xlim=(0, 1), ylim=(2.75, -0.75))
    right.text(0.42, -0.6, "2019", ha="right", fontsize=15, fontweight="bold", color=COLORS["old"])
    right.text(1.0, -0.6, "yours", ha="right", fontsize=15, fontweight="bold", color=COLORS["new"])
    old = [
        right.text(0.42, i, "", ha="right", va="center", fontsize=14, color=COLORS["old"]) for i in range(3)
    ]
    new = [right.text(1.0, i, "", ha="right", va="center", fontsize=14, fontweight="bold") for i in range(3)]
    return SimpleNamespace(bars=bars, texts=texts, old=old, new=new)


def short(n):
    """A count for a narrow column: 6738415616 -> '6.74 B'."""
    words = {"thousand": "k", "million": "M", "billion": "B", "trillion": "T"}
    number, _, word = format_count(n).partition(" ")
    return f"{number} {words.get(word, word)}".strip()


def draw(moving, t):
    set_bars(moving.bars, moving.texts, t["ratio"])
    for side in ("old", "new"):
        c = t[side]
        for text, words in zip(getattr(moving, side), (short(c["parameters"]), short(c["flops"]), binary_size(c["cache"])), strict=True):  # fmt: skip
            text.set_text(words)


def say(t):
    note = " MLA norms its latents, so QK-norm has no place." if t["parts"]["attention"] == "MLA" and t["parts"]["qk_norm"] == "yes" else ""  # fmt: skip
    return (
        f"{t['changed']} of 7 parts differ from 2019, at {SHAPE[t['size']]} size. A conversation of {t['context']:,} tokens "
        f"caches {binary_size(t['new']['cache_at'])} instead of {binary_size(t['old']['cache_at'])}.{note}"
    )


SETTINGS_2019 = {"size": "124M", "context": 1024, **OLD}
glance_explorer = Explorer(
    "block-parts",
    table,
    setup,
    draw,
    say,
    title="Put a block together: what does each part cost or save?",
    alt="Three bars on a log axis, starting at 1: parameters, FLOPs and cache of the chosen block over those of 2019.",
    knobs=[
        Stops("context", [1024, 4096, 8192, 32768, 131072], 4096, unit="tokens", label="context"),
        Choice("attention", {"MHA": "MHA", "GQA": "GQA", "MQA": "MQA", "MLA": "MLA"}, "GQA"),
        Choice("size", {name: name for name in SIZES}, "7B", label="size"),
        Choice("ffn", {"gelu": "GELU, 4 d", "swiglu": "SwiGLU, 8/3 d", "copied": "SwiGLU, 4 d kept"}, "swiglu", label="feed-forward"),
        Choice("positions", {"learned": "learned table", "rope": "RoPE"}, "rope"),
        Choice("norm", {"layer": "LayerNorm", "rms": "RMSNorm"}, "rms"),
        Choice("qk_norm", {"no": "no QK-norm", "yes": "QK-norm"}, "yes", label="queries and keys"),
        Choice("head", {"tied": "tied", "untied": "untied"}, "untied", label="head"),
        Choice("biases", {"yes": "biases", "no": "no biases"}, "no", label="linear layers"),
    ],
    player={"attention": None, "ffn": None, "size": None, "positions": None, "context": [1024, 4096, 131072]},
    presets={
        "SwiGLU, 4 d kept": {"ffn": "copied"},
        "MLA at 131,072": {"attention": "MLA", "context": 131072},
        "tiny, learned table, 131,072": {"size": "tiny", "positions": "learned", "context": 131072},
        "tiny, RoPE, 131,072": {"size": "tiny", "context": 131072},
    },
    facts=[
        Fact(SETTINGS_2019, lambda t: t["new"]["parameters"], 124_439_808, source="GPT-2 small: facts.csv"),
        Fact({"size": "tiny", "context": 1024}, lambda t: t["new"]["parameters"], 3_283_456, source="SPEC 8"),
        Fact({"size": "70B"}, lambda t: t["new"]["cache"], 327_680, source="SPEC 4: Llama 3 70B, GQA-8"),
        Fact({"size": "70B", "context": 131072}, lambda t: t["old"]["cache_at"], 320 * 2**30, source="SPEC 4: MHA"),
        Fact({"size": "7B", "attention": "MLA"}, lambda t: 32 / t["ratio"]["cache"] ** -1, 2.25, 1e-12, source="SPEC 5: 2.25 groups"),
        Fact({"attention": "MHA", "head": "untied", "qk_norm": "no"}, lambda t: t["new"]["parameters"], 6_738_415_616, source="Llama-2-7B"),
    ],
    size=(11.0, 4.2),
)  # fmt: skip


def draw_changes(axes, rows):
    """Each change alone, in per cent of 2019: parameters, FLOPs and cache on three axes, one row per change. Returns the rows as text."""
    lines, places = [], range(len(rows))
    for ax, key in zip(axes, ROWS, strict=True):
        change = [100 * (t["ratio"][key] - 1) for _, _, t in rows]
        ax.barh(places, change, 0.6, color=COLORS["new"])
        ax.axvline(0, color=COLORS["old"], lw=3)
        low, high = min(change), max(change)
        for y, value in enumerate(change):
            side = -1 if value < 0 else 1
            words = "0" if value == 0 else f"{value:+.2g}".replace("-", "−")
            ax.text(
                value + side * 0.02 * (high - low),
                y,
                words,
                ha="right" if side < 0 else "left",
                va="center",
                fontsize=12,
            )
        ax.set(
            xlim=(low - 0.3 * (high - low), high + 0.25 * (high - low)),
            title=NAMES[key],
            xlabel="change from 2019, %",
        )
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(places, [name for name, _, _ in rows], fontsize=13)
    axes[0].invert_yaxis()
    for name, where, t in rows:
        lines.append(f"{name:<23}" + "".join(f"{factor(t['ratio'][k]):<14}" for k in ROWS) + f"ch. {where}")
    return "\n".join([f"{'':<23}{'parameters':<14}{'FLOPs':<14}cache", *lines])


# ---- the picture of the two blocks

# place, y, 2019, today, does it differ, chapter
PLACES = (
    ("input", 0.0, "token embedding + position table", "token embedding", True, "03"),
    ("norm", 2.0, "LayerNorm", "RMSNorm", True, "01"),
    ("attention", 3.2, "multi-head attention", "QK-norm, RoPE, GQA or MLA", True, "03 to 07"),
    ("write-in", 4.3, "added to the stream", "added to the stream", False, "09"),
    ("norm", 5.3, "LayerNorm", "RMSNorm", True, "01"),
    ("feed-forward", 6.5, "GELU, 4 d", "SwiGLU, 8/3 d", True, "02"),
    ("write-in", 7.6, "added to the stream", "added to the stream", False, "09"),
    ("norm", 9.2, "LayerNorm", "RMSNorm", True, "01"),
    ("head", 10.4, "head: the embedding again (tied)", "head: tied or untied", True, "08"),
)
TWO_LINES = {"QK-norm, RoPE, GQA or MLA": "QK-norm, then RoPE on q, k\nGQA or MLA", "token embedding + position table": "token embedding\n+ position table"}  # fmt: skip
STREAM, LEFT, WIDE = 0.9, 2.1, 4.9


def _box(ax, x, y, width, words, color, filled=True, dashed=False, fontsize=13):
    face = color if filled else COLORS["paper"]
    style = {"fc": face, "ec": color, "lw": 2, "ls": "--" if dashed else "-"}
    ax.add_patch(Rectangle((x, y - 0.42), width, 0.84, **style, zorder=3))
    ink = COLORS["paper"] if filled else COLORS["ink"]
    ax.text(x + width / 2, y, words, ha="center", va="center", color=ink, fontsize=fontsize, zorder=4, fontweight="bold", linespacing=1.05)  # fmt: skip


def _branch(ax, out, norm, part, back):
    """From the stream through two boxes and back into it."""
    middle = LEFT + WIDE / 2
    line = {"color": COLORS["ink"], "lw": 2, "zorder": 2}
    ax.plot([STREAM, middle, middle], [out, out, norm], **line)
    ax.plot([middle, middle], [norm, part], **line)
    ax.plot([middle, middle], [part, back], **line)
    ax.annotate(
        "",
        (STREAM + 0.27, back),
        (middle, back),
        arrowprops={"arrowstyle": "-|>", "color": COLORS["ink"], "lw": 2},
    )
    ax.text(STREAM, back, "+", ha="center", va="center", fontsize=17, fontweight="bold", zorder=5,
            bbox={"boxstyle": "circle,pad=0.12", "fc": COLORS["paper"], "ec": COLORS["ink"], "lw": 2})  # fmt: skip


def draw_blocks(axes):
    """The residual stream from below, what reads it and what is added to it: 2019 on axes[0], today on axes[1].

    What differs is filled. Returns one line a place: what stands there in both, and the chapter.
    """
    for side, ax in enumerate(axes):
        color = COLORS["new"] if side else COLORS["old"]
        ax.set(xlim=(-0.3, 11.2 if side else 7.3), ylim=(-0.7, 11.1))
        ax.set_title("today" if side else "2019 (GPT-2)", color=color, fontsize=18)
        ax.axis("off")
        ax.plot([STREAM, STREAM], [0, 10.4], color=COLORS["faint"], lw=11, zorder=1, solid_capstyle="butt")
        ax.text(
            STREAM - 0.62,
            4.9,
            "residual stream, d numbers per token",
            rotation=90,
            ha="center",
            va="center",
            fontsize=12,
        )
        ax.add_patch(Rectangle((0.1, 1.0), 7.05, 7.35, fc="none", ec=COLORS["faint"], lw=2))
        ax.text(7.0, 8.12, "one block, L times", ha="right", va="center", fontsize=12)
        _branch(ax, 1.3, 2.0, 3.2, 4.3)
        _branch(ax, 4.75, 5.3, 6.5, 7.6)
        for place, y, old, new, differs, _ in PLACES:
            if place != "write-in":
                words = new if side else old
                x, width = (0.1, WIDE + 2.0) if place in ("input", "head") or y > 8 else (LEFT, WIDE)
                _box(
                    ax,
                    x,
                    y,
                    width,
                    TWO_LINES.get(words, words),
                    color,
                    filled=differs,
                )
    ax = axes[1]
    ax.plot([7.2, 7.75], [6.5, 6.5], color=COLORS["old"], lw=2, ls="--")
    _box(ax, 7.75, 6.5, 3.3, "or MoE", COLORS["old"], filled=False, dashed=True)
    ax.text(
        9.4,
        5.95,
        "router → top-k experts\n+ a shared expert\n(outside this book)",
        ha="center",
        va="top",
        fontsize=12,
    )
    lines = [f"{place:<13}{old:<34}{new:<28}ch. {where}" for place, _, old, new, _, where in PLACES]
    return "\n".join([f"{'':<13}{'2019':<34}today", *lines])
