"""Attention: masks and their alignment, GQA against MHA, SDPA against the explicit oracle, cached against uncached."""

import pytest
import torch

import toys
from lib import GQAttention, KVCache, attend, causal_mask, repeat_kv, rope_cache
from lib.config import Norm, Rope
from tolerances import assert_close, attention_sums, distance

B, H, N_KV, T, S, DH, DV = 2, 6, 3, 5, 11, 14, 10
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def qkv(h=H, n_kv=N_KV, t=T, s=S, dtype=torch.float32):
    q, k = torch.randn(B, h, t, DH), torch.randn(B, n_kv, s, DH)
    return q.to(dtype), k.to(dtype), torch.randn(B, n_kv, s, DV).to(dtype)


def counting(t, s, **kw):
    """Uniform weights over v = 1, 2, 3 ..: the answer is the mean of the visible positions."""
    v = torch.arange(1.0, s + 1).view(1, 1, s, 1)
    zeros = torch.zeros(1, 1, s, 1)
    return attend(zeros[:, :, :t], zeros, v, **kw).flatten().tolist()


@pytest.mark.parametrize("implementation", ["sdpa", "explicit"])
def test_alignment_is_to_the_last_key(implementation):
    assert counting(2, 5, implementation=implementation) == pytest.approx([2.5, 3.0])
    assert counting(1, 5, implementation=implementation) == pytest.approx([3.0])
    assert counting(3, 3, implementation=implementation) == pytest.approx([1.0, 1.5, 2.0])
    assert counting(4, 5, implementation=implementation) == pytest.approx(
        [1.5, 2.0, 2.5, 3.0]
    )  # one key before


@pytest.mark.parametrize("implementation", ["sdpa", "explicit"])
def test_masks_by_hand(implementation):
    window = causal_mask(torch.tensor([3, 4]), torch.arange(5), window=2)
    assert counting(2, 5, mask=window, implementation=implementation) == pytest.approx([3.5, 4.5])
    nowhere = torch.tensor([[False] * 5, [True] * 5])
    assert counting(2, 5, mask=nowhere, implementation=implementation) == pytest.approx(
        [0.0, 3.0]
    )  # never NaN


def test_causal_mask_is_the_drawing():
    assert causal_mask(torch.tensor([3, 4]), torch.arange(5)).int().tolist() == [
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    out_of_order = causal_mask(torch.tensor([5]), torch.tensor([3, 4, 5, 2]), window=3)  # a ring's slots
    assert out_of_order.int().tolist() == [[1, 1, 1, 0]]
    padded = causal_mask(torch.arange(4), torch.arange(4), pad=torch.tensor([0, 2]))
    assert padded.shape == (2, 1, 4, 4) and padded.any(-1).all()  # every query sees something
    assert padded[1, 0].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


def test_repeat_kv_is_in_place_and_not_tiled():
    k = torch.arange(2.0).view(1, 2, 1, 1).expand(B, 2, S, DH)
    got = repeat_kv(k, 3)
    assert got.shape == (B, 6, S, DH)
    assert got[0, :, 0, 0].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("implementation", ["sdpa", "explicit"])
@pytest.mark.parametrize("t", [1, T])
def test_query_head_j_uses_kv_head_j_div_group(t, implementation):
    q, k, v = qkv(t=t, dtype=torch.float64)
    out = attend(q, k, v, implementation=implementation)
    for j in range(H):
        one = slice(j // (H // N_KV), j // (H // N_KV) + 1)
        want = attend(q[:, j : j + 1], k[:, one], v[:, one], implementation="explicit")
        assert_close(out[:, j : j + 1], want, (DH, S, S))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ["none", "window", "per_row", "per_head"])
@pytest.mark.parametrize(("h", "n_kv"), [(6, 6), (6, 3), (6, 1), (1, 1)])
@pytest.mark.parametrize("t", [1, T, S])
def test_sdpa_is_the_explicit_softmax(t, h, n_kv, mask, dtype):
    q, k, v = qkv(h, n_kv, t, dtype=dtype)
    columns, keys = torch.arange(S - t, S), torch.arange(S)
    masks = {
        "none": None,
        "window": causal_mask(columns, keys, 3),
        "per_row": causal_mask(columns, keys, pad=torch.tensor([0, 4])),
        "per_head": causal_mask(columns, keys) & (torch.rand(B, h, t, S) > 0.3),
    }
    fast, oracle = (attend(q, k, v, masks[mask], 0.3, how) for how in ("sdpa", "explicit"))
    assert fast.dtype == oracle.dtype == dtype and fast.shape == (B, h, t, DV)
    wide = attend(q.double(), k.double(), v.double(), masks[mask], 0.3, "explicit")
    for got in (fast, oracle):
        assert_close(got, wide, (DH, S, S))


def test_the_scale_is_head_dim_unless_given():
    q, k, v = qkv()
    assert_close(attend(q, k, v), attend(q, k, v, scale=DH**-0.5), (DH, S, S))
    assert distance(attend(q, k, v, scale=0.3), attend(q, k, v)) > 0.01


def test_errors_of_attend():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="query heads a multiple of KV heads"):
        attend(q[:, :4], k, v)
    with pytest.raises(ValueError, match="were heads and tokens swapped"):
        attend(q, k, v[:, :, :4])
    with pytest.raises(ValueError, match="q and k alike in width"):
        attend(q, k[..., :8], v)
    with pytest.raises(ValueError, match="q and k alike"):
        attend(q[:1], k, v)
    with pytest.raises(ValueError, match="11 queries and 5 keys without a mask"):
        attend(*qkv(t=S, s=T))
    with pytest.raises(ValueError, match="implementation 'flash': expected 'sdpa', 'explicit' or 'triton'"):
        attend(q, k, v, implementation="flash")


