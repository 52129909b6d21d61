# %% [markdown]
# # 09 · The whole block
#
# Eight chapters took the block apart. Here it is put together from their functions, held against the library, broken on purpose, and trained beside the block of 2019.
#
# After it you will be able to
# - **write** the block and the model around it, with a cache, in some thirty lines;
# - **count** its parameters, part by part;
# - **locate** a fault by asking at which stage two models part;
# - **explain** what the place of the norm does to the residual stream;
# - **judge** what a small training run shows, and what not.
#
# You need chapters 01 to 05 and 07. About 60 minutes.

# %%
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import lib
from book.configs import load
from book.exercises import check, progress
from book.experiments import TITLES, by_seed, effect, interval, load_results, table_curves
from book.experiments.pictures import LOOKS, draw_intervals
from book.explore.ch09_block import draw_streams, stream_explorer
from book.figures import COLORS, style
from book.predict import check_close, check_equal, check_shape, predict
from lib import GPT2LM, LlamaStyleLM, apply_rope, attend, repeat_kv, rms_norm, rope_cache, swiglu

style()
torch.manual_seed(0)
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## 1 · The wiring
#
# A block reads the residual stream twice and adds to it twice:
#
# $$x \leftarrow x + \mathrm{attention}(\mathrm{norm}(x)), \qquad x \leftarrow x + \mathrm{SwiGLU}(\mathrm{norm}(x)).$$
#
# Each part sees a **normalised copy**; the stream itself is never normalised until the very end. That is *pre-norm*. No matrix has a bias. Attention, from the
# functions of chapters 03, 05 and 07: project, split into heads, QK-norm if the layer has it, rotate, remember, attend.

# %%
def attention(x, w, cos, sin, past=None):
    """x [B, T, d] -> [B, T, d]; past: a list that holds this layer's keys and values from call to call."""
    dh = 2 * cos.shape[-1]
    q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
    if "q_norm" in w:
        q, k = rms_norm(q, w["q_norm"]), rms_norm(k, w["k_norm"])
    q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)  # q and k only, never v
    if past is not None:
        if past:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        past[:] = k, v  # with n_kv heads, not h
    return attend(q, k, v).transpose(1, 2).flatten(2) @ w["wo"].T


# %% [markdown]
# The block adds the feed-forward part. The model is an embedding, the blocks, a last norm, and a head. No position is added anywhere: the rotation knows
# them, as long as the table starts where the cache ends.

# %%
def block(x, w, cos, sin, past=None, eps=1e-6):
    x = x + attention(rms_norm(x, w["attn_norm"], eps), w, cos, sin, past)
    return x + swiglu(rms_norm(x, w["ffn_norm"], eps), w["w_gate"], w["w_up"], w["w_down"])


def logits_of(idx, w, past=None):
    """Token ids [B, T] -> logits [B, T, V]; past: one list a layer, or None."""
    start = past[0][0].shape[2] if past and past[0] else 0
    cos, sin = rope_cache(idx.shape[1], w["dh"], w["base"], start=start)
    x = w["emb"][idx]  # [B, T, d]
    for i, layer in enumerate(w["blocks"]):
        x = block(x, layer, cos, sin, past and past[i], w["eps"])
    return rms_norm(x, w["norm"], w["eps"]) @ w["head"].T  # [B, T, V]


# %% [markdown]
# That is all of it. To try it we need weights, and take the library's, by name.

# %%
def weights_of(model):
    """A lib model's tensors as plain dicts: one for the model, one for each block."""
    layer = model.config.layers[0].attention
    blocks = [{key.split(".")[-2]: p for key, p in b.state_dict().items()} for b in model.blocks]
    w = {"emb": model.emb.weight, "norm": model.norm.weight, "head": model.head.weight, "blocks": blocks}
    return w | {"dh": layer.head_dim, "base": layer.rope.base, "eps": model.config.norm.eps}


seed_model = LlamaStyleLM(V=1000)
print(*weights_of(seed_model)["blocks"][0])

# %% [markdown]
# ## 2 · Its size
#
# `LlamaStyleLM(V=1000)`: $d = 256$, 4 layers, 8 query heads and 2 KV heads of 32, $d_{ff} = 688$, head not tied, QK-norm on. **Predict** how many parameters it has, and
# in which part most of them sit.

