"""lib.fast: steps in larger products give the plain model's logits, and leave it as it was. Some 5 s."""

import pytest
import torch

import toys
from lib import LlamaStyleLM, fast_decode, find_model, generate, load_model
from lib.decoding import left_pad
from tolerances import assert_close, model_sums

TAKEN = ["mha", "gqa", "mqa", "qk_norm", "nope", "window", "window_one", "two_bases", "partial_adjacent", "value_width", "yarn"]  # fmt: skip
REFUSED = {
    "mla": "MLA attention",
    "biases": "attention biases, a feed-forward",
    "width_norm_after": "QK-norm over the whole width, norms in place 'post'",
    "sandwich": "a norm other than Llama's RMSNorm, norms in place 'sandwich'",
    "two_matrices": "a feed-forward other than SwiGLU",
}
PAD = [None, torch.tensor([0, 3, 6, 1, 2])]


def assert_steps_agree(plain, other, pad):
    """Five rows: a prompt of seven, then single tokens past the window's end; and one text that changes between the two models."""
    idx, sums = toys.tokens(5, 24), model_sums(plain.config, 24)
    one, two = plain.new_cache(5, 30), plain.new_cache(5, 30)
    assert torch.equal(plain(idx[:, :7], one, pad), other(idx[:, :7], two, pad))
    for t in range(7, 24):
        token = idx[:, t : t + 1]
        want, got = plain(token, one), (plain if t == 15 else other)(token, two)
        assert got.shape == want.shape and got.dtype == want.dtype and two.length == t + 1
        assert_close(got, want, sums)
    for a, b in zip(one.layers, two.layers):
        for x, y in zip(a.tensors, b.tensors):
            assert_close(y[..., : b.held, :], x[..., : a.held, :], sums)


def assert_generates_the_same(plain, other):
    idx, pad = left_pad([toys.tokens(1, T, seed=T)[0].tolist() for T in (12, 5, 1)])
    want = generate(plain, idx, 12, pad=pad)
    assert torch.equal(generate(other, idx, 12, pad=pad), want)
    stop = {want[0, 15].item(), want[1, 17].item(), want[2, 13].item()}
    said = generate(plain, idx, 12, pad=pad, stop=stop)
    assert said.shape[1] < 24 and torch.equal(generate(other, idx, 12, pad=pad, stop=stop), said)
    drawn = [generate(m, idx, 6, temperature=1.0, top_k=9, seed=3, pad=pad) for m in (plain, other)]
    assert torch.equal(*drawn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", TAKEN)
def test_steps_are_the_plain_steps(kind, dtype):
    plain = toys.model(kind, dtype)
    for pad in PAD:
        assert_steps_agree(plain, fast_decode(plain), pad)


def test_generate_takes_it():
    plain = toys.model("two_bases", tied=False)
    assert_generates_the_same(plain, fast_decode(plain))


def test_the_plain_model_stays_as_it_was():
    plain = toys.model("gqa")
    before = {name: (w.data_ptr(), w.clone()) for name, w in plain.state_dict().items()}
    other = fast_decode(plain)
    assert other.plain is plain and list(plain.state_dict()) == list(before)
    for name, w in plain.state_dict().items():
        assert w.data_ptr() == before[name][0] and torch.equal(w, before[name][1])


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_taken_is_named(kind):
    with pytest.raises(ValueError, match=f"FastDecode does not take .*{REFUSED[kind]}"):
        fast_decode(toys.model(kind))


def test_other_dtypes_and_devices_are_named():
    with pytest.raises(ValueError, match="float64 on cpu"):
        fast_decode(toys.model("gqa", torch.float64))
    with pytest.raises(ValueError, match="float32 on meta"):
        fast_decode(LlamaStyleLM.from_config(toys.config("gqa"), device="meta"))


def test_bad_calls_are_refused_as_by_the_plain_model():
    plain = toys.model("gqa")
    other, cache = fast_decode(plain), plain.new_cache(2, 4)
    other(toys.tokens(2, 3), cache)
    with pytest.raises(ValueError, match="vocabulary has 0 to 96"):
        other(torch.tensor([[1], [97]]), cache)
    with pytest.raises(ValueError, match="3 rows of tokens and a cache of 2"):
        other(toys.tokens(3, 1), cache)
    other(toys.tokens(2, 1), cache)
    with pytest.raises(ValueError, match="max_len is 4"):
        other(toys.tokens(2, 1), cache)


@pytest.mark.real_model
def test_load_model_has_the_switch():
    idx = torch.arange(100, 130)[None]
    with pytest.raises(ValueError, match="decode = 'quick': expected one of plain, fast, compiled"):
        load_model(find_model(), decode="quick")
    other = load_model(find_model(), torch.bfloat16, decode="fast")
    assert torch.equal(generate(other, idx, 4), generate(other.plain, idx, 4))
