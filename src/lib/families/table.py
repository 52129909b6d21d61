"""What a config.json does not say: one row per model_type, in `tables` by kind; here what concerns all of them. Data, no code.

A row holds the spellings, class defaults and constants of a family, read from its published modelling code. A class default
that a file leaves out is used and reported; a constant (QK-norm, where norms stand, hidden biases) is in no file at all.
"""

from .tables.classic import CLASSIC
from .tables.dense import DENSE
from .tables.hybrid import HYBRID
from .tables.mla import MLA
from .tables.moe import MOE

FAMILIES = CLASSIC | DENSE | MOE | MLA | HYBRID

_words = str.split

# ---- fields that change no number here: ids, dropout, initialisation, training, serving
HARMLESS = frozenset(
    _words(
        """_name_or_path _attn_implementation_autoset add_classification_head apply_query_key_layer_scaling
        architectures attention_softmax_in_fp32 attn_implementation auto_map aux_loss_alpha bias_dropout_fusion
        cache_implementation chunk_size_feed_forward do_sample dtype ep_size fp32_residual_connection id2label
        initializer_range is_decoder is_encoder_decoder is_llama_config label2id max_window_layers mlp_only_layers
        model_max_length model_type moe_shared_expert_overlap mtp_layers_block_type mtp_transformer_layers n_group
        norm_topk_prob num_logits_to_keep num_mtp_modules num_nextn_predict_layers output_attentions
        output_hidden_states output_router_logits pretraining_tp problem_type rescale_prenorm_residual
        residual_in_fp32 return_dict return_dict_in_generate reorder_and_upcast_attn routed_scaling_factor
        router_jitter_noise scale_attention_softmax_in_fp32 scoring_func seq_aux shared_moe_mode task_specific_params
        tie_encoder_decoder tokenizer_class topk_group topk_method torch_dtype torchscript transformers_version
        unsloth_fixed unsloth_version use_bfloat16 use_cache use_mtp use_routing_bias use_rotary_pos_emb original_rope
        runner_max_sequence_length quantization quantization_config mlp_type norm_type gradient_checkpointing
        max_length temperature top_k top_p repetition_penalty pruned_heads finetuning_task prefix"""
    )
)
HARMLESS_ENDINGS = ("_token_id", "_token_index", "dropout", "_pdrop", "_loss_coef", "_token_ids")
HARMLESS_STARTS = ("summary_",)
# features that a class does not have: false says so, true is reported
HARMLESS_OFF = frozenset(
    _words("attention_bias mlp_bias use_bias qkv_bias use_mrope use_qk_norm tie_lm_head")
)

# a nested text model without a model_type of its own: outer model_type -> inner
NESTED = {
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "mistral3": "mistral",
    "llava": "llama",
}
