"""Decks before a browser sees them: what the metadata of the chapters makes, and what is refused. Some 5 s."""

import re

import nbformat
import pytest

from book.paths import chapters
from book.publish import slides, static
from book.publish.slides_compose import NoSlides, compose
from book.publish.slides_notes import Guide

code, text, output = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell, nbformat.v4.new_output
GUIDE = Guide()
DECKS = [p for p in chapters(suffix=".ipynb") if '"slide_type": "slide"' in p.read_text(encoding="utf-8")]
# What a chapter is about is shown whole.
DEFINED = {
    "02": ["width_solution", "swiglu_solution"],
    "03": ["my_rope_cache", "my_apply_rope"],
    "04": ["llama3_solution", "yarn_solution"],
    "06": ["mla_solution"],
    "07": ["my_attention"],
    "08": ["hf_name", "tied_logits"],
    "09": ["block", "logits_of", "trace"],
    "10": ["ours", "to_half"],
    "11": ["norm_kernel", "online_kernel"],
}


def cells_of(path):
    """The deck of a committed chapter, its players not drawn."""
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        for shown in filter(None, map(static.explorer_of, cell.get("outputs", []))):
            cell.metadata["explorer"] = shown[0]
            cell.outputs = [output("display_data", {"text/html": "player"})]
    return compose(nb, path.stem, GUIDE).cells


def slides_of(cells):
    """[(title, notes, cells below the title)]."""
    made = []
    for cell in cells:
        if cell.metadata.slideshow.slide_type in ("slide", "subslide"):
            made.append((cell.metadata.slide_title, cell.metadata.get("notes", ""), []))
        else:
            made[-1][2].append(cell)
    return made


@pytest.fixture(params=DECKS, ids=[p.stem for p in DECKS], scope="module")
def deck(request):
    return request.param, cells_of(request.param)


def test_every_slide_has_a_title_and_holds_something(deck):
    made = slides_of(deck[1])
    assert 20 <= len(made) <= 30
    for title, _, below in made:
        assert 3 <= len(title) <= 100, title
        assert any(cell.source.strip() or cell.get("outputs") for cell in below), f"nothing under {title!r}"
    titles = [title for title, *_ in made]
    assert len(set(titles)) == len(titles), "two slides say the same"


def test_what_the_chapter_is_about_is_shown_and_nothing_else(deck):
    path, cells = deck
    shown = "\n".join(c.source for c in cells if c.cell_type == "code" and not c.metadata.get("transient"))
    missing = [name for name in DEFINED.get(path.stem[:2], []) if f"def {name}(" not in shown]
    assert not missing
    assert "progress(" not in shown and "my_guess" not in shown, (
        "a report of progress or a blank guess on a slide"
    )
    assert "\n    ...\n" not in f"{shown}\n" and not [
        c for c in cells if "check" in c.metadata.get("tags", [])
    ]
    drawn = {c.metadata.explorer for c in cells if "explorer" in c.metadata}
    nb = nbformat.read(path, as_version=4)
    assert drawn == {
        found[0] for c in nb.cells for o in c.get("outputs", []) if (found := static.explorer_of(o))
    }


def test_an_answer_is_a_fragment(deck):
    late = False
    for cell in deck[1]:
        kind = cell.metadata.slideshow.slide_type
        late = kind == "fragment" or (late and kind == "-")
        if any("truth:" in o.get("text", "") for o in cell.get("outputs", [])):
            assert late, cell.source


def test_notes_carry_minutes_and_half_of_the_slides_have_some(deck):
    path, cells = deck
    made = slides_of(cells)
    if path.stem[:2] in GUIDE.lectures:
        assert made[0][1].startswith("**Minutes ")
    assert sum(bool(notes) for _, notes, _ in made) >= len(made) / 3


