"""lib.decoding: prefill and decode, greedy and sampled, one row and many."""

import math

import pytest
import torch

import toys
from lib import LlamaStyleLM, chat_prompt, generate
from lib.decoding import left_pad, sample


def by_hand(model, row, n):
    """Greedy decoding without a cache: the whole text through the model for every token."""
    row = row.clone()
    for _ in range(n):
        row = torch.cat([row, model(row[None])[0, -1:].argmax(-1)])
    return row


@pytest.fixture(scope="module")
def lm():
    return toys.model("gqa", tied=False)  # a tied toy repeats its last token for ever


@pytest.mark.parametrize("kind", ["gqa", "window", "mla_and_window", "longrope", "sandwich"])
def test_greedy_with_a_cache_is_greedy_without(kind):
    model = toys.model(kind, tied=False)
    idx = toys.tokens(3, 11)
    out = generate(model, idx, 9)
    assert out.shape == (3, 20) and torch.equal(out[:, :11], idx)
    assert len(set(out[0, 11:].tolist())) > 2  # an answer that repeats itself would prove little
    assert torch.equal(out, torch.stack([by_hand(model, row, 9) for row in idx]))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_text_grows_past_the_trained_length(kind):
    """16 tokens: before, what is asked for changes nothing; after, one uncached pass of the fed text is the judge."""
    model, idx = toys.model(kind, tied=False), toys.tokens(2, 10)
    calls, forward = [], model.forward
    model.forward = lambda ids, *rest, **named: calls.append(ids.shape[1]) or forward(ids, *rest, **named)
    out = generate(model, idx, 20)
    assert calls == [10] + [1] * 6 + [17] + [1] * 12  # the 17th token comes with all before it, once
    assert torch.equal(out[:, :17], generate(model, idx, 7))
    said = forward(out[:, :-1]).argmax(-1)
    assert torch.equal(out[:, 17:], said[:, 16:])
    assert not torch.equal(out[:, 11:17], said[:, 10:16])  # what came before was said on the other table


@pytest.mark.parametrize("kind", ["gqa", "window", "mla", "dynamic", "longrope"])
def test_rows_of_different_lengths_are_what_each_is_alone(kind):
    model = toys.model(kind, tied=False)
    rows = [toys.tokens(1, T, seed=T)[0].tolist() for T in (12, 5, 1)]
    idx, pad = left_pad(rows, fill=7)
    assert pad.tolist() == [0, 7, 11] and idx[1].tolist() == [7] * 7 + rows[1]
    together = generate(model, idx, 8, pad=pad)
    for row, said in zip(rows, together):
        assert said[12:].tolist() == generate(model, torch.tensor([row]), 8)[0, len(row) :].tolist()


