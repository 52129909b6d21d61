"""What is run, where the results lie, and how an interrupted experiment goes on."""

import hashlib
import json
import math
import platform
import sys
import time
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from book.corpus import load_corpus, split
from book.experiments.tables import ORDERS, read_by, table_bits
from book.experiments.training import (
    BETAS,
    CLIP,
    FLOOR,
    PROBES,
    RECIPE,
    WARM_UP,
    WEIGHT_DECAY,
    WINDOWS,
    as_bytes,
    drawn,
    train,
    windows,
)
from book.experiments.variants import ABLATIONS, ADDED, CACHES, SIZES, TOLERANCE
from book.paths import NOTEBOOKS

RESULTS = NOTEBOOKS / "results"
SEEDS = (0, 1, 2)
TIE = 0.025  # bits per byte: about what two seeds of one variant differ by after so few steps
LADDER = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # the rates that a scan may try
EPOCH = 2009  # steps that read the training text once


@dataclass(frozen=True)
class Experiment:
    """Every variant at every learning rate with every seed.

    rates None: each variant at the rate that the scans found for it. extend: where the rate that is found is the lowest or the
    highest tried, the next one of LADDER is tried too. more: (variants, seeds) that are run besides; where rates are given,
    (variants, rates, seeds).
    checks, reach_at, every, probe_every: what is measured on the way, see `training.train`.
    """

    variants: tuple
    rates: tuple | None
    steps: int
    seeds: tuple = SEEDS
    batch: int = 4
    probe_every: int | None = 16
    sizes: tuple = tuple(SIZES.items())
    checks: int | tuple = 2
    reach_at: tuple = ()
    every: int = 1
    extend: bool = False
    more: tuple = ()
    recipe: int = RECIPE

    def plan(self, rate_of=None):
        """(variant, lr, seed) in order: whole seeds first, so that a file that is not finished yet
        compares like with like."""
        if self.rates is not None:
            plan = [(v, lr, seed) for lr, seed, v in product(self.rates, self.seeds, self.variants)]
            return plan + [entry for lists in self.more for entry in product(*lists)]
        pairs = list(product(self.seeds, self.variants))
        pairs += [(seed, v) for variants, seeds in self.more for seed, v in product(seeds, variants)]
        return [(v, rate_of(v), seed) for seed, v in pairs]

    def missing(self, runs, rate_of=None):
        """What of the plan is not among `runs`; with `extend`, further rates once the plan is there."""
        there = {(r["variant"], r["lr"], r["seed"]) for r in runs}
        todo = [key for key in self.plan(rate_of) if key not in there]
        if self.extend and not todo:
            todo = [
                (v, rate, seed)
                for v, seed in product(self.variants, self.seeds)
                for rate in _beyond(v, runs)
                if (v, rate, seed) not in there
            ]
        return todo

    def settings(self):
        """What the runs have in common, as it stands in the file."""
        return {
            "variants": list(self.variants), "rates": self.rates and list(self.rates), "seeds": list(self.seeds),
            "steps": self.steps, "batch": self.batch, "probe_every": self.probe_every,
            "sizes": dict(self.sizes), "parameter_tolerance": TOLERANCE,
            "optimizer": {"name": "AdamW", "betas": list(BETAS), "weight_decay": WEIGHT_DECAY, "clip": CLIP,
                          "warm_up": WARM_UP, "floor": FLOOR},
            "held_out_windows": WINDOWS, "probe_windows": PROBES,
            "checks": self.checks, "reach_at": list(self.reach_at), "every": self.every,
        }  # fmt: skip


def _sweep(variant, runs):
    """{rate: bits per byte} of a variant, mean over seeds; a run that diverged is worse than any number."""
    bits = {}
    for run in runs:
        if run["variant"] == variant:
            bits.setdefault(run["lr"], []).append(
                math.inf if run["bits_per_byte"] is None else run["bits_per_byte"]
            )
    return {rate: sum(values) / len(values) for rate, values in sorted(bits.items())}


def _chosen(sweep):
    """The highest rate that is within TIE of the best: a short run on a plateau says little about when a long one leaves it."""
    return max(rate for rate, bits in sweep.items() if bits <= min(sweep.values()) + TIE)


def _beyond(variant, runs):
    sweep = _sweep(variant, runs)
    i, tried = LADDER.index(_chosen(sweep)), [LADDER.index(rate) for rate in sweep]
    next_ = [j for j in (min(tried) - 1, max(tried) + 1) if abs(j - i) == 1 and 0 <= j < len(LADDER)]
    return [LADDER[j] for j in next_]


