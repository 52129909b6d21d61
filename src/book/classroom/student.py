"""One simulated student: logs in, gets a server, runs a chapter cell by cell, saves, and checks what was saved.

It speaks to the hub as a browser does (login form, OAuth redirects, cookies, XSRF token, contents API, kernel websocket), from
127.0.0.1 to 127.0.0.1 only.
"""

import copy
import json
import re
import struct
import time
import uuid
from urllib.parse import urljoin

import nbformat
import requests
import websocket


class StudentError(RuntimeError):
    """What a student would see as a failure: the step, and the answer that came."""


def _parse(frame):
    """A message of the kernel websocket: a JSON text, or JSON and buffers in one binary frame (sliders' pictures)."""
    if isinstance(frame, str):
        return json.loads(frame)
    (parts,) = struct.unpack("!i", frame[:4])
    offsets = struct.unpack(f"!{parts}i", frame[4 : 4 * (parts + 1)])
    end = offsets[1] if parts > 1 else len(frame)
    return json.loads(frame[offsets[0] : end])


def cells_of(notebook):
    """What must survive a save: id, source, outputs and execution count of every cell."""
    notebook = nbformat.from_dict(notebook)
    return {
        cell["id"]: (
            cell["source"],
            json.dumps(cell.get("outputs"), sort_keys=True),
            cell.get("execution_count"),
        )
        for cell in notebook.cells
    }


def lost_cells(saved, found):
    """How many cells of the notebook `saved` are missing from `found`, or differ there."""
    there = cells_of(found)
    return sum(there.get(name) != cell for name, cell in cells_of(saved).items())