# %%
my_guess = None
total = sum(p.numel() for p in seed_model.parameters())
predict(my_guess, total, "parameters")
check_equal("as in chapter 00", total, 3_283_456)
logits = seed_model(torch.randint(0, 1000, (2, 16), generator=torch.Generator().manual_seed(0)))
check_shape("logits", logits, [2, 16, 1000])
by_part = {}
for name, p in seed_model.named_parameters():
    part = name.split(".")[2 if name.startswith("blocks") else 0]
    by_part[part] = by_part.get(part, 0) + p.numel()
for part, n in by_part.items():
    print(f"{part:<10}{n:>10,}  {n / total:6.1%}")
check_equal("8/3 of 256, rounded up to a multiple of 16", lib.swiglu_width(256, multiple_of=16), 688)
print(f"8/3 x 256 = {8 / 3 * 256:.1f}; 688 = 43 x {688 // 43}")

# %% [markdown]
# The feed-forward layers hold two thirds; all norms together less than a thousandth.
#
# ## 3 · The same as the library
#
# Random weights **and** random gains, every size different, float64. A dropped gain or a swapped axis cannot pass. Then the same through the cache: a prompt of 9 in one
# call, a chunk of 3, then single tokens.

# %%
config = lib.llama_style(97, d=48, n_layers=3, n_heads=6, n_kv_heads=2, d_ff=70, head_dim=10, max_len=64)
model = LlamaStyleLM.from_config(config).double()
g = torch.Generator().manual_seed(2)
for p in model.parameters():
    size = p.shape[-1] ** -0.5 if p.dim() > 1 else 1
    p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * size)
w = weights_of(model)
idx = torch.randint(0, 97, (2, 20), generator=g)
whole = logits_of(idx, w)
check_close("thirty lines = lib", whole, model(idx))
past, cache = [[] for _ in w["blocks"]], model.new_cache(2, 64)
pieces = idx.split([9, 3, *[1] * 8], dim=1)
steps = torch.cat([logits_of(piece, w, past) for piece in pieces], dim=1)
check_close("prefill, chunk, steps = at once", steps, whole)
theirs = torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)
check_close("lib through its cache", theirs, whole)
check_shape("what a layer keeps", past[0][0], [2, 2, 20, 10])

# %% [markdown]
# And is `lib` right? `tests/test_against_transformers.py` holds it against the transformers library with the same random weights: toy models of Llama, Qwen3 (QK-norm) and many
# other families, logits with and without a cache. This chapter itself runs without transformers.
#
# ## 4 · The block of 2019 beside it
#
# Same $d$, layers, heads and vocabulary. **Predict** which of the two is larger, at a context of 1,024 positions.

# %%
my_guess = None  # "2019" or "today"
old = GPT2LM(V=1000)
counts = {"2019": lib.parameters(old.config), "today": lib.parameters(seed_model.config)}
predict(my_guess, max(counts, key=lambda name: counts[name].total))
print(f"{'':<12}{'2019':>12}{'today':>12}")
for part in ("embedding", "counted", "attention", "ffn", "norms", "head", "total"):
    words = "positions" if part == "counted" else part
    print(f"{words:<12}{getattr(counts['2019'], part):>12,}{getattr(counts['today'], part):>12,}")
check_equal("2019 by counting", sum(p.numel() for p in old.parameters()), counts["2019"].total)
check_equal("today by counting", total, counts["today"].total)
for name, m in (("2019", old), ("today", seed_model)):
    biases, cache = sum("bias" in key for key in m.state_dict()), lib.kv_elements_per_token(m.config)
    print(f"{name:<6} biases: {biases:>2}   cache: {cache:>5,} numbers a token")

# %% [markdown]
# What changed in size: no table of positions; a quarter of the keys and values; the same feed-forward layer, but for rounding; no biases; a head of its own.
#
# ## 5 · Take a part out
#
# How does one find a fault in a port? Run both models, compare **every stage**, and look at the first one that differs. We write the model once more so that each part can be exchanged
# and each stage is kept.

# %%
def trace(idx, w, norm=rms_norm, qk_norm=rms_norm, rope=apply_rope, repeat=repeat_kv, scale=None,
          mask=None, gate=None):  # fmt: skip
    hide = mask or (lambda s: s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf))
    gate = gate or (lambda a, b: F.silu(a) * b)
    seen, x, table = {}, w["emb"][idx], rope_cache(idx.shape[1], w["dh"], w["base"])
    for i, b in enumerate(w["blocks"]):
        y = norm(x, b["attn_norm"])
        q, k, v = ((y @ b[n].T).unflatten(-1, (-1, w["dh"])).transpose(1, 2) for n in ("wq", "wk", "wv"))
        q, k = rope(qk_norm(q, b["q_norm"]), *table), rope(qk_norm(k, b["k_norm"]), *table)
        group = q.shape[1] // k.shape[1]
        p = hide(q @ repeat(k, group).transpose(-1, -2) * (scale or w["dh"] ** -0.5)).softmax(-1)
        attn = (p @ repeat(v, group)).transpose(1, 2).flatten(2) @ b["wo"].T
        z = norm(x + attn, b["ffn_norm"])
        ffn = gate(z @ b["w_gate"].T, z @ b["w_up"].T) @ b["w_down"].T
        seen |= {f"norm {i}": y, f"q {i}": q, f"weights {i}": p, f"attn {i}": attn, f"ffn {i}": ffn}
        x = x + attn + ffn
    return seen | {"logits": rms_norm(x, w["norm"]) @ w["head"].T}


