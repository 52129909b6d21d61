"""Exercise 11.online; written by hand, without reading its checker. The mutants are in PyTorch: a kernel each would take minutes."""

import torch
import triton
import triton.language as tl


@triton.jit
def _online_kernel(Q, K, V, Y, S, scale, D: tl.constexpr, KEYS: tl.constexpr):
    i, n = tl.arange(0, D), tl.arange(0, KEYS)
    q = tl.load(Q + i)
    best, total, out = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for start in range(0, S, KEYS):
        at, here = (start + n)[:, None] * D + i[None, :], start + n < S
        k = tl.load(K + at, mask=here[:, None], other=0.0)
        v = tl.load(V + at, mask=here[:, None], other=0.0)
        s = tl.where(here, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        new = tl.maximum(best, tl.max(s, axis=0))
        p, keep = tl.exp(s - new), tl.exp(best - new)
        total = total * keep + tl.sum(p, axis=0)
        out = out * keep + tl.sum(p[:, None] * v, axis=0)
        best = new
    tl.store(Y + i, out / total)


def solution(scores, values, block):
    S, D = values.shape
    y, keys = torch.empty(D), torch.zeros(S, D)
    keys[:, 0] = scores
    query = torch.zeros(D)
    query[0] = 1
    _online_kernel[(1,)](query, keys, values.contiguous(), y, S, 1.0, D=D, KEYS=block)
    return y


def draw(rng):
    S, D = rng.randint(5, 20), rng.choice([4, 8])
    return torch.randn(S) * rng.choice([1.0, 4.0]), torch.randn(S, D), rng.choice([2, 4, 8])


def _run(scores, values, block, step):
    best, total, out = torch.tensor(float("-inf")), torch.tensor(0.0), torch.zeros(values.shape[1])
    for i in range(0, len(scores), block):
        best, total, out = step(best, total, out, scores[i : i + block], values[i : i + block])
    return out / total


def total_not_rescaled(scores, values, block):
    """the sum is not rescaled to the new maximum"""

    def step(best, total, out, s, v):
        new = torch.maximum(best, s.max())
        p = (s - new).exp()
        return new, total + p.sum(), out * (best - new).exp() + p @ v

    return _run(scores, values, block, step)


def out_not_rescaled(scores, values, block):
    """the weighted values are not rescaled"""

    def step(best, total, out, s, v):
        new = torch.maximum(best, s.max())
        p = (s - new).exp()
        return new, total * (best - new).exp() + p.sum(), out + p @ v

    return _run(scores, values, block, step)


def neither_rescaled(scores, values, block):
    """nothing is rescaled"""

    def step(best, total, out, s, v):
        new = torch.maximum(best, s.max())
        p = (s - new).exp()
        return new, total + p.sum(), out + p @ v

    return _run(scores, values, block, step)


def block_maximum(scores, values, block):
    """the block's own maximum instead of the running one, nothing rescaled"""

    def step(best, total, out, s, v):
        p = (s - s.max()).exp()
        return best, total + p.sum(), out + p @ v

    return _run(scores, values, block, step)


def rescaled_the_other_way(scores, values, block):
    """rescaled by exp(new - best)"""

    def step(best, total, out, s, v):
        new = torch.maximum(best, s.max())
        p, keep = (s - new).exp(), (new - best).exp() if best > float("-inf") else torch.tensor(0.0)
        return new, total * keep + p.sum(), out * keep + p @ v

    return _run(scores, values, block, step)


def rest_dropped(scores, values, block):
    """the last block is dropped where it is not full"""
    S = len(scores) // block * block
    return scores[:S].softmax(0) @ values[:S]


def first_block_only(scores, values, block):
    """only the first block"""
    return scores[:block].softmax(0) @ values[:block]


def last_block_only(scores, values, block):
    """only the last block"""
    start = (len(scores) - 1) // block * block
    return scores[start:].softmax(0) @ values[start:]


def masked_with_zero(scores, values, block):
    """the lanes past S have score 0 instead of minus infinity"""
    pad = -len(scores) % block
    s = torch.cat([scores, torch.zeros(pad)])
    v = torch.cat([values, torch.zeros(pad, values.shape[1])])
    return s.softmax(0) @ v


def not_divided(scores, values, block):
    """not divided by the sum"""
    return (scores - scores.max()).exp() @ values


def divided_per_block(scores, values, block):
    """each block is divided by its own sum, and added"""
    return sum(scores[i : i + block].softmax(0) @ values[i : i + block] for i in range(0, len(scores), block))


def blocks_averaged(scores, values, block):
    """the mean of the blocks' softmaxes"""
    starts = range(0, len(scores), block)
    return sum(scores[i : i + block].softmax(0) @ values[i : i + block] for i in starts) / len(starts)


def scaled(scores, values, block):
    """divided by the root of D first"""
    return (scores / values.shape[1] ** 0.5).softmax(0) @ values


def base_two(scores, values, block):
    """2 to the score instead of e"""
    return (scores * 0.6931471805599453).softmax(0) @ values


def maximum_from_zero(scores, values, block):
    """the sum starts at 1 instead of 0"""
    top = scores.max()
    p = (scores - top).exp()
    return p @ values / (p.sum() + (scores[:block].max() - top).exp())


def weights(scores, values, block):
    """the weights instead of the weighted values"""
    return scores.softmax(0)


def first_value_twice(scores, values, block):
    """one step before the first block's end is read again: blocks overlap by one"""
    s, v = [], []
    for i in range(0, len(scores), block):
        s.append(scores[i : i + block + 1])
        v.append(values[i : i + block + 1])
    return torch.cat(s).softmax(0) @ torch.cat(v)


def double_result(scores, values, block):
    """the result in float64"""
    return scores.double().softmax(0) @ values.double()