# ---- the module

D = 60


def module(dtype=torch.float64, seed=0, **fields):
    made = GQAttention(D, **{"n_heads": 6, "n_kv_heads": 2, "head_dim": 14, **fields})
    return toys.randomise(made, seed).to(dtype)


def sums(attn):
    return attention_sums(D, attn.fields, 9)


def inputs(t=9, dtype=torch.float64, width=14):
    return torch.randn(B, t, D, dtype=dtype), *rope_cache(t, width)


def test_by_the_formula_with_random_gains_and_biases():
    attn = module(bias=True, out_bias=True, qk_norm=True, norm=Norm(eps=1e-5))
    x, cos, sin = inputs()
    t, group = x.shape[1], 3
    out = []
    for j in range(6):
        i = j // group
        q = x @ attn.wq.weight[14 * j : 14 * (j + 1)].T + attn.wq.bias[14 * j : 14 * (j + 1)]
        k = x @ attn.wk.weight[14 * i : 14 * (i + 1)].T + attn.wk.bias[14 * i : 14 * (i + 1)]
        v = x @ attn.wv.weight[14 * i : 14 * (i + 1)].T + attn.wv.bias[14 * i : 14 * (i + 1)]
        q = q / (q.pow(2).mean(-1, True) + 1e-5).sqrt() * attn.q_norm.weight  # norm first,
        k = k / (k.pow(2).mean(-1, True) + 1e-5).sqrt() * attn.k_norm.weight

        def turned(x):  # then rotation
            a, b = x[..., :7], x[..., 7:]
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

        scores = turned(q) @ turned(k).transpose(-1, -2) / 14**0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        out.append(scores.softmax(-1) @ v)
    want = torch.cat(out, -1) @ attn.wo.weight.T + attn.wo.bias
    assert_close(attn(x, cos, sin), want, sums(attn))


def test_mha_is_gqa_with_all_heads_and_gqa_is_mha_with_repeated_weights():
    attn, mha = module(bias=True), module(n_kv_heads=6, bias=True)
    x, cos, sin = inputs()
    for name in ("wk", "wv"):
        narrow, full = getattr(attn, name), getattr(mha, name)
        full.weight.copy_(narrow.weight.unflatten(0, (2, 14)).repeat_interleave(3, 0).flatten(0, 1))
        full.bias.copy_(narrow.bias.unflatten(0, (2, 14)).repeat_interleave(3, 0).flatten(0, 1))
    for name in ("wq", "wo", "q_norm", "k_norm"):
        getattr(mha, name).load_state_dict(getattr(attn, name).state_dict())
    assert_close(mha(x, cos, sin), attn(x, cos, sin), sums(attn))


def test_qk_norm_per_head_and_over_the_width():
    x, _cos, _sin = inputs()
    width = module(qk_norm="width")
    assert width.q_norm.weight.shape == (84,) and width.k_norm.weight.shape == (28,)
    q = width.wq(x)
    q = q / (q.pow(2).mean(-1, True) + 1e-6).sqrt() * width.q_norm.weight
    rope_free = GQAttention(D, 6, 2, qk_norm="width", head_dim=14, rope=None).double()
    rope_free.load_state_dict(width.state_dict())
    got = rope_free.project(x)[0]
    assert_close(got.transpose(1, 2).flatten(2), q, (D, 84))
    assert module(qk_norm=True).q_norm.weight.shape == (14,)
    assert isinstance(module(qk_norm=False).q_norm, torch.nn.Identity)


