"""The forms that a file can have: flat, nested, Meta's params.json; an adapter or another file is told what it is.

`open_form` finds the language model's own fields and says what it left aside to get at them. No number is decided here.
"""

from dataclasses import dataclass, field

from .config_file import listed, show
from .quantised import quantisation
from .table import FAMILIES, HARMLESS, LIFTED, NESTED

TEXT = ("text_config", "llm_config", "language_config")  # where a nested file keeps its language model
# fields that belong to the language model wherever they stand
OUTER = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "intermediate_size", "max_position_embeddings", "tie_word_embeddings",
)  # fmt: skip
TOWERS = ("visual", "img_processor", "mm_vision_tower", "vision_config", "audio_config")
_NOT_TOWERS = ("quantization_config", "compression_config", "generation_config", *TEXT)

# keys that give another file away -> what it is
FOREIGN = (
    ({"weight_map"}, "the index of a model's weight files"),
    ({"log_history"}, "the log of a training run (trainer_state.json)"),
    ({"_diffusers_version"}, "a part of a diffusion pipeline"),
    ({"model_config", "conv_template"}, "MLC's own configuration (mlc-chat-config.json)"),
    ({"medusa_num_heads"}, "a set of Medusa heads, which draft tokens for another model"),
    ({"speculators_model_type"}, "a draft model, which proposes tokens for another model"),
)
# the same, where there is no model_type either
NAMELESS = (
    ({"added_tokens", "model"}, "a tokenizer (tokenizer.json)"),
    ({"tokenizer_class"}, "a tokenizer's settings (tokenizer_config.json)"),
    ({"image_processor_type"}, "the settings of an image processor"),
    ({"feature_extractor_type"}, "the settings of an audio processor"),
    ({"processor_class"}, "the settings of a processor"),
    ({"producer", "quantization"}, "ModelOpt's note on quantised weights (hf_quant_config.json)"),
    ({"bits", "group_size"}, "a note on quantised weights (quantize_config.json)"),
    ({"_from_model_config"}, "the settings of text generation (generation_config.json)"),
    ({"n_vocab", "n_ctx"}, "OpenAI's own configuration of GPT-2 (hparams.json)"),
)


@dataclass(frozen=True)
class Form:
    """The language model's fields; what stands around them (None: a flat file); where they stood; what to say of the file."""

    fields: dict
    outer: dict | None = None
    where: str = ""
    notes: list = field(default_factory=list)

    def first(self, *keys):
        """(key, value) of the first of these that the file gives, outside before inside; (key, None) if none is there."""
        for table in (self.outer or {}, self.fields):
            for key in keys:
                if table.get(key) is not None:
                    return key, table[key]
        return keys[0], None


def open_form(raw):
    """Raises: ValueError for a file that is no model's configuration, or that holds two language models."""
    _refuse_foreign(raw)
    thinker = raw.get("thinker_config")
    if thinker is not None:
        aside = [key for key in _towers(raw) if key != "thinker_config"]
        kept = {key: raw[key] for key in ("quantization_config", "quantization") if key in raw}
        form = open_form(kept | _table("thinker_config", thinker))
        return Form(form.fields, form.outer, form.where, _aside(aside) + form.notes)
    places = [key for key in TEXT if raw.get(key) is not None]
    if len(places) > 1:
        raise ValueError(f"{' and '.join(places)} both hold a language model: which one is meant?")
    if not places:
        towers = [key for key in TOWERS if raw.get(key)]
        fields = {key: value for key, value in raw.items() if key not in towers}
        return Form(_lifted(_named(fields)), notes=_aside(towers) + quantisation(raw))
    where = places[0]
    inner = dict(_table(where, raw[where]))
    deeper = next((key for key in (*TEXT, "thinker_config") if inner.get(key) is not None), None)
    if deeper:
        raise ValueError(f"{where}.{deeper}: a language model inside a language model; which one is meant?")
    if not inner.get("model_type"):
        inner["model_type"] = raw.get("model_type")
    notes = _aside(_towers(raw)) + _from_outside(inner, raw, where) + quantisation(raw, inner)
    return Form(_lifted(_named(inner)), raw, where, notes)


def _table(key, value):
    if not isinstance(value, dict):
        raise ValueError(f"{key} = {show(value)}: expected an object of fields, {{...}}")
    return value


def _named(fields):
    """A file may name the whole (qwen2_5_vl) where the language model's own name is meant (qwen2_5_vl_text)."""
    name = fields.get("model_type")
    if isinstance(name, str) and name not in FAMILIES:
        fields = fields | {"model_type": NESTED.get(name, name)}
    return fields


def _lifted(fields):
    """A family may keep the fields of attention and experts in objects of their own: they come up as attn_config.kv_n_heads."""
    for key in LIFTED.get(fields.get("model_type"), ()) if isinstance(fields.get("model_type"), str) else ():
        parts = _table(key, fields.get(key))
        fields = {k: v for k, v in fields.items() if k != key}
        for name, value in parts.items():
            plain = isinstance(value, dict) and set(value) == {"name"}  # {"name": "silu"}
            if (
                name not in HARMLESS and name != "tie_word_embeddings"
            ):  # those of any configuration class, not the model's
                fields[f"{key}.{name}"] = value["name"] if plain else value
    return fields


def _towers(raw):
    named = [
        key
        for key, value in raw.items()
        if str(key).endswith("_config") and isinstance(value, dict) and value
    ]
    return [key for key in named if key not in _NOT_TOWERS] + [key for key in TOWERS[:3] if raw.get(key)]


def _aside(towers):
    return [f"only the language model is counted, not {listed(towers, joint=' and ')}"] if towers else []


def _from_outside(inner, outer, where):
    """Fields of the language model that only the outer level has are taken from there; where both speak, the inner one counts."""
    notes = []
    for key in OUTER:
        ours, theirs = inner.get(key), outer.get(key)
        if theirs is None or ours == theirs:
            continue
        if ours is None:
            inner[key] = theirs
            if key != "tie_word_embeddings":  # stands there by custom
                notes.append(f"{key} = {show(theirs)} is taken from outside {where}")
        else:
            notes.append(f"{key} = {show(theirs)} outside {where} is not used: {where}.{key} = {show(ours)}")
    return notes


def _refuse_foreign(raw):
    if "peft_type" in raw or "fine_tune_type" in raw:
        raise ValueError(_adapter(raw))
    known = FOREIGN if raw.get("model_type") else FOREIGN + NAMELESS
    for keys, what in known:
        if keys <= raw.keys():
            raise ValueError(
                f"this is {what}, not a model's config.json: give the config.json of the model itself"
            )


def _adapter(raw):
    """What an adapter_config.json is: PEFT's, or the one of MLX."""
    kind = raw.get("peft_type", raw.get("fine_tune_type"))
    inside = raw.get("lora_parameters")
    rank = raw.get("r", inside.get("rank") if isinstance(inside, dict) else None)
    base = raw.get("base_model_name_or_path", raw.get("model"))
    rank = f", rank {show(rank)}" if rank is not None else ""
    base = f"{show(base)}: give the config.json of that model" if base else "a model that it does not name"
    return f"this is an adapter ({show(kind)}{rank}), a few small matrices beside those of {base}"
