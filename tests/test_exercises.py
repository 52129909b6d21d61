"""The checkers: every solution passes, every known mistake is refused by name, and nothing that a reader hands over gets through."""

import ast
import contextlib
import io
import re
from collections import Counter

import numpy as np
import pytest
import torch

from book.exercises import ALL, check, guard
from book.exercises import ch09_faults as faults
from book.exercises.core import SEED_QUESTIONS
from book.explore import ALL as EXPLORERS
from book.paths import NOTEBOOKS, chapters
from book.publish.execute import read_source
from tolerances import assert_close, distance

FEWEST = 4
PLANTED = [(e, i) for e in ALL.values() for i in range(len(e.mistakes))]
# Every question that closes the source chapter, and the exercise that asks it.
SEED = {1: "05", 2: "03", 3: "04", 4: "02", 5: "06"}


def printed(exercise, answer=None):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert check(exercise, answer) is None
    return out.getvalue()


def wrong_answer(exercise, index):
    wrong = exercise.mistakes[index].wrong
    if wrong is exercise.given:  # otherwise it counts as untouched
        return lambda *args: exercise.given(*args)
    if exercise.is_function:
        return wrong
    wrong = wrong() if callable(wrong) else wrong
    # a mistake in one part of several: the other parts are right
    return {**exercise.expected, **wrong} if isinstance(exercise.expected, dict) else wrong


# -- every registered exercise


@pytest.fixture(params=list(ALL.values()), ids=list(ALL))
def exercise(request):
    return request.param


def test_the_reference_is_correct(exercise):
    answer = exercise.reference if exercise.is_function else exercise.expected
    assert exercise.judge(answer).state == "correct"


@pytest.mark.parametrize(("exercise", "index"), PLANTED, ids=[f"{e.id}-{i}" for e, i in PLANTED])
def test_each_mistake_is_refused_with_its_own_message(exercise, index):
    mistake = exercise.mistakes[index]
    found = exercise.judge(wrong_answer(exercise, index))
    assert (found.state, found.mistake) == ("mistake", index), found.text
    assert mistake.message in found.text and mistake.question in found.text
    assert "?" in mistake.question, "a question undoes the mistake"


def test_messages_are_different(exercise):
    messages = [m.message for m in exercise.mistakes]
    assert len(set(messages)) == len(messages)
    assert messages, "an exercise knows at least one mistake"


def test_untouched_stub_prints_one_fixed_line(exercise):
    line = f"Not attempted yet: {exercise.title}.\n"
    for answer in (None, ...):
        assert printed(exercise, answer) == line
    if exercise.is_function:

        def stub(*args):
            """Text."""

        def refuses(*args):
            raise NotImplementedError("write me")

        assert printed(exercise, stub) == line
        assert printed(exercise, refuses) == line
        if exercise.given is not None:
            assert printed(exercise, exercise.given) == line


def test_several_different_cases(exercise):
    """Right by luck on one input is not right."""
    if exercise.is_function:
        assert len(exercise.all_cases) >= 3
        outcomes = exercise.expected
        assert all(o.kind == "value" for o in outcomes), "the reference runs on every case"


# What no learner's answer may do to a chapter, handed to every exercise.
JUNK = [
    3,
    "text",
    [],
    {},
    float("nan"),
    torch.ones(2, 3),
    np.zeros(3),
    object(),
    print,
    lambda: 3,
    lambda *args: None,
]
JUNK += [lambda *args: args, lambda *args: torch.zeros(0), lambda *args: "x", lambda *args: float("nan")]


def test_junk_is_refused_in_few_lines(exercise):
    for answer in JUNK:
        text = printed(exercise, answer)
        assert text.startswith((f"{exercise.id}: ", "Not attempted")) and len(text.splitlines()) <= 5
        assert ": correct" not in text
        assert not re.search(r"0x[0-9a-f]{6}|could not read", text), text


