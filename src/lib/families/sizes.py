"""The sizes that the class of a text model has, where a NESTED file leaves them out. Data, no code.

A text_config may say no more than what differs from its class; a flat file that lacks a size is refused. Values: the defaults
of the configuration classes of transformers 5.24, under the names of config_file.SPELLINGS or the field's own.
"""

# fmt: off
SIZES = {
    "apertus1p5_text": {"V": 266752, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 14336},
    "aria_text": {
        "V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 4096, "experts": 8, "active": 2,
        "moe_num_shared_experts": 2,
    },
    "cohere": {"V": 256000, "d": 8192, "n_layers": 40, "n_heads": 64, "d_ff": 22528},
    "cohere2": {"V": 256000, "d": 8192, "n_layers": 40, "n_heads": 64, "d_ff": 22528},
    "deepseek_v2": {
        "V": 102400, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008, "experts": 64,
        "first_k_dense_replace": 0, "kv_lora_rank": 512, "q_lora_rank": 1536, "n_shared_experts": 2,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 1407,
    },
    "deepseek_v3": {
        "V": 129280, "d": 7168, "n_layers": 61, "n_heads": 128, "d_ff": 18432, "experts": 256, "active": 8,
        "moe_intermediate_size": 2048, "n_shared_experts": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "first_k_dense_replace": 3,
    },
    "deepseek_v32": {
        "V": 129280, "d": 7168, "n_layers": 61, "n_heads": 128, "d_ff": 18432, "experts": 256, "active": 8,
        "moe_intermediate_size": 2048, "n_shared_experts": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "index_topk": 2048,
        "index_head_dim": 128, "index_n_heads": 64, "first_k_dense_replace": 3,
    },
    "emu3_text_model": {"V": 184622, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_ff": 14336},
    "ernie4_5": {"V": 103424, "d": 1024, "n_layers": 18, "n_heads": 16, "n_kv_heads": 2, "d_ff": 3072},
    "falcon": {"V": 65024, "d": 4544, "n_layers": 32, "n_heads": 71},
    "gemma": {"V": 256000, "d": 3072, "n_layers": 28, "n_heads": 16, "n_kv_heads": 16, "d_ff": 24576},
    "gemma2": {"V": 256000, "d": 2304, "n_layers": 26, "n_heads": 8, "n_kv_heads": 4, "d_ff": 9216},
    "gemma3_text": {"V": 262208, "d": 2304, "n_layers": 26, "n_heads": 8, "n_kv_heads": 4, "d_ff": 9216},
    "gemma4_text": {
        "V": 262144, "d": 2304, "n_layers": 30, "n_heads": 8, "n_kv_heads": 4, "d_ff": 9216,
        "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
    },
    "glm": {"V": 151552, "d": 4096, "n_layers": 40, "n_heads": 32, "n_kv_heads": 2, "d_ff": 13696},
    "glm4": {"V": 151552, "d": 4096, "n_layers": 40, "n_heads": 32, "n_kv_heads": 2, "d_ff": 13696},
    "glm4_moe": {
        "V": 151552, "d": 4096, "n_layers": 46, "n_heads": 96, "n_kv_heads": 8, "d_ff": 10944, "experts": 128,
        "active": 8, "moe_intermediate_size": 1408, "n_shared_experts": 1, "first_k_dense_replace": 1,
    },
    "glm4_moe_lite": {
        "V": 154880, "d": 2048, "n_layers": 47, "n_heads": 20, "d_ff": 10240, "experts": 64, "active": 4,
        "moe_intermediate_size": 1536, "n_shared_experts": 1, "kv_lora_rank": 512, "q_lora_rank": 768,
        "v_head_dim": 256, "qk_nope_head_dim": 192,
    },
    "gpt2": {"V": 50257, "d": 768, "n_layers": 12, "n_heads": 12},
    "gpt_bigcode": {"V": 50257, "d": 768, "n_layers": 12, "n_heads": 12},
    "gpt_neox": {"V": 50432, "d": 6144, "n_layers": 44, "n_heads": 64, "d_ff": 24576},
    "gpt_oss": {
        "V": 201088, "d": 2880, "n_layers": 36, "n_heads": 64, "n_kv_heads": 8, "d_ff": 2880, "experts": 128,
        "active": 4,
    },
    "granite": {"V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008},
    "granitemoe": {"V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008, "experts": 8, "active": 2},
    "hunyuan_v1_dense": {"V": 290943, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008},
    "llama": {"V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008},
    "llama4_text": {
        "V": 202048, "d": 5120, "n_layers": 48, "n_heads": 40, "n_kv_heads": 8, "d_ff": 8192, "experts": 16,
        "active": 1, "intermediate_size_mlp": 16384,
    },
    "minimax_m2": {
        "V": 200064, "d": 3072, "n_layers": 62, "n_heads": 48, "n_kv_heads": 8, "d_ff": 1536, "experts": 256,
        "active": 8,
    },
    "ministral": {"V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_ff": 14336},
    "mistral": {"V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_ff": 14336},
    "mixtral": {
        "V": 32000, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_ff": 14336, "experts": 8,
        "active": 2,
    },
    "nemotron": {"V": 256000, "d": 6144, "n_layers": 32, "n_heads": 48, "d_ff": 24576},
    "nemotron_h": {
        "V": 131072, "d": 4096, "n_heads": 32, "n_kv_heads": 8, "d_ff": 21504, "experts": 8, "active": 2,
        "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4,
        "n_shared_experts": 1, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
    },
    "olmo": {"V": 50304, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008},
    "olmo2": {"V": 50304, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008},
    "olmo3": {"V": 50304, "d": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11008},
    "phi": {"V": 51200, "d": 2048, "n_layers": 24, "n_heads": 32, "d_ff": 8192},
    "phi3": {"V": 32064, "d": 3072, "n_layers": 32, "n_heads": 32, "d_ff": 8192},
    "qwen2": {"V": 151936, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "d_ff": 22016},
    "qwen2_5_omni_text": {"V": 152064, "d": 3584, "n_layers": 28, "n_heads": 28, "n_kv_heads": 4, "d_ff": 18944},
    "qwen2_5_vl_text": {"V": 152064, "d": 8192, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "d_ff": 29568},
    "qwen2_moe": {
        "V": 151936, "d": 2048, "n_layers": 24, "n_heads": 16, "n_kv_heads": 16, "d_ff": 5632, "experts": 60,
        "active": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
    },
    "qwen2_vl_text": {"V": 152064, "d": 8192, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "d_ff": 29568},
    "qwen3": {"V": 151936, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "d_ff": 22016},
    "qwen3_5_moe_text": {
        "V": 248320, "d": 2048, "n_layers": 40, "n_heads": 16, "n_kv_heads": 2, "head_dim": 256, "experts": 256,
        "active": 8, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    "qwen3_5_text": {
        "V": 248320, "d": 4096, "n_layers": 32, "n_heads": 16, "n_kv_heads": 4, "head_dim": 256, "d_ff": 12288,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    },
    "qwen3_moe": {
        "V": 151936, "d": 2048, "n_layers": 24, "n_heads": 32, "n_kv_heads": 4, "d_ff": 6144, "experts": 128,
        "active": 8, "moe_intermediate_size": 768,
    },
    "qwen3_next": {
        "V": 151936, "d": 2048, "n_layers": 48, "n_heads": 16, "n_kv_heads": 2, "d_ff": 5632, "experts": 512,
        "active": 10, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    "qwen3_vl_moe_text": {
        "V": 151936, "d": 2048, "n_layers": 24, "n_heads": 16, "n_kv_heads": 16, "d_ff": 5632, "experts": 60,
        "active": 4, "moe_intermediate_size": 1408,
    },
    "qwen3_vl_text": {"V": 151936, "d": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "d_ff": 22016},
    "seed_oss": {"V": 155136, "d": 4096, "n_layers": 64, "n_heads": 80, "n_kv_heads": 8, "d_ff": 27648},
    "smollm3": {"V": 128256, "d": 2048, "n_layers": 36, "n_heads": 16, "n_kv_heads": 4, "d_ff": 11008},
    "starcoder2": {"V": 49152, "d": 3072, "n_layers": 30, "n_heads": 24, "n_kv_heads": 2, "d_ff": 12288},
}
