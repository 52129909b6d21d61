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
# no decoder of text alone: what it is instead, and the model_types
OTHERS = {
    "an encoder": """bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta
        roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod""",
    "an encoder-decoder": """bart bigbird_pegasus blenderbot blenderbot-small marian mbart mvp pegasus plbart prophetnet t5
        trocr""",
    "a speech or music model": "moshi moss_transcribe_diarize musicgen musicgen_melody whisper",
}
NOT_DECODERS = {name: kind for kind, names in OTHERS.items() for name in _words(names)}
# decoders without a row, by the feature that is not read here
UNREAD = {
    "blt": "bytes grouped into patches, by three models in one",
    "cohere_compass_text": "pooled embeddings instead of a language head",
    "cpmant": "relative positions over the segments of a prompt",
    "deepseek_v4": "caches of compressed tokens",
    "dory": "layers that run several times",
    "dots3_note_text": "MLA of two sizes, one of them with an indexer",
    "gemma3n_text": "embeddings per layer, alternating updates and shared KV layers",
    "gemma4_assistant": "a draft model that reads another model's cache",
    "gemma4_unified_assistant": "a draft model that reads another model's cache",
    "gemma4_unified_text": "heads of two widths and one embedding for all kinds of input",
    "git": "an image encoder whose output stands before the text",
    "hrm_text": "two stacks of layers that run several times",
    "hunyuan_v1_moe": "layers that share keys and values",
    "inkling2_loop_text": "convolutions and learned relative positions, in layers that run several times",
    "inkling2_text": "convolutions and learned relative positions",
    "inkling_text": "convolutions and learned relative positions",
    "jetmoe": "a mixture of attention heads",
    "longcat_flash": "two attentions in each layer, and experts that only hand their input on",
    "mllama_text_model": "cross-attention to an image",
    "phi4_multimodal": "towers for images and speech in a flat file",
    "qwen4_exp_text": "experimental attention, which the installed transformers does not build by default either",
    "recurrent_gemma": "a gated linear recurrence, whose class keeps its state outside the cache",
    "reformer": "attention by hashing",
    "rwkv": "a recurrence with decaying weights (RWKV)",
    "xlnet": "two-stream attention over permutations",
    "xlstm": "matrix memory cells (xLSTM)",
    "zamba": "one attention block shared by several layers",
    "zamba2": "attention blocks shared by several layers, with adapters",
    "zaya": "attention in a compressed space with convolutions",
}

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
