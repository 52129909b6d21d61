"""What nbval does not look at: pairs, execution, size, machine paths, and the shape of a chapter."""

import re

import jupytext
import nbformat
import pytest

from book.paths import NOTEBOOKS, chapters
from book.publish import execute

SOURCES = chapters()
NOTEBOOK_BYTES = 4_000_000  # GitHub stops rendering well before it stops storing
CELL_LINES, CELLS = 20, 60
# /home/x, /root/x, C:\x ..: an absolute path in an output is true on one machine only. URLs and LaTeX fractions are not paths.
MACHINE_PATH = re.compile(
    r"(?<![\w.:/\\$}])(?:/(?:home|root|Users|tmp|usr|opt|var|mnt|work|srv)/[\w.-]+|[A-Z]:\\\w)"
)
TRIPLE = ["exercise", "check", "solution"]


@pytest.fixture(params=SOURCES, ids=[p.stem for p in SOURCES])
def source(request):
    return request.param


@pytest.fixture
def notebook(source):
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def outputs(nb):
    return [output for cell in code_cells(nb) for output in cell.outputs]


def texts(output):
    """Everything in an output that is text."""
    data = {
        k: v for k, v in output.get("data", {}).items() if not k.startswith("image/") or k == "image/svg+xml"
    }
    return [output.get("text", ""), *map(str, data.values()), *output.get("traceback", [])]


def tags(cell):
    return cell.metadata.get("tags", [])


def test_no_orphans():
    assert [p.stem for p in chapters(suffix=".ipynb")] == [p.stem for p in SOURCES]
    numbers = [p.stem[:2] for p in SOURCES]
    assert len(set(numbers)) == len(numbers), f"two chapters share a number: {numbers}"


def test_pair(source, notebook):
    """The committed notebook is the executed source: cell by cell the same type, text, tags and id, and the same metadata."""

    def shape(nb):
        return [(cell.cell_type, cell.source, dict(cell.metadata), cell.id) for cell in nb.cells]

    fresh = execute.read_source(source)
    assert shape(notebook) == shape(fresh), f"run: make notebooks CH={source.stem[:2]}"
    assert notebook.metadata == fresh.metadata
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata  # without its state GitHub refuses the file


def test_the_source_is_what_jupytext_writes(source):
    """Case S2-NB-01: opening and saving a pair in JupyterLab leaves every line of the .py as it is."""
    text = source.read_text(encoding="utf-8")
    written = jupytext.writes(jupytext.reads(text, fmt="py:percent"), fmt="py:percent")
    assert written[written.index("# %%") :] == text


def test_executed_in_order(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert any(cell.outputs for cell in code_cells(notebook))


def test_outputs_hold_on_any_machine(notebook):
    for output in outputs(notebook):
        assert output.output_type != "error", output.get("evalue")
        assert output.get("name") != "stderr", f"text on stderr: {output.get('text')}"
        assert execute.WIDGET_VIEW not in output.get("data", {}), (
            "a widget view without its kernel shows nothing"
        )
        for text in texts(output):
            assert not MACHINE_PATH.search(text), f"a path of one machine: {text[:200]}"
            assert not re.search(r"\bat 0x[0-9a-f]{6,}", text), f"a memory address: {text[:200]}"
            assert "Warning:" not in text, text[:200]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/home/ann/book", True),
        ("saved to /tmp/x.png", True),
        (r"C:\Users\ann", True),
        ("https://example.org/home/x", False),
        ("12 tokens/user/layer", False),
        ("models/SmolLM2", False),
    ],
)
def test_machine_path_pattern(text, found):
    assert bool(MACHINE_PATH.search(text)) is found


def test_sizes(source, notebook):
    assert source.with_suffix(".ipynb").stat().st_size <= NOTEBOOK_BYTES
    own = [
        cell for cell in notebook.cells if not {"check", "solution"} & set(tags(cell))
    ]  # what a reader reads and writes
    assert len(own) <= CELLS
    long = {
        i: n
        for i, cell in enumerate(code_cells(notebook))
        if (n := len(cell.source.splitlines())) > CELL_LINES
    }
    assert not long, f"code cells (index: lines) over {CELL_LINES} lines belong in lib or book: {long}"


def test_nothing_is_hidden_from_nbval(source, notebook):
    for cell in code_cells(notebook):
        assert not re.search(r"NBVAL|PYTEST_VALIDATE", cell.source)
        assert not [tag for tag in tags(cell) if tag.startswith("nbval") or tag == "raises-exception"]


def test_cells_are_plain_python(source, notebook):
    """No shell, no download, no file named relative to notebooks/ (a reader's copy runs in work/)."""
    for cell in code_cells(notebook):
        assert not re.search(r"^\s*[!%]", cell.source, re.MULTILINE), cell.source
        assert not re.search(r"""["'](?:\./)?(?:data|results|\.\.)/""", cell.source), (
            "use book.paths.NOTEBOOKS / .."
        )
        assert not cell.source.rstrip().endswith(";"), cell.source
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert not re.search(r"!\[[^]]*\]\((?!https?:|attachment:|data:)", cell.source), (
                "a picture file beside"
            )


