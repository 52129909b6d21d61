"""The kernels of `lib.kernels` compiled at real shapes, in a process of its own: one that interprets cannot compile.

python -m book.compiled                  every shape for sm_80, sm_90 and sm_100, as JSON
python -m book.compiled --write          also the settings of the latent kernel that chapter 11 plots, into notebooks/results

Nothing runs and no memory is taken: the tensors are on the "meta" device.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict

from book.paths import NOTEBOOKS

TARGETS = (80, 90, 100)
RESULT = NOTEBOOKS / "results" / "kernels.json"
# One sequence of DeepSeek-V3 with 4,096 tokens: 128 heads, a latent of 512 and a rope key of 64.
GRID = {"rows": (16, 32, 64, 128), "keys": (16, 32, 64), "stages": (1, 2, 3)}


def launches(dtype="bfloat16"):
    """{name: Launch} at the shapes of SmolLM2-135M (9 heads of 64, 3 KV heads), Llama-3-70B (64 of 128, 8) and DeepSeek-V3."""
    import torch

    from lib.kernels import decode, ffn, latent, norms, prefill, rope

    def empty(*shape, kind=None):
        return torch.empty(*shape, dtype=kind or getattr(torch, dtype), device="meta")

    x, table = empty(1, 1, 7168), empty(1, 32, kind=torch.float32)
    small, one = empty(1, 1, 576), {}
    one["rms_norm 576"] = norms.plan(small, None, empty(576))[0]
    one["add_rms_norm 7168"] = norms.plan(x, x, empty(7168))[0]
    one["silu_mul 1536"] = ffn.plan(empty(1, 1536), empty(1, 1536))[0]
    one["rope 128 heads"] = rope.plan(empty(1, 128, 1, 64), table, table, "adjacent")[0]
    for name, h, n_kv, dh in (("SmolLM2", 9, 3, 64), ("Llama-3-70B", 64, 8, 128), ("width 256", 16, 4, 256)):
        k = empty(1, n_kv, 4096, dh)
        one[f"decode {name}"] = decode.plan(empty(1, h, 1, dh), k, k)[0][0]
        one[f"prefill {name}"] = prefill.plan(empty(1, h, 4096, dh), k, k)[0]
    masked = empty(1, 1, 64, 4096, kind=torch.bool)
    k = empty(1, 8, 4096, 128)
    one["prefill with a mask"] = prefill.plan(empty(1, 64, 64, 128), k, k, masked)[0]
    expanded = prefill.plan(empty(1, 128, 4096, 192), empty(1, 128, 4096, 192), empty(1, 128, 4096, 128))
    one["prefill DeepSeek-V3"] = expanded[0]
    first, second = latent.plan(empty(1, 128, 1, 576), empty(1, 4096, 576), 512)[0]
    return one | {"latent DeepSeek-V3": first, "join DeepSeek-V3": second}


def latent_settings():
    """{"rows keys stages": Launch}: the latent kernel at DeepSeek-V3's shape with every setting of GRID, 8 warps."""
    import torch

    from lib.kernels import latent

    q, l = (
        torch.empty(shape, dtype=torch.bfloat16, device="meta")
        for shape in ((1, 128, 1, 576), (1, 4096, 576))
    )
    grid = [(r, k, s) for r in GRID["rows"] for k in GRID["keys"] for s in GRID["stages"]]
    return {
        f"{r} {k} {s}": latent.plan(q, l, 512, rows=r, keys=k, stages=s, warps=8)[0][0] for r, k, s in grid
    }


def measure(found, targets=TARGETS):
    """{target: {name: resources, or None where the compiler gave up}}"""
    from lib.kernels.compiled import resources

    def one(launch, target):
        try:
            return asdict(resources(launch, target))
        except Exception as error:  # ptxas ran out of registers: that is a result
            if "ptxas" not in str(error).lower():
                raise
            return None

    return {str(target): {name: one(launch, target) for name, launch in found.items()} for target in targets}


def compiled(*arguments):
    """What `python -m book.compiled *arguments` prints, in a process that does not interpret and with an empty cache."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    with tempfile.TemporaryDirectory() as cache:
        call = [sys.executable, "-m", "book.compiled", *arguments]
        out = subprocess.run(
            call, capture_output=True, text=True, check=False, env={**environment, "TRITON_CACHE_DIR": cache}
        )
    if out.returncode:
        raise RuntimeError(f"compiling failed: {out.stderr.strip().splitlines()[-1:]}")
    return json.loads(out.stdout)


def main(argv):
    """--targets 80,90 --dtype float32 --only name,name --write"""
    from importlib.metadata import version

    options = dict(zip(argv[::2], argv[1::2])) if "--write" not in argv else {}
    targets = tuple(int(t) for t in options.get("--targets", "80,90,100").split(","))
    found = launches(options.get("--dtype", "bfloat16"))
    only = options.get("--only", "").split(",") if "--only" in options else list(found)
    if "--write" in argv:
        settings = measure(latent_settings(), (80, 90))
        result = {"triton": version("triton"), "grid": GRID, "warps": 8, "latent": settings}
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written: {RESULT.name}")
        return
    print(json.dumps(measure({name: found[name] for name in only}, targets)))


if __name__ == "__main__":
    main(sys.argv[1:])
