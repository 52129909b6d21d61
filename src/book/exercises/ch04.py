"""Exercises of chapter 04: layouts and the base. ch04_lengths has those on scaling, ch04_parts those on configs and parts of a head."""

from book.exercises.core import Exercise, Mistake


def _weight_cases():
    """(w_k, query heads, KV heads); h / n_kv, h and n_kv all different, and every wrong number of blocks divides the rows. The last is a bias."""
    import torch

    g = torch.Generator().manual_seed(4)
    sizes = ((8, 2, (32, 5)), (16, 2, (64, 64)), (12, 3, (72, 3)), (8, 2, (32,)))
    return [(torch.randn(shape, generator=g, dtype=torch.float64), h, n_kv) for h, n_kv, shape in sizes]


def _blocks(w, n_blocks, to="half"):
    from lib import permute_heads

    return permute_heads(w, n_blocks, to)


def _permute(w_k, n_heads, n_kv_heads):
    import torch

    per_head = w_k.unflatten(0, (n_kv_heads, -1))
    order = torch.arange(per_head.shape[1])
    return per_head[:, torch.cat([order[0::2], order[1::2]])].flatten(0, 1)


def _ordered(make, flat=True):
    """Rows of each KV head in the order make(evens, odds)."""

    def wrong(w_k, n_heads, n_kv_heads):
        import torch

        per_head = w_k.unflatten(0, (n_kv_heads, -1))
        order = torch.arange(per_head.shape[1])
        out = per_head[:, make(order[0::2], order[1::2])]
        return out.flatten(0, 1) if flat else out

    return wrong


