"""lib.files: files of weights from other people, and everything that can be wrong with them."""

import json
import struct
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

import toys
from lib import LlamaStyleLM, load_model, load_tokenizer, open_gguf, permute_heads
from lib.config import MLA, Layer, ModelConfig
from lib.families import read_config
from lib.files.names import hf_name
from lib.files.plan import split_rows
from lib.files.tokenizers import gguf_tokenizer
from lib.files.weights import GGUFSource
from published import FILES
from tolerances import assert_close, distance, model_sums, rtol

V, D, H, N_KV, DH, D_FF, LAYERS = 53, 24, 6, 2, 8, 40, 3  # head_dim is not D / H
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": H,
    "num_key_value_heads": N_KV,
    "head_dim": DH,
    "intermediate_size": D_FF,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}


def llama_tensors(tied=False, seed=0):
    """A llama checkpoint written out by name: the test's own knowledge of the layout, apart from the table in lib."""
    draw = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    if not tied:
        shapes["lm_head.weight"] = (V, D)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes |= {f"{at}self_attn.q_proj.weight": (H * DH, D), f"{at}self_attn.o_proj.weight": (D, H * DH)}
        shapes |= {f"{at}self_attn.{x}_proj.weight": (N_KV * DH, D) for x in "kv"}
        shapes |= {f"{at}mlp.{x}_proj.weight": (D_FF, D) for x in ("gate", "up")}
        shapes |= {f"{at}mlp.down_proj.weight": (D, D_FF)}
        shapes |= {f"{at}{x}_layernorm.weight": (D,) for x in ("input", "post_attention")}
    return {
        name: torch.randn(shape, generator=draw) * 0.2 + (len(shape) == 1) for name, shape in shapes.items()
    }