right = trace(idx, w)

# %% [markdown]
# Eight parts, left out or exchanged or off by little. For each, **predict** two things: the first stage that differs, and whether the logits of the **first token** are still right.

# %%
FAULTS = {
    "eps 1e-5 for 1e-6": {"norm": lambda x, gain: rms_norm(x, gain, 1e-5)},
    "no QK-norm": {"qk_norm": lambda x, gain: x},
    "no RoPE": {"rope": lambda x, cos, sin: x},
    "RoPE, the other layout": {"rope": lambda x, cos, sin: apply_rope(x, cos, sin, "adjacent")},
    "scale forgotten": {"scale": 1.0},
    "no mask": {"mask": lambda s: s},
    "KV heads tiled": {"repeat": lambda x, n: x.repeat(1, n, 1, 1)},
    "gate and up swapped": {"gate": lambda a, b: a * F.silu(b)},
}
check_close("the pieces = the whole", right["logits"], whole)
gap = lambda a, b: ((a - b).norm() / b.norm()).item()
strip, first, hidden = {}, {}, set()
for name, change in FAULTS.items():
    wrong = trace(idx, w, **change)
    strip[name] = [gap(wrong[stage], right[stage]) for stage in right]
    first[name] = next(stage for stage, value in zip(right, strip[name]) if value > 1e-9)
    hidden |= {name} if gap(wrong["logits"][:, 0], right["logits"][:, 0]) < 1e-9 else set()

# %%
fig, ax = plt.subplots(figsize=(11, 4.6))
grid = torch.tensor(list(strip.values())).clamp(1e-9, 10).log10()
image = ax.imshow(grid, aspect="auto", cmap="magma_r", vmin=-9, vmax=1)
_ = ax.set_yticks(range(len(strip)), strip)
_ = ax.set_xticks(range(len(right)), right, rotation=60, ha="right")
_ = ax.grid(visible=False)
_ = fig.colorbar(image, label="relative difference, power of ten")
plt.show()
for name, stage in first.items():
    print(f"{name:<27} first differs at {stage:<10} first token {'right' if name in hidden else 'wrong'}")
check_equal("hidden from the first token", len(hidden), 4)
shows = [first[name] for name in ("no RoPE", "no mask", "gate and up swapped")]
check_equal("rotation, mask, gate", shows, ["q 0", "weights 0", "ffn 0"])

# %% [markdown]
# *In words: a row a fault, a column a stage, pale where nothing differs. Each row is pale up to one stage and dark from there to the end; the eps row has a middle colour, but for two pale cells at q 0 and weights 0.*
#
# Three lessons. The first stage that differs **names the part**. The size of the difference tells as well: a part that is wrong is wrong by its own size, an eps by less than a thousandth of that (and in q 0 hardly at all: QK-norm
# divides it out again). And four of these faults are right on the
# first token: it attends to one key, whose weight is 1 whatever the score. A port that is tested on one token passes with any of them.
#
# ## 6 · Where the norm stands
#
# Pre-norm lets the stream grow: every part adds to it and nothing divides it. Post-norm, the wiring of 2017, normalises the sum itself after every part. A toy shows what this does with depth: a stream of size 1,
# and parts that are random matrices, so that each adds something new of size 1. **Predict**: after 12 layers (24 parts) of post-norm, which share of the stream (of its squared size) is
# still the embedding?

# %%
my_guess = None
post = stream_explorer.table(layers=12, place="after (2017)")
predict(my_guess, float(f"{2.0**-24:.1g}"), "about: half of what was there, 24 times")
check_equal("within a factor of two", 0.5 < post["embedding"] / 2.0**-24 < 2, True)
stream_explorer

