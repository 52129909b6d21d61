"""What PyTorch moves, counted: the bytes of the inputs and outputs of every operation of a call that is not a view."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Steps(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            flat = [a for arg in args for a in (arg if isinstance(arg, list | tuple) else [arg])]
            self.bytes += sum(t.nbytes for t in (*flat, out) if isinstance(t, torch.Tensor))
        return out


def pytorch_bytes(function, *args):
    """Bytes that function(*args) reads and writes if each of PyTorch's operations does so on its own."""
    with _Steps() as steps:
        function(*args)
    return steps.bytes
