"""python -m lib describe: the page, the JSON, one clear line and exit code 2 on bad input; without torch."""

import json
import subprocess
import sys

import gguf
import numpy as np
import pytest

from lib import arithmetic as a
from lib.__main__ import main
from lib.families import read_config
from lib.families.describe import page
from lib.families.implied import as_json, why_naive_fails
from published import CONFIGS, FACTS

ASKED = [
    "model_type",
    "n_layers",
    "d",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "d_ff",
    "attention",
    "rope_base",
    "rope_scaling",
    "qk_norm",
    "tied",
    "parameters",
    "kv_elements_per_token",
    "kv_bytes_per_token",
    "kv_bytes_at_tokens",
    "naive_kv_elements_per_token",
    "warnings",
]


def text(name, **options):
    return page(read_config(CONFIGS / f"{name}.json"), **options)


def test_the_page_says_what_the_block_is_and_what_the_old_one_was():
    lines = text("qwen3-0.6b").splitlines()
    told = {
        line[2:17].strip(): line for line in reversed(lines) if line.startswith("  ")
    }  # the first of each label
    assert "RMSNorm; before each part" in told["norm"]
    assert "LayerNorm before each part" in told["norm"]
    assert "SwiGLU, 3 matrices, d_ff 3,072 = 3.00 d" in told["feed-forward"]
    assert "GQA 2:1, 16 query heads, 8 KV heads, each 128 wide" in told["attention"]
    assert "RoPE, base 1,000,000, half-split pairs" in told["positions"]
    assert "each head's q and k" in told["QK-norm"]
    assert "the embedding itself (tied)" in told["head"]
    assert "596,049,920 (596 million)" in told["total"]
    assert "57,344 elements, 112 KiB" in told["one token"]
    assert "28,672 per token (0.5 times the truth)" in told["usual formula"]
    assert "                 - a head is 128 wide, and d // h is 64" in lines
    assert "                 beyond the 40,960 tokens that the file declares" in lines


@pytest.mark.parametrize(
    ("name", "phrases"),
    [
        ("deepseek-v3", ["MLA, 128 heads, q and k 128 + 64 wide, v 128; cached: 512 + 64", "8 of 256 experts", "8.58 GiB"]),
        ("gemma-3-1b", ["512 tokens in 22 of 26 attention layers", "base 10,000, half", "base 1,000,000, half", "GeGLU"]),
        ("qwen3-next-80b-a3b", ["gated DeltaNet, in 36 of 48 layers: a fixed state", "64 of 256 dimensions turn"]),
        ("smollm3-3b", ["none (NoPE), 9 of 36 attention layers"]),
        ("gpt2", ["learned, added to the embedding", "GELU, 2 matrices, d_ff 3,072 = 4.00 d", "q, k, v, o, feed-forward"]),
        ("falcon-7b", ["MQA, 71 query heads, 1 KV head", "71 times the truth", "num_kv_heads = 71 is ignored"]),
        ("nemotron-super-49b", ["none at all in 31 of 80 layers", "d_ff from 2,816 to 28,672"]),
        ("olmo-2-7b", ["after each part, before the sum", "over the whole width"]),
        ("phi-3.5-mini", ["longrope scaling x32 beyond 4,096", "262,144 tokens in 32 of 32"]),
        ("gpt-oss-20b", ["does not run: attention sinks", "biases of experts and router"]),
        ("llama-1-7b", ["rope_theta is not in the file", "num_key_value_heads = 32"]),
        ("deepseek-v3.2", ["7,808 elements per token of an indexer", "index"]),
        ("llama-3-8b", ["2 L n_kv (d / h) is right for this model", "runs it"]),
    ],
)  # fmt: skip
def test_the_page_names_what_is_special(name, phrases):
    told = text(name)
    for phrase in phrases:
        assert phrase in told


def test_every_published_file_has_a_page_and_a_json():
    for row in FACTS:
        cfg = read_config(CONFIGS / f"{row['model']}.json")
        told = page(cfg, 4096, 3)
        assert "None" not in told, row["model"]
        facts = json.loads(json.dumps(as_json(cfg, 4096, 3), allow_nan=False))
        assert set(ASKED) <= set(facts)
        assert facts["parameters"] == int(row["total_params_exact"])
        assert facts["kv_bytes_at_tokens"] == a.kv_bytes(cfg, 4096, 3)
        assert f"{facts['parameters']:,}" in told


