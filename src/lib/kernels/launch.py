"""What every kernel does before it runs: the checks that name what came, block sizes, and one Launch that can run or be compiled."""

import os
import shutil
from dataclasses import dataclass

import torch

from lib.kernels import interpreted, missing

if why := missing():
    raise RuntimeError(why)

import triton.language as tl

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid, its arguments by name and its constants: `run` it, count it, or compile it without a GPU."""

    kernel: object
    grid: tuple
    arguments: dict
    constants: dict
    warps: int = 4
    stages: int = 2

    @property
    def programs(self):
        """Programs of the grid."""
        return (
            self.grid[0]
            * (self.grid[1] if len(self.grid) > 1 else 1)
            * (self.grid[2] if len(self.grid) > 2 else 1)
        )

    def run(self):
        """Launch it. Raises: ValueError for a device that it does not run on, RuntimeError without a C compiler."""
        if 0 in self.grid:
            return
        check_device(*(a for a in self.arguments.values() if isinstance(a, torch.Tensor)))
        self.kernel[self.grid](
            **self.arguments, **self.constants, num_warps=self.warps, num_stages=self.stages
        )


def check_device(*tensors):
    """CUDA, or the CPU in the interpreter; all tensors on one device."""
    devices = {t.device for t in tensors}
    if len(devices) > 1:
        raise ValueError(f"tensors on {', '.join(sorted(map(str, devices)))}: a kernel takes one device")
    kind = devices.pop().type
    if interpreted() and kind == "cpu":
        return
    if kind != "cuda":
        raise ValueError(
            f"tensors on {kind}: the kernels run on CUDA, and on the CPU in Triton's interpreter"
            " (set TRITON_INTERPRET=1 before Python starts)"
        )
    if not (interpreted() or os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise RuntimeError(
            "Triton builds a small C launcher for each kernel and finds no compiler: install gcc, or set CC."
        )


def check_dtypes(**tensors):
    """One floating dtype that the kernels take, for all tensors. -> that dtype"""
    first = next(iter(tensors.values())).dtype
    for name, t in tensors.items():
        if t.dtype not in DTYPES:
            raise ValueError(f"{name} is {t.dtype}: the kernels take float32, bfloat16 and float16")
        if t.dtype != first:
            raise ValueError(f"{name} is {t.dtype} and the first tensor {first}: the kernels take one dtype")
    return first


def check_width(most, **widths):
    """A width that one program holds whole."""
    for name, width in widths.items():
        if not 1 <= width <= most:
            raise ValueError(f"{name} is {width}: one program holds the whole width, from 1 to {most:,}")


def check_attention(q, k, v, mask):
    """q [B, h, T, dh], k [B, n_kv, S, dh], v [B, n_kv, S, d_v] that fit each other: a kernel reads by address and would not notice."""
    shapes = f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)}"
    fit = q.dim() == k.dim() == v.dim() == 4
    if not (
        fit
        and len({t.shape[0] for t in (q, k, v)}) == 1
        and q.shape[3] == k.shape[3]
        and k.shape[1:3] == v.shape[1:3]
    ):
        raise ValueError(
            f"{shapes}: expected [B, h, T, dh], [B, n_kv, S, dh] and [B, n_kv, S, d_v] (are heads and tokens swapped?)"
        )
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{shapes}: expected a number of query heads that the KV heads divide (n_heads = group_size * n_kv_heads)"
        )
    if mask is None and q.shape[2] > k.shape[2]:
        raise ValueError(
            f"{q.shape[2]} queries and {k.shape[2]} keys without a mask: a causal query is one of the keys"
        )


def check_blocks(parts=1, **blocks):
    """Block sizes that a caller chose (None: not chosen)."""
    for name, n in blocks.items():
        if n is not None and (n < 16 or n & (n - 1)):
            raise ValueError(f"{name} = {n}: a block is a power of two, at least 16 (a tensor core's tile)")
    if parts is not None and parts < 1:
        raise ValueError(f"parts = {parts}: expected at least one program per KV head")


def power_of_two(n, least=1):
    """The smallest power of two that is not below n, nor below `least` (a tensor core's tile is 16 wide)."""
    return max(least, 1 << max(0, n - 1).bit_length())


def product_dtype(dtype):
    """The dtype that tl.dot multiplies in: the tensors' own. The interpreter holds bfloat16 as whole numbers and would multiply
    those, so it multiplies in float32."""
    return tl.float32 if interpreted() and dtype == torch.bfloat16 else DTYPES[dtype]


def mask_strides(mask, B, h, T, S):
    """(a tensor to point at, its four strides, whether there is one): any bool mask that broadcasts to [B, h, T, S]."""
    if mask is None:
        return None, (0, 0, 0, 0), False
    if mask.dtype != torch.bool:
        raise ValueError(f"mask is {mask.dtype}: expected bool, True where a query may look")
    try:
        strides = mask.expand(B, h, T, S).stride()
    except RuntimeError as error:
        raise ValueError(f"mask {list(mask.shape)} does not broadcast to {[B, h, T, S]}") from error
    return mask, strides, True


def split_count(S, programs, block, wanted=264, most=64):
    """Parts of the S keys: enough programs for two on each of an H100's 132 multiprocessors, four blocks of keys in each part."""
    return max(1, min(-(-wanted // programs), S // (4 * block), most))
