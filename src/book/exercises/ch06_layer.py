"""Exercise of chapter 06: a whole MLA layer with absorbed decode, from a blank cell."""

from book.exercises.core import Exercise, Mistake


def _weights(d, h, c, n, v, r, q_rank, g):
    import torch

    def draw(*shape, last=-1):
        return torch.randn(*shape, generator=g, dtype=torch.float64) * 1.5 * shape[last] ** -0.5

    gain = {"q_norm": draw(q_rank) * q_rank**0.5, "kv_norm": draw(c) * c**0.5}
    up = {"W_uk": draw(h, n, c), "W_uv": draw(h, v, c)}
    return gain | up | {"wq_a": draw(q_rank, d), "wq_b": draw(h * (n + r), q_rank), "wkv_a": draw(c + r, d), "wo": draw(d, h * v)}  # fmt: skip


def _case(T, old, *sizes, g):
    import torch

    from lib import rope_cache

    d, _, c, *_, r, _ = sizes
    x = torch.randn(T, d, generator=g, dtype=torch.float64)
    past = torch.randn(old, c + r, generator=g, dtype=torch.float64)
    return x, _weights(*sizes, g), *rope_cache(T, r, start=old), past


def _cases():
    """A prompt, a chunk and single tokens; all sizes differ, but once n = c and v = c, so that a matrix used the wrong way round runs."""
    import torch

    g = torch.Generator().manual_seed(61)
    shapes = (
        (4, 0, 14, 3, 9, 5, 7, 4, 8),
        (3, 5, 12, 2, 6, 4, 3, 2, 10),
        (1, 7, 11, 4, 8, 6, 5, 4, 9),
        (2, 3, 13, 3, 6, 6, 6, 2, 7),
    )
    return [_case(*shape, g=g) for shape in shapes]  # fmt: skip


def _layer(x, w, cos, sin, cached, how=""):
    """how: one slip, by name."""
    import torch

    from lib import apply_rope, rms_norm

    def turn(y, who):
        return (
            y
            if how == f"{who} not turned"
            else apply_rope(y, cos, sin, "half" if how == "half-split" else "adjacent")
        )

    (h, n, c), T = w["W_uk"].shape, len(x)
    low = x @ w["wq_a"].T
    q = (low if how == "no query norm" else rms_norm(low, w["q_norm"])) @ w["wq_b"].T
    q = q.view(h, T, -1) if how == "heads by view" else q.view(T, h, -1).transpose(0, 1)
    r = q.shape[-1] - n
    parts = q.split([r, n] if how == "rope first in q" else [n, r], dim=-1)
    q_nope, q_rope = parts[::-1] if how == "rope first in q" else parts
    down = x @ w["wkv_a"].T
    if how == "norm over the row":
        down = rms_norm(down, torch.cat([w["kv_norm"], torch.ones_like(down[0, c:])]))
    latent, k_rope = down.split([c, r], dim=-1)
    if how not in ("no latent norm", "norm over the row"):
        latent = rms_norm(latent, None if how == "no gain" else w["kv_norm"])
    new = torch.cat([latent, turn(k_rope, "k")], dim=-1)
    rows = torch.cat([new, cached] if how == "new first" else [cached, new])
    seen = new if how == "past ignored" else rows
    moved = torch.einsum("htc,hnc->htn", q_nope, w["W_uk"]) if how == "W_uk turned" else q_nope @ w["W_uk"]
    content, place = moved @ seen[:, :c].T, turn(q_rope, "q") @ seen[:, c:].T
    if how == "scaled apart":
        content, place = content * n**-0.5, place * r**-0.5
    scale = {"scale n": n, "scale c + r": c + r, "no scale": 1, "scaled apart": 1}.get(how, n + r) ** -0.5
    scores = (content if how == "no rope part" else content + place) * scale
    S = len(seen)
    later = torch.ones(T, S, dtype=torch.bool).triu(1 if how == "top-left mask" else S - T + 1)
    scores = scores if how == "no mask" else scores.masked_fill(later, -torch.inf)
    a = scores if how == "no softmax" else scores.softmax(1 if how == "softmax over queries" else -1)
    heads = a @ seen[:, :c]
    heads = torch.einsum("htv,hvc->htc", heads, w["W_uv"]) if how == "W_uv turned" else heads @ w["W_uv"].mT
    out = heads.reshape(T, -1) if how == "heads not turned back" else heads.transpose(0, 1).flatten(1)
    return (out if how == "no wo" else out @ w["wo"].T), (cached if how == "cache as it was" else rows)


