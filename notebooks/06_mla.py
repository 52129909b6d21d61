# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "128 heads in each of 61 layers, and fewer cached bytes than a 70B model with 8 KV heads. In fifty minutes you will"}
# # 06 · Multi-head latent attention
#
# DeepSeek-V3 has 128 heads in each of its 61 layers and caches less per token than a 70B model with 8 KV heads.
#
# After it you will be able to
# - **say** what an MLA layer caches, and compute its bytes from a config;
# - **derive** absorption, and write a whole layer with it;
# - **explain** why a rotation must not stand inside it, and what decoupled RoPE does about that;
# - **decide** when to absorb and when to expand;
# - **spot** wrong counts of MLA's cache.
#
# You need chapters [03](03_rope.ipynb) (RoPE), [05](05_kv_cache.ipynb) (the KV cache) and the two layouts of [04](04_rope_in_practice.ipynb). About 50 minutes.

# %% slideshow={"slide_type": "skip"}
from dataclasses import replace
from itertools import product

import matplotlib.pyplot as plt
import torch

import lib
from book import configs
from book.bench import is_stale, load_bench
from book.corpus import load_corpus
from book.evidence import kept_by, narrowed
from book.exercises import check, mine, progress
from book.explore.ch06_mla import draw_layer, mla_explorer, read_queries
from book.figures import COLORS, style
from book.predict import check_close, check_equal, check_shape, predict
from lib import KVCache, LatentCache, MLAttention, apply_rope, attend, permute_heads, rms_norm, rope_cache

style()
torch.manual_seed(0)
_ = torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Sharing heads ends at one head", "show": "", "text": "DeepSeek-V3's shape: 61 layers, 128 heads, keys of 128 + 64 numbers, values of 128, two bytes each.\n\nGQA and MQA give several query heads **the same** keys and values. At one KV head nothing is left to share.\n\n**Write down:** how many bytes would one token cost as plain MHA?"}
# ## 1 · Where GQA stops
#
# GQA makes the cache smaller by giving several query heads **the same** keys and values. At one KV head (MQA) nothing is left to share.
#
# Take DeepSeek-V3's shape: 61 layers, 128 heads, keys of 128 + 64 = 192 numbers, values of 128, two bytes each. **Write down** how many bytes one token would cost as plain MHA.

# %% slideshow={"slide_type": "-"}
my_guess = None  # bytes per token
mha = 128 * (192 + 128) * 61 * 2
predict(my_guess, mha, "bytes per token as MHA")
print(f"{'kind':<8}{'KV heads':>9}{'bytes per token':>17}{'GiB at 128K':>13}")
for kind, n_kv in (("MHA", 128), ("GQA-8", 8), ("MQA", 1)):
    size = n_kv * (192 + 128) * 61 * 2
    print(f"{kind:<8}{n_kv:>9}{size:>17,}{size * 131072 / 2**30:>13.2f}")
check_equal("MHA at V3's shape", mha, 4_997_120)
print(f"as MHA {mha / 2**20:.2f} MiB per token; keys of all heads, without the 64: 128 x 128 = {128 * 128:,} wide")

# %% [markdown] slideshow={"slide_type": "slide", "title": "MLA keeps one short vector, and makes every head's keys and values from it", "text": "$c$ is the **latent**, and the only thing cached. Every head still has keys and values of its own; none of them is stored.\n\n- D is for *down*, U for *up*\n- DeepSeek-V3: $d_c = 512$ (`kv_lora_rank`), where the keys of all heads together are $128 \\times 128 = 16{,}384$ numbers wide"}
# MLA takes another road. Every head has its **own** keys and values, and none of them is stored. Stored is one short vector per token, the **latent** $c$, from which all of them can be made again:
#
# $$c = W^{DKV} x \in \mathbb{R}^{d_c}, \qquad k_j = W^{UK}_j c, \qquad v_j = W^{UV}_j c \qquad (j = 1 \ldots h).$$
#
# D is for *down*, U for *up*. DeepSeek-V3: $d_c = 512$ (`kv_lora_rank` in config.json), where the keys of all heads together are $128 \times 128 = 16{,}384$ numbers wide.
#
# ## 2 · One latent, many heads
#
# We work small, with every size different, so that no mix-up can hide: $d = 56$, $h = 6$, $d_c = 16$, keys of 10 and values of 12 per head (`dc`, `dn`, `dv` in the code; `dr` and `q_rank` wait for section 5).
#
# At 23 tokens, put the keys of all heads side by side, one row per token: a [23, 60] matrix. **Predict** its rank.

# %% slideshow={"slide_type": "subslide", "title": "GQA copies heads; MLA learns the map", "text": "Sizes all different: $d = 56$, $h = 6$, $d_c = 16$, keys of 10. Put the keys of all heads side by side, one row per token, for 23 tokens: a [23, 60] matrix.\n\n**Predict** its rank."}
d, h, dc, dn, dv, dr, q_rank = 56, 6, 16, 10, 12, 4, 20
S = 23  # tokens
gen = torch.Generator().manual_seed(1)
x = torch.randn(S, d, generator=gen, dtype=torch.float64)
W_down = torch.randn(dc, d, generator=gen, dtype=torch.float64) / d**0.5
W_uk = torch.randn(h, dn, dc, generator=gen, dtype=torch.float64) / dc**0.5
W_uv = torch.randn(h, dv, dc, generator=gen, dtype=torch.float64) / dc**0.5

latent = x @ W_down.T  # [S, dc]
keys = latent @ W_uk.mT  # [h, S, dn]: .mT exchanges the last two axes
check_shape("latent", latent, [23, 16])
check_shape("keys of all heads", keys, [6, 23, 10])
my_guess = None
rank = int(torch.linalg.matrix_rank(keys.transpose(0, 1).flatten(1)))
predict(my_guess, rank)
check_equal("rank of all keys together", rank, dc)

# %% [markdown] slideshow={"slide_type": "notes"}
# Each token's 60 key numbers come from 16. The heads differ, yet together they carry $d_c$ numbers per token. GQA fixes $W^{UK}$ to copies of rows; MLA learns it.
#
# **But the saving is not there yet.** The score of a query with a cached token needs that token's key, and the key is not in the cache. Making it again means multiplying every latent of the past by $W^{UK}$ **at every step**. At V3's size, over 2,048 tokens, for each layer and each new token:

