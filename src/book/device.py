"""The one switch between CPU and GPU: the environment variable BOOK_DEVICE.

The printed outputs were made on the CPU, and another device rounds differently; so the CPU is the default, and a reader who
wants the GPU starts `BOOK_DEVICE=auto make lab` (or cuda, cuda:1, mps).
"""

import os

import torch


def device(name=None):
    """torch.device for `name`, or for BOOK_DEVICE, or the CPU; "auto" takes CUDA, then MPS, then the CPU.

    Raises: ValueError if the device is unknown or is not there.
    """
    name = name or os.environ.get("BOOK_DEVICE") or "cpu"
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = name.partition(":")
    there = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if kind not in there or (index and not index.isdigit()):
        raise ValueError(f"BOOK_DEVICE is {name!r}; expected cpu, cuda, cuda:N, mps or auto")
    if int(index or 0) >= there[kind]:
        usable = ", ".join(k for k, n in there.items() if n)
        raise ValueError(f"BOOK_DEVICE is {name!r}, but this machine and this build of torch offer: {usable}")
    return torch.device(name)
