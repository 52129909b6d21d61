# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "Between GPT-2 (2019) and the Llama, Qwen, DeepSeek and Gemma models of today, the transformer changed in six places. After this chapter you can"}
# # 00 · The block at a glance
#
# Between GPT-2 (2019) and the Llama, Qwen, DeepSeek and Gemma models of today, the transformer changed in six places. Here you build both
# models, compute what each change costs and saves, and let a real model answer through the new one.
#
# After this chapter you will be able to
# - **name** the six changes and point at the place of each;
# - **count** parameters, FLOPs and cache of both blocks;
# - **tell** what is computed here from what a paper claims;
# - **read** the notation of this book in anybody's config.json;
# - **use** this book.
#
# You need Python, a little PyTorch, and an idea of the GPT block. About 35 minutes.
#
# ## Before you start: does a slider show?
#
# Run the next cell (Shift+Enter) and drag.

# %% slideshow={"slide_type": "skip"}
import ipywidgets

ipywidgets.IntSlider(value=7, description="drag me")

# %% [markdown] slideshow={"slide_type": "skip"}
# - **A slider:** all is well.
# - **The text `IntSlider(value=7, ..)`:** no kernel runs behind this page. On the book's web site and on GitHub that is expected.
#   In your own Jupyter the browser's part and the kernel come from two environments: close it and start
#   again with `make lab`.
#
# The code has two parts: `lib` is the model, small enough to read in an evening; `book` is what teaches with it.

# %% slideshow={"slide_type": "skip"}
import matplotlib.pyplot as plt
import torch
from safetensors import safe_open

import lib
from book import configs
from book.exercises import check, mine, progress
from book.explore.ch00_at_a_glance import draw_blocks, draw_changes, glance_explorer, one_at_a_time
from book.figures import style
from book.predict import check_close, check_equal, check_shape, predict
from lib import GPT2LM, LlamaStyleLM, parameters, read_config

style()
_ = torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 1 · Two blocks
#
# Both models below have the same shape: 1,000 tokens in the vocabulary, width 256, 4 layers, 8 heads. One is built as in 2019, one as today.
#
# **How this book works.** Before a result is shown, you write down what you expect: replace `None` by your number, then run. `predict` tells you how
# far off you were.
#
# Today's feed-forward has three matrices of width 688 where the old one has two of width 1,024. Two heads of keys and values (**KV heads**) serve its 8
# query heads. It has no table of 1,024 positions, and its head is untied: a second matrix, not the embedding again. **Predict** its parameters; the first line gives you the old model's.

# %% slideshow={"slide_type": "slide", "title": "Two blocks of one shape: which has more parameters?", "text": "1,000 tokens, width 256, 4 layers, 8 heads. Today's feed-forward has three matrices of width 688 for two of 1,024; 2 KV heads serve 8 query heads; no table of positions; the head is untied.\n\n**Predict** today's parameters. The one of 2019 has 3,677,696."}
old, new = GPT2LM(V=1000), LlamaStyleLM(V=1000)


def count(model):
    return sum(p.numel() for p in model.parameters())


print(f"2019: {count(old):,} parameters")
my_guess = None  # <- your number here
predict(my_guess, count(new), "parameters")

# %% [markdown] slideshow={"slide_type": "skip"}
# A `check` line is a promise of the book: when it does not hold, the cell fails.

# %% slideshow={"slide_type": "skip"}
torch.manual_seed(0)
idx = torch.randint(0, 1000, (2, 16))  # [B, T]: two rows of sixteen tokens
check_shape("logits, 2019", old(idx), [2, 16, 1000])
check_shape("logits, today", new(idx), [2, 16, 1000])
check_equal("parameters today", count(new), 3_283_456)

# %% [markdown] slideshow={"slide_type": "skip"}
# Nearly as many parameters, 3.28 against 3.68 million. What differs is inside. One block of each, every tensor that it stores:

# %% slideshow={"slide_type": "subslide", "title": "Nearly as many parameters; what differs is inside", "show": "printed"}
def stored(block):
    return [f"{name:<21}{list(p.shape)!s:<12}" for name, p in block.named_parameters()]


left, right = stored(old.blocks[0]), stored(new.blocks[0])
right += [""] * (len(left) - len(right))
print(f"{'2019':<36}today")
for a, b in zip(left, right, strict=True):
    print(f"{a:<36}{b}".rstrip())

