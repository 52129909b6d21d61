"""What site and slides share: a chapter's notebook with its explorers replaced by players that need no kernel."""

import copy
import hashlib
import pickle
import re

import nbformat

from book.explore import ALL, player
from book.paths import BUILD, ROOT

CACHE = BUILD / "players"  # drawing a player takes seconds; it is kept until any code that draws it changes
SOURCES = ("src/book/figures.py", "src/book/explore")
NAME_OF = re.compile(r"(.+)-[0-9a-f]{16}")
NAMED = re.compile(r"^Explorer ([a-z0-9-]+): ")


def explorer_of(output):
    """(name, settings) of the explorer that made this output, or None."""
    noted = output.get("metadata", {}).get("explorer")
    if noted:
        return noted["name"], dict(noted["at"])
    match = NAMED.match(output.get("data", {}).get("text/plain", ""))
    return (match[1], {}) if match else None


def read_chapter(path, run=True):
    """The executed notebook at `path`, each explorer's output replaced by its player.

    Raises: ValueError if `run` and a cell was never run, or if an output names an explorer that the book does not have.
    """
    nb = copy.deepcopy(nbformat.read(path, as_version=4))
    nb.metadata.pop("widgets", None)
    shown = 0
    for number, cell in enumerate(nb.cells, 1):
        if run and cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            raise ValueError(f"{path.name}: cell {number} was never run: make notebooks CH={path.stem[:2]}")
        for output in cell.get("outputs", []):
            found = explorer_of(output)
            if not found:
                continue
            name, at = found
            if name not in ALL:
                raise ValueError(
                    f"{path.name}: cell {number} shows {name!r}; book.explore has {', '.join(ALL)}"
                )
            shown += 1
            output.data = nbformat.from_dict(
                {"text/html": player_html(ALL[name], at, f"{path.stem[:2]}-{shown}")}
            )
            output.metadata = nbformat.from_dict({})
            cell.metadata["explorer"] = name
    return nb


def player_html(explorer, at, key):
    """player.html, kept on disk under a hash of the code that could change it."""
    code = hashlib.sha256(repr((explorer.name, sorted(at.items()))).encode())
    files = [
        f
        for s in SOURCES
        for f in ([ROOT / s] if s.endswith(".py") else sorted((ROOT / s).glob("*.[pj][ys]")))
    ]
    for file in [*files, *sorted((ROOT / "src/lib").rglob("*.py"))]:
        code.update(file.read_bytes())
    kept = CACHE / f"{explorer.name}-{code.hexdigest()[:16]}.pickle"
    if kept.exists():
        drawn = pickle.loads(kept.read_bytes())
    else:
        drawn = player.states(explorer, at)
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{explorer.name}-*.pickle"):
            if NAME_OF.fullmatch(old.stem)[1] == explorer.name:
                old.unlink(missing_ok=True)
        fresh = kept.with_suffix(".tmp")
        fresh.write_bytes(pickle.dumps(drawn))
        fresh.replace(kept)
    return player.html(explorer, at, key, drawn)


def title(nb):
    """The text of the chapter's first heading."""
    return nb.cells[0].source.splitlines()[0].lstrip("# ").strip()


def first_sentence(nb):
    """The first paragraph under the title."""
    blocks = [b.strip() for b in nb.cells[0].source.split("\n\n")[1:]]
    text = next((b for b in blocks if b and not b.startswith(("#", "|", "-", "<"))), "")
    return " ".join(text.split())
