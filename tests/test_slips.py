"""A wrong function that no list foresaw is named by the slip it makes. tests/data/mutants holds slips written by hand, by somebody
who had not read the checkers: `pytest tests/test_slips.py -s` prints how many of them are named. About 1 s per 20 mutants.
"""

import contextlib
import importlib.util
import inspect
import random
from pathlib import Path

import torch

from book.exercises import Exercise, verdict
from book.exercises.compare import same
from book.exercises.rewrite import variants
from tolerances import distance

MUTANTS = sorted((Path(__file__).parent / "data" / "mutants").glob("[0-9][0-9]_*.py"))
DRAWS = 200


def mean_of(x, scale):
    return _halve(x.mean(-1) * scale, 2)


def _halve(x, by):
    return x / by


def test_every_usual_slip_of_a_function_is_written_once_and_the_function_stays_whole():
    x = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    made = list(variants(mean_of))
    gave = {}
    for slip, function in made:
        with contextlib.suppress(Exception):  # a slip may raise
            gave.setdefault(slip.kind, []).append(function(x, 3.0).tolist())
    assert [7.5, 15.0] in gave["axis"] or [3.75, 7.5] in gave["axis"]
    assert [4.5, 18.0] in gave["function"]  # the sum in the place of the mean
    assert [0.75, 3.0] in gave["forgotten factor"] and [4.5, 18.0] in gave["forgotten division"]
    assert [1.0, 4.0] in gave["name"] or gave["name"]
    assert mean_of(x, 3.0).tolist() == [2.25, 9.0]
    assert all(slip.text.startswith("This is what comes out ") and "?" in slip.question for slip, _ in made)


def exercise():
    cases = [
        (torch.tensor([[1.0, 2.0, 5.0], [4.0, 8.0, 1.0]]), 3.0),
        (torch.arange(8.0).view(2, 4) ** 2, 0.7),
    ]
    return Exercise(id="99.mean", title="A mean", kind="implement", cases=cases, reference=mean_of)


def test_a_slip_that_no_list_foresaw_is_named():
    wrong = {
        "along another axis": lambda x, scale: x.mean(0) * scale / 2,
        "`sum` where another": lambda x, scale: x.sum(-1) * scale / 2,
        "a factor is forgotten": lambda x, scale: x.mean(-1) / 2,
        "a step is left out": lambda x, scale: x.mean(-1) * scale,
        "a division rounds down": lambda x, scale: x.mean(-1) * scale // 2,
    }
    for words, answer in wrong.items():
        said = exercise().judge(answer)
        assert said.state == "slip" and words in said.text, said.text


def test_an_infinite_entry_is_met_by_itself_alone():
    """Otherwise a slip that overflows would lend its name to every wrong function, and a finite number would pass for a mask."""
    infinite = torch.tensor([float("inf"), float("-inf"), 1.0])
    assert same(infinite.clone(), infinite)
    for wrong in ([0.5, float("-inf"), 1.0], [float("inf"), -1e9, 1.0], [float("-inf"), float("inf"), 1.0]):
        assert not same(torch.tensor(wrong), infinite), wrong


def test_another_function_is_not_named_and_an_error_is_told_as_one():
    assert exercise().judge(lambda x, scale: x.mean(-1) * 0.2345 + scale).state == "wrong"
    assert exercise().judge(lambda x, scale: x.meen(-1)).state == "error"


# ---- the sweep


def load(path):
    """(exercise id, solution, draw, {name: (mutant, what it is)}) of a file of mutants."""
    spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = {
        name: f
        for name, f in vars(module).items()
        if inspect.isfunction(f) and f.__module__ == module.__name__ and not name.startswith("_")
    }
    solution, draw = own.pop("solution"), own.pop("draw")
    return path.stem.replace("_", ".", 1), solution, draw, own


def outcome(function, arguments):
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  a mutant may raise
        return type(error)


def equal(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if (a.shape, a.dtype, a.device) != (
            b.shape,
            b.dtype,
            b.device,
        ):  # a model left on meta has no numbers
            return False
        return a.numel() == 0 or distance(a, b) < 1e-6
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float | int) and isinstance(b, float | int):
        return abs(a - b) <= 1e-9 * abs(b)
    return a == b


def copied(arguments):
    return tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in arguments)


def same_everywhere(mutant, solution, draw):
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        arguments = draw(random.Random(seed))
        if not equal(outcome(mutant, copied(arguments)), outcome(solution, copied(arguments))):
            return False
    return True


def test_solutions_of_the_sweep_are_right():
    for path in MUTANTS:
        exercise, solution, _, mutants = load(path)
        assert verdict(exercise, solution).state == "correct", exercise
        assert len(mutants) >= 12, f"{exercise}: {len(mutants)} mutants"
        assert all(inspect.getdoc(mutant) for mutant in mutants.values())


NAMED = 0.5  # 60 % are, where the search among slips has its time; of the mutants that differ; four of five are the goal: raise it as the checkers learn
PRAISED = {
    "01.rms_norm gain_before_cast"
}  # in one dtype the two orders differ by a rounding, which the checker allows


def test_sweep_names_most_and_praises_none(capsys):
    rows, praised = [], []
    for path in MUTANTS:
        exercise, solution, draw, mutants = load(path)
        left = {name: m for name, m in mutants.items() if not same_everywhere(m, solution, draw)}
        said = {name: verdict(exercise, mutant) for name, mutant in left.items()}
        praised += [f"{exercise} {name}" for name, v in said.items() if v.state == "correct"]
        named = [name for name, v in said.items() if v.state in ("mistake", "slip", "error")]
        rows.append((exercise, len(mutants), len(left), len(named), sorted(set(left) - set(named))))
    with capsys.disabled():
        print(f"\n{'exercise':<20}{'mutants':>8}{'differ':>8}{'named':>8}  not named")
        for exercise, n, differ, named, others in rows:
            print(f"{exercise:<20}{n:>8}{differ:>8}{named:>8}  {', '.join(others)}")
        differ, named = sum(row[2] for row in rows), sum(row[3] for row in rows)
        print(f"{'all':<20}{sum(row[1] for row in rows):>8}{differ:>8}{named:>8}")
    assert set(praised) <= PRAISED
    assert differ > 200 and named >= NAMED * differ