# %%
fig, axes = plt.subplots(1, 3, figsize=(11, 4.2), sharey=True)
rows = draw_streams(axes)
_ = axes[0].set_ylabel("share of the final stream")
_ = axes[1].set_xlabel("layer that wrote it (0 = embedding)")
plt.show()
for place, final, *wrote in rows:
    who = ("embedding", "first layer", "last")
    shares = "   ".join(f"{name} {share:7.1g}" for name, share in zip(who, wrote))
    print(f"{place:<15} ends at {final:7.1f}   {shares}")
sizes = {place: final for place, final, *_ in rows}
check_close("before: sqrt(1 + 24)", sizes["before (today)"], 5, 0.06)
check_close("after: always 1", sizes["after (2017)"], 1)

# %% [markdown]
# *In words: with the norm before, a flat line: every layer wrote the same share. With the norm after, or none, a straight climb over seven powers of ten: the last layers wrote nearly all.*
#
# With pre-norm there is an untouched road from the embedding to the head, and gradients travel it the other way. (Post-norm models can be trained: that of 2017 was, its learning rate warmed up over 4,000 steps, section 5.3 of its paper. And a third place exists: OLMo 2
# normalises what a part **adds**, before the addition.)
#
# ## 7 · A real model through our lines
#
# SmolLM2-135M is this block without QK-norm, tied, 30 times. Our functions run it as they stand. On the way we watch its stream. **Predict** the size (RMS) of the stream after the last block; the
# embedding's is about 0.1.

# %%
my_guess = None
folder = lib.find_model()
smol = lib.load_model(folder)
real = weights_of(smol)
tokenizer = lib.load_tokenizer(folder)
ids = torch.tensor([tokenizer.encode("The capital of France is Paris. The capital of Italy is").ids])
cos, sin = rope_cache(ids.shape[1], real["dh"], real["base"])
x, stream = real["emb"][ids], []
for layer in real["blocks"]:
    stream.append(x[0].square().mean(-1).sqrt())
    x = block(x, layer, cos, sin, eps=real["eps"])
stream = torch.stack([*stream, x[0].square().mean(-1).sqrt()])  # [31, T]
ours = rms_norm(x, real["norm"], real["eps"]) @ real["head"].T
check_close("SmolLM2 by our block = lib", ours, smol(ids))
predict(my_guess, round(stream[-1, -1].item(), 1))
print(f"next token: {tokenizer.decode([int(ours[0, -1].argmax())])!r}")
del smol, real, layer

# %%
fig, ax = plt.subplots(figsize=(9, 4.2))
_ = ax.plot(stream[:, 0], color=COLORS["old"], ls="--", label="first token")
_ = ax.plot(stream[:, -1], color=COLORS["new"], label="last token")
_ = ax.set(yscale="log", xlabel="blocks passed", ylabel="RMS of the stream")
_ = ax.legend()
plt.show()
for at in (0, 1, 5, 11, 12, 20, 28, 30):
    print(f"after {at:>2} blocks: first token {stream[at, 0]:8.2f}   last token {stream[at, -1]:6.2f}")
check_equal("the last token's stream grew more than tenfold", bool(stream[-1, -1] > 10 * stream[0, -1]), True)

# %% [markdown]
# *In words: both lines rise on a logarithmic axis; the last token's from 0.1 to above 20, the first token's far beyond it in the middle layers.*
#
# The stream grows two hundredfold, as pre-norm allows, and the last norm brings it back to size 1 before the head. The first token's jumps in the twelfth block, stays as it is, and falls at the end: it is the token
# at which [chapter 07](07_qk_norm.ipynb) found a head looking whatever the query.
#
# ## 8 · Trained side by side
#
# Both blocks, and two between them: the 2019 block with RoPE, the modern block with a learned table in its place. 1.04M parameters each (equal within 1 %: $d_{ff}$ takes up the
# difference), 1,028,733 bytes of English chat written by SmolLM2, every byte read once, 512 per update, in the same order for each; AdamW, 3e-3 for each after a scan of 512 steps, four
# seeds. The vocabulary is the 256 bytes, so a loss in bits per token is one in **bits per byte**: how many yes-no questions the next byte still costs.
#
# A loss needs a yardstick. Count how often each byte followed the last one, two, three .. in exactly the bytes that the run has read so far: tables without any learning. The bigram table knows one
# byte back, the trigram table two. **Predict**: after how many thousand bytes, if ever, does the 2019 block predict held-out text better than the **bigram** table?

