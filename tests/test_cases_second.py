"""The second set of public faults that concern what runs: scalings by length, norms, autocast, ties, files. 5 seconds.

tests/data/cases_second.jsonl holds the cases; those of config files stand in tests/families.
"""

import json
import tempfile
import time
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import parity
import toys
from case_tools import SECOND, register
from lib import (
    GPT2LM,
    Block,
    LlamaStyleLM,
    Norm,
    Scaling,
    generate,
    inv_freq,
    layer_norm,
    load_model,
    make_norm,
    read_config,
    rms_norm,
    rope_attention_factor,
)
from lib.rope import rope_table
from published import CONFIGS, edited
from tolerances import assert_close, model_sums

COVERED, case = register(SECOND)
PHI = ("Phi3Config", {"head_dim": None, "hidden_size": 84, "sliding_window": None,
                      "rope_parameters": {**parity.LONG, "original_max_position_embeddings": 32}})  # fmt: skip


def both(kind, fields, spread=parity.SPREAD, **changes):
    """(a tiny model of transformers, the same weights read by `load_model`)."""
    theirs = parity.build(kind, fields, spread=spread)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.save_pretrained(folder)
        return theirs, load_model(folder)


# ---- scalings that depend on the length


@case("S2-SCL-01")
@torch.no_grad()
def _():
    """Trained length 32. Within it any room gives what one uncached pass of transformers gives; beyond, one table again."""
    for name, fields in (("Phi-3.5", PHI), *parity.BY_LENGTH.items()):
        theirs, lm = both(*fields)
        idx = toys.tokens(2, 10, vocab=11)
        want = theirs(idx).logits
        for room in (10, 32, 33, None):
            assert_close(lm(idx, cache=lm.new_cache(2, room)), want, model_sums(lm.config, 10))
        said = generate(lm, idx, 22)
        assert len(set(said[0].tolist())) > 2, name
        assert torch.equal(said[:, 10:], theirs(said[:, :-1]).logits[:, 9:].argmax(-1)), name
        for more in (23, 40, 60):  # what is said up to the boundary does not depend on how much is asked for
            out = generate(lm, idx, more)
            assert torch.equal(out[:, :32], said), name
            after = lm(out[:, :-1])[:, 31:].argmax(-1)  # the 33rd token's table serves the whole text
            assert torch.equal(out[:, 33:], after[:, 1:]), name


@case("S2-SCL-06")
def _():
    """A row padded by 5 beside itself alone: before, across and beyond the trained length of 16."""
    for kind in ("dynamic", "longrope"):
        lm = toys.model(kind, torch.float64, tied=False)
        for T in (12, 16, 18, 21):
            row = toys.tokens(1, T)
            padded = torch.cat([torch.full((1, 5), 3), row], dim=1)
            idx = torch.cat([toys.tokens(1, T + 5, seed=1), padded])
            pad, alone = torch.tensor([0, 5]), lm(row)[0]
            assert_close(lm(idx, pad=pad)[1, 5:], alone, model_sums(lm.config, T))
            together = generate(lm, idx, 9, pad=pad)
            assert torch.equal(together[1, T + 5 :], generate(lm, row, 9)[0, T:])


def yarn(**entry):
    table = {"type": "yarn", "original_max_position_embeddings": 8192, **entry}
    return read_config(edited("llama-3-8b", max_position_embeddings=32768, rope_scaling=table))


@case("S2-SCL-02")
def _():
    plain = 1.1386294361119891  # 0.1 ln 4 + 1
    cfg = yarn(factor=4.0, attn_factor=1 / plain)
    assert rope_attention_factor(cfg.layers[0].attention.rope.scaling) == pytest.approx(1.0, rel=1e-12)
    assert not cfg.unsupported and "multiplies yarn's own factor" in " ".join(cfg.warnings)
    with pytest.raises(ValueError, match="attn_factor = 0.5 and rope_scaling.attention_factor = 1.0"):
        yarn(factor=4.0, attn_factor=0.5, attention_factor=1.0)
    for kind, name in (
        ("yarn", "attn_fudge"),
        ("linear", "attn_factor"),
    ):  # not understood: never run without a word
        table = {"type": kind, "factor": 4.0, name: 0.5}
        cfg = read_config(edited("llama-3-8b", rope_scaling=table))
        with pytest.raises(ValueError, match=f"does not run {name} of rope_scaling, which may change"):
            LlamaStyleLM.from_config(cfg, device="meta")


@case("S2-SCL-03")
def _():
    cfg = yarn()
    assert cfg.layers[0].attention.rope.scaling.factor == 4.0
    said = "rope_scaling.factor is not in the file: derived, max_position_embeddings 32768 / 8192 = 4"
    assert said in cfg.warnings and said not in yarn(factor=4.0).warnings


