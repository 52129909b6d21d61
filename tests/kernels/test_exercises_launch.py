"""Chapter 11's exercises ask for kernels: right values without a launch are not enough, in whatever process. About 8 s."""

import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from book.exercises import ALL

EXERCISES = ("11.rms_norm", "11.online")


@triton.jit
def copy_kernel(X, Y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("name", EXERCISES)
def test_right_values_without_a_kernel_are_told(name):
    exercise = ALL[name]

    def by_torch(*case):
        return exercise.reference(*case)

    found = exercise.judge(by_torch)
    assert found.state == "wrong" and "no Triton kernel ran" in found.text

    def by_kernel(*case):
        y = exercise.reference(*case).contiguous()
        out = torch.empty_like(y)
        copy_kernel[(1,)](y, out, y.numel(), BLOCK=triton.next_power_of_2(y.numel()))
        return out

    assert exercise.judge(by_kernel).state == "correct"


COMPILING = """
import sys
from book.exercises import ALL
loaded = "triton" in sys.modules
def answers(exercise, launch):
    def by_torch(*case):
        launch()
        return exercise.reference(*case)
    return exercise.judge(by_torch)
for name in {names}:
    said = answers(ALL[name], lambda: None)
    assert said.state == "wrong" and "no Triton kernel ran" in said.text, said
from triton.runtime.jit import JITFunction
JITFunction.run = lambda self, *args, grid, warmup: None  # no card here: a launch that computes nothing
kernel = object.__new__(JITFunction)
for name in {names}:
    assert answers(ALL[name], lambda: kernel[(1,)]()).state == "correct"
    said = answers(ALL[name], lambda: kernel.warmup(grid=(1,)))
    assert "no Triton kernel ran" in said.text, said  # compiled, and never launched
print("told", loaded)
"""


def test_a_process_that_compiles_tells_them_too():
    """Without TRITON_INTERPRET, and with nothing of Triton imported before the check."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    code = COMPILING.format(names=EXERCISES)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["told", "False"], done.stderr
