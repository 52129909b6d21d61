"""The training runs of chapters 07 and 09: equal parameters, same batches, repeatable, resumable; the
results as committed."""

import json
import math

import pytest
import torch

from book.corpus import SEPARATOR, load_corpus, split
from book.corpus_prompts import prompts
from book.experiments import (
    ABLATIONS,
    EXPERIMENTS,
    SIZES,
    TITLES,
    build,
    count,
    load_results,
    quick_run,
    run_experiment,
)
from book.experiments import runs as runs_module
from book.experiments.runs import Experiment, fingerprint, main, unigram_bits
from book.experiments.training import (
    as_bytes,
    attention_state,
    batches,
    bits_per_byte,
    loss_of,
    schedule,
    train,
    windows,
)
from lib import GPT2LM, LlamaStyleLM, parameters
from tolerances import as_printed, assert_close, distance, model_sums, rtol

TINY = {"V": 256, "d": 24, "n_layers": 2, "n_heads": 4, "max_len": 16}
SMALL = Experiment(
    ("2019", "modern"), (3e-3,), steps=4, seeds=(0, 1), batch=2, probe_every=2, sizes=tuple(TINY.items())
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def text():
    return SEPARATOR.join(prompts()).encode()


@pytest.mark.parametrize("variant", TITLES)
def test_every_variant_has_the_parameters_of_the_2019_model_within_one_percent(variant):
    target = count(GPT2LM(256, 128, 5, 4, 128))
    model = build(variant)
    assert 1_000_000 < target < 1_100_000
    assert abs(count(model) / target - 1) < 0.01
    assert model(torch.zeros(2, 7, dtype=torch.long)).shape == (2, 7, 256)


def test_the_two_ends_are_libs_own_models():
    assert type(build("2019", TINY)) is GPT2LM
    modern = build("modern", TINY)
    assert type(modern) is LlamaStyleLM
    assert count(modern) == parameters(modern.config).total
    attention, ffn = modern.config.layers[0].attention, modern.config.layers[0].ffn
    assert (attention.n_heads, attention.n_kv_heads, attention.qk_norm, ffn.gated) == (4, 2, True, True)


def test_each_ablation_takes_back_exactly_one_upgrade():
    modern = build("modern", TINY).config
    changes = {}
    for variant in ABLATIONS:
        config, changed = build(variant, TINY).config, []
        for field in ("norm", "tied"):
            changed += [field] * (getattr(config, field) != getattr(modern, field))
        for part in ("attention", "ffn"):
            ours, theirs = (vars(getattr(c.layers[0], part)) for c in (config, modern))
            changed += [f"{part}.{k}" for k in ours if ours[k] != theirs[k] and k != "d_ff"]
        changes[variant] = changed
    assert changes == {
        "layernorm": ["norm"],
        "gelu": ["ffn.gated", "ffn.activation"],
        "learned": ["attention.rope"],
        "mha": ["attention.n_kv_heads"],
        "no_qk_norm": ["attention.qk_norm"],
        "biases": ["attention.bias", "attention.out_bias", "ffn.bias"],
        "tied": ["tied"],
    }


def test_learned_positions_are_added_and_causal():
    model = build("learned", TINY).eval()
    idx = torch.randint(256, (1, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(idx)
        assert_close(model(idx[:, :5]), before[:, :5], model_sums(model.config, 9))
        model.pos.weight[3] += 1.0
        after = model(idx)
    assert torch.equal(after[:, :3], before[:, :3]) and distance(after[:, 3:], before[:, 3:]) > 0.01


def test_an_unknown_variant_is_named():
    with pytest.raises(ValueError, match="no variant 'rmsnorm'; there are: 2019, modern, layernorm"):
        build("rmsnorm", TINY)


def test_initialisation_follows_the_stated_rule():
    model = build("modern", seed=3)
    std = {name: p.std().item() for name, p in model.named_parameters() if p.dim() == 2}
    for name, value in std.items():
        residual = name.endswith(("wo.weight", "w_down.weight"))
        assert value == pytest.approx(0.02 / math.sqrt(10) if residual else 0.02, rel=0.03), name
    assert sum(name.endswith(("wo.weight", "w_down.weight")) for name in std) == 10
    assert all((p == 1).all() for name, p in model.named_parameters() if p.dim() == 1)
    old = dict(build("2019", seed=3).named_parameters())
    assert all((p == 0).all() for name, p in old.items() if name.endswith("bias"))


def test_schedule_by_hand():
    rates = [schedule(i, 20, 1.0) for i in range(20)]
    assert rates[:2] == [0.5, 1.0] and rates[2] == 1.0
    assert rates[-1] == pytest.approx(0.1) and sorted(rates[2:], reverse=True) == rates[2:]


def test_batches_read_the_text_once_in_an_order_that_depends_on_the_seed_alone(text):
    ids = as_bytes(text)
    a, b, c = (list(batches(ids, 3, 2, 16, seed)) for seed in (0, 0, 1))
    assert [x.shape for x in a] == [(2, 17)] * 3
    assert all(torch.equal(x, y) for x, y in zip(a, b)) and not torch.equal(a[0], c[0])
    read = sorted(bytes(w.tolist()) for x in a for w in x)
    assert read == sorted(text[i * 16 : i * 16 + 17] for i in range(6))
    assert next(batches(ids[:97], 3, 2, 16, 0)).shape == (2, 17)
    with pytest.raises(ValueError, match="3 steps of 2 windows read 97 once"):
        next(batches(ids[:96], 3, 2, 16, 0))


def test_windows_predict_every_byte_once():
    got = windows(torch.arange(50), 7, 100)
    assert got.shape == (7, 8)
    assert got[:, 1:].flatten().tolist() == list(range(1, 50))


def test_bits_per_byte_of_a_model_that_knows_nothing():
    model = build("modern", TINY)
    torch.nn.init.zeros_(model.head.weight)
    assert bits_per_byte(model, torch.randint(256, (5, 17))) == pytest.approx(8.0)


def test_unigram_bits_by_hand():
    # add-one over 256 bytes: P(a) = 3 / 259, P(b) = 2 / 259
    want = (-math.log2(3 / 259) - math.log2(2 / 259)) / 2
    assert unigram_bits(b"aab", b"ab") == pytest.approx(want)


def test_attention_state_of_uniform_attention_and_of_a_known_logit():
    model = build("no_qk_norm", TINY)
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.wq.weight)
    idx = torch.randint(256, (2, 16), generator=torch.Generator().manual_seed(0))
    largest, mean, lowest = attention_state(model, idx)
    want = sum(math.log(n) for n in range(9, 17)) / 8  # queries 8 .. 15 see 9 .. 16 keys
    assert largest == 0 and [mean, lowest] == pytest.approx([want, want], rel=rtol(torch.float32, (16, 16)))

    model = build("2019", {**TINY, "n_layers": 1})
    attention, seen = model.blocks[0].attn, []
    hook = attention.register_forward_pre_hook(lambda m, a: seen.append(a[0]))
    largest, _, _ = attention_state(model, idx)
    hook.remove()
    attention_state(model, idx)
    q, k = attention.wq(seen[0]).view(2, 16, 4, 6), attention.wk(seen[0]).view(2, 16, 4, 6)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(6)
    assert largest == pytest.approx(scores.tril().abs().max().item(), rel=rtol(torch.float32, (24, 6)))


def test_the_loss_goes_down_and_the_same_seed_gives_the_same_run(text):
    train_text, held_out = split(text)
    ids, held = as_bytes(train_text), as_bytes(held_out)
    first, again, other = (
        train("modern", 3e-3, s, ids, held, 30, batch=4, sizes=TINY, checks=2) for s in (0, 0, 1)
    )
    assert first == again and first["loss"] != other["loss"]
    assert sum(first["loss"][-5:]) / 5 < first["loss"][0] - 1.0
    assert first["held_out"][1][1] < first["held_out"][0][1]
    assert first["bits_per_byte"] == first["held_out"][-1][1] and first["held_out"][-1][0] == 30
    assert [p[0] for p in first["probes"]] == [0, 16, 30]


def test_a_loss_that_is_not_finite_ends_the_run_and_stays_json(text):
    ids = as_bytes(text)
    run = train("no_qk_norm", 1e30, 0, ids, ids[:200], 6, batch=2, sizes=TINY, probe_every=1)
    assert not run["finished"] and run["loss"][-1] is None and run["bits_per_byte"] is None
    assert json.loads(json.dumps(run, allow_nan=False)) == run


def _results_without_the_clock(path):
    data = json.loads(path.read_text())
    for run in data["runs"]:
        assert run.pop("made")["torch"] == torch.__version__
    return data


def test_an_interrupted_experiment_goes_on_to_the_same_file(text, tmp_path, monkeypatch):
    run_experiment("training", SMALL, tmp_path / "whole", text)
    calls, real = [], runs_module.train

    def interrupted(*args, **more):
        calls.append(args[:3])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **more)

    monkeypatch.setattr(runs_module, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment("training", SMALL, tmp_path / "parts", text)
    assert len(json.loads((tmp_path / "parts" / "training.json").read_text())["runs"]) == 2
    run_experiment("training", SMALL, tmp_path / "parts", text)
    assert calls == [
        ("2019", 3e-3, 0),
        ("modern", 3e-3, 0),
        ("2019", 3e-3, 1),
        ("2019", 3e-3, 1),
        ("modern", 3e-3, 1),
    ]
    whole, parts = (_results_without_the_clock(tmp_path / f / "training.json") for f in ("whole", "parts"))
    assert whole == parts and len(whole["runs"]) == 4
    run_experiment("training", SMALL, tmp_path / "parts", text)
    assert len(calls) == 5  # nothing was left to run


def test_results_of_other_settings_or_another_text_are_not_continued(text, tmp_path):
    run_experiment("training", SMALL, tmp_path, text)
    longer = Experiment(**{**vars(SMALL), "steps": 5})
    with pytest.raises(ValueError, match="made with settings"):
        run_experiment("training", longer, tmp_path, text)
    with pytest.raises(ValueError, match="made with text"):
        run_experiment("training", SMALL, tmp_path, text.replace(b"e", b"i"))
    run_experiment(
        "training", SMALL, tmp_path, text + b"more\n"
    )  # a longer text that begins alike is the same text


def test_unknown_names_and_missing_results_are_said_so(tmp_path, capsys):
    with pytest.raises(
        ValueError, match="no experiment 'speed'; there are: training, qk_norm, ablation, second_rate"
    ):
        run_experiment("speed")
    with pytest.raises(ValueError, match="no experiment"):
        load_results("speed")
    with pytest.raises(FileNotFoundError, match="make experiments"):
        load_results("training", tmp_path)
    assert main(["speed"]) == 2
    assert "no experiment 'speed'" in capsys.readouterr().err


def test_quick_run_trains_both_blocks_with_equal_parameters(text):
    got = quick_run(steps=12, text=text)
    assert set(got) == {"2019", "modern"}
    assert abs(got["modern"]["parameters"] / got["2019"]["parameters"] - 1) < 0.01
    for run in got.values():
        assert len(run["loss"]) == 12 and run["loss"][-1] < run["loss"][0] - 0.5
        assert 2 < run["bits_per_byte"] < 8
    assert quick_run(steps=12, text=text) == got


def test_the_plan_is_what_the_docstring_says():
    training, qk_norm, ablation, second = (
        EXPERIMENTS[k] for k in ("training", "qk_norm", "ablation", "second_rate")
    )
    assert all(len(e.seeds) >= 3 and dict(e.sizes) == SIZES for e in EXPERIMENTS.values())
    assert training.rates == ablation.rates == (3e-3,) and qk_norm.rates == (1e-2, 3e-2, 1e-1)
    for other in (ablation, second):  # one baseline serves both, and only the rate differs in the second
        assert (training.steps, training.batch, training.seeds) == (other.steps, other.batch, other.seeds)
    assert training.plan()[:3] == [("2019", 3e-3, 0), ("modern", 3e-3, 0), ("2019", 3e-3, 1)]


# The committed results --------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_results_are_whole_and_belong_to_this_text_and_these_settings(name, capsys):
    results, experiment = load_results(name), EXPERIMENTS[name]
    assert capsys.readouterr().out.startswith(
        f"{name}: {len(experiment.plan())} of {len(experiment.plan())} runs"
    )
    assert results["settings"] == json.loads(json.dumps(experiment.settings()))
    assert results["text"] == fingerprint(experiment, *split(load_corpus()))
    assert [(r["variant"], r["lr"], r["seed"]) for r in results["runs"]] == experiment.plan()
    old = count(GPT2LM(256, 128, 5, 4, 128))
    for run in results["runs"]:
        assert abs(run["parameters"] / old - 1) < 0.01 and run["parameters"] == count(build(run["variant"]))
        assert set(run["made"]) >= {
            "date",
            "torch",
            "python",
            "device",
            "cpu",
            "threads",
            "seconds",
            "corpus_sha256",
        }
        bits, steps = run["bits_per_byte"], experiment.steps
        assert run["diverged"] == (bits is None or bits > results["text"]["unigram_bits"])
        if run["finished"]:
            assert len(run["loss"]) == steps and run["held_out"][-1] == [steps, bits]
            assert [p[0] for p in run["probes"]] == [*range(0, steps, experiment.probe_every), steps]
        else:
            assert bits is None and run["loss"][-1] is None


def test_the_first_steps_of_a_committed_run_come_out_again():
    """The first loss depends on the initial weights and the first batch alone: any machine finds it."""
    results, ids = load_results("training", quiet=True), as_bytes(split(load_corpus())[0])
    steps, batch = (results["settings"][k] for k in ("steps", "batch"))
    for run in results["runs"][:2]:
        with torch.no_grad():
            loss = loss_of(
                build(run["variant"], seed=run["seed"]), next(batches(ids, steps, batch, 128, run["seed"]))
            )
        as_printed(loss.item(), run["loss"][0], 4)
