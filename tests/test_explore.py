"""Every explorer over the corners and a grid of its knobs, its published values, and what it leaves behind in a kernel."""

import base64
import dataclasses
import html
import itertools
import json
import random
import re
import subprocess
import sys

import nbclient
import nbformat
import numpy as np
import pytest

from book.explore import ALL, Choice, Explorer, Linear, Log, Stops, player
from book.explore.core import WIDGET_VIEW, has_nan, not_finite
from book.figures import binary_size, thousands

MOST = 40  # settings drawn per explorer and sweep
NAMES = list(ALL)


def corners(explorer):
    """Both ends of every slider with every choice; a fixed sample where that is more than MOST."""
    ends = [k.stops if k.choice else (k.stops[0], k.stops[-1]) for k in explorer.knobs]
    return sample([dict(zip(explorer.defaults, picked, strict=True)) for picked in itertools.product(*ends)])


def grid(explorer):
    """Five stops of every slider, every choice; a fixed sample."""
    stops = [[k.stops[i] for i in k.thin(5)] for k in explorer.knobs]
    rng = random.Random(5)
    if np.prod([len(s) for s in stops]) > 50 * MOST:
        return [
            {n: rng.choice(s) for n, s in zip(explorer.defaults, stops, strict=True)} for _ in range(MOST)
        ]
    return sample([dict(zip(explorer.defaults, picked, strict=True)) for picked in itertools.product(*stops)])


def sample(settings):
    return settings if len(settings) <= MOST else random.Random(5).sample(settings, MOST)


@pytest.fixture(params=NAMES)
def explorer(request):
    return ALL[request.param]


# ---- every explorer of the book ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [corners, grid])
def test_no_nan_anywhere(explorer, settings):
    for at in settings(explorer):
        table = explorer.table(**at)
        assert not has_nan(table), at
        explorer._drawn(table, lambda stage: None)
        for artist in explorer.artists:
            assert not not_finite(artist), f"{at}: {not_finite(artist)}"
        said = explorer.say(table)
        assert said.strip() and not re.search(r"\bnan\b", said, re.IGNORECASE), f"{at}: {said}"


def test_published_values(explorer):
    assert len({str(sorted(f.at.items())) for f in explorer.facts}) >= 2, "a fact at two settings at least"
    for fact in explorer.facts:
        for knob in explorer.knobs:
            if knob.name in fact.at:
                assert fact.at[knob.name] in knob.stops, f"{knob.name} has no stop at {fact.at[knob.name]}"
        got = fact.got(explorer.table(**fact.at))
        if isinstance(fact.value, str | bool):
            assert got == fact.value, fact
        else:
            size = np.abs(fact.value).max()
            assert np.abs(np.subtract(got, fact.value)).max() <= fact.tol * size, (
                f"{fact}: the table has {got}"
            )


def test_every_knob_does_something(explorer):
    for knob in explorer.knobs:
        settings = [explorer.defaults, *corners(explorer)]
        for at in settings:
            stops = [at | {knob.name: stop} for stop in (knob.stops[0], knob.default, knob.stops[-1])]
            seen = {("".join(explorer.moving(**stop)), explorer.text(**stop)) for stop in stops}
            if len(seen) > 1:
                break
        else:
            pytest.fail(f"picture and text are the same wherever {knob.name!r} stands")


def test_a_frame_does_not_depend_on_the_frames_before(explorer):
    """What moves is moved completely: after a walk through the corners a picture equals that of a new figure."""
    for at in corners(explorer):
        explorer.moving(**at)
    for at in (explorer.defaults, corners(explorer)[0], corners(explorer)[-1]):
        fresh = dataclasses.replace(explorer)
        assert fresh.svg(**at) == explorer.svg(**at), at
    assert fresh.frame(**at) == explorer.frame(**at), at


def test_words_around_the_picture(explorer):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", explorer.name)
    assert len(explorer.title) <= 110 and len(explorer.alt) >= 40, (
        "a title of one line, an alt that says what is drawn"
    )
    said = {explorer.text(**at) for at in [explorer.defaults, *corners(explorer)]}
    assert len(said) > 1, "the line under the picture never changes"
    assert max(map(len, said)) <= 240, max(said, key=len)


