"""The header of a GGUF file: its metadata, the tensors' names, shapes and places, and the config.json that it amounts to.

No tensor is read here (`lib.files.gguf_file` does) and torch is not needed, so that `read_config` takes a GGUF file too.
"""

import json
import mmap
import struct
from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_LIST = 10_000_000  # tokens, merges: a longer one is a corrupt length field


class _Cursor:
    """Reads little-endian values from a buffer and refuses to run past its end."""

    def __init__(self, data, where):
        self.data, self.where, self.at = data, where, 0

    def _claim(self, n_bytes):
        start, self.at = self.at, self.at + n_bytes
        if self.at > len(self.data):
            raise ValueError(
                f"{self.where}: the header wants {n_bytes} bytes at {start}, the file ends at {len(self.data)}: truncated or corrupt"
            )
        return start

    def numbers(self, code, count=1):
        form = f"<{count}{code}"
        return struct.unpack_from(form, self.data, self._claim(struct.calcsize(form)))

    def number(self, code):
        return self.numbers(code)[0]

    def string(self):
        length = self.number("Q")
        start = self._claim(length)
        return self.data[start : start + length].decode("utf-8", errors="replace")

    def value(self, kind):
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            value = self.number(_SCALARS[kind])
            return _shortest(value) if kind == 6 else value
        if kind == _ARRAY:
            kind, count = self.number("I"), self.number("Q")
            if count > _LONGEST_LIST or kind == _ARRAY:
                raise ValueError(f"{self.where}: a list of {count} entries of type {kind}: corrupt header")
            if kind in _SCALARS:
                return list(self.numbers(_SCALARS[kind], count))
            return [self.value(kind) for _ in range(count)]
        raise ValueError(f"{self.where}: unknown metadata type {kind}: corrupt header, or a newer format")


def _shortest(value):
    """1e-05 for a float32 stored as 9.999999747378752e-06: the decimal that its author wrote."""
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


