"""Exercise 05.step: one attention layer that is fed in pieces and keeps what it needs; chapter 05 serves SmolLM2 with it."""

from book.exercises.core import Exercise, Mistake


class _Batch(RuntimeError):
    """New keys were joined to the old ones along the axis of the batch; `_Heads`, `_Width`: along those."""


class _Heads(RuntimeError):
    pass


class _Width(RuntimeError):
    pass


AXES = {"except in dimension 0": _Batch, "except in dimension 1": _Heads, "except in dimension 3": _Width}


def _fed(step):
    """Cases hold a whole text in chunks: the step is called for one after the other, in two layers by turns."""

    def run(q, k, v, cache, rotate, window, pad):
        import torch

        turn = lambda x, start: rotate(
            x, start
        )  # a new one for each run: what a step keeps outside its cache is told by it
        caches, outs = ({}, {}), ([], [])
        try:
            for chunk in zip(q, k, v, strict=True):
                for layer in (0, 1):
                    parts = chunk if layer == 0 else [x.flip(-1) for x in chunk]
                    outs[layer].append(step(*parts, caches[layer], turn, window, pad))
        except RuntimeError as problem:
            for words, kind in AXES.items():
                if words in str(problem):
                    raise kind(str(problem)) from problem
            raise
        if not all(torch.is_tensor(out) and out.dim() == 4 for pair in outs for out in pair):
            return outs[0][0]  # None, .. or a tensor without its axes: said as it is
        both = torch.stack([torch.cat(pair, 2) for pair in outs])  # [2, B, h, T, dh]
        real = torch.arange(both.shape[3]) >= pad[:, None]  # what a padding query gives is nobody's business
        return both.where(real[:, None, :, None], 0.0)

    run.__name__ = getattr(step, "__name__", "step")
    return run


def _rotate(width, base=100.0):
    """rotate(x, start): the tokens of x [.., T, width] turned as positions start, start + 1, .."""
    import torch

    import lib

    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = torch.outer(torch.arange(80.0, dtype=torch.float64), base**-exponents)
    cos, sin = (
        angles.cos(),
        angles.sin(),
    )  # in float64: a text shifted as a whole gives the same scores to the last digits

    def rotate(x, start):
        if not torch.is_tensor(x) or x.shape[-1] != width:
            raise ValueError(f"rotate: expected q or k [.., T, {width}] and the position of its first token")
        return lib.apply_rope(x, cos[start : start + x.shape[-2]], sin[start : start + x.shape[-2]])

    return rotate


def _step_cases():
    import torch

    g = torch.Generator().manual_seed(5)
    cases = []
    for B, h, n_kv, dh, sizes, window, pad in (
        (1, 6, 2, 8, (5, 1, 9, 1, 7), None, [0]),
        (2, 8, 2, 6, (5, 1, 9, 1, 7), 4, [0, 0]),
        (2, 6, 3, 4, (6, 1, 1, 3), None, [0, 3]),
        (3, 4, 2, 10, (2, 2, 2), None, [1, 0, 0]),
        (2, 9, 3, 6, (1, 1, 1, 1, 1, 1, 2), 3, [0, 1]),
        (1, 5, 5, 6, (7,), None, [0]),
    ):
        q, k, v = (
            torch.randn(B, n, sum(sizes), dh, generator=g, dtype=torch.float64) for n in (h, n_kv, n_kv)
        )
        chunks = [x.split(sizes, dim=2) for x in (q, k, v)]
        cases.append((*chunks, {}, _rotate(dh), window, torch.tensor(pad)))
    return cases


def _step(q, k, v, cache, rotate, window, pad):
    import torch

    start, T = cache.get("length", 0), q.shape[2]
    q, k = rotate(q, start), rotate(k, start)
    if start:
        k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
    cache.update(k=k, v=v, length=start + T)
    at = torch.arange(start + T)
    ago = at[start:, None] - at  # [T, S]
    see = ago >= 0
    if window:
        see = see & (ago < window)
    see = see & (at >= pad[:, None, None, None]) | (ago == 0)  # a padding query sees itself
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5  # [B, h, T, S]
    return scores.masked_fill(~see, -torch.inf).softmax(-1) @ v


_ELSEWHERE = {}


