"""The border where other people's tensor names, files and row layouts are known. Nothing here unpickles.

A checkpoint is a Hugging Face folder (config.json and safetensors) or a GGUF file. Everything is checked from the headers
(files, names, shapes, dtypes) before the first number is read: a model is loaded whole or not at all.
"""

import re
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from lib.checkpoint import DTYPES, PICKLES, Folder, read_json
from lib.config import MLA
from lib.families import read_config
from lib.gguf_file import GGUFFile, gguf_tokenizer, hf_config
from lib.model import LlamaStyleLM
from lib.real_model import find_model  # noqa: F401  where it lies; part of this subject
from lib.rope import permute_heads

# Our module -> its Hugging Face name. A tuple (name, part, order) is a share of a fused tensor.
OUTSIDE = {"emb": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
LAYER = {
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
    "attn.wo": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "ffn.w_gate": "mlp.gate_proj",
    "ffn.w_up": "mlp.up_proj",
    "ffn.w_down": "mlp.down_proj",
}
LATENT = {
    "attn.wq": "self_attn.q_proj",
    "attn.wq_a": "self_attn.q_a_proj",
    "attn.q_norm": "self_attn.q_a_layernorm",
    "attn.wq_b": "self_attn.q_b_proj",
    "attn.wkv_a": "self_attn.kv_a_proj_with_mqa",
    "attn.kv_norm": "self_attn.kv_a_layernorm",
    "attn.wkv_b": "self_attn.kv_b_proj",
}
# HF's post_attention_layernorm is the norm BEFORE the feed-forward in a pre-norm model and the one AFTER attention in the others.
NORMS = {
    "pre": {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    "post": {"attn_post_norm": "post_attention_layernorm", "ffn_post_norm": "post_feedforward_layernorm"},
    "sandwich": {
        "attn_norm": "input_layernorm",
        "attn_post_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "ffn_post_norm": "post_feedforward_layernorm",
    },
}
_FUSED = {
    "attn.wq": ("self_attn.qkv_proj", 0, "flat"),
    "attn.wk": ("self_attn.qkv_proj", 1, "flat"),
    "attn.wv": ("self_attn.qkv_proj", 2, "flat"),
    "ffn.w_gate": ("mlp.gate_up_proj", 0, "flat"),
    "ffn.w_up": ("mlp.gate_up_proj", 1, "flat"),
}
# model_type -> what differs from the tables above
MODEL_TYPES = {
    **{name: {} for name in ("llama", "mistral", "qwen2", "qwen3", "smollm3", "ernie4_5")},
    **{name: {} for name in ("olmo2", "olmo3", "gemma", "gemma3_text", "deepseek_v2", "deepseek_v3")},
    "phi3": _FUSED,
    "starcoder2": {"ffn.w_up": "mlp.c_fc", "ffn.w_down": "mlp.c_proj"},
}
# GGUF's names -> Hugging Face's, inside "blk.{i}." and outside
GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GGUF_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
GGUF_ADJACENT = ("llama",)  # architectures whose q and k rows GGUF stores in the adjacent-pair layout
HARMLESS = re.compile(r"\.rotary_emb\.inv_freq$")  # computed from the config; older files carry it along


def split_rows(w, sizes, order="flat", n_groups=1):
    """The parts of a fused tensor, each with `sizes` rows: q, k, v of one matrix, or gate and up.

    order "flat": all of q, then all of k, then all of v (Phi-3). "grouped": n_groups groups of rows, each with its share of
    q, k and v (NeoX: a group a head; Falcon, InternLM2: a group a KV head). The shapes do not tell the two apart.
    Raises: ValueError if the sizes do not fill the rows, or do not divide into the groups.
    """
    if sum(sizes) != w.shape[0]:
        raise ValueError(
            f"a fused tensor of {w.shape[0]} rows is to be split into {list(sizes)}, which fill {sum(sizes)}"
        )
    if order == "flat":
        return w.split(list(sizes))
    if order != "grouped" or any(size % n_groups for size in sizes):
        raise ValueError(
            f"order {order!r} with {n_groups} groups for {list(sizes)} rows: expected 'flat', or 'grouped' and sizes that divide"
        )
    shares = w.unflatten(0, (n_groups, -1)).split([size // n_groups for size in sizes], dim=1)
    return tuple(share.flatten(0, 1) for share in shares)


class GGUFSource:
    """A GGUF file under Hugging Face names, q and k in the half layout: the same block runs it."""

    def __init__(self, file):
        self.file, self.path = file, file.path
        self.config = hf_config(file)
        self._theirs = {self._rename(name): name for name in file}
        heads = {"q_proj": self.config["num_attention_heads"], "k_proj": self.config["num_key_value_heads"]}
        self._permuted = heads if self.config["model_type"] in GGUF_ADJACENT else {}

    def _rename(self, name):
        stem, _, suffix = name.rpartition(".")
        if stem in GGUF_OUTSIDE:
            return f"{GGUF_OUTSIDE[stem]}.{suffix}"
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        if match and match[2] in GGUF_LAYER:
            return f"model.layers.{match[1]}.{GGUF_LAYER[match[2]]}.{suffix}"
        return name  # unknown: `load_model` will say so

    def __iter__(self):
        return iter(self._theirs)

    def shape(self, name):
        return self.file.shape(self._theirs[name])

    def dtype(self, name):
        return torch.float32  # what dequantising gives

    def read(self, name, dtype=None, device=None):
        w = self.file[self._theirs[name]]
        n_heads = self._permuted.get(name.split(".")[-2])
        if n_heads:
            w = permute_heads(w, n_heads, to="half")
        return w.to(device=device, dtype=dtype)


def _source(path):
    """(source of tensors, ModelConfig) of a path. Raises as `load_model` does."""
    path = Path(path)
    if path.is_dir():
        return Folder(path), read_config(path)
    if path.suffix.lower() in PICKLES:
        raise ValueError(f"{path}: a pickle can run code and is never loaded; convert it to safetensors")
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such model; expected a Hugging Face folder or a .gguf file (`make model` fetches one)"
        )
    if path.suffix == ".safetensors":
        raise ValueError(
            f"{path}: give the folder, not the file: the config.json beside it says what the tensors are"
        )
    source = GGUFSource(GGUFFile(path))
    return source, read_config(source.config)


def hf_name(name, config):
    """Where a parameter of our model lies in a checkpoint: (tensor name, part, order), part None = the whole tensor."""
    stem, _, suffix = name.rpartition(".")
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)", stem)
    if not block:
        return f"{OUTSIDE[stem]}.{suffix}", None, None
    layer = config.layers[int(block[1])]
    table = (
        LAYER
        | (LATENT if isinstance(layer.attention, MLA) else {})
        | NORMS[layer.norms]
        | MODEL_TYPES[config.model_type]
    )
    theirs = table[block[2]]
    theirs, part, order = theirs if isinstance(theirs, tuple) else (theirs, None, None)
    return f"model.layers.{block[1]}.{theirs}.{suffix}", part, order


class _Plan:
    """Which stored tensor fills which parameter. Made and checked from headers alone."""

    def __init__(self, model, source):
        self.model, self.source, config = model, source, model.config
        if config.model_type not in MODEL_TYPES:
            raise ValueError(
                f"{source.path}: the tensor names of model_type {config.model_type!r} are not known here; known: {', '.join(MODEL_TYPES)}"
            )
        fills = {
            name: hf_name(name, config) for name, _ in model.named_parameters()
        }  # a tied head appears once, as emb
        groups = {}
        for name, (theirs, part, _) in fills.items():
            groups.setdefault(theirs, []).append((part, name))
        self.groups = {
            theirs: [name for _, name in sorted(parts, key=lambda p: p[0] or 0)]
            for theirs, parts in groups.items()
        }
        self.orders = {theirs: order for theirs, _, order in fills.values()}
        self._check_names(config)
        for theirs, names in self.groups.items():
            self._check_shape(theirs, names)

    def _check_names(self, config):
        there = {name for name in self.source if not HARMLESS.search(name)}
        missing = [name for name in self.groups if name not in there]
        if missing:
            hint = ""
            if missing == ["lm_head.weight"]:
                hint = "; the config does not tie the head to the embedding (tie_word_embeddings)"
            raise ValueError(
                f"{self.source.path}: {len(missing)} tensors are missing, first {missing[0]!r}{hint}"
            )
        extra = sorted(there - self.groups.keys())
        self.second_head = config.tied and extra == [
            "lm_head.weight"
        ]  # some files store the tied matrix twice
        if extra and not self.second_head:
            raise ValueError(
                f"{self.source.path}: {len(extra)} tensors that a {config.model_type} of this config does not have, first {extra[0]!r}:"
                " wrong config.json, or a feature that the block does not run"
            )

    def _check_shape(self, theirs, names):
        shapes = [tuple(self.model.get_parameter(name).shape) for name in names]
        want = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        if self.source.shape(theirs) != want:
            raise ValueError(
                f"{self.source.path}: {theirs} has shape {list(self.source.shape(theirs))}, expected {list(want)} from the config"
                f" ({', '.join(names)}, rows are outputs)"
            )
        self.source.dtype(theirs)  # raises for a quantised one

    def fill(self, dtype, device):
        """Read every tensor once and put it in place; ties stay ties."""
        if self.second_head and not torch.equal(
            self.source.read("lm_head.weight"), self.source.read("model.embed_tokens.weight")
        ):
            raise ValueError(
                f"{self.source.path}: the config ties the head, and lm_head.weight is not the embedding: wrong config"
            )
        new = {}
        for theirs, names in self.groups.items():
            w = self.source.read(theirs, dtype, device)
            parts = [w]
            if len(names) > 1:
                parts = split_rows(
                    w, [self.model.get_parameter(name).shape[0] for name in names], self.orders[theirs]
                )
            for name, part in zip(names, parts):
                new[id(self.model.get_parameter(name))] = nn.Parameter(part, requires_grad=False)
        for name, old in list(self.model.named_parameters(remove_duplicate=False)):
            owner, _, leaf = name.rpartition(".")
            setattr(self.model.get_submodule(owner), leaf, new[id(old)])
        return self.model


class _Unset(TorchFunctionMode):
    """Skips the random start of new parameters, which on the meta device would first import two seconds of torch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def load_model(path, dtype=None, device=None):
    """A Hugging Face folder (config.json, safetensors) or a GGUF file -> LlamaStyleLM, ready to run.

    dtype None = as stored (float32 for GGUF, which is dequantised); device None = the CPU. Where both are the stored ones
    the weights stay memory-mapped: nothing is copied. The model is in eval mode and its parameters ask for no gradient
    (`model.requires_grad_()` changes that). A GGUF file's adjacent q and k rows are permuted to the half layout.
    Raises: FileNotFoundError; ValueError for a corrupt or truncated file, pickled weights, an unknown architecture, a
    feature that the block does not run, a tensor that is missing, not expected or of the wrong shape. Nothing is half-loaded.
    """
    device = _device(device)
    if dtype is not None and dtype not in DTYPES.values():
        names = ", ".join(map(str, DTYPES.values()))
        raise ValueError(f"dtype = {dtype!r}: expected None (as stored) or a floating-point type, {names}")
    source, config = _source(path)
    with _Unset():
        model = LlamaStyleLM.from_config(config, device="meta")
    plan = _Plan(model, source)
    dtype = dtype or source.dtype("model.embed_tokens.weight")
    return plan.fill(dtype, device).eval()


def _device(name):
    try:
        return torch.empty(0, device=name or "cpu").device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device = {str(name)!r}: this machine and this build of torch do not have it ({reason})"
        ) from None


def open_gguf(path):
    """A GGUF file, its tensors read one at a time: file.keys(), file["blk.0.attn_q.weight"], file.metadata, file.config.

    See `lib.gguf_file.GGUFFile`. Rows come as stored: for a llama, q and k in the adjacent-pair layout.
    """
    return GGUFFile(path)


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
        return Tokenizer.from_file(str(file)) if path.is_dir() else gguf_tokenizer(GGUFFile(file))
    except (ValueError, OSError):
        raise
    except Exception as error:  # noqa: BLE001  the tokenizers package raises nothing narrower
        raise ValueError(
            f"{file}: not a tokenizer that can be read ({error}): damaged, or of another version"
        ) from None
