"""The second set of published files: each read right, or refused by its form. 1 second."""

import csv
import json
import re

import pytest

from lib import arithmetic as a
from lib.__main__ import main
from lib.families import read_config
from published import CONFIGS

SECOND = CONFIGS / "second"
ROWS = list(csv.DictReader((SECOND / "facts.csv").open()))
# what a person must be told of a file, beside its numbers
SAID = {
    "gemma-3-4b-it": "taken from the class of gemma3_text: .*vocab_size = 262208, .*num_attention_heads = 8, num_key_value_heads = 4",
    "llava-1.5-7b-hf": "taken from the class of llama: hidden_size = 4096, num_hidden_layers = 32, num_attention_heads = 32",
    "qwen2-audio-7b": "only the language model is counted, not audio_config",
    "e5-mistral-7b": r'architectures = \["MistralModel"\]: a base model, no language head is counted',
    "llama-3-8b-rm": "one score row in place of the language head",
    "gemma-4-31b-nvfp4": r"quantised \(modelopt, NVFP4, 4-bit weights\).*a quantised cache too \(8 bits\)",
    "qwen3.6-27b-nvfp4": r"quantised \(modelopt, MIXED_PRECISION, 4 and 8-bit weights\)",
    "dbrx-instruct-mlx4": r"quantised \(4-bit weights\)",
    "llama-3-8b-mlx4-new": r"quantised \(4-bit weights\)",
    "qwen3-32b-fp8-modelopt": r"quantised \(FP8, 8-bit weights\).*a quantised cache too \(FP8\)",
    "llava-onevision-0.5b": "tie_word_embeddings = false outside text_config is not used: text_config.tie_word_embeddings = true",
    "qwen3-vl-8b": "only the language model is counted, not vision_config",
    "llama-3-8b-params": "a params.json",
    "nemotron-3-super-120b": "extra layers that predict further tokens",
}


def test_every_file_has_a_row():
    names = {path.stem for path in SECOND.glob("*.json")}
    assert names == {row["model"] for row in ROWS} | {"lora_adapter_config"}
    assert len(ROWS) == 29


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_a_file_is_read_right_or_refused_by_its_form(row, capsys):
    path = SECOND / f"{row['model']}.json"
    if not row["total_params_exact"]:
        with pytest.raises(
            ValueError, match='params.json .*mlp_structure = "2_projection", model_type = "arcee"'
        ):
            read_config(path)
        return
    cfg = read_config(path)
    assert a.parameters(cfg).total == int(row["total_params_exact"])
    assert a.kv_elements_per_token(cfg) == int(row["kv_elements_per_token"])
    said = "\n".join(cfg.warnings)
    if row["model"] in SAID:
        assert re.search(SAID[row["model"]], said), said
    assert main(["describe", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == list(cfg.warnings)


def test_what_the_notes_of_the_table_say_beside_the_counts():
    gemma = read_config(SECOND / "gemma-3-4b-it.json")
    assert a.kv_bytes(gemma, 131072) == 2_805_989_376
    kinds = {layer.attention.window: layer.attention.rope for layer in gemma.layers}
    assert (kinds[1024].base, kinds[1024].scaling) == (1e4, None)
    assert (kinds[None].base, kinds[None].scaling.factor) == (1e6, 8.0)
    plus = read_config(SECOND / "command-r-plus.json")
    assert {part.parameters for layer in plus.layers for part in layer.counted} == {(96 + 8) * 128}
    reward = read_config(SECOND / "llama-3-8b-rm.json")
    assert (a.parameters(reward).head, reward.labels, reward.tied) == (4096, 1, False)
    params = read_config(SECOND / "llama-3-8b-params.json")
    assert params.layers[0].ffn.d_ff == 14336 and params.layers[0].attention.rope.layout == "adjacent"


def test_an_adapter_is_named_for_what_it_is():
    said = r'an adapter \("LORA", rank 8\), .* beside those of "meta-llama/Llama-2-7b-hf": give the config.json of that model'
    with pytest.raises(ValueError, match=said):
        read_config(SECOND / "lora_adapter_config.json")
