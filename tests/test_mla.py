"""Multi-head latent attention: expanded = absorbed = re-expanded, what is cached, and one layer at DeepSeek-V3's size."""

import math

import pytest
import torch

import toys
from lib import GQAttention, KVCache, LatentCache, MLAttention, apply_rope, attend, permute_heads, rope_cache
from lib.config import Norm, Rope, Scaling
from tolerances import as_printed, assert_close, attention_sums, distance

B, T, D = 3, 11, 60
H, C, N, R, DV = 5, 18, 12, 8, 7  # heads, latent, nope, rope, value widths: pairwise different
SIZES = {"n_heads": H, "kv_lora_rank": C, "qk_nope_head_dim": N, "qk_rope_head_dim": R, "v_head_dim": DV}
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def module(q_lora_rank=22, dtype=torch.float64, seed=0, **fields):
    return toys.randomise(MLAttention(D, q_lora_rank=q_lora_rank, **SIZES, **fields), seed).to(dtype)


def sums(attn, keys=T):
    return attention_sums(attn.wo.out_features, attn.fields, keys)


def inputs(t=T, dtype=torch.float64):
    return torch.randn(B, t, D, dtype=dtype), *rope_cache(t, R)


def latent_cache(dtype=torch.float64, max_len=T):
    return LatentCache(B, max_len, C, R, dtype=dtype)


def stepped(attn, form, x, cos, sin, chunks, cache):
    out, start = [], 0
    for size in chunks:
        rows = slice(start, start + size)
        out.append(getattr(attn, form)(x[:, rows], cos[rows], sin[rows], cache))
        start += size
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("q_lora_rank", [22, None])
@pytest.mark.parametrize("bias", [False, True])
def test_by_the_formula(q_lora_rank, bias):
    """Head by head from the paper's equations: W_UK c, W_UV c, one rotated key for all heads, scale (n + r)**-0.5."""
    attn = module(q_lora_rank, bias=bias, norm=Norm(eps=1e-5))
    x, cos, sin = inputs()

    def norm(y, w):
        return y / (y.pow(2).mean(-1, True) + 1e-5).sqrt() * w

    down = attn.wkv_a(x)
    c, k_rope = norm(down[..., :C], attn.kv_norm.weight), down[..., C:]
    q = attn.wq(x) if q_lora_rank is None else attn.wq_b(norm(attn.wq_a(x), attn.q_norm.weight))

    def turned(y):  # adjacent pairs as complex numbers
        z = torch.complex(y[..., 0::2], y[..., 1::2]) * torch.complex(cos.double(), sin.double())
        return torch.stack([z.real, z.imag], -1).flatten(-2)

    heads = []
    for j in range(H):
        qj = q[..., j * (N + R) : (j + 1) * (N + R)]
        w = attn.wkv_b.weight[j * (N + DV) : (j + 1) * (N + DV)]
        scores = qj[..., :N] @ (c @ w[:N].T).transpose(-1, -2)
        scores = scores + turned(qj[..., N:]) @ turned(k_rope).transpose(-1, -2)
        scores = (scores / math.sqrt(N + R)).masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        heads.append(scores.softmax(-1) @ (c @ w[N:].T))
    want = attn.wo(torch.cat(heads, -1))
    for form in ("expanded", "absorbed", "forward"):
        assert_close(getattr(attn, form)(x, cos, sin), want, sums(attn))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunks", [[T], [1] * T, [4, 1, 3, 1, 2], [2, 9], [1, 10]])
@pytest.mark.parametrize("q_lora_rank", [22, None])
def test_three_caches_one_answer(q_lora_rank, chunks, dtype):
    """Expanded keys and values cached, latents re-expanded at every step, absorbed: the same numbers, different bytes."""
    x, cos, sin = inputs()
    want = module(q_lora_rank).expanded(x, cos, sin)
    attn = module(q_lora_rank, dtype)
    caches = {
        "expanded": KVCache(B, T, H, N + R, DV, dtype=dtype),
        "re-expanded": latent_cache(dtype),
        "absorbed": latent_cache(dtype),
        "forward": latent_cache(dtype),
    }
    for name, cache in caches.items():
        form = "expanded" if name == "re-expanded" else name
        got = stepped(attn, form, x.to(dtype), cos, sin, chunks, cache)
        assert got.dtype == dtype
        assert_close(got, want, sums(attn), what=name)
    assert caches["expanded"].nbytes == B * T * H * (N + R + DV) * dtype.itemsize
    assert caches["re-expanded"].nbytes == caches["absorbed"].nbytes == B * T * (C + R) * dtype.itemsize