@pytest.mark.parametrize("kind", ["gqa", "window"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_prompt_longer_than_one_chunk(monkeypatch, kind, padded):
    """Chunks of 64 tokens: the mask must be right where there are fewer queries than keys."""
    model = toys.model(kind, tied=False, max_len=256)
    idx, pad = toys.tokens(2, 150), torch.tensor([0, 70]) if padded else None
    whole = generate(model, idx, 6, pad=pad)
    monkeypatch.setattr("lib.decoding.PREFILL_TOKENS", 128)
    assert torch.equal(generate(model, idx, 6, pad=pad), whole)


def test_sampling_is_repeatable_by_seed_and_leaves_the_global_generator_alone(lm):
    idx = toys.tokens(4, 6)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = generate(lm, idx, 12, temperature=1.0, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, generate(lm, idx, 12, temperature=1.0, seed=3))
    assert not torch.equal(first, generate(lm, idx, 12, temperature=1.0, seed=4))
    generate(lm, idx, 2, temperature=1.0)
    assert not torch.equal(torch.get_rng_state(), state)


def frequencies(logits, n=40_000, **settings):
    draws = sample(
        torch.tensor([logits]).log().expand(n, -1), generator=torch.Generator().manual_seed(1), **settings
    )
    return torch.bincount(draws, minlength=len(logits)).div(n).tolist()


def test_what_each_setting_draws():
    """By hand from p = .1 .2 .4 .3: temperature 1/2 squares, top_k and top_p cut and rescale."""
    p = [0.1, 0.2, 0.4, 0.3]
    for settings, want in (
        ({}, p),
        ({"temperature": 0.5}, [0.01 / 0.3, 0.04 / 0.3, 0.16 / 0.3, 0.09 / 0.3]),
        ({"top_k": 2}, [0, 0, 4 / 7, 3 / 7]),
        ({"top_k": 99}, p),
        ({"top_p": 0.5}, [0, 0, 4 / 7, 3 / 7]),  # .4 is not yet half; the token that reaches it is kept
        ({"top_p": 0.75}, [0, 2 / 9, 4 / 9, 3 / 9]),
        ({"top_p": 0.3}, [0, 0, 1, 0]),
        ({"top_p": 1.0}, p),
        ({"top_k": 3, "top_p": 0.6}, [0, 0, 4 / 7, 3 / 7]),
        ({"temperature": 0.0}, [0, 0, 1, 0]),
    ):
        got = frequencies(p, **settings)
        # a count of n draws lies within five standard deviations
        assert all(
            abs(g - w) <= 5 * math.sqrt(w * (1 - w) / 40_000) for g, w in zip(got, want, strict=True)
        ), settings
        assert [x == 0 for x in got] == [x == 0 for x in want], settings


def test_a_row_stops_at_its_stop_token_and_the_others_go_on(lm):
    idx = toys.tokens(3, 5)
    free = generate(lm, idx, 10)[:, 5:].tolist()
    stop = free[0][2]
    until = [row.index(stop) if stop in row else None for row in free]
    out = generate(lm, idx, 10, stop=[stop])[:, 5:].tolist()
    for row, whole, at in zip(out, free, until):
        n = len(row) if at is None else at + 1
        assert row[:n] == whole[:n] and set(row[n:]) <= {stop}
    assert generate(lm, idx[:1], 10, stop=[stop]).shape == (1, 5 + until[0] + 1)


def test_stream_gets_every_step(lm):
    steps = []
    out = generate(lm, toys.tokens(2, 5), 7, stream=steps.append)
    assert torch.equal(torch.tensor(steps).T, out[:, 5:])


def test_no_new_tokens_and_the_last_that_fits(lm):
    idx = toys.tokens(1, 60)
    assert torch.equal(generate(lm, idx, 0), idx)
    assert generate(lm, idx, 4).shape == (1, 64)  # max_len is 64


def test_what_is_generated_may_be_trained_on(lm):
    model = toys.model("gqa").requires_grad_()
    out = generate(model, toys.tokens(2, 5), 4)
    model(out).sum().backward()
    assert model.blocks[0].attn.wq.weight.grad.abs().sum() > 0


def test_bfloat16_runs_and_returns_ids():
    out = generate(toys.model("gqa", torch.bfloat16), toys.tokens(2, 5), 4, temperature=0.8, seed=0)
    assert out.dtype == torch.int64 and out.max() < toys.V


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"idx": toys.tokens(1, 65)}, r"the prompt has 65 tokens and the model's max_len is 64"),
        (
            {"max_new_tokens": 60},
            r"a prompt of 5 tokens and 60 new ones need 65 positions, max_len is 64: ask for at most 59",
        ),
        ({"idx": toys.tokens(1, 5)[0]}, r"token ids \[5\].*\[1, T\]"),
        ({"idx": [1, 2, 3]}, "token ids are a list: expected a tensor"),
        ({"idx": toys.tokens(1, 5).float()}, r"float32"),
        ({"idx": toys.tokens(1, 5)[:, :0]}, r"at least one"),
        ({"idx": torch.tensor([[3, toys.V]])}, r"vocabulary has 97"),
        ({"idx": torch.tensor([[-1, 3]])}, r"from -1 to 3"),
        ({"max_new_tokens": -1}, "max_new_tokens = -1"),
        ({"max_new_tokens": 2.0}, "max_new_tokens = 2.0"),
        ({"temperature": -0.1}, "temperature = -0.1"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"temperature": 1e-300}, "temperature = 1e-300"),
        ({"seed": 10**30}, "seed = 1000000"),
        ({"seed": "three"}, "seed = 'three'"),
        ({"top_k": 0}, "top_k = 0"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"top_p": 1.5}, "top_p = 1.5"),
        ({"pad": torch.tensor([0, 0])}, r"pad \[0, 0\]: expected one count a row, \[1\]"),
        ({"pad": torch.tensor([5])}, r"pad \[5\].*from 0 to 4"),
    ],
)
def test_bad_settings_are_refused(lm, settings, match):
    with pytest.raises(ValueError, match=match):
        generate(lm, **{"idx": toys.tokens(1, 5), "max_new_tokens": 3, **settings})


def test_left_pad_refuses_an_empty_prompt():
    with pytest.raises(ValueError, match="2 prompts, the shortest of 0 tokens"):
        left_pad([[1, 2], []])


def test_a_prefill_makes_the_logits_of_one_position_a_row_and_bounded_chunks(monkeypatch):
    model, calls = LlamaStyleLM(V=1000, d=16, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=8), []
    forward = model.forward

    def watched(idx, *rest, **named):
        logits = forward(idx, *rest, **named)
        calls.append((idx.shape[1], logits.shape[1]))
        return logits

    monkeypatch.setattr(model, "forward", watched)
    monkeypatch.setattr("lib.decoding.PREFILL_TOKENS", 800)
    generate(model, toys.tokens(2, 900), 1)
    assert calls == [(400, 1), (400, 1), (100, 1)]


def test_chat_prompt_by_hand():
    assert chat_prompt("Hi", system="Be brief.") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat_prompt("Hi").startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
