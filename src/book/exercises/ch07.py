"""Exercises of chapter 07: QK-norm."""

from math import sqrt

from book.exercises.core import Exercise, Mistake


def _score_cases():
    """q, k [1, h, T, dh], two gains [dh], tables: every size different, positions far from 0 too."""
    import torch

    from lib import rope_cache

    g = torch.Generator().manual_seed(7)
    cases = []
    for h, T, dh, start in ((2, 5, 6, 0), (3, 4, 8, 40), (5, 2, 4, 700)):
        q, k = (torch.randn(1, h, T, dh, generator=g, dtype=torch.float64) * size for size in (5, 0.3))
        gains = [torch.randn(dh, generator=g, dtype=torch.float64) for _ in range(2)]
        cases.append((q, k, *gains, *(t.double() for t in rope_cache(T, dh, start=start))))
    return cases


def _unit(x, gain, kind="rms"):
    """x normalised over its last axis, then the gain; other kinds are what people write instead."""
    from lib import layer_norm, rms_norm

    if kind == "whole":  # over all heads of a token
        b, h, t, dh = x.shape
        return rms_norm(x.transpose(1, 2).flatten(2)).view(b, t, h, dh).transpose(1, 2) * gain
    if kind == "length":
        return x / x.norm(dim=-1, keepdim=True) * gain
    if kind == "mean":
        return layer_norm(x, gain)
    return rms_norm(x, gain)


def _scores(q, k, g_q, g_k, cos, sin, kind="rms", rope="after", scale=None, layout="half", normed="qk"):
    from lib import apply_rope

    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if rope == "before":
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
    q = _unit(q, g_q, kind) if "q" in normed else q
    k = _unit(k, g_k, kind) if "k" in normed else k
    if rope in ("after", "q only"):
        q = apply_rope(q, cos, sin, layout)
    if rope in ("after", "k only"):
        k = apply_rope(k, cos, sin, layout)
    return q @ k.transpose(-1, -2) * scale


def _gains_last(q, k, g_q, g_k, cos, sin):
    from lib import apply_rope, rms_norm

    q, k = (apply_rope(rms_norm(y), cos, sin) * gain for y, gain in ((q, g_q), (k, g_k)))
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


def _without_gains(q, k, g_q, g_k, cos, sin):
    return _scores(q, k, g_q * 0 + 1, g_k * 0 + 1, cos, sin)


scores = Exercise(
    id="07.scores",
    title="Attention scores with QK-norm and RoPE",
    kind="implement",
    cases=_score_cases,
    reference=lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin),
    mistakes=[
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, rope="before"),
            "The rotation comes first and the gain then scales channels that are mixed already.",
            "Which channel of the projection does entry i of the gain belong to after a rotation?",
        ),
        Mistake(
            _gains_last,
            "The norm stands before the rotation and its gain after it: the gain then scales channels that are mixed already.",
            "Which of the two, dividing by the RMS or multiplying by the gain, commutes with a rotation?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, layout="adjacent"),
            "The rotation pairs neighbouring channels; half-split pairs channel j with channel j + dh/2.",
            "With which channel does channel 0 turn?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, normed="q"),
            "The keys are not normalised: the scores still grow with W_k.",
            "What do your scores do when k is doubled?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, normed="k"),
            "The queries are not normalised: the scores still grow with W_q.",
            "What do your scores do when q is doubled?",
        ),
        Mistake(
            _without_gains,
            "The gains are not used.",
            "What do your scores do when g_q is doubled?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_k, g_q, cos, sin),
            "The two gains are swapped.",
            "Without a rotation a swap changes nothing (only the product of both gains counts). Why does it here?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, scale=1.0),
            "The scale 1 / sqrt(dh) is missing. The norm sets the RMS of an entry to 1, not the length of the vector.",
            "How long is a vector of dh entries with RMS 1, and what is its product with itself?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, kind="length"),
            "The vectors have length 1. RMSNorm makes them sqrt(dh) long, so these scores are dh times too small.",
            "What is the RMS of a vector of length 1?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, kind="mean"),
            "The mean is subtracted: that is LayerNorm.",
            "What is the mean of the entries after an RMSNorm?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, kind="whole"),
            "All heads of a token share one RMS. Here each head has its own.",
            "Over how many numbers does your mean run: dh, or h dh?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, rope="none"),
            "Nothing is rotated: the scores know no positions.",
            "What are cos and sin for?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, rope="q only"),
            "The queries are rotated and the keys are not: a score then depends on the query's position alone.",
            "Two tokens move on by ten positions together: do your scores stay?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin, rope="k only"),
            "The keys are rotated and the queries are not: a score then depends on the key's position alone.",
            "Which difference of positions can such a score know?",
        ),
        Mistake(
            lambda q, k, g_q, g_k, cos, sin: _scores(q, k, g_q, g_k, cos, sin).softmax(-1),
            "These are weights: the softmax is already in them.",
            "What do the rows of your result sum to?",
        ),
    ],
)

