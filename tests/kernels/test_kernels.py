"""The kernels in Triton's interpreter against the float64 oracle: about 25 s of one core. conftest.py sets TRITON_INTERPRET."""

import importlib.util
import inspect

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor, interpreter_builder

import toys
from book.fence import fence
from lib import apply_rope, attend, causal_mask, kernels, rms_norm, rope_cache
from lib.attention import GQAttention
from lib.cache import KVCache, LatentCache
from lib.kernels import attention, decode, ffn, latent, launch, norms, prefill, rope
from lib.kernels.counting import counting
from tolerances import assert_close, distance, model_sums, rtol

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FEW = settings(max_examples=10, deadline=None, derandomize=True)
dtypes, sizes = st.sampled_from(DTYPES), st.integers(1, 40)
around = st.sampled_from([1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70])  # lengths around the edges of a block


def near(got, want, dtype, sums=(1, 1)):
    """Equal to the float64 oracle in `dtype`. (In bfloat16 the interpreter cuts off where a GPU rounds: a whole unit, not half.)"""
    assert got.dtype == dtype
    assert_close(got, want, (*sums, 1), dtype)


def draw(seed, *shape, dtype=torch.float64, strided=True):
    """Random numbers in memory that is longer in every axis, so that no stride is what a fresh tensor would have."""
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(*(n + 1 + i for i, n in enumerate(shape)) if strided else shape, generator=gen)
    return x[tuple(slice(0, n) for n in shape)].to(dtype)


@FEW
@given(st.integers(0, 99), dtypes, st.lists(st.integers(1, 4), max_size=3), st.sampled_from([1, 2, 31, 32, 33, 72]), st.booleans(),
       st.booleans(), st.booleans(), st.booleans())  # fmt: skip
def test_rms_norm(seed, dtype, lead, d, gain, unit_offset, gain_last, residual):
    x, r = draw(seed, *lead, d, dtype=dtype), draw(seed + 1, *lead, d, dtype=dtype)
    w = draw(seed + 2, d, dtype=dtype) if gain else None
    settings = {"eps": 1e-3, "unit_offset": unit_offset, "gain_last": gain_last}
    if residual:
        total, got = norms.add_rms_norm(x, r, w, **settings)
        near(total, x.double() + r.double(), dtype)
        x = total
    else:
        got = norms.rms_norm(x, w, **settings)
    near(got, rms_norm(x.double(), None if w is None else w.double(), **settings), dtype, (d,))
    assert got.shape == x.shape


@FEW
@given(
    st.integers(0, 99),
    dtypes,
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from([1, 1023, 1024, 1025, 60]),
)
def test_silu_mul_of_two_halves(seed, dtype, lead, n):
    gate, up = draw(seed, *lead, 2 * n, dtype=dtype).chunk(2, -1)
    near(ffn.silu_mul(gate, up), F.silu(gate.double()) * up.double(), dtype)


def test_swiglu():
    x, gate, up, down = draw(0, 3, 5), draw(1, 7, 5), draw(2, 7, 5), draw(3, 5, 7)
    want = F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    near(ffn.swiglu(*(t.float() for t in (x, gate, up, down))), want, torch.float32, (5, 5, 7))


@FEW
@given(st.integers(0, 99), dtypes, st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9), st.integers(0, 5),
       st.sampled_from(["half", "adjacent"]), st.booleans())  # fmt: skip
def test_apply_rope(seed, dtype, B, heads, T, half, rest, layout, per_row):
    x = draw(seed, B, T, heads, 2 * half + rest, dtype=dtype).transpose(1, 2)
    cos, sin = rope_cache(T, 2 * half, start=40)
    if per_row:
        cos, sin = (torch.stack([t.roll(b, 0) for b in range(B)])[:, None] for t in (cos, sin))
    near(
        rope.apply_rope(x, cos, sin, layout),
        apply_rope(x.double(), cos.double(), sin.double(), layout),
        dtype,
    )


def attention_case(seed, B, n_kv, group, T, S, dh, d_v, dtype):
    q = draw(seed, B, T, n_kv * group, dh, dtype=dtype).transpose(1, 2)
    return q, draw(seed + 1, B, n_kv, S, dh, dtype=dtype), draw(seed + 2, B, n_kv, S, d_v, dtype=dtype)