# %% [markdown] slideshow={"slide_type": "slide", "title": "The same two lines; four changes are inside the four names", "show": "code", "text": "A **stream** of $d$ numbers per token runs from the embedding to the head. Each part reads it through a norm and **adds** something; nothing is overwritten. The other two changes are at the two ends."}
# No `bias` on the right. `wk` and `wv` have 64 rows instead of 256: 2 KV heads of 32, each for four query heads. There are `q_norm` and `k_norm`, with 32 learned factors (**gains**) each.
# The feed-forward has a third matrix and is narrower: 688, not 1,024.
#
# ## 2 · The picture
#
# A transformer is a **stream** of $d$ numbers per token that runs from the embedding to the head. Each part reads it, and **adds** something to it.
# Nothing is ever overwritten. Both blocks are **pre-norm** (each part reads the stream through a norm) and have the same two lines:
#
# ```python
# x = x + self.attn(self.attn_norm(x))
# x = x + self.ffn(self.ffn_norm(x))
# ```
#
# Four of the six changes are inside the four names; the other two are at the two ends.

# %% slideshow={"slide_type": "subslide", "title": "Filled boxes differ"}
fig, axes = plt.subplots(1, 2, figsize=(12, 7.4), width_ratios=[7.6, 11.5])
rows = draw_blocks(axes)
plt.show()
print(rows)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Six changes, and what each is said to buy", "show": "", "text": "- **RMSNorm** divides by the root mean square and subtracts no mean\n- **SwiGLU** multiplies two linear maps, one of them through an activation\n- **RoPE** rotates q and k by an angle that grows with the position\n- **GQA**: one KV head per group of query heads. **MLA**: one short vector for all\n- **QK-norm** normalises each q and k before they meet\n- the head is tied or **untied**; the biases are gone"}
# *In words: from below, the residual stream leaves the embedding. Twice per block a branch leaves it, passes a norm and a part, and is added back. Filled
# boxes differ: today every norm is an RMSNorm, q and k are normed and rotated inside attention, the MLP is a SwiGLU, and no position is added at the input.*
#
# **MoE** is a further choice: a router sends each token to a few of many feed-forward layers, the experts. This book does not run it; [chapter 10](10_real_models.ipynb) counts it.
#
# ## 3 · Six changes, and what each buys
#
# A few words first. While it writes, a model keeps the keys and values of every past token: the **cache**. **MHA** has a KV head for each query head, as in 2019; **GQA**
# has one per group of them (GQA-8: eight groups), **MQA** one for all, and **MLA** keeps one short vector, the **latent**, from which keys and values are made again. **RoPE** rotates q and k by an
# angle that grows with the position. **RMSNorm** divides a vector by its root mean square and, unlike LayerNorm, subtracts no mean. **SwiGLU** multiplies two linear maps, one of them through an activation. **QK-norm** normalises each q and k before they meet.
#
# | | 2019 | today | computed in this book | a claim of | ch. |
# |---|---|---|---|---|---|
# | norm | LayerNorm | RMSNorm | one mean and one vector less | as good without the mean: Zhang & Sennrich 2019 | 01 |
# | feed-forward | GELU, $4d$ | SwiGLU, about $\frac83 d$ | equal parameters, equal FLOPs | lower loss: Shazeer 2020, who says outright that he has no explanation | 02 |
# | positions | a learned table | RoPE on q and k | scores depend on $n-m$ alone, no parameters, no last row | | 03, 04 |
# | attention | MHA | GQA or MLA | the cache: 2 to 8 times smaller with the GQA of section 4, 71 with DeepSeek-V3's MLA | quality: GQA-8 near MHA (Ainslie 2023), MQA below it (Shazeer 2019), MLA equal or better (DeepSeek-V2) | 05, 06 |
# | q and k | as they come | QK-norm (some models) | attention logits bounded | stable training at scale: ViT-22B | 07 |
# | head | tied | tied or untied | $V d$ parameters | | 08 |
#
# The **biases** of the linear layers disappeared as well. And GPT-2, often said to be untied, has its published 124 million parameters only when it is tied:

# %% slideshow={"slide_type": "subslide", "title": "GPT-2 has its published 124 million parameters only when it is tied"}
gpt2 = read_config(configs.path("gpt2"))
print(f"GPT-2, head tied:   {parameters(gpt2).total:,}")
print(f"GPT-2, untied:      {parameters(gpt2.replace(tied=False)).total:,}")
check_equal("the published count", parameters(gpt2).total, 124_439_808)

# %% [markdown] slideshow={"slide_type": "skip"}
# ### One change at a time
#
# Now at the size of Llama-2-7B (width 4,096, 32 layers, 32 heads), over a context of 4,096 tokens. Start from 2019, make **one** change, count. FLOPs are those of one more token: two
# for each weight that it meets, two for each term of a score or of a weighted sum.
#
# **Predict**: how many of the seven changes (six and the biases) move the **parameters** by more than 1 %? And what does GQA with 8 KV heads do to parameters and FLOPs, in per cent?

# %% slideshow={"slide_type": "slide", "title": "One change at a time: which can be counted?", "text": "Llama-2-7B's size, a context of 4,096. **Predict:** how many of the seven changes (six and the biases) move the **parameters** by more than 1 %? What does GQA with 8 KV heads do to parameters and FLOPs, in per cent?"}
my_guess = {"changes": None, "GQA, parameters": None, "GQA, FLOPs": None}
changes = one_at_a_time("7B", context=4096)
moved = [name for name, _, t in changes[:-1] if abs(t["ratio"]["parameters"] - 1) > 0.01]
gqa = next(t for name, _, t in changes if name == "GQA for MHA")["ratio"]
per_cent = [round(100 * (gqa[key] - 1)) for key in ("parameters", "flops")]
for name, truth in zip(my_guess, [len(moved), *per_cent]):
    predict(my_guess[name], truth, f"({name})", tol=0.1)

# %% slideshow={"slide_type": "skip"}
d, L, V, S = 4096, 32, 32_000, 4096
by_hand = 2 * (12 * d**2 * L + V * d) + 4 * (S + 1) * d * L  # matrices and head; scores and weighted sums over S + 1 tokens
check_equal("FLOPs of 2019, by hand", by_hand, changes[0][2]["old"]["flops"])
check_equal("more than 1 % of the parameters", moved, ["GQA for MHA", "untied head"])
check_equal("GQA, per cent: parameters, FLOPs", per_cent, [-12, -11])

# %% slideshow={"slide_type": "subslide", "title": "Six of seven were made for quality, stability or length; GQA saves what is kept"}
fig, axes = plt.subplots(1, 3, figsize=(12, 4.6), sharey=True)
print(draw_changes(axes, changes))
plt.show()

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: one row per change, one panel each for parameters, FLOPs and cache. Most bars are too short to see; GQA's reach -12, -11 and -75 %.*
#
# Six of seven changes cost or save next to nothing that we can count: they were made for quality, stability or length. GQA is different: it saves a tenth of the
# work, and three quarters of what is **kept** per token. Chapters [05](05_kv_cache.ipynb) and [06](06_mla.ipynb) are about little else.
#
# The 12 % of parameters that GQA saves are usually spent again. Llama 3 8B (8 KV heads) has `intermediate_size` 14,336, which is $3.5\,d$ and not $\frac83 d$:

# %% slideshow={"slide_type": "subslide", "title": "The parameters that GQA saves are spent again", "show": "printed", "text": "Three matrices of width $\\frac83 d$ would cost what two of $4d$ cost. Llama 3 8B, with 8 KV heads for 32 query heads:"}
for name in ("llama-2-7b", "llama-3-8b"):
    c = configs.load(name)
    ratio = c["intermediate_size"] / c["hidden_size"]
    heads = f"{c['num_key_value_heads']:>2} KV heads"
    print(f"{name}: {heads}, intermediate_size {c['intermediate_size']:,} = {ratio:.4g} d")

# %% [markdown] slideshow={"slide_type": "skip"}
# ### Now you: put a block together
#
# The bars compare **your** block with the 2019 block of the same size.
#
# Try: `SwiGLU, 4 d kept`: what does the third matrix cost then? `MLA` at 131,072 tokens: what does it pay for its small cache? `learned table` against `RoPE` in the
# tiny size while the context grows.

# %% slideshow={"slide_type": "slide", "title": "Put a block together: change one part at a time"}
glance_explorer