def test_what_is_cached_is_the_normalised_latent_and_the_rotated_key():
    attn, (x, cos, sin) = module(), inputs()
    cache = latent_cache()
    attn.absorbed(x, cos, sin, cache)
    latent, k_rope = attn.wkv_a(x).split([C, R], -1)
    assert_close(cache.latent[..., :C], attn.kv_norm(latent), (D, C))
    want = apply_rope(k_rope[:, None], cos, sin, "adjacent")[:, 0]
    assert_close(cache.latent[..., C:], want, (D, 2))


def test_absorbed_is_mqa_with_one_wide_key_and_its_own_first_part_as_value():
    attn, (x, cos, sin) = module(), inputs()
    q_nope, q_rope = attn.queries(x, cos, sin)
    latents = attn.latents(x, cos, sin)
    w_uk, w_uv = attn.up_projections()
    assert w_uk.shape == (H, N, C) and w_uv.shape == (H, DV, C)
    q = torch.cat([q_nope @ w_uk, q_rope], -1)
    out = attend(
        q, latents[:, None], latents[:, None, :, :C], scale=(N + R) ** -0.5, implementation="explicit"
    )
    got = attn.wo((out @ w_uv.transpose(-1, -2)).transpose(1, 2).flatten(2))
    assert_close(got, attn.absorbed(x, cos, sin), sums(attn))


def test_a_rotation_between_the_query_and_w_uk_breaks_absorption():
    """q^T R(delta) W c is another matrix for every delta, so no W can be folded in once."""
    w_uk = module().up_projections()[0][0]
    q = torch.randn(N, dtype=torch.float64)
    folded = []
    for delta in (0, 1, 5):
        cos, sin = rope_cache(1, N, start=delta)
        folded.append(apply_rope(q[None], cos, sin, "adjacent")[0] @ w_uk)
    assert (folded[0] - folded[1]).norm() > 0.05 * folded[0].norm()
    assert (folded[1] - folded[2]).norm() > 0.05 * folded[0].norm()


def test_without_the_rope_key_the_past_has_no_order():
    attn, (x, cos, sin) = module(), inputs()
    attn.wkv_a.weight[C:] = 0.0
    order = torch.cat([torch.randperm(T - 1), torch.tensor([T - 1])])

    def last(latents):
        q = torch.cat(attn.queries(x, cos, sin), -1)[:, :, -1:]
        return attend(q, *attn.expand(latents), scale=attn.scale)

    latents = attn.latents(x, cos, sin)
    assert_close(last(latents[:, order]), last(latents), sums(attn))


@pytest.mark.parametrize("form", ["expanded", "absorbed"])
def test_masks_reach_every_form(form):
    attn, (x, cos, sin) = module(), inputs()
    mask = torch.ones(T, T, dtype=torch.bool).tril() & (torch.rand(B, 1, T, T) > 0.4) | torch.eye(
        T, dtype=torch.bool
    )
    other = {"expanded": "absorbed", "absorbed": "expanded"}[form]
    got, want = (getattr(attn, f)(x, cos, sin, None, mask) for f in (form, other))
    assert_close(got, want, sums(attn))
    assert distance(getattr(attn, form)(x, cos, sin), want) > 0.01


def test_scale():
    v3 = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    with torch.device("meta"):
        attn = MLAttention(7168, 128, 1536, **v3)
        scale = attn.scale
        assert attn.wkv_a.weight.shape == (576, 7168)
        assert sum(p.numel() for p in attn.parameters()) == 187_107_328
        assert MLAttention(7168, 128, 1536, **v3, scale=0.1352338).scale == 0.1352338
    as_printed(scale, 0.0721688)
    attn, (x, cos, sin) = module(scale=0.31), inputs()
    assert distance(module().absorbed(x, cos, sin), attn.absorbed(x, cos, sin)) > 0.01