def test_a_verdict_is_the_same_every_time(exercise):
    answers = [wrong_answer(exercise, i) for i in range(len(exercise.mistakes))][:2] + JUNK[-3:]
    assert [printed(exercise, a) for a in answers] == [printed(exercise, a) for a in answers]


# -- every chapter

SOURCES = chapters()
IDS = [path.stem for path in SOURCES]


@pytest.fixture(params=SOURCES, ids=IDS)
def source(request):
    return request.param


def exercises_of(source):
    """[(stub, check, solution)] cells of a chapter."""
    cells = [c for c in read_source(source).cells if c.cell_type == "code"]
    by = {
        tag: [c for c in cells if tag in c.metadata.get("tags", [])]
        for tag in ("exercise", "check", "solution")
    }
    return list(zip(by["exercise"], by["check"], by["solution"], strict=True))


def test_notebook_and_registry_agree(source):
    """Each registered exercise of a chapter is asked once, with a stub, a check and a solution that is checked and binds nothing."""
    asked = []
    for stub, cell, solution in exercises_of(source):
        found = re.findall(r"""check\(\s*["'](\d\d\.\w+)["']\s*,\s*(\w+)""", cell.source)
        assert len(found) == 1, f"a check cell calls check once: {cell.source}"
        (exercise_id, name) = found[0]
        asked.append(exercise_id)
        assert re.search(rf"^(def {name}\b|{name}\s*[:=])", stub.source, re.MULTILINE), (
            f"the stub does not bind {name}"
        )
        own = re.findall(rf"""check\(\s*["']{exercise_id}["']\s*,\s*(\w+_solution)\s*\)""", solution.source)
        assert len(own) == 1, f"the solution of {exercise_id} is not checked under its own name"
        assert f"def {own[0]}" in solution.source
        assert not re.search(rf"^(def {name}\b|{name}\s*=[^=])", solution.source, re.MULTILINE), (
            f"rebinds {name}"
        )
    registered = [e.id for e in ALL.values() if e.chapter == source.stem[:2]]
    assert Counter(asked) == Counter(registered)
    assert len(asked) >= FEWEST


def test_the_stub_of_the_chapter_counts_as_untouched(source):
    """Also where the stub is a function with a fault in it: the chapter's text and the checker's copy have the same body."""
    for stub, cell, _ in exercises_of(source):
        exercise_id, name = re.search(r"""check\(\s*["'](\d\d\.\w+)["']\s*,\s*(\w+)""", cell.source).groups()
        names = {}
        for each in definitions_before(source, stub):
            exec(compile(each, "cell", "exec"), names)  # noqa: S102  a cell of the book
        exec(compile(stub.source, "stub", "exec"), names)  # noqa: S102
        assert printed(exercise_id, names[name]) == f"Not attempted yet: {ALL[exercise_id].title}.\n"


def definitions_before(source, stub):
    """The code cells above a stub that only define functions (kernels apart): a block in several cells needs those before its last."""
    for cell in read_source(source).cells:
        if cell.id == stub.id:
            return
        if cell.cell_type == "code" and not cell.metadata.get("tags"):
            body = ast.parse(cell.source).body
            if body and all(isinstance(node, ast.FunctionDef) and not node.decorator_list for node in body):
                yield cell.source


def test_seed_questions_are_all_asked():
    there = {e.seed: e.chapter for e in ALL.values() if e.seed}
    assert {n: chapter for n, (chapter, _) in SEED_QUESTIONS.items()} == SEED
    assert there == SEED, "a question of the source chapter has no exercise"


# -- the five faults of chapter 09


