"""lib.families: every published config.json right in both spellings."""

import copy
import json
import math

import pytest

from lib import arithmetic as a
from lib.config import MLA, MoE, Scaling
from lib.families import read_config
from lib.families.implied import why_naive_fails
from published import CONFIGS, FACTS, FILES, edited, raw, same
from tolerances import as_printed

AT = 131072

# ---- the table


def columns(cfg):
    p = a.parameters(cfg)
    return {
        "n_layers": cfg.n_layers,
        "d_model": cfg.d,
        "vocab": cfg.V,
        "tied": "y" if cfg.tied else "n",
        "total_params_exact": p.total,
        "embed_params_one_copy": p.embedding,
        "active_params_per_token": p.active,
        "kv_elements_per_token": a.kv_elements_per_token(cfg),
        "kv_bytes_per_token_bf16": a.kv_bytes_per_token(cfg),
        "extra_index_elements_per_token": a.extra_kv_elements_per_token(cfg),
        "kv_bytes_128k_no_cap": a.kv_bytes(cfg, AT, capped=False),
        "kv_bytes_128k_capped": a.kv_bytes(cfg, AT),
        "fixed_state_elements_per_sequence": a.state_elements(cfg),
    }


def wanted(row, column):
    """A dense model has no figure of its own for the active parameters: all are."""
    return row[column] or (row["total_params_exact"] if column == "active_params_per_token" else "")


def test_every_row_in_both_forms(capsys):
    lines, wrong, read = [], [], 0
    naive_wrong = naive_wrong_at = 0
    for row in FACTS:
        forms = [
            path
            for path in (CONFIGS / f"{row['model']}.json", CONFIGS / "v5" / f"{row['model']}.json")
            if path.exists()
        ]
        for path in forms:
            cfg, read = read_config(path), read + 1
            got = columns(cfg)
            wrong += [
                f"{path.relative_to(CONFIGS)}: {column} {value}, expected {wanted(row, column)}"
                for column, value in got.items()
                if str(value) != wanted(row, column)
            ]
        cfg = read_config(forms[0])
        truth, naive = a.kv_elements_per_token(cfg), a.naive_kv_elements_per_token(cfg)
        assert naive == int(row["naive_kv_elements_per_token"])
        naive_wrong += naive != truth
        naive_wrong_at += 2 * naive * AT != a.kv_bytes(cfg, AT)
        why = "; ".join(why_naive_fails(cfg, AT))
        assert bool(why) == (2 * naive * AT != a.kv_bytes(cfg, AT)), row["model"]
        lines.append(
            f"{row['model']:<26}{len(forms)} {a.parameters(cfg).total:>16,}{truth:>9,}{a.format_bytes(a.kv_bytes(cfg, AT)):>10}"
            f"{naive:>11,}  {why}"
        )
    with capsys.disabled():
        print(
            f"\n{'model':<24}forms {'parameters':>15}{'KV/token':>9}{'at 128K':>10}{'naive':>11}  why the naive formula is wrong"
        )
        print("\n".join(lines))
        print(
            f"{read} files, {len(columns(cfg))} columns each, {len(wrong)} wrong; the naive formula is wrong for"
        )
        print(f"{naive_wrong} of {len(FACTS)} models per token and for {naive_wrong_at} at 128K with windows")
    assert not wrong
    assert (len(FACTS), read) == (53, 102)
    assert (naive_wrong, naive_wrong_at) == (21, 26)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("v5/*.json")), ids=lambda path: path.stem)
def test_both_spellings_give_the_same_model(path):
    """Not only the same counts: the same layers, RoPE, scales and refusals."""
    new, old = read_config(path), read_config(CONFIGS / path.name)
    if (
        path.stem == "gpt-bigcode-1b"
    ):  # transformers 5 writes the KV-head count that the published file leaves out
        assert (old.stated_heads, new.stated_heads) == ((16, 16), (16, 1))
        new = new.replace(stated_heads=(16, 16))
    assert same(new, old)


