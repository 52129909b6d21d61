"""The kernels compiled for sm_80, sm_90 and sm_100 without a device: about 25 s of one core, in a process of its own."""

import pytest
import torch

from book.compiled import TARGETS, compiled, launches
from lib.kernels import cards, counting, norms
from lib.kernels import compiled as compiling

CARD = {80: cards.A100, 90: cards.H100, 100: cards.H100}  # a B200 has the H100's shared memory per program
NAMES = list(launches())
OTHERS = {
    "float32": ["rms_norm 576", "decode Llama-3-70B", "prefill SmolLM2", "latent DeepSeek-V3"],
    "float16": ["latent DeepSeek-V3"],
}


@pytest.fixture(scope="module")
def found():
    every = {("bfloat16", int(t)): rows for t, rows in compiled().items()}
    for dtype, names in OTHERS.items():
        (rows,) = compiled("--targets", "80", "--dtype", dtype, "--only", ",".join(names)).values()
        every[dtype, 80] = rows
    return every


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles_without_spills(found, target):
    rows = found["bfloat16", target]
    assert list(rows) == NAMES
    for name, r in rows.items():
        assert r["stack"] == r["local"] == 0, f"{name} spills on sm_{target}: {r}"
        assert 0 < r["registers"] <= 255 and r["shared"] <= CARD[target].shared_per_program, (name, r)
        assert cards.resident(CARD[target], r["registers"], r["shared"], r["threads"])[0] >= 1, (name, r)


@pytest.mark.parametrize("dtype", OTHERS)
def test_the_other_dtypes(found, dtype):
    for name, r in found[dtype, 80].items():
        assert r["stack"] == r["local"] == 0 and r["shared"] <= cards.A100.shared_per_program, (name, r)


def test_the_measure_can_fail(found):
    """128 rows of the latent kernel spill: cuobjdump's lines are read, and a spill is seen."""
    import json

    from book.compiled import RESULT

    rows = json.loads(RESULT.read_text(encoding="utf-8"))["latent"]["80"]
    assert rows["128 32 2"]["stack"] > 0 and rows["32 32 2"]["stack"] == 0
    assert rows["32 32 2"] == found["bfloat16", 80]["latent DeepSeek-V3"], (
        "run: python -m book.compiled --write"
    )


def test_a_process_that_interprets_does_not_compile():
    launch = norms.plan(torch.empty(1, 8, device="meta"))[0]
    with pytest.raises(RuntimeError, match="this process interprets kernels and cannot compile them"):
        compiling.compile_for(launch, 80)


def test_a_process_that_compiles_does_not_count(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    with (
        pytest.raises(RuntimeError, match="set TRITON_INTERPRET=1 before Python starts"),
        counting.counting(),
    ):
        pass
