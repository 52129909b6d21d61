"""The modern transformer block: a small reference implementation.

Every public name is importable from here and is loaded when first used, so that the arithmetic side never loads torch.
"""

import importlib

_HOME = {
    "config": "Scaling Rope GQA MLA Dense MoE Counted Norm Layer ModelConfig llama_style",
    "families": "read_config",
    "frequencies": "inv_freq wavelengths rope_attention_factor yarn_mscale yarn_range",
    "arithmetic": "swiglu_width kv_cache_bytes mla_cache_bytes Parameters parameters kv_elements_per_token"
    " kv_bytes_per_token kv_bytes kv_bytes_per_gpu state_elements extra_kv_elements_per_token sequence_bytes"
    " naive_kv_elements_per_token flops_per_token prefill_flops weight_bytes_per_step decode_bytes"
    " arithmetic_intensity decode_seconds decode_tokens_per_second users_per_device longest_context"
    " format_bytes format_bytes_decimal format_count",
    "norms": "rms_norm layer_norm RMSNorm LayerNorm make_norm",
    "ffn": "swiglu SwiGLU GELUMLP",
    "rope": "rope_cache rope_table apply_rope layout_permutation permute_heads",
    "cache": "KVCache LatentCache ModelCache",
    "attention": "attend causal_mask repeat_kv GQAttention",
    "mla": "MLAttention",
    "model": "Block LlamaStyleLM",
    "gpt2": "GPT2Block GPT2LM",
    "decoding": "generate chat_prompt",
    "fast": "fast_decode",
    "static": "StaticDecode",
    "compiled": "compile_decode",
    "files.weights": "load_model open_gguf",
    "files.real_model": "find_model",
    "files.tokenizers": "load_tokenizer",
}
_WHERE = {name: module for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_WHERE)  # noqa: PLE0605 - one list of names, above


def __getattr__(name):
    if name in _HOME:
        return importlib.import_module(f"lib.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'lib' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"lib.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return __all__