# %% slideshow={"slide_type": "slide", "title": "Low rank alone moves the cost from memory to arithmetic", "text": "The score needs a key, and the key is not in the cache. Making keys and values again at **every** step, 2,048 tokens, V3's size, per layer and new token:"}
V3 = {"heads": 128, "dc": 512, "dn": 128, "dv": 128, "dr": 64}
remake = 2 * 2048 * V3["dc"] * V3["heads"] * (V3["dn"] + V3["dv"])
attention = 2 * 2048 * V3["heads"] * (V3["dn"] + V3["dr"] + V3["dv"])
print(f"make keys and values again: {remake / 1e9:6.2f} GFLOP")
print(f"scores and weighted sum:    {attention / 1e9:6.2f} GFLOP")
print(f"ratio, at any length: {remake / attention:.1f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "Absorption moves a parenthesis: the matrix meets the query once", "text": "On the left $W^{UK}$ meets **every cached token**; on the right it meets **the query, once**. Values move the same way."}
# Four hundred times the work of the attention itself: low rank alone moves the cost from memory to arithmetic.
#
# ## 3 · Moving a parenthesis
#
# The score of one head is $q^\top k = q^\top (W^{UK} c)$. Matrix products may be bracketed as we like:
#
# $$q^\top \left(W^{UK} c\right) \;=\; \left(W^{UK\top} q\right)^\top c .$$
#
# On the left, $W^{UK}$ meets **every cached token**. On the right it meets **the query, once**, and the moved query $\tilde q = W^{UK\top} q \in \mathbb{R}^{d_c}$ is compared with the latents as they lie in the cache. This is **absorption**.
#
# Values move the same way. The output of a head is a weighted sum of values, and the weights $a_s$ are plain numbers:
#
# $$\sum_s a_s \left(W^{UV} c_s\right) \;=\; W^{UV} \sum_s a_s c_s .$$

# %% slideshow={"slide_type": "skip"}
q = torch.randn(h, 1, dn, generator=gen, dtype=torch.float64)  # one query, all heads
left = q @ keys.mT  # [h, 1, S]: keys made for all 23 tokens
q_tilde = q @ W_uk  # [h, 1, dc]: once
right = q_tilde @ latent.T
check_close("scores, two bracketings", left, right)
a = (right / dn**0.5).softmax(-1)  # [h, 1, S]
summed_values = a @ (latent @ W_uv.mT)  # 23 values of each head, then their sum
summed_latents = (a @ latent) @ W_uv.mT  # the sum, then one value
check_close("outputs, two bracketings", summed_values, summed_latents)

# %% [markdown] slideshow={"slide_type": "skip"}
# ### Multiply the two matrices?
#
# Papers say that $W^{UK}$ is absorbed *into* the query projection. It is tempting to multiply the two matrices once and store the product. V3 makes its queries in two steps, $W^{DQ}$ from $d$ down to 1,536 (`q_lora_rank`) and $W^{UQ}$ up to the heads.
# **Predict**: how many times as many parameters has $W^{UQ\top} W^{UK}$, one matrix per head, as the two apart?

# %% slideshow={"slide_type": "slide", "title": "Multiply $W^{UQ\\top} W^{UK}$ once and store it?", "text": "V3 makes its queries from a vector of 1,536 (`q_lora_rank`).\n\n**Predict:** how many times as many parameters has the product, one matrix per head, as the two apart?"}
my_guess = None  # times (below 1: fewer)
two = 128 * 128 * (1536 + 512)  # W_UQ and W_UK, 128 heads of 128
merged = 128 * 1536 * 512
two_out = 128 * 128 * (512 + 7168)  # W_UV and W_O
merged_out = 128 * 512 * 7168
predict(my_guess, round(merged / two, 1), "times as many")
print(f"query side: apart {two / 1e6:6.1f}M   merged {merged / 1e6:6.1f}M")
print(f"value side: apart {two_out / 1e6:6.1f}M   merged {merged_out / 1e6:6.1f}M")
check_close("query side, millions", [two / 1e6, merged / 1e6], [33.6, 100.7], 0.001)
check_close("value side, millions", [two_out / 1e6, merged_out / 1e6], [125.8, 469.8], 0.0005)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A rotation would stand between the query and the matrix", "show": "", "ask": "Q14", "text": "RoPE turns the key of position $m$ by $R_m$ and the query of position $t$ by $R_t$. With a key made again from the latent the score is\n\n$$\\left(R_t q\\right)^\\top \\left(R_m W^{UK} c_m\\right) = q^\\top R_{m-t} W^{UK} c_m .$$\n\nThe matrix that we would move to the query side is **a different one for every cached token**.\n\nSo with RoPE on these keys one moved query would be needed per distance: the old cost again."}
# The product is one matrix of full width in the place of two thin ones, and a decode step reads every weight that it uses. So absorb **by order**: `lib.mla` keeps the matrices of the checkpoint.
#
# ## 4 · What a rotation breaks
#
# RoPE turns the key of position $m$ by $R_m$ and the query of position $t$ by $R_t$ ([chapter 03](03_rope.ipynb)). With a key made again from the latent the score is
#
# $$\left(R_t q\right)^\top \left(R_m W^{UK} c_m\right) = q^\top R_{m-t} W^{UK} c_m .$$
#
# Now a rotation stands between $q$ and $W^{UK}$, and **it is a different one for every cached token**. How much does the matrix that we would move, $W_q^\top R_\Delta W^{UK}$, change with the distance $\Delta$?

# %% slideshow={"slide_type": "subslide", "title": "How far the matrix moves with the distance", "show": "printed", "text": "$W_q^\\top R_\\Delta W^{UK}$ against distance 0, for one head of 64:"}
gen = torch.Generator().manual_seed(2)
W_q = torch.randn(64, d, generator=gen, dtype=torch.float64)
W_k = torch.randn(64, dc, generator=gen, dtype=torch.float64)
cos, sin = rope_cache(6, 64)
keys_at = [apply_rope(W_k.T[None, None, :, None], cos[[m]], sin[[m]]).squeeze().T for m in range(6)]
at = [W_q.T @ turned for turned in keys_at]
drift = [((at[m] - at[0]).norm() / at[0].norm()).item() for m in range(6)]
for m in range(1, 6):
    print(f"distance {m}: the matrix differs from distance 0 by {drift[m]:.0%}")
check_equal("moved by more than a fifth at distance 1", drift[1] > 0.2, True)
check_equal("moves on with the distance", drift == sorted(drift), True)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Decoupled RoPE: content is absorbed, position has a small key of its own", "text": "- width $d_{nope}$ carries **content**: no rotation, absorbed\n- width $d_R$ carries **position**: made from $x$, rotated, cached as it is, one for all heads"}
# One moved query per distance is the old cost again; caching the rotated keys is the full cache again.
#
# ## 5 · Decoupled RoPE
#
# MLA splits the head. A part of width $d_{nope}$ carries content: no rotation, absorbed. A small part of width $d_R$ carries position: its key is made straight from $x$, rotated, and **cached as it is**, one for all heads:
#
# $$k^R = \mathrm{RoPE}(W^{KR} x), \qquad \text{score}_j = \frac{q_j^{C\top} k^C_j + q_j^{R\top} k^R}{\sqrt{d_{nope} + d_R}} .$$
#
# Two more things are new: the latent goes through an RMSNorm ([chapter 01](01_rmsnorm.ipynb)) before it is cached, and so does the low-rank query, between $W^{DQ}$ and $W^{UQ}$.

# %% slideshow={"slide_type": "subslide", "title": "Only the two filled boxes outlive a step"}
fig, ax = plt.subplots(figsize=(11, 5))
print(draw_layer(ax))
plt.show()

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: $x$ gives the query (left), the latent (middle) and the rope key (right). Latent and rope key are filled: cached. The keys and values of head $j$ are made from the latent; query, key and rope key meet in the score.* ([Chapter 05](05_kv_cache.ipynb) has the four caches side by side.)
#
# Position now lives in $k^R$ alone. That can be tested: without the rotation, attention over the past is a **bag of tokens**. We shuffle the past of a layer and look at the next token's output.

# %% slideshow={"slide_type": "subslide", "title": "Without the rope key, the past is a bag of tokens"}
torch.manual_seed(3)
layer = MLAttention(d, h, q_rank, dc, dn, dr, dv).double()
for p in layer.parameters():
    p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 1.0))
