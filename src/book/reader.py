"""What a kernel of a reader's folder knows beyond Python: which cell makes a name that is not there yet.

Loaded as an IPython extension by `make lab`. Everywhere else, and for every other error, nothing changes.
"""

import json
import os
import sys
from pathlib import Path


def maker(name, cells):
    """(number among the code cells, first line) of the cell that binds `name`, or None. `cells`: sources of code cells."""
    from book.publish.student import (
        defined,  # only when a name is missing: a kernel's start need not wait for it
    )

    for number, source in enumerate(cells, 1):
        try:
            bound = defined(source)
        except SyntaxError:
            continue
        if name in bound:
            return number, next(line for line in source.splitlines() if line.strip())
    return None


def hint(name, cells):
    """One line for a NameError: which cell to run first. Empty where no cell makes the name."""
    found = maker(name, cells)
    if not found:
        return ""
    number, line = found
    return (
        f"`{name}` is made by code cell {number} of this notebook, which has not run: it begins `{line[:60]}`."
        " Run it first (or Run > Run All Above Selected Cell), then this one again."
    )


def notebook_cells():
    """Sources of the code cells of the notebook that this kernel belongs to, as saved; none where that cannot be told."""
    try:
        nb = json.loads(Path(os.environ["JPY_SESSION_NAME"]).read_text(encoding="utf-8"))
        return ["".join(cell["source"]) for cell in nb["cells"] if cell["cell_type"] == "code"]
    except (KeyError, OSError, ValueError, TypeError):
        return []


def load_ipython_extension(shell):
    def on_name_error(shell, kind, error, trace, tb_offset=None):
        words = hint(getattr(error, "name", None) or "", notebook_cells())
        if words:
            print(words, file=sys.stderr)
            return None
        return shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    shell.set_custom_exc((NameError,), on_name_error)
