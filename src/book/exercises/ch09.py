"""Exercises of chapter 09: the whole block (its last one, the five faults, is in ch09_faults)."""

from itertools import combinations

from book.exercises.core import Exercise, Mistake


def _count(V, d, n_layers, n_heads, n_kv_heads, d_ff, *, tied=False, kv=True, matrices=3, norms=2, final=True,
           qk=True, out=True, biases=False, per_head_gains=False):  # fmt: skip
    """Parameters of a llama-style model; the keywords are what people forget or add."""
    dh = d // n_heads
    width = n_kv_heads * dh if kv else d
    attention = d * d * (1 + out) + 2 * d * width
    gains = norms * d + (2 * dh if qk else 0)
    if per_head_gains:
        gains = norms * d + d + width
    layer = attention + matrices * d * d_ff + gains
    if biases:
        layer += 2 * d + 2 * width + 2 * d_ff + d
    return V * d * (1 if tied else 2) + n_layers * layer + (d if final else 0)


_SLIPS = (  # (what is forgotten or added, its name, the question)
    ({"tied": True}, "The head is missing: this model does not tie.", "Which matrix turns the last hidden state into V logits, and is it the embedding?"),
    ({"kv": False}, "W_k and W_v are counted d wide: only n_kv heads have keys and values.", "How many rows has W_k when there are n_kv heads of d / h?"),
    ({"matrices": 2}, "The feed-forward layer has three matrices.", "Gate, up, and ..?"),
    ({"qk": False}, "The gains of QK-norm are missing.", "How many numbers has q_norm, and how many k_norm?"),
    ({"per_head_gains": True}, "QK-norm has one gain of dh for q and one for k, shared by the heads.", "Is the gain as wide as a head, or as wide as the projection?"),
    ({"final": False}, "The norm after the last block is missing.", "What comes between the last block and the head in a pre-norm model?"),
    ({"norms": 1}, "A layer has two norms of d: one before attention, one before the feed-forward part.", "How many parts of a layer read a normalised copy?"),
    ({"norms": 0}, "The two norms of each layer are missing.", "Which gains of a layer are as wide as d?"),
    ({"out": False}, "W_o is missing.", "Who brings the heads back into the residual stream?"),
    ({"biases": True}, "Biases are counted: this block has none.", "Which linear layer of the modern block has a bias?"),
)  # fmt: skip


def _slipped(*slips):
    """One slip, or two at once: then both are named."""
    words = {key: value for slip in slips for key, value in slip[0].items()}
    text = " And: ".join(slip[1] for slip in slips)
    return Mistake(lambda *sizes: _count(*sizes, **words), text, " ".join(slip[2] for slip in slips))


def _differ(a, b):
    """Gains for each head replace those of QK-norm: forgetting the latter then changes nothing."""
    return not {"qk", "per_head_gains"} <= a[0].keys() | b[0].keys()


parameters = Exercise(
    id="09.parameters",
    title="Count a whole model",
    kind="implement",
    cases=[(1000, 256, 4, 8, 2, 688), (320, 96, 5, 6, 3, 250), (50, 48, 2, 4, 1, 130)],
    reference=lambda V, d, n_layers, n_heads, n_kv_heads, d_ff: _count(
        V, d, n_layers, n_heads, n_kv_heads, d_ff
    ),
    mistakes=[
        *map(_slipped, _SLIPS),
        *(
            _slipped(a, b)
            for a, b in combinations(_SLIPS, 2)
            if not a[0].keys() & b[0].keys() and _differ(a, b)
        ),
    ],
)


def _wiring_cases():
    import torch

    g = torch.Generator().manual_seed(9)
    cases = []
    for T, d in ((3, 4), (5, 6), (2, 9)):
        x, A, F = (
            torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((T, d), (d, d), (d, d))
        )
        gains = [torch.randn(d, generator=g, dtype=torch.float64) for _ in range(2)]
        cases.append((3 * x, A, F, *gains))
    return cases


def _wire(x, A, F, attn_gain, ffn_gain, how="pre"):
    """attention is x @ A and the feed-forward layer tanh(x @ F), so that only the wiring is asked for."""
    from lib import rms_norm

    one, two = (lambda y: y @ A), (lambda y: (y @ F).tanh())
    if how == "post":
        x = rms_norm(x + one(x), attn_gain)
        return rms_norm(x + two(x), ffn_gain)
    if how == "output":  # OLMo 2's place: the norm on what a part adds
        x = x + rms_norm(one(x), attn_gain)
        return x + rms_norm(two(x), ffn_gain)
    if how == "normed stream":
        x = rms_norm(x, attn_gain)
        x = x + one(x)
        x = rms_norm(x, ffn_gain)
        return x + two(x)
    if how == "parallel":
        return x + one(rms_norm(x, attn_gain)) + two(rms_norm(x, ffn_gain))
    if how == "no residual":
        return two(rms_norm(one(rms_norm(x, attn_gain)), ffn_gain))
    if how == "second from x":
        return x + two(rms_norm(x + one(rms_norm(x, attn_gain)), ffn_gain))
    if how == "one gain":
        ffn_gain = attn_gain
    if how == "gains swapped":
        attn_gain, ffn_gain = ffn_gain, attn_gain
    if how == "one norm":
        x = x + one(rms_norm(x, attn_gain))
        return x + two(x)
    x = x + one(rms_norm(x, attn_gain))
    return x + two(rms_norm(x, ffn_gain))


