"""A figure as SVG markup: the still parts once, the moving ones anew for every state. What a browser can draw it need not be sent as pixels.

`Recorder` is a matplotlib renderer that writes down what it is asked to draw. Coordinates are whole tenths of a pixel from the
top left corner (`SCALE`), so that a curve of 500 points takes 3 kB. Clipping is by nested <svg> elements, which need no ids, so that
any number of pictures can stand on one page. Text stays text: it is read aloud, searched and drawn in the page's own font.
"""

import base64
import io
import re
from html import escape

import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex
from matplotlib.path import Path

SCALE = 10
FONT = "DejaVu Sans,Verdana,Bitstream Vera Sans,sans-serif"  # one design under three names, so texts have the width that matplotlib gave them
_ANCHOR = {"left": "start", "center": "middle", "right": "end"}
_LETTER = {Path.MOVETO: "M", Path.LINETO: "l", Path.CURVE3: "q", Path.CURVE4: "c", Path.CLOSEPOLY: "z"}


def _units(x):
    return round(float(x) * SCALE)


class Recorder(RendererBase):
    """Draw any artist into it; `markup()` is the SVG of what was drawn since the last call."""

    def __init__(self, figure):
        super().__init__()
        self.width, self.height = figure.bbox.width, figure.bbox.height
        self.dpi = figure.dpi
        self._parts = []  # (clip or None, tag, content, style)

    # ---- what matplotlib asks a renderer
    def get_canvas_width_height(self):
        return self.width, self.height

    def points_to_pixels(self, points):
        return points * self.dpi / 72

    def draw_path(self, gc, path, transform, rgbFace=None):
        open_line = rgbFace is None and gc.get_hatch() is None
        frame = (0, 0, self.width, self.height) if open_line else None
        d, at = [], (0, 0)
        for points, code in path.iter_segments(
            transform, remove_nans=True, clip=frame, simplify=path.should_simplify and open_line, curves=True
        ):
            at = self._segment(d, points, code, at)
        if d:
            self._add(gc, "path", re.sub(r" (?=-)", "", "".join(d)), self._style(gc, rgbFace))

    def draw_markers(self, gc, marker_path, marker_trans, path, trans, rgbFace=None):
        shape, at = [], (0, 0)
        for points, code in marker_trans.transform_path(marker_path).iter_segments(simplify=False):
            at = self._segment(shape, points - np.tile((0, -self.height), len(points) // 2), code, at)
        shape = re.sub(r"M(-?\d+) (-?\d+)", r"m\1 \2", "".join(shape), count=1)  # from wherever the point is
        centres = (points[-2:] for points, _ in path.iter_segments(trans, simplify=False))
        d = [
            f"M{_units(x)} {_units(self.height - y)}{shape}" for x, y in centres if np.isfinite((x, y)).all()
        ]
        if d:
            self._add(gc, "path", re.sub(r" (?=-)", "", "".join(d)), self._style(gc, rgbFace))

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
        if ismath:
            return self._draw_formula(gc, x, y, s, prop, angle)
        anchor = "start"
        if mtext is not None and angle == 0:
            x = mtext.get_transform().transform(mtext.get_unitless_position())[0]
            anchor = _ANCHOR[mtext.get_ha()]
        size = _units(self.points_to_pixels(prop.get_size_in_points()))
        style = f'font-size="{size}" fill="{to_hex(gc.get_rgb())}"' + self._opacity("fill", gc.get_rgb()[3])
        style += f' text-anchor="{anchor}"' * (anchor != "start")
        style += ' font-weight="bold"' * (prop.get_weight() in ("bold", 700))
        style += ' font-style="italic"' * (prop.get_style() == "italic")
        place = f'x="{_units(x)}" y="{_units(y)}"'
        if angle:
            place += f' transform="rotate({-angle:g} {_units(x)} {_units(y)})"'
        self._parts.append((self._clip(gc), "text", (place, escape(s)), style))

    def _draw_formula(self, gc, x, y, s, prop, angle):
        """Mathematics has no words in a font: its outlines."""
        vertices, codes = self._text2path.get_text_path(prop, s, ismath=True)
        scale = self.points_to_pixels(prop.get_size_in_points()) / self._text2path.FONT_SCALE
        from matplotlib.transforms import Affine2D

        move = Affine2D().scale(scale).rotate_deg(angle).translate(x, self.height - y)
        quiet = self.new_gc()
        quiet.copy_properties(gc)
        quiet.set_linewidth(0)
        self.draw_path(quiet, Path(vertices, codes), move, gc.get_rgb())

    def draw_image(self, gc, x, y, im, transform=None):
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(np.asarray(im)[::-1]).save(out, "png")
        height, width = im.shape[:2]
        place = f'x="{_units(x)}" y="{_units(self.height - y - height)}" width="{_units(width)}" height="{_units(height)}"'
        uri = base64.b64encode(out.getvalue()).decode()
        self._parts.append((self._clip(gc), "image", f'{place} href="data:image/png;base64,{uri}"', ""))

    # ---- how it is written
    def _segment(self, d, points, code, at):
        if code == Path.CLOSEPOLY:
            d.append("z")
            return at
        xs, ys = [_units(x) for x in points[0::2]], [_units(self.height - y) for y in points[1::2]]
        if code == Path.MOVETO:
            d.append(f"M{xs[0]} {ys[0]}")
        else:
            offsets = " ".join(f"{x - at[0]} {y - at[1]}" for x, y in zip(xs, ys))
            same = d and d[-1][0] in " l" and code == Path.LINETO  # a letter is said once
            d.append((" " if same else _LETTER[code]) + offsets)
        return xs[-1], ys[-1]

    def _style(self, gc, face):
        rgb, width = gc.get_rgb(), gc.get_linewidth()
        forced = gc.get_alpha() if gc.get_forced_alpha() else None
        if face is None:
            style = 'fill="none"'
        else:
            alpha = forced if forced is not None else (face[3] if len(face) > 3 else 1.0)
            style = f'fill="{to_hex(face)}"' + self._opacity("fill", alpha)
        if width and (rgb[3] or forced):
            style += f' stroke="{to_hex(rgb)}" stroke-width="{_units(self.points_to_pixels(width))}"'
            style += self._opacity("stroke", rgb[3] if forced is None else forced)
            dashes = gc.get_dashes()[1]
            if dashes is not None:
                lengths = " ".join(str(_units(self.points_to_pixels(x))) for x in dashes)
                style += f' stroke-dasharray="{lengths}"'
            if gc.get_capstyle() != "butt":
                style += f' stroke-linecap="{"square" if gc.get_capstyle() == "projecting" else "round"}"'
            if gc.get_joinstyle() != "miter":
                style += f' stroke-linejoin="{gc.get_joinstyle()}"'
        return style

    @staticmethod
    def _opacity(what, alpha):
        return f' {what}-opacity="{alpha:.2g}"' if alpha < 1 else ""

    def _clip(self, gc):
        box = gc.get_clip_rectangle()
        if box is None:
            return None
        x0, y0, x1, y1 = box.extents
        return _units(x0), _units(self.height - y1), _units(x1 - x0), _units(y1 - y0)

    def _add(self, gc, tag, d, style):
        clip = self._clip(gc)
        if self._parts and tag == "path" and self._parts[-1][1] == "path":
            last = self._parts[-1]
            if (last[0], last[3]) == (clip, style) and "opacity" not in style:
                self._parts[-1] = (clip, tag, last[2] + d, style)  # one element for one style
                return
        self._parts.append((clip, tag, d, style))

    def markup(self):
        """One string per run of parts under one clip; joined they are the inside of a picture."""
        out, inside, now = [], [], None
        for clip, tag, content, style in [*self._parts, (object(), None, None, None)]:
            if inside and clip != now:
                out.append(_clipped(now, "".join(inside)) if now else "".join(inside))
                inside = []
            now = clip
            if tag == "path":
                inside.append(f'<path d="{content}" {style}/>')
            elif tag == "text":
                inside.append(f"<text {content[0]} {style}>{content[1]}</text>")
            elif tag:
                inside.append(f"<{tag} {content}/>")
        self._parts = []
        return out


def _clipped(box, inside):
    x, y, width, height = box
    return f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}">{inside}</svg>'


def svg(size, still, moving="", alt="", text=""):
    """A whole <svg> of `size` pixels: the still part, and the group in which a script puts the moving one."""
    width, height = (round(side) for side in size)
    return (
        f'<svg class="explorer-picture" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(f"{alt} {text}".strip())}" '
        f'viewBox="0 0 {width * SCALE} {height * SCALE}" font-family="{FONT}">'
        f"<g>{still}</g><g>{moving}</g></svg>"
    )
