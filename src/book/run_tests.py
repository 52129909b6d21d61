"""Runs the tests as `make test` does: one thread a process, on the CPU, every notebook through nbval.

python -m book.run_tests [CHAPTER] [--browser] [what pytest takes]
"""

import argparse
import os
import shutil
import subprocess
import sys

from book.paths import ROOT, chapters
from lib import kernels

# Printed digits depend on the number of threads and on the device; stored outputs were made with these.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "BOOK_DEVICE": "cpu",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "TRITON_INTERPRET": "1",
}
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval_sanitize.cfg"]
NBVAL += ["--nbval-cell-timeout", "120"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium(purpose="the browser tests"):
    """Path of a Chromium: $BOOK_CHROMIUM, or one on the PATH.

    Raises: FileNotFoundError that says how to get one.
    """
    named = os.environ.get("BOOK_CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        what = (
            f"$BOOK_CHROMIUM is {named!r}, which does not run"
            if named
            else "no chromium or google-chrome on the PATH"
        )
        raise FileNotFoundError(
            f"Chromium is needed for {purpose}: {what}. On Debian and Ubuntu: apt-get install chromium; "
            "elsewhere set BOOK_CHROMIUM=/path/to/chrome"
        )
    return found


def command(chapter=None, browser=False, extra=()):
    """The pytest call. `--dist loadfile` keeps a file's tests, and a notebook's cells, in order on one worker."""
    call = [sys.executable, "-m", "pytest", "--durations=12", "-n", "2", "--dist", "loadfile"]
    call += ["--no-loadscope-reorder"]  # in the order of tests/conftest.py: longest first
    if browser:
        return [*call, "tests/browser", *extra]
    call += [*NBVAL, "--ignore=tests/browser", "--ignore=tests/bench", "tests"]
    if chapter:
        stem = chapters(chapter)[0].stem
        if stem[:2] == "11" and kernels.missing():
            raise ValueError(f"chapter 11 cannot run: {kernels.missing()}")
        return [*call, "--chapter", stem[:2], f"notebooks/{stem}.ipynb", *extra]
    here = [p for p in chapters(suffix=".ipynb") if p.stem[:2] != "11" or not kernels.missing()]
    return [*call, *(f"notebooks/{p.name}" for p in here), *extra]


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m book.run_tests", description=__doc__.splitlines()[0])
    parser.add_argument("chapter", nargs="?", help="only what belongs to this chapter: 05, 5 or 05_kv_cache")
    parser.add_argument("--browser", action="store_true", help="the browser tests instead of the others")
    args, extra = parser.parse_known_args(argv)
    environment = {**os.environ, **ENVIRONMENT}
    try:
        if args.browser:
            environment["BOOK_CHROMIUM"] = find_chromium()
        call = command(args.chapter, args.browser, extra)
    except (ValueError, FileNotFoundError) as error:
        print(f"run_tests: {error}", file=sys.stderr)
        return 2
    print("running", " ".join(["python", *call[1:]]), flush=True)
    return subprocess.call(call, cwd=ROOT, env=environment)


if __name__ == "__main__":
    sys.exit(main())
