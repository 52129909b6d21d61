"""Bad files: one clear line that names the field, in bounded time and memory, whatever they hold. 5 seconds."""

import json

import pytest

from lib.__main__ import main
from lib.families import MOST_KINDS, read_config
from lib.families.config_file import MOST_LAYERS
from lib.families.describe import page
from lib.families.implied import as_json
from published import edited

LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip
TEXT = json.dumps(LLAMA)


def refused(tmp_path, capsys, text):
    """What `describe` says of a file: one line, exit code 2, nothing on stdout."""
    path = tmp_path / "config.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    assert main(["describe", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and len(err) < 500, err
    return err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace('"hidden_size": 64', '"hidden_size": NaN'), "hidden_size = nan: expected a whole number"),
        (TEXT.replace('"hidden_size": 64', '"hidden_size": Infinity'), "hidden_size = inf: expected a whole number"),
        (TEXT.replace("{", '{"rms_norm_eps": NaN, ', 1), "rms_norm_eps = nan: expected a positive number"),
        (TEXT.replace("{", '{"rope_theta": -Infinity, ', 1), "rope_theta = -inf: expected a positive number"),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": float("inf")}}, "rope_scaling.factor = inf"),
        (LLAMA | {"hidden_size": "64"}, 'hidden_size = "64": expected a whole number'),
        (LLAMA | {"rope_theta": "1e6"}, 'rope_theta = "1e6": expected a positive number'),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": "2"}}, 'rope_scaling.factor = "2": expected a positive number'),
        (LLAMA | {"tie_word_embeddings": "false"}, 'tie_word_embeddings = "false": expected true or false'),
        (TEXT.replace("{", '{"hidden_size": 32, ', 1), "hidden_size is given twice, as 32 and 64"),
        (TEXT.replace("{", '{"rope_scaling": {"factor": 2, "factor": 4}, ', 1), "factor is given twice, as 2 and 4"),
        ({"model_type": "llava", "text_config": {"text_config": LLAMA}}, "text_config.text_config: a language model inside"),
        ({"model_type": "llava", "text_config": {"llm_config": LLAMA}}, "text_config.llm_config: a language model inside"),
        ({"text_config": LLAMA, "language_config": LLAMA}, "text_config and language_config both hold a language model"),
        ({"model_type": "llava", "text_config": [LLAMA]}, "text_config = [{"),
        ({"model_type": "qwen2_5_omni", "thinker_config": 3}, "thinker_config = 3: expected an object of fields"),
        (LLAMA | {"architectures": ["Foo"]}, 'architectures = ["Foo"]: expected a class with a language head'),
        (LLAMA | {"architectures": ["A" * 1000] * 1000}, 'architectures = ["AAAA'),
        (LLAMA | {"model_type": ["llama"]}, 'model_type = ["llama"]: expected the name of a model family'),
        (LLAMA | {"model_type": "x" * 1_000_000}, 'model_type "xxxx'),
        (LLAMA | {"vocab_size": list(range(100_000))}, "vocab_size = [0, 1, 2"),
        (LLAMA | {"num_hidden_layers": MOST_LAYERS + 1}, "num_hidden_layers = 10001: expected a whole number from 1 to 10,000"),
        (LLAMA | {"layer_types": ["full_attention"] * 100_000}, "layer_types has 100000 entries: expected one per layer, 2"),
        ({}, "model_type = null: expected the name of a model family"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:40],
)  # fmt: skip
def test_one_clear_line(tmp_path, capsys, text, words):
    assert words in refused(tmp_path, capsys, text)


def test_a_file_of_50_mb_is_not_read(tmp_path, capsys):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.write(TEXT.encode())
        file.truncate(50_000_000)  # a hole: it takes no place here
    assert main(["describe", str(path)]) == 2
    assert "has 50,000,000 bytes: a config.json has a few thousand" in capsys.readouterr().err


