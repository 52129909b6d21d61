"""Exercise 11.join; written by hand, without reading its checker."""

import torch


def solution(best, total, part):
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / (share * total).sum()


def draw(rng):
    P, D = rng.randint(2, 5), rng.randint(6, 8)
    return torch.randn(P) * rng.choice([1.0, 5.0]), torch.rand(P) * 4 + 1, torch.randn(P, D)


def unmended(best, total, part):
    """the sums are not rescaled, as it was"""
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / total.sum()


def values_not_rescaled(best, total, part):
    """the sums are rescaled and the values are not"""
    share = (best - best.max()).exp()
    return part.sum(0) / (share * total).sum()


def nothing_rescaled(best, total, part):
    """nothing is rescaled"""
    return part.sum(0) / total.sum()


def softmax_of_maxima(best, total, part):
    """the parts' averages weighted by the softmax of the maxima"""
    return (best.softmax(0)[:, None] * part / total[:, None]).sum(0)


def averages_averaged(best, total, part):
    """the mean of the parts' averages"""
    return (part / total[:, None]).mean(0)


def averages_added(best, total, part):
    """each part divided by its own sum, shares added"""
    share = (best - best.max()).exp()
    return (share[:, None] * part / (share * total)[:, None]).sum(0)


def total_of_shares(best, total, part):
    """divided by the sum of the shares"""
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / share.sum()


def shares_times_total_in_both(best, total, part):
    """the part is weighted by its sum as well"""
    share = (best - best.max()).exp() * total
    return (share[:, None] * part).sum(0) / share.sum()


def sign(best, total, part):
    """exp(max - best)"""
    share = (best.max() - best).exp()
    return (share[:, None] * part).sum(0) / (share * total).sum()


def no_exponent(best, total, part):
    """the maxima themselves as shares"""
    share = best / best.max()
    return (share[:, None] * part).sum(0) / (share * total).sum()


def largest_part(best, total, part):
    """only the part with the largest maximum"""
    i = best.argmax()
    return part[i] / total[i]


def minimum(best, total, part):
    """the largest share clamped: min in the place of the difference"""
    share = (best - best.mean()).clamp(max=0).exp()
    return (share[:, None] * part).sum(0) / (share * total).sum()


def not_divided(best, total, part):
    """not divided"""
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0)


def largest_sum(best, total, part):
    """divided by the sum of the loudest part"""
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / total[best.argmax()]


def mean_of_parts(best, total, part):
    """the mean over the parts in the numerator"""
    share = (best - best.max()).exp()
    return (share[:, None] * part).mean(0) / (share * total).sum()


def no_maximum(best, total, part):
    """the square root of the shares on the values"""
    share = (best - best.max()).exp()
    return (share.sqrt()[:, None] * part).sum(0) / (share * total).sum()


def share_twice(best, total, part):
    """the share squared below"""
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / (share * share * total).sum()


def last_part_missing(best, total, part):
    """the last part is left out"""
    return solution(best[:-1], total[:-1], part[:-1])