# %%
my_guess = None  # thousands of bytes, or "never"
epoch = load_results("epoch")
runs = {v: [r for r in epoch["runs"] if r["variant"] == v] for v in ("2019", "learned", "+rope", "modern")}
steps = [step for step, _ in runs["2019"][0]["held_out"]]
curve = {v: torch.tensor([[bits for _, bits in r["held_out"]] for r in rs]) for v, rs in runs.items()}  # [seeds, points]
tables = torch.tensor(table_curves(steps))  # [points, 6]: orders 0 to 5
read = [512 * step / 1000 for step in steps]
passed = {v: next((k for k, m, b in zip(read, c.mean(0), tables[:, 1]) if m < b), None) for v, c in curve.items()}
predict(my_guess, round(passed["2019"]), "thousand bytes (at the first point measured)")
print("thousand bytes read " + "".join(f"{read[i]:>8.0f}" for i in (5, 9, 13, 17)))
for v, c in curve.items():
    print(f"{TITLES[v]:<34}"[:20] + "".join(f"{c.mean(0)[i]:8.2f}" for i in (5, 9, 13, 17)))
for order, name in ((1, "bigram table"), (2, "trigram table"), (3, "4-gram table")):
    print(f"{name:<20}" + "".join(f"{tables[i, order]:8.2f}" for i in (5, 9, 13, 17)))

# %%
fig, ax = plt.subplots(figsize=(10, 5))
for order, name in enumerate(("bytes", "bigrams", "trigrams", "4-grams", "5-grams")):
    _ = ax.plot(read, tables[:, order], color=COLORS["faint"], lw=1.5)
    _ = ax.text(1050, tables[-1, order], name, va="center", fontsize=12, color="#666666")
for v, (color, dashes) in LOOKS.items():
    _ = ax.plot(read, curve[v].mean(0), color=COLORS[color], ls=dashes, label=TITLES[v])
    _ = ax.fill_between(read, curve[v].amin(0), curve[v].amax(0), color=COLORS[color], alpha=0.25)
_ = ax.set(xlabel="thousand bytes read", ylabel="held-out bits per byte", ylim=(1.7, 4.6), xlim=(0, 1180))
_ = ax.legend(loc="upper right", bbox_to_anchor=(0.88, 1))
plt.show()
ends = {v: c[:, -1] for v, c in curve.items()}
n = len(ends["modern"])
check_equal("every modern run below every 2019 run", bool(ends["modern"].max() < ends["2019"].min()), True)
check_equal("at 129,000 bytes the 2019 block is behind the bigram table", bool(curve["2019"][:, 3].min() > tables[3, 1]), True)
check_equal("at the end past the trigram table, not the 4-grams", [bool(ends["2019"].mean() < tables[-1, k]) for k in (2, 3)], [True, False])
check_equal("the modern block ends past the 4-grams, not the 5-grams", [bool(ends["modern"].mean() < tables[-1, k]) for k in (3, 4)], [True, False])

# %% [markdown]
# *In words: grey count tables fall slowly. The two blocks without RoPE lie on the bigram line for 400,000 bytes, then leave it. The two with RoPE leave it early and fall together; the modern block ends lowest.*
#
# The gap between the blocks is a matter of **when** each finds out that earlier bytes matter. Stop the run early and today's block wins by three quarters of a bit; train on, and the 2019 block is still coming. What the figure
# supports: on this text, at this size, over this epoch, today's block learns faster. What it does not: which is better after a thousand times as much.
#
# ### How many bytes back does it read?
#
# A loss does not say what a model looks at. So ask it: keep the last $k$ bytes before each held-out byte, replace everything before them by bytes from elsewhere, and measure the loss again. Where it stops
# falling with $k$, the model has stopped reading. **Predict** $k$ for the modern block at the end of the epoch: how many bytes back until the loss is within 0.05 bit of its best?

# %%
my_guess = None  # bytes
reach = {v: torch.tensor([[[bits for _, bits in row] for _, row in r["reach"]] for r in rs]).mean(0) for v, rs in runs.items()}
kept = [k for k, _ in runs["modern"][0]["reach"][0][1]]  # 1, 2, 4 .. 128 bytes
within = {v: kept[int((row[-1] < row[-1].min() + 0.05).int().argmax())] for v, row in reach.items()}
predict(my_guess, within["modern"], "bytes")
fig, ax = plt.subplots(figsize=(9, 4.2))
for v, (color, dashes) in LOOKS.items():
    _ = ax.plot(kept, reach[v][-1], "o" + dashes, color=COLORS[color], label=TITLES[v])