def test_json_has_plain_values_or_a_list_where_layers_differ():
    facts = as_json(read_config(CONFIGS / "qwen3-0.6b.json"))
    got = [
        facts[key]
        for key in (
            "n_heads",
            "n_kv_heads",
            "head_dim",
            "d_ff",
            "attention",
            "rope_base",
            "rope_scaling",
            "qk_norm",
            "tied",
        )
    ]
    assert got == [16, 8, 128, 3072, "GQA 2:1", 1000000, None, "head", True]
    facts = as_json(read_config(CONFIGS / "gemma-4-26b-a4b.json"))
    assert (facts["n_kv_heads"], facts["head_dim"], facts["rope_base"]) == (
        [2, 8],
        [256, 512],
        [10000, 1000000],
    )
    facts = as_json(read_config(CONFIGS / "deepseek-v3.json"), tokens=1)
    assert (facts["attention"], facts["n_kv_heads"], facts["kv_lora_rank"], facts["head_dim"]) == (
        "MLA",
        None,
        512,
        192,
    )
    assert facts["rope_scaling"] == {"kind": "yarn", "factor": 40, "original_max_len": 4096}
    assert facts["kv_bytes_at_tokens"] == 70272
    assert as_json(read_config(CONFIGS / "gpt2.json"))["rope_base"] is None


def test_no_reason_is_given_where_the_naive_formula_is_right():
    cfg = read_config(CONFIGS / "mistral-7b-v0.1.json")
    assert why_naive_fails(cfg, 4096) == []
    assert why_naive_fails(cfg, 4097) == ["windows cap 32 of 32 layers at 4,096 tokens"]


# ---- the command


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "lib", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_the_command_prints_the_page_and_loads_no_torch():
    code = "import sys; from lib.__main__ import main; code = main(sys.argv[1:]); print('torch' in sys.modules); sys.exit(code)"
    path = CONFIGS / "qwen3-0.6b.json"
    done = subprocess.run(
        [sys.executable, "-c", code, "describe", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == page(read_config(path), name="qwen3-0.6b") + "\nFalse\n"


def test_a_folder_and_its_tokens(tmp_path, capsys):
    folder = tmp_path / "Small-1B"
    folder.mkdir()
    (folder / "config.json").write_text((CONFIGS / "llama-3.2-1b.json").read_text())
    assert main(["describe", str(folder), "--tokens", "1000", "--batch", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["tokens"], facts["batch"], facts["kv_bytes_at_tokens"]) == (1000, 3, 3000 * 32768)
    assert main(["describe", str(folder / "config.json")]) == 0
    assert capsys.readouterr().out.startswith("Small-1B: llama, 16 layers")


def test_a_gguf_file(tmp_path, capsys):
    path = tmp_path / "toy.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, value in (("embedding_length", 96), ("block_count", 3), ("context_length", 512), ("feed_forward_length", 160),
                       ("attention.head_count", 4), ("attention.head_count_kv", 2), ("attention.key_length", 32)):  # fmt: skip
        writer.add_uint32(f"qwen3.{key}", value)
    writer.add_float32("qwen3.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32("qwen3.rope.freq_base", 1e6)
    writer.add_tensor("token_embd.weight", np.zeros((101, 96), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert main(["describe", str(path), "--json", "--tokens", "10"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["n_layers"], facts["n_kv_heads"], facts["head_dim"], facts["V"]) == (3, 2, 32, 101)
    assert (facts["tied"], facts["rope_base"], facts["kv_elements_per_token"]) == (
        True,
        1000000,
        3 * 2 * 2 * 32,
    )
    assert facts["warnings"] == []


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("{", (), "is not JSON"),
        ("[]", (), "holds a JSON list"),
        ('{"model_type": "unheard_of"}', (), 'model_type "unheard_of" is not known'),
        ('{"model_type": "llama", "hidden_size": Infinity}', (), "hidden_size = inf: expected a whole number"),
        ("GGUF, and then nothing", (), "config.json"),
        (None, ("--tokens", "-3"), "tokens = -3"),
        (None, ("--batch", "0"), "batch = 0"),
        (None, ("--bandwidth", "0"), "bandwidth = 0"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, content, words, message):
    path = tmp_path / "config.json"
    path.write_text((CONFIGS / "gpt2.json").read_text() if content is None else content)
    assert main(["describe", str(path), *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("describe: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err


def test_a_missing_file_and_an_unknown_command():
    done = run("describe", "no/such/config.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "describe: no/such/config.json: no such file; expected a config.json, a model folder or a .gguf file\n"
    )
    done = run("frobnicate")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m lib describe PATH")
    assert run("--help").returncode == 0
