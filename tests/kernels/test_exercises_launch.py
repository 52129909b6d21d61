"""Chapter 11's exercises ask for kernels: right values without a launch are not enough. About 3 s."""

import torch
import triton
import triton.language as tl

from book.exercises import ALL


@triton.jit
def copy_kernel(X, Y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < n), mask=at < n)


def test_right_values_without_a_kernel_are_told():
    exercise = ALL["11.rms_norm"]

    def by_torch(x, weight, eps):
        return exercise.reference(x, weight, eps)

    found = exercise.judge(by_torch)
    assert found.state == "wrong" and "no Triton kernel ran" in found.text

    def by_kernel(x, weight, eps):
        y = exercise.reference(x, weight, eps).contiguous()
        out = torch.empty_like(y)
        copy_kernel[(1,)](y, out, y.numel(), BLOCK=triton.next_power_of_2(y.numel()))
        return out

    assert exercise.judge(by_kernel).state == "correct"
