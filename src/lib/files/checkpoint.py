"""Files of weights, opened by their headers: a Hugging Face folder of safetensors. One reading interface, no pickles.

A source iterates over its names and has shape(name), dtype(name) (from headers alone), read(name, dtype, device) -> tensor.
"""

import json
from pathlib import Path, PurePosixPath, PureWindowsPath

import torch
from safetensors import SafetensorError, safe_open

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def read_json(path):
    """The JSON object in a file. Raises: FileNotFoundError; ValueError if it is not JSON or not an object."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: no such file; expected a Hugging Face folder with config.json and safetensors"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}): truncated or another file") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found a {type(value).__name__}")
    return value


class Folder:
    """A Hugging Face folder: model.safetensors, or several shards by model.safetensors.index.json.

    Raises: FileNotFoundError for a missing file or shard; ValueError for a truncated or foreign file, an index that leaves
    its folder or disagrees with its shards, and a folder that holds only pickled weights.
    """

    def __init__(self, path):
        self.path = Path(path)
        self._where = {}  # tensor name -> file
        self._facts = {}  # tensor name -> (shape, stored type)
        if (self.path / SINGLE).is_file():
            self._add(self.path / SINGLE)
        elif (self.path / INDEX).is_file():
            self._add_shards(read_json(self.path / INDEX))
        else:
            pickled = sorted(file.name for file in self.path.glob("*") if file.suffix in PICKLES)
            if pickled:
                raise ValueError(
                    f"{self.path}: holds {pickled[0]}, a pickle, which can run code; convert it to safetensors"
                )
            raise FileNotFoundError(f"{self.path}: neither {SINGLE} nor {INDEX} is here")

    def _add_shards(self, index):
        names = index.get("weight_map")
        if (
            not isinstance(names, dict)
            or not names
            or not all(isinstance(file, str) for file in names.values())
        ):
            raise ValueError(f"{self.path / INDEX}: expected a weight_map of tensor names to file names")
        shards = sorted(set(names.values()))
        for shard in shards:  # before any is opened
            posix, windows = PurePosixPath(shard), PureWindowsPath(shard)
            if posix.is_absolute() or windows.is_absolute() or windows.drive or ".." in windows.parts:
                raise ValueError(f"{self.path / INDEX}: points outside its folder: {shard!r}")
            if posix.suffix != ".safetensors":
                raise ValueError(
                    f"{self.path / INDEX}: names {shard!r}: only .safetensors files are read, never a pickle"
                )
            if not (self.path / shard).is_file():
                raise FileNotFoundError(
                    f"{self.path / shard}: this shard of {len(shards)} is missing: an incomplete download"
                )
        for shard in shards:
            self._add(self.path / shard)
        wrong = sorted(
            name
            for name in names.keys() | self._where.keys()
            if self._where.get(name) != self.path / names.get(name, "?")
        )
        if wrong:
            raise ValueError(
                f"{self.path / INDEX}: index and shards disagree on {len(wrong)} tensors, first {wrong[0]!r}"
            )

    def _add(self, file):
        with _opened(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118  not iterable itself
                if name in self._where:
                    raise ValueError(f"{file}: tensor {name!r} is also in {self._where[name].name}")
                part = tensors.get_slice(name)
                self._where[name] = file
                self._facts[name] = (tuple(part.get_shape()), part.get_dtype())

    def __iter__(self):
        return iter(self._where)

    def shape(self, name):
        return self._facts[name][0]

    def dtype(self, name):
        kind = self._facts[name][1]
        if kind not in DTYPES:
            raise ValueError(
                f"{self._where[name]}: tensor {name!r} is stored as {kind}; read here: {', '.join(DTYPES)}"
            )
        return DTYPES[kind]

    def read(self, name, dtype=None, device=None):
        """The tensor, memory-mapped where dtype and device are the stored ones.

        Each call maps the file anew, so that the pages of a tensor that was converted are given back with it: a bfloat16
        copy of float32 weights never holds both.
        """
        with _opened(self._where[name]) as tensors:
            return tensors.get_tensor(name).to(device=device, dtype=dtype)


def _opened(file):
    try:
        return safe_open(file, framework="pt")
    except FileNotFoundError:
        raise FileNotFoundError(f"{file}: no such file") from None
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{file}: not a whole safetensors file ({error}): truncated or corrupt; fetch it again"
        ) from None
