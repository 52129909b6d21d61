"""What a nested file leaves out is what the class of transformers has: names, sizes, and the parameters that follow. 5 seconds."""

import dataclasses

import pytest
from test_families_transformers import measured

from lib import arithmetic as a
from lib.families import read_config
from lib.families.config_file import SPELLINGS
from lib.families.sizes import SIZES
from lib.families.table import FAMILIES, NESTED

ELSEWHERE = {"llava_llama", "llava_mistral", "llava_qwen"}  # names of LLaVA's own code
INNER = sorted(set(NESTED.values()) & set(SIZES))


@pytest.mark.parametrize("model_type", SIZES)
def test_sizes_are_the_defaults_of_the_class(model_type):
    transformers = pytest.importorskip("transformers")
    kind = transformers.CONFIG_MAPPING[model_type]
    theirs = {field.name: field.default for field in dataclasses.fields(kind)}
    for name, value in SIZES[model_type].items():
        keys = (SPELLINGS | FAMILIES[model_type].keys).get(name, (name,))
        keys = [kind.attribute_map.get(key, key) for key in keys] + list(keys)
        assert value in [theirs[key] for key in keys if theirs.get(key) is not None][:1], name


def test_a_whole_has_the_text_model_that_transformers_gives_it():
    transformers = pytest.importorskip("transformers")
    wrong = {}
    for outer, inner in NESTED.items():
        if outer not in ELSEWHERE:
            theirs = transformers.CONFIG_MAPPING[outer]().text_config.model_type
            wrong |= {outer: theirs} if theirs != inner else {}
    assert not wrong


@pytest.mark.parametrize("model_type", INNER)
def test_a_nested_file_that_says_almost_nothing(model_type):
    """Two layers, the rest from the class: as many parameters as the class has on the meta device."""
    transformers = pytest.importorskip("transformers")
    outer = next(name for name, inner in NESTED.items() if inner == model_type)
    kind = transformers.CONFIG_MAPPING[model_type]
    count = (
        {"layer_types": ["full_attention", "linear_attention"]}
        if model_type == "nemotron_h"
        else {"num_hidden_layers": 2}
    )
    try:
        cfg = read_config({"model_type": outer, "text_config": count})
    except ValueError as error:  # what a class sets beyond sizes is refused by its name
        assert model_type in REFUSED and REFUSED[model_type] in str(error)
        return
    assert model_type not in REFUSED
    assert a.parameters(cfg).total == measured(kind(**count), cfg.tied)


REFUSED = {
    "gemma4_text": "rope_parameters is missing",  # its two kinds of layers turn differently
}
