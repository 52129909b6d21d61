"""What a reader gets of an executed chapter: nothing that answers a prediction before it is made.

No outputs; checks that name a predicted number in a folded cell of their own; an explorer's place shows empty axes and says what to
do; the chapter ends with the way on. `start_page` is the first page of a reader's folder.
"""

import ast
import base64
import hashlib

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book.contents import BY_NUMBER, CHAPTERS, EDITION, PATHS, way_on
from book.publish.execute import KERNELSPEC, LANGUAGE
from book.selftest import QUESTIONS

START = "start.ipynb"
GUESS = "my_guess"


def _hide(cell):
    cell.metadata.setdefault("jupyter", nbformat.from_dict({}))["source_hidden"] = True
    return cell


def _is_check(statement):
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
    return name.startswith("check_")


def _names(node, context):
    """Names that a statement reads (Load) or binds (Store); what a comprehension binds is its own and counts for neither."""
    inner = {
        n.id
        for c in ast.walk(node)
        if isinstance(c, ast.comprehension)
        for n in ast.walk(c.target)
        if isinstance(n, ast.Name)
    }
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)} - inner


def split_checks(source):
    """(the cell a guess is written in, the checks taken out of it): both run as the one cell did.

    Only whole lines `check_..(..)` at the top level move, and none past a later statement that assigns or deletes what they use.
    """
    statements = ast.parse(source).body
    lines = source.splitlines()
    changed = [_names(s, ast.Store) | _names(s, ast.Del) for s in statements]
    moved = []
    for i, statement in enumerate(statements):
        used = _names(statement, ast.Load)
        alone = all(
            other is statement or other.lineno > statement.end_lineno or other.end_lineno < statement.lineno
            for other in statements
        )
        if _is_check(statement) and alone and not used & set().union(*changed[i + 1 :]):
            moved.append(statement)
    taken = {n for s in moved for n in range(s.lineno - 1, s.end_lineno)}
    keep = "\n".join(line for n, line in enumerate(lines) if n not in taken).rstrip()
    return keep, "\n".join(line for n, line in enumerate(lines) if n in taken)


def fold_checks(cells):
    """The cells, the checks of a predicted number taken out of the cell of its guess into a folded one below."""
    out = []
    for cell in cells:
        out.append(cell)
        if cell.cell_type == "code" and GUESS in cell.source and "predict(" in cell.source:
            cell.source, checks = split_checks(cell.source)
            if checks:
                marked = hashlib.sha256(f"{cell.id}{checks}".encode()).hexdigest()[:12]
                off = {"slideshow": {"slide_type": "skip"}}
                out.append(_hide(new_code_cell(checks, id=marked, metadata=off)))
    return out


def unspoilt(nb):
    """A chapter without outputs, its checks folded away from the guesses. An explorer's place shows a still without numbers."""
    for cell in nb.cells:
        if cell.cell_type == "code":
            noted = [o.metadata.explorer.name for o in cell.outputs if "explorer" in o.get("metadata", {})]
            cell.outputs, cell.execution_count = [still(name) for name in noted], None
            if "solution" in cell.metadata.get("tags", []):
                _hide(cell)
    nb.cells = fold_checks(nb.cells)
    return nb


def still(name):
    """The output that stands in an explorer's place until its cell is run: its axes, and what to do."""
    from book.explore import ALL  # matplotlib, which only a folder that lacks a chapter has to wait for

    explorer = ALL[name]
    data = {
        "text/plain": f"{explorer.title} (not running: run this cell)",
        "image/png": base64.b64encode(explorer.empty()).decode(),
    }
    return new_output(
        "display_data",
        nbformat.from_dict(data),
        metadata={"image/png": {"alt": f"Not running yet. {explorer.alt}"}},
    )


def chapter_copy(path):
    """The chapter's text for a reader, as JSON: unpaired (saving it must not look for a .py), unspoilt, with the way on."""
    nb = unspoilt(nbformat.read(path, as_version=4))
    nb.metadata.pop("jupytext", None)
    if path.stem[:2] in BY_NUMBER:
        off = {"slideshow": {"slide_type": "skip"}}  # a deck has links of its own
        nb.cells.append(new_markdown_cell(way_on(path.stem[:2], START), id="the-way-on", metadata=off))
    return nbformat.writes(nb, version=4).rstrip("\n") + "\n"


def start_page(chapters=CHAPTERS):
    """start.ipynb, as JSON: what the book is, how a chapter works, contents, paths, a self-test and the reader's progress."""
    rows = [
        f"| {c.number} | [{c.title}]({c.file}.ipynb) | {c.about} | {c.minutes} min | {', '.join(c.needs) or '-'} |"
        for c in chapters
    ]
    numbers = {c.number for c in chapters}
    paths = [
        f"- **{who}**: {', '.join(which)}: {what}."
        for who, (which, what) in PATHS.items()
        if set(which) <= numbers
    ]
    questions = [f"{i}. {q.text}" for i, q in enumerate(QUESTIONS, 1)]
    blanks = "\n".join(f"    {i}: None," for i in range(1, len(QUESTIONS) + 1))
    cells = [
        ("# The modern transformer block\n\nFrom the GPT block of 2019 to the block that Llama, Qwen, DeepSeek and Gemma run: derived, run, proved equal to"
        f" a reference implementation, and found in real models. Edition {EDITION}. This folder is yours; the book never overwrites what you wrote in it."),
        ("## How a chapter works\n\nRun a cell with Shift+Enter, from the top. Where a cell says `my_guess = None`, write your guess first: the result is not on the"
        " page until you run the cell. Checks print `ok`, or stop with what came and what was expected. A picture with sliders moves once its own cell has"
        " run. Exercises are three cells: yours, `check`, and the solution, folded.\n\nEach open chapter holds 0.4 to 1.3 GB of memory (all twelve about 8.5): *Kernel, Shut Down"
        " Kernel* gives it back, and a kernel that nobody used for two hours is shut down by itself. Your text stays; only variables go, and running the"
        " cells again brings them back."),
        "## Contents\n\n| | chapter | what it shows | time | builds on |\n|---|---|---|---|---|\n" + "\n".join(rows),
        "Three short ways through:\n\n" + "\n".join(paths),
        "## Which chapters can you skip?\n\nTen questions, a minute each, without looking anything up. Write a number (or a list) for those you can answer.\n\n" + "\n".join(questions),
        None,
        "## What you have done",
        None,
    ]  # fmt: skip
    code = iter([f"from book.selftest import self_test\n\nanswers = {{\n{blanks}\n}}\nself_test(answers)", "from book.exercises import progress\n\nprogress()"])  # fmt: skip
    made = [
        new_code_cell(next(code), id=f"start-{i}")
        if text is None
        else new_markdown_cell(text, id=f"start-{i}")
        for i, text in enumerate(cells)
    ]
    nb = new_notebook(cells=made, metadata={"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE)})
    return nbformat.writes(nb, version=4).rstrip("\n") + "\n"
