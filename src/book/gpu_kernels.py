"""The part of `make gpu` about lib.kernels: each kernel against the float64 oracle, and its time beside PyTorch's.

On the CPU the kernels run in Triton's interpreter and only the comparison is made. Times are CUDA's alone: SDPA or PyTorch's steps,
torch.compile, and the bandwidth that a plain copy reaches, at the shapes of SmolLM2-135M and DeepSeek-V3 with 4,096 tokens.
"""

import sys

import torch

from lib import apply_rope, attend, causal_mask, kernels, rms_norm, rope_cache
from lib.ffn import swiglu


def usable(device):
    """None, or one sentence that says why the kernels are left out of this run."""
    if kernels.missing():
        return kernels.missing()
    if device.type == "cuda" and kernels.interpreted():
        return "TRITON_INTERPRET is set: a GPU would only be copied from. Unset it."
    if device.type != "cuda" and not kernels.interpreted():
        return "no CUDA here; with TRITON_INTERPRET=1 the kernels run on the CPU."
    return None


def check_kernels(report, device, dtype):
    """Every kernel against the pure function in float64, strides and lengths off the blocks' edges."""
    if why := usable(device):
        print(f"skip the kernels: {why}", file=sys.stderr)
        return
    draw = torch.Generator().manual_seed(0)

    def add(name, kernel, pure, *tensors, table=(), **fields):
        low = [t.to(dtype) for t in tensors]
        want = pure(*(t.double() for t in low), *(t.double() for t in table), **fields)
        there = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in fields.items()}
        got = kernel(*(t.to(device) for t in (*low, *table)), **there, implementation="triton")
        report.add(f"kernel {name}", got, want, dtype)

    def randn(*shape):
        return torch.randn(*shape, generator=draw)

    add("rms_norm", rms_norm, rms_norm, randn(3, 5, 70), randn(70))
    wide, up, down = randn(5, 33), randn(70, 33), randn(33, 70)
    from lib.kernels.ffn import swiglu as fused

    add("swiglu", lambda *t, implementation: fused(*t), swiglu, wide, up / 6, randn(70, 33) / 6, down / 8)
    for layout in ("half", "adjacent"):
        turned = randn(2, 7, 5, 24).transpose(1, 2)
        add(
            f"rope, {layout}",
            apply_rope,
            apply_rope,
            turned,
            table=rope_cache(7, 16, start=40),
            layout=layout,
        )

    def explicit(*t, **fields):
        return attend(*t, **fields, implementation="explicit")

    for T, S in ((1, 65), (33, 65)):
        q, k, v = randn(2, T, 6, 24).transpose(1, 2), randn(2, 2, S, 24), randn(2, 2, S, 20)
        mask = causal_mask(torch.arange(S - T, S), torch.arange(S), window=20, pad=torch.tensor([0, 3]))
        for name, m in (("causal", None), ("window and padding", mask)):
            add(f"attend, {name}: {T} queries", attend, explicit, q, k, v, mask=m)

    def absorbed(q, latents, implementation):
        key = latents[:, None]
        return attend(q, key, key[..., :30], implementation=implementation)

    add("latent", absorbed, lambda q, c: absorbed(q, c, "explicit"), randn(2, 20, 1, 38), randn(2, 65, 38))


def cases(device, small=False, dtype=torch.bfloat16):
    """{name: (kernel, PyTorch, bytes that must move)}: bytes are the inputs and outputs, once each."""

    def empty(*shape):
        return torch.randn(*(min(n, 20) if small else n for n in shape), device=device).to(dtype)

    found = {}
    for name, d in (("SmolLM2", 576), ("DeepSeek-V3", 7168)):
        x, w = empty(4096, d), empty(d)
        found[f"rms_norm {name}"] = rms_norm, (x, w), 2 * x.nbytes + w.nbytes
    for name, h, n_kv, dh in (("SmolLM2", 9, 3, 64), ("Llama-3-70B", 64, 8, 128)):
        heads = (6, 2) if small else (h, n_kv)
        q, k = (
            torch.randn(1, n, t, 16 if small else dh, device=device).to(dtype)
            for n, t in zip(heads, (1, 20 if small else 4096))
        )
        found[f"decode {name}"] = attend, (q, k, k.clone()), 2 * q.nbytes + 2 * k.nbytes
        long = q.expand(-1, -1, k.shape[2], -1).contiguous()
        found[f"prefill {name}"] = attend, (long, k, k.clone()), 2 * long.nbytes + 2 * k.nbytes
    h, c, r = (4, 16, 4) if small else (128, 512, 64)
    q, key = empty(1, h, 1, c + r)[:, :h], empty(1, 1, 4096, c + r)
    found["latent DeepSeek-V3"] = (
        attend,
        (q, key, key[..., :c]),
        q.nbytes + key.nbytes + h * c * key.element_size(),
    )
    return found


def times(device, clock, compile=torch.compile, small=False):
    """[{"kernel", "ms", "pytorch_ms", "compile_ms", "bytes", "gb_per_s"}], the copy's bandwidth first. clock: function -> ms."""
    block = torch.empty(1024 if small else 2**29, dtype=torch.bfloat16, device=device)
    other = torch.empty_like(block)
    copy = clock(lambda: other.copy_(block))
    rows = [
        {"kernel": "copy", "ms": copy, "bytes": 2 * block.nbytes, "gb_per_s": 2 * block.nbytes / copy / 1e6}
    ]
    for name, (function, inputs, moved) in cases(device, small).items():
        made = compile(function)
        ms = {
            "ms": clock(lambda f=function, t=inputs: f(*t, implementation="triton")),
            "pytorch_ms": clock(lambda f=function, t=inputs: f(*t)),
            "compile_ms": clock(lambda f=made, t=inputs: f(*t)),
        }
        rows.append({"kernel": name, **ms, "bytes": moved, "gb_per_s": moved / ms["ms"] / 1e6})
        print(
            f"time {name:24}" + "".join(f" {k} {v:.4f}" for k, v in ms.items()), file=sys.stderr, flush=True
        )
    return rows


def cuda_clock(function):
    """Median milliseconds of a call on the GPU, caches cleared between calls."""
    from triton.testing import do_bench

    return do_bench(function, return_mode="median")