def test_rope_bases_are_those_of_the_table():
    for row in FACTS:
        if row["model"] == "glm-4.7-flash":  # its mirror dropped the base
            continue
        cfg = read_config(CONFIGS / f"{row['model']}.json")
        got = {layer.attention.rope.base for layer in cfg.layers if layer.attention and layer.attention.rope}
        if row["model"] == "hunyuan-mt-7b":
            assert got == {10000.0 * 100000.0 ** (128 / 126)}  # a fixed alpha moves the base at any length
            continue
        want = {float(word) for word in row["rope_base"].replace("/", " ").split() if word[0].isdigit()}
        assert got == (set() if row["rope_base"].startswith("none") else want), row["model"]


def test_rotary_shares_windows_nope_and_norms_are_those_of_the_table():
    for row in FACTS:
        cfg = read_config(CONFIGS / f"{row['model']}.json")
        layers = [layer.attention for layer in cfg.layers if layer.attention]
        nope = sum(layer.rope is None for layer in layers)
        stated = row["nope_layers"]
        assert nope == (
            0 if stated == "none" else len(layers) if stated.startswith("all") else int(stated.split()[0])
        )
        sliding = sum(1 for layer in layers if getattr(layer, "window", None))
        pattern = row["window_pattern"]
        if "sliding /" in pattern or "chunked /" in pattern:
            assert sliding == int(pattern.split(":")[1].split()[0]), row["model"]
        elif pattern.startswith("none"):
            assert sliding == 0, row["model"]
        if row["rotary_fraction"] in ("0.25", "0.5"):
            assert {layer.rope.rotary_dim / layer.head_dim for layer in layers} == {
                float(row["rotary_fraction"])
            }
        qk = row["qk_norm"].startswith("y") and "L2" not in row["qk_norm"]
        assert any(getattr(layer, "qk_norm", False) for layer in layers) == qk, row["model"]
        assert cfg.norm.kind == ("rms" if row["norm_kind"].startswith("RMS") else "layer")
        if row["norm_kind"].startswith("LayerNorm") and "weight only" in row["norm_kind"]:
            assert not cfg.norm.bias


# ---- traps, one by one


def test_null_is_absent_for_heads_and_head_dim():
    fields = edited("llama-2-7b", head_dim=None, num_key_value_heads=None)
    attention = read_config(fields).layers[0].attention
    assert (attention.head_dim, attention.n_kv_heads) == (128, 32)
    assert "num_key_value_heads = 32" in read_config(fields).warnings[-1]


SPELLINGS = [
    {"rope_theta": 5e5, "rope_scaling": {"type": "llama3"}},
    {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"}},
    {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3"}},
    {"rope_parameters": {"full_attention": {"rope_theta": 5e5, "rope_type": "llama3"}}},
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=["type", "rope_type", "rope_parameters", "per kind"])
def test_four_spellings_of_one_rope(spelling):
    numbers = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    spelling = copy.deepcopy(spelling)
    entry = spelling.get("rope_scaling") or spelling["rope_parameters"]
    entry.get("full_attention", entry).update(numbers)
    rope = (
        read_config(edited("llama-3.1-8b", **{"rope_theta": ..., "rope_scaling": ..., **spelling}))
        .layers[0]
        .attention.rope
    )
    assert rope.base == 500000.0
    assert rope.scaling == Scaling("llama3", 8.0, 8192, 131072, 1.0, 4.0)


def test_no_rope_layers_holds_1_where_rope_turns():
    expected = [3, 7, 11, 15, 19, 23, 27, 31, 35]
    for changes in ({}, {"no_rope_layers": []}, {"no_rope_layers": None}, {"no_rope_layers": ...}):
        cfg = read_config(edited("smollm3-3b", **changes))
        assert [i for i, layer in enumerate(cfg.layers) if layer.attention.rope is None] == expected
    kept = edited("smollm3-3b", no_rope_layers=[0] + [1] * 35)
    assert [i for i, layer in enumerate(read_config(kept).layers) if layer.attention.rope is None] == [0]


def test_a_window_can_be_written_and_switched_off():
    assert read_config(CONFIGS / "qwen2.5-7b.json").layers[-1].attention.window is None
    on = read_config(edited("qwen2.5-7b", use_sliding_window=True, max_window_layers=20))
    assert [layer.attention.window for layer in on.layers] == [None] * 20 + [131072] * 8


def test_the_softmax_scale_comes_from_the_config():
    assert read_config(CONFIGS / "gemma-3-1b.json").layers[0].attention.scale == 256**-0.5
    assert read_config(edited("gemma-3-1b", query_pre_attn_scalar=168)).layers[0].attention.scale == 168**-0.5
    assert read_config(CONFIGS / "granite-3.3-8b.json").layers[0].attention.scale == 0.0078125
    assert read_config(CONFIGS / "llama-3-8b.json").layers[0].attention.scale is None
    scale = read_config(CONFIGS / "deepseek-v3.json").layers[0].attention.scale
    assert scale == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1) ** 2, rel=1e-12)
    as_printed(scale / 192**-0.5, 1.873854, 7)
    lite = read_config(CONFIGS / "deepseek-v2-lite.json").layers[0].attention
    assert lite.scale == pytest.approx(192**-0.5 * (0.0707 * math.log(40) + 1) ** 2, rel=1e-12)
    assert lite.q_lora_rank is None
    assert read_config(edited("deepseek-v2-lite", q_lora_rank=0)).layers[0].attention.q_lora_rank is None


