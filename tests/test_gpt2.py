"""The 2019 block, beside which the modern one is shown. Parity with transformers is in test_against_transformers.py."""

import pytest
import torch

import toys
from lib import GPT2LM, GPT2Block, LlamaStyleLM, parameters
from lib.gpt2 import gpt2_style
from tolerances import assert_close, model_sums


def test_gpt2_small_has_124_439_808_parameters():
    with torch.device("meta"):
        lm = GPT2LM(50257, 768, 12, 12)
    assert sum(p.numel() for p in lm.parameters()) == 124_439_808 == parameters(lm.config).total
    assert lm.head.weight is lm.emb.weight and lm.head.weight.numel() == 38_597_376


@pytest.mark.parametrize("tie", [True, False])
def test_parameters_are_what_arithmetic_counts(tie):
    lm = GPT2LM(97, 60, 2, 5, 50, d_ff=44, tie=tie)
    assert sum(p.numel() for p in lm.parameters()) == parameters(lm.config).total
    assert parameters(lm.config).head == (0 if tie else 97 * 60)


def test_the_block_by_the_formula():
    block = toys.randomise(GPT2Block(60, 5, 44)).double()
    x = torch.randn(2, 7, 60, dtype=torch.float64)

    def norm(y, w, b):
        y = y - y.mean(-1, True)
        return y / (y.pow(2).mean(-1, True) + 1e-5).sqrt() * w + b

    y = norm(x, block.attn_norm.weight, block.attn_norm.bias)
    q, k, v = (
        (y @ w.weight.T + w.bias).unflatten(-1, (5, 12)).transpose(1, 2)
        for w in (block.attn.wq, block.attn.wk, block.attn.wv)
    )
    scores = (q @ k.transpose(-1, -2) / 12**0.5).masked_fill(torch.ones(7, 7).triu(1).bool(), float("-inf"))
    h = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ block.attn.wo.weight.T + block.attn.wo.bias
    y = norm(h, block.ffn_norm.weight, block.ffn_norm.bias) @ block.ffn.w_up.weight.T + block.ffn.w_up.bias
    y = 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y**3)))
    want = h + y @ block.ffn.w_down.weight.T + block.ffn.w_down.bias
    assert_close(block(x), want, model_sums(gpt2_style(97, 60, 1, 5, 50), 7))


def test_positions_are_learned_absolute_and_end():
    lm = toys.randomise(GPT2LM(97, 60, 2, 5, 50))
    idx = toys.tokens(3, 50)
    assert lm(idx).shape == (3, 50, 97)
    lm.pos.weight[40:] += 1.0
    before = lm(idx[:, :40])
    lm.pos.weight[40:] += 1.0
    assert torch.equal(lm(idx[:, :40]), before)
    with pytest.raises(
        ValueError, match=r"51 tokens: the learned position table has 50 rows \(max_len\) and no more"
    ):
        lm(toys.tokens(1, 51))


def test_as_a_config_it_is_counted_and_refused():
    with pytest.raises(ValueError, match="the block does not run learned positions"):
        LlamaStyleLM.from_config(gpt2_style(97, 60, 2, 5, 50))
    with pytest.raises(ValueError, match="d = 60 is not divisible by n_heads = 7"):
        GPT2LM(97, 60, 2, 7)
