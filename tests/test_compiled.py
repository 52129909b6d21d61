"""lib.compiled: the C++ step gives the plain model's logits. Some 15 s, 5 of them the compiler's. Not collected without one."""

import shutil

import pytest
import torch

import toys
from lib import compile_decode, compiled
from lib.config import GQA, Dense, Layer, ModelConfig
from lib.model import LlamaStyleLM
from test_fast import PAD, REFUSED, TAKEN, assert_generates_the_same, assert_steps_agree
from tolerances import distance, model_sums, rtol


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


def wide_model(dtype):
    """Widths of several vectors with a rest, which the other toys are too small for."""
    config = ModelConfig(
        1003, 200, (Layer(GQA(5, 5, 70), Dense(333)), Layer(GQA(4, 2, 64), Dense(333))), max_len=64
    )
    return toys.randomise(LlamaStyleLM.from_config(config)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [*TAKEN, "llama3", "dynamic", "longrope"])
def test_steps_are_the_plain_steps(kind, dtype, folder):
    plain = toys.model(kind, dtype)
    for pad in PAD:
        if kind not in ("dynamic", "longrope"):
            assert_steps_agree(plain, compile_decode(plain, folder), pad)
    if (
        kind in ("dynamic", "longrope") and dtype == torch.float32
    ):  # `generate` crosses the trained length for them
        assert_generates_the_same(plain, compile_decode(plain, folder))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_widths_with_and_without_a_rest(dtype, folder):
    plain = wide_model(dtype)
    for pad in PAD:
        assert_steps_agree(plain, compile_decode(plain, folder), pad)


def test_two_threads_give_the_same(folder):
    plain = wide_model(torch.float32)
    torch.set_num_threads(2)
    try:
        assert_steps_agree(plain, compile_decode(plain, folder), PAD[1])
    finally:
        torch.set_num_threads(1)


def test_a_wrong_step_would_be_noticed(folder):
    """The control: one weight of 200,000 wrong by its own size, and the logits are further away than the tolerance."""
    plain, broken = wide_model(torch.float32), wide_model(torch.float32)
    with torch.no_grad():
        broken.blocks[1].ffn.w_down.weight[7, 3] *= 2
    idx, cache, other = toys.tokens(2, 9), plain.new_cache(2), plain.new_cache(2)
    plain(idx, cache), broken(idx, other)
    apart = distance(compile_decode(broken, folder)(idx[:, :1], other), plain(idx[:, :1], cache))
    assert apart > 10 * rtol(torch.float32, model_sums(plain.config, 10))


def test_generate_takes_it(folder):
    plain = toys.model("two_bases", tied=False)
    assert_generates_the_same(plain, compile_decode(plain, folder))


def test_it_reads_the_plain_models_own_weights(folder):
    plain = toys.model("gqa")
    step, cache, twin = compile_decode(plain, folder), plain.new_cache(1), plain.new_cache(1)
    idx = toys.tokens(1, 3)
    plain(idx, cache), plain(idx, twin)
    with torch.no_grad():
        plain.norm.weight.mul_(3)
    assert distance(step(idx[:, :1], cache), plain(idx[:, :1], twin)) < rtol(
        torch.float32, model_sums(plain.config, 4)
    )


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_taken_is_named(kind, folder):
    with pytest.raises(ValueError, match=f"CompiledDecode does not take .*{REFUSED[kind]}"):
        compile_decode(toys.model(kind), folder)


def test_another_models_cache_is_refused(folder):
    plain, cache = toys.model("gqa"), toys.model("mha").new_cache(1)
    toys.model("mha")(toys.tokens(1, 2), cache)
    with pytest.raises(ValueError, match="another model's cache"):
        compile_decode(plain, folder)(toys.tokens(1, 1), cache)


def test_it_compiles_once_and_says_so_before(folder, tmp_path, capfd):
    plain = toys.model("gqa")
    compile_decode(plain, folder)
    capfd.readouterr()
    compile_decode(plain, folder)
    assert capfd.readouterr().err == ""
    small = tmp_path / "small.cpp"
    small.write_text('extern "C" int seven() { return 7; }')
    assert compiled.compile_library(small, tmp_path / "kept").seven() == 7
    assert "compiling small.cpp" in capfd.readouterr().err
    assert [p.suffix for p in (tmp_path / "kept").iterdir()] == [".so"]
    small.write_text("no C++")
    with pytest.raises(RuntimeError, match="could not compile small.cpp: .*small.cpp:1:1"):
        compiled.compile_library(small, tmp_path / "kept")


def test_without_a_compiler_it_says_what_to_install(monkeypatch, folder):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(FileNotFoundError, match="'no-such-compiler', which does not run.* apt-get install g"):
        compile_decode(toys.model("gqa"), folder)
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="none of c.., g.., clang.. is on the PATH"):
        compile_decode(toys.model("gqa"), folder)
