"""Other people's files -> our model. Nothing here unpickles.

A checkpoint is a Hugging Face folder (config.json and safetensors) or a GGUF file. Everything is checked from the headers
(files, names, shapes, dtypes) before the first number is read: a model is loaded whole or not at all.
"""

import re
import warnings
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

from lib.checks import refuse_unsupported
from lib.compiled import compile_decode
from lib.families import read_config
from lib.families.gguf_header import hf_config
from lib.fast import fast_decode
from lib.files.checkpoint import DTYPES, PICKLES, Folder
from lib.files.gguf_file import GGUFFile
from lib.files.plan import Plan, check_claim
from lib.model import LlamaStyleLM
from lib.rope import permute_heads

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
DECODE = {"plain": lambda model: model, "fast": fast_decode, "compiled": compile_decode}
GGUF_ADJACENT = ("llama",)  # architectures whose q and k rows GGUF stores in the adjacent-pair layout


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


class _Unset(TorchFunctionMode):
    """Skips the random start of new parameters, which on the meta device would first import two seconds of torch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def load_model(path, dtype=None, device=None, decode="plain"):
    """A Hugging Face folder (config.json, safetensors) or a GGUF file -> LlamaStyleLM, ready to run.

    decode: "plain" is the model as it is read; "fast" (`lib.fast_decode`) and "compiled" (`lib.compile_decode`) give the same logits
    sooner, one token at a time: what they return goes to `generate`, and its `plain` is the LlamaStyleLM.

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
    if decode not in DECODE:
        raise ValueError(f"decode = {decode!r}: expected one of {', '.join(DECODE)}")
    source, config = _source(path)
    for (
        message
    ) in config.doubts:  # whoever runs it should know; a class default is what its own class runs too
        warnings.warn(f"{path}: {message}", stacklevel=2)
    refuse_unsupported(config)
    check_claim(config, source)
    with _Unset():
        model = LlamaStyleLM.from_config(config, device="meta")
    plan = Plan(model, source)
    dtype = dtype or source.dtype("model.embed_tokens.weight")
    return DECODE[decode](plan.fill(dtype, device).eval())


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

    See `lib.files.gguf_file.GGUFFile`. Rows come as stored: for a llama, q and k in the adjacent-pair layout.
    """
    return GGUFFile(path)
