"""The language part of vision-language models: known blocks whose positions run along several axes. Data, no code."""

from dataclasses import replace

from ..family import QWEN_MOE_FIELDS, Experts, Family, defaults
from .dense import QWEN2

# fmt: off
_AXES = ("RoPE over several axes",)
_QWEN2_VL = replace(
    QWEN2, defaults=defaults(1e6, 32768, 1e-5, sliding_window=4096, max_window_layers=80), refuse={}, always=_AXES,
)

VISION = {
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen2_5_omni_text": replace(
        _QWEN2_VL, defaults=defaults(1e6, 32768, sliding_window=32768, max_window_layers=28), tied=True,
    ),
    "qwen3_vl_text": Family(
        defaults=defaults(5e5, 128000, head_dim=128), bias=("attention_bias", False), qk_norm=True, always=_AXES,
    ),
    "qwen3_vl_moe_text": Family(
        keys=QWEN_MOE_FIELDS, defaults=defaults(5e5, 128000), tied=True, bias=("attention_bias", False),
        qk_norm=True, moe=Experts(where="step"), always=_AXES,
    ),
}
