"""Builds one reveal.js deck a chapter from executed notebooks: build/slides, which opens from a disk, sliders moving.

    python -m book.publish.slides [05 ..] [--from FOLDER] [--pdf] [--out FOLDER]

What stands on a slide is in the cells' `slideshow` metadata (slides_compose), what stands in its notes in lecturer.md (slides_notes).
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

from nbconvert import SlidesExporter

from book import contents
from book.paths import BUILD, NOTEBOOKS, chapters
from book.publish import static, vendor
from book.publish.slides_compose import NoSlides, compose
from book.publish.slides_notes import Guide
from book.run_tests import find_chromium

HERE = Path(__file__).parent
REVEAL = [
    "dist/reveal.js",
    "dist/reveal.css",
    "dist/theme/white.css",
    "dist/theme/fonts/",
    "plugin/notes/notes.js",
]
DECKS = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The Modern Transformer Block: slides</title>
<style>body{{font:1.1rem/1.6 sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}}:root{{color-scheme:light dark}}</style>
</head><body><main><h1>The Modern Transformer Block: slides</h1>
<p>Space, a clicker or the right arrow goes on, the left arrow back; the answer to a prediction comes with its own key.
<kbd>S</kbd> opens the speaker's notes, <kbd>O</kbd> the overview, <kbd>F</kbd> fills the screen. On a slider the arrow keys move
the slider; Space and a clicker go on.</p>
<ul>
{rows}
</ul></main></body></html>
"""


def way(number):
    """Links of a deck's last line: the deck before, all decks, the deck after."""
    before, after = contents.neighbours(number) if number in contents.BY_NUMBER else (None, None)
    return {"before": before, "after": after}


def deck(path, guide):
    """(title, HTML) of one chapter's deck.

    Raises: ValueError, NoSlides: see compose.
    """
    nb = static.read_chapter(path, run=False)
    title = static.title(nb)
    compose(nb, path.stem, guide)
    exporter = SlidesExporter(
        template_name="slides",
        extra_template_basedirs=[str(HERE / "templates")],
        reveal_url_prefix="vendor/reveal",
        reveal_theme="white",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    css = (HERE / "templates" / "slides.css").read_text(encoding="utf-8")
    given = {"slides_css": css, "metadata": {"name": title}, "chapter": title, "way": way(path.stem[:2])}
    html, _ = exporter.from_notebook_node(nb, given)
    return title, re.sub(r'href="(\d\d_\w+)\.ipynb', r'href="\1.html', html)


def build(out, papers=None, pdf=False):
    """All decks and their index at `out`, replaced as a whole. Returns (names of the decks, messages about chapters without one).

    Raises: ValueError if there is no notebook, or none with slides; FileNotFoundError if `pdf` finds no Chromium.
    """
    papers = papers if papers is not None else chapters(suffix=".ipynb", folder=NOTEBOOKS)
    if not papers:
        raise ValueError("no executed chapter in notebooks/: make notebooks")
    browser = find_chromium("a PDF") if pdf else None
    guide, made, refused = Guide(), {}, []
    for path in papers:
        try:
            made[path.stem] = deck(path, guide)
        except NoSlides as error:
            refused.append(str(error))
    if not made:
        raise ValueError("; ".join(refused))
    out = Path(out)
    fresh = out.with_name(out.name + "-new")
    shutil.rmtree(fresh, ignore_errors=True)
    vendor.unpack("reveal.js", fresh / "vendor" / "reveal", REVEAL)
    vendor.mathjax(fresh / "vendor")
    rows = []
    for stem, (title, html) in made.items():
        (fresh / f"{stem}.html").write_text(html, encoding="utf-8")
        also = f' (<a href="{stem}.pdf">PDF</a>)' if pdf else ""
        rows.append(f'<li><a href="{stem}.html">{title}</a>{also}</li>')
    (fresh / "index.html").write_text(DECKS.format(rows="\n".join(rows)), encoding="utf-8")
    if pdf:
        print_decks([fresh / f"{stem}.html" for stem in made], browser)
    shutil.rmtree(out, ignore_errors=True)
    fresh.replace(out)
    return list(made), refused


def print_decks(decks, browser):
    """A PDF beside each deck, a page for each step: a question's answer stands on the next page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1280, "height": 720})
        for path in decks:
            page.goto(f"{path.as_uri()}?print-pdf")
            page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
            page.pdf(path=path.with_suffix(".pdf"), prefer_css_page_size=True, print_background=True)
        chromium.close()


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.publish.slides", description=__doc__.splitlines()[0]
    )
    parser.add_argument("chapter", nargs="*", help="05, 5 or 05_kv_cache; all chapters when none is given")
    parser.add_argument("--from", dest="folder", type=Path, default=NOTEBOOKS, help="your own copies: work/")
    parser.add_argument("--pdf", action="store_true", help="a PDF beside each deck (needs Chromium)")
    parser.add_argument("--out", type=Path, default=BUILD / "slides")
    args = parser.parse_args(argv)
    try:
        if not args.folder.is_dir():
            raise FileNotFoundError(f"no folder {args.folder}")
        papers = [p for which in (args.chapter or [None]) for p in chapters(which, ".ipynb", args.folder)]
        if not papers:
            raise ValueError(f"no chapter (NN_name.ipynb) in {args.folder}")
        names, refused = build(args.out, papers, args.pdf)
    except (ValueError, RuntimeError, FileNotFoundError) as error:
        print(f"slides: {error}", file=sys.stderr)
        return 1
    for message in refused:
        print(f"slides: {message}", file=sys.stderr)
    print(f"slides: {len(names)} decks in {args.out}/index.html; they open from a disk")
    return 1 if refused and args.chapter else 0  # what was asked for by name is there, or it failed


if __name__ == "__main__":
    sys.exit(main())