def _columns(w_k, n_heads, n_kv_heads):
    from lib import layout_permutation

    return w_k[:, layout_permutation(w_k.shape[1] // 2 * 2)]


def _columns_of_a_head(w_k, n_heads, n_kv_heads):
    from lib import layout_permutation

    return w_k[:, layout_permutation(len(w_k) // n_kv_heads)]


def _heads_inside(w_k, n_heads, n_kv_heads):
    import torch

    rows = w_k.unflatten(0, (-1, n_kv_heads))
    order = torch.arange(rows.shape[0])
    return rows[torch.cat([order[0::2], order[1::2]])].flatten(0, 1)


def _cat(evens, odds):
    import torch

    return torch.cat([evens, odds])


permute = Exercise(
    id="04.permute",
    title="Convert a key weight from adjacent to half-split",
    kind="implement",
    cases=_weight_cases,
    reference=_permute,
    hint="Take one head of four rows: which two of them turn together before, and at which places must they be afterwards?",
    mistakes=[
        Mistake(lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_heads // n_kv_heads), "The number of blocks is n_heads // n_kv_heads, the size of a group: right by luck where h / n_kv = n_kv.", "How many heads does the KEY weight hold?"),
        Mistake(lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_heads), "The rows are divided into query heads; a key weight has fewer.", "How many rows has one KV head, and how many has one of your blocks?"),
        Mistake(lambda w_k, n_heads, n_kv_heads: _blocks(w_k, 1), "All heads are shuffled together: rows have moved from one head to another.", "May a row leave its own head?"),
        Mistake(lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_kv_heads, "adjacent"), "That is the way back: it takes half-split rows to adjacent ones.", "Which row must stand second in a head of half-split rows: 1 or 2?"),
        Mistake(lambda w_k, n_heads, n_kv_heads: w_k.clone(), "The rows are where they were.", "Which row turns together with row 0 in each of the two layouts?"),
        Mistake(_ordered(_cat, flat=False), "The order is right, and the heads are still an axis of their own.", "Which shape has W_k in the checkpoint?"),
        Mistake(_columns_of_a_head, "The columns are permuted; they are the inputs, which no rotation touches.", "Which axis of W_k are the dimensions of the key?"),
        Mistake(_columns, "All columns are permuted; they are the inputs, which no rotation touches.", "Which axis of W_k are the dimensions of the key?"),
        Mistake(_ordered(lambda evens, odds: _cat(odds, evens)), "Odd rows come first: a and b of every pair are exchanged, so each pair turns backwards.", "In (a cos - b sin, a sin + b cos), which row of the pair is a?"),
        Mistake(_ordered(lambda evens, odds: _cat(evens, odds.flip(0))), "The second half is in reverse order: row 0 gets the wrong partner.", "Which place must hold the partner of row 0?"),
        Mistake(_ordered(lambda evens, odds: _cat(*_cat(evens, odds).sort().values.chunk(2)[::-1])), "The two halves of the head are exchanged; no row has met its partner.", "Which row is the partner of row 0 in the adjacent layout?"),
        Mistake(_ordered(lambda evens, odds: evens), "Only the even rows are left: half of the key is gone.", "How many rows had the weight?"),
        Mistake(_heads_inside, "Rows are dealt out to the heads in turn; a head owns consecutive rows.", "Which rows belong to the first KV head?"),
        Mistake(lambda w_k, n_heads, n_kv_heads: _permute(w_k, n_heads, n_kv_heads).T if w_k.dim() > 1 else _permute(w_k, n_heads, n_kv_heads), "The order is right, and the matrix came out transposed.", "Which shape has W_k in the checkpoint?"),
    ],
)  # fmt: skip


def _texts():
    """(logits, ids) of a pretended model: how much each layout knows of the next token, how sure it is, how long the text is."""
    import torch

    g = torch.Generator().manual_seed(17)
    cases = []
    for half, adjacent, sure, length in (
        (6, 0, 1, 20), (0, 6, 1, 20), (3, 3, 1, 20), (5, 1, 3, 12), (1, 5, 3, 12), (4, 2, 0.3, 30), (2, 4, 0.3, 30), (0, 0, 1, 9),
        (3, 3.2, 1, 40), (3.2, 3, 1, 40), (6, 5, 1, 3), (1, 2, 2, 5), (2, 1, 2, 5), (4, 3.5, 2, 25), (0.5, 1.2, 4, 25), (2.6, 3, 0.5, 60),
        (5, 4.6, 0.2, 20), (4.6, 5, 0.2, 21), (5.5, 5, 0.3, 33), (2, 2.6, 1, 22), (1.5, 1, 0.5, 31), (1, 0.4, 0.1, 16),
    ):  # fmt: skip
        ids = torch.randint(0, 9, (length,), generator=g)
        logits = {}
        for name, knows in (("half", half), ("adjacent", adjacent)):
            drawn = sure * torch.randn(length, 9, generator=g, dtype=torch.float64)
            if (name == "half") == (length % 2 == 0):
                drawn = drawn * 1.5  # one of the two is surer than the other, whichever is right
            drawn[torch.arange(length - 1), ids[1:]] += knows
            drawn[torch.arange(length), ids] += 2 * (knows < max(half, adjacent))  # the worse one repeats
            logits[name] = drawn
        cases.append((logits if length % 3 else dict(reversed(logits.items())), ids))
    return cases


def _by_loss(logits, ids, measure=None, margin=0.1, best=min):
    """The layout with the least measure(log-probabilities [T, V], ids); None where the two are closer than margin."""
    measure = measure or _next_loss
    found = {name: float(measure(each.log_softmax(-1), ids)) for name, each in logits.items()}
    if abs(found["half"] - found["adjacent"]) <= margin:
        return None
    return best(found, key=found.get)


def _next_loss(logp, ids):
    return -logp[:-1].gather(1, ids[1:, None]).mean()


def _measured(measure, margin=0.1, best=min):
    return lambda logits, ids: _by_loss(logits, ids, measure, margin, best)


def _share_right(logp, ids):
    return (logp[:-1].argmax(1) == ids[1:]).double().mean()


def _signed(logits, ids):
    loss = {name: float(_next_loss(each.log_softmax(-1), ids)) for name, each in logits.items()}
    return min(loss, key=loss.get) if loss["half"] - loss["adjacent"] > 0.1 else None


detect = Exercise(
    id="04.detect",
    title="Tell a checkpoint's layout by its loss",
    kind="implement",
    cases=_texts,
    reference=lambda logits, ids: _by_loss(logits, ids),
    hint="Print both losses: which is smaller, and by how much?",
    mistakes=[
        Mistake(_measured(lambda logp, ids: -logp.gather(1, ids[:, None]).mean()), "Row t of the logits is compared with token t, which the model has just read.", "Which token does row 0 of the logits predict?"),
        Mistake(_measured(lambda logp, ids: -logp[1:].gather(1, ids[:-1, None]).mean()), "The shift goes the wrong way: each row is compared with the token before its own.", "Which token does row 0 of the logits predict?"),
        Mistake(_measured(_next_loss, best=max), "The layout with the larger loss is chosen.", "Is a good model's loss large or small?"),
        Mistake(_measured(_next_loss, margin=-1), "Your function always decides, also where the two losses are as good as equal.", "What should it say of a model that has no RoPE?"),
        Mistake(_measured(lambda logp, ids: (len(ids) - 1) * _next_loss(logp, ids)), "The losses are added up over the text: on a long one any difference passes 0.1.", "In which unit is the 0.1 of the text?"),
        Mistake(_measured(_share_right, best=max), "The share of right tokens is compared: it knows nothing of how sure the model was.", "What is the loss of a row whose best token is right by a hair?"),
        Mistake(_measured(lambda logp, ids: -(logp.exp() * logp).sum(-1).mean()), "The entropy is compared: how sure the model is, not whether it is right.", "What is the entropy of a model that is sure and wrong?"),
        Mistake(_measured(lambda logp, ids: -logp.max(-1).values.mean()), "The best token's probability is compared: how sure the model is, not whether it is right.", "Where do the ids of the text enter?"),
        Mistake(_measured(lambda logp, ids: -logp[-2, ids[-1]]), "Only the last prediction counts.", "How far does one token's loss differ from the next one's?"),
        Mistake(_measured(lambda logp, ids: -logp[0, ids[1]]), "Only the first prediction counts: the one that no layout changes.", "What is a token's score with itself in either layout?"),
        Mistake(_measured(lambda logp, ids: _next_loss(logp, ids).exp()), "The perplexities are compared; the 0.1 of the text is in nats.", "By how much do two perplexities near 20 differ when the losses differ by 0.1?"),
        Mistake(_measured(lambda logp, ids: -logp[:-1].gather(1, ids[1:, None]).exp().mean()), "Probabilities are averaged; the loss averages their logarithms.", "What does one token of probability 0 do to each of the two?"),
        Mistake(_measured(lambda logp, ids: _next_loss(logp, ids), margin=1.0), "The difference must pass 1 nat; the text asks for 0.1.", "What does your function say of losses of 3.0 and 3.5?"),
        Mistake(_signed, "The difference has a sign, and your comparison needs its size: one of the two layouts is never told.", "What is loss[\"half\"] - loss[\"adjacent\"] of an adjacent checkpoint, and of a half-split one?"),
        Mistake(lambda logits, ids: _by_loss(logits, ids) or "half", "Where the two losses are as good as equal, your function says half; it should say None.", "What should it say of a model that has no RoPE?"),
        Mistake(lambda logits, ids: _by_loss(logits, ids) or "adjacent", "Where the two losses are as good as equal, your function says adjacent; it should say None.", "What should it say of a model that has no RoPE?"),
        Mistake(lambda logits, ids: _by_loss(logits, ids) and "half", "A clear difference is always half-split.", "Which of the two losses is smaller?"),
        Mistake(lambda logits, ids: None if _by_loss(logits, ids) else min(logits, key=lambda name: float(_next_loss(logits[name].log_softmax(-1), ids))), "None is returned for a clear difference, and a layout for a small one.", "When is the answer not resolved?"),
    ],
)  # fmt: skip


def _first_below_zero(head_dim=64, base=100_000.0):
    """The first distance, in tokens, at which the mean cosine over the pairs is below 0."""
    import numpy as np

    from lib.frequencies import inv_freq

    mean = sum(np.cos(np.arange(40_000) * theta) for theta in inv_freq(head_dim, base))
    return int((mean < 0).argmax())


why_base = Exercise(
    id="04.why_base",
    title="Why a larger RoPE base helps long contexts",
    kind="predict",
    reference=lambda: {"why": "c", "tokens": _first_below_zero()},
    seed=3,
    mistakes=[
        Mistake({"why": "a"}, "The fastest pair turns by one radian per token whatever the base is.", "What is base ** 0?"),
        Mistake({"why": "b"}, "Rotations keep lengths, at every base.", "What is the length of R(a) k?"),
        Mistake({"why": "d"}, "A larger base makes every pair but the first turn differently from what the weights have learned.", "Which angle did pair 20 have at position 100 in training, and which has it now?"),
        Mistake({"why": "e"}, "A larger base leaves more pairs that have not completed a turn, not fewer.", "How many of 64 pairs completed a turn at 10,000 in 4,096 tokens, and how many at 500,000 in 8,192?"),
        Mistake(lambda: {"tokens": _first_below_zero(128)}, "That is the distance for heads of 128.", "How many pairs has a head of 64?"),
        Mistake(lambda: {"tokens": _first_below_zero(base=10_000.0)}, "That is the distance at base 10,000.", "Which base has SmolLM2's config?"),
        Mistake(lambda: {"tokens": _first_below_zero(base=500_000.0)}, "That is the distance at base 500,000.", "Which base has SmolLM2's config?"),
        Mistake(lambda: {"tokens": _first_below_zero(32)}, "That is the distance for 16 pairs.", "How many pairs has a head of 64?"),
        Mistake(lambda: {"tokens": _first_below_zero() - 1}, "One too few: at this distance the mean is still above 0.", "Does your list of distances begin at 0 or at 1?"),
        Mistake(lambda: {"tokens": _first_below_zero() + 1}, "One too many: the mean is below 0 one token earlier.", "Does your list of distances begin at 0 or at 1?"),
    ],
)  # fmt: skip