@case("S2-SCL-04")
def _():
    turns = 16 * inv_freq(14, 5e5)[2] / (2 * torch.pi)
    once = Scaling("llama3", 8.0, 16, None, turns, turns)  # Llama 4 Scout publishes low = high
    with pytest.raises(
        ValueError, match="low_freq_factor = high_freq_factor = .* a pair turns exactly so often"
    ):
        inv_freq(14, 5e5, once)
    step = Scaling("llama3", 8.0, 16, None, 1.0, 1.0)
    assert [a / b for a, b in zip(inv_freq(14, 5e5), inv_freq(14, 5e5, step))] == [1.0] + [8.0] * 6
    with pytest.raises(
        ValueError, match="low_freq_factor = 4.0 and high_freq_factor = 1.0: llama3 blends from"
    ):
        Scaling("llama3", 8.0, 16, None, 4.0, 1.0)


@case("S2-SCL-05")
def _():
    cfg = read_config(CONFIGS / "gemma-4-26b-a4b.json")
    proportional = [layer for layer in cfg.layers if layer.attention.window is None]
    assert 0 < len(proportional) < cfg.n_layers
    for layer, said in ((proportional[0], "proportional partial RoPE"), (cfg.layers[0], "RMSNorm of v")):
        with torch.device("meta"), pytest.raises(ValueError, match=f"the block does not run .*{said}"):
            Block.from_layer(cfg.d, layer, cfg.norm)
    with pytest.raises(ValueError, match="proportional partial RoPE is counted, not run"):
        rope_table(proportional[0].attention.rope, 64, 8)
    with pytest.raises(ValueError, match="proportional partial RoPE"):
        LlamaStyleLM.from_config(cfg, device="meta")


# ---- norms


@case("S2-NRM-01")
def _():
    x, w = torch.linspace(-3, 3, 64).bfloat16(), torch.full((64,), 2.0**-8).bfloat16()
    for last in (False, True):
        got = rms_norm(x, w, unit_offset=True, gain_last=last)
        y = rms_norm(x.float()) if last else rms_norm(x).float()
        assert got.dtype == torch.bfloat16 and torch.equal(got, (y * (1 + 2.0**-8)).bfloat16())
        assert not torch.equal(got, rms_norm(x))  # a gain of 1 + w formed in bfloat16 is 1
    layer = make_norm(Norm("layer", unit_offset=True, bias=True), 64)
    assert layer.weight.tolist() == [0.0] * 64  # the identity gain
    with torch.no_grad():
        layer.weight.copy_(w)
    assert_close(layer(x.float()), layer_norm(x.float(), eps=layer.eps) * (1 + 2.0**-8), (64, 64))
    assert torch.equal(layer_norm(x, w, unit_offset=True), layer(x.float()).bfloat16())


@case("S2-NRM-02")
def _():
    """Every convention of the table against its own class in bfloat16: bit for bit, and the other order is another."""
    for name, module, kind, last in (
        ("olmo-2-7b", "olmo2", "Olmo2RMSNorm", True),
        ("olmo-3-7b", "olmo3", "Olmo3RMSNorm", True),
        ("gpt-oss-20b", "gpt_oss", "GptOssRMSNorm", True),
        ("gemma-3-1b", "gemma3", "Gemma3RMSNorm", True),
        ("llama-3-8b", "llama", "LlamaRMSNorm", False),
        ("qwen3-8b", "qwen3", "Qwen3RMSNorm", False),
    ):
        norm = read_config(CONFIGS / f"{name}.json").norm
        assert norm.gain_last is last
        theirs = getattr(transformers.models, module)
        theirs = getattr(getattr(theirs, f"modeling_{module}"), kind)(640, norm.eps).bfloat16()
        ours = make_norm(norm, 640).bfloat16()
        with torch.no_grad():
            theirs.weight.normal_()
            ours.weight.copy_(theirs.weight)
            x = torch.randn(7, 640).bfloat16()
            assert torch.equal(ours(x), theirs(x)), name
            ours.gain_last = not last
            assert not torch.equal(ours(x), theirs(x)), name


# ---- running


@case("S2-RUN-01")
def _():
    for kind in ("gqa", "qk_norm", "sandwich", "mla"):
        lm, idx = toys.model(kind, tied=False), toys.tokens(2, 11)
        with torch.autocast("cpu", torch.bfloat16):
            want, cache = lm(idx), lm.new_cache(2)
            got = torch.cat(
                [lm(idx[:, :7], cache=cache)] + [lm(idx[:, t : t + 1], cache=cache) for t in range(7, 11)], 1
            )
            assert cache.layers[0].tensors[0].dtype == torch.bfloat16
            assert_close(got, want, model_sums(lm.config, 11), torch.bfloat16)
            assert generate(lm, idx, 3).shape == (2, 14)
            with pytest.raises(ValueError, match="cache holds torch.float32.*inside torch.autocast"):
                outside = lm.new_cache(2)
                outside.layers[0].tensors = tuple(t.float() for t in outside.layers[0].tensors)
                lm(idx, cache=outside)
            assert toys.model(kind, torch.float64).new_cache(1).layers[0].tensors[0].dtype == torch.float64
        assert lm.new_cache(2).layers[0].tensors[0].dtype == torch.float32


