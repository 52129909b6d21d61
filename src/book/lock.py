"""Writes requirements.lock: one pin for every package that pyproject.toml and its extras lead to, as .venv holds it now.

    python -m book.lock

The pins are constraints, not a list to install: they fix versions, and each platform still takes what it needs. So torch stands
without the local part of its version (2.13.0, not 2.13.0+cpu), and what only a CUDA build brings is left to that build.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from book.paths import ROOT

LOCK = ROOT / "requirements.lock"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORM_OWN = re.compile(r"nvidia-|cuda-|triton$")  # pinned by torch itself
OPTIONAL = ("bench",)  # extras that `make setup` leaves out: wheels for some platforms, pinned by nobody
HEADER = """\
# Constraints for `pip install --constraint requirements.lock -e .[...]`, on Python 3.11 to 3.13. Derived: python -m book.lock
"""


def project():
    """(dependencies, {extra: dependencies}) of pyproject.toml, as written there."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table["dependencies"], table["optional-dependencies"]


def closure():
    """{canonical name: distribution} of everything that the project needs here, extras included but the optional ones, itself excluded.

    Raises: ValueError with the names that are needed and not installed.
    """
    base, extras = project()
    wanted = [base, *(lines for extra, lines in extras.items() if extra not in OPTIONAL)]
    todo = [Requirement(line) for lines in wanted for line in lines]
    found, missing, seen = {}, set(), set()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        key = (name, frozenset(wanted.extras))
        if key in seen or PLATFORM_OWN.match(name):
            continue
        seen.add(key)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        for line in found[name].requires or []:
            needed = Requirement(line)
            if not needed.marker or any(needed.marker.evaluate({"extra": e}) for e in ("", *wanted.extras)):
                todo.append(needed)
    if missing:
        raise ValueError(
            f"needed, but not installed here: {', '.join(sorted(missing))}; run make setup first"
        )
    return found


def pins():
    """The lines of requirements.lock for what is installed here."""
    lines = []
    for name, dist in sorted(closure().items()):
        wanted = SpecifierSet(dist.metadata.get("Requires-Python") or "")
        refused = [python for python in PYTHONS if not wanted.contains(f"{python}.9")]
        if refused:
            raise ValueError(
                f"{name} {dist.version} asks for Python {wanted}: it cannot be pinned for {refused}"
            )
        lines.append(f"{name}=={dist.version.partition('+')[0]}")
    return lines


def main():
    try:
        lines = pins()
    except ValueError as error:
        sys.exit(f"lock: {error}")
    LOCK.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{LOCK.name}: {len(lines)} pins")


if __name__ == "__main__":
    main()
