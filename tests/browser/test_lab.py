"""Every chapter in a real JupyterLab: it runs, its explorers move by key and by mouse, and the picture is what the table says."""

import nbformat
import pytest
from driver import Notebook

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


@pytest.mark.skipif(not CHAPTERS, reason="no chapter to open")
def test_a_fresh_chapter_shows_its_pictures_before_it_is_run(lab, page):
    """Opened and not run, an explorer's cell shows the stored picture, and no word about a missing widget."""
    path = next(p for p in CHAPTERS if committed(p))
    notebook = Notebook(page, lab, path.name)
    index = next(c["index"] for c in notebook.cells() if c["explorer"])
    from driver import SHOW

    node = page.evaluate_handle(SHOW, index).as_element()
    node.wait_for_selector(".jp-OutputArea img")
    assert "widget" not in node.query_selector(".jp-OutputArea").inner_text().lower()
    assert page.problems == []
    lab.close_kernels()
