"""Time one MLA layer at DeepSeek-V3's size, decoding one token over a cache: four ways, in turn, in one run.

    python tests/bench/mla.py [--contexts 512 1024 2048 4096] [--repeats 7] [--out tests/bench/results/mla.json]

expanded      per-head keys and values are cached (what MHA would cache)
re-expanded   the latent is cached and every key and value is made anew at each step
absorbed      the latent is cached and read as one wide key
transformers  DeepseekV3Attention with the same weights and its own cache

Absolute times belong to the machine that the file names. What carries over: the ratios within one run, and each time
against its own bound, max(bytes / bandwidth, FLOPs / rate), both rates measured in the same run.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import time
from datetime import date
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm
from transformers import DeepseekV3Config, DynamicCache
from transformers import __version__ as transformers_version
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

import lib.mla
from lib import KVCache, LatentCache, MLAttention, layout_permutation, rope_cache

V3 = {
    "n_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
D = 7168
HERE = Path(__file__).parent
VARIANTS = ("expanded", "re-expanded", "absorbed", "transformers")


def make_layer(seed=0):
    """One layer with random weights of a trained model's scale, float32: 187.1M parameters, 0.75 GB."""
    torch.manual_seed(seed)
    layer = MLAttention(D, **V3)
    for name, p in layer.named_parameters():
        nn.init.normal_(
            p, 1.0 if name.endswith("norm.weight") else 0.0, 0.1 if p.dim() == 1 else p.shape[-1] ** -0.5
        )
    return layer.requires_grad_(False)


def make_transformers(layer):
    """transformers' module on the same tensors (no second copy)."""
    config = DeepseekV3Config(
        hidden_size=D, num_attention_heads=128, num_key_value_heads=128, attn_implementation="sdpa"
    )
    with torch.device("meta"):
        theirs = DeepseekV3Attention(config, layer_idx=0)
    names = {"q_a_proj": "wq_a", "q_a_layernorm": "q_norm", "q_b_proj": "wq_b", "kv_a_proj_with_mqa": "wkv_a"}
    names |= {"kv_a_layernorm": "kv_norm", "kv_b_proj": "wkv_b", "o_proj": "wo"}
    for theirs_name, ours in names.items():
        getattr(theirs, theirs_name).weight = getattr(layer, ours).weight
    return theirs.eval()


def steps(layer, theirs, context):
    """{variant: (step function, cache)}, every cache holding the same `context` tokens; a step decodes the next one."""
    torch.manual_seed(context)
    cos, sin = rope_cache(context + 1, V3["qk_rope_head_dim"])
    past, x = torch.randn(1, context, D), torch.randn(1, 1, D)
    latents = layer.latents(past, cos[:context], sin[:context])
    last = cos[context:], sin[context:]
    kv = KVCache(1, context + 1, V3["n_heads"], 192, V3["v_head_dim"])
    kv.append(*layer.expand(latents))
    latent, again = (
        LatentCache(1, context + 1, V3["kv_lora_rank"], V3["qk_rope_head_dim"]) for _ in range(2)
    )
    latent.append(latents), again.append(latents)
    c, r = latents.unsqueeze(1).split([512, 64], dim=-1)
    hf = DynamicCache(config=theirs.config)
    hf.update(c, r[..., layout_permutation(64, "half")], 0)
    both = tuple(torch.cat([t, t], dim=-1)[None] for t in last)

    def rewound(cache, run):
        def step():
            out = run()
            cache.length = context
            return out

        return step

    def run_theirs():
        out = theirs(x, both, None, cache=hf)[0]
        hf.crop(-1)
        return out

    return {
        "expanded": (rewound(kv, lambda: layer.expanded(x, *last, kv)), kv.nbytes),
        "re-expanded": (rewound(again, lambda: layer.expanded(x, *last, again)), again.nbytes),
        "absorbed": (rewound(latent, lambda: layer.absorbed(x, *last, latent)), latent.nbytes),
        "transformers": (run_theirs, sum(t.nbytes for t in (hf.layers[0].keys, hf.layers[0].values))),
    }


def costs(variant, S):
    """(bytes that a step must read, FLOPs of a step) over S keys, in float32: every weight once, the cache once."""
    h, n, r, c, v = (
        V3[k] for k in ("n_heads", "qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank", "v_head_dim")
    )
    q = V3["q_lora_rank"]
    weights = D * q + q * h * (n + r) + D * (c + r) + c * h * (n + v) + h * v * D
    flops = (
        2 * weights
    )  # every weight meets one token; the absorbed form uses W_UK and W_UV once a step just the same
    if variant == "absorbed":
        return 4 * (weights + S * (c + r)), flops + 2 * h * S * (c + r + c)
    scores = 2 * h * S * (n + r + v)
    if variant == "expanded":
        return 4 * (weights + S * h * (n + r + v)), flops + scores
    made = S * h * (n + r + v)  # the expanded keys and values are written and read again
    return 4 * (weights + S * (c + r) + 2 * made), flops + 2 * (S - 1) * c * h * (n + v) + scores


def crossover(layer, S=2048, queries=(1, 96, 160, 192, 224, 256, 512), repeats=3):
    """Both forms on the same latent cache, T queries a call over S tokens in all: where does expanding begin to pay?"""
    torch.manual_seed(S)
    x = torch.randn(1, S, D)
    cos, sin = rope_cache(S, V3["qk_rope_head_dim"])
    cache = LatentCache(1, S, V3["kv_lora_rank"], V3["qk_rope_head_dim"])
    cache.append(layer.latents(x, cos, sin))
    h, n, c, v = (V3[k] for k in ("n_heads", "qk_nope_head_dim", "kv_lora_rank", "v_head_dim"))
    rows = []
    for T in tqdm(queries, desc="crossover"):
        times = {"expanded": [], "absorbed": []}
        for repeat in range(repeats + 1):
            for name, seconds in times.items():
                cache.length = S - T
                start = time.perf_counter()
                getattr(layer, name)(x[:, -T:], cos[-T:], sin[-T:], cache)
                if repeat:
                    seconds.append(time.perf_counter() - start)
        ms = {f"{name}_ms": round(1e3 * statistics.median(t), 1) for name, t in times.items()}
        extra = {
            "expanded_extra_flops": 2 * h * c * (n + v) * S,
            "absorbed_extra_flops": 2 * h * T * (c * (n + v) + S * (2 * c - n - v)),
        }
        rows.append(dict(context=S, queries=T, **ms, **extra))
    return rows


