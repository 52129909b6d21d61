"""Script libraries for the site and the slides, fetched once from npm, checked, and kept in build/vendor: no page asks a CDN."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from book.paths import BUILD

VENDOR = BUILD / "vendor"
# package -> (version, sha512 of its tarball as npm states it)
PINS = {
    "mathjax": (
        "3.2.2",
        "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
    ),
    "reveal.js": (
        "5.2.1",
        "r7//6mIM5p34hFiDMvYfXgyjXqGRta+/psd9YtytsgRlrpRzFv4RbH76TXd2qD+7ZPZEbpBDhdRhJaFgfQ7zNQ==",
    ),
}
TYPESET = "tex-svg.js"  # one file that holds its glyphs: a page on disk may load no font file


def tarball(package, folder=VENDOR):
    """Path of the package's checked tarball; npm is asked only the first time.

    Raises: RuntimeError if npm is missing or fails; ValueError if what came is not what is pinned here.
    """
    version, want = PINS[package]
    path = Path(folder) / f"{package}-{version}.tgz"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                f"{package} {version} comes from npm, which is not on the PATH: install Node.js"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            call = [npm, "pack", "--silent", f"{package}@{version}"]
            done = subprocess.run(call, check=False, cwd=scratch, capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise RuntimeError(f"npm pack {package}@{version} failed: {done.stderr.strip()[-500:]}")
            next(Path(scratch).glob("*.tgz")).replace(path)
    got = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if got != want:
        path.unlink()
        raise ValueError(f"{path.name}: sha512 {got[:16]}.., expected {want[:16]}..; removed, run again")
    return path


def unpack(package, target, names, folder=VENDOR):
    """Put the package's files `names` (a path ending in / is a whole folder) under `target`, with their paths."""
    found = set()
    with tarfile.open(tarball(package, folder)) as archive:
        for member in archive:
            inner = member.name.partition("/")[2]  # every npm tarball starts with package/
            hit = next((n for n in names if inner == n or (n.endswith("/") and inner.startswith(n))), None)
            if hit is None or not member.isfile():
                continue
            found.add(hit)
            path = Path(target) / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(member).read())
    missing = set(names) - found
    if missing:
        raise ValueError(f"{package} {PINS[package][0]} holds no {sorted(missing)}")


def mathjax(target):
    """MathJax as one file in `target`; returns its name."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack("mathjax", scratch, [f"es5/{TYPESET}"])
        Path(target).mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(scratch) / "es5" / TYPESET, Path(target) / TYPESET)
    return TYPESET
