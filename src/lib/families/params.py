"""params.json, the configuration that Meta's and Mistral's own code reads, as a llama or a mistral.

Sources: ModelArgs and FeedForward of meta-llama/llama and llama3 (model.py); TransformerArgs of mistralai/mistral-inference (args.py).
"""

from ..arithmetic import swiglu_width
from .config_file import show
from .family import Experts, Family
from .standard import standard_layers

_KEYS = {
    "V": ("vocab_size",), "d": ("dim",), "n_layers": ("n_layers",), "n_heads": ("n_heads",), "n_kv_heads": ("n_kv_heads",),
    "head_dim": ("head_dim",), "d_ff": ("hidden_dim",), "max_len": ("max_seq_len",), "eps": ("norm_eps",), "base": ("rope_theta",),
}  # fmt: skip
NOTE = "a params.json: what it leaves out is what the code beside it says, not a config.json's class"
_META = Family(
    keys=_KEYS, defaults={"n_kv_heads": "n_heads", "base": 1e4, "max_len": 2048, "eps": 1e-5, "multiple_of": 256},
    layout="adjacent", build="meta_params",
)  # fmt: skip
_MISTRAL = Family(
    keys=_KEYS,
    defaults={
        "max_len": 128_000
    },  # its code guesses the base from the window, in two ways: a file must say it
    layout="adjacent",
    windows="all",
    build="mistral_params",
)
_COMMON = {
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "vocab_size",
    "norm_eps",
    "rope_theta",
    "max_seq_len",
    "max_batch_size",
}
_FIELDS = {
    "llama": _COMMON | {"multiple_of", "ffn_dim_multiplier", "use_scaled_rope", "rope_scaling_factor"},
    "mistral": _COMMON | {"head_dim", "hidden_dim", "sliding_window", "moe"},
}


def is_params(raw):
    """A params.json and no config.json of Hugging Face's: DistilBERT spells its width `dim` too."""
    return {"dim", "n_layers"} <= raw.keys() and not {
        "hidden_size",
        "architectures",
        "transformers_version",
    } & raw.keys()


def read_params(raw):
    """(fields, model_type, row). Raises: ValueError that names the fields of a block that this form does not have."""
    kind = "mistral" if "hidden_dim" in raw else "llama"
    foreign = sorted(key for key in raw.keys() - _FIELDS[kind] if raw[key] is not None)
    if foreign:
        pairs = ", ".join(f"{key} = {show(raw[key])}" for key in foreign[:8])
        who = {"llama": "Meta's", "mistral": "Mistral's"}[kind]
        raise ValueError(
            f"a params.json with fields that {who} code does not have: {pairs}; another block? Give the config.json of the model"
        )
    if raw.get("vocab_size", -1) == -1:
        raise ValueError(
            "vocab_size = -1: Meta's code takes it from the tokenizer (32,000 for Llama 1 and 2); write the number"
        )
    if kind == "llama":
        return raw, kind, _META
    moe = raw.get("moe")
    if moe is None:
        return raw, kind, _MISTRAL
    if not isinstance(moe, dict) or set(moe) - {"num_experts", "num_experts_per_tok"}:
        raise ValueError(f"moe = {show(moe)}: expected num_experts and num_experts_per_tok")
    return raw | moe, "mixtral", _MIXTRAL


def meta_params(reader):
    """d_ff is no field: Meta's rule makes it. RoPE's stretch is a constant of the code: its factor is in no field."""
    f = reader.f
    multiplier = f.number("ffn_dim_multiplier", None, highest=1000)
    width = swiglu_width(reader.d, multiplier, f.size("multiple_of"))
    f.touch("use_scaled_rope", "rope_scaling_factor", "max_batch_size")
    if f.flag("use_scaled_rope", False):
        reader.refuse("scaled RoPE whose lengths are constants of Meta's code")
        f.warn(
            "use_scaled_rope = true: the file does not say how far RoPE is stretched, and from which length"
        )
    f.defaulted.pop("use_scaled_rope", None)
    f.raw = f.raw | {"hidden_dim": width}
    return standard_layers(reader)


def mistral_params(reader):
    reader.f.touch("moe", "max_batch_size")
    return standard_layers(reader)


_MIXTRAL = Family(
    keys=_KEYS | {"experts": ("num_experts",)}, defaults=_MISTRAL.defaults, layout="adjacent", windows="all",
    moe=Experts("d_ff"), build="mistral_params",
)  # fmt: skip