def test_a_cyclic_dictionary_is_refused_like_any_other_wrong_value():
    endless = dict(LLAMA)
    endless["hidden_size"] = endless
    with pytest.raises(ValueError, match=r"hidden_size = \(dict\): expected a whole number"):
        read_config(endless)


# ---- large, and right: the answer stays short


def short(cfg):
    said = page(cfg, 4096)
    json.dumps(as_json(cfg, 4096))
    assert len(said) < 10_000 and max(map(len, said.splitlines())) < 600
    return said


def test_ten_thousand_layers_give_one_page():
    assert "10,000 layers" in short(read_config(LLAMA | {"num_hidden_layers": MOST_LAYERS})).replace(
        "10000 layers", "10,000 layers"
    )
    gemma = LLAMA | {"model_type": "gemma3_text", "num_hidden_layers": MOST_LAYERS, "sliding_window": 8}
    assert sum(layer.attention.window == 8 for layer in read_config(gemma).layers) == 8334
    short(read_config(gemma))
    block = {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}
    wide = {"no_op": False, "replace_with_linear": False}
    blocks = [{"attention": block, "ffn": wide | {"ffn_mult": 1 + i / 1000}} for i in range(MOST_LAYERS)]
    short(read_config(edited("nemotron-super-49b", num_hidden_layers=MOST_LAYERS, block_configs=blocks)))


def test_ten_thousand_different_attentions_are_refused():
    per_layer = {str(i): {"head_dim": 2 * i + 2} for i in range(1000)}
    full = {"rope_type": "default", "rope_theta": 1e6}
    gemma = LLAMA | {
        "model_type": "gemma4_text", "num_hidden_layers": 1000, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
        "sliding_window": 8, "layer_types": ["full_attention"] * 1000, "per_layer_config": per_layer,
        "rope_parameters": {"full_attention": full},
    }  # fmt: skip
    with pytest.raises(ValueError, match="1,000 attention layers that all differ: a model has a few kinds"):
        read_config(gemma)
    assert MOST_KINDS < 1000


def test_many_unknown_fields_and_towers_are_told_in_one_line():
    cfg = read_config(LLAMA | {f"field_{i}": i for i in range(50_000)} | {"x" * 100_000: 1})
    assert any("field_0, field_1, " in line and "and 49,989 more" in line for line in cfg.warnings)
    short(cfg)
    many = read_config(
        {"model_type": "llava", "text_config": LLAMA, **{f"x{i}_config": {"a": 1} for i in range(5000)}}
    )
    assert any("and 4,988 more" in line for line in many.warnings)
    short(many)


def test_a_class_of_another_family_is_doubted_and_a_variant_of_the_own_is_not():
    raw = {
        "model_type": "qwen3", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 99, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 96, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": False,
        "hidden_act": "silu", "max_position_embeddings": 128, "attention_bias": False,
    }  # fmt: skip
    (doubt,) = (x for x in read_config(raw).doubts if "a class of" in x)
    assert "Qwen2ForCausalLM, a class of qwen2" in doubt and 'model_type is "qwen3"' in doubt
    for own in ("Qwen3ForCausalLM", "Qwen3Model", "MyOwnForCausalLM"):
        assert not [x for x in read_config(raw | {"architectures": [own]}).doubts if "a class of" in x]


def test_a_folder_of_gguf_files_is_pointed_into(tmp_path):
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match="give one of its GGUF files: a.gguf, b.gguf"):
        read_config(tmp_path)


def test_an_option_that_cannot_be_read_is_one_line(capsys):
    for command, prog in (("describe", "describe"), ("generate", "generate")):
        with pytest.raises(SystemExit) as ended:
            main(
                [command, "--tokens", "many", "x"]
                if command == "describe"
                else [command, "--top-k", "x", "y"]
            )
        said = capsys.readouterr().err
        assert ended.value.code == 2 and said.count("\n") == 1 and said.startswith(f"{prog}: argument --to")
