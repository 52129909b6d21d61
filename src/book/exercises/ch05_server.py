"""Exercise 05.server: size a server."""

import math

from book.exercises.core import Exercise, Mistake

GIB = 2**30


def _server_cases():
    """memory, bandwidth (bytes/s), weights held, weights that a step reads, one user's cache (bytes), tokens/s promised to each."""
    return [
        (80 * GIB, 3e12, 16 * GIB, 15 * GIB, 1_073_741_000, 20),
        (80 * GIB, 3e12, 16 * GIB, 15 * GIB, 1_073_741_000, 60),
        (48 * GIB, 9e11, 13 * GIB, 12 * GIB, 130_000_000, 25),
        (24 * GIB, 1e12, 7 * GIB, 6 * GIB, 77_000_000, 70),
        (141 * GIB, 4.8e12, 70 * GIB, 66 * GIB, 335_000_000, 45),
        (24 * GIB, 9e11, 15 * GIB, 15 * GIB, 90_000_000, 90),
        (16 * GIB, 4e11, 27 * GIB, 3 * GIB, 50_000_000, 40),
        (2000 * GIB, 1e11, 3 * GIB, 3 * GIB, 70_000_000, 5),
        (400 * GIB, 1e11, 3 * GIB, 3 * GIB, 5_000_000_000, 25),
    ]


def _users(memory, bandwidth, weights, read, each, rate):
    fit = (memory - weights) // each
    quick = (bandwidth / rate - read) // each
    return max(0, int(min(fit, quick)))


def _sized(
    fit=True,
    quick=True,
    held="weights",
    moved="read",
    choose=min,
    least=0,
    plus=0,
    pace=lambda b, r: b / r,
    up=False,
):
    """The exercise with one part taken otherwise."""

    def users(memory, bandwidth, weights, read, each, rate):
        sizes = {"weights": weights, "read": read, "": 0}
        limits = [(memory - sizes[held]) / each] * fit + [
            (pace(bandwidth, rate) - sizes[moved]) / each
        ] * quick
        found = choose(limits)
        if least is not None:
            found = max(least, found)
        return (math.ceil(found) if up else math.floor(found)) + plus

    return users


def _all_together(memory, bandwidth, weights, read, each, rate):
    fit = max(0, (memory - weights) // each)
    return fit if fit * bandwidth / (read + fit * each) >= rate else 0


def _divided(memory, bandwidth, weights, read, each, rate):
    fit = max(0, (memory - weights) // each)
    return next((n for n in range(fit, 0, -1) if bandwidth / (n * (read + each)) >= rate), 0)


server = Exercise(
    id="05.server",
    title="How many users a card serves at a promised rate",
    kind="implement",
    cases=_server_cases,
    reference=_users,
    mistakes=[Mistake(*row) for row in (
        (_sized(quick=False), "Memory alone was asked; the promised rate sets a limit too.", "How many bytes may one step read if every user is to get `rate` tokens per second?"),
        (_sized(fit=False), "The rate alone was asked; what is served must also fit into the memory.", "What lies in memory at the same time?"),
        (_sized(choose=max), "The larger of the two limits was taken; both must hold.", "Memory allows 10 users, the rate 4: how many are served as promised?"),
        (_sized(choose=sum), "The two limits were added; both must hold at the same time.", "Memory allows 10 users, the rate 4: how many are served as promised?"),
        (_sized(held=""), "The weights take memory too.", "What is in memory before the first user comes?"),
        (_sized(moved=""), "A step reads the weights too.", "Which bytes does a step read besides the caches?"),
        (_sized(held="", moved=""), "The weights are left out of both limits.", "What is in memory before the first user comes, and what is read for one user alone?"),
        (_sized(held="read"), "What a step reads was taken for what lies in memory: the look-up table is held too.", "Which of the two sizes is larger, and why?"),
        (_sized(moved="weights"), "What lies in memory was taken for what a step reads: of the look-up table it reads a row.", "Which of the two sizes does a step move?"),
        (_sized(held="read", moved="weights"), "`weights` and `read` are exchanged.", "Which of the two lies in memory, and which is moved per step?"),
        (_sized(least=None), "The count falls below zero where nobody is served.", "How many users has a card that cannot hold the weights?"),
        (_sized(least=1), "One user is promised where none can be served.", "How many users has a card that cannot hold the weights?"),
        (_sized(up=True), "A user who fits in part was counted: round down.", "How many users of 3 GiB do 10 GiB hold?"),
        (_sized(plus=1), "One user too many.", "Put your answer back: does it fit?"),
        (_sized(plus=-1), "One user too few.", "Would one user more still fit?"),
        (_sized(pace=lambda b, r: b), "The rate is not used: that is what one step per second may read.", "For `rate` steps per second, how long may one step take?"),
        (_sized(pace=lambda b, r: b * r), "The bandwidth was multiplied by the rate; a faster promise leaves fewer bytes per step.", "For `rate` steps per second, how long may one step take?"),
        (_all_together, "The rate of all users together was compared with what is promised to each.", "One step gives every user one token: how many steps per second does each need?"),
        (_divided, "The weights were read once for each user; one step serves them all.", "How often does a step read the weights to give ten users one token each?"),
    )],
)  # fmt: skip
