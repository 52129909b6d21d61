"""python -m book.classroom.load: simulated students run a chapter on a real hub; what it took goes into class.json.

All of them log in at the same moment, run every cell without a pause, and save every few cells: harder than a real class. Then one
server is killed in the middle of a save. The test speaks to 127.0.0.1 only, has a time limit, and ends everything it started.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil

from book import paths
from book.classroom import handout, hub, memory
from book.classroom.student import Student, StudentError, lost_cells

RESULT = paths.ROOT / "tests/bench/results/class.json"
GIB = 2**30
FIRST = "kernel_cpu_to_first_result"
ROOM_GIB = 0.5  # free memory asked for per student before anything starts


def chapter_file(which, source=None):
    """(folder handed out, notebook in it): `which` is a chapter of `source` ("05") or the path of any notebook."""
    if str(which).endswith(".ipynb"):
        path = Path(which).resolve()
        if not path.is_file():
            raise FileNotFoundError(
                f"no notebook at {which}: expected a chapter (05) or the path of an .ipynb file"
            )
        return path.parent, path
    folder = handout.source_folder(source)
    if source is None and not any(
        path.name in handout.names(folder) for path in paths.chapters(which, ".ipynb")
    ):
        folder = paths.NOTEBOOKS  # the student copies are older than this chapter
    return folder, paths.chapters(which, ".ipynb", folder)[0]


def content_hash(notebook):
    """sha256 over type and source of every cell: outputs may differ, the chapter is the same."""
    parts = [[cell.cell_type, cell.source] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def spread(values):
    """Median, 95th percentile (nearest rank) and maximum, rounded to what such a measurement can tell."""
    values = sorted(values)
    if not values:
        return None
    p95 = values[max(0, -(-95 * len(values) // 100) - 1)]
    return {"median": round(statistics.median(values), 2), "p95": round(p95, 2), "max": round(values[-1], 2)}


def provenance(path):
    notebook = nbformat.read(path, as_version=4)
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    packages = ("jupyterhub", "jupyterlab", "jupyter_server", "ipykernel", "torch", "matplotlib")
    proxy = json.loads((Path(hub.__file__).parent / "proxy/package.json").read_text())
    node = subprocess.run([shutil.which("node"), "--version"], capture_output=True, text=True, check=True)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "python": platform.python_version(),
        "node": node.stdout.strip().lstrip("v"),
        **{name: importlib.metadata.version(name) for name in packages},
        **proxy["dependencies"],
        "chapter": path.name,
        "chapter_sha256": content_hash(notebook),
        "code_cells": sum(cell.cell_type == "code" for cell in notebook.cells),
    }


def attend(student, save_every, think):
    """One student's hour. Returns the failure as text, or None."""
    begin = time.monotonic()
    try:
        student.log_in()
        student.get_server()
        student.open_chapter()
        student.run_chapter(save_every, begin, think)
    except StudentError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 (a surprise is a failure of this student, not the end of the test)
        return f"{type(error).__name__}: {error}"
    return None


def kill_in_mid_save(student, run, file):
    """kill -9 the student's server while it saves, then come back. Returns what was lost (nothing, if all is well)."""
    servers = [
        process
        for process in hub.processes(run)
        if memory.kind_of(process) == "server" and memory.owner_of(process) == student.name
    ]
    acknowledged = []
    saving = threading.Thread(target=lambda: acknowledged.append(student.save_until_cut()), daemon=True)
    saving.start()
    time.sleep(1.0)
    for process in servers:
        process.kill()
    begin = time.monotonic()
    saving.join(130)
    try:
        nbformat.read(file, as_version=4)
        cut = False
    except (ValueError, nbformat.reader.NotJSONError, nbformat.ValidationError):  # half a file
        cut = True
    # The page reloads: the hub offers a new server. Reading goes through the server, which mends a file cut in mid-write.
    student.get_server()
    found = student.read()
    student.socket.close()
    student.open_chapter()
    cell = next(cell for cell in student.notebook["cells"] if cell["cell_type"] == "code")
    _, _, status = student.execute(cell["source"])
    back = time.monotonic() - begin
    version, last = found["metadata"].get("version", 0), student.saved["metadata"].get("version", 0)
    return {
        "servers_killed": len(servers),
        "saves_acknowledged_before": acknowledged[0] if acknowledged else None,
        "file_was_cut_in_mid_write": cut,
        "cells_lost": lost_cells(student.saved, found),
        "versions_lost": max(0, last - version),
        "first_cell_after": status,
        "seconds_until_back": round(back, 1),
    }


