"""Tokenizers from other people's files: a folder's tokenizer.json, or the vocabulary and merges inside a GGUF file."""

from pathlib import Path

from lib.families.gguf_header import GGUFHeader
from lib.files.checkpoint import read_json

_CONTROL = 3  # tokenizer.ggml.token_type of a special token
_DIGITS_APART = ("smollm",)  # byte-level BPE with every digit a token of its own
_PLAIN = ("gpt-2", "gpt2")


def gguf_tokenizer(file):
    """The tokenizer of a GGUF file, from its own vocabulary and merges (byte-level BPE). Raises: ValueError for other kinds."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    meta = file.metadata
    model, split = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if model != "gpt2" or split not in _DIGITS_APART + _PLAIN:
        raise ValueError(
            f"{file.path}: tokenizer {model!r} with splitting {split!r}; known here: byte-level BPE ('gpt2') split as"
            f" {', '.join(_DIGITS_APART + _PLAIN)}. Use the model's own tokenizer.json"
        )
    lists = [meta.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges")]
    if not all(isinstance(x, list) and all(isinstance(y, str) for y in x) for x in lists):
        raise ValueError(f"{file.path}: the metadata lack the lists of tokens and merges: corrupt header")
    tokens, merges = lists[0], [tuple(merge.split(" ", 1)) for merge in lists[1]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split in _DIGITS_APART:
        byte_level = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta.get("tokenizer.ggml.token_type", [])
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k == _CONTROL]
    )
    return tokenizer


def load_tokenizer(path):
    """The tokenizer of a folder (tokenizer.json) or of a GGUF file (its own vocabulary and merges): a `tokenizers.Tokenizer`.

    tokenizer.encode(text).ids, tokenizer.decode(ids). Raises: FileNotFoundError, ValueError.
    """
    from tokenizers import Tokenizer

    path = Path(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if path.is_dir():
        read_json(file)  # a clear error where the file is missing or broken
    try:
        return Tokenizer.from_file(str(file)) if path.is_dir() else gguf_tokenizer(GGUFHeader(file))
    except (ValueError, OSError):
        raise
    except Exception as error:  # noqa: BLE001  the tokenizers package raises nothing narrower
        raise ValueError(
            f"{file}: not a tokenizer that can be read ({error}): damaged, or of another version"
        ) from None
