"""Public faults, third part: cache arithmetic, parameter counts, config files, weight files, memory. See test_cases.py."""

import json
from dataclasses import replace

import pytest
import torch

import parity
import toys
from case_tools import CASES, DATA, close, register
from lib import (
    KVCache,
    kv_bytes,
    kv_bytes_per_token,
    kv_cache_bytes,
    load_model,
    mla_cache_bytes,
    parameters,
    read_config,
)
from lib.arithmetic import flops_per_token, naive_kv_elements_per_token
from lib.config import MoE, llama_style
from lib.files.checkpoint import Folder
from lib.files.plan import split_rows
from lib.gpt2 import gpt2_style

COVERED, case = register()


def raw(name, **changes):
    return {**json.loads((DATA / "configs" / f"{name}.json").read_text()), **changes}


def config(name, **changes):
    return read_config(raw(name, **changes))


def qwen3_4b(**changes):
    """The 8B's file with the 4B's sizes: its head_dim is 128, not 2560 / 32."""
    sizes = {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "intermediate_size": 9728,
        "tie_word_embeddings": True,
    }
    return config("qwen3-8b", **sizes, **changes)


# ---- cache arithmetic


@case("KV-01")
def _(e):
    assert kv_bytes_per_token(config("llama-2-7b")) == e["bytes"] == kv_cache_bytes(32, 32, 128)


@case("KV-03")
def _(e):
    for tokens, gib in e.items():
        assert kv_bytes(config("llama-3-70b"), int(tokens)) == gib * 2**30


@case("KV-04")
def _(e):
    attention = config("llama-3-8b").layers[0].attention  # 32 query heads
    assert (attention.n_kv_heads, attention.group_size) == (e["kv_heads"], 4)


@case("KV-05")
def _(e):
    assert (
        kv_bytes_per_token(qwen3_4b()) == e["qwen3_4b"]
        and 2 * naive_kv_elements_per_token(qwen3_4b()) == 92_160
    )
    assert kv_bytes_per_token(config("mistral-small-24b-2501")) == e["ms24"]
    assert kv_bytes_per_token(config("gpt-oss-20b")) == e["oss20"]
    assert kv_cache_bytes(46, 16, 128, bytes_per_element=1) == e["gemma2_27b_8bit"]


@case("KV-06")
def _(e):
    v3 = config("deepseek-v3")
    assert kv_bytes_per_token(v3) == e["bytes"] == mla_cache_bytes(61, 512, 64)
    a = v3.layers[0].attention
    assert 61 * a.n_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim) * 2 == e["naive"]
    assert mla_cache_bytes(1, 512, 64, 65536, bytes_per_element=0.5) == e["per_layer_4bit_64k"]
    lm = toys.model("mla")  # and as really held: one latent and one rope key, no factor 2
    assert toys.feed(lm, toys.tokens(2, 9), [9])[1].nbytes == 2 * 9 * (18 + 8) * 4


@case("KV-07")
def _(e):
    oss = config("gpt-oss-20b")
    assert kv_bytes(oss, 8192, 32) == e["needed"]
    assert kv_bytes(oss, 8192, 32, capped=False) == e["allocated"]
    assert kv_cache_bytes(36, 8, 64) == e["oss120_tok"]


@case("KV-11")
def _(e):
    held = kv_bytes(config("llama-2-7b"), 2048)
    assert held == e["bytes"] and held / 2**30 == e["gib"] and held / 1e9 == e["gb"]


@case("KV-12")
def _(e):
    x = torch.tensor([e["bf16"]], dtype=torch.bfloat16)
    assert x.view(torch.float16).item() == e["as_fp16"]  # the bits taken for another type
    cache = KVCache(1, 4, 1, 1, dtype=torch.float16)
    with pytest.raises(ValueError, match="cache holds torch.float16, the new tokens are torch.bfloat16"):
        cache.append(x.view(1, 1, 1, 1), x.view(1, 1, 1, 1))


