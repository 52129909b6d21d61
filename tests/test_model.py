"""The whole model: the seed's numbers, cached = uncached for every kind of layer, padding, dtypes, ties, and refusals."""

import copy
import dataclasses

import pytest
import torch

import toys
from lib import Block, GQAttention, LlamaStyleLM, RMSNorm, SwiGLU, parameters, rope_cache
from lib.config import Counted, Dense, Layer, MoE, Norm
from tolerances import assert_close, distance, model_sums

B, T = 3, 23
KINDS = sorted(toys.LAYERS)
CHUNKS = [[1] * T, [9, 1, 1, 7, 5], [2, 20, 1], [1, T - 1], [T]]


def test_the_seed_model():
    model = LlamaStyleLM(V=1000)
    logits = model(torch.randint(0, 1000, (2, 16)))
    assert list(logits.shape) == [2, 16, 1000] and logits.dtype == torch.float32
    assert sum(p.numel() for p in model.parameters()) == 3_283_456 == parameters(model.config).total
    names = {name for name, _ in model.named_parameters()}
    parts = "attn_norm attn.wq attn.wk attn.wv attn.wo attn.q_norm attn.k_norm ffn_norm ffn.w_gate ffn.w_up ffn.w_down"
    assert names == {"emb.weight", "norm.weight", "head.weight"} | {
        f"blocks.{i}.{part}.weight" for i in range(4) for part in parts.split()
    }


def test_the_seed_modules_by_position():
    x, (cos, sin) = torch.randn(2, 7, 60), rope_cache(7, 10)
    assert GQAttention(60, 6, 2)(x, cos, sin).shape == (2, 7, 60)
    assert GQAttention(60, 6, 2, False)(x, cos, sin).shape == (2, 7, 60)
    assert Block(60, 6, 2, 44)(x, cos, sin).shape == (2, 7, 60)
    assert RMSNorm(60, 1e-5)(x).shape == SwiGLU(60, 44)(x).shape == (2, 7, 60)
    tied = LlamaStyleLM(97, 60, 2, 6, 2, 44, 50, 500.0, True)
    assert (
        tied.config.tied and tied.config.layers[0].attention.rope.base == 500.0 and tied.config.max_len == 50
    )


def test_the_model_is_the_seed_s_forward_written_out():
    """Every module's weights in plain tensor operations: embedding, pre-norm residuals, SwiGLU, final norm, head."""
    lm = toys.randomise(LlamaStyleLM(97, 60, 2, 6, 2, 44, eps=1e-5)).double()
    idx = toys.tokens(B, T)
    cos, sin = rope_cache(T, 10)

    def norm(x, w):
        return x / (x.pow(2).mean(-1, True) + 1e-5).sqrt() * w

    x = lm.emb.weight[idx]
    for block in lm.blocks:
        x = x + block.attn(norm(x, block.attn_norm.weight), cos, sin)
        y = norm(x, block.ffn_norm.weight)
        gate = y @ block.ffn.w_gate.weight.T
        x = x + (gate * gate.sigmoid() * (y @ block.ffn.w_up.weight.T)) @ block.ffn.w_down.weight.T
    want = norm(x, lm.norm.weight) @ lm.head.weight.T
    assert_close(lm(idx), want, model_sums(lm.config, T))


@pytest.mark.parametrize("place", ["pre", "post", "sandwich"])
def test_where_the_norms_stand(place):
    block = toys.randomise(Block.from_layer(60, toys.layer(toys.gqa(), place), Norm(eps=1e-5))).double()
    x, (cos, sin) = torch.randn(2, 7, 60, dtype=torch.float64), rope_cache(7, 14)
    pre, post = place in ("pre", "sandwich"), place in ("post", "sandwich")
    assert sum(p.numel() for n, p in block.named_parameters() if "norm" in n) == 60 * (2 * pre + 2 * post)
    y = block.attn(block.attn_norm(x) if pre else x, cos, sin)
    h = x + (block.attn_post_norm(y) if post else y)
    y = block.ffn(block.ffn_norm(h) if pre else h)
    want = h + (block.ffn_post_norm(y) if post else y)
    assert_close(block(x, cos, sin), want, model_sums(toys.config("gqa"), 7))


@pytest.mark.parametrize("kind", KINDS)
def test_cached_is_uncached(kind):
    lm, idx = toys.model(kind, torch.float64), toys.tokens(B, T)
    want = lm(idx)
    room = T if kind == "dynamic" else None  # beyond the trained length the base is the declared length's
    for chunks in CHUNKS:
        got, cache = toys.feed(lm, idx, chunks, max_len=room)
        assert got.dtype == torch.float64 and cache.length == T
        assert_close(got, want, model_sums(lm.config, T))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["gqa", "window", "sandwich", "mla", "width_norm_after"])
