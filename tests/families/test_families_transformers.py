"""lib.families against transformers: as many parameters in a small model of every family, and in the block that runs it."""

import dataclasses

import pytest

from lib import arithmetic as a
from lib.config import Dense
from lib.families import read_config
from lib.families.config_file import SPELLINGS
from lib.families.reader import ACTIVATIONS
from lib.families.table import FAMILIES

# ---- against transformers: families whose published files are not here, too

SMALL = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
LATENT = {"kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
GROUPS = {"n_group": 2, "topk_group": 1}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
MAMBA = {"mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 10}
OLD_NAMES = {"vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 32}
HYBRID = ["linear_attention", "moe", "full_attention", "mlp"]
GEMMA_4 = {
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
}
TOYS = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 20},
    "ministral": {"head_dim": 20},
    "mixtral": {"num_local_experts": 6},
    "qwen2": {},
    "qwen2_moe": EXPERTS | {"decoder_sparse_step": 2, "shared_expert_intermediate_size": 24},
    "qwen3": {"head_dim": 20, "tie_word_embeddings": True},
    "qwen3_moe": EXPERTS | {"decoder_sparse_step": 2, "head_dim": 20},
    "qwen3_next": EXPERTS
    | DELTA
    | {"head_dim": 16, "shared_expert_intermediate_size": 28, "mlp_only_layers": [1]},
    "smollm3": {},
    "olmo": {},
    "olmo2": {"attention_bias": True},
    "olmo3": {},
    "gemma": {"head_dim": 20},
    "gemma2": {"head_dim": 20},
    "gemma3_text": {"head_dim": 20},
    "gemma4_text": EXPERTS
    | GEMMA_4
    | {"head_dim": 16, "num_hidden_layers": 6, "enable_moe_block": True, "top_k_experts": 2},
    "phi": {},
    "phi3": {},
    "glm": {"head_dim": 20},
    "glm4": {"head_dim": 20},
    "glm4_moe": ROUTED | {"attention_bias": True, "use_qk_norm": True, "head_dim": 20},
    "glm4_moe_lite": ROUTED | LATENT | {"q_lora_rank": 28},
    "deepseek_v2": ROUTED | LATENT | {"q_lora_rank": None, "first_k_dense_replace": 2},
    "deepseek_v3": ROUTED
    | LATENT
    | GROUPS
    | {"q_lora_rank": 28, "first_k_dense_replace": 5, "attention_bias": True},
    "deepseek_v32": ROUTED | LATENT | GROUPS | {"q_lora_rank": 28, "index_n_heads": 3, "index_head_dim": 14},
    "gpt2": OLD_NAMES,
    "gpt_bigcode": OLD_NAMES,
    "gpt_neox": {"hidden_size": 64},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "cohere": {},
    "cohere2": {},
    "gpt_oss": {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 20},
    "granite": {"attention_multiplier": 0.1, "residual_multiplier": 0.5},
    "granitemoe": {"num_local_experts": 6},
    "hunyuan_v1_dense": {"head_dim": 20},
    "ernie4_5": {"head_dim": 20, "use_bias": True},
    "minimax_m2": {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 20, "rotary_dim": 10},
    "nemotron": {"hidden_size": 64},
    "nemotron_h": ROUTED
    | MAMBA
    | {"layers_block_type": HYBRID, "moe_shared_expert_intermediate_size": 28, "head_dim": 16},
    "seed_oss": {"head_dim": 20},
    "starcoder2": {},
    "qwen2_vl_text": {},
    "qwen2_5_vl_text": {},
    "qwen2_5_omni_text": {},
    "qwen3_vl_text": {"head_dim": 20, "attention_bias": True},
    "qwen3_vl_moe_text": EXPERTS | {"decoder_sparse_step": 2},
    "llama4_text": {
        "intermediate_size_mlp": 90,
        "num_local_experts": 6,
        "head_dim": 16,
        "interleave_moe_layer_step": 2,
    },
}
NOT_IN_TRANSFORMERS = {
    "chatglm",
    "internlm2",
    "kimi_k2",
    "minimax_m1",
    "nemotron-nas",
    "phi-msft",
}  # published with code of their own
NESTED_ONLY = {"emu3_text_model"}  # swept under the name of the whole


def test_every_known_family_is_compared_or_published_with_its_own_code():
    """In small here, or in its default form by the sweep (test_sweep.py)."""
    sweep = set(
        pytest.importorskip("transformers").models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    )
    assert (
        set(TOYS) | NOT_IN_TRANSFORMERS
        <= set(FAMILIES)
        <= set(TOYS) | NOT_IN_TRANSFORMERS | sweep | NESTED_ONLY
    )


def measured(config, tied):
    """Unique parameters of the class that transformers has for a config: on the meta device; a text class gets its head here."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        try:
            model, head = transformers.AutoModelForCausalLM.from_config(config), 0
        except ValueError:  # the language part of a vision-language model
            build = {"qwen2_5_omni_text": "Qwen2_5OmniThinkerTextModel"}.get(config.model_type)
            model = (
                getattr(transformers, build)(config) if build else transformers.AutoModel.from_config(config)
            )
            head = 0 if tied else config.vocab_size * config.hidden_size
        else:
            model.tie_weights()
    unique = {id(parameter): parameter for parameter in model.parameters()}
    return head + sum(parameter.numel() for parameter in unique.values())


@pytest.mark.parametrize("model_type", TOYS)
def test_a_small_model_of_transformers_has_as_many_parameters(model_type):
    transformers = pytest.importorskip("transformers")
    fields = TOYS[model_type] if TOYS[model_type] is OLD_NAMES else SMALL | TOYS[model_type]
    if model_type == "nemotron_h":
        fields = {key: value for key, value in fields.items() if key != "num_hidden_layers"}
    config = transformers.CONFIG_MAPPING[model_type](**fields)
    cfg = read_config(config.to_dict())
    assert a.parameters(cfg).total == measured(config, cfg.tied)


# ---- what the block can run, it runs with the arithmetic's own count

RUNS = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "smollm3",
    "olmo2",
    "olmo3",
    "gemma",
    "gemma3_text",
    "phi3",
    "deepseek_v3",
    "ernie4_5",
)


@pytest.mark.parametrize("model_type", RUNS)
def test_the_built_model_has_the_parameters_of_the_arithmetic(model_type):
    from lib.model import LlamaStyleLM

    transformers = pytest.importorskip("transformers")
    cfg = read_config(transformers.CONFIG_MAPPING[model_type](**SMALL | TOYS[model_type]).to_dict())
    assert cfg.unsupported == ()
    assert not [part for layer in cfg.layers for part in layer.counted]
    assert all(isinstance(layer.ffn, Dense) for layer in cfg.layers)
    model = LlamaStyleLM.from_config(cfg, device="meta")
    unique = {id(parameter): parameter for parameter in model.parameters()}
    assert sum(parameter.numel() for parameter in unique.values()) == a.parameters(cfg).total


# ---- class defaults are those of the class


def first(fields, *names):
    return next((fields[name] for name in names if fields.get(name) is not None), None)


@pytest.mark.parametrize("model_type", TOYS)
def test_class_defaults_are_those_of_transformers(model_type):
    """What a row of the table fills in for a missing field is what the class fills in."""
    transformers = pytest.importorskip("transformers")
    family = FAMILIES[model_type]
    fields = transformers.CONFIG_MAPPING[model_type]().to_dict()
    rope = fields.get("rope_parameters") or {}
    rope = {"full_attention": rope, "sliding_attention": rope} if "rope_theta" in rope else rope
    full, local = rope.get("full_attention", {}), rope.get("sliding_attention", {})
    theirs = {
        "base": full.get("rope_theta"),
        "eps": first(fields, *SPELLINGS["eps"]),
        "max_len": first(fields, *SPELLINGS["max_len"]),
    }
    if model_type == "olmo":
        theirs["eps"] = None  # its LayerNorm has no field for it
    ours = {name: family.defaults.get(name) for name in theirs}
    assert ours == theirs
    assert family.tied == fields.get("tie_word_embeddings", False)  # a text class may leave it to the whole
    if family.local_base is not None:
        assert family.local_base == local["rope_theta"]
    if (
        family.positions == "rope"
        and family.rotary is not None
        and model_type not in ("gemma4_text", "nemotron_h")
    ):
        assert family.rotary == full.get("partial_rotary_factor", 1.0)
    named = ACTIVATIONS[first(fields, *SPELLINGS["activation"], "mlp_hidden_act")]
    assert ACTIVATIONS[family.activation] == named
    if family.switched:  # the class clears a window that is switched off: its own default is the declared one
        declared = {x.name: x.default for x in dataclasses.fields(transformers.CONFIG_MAPPING[model_type])}
        fields |= {"sliding_window": declared["sliding_window"]}
    for name, value in family.defaults.items():
        if name in fields and name not in ("head_dim", "n_kv_heads"):
            assert fields[name] == value, name
    if "head_dim" in family.defaults:
        assert fields["head_dim"] == family.defaults["head_dim"]
    for rule in (family.bias, family.out_bias, family.ffn_bias, family.qk_norm):
        if isinstance(rule, tuple) and rule[0] in fields:
            assert fields[rule[0]] == rule[1], rule[0]
