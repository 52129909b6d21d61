"""Every causal-LM type of the installed transformers, in its default form: read right, or refused by name. About 40 s, once."""

import re
from collections import Counter

import pytest
import sweep

from lib.families import read_config
from lib.families.table import FAMILIES, NOT_DECODERS, UNREAD

RIGHT = 119  # at least: what the installed version gave when this was written


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("transformers")
    return {name: sweep.outcome(name) for name in sweep.types()}


def test_no_default_config_is_read_wrong(found):
    assert not {name: one.why for name, one in found.items() if one.kind == "wrong"}
    assert Counter(one.kind for one in found.values())["right"] >= RIGHT


def test_what_is_not_measured_is_refused_by_transformers(found):
    assert all(one.why for one in found.values() if one.kind == "not measured")
    assert Counter(one.kind for one in found.values())["not measured"] < 10


def test_what_is_no_decoder_is_refused_as_such(found):
    for name, kind in NOT_DECODERS.items():
        with pytest.raises(ValueError, match=f"is {kind}: only decoders of text are read here"):
            read_config({"model_type": name, "hidden_size": 64})
    assert all(found[name].kind == "refused" for name in NOT_DECODERS if name in found)


def test_a_refused_type_names_the_feature_or_the_field(found):
    """No type of transformers is merely unknown here."""
    refused = {name: one.why for name, one in found.items() if one.kind == "refused"}
    assert not [name for name, why in refused.items() if "is not known here" in why]
    for name, why in refused.items():
        assert name in NOT_DECODERS or re.search(r"it has |= |is null|is missing", why), (name, why)


def test_no_type_is_in_two_tables():
    assert not set(FAMILIES) & (set(NOT_DECODERS) | set(UNREAD))
    assert not set(NOT_DECODERS) & set(UNREAD)