def test_cached_is_uncached_within_the_dtype(kind, dtype):
    lm, idx = toys.model(kind, dtype, tied=False), toys.tokens(B, T)
    want = lm(idx)
    for chunks in CHUNKS[:2]:
        got, _ = toys.feed(lm, idx, chunks)
        assert got.dtype == dtype
        assert_close(got, want, model_sums(lm.config, T))


@pytest.mark.parametrize("kind", KINDS)
def test_left_padding_changes_nothing(kind):
    lm, idx, pad = toys.model(kind, torch.float64), toys.tokens(B, T), torch.tensor([0, 4, 9])
    whole = lm(idx, pad=pad)
    for chunks in ([T], [11, 1, 1, 8, 2], [2] + [1] * (T - 2)):
        got, cache = toys.feed(lm, idx, chunks, pad, T)
        assert got.isfinite().all() and torch.equal(cache.pad, pad)
        for b, skip in enumerate(pad.tolist()):
            short = lm(idx[b : b + 1, skip:])
            for logits in (got, whole):
                assert_close(logits[b, skip:], short[0], model_sums(lm.config, T))


def test_what_stands_in_the_padding_does_not_matter():
    lm, idx, pad = toys.model("window"), toys.tokens(B, T), torch.tensor([0, 4, 9])
    other = torch.where(torch.arange(T) < pad[:, None], 5, idx)
    real = torch.arange(T) >= pad[:, None]
    assert torch.equal(lm(idx, pad=pad)[real], lm(other, pad=pad)[real])


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_is_not_seen_and_rows_do_not_mix(kind):
    lm, idx = toys.model(kind), toys.tokens(B, T)
    changed = idx.clone()
    changed[1, 15] = (changed[1, 15] + 1) % toys.V
    moved = (lm(changed) - lm(idx)).abs().amax(-1) > 0
    assert not moved[0].any() and not moved[2].any() and not moved[1, :15].any() and moved[1, 15]


@pytest.mark.parametrize("kind", KINDS)
def test_sdpa_is_the_explicit_softmax_in_the_whole_model(kind):
    lm, idx = toys.model(kind, torch.float64), toys.tokens(B, T)
    want, pad = lm(idx), torch.tensor([0, 4, 9])
    padded = lm(idx, pad=pad)
    for block in lm.blocks:
        block.attn.implementation = "explicit"
    assert_close(lm(idx), want, model_sums(lm.config, T))
    assert_close(lm(idx, pad=pad), padded, model_sums(lm.config, T))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_what_arithmetic_counts(kind):
    lm = toys.model(kind)
    assert sum(p.numel() for p in lm.parameters()) == parameters(lm.config).total
    assert LlamaStyleLM.from_config(lm.config, device="meta").emb.weight.is_meta


@pytest.mark.parametrize("kind", ["gqa", "mla"])
def test_bf16_follows_fp32(kind):
    lm, idx = toys.model(kind, tied=False), toys.tokens(B, T)
    want = lm(idx)
    got = toys.model(kind, torch.bfloat16, tied=False)(idx)
    assert got.dtype == torch.bfloat16
    assert_close(got, want, model_sums(lm.config, T))


def test_rope_tables_stay_float32_whatever_the_model_is():
    lm = toys.model("gqa").to(torch.bfloat16)
    lm(toys.tokens(1, T))
    assert all(cos.dtype == torch.float32 for cos, _ in lm._tables.values())
    assert not [name for name, _ in lm.named_buffers()]  # a buffer would be cast with the model
    long = toys.model("gqa", max_len=600)
    idx = toys.tokens(1, 600)
    assert_close(
        toys.feed(long, idx, [300, 299, 1])[0], long(idx), model_sums(long.config, 600)
    )  # the table grew


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_scaling_by_length_follows_the_text_and_never_the_room(kind):
    """Trained length 16: up to there any cache gives the same; a text that was announced longer has its table from the start."""
    lm, idx = toys.model(kind, torch.float64), toys.tokens(1, T)
    want = lm(idx[:, :16])
    for room in (16, T, None):
        cache = lm.new_cache(1, room)
        got = torch.cat([lm(idx[:, :5], cache=cache), lm(idx[:, 5:16], cache=cache)], dim=1)
        assert_close(got, want, model_sums(lm.config, 16))
    whole, _ = toys.feed(lm, idx, [5, 7, 11], max_len=T)
    assert_close(whole, lm(idx), model_sums(lm.config, T))
    assert distance(whole[:, :16], want) > 0.001