def test_qk_norm_bounds_every_logit():
    attn = module(qk_norm=True)
    attn.wq.weight.mul_(1e3)
    x, cos, sin = inputs()
    q, k, _ = attn.project(x, cos, sin)
    logits = q @ repeat_kv(k, 3).transpose(-1, -2) / 14**0.5
    bound = 14**0.5 * attn.q_norm.weight.abs().max() * attn.k_norm.weight.abs().max()
    assert logits.abs().max() <= bound
    free = module(qk_norm=False)
    free.wq.weight.mul_(1e3)
    q, k, _ = free.project(x, cos, sin)
    assert (q @ repeat_kv(k, 3).transpose(-1, -2)).abs().max() / 14**0.5 > 100 * bound


def test_values_are_never_rotated():
    attn = module()
    x, _cos, _sin = inputs()
    q0, k0, v0 = attn.project(x, *rope_cache(9, 14, start=0))
    q1, k1, v1 = attn.project(x, *rope_cache(9, 14, start=37))
    assert torch.equal(v0, v1) and distance(q1, q0) > 0.1 and distance(k1, k0) > 0.1


@pytest.mark.parametrize("chunks", [[9], [1] * 9, [4, 1, 3, 1], [2, 7], [1, 8]])
@pytest.mark.parametrize("window", [None, 1, 4, 20])
@pytest.mark.parametrize("rope", [Rope(), None, Rope(rotary_dim=6, layout="adjacent")])
def test_cached_is_uncached(chunks, window, rope):
    attn = module(window=window, rope=rope, v_head_dim=10)
    x = torch.randn(B, 9, D, dtype=torch.float64)
    cos, sin = rope_cache(9, rope.rotary_dim or 14 if rope else 14)
    want = attn(x, cos, sin)
    cache, start = KVCache(B, 9, 2, 14, 10, window, dtype=torch.float64), 0
    for size in chunks:
        rows = slice(start, start + size)
        got = attn(x[:, rows], cos[rows], sin[rows], cache)
        assert_close(got, want[:, rows], sums(attn))
        start += size


def test_a_window_is_a_window():
    attn = module(window=4)
    x, cos, sin = inputs()
    far = x.clone()
    far[:, 4] += 1.0
    moved = (attn(far, cos, sin) - attn(x, cos, sin)).abs().amax((0, 2)) > 0
    assert moved.tolist() == [False] * 4 + [True] * 4 + [False]  # queries 4 to 7 see key 4, query 8 does not


def test_a_layer_without_rope_does_not_know_the_order():
    """Without a causal mask and without rotation, permuting the keys changes nothing."""
    attn = module(rope=None)
    x = torch.randn(B, 9, D, dtype=torch.float64)
    shuffled = x[:, torch.randperm(9)]
    everywhere = torch.ones(1, 9, dtype=torch.bool)
    q, k, v = attn.project(x)
    _, k2, v2 = attn.project(shuffled)
    last = q[:, :, -1:]
    assert_close(attend(last, k, v, everywhere), attend(last, k2, v2, everywhere), sums(attn))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype(dtype):
    attn, (x, cos, sin) = module(torch.float64), inputs()
    want = attn(x, cos, sin)
    got = module(dtype)(x.to(dtype), cos, sin)
    assert got.dtype == dtype
    assert_close(got, want, sums(attn))


def test_errors_of_the_module():
    with pytest.raises(ValueError, match="n_heads = 6 is not divisible by n_kv_heads = 4"):
        GQAttention(D, 6, 4, head_dim=14)
    with pytest.raises(ValueError, match="d = 60 is not divisible by n_heads = 7: give head_dim"):
        GQAttention(D, 7, 7)
    with pytest.raises(ValueError, match="rotary width 15 is odd"):
        GQAttention(D, 6, 2, head_dim=15)
    with pytest.raises(ValueError, match="no cos, sin came"):
        module()(torch.randn(B, 9, D).double())
    x, _, _ = inputs()
    with pytest.raises(ValueError, match="the table turns 12 dimensions, this layer's rotary width is 14"):
        module()(x, *rope_cache(9, 12))
    with pytest.raises(ValueError, match="qk_norm = 'wide'"):
        GQAttention(D, 6, 2, qk_norm="wide", head_dim=14)