@case("KV-13")
def _(e):
    assert kv_cache_bytes(32, 32, 128) == e["bytes"]
    cache = KVCache(2, 8, 4, 16)
    cache.append(torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16))
    assert (
        cache.k.nbytes == e["nbytes"] and cache.nbytes == 2 * e["nbytes"]
    )  # K and V, no Q, no item size twice


# ---- parameter counts and ties


@case("TIE-01")
def _(e):
    for sizes, right in zip(((288, 6, 6, 768), (512, 8, 8, 1376), (768, 12, 12, 2048)), e["right"]):
        d, n_layers, heads, d_ff = sizes
        cfg = llama_style(32000, d, n_layers, heads, heads, d_ff, tie=True, qk_norm=False)
        assert parameters(cfg).total == right
    assert parameters(cfg.replace(tied=False)).total == 134_105_856  # the tied matrix counted twice
    lm = toys.model("gqa")
    assert sum(t.numel() for t in lm.state_dict().values()) - parameters(lm.config).total == 97 * 60


@case("TIE-02")
def _(e):
    assert parameters(gpt2_style(50257, 768, 12, 12)).total == e["total"]
    assert parameters(gpt2_style(50257, 768, 12, 12, tie=False)).total == 163_037_184


@case("TIE-03")
def _(e):
    assert parameters(qwen3_4b()).total == e["qwen3_4b"]
    assert parameters(config("qwen3-0.6b")).total == e["qwen3_06b"]
    assert parameters(config("llama-3.2-1b")).total == e["l32_1b"]
    assert parameters(config("llama-3.2-1b").replace(tied=False)).total == 1_498_482_688


@case("TIE-04")
def _(e):
    tied = config("llama-3.2-1b")
    assert 2 * tied.V * tied.d == e["head_flops"]
    assert flops_per_token(tied) == flops_per_token(tied.replace(tied=False))
    wider = flops_per_token(tied.replace(V=tied.V + 1)) - flops_per_token(tied)
    assert wider == 2 * tied.d  # a vocabulary entry costs its row of the head; the look-up is free


@case("TIE-06")
def _(e):
    nested = {"model_type": "llava", "text_config": {**raw("llama-3.2-1b"), "tie_word_embeddings": True}}
    assert read_config(nested).tied


# ---- config files


@case("CFG-01")
def _(e):
    a = config("llama-2-7b", head_dim=None, num_key_value_heads=None).layers[0].attention
    assert (a.head_dim, a.n_kv_heads) == (e["head_dim"], e["kv"])


@case("CFG-02")
def _(e):
    cfg = qwen3_4b()
    a = cfg.layers[0].attention
    assert a.n_heads * a.head_dim * cfg.d == e["q_numel"] and a.head_dim == 128 != cfg.d // a.n_heads


@case("ROPE-16")
def _(e):
    old = raw("llama-3-8b")
    old.pop("rope_theta")
    nested = read_config({**old, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})
    flat = read_config({**old, "rope_theta": 1000000.0, "rope_scaling": None})
    for cfg, angle in ((nested, e["a"]), (flat, e["b"])):
        assert 1000 * cfg.layers[0].attention.rope.base ** -0.5 == pytest.approx(angle)
    missing = read_config(old)  # the class default 10,000, and a warning that says so
    assert missing.layers[0].attention.rope.base == 10000.0 and "rope" in " ".join(missing.warnings)


@case("CFG-04")
def _(e):
    plain = raw("llama-3.1-8b")
    scaling = {k: v for k, v in plain.pop("rope_scaling").items() if k not in ("type", "rope_type")}
    plain.pop("rope_theta", None)
    spellings = [
        {"rope_theta": 500000.0, "rope_scaling": {**scaling, "type": "llama3"}},
        {"rope_theta": 500000.0, "rope_scaling": {**scaling, "rope_type": "llama3"}},
        {"rope_parameters": {**scaling, "rope_type": "llama3", "rope_theta": 500000.0}},
        {"rope_parameters": {"full_attention": {**scaling, "rope_type": "llama3", "rope_theta": 500000.0}}},
    ]
    ropes = [read_config({**plain, **spelling}).layers[0].attention.rope for spelling in spellings]
    assert (
        all(rope == ropes[0] for rope in ropes)
        and ropes[0].scaling.kind == "llama3"
        and ropes[0].base == 500000.0
    )


