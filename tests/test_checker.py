"""The checker on exercises made up here: it names what is wrong, says the same every time, and survives whatever it is given."""

import contextlib
import io
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch

from book.exercises import check, guard, verdict
from book.exercises.core import Exercise, Mistake


def printed(exercise, answer=None):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert check(exercise, answer) is None
    return out.getvalue()


# -- the checker itself, on an exercise made up here


def _cases():
    g = torch.Generator().manual_seed(3)
    return [
        (torch.randn(2, 3, generator=g), torch.randn(3, generator=g)),
        (torch.zeros(4), torch.ones(4)),
        (torch.ones(1), torch.ones(1)),
    ]


def _scale(x, gain):
    return x * gain


DEMO = Exercise(
    id="99.demo",
    title="Scale",
    kind="implement",
    cases=_cases,
    reference=_scale,
    mistakes=[
        Mistake(lambda x, gain: x, "The gain is missing.", "What if it is 0?"),
        Mistake(lambda x, gain: 1 / 0, "It divides by 0.", "Why?"),
    ],
)
LINE = "x = float32 tensor [2, 3] starting"


PICK = Exercise(
    id="99.pick",
    title="Pick",
    kind="choose",
    reference=lambda: {1, 2, 3},
    mistakes=[
        Mistake(lambda: {1, 2}, "3 is missing.", "What of 3?"),
        Mistake(lambda: {1, 2, 3, 7}, "7 is too much.", "What of 7?"),
    ],
)


def test_a_set_is_told_the_first_mistake_that_is_in_it():
    assert [PICK.judge(a).mistake for a in ({1, 2}, {1, 2, 3, 7}, {1}, {2, 7}, [1, 2])] == [0, 1, 0, 0, 0]
    assert PICK.judge({2, 3, 7}).mistake == 1
    assert PICK.judge({1, 2, 3}).state == "correct"
    assert (
        printed(PICK, {1, 3}) == "99.pick: {1, 3} is not right. Right among these: 2; missing: 1.\n"
        and printed(PICK, {3, 9}) == "99.pick: {3, 9} is not right. Right among these: 1; missing: 2.\n"
    )
    assert "is not right" not in printed(PICK, "1, 2")


def test_correct_and_named():
    assert printed(DEMO, lambda x, gain: gain * x) == "99.demo: correct (3 cases)\n"
    assert (
        printed(DEMO, lambda x, gain: x)
        == "99.demo: not yet. The gain is missing.\n  Question: What if it is 0?\n"
    )
    assert DEMO.judge(lambda x, gain: 1 / 0).mistake == 1  # a mistake may be an error


def test_right_by_luck_is_not_right():
    """The second and third cases cannot tell x + gain - 1 and x * gain apart; the first can."""
    text = printed(DEMO, lambda x, gain: x * gain if x.dim() == 1 else x + gain - 1)
    assert (
        "right in 2 of 3 cases" in text
        and LINE in text
        and "entries differ, first at [0, 0]: expected" in text
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda x, gain: (x * gain)[0], "expected shape [2, 3], got shape [3]"),
        (lambda x, gain: (x * gain).double(), "expected dtype float32, got float64"),
        (
            lambda x, gain: (x * gain).numpy(),
            "expected a torch tensor of shape [2, 3], got float32 array [2, 3]",
        ),
        (lambda x, gain: float("nan"), "expected a torch tensor of shape [2, 3], got nan"),
        (lambda x, gain: x * gain + float("nan"), "6 of 6 entries differ, first at [0, 0]: expected"),
        (lambda x, gain: torch.zeros(1).expand(10**9, 10**4), "got shape [1000000000, 10000]"),
        (lambda x, gain: (x * gain).to_sparse(), None),
        (lambda x, gain: torch.zeros(2, 3, device="meta"), None),
        (lambda x, gain: [[0] * 10**6] * 100, "expected a torch tensor"),
        (lambda x, gain: None if x.sum() else 0, "the function returns None: is a `return` missing?"),
        (lambda x: x, "the function takes (x), and is called with (x, gain)."),
        (lambda x, gain, eps: x, "the function takes (x, gain, eps), and is called with (x, gain)."),
        (lambda x, gain: (yield x), "the function has `yield`"),
        (torch.nn.Linear, "raised TypeError: empty()"),
        ("x * gain", "expected a function of (x, gain), got 'x * gain'"),
    ],
)
def test_what_came_and_what_was_expected(answer, expected):
    text = printed(DEMO, answer)
    assert text.startswith("99.demo: ") and ": correct" not in text
    assert expected is None or expected in text


def test_computed_floats_are_compared_more_closely_than_typed_ones():
    computed = Exercise(
        id="99.c", title="t", kind="implement", cases=[(3.0,), (0.5,)], reference=lambda x: [x / 7, 1]
    )
    assert computed.judge(lambda x: [x / 7 * (1 + 1e-7), 1.0]).state == "correct"
    assert "entry 0: expected 0.428571" in computed.judge(lambda x: [x / 7 * 1.001, 1]).text
    typed = Exercise(id="99.t", title="t", kind="predict", reference=3 / 7)
    assert typed.judge(0.429).state == "correct" and typed.judge(0.435).state == "wrong"


