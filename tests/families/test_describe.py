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
from lib.families.implied import added, as_json, cache_kinds, lengths, why_naive_fails
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
    assert " ".join(told["GQA 2:1 in 28 o"].split()[7:]) == "112 KiB 448 MiB 3.5 GiB 14 GiB"
    assert "    28 x 8 x (128 + 128); num_key_value_heads 8, head_dim 128" in lines
    assert "28,672 per token (0.5 times the truth)" in told["usual formula"]
    assert "                 - a head is 128 wide, and d // h is 64" in lines
    assert "  at 131,072     beyond the 40,960 tokens that the file declares" in lines


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
        ("deepseek-v3.2", ["a sparse-attention indexer in 61 of 61 layers", "61 x 128", "index_head_dim 128"]),
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


# ---- the cache by kind of layer, on one GPU and on several


def test_kinds_of_layers_add_up_to_the_whole_cache():
    for row in FACTS:
        cfg = read_config(CONFIGS / f"{row['model']}.json")
        kinds, at = cache_kinds(cfg, 70_000, 3, gpus=1), lengths(70_000)
        assert at == (2187, 17500, 70000)
        assert added(kinds, "bytes_at") == [a.sequence_bytes(cfg, t, 3) for t in at], row["model"]
        assert added(kinds, "bytes_at_per_gpu") == added(kinds, "bytes_at")  # one GPU holds everything
        each = a.kv_bytes_per_token(cfg) + 2 * a.extra_kv_elements_per_token(cfg)
        assert added(kinds, "bytes_per_token") == each


@pytest.mark.parametrize(
    ("name", "per_gpu", "spread"),
    [  # hand-computed: bytes per token on each of 8 GPUs
        ("llama-3-8b", [2 * 32 * 1 * 256], ["split: 1 of 8 KV heads on each"]),
        ("llama-2-7b", [2 * 32 * 4 * 256], ["split: 4 of 32 KV heads on each"]),
        ("qwen3-30b-a3b", [2 * 48 * 1 * 256], ["replicated: 1 of 4 KV heads on each, so 2 copies of each head"]),
        ("deepseek-v3", [2 * 61 * 576], ["whole on each: a latent has no heads to split"]),
        ("phi-4", [None], ["40 query heads and 10 KV heads do not divide evenly over 8 GPUs; over 5 they would"]),
    ],
)  # fmt: skip
def test_tensor_parallelism_splits_heads_and_copies_what_has_none(name, per_gpu, spread):
    kinds = cache_kinds(read_config(CONFIGS / f"{name}.json"), 1000)
    assert [kind["bytes_per_token_per_gpu"] for kind in kinds] == per_gpu
    assert [kind["spread"] for kind in kinds] == spread


def test_a_field_stands_behind_a_number_only_where_it_says_that_number():
    falcon = read_config(CONFIGS / "falcon-7b.json")  # num_kv_heads 71 and multi_query: one KV head
    assert cache_kinds(falcon, 100)[0]["fields"] == {"head_dim": 64}
    facts = as_json(falcon)
    stated = {row["key"]: (row["value"], row["from"]) for row in facts["fields"]}
    assert stated["multi_query"] == (True, "file")
    assert stated["num_kv_heads"] == (71, "file")
    assert stated["head_dim"] == (64, "class")
    assert "multi_query true" in page(falcon)
    assert "head_dim 64*" in page(falcon)


def test_every_size_of_every_published_file_has_its_field_on_the_page():
    for row in FACTS:
        cfg = read_config(CONFIGS / f"{row['model']}.json")
        stated = {field["name"]: field["value"] for field in as_json(cfg)["fields"]}
        assert (stated["V"], stated["d"]) == (cfg.V, cfg.d), row["model"]
        for kind in cache_kinds(cfg, 100):
            if kind["kind"].startswith(("GQA", "MHA", "MQA", "MLA")):
                assert kind["fields"], row["model"]


def test_json_has_what_the_page_counts_and_what_not():
    facts = as_json(read_config(CONFIGS / "gpt-oss-20b.json"), 4096, gpus=4)
    assert [kind["kind"] for kind in facts["cache_by_kind"]] == ["GQA 8:1, window 128", "GQA 8:1"]
    assert facts["cache_lengths"] == [128, 1024, 4096]
    assert facts["cache_bytes_at_lengths"] == [
        24 * 2048 * 128,
        12 * 2048 * (128 + 1024),
        12 * 2048 * (128 + 4096),
    ]
    assert facts["cache_bytes_at_lengths_per_gpu"] == [x // 4 for x in facts["cache_bytes_at_lengths"]]
    assert facts["counted"][0] == {
        "name": "attention sinks",
        "layers": 24,
        "parameters": 1536,
        "active": 1536,
    }
    assert facts["not_counted"] == ["activations, workspace, pages and padding of an engine"]
    mtp = as_json(read_config(CONFIGS / "deepseek-v3.json"))["not_counted"]
    assert any("MTP" in text for text in mtp)


def test_two_files_side_by_side(capsys):
    paths = [str(CONFIGS / f"{name}.json") for name in ("llama-3-8b", "deepseek-v3")]
    assert main(["describe", "--compare", *paths, "--tokens", "4096", "--gpus", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = {line[2:28].strip(): line for line in reversed(lines) if line.startswith("  ")}
    assert lines[0].split() == ["llama-3-8b", "deepseek-v3"]
    assert told["parameters"].split()[1::3] == ["8,030,261,248", "671,026,404,352"]
    assert told["at 4,096, each of 2 GPUs"].split()[-4:] == ["256", "MiB", "274", "MiB"]
    assert told["windows"].split()[1] == "="  # none in either
    assert told["attention"].split()[1] != "="
    assert all(len(line) <= 140 for line in lines)
    assert main(["describe", "--compare", *paths, "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both == [json.loads(json.dumps(as_json(read_config(path)))) for path in paths]
    for wrong in (["describe"], ["describe", paths[0], "--compare", *paths]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)
        assert "give one PATH, or --compare A B" in capsys.readouterr().err


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
        (None, ("--tokens", "1" + "0" * 30), "tokens = 1" + "0" * 30),
        (None, ("--bandwidth", "-3"), "bandwidth = -3 GB/s"),
        (None, ("--bandwidth", "1e300"), "bandwidth = 1e+300 GB/s"),
        (None, ("--batch", "0"), "batch = 0"),
        (None, ("--gpus", "0"), "gpus = 0"),
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
