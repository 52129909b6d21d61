"""Time one decode step of the real model, seven ways, in turn, against the time that a plain read of the same bytes takes.

    python tests/bench/decode.py [--quick] [--fresh] [--seconds 12] [--batches 1 8] [--contexts 64 2048] [--threads 1 2]

plain                  the book's model as it is read
fast, compiled         the same model by lib.fast and lib.compiled
transformers           LlamaForCausalLM with SDPA on the same tensors: the bare forward call with its own growing cache
transformers-generate  its `generate`: a call of nine tokens less a call of one, over eight
llama.cpp              the same weights and precision, by its own clock (xllamacpp: pip install -e .[bench])
limit                  bytes of weights and cache that a step must read, over the fastest of several plain reads of them

A cell is one dtype, batch, context and number of threads; in it the variants take turns until `--seconds` are over. The caches hold
the same keys and values for all; llama.cpp reads a random prompt. Every step is made at the same context. Each cell is
kept in build/bench until the result is written, so that an interrupted run goes on where it was. --quick: one thread, batch 1,
64 tokens, two seconds a cell, nothing but a table. Times are wall clock: stop everything else first.
"""

import argparse
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from datetime import date
from pathlib import Path

import torch
from llama import Llama, write_gguf
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers import __version__ as transformers_version

from book.paths import ROOT
from lib import LlamaStyleLM, compile_decode, decode_bytes, fast_decode, find_model, load_model
from lib.compiled import compile_library, find_compiler
from lib.files.names import hf_name

logging.getLogger("transformers").setLevel(logging.ERROR)
warnings.filterwarnings(
    "ignore", category=FutureWarning
)  # the name of transformers' cache argument is changing
HERE, LIB, BUILD = Path(__file__).parent, ROOT / "src" / "lib", ROOT / "build" / "bench"
SOURCES = ("attention", "cache", "model", "norms", "rope", "fast", "compiled", "decode_step.cpp")
DTYPES = {"float32": (torch.float32, "F32", 1e-4), "bfloat16": (torch.bfloat16, "BF16", 0.1)}
NEWER = tuple(map(int, transformers_version.split(".")[:2])) >= (5, 24)
CACHE = "cache" if NEWER else "past_key_values"
LLAMA = "xllamacpp is not installed (pip install -e .[bench])"
PREFILL, GENERATED = 512, 8


def make_transformers(model):
    """transformers' model on the same tensors (no second copy)."""
    config = AutoConfig.from_pretrained(find_model(), attn_implementation="sdpa")
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(config, dtype=model.emb.weight.dtype)
    for name, w in model.named_parameters():
        owner, _, leaf = hf_name(name, model.config)[0].rpartition(".")
        setattr(theirs.get_submodule(owner), leaf, w)
    theirs.lm_head.weight = theirs.model.embed_tokens.weight
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)  # its table was made on meta
    return theirs.eval()


