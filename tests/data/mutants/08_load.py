"""Exercise 08.load; written by hand, without reading its checker."""

import torch


class _Model(torch.nn.Module):
    def __init__(self, vocab, d, tie):
        super().__init__()
        self.emb = torch.nn.Embedding(vocab, d, device="meta")
        self.head = torch.nn.Linear(d, vocab, bias=False, device="meta")
        if tie:
            self.head.weight = self.emb.weight


def solution(model, state, tie):
    if not tie and "head.weight" not in state:
        return None
    state = {**state, "head.weight": state["emb.weight" if tie else "head.weight"]}
    model.load_state_dict(state, assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def draw(rng):
    vocab, d, tie = rng.randint(5, 8), rng.randint(3, 4), rng.random() < 0.5
    torch.manual_seed(rng.randrange(1000))
    state = {"emb.weight": torch.randn(vocab, d)}
    if rng.random() < 0.6:
        state["head.weight"] = torch.randn(vocab, d)
    return _Model(vocab, d, tie), state, tie


def _filled(state, tie):
    return {**state, "head.weight": state["emb.weight" if tie else "head.weight"]}


def not_tied_again(model, state, tie):
    """loads and does not tie again"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    return list(model.parameters())


def always_tied(model, state, tie):
    """ties whatever was asked for"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    model.head.weight = model.emb.weight
    return list(model.parameters())


def tied_the_wrong_way(model, state, tie):
    """the head's old numbers win in a tied model"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(
        {**state, "head.weight": state.get("head.weight", state["emb.weight"])}, assign=True
    )
    if tie:
        model.emb.weight = model.head.weight
    return list(model.parameters())


def tied_where_no_head(model, state, tie):
    """ties where the state has no head, whatever the flag says"""
    tie = "head.weight" not in state
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def missing_head_copied(model, state, tie):
    """an untied model without a head gets the embedding's numbers"""
    state = {"head.weight": state["emb.weight"], **state}
    if tie:
        state["head.weight"] = state["emb.weight"]
    model.load_state_dict(state, assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def refuses_without_head(model, state, tie):
    """None for a tied model without a head in the file, too"""
    if "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def refuses_stale_head(model, state, tie):
    """None for a tied model whose file holds a head"""
    if tie == ("head.weight" in state):
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def tied_before(model, state, tie):
    """ties before loading, and loading cuts it"""
    if not tie and "head.weight" not in state:
        return None
    if tie:
        model.head.weight = model.emb.weight
    model.load_state_dict(_filled(state, tie), assign=True)
    return list(model.parameters())


def numbers_copied(model, state, tie):
    """copies the numbers into a second parameter"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = torch.nn.Parameter(model.emb.weight.detach().clone())
    return list(model.parameters())


def data_shared(model, state, tie):
    """shares storage, but keeps two parameters"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight.data = model.emb.weight.data
    return list(model.parameters())


def flag_inverted(model, state, tie):
    """the flag the other way round"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if not tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def without_assign(model, state, tie):
    """without assign=True: a model on meta stays empty"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie))
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def not_strict(model, state, tie):
    """strict=False: a missing head stays on meta"""
    model.load_state_dict(state, assign=True, strict=False)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def only_the_embedding(model, state, tie):
    """returns the embedding alone"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return [model.emb.weight]


def named(model, state, tie):
    """returns pairs of name and parameter"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return list(model.named_parameters())


def both_names(model, state, tie):
    """returns the shared parameter twice"""
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(_filled(state, tie), assign=True)
    if tie:
        model.head.weight = model.emb.weight
    return [model.emb.weight, model.head.weight]
