"""Executes chapters for commit: notebooks/NN_topic.py -> notebooks/NN_topic.ipynb with outputs.

    python -m book.publish.execute [05 ..] [--check]

The .py is the only source. Everything in the .ipynb follows from it and from the run: cell ids are a hash of the cell's text,
no times, no widget state, no version of this machine's Python; so two runs give the same bytes, and a diff shows what changed.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from book.paths import NOTEBOOKS, chapters

CELL_TIMEOUT = 120  # seconds, the same as under nbval
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"  # holds a random id, and no kernel stands behind it
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {  # without the version: a chapter executed on 3.11 and on 3.13 is the same file
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
CELL_METADATA = (
    "tags",
    "slideshow",
    "jupyter",
)  # what a cell may carry; notebooks/jupytext.toml says the same
# What nbval runs under too: one thread and the CPU, so that the stored figures can be compared.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "BOOK_DEVICE": "cpu", "JUPYTER_PREFER_ENV_PATH": "1"}


def read_source(path):
    """The notebook that a py:percent file describes."""
    return read_source_text(Path(path).read_text(encoding="utf-8"))


def read_source_text(text):
    """Cells with tags and content-hashed ids, no outputs. Solutions start folded."""
    nb = jupytext.reads(text, fmt="py:percent")
    nb.metadata = nbformat.from_dict({"kernelspec": dict(KERNELSPEC), "language_info": dict(LANGUAGE)})
    nb.nbformat, nb.nbformat_minor = 4, 5
    seen = {}
    for cell in nb.cells:
        text = f"{cell.cell_type}\n{cell.source}"
        seen[text] = n = seen.get(text, -1) + 1
        cell.id = hashlib.sha256(f"{text}\n{n}".encode()).hexdigest()[:12]
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in CELL_METADATA})
        if "solution" in cell.metadata.get("tags", []):
            cell.metadata.setdefault("jupyter", nbformat.from_dict({}))["source_hidden"] = True
    return nb


def peak_memory(pid):
    """The most memory that a process has held, in MB (10**6 bytes); None where the system does not tell (not Linux)."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found[1]) * 1024 // 10**6 if found else None


def execute(nb, folder=NOTEBOOKS, progress=None):
    """Runs every cell in a fresh kernel in `folder`; the outputs land in `nb`. Returns the kernel's peak memory in MB, or None.

    Raises: what nbclient raises, for a failing cell CellExecutionError.
    """
    peak = []

    def started(cell, cell_index):
        if progress:
            progress(cell_index + 1, len(nb.cells))

    def executed(cell, cell_index, execute_reply):
        peak[:] = [peak_memory(client.km.provisioner.pid)]  # a high-water mark: the last one counts

    client = NotebookClient(
        nb,
        timeout=CELL_TIMEOUT,
        kernel_name=KERNELSPEC["name"],
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,  # how a stream is cut into messages depends on the load
        on_cell_start=started,
        on_cell_executed=executed,
    )
    client.execute(env={**os.environ, **ENVIRONMENT})
    nb.metadata["language_info"] = nbformat.from_dict(LANGUAGE)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
    return peak[0] if peak else None


def write(nb, path):
    """Atomically, and only when the bytes differ. Returns whether they did."""
    nbformat.validate(nb)
    text = nbformat.writes(nb, version=4).rstrip("\n") + "\n"
    path = Path(path)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as f:
            f.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def failing_cell(nb, error):
    """The cell that stopped the run, with line numbers, and its traceback without colours."""
    for number, cell in enumerate(nb.cells, 1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                lines = "\n".join(f"{i:4d}  {line}" for i, line in enumerate(cell.source.splitlines(), 1))
                trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
                return f"cell {number} of {len(nb.cells)}:\n{lines}\n\n{trace}"
    return str(error)  # a time-out or a dead kernel leaves no error output; nbclient's message names the cell


def publish(source, check=False):
    """Executes one chapter and writes it. Returns (ok, line or lines to print)."""
    start = time.perf_counter()
    target = source.with_suffix(".ipynb")
    nb = read_source(source)
    if not any(cell.cell_type == "code" for cell in nb.cells):
        return False, f"{source.name}: no code cell; is it a py:percent file (`# %%`)?"
    show = sys.stderr.isatty()

    def progress(done, total):
        if show:
            print(f"\r{source.stem}: cell {done}/{total} ", end="", file=sys.stderr, flush=True)

    try:
        peak = execute(nb, source.parent, progress)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return False, f"{source.name}: FAILED, {target.name} is left as it was\n{failing_cell(nb, error)}"
    took = f"{len(nb.cells)} cells, {time.perf_counter() - start:.1f} s" + (f", {peak} MB" if peak else "")
    if check:
        same = (
            target.exists() and target.read_text(encoding="utf-8") == nbformat.writes(nb).rstrip("\n") + "\n"
        )
        return same, f"{target.name}: {'same bytes' if same else 'DIFFERS from a fresh run'} ({took})"
    changed = write(nb, target)
    return True, f"{target.name}: {'written' if changed else 'unchanged'} ({took})"


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.publish.execute", description=__doc__.splitlines()[0]
    )
    parser.add_argument("chapter", nargs="*", help="05, 5 or 05_kv_cache; all chapters when none is given")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a fresh run gives other bytes"
    )
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="chapters at a time")
    args = parser.parse_args(argv)
    try:
        sources = [p for which in (args.chapter or [None]) for p in chapters(which)]
    except ValueError as error:
        parser.error(str(error))
    if not sources:
        print("no chapter in notebooks/ yet: nothing to execute")
        return 0
    print(f"executing {', '.join(p.stem for p in sources)}", flush=True)
    failed = 0
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for ok, text in pool.map(lambda source: publish(source, args.check), sources):
            failed += not ok
            print(text, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
