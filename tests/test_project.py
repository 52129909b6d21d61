"""The project as a whole: what is installed, what imports what, what is committed."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from book import lock, run_tests, setup
from book.device import device
from book.paths import ROOT

# Chapter order is import order: a file of the block may import from those before it only.
BLOCK = [
    f"lib.{name}"
    for name in [
        "config",
        "frequencies",
        "arithmetic",
        "norms",
        "ffn",
        "rope",
        "cache",
        "attention",
        "mla",
        "checks",
        "model",
        "gpt2",
        "decoding",
        "fast",
        "static",
        "compiled",
    ]
]


def tracked():
    """The files of the project: those that git knows, or, in an unpacked archive without .git, all that git would not ignore."""
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if out.returncode == 0:
        return [ROOT / name for name in out.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    skipped = {".venv", "models", "work", "build", "node_modules", "__pycache__"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.relative_to(ROOT).parts)]


def read_lock():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def test_environment_yml_equals_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    base, extras = lock.project()
    pip = next(item["pip"] for item in environment["dependencies"] if isinstance(item, dict))
    packages = [item for item in pip if not item.startswith("-")]
    assert sorted(packages) == sorted(base + extras["test"] + extras["kernels"])
    assert "--constraint requirements.lock" in pip and "--editable ." in pip
    python = next(item for item in environment["dependencies"] if str(item).startswith("python"))
    assert (
        python == "python=3.11"
    )  # one version: repo2docker takes a range for "unspecified" and installs 3.10
    assert 'requires-python = ">=3.11,<3.14"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert (setup.OLDEST, setup.NEWEST) == ((3, 11), (3, 13))


def test_lock_is_complete():
    """Everything that pyproject leads to is pinned, in the version that the tests run with."""
    pinned = {canonicalize_name(r.name): str(r.specifier) for r in read_lock()}
    installed = {name: f"=={dist.version.partition('+')[0]}" for name, dist in lock.closure().items()}
    if sys.platform == "linux":  # elsewhere a package or two of that platform come on top
        assert not set(installed) - set(pinned), "run: python -m book.lock"
    different = {n: (v, pinned[n]) for n, v in installed.items() if n in pinned and v != pinned[n]}
    assert not different, f"installed against pinned: {different}; run: make setup"


def test_lock_serves_every_platform():
    for requirement in read_lock():
        assert [s.operator for s in requirement.specifier] == ["=="], str(requirement)
        assert "+" not in str(requirement), "a local version (such as +cpu) exists on one platform only"
        assert not requirement.url and not requirement.marker
        assert not lock.PLATFORM_OWN.match(requirement.name)
    assert len(lock.pins()) >= len(lock.project()[0])  # raises where a pin refuses one of Python 3.11 to 3.13


def test_extras_of_setup_are_all_but_the_benchmarks_peer():
    assert set(setup.EXTRAS.split(",")) | {"bench"} == set(lock.project()[1])
    assert set(lock.OPTIONAL) == {"bench"}


def test_python_of_setup():
    assert setup.fits((3, 11)) and setup.fits((3, 13))
    assert (
        not setup.fits((3, 10)) and not setup.fits((3, 14)) and not setup.fits(()) and not setup.fits((2, 7))
    )
    assert setup.version_of(sys.executable) == sys.version_info[:2]
    assert setup.version_of(str(ROOT / "no-such-python")) == ()


def test_stamp_follows_content(tmp_path, monkeypatch):
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(setup, "ROOT", str(tmp_path))
    before = setup.content_hash((3, 11))
    os.utime(tmp_path / "pyproject.toml", (1, 1))
    assert setup.content_hash((3, 11)) == before
    assert setup.content_hash((3, 12)) != before
    (tmp_path / "requirements.lock").write_text("numpy==1.0\n")
    assert setup.content_hash((3, 11)) != before


def test_make_prints_its_targets():
    out = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))
    assert {line.split()[1] for line in out.splitlines()} == targets
    phony = re.search(r"\.PHONY: ((?:.*\\\n)*.*)", text).group(1).replace("\\\n", " ").split()
    assert set(phony) == targets
    assert all(len(line) < 120 for line in out.splitlines())


def test_make_targets_exist():
    """Each target calls a module or a script that is there."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for module in re.findall(r"\$\(PY\) -m (book[\w.]*)", text):
        base = ROOT / "src" / Path(*module.split("."))
        assert base.with_suffix(".py").is_file() or (base / "__main__.py").is_file(), module
    for script in re.findall(r"\$\((?:PY|PYTHON)\) ([\w/]+\.py)", text):
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize(
    "command",
    [
        ["-c", "import lib, lib.config, lib.families, lib.arithmetic, lib.frequencies"],
        ["-c", "import lib; lib.parameters(lib.llama_style(V=1000)); lib.kv_cache_bytes(80, 8, 128)"],
        ["-m", "lib", "describe", "tests/data/configs/ANY"],
    ],
    ids=["import", "arithmetic", "describe"],
)
def test_torch_stays_unloaded(command):
    if command[-1].endswith("ANY"):
        command = [*command[:-1], str(min((ROOT / "tests" / "data").rglob("*config*/*.json")))]
    out = subprocess.run(
        [sys.executable, "-X", "importtime", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr[-2000:]
    loaded = {
        line.rsplit("|", 1)[-1].strip() for line in out.stderr.splitlines() if line.startswith("import time:")
    }
    assert any(name.startswith("lib") for name in loaded)
    heavy = {name.partition(".")[0] for name in loaded} & {
        "torch",
        "numpy",
        "transformers",
        "matplotlib",
        "ipywidgets",
    }
    assert not heavy


def imports(path):
    """Names of the modules that a file imports, at any depth; relative ones are resolved."""
    package = path.relative_to(ROOT / "src").with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def import_graph():
    """module of lib -> the modules of lib that it imports, wherever in the file the import stands."""
    root = ROOT / "src"
    modules = {}
    for path in sorted((root / "lib").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: (set(imports(path)) & set(modules)) - {name, "lib"} for name, path in modules.items()}


def test_imports_have_no_circles_and_rooms_keep_their_order():
    graph = import_graph()
    assert len(graph) > 25
    done = []
    while len(done) < len(graph):
        free = [name for name in graph if name not in done and graph[name] <= set(done)]
        assert free, f"a circle among {sorted(set(graph) - set(done))}"
        done += free
    for name, needs in graph.items():
        if name in BLOCK:
            late = {n for n in needs if n in BLOCK and BLOCK.index(n) > BLOCK.index(name)}
            assert not late, f"{name} imports {late}, which come after it in chapter order"
    rooms = {"lib.files": ("lib.files", "lib.families"), "lib.families": ("lib.families",)}
    for name, needs in graph.items():
        room = next((r for r in rooms if name.startswith(r)), None)
        if room or name in ("lib", "lib.__main__"):
            allowed = rooms.get(room, ("lib",))
            wrong = {n for n in needs if n.count(".") > 1 or n in rooms} - {
                n for n in needs if n.startswith(allowed)
            }
        else:
            wrong = {n for n in needs if n.startswith(tuple(rooms))}
        assert not wrong, f"{name} imports {wrong}: the block knows nothing of other people's files"


def test_lib_knows_nothing_of_book():
    for path in (ROOT / "src" / "lib").rglob("*.py"):
        tops = {name.partition(".")[0] for name in imports(path)}
        assert not tops & {"book", "matplotlib", "ipywidgets", "IPython", "pickle"}, path.name


def test_no_machine_paths_are_committed():
    # /home/jovyan is the home in every Jupyter image, so it is a fact and not a machine.
    pattern = re.compile(r"(?<![\w.$)}/:])/(?:work|root|home(?!/jovyan)|Users)/[\w.-]+")
    allowed = {"test_notebooks.py", "test_project.py"}  # they hold the patterns themselves
    found = {}
    for path in tracked():
        if (
            path.suffix in {".py", ".ipynb", ".md", ".toml", ".yml", ".cfg", ".json", ".lock", ""}
            and path.name not in allowed
        ):
            match = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
            if match:
                found[str(path.relative_to(ROOT))] = match.group(0)
    assert not found


def test_ruff():
    for call in (["check"], ["format", "--check"]):
        out = subprocess.run(
            [sys.executable, "-m", "ruff", *call, "--quiet", "src", "tests", "notebooks"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert out.returncode == 0, out.stdout[-3000:] + out.stderr


def test_files_stay_small():
    for path in tracked():
        assert path.stat().st_size < 5_000_000, f"{path.name} is too large for git"
        if path.suffix == ".py" and "src" in path.relative_to(ROOT).parts[:1]:
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, (
                f"{path.name} holds more than one idea"
            )
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_readme_names_what_there_is():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(
        re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (ROOT / link).exists(), f"README links to {link}"


def test_device(monkeypatch):
    monkeypatch.delenv("BOOK_DEVICE", raising=False)
    assert device().type == "cpu"
    assert device("auto").type in ("cpu", "cuda", "mps")
    monkeypatch.setenv("BOOK_DEVICE", "cuda:99")
    with pytest.raises(ValueError, match="offer: cpu"):
        device()
    with pytest.raises(ValueError, match="expected cpu, cuda, cuda:N, mps or auto"):
        device("gpu")


def test_missing_chromium_is_said(monkeypatch, capsys):
    monkeypatch.setenv("BOOK_CHROMIUM", "no-such-browser")
    assert run_tests.main(["--browser"]) == 2
    assert "apt-get install chromium" in capsys.readouterr().err


def test_unknown_chapter_is_said(capsys):
    assert run_tests.main(["77"]) == 2
    assert "no chapter '77'" in capsys.readouterr().err


def test_installed_editable_and_under_its_name():
    assert distribution("modern-transformer-block").metadata["License-Expression"] == "MIT"
