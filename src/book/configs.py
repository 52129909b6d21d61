"""Real config.json files that come with the book, and a table of what all 53 collected ones say.

    names()                  the files that come with the book
    load("llama-3-8b")       one of them as a dict, as published
    path("llama-3-8b")       where it lies, for lib.read_config and python -m lib describe
    frontier()               parameters and cache of 53 models, one Row each; row.cache_bytes(131072)

python -m book.configs FOLDER   writes the table again from a folder of config files. No torch here.
"""

import csv
import json
import sys
from collections import Counter
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from lib.arithmetic import (
    extra_kv_elements_per_token,
    kv_elements_per_token,
    naive_kv_elements_per_token,
    parameters,
    state_elements,
)
from lib.config import Dense, MoE
from lib.families import read_config
from lib.families.implied import Facts

DATA = Path(__file__).with_name("data")
CONFIGS, TABLE = DATA / "configs", DATA / "frontier.csv"


def names():
    """The models whose config.json comes with the book, sorted."""
    return sorted(p.stem for p in CONFIGS.glob("*.json"))


def path(name):
    """Where that model's config.json lies. Raises: ValueError with the names that there are."""
    found = CONFIGS / f"{name}.json"
    if name not in names():
        raise ValueError(f"no config {name!r} comes with the book; there are {', '.join(names())}")
    return found


def load(name):
    """That model's config.json as a dict, as published."""
    return json.loads(path(name).read_text(encoding="utf-8"))


_PLACES = {"pre": "", "post": ", after", "sandwich": ", before and after", "parallel": ", one for both", "parallel2": ", parallel"}  # fmt: skip


def six_answers(cfg):
    """norm, feed-forward, positions, attention, QK-norm and head of a configuration, a few words each."""
    first = cfg.layers[0]
    dense = next((x.ffn for x in cfg.layers if isinstance(x.ffn, Dense)), None)
    moe = next((x.ffn for x in cfg.layers if isinstance(x.ffn, MoE)), None)
    f = Facts(cfg)
    act = {"silu": "Swi", "gelu": "Ge", "gelu_tanh": "Ge", "relu": "Re"}
    ffn = f"MoE {moe.active} of {moe.experts}" if moe else "none"
    if dense and not moe:
        ffn = (act[dense.activation] + "GLU" if dense.gated else "GELU") + f" {dense.d_ff / cfg.d:.3g} d"
    bases = sorted({rope.base for rope in f.ropes})
    places = " + ".join(f"{base:,.0f}" for base in bases) if bases else ""
    if f.ropes and f.nope:
        places += f", none in {len(f.nope)}"
    qk = next((x.qk_norm for x in f.gqa if x.qk_norm), False)
    return {
        "norm": ("RMSNorm" if cfg.norm.kind == "rms" else "LayerNorm") + _PLACES[first.norms],
        "feed-forward": ffn,
        "positions": f"RoPE {places}" if bases else "table" if cfg.counted else "none",
        "attention": f.kind() + (f", {len(f.windows)} windows" if f.windows else ""),
        "QK-norm": "whole width" if qk == "width" else "each head" if qk else "of latents" if f.mla else "no",
        "head": "tied" if cfg.tied else "its own",
    }


@dataclass(frozen=True)
class Row:
    """One model of the table; see data/README.md for the columns."""

    name: str
    model_type: str
    parameters: int
    active: int
    naive: int
    full: int
    windowed: str
    kind: str
    beside: int = 0
    state: int = 0

    @property
    def windows(self):
        """[(numbers per token, window)] of the layers that keep a window only."""
        parts = (part.split("@") for part in self.windowed.split("+") if part)
        return [(int(elements), int(window)) for elements, window in parts]

    @property
    def elements(self):
        """Numbers that one more token adds while no window is full."""
        return self.full + sum(elements for elements, _ in self.windows)

    def cache_bytes(self, tokens, bytes_per_element=2):
        """The cache of one sequence of `tokens`, windows capped."""
        kept = self.full * tokens + sum(elements * min(tokens, window) for elements, window in self.windows)
        return bytes_per_element * kept

    def sequence_bytes(self, tokens, bytes_per_element=2):
        """All that one sequence of `tokens` keeps: keys and values, what is cached beside them (an indexer's keys), and state of fixed size."""
        return self.cache_bytes(tokens, bytes_per_element) + bytes_per_element * (
            self.beside * tokens + self.state
        )

    def naive_bytes(self, tokens, bytes_per_element=2):
        """What the usual formula says of the same sequence."""
        return bytes_per_element * self.naive * tokens


def row_of(name, cfg):
    """What `lib` reads in one configuration."""
    by_window = Counter()
    for layer in cfg.layers:
        one = cfg.replace(layers=(layer,))
        by_window[getattr(layer.attention, "window", None)] += kv_elements_per_token(one)
    full = by_window.pop(None, 0)
    windowed = "+".join(f"{elements}@{window}" for window, elements in sorted(by_window.items()))
    p = parameters(cfg)
    naive, kind = naive_kv_elements_per_token(cfg), Facts(cfg).kind()
    beside, state = extra_kv_elements_per_token(cfg), state_elements(cfg)
    return Row(name, cfg.model_type, p.total, p.active, naive, full, windowed, kind, beside, state)


def make_frontier(folder):
    """One Row for each config.json (NAME.json) in a folder, by name."""
    return [row_of(p.stem, read_config(p)) for p in sorted(Path(folder).glob("*.json"))]


def write_frontier(folder, target=TABLE):
    """The rows of a folder as the committed table."""
    with Path(target).open("w", encoding="utf-8", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(astuple(row) for row in make_frontier(folder))


def frontier():
    """The committed table: 53 Rows, by name."""
    kinds = {field.name: field.type for field in fields(Row)}
    with TABLE.open(encoding="utf-8", newline="") as f:
        return [Row(**{key: kinds[key](value) for key, value in row.items()}) for row in csv.DictReader(f)]


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python -m book.configs FOLDER of config files named MODEL.json")
    write_frontier(sys.argv[1])
    print(f"{TABLE.name}: {len(frontier())} rows")
