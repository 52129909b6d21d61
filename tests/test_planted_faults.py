"""A chapter must notice a fault in `lib`: each line of planted_faults.jsonl breaks one spot, and its notebook must turn red.

A line: {"chapter": "01", "file": "src/lib/norms.py", "old": "..", "new": "..", "why": ".."}. `old` occurs exactly once in the
file. The copy is executed cell by cell until an output differs from the stored one, as nbval would see it. The control, that
every chapter stays green without a fault when it is run this way, is in test_student.py. 60 s in all.
"""

import json
import shutil
from collections import Counter
from pathlib import Path

import nbformat
import pytest

import cells
from book.paths import ROOT, chapters
from lib import kernels
from notebook_text import comparable

LIST = Path(__file__).with_name("planted_faults.jsonl")
FAULTS = [json.loads(line) for line in LIST.read_text(encoding="utf-8").splitlines() if line.strip()]
RUN = [
    fault for fault in FAULTS if fault["chapter"] != "11" or not kernels.missing()
]  # chapter 11 needs Triton
FEWEST = 3
BROKEN_SETUP = (
    "ModuleNotFoundError",
    "FileNotFoundError",
    "SyntaxError",
    "IndentationError",
)  # red for a wrong reason


def copy_with(fault, folder, root=ROOT):
    """A checkout in `folder` whose src/ is a copy with the fault in it; the rest (models, notebooks, tests) is linked."""
    for entry in Path(root).iterdir():
        if entry.name not in ("src", ".git"):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(
        Path(root) / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    if fault:
        path = folder / fault["file"]
        text = path.read_text(encoding="utf-8")
        found = text.count(fault["old"])
        if found != 1 or fault["old"] == fault["new"]:
            raise ValueError(
                f"{fault['file']}: `old` must occur once and differ from `new`; it occurs {found} times: {fault}"
            )
        path.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    return folder


def first_difference(notebook, folder):
    """(code cell, stored, fresh) of the first cell whose outputs differ in a run on the copy in `folder`, or None."""
    code = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    stored = [comparable(cell.outputs) for cell in code]
    sources = [cell.source for cell in code]
    ran = cells.run(list(zip(sources, stored, strict=True)), folder / "src", folder / "notebooks", stop=True)
    number, fresh, differs = ran[-1]
    return (number, stored[number], fresh) if differs else None


@pytest.mark.parametrize(
    "fault", RUN, ids=[f"{fault['chapter']}-{number}" for number, fault in enumerate(RUN, 1)]
)
def test_notebook_turns_red(fault, tmp_path):
    assert fault["file"].startswith("src/lib/"), "a fault is planted in lib"
    notebook = chapters(fault["chapter"], suffix=".ipynb")[0]
    difference = first_difference(notebook, copy_with(fault, tmp_path))
    assert difference, f"{notebook.name} stays green with this fault: {fault['why']}"
    number, stored, fresh = difference
    print(f"{notebook.stem}, cell {number}: {fault['why']}\n  stored {stored}\n  fresh  {fresh}"[:2000])
    for name, value in fresh.get("error", []):
        assert name not in BROKEN_SETUP, (
            f"red for a reason that has nothing to do with the fault: {name}: {value}"
        )


def test_every_chapter_has_its_faults():
    found = Counter(fault["chapter"] for fault in FAULTS)
    short = {p.stem: found[p.stem[:2]] for p in chapters(suffix=".ipynb") if found[p.stem[:2]] < FEWEST}
    assert not short, f"chapters with fewer than {FEWEST} faults in {LIST.name}: {short}"
    spots = Counter((fault["file"], fault["old"], fault["new"]) for fault in FAULTS if fault["chapter"])
    assert not [spot for spot, n in spots.items() if n > len(chapters())]
    for fault in FAULTS:
        assert set(fault) == {"chapter", "file", "old", "new", "why"}, fault


@pytest.fixture
def small_book(tmp_path):
    """A book of one chapter, whose stored outputs are those of its own lib."""
    root = tmp_path / "root"
    (root / "src" / "lib").mkdir(parents=True)
    (root / "notebooks").mkdir()
    (root / "src" / "lib" / "__init__.py").write_text("def double(x):\n    return 2 * x\n\n\nUNUSED = 1\n")
    sources = ["from lib import double", "print(double(21))", "double(2)"]
    outputs = [
        [],
        [nbformat.v4.new_output("stream", name="stdout", text="42\n")],
        [nbformat.v4.new_output("execute_result", data={"text/plain": "4"}, execution_count=3)],
    ]
    nb = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(source, outputs=out, execution_count=i)
            for i, (source, out) in enumerate(zip(sources, outputs, strict=True), 1)
        ]
    )
    nbformat.write(nb, root / "notebooks" / "01_small.ipynb")
    (tmp_path / "copy").mkdir()
    return root, tmp_path / "copy"


@pytest.mark.parametrize(
    ("old", "new", "red_at"),
    [
        ("2 * x", "3 * x", 1),
        ("2 * x", "2 * x if x != 2 else 5", 2),
        ("double(x)", "double(y)", 1),
        ("= 1", "= 2", None),
    ],
)
def test_harness(small_book, old, new, red_at):
    """Control: the harness sees a wrong value, a late one and an error, and stays green when nothing that is used changes."""
    root, copy = small_book
    fault = {"file": "src/lib/__init__.py", "old": old, "new": new}
    difference = first_difference(root / "notebooks" / "01_small.ipynb", copy_with(fault, copy, root))
    assert (difference[0] if difference else None) == red_at


@pytest.mark.parametrize(("old", "new"), [("absent", "x"), ("x", "y"), ("= 1", "= 1")])
def test_harness_refuses_an_unclear_fault(small_book, old, new):
    root, copy = small_book
    with pytest.raises(ValueError, match="must occur once"):
        copy_with({"file": "src/lib/__init__.py", "old": old, "new": new}, copy, root)
