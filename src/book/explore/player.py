"""The same explorer where no kernel runs: its states drawn ahead, in one piece of HTML that moves from file://.

`html(explorer)` is a <figure> with its own few lines of script: no library, no request. The still part of the picture is there once;
of every state only the moving parts are kept, each different one once, as the SVG that the live picture gets too.
"""

import itertools
import json
import math
from html import escape as safe

MOST_STATES = 900  # of one picture: every slider is thinned until they fit


def stops(explorer, at=None):
    """knob name -> indices of the stops that the player offers, for each knob in `explorer.player`.

    Stops that an explorer names are kept; the others are thinned evenly, the longest first, both ends and the start among them.
    """
    begin = explorer.settings(**(at or {}))
    offered, free = {}, []
    for knob in explorer.knobs:
        if knob.name in explorer.player:
            named = explorer.player[knob.name]
            picked = range(len(knob.stops)) if named is None else [knob.stops.index(stop) for stop in named]
            offered[knob.name] = sorted({*picked, knob.nearest(begin[knob.name])})
            free += [knob] if named is None and not knob.choice else []

    def states():
        return math.prod(map(len, offered.values()))

    while states() > MOST_STATES and free:
        knob = max(free, key=lambda k: len(offered[k.name]))
        fewer = len(offered[knob.name]) - 1
        if fewer < 3:
            break
        offered[knob.name] = knob.thin(fewer, begin[knob.name])
    if states() > MOST_STATES:
        raise ValueError(
            f"Explorer {explorer.name!r}: its player has {states()} states, at most {MOST_STATES}: name fewer knobs or stops"
        )
    return {name: offered[name] for name in explorer.player}


def states(explorer, at=None):
    """[(settings, list of SVG strings, text)] in the player's order, the last knob of `explorer.player` fastest; then the presets."""
    knobs = {k.name: k for k in explorer.knobs}
    offered = stops(explorer, at)
    wanted = [
        dict(at or {}) | {name: knobs[name].stops[i] for name, i in zip(offered, picked, strict=True)}
        for picked in itertools.product(*offered.values())
    ]
    wanted += list(explorer.presets.values())
    return [(settings, explorer.moving(**settings), explorer.text(**settings)) for settings in wanted]


def html(explorer, at=None, key=None, drawn=None):
    """The player as HTML to paste into a page.

    at   the settings to start from; knobs that do not move here stay there (the defaults where not named)
    key  makes the ids unique where one page shows an explorer twice
    drawn  states(explorer, at), if the caller has them already
    """
    uid = f"player-{key or explorer.name}"
    knobs = {k.name: k for k in explorer.knobs}
    begin = explorer.settings(**(at or {}))
    offered = stops(explorer, at)
    drawn = drawn or states(explorer, at)
    parts = list(dict.fromkeys(part for _, state, _ in drawn for part in state))  # each is stored once
    where = {part: i for i, part in enumerate(parts)}
    start = [picked.index(knobs[name].nearest(begin[name])) for name, picked in offered.items()]
    home = 0
    for picked, i in zip(offered.values(), start, strict=True):
        home = home * len(picked) + i
    data = {
        "sizes": [len(picked) for picked in offered.values()],
        "start": start,
        "labels": [[knobs[name].labels[i] for i in picked] for name, picked in offered.items()],
        "parts": parts,
        "states": [[where[part] for part in state] for _, state, _ in drawn],
        "texts": [text for _, _, text in drawn],
        "presets": [_preset(explorer, at, offered, knobs) for at in explorer.presets.values()],
        "alt": explorer.alt,
    }
    island = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    rows = "\n".join(_control(uid, i, knobs[name], offered[name], start[i]) for i, name in enumerate(offered))
    still = [
        f"{k.label} {k.labels[k.nearest(begin[k.name])]}" for k in explorer.knobs if k.name not in offered
    ]
    note = (
        f'<p class="still">Fixed here, free in the notebook: {safe("; ".join(still))}.</p>' if still else ""
    )
    buttons = "".join(
        f'<button type="button" data-lm-suppress-shortcuts="true">{safe(label)}</button>'
        for label in ("Reset", *explorer.presets)
    )
    return f"""<figure class="explorer-player" id="{uid}" data-explorer="{safe(explorer.name)}">
<style>{STYLE}</style>
<figcaption>{safe(explorer.title)}</figcaption>
{explorer.svg(**begin)}
<p class="says" role="status">{safe(drawn[home][2])}</p>
<div class="knobs">
{rows}
</div>
<p class="buttons">{buttons}</p>
{note}
<script type="application/json">{island}</script>
<script>{SCRIPT.replace("UID", json.dumps(uid))}</script>
</figure>"""


