"""A notebook's cells as slides, after their `slideshow` metadata.

`slide_type` means what it means everywhere: slide, subslide, fragment (comes with the next key), skip, notes, and - or nothing
(stays on the slide). Beside it a cell may say
    title   what its slide states; else its own heading, else that of the slide before
    text    Markdown in place of the cell's sentences, which go to the speaker's notes
    show    which parts of the cell stand on the slide, of PARTS; "" for none
    ask     which questions of lecturer.md belong here: "Q13 Q14"
Cells tagged exercise, check or solution are left out unless they say otherwise.
"""

import re

import nbformat

TYPES = ("slide", "subslide", "fragment", "skip", "notes", "-")
KEYS = {"slide_type", "title", "text", "show", "ask"}
PARTS = ("heading", "sentences", "formula", "table", "list", "code", "picture", "printed")
LEFT_OUT = {"exercise", "check", "solution"}
STARTS = ("slide", "subslide")


class NoSlides(ValueError):
    """The notebook says of no cell that it starts a slide, or a cell that a slide shows was never run."""


def blocks(source):
    """[(part, text)] of a Markdown text: heading, sentences, formula, table, list, code."""
    found, fence = [], False
    for line in source.splitlines():
        was = found[-1][0] if found else None
        if fence or line.startswith("```"):
            fence = not fence if line.startswith("```") else fence
            kind = "code"
        elif not line.strip():
            kind = None
        elif re.match(r"#{1,6} ", line):
            kind = "heading"
        elif was == "formula" and found[-1][1].count("$$") % 2 or line.startswith("$$"):
            kind = "formula"
        elif line.startswith("|"):
            kind = "table"
        elif re.match(r"([-*]|\d+\.) ", line) or (was == "list" and line.startswith("  ")):
            kind = "list"
        else:
            kind = "list" if was == "list" else "sentences"
        if kind is not None and kind == was and kind != "heading":
            found[-1] = (kind, f"{found[-1][1]}\n{line}")
        else:
            found.append((kind, line))
    return [(kind, text) for kind, text in found if kind]


def shown_parts(cell, show):
    """The parts of the cell that stand on its slide."""
    if "show" in show:
        return set(show["show"].split())
    if cell.cell_type == "markdown":
        if "text" in show:
            return {"formula", "table"}
        return set(PARTS) - {"heading"} - ({"sentences"} if "title" in show else set())
    if "explorer" in cell.metadata or any(is_picture(o) for o in cell.outputs):
        return {"picture"}
    if "predict(" in cell.source:
        return {"printed"}
    return {"code", "printed"}


def is_picture(output):
    return any(kind.startswith("image/") or kind == "text/html" for kind in output.get("data", {}))


def without_checks(output):
    """The output without the lines that say a check held, if it says anything else: they belong to code that is not shown."""
    kept = [line for line in output.get("text", "").splitlines(keepends=True) if not line.startswith("ok  ")]
    return nbformat.from_dict(dict(output) | {"text": "".join(kept)}) if len(kept) > 1 else output


def read_show(cell, name):
    """The cell's slideshow metadata, checked; cells of an exercise are left out unless marked."""
    show = dict(cell.metadata.get("slideshow", {}))
    tags = set(cell.metadata.get("tags", []))
    show.setdefault("slide_type", "skip" if LEFT_OUT & tags else "-")
    unknown = [f"{key!r}" for key in show if key not in KEYS]
    if show["slide_type"] not in TYPES:
        raise ValueError(f"{name}: slide_type {show['slide_type']!r}; there are {', '.join(TYPES)}")
    if unknown:
        raise ValueError(f"{name}: slideshow holds {', '.join(unknown)}; known: {', '.join(sorted(KEYS))}")
    wrong = [part for part in show.get("show", "").split() if part not in PARTS]
    if wrong:
        raise ValueError(f"{name}: show names {wrong[0]!r}; a cell's parts are {', '.join(PARTS)}")
    return show


def words(source, kind, uid):
    cell = nbformat.v4.new_markdown_cell(source, id=uid)
    cell.metadata["slideshow"] = nbformat.from_dict({"slide_type": kind})
    return cell


def heading_of(cell):
    """The first heading of a text cell, a section's without its number; None where there is none."""
    found = re.search(r"(?m)^#{1,6} (.+)$", cell.source) if cell.cell_type == "markdown" else None
    return re.sub(r"(?m)^(## )\d+ · ", "", found[0]).lstrip("# ").strip() if found else None


