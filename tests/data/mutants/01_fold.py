"""Exercise 01.fold; written by hand, without reading its checker."""

import torch


def solution(W, gain):
    return W * gain


def draw(rng):
    d = rng.randint(3, 7)
    out = d if rng.random() < 0.3 else d + rng.randint(1, 4)
    return torch.randn(out, d), 1 + torch.randn(d) / 2


def rows(W, gain):
    """scales the rows, gain padded with ones"""
    g = torch.cat([gain, torch.ones(len(W) - len(gain))])
    return W * g[:, None]


def column_vector(W, gain):
    """gain along the output axis: raises unless W is square"""
    return gain[:, None] * W


def transposed(W, gain):
    """the transpose of the answer"""
    return (W * gain).T


def divided(W, gain):
    """divides by the gain"""
    return W / gain


def added(W, gain):
    """adds the gain"""
    return W + gain


def product_vector(W, gain):
    """the matrix-vector product W g"""
    return W @ gain


def diagonal_left(W, gain):
    """diag(g) on the left: raises unless square"""
    return torch.diag(gain) @ W


def unfolded(W, gain):
    """W as it is"""
    return W


def offset(W, gain):
    """1 + gain, Gemma's"""
    return W * (1 + gain)


def twice(W, gain):
    """the gain twice"""
    return W * gain * gain


def root(W, gain):
    """the root of the gain's size"""
    return W * gain.abs().sqrt()


def mean_gain(W, gain):
    """one number for all: the mean gain"""
    return W * gain.mean()


def normalised_gain(W, gain):
    """the gain divided by its own mean"""
    return W * (gain / gain.mean())


def absolute(W, gain):
    """the gain's size, without its sign"""
    return W * gain.abs()


def flipped(W, gain):
    """the gain in reverse order"""
    return W * gain.flip(0)


def in_place(W, gain):
    """scales the caller's W too"""
    W *= gain
    return W
