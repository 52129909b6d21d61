"""lib.families: nothing is assumed in silence, and any mutation of a published file is read right or refused."""

import copy
import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import arithmetic as a
from lib.config import ModelConfig
from lib.families import read_config
from lib.families.describe import page
from lib.families.implied import as_json
from lib.families.table import FAMILIES, HARMLESS
from published import CONFIGS, FILES, raw, same

# ---- what a file does not say is reported, and nothing else changes a number in silence

# a field that is absent, or null, and means exactly that: no default is used
MEANS_NONE = {
    "rope_scaling": "no scaling",
    "q_lora_rank": "queries straight from x",
    "attn_logit_softcapping": "no softcap",
    "final_logit_softcapping": "no softcap",
    "attention_chunk_size": "no chunks",
    "sliding_window": "no window",
}
# a field that is reported under the name of what it holds, or is only read literally for the naive formula
REPORTED_AS = {"rope_parameters": "RoPE base", "per_layer_config": "global_head_dim"}


def silent_changes(name, base, key, changed):
    """True where a model without the field differs and nothing says so."""
    try:
        cfg = read_config(changed)
    except ValueError:
        return False
    if same(cfg, base) or any(
        key in warning or REPORTED_AS.get(key, key) in warning for warning in cfg.warnings
    ):
        return False
    return not (key in MEANS_NONE and changed.get(key) is None) and not same(
        cfg.replace(stated_heads=base.stated_heads), base
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_missing_field_is_an_error_or_reported(path):
    name = str(path.relative_to(CONFIGS).with_suffix(""))
    fields = raw(name)
    base = read_config(fields)
    for key in fields:
        without = {k: v for k, v in fields.items() if k != key}
        assert not silent_changes(name, base, key, without), f"{key} dropped"
        assert not silent_changes(name, base, key, fields | {key: None}), f"{key} null"


# ---- any mutation: right, or a ValueError

ODD = st.sampled_from(
    [None, True, False, 0, 1, -1, 2, 3, 7, 1.5, -0.0, 1e308, math.inf, -math.inf, math.nan, 10**6, 10**12, 2**63, 10**400,
     "", "4096", "silu", "full_attention", [], [0], [1] * 32, ["sliding_attention"] * 32, [[]], [None], {}, {"type": "yarn"},
     {"rope_type": "llama3", "factor": 0}, {"rope_theta": {}}, {"full_attention": {}}, {"0": {"head_dim": 0}}, {"a": {"b": []}}]
)  # fmt: skip
SPARE = ["rope_parameters", "rope_scaling", "layer_types", "sliding_window", "head_dim", "partial_rotary_factor", "text_config",
         "no_rope_layers", "num_key_value_heads", "mlp_layer_types", "rotary_dim", "rope_theta", "model_type", 3]  # fmt: skip


def spots(value, path=()):
    """Every place in a file that can be changed: fields, and what is inside objects and lists."""
    if isinstance(value, dict):
        for key in value:
            yield (*path, key)
            yield from spots(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(min(len(value), 3)):
            yield (*path, i)
            yield from spots(value[i], (*path, i))


def mutate(fields, data):
    for _ in range(data.draw(st.integers(1, 3), label="mutations")):
        place = data.draw(st.sampled_from([*spots(fields), *((key,) for key in SPARE)]), label="place")
        target = fields
        for step in place[:-1]:
            target = target[step]
        action = data.draw(st.sampled_from(["drop", "replace"]), label="action")
        if action == "replace":
            value = copy.deepcopy(data.draw(ODD, label="value"))
            if isinstance(target, dict) or place[-1] < len(target):
                target[place[-1]] = value
        elif isinstance(target, dict):
            target.pop(place[-1], None)
        elif place[-1] < len(target):
            del target[place[-1]]
        if not fields:
            break


@settings(
    max_examples=1500,
    deadline=20_000,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
)
@given(path=st.sampled_from(FILES), data=st.data())
def test_a_mutated_config_is_read_or_refused(path, data):
    """Never another exception, never a hang; what is read satisfies the arithmetic's own identities."""
    fields = json.loads(path.read_text())
    mutate(fields, data)
    try:
        cfg = read_config(fields)
    except ValueError as error:
        assert str(error)
        return
    assert isinstance(cfg, ModelConfig)
    p = a.parameters(cfg)
    assert 0 < p.active <= p.total
    assert p.total == p.embedding + p.head + p.attention + p.ffn + p.norms + p.counted
    assert (
        0 <= a.kv_bytes(cfg, 4096) <= a.kv_bytes(cfg, 4096, capped=False) == 4096 * a.kv_bytes_per_token(cfg)
    )
    assert a.flops_per_token(cfg, 10) >= 2 * cfg.V * cfg.d
    rows = [layer.attention for layer in cfg.layers if layer.attention is not None]
    assert all(x.rope is None or math.isfinite(x.rope.base) for x in rows)
    assert read_config(json.loads(json.dumps(fields))) == cfg  # the same again, through JSON
    assert "None" not in page(cfg, 4096, 2)
    json.dumps(as_json(cfg, 4096, 2), allow_nan=False)


@settings(max_examples=300, deadline=20_000, derandomize=True, database=None)
@given(
    path=st.sampled_from(FILES),
    key=st.sampled_from(sorted(HARMLESS - {"model_type", "num_nextn_predict_layers"})),
    value=ODD,
)
def test_a_harmless_field_may_hold_anything(path, key, value):
    """Infinity, a list or a text in a field that sets no size changes no number."""
    fields = json.loads(path.read_text())
    inner = fields.get("text_config") or fields
    base = read_config(fields)
    sets_layers = {"max_window_layers", "mlp_only_layers"} & {key}
    if sets_layers and FAMILIES[base.model_type].windows == "late" or FAMILIES[base.model_type].moe:
        return
    inner[key] = copy.deepcopy(value)
    assert same(read_config(fields), base)
