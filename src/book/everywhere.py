"""Runs what computes under other CPUs' arithmetic and in other orders: by hand, not in CI. About 40 minutes on two cores.

python -m book.everywhere [WORD ..]       only the configurations whose name holds one of the words

A configuration changes in which order sums are added, never what is computed: the vector width of PyTorch (ATEN_CPU_CAPABILITY), the
code paths of MKL (MKL_CBWR) and oneDNN (ONEDNN_MAX_CPU_ISA), the number of threads. Each runs the files in NUMERIC and every chapter
through nbval; the three orders run NUMERIC alone. One line each: green or red, seconds, and the test that came closest to its tolerance.
What failed is in build/everywhere/.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from book.paths import BUILD, ROOT, chapters
from book.run_tests import ENVIRONMENT, NBVAL

NUMERIC = ["tests/families", "tests/files/test_weights.py"]
NUMERIC += [
    f"tests/test_{name}.py"
    for name in [
        "tolerances",
        "norms",
        "ffn",
        "frequencies",
        "rope",
        "cache",
        "attention",
        "mla",
        "model",
        "gpt2",
        "decoding",
        "arithmetic",
        "against_transformers",
        "cases",
        "cases_attention",
        "cases_files",
        "cases_second",
        "exercises",
        "experiments",
        "numbers",
        "predict",
        "gpu_check",
    ]
]
OLD = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
MIDDLE = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
TWO = {"OMP_NUM_THREADS": "2"}
# With the vector width alone, PyTorch 2.13 still asks oneDNN whether to pack bfloat16 for AVX-512, and stops ("pack_vnni2").
LIKE_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
CONFIGURATIONS = {  # name: (environment, order of the tests)
    "native": ({}, None),
    "native, 2 threads": (TWO, None),
    "PyTorch avx2": ({"ATEN_CPU_CAPABILITY": "avx2"} | LIKE_AVX2, None),
    "PyTorch default": ({"ATEN_CPU_CAPABILITY": "default"} | LIKE_AVX2, None),
    "MKL compatible": ({"MKL_CBWR": "COMPATIBLE"}, None),
    "oneDNN SSE4.1": ({"ONEDNN_MAX_CPU_ISA": "SSE41"}, None),
    "all three avx2, 2 threads": (MIDDLE | TWO, None),
    "all three oldest, 2 threads": (OLD | TWO, None),
    "order reversed": ({}, "reverse"),
    "order shuffled 1": ({}, "1"),
    "order shuffled 2": ({}, "2"),
}


def call(order):
    """The pytest command of one configuration, in one process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if order:
        return [*command, "--order", order, *NUMERIC]
    return [*command, *NBVAL, *NUMERIC, *(f"notebooks/{path.name}" for path in chapters(suffix=".ipynb"))]


def run(name):
    """(whether it is green, one line)"""
    environment, order = CONFIGURATIONS[name]
    start = time.monotonic()
    done = subprocess.run(
        call(order),
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    log = BUILD / "everywhere" / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    closest = re.search(r"closest to its tolerance: (.*)", done.stdout)
    counts = re.findall(r"\d+ (?:passed|failed|errors?)", done.stdout.splitlines()[-1] if done.stdout else "")
    state = "green" if done.returncode == 0 else f"RED, see {log.relative_to(ROOT)}"
    facts = [
        state,
        ", ".join(counts),
        f"{time.monotonic() - start:.0f} s",
        f"closest {closest[1]}" if closest else "",
    ]
    return done.returncode == 0, f"{name:28} " + "   ".join(filter(None, facts))


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.everywhere",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="configurations at a time"
    )
    args = parser.parse_args(argv)
    names = [name for name in CONFIGURATIONS if not args.words or any(word in name for word in args.words)]
    if not names:
        parser.error(f"no configuration holds {args.words}; there are: {', '.join(CONFIGURATIONS)}")
    red = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for green, line in pool.map(run, names):
            red += not green
            print(line, flush=True)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
