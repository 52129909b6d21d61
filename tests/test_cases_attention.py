"""Public faults, second part: attention, masks, cache stepping, MLA, QK-norm. See test_cases.py."""

import math

import pytest
import torch
from torch.nn import functional as F

import toys
from case_tools import CASES, close, register, score, turn, uniform
from lib import (
    GPT2LM,
    KVCache,
    MLAttention,
    attend,
    causal_mask,
    layout_permutation,
    permute_heads,
    repeat_kv,
    rms_norm,
    rope_cache,
    yarn_mscale,
)
from lib.config import Rope
from tolerances import assert_close, attention_sums, distance, model_sums, rtol

COVERED, case = register()


# ---- attention, masks, stepping


@case("ATT-01")
def _(e):
    close(uniform(2, 5), e["right"])
    zeros, v = torch.zeros(1, 1, 5, 1), torch.arange(1.0, 6.0).view(1, 1, 5, 1)
    top_left = F.scaled_dot_product_attention(zeros[:, :, :2], zeros, v, is_causal=True)
    close(top_left.flatten(), e["topleft"])


@case("ATT-02")
def _(e):
    close(uniform(1, 5), [e["right"]])


@case("ATT-04")
def _(e):
    mask = causal_mask(torch.arange(3), torch.arange(3))
    close(uniform(3, 3, mask), e["right"])
    zeros, v = torch.zeros(1, 1, 3, 1), torch.arange(1.0, 4.0).view(1, 1, 3, 1)
    close(F.scaled_dot_product_attention(zeros, zeros, v, mask.float()).flatten(), e["additive01"])


@case("ATT-05")
def _(e):
    """Re-run: one kernel refuses a mask with is_causal, another takes both. `attend` never passes both."""
    q, mask = torch.zeros(1, 1, 3, 2), torch.ones(3, 3, dtype=torch.bool)
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        pytest.raises(RuntimeError, match="is_causal"),
    ):
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True)
    for t in (1, 2, 3):
        assert (
            uniform(t, 3, causal_mask(torch.arange(3 - t, 3), torch.arange(3))).tolist()
            == uniform(t, 3).tolist()
        )


@case("ATT-06")
def _(e):
    lm, idx, pad = toys.model("gqa"), toys.tokens(1, 4), torch.tensor([2])
    out = lm(idx, pad=pad)
    assert out.isfinite().all()
    assert_close(out[:, 2:], lm(idx[:, 2:]), model_sums(lm.config, 4))


@case("ATT-09")
def _(e):
    k = torch.randn(1, 5, 2, 8)  # batch, seq, heads, dim
    assert list(repeat_kv(k.transpose(1, 2), 2).transpose(1, 2).shape) == e["shape"]
    assert list(repeat_kv(k, 2).shape) == [
        1,
        10,
        2,
        8,
    ]  # axis 1 was the sequence: `attend` refuses what comes of it
    with pytest.raises(ValueError, match="were heads and tokens swapped"):
        attend(torch.randn(1, 4, 5, 8), repeat_kv(k, 2).transpose(1, 2), repeat_kv(k, 2))


@case("ATT-10")
def _(e):
    """Re-run on the CPU, 33 and 65 keys: every path of `attend` against the explicit softmax. On CUDA: `make gpu`."""
    for s in (33, 65):
        for n_kv, t in ((2, 1), (2, 5), (1, 5)):
            q, k, v = torch.randn(2, 4, t, 8), torch.randn(2, n_kv, s, 8), torch.randn(2, n_kv, s, 8)
            assert_close(attend(q, k, v), attend(q, k, v, implementation="explicit"), (8, s, s))


@case("ATT-11")
def _(e):
    q = torch.randn(1, 2, 5, 8)
    assert not torch.equal(
        *(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(2))
    )  # re-run: true
    lm = toys.model("gqa").train()  # the block has no dropout: the same numbers in both modes
    assert torch.equal(lm(toys.tokens(2, 9)), lm.eval()(toys.tokens(2, 9)))


@case("ATT-13")
def _(e):
    one = torch.tensor([1.0, 0.0])
    close(score(one, one, 5, 4), math.cos(1))
    close(score(one, one, 10, 4), 0.96017)  # the query shifted by 5, the key not
    q, k = torch.randn(64, dtype=torch.float64), torch.randn(64, dtype=torch.float64)
    size = (
        q.norm() * k.norm()
    )  # the table is float32: an angle of 14 radians is 14 times as coarse as one of 1
    assert distance(score(q, k, 9, 4), score(q, k, 14, 9), 14 * size) <= rtol(torch.float32, (2, 64))
    assert distance(score(q, k, 14, 4), score(q, k, 9, 4), size) > 0.01
    gpt2 = toys.randomise(GPT2LM(97, 60, 1, 5, 50))
    idx = toys.tokens(1, 9)
    shifted = gpt2(torch.cat([idx[:, :1].expand(1, 5), idx], 1))[:, 5:]
    assert distance(shifted, gpt2(idx)) > 0.1  # learned positions break either way


@case("ATT-14")
def _(e):
    """Re-run on the toy model, logits of size about 1: the reported bounds hold."""
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)):
        lm, idx = toys.model("gqa", dtype, tied=False), toys.tokens(3, 23)
        apart = (toys.feed(lm, idx, [11] + [1] * 12)[0] - lm(idx)).abs().max()
        assert apart <= e[name], name


@case("STEP-01")
def _(e):
    close(uniform(3, 3), e["right"])
    cache = KVCache(1, 8, 1, 1)
    k, v = cache.append(torch.zeros(1, 1, 3, 1), torch.arange(1.0, 4.0).view(1, 1, 3, 1))
    close(attend(torch.zeros(1, 1, 3, 1), k, v).flatten(), e["right"])
    everything = torch.ones(3, 3, dtype=torch.bool)
    close(attend(torch.zeros(1, 1, 3, 1), k, v, everything).flatten(), [2, 2, 2])