def _mistake(how, message, question):
    return Mistake(
        lambda x, A, F, attn_gain, ffn_gain: _wire(x, A, F, attn_gain, ffn_gain, how), message, question
    )


wiring = Exercise(
    id="09.wiring",
    title="Wire a pre-norm block",
    kind="implement",
    cases=_wiring_cases,
    reference=lambda x, A, F, attn_gain, ffn_gain: _wire(x, A, F, attn_gain, ffn_gain),
    mistakes=[
        _mistake(
            "post",
            "That is post-norm, the wiring of 2017: the stream itself is normalised after each addition.",
            "What is the RMS of your stream after 40 layers, and what may it be in a pre-norm model?",
        ),
        _mistake(
            "output",
            "The norm stands on what a part adds (OLMo 2's place), not on what it reads.",
            "What does attention read in a pre-norm block?",
        ),
        _mistake(
            "normed stream",
            "The normalised x replaces the stream: the residual adds to norm(x), and x itself is lost.",
            "With A = M = 0, what must a block return?",
        ),
        _mistake(
            "parallel",
            "Both parts read the same x. That is a parallel block (Falcon-7B, Cohere).",
            "What does the feed-forward layer see of the attention's result?",
        ),
        _mistake(
            "no residual",
            "Nothing is added back to x.",
            "With A = M = 0, what must a block return?",
        ),
        _mistake(
            "second from x",
            "The feed-forward part is added to the old x, so the attention's result is read and then dropped.",
            "To which x does the second addition go?",
        ),
        _mistake(
            "one gain",
            "Both norms use attn_gain.",
            "How many norms has a block, and how many gains?",
        ),
        _mistake(
            "gains swapped",
            "The two gains have changed places.",
            "Which of the two belongs to the part that comes first?",
        ),
        _mistake(
            "one norm",
            "The feed-forward layer reads the stream without a norm.",
            "How large is the stream after many layers?",
        ),
    ],
)

FAULTS = ("rope", "mask", "tile", "qk_norm", "gate", "scale")
HIDDEN = {"rope", "qk_norm", "scale"}  # faults of q and k alone: one key, one weight, and it is 1

first_token = Exercise(
    id="09.first_token",
    title="Faults that the first token cannot see",
    kind="predict",
    reference=lambda: set(HIDDEN),
    mistakes=[
        Mistake(
            lambda: HIDDEN | {"mask"},
            "Without a mask the first query looks at all keys, later ones too.",
            "Which keys does query 0 see when nothing is masked?",
        ),
        Mistake(
            lambda: HIDDEN | {"tile"},
            "Tiled heads read another head's values, whatever the scores.",
            "Which V does query head 1 get: of KV head 0, or of KV head 1?",
        ),
        Mistake(
            lambda: HIDDEN | {"tile", "mask"},
            "Scores do not matter to the first token; values do, and so does what it can see.",
            "Which of these faults changes v, or the keys that query 0 sees?",
        ),
        Mistake(
            lambda: HIDDEN | {"gate"},
            "The feed-forward layer works on every token by itself, the first as well.",
            "Does a swapped gate need a second token to show?",
        ),
        Mistake(
            lambda: set(),
            "With a single key its weight is 1, whatever the score: three of these faults change scores only.",
            "What is the softmax of one number?",
        ),
        Mistake(
            lambda: {"rope", "scale"},
            "A missing QK-norm changes q and k only, hence scores only.",
            "Does the norm of k touch v?",
        ),
        Mistake(
            lambda: {"rope", "qk_norm"},
            "A forgotten scale changes scores only, and the first token has one score.",
            "What is the softmax of one number, whatever its size?",
        ),
        Mistake(
            lambda: {"mask", "tile", "gate"},
            "Those are the three that the first token does show.",
            "Which ones are asked for: the faults that leave its logits right, or those that do not?",
        ),
        Mistake(
            lambda: {"rope"},
            "The position-0 rotation is the identity, true. But why would the first token care for any score at all?",
            "Over how many keys does its softmax run, and what are the weights?",
        ),
    ],
)