def still_at_work(students):
    """How many of `students` cannot run a cell now."""
    failed = 0
    for student in students:
        try:
            failed += student.execute("6 * 7")[2] != "ok"
        except StudentError:
            failed += 1
    return failed


def load_test(count, path, source, limit=900, save_every=3, think=0.0, memory_gib=4.0, say=print):
    """Run it. Returns the result; every process it started has ended when it returns or raises."""
    if not 1 <= count <= 100:
        raise ValueError(f"--students {count}: expected 1 to 100")
    if not 30 <= limit <= 3600:
        raise ValueError(f"--limit {limit}: expected 30 to 3600 seconds")
    if not 1 <= save_every <= 100 or not 0 <= think <= 60:
        raise ValueError(f"save every {save_every} cells, think {think} s: expected 1 to 100 and 0 to 60")
    free = psutil.virtual_memory().available / GIB
    if count * ROOM_GIB > free:
        raise ValueError(
            f"{count} students want about {count * ROOM_GIB:.1f} GiB and {free:.1f} GiB are free: "
            f"choose --students {max(1, int(free / ROOM_GIB))} or fewer"
        )
    result = {
        "what": "simulated students on JupyterHub with configurable-http-proxy, all at once, on one machine",
        "provenance": provenance(path),
        "settings": {
            "students": count,
            "save_every": save_every,
            "think_seconds": think,
            "start": "all at once",
        },
    }
    paths.BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="class-load-", dir=paths.BUILD))
    password, (port,) = secrets.token_urlsafe(9), hub.free_ports(1)
    log_path = folder / "hub.log"
    process, students = None, []
    try:
        with log_path.open("w") as log:
            process = hub.start(folder, source, port, password, memory_gib, log=log)
        deadline = time.monotonic() + limit
        url = f"http://127.0.0.1:{port}"
        students = [
            Student(url, f"student-{n:02d}", password, path.name, deadline) for n in range(1, count + 1)
        ]
        say(
            f"{count} students log in at {url} and run {path.name}, {result['provenance']['code_cells']} code cells"
        )
        with memory.Peak(process.run) as peak, concurrent.futures.ThreadPoolExecutor(count) as pool:
            outcomes = list(pool.map(lambda student: attend(student, save_every, think), students))
        held = memory.by_student(process.run)
        homes = [_folder_mib(folder / "students" / student.name) for student in students]
        file = {s: folder / "students" / s.name / "work" / path.name for s in students}
        lost = {s: s.lost(file[s]) if s.saved else 0 for s in students}
        well = [student for student, failure in zip(students, outcomes, strict=True) if failure is None]
        crash = None
        if well:
            say(f"killing the server of {well[0].name} while it saves")
            try:
                crash = kill_in_mid_save(well[0], process.run, file[well[0]])
                crash["others_disturbed"] = still_at_work(well[1:])
            except StudentError as error:
                crash = {"failure": str(error)}
    except BaseException:
        if log_path.exists():
            say("the hub's last words:\n" + log_path.read_text(errors="replace")[-2000:])
        raise
    finally:
        for student in students:
            student.close()
        killed = hub.stop(process) if process else 0
        left = len(hub.processes(process.run)) if process else 0
        shutil.rmtree(folder, ignore_errors=True)
    names = [student.name for student in students]
    result["failures"] = [
        {"student": name, "failure": text}
        for name, text in zip(names, outcomes, strict=True)
        if text is not None
    ]
    keys = ("server", "kernel", "first_result", "chapter", "slowest_save")
    result["seconds"] = {key: spread([s.seconds[key] for s in students if key in s.seconds]) for key in keys}
    result["memory_mib"] = _memory(held, peak)
    result["cpu"] = {
        "machine_percent_mean": round(peak.cpu_percent),
        **{
            f"{kind}_seconds": spread([row[f"{kind}_cpu"] for row in held["students"].values()])
            for kind in ("server", "kernel")
        },
        "kernel_seconds_to_first_result": spread([s.seconds[FIRST] for s in students if FIRST in s.seconds]),
    }
    result["saves"] = {
        "acknowledged": sum(student.saves for student in students),
        "cells_saved": sum(len(student.saved["cells"]) for student in students if student.saved),
        "cells_lost": sum(lost.values()),
    }
    result["home_mib"] = spread(homes)
    result["crash"] = crash
    result["processes_killed_at_the_end"], result["processes_left"] = killed, left
    result["rows"] = [
        {
            "student": student.name,
            "cells_run": student.cells_run,
            **{key: round(student.seconds[key], 2) for key in keys if key in student.seconds},
            **{key: round(value) for key, value in held["students"].get(student.name, {}).items()},
        }
        for student in students
    ]
    return result