def positions_used(lm, idx, chunks):
    """For each layer the first position of every call, read back from the table rows that its attention was given."""
    cos, sin = rope_cache(lm.config.max_len, 14)
    seen = [[] for _ in lm.blocks]

    def spy(i, args):
        _, c, s, *_ = args
        seen[i].append(int(((cos - c[0]).abs() + (sin - s[0]).abs()).sum(-1).argmin()))

    for i, block in enumerate(lm.blocks):
        block.attn.register_forward_pre_hook(lambda _, args, i=i: spy(i, args))
    toys.feed(lm, idx, chunks)
    return seen


@case("STEP-03")
def _(e):
    assert positions_used(toys.model("gqa"), toys.tokens(1, 9), [6, 1, 1, 1]) == [e["offsets"]]


@case("STEP-05")
def _(e):
    lm = toys.model("gqa", layers=tuple(toys.LAYERS["gqa"]) * 2)
    assert [layer[-1] for layer in positions_used(lm, toys.tokens(1, 6), [5, 1])] == e["pos"]


@case("STEP-08")
def _(e):
    """Re-run: row 0 holds the first token's key, and one-by-one equals the full forward."""
    lm, idx = toys.model("gqa"), toys.tokens(1, 5)
    logits, cache = toys.feed(lm, idx, [1] * 5)
    assert_close(logits, lm(idx), model_sums(lm.config, 5))
    first = lm.blocks[0].attn
    x = lm.blocks[0].attn_norm(lm.emb(idx[:, :1]))
    assert_close(cache.layers[0].k[:, :, :1], first.project(x, *rope_cache(1, 14))[1], (60, 60, 2))
    assert cache.layers[0].k[:, :, 0].abs().min() > 0


# ---- MLA and QK-norm


@case("MLA-01")
def _(e):
    with torch.device("meta"):
        base = MLAttention(7168, 128, 1536, 512, 128, 64, 128)
    close(base.scale, e["base"])
    close(base.scale * yarn_mscale(40.0) ** 2, e["yarn"])
    attn = toys.randomise(MLAttention(60, q_lora_rank=None, scale=e["yarn"], **toys.MLA_SIZES)).double()
    x, table = torch.randn(2, 9, 60, dtype=torch.float64), rope_cache(9, 8)
    assert_close(attn.expanded(x, *table), attn.absorbed(x, *table), attention_sums(60, attn.fields, 9))


@case("MLA-02")
def _(e):
    with torch.device("meta"):
        attn = MLAttention(7168, 128, 1536, 512, 128, 64, 128)
    assert attn.wkv_a.out_features == e["out"] == sum(e["split"])
    assert attn.wkv_b.in_features == e["split"][0] and attn.fields.qk_rope_head_dim == e["split"][1]


@case("MLA-04")
def _(e):
    """Adjacent pairs on the raw channels, or regrouped to halves first: the same scores. Halves on the raw channels: not."""
    attn = toys.randomise(MLAttention(60, q_lora_rank=None, **toys.MLA_SIZES)).double()
    half = toys.randomise(
        MLAttention(60, q_lora_rank=None, rope=Rope(layout="half"), **toys.MLA_SIZES)
    ).double()
    x, table = torch.randn(2, 40, 60, dtype=torch.float64), rope_cache(40, 8)
    want = attn.absorbed(x, *table)
    assert distance(half.absorbed(x, *table), want) > 0.01
    order = layout_permutation(8, "half")
    half.wkv_a.weight[18:] = half.wkv_a.weight[18:][order]
    q = half.wq.weight.view(5, 20, 60)
    q[:, 12:] = q[:, 12:][:, order].clone()
    assert_close(half.absorbed(x, *table), want, attention_sums(60, half.fields, 40))


@case("QKN-01")
def _(e):
    x, gain = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0])
    close(turn(rms_norm(x, gain, 0.0), 1), e["before"])
    close(rms_norm(turn(x, 1), gain, 0.0), e["after"])
    close(turn(rms_norm(x, eps=0.0), 1), e["nogain"])
    close(rms_norm(turn(x, 1), eps=0.0), e["nogain"])


@case("QKN-02")
def _(e):
    q = torch.tensor([1.0, 1.0, 10.0, 10.0])
    close(rms_norm(q.view(2, 2), eps=0.0).flatten(), e["per_head"])
    close(rms_norm(q, eps=0.0), e["whole"])
    assert toys.model("width_norm_after").blocks[0].attn.k_norm.weight.shape == (
        2 * 14,
    )  # n_kv_heads * head_dim


@case("QKN-03")
def _(e):
    q, k, gain = torch.randn(8), torch.randn(8), torch.linspace(0.5, 2, 8)
    order = layout_permutation(8, "adjacent")
    assert order.tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    want = score(rms_norm(q, gain), rms_norm(k, gain), 37, 3, "half")
    moved = permute_heads(gain, 1, "adjacent")
    got = score(rms_norm(q[order], moved), rms_norm(k[order], moved), 37, 3, "adjacent")
    size = rms_norm(q, gain).norm() * rms_norm(k, gain).norm()
    assert_close(got, want, (8, 2, 8), scale=size)
    forgotten = score(rms_norm(q[order], gain), rms_norm(k[order], gain), 37, 3, "adjacent")
    assert distance(forgotten, want, size) > 0.001


@pytest.mark.parametrize("name", sorted(COVERED))
def test_case(name):
    COVERED[name](CASES[name]["expected"])
