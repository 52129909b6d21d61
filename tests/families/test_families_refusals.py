"""lib.families: what cannot be read is refused by a message that names the field."""

import math

import pytest

from lib.families import read_config
from lib.families.config_file import LARGEST_FILE
from published import CONFIGS, edited

# ---- refusals


def test_an_unknown_model_type_is_refused_by_name():
    with pytest.raises(ValueError, match=r'"blocknet" is not known here, so no number is given for it$'):
        read_config(edited("llama-3-8b", model_type="blocknet"))
    with pytest.raises(ValueError, match=r'"qwen33" is not known.* nearest known names are qwen3'):
        read_config(edited("llama-3-8b", model_type="qwen33"))
    with pytest.raises(ValueError, match="model_type = null: expected the name"):
        read_config(edited("llama-3-8b", model_type=...))


BAD = [
    ("llama-3-8b", {"hidden_size": ...}, "hidden_size is missing: a llama cannot be read without it"),
    ("llama-3-8b", {"hidden_size": "4096"}, r'hidden_size = "4096": expected a whole number'),
    ("llama-3-8b", {"hidden_size": 4096.0}, "hidden_size = 4096.0: .*write 4096 without a decimal point"),
    ("llama-3-8b", {"hidden_size": math.inf}, "hidden_size = inf: expected a whole number"),
    ("llama-3-8b", {"hidden_size": math.nan}, "hidden_size = nan"),
    ("llama-3-8b", {"hidden_size": -4096}, "hidden_size = -4096"),
    ("llama-3-8b", {"hidden_size": True}, "hidden_size = true"),
    ("llama-3-8b", {"vocab_size": 10**12}, "vocab_size = 1000000000000"),
    ("llama-3-8b", {"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000: expected a whole number from 1 to 10,000"),
    ("llama-3-8b", {"num_hidden_layers": [32]}, r"num_hidden_layers = \[32\]"),
    ("llama-3-8b", {"num_key_value_heads": 64}, "num_key_value_heads = 64 and num_attention_heads = 32"),
    ("llama-3-8b", {"num_key_value_heads": 5}, "same whole number of query heads"),
    ("llama-3-8b", {"num_attention_heads": 24}, "hidden_size = 4096 is not divisible by num_attention_heads = 24"),
    ("llama-3-8b", {"head_dim": 127}, "rotary_dim: 127 of 127 dimensions would turn; expected an even number"),
    ("llama-3-8b", {"head_dim": 128, "kv_channels": 64}, "head_dim = 128 and kv_channels = 64 mean the same and disagree"),
    ("llama-3-8b", {"tie_word_embeddings": "yes"}, 'tie_word_embeddings = "yes": expected true or false'),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention = true: it adds parts to the layers that are not read here"),
    ("llama-3-8b", {"hidden_act": "snake"}, 'hidden_act = "snake": known are silu'),
    ("llama-3-8b", {"rms_norm_eps": 0}, "rms_norm_eps = 0: expected a positive number"),
    ("llama-3-8b", {"rope_theta": "1e6"}, 'rope_theta = "1e6": expected a positive number'),
    ("llama-3-8b", {"rope_theta": 0.5}, "rope_theta = 0.5: a RoPE base is above 1"),
    ("llama-3-8b", {"rope_parameters": {"rope_theta": 1e4}}, r"rope_parameters.rope_theta = 10000.0 and rope_theta = 500000.0 disagree"),
    ("llama-3-8b", {"rope_scaling": {"type": "cubic", "factor": 2}}, 'rope_scaling.type = "cubic": known kinds'),
    ("llama-3-8b", {"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
    ("llama-3-8b", {"rope_scaling": {"factor": 2.0}}, "rope_scaling.factor is given without rope_scaling.rope_type"),
    ("llama-3-8b", {"rope_scaling": [8]}, r"rope_scaling = \[8\]: expected an object"),
    ("llama-3.1-8b", {"rope_parameters": {"rope_type": "default"}}, "describe different scalings"),
    ("llama-3.1-8b", {"original_max_position_embeddings": 4096}, "8192 and original_max_position_embeddings = 4096 disagree"),
    ("llama-3-8b", {"layer_types": ["sliding_attention"] * 32}, "layer_types names windows, and a llama has none"),
    ("llama-3-8b", {"layer_types": ["full_attention"] * 31}, "layer_types has 31 entries: expected one per layer, 32"),
    ("olmo-3-7b", {"layer_types": ["round_attention"] * 32}, 'layer_types holds "round_attention"'),
    ("olmo-3-7b", {"sliding_window": None}, "sliding_window is null, and a olmo3 has windows"),
    ("pythia-410m", {"partial_rotary_factor": 0.5}, "disagree about how much of a head of 64 turns"),
    ("pythia-410m", {"rotary_pct": 1.5}, "rotary_pct = 1.5: a share of the head is at most 1"),
    ("minimax-m2.5", {"rotary_dim": ...}, "rotary_dim is missing"),
    ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok = 9 of num_local_experts = 8"),
    ("mixtral-8x7b", {"num_experts_per_tok": ...}, "num_experts_per_tok is missing"),
    ("deepseek-v3", {"q_lora_rank": ...}, "q_lora_rank is missing"),
    ("deepseek-v3", {"num_key_value_heads": 10**400}, "num_key_value_heads = 1000000.*expected a whole number"),
    ("deepseek-v3", {"kv_lora_rank": None}, "kv_lora_rank is null"),
    ("deepseek-v3", {"n_routed_experts": ...}, "n_routed_experts is missing"),
    ("v5/deepseek-v3.2", {"first_k_dense_replace": 5}, "mlp_layer_types and first_k_dense_replace disagree"),
    ("deepseek-v3", {"qk_head_dim": 100}, "qk_head_dim = 100: expected"),
    ("smollm3-3b", {"no_rope_layers": [1, 0]}, "no_rope_layers has 2 entries: expected one per layer, 36"),
    ("smollm3-3b", {"no_rope_layers": [2] * 36}, "no_rope_layers holds 2"),
    ("gpt-oss-20b", {"rope_scaling": ...}, "rope_scaling is missing: the class of gpt_oss"),
    ("gemma-4-26b-a4b", {"num_kv_shared_layers": 4}, "num_kv_shared_layers = 4: .* not read here"),
    ("nemotron-super-49b", {"block_configs": [{}] * 80}, r"block_configs\[0\].attention = null: expected an object"),
    ("nemotron-3-nano-30b-a3b", {"hybrid_override_pattern": "MEX"}, 'hybrid_override_pattern = "MEX": known letters'),
    ("nemotron-3-nano-30b-a3b", {"num_hidden_layers": 51}, "num_hidden_layers = 51, and the pattern has 52 blocks"),
    ("minimax-m1", {"attn_type_list": ...}, "attn_type_list is missing"),
    ("minimax-m1", {"attn_type_list": [2] * 80}, "attn_type_list holds 2"),
    ("phi-3.5-mini", {"original_max_position_embeddings": ...}, "longrope scaling cannot be computed without it"),
    ("gpt-bigcode-1b", {"num_key_value_heads": 16}, "num_key_value_heads = 16 and multi_query, which means 1, disagree"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes", "message"), BAD, ids=[f"{n}-{'-'.join(c)}-{i}" for i, (n, c, _) in enumerate(BAD)]
)
def test_bad_fields_are_named(name, changes, message):
    with pytest.raises(ValueError, match=message):
        read_config(edited(name, **changes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"not json at all", "is not JSON"),
        (b"", "is not JSON"),
        (b"[1, 2]", "holds a JSON list: expected one object of fields"),
        (b'"llama"', "holds a JSON str"),
        (b"\xff\xfe\x00{", "is not UTF-8 text"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "hidden_size is given twice, as 1 and 2"),
        (b'{"a":' * 50_000, "nested too deeply|is not JSON"),
        (b'{"model_type": "llama", "hidden_size": Infinity}', "hidden_size = inf"),
        (b'{"hidden_size": ' + b"9" * 6000 + b"}", r"99999999999999999999\.\.\. has 6000 digits"),
    ],
)  # fmt: skip
def test_files_that_are_no_config(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=message):
        read_config(path)


def test_a_file_of_100_mb_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100_000_000)  # a hole: no byte is written, none must be read
    with pytest.raises(ValueError, match=r"100,000,000 bytes: a config.json has a few thousand"):
        read_config(path)
    assert LARGEST_FILE < 100_000_000


def test_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_config(tmp_path / "config.json")
    with pytest.raises(FileNotFoundError, match="has no config.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text((CONFIGS / "qwen3-0.6b.json").read_text())
    cfg = read_config(CONFIGS / "qwen3-0.6b.json")
    assert (
        read_config(tmp_path)
        == read_config(str(tmp_path))
        == read_config(tmp_path / "model.safetensors")
        == cfg
    )
    with pytest.raises(ValueError, match="read_config got int: expected a path or a dictionary"):
        read_config(7)
