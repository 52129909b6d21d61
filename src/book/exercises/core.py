"""An exercise, and the checker that knows the mistakes people make in it.

How a chapter declares its exercises: one file src/book/exercises/chNN.py, found by its name. A module-level Exercise is registered
under its id "NN.name". Import torch and lib inside functions, so that listing the exercises stays cheap (chapters 02 and 05
run without torch). A whole exercise whose answer is a function:

    from book.exercises.core import Exercise, Mistake

    def _cases():                                   # -> a list of argument tuples; a zero-argument function: built when used
        import torch
        g = torch.Generator().manual_seed(1)
        return [
            (torch.randn(2, 5, generator=g), torch.randn(5, generator=g)),      # random gains, every dimension different
            (torch.randn(7, generator=g) * 100, torch.randn(7, generator=g)),   # a value right by luck on one is not right
        ]

    def _scale(x, gain):                            # the reference: its parameter names are the ones the messages use
        return x * gain

    def _forgot_gain(x, gain):                      # a mistake is a function too: it is COMPUTED on the cases, not guessed
        return x

    scale = Exercise(
        id="01.scale",
        title="Scale by a gain",                    # "Not attempted yet: Scale by a gain."
        kind="implement",                           # implement | predict | find the fault | choose
        cases=_cases,
        reference=_scale,
        mistakes=[
            Mistake(_forgot_gain, "The gain is not used.", "What does your function return when every gain is 0?"),
        ],
        seed=None,                                  # 1..5: this is that question of the source chapter (SEED_QUESTIONS)
    )

and one whose answer is a value (no `cases`): a number, a text, a choice, a set, a list, a dict of several parts:

    bytes_per_token = Exercise(
        id="05.bytes_per_token", title="Bytes per token", kind="predict",
        reference=lambda: 2 * 32 * 8 * 128 * 2,     # computed, not typed; ints must be exact, floats within tol (0.5 %)
        mistakes=[
            Mistake(lambda: 32 * 8 * 128 * 2, "K or V is missing.", "How many tensors does a layer keep per token?"),
        ],
    )

A choice is a value with kind="choose" and options=("a", "b"). "find the fault": give the faulty function as `given`; a reader who
has changed nothing is told "Not attempted yet". `given` must have the same body as the function in the notebook's cell (a test
compares them), and it is a Mistake as well, with its hint.

In the notebook an exercise is three cells, each with its tag; the text of the question stands in a markdown cell above them:

    # %% tags=["exercise"]
    def my_scale(x, gain):
        ...

    # %% tags=["check"]
    check("01.scale", my_scale)

    # %% tags=["solution"] jupyter={"source_hidden": true}
    def scale_solution(x, gain):
        return x * gain

    check("01.scale", scale_solution)

and for a value the stub is `my_bytes = None`, the check `check("05.bytes_per_token", my_bytes)`, and the solution a function without arguments:

    def bytes_per_token_solution():
        return 2 * 32 * 8 * 128 * 2

    check("05.bytes_per_token", bytes_per_token_solution)

A solution is always a function named `.._solution` (for a value: without arguments, returning it), never rebinds the reader's name,
prints "... solution: correct", and does not count as progress. `from book.exercises import check, progress` stands in the
chapter's first cell; the chapter's last code cell is `progress("01")`.

What the checker says: "Not attempted yet: <title>." for an untouched stub; "correct"; a known mistake by name, found by computing it on
every case, with the question that undoes it; else a slip (`rewrite`): the reference itself written with a wrong axis, a term
forgotten, two arguments swapped .. gives the same; otherwise the first case that differs. It never raises (see guard for the limits).
"""

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from book.exercises import guard
from book.exercises.compare import COMPUTED_TOL, brief, difference, is_number, same, text_key
from book.exercises.rewrite import variants
from book.exercises.shape import arity_problem, untouched
from book.exercises.verdict import Mistake, Verdict
from book.predict import a_kind

