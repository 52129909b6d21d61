"""Exercises of chapter 10: real models. No torch."""

from book import configs
from book.exercises.core import Exercise, Mistake
from lib.arithmetic import kv_bytes, kv_elements_per_token
from lib.families import read_config

# What config.json says of five models whose attention is alike in every layer, the fields that matter.
_FIELDS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")


def _fields(name):
    return {key: value for key, value in configs.load(name).items() if key in _FIELDS}


def _element_cases():
    llama1 = {key: value for key, value in _fields("llama-2-7b").items() if key != "num_key_value_heads"}
    empty = {**_fields("llama-3-70b"), "head_dim": None}  # a null field says as little as an absent one
    return [llama1, *(_fields(name) for name in ("llama-3-8b", "qwen3-0.6b", "mistral-small-24b-2501", "ernie-4.5-0.3b")), empty]  # fmt: skip


def _elements(config, wide=True, shared=True, both=2):
    h, d = config["num_attention_heads"], config["hidden_size"]
    n_kv = config.get("num_key_value_heads") if shared else None
    head_dim = config.get("head_dim") if wide else None
    return both * config["num_hidden_layers"] * (n_kv or h) * (head_dim or d // h)


elements = Exercise(
    id="10.elements",
    title="Cache elements per token from a config",
    kind="implement",
    cases=_element_cases,
    reference=lambda config: _elements(config),
    mistakes=[
        Mistake(
            lambda config: _elements(config, wide=False),
            "`head_dim` is in some of these files, and it is not d / h.",
            "What does the Qwen3-0.6B file say head_dim is, and what is 1024 / 16?",
        ),
        Mistake(
            lambda config: _elements(config, shared=False),
            "All query heads are counted; the cache holds the KV heads.",
            "Which field counts KV heads, and what does its absence mean?",
        ),
        Mistake(
            lambda config: _elements(config, both=1),
            "One tensor of two is counted.",
            "What does a layer keep of each token?",
        ),
        Mistake(
            lambda config: 2 * config["num_hidden_layers"] * config["hidden_size"],
            "d numbers for K and d for V: that is MHA with heads of d / h.",
            "Which heads share a key in this file?",
        ),
    ],
)  # fmt: skip

MYSTERIES = {"A": "glm-4-9b-chat", "B": "nemotron-3-nano-30b-a3b", "C": "ernie-4.5-0.3b"}
_NAMES = (
    "architectures",
    "model_type",
    "_name_or_path",
    "auto_map",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
)


def mystery(letter):
    """One of three config files without the fields that name it, and without tokens, dropout and the like."""
    drop = (
        "token",
        "dropout",
        "initializer",
        "fusion",
        "mamba",
        "ssm",
        "time_step",
        "chunk",
        "conv",
        "fp32",
        "_bias",
        "residual",
        "scaling",
    )
    raw = configs.load(MYSTERIES[letter])
    return {k: v for k, v in raw.items() if k not in _NAMES and not any(word in k for word in drop)}


traps = Exercise(
    id="10.traps",
    title="The traps of three mystery configs",
    kind="predict",
    reference=lambda: {"A": "names", "B": "layers", "C": "width"},
    mistakes=[
        Mistake({"A": "width", "B": "layers", "C": "width"}, "A's heads are as wide as d / h: 4096 / 32 = 128.", "Which field of A counts its KV heads, and who would look there?"),
        Mistake({"A": "layers", "B": "layers", "C": "width"}, "Every layer of A keeps a cache.", "Is there a field in A called num_key_value_heads?"),
        Mistake({"A": "names", "B": "names", "C": "width"}, "B's fields have their usual names, and the usual formula still counts every layer.", "What do the letters of hybrid_override_pattern stand for?"),
        Mistake({"A": "names", "B": "width", "C": "width"}, "B's head_dim is unusual too, and a smaller trap than the other.", "How many of the letters in hybrid_override_pattern are a *?"),
        Mistake({"A": "names", "B": "layers", "C": "layers"}, "C's 18 layers are all alike.", "What is 1024 / 16, and what is head_dim?"),
        Mistake({"A": "names", "B": "layers", "C": "names"}, "C uses the usual names.", "What is 1024 / 16, and what is head_dim?"),
    ],
)  # fmt: skip


def _true(name):
    return kv_elements_per_token(read_config(configs.path(name)))


def _with(**changed):
    return lambda: {letter: changed.get(letter, _true(name)) for letter, name in MYSTERIES.items()}


cache = Exercise(
    id="10.mystery_cache",
    title="The cache of the three mystery configs",
    kind="predict",
    reference=_with(),
    mistakes=[
        Mistake(_with(A=40 * 2 * 128, B=6 * 2 * 128, C=18 * 2 * 128), "One tensor of two is counted, three times.", "What does a layer keep of each token?"),
        Mistake(_with(A=2 * 40 * 32 * 128), "A counted with 32 KV heads: 16 times too much.", "What is multi_query_group_num?"),
        Mistake(_with(B=2 * 52 * 2 * 128), "B counted with all 52 layers.", "Which letters of the pattern are attention?"),
        Mistake(_with(B=2 * 52 * 2 * (2688 // 32)), "B counted by the usual formula: all layers, heads of d / h.", "Which letters of the pattern are attention, and what is head_dim?"),
        Mistake(_with(B=2 * 6 * 2 * (2688 // 32)), "B's six layers are right; its heads are not d / h wide.", "Which field gives their width?"),
        Mistake(_with(C=2 * 18 * 2 * 64), "C counted with d / h = 64.", "Which field gives the width of its heads?"),
        Mistake(_with(C=2 * 18 * 16 * 128), "C counted with its 16 query heads.", "Which heads are cached?"),
    ],
)  # fmt: skip


def _gemma(tokens=131072):
    return kv_bytes(read_config(configs.path("gemma-3-1b")), tokens)


windows = Exercise(
    id="10.windows",
    title="Gemma 3 1B's cache at 131,072 tokens",
    kind="predict",
    reference=_gemma,
    tol=0.0,
    mistakes=[
        Mistake(lambda: 2 * 26 * 256 * 131072 * 2, "The windows are not used: that is what an engine needs which gives every layer the full length.", "How many of the 26 layers see more than 512 tokens?"),
        Mistake(lambda: 2 * 4 * 256 * 131072 * 2, "The 22 window layers are left out; they keep 512 tokens each.", "What does a window layer hold after 131,072 tokens?"),
        Mistake(lambda: 2 * 26 * 256 * 512 * 2, "Every layer is capped; four of them see the whole past.", "What does sliding_window_pattern 6 mean for layer 6?"),
        Mistake(lambda: 2 * 26 * (1152 // 4) * 131072 * 2, "Heads of d / h, windows not used: the usual formula.", "Which field gives the width of a head?"),
        Mistake(lambda: 2 * 256 * (5 * 131072 + 21 * 512) * 2, "Five layers are counted as full: the 26 layers hold only four whole sixths.", "Which layer numbers up to 26 are multiples of 6?"),
        Mistake(lambda: _gemma() // 2, "K or V is missing, or an element is taken as one byte.", "How many tensors, and how many bytes an element in bf16?"),
    ],
)  # fmt: skip


def _bound(weight_bytes, cache_bytes, batch, bandwidth, weights=1.0, caches=None, tokens=None):
    moved = weights * weight_bytes + (batch if caches is None else caches) * cache_bytes
    return (batch if tokens is None else tokens) * bandwidth / moved


def _given(weight_bytes, cache_bytes, batch, bandwidth):
    moved = batch * (weight_bytes + cache_bytes)
    return batch * bandwidth / moved


bound = Exercise(
    id="10.bound",
    title="Find the fault in a bandwidth bound",
    kind="find the fault",
    cases=[(16.1e9, 0.5e9, 1, 2e12), (16.1e9, 0.5e9, 32, 2e12), (141e9, 42.9e9, 8, 3e12), (2.6e8, 1.2e7, 5, 1e11)],
    reference=lambda weight_bytes, cache_bytes, batch, bandwidth: _bound(weight_bytes, cache_bytes, batch, bandwidth),
    given=_given,
    mistakes=[
        Mistake(lambda w, c, n, b: n * b / (n * (w + c)), "The weights are read once for the whole batch, not once for each sequence.", "How often must a step read a matrix to multiply 32 vectors by it?"),
        Mistake(lambda w, c, n, b: n * b / (w + c), "Each sequence has a cache of its own; one is counted.", "Whose keys does a sequence read?"),
        Mistake(lambda w, c, n, b: b / (w + n * c), "The bytes are right; a step makes a token for each sequence of the batch.", "How many tokens come out of one step?"),
        Mistake(lambda w, c, n, b: n * b / (w + n * c) / 1.024**3, "The bandwidth was turned from GB into GiB; bytes a second are bytes a second.", "Is a vendor's 1 TB/s 10^12 or 2^40?"),
    ],
)  # fmt: skip