def test_a_gradient_is_no_harm():
    assert (
        DEMO.judge(lambda x, gain: x.requires_grad_(False) * gain.clone().requires_grad_()).state == "correct"
    )


def test_async_is_named_without_a_warning(recwarn):
    async def mine(x, gain):
        return x * gain

    assert "the function has `async`" in printed(DEMO, mine)
    assert not recwarn.list


def test_a_changed_argument_is_named():
    def mine(x, gain):
        return x.mul_(gain)

    assert "the function changes its argument `x` in place" in printed(DEMO, mine)
    exercise = Exercise(
        id="99.list", title="t", kind="implement", cases=[([3, 1],), ([2],), ([5, 4],)], reference=sorted_copy
    )
    assert exercise.judge(sorted_copy).state == "correct"
    assert "changes its argument `values`" in exercise.judge(sort_in_place).text
    allowed = Exercise(
        id="99.l", title="t", kind="implement", cases=[([3, 1],)], reference=sorted_copy, mutates=True
    )
    assert allowed.judge(sort_in_place).state == "correct"


def sorted_copy(values):
    return sorted(values)


def sort_in_place(values):
    values.sort()
    return values


def test_an_error_names_itself_and_its_line():
    def mine(x, gain):
        y = x
        return y / (1 // 0)

    text = printed(DEMO, mine)
    assert "It divides by 0" in text  # the known mistake is the same error

    def unpack(x, gain):
        B, T = x.shape[:1]
        return B * T

    text = printed(DEMO, unpack)
    assert (
        "raised ValueError: not enough values to unpack (expected 2, got 1), in line 2 of unpack: `B, T = x.shape[:1]`"
        in text
    )


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, BaseException])
def test_every_exception_is_survived(error):
    def mine(x, gain):
        raise error

    text = printed(DEMO, mine)
    assert f"raised {error.__name__}, in line 2 of mine" in text


def test_recursion_without_end():
    def mine(x, gain):
        return mine(x, gain)

    assert "RecursionError: it calls itself without end" in printed(DEMO, mine)


def spin(x, gain):
    while True:
        pass


def swallow(x, gain):
    while True:
        try:
            time.sleep(0.01)
        except BaseException:  # noqa: BLE001, S110
            pass


def swallow_twice(x, gain):
    while True:
        try:
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:  # noqa: BLE001, S112
                    continue
        except BaseException:  # noqa: BLE001, S112
            continue


def never_full(x, gain):
    return [n for n in iter(int, 1)]


@pytest.mark.skipif(
    not hasattr(signal, "SIGALRM"), reason="the clock needs SIGALRM: a stated limit on Windows"
)
@pytest.mark.parametrize("loop", [spin, swallow, swallow_twice, never_full])
def test_endless_loops_are_stopped(loop, monkeypatch):
    monkeypatch.setattr(guard, "LIMIT", 0.3)
    handler, tracer, began = signal.getsignal(signal.SIGALRM), sys.gettrace(), time.monotonic()
    assert printed(DEMO, loop) == "99.demo: stopped after 0.3 s: is there a loop that never ends?\n"
    assert time.monotonic() - began < 5
    time.sleep(0.1)  # an alarm that came late would end this test
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert sys.gettrace() is tracer


def test_a_slow_function_within_the_limit_passes():
    def mine(x, gain):
        time.sleep(0.2)
        return x * gain

    assert DEMO.judge(mine).state == "correct"


def test_a_check_inside_a_checked_function_keeps_the_outer_clock(monkeypatch):
    monkeypatch.setattr(guard, "LIMIT", 0.5)

    def mine(x, gain):
        verdict(DEMO, lambda x, gain: x)
        while True:
            pass

    assert "stopped after" in printed(DEMO, mine)


def test_works_in_another_thread_without_the_clock():
    results = []
    thread = threading.Thread(target=lambda: results.append(DEMO.judge(_scale).state))
    thread.start()
    thread.join()
    assert results == ["correct"]


def test_floods_are_swallowed(capsys):
    def mine(x, gain):
        for _ in range(20_000):
            print("flood" * 20)
            print("flood" * 20, file=sys.stderr)
        return x * gain

    check(DEMO, mine)
    assert capsys.readouterr() == ("99.demo: correct (3 cases)\n", "")


def test_random_answers_give_one_verdict_and_leave_the_seeds_alone():
    def mine(x, gain):
        return x * torch.rand(x.shape[-1]) + float(np.random.rand())

    torch.manual_seed(5)
    np.random.seed(5)
    first = printed(DEMO, mine)
    after = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    assert (torch.rand(1).item(), np.random.rand()) == after
    assert printed(DEMO, mine) == first


class Hostile:
    def __getattribute__(self, name):
        raise MemoryError

    def __eq__(self, other):
        raise SystemExit

    def __repr__(self):
        raise RuntimeError

    __hash__ = None


