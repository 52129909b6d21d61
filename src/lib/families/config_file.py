"""Other people's config.json as a checked dictionary: where it comes from, and typed access that names the field at fault.

Every value is taken through `Fields`, so that a wrong type is an error that says which field, a missing one is the class
default that the family really has (and is reported), and a field that nobody asked for can be listed.
"""

import json
from math import isfinite
from pathlib import Path

from ..config import LARGEST

LARGEST_FILE = 10_000_000  # bytes; the largest published config.json is far below one million
MOST_LAYERS = 10_000

# canonical name -> the spellings that mean the same in every family (a family row may replace its list)
SPELLINGS = {
    "V": ("vocab_size",),
    "d": ("hidden_size", "n_embd", "d_model"),
    "n_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "n_heads": ("num_attention_heads", "n_head", "n_heads"),
    "n_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "d_ff": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "max_len": ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "n_ctx"),
    "eps": (
        "rms_norm_eps",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "layernorm_epsilon",
        "norm_epsilon",
        "norm_eps",
    ),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "activation"),
    "tied": ("tie_word_embeddings",),
    "base": ("rope_theta", "rotary_emb_base"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "active": ("num_experts_per_tok", "experts_per_token", "top_k_experts"),
}
_MISSING = object()


def load(source):
    """A path or a dictionary -> the raw dictionary. A folder means its config.json; a GGUF file is translated.

    Raises: FileNotFoundError; ValueError for anything that is not one JSON object of a sensible size.
    """
    if isinstance(source, dict):
        return source
    known = isinstance(source, str | Path)
    if not known:
        raise ValueError(f"read_config got {type(source).__name__}: expected a path or a dictionary")
    path = Path(source)
    if path.is_dir() or path.suffix == ".safetensors":
        folder = path if path.is_dir() else path.parent
        names = ("config.json", "params.json", "adapter_config.json")
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            ggufs = sorted(file.name for file in folder.glob("*.gguf"))
            raise FileNotFoundError(
                f"{folder} has no config.json; give one of its GGUF files: {', '.join(ggufs[:4])}{' ..' * (len(ggufs) > 4)}"
                if ggufs
                else f"{folder} has no config.json: the tensors alone do not say how a model is built"
            )
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; expected a config.json, a model folder or a .gguf file"
        )
    with path.open("rb") as file:
        if file.read(4) == b"GGUF":
            from .gguf_header import GGUFHeader, hf_config

            return hf_config(GGUFHeader(path))
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise ValueError(
            f"{path} has {size:,} bytes: a config.json has a few thousand. Is this a weights file or a tokenizer?"
        )
    return parse(path.read_bytes(), str(path))


def parse(data, where="the text"):
    """Bytes or text of a config.json -> a dictionary. Raises: ValueError that says what is wrong with it."""
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        raw = json.loads(text, object_pairs_hook=_no_contradiction, parse_int=whole_number)
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8 text: expected a config.json") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply for a config.json") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{where} holds a JSON {type(raw).__name__}: expected one object of fields, {{...}}")
    return raw


def whole_number(digits):
    """For json.loads: Python's own refusal of a number of over 4300 digits names neither the number nor the cause."""
    if len(digits) > 1000:
        raise ValueError(
            f"{digits[:20]}... has {len(digits)} digits: not a size of any model; a damaged file?"
        )
    return int(digits)


def _no_contradiction(pairs):
    seen = {}
    for key, value in pairs:
        if key in seen and seen[key] != value:
            raise ValueError(
                f"{key} is given twice, as {show(seen[key])} and {show(value)}: which one is meant?"
            )
        seen[key] = value
    return seen


def show(value):
    """A value short enough for an error message."""
    try:
        text = str(value) if isinstance(value, float) else json.dumps(value, default=str)
    except (RecursionError, ValueError):  # nested without end
        text = f"({type(value).__name__})"
    return text if len(text) <= 60 else text[:57] + "..."


def listed(names, most=12, joint=", "):
    """Names in one line, the first few of many: a file may have a million unknown fields."""
    cut = [name if len(name) <= 60 else name[:57] + "..." for name in names[:most]]
    return joint.join(cut) + (f" and {len(names) - most:,} more" if len(names) > most else "")


