"""Caches: what comes back, in which order, from rings and preallocated rows; the bytes they hold; and what they refuse."""

import pytest
import torch

import toys
from lib import KVCache, LatentCache, kv_bytes
from lib.attention import causal_mask

B, N_KV, DH, DV = 2, 3, 4, 5


def columns_of(cache, k):
    """Each stored key is its own column number, so that what comes back says where it came from."""
    return k[0, 0, :, 0].tolist()


def rows(first, T):
    n = torch.arange(first, first + T, dtype=torch.float32)
    return n.view(1, 1, T, 1).expand(B, N_KV, T, DH), -n.view(1, 1, T, 1).expand(B, N_KV, T, DV)


@pytest.mark.parametrize("chunks", [[7, 1, 1, 1], [1] * 10, [3, 4, 1, 2], [10]])
@pytest.mark.parametrize("window", [None, 1, 3, 5, 50])
def test_append_returns_what_its_queries_may_see_in_the_order_of_columns(window, chunks):
    cache, start = KVCache(B, 12, N_KV, DH, DV, window), 0
    for T in chunks:
        said = cache.columns(T).tolist()
        k, v = cache.append(*rows(start, T))
        start += T
        assert columns_of(cache, k) == said == (-v[0, 0, :, 0]).tolist()
        assert k.shape[:2] == (B, N_KV) and v.shape[-1] == DV
        visible = causal_mask(torch.arange(start - T, start), torch.tensor(said), window)
        for t in range(T):
            column = start - T + t
            oldest = 0 if window is None else max(0, column - window + 1)
            seen = sorted(c for c, ok in zip(said, visible[t].tolist()) if ok)
            assert seen == list(range(oldest, column + 1))
        assert len(set(said)) == len(said)
    assert cache.length == start and cache.held == min(start, window or start)


@pytest.mark.parametrize("window", [None, 3])
def test_bytes_held_and_set_aside(window):
    cache = KVCache(B, 12, N_KV, DH, DV, window, dtype=torch.bfloat16)
    each = B * N_KV * (DH + DV) * 2
    assert cache.nbytes == 0 and cache.allocated_nbytes == each * (3 if window else 12)
    for T in (2, 5, 1):
        k, v = rows(0, T)
        cache.append(k.bfloat16(), v.bfloat16())
        assert cache.nbytes == each * min(cache.length, window or 99)
    latent = LatentCache(B, 12, 6, 4, dtype=torch.float32)
    latent.append(torch.randn(B, 5, 10))
    assert latent.nbytes == B * 5 * (6 + 4) * 4 and latent.allocated_nbytes == B * 12 * 10 * 4


@pytest.mark.parametrize("kind", sorted(toys.LAYERS))
def test_the_formula_is_what_is_held_for_every_kind_of_model(kind):
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        lm = toys.model(kind, dtype)
        _, cache = toys.feed(lm, toys.tokens(3, 17), [9, 1, 7], max_len=20)
        assert cache.nbytes == kv_bytes(lm.config, 17, 3, size)
        assert cache.allocated_nbytes == kv_bytes(lm.config, 20, 3, size)
        assert cache.length == 17


def test_nbytes_is_not_multiplied_twice():
    cache = KVCache(2, 8, 4, 16)
    cache.append(torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16))
    assert cache.nbytes == 2 * 4096  # K and V: two float32 arrays of (2, 4, 8, 16)


def test_rows_are_stored_from_the_first_token_on():
    cache = KVCache(B, 12, N_KV, DH, DV)
    cache.append(*rows(7, 1))
    assert cache.k[0, 0, 0].tolist() == [7.0] * DH
    cache.append(*rows(8, 1))
    assert cache.k[0, 0, :2, 0].tolist() == [7.0, 8.0]


def test_errors():
    cache = KVCache(B, 4, N_KV, DH, DV)
    k, v = rows(0, 3)
    with pytest.raises(ValueError, match="cache holds torch.float32, the new tokens are torch.bfloat16"):
        cache.append(k.bfloat16(), v.bfloat16())
    with pytest.raises(ValueError, match="all but the token axis must agree"):
        cache.append(k[:1], v[:1])
    with pytest.raises(ValueError, match="all but the token axis must agree"):
        cache.append(v, k)
    cache.append(k, v)
    with pytest.raises(ValueError, match="cache of 4 tokens holds 3 and 3 more came: 6 rows are needed"):
        cache.append(k, v)
    assert cache.length == 3  # a refused call changes nothing
    for bad in (0, -1, 2.0, None):
        with pytest.raises(ValueError, match="expected a whole number of at least 1"):
            KVCache(B, bad, N_KV, DH)
    with pytest.raises(ValueError, match="batch = 0"):
        LatentCache(0, 4, 6, 4)