def crossing(turns):
    """Queries at which the two lines of `crossover` cross: the last change of sign, straight between two measured points."""
    gaps = [(row["queries"], row["absorbed_ms"] - row["expanded_ms"]) for row in turns]
    crossed = [(a, b) for a, b in pairwise(gaps) if a[1] < 0 <= b[1]]
    if not crossed:
        return None
    (T0, below), (T1, above) = crossed[-1]
    return round(T0 + (T1 - T0) * -below / (above - below), 1)


def rates(seconds=1.5):
    """Measured here and now: bytes/s of a matrix-vector product too large for the caches, FLOP/s of a square product."""
    W, x = torch.randn(8192, 16384), torch.randn(1, 16384)
    A = torch.randn(1536, 1536)
    reach = []
    for work, run in ((W.nbytes, lambda: nn.functional.linear(x, W)), (2 * 1536**3, lambda: A @ A)):
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
        reach.append(work / best)
    return reach


def cpu_name():
    info = Path("/proc/cpuinfo")
    names = (
        [
            line.split(":")[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()


@torch.no_grad()
def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--contexts", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    ask.add_argument("--repeats", type=int, default=7)
    ask.add_argument("--out", type=Path, default=HERE / "results" / "mla.json")
    args = ask.parse_args()
    layer = make_layer()
    theirs = make_transformers(layer)
    times, held, worst = {}, {}, 0.0
    progress = tqdm(total=len(args.contexts) * (args.repeats + 1), desc="MLA decode")
    bandwidth, flop_rate = rates()
    for S in args.contexts:
        ways = steps(layer, theirs, S)
        for repeat in range(args.repeats + 1):  # the first round warms up and compares
            outs = {}
            for name, (step, nbytes) in ways.items():
                start = time.perf_counter()
                outs[name] = step()
                elapsed = time.perf_counter() - start
                held[S, name] = nbytes
                if repeat:
                    times.setdefault((S, name), []).append(elapsed)
            worst = max(worst, *((outs[n] - outs["expanded"]).abs().max().item() for n in outs))
            progress.update()
        del ways
    progress.close()
    turns = crossover(layer)
    b2, f2 = rates()
    bandwidth, flop_rate = max(bandwidth, b2), max(flop_rate, f2)
    per_byte = flop_rate / bandwidth
    where = {
        "measured": crossing(turns),
        "predicted": round(layer.crossover(per_byte), 1),
        "flops_per_byte": round(per_byte, 2),
    }
    rows = []
    for (S, name), seconds in times.items():
        need, flops = costs(name, S + 1)
        bound = max(need / bandwidth, flops / flop_rate)
        rows.append({"context": S, "variant": name, "ms": round(1e3 * statistics.median(seconds), 2), "best_ms": round(1e3 * min(seconds), 2), "cache_bytes": held[S, name],
                         "bound_ms": round(1e3 * bound, 2), "bytes_read": need, "flops": flops,
                         "bound_by": "bandwidth" if need / bandwidth > flops / flop_rate else "FLOPs"})  # fmt: skip
    provenance = {
        "date": date.today().isoformat(), "torch": torch.__version__, "transformers": transformers_version, "device": "cpu",
        "cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "dtype": "float32", "batch": 1,
        "layer": dict(d=D, **V3), "parameters": sum(p.numel() for p in layer.parameters()), "repeats": args.repeats,
        "bandwidth_GB_per_s": round(bandwidth / 1e9, 2), "gflop_per_s": round(flop_rate / 1e9, 1),
        "lib_mla_sha256": hashlib.sha256(Path(lib.mla.__file__).read_bytes()).hexdigest(),
        "command": "python tests/bench/mla.py",
    }  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    fresh = args.out.with_suffix(".tmp")
    fresh.write_text(
        json.dumps(
            {
                "provenance": provenance,
                "max_difference_below": 10 ** (len(str(int(1 / worst))) * -1 + 1),
                "rows": rows,
                "crossover": turns,
                "crossing": where,
            },
            indent=1,
        )
        + "\n"
    )
    fresh.replace(args.out)
    print(
        f"{'context':>7} {'variant':>13} {'ms':>9} {'bound ms':>9} {'ms/bound':>8} {'cache bytes':>12} {'bound by':>9}"
    )
    for row in rows:
        print(f"{row['context']:>7} {row['variant']:>13} {row['ms']:>9.2f} {row['bound_ms']:>9.2f} {row['ms'] / row['bound_ms']:>8.2f}"
              f" {row['cache_bytes']:>12,} {row['bound_by']:>9}")  # fmt: skip
    for row in turns:
        print(
            f"{row['queries']:>4} queries over {row['context']} tokens: expanded {row['expanded_ms']:>8.1f} ms, absorbed {row['absorbed_ms']:>8.1f} ms"
        )
    print(
        f"they cross at {where['measured']} queries; predicted {where['predicted']} at {per_byte:.1f} FLOPs per byte"
    )
    print(f"largest difference between the variants' outputs: {worst:.1e}; written to {args.out}")


if __name__ == "__main__":
    main()
