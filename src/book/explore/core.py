"""Explorer: a picture that follows its knobs. `book.explore` shows a whole one to copy."""

import functools
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from book.explore.knobs import LABEL_WIDTH, Knob
from book.explore.scene import Recorder, svg
from book.figures import HOUSE

NOT_RUN = "This picture is not running yet.\nClick into the cell above it and press Shift+Enter."
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_shown = {}  # name -> the Explorer whose widgets are alive in this kernel; held, so that a forgotten one still gets closed


@dataclass(frozen=True)
class Fact:
    """At the settings `at`, the table's `key` is `value` within `tol`, relative. `key` may also be a function of the table."""

    at: dict
    key: object
    value: object
    tol: float = 0.0
    source: str = ""

    def got(self, table):
        return self.key(table) if callable(self.key) else table[self.key]


@dataclass(eq=False)
class Explorer:
    """table(**knobs) -> dict of numbers; setup(figure) -> what moves; draw(moving, table) moves it; say(table) -> one line.

    The numbers come from `table` alone and `draw` gets nothing else, so picture, text line and table cannot disagree.
    The figure is made once. What `setup` returns (a namespace, dict, list or single artist; nested is fine) is redrawn on
    every move over a background that is kept; everything else never changes. An Axes in it is redrawn whole: slower, for
    pictures whose limits must follow. What a browser gets is SVG (see `scene`); the PNG is the still for pages without scripts.

    name     unique in the book, lower case with hyphens
    title    one line above the picture: what question it answers
    alt      one sentence for those who cannot see it: what is drawn, along which axes
    player   the knobs that still move where no kernel runs, as names, or as a dict name -> the stops offered there (None: all, or
             as many as fit); the first knob and the first choice by default
    presets  label -> {knob: value}: a button each, for what the text beside the picture asks the reader to try
    facts    Fact(at, key, value, tol): values of the literature that tests look up in the table
    """

    name: str
    table_function: object
    setup: object
    draw: object
    say: object
    knobs: list
    title: str
    alt: str
    facts: list = field(default_factory=list)
    player: object = ()
    presets: dict = field(default_factory=dict)
    size: tuple = (9.0, 4.5)

    def __post_init__(self):
        names = [knob.name for knob in self.knobs]
        if not names or len(set(names)) != len(names) or not all(isinstance(k, Knob) for k in self.knobs):
            raise ValueError(
                f"Explorer {self.name!r}: knobs {names}: expected at least one Knob, each with its own name"
            )
        if not self.player:
            sliders = [k.name for k in self.knobs if not k.choice]
            choices = [k.name for k in self.knobs if k.choice]
            self.player = sliders[:1] + choices[:1] or names[:1]
        if not isinstance(self.player, Mapping):
            self.player = dict.fromkeys(self.player)
        strangers = set(self.player) - set(names)
        for knob in self.knobs:
            odd = set(self.player.get(knob.name) or ()) - set(knob.stops)
            strangers |= {f"{knob.name} = {stop!r}" for stop in odd}
        if strangers:
            raise ValueError(
                f"Explorer {self.name!r}: player has {sorted(strangers)}: expected knobs among {names}, with stops of theirs"
            )
        for at in self.presets.values():
            self.settings(**at)
        self._stage = None
        self._widget = None
        self._hold = False

    # ---- numbers -------------------------------------------------------------------------------------------------
    @property
    def defaults(self):
        return {knob.name: knob.default for knob in self.knobs}

    def settings(self, **knobs):
        """The defaults with `knobs` over them; a wrong name or a value outside the knob's range is an error."""
        unknown = set(knobs) - {knob.name for knob in self.knobs}
        if unknown:
            raise ValueError(
                f"Explorer {self.name!r} has no knob {sorted(unknown)}; it has {list(self.defaults)}"
            )
        return {knob.name: knob.check(knobs.get(knob.name, knob.default)) for knob in self.knobs}

    def table(self, **knobs):
        """The numbers behind the picture at these settings (the rest at their defaults)."""
        return self.table_function(**self.settings(**knobs))

    def text(self, **knobs):
        """The line under the picture at these settings."""
        return self.say(self.table(**knobs))

    # ---- picture -------------------------------------------------------------------------------------------------
    def frame(self, **knobs):
        """The picture at these settings, as PNG bytes. Needs no kernel."""
        return self._drawn(self.table(**knobs), _Stage.png)

    def empty(self):
        """The axes without anything on them and what to do, as PNG bytes: for a page on which the cell was not run yet."""
        return self._drawn(self.table(), _Stage.empty_png)

    def moving(self, **knobs):
        """What moves, at these settings: a list of SVG strings, to be laid over `still`."""
        return self._drawn(self.table(**knobs), _Stage.markup)

    def svg(self, **knobs):
        """The whole picture at these settings as one <svg>, its moving part in the last group."""
        moving, stage = "".join(self.moving(**knobs)), self._stage
        return svg(
            (stage.figure.bbox.width, stage.figure.bbox.height),
            stage.still,
            moving,
            self.alt,
            self.text(**knobs),
        )

    def _drawn(self, table, how):
        with mpl.rc_context(HOUSE):  # a reader's own rcParams must not change the picture
            if self._stage is None:
                self._stage = _Stage(self.setup, self.size)
                # Laid out for the defaults, whatever is asked for first: a frame never depends on the frames before it.
                self.draw(self._stage.moving, self.table())
                self._stage.freeze()
            self.draw(self._stage.moving, table)
            return how(self._stage)

    @property
    def artists(self):
        """The artists that move, in drawing order (empty before the first frame)."""
        return list(self._stage.artists) if self._stage else []

    # ---- widget --------------------------------------------------------------------------------------------------
    def show(self, **knobs):
        """Set the knobs (the rest to their defaults) and return the explorer, for the last line of a cell."""
        values = self.settings(**knobs)
        self._live()
        self._set(values)
        return self

    def reset(self):
        """Back to the defaults."""
        self._set(self.defaults)

    @property
    def values(self):
        """Where the knobs stand now."""
        return (
            {k.name: k.value(c) for k, c in zip(self.knobs, self._controls)}
            if self._widget
            else self.defaults
        )

    def close(self):
        """Take the widgets and the figure out of the kernel's memory; the next display makes new ones."""
        if self._widget is not None:
            for widget in [*self._controls, *self._buttons, self._picture, *self._boxes]:
                for part in (
                    getattr(widget, "style", None),
                    widget.layout,
                    widget,
                ):  # models of their own, each
                    if part is not None:
                        part.close()
            self._widget = None
            _shown.pop(self.name, None)
        self._stage = None

    def _live(self):
        if self._widget is None:
            earlier = _shown.get(self.name)
            if earlier is not None and earlier is not self:
                earlier.close()  # the cell that defines an explorer was run again: keep one, not forty
            self._build()
            _shown[self.name] = self
        return self._widget

    def _build(self):
        import ipywidgets as widgets  # here, so that tables and pictures need no widget library

        from book.explore.live import Picture

        wide = int(self.size[0] * 100)
        self._controls = [knob.control(widgets) for knob in self.knobs]
        self._reset = widgets.Button(
            description="Reset", tooltip="All knobs to their first values", icon="undo"
        )
        self._buttons = [self._reset]
        for label, at in self.presets.items():
            button = widgets.Button(description=label, layout={"width": "auto"})
            button.on_click(lambda button, at=at: self._set(self.defaults | at))
            self._buttons.append(button)
        self._picture = Picture(
            svg=self.svg(), title=self.title, alt=self.alt, layout={"max_width": f"{wide}px"}
        )
        rows = [_row(widgets, *pair) for pair in zip(self.knobs, self._controls, strict=True)]
        buttons = widgets.HBox(self._buttons, layout={"flex_flow": "row wrap"})
        knobs = widgets.VBox([*rows, buttons], layout={"max_width": f"{wide}px"})
        self._widget = widgets.VBox([self._picture, knobs])
        self._boxes = [
            buttons,
            knobs,
            self._widget,
            *(b for r in rows if r not in self._controls for b in (*r.children[:1], r)),
        ]
        for control in self._controls:
            control.observe(lambda change: self._moved(), "index")
        self._reset.on_click(lambda button: self.reset())
        self._moved()

    def _set(self, values):
        if self._widget is None:
            return
        self._hold = True  # several knobs change: draw once, at the end
        try:
            for knob, control in zip(self.knobs, self._controls):
                control.index = knob.nearest(values[knob.name])
        finally:
            self._hold = False
        self._moved()

    def _moved(self):
        # Drawn before this returns, on purpose: the browser sends a slider's next value only when the kernel has
        # answered this one, and keeps just the latest. Drawing later would answer early and let moves queue up.
        if self._hold:
            return
        table = self.table(**self.values)
        self._picture.state = {"moving": "".join(self._drawn(table, _Stage.markup)), "says": self.say(table)}

    def __repr__(self):
        return f"Explorer {self.name}: {self.title}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        """The slider where a kernel runs, the picture where none does, and a fixed line for what can show neither."""
        data = {"text/plain": repr(self)}
        if _in_kernel():
            widget = self._live()
            data[WIDGET_VIEW] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        data["image/png"] = self.frame(**self.values)
        return data, {
            "image/png": {"alt": f"{self.alt} {self.text(**self.values)}"},
            "explorer": {
                "name": self.name,
                "at": self.values,
            },  # what the site and the slides build the player from
        }


def _row(widgets, knob, control):
    """Buttons get their label here: their own would stand on a line above them, out of line with the sliders'."""
    if control.description:
        return control
    label = widgets.HTML(
        f'<div style="text-align:right">{escape(knob.label)}</div>', layout={"width": LABEL_WIDTH}
    )
    return widgets.HBox([label, control])


