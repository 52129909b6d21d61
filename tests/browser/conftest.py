"""A real Chromium and a real JupyterLab on this machine's loopback, with copies of the chapters in a folder of their own."""

import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from book.copies import START, chapter_copy, start_page
from book.lab import lab_command, lab_environment
from book.paths import chapters
from book.run_tests import find_chromium

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
FLAGS += ["--disable-component-update", "--disable-sync", "--disable-features=PaintHolding"]


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), headless=True, args=FLAGS)
        yield browser
        browser.close()


class Lab:
    """JupyterLab over `folder`: its address, and the memory of the kernels it runs."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.token = secrets.token_hex(16)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = lab_command(
            [
                "--no-browser",
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}",
                "--LabApp.expose_app_in_browser=True",  # so that a test can wait for "run all" to end
                "--LabApp.terminals_enabled=False",
            ],
            folder=self.folder,
        )
        # Settings, workspaces and recent files of whoever runs the tests stay as they are.
        home = self.folder.parent / "home"
        environment = lab_environment(os.environ) | {"OMP_NUM_THREADS": "1", "BOOK_DEVICE": "cpu"}
        environment |= {name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR")}
        environment |= {
            name: str(home / name) for name in ("JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR", "JUPYTER_DATA_DIR")
        }
        self.log = self.folder.parent / "lab.log"
        with self.log.open("wb") as log:  # the child keeps its own handle
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )
        self._wait()

    def _wait(self):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                self.api("status")
                return
            except OSError:
                time.sleep(0.2)
        self.stop()
        raise RuntimeError("JupyterLab did not start:\n" + self.log.read_text()[-3000:])

    def api(self, path, method="GET"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def address(self, name):
        return f"http://127.0.0.1:{self.port}/lab/tree/{name}?reset&token={self.token}"

    def kernel_pid(self, name):
        kernel = next(s["kernel"]["id"] for s in self.api("sessions") if s["path"] == name)
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if f"kernel-{kernel}.json".encode() in entry.read_bytes():
                    return int(entry.parent.name)
            except OSError:
                continue  # a process that ended while we looked
        raise LookupError(f"no process runs the kernel of {name}")

    def kernel_megabytes(self, name):
        pages = Path(f"/proc/{self.kernel_pid(name)}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close_kernels(self):
        for session in self.api("sessions"):
            self.api(f"sessions/{session['id']}", "DELETE")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab") / "book"
    folder.mkdir()
    for path in chapters(suffix=".ipynb"):
        (folder / path.name).write_text(chapter_copy(path), encoding="utf-8")
    (folder / START).write_text(start_page(), encoding="utf-8")
    server = Lab(folder)
    yield server
    server.stop()


# What any JupyterLab page says, whatever the notebook: nothing that a reader sees.
NOISE = ("favicon", "ERR_INTERNET_DISCONNECTED")


@pytest.fixture
def page(chromium):
    """A tab that remembers what went wrong in it: `page.problems`."""
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    tab = context.new_page()
    tab.set_default_timeout(30_000)
    tab.problems = []
    tab.on("pageerror", lambda error: tab.problems.append(f"uncaught: {error}"))
    tab.on(
        "console",
        lambda message: (
            tab.problems.append(f"{message.type}: {message.text} {message.location.get('url', '')}")
            if message.type == "error" and not any(noise in message.text for noise in NOISE)
            else None
        ),
    )
    yield tab
    context.close()