def test_numbers_on_slides_stand_in_the_chapter(deck):
    """A number that the metadata says is one that the chapter's text, code or output says too."""
    path, _ = deck
    nb = nbformat.read(path, as_version=4)
    told = "\n".join(c.source + "".join(o.get("text", "") for o in c.get("outputs", [])) for c in nb.cells)
    told = re.sub(r"(?<=\d)[,_](?=\d{3})", "", told).replace("{,}", "")
    for cell in nb.cells:
        show = cell.metadata.get("slideshow", {})
        said = re.sub(r"(?<=\d)(,|\{,\})(?=\d{3})", "", f"{show.get('title', '')} {show.get('text', '')}")
        for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)", said):
            assert float(number) < 10 or re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", told), (
                number,
                show["title"],
            )


def test_every_chapter_has_a_deck():
    without = {p.stem for p in chapters(suffix=".ipynb")} - {p.stem for p in DECKS}
    assert not without


def test_every_question_of_the_guide_is_asked_once():
    asked = []
    for path in DECKS:
        for cell in nbformat.read(path, as_version=4).cells:
            asked += cell.metadata.get("slideshow", {}).get("ask", "").split()
    assert sorted(asked) == sorted(GUIDE.questions)


def made_of(*cells, name="01_tiny"):
    nb = nbformat.v4.new_notebook(cells=list(cells))
    return compose(
        nb,
        name,
        Guide(
            "**Q1. What?** (`01.x`)\nSaid most: nothing.\n\n| min | chapter | on screen | ask |\n|---|---|---|---|\n| 0 to 9 | 01 | a picture | Q1 |\n"
        ),
    ).cells


def slide(kind="slide", **keys):
    return {"slideshow": {"slide_type": kind, **keys}}


def ran(source, said=None, **metadata):
    outputs = [output("stream", name="stdout", text=said)] if said else []
    return code(source, outputs=outputs, execution_count=1, metadata=metadata)


def kinds(cells):
    return [(c.metadata.slideshow.slide_type, c.source, len(c.get("outputs", []))) for c in cells]


def test_plain_metadata_means_what_it_means_everywhere():
    got = made_of(
        text("# T\n\nOne.", metadata=slide()), ran("x = 1"), text("Left out.", metadata=slide("skip")),
        text("## 1 · Two\n\nSaid.", metadata=slide("subslide")), text("Later.", metadata=slide("fragment")), text("For me.", metadata=slide("notes")),
        ran("def my(): ...", tags=["exercise"]),
    )  # fmt: skip
    assert kinds(got) == [
        ("slide", "# T", 0), ("-", "One.", 0), ("-", "x = 1", 0), ("subslide", "## Two", 0), ("-", "Said.", 0), ("fragment", "Later.", 0)
    ]  # fmt: skip
    assert got[3].metadata.notes == "For me."
    assert got[0].metadata.notes.startswith("**Minutes 0 to 9 of the lecture.** On screen: a picture.")


def test_a_title_and_a_text_leave_the_sentences_to_the_notes():
    source = "## A\n\nLong words\nof the book.\n\n$$x = 1$$\n\nMore.\n\n- a\n- b"
    got = made_of(text(source, metadata=slide(title="It is so", text="Short.", ask="Q1")))
    assert kinds(got) == [("slide", "# It is so", 0), ("-", "Short.\n\n$$x = 1$$", 0)]
    assert got[0].metadata.notes.endswith(
        "**Q1. What?** (`01.x`)\nSaid most: nothing.\n\nLong words\nof the book.\n\nMore."
    )
    shown = made_of(text(source, metadata=slide(title="It is so", show="list")))
    assert shown[1].source == "- a\n- b"


