"""`compile_decode(model)`: one decode step in C++ (decode_step.cpp), compiled once by the machine's own compiler and kept on disk.

It reads the plain model's weights and writes its caches where they lie: nothing is copied, re-laid or fused.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lib.fast import StepModel

SOURCE = Path(__file__).with_name("decode_step.cpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")


def _struct(name, **kinds):
    fields = [(field, kind) for kind, names in kinds.items() for field in names.split()]
    types = {"pointer": ctypes.c_void_p, "whole": ctypes.c_int64, "real": ctypes.c_double}
    return type(name, (ctypes.Structure,), {"_fields_": [(field, types[kind]) for field, kind in fields]})


# The structs of decode_step.cpp, field by field.
Layer = _struct(
    "Layer",
    pointer="attn_norm wq wk wv wo q_norm k_norm ffn_norm w_gate w_up w_down k v cos sin",
    whole="n_heads n_kv_heads head_dim v_head_dim d_ff slots half_turn row_stride adjacent",
    real="scale",
)
Step = _struct(
    "Step",
    pointer="layers emb norm head ids pad logits",
    whole="n_layers batch d V length threads",
    real="eps",
)


def find_compiler():
    """Path of a C++ compiler: $CXX, or one on the PATH. Raises: FileNotFoundError that says how to get one."""
    named = os.environ.get("CXX")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)
    if not found:
        what = (
            f"$CXX is {named!r}, which does not run"
            if named
            else f"none of {', '.join(COMPILERS)} is on the PATH"
        )
        raise FileNotFoundError(
            f"compile_decode needs a C++ compiler: {what}. On Debian and Ubuntu: apt-get install g++;"
            ' without one, decode="fast" stays in PyTorch'
        )
    return found


def cache_folder():
    """Where compiled steps are kept: $XDG_CACHE_HOME (or ~/.cache)/modern-transformer-block."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modern-transformer-block"


def _name(source, compiler):
    """A file name that changes with whatever the machine code depends on: source, flags, compiler, this processor's instructions."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    instructions = next(
        (line for line in lines if line.startswith(("flags", "Features"))), platform.processor()
    )
    text = "\n".join([source.read_text(encoding="utf-8"), *FLAGS, platform.machine(), instructions])
    return f"{source.stem}-{hashlib.sha256(text.encode() + version).hexdigest()[:16]}.so"


def compile_library(source=SOURCE, folder=None):
    """A C++ file as a loaded library; compiled only if `folder` (None: `cache_folder()`) does not have it yet.

    Says on stderr what it costs before it starts. Raises: FileNotFoundError without a compiler, RuntimeError if it fails.
    """
    compiler, folder = find_compiler(), Path(folder or cache_folder())
    library = folder / _name(source, compiler)
    if not library.exists():
        what = f"compiling {source.name} with {Path(compiler).name}"
        print(f"compile_decode: {what}: some 5 seconds, once; kept in {folder}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            fresh = Path(part) / library.name
            call = [compiler, *FLAGS, str(source), "-o", str(fresh)]
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(
                    f"{compiler} could not compile {source.name}: {done.stderr.strip()[-500:]}"
                )
            fresh.replace(library)
    return ctypes.CDLL(str(library))


class CompiledDecode(StepModel):
    """Steps in C++, on the plain model's own weights and caches: nothing is copied."""

    def __init__(self, model, folder=None):
        super().__init__(model)
        library = compile_library(folder=folder)
        for struct, size in ((Layer, library.size_of_layer), (Step, library.size_of_step)):
            size.restype = ctypes.c_int64
            assert size() == ctypes.sizeof(struct), f"{struct.__name__}: decode_step.cpp has other fields"
        self.run = getattr(library, f"step_{str(self.emb.weight.dtype).removeprefix('torch.')}")
        self.held = []  # the tensors behind the pointers
        self.layers = (Layer * len(model.blocks))(*map(self._layer, model.blocks, self.config.layers))
        self.outside = [self._pointer(module.weight) for module in (model.emb, model.norm, model.head)]

    def _pointer(self, tensor):
        tensor = tensor.detach().contiguous()
        self.held.append(tensor)
        return tensor.data_ptr()

    def _layer(self, block, layer):
        a, at, ffn = layer.attention, block.attn, block.ffn
        weights = {
            "attn_norm": block.attn_norm, "ffn_norm": block.ffn_norm, "wq": at.wq, "wk": at.wk, "wv": at.wv, "wo": at.wo,
            "w_gate": ffn.w_gate, "w_up": ffn.w_up, "w_down": ffn.w_down,
        } | ({"q_norm": at.q_norm, "k_norm": at.k_norm} if a.qk_norm else {})  # fmt: skip
        pointers = {name: self._pointer(module.weight) for name, module in weights.items()}
        return Layer(
            **pointers, n_heads=a.n_heads, n_kv_heads=a.n_kv_heads, head_dim=a.head_dim, v_head_dim=a.d_v, d_ff=layer.ffn.d_ff,
            scale=a.head_dim**-0.5 if a.scale is None else a.scale,
            adjacent=a.rope is not None and a.rope.layout == "adjacent",
        )  # fmt: skip

    def _check(self, cache):
        """C++ does not look where it writes. Raises: ValueError for a cache of other shapes or another dtype."""
        for row, layer in zip(self.layers, cache.layers):
            got = layer.k.shape[1], layer.k.shape[3], layer.v.shape[3], layer.k.dtype
            expected = row.n_kv_heads, row.head_dim, row.v_head_dim, self.emb.weight.dtype
            if got != expected:
                raise ValueError(
                    f"a cache of (KV heads, key width, value width, dtype) {got}: this model's is {expected}; another model's cache?"
                )

    def step(self, idx, cache, call):
        self._check(cache)
        tables = self.tables(call)
        for row, layer, kv in zip(self.layers, self.config.layers, cache.layers):
            row.k, row.v, row.slots = kv.k.data_ptr(), kv.v.data_ptr(), kv.slots
            cos, sin = tables[layer.attention]
            if cos is not None:
                row.cos, row.sin, row.half_turn = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]
                row.row_stride = cos.shape[-1] if cos.dim() == 4 else 0
        ids = idx[:, 0].to(torch.int64).contiguous()
        pad = None if call.pad is None else call.pad.contiguous()
        logits = torch.empty(len(ids), 1, self.config.V)
        step = Step(
            ctypes.addressof(self.layers), *self.outside, ids.data_ptr(), None if pad is None else pad.data_ptr(), logits.data_ptr(),
            len(self.layers), len(ids), self.config.d, self.config.V, call.start, torch.get_num_threads(), self.config.norm.eps,
        )  # fmt: skip
        self.run(ctypes.byref(step))
        for kv in cache.layers:
            kv.length += 1
        return logits.to(self.emb.weight.dtype)


def compile_decode(model, folder=None):
    """The same logits, single steps in C++: a model for `generate`, of which `plain` is the model given, unchanged.

    Takes the Llama block (GQA with any RoPE or none, windows, QK-norm per head; pre-norm RMSNorm; SwiGLU; no biases) in float32 and
    bfloat16 on the CPU. float32: equal to the plain path to 1e-5 of the largest logit. bfloat16: to 0.05; activations stay float32
    here, and the plain path rounds each. Calls of several tokens (prefill) are the plain model's own.
    folder: where the compiled code is kept (None: `cache_folder()`). The first call on a machine takes some seconds and says so.
    Raises: ValueError naming what it does not take; FileNotFoundError without a C++ compiler; RuntimeError with its words if it fails.
    """
    return CompiledDecode(model, folder)
