"""Every causal-LM type of the installed transformers in its default form, against lib.read_config.

    python tests/families/sweep.py [TYPE ..]      the table, or a few of its rows with both sides in full

The judge of the parameters is AutoModelForCausalLM on the meta device (of a file with several towers: its decoder and its
head); the judge of the cache is what one forward pass there leaves behind, layer by layer. No weight is ever allocated, so
the sizes are the real ones. What transformers itself does not build is reported in its words and not counted.
"""

import json
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache

from lib import arithmetic as a
from lib.families import read_config

TOKENS = 7  # of the forward pass: no multiple of anything


@dataclass(frozen=True)
class Row:
    """One layer: numbers cached per token, the window that caps them, beside them (an indexer), and whatever the length (a state)."""

    kv: int = 0
    window: int | None = None
    extra: int = 0
    state: int = 0


@dataclass(frozen=True)
class Measured:
    """`why` is what transformers says where it does not build (parameters None) or does not run (rows None)."""

    parameters: int | None
    rows: tuple[Row, ...] | None
    why: str = ""
    name: str = ""


@dataclass(frozen=True)
class Outcome:
    kind: str  # right | wrong | refused | not measured
    why: str = ""


def types():
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def default_fields(model_type, **changes):
    """The default configuration as save_pretrained writes it."""
    import transformers

    config = transformers.CONFIG_MAPPING[model_type](**changes)
    return config, json.loads(json.dumps(config.to_dict(), default=str))


def measure(config):
    """Build the class that transformers has for a configuration, without memory, and run it once."""
    import torch
    import transformers
    from transformers.initialization import no_init_weights

    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="transformers")
    try:
        with torch.device("meta"), no_init_weights():
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    except Exception as error:  # noqa: BLE001 - every class refuses in its own way
        return Measured(None, None, f"{type(error).__name__}: {error}")
    model.tie_weights()
    text = config.get_text_config(decoder=True)
    parts = [model]
    if text is not config:
        parts = [part for part in (model.get_decoder(), model.get_output_embeddings()) if part is not None]
    unique = {id(p): p.numel() for part in parts for p in part.parameters()}
    rows, why = None, ""
    try:
        with torch.device("meta"), torch.no_grad():
            out = model.eval()(torch.ones(1, TOKENS, dtype=torch.long), use_cache=True)
        rows = _rows(out)
    except Exception as error:  # noqa: BLE001 - every class refuses in its own way
        why = f"{type(error).__name__}: {error}"
    return Measured(sum(unique.values()), rows, why, type(model).__name__)


def _rows(out):
    """What a forward pass left behind, one Row per layer that keeps anything."""
    import torch

    layers = getattr(getattr(out, "past_key_values", None), "layers", None)
    if layers is None:
        layers = getattr(getattr(out, "cache_params", None), "layers", None)
    if layers is None:
        return None

    def size(value):
        return value.numel() if torch.is_tensor(value) else 0

    def states(layer, name):
        return sum(size(value) for value in (getattr(layer, name, None) or {}).values())

    rows = []
    for layer in layers:
        kept = size(getattr(layer, "keys", None)) + size(getattr(layer, "values", None))
        rows.append(
            Row(
                kept // TOKENS,
                getattr(layer, "sliding_window", None) if kept else None,
                size(getattr(layer, "indexer_keys", None)) // TOKENS,
                states(layer, "conv_states") + states(layer, "recurrent_states"),
            )
        )
    for i, value in enumerate(getattr(out.past_key_values, "linear_cache", ())):  # MiniMaxCache
        if size(value):
            rows[i:] = [Row(state=size(value)), *rows[i + 1 :]]
    return tuple(row for row in rows if row != Row())


def read_rows(cfg):
    """The same, as lib counts it."""
    rows = []
    for layer in cfg.layers:
        extra = sum(part.kv_elements for part in layer.counted)
        state = sum(part.state_elements for part in layer.counted)
        kv = a.kv_elements_per_token(cfg.replace(layers=(layer,)))
        rows.append(Row(kv, getattr(layer.attention, "window", None) if kv else None, extra, state))
    return tuple(row for row in rows if row != Row())


def difference(fields, measured):
    """What differs between lib's reading of `fields` and what was measured: '' where nothing does. Raises: ValueError if it is refused."""
    cfg = read_config(fields)
    ours, theirs = a.parameters(cfg).total, measured.parameters
    if ours != theirs:
        return f"{ours:,} parameters, transformers has {theirs:,} ({ours - theirs:+,})"
    if measured.rows is None:
        return ""
    rows = read_rows(cfg)
    if len(rows) != len(measured.rows):
        return f"{len(rows)} layers keep something, in transformers {len(measured.rows)}"
    for i, (mine, other) in enumerate(zip(rows, measured.rows, strict=True)):
        if mine != other:
            return f"layer {i} of those that keep something: {mine}, in transformers {other}"
    return ""


@cache
def outcome(model_type):
    try:
        config, fields = default_fields(model_type)
    except Exception as error:  # noqa: BLE001 - every class refuses in its own way
        return Outcome("not measured", f"its configuration: {_short(error)}")
    try:
        read_config(fields)
    except ValueError as error:
        return Outcome("refused", _short(error))
    measured = measure(config)
    if measured.parameters is None:
        return Outcome("not measured", _short(measured.why))
    wrong = difference(fields, measured)
    if wrong:
        return Outcome("wrong", wrong)
    return Outcome(
        "right",
        ""
        if measured.rows is not None
        else f"its cache was not run: {_short(measured.why or 'none returned')}",
    )


def _short(message):
    return re.sub(r"\s+", " ", str(message))[:160]


def main(names):
    for name in names:
        config, fields = default_fields(name)
        print(name, outcome(name), measure(config).name)
        print(f"  transformers: {_compact(measure(config))}")
        try:
            cfg = read_config(fields)
            print(f"  lib:          {_compact(Measured(a.parameters(cfg).total, read_rows(cfg)))}")
            print(f"  {a.parameters(cfg)}\n  does not run: {', '.join(cfg.unsupported)}")
            for warning in cfg.warnings:
                print("  -", warning)
        except ValueError as error:
            print("  lib refuses:", error)
    if names:
        return
    found = {name: outcome(name) for name in types()}
    for kind in ("right", "refused", "not measured", "wrong"):
        rows = {name: one.why for name, one in found.items() if one.kind == kind}
        print(f"\n{kind}: {len(rows)}")
        plain = [name for name, why in rows.items() if not why]
        if plain:
            print("  " + ", ".join(plain))
        for why in dict.fromkeys(why for why in rows.values() if why):
            print(f"  {', '.join(name for name in rows if rows[name] == why)}: {why}")
    print("\n" + ", ".join(f"{n} {kind}" for kind, n in Counter(one.kind for one in found.values()).items()))


def _compact(measured):
    if measured.rows is None:
        return f"{measured.parameters} parameters, no cache: {measured.why}"
    kinds = ", ".join(f"{n} x {row}" for row, n in Counter(measured.rows).items())
    return f"{measured.parameters:,} parameters; {kinds}"


if __name__ == "__main__":
    main(sys.argv[1:])
