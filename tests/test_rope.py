"""The rotation: numbers, what it keeps, the two layouts and the permutation between them (tested at positions past 32)."""

import math

import pytest
import torch

from lib import apply_rope, layout_permutation, permute_heads, rope_cache, rope_table
from lib.config import Rope, Scaling
from tolerances import as_printed, assert_close, distance, rtol

LAYOUTS = ("half", "adjacent")
OTHER = {"half": "adjacent", "adjacent": "half"}


def turn(x, position, layout="half", base=1e4, r=None, **kw):
    cos, sin = rope_cache(1, r or x.shape[-1], base, start=position, **kw)
    return apply_rope(x, cos.to(x.dtype), sin.to(x.dtype), layout)


def test_the_worked_numbers():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    as_printed(turn(x, 1, "adjacent")[0], [-1.14264, 1.922076, 2.959851, 4.0298], 7)
    as_printed(turn(x, 1, "half")[0], [-1.984111, 1.959901, 2.462378, 4.0198], 7)


def test_partial_rotary_by_hand():
    x = torch.arange(1.0, 9.0)[None]
    want = [-1.413353, 1.879118, -2.828857, 4.058191, 5.0, 6.0, 7.0, 8.0]
    as_printed(turn(x, 3, r=4)[0], want, 7)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_pair_is_a_rotation_matrix(layout):
    x, angle = torch.randn(2, dtype=torch.float64), torch.tensor(37 * 1.0, dtype=torch.float64)
    R = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    got = apply_rope(x[None], angle.cos()[None, None], angle.sin()[None, None], layout)
    assert_close(got[0], R @ x, (2,))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_to_complex_numbers(layout):
    x = torch.randn(2, 3, 50, 14, dtype=torch.float64)
    cos, sin = (t.double() for t in rope_cache(50, 14))
    a, b = x.chunk(2, -1) if layout == "half" else (x[..., 0::2], x[..., 1::2])
    z = torch.complex(a, b) * torch.complex(cos, sin)
    got = apply_rope(x, cos, sin, layout)
    a, b = got.chunk(2, -1) if layout == "half" else (got[..., 0::2], got[..., 1::2])
    assert_close(torch.stack([a, b]), torch.stack([z.real, z.imag]), (2,))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_depend_on_the_offset_alone_and_length_is_kept(layout):
    q, k = torch.randn(1, 1, 1, 14), torch.randn(1, 1, 1, 14)

    def score(m, n):
        return (turn(q, m, layout) * turn(k, n, layout)).sum().item()

    size = q.norm() * k.norm()  # an angle of 40 radians is 40 times as coarse as one of 1
    assert distance(score(5, 2), score(40, 37), 40 * size) <= rtol(torch.float32, (2, 14))
    assert distance(score(10, 10), score(0, 0), 10 * size) <= rtol(torch.float32, (2, 14))
    assert distance(score(5, 3), score(5, 2), size) > 0.001  # and on the offset it does depend
    assert_close(turn(q, 41, layout).norm(), q.norm(), (2, 14))
    assert torch.equal(turn(q, 0, layout), q)  # position 0 is the identity: useless for tests


def test_tables():
    cos, sin = rope_cache(50, 14, 500.0)
    assert cos.shape == sin.shape == (50, 7) and cos.dtype == sin.dtype == torch.float32
    late = rope_cache(8, 14, 500.0, start=42)
    assert torch.equal(late[0], cos[42:]) and torch.equal(late[1], sin[42:])
    as_printed(rope_cache(1, 2, start=5)[0].item(), 0.283662)
    table = rope_table(Rope(500.0, rotary_dim=6), 14, 50)
    assert torch.equal(table[0], rope_cache(50, 6, 500.0)[0])
    yarn = Scaling("yarn", 4.0, 16)
    as_printed(rope_cache(9, 14, scaling=yarn)[0][0], [1.138629] * 7, 7)  # cos(0) = 1, times it
    dynamic = Scaling("dynamic", 2.0, 16)
    assert not torch.equal(rope_cache(9, 14, scaling=dynamic, length=40)[0], rope_cache(9, 14)[0])
    assert torch.equal(rope_cache(9, 14, scaling=dynamic, length=16)[0], rope_cache(9, 14)[0])


def test_positions_are_exact():
    angles = torch.acos(rope_cache(1, 2, start=4095, base=1e9)[0])  # one pair, one radian a token
    assert_close(angles[0, 0], torch.tensor(math.acos(math.cos(4095))), (4095,))
    assert len(torch.arange(4096).float().unique()) == 4096
    assert len(torch.arange(4096).bfloat16().unique()) == 769  # what a bfloat16 position would be


