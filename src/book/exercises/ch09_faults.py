"""The last exercise of chapter 09: a whole block with five planted faults, one from each earlier theme.

The chapter's cells hold FIRST and SECOND word for word (a test compares them); SECOND is the cell tagged `exercise`. The
reader mends the functions and hands the dict `my_block` to `check("09.faults", my_block)`. Each part is probed on its own: while
one is tested, the parts that it calls are the right ones, so a fault never hides behind another. A verdict says which faults are
mended and asks one question about the next; it does not say where that one is.
"""

import types
from dataclasses import dataclass, field

from book.exercises.compare import brief
from book.exercises.core import Exercise, Mistake, Verdict
from book.exercises.shape import untouched

FIRST = """
def norm(x, gain, eps=1e-6):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale).type_as(x) * gain


def ffn(x, gate, up, down):
    return (x @ gate.T * F.silu(x @ up.T)) @ down.T


def turn(x, cos, sin):  # x [B, heads, T, dh], half-split layout
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def attend(q, k, v):  # q [B, h, T, dh], k and v [B, n_kv, S, dh]
    T, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = torch.ones(T, S, dtype=torch.bool).tril()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
"""

SECOND = """
def heads(x, w, cos, sin):
    dh = w["q_norm"].numel()
    q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    return norm(q, w["q_norm"]), norm(k, w["k_norm"]), v


def block(x, w, cos, sin, past=None):  # past: the keys and values of earlier tokens
    q, k, v = heads(norm(x, w["attn_norm"]), w, cos, sin)
    if past is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
    x = x + attend(q, k, v).transpose(1, 2).flatten(2) @ w["wo"].T
    return x + ffn(norm(x, w["ffn_norm"]), w["w_gate"], w["w_up"], w["w_down"])


my_block = {"norm": norm, "ffn": ffn, "turn": turn, "attend": attend, "heads": heads, "block": block}
"""

SOURCE = f"{FIRST}\n{SECOND}"

# part: (its name in a verdict, the faulty text, the mended text)
FIXES = {
    "norm": ("the norm (01)", "x.pow(2).mean", "x.float().pow(2).mean"),
    "ffn": ("the gate (02)", "x @ gate.T * F.silu(x @ up.T)", "F.silu(x @ gate.T) * (x @ up.T)"),
    "turn": ("the rotation (03, 04)", "x[..., 0::2], x[..., 1::2]", "x.chunk(2, dim=-1)"),
    "attend": ("the mask (05)", ".tril()", ".tril(diagonal=S - T)"),
    "heads": (
        "the order of QK-norm and RoPE (07)",
        'q, k = turn(q, cos, sin), turn(k, cos, sin)\n    return norm(q, w["q_norm"]), norm(k, w["k_norm"]), v',
        'q, k = norm(q, w["q_norm"]), norm(k, w["k_norm"])\n    return turn(q, cos, sin), turn(k, cos, sin), v',
    ),
}
HINTS = {
    "norm": (
        "Something still goes wrong where the numbers are large and the dtype is narrow.",
        "What does 300 ** 2 give in fp16, and which line of the block computes it?",
    ),
    "ffn": (
        "Two matrices of one shape still have each other's job.",
        "A gate of 1 and an up of 2 give 1.462: what do your lines give?",
    ),
    "turn": (
        "At position 0, where nothing turns, something still moves.",
        "What is turn(x, 1, 0) to return, and in which order do the channels come out?",
    ),
    "attend": (
        "Whole sequences are right by now; two new tokens after three cached ones are not.",
        "Which of the five keys may the first of the two new queries see?",
    ),
    "heads": (
        "With all gains equal nothing is wrong; with random gains something is.",
        "Which numbers does a gain belong to: the channels of the projection, or what a rotation has mixed?",
    ),
}


def block_with(faulty=()):
    """The six functions, with the faults named in `faulty` left in and the others mended."""
    import torch
    import torch.nn.functional as F

    text = SOURCE
    for part, (_, old, new) in FIXES.items():
        if text.count(old) != 1:
            raise ValueError(
                f"the faulty text of {part!r} must stand in SOURCE once, it does {text.count(old)} times"
            )
        if part not in faulty:
            text = text.replace(old, new)
    names = {"torch": torch, "F": F}
    exec(compile(text, "the faulty block", "exec"), names)  # noqa: S102  SOURCE above, nothing of a reader's
    return names["my_block"]


def weights(h, n_kv, dh, d_ff, d, seed):
    """Random weights and random gains of a block, by name."""
    import torch

    g = torch.Generator().manual_seed(seed)
    shapes = {
        "attn_norm": (d,), "ffn_norm": (d,), "q_norm": (dh,), "k_norm": (dh,),
        "wq": (h * dh, d), "wk": (n_kv * dh, d), "wv": (n_kv * dh, d), "wo": (d, h * dh),
        "w_gate": (d_ff, d), "w_up": (d_ff, d), "w_down": (d, d_ff),
    }  # fmt: skip
    return {
        name: torch.randn(*shape, generator=g) / (shape[-1] ** 0.5 if len(shape) > 1 else 1)
        for name, shape in shapes.items()
    }


def _draw(seed):
    import torch

    g = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=g)


def _norm_cases():
    import torch

    draw = _draw(1)
    big = torch.full((1, 4), 300.0, dtype=torch.float16)
    return [
        (draw(2, 3, 5), draw(5)),
        (draw(7) * 40 + 3, draw(7)),
        (big, draw(4).half()),
        (draw(3, 6).bfloat16(), draw(6).bfloat16()),
    ]