@case("S2-RUN-02")
def _():
    lm = toys.model("gqa")
    lost = LlamaStyleLM.from_config(lm.config, device="meta").to_empty(device="cpu")
    lost.load_state_dict(lm.state_dict(), assign=True)
    for call in (lambda: lost(toys.tokens(1, 4)), lambda: generate(lost, toys.tokens(1, 4), 2)):
        with pytest.raises(ValueError, match="the tie is lost.*model.head.weight = model.emb.weight"):
            call()
    lost.head.weight = lost.emb.weight
    assert torch.equal(lost(toys.tokens(1, 4)), lm(toys.tokens(1, 4)))
    old = GPT2LM(97, 60, 1, 5, 50)
    old.head.weight = torch.nn.Parameter(old.emb.weight.clone())
    with pytest.raises(ValueError, match="the tie is lost"):
        old(toys.tokens(1, 4))


@case("S2-RUN-03")
def _():
    kind, fields = parity.FAMILIES["Llama 3.2 (tied)"]
    theirs = parity.build(kind, fields)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        file = f"{folder}/model.safetensors"
        tensors = load_file(file)
        emb = tensors["model.embed_tokens.weight"] + 2.0**-14  # not exact in bfloat16
        assert not torch.equal(emb, emb.bfloat16().float())
        for head, dtype in ((emb.bfloat16(), torch.float32), (emb, torch.bfloat16), (emb, torch.float32)):
            stored = tensors | {"model.embed_tokens.weight": emb.to(dtype), "lm_head.weight": head.clone()}
            save_file(stored, file)
            apart = (head.double() - emb.to(dtype).double()).abs().max().item()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                lm = load_model(folder)
            assert lm.head.weight is lm.emb.weight and torch.equal(lm.emb.weight, emb.to(dtype))
            told = [str(w.message) for w in said if "stored again" in str(w.message)]
            assert len(told) == (apart > 0) and all(f"up to {apart:.3g} apart" in text for text in told)
        other = emb.clone()
        other[3, 5] += 0.25
        save_file(tensors | {"model.embed_tokens.weight": emb, "lm_head.weight": other}, file)
        with pytest.raises(ValueError, match="not the embedding: they differ by up to 0.25"):
            load_model(folder)


# ---- files


def write_gguf(path, layers, leave_out=()):
    """A llama of one layer as the gguf package writes it; `layers` is what its header claims."""
    import gguf

    d, h, d_ff, V, draw = 24, 6, 40, 53, torch.Generator().manual_seed(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(d_ff)
    writer.add_head_count(h)
    if "heads" not in leave_out:
        writer.add_head_count_kv(h)
    if "base" not in leave_out:
        writer.add_rope_freq_base(10000.0)
    if "scale" in leave_out:
        writer.add_rope_scaling_factor(4.0)
    writer.add_layer_norm_rms_eps(1e-5)
    shapes = {
        "token_embd": (V, d),
        "output_norm": (d,),
        "output": (V, d),
        "blk.0.attn_norm": (d,),
        "blk.0.ffn_norm": (d,),
    }
    shapes |= {f"blk.0.attn_{x}": (d, d) for x in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (d_ff, d), "blk.0.ffn_up": (d_ff, d), "blk.0.ffn_down": (d, d_ff)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", torch.randn(shape, generator=draw).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@case("S2-GGUF-01")
def _():
    with tempfile.TemporaryDirectory() as folder:
        whole = load_model(write_gguf(f"{folder}/whole.gguf", 1))
        path = write_gguf(f"{folder}/old.gguf", 1, ("base", "heads"))
        said = "llama.rope.freq_base is not in the file: 10000, the GGUF format's default"
        with pytest.warns(UserWarning) as warned:
            old = load_model(path)
        assert any(said in str(w.message) for w in warned)
        assert torch.equal(old(toys.tokens(2, 40, vocab=53)), whole(toys.tokens(2, 40, vocab=53)))
        warned = read_config(path).warnings
        assert (
            said in warned
            and "llama.attention.head_count_kv is not in the file: 6, the GGUF format's default" in warned
        )
        with pytest.raises(
            ValueError, match="llama.rope.scaling.factor = 4.0: RoPE scaling in a GGUF file is not read"
        ):
            read_config(write_gguf(f"{folder}/scaled.gguf", 1, ("scale",)))


@case("S2-FILE-01")
def _():
    """No model is built where the header claims layers that have no tensors: `from_config` is not reached."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        theirs = parity.build(*parity.FAMILIES["Llama 2"])
        theirs.save_pretrained(f"{folder}/hf")
        config = Path(f"{folder}/hf/config.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 10_000}))
        patch.setattr(LlamaStyleLM, "from_config", lambda *_, **__: pytest.fail("a model was built"))
        claims = ((write_gguf(f"{folder}/big.gguf", 8448), "8,448 layers.* 8,447 are missing, first of layer 1"),
                  (f"{folder}/hf", "10,000 layers.* 9,997 are missing, first of layer 3"))  # fmt: skip
        for path, said in claims:
            start = time.perf_counter()
            with pytest.raises(ValueError, match=said):
                load_model(path)
            print(f"{path}: refused after {time.perf_counter() - start:.2f} s")


@pytest.mark.parametrize("name", sorted(COVERED))
def test_case(name):
    COVERED[name]()
