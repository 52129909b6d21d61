"""The second set of public faults, those of config files: one test a case. 6 seconds.

tests/data/cases_second.jsonl holds the cases (see tests/data/CASES.md). Where a case says "equal to the meta device", the class of
transformers is built there and counted.
"""

import itertools
import json

import pytest

from case_tools import SECOND, register
from lib import arithmetic as a
from lib.families import read_config
from lib.families.describe import page
from lib.families.implied import as_json
from lib.frequencies import rope_attention_factor
from published import CONFIGS

COVERED, case = register(SECOND)
B = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
     "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip
HEAD, EMBEDDING = 100 * 64, 100 * 64


def read(model_type, **fields):
    return read_config(B | {"model_type": model_type} | fields)


def total(model_type, **fields):
    return a.parameters(read(model_type, **fields)).total


def measured(model_type, **fields):
    """Parameters of the class that transformers has, on the meta device, each once."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.CONFIG_MAPPING[model_type](**fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())


def said(cfg):
    return "\n".join(cfg.warnings)


@case("S2-CFG-01")
def _():
    """A QK-norm that is not run is counted and shown: Cohere's, head by head, and Phi's, which nobody reported."""
    width = 2 * (4 + 2) * 16
    assert total("cohere", use_qk_norm=True) - total("cohere") == width == 192
    assert total("phi", qk_layernorm=True) - total("phi") == 2 * 4 * 16
    for model_type, key, name in (("cohere", "use_qk_norm", "LayerNorm of q and k, head by head"),
                                  ("phi", "qk_layernorm", "LayerNorm of q and k")):  # fmt: skip
        cfg, fields = read(model_type, **{key: True}), B | {key: True, "pad_token_id": 0, "eos_token_id": 1}
        assert a.parameters(cfg).total == measured(model_type, **fields)
        row = next(line for line in page(cfg).splitlines() if line.startswith("  QK-norm"))
        assert name in row and as_json(cfg)["qk_norm"] == name and name in cfg.unsupported
        assert as_json(read(model_type))["qk_norm"] is False


@case("S2-CFG-02")
def _():
    llama = {"head_dim": 16}
    whole = read("llama", **llama, architectures=["LlamaForCausalLM"])
    assert a.parameters(whole).total == total("llama", **llama) == 86_848
    base = read("llama", **llama, architectures=["LlamaModel"])
    assert a.parameters(base).total == 80_448 and "no language head is counted" in said(base)
    assert base.unsupported == ("a model without a language head",) and "none: a base model" in page(base)
    for labels in (1, 3):
        one = {"architectures": ["LlamaForSequenceClassification"], "num_labels": labels}
        assert total("llama", **llama, **one) == 80_448 + 64 * labels
        named = {"architectures": one["architectures"], "id2label": {str(i): "x" for i in range(labels)}}
        assert total("llama", **llama, **named) == 80_448 + 64 * labels
    tokens = {"architectures": ["LlamaForTokenClassification"], "num_labels": 5}
    assert total("llama", **llama, **tokens) == 80_448 + 65 * 5
    assert total("llama", **llama, architectures=["LlamaForQuestionAnswering"]) == 80_448 + 65 * 2
    # without a head there is nothing to tie, and no bias of the head
    assert total("qwen2", tie_word_embeddings=True, architectures=["Qwen2Model"]) == total("qwen2") - HEAD
    assert total("phi", architectures=["PhiModel"]) == total("phi") - HEAD - 100
    # one decode step reads no head, and still not the whole look-up table
    weights = (80_448 - EMBEDDING) * 2
    assert a.weight_bytes_per_step(base) == weights and a.weight_bytes_per_step(whole) == weights + 2 * HEAD
    assert a.flops_per_token(whole) - a.flops_per_token(base) == 2 * HEAD
    for name, message in (
        ("LlamaForCausalLMEagle3", "a draft model"),
        ("Qwen2ForRewardModel", "a reward model"),
        ("MedusaLlamaForCausalLM", "a draft model"),
        ("LlamaForMaskedLM", r"expected a class with a language head \(..ForCausalLM"),
        ("Llama", "expected a class with a language head"),
    ):
        with pytest.raises(ValueError, match=rf'architectures = \["{name}"\]: {message}'):
            read("llama", architectures=[name])
    for wrong in ("LlamaForCausalLM", [1], [["LlamaModel"]], True):
        with pytest.raises(ValueError, match="expected a list of class names"):
            read("llama", architectures=wrong)
    with pytest.raises(ValueError, match="different heads"):
        read("llama", architectures=["LlamaModel", "LlamaForCausalLM"])
    with pytest.raises(ValueError, match="id2label has 1 entries and num_labels = 3"):
        read("llama", architectures=["LlamaForSequenceClassification"], num_labels=3, id2label={"0": "a"})


@case("S2-CFG-03")
def _():
    fp8 = {"quant_method": "fp8"}
    note = "the file's weights are quantised (fp8): not 2 bytes a parameter"
    flat, inner = read("mistral", quantization_config=fp8), B | {"model_type": "mistral"}
    outside = read_config({"model_type": "mistral3", "quantization_config": fp8, "text_config": inner})
    inside = read_config({"model_type": "mistral3", "text_config": inner | {"quantization_config": fp8}})
    for cfg in (flat, outside, inside):
        assert note in cfg.warnings
        assert sum("quantised" in warning for warning in cfg.warnings) == 1


@case("S2-CFG-04")
def _():
    four = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    gemma = read_config({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"} | four})
    x = gemma.layers[0].attention
    assert (gemma.V, x.n_heads, x.n_kv_heads, x.head_dim) == (262_208, 8, 4, 256)
    for pair in ("vocab_size = 262208", "num_attention_heads = 8", "num_key_value_heads = 4"):
        assert pair in said(gemma)
    told = {key: value for _, key, value, where in gemma.fields if where == "class"}
    assert told["vocab_size"] == 262_208 and "hidden_size" not in told
    llama = read_config({"model_type": "llava", "text_config": {"model_type": "llama"}})
    assert (llama.d, llama.layers[0].ffn.d_ff, llama.n_layers, llama.layers[0].attention.n_heads) == (
        4096,
        11008,
        32,
        32,
    )
    for pair in (
        "hidden_size = 4096",
        "intermediate_size = 11008",
        "num_hidden_layers = 32",
        "num_attention_heads = 32",
    ):
        assert pair in said(llama)
    same = read_config({"model_type": "llava", "text_config": {}, "vision_config": {"hidden_size": 8}})
    assert same.replace(warnings=()) == llama.replace(warnings=())
    # a field of the language model that stands at the top only
    top = read_config({"model_type": "llava", "vocab_size": 32_064, "text_config": {"model_type": "llama"}})
    assert top.V == 32_064 and "vocab_size = 32064 is taken from outside text_config" in said(top)
    both = read_config(
        {"model_type": "paligemma", "vocab_size": 257_152, "text_config": {"vocab_size": 257_216}}
    )
    assert both.V == 257_216 and "vocab_size = 257152 outside text_config is not used" in said(both)
    # a flat file that lacks a size stays refused, whatever its class has
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        for model_type in ("llama", "gemma3_text", "qwen2"):
            with pytest.raises(
                ValueError, match=f"{key} is missing: a {model_type} cannot be read without it"
            ):
                read_config({k: v for k, v in (B | {"model_type": model_type}).items() if k != key})
    # other names for the same place, and a language model inside a wrapper
    for key in ("llm_config", "language_config"):
        assert read_config({"model_type": "x", key: B | {"model_type": "llama"}}).d == 64
    inside = {"model_type": "qwen2_5_omni_thinker", "text_config": B, "audio_config": {"d_model": 8}}
    omni = read_config(
        {"model_type": "qwen2_5_omni", "thinker_config": inside, "talker_config": {"hidden_size": 8}}
    )
    assert omni.model_type == "qwen2_5_omni_text"
    assert {"only the language model is counted, not talker_config",
            "only the language model is counted, not audio_config"} <= set(omni.warnings)  # fmt: skip


@case("S2-CFG-05")
def _():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    plain = read("qwen2", rope_scaling=yarn)
    for off in (
        {"mscale": 1.0, "mscale_all_dim": 0.0},
        {"mscale": 1.0, "mscale_all_dim": 0},
        {"mscale": 0, "mscale_all_dim": 1.0},
    ):
        cfg = read("qwen2", rope_scaling=yarn | off)
        rope = cfg.layers[0].attention.rope
        assert rope_attention_factor(rope.scaling) == pytest.approx(1.138629436, rel=1e-9)
        assert rope_attention_factor(rope.scaling) == rope_attention_factor(
            plain.layers[0].attention.rope.scaling
        )
    on = (
        read("qwen2", rope_scaling=yarn | {"mscale": 1.0, "mscale_all_dim": 1.0})
        .layers[0]
        .attention.rope.scaling
    )
    assert rope_attention_factor(on) == 1.0


@case("S2-CFG-06")
def _():
    inner = B | {"model_type": "qwen2", "tie_word_embeddings": True}
    cfg = read_config({"model_type": "llava_onevision", "tie_word_embeddings": False, "text_config": inner})
    assert cfg.tied
    assert (
        "tie_word_embeddings = false outside text_config is not used: text_config.tie_word_embeddings = true"
        in cfg.warnings
    )
    other = read_config({"model_type": "llava_onevision", "tie_word_embeddings": True, "text_config": inner | {"tie_word_embeddings": False}})  # fmt: skip
    assert not other.tied and "tie_word_embeddings = true outside" in said(other)


@case("S2-CFG-07")
def _():
    """Neither ALiBi nor learned positions are NoPE."""
    for cfg, name in (
        (read("falcon", alibi=True, multi_query=False), "ALiBi"),
        (read_config(CONFIGS / "second" / "falcon-rw-1b.json"), "ALiBi"),
        (read_config(CONFIGS / "gpt2.json"), "learned"),
    ):
        facts, row = as_json(cfg), next(x for x in page(cfg).splitlines() if x.startswith("  positions"))
        assert facts["nope_layers"] == [] and facts["positions"].startswith(name)
        assert name in row and "NoPE" not in row
        assert any(part.name == f"{name} positions" for part in cfg.counted)
    smol = as_json(read_config(CONFIGS / "smollm3-3b.json"))
    assert len(smol["nope_layers"]) == 9 and smol["positions"] == "RoPE"


@case("S2-CFG-08")
def _():
    four = {"group_size": 64, "bits": 4}
    for fields in (
        {"quantization": four},
        {"quantization_config": four},
        {"quantization": four, "quantization_config": four},
    ):
        assert (
            "the file's weights are quantised (4-bit weights): not 2 bytes a parameter"
            in read("llama", **fields).warnings
        )
    for table, words in (
        ({"quant_method": "gptq", "bits": 4}, "gptq, 4-bit weights"),
        ({"quant_method": "awq", "w_bit": 4}, "awq, 4-bit weights"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "bitsandbytes, 4-bit weights"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "FP8"),
        ({"mode": "mxfp4", "bits": 4}, "mxfp4, 4-bit weights"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, "compressed-tensors, 8-bit weights"),
        ({"other": 1}, "it does not say how"),
        ("q4f16_1", '"q4f16_1"'),
    ):  # fmt: skip
        assert f"quantised ({words})" in said(read("llama", quantization_config=table))
    for off in (None, {}, False):
        assert "quantised" not in said(read("llama", quantization_config=off, quantization=off))


@case("S2-CFG-09")
def _(tmp_path):
    meta = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
            "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0}  # fmt: skip
    llama = read_config(meta)
    assert (a.parameters(llama).total, a.kv_elements_per_token(llama)) == (8_030_261_248, 65_536)
    assert llama.layers[0].attention.rope.base == 5e5
    (tmp_path / "params.json").write_text(json.dumps(meta))
    assert read_config(tmp_path) == llama  # a folder as Meta hands it out
    seven = {
        "dim": 4096,
        "multiple_of": 256,
        "n_heads": 32,
        "n_layers": 32,
        "norm_eps": 1e-05,
        "vocab_size": 32000,
    }
    assert a.parameters(read_config(seven)).total == 6_738_415_616  # Llama-2-7B: no KV heads, no base
    assert "rope_theta is not in the file" in said(read_config(seven))
    scaled = read_config(meta | {"use_scaled_rope": True})  # its factor is a constant of the code
    assert "scaled RoPE whose lengths are constants of Meta's code" in scaled.unsupported
    mistral = {"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
               "norm_eps": 1e-05, "vocab_size": 32768, "rope_theta": 1000000.0}  # fmt: skip
    assert a.parameters(read_config(mistral)).total == 7_248_023_552  # Mistral-7B-v0.3
    mixtral = read_config(
        mistral | {"vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}
    )
    assert a.parameters(mixtral).total == 46_702_792_704 and mixtral.model_type == "mixtral"
    for fields, message in (
        (meta | {"vocab_size": -1}, "vocab_size = -1: Meta's code takes it from the tokenizer"),
        (meta | {"n_heads": "32"}, 'n_heads = "32": expected a whole number'),
        ({k: v for k, v in meta.items() if k != "n_heads"}, "n_heads is missing"),
        ({k: v for k, v in mistral.items() if k != "rope_theta"}, "rope_theta is missing"),
        (meta | {"moe_args": {"num_experts": 16}}, "fields that Meta's code does not have: moe_args"),
        (mistral | {"q_lora_rank": 512}, "fields that Mistral's code does not have: q_lora_rank = 512"),
        ({"peft_type": "LORA", "r": 8, "base_model_name_or_path": "a/b"}, r'an adapter \("LORA", rank 8\).*"a/b": give'),
        ({"fine_tune_type": "lora", "lora_parameters": {"rank": 4}, "model": "a/c"}, r'an adapter \("lora", rank 4\).*"a/c"'),
        ({"peft_type": "IA3"}, "an adapter .* a model that it does not name"),
        ({"weight_map": {}, "metadata": {}}, "the index of a model's weight files"),
        ({"tokenizer_class": "LlamaTokenizer", "chat_template": "x"}, "a tokenizer's settings"),
        ({"version": "1.0", "added_tokens": [], "model": {}}, "a tokenizer "),
        ({"_from_model_config": True, "eos_token_id": 2}, "the settings of text generation"),
        ({"n_vocab": 50257, "n_ctx": 1024, "n_embd": 768}, "OpenAI's own configuration of GPT-2"),
        ({"bits": 4, "group_size": 128}, "a note on quantised weights"),
        ({"model_config": {}, "conv_template": "x", "model_type": "llama"}, "MLC's own"),
        ({"speculators_model_type": "eagle3", "model_type": "llama"}, "a draft model"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            pytest.fail(f"read: {fields}, {read_config(fields).model_type}")
    (tmp_path / "lora").mkdir()
    adapter = (CONFIGS / "second" / "lora_adapter_config.json").read_text()
    (tmp_path / "lora" / "adapter_config.json").write_text(adapter)
    with pytest.raises(ValueError, match="give the config.json of that model"):
        read_config(tmp_path / "lora")


@case("S2-CFG-10")
def _():
    """The language part of Qwen's vision-language models is Qwen's own block, nested or flat."""
    eight = json.loads((CONFIGS / "second" / "qwen3-vl-8b.json").read_text())
    vl, plain = read_config(eight), read_config(CONFIGS / "qwen3-8b.json")
    assert a.parameters(vl) == a.parameters(plain) and a.kv_elements_per_token(vl) == a.kv_elements_per_token(
        plain
    )
    assert "RoPE over several axes" in vl.unsupported
    assert "only the language model is counted, not vision_config" in vl.warnings
    mrope = {"type": "mrope", "mrope_section": [2, 3, 3]}
    flat = read("qwen2_5_vl", rope_scaling=mrope, vision_config={"depth": 2, "hidden_size": 8})
    assert a.parameters(flat) == a.parameters(read("qwen2"))
    assert flat.model_type == "qwen2_5_vl_text" and "RoPE over several axes" in flat.unsupported
    assert "only the language model is counted, not vision_config" in flat.warnings
    assert "does not know" not in said(flat)
    experts = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "head_dim": 16}
    assert a.parameters(read("qwen3_vl_moe_text", tie_word_embeddings=False, **experts)) == a.parameters(read("qwen3_moe", **experts))  # fmt: skip


DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
         "linear_conv_kernel_dim": 4}  # fmt: skip
EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 28,
}


@case("S2-CFG-11")
def _():
    next_ = B | DELTA | EXPERTS | {"num_hidden_layers": 4, "head_dim": 24, "pad_token_id": 0}
    for bias in (False, True):
        assert total("qwen3_next", **next_, attention_bias=bias) == measured(
            "qwen3_next", **next_, attention_bias=bias
        )
    wide = 4 * 24  # q, its gate, k and v, and o
    assert (
        total("qwen3_next", **next_, attention_bias=True) - total("qwen3_next", **next_)
        == 2 * wide + 2 * 2 * 24 + 64
    )


@case("S2-CFG-12")
def _():
    latent = {"kv_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "q_lora_rank": None,
              "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "num_hidden_layers": 5, "pad_token_id": 0}  # fmt: skip
    for mlp, attention, shared, dense in itertools.product((False, True), (False, True), (1, 3), (0, 2, 5)):
        fields = (
            B
            | latent
            | {
                "mlp_bias": mlp,
                "attention_bias": attention,
                "n_shared_experts": shared,
                "first_k_dense_replace": dense,
            }
        )
        assert total("deepseek_v2", **fields) == measured("deepseek_v2", **fields), fields
    # the sibling without such a field says so
    v3 = read("deepseek_v3", **latent, mlp_bias=False, n_shared_experts=1, first_k_dense_replace=2)
    assert not [part for layer in v3.layers for part in layer.counted]


@case("S2-CFG-13")
def _():
    mixed = {"mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 10, "conv_kernel": 4, "head_dim": 16, "n_routed_experts": 8,
             "num_experts_per_tok": 2, "moe_intermediate_size": 20, "moe_shared_expert_intermediate_size": 28, "pad_token_id": 0}  # fmt: skip
    blocks = ["linear_attention", "moe", "full_attention", "mlp", "moe"]
    sizes = (
        {key: value for key, value in B.items() if key != "num_hidden_layers"}
        | mixed
        | {"layers_block_type": blocks}
    )
    switches = ("mlp_bias", "attention_bias", "use_bias", "use_conv_bias")
    for values in itertools.product((False, True), repeat=len(switches)):
        for latent in (None, 12):
            fields = sizes | dict(zip(switches, values, strict=True)) | {"moe_latent_size": latent}
            cfg = read_config(fields | {"model_type": "nemotron_h"})
            assert a.parameters(cfg).total == measured("nemotron_h", **fields), fields
            unused = "attention_bias = true is not used: the attention of the class has no biases"
            assert (unused in cfg.warnings) == fields["attention_bias"]
    only = sizes | {
        "model_type": "nemotron_h",
        "layers_block_type": ["full_attention", "mlp"],
        "mlp_bias": True,
    }
    assert a.parameters(read_config(only)).total == measured(
        "nemotron_h", **{k: v for k, v in only.items() if k != "model_type"}
    )
    tied = sizes | {"model_type": "nemotron_h", "tie_word_embeddings": True}
    with pytest.raises(
        ValueError, match="tie_word_embeddings = true: NemotronHForCausalLM has a head of its own"
    ):
        read_config(tied)
    untied = measured("nemotron_h", **{k: v for k, v in tied.items() if k != "model_type"})
    assert (
        untied == a.parameters(read_config(tied | {"tie_word_embeddings": False})).total
    )  # the class does not tie
    spelled = {key: value for key, value in only.items() if key != "layers_block_type"} | {
        "layer_types": only["layers_block_type"]
    }
    assert read_config(spelled) == read_config(only)


@case("S2-CFG-14")
def _():
    """Every second layer of the first max_window_layers, and not the late ones as in qwen2."""
    moe = EXPERTS | {"num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 16}
    transformers = pytest.importorskip("transformers")
    for last in range(6):
        cfg = read("qwen2_moe", **moe, max_window_layers=last)
        kinds = ["sliding_attention" if layer.attention.window else "full_attention" for layer in cfg.layers]
        assert (
            kinds
            == transformers.CONFIG_MAPPING["qwen2_moe"](**B | moe | {"max_window_layers": last}).layer_types
        )
        dense = read(
            "qwen2", num_hidden_layers=4, use_sliding_window=True, sliding_window=16, max_window_layers=last
        )
        assert [bool(layer.attention.window) for layer in dense.layers] == [i >= last for i in range(4)]
    two = read("qwen2_moe", **moe, max_window_layers=2)
    assert [layer.attention.window for layer in two.layers] == [16, None, None, None]
    # switched on, and no width in the file: the class's own width, said
    wide = read("qwen2", num_hidden_layers=4, use_sliding_window=True, max_window_layers=2)
    assert wide.layers[3].attention.window == 4096 and "sliding_window = 4096" in said(wide)


@pytest.mark.parametrize("name", sorted(COVERED))
def test_case(name, tmp_path):
    COVERED[name](tmp_path) if name == "S2-CFG-09" else COVERED[name]()


def test_no_case_of_a_config_is_dropped():
    assert set(COVERED) == {name for name in SECOND if name.startswith("S2-CFG")} and len(COVERED) == 14