# %% slideshow={"slide_type": "subslide", "title": "With MHA one long conversation outweighs the model", "show": "printed", "text": "A 70B at 131,072 tokens; its weights are 141 GB in bf16."}
for attention in ("MHA", "GQA", "MQA", "MLA"):
    t = glance_explorer.table(attention=attention, size="70B", context=131072)
    one, whole = t["new"]["cache"], t["new"]["cache_at"] / 2**30
    print(f"{attention}: {one:>9,} bytes per token, {whole:>5.4g} GiB for 131,072 tokens")
gqa = glance_explorer.table(size="70B", context=131072)["new"]
check_equal("Llama-3-70B's cache per token", gqa["cache"], 327_680)
weights = 2 * parameters(read_config(configs.path("llama-3-70b"))).total
check_equal("its weights in bf16, GB", round(weights / 1e9), 141)

# %% [markdown] slideshow={"slide_type": "skip"}
# With MHA, **one** conversation of 131,072 tokens would need more than twice the memory of all the weights.
#
# ### "4 to 60 times smaller": than what?
#
# A ratio needs its denominator. Here: the same model with plain MHA, one key and one value head for each query head. **Predict** it for Llama-3-8B (32 query heads, 8 KV
# heads) and for DeepSeek-V3 (128 heads; it keeps 512 + 64 numbers per layer, and MHA would keep 128 keys and values of 128).

# %% slideshow={"slide_type": "slide", "title": "\"4 to 60 times smaller\": than what?", "text": "A ratio needs its denominator; here the same model with plain MHA. Llama-3-8B: 32 query heads, 8 KV heads. DeepSeek-V3: 128 heads; it keeps 512 + 64 numbers, MHA would keep 128 keys and values of 128.\n\n**Predict** both."}
my_guess = {"Llama-3-8B": None, "DeepSeek-V3": None}
ratio = {"Llama-3-8B": 32 / 8, "DeepSeek-V3": 128 * (128 + 128) / (512 + 64)}
for name, value in ratio.items():
    predict(my_guess[name], round(value, 1), f"times, {name}")

# %% slideshow={"slide_type": "skip"}
exact = 128 * (192 + 128) / (512 + 64)  # V3's own keys are 128 + 64 wide
print(f"DeepSeek-V3 against itself without compression: {exact:.1f} times")
check_close("4 to 60, and 71", [*ratio.values(), exact], [4, 56.9, 71.1], 0.001)

# %% [markdown] slideshow={"slide_type": "notes"}
# "60" is 57 with keys of 128; V3's real keys are wider, which gives 71. [Chapter 06](06_mla.ipynb) has a third denominator.
#
# ### One token too many
#
# The 2019 block looks positions up in a learned table. Give the old model one token more than the 1,024 it was built for. Then build both anew for 4,096 and load
# the old weights. **Predict** how many tensors of each do not fit.

# %% slideshow={"slide_type": "skip"}
try:
    old(torch.zeros(1, 1025, dtype=torch.long))
except ValueError as error:
    print(error)

# %% slideshow={"slide_type": "slide", "title": "One token too many: the table ends, the rotation does not", "text": "The model of 2019 refuses token 1,025. Build both anew for 4,096 and load the old weights.\n\n**Predict** how many tensors of each do not fit."}
def misfits(longer, trained):
    theirs = trained.state_dict()
    return sum(p.shape != theirs[name].shape for name, p in longer.state_dict().items())


my_guess = {"2019": None, "today": None}
longer = {"2019": GPT2LM(1000, max_len=4096), "today": LlamaStyleLM(1000, max_len=4096)}
for name, trained in (("2019", old), ("today", new)):
    predict(my_guess[name], misfits(longer[name], trained), f"({name})")

# %% slideshow={"slide_type": "subslide", "title": "The longer model takes the old weights and says the same", "show": "code printed"}
_ = longer["today"].load_state_dict(new.state_dict())
check_close("the longer model, first 16 tokens", longer["today"](idx), new(idx))
check_shape("logits for 2,000 tokens", longer["today"](idx.repeat(1, 125)), [2, 2000, 1000])