def write_folder(path, tensors, config=None, shards=None):
    """A Hugging Face folder; shards: file name -> tensor names, with the index that says so."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG | (config or {})))
    if shards is None:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return path
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, path / file)
    write_index(path, {name: file for file, names in shards.items() for name in names})
    return path


def write_index(path, weight_map):
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def two_shards(tensors):
    names = sorted(tensors)
    return {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "toy", llama_tensors())


def test_every_tensor_lands_in_its_place(folder):
    model, stored = load_model(folder), llama_tensors()
    ours = dict(model.named_parameters())
    assert len(ours) == len(stored)
    assert torch.equal(ours["emb.weight"], stored["model.embed_tokens.weight"])
    assert torch.equal(ours["head.weight"], stored["lm_head.weight"])
    for i in range(LAYERS):
        for mine, theirs in {
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
            "attn.wq": "self_attn.q_proj",
            "attn.wk": "self_attn.k_proj",
            "attn.wv": "self_attn.v_proj",
            "attn.wo": "self_attn.o_proj",
            "ffn.w_gate": "mlp.gate_proj",
            "ffn.w_up": "mlp.up_proj",
            "ffn.w_down": "mlp.down_proj",
        }.items():
            assert torch.equal(
                ours[f"blocks.{i}.{mine}.weight"], stored[f"model.layers.{i}.{theirs}.weight"]
            ), mine


def test_the_loaded_model_is_ready_and_asks_for_no_gradient(folder):
    model = load_model(folder)
    assert isinstance(model, LlamaStyleLM) and not model.training
    assert not any(p.requires_grad or p.is_meta for p in model.parameters())
    assert model(toys.tokens(2, 5, vocab=V)).shape == (2, 5, V)


def test_weights_of_the_stored_dtype_are_mapped_and_a_change_stays_out_of_the_file(folder):
    model = load_model(folder)
    with torch.no_grad():
        model.emb.weight.zero_()
    assert torch.equal(
        load_file(folder / "model.safetensors")["model.embed_tokens.weight"],
        llama_tensors()["model.embed_tokens.weight"],
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtype_is_converted_once_for_every_parameter(folder, dtype):
    model, exact = load_model(folder, dtype), load_model(folder)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert torch.equal(model.blocks[1].ffn.w_up.weight, exact.blocks[1].ffn.w_up.weight.to(dtype))


def test_dtype_none_keeps_a_bfloat16_checkpoint_in_bfloat16(tmp_path):
    tensors = {name: w.bfloat16() for name, w in llama_tensors().items()}
    model = load_model(write_folder(tmp_path / "toy", tensors))
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    with pytest.raises(ValueError, match="floating-point"):
        load_model(tmp_path / "toy", torch.int8)


def test_bfloat16_bytes_are_read_as_bfloat16(tmp_path):
    tensors = {name: w.bfloat16() for name, w in llama_tensors().items()}
    tensors["model.norm.weight"][:3] = torch.tensor([1.0, -1.5, 3.140625])
    path = write_folder(tmp_path / "toy", tensors)
    assert bytes.fromhex("803fc0bf4940") in (path / "model.safetensors").read_bytes()
    assert load_model(path, torch.float32).norm.weight[:3].tolist() == [1.0, -1.5, 3.140625]


def test_shards_give_the_same_model_as_one_file(folder, tmp_path):
    tensors = llama_tensors()
    sharded = load_model(write_folder(tmp_path / "sharded", tensors, shards=two_shards(tensors)))
    idx = toys.tokens(2, 7, vocab=V)
    assert torch.equal(sharded(idx), load_model(folder)(idx))


def test_a_tied_head_is_one_storage(tmp_path):
    model = load_model(
        write_folder(tmp_path / "tied", llama_tensors(tied=True), {"tie_word_embeddings": True})
    )
    assert model.head.weight is model.emb.weight
    assert "head.weight" not in dict(model.named_parameters())


def test_a_tied_matrix_may_be_stored_twice_but_not_differ(tmp_path):
    tensors, tied = llama_tensors(), {"tie_word_embeddings": True}
    with pytest.raises(ValueError, match=r"ties the head, and lm_head.weight is not the embedding"):
        load_model(write_folder(tmp_path / "differs", tensors, tied))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    model = load_model(write_folder(tmp_path / "same", tensors, tied))
    assert model.head.weight is model.emb.weight


def test_old_rotary_tables_in_the_file_are_skipped(tmp_path):
    tensors = llama_tensors() | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(DH // 2)}
    assert load_model(write_folder(tmp_path / "old", tensors)).config.n_layers == LAYERS


def test_biases_of_a_qwen2_are_loaded(tmp_path):
    tensors = llama_tensors()
    for i in range(LAYERS):
        for x, rows in (("q", H * DH), ("k", N_KV * DH), ("v", N_KV * DH)):
            tensors[f"model.layers.{i}.self_attn.{x}_proj.bias"] = torch.full((rows,), i + ord(x) / 1000)
    model = load_model(write_folder(tmp_path / "qwen2", tensors, {"model_type": "qwen2"}))
    assert model.blocks[2].attn.wk.bias.tolist() == pytest.approx([2.107] * (N_KV * DH))
    assert model.blocks[2].attn.wo.bias is None


def test_fused_tensors_of_a_phi3_are_split_by_their_own_widths(folder, tmp_path):
    """128 rows of q, k, v are never three equal parts when there are fewer KV heads."""
    tensors = llama_tensors()
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        tensors[f"{at}self_attn.qkv_proj.weight"] = torch.cat(
            [tensors.pop(f"{at}self_attn.{x}_proj.weight") for x in "qkv"]
        )
        tensors[f"{at}mlp.gate_up_proj.weight"] = torch.cat(
            [tensors.pop(f"{at}mlp.{x}_proj.weight") for x in ("gate", "up")]
        )
    phi = load_model(write_folder(tmp_path / "phi", tensors, {"model_type": "phi3", "pad_token_id": 0}))
    idx = toys.tokens(2, 7, vocab=V)
    assert torch.equal(phi(idx), load_model(folder)(idx))


def test_split_rows():
    assert [part.shape[0] for part in split_rows(torch.zeros(128, 2), (64, 32, 32))] == [64, 32, 32]
    by_head = split_rows(torch.arange(12), (4, 4, 4), "grouped", n_groups=2)  # NeoX: two heads of width two
    assert [part.tolist() for part in by_head] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    by_group = split_rows(torch.arange(8), (4, 2, 2), "grouped", n_groups=2)  # two KV heads, two queries each
    assert [part.tolist() for part in by_group] == [[0, 1, 4, 5], [2, 6], [3, 7]]
    with pytest.raises(ValueError, match=r"128 rows is to be split into \[43, 43, 43\]"):
        split_rows(torch.zeros(128, 2), (43, 43, 43))
    with pytest.raises(ValueError, match="sizes that divide"):
        split_rows(torch.zeros(9, 2), (5, 2, 2), "grouped", n_groups=2)


def test_names_of_latent_attention():
    layer = toys.LAYERS["mla"][0]
    config = ModelConfig(97, 60, (layer,), model_type="deepseek_v3")
    names = {
        hf_name(name, config)[0]
        for name, _ in LlamaStyleLM.from_config(config, device="meta").named_parameters()
    }
    at = "model.layers.0.self_attn."
    assert {
        f"{at}{x}.weight"
        for x in (
            "q_a_proj",
            "q_a_layernorm",
            "q_b_proj",
            "kv_a_proj_with_mqa",
            "kv_a_layernorm",
            "kv_b_proj",
            "o_proj",
        )
    } <= names
    no_lora = MLA(q_lora_rank=None, **toys.MLA_SIZES)
    config = config.replace(layers=(Layer(no_lora, layer.ffn),))
    assert hf_name("blocks.0.attn.wq.weight", config) == (f"{at}q_proj.weight", None, None)


# What can be wrong. Each is refused before a number is read.


def test_a_missing_folder_and_a_folder_without_weights(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such model.*make model"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="neither model.safetensors nor"):
        load_model(tmp_path)
    save_file(llama_tensors(), tmp_path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match="config.json"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="give the folder"):
        load_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "weights.pkl"])
def test_a_pickle_is_never_opened(tmp_path, name):
    """The file would write a proof of its running; nothing may open it."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / name).write_bytes(b"cbuiltins\neval\n(V1/0\ntR.")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ValueError, match="pickle"):
            load_model(path)


@pytest.mark.parametrize("keep", [0, 5, 200, -1, -1000])
def test_a_truncated_file_is_refused(folder, keep):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match="not a whole safetensors file.*truncated or corrupt"):
        load_model(folder)


