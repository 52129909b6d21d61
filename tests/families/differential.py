"""Random small configs of every row of the table against transformers: parameters and the cache of each layer.

    python tests/families/differential.py --n 50000 [--seed 0] [--rows llama,qwen3] [--out build/differential.jsonl]

Every field that is a size is drawn anew and every boolean of the class is flipped in half of the configs. Both sides get the same
dictionary: `read_config`, and `lib.families.measure`, which builds the class and fills a cache.
A config is `equal`, `refused` (by this reader, in one sentence), `not built` (transformers refuses it) or `WRONG`; a wrong
one is printed as JSON. The run is resumable: config number i is the same in every run, and --out is continued.
"""

import argparse
import json
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

from lib.families import read_config
from lib.families.measure import differences, measure
from lib.families.table import FAMILIES

_SLOW = (
    "kimi_linear",
    "falcon_h1",
)  # their recurrences in PyTorch take seconds on a CPU, and less on the meta device
# fields of a class that are no part of a model: what comes out of it, how it is trained, stored or run
_RUNTIME = re.compile(
    r"^(use_cache|return_dict\w*|output_\w+|is_decoder|is_encoder_decoder|tie_encoder_decoder|torchscript|use_bfloat16|do_sample"
    r"|gradient_checkpointing|use_mamba_kernels|remove_invalid_values|tf_legacy_loss|early_stopping|use_return_dict"
    r"|is_llama_config|fp32_\w+|reorder_and_upcast_attn|add_classification_head|chunk_size_feed_forward|rescale_prenorm_residual)$"
)
# field -> what it may be, in a config where `pick` chooses; the first expression that matches the whole name wins
_SIZES = {
    r"vocab_size(_per_layer_input)?": range(50, 150),
    r"(num_hidden_layers|n_layers?|num_layers)": range(1, 7),
    r"(max_position_embeddings|n_positions|n_ctx|max_seq_len|max_sequence_length)": (64, 96, 128),
    r"(sliding_window|attention_chunk_size|window_size)": (12, 17, 25),
    r"(num_experts|num_local_experts|n_routed_experts|moe_num_experts)": (4, 6, 8),
    r"(num_experts_per_tok|top_k_experts|moe_top_k|moe_k)": (1, 2, 3),
    r"n_group": (1, 2),
    r"topk_group": (1,),
    r"pad_token_id": (0,),
    r"hidden_size_per_layer_input": (0, 0, 8),
    r"(n_shared_experts|num_shared_experts|moe_num_shared_experts)": (1, 2),
    r"(kv_lora_rank|q_lora_rank|qk_nope_head_dim|v_head_dim|o_lora_rank)": (12, 20, 28),
    r"qk_rope_head_dim": (4, 8),
    r"index_head_dim": (14, 22),
    r"(index_n_heads|index_topk)": (3, 5),
    r"first_k_dense_replace": (0, 1, 2),
    r"(decoder_sparse_step|interleave_moe_layer_step)": (1, 2, 3),
    r"max_window_layers": (0, 1, 2, 4),
    r"(full_attention_interval|sliding_window_pattern|_sliding_window_pattern|no_rope_layer_interval)": (2, 3, 4),
    r"(linear_conv_kernel_dim|conv_kernel|mamba_d_conv|conv_L_cache)": (2, 3, 4),
    r"linear_num_key_heads": (2, 4),
    r"linear_num_value_heads": (4, 8),
    r"linear_(key|value)_head_dim": (8, 12),
    r"(mamba_num_heads)": (4, 8),
    r"(mamba_head_dim|ssm_state_size|mamba_d_state)": (6, 10),
    r"n_groups|mamba_n_groups": (1, 2),
    r"query_pre_attn_scalar": (8, 31),
    r"num_kv_shared_layers": (0, 0, 1, 2),
    r"\w*(intermediate_size|intermediate_dim|intermediate_size_mlp|n_inner|ffn_dim|ffn_hidden_size|shared_expert_intermediate_size)\w*": range(8, 96, 4),
}  # fmt: skip
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_WIDTH = ("hidden_size", "n_embd", "d_model")
_NULLABLE = {
    "q_lora_rank": 0.25,
    "sliding_window": 0.05,
    "n_inner": 0.25,
    "num_kv_heads": 0.25,
}  # how often null
_LISTS = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
)  # drawn from the kinds that the class's own list has
_KINDS = {
    "nemotron_h": {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]},
    "glm4_moe_lite": {"mlp_layer_types": ["dense", "sparse"]},
}
_MAMBA_2 = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
}
_FIXED = {  # where a class has no default, or sizes must fit together, or another value is refused by its field
    "bailing_hybrid": {"num_experts_per_token": 2, "tie_word_embeddings": False},
    "bamba": _MAMBA_2 | {"num_hidden_layers": 4, "attn_layer_indices": [1]},
    "codegen": {"n_positions": 64, "n_ctx": 64, "rotary_dim": 8},
    "doge": {"is_moe": False, "sliding_window": None},
    "gpt_neo": {"hidden_size": 32, "num_heads": 4, "num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": _MAMBA_2 | {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
    "helium": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    "kimi_linear": {"num_experts_per_token": 2},
    "lfm2_moe": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"hidden_size": 32, "num_heads": 4, "head_dim": 16, "expand": 2},
    "minimax_m2": {"rotary_dim": 8},
    "minimax_m3_vl_text": {"rotary_dim": 8},
    "mpt": {"no_bias": True},
    "opt": {"hidden_size": 32, "num_attention_heads": 4, "word_embed_proj_dim": 32, "do_layer_norm_before": True}
    | {"_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True},
}  # fmt: skip
# Rows of which this generator draws nothing that both sides read. dbrx: the class of transformers 5.24 asks its nested attn_config for a
# rope_theta that it does not have and builds no small model; its published file is in tests/data/configs/second.
REFUSED = ("dbrx",)
_DERIVED = {"gpt_bigcode": ("num_key_value_heads",)}  # the class computes it from another field
_NEEDS_HEAD_DIM = ("hunyuan_v1_dense", "ministral")  # these classes fail without one


@cache
def _class(row):
    import transformers

    return transformers.CONFIG_MAPPING[row]


@cache
def _default(row):
    return json.loads(json.dumps(_class(row)().to_dict()))


def rows():
    """Rows of the table that transformers has a class for."""
    import transformers

    known = transformers.CONFIG_MAPPING
    return [
        row
        for row in sorted(FAMILIES)
        if row in known and type(known[row]()) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    ]


def fields_of(row, draw):
    """A random small config of that row: keyword arguments of its class."""
    default, fields = _default(row), {}
    h = draw.choice((2, 4, 6, 8))
    n_kv = draw.choice([n for n in (1, 2, 4, 8) if h % n == 0])
    head_dim = draw.choice((8, 16, 24, 32))
    latent = "kv_lora_rank" in default
    stated = "head_dim" in default and not latent
    free = stated and (default["head_dim"] is not None or row in _NEEDS_HEAD_DIM or draw.random() < 0.5)
    for key, value in default.items():
        if key in _DERIVED.get(row, ()):
            continue
        if key in _HEADS:
            fields[key] = h
        elif key in (*_KV, "num_global_key_value_heads"):
            null = draw.random() < _NULLABLE.get(key, 0)
            fields[key] = h if latent else None if null else n_kv
        elif key in _WIDTH:
            fields[key] = h * (draw.choice((8, 12, 16)) if free else head_dim)
        elif key in ("head_dim", "global_head_dim"):
            if stated:
                fields[key] = draw.choice((head_dim, 16)) if free else None
        elif isinstance(value, bool):
            if not _RUNTIME.match(key):
                fields[key] = draw.random() < 0.5
        else:
            sizes = next((sizes for name, sizes in _SIZES.items() if re.fullmatch(name, key)), None)
            if sizes is not None and (value is None or isinstance(value, int)):
                fields[key] = None if draw.random() < _NULLABLE.get(key, 0) else draw.choice(sizes)
    n_layers = next(
        (fields[key] for key in fields if re.fullmatch(r"num_hidden_layers|n_layers?|num_layers", key)), 4
    )
    for key in _LISTS:
        kinds = _KINDS.get(row, {}).get(key) or sorted(set(default.get(key) or ()))
        if kinds and (key == "layers_block_type" or draw.random() < 0.5):
            fields[key] = [draw.choice(kinds) for _ in range(n_layers)]
    if row == "gemma4_text" and "layer_types" in fields:
        fields["layer_types"][-1] = "full_attention"  # its class asks for it
    return fields | _FIXED.get(row, {})


def config_of(number, seed=0, names=None):
    """(row, the config as a dictionary, or the sentence with which its class refuses it) of config number `number`."""
    names = names or rows()
    row, draw = names[number % len(names)], random.Random(f"{seed} {number}")
    fields = fields_of(row, draw)
    if "layers_block_type" in fields:
        fields.pop("num_hidden_layers", None)
    try:
        return row, json.loads(json.dumps(_class(row)(**fields).to_dict()))
    except Exception as error:  # noqa: BLE001 - every class refuses in its own way
        return row, f"{type(error).__name__}: {error}"


def compare(raw):
    """("equal" | "refused" | "not built" | "WRONG", why) of one config."""
    if isinstance(raw, str):
        return "not built", raw
    try:
        cfg = read_config(raw)
    except ValueError as error:
        cfg, refusal = None, str(error)
    except Exception as error:  # noqa: BLE001 - anything but a ValueError is a fault of the reader
        return "WRONG", f"{type(error).__name__}: {error}"
    try:
        measured = measure(raw, "meta" if raw["model_type"] in _SLOW else "cpu")
    except ValueError as error:
        return "not built", str(error)
    if (
        raw["model_type"] == "falcon" and raw["new_decoder_architecture"]
    ):  # its class stores a KV head once per query head
        times = raw["num_attention_heads"] // (raw["num_kv_heads"] or raw["num_attention_heads"])
        measured = replace(
            measured, cache=tuple(replace(x, per_token=x.per_token // times) for x in measured.cache)
        )
    if cfg is None:
        return "refused", refusal
    found = differences(cfg, measured)
    if found:
        return "WRONG", "; ".join(found)
    return "equal", f"parameters only: {measured.no_cache}" if measured.no_cache else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="configs, from number 0 on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", default="", help="only these rows, with commas")
    parser.add_argument(
        "--out", type=Path, default=Path("build/differential.jsonl"), help="results, continued if there"
    )
    args = parser.parse_args()
    names = args.rows.split(",") if args.rows else rows()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    with args.out.open("a") as out:
        for number in range(len(done), args.n):
            row, raw = config_of(number, args.seed, names)
            verdict, why = compare(raw)
            done.append({"row": row, "verdict": verdict, "why": why})
            out.write(json.dumps(done[-1]) + "\n")
            if verdict == "WRONG":
                print(json.dumps({"number": number, "why": why, "config": raw}), flush=True)
    print(table(done))
    return any(one["verdict"] == "WRONG" for one in done)


def table(done):
    """One line per row of the table: how many configs ended how."""
    verdicts = ("equal", "refused", "not built", "WRONG")
    counts = Counter((one["row"], one["verdict"]) for one in done)
    lines = [f"{'row':24}" + "".join(f"{verdict:>11}" for verdict in verdicts)]
    for row in sorted({one["row"] for one in done}):
        lines.append(f"{row:24}" + "".join(f"{counts[row, verdict]:11,}" for verdict in verdicts))
    total = Counter(one["verdict"] for one in done)
    return "\n".join([*lines, f"{'all':24}" + "".join(f"{total[verdict]:11,}" for verdict in verdicts)])


if __name__ == "__main__":
    sys.exit(main())
