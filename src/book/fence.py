"""Triton's interpreter reads and writes raw memory: a kernel with a wrong offset can end the whole process. Behind a fence it cannot."""

import numpy as np
import torch


def fence():
    """From now on an interpreted kernel that leaves the tensors of its launch raises IndexError. Twice is once.

    On a card nothing stops such an access: it reads or writes a neighbour, or ends the process.
    """
    from triton.runtime.interpreter import GridExecutor, interpreter_builder

    if getattr(GridExecutor, "fence", False):
        return
    GridExecutor.fence, spans = True, {}
    start, load, store = (
        GridExecutor._init_args_hst,
        interpreter_builder.create_masked_load,
        interpreter_builder.create_masked_store,
    )

    def arguments(self, args, kwargs):
        host = start(self, args, kwargs)
        memory = [t.untyped_storage() for t in (*host[0], *host[1].values()) if isinstance(t, torch.Tensor)]
        spans["now"] = [(m.data_ptr(), m.data_ptr() + m.nbytes()) for m in memory]
        return host

    def inside(pointers, mask, verb):
        addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)].astype(np.int64)
        known = np.zeros(addresses.shape, dtype=bool)
        for first, end in spans["now"]:
            known |= (addresses >= first) & (addresses < end)
        if not known.all():
            raise IndexError(
                f"a program {verb} {int((~known).sum())} numbers outside the tensors of the launch: "
                "is a mask missing, or a stride wrong?"
            )

    def fenced_load(pointers, mask, *rest):
        inside(pointers, mask, "loads")
        return load(pointers, mask, *rest)

    def fenced_store(pointers, value, mask, *rest):
        inside(pointers, mask, "stores")
        return store(pointers, value, mask, *rest)

    GridExecutor._init_args_hst = arguments
    interpreter_builder.create_masked_load, interpreter_builder.create_masked_store = (
        fenced_load,
        fenced_store,
    )
