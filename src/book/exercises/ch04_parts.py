"""Exercises of chapter 04 on what a config says: a part of each head that turns, and the base under its many names."""

from book.exercises.core import Exercise, Mistake


def _partial_cases():
    import torch

    g = torch.Generator().manual_seed(5)
    return [
        (torch.randn(dh, generator=g, dtype=torch.float64), r, position, base)
        for dh, r, position, base in ((8, 4, 3, 10000.0), (12, 8, 40, 500000.0), (16, 4, 33, 10000.0), (20, 12, 7, 100.0))
    ]  # fmt: skip


def _rotary(x, rotary_dim, position, base):
    """The solution, written out."""
    import torch

    theta = base ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    angle = position * theta
    a, b = x[: rotary_dim // 2], x[rotary_dim // 2 : rotary_dim]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos(), x[rotary_dim:]])


def _partial(
    x,
    rotary_dim,
    position,
    base,
    width=None,
    offset=None,
    adjacent=False,
    keep=True,
    start=0,
    sign=1.0,
    turns=1.0,
):
    """Turn r = rotary_dim dimensions of x from `start` on: exponent over `width`, pairs `offset` apart."""  # fmt: skip
    import torch

    r = rotary_dim
    theta = base ** (-torch.arange(0, r, 2, dtype=torch.float64) / (width or r))
    angle = sign * turns * position * theta
    first = start + torch.arange(r // 2) * (2 if adjacent else 1)
    second = first + (1 if adjacent else offset or r // 2)
    out = x.clone() if keep else torch.zeros_like(x)
    out[first] = x[first] * angle.cos() - x[second] * angle.sin()
    out[second] = x[first] * angle.sin() + x[second] * angle.cos()
    return out


def _given(x, rotary_dim, position, base):
    theta = base ** (-torch.arange(0, rotary_dim, 2).double() / x.shape[-1])  # noqa: F821  the notebook's names
    cos, sin = (position * theta).cos(), (position * theta).sin()
    a, b = x[: rotary_dim // 2], x[rotary_dim // 2 : rotary_dim]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, x[rotary_dim:]])  # noqa: F821


def _with(**wrong):
    """_partial with one thing wrong; a callable is given (x, rotary_dim)."""

    def each(x, rotary_dim, position, base):
        found = {k: v(x, rotary_dim) if callable(v) else v for k, v in wrong.items()}
        return _partial(x, found.pop("rotary_dim", rotary_dim), position, base, **found)

    return each


def _turn(a, b, cos, sin):
    return a * cos - b * sin, a * sin + b * cos


def _pieces(turn, halves=lambda x, r: (x[: r // 2], x[r // 2 : r])):
    """The solution with another turn, or other halves."""

    def wrong(x, rotary_dim, position, base):
        import torch

        angle = position * base ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
        return torch.cat([*turn(*halves(x, rotary_dim), angle.cos(), angle.sin()), x[rotary_dim:]])

    return wrong


def _head(x, r):
    return x.shape[-1]


def _half_head(x, r):
    return x.shape[-1] // 2


partial = Exercise(
    id="04.partial",
    title="Find the fault in partial rotary",
    kind="find the fault",
    cases=_partial_cases,
    reference=lambda x, rotary_dim, position, base: _rotary(x, rotary_dim, position, base),
    given=_given,
    mistakes=[
        Mistake(_with(width=_head), "The exponent still runs over head_dim: all frequencies but the first are too fast.", "How wide is the part that turns, and which frequency should its last pair have?"),
        Mistake(_with(offset=_half_head), "The partner of i is taken half a HEAD away: it lies outside the part that turns.", "Which dimensions must come out unchanged?"),
        Mistake(_with(width=_head, offset=_half_head), "Exponent and partner both use head_dim instead of the rotary width.", "Which of the two widths does a rotation of rotary_dim dimensions know?"),
        Mistake(_with(rotary_dim=_head), "The whole head turns.", "What is rotary_dim for?"),
        Mistake(_with(adjacent=True), "The frequencies are right, and now neighbours turn together: that is the adjacent layout.", "Which dimension is the partner of dimension 0 in half-split?"),
        Mistake(_with(keep=False), "The dimensions behind the rotary part are zero: they should pass as they are.", "What do those dimensions carry, if not position?"),
        Mistake(_with(start=lambda x, r: x.shape[-1] - r), "The last dimensions turn; here the first ones do. (DeepSeek's MLA keeps them last.)", "Which dimensions must come out unchanged?"),
        Mistake(_with(width=lambda x, r: r // 2), "The exponent is divided by the number of pairs: the pairs slow down twice too fast.", "Which frequency should pair 1 of 2 have at base 10,000: 0.01 or 0.0001?"),
        Mistake(_with(width=lambda x, r: x.shape[-1] // 2), "The exponent is divided by half the head; the rotary width belongs there.", "How wide is the part that turns?"),
        Mistake(_with(width=lambda x, r: x.shape[-1] - r), "The exponent is divided by the width of the part that does NOT turn.", "How wide is the part that turns?"),
        Mistake(_with(width=lambda x, r: 2 * r), "A factor of 2 too many in the exponent: the frequencies fall too slowly.", "Which frequency should pair 1 of 2 have at base 10,000: 0.01 or 0.1?"),
        Mistake(_with(sign=-1.0), "The frequencies are right, and every pair turns the other way.", "Where do the signs of the two sines belong?"),
        Mistake(_pieces(lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin)), "cos and sin are exchanged.", "Which of the two is 1 at position 0?"),
        Mistake(_pieces(lambda a, b, cos, sin: (a * cos + b * sin, a * sin - b * cos)), "Both signs are turned: that is a mirror, not a rotation.", "What comes out at position 0?"),
        Mistake(_pieces(_turn, lambda x, r: (x[-r:][: r // 2], x[-r:][r // 2 :])), "The last dimensions are turned and put in front of what they replace: some are there twice.", "Which dimensions must come out unchanged, and where?"),
        Mistake(_pieces(_turn, lambda x, r: (x[:r:2], x[1:r:2])), "Neighbours are taken as pairs, and put back as halves: that is a permutation as well.", "Which dimension is the partner of dimension 0 in half-split?"),
        Mistake(_with(sign=-1.0, width=_head), "Every pair turns the other way, and the exponent still runs over head_dim.", "Was the sign the fault?"),
        Mistake(lambda x, rotary_dim, position, base: _partial(x, rotary_dim, position + 1, base), "The position is one too large.", "Which position leaves a vector as it is?"),
        Mistake(lambda x, rotary_dim, position, base: _partial(x, rotary_dim, 1, base), "The position is not used.", "Which position leaves a vector as it is?"),
        Mistake(lambda x, rotary_dim, position, base: _rotary(x, rotary_dim, position, base)[:rotary_dim], "Only the part that turns comes back.", "How long is the vector that went in?"),
        Mistake(lambda x, rotary_dim, position, base: x.clone(), "Nothing turns.", "Which position leaves a vector as it is?"),
    ],
)  # fmt: skip

_PLAIN = {"rope_type": "default"}
_CONFIGS = [
    {"model_type": "qwen3", "rope_theta": 1000000.0, "rope_scaling": None},
    {"model_type": "llama", "rope_parameters": _PLAIN | {"rope_theta": 500000.0}},
    {"model_type": "llama", "rope_theta": 10000.0, "rope_parameters": _PLAIN | {"rope_theta": 250000.0}},
    {"model_type": "mistral", "rope_theta": 30000.0, "rope_parameters": _PLAIN | {"rope_theta": 2000000.0}},
    {"model_type": "gemma3_text", "rope_parameters": {
        "sliding_attention": _PLAIN | {"rope_theta": 10000.0},
        "full_attention": _PLAIN | {"rope_theta": 1500000.0}}},
    {"model_type": "olmo3", "rope_theta": 70000.0, "rope_parameters": {
        "full_attention": _PLAIN | {"rope_theta": 600000.0},
        "sliding_attention": _PLAIN | {"rope_theta": 40000.0}}},
    {"model_type": "gpt_neox", "rotary_emb_base": 20000, "rotary_pct": 0.25},
    {"model_type": "gpt_neox", "rotary_emb_base": 50000, "rope_parameters": None},
    {"model_type": "llama", "max_position_embeddings": 4096},
    {"model_type": "llama", "rope_parameters": _PLAIN, "rope_scaling": None},
]  # fmt: skip


def _read(config, flat=True, kinds="full_attention", neox=True, nested_first=True, missing=None):
    nested = config.get("rope_parameters") or {}
    if kinds and kinds in nested:
        nested = nested[kinds]
    places = [nested.get("rope_theta") if flat else None, config.get("rope_theta")]
    places = places if nested_first else places[::-1]
    places.append(config.get("rotary_emb_base") if neox else None)
    return next((base for base in places if base is not None), missing)


def _reads(**wrong):
    return lambda config: _read(config, **wrong)


def _raises(config):
    return config["rope_theta"]


def _none_opened(config):
    if config.get("rope_parameters", {}) is None:
        raise AttributeError("'NoneType' object has no attribute 'get'")
    return _read(config)


def _only_kinds(config):
    nested = config.get("rope_parameters") or {}
    return _read(config | {"rope_parameters": nested.get("full_attention", {})})


def _only_nested(config):
    return _read({"rope_parameters": config.get("rope_parameters")})


_NOT_OPENED = "What are the keys of rope_parameters in the Gemma file?"
read_base = Exercise(
    id="04.read_base",
    title="Read the RoPE base from every spelling",
    kind="implement",
    cases=lambda: [(dict(config),) for config in _CONFIGS],
    reference=lambda config: _read(config),
    mistakes=[
        Mistake(lambda config: config.get("rope_theta", 10000.0), "Only the old field is read, and 10,000 stands in for everything else.", "What does your function say of a Llama 3 file that transformers 5 wrote?"),
        Mistake(lambda config: config.get("rope_theta"), "Only the old field is read.", "Where does transformers 5 write the base?"),
        Mistake(_raises, "config[\"rope_theta\"] raises where the field is not there.", "What does .get do for a name that is missing?"),
        Mistake(_none_opened, "rope_parameters may be there and hold nothing: None has no .get.", "What does config.get(\"rope_parameters\", {}) give where the file says null?"),
        Mistake(_only_kinds, "Where rope_parameters has no kinds of layers, its own base is not read.", "What are the keys of rope_parameters in the Llama file?"),
        Mistake(lambda config: _read(config | {"rope_parameters": None}), "rope_parameters is not read: files of transformers 5 have their base there.", "Which object of the Llama file holds its base?"),
        Mistake(_only_nested, "Only rope_parameters is read: files from before transformers 5 have no such object.", "Where has the Qwen3 file its base?"),
        Mistake(_reads(missing=10000.0), "Where the file says nothing, your function says 10,000: nobody will notice when that is wrong.", "What can a caller do with None that it cannot do with 10,000?"),
        Mistake(_reads(nested_first=False), "Where both are there, the old field wins; it may be a leftover default.", "Which of the two did the newer program write?"),
        Mistake(_reads(nested_first=False, kinds=None), "The old field wins, and an object per kind of layer is not opened.", _NOT_OPENED),
        Mistake(_reads(kinds=None), "An object per kind of layer is not opened.", _NOT_OPENED),
        Mistake(_reads(kinds="sliding_attention"), "The base of the sliding-window layers is taken.", "Which of the two kinds of layers does the text ask for?"),
        Mistake(_reads(neox=False), "GPT-NeoX's name for the base is not read.", "Which field of the Pythia file holds it?"),
        Mistake(_reads(neox=False, missing=10000.0), "GPT-NeoX's name for the base is not read, and 10,000 is invented in its place.", "Which field of the Pythia file holds the base?"),
        Mistake(_reads(kinds=None, neox=False), "An object per kind of layer is not opened, and GPT-NeoX's name is not read.", _NOT_OPENED),
        Mistake(_reads(nested_first=False, kinds=None, neox=False), "The old field wins, kinds of layers are not told apart, and GPT-NeoX's name is not read.", "Go through the three places that the text names: which comes first?"),
    ],
)  # fmt: skip
