"""Exercise 08.load: a tie that survives load_state_dict(assign=True)."""

from book.exercises.core import Exercise, Mistake


def _pair(g, device, tied):
    import torch
    from torch import nn

    model = nn.Module()
    model.emb, model.head = nn.Embedding(5, 3, device=device), nn.Linear(3, 5, bias=False, device=device)
    for matrix in (model.emb, model.head) if device == "cpu" else ():
        matrix.weight = nn.Parameter(torch.randn(5, 3, generator=g))
    if tied:
        model.head.weight = model.emb.weight
    return model


def _load_cases():
    """Which matrices a file holds, and whether the config ties; the model starts tied or not, at the end without numbers."""
    import torch

    g = torch.Generator().manual_seed(11)
    draw = lambda *names: {name: torch.randn(5, 3, generator=g) for name in names}
    emb, head = "emb.weight", "head.weight"
    files = [(draw(emb), True), (draw(emb, head), True), (draw(emb, head), False), (draw(emb), False)]
    cases = [(_pair(g, "cpu", start), state, tie) for state, tie in files for start in (True, False)]
    return cases + [(_pair(g, "meta", tie), state, tie) for state, tie in files[1:3]]


def _load(model, state, tie):
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(
        {**state, "head.weight": state["emb.weight" if tie else "head.weight"]}, assign=True
    )
    if tie:
        model.head.weight = model.emb.weight
    return list(model.parameters())


def _load_loose(model, state, tie):
    model.load_state_dict(state, assign=True, strict=False)
    return list(model.parameters())


def _load_same_tensor(model, state, tie):
    if not tie and "head.weight" not in state:
        return None
    model.load_state_dict(
        {**state, "head.weight": state["emb.weight" if tie else "head.weight"]}, assign=True
    )
    return list(model.parameters())


def _load_whenever_missing(model, state, tie):
    if tie or "head.weight" not in state:
        return _load(model, state, True)
    return _load(model, state, False)


def _load_only_missing(model, state, tie):
    if "head.weight" in state:
        return _load(model, state, False)
    return _load(model, state, tie)


def _load_head_wins(model, state, tie):
    if tie and "head.weight" in state:
        return _load(model, {"emb.weight": state["head.weight"]}, True)
    return _load(model, state, tie)


def _load_always_tied(model, state, tie):
    return _load(model, state, True)


load = Exercise(
    id="08.load",
    title="Load a model so that its tie survives",
    kind="implement",
    cases=_load_cases,
    reference=_load,
    mutates=True,
    hint="On the meta device a model has no numbers to copy into: only assign=True gives it some.",
    mistakes=[
        Mistake(
            _load_same_tensor,
            "The numbers are right, and the tied model has two parameters: assign=True wraps the tensor once under each name.",
            "What does an optimizer do with two parameters that hold the same numbers?",
        ),
        Mistake(
            _load_loose,
            "strict=False lets a missing head pass: it stays a matrix of its own, without numbers, and nothing ties it again.",
            "Is model.head.weight the same object as model.emb.weight after your load?",
        ),
        Mistake(
            _load_whenever_missing,
            "A missing head is always replaced by the embedding: a damaged file of an untied model then loads.",
            "What is wrong with a file that has no head and a config that does not tie?",
        ),
        Mistake(
            _load_only_missing,
            "The tie is made only where the file has no head; a tied model's file may hold an old one.",
            "What does the config say about that file?",
        ),
        Mistake(
            _load_head_wins,
            "Tied, but with the numbers of the old head: the later of two assignments won.",
            "Which of the two names does the config of a tied model trust?",
        ),
        Mistake(
            _load_always_tied,
            "Untied models come out tied: their own head is thrown away.",
            "What does `tie` say?",
        ),
    ],
)
