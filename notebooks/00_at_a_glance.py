# %% [markdown]
# # 00 · The block at a glance
#
# Between GPT-2 (2019) and the Llama, Qwen, DeepSeek and Gemma models of today, the transformer block changed in six places. Here you build both
# blocks, compute what each change costs and saves, and let a real model answer through the new one.
#
# After this chapter you will be able to
# - **name** the six changes and point at where each stands in the block;
# - **count** parameters, FLOPs and cache of both blocks;
# - **tell** what is computed here from what a paper claims;
# - **read** the notation of this book in anybody's config.json;
# - **use** predictions, checks, sliders and exercises.
#
# You need Python, a little PyTorch, and an idea of the GPT block: embedding, attention, MLP. About 35 minutes.
#
# ## Before you start: does a slider show?
#
# Run the next cell (Shift+Enter) and drag.

# %%
import ipywidgets

ipywidgets.IntSlider(value=7, description="drag me")

# %% [markdown]
# - **A slider:** all is well.
# - **The text `IntSlider(value=7, ..)`:** no kernel stands behind this page. On the book's web site and on GitHub that is expected: the pictures there
#   are still ones or players. In your own Jupyter it means that the browser's part and the kernel come from two environments. Close it and start
#   again with `make lab`, which keeps them together.
#
# The code of the book has two wings: `lib` is the model, small enough to read in an evening; `book` is what teaches with it.

# %%
import matplotlib.pyplot as plt
import torch

import lib
from book import configs
from book.exercises import check, progress
from book.explore.ch00_at_a_glance import draw_blocks, draw_changes, glance_explorer, one_at_a_time
from book.figures import style
from book.predict import check_close, check_equal, check_shape, predict
from lib import GPT2LM, LlamaStyleLM, parameters, read_config

style()
_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## 1 · Two blocks
#
# Both models below have the same shape: 1,000 tokens in the vocabulary, width 256, 4 layers, 8 heads. One is built as in 2019, one as today.
#
# **How this book works.** Before a result is shown, you write down what you expect: replace `None` by your number, then run. `predict` tells you how
# far off you were, and never minds. Being wrong on paper first is what makes the answer stick.
#
# Today's feed-forward has three matrices of width 688 where the old one has two of width 1,024. 2 heads of keys and values (**KV heads**) serve its 8
# query heads. It has no table of 1,024 positions, and its head is a matrix of its own. **Predict** its parameters; the first line gives you the old model's.

# %%
old, new = GPT2LM(V=1000), LlamaStyleLM(V=1000)


def count(model):
    return sum(p.numel() for p in model.parameters())


print(f"2019: {count(old):,} parameters")
my_guess = None  # <- your number here
predict(my_guess, count(new), "parameters")

# %% [markdown]
# A `check` line is a promise of the book: when it does not hold, the cell fails. `make test` runs every chapter and compares each printed line.

# %%
torch.manual_seed(0)
idx = torch.randint(0, 1000, (2, 16))  # [B, T]: two rows of sixteen tokens
check_shape("logits, 2019", old(idx), [2, 16, 1000])
check_shape("logits, today", new(idx), [2, 16, 1000])
check_equal("parameters today", count(new), 3_283_456)

# %% [markdown]
# Same in, same out, and nearly as many parameters: 3.28 against 3.68 million. What differs is inside. One block of each, every tensor that it stores:

# %%
def stored(block):
    return [f"{name:<21}{list(p.shape)!s:<12}" for name, p in block.named_parameters()]


left, right = stored(old.blocks[0]), stored(new.blocks[0])
right += [""] * (len(left) - len(right))
print(f"{'2019':<36}today")
for a, b in zip(left, right, strict=True):
    print(f"{a:<36}{b}".rstrip())

# %% [markdown]
# Read it slowly, it is the whole story. No `bias` on the right. `wk` and `wv` have 64 rows instead of 256: 2 KV heads of 32, each for four query heads. There are `q_norm` and `k_norm`, 32 numbers each.
# The feed-forward has a third matrix and is narrower: 688, not 1,024.
#
# ## 2 · The picture
#
# A transformer is a **stream** of $d$ numbers a token that runs from the embedding to the head. Each part reads it, and **adds** something to it.
# Nothing is ever overwritten. Both blocks are **pre-norm** (each part reads the stream through a norm) and have the same two lines:
#
# ```python
# x = x + self.attn(self.attn_norm(x))
# x = x + self.ffn(self.ffn_norm(x))
# ```
#
# All six changes happen inside the four names.

