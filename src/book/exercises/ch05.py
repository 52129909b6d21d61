"""Exercises of chapter 05: the KV cache. No torch until an exercise that needs it is checked."""

from book.exercises.core import Exercise, Mistake
from lib.arithmetic import kv_cache_bytes


def _answer(layers=32, heads=8, head_dim=128, width=2, bytes_per_element=2, unit=2**30):
    token = width * layers * heads * head_dim * bytes_per_element
    return {"bytes per token": token, "GiB at 32,768": token * 32_768 / unit}


seed = Exercise(
    id="05.seed",
    title="The cache of L = 32, h = 32, dh = 128, n_kv = 8 in fp16",
    kind="predict",
    reference=lambda: {
        "bytes per token": kv_cache_bytes(32, 8, 128),
        "GiB at 32,768": kv_cache_bytes(32, 8, 128, 32_768) / 2**30,
    },
    seed=1,
    mistakes=[
        Mistake(
            lambda: _answer(heads=32),
            "All 32 query heads were counted: that is the cache of MHA.",
            "Which heads have keys and values of their own?",
        ),
        Mistake(
            lambda: _answer(width=1),
            "A factor of 2 is missing: there are keys AND values, and each number has two bytes.",
            "How many tensors does a layer keep, and how many bytes has an fp16 number?",
        ),
        Mistake(
            lambda: _answer(width=3),
            "Q was counted too: a query is used once, by its own token, and never again.",
            "Which later token looks at this token's query?",
        ),
        Mistake(
            lambda: _answer(layers=1),
            "That is one layer.",
            "Do all layers share one cache?",
        ),
        Mistake(
            lambda: _answer(unit=1e9),
            "That is decimal GB (10^9 bytes); GiB are 2^30.",
            "How many bytes has one GiB?",
        ),
    ],
)


def _configs():
    """A config (with the two fields that a file may leave out), tokens, batch, bytes per element."""
    qwen = {"num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16}
    qwen |= {"num_key_value_heads": 8, "head_dim": 128}
    llama = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    llama |= {"num_key_value_heads": 8}
    old = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    small = {"num_hidden_layers": 5, "hidden_size": 96, "num_attention_heads": 12}
    small |= {"num_key_value_heads": 3, "head_dim": 10}
    return [(qwen, 1, 1, 2), (llama, 4096, 3, 2), (old, 1024, 1, 4), (small, 7, 2, 1)]


def _count(config, tokens, batch, size, width=2, head_dim=None, heads=None):
    h = config["num_attention_heads"]
    n_kv = config.get("num_key_value_heads", h) if heads is None else heads
    dh = config.get("head_dim", config["hidden_size"] // h) if head_dim is None else head_dim
    return width * config["num_hidden_layers"] * n_kv * dh * tokens * batch * size


def _d_over_h(config):
    return config["hidden_size"] // config["num_attention_heads"]


def _groups(config):
    h = config["num_attention_heads"]
    return h // config.get("num_key_value_heads", h)


formula = Exercise(
    id="05.formula",
    title="Bytes of a cache from a config",
    kind="implement",
    cases=_configs,
    reference=lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, bytes_per_element),
    mistakes=[
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, bytes_per_element, width=1),
            "The factor 2 for keys and values is missing.",
            "What would attention do with keys alone?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, bytes_per_element, width=3),
            "Queries are not cached: the factor is 2, not 3.",
            "Which later step reads an old query?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element, heads=config["num_attention_heads"]
            ),
            "Query heads were counted; GQA caches num_key_value_heads of them.",
            "How wide is the output of `k_proj`?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element, head_dim=_d_over_h(config)
            ),
            "head_dim was computed as hidden_size / heads although the config states another.",
            "For the first case, is 1,024 / 16 what the file says?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element, heads=_groups(config)
            ),
            "h / n_kv is the number of query heads that SHARE one KV head, not the number of KV heads.",
            "With 32 query heads and 8 KV heads: how many key tensors are kept, 8 or 4?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, 1, bytes_per_element),
            "The batch is not used: every sequence has its own cache.",
            "Can two users share keys of different texts?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, 1),
            "Those are elements, not bytes.",
            "Where does bytes_per_element go?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, 2),
            "Two bytes are built in: a float32 cache would be counted as half.",
            "Which argument says how wide a number is?",
        ),
    ],
)  # fmt: skip

WRONG = frozenset({1, 2, 3, 6, 10, 12})

