"""Exercises of chapter 08: tied embeddings."""

from book.exercises.core import Exercise, Mistake


def _modules():
    """Tied and untied, a buffer, a frozen part, and the same width twice without being the same matrix."""
    import torch
    from torch import nn

    def pair(V, d, tied):
        model = nn.Module()
        model.emb, model.head = nn.Embedding(V, d), nn.Linear(d, V, bias=False)
        if tied:
            model.head.weight = model.emb.weight
        return model

    counted = pair(11, 3, True)
    counted.norm = nn.BatchNorm1d(7)  # its running statistics are buffers
    frozen = pair(5, 4, False)
    frozen.emb.weight.requires_grad_(False)
    with torch.device("meta"):
        empty = pair(6, 2, True), pair(4, 3, False)
    return [(model,) for model in (pair(13, 6, True), pair(7, 5, False), counted, frozen, *empty)]


def _count(model):
    return sum(p.numel() for p in model.parameters())


def _count_state(model):
    return sum(t.numel() for t in model.state_dict().values())


def _count_named_twice(model):
    return sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))


def _count_without_embedding(model):
    return _count(model) - model.emb.weight.numel()


def _count_by_address(model):
    return sum({p.data_ptr(): p.numel() for p in model.parameters()}.values())


def _count_by_shape(model):
    return sum(n for n, _ in {(p.numel(), tuple(sorted(p.shape))) for p in model.parameters()})


