"""What every test shares: one thread, fixed seeds, the real model, and `--chapter 05`. Tolerances: tolerances.py."""

import os
import random
import re
import shutil
import sys

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch is loaded: printed digits depend on the number of threads
os.environ["BOOK_DEVICE"] = "cpu"
os.environ["TRITON_INTERPRET"] = (
    "1"  # before Triton is loaded: the kernels run on the CPU, and are compiled in a process apart
)

import pytest

from lib import kernels

# Tests that compile are not collected where nothing can: one line at the end says so.
NO_TRITON = kernels.missing()  # then tests/kernels and chapter 11 are left out, and the header says so
COMPILER = next(filter(None, map(shutil.which, [os.environ.get("CXX") or "c++", "g++", "clang++"])), None)
collect_ignore = [] if COMPILER else ["test_compiled.py"]


@pytest.fixture(autouse=True)
def reproducible():
    """Seeds before each test. A test that does not touch torch does not pay for loading it."""
    random.seed(0)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy:
        numpy.random.seed(0)
    if torch:
        torch.manual_seed(0)
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(scope="session")
def model_path():
    """Folder or file of the real model. Without it the test fails, and the message says what to run."""
    from lib import find_model

    return find_model()


def pytest_runtest_setup(item):
    if item.get_closest_marker("real_model"):
        from lib import find_model

        try:
            find_model()
        except FileNotFoundError as error:
            pytest.fail(f"this test needs the real model: {error}", pytrace=False)


def pytest_addoption(parser):
    parser.addoption(
        "--chapter", metavar="NN", help="only the tests that belong to this chapter, and its notebook"
    )
    parser.addoption("--order", metavar="reverse|SEED", help="the files backwards, or shuffled by this seed")


def belongs_to(nodeid, chapter):
    """Whether a test names the chapter: in its file's name, or in its own or its parameters' (`[05_kv_cache]`, `[05-...]`)."""
    return re.search(rf"(?<![\d.]){chapter}(?!\d)", nodeid) is not None


# What takes longest, longest first: with two workers a long file that starts last leaves one of them idle.
LONGEST = [
    "test_planted_faults",
    "test_student",
    "test_explore",
    "test_classroom",
    "test_real_model",
    "10_real_models",
    "04_rope",
    "09_full",
    "00_at",
]


def in_order(items, order):
    """The items file by file: "reverse" (the tests of a file too, the cells of a notebook never), a seed, or longest first."""
    files = {}
    for item in items:
        files.setdefault(item.location[0], []).append(item)
    names = list(files)
    if order == "reverse":
        names.reverse()
        for name in names:
            if not name.endswith(".ipynb"):
                files[name].reverse()
    elif order:
        random.Random(order).shuffle(names)
    else:
        names.sort(key=lambda name: next((i for i, part in enumerate(LONGEST) if part in name), len(LONGEST)))
    return [item for name in names for item in files[name]]


def pytest_collection_modifyitems(config, items):
    items[:] = in_order(items, config.getoption("--order"))
    chapter = config.getoption("--chapter")
    if chapter:
        kept = [item for item in items if belongs_to(item.nodeid, chapter)]
        gone = [item for item in items if not belongs_to(item.nodeid, chapter)]
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


def pytest_report_header():
    return f"tests/kernels and chapter 11 are not collected: {NO_TRITON}" if NO_TRITON else None


def pytest_terminal_summary(terminalreporter):
    if not COMPILER:
        terminalreporter.write_line(
            "no C++ compiler here: tests/test_compiled.py was not collected (apt-get install g++)"
        )
    used = sorted(getattr(sys.modules.get("tolerances"), "used", []))
    if used:
        share, test = used[-1]
        terminalreporter.write_line(
            f"closest to its tolerance: {share:.2f} of it in {test.removesuffix(' (call)')}"
        )