def test_a_header_that_lies_is_refused(folder):
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(struct.pack("<Q", 2**60) + data[8:])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_model(folder)


def test_a_missing_shard_is_named(tmp_path):
    tensors = llama_tensors()
    path = write_folder(tmp_path / "toy", tensors, shards=two_shards(tensors))
    (path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"model-00002-of-00002.safetensors: this shard of 2 is missing"
    ):
        load_model(path)


@pytest.mark.parametrize(
    "outside",
    [
        "../other.safetensors",
        "/etc/other.safetensors",
        "a/../../other.safetensors",
        "C:\\other.safetensors",
        "..\\other.safetensors",
    ],
)
def test_an_index_that_leaves_its_folder_is_refused(tmp_path, outside):
    tensors = llama_tensors()
    path = write_folder(tmp_path / "toy", tensors, shards=two_shards(tensors))
    save_file(tensors, tmp_path / "other.safetensors")
    write_index(path, dict.fromkeys(tensors, outside))
    with pytest.raises(ValueError, match="points outside its folder"):
        load_model(path)


def test_an_index_to_a_pickle_or_without_a_map_is_refused(tmp_path):
    tensors = llama_tensors()
    path = write_folder(tmp_path / "toy", tensors, shards=two_shards(tensors))
    write_index(path, dict.fromkeys(tensors, "pytorch_model.bin"))
    with pytest.raises(ValueError, match="never a pickle"):
        load_model(path)
    for broken in ("[]", "{", '{"weight_map": []}', '{"weight_map": {"a": 1}}'):
        (path / "model.safetensors.index.json").write_text(broken)
        with pytest.raises(ValueError, match=r"index.json: (not JSON|expected)"):
            load_model(path)


def test_an_index_that_disagrees_with_its_shards_is_refused(tmp_path):
    tensors = llama_tensors()
    shards = two_shards(tensors)
    path = write_folder(tmp_path / "toy", tensors, shards=shards)
    first, second = shards
    swapped = {name: file for file, names in shards.items() for name in names} | {shards[first][0]: second}
    write_index(path, swapped)
    with pytest.raises(ValueError, match="index and shards disagree on 1 tensors"):
        load_model(path)
    save_file(tensors, path / second)
    with pytest.raises(ValueError, match="is also in"):
        load_model(path)


def test_a_missing_tensor_is_named(tmp_path):
    tensors = llama_tensors()
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ValueError, match=r"1 tensors are missing, first 'model.layers.1.mlp.up_proj.weight'"):
        load_model(write_folder(tmp_path / "toy", tensors))


