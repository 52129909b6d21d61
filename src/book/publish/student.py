"""Writes copies of the chapters for a class, unpaired: build/student without answers, build/solutions with them.

    python -m book.publish.student [--solutions] [CHAPTER ..] [--to FOLDER]

A student's copy has the stubs and the checks and no cell tagged `solution`. It is not executed: a prediction is worth something
only while its answer is not yet on the page. The copy with solutions is the executed chapter with its answers unfolded.
Both folders are made anew each time; a chapter that is gone from notebooks/ goes there too. What a student has edited elsewhere
is never touched (the class's hub copies a new chapter beside an old one).
"""

import argparse
import ast
import sys
from pathlib import Path

import nbformat

from book.copies import fold_checks
from book.exercises.progress import FILE as PROGRESS
from book.paths import BUILD, NOTEBOOKS, chapters
from book.publish.execute import read_source, write

SOLUTION = "solution"


def tags(cell):
    return cell.metadata.get("tags", [])


def student_copy(nb):
    """The notebook without its solutions, without outputs. Raises ValueError if another cell needs a solution's function."""
    gone = [cell for cell in nb.cells if SOLUTION in tags(cell)]
    kept = [cell for cell in nb.cells if SOLUTION not in tags(cell)]
    names = {name for cell in gone if cell.cell_type == "code" for name in defined(cell.source)}
    for cell in kept:
        if cell.cell_type != "code":
            continue
        needed = {n.id for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Name)} & names
        if needed - _bound_elsewhere(kept):
            raise ValueError(
                f"this cell uses {', '.join(sorted(needed))}, which only a solution defines, so a student's copy would stop"
                f" here; use lib or the stub:\n{cell.source}"
            )
        cell.outputs, cell.execution_count = [], None
    nb.cells = fold_checks(kept)
    nb.metadata.pop("jupytext", None)
    return nb


def defined(source):
    """The names that a cell binds at its top level: functions, classes, imports, assignments."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            found |= {
                n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return found


def _bound_elsewhere(cells):
    return set().union(*(defined(cell.source) for cell in cells if cell.cell_type == "code"))


def solutions_copy(nb):
    """The whole notebook with the solutions open."""
    nb.metadata.pop("jupytext", None)
    for cell in nb.cells:
        if SOLUTION in tags(cell):
            cell.metadata.get("jupyter", {}).pop("source_hidden", None)
            if not cell.metadata.get("jupyter", True):
                del cell.metadata["jupyter"]
    return nb


def build(folder, which=(), solutions=False, source=NOTEBOOKS):
    """Writes the copies into `folder`; returns their paths. `which`: chapters as in book.paths.chapters, all by default."""
    folder = Path(folder)
    picked = [path for name in (which or [None]) for path in chapters(name, folder=source)]
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in picked:
        executed = path.with_suffix(".ipynb")
        if solutions and executed.exists():
            nb = solutions_copy(nbformat.read(executed, as_version=4))
        elif solutions:
            nb = solutions_copy(read_source(path))
        else:
            nb = student_copy(read_source(path))
        write(nb, folder / executed.name)
        written.append(folder / executed.name)
    if not which:
        for old in set(chapters(suffix=".ipynb", folder=folder)) - set(written):
            old.unlink()
    if not (folder / PROGRESS).exists():  # its presence makes this a reader's folder, where progress is kept
        (folder / PROGRESS).write_text('{"done": []}\n', encoding="utf-8")
    return written


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.publish.student", description=__doc__.splitlines()[0]
    )
    parser.add_argument("chapter", nargs="*", help="05, 5 or 05_kv_cache; all chapters when none is given")
    parser.add_argument(
        "--solutions", action="store_true", help="the copies with the answers, to build/solutions"
    )
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="another folder than build/student or build/solutions"
    )
    args = parser.parse_args(argv)
    folder = args.to or BUILD / ("solutions" if args.solutions else "student")
    try:
        written = build(folder, args.chapter, args.solutions)
    except ValueError as error:
        print(f"student: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(f"{path.parent.name}/{path.name}")
    print(
        f"{len(written)} chapter{'s' * (len(written) != 1)} {'with' if args.solutions else 'without'} solutions"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
