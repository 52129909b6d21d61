"""Copies for a class: no answers in them, they run to the end unsolved, and the pasted solutions are accepted."""

import ast
import json
import re

import nbformat
import pytest

import cells
from book.exercises import ALL
from book.paths import ROOT, chapters
from book.publish import student
from book.publish.execute import read_source
from lib import kernels
from notebook_text import comparable

SOURCES = chapters()
CHECK = re.compile(r"""check\(\s*["'](\d\d\.\w+)["']\s*,\s*(\w+)""")

TINY = """# %% [markdown]
# # Tiny

# %%
from book.exercises import check
width = 3

# %% tags=["exercise"]
def my_norm(x, weight, eps):
    ...

# %% tags=["check"]
check("01.rms_norm", my_norm)

# %% tags=["solution"] jupyter={"source_hidden": true}
from lib import rms_norm

def norm_solution(x, weight, eps):
    return rms_norm(x, weight, eps)

check("01.rms_norm", norm_solution)

# %%
print(width)
"""


def tagged(nb, tag):
    return [cell for cell in nb.cells if tag in cell.metadata.get("tags", [])]


@pytest.fixture
def tiny(tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "01_tiny.py").write_text(TINY, encoding="utf-8")
    return folder


# -- what is written


def test_a_students_copy_has_no_answers_and_no_outputs(tiny, tmp_path):
    target = tmp_path / "out"
    [path] = student.build(target, source=tiny)
    text = path.read_text(encoding="utf-8")
    nb = nbformat.reads(text, as_version=4)
    assert "_solution" not in text and "jupytext" not in nb.metadata
    assert not tagged(nb, "solution") and len(tagged(nb, "exercise")) == len(tagged(nb, "check")) == 1
    assert all(
        cell.outputs == [] and cell.execution_count is None for cell in nb.cells if cell.cell_type == "code"
    )
    assert nb.metadata.kernelspec.name == "python3"
    nbformat.validate(nb)


def test_the_copy_with_solutions_shows_them(tiny, tmp_path):
    [path] = student.build(tmp_path / "out", source=tiny, solutions=True)
    [solution] = tagged(nbformat.read(path, as_version=4), "solution")
    assert "def norm_solution" in solution.source
    assert "source_hidden" not in solution.metadata.get("jupyter", {})


def test_a_cell_that_needs_a_solution_is_refused(tiny, tmp_path):
    source = tiny / "01_tiny.py"
    source.write_text(TINY + "\n# %%\nnorm_solution(width, 1, 0)\n", encoding="utf-8")
    with pytest.raises(ValueError, match="uses norm_solution, which only a solution defines"):
        student.build(tmp_path / "out", source=tiny)
    source.write_text(TINY + "\n# %%\nrms_norm\n", encoding="utf-8")  # an import that only the solution has
    with pytest.raises(ValueError, match="uses rms_norm"):
        student.build(tmp_path / "out", source=tiny)
    assert student.main(["77"]) == 1


def test_built_twice_the_same_and_without_what_is_gone(tiny, tmp_path):
    target = tmp_path / "out"
    [path] = student.build(target, source=tiny)
    before = path.read_bytes()
    (target / "02_gone.ipynb").write_text("{}", encoding="utf-8")
    (target / "my_notes.ipynb").write_text("{}", encoding="utf-8")
    (target / ".progress.json").write_text('{"done": ["01.eps"]}', encoding="utf-8")
    student.build(target, source=tiny)
    assert path.read_bytes() == before
    assert sorted(p.name for p in target.iterdir()) == [".progress.json", "01_tiny.ipynb", "my_notes.ipynb"]
    assert json.loads((target / ".progress.json").read_text())["done"] == ["01.eps"]


# -- the chapters


def pasted(solution, name):
    """A solution's cell as a reader would paste it: under the name that the check asks for, without its own check."""
    tree = ast.parse(solution.source)
    function = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_solution")
    ][-1]
    tree.body = [node for node in tree.body if not CHECK.search(ast.unparse(node))]
    return ast.unparse(tree), function


def solved_in_between(source, folder):
    """The student's copy with three cells after each check: the solution pasted, the check again, the stub again.

    So one run shows both: each solution is accepted, and the chapter goes on to its end unsolved.
    """
    [path] = student.build(folder, [source.stem])
    nb = nbformat.read(path, as_version=4)
    solutions = tagged(read_source(source), "solution")
    stubs = tagged(nb, "exercise")
    copied, expected = [], {}
    for cell in nb.cells:
        copied.append(cell)
        if "check" not in cell.metadata.get("tags", []):
            continue
        exercise_id, name = CHECK.search(cell.source).groups()
        stub, solution = stubs[len(expected)], solutions[len(expected)]
        code, function = pasted(solution, name)
        value = "" if ALL[exercise_id].is_function else "()"
        rename = f"{name} = {function}{value}\n" + ("" if value else f"{name}.__name__ = {name!r}\n")
        again = nbformat.v4.new_code_cell(cell.source)
        copied += [
            nbformat.v4.new_code_cell(f"{code}\n{rename}"),
            again,
            nbformat.v4.new_code_cell(stub.source),
        ]
        expected[exercise_id] = (cell, again)
    nb.cells = copied
    return nb, expected


def compared(nb, source):
    """[(source, stored outputs)] of the copy's code cells: what the book prints, where the cell is the book's own."""
    book = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    stored = {cell.source: comparable(cell.outputs) for cell in book.cells if cell.cell_type == "code"}
    return [
        (
            cell.source,
            None if CHECK.search(cell.source) or "progress(" in cell.source else stored.get(cell.source),
        )
        for cell in nb.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize(
    "source",
    [pytest.param(path, id=path.stem) for path in SOURCES if path.stem[:2] != "11" or not kernels.missing()],
)
def test_a_students_copy_runs_to_the_end_unsolved_and_takes_the_solutions(source, tmp_path):
    """And prints what the book prints: the control of the planted faults, which are run in the same way."""
    nb, expected = solved_in_between(source, tmp_path)
    code = compared(nb, source)
    assert sum(stored is not None for _, stored in code) > 15
    ran = cells.run(code, ROOT / "src", tmp_path)
    printed = {}
    for cell, (_, made, differs) in zip((c for c in nb.cells if c.cell_type == "code"), ran, strict=True):
        assert "error" not in made, made["error"]
        assert not differs, f"{cell.source}\n{made}"
        printed[id(cell)] = "".join(made.get("stdout", []))
    assert expected
    for exercise_id, (unsolved, solved) in expected.items():
        assert printed[id(unsolved)] == f"Not attempted yet: {ALL[exercise_id].title}.\n"
        assert printed[id(solved)].startswith(f"{exercise_id}: correct"), printed[id(solved)]
    done = json.loads((tmp_path / ".progress.json").read_text(encoding="utf-8"))["done"]
    assert done == sorted(expected)