class _Stage:
    """A figure whose still parts are drawn once; `png()` draws the moving ones over them."""

    def __init__(self, setup, size):
        self.figure = Figure(
            figsize=size, dpi=100, layout="constrained"
        )  # no pyplot: nothing to close, nothing to leak
        self.canvas = FigureCanvasAgg(self.figure)
        self.moving = setup(self.figure)
        found = {id(a): a for a in _flatten(self.moving)}.values()
        if not found:
            raise ValueError(
                "setup returned no matplotlib artist: expected the artists that draw() will move"
            )
        axes_order = {id(ax): (ax.get_zorder(), i) for i, ax in enumerate(self.figure.axes)}
        self.artists = sorted(found, key=lambda a: (axes_order.get(id(a.axes), (0, 0)), a.get_zorder()))

    def freeze(self):
        """Lay out once, with the moving parts in it (they need their room), then keep a picture of the rest."""
        self.canvas.draw()
        self.figure.set_layout_engine("none")
        for artist in self.artists:
            artist.set_animated(True)

    @functools.cached_property
    def background(self):
        """The still parts as pixels."""
        self.canvas.draw()
        return self.canvas.copy_from_bbox(self.figure.bbox)

    @functools.cached_property
    def still(self):
        """The still parts as SVG."""
        self.recorder = Recorder(self.figure)
        self.figure.draw(self.recorder)
        return "".join(self.recorder.markup())

    def markup(self):
        self.still  # noqa: B018  the recorder
        for artist in self.artists:
            artist.draw(self.recorder)
        return self.recorder.markup()

    def png(self):
        self.canvas.restore_region(self.background)
        for artist in self.artists:
            self.figure.draw_artist(artist)
        return self._encoded()

    def empty_png(self):
        self.canvas.restore_region(self.background)
        box = {"fc": "white", "ec": "#888888", "boxstyle": "round,pad=0.6"}
        note = self.figure.text(0.5, 0.5, NOT_RUN, ha="center", va="center", fontsize=15, bbox=box)
        self.figure.draw_artist(note)
        note.remove()
        return self._encoded()

    def _encoded(self):
        out = io.BytesIO()
        rgba = np.asarray(self.canvas.buffer_rgba())
        Image.fromarray(rgba).convert("RGB").save(out, "png", optimize=False, compress_level=6)
        return out.getvalue()