_ = ax.set(xscale="log", xlabel="bytes of true context kept (log)", ylabel="bits per byte")
_ = ax.set_xticks(kept, kept)
_ = ax.legend()
plt.show()
print("at the end of the epoch, bytes kept  " + "".join(f"{k:>7}" for k in kept))
for v, row in reach.items():
    print(f"{TITLES[v]:<36} " + "".join(f"{b:7.2f}" for b in row[-1]) + f"   reads about {within[v]}")
worth = {v: (row[:, 0] - row.min(1).values) for v, row in reach.items()}  # [4 points in time]: what more than one byte is worth
print("worth of more than one byte, 2019, along the run: " + "  ".join(f"{w:.2f}" for w in worth["2019"]))
check_equal("a quarter into the epoch the 2019 block gains little from context", bool(worth["2019"][0] < 0.15), True)

# %% [markdown]
# *In words: four falling curves that flatten. With one true byte the stronger models are worse off than the weaker ones: they trust a context that is no longer there.*
#
# That is the story behind the bars of many small-scale comparisons: whether the run has found the previous byte yet, and the one before. It is worth asking of any ablation: *what was the baseline reading?*
#
# ### One upgrade at a time
#
# What does each upgrade do? First from two sides, over the whole epoch: RoPE added to 2019, RoPE taken from the modern block, each paired with its base seed by seed (same batches). Then, over the first 131,000
# bytes only and with three seeds, every upgrade taken from the modern block alone. An interval that contains 0 is **not resolved**.

# %%
for variant, base in (("+rope", "2019"), ("modern", "+rope"), ("learned", "modern"), ("modern", "2019")):
    print(f"{TITLES[variant]:<35} against {TITLES[base]:<14} {effect(epoch, variant, base)}")
low = {run["variant"]: run["bits_per_byte"] for run in load_results("low_rate")["runs"] if (run["lr"], run["seed"]) == (1e-3, 0)}
print("at a third of the learning rate, one seed: " + ", ".join(f"{TITLES[v].split(',')[0] if v != 'learned' else 'modern - RoPE'} {low[v]:.2f}" for v in runs))
check_equal("RoPE above half of the whole, at that rate too", low["2019"] - low["+rope"] > (low["2019"] - low["modern"]) / 2, True)
share = effect(epoch, "+rope", "2019").mean / effect(epoch, "modern", "2019").mean
print(f"RoPE added to the 2019 block makes {share:.0%} of the whole difference")
check_equal("RoPE, both sides", [effect(epoch, *p).resolved for p in (("+rope", "2019"), ("learned", "modern"))], [True, True])
ablation, short = load_results("ablation"), load_results("training")
base, rows = by_seed(short, "modern"), {}
for run in ablation["runs"]:
    rows.setdefault(TITLES[run["variant"]].removeprefix("modern, "), []).append(run["bits_per_byte"] - base[run["seed"]])
intervals = {words: interval(change) for words, change in rows.items()}
for words, it in intervals.items():
    print(f"{words:<29} {it}   ({sum(c > 0 for c in rows[words])} of {it.n} seeds worse)")
_, ax = plt.subplots(figsize=(10, 4.2))
draw_intervals(ax, intervals, rows, "bits per byte more than the modern block: 95 % interval (dots: seeds)")
plt.show()
check_equal("not resolved", [words for words, it in intervals.items() if not it.resolved], ["LayerNorm for RMSNorm", "4 KV heads for 2", "without QK-norm"])

# %% [markdown]
# *In words: one bar per change, its 95 % interval. Learned positions stick out by half a bit; three bars cross zero.*
#
# - **RoPE** makes most of the difference, at both rates and from both sides. How much it is worth when taken from the modern block depends on the rate: at the lower one, where the scan's short runs saw no difference, the modern
#   block without RoPE ends *ahead* of that of 2019. So this comparison says who needs RoPE, not by how much.
# - "All three seeds agree" would have called QK-norm a help. With no effect at all, three seeds agree one time in four; over seven rows some row nearly always does. The interval says: not resolved.
# - **RMSNorm** and **2 KV heads** are not resolved either, which is what they promise: less work and a smaller cache at the same quality.
# - **Without biases** and **untied** the block is slightly worse here. At a vocabulary of 256 and this size, nothing speaks for the modern choice.
#
# A null result is a result. What a change buys at a hundred billion parameters, no run on a laptop tells.

# %% [markdown]
# ## 9 · Bugs that shipped
#
# **One counter for all layers.** In a cache that counts tokens once for the whole model, layer 0 stored its keys and raised the counter; every deeper layer then rotated at one position too far
# ([fla-org/flash-linear-attention#766](https://github.com/fla-org/flash-linear-attention/issues/766)). Five tokens are cached, the sixth comes:

