"""Time the real model beside transformers on the same tensors, token by token, in turn, in one run.

    python tests/bench/decode.py [--tokens 24] [--repeats 7] [--out tests/bench/results/decode.json]

book          the book's model with its preallocated cache
transformers  LlamaForCausalLM with SDPA and its own cache: the bare forward call, without generate()'s work around it
weights       every matrix of the model times a vector and nothing else: the floor, since a step reads all weights

Times are CPU times of one thread. Absolute ones belong to the machine that the file names; what carries over is the ratios within one run.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import time
from datetime import date
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers import __version__ as transformers_version

from lib import chat_prompt, find_model, load_model, load_tokenizer
from lib.files.names import hf_name

HERE = Path(__file__).parent
LIB = HERE.parents[1] / "src" / "lib"
SOURCES = ("attention", "cache", "decoding", "model", "norms", "rope")
CACHE = (
    "cache"
    if int(transformers_version.split(".")[1]) >= 24 and transformers_version[0] == "5"
    else "past_key_values"
)
PROMPT = "Tell me about the history of clocks."


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


def book(model, idx, room):
    cache = model.new_cache(idx.shape[0], room)
    return lambda ids: model(ids, cache, last=True)[:, -1]


def transformers(theirs):
    cache = DynamicCache(config=theirs.config)
    return lambda ids: theirs(input_ids=ids, **{CACHE: cache}, use_cache=True, logits_to_keep=1).logits[:, -1]


def timed(call, *given):
    """(CPU seconds, result). One thread: its CPU time is its running time, less what other programs took away."""
    start = time.process_time()
    result = call(*given)
    return time.process_time() - start, result


def measure(model, theirs, idx, tokens, repeats):
    """{variant: prefill seconds}, {variant: seconds of each step}. The variants take turns at every step, and must agree."""
    prefill, steps = {"book": [], "transformers": []}, {"book": [], "transformers": [], "weights": []}
    for repeat in range(repeats + 1):  # the first round warms up
        calls = {"book": book(model, idx, idx.shape[1] + tokens), "transformers": transformers(theirs)}
        times = {name: timed(call, idx) for name, call in calls.items()}
        if repeat:
            for name, (seconds, _) in times.items():
                prefill[name].append(seconds)
        for _ in range(tokens):
            ids = times["book"][1].argmax(-1, keepdim=True)
            agree = torch.equal(ids, times["transformers"][1].argmax(-1, keepdim=True))
            if not agree and model.emb.weight.dtype == torch.float32:
                raise SystemExit("book and transformers say different things: nothing to time")
            times = {name: timed(call, ids) for name, call in calls.items()}
            floor, _ = timed(weights_only, model, idx.shape[0])
            if repeat:
                for name, (seconds, _) in times.items():
                    steps[name].append(seconds)
                steps["weights"].append(floor)
    return prefill, steps


def weights_only(model, B):
    matrices = [w for name, w in model.named_parameters() if w.dim() == 2]
    inputs = {w.shape[1]: torch.ones(B, w.shape[1], dtype=w.dtype) for w in matrices}
    for w in matrices:
        F.linear(inputs[w.shape[1]], w)


def cpu_name():
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


@torch.no_grad()
def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--tokens", type=int, default=24)
    ask.add_argument("--repeats", type=int, default=7)
    ask.add_argument("--out", type=Path, default=HERE / "results" / "decode.json")
    args = ask.parse_args()
    torch.set_num_threads(1)
    tokenizer, rows = load_tokenizer(find_model()), []
    one = torch.tensor([tokenizer.encode(chat_prompt(PROMPT)).ids])
    for dtype, batch in ((torch.float32, 1), (torch.float32, 8), (torch.bfloat16, 1)):
        model = load_model(find_model(), dtype)
        theirs = make_transformers(model)
        prefill, steps = measure(model, theirs, one.expand(batch, -1), args.tokens, args.repeats)
        name = str(dtype).removeprefix("torch.")
        for variant, seconds in steps.items():
            row = {
                "dtype": name,
                "batch": batch,
                "variant": variant,
                "ms_per_step": round(1e3 * statistics.median(seconds), 2),
            }
            if variant in prefill:
                row["prefill_ms"] = round(1e3 * statistics.median(prefill[variant]), 1)
            rows.append(row)
            print(row)
        medians = {variant: statistics.median(seconds) for variant, seconds in steps.items()}
        rows.append({
            "dtype": name, "batch": batch, "variant": "ratios",
            "book_times_faster_than_transformers": round(medians["transformers"] / medians["book"], 2),
            "prefill_times_faster": round(statistics.median(prefill["transformers"]) / statistics.median(prefill["book"]), 2),
            "share_of_the_floor": round(medians["weights"] / medians["book"], 2),
        })  # fmt: skip
        print(rows[-1])
        del model, theirs
    provenance = {
        "date": date.today().isoformat(), "torch": torch.__version__, "transformers": transformers_version, "device": "cpu",
        "cpu": cpu_name(), "cores": os.cpu_count(), "threads": 1, "clock": "CPU time of one thread", "repeats": args.repeats, "tokens": args.tokens,
        "prompt_tokens": one.shape[1], "model": find_model().name, "command": "python tests/bench/decode.py",
        **{f"lib_{name}_sha256": hashlib.sha256((LIB / f"{name}.py").read_bytes()).hexdigest() for name in SOURCES},
    }  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    fresh = args.out.with_suffix(".tmp")
    fresh.write_text(json.dumps({"provenance": provenance, "rows": rows}, indent=1) + "\n")
    fresh.replace(args.out)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
