"""Where the book's own model lies on this machine. No torch here."""

import os
from pathlib import Path

MODEL_NAME = "SmolLM2-135M-Instruct"


def models_folder():
    """Where fetched models lie: the environment variable BOOK_MODELS, or models/ in the checkout."""
    return Path(os.environ.get("BOOK_MODELS") or Path(__file__).resolve().parents[3] / "models")


def find_model(form="folder"):
    """The path of the book's real model: "folder" (config.json, safetensors, tokenizer.json) or "gguf" (as published).

    Raises: FileNotFoundError that names the command which fetches it.
    """
    folder = models_folder()
    paths = {"folder": folder / MODEL_NAME, "gguf": folder / f"{MODEL_NAME}.Q4_1.gguf"}
    if form not in paths:
        raise ValueError(f"form {form!r}: expected one of {', '.join(paths)}")
    last_written = {"folder": paths["folder"] / "config.json", "gguf": paths["gguf"]}
    if not last_written[form].is_file():
        raise FileNotFoundError(
            f"{paths[form]}: the model is not here; `make model` fetches it (python -m book.fetch_model)"
        )
    return paths[form]
