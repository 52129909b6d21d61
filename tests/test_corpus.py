"""The training text: cleaning and dropping by hand-made cases, batches that resume, and the committed file
itself."""

import hashlib
import json
import lzma
import random
from types import SimpleNamespace

import pytest
import torch

from book import corpus
from book.corpus_prompts import prompts
from lib import LlamaStyleLM


def words(n, seed=0):
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(n)) + "."


def test_prompts_are_many_different_and_in_a_fixed_order():
    asked = prompts()
    assert len(asked) == len(set(asked)) == 1536
    assert asked[0] == "Write a short story about Ines the baker who finds an old key in a harbour town."
    assert asked[1] == "Explain why the sky is blue in simple words."
    assert all(p.isascii() and "{" not in p for p in asked)


@pytest.mark.parametrize(
    "raw, want",
    [
        ("“It’s late,” she said — again…", '"It\'s late," she said - again...'),
        ("caf\u00e9\t\u00a0x  y \n\n\n\nz \n", "cafe x y\n\nz"),
        ("ok \U0001f642 fine\x00", "ok fine"),
    ],
)
def test_clean_gives_printable_ascii(raw, want):
    assert corpus.clean(raw) == want


def test_an_answer_that_ran_out_of_tokens_ends_with_its_last_whole_sentence():
    assert corpus.clean('One. "Two!" Three point 3.5 an', ended=False) == 'One. "Two!"'
    assert corpus.clean("never a full stop", ended=False) == ""
    assert corpus.clean("never a full stop", ended=True) == "never a full stop"


def test_fault_names_the_reason():
    assert corpus.fault("Too short.") == "short"
    assert corpus.fault(words(60)) is None
    phrase = "and then she went back to the little house"  # nine words
    twice, thrice = (" ".join([words(40, i) + " " + phrase for i in range(n)]) for n in (2, 3))
    assert corpus.fault(twice) is None and corpus.fault(thrice) == "repeats"
    assert corpus.fault("ha " * 100) == "repeats"


def test_assemble_keeps_order_and_drops_faulty_and_equal_texts():
    a, b = words(60, 1), words(60, 2)
    parts = [
        {"texts": [a, "tiny"], "ended": [True, True]},
        {"texts": [a, b + " cut he", "la " * 300], "ended": [True, False, True]},
    ]
    text, counts = corpus.assemble(parts)
    assert text == a + corpus.SEPARATOR + b + "\n"
    assert counts == {"written": 5, "short": 1, "repeats": 1, "same beginning": 1, "kept": 2}


class Letters:
    """A tokenizer of one letter a token; 1 ends a turn."""

    def token_to_id(self, token):
        return {"<|im_end|>": 1}[token]

    def encode(self, text):
        return SimpleNamespace(ids=[2 + ord(c) % 60 for c in text])

    def decode(self, ids, skip_special_tokens):
        assert 1 not in ids and skip_special_tokens
        return "".join(chr(64 + i) for i in ids)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LlamaStyleLM(62, d=16, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=24, max_len=256)


def test_a_batch_is_repeatable_and_says_who_ended(model):
    settings = {"temperature": 0.8, "top_k": 50, "max_new_tokens": 40}
    first, again, other = (
        corpus.write_part(model, Letters(), ["ab", "abcde", "x"], seed, sampling=settings)
        for seed in (7, 7, 8)
    )
    assert first == again and first["texts"] != other["texts"]
    assert first["prompts"] == ["ab", "abcde", "x"] and first["seed"] == 7
    for text, ended in zip(first["texts"], first["ended"]):
        assert (len(text) < 40) == ended
    assert any(first["ended"] + other["ended"])


def test_batches_resume_and_stop_at_the_target(tmp_path, monkeypatch):
    import lib

    asked_for = []

    def write(model, tokenizer, asked, seed, step):
        asked_for.append(seed)
        if len(asked_for) == 2:
            raise KeyboardInterrupt
        return {"texts": [words(50, seed), words(50, seed + 500)], "ended": [True, True], "seed": seed}

    for name in ("find_model", "load_model", "load_tokenizer"):
        monkeypatch.setattr(lib, name, lambda *_: None)
    monkeypatch.setattr(corpus, "write_part", write)
    with pytest.raises(KeyboardInterrupt):
        corpus.make_parts(tmp_path, target=1500)
    assert [f.name for f in tmp_path.iterdir()] == ["part_00.json"]
    parts = corpus.make_parts(tmp_path, target=1500)
    assert asked_for == [1000, 1001, 1001, 1002]
    assert [p["seed"] for p in parts] == [1000, 1001, 1002] and len(corpus.assemble(parts)[0]) >= 1500
    assert json.loads((tmp_path / "part_02.json").read_text()) == parts[2]


def test_pack_is_deterministic_and_carries_nothing_but_the_text():
    assert corpus.pack("abc\n" * 100) == corpus.pack("abc\n" * 100)
    assert lzma.decompress(corpus.pack("abc\n")) == b"abc\n"


def test_split_cuts_between_two_texts_and_a_longer_text_keeps_its_held_out_part():
    text = (corpus.SEPARATOR.join(words(30, i) for i in range(40)) + "\n").encode()
    train, held_out = corpus.split(text, 1000)
    assert held_out + train == text and held_out.endswith(b".\n\n\n") and not train.startswith(b"\n")
    assert 1000 < len(held_out) < 1000 + len(words(30)) + 4
    assert corpus.split(text + b"more", 1000) == (train + b"more", held_out)
    with pytest.raises(ValueError, match="no separator"):
        corpus.split(text, len(text))


def test_another_text_a_damaged_file_and_a_missing_one_are_refused(tmp_path):
    file = tmp_path / "corpus.txt.xz"
    with pytest.raises(FileNotFoundError, match="part of the repository"):
        corpus.load_corpus(file)
    file.write_bytes(corpus.pack("another text\n"))
    with pytest.raises(ValueError, match="another text"):
        corpus.load_corpus(file)
    assert corpus.load_corpus(file, hashlib.sha256(b"another text\n").hexdigest()) == b"another text\n"
    file.write_bytes(corpus.FILE.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="damaged"):
        corpus.load_corpus(file)


def test_the_committed_text_is_the_recorded_one():
    text = corpus.load_corpus()
    assert hashlib.sha256(text).hexdigest() == corpus.SHA256
    assert 500_000 <= len(text) <= 1_300_000
    assert set(text) <= set(b"\n") | set(range(32, 127))
    readme = (corpus.DATA / "README.md").read_text(encoding="utf-8")
    assert corpus.SHA256 in readme and f"{len(text):,} bytes" in readme
    texts = text.decode().rstrip("\n").split(corpus.SEPARATOR)
    assert f"{len(texts):,} texts" in readme
    assert all(corpus.fault(t) is None and corpus.clean(t) == t for t in texts)
    assert len({t[:100] for t in texts}) == len(texts)
    assert corpus.pack(text.decode()) == corpus.FILE.read_bytes()
