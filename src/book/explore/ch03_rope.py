"""Chapter 03: two hands of a clock and their score; how many frequencies make a score that fades with distance."""

from math import atan2, cos, pi, sin
from types import SimpleNamespace

import numpy as np
from matplotlib.patches import Circle

from book.explore import Explorer, Fact, Linear, Log, Stops
from book.figures import COLORS, thousands
from lib.frequencies import inv_freq

Q, K = (
    (0.9, -0.3),
    (1.0, 0.4),
)  # one pair of dimensions of a query and of a key, before any rotation: they agree best 7 tokens back
SPAN = 64  # tokens drawn on either side


def turn(x, angle):
    """R(angle) x for one pair."""
    return (x[0] * cos(angle) - x[1] * sin(angle), x[0] * sin(angle) + x[1] * cos(angle))


def clock_table(m, n, speed):
    """The query at position m, the key at position n, both turned by position * speed (radians per token)."""
    q, k = turn(Q, m * speed), turn(K, n * speed)
    back = np.linspace(-SPAN, SPAN, 1025)
    lead = atan2(K[1], K[0]) - atan2(Q[1], Q[0])
    size = np.hypot(*Q) * np.hypot(*K)
    return {
        "m": m,
        "n": n,
        "offset": m - n,
        "q": q,
        "k": k,
        "score": q[0] * k[0] + q[1] * k[1],
        "length": float(np.hypot(*q)),
        "angle_between": (m - n) * speed - lead,
        "wavelength": 2 * pi / speed,
        "peak": lead / speed,  # tokens back, the nearest to 0
        "back": back,
        "curve": size * np.cos(back * speed - lead),
    }


def clock_setup(fig):
    face, right = fig.subplots(1, 2, width_ratios=[1, 1.6])
    face.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
    face.axis("off")
    face.add_patch(Circle((0, 0), 1.3, fc="none", ec=COLORS["faint"], lw=3))
    right.axhline(0, color=COLORS["faint"])
    right.axvspan(-SPAN, 0, color="#F1F1F1", zorder=0)
    right.text(-SPAN + 2, -1.17, "keys after the query: masked", fontsize=12, color="#555555")
    right.set(
        xlim=(-SPAN, SPAN),
        ylim=(-1.25, 1.25),
        xlabel="m − n: how many tokens back the key is",
        title="score of this pair",
    )
    right.set_xticks(range(-64, 65, 16))
    moving = SimpleNamespace(
        q=face.plot([], [], color=COLORS["q"], lw=7, solid_capstyle="round")[0],
        k=face.plot([], [], color=COLORS["k"], lw=7, solid_capstyle="round")[0],
        q_name=face.text(
            0, 0, "q", color=COLORS["q"], fontsize=19, fontweight="bold", ha="center", va="center"
        ),
        k_name=face.text(
            0, 0, "k", color=COLORS["k"], fontsize=19, fontweight="bold", ha="center", va="center"
        ),
        curve=right.plot([], [], color=COLORS["rope"])[0],
        here=right.plot([], [], "o", color=COLORS["cached"], ms=13)[0],
    )
    return moving


def clock_draw(moving, t):
    (qx, qy), (kx, ky) = t["q"], t["k"]
    aside = (
        0.13 if kx * qy >= ky * qx else -0.13
    )  # each name on the side away from the other hand: they may coincide
    for hand, name, (x, y), shift in (
        (moving.q, moving.q_name, t["q"], aside),
        (moving.k, moving.k_name, t["k"], -aside),
    ):
        hand.set_data([0, 0.85 * x], [0, 0.85 * y])
        name.set_position((x - shift * y, y + shift * x))
    moving.curve.set_data(t["back"], t["curve"])
    moving.here.set_data([t["offset"]], [t["score"]])


def clock_say(t):
    return (
        f"m = {t['m']}, n = {t['n']}: the score is {t['score']:.4f} and depends on m − n = {t['offset']} alone; it peaks at {t['peak']:.3g} tokens "
        f"back. The hands go round once in {t['wavelength']:.3g} tokens and keep their length ({t['length']:.4f})."
    )


TOGETHER = [*range(0, 46, 3), 2, 5, 8, 37, 40]  # both positions stop there: steps of 3 keep their offset
SPEEDS = [0.1, 1.0]
clock_explorer = Explorer(
    "rope-clock",
    clock_table,
    clock_setup,
    clock_draw,
    clock_say,
    title="Where do the hands stand, and what is their score?",
    alt="Left: query and key as two hands of a clock. Right: their score against m − n, the tokens that the key lies back, with the present one as a dot.",
    knobs=[
        Linear("m", 0, 48, 5, label="query position m"),
        Linear("n", 0, 48, 2, label="key position n"),
        Log("speed", 0.01, 1.0, 0.1, per_decade=5, unit="rad/token", label="frequency"),
    ],
    player={"m": TOGETHER, "n": TOGETHER, "speed": SPEEDS},
    presets={"m = 5, n = 2": {"m": 5, "n": 2}, "m = 40, n = 37": {"m": 40, "n": 37}, "seven back": {"m": 20, "n": 13}},
    facts=[
        Fact({"m": 40, "n": 37}, "score", clock_table(5, 2, 0.1)["score"], 1e-12, "SPEC 3: score(40, 37) = score(5, 2)"),
        Fact({"m": 10, "n": 10}, "score", clock_table(0, 0, 0.1)["score"], 1e-12, "SPEC 3: score(10, 10) = score(0, 0)"),
        Fact({"speed": 1.0}, "wavelength", 6.2832, 1e-5, "SPEC 3: the fastest wavelength is 2 pi"),
        Fact({"m": 20, "n": 13}, "score", float(np.hypot(*Q) * np.hypot(*K)), 1e-5, "the nearest whole offset to the peak"),
    ],
    size=(10.0, 4.5),
)  # fmt: skip

