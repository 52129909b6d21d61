"""A reader's folder: what `make lab` copies, what it never touches, and what a kernel there says. About 10 s, nearly all of it stills."""

import ast
import hashlib
import json

import nbformat
import pytest

from book import reader
from book.contents import CHAPTERS, EDITION, PATHS, neighbours, way_on
from book.copies import START, chapter_copy, split_checks, start_page
from book.exercises import ALL as EXERCISES
from book.lab import RECORD, SETTINGS, copy_chapters, lab_command, lab_environment, main
from book.paths import NOTEBOOKS, ROOT, chapters
from book.selftest import QUESTIONS, self_test

COMMITTED = chapters(suffix=".ipynb")


def book_of(folder, *names, text="one"):
    cell = nbformat.v4.new_code_cell(text, metadata={"tags": ["solution"]}, id="a")
    nb = nbformat.v4.new_notebook(cells=[cell], metadata={"jupytext": {"formats": "ipynb,py:percent"}})
    for name in names:
        nbformat.write(nb, folder / f"{name}.ipynb")


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "book").mkdir()
    return tmp_path / "book", tmp_path / "work"


# ---- the table of the chapters


def test_the_table_is_the_notebooks():
    assert [c.file for c in CHAPTERS] == [p.stem for p in COMMITTED]
    for chapter in CHAPTERS:
        text = (NOTEBOOKS / f"{chapter.file}.py").read_text(encoding="utf-8")
        assert f"# # {chapter.name}\n" in text and chapter.file.startswith(chapter.number)
        assert f"About {chapter.minutes} minutes" in text
        assert all(need < chapter.number for need in chapter.needs)
    assert {n for numbers, _ in PATHS.values() for n in numbers} <= {c.number for c in CHAPTERS}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for chapter in CHAPTERS:
        assert f"| {chapter.number} | {chapter.title} | {chapter.about} |" in readme


def test_previous_contents_next():
    first, last = CHAPTERS[0].number, CHAPTERS[-1].number
    assert neighbours(first)[0] is None and neighbours(last)[1] is None
    assert way_on("03", "start.ipynb") == (
        "← [02 · SwiGLU and its width](02_swiglu.ipynb) | [Contents](start.ipynb) | [04 · RoPE in practice](04_rope_in_practice.ipynb) →"
    )


# ---- what a reader's copy shows


@pytest.mark.parametrize("path", COMMITTED, ids=[p.stem for p in COMMITTED])
def test_no_result_stands_in_a_copy_before_it_is_made(path):
    book, copy = nbformat.read(path, as_version=4), nbformat.reads(chapter_copy(path), as_version=4)
    nbformat.validate(copy)
    assert "jupytext" not in copy.metadata
    explorers = sum("explorer" in o.get("metadata", {}) for c in book.cells for o in c.get("outputs", []))
    outputs = [o for c in copy.cells for o in c.get("outputs", [])]
    assert len(outputs) == explorers and all("not running" in o.data["text/plain"] for o in outputs)
    assert all(c.execution_count is None for c in copy.cells if c.cell_type == "code")
    for cell in copy.cells:
        if cell.cell_type == "code" and "my_guess" in cell.source and "\ndel " not in cell.source:
            assert not [
                s
                for s in ast.parse(cell.source).body
                if isinstance(s, ast.Expr) and ast.unparse(s).startswith("check_")
            ], cell.source
        if "solution" in cell.metadata.get("tags", []):
            assert cell.metadata.jupyter.source_hidden is True
    # nothing is lost: the same statements, in another order of checks only
    said = [
        sorted(ast.unparse(s) for c in nb.cells if c.cell_type == "code" for s in ast.parse(c.source).body)
        for nb in (book, copy)
    ]
    assert said[0] == said[1]
    assert copy.cells[-1].source == way_on(path.stem[:2], START)
    assert len({c.id for c in copy.cells}) == len(copy.cells)


