"""The book against transformers: the same random weights, saved as a checkpoint and read by `load_model`, family by family.

Run with -s to see the table. Its differences are in float32, as shares of the largest logit.
"""

import functools
import inspect
import tempfile

import pytest
import torch
import transformers

import parity
from lib import GPT2LM, LlamaStyleLM, load_model, parameters
from lib.gpt2 import gpt2_style
from lib.lengths import Call
from tolerances import assert_close, attention_sums, distance, model_sums, rtol

B, T, PROMPT = 3, 41, 6
VOCAB = parity.COMMON["vocab_size"]


def tokens(T=T):
    return torch.randint(0, VOCAB, (B, T), generator=torch.Generator().manual_seed(1))


@functools.cache
def pair(name, dtype=None, seed=0):
    """(their model, ours) with the same weights, through files as a reader's checkpoint would come."""
    theirs = parity.build(*{**parity.FAMILIES, **parity.BY_LENGTH}[name], seed=seed)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return theirs, load_model(folder), load_model(folder, dtype=torch.bfloat16)


def stepwise(model, idx, cache):
    """Logits of a prompt and then single tokens, each step through the model's cache."""
    theirs = not isinstance(model, LlamaStyleLM)
    key = (
        "past_key_values"
        if theirs and "cache" not in inspect.signature(model.forward).parameters
        else "cache"
    )
    out, start = [], 0
    for size in (PROMPT, *[1] * (idx.shape[1] - PROMPT)):
        logits = model(idx[:, start : start + size], **{key: cache})
        out.append(logits if isinstance(logits, torch.Tensor) else logits.logits)
        start += size
    return torch.cat(out, dim=1)


@functools.cache
@torch.no_grad()
def measured(name):
    theirs, ours, ours16 = pair(name)
    idx = tokens()
    want = theirs(idx).logits
    their_steps = stepwise(theirs, idx, transformers.DynamicCache(config=theirs.config))
    our_steps = stepwise(ours, idx, ours.new_cache(B, T))
    top = want.topk(2, dim=-1).values
    wide = top[..., 0] - top[..., 1] > 0.05
    same = ours16(idx).argmax(-1) == want.argmax(-1)
    return {
        "prefill": distance(ours(idx), want),
        "decode": distance(our_steps, their_steps),
        "bound": rtol(torch.float32, model_sums(ours.config, T)),
        "wide": wide.float().mean().item(),
        "same": same[wide].float().mean().item(),
    }


@pytest.mark.parametrize("name", parity.FAMILIES)
def test_family(name):
    row = measured(name)
    assert row["prefill"] <= row["bound"]
    assert row["decode"] <= row["bound"]
    assert row["wide"] >= 0.9, (
        "too few positions tell anything about bfloat16: the toy model's logits are too close"
    )
    assert row["same"] == 1.0


def test_the_parity_table(capsys):
    lines = [f"{'family':24} {'prefill':>9} {'decode':>9}   bf16 argmax where the fp32 margin is above 0.05"]
    for name in parity.FAMILIES:
        row = measured(name)
        lines.append(
            f"{name:24} {row['prefill']:9.1e} {row['decode']:9.1e}   {row['same']:.1%} of {row['wide']:.1%} of positions"
        )
    with capsys.disabled():
        print(
            "\n\nThe book against transformers",
            transformers.__version__,
            "max |difference| / max |logit| in float32",
        )
        print("\n".join(lines))
    assert len(lines) == 1 + len(parity.FAMILIES)


def test_a_wrong_weight_is_seen():
    """The comparison can fail: one gain moved by 1 % is far outside the tolerance."""
    theirs, ours, _ = pair("Qwen3 (QK-norm)", seed=5)
    ours.blocks[1].attn.k_norm.weight.data[3] *= 1.01
    assert distance(ours(tokens()), theirs(tokens()).logits) > 2 * rtol(
        torch.float32, model_sums(ours.config, T)
    )


