"""Exercises of chapter 00: the block at a glance. No torch."""

from book.exercises.core import Exercise, Mistake


def _parameters(d, h, n_kv, dh, d_ff):
    return d * dh * (2 * h + 2 * n_kv) + 3 * d * d_ff + 2 * d + 2 * dh


block = Exercise(
    id="00.block",
    title="Parameters of one modern block",
    kind="implement",
    # the shapes of chapter 00, SmolLM2, Qwen3-0.6B (whose heads are wider than d / h), and one with every size different
    cases=[(256, 8, 2, 32, 688), (576, 9, 3, 64, 1536), (1024, 16, 8, 128, 3072), (40, 6, 3, 10, 56)],
    reference=lambda d, n_heads, n_kv_heads, head_dim, d_ff: _parameters(
        d, n_heads, n_kv_heads, head_dim, d_ff
    ),
    mistakes=[
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, h, dh, d_ff),
            "Keys and values are counted for every query head: that is MHA.",
            "How many heads do wk and wv make?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - d * d_ff,
            "The feed-forward has two matrices in your count: that is the layer of 2019.",
            "Which three matrices does SwiGLU have?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - d * dh * h,
            "wo is missing.",
            "Through which matrix do the heads' outputs get back into the stream?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - 2 * d - 2 * dh,
            "The matrices are right; the gains of the norms are missing.",
            "How many norms stand in a block, and how wide is each?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - 2 * dh,
            "The two gains of QK-norm are missing.",
            "Which two vectors are normalised inside attention?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - 2 * d,
            "The norms before attention and feed-forward are missing.",
            "What stands at the start of each branch?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) + (h + n_kv - 2) * dh,
            "QK-norm's gain is counted once per head: all heads share one.",
            "What is the shape of q_norm.weight in the table above?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) + 2 * d,
            "The norms are counted with a shift: RMSNorm has a gain only.",
            "Which parameter vector did LayerNorm have and RMSNorm not?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, d // h, d_ff),
            "The head is taken as d / h wide; a model may choose another width.",
            "Which argument have you not used?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) + 2 * d * d - 2 * d * h * dh,
            "wq and wo are counted as d x d; all heads together may be wider or narrower than d.",
            "How many rows does wq have when there are 16 heads of 128 and d is 1,024?",
        ),
    ],
)

serving = Exercise(
    id="00.serving",
    title="The change that only serving feels",
    kind="choose",
    options=("a", "b", "c", "d"),
    reference="d",
    mistakes=[
        Mistake("a", "Its width is chosen so that parameters and FLOPs stay; the cache never sees it.", "Which bar of its panel is longer than a line?"),
        Mistake("b", "It saves one vector a norm and no byte of cache.", "What does a norm leave behind for the next token?"),
        Mistake("c", "The table it replaces is read once a token; the cache stays as it was.", "Which tensors are cached, and does a rotation change their size?"),
    ],
)  # fmt: skip

NEW_ROWS = 131072 - 1024

table = Exercise(
    id="00.table",
    title="Position parameters for a longer context",
    kind="predict",
    reference=lambda: {"2019": 4096 * NEW_ROWS, "today": 0},
    mistakes=[
        Mistake({"2019": 4096 * 131072, "today": 0}, "That is the whole table; the question asks for what is added to its 1,024 rows.", "How many rows are new?"),
        Mistake({"2019": NEW_ROWS, "today": 0}, "Those are the new rows; each of them is a vector.", "How many numbers does one row hold?"),
        Mistake({"2019": 2 * 4096 * NEW_ROWS, "today": 0}, "Those are bytes, at two a parameter.", "How many numbers does one row hold?"),
        Mistake({"2019": 4096 * NEW_ROWS, "today": 128 * NEW_ROWS}, "cos and sin are computed from the position; nothing is learned or stored in the file.", "Which tensor of the modern block would hold it?"),
        Mistake({"2019": 4096 * NEW_ROWS, "today": 4096 * NEW_ROWS}, "RoPE has no table of vectors.", "Which tensor of the modern block would hold it?"),
    ],
)  # fmt: skip

smaller = Exercise(
    id="00.smaller",
    title="Times that the cache is smaller",
    kind="predict",
    reference=lambda: 40 / 8,
    mistakes=[
        Mistake(8, "8 KV heads are what is left, not how many times fewer.", "What did MHA keep, and what does this model keep?"),
        Mistake(40, "40 times would be MQA: one KV head.", "How many KV heads are left?"),
        Mistake(0.2, "That is the share which is left.", "How often does it fit into MHA's?"),
        Mistake(10, "The 2 for K and V stands in both and cancels.", "Which factors of 2 L n_kv dh differ between the two?"),
        Mistake(1, "The query heads have not changed, and they are not cached.", "Which heads are cached?"),
    ],
)  # fmt: skip

claims = Exercise(
    id="00.claims",
    title="Computed here, or claimed by a paper",
    kind="choose",
    options=("a", "b", "c", "d"),
    reference="c",
    mistakes=[
        Mistake("a", "Equal parameters were computed; the better loss is what the GLU paper reports.", "Which cell trained anything?"),
        Mistake("b", "Quality near MHA's is a result of the GQA paper.", "Which cell measured quality?"),
        Mistake("d", "That is what the ViT-22B report says; chapter 07 shows the mechanism, not their runs.", "Which cell trained anything?"),
    ],
)  # fmt: skip