# %% [markdown] slideshow={"slide_type": "notes"}
# The table is a tensor of 1,024 rows. For RoPE, `max_len` is a setting. That it **runs** beyond its trained length does not yet mean that it runs well: [chapter 04](04_rope_in_practice.ipynb).
#
# ## 4 · Six questions to real models
#
# Every model on a hub has a config.json. `lib.read_config` reads it; here are its six answers for eight models.
# `GQA 4:1` means four query heads per KV head. In a *window* a layer sees only the last tokens. A GeGLU has GELU in SwiGLU's place; two numbers behind RoPE are the bases of two kinds of layers. *Of latents*: MLA norms its
# short vectors, which is not QK-norm, since keys are made from them afterwards.

# %% slideshow={"slide_type": "slide", "title": "Six questions to eight real models", "show": "printed"}
models = ("gpt2", "llama-2-7b", "llama-3-8b", "olmo-2-7b")
models += ("qwen3-0.6b", "gemma-3-1b", "gpt-oss-20b", "deepseek-v3")
answers = {name: configs.six_answers(read_config(configs.path(name))) for name in models}
for name, a in answers.items():
    print(f"{name:<13}{a['norm']:<27}{a['feed-forward']:<22}{a['positions']}")
    print(f"{'':<13}{a['attention']:<27}QK-norm: {a['QK-norm']:<13}head: {a['head']}")
check_equal("models with RMSNorm", sum("RMS" in a["norm"] for a in answers.values()), 7)
check_equal("models with RoPE", sum("RoPE" in a["positions"] for a in answers.values()), 7)

# %% [markdown] slideshow={"slide_type": "slide", "title": "The same quantities have another name in every code base", "show": "", "text": "Two traps:\n\n- `num_key_value_groups` counts query heads **per** KV head, not KV heads\n- `post_attention_layernorm` is the norm **before** the feed-forward\n\nIn shapes: $B$ rows in the batch, $T$ tokens in this call, $S$ tokens attended to, $V$ vocabulary. GiB is $2^{30}$ bytes, GB $10^9$."}
# After GPT-2, RMSNorm and RoPE are everywhere here, and so is a gated feed-forward, alone or in the experts of a MoE. Today's models differ in the rest: the place of the norms, the number of KV heads, windows, QK-norm, tying.
#
# ## 5 · Notation
#
# The same quantities have a different name in every code base. This book uses the first column.
#
# | ours | symbol | config.json (Llama) | module or tensor in transformers | Meta's Llama code | elsewhere |
# |---|---|---|---|---|---|
# | `d` | $d$ | `hidden_size` | | `dim` | `n_embd`, `d_model` |
# | `n_layers` | $L$ | `num_hidden_layers` | | `n_layers` | `n_layer` |
# | `n_heads` | $h$ | `num_attention_heads` | | `n_heads` | `n_head` |
# | `n_kv_heads` | $n_{kv}$ | `num_key_value_heads` | | `n_kv_heads` | `n_query_groups`, `n_local_heads` |
# | `group_size` = $h / n_{kv}$ | | | `num_key_value_groups` (!) | `n_rep` | `q_per_kv` |
# | `head_dim` | $d_h$ | `head_dim` | `head_dim` | `head_dim` | `head_size` |
# | `d_ff` | $d_{ff}$ | `intermediate_size` | | `hidden_dim` (before rounding) | DeepSeek: `inter_dim` |
# | `rope_base` | $b$ | `rope_theta` | | `rope_theta` | `rotary_emb_base` |
# | `kv_lora_rank`, `qk_rope_head_dim` | $d_c$, $d_R$ | the same (DeepSeek) | | | |
# | `attn_norm`, `ffn_norm` | | | `input_layernorm`, `post_attention_layernorm` (!) | `attention_norm`, `ffn_norm` | `norm_1`, `norm_2` |
#
# Two traps, marked (!): `num_key_value_groups` counts query heads **per** KV head, not KV heads. And `post_attention_layernorm` is the norm **before** the feed-forward.
#
# In shape comments: $B$ rows in the batch, $T$ tokens in this call, $S$ tokens that are attended to, $V$ vocabulary. Memory is in KiB, MiB, GiB
# ($2^{10}$, $2^{20}$, $2^{30}$ bytes); file sizes and bandwidths in GB are $10^9$ bytes.
#
# ## 6 · A real model, through this code
#
# SmolLM2-135M-Instruct is made of blocks of exactly this kind. `make lab` has put its weights into `models/`.
# No model library is involved: `lib` reads the file, PyTorch multiplies, and the `Block` of the picture runs it.
#
# Suppose its config.json were lost. **Exercise 1. Read the shapes.** `shapes` has the name and shape of every tensor (Llama's names: `model.layers.0.self_attn.q_proj.weight`, `k_proj`, `mlp.up_proj`, `lm_head.weight` where untied); write what they tell. Why must `head_dim` be given?