def test_a_missing_head_is_allowed_only_when_tied(tmp_path):
    with pytest.raises(ValueError, match=r"'lm_head.weight'; the config does not tie"):
        load_model(write_folder(tmp_path / "toy", llama_tensors(tied=True)))


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.q_proj.bias",
    ],
)
def test_an_unexpected_tensor_is_named(tmp_path, name):
    with pytest.raises(
        ValueError, match=f"1 tensors that a llama of this config does not have, first '{name}'"
    ):
        load_model(write_folder(tmp_path / "toy", llama_tensors() | {name: torch.ones(3)}))


@pytest.mark.parametrize("shape", [(N_KV * DH, D), (D, H * DH), (H * DH, D, 1), (H * DH + 1, D)])
def test_a_wrong_shape_is_refused(tmp_path, shape):
    tensors = llama_tensors() | {"model.layers.2.self_attn.q_proj.weight": torch.zeros(shape)}
    with pytest.raises(
        ValueError, match=r"model.layers.2.self_attn.q_proj.weight has shape .*, expected \[48, 24\]"
    ):
        load_model(write_folder(tmp_path / "toy", tensors))


def test_a_quantised_tensor_is_refused(tmp_path):
    tensors = llama_tensors() | {"model.norm.weight": torch.ones(D, dtype=torch.int8)}
    with pytest.raises(ValueError, match="'model.norm.weight' is stored as I8"):
        load_model(write_folder(tmp_path / "toy", tensors))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"dtype": "bf16"}, "dtype = 'bf16': expected None"),
        ({"dtype": torch.int8}, "dtype = torch.int8: expected None"),
        ({"dtype": torch.float8_e4m3fn}, "dtype = torch.float8_e4m3fn: expected None"),
        ({"device": "abacus"}, "device = 'abacus': this machine"),
        ({"device": "cuda:99"}, "device = 'cuda:99': this machine"),
    ],
)
def test_a_dtype_or_device_that_is_none_is_refused(folder, settings, match):
    with pytest.raises(ValueError, match=match):
        load_model(folder, **settings)


def test_a_broken_tokenizer_is_refused(tmp_path):
    for text, match in (
        ("{}", "not a tokenizer that can be read"),
        ("[" * 100_000, "not JSON"),
        ('{"a": ' + "9" * 6000 + "}", "not JSON"),
    ):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(ValueError, match=match):
            load_tokenizer(tmp_path)