# %%
fig, axes = plt.subplots(1, 2, figsize=(12, 7.4), width_ratios=[7.6, 11.5])
rows = draw_blocks(axes)
plt.show()
print(rows)

# %% [markdown]
# *In words: from below, the residual stream leaves the embedding. Twice a block a branch leaves it, passes a norm and a part, and is added back. Filled
# boxes differ: today every norm is an RMSNorm, q and k are normed and turned inside attention, the MLP is a SwiGLU, and no position is added at the input.*
#
# **MoE** is a further choice: a router sends each token to a few of many feed-forward layers, the experts. Its box is dashed because this book
# does not run it. [Chapter 10](10_real_models.ipynb) counts it, so that you can read such configs too.
#
# ## 3 · Six changes, and what each buys
#
# A few words first. While it writes, a model keeps the keys and values of every past token: the **cache**. **MHA** has a KV head for each query head, as in 2019; **GQA**
# has one for a group of them, **MQA** one for all, and **MLA** keeps one short vector instead, from which keys and values are made again. **RoPE** turns q and k by an
# angle that grows with the position.
#
# | | 2019 | today | computed in this book | a claim of | ch. |
# |---|---|---|---|---|---|
# | norm | LayerNorm | RMSNorm | one reduction and one vector less | as good without centring: Zhang & Sennrich 2019 | 01 |
# | feed-forward | GELU, $4d$ | SwiGLU, about $\frac83 d$ | equal parameters, equal FLOPs | lower loss: Shazeer 2020, who says outright that he has no explanation | 02 |
# | positions | a learned table | RoPE on q and k | scores depend on $n-m$ alone, no parameters, no last row | | 03, 04 |
# | attention | MHA | GQA or MLA | the cache, 4 to 71 times smaller | quality: GQA-8 near MHA (Ainslie 2023), MQA below it (Shazeer 2019), MLA equal or better (DeepSeek-V2) | 05, 06 |
# | q and k | as they come | QK-norm (some models) | attention logits bounded | stable training at scale: ViT-22B | 07 |
# | head | tied | tied or its own | $V d$ parameters | | 08 |
#
# Two notes. The **biases** of the linear layers went without a name of their own. And the last row is often told as "GPT-2: separate, today: tied".
# GPT-2 was tied already: its published 124 million parameters come out only so. What is new is that it has become a choice.

# %%
gpt2 = read_config(configs.path("gpt2"))
print(f"GPT-2, head tied:          {parameters(gpt2).total:,}")
print(f"GPT-2, a head of its own:  {parameters(gpt2.replace(tied=False)).total:,}")
check_equal("the published count", parameters(gpt2).total, 124_439_808)

# %% [markdown]
# ### One change at a time
#
# Now at the size of Llama-2-7B (width 4,096, 32 layers, 32 heads), over a context of 4,096 tokens. Start from 2019, make **one** change, count. FLOPs are those of one more token: two
# for each weight that it meets, two for each term of a score or of a weighted sum.
#
# **Predict**: how many of the seven changes (six and the biases) make the **cache** smaller?

# %%
my_guess = None
changes = one_at_a_time("7B", context=4096)
smaller = [name for name, _, t in changes[:-1] if t["ratio"]["cache"] < 1]
predict(my_guess, len(smaller))
check_equal("changes that shrink the cache", smaller, ["GQA for MHA"])

# %%
fig = plt.figure(figsize=(12, 5.4))
rows = draw_changes(fig, changes)
plt.show()
print(rows)

# %% [markdown]
# *In words: in each panel three bars leave the grey line of 2019, to the left where something gets smaller. Six panels show hardly a bar. GQA's cache reaches 1/4.*
#
# Six of seven changes are almost free in every currency we can count: they were made for quality, stability or length. One is different: GQA leaves the
# work per token nearly as it was and cuts what is **kept** per token. That one is about serving, and chapters 05 and 06 are about little else.
#
# The 12 % of parameters that GQA saves are usually spent again. Llama 3 8B (8 KV heads) has `intermediate_size` 14,336, which is $3.5\,d$ and not $\frac83 d$:

# %%
for name in ("llama-2-7b", "llama-3-8b"):
    c = configs.load(name)
    ratio = c["intermediate_size"] / c["hidden_size"]
    heads = f"{c['num_key_value_heads']:>2} KV heads"
    print(f"{name}: {heads}, intermediate_size {c['intermediate_size']:,} = {ratio:.4g} d")

# %% [markdown]
# ### Now you: put a block together
#
# Seven choices, a size, a context. The bars always compare **your** block with the 2019 block of the same size.
#
# Try: `SwiGLU, 4 d kept`: what does the third matrix cost then? `MLA` at 131,072 tokens: what does it pay for its small cache? `learned table` against `RoPE` in the
# tiny size while the context grows. (MLA is sized as DeepSeek-V2 sizes it: $d_c = 4 d_h$ and $d_R = d_h / 2$.)

# %%
glance_explorer

# %%
for attention in ("MHA", "GQA", "MQA", "MLA"):
    t = glance_explorer.table(attention=attention, size="70B", context=131072)
    one, whole = t["new"]["cache"], t["new"]["cache_at"] / 2**30
    print(f"{attention}: {one:>9,} bytes a token, {whole:>5.4g} GiB for 131,072 tokens")
gqa = glance_explorer.table(size="70B", context=131072)["new"]
check_equal("Llama-3-70B's cache for a token", gqa["cache"], 327_680)
weights = 2 * parameters(read_config(configs.path("llama-3-70b"))).total
check_equal("its weights in bf16, GB", round(weights / 1e9), 141)

# %% [markdown]
# Read the first line against the last check: with MHA, **one** conversation of 131,072 tokens would need more than twice the memory of all the weights.
#
# ### "4 to 60 times smaller": than what?
#
# A ratio needs its denominator. Here: the same model with plain MHA, one key and one value head for each query head. **Predict** it for Llama-3-8B (32 query heads, 8 KV
# heads) and for DeepSeek-V3 (128 heads; it keeps 512 + 64 numbers a layer, and MHA would keep 128 keys and values of 128).

# %%
my_guess = {"Llama-3-8B": None, "DeepSeek-V3": None}
ratio = {"Llama-3-8B": 32 / 8, "DeepSeek-V3": 128 * (128 + 128) / (512 + 64)}
for name, value in ratio.items():
    predict(my_guess[name], round(value, 1), f"times, {name}")
exact = 128 * (192 + 128) / (512 + 64)  # V3's own keys are 128 + 64 wide
print(f"DeepSeek-V3 against itself without compression: {exact:.1f} times")
check_close("4 to 60, and 71", [*ratio.values(), exact], [4, 56.9, 71.1], 0.001)

# %% [markdown]
# "60" is 57 with keys of 128; V3's real keys are wider, which gives 71. [Chapter 06](06_mla.ipynb) has a third denominator. Whenever you read "N times smaller", ask.
#
# ### A table ends, a rotation does not
#
# The 2019 block looks positions up in a learned table. Give the old model one token more than the 1,024 it was built for. Then build both anew for 4,096 and load
# the old weights. **Predict** which of the two takes them.

# %%
try:
    old(torch.zeros(1, 1025, dtype=torch.long))
except ValueError as error:
    print(error)

# %%
def fits(longer, trained):
    theirs = trained.state_dict()
    return all(p.shape == theirs[name].shape for name, p in longer.state_dict().items())


my_guess = None  # "2019", "today" or "both"
longer = {"2019": GPT2LM(1000, max_len=4096), "today": LlamaStyleLM(1000, max_len=4096)}
takers = [name for name, model in longer.items() if fits(model, old if name == "2019" else new)]
predict(my_guess, "both" if len(takers) == 2 else takers[0])
longer = longer["today"]
_ = longer.load_state_dict(new.state_dict())
check_close("the longer model, first 16 tokens", longer(idx), new(idx))
check_shape("logits for 2,000 tokens", longer(idx.repeat(1, 125)), [2, 2000, 1000])

# %% [markdown]
# For RoPE, `max_len` is a setting and not a tensor. That it **runs** beyond its trained length does not yet mean that it runs well: [chapter 04](04_rope_in_practice.ipynb).
#
# ## 4 · The same six questions, asked of real models
#
# Every model on a hub has a config.json. `lib.read_config` reads it; here are its six answers for eight models. (The files come with the book,
# unchanged.) `GQA 4:1` means four query heads to a KV head. In a *window* a layer sees only the last tokens, and *of latents* means MLA's short vectors.

