"""The sliders of the book. A whole explorer, to copy:

    from types import SimpleNamespace
    import numpy as np
    from book.explore import Choice, Explorer, Fact, Log
    from book.figures import COLORS

    def table(turns, wave):                                    # the numbers, and nothing but numbers: no figure here
        x = np.linspace(0, 1, 200)
        y = np.sin(2 * np.pi * turns * x)
        y = y if wave == "sine" else np.sign(y)
        return {"turns": turns, "x": x, "y": y, "largest": float(y.max())}

    def setup(fig):                                            # once: all that stays; returns what moves
        ax = fig.subplots()
        ax.set(xlim=(0, 1), ylim=(-1.1, 1.1), xlabel="time (s)", ylabel="height (m)")
        return SimpleNamespace(line=ax.plot([], [], color=COLORS["q"])[0], note=ax.text(0.02, 0.9, ""))

    def draw(moving, t):                                       # every move: set data, never create artists
        moving.line.set_data(t["x"], t["y"])
        moving.note.set_text(f"{t['turns']:g} Hz")

    def say(t):                                                # the line under the picture, from the table
        return f"At {t['turns']:g} Hz the wave reaches {t['largest']:.2f} m."

    wave = Explorer(
        "wave", table, setup, draw, say,
        title="How high does the wave get?", alt="Height in metres against time in seconds, one line.",
        knobs=[Log("turns", 1, 100, 2, unit="Hz", label="frequency"), Choice("wave", ["sine", "square"])],
        player=("turns", "wave"), facts=[Fact({"wave": "square"}, "largest", 1.0), Fact({"turns": 1}, "largest", 1.0, 1e-3)],
    )

It lives at module level of `book/explore/chNN_topic.py`; making it costs nothing until it is shown. In a chapter:

    from book.explore.ch01_rmsnorm import scale_explorer       # one cell
    scale_explorer                                             # or scale_explorer.show(scale=300, dtype="fp16")

Rules that tests hold every explorer to (tests/test_explore.py):
- every number drawn or said comes from the table; at the corners and on a grid of the knobs no NaN in table or picture (infinity
  may stand in the table where it is the lesson, never in an artist: clip it and say so);
- at two settings at least the table shows a published value: `facts`, and two different settings give two pictures;
- no torch on import, and none in the table where numpy or plain Python will do: a move should cost about a millisecond;
- fixed axis limits, made for the corners. Bars: make them in setup (`ax.bar` / `ax.barh`), then set_height / set_width in draw.
  An array of cells: ax.imshow / ax.pcolormesh in setup, set_data / set_array in draw. Text costs 0.1 ms a glyph: say the rest in `say`.
  What must rescale (limits, tick labels) goes into the moving things as an Axes, or `ax.xaxis`: whole, and slower.

Knobs: Linear(name, low, high, default, step), Log(name, low, high, default), Stops(name, values, default), Choice(name, options).
All take label= and the sliders unit=; text=function writes a stop; Log(also=[4096]) puts real numbers among its rounded stops. `explorer.table(**knobs)`, `.text(**knobs)`, `.frame(**knobs)` (PNG
bytes) work without a kernel; `player.html(explorer)` is the same pictures in a self-contained page (`book.explore.player`).
"""

import importlib
import pkgutil
from collections.abc import Mapping

from book.explore.core import Explorer, Fact
from book.explore.knobs import Choice, Knob, Linear, Log, Stops

__all__ = ["ALL", "Choice", "Explorer", "Fact", "Knob", "Linear", "Log", "Stops"]


class _All(Mapping):
    """name -> Explorer of every module chNN_*.py here, in chapter order. Imported on first use."""

    def __init__(self):
        self._found = None

    def _explorers(self):
        if self._found is None:
            found = {}
            for module in sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("ch")):
                for thing in vars(importlib.import_module(f"{__name__}.{module}")).values():
                    if isinstance(thing, Explorer) and found.setdefault(thing.name, thing) is not thing:
                        raise ValueError(
                            f"two explorers are named {thing.name!r}; the second is in {module}.py"
                        )
            self._found = found
        return self._found

    def __getitem__(self, name):
        return self._explorers()[name]

    def __iter__(self):
        return iter(self._explorers())

    def __len__(self):
        return len(self._explorers())


ALL = _All()
