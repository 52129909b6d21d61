"""Chapter 01: what a norm's output looks like as its input grows, shrinks or shifts, in three number formats."""

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from book.explore import Choice, Explorer, Fact, Linear, Log, Stops
from book.figures import COLORS, thousands

D = 1024
DTYPES = {"fp32": "fp32", "fp16": "fp16, no upcast", "bf16": "bf16, no upcast"}
SCALES = np.logspace(-4, 4, 161)  # the curves' x positions


def bf16(x):
    """Round fp32 to the nearest bfloat16 (ties to even), kept in a float32 array: numpy has no such type."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


# Rounds after every operation, as a kernel without an fp32 island does. The sum itself is kept in fp32 and rounded once.
ROUND = {
    "fp32": lambda x: np.asarray(x, np.float32),
    "fp16": lambda x: np.asarray(x, np.float16).astype(np.float32),
    "bf16": bf16,
}


def sample(d=D):
    """A fixed activation: d draws of N(0, 1), then mean 0 and RMS 1 exactly."""
    x = np.random.default_rng(1).normal(size=d)
    x -= x.mean()
    return x / np.sqrt((x**2).mean())


def rms(x):
    """Root mean square over the last axis."""
    return np.sqrt((np.asarray(x, np.float64) ** 2).mean(-1))


def rms_norm_in(x, eps, dtype):
    """RMSNorm without gain, every step rounded to `dtype`; also the mean square it divided by."""
    to = ROUND[dtype]
    with np.errstate(over="ignore"):  # an overflow is the lesson here
        mean_square = to(to(to(x) ** 2).mean(-1, keepdims=True))
        return to(to(x) / to(np.sqrt(to(mean_square + np.float32(eps))))), mean_square


def layer_norm_in(x, eps, dtype):
    """LayerNorm without gain and bias in the same arithmetic: subtract the mean first."""
    to = ROUND[dtype]
    return rms_norm_in(to(to(x) - to(to(x).mean(-1, keepdims=True))), eps, dtype)[0]


@lru_cache(maxsize=64)
def curves(eps, shift, dtype):
    """Output RMS of both norms at every x position of the picture: it does not depend on where the dot is."""
    rows = (SCALES[:, None] * (sample() + shift)).astype(np.float32)
    return rms(rms_norm_in(rows, eps, dtype)[0]), rms(layer_norm_in(rows, eps, dtype))


def table(scale, eps, shift, dtype):
    base = sample()
    rms_curve, layer_curve = curves(eps, shift, dtype)
    x = (scale * (base + shift)).astype(np.float32)
    y, mean_square = rms_norm_in(x, eps, dtype)
    return {
        "scale": scale,
        "dtype": dtype,
        "scales": SCALES,
        "rms_curve": rms_curve,
        "layer_curve": layer_curve,
        "mean_square": float(mean_square[0]),
        "rms": float(rms(y)),
        "mean": float(y.astype(np.float64).mean()),
        "layer": float(rms(layer_norm_in(x, eps, dtype))),
        "overflowed": float((np.abs(x) > 65504**0.5).mean()) if dtype == "fp16" else 0.0,
    }


def setup(fig):
    ax = fig.subplots()
    ax.set(xscale="log", xlim=(6e-5, 1.6e4), ylim=(-0.05, 1.45), ylabel="RMS of the output")
    ax.set_xlabel("size of the input (its RMS before the shift)")
    ax.axhline(1, color=COLORS["faint"], zorder=0)
    moving = SimpleNamespace(
        layer=ax.plot([], [], color=COLORS["old"], lw=6, alpha=0.6, label="LayerNorm")[0],
        rms=ax.plot([], [], color=COLORS["new"], label="RMSNorm")[0],
        here=ax.plot([], [], "o", color=COLORS["cached"], ms=13, clip_on=False)[0],
        note=ax.text(0.985, 0.97, "", transform=ax.transAxes, ha="right", va="top", fontsize=15),
    )
    ax.legend(loc="upper left", ncols=2)
    return moving


def draw(moving, t):
    moving.layer.set_data(t["scales"], t["layer_curve"])
    moving.rms.set_data(t["scales"], t["rms_curve"])
    moving.here.set_data([t["scale"]], [t["rms"]])
    moving.note.set_text(
        f"mean square {thousands(t['mean_square'])}\noutput RMS {t['rms']:.4f}, mean {t['mean'] + 1e-9:.2f}"
    )


def say(t):
    if t["rms"] == 0 and t["mean_square"] > 1:
        return (
            f"In fp16, {t['overflowed']:.1%} of the squares overflow: the mean square is infinite and every output is exactly 0, "
            "without an error."
        )
    line = f"Output RMS {t['rms']:.4f} (LayerNorm: {t['layer']:.4f}), output mean {t['mean'] + 1e-9:.2f}."
    return line + (
        " Here eps is a large part of the root." if t["rms"] < 0.9 and t["mean_square"] < 1 else ""
    )


scale_explorer = Explorer(
    "rmsnorm-scale",
    table,
    setup,
    draw,
    say,
    title="Does the output still have RMS 1 when the input grows, shrinks or shifts?",
    alt="RMS of a norm's output against the RMS of its input, both norms as curves, the chosen input as a dot.",
    knobs=[
        Log("scale", 1e-4, 1e4, 1.0, per_decade=5, label="input RMS"),
        Choice("dtype", DTYPES, "fp16", label="arithmetic"),
        Stops("eps", [1e-6, 1e-5, 1e-4, 1e-3], 1e-6, label="eps", text=lambda v: f"{v:.0e}"),
        Linear("shift", 0.0, 2.0, 2.0, 0.25, label="mean / RMS"),
    ],
    player={"scale": None, "dtype": None, "eps": [1e-6, 1e-5, 1e-3], "shift": [0.0, 2.0]},
    presets={
        "fp16, input past 100": {"dtype": "fp16", "scale": 251.0},
        "bf16, the same": {"dtype": "bf16", "scale": 251.0},
        "input 0.001, eps 1e-05": {"scale": 1e-3, "eps": 1e-5, "shift": 0.0, "dtype": "fp32"},
        "mean 0": {"shift": 0.0},
        "mean 2": {"shift": 2.0},
    },
    facts=[
        # SPEC: eight copies of 1e-3 (RMS 1e-3) come out at 0.707107 with eps 1e-6 and 0.301511 with eps 1e-5.
        Fact({"scale": 1e-3, "eps": 1e-6, "shift": 0.0, "dtype": "fp32"}, "rms", 0.707107, 1e-5),
        Fact({"scale": 1e-3, "eps": 1e-5, "shift": 0.0, "dtype": "fp32"}, "rms", 0.301511, 1e-5),
        # Values near 300 square past 65,504: a norm without upcast returns zeros.
        Fact({"scale": 251.0, "dtype": "fp16"}, "rms", 0.0),
    ],
)


def draw_spheres(axes, n=160):
    """Points in three dimensions before any norm, after RMSNorm, after LayerNorm, on the sphere of radius sqrt(3).

    Returns one line a panel: the range of the lengths, and the largest |mean|.
    """
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 3)) * rng.uniform(0.2, 0.8, size=(n, 1)) + 0.15
    centred = x - x.mean(1, keepdims=True)
    panels = {
        "input": x,
        "RMSNorm": x / rms(x)[:, None],
        "LayerNorm": centred / rms(centred)[:, None],
    }
    u, v = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
    sphere = np.sqrt(3) * np.array([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)])
    lines = []
    for ax, (name, y) in zip(axes, panels.items(), strict=True):
        color = (
            COLORS["old"]
            if name == "LayerNorm"
            else COLORS["new"]
            if name == "RMSNorm"
            else COLORS["weights"]
        )
        ax.plot_wireframe(*sphere, color=COLORS["faint"], lw=0.7, alpha=0.8)
        ax.plot(*[[-1.9, 1.9]] * 3, color=COLORS["ink"], lw=2, ls="--")  # the axis along which the mean lies
        ax.scatter(*y.T, color=color, s=22, alpha=0.9, depthshade=False)
        ax.set(xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), zlim=(-1.8, 1.8), title=name)
        ax.set_box_aspect((1, 1, 1), zoom=1.3)
        ax.view_init(elev=18, azim=-20)
        ax.set_axis_off()
        length = np.linalg.norm(y, axis=1)
        lines.append(
            f"{name:<10} length {length.min():.3f} to {length.max():.3f}   largest |mean| {np.abs(y.mean(1)).max():.3f}"
        )
    return "\n".join(lines)