def test_permutations():
    assert layout_permutation(8, "half").tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert layout_permutation(8, "adjacent").tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert layout_permutation(8, "half", rotary_dim=4).tolist() == [0, 2, 1, 3, 4, 5, 6, 7]
    for r in (None, 6):
        there, back = layout_permutation(14, "half", r), layout_permutation(14, "adjacent", r)
        assert torch.equal(there[back], torch.arange(14)) and not torch.equal(there, back)


@pytest.mark.parametrize("r", [14, 6])
@pytest.mark.parametrize("to", LAYOUTS)
def test_permuted_weights_give_the_same_scores_in_the_other_layout(to, r):
    d, h, n_kv, dh, T = 11, 6, 2, 14, 50
    wq, wk = torch.randn(h * dh, d, dtype=torch.float64), torch.randn(n_kv * dh, d, dtype=torch.float64)
    x = torch.randn(T, d, dtype=torch.float64)
    cos, sin = (t.double() for t in rope_cache(T, r))

    def scores(wq, wk, layout):
        q = apply_rope((x @ wq.T).view(T, h, dh).transpose(0, 1), cos, sin, layout)
        k = apply_rope((x @ wk.T).view(T, n_kv, dh).transpose(0, 1), cos, sin, layout)
        return q @ k.repeat_interleave(h // n_kv, 0).transpose(-1, -2)

    right = scores(wq, wk, OTHER[to])
    moved = scores(permute_heads(wq, h, to, r), permute_heads(wk, n_kv, to, r), to)
    assert_close(moved, right, (d, 2, dh))
    wrong = scores(wq, wk, to)
    here = (s.diagonal(dim1=-2, dim2=-1) for s in (wrong, right))
    # offset 0 cannot tell the layouts apart (as far as cos**2 + sin**2 is 1 in the float32 tables)
    assert_close(*here, (d, 2, dh), dtype=torch.float32)
    assert distance(wrong[:, 40, :8], right[:, 40, :8]) > 0.1


def test_permute_heads_moves_gains_and_biases_alike():
    w, gain, bias = torch.randn(28, 5), torch.randn(14), torch.randn(28)
    order = layout_permutation(14, "half")
    assert torch.equal(permute_heads(gain, 1), gain[order])
    assert torch.equal(permute_heads(bias, 2), torch.cat([bias[:14][order], bias[14:][order]]))
    assert torch.equal(permute_heads(permute_heads(w, 2), 2, "adjacent"), w)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_in_is_dtype_out_and_the_rotation_runs_wide(dtype):
    x = torch.randn(2, 3, 50, 14).to(dtype)
    cos, sin = rope_cache(50, 14)
    got = apply_rope(x, cos, sin)
    assert got.dtype == dtype and got.shape == x.shape
    want = apply_rope(x.double(), cos.double(), sin.double())
    assert_close(got, want, (2,))
    if dtype in (
        torch.float16,
        torch.bfloat16,
    ):  # the wide answer, rounded once: a narrow rotation is off in every second entry
        assert (got != want.to(dtype)).double().mean() < 0.01


def test_a_row_of_positions_each():
    x = torch.randn(2, 3, 5, 14)
    cos, sin = rope_cache(50, 14)
    positions = torch.tensor([[0, 0, 1, 2, 3], [37, 38, 39, 40, 41]])
    got = apply_rope(x, cos[positions][:, None], sin[positions][:, None])
    for b in range(2):
        assert_close(got[b], apply_rope(x[b], cos[positions[b]], sin[positions[b]]), (2,))


def test_errors():
    x = torch.randn(2, 3, 5, 14)
    cos, sin = rope_cache(5, 14)
    with pytest.raises(ValueError, match="layout 'interleaved': expected one of half, adjacent"):
        apply_rope(x, cos, sin, "interleaved")
    with pytest.raises(ValueError, match="turns 16 dimensions and x has 14 a head"):
        apply_rope(x, *rope_cache(5, 16))
    with pytest.raises(ValueError, match="one table row .* for each token"):
        apply_rope(x.transpose(1, 2), cos, sin)
    with pytest.raises(ValueError, match="one table row .* for each token"):
        apply_rope(torch.randn(14), cos[3], sin[3])
    with pytest.raises(ValueError, match="floating-point"):
        apply_rope(torch.tensor([[1, 2]]), *rope_cache(1, 2))
    with pytest.raises(ValueError, match="28 rows do not divide into 3 heads"):
        permute_heads(torch.randn(28, 5), 3)
    with pytest.raises(ValueError, match="rotary width 7 of a head of 14"):
        layout_permutation(14, rotary_dim=7)
    with pytest.raises(ValueError, match="rotary width 16 of a head of 14"):
        layout_permutation(14, rotary_dim=16)
    with pytest.raises(ValueError, match="layout 'split'"):
        layout_permutation(14, "split")