def test_a_text_that_outgrows_its_table_is_refused_by_a_bare_call():
    lm, idx, pad = toys.model("longrope"), toys.tokens(B, T), torch.tensor([0, 4, 9])
    cache = lm.new_cache(B)
    lm(idx[:, :16], cache=cache, pad=pad)  # rows of 16, 12 and 7 tokens
    for wide, said in ((1, "row 0 has 16 tokens .*makes it 17"), (7, "row 0 has 16 tokens .*makes it 23")):
        with pytest.raises(ValueError, match=f"{said}: one sequence has one table.*text={16 + wide}"):
            lm(idx[:, 16 : 16 + wide], cache=cache)
    assert cache.length == 16  # nothing was written
    cache = lm.new_cache(B)
    lm(idx[:, :20], cache=cache, pad=pad)  # row 0 is long from its start, row 1 has exactly 16
    with pytest.raises(ValueError, match="row 1 has 16 tokens"):
        lm(idx[:, 20:], cache=cache)
    for text in (-1, 65):
        with pytest.raises(ValueError, match=f"text = {text}: expected how many tokens are sure to come"):
            lm.new_cache(1, text=text)


def test_decoding_without_a_cache_does_not_pile_up_tables():
    for kind, tables in (("dynamic", 0), ("gqa", 1)):
        lm = toys.model(kind)
        for t in range(1, T):
            lm(toys.tokens(1, t))
        assert len(lm._tables) == tables


def test_embed_scale_is_applied_in_the_model_s_dtype():
    lm = toys.model("sandwich", embed_scale=60**0.5)
    plain = toys.model("sandwich")
    plain.emb.weight.mul_(60**0.5)
    plain.head.weight = torch.nn.Parameter(lm.head.weight.clone())
    assert_close(lm(toys.tokens(B, T)), plain(toys.tokens(B, T)), model_sums(lm.config, T))


# ---- tying


def test_a_tied_head_is_one_storage_and_stays_it():
    lm = toys.model("gqa")
    assert lm.head.weight is lm.emb.weight
    for other in (lm.to(torch.bfloat16), copy.deepcopy(lm), lm.double()):
        assert other.head.weight.data_ptr() == other.emb.weight.data_ptr()
    untied = toys.model("gqa", tied=False)
    assert untied.head.weight.data_ptr() != untied.emb.weight.data_ptr()
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in lm.parameters()) == 97 * 60


def test_a_tied_matrix_learns_from_both_its_jobs():
    lm = toys.model("gqa", torch.float64).requires_grad_(True)
    apart = toys.model("gqa", torch.float64, tied=False)
    apart.head.weight.copy_(apart.emb.weight)
    apart.requires_grad_(True)
    for model in (lm, apart):
        model(toys.tokens(B, T)).logsumexp(-1).sum().backward()
    want = apart.emb.weight.grad + apart.head.weight.grad
    assert_close(lm.emb.weight.grad, want, 2 * model_sums(lm.config, T))  # there and back


def test_a_tied_model_trains_saves_and_loads():
    lm = toys.model("gqa").requires_grad_(True).train()
    step = torch.optim.SGD(lm.parameters(), 1e-3)
    losses = []
    for _ in range(3):
        logits = lm(toys.tokens(B, T))
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), toys.tokens(B, T)[:, 1:].flatten()
        )
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and lm.head.weight is lm.emb.weight
    other = toys.model("gqa", seed=1)
    other.load_state_dict(lm.state_dict())
    assert (
        torch.equal(other(toys.tokens(B, T)), lm(toys.tokens(B, T))) and other.head.weight is other.emb.weight
    )


def test_training_after_decoding_without_gradients():
    """Tables made inside inference_mode serve a later training step."""
    lm = toys.model("gqa")
    with torch.inference_mode():
        lm(toys.tokens(B, T))
    lm.requires_grad_(True)
    lm(toys.tokens(B, T)).sum().backward()
    assert lm.blocks[0].attn.wq.weight.grad.abs().max() > 0


# ---- refusals


