"""Builds one reveal.js deck a chapter from the executed notebooks: build/slides, which opens from a disk, sliders moving.

    python -m book.publish.slides [05 ..] [--out FOLDER]

Where a cell says in its `slideshow` metadata what it is, that holds. Elsewhere: a heading starts a slide, each further text or
explorer a slide below it; code stands with the text before it, and a closing word with what it closes. Set-up cells, checks and
solutions are left out.
"""

import argparse
import base64
import re
import shutil
import struct
import sys
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter

from book.paths import BUILD, NOTEBOOKS, chapters
from book.publish import static, vendor

HERE = Path(__file__).parent
REVEAL = [
    "dist/reveal.js",
    "dist/reveal.css",
    "dist/theme/white.css",
    "dist/theme/fonts/",
    "plugin/notes/notes.js",
]
LEFT_OUT = {"check", "solution"}
ROOM = 760  # pixels of a slide that may be filled before the next cell starts another one
SHRUNK = 900  # what still fits when the deck makes its letters a tenth smaller; what is taller shows its code first, then what it prints
DECKS = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The Modern Transformer Block: slides</title>
<style>body{{font:1.1rem/1.6 sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}}:root{{color-scheme:light dark}}</style>
</head><body><h1>The Modern Transformer Block: slides</h1>
<p>Right and left go from section to section, down and up within one, space to the next; <kbd>F</kbd> fills the screen,
<kbd>S</kbd> opens the notes. On a slider the arrow keys move the slider; click beside it to go on.</p>
<ul>
{rows}
</ul></body></html>
"""


def split_headings(nb):
    """Text cells cut before each heading, so that every heading can start a slide."""
    cells = []
    for cell in nb.cells:
        parts = re.split(r"(?m)^(?=#{1,3} )", cell.source) if cell.cell_type == "markdown" else [cell.source]
        parts = [part for part in parts if part.strip()] or [cell.source]
        for i, part in enumerate(parts):
            piece = nbformat.from_dict(dict(cell) | {"source": part, "metadata": dict(cell.metadata)})
            if i:
                piece.metadata.pop("slideshow", None)
                piece["id"] = f"{cell.id}-{i}"
            cells.append(piece)
    nb.cells = cells


def height(cell):
    """About how many of a slide's 800 pixels the cell takes, at the sizes of slides.css."""
    if cell.cell_type == "markdown":
        blocks = re.split(r"\n\n|\n(?=[-|#>])", cell.source)
        rows = sum(1 + len(block) // 82 for block in blocks)
        formulas, titles = cell.source.count("$$"), len(re.findall(r"(?m)^#", cell.source))
        return 40 * rows + 8 * len(blocks) + 40 * formulas + 30 * titles
    if "explorer" in cell.metadata:
        return 740  # a slide to itself
    tall = 0 if cell.metadata.get("transient") else 30 + 27 * wrapped(cell.source)
    for output in cell.outputs:
        data = output.get("data", {})
        text = output.get("text", "") or data.get("text/plain", "")
        tall += picture(data["image/png"]) if "image/png" in data else 27 * (1 + wrapped(text))
    return tall


def picture(png):
    """How tall a picture stands: as drawn, at most as wide as a slide and at most 430 pixels (slides.css)."""
    head = base64.b64decode(png[:32])
    if head[:4] != b"\x89PNG":
        return 430
    wide, tall = struct.unpack(">II", head[16:24])
    return min(430, tall * min(1, 1180 / wide))


def wrapped(text):
    """How many lines the text takes at 104 letters a line, where the deck wraps it."""
    return sum(1 + max(len(line) - 1, 0) // 104 for line in text.splitlines())


def code_first(cell, used):
    """[code, its outputs] for a cell that asks for a guess, which the room makes first, or too tall a cell; else [cell]."""
    if cell.cell_type == "markdown" or "explorer" in cell.metadata or not cell.outputs:
        return [cell]
    asked = nbformat.from_dict(dict(cell) | {"outputs": [], "metadata": dict(cell.metadata)})
    above = used if used + height(asked) <= ROOM else 0  # else the code itself starts a slide
    fits = above + height(cell) <= SHRUNK
    if fits and "predict(" not in cell.source:
        return [cell]
    asked.metadata["slideshow"] = nbformat.from_dict({"slide_type": "-" if above or not used else "subslide"})
    printed = nbformat.from_dict(dict(cell) | {"id": f"{cell.id}-out", "metadata": dict(cell.metadata)})
    printed.metadata["transient"] = nbformat.from_dict({"remove_source": True})
    printed.metadata["slideshow"] = nbformat.from_dict({"slide_type": "fragment" if fits else "subslide"})
    return [asked, printed]


def kind(cell, before, used, after=None):
    """The slide type of a cell without one: skip, slide, subslide or - (stays with the cell before, on `used` pixels)."""
    if cell.cell_type == "code":
        tags = set(cell.metadata.get("tags", []))
        if LEFT_OUT & tags or not (cell.outputs or "exercise" in tags):
            return "skip"
        most = ROOM if before is not None and before.cell_type == "code" else SHRUNK
        full = before is not None and used + height(cell) > most
        return "subslide" if "explorer" in cell.metadata or full else "-"
    if re.match(r"#{1,2} ", cell.source):
        return "slide"
    ends = (
        after is None or after.cell_type == "markdown"
    )  # a last word on what stands above, if there is room
    return "-" if ends and before is not None and used + height(cell) <= ROOM else "subslide"


def lay_out(nb):
    split_headings(nb)
    before, used = None, 0
    waiting, nb.cells = nb.cells, []
    while waiting:
        cell = waiting.pop(0)
        show = cell.metadata.setdefault("slideshow", nbformat.from_dict({}))
        if "explorer" in cell.metadata:
            cell.metadata["transient"] = nbformat.from_dict(
                {"remove_source": True}
            )  # the slider is the slide
        after = next(iter(waiting), None)
        if not show.get("slide_type") and kind(cell, before, used, after) != "skip":
            cell, *rest = code_first(cell, used)
            waiting[:0] = rest
            show = cell.metadata.slideshow
        if not show.get("slide_type"):
            show["slide_type"] = kind(cell, before, used, after)
        if show["slide_type"] not in ("skip", "notes"):
            used = height(cell) + (used if show["slide_type"] in ("-", "fragment") else 0)
            before = cell
        nb.cells.append(cell)
    nb.cells[0].metadata["slideshow"]["slide_type"] = "slide"


def deck(path):
    """One chapter's deck as HTML."""
    nb = static.read_chapter(path)
    lay_out(nb)
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
    html, _ = exporter.from_notebook_node(nb, {"slides_css": css, "metadata": {"name": static.title(nb)}})
    return static.title(nb), html


def build(out, papers=None):
    """All decks and their index at `out`, replaced as a whole."""
    papers = papers if papers is not None else chapters(suffix=".ipynb", folder=NOTEBOOKS)
    if not papers:
        raise ValueError("no executed chapter in notebooks/: make notebooks")
    out = Path(out)
    fresh = out.with_name(out.name + "-new")
    shutil.rmtree(fresh, ignore_errors=True)
    vendor.unpack("reveal.js", fresh / "vendor" / "reveal", REVEAL)
    vendor.mathjax(fresh / "vendor")
    rows = []
    for path in papers:
        title, html = deck(path)
        (fresh / f"{path.stem}.html").write_text(html, encoding="utf-8")
        rows.append(f'<li><a href="{path.stem}.html">{title}</a></li>')
    (fresh / "index.html").write_text(DECKS.format(rows="\n".join(rows)), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    fresh.replace(out)
    return [path.stem for path in papers]


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.publish.slides", description=__doc__.splitlines()[0]
    )
    parser.add_argument("chapter", nargs="*", help="05, 5 or 05_kv_cache; all chapters when none is given")
    parser.add_argument("--out", type=Path, default=BUILD / "slides")
    args = parser.parse_args(argv)
    try:
        papers = [p for which in (args.chapter or [None]) for p in chapters(which, suffix=".ipynb")]
        names = build(args.out, papers)
    except (ValueError, RuntimeError, FileNotFoundError) as error:
        print(f"slides: {error}", file=sys.stderr)
        return 1
    print(f"slides: {len(names)} decks in {args.out}/index.html; they open from a disk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
