"""A wall of published wrong numbers: each with the formula that gives it, and the right one. Facts and references, no wording.

`WALL` lists them; `Wrong.said` and `Wrong.right` are computed when asked for. No torch here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from book import configs
from lib.arithmetic import kv_bytes, kv_cache_bytes, mla_cache_bytes, parameters
from lib.families import read_config


@dataclass(frozen=True)
class Wrong:
    """A published number of something, the mistake behind it, and where it stood."""

    key: str
    what: str
    mistake: str
    source: str
    wrong: Callable
    truth: Callable

    @property
    def said(self):
        return self.wrong()

    @property
    def right(self):
        return self.truth()


def _cfg(name):
    return read_config(configs.path(name))


def _tied_twice(name):
    cfg = _cfg(name)
    return parameters(cfg).total + cfg.V * cfg.d


WALL = (
    Wrong("a", "Llama-2-7B, bytes per token, fp16", "2 L h d 4 / 8: the width once for each head", "jranaraki/vllm-fit#2",
          lambda: 2 * 32 * 32 * 4096 * 4 // 8, lambda: kv_bytes(_cfg("llama-2-7b"), 1)),
    Wrong("b", "Mistral-Small-24B, bytes per token", "head_dim taken as d / h", "NVIDIA/Model-Optimizer#2482",
          lambda: kv_cache_bytes(40, 8, 5120 // 32), lambda: kv_bytes(_cfg("mistral-small-24b-2501"), 1)),
    Wrong("c", "gpt-oss-20b, bytes per token", "head_dim taken as d / h", "NVIDIA/Model-Optimizer#2482",
          lambda: kv_cache_bytes(24, 8, 2880 // 64), lambda: kv_bytes(_cfg("gpt-oss-20b"), 1)),
    Wrong("d", "DeepSeek-V3, bytes per token", "two latents, no rope key", "LMCache/LMCache#694",
          lambda: 2 * 61 * 512 * 2, lambda: mla_cache_bytes(61, 512, 64)),
    Wrong("e", "DeepSeek-V3, bytes per token", "the GQA formula, d / h = 56", "NVIDIA/TensorRT-LLM#16707",
          lambda: kv_cache_bytes(61, 128, 7168 // 128), lambda: mla_cache_bytes(61, 512, 64)),
    Wrong("f", "Llama-3.2-1B, parameters", "the tied matrix counted twice", "rasbt/LLMs-from-scratch#822",
          lambda: _tied_twice("llama-3.2-1b"), lambda: parameters(_cfg("llama-3.2-1b")).total),
)  # fmt: skip