def wrong(**slips):
    """The step with one slip: `position=lambda start, T, calls, first: ..`, `cached="raw"`, `see=function`, `heads="tile"` ..

    Its parts are those of `_step`; a slip replaces one of them. For the checker, and for chapter 05's faults followed through a model.
    """

    def step(q, k, v, cache, rotate, window, pad):
        import torch

        if slips.get("shared"):
            cache = _ELSEWHERE.setdefault(rotate, {})
        cache["calls"] = cache.get("calls", 0) + 1
        start, T = cache.get("length", 0), q.shape[2]
        first = cache.setdefault("first", T)
        p = slips.get("position", lambda start, T, calls, first: start)(start, T, cache["calls"], first)
        if slips.get("held") and window:
            p = min(p, window)
        raw = k
        q = q if slips.get("q_raw") else rotate(q, slips.get("q_at", p + T * ("ahead" in slips)))
        k = k if slips.get("k_raw") else rotate(k, slips.get("k_at", p))
        v = rotate(v, p) if slips.get("turn_v") else v
        keep_k, keep_v = (raw if slips.get("cached") == "raw" else k), v
        if start and not slips.get("forgets"):
            pairs = [(cache["k"], k), (cache["v"], v)]
            kept = [(cache["k"], keep_k), (cache["v"], keep_v)]
            if slips.get("before"):
                pairs, kept = ([(new, old) for old, new in x] for x in (pairs, kept))
            k, v = (torch.cat(x, slips.get("axis", 2)) for x in pairs)
            keep_k, keep_v = (torch.cat(x, slips.get("axis", 2)) for x in kept)
        if slips.get("cached") == "turned again":
            k = rotate(k, 0)
            keep_k = k
        if slips.get("cached") == "last chunk":
            keep_k, keep_v = keep_k[:, :, -T:], keep_v[:, :, -T:]
        cache.update(k=keep_k, v=keep_v, length=start + T)
        S = k.shape[2]
        at = torch.arange(S)
        ago = at[S - T :, None] - at
        see = slips.get("see", _may_look)(ago, at, T, S, start, window, pad)
        scale = slips.get("scale", 0.5)
        group = q.shape[1] // k.shape[1]
        if slips.get("heads") == "tile":
            k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
        else:
            k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        scores = q @ k.mT / q.shape[-1] ** scale
        return scores.masked_fill(~see, slips.get("fill", -torch.inf)).softmax(slips.get("softmax", -1)) @ v

    return step


def _may_look(ago, at, T, S, start, window, pad, past=0, width=0, padded=True):
    see = ago + past >= 0
    if window and width is not None:
        see = see & (ago < window + width)
    if padded:
        see = see & (at >= pad[:, None, None, None])
    return see | (ago == 0)


def _looks(change=lambda ago, T, S, start: ago, when=lambda start, T: True, **fields):
    """A rule of looking whose distances, or whose fields, are wrong where `when` says so."""

    def see(ago, at, T, S, start, window, pad):
        if not when(start, T):
            return _may_look(ago, at, T, S, start, window, pad)
        return _may_look(change(ago, T, S, start), at, T, S, start, window, pad, **fields)

    return see


def _own_left_out(ago, at, T, S, start, window, pad):
    return _may_look(ago, at, T, S, start, window, pad) & (ago != 0) | (at == 0) & (S == T)


def _inverted(ago, at, T, S, start, window, pad):
    return ~_may_look(ago, at, T, S, start, window, pad) | (ago == 0)


def _last_keys(ago, at, T, S, start, window, pad):
    kept = at >= S - window if window else at >= 0
    return _may_look(ago, at, T, S, start, None, pad) & kept | (ago == 0)


def _padding_right(ago, at, T, S, start, window, pad):
    return _may_look(ago, at, T, S, start, window, pad, padded=False) & (
        at < S - pad[:, None, None, None]
    ) | (ago == 0)


def _padding_of_chunk(ago, at, T, S, start, window, pad):
    local = at - (S - T)  # counted from this chunk's first token
    seen = (local >= pad[:, None, None, None]) | (local < 0)
    return _may_look(ago, at, T, S, start, window, pad, padded=False) & seen | (ago == 0)


