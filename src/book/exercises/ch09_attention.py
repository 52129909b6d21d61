"""Exercises of chapter 09: attention with its cache, from a blank cell, and which rows of a table of seeds are resolved."""

from book.exercises.compare import same
from book.exercises.core import Exercise, Mistake


def _weights(d, h, n_kv, dh, norms, g):
    import torch

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64) * shape[-1] ** -0.5

    w = {"wq": draw(h * dh, d), "wk": draw(n_kv * dh, d), "wv": draw(n_kv * dh, d), "wo": draw(d, h * dh)}
    return w | ({"q_norm": 3 * draw(dh), "k_norm": 3 * draw(dh)} if norms else {})


def _cases():
    """With and without QK-norm, without a cache, with an empty one, a chunk and a single token on a filled one; all sizes differ."""
    import torch

    from lib import rope_cache

    g = torch.Generator().manual_seed(19)
    cases = []
    for d, h, n_kv, dh, norms, T, old in (
        (12, 6, 2, 4, True, 5, None),
        (10, 4, 4, 6, False, 7, None),
        (14, 6, 3, 8, True, 3, 5),
        (9, 4, 2, 6, False, 1, 6),
        (11, 2, 1, 4, True, 4, 0),
    ):
        x = torch.randn(2, T, d, generator=g, dtype=torch.float64)
        past = None if old is None else []
        if old:
            past += [torch.randn(2, n_kv, old, dh, generator=g, dtype=torch.float64) for _ in range(2)]
        cases.append((x, _weights(d, h, n_kv, dh, norms, g), *rope_cache(T, dh, 1e4, start=old or 0), past))
    return cases