def _count_trainable(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


count = Exercise(
    id="08.count",
    title="Count the unique parameters of a model",
    kind="implement",
    cases=_modules,
    reference=_count,
    mistakes=[
        Mistake(
            _count_state,
            "It sums the state_dict: a tied matrix stands there under two names, and buffers stand there too.",
            "How many different data_ptr() do the entries of the state_dict of a tied model have?",
        ),
        Mistake(
            _count_named_twice,
            "The tied matrix is counted under both of its names, once per module that holds it.",
            "Do emb.weight and head.weight have the same data_ptr()?",
        ),
        Mistake(
            _count_by_address,
            "On the meta device every tensor has the address 0, so different parameters are taken for one.",
            "What is data_ptr() of a tensor that holds no numbers, and does parameters() yield a tied matrix twice?",
        ),
        Mistake(
            _count_without_embedding,
            "The embedding is subtracted, although parameters() had listed it once already.",
            "How often does model.parameters() yield the tied matrix?",
        ),
        Mistake(
            _count_by_shape,
            "Two matrices of the same shape are taken for one.",
            "What makes two tensors the same one: their shape, or their storage?",
        ),
        Mistake(
            _count_trainable,
            "Frozen parameters are left out; they are parameters all the same.",
            "Does requires_grad = False remove a matrix from memory?",
        ),
    ],
)

TOTAL, EMBEDDING = 3_212_749_824, 128_256 * 3072

share = Exercise(
    id="08.share",
    title="The embedding's share of Llama-3.2-3B",
    kind="predict",
    reference=lambda: EMBEDDING / TOTAL,
    mistakes=[
        Mistake(
            lambda: EMBEDDING / (TOTAL + EMBEDDING),
            "The matrix was added to the total once more: that is the untied model's denominator.",
            "Is the tied matrix already among the 3,212,749,824?",
        ),
        Mistake(
            lambda: 2 * EMBEDDING / TOTAL,
            "The matrix is counted twice above the line, once for each of its jobs.",
            "How many numbers does the file hold for its two jobs?",
        ),
        Mistake(
            lambda: 2 * EMBEDDING / (TOTAL + EMBEDDING),
            "That is the share of two matrices in an untied model.",
            "What does tie_word_embeddings = true say about this model?",
        ),
        Mistake(
            lambda: EMBEDDING / (TOTAL - EMBEDDING),
            "That is the embedding against the rest, not against the whole.",
            "Do your share and the share of the layers add up to 1?",
        ),
        Mistake(
            lambda: 100 * EMBEDDING / TOTAL,
            "Right, in per cent; the cell asks for a share between 0 and 1.",
            "What is 26 % as a share?",
        ),
    ],
)


def _files():
    """(state, config): tied with and without a second copy, untied with and without a head, the flag nested in text_config."""
    import torch

    g = torch.Generator().manual_seed(8)

    def matrix(V, d):
        return torch.randn(V, d, generator=g)

    emb, other = matrix(6, 3), matrix(6, 3)
    name, head = "model.embed_tokens.weight", "lm_head.weight"
    return [
        ({name: emb}, {"tie_word_embeddings": True}),
        ({name: emb, head: other}, {"tie_word_embeddings": False}),
        ({name: emb}, {"tie_word_embeddings": False}),
        ({name: emb, head: emb.clone()}, {"tie_word_embeddings": True}),
        ({name: emb, head: other}, {"tie_word_embeddings": True}),
        ({name: emb}, {"text_config": {"tie_word_embeddings": True}}),
        ({name: emb, head: other}, {"text_config": {"tie_word_embeddings": False}}),
        ({name: emb}, {"text_config": {"tie_word_embeddings": False}}),
    ]


def _flag(config):
    return config.get("text_config", config)["tie_word_embeddings"]


def _head(state, config):
    if _flag(config):
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def _head_whenever_missing(state, config):
    return state.get("lm_head.weight", state["model.embed_tokens.weight"])


def _head_always_tied(state, config):
    return state["model.embed_tokens.weight"]


def _head_top_flag(state, config):
    if config.get("tie_word_embeddings", False):
        return state["model.embed_tokens.weight"]
    return state.get("lm_head.weight")


def _head_from_file(state, config):
    return state.get("lm_head.weight")


def _head_from_file_first(state, config):
    return state.get("lm_head.weight", state["model.embed_tokens.weight"] if _flag(config) else None)


def _head_transposed(state, config):
    weight = _head(state, config)
    return None if weight is None else weight.T


head = Exercise(
    id="08.head",
    title="Find the head of a checkpoint",
    kind="implement",
    cases=_files,
    reference=_head,
    mistakes=[
        Mistake(
            _head_whenever_missing,
            "A missing head is always replaced by the embedding: a damaged file of an untied model then loads, and is wrong.",
            "Which of the cases has no lm_head.weight and does not tie?",
        ),
        Mistake(
            _head_always_tied,
            "The embedding is used in untied models too, whose own head is thrown away.",
            "What does tie_word_embeddings = false mean for lm_head.weight?",
        ),
        Mistake(
            _head_top_flag,
            "The flag is read at the top only; a config with a text_config has it inside.",
            "What does config.get('tie_word_embeddings', False) give for a nested config?",
        ),
        Mistake(
            _head_from_file_first,
            "Where the config ties, a file may still hold an old lm_head.weight; you return that one.",
            "Which of the two matrices does a tied model use, whatever else its file holds?",
        ),
        Mistake(
            _head_from_file,
            "A tied checkpoint need not have lm_head.weight; its head is the embedding.",
            "Which tensor turns the last vector into logits in a tied model?",
        ),
        Mistake(
            _head_transposed,
            "The matrix is turned over: nn.Linear stores [outputs, inputs] = [V, d], as the embedding is.",
            "What is the shape of head.weight in nn.Linear(d, V)?",
        ),
    ],
)


def _step_cases():
    import torch

    g = torch.Generator().manual_seed(9)
    return [
        (torch.randn(V, d, generator=g, dtype=torch.float64), torch.tensor(ids), torch.tensor(targets), lr)
        for V, d, ids, targets, lr in (
            (7, 3, [1, 4, 1], [2, 2, 6], 0.5),
            (5, 4, [0, 3], [3, 1], 0.1),
            (9, 2, [8, 8, 5, 2], [1, 0, 8, 5], 1.0),
        )
    ]


def _losses(emb, head, ids, targets):
    import torch

    return torch.nn.functional.cross_entropy(emb[ids] @ head.T, targets)


def _given(E, ids, targets, lr):
    emb = E.clone().requires_grad_()
    head = E.clone().requires_grad_()
    loss = (emb[ids] @ head.T).log_softmax(-1)[range(len(ids)), targets].mean().neg()
    loss.backward()
    return emb.detach() - lr * emb.grad, head.detach() - lr * head.grad


def _step(E, ids, targets, lr):
    emb = E.clone().requires_grad_()
    _losses(emb, emb, ids, targets).backward()
    new = emb.detach() - lr * emb.grad
    return new, new


def _head_copied(E, ids, targets, lr):
    emb, _ = _given(E, ids, targets, lr)
    return emb, emb


def _emb_copied(E, ids, targets, lr):
    _, head = _given(E, ids, targets, lr)
    return head, head


def _averaged(E, ids, targets, lr):
    emb, head = _given(E, ids, targets, lr)
    return (emb + head) / 2, (emb + head) / 2


fault = Exercise(
    id="08.step",
    title="Find the fault in a training step that is meant to be tied",
    kind="find the fault",
    cases=_step_cases,
    reference=_step,
    given=_given,
    mistakes=[
        Mistake(
            _given,
            "emb and head start equal and are two tensors: after the step they differ.",
            "Is head.data_ptr() the same as emb.data_ptr()?",
        ),
        Mistake(
            _averaged,
            "The two are averaged after the step: a tied matrix gets the sum of both gradients, not half of each.",
            "If a matrix has two jobs, does each job's gradient count half?",
        ),
        Mistake(
            _head_copied,
            "Both matrices are the embedding after its own step: the head's gradient was lost, by a copy after the step or a detach before it.",
            "Which rows of the gradient are zero, and should they be?",
        ),
        Mistake(
            _emb_copied,
            "Both matrices are the head after its own step: the lookup's gradient was lost, by a copy after the step or a detach before it.",
            "Where does the gradient go that flows back into emb[ids]?",
        ),
    ],
)

head_flops = Exercise(
    id="08.flops",
    title="FLOPs of a tied head for one token",
    kind="predict",
    reference=lambda: 2 * 128_256 * 2048,
    mistakes=[
        Mistake(
            0,
            "A tied head stores nothing of its own and multiplies all the same.",
            "Which operation turns the last vector into V logits?",
        ),
        Mistake(
            lambda: 128_256 * 2048,
            "Those are the multiplications; each comes with an addition.",
            "How many FLOPs does a matrix with n entries cost per token?",
        ),
        Mistake(
            lambda: 4 * 128_256 * 2048,
            "The lookup is counted like a matrix product; it copies one row.",
            "How many multiplications does emb[id] do?",
        ),
        Mistake(
            lambda: 6 * 128_256 * 2048,
            "That is forward and backward together, as in training.",
            "Does the question ask for one forward pass?",
        ),
    ],
)
