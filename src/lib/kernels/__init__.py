"""The block's functions as Triton kernels: the same names and contracts as the pure functions, forward only.

    lib.kernels.use(model, "triton")                        the switch: the whole model through these kernels
    attend(q, k, v, implementation="triton")                one function
    lib.kernels.norms.rms_norm(x, weight)                   the kernel itself

They run on CUDA, and on the CPU in Triton's interpreter: set TRITON_INTERPRET=1 BEFORE Triton is imported, for the process
(a process that interprets cannot compile, and the other way round). float32, bfloat16 and float16; sums in float32.

norms     rms_norm, add_rms_norm           one read of x, the sum of squares and the result in one program per row
ffn       silu_mul, swiglu                 silu(gate) * up without the tensor between
rope      apply_rope                       both layouts; a row of the table serves all heads
attention attend: which of the next three takes a call
decode    attend for one query             split over the keys, then reduced; K and V read once per KV head
latent    attend_latent                    MLA, absorbed: one read of the latent is key and value
prefill   attend for many queries          the online softmax
launch    what all of them check           counting: bytes per pointer; compiled: cubins without a GPU; cards, costs: no torch
"""

import importlib.util
import os


def missing():
    """One sentence that says why the kernels cannot run here, or None."""
    if importlib.util.find_spec("triton") is None:
        return (
            "Triton is not installed here: the kernels need it, and it exists for Linux on x86-64"
            " (make setup installs it there, 0.7 GB on disk)."
        )
    return None


def interpreted():
    """Whether this process runs kernels in Triton's interpreter (TRITON_INTERPRET=1)."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes")


def use(model, implementation="triton"):
    """Every module of `model` that has a choice takes `implementation` ("triton", "sdpa", "explicit"); returns the model.

    Raises: ValueError for another name or where no module has a choice; RuntimeError with one sentence without Triton.
    """
    if implementation not in ("triton", "sdpa", "explicit"):
        raise ValueError(f"implementation {implementation!r}: expected 'triton', 'sdpa' or 'explicit'")
    if implementation == "triton" and (why := missing()):
        raise RuntimeError(why)
    chosen = [m for m in model.modules() if hasattr(m, "implementation")]
    if not chosen:
        raise ValueError(
            f"{type(model).__name__} has no module with an implementation: is it a LlamaStyleLM?"
        )
    for module in chosen:
        module.implementation = implementation
    return model