past, new = torch.randn(1, S, d).double(), torch.randn(1, 1, d).double()
shuffled = past[:, torch.randperm(S)]
cos, sin = rope_cache(S + 1, dr)
with_rope = [layer.expanded(torch.cat([p, new], 1), cos, sin)[:, -1] for p in (past, shuffled)]
no_turn = (torch.ones_like(cos), torch.zeros_like(sin))
without = [layer.expanded(torch.cat([p, new], 1), *no_turn)[:, -1] for p in (past, shuffled)]
check_close("no rotation: order of the past", without[0], without[1])
check_equal("rotated rope key: order matters", bool((with_rope[0] - with_rope[1]).abs().max() > 0.01), True)

# %% [markdown] slideshow={"slide_type": "skip"}
# **Exercise 1. Absorb.** Scores of one query with all cached tokens, in the absorbed form. `q_nope` [h, dn], `q_rope` [h, dr] (already rotated), `w_uk` [h, dn, dc], `cached` [S, dc + dr], each row the latent and then the rope key; return [h, S], scaled, before the softmax.

# %% tags=["exercise"]
def my_absorbed_scores(q_nope, q_rope, w_uk, cached):
    ...

# %% tags=["check"]
check("06.absorb", my_absorbed_scores)

# %% tags=["solution"] jupyter={"source_hidden": true}
def absorb_solution(q_nope, q_rope, w_uk, cached):
    moved = (q_nope[:, None] @ w_uk)[:, 0]  # [h, dc]
    wide = torch.cat([moved, q_rope], dim=-1)
    return wide @ cached.T * (q_nope.shape[-1] + q_rope.shape[-1]) ** -0.5


check("06.absorb", absorb_solution)

# %% [markdown] slideshow={"slide_type": "notes"}
# **Exercise 2. The whole layer, from a blank cell.** `x` [T, d], one or more new tokens; `cached` [S, dc + dr], the rows of the earlier ones; `cos`, `sin` [T, dr / 2], the new tokens' rows of the table. Return the output [T, d] and the grown cache [S + T, dc + dr], latent after its norm, rope key after its rotation.
# `w` holds `wq_a` [q_rank, d] ($W^{DQ}$), `q_norm`, `wq_b` [h (dn + dr), q_rank] ($W^{UQ}$, content before rope in each head), `wkv_a` [dc + dr, d] ($W^{DKV}$ on top of $W^{KR}$), `kv_norm`, `W_uk` [h, dn, dc], `W_uv` [h, dv, dc], `wo` [d, h dv]. DeepSeek's weights turn neighbours: `apply_rope(y, cos, sin, "adjacent")`. Earlier tokens must not see later ones, and no key or value is ever made. Once it passes, the chapter checks **your** layer against the library's: a prompt of 9, a chunk of 5, single tokens.

# %% tags=["exercise"]
def my_mla(x, w, cos, sin, cached):
    ...

# %% tags=["check"]
check("06.mla", my_mla)

# %% slideshow={"slide_type": "slide", "title": "All of it in thirteen lines", "show": "code"} tags=["solution"] jupyter={"source_hidden": true}
def mla_solution(x, w, cos, sin, cached):
    (h, dn, dc), T = w["W_uk"].shape, len(x)
    q = rms_norm(x @ w["wq_a"].T, w["q_norm"]) @ w["wq_b"].T
    q_nope, q_rope = q.view(T, h, -1).transpose(0, 1).tensor_split([dn], dim=-1)  # [h, T, dn], [h, T, dr]
    latent, k_rope = (x @ w["wkv_a"].T).tensor_split([dc], dim=-1)
    k_rope = apply_rope(k_rope, cos, sin, "adjacent")
    new = torch.cat([rms_norm(latent, w["kv_norm"]), k_rope], dim=-1)
    cached = torch.cat([cached, new])  # all that is kept
    wide_q = torch.cat([q_nope @ w["W_uk"], apply_rope(q_rope, cos, sin, "adjacent")], dim=-1)
    scores = wide_q @ cached.T * (dn + k_rope.shape[-1]) ** -0.5  # [h, T, S + T]
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(len(cached) - T + 1)
    a = scores.masked_fill(later, -torch.inf).softmax(-1)
    heads = a @ cached[:, :dc] @ w["W_uv"].mT  # [h, T, dv]
    return heads.transpose(0, 1).flatten(1) @ w["wo"].T, cached


check("06.mla", mla_solution)

# %% slideshow={"slide_type": "skip"}
one_layer = mine("06.mla")
w = {name: p.detach() for name, p in ((n.removesuffix(".weight"), p) for n, p in layer.named_parameters())}
w["W_uk"], w["W_uv"] = layer.up_projections()
tokens = torch.cat([past, new], 1)  # [1, 24, d]
whole = layer.expanded(tokens, cos, sin)[0]  # [24, d], keys and values of every head
rows, outs = torch.zeros(0, dc + dr, dtype=torch.float64), []
for piece, turn in zip(tokens[0].split([9, 5, *[1] * 10]), zip(cos.split([9, 5, *[1] * 10]), sin.split([9, 5, *[1] * 10]))):
    out, rows = one_layer(piece, w, *turn, rows)
    outs.append(out)