@pytest.mark.parametrize("length", [24, 32, 41, 60])
@pytest.mark.parametrize("name", parity.BY_LENGTH)
def test_scalings_that_depend_on_the_length(name, length):
    """One-shot forwards on both sides of the trained length (32): transformers picks its table by this call's length."""
    theirs, ours, _ = pair(name)
    with torch.no_grad():
        idx = tokens(length)
        assert_close(ours(idx), theirs(idx).logits, model_sums(ours.config, length))


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["Qwen3 (QK-norm)", "Gemma 3 (two bases)", "SmolLM3 (NoPE)", "DeepSeek-V3 (dense)"]
)
def test_left_padding(name):
    theirs, ours, _ = pair(name)
    idx, pad = tokens(23), torch.tensor([0, 4, 9])
    attention_mask = (torch.arange(23) >= pad[:, None]).long()
    positions = (torch.arange(23) - pad[:, None]).clamp(min=0)
    want = theirs(idx, attention_mask=attention_mask, position_ids=positions).logits
    real = attention_mask.bool()
    assert_close(ours(idx, pad=pad)[real], want[real], model_sums(ours.config, 23))


@torch.no_grad()
@pytest.mark.parametrize("form", ["expanded", "absorbed"])
@pytest.mark.parametrize("name", ["DeepSeek-V3 (dense)", "DeepSeek-V2 (no q_lora)"])
def test_latent_attention_module_by_module(name, form):
    """Every layer's attention on the very hidden states that transformers' module got: prefill and decode, both forms."""
    theirs, ours, _ = pair(name)
    seen = [[] for _ in theirs.model.layers]
    hooks = [
        layer.self_attn.register_forward_hook(
            lambda _, args, kwargs, out, i=i: seen[i].append((kwargs["hidden_states"], out[0])),
            with_kwargs=True,
        )
        for i, layer in enumerate(theirs.model.layers)
    ]
    idx = tokens(11)
    stepwise(theirs, idx, transformers.DynamicCache(config=theirs.config))
    for hook in hooks:
        hook.remove()
    cache = ours.new_cache(B, 11)
    for i, block in enumerate(ours.blocks):
        attn, start = block.attn, 0
        for x, want in seen[i]:
            columns = torch.arange(start, start + x.shape[1])
            cos, sin = ours._rows(attn.fields, columns, Call(start, 11, 11, None))
            got = getattr(attn, form)(x, cos, sin, cache.layers[i])
            assert_close(got, want, attention_sums(ours.config.d, attn.fields, 11))
            start += x.shape[1]
        assert start == 11


def gpt2_pair(tie=True):
    d, n_heads, n_layers, V, max_len = 60, 5, 3, 37, 50
    config = transformers.GPT2Config(
        vocab_size=V, n_embd=d, n_head=n_heads, n_layer=n_layers, n_positions=max_len, tie_word_embeddings=tie
    )
    theirs = parity.randomise(
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    )
    ours = GPT2LM(V, d, n_layers, n_heads, max_len, tie=tie).eval()
    w = theirs.state_dict()
    new = {"emb.weight": w["transformer.wte.weight"], "pos.weight": w["transformer.wpe.weight"]}
    new |= {f"norm.{p}": w[f"transformer.ln_f.{p}"] for p in ("weight", "bias")}
    new["head.weight"] = w["lm_head.weight"]
    for i in range(n_layers):
        a, b = f"transformer.h.{i}.", f"blocks.{i}."
        for p in ("weight", "bias"):
            turn = (lambda t: t.T) if p == "weight" else (lambda t: t)  # Conv1D keeps inputs first
            new[f"{b}attn_norm.{p}"], new[f"{b}ffn_norm.{p}"] = w[f"{a}ln_1.{p}"], w[f"{a}ln_2.{p}"]
            for name, part in zip(("wq", "wk", "wv"), turn(w[f"{a}attn.c_attn.{p}"]).split(d)):
                new[f"{b}attn.{name}.{p}"] = part
            new[f"{b}attn.wo.{p}"] = turn(w[f"{a}attn.c_proj.{p}"])
            new[f"{b}ffn.w_up.{p}"] = turn(w[f"{a}mlp.c_fc.{p}"])
            new[f"{b}ffn.w_down.{p}"] = turn(w[f"{a}mlp.c_proj.{p}"])
    ours.load_state_dict(new)
    return theirs, ours


@torch.no_grad()
@pytest.mark.parametrize("tie", [True, False])
def test_gpt2(tie):
    theirs, ours = gpt2_pair(tie)
    assert_close(ours(tokens()), theirs(tokens()).logits, model_sums(ours.config, T))
    unique = sum(p.numel() for p in ours.parameters())
    assert unique == sum(p.numel() for p in theirs.parameters())
    assert parameters(gpt2_style(37, 60, 3, 5, 50, tie=tie)).total == unique