def test_hostile_objects_are_survived():
    for exercise in (DEMO, VALUE, PARTS):
        for answer in (
            Hostile(),
            [Hostile()],
            {"a": Hostile(), "b": Hostile()},
            lambda x, gain: Hostile(),
            lambda x, gain: [Hostile()],
        ):
            assert ": correct" not in printed(exercise, answer)
    assert "no exercise has this name" in printed("99.nothing", 3)
    assert printed(Hostile(), 3).startswith("check: ")


# -- answers that are values

VALUE = Exercise(
    id="99.value",
    title="Bytes",
    kind="predict",
    reference=lambda: 2 * 65_536,
    mistakes=[
        Mistake(65_536, "K or V is missing.", "How many?"),
        Mistake(lambda: 2 * 65_536 / 1e3, "Those are kB.", "Which unit?"),
    ],
)
PARTS = Exercise(
    id="99.parts",
    title="Parts",
    kind="predict",
    reference={"a": 1.0, "b": "right", "c": {1, 2}},
    mistakes=[
        Mistake({"a": 2.0}, "a is doubled.", "Half?"),
        Mistake({"a": 2.0, "b": "left"}, "Both.", "Which?"),
    ],
)
CHOICE = Exercise(
    id="99.choice",
    title="Choose",
    kind="choose",
    options=("a", "b"),
    reference="b",
    mistakes=[Mistake("a", "No.", "Why?")],
)


@pytest.mark.parametrize(
    ("exercise", "answer", "text"),
    [
        (VALUE, 131_072, "99.value: correct"),
        (VALUE, 131_072.0, "99.value: correct"),
        (VALUE, np.int64(131_072), "99.value: correct"),
        (VALUE, torch.tensor(131_072), "99.value: correct"),
        (VALUE, 131_073, "99.value: 131,073 is not right."),  # integers are exact
        (VALUE, 65_536, "99.value: not yet. K or V is missing.\n  Question: How many?"),
        (VALUE, 131.072, "99.value: not yet. Those are kB.\n  Question: Which unit?"),
        (VALUE, "131072", "99.value: expected a number, got '131072'"),
        (VALUE, True, "99.value: expected a number, got True"),
        (VALUE, lambda: 131_072, "99.value: a function came where a value is expected: is it to be called?"),
        (PARTS, {"a": 1.001, "b": "Right.", "c": [2, 1]}, "99.parts: correct"),
        (PARTS, {"a": None, "b": ..., "c": None}, "Not attempted yet: Parts."),
        (PARTS, {"a": 1, "b": None, "c": {1, 2}}, "99.parts: right so far. Still open: b."),
        (PARTS, {"a": 2, "b": "right", "c": None}, "99.parts: not yet. a is doubled.\n  Question: Half?"),
        (PARTS, {"a": 3, "b": "right", "c": {2}}, "99.parts: not right: a, c."),
        (PARTS, {"a": 1}, "99.parts: expected the keys [a, b, c], got [a]"),
        (CHOICE, " B) ", "99.choice: correct"),
        (CHOICE, "a", "99.choice: not yet. No.\n  Question: Why?"),
        (CHOICE, "c", "99.choice: expected one of 'a', 'b', got 'c'"),
        (CHOICE, 2, "99.choice: expected one of 'a', 'b', got 2"),
    ],
)
def test_values(exercise, answer, text):
    assert printed(exercise, answer) == text + "\n"


def test_a_solution_is_called_and_says_so():
    def bytes_solution():
        return 131_072

    assert printed(VALUE, bytes_solution) == "99.value solution: correct\n"

    def scale_solution(x, gain):
        return x * gain

    assert printed(DEMO, scale_solution) == "99.demo solution: correct (3 cases)\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "demo"}, "expected 'NN.name'"),
        ({"kind": "essay"}, "expected one of implement"),
        ({"reference": 3, "cases": [(1,)]}, "must be a function, got an int"),
        ({"seed": 1}, "SEED_QUESTIONS"),
    ],
)
def test_a_wrong_declaration_is_refused(changes, message):
    fields = {"id": "99.x", "title": "t", "kind": "predict", "reference": 1, **changes}
    with pytest.raises(ValueError, match=message):
        Exercise(**fields)


# -- faults of the checker and of an exercise


def test_a_reference_that_fails_is_never_passed():
    broken = Exercise(id="99.b", title="t", kind="implement", cases=_cases, reference=lambda x, gain: 1 / 0)
    with pytest.raises(ValueError, match="the reference itself fails on a case: ZeroDivisionError"):
        broken.judge(lambda x, gain: 1 / 0)
    assert "could not read" in printed(broken, lambda x, gain: 1 / 0)


def test_a_fault_of_the_checker_never_passes(monkeypatch):
    def broken():
        raise ImportError

    monkeypatch.setattr(guard, "_quiet", broken)
    assert "could not read this answer (ImportError)" in printed(DEMO, lambda x, gain: x * gain)