# %%
models = ("gpt2", "llama-2-7b", "llama-3-8b", "olmo-2-7b")
models += ("qwen3-0.6b", "gemma-3-1b", "gpt-oss-20b", "deepseek-v3")
answers = {name: configs.six_answers(read_config(configs.path(name))) for name in models}
for name, a in answers.items():
    print(f"{name:<13}{a['norm']:<27}{a['feed-forward']:<22}{a['positions']}")
    print(f"{'':<13}{a['attention']:<27}QK-norm: {a['QK-norm']:<13}head: {a['head']}")
check_equal("models with RMSNorm", sum("RMS" in a["norm"] for a in answers.values()), 7)
check_equal("models with RoPE", sum("RoPE" in a["positions"] for a in answers.values()), 7)

# %% [markdown]
# After GPT-2, RMSNorm and RoPE are everywhere here, and so is a gated feed-forward, alone or in the experts of a MoE. The rest is where today's models differ: where the norms stand, how many KV heads, windows, QK-norm, tying. By
# [chapter 10](10_real_models.ipynb) you will read such a line from any config.json, and catch it where it misleads.
#
# ## 5 · Notation
#
# The same few quantities have a different name in every code base. This book uses the first column.
#
# | ours | symbol | Hugging Face config.json | Meta, DeepSeek code | elsewhere |
# |---|---|---|---|---|
# | `d` | $d$ | `hidden_size` | `dim` | `n_embd`, `d_model` |
# | `n_layers` | $L$ | `num_hidden_layers` | `n_layers` | `n_layer` |
# | `n_heads` | $h$ | `num_attention_heads` | `n_heads` | `n_head` |
# | `n_kv_heads` | $n_{kv}$ | `num_key_value_heads` | `n_kv_heads` | `n_query_groups`, `n_local_heads`, `n_kv_groups` |
# | `group_size` = $h / n_{kv}$ | | `num_key_value_groups` (!) | `n_rep` | `q_per_kv` |
# | `head_dim` | $d_h$ | `head_dim` | `head_dim` | `head_size` |
# | `d_ff` | $d_{ff}$ | `intermediate_size` | `hidden_dim` (before rounding) | |
# | `rope_base` | $b$ | `rope_theta` | `rope_theta` | `rotary_emb_base` |
# | `kv_lora_rank`, `qk_rope_head_dim` | $d_c$, $d_R$ | the same | the same | |
# | `attn_norm`, `ffn_norm` | | `input_layernorm`, `post_attention_layernorm` (!) | as ours | `norm_1`, `norm_2` |
#
# Two traps, marked (!): `num_key_value_groups` counts query heads **per** KV head, not KV heads. And `post_attention_layernorm` is the norm **before** the feed-forward.
#
# Letters in shape comments: $B$ rows in the batch, $T$ tokens in this call, $S$ tokens that are attended to (past and present), $V$ vocabulary. Memory is in KiB, MiB, GiB
# ($2^{10}$, $2^{20}$, $2^{30}$ bytes); a vendor's GB are $10^9$.
#
# ## 6 · A real model, through this code
#
# SmolLM2-135M-Instruct is a block of exactly this kind: 30 layers, width 576, 9 query and 3 KV heads, RoPE, SwiGLU, tied. `make lab` has put its weights into `models/`.
# No model library stands behind it: `lib` reads the file, PyTorch multiplies, and the `Block` of the picture runs it.

# %%
folder = lib.find_model()
model, tokenizer = lib.load_model(folder), lib.load_tokenizer(folder)
print(type(model.blocks[0]).__module__, type(model.blocks[0]).__name__, "x", len(model.blocks))
check_equal("parameters", count(model), 134_515_008)
prompt = lib.chat_prompt("What is the capital of France?")
print(prompt)

# %% [markdown]
# That is all the magic of a chat: a text with marks for whose turn it is, which the model continues. Greedy decoding takes the likeliest token each time. **Write down** its answer.
#
# The last digits of logits differ between machines, so we also measure by how much each token won. A margin above 0.05 is far more than any rounding.

