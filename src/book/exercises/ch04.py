"""Exercises of chapter 04: RoPE in practice."""

from book.exercises.core import Exercise, Mistake


def _weight_cases():
    """(w_k, query heads, KV heads); h / n_kv, h and n_kv all different, and every wrong number of blocks divides the rows."""
    import torch

    g = torch.Generator().manual_seed(4)
    sizes = ((8, 2, 16, 5), (16, 2, 32, 3), (12, 3, 24, 4))
    return [
        (torch.randn(n_kv * dh, d, generator=g, dtype=torch.float64), n_heads, n_kv)
        for n_heads, n_kv, dh, d in sizes
    ]


def _blocks(w, n_blocks, to="half"):
    from lib import permute_heads

    return permute_heads(w, n_blocks, to)


permute = Exercise(
    id="04.permute",
    title="Convert a key weight from adjacent to half-split",
    kind="implement",
    cases=_weight_cases,
    reference=lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_kv_heads),
    mistakes=[
        Mistake(
            lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_heads // n_kv_heads),
            "The number of blocks is n_heads // n_kv_heads, the size of a group: right by luck where h / n_kv = n_kv.",
            "How many heads does the KEY weight hold?",
        ),
        Mistake(
            lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_heads),
            "The rows are divided into query heads; a key weight has fewer.",
            "How many rows has one KV head, and how many has one of your blocks?",
        ),
        Mistake(
            lambda w_k, n_heads, n_kv_heads: _blocks(w_k, 1),
            "All heads are shuffled together: rows have moved from one head to another.",
            "May a row leave its own head?",
        ),
        Mistake(
            lambda w_k, n_heads, n_kv_heads: _blocks(w_k, n_kv_heads, "adjacent"),
            "That is the way back: it takes half-split rows to adjacent ones.",
            "Which row must stand second in a head of half-split rows: 1 or 2?",
        ),
        Mistake(
            lambda w_k, n_heads, n_kv_heads: w_k.clone(),
            "The rows are where they were.",
            "Which row turns together with row 0 in each of the two layouts?",
        ),
    ],
)

why_base = Exercise(
    id="04.why_base",
    title="Why a larger RoPE base helps long contexts",
    kind="choose",
    options=("a", "b", "c", "d"),
    reference="c",
    seed=3,
    mistakes=[
        Mistake(
            "a",
            "The fastest pair turns by one radian a token whatever the base is.",
            "What is base ** 0?",
        ),
        Mistake("b", "Rotations keep lengths, at every base.", "What is the length of R(a) k?"),
        Mistake(
            "d",
            "A larger base makes every pair but the first turn differently from what the weights have learned.",
            "Which angle did pair 20 have at position 100 in training, and which has it now?",
        ),
    ],
)