# %%
def sixth_token(positions):
    past = [[] for _ in w["blocks"]]
    logits_of(idx[:, :5], w, past)
    x = w["emb"][idx[:, 5:6]]
    for layer, kept, position in zip(w["blocks"], past, positions):
        x = block(x, layer, *rope_cache(1, 10, start=position), kept)
    return rms_norm(x, w["norm"]) @ w["head"].T


check_close("three layers at position 5", sixth_token([5, 5, 5]), whole[:, 5:6])
off = gap(sixth_token([5, 6, 6]), whole[:, 5:6])
print(f"positions 5, 6, 6: logits off by {off:.0%} of their size")
check_equal("more than a tenth", off > 0.1, True)

# %% [markdown]
# **Three equal parts.** A fused projection of q, k and v cut with `chunk(3)`, as in 2019, when all three were $d$ wide ([torchtune#2197](https://github.com/meta-pytorch/torchtune/issues/2197) met it in Phi-4). Nothing fails; the widths are wrong.
#
# **True means two things.** In PyTorch's `scaled_dot_product_attention` a boolean True means *may look*; in `nn.MultiheadAttention` it means *blocked*; and a mask of floats 0 and 1 is **added**
# ([rasbt/LLMs-from-scratch#1061](https://github.com/rasbt/LLMs-from-scratch/issues/1061), [pytorch#21518](https://github.com/pytorch/pytorch/issues/21518)). Below, 4 query heads and 2 KV heads of 16; then equal scores and values 1, 2, 3.

# %%
fused = torch.zeros(64 + 32 + 32, 5)
chunks, parts = ([len(part) for part in cut] for cut in (fused.chunk(3), fused.split([64, 32, 32])))
print("chunk(3):", chunks, "  right:", parts)
q = k = torch.zeros(1, 1, 3, 2)
v = torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 3, 1)
may = torch.ones(3, 3, dtype=torch.bool).tril()
for words, mask in (("True = may look", may), ("0 and 1 added", may.float())):
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).flatten()
    print(f"{words:<16}", [round(value, 6) for value in out.tolist()])
flipped = F.scaled_dot_product_attention(q, k, v, attn_mask=~may).flatten()
check_close("right", attend(q, k, v).flatten(), [1, 1.5, 2], 1e-6)
check_close("True read as blocked, first two tokens", flipped[:2], [2.5, 3.0], 1e-6)

# %% [markdown]
# ## 10 · In practice
#
# "Everyone uses pre-RMSNorm, SwiGLU, RoPE and no biases" is a good first guess and no law. Fields of real files that say otherwise:

# %%
print(f"{'':<14} {'attention_bias':<17}{'biases: q, k, v':<17}{'W_o':<7}{'norms':<18}{'feed-forward'}")
for name in ("glm-4.5", "gpt-oss-20b", "qwen2.5-7b", "command-r-v01", "olmo-2-7b", "llama-3-8b"):
    config = lib.read_config(load(name))
    layer, field = config.layers[-1], load(name).get("attention_bias", "not in the file")
    norms = f"{config.norm.kind}, {layer.norms}"
    bias, out_bias = str(layer.attention.bias), str(layer.attention.out_bias)
    print(f"{name:<14} {field!s:<17}{bias:<17}{out_bias:<7}{norms:<18}{type(layer.ffn).__name__}")

# %% [markdown]
# GLM-4.5 and gpt-oss say `attention_bias: true`. Qwen2.5 has biases on q, k and v and no field for them: they follow from `model_type`. OLMo 2 norms what a part adds ("post"); Command-R has one LayerNorm for both parts
# ("parallel"). GLM-4.5 and gpt-oss have a mixture of experts where SwiGLU stands here: that part this book counts and does not run.
#
# ## Exercises
#
# **1. Count.** Parameters of an untied `LlamaStyleLM` with QK-norm, from its sizes ($d_h = d / h$).

# %% tags=["exercise"]
def my_parameters(V, d, n_layers, n_heads, n_kv_heads, d_ff):
    ...


# %% tags=["check"]
check("09.parameters", my_parameters)

# %% tags=["solution"] jupyter={"source_hidden": true}
def parameters_solution(V, d, n_layers, n_heads, n_kv_heads, d_ff):
    dh = d // n_heads
    attention = 2 * d * d + 2 * d * n_kv_heads * dh + 2 * dh  # W_q, W_o; W_k, W_v; two gains
    return 2 * V * d + n_layers * (attention + 3 * d * d_ff + 2 * d) + d