# %% tags=["exercise"]
def my_sizes(shapes, head_dim):
    """{"model.embed_tokens.weight": (49152, 576), ..} -> {"d": , "n_heads": , "n_kv_heads": , "d_ff": , "tied": }"""
    ...

# %% tags=["check"]
check("00.shapes", my_sizes)

# %% tags=["solution"] jupyter={"source_hidden": true}
def shapes_solution(shapes, head_dim):
    layer = "model.layers.0."
    rows = lambda name: shapes[layer + name + ".weight"][0]
    return {
        "d": shapes["model.embed_tokens.weight"][1],
        "n_heads": rows("self_attn.q_proj") // head_dim,
        "n_kv_heads": rows("self_attn.k_proj") // head_dim,
        "d_ff": rows("mlp.up_proj"),
        "tied": "lm_head.weight" not in shapes,
    }


check("00.shapes", shapes_solution)

# %% slideshow={"slide_type": "slide", "title": "A real model's sizes, read out of its tensors", "show": "code printed"}
sizes = mine("00.shapes")
folder = lib.find_model()
with safe_open(folder / "model.safetensors", "pt") as file:
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
print("heads of 64:", sizes(shapes, 64))
print("heads of 32:", sizes(shapes, 32))
names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "tie_word_embeddings")
fields = configs.load("smollm2-135m")
check_equal("what its config.json says", list(sizes(shapes, 64).values()), [fields[n] for n in names])

# %% [markdown] slideshow={"slide_type": "notes"}
# Both lines fit every tensor: nine heads of 64 or eighteen of 32 make the same matrix. Only a QK-norm gain, which is one head long, would give the width away.

# %% slideshow={"slide_type": "skip"}
model, tokenizer = lib.load_model(folder), lib.load_tokenizer(folder)
print(type(model.blocks[0]).__module__, type(model.blocks[0]).__name__, "x", len(model.blocks))
check_equal("parameters", count(model), 134_515_008)
prompt = lib.chat_prompt("What is the capital of France?")
print(prompt)

# %% [markdown] slideshow={"slide_type": "skip"}
# A chat is a text with marks for whose turn it is, which the model continues. Greedy decoding takes the likeliest token each time. **Write down** its answer. (Logits differ between machines by rounding; we check that each token won by far more.)

# %% slideshow={"slide_type": "slide", "title": "SmolLM2 answers through the block of the picture", "text": "\"What is the capital of France?\" A chat is a text with marks for whose turn it is, which the model continues; greedy decoding takes the likeliest token each time.\n\n**Write down** its answer."}
my_guess = None
idx = torch.tensor([tokenizer.encode(prompt).ids])
out = lib.generate(model, idx, max_new_tokens=7)
best = model(out[:, :-1])[0, idx.shape[1] - 1 :].topk(2).values
answer = tokenizer.decode(out[0, idx.shape[1] :].tolist())
predict(my_guess, answer)

# %% slideshow={"slide_type": "skip"}
check_equal("each token wins by more than 0.05", bool((best[:, 0] - best[:, 1] > 0.05).all()), True)
check_equal("the answer", answer, "The capital of France is Paris.")

# %% [markdown] slideshow={"slide_type": "skip"}
# Ask it something else: change the question, give it more than 7 tokens, and run the cells again (the checks will then complain). Or in a terminal, streaming:
# `python -m lib generate "Why is the sky blue?"`. With 135 million parameters it is fluent and knows little.
#
# ## Exercises
#
# Each exercise has three cells: yours, the check, and a folded solution. What you solve is kept in `.progress.json` beside
# your copies in `work/`; nothing is sent anywhere.
#
# **2. Count a block.** Parameters of one modern block as in the table of section 1: GQA, QK-norm (one gain of `head_dim` for q, one for k), SwiGLU, two norms, no biases.

# %% tags=["exercise"]
def my_block_parameters(d, n_heads, n_kv_heads, head_dim, d_ff):
    ...

# %% tags=["check"]
check("00.block", my_block_parameters)

