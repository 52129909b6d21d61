"""What a reader does with a notebook in JupyterLab, step by step: open, run all, find the explorers, move their knobs."""

import time

OPEN = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  while (!app.shell.currentWidget?.sessionContext) await new Promise(done => setTimeout(done, 50));
  const panel = app.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session?.kernel?.info;
}"""
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell, i) => ({
  index: i,
  outputs: cell.model.type === "code" ? cell.model.outputs.toJSON() : [],
})).map(({index, outputs}) => ({
  index,
  explorer: outputs.map(o => o.metadata?.explorer?.name).find(name => name) ?? null,
  error: outputs.filter(o => o.output_type === "error").map(o => `${o.ename}: ${o.evalue}`)[0] ?? null,
}))"""
SHOW = """async (index) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = index;
  await notebook.scrollToItem(index, "smart");
  const cell = notebook.widgets[index];
  cell.node.querySelector(".jp-Cell-outputWrapper")?.scrollIntoView({block: "start"});
  return cell.node;
}"""
# Is the moving part of a picture on the screen, element for element, the one that these strings would draw?
SHOWS = """([picture, moving]) => {
  const want = document.createElementNS("http://www.w3.org/2000/svg", "g");
  want.innerHTML = moving;
  return picture.lastElementChild.isEqualNode(want);
}"""


def shows(page, picture, explorer, at):
    return page.evaluate(SHOWS, [picture, "".join(explorer.moving(**at))])


class Notebook:
    def __init__(self, page, lab, name):
        self.page, self.lab, self.name = page, lab, name
        page.goto(lab.address(name), timeout=90_000)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
        page.evaluate(OPEN)

    def run_all(self):
        """Run every cell as the menu does; returns whether all of them ended well."""
        return self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def cells(self):
        return self.page.evaluate(CELLS)

    def show(self, index, explorer):
        """Scroll a cell into view; returns its Shown explorer once the slider stands there."""
        node = self.page.evaluate_handle(SHOW, index).as_element()
        node.wait_for_selector(".explorer-picture[data-moves]", timeout=30_000)
        return Shown(self.page, node, explorer)


class Shown:
    """An explorer on the screen. `at` are the settings that the test expects it to stand at."""

    def __init__(self, page, node, explorer):
        self.page, self.node, self.explorer = page, node, explorer
        self.at = dict(explorer.defaults)
        self.sliders = [k for k in explorer.knobs if not k.choice]
        self.choices = [k for k in explorer.knobs if k.choice]

    def pictures(self):
        return self.node.query_selector_all(".jp-OutputArea .explorer-picture, .jp-OutputArea img")

    def handle(self, knob):
        return self.node.query_selector_all(".noUi-handle")[self.sliders.index(knob)]

    def readout(self, knob):
        return self.node.query_selector_all(".widget-readout")[self.sliders.index(knob)].inner_text()

    def says(self):
        return self.node.query_selector("[role=status]").inner_text()

    def wait_for_picture(self, seconds=10):
        """Until the picture is, element for element, what the explorer draws at `at`; the line under it then says the same."""
        words = self.explorer.text(**self.at).split()
        until = time.monotonic() + seconds
        while (
            not shows(self.page, self.pictures()[0], self.explorer, self.at) or self.says().split() != words
        ):
            assert time.monotonic() < until, (
                f"{self.explorer.name}: after {seconds} s not yet {self.at}; it says {self.says()!r}"
            )
            time.sleep(0.02)

    def press(self, knob, key):
        """One key on a focused slider; `at` follows as the key promises."""
        last, now = len(knob.stops) - 1, knob.stops.index(self.at[knob.name])
        to = {"Home": 0, "End": last, "ArrowRight": min(now + 1, last), "ArrowLeft": max(now - 1, 0)}[key]
        self.handle(knob).focus()
        self.page.keyboard.press(key)
        self.at[knob.name] = knob.stops[to]
        return to != now

    def drag(self, knob, *fractions):
        """Take the handle with the mouse, along the track and back, in many small quick moves; `at` is read off the slider."""
        handle = self.handle(knob)
        handle.scroll_into_view_if_needed()
        box = handle.bounding_box()
        track = handle.evaluate(
            "h => { const b = h.closest('.noUi-base').getBoundingClientRect(); return [b.left, b.width]; }"
        )
        y = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + box["width"] / 2, y)
        self.page.mouse.down()
        for fraction in fractions:
            self.page.mouse.move(track[0] + fraction * track[1], y, steps=25)
        self.page.mouse.up()
        self.at[knob.name] = knob.stops[knob.labels.index(self.readout(knob))]

    def choose(self, knob, value):
        """Click a button, or pick from the menu."""
        label = knob.labels[knob.stops.index(value)]
        if len(knob.stops) > 5:
            menus = [k for k in self.choices if len(k.stops) > 5]
            self.node.query_selector_all("select")[menus.index(knob)].select_option(label=label)
        else:
            groups = [k for k in self.choices if len(k.stops) <= 5]
            group = self.node.query_selector_all(".widget-toggle-buttons")[groups.index(knob)]
            group.query_selector_all("button")[knob.stops.index(value)].click()
        self.at[knob.name] = value

    def reset(self):
        self.node.query_selector("button:has-text('Reset')").click()
        self.at = dict(self.explorer.defaults)

    def count_moves(self, n):
        """n single steps by key, back and forth, each waited for on the screen."""
        knob = self.sliders[0]
        for i in range(n):
            key = "ArrowRight" if (i // 8) % 2 == 0 else "ArrowLeft"
            before = self.readout(knob)
            if not self.press(knob, key):
                self.press(knob, "ArrowLeft" if key == "ArrowRight" else "ArrowRight")
            self.page.wait_for_function(
                "([node, i, before]) => node.querySelectorAll('.widget-readout')[i].innerText !== before",
                arg=[self.node, 0, before],
            )
        self.wait_for_picture()
