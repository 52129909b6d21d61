"""The text that chapters 07 and 09 train on: `make corpus`, or python -m book.corpus.

SmolLM2-135M-Instruct writes it through the book's own batched decoding (left padding, one cache,
`lib.generate`): short stories and explanations, a batch of prompts at a time, each batch with its own
seed. It is free to share and, once made, fixed: `load_corpus` refuses a text whose sha256 is not the
recorded one.

A small model wrote it, so much of what it explains is wrong. It is text to learn spelling and style from,
no source of facts.
"""

import argparse
import hashlib
import json
import lzma
import re
import time
import unicodedata
import zlib
from datetime import date
from pathlib import Path

from book.corpus_prompts import prompts
from book.paths import BUILD, NOTEBOOKS

DATA = NOTEBOOKS / "data"
BATCH = 128  # prompts decoded together
TARGET = 1_000_000  # bytes after cleaning: no further batch is started once they are there
SAMPLING = {"temperature": 0.8, "top_k": 50, "max_new_tokens": 320}
FIRST_SEED = 1000  # batch i is drawn with seed 1000 + i
SEPARATOR = "\n\n\n"  # between two texts; inside a text there are at most two newlines in a row
SHORTEST = 200  # bytes
HELD_OUT = 40_000  # bytes: the first texts, never trained on


# What is kept --------------------

_PLAIN = str.maketrans(
    {
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
        "–": "-",
        "—": "-",
        "…": "...",
        "•": "-",
        "\t": " ",
        "\u00a0": " ",
    }
)


def clean(text, ended=True):
    """Printable ASCII and newlines; a text that ran out of tokens is cut after its last whole sentence."""
    text = unicodedata.normalize("NFKD", text.translate(_PLAIN)).encode("ascii", "ignore").decode()
    text = "".join(c for c in text if c == "\n" or c.isprintable())
    text = re.sub(r" *\n", "\n", re.sub(r" {2,}", " ", text))
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    if not ended:
        ends = [m.end() for m in re.finditer(r"[.!?][\"')]?(?=\s|$)", text)]
        text = text[: ends[-1]] if ends else ""
    return text


def fault(text):
    """Why a cleaned text is not kept: "short", "repeats" or None.

    repeats: the same eight words in a row come three times or more, or zlib makes it smaller than 35 % of
    its length.
    """
    if len(text) < SHORTEST:
        return "short"
    words = re.findall(r"[a-z0-9']+", text.lower())
    counts = {}
    for at in range(len(words) - 7):
        key = tuple(words[at : at + 8])
        counts[key] = counts.get(key, 0) + 1
    packed = len(zlib.compress(text.encode(), 9)) / len(text)
    return "repeats" if packed < 0.35 or max(counts.values(), default=0) >= 3 else None


def assemble(parts):
    """The batches in order -> (text, counts): all cleaned, without the faulty and the equally beginning."""
    kept, seen = [], set()
    counts = {"written": 0, "short": 0, "repeats": 0, "same beginning": 0}
    for part in parts:
        for raw, ended in zip(part["texts"], part["ended"], strict=True):
            text = clean(raw, ended)
            why = fault(text) or ("same beginning" if text[:100] in seen else None)
            counts["written"] += 1
            if why:
                counts[why] += 1
            else:
                seen.add(text[:100])
                kept.append(text)
    counts["kept"] = len(kept)
    return SEPARATOR.join(kept) + "\n", counts


# Writing it --------------------


def chat(prompt):
    """One user turn without a system turn: shorter to prefill, and the model knows it too."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


def write_part(model, tokenizer, asked, seed, step=None, sampling=SAMPLING):
    """One batch: the model's raw answers and whether each ended by itself."""
    from lib import generate
    from lib.decoding import left_pad

    end = tokenizer.token_to_id("<|im_end|>")
    idx, pad = left_pad([tokenizer.encode(chat(p)).ids for p in asked])
    out = generate(model, idx, seed=seed, stop={end}, pad=pad, stream=step, **sampling)
    texts, ended = [], []
    for row in out[:, idx.shape[1] :].tolist():
        ended.append(end in row)
        texts.append(tokenizer.decode(row[: row.index(end)] if end in row else row, skip_special_tokens=True))
    return {"prompts": list(asked), "seed": seed, "texts": texts, "ended": ended}


