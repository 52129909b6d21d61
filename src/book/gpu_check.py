"""`make gpu`: the library on the GPU in float32 and bfloat16 against a float64 oracle on the CPU, and the times of
decoding (book.gpu_decode) and of the kernels (book.gpu_kernels).

Prints one line a check on stderr and one JSON result on stdout. On CUDA the result is also written to
tests/bench/results/gpu.json; a run on the CPU proves the script, not the GPU, and writes nothing.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
import time

import torch

from book.gpu_decode import decode
from book.gpu_kernels import check_kernels, cuda_clock, times, usable
from book.paths import ROOT
from lib import (
    LatentCache,
    LlamaStyleLM,
    MLAttention,
    attend,
    causal_mask,
    find_model,
    generate,
    load_model,
    load_tokenizer,
    rope_cache,
)
from lib.config import GQA, MLA, Dense, Layer, ModelConfig, Rope, Scaling, llama_style
from lib.decoding import chat_prompt

RESULT = ROOT / "tests" / "bench" / "results" / "gpu.json"
# Largest |difference| from the float64 oracle, in units of the oracle's standard deviation.
BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 0.2}
V3 = {"n_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "v_head_dim": 128}  # fmt: skip
SMALL = {"n_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
         "v_head_dim": 20}  # fmt: skip


def models():
    """One small model a mechanism: grouped heads, a window beside NoPE, latent attention with yarn."""
    scaling = Scaling("yarn", 4.0, 32, mscale=1.0, mscale_all_dim=0.7)
    latent = MLA(rope=Rope(layout="adjacent", scaling=scaling), **SMALL)
    window, nope = GQA(8, 2, 24, window=9), GQA(8, 2, 24, rope=None, qk_norm=True)
    mixed = (Layer(window, Dense(300)), Layer(nope, Dense(300), "post"))
    return {
        "grouped heads": llama_style(500, 192, 3, 8, 2, 300, max_len=128, tie=True),
        "window and NoPE": ModelConfig(500, 192, mixed, max_len=128),
        "latent attention": ModelConfig(500, 192, (Layer(latent, Dense(300)),) * 2, max_len=128),
    }


def fill(module, seed=0):
    """Random weights, gains and biases, drawn on the CPU: the same on every device."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            x = torch.randn(p.shape, generator=draw)
            p.copy_(1 + 0.3 * x if p.dim() == 1 else x * p.shape[-1] ** -0.5)
    return module.requires_grad_(False).eval()


class Report:
    """The checks so far, printed as they come."""

    def __init__(self):
        self.rows = []

    def add(self, name, got, oracle, dtype):
        """Compares with the oracle; a NaN is a failure."""
        apart = ((got.double().cpu() - oracle).abs().max() / oracle.std()).item()
        self.note(name, str(dtype).removeprefix("torch."), apart, BOUNDS[dtype])

    def note(self, name, dtype, difference, bound):
        row = {
            "check": name,
            "dtype": dtype,
            "difference": difference,
            "bound": bound,
            "ok": difference <= bound,
        }
        self.rows.append(row)
        mark = "ok  " if row["ok"] else "FAIL"
        print(f"{mark} {name:52} {dtype:9} {difference:.1e} (bound {bound:.0e})", file=sys.stderr, flush=True)


def check_attention(report, device, dtype):
    """Every path of `attend`, key lengths around a multiple of 32 included."""
    draw = torch.Generator().manual_seed(0)
    for S in (32, 33, 65):
        for n_kv, T in ((8, S), (2, S), (2, 1), (1, 5)):
            q, k, v = (torch.randn(3, n, t, 24, generator=draw) for n, t in ((8, T), (n_kv, S), (n_kv, S)))
            mask = causal_mask(
                torch.arange(S - T, S), torch.arange(S), window=20, pad=torch.tensor([0, 3, 7])
            )
            for kind, m in (("causal", None), ("window and padding", mask)):
                oracle = attend(q.double(), k.double(), v.double(), m, implementation="explicit")
                got = attend(*(t.to(device, dtype) for t in (q, k, v)), m if m is None else m.to(device))
                report.add(f"attend, {kind}: {T} queries, {S} keys, {n_kv} KV heads", got, oracle, dtype)


def check_models(report, device, dtype):
    """Whole models: one call, chunks and single steps through the cache, left padding."""
    idx, pad = (
        torch.randint(0, 500, (3, 65), generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 4, 9]),
    )
    for name, config in models().items():
        oracle = fill(LlamaStyleLM.from_config(config)).double()
        model = fill(LlamaStyleLM.from_config(config)).to(device, dtype)
        want, padded = oracle(idx), oracle(idx, pad=pad)
        report.add(f"{name}: one call", model(idx.to(device)), want, dtype)
        cache, steps = model.new_cache(3), []
        for part in idx.to(device).split([33, 1, 1, 29, 1], dim=1):
            steps.append(model(part, cache=cache))
        report.add(f"{name}: through the cache", torch.cat(steps, 1), want, dtype)
        real = torch.arange(65) >= pad[:, None]
        got = model(idx.to(device), pad=pad.to(device)).cpu()
        report.add(f"{name}: left padding", got[real], padded[real], dtype)