G_Q, G_K = (0.5, 1.2, 2, 2.5), (3, 2, 0.5, 1)


def _bound(pairs):
    """sqrt(dh) times the largest product of max |g_q| and max |g_k| within one of the sets of channels that a rotation mixes."""
    return sqrt(4) * max(max(G_Q[i] for i in pair) * max(G_K[i] for i in pair) for pair in pairs)


bound = Exercise(
    id="07.bound",
    title="The largest score that QK-norm allows",
    kind="predict",
    reference=lambda: _bound([(0, 2), (1, 3)]),
    mistakes=[
        Mistake(lambda: _bound([(0, 1, 2, 3)]), "The largest entries of the two gains belong to different pairs: no rotation brings them together.", "Which channel can RoPE turn channel 0 into?"),
        Mistake(lambda: _bound([(0,), (1,), (2,), (3,)]), "That is the largest score without a rotation, where channel i of q meets channel i of k only.", "What does a quarter turn do to the two channels of a pair?"),
        Mistake(lambda: _bound([(0, 1), (2, 3)]), "The pairs are those of the adjacent layout; half-split pairs channel j with channel j + 2.", "Which channel turns together with channel 0 here?"),
        Mistake(lambda: 2 * _bound([(0, 2), (1, 3)]), "That is before the scale 1 / sqrt(dh).", "By what is q k divided?"),
        Mistake(lambda: sqrt(4), "The gains are left out.", "What does a gain of 2 do to its channel?"),
        Mistake(lambda: _bound([(0, 2), (1, 3)]) / 2, "That is the product of the gains alone: as if the vectors had length 1.", "How long is a vector of 4 entries whose RMS is 1?"),
        Mistake(lambda: _bound([(0, 2), (1, 3)]) / 4, "The scale is applied to vectors of length 1; these are sqrt(dh) long.", "What is the RMS of an entry after the norm?"),
        Mistake(lambda: sqrt(4) * 2.5 * 2, "That is the second pair; the first allows more.", "What are the largest gains of q and of k among channels 0 and 2?"),
        Mistake(lambda: sqrt(4) * (2.5 + 3), "The gains are added.", "How do the lengths of two vectors enter their product?"),
    ],
)  # fmt: skip

movable = Exercise(
    id="07.movable",
    title="Which gains may move behind the rotation",
    kind="choose",
    options=("a", "b", "c", "d", "e"),
    reference="a",
    mistakes=[
        Mistake(
            "b",
            "The layouts are exchanged: half-split turns channel j with channel j + 2, adjacent channel 2j with 2j + 1.",
            "In the half-split layout of a head of 4, which channel turns together with channel 0?",
        ),
        Mistake(
            "c",
            "A gain with two equal halves commutes only where the channels that are equal turn together.",
            "Which two channels of A are equal, and in which layout are they a pair?",
        ),
        Mistake(
            "d",
            "A rotation keeps the length, so the division by the RMS does not care. The gain comes after that division.",
            "What does diag(g) do to a vector that a rotation has turned out of its axes?",
        ),
        Mistake(
            "e",
            "A gain need not be the same number everywhere: within a pair is enough.",
            "What is diag(a, a) times a rotation of that pair?",
        ),
    ],
)


def _project_cases():
    import torch

    from lib import rope_cache

    g = torch.Generator().manual_seed(8)
    cases = []
    for T, d, h, dh, start in ((4, 7, 2, 6, 0), (3, 5, 3, 4, 35), (2, 9, 4, 8, 512)):
        x, w = torch.randn(1, T, d, generator=g), torch.randn(h * dh, d, generator=g)
        cases.append((x, w, torch.randn(dh, generator=g), *rope_cache(T, dh, start=start)))
    return cases


def _project(x, w_q, gain, cos, sin, order="norm first", over="head"):
    from lib import apply_rope, rms_norm

    q = (x @ w_q.T).unflatten(-1, (-1, gain.numel())).transpose(1, 2)  # [B, h, T, dh]
    if order == "no norm":
        return apply_rope(q, cos, sin)
    if order == "gain last":  # the norm where it may stand, the gain where it may not
        return apply_rope(rms_norm(q), cos, sin) * gain
    if order == "no rotation":
        return rms_norm(q, gain)
    if over == "tokens":
        q = q * (q.pow(2).mean(-2, keepdim=True) + 1e-6).rsqrt() * gain
        return apply_rope(q, cos, sin)
    return apply_rope(rms_norm(q, gain), cos, sin)


