"""book.predict: what is printed, that it is the same each time, that a guess never stops a chapter and a false claim does."""

import contextlib
import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from book.predict import check_close, check_equal, check_shape, predict


class Hostile:
    def __getattr__(self, name):
        raise MemoryError

    def __eq__(self, other):
        raise ZeroDivisionError

    __hash__ = None


@pytest.mark.parametrize(
    ("guess", "truth", "unit", "line"),
    [
        (None, 131_072, "B", "truth: 131,072 B"),
        (..., 0.365148, "", "truth: 0.365148"),
        (65_536, 131_072, "B", "guess: 65,536 B   truth: 131,072 B   too small by a factor of 2"),
        (262_144, 131_072, "", "guess: 262,144   truth: 131,072   too large by a factor of 2"),
        (131_072, 131_072, "", "guess: 131,072   truth: 131,072   right"),
        (0.365, 0.365148, "", "guess: 0.365   truth: 0.365148   right"),
        (0.38, 0.365148, "", "guess: 0.38   truth: 0.365148   too large by 4.1 %"),
        (-1, 3, "", "guess: -1   truth: 3   off by -4"),
        ("half", "Half", "", "guess: half   truth: Half   right"),
        ("half", 3, "", "guess: half   truth: 3   the guess is a str, the truth a number"),
        ([1, 2, 4], [1, 2, 3], "", "guess: [1, 2, 4]   truth: [1, 2, 3]   2 of 3 right"),
        ([1, 2], [1, 2, 3], "", "guess: [1, 2]   truth: [1, 2, 3]   the guess has shape [2], the truth [3]"),
        (float("nan"), 3, "", "guess: nan   truth: 3   the guess is not a number (NaN)"),
        (lambda: 3, 3, "", "guess: a function   truth: 3   the two cannot be compared"),
        (True, 3, "", "guess: True   truth: 3   the guess is a bool, the truth a number"),
    ],
)
def test_predict_prints_one_line(capsys, guess, truth, unit, line):
    assert predict(guess, truth, unit) is None
    assert capsys.readouterr().out == line + "\n"


@pytest.mark.parametrize(
    ("guess", "line"),
    [
        ({"a": None, "b": None}, "truth: {a: 4, b: 0.5} times"),
        ({"a": 4, "b": 0.501}, "guess: {a: 4, b: 0.501} times   truth: {a: 4, b: 0.5} times   right"),
        ({"a": 8, "b": None}, "a: too large by a factor of 2; b: no guess yet"),
        ({"a": 4}, "a: right; b: is missing"),
        ({"a": 4, "b": 0.5, "c": 1}, "a: right; b: right; c: is not asked for"),
        (
            {"a": "four", "b": [1]},
            "a: the guess is a str, the truth a number; b: the guess has shape [1], the truth []",
        ),
        ([4, 0.5], "the guess is a list; expected a dict with the entries a, b"),
        ({}, "truth: {a: 4, b: 0.5} times"),
    ],
)
def test_a_dict_is_told_entry_by_entry(capsys, guess, line):
    predict(guess, {"a": 4, "b": 0.5}, "times")
    printed = capsys.readouterr().out
    assert printed.endswith(line + "\n") and printed.count("\n") == 1


def test_predict_takes_arrays_and_tensors(capsys):
    predict([1.0, 2.0], torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True))
    predict(torch.zeros(2, 1), np.zeros((1, 2)))
    assert capsys.readouterr().out.splitlines() == [
        "guess: [1.0, 2.0]   truth: [1.0, 2.0]   right",
        "guess: [[0.0], [0.0]]   truth: [[0.0, 0.0]]   the guess has shape [2, 1], the truth [1, 2]",
    ]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(guess=anything, truth=anything)
def test_predict_never_raises(guess, truth):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        predict(guess, truth)
    assert len(out.getvalue().splitlines()) == 1
    assert out.getvalue().startswith(("guess: ", "truth: "))


def test_predict_never_raises_for_the_hostile(capsys):
    for guess in (
        Hostile(),
        10**5000,
        [Hostile()],
        np.array([object()]),
        {1: Hostile()},
        torch.zeros(0),
        type,
        open,
    ):
        predict(guess, 1.0)
        predict(1.0, guess)
    assert len(capsys.readouterr().out.splitlines()) == 16


