"""Public faults, one test a case: the right value from the library, and the reported wrong one rebuilt where that is short.

tests/data/cases.jsonl holds the cases (see tests/data/CASES.md): norms, feed-forward and RoPE here, attention, cache and MLA in
test_cases_attention.py, arithmetic and files in test_cases_files.py. `ELSEWHERE` names the test files of those that concern
notebooks and classrooms; the last test shows that none is dropped.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import test_cases_attention
import test_cases_files
import toys
from case_tools import CASES, close, register, score, turn
from lib import (
    LlamaStyleLM,
    SwiGLU,
    apply_rope,
    inv_freq,
    layout_permutation,
    permute_heads,
    rms_norm,
    rope_attention_factor,
    rope_cache,
    swiglu,
    swiglu_width,
    yarn_mscale,
    yarn_range,
)
from lib.config import Scaling
from lib.files.plan import split_rows
from lib.frequencies import dynamic_base
from tolerances import assert_close, distance, model_sums

HERE = Path(__file__).parent
COVERED, case = register()
ELSEWHERE = {
    "test_explore.py": "NBW-01 NBW-03 NBW-04 NBW-05 NBW-10",
    "test_notebooks.py": "NBW-06 NBW-07 NBW-08 NBT-01 NBT-02 NBT-03 NBT-04 NBT-06 NBT-07 NBT-08",
    "test_project.py": "ENV-04 ENV-05 ENV-06",
}


# ---- norms and feed-forward


@case("RMS-01")
def _(e):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    close(rms_norm(x, eps=0.0), e["out"])
    close(x / x.std(), [0.774597, 1.549193, 2.32379, 3.098387])


@case("RMS-02")
def _(e):
    x = torch.full((8,), 1e-3)
    close(rms_norm(x, eps=1e-6)[0], e["1e-6"])
    close(rms_norm(x, eps=1e-5)[0], e["1e-5"])
    close(F.rms_norm(x, (8,))[0], e["None_fp32"])  # PyTorch's eps=None is the machine epsilon


@case("RMS-03")
def _(e):
    x = torch.full((4,), 300.0, dtype=torch.float16)
    assert rms_norm(x).tolist() == e["out"]
    assert (x * torch.rsqrt((x * x).mean(-1, keepdim=True))).tolist() == [0.0] * 4  # squared in float16


@case("RMS-05")
def _(e):
    x = torch.tensor([-1.375, 1.25, 0.625, 1.75]).bfloat16()
    gain = torch.tensor([1.25, 1.40625, 1.953125, 1.59375]).bfloat16()
    assert rms_norm(x, gain).tolist() == e["llama"]
    assert rms_norm(x, gain, gain_last=True).tolist() == e["gemma"]


@case("RMS-06")
def _(e):
    x, w = torch.ones(1, dtype=torch.float64), torch.tensor([8.6856], dtype=torch.float64)
    close(rms_norm(x, w, 0.0, unit_offset=True, gain_last=True), [e["gain"]])
    close(rms_norm(x, w + 1, 0.0), [e["gain"]])  # a file that stores 1 + w
    close(rms_norm(x, w + 1, 0.0, unit_offset=True), [10.6856])


@case("FFN-01")
def _(e):
    assert swiglu_width(4096) == e["7b"] and swiglu_width(5120) == e["13b"]
    assert swiglu_width(8192, 1.3, 4096) == e["70b"] and swiglu_width(4096, 1.3, 1024) == e["l3_8b"]
    assert 128 * round(8 / 3 * 4096 / 128) == 10880  # the nearest multiple of 128


@case("FFN-03")
def _(e):
    with torch.device("meta"):
        equal, copied = SwiGLU(768, 2048), SwiGLU(768, 4 * 768)
    assert sum(p.numel() for p in equal.parameters()) == e["params"] == 2 * 768 * 3072
    assert sum(p.numel() for p in copied.parameters()) == e["swiglu_4d"]


@case("FFN-04")
def _(e):
    fused = torch.tensor([[1.0], [2.0], [1.0], [2.0]])  # gate, up, gate, up
    gate, up = split_rows(fused, [2, 2], "grouped", n_groups=2)
    down = torch.tensor([[1.0, 0.0]])
    close(swiglu(torch.ones(1), gate, up, down), [e["right"]])
    close(swiglu(torch.ones(1), up, gate, down), [e["swapped"]])
    assert split_rows(fused, [2, 2])[0].tolist() == [[1.0], [2.0]]  # as halves: neither gate nor up


# ---- RoPE


@case("ROPE-01")
def _(e):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    close(turn(x, 1, "adjacent"), e["interleaved"])
    close(turn(x, 1, "half"), e["half"])


@case("ROPE-02")
def _(e):
    rng = np.random.default_rng(1)
    q, k = torch.tensor(rng.standard_normal(8)), torch.tensor(rng.standard_normal(8))
    order = layout_permutation(8, "half")
    assert order.tolist() == e["perm"]
    close(score(q, k, 7, 3, "adjacent"), e["score"])
    close(score(q[order], k[order], 7, 3, "half"), e["score"])
    close(score(q, k, 7, 3, "half"), e["bad"])


@case("ROPE-03")
def _(e):
    rows = torch.arange(256)
    right = permute_heads(rows, 4, "half")
    wrong = permute_heads(rows, 32 // 4, "half")  # n_heads // n_kv_heads instead of n_kv_heads
    assert (right[16], right[32]) == (e["hf16"], e["hf32"]) and wrong[16] == 1
    assert (right // 64 == rows // 64).all() and (right != wrong).sum() >= e["misplaced"]
    by_luck = torch.arange(8 * 128)
    assert torch.equal(permute_heads(by_luck, 8), permute_heads(by_luck, 64 // 8))  # the 70B: 64 / 8 = 8


@case("ROPE-04")
def _(e):
    q, k, order = torch.randn(14), torch.randn(14), torch.randperm(14)
    close(q[order] @ k[order], (q @ k).item())


@case("ROPE-06")
def _(e):
    close(inv_freq(8), e["inv_freq"])
    close([1e4 ** -((2 * k - 1) / 8) for k in (1, 2, 3, 4)], [0.316228, 0.031623, 0.003162, 0.000316])


@case("ROPE-07")
def _(e):
    x = torch.arange(1.0, 9.0)
    close(turn(x, 3, r=4), e["out"])
    cos, sin = rope_cache(1, 8, start=3)
    cos, sin = cos.clone(), sin.clone()
    cos[:, 2:], sin[:, 2:] = 1.0, 0.0  # frequencies and pair offset of the whole head
    wrong = [-1.695593, 0.137552, 3.0, 4.0, -4.808842, 6.323059, 7.0, 8.0]
    close(apply_rope(x[None], cos, sin)[0], wrong)


@case("ROPE-09")
def _(e):
    q = torch.randn(14).expand(1, 2, 3, 14)  # the same query in 2 heads at 3 positions
    cos, sin = rope_cache(3, 14)
    out = apply_rope(q, cos, sin)
    assert torch.equal(out[:, 0], out[:, 1]) and distance(out[:, :, 1], out[:, :, 0]) > 0.1
    with pytest.raises(ValueError, match="are heads and tokens swapped"):
        apply_rope(q.transpose(1, 2), cos, sin)


@case("ROPE-10")
def _(e):
    exact, rounded = torch.arange(4096).float(), torch.arange(4096).bfloat16()
    assert len(exact.unique()) == e["distinct"] and len(rounded.unique()) == e["bf16_distinct"]
    assert (rounded[257].item(), rounded[4095].item()) == (256, 4096)
    lm = toys.model("gqa", torch.bfloat16)
    lm(toys.tokens(1, 40))
    assert {cos.dtype for cos, _ in lm._tables.values()} == {torch.float32}


@case("ROPE-12")
def _(e):
    close(rope_cache(1, 2)[0].item(), 1.0)
    close(rope_cache(1, 2, start=5)[0].item(), e["second"])


@case("ROPE-13")
def _(e):
    lm, idx = toys.model("gqa", max_len=16), toys.tokens(1, 17)
    cache = lm.new_cache(1)
    lm(idx[:, :15], cache=cache)
    with pytest.raises(ValueError, match=f"need {e['rows_needed']} positions"):
        lm(idx[:, 15:], cache=cache)


@case("ROPE-15")
def _(e):
    close(inv_freq(64, 500000.0)[16], e["inv_freq"])
    close(inv_freq(64, 500000.0 * 8192 / 131072)[16], 0.00565685)
    short, full = (
        toys.model("llama3", max_len=24),
        toys.model("llama3", max_len=64),
    )  # a shorter buffer, the same model
    assert torch.equal(short(toys.tokens(2, 20)), full(toys.tokens(2, 20)))


@case("ROPE-18")
def _(e):
    q, k = torch.randn(2, 30, 64, dtype=torch.float64)
    apart = [
        max((score(*qk, p, 0, "half") - score(*qk, p, 0, "adjacent")).abs() for qk in zip(q, k))
        for p in (0, 1, 32)
    ]
    assert apart[0] == e["diffs"][0] == 0.0 and apart[1] > 1.0 and apart[2] > 1.0
    lm = toys.model("nope", layers=(toys.layer(toys.NOPE),))
    before = lm(toys.tokens(2, 20))
    for w, n in ((lm.blocks[0].attn.wq.weight, 6), (lm.blocks[0].attn.wk.weight, 2)):
        w.copy_(permute_heads(w, n))
    assert_close(lm(toys.tokens(2, 20)), before, model_sums(lm.config, 20))  # a NoPE layer sees no layout


# ---- scaling


@case("SCL-01")
def _(e):
    scaled = Scaling("linear", 4.0)
    close(100 * inv_freq(2, scaling=scaled)[0], e["angle"])
    lm, idx = toys.model("linear", torch.float64), toys.tokens(2, 20)
    assert_close(
        toys.feed(lm, idx, [12, 1, 7])[0], lm(idx), model_sums(lm.config, 20)
    )  # prefill and decode agree


@case("SCL-02")
def _(e):
    s = Scaling("dynamic", 2.0, 2048)
    for length, base in e.items():
        close(dynamic_base(128, 1e4, s, int(length)), base)


@case("SCL-04")
def _(e):
    small, large = Scaling("llama3", 32.0, 8192), Scaling("llama3", 8.0, 8192)
    for name, dh, scaling in (("l32_1b", 64, small), ("l31_8b", 128, large)):
        plain, got = inv_freq(dh, 5e5), inv_freq(dh, 5e5, scaling)
        blended = sorted(map(int, e[name]))
        for i in blended:
            close(got[i], e[name][str(i)])
        assert got[: blended[0]] == plain[: blended[0]]
        close(got[blended[-1] + 1 :], [f / scaling.factor for f in plain[blended[-1] + 1 :]], 14)
    close(inv_freq(64, 5e5)[15:18], [0.002131120, 0.001414214, 0.000938474])


@case("SCL-05")
def _(e):
    close(inv_freq(64, 5e5, Scaling("llama3", 32.0, 8192))[15], e["right"])
    assert e["right"] / e["wrong"] > 16


@case("SCL-06")
def _(e):
    assert rope_attention_factor(Scaling("yarn", 64.0, 4096, attention_factor=1.0)) == 1.0
    assert rope_attention_factor(Scaling("yarn", 128.0, 4096, attention_factor=1.4852)) == 1.4852
    for factor, value in e["default"].items():
        close(rope_attention_factor(Scaling("yarn", float(factor), 4096)), value)


@case("SCL-08")
def _(e):
    for factor, m in ((16.0, 1.0), (40.0, 1.0), (40.0, 0.707)):
        assert (
            rope_attention_factor(Scaling("yarn", factor, 4096, mscale=m, mscale_all_dim=m)) == e["cos_sin"]
        )
    close(yarn_mscale(40.0) ** 2, e["v3"])
    close(yarn_mscale(40.0, 0.707) ** 2, e["v2lite"])


@case("SCL-10")
def _(e):
    s = Scaling("yarn", 32.0, 4096, truncate=False)
    close(list(yarn_range(64, 150000.0, s)), [e["low"], e["high"]], 5)
    close(inv_freq(64, 150000.0, s)[12], e["i12"])
    close(inv_freq(64, 150000.0, Scaling("yarn", 32.0, 4096))[12], 0.007015714)


@case("SCL-13")
def _(e):
    lm, idx = toys.model("longrope", torch.float64), toys.tokens(2, 23)  # trained length 16
    whole = lm(idx)
    chunked = toys.feed(lm, idx, [10, 10, 3])[0]  # the cache was told of 23 tokens
    assert_close(chunked, whole, model_sums(lm.config, 23))
    assert distance(lm(idx[:, :10]), whole[:, :10]) > 0.001  # a chunk on its own list is another rotation
    cache = lm.new_cache(2)
    lm(idx[:, :10], cache=cache)
    with pytest.raises(ValueError, match="one sequence has one table"):  # a cache that was not told refuses
        lm(idx[:, 10:20], cache=cache)


def test_untied_and_tied_seed_models_differ_by_one_matrix():
    sizes = [sum(p.numel() for p in LlamaStyleLM(1000, tie=tie).parameters()) for tie in (False, True)]
    assert sizes[0] - sizes[1] == 1000 * 256


@pytest.mark.parametrize("name", sorted(COVERED))
def test_case(name):
    COVERED[name](CASES[name]["expected"])


def test_no_case_is_dropped():
    elsewhere = {name: file for file, names in ELSEWHERE.items() for name in names.split()}
    homes = [set(COVERED), set(test_cases_attention.COVERED), set(test_cases_files.COVERED), set(elsewhere)]
    assert set().union(*homes) == set(CASES) and sum(map(len, homes)) == len(CASES) == 92
    for file in set(elsewhere.values()):
        assert (HERE / file).is_file(), file
