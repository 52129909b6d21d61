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


def _now(name):
    path = ROOT / "src" / "lib" / (name if "." in name else f"{name}.py")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def is_stale(result, module):
    """True if `module` (a file of lib, such as "mla" or "decode_step.cpp") has changed since the result was measured."""
    return result["provenance"].get(f"lib_{module}_sha256") != _now(module)


def changed(result):
    """The files of lib that have changed since the result was measured, of those that it names."""
    keys = [key for key in result["provenance"] if key.startswith("lib_") and key.endswith("_sha256")]
    return [name for name in (key[4:-7] for key in keys) if is_stale(result, name)]


def pick(result, **fields):
    """The rows with these fields, by variant: pick(result, dtype="float32", batch=1, context=64, threads=1)["limit"]["ms_per_token"]."""
    return {row["variant"]: row for row in result["rows"] if fields.items() <= row.items()}


def race(result, names, **fields):
    """The times of one cell of decode.json, {variant: ms per token}; prints them beside their share of the limit."""
    rows = pick(result, **fields)
    ms = {name: rows[name]["ms_per_token"] for name in names}
    limit, where = rows["limit"], f"{fields['dtype']}, batch {fields['batch']}"
    print(f"{where}: {limit['bytes'] / 1e6:.0f} MB per step at {limit['GB_per_s']:.1f} GB/s, ms per token")
    print("   " + "   ".join(f"{name} {ms[name]:.1f} ({ms['limit'] / ms[name]:.0%})" for name in names))
    return ms
