"""Committed benchmark results, for the chapters that plot them: where they came from is printed, and whether they still hold."""

import hashlib
import json

from book.paths import ROOT

RESULTS = ROOT / "tests" / "bench" / "results"


def load_bench(name):
    """The JSON of tests/bench/results/NAME.json as a dict.

    Raises: FileNotFoundError that names the target which makes it; ValueError if the file is not a result.
    """
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise FileNotFoundError(f"no {path.name} in tests/bench/results: `make bench-{name}` writes it")
    result = json.loads(path.read_text())
    if not isinstance(result, dict) or "provenance" not in result:
        raise ValueError(f"{path.name}: expected an object with 'provenance' and 'rows'")
    return result


def is_stale(result, module):
    """True if `module` (a file of lib, such as "mla") has changed since the result was measured."""
    source = ROOT / "src" / "lib" / f"{module}.py"
    return result["provenance"].get(f"lib_{module}_sha256") != hashlib.sha256(source.read_bytes()).hexdigest()
