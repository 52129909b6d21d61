"""axe-core over the book's pages and a deck: nothing serious or critical in what is the book's own. Some 90 s."""

from pathlib import Path

import axe_playwright_python
import pytest

from book.paths import chapters
from test_slides import open_deck, places, the_slides  # noqa: F401  (fixtures)
from test_static import offline, the_site  # noqa: F401

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
FOUND = """async (where) => (await axe.run(where ?? document, {resultTypes: ["violations"], preload: false})).violations
  .filter((rule) => ["serious", "critical"].includes(rule.impact))
  .map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`)"""
PAGES = ("index", "00_at_a_glance", "05_kv_cache", "glossary", "sheet")


def open_page(page, folder, name, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto((folder / f"{name}.html").as_uri())
    page.evaluate("async () => { await window.MathJax?.startup?.promise; }")
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.wait_for_timeout(500)  # the theme marks what scrolls 0.3 s after the last change
    page.evaluate(AXE)


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (1280, "light")])
@pytest.mark.parametrize("name", PAGES)
def test_pages(name, width, scheme, the_site, offline):  # noqa: F811
    open_page(offline, the_site, name, width, scheme)
    assert offline.evaluate(FOUND) == []


def test_it_finds_what_is_wrong(the_site, offline):  # noqa: F811
    """Its own control: a picture without words, a button without a name, pale letters."""
    open_page(offline, the_site, "index", 1280, "light")
    offline.evaluate("""() => {
      document.querySelector("article img").removeAttribute("alt");
      document.querySelector("article").insertAdjacentHTML("beforeend", "<button></button><p style='color: #bbb; background: #fff'>pale</p>");
    }""")
    assert {found.partition(":")[0] for found in offline.evaluate(FOUND)} == {
        "image-alt", "button-name", "color-contrast"
    }  # fmt: skip


def test_a_deck(the_slides, offline):  # noqa: F811
    path = next(p for p in chapters(suffix=".ipynb") if p.stem[:2] == "05")
    open_deck(offline, path, the_slides)
    offline.evaluate(AXE)
    for h, v in places(offline):
        offline.evaluate("([h, v]) => Reveal.slide(h, v, 9)", [h, v])
        assert offline.evaluate(FOUND, "section.present:not(.stack)") == [], f"slide {h}/{v}"
        assert offline.evaluate(
            "[...Reveal.getCurrentSlide().querySelectorAll('img')].every((img) => img.alt.length > 40)"
        )
    assert offline.evaluate(FOUND) == []