class Student:
    def __init__(self, url, name, password, path, deadline):
        if not url.startswith("http://127.0.0.1:"):
            raise ValueError(f"{url}: the load test only ever speaks to 127.0.0.1")
        self.url, self.name, self.password, self.path, self.deadline = url, name, password, path, deadline
        self.base = f"{url}/user/{name}"
        self.http = requests.Session()
        self.socket = self.kernel = self.notebook = self.saved = None
        self.seconds, self.saves, self.cells_run = {}, 0, 0

    # ---- the browser's side -------------------------------------------------------------------------------------

    def _left(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise StudentError("the time limit of the load test is over")
        return left

    def _ask(self, method, url, expect=(200,), **arguments):
        arguments.setdefault("timeout", min(120, self._left()))
        if method != "GET" and "headers" not in arguments:
            arguments["headers"] = {"X-XSRFToken": self._xsrf()}
        try:
            answer = self.http.request(method, url, **arguments)
        except requests.RequestException as error:
            raise StudentError(f"{method} {url}: {error}") from error
        if answer.status_code not in expect:
            raise StudentError(f"{method} {url}: HTTP {answer.status_code} {answer.text[:300]!r}")
        return answer

    def _xsrf(self, path=None):
        path = path or f"/user/{self.name}/"
        for cookie in self.http.cookies:
            if cookie.name == "_xsrf" and cookie.path == path:
                return cookie.value
        raise StudentError(f"no XSRF cookie for {path}: the page was not loaded")

    def log_in(self):
        begin = time.monotonic()
        self._ask("GET", f"{self.url}/hub/login")
        form = {"username": self.name, "password": self.password, "_xsrf": self._xsrf("/hub/")}
        answer = self._ask(
            "POST", f"{self.url}/hub/login?next=/hub/home", headers={"X-XSRFToken": form["_xsrf"]}, data=form
        )
        if "/hub/login" in answer.url:
            raise StudentError("the hub refused the password")
        self.seconds["login"] = time.monotonic() - begin

    def get_server(self):
        """Ask for a server and follow the progress page, as often as a patient person would."""
        begin = time.monotonic()
        while True:
            self._ask("GET", f"{self.url}/hub/spawn/{self.name}", expect=(200, 424, 429, 503))
            # The OAuth round trip brings the cookies of the student's own server; 424 or 503 while it is gone
            # and the hub does not know it yet.
            if (
                self._is_ready()
                and self._ask("GET", f"{self.base}/lab", expect=(200, 424, 503)).status_code == 200
            ):
                break
            time.sleep(min(1, self._left()))
        self.seconds["server"] = time.monotonic() - begin
        self._load_lab()

    def _load_lab(self):
        """What JupyterLab's page asks for first: its scripts, the extensions, every setting, the folder, the kernels."""
        page = self._ask("GET", f"{self.base}/lab").text
        config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
        scripts = re.findall(r'<script[^>]* src="([^"]+)"', page)
        for extension in config.get("federated_extensions", []):
            scripts.append(f"{config['fullLabextensionsUrl']}/{extension['name']}/{extension['load']}")
        for script in scripts:
            self._ask("GET", urljoin(f"{self.base}/lab", script))
        for part in ("lab/api/settings", "api/kernelspecs", "api/contents", "api/sessions", "api/me"):
            self._ask("GET", f"{self.base}/{part}", headers={"X-XSRFToken": self._xsrf()})

    def _is_ready(self):
        url = f"{self.url}/hub/api/users/{self.name}/server/progress"
        try:
            with self.http.get(url, stream=True, timeout=min(300, self._left())) as answer:
                if answer.status_code != 200:
                    return False
                for line in answer.iter_lines():
                    event = json.loads(line[5:]) if line.startswith(b"data:") else {}
                    if event.get("failed"):
                        raise StudentError(f"the server did not start: {event.get('message')}")
                    if event.get("ready"):
                        return True
        except requests.RequestException:
            pass
        return False

    # ---- the chapter --------------------------------------------------------------------------------------------

    def open_chapter(self):
        begin = time.monotonic()
        self.notebook = self.read()
        body = {"path": self.path, "name": self.path, "type": "notebook", "kernel": {"name": "python3"}}
        session = self._ask("POST", f"{self.base}/api/sessions", expect=(201,), json=body).json()
        self.kernel = session["kernel"]["id"]
        self.connect()
        self.seconds["kernel"] = time.monotonic() - begin

    def connect(self):
        url = f"{self.base}/api/kernels/{self.kernel}/channels?session_id={uuid.uuid4().hex}"
        cookies = requests.cookies.get_cookie_header(
            self.http.cookies, requests.Request("GET", url).prepare()
        )
        try:
            self.socket = websocket.create_connection(
                url.replace("http://", "ws://"),
                cookie=cookies,
                origin=self.url,
                timeout=min(120, self._left()),
            )
        except (websocket.WebSocketException, OSError) as error:
            raise StudentError(f"websocket of the kernel: {error}") from error

    def execute(self, code, history=True):
        """Run `code`; returns (outputs, execution_count, status) as JupyterLab would store them."""
        request = uuid.uuid4().hex
        header = {"msg_id": request, "msg_type": "execute_request", "username": "", "session": request}
        content = {"code": code, "silent": False, "store_history": history, "allow_stdin": False}
        message = {"header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}}
        message |= {"content": content, "channel": "shell", "buffers": []}
        outputs, count, status, waiting = [], None, None, {"idle", "reply"}
        try:
            self.socket.send(json.dumps(message))
            while waiting:
                self.socket.settimeout(min(300, self._left()))
                answer = _parse(self.socket.recv())
                if answer["parent_header"].get("msg_id") != request:
                    continue
                kind, content = answer["header"]["msg_type"], answer["content"]
                if kind == "status" and content["execution_state"] == "idle":
                    waiting.discard("idle")
                elif kind == "execute_reply":
                    waiting.discard("reply")
                    count, status = content.get("execution_count"), content["status"]
                elif kind == "clear_output":
                    outputs = []
                elif kind in ("stream", "display_data", "execute_result", "error"):
                    last = outputs[-1] if outputs else {}
                    if kind == "stream" and last.get("name") == content["name"]:
                        last["text"] += content["text"]
                    else:
                        outputs.append(dict(nbformat.v4.output_from_msg(answer)))
        except (websocket.WebSocketException, OSError, ValueError) as error:
            raise StudentError(f"lost the kernel while a cell ran: {type(error).__name__} {error}") from error
        return outputs, count, status

    def run_chapter(self, save_every=3, begin=None, think=0.0):
        """Every code cell in order, a save after every `save_every` of them and at the end."""
        begin = time.monotonic() if begin is None else begin
        cells = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]
        start = time.monotonic()
        for number, cell in enumerate(cells, 1):
            if not cell["source"].startswith("%%"):
                cell["source"] += (
                    f"\n# {self.name} was here, cell {number}"  # a student's own edit, to be found again
                )
            outputs, count, status = self.execute(cell["source"])
            cell["outputs"], cell["execution_count"] = outputs, count
            if status != "ok":
                error = next((o for o in outputs if o["output_type"] == "error"), {})
                raise StudentError(f"code cell {number}: {error.get('ename')}: {error.get('evalue')}")
            self.cells_run = number
            if number == 1:
                self.seconds["first_result"] = time.monotonic() - begin
                self.seconds["kernel_cpu_to_first_result"] = self._kernel_cpu()
            if number % save_every == 0 or number == len(cells):
                self.save()
            time.sleep(min(think, self._left()))
        self.seconds["chapter"] = time.monotonic() - start

    def _kernel_cpu(self):
        """CPU seconds of the kernel up to now; leaves no trace in the student's history."""
        outputs, _, _ = self.execute("print(__import__('time').process_time())", history=False)
        return float(outputs[0]["text"])

    # ---- saved work ---------------------------------------------------------------------------------------------

    def read(self):
        url = f"{self.base}/api/contents/{self.path}"
        return self._ask("GET", url, params={"content": 1, "type": "notebook"}).json()["content"]

    def save(self):
        """Save, and remember what the server has acknowledged: from here on it must not get lost."""
        notebook = copy.deepcopy(self.notebook)
        body = {"type": "notebook", "format": "json", "content": notebook}
        begin = time.monotonic()
        self._ask("PUT", f"{self.base}/api/contents/{self.path}", expect=(200, 201), json=body)
        self.seconds["slowest_save"] = max(self.seconds.get("slowest_save", 0.0), time.monotonic() - begin)
        self.saved, self.saves = notebook, self.saves + 1

    def lost(self, file):
        """Saved cells missing or changed in the file on disk, and in what the server gives out."""
        on_disk = nbformat.read(file, as_version=4)
        return max(lost_cells(self.saved, on_disk), lost_cells(self.saved, self.read()))

    def save_until_cut(self):
        """Save one version after the other until the server is gone. Returns the number of saves acknowledged here."""
        before = self.saves
        for version in range(1, 501):
            self.notebook["metadata"]["version"] = version
            try:
                self.save()
            except StudentError:
                break
        return self.saves - before

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.http.close()