def test_when_to_absorb():
    with torch.device("meta"):
        v3 = MLAttention(7168, 128, 1536, 512, 128, 64, 128)
    as_printed(v3.crossover(0), 170.667)  # by hand: 512 * 256 / 768
    as_printed(
        v3.crossover(), 182.333
    )  # and 7 FLOPs for each of 4 * 320 bytes written, and as many read: 8,960 more
    as_printed(v3.bfloat16().crossover(300), 420.667)
    assert (
        MLAttention(D, 5, None, 16, 16, 8, 16).crossover() == math.inf
    )  # a narrow latent: absorbing is never dearer
    calls = []
    attn, (x, cos, sin) = module(), inputs()
    attn.absorbed = lambda *a: calls.append("absorbed")
    attn.expanded = lambda *a: calls.append("expanded")
    limit = attn.crossover()
    assert 1 < limit == (C * (N + DV) + 7 * 8 * (N + R + DV)) / (2 * C - N - DV) and limit != int(limit)
    for t in (1, int(limit), int(limit) + 1):
        attn(torch.randn(1, t, D), cos, sin, latent_cache())
    attn(x, cos, sin)  # no cache: keys and values are needed once
    attn(x[:, :1], cos, sin, KVCache(B, T, H, N + R, DV))
    assert calls == ["absorbed", "absorbed", "expanded", "expanded", "expanded"]


def test_gradients_are_the_same_in_both_forms():
    x, cos, sin = inputs()
    grads = []
    for form in ("expanded", "absorbed"):
        attn = module().requires_grad_(True)
        getattr(attn, form)(x, cos, sin).square().sum().backward()
        grads.append({name: p.grad for name, p in attn.named_parameters()})
    assert grads[0].keys() == grads[1].keys() and len(grads[0]) == 7
    for name, grad in grads[0].items():
        assert_close(grad, grads[1][name], 2 * sums(attn), what=name)  # there and back


def test_errors():
    attn, (x, cos, sin) = module(), inputs()
    with pytest.raises(
        ValueError, match="the absorbed form reads latents, not KVCache: give it a LatentCache"
    ):
        attn.absorbed(x, cos, sin, KVCache(B, T, H, N + R, DV))
    with pytest.raises(ValueError, match="qk_rope_head_dim = 7 is odd"):
        MLAttention(D, **{**SIZES, "q_lora_rank": None, "qk_rope_head_dim": 7})
    for width in (4, 12):
        with pytest.raises(
            ValueError, match=f"the table turns {width} dimensions, this layer's rotary width is 8"
        ):
            attn(x, *rope_cache(T, width))
    with pytest.raises(ValueError, match="cache holds torch.float64, the new tokens are torch.float32"):
        attn.float()(x.float(), cos, sin, latent_cache())