check_close("by hand, absorbed = lib, expanded", torch.cat(outs), whole)
check_shape("what was kept", rows, [24, 20])

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 6 · Three caches, one answer
#
# `lib.MLAttention` has both forms as two methods of one object. Three ways to decode, with what each of them **really holds**:
#
# - **expanded**: per-head keys and values are cached, as MHA would;
# - **re-expanded**: the latent is cached, and every key and value is made again at each step;
# - **absorbed**: the latent is cached and read as it is.
#
# **Predict** the bytes that each holds for 24 tokens in float64 (8 bytes).

# %% slideshow={"slide_type": "slide", "title": "Three caches, one answer", "text": "- **expanded**: keys and values of every head are cached\n- **re-expanded**: the latent; keys and values are made again at each step\n- **absorbed**: the latent, read as it is\n\n**Predict** the bytes held for 24 tokens in float64."}
my_guess = {"expanded": None, "latent": None}
ways = {"expanded": KVCache(1, 24, h, dn + dr, dv, dtype=torch.float64)}
ways |= {way: LatentCache(1, 24, dc, dr, dtype=torch.float64) for way in ("re-expanded", "absorbed")}
decoded = {}
for way, cache in ways.items():
    step = layer.absorbed if way == "absorbed" else layer.expanded
    steps = [step(tokens[:, [t]], cos[[t]], sin[[t]], cache) for t in range(24)]
    decoded[way] = torch.cat(steps, 1)
held = {"expanded": ways["expanded"].nbytes, "latent": ways["absorbed"].nbytes}
predict(my_guess, held, "bytes held")
for way in ways:
    check_close(f"{way:<12} {ways[way].nbytes:>7,} B, same output", decoded[way], decoded["expanded"])
check_equal("expanded: h (dn + dr + dv) numbers per token", ways["expanded"].nbytes, 24 * h * (dn + dr + dv) * 8)
check_equal("latent: dc + dr numbers per token", ways["absorbed"].nbytes, 24 * (dc + dr) * 8)

# %% slideshow={"slide_type": "skip"}
for dtype in (torch.float64, torch.float32, torch.bfloat16):
    low = MLAttention(d, h, q_rank, dc, dn, dr, dv).to(dtype)
    low.load_state_dict({name: p.to(dtype) for name, p in layer.state_dict().items()})
    one, two_ways = (form(past.to(dtype), cos[:S], sin[:S]) for form in (low.expanded, low.absorbed))
    check_close(f"{str(dtype)[6:]:<9} expanded = absorbed", two_ways, one)

# %% [markdown] slideshow={"slide_type": "notes"}
# In fewer bits the two orders of multiplication round differently; a gap larger than these is a bug.
#
# ### MLA is MQA in disguise
#
# After absorption every head reads the same cached row: all $d_c + d_R$ numbers as its key, the first $d_c$ as its value. That is multi-query attention with one very wide head, and ordinary attention code computes it.

# %% slideshow={"slide_type": "slide", "title": "After absorption MLA is MQA with one very wide head"}
q_nope, q_rope = layer.queries(new, cos[S:], sin[S:])
kept_rows = ways["absorbed"].latent  # [1, 24, dc + dr]
wide_q = torch.cat([q_nope @ w["W_uk"], q_rope], -1)  # [1, h, 1, dc + dr]
as_mqa = attend(wide_q, kept_rows[:, None], kept_rows[:, None, :, :dc], scale=(dn + dr) ** -0.5)  # [1, h, 1, dc]
out = (as_mqa @ w["W_uv"].mT).transpose(1, 2).flatten(2)
check_close("MQA with one wide head", layer.wo(out), decoded["absorbed"][:, -1:])

# %% [markdown] slideshow={"slide_type": "notes"}
# The scale is $1/\sqrt{d_{nope} + d_R}$ in **both** forms: absorption reorders a product and leaves the score as it is. The wide key's own width does not enter. (A model with YaRN has a factor on top: section 10.)
#
# ## 7 · DeepSeek-V3's numbers
#
# From its config.json: `num_hidden_layers` 61, `kv_lora_rank` 512, `qk_rope_head_dim` 64, `qk_nope_head_dim` 128, `v_head_dim` 128, `num_attention_heads` 128. **Predict** the bytes per token in bf16.

# %% slideshow={"slide_type": "slide", "title": "DeepSeek-V3 caches 576 numbers per token and layer", "ask": "Q13", "text": "`num_hidden_layers` 61, `kv_lora_rank` 512, `qk_rope_head_dim` 64, `num_attention_heads` 128.\n\n**Predict** the bytes per token in bf16."}
my_guess = None
mla = lib.mla_cache_bytes(61, 512, 64)
predict(my_guess, mla, "bytes per token")
check_equal("61 * (512 + 64) * 2", mla, 70_272)
print(f"{mla / 1024:.1f} KiB per token, {131072 * mla / 2**30:.2f} GiB at 131,072 tokens")
llama = lib.kv_cache_bytes(80, 8, 128)
check_equal("Llama-3-70B, GQA-8, for comparison", llama, 327_680)
more = 671_026_404_352 / 70_553_706_496  # parameters of both, counted from their configs in chapter 08
print(f"V3 caches {llama / mla:.2f} times less than Llama-3-70B, with {more:.1f} times the parameters")

# %% [markdown] slideshow={"slide_type": "skip"}
# By how much is that smaller? "57 times." "71 times." "85 times." All three are computed correctly, against different things; the middle one compares the model with itself. The most quoted figure is the V2 report's own, **93.3 %** less cache than DeepSeek 67B (GQA-8 in 95 layers): like for like, number for number, it is 82.2 %.
# The rest is the format: the report serves V2 with a cache quantised to 6 bits on average (section 3.2.3), and 6 bits against 16 reproduce the figure.

# %% slideshow={"slide_type": "subslide", "title": "57, 71 or 85 times smaller: each against something else", "show": "printed", "text": "All three are computed correctly, against different things. The middle one compares the model with itself."}
denominators = [
    ("a plain MHA, 128 heads, K and V of 128", 2 * 128 * 128),
    ("the same model uncompressed: K 192, V 128", 128 * (192 + 128)),
    ("K and V both padded to 192", 2 * 128 * 192),
]
for words, elements in denominators:
    print(f"{elements / 576:5.1f} times   {words}")
check_close("the three ratios", [e / 576 for _, e in denominators], [56.9, 71.1, 85.3], 0.001)
groups = 576 / (2 * 128)
print(f"as much as {groups} KV heads with K and V of 128")
v2, dense = 60 * 576, 95 * 2 * 8 * 128  # numbers per token: DeepSeek-V2, DeepSeek 67B
print(f"V2 against 67B: {1 - v2 / dense:.1%} fewer numbers; at 6 bits against 16: {1 - v2 * 6 / (dense * 16):.1%} fewer bits")
check_equal("groups", groups, 2.25)

