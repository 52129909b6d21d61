"""Any published config.json -> ModelConfig: read right, or refused by name.

The border where other people's spellings are known. `config_file` gives checked access to fields, `table` holds what a file
does not say (one row per model_type), `ropes` and `reader` the rules that most families share, `layers` and `hybrids` the
layer lists that must be computed.
"""

from dataclasses import replace
from difflib import get_close_matches

from ..config import Counted, ModelConfig, MoE, Norm
from . import hybrids, layers
from .config_file import load, show
from .reader import Reader, standard_layers
from .table import FAMILIES, NESTED

__all__ = ["read_config"]

_OUTSIDE = ("a logit", "a mixture")  # what stands outside the layers, or is one layer's own and seen there
_BUILDERS = vars(layers) | vars(hybrids)


class UnknownFamily(ValueError):
    """A model_type without a row. str(error) is the message, error.model_type the name."""

    def __init__(self, message, model_type):
        super().__init__(message)
        self.model_type = model_type


def read_config(source):
    """A config.json (path, model folder, .gguf, or a dictionary) -> ModelConfig.

    The published and the transformers-5 spelling give the same answer. `warnings` lists class defaults that were used and
    fields that were not understood; `unsupported` what the block does not run.
    Raises: FileNotFoundError; ValueError that names the field, or the model_type that is not known.
    """
    raw = load(source)
    told = getattr(raw, "notes", ())
    raw, notes = _text_model(raw)
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise ValueError(
            f"model_type = {show(model_type)}: expected the name of a model family, such as 'llama'"
        )
    family = FAMILIES.get(model_type)
    if family is None:
        near = get_close_matches(model_type, FAMILIES, n=3, cutoff=0.7)
        hint = f"; the nearest known names are {', '.join(near)}" if near else ""
        raise UnknownFamily(
            f"model_type {show(model_type)} is not known here, so no number is given for it{hint}", model_type
        )
    return _model(Reader(raw, model_type, family, [*told, *notes]))


def _text_model(raw):
    """The language model's own fields, and what was left aside to get at them."""
    if raw.get("text_config") is None:
        return raw, []
    inner, outer = raw["text_config"], raw
    if not isinstance(inner, dict):
        raise ValueError(f"text_config = {show(inner)}: expected an object of fields, {{...}}")
    inner = dict(inner)
    ours, theirs = inner.get("tie_word_embeddings"), outer.get("tie_word_embeddings")
    if ours is None:
        inner["tie_word_embeddings"] = theirs
    elif theirs is not None and ours != theirs:
        raise ValueError(
            f"tie_word_embeddings = {show(theirs)} and text_config.tie_word_embeddings = {show(ours)} disagree"
        )
    if inner.get("model_type") is None:
        name = outer.get("model_type")
        inner["model_type"] = NESTED.get(name, name) if isinstance(name, str) else name
    towers = [key for key in ("vision_config", "audio_config") if outer.get(key)]
    notes = [f"only the language model is counted, not {' and '.join(towers)}"] if towers else []
    return inner, notes


def _model(reader):
    f, family = reader.f, reader.family
    f.touch(*family.ignored)
    V = f.size("V")
    norm = Norm(**({"eps": f.number("eps", highest=0.5)} if "eps" not in family.norm else {}), **family.norm)
    for key, (neutral, name) in family.refuse.items():
        reader.refuse_unless(key, neutral, name)
    build = _BUILDERS[family.build] if family.build else standard_layers
    layer_list = tuple(build(reader))
    if family.positions == "learned":
        reader.counted.append(Counted("learned positions", reader.max_len * reader.d))
    if any(isinstance(layer.ffn, MoE) for layer in layer_list):
        reader.refuse("a mixture of experts")
    inside = tuple(name for name in dict.fromkeys(reader.refused) if not name.startswith(_OUTSIDE))
    if inside:  # a block alone is refused as its model is
        made = {layer: replace(layer, refused=inside) for layer in dict.fromkeys(layer_list)}
        layer_list = tuple(made[layer] for layer in layer_list)
    return ModelConfig(
        V,
        reader.d,
        layer_list,
        norm=norm,
        tied=f.flag("tied", family.tied),
        max_len=reader.longest(),
        embed_scale=reader.embed_scale(),
        counted=tuple(reader.counted),
        unsupported=tuple(dict.fromkeys(reader.refused)),
        model_type=f.model_type,
        fields=f.stated(),
        stated_heads=reader.stated_heads(),
        warnings=reader.warnings(),
    )