__all__ = ["Exercise", "Mistake", "Verdict"]
SLIP_SECONDS = 1.5  # for the search among them
KINDS = ("implement", "predict", "find the fault", "choose")
# The questions that close the source chapter, and the chapter whose exercise each of them is.
SEED_QUESTIONS = {
    1: ("05", "The KV cache of L = 32, h = 32, dh = 128, n_kv = 8 in fp16, per token and for 32K"),
    2: ("03", "One line that proves that RoPE scores depend on n - m only"),
    3: ("04", "Why does a larger RoPE base help long contexts?"),
    4: ("02", "The d_ff of a SwiGLU with d = 5120 that matches a 4d GELU FFN"),
    5: ("06", "Why can MLA not simply apply RoPE to the reconstructed keys?"),
}


@dataclass
class Exercise:
    """See the module's docstring for a worked example of each kind.

    plain: the reference written out in its own file, where it calls lib: what `rewrite` writes wrongly. mutates: changing an
    argument is the point (a cache). work: (function, case) -> what its work lacks, None where it is right. hint: one more line for
    an answer that is wrong in no known way. driver: function -> what runs on a case in its place (one that is called for each chunk).
    """

    id: str
    title: str
    kind: str
    reference: object
    cases: Callable | Sequence | None = None
    mistakes: Sequence[Mistake] = ()
    options: Sequence[str] = ()
    given: Callable | None = None
    seed: int | None = None
    tol: float | None = None
    plain: Callable | None = None
    mutates: bool = False
    work: Callable | None = None
    driver: Callable = field(default=lambda function: function, repr=False)
    hint: str = field(default="", repr=False)

    def __post_init__(self):
        chapter, _, name = self.id.partition(".")
        if not (len(chapter) == 2 and chapter.isdigit() and name):
            raise ValueError(f"Exercise.id = {self.id!r}: expected 'NN.name', as in '01.rms_norm'")
        if self.kind not in KINDS:
            raise ValueError(f"{self.id}: kind = {self.kind!r}: expected one of {', '.join(KINDS)}")
        if self.is_function and not callable(self.reference):
            raise ValueError(
                f"{self.id}: cases are given, so the reference must be a function, got {a_kind(self.reference)}"
            )
        if self.seed is not None and (
            self.seed not in SEED_QUESTIONS or SEED_QUESTIONS[self.seed][0] != chapter
        ):
            raise ValueError(
                f"{self.id}: seed = {self.seed!r}: expected one of SEED_QUESTIONS of this chapter"
            )

    @property
    def chapter(self):
        return self.id[:2]

    @property
    def is_function(self):
        return self.cases is not None

    @cached_property
    def all_cases(self):
        found = self.cases() if callable(self.cases) else self.cases
        return [case if isinstance(case, tuple) else (case,) for case in found]

    @cached_property
    def expected(self):
        """The reference's answer: a list of outcomes, one per case, or the value."""
        if self.is_function:
            outcomes = self._run_all(self.reference, deadline=float("inf"))
            for outcome in outcomes:
                if outcome.kind != "value":
                    raise ValueError(
                        f"{self.id}: the reference itself fails on a case: {outcome.text or outcome.kind}"
                    )
            return outcomes
        return _value_of(self.reference)

    @cached_property
    def parameters(self):
        return list(inspect.signature(self.reference).parameters)

    def judge(self, answer):
        """The Verdict on an answer. Only ever raises for a mistake in the exercise itself."""
        if answer is None or answer is ...:
            return self.not_attempted()
        return self._judge_function(answer) if self.is_function else self._judge_value(answer)

    def not_attempted(self):
        return Verdict("not attempted", f"Not attempted yet: {self.title}.")

    # -- answers that are values

    def _judge_value(self, answer):
        if inspect.isfunction(answer):
            if not answer.__name__.endswith("_solution"):
                return self._wrong("a function came where a value is expected: is it to be called?")
            outcome = guard.run(answer)
            if outcome.kind != "value":
                return self._trouble(outcome)
            answer = outcome.value
        if (
            isinstance(answer, dict)
            and answer
            and all(value is None or value is ... for value in answer.values())
        ):
            return self.not_attempted()
        outcome = guard.run(lambda: difference(answer, self.expected, self.tol), watch=False, own=False)
        if outcome.kind != "value":
            return self._trouble(outcome)
        problem = outcome.value
        if problem is None:
            return Verdict("correct", "correct")
        if isinstance(answer, dict) and isinstance(self.expected, dict):
            return self._judge_parts(answer)
        for index, mistake in enumerate(self.mistakes):
            wrong = _value_of(mistake.wrong)
            if (
                guard.run(lambda wrong=wrong: same(answer, wrong, self.tol), watch=False, own=False).value
                is True
            ):
                return self._named(index)
        if isinstance(self.expected, set) and isinstance(answer, set | list | tuple):
            return self._judge_entries(answer)
        if self.options and not (isinstance(answer, str) and text_key(answer) in map(text_key, self.options)):
            return self._wrong(f"expected one of {', '.join(map(repr, self.options))}, got {brief(answer)}")
        expected, kind = self.expected, type(self.expected)
        if is_number(expected) and not is_number(answer):
            return self._wrong(f"expected a number, got {brief(answer)}")
        if not isinstance(answer, kind | int | float | list | tuple | set):
            return self._wrong(f"expected {a_kind(expected)}, got {brief(answer)}")
        return self._wrong(f"{brief(answer)} is not right.")

    def _judge_entries(self, answer):
        """A set that equals no known mistake: the first one that is a part of what is wrong with it, or else a count."""
        want = self.expected
        entries = {entry for entry in answer if type(entry) in (int, str)}
        for index, mistake in enumerate(self.mistakes):
            wrong = _value_of(mistake.wrong)
            if isinstance(wrong, set) and wrong ^ want <= entries ^ want:
                return self._named(index)
        right, missing = len(entries & want), len(want - entries)
        return self._wrong(f"{brief(answer)} is not right. Right among these: {right}; missing: {missing}.")

    def _judge_parts(self, answer):
        """A dict of several answers: which parts are right, which are open, and the first known mistake."""
        want = self.expected
        if set(answer) != set(want):
            return self._wrong(f"expected the keys {brief(list(want))}, got {brief(list(answer))}")
        blank = [key for key in want if answer[key] is None or answer[key] is ...]
        bad = [key for key in want if key not in blank and not same(answer[key], want[key], self.tol)]
        tail = f" Still open: {', '.join(map(str, blank))}." if blank else ""
        if not bad:
            return Verdict("wrong", f"right so far.{tail}")
        for index, mistake in enumerate(self.mistakes):
            wrong = _value_of(mistake.wrong)
            keys = [k for k in wrong if k in want and not same(wrong[k], want[k], self.tol)]
            if keys and set(keys) <= set(bad) and all(same(answer[k], wrong[k], self.tol) for k in keys):
                return self._named(index)
        return self._wrong(f"not right: {', '.join(map(str, bad))}.{tail}")

    # -- answers that are functions

    def _judge_function(self, answer):
        if not callable(answer):
            return self._wrong(f"expected a function of ({', '.join(self.parameters)}), got {brief(answer)}")
        if untouched(answer, self.given):
            return self.not_attempted()
        arity = arity_problem(answer, self.all_cases, self.parameters)
        if arity:
            return self._wrong(arity)
        expected = self.expected
        got = self._run_all(answer)
        if all(o.kind == "raised" and o.error is NotImplementedError for o in got):
            return self.not_attempted()
        changed = next((i for i, o in enumerate(got) if o.changed), None)
        problems = [_outcome_difference(a, b, self.tol) for a, b in zip(got, expected, strict=True)]
        if not any(problems):
            if changed is not None and not self.mutates:
                return self._wrong(
                    f"the values are right, but the function changes its argument `{got[changed].changed}` in place."
                    "\n  Question: what does the caller's tensor hold afterwards?"
                )
            lacks = self.work and answer is not self.reference and self.work(answer, self.all_cases[0])
            return self._wrong(lacks) if lacks else Verdict("correct", f"correct ({len(got)} cases)")
        looped = any(o.kind == "time" for o in got)
        index = None if looped else self._known_mistake(got, expected)
        if index is not None:
            return self._named(index)
        slip = None if looped else self._known_slip(got, problems)
        if slip is not None:
            return Verdict("slip", f"not yet. {slip.text}\n  Question: {slip.question}")
        return self._first_difference(got, problems)

    def _run_all(self, function, deadline=None):
        """One Outcome per case; after the clock has run out, or at the first loop, the rest is not tried."""
        deadline = time.monotonic() + guard.LIMIT if deadline is None else deadline
        function, outcomes = self.driver(function), []
        for case in self.all_cases:
            if outcomes and outcomes[-1].kind == "time":
                outcomes.append(outcomes[-1])
            elif deadline == float("inf"):
                outcomes.append(guard.run(function, case, watch=False, deadline=time.monotonic() + 60))
            else:
                kept = {"names": self.parameters, "deadline": deadline, "watch": not self.mutates}
                outcomes.append(guard.run(function, case, **kept))
        return outcomes

    @cached_property
    def _mistakes_run(self):
        return {}

    def mistake_outcomes(self, index):
        """What a known mistake gives on each case: computed once."""
        if index not in self._mistakes_run:
            self._mistakes_run[index] = self._run_all(self.mistakes[index].wrong, deadline=float("inf"))
        return self._mistakes_run[index]

    def _known_mistake(self, got, expected):
        """The mistake that the outcomes equal: on every case if there is one, else on every case that tells it from the truth."""
        partial = None
        for index in range(len(self.mistakes)):
            wrong = self.mistake_outcomes(index)
            telling = [i for i, o in enumerate(wrong) if _outcome_difference(o, expected[i], self.tol)]
            if telling and all(not _outcome_difference(got[i], wrong[i], self.tol) for i in telling):
                if all(not _outcome_difference(got[i], wrong[i], self.tol) for i in range(len(got))):
                    return index
                partial = index if partial is None and len(telling) > 1 else partial
        return partial

    def _known_slip(self, got, problems):
        """The Slip with which the reference gives what the reader's function gives, on every case; None where none does in time."""
        telling = [i for i, o in enumerate(got) if problems[i] and o.kind == "value" and o.value is not None]
        order = telling + [i for i in range(len(got)) if i not in telling]
        end = time.monotonic() + SLIP_SECONDS
        for slip, function in variants(self.plain or self.reference) if telling else ():
            for i in order:
                outcome = guard.run(self.driver(function), self.all_cases[i], watch=False, deadline=end)
                if _outcome_difference(got[i], outcome, self.tol):
                    break
            else:
                return slip
            if time.monotonic() > end:
                break
        return None

    def _first_difference(self, got, problems):
        i = next(i for i, problem in enumerate(problems) if problem)
        outcome = got[i]
        if outcome.kind == "time":
            return self._trouble(outcome)
        case = ", ".join(
            f"{n} = {brief(a)}" for n, a in zip(self.parameters, self.all_cases[i], strict=False)
        )
        right = sum(not problem for problem in problems)
        where = f"\n  case {i + 1} of {len(got)}: {case}"
        if outcome.kind == "raised":
            verdict = self._trouble(outcome)
            return Verdict(verdict.state, verdict.text + where)
        if outcome.value is None:
            return self._wrong(f"the function returns None: is a `return` missing?{where}")
        if outcome.value is ...:
            return self._wrong(f"the function still returns `...`.{where}")
        if inspect.isgenerator(outcome.value) or inspect.iscoroutine(outcome.value):
            for each in got:  # an unawaited coroutine warns when it is thrown away
                if hasattr(each.value, "close"):
                    each.value.close()
            word = "yield" if inspect.isgenerator(outcome.value) else "async"
            return self._wrong(
                f"the function has `{word}`, so calling it computes nothing: use `return`.{where}"
            )
        luck = f" (right in {right} of {len(got)} cases)" if right else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return self._wrong(f"not yet{luck}.{where}\n  {problems[i]}{hint}")

    # -- texts

    def _named(self, index):
        mistake = self.mistakes[index]
        return Verdict("mistake", f"not yet. {mistake.message}\n  Question: {mistake.question}", index)

    def _wrong(self, text):
        return Verdict("wrong", text)

    def _trouble(self, outcome):
        if outcome.kind == "time":
            return Verdict("error", f"stopped after {guard.LIMIT:g} s: is there a loop that never ends?")
        return Verdict("error", f"raised {outcome.text}")


def _value_of(x):
    return x() if callable(x) else x


def _outcome_difference(got, want, tol):
    """None if two outcomes are the same: equal values, or the same kind of error."""
    if got.kind != want.kind:
        return got.text or "no value came back"
    if got.kind == "value":
        compared = guard.run(
            lambda: difference(got.value, want.value, tol, COMPUTED_TOL), watch=False, own=False
        )
        return compared.value if compared.kind == "value" else f"{a_kind(got.value)} that cannot be compared"
    return None if got.error is want.error else got.text