# %%
my_guess = None
idx = torch.tensor([tokenizer.encode(prompt).ids])
out = lib.generate(model, idx, max_new_tokens=7)
best = model(out[:, :-1])[0, idx.shape[1] - 1 :].topk(2).values
check_equal("each token wins by more than 0.05", bool((best[:, 0] - best[:, 1] > 0.05).all()), True)
answer = tokenizer.decode(out[0, idx.shape[1] :].tolist())
predict(my_guess, answer)
check_equal("the answer", answer, "The capital of France is Paris.")

# %% [markdown]
# Ask it something else: change the question, give it more than 7 tokens, and run both cells again (the checks will then complain, as they should). Or in a terminal, streaming:
# `python -m lib generate "Why is the sky blue?"`. With 135 million parameters it is fluent and knows little.
#
# ## Exercises
#
# Each exercise has three cells: yours, the check, and a folded solution. The check knows the usual mistakes by name. What you solve is kept in `.progress.json` beside
# your copies in `work/`, and `progress()` shows it. Nothing is sent anywhere.
#
# **1. Count a block.** Parameters of one modern block as in the table of section 1: GQA, QK-norm (one gain of `head_dim` for q, one for k), SwiGLU, two norms, no biases.

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

# %% [markdown]
# **2.** Which change does a user of a model served to thousands notice, although it leaves the FLOPs of a token nearly as they were?
#
# - a. SwiGLU for GELU
# - b. RMSNorm for LayerNorm
# - c. RoPE for a table
# - d. GQA for MHA

# %% tags=["exercise"]
my_change = None

# %% tags=["check"]
check("00.serving", my_change)

# %% tags=["solution"] jupyter={"source_hidden": true}
def serving_solution():
    return "d"


check("00.serving", serving_solution)

# %% [markdown]
# **3.** A model of width 4,096 is taken from 1,024 to 131,072 positions. How many **parameters** for positions does each block gain?

# %% tags=["exercise"]
my_parameters = {"2019": None, "today": None}

# %% tags=["check"]
check("00.table", my_parameters)

# %% tags=["solution"] jupyter={"source_hidden": true}
def table_solution():
    return {"2019": 4096 * (131072 - 1024), "today": 0}


check("00.table", table_solution)

# %% [markdown]
# **4.** `num_attention_heads` 40, `num_key_value_heads` 8, `head_dim` 128. How many times smaller is the cache than the same model's with MHA?

# %% tags=["exercise"]
my_times = None

# %% tags=["check"]
check("00.smaller", my_times)

# %% tags=["solution"] jupyter={"source_hidden": true}
def smaller_solution():
    return 40 / 8


check("00.smaller", smaller_solution)

# %% [markdown]
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

# %% [markdown]
# ## What you can do now
#
# You **named** six changes and saw where each stands; **counted** both blocks and found that one change alone shrinks the cache; **told** computed
# figures from claims; **read** six answers out of eight config files; and **used** every tool of the book. Proved here: the modern model's 3,283,456
# parameters and [2, 16, 1000] logits, GPT-2's count, and a real model answering through the same class.
#
# **Where to go.** In order, 01 to 11; each chapter takes one box of the picture apart, and the last runs the boxes as GPU kernels. In a hurry: 04 if a port talks nonsense, 05 and 06 if memory is short, 10 if there is a config.json to
# understand.
#
# **In practice.** "Everyone uses pre-norm, SwiGLU, RoPE and no biases" is nearly true: in section 4, OLMo 2 (`model_type` olmo2) norms after each part, Gemma 3 before and after, its gate is a GELU
# (`hidden_activation` gelu_pytorch_tanh), and gpt-oss has biases (`attention_bias` true). [Chapter 10](10_real_models.ipynb) counts such exceptions.
#
# **Sources.** Zhang & Sennrich 2019 ([arXiv 1910.07467](https://arxiv.org/abs/1910.07467)): RMSNorm. Shazeer 2020 (2002.05202): SwiGLU. Su et al. 2021 (2104.09864): RoPE. Shazeer 2019 (1911.02150): MQA. Ainslie et al. 2023
# (2305.13245): GQA. DeepSeek-AI 2024 (2405.04434): MLA. Dehghani et al. 2023 (2302.05442): QK-norm in ViT-22B. Press & Wolf 2016 (1608.05859): tying. Touvron et al. 2023 (2302.13971): LLaMA,
# which put most of it together. Llama Team 2024 (2407.21783).

# %%
progress("00")
