"""What the processes of a hub hold. Linux tells the proportional set size (PSS): shared pages are counted once in a sum."""

import re
import statistics
import threading
import time
from pathlib import Path

import psutil

from book.classroom import hub

MIB = 2**20
COLUMNS = tuple(f"{kind}_{what}" for kind in ("server", "kernel") for what in ("pss", "rss", "cpu"))


def held(process):
    """(PSS, RSS) of a process in bytes; where PSS is not told (macOS, a process that just ended) it is the RSS."""
    try:
        rss = process.memory_info().rss
    except psutil.Error:
        return 0, 0
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[1]) * 1024, rss
    except (OSError, TypeError):
        return rss, rss


def kind_of(process):
    """hub, proxy, server or kernel, by the command line."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return "other"
    for mark, kind in (
        ("ipykernel_launcher", "kernel"),
        ("book.classroom.server", "server"),
        ("configurable-http-proxy", "proxy"),
        ("-m jupyterhub", "hub"),
    ):
        if mark in line:
            return kind
    return "other"


def cpu_seconds(process):
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def owner_of(process):
    try:
        return process.environ().get("JUPYTERHUB_USER")
    except psutil.Error:
        return None


def by_student(run):
    """MiB held now: per student server and kernel (PSS, RSS), and the hub, the proxy and the sum of all PSS.

    With them the CPU seconds that each server and kernel has used up to now.
    """
    students, shared, total = {}, {"hub": 0.0, "proxy": 0.0, "other": 0.0}, 0.0
    for process in hub.processes(run):
        pss, rss = (value / MIB for value in held(process))
        total += pss
        kind, name = kind_of(process), owner_of(process)
        if kind in ("server", "kernel") and name:
            row = students.setdefault(name, dict.fromkeys(COLUMNS, 0.0))
            row[f"{kind}_cpu"] += cpu_seconds(process)
            row[f"{kind}_pss"] += pss
            row[f"{kind}_rss"] += rss
        else:
            shared[kind if kind in shared else "other"] += pss
    return {"students": students, **shared, "total_pss": total}


class Peak:
    """Watches in the background: the largest sum of PSS (every few seconds), the least memory available (twice a second)."""

    def __init__(self, run, every=5.0):
        self.run, self.every = run, every
        self.total_mib, self.available_mib, self.load = 0.0, float("inf"), []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        due, ended = 0.0, False
        while not ended:
            ended = self._end.wait(0.5)
            self.available_mib = min(self.available_mib, psutil.virtual_memory().available / MIB)
            self.load.append(psutil.cpu_percent())
            if time.monotonic() >= due:
                total = sum(held(process)[0] for process in hub.processes(self.run)) / MIB
                self.total_mib = max(self.total_mib, total)
                due = time.monotonic() + self.every

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    @property
    def cpu_percent(self):
        return statistics.fmean(self.load) if self.load else 0.0