def filled_cache(model, batch, context):
    """The book's cache with room for one step after `context` tokens: the keys and values of 64 random tokens, over and over."""
    first = model.new_cache(1, 64)
    model(
        torch.randint(9, model.config.V, (1, 64), generator=torch.Generator().manual_seed(0)),
        first,
        last=True,
    )
    cache = model.new_cache(batch, context + 1)
    for layer, known in zip(cache.layers, first.layers):
        for x, y in zip(layer.tensors, known.tensors):
            x.copy_(y.repeat(batch, 1, context // 64 + 1, 1)[:, :, : context + 1])
    return cache


def book_step(model, cache, ids, context):
    def step():
        for layer in cache.layers:
            layer.length = context
        return model(ids, cache, last=True)[:, -1]

    return step


def transformers_steps(theirs, cache, ids, context):
    """(one bare step, seconds of a step in `generate`), both from the same keys and values."""
    other = DynamicCache(config=theirs.config)
    for i, layer in enumerate(cache.layers):
        other.update(layer.k[:, :, :context].clone(), layer.v[:, :, :context].clone(), i)
    kept = [(layer.keys, layer.values) for layer in other.layers]
    idx = torch.cat(
        [torch.zeros(len(ids), context, dtype=torch.int64), ids], 1
    )  # fed: what the cache has not

    def rewind():
        for layer, (layer.keys, layer.values) in zip(other.layers, kept):
            pass
        return other

    def step():
        return theirs(input_ids=ids, **{CACHE: rewind()}, use_cache=True, logits_to_keep=1).logits[:, -1]

    def generate(n):
        settings = {"do_sample": False, "pad_token_id": 0, "max_new_tokens": n, "min_new_tokens": n}
        past = rewind()
        return timed(
            theirs.generate, idx, attention_mask=torch.ones_like(idx), past_key_values=past, **settings
        )[0]

    return step, lambda: (generate(1 + GENERATED) - generate(1)) / GENERATED


def readers(tensors, threads):
    """{name: a plain read of all bytes of the tensors}, each as one stretch of memory."""
    flat = [t.detach().reshape(-1).view(torch.float32) for t in tensors]
    whole = [f.view(torch.int64) if f.numel() % 2 == 0 else f for f in flat]
    reads = {
        "sum": lambda: [f.sum() for f in flat],
        "max": lambda: [f.max() for f in flat],
        "dot": lambda: [torch.dot(f, f) for f in flat],
        "sum of int64": lambda: [f.sum() for f in whole],
    }
    if has_compiler():
        read = compile_library(HERE / "read.cpp").read_all
        read.argtypes, read.restype = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64), ctypes.c_double
        reads["sum in C++"] = lambda: [read(f.data_ptr(), f.numel(), threads) for f in flat]
    return reads


def has_compiler():
    try:
        return bool(find_compiler())
    except FileNotFoundError:
        return False


def has_llama():
    return importlib.util.find_spec("xllamacpp") is not None


def timed(call, *given, **settings):
    start = time.perf_counter()
    result = call(*given, **settings)
    return time.perf_counter() - start, result


class Bench:
    """What one dtype and number of threads share: the models, loaded once."""

    def __init__(self, dtype, threads):
        self.name, self.threads = dtype, threads
        self.dtype, self.kind, self.near = DTYPES[dtype]
        torch.set_num_threads(threads)
        self.plain = load_model(find_model(), self.dtype)
        self.models = {"plain": self.plain, "fast": fast_decode(self.plain)}
        if has_compiler():
            self.models["compiled"] = compile_decode(self.plain)
        self.theirs = make_transformers(self.plain)
        self.servers = {}

    def llama(self, batch, context):
        if (batch, context) not in self.servers:
            self.servers = {}  # one at a time: each maps the weights
            path, cores = write_gguf(self.kind, BUILD), os.cpu_count()
            self.servers[batch, context] = Llama(path, batch, context + 64, self.threads, cores)
        return self.servers[batch, context]

    def agree(self, steps, context):
        """Whoever is timed says the same. Raises: SystemExit if not."""
        want = steps["plain"]().float()
        for variant, step in steps.items():
            apart = (step().float() - want).abs().max() / want.abs().max()
            if not apart < self.near:
                raise SystemExit(
                    f"{variant} is {apart:.1e} of the largest logit away from plain at {context} tokens"
                )

    @torch.no_grad()
    def cell(self, batch, context, seconds):
        """The rows of one cell."""
        ids = torch.randint(0, self.plain.config.V, (batch, 1), generator=torch.Generator().manual_seed(1))
        cache = filled_cache(self.plain, batch, context)
        steps = {name: book_step(model, cache, ids, context) for name, model in self.models.items()}
        steps["transformers"], generate = transformers_steps(self.theirs, cache, ids, context)
        self.agree(steps, context)
        kept = [*self.plain.parameters(), *(x for layer in cache.layers for x in layer.tensors)]
        reads = readers(kept, self.threads)
        prompt = torch.randint(
            9, self.plain.config.V, (context,), generator=torch.Generator().manual_seed(2)
        ).tolist()
        times, rounds, end = {}, 0, None
        while end is None or rounds < 4 or time.perf_counter() < end:
            seen = {name: timed(step)[0] for name, step in (steps | reads).items()}
            if rounds % 4 == 2:  # the first round that counts, then every fourth
                seen["transformers-generate"] = generate()
                if has_llama():
                    seen["llama.cpp"] = self.llama(batch, context).step_ms(prompt, 4) / 1e3
            if rounds >= 2:  # the first rounds warm up
                end = end or time.perf_counter() + seconds
                for name, each in seen.items():
                    times.setdefault(name, []).append(each)
            rounds += 1
        where = {"dtype": self.name, "batch": batch, "context": context, "threads": self.threads}
        return self.rows(where, times, reads, sum(x.numel() * x.element_size() for x in kept))

    def rows(self, where, times, reads, nbytes):
        rows = [
            where
            | {
                "variant": name,
                "ms_per_token": round(1e3 * statistics.median(each) / where["batch"], 3),
                "ms_least": round(1e3 * min(each) / where["batch"], 3),
                "ms_most": round(1e3 * max(each) / where["batch"], 3),
                "steps": len(each),
            }
            for name, each in times.items()
            if name not in reads
        ]
        kernel = min(reads, key=lambda name: min(times[name]))
        bandwidth, size = nbytes / min(times[kernel]), self.dtype.itemsize
        must = decode_bytes(self.plain.config, where["context"], where["batch"], size, size)
        limit = {
            "variant": "limit", "ms_per_token": round(1e3 * must / bandwidth / where["batch"], 3), "bytes": must, "kernel": kernel,
            "GB_per_s": round(bandwidth / 1e9, 2),
            "GB_per_s_of_each": {name: round(nbytes / min(times[name]) / 1e9, 2) for name in reads},
        }  # fmt: skip
        return [*rows, where | limit]

    @torch.no_grad()
    def prefill(self, repeats=3):
        """Rows of a prompt of 512 tokens, batch 1. fast and compiled leave it to plain."""
        idx = torch.randint(9, self.plain.config.V, (1, PREFILL), generator=torch.Generator().manual_seed(3))
        calls = {
            "plain": lambda: self.plain(idx, self.plain.new_cache(1, PREFILL), last=True),
            "transformers": lambda: self.theirs(input_ids=idx, use_cache=True, logits_to_keep=1),
        }
        times = {name: [] for name in calls}
        for repeat in range(repeats + 1):
            for name, call in calls.items():
                times[name].append(timed(call)[0])
        if has_llama():
            self.servers = {}
            server = Llama(write_gguf(self.kind, BUILD), 1, PREFILL + 8, self.threads, self.threads)
            times["llama.cpp"] = [server.prefill_ms(idx[0].tolist()) / 1e3 for _ in range(repeats + 1)]
        return [
            {"dtype": self.name, "threads": self.threads, "tokens": PREFILL, "variant": name, "ms": round(1e3 * statistics.median(each[1:]), 1)}
            for name, each in times.items()
        ]  # fmt: skip


@torch.no_grad()
def call_rows(dtype, repeats=200):
    """A step of the same depth and number of heads whose weights are next to nothing: what the calls alone cost, one thread."""
    c = load_model(find_model(), DTYPES[dtype][0]).config
    a = c.layers[0].attention
    tiny = LlamaStyleLM(
        64, 2 * a.n_heads, len(c.layers), a.n_heads, a.n_kv_heads, 16, max_len=128, qk_norm=False
    )
    tiny, rows = tiny.to(DTYPES[dtype][0]), []
    torch.set_num_threads(1)
    for variant, model in (("plain", tiny), ("fast", fast_decode(tiny))):
        cache = tiny.new_cache(1, 80)
        step = book_step(model, cache, torch.ones(1, 1, dtype=torch.int64), 64)
        tiny(torch.ones(1, 64, dtype=torch.int64), cache, last=True)
        times = [timed(step)[0] for _ in range(repeats)]
        rows.append({"dtype": dtype, "variant": variant, "ms_least": round(1e3 * min(times), 2)})
    return rows


LOAD = """
import resource, sys, time
import torch
from lib import find_model, generate, load_model
torch.set_num_threads(1)
variant, dtype = sys.argv[1], getattr(torch, sys.argv[2])
if variant == "transformers":
    from transformers import AutoModelForCausalLM
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(find_model(), dtype=dtype)
    seconds = time.perf_counter() - start
    model.generate(torch.arange(9, 73)[None], max_new_tokens=8, do_sample=False)
else:
    start = time.perf_counter()
    model = load_model(find_model(), dtype, decode=variant)
    seconds = time.perf_counter() - start
    generate(model, torch.arange(9, 73)[None], 8)
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def load_rows(dtype):
    """Seconds to load and MiB at most in memory after eight tokens, each in a process of its own. The files are in memory already."""
    rows = []
    for variant in ("plain", "fast", *(["compiled"] if has_compiler() else []), "transformers"):
        call = [sys.executable, "-c", LOAD, variant, dtype]
        out = subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()
        seconds, kib = float(out[-2]), int(out[-1])
        rows.append(
            {
                "dtype": dtype,
                "variant": variant,
                "load_seconds": round(seconds, 3),
                "peak_MiB": round(kib / 1024),
            }
        )
    return rows


def cpu_name():
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def provenance(args):
    def sha(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    return {
        "date": date.today().isoformat(), "torch": torch.__version__, "transformers": transformers_version,
        "xllamacpp": importlib.metadata.version("xllamacpp") if has_llama() else None,
        "device": "cpu", "cpu": cpu_name(), "cores": os.cpu_count(), "clock": "wall", "seconds_a_cell": args.seconds,
        "model": find_model().name, "command": "python tests/bench/decode.py",
        **{f"lib_{name}_sha256": sha(LIB / (name if "." in name else f"{name}.py")) for name in SOURCES},
    }  # fmt: skip


class Parts:
    """Finished pieces of a run in build/bench, valid for the same sources, versions and machine."""

    def __init__(self, source, fresh):
        same = {name: value for name, value in source.items() if name != "date"}
        self.folder = BUILD / hashlib.sha256(json.dumps(same).encode()).hexdigest()[:12]
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.json") if fresh else ():
            old.unlink()

    def get(self, name, make, *given):
        path = self.folder / f"{name}.json"
        if not path.exists():
            write_json(path, make(*given))
        return json.loads(path.read_text())


def measure(bench, what, *given):
    return getattr(bench(), what)(*given)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)


def say(rows):
    for row in rows:
        most = (
            f"{row['ms_least']:8.2f} to {row['ms_most']:8.2f}"
            if "steps" in row
            else f"{row['GB_per_s']} GB/s, {row['kernel']}"
        )
        print(f"{row['dtype']:<8} batch {row['batch']} context {row['context']:>4} threads {row['threads']}"
              f"  {row['variant']:<22}{row['ms_per_token']:8.2f} ms per token   {most}", flush=True)  # fmt: skip


def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument(
        "--quick", action="store_true", help="a table of one thread, batch 1, 64 tokens; writes nothing"
    )
    ask.add_argument("--fresh", action="store_true", help="measure again what an interrupted run has left")
    ask.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="a part of the grid (1 8)")
    ask.add_argument(
        "--contexts", type=int, nargs="+", default=[64, 2048], help="tokens in the cache (64 2048)"
    )
    ask.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="threads of PyTorch and llama.cpp (1 2)"
    )
    ask.add_argument("--seconds", type=float, default=12.0, help="of each cell (12)")
    ask.add_argument("--out", type=Path, default=HERE / "results" / "decode.json")
    args = ask.parse_args()
    if args.quick:
        for dtype in DTYPES:
            say(Bench(dtype, 1).cell(1, 64, 2.0))
        return
    source = provenance(args)
    parts, rows, prefill, loads, calls = Parts(source, args.fresh), [], [], [], []
    source["load_before"] = parts.get("load_before", lambda: round(os.getloadavg()[0], 2))
    for dtype in DTYPES:
        calls += parts.get(f"calls-{dtype}", call_rows, dtype)
        loads += parts.get(f"load-{dtype}", load_rows, dtype)
    for dtype, threads in itertools.product(DTYPES, args.threads):
        bench = functools.cache(functools.partial(Bench, dtype, threads))  # loaded when a part is missing
        for batch, context in itertools.product(args.batches, args.contexts):
            name = f"{dtype}-{threads}-{batch}-{context}"
            rows += parts.get(name, measure, bench, "cell", batch, context, args.seconds)
            say(
                row
                for row in rows
                if (row["dtype"], row["threads"], row["batch"], row["context"])
                == (dtype, threads, batch, context)
            )
        prefill += parts.get(f"prefill-{dtype}-{threads}", measure, bench, "prefill")
    absent = [] if has_llama() else [{"variant": "llama.cpp", "why": LLAMA}]
    absent += [] if has_compiler() else [{"variant": "compiled", "why": "no C++ compiler"}]
    source["grid"] = {"batch": args.batches, "context": args.contexts, "threads": args.threads}
    result = {
        "provenance": source,
        "rows": rows,
        "prefill": prefill,
        "load": loads,
        "calls": calls,
        "absent": absent,
    }
    write_json(args.out, result)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