def check_latent(report, device, dtype, d, sizes, S):
    """One MLA layer: absorbed against expanded, both forms on this device, and a decode step on the latents."""
    with torch.device(device):
        attn = MLAttention(d, **sizes).to(dtype).requires_grad_(False)
    torch.manual_seed(0)
    for p in attn.parameters():
        p.uniform_(0.5, 1.5) if p.dim() == 1 else p.normal_(std=p.shape[1] ** -0.5)
    x = torch.randn(1, S, d, device=device).to(dtype)
    cos, sin = rope_cache(S, sizes["qk_rope_head_dim"], device=device)
    want = attn.expanded(x, cos, sin).double().cpu()
    count = sum(p.numel() for p in attn.parameters())
    report.add(
        f"MLA, {count / 1e6:.1f}M parameters: absorbed = expanded", attn.absorbed(x, cos, sin), want, dtype
    )
    cache = LatentCache(1, S, sizes["kv_lora_rank"], sizes["qk_rope_head_dim"], dtype, device)
    attn.expanded(x[:, :-1], cos[:-1], sin[:-1], cache)
    last = attn.absorbed(x[:, -1:], cos[-1:], sin[-1:], cache)
    report.add(f"MLA, {count / 1e6:.1f}M parameters: decode step", last, want[:, -1:], dtype)


def check_real_model(report, device, n):
    """Greedy text of the real model on this device equals the CPU's float32 text. -> facts, or None without the model."""
    try:
        path = find_model()
    except FileNotFoundError as error:
        print(f"skip the real model: {error}", file=sys.stderr)
        return None
    tokenizer = load_tokenizer(path)
    idx = torch.tensor([tokenizer.encode(chat_prompt("What is the capital of France?")).ids])
    model = load_model(path, dtype=torch.float32)
    want = generate(model, idx, n)
    facts = {
        "prompt_tokens": idx.shape[1],
        "new_tokens": n,
        "text": tokenizer.decode(want[0, idx.shape[1] :].tolist()),
    }
    whole = model(want[:, :-1])[:, idx.shape[1] - 1 :].argmax(-1)
    report.note(
        "real model: greedy through the cache = one call", "float32", float((whole != want[:, -n:]).sum()), 0
    )
    for dtype in BOUNDS:
        there = load_model(path, dtype=dtype, device=device)
        generate(there, idx.to(device), 2)  # warm
        start = time.perf_counter()
        got = generate(there, idx.to(device), n).cpu()
        name = str(dtype).removeprefix("torch.")
        facts[f"tokens_per_second_{name}"] = round(n / (time.perf_counter() - start), 1)
        if dtype == torch.float32:
            report.note("real model: greedy text = the CPU's", name, float((got != want).sum()), 0)
    return facts


def provenance(device, seconds):
    """What ran where: enough to run it again."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    cuda = device.type == "cuda"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or None,
        "device": torch.cuda.get_device_name(device) if cuda else platform.machine(),
        "cuda": torch.version.cuda if cuda else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seconds": round(seconds, 1),
    }


@torch.inference_mode()
def run(device=None, tokens=None):
    """All checks -> the result as a dictionary. tokens: how many the real model decodes (None: 32 on CUDA, 8 on the CPU)."""
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    report, start, cuda = Report(), time.perf_counter(), device.type == "cuda"
    for dtype in BOUNDS:
        check_attention(report, device, dtype)
        check_kernels(report, device, dtype)
        check_models(report, device, dtype)
        d, sizes, S = (7168, V3, 256) if cuda else (192, SMALL, 48)
        check_latent(report, device, dtype, d, sizes, S)
    real = check_real_model(report, device, tokens or (32 if cuda else 8))
    decoding = decode(report, device)
    kernel_times = times(device, cuda_clock) if cuda and not usable(device) else None
    return {
        "provenance": provenance(device, time.perf_counter() - start),
        "ok": all(row["ok"] for row in report.rows),
        "real_model": real,
        "decoding": decoding and {name: value for name, value in decoding.items() if name != "rows"},
        "rows": decoding["rows"] if decoding else [],
        "kernel_times": kernel_times,
        "checks": report.rows,
    }


def main():
    result = run()
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if result["provenance"]["cuda"]:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        part = RESULT.with_suffix(".part")
        part.write_text(text)
        os.replace(part, RESULT)
        print(f"written: {RESULT.relative_to(ROOT)}", file=sys.stderr)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