def _attention(x, w, cos, sin, past, how=""):
    import torch

    from lib import apply_rope, attend, repeat_kv, rms_norm

    dh = 2 * cos.shape[-1]
    q, k, v = (x @ w[name].T for name in ("wq", "wk", "wv"))
    if how == "heads by view":
        q, k, v = (y.reshape(len(y), -1, y.shape[1], dh) for y in (q, k, v))
    else:
        q, k, v = (y.unflatten(-1, (-1, dh)).transpose(1, 2) for y in (q, k, v))
    late = how == "norm after rope"
    for normed in ("q_norm" in w and not late and how != "no norm",):
        if normed:
            q = rms_norm(q, w["k_norm"] if how == "gains swapped" else w["q_norm"])
            if how != "q alone":
                k = rms_norm(k, w["q_norm"] if how == "gains swapped" else w["k_norm"])
    if past and how == "rotated again":
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        k = torch.cat([apply_rope(part, cos[:1], sin[:1]) for part in k.split(1, dim=2)], dim=2)
        q = apply_rope(q, cos, sin)
    else:
        if how != "no rope":
            q = apply_rope(q, cos, sin)
        if how not in ("no rope", "k not turned"):
            k = apply_rope(k, cos, sin)
        if how == "v turned":
            v = apply_rope(v, cos, sin)
        if late and "q_norm" in w:
            q, k = rms_norm(q, w["q_norm"]), rms_norm(k, w["k_norm"])
        if past and how != "past ignored":
            order = (k, past[0]) if how == "new first" else (past[0], k)
            k = torch.cat(order, dim=2)
            v = torch.cat((v, past[1]) if how == "new first" else (past[1], v), dim=2)
    if past is not None and how != "nothing kept":
        past[:] = k, v
    if how == "tiled":
        k, v = (y.repeat(1, q.shape[1] // k.shape[1], 1, 1) for y in (k, v))
    if how == "no mask":
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        out = attend(q, k, v, mask)
    elif how == "top-left mask":
        group = q.shape[1] // k.shape[1]
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        out = attend(q, repeat_kv(k, group), repeat_kv(v, group), mask)
    else:
        out = attend(q, k, v, scale=1.0 if how == "no scale" else None)
    if how == "heads not turned back":
        return out.reshape(len(x), x.shape[1], -1) @ w["wo"].T
    out = out.transpose(1, 2).flatten(2)
    return out if how == "no wo" else out @ w["wo"].T


def _keeps(function, case):
    """What is not remembered: the value of a call alone does not show it."""
    import torch

    x, w, cos, sin, _ = case
    past = []
    function(x, w, cos, sin, past)
    want = []
    _attention(x, w, cos, sin, want)
    if len(past) != 2 or not all(isinstance(y, torch.Tensor) for y in past):
        return (
            "right for this call, and nothing is kept for the next one: the list `past` should hold this layer's keys and values."
            "\n  Question: what does the next call find in it?"
        )
    if past[0].shape[1] != want[0].shape[1]:
        return (
            f"right, but the cache holds {past[0].shape[1]} heads where {want[0].shape[1]} KV heads are enough."
            "\n  Question: are the heads repeated before or after they are kept?"
        )
    if not all(same(kept, right) for kept, right in zip(past, want)):
        return (
            "right for this call, but what is kept is not the rotated keys and the values, [B, n_kv, S, dh]."
            "\n  Question: which keys does a later query meet, before or after their rotation?"
        )
    return None


def _mistake(how, message, question):
    return Mistake(lambda x, w, cos, sin, past: _attention(x, w, cos, sin, past, how), message, question)


attention = Exercise(
    id="09.attention",
    title="Attention with its cache, from a blank cell",
    kind="implement",
    cases=_cases,
    reference=lambda x, w, cos, sin, past: _attention(x, w, cos, sin, past),
    mutates=True,
    work=_keeps,
    mistakes=[
        _mistake("v turned", "The values are rotated too: positions belong to scores, so to q and k alone.", "Which of q, k and v meet in a dot product?"),
        _mistake("k not turned", "The keys are not rotated.", "The score is to depend on n - m: which two vectors have to turn?"),
        _mistake("no rope", "Nothing is rotated: this layer does not know the order of its tokens.", "What happens to your output if the past is shuffled?"),
        _mistake("norm after rope", "QK-norm comes after the rotation here: with a gain per channel the two do not commute.", "In chapter 07, which came first, and why did it matter?"),
        _mistake("no norm", "The layer has q_norm and k_norm, and they are not used.", "Which keys has w, and what is done where `q_norm` is among them?"),
        _mistake("q alone", "Only q is normalised.", "Which gain belongs to k?"),
        _mistake("gains swapped", "q and k have each other's gain.", "Which of the two gains belongs to the keys?"),
        _mistake("heads by view", "The heads are cut by a reshape alone, so tokens and heads are mixed.", "What is the shape after the product, and which axis holds the heads?"),
        _mistake("heads not turned back", "Before W_o the axes of heads and tokens are still exchanged.", "Which numbers of one token does a row of your matrix hold?"),
        _mistake("tiled", "The KV heads are tiled (0, 1, 0, 1): query head j uses KV head j // group, so 0, 0, 1, 1.", "Which KV head belongs to query head 1?"),
        _mistake("past ignored", "What `past` holds is not used.", "How many keys should a single new token see after six?"),
        _mistake("new first", "The new keys stand before the old ones.", "In which order do the columns of the mask stand?"),
        _mistake("rotated again", "The cached keys are rotated a second time.", "Were the keys in `past` rotated before they were kept?"),
        _mistake("no mask", "Queries see later tokens.", "Which keys may the first query of this call see?"),
        _mistake("top-left mask", "The mask begins at the first key; with a cache the last query belongs to the last key.", "Which key is the newest, and which query may see it?"),
        _mistake("no scale", "The scores are not divided by the root of dh.", "How large is the dot product of two random vectors of 64 numbers?"),
        _mistake("no wo", "W_o is missing.", "Who brings the heads back into the residual stream?"),
    ],
)  # fmt: skip

# Differences in bits per byte, three seeds each, of a table that no run made.
TABLE = {
    "A": (0.031, 0.012, 0.045),
    "B": (-0.052, -0.047, -0.060),
    "C": (0.210, 0.020, 0.090),
    "D": (0.004, -0.003, 0.002),
    "E": (0.018, 0.021, 0.019),
}


def _apart(t, root=True):
    """Rows whose mean is more than t standard errors from 0."""
    rows = set()
    for name, values in TABLE.items():
        mean = sum(values) / 3
        s = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
        if abs(mean) > t * s / (3**0.5 if root else 1):
            rows.add(name)
    return rows


resolved = Exercise(
    id="09.resolved",
    title="Read a table of seeds",
    kind="predict",
    reference=lambda: _apart(4.303),
    mistakes=[
        Mistake(
            {"A", "B", "C", "E"},
            "Those are the rows in which all three seeds have one sign. Without any effect that happens one time in four.",
            "Of eight rows without an effect, how many would you call findings?",
        ),
        Mistake(
            lambda: _apart(1.96),
            "1.96 standard errors is right for a known spread. From three values the spread is a guess, and t with 2 degrees of freedom is 4.303.",
            "How far is the mean of row A from 0, in standard errors?",
        ),
        Mistake(
            {"B", "C"},
            "The two largest means. Row C's seeds lie further apart than its mean from 0, and row E's hardly differ.",
            "How far apart are the seeds of row E?",
        ),
        Mistake({"C"}, "The largest mean, and the widest spread.", "Is 0 within the spread of its seeds?"),
        Mistake(
            {"B"},
            "Row E is small, and small is not the same as unresolved.",
            "How far apart are the seeds of row E?",
        ),
        Mistake({"A", "C", "D"}, "Those are the rows that are NOT resolved.", "Which ones are asked for?"),
    ],
)