def test_the_player_shows_the_live_pictures(explorer):
    """Element for element and word for word, and it asks for nothing from outside."""
    drawn = player.states(explorer)
    page = player.html(explorer, drawn=drawn)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    presets = len(explorer.presets)
    assert np.prod(data["sizes"]) + presets == len(data["states"]) == len(drawn)
    assert len(drawn) - presets <= player.MOST_STATES and len(page) < 3_000_000
    home = int(np.ravel_multi_index(data["start"], data["sizes"]))
    for i in sorted({0, home, *range(len(drawn) - presets - 1, len(drawn))}):
        at = drawn[i][0]
        assert [data["parts"][part] for part in data["states"][i]] == explorer.moving(**at), at
        assert data["texts"][i] == explorer.text(**at)
    assert explorer.svg() in page
    assert {k: v for k, v in drawn[home][0].items() if k in explorer.player} == {
        k: explorer.defaults[k] for k in explorer.player
    }
    assert html.escape(explorer.alt) in page
    outside = re.sub(r'xmlns="[^"]*"|href="data:[^"]*"', "", page)
    assert not re.search(r"""(src|href)=["']|https?://|@import|url\(""", outside)


def test_loading_them_all_leaves_torch_alone():
    code = "import sys; from book.explore import ALL; len(ALL); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_the_explorers_that_the_book_promises():
    assert NAMES, "book.explore found no explorer"
    assert len(NAMES) == len(set(NAMES))


# ---- the machinery, on an explorer made up here ------------------------------------------------------------------------


def square(name="square", **more):
    def setup(fig):
        ax = fig.subplots()
        ax.set(xlim=(0, 10), ylim=(0, 100))
        return {"dot": ax.plot([], [], "o")[0], "bars": ax.bar([2, 4], [1, 1])}

    def draw(moving, t):
        moving["dot"].set_data([t["x"]], [t["y"]])
        for bar in moving["bars"]:
            bar.set_height(t["y"])

    keys = {
        "title": "The square of x",
        "alt": "x squared against x: a dot and two bars.",
        "knobs": [Linear("x", 0, 10, 3, unit="m"), Choice("how", {"a": "as is", "b": "<b>doubled</b>"})],
    }

    def table(x, how):
        return {"x": x, "y": x * x * (2 if how == "b" else 1) / 2}

    return Explorer(name, table, setup, draw, lambda t: f"y is {t['y']:g} < 101", **keys | more)


def test_table_checks_its_knobs():
    e = square()
    assert e.table(x=4) == {"x": 4, "y": 8.0}
    with pytest.raises(ValueError, match=r"no knob \['z'\]; it has \['x', 'how'\]"):
        e.table(z=1)
    with pytest.raises(ValueError, match="'x' = 11: expected a number in its range, 0 m to 10 m"):
        e.table(x=11)
    with pytest.raises(ValueError, match="'how' = 'c': expected one of a, b"):
        e.frame(how="c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knobs": []}, "at least one Knob"),
        ({"knobs": [Linear("x", 0, 1, 0), Linear("x", 0, 2, 0)]}, "its own name"),
        ({"player": ("x", "y")}, "expected knobs among"),
        ({"player": {"x": [3, 11]}}, "x = 11.*with stops of theirs"),
        ({"presets": {"far": {"x": 11}}}, "'x' = 11"),
    ],
)
def test_a_wrong_explorer_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        square(**change)


def test_knobs():
    assert Linear("t", 0, 1, 0.5, 0.25).stops == (0, 0.25, 0.5, 0.75, 1)
    assert all(isinstance(x, int) for x in Linear("t", 1, 64, 8).stops)
    log = Log("d", 128, 16384, 4096, also=[5120], unit="wide", whole=True)
    assert {128, 4096, 5120, 16384} <= set(log.stops) and list(log.stops) == sorted(log.stops)
    assert log.labels[0] == "128 wide" and all(isinstance(x, int) for x in log.stops)
    assert log.stops[log.nearest(5000)] == 5120
    thin = [log.stops[i] for i in log.thin(7)]
    assert len(thin) == 7 and {128, 4096, 16384} <= set(thin)
    assert 5120 in [log.stops[i] for i in log.thin(7, keep=5120)]
    with pytest.raises(ValueError, match="outside its range"):
        Log("d", 1, 10, 5, also=[11])
    with pytest.raises(ValueError, match="expected rising numbers"):
        Stops("n", [2, 1], 1)
    with pytest.raises(ValueError, match="default 3 is not among its stops"):
        Stops("n", [1, 2], 3)