@torch.no_grad()
def test_one_layer_of_deepseek_v3_at_its_true_size():
    """187.1M parameters, 0.75 GB in float32, 256 tokens: expanded = absorbed = transformers, prefill and decode."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as theirs

    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 4096,
            "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
    config = DeepseekV3Config(rope_parameters=rope, max_position_embeddings=163840, num_hidden_layers=1)
    config._attn_implementation = "eager"
    scaling = Scaling("yarn", 40.0, 4096, 163840, mscale=1.0, mscale_all_dim=1.0)
    scale = 192**-0.5 * (0.1 * math.log(40) + 1) ** 2
    with torch.device("meta"):
        hf = theirs.DeepseekV3Attention(config, 0).eval()
        ours = MLAttention(7168, 128, 1536, 512, 128, 64, 128, Rope(1e4, scaling, layout="adjacent"), scale)
    ours = ours.to_empty(device="cpu").requires_grad_(False).eval()
    for p in ours.parameters():
        if p.dim() == 1:
            p.uniform_(0.5, 1.5)
        else:
            p.normal_(std=p.shape[1] ** -0.5)
    assert sum(p.numel() for p in ours.parameters()) == 187_107_328
    names = {"wq_a": "q_a_proj", "q_norm": "q_a_layernorm", "wq_b": "q_b_proj", "wkv_a": "kv_a_proj_with_mqa",
             "kv_norm": "kv_a_layernorm", "wkv_b": "kv_b_proj", "wo": "o_proj"}  # fmt: skip
    for mine, yours in names.items():  # shared storage: the weights exist once
        getattr(hf, yours).weight = getattr(ours, mine).weight

    S = 256
    x = torch.randn(1, S, 7168)
    cos, sin = rope_cache(S, 64, scaling=scaling)
    causal = torch.full((S, S), float("-inf")).triu(1)[None, None]
    position = theirs.DeepseekV3RotaryEmbedding(config)(x, torch.arange(S)[None])
    want = hf(x, position_embeddings=position, attention_mask=causal)[0]
    expanded, absorbed = ours.expanded(x, cos, sin), ours.absorbed(x, cos, sin)
    for name, got in (("expanded", expanded), ("absorbed", absorbed)):
        assert_close(got, want, sums(ours, S), what=name)
    cache = LatentCache(1, S, 512, 64)
    ours(x[:, : S - 2], cos[: S - 2], sin[: S - 2], cache)  # 254 tokens at once: expanded
    for t in (S - 2, S - 1):  # then one by one: absorbed
        got = ours(x[:, t : t + 1], cos[t : t + 1], sin[t : t + 1], cache)
        assert_close(got, want[:, t : t + 1], sums(ours, S))
    assert cache.nbytes == S * 576 * 4


def gqa_as_mla(attention):
    """A GQA layer as an MLA layer with the same output: its values are the latent, its rotated keys the shared rope key."""
    a, d = attention.fields, attention.wq.in_features
    width, group = a.n_kv_heads * a.head_dim, a.n_heads // a.n_kv_heads
    layer = MLAttention(
        d, a.n_heads, None, a.n_kv_heads * a.d_v, 0, width, a.d_v, scale=a.head_dim**-0.5, latent_norm=False
    ).to(attention.wq.weight.dtype)
    wide = layer.wq.weight.data.view(a.n_heads, width, d).zero_()
    pick = layer.wkv_b.weight.data.view(a.n_heads, a.d_v, -1).zero_()
    for j, rows in enumerate(
        permute_heads(attention.wq.weight.data, a.n_heads, to="adjacent").split(a.head_dim)
    ):
        wide[j, (at := j // group * a.head_dim) : at + a.head_dim] = rows
        pick[j, :, (at := j // group * a.d_v) : at + a.d_v] = torch.eye(a.d_v)
    keys = permute_heads(attention.wk.weight.data, a.n_kv_heads, to="adjacent")
    layer.wkv_a.weight.data[:] = torch.cat([attention.wv.weight.data, keys])
    layer.wo.weight.data[:] = attention.wo.weight.data
    return layer


def test_gqa_is_mla_with_values_as_latent_and_keys_as_rope_key():
    """qk_nope_head_dim 0, no norm of the latent, the table tiled once for each KV head, GQA's own scale: expanded and absorbed."""
    gqa = toys.randomise(GQAttention(48, 6, 3, qk_norm=False, head_dim=8, v_head_dim=10), 3).double()
    mla = gqa_as_mla(gqa)
    x, (cos, sin) = torch.randn(2, 9, 48, dtype=torch.float64), rope_cache(9, 8)
    want = gqa(x, cos, sin)
    cache = LatentCache(2, 9, 30, 24, dtype=torch.float64)
    tiled = cos.repeat(1, 3), sin.repeat(1, 3)
    for got in (
        mla.expanded(x, *tiled),
        mla.absorbed(x, *tiled),
        torch.cat(
            [mla.absorbed(x[:, t : t + 1], *(y[t : t + 1] for y in tiled), cache) for t in range(9)], 1
        ),
    ):
        assert_close(got, want, sums(mla, 9))
    assert cache.latent.shape[-1] == 2 * 3 * 9  # as many numbers as GQA keeps: 3 heads of 8 + 10


def test_a_latent_without_a_norm_has_no_gain_and_is_counted_so():
    from lib import ModelConfig, arithmetic
    from lib.config import MLA, Dense, Layer

    for norm in (True, False):
        a = MLA(H, 22, C, N, R, DV, latent_norm=norm)
        config = ModelConfig(50, D, (Layer(a, Dense(64)),))
        built = module(latent_norm=norm)
        assert arithmetic.parameters(config).attention == sum(p.numel() for p in built.parameters())
    with pytest.raises(ValueError, match="qk_nope_head_dim = -1: expected a whole number"):
        MLA(H, 22, C, -1, R, DV)
