"""What transformers builds for a config, counted beside the reading: python -m lib describe PATH --measure.

The class is built on the meta device: tensors have shapes and no numbers, so a model of any size costs a few seconds and no
memory, and a forward pass there fills a cache whose shapes can be counted. torch and transformers are imported by the
functions, never by the module: without `--measure` nobody waits for them. Nothing is downloaded, no code of a file is run.
"""

import inspect
import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from .. import arithmetic as a
from ..config import LARGEST
from .config_file import SPELLINGS, show
from .forms import TEXT
from .implied import lengths
from .table import FAMILIES, UNREAD

MOST_LAYERS = 1000  # a module tree of that many layers takes a minute
MOST_THINGS = 200_000  # of what a class makes a list, a dictionary or a module each: layers, experts, labels
TOKENS = (6, 9)  # two lengths: the difference is what grows per token, the rest is fixed


@dataclass(frozen=True)
class LayerCache:
    """What one layer holds for one sequence: per_token numbers for each token kept, fixed ones; window None = every token."""

    per_token: int
    fixed: int
    window: int | None = None


@dataclass(frozen=True)
class Measured:
    """The class that was built: its parameters, those of each layer, and the cache of each layer (or why there is none).

    filled: whole numbers that the file leaves out and the class fills in.
    """

    name: str
    version: str
    model_type: str
    parameters: int
    by_layer: tuple[int, ...]
    filled: dict
    cache: tuple[LayerCache, ...] = ()
    no_cache: str = ""

    @property
    def per_token(self):
        return sum(layer.per_token for layer in self.cache)

    def bytes_at(self, tokens):
        """Cache of one sequence in bf16: a window layer keeps min(window, tokens), as the engines do."""
        kept = ((x, min(x.window or tokens, tokens)) for x in self.cache)
        return sum(2 * (x.per_token * n + x.fixed) for x, n in kept)


def known_to_transformers(model_type):
    """Whether the installed transformers has a language model for it; its own table is read as text, nothing is imported."""
    spec = find_spec("transformers")
    if spec is None:
        return False
    table = Path(spec.submodule_search_locations[0]) / "models" / "auto" / "modeling_auto.py"
    found = re.search(
        r"MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = .*?\n\)", table.read_text(encoding="utf-8"), re.DOTALL
    )
    return found is not None and f'("{model_type}", ' in found[0]


def measure(raw, device="meta"):
    """A config.json as a dictionary -> Measured. Builds on the meta device the class that transformers has for it; a small one
    runs faster on "cpu".

    Raises: ValueError where transformers is not installed, does not know the model_type, or refuses the file (its own
    words), and where the file asks for code of its own.
    """
    asks = [key for key in ("auto_map", "trust_remote_code") if _asks(raw, key)]
    if asks:
        raise ValueError(
            f"{' and '.join(asks)}: the file asks for code from its repository, and --measure runs none"
        )
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when transformers is first imported
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ValueError(
            f"--measure needs torch and transformers ({error}): pip install transformers"
        ) from None
    transformers.logging.set_verbosity_error()
    try:
        config, tied = _config(transformers, raw)
        model, whole = _build(torch, transformers, config, device)
    except Exception as error:  # noqa: BLE001 - every class refuses in its own way
        raise ValueError(
            f"transformers {transformers.__version__} refuses this file: {_line(error)}"
        ) from None
    seen = {}
    for name, parameter in model.named_parameters(remove_duplicate=True):
        seen[name] = parameter.numel()
    total = sum(seen.values())
    if not whole and not tied:
        total += (
            model.get_input_embeddings().weight.numel()
        )  # the text class alone: its head stands in the outer model
    result = Measured(
        type(model).__name__,
        transformers.__version__,
        config.model_type,
        total,
        _by_layer(config, seen),
        _filled(config, raw),
    )
    try:
        return replace(result, cache=_cache(torch, transformers, model, config))
    except Exception as error:  # noqa: BLE001 - its forward pass may need numbers, which the meta device lacks
        return replace(result, no_cache=_line(error))


def _asks(raw, key):
    return any(part.get(key) for part in _parts(raw))


def _parts(raw):
    """The file and the language models nested in it."""
    return [raw, *(raw[key] for key in TEXT if isinstance(raw.get(key), dict))]


