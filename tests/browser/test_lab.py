"""Every chapter in a real JupyterLab: it runs, its explorers move by key and by mouse, and the picture is what the table says."""

import nbformat
import pytest
from driver import SHOW, Notebook

from book.copies import START, chapter_copy
from book.explore import ALL
from book.paths import chapters

MOVES = 200  # per chapter, shared out among its explorers
KERNEL_GROWTH = 50  # MB over those moves
CHAPTERS = chapters(suffix=".ipynb")


def committed(path):
    """Names of the explorers that the committed notebook shows, in order."""
    nb = nbformat.read(path, as_version=4)
    shown = [o.get("metadata", {}).get("explorer", {}) for c in nb.cells for o in c.get("outputs", [])]
    return [e["name"] for e in shown if e]


@pytest.mark.parametrize("path", CHAPTERS, ids=[p.stem for p in CHAPTERS])
def test_chapter(path, lab, page):
    notebook = Notebook(page, lab, path.name)
    notebook.run_all()
    cells = notebook.cells()
    assert not [(c["index"], c["error"]) for c in cells if c["error"]]
    found = [(c["index"], c["explorer"]) for c in cells if c["explorer"]]
    assert [name for _, name in found] == committed(path)
    shown = []
    for index, name in found:
        explorer = notebook.show(index, ALL[name])
        assert len(explorer.pictures()) == 1, f"{name}: {len(explorer.pictures())} pictures"
        explorer.reset()  # a chapter may show it at other settings
        explorer.wait_for_picture()
        follow(explorer)
        shown.append(index)
    if found:
        before = None
        for index, name in found:
            explorer = notebook.show(index, ALL[name])
            explorer.reset()
            explorer.wait_for_picture()
            before = before or lab.kernel_megabytes(path.name)
            explorer.count_moves(-(-MOVES // len(found)))
        grown = lab.kernel_megabytes(path.name) - before
        assert grown < KERNEL_GROWTH, f"the kernel grew by {grown:.0f} MB over {MOVES} moves"
    assert page.problems == []
    lab.close_kernels()


def follow(shown):
    """Both ends of every slider by key, a quick drag, every choice, and back."""
    for knob in shown.sliders:
        for key in ("End", "ArrowLeft", "Home", "ArrowRight"):
            shown.press(knob, key)
            shown.wait_for_picture()
    if shown.sliders:
        shown.drag(shown.sliders[0], 0.9, 0.1, 0.6)
        shown.wait_for_picture(
            seconds=3
        )  # 75 moves in a fraction of a second: the last one shows, none queue up
    for knob in shown.choices:
        for value in knob.stops:
            shown.choose(knob, value)
            shown.wait_for_picture()
    shown.reset()
    shown.wait_for_picture()


def cell(page, index):
    return page.evaluate_handle(SHOW, index).as_element()


def run(page, index):
    """Select a cell and run it, as Shift+Enter does."""
    node = cell(page, index)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")
    return node


def test_what_a_reader_meets_before_and_between_runs(lab, page):
    """A picture that was not run says so; run too early, its cell names the one to run first; without its kernel it says that too."""
    path = next(p for p in CHAPTERS if p.stem.startswith("03"))
    fresh = f"fresh_{path.name}"  # a copy of its own: other tests ran the chapter, and JupyterLab saved it
    (lab.folder / fresh).write_text(chapter_copy(path), encoding="utf-8")
    name, copy = committed(path)[0], nbformat.reads((lab.folder / fresh).read_text(), as_version=4)
    index = next(i for i, c in enumerate(copy.cells) if c.get("outputs"))
    notebook = Notebook(page, lab, fresh)
    node = cell(page, index)
    node.wait_for_selector(".jp-OutputArea img")
    assert "widget" not in node.query_selector(".jp-OutputArea").inner_text().lower()
    node = run(page, index)
    said = node.wait_for_selector(".jp-OutputArea pre").inner_text()
    assert "is made by code cell 1 of this notebook" in said and "Traceback" not in said
    run(page, 1)
    run(page, index)
    shown = notebook.show(index, ALL[name])
    shown.wait_for_picture()
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.wait_for_function(
        "node => node.querySelector('[role=status]')?.innerText.includes('lost its kernel')", arg=shown.node
    )
    page.problems.clear()  # the widget manager reports the closed comms
    lab.close_kernels()


def test_the_first_page_opens_chapters(lab, page):
    Notebook(page, lab, START)
    assert page.locator("text=Would you like to receive").count() == 0
    page.locator(".jp-Notebook a", has_text="RoPE, derived").first.click()
    page.wait_for_selector('.jp-Notebook h1:has-text("03 · RoPE, derived")', timeout=30_000)
    assert page.problems == []
    lab.close_kernels()