def make_parts(folder=BUILD / "corpus", target=TARGET, minutes=None):
    """Batches into `folder`, one file each, until the cleaned text has `target` bytes; resumes.

    minutes: start no further batch after so long. Returns the list of batches.
    """
    import torch
    from tqdm import tqdm

    from lib import find_model, load_model, load_tokenizer

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    started, parts, asked = time.time(), [], prompts()
    model = tokenizer = None
    for i in range(len(asked) // BATCH):
        done = len(assemble(parts)[0]) if parts else 0
        if done >= target or (minutes and time.time() - started > 60 * minutes):
            break
        file = folder / f"part_{i:02d}.json"
        if not file.exists():
            if model is None:
                path = find_model()
                model, tokenizer = load_model(path, torch.float32), load_tokenizer(path)
            with tqdm(
                total=SAMPLING["max_new_tokens"], desc=f"batch {i} ({done / 1e6:.2f} MB so far)"
            ) as bar:
                part = write_part(
                    model,
                    tokenizer,
                    asked[i * BATCH : (i + 1) * BATCH],
                    FIRST_SEED + i,
                    lambda _: bar.update(),
                )
            part["torch"], part["date"] = torch.__version__, date.today().isoformat()
            new = file.with_suffix(".new")
            new.write_text(json.dumps(part, indent=1), encoding="utf-8")
            new.replace(file)  # whole or not at all
        parts.append(json.loads(file.read_text(encoding="utf-8")))
    return parts


# The fixed file --------------------

FILE = DATA / "corpus.txt.xz"
SHA256 = "78636f328b7a214e9a02dbd267cbc430ba29b6f9922603ed34b6c44118c4f10c"  # of the uncompressed text


def pack(text):
    """The same bytes for the same text: xz without a time stamp or a file name."""
    return lzma.compress(text.encode("ascii"), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, preset=9)


def load_corpus(file=FILE, sha256=SHA256):
    """The whole text as bytes (printable ASCII and newlines).

    Raises: FileNotFoundError; ValueError if the file is damaged or holds another text than the recorded one.
    """
    file = Path(file)
    if not file.exists():
        raise FileNotFoundError(f"{file.name} is not in {file.parent.name}/: it is part of the repository")
    try:
        text = lzma.decompress(file.read_bytes())
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(
            f"{file.name} cannot be unpacked ({error}): the file is damaged; fetch it again"
        ) from None
    got = hashlib.sha256(text).hexdigest()
    if got != sha256:
        raise ValueError(
            f"{file.name}: sha256 of the text is {got}, expected {sha256}: another text, whose results"
            " cannot be compared"
        )
    return text


def split(text, held_out_bytes=HELD_OUT):
    """bytes -> (train, held out): the first texts, at least `held_out_bytes` of them, are never trained on.

    They stand first so that a longer corpus changes neither them nor what a short run reads after them.
    Raises: ValueError if the text is too short.
    """
    at = text.find(SEPARATOR.encode(), held_out_bytes)
    if at < 0:
        raise ValueError(
            f"no separator after the first {held_out_bytes} of {len(text)} bytes: expected texts with"
            f" {SEPARATOR!r} between them"
        )
    at += len(SEPARATOR)
    return text[at:], text[:at]


def main(argv=None):
    """Write the corpus and say whether it is the recorded text; --replace puts it in its place."""
    import torch

    p = argparse.ArgumentParser("python -m book.corpus", description="SmolLM2 writes the training text.")
    p.add_argument("--minutes", type=float, help="start no further batch after so many minutes")
    p.add_argument("--replace", action="store_true", help="put the result into notebooks/data")
    args = p.parse_args(argv)
    torch.set_num_threads(
        1
    )  # the recorded text was drawn with one: another number rounds, and so draws, differently
    parts = make_parts(minutes=args.minutes)
    text, counts = assemble(parts)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    print(f"{len(parts)} batches, {len(text):,} bytes, sha256 {sha256}")
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    if args.replace:
        DATA.mkdir(parents=True, exist_ok=True)
        FILE.write_bytes(pack(text))
        print(f"{FILE.name} written; SHA256 in {Path(__file__).name} must name this text")
    elif sha256 == SHA256:
        print("the recorded text, byte for byte")
    else:
        print(
            "not the recorded text: another processor or torch rounds differently, and a draw that falls"
            " on the edge changes all that follows. notebooks/data is unchanged"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
