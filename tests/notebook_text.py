"""What the tests read in a stored notebook: its outputs, as nbval compares them and as a reader sees them."""

import html
import re
from collections import defaultdict

# nbval compares neither pictures nor widgets: they differ between machines and runs.
NOT_COMPARED = ("image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json")


def comparable(outputs):
    """{kind of text: [values]} of a cell's outputs; equal exactly where nbval would call two runs equal."""
    found = defaultdict(list)
    for output in outputs:
        if output["output_type"] == "stream":
            name = output["name"]
            found[name] = ["".join([*found[name], output["text"]])]
        elif output["output_type"] == "error":
            found["error"].append((output["ename"], output["evalue"]))
        else:
            for kind, value in output["data"].items():
                if kind not in NOT_COMPARED:
                    found[kind].append(value)
    return dict(found)


def printed(nb):
    """Everything that a notebook's code cells show as text, tags removed, spaces as one: never its source."""
    parts = []
    for cell in nb.cells:
        for values in comparable(cell.get("outputs", [])).values():
            parts += [value if isinstance(value, str) else " ".join(map(str, value)) for value in values]
    text = html.unescape(re.sub(r"<[^>]+>", " ", "\n".join(parts)))
    return re.sub(r"\s+", " ", text)


def shows(text, wanted):
    """Whether `wanted` stands in `text`, not as a part of a longer number (12 is not shown by 512, 1.2 not by 1.25)."""
    before = r"(?<![\d.,])" if wanted[:1].isdigit() else ""
    after = r"(?!\d|[.,]\d)" if wanted[-1:].isdigit() else ""
    return re.search(before + re.escape(wanted) + after, text) is not None