_POINTS = (32, 63, *(round(EPOCH * (i + 1) / 16) for i in range(16)))
_LONG = {"probe_every": None, "every": 8}
_SCAN = {"rates": (1e-3, 3e-3, 1e-2), "steps": 512, "seeds": (0,), "extend": True, **_LONG}
ARMS = ("2019", "+rope", "modern", "learned")
EXPERIMENTS = {
    "scan": Experiment(ARMS, **_SCAN),
    "epoch": Experiment(
        ARMS, None, EPOCH, (0, 1, 2, 3), 4, 256, checks=_POINTS,
        reach_at=tuple(_POINTS[i] for i in (5, 9, 13, 17)), every=8,
    ),
    "low_rate": Experiment(
        ("2019", "modern", "+rope", "learned"), (1e-3,), EPOCH, (0,), checks=16,
        more=((("modern", "learned"), (1e-3,), (1, 2)), (("modern", "learned"), (3e-4,), (0,))), **_LONG
    ),
    "rates": Experiment(
        ("no_qk_norm", "modern"), (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1), 256, probe_every=8, every=4
    ),
    "spike": Experiment(("no_qk_norm", "modern"), (3e-2,), 256, (0,), probe_every=1),
    "cache_scan": Experiment(("kv2", "mla56"), **_SCAN),
    "cache": Experiment(CACHES, None, EPOCH, checks=8, **_LONG),
    "upgrades": Experiment(("+rope", "modern", *ADDED, *ABLATIONS), None, 768, checks=8, **_LONG),
}  # fmt: skip


def scanned_rate(variant, folder=RESULTS):
    """The peak learning rate whose short run ended lowest on the held-out text, or within TIE of that: of the variant itself, or
    of the one it is compared with.

    Raises: FileNotFoundError or ValueError if the scan is not there.
    """
    if variant in CACHES:
        name, like = "cache_scan", "mla56" if variant.startswith("mla") else "kv2"
    else:
        like = variant if variant in ARMS else "+rope" if variant.startswith("+") else "modern"
        name = "scan"
    return _chosen(_sweep(like, load_results(name, folder, quiet=True)["runs"]))


def unigram_bits(train_text, held_out_text):
    """Bits per byte of a prediction by the byte's frequency in the training text (add-one) alone."""
    seen = torch.bincount(as_bytes(train_text), minlength=256).double() + 1
    return (-(seen / seen.sum()).log2()[as_bytes(held_out_text)]).mean().item()


def _cpu():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _made(seconds, text):
    return {
        "date": date.today().isoformat(), "torch": torch.__version__, "python": platform.python_version(),
        "corpus_sha256": hashlib.sha256(text).hexdigest(), "device": "cpu", "cpu": _cpu(),
        "threads": torch.get_num_threads(), "seconds": round(seconds, 1),
    }  # fmt: skip


def _write(path, results):
    """Whole or not at all; one line a run, so that two files can be compared."""
    head = {k: v for k, v in results.items() if k != "runs"}
    runs = ",\n".join("  " + json.dumps(run) for run in results["runs"])
    text = json.dumps(head, indent=1)[:-2] + ',\n "runs": [\n' + runs + "\n ]\n}\n"
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


_SAME = ("steps", "batch", "sizes", "probe_every", "checks", "reach_at", "every")  # what a run depends on