twelve = Exercise(
    id="05.twelve",
    title="Which of the twelve published numbers are wrong",
    kind="choose",
    reference=lambda: set(WRONG),
    mistakes=[
        Mistake(
            lambda: set(WRONG) - {3} | {4},
            "Both Mistral-Small and Qwen3-0.6B were computed with hidden_size / heads.",
            "Which head_dim do the two configs state?",
        ),
        Mistake(
            lambda: set(WRONG) | {4},
            "Qwen3-0.6B is right: its head_dim is 128 and not 1,024 / 16.",
            "What is 2 x 28 x 8 x 128 x 2?",
        ),
        Mistake(
            lambda: set(WRONG) - {3},
            "Mistral-Small-24B passed: 5,120 / 32 is not its head_dim.",
            "What is 2 x 40 x 8 x 128 x 2?",
        ),
        Mistake(
            lambda: set(WRONG) | {8},
            "1.07 GB and 1.00 GiB are the same bytes.",
            "What are 1,073,741,824 bytes in units of 10^9, and of 2^30?",
        ),
        Mistake(
            lambda: set(WRONG) | {7},
            "1.00 GiB is right; the same bytes are 1.07 GB.",
            "What are 1,073,741,824 bytes in units of 2^30?",
        ),
        Mistake(
            lambda: set(WRONG) - {10},
            "A window layer caches its first token like every other layer.",
            "How many layers hold keys after ONE token?",
        ),
        Mistake(
            lambda: set(WRONG) | {9},
            "Twelve of the layers keep 128 tokens at most: the sum is right.",
            "What do 12 layers of 8,192 and 12 layers of 128 tokens hold?",
        ),
        Mistake(
            lambda: set(WRONG) | {5},
            "MLA keeps one latent and one rope key a token and layer: 61 x (512 + 64) x 2.",
            "Which tensor would a factor 2 stand for?",
        ),
        Mistake(
            lambda: set(WRONG) - {6},
            "DeepSeek-V3's 128 KV heads are not cached: what counts is the latent and the rope key, as in row 5.",
            "Which of the two rows gives V3 the formula of its own kind of attention?",
        ),
        Mistake(
            lambda: set(WRONG) - {1},
            "Row 1 is eight times too large: it has the size of a token in another unit.",
            "What is 2 x 32 x 32 x 128 x 2, and how many bits has a byte?",
        ),
        Mistake(
            lambda: set(WRONG) - {2},
            "5 GB would be the cache of a longer text: 4,096 tokens of a 70B with 8 KV heads take 1.34 GB.",
            "What is 320 KiB times 4,096?",
        ),
        Mistake(
            lambda: set(WRONG) - {12},
            "A 7B at MHA needs 16 GiB at 32K.",
            "What is 512 KiB times 32,768?",
        ),
        Mistake(
            lambda: set(range(1, 13)) - set(WRONG),
            "These are the six that are right.",
            "Does the question ask for the right ones or the wrong ones?",
        ),
    ],
)


def _kv_cases():
    import torch

    g = torch.Generator().manual_seed(5)
    # the token axis as long as the heads in one case: a swapped axis must run, and be named
    shapes = ((2, 3, 5, 4, 2), (1, 2, 2, 6, 3), (3, 4, 7, 2, 2))
    return [
        (torch.randn(b, n, s, w, generator=g, dtype=torch.float64), group) for b, n, s, w, group in shapes
    ]


repeat = Exercise(
    id="05.repeat",
    title="Repeat KV heads for their query heads",
    kind="implement",
    cases=_kv_cases,
    reference=lambda x, group_size: x.repeat_interleave(group_size, dim=1),
    mistakes=[
        Mistake(
            lambda x, group_size: x.repeat(1, group_size, 1, 1),
            "The heads are tiled (0, 1, 0, 1): query head 1 then reads the keys of KV head 1. Repeat each in place (0, 0, 1, 1).",
            "With 4 query heads and 2 KV heads, which KV head is 1 // 2?",
        ),
        Mistake(
            lambda x, group_size: x.repeat_interleave(group_size, dim=2),
            "Tokens were repeated, not heads: the sequence became longer.",
            "Which axis counts heads in [B, n_kv, S, dh]?",
        ),
        Mistake(
            lambda x, group_size: x.repeat_interleave(group_size, dim=0),
            "The batch was repeated, not the heads.",
            "Which axis counts heads in [B, n_kv, S, dh]?",
        ),
        Mistake(
            lambda x, group_size: x.repeat_interleave(x.shape[1], dim=1),
            "Each head was repeated n_kv times; it serves group_size query heads.",
            "How many query heads do you get, and how many are there?",
        ),
        Mistake(
            lambda x, group_size: x,
            "Nothing was repeated.",
            "How many heads must come back for h = n_kv times group_size?",
        ),
    ],
)  # fmt: skip


def _mask(T, S, past):
    """True where the query may look; query t sees keys up to t + past."""
    import torch

    return torch.arange(S)[None] <= torch.arange(T)[:, None] + past


def _given(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()  # noqa: F821  the notebook's names


mask = Exercise(
    id="05.mask",
    title="Find the fault in a causal mask for a chunk",
    kind="find the fault",
    cases=[(2, 5), (1, 4), (3, 3), (4, 9)],
    reference=lambda T, S: _mask(T, S, S - T),
    given=_given,
    mistakes=[
        Mistake(
            lambda T, S: _mask(T, S, 0),
            "The first query is aligned with the first key: it sees the beginning of the text only.",
            "T new tokens come last. How many keys may the first of them see?",
        ),
        Mistake(
            lambda T, S: _mask(T, S, S - T - 1),
            "No query sees its own token.",
            "Is position 4 among the keys of the query at position 4?",
        ),
        Mistake(
            lambda T, S: _mask(T, S, S - T + 1),
            "Every query but the last sees one token of its future.",
            "How many keys may the first of T queries see?",
        ),
        Mistake(
            lambda T, S: _mask(T, S, S),
            "Nothing is masked: the chunk sees its own future.",
            "May the first of the new tokens look at the second?",
        ),
        Mistake(
            lambda T, S: ~_mask(T, S, S - T),
            "The mask is inverted: True means 'may look' in scaled_dot_product_attention.",
            "Should the last query see all keys or none?",
        ),
    ],
)
