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
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - d * dh * n_kv,
            "One of wk and wv is missing.",
            "How many tensors are made from the stream for each KV head?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - 2 * d * dh * n_kv,
            "wk and wv are both missing.",
            "Which three matrices read the stream in attention?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - d,
            "One norm of width d is missing.",
            "Which two parts of the block read the stream through a norm?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) + d,
            "A norm of width d too many: the one before the head is not in the block.",
            "How many norms does the table of section 1 list with width d?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, h // n_kv, dh, d_ff),
            "h / n_kv is the size of a group; wk and wv have n_kv heads.",
            "How many KV heads does the model of section 1 have, and how many query heads per KV head?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: (
                _parameters(d, h, n_kv, dh, d_ff) + dh * (h + 2 * n_kv) + 2 * d_ff + 2 * d
            ),
            "Biases are counted; a modern block has none.",
            "Which names end in bias in the right column of the table?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) + dh * (h + 2 * n_kv),
            "Biases of q, k and v are counted; this block has none.",
            "Which names end in bias in the right column of the table?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, 4 * d),
            "The feed-forward is taken as 4 d wide.",
            "Which argument have you not used?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, 8 * d // 3),
            "The feed-forward is taken as 8/3 d wide.",
            "Which argument have you not used?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - 3 * d * d_ff,
            "The feed-forward is missing.",
            "Which three matrices does SwiGLU have?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - dh,
            "One gain of QK-norm is missing.",
            "Which two vectors are normalised inside attention?",
        ),
        Mistake(
            lambda d, h, n_kv, dh, d_ff: _parameters(d, h, n_kv, dh, d_ff) - d * dh * h,
            "wq or wo is missing.",
            "Through which matrix do the heads' outputs get back into the stream, and which makes the queries?",
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


def _hf_shapes(V, d, h, n_kv, dh, d_ff, tied, n_layers=2):
    """Names and shapes as a Llama checkpoint has them."""
    layer = {
        "input_layernorm": (d,),
        "self_attn.q_proj": (h * dh, d),
        "self_attn.k_proj": (n_kv * dh, d),
        "self_attn.v_proj": (n_kv * dh, d),
        "self_attn.o_proj": (d, h * dh),
        "post_attention_layernorm": (d,),
        "mlp.gate_proj": (d_ff, d),
        "mlp.up_proj": (d_ff, d),
        "mlp.down_proj": (d, d_ff),
    }
    shapes = {"model.embed_tokens.weight": (V, d), "model.norm.weight": (d,)}
    shapes |= {f"model.layers.{i}.{name}.weight": s for i in range(n_layers) for name, s in layer.items()}
    return shapes if tied else shapes | {"lm_head.weight": (V, d)}


def _sizes(shapes, head_dim):
    d = shapes["model.embed_tokens.weight"][1]
    rows = {name: shapes[f"model.layers.0.{name}.weight"][0] for name in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")}  # fmt: skip
    h, n_kv, d_ff = rows.values()
    return {
        "d": d,
        "n_heads": h // head_dim,
        "n_kv_heads": n_kv // head_dim,
        "d_ff": d_ff,
        "tied": "lm_head.weight" not in shapes,
    }


def _sizes_but(**wrong):
    """The right sizes but for some entries, each a function of (right sizes, shapes, head_dim)."""

    def function(shapes, head_dim):
        right = _sizes(shapes, head_dim)
        return right | {key: make(right, shapes, head_dim) for key, make in wrong.items()}

    return function


def _rows(shapes, name):
    return shapes[f"model.layers.0.{name}.weight"][0]


shapes = Exercise(
    id="00.shapes",
    title="Read a model's sizes out of its tensors",
    kind="implement",
    # Qwen3-0.6B, Llama-3-8B, and two with every size different
    cases=[
        (_hf_shapes(151936, 1024, 16, 8, 128, 3072, True), 128),
        (_hf_shapes(128256, 4096, 32, 8, 128, 14336, False), 128),
        (_hf_shapes(97, 40, 6, 3, 10, 56, False), 10),
        (_hf_shapes(131, 48, 15, 5, 4, 72, True), 4),
    ],
    reference=_sizes,
    mistakes=[
        Mistake(_sizes_but(n_heads=lambda r, s, dh: r["d"] // dh), "The number of heads is taken from d; all heads together may be wider or narrower than d.", "Which tensor has one block of head_dim rows per query head?"),
        Mistake(_sizes_but(n_kv_heads=lambda r, s, dh: r["n_heads"]), "Every query head is given a KV head: that is MHA.", "How many rows has k_proj, and how many q_proj?"),
        Mistake(_sizes_but(n_kv_heads=lambda r, s, dh: r["n_heads"] // r["n_kv_heads"]), "That is the number of query heads per KV head, not of KV heads.", "How many blocks of head_dim rows has k_proj?"),
        Mistake(_sizes_but(n_kv_heads=lambda r, s, dh: 2 * r["n_kv_heads"]), "Keys and values are added up; they share the KV heads.", "How many blocks of head_dim rows has k_proj alone?"),
        Mistake(_sizes_but(tied=lambda r, s, dh: not r["tied"]), "tied is the wrong way round.", "Which tensor would an untied head need?"),
        Mistake(_sizes_but(tied=lambda r, s, dh: True), "tied is always True in your answer.", "Which tensor would an untied head need?"),
        Mistake(_sizes_but(tied=lambda r, s, dh: False), "tied is always False in your answer.", "Which tensor would an untied head need?"),
        Mistake(_sizes_but(d=lambda r, s, dh: s["model.embed_tokens.weight"][0]), "d is taken from the wrong axis: that is the vocabulary.", "How many numbers is one token's row of the embedding?"),
        Mistake(_sizes_but(d=lambda r, s, dh: _rows(s, "self_attn.q_proj")), "d is taken from the rows of q_proj: that is n_heads times head_dim.", "Which axis of q_proj reads the stream?"),
        Mistake(_sizes_but(d_ff=lambda r, s, dh: r["d"]), "d_ff is taken from the axis that reads the stream.", "Which axis of up_proj is the inner one: rows or columns?"),
        Mistake(_sizes_but(d_ff=lambda r, s, dh: 4 * r["d"]), "d_ff is taken as 4 d: that is the rule of 2019.", "How many rows has up_proj?"),
        Mistake(_sizes_but(d_ff=lambda r, s, dh: 2 * r["d_ff"]), "gate_proj and up_proj are added up; each is d_ff wide.", "How many columns has down_proj?"),
        Mistake(_sizes_but(n_heads=lambda r, s, dh: _rows(s, "self_attn.q_proj")), "n_heads is not divided by head_dim: those are rows.", "How many rows belong to one head?"),
        Mistake(_sizes_but(n_kv_heads=lambda r, s, dh: _rows(s, "self_attn.k_proj")), "n_kv_heads is not divided by head_dim: those are rows.", "How many rows belong to one head?"),
        Mistake(_sizes_but(n_heads=lambda r, s, dh: _rows(s, "self_attn.q_proj"), n_kv_heads=lambda r, s, dh: _rows(s, "self_attn.k_proj")), "Neither number of heads is divided by head_dim: those are rows.", "How many rows belong to one head?"),
        Mistake(_sizes_but(n_heads=lambda r, s, dh: r["n_kv_heads"], n_kv_heads=lambda r, s, dh: r["n_heads"]), "n_heads and n_kv_heads are in each other's place.", "Which of q_proj and k_proj may be smaller?"),
    ],
)  # fmt: skip

NEW_ROWS = 65536 - 2048

table = Exercise(
    id="00.table",
    title="Position parameters for a longer context",
    kind="predict",
    reference=lambda: {"2019": 5120 * NEW_ROWS, "today": 0},
    mistakes=[
        Mistake({"2019": 5120 * 65536, "today": 0}, "That is the whole table; the question asks for what is added to its 2,048 rows.", "How many rows are new?"),
        Mistake({"2019": NEW_ROWS, "today": 0}, "Those are the new rows; each of them is a vector.", "How many numbers does one row hold?"),
        Mistake({"2019": 2 * 5120 * NEW_ROWS, "today": 0}, "Those are bytes, at two per parameter.", "How many numbers does one row hold?"),
        Mistake({"2019": 5120 * NEW_ROWS, "today": 128 * NEW_ROWS}, "cos and sin are computed from the position; nothing is learned or stored in the file.", "Which tensor of the modern block would hold it?"),
        Mistake({"2019": 5120 * NEW_ROWS, "today": 5120 * NEW_ROWS}, "RoPE has no table of vectors.", "Which tensor of the modern block would hold it?"),
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
        Mistake(64, "The cache shrinks with the number of KV heads, by 40 to 8; nothing else differs.", "How many KV heads has MHA here, and how many has this model?"),
        Mistake(3, "The two models differ in their KV heads: 40 in MHA, 8 here.", "How often does 8 fit into 40?"),
        Mistake(4, "4 is how much of 5 is saved; the question is how often what is left fits into the whole.", "How often does 8 fit into 40?"),
        Mistake(32, "That is the number of heads that are gone.", "How often does 8 fit into 40?"),
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