def test_checks_move_only_where_they_mean_the_same():
    keep, taken = split_checks(
        "my_guess = None\nx = 3\ncheck_equal('x', x, 3)\npredict(my_guess, x)\ncheck_close('y', x,\n    3.0, 1)"
    )
    assert keep == "my_guess = None\nx = 3\npredict(my_guess, x)"
    assert taken == "check_equal('x', x, 3)\ncheck_close('y', x,\n    3.0, 1)"
    later = "my_guess = None\nx = 3\ncheck_equal('x', x, 3)\nx = 4\npredict(my_guess, x)"
    assert split_checks(later) == (later, "")
    loop = "my_guess = None\nfor i in range(2):\n    check_equal('i', i, i)\npredict(my_guess, 1)"
    assert split_checks(loop) == (loop, "")


# ---- what is copied, kept and moved aside


def test_a_readers_copy_is_never_overwritten(folders):
    (book, work), said = folders, []
    book_of(book, "01_a")
    assert copy_chapters(book, work, said.append) == (["01_a.ipynb"], [], [])
    mine = work / "01_a.ipynb"
    mine.write_text("my notes", encoding="utf-8")
    book_of(book, "01_a", "02_b", text="two")
    said.clear()
    assert copy_chapters(book, work, said.append) == (["02_b.ipynb"], ["01_a.ipynb"], ["01_a.ipynb"])
    assert mine.read_text(encoding="utf-8") == "my notes"
    assert [line for line in said if "newer 01_a.ipynb" in line and "RESET=01" in line]
    mine.rename(work / "mine.ipynb")
    assert copy_chapters(book, work, said.append)[0] == ["01_a.ipynb"]
    assert copy_chapters(book, work, said.append) == ([], ["01_a.ipynb", "02_b.ipynb"], [])


def test_a_copy_that_nobody_changed_follows_the_book(folders):
    book, work = folders
    book_of(book, "01_a")
    copy_chapters(book, work, len)
    book_of(book, "01_a", text="two")
    assert copy_chapters(book, work, len)[0] == ["01_a.ipynb"]
    assert "two" in (work / "01_a.ipynb").read_text(encoding="utf-8")


def test_reset_keeps_the_old_one_beside(folders):
    (book, work), said = folders, []
    book_of(book, "01_a", "02_b")
    copy_chapters(book, work, len)
    for n, note in enumerate(("first", "second"), 1):
        (work / "01_a.ipynb").write_text(note, encoding="utf-8")
        assert copy_chapters(book, work, said.append, reset="1")[0] == ["01_a.ipynb"]
        beside = "01_a (before the reset).ipynb" if n == 1 else "01_a (before the reset 2).ipynb"
        assert (work / beside).read_text(encoding="utf-8") == note
    assert "one" in (work / "01_a.ipynb").read_text(encoding="utf-8")
    assert any("'01_a (before the reset 2).ipynb'" in line for line in said)
    with pytest.raises(ValueError, match="no chapter '77'"):
        copy_chapters(book, work, len, reset="77")


def test_a_folder_of_the_first_edition_moves_over(folders):
    """Its record held the digest of each copy; what its reader changed stays beside the new chapter, progress and notes stay."""
    book, work = folders
    work.mkdir()
    (work / "01_a.ipynb").write_text("as copied", encoding="utf-8")
    (work / "02_b.ipynb").write_text("half done", encoding="utf-8")
    (work / "notes.ipynb").write_text("mine", encoding="utf-8")
    (work / ".progress.json").write_text('{"done": ["01.eps"]}', encoding="utf-8")
    record = {
        "01_a.ipynb": hashlib.sha256(b"as copied").hexdigest(),
        "02_b.ipynb": hashlib.sha256(b"as it was").hexdigest(),
    }
    (work / RECORD).write_text(json.dumps(record), encoding="utf-8")
    book_of(book, "01_a", "02_b", "03_c")
    assert copy_chapters(book, work, len)[0] == ["01_a.ipynb", "02_b.ipynb", "03_c.ipynb"]
    assert (work / "02_b (first edition).ipynb").read_text(encoding="utf-8") == "half done"
    assert not (work / "01_a (first edition).ipynb").exists()
    assert (work / "notes.ipynb").read_text(encoding="utf-8") == "mine"
    assert json.loads((work / ".progress.json").read_text())["done"] == ["01.eps"]
    assert json.loads((work / RECORD).read_text())["edition"] == EDITION
    assert copy_chapters(book, work, len) == ([], ["01_a.ipynb", "02_b.ipynb", "03_c.ipynb"], [])


