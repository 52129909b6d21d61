"""The decks, built here, opened from the disk in a Chromium without a network. Some 40 s, players drawn before."""

import pytest

from book.paths import chapters
from book.publish import slides
from test_static import OUTSIDE, check_player, explorers_in, offline  # noqa: F401  (a fixture)

CHAPTERS = [p for p in chapters(suffix=".ipynb") if '"slide_type": "slide"' in p.read_text(encoding="utf-8")]
EACH = pytest.mark.parametrize("path", CHAPTERS, ids=[p.stem for p in CHAPTERS])
# What each slide holds, everything shown: where its content ends, its smallest code letter, whether anything is cut.
LAID = """() => {
  const slide = Reveal.getCurrentSlide(), body = slide.querySelector(".slide"), scale = Reveal.getScale(), at = slide.getBoundingClientRect();
  body.querySelectorAll(".fragment").forEach((f) => f.classList.add("visible"));
  const parts = [...body.querySelectorAll("h1, h2, p, li, pre, table, img, .explorer-picture, .knobs, .says, button, svg")].filter((e) => !e.closest(".notes"));
  const boxes = parts.map((e) => e.getBoundingClientRect()).filter((box) => box.width);
  const code = [...body.querySelectorAll("pre")].map((e) => parseFloat(getComputedStyle(e).fontSize));
  return {
    title: body.querySelector(":scope > :not(aside) :is(h1, h2)")?.textContent ?? "",
    bottom: Math.max(...boxes.map((b) => b.bottom - at.top)) / scale,
    right: Math.max(...boxes.map((b) => b.right - at.left)) / scale,
    cut: [...body.querySelectorAll("pre")].some((e) => e.scrollWidth > e.clientWidth + 1),
    code: Math.min(...code, 99),
    picture: Math.max(0, ...[...body.querySelectorAll("img, .explorer-picture")].map((e) => e.getBoundingClientRect().height / scale)),
  };
}"""


@pytest.fixture(scope="session")
def the_slides(tmp_path_factory):
    out = tmp_path_factory.mktemp("decks") / "slides"
    names, refused = slides.build(out, CHAPTERS)
    assert names == [p.stem for p in CHAPTERS] and not refused
    return out


def open_deck(page, path, folder, width=1280, height=720):
    page.set_viewport_size({"width": width, "height": height})
    page.goto((folder / f"{path.stem}.html").as_uri())
    page.wait_for_function("document.documentElement.dataset.ready === 'yes'", timeout=60_000)


def places(page):
    return page.evaluate("Reveal.getSlides().map((s) => Object.values(Reveal.getIndices(s)).slice(0, 2))")


@EACH
def test_every_slide_is_full_and_nothing_leaves_it(path, the_slides, offline):  # noqa: F811
    """At 1280 x 720, one deck at 1920 x 1080 too: inside the slide, above the footer, code at least 3 % tall, no line cut, not nearly empty."""
    sizes = [(1280, 720)] + [(1920, 1080)] * (path == CHAPTERS[3])
    for width, height in sizes:
        open_deck(offline, path, the_slides, width, height)
        for h, v in places(offline):
            offline.evaluate("([h, v]) => Reveal.slide(h, v)", [h, v])
            laid = offline.evaluate(LAID)
            assert laid["title"], f"slide {h}/{v} has no title"
            assert laid["bottom"] <= 694 and laid["right"] <= 1262 and not laid["cut"], laid
            assert laid["bottom"] >= 260 and laid["code"] >= 0.03 * 720, laid
            assert not laid["picture"] or laid["picture"] >= 300, laid


@EACH
def test_explorers_move_without_a_network_and_without_turning_the_slide(path, the_slides, offline):  # noqa: F811
    open_deck(offline, path, the_slides)
    figures = offline.locator(".explorer-player")
    wanted = explorers_in(path)
    assert figures.count() == len(wanted)
    for i, (explorer, at) in enumerate(wanted):
        offline.evaluate(
            """i => {
            const at = Reveal.getIndices(document.querySelectorAll(".explorer-player")[i].closest("section"));
            Reveal.slide(at.h, at.v);
        }""",
            i,
        )
        here = offline.evaluate("Reveal.getIndices()")
        figures.nth(i).locator("input, select").first.focus()
        for key in ("ArrowRight", "ArrowLeft", "ArrowRight"):
            offline.keyboard.press(key)
        assert offline.evaluate("Reveal.getIndices()") == here, (
            "arrow keys on a focused slider turned the slide"
        )
        figures.nth(i).get_by_role("button", name="Reset").click()
        check_player(offline, figures.nth(i), explorer, at)


def test_a_clicker_goes_on_after_a_drag(the_slides, offline):  # noqa: F811
    open_deck(offline, next(p for p in CHAPTERS if p.stem[:2] == "05"), the_slides)
    slider = offline.locator(".explorer-player input[type=range]").first
    offline.evaluate("""() => {
        const at = Reveal.getIndices(document.querySelector(".explorer-player").closest("section"));
        Reveal.slide(at.h, at.v);
    }""")
    for key, change in (("PageDown", 1), (" ", 1), ("PageUp", -1)):
        box = slider.bounding_box()
        before = offline.evaluate("Reveal.getSlidePastCount()")
        offline.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        offline.mouse.down()
        offline.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2, steps=4)
        offline.mouse.up()
        offline.keyboard.press(key)
        assert offline.evaluate("Reveal.getSlidePastCount()") == before + change, key
        offline.evaluate(
            "n => { const s = Reveal.getSlides()[n], at = Reveal.getIndices(s); Reveal.slide(at.h, at.v); }",
            before,
        )


def test_the_answer_comes_one_key_after_the_question(the_slides, offline):  # noqa: F811
    open_deck(offline, next(p for p in CHAPTERS if p.stem[:2] == "05"), the_slides)
    offline.evaluate("""() => {
        const answer = [...document.querySelectorAll(".fragment pre")].find((pre) => pre.textContent.includes("truth:"));
        const at = Reveal.getIndices(answer.closest("section"));
        Reveal.slide(at.h, at.v, -1);
    }""")
    answer = offline.locator("section.present:not(.stack) pre", has_text="truth:").first
    assert not answer.is_visible()
    offline.keyboard.press("PageDown")
    answer.wait_for(state="visible", timeout=3000)


def test_s_opens_the_notes_with_what_the_room_will_say(the_slides, offline):  # noqa: F811
    open_deck(offline, next(p for p in CHAPTERS if p.stem[:2] == "05"), the_slides)
    with offline.expect_popup() as opened:
        offline.keyboard.press("s")
    notes = opened.value.locator(".speaker-controls-notes .value")
    notes.get_by_text("of the lecture").first.wait_for(timeout=10_000)
    offline.problems.clear()  # the window asks for the deck a second time, under an origin that a file has not


def test_no_deck_names_a_script_or_picture_outside(the_slides):
    for path in the_slides.rglob("*.html"):
        assert not OUTSIDE.findall(path.read_text(encoding="utf-8")), path.name
