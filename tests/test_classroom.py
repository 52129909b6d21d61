"""The class: what is handed out, the hub's settings, two simulated students and a killed server, links, the page's figures."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import yaml

pytest.importorskip("jupyterhub", reason="the class needs the extra `hub`")

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from book import paths
from book.classroom import handout, hub, links, load, memory, page
from book.classroom.student import Student, StudentError, cells_of, lost_cells

ROOT = paths.ROOT
CLASSROOM = ROOT / "src/book/classroom"
PASSWORD = "for-this-test-only"
needs_hub = pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("npm"), reason="JupyterHub needs Unix, its proxy needs Node"
)


def write_chapter(
    folder, sources=("import os\nprint(os.environ['OMP_NUM_THREADS'])", "6 * 7", "print('last')")
):
    cells = [new_markdown_cell("A small chapter.")] + [new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / "05_small.ipynb")
    return folder / "05_small.ipynb"


# ---- handing out ------------------------------------------------------------------------------------------------------


def test_hand_out_copies_what_is_missing_and_keeps_what_is_there(tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    write_chapter(source)
    (source / "data").mkdir()
    (source / "data/text.txt").write_text("data")
    for hidden in (".~05_small.ipynb", ".ipynb_checkpoints"):
        (source / hidden).write_text("not for students")
    copied, kept = handout.hand_out(source, work)
    assert (sorted(copied), kept) == (["05_small.ipynb", "data/text.txt"], [])
    assert (work / "05_small.ipynb").read_bytes() == (source / "05_small.ipynb").read_bytes()

    (work / "05_small.ipynb").write_text("an hour of work")
    (work / "data/text.txt").unlink()
    (source / "06_new.ipynb").write_text("{}")
    copied, kept = handout.hand_out(source, work)
    assert (sorted(copied), kept) == (["06_new.ipynb", "data/text.txt"], ["05_small.ipynb"])
    assert (work / "05_small.ipynb").read_text() == "an hour of work"
    assert not list(work.rglob(".handout-*"))


def test_hand_out_never_follows_or_replaces_a_link(tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    write_chapter(source)
    work.mkdir()
    (tmp_path / "elsewhere").write_text("untouched")
    (work / "05_small.ipynb").symlink_to(tmp_path / "nowhere")  # a dangling link is somebody's too
    (source / "07_link.ipynb").symlink_to(tmp_path / "elsewhere")
    copied, kept = handout.hand_out(source, work)
    assert (copied, kept) == ([], ["05_small.ipynb"])
    assert not (tmp_path / "nowhere").exists()


def test_hand_out_refuses_a_missing_source(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a folder"):
        handout.hand_out(tmp_path / "none", tmp_path / "work")
    with pytest.raises(FileNotFoundError, match="make student"):
        handout.source_folder(tmp_path)
    assert handout.main([]) == handout.main([str(tmp_path / "none"), str(tmp_path)]) == 2


# ---- settings ---------------------------------------------------------------------------------------------------------


def load_config(name, environment, monkeypatch):
    from traitlets.config import PyFileConfigLoader

    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    return PyFileConfigLoader(name, path=str(CLASSROOM)).load_config()


@pytest.fixture
def hub_config(tmp_path, monkeypatch):
    values = dict.fromkeys(("PORT", "HUB_PORT", "PROXY_PORT"), "8123")
    values |= {"FOLDER": str(tmp_path), "SOURCE": "unused", "PROXY": "node:proxy", "PASSWORD": PASSWORD}
    environment = {f"BOOK_CLASS_{key}": value for key, value in values.items()}
    return load_config("jupyterhub_config.py", environment, monkeypatch)


def unknown_traits(config, classes):
    """Names in a configuration that its classes do not have: traitlets ignores those without a word."""
    known = {cls.__name__: set(cls.class_trait_names(config=True)) for cls in classes}
    return [
        f"{section}.{name}"
        for section, settings in config.items()
        for name in settings
        if section not in known or name not in known[section]
    ]


def test_every_setting_of_the_hub_exists(hub_config):
    from jupyterhub.app import JupyterHub
    from jupyterhub.auth import Authenticator
    from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
    from jupyterhub.proxy import ConfigurableHTTPProxy
    from jupyterhub.spawner import SimpleLocalProcessSpawner, Spawner

    classes = [JupyterHub, Authenticator, SharedPasswordAuthenticator, ConfigurableHTTPProxy, Spawner]
    assert unknown_traits(hub_config, [*classes, SimpleLocalProcessSpawner]) == []


def test_every_setting_of_a_server_exists(monkeypatch):
    from jupyter_server.serverapp import ServerApp
    from jupyter_server.services.kernels.kernelmanager import MappingKernelManager
    from jupyterlab.labapp import LabApp

    from book.classroom.kernels import CappedKernelManager

    config = load_config("jupyter_server_config.py", {"BOOK_CLASS_CULL_SECONDS": "7200"}, monkeypatch)
    assert unknown_traits(config, [ServerApp, MappingKernelManager, CappedKernelManager, LabApp]) == []
    assert config.MappingKernelManager.cull_idle_timeout > 90 * 60, "a lecture outlasts an idle kernel"


def test_labs_settings_exist_and_are_of_the_right_type():
    overrides = json.loads((CLASSROOM / "labconfig/default_setting_overrides.json").read_text())
    kinds = {"boolean": bool, "number": int, "string": str}
    for plugin, settings in overrides.items():
        name, file = plugin.rsplit(":", 1)
        schema = json.loads((Path(sys.prefix) / f"share/jupyter/lab/schemas/{name}/{file}.json").read_text())
        for key, value in settings.items():
            assert isinstance(value, kinds[schema["properties"][key]["type"]]), f"{plugin} {key}"
    assert overrides["@jupyterlab/docmanager-extension:plugin"]["autosaveInterval"] <= 60


def test_the_hub_listens_on_loopback_only_and_takes_no_path_for_a_name(hub_config):
    for url in (
        hub_config.JupyterHub.bind_url,
        hub_config.JupyterHub.hub_bind_url,
        hub_config.ConfigurableHTTPProxy.api_url,
    ):
        assert url.startswith("http://127.0.0.1:")
    pattern = re.compile(hub_config.Authenticator.username_pattern + r"\Z")
    assert all(pattern.match(name) for name in ("ada", "student-01"))
    assert not any(pattern.match(name) for name in ("", "../ada", "a/b", "Ada", ".ada", "a" * 33))
    assert hub_config.Spawner.environment["OMP_NUM_THREADS"] == "1"


# ---- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "--students 0: expected 1 to 100"),
        ({"count": 101}, "--students 101"),
        ({"limit": 5}, "--limit 5"),
        ({"save_every": 0}, "save every 0 cells"),
        ({"think": -1}, "think -1 s"),
    ],
)
def test_load_test_refuses_bad_settings(tmp_path, settings, message):
    path = write_chapter(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        load.load_test(settings.pop("count", 2), path, tmp_path, **settings)


def test_load_test_refuses_more_students_than_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "ROOM_GIB", 1e6)
    with pytest.raises(ValueError, match=r"2 students want about .* are free: choose --students 1 or fewer"):
        load.load_test(2, write_chapter(tmp_path), tmp_path)


def test_chapters_that_are_not_there(tmp_path, capsys):
    write_chapter(tmp_path)
    assert load.chapter_file("5", tmp_path) == (tmp_path, tmp_path / "05_small.ipynb")
    with pytest.raises(ValueError, match="no chapter '77'"):
        load.chapter_file("77", tmp_path)
    with pytest.raises(FileNotFoundError, match="no notebook at"):
        load.chapter_file(tmp_path / "none.ipynb")
    assert load.main(["--chapter", "77", "--source", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: no chapter '77'")


def test_hub_refuses_bad_ports_passwords_and_limits(tmp_path, capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is in use"):
            hub.start(tmp_path, write_chapter(tmp_path).parent, port, PASSWORD)
    with pytest.raises(ValueError, match="expected 1024 to 65535"):
        hub.start(tmp_path, tmp_path, 80, PASSWORD)
    with pytest.raises(ValueError, match="at least 8"):
        hub.start(tmp_path, tmp_path, 8000, "short")
    assert hub.main(["--folder", str(tmp_path), "--memory-gib", "0.1"]) == 2
    assert "expected 0.5 to 1024" in capsys.readouterr().err


def test_missing_node_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="Node 18 or newer"):
        hub.install_proxy(tmp_path / "proxy")


def test_students_speak_to_this_machine_only():
    with pytest.raises(ValueError, match=r"only ever speaks to 127\.0\.0\.1"):
        Student("http://hub.example.edu", "ada", PASSWORD, "05.ipynb", 0)


# ---- what counts as lost ----------------------------------------------------------------------------------------------


def test_lost_cells_counts_missing_and_changed_cells(tmp_path):
    saved = json.loads(write_chapter(tmp_path).read_text())
    assert lost_cells(saved, json.loads(json.dumps(saved))) == 0
    shorter = json.loads(json.dumps(saved))
    del shorter["cells"][1]
    shorter["cells"][2]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "other"}]
    assert lost_cells(saved, shorter) == 2
    assert len(cells_of(saved)) == 4


def test_spread_by_hand():
    assert load.spread(range(1, 21)) == {"median": 10.5, "p95": 19, "max": 20}
    assert load.spread([3.0]) == {"median": 3.0, "p95": 3.0, "max": 3.0}
    assert load.spread([]) is None


# ---- a real hub -------------------------------------------------------------------------------------------------------


GOOD = {
    "failures": [],
    "saves": {"cells_lost": 0},
    "crash": {
        "servers_killed": 1,
        "cells_lost": 0,
        "versions_lost": 0,
        "others_disturbed": 0,
        "first_cell_after": "ok",
    },
    "processes_left": 0,
}


@pytest.mark.parametrize(
    "change",
    [
        {"failures": [{"student": "ada", "failure": "no server"}]},
        {"saves": {"cells_lost": 1}},
        {"processes_left": 1},
        {"crash": None},
        {"crash": {"failure": "did not come back"}},
        *({"crash": {**GOOD["crash"], key: 2}} for key in GOOD["crash"]),
    ],
)
def test_one_thing_gone_wrong_is_not_good(change):
    assert load.is_good(GOOD)
    assert not load.is_good({**GOOD, **change})


@needs_hub
def test_two_students_a_killed_server_and_nothing_left_behind(tmp_path):
    """The whole load test, small: log in, run, save, kill -9 in mid-save, come back, end every process."""
    path = write_chapter(tmp_path / "source")
    result = load.load_test(2, path, path.parent, limit=120, save_every=2, say=lambda text: None)
    assert load.is_good(result), load.table(result)
    assert [row["cells_run"] for row in result["rows"]] == [3, 3]
    assert result["saves"]["cells_saved"] == 8 and result["saves"]["acknowledged"] > 4
    assert result["crash"]["saves_acknowledged_before"] > 0
    assert all(row["server_pss"] > 20 and row["kernel_pss"] > 10 for row in result["rows"])
    assert result["processes_left"] == 0
    assert not list(paths.BUILD.glob("class-load-*"))
    text = page.with_block(f"before {page.BEGIN} old {page.END} after", result)
    assert text.startswith("before ") and text.endswith(" after") and " old " not in text


@pytest.fixture
def running(tmp_path):
    """A hub and a student with a server: (student, the student's work folder, the hub's process)."""
    path = write_chapter(tmp_path / "source")
    (port,) = hub.free_ports(1)
    with (tmp_path / "hub.log").open("w") as log:
        extra = {"BOOK_CLASS_MAX_KERNELS": "2"}
        process = hub.start(tmp_path / "class", path.parent, port, PASSWORD, 1.0, extra=extra, log=log)
    assert "error" not in (tmp_path / "hub.log").read_text(), "who starts a hub first reads its log"
    student = Student(f"http://127.0.0.1:{port}", "ada", PASSWORD, path.name, time.monotonic() + 120)
    try:
        student.log_in()
        student.get_server()
        yield student, tmp_path / "class/students/ada/work", process
    finally:
        student.close()
        hub.stop(process)
        assert hub.processes(process.run) == []


@needs_hub
def test_what_the_hub_bounds_keeps_and_mends(running):
    student, work, process = running
    stranger = Student(student.url, "ada", "not-the-password", student.path, student.deadline)
    with pytest.raises(StudentError, match="HTTP 403"):
        stranger.log_in()
    student.open_chapter()

    # One thread, and a cell that asks for more than the bound gets an error; the kernel lives.
    outputs, _, status = student.execute("import os; print(os.environ['OMP_NUM_THREADS'])")
    assert (status, outputs[0]["text"]) == ("ok", "1\n")
    outputs, _, status = student.execute("x = bytearray(2 * 2**30)")
    assert (status, outputs[0]["ename"]) == ("error", "MemoryError")
    assert student.execute("print('alive')")[2] == "ok"

    # Two notebooks run (this test's cap); the third is refused in words.
    start = {"expect": (201,), "json": {"name": "python3"}}
    student._ask("POST", f"{student.base}/api/kernels", **start)
    with pytest.raises(StudentError, match="2 notebooks are running"):
        student._ask("POST", f"{student.base}/api/kernels", **start)

    # A file cut in the middle of a save: the server gives out the backup that was written beside it.
    student.run_chapter()
    whole = (work / student.path).read_text()
    (work / f".~{student.path}").write_text(whole)
    (work / student.path).write_text(whole[: len(whole) // 2])
    assert lost_cells(student.saved, student.read()) == 0

    # Another start keeps saved work, and brings back only what is gone.
    shutil.copy(work / student.path, work / "mine.ipynb")
    (server,) = [each for each in hub.processes(process.run) if memory.kind_of(each) == "server"]
    server.kill()
    student.get_server()
    assert student.lost(work / student.path) == 0
    assert (work / "mine.ipynb").exists()

    # Lab is told this class's settings.
    url = f"{student.base}/lab/api/settings/@jupyterlab/docmanager-extension:plugin"
    answer = student._ask("GET", url).json()
    assert answer["schema"]["properties"]["autosaveInterval"]["default"] == 30


# ---- links, Binder, the page ------------------------------------------------------------------------------------------


def test_links():
    repository = "https://github.com/OWNER/NAME"
    assert links.nbgitpuller(
        "https://hub.example.edu/", repository + ".git", "main", "chapters/05_kv_cache.ipynb"
    ) == (
        "https://hub.example.edu/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgithub.com%2FOWNER%2FNAME.git"
        "&branch=main&targetpath=NAME&urlpath=lab%2Ftree%2FNAME%2Fchapters%2F05_kv_cache.ipynb"
    )
    assert links.binder(repository, "a/b", "notebooks/05_kv_cache.ipynb") == (
        "https://mybinder.org/v2/gh/OWNER/NAME/a%2Fb?urlpath=lab%2Ftree%2Fnotebooks%2F05_kv_cache.ipynb"
    )
    with pytest.raises(ValueError, match="expected a web address"):
        links.nbgitpuller("hub.example.edu", repository, "main", "x.ipynb")
    with pytest.raises(ValueError, match="github.com/OWNER/NAME"):
        links.binder("https://gitlab.com/a/b", "main", "x.ipynb")


def test_post_build_names_what_exists():
    script = ROOT / "postBuild"
    assert script.stat().st_mode & 0o111, "repo2docker runs it as a program"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    text = script.read_text()
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert (ROOT / "src" / (module.replace(".", "/") + ".py")).is_file(), module
    for file in re.findall(r"cp (\S+)", text):
        assert (ROOT / file).is_file(), file


def test_the_pages_figures_are_those_of_the_committed_run():
    text = page.PAGE.read_text(encoding="utf-8")
    result = json.loads(load.RESULT.read_text(encoding="utf-8"))
    assert text == page.with_block(text, result), "run: python -m book.classroom.page"
    assert load.is_good(result) and result["settings"]["students"] >= 20
    chapter = next(iter(paths.NOTEBOOKS.glob("05_*.ipynb")), None)
    assert chapter is None or result["provenance"]["chapter"] == chapter.name, "run: make bench-class"
    values = yaml.safe_load(text.split("```yaml")[1].split("```")[0])
    assert values["singleuser"]["memory"]["guarantee"].removesuffix("M").isdigit()
    assert values["singleuser"]["cmd"] == ["python", "-m", "book.classroom.server"]
    with pytest.raises(ValueError, match="expected one"):
        page.with_block(text.replace(page.END, ""), result)


def test_sizes_by_hand():
    each = {"median": 2.0, "p95": 3.0, "max": 100.0}
    held = {"server_pss": each, "kernel_pss": {**each, "max": 156.0}, "hub": 90, "proxy": 38}
    result = {
        "memory_mib": held,
        "cpu": {"server_seconds": each, "kernel_seconds_to_first_result": {**each, "median": 4.0}},
    }
    result["home_mib"] = each
    assert page.machine_gib(result, 30) == pytest.approx((90 + 38 + 30 * 256) / 1024 + 2)
    assert page.login_seconds(result, 30, 2) == pytest.approx(90.0)
    sizes = page.kubernetes(result, 300)
    # 28 GiB of a node over 256 MiB each: 112 students, three nodes; the limit is 100 + 2 * 1300 MiB, rounded up
    assert (sizes["guarantee_mib"], sizes["students_a_node"], sizes["nodes"], sizes["limit_gib"]) == (
        256,
        112,
        3,
        3,
    )
