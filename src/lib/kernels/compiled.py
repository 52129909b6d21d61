"""What the compiler makes of a Launch, for a GPU that is not there: registers, shared memory and spills, read from the cubin.

Nothing runs: the arguments may be tensors on the "meta" device, of any size. A process that interprets cannot compile.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lib.kernels import interpreted

NAMES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.bool: "*i1"}


@dataclass(frozen=True)
class Resources:
    """Of one kernel on one target: registers per thread; stack and local bytes per thread (0: nothing spilled); shared bytes per
    program; threads per program."""

    registers: int
    stack: int
    local: int
    shared: int
    threads: int


def specialised(launch):
    """(signature, constants, attributes) as a launch on the GPU would make them: a 1 becomes a constant, what 16 divides is marked.

    Tensors count as aligned to 16 bytes: PyTorch allocates them so.
    """
    signature, constants, attributes = {}, dict(launch.constants), {}
    for place, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        value = launch.arguments[name]
        if isinstance(value, torch.Tensor):
            signature[name], divisible = NAMES[value.dtype], True
        elif isinstance(value, float):
            signature[name], divisible = "fp32", False
        elif value == 1:
            signature[name], constants[name], divisible = "constexpr", 1, False
        else:
            signature[name], divisible = ("i32" if -(2**31) <= value < 2**31 else "i64"), value % 16 == 0
        if divisible:
            attributes[place,] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def compile_for(launch, capability):
    """The compiled kernel of a Launch for compute capability 80, 90, 100 ..: `.asm` holds every stage, "cubin" the last.

    Raises: RuntimeError in a process that interprets.
    """
    if interpreted():
        raise RuntimeError(
            "TRITON_INTERPRET is set: this process interprets kernels and cannot compile them."
        )
    signature, constants, attributes = specialised(launch)
    source = ASTSource(launch.kernel, signature, constants, attributes)
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def resources(launch, capability):
    """Resources of a Launch on a target, as the wheel's own cuobjdump reads them from the cubin."""
    made = compile_for(launch, capability)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        call = [tool, "--dump-resource-usage", file.name]
        text = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    line = re.search(rf"Function {made.metadata.name}:\s*\n?(.*)", text)
    found = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", line.group(1) if line else ""))
    if set(found) != {"REG", "STACK", "LOCAL"}:
        raise RuntimeError(f"cuobjdump printed no resources of {made.metadata.name}: {text!r}")
    return Resources(
        int(found["REG"]), int(found["STACK"]), int(found["LOCAL"]), made.metadata.shared, 32 * launch.warps
    )
