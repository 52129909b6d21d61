"""python -m lib describe: a page about one file, two files side by side, or the same as JSON."""

import argparse
import json
import sys
from pathlib import Path

from . import read_config
from .compare import side_by_side
from .describe import page
from .implied import BANDWIDTH, as_json


def _name(path):
    path = Path(path)
    return (
        path.resolve().name
        if path.is_dir()
        else path.parent.resolve().name
        if path.name == "config.json"
        else path.stem
    )


def main(argv=None):
    """python -m lib describe. Returns the exit code: 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m lib describe", description="Which block a config describes, and what it costs."
    )
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="a config.json, a model folder, or a .gguf file"
    )
    parser.add_argument("--tokens", type=int, default=131072, help="tokens in each sequence (131072)")
    parser.add_argument("--batch", type=int, default=1, help="sequences (1)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs in tensor parallelism (8)")
    parser.add_argument(
        "--bandwidth",
        type=float,
        default=BANDWIDTH / 1e9,
        metavar="GB/S",
        help="memory bandwidth in GB per second (1000)",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="two files side by side, instead of PATH"
    )
    args = parser.parse_args(argv)
    if (args.path is None) == (args.compare is None):
        parser.error("give one PATH, or --compare A B")
    try:
        options = args.tokens, args.batch, args.bandwidth * 1e9
        paths = args.compare or [args.path]
        configs = [read_config(path) for path in paths]
        if args.json:
            facts = [as_json(cfg, *options, args.gpus) for cfg in configs]
            text = json.dumps(facts if args.compare else facts[0], indent=2)
        elif args.compare:
            text = side_by_side(configs, *options, names=[_name(path) for path in paths], gpus=args.gpus)
        else:
            text = page(configs[0], *options, name=_name(args.path), gpus=args.gpus)
    except (ValueError, OSError) as error:
        print(f"describe: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(text)
    return 0
