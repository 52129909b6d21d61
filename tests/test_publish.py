"""What stands between a committed notebook and the site or the slides: players, links, vendored files."""

import io
import re
import tarfile

import matplotlib.pyplot as plt
import nbformat
import pytest

from book.explore import ALL
from book.figures import in_words
from book.paths import chapters
from book.publish import pages, search, site, slides, static, vendor

code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell


def output(name="rmsnorm-scale", note=True, at=None):
    e = ALL[name] if name in ALL else ALL["rmsnorm-scale"]
    plain = f"Explorer {name}: {e.title}"
    metadata = {"explorer": {"name": name, "at": e.settings(**(at or {}))}} if note else {}
    return nbformat.v4.new_output(
        "execute_result", {"text/plain": plain}, metadata=metadata, execution_count=1
    )


def chapter(tmp_path, *cells):
    path = tmp_path / "01_tiny.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[text("# 01 · Tiny\n\nWhat it is\nabout."), *cells]), path)
    return path


@pytest.fixture(autouse=True)
def short(monkeypatch, tmp_path):
    """Players of few states, and a cache of their own: what is tested here is where they go."""
    monkeypatch.setattr(ALL["rmsnorm-scale"], "player", {"scale": [1e-4, 1.0, 1e4], "dtype": None})
    monkeypatch.setattr(static, "CACHE", tmp_path / "players")


@pytest.mark.parametrize("note", [True, False])
def test_an_explorer_becomes_its_player(tmp_path, note):
    path = chapter(tmp_path, code("e", outputs=[output(note=note, at={"eps": 1e-5})], execution_count=1))
    nb = static.read_chapter(path)
    data = nb.cells[1].outputs[0].data
    assert list(data) == ["text/html"] and 'data-explorer="rmsnorm-scale"' in data["text/html"]
    assert (
        "free in the notebook: eps 1e-05" in data["text/html"]
    ) is note  # without the note it starts at the defaults
    assert nb.cells[1].metadata.explorer == "rmsnorm-scale"
    assert static.title(nb) == "01 · Tiny" and static.first_sentence(nb) == "What it is about."


def test_players_are_drawn_once(tmp_path, monkeypatch):
    path = chapter(tmp_path, code("e", outputs=[output()], execution_count=1))
    first = static.read_chapter(path)
    monkeypatch.setattr("book.explore.player.states", None)  # a second drawing would now fail
    assert static.read_chapter(path) == first


def test_two_of_the_same_have_ids_of_their_own(tmp_path):
    cells = [code("e", outputs=[output()], execution_count=i) for i in (1, 2)]
    html = [c.outputs[0].data["text/html"] for c in static.read_chapter(chapter(tmp_path, *cells)).cells[1:]]
    assert 'id="player-01-1"' in html[0] and 'id="player-01-2"' in html[1]


def test_an_unknown_explorer_and_an_unrun_cell_are_named(tmp_path):
    with pytest.raises(ValueError, match="cell 2 shows 'gone'; book.explore has "):
        static.read_chapter(chapter(tmp_path, code("e", outputs=[output("gone")], execution_count=1)))
    with pytest.raises(ValueError, match="cell 2 was never run: make notebooks CH=01"):
        static.read_chapter(chapter(tmp_path, code("x = 1")))


def test_links_to_what_the_site_lacks_become_words():
    there = {"05_kv_cache.ipynb"}
    assert (
        site.local_links("see [five](05_kv_cache.ipynb#bytes)", there)
        == "see [five](05_kv_cache.ipynb#bytes)"
    )
    assert (
        site.local_links("the [guide](lecturer.md) and [code](../src/lib/rope.py)", there)
        == "the guide and code"
    )
    assert site.local_links("[paper](https://arxiv.org/abs/1910.07467) [up](#top)", there).count("](") == 2
    assert site.local_links("w[0](x) ![alt](data:image/png;base64,x)", there).endswith(
        "![alt](data:image/png;base64,x)"
    )


def ran(source, *outputs, **metadata):
    return code(source, outputs=list(outputs), execution_count=1, metadata=metadata)


