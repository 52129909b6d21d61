"""Every number that the book states: computed from `lib`, and printed by its chapter.

A row of numbers.csv: id, value, tolerance, expression, chapter, text. The expression may use every public name of `lib`, and
`math` and `torch`; it must give `value` (a number, or a JSON list of numbers) within the absolute `tolerance`. The chapter's
stored outputs, not its source, must show `text`; where that is empty, the value as written, plain or with thousands commas.
"""

import ast
import builtins
import csv
import importlib
import json
from collections import Counter
from pathlib import Path

import nbformat
import pytest

import lib
from book.paths import chapters
from notebook_text import printed, shows

TABLE = Path(__file__).with_name("numbers.csv")
COLUMNS = ["id", "value", "tolerance", "expression", "chapter", "text"]
FEWEST = 3  # rows for each chapter


def read_rows():
    with TABLE.open(encoding="utf-8", newline="") as f:
        reader = csv.DictReader(f)
        assert reader.fieldnames == COLUMNS, f"{TABLE.name} must start with {','.join(COLUMNS)}"
        return list(reader)


ROWS = read_rows()
IDS = [f"{row['chapter']}-{row['id']}" for row in ROWS]


def evaluate(expression):
    """The expression's value, with the names that it uses taken from `lib`, math and torch."""
    tree = ast.parse(expression, mode="eval")
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            if node.id in ("math", "torch"):
                names[node.id] = importlib.import_module(node.id)
            elif hasattr(lib, node.id):
                names[node.id] = getattr(
                    lib, node.id
                )  # other names are the expression's own (x in a comprehension)
    return eval(compile(tree, expression, "eval"), names)  # the table is a part of this repository


def as_numbers(value):
    """A flat list of Python numbers from a number, a tensor, a list or a tuple of them."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [number for part in value for number in as_numbers(part)]
    if not isinstance(value, (int, float)):
        raise TypeError(f"expected a number or a list of numbers, got {type(value).__name__}: {value!r}")
    return [value]


def forms(row):
    """The texts that show the value: as written, or with commas between the thousands."""
    if row["text"]:
        return [row["text"]]
    plain = row["value"]
    whole, dot, rest = plain.partition(".")
    return [plain, f"{int(whole):,}{dot}{rest}"] if whole.lstrip("-").isdigit() else [plain]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_value(row):
    wanted, got = as_numbers(json.loads(row["value"])), as_numbers(evaluate(row["expression"]))
    tolerance = float(row["tolerance"])
    assert len(got) == len(wanted), f"{row['expression']} gives {got}"
    for w, g in zip(wanted, got, strict=True):
        assert abs(g - w) <= tolerance, f"{row['expression']} = {g!r}, the table says {w!r} +- {tolerance}"
    # A tolerance as wide as the value would accept anything.
    assert tolerance <= 0.02 * max(map(abs, wanted)) or tolerance == 0


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_printed(row):
    notebook = chapters(row["chapter"], suffix=".ipynb")[0]
    text = printed(nbformat.read(notebook, as_version=4))
    assert any(shows(text, form) for form in forms(row)), f"{notebook.name} prints none of {forms(row)}"


def test_table():
    assert not [i for i, n in Counter(row["id"] for row in ROWS).items() if n > 1], "ids must differ"
    assert all(any(c.isdigit() for c in row["text"]) for row in ROWS if row["text"]), (
        "a text without a digit says nothing"
    )
    found = Counter(row["chapter"] for row in ROWS)
    short = {p.stem: found[p.stem[:2]] for p in chapters(suffix=".ipynb") if found[p.stem[:2]] < FEWEST}
    assert not short, f"chapters with fewer than {FEWEST} rows in {TABLE.name}: {short}"


@pytest.mark.parametrize(
    ("text", "wanted", "there"),
    [
        ("d_ff = 11,008", "11,008", True),
        ("d_ff = 111,008", "11,008", False),
        ("0.365148,", "0.365148", True),
        ("0.3651480", "0.365148", False),
        ("ends with 12.", "12", True),
        ("12.5", "12", False),
        ("40 GiB", "40 GiB", True),
    ],
)
def test_shows(text, wanted, there):
    assert shows(text, wanted) is there


def test_evaluate():
    assert evaluate("[kv_cache_bytes(80, 8, 128) for x in range(1)]") == [327_680]
    assert evaluate("math.floor(2.5)") == 2
    with pytest.raises(NameError):
        evaluate("no_such_name")
    with pytest.raises(TypeError, match="expected a number"):
        as_numbers("text")
