"""What is run, where the results lie, and how an interrupted experiment goes on."""

import hashlib
import json
import math
import platform
import sys
import time
from dataclasses import dataclass
from datetime import date
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from book.corpus import load_corpus, split
from book.experiments.training import (
    BETAS,
    CLIP,
    FLOOR,
    PROBES,
    WARM_UP,
    WEIGHT_DECAY,
    WINDOWS,
    as_bytes,
    train,
)
from book.experiments.variants import ABLATIONS, SIZES, TOLERANCE
from book.paths import NOTEBOOKS

RESULTS = NOTEBOOKS / "results"
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Experiment:
    """Every variant at every learning rate with every seed."""

    variants: tuple
    rates: tuple
    steps: int
    seeds: tuple = SEEDS
    batch: int = 4
    probe_every: int = 16
    sizes: tuple = tuple(SIZES.items())

    def plan(self):
        """(variant, lr, seed) in order: whole seeds first, so that a file that is not finished yet
        compares like with like."""
        return [(v, lr, seed) for lr, seed, v in product(self.rates, self.seeds, self.variants)]

    def settings(self):
        """What the runs have in common, as it stands in the file."""
        return {
            "variants": list(self.variants), "rates": list(self.rates), "seeds": list(self.seeds),
            "steps": self.steps, "batch": self.batch, "probe_every": self.probe_every,
            "sizes": dict(self.sizes), "parameter_tolerance": TOLERANCE,
            "optimizer": {"name": "AdamW", "betas": list(BETAS), "weight_decay": WEIGHT_DECAY, "clip": CLIP,
                          "warm_up": WARM_UP, "floor": FLOOR},
            "held_out_windows": WINDOWS, "probe_windows": PROBES,
        }  # fmt: skip


EXPERIMENTS = {
    "training": Experiment(("2019", "modern"), (3e-3,), steps=256),
    "qk_norm": Experiment(("no_qk_norm", "modern"), (1e-2, 3e-2, 1e-1), steps=128, probe_every=1),
    "ablation": Experiment(ABLATIONS, (3e-3,), steps=256),
    "second_rate": Experiment(("2019", "modern"), (1e-3,), steps=256),
}


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


def _open(path, head):
    """The results so far. Raises: ValueError if the file was made with other settings or another text."""
    if not path.exists():
        return {**head, "runs": []}
    results = json.loads(path.read_text(encoding="utf-8"))
    for key, value in head.items():
        if results.get(key) != value:
            raise ValueError(
                f"{path.name} was made with {key} = {results.get(key)!r}, now it is {value!r}: runs of both"
                " in one file cannot be compared; move the file away to start anew"
            )
    return results


def run_experiment(name, experiment=None, folder=RESULTS, text=None, bar=None):
    """Run what a results file lacks, and save after every run.

    text: bytes to train on instead of the corpus. Returns the results as they are in `folder`/name.json.
    Raises: ValueError for an unknown name, or a file made with other settings.
    """
    if experiment is None:
        _known(name)
        experiment = EXPERIMENTS[name]
    text = load_corpus() if text is None else text
    train_text, held_out_text = split(text)
    head = {
        "experiment": name, "settings": experiment.settings(),
        "text": fingerprint(experiment, train_text, held_out_text),
    }  # fmt: skip
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    results = _open(path, head)
    there = {(r["variant"], r["lr"], r["seed"]) for r in results["runs"]}
    ids, held_out = as_bytes(train_text), as_bytes(held_out_text)
    for variant, lr, seed in experiment.plan():
        if (variant, lr, seed) in there:
            continue
        if bar is not None:
            bar.set_description(f"{name}: {variant}, lr {lr:g}, seed {seed}")
        started = time.time()
        run = train(
            variant, lr, seed, ids, held_out, experiment.steps, experiment.batch, dict(experiment.sizes),
            experiment.probe_every, step=bar.update if bar is not None else None,
        )  # fmt: skip
        run["diverged"] = run["bits_per_byte"] is None or run["bits_per_byte"] > head["text"]["unigram_bits"]
        results["runs"].append(
            {"variant": variant, "lr": lr, "seed": seed, **run, "made": _made(time.time() - started, text)}
        )
        _write(path, results)
    return results


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


def load_results(name, folder=RESULTS, quiet=False):
    """The committed results of an experiment; prints in one line where they come from.

    Raises: ValueError for an unknown name or a file that belongs to another text; FileNotFoundError if it
    was not run.
    """
    _known(name)
    path = Path(folder) / f"{name}.json"
    if not path.exists():
        raise FileNotFoundError(f"{path.name} is not in {path.parent.name}/: `make experiments` makes it")
    results = json.loads(path.read_text(encoding="utf-8"))
    if not quiet:
        made = [run["made"] for run in results["runs"]]
        planned = math.prod(len(results["settings"][k]) for k in ("variants", "rates", "seeds"))
        print(
            f"{name}: {len(made)} of {planned} runs of {results['settings']['steps']} steps,"
            f" {max(m['date'] for m in made)}, torch {made[-1]['torch']}, {made[-1]['device']}"
            f" ({made[-1]['cpu']}), text {results['text']['sha256_read'][:12]}"
        )
    return results


def quick_run(steps=60, seed=0, variants=("2019", "modern"), text=None):
    """A few seconds of the same training, live: models of about 60,000 parameters on short windows.

    Returns {variant: {"parameters", "loss" [steps], "bits_per_byte", ..}}. Too small to decide anything:
    it shows the loop.
    """
    train_text, held_out_text = split(load_corpus() if text is None else text)
    sizes = {"V": 256, "d": 48, "n_layers": 2, "n_heads": 4, "max_len": 64}
    ids, held_out = as_bytes(train_text), as_bytes(held_out_text)[: 32 * 64 + 1]
    return {
        v: train(v, 3e-3, seed, ids, held_out, steps, batch=8, sizes=sizes, probe_every=steps, checks=1)
        for v in variants
    }


def main(argv=None):
    """python -m book.experiments [training] [qk_norm] [ablation] [second_rate]: all of them, or the named
    ones; resumes."""
    names = list(sys.argv[1:] if argv is None else argv) or list(EXPERIMENTS)
    try:
        for name in names:
            _known(name)
        torch.set_num_threads(1)  # more threads add in another order: the same numbers need the same number
        for name in names:
            _main_one(name)
    except (ValueError, FileNotFoundError) as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; what is finished is saved, the same command goes on", file=sys.stderr)
        return 130
    return 0


def _main_one(name):
    experiment = EXPERIMENTS[name]
    path = RESULTS / f"{name}.json"
    done = len(json.loads(path.read_text(encoding="utf-8"))["runs"]) if path.exists() else 0
    total = len(experiment.plan()) * experiment.steps
    with tqdm(total=total, initial=done * experiment.steps, unit="step") as bar:
        results = run_experiment(name, bar=bar)
    print(f"{path.name}: {len(results['runs'])} runs")