def _expands(function, case):
    """Whether keys or values are made for every cached token: much more arithmetic than the absorbed form."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    large = _case(1, 511, 24, 4, 16, 8, 8, 2, 12, g=torch.Generator().manual_seed(1))
    counts = []
    for each in (_layer, function):
        with FlopCounterMode(display=False) as counter:
            each(*large)
        counts.append(counter.get_total_flops())
    if counts[1] <= 1.5 * counts[0]:
        return None
    return (
        f"output and cache are right, and every cached token met W_UK or W_UV: {counts[1]:,} FLOPs for one token after 511, where {counts[0]:,} do."
        "\n  Question: how often does each of the two matrices appear in a decode step, once or once per cached token?"
    )


def _mistake(how, message, question):
    return Mistake(lambda x, w, cos, sin, cached: _layer(x, w, cos, sin, cached, how), message, question)


layer = Exercise(
    id="06.mla",
    title="An MLA layer with absorbed decode, from a blank cell",
    kind="implement",
    cases=_cases,
    reference=lambda x, w, cos, sin, cached: _layer(x, w, cos, sin, cached),
    work=_expands,
    mistakes=[
        _mistake("no latent norm", "The latent is cached before its norm; W_UK and W_UV expect it after.", "Where is `kv_norm` used?"),
        _mistake("no gain", "The latent is normalised and the gain is not applied.", "What is `kv_norm` for?"),
        _mistake("norm over the row", "The norm runs over latent and rope key together; it belongs to the latent alone.", "How many numbers has `kv_norm`, and how many a row?"),
        _mistake("no query norm", "The low-rank query is not normalised.", "What stands between `wq_a` and `wq_b`?"),
        _mistake("half-split", "The rotation pairs the two halves; this checkpoint pairs neighbours.", "Which layout does `apply_rope` take when none is given?"),
        _mistake("k not turned", "The rope key is cached without its rotation.", "When a later query meets this row, who would still know its position?"),
        _mistake("q not turned", "The rope part of the query is not rotated.", "The score is to depend on the distance: which two vectors have to turn?"),
        _mistake("no rope part", "The scores leave out the rope part: they know nothing of position.", "What are the last columns of `cached` for?"),
        _mistake("rope first in q", "The query's head is read as rope part and then content; the content comes first.", "Which rows of `wq_b` belong to the rope part of a head?"),
        _mistake("heads by view", "The heads are cut by a view alone, so tokens and heads are mixed.", "What is the shape after the product, and which axis holds the tokens?"),
        _mistake("heads not turned back", "Before W_o the axes of heads and tokens are still exchanged.", "Which numbers of one token does a row of your matrix hold?"),
        _mistake("W_uk turned", "W_UK is used the wrong way round: it maps a latent to a key, so the query goes through its transpose.", "Which of its axes must meet the query: n or c? (In the last case the two have one size.)"),
        _mistake("W_uv turned", "W_UV is used the wrong way round: it maps a latent to a value.", "Which of its axes must meet the summed latent: v or c? (In the last case the two have one size.)"),
        _mistake("scale n", "The scale counts the part without RoPE only.", "How wide is the whole key of one head?"),
        _mistake("scale c + r", "The scale comes from the absorbed width d_c + d_R.", "Moving a parenthesis leaves the score as it is: which scale did it have before?"),
        _mistake("no scale", "The scale is missing.", "How does the variance of a dot product grow with its width?"),
        _mistake("scaled apart", "The two parts are scaled by their own widths; the key of a head is both together.", "Which single number divides the score of a head?"),
        _mistake("no mask", "Queries see later tokens of the same call.", "Which rows may the first of T new tokens see?"),
        _mistake("top-left mask", "The mask begins at the first row; with a cache the last query belongs to the last row.", "Which row is the newest, and which query may see it?"),
        _mistake("no softmax", "The scores are used as weights: no softmax.", "What should the weights of one query sum to?"),
        _mistake("softmax over queries", "The softmax runs over the queries, not over the cached tokens.", "Along which axis should the weights sum to 1?"),
        _mistake("past ignored", "The rows that were cached before are not read.", "How many rows should a single new token see after seven?"),
        _mistake("new first", "The new rows stand before the old ones.", "In which order do the columns of the mask stand?"),
        _mistake("cache as it was", "The output is right, and the cache comes back without the new rows.", "What will the next call find?"),
        _mistake("no wo", "W_o is missing.", "Who brings the heads back into the residual stream?"),
    ],
)  # fmt: skip
