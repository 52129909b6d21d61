"""Exercise 07.clip; written by hand, without reading its checker."""

import torch


def solution(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    shrink = (threshold / largest.clamp(min=threshold))[:, None, None]
    return w_qc * shrink.sqrt(), w_kc * shrink.sqrt(), w_qr * shrink, w_kr


def draw(rng):
    h, dn, c, c2, dr, d = (rng.randint(2, 4), rng.randint(3, 4), 5, 6, 2, 7)
    largest = torch.tensor([rng.uniform(20, 200) for _ in range(h)])
    largest[rng.randrange(h)] = 150.0
    return (
        torch.randn(h, dn, c),
        torch.randn(h, dn, c2),
        torch.randn(h, dr, c),
        torch.randn(dr, d),
        largest,
        rng.choice([50.0, 100.0]),
    )


def _shrink(largest, threshold):
    return (threshold / largest.clamp(min=threshold))[:, None, None]


def no_roots(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the whole factor on both sides, not its root"""
    s = _shrink(largest, threshold)
    return w_qc * s, w_kc * s, w_qr * s, w_kr


def root_on_rotated(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the root on the rotated queries, whose key stays"""
    s = _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s.sqrt(), w_kr


def shared_key_scaled(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the shared key is scaled too, by the loudest head's root"""
    s = _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s.sqrt(), w_kr * s.min().sqrt()


def shared_key_as_well(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the shared key shrinks with the loudest head on top of the right answer"""
    s = _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s, w_kr * s.min()


def quiet_heads_grow(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """no clamp: quiet heads are made louder"""
    s = (threshold / largest)[:, None, None]
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s, w_kr


def loud_heads_kept(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the comparison the other way round: quiet heads change"""
    s = (threshold / largest.clamp(max=threshold))[:, None, None]
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s, w_kr


def inverse(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the factor upside down"""
    s = 1 / _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s, w_kr


def one_factor_for_all(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the loudest head's factor for every head"""
    s = _shrink(largest, threshold).min()
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s, w_kr


def first_heads_factor(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the first head's factor for every head"""
    s = _shrink(largest, threshold)[:1]
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s, w_kr


def queries_only(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the whole factor on the queries, keys untouched"""
    s = _shrink(largest, threshold)
    return w_qc * s, w_kc, w_qr * s, w_kr


def keys_only(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the whole factor on the content keys, content queries untouched"""
    s = _shrink(largest, threshold)
    return w_qc, w_kc * s, w_qr * s, w_kr


def keys_forgotten(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the content keys are forgotten"""
    s = _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc, w_qr * s, w_kr


def rotated_forgotten(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the rotated queries are forgotten"""
    s = _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr, w_kr


def halved_factor(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """half of the factor instead of its root"""
    s = _shrink(largest, threshold)
    half = torch.where(s < 1, s / 2, s)
    return w_qc * half, w_kc * half, w_qr * s, w_kr


def subtracts_root(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """halfway between 1 and the factor instead of the root"""
    s = _shrink(largest, threshold)
    return w_qc * (1 + s) / 2, w_kc * (1 + s) / 2, w_qr * s, w_kr


def weights_clamped(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """clamps the weights at the factor instead of scaling them"""
    s = _shrink(largest, threshold)
    return w_qc.clamp(-s, s), w_kc.clamp(-s, s), w_qr.clamp(-s, s), w_kr


def order(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the two rotated parts are returned before the content parts"""
    s = _shrink(largest, threshold)
    return w_qr * s, w_kr, w_qc * s.sqrt(), w_kc * s.sqrt()


def three_of_four(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """the shared key is not returned"""
    s = _shrink(largest, threshold)
    return w_qc * s.sqrt(), w_kc * s.sqrt(), w_qr * s


def in_place(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    """scales the caller's weights"""
    s = _shrink(largest, threshold)
    return w_qc.mul_(s.sqrt()), w_kc.mul_(s.sqrt()), w_qr.mul_(s), w_kr
