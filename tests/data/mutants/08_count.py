"""Exercise 08.count; written by hand, without reading its checker."""

import torch
from torch import nn


def solution(model):
    return sum(w.numel() for w in model.parameters())


def draw(rng):
    vocab, d, device = rng.randint(5, 9), rng.randint(3, 4), rng.choice(["cpu", "meta"])
    model = nn.ModuleDict(
        {
            "emb": nn.Embedding(vocab, d, device=device),
            "mid": nn.Sequential(nn.Linear(d, 2 * d, device=device), nn.BatchNorm1d(2 * d, device=device)),
            "head": nn.Linear(d, vocab, bias=False, device=device),
        }
    )
    if rng.random() < 0.6:
        model["head"].weight = model["emb"].weight
    if rng.random() < 0.5:
        model["mid"].requires_grad_(False)
    return (model,)


def trainable_only(model):
    """frozen parameters left out"""
    return sum(w.numel() for w in model.parameters() if w.requires_grad)


def tied_twice(model):
    """a tied matrix counted under each name"""
    return sum(w.numel() for _, w in model.named_parameters(remove_duplicate=False))


def state_dict_entries(model):
    """all entries of the state dict: ties twice, buffers too"""
    return sum(w.numel() for w in model.state_dict().values())


def with_buffers(model):
    """buffers counted"""
    return sum(w.numel() for w in model.parameters()) + sum(b.numel() for b in model.buffers())


def by_pointer(model):
    """unique by data pointer: all are 0 on meta"""
    return sum({w.data_ptr(): w.numel() for w in model.parameters()}.values())


def by_shape(model):
    """unique by shape"""
    return sum({w.shape: w.numel() for w in model.parameters()}.values())


def number_of_tensors(model):
    """how many tensors"""
    return len(list(model.parameters()))


def bytes_counted(model):
    """bytes instead of numbers"""
    return sum(w.numel() * w.element_size() for w in model.parameters())


def rows_only(model):
    """the first axis of each"""
    return sum(w.shape[0] for w in model.parameters())


def matrices_only(model):
    """vectors left out"""
    return sum(w.numel() for w in model.parameters() if w.dim() > 1)


def weights_by_name(model):
    """only what is called weight: biases left out"""
    return sum(w.numel() for name, w in model.named_parameters() if name.endswith("weight"))


def direct_only(model):
    """only the module's own, no children"""
    return sum(w.numel() for w in model.parameters(recurse=False))


def children_summed(model):
    """summed child by child: a tie between children counts twice"""
    return sum(w.numel() for child in model.children() for w in child.parameters())


def on_cpu_only(model):
    """parameters on meta left out"""
    return sum(w.numel() for w in model.parameters() if not w.is_meta)


def head_left_out(model):
    """whatever is called head is left out"""
    return sum(w.numel() for name, w in model.named_parameters() if not name.startswith("head"))


def embedding_left_out(model):
    """the embedding is left out"""
    return sum(w.numel() for name, w in model.named_parameters() if "emb" not in name)


def in_millions(model):
    """in millions"""
    return sum(w.numel() for w in model.parameters()) / 1e6


def as_tensor(model):
    """a tensor instead of a number"""
    return torch.tensor(sum(w.numel() for w in model.parameters()))
