"""Exercises of chapter 05: the KV cache. Those that build: ch05_step.py, ch05_server.py."""

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
            "Half of it. Either one of the two twos is missing (keys AND values; two bytes), or 4 = h / n_kv, the query heads per KV"
            " head, was taken for the number of KV heads.",
            "Name your factors: which one counts K and V, which one bytes, which one KV heads?",
        ),
        Mistake(
            lambda: {"bytes per token": 128, "GiB at 32,768": 4.0},
            "That is in KiB; the question asks for bytes.",
            "How many bytes has one KiB?",
        ),
        Mistake(
            lambda: _answer(bytes_per_element=16),
            "Those are bits.",
            "How many bytes has an fp16 number?",
        ),
        Mistake(
            lambda: _answer(bytes_per_element=4),
            "Four bytes per number were counted: that is fp32.",
            "How many bytes has an fp16 number?",
        ),
        Mistake(
            lambda: _answer(head_dim=1),
            "The width of a head is missing.",
            "How many numbers is one key?",
        ),
        Mistake(
            lambda: _answer(unit=2**20),
            "That is in MiB.",
            "How many MiB has one GiB?",
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


def _without(name):
    """The formula with one factor forgotten: its argument, or its field, set to 1."""

    def count(config, tokens, batch, bytes_per_element):
        if name == "tokens":
            return _count(config, 1, batch, bytes_per_element)
        return _count(config | {name: 1}, tokens, batch, bytes_per_element)

    return count


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
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element,
                head_dim=config["hidden_size"] // config.get("num_key_value_heads", config["num_attention_heads"]),
            ),
            "head_dim was computed as hidden_size / KV heads.",
            "Into how many heads is the width of the QUERIES cut?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element,
                head_dim=config.get("head_dim", config["hidden_size"] // config.get("num_key_value_heads", config["num_attention_heads"])),
            ),
            "Where the config gives no head_dim, it was computed as hidden_size / KV heads.",
            "Into how many heads is the width of the QUERIES cut?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element, head_dim=config["hidden_size"]
            ),
            "The model's width was taken for a head's.",
            "How wide is one head?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(
                config, tokens, batch, bytes_per_element, heads=config.get("num_key_value_heads", 1)
            ),
            "An absent num_key_value_heads was read as one KV head. Older files leave it out because they are MHA.",
            "How many KV heads has a model that says nothing of them?",
        ),
        Mistake(
            _without("tokens"),
            "That is one token's cache: `tokens` is not used.",
            "What happens to the cache when the text grows?",
        ),
        Mistake(
            _without("num_hidden_layers"),
            "That is one layer.",
            "Do all layers share one cache?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, bytes_per_element, head_dim=1),
            "The width of a head is missing.",
            "How many numbers is one key?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, bytes_per_element, heads=1),
            "The number of KV heads is missing.",
            "How many keys does one layer keep per token?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, 1 / bytes_per_element),
            "The bytes per number divide; they multiply.",
            "Does a wider number take more memory or less?",
        ),
        Mistake(
            lambda config, tokens, batch, bytes_per_element: _count(config, tokens, batch, 8 * bytes_per_element),
            "Those are bits.",
            "How many bytes has a number of bytes_per_element bytes?",
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
            "MLA keeps one latent and one rope key per token and layer: 61 x (512 + 64) x 2.",
            "What would a factor of 2 count?",
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
