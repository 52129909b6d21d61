"""Knobs: every one is a list of stops with a label in real units, so slider, player and tests agree on what can be set."""

import math
from dataclasses import dataclass

from book.figures import thousands

LABEL_WIDTH = "11em"


@dataclass(frozen=True)
class Knob:
    """One setting. Made by Linear, Log, Stops or Choice below."""

    name: str  # the keyword of the table function
    stops: tuple
    default: object
    label: str  # what the reader sees beside it
    labels: tuple  # one for each stop
    choice: bool = False

    def __post_init__(self):
        if self.default not in self.stops:
            raise ValueError(
                f"knob {self.name!r}: default {self.default!r} is not among its stops {self.stops}"
            )
        if len(set(self.stops)) != len(self.stops) or len(set(self.labels)) != len(self.stops):
            raise ValueError(f"knob {self.name!r}: stops or labels repeat: {self.labels}")

    def check(self, value):
        """The value, if the table can be asked for it: a choice exactly, a number within the range."""
        if self.choice:
            if value not in self.stops:
                raise ValueError(
                    f"knob {self.name!r} = {value!r}: expected one of {', '.join(map(str, self.stops))}"
                )
        elif isinstance(value, str) or not self.stops[0] <= value <= self.stops[-1]:
            unit = f"{self.labels[0]} to {self.labels[-1]}"
            raise ValueError(f"knob {self.name!r} = {value!r}: expected a number in its range, {unit}")
        return value

    def nearest(self, value):
        """Index of the stop next to `value`."""
        if self.choice:
            return self.stops.index(self.check(value))
        return min(range(len(self.stops)), key=lambda i: abs(self.stops[i] - value))

    def value(self, control):
        return self.stops[control.index]

    def thin(self, most, keep=None):
        """Indices of at most `most` stops, evenly spread, with both ends and `keep` (the default) among them."""
        if len(self.stops) <= most or self.choice:
            return list(range(len(self.stops)))
        last, home = len(self.stops) - 1, self.nearest(self.default if keep is None else keep)
        picked = sorted({round(i * last / (most - 1)) for i in range(most)})
        if home not in picked:
            inner = range(1, len(picked) - 1) if 0 < home < last else range(len(picked))
            picked[min(inner, key=lambda i: abs(picked[i] - home))] = home
        return sorted(picked)

    def control(self, widgets):
        """The ipywidget: a slider over the stops; buttons for a short choice, a menu for a long one."""
        options = list(zip(self.labels, range(len(self.stops)), strict=True))
        keys = {
            "options": options,
            "index": self.stops.index(self.default),
            "description": self.label,
            "style": {"description_width": LABEL_WIDTH},
            "layout": {"width": "100%"},
        }
        if not self.choice:
            return widgets.SelectionSlider(**keys)
        if len(self.stops) > 5:
            return widgets.Dropdown(**keys | {"layout": {"max_width": "100%", "width": "30em"}})
        keys = {"index": keys["index"], "style": {"button_width": "auto"}}
        told = [
            f"{self.label}: {label}" for label in self.labels
        ]  # the label stands beside the buttons, in no relation to them
        return widgets.ToggleButtons(options=options, tooltips=told, **keys)


def _slider(name, stops, default, label, unit, text):
    text = text or thousands
    labels = tuple(f"{text(stop)} {unit}".strip() for stop in stops)
    return Knob(name, tuple(stops), default, label or name.replace("_", " "), labels)


def Linear(name, low, high, default, step=1, *, unit="", label="", text=None):
    """low, low + step .. high. Whole numbers stay whole. `text(value)` overrides how a stop is written."""
    count = round((high - low) / step)
    whole = all(isinstance(x, int) for x in (low, high, default, step))
    stops = [low + i * step if whole else round(low + i * step, 10) for i in range(count + 1)]
    return _slider(name, stops, default, label, unit, text)


def Log(name, low, high, default, *, per_decade=10, also=(), unit="", label="", text=None, whole=False):
    """Stops at equal ratios from low to high, rounded to three digits.

    The default and each number in `also` (a real model's width, say) take the place of the stop next to them.
    """
    if not 0 < low < high:
        raise ValueError(f"Log knob {name!r}: range {low} to {high}: expected 0 < low < high")
    count = max(2, round(math.log10(high / low) * per_decade))
    raw = [low * (high / low) ** (i / count) for i in range(count + 1)]
    tidy = [_three_digits(x) for x in raw]
    tidy = [round(x) for x in tidy] if whole else tidy
    tidy[0], tidy[-1] = low, high
    kept = {low, high}
    for wanted in (default, *also):
        if not low <= wanted <= high:
            raise ValueError(f"Log knob {name!r}: {wanted} is outside its range {low} to {high}")
        if wanted not in tidy:
            free = [i for i, stop in enumerate(tidy) if stop not in kept]
            tidy[min(free, key=lambda i: abs(math.log(tidy[i] / wanted)))] = wanted
        kept.add(wanted)
    return _slider(name, sorted(set(tidy)), default, label, unit, text)


def Stops(name, values, default, *, unit="", label="", text=None):
    """A slider over just these numbers, rising: powers of two, real models' head counts."""
    if list(values) != sorted(values):
        raise ValueError(f"Stops knob {name!r}: {values}: expected rising numbers (for names use Choice)")
    return _slider(name, values, default, label, unit, text)


def Choice(name, options, default=None, *, label=""):
    """One of several names. `options` is a list, or a dict value -> label."""
    values = tuple(options)
    labels = tuple(options[v] for v in values) if isinstance(options, dict) else tuple(map(str, values))
    first = values[0] if default is None else default
    return Knob(name, values, first, label or name.replace("_", " "), labels, choice=True)


def _three_digits(x):
    return float(f"{x:.3g}")