def test_layouts():
    adjacent = (
        "deepseek-v3",
        "deepseek-v2-lite",
        "ernie-4.5-0.3b",
        "aya-23-8b",
        "glm-4-9b-chat",
        "llama-4-scout",
    )
    for name in adjacent:
        assert read_config(CONFIGS / f"{name}.json").layers[0].attention.rope.layout == "adjacent", name
    for name in ("llama-3-8b", "qwen3-8b", "pythia-410m", "gemma-2b", "glm-4.5"):
        assert read_config(CONFIGS / f"{name}.json").layers[0].attention.rope.layout == "half", name
    assert read_config(edited("deepseek-v3", rope_interleave=False)).layers[0].attention.rope.layout == "half"


def test_two_bases_two_shapes_and_scaling_on_full_layers_only():
    gemma = read_config(CONFIGS / "gemma-3-1b.json").layers
    assert [gemma[i].attention.rope.base for i in (4, 5)] == [10000.0, 1000000.0]
    assert [gemma[i].attention.window for i in (4, 5)] == [512, None]
    olmo = read_config(CONFIGS / "olmo-3-7b.json").layers
    assert olmo[2].attention.rope.scaling is None
    assert olmo[3].attention.rope.scaling.attention_factor == 1.2079441541679836
    four = read_config(CONFIGS / "gemma-4-26b-a4b.json").layers
    assert [(four[i].attention.n_kv_heads, four[i].attention.head_dim) for i in (4, 5)] == [
        (8, 256),
        (2, 512),
    ]
    assert four[5].attention.rope.rotary_dim == 128


def test_longrope_has_no_factor_and_its_training_length_stands_outside():
    scaling = read_config(CONFIGS / "phi-3.5-mini.json").layers[0].attention.rope.scaling
    assert (scaling.kind, scaling.factor, scaling.original_max_len, scaling.max_len) == (
        "longrope",
        32.0,
        4096,
        131072,
    )
    assert len(scaling.short_factor) == len(scaling.long_factor) == 48


def test_dynamic_scaling_starts_at_max_position_embeddings_and_goes_beyond():
    """As transformers computes it: original_max_position_embeddings is not part of the formula."""
    cfg = read_config(CONFIGS / "internlm2.5-7b.json")
    scaling = cfg.layers[0].attention.rope.scaling
    assert (scaling.kind, scaling.original_max_len, scaling.max_len, cfg.max_len) == (
        "dynamic", 32768, 65536, 65536,
    )  # fmt: skip
    both = {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4096}
    other = read_config(edited("internlm2.5-7b", rope_scaling=both))
    assert same(other, cfg) and "4096 is not used by dynamic scaling" in " ".join(other.warnings)


def test_a_share_of_the_head_in_a_class_that_turns_whole_heads_is_not_run():
    """transformers drops the field there, or fails: no published llama has it."""
    cfg = read_config(edited("llama-3-8b", partial_rotary_factor=0.5))
    assert cfg.unsupported == ("partial rotary in a class that turns whole heads",)
    assert "partial_rotary_factor turns 64 of 128 dimensions" in " ".join(cfg.warnings)
    assert not read_config(edited("llama-3-8b", partial_rotary_factor=1.0)).unsupported
    assert not read_config(edited("phi-3-mini-4k", partial_rotary_factor=0.75)).unsupported