def test_the_mended_block_is_the_books_own():
    from lib import Block, rope_cache

    h, n_kv, dh, d_ff, d = 6, 2, 4, 7, 24
    w = faults.weights(h, n_kv, dh, d_ff, d, seed=3)
    block = Block(d, h, n_kv, d_ff)
    inside = {n: "attn" for n in ("q_norm", "k_norm", "wq", "wk", "wv", "wo")} | {
        n: "ffn" for n in ("w_gate", "w_up", "w_down")
    }
    block.load_state_dict(
        {f"{inside[n] + '.' if n in inside else ''}{n}.weight": value for n, value in w.items()}
    )
    x, table = torch.randn(2, 5, d), rope_cache(5, dh, start=30)
    right = faults.block_with()["block"](x, w, *table)
    assert_close(block(x, *table), right, (d, dh, 5, 5, h * dh, d, d_ff))
    for part in faults.FIXES:
        if part not in ("norm", "attend"):  # these two show in fp16, and behind a cache
            wrong = faults.block_with([part])["block"](x, w, *table)
            assert distance(wrong, right) > 0.01, part


@pytest.mark.parametrize(
    "mended", [("norm",), ("turn", "heads"), ("norm", "ffn", "attend"), ("ffn", "turn", "attend", "heads")]
)
def test_faults_are_told_one_by_one(mended):
    left = [part for part in faults.FIXES if part not in mended]
    text = ALL["09.faults"].judge(faults.block_with(left)).text
    assert text.startswith(f"{len(mended)} of 5 mended: ")
    for part, (name, _, _) in faults.FIXES.items():
        assert (name in text.splitlines()[0]) == (part in mended)
    assert faults.HINTS[left[0]][1] in text
    assert not any(faults.HINTS[part][1] in text for part in left[1:])


def test_a_mended_part_is_seen_while_others_are_faulty():
    """heads calls norm and turn: its own order is judged although both of those are still wrong."""
    assert (
        "the order of QK-norm and RoPE (07)"
        in ALL["09.faults"].judge(faults.block_with(["norm", "turn"])).text.splitlines()[0]
    )


def test_faults_survive_junk_in_a_part():
    def spin(x, cos, sin):
        while True:
            pass

    for junk in (None, 3, lambda: 3, lambda *a: 1 / 0, spin):
        block = faults.block_with(["norm"]) | {"turn": junk}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(guard, "LIMIT", 0.3)
            text = printed("09.faults", block)
        assert text.startswith("09.faults: ") and "turn" in text
    whole = faults.block_with() | {"block": lambda x, w, cos, sin, past=None: x}
    assert "5 of 5 mended" in printed("09.faults", whole) and "the whole block is not right" in printed(
        "09.faults", whole
    )


def test_chapter_09_shows_the_faulty_block_word_for_word():
    for source in SOURCES:
        if source.stem.startswith("09"):
            cells = [c.source for c in read_source(source).cells if c.cell_type == "code"]
            for text in (faults.FIRST, faults.SECOND):
                assert text.strip() in [c.strip() for c in cells], f"no cell of {source.name} is\n{text}"


# -- the lecturer's page


def test_the_lecturers_page_names_what_is_there():
    text = (NOTEBOOKS / "lecturer.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\d\d\.\w+)`", text))
    assert named and named <= set(ALL), f"no such exercise: {named - set(ALL)}"
    rows = re.findall(r"^\| \d\d \| `([\w-]+)` \| `([^`]*)` \|", text, re.MULTILINE)
    for name, settings in rows:
        explorer = EXPLORERS[name]
        knobs = {knob.name: knob for knob in explorer.knobs}
        for setting in settings.split(", "):
            knob, value = setting.split("=")
            stops = {str(stop) for stop in knobs[knob].stops}
            assert value in stops, f"{name}: {knob} has no stop {value}: {sorted(stops)}"
    assert {name for name, _ in rows} == set(EXPLORERS), "each explorer has a row on the lecturer's page"


def test_mine_is_the_reference_until_the_readers_function_passed():
    from book.exercises import ALL, mine

    assert mine("01.rms_norm") is ALL["01.rms_norm"].reference
    with pytest.raises(KeyError, match="no exercise has this name"):
        mine("01.rmsnorm")
    value = next(e for e in ALL.values() if not e.is_function)
    with pytest.raises(TypeError, match="is a value, not a function"):
        mine(value.id)