def _refusal(path, head):
    """(results, None), or (None, why they are not those that `head` describes)."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        settings, text = results["settings"], results["text"]
        keys = [(r["variant"], r["lr"], r["seed"], r["made"]["date"]) for r in results["runs"]]
    except (ValueError, KeyError, TypeError) as error:
        return None, f"half-written or damaged ({type(error).__name__}: {error})"
    if results.get("recipe") != head["recipe"]:
        return None, f"recipe {results.get('recipe')}, now it is {head['recipe']}"
    for key in _SAME:
        if settings.get(key) != head["settings"].get(key):
            return None, f"made with {key} = {settings.get(key)}, now it is {head['settings'].get(key)}"
    if text != head["text"]:
        return None, "trained or judged on another text"
    if len(set(keys)) < len(keys):
        return None, "the same run stands in it twice"
    return results, None


def _head(name, experiment, text):
    return {
        "experiment": name, "recipe": experiment.recipe, "settings": json.loads(json.dumps(experiment.settings())),
        "text": fingerprint(experiment, *split(text)),
    }  # fmt: skip


def run_experiment(name, experiment=None, folder=RESULTS, text=None, bar=None):
    """Run what a results file lacks, and save after every run.

    A file that is half-written, or made from another text, by another recipe or with other settings, is named, put aside as
    `name`.json.old and made anew. text: bytes to train on instead of the corpus. Returns the results as they are in
    `folder`/name.json. Raises: ValueError for an unknown name.
    """
    if experiment is None:
        _known(name)
        experiment = EXPERIMENTS[name]
    text = load_corpus() if text is None else text
    train_text, held_out_text = split(text)
    head = _head(name, experiment, text)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    results = {"runs": []}
    if path.exists():
        results, why = _refusal(path, head)
        if why:
            path.replace(path.with_suffix(".json.old"))
            tqdm.write(f"{path.name}: {why}; kept as {path.name}.old, made anew", file=sys.stderr)
            results = {"runs": []}
    results = {**head, "runs": results["runs"]}
    ids, held_out = as_bytes(train_text), as_bytes(held_out_text)

    def rate_of(variant):
        return scanned_rate(variant, folder)

    while todo := experiment.missing(results["runs"], rate_of):
        variant, lr, seed = todo[0]
        if bar is not None:
            bar.set_description(f"{name}: {variant}, lr {lr:g}, seed {seed}")
        started = time.time()
        run = train(
            variant, lr, seed, ids, held_out, experiment.steps, experiment.batch, dict(experiment.sizes),
            experiment.probe_every, experiment.checks, bar.update if bar is not None else None,
            experiment.reach_at, experiment.every,
        )  # fmt: skip
        run["diverged"] = run["bits_per_byte"] is None or run["bits_per_byte"] > head["text"]["unigram_bits"]
        results["runs"].append(
            {"variant": variant, "lr": lr, "seed": seed, **run, "made": _made(time.time() - started, text)}
        )
        _write(path, results)
    return results


@lru_cache(maxsize=32)
def fingerprint(experiment, train_text, held_out_text):
    """Which bytes the runs read and are judged on, and how well byte frequencies alone would do.

    A corpus that is longer but begins with the same bytes has the same fingerprint: the runs would be the
    same.
    """
    length = dict(experiment.sizes)["max_len"]
    read = train_text[: experiment.steps * experiment.batch * length + 1]
    judged = held_out_text[: min(WINDOWS, (len(held_out_text) - 1) // length) * length + 1]
    return {
        "bytes_read": len(read), "sha256_read": hashlib.sha256(read).hexdigest(),
        "bytes_held_out": len(judged), "sha256_held_out": hashlib.sha256(judged).hexdigest(),
        "unigram_bits": round(unigram_bits(read, judged), 5),
    }  # fmt: skip


def _known(name):
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}")


def load_results(name, folder=RESULTS, quiet=False, partial=False):
    """The committed results of an experiment; prints in one line where they come from.

    partial: give also a file whose runs are not all there. Raises: ValueError for an unknown name, a file that is
    half-written, or made from another text or by another recipe; FileNotFoundError if it was not run.
    """
    _known(name)
    experiment, path = EXPERIMENTS[name], Path(folder) / f"{name}.json"
    if not path.exists():
        raise FileNotFoundError(f"{path.name} is not in {path.parent.name}/: `make experiments` makes it")
    results, why = _refusal(path, _head(name, experiment, load_corpus()))
    if why:
        raise ValueError(f"{path.name}: {why}; `make experiments` makes it anew")
    missing = experiment.missing(results["runs"], lambda v: scanned_rate(v, folder))
    if missing and not partial:
        raise ValueError(
            f"{path.name}: {len(missing)} of its runs are missing; `make experiments` goes on with it"
        )
    if not quiet:
        made = [run["made"] for run in results["runs"]]
        print(
            f"{name}: {len(made)} of {len(made) + len(missing)} runs of {results['settings']['steps']} steps,"
            f" {max(m['date'] for m in made)}, torch {made[-1]['torch']}, {made[-1]['device']}"
            f" ({made[-1]['cpu']}), text {results['text']['sha256_read'][:12]}"
        )
    return results


def table_curves(steps, experiment="epoch", seed=0, orders=ORDERS):
    """Bits per byte of count tables of each order after each of `steps`, counted from exactly the bytes that a run of that seed
    has read by then, on the same held-out windows -> float64 [len(steps), len(orders)]. A second for 16 points."""
    _known(experiment)
    e = EXPERIMENTS[experiment]
    train_text, held_out_text = split(load_corpus())
    length = dict(e.sizes)["max_len"]
    read = read_by(drawn(e.steps * e.batch, seed), steps, e.batch, length, len(train_text))
    return table_bits(train_text, windows(as_bytes(held_out_text), length, WINDOWS), read, orders)


def main(argv=None):
    """python -m book.experiments [scan] [epoch] ..: all of them, or the named ones; resumes. The bar counts the steps of all
    and says how long is left."""
    names = list(sys.argv[1:] if argv is None else argv) or list(EXPERIMENTS)
    try:
        for name in names:
            _known(name)
        torch.set_num_threads(1)  # more threads add in another order: the same numbers need the same number
        text = load_corpus()
        with tqdm(total=sum(_left(name, text) for name in names), unit="step", smoothing=0.02) as bar:
            for name in names:
                results = run_experiment(name, text=text, bar=bar)
                tqdm.write(f"{name}.json: {len(results['runs'])} runs", file=sys.stderr)
    except (ValueError, FileNotFoundError) as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; what is finished is saved, the same command goes on", file=sys.stderr)
        return 130
    return 0


def _left(name, text):
    """Steps that a file lacks; the rates play no part, they may not be known yet."""
    experiment, path, runs = EXPERIMENTS[name], RESULTS / f"{name}.json", []
    if path.exists():
        results, why = _refusal(path, _head(name, experiment, text))
        runs = [] if why else results["runs"]
    if experiment.rates is not None:
        return experiment.steps * len(experiment.missing(runs))
    there = {(r["variant"], r["seed"]) for r in runs}
    plan = experiment.plan(lambda variant: None)
    return experiment.steps * sum((v, seed) not in there for v, _, seed in plan)
