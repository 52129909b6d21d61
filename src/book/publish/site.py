"""Builds the static book from the executed notebooks: build/site, which opens from a disk and asks nothing of the network.

python -m book.publish.site [--out FOLDER]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

from book.contents import BY_NUMBER, CHAPTERS, EDITION, PATHS
from book.copies import GUESS, fold_checks
from book.paths import BUILD, NOTEBOOKS, ROOT, chapters
from book.publish import pages, search, static, vendor

HERE = Path(__file__).parent
REPOSITORY = os.environ.get(
    "BOOK_REPOSITORY", ""
)  # where the book lives, as https://..; links to it are absent until it is set
RUN_IT = """<p class="run-it">The sliders on this page play pictures that were drawn ahead. To run the chapter and move every knob: \
<a href="notebooks/{file}" download>the notebook</a>, or <a href="run.html">how to run the book</a>.</p>"""

INDEX = """# The Modern Transformer Block

From the GPT block of 2019 to the block that Llama, Qwen, DeepSeek and Gemma run: every part derived, computed, moved with a slider, and
checked against real models. Edition {edition}.

![The block of 2019 beside the block of today: the same residual stream, every part changed](_static/two-blocks.png)

For readers who know the 2019 block (attention, LayerNorm, GELU, learned positions) and some PyTorch; for lecturers, who get slides, exercises
that recognise mistakes, and a way to run a class; and for practitioners, who get a reader of any `config.json`.

Predictions come before results: write yours down, then open *Show the answer*. [Run it yourself](run.md): two commands, no GPU.

{rows}

To look something up: the [index](glossary.md), the [reference of lib](reference.md), the [bibliography](bibliography.md), [one sheet for the wall](sheet.md).

Three short ways through:

{paths}

```{{toctree}}
:hidden:
:maxdepth: 1

{names}
run
glossary
reference
bibliography
sheet
```
"""

RUN = """# Run it

You need Python 3.11, 3.12 or 3.13, git, and a copy of the book's repository{address}. No GPU.

```
make setup
make lab
```

The first command makes an environment of its own and installs what the book needs; the second opens JupyterLab over copies of the
chapters, in `work/`. What you write there is yours and is never overwritten. Without make, on Windows:

```
python src/book/setup.py
.venv\\Scripts\\python -m book.fetch_model
.venv\\Scripts\\python -m book.lab
```

