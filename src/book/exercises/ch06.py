"""Exercises of chapter 06: multi-head latent attention."""

from book.exercises.core import Exercise, Mistake


def _configs():
    """(heads, d_c, d_nope, d_R, d_v), every size different."""
    return [(128, 512, 96, 64, 112), (6, 16, 10, 4, 12), (16, 384, 160, 32, 128)]


elements = Exercise(
    id="06.elements",
    title="Elements that an MLA layer caches per token",
    kind="implement",
    cases=_configs,
    reference=lambda num_attention_heads, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim: (
        kv_lora_rank + qk_rope_head_dim
    ),
    mistakes=[
        Mistake(
            lambda h, c, n, r, v: 2 * c,
            "There are two latents in your count and no rope key: one latent serves keys and values.",
            "From how many vectors are K and V made, and where is position?",
        ),
        Mistake(
            lambda h, c, n, r, v: 2 * (c + r),
            "The factor 2 for K and V does not apply: keys and values are made from the same latent.",
            "Which tensor would the second copy be?",
        ),
        Mistake(
            lambda h, c, n, r, v: c,
            "The rope key is forgotten. It is rotated once and cached beside the latent.",
            "Where would the scores get position from, if only the latent were kept?",
        ),
        Mistake(
            lambda h, c, n, r, v: c + h * r,
            "The rope key is counted once per head: all heads share one.",
            "On which index does k^R depend, and on which does q^R?",
        ),
        Mistake(
            lambda h, c, n, r, v: 2 * c + r,
            "Two latents are counted: keys and values are made from one and the same.",
            "From how many cached vectors is a value made?",
        ),
        Mistake(
            lambda h, c, n, r, v: h * c,
            "One latent for each head is counted, and no rope key: all heads share both.",
            "On which index does the latent depend: on the head, or on the token alone?",
        ),
        Mistake(
            lambda h, c, n, r, v: h * (c + r),
            "Latent and rope key are counted once per head: all heads share them.",
            "What would the second head find that the first has not kept already?",
        ),
        Mistake(
            lambda h, c, n, r, v: c + n,
            "The width without RoPE was added; the cached key is the one with RoPE.",
            "Which of the two parts of a key is made again from the latent?",
        ),
        Mistake(
            lambda h, c, n, r, v: h * (n + r + v),
            "That is the cache of MHA: keys and values of every head.",
            "Which vector are all of these made from?",
        ),
        Mistake(
            lambda h, c, n, r, v: 2 * h * r,
            "`head_dim` of the file is the rope width, and this is the GQA formula with it.",
            "Which number in the formula belongs to MLA at all?",
        ),
    ],
)


def _score_cases():
    import torch

    g = torch.Generator().manual_seed(6)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    # square cases too: a W_uk used the wrong way round must run, and be named
    return [
        (draw(h, n), draw(h, r), draw(h, n, c), draw(S, c + r))
        for h, n, r, c, S in ((3, 5, 2, 7, 4), (2, 6, 4, 6, 9), (5, 8, 2, 8, 3))
    ]


def _scores(q_nope, q_rope, w_uk, cached, scale=None, rope=True):
    import torch

    scale = (q_nope.shape[-1] + q_rope.shape[-1]) ** -0.5 if scale is None else scale
    c = w_uk.shape[-1]
    out = torch.einsum("hn,hnc->hc", q_nope, w_uk) @ cached[:, :c].T
    return (out + q_rope @ cached[:, c:].T if rope else out) * scale


def _scores_transposed(q_nope, q_rope, w_uk, cached):
    import torch

    c = w_uk.shape[-1]
    return (torch.einsum("hc,hnc->hn", q_nope, w_uk) @ cached[:, :c].T + q_rope @ cached[:, c:].T) * (
        q_nope.shape[-1] + q_rope.shape[-1]
    ) ** -0.5


def _apart(q_nope, q_rope, w_uk, cached):
    """The two parts scaled by their own widths."""
    n, r = q_nope.shape[-1], q_rope.shape[-1]
    content = _scores(q_nope, q_rope, w_uk, cached, 1.0, rope=False)
    return content * n**-0.5 + (_scores(q_nope, q_rope, w_uk, cached, 1.0) - content) * r**-0.5


def _rope_first(q_nope, q_rope, w_uk, cached):
    """The cached row read as the rope key and then the latent."""
    import torch

    r = q_rope.shape[-1]
    return _scores(q_nope, q_rope, w_uk, torch.cat([cached[:, r:], cached[:, :r]], 1))


