"""python -m lib describe PATH --measure: the class of transformers counted beside the reading. About 10 s, most of it imports."""

import json
import subprocess
import sys

import pytest

from lib.__main__ import main
from lib.config import GQA, Dense
from lib.families import read_config
from lib.families.measure import LayerCache, differences, known_to_transformers, lines, measure
from published import CONFIGS

SMALL = {
    "vocab_size": 101, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 28, "kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip


def published(name):
    return {
        key: value
        for key, value in json.loads((CONFIGS / f"{name}.json").read_text()).items()
        if key != "auto_map"
    }


@pytest.mark.parametrize(
    ("name", "layers", "cache"),
    [  # per layer, from the files: numbers per token, fixed numbers, window
        ("gemma-3-1b", 26, {(512, 0, 512), (512, 0, None)}),
        ("deepseek-v3.2", 61, {(576 + 128, 0, None)}),
        ("gpt-oss-20b", 24, {(1024, 0, 128), (1024, 0, None)}),
        ("qwen3-next-80b-a3b", 48, {(0, 557056, None), (1024, 0, None)}),
    ],
)
def test_a_published_file_is_measured_at_its_full_size(name, layers, cache):
    raw = published(name)
    measured = measure(raw)
    assert len(measured.cache) == layers
    assert {(x.per_token, x.fixed, x.window) for x in measured.cache} == cache
    assert differences(read_config(raw), measured) == []


def test_a_wrong_reading_parts_and_says_in_which_layers():
    raw = SMALL | {"model_type": "llama"}
    cfg, measured = read_config(raw), measure(raw)
    assert differences(cfg, measured) == []
    first = cfg.layers[0]
    wrong = type(first)(GQA(4, 4, 12, rope=first.attention.rope), Dense(80, bias=True))
    told = differences(cfg.replace(layers=(first, wrong, wrong)), measured)
    extra = 2 * 2 * 12 * 48 + 2 * 80 + 48  # two more KV heads; biases of gate, up and down
    assert (
        told[0] == f"parameters: {measured.parameters + 2 * extra:,} read, {measured.parameters:,} measured"
    )
    assert told[1].startswith("parameters of layers 1, 2: ")
    assert told[2] == "cache of layers 1, 2: 96 per token read, 48 per token measured"


def test_a_window_and_a_nested_file():
    raw = {"model_type": "mistral3", "text_config": SMALL | {"model_type": "mistral", "sliding_window": 5}}
    measured = measure(raw)
    assert measured.name == "MistralForCausalLM"
    assert measured.cache == (LayerCache(48, 0, 5),) * 3
    assert measured.bytes_at(4) == 2 * 3 * 48 * 4
    assert measured.bytes_at(400) == 2 * 3 * 48 * 5
    assert differences(read_config(raw), measured) == []


@pytest.mark.parametrize(
    ("named", "head"),
    [("LlamaModel", 0), ("LlamaForSequenceClassification", 3 * 48), ("LlamaForCausalLM", 101 * 48)],
)
def test_the_class_that_the_file_names_is_the_one_that_is_built(named, head):
    raw = SMALL | {"model_type": "llama", "architectures": [named], "num_labels": 3}
    measured, cfg = measure(raw), read_config(raw)
    assert measured.name == named
    assert measured.parameters == 101 * 48 + head + 48 + sum(measured.by_layer)
    assert differences(cfg, measured) == []


def test_a_family_without_a_row_is_measured_and_not_explained(tmp_path, capsys, monkeypatch):
    from lib.families import FAMILIES

    monkeypatch.delitem(FAMILIES, "qwen3")
    path = tmp_path / "config.json"
    fields = {key: value for key, value in SMALL.items() if key != "max_position_embeddings"}
    path.write_text(json.dumps(fields | {"model_type": "qwen3", "head_dim": 20}))
    assert main(["describe", str(path)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.endswith("transformers knows it: --measure counts its class\n")
    assert main(["describe", str(path), "--measure", "--tokens", "100"]) == 0
    told = capsys.readouterr().out
    weights = 2 * 101 * 48 + 48 + 3 * (48 * 20 * 12 + 2 * 20 + 3 * 48 * 80 + 2 * 48)
    assert f"parameters     {weights:,}" in told
    assert "cache          80 per token, in 3 of 3 layers" in told
    assert "measured, not explained" in told
    assert "filled in by the class: max_position_embeddings 32,768" in told
    assert main(["describe", str(path), "--measure", "--json", "--tokens", "100"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts) == ["measured"]
    assert facts["measured"]["parameters"] == weights
    assert facts["measured"]["cache_bytes_at_lengths"] == [2 * 3 * 80 * n for n in (3, 25, 100)]
    assert facts["measured"]["differences"] is None


def test_the_page_of_a_known_family_ends_with_the_measurement(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL | LATENT | {"model_type": "deepseek_v3"}))
    assert main(["describe", str(path), "--measure"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "  beside         parameters and cache equal the reading, layer by layer"
    assert "  cache          32 per token, in 3 of 3 layers" in told


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "llama", "auto_map": {"AutoConfig": "x.Y"}}, "auto_map: the file asks for code"),
        ({"model_type": "llama", "trust_remote_code": True}, "trust_remote_code: the file asks for code"),
        (
            {"model_type": "llava", "text_config": {"auto_map": {"AutoConfig": "x.Y"}}},
            "auto_map: the file asks",
        ),
        (
            {"model_type": "llava", "llm_config": {"auto_map": {"AutoConfig": "x.Y"}}},
            "auto_map: the file asks",
        ),
        ({"model_type": "llava", "llm_config": SMALL}, "LlavaConfig does not read llm_config"),
        (
            {"model_type": "llama", "num_labels": 10**6},
            "num_labels = 1000000: --measure builds at most 200,000",
        ),
        (
            {"model_type": "gemma3n_text", "num_hidden_layers": 10**6},
            "num_hidden_layers = 1000000: --measure",
        ),
        ({"model_type": "llama", "hidden_size": 0}, "hidden_size = 0: expected a whole number from 1"),
        (
            {"model_type": "jetmoe", "num_hidden_layers": -1},
            "num_hidden_layers = -1: expected a whole number",
        ),
        (
            {"model_type": "jetmoe", "vocab_size": 10**12},
            "vocab_size = 1000000000000: expected a whole number",
        ),
        ({"model_type": "sam"}, 'model_type "sam" has no language model there'),
        ({"model_type": "vit"}, 'model_type "vit" has no language model there'),
        ({"model_type": "unheard_of"}, 'no class for model_type "unheard_of"'),
        ({"model_type": "llama", "num_hidden_layers": 5000}, "builds at most 1,000"),
        ({"model_type": "llama", "hidden_size": "wide"}, "refuses this file: "),
    ],
)
def test_what_is_not_measured_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        measure(SMALL | fields)


def test_a_class_whose_forward_pass_fails_is_counted_without_a_cache(monkeypatch):
    import transformers

    raw = SMALL | {"model_type": "llama"}

    def refuse(*args, **kwargs):
        raise RuntimeError("needs numbers")

    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward", refuse)
    measured = measure(raw)
    assert (measured.cache, measured.no_cache) == ((), "RuntimeError: needs numbers")
    told = "\n".join(lines(read_config(raw), measured, 100))
    assert "cache          not measured: RuntimeError: needs numbers" in told
    assert "parameters equal the reading" in told


def test_without_transformers_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ValueError, match="^--measure needs torch and transformers .*: pip install transformers$"
    ):
        measure(SMALL | {"model_type": "llama"})


def test_only_measuring_loads_torch_and_transformers(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL | {"model_type": "reformer"}))
    code = (
        "import sys; from lib.__main__ import main; import lib.families.measure; print(main(sys.argv[1:]));"
        " print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "describe", str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\nset()\n"
    assert "transformers knows it" in done.stderr
    assert not known_to_transformers("unheard_of")
