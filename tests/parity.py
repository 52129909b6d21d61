"""Tiny models of real families, made by transformers, with random gains and biases: what the parity tests compare with.

Sizes are pairwise different and head_dim is not hidden_size / num_attention_heads wherever the family lets it.
"""

import torch
import transformers

COMMON = {
    "vocab_size": 11,
    "hidden_size": 60,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 14,
    "max_position_embeddings": 128,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LATENT = {
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "kv_lora_rank": 18,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 7,
    "first_k_dense_replace": 99,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 10,
    "head_dim": None,
}
DEEPSEEK_YARN = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1 + i / 7 for i in range(7)],
    "long_factor": [2.0 + i for i in range(7)],
    "original_max_position_embeddings": 32,
}

DAMPING, SPREAD = 0.2, 1.5
NULLABLE = ("q_lora_rank", "pad_token_id", "sliding_window")
# name -> (config class, fields over COMMON). One row of the printed table each.
FAMILIES = {
    "Llama 2": ("LlamaConfig", {"num_key_value_heads": 6, "rms_norm_eps": 1e-5}),
    "Llama 3.1 (llama3)": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "Llama 3.2 (tied)": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "Llama + biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "Mistral (window 5)": ("MistralConfig", {"sliding_window": 5}),
    "Qwen2 (q, k, v biases)": ("Qwen2Config", {"head_dim": None, "hidden_size": 84}),
    "Qwen3 (QK-norm)": (
        "Qwen3Config",
        {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "SmolLM3 (NoPE)": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1], "head_dim": None, "hidden_size": 84}),
    "OLMo 2 (post-norm)": ("Olmo2Config", {"head_dim": None, "hidden_size": 84, "rms_norm_eps": 1e-5}),
    "Gemma (1 + w)": ("GemmaConfig", {"num_key_value_heads": 1}),
    "Gemma 3 (two bases)": (
        "Gemma3TextConfig",
        {
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 5,
            "query_pre_attn_scalar": 11,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            },
        },
    ),
    "DeepSeek-V3 (dense)": (
        "DeepseekV3Config",
        {**LATENT, "q_lora_rank": 22, "rope_parameters": DEEPSEEK_YARN, "num_mtp_layers": 0},
    ),
    "DeepSeek-V2 (no q_lora)": (
        "DeepseekV2Config",
        {**LATENT, "q_lora_rank": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "Phi-3 (fused, partial)": (
        "Phi3Config",
        {
            "head_dim": None,
            "hidden_size": 84,
            "sliding_window": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 4 / 7},
        },
    ),
    "Llama + linear": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}},
    ),
    "Llama + yarn": ("LlamaConfig", {"rope_parameters": YARN}),
}
# Scalings whose table depends on the length: compared on one-shot forwards, below and above the trained length.
BY_LENGTH = {
    "Llama + dynamic": (
        "LlamaConfig",
        {
            "max_position_embeddings": 32,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0},
        },
    ),
    "Llama + longrope": ("LlamaConfig", {"rope_parameters": {**LONG, "factor": 4.0}}),
}


def randomise(module, seed=0, spread=SPREAD):
    """Random gains and biases too: transformers starts from ones and zeros, which hide a dropped gain or bias.

    spread: about the standard deviation of the logits: with few tokens to choose from, most top-1 margins are then wider
    than 0.05 and bfloat16's rounding is smaller. What a
    layer adds to the residual stream is damped, as in a trained model: undamped random layers amplify the rounding.
    """
    draw = torch.Generator().manual_seed(seed)
    plus_one = "Gemma" in type(module).__name__
    head = module.get_output_embeddings().weight
    with torch.no_grad():
        for name, p in module.named_parameters():
            x = torch.randn(p.shape, generator=draw)
            damped = DAMPING if ".o_proj." in name or ".down_proj." in name else 1.0
            if p.dim() == 1:
                p.copy_(0.3 * x * damped + (0.0 if plus_one or "bias" in name else 1.0))
            else:
                p.copy_(x * p.shape[-1] ** -0.5 * (spread if p is head else damped))
            p.copy_(p.bfloat16())  # exact in every dtype, as a published checkpoint is
    return module.eval().requires_grad_(False)


def build(kind, fields, seed=0, spread=SPREAD):
    """A transformers model of that config, random, in float32, with its explicit ("eager") attention."""
    given = {
        name: value for name, value in {**COMMON, **fields}.items() if value is not None or name in NULLABLE
    }
    config = getattr(transformers, kind)(**given)
    return randomise(
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"), seed, spread
    )