def test_an_unknown_architecture_and_one_without_names_are_refused(tmp_path):
    tensors = llama_tensors()
    with pytest.raises(ValueError, match="zebra"):
        load_model(
            write_folder(
                tmp_path / "toy", tensors, {"model_type": "zebra", "architectures": ["ZebraForCausalLM"]}
            )
        )
    (tmp_path / "toy" / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json"):
        load_model(tmp_path / "toy")


# GGUF


def write_gguf(path, tensors=None, **changes):
    """A tiny llama as llama.cpp writes it: q and k in the adjacent-pair layout, one matrix quantised."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(str(path), changes.pop("arch", "llama"))
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(D_FF)
    writer.add_head_count(H)
    writer.add_head_count_kv(N_KV)
    writer.add_key_length(DH)
    writer.add_rope_dimension_count(changes.pop("rotated", DH))
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if changes.pop("scaled", False):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    theirs = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    inside = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
    }
    inside |= {f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"} | {
        f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")
    }
    for name, w in (tensors or llama_tensors()).items():
        stem = name.removesuffix(".weight")
        if stem.startswith("model.layers."):
            _, _, i, part = stem.split(".", 3)
            stem = f"blk.{i}.{inside[part]}"
            if part == "self_attn.q_proj":
                w = permute_heads(w, H, to="adjacent")
            if part == "self_attn.k_proj":
                w = permute_heads(w, N_KV, to="adjacent")
        writer.add_tensor(f"{theirs.get(stem, stem)}.weight", np.ascontiguousarray(w.numpy()))
    for name, w in changes.pop("extra", {}).items():
        writer.add_tensor(name, w)
    assert not changes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_gives_the_same_logits_as_the_folder(folder, tmp_path):
    """The rows of q and k are permuted on the way in; positions past 32 would show a wrong layout."""
    model = load_model(write_gguf(tmp_path / "toy.gguf"))
    idx = toys.tokens(2, 48, vocab=V)
    assert model.config.layers[0].attention.head_dim == DH and not model.config.tied
    assert_close(model(idx), load_model(folder)(idx), model_sums(model.config, 48))


def test_gguf_rows_come_as_they_are_stored(folder, tmp_path):
    file = open_gguf(write_gguf(tmp_path / "toy.gguf"))
    stored = llama_tensors()["model.layers.1.self_attn.q_proj.weight"]
    assert not torch.equal(file["blk.1.attn_q.weight"], stored)
    assert torch.equal(permute_heads(file["blk.1.attn_q.weight"], H, to="half"), stored)
    assert torch.equal(GGUFSource(file).read("model.layers.1.self_attn.q_proj.weight"), stored)
    assert torch.equal(file["blk.1.attn_v.weight"], llama_tensors()["model.layers.1.self_attn.v_proj.weight"])
    assert (len(file), file.kind("output_norm.weight"), file.nbytes("output_norm.weight")) == (
        30,
        "F32",
        4 * D,
    )
    assert file.shape("blk.0.ffn_down.weight") == (D, D_FF) and "blk.9.attn_q.weight" not in file
    with pytest.raises(KeyError, match="has no tensor 'blk.9.attn_q.weight'"):
        file["blk.9.attn_q.weight"]
    assert file.metadata["llama.attention.layer_norm_rms_epsilon"] == 1e-5  # and not 9.999999747378752e-06


def test_gguf_tensors_belong_to_their_reader(tmp_path):
    file = open_gguf(write_gguf(tmp_path / "toy.gguf"))
    file["output_norm.weight"].zero_()
    assert file["output_norm.weight"].abs().sum() > 0


def test_a_quantised_gguf_tensor_is_what_its_blocks_say(tmp_path):
    """One Q8_0 block: a float16 scale and 32 signed bytes."""
    import gguf
    import numpy as np

    path = tmp_path / "q.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    block = np.frombuffer(np.float16(0.5).tobytes() + bytes(range(31)) + b"\xff", np.uint8)
    writer.add_tensor("x", block.reshape(1, 34), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert open_gguf(path)["x"].tolist() == [[*(i / 2 for i in range(31)), -0.5]]
    assert open_gguf(path).kind("x") == "Q8_0"


def test_bad_gguf_files(tmp_path):
    good = write_gguf(tmp_path / "good.gguf").read_bytes()
    bad = tmp_path / "bad.gguf"
    with pytest.raises(FileNotFoundError, match=r"make model"):
        load_model(bad)
    for data, match in {
        b"": "not a GGUF file",
        b"PK\x03\x04" + good[4:]: "not a GGUF file",
        good[:4] + struct.pack("<I", 1) + good[8:]: "GGUF version 1",
        good[:20]: "truncated or corrupt",
        good[:400]: "truncated or corrupt",
        good[:-100]: "truncated",
        good[:8] + struct.pack("<Q", 2**40) + good[16:]: "truncated or corrupt",
        good[:24] + struct.pack("<Q", 2**50) + good[32:]: "truncated or corrupt",
    }.items():
        bad.write_bytes(data)
        with pytest.raises(ValueError, match=match):
            load_model(bad)


def test_gguf_features_that_are_not_read_are_refused(tmp_path):
    import numpy as np

    path = tmp_path / "toy.gguf"
    for changes, match in (
        ({"arch": "zebra"}, "unknown GGUF architecture 'zebra'"),
        ({"scaled": True}, "RoPE scaling in a GGUF file"),
        ({"extra": {"rope_freqs.weight": np.ones(DH // 2, np.float32)}}, "RoPE scaling in a GGUF file"),
        ({"rotated": 4}, "partial rotary"),
        ({"extra": {"blk.0.attn_sinks.weight": np.ones(H, np.float32)}}, "first 'blk.0.attn_sinks.weight'"),
    ):
        path.unlink(missing_ok=True)
        with pytest.raises(ValueError, match=match):
            load_model(write_gguf(path, **changes))


def test_a_gguf_whose_sizes_are_none_is_refused_by_its_own_key(tmp_path):
    import gguf

    path = tmp_path / "odd.gguf"
    for key, value, said in (
        ("llama.attention.head_count", 0, "llama.attention.head_count = 0: expected a whole number"),
        ("llama.attention.head_count", [4, 4], "head_count = .4, 4.: expected a whole number"),
        ("llama.embedding_length", "64", 'llama.embedding_length = "64": expected a whole number'),
        ("llama.embedding_length", True, "llama.embedding_length = true: expected a whole number"),
        ("general.architecture", ["llama"], r"unknown GGUF architecture \['llama'\]"),
    ):
        sizes = {"block_count": 2, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96}
        fields = {f"llama.{name}": size for name, size in sizes.items()} | {"llama.attention.head_count": 4}
        writer = gguf.GGUFWriter(str(path), "llama")
        add = {int: writer.add_uint32, str: writer.add_string, bool: writer.add_bool, list: writer.add_array}
        if key == "general.architecture":
            del writer.kv_data[0][key]
        for name, stated in (fields | {key: value}).items():
            add[type(stated)](name, stated)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        with pytest.raises(ValueError, match=said):
            read_config(path)


def test_an_ordinary_model_loads_without_a_warning_and_a_doubt_about_a_number_gives_one(tmp_path):
    """What a class fills in is what its own class runs: no doubt. A guess, or a field that is not understood, is one."""
    folder = write_folder(tmp_path / "plain", llama_tensors())
    config = json.loads((folder / "config.json").read_text())
    for name in ("rope_theta", "mlp_bias", "attention_bias"):
        config.pop(name, None)
    for more, doubts in (
        ({}, []),
        ({"num_nextn_predict_layers": 1}, []),
        ({"a_new_multiplier": 2.0}, ["a_new_multiplier"]),
        (
            {"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 16}},
            ["rope_scaling.factor is not in the file: derived"],
        ),
    ):
        (folder / "config.json").write_text(json.dumps(config | more))
        assert any("taken from the class of llama" in text for text in read_config(folder).warnings)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            load_model(folder)
        assert len(said) == len(doubts), [str(w.message) for w in said]
        assert all(text in str(w.message) for text, w in zip(doubts, said, strict=True))


def test_no_published_model_that_the_block_runs_has_a_doubt():
    run = [cfg for cfg in map(read_config, FILES) if not cfg.unsupported]
    assert len(run) > 50 and any(cfg.warnings for cfg in run)
    assert [(cfg.model_type, cfg.doubts) for cfg in run if cfg.doubts] == []


def test_a_gguf_without_a_known_tokenizer_says_so(tmp_path):
    path = write_gguf(tmp_path / "toy.gguf")
    with pytest.raises(ValueError, match="tokenizer None with splitting None"):
        load_tokenizer(path)
    file = open_gguf(path)
    file.metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"}
    with pytest.raises(ValueError, match="lack the lists of tokens and merges"):
        gguf_tokenizer(file)
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json"):
        load_tokenizer(tmp_path)


def test_every_family_with_a_row_in_the_table_gives_the_logits_of_transformers(tmp_path):
    """Saved by transformers, loaded here: a wrong or swapped name would show in the logits."""
    transformers = pytest.importorskip("transformers")
    from lib.files.names import MODEL_TYPES

    sizes = {
        "vocab_size": V,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    sizes |= {
        "head_dim": 6,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "attn_implementation": "eager",
    }
    latent = {
        "q_lora_rank": 10,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "num_key_value_heads": 4,
    }
    latent |= {"first_k_dense_replace": 2, "head_dim": 4}
    special = {
        "deepseek_v2": latent,
        "deepseek_v3": latent,
        "gemma3_text": {"sliding_window": 5},
        "olmo3": {"sliding_window": 5},
    }
    idx, failed = toys.tokens(2, 40, vocab=V), {}
    for model_type in MODEL_TYPES:
        config = transformers.AutoConfig.for_model(model_type, **sizes | special.get(model_type, {}))
        theirs = toys.randomise(transformers.AutoModelForCausalLM.from_config(config))
        theirs.save_pretrained(tmp_path / model_type)
        ours = load_model(tmp_path / model_type)
        with torch.no_grad():
            difference = distance(ours(idx), theirs(idx).logits)
        if not difference <= rtol(torch.float32, model_sums(ours.config, 40)):
            failed[model_type] = difference
    assert not failed