def test_an_answer_waits_a_picture_hides_its_code_and_checks_stay_away():
    got = made_of(
        ran("predict(None, 4)", "truth: 4\nok  four\n2 and 2\n", **slide(title="How many?", text="Guess."))
    )
    assert kinds(got) == [
        ("slide", "# How many?", 0),
        ("-", "Guess.", 0),
        ("fragment", "predict(None, 4)", 1),
    ]
    assert got[2].outputs[0].text == "truth: 4\n2 and 2\n" and got[2].metadata.transient.remove_source
    plot = ran("plot()", "printed\n", **slide(title="Seen"))
    plot.outputs.append(output("display_data", {"image/png": "eHh4"}))
    got = made_of(plot)
    assert [o.output_type for o in got[1].outputs] == ["display_data"] and got[
        1
    ].metadata.transient.remove_source
    both = made_of(ran("f()", "ok  held\n", **slide(title="Seen")))
    assert not both[1].metadata.get("transient") and both[1].outputs[0].text == "ok  held\n"


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (slide("slyde"), "cell 1: slide_type 'slyde'; there are slide, subslide"),
        (slide(titel="x"), "cell 1: slideshow holds 'titel'; known: ask, show, slide_type, text, title"),
        (slide(show="plot"), "cell 1: show names 'plot'; a cell's parts are heading"),
        (slide(ask="Q7"), "cell 1 asks 'Q7'; lecturer.md has Q1"),
    ],
)
def test_what_is_not_known_is_named(metadata, words):
    with pytest.raises(ValueError, match=re.escape(f"01_tiny: {words}")):
        made_of(
            text("# T", metadata=slide())
            if metadata["slideshow"]["slide_type"] == "x"
            else text("# T", metadata=metadata),
            text("# U", metadata=slide()),
        )


def test_a_chapter_without_slides_and_a_cell_that_never_ran_are_named():
    with pytest.raises(NoSlides, match="01_tiny has no slides: .*Property Inspector"):
        made_of(text("# T"), ran("x"))
    with pytest.raises(ValueError, match="01_tiny: cell 2 was never run: run all cells"):
        made_of(text("# T", metadata=slide()), code("print(1)", metadata=slide("-")))


def test_decks_from_a_lecturers_own_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slides.vendor, "unpack", lambda *args: None)
    monkeypatch.setattr(slides.vendor, "mathjax", lambda folder: folder.mkdir(parents=True))
    own, out = tmp_path / "work", tmp_path / "out"
    assert slides.main(["--from", str(own), "--out", str(out)]) == 1
    assert "slides: no folder " in capsys.readouterr().err
    own.mkdir()
    assert slides.main(["--from", str(own), "--out", str(out)]) == 1
    assert "slides: no chapter (NN_name.ipynb) in " in capsys.readouterr().err
    nb = nbformat.v4.new_notebook(
        cells=[text("# 05 · Mine\n\nMy own words.", metadata=slide()), ran("1", "one\n")]
    )
    nbformat.write(nb, own / "05_kv_cache.ipynb")
    nbformat.write(nbformat.v4.new_notebook(cells=[text("# 06 · Bare")]), own / "06_mla.ipynb")
    assert slides.main(["06", "--from", str(own), "--out", str(out)]) == 1
    assert slides.main(["05", "06", "--from", str(own), "--out", str(out)]) == 1
    capsys.readouterr()
    assert slides.main(["--from", str(own), "--out", str(out)]) == 0, (
        "the others are built, the one without is named"
    )
    assert "slides: 06_mla has no slides" in capsys.readouterr().err
    html = (out / "05_kv_cache.html").read_text(encoding="utf-8")
    assert (
        "My own words." in html
        and '<aside class="notes">' in html
        and "06_mla.html" in html
        and "04_rope_in_practice.html" in html
    )
    assert not (out / "06_mla.html").exists()
    monkeypatch.setenv("BOOK_CHROMIUM", "no-such-browser")
    assert slides.main(["05", "--from", str(own), "--out", str(out), "--pdf"]) == 1
    assert capsys.readouterr().err.startswith(
        "slides: Chromium is needed for a PDF: $BOOK_CHROMIUM is 'no-such-browser'"
    )
