"""python -m lib describe PATH: what a config implies. python -m lib generate PROMPT: a real model continues a text."""

import sys

USAGE = """usage: python -m lib describe PATH [--tokens N] [--batch N] [--json]    which block is this, and what does it cost
       python -m lib describe PATH --measure                               .. and what transformers builds for it, counted
       python -m lib describe --compare A B                                two of them side by side
       python -m lib generate ...                                          let a real model continue a text
`python -m lib COMMAND --help` says more."""


def main(argv=None):
    """The exit code: 0, or 2 with one line on stderr for input that cannot be read."""
    argv = sys.argv[1:] if argv is None else argv
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command == "describe":
        from lib.families.command import main as run
    elif command == "generate":
        from lib.files.generate import main as run
    else:
        asked = command in ("-h", "--help")
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    return run(rest)


if __name__ == "__main__":
    sys.exit(main())