def test_gemma_conventions():
    cfg = read_config(CONFIGS / "gemma-2b.json")
    assert (cfg.norm.unit_offset, cfg.norm.gain_last, cfg.embed_scale) == (True, True, 2048**0.5)
    assert cfg.layers[0].ffn.activation == "gelu_tanh"  # the file says gelu
    assert read_config(CONFIGS / "granite-3.3-8b.json").embed_scale == 12.0


def test_which_layers_have_experts():
    def sparse(cfg):
        return [i for i, layer in enumerate(cfg.layers) if isinstance(layer.ffn, MoE)]

    four = {"num_hidden_layers": 4, "decoder_sparse_step": 2}
    assert sparse(read_config(edited("qwen3-30b-a3b", **four))) == [1, 3]
    assert sparse(read_config(edited("qwen3-30b-a3b", **four, mlp_only_layers=[3]))) == [1]
    assert sparse(read_config(CONFIGS / "deepseek-v3.json")) == list(range(3, 61))
    dense = read_config(edited("deepseek-v3", first_k_dense_replace=61))
    assert sparse(dense) == []
    assert dense.unsupported == ()
    assert all(isinstance(layer.attention, MLA) for layer in dense.layers)


def test_a_head_count_that_the_class_ignores_is_ignored_and_reported():
    cfg = read_config(CONFIGS / "falcon-7b.json")
    assert cfg.layers[0].attention.n_kv_heads == 1
    assert any("num_kv_heads = 71 is ignored" in warning for warning in cfg.warnings)


def test_a_nested_model_may_tie_inside_or_outside():
    inner = raw("llama-3.2-1b")
    del inner["tie_word_embeddings"]
    assert read_config({"model_type": "llava", "text_config": inner, "tie_word_embeddings": True}).tied
    assert read_config({"model_type": "llava", "text_config": inner | {"tie_word_embeddings": True}}).tied
    both = read_config({"text_config": inner | {"tie_word_embeddings": True}, "tie_word_embeddings": False})
    assert both.tied  # the inner one counts, and both are named: published files disagree so
    said = (
        "tie_word_embeddings = false outside text_config is not used: text_config.tie_word_embeddings = true"
    )
    assert said in both.warnings


def test_further_published_models():
    """Fields of cited.csv for models whose whole file is not here, put into a file of the same family."""
    llama_405b = edited(
        "llama-3.1-8b",
        num_hidden_layers=126,
        hidden_size=16384,
        num_attention_heads=128,
        intermediate_size=53248,
    )
    assert a.parameters(read_config(llama_405b)).total == 405853388800
    qwen3_4b = edited(
        "qwen3-0.6b", num_hidden_layers=36, hidden_size=2560, num_attention_heads=32, intermediate_size=9728
    )
    assert a.parameters(read_config(qwen3_4b)).total == 4022468096
    assert a.kv_bytes_per_token(read_config(qwen3_4b)) == 147456
    oss_120b = edited("gpt-oss-20b", num_hidden_layers=36, num_local_experts=128, layer_types=...)
    assert a.kv_bytes(read_config(oss_120b), 1) == 73728


def test_infinity_where_it_sets_no_size_is_read():
    assert read_config(CONFIGS / "v5" / "nemotron-3-nano-30b-a3b.json").n_layers == 52
    fields = edited("nemotron-3-nano-30b-a3b", time_step_limit=[0.0, math.inf])
    assert read_config(json.loads(json.dumps(fields))).n_layers == 52


def test_an_unknown_field_is_listed_and_harmless_ones_are_not():
    cfg = read_config(edited("llama-3-8b", head_mixing=3, my_dropout=0.1, eos_token_id=[1, 2]))
    assert [w for w in cfg.warnings if "does not know" in w] == [
        "fields that this reader does not know, and did not use: head_mixing"
    ]


def test_every_field_of_every_published_file_is_known():
    unknown = [path.stem for path in FILES if any("does not know" in w for w in read_config(path).warnings)]
    assert unknown == []
