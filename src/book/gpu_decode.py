"""The part of `make gpu` about decoding: milliseconds of a step, and the fraction of a plain copy's bandwidth that it reaches.

plain     the model as it is read
fast      lib.fast
static    lib.static: the same step on a cache of fixed size, its position a number in memory
graph     the same, captured once as a CUDA graph and replayed (CUDA only)
limit     the bytes of weights and cache that a step must read, at the bandwidth of a device-to-device copy in the same run

On CUDA: SmolLM2. On the CPU: a tiny random model and a small copy, which prove the script and measure nothing.
"""

import statistics
import sys
import time

import torch

from lib import LlamaStyleLM, StaticDecode, decode_bytes, fast_decode, find_model, load_model
from lib.config import llama_style

# Largest difference from the plain step, in units of its largest logit.
NEAR = {torch.float32: 1e-4, torch.bfloat16: 0.1}
POSITIONS = (
    4  # a graph captured at the first of them is compared with the plain step at each; the last is timed
)
TINY = llama_style(97, 48, 2, 6, 2, 64, max_len=64, tie=True)
CUDA = {"batches": (1, 8), "contexts": (64, 2048), "calls": 16, "rounds": 8, "copied": 2**30}
CPU = {"batches": (1, 3), "contexts": (8, 24), "calls": 2, "rounds": 2, "copied": 2**20}


def seconds_of(call, calls, device):
    """Seconds of one call, over `calls` in a row; on CUDA by the device's own clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


def copy_bandwidth(device, nbytes, calls, rounds):
    """Bytes per second that the fastest of several copies on the device moves: each byte is read and written."""
    block = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    other = torch.empty_like(block)
    times = [seconds_of(lambda: other.copy_(block), calls, device) for _ in range(rounds + 1)]
    return 2 * nbytes / min(times[1:])


def variants(model, fast, cache, device):
    """{name: idx [B, 1] -> logits [B, 1, V]}, all on one cache. static and graph are made where the cache stands."""
    steps = {
        "plain": lambda idx: model(idx, cache),
        "fast": lambda idx: fast(idx, cache),
        "static": StaticDecode(fast, cache),
    }
    if device.type == "cuda":
        steps["graph"] = StaticDecode(fast, cache).capture()
    return steps


def set_length(cache, length):
    for layer in cache.layers:
        layer.length = length


def cell(report, model, fast, batch, context, bandwidth, calls, rounds):
    """The rows of one batch and context: agreement at POSITIONS first, then the variants in turn, every step at `context`."""
    weight = model.emb.weight
    device, dtype, name = weight.device, weight.dtype, str(weight.dtype).removeprefix("torch.")
    draw = torch.Generator().manual_seed(context)
    idx = torch.randint(0, model.config.V, (batch, context + 1), generator=draw).to(device)
    cache, first = model.new_cache(batch, context + 1), context + 1 - POSITIONS
    model(idx[:, :first], cache, last=True)
    steps, worst = variants(model, fast, cache, device), {}
    for at in range(first, context + 1):
        want = None
        for variant, step in steps.items():
            set_length(cache, at)
            got = step(idx[:, at : at + 1]).double()
            want = got if want is None else want  # plain's
            worst.setdefault(variant, []).append((got - want).abs().max() / want.abs().max())
    for variant in list(steps)[1:]:
        what = f"decode, {variant} = plain: batch {batch}, {first} to {context} tokens"
        report.note(what, name, torch.stack(worst[variant]).max().item(), NEAR[dtype])  # keeps a NaN

    def step_at_context(step, token=idx[:, context:]):
        set_length(cache, context)
        step(token)

    times = {variant: [] for variant in steps}
    for turn in range(rounds + 1):  # the first turn warms up
        for variant, step in steps.items():
            each = seconds_of(lambda s=step: step_at_context(s), calls, device)
            times[variant] += [each] * (turn > 0)
    must = decode_bytes(model.config, context, batch, dtype.itemsize, dtype.itemsize)
    where = {"dtype": name, "batch": batch, "context": context}
    rows = [where | row(variant, statistics.median(each), batch, must, bandwidth)
            | {"ms_least": 1e3 * min(each) / batch, "ms_most": 1e3 * max(each) / batch, "steps": rounds * calls}
            for variant, each in times.items()]  # fmt: skip
    return [*rows, where | row("limit", must / bandwidth, batch, must, bandwidth)]


def row(variant, seconds, batch, must, bandwidth):
    return {
        "variant": variant,
        "ms_per_token": 1e3 * seconds / batch,
        "bytes": must,
        "GB_per_s": must / seconds / 1e9,
        "fraction_of_copy": must / seconds / bandwidth,
    }


def tiny_model(dtype):
    """A random model with gains that are not 1."""
    model = LlamaStyleLM.from_config(TINY)
    draw = torch.Generator().manual_seed(0)
    for p in model.parameters():
        x = torch.randn(p.shape, generator=draw)
        p.data.copy_(1 + 0.3 * x if p.dim() == 1 else x * p.shape[-1] ** -0.5)
    return model.to(dtype).requires_grad_(False).eval()


@torch.no_grad()
def decode(report, device):
    """-> {"copy_GB_per_s", "model", "rows"} and the agreement of the variants in the report; None on CUDA without the model."""
    cuda = device.type == "cuda"
    size = CUDA if cuda else CPU
    try:
        path = find_model() if cuda else None
    except FileNotFoundError as error:
        print(f"skip decoding: {error}", file=sys.stderr)
        return None
    bandwidth, rows = copy_bandwidth(device, size["copied"], size["calls"], size["rounds"]), []
    for dtype in NEAR:
        model = load_model(path, dtype, device) if cuda else tiny_model(dtype)
        fast = fast_decode(model)
        for batch in size["batches"]:
            for context in size["contexts"]:
                rows += cell(report, model, fast, batch, context, bandwidth, size["calls"], size["rounds"])
    if cuda:
        for r in rows:
            print(f"time {r['dtype']:8} batch {r['batch']} context {r['context']:4} {r['variant']:6}"
                  f" {r['ms_per_token']:8.4f} ms per token, {r['fraction_of_copy']:.2f} of a copy", file=sys.stderr)  # fmt: skip
    return {"copy_GB_per_s": bandwidth / 1e9, "model": path.name if cuda else "tiny", "rows": rows}
