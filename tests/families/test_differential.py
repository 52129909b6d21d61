"""A few hundred random configs of every row against transformers (tests/families/differential.py runs any number by hand).

About 40 s of one core. Seeds are fixed: config number i is the same on every machine.
"""

import json
import random
import tempfile
from collections import Counter

import differential
import pytest
import torch
import transformers

import parity
from lib import load_model
from lib.families import read_config
from lib.files.names import MODEL_TYPES
from tolerances import assert_close, distance, model_sums, rtol

COUNTED, EACH = 5, 2  # configs of each row that are counted; of each row that the block runs, run


@pytest.mark.parametrize("row", differential.rows())
def test_counts(row):
    """Parameters and the cache of each layer, as the class of transformers has them, or a refusal in one sentence."""
    done = []
    for number in range(COUNTED):
        _, raw = differential.config_of(number, seed=1, names=[row])
        verdict, why = differential.compare(raw)
        assert verdict != "WRONG", f"{why}\n{json.dumps(raw)}"
        done.append(verdict)
    assert "equal" in done or row in differential.REFUSED, Counter(done)


def test_a_wrong_count_is_seen():
    """The comparison can fail: a window, a bias or a tie that the reader takes for granted is told, with its layer."""
    _, raw = differential.config_of(0, seed=1, names=["olmo3"])
    measured = differential.measure(raw)
    layers = sum(kind == "sliding_attention" for kind in raw["layer_types"])
    assert layers
    told = differential.differences(
        read_config(raw | {"sliding_window": raw["sliding_window"] + 1}), measured
    )
    assert len(told) == 1
    assert f"window {raw['sliding_window'] + 1} read" in told[0]
    other = raw | {"tie_word_embeddings": not raw["tie_word_embeddings"]}
    assert differential.differences(read_config(other), measured)[0].startswith("parameters: ")


# ---- what the block runs


def runnable(row, number):
    """A random config of that row that the block runs, with one of the scalings; and a small vocabulary."""
    draw = random.Random(f"run {number}")
    while True:
        fields = differential.fields_of(row, draw) | {"vocab_size": 11, "max_position_embeddings": 64}
        fields["num_hidden_layers"] = n = draw.choice((2, 3))
        for key in ("layer_types", "mlp_layer_types"):
            fields.pop(key, None)
        if "n_routed_experts" in fields:
            fields["first_k_dense_replace"] = n
        try:
            config = differential._class(row)(**fields)
            cfg = read_config(json.loads(json.dumps(config.to_dict())))
        except (ValueError, TypeError):
            continue
        if not cfg.unsupported:
            return config


@torch.no_grad()
@pytest.mark.parametrize("number", range(EACH))
@pytest.mark.parametrize("row", MODEL_TYPES)
def test_logits(row, number):
    """A random checkpoint, beyond 32 positions: uncached and cached, in float32 and bfloat16."""
    config = runnable(row, number)
    said = json.dumps(config.to_dict(), default=str)
    theirs = parity.randomise(
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"), number
    )
    idx = torch.randint(0, 11, (2, 39), generator=torch.Generator().manual_seed(number))
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours, narrow = load_model(folder), load_model(folder, dtype=torch.bfloat16)
        want = theirs(idx).logits
        sums = model_sums(ours.config, 39)
        for lm, name in ((ours, "float32"), (narrow, "bfloat16")):
            dtype = getattr(torch, name)
            for cached in (False, True):
                got = stepped(lm, idx) if cached else lm(idx)
                assert distance(got, want) <= rtol(dtype, sums), f"{name}, cached {cached}: {said}"
    assert_close(ours(idx[:, :33]), want[:, :33], sums)


def stepped(lm, idx):
    """Logits through the cache: a prompt of 5, then pieces of 1 and 7 tokens."""
    cache, out, start = lm.new_cache(idx.shape[0], idx.shape[1]), [], 0
    for size in (5, 1, 7, 1, 19, 1, 1, 4):
        out.append(lm(idx[:, start : start + size], cache=cache))
        start += size
    return torch.cat(out, dim=1)
