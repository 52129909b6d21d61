"""What a model refuses, and the sentence it says: apart from `model`, so that the block can be read without them."""

import torch

from lib.config import Dense
from lib.lengths import Call, check_crossing


def refusals(layer):
    """What of a layer the block does not run, by name."""
    names = [*layer.refused, *(part.name for part in layer.counted)]
    if layer.attention is None:
        names.append("a layer without attention")
    if not isinstance(layer.ffn, Dense):
        names.append("a mixture of experts" if layer.ffn else "a layer without feed-forward")
    if layer.norms.startswith("parallel"):
        names.append("parallel attention and feed-forward")
    return names


def refuse_unsupported(config):
    """Raises: ValueError naming each feature of a ModelConfig that the block does not run."""
    refused = [*config.unsupported, *(part.name for part in config.counted)]
    refused += [name for layer in dict.fromkeys(config.layers) for name in refusals(layer)]
    if refused:
        raise ValueError(
            f"the block does not run {', '.join(dict.fromkeys(refused))} ({config.model_type or 'this model'})"
        )


def check_ids(idx):
    """Raises: ValueError unless idx holds token ids [B, T] of a type that an embedding takes."""
    if not isinstance(idx, torch.Tensor):
        raise ValueError(f"token ids are a {type(idx).__name__}: expected a tensor of whole numbers [B, T]")
    if idx.dim() != 2 or idx.dtype not in (torch.int64, torch.int32) or 0 in idx.shape:
        raise ValueError(
            f"token ids {list(idx.shape)} of {idx.dtype}: expected whole numbers [B, T], at least one, of int64 or int32"
            " (one prompt is [1, T])"
        )


def check_tie(model):
    """Raises: ValueError where the config ties the head to the embedding and they are no longer one parameter."""
    if model.config.tied and model.head.weight is not model.emb.weight:
        raise ValueError(
            "the tie is lost: config.tied, and head.weight is no longer emb.weight (to_empty() and load_state_dict(assign=True)"
            " do that); mend it with model.head.weight = model.emb.weight"
        )


def check_call(model, idx, cache, pad):
    """The `Call` that these arguments make.

    Raises: ValueError for ids outside the vocabulary, more than max_len tokens, a foreign or half-written cache, a wrong pad,
    a text that grows past the trained length of a scaling by length, a lost tie.
    """
    check_tie(model)
    if (
        idx.device.type == "cpu" and not 0 <= idx.min() <= idx.max() < model.config.V
    ):  # a GPU would have to wait
        raise ValueError(
            f"token ids from {idx.min()} to {idx.max()}: this vocabulary has 0 to {model.config.V - 1} (another tokenizer?)"
        )
    start = cache.length if cache is not None else 0
    limit = cache.max_len if cache is not None else model.config.max_len
    if start + idx.shape[1] > limit:
        raise ValueError(
            f"{idx.shape[1]} tokens after {start} need {start + idx.shape[1]} positions: max_len is {limit}"
        )
    if pad is not None:
        if pad.dtype != torch.int64 or list(pad.shape) != [idx.shape[0]]:
            raise ValueError(
                f"pad {list(pad.shape)} of {pad.dtype}: expected one int64 count a row, [{idx.shape[0]}]"
            )
        if pad.device.type == "cpu" and int(pad.min()) < 0:
            raise ValueError(f"pad {pad.tolist()}: expected counts of at least 0")
        if start:
            raise ValueError("pad came with a later call: left padding belongs to the first call of a cache")
    if cache is not None:
        if cache.batch != idx.shape[0]:
            raise ValueError(
                f"{idx.shape[0]} rows of tokens and a cache of {cache.batch}: the batch must stay the same"
            )
        if len(cache.layers) != len(model.blocks):
            raise ValueError(
                f"a cache of {len(cache.layers)} layers and a model of {len(model.blocks)}: another model's cache?"
            )
        if any(layer.length != start for layer in cache.layers):
            raise ValueError(
                "an interrupted call left this cache half-written: make a new one (model.new_cache)"
            )
        pad = pad if pad is not None else cache.pad
    end = start + idx.shape[1]
    if cache is None:
        return Call(start, end, end, pad)
    call = Call(start, max(end, cache.text), limit, pad)
    check_crossing(model.config, cache, call)
    cache.pad = pad
    return call
