"""How long a slider takes from the key press to the new picture on the screen: every explorer, `interact`, and a plain sine.

    python tests/bench/sliders.py [--moves 25] [--only NAME ..]

In one JupyterLab, in one Chromium, in one kernel, in turn: the explorer; the same table and drawing through ipywidgets' `interact`
with the inline backend (a new figure each move, as most notebooks do it); and an explorer whose picture is one sine. The clock is
the browser's: from the keydown event to the first animation frame that shows a loaded picture other than the one before.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from datetime import date
from pathlib import Path

import nbformat
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from driver import SHOW, Notebook

from book.explore import ALL
from book.run_tests import find_chromium
from conftest import FLAGS, Lab

OUT = ROOT / "tests" / "bench" / "results" / "sliders.json"
SETUP = """
import matplotlib.pyplot as plt, ipywidgets as widgets, numpy as np
from ipywidgets import interact
from book.explore import ALL, Explorer, Linear
from book.figures import style
style()

def by_interact(e):
    def redraw(**knobs):
        fig = plt.figure(figsize=e.size)
        e.draw(e.setup(fig), e.table(**knobs))
        plt.show()
    sliders = {}
    for k in e.knobs:
        kind = widgets.Dropdown if k.choice else widgets.SelectionSlider
        options = list(zip(k.labels, k.stops))
        sliders[k.name] = kind(options=options, value=k.default, description=k.label, layout={"width": "100%"})
    interact(redraw, **sliders)

def sine_line(fig):
    return fig.subplots(subplot_kw={"xlim": (0, 1), "ylim": (-1, 1)}).plot([], [])[0]

x = np.linspace(0, 1, 500)
sine = Explorer("sine", lambda turns: {"y": np.sin(turns * x)}, sine_line, lambda line, t: line.set_data(x, t["y"]),
                lambda t: f"{t['y'].max():.2f}", knobs=[Linear("turns", 1, 60, 20)], title="A sine", alt="A sine against time.")
"""
# One key press, timed in the page. Resolves with milliseconds, or rejects after 10 s without a new picture.
ARM = """(node) => {
  // an explorer counts its moves; a picture of `interact` has a new address
  const state = () => {
    const moves = node.querySelector(".explorer-picture")?.dataset.moves, image = node.querySelector(".jp-OutputArea img");
    return moves ?? (image && image.complete && image.naturalWidth > 0 ? image.src : undefined);
  };
  const before = state();
  window.pressed = new Promise((done, fail) => {
    document.addEventListener("keydown", (event) => {
      const start = performance.now();
      const look = () => {
        const now = state();
        if (now !== undefined && now !== before) done(performance.now() - start);
        else if (performance.now() - start > 10000) fail(new Error("no new picture within 10 s"));
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    }, {once: true, capture: true});
  });
}"""


def timed(page, node, moves):
    """Milliseconds of `moves` key presses on the cell's first slider, back and forth, after three to warm up."""
    handle = node.wait_for_selector(".noUi-handle")
    node.wait_for_selector(".jp-OutputArea img, .explorer-picture[data-moves]")
    out, key = [], "ArrowRight"
    for i in range(moves + 3):
        low, high, now = (float(handle.get_attribute(f"aria-value{name}")) for name in ("min", "max", "now"))
        key = "ArrowLeft" if now >= high else "ArrowRight" if now <= low else key
        handle.focus()
        page.evaluate(ARM, node)
        page.keyboard.press(key)
        took = page.evaluate("() => window.pressed")
        out.append(took) if i >= 3 else None
        page.wait_for_timeout(
            30
        )  # the kernel's answer to this move has ended: moves do not wait for each other
    return out


def summary(times):
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return {"median_ms": round(statistics.median(times), 1), "p95_ms": round(p95, 1), "moves": len(times)}


def measure(names, moves):
    cells = [
        SETUP,
        "sine",
        *(text for n in names for text in (f"ALL[{n!r}]", f"by_interact(ALL[{n!r}])")),
        "sine",
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "book"
        folder.mkdir()
        code = [nbformat.v4.new_code_cell(source) for source in cells]
        nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=kernel), folder / "bench.ipynb")
        lab = Lab(folder)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=find_chromium(), headless=True, args=FLAGS
                )
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                page.set_default_timeout(60_000)
                notebook = Notebook(page, lab, "bench.ipynb")
                if not notebook.run_all():
                    raise RuntimeError("a cell of the benchmark failed")

                def cell(index):
                    return page.evaluate_handle(SHOW, index).as_element()

                rows, sines = [], timed(page, cell(1), moves)
                for i, name in enumerate(names):
                    row = {"explorer": name, "knob": next(k.name for k in ALL[name].knobs if not k.choice)}
                    row["ours"] = summary(timed(page, cell(2 + 2 * i), moves))
                    row["interact"] = summary(timed(page, cell(3 + 2 * i), moves))
                    sines += (now := timed(page, cell(1), moves))
                    row["sine_beside"] = summary(now)  # the same minute on the same machine
                    row["of_interact"] = round(row["ours"]["median_ms"] / row["interact"]["median_ms"], 3)
                    row["of_sine"] = round(row["ours"]["median_ms"] / row["sine_beside"]["median_ms"], 2)
                    rows.append(row)
                    print(line(row), flush=True)
                version = browser.version
                browser.close()
        finally:
            lab.stop()
    return rows, summary(sines), version


def line(row):
    ours, other = row["ours"], row["interact"]
    return (
        f"{row['explorer']:<24}{ours['median_ms']:>8.0f}{ours['p95_ms']:>8.0f}{other['median_ms']:>12.0f}"
        f"{other['p95_ms']:>8.0f}{row['of_interact']:>10.2f}{row['of_sine']:>9.2f}"
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moves", type=int, default=25, help="timed key presses per explorer and way")
    parser.add_argument(
        "--only", nargs="*", help="names of explorers (all when none is given); then nothing is written"
    )
    args = parser.parse_args(argv)
    names = [n for n in ALL if not args.only or n in args.only]
    load = os.getloadavg()[0]
    print(
        f"{'ms, key to picture':<24}{'median':>8}{'p95':>8}{'interact':>12}{'p95':>8}{'of it':>10}{'of sine':>9}"
    )
    rows, sine, chromium = measure(names, args.moves)
    result = {
        "provenance": {
            "date": date.today().isoformat(),
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "load_before": round(load, 2),
            "chromium": chromium,
            "python": platform.python_version(),
            "goal": "median at most 1.5 of the sine's, and at most 0.25 of interact's or 1.2 of the sine's, whichever is larger",
            "command": "python tests/bench/sliders.py",
        },
        "sine": sine,
        "rows": rows,
    }
    slow = [
        r["explorer"] for r in rows if r["of_sine"] > 1.5 or (r["of_interact"] > 0.25 and r["of_sine"] > 1.2)
    ]
    print(f"sine: {sine['median_ms']:.0f} ms. Goal missed by: {', '.join(slow) or 'none'}")
    if not args.only:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written to {OUT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