# %% tags=["solution"] jupyter={"source_hidden": true}
def block_solution(d, n_heads, n_kv_heads, head_dim, d_ff):
    attention = d * head_dim * (n_heads + 2 * n_kv_heads) + n_heads * head_dim * d
    return attention + 3 * d * d_ff + 2 * d + 2 * head_dim


check("00.block", block_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **3.** A model of width 5,120 is taken from 2,048 to 65,536 positions. How many **parameters** for positions does each gain?

# %% tags=["exercise"]
my_parameters = {"2019": None, "today": None}

# %% tags=["check"]
check("00.table", my_parameters)

# %% tags=["solution"] jupyter={"source_hidden": true}
def table_solution():
    return {"2019": 5120 * (65536 - 2048), "today": 0}


check("00.table", table_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4.** `num_attention_heads` 40, `num_key_value_heads` 8, `head_dim` 128. How many times smaller is the cache than the same model's with MHA?

# %% tags=["exercise"]
my_times = None

# %% tags=["check"]
check("00.smaller", my_times)

# %% tags=["solution"] jupyter={"source_hidden": true}
def smaller_solution():
    return 40 / 8


check("00.smaller", smaller_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5.** Which of these sentences was **computed** in this chapter?
#
# - a. SwiGLU reaches a lower loss than GELU at equal parameters.
# - b. GQA with 8 KV heads is about as good as MHA.
# - c. With 64 query and 8 KV heads, GQA caches an eighth of what MHA does.
# - d. QK-norm keeps large training runs from diverging.

# %% tags=["exercise"]
my_sentence = None

# %% tags=["check"]
check("00.claims", my_sentence)

# %% tags=["solution"] jupyter={"source_hidden": true}
def claims_solution():
    return "c"


check("00.claims", claims_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Where to go from here", "show": "", "text": "- in order: each chapter takes one box of the picture apart\n- a port talks nonsense: [chapter 04](04_rope_in_practice.ipynb)\n- memory is short: chapters [05](05_kv_cache.ipynb) and [06](06_mla.ipynb)\n- a config.json to read: [chapter 10](10_real_models.ipynb)\n- \"everyone uses pre-norm, SwiGLU, RoPE and no biases\" is **nearly** true: OLMo 2, Gemma 3 and gpt-oss say otherwise"}
# ## What you can do now
#
# You **named** six changes and saw the place of each; **counted** both blocks and found that one change alone shrinks the cache; **told** computed
# figures from claims; **read** a model's sizes out of its tensors and six answers out of eight config files.
#
# **Where to go.** In order: each chapter takes one box of the picture apart, and the last runs them as GPU kernels. In a hurry: 04 if a port talks nonsense, 05 and 06 if memory is short, 10 for a config.json.
#
# **In practice.** "Everyone uses pre-norm, SwiGLU, RoPE and no biases" is nearly true: OLMo 2 (`model_type` olmo2) norms after each part, Gemma 3 before and after, with a GELU gate
# (`hidden_activation` gelu_pytorch_tanh), and gpt-oss has biases (`attention_bias` true).
#
# **Sources.** Zhang & Sennrich 2019 ([arXiv 1910.07467](https://arxiv.org/abs/1910.07467)): RMSNorm. Shazeer 2020 ([2002.05202](https://arxiv.org/abs/2002.05202)): SwiGLU. Su et al. 2021 ([2104.09864](https://arxiv.org/abs/2104.09864)): RoPE. Shazeer 2019 ([1911.02150](https://arxiv.org/abs/1911.02150)): MQA. Ainslie et al. 2023
# ([2305.13245](https://arxiv.org/abs/2305.13245)): GQA. DeepSeek-AI 2024 ([2405.04434](https://arxiv.org/abs/2405.04434)): MLA. Dehghani et al. 2023 ([2302.05442](https://arxiv.org/abs/2302.05442)): QK-norm in ViT-22B. Press & Wolf 2016 ([1608.05859](https://arxiv.org/abs/1608.05859)): tying. Touvron et al. 2023 ([2302.13971](https://arxiv.org/abs/2302.13971)): LLaMA. Chowdhery et al. 2022 ([2204.02311](https://arxiv.org/abs/2204.02311)): PaLM, which had SwiGLU, RoPE, MQA, no biases and a tied head together first. Llama Team 2024 ([2407.21783](https://arxiv.org/abs/2407.21783)).

# %% slideshow={"slide_type": "skip"}
progress("00")
