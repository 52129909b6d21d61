"""lib.files.generate: text as it comes, and the command `python -m lib generate`."""

import subprocess
import sys

import pytest
import torch

from lib.files.generate import TextStream, main


def byte_tokenizer():
    """Every byte a token, and one special token: the smallest byte-level BPE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    return tokenizer


def test_text_comes_as_whole_characters():
    tokenizer, parts = byte_tokenizer(), []
    text = "naïve 日本 🙂 e\u0301!"
    stream = TextStream(tokenizer, parts.append)
    for i in tokenizer.encode(text).ids:
        stream([i])
    stream([tokenizer.token_to_id("<|im_end|>")])
    assert "".join(parts) == text and not any("\ufffd" in part for part in parts)
    stream.end()
    assert "".join(parts) == text


def test_an_answer_cut_inside_a_character_shows_that_something_is_missing():
    tokenizer, parts = byte_tokenizer(), []
    stream = TextStream(tokenizer, parts.append)
    stream(tokenizer.encode("ab🙂").ids[:-2])
    assert "".join(parts) == "ab"
    stream.end()
    assert "".join(parts).startswith("ab\ufffd")


@pytest.mark.parametrize("path", [None, "nowhere"])
def test_without_a_model_the_command_says_how_to_get_it(monkeypatch, tmp_path, capsys, path):
    monkeypatch.setenv("BOOK_MODELS", str(tmp_path))
    code = main(["Hello", *(["--model", str(tmp_path / path)] if path else [])])
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.count("\n") == 1 and "make model" in err


@pytest.fixture
def toy_folder(tmp_path):
    from test_weights import CONFIG, llama_tensors, write_folder

    tokenizer = byte_tokenizer()
    vocab = tokenizer.get_vocab_size()
    tensors = llama_tensors()
    draw = torch.Generator().manual_seed(0)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.randn(vocab, CONFIG["hidden_size"], generator=draw)
    folder = write_folder(tmp_path / "toy", tensors, {"vocab_size": vocab})
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_the_command_answers_and_refuses(toy_folder, capsys):
    base = ["Hi", "--plain", "--max-new-tokens", "9", "--model", str(toy_folder)]
    assert main([*base, "--temperature", "1", "--seed", "3"]) == 0
    first = capsys.readouterr().out
    assert main([*base, "--temperature", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out == first and first.endswith("\n")
    for wrong, match in (
        (["--temperature", "-1"], "temperature = -1.0"),
        (["--device", "abacus"], "abacus"),
        (["--top-k", "0"], "top_k = 0"),
        (["--model", "a" * 5000], "too long"),
        (["--model", ""], "neither model.safetensors"),
        (["--system", "\udcff"], "the text is not UTF-8"),
    ):
        assert main([*base, *wrong]) == 2
        err = capsys.readouterr().err
        assert match in err and err.count("\n") == 1
    assert main(["", *base[1:]]) == 2
    assert "the text is empty" in capsys.readouterr().err
    assert main(["x" * 65, *base[1:]]) == 2
    assert "the prompt has 65 tokens" in capsys.readouterr().err
    assert main(["x" * 60, *base[1:]]) == 0  # four new ones fit, nine were asked for


def test_a_reader_that_leaves_early_is_no_error(toy_folder):
    """`| head -c1` closes the pipe in mid-answer."""
    code = "import sys; from lib.files.generate import main; sys.exit(main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        code,
        "Hi",
        "--plain",
        "--max-new-tokens",
        "40",
        "--model",
        str(toy_folder),
    ]
    run = subprocess.Popen(
        [*command, "--temperature", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    run.stdout.close()
    assert run.wait(timeout=120) == 0
    assert run.stderr.read() == ""