class GGUFHeader:
    """What a GGUF file says of itself.

    file.metadata          dict of everything in the header: architecture, sizes, tokens, merges, chat template
    file.shape(name)       a tensor's shape as in PyTorch, [rows, columns]; file.kind(name), file.nbytes(name): how it is stored
    Raises: FileNotFoundError; ValueError for a file that is not GGUF, truncated or corrupt.
    """

    def __init__(self, path):
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such GGUF file; `make model` fetches the book's own")
        with open(self.path, "rb") as file:
            if file.read(4) != MAGIC:
                raise ValueError(
                    f"{self.path}: does not start with {MAGIC.decode()}: not a GGUF file, or a broken download"
                )
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.metadata, self._tensors = self._read_header()

    def _read_header(self):
        import gguf

        cursor = _Cursor(self._data, self.path)
        cursor.at = 4
        version = cursor.number("I")
        if version not in VERSIONS:
            raise ValueError(f"{self.path}: GGUF version {version}, expected one of {VERSIONS}")
        n_tensors, n_values = cursor.numbers("Q", 2)
        metadata = {}
        for _ in range(n_values):
            name = cursor.string()
            metadata[name] = cursor.value(cursor.number("I"))
        entries = {}
        for _ in range(n_tensors):
            name, n_dims = cursor.string(), cursor.number("I")
            if n_dims > 8 or name in entries:
                raise ValueError(
                    f"{self.path}: tensor {name!r} is listed twice or has {n_dims} dimensions: corrupt header"
                )
            entries[name] = (cursor.numbers("Q", n_dims), *cursor.numbers("I"), *cursor.numbers("Q"))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"{self.path}: general.alignment = {alignment!r}: corrupt header")
        start = -(-cursor.at // alignment) * alignment
        tensors = {}
        for name, (shape, kind, offset) in entries.items():
            try:
                kind = gguf.GGMLQuantizationType(kind)
                block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            except (ValueError, KeyError):
                raise ValueError(f"{self.path}: tensor {name!r} has the unknown type {kind}") from None
            count = 1
            for size in shape:
                count *= size
            first, last = start + offset, start + offset + count // block * block_bytes
            if last > len(self._data):
                raise ValueError(
                    f"{self.path}: tensor {name!r} ends at byte {last}, the file at {len(self._data)}: truncated"
                )
            if not shape or shape[0] % block:
                raise ValueError(
                    f"{self.path}: tensor {name!r} of shape {shape} does not fill blocks of {block} ({kind.name})"
                )
            tensors[name] = (tuple(reversed(shape)), kind, first, last)
        return metadata, tensors

    def keys(self):
        return self._tensors.keys()

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __contains__(self, name):
        return name in self._tensors

    def _entry(self, name):
        if name not in self._tensors:
            raise KeyError(
                f"{self.path.name} has no tensor {name!r}; it has {len(self)}, such as {list(self)[:3]}"
            )
        return self._tensors[name]

    def shape(self, name):
        return self._entry(name)[0]

    def kind(self, name):
        """How the tensor is stored: "F32", "Q8_0", "Q4_1" .."""
        return self._entry(name)[1].name

    def nbytes(self, name):
        """Bytes that the tensor takes in the file."""
        _, _, first, last = self._entry(name)
        return last - first


# GGUF key (after "<architecture>.") -> Hugging Face field. `arch` True: in the file for every architecture below.
_CONFIG_KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
# what the format lets a file leave out -> its default
_OPTIONAL = {
    "rope.freq_base": lambda config: 10000.0,
    "attention.head_count_kv": lambda config: config["num_attention_heads"],
}
# what `hf_config` computes with; the reader checks the rest
_USED_HERE = ("hidden_size", "num_attention_heads")
_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


class Translated(dict):
    """A config.json made from another format; `notes`: what its reader should be told."""

    notes = ()


def hf_config(file):
    """The config.json that describes a GGUF file. Raises: ValueError for an architecture or a field that is not known."""
    meta, arch = file.metadata, file.metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in _CLASSES:
        raise ValueError(
            f"{file.path}: unknown GGUF architecture {arch!r:.60}; known here: {', '.join(_CLASSES)}"
        )
    scaling = meta.get(f"{arch}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file:
        raise ValueError(
            f"{file.path}: RoPE scaling in a GGUF file is not read here; load the Hugging Face folder of this model"
        )
    for key in ("rope.scaling.factor", "rope.scale_linear"):  # linear where no type is named
        if meta.get(f"{arch}.{key}", 0) not in (0, 1):
            raise ValueError(
                f"{file.path}: {arch}.{key} = {meta[f'{arch}.{key}']}: RoPE scaling in a GGUF file is not read here"
            )
    config = Translated({"architectures": [_CLASSES[arch]], "model_type": arch})
    for key, name in _CONFIG_KEYS.items():
        if f"{arch}.{key}" not in meta:
            if key in _OPTIONAL:
                config[name] = _OPTIONAL[key](config)
                config.notes += (
                    f"{arch}.{key} is not in the file: {config[name]:g}, the GGUF format's default",
                )
                continue
            raise ValueError(
                f"{file.path}: the metadata lack {arch}.{key} ({name}): a config cannot be built from it"
            )
        config[name] = meta[f"{arch}.{key}"]
        if name in _USED_HERE and (type(config[name]) is not int or config[name] < 1):
            raise ValueError(
                f"{file.path}: {arch}.{key} = {json.dumps(config[name]):.60}: expected a whole number of at least 1"
            )
    heads = config["num_attention_heads"]
    config["head_dim"] = meta.get(f"{arch}.attention.key_length", config["hidden_size"] // heads)
    rotated = meta.get(f"{arch}.rope.dimension_count", config["head_dim"])
    if rotated != config["head_dim"]:
        raise ValueError(
            f"{file.path}: rope.dimension_count = {rotated}, head_dim = {config['head_dim']}: partial rotary is not read here"
        )
    config["vocab_size"] = (
        file.shape("token_embd.weight")[0] if "token_embd.weight" in file else meta.get(f"{arch}.vocab_size")
    )
    config["hidden_act"] = "silu"
    config["mlp_bias"] = False
    config["attention_bias"] = arch == "llama" and "blk.0.attn_q.bias" in file
    config["tie_word_embeddings"] = "output.weight" not in file
    for name in ("bos", "eos", "padding"):
        if f"tokenizer.ggml.{name}_token_id" in meta:
            config[name.replace("padding", "pad") + "_token_id"] = meta[f"tokenizer.ggml.{name}_token_id"]
    return config