# %% [markdown] slideshow={"slide_type": "skip"}
# ### Move the sliders
#
# Left: the whole cache for 61 layers. Right: what a decode step does with it. A step that does little arithmetic per byte waits for memory (the slope); to the right of the corner it waits for arithmetic (the flat roof). The accelerator is a made-up round one: 1,000 TFLOP/s and 4 TB/s, so the corner is at 250 FLOP per byte.
#
# Try: double the heads (whose cache moves?), set $d_R$ to 0, go to 1M tokens. Then 8 GPUs: the heads are split, and so are GQA's KV heads.

# %% slideshow={"slide_type": "slide", "title": "Double the heads, set $d_R$ to 0, go to 1M tokens: whose cache moves?"}
mla_explorer

# %% slideshow={"slide_type": "skip"}
table = mla_explorer.table()
for kind in ("MHA", "GQA", "MQA", "MLA"):
    numbers, per_byte = table["elements"][kind], table["intensity"][kind]
    print(f"{kind}: {numbers:>6,} numbers per token and layer, {per_byte:6.1f} FLOP per byte, {table['step_ms'][kind]:6.2f} ms at 131,072 tokens")
check_close("MLA's FLOP per byte", table["intensity"]["MLA"], 128 * (2 * 512 + 64) / 576)
per_score = (2 * 512 + 64) / (192 + 128)
print(f"FLOPs per query and key, absorbed over expanded: {per_score:.1f}")
check_close("3.4 times", per_score, 3.4)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Many queries at once: making the keys once is cheaper", "show": "", "text": "Per head, query and cached token the absorbed form does $2(2 d_c - d_{nope} - d_v)$ FLOPs more. The expanded form makes each key and value first: $2 d_c (d_{nope} + d_v)$ per head and cached token, however many queries there are.\n\nHarmless for one query; a prefill, the call that reads the prompt, has thousands."}
# ## 8 · When not to absorb
#
# MHA reads a number (2 bytes) and uses it in one multiply-add (2 FLOPs): one FLOP per byte, and the arithmetic units idle. Of MLA's 576 numbers all 128 heads use each one, the 512 of the latent twice, as key and as value: $128 \cdot 1088 / 576 = 242$. It reads 71 times less than MHA, does 3.4 times the arithmetic, and sits near the corner of the roof.
#
# In a **prefill**, the call that reads the prompt, thousands of queries meet the same keys. Count what differs, per head:
#
# - **absorbed**, for each query and cached token: a score is $d_c + d_R$ wide in place of $d_{nope} + d_R$, a value $d_c$ in place of $d_v$. That is $2 (2 d_c - d_{nope} - d_v)$ FLOPs more.
# - **expanded**, for each cached token: its key and value are made first, $2 d_c (d_{nope} + d_v)$ FLOPs, however many queries there are.
#
# **Predict** the number of queries per call at which the two cost the same, for many keys.

# %% slideshow={"slide_type": "subslide", "title": "Above how many queries a call is absorbing the slower way?", "ask": "Q15", "text": "Set the two costs equal, for $T$ queries and many keys. **Predict** $T$ for DeepSeek-V3."}
my_guess = None
crossover = 512 * 256 / (2 * 512 - 128 - 128)
predict(my_guess, crossover, "queries per call")
check_close("large S", crossover, 170.7, 0.0005)
with torch.device("meta"):  # shapes without memory
    v3 = MLAttention(7168, 128, 1536, 512, 128, 64, 128)
check_close("lib's own rule, arithmetic alone", v3.crossover(0), crossover)
print(f"with the expanded keys' bytes, at {lib.mla.FLOPS_PER_BYTE} FLOPs per byte: {v3.crossover():.1f}")
check_close("by hand", v3.crossover(), crossover + 7 * 4 * (128 + 64 + 128) / 768)
for S_now in (256, 2048, 131072):
    T = torch.arange(1, 400)
    cost = read_queries(T, S_now)
    first = int(T[torch.as_tensor(cost["absorb"] > cost["expand"])][0])
    print(f"over {S_now:>6} keys absorption costs more from {first} queries on")

# %% [markdown] slideshow={"slide_type": "notes"}
# The line of algebra: $T (2 d_c - d_{nope} - d_v) = d_c (d_{nope} + d_v)$. That is arithmetic alone, and a lower bound. The expanded keys and values, $d_{nope} + d_R + d_v$ numbers per head and token, are also written and read again, and each byte costs the FLOPs that the machine could do meanwhile: the second number. `MLAttention.forward` follows that one; `crossover(flops_per_byte)` takes another machine's.
#
# ### One token at V3's size
#
# Was it *measured*? The book's benchmark ran one layer at V3's true size, a decode step in four ways, in turn in one run, the last with the transformers library on the same weights. `bound` is the larger of bytes over bandwidth and FLOPs over rate, both measured in that run. Timings jitter: compare the variants at one length.

# %% slideshow={"slide_type": "slide", "title": "One token at V3's true size, on a CPU", "show": "printed"}
bench = load_bench("mla")
source = bench["provenance"]
print(f"{source['date']}, torch {source['torch']}, transformers {source['transformers']}")
print(f"{source['cpu']}, {source['threads']} threads")
print(f"one layer, {source['parameters']:,} parameters, {source['dtype']}; `make bench-mla` makes it again")
check_equal("lib/mla.py changed since that run", is_stale(bench, "mla"), False)
print(f"{'tokens':>6} {'variant':>13} {'cache, bytes':>13} {'ms':>8} {'bound, ms':>10}  bound by")
for row in bench["rows"]:
    left = f"{row['context']:>6} {row['variant']:>13} {row['cache_bytes']:>13,}"
    print(f"{left} {row['ms']:>8.1f} {row['bound_ms']:>10.1f}  {row['bound_by']}")
at = {row["variant"]: row for row in bench["rows"] if row["context"] == 2048}
gain = at["re-expanded"]["ms"] / at["absorbed"]["ms"]
print(f"at 2,048 tokens absorbed is {gain:.0f} times faster than making the keys again,")
print(f"and {at['transformers']['ms'] / at['absorbed']['ms']:.0f} times faster than transformers' module")
check_equal("at least ten times", gain >= 10, True)
held = [at[way]["cache_bytes"] for way in ("expanded", "absorbed")]
check_equal("cache, expanded over latent", round(held[0] / held[1], 1), 71.1)

# %% slideshow={"slide_type": "subslide", "title": "Counted and by the clock: the lines cross, the clock later"}
turns = bench["crossover"]
fig, axes = plt.subplots(1, 2, figsize=(11, 4.4))
panels = (("extra_flops", 1e9, "GFLOP that differ"), ("ms", 1, "ms, measured"))
for ax, (field, scale, unit) in zip(axes, panels):
    for form, name in (("expanded", "old"), ("absorbed", "latent")):
        values = [t[f"{form}_{field}"] / scale for t in turns]
        _ = ax.plot([t["queries"] for t in turns], values, "o-", color=COLORS[name], label=form)
    _ = ax.set(xlabel="queries per call, over 2,048 tokens", ylabel=unit, ylim=(0, None))