FAR = 2048


def distance_table(pairs, base):
    """The score of q = k = 1 (every dimension) at distance 0 .. FAR, averaged over `pairs` pairs: mean cos(distance * theta_i)."""
    theta = np.array(inv_freq(2 * pairs, base))
    distance = np.arange(
        1, FAR + 1
    )  # every one: a thinned curve shows slow waves that are not there, and misses the highest return
    curve = np.cos(np.outer(distance, theta)).mean(1)
    below = np.nonzero(curve < 0.5)[0]
    return {
        "pairs": pairs,
        "base": base,
        "distance": distance,
        "curve": curve,
        "half": int(distance[below[0]]) if len(below) else None,
        "slowest": 2 * pi / theta[-1],
        "fastest": 2 * pi / theta[0],
        "tail": float(curve[512:].max()),
        "tail_at": int(distance[512:][curve[512:].argmax()]),
    }


def distance_setup(fig):
    ax = fig.subplots()
    ax.set(
        xscale="log",
        xlim=(1, FAR),
        ylim=(-1.1, 1.35),
        xlabel="distance |n - m|, tokens (log)",
        ylabel="score / score at 0",
    )
    ax.axhline(0, color=COLORS["faint"])
    return SimpleNamespace(
        curve=ax.plot([], [], color=COLORS["rope"])[0],
        note=ax.text(0.98, 0.93, "", transform=ax.transAxes, ha="right", fontsize=16, fontweight="bold"),
    )


def distance_draw(moving, t):
    moving.curve.set_data(t["distance"], t["curve"])
    moving.note.set_text(f"{t['pairs']} pair{'s' * (t['pairs'] > 1)}, base {thousands(t['base'])}")


def distance_say(t):
    half = f"falls below one half at {t['half']:,} tokens" if t["half"] else "never falls below one half here"
    waves = "The wavelength is" if t["pairs"] == 1 else f"Wavelengths from {thousands(t['fastest'])} to"
    return (
        f"The score {half}; beyond 512 tokens it comes back to {t['tail']:.2f} at most, at {t['tail_at']:,}. "
        f"{waves} {thousands(t['slowest'])} tokens."
    )


distance_explorer = Explorer(
    "rope-distance",
    distance_table,
    distance_setup,
    distance_draw,
    distance_say,
    title="How does the score of two equal vectors fade with distance?",
    alt="Score of two equal vectors, as a share of the score at distance 0, against the distance in tokens.",
    knobs=[
        Stops("pairs", [1, 2, 4, 8, 16, 32, 64], 64, label="pairs of dimensions"),
        Stops(
            "base", [100.0, 1000.0, 10_000.0, 100_000.0, 500_000.0, 1_000_000.0], 10_000.0, label="RoPE base"
        ),
    ],
    facts=[
        Fact({}, "slowest", 54410, 1e-5, "SPEC 3: dh 128, base 10,000"),
        Fact({}, "fastest", 6.2832, 1e-5, "SPEC 3: 2 pi"),
        Fact(
            {"pairs": 1}, "slowest", 6.2832, 1e-5, "one pair turns by 1 radian per token, whatever the base"
        ),
        Fact({"pairs": 4}, "tail", 0.94, 0.005, "over every distance up to 2,048"),
    ],
    player={"pairs": None, "base": None},
)


def draw_clocks(axes, position, dh=16, base=10_000.0):
    """One clock per pair, fast to slow, its hand at `position`. Returns (pair, wavelength in tokens, turns so far)."""
    rows = []
    for i, (ax, theta) in enumerate(zip(axes, inv_freq(dh, base), strict=True)):
        angle = position * theta
        ax.add_patch(Circle((0, 0), 1, fc="none", ec=COLORS["faint"], lw=3))
        ax.plot(
            [0, 0.9 * cos(angle)], [0, 0.9 * sin(angle)], color=COLORS["rope"], lw=5, solid_capstyle="round"
        )
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
        ax.set_title(f"pair {i}", fontsize=14, loc="center")
        ax.axis("off")
        rows.append((i, 2 * pi / theta, angle / (2 * pi)))
    return rows