def _given(x, w_q, gain, cos, sin):
    from lib import apply_rope, rms_norm

    q = (x @ w_q.T).unflatten(-1, (-1, gain.numel())).transpose(1, 2)
    q = apply_rope(q, cos, sin)
    return rms_norm(q, gain)


project = Exercise(
    id="07.project",
    title="Find the fault in a query with QK-norm",
    kind="find the fault",
    cases=_project_cases,
    reference=lambda x, w_q, gain, cos, sin: _project(x, w_q, gain, cos, sin),
    given=_given,
    hint="Compare it with the six lines of section 3.",
    mistakes=[
        Mistake(
            lambda x, w_q, gain, cos, sin: _project(x, w_q, gain, cos, sin, "gain last"),
            "The norm moved and its gain stayed behind the rotation; the gain was the trouble.",
            "Which of the two, dividing by the RMS or multiplying by the gain, commutes with a rotation?",
        ),
        Mistake(
            lambda x, w_q, gain, cos, sin: _project(x, w_q, gain, cos, sin, "no norm"),
            "Now there is no norm: the order is not wrong any more, and nothing holds the logits.",
            "What is the RMS of each head of your result before the gain?",
        ),
        Mistake(
            lambda x, w_q, gain, cos, sin: _project(x, w_q, gain, cos, sin, "no rotation"),
            "Now nothing is rotated.",
            "What does your query know of its position?",
        ),
        Mistake(
            lambda x, w_q, gain, cos, sin: _project(x, w_q, gain, cos, sin, over="tokens"),
            "The mean runs over the tokens: a query would depend on what comes after it.",
            "Along which axis do the dh numbers of one head of one token lie?",
        ),
    ],
)


def _width_cases():
    import torch

    g = torch.Generator().manual_seed(9)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)
    return [
        (draw(B, T, h * dh) * 4, draw(h * dh), h) for B, T, h, dh in ((2, 3, 4, 5), (1, 6, 3, 2), (3, 2, 5, 4))
    ]  # fmt: skip


def _width(q, gain, n_heads, kind="width"):
    from lib import rms_norm

    if kind == "head":
        heads = rms_norm(q.unflatten(-1, (n_heads, -1))) * gain.view(n_heads, -1)
        return heads.transpose(1, 2)
    if kind == "first gain":
        return (rms_norm(q).unflatten(-1, (n_heads, -1)) * gain[: q.shape[-1] // n_heads]).transpose(1, 2)
    q = rms_norm(q, None if kind == "no gain" else gain)
    if kind == "view":
        return q.reshape(q.shape[0], n_heads, q.shape[1], -1)
    if kind == "interleaved":
        return q.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)
    heads = q.unflatten(-1, (n_heads, -1))
    return heads if kind == "untransposed" else heads.transpose(1, 2)


width = Exercise(
    id="07.width",
    title="The norm over the whole width",
    kind="implement",
    cases=_width_cases,
    reference=lambda q, gain, n_heads: _width(q, gain, n_heads),
    mistakes=[
        Mistake(
            lambda q, gain, n_heads: _width(q, gain, n_heads, "head"),
            "Each head is normalised by its own RMS: that is Qwen3's way. Here one RMS serves the whole width.",
            "May a loud head stay louder than a quiet one after this norm?",
        ),
        Mistake(
            lambda q, gain, n_heads: _width(q, gain, n_heads, "first gain"),
            "Every head gets the first head's gain; here each channel of the whole width has its own.",
            "How many entries has `gain`, and how many has a head?",
        ),
        Mistake(
            lambda q, gain, n_heads: _width(q, gain, n_heads, "no gain"),
            "The gain is not used.",
            "What is the shape of `gain`, and which channels does it belong to?",
        ),
        Mistake(
            lambda q, gain, n_heads: _width(q, gain, n_heads, "view"),
            "Heads and tokens are mixed up: a view to [B, h, T, dh] cuts the numbers in the wrong order.",
            "Which numbers lie side by side in memory: those of one token, or those of one head?",
        ),
        Mistake(
            lambda q, gain, n_heads: _width(q, gain, n_heads, "interleaved"),
            "The heads are taken in turns, every h-th channel. A head is a run of dh channels.",
            "To which head do channels 0 and 1 belong?",
        ),
        Mistake(
            lambda q, gain, n_heads: _width(q, gain, n_heads, "untransposed"),
            "The result is [B, T, h, dh]; asked for is [B, h, T, dh].",
            "Which axis must the attention's matrix product leave alone?",
        ),
    ],
)