def test_a_solution_is_folded_and_an_explorers_code_too():
    nb = nbformat.v4.new_notebook(cells=[ran("s", tags=["solution"]), ran("e", explorer="x"), ran("a")])
    site.fold(nb)
    assert [c.metadata.get("tags") for c in nb.cells] == [["solution", "hide-cell"], ["hide-input"], None]


def test_a_picture_is_told_in_words_on_the_page():
    fig, (left, right) = plt.subplots(1, 2)
    left.plot([1, 2], [3, 4], label="MHA")
    left.set(title="memory", xlabel="tokens", ylabel="GiB")
    left.legend()
    right.barh(["norm", "head"], [1, 2])
    right.text(1, 1, "+2 %")
    right.text(1, 2, "+")
    words = in_words(fig)
    plt.close(fig)
    assert words == "Chart with 2 panels. 1. memory: GiB against tokens: MHA; 2. norm, head: +2 %."
    shown = nbformat.v4.new_output(
        "display_data", {"image/png": "eHh4"}, metadata={"image/png": {"alt": words}}
    )
    nb = nbformat.v4.new_notebook(cells=[ran("plot()", shown), ran("predict(1, 2)\nmy_guess", shown)])
    site.fold(nb)
    site.describe(nb)
    assert [cell.metadata.mystnb.image["alt"] for cell in nb.cells] == [words, words]
    assert nb.cells[1].metadata.mystnb.code_prompt_show == "Show the answer"


def test_a_changed_package_is_refused(tmp_path, monkeypatch):
    fake = tmp_path / "mathjax-3.2.2.tgz"
    with tarfile.open(fake, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("package/x.js"), io.BytesIO())
    with pytest.raises(ValueError, match=r"mathjax-3\.2\.2\.tgz: sha512 .* expected Bt\+SSVU8"):
        vendor.tarball("mathjax", tmp_path)
    assert not fake.exists(), "the wrong file is gone, so that the next run fetches it again"
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"mathjax 3\.2\.2 comes from npm, which is not on the PATH"):
        vendor.tarball("mathjax", tmp_path)


def test_no_chapter_is_said(tmp_path):
    for build in (site.build, slides.build):
        with pytest.raises(ValueError, match="no executed chapter in notebooks/: make notebooks"):
            build(tmp_path / "out", papers=[])


def test_names_of_lib_are_linked_once_and_others_stay():
    linked = set()
    text = pages.link_names(
        "`rms_norm` and `rms_norm`, [`swiglu`](x), `lib.attend`, `config.json`, `d`", linked
    )
    assert (
        text
        == "[`rms_norm`](reference.md#lib-rms-norm) and `rms_norm`, [`swiglu`](x), [`lib.attend`](reference.md#lib-attend), `config.json`, `d`"
    )
    assert (
        pages.link_names("`RMSNorm` `attend`", linked) == "[`RMSNorm`](reference.md#class-rmsnorm) `attend`"
    )


def test_the_bibliography_has_every_paper_that_a_chapter_cites():
    papers, _ = pages.cited(chapters(suffix=".ipynb"))
    text = "".join(text for _, text in pages.prose(chapters(suffix=".ipynb")))
    assert set(papers) == set(re.findall(r"arxiv.org/abs/([0-9]{4}[.][0-9]{4,5})", text)) and len(papers) > 20
    assert papers["1910.07467"][0] == "Zhang & Sennrich 2019"


def test_every_entry_of_the_index_leads_somewhere():
    text = pages.index(chapters(suffix=".ipynb"))
    assert "[06](06_mla.ipynb#" in text and "`num_key_value_heads`" in text


def test_the_sheet_is_computed():
    text = pages.sheet()
    assert "| llama-2-7b | 6.74 billion | 4,096 | 32 | 32 : 32 | 11,008 | 512 KiB | 4 GiB |" in text


def test_search_knows_what_a_section_says_and_what_its_cells_printed():
    html = "<article><section id='a'><h1>One</h1><p>first</p><section id='b'><h2>Two</h2><pre>11,008</pre></section></section></article>"
    assert search.sections(html, "x.html") == [
        ("x.html", "a", "One", "One", "One first"),
        ("x.html", "b", "One", "Two", "Two 11,008"),
    ]