def _flatten(thing):
    if isinstance(thing, Artist):
        return [thing]
    if isinstance(thing, SimpleNamespace):
        thing = vars(thing)
    if isinstance(thing, Mapping):
        thing = thing.values()
    if isinstance(thing, (str, bytes)) or not hasattr(thing, "__iter__"):
        return []
    return [artist for part in thing for artist in _flatten(part)]


def _in_kernel():
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


def not_finite(artist):
    """Why this artist cannot be seen as meant (NaN or infinity in what it draws), or None. For tests."""
    if isinstance(artist, Axes):
        return next(filter(None, map(not_finite, artist.get_children())), None)
    if hasattr(artist, "get_text") and "nan" in artist.get_text().lower().split():
        return f"text {artist.get_text()!r}"
    for name in ("get_xydata", "get_offsets", "get_bbox", "get_array", "get_xy"):
        if hasattr(artist, name):
            data = getattr(artist, name)()
            data = data if data is None else np.asarray(getattr(data, "extents", data), dtype=float)
            if data is not None and data.size and not np.isfinite(data).all():
                return f"{type(artist).__name__}.{name}() has {data[~np.isfinite(data)][0]}"
    return None


def has_nan(value):
    """Is there a NaN anywhere in this table? (Infinity may be the lesson.) For tests."""
    if isinstance(value, Mapping):
        return any(has_nan(v) for v in value.values())
    if isinstance(value, str) or value is None:
        return False
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isnan(value).any())
    if isinstance(value, (list, tuple)):
        return any(has_nan(v) for v in value)
    return isinstance(value, (float, np.floating)) and math.isnan(value)