class Fields:
    """Typed access to one raw dictionary, for one family. `used`, `defaulted`, `warnings`, `doubts` and `stated()` are what it reports."""

    def __init__(self, raw, model_type, spellings=None, defaults=None):
        self.raw, self.model_type = raw, model_type
        self.spellings = SPELLINGS | (spellings or {})
        self.defaults = defaults or {}
        self.used, self.defaulted, self.warnings, self.doubts = set(), {}, [], []
        self.read = {}  # what was asked for, in order: our name -> (their key, the value in the file)

    def keys(self, name):
        return self.spellings.get(name, (name,))

    def find(self, name):
        """(the key as spelled, its value); null counts as absent. Raises: ValueError where two spellings disagree."""
        keys = self.keys(name)
        self.used.update(keys)
        given = [(key, self.raw[key]) for key in keys if self.raw.get(key) is not None]
        for key, value in given[1:]:
            if value != given[0][1]:
                raise ValueError(
                    f"{given[0][0]} = {show(given[0][1])} and {key} = {show(value)} mean the same and disagree"
                )
        return given[0] if given else (next((k for k in keys if k in self.raw), keys[0]), None)

    def has(self, name):
        return any(self.raw.get(key) is not None for key in self.keys(name))

    def is_null(self, name):
        """Written, and null: many classes read that otherwise than an absent field."""
        return not self.has(name) and any(key in self.raw for key in self.keys(name))

    def _value(self, name, check, expected, default):
        key, value = self.find(name)
        if value is None:
            default = self.defaults.get(name, _MISSING) if default is _MISSING else default
            if default is _MISSING:
                state = "is null" if key in self.raw else "is missing"
                raise ValueError(f"{key} {state}: a {self.model_type} cannot be read without it ({expected})")
            if default is not None:
                self.defaulted[key] = default
            return default
        if not check(value):
            hint = ""
            if isinstance(value, float) and isfinite(value) and value.is_integer() and "whole" in expected:
                hint = f"; write {int(value)} without a decimal point"
            raise ValueError(f"{key} = {show(value)}: expected {expected}{hint}")
        self.read[name] = key, value
        return value

    def size(self, name, default=_MISSING, lowest=1, highest=LARGEST):
        """A whole number: not a float, not a string, not true."""

        def check(value):
            return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest

        return self._value(name, check, f"a whole number from {lowest} to {highest:,}", default)

    def number(self, name, default=_MISSING, highest=1e30, zero=False):
        """A positive finite number; zero: 0 is one too (some fields are switched off by it)."""

        def check(value):
            good = isinstance(value, int | float) and not isinstance(value, bool)
            return good and (0 < value <= highest or zero and value == 0)

        return self._value(name, check, f"a positive number up to {highest:g}", default)

    def flag(self, name, default=_MISSING):
        return self._value(name, lambda value: isinstance(value, bool), "true or false", default)

    def text(self, name, default=_MISSING):
        return self._value(name, lambda value: isinstance(value, str), "a text in quotes", default)

    def table(self, name, default=None):
        return self._value(name, lambda value: isinstance(value, dict), "an object of fields, {...}", default)

    def list(self, name, length=None, allowed=None, default=None):
        """A list, of one entry per layer if `length` is given, each entry one of `allowed` if that is given."""
        value = self._value(name, lambda value: isinstance(value, list), "a list", default)
        if value is None:
            return None
        key = self.find(name)[0]
        if length is not None and len(value) != length:
            raise ValueError(f"{key} has {len(value)} entries: expected one per layer, {length}")
        for entry in value if allowed else ():
            if isinstance(entry, bool | float | list | dict) or entry not in allowed:
                raise ValueError(f"{key} holds {show(entry)}: known are {', '.join(map(str, allowed))}")
        return value

    def layers(self, default=_MISSING):
        return self.size("n_layers", default, highest=MOST_LAYERS)

    def touch(self, *names):
        """These fields are known and change nothing here."""
        for name in names:
            self.used.update(self.keys(name))

    def stated(self):
        """(our name, their key, the value, "file" or "class") of every field that has a value and was asked for."""
        ours = {key: name for name in self.spellings for key in self.keys(name)}
        found = [(name, key, value, "file") for name, (key, value) in self.read.items()]
        return tuple(
            found + [(ours.get(key, key), key, value, "class") for key, value in self.defaulted.items()]
        )

    def warn(self, message, doubt=True):
        """doubt: a number could be another than the file's author meant; not what the file's own class does as well."""
        if message not in self.warnings:
            self.warnings.append(message)
            self.doubts += [message] * doubt

    def child(self, table, prefix):
        """Fields of a nested object; its keys are reported as prefix.key."""
        part = Fields({f"{prefix}.{key}": value for key, value in table.items()}, self.model_type)
        part.read = self.read
        return part