_ = axes[0].legend()
plt.show()
for t in turns:
    by_count = "absorbed" if t["absorbed_extra_flops"] < t["expanded_extra_flops"] else "expanded"
    by_clock = "absorbed" if t["absorbed_ms"] < t["expanded_ms"] else "expanded"
    print(f"{t['queries']:>4} queries: FLOPs favour {by_count}, the clock {by_clock}")
where = bench["crossing"]
print(f"by the clock they cross at {where['measured']:.0f} queries; counted with that machine's")
print(f"{where['flops_per_byte']:.1f} FLOPs per byte: {where['predicted']:.0f}")
check_equal("within a quarter", abs(where["predicted"] / where["measured"] - 1) < 0.25, True)
check_equal("one query: absorbed is faster", turns[0]["absorbed_ms"] < turns[0]["expanded_ms"], True)
check_equal("512 queries: expanded is faster", turns[-1]["expanded_ms"] < turns[-1]["absorbed_ms"], True)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Every GQA layer is an MLA layer", "show": "", "text": "Take its values as the latent, and its rotated keys, all KV heads side by side, as the shared rope key.\n\nSmolLM2: 9 query heads, 3 KV heads of 64. So $d_c = 192$, $d_R = 192$, no content part in the key, no norm on the latent.\n\n**Predict**: how many numbers per token and layer does this MLA cache?"}
# *In words: left, the FLOPs in which the forms differ: expanding costs the same for any number of queries, absorbing grows with them, and the lines cross. Right, whole calls by the clock: they cross later.* The clock counts what the left panel leaves out, expanded keys that are written and read again.
#
# transformers (the version printed above) caches the latent too, and makes all keys and values again at every step. Its users save memory and no time: if MLA "does nothing" in your library, look for the line that applies `kv_b_proj` to the whole cache.
#
# ## 9 · A real model as MLA
#
# **Every GQA layer is an MLA layer**: take its values as the latent, and its rotated keys, all KV heads side by side, as the shared rope key (TransMLA, Meng et al. 2025, [arXiv 2502.07864](https://arxiv.org/abs/2502.07864)). SmolLM2: 9 query heads, 3 KV heads of 64. So $d_c = 192$, $d_R = 192$, no content part in the key, no norm on the latent;
# $W^{UV}$ picks the 64 rows of a head's group, and a query has its 64 numbers where its group's key is and zeros elsewhere. **Predict** how many numbers per token and layer this MLA caches.

# %% slideshow={"slide_type": "-"}
my_guess = None
folder = lib.find_model()
smol, tokenizer = lib.load_model(folder), lib.load_tokenizer(folder)


