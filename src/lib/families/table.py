"""What a config.json does not say: one row per model_type, in `tables` by kind; here what concerns all of them. Data, no code.

A row holds the spellings, class defaults and constants of a family, read from its published modelling code. A class default
that a file leaves out is used and reported; a constant (QK-norm, where norms stand, hidden biases) is in no file at all.
"""

from .tables.classic import CLASSIC
from .tables.dense import DENSE
from .tables.hybrid import HYBRID
from .tables.mla import MLA
from .tables.moe import MOE
from .tables.vision import VISION

FAMILIES = CLASSIC | DENSE | MOE | MLA | HYBRID | VISION

_words = str.split

# ---- fields that change no number here: ids, dropout, initialisation, training, serving
HARMLESS = frozenset(
    _words(
        """_name_or_path _attn_implementation_autoset add_classification_head apply_query_key_layer_scaling
        attention_softmax_in_fp32 attn_implementation auto_map aux_loss_alpha bias_dropout_fusion
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

# objects in which a family keeps fields of its own
LIFTED = {"dbrx": ("attn_config", "ffn_config")}

# the name of a whole whose language part has another: the class that its text_config has unless it says otherwise
NESTED = dict(
    pair.split(":")
    for pair in _words(
        """audioflamingo3:qwen2 aya_vision:cohere2 cohere2_vision:cohere2 deepseek_vl:llama deepseek_vl_hybrid:llama
        exaone4_5:exaone4 fast_vlm:qwen2 fun_asr_nano:qwen3 gemma3:gemma3_text gemma3n:gemma3n_text gemma4:gemma4_text
        glm46v:glm4v_text glm4v:glm4v_text glm4v_moe:glm4v_moe_text glmasr:llama got_ocr2:qwen2 granite_speech:granite
        granite_speech_plus:granite idefics2:mistral idefics3:llama internvl:qwen2 janus:llama kimi_k25:deepseek_v3
        lfm2_vl:lfm2 lighton_ocr:qwen3 llama4:llama4_text llava:llama llava_next:llama llava_next_video:llama
        llava_onevision:qwen2 mistral3:mistral mllama:mllama_text_model musicflamingo:qwen2 nemotron_h_omni:nemotron_h
        omniasr:llama ovis2:qwen2 paligemma:gemma perception_lm:llama qianfan_ocr:qwen3 qwen2_5_vl:qwen2_5_vl_text
        qwen2_5_omni_thinker:qwen2_5_omni_text qwen2_audio:qwen2 qwen2_vl:qwen2_vl_text qwen3_5:qwen3_5_text
        qwen3_5_moe:qwen3_5_moe_text qwen3_asr:qwen3 qwen3_omni_moe_thinker:qwen3_omni_moe_text qwen3_vl:qwen3_vl_text
        qwen3_vl_moe:qwen3_vl_moe_text shieldgemma2:gemma3_text smolvlm:llama step3p7:step3p5 vibevoice:qwen2
        vibevoice_asr:qwen2 video_llama_3:qwen2 video_llava:llama vipllava:llama voxtral:llama
        llava_llama:llama llava_mistral:mistral llava_qwen:qwen2"""
    )
)
