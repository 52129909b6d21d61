"""How many bytes the kernels load and store, counted in Triton's interpreter: every unmasked element of every access.

    with counting() as traffic:
        rms_norm(x, weight)
    traffic.loaded, traffic.stored        {"X": 4096, "W": 128}, {"Y": 4096}

An access belongs to the pointer argument in whose tensor it lies; two arguments that share one memory (a key and a value that are
views of one latent) count under the first. Elements, not sectors: a GPU moves at least 32 bytes at a time, and its caches can
save a second read of the same address; the count is what the program asks for.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from lib.kernels import interpreted, launch


@dataclass
class Traffic:
    """Bytes by argument name, and the programs that ran."""

    loaded: dict = field(default_factory=dict)
    stored: dict = field(default_factory=dict)
    programs: int = 0

    @property
    def bytes(self):
        """Everything loaded and stored."""
        return sum(self.loaded.values()) + sum(self.stored.values())


class _Count:
    """Counts while one Launch runs."""

    def __init__(self, traffic, arguments):
        self.traffic, self.spans = traffic, {}
        for name, t in arguments.items():
            if isinstance(t, torch.Tensor):
                memory = t.untyped_storage()
                self.spans.setdefault((memory.data_ptr(), memory.data_ptr() + memory.nbytes()), name)

    def add(self, table, pointers, mask):
        addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        for (start, end), name in self.spans.items():
            count = int(((addresses >= start) & (addresses < end)).sum())
            if count:
                table[name] = table.get(name, 0) + count * size


@contextmanager
def counting():
    """Count every Launch that runs inside. Raises: RuntimeError in a process that does not interpret."""
    if not interpreted():
        raise RuntimeError(
            "bytes are counted in Triton's interpreter: set TRITON_INTERPRET=1 before Python starts."
        )
    from triton.runtime.interpreter import interpreter_builder as builder

    traffic, plain = Traffic(), (builder.create_masked_load, builder.create_masked_store, launch.Launch.run)

    def run(self):
        count = _Count(traffic, self.arguments)

        def load(pointers, mask, *rest):
            count.add(traffic.loaded, pointers, mask)
            return plain[0](pointers, mask, *rest)

        def store(pointers, value, mask, *rest):
            count.add(traffic.stored, pointers, mask)
            return plain[1](pointers, value, mask, *rest)

        builder.create_masked_load, builder.create_masked_store = load, store
        try:
            plain[2](self)
        finally:
            builder.create_masked_load, builder.create_masked_store = plain[:2]
        traffic.programs += self.programs

    launch.Launch.run = run
    try:
        yield traffic
    finally:
        launch.Launch.run = plain[2]