def _ffn_cases():
    draw = _draw(2)
    return [
        (draw(2, 3, d), draw(d_ff, d), draw(d_ff, d), draw(d, d_ff)) for d, d_ff in ((4, 7), (5, 9), (6, 3))
    ]


def _turn_cases():
    from lib import rope_cache

    draw = _draw(3)
    return [
        (draw(2, 3, T, dh), *rope_cache(T, dh, start=start))
        for T, dh, start in ((5, 8, 0), (4, 6, 33), (1, 10, 2000))
    ]


def _attend_cases():
    draw = _draw(4)
    sizes = (
        (4, 2, 5, 5),
        (6, 3, 2, 7),
        (6, 2, 1, 4),
        (3, 1, 3, 8),
    )  # h, n_kv, T, S: as many keys as queries, and more
    return [(draw(2, h, T, 5), draw(2, kv, S, 5), draw(2, kv, S, 5)) for h, kv, T, S in sizes]


def _heads_cases():
    from lib import rope_cache

    draw, cases = _draw(5), []
    for (h, n_kv, dh), T, start in (((4, 2, 6), 3, 0), ((6, 3, 8), 5, 40), ((5, 1, 4), 2, 900)):
        cases.append((draw(2, T, 9), weights(h, n_kv, dh, 7, 9, start), *rope_cache(T, dh, start=start)))
    return cases


def _block_cases():
    from lib import rope_cache

    draw, cases = _draw(6), []
    for (h, n_kv, dh), T, past in (((4, 2, 6), 5, 0), ((6, 3, 8), 2, 4), ((6, 2, 4), 1, 7)):
        held = (draw(2, n_kv, past, dh), draw(2, n_kv, past, dh)) if past else None
        cases.append((draw(2, T, 9), weights(h, n_kv, dh, 7, 9, T), *rope_cache(T, dh, start=past), held))
    return cases


CASES = {
    "norm": _norm_cases,
    "ffn": _ffn_cases,
    "turn": _turn_cases,
    "attend": _attend_cases,
    "heads": _heads_cases,
    "block": _block_cases,
}


def _among(function, parts):
    """The reader's function, calling `parts` instead of the reader's other functions."""
    if not isinstance(function, types.FunctionType):
        return function
    others = {**function.__globals__, **parts}
    copy = types.FunctionType(
        function.__code__, others, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


@dataclass
class Faults(Exercise):
    """An Exercise whose answer is a dict of functions, each probed among right ones."""

    probes: dict = field(default_factory=dict, repr=False)

    def judge(self, answer):
        if answer is None or answer is ...:
            return self.not_attempted()
        if isinstance(answer, types.FunctionType) and answer.__name__.endswith("_solution"):
            answer = answer()  # the book's own solution comes as a function that returns the value
        if not isinstance(answer, dict) or set(answer) != set(CASES):
            return self._wrong(
                f"expected my_block, a dict with the keys {brief(list(CASES))}, got {brief(answer)}"
            )
        for part, function in answer.items():
            if not callable(function):
                return self._wrong(f"my_block[{part!r}]: expected a function, got {brief(function)}")
        given, right = block_with(FIXES), block_with()
        if all(untouched(answer[part], given[part]) for part in CASES):
            return self.not_attempted()
        verdicts = {}
        for part in CASES:
            if part not in FIXES and any(v.state != "correct" for v in verdicts.values()):
                break  # the whole is judged when its parts are right
            others = {name: f for name, f in right.items() if name != part}
            verdicts[part] = self._probe(part, right).judge(_among(answer[part], others))
            if "never ends" in verdicts[part].text:
                return Verdict("error", f"{part}: {verdicts[part].text}")
        return self._tell(answer, given, verdicts)

    def _probe(self, part, right):
        if part not in self.probes:
            self.probes[part] = Exercise(
                id="09.part", title=self.title, kind="implement", cases=CASES[part], reference=right[part],
                mistakes=[Mistake(block_with([part])[part], *HINTS[part])] if part in FIXES else (),
            )  # fmt: skip
        return self.probes[part]

    def _tell(self, answer, given, verdicts):
        mended = [part for part in FIXES if verdicts[part].state == "correct"]
        names = ", ".join(FIXES[part][0] for part in mended) or "none yet"
        start = f"{len(mended)} of {len(FIXES)} mended: {names}."
        if len(mended) == len(FIXES):
            whole = verdicts["block"]
            if whole.state == "correct":
                return Verdict("correct", f"correct, {start}")
            return self._wrong(f"{start} But the whole block is not right: {whole.text}")
        for (
            part
        ) in FIXES:  # a part that the reader changed and that now is wrong in another way is told as it is
            changed = not untouched(answer[part], given[part])
            if verdicts[part].state in ("wrong", "error") and changed:
                return self._wrong(f"{start}\n  {part}: {verdicts[part].text}")
        index, part = next((i, part) for i, part in enumerate(FIXES) if part not in mended)
        message, question = HINTS[part]
        return Verdict("mistake", f"{start}\n  {message}\n  Question: {question}", index)


faults = Faults(
    id="09.faults",
    title="Five faults in a whole block",
    kind="find the fault",
    reference=block_with,
    mistakes=[Mistake(lambda part=part: block_with([part]), *HINTS[part]) for part in FIXES],
)
