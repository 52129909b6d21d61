"""The picture of an explorer in a running notebook: the still part is sent once, the moving one at every move, as SVG."""

from pathlib import Path

import anywidget
import traitlets


class Picture(anywidget.AnyWidget):
    """svg: the whole picture. state: {"moving": SVG for its last group, "says": the line under it}, in one message."""

    _esm = Path(__file__).with_name("picture.js").read_text(encoding="utf-8")
    title = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    svg = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
