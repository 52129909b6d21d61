"""lib.static: a step recorded at one position is the plain model's step at every other. Some 3 s."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import toys
from lib import LlamaStyleLM, StaticDecode, fast_decode
from lib.fast import FastDecode
from test_fast import PAD, TAKEN
from tolerances import assert_close, distance, model_sums, rtol


class Recording(TorchDispatchMode):
    """What a CUDA graph is, on any device: the operations of one run with their Python numbers, repeated on the same memory."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        for func, args, kwargs, out in self.calls:
            for x, y in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs))):
                if isinstance(x, torch.Tensor) and x.data_ptr() != y.data_ptr():
                    x.copy_(y)


def record(step, *given):
    with torch.no_grad(), Recording() as recording:
        logits = step(*given)
    return recording, logits


def start(plain, idx, pad, T):
    """A cache after T tokens whose other slots hold NaN."""
    cache = plain.new_cache(len(idx), idx.shape[1])
    for layer in cache.layers:
        for x in layer.tensors:
            x.fill_(float("nan"))
    plain(idx[:, :T], cache, pad)
    return cache


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", TAKEN)
def test_steps_are_the_plain_steps_at_every_position(kind, dtype, recorded):
    """Five rows from token 3 on, past the window's end, to the last slot; a plain step comes between."""
    plain, idx = toys.model(kind, dtype), toys.tokens(5, 16)
    fast, sums = fast_decode(plain), model_sums(plain.config, 16)
    for pad in PAD:
        one, two = (start(plain, idx, pad, 3) for _ in range(2))
        static = StaticDecode(fast, two)
        if recorded:
            static.graph, static.logits = record(static.step)
        for t in range(3, 16):
            token = idx[:, t : t + 1]
            want, got = plain(token, one), plain(token, two) if t == 7 else static(token)
            assert got.shape == want.shape and got.dtype == want.dtype and two.length == t + 1
            assert_close(got, want, sums)
        for a, b in zip(one.layers, two.layers):
            for x, y in zip(a.tensors, b.tensors):
                assert_close(y, x, sums)


def test_control_the_plain_step_recorded_stays_at_its_position():
    plain, idx = toys.model("gqa"), toys.tokens(5, 8)
    for other in (plain, fast_decode(plain)):
        cache = start(plain, idx, None, 3)
        token = idx[:, 3:4].clone()
        recording, logits = record(other, token, cache)
        token.copy_(idx[:, 4:5])
        recording.replay()
        want = plain(idx[:, :5])[:, -1:]
        assert distance(logits, want) > 100 * rtol(torch.float32, model_sums(plain.config, 8))


@pytest.mark.parametrize("kind", ["gqa", "nope", "two_bases"])
@pytest.mark.parametrize("padded", [False, True])
def test_nothing_is_read_and_nothing_leaves_the_device(kind, padded, monkeypatch):
    """On meta there are no numbers to read and the CPU's tensors do not mix in: what a captured graph asks of a step."""
    monkeypatch.setattr(FastDecode, "devices", ("meta",))
    plain = LlamaStyleLM.from_config(toys.config(kind), device="meta").requires_grad_(False)
    cache = plain.new_cache(5, 16)
    plain(
        torch.zeros(5, 3, dtype=torch.int64, device="meta"),
        cache,
        torch.zeros(5, dtype=torch.int64, device="meta") if padded else None,
    )
    fast = fast_decode(plain)
    recording, logits = record(StaticDecode(fast, cache).step)
    assert logits.device.type == "meta" and logits.shape == (5, 1, toys.V)
    tensors = [x for _, *rest in recording.calls for x in tree_leaves(rest) if isinstance(x, torch.Tensor)]
    assert len(tensors) > 100 and {x.device.type for x in tensors} == {"meta"}
    assert fast(torch.zeros(5, 1, dtype=torch.int64, device="meta"), cache).device.type == "meta"
    assert fast.head.device.type == "meta"


def test_what_is_refused():
    plain, idx = toys.model("gqa"), toys.tokens(2, 6)
    fast = fast_decode(plain)
    cache = start(plain, idx, None, 3)
    static = StaticDecode(fast, cache)
    with pytest.raises(ValueError, match="captured on CUDA, and this model is on cpu"):
        static.capture()
    with pytest.raises(ValueError, match="2 tokens a row: a step takes one"):
        static(idx[:, 3:5])
    with pytest.raises(ValueError, match="3 rows of tokens and a cache of 2"):
        static(toys.tokens(3, 1))
    for t in range(3, 6):
        static(idx[:, t : t + 1])
    with pytest.raises(ValueError, match="max_len is 6"):
        static(idx[:, :1])
    cache.restart(0)
    plain(idx[:, :3], cache, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="other left padding"):
        static(idx[:, 3:4])
    for kind in ("dynamic", "longrope"):
        other = toys.model(kind)
        with pytest.raises(ValueError, match="RoPE follows the length of the text"):
            StaticDecode(fast_decode(other), other.new_cache(1, 8))


def test_a_full_cache_is_not_recorded():
    cache = SimpleNamespace(length=4, max_len=4)
    static = StaticDecode.__new__(StaticDecode)
    static.cache, static.at = cache, SimpleNamespace(device=torch.device("cuda"))
    with pytest.raises(ValueError, match="the cache of 4 tokens is full"):
        static.capture()