def as_mla(gqa):
    a, d, h = gqa.fields, gqa.wq.in_features, gqa.fields.n_heads
    width, group = a.n_kv_heads * a.head_dim, h // a.n_kv_heads
    layer = MLAttention(d, h, None, width, 0, width, a.head_dim, scale=a.head_dim**-0.5, latent_norm=False)
    queries, pick = layer.wq.weight.zero_().view(h, width, d), layer.wkv_b.weight.zero_().view(h, a.head_dim, width)
    for j, rows in enumerate(permute_heads(gqa.wq.weight, h, to="adjacent").split(a.head_dim)):
        at = slice(j // group * a.head_dim, (j // group + 1) * a.head_dim)
        queries[j, at], pick[j, :, at] = rows, torch.eye(a.head_dim)
    layer.wkv_a.weight[:] = torch.cat([gqa.wv.weight, permute_heads(gqa.wk.weight, a.n_kv_heads, to="adjacent")])
    layer.wo.weight[:] = gqa.wo.weight
    return layer


layers = [as_mla(block.attn) for block in smol.blocks]
predict(my_guess, layers[0].fields.kv_lora_rank + layers[0].fields.qk_rope_head_dim, "numbers per token and layer")

# %% slideshow={"slide_type": "slide", "title": "The same logits and the same text, decoded from latents", "show": "printed", "text": "Absorbed decode of SmolLM2 from a `LatentCache`: the table of angles is tiled once per KV head, the scale stays $1/\\sqrt{64}$."}
def as_latents(ids, caches, start=0):
    cos, sin = (table.repeat(1, 3) for table in rope_cache(len(ids), 64, base, start=start))  # one table per KV head, side by side
    x = smol.emb(torch.tensor([ids]))
    for block, layer, cache in zip(smol.blocks, layers, caches):
        x = x + layer.absorbed(block.attn_norm(x), cos, sin, cache)
        x = x + block.ffn(block.ffn_norm(x))
    return smol.head(smol.norm(x))


ids, base = tokenizer.encode("The capital of France is Paris. The capital of Italy is").ids, smol.config.layers[0].attention.rope.base
caches = [LatentCache(1, 64, 192, 192) for _ in layers]
logits, plain = as_latents(ids, caches), smol(torch.tensor([ids]))
check_close("SmolLM2 as MLA, absorbed = as it is", logits, plain)
said = []
for _ in range(8):  # decoding from the latents
    said.append(int(logits[0, -1].argmax()))
    logits = as_latents(said[-1:], caches, start=len(ids) + len(said) - 1)
check_equal("the same eight tokens", said, lib.generate(smol, torch.tensor([ids]), 8)[0, len(ids):].tolist())
print(repr(tokenizer.decode(said)), "from", caches[0].latent.shape[-1], "numbers per token and layer")
layers = caches = None

# %% [markdown] slideshow={"slide_type": "slide", "title": "How narrow can the latent be?", "show": "", "text": "Put every layer's keys and values through the $r$ directions that carry most of their squares on one text; measure the loss on another. Control: random directions.\n\n**Predict**: with 64 of 192 numbers left of each, how many times as much loss do narrower **values** cost as narrower **keys**?"}
# The same model, the same bytes. Three parts of MLA were set to nothing: the norm of the latent, a content part of the key that is never rotated, and one rope key for **all** heads. These are what MLA *adds*.
#
# ### A narrower latent
#
# How narrow can this latent be? What counts is what the **activations** use. Run a text, find the directions of $k$ (before RoPE) and $v$ that carry most of their squares, put every layer through the first $r$ of them, and measure the loss on another text. Control: a random subspace of the same $r$.
# (Keys narrowed *before* the rotation must be made again at every step: section 4. This is about quality alone. MHA2MLA, [arXiv 2502.14837](https://arxiv.org/abs/2502.14837), keeps the few rotated pairs that matter and drops the other rotations; TransMLA gathers the rotation in one head.)
# **Predict**: with 64 of 192 numbers left of each, how many times as much loss do narrower **values** cost as narrower **keys**? (Below 1: keys cost more.)

# %% slideshow={"slide_type": "-"}
my_guess = None  # times
pieces = ((load_corpus()[at : at + 4000].decode(), n) for at, n in ((100_000, 400), (500_000, 200)))
seen, unseen = (torch.tensor([tokenizer.encode(text).ids[:n]]) for text, n in pieces)
own = {name: w.clone() for name, w in smol.state_dict().items() if name.split(".")[-2] in ("wk", "wv")}
kept = kept_by(smol, seen)


def loss_after(rank, which, random=False):
    share = narrowed(smol, kept, rank, which, random)
    loss = torch.nn.functional.cross_entropy(smol(unseen)[0, :-1], unseen[0, 1:]).item()
    _ = smol.load_state_dict(own, strict=False)
    return share, loss


whole, lost = loss_after(192, "keys")[1], {}  # all of the numbers: nothing is cut
for (which, rank), random in product((("keys", 64), ("values", 64), ("both", 128)), (False, True)):
    share, loss = loss_after(rank, which, random)
    lost[which, rank, random] = loss - whole
    print(f"{which:<7} through {rank:>3}, {'random' if random else 'largest'}: {share:4.0%} of the squares, loss +{loss - whole:.2f}")
predict(my_guess, round(lost["values", 64, False] / lost["keys", 64, False]), "times")

# %% slideshow={"slide_type": "skip"}
check_equal("values cost more than three times as much as keys", lost["values", 64, False] > 3 * lost["keys", 64, False], True)
check_equal("the control: random directions lose far more", all(lost[w, r, True] > 4 * lost[w, r, False] for w, r, _ in lost), True)
check_equal("a third of keys and values still costs", lost["both", 128, False] > 0.2, True)
start = tokenizer.encode("The old man went to the").ids
for rank in (384, 256, 128, 64):
    if rank < 384:
        _ = narrowed(smol, kept, rank, "both")
    written = lib.generate(smol, torch.tensor([start]), 10)[0, len(start):].tolist()
    _ = smol.load_state_dict(own, strict=False)
    print(f"{rank:>3} numbers: {tokenizer.decode(written)!r}")
smol = own = kept = None  # their memory is free again

# %% [markdown] slideshow={"slide_type": "slide", "title": "On eight GPUs MLA keeps more than GQA-8", "show": "", "text": "Tensor parallelism gives each GPU some heads and the KV heads that they read. One latent serves **all** heads: nobody can do without it.\n\n**Predict** the bytes per token that each of 8 GPUs keeps of DeepSeek-V3, as MLA and as GQA-8."}
# Most of the squares in a third of the numbers, and the loss still notices: **variance kept is not loss kept**. On these two texts keys are cheap and values are not. SmolLM2 was not trained through a bottleneck; TransMLA and MHA2MLA train on after the cut. That MLA trained from the start matches or beats MHA is the claim of the DeepSeek-V2 report ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434)); [chapter 09](09_full_block.ipynb) trains seven small caches side by side.
#
# ### What each of eight GPUs keeps
#
# Tensor parallelism gives each GPU some of the heads, and of GQA's cache the KV heads that they read. One latent serves **all** heads: nobody can do without it. **Predict** the bytes per token that each of 8 GPUs keeps of DeepSeek-V3, as MLA and as GQA-8.

# %% slideshow={"slide_type": "-"}
my_guess = {"MLA": None, "GQA-8": None}
v3_config = lib.read_config(configs.path("deepseek-v3"))
grouped = v3_config.replace(layers=tuple(replace(x, attention=lib.GQA(128, 8, 192, 128)) for x in v3_config.layers))
per_gpu = {name: lib.kv_bytes_per_gpu(c, 1, 8) for name, c in (("MLA", v3_config), ("GQA-8", grouped))}
for name, value in per_gpu.items():
    predict(my_guess[name], value, f"bytes per token and GPU ({name})")
whole_cache = {name: lib.kv_bytes_per_token(c) for name, c in (("MLA", v3_config), ("GQA-8", grouped))}
print("all eight together: " + ", ".join(f"{name} {8 * value:,}" for name, value in per_gpu.items()) + f"; one copy: MLA {whole_cache['MLA']:,}, GQA-8 {whole_cache['GQA-8']:,}")

# %% [markdown] slideshow={"slide_type": "skip"}
# On one GPU MLA's cache is 4.4 times smaller; on eight each GPU keeps **more** of it than of GQA-8. So MLA is served **data-parallel**: each GPU takes its own sequences whole, and the experts alone are spread (SGLang's `--enable-dp-attention`).
#
# ## 10 · Bugs that shipped
#
# Five wrong counts for DeepSeek-V3 in bytes per token (bf16; right: 70,272). Two somebody printed (their addresses stand beside them), three are easy to make.

# %% slideshow={"slide_type": "slide", "title": "Five wrong counts that shipped", "show": "printed", "text": "Bytes per token of DeepSeek-V3 in bf16, from public code or tables. Right: 70,272. Which of the five terms did each get wrong: the layers, the latent, the rope key, the heads, the two?"}
L, b = 61, 2
wrong = {
    "two latents, no rope key (LMCache#694)": L * 2 * 512 * b,
    "the latent alone, rope key forgotten": L * 512 * b,
    "one rope key per head": L * (512 + 128 * 64) * b,
    "HF's head_dim 64 read as a KV head": L * 2 * 128 * 64 * b,
    "hidden / heads = 56 as a KV head (TensorRT-LLM#16707)": L * 2 * 128 * 56 * b,
}
for words, value in wrong.items():
    print(f"{value:>9,}  {value / mla:5.2f} times  {words}")
check_close("factors", [w / mla for w in wrong.values()], [1.78, 0.889, 15.1, 28.4, 24.9], 0.002)
check_equal("DeepSeek-V2-Lite, 27 layers", lib.mla_cache_bytes(27, 512, 64), 31_104)

# %% [markdown] slideshow={"slide_type": "notes"}
# **One fault, followed: the softmax scale.** After absorption q and k are 576 wide, and code that computes its scale from the width of q gets $1/\sqrt{576}$. The scores shrink, the softmax flattens, nothing fails. ([Megatron-LM#1501](https://github.com/NVIDIA/Megatron-LM/issues/1501) reports a scale from yet another wrong width, hidden size over heads.)
#
# And V3 wants a factor on top. Its config has `rope_scaling` of type `yarn` with `factor` 40, `mscale` 1.0 and `mscale_all_dim` 1.0. cos and sin are multiplied by the ratio of the temperatures that the two give (here 1), the softmax scale by the square of the second: $(0.1 \ln 40 + 1)^2 = 1.3689^2$, the temperature of [chapter 04](04_rope_in_practice.ipynb). ([Megatron-LM#1429](https://github.com/NVIDIA/Megatron-LM/issues/1429): `mscale` was taken for it.)

# %% slideshow={"slide_type": "subslide", "title": "The scale does not follow the absorbed width", "show": "printed", "text": "Absorbed, q and k are 576 wide. Code that computes its scale from the width of q gets $1/\\sqrt{576}$: the scores shrink, the softmax flattens, **nothing fails**. Right, in both forms: $1/\\sqrt{d_{nope} + d_R}$.\n\nA model with YaRN needs a factor on top ([Megatron-LM#1429](https://github.com/NVIDIA/Megatron-LM/issues/1429)):"}
key = kept_rows[:, None]  # [1, 1, 24, dc + dr]
sharp = attend(wide_q, key, key[..., :dc], scale=(dn + dr) ** -0.5)
flat = attend(wide_q, key, key[..., :dc])  # no scale given: it follows the width that came, dc + dr
print(f"1/sqrt(dn + dr) = {(dn + dr) ** -0.5:.4f}, 1/sqrt(dc + dr) = {(dc + dr) ** -0.5:.4f}")
check_equal("the outputs differ by more than a hundredth", bool((sharp - flat).abs().max() > 0.01), True)
check_equal("outputs of the down projection", v3.wkv_a.out_features, 576)
check_close("scale of both forms", v3.scale, 0.0721688, 1e-6)
plain_scale = 192**-0.5
factor = lib.yarn_mscale(40, 1.0) ** 2
check_close("1 / sqrt(192)", plain_scale, 0.0721688, 1e-6)
check_close("YaRN's factor", factor, 1.873854, 1e-6)
check_close("V3's softmax scale", plain_scale * factor, 0.1352338, 1e-6)
print(f"{plain_scale:.7f} x {factor:.6f} = {plain_scale * factor:.7f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "In config.json: which fields reach the cache", "show": "table"}
# ## 11 · In practice
#
# | field of config.json | DeepSeek-V3 | DeepSeek-V2-Lite | what it means |
# |---|---|---|---|
# | `kv_lora_rank` | 512 | 512 | $d_c$, cached |
# | `qk_rope_head_dim` | 64 | 64 | $d_R$, cached once for all heads |
# | `qk_nope_head_dim`, `v_head_dim` | 128, 128 | 128, 128 | widths of a head that is never stored |
# | `q_lora_rank` | 1536 | null | queries through a low rank, or straight from $x$; does not touch the cache |
# | `num_key_value_heads` | 128 | 16 | says nothing about the cache |
#
# Kimi K2 (61 layers, 64 heads) uses MLA as well. QK-norm **costs** here: absorbed decoding never makes the keys that it would normalise. But the norm of a key is one number per head and token: keep $1 / \mathrm{rms}$ of each, and
# $q \cdot (g \odot W^{UK} c) / \mathrm{rms}$ is still one product with the latent; the price is 128 more numbers beside 576 in V3. Kimi K2 clips weights while training instead ([chapter 07](07_qk_norm.ipynb)).
#
# ## Exercises
#
# **3. Count the cache.** Write the number of elements that one MLA layer caches per token, from config fields.

# %% tags=["exercise"]
def my_mla_elements(num_attention_heads, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim):
    ...

# %% tags=["check"]
check("06.elements", my_mla_elements)

# %% tags=["solution"] jupyter={"source_hidden": true}
def elements_solution(num_attention_heads, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim):
    return kv_lora_rank + qk_rope_head_dim


check("06.elements", elements_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4. Why can MLA not simply apply RoPE to the keys that it reconstructs?**
#
# - a. The latent is too short to be split into pairs.
# - b. The rotation depends on the cached token's position and stands between $q$ and $W^{UK}$, so $W^{UK}$ cannot be moved to the query once.
# - c. A rotation changes the length of the reconstructed key.
# - d. It could; the separate rope key only saves parameters.

# %% tags=["exercise"]
my_reason = None

# %% tags=["check"]
check("06.why_decoupled", my_reason)

# %% tags=["solution"] jupyter={"source_hidden": true}
def why_decoupled_solution():
    return "b"


check("06.why_decoupled", why_decoupled_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Find the fault.** This cache row is right in shape, and the model that uses it talks nonsense. `down` is `wkv_a`'s output
# [T, dc + dr], `gain` the latent's norm weight [dc]; `cos`, `sin` belong to the T positions. Mend it.

# %% tags=["exercise"]
def my_cache_rows(down, gain, cos, sin):
    c = gain.shape[0]
    latent, k_rope = down[:, :c], down[:, c:]
    k_rope = apply_rope(k_rope[None, None], cos, sin, "adjacent")[0, 0]
    return torch.cat([latent, k_rope], dim=-1)

# %% tags=["check"]
check("06.rows", my_cache_rows)

# %% tags=["solution"] jupyter={"source_hidden": true}
def rows_solution(down, gain, cos, sin):
    c = gain.shape[0]
    latent, k_rope = rms_norm(down[:, :c], gain), down[:, c:]
    k_rope = apply_rope(k_rope[None, None], cos, sin, "adjacent")[0, 0]
    return torch.cat([latent, k_rope], dim=-1)


check("06.rows", rows_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "The cache is one latent and one rope key; everything else is the order of a product", "show": "", "text": "- cached: $d_c + d_R$ numbers per token and layer, whatever the number of heads: 70,272 bytes in V3\n- absorbed for short calls, expanded for long ones: about 171 queries, by arithmetic alone\n- a rotation between $q$ and $W^{UK}$ forbids the move; hence the decoupled key\n- to take home: exercises `06.absorb`, `06.mla`, `06.elements`, `06.rows`"}
# ## What you can do now
#
# You **said** what MLA caches, 576 numbers per token and layer in V3; **derived** absorption and wrote a layer with it; **explained** why a rotation in between forbids it; **decided** by counting when to absorb; and **spotted** five wrong counts. Proved equal: two bracketings; your layer and `lib`; three ways to decode; MLA and MQA with one wide head; SmolLM2 and its MLA.
#
# **Sources.** DeepSeek-AI 2024, DeepSeek-V2 ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434)), section 2.1: the latent, absorption, decoupled RoPE. Shazeer 2019
# ([arXiv 1911.02150](https://arxiv.org/abs/1911.02150)): MQA. DeepSeek-V3's and V2-Lite's config.json for the fields above; `lib.read_config` reads them in [chapter 10](10_real_models.ipynb). Public reports
# named in section 10.

# %% slideshow={"slide_type": "skip"}
progress("06")