class Deck:
    """Cells of the deck in order, and each slide's notes, which its first cell carries as metadata.notes."""

    def __init__(self, stem, speaker):
        self.stem, self.speaker = stem, speaker
        self.cells, self.first, self.title = [], None, None

    def note(self, text):
        if text:
            self.first.metadata["notes"] = f"{self.first.metadata.get('notes', '')}\n\n{text}".strip()

    def open(self, kind, title, uid):
        level = "#" if self.first is None else "##"
        self.title = title
        self.first = words(f"{level} {title}", kind, f"{uid}-title")
        self.cells.append(self.first)
        self.first.metadata["slide_title"] = title

    def put(self, source, kind, uid):
        if source.strip():
            self.cells.append(words(source.strip(), kind, uid))

    def take(self, cell, number):
        where = f"{self.stem}: cell {number}"
        show = read_show(cell, where)
        kind = show["slide_type"]
        if kind == "skip" or (self.first is None and kind not in STARTS):
            return
        if kind == "notes":
            return self.note("\n\n".join(text for part, text in blocks(cell.source) if part != "heading"))
        parts = shown_parts(cell, show)
        if kind in STARTS:
            self.open(kind, show.get("title") or heading_of(cell) or self.title or self.stem, cell.id)
            kind = "-"
        for question in show.get("ask", "").split():
            self.note(self.speaker.question(question, where))
        said = show.get("text", "")
        if cell.cell_type == "markdown":
            told = [
                (part, text) for part, text in blocks(cell.source) if part != "heading" or "heading" in parts
            ]
            self.put("\n\n".join([said, *(t for p, t in told if p in parts)]), kind, f"{cell.id}-text")
            return self.note("\n\n".join(t for p, t in told if p == "sentences" and p not in parts))
        self.put(said, kind, f"{cell.id}-text")
        self.code(cell, kind, parts, where)

    def code(self, cell, kind, parts, where):
        kept = [o for o in cell.outputs if ("picture" if is_picture(o) else "printed") in parts]
        if {"picture", "printed"} & parts and cell.execution_count is None:
            raise NoSlides(f"{where} was never run: run all cells of the notebook and save it")
        if "code" not in parts:
            kept = [without_checks(output) for output in kept]
        if "explorer" in cell.metadata:
            self.note(self.speaker.explorer(self.stem[:2], cell.metadata["explorer"]))
        late = "predict(" in cell.source and kind == "-"  # the room guesses first
        asked = cell if "code" in parts else None
        for source, outputs, slide_type in ((asked, [] if late else kept, kind), (None, kept, "fragment")):
            if (source is None and not outputs) or (
                slide_type == "fragment" and not late and kind != "fragment"
            ):
                continue
            made = nbformat.from_dict(dict(cell) | {"outputs": outputs, "metadata": dict(cell.metadata)})
            code = re.sub(
                r"(?m)^(my_guess = .*|predict\(my_guess.*|check\(.*)\n?", "", cell.source
            )  # the slide asks
            made["source"] = re.sub(r"\n{3,}", "\n\n", code).strip()
            made["id"] = f"{cell.id}-{slide_type.strip('-')}{len(self.cells)}"
            made.metadata["slideshow"] = nbformat.from_dict({"slide_type": slide_type})
            if source is None:
                made.metadata["transient"] = nbformat.from_dict({"remove_source": True})
            self.cells.append(made)
            if kind == "fragment":
                break


def compose(nb, stem, speaker):
    """`nb` with the deck's cells in place of its own.

    Raises: NoSlides if no cell starts a slide, or one that is shown was never run; ValueError for metadata that names no type, key, part or question that there is.
    """
    marked = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in nb.cells]
    if not set(marked) & set(STARTS):
        raise NoSlides(
            f"{stem} has no slides: no cell's `slideshow` metadata says `slide` (JupyterLab: Property Inspector, Slide Type)"
        )
    deck = Deck(stem, speaker)
    for number, cell in enumerate(nb.cells, 1):
        deck.take(cell, number)
    deck.cells[0].metadata["notes"] = "\n\n".join(
        filter(None, [speaker.minutes(stem[:2]), deck.cells[0].metadata.get("notes")])
    )
    nb.cells = deck.cells
    return nb