@pytest.mark.parametrize(
    "record", ["", "[]", '{"files": 3}', '{"edition": "2", "files": {"01_a.ipynb": 3}}', "{"]
)
def test_a_damaged_record_loses_nothing(folders, record):
    book, work = folders
    book_of(book, "01_a")
    work.mkdir()
    (work / "01_a.ipynb").write_text("mine", encoding="utf-8")
    (work / RECORD).write_text(record, encoding="utf-8")
    copy_chapters(book, work, len)
    assert "mine" in {p.read_text(encoding="utf-8") for p in work.glob("01_a*.ipynb")}


def test_a_wrong_chapter_is_one_line(capsys):
    assert main(["--copy-only", "--reset", "77"]) == 2
    assert capsys.readouterr().err.startswith("lab: no chapter '77'")


# ---- the first page


def test_the_first_page_leads_everywhere_and_runs():
    nb = nbformat.reads(start_page(), as_version=4)
    nbformat.validate(nb)
    text = "\n".join(c.source for c in nb.cells)
    for chapter in CHAPTERS:
        assert f"[{chapter.title}]({chapter.file}.ipynb)" in text and f"{chapter.minutes} min" in text
    for cell in nb.cells:
        if cell.cell_type == "code":
            exec(cell.source, {})  # noqa: S102  our own text


def test_the_self_test(capsys):
    right = {i: q.answer() for i, q in enumerate(QUESTIONS, 1)}
    self_test(right)
    assert "10 of 10 right" in (said := capsys.readouterr().out) and "Read" not in said
    self_test(right | {5: 49_152, 10: None})
    said = capsys.readouterr().out
    assert "8 of 10 right; still open: 10" in said and "Read: 05 · The KV cache; 10 · Real models" in said
    assert "24,576" not in said and "2048" not in said
    self_test({i: None for i in right})
    assert "Not attempted yet" in capsys.readouterr().out
    for junk in (
        3,
        "text",
        None,
        [],
        {1: object(), 2: [], "x": 1},
        [None] * 3,
        {i: float("nan") for i in right},
    ):
        self_test(junk)


# ---- JupyterLab and its kernels


def test_the_server_listens_here_only_and_asks_nothing(tmp_path):
    (tmp_path / START).write_text("{}")
    command = lab_command(["--no-browser"], tmp_path)
    assert "--ServerApp.ip=127.0.0.1" in command and command[-1] == "--no-browser"
    assert f"--LabApp.default_url=/lab/tree/{START}" in command
    assert any("cull_idle_timeout" in part for part in command)
    overrides = json.loads((SETTINGS / "labconfig/default_setting_overrides.json").read_text())
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    kernel = json.loads((SETTINGS / "kernels/python3/kernel.json").read_text())
    assert kernel["argv"][-2:] == ["--ext", "book.reader"]
    environment = lab_environment({"JUPYTER_PATH": "/theirs", "HOME": "/h"})
    assert environment["JUPYTER_PATH"].startswith(str(SETTINGS)) and environment["JUPYTER_PATH"].endswith(
        "/theirs"
    )


def test_a_name_that_is_not_there_yet_names_its_cell(monkeypatch, tmp_path):
    cells = [
        "import numpy as np\nfrom book.explore import ALL as every",
        "x = [",
        "def f(a):\n    b = a\n    return b\n",
        "y = 3",
    ]
    assert "code cell 1" in reader.hint("every", cells) and "code cell 3" in reader.hint("f", cells)
    assert "begins `y = 3`" in reader.hint("y", cells)
    assert reader.hint("a", cells) == reader.hint("b", cells) == reader.hint("unknown", cells) == ""
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "gone.ipynb"))
    assert reader.notebook_cells() == []


RETIRED = {
    "00.serving",  # its answer was in the text above it; 00.shapes builds instead
    "05.repeat",  # a line of 05.step
    "05.mask",  # part of 05.step, which takes chunks, windows and padding
    "07.commute",  # its answer was the section's own sentence; 07.movable asks it of three gains and two layouts
    "01.fault",  # told 01.overflow twice; 01.backward and 01.fold build instead
}


def test_exercise_ids_are_those_of_the_first_edition():
    """Progress is stored under them: an id may be added or retired, and never renamed or used for something else."""
    first = set((ROOT / "tests/data/exercise_ids.txt").read_text(encoding="utf-8").split())
    assert first - set(EXERCISES) == RETIRED