def test_check_close(capsys):
    check_close("both forms", torch.ones(2, 3, dtype=torch.float64) + 1e-13, np.ones((2, 3)), 1e-12)
    check_close("infinities", [1.0, float("inf")], [1.0, float("inf")], 1e-12)
    assert capsys.readouterr().out.splitlines() == [
        "ok  both forms: relative error below 1e-12",
        "ok  infinities: relative error below 1e-12",
    ]


def test_check_close_is_relative_and_knows_the_dtype(capsys):
    check_close("logits", torch.tensor([50.0, 1.0]) + 2e-5, torch.tensor([50.0, 1.0]))
    check_close("half", torch.ones(2), torch.ones(2, dtype=torch.bfloat16))
    check_close("plain", [1, 2], [1, 2])
    check_close("zero", [1e-5, 0.0], [0.0, 0.0], 1e-6, scale=torch.tensor(50.0))
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        "1e-05",
        "0.05",
        "1e-12",
        "1e-06",
    ]
    for scale in (1e-3, 1e3):  # the same digits are as right or wrong at every size
        with pytest.raises(AssertionError, match="2e-12 of .* apart, allowed 1e-12"):
            check_close("x", [scale * (1 + 2e-12)], [scale])
    with pytest.raises(
        AssertionError, match="zero is expected.*give scale=, the size of the numbers that cancel"
    ):
        check_close("zero", [1e-300], [0.0])


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        ([1.0, 2.5], [1.0, 2.0], r"got 2.5, expected 2.0 at \[1\]: 0.25 of 2.0 apart, allowed 1e-06"),
        ([1.0, float("nan")], [1.0, 2.0], r"got nan, expected 2.0 at \[1\]"),
        ([1.0], [1.0, 2.0], r"got shape \[1\], expected \[2\]"),
        (torch.ones(2, 1), torch.ones(2), r"got shape \[2, 1\], expected \[2\]"),  # would broadcast
        ("text", 1.0, "got text, expected 1.0"),
        (1.5, 1.0, "got 1.5, expected 1.0: 0.5 of 1.0 apart"),
    ],
)
def test_check_close_fails_with_got_and_expected(got, want, message):
    with pytest.raises(AssertionError, match="the claim: " + message):
        check_close("the claim", got, want, 1e-6)


def test_check_close_just_outside_and_inside():
    check_close("x", 1.0 + 0.9e-6, 1.0, 1e-6)
    with pytest.raises(AssertionError):
        check_close("x", 1.0 + 1.1e-6, 1.0, 1e-6)


def test_check_shape(capsys):
    check_shape("logits", torch.zeros(2, 16, 10), (2, 16, 10))
    assert capsys.readouterr().out == "ok  logits: shape [2, 16, 10]\n"
    with pytest.raises(AssertionError, match=r"logits: got shape \[2, 3\], expected \[3, 2\]"):
        check_shape("logits", np.zeros((2, 3)), [3, 2])
    with pytest.raises(AssertionError, match="got an int without a shape"):
        check_shape("logits", 3, [3])


def test_check_equal(capsys):
    check_equal("d_ff", 11_008, 11_008)
    check_equal("order", torch.arange(3), [0, 1, 2])
    check_equal("many", np.zeros((5, 5)), torch.zeros(5, 5))
    assert capsys.readouterr().out.splitlines() == [
        "ok  d_ff: 11,008",
        "ok  order: [0, 1, 2]",
        "ok  many: equal in all 25 entries",
    ]
    with pytest.raises(AssertionError, match="d_ff: got 10,880, expected 11,008"):
        check_equal("d_ff", 10_880, 11_008)
    with pytest.raises(AssertionError, match=r"1 of 3 differ, first at \[1\]: got 2.0, expected 1.0"):
        check_equal("order", torch.tensor([0, 2, 2]), [0, 1, 2])
    with pytest.raises(AssertionError, match=r"got shape \[2\], expected \[3\]"):
        check_equal("order", np.arange(2), np.arange(3))


def test_torch_stays_unloaded():
    code = (
        "import sys; from book.predict import *; predict(1, 2); check_close('a', [1], [1], 1e-9); check_equal('b', 3, 3);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