def test_references_are_links(notebook):
    """A paper, a public issue and another chapter are reached by a click, in JupyterLab, on the site and in the slides."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text += "\n".join(cell.metadata.get("slideshow", {}).get("text", "") for cell in notebook.cells)
    plain = re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`\n]*`|\$[^$\n]*\$", "", text)
    assert not re.findall(r"arXiv[ :\n]*\d{4}\.\d{4,5}|\b[\w.-]+#\d{2,6}\b", plain)
    own = notebook.cells[0].source[2:4]
    assert not [n for n in re.findall(r"[Cc]hapter (\d\d)\b", plain) if n != own]


def test_exercises_come_in_triples(notebook):
    found = [tag for cell in notebook.cells for tag in tags(cell) if tag in TRIPLE]
    assert found == TRIPLE * (len(found) // 3)
    for cell in notebook.cells:
        if "solution" in tags(cell):
            assert cell.metadata.get("jupyter", {}).get("source_hidden") is True, "a solution starts folded"


def test_starts_with_its_title(notebook):
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")


# The tools behind the chapters, on chapters made up here: they are tested also while notebooks/ is still empty.

TINY = """# %% [markdown]
# # Tiny

# %%
print("a", flush=True)
print("b")
1 + 1

# %% tags=["solution"]
import ipywidgets
ipywidgets.IntSlider(value=3)
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "01_tiny.py"
    path.write_text(TINY, encoding="utf-8")
    return path


def test_execute_twice_gives_the_same_bytes(tiny):
    ok, text = execute.publish(tiny)
    assert ok, text
    target = tiny.with_suffix(".ipynb")
    first = target.read_bytes()
    nb = nbformat.reads(first.decode(), as_version=4)
    assert [cell.get("execution_count") for cell in nb.cells] == [None, 1, 2]
    assert nb.cells[1].outputs[0].text == "a\nb\n"  # one stream, however it was cut
    assert nb.cells[2].outputs[0].data == {"text/plain": "IntSlider(value=3)"}
    assert "widgets" not in nb.metadata and "version" not in nb.metadata.language_info
    target.unlink()
    execute.publish(tiny)
    assert target.read_bytes() == first
    assert execute.publish(tiny, check=True)[0]


def test_an_error_leaves_the_old_notebook(tiny):
    target = tiny.with_suffix(".ipynb")
    target.write_text("old", encoding="utf-8")
    tiny.write_text(TINY + '\n# %%\nx = 1\nraise ValueError("the cause")\n', encoding="utf-8")
    ok, text = execute.publish(tiny)
    assert not ok
    assert "cell 4 of 4" in text and "   2  raise ValueError" in text and "the cause" in text
    assert target.read_text(encoding="utf-8") == "old"
    assert sorted(p.name for p in tiny.parent.iterdir()) == ["01_tiny.ipynb", "01_tiny.py"]


def test_cell_ids_follow_the_text():
    ids = [cell.id for cell in execute.read_source_text("# %%\nx = 1\n\n# %%\ny = 2\n\n# %%\nx = 1\n").cells]
    assert len(set(ids)) == 3
    moved = [cell.id for cell in execute.read_source_text("# %%\ny = 2\n\n# %%\nx = 1\n").cells]
    assert moved == [ids[1], ids[0]]


def test_unknown_chapter_is_named():
    with pytest.raises(ValueError, match="no chapter '77'"):
        chapters("77")


def test_pairing_holds_in_notebooks_only():
    text = (NOTEBOOKS / "jupytext.toml").read_text(encoding="utf-8")
    assert 'formats = "ipynb,py:percent"' in text
    for key in execute.CELL_METADATA:
        assert key in text
    root = NOTEBOOKS.parent
    assert "jupytext]" not in (root / "pyproject.toml").read_text(encoding="utf-8")
    assert not list(root.glob("*jupytext*"))


def test_a_pair_opens_whatever_its_times_are(tmp_path):
    """Case S2-NB-01: the .ipynb is younger than its .py after every execution; Jupyter refused all eleven chapters."""
    import os
    import shutil

    from jupyter_server.services.contents.largefilemanager import LargeFileManager
    from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

    for file in [NOTEBOOKS / "jupytext.toml", SOURCES[3], SOURCES[3].with_suffix(".ipynb")]:
        shutil.copy(file, tmp_path)
    name = SOURCES[3].with_suffix(".ipynb").name
    for seconds, file in ((0, SOURCES[3].name), (10, name)):
        os.utime(tmp_path / file, (1_700_000_000 + seconds,) * 2)
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)()
    manager.root_dir = str(tmp_path)
    cells = manager.get(name)["content"].cells
    assert [c.source for c in cells] == [c.source for c in nbformat.read(tmp_path / name, as_version=4).cells]
    assert any(c.get("outputs") for c in cells)
