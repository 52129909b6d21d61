"""The same explorer where no kernel runs: its pictures drawn ahead, in one piece of HTML that moves from file://.

`html(explorer)` is a <figure> with its own few lines of script: no library, no request. The frames are the live pictures, pixel
for pixel (`explorer.frame`), kept as lossless WebP because that is a third of the size.
"""

import base64
import io
import itertools
import json
from html import escape as safe

from PIL import Image

MOST = 31  # frames of one slider
MOST_SQUARE = 11  # per slider where two move together
MOST_FRAMES = 121


def webp(png):
    """PNG bytes -> the same pixels as lossless WebP."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).save(out, "webp", lossless=True, quality=30, method=2)
    return out.getvalue()


def stops(explorer, at=None):
    """knob name -> indices of the stops that the player offers, for each knob in `explorer.player`."""
    begin = explorer.settings(**(at or {}))
    knobs = {k.name: k for k in explorer.knobs}
    moving = [knobs[name] for name in explorer.player]
    fixed = 1  # frames that the choices alone need
    for knob in moving:
        fixed *= len(knob.stops) if knob.choice else 1
    sliders = sum(not knob.choice for knob in moving)
    most = {0: 1, 1: min(MOST, MOST_FRAMES // fixed), 2: MOST_SQUARE}[sliders]
    return {knob.name: knob.thin(most, begin[knob.name]) for knob in moving}


def frames(explorer, at=None):
    """[(settings, webp bytes, text)] in the player's order: the last knob of `explorer.player` moves fastest."""
    knobs = {k.name: k for k in explorer.knobs}
    offered = stops(explorer, at)
    out = []
    for picked in itertools.product(*offered.values()):
        settings = dict(at or {}) | {
            name: knobs[name].stops[i] for name, i in zip(offered, picked, strict=True)
        }
        table = explorer.table(**settings)
        out.append((settings, webp(explorer._frame(table)), explorer.say(table)))
    return out


def html(explorer, at=None, key=None, drawn=None):
    """The player as HTML to paste into a page.

    at   the settings to start from; knobs that do not move here stay there (the defaults where not named)
    key  makes the ids unique where one page shows an explorer twice
    drawn  frames(explorer, at), if the caller has them already
    """
    uid = f"player-{key or explorer.name}"
    knobs = {k.name: k for k in explorer.knobs}
    begin = explorer.settings(**(at or {}))
    offered = stops(explorer, at)
    drawn = drawn or frames(explorer, at)
    pictures = list(dict.fromkeys(picture for _, picture, _ in drawn))  # equal frames are stored once
    where = {picture: i for i, picture in enumerate(pictures)}
    start = [picked.index(knobs[name].nearest(begin[name])) for name, picked in offered.items()]
    home = 0
    for picked, i in zip(offered.values(), start, strict=True):
        home = home * len(picked) + i
    data = {
        "sizes": [len(picked) for picked in offered.values()],
        "start": start,
        "labels": [[knobs[name].labels[i] for i in picked] for name, picked in offered.items()],
        "images": ["data:image/webp;base64," + base64.b64encode(p).decode() for p in pictures],
        "frames": [where[picture] for _, picture, _ in drawn],
        "texts": [text for _, _, text in drawn],
        "alt": explorer.alt,
    }
    island = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    rows = "\n".join(_control(uid, i, knobs[name], offered[name], start[i]) for i, name in enumerate(offered))
    still = [
        f"{k.label} {k.labels[k.nearest(begin[k.name])]}" for k in explorer.knobs if k.name not in offered
    ]
    note = (
        f'<p class="still">Fixed here, free in the notebook: {safe("; ".join(still))}.</p>' if still else ""
    )
    return f"""<figure class="explorer-player" id="{uid}" data-explorer="{safe(explorer.name)}">
<style>{STYLE}</style>
<figcaption>{safe(explorer.title)}</figcaption>
<img src="{data["images"][data["frames"][home]]}" alt="{safe(explorer.alt + " " + drawn[home][2])}">
<p class="says" role="status">{safe(drawn[home][2])}</p>
<div class="knobs">
{rows}
<button type="button" data-lm-suppress-shortcuts="true">Reset</button>
</div>
{note}
<script type="application/json">{island}</script>
<script>{SCRIPT.replace("UID", json.dumps(uid))}</script>
</figure>"""


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
.explorer-player img{width:100%;height:auto;background:#fff;border-radius:4px;display:block;margin:0}
.explorer-player .says{margin:.5em 0;min-height:2.8em;line-height:1.4}
.explorer-player .knobs{display:grid;grid-template-columns:max-content minmax(6em,1fr) minmax(5.5em,max-content);gap:.4em .8em;align-items:center}
.explorer-player input,.explorer-player select{width:100%;font:inherit}
.explorer-player output{font-variant-numeric:tabular-nums}
.explorer-player button{font:inherit;grid-column:1;padding:.15em .8em}
.explorer-player .still{font-size:.85em;opacity:.8;margin:.5em 0 0}
@media(max-width:480px){.explorer-player .knobs{grid-template-columns:1fr max-content}.explorer-player label{grid-column:1/-1}}
"""

SCRIPT = """
(function () {
  var root = document.getElementById(UID), data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  var image = root.querySelector("img"), says = root.querySelector(".says");
  var controls = root.querySelectorAll("input,select"), outputs = root.querySelectorAll("output");
  function show() {
    var at = 0;
    controls.forEach(function (control, i) {
      var j = Number(control.value), label = data.labels[i][j];
      at = at * data.sizes[i] + j;
      if (control.tagName === "INPUT") { outputs[i].textContent = label; control.setAttribute("aria-valuetext", label); }
    });
    image.src = data.images[data.frames[at]];
    image.alt = data.alt + " " + data.texts[at];
    says.textContent = data.texts[at];
  }
  controls.forEach(function (control) {
    control.addEventListener("input", show);
    control.addEventListener("keydown", function (event) { event.stopPropagation(); });  /* a slide deck must not turn */
  });
  root.querySelector("button").addEventListener("click", function () {
    controls.forEach(function (control, i) { control.value = data.start[i]; });
    show();
  });
})();
"""