def _makes_keys(function, case):
    """Whether the function does much more arithmetic than the absorbed form: then every cached token met W_UK."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    g = torch.Generator().manual_seed(1)
    h, n, r, c, S = 4, 8, 2, 16, 512
    large = [
        torch.randn(*shape, generator=g, dtype=torch.float64)
        for shape in ((h, n), (h, r), (h, n, c), (S, c + r))
    ]
    counts = []
    for each in (_scores, function):
        with FlopCounterMode(display=False) as counter:
            each(*large)
        counts.append(counter.get_total_flops())
    if counts[1] <= 2 * counts[0]:
        return None
    return (
        f"the scores are right, and every cached token met W_UK: {counts[1]:,} FLOPs over 512 tokens, where {counts[0]:,} do."
        "\n  Question: which bracket is yours, q^T (W c) or (q^T W) c?"
    )


def _softmaxed(q_nope, q_rope, w_uk, cached):
    return _scores(q_nope, q_rope, w_uk, cached).softmax(-1)


absorb = Exercise(
    id="06.absorb",
    title="Scores in the absorbed form",
    kind="implement",
    cases=_score_cases,
    reference=lambda q_nope, q_rope, w_uk, cached: _scores(q_nope, q_rope, w_uk, cached),
    work=_makes_keys,
    mistakes=[
        Mistake(
            _apart,
            "The two parts are scaled by their own widths; the key of a head is both together, n + r wide.",
            "Which single number divides the score of a head?",
        ),
        Mistake(
            _rope_first,
            "The row is read as the rope key and then the latent; it holds the latent first.",
            "Which columns of `cached` are the latent?",
        ),
        Mistake(
            lambda q_nope, q_rope, w_uk, cached: _scores(
                q_nope, q_rope, w_uk, cached, cached.shape[-1] ** -0.5
            ),
            "The scale comes from the absorbed width d_c + d_R.",
            "Moving a parenthesis leaves the score as it is: which scale did it have before?",
        ),
        Mistake(
            lambda q_nope, q_rope, w_uk, cached: _scores(
                q_nope, q_rope, w_uk, cached, q_nope.shape[-1] ** -0.5
            ),
            "The scale counts the part without RoPE only.",
            "How wide is the whole key of one head?",
        ),
        Mistake(
            lambda q_nope, q_rope, w_uk, cached: _scores(q_nope, q_rope, w_uk, cached, 1.0),
            "The scale is missing.",
            "How does the variance of a dot product grow with its width?",
        ),
        Mistake(
            lambda q_nope, q_rope, w_uk, cached: _scores(q_nope, q_rope, w_uk, cached, rope=False),
            "The rope part is missing: the scores know nothing of position.",
            "What are the last d_R columns of `cached` for?",
        ),
        Mistake(
            _scores_transposed,
            "W_UK is used the wrong way round: it maps a latent to a key, so the query goes through its transpose.",
            "Which of its axes must meet q_nope: n or c? (Here the two have the same size, so nothing failed.)",
        ),
        Mistake(
            _softmaxed,
            "These are weights: the softmax is already in them.",
            "What do the rows of your result sum to?",
        ),
    ],
)

why_decoupled = Exercise(
    id="06.why_decoupled",
    title="Why MLA keeps a separate rope key",
    kind="choose",
    options=("a", "b", "c", "d"),
    reference="b",
    seed=5,
    mistakes=[
        Mistake(
            "a",
            "The rotation would act on the reconstructed key, which has pairs enough.",
            "How wide is W_UK c?",
        ),
        Mistake("c", "Rotations keep lengths.", "What is the norm of R(a) k?"),
        Mistake(
            "d",
            "With a rotation between q and W_UK the absorbed form does not exist, and all keys are made again at each step.",
            "Write the score with R inside: can W_UK be moved past it?",
        ),
    ],
)


def _row_cases():
    import torch

    from lib import rope_cache

    g = torch.Generator().manual_seed(7)
    cases = []
    for T, c, r, start in ((5, 8, 4, 0), (3, 12, 6, 40), (4, 10, 2, 33)):
        cos, sin = rope_cache(T, r, start=start)
        draw = [torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((T, c + r), (c,))]
        cases.append((draw[0] * 3, draw[1], cos, sin))
    return cases


def _rows(down, gain, cos, sin, norm=True, turn=True, layout="adjacent", after=True):
    import torch

    from lib import apply_rope, rms_norm

    c = gain.shape[0]
    latent, k_rope = down[:, :c], down[:, c:]
    if norm == "whole row":
        both = rms_norm(down, torch.cat([gain, torch.ones_like(down[0, c:])]))
        latent, k_rope = both[:, :c], both[:, c:]
    elif norm:
        latent = rms_norm(latent, gain if after else None)
    if turn:
        k_rope = apply_rope(k_rope[None, None], cos, sin, layout)[0, 0]
    return torch.cat([latent, k_rope], dim=-1)


def _given(down, gain, cos, sin):
    c = gain.shape[0]
    latent, k_rope = down[:, :c], down[:, c:]
    k_rope = apply_rope(k_rope[None, None], cos, sin, "adjacent")[0, 0]  # noqa: F821  the notebook's names
    return torch.cat([latent, k_rope], dim=-1)  # noqa: F821


rows = Exercise(
    id="06.rows",
    title="Find the fault in the rows of a latent cache",
    kind="find the fault",
    cases=_row_cases,
    reference=lambda down, gain, cos, sin: _rows(down, gain, cos, sin),
    given=_given,
    mistakes=[
        Mistake(
            lambda down, gain, cos, sin: _rows(down, gain, cos, sin, norm=False),
            "The latent is cached before its norm; W_UK and W_UV expect it after.",
            "Which module stands between `wkv_a` and `wkv_b`?",
        ),
        Mistake(
            lambda down, gain, cos, sin: _rows(down, gain, cos, sin, norm="whole row"),
            "The norm runs over the whole row; it belongs to the latent alone.",
            "How many numbers has the gain, and how many the row?",
        ),
        Mistake(
            lambda down, gain, cos, sin: _rows(down, gain, cos, sin, after=False),
            "The latent is normalised and the gain is not applied.",
            "What is the norm's weight for?",
        ),
        Mistake(
            lambda down, gain, cos, sin: _rows(down, gain, cos, sin, turn=False),
            "Now the rope key is not rotated: its position is lost once it is in the cache.",
            "When a later query meets this row, who would still know its position?",
        ),
        Mistake(
            lambda down, gain, cos, sin: _rows(down, gain, cos, sin, layout="half"),
            "The rope key is rotated in the half-split layout; DeepSeek's weights pair neighbours.",
            "Which two channels turn together in this checkpoint?",
        ),
    ],
)
