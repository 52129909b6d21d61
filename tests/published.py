"""The published config.json files, for tests: one at a time, changed, or compared."""

import csv
import json
from pathlib import Path

CONFIGS = Path(__file__).parent / "data" / "configs"
FACTS = list(csv.DictReader((CONFIGS / "facts.csv").open()))
FILES = sorted([*CONFIGS.glob("*.json"), *CONFIGS.glob("v5/*.json")])


def raw(name):
    """A published file as one flat dictionary of the language model."""
    fields = json.loads((CONFIGS / f"{name}.json").read_text())
    inner = fields.get("text_config")
    return fields if inner is None else {"tie_word_embeddings": fields.get("tie_word_embeddings"), **inner}


def edited(name, **changes):
    """A published file with some fields changed; ... drops a field."""
    fields = raw(name) | changes
    return {key: value for key, value in fields.items() if value is not ...}


def same(one, other):
    return one.replace(warnings=()) == other.replace(warnings=())