def test_the_numbers_in_labels():
    assert [thousands(x) for x in (3, 12345.0, 0.00123, 1234.56, float("inf"), "x")] == [
        *("3", "12,345", "0.00123", "1,235", "inf", "x")
    ]
    assert [binary_size(x) for x in (512, 131072, 343597383680, 70272)] == [
        "512 B",
        "128 KiB",
        "320 GiB",
        "68.6 KiB",
    ]


def test_widget_follows_its_knobs_and_resets():
    e = square()
    e.show(x=5, how="b")
    assert e.values == {"x": 5, "how": "b"}

    def shows(**at):
        return e._picture.state == {"moving": "".join(e.moving(**at)), "says": e.text(**at)}

    assert shows(x=5, how="b") and e._picture.state["says"] == "y is 25 < 101"
    e._controls[0].index = 10
    assert shows(x=10, how="b")
    e._reset.click()
    assert e.values == {"x": 3, "how": "a"} and shows()
    with pytest.raises(ValueError, match="'x' = 99"):
        e.show(x=99)
    e.close()


def test_moving_several_knobs_draws_once():
    e = square()
    e.show()
    drawn, draw = [], e.draw
    e.draw = lambda moving, t: (drawn.append(t), draw(moving, t))
    e.show(x=7, how="b")
    assert [t["x"] for t in drawn] == [7]
    e.close()


def test_player_starts_where_it_was_shown_and_escapes_labels():
    e = square(player=("x",))
    page = player.html(e, at={"x": 8, "how": "b"})
    assert "how &lt;b&gt;doubled&lt;/b&gt;" in page and "<b>doubled" not in page
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    assert data["start"] == [8] and data["texts"][8] == e.text(x=8, how="b")


def test_not_finite_sees_what_cannot_be_drawn():
    e = square()
    e.frame()
    dot, *bars = (
        e.artists if hasattr(e.artists[0], "set_data") else sorted(e.artists, key=lambda a: a.zorder)[::-1]
    )
    assert not any(map(not_finite, e.artists))
    dot.set_data([1], [float("nan")])
    assert "nan" in not_finite(dot)
    bars[0].set_height(float("inf"))
    assert "inf" in not_finite(bars[0])
    assert has_nan({"a": [1, (2, float("nan"))]}) and not has_nan({"a": [1, float("inf"), "nan"]})


CELLS = [
    """
import base64
from book.explore.ch01_rmsnorm import scale_explorer as e
e""",
    "e.show(dtype='fp16')",
    """
import dataclasses, gc, resource
from pathlib import Path
from IPython.display import display
def megabytes():
    return int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize() / 2**20
start = megabytes()
for i in range(200):
    e._controls[0].index = i % 41
print(megabytes() - start)""",
    """
for i in range(20):  # the cell that defines an explorer, run again and again
    again = dataclasses.replace(e)
    display(again)
from ipywidgets.widgets.widget import _instances
print(megabytes() - start, len(_instances))""",
]


@pytest.fixture(scope="module")
def kernel_outputs():
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    nb = nbformat.v4.new_notebook(cells=cells)
    arguments = ["--IPKernelApp.log_level=ERROR"]
    nbclient.NotebookClient(nb, timeout=120, kernel_name="python3", extra_arguments=arguments).execute()
    return [cell.outputs for cell in nb.cells]


def test_a_cell_shows_slider_picture_and_a_fixed_line(kernel_outputs):
    e = ALL["rmsnorm-scale"]
    for (output,), at in zip(kernel_outputs[:2], ({}, {"dtype": "fp16"}), strict=True):
        assert output.data["text/plain"] == f"Explorer rmsnorm-scale: {e.title}"
        assert output.data[WIDGET_VIEW]["model_id"]
        assert base64.b64decode(output.data["image/png"]) == e.frame(**at)
        assert output.metadata["explorer"] == {"name": e.name, "at": e.settings(**at)}
        assert output.metadata["image/png"]["alt"].startswith(e.alt)
    models = {output.data[WIDGET_VIEW]["model_id"] for (output,) in kernel_outputs[:2]}
    assert len(models) == 1, "showing it again is the same widget, not another one"


def test_moves_and_reruns_do_not_fill_the_kernel(kernel_outputs):
    moves = float(kernel_outputs[2][0].text)
    printed = next(o.text for o in kernel_outputs[3] if o.output_type == "stream")
    reruns, widgets = printed.split()
    assert moves < 10, f"{moves:.0f} MB after 200 moves"
    assert float(reruns) < 30, f"{reruns} MB after 20 re-runs"
    assert int(widgets) < 60, f"{widgets} widget models after 20 re-runs of one explorer"