def _refuse_sizes(raw):
    """What no class looks at itself: a size below 1 gives a count of nothing, and a damaged count fills lists without end."""
    sizes = {key for name in ("V", "d", "n_layers", "n_heads", "head_dim", "d_ff") for key in SPELLINGS[name]}
    for key, value in (pair for part in _parts(raw) for pair in part.items()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if key in sizes and not 1 <= value <= LARGEST:
            raise ValueError(f"{key} = {show(value)}: expected a whole number from 1 to {LARGEST:,}")
        if (key.startswith(("num_", "n_layer")) or key.endswith("_layers")) and not value <= MOST_THINGS:
            raise ValueError(f"{key} = {show(value)}: --measure builds at most {MOST_THINGS:,} of anything")


def _line(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _config(transformers, raw):
    """(transformers' config of the language part, whether its head is tied)."""
    raw = {key: value for key, value in raw.items() if key != "quantization_config"}
    if raw.get("model_type") not in transformers.CONFIG_MAPPING:
        raise ValueError(f"no class for model_type {show(raw.get('model_type'))}")
    _refuse_sizes(raw)
    made = transformers.CONFIG_MAPPING[raw["model_type"]]
    unread = [key for key in TEXT if isinstance(raw.get(key), dict) and key not in made.sub_configs]
    if unread:
        raise ValueError(f"{made.__name__} does not read {unread[0]}, and would fill in sizes of its own")
    outer = made.from_dict(raw)
    config = outer.get_text_config(decoder=True)
    alone = config is outer and made not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if alone and raw["model_type"] not in FAMILIES | UNREAD:
        raise ValueError(f"model_type {show(raw['model_type'])} has no language model there")
    if config is not outer:
        inner = next(
            (raw[key] for key in ("text_config", "llm_config") if isinstance(raw.get(key), dict)), {}
        )
        stated = [
            part["tie_word_embeddings"]
            for part in (inner, raw)
            if part.get("tie_word_embeddings") is not None
        ]
        config.tie_word_embeddings = stated[0] if stated else outer.tie_word_embeddings
    layers = getattr(config, "num_hidden_layers", 1)
    if layers > MOST_LAYERS:
        raise ValueError(f"num_hidden_layers = {layers}: --measure builds at most {MOST_LAYERS:,}")
    return config, config.tie_word_embeddings


def _build(torch, transformers, config, device):
    """(the model on the device, whether its head is in it): the class that the file names, else the one with a head.

    Where transformers has neither for the language part alone, its text model.
    """
    named = getattr(transformers, (getattr(config, "architectures", None) or [""])[0], None)
    causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if getattr(named, "config_class", None) is type(config):
        build, whole = named._from_config, True
    elif causal:
        build, whole = transformers.AutoModelForCausalLM.from_config, True
    else:
        build, whole = transformers.AutoModel.from_config, False
    options = {"attn_implementation": "eager", "experts_implementation": "batched_mm"}
    with torch.device(device), import_module("transformers.initialization").no_init_weights():
        try:
            model = build(config, **options)
        except (TypeError, ValueError):
            model = build(config)
    model.tie_weights()
    return model.eval(), whole


def _by_layer(config, seen):
    """Parameters of each layer, from their names (`layers.3.`, `h.3.`); shared ones count where they come first."""
    totals = [0] * (getattr(config, "num_hidden_layers", 0) or 0)
    for name, numel in seen.items():
        found = re.search(r"\.(?:layers|h|blocks|block)\.(\d+)\.", f".{name}")
        if found and int(found[1]) < len(totals):
            totals[int(found[1])] += numel
    return tuple(totals)


def _filled(config, raw):
    """Whole numbers of the class that no field of the file gives, under any of its spellings."""
    inner = raw["text_config"] if isinstance(raw.get("text_config"), dict) else {}
    given = {key for part in (raw, inner) for key, value in part.items() if value is not None}
    given |= {ours for ours, theirs in config.attribute_map.items() if theirs in given}
    given |= {theirs for ours, theirs in config.attribute_map.items() if ours in given}
    default = type(config)().to_dict()
    whole = {key: value for key, value in config.to_dict().items() if type(value) is int and value > 1}
    return {
        key: value
        for key, value in whole.items()
        if key not in given and value == default.get(key) and not key.endswith("_token_id")
    }


def _cache(torch, transformers, model, config):
    """The cache of each layer, from two forward passes of different length."""
    short, long = (_held(torch, transformers, model, config, n) for n in TOKENS)
    layers = []
    for (few, window), (many, _) in zip(short, long, strict=True):
        kept = [
            min(n, window - 1) if window else n for n in TOKENS
        ]  # transformers keeps a window less the coming token
        grown, rest = (
            divmod(many - few, kept[1] - kept[0]) if kept[1] > kept[0] else divmod(few, kept[0] or 1)
        )
        if rest or grown < 0:
            raise ValueError(
                f"a layer holds {few} numbers after {TOKENS[0]} tokens and {many} after {TOKENS[1]}"
            )
        layers.append(LayerCache(grown, few - grown * kept[0], window if grown else None))
    if not any(layer.per_token or layer.fixed for layer in layers):
        raise ValueError("its class fills none")
    return tuple(layers)


def _held(torch, transformers, model, config, n):
    """[(numbers held, window)] per layer after n tokens of one sequence."""
    cache = transformers.DynamicCache(config=config)
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    idx = torch.zeros(1, n, dtype=torch.long, device=next(model.parameters()).device)
    with torch.no_grad():
        model(input_ids=idx, use_cache=True, **{name: cache})
    return [
        (sum(_tensors(torch, vars(layer))), getattr(layer, "sliding_window", None)) for layer in cache.layers
    ]


def _tensors(torch, value):
    """Numbers in every state tensor of a cache layer: keys, values, states, an indexer's keys; not its counters."""
    if isinstance(value, torch.Tensor):
        yield value.numel() if value.is_floating_point() and value.dim() > 1 else 0
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _tensors(torch, entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _tensors(torch, entry)


# ---- beside the reading


def read_layers(cfg):
    """(parameters, LayerCache) of each layer, as this reader counts them."""
    made = {}
    for layer in cfg.layers:
        if layer not in made:
            one, two = (cfg.replace(layers=(layer,) * n, counted=()) for n in (1, 2))
            grown = a.kv_elements_per_token(one) + a.extra_kv_elements_per_token(one)
            window = getattr(layer.attention, "window", None) if grown else None
            weights = a.parameters(two).total - a.parameters(one).total
            made[layer] = weights, LayerCache(grown, a.state_elements(one), window)
    return [made[layer] for layer in cfg.layers]


def differences(cfg, measured):
    """Where reading and measurement part: a list of sentences, empty where they are equal."""
    ours, found = read_layers(cfg), []
    if a.parameters(cfg).total != measured.parameters:
        found.append(f"parameters: {a.parameters(cfg).total:,} read, {measured.parameters:,} measured")
        if len(measured.by_layer) == len(ours):
            found += _parted(
                "parameters", [f"{weights:,}" for weights, _ in ours], [f"{n:,}" for n in measured.by_layer]
            )
    if measured.no_cache:
        return found
    cached = [layer for _, layer in ours]
    if len(measured.cache) == len(cached):
        return found + _parted("cache", list(map(_told, cached)), list(map(_told, measured.cache)))
    totals = [
        (sum(x.per_token for x in part), sum(x.fixed for x in part)) for part in (cached, measured.cache)
    ]
    if totals[0] != totals[1]:
        found.append(
            f"cache, all layers: {_told(LayerCache(*totals[0]))} read, {_told(LayerCache(*totals[1]))} measured"
        )
    return found


def _told(layer):
    window = f", window {layer.window:,}" if layer.window else ""
    return f"{layer.per_token:,} per token{window}" + (f", {layer.fixed:,} fixed" if layer.fixed else "")


def _parted(what, ours, theirs):
    """One sentence per pair of differing values, with the layers that show it."""
    where = {}
    for i, pair in enumerate(zip(ours, theirs)):
        if pair[0] != pair[1]:
            where.setdefault(pair, []).append(str(i))
    return [
        f"{what} of layer{'s' * (len(i) > 1)} {', '.join(i[:6])}{' ..' * (len(i) > 6)}: {read} read, {made} measured"
        for (read, made), i in where.items()
    ]


def as_json(cfg, measured, tokens):
    """The measurement as plain values; cfg None: there is no reading to hold it against."""
    return {
        "class": measured.name,
        "transformers": measured.version,
        "parameters": measured.parameters,
        "kv_elements_per_token": None if measured.no_cache else measured.per_token,
        "state_elements": None if measured.no_cache else sum(layer.fixed for layer in measured.cache),
        "cache_lengths": list(lengths(tokens)),
        "cache_bytes_at_lengths": None
        if measured.no_cache
        else [measured.bytes_at(t) for t in lengths(tokens)],
        "cache_not_measured": measured.no_cache or None,
        "filled_by_class": measured.filled,
        "differences": None if cfg is None else differences(cfg, measured),
    }


def lines(cfg, measured, tokens):
    """The measurement as lines of the page; cfg None: a model_type that this reader does not explain."""
    m, at = measured, lengths(tokens)
    found = [f"Measured: {m.name} of transformers {m.version} on the meta device"]
    found.append(f"  parameters     {m.parameters:,} ({a.format_count(m.parameters)})")
    if m.no_cache:
        found.append(f"  cache          not measured: {m.no_cache}")
    else:
        kinds = Counter(map(_told, m.cache))
        found += [f"  cache          {kind}, in {n} of {len(m.cache)} layers" for kind, n in kinds.items()]
        sizes = ", ".join(f"{a.format_bytes(m.bytes_at(t))} at {t:,}" for t in at)
        found.append(f"  all layers     {m.per_token:,} numbers per token; one sequence in bf16: {sizes}")
    if cfg is None:
        found.append(
            "  measured, not explained: this book has no row for the family, and says nothing about its block"
        )
        if m.filled:
            told = ", ".join(f"{key} {value:,}" for key, value in m.filled.items())
            found.append(f"  not in the file, filled in by the class: {told}")
        return found
    parted = differences(cfg, m)
    equal = (
        "parameters equal the reading"
        if m.no_cache
        else "parameters and cache equal the reading, layer by layer"
    )
    return found + ([f"  parts          {text}" for text in parted] or [f"  beside         {equal}"])