def a_mask(kind, B, h, T, S):
    """None, a window, left padding per row, a pattern per head with a query that may look nowhere."""
    if kind == "window":
        return causal_mask(torch.arange(S - T, S), torch.arange(S), window=max(1, S // 2))
    if kind == "padding":
        return causal_mask(torch.arange(S - T, S), torch.arange(S), pad=torch.arange(B) * (S // 3))
    if kind == "heads":
        mask = (torch.arange(h * S) % 3 > 0).view(1, h, 1, S).repeat(1, 1, T, 1)
        mask[:, 0, 0] = False
        return mask
    return None


def attend_latent(q, latents, c, mask=None, scale=None, implementation="explicit"):
    """What the latent kernel replaces: one key of c + r numbers, and the value is a view of its first c."""
    key = latents[:, None]
    return attend(q, key, key[..., :c], mask, scale, implementation)


kinds = st.sampled_from([None, "window", "padding", "heads"])


@FEW
@given(st.integers(0, 99), dtypes, st.integers(1, 2), st.integers(1, 2), st.sampled_from([1, 3, 17]), around, sizes, sizes, kinds,
       st.sampled_from([None, 0.3]), st.sampled_from([None, 1, 2, 5]))  # fmt: skip
def test_decode(seed, dtype, B, n_kv, group, S, dh, d_v, kind, scale, parts):
    q, k, v = attention_case(seed, B, n_kv, group, 1, S, dh, d_v, dtype)
    mask = a_mask(kind, B, n_kv * group, 1, S)
    launches, got = decode.plan(q, k, v, mask, scale, keys=16, parts=parts)
    for one in launches:
        one.run()
    near(got, attend(q.double(), k.double(), v.double(), mask, scale, "explicit"), dtype, (dh, S))


@FEW
@given(
    st.integers(0, 99),
    dtypes,
    st.integers(1, 2),
    st.integers(1, 3),
    around,
    st.integers(0, 20),
    sizes,
    sizes,
    kinds,
)
def test_prefill(seed, dtype, n_kv, group, T, more, dh, d_v, kind):
    T, S = max(2, T), max(2, T) + more
    q, k, v = attention_case(seed, 2, n_kv, group, T, S, dh, d_v, dtype)
    mask = a_mask(kind, 2, n_kv * group, T, S)
    launched, got = prefill.plan(q, k, v, mask, queries=16, keys=16)
    launched.run()
    near(got, attend(q.double(), k.double(), v.double(), mask, None, "explicit"), dtype, (dh, S))


@FEW
@given(st.integers(0, 99), dtypes, st.integers(1, 2), st.sampled_from([1, 5, 17]), st.integers(1, 3), around, sizes, st.integers(1, 20),
       kinds, st.sampled_from([None, 1, 3]))  # fmt: skip
def test_attend_latent(seed, dtype, B, h, T, S, c, r, kind, parts):
    S = max(S, T)
    q, latents = (
        draw(seed, B, T, h, c + r, dtype=dtype).transpose(1, 2),
        draw(seed + 1, B, S, c + r, dtype=dtype),
    )
    mask = a_mask(kind, B, h, T, S)
    launches, got = latent.plan(q, latents, c, mask, 0.3, keys=16, parts=parts)
    for one in launches:
        one.run()
    near(got, attend_latent(q.double(), latents.double(), c, mask, 0.3, "explicit"), dtype, (c + r, S))


@pytest.mark.parametrize("S", [16, 21])
def test_unused_slots_may_hold_nan(S):
    cache, latents = KVCache(2, 40, 2, 14, 10), LatentCache(2, 40, 18, 8)
    for tensor in (*cache.tensors, *latents.tensors):
        tensor.fill_(float("nan"))
    k, v = cache.append(draw(0, 2, 2, S, 14, dtype=torch.float32), draw(1, 2, 2, S, 10, dtype=torch.float32))
    (c,) = latents.append(draw(2, 2, S, 26, dtype=torch.float32))
    for T in (1, 3):
        q = draw(3, 2, 6, T, 14, dtype=torch.float32)
        near(
            attention.attend(q, k, v),
            attend(q.double(), k.double(), v.double(), implementation="explicit"),
            torch.float32,
            (14, S),
        )
        q = draw(4, 2, 5, T, 26, dtype=torch.float32)
        want = attend_latent(q.double(), c.double(), 18, implementation="explicit")
        near(latent.attend_latent(q, c, 18), want, torch.float32, (26, S))


LARGE = 10**6  # scores near 1,000: float32 rounds them as it rounds a sum of a million terms of size 1


def test_large_scores_do_not_overflow():
    q, k, v = attention_case(0, 1, 1, 3, 1, 33, 14, 10, torch.float32)
    for got in (
        attention.attend(300 * q, k, v),
        attention.attend(300 * q.expand(-1, -1, 4, -1), k, v)[:, :, 3:],
    ):
        want = attend(300 * q.double(), k.double(), v.double(), implementation="explicit")
        near(got, want, torch.float32, (LARGE,))


@pytest.mark.parametrize("kind", ["gqa", "value_width", "window", "sandwich", "mla"])
def test_whole_models(kind):
    """The switch: one call, left padding, and single steps through the cache give the logits of the model in PyTorch."""
    lm, idx, pad = toys.model(kind), toys.tokens(2, 9), torch.tensor([0, 3])
    want, padded = lm(idx), lm(idx, pad=pad)
    assert kernels.use(lm) is lm
    sums = model_sums(lm.config, keys=9)
    assert_close(lm(idx), want, sums)
    assert_close(toys.feed(lm, idx, [7, 1, 1])[0], want, sums)
    assert_close(lm(idx, pad=pad)[1, 3:], padded[1, 3:], sums)
    assert torch.equal(kernels.use(lm, "sdpa")(idx), want)


def test_the_switch_reaches_every_kernel(monkeypatch):
    seen = set()
    run = launch.Launch.run
    monkeypatch.setattr(launch.Launch, "run", lambda self: (seen.add(self.kernel.__name__), run(self))[1])
    for kind in ("gqa", "mla"):
        toys.feed(kernels.use(toys.model(kind)), toys.tokens(1, 4), [3, 1])
    assert seen == {
        "rms_norm_kernel",
        "silu_mul_kernel",
        "rope_kernel",
        "decode_kernel",
        "join_kernel",
        "prefill_kernel",
        "latent_kernel",
    }


# Faults that people make: each must be seen by the comparison above. The kernel's source with one spot changed, run on one case.

FAULTS = {
    "the mask is off by one": (prefill, "s[None, :] <= S - T + t[:, None]", "s[None, :] < S - T + t[:, None]"),
    "the scale is forgotten": (decode, 'input_precision="ieee") * scale', 'input_precision="ieee")'),
    "the maximum is not subtracted": (decode, "p = tl.exp(scores - safe[:, None])\n        keep = tl.exp(best - safe)",
                                      "p = tl.exp(scores)\n        keep = 1.0"),
    "the rescale of the accumulator is forgotten": (decode, "out = out * keep[:, None] + tl.dot", "out = out + tl.dot"),
    "the rescale of the sum is forgotten": (latent, "total = total * keep + tl.sum", "total = total + tl.sum"),
    "a key past the end": (decode, "see = (s < end)[None, :] & (g", "see = (s <= end)[None, :] & (g"),
    "the parts are added without their maxima": (decode, "share = tl.exp(best - tl.where(most", "share = tl.exp(0.0 * best - 0.0 * tl.where(most"),
    "the rope key is forgotten": (latent, "scores = (scores + tl.dot(q_r, tl.trans(rope), input_precision=\"ieee\")) * scale", "scores = scores * scale"),
}  # fmt: skip


def changed(module, old, new, folder):
    """A copy of a kernels module with one spot changed, under another name."""
    text = inspect.getsource(module)
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    path = folder / f"changed_{module.__name__.rpartition('.')[2]}.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def apart(module, T, large):
    """Distance from the oracle in units of its largest number; large: with scores near 1,000. NaN is infinitely far."""
    factor = 300 if large else 1
    if hasattr(module, "attend_latent"):
        q, latents = (
            factor * draw(0, 2, 5, 1, 26, dtype=torch.float32),
            draw(1, 2, 37, 26, dtype=torch.float32),
        )
        launches, got = module.plan(q, latents, 18, keys=16, parts=2)
        want = attend_latent(q.double(), latents.double(), 18, implementation="explicit")
    else:
        q, k, v = attention_case(0, 2, 2, 3, T, 37, 14, 10, torch.float32)
        q = factor * q
        blocks = {"keys": 16, "parts": 2} if T == 1 else {"queries": 16, "keys": 16}
        launches, got = module.plan(q, k, v, **blocks)
        launches = launches if T == 1 else [launches]
        want = attend(q.double(), k.double(), v.double(), implementation="explicit")
    for one in launches:
        one.run()
    return distance(got, want)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(fault, tmp_path):
    module, old, new = FAULTS[fault]
    T, large = 20 if module is prefill else 1, "maxim" in fault
    bound = rtol(torch.float32, (LARGE,) if large else (26, 37))
    assert apart(module, T, large) <= bound
    assert apart(changed(module, old, new, tmp_path), T, large) > 1000 * bound


# Bad input


def test_refusals():
    x = torch.randn(3, 8)
    with pytest.raises(
        ValueError, match="x is torch.float64: the kernels take float32, bfloat16 and float16"
    ):
        norms.rms_norm(x.double())
    with pytest.raises(
        ValueError, match="the last axis of x is 40000: one program holds the whole width, from 1 to 32,768"
    ):
        norms.rms_norm(torch.zeros(1, 40_000))
    with pytest.raises(ValueError, match=r"weight \[7\]: expected \[8\]"):
        norms.rms_norm(x, torch.ones(7))
    for eps in (None, "1e-6", -1e-6, float("nan"), torch.tensor(1e-6)):
        with pytest.raises(ValueError, match="eps = .*: expected a number of at least 0"):
            norms.rms_norm(x, eps=eps)
    with pytest.raises(ValueError, match="d_ff at least 1"):
        ffn.silu_mul(x[:, :0], x[:, :0])
    with pytest.raises(ValueError, match="c = 24 of 16 numbers per token"):
        latent.attend_latent(torch.zeros(1, 2, 1, 16), torch.zeros(1, 3, 16), 24)
    with pytest.raises(ValueError, match="expected one to four axes"):
        norms.rms_norm(torch.zeros(1, 1, 1, 1, 8))
    with pytest.raises(ValueError, match=r"residual \[2, 8\] and x \[3, 8\]"):
        norms.add_rms_norm(x, x[:2])
    with pytest.raises(ValueError, match="expected the same shape"):
        ffn.silu_mul(x, x[:, :4])
    with pytest.raises(ValueError, match="up is torch.float16 and the first tensor torch.float32"):
        ffn.silu_mul(x, x.half())
    q, k = torch.zeros(1, 2, 1, 300), torch.zeros(1, 2, 4, 300)
    with pytest.raises(ValueError, match="the head width of q and k is 300: .* from 1 to 256"):
        attend(q, k, k, implementation="triton")
    q, k = torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 4, 8)
    with pytest.raises(ValueError, match="mask is torch.int64: expected bool"):
        attention.attend(q, k, k, torch.ones(1, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"mask \[1, 5\] does not broadcast to \[1, 2, 1, 4\]"):
        attention.attend(q, k, k, torch.ones(1, 5, dtype=torch.bool))
    with pytest.raises(
        ValueError, match="tensors on meta: the kernels run on CUDA, and on the CPU in Triton's interpreter"
    ):
        norms.rms_norm(x.to("meta"))
    for other in (
        torch.zeros(1, 3, 4, 8),
        torch.zeros(2, 2, 4, 8),
        torch.zeros(1, 2, 5, 8),
        torch.zeros(2, 4, 8),
    ):
        with pytest.raises(ValueError, match=r"expected \[B, h, T, dh\]"):
            decode.plan(q, k, other)
    with pytest.raises(ValueError, match="a number of query heads that the KV heads divide"):
        attention.attend(torch.zeros(1, 3, 1, 8), k, k)
    with pytest.raises(ValueError, match="5 queries and 4 keys without a mask"):
        attention.attend(torch.zeros(1, 2, 5, 8), k, k)
    with pytest.raises(ValueError, match="expected one query"):
        decode.plan(k, k, k)
    with pytest.raises(ValueError, match="keys = 24: a block is a power of two, at least 16"):
        decode.plan(q, k, k, keys=24)
    with pytest.raises(ValueError, match="parts = 0: expected at least one program"):
        decode.plan(q, k, k, parts=0)
    with pytest.raises(ValueError, match="c, the latent's width is 600"):
        latent.attend_latent(torch.zeros(1, 2, 1, 608), torch.zeros(1, 3, 608), 600)
    with pytest.raises(ValueError, match=r"expected \[B, h, T, c \+ r\] and \[B, S, c \+ r\]"):
        latent.attend_latent(torch.zeros(1, 2, 1, 8), torch.zeros(1, 3, 9), 6)
    with pytest.raises(ValueError, match="5 queries and 3 keys without a mask"):
        latent.attend_latent(torch.zeros(1, 2, 5, 8), torch.zeros(1, 3, 8), 6)
    cos, sin = rope_cache(1, 8)
    with pytest.raises(ValueError, match="tables are float32"):
        rope.apply_rope(q, cos.half(), sin.half())
    with pytest.raises(ValueError, match="slice the table to this call's positions"):
        rope.apply_rope(k, cos, sin)
    with pytest.raises(ValueError, match="layout 'both'"):
        rope.apply_rope(q, cos, sin, "both")


@triton.jit
def copy_kernel(X, Y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, mask=i < n), mask=i < n)


def test_behind_the_fence_a_kernel_stays_in_its_tensors(monkeypatch):
    monkeypatch.setattr(GridExecutor, "fence", False, raising=False)  # taken down again after the test
    monkeypatch.setattr(GridExecutor, "_init_args_hst", GridExecutor._init_args_hst)
    for name in ("create_masked_load", "create_masked_store"):
        monkeypatch.setattr(interpreter_builder, name, getattr(interpreter_builder, name))
    fence()
    x, y = torch.arange(5.0), torch.zeros(5)
    copy_kernel[(1,)](x, y, 5, BLOCK=8)
    assert y.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InterpreterError, match="loads 2 numbers outside the tensors of the launch"):
        copy_kernel[(1,)](x, torch.zeros(7), 7, BLOCK=8)
    with pytest.raises(InterpreterError, match="stores 3 numbers outside the tensors of the launch"):
        copy_kernel[(1,)](torch.zeros(8), y, 8, BLOCK=8)
    with counting() as traffic:  # counting goes on behind it
        norms.rms_norm(torch.ones(2, 5))
    assert traffic.loaded == {"X": 40}


def test_the_switch_refuses(monkeypatch):
    with pytest.raises(ValueError, match="implementation 'cuda': expected 'triton', 'sdpa' or 'explicit'"):
        kernels.use(toys.model("gqa"), "cuda")
    with pytest.raises(ValueError, match="Linear has no module with an implementation"):
        kernels.use(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="x is torch.float64"):
        kernels.use(toys.model("gqa").double())(toys.tokens(1, 3))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="Triton is not installed here"):
        kernels.use(toys.model("gqa"))


def test_no_compiler_and_a_cpu_without_the_interpreter_are_said(monkeypatch):
    class Cuda:
        device = torch.device("cuda")

    monkeypatch.setattr(launch, "interpreted", lambda: False)
    with pytest.raises(ValueError, match="set TRITON_INTERPRET=1 before Python starts"):
        launch.check_device(torch.zeros(1))
    monkeypatch.setattr(launch.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(RuntimeError, match="finds no compiler: install gcc, or set CC"):
        launch.check_device(Cuda())
    monkeypatch.setenv("CC", "cc")
    launch.check_device(Cuda())
    cpu = Cuda()
    cpu.device = torch.device("cpu")
    with pytest.raises(ValueError, match="tensors on cpu, cuda: a kernel takes one device"):
        launch.check_device(Cuda(), cpu)


def test_gqa_module_takes_the_name():
    module = GQAttention(12, 3, 1, head_dim=8, implementation="triton")
    cos, sin = rope_cache(4, 8)
    assert module(torch.randn(1, 4, 12), cos, sin).shape == (1, 4, 12)
