"""Exercise 08.step; written by hand, without reading its checker."""

import torch


def solution(E, ids, targets, lr):
    emb = head = E.clone().requires_grad_()
    loss = (emb[ids] @ head.T).log_softmax(-1)[range(len(ids)), targets].mean().neg()
    loss.backward()
    return emb.detach() - lr * emb.grad, head.detach() - lr * head.grad


def draw(rng):
    vocab, d, n = rng.randint(5, 8), rng.randint(3, 4), rng.randint(3, 6)
    ids, targets = (torch.tensor([rng.randrange(vocab) for _ in range(n)]) for _ in range(2))
    return torch.randn(vocab, d), ids, targets, rng.choice([0.1, 1.0])


def _loss(emb, head, ids, targets):
    return (emb[ids] @ head.T).log_softmax(-1)[range(len(ids)), targets].mean().neg()


def _parts(E, ids, targets):
    emb, head = E.clone().requires_grad_(), E.clone().requires_grad_()
    _loss(emb, head, ids, targets).backward()
    return emb.grad, head.grad


def unmended(E, ids, targets, lr):
    """two copies, as it was"""
    a, b = _parts(E, ids, targets)
    return E - lr * a, E - lr * b


def embedding_path_only(E, ids, targets, lr):
    """only the gradient through the embedding"""
    a, _ = _parts(E, ids, targets)
    return E - lr * a, E - lr * a


def head_path_only(E, ids, targets, lr):
    """only the gradient through the head"""
    _, b = _parts(E, ids, targets)
    return E - lr * b, E - lr * b


def averaged(E, ids, targets, lr):
    """the two gradients averaged"""
    a, b = _parts(E, ids, targets)
    new = E - lr * (a + b) / 2
    return new, new.clone()


def matrices_averaged(E, ids, targets, lr):
    """the two updated matrices averaged"""
    a, b = _parts(E, ids, targets)
    new = ((E - lr * a) + (E - lr * b)) / 2
    return new, new


def two_steps(E, ids, targets, lr):
    """the shared gradient applied twice"""
    a, b = _parts(E, ids, targets)
    new = E - 2 * lr * (a + b)
    return new, new


def ascends(E, ids, targets, lr):
    """adds the gradient"""
    a, b = _parts(E, ids, targets)
    return E + lr * (a + b), E + lr * (a + b)


def no_step(E, ids, targets, lr):
    """returns the matrices as they were"""
    return E.clone(), E.clone()


def gradients(E, ids, targets, lr):
    """returns the gradients"""
    a, b = _parts(E, ids, targets)
    return a + b, a + b


def lr_forgotten(E, ids, targets, lr):
    """the learning rate is forgotten"""
    a, b = _parts(E, ids, targets)
    return E - (a + b), E - (a + b)


def summed_loss(E, ids, targets, lr):
    """the loss summed, not averaged"""
    a, b = _parts(E, ids, targets)
    return E - lr * (a + b) * len(ids), E - lr * (a + b) * len(ids)


def targets_swapped(E, ids, targets, lr):
    """ids and targets exchanged"""
    return solution(E, targets, ids, lr)


def head_copied_back(E, ids, targets, lr):
    """the head's update copied over the embedding after the step"""
    _, b = _parts(E, ids, targets)
    new = E - lr * b
    return new, new.clone()


def only_first_updated(E, ids, targets, lr):
    """the shared gradient goes to the embedding alone"""
    a, b = _parts(E, ids, targets)
    return E - lr * (a + b), E.clone()


def subtracts_parts(E, ids, targets, lr):
    """the head's gradient is subtracted from the embedding's"""
    a, b = _parts(E, ids, targets)
    return E - lr * (a - b), E - lr * (a - b)


def one_matrix(E, ids, targets, lr):
    """returns one matrix"""
    a, b = _parts(E, ids, targets)
    return E - lr * (a + b)


def in_place(E, ids, targets, lr):
    """changes the caller's E"""
    a, b = _parts(E, ids, targets)
    E -= lr * (a + b)
    return E, E


def probabilities(E, ids, targets, lr):
    """the mean probability instead of its logarithm"""
    emb = E.clone().requires_grad_()
    (emb[ids] @ emb.T).softmax(-1)[range(len(ids)), targets].mean().neg().backward()
    return emb.detach() - lr * emb.grad, emb.detach() - lr * emb.grad