The notebooks alone, as they were executed (they import the book's library, so they run inside its environment):

{rows}
"""


def sources(folder, papers):
    """Write what Sphinx reads into `folder`. Returns the chapters' names."""
    folder.mkdir(parents=True)
    shutil.copy(HERE / "site_conf.py", folder / "conf.py")
    (folder / "_static").mkdir()
    for file in ("book.css", "menus.js"):
        shutil.copy(HERE / "templates" / file, folder / "_static")
    shutil.copy(ROOT / ".github" / "two-blocks.png", folder / "_static")
    vendor.mathjax(folder / "_static" / "vendor")
    (folder / "_extra" / "notebooks").mkdir(parents=True)
    rows, files, names = [], [], []
    for path in papers:
        linked = set()
        nb = static.read_chapter(path)
        heading, about = static.title(nb), static.first_sentence(nb)
        drop_progress(nb)
        nb.cells = fold_checks(nb.cells)
        fold(nb)
        describe(nb)
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = pages.link_names(local_links(cell.source, {p.name for p in papers}), linked)
        nb.cells.insert(1, nbformat.v4.new_markdown_cell(RUN_IT.format(file=path.name), id="run-it"))
        (folder / path.name).write_text(nbformat.writes(nb), encoding="utf-8")
        shutil.copy(path, folder / "_extra" / "notebooks")
        known = BY_NUMBER.get(path.stem[:2])
        rows.append(
            f"- [{heading}]({path.name}), {known.minutes} minutes: {about}"
            if known
            else f"- [{heading}]({path.name}): {about}"
        )
        files.append(f'- <a href="notebooks/{path.name}" download>{path.name}</a>')
        names.append(path.stem)
    (folder / "index.md").write_text(
        INDEX.format(
            edition=EDITION, rows="\n".join(rows), paths="\n".join(ways(names)), names="\n".join(names)
        ),
        encoding="utf-8",
    )
    for name, text in (
        ("glossary", pages.index(papers)),
        ("reference", pages.reference()),
        ("bibliography", pages.bibliography(papers)),
        ("sheet", pages.sheet()),
    ):
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    address = f" (<{REPOSITORY}>)" if REPOSITORY else ""
    (folder / "run.md").write_text(RUN.format(rows="\n".join(files), address=address), encoding="utf-8")
    return names


def ways(names):
    """The reading paths whose chapters are all on the site."""
    files = {c.number: c.file for c in CHAPTERS}
    for who, (numbers, what) in PATHS.items():
        if all(files[n] in names for n in numbers):
            yield f"- {who}: " + ", ".join(f"[{n}]({files[n]}.ipynb)" for n in numbers) + f": {what}."


def _prompt(cell, words):
    prompts = {"code_prompt_show": f"Show {words}", "code_prompt_hide": f"Hide {words}"}
    cell.metadata.setdefault("mystnb", nbformat.from_dict({})).update(prompts)


def describe(nb):
    """What a picture's output says of it (figures.in_words) is its alternative text on the page."""
    for cell in nb.cells:
        told = [
            o.metadata["image/png"]["alt"]
            for o in cell.get("outputs", [])
            if "image/png" in o.get("metadata", {})
        ]
        if told:
            cell.metadata.setdefault("mystnb", nbformat.from_dict({}))["image"] = {"alt": " ".join(told)}


def fold(nb):
    """Solutions and the answers of predictions open on a click; an explorer's cell shows its slider and folds the one line of code."""
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        if "solution" in tags:
            cell.metadata["tags"] = [*tags, "hide-cell"]
            _prompt(cell, "the solution")
        elif GUESS in cell.source and cell.get("outputs") and "explorer" not in cell.metadata:
            cell.metadata["tags"] = [*tags, "hide-output"]
            _prompt(cell, "the answer")
        elif "explorer" in cell.metadata:
            cell.metadata["tags"] = [*tags, "hide-input"]


def drop_progress(nb):
    """A page without a kernel has nobody's progress to show, and no stub to check."""
    nb.cells = [c for c in nb.cells if not (c.cell_type == "code" and c.source.startswith("progress("))]
    for cell in nb.cells:
        if {"exercise", "check"} & set(cell.metadata.get("tags", [])):
            cell["outputs"] = []


def local_links(text, there):
    """Links to files that the site does not hold (a source, the guide for lecturers) become their words."""

    def keep(match):
        words, target = match[1], match[2]
        name = target.partition("#")[0]
        if re.match(r"[a-z]+:|#", target) or name in there:
            return match[0]
        return words

    return re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", keep, text)


def build(out, papers=None):
    """The whole site at `out`, replaced only when the build succeeded.

    Raises: RuntimeError with Sphinx's words if it warned or failed.
    """
    papers = papers if papers is not None else chapters(suffix=".ipynb", folder=NOTEBOOKS)
    if not papers:
        raise ValueError("no executed chapter in notebooks/: make notebooks")
    out = Path(out)
    work = out.with_name(out.name + "-src")
    fresh = out.with_name(out.name + "-new")
    for old in (work, fresh):
        shutil.rmtree(old, ignore_errors=True)
    names = sources(work, papers)
    call = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-b",
        "html",
        str(work),
        str(fresh),
    ]
    done = subprocess.run(
        call, check=False, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"Sphinx: {done.stderr[-4000:] or done.stdout[-4000:]}")
    for leftover in (".doctrees", ".buildinfo"):
        path = fresh / leftover
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    search.add(fresh)
    sitemap(fresh)
    shutil.rmtree(out, ignore_errors=True)
    fresh.replace(out)
    shutil.rmtree(work)
    return names


def sitemap(folder):
    """sitemap.xml, where the address of the pages is known (BOOK_SITE)."""
    address = os.environ.get("BOOK_SITE", "").rstrip("/")
    if address:
        pages_ = sorted(
            path.name for path in folder.glob("*.html") if path.name not in ("search.html", "genindex.html")
        )
        urls = "".join(f"<url><loc>{address}/{name}</loc></url>" for name in pages_)
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        (folder / "sitemap.xml").write_text(f"{head}{urls}</urlset>\n", encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m book.publish.site", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=BUILD / "site")
    args = parser.parse_args(argv)
    try:
        names = build(args.out)
    except (ValueError, RuntimeError, FileNotFoundError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    print(f"site: {len(names)} chapters in {args.out}/index.html; it opens from a disk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