@case("CFG-06")
def _(e):
    for changes in ({}, {"no_rope_layers": []}):
        cfg = config("smollm3-3b", **changes)
        assert [i for i, layer in enumerate(cfg.layers) if layer.attention.rope is None] == e["nope"]


@case("CFG-07")
def _(e):
    mixtral = parameters(config("mixtral-8x7b"))
    assert (mixtral.total, mixtral.active) == (e["total"], e["active"])
    sparse = config("qwen3-30b-a3b", decoder_sparse_step=2, num_hidden_layers=4)
    assert [i for i, layer in enumerate(sparse.layers) if isinstance(layer.ffn, MoE)] == e["moe_layers"]


# ---- weight files and memory


@case("LOAD-01")
def _(e):
    fused = torch.arange(128.0)[:, None]
    parts = split_rows(fused, e["split"])
    assert [len(p) for p in parts] == e["split"] and parts[1][0].item() == 64
    assert [len(p) for p in fused.chunk(3)] == [43, 43, 42]  # never raises


@case("LOAD-02")
def _(e):
    def rows(n, sizes, groups):
        return {k: p.tolist() for k, p in zip("qkv", split_rows(torch.arange(n), sizes, "grouped", groups))}

    assert rows(12, [4, 4, 4], 2) == e["neox"] and rows(8, [4, 2, 2], 2) == e["grouped"]
    assert next(p.tolist() for p in split_rows(torch.arange(12), [4, 4, 4])) == [0, 1, 2, 3]


@case("LOAD-04")
def _(e, folder):
    """The bytes as a safetensors file holds them, through the loader's own reader."""
    header = json.dumps({"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    header += b" " * (-len(header) % 8)
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes.fromhex("803FC0BF4940")
    )
    x = Folder(folder).read("x")
    assert x.dtype == torch.bfloat16 and x.tolist() == e["values"]
    close(x.view(torch.float16), [1.875, -1.9375, 2.142578], 7)


@case("LOAD-07")
def _(e):
    for short, name in (("smol", "smollm2-135m"), ("q06", "qwen3-0.6b"), ("l1b", "llama-3.2-1b")):
        total = parameters(config(name)).total
        assert (2 * total, 4 * total) == (e[f"{short}_bf16"], e[f"{short}_fp32"])


@case("ENV-01")
def _(e):
    assert 2 * parameters(config("smollm2-135m")).total == e["smol_bf16"] < 1e9 < e["q06_bf16"]
    assert 2 * parameters(config("qwen3-0.6b")).total == e["q06_bf16"]


@case("ENV-02")
def _(e):
    assert 3 * 4 * parameters(config("smollm2-135m")).total == e["bytes"]


@pytest.mark.parametrize("name", sorted(COVERED))
def test_case(name, tmp_path):
    extra = (tmp_path,) if name == "LOAD-04" else ()
    COVERED[name](CASES[name]["expected"], *extra)


def test_a_checkpoint_without_a_head(tmp_path):
    """TIE-06, re-run with files: tied by the config, one storage; not tied, an error and never a random head."""
    from safetensors.torch import load_file, save_file

    kind, fields = parity.FAMILIES["Llama 3.2 (tied)"]
    parity.build(kind, fields).save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    tied = load_model(tmp_path)
    assert tied.head.weight is tied.emb.weight
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tie_word_embeddings": False}))
    with pytest.raises(ValueError, match="lm_head.weight"):
        load_model(tmp_path)
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="missing"):
        load_model(tmp_path)


def test_layers_of_unequal_kind_add_up():
    cfg = toys.config("mla_and_window")
    one = [kv_bytes(cfg.replace(layers=(layer,)), 17, 3, 4) for layer in cfg.layers]
    assert kv_bytes(cfg, 17, 3, 4) == sum(one)
    wide = replace(cfg.layers[1].attention, window=None)
    assert kv_bytes(cfg.replace(layers=(replace(cfg.layers[1], attention=wide),)), 17, 3, 4) > one[1]