def _folder_mib(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _memory(held, peak):
    rows = held["students"].values()
    columns = ("server_pss", "server_rss", "kernel_pss", "kernel_rss")
    each = {key: spread([row[key] for row in rows]) for key in columns}
    each["student_pss"] = spread([row["server_pss"] + row["kernel_pss"] for row in rows])
    return {
        **each,
        "hub": round(held["hub"]),
        "proxy": round(held["proxy"]),
        "total_pss_at_the_end": round(held["total_pss"]),
        "total_pss_peak": round(max(peak.total_mib, held["total_pss"])),
        "machine_available_least": round(peak.available_mib),
    }


def is_good(result):
    """None failed, none lost a saved cell, the killed one came back, nothing is left running."""
    crash = result["crash"] or {"failure": "no student got that far"}
    return (
        not result["failures"]
        and result["saves"]["cells_lost"] == 0
        and "failure" not in crash
        and crash["servers_killed"] == 1
        and crash["cells_lost"] == crash["versions_lost"] == crash["others_disturbed"] == 0
        and crash["first_cell_after"] == "ok"
        and result["processes_left"] == 0
    )


def table(result):
    """The result as lines to read."""
    about, settings = result["provenance"], result["settings"]
    lines = [
        f"{settings['students']} students at once, {about['chapter']}, {about['cores']} cores, {about['memory_gib']} GiB",
        f"{'':34}{'median':>9}{'p95':>9}{'max':>9}",
    ]
    named = {
        "server": "s, log in to server",
        "first_result": "s, log in to first result",
        "chapter": "s, the whole chapter",
        "slowest_save": "s, slowest save",
    }
    rows = [(name, result["seconds"][key]) for key, name in named.items()]
    rows += [
        (f"MiB, {key.replace('_pss', '')} (PSS)", result["memory_mib"][key])
        for key in ("server_pss", "kernel_pss", "student_pss")
    ]
    for name, values in rows:
        if values:
            lines.append(f"{name:34}{values['median']:9.1f}{values['p95']:9.1f}{values['max']:9.1f}")
    held, saves, crash = result["memory_mib"], result["saves"], result["crash"] or {}
    lines += [
        f"CPU s a student: server {result['cpu']['server_seconds']}, kernel {result['cpu']['kernel_seconds']}",
        f"MiB, hub {held['hub']}, proxy {held['proxy']}, all together at most {held['total_pss_peak']}",
        f"failed: {len(result['failures'])}; saves: {saves['acknowledged']}",
        f"saved cells: {saves['cells_saved']}, lost: {saves['cells_lost']}",
        "killed server: " + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in crash.items()),
        f"processes left: {result['processes_left']}",
    ]
    lines += [f"  {each['student']}: {each['failure']}" for each in result["failures"]]
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m book.classroom.load", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--students", type=int, default=20)
    parser.add_argument("--chapter", default="05", help="a chapter (05) or the path of a notebook")
    parser.add_argument("--source", help="what students get; build/student, or the chapters, when not given")
    parser.add_argument(
        "--limit", type=float, default=900, help="seconds, then whoever is not ready has failed"
    )
    parser.add_argument("--save-every", type=int, default=3, help="cells between two saves")
    parser.add_argument("--think", type=float, default=0.0, help="seconds between two cells")
    parser.add_argument("--out", type=Path, default=RESULT, help="where the result goes (JSON)")
    arguments = parser.parse_args(argv)
    try:
        source, path = chapter_file(arguments.chapter, arguments.source)
        result = load_test(
            arguments.students, path, source, arguments.limit, arguments.save_every, arguments.think
        )
    except (ValueError, FileNotFoundError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(result))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {arguments.out}")
    if arguments.out.resolve() == RESULT:
        from book.classroom import page

        page.update()
    return 0 if is_good(result) else 1


if __name__ == "__main__":
    sys.exit(main())