top_left = wrong(see=_looks(lambda ago, T, S, start: ago - start))
restarted = wrong(position=lambda start, T, calls, first: 0)
tiled = wrong(heads="tile")
unmasked_prompt = wrong(see=_looks(past=10**6))
_ROWS = (
    (restarted, "RoPE's position starts again at 0 with every chunk.", "Two tokens are in the cache. At which position is the next one?"),
    (wrong(position=lambda s, T, calls, first: calls - 1), "The position moves on by 1 per call; it moves on by the tokens that came.", "After a prompt of 5, at which position is token 6?"),
    (wrong(position=lambda s, T, calls, first: (calls - 1) * first), "Every call moves the position on by the first chunk's length.", "After a prompt of 5 and one token more, what is the next position?"),
    (wrong(held=True), "The position is the number of tokens held, which stops growing at the window.", "With a window of 4, at which position is token 10?"),
    (wrong(q_at=0), "The query is turned from position 0 in every chunk; its keys are not.", "Which difference does RoPE's score depend on, and is it kept?"),
    (wrong(k_at=0), "New keys are turned from position 0 in every chunk; the query is not.", "Which difference does RoPE's score depend on, and is it kept?"),
    (wrong(q_raw=True), "The query is not rotated.", "On which difference can a score depend if only keys are turned?"),
    (wrong(k_raw=True), "The keys are not rotated.", "On which difference can a score depend if only queries are turned?"),
    (wrong(q_raw=True, k_raw=True), "Nothing is rotated: the layer cannot tell positions apart.", "Where does `rotate` occur in your step?"),
    (wrong(turn_v=True), "Values are rotated too.", "Which two tensors does RoPE turn?"),
    (wrong(cached="raw"), "Keys go into the cache unrotated and come out unrotated: only this chunk's are turned.", "What does a later query meet: a key turned to its position, or not?"),
    (wrong(cached="turned again"), "Cached keys are turned again at every step.", "How often has the first key been turned after five chunks?"),
    (wrong(axis=1), "New keys are appended on the axis of the heads.", "In [B, n_kv, S, dh], which axis grows with the text?"),
    (wrong(axis=0), "New keys are appended on the axis of the batch.", "In [B, n_kv, S, dh], which axis grows with the text?"),
    (wrong(axis=3), "New keys are appended on the axis of the width.", "In [B, n_kv, S, dh], which axis grows with the text?"),
    (wrong(shared=True), "Two layers write into one cache: what they keep is not in the `cache` that each of them is given.", "Which name in your step outlives a call, apart from `cache`?"),
    (wrong(forgets=True), "Every chunk attends to itself alone: what was kept is not looked at.", "Which keys does the last token of the text meet?"),
    (wrong(cached="last chunk"), "Only the last chunk is kept; older tokens are lost.", "After chunks of 5 and 1: how many keys are in the cache?"),
    (wrong(before=True), "New keys are put in front of the old ones.", "Which column of the scores belongs to the newest token?"),
    (top_left, "The mask is aligned at the top left: the first new query sees the first key only.", "Five tokens are cached. How many keys does the first query of the next chunk see?"),
    (unmasked_prompt, "Nothing hides the future: inside a chunk, early queries see later keys.", "May token 0 of the prompt look at token 4?"),
    (wrong(see=_looks(past=10**6, when=lambda start, T: start > 0)), "Once there is a cache, nothing hides the future inside a chunk.", "In a later chunk of 9, may its first token look at its ninth?"),
    (wrong(see=_looks(past=10**6, when=lambda start, T: start == 0)), "The first chunk sees its own future.", "Which tokens may token 0 of the prompt look at?"),
    (wrong(see=_looks(past=1)), "Every query sees one token of its future.", "Is `ago` -1 a token of the past?"),
    (wrong(see=_own_left_out), "No query sees its own token.", "Is token 4 among the keys of query 4?"),
    (wrong(see=_inverted), "The mask is inverted: what should be seen is hidden.", "What does masked_fill fill: where its mask is True or False?"),
    (wrong(see=_looks(width=None)), "The window is ignored.", "With a window of 4, how many keys does token 10 see?"),
    (wrong(see=_looks(width=1)), "The window is one token too wide: it counts the query's own token.", "With a window of 1, which keys are seen?"),
    (wrong(see=_looks(width=-1)), "The window is one token too narrow: it counts the query's own token.", "With a window of 1, which keys are seen?"),
    (wrong(see=_last_keys), "The whole chunk sees the same last keys; the window moves with each query.", "In a chunk of 9 with a window of 4, which keys does its first token see?"),
    (wrong(see=_looks(padded=False)), "Padding is not hidden.", "May a real token look at the columns before `pad`?"),
    (wrong(see=_looks(padded=False, when=lambda start, T: start > 0)), "Padding is hidden in the first chunk only; its keys are still in the cache afterwards.", "How long do the padding's keys stay in the cache?"),
    (wrong(see=_padding_right), "Padding is on the left; hidden are the last columns.", "Which columns of a row are padding?"),
    (wrong(see=_padding_of_chunk), "Padding is counted from each chunk's first token; it is the first columns of the whole text.", "In the second chunk, which columns are padding?"),
    (tiled, "The heads are tiled (0, 1, 0, 1); each KV head serves neighbours (0, 0, 1, 1).", "With 6 query heads and 2 KV heads, which one does query head 1 read?"),
    (wrong(scale=0), "The scores are not divided by the root of the head's width.", "What is the standard deviation of a sum of 64 products?"),
    (wrong(scale=1), "The scores are divided by the width; it is its root.", "What is the standard deviation of a sum of 64 products?"),
    (wrong(scale=2), "The scores are divided by the square of the width; it is its root.", "What is the standard deviation of a sum of 64 products?"),
    (wrong(ahead=True), "The query is turned further than its own key, by a chunk.", "At which position is a token's query, and at which its key?"),
    (wrong(scale=-0.5), "The scores are multiplied by the root of the width.", "Do wider heads have larger or smaller dot products?"),
    (wrong(softmax=-2), "The softmax runs over the queries; each query's weights over its keys add up to 1.", "In [B, h, T, S], which axis counts keys?"),
    (wrong(fill=0.0), "Hidden scores are set to 0, which softmax turns into a weight.", "What is exp(0)?"),
)  # fmt: skip

step = Exercise(
    id="05.step",
    title="An attention layer that is fed in pieces",
    kind="implement",
    cases=_step_cases,
    reference=_step,
    mutates=True,
    driver=_fed,
    mistakes=[Mistake(*row) for row in _ROWS],
)
