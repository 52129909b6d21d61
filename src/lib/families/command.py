"""python -m lib describe: a page about one file, two files side by side, or the same as JSON."""

import json
import sys
from pathlib import Path

from ..command_line import Parser
from ..config import LARGEST
from . import UnknownFamily, measure, read_config
from .compare import side_by_side
from .config_file import load, show
from .describe import page
from .implied import BANDWIDTH, MOST_GPUS, as_json


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
    parser = Parser(
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
    parser.add_argument(
        "--measure", action="store_true", help="also count the class that transformers has for the file"
    )
    args = parser.parse_args(argv)
    if (args.path is None) == (args.compare is None):
        parser.error("give one PATH, or --compare A B")
    if args.measure and args.compare:
        parser.error("--measure counts one file at a time")
    try:
        options = _options(args)
        text = _compared(args, options) if args.compare else _described(args, options)
    except (ValueError, OSError) as error:
        print(f"describe: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(text)
    return 0


def _options(args):
    """What the page is computed for, checked in the words and units of the command line before a file is opened."""
    for name, lowest, highest in (("tokens", 0, LARGEST), ("batch", 1, LARGEST), ("gpus", 1, MOST_GPUS)):
        value = getattr(args, name)
        if not lowest <= value <= highest:
            raise ValueError(f"{name} = {show(value)}: expected a whole number from {lowest} to {highest:,}")
    if not 0 < args.bandwidth * 1e9 < float("inf"):
        raise ValueError(f"bandwidth = {args.bandwidth:g} GB/s: expected a positive finite number")
    if "" in (args.path, *(args.compare or ())):
        raise ValueError("the path is empty: expected a config.json, a model folder or a .gguf file")
    return {
        "tokens": args.tokens,
        "batch": args.batch,
        "bandwidth": args.bandwidth * 1e9,
        "gpus": args.gpus,
    }


def _described(args, options):
    try:
        cfg = read_config(args.path)
    except UnknownFamily as error:
        if not args.measure:
            offer = "; transformers knows it: --measure counts its class" * measure.known_to_transformers(
                error.model_type
            )
            raise ValueError(f"{error}{offer}") from None
        cfg = None
    measured = measure.measure(load(args.path)) if args.measure else None
    if args.json:
        facts = {} if cfg is None else as_json(cfg, **options)
        return json.dumps(
            facts | ({"measured": measure.as_json(cfg, measured, args.tokens)} if measured else {}), indent=2
        )
    name = _name(args.path)
    parts = [f"{name}: {measured.model_type}"] if cfg is None else [page(cfg, name=name, **options)]
    return "\n\n".join(parts + (["\n".join(measure.lines(cfg, measured, args.tokens))] if measured else []))


def _compared(args, options):
    configs = [read_config(path) for path in args.compare]
    if args.json:
        return json.dumps([as_json(cfg, **options) for cfg in configs], indent=2)
    return side_by_side(configs, names=[_name(path) for path in args.compare], **options)