def test_bad_calls():
    lm = toys.model("gqa")
    with pytest.raises(ValueError, match=r"token ids \[5\] of torch.int64: expected whole numbers \[B, T\]"):
        lm(torch.arange(5))
    for ids, said in (
        (torch.zeros(1, 5), "of torch.float32"),
        (torch.ones(1, 5) > 0, "of torch.bool"),
        ([[1]], "a list"),
    ):
        with pytest.raises(ValueError, match=said):
            lm(ids)
    with pytest.raises(ValueError, match="at least one"):
        lm(torch.zeros(1, 0, dtype=torch.int64))
    for bad in (-1, 97):
        with pytest.raises(ValueError, match=r"this vocabulary has 0 to 96 \(another tokenizer\?\)"):
            lm(torch.tensor([[3, bad]]))
    with pytest.raises(ValueError, match="65 tokens after 0 need 65 positions: max_len is 64"):
        lm(toys.tokens(1, 65))
    for max_len in (65, 0, -3):
        with pytest.raises(ValueError, match="a cache of 65 tokens: this model's max_len is 64|max_len = "):
            lm.new_cache(1, max_len)
    _, cache = toys.feed(lm, toys.tokens(B, 6), [6], max_len=8)
    with pytest.raises(ValueError, match="3 tokens after 6 need 9 positions: max_len is 8"):
        lm(toys.tokens(B, 3), cache=cache)
    with pytest.raises(ValueError, match="2 rows of tokens and a cache of 3"):
        lm(toys.tokens(2, 1), cache=cache)
    with pytest.raises(ValueError, match="pad came with a later call"):
        lm(toys.tokens(B, 1), cache=cache, pad=torch.zeros(B, dtype=torch.int64))
    with pytest.raises(ValueError, match="a cache of 3 layers and a model of"):
        lm(toys.tokens(B, 1), cache=toys.model("mla_and_window").new_cache(B))
    assert cache.length == 6  # nothing was written
    fresh = lm.new_cache(B)
    for pad in (torch.zeros(2, dtype=torch.int64), torch.zeros(B)):
        with pytest.raises(ValueError, match="expected one int64 count a row"):
            lm(toys.tokens(B, 4), cache=fresh, pad=pad)
    with pytest.raises(ValueError, match=r"pad \[0, -1, 0\]: expected counts of at least 0"):
        lm(toys.tokens(B, 4), cache=fresh, pad=torch.tensor([0, -1, 0]))
    assert fresh.pad is None


def test_an_interrupted_call_is_not_continued():
    lm = toys.model("nope")
    cache = lm.new_cache(B, T)
    lm(toys.tokens(B, 4), cache=cache)
    hook = lm.blocks[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        lm(toys.tokens(B, 1), cache=cache)
    hook.remove()
    assert cache.length == 4
    with pytest.raises(ValueError, match="an interrupted call left this cache half-written"):
        lm(toys.tokens(B, 1), cache=cache)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"ffn": MoE(8, 2, 44)}, "a mixture of experts"),
        ({"ffn": None}, "a layer without feed-forward"),
        ({"attention": None}, "a layer without attention"),
        ({"norms": "parallel"}, "parallel attention and feed-forward"),
        ({"counted": (Counted("attention sinks", 6),)}, "attention sinks"),
    ],
)
def test_what_the_block_does_not_run_is_refused_by_name(change, name):
    layer = dataclasses.replace(Layer(toys.gqa(), Dense(44)), **change)
    with pytest.raises(ValueError, match=f"the block does not run {name}"):
        Block.from_layer(60, layer)
    with pytest.raises(ValueError, match=rf"the block does not run {name} \(this model\)"):
        LlamaStyleLM.from_config(toys.config("gqa", layers=(layer,)))


def test_features_of_the_model_are_refused_by_name():
    config = toys.config(
        "gqa", unsupported=("logit soft-capping",), counted=(Counted("learned positions", 60),)
    )
    with pytest.raises(ValueError, match=r"does not run logit soft-capping, learned positions \(gemma2\)"):
        LlamaStyleLM.from_config(config.replace(model_type="gemma2"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_tensor_is_made_on_another_device(kind):
    """On "meta" every tensor that is left on the CPU raises: the same code runs on CUDA."""
    lm = LlamaStyleLM.from_config(toys.config(kind), device="meta", dtype=torch.bfloat16)
    idx, pad = toys.tokens(B, T).to("meta"), torch.tensor([0, 4, 9], device="meta")
    assert lm(idx).shape == lm(idx, pad=pad).shape == (B, T, toys.V)
    for p in (None, pad):
        logits, cache = toys.feed(lm, idx, [11, 1, 1, 8, 2], p)
        assert logits.is_meta and logits.dtype == torch.bfloat16 and cache.layers[0].tensors[0].is_meta
