"""A GGUF file, read lazily: the header now, one tensor when it is asked for.

GGUF stores a tensor's shape innermost first and, for the `llama` architecture, the rows of q and k in the adjacent-pair
layout of RoPE (Meta's own). `GGUFFile` hands rows out as they are stored; `lib.files.weights.load_model` permutes them.
"""

from lib.families import read_config
from lib.families.gguf_header import GGUFHeader, hf_config


class GGUFFile(GGUFHeader):
    """Names -> tensors of a GGUF file. Nothing but the header is read until a tensor is asked for.

    file["blk.0.attn_q.weight"]  float32, dequantised, shape [rows, columns] as in PyTorch; rows as stored (see the module)
    file.metadata                dict of everything in the header: architecture, sizes, tokens, merges, chat template
    file.config                  the ModelConfig that the metadata describes
    Raises: FileNotFoundError; ValueError for a file that is not GGUF, truncated or corrupt.
    """

    def __getitem__(self, name):
        import numpy as np
        import torch
        from gguf import quants

        shape, kind, first, last = self._entry(name)
        stored = np.frombuffer(self._data, np.uint8, count=last - first, offset=first)
        rows = stored.reshape(*shape[:-1], -1)
        try:
            values = quants.dequantize(rows, kind)
        except NotImplementedError:
            raise ValueError(
                f"{self.path}: tensor {name!r} is {kind.name}, which the gguf package cannot dequantise"
            ) from None
        if np.shares_memory(values, stored):  # the file is read-only; a tensor is its owner's to change
            values = values.copy()
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).reshape(shape)

    @property
    def config(self):
        return read_config(hf_config(self))
