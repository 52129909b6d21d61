"""Which stored tensor fills which parameter: made, and checked, from headers alone; filled in one go."""

import re
import warnings

import torch
from torch import nn

from lib.files.names import MODEL_TYPES, hf_name

HARMLESS = re.compile(r"\.rotary_emb\.inv_freq$")  # computed from the config; older files carry it along


def split_rows(w, sizes, order="flat", n_groups=1):
    """The parts of a fused tensor, each with `sizes` rows: q, k, v of one matrix, or gate and up.

    order "flat": all of q, then all of k, then all of v (Phi-3). "grouped": n_groups groups of rows, each with its share of
    q, k and v (NeoX: a group a head; Falcon, InternLM2: a group a KV head). The shapes do not tell the two apart.
    Raises: ValueError if the sizes do not fill the rows, or do not divide into the groups.
    """
    if sum(sizes) != w.shape[0]:
        raise ValueError(
            f"a fused tensor of {w.shape[0]} rows is to be split into {list(sizes)}, which fill {sum(sizes)}"
        )
    if order == "flat":
        return w.split(list(sizes))
    if order != "grouped" or any(size % n_groups for size in sizes):
        raise ValueError(
            f"order {order!r} with {n_groups} groups for {list(sizes)} rows: expected 'flat', or 'grouped' and sizes that divide"
        )
    shares = w.unflatten(0, (n_groups, -1)).split([size // n_groups for size in sizes], dim=1)
    return tuple(share.flatten(0, 1) for share in shares)


def check_claim(config, source):
    """Before a model is built: its tensors' names are known, and every layer that the config claims has some.

    A header can claim 10,000 layers in a few bytes, and a model of them takes many seconds to build even on "meta".
    Raises: ValueError.
    """
    if config.model_type not in MODEL_TYPES:
        raise ValueError(
            f"{source.path}: the tensor names of model_type {config.model_type!r} are not known here; known: {', '.join(MODEL_TYPES)}"
        )
    numbers = (re.match(r"model\.layers\.(\d{1,9})\.", name) for name in source)
    there = {int(match[1]) for match in numbers if match}
    missing = [i for i in range(config.n_layers) if i not in there]
    if missing:
        raise ValueError(
            f"{source.path}: the config has {config.n_layers:,} layers, and all tensors of {len(missing):,} are missing, first of layer"
            f" {missing[0]}: a damaged header, another config.json, or an incomplete download"
        )


class Plan:
    """Which stored tensor fills which parameter. Made and checked from headers alone."""

    def __init__(self, model, source):
        self.model, self.source, config = model, source, model.config
        fills = {
            name: hf_name(name, config) for name, _ in model.named_parameters()
        }  # a tied head appears once, as emb
        groups = {}
        for name, (theirs, part, _) in fills.items():
            groups.setdefault(theirs, []).append((part, name))
        self.groups = {
            theirs: [name for _, name in sorted(parts, key=lambda p: p[0] or 0)]
            for theirs, parts in groups.items()
        }
        self.orders = {theirs: order for theirs, _, order in fills.values()}
        self._check_names(config)
        for theirs, names in self.groups.items():
            self._check_shape(theirs, names)

    def _check_names(self, config):
        there = {name for name in self.source if not HARMLESS.search(name)}
        missing = [name for name in self.groups if name not in there]
        if missing:
            hint = ""
            if missing == ["lm_head.weight"]:
                hint = "; the config does not tie the head to the embedding (tie_word_embeddings)"
            raise ValueError(
                f"{self.source.path}: {len(missing)} tensors are missing, first {missing[0]!r}{hint}"
            )
        extra = sorted(there - self.groups.keys())
        self.second_head = config.tied and extra == [
            "lm_head.weight"
        ]  # some files store the tied matrix twice
        if extra and not self.second_head:
            raise ValueError(
                f"{self.source.path}: {len(extra)} tensors that a {config.model_type} of this config does not have, first {extra[0]!r}:"
                " wrong config.json, or a feature that the block does not run"
            )

    def _check_shape(self, theirs, names):
        shapes = [tuple(self.model.get_parameter(name).shape) for name in names]
        want = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        if self.source.shape(theirs) != want:
            raise ValueError(
                f"{self.source.path}: {theirs} has shape {list(self.source.shape(theirs))}, expected {list(want)} from the config"
                f" ({', '.join(names)}, rows are outputs)"
            )
        self.source.dtype(theirs)  # raises for a quantised one

    def _check_second_head(self):
        """A tied matrix that the file stores twice: equal, or the one a rounding of the other."""
        head, emb = (self.source.read(f"{name}.weight") for name in ("lm_head", "model.embed_tokens"))
        if head.shape == emb.shape and head.dtype == emb.dtype and torch.equal(head, emb):
            return
        if head.shape != emb.shape:
            raise ValueError(
                f"{self.source.path}: the config ties the head, and lm_head.weight is {list(head.shape)}, the embedding"
                f" {list(emb.shape)}: wrong config"
            )
        apart = (head.double() - emb.double()).abs().max().item()
        rounded = torch.equal(emb.to(head.dtype), head) or torch.equal(head.to(emb.dtype), emb)
        if not rounded:
            raise ValueError(
                f"{self.source.path}: the config ties the head, and lm_head.weight is not the embedding: they differ by up to"
                f" {apart:.3g}: wrong config, or a fine-tune that trained the two apart"
            )
        if apart:
            warnings.warn(
                f"{self.source.path}: tied, and lm_head.weight is stored again in {head.dtype} beside an embedding in"
                f" {emb.dtype}, up to {apart:.3g} apart: the embedding is used for both",
                stacklevel=3,
            )

    def fill(self, dtype, device):
        """Read every tensor once and put it in place; ties stay ties."""
        if self.second_head:
            self._check_second_head()
        new = {}
        for theirs, names in self.groups.items():
            w = self.source.read(theirs, dtype, device)
            parts = [w]
            if len(names) > 1:
                parts = split_rows(
                    w, [self.model.get_parameter(name).shape[0] for name in names], self.orders[theirs]
                )
            for name, part in zip(names, parts):
                new[id(self.model.get_parameter(name))] = nn.Parameter(part, requires_grad=False)
        for name, old in list(self.model.named_parameters(remove_duplicate=False)):
            owner, _, leaf = name.rpartition(".")
            setattr(self.model.get_submodule(owner), leaf, new[id(old)])
        return self.model
