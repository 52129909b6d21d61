"""Any published config.json -> ModelConfig: read right, or refused by name.

The border where other people's spellings are known. `config_file` gives checked access to fields, `table` holds what a file
does not say (one row per model_type), `ropes` and `reader` the rules that most families share, `layers` and `hybrids` the
layer lists that must be computed.
"""

from dataclasses import replace
from difflib import get_close_matches

from ..config import Counted, ModelConfig, MoE, Norm
from . import classics, hybrids, layers, params
from .beside import add_positions, check_row, has_part, row_part
from .config_file import load, show
from .forms import open_form
from .heads import other_family, read_head
from .notes import warnings
from .reader import Reader
from .sizes import SIZES
from .standard import standard_layers
from .table import FAMILIES, NOT_DECODERS, UNREAD

__all__ = ["read_config"]

MOST_KINDS = 200  # of attention in one model
_OUTSIDE = ("a logit", "a mixture")  # what stands outside the layers, or is one layer's own and seen there
_BUILDERS = vars(layers) | vars(classics) | vars(hybrids) | vars(params)


class UnknownFamily(ValueError):
    """A model_type without a row. str(error) is the message, error.model_type the name."""

    def __init__(self, message, model_type):
        super().__init__(message)
        self.model_type = model_type


def read_config(source):
    """A config.json (path, model folder, .gguf, or a dictionary) -> ModelConfig. Meta's and Mistral's params.json too.

    The published and the transformers-5 spelling give the same answer. `warnings` lists class defaults that were used and
    fields that were not understood, `doubts` those of them that could change a number; `unsupported` what the block does not run.
    Raises: FileNotFoundError; ValueError that names the field, or the model_type that is not known.
    """
    raw = load(source)
    told = list(getattr(raw, "notes", ()))
    if params.is_params(raw):
        fields, model_type, family = params.read_params(raw)
        return _model(Reader(fields, model_type, family, [params.NOTE]))
    _refuse_other(raw.get("model_type"))
    form = open_form(raw)
    labels, bias, note = read_head(form)
    model_type = form.fields.get("model_type")
    family = _family(model_type)
    notes = told + form.notes + ([note] if note else [])
    sizes = {} if form.outer is None else SIZES.get(model_type, {})
    reader = Reader(form.fields, model_type, family, notes, sizes, labels)
    if other := other_family(form, FAMILIES):
        reader.f.warn(other)
    return _model(reader, bias)


def _refuse_other(model_type):
    kind = NOT_DECODERS.get(model_type) if isinstance(model_type, str) else None
    if kind:
        raise ValueError(f"model_type {show(model_type)} is {kind}: only decoders of text are read here")


def _family(model_type):
    if not isinstance(model_type, str):
        raise ValueError(
            f"model_type = {show(model_type)}: expected the name of a model family, such as 'llama'"
        )
    family = FAMILIES.get(model_type)
    if model_type in UNREAD:
        raise UnknownFamily(
            f"model_type {show(model_type)} is not read here, so no number is given for it: it has {UNREAD[model_type]}",
            model_type,
        )
    if family is None:
        near = get_close_matches(model_type, FAMILIES, n=3, cutoff=0.7)
        hint = f"; the nearest known names are {', '.join(near)}" if near else ""
        raise UnknownFamily(
            f"model_type {show(model_type)} is not known here, so no number is given for it{hint}", model_type
        )
    return family


def _model(reader, bias=False):
    f, family, labels = reader.f, reader.family, reader.labels
    f.touch("architectures", *family.ignored)
    check_row(reader)
    V = f.size("V")
    norm = Norm(**({"eps": f.number("eps", highest=0.5)} if "eps" not in family.norm else {}), **family.norm)
    for key, (neutral, name) in family.refuse.items():
        reader.refuse_unless(key, neutral, name)
    build = _BUILDERS[family.build] if family.build else standard_layers
    layer_list = tuple(build(reader))
    kinds = len({layer.attention for layer in layer_list})
    if kinds > MOST_KINDS:
        raise ValueError(
            f"{kinds:,} attention layers that all differ: a model has a few kinds; a damaged file?"
        )
    if family.positions != "rope":
        add_positions(reader, family.positions)
    places = (
        ("model", "head") if labels is None else ("model",)
    )  # a base model or a classifier has no language head
    reader.counted += [
        row_part(reader, part) for part in family.parts if part.on in places and has_part(reader, part)
    ]
    if any(isinstance(layer.ffn, MoE) for layer in layer_list):
        reader.refuse("a mixture of experts")
    inside = tuple(name for name in dict.fromkeys(reader.refused) if not name.startswith(_OUTSIDE))
    if inside:  # a block alone is refused as its model is
        made = {layer: replace(layer, refused=inside) for layer in dict.fromkeys(layer_list)}
        layer_list = tuple(made[layer] for layer in layer_list)
    if labels is None:
        tied = f.flag("tied", family.tied)
    else:
        tied = False
        f.touch("tied", "num_labels")
        reader.refuse("a model without a language head")
        if bias:
            reader.counted.append(Counted("a bias of the classifier", labels))
    return ModelConfig(
        V,
        reader.d,
        layer_list,
        norm=norm,
        tied=tied,
        max_len=reader.longest(),
        embed_scale=reader.embed_scale(),
        counted=tuple(reader.counted),
        unsupported=tuple(dict.fromkeys(reader.refused)),
        model_type=f.model_type,
        fields=f.stated(),
        stated_heads=reader.stated_heads(),
        labels=labels,
        warnings=warnings(f),
        doubts=tuple(f.doubts),
    )