def _preset(explorer, at, offered, knobs):
    """Where the controls stand after the preset: on its stop, or on the nearest one that is offered."""
    want = explorer.settings(**at)
    out = []
    for name, picked in offered.items():
        i = knobs[name].nearest(want[name])
        out.append(min(range(len(picked)), key=lambda j: abs(picked[j] - i)))
    return out


def _control(uid, i, knob, picked, start):
    """A range input or, for a choice, a menu; both under a label, both reachable by keyboard."""
    at, name = f"{uid}-{i}", safe(knob.label)
    labels = [safe(knob.labels[j]) for j in picked]
    if knob.choice:
        options = "".join(
            f'<option value="{j}"{" selected" * (j == start)}>{label}</option>'
            for j, label in enumerate(labels)
        )
        field = f'<select id="{at}" data-lm-suppress-shortcuts="true">{options}</select><output></output>'
    else:
        # JupyterLab keeps the arrow keys from a range input unless the input itself carries this attribute.
        field = (
            f'<input type="range" id="{at}" min="0" max="{len(picked) - 1}" step="1" value="{start}" '
            f'aria-valuetext="{labels[start]}" data-lm-suppress-shortcuts="true">'
            f'<output for="{at}">{labels[start]}</output>'
        )
    return f'<label for="{at}">{name}</label>{field}'


STYLE = """
.explorer-player{max-width:900px;margin:1em 0;padding:.6em .8em;border:1px solid #8888;border-radius:6px;text-align:left}
.explorer-player figcaption{font-weight:600;margin-bottom:.4em;text-align:left}
.explorer-player .explorer-picture{width:100%;height:auto;background:#fff;border-radius:4px;display:block;margin:0}
.explorer-player .says{margin:.5em 0;min-height:2.8em;line-height:1.4}
.explorer-player .knobs{display:grid;grid-template-columns:max-content minmax(6em,1fr) minmax(5.5em,max-content);gap:.4em .8em;align-items:center}
.explorer-player input,.explorer-player select{width:100%;font:inherit}
.explorer-player output{font-variant-numeric:tabular-nums}
.explorer-player .buttons{margin:.5em 0 0;display:flex;flex-wrap:wrap;gap:.5em}
.explorer-player button{font:inherit;padding:.15em .8em}
.explorer-player .still{font-size:.85em;opacity:.8;margin:.5em 0 0}
@media(max-width:480px){.explorer-player .knobs{grid-template-columns:1fr max-content}.explorer-player label{grid-column:1/-1}}
"""

SCRIPT = """
(function () {
  var root = document.getElementById(UID), data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  var picture = root.querySelector(".explorer-picture"), says = root.querySelector(".says");
  var controls = root.querySelectorAll("input,select"), outputs = root.querySelectorAll("output");
  function draw(at) {
    picture.lastElementChild.innerHTML = data.states[at].map(function (i) { return data.parts[i]; }).join("");
    picture.setAttribute("aria-label", data.alt + " " + data.texts[at]);
    says.textContent = data.texts[at];
  }
  function label() {
    var at = 0;
    controls.forEach(function (control, i) {
      var j = Number(control.value), words = data.labels[i][j];
      at = at * data.sizes[i] + j;
      if (control.tagName === "INPUT") { outputs[i].textContent = words; control.setAttribute("aria-valuetext", words); }
    });
    return at;
  }
  function set(places) {
    controls.forEach(function (control, i) { control.value = places[i]; });
    return label();
  }
  controls.forEach(function (control) {
    control.addEventListener("input", function () { draw(label()); });
    control.addEventListener("keydown", function (event) { event.stopPropagation(); });  /* a slide deck must not turn */
  });
  root.querySelectorAll("button").forEach(function (button, i) {
    button.addEventListener("click", function () {
      if (i === 0) return draw(set(data.start));
      set(data.presets[i - 1]);
      draw(data.states.length - data.presets.length + i - 1);
    });
  });
})();
"""