_CONFIGS = [
    {"model_type": "qwen3", "rope_theta": 1000000.0, "rope_scaling": None},
    {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    {"model_type": "llama", "rope_theta": 10000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
    {"model_type": "gemma3_text", "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 1500000.0}}},
    {"model_type": "gpt_neox", "rotary_emb_base": 20000, "rotary_pct": 0.25},
    {"model_type": "llama", "max_position_embeddings": 4096},
]  # fmt: skip


def _read(config, flat=True, kinds=True, neox=True, nested_first=True, missing=None):
    nested = config.get("rope_parameters") or {}
    if kinds and "full_attention" in nested:
        nested = nested["full_attention"]
    places = [nested.get("rope_theta") if flat else None, config.get("rope_theta")]
    places = places if nested_first else places[::-1]
    places.append(config.get("rotary_emb_base") if neox else None)
    return next((base for base in places if base is not None), missing)


read_base = Exercise(
    id="04.read_base",
    title="Read the RoPE base from every spelling",
    kind="implement",
    cases=lambda: [(dict(config),) for config in _CONFIGS],
    reference=lambda config: _read(config),
    mistakes=[
        Mistake(
            lambda config: config.get("rope_theta", 10000.0),
            "Only the old field is read, and 10,000 stands in for everything else.",
            "What does your function say of a Llama 3 file that transformers 5 wrote?",
        ),
        Mistake(
            lambda config: config.get("rope_theta"),
            "Only the old field is read.",
            "Where does transformers 5 write the base?",
        ),
        Mistake(
            lambda config: _read(config, missing=10000.0),
            "Where the file says nothing, your function says 10,000: nobody will notice when that is wrong.",
            "What can a caller do with None that it cannot do with 10,000?",
        ),
        Mistake(
            lambda config: _read(config, nested_first=False),
            "Where both are there, the old field wins; it may be a leftover default.",
            "Which of the two did the newer program write?",
        ),
        Mistake(
            lambda config: _read(config, kinds=False),
            "An object per kind of layer is not opened.",
            "What are the keys of rope_parameters in the Gemma file?",
        ),
        Mistake(
            lambda config: _read(config, neox=False),
            "GPT-NeoX's name for the base is not read.",
            "Which field of the Pythia file holds it?",
        ),
    ],
)


def _partial_cases():
    import torch

    g = torch.Generator().manual_seed(5)
    return [
        (torch.randn(dh, generator=g, dtype=torch.float64), r, position, base)
        for dh, r, position, base in ((8, 4, 3, 10000.0), (12, 8, 40, 500000.0), (16, 4, 33, 10000.0))
    ]


def _partial(x, rotary_dim, position, base, width=None, offset=None, order=None, keep=True):
    """Turn r = rotary_dim (or the whole head) of x: exponent over `width`, pairs `offset` apart."""
    import torch

    r = rotary_dim
    offset = offset or r // 2
    theta = base ** (-torch.arange(0, r, 2, dtype=torch.float64) / (width or r))
    angle = position * theta
    first = torch.arange(r // 2) if order is None else 2 * torch.arange(r // 2)
    second = first + (offset if order is None else 1)
    out = x.clone() if keep else torch.zeros_like(x)
    out[first] = x[first] * angle.cos() - x[second] * angle.sin()
    out[second] = x[first] * angle.sin() + x[second] * angle.cos()
    return out


def _given(x, rotary_dim, position, base):
    theta = base ** (-torch.arange(0, rotary_dim, 2).double() / x.shape[-1])  # noqa: F821  the notebook's names
    cos, sin = (position * theta).cos(), (position * theta).sin()
    a, b = x[: rotary_dim // 2], x[rotary_dim // 2 : rotary_dim]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, x[rotary_dim:]])  # noqa: F821


partial = Exercise(
    id="04.partial",
    title="Find the fault in partial rotary",
    kind="find the fault",
    cases=_partial_cases,
    reference=lambda x, rotary_dim, position, base: _partial(x, rotary_dim, position, base),
    given=_given,
    mistakes=[
        Mistake(
            lambda x, rotary_dim, position, base: _partial(x, rotary_dim, position, base, x.shape[-1]),
            "The exponent still runs over head_dim: all frequencies but the first are too fast.",
            "How wide is the part that turns, and which frequency should its last pair have?",
        ),
        Mistake(
            lambda x, rotary_dim, position, base: _partial(
                x, rotary_dim, position, base, offset=x.shape[-1] // 2
            ),
            "The partner of i is taken half a HEAD away: it lies outside the part that turns.",
            "Which dimensions must come out unchanged?",
        ),
        Mistake(
            lambda x, rotary_dim, position, base: _partial(
                x, rotary_dim, position, base, x.shape[-1], x.shape[-1] // 2
            ),
            "Exponent and partner both use head_dim instead of the rotary width.",
            "Which of the two widths does a rotation of rotary_dim dimensions know?",
        ),
        Mistake(
            lambda x, rotary_dim, position, base: _partial(x, x.shape[-1], position, base),
            "The whole head turns.",
            "What is rotary_dim for?",
        ),
        Mistake(
            lambda x, rotary_dim, position, base: _partial(x, rotary_dim, position, base, order="adjacent"),
            "The frequencies are right, and now neighbours turn together: that is the adjacent layout.",
            "Which dimension is the partner of dimension 0 in half-split?",
        ),
        Mistake(
            lambda x, rotary_dim, position, base: _partial(x, rotary_dim, position, base, keep=False),
            "The dimensions behind the rotary part are zero: they should pass as they are.",
            "What do those dimensions carry, if not position?",
        ),
    ],
)