check("09.parameters", parameters_solution)

# %% [markdown]
# **2. Wire it.** Let attention be $x A$ and the feed-forward layer $\tanh(x F)$. Write the pre-norm block around them: `x` [T, d], `A` and `F` [d, d], two gains [d]; use `rms_norm`.

# %% tags=["exercise"]
def my_wiring(x, A, F, attn_gain, ffn_gain):
    ...


# %% tags=["check"]
check("09.wiring", my_wiring)

# %% tags=["solution"] jupyter={"source_hidden": true}
def wiring_solution(x, A, F, attn_gain, ffn_gain):
    x = x + rms_norm(x, attn_gain) @ A
    return x + (rms_norm(x, ffn_gain) @ F).tanh()


check("09.wiring", wiring_solution)

# %% [markdown]
# **3. Which faults leave the first token's logits right?** A set of some of `"rope"` (left out), `"mask"` (left out), `"tile"` (KV heads tiled), `"qk_norm"` (left out), `"gate"` (swapped with up), `"scale"` (forgotten).

# %% tags=["exercise"]
my_hidden = None

# %% tags=["check"]
check("09.first_token", my_hidden)

# %% tags=["solution"] jupyter={"source_hidden": true}
def first_token_solution():
    return {"rope", "qk_norm", "scale"}


check("09.first_token", first_token_solution)

# %% [markdown]
# **4. Five faults.** A whole block, one fault from each earlier theme: norm (01), gate (02), rotation (03, 04), mask (05), QK-norm (07). It runs. Mend it, in these three cells; `check` says how many are mended and asks one
# question about the next.

# %%
def norm(x, gain, eps=1e-6):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale).type_as(x) * gain


def ffn(x, gate, up, down):
    return (x @ gate.T * F.silu(x @ up.T)) @ down.T


def turn(x, cos, sin):  # x [B, heads, T, dh], half-split layout
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

# %%
def attend(q, k, v):  # q [B, h, T, dh], k and v [B, n_kv, S, dh]
    T, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = torch.ones(T, S, dtype=torch.bool).tril()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def heads(x, w, cos, sin):
    dh = w["q_norm"].numel()
    q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    return norm(q, w["q_norm"]), norm(k, w["k_norm"]), v

# %% [markdown]
# And the block. Run all three cells after each change. (They take over names of sections 1 and 3, such as `block`: to run an earlier section again, start at the top.)

# %% tags=["exercise"]
def block(x, w, cos, sin, past=None):  # past: the keys and values of earlier tokens
    q, k, v = heads(norm(x, w["attn_norm"]), w, cos, sin)
    if past is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
    x = x + attend(q, k, v).transpose(1, 2).flatten(2) @ w["wo"].T
    return x + ffn(norm(x, w["ffn_norm"]), w["w_gate"], w["w_up"], w["w_down"])


my_block = {"norm": norm, "ffn": ffn, "turn": turn, "attend": attend, "heads": heads, "block": block}

# %% tags=["check"]
check("09.faults", my_block)

# %% tags=["solution"] jupyter={"source_hidden": true}
def faults_solution():
    def mended_norm(x, gain, eps=1e-6):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).type_as(x) * gain

    def mended_turn(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def mended_heads(x, w, cos, sin):
        dh = w["q_norm"].numel()
        q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
        q, k = mended_norm(q, w["q_norm"]), mended_norm(k, w["k_norm"])
        return mended_turn(q, cos, sin), mended_turn(k, cos, sin), v

    right = {"norm": mended_norm, "turn": mended_turn, "heads": mended_heads}
    from_lib = {"ffn": lambda *args: swiglu(*args), "attend": lambda *args: lib.attend(*args)}
    return my_block | right | from_lib


check("09.faults", faults_solution)

# %% [markdown]
# ## What you can do now
#
# You **wrote** the block and the model in thirty lines; **counted** 3,283,456 parameters; **located** eight faults by the first stage that differs; **explained** what pre-norm keeps; and **judged** small runs: beside count tables, by how far back they read, with intervals. Proved equal: our
# lines = `lib` with random gains, at once = in pieces through the cache, our lines = `lib` on SmolLM2's own weights.
#
# **Sources.** Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762)): the post-norm block. Touvron et al. 2023, LLaMA ([arXiv 2302.13971](https://arxiv.org/abs/2302.13971)), section 2.2: pre-norm, SwiGLU and RoPE in one model. Llama Team 2024 ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783)), section 3.2. Config fields
# from the models' config.json. Public reports named in section 9. The training runs are this book's own.

# %%
progress("09")
