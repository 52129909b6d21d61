# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "One formula says how much memory a conversation takes, how many users a card holds and how fast it can answer. After it you can"}
# # 05 · The KV cache
#
# One formula says how much memory a conversation takes, how many users a card holds and how fast it can answer. You will write a cache, serve a real
# model with it, and see what goes wrong when tokens are fed in pieces.
#
# After it you will be able to
# - **compute** the bytes per token of any model from four config fields, and say when four are not enough;
# - **explain** what MHA, GQA, MQA and MLA keep, what that saves and what it does not;
# - **write** a cache with its attention step, and feed it chunks, padding and a window;
# - **size** a server: users, context and tokens per second of a card;
# - **spot** published cache sizes that are wrong.
#
# You need the attention of the 2019 block and [chapter 03](03_rope.ipynb) (RoPE). About 50 minutes. Sections 1 to 4 need no torch.

# %% slideshow={"slide_type": "skip"}
import matplotlib.pyplot as plt

from book.exercises import check, mine, progress
from book.explore.ch05_kv_cache import cache_bytes, cache_explorer, speed_axes, wiring_explorer
from book.figures import COLORS, draw_cached, style
from book.predict import TOLERANCES, check_close, check_equal, predict
from lib import kv_cache_bytes, mla_cache_bytes

style()

# %% [markdown] slideshow={"slide_type": "slide", "title": "Bytes per token: one formula, four config fields", "show": "formula", "text": "- **2**: K and V (a query is used once and dropped)\n- $L$ layers, $n_{kv}$ heads that **have keys and values**, $d_h$ the width of a head, $s$ bytes per number"}
# ## 1 · What a step needs
#
# A model writes one token at a time. Each new token's query meets the keys of **all** tokens before it and sums their values. The mask is causal, so
# nothing that comes later changes those keys and values. A 2019 teaching loop computes them all again for every new token; the **KV cache** keeps them.
# For each token, each layer keeps a key and a value for each KV head:
#
# $$\text{bytes per token} = 2 \cdot L \cdot n_{kv} \cdot d_h \cdot s$$
#
# The 2 counts K and V. $L$ is the number of layers, $n_{kv}$ the number of heads that **have keys and values**, $d_h$ the width of a head,
# $s$ the bytes of one number. Neither $d$ nor $d_{ff}$ nor the vocabulary enters.
#
# **Predict** three numbers. To write 1,000 tokens after a one-token prompt, how many tokens go through the model without a cache, and how many with one?
# And how many bytes does one token take in Llama-2-7B (`num_hidden_layers` 32, `num_key_value_heads` 32, heads of 4,096 / 32 = 128, fp16)?

# %% slideshow={"slide_type": "subslide", "title": "A cache keeps what a loop without one computes again", "show": "", "text": "**Predict.** 1,000 tokens after a one-token prompt: how many tokens go through the model without a cache, how many with one?\n\nLlama-2-7B, 32 layers, 32 KV heads of 128, fp16: how many bytes is one token?"}
my_guess = {"without": None, "with": None, "bytes": None}
token = kv_cache_bytes(n_layers=32, n_kv_heads=32, head_dim=128, bytes_per_element=2)
again = sum(range(1, 1001))  # the text has 1, 2, .. 1000 tokens when the next one is made
for name, truth in zip(my_guess, (again, 1000, token)):
    predict(my_guess[name], truth, f"({name})")

# %% slideshow={"slide_type": "fragment", "show": "printed"}
check_equal("tokens through the model without a cache", again, 500_500)
scores = sum(n * (n + 1) // 2 for n in range(1, 1001)) / again  # a text of n tokens has n (n + 1) / 2 causal scores
print(f"{again / 1000:.1f} times the tokens, {scores:.0f} times the scores")
check_equal("2 * 32 * 32 * 128 * 2", token, 524_288)
text = kv_cache_bytes(32, 32, 128, tokens=2048)
print(f"{token / 1024:.0f} KiB per token; 2,048 tokens: {text:,} B = {text / 2**30:.4f} GiB = {text / 1e9:.4f} GB")
check_equal("one GiB exactly", text, 2**30)

# %% [markdown] slideshow={"slide_type": "skip"}
# Half a megabyte **for one token**. (A GiB is $2^{30}$ bytes, a GB $10^9$.)
#
# **Exercise 1.** A model has $L = 32$, $h = 32$, $d_h = 128$, $n_{kv} = 8$ and an fp16 cache. How many bytes is one token, and how many GiB are 32,768?

# %% tags=["exercise"]
my_cache = {"bytes per token": None, "GiB at 32,768": None}

# %% tags=["check"]
check("05.seed", my_cache)

# %% tags=["solution"] jupyter={"source_hidden": true}
def seed_solution():
    token = 2 * 32 * 8 * 128 * 2
    return {"bytes per token": token, "GiB at 32,768": token * 32_768 / 2**30}


check("05.seed", seed_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "The only factor that can shrink is the number of KV heads", "show": "list", "text": "Let several query heads read the same keys and values:"}
# ## 2 · MHA, GQA, MQA, MLA
#
# The only factor that can shrink without a smaller model is $n_{kv}$. Let several query heads read the same keys and values:
#
# - **MHA**, multi-head attention: $n_{kv} = h$, each query head has its own;
# - **MQA**, multi-query (Shazeer 2019): $n_{kv} = 1$, all share one;
# - **GQA**, grouped-query (Ainslie et al. 2023): in between. Query head $j$ reads KV head $\lfloor j / (h / n_{kv}) \rfloor$.
#
# **MLA** ([chapter 06](06_mla.ipynb)) keeps no heads at all: one *latent* vector of $d_c$ numbers, from which all keys and values are made again, and one
# *rope key* of $d_R$ numbers that carries the position: $L\,(d_c + d_R)\,s$ bytes, without a factor of 2.
#
# Llama 3 70B has 80 layers, 64 query heads, heads of 128 and 8 KV heads, in bf16. **Predict** its cache at 131,072 tokens if it were MHA, in GiB.

# %% slideshow={"slide_type": "subslide", "title": "What would a 70B keep as MHA?", "ask": "Q10", "text": "Llama 3 70B: 80 layers, 64 query heads, heads of 128, bf16. Its own 8 KV heads make it 40 GiB.\n\n**Predict** its cache at 131,072 tokens if it were MHA, in GiB."}
my_guess = None
gib = {kind: kv_cache_bytes(80, n_kv, 128, tokens=131_072) / 2**30 for kind, n_kv in (("MHA", 64), ("GQA-8", 8), ("MQA", 1))}
predict(my_guess, gib["MHA"], "GiB")

# %% slideshow={"slide_type": "subslide", "title": "What MHA, GQA, MQA and MLA keep per token and layer", "show": "picture"}
fig, axes = plt.subplots(1, 4, figsize=(13, 3.6))
print(draw_cached(axes))
plt.show()
for (kind, size), n_kv in zip(gib.items(), (64, 8, 1)):
    print(f"70B as {kind:<6} {kv_cache_bytes(80, n_kv, 128):>9,} B per token   {size:>4.0f} GiB at 131,072 tokens")
check_equal("bytes per token", [kv_cache_bytes(80, n, 128) for n in (64, 8, 1)], [2_621_440, 327_680, 40_960])
weights = 70_553_706_496 * 2  # parameters, two bytes each
print(f"{gib['MHA'] * 2**30 / 1e9:.1f} GB beside weights of {weights / 1e9:.1f} GB")
cards = {"A100": 81_920, "H100": 81_559}  # MiB of an "80 GB" card, as its driver reports them
left = {name: 4 * mib / 1024 - gib["MHA"] for name, mib in cards.items()}
print("on four of them, beside this cache:", ", ".join(f"{name} {room:+.1f} GiB" for name, room in left.items()))
check_equal("room left for weights", [room > 0 for room in left.values()], [False, False])

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: eight blue query heads; in the red frame what is kept: eight orange keys and green values, then two, then one, then one latent and one rope key. Above
# the latent, hollow, the keys and values made from it.*
#
# As MHA, one conversation fills four A100s to the byte, and four H100s miss it. GQA-8 makes it 40 GiB. Ainslie et al. ([arXiv 2305.13245](https://arxiv.org/abs/2305.13245)) report that
# MQA loses some quality and can train unstably, and that GQA with 8 KV heads comes close to MHA; [chapter 06](06_mla.ipynb) goes into quality.
#
# ### Move the sliders
#
# Left, whose keys each query head reads. Right, what is left of MHA's cache, of its four projections' weights, and of its scores' FLOPs. Look at
# the third bar: **GQA does not make attention's arithmetic cheaper.** Every query head still meets every key. Then switch the order to *tile*:
# section 7 shows what that does to a real model.

# %% slideshow={"slide_type": "slide", "title": "GQA shrinks the cache, not the arithmetic: go from 32 KV heads to 8 to 1, then to tile", "ask": "Q11"}
wiring_explorer

# %% [markdown] slideshow={"slide_type": "slide", "title": "head_dim need not be hidden_size / heads, and a window layer keeps its window", "show": "", "text": "Qwen3-0.6B: `hidden_size` 1,024, 16 heads, 8 KV heads, `head_dim` 128, 28 layers. **Predict** its KiB per token (bf16).\n\ngpt-oss-20b: 24 layers, every second one with a window of 128. **Predict** the share of the full cache that it needs at 8,192 tokens."}
# ## 3 · From config.json
#
# Four fields: `num_hidden_layers`, `num_attention_heads`, `num_key_value_heads`, `head_dim`. If `head_dim` is absent it is `hidden_size` divided by the
# heads; **if it is there, it need not be that.** Qwen3-0.6B has `hidden_size` 1,024, 16 heads, 8 KV heads, `head_dim` 128 and 28 layers.
#
# Four are not enough when some layers look back only `sliding_window` tokens: such a layer never needs more than its window. gpt-oss-20b has
# 24 layers, every second one with a window of 128 (8 KV heads of 64).
#
# **Predict** Qwen3-0.6B's KiB per token (bf16), and the share of the full cache that gpt-oss-20b needs at 8,192 tokens.

# %% slideshow={"slide_type": "-"}
my_guess = {"Qwen3-0.6B": None, "gpt-oss-20b": None}
needed, full = (cache_bytes("gpt-oss-20b", 8192, batch=32, windows=w) for w in (True, False))
predict(my_guess["Qwen3-0.6B"], kv_cache_bytes(28, 8, 128) / 1024, "KiB")
predict(my_guess["gpt-oss-20b"], round(needed / full, 3), "of the full cache")

# %% slideshow={"slide_type": "subslide", "title": "Nine models, and what d / h would have said", "show": "printed"}
published = [  # name, hidden_size, layers, heads, KV heads, head_dim
    ("Llama-2-7B", 4096, 32, 32, 32, 128),
    ("Llama-3-8B", 4096, 32, 32, 8, 128),
    ("Llama-2-70B, 3-70B", 8192, 80, 64, 8, 128),
    ("Llama-3.1-405B", 16384, 126, 128, 8, 128),
    ("Qwen3-0.6B", 1024, 28, 16, 8, 128),
    ("Mistral-Small-24B", 5120, 40, 32, 8, 128),
    ("SmolLM2-135M", 576, 30, 9, 3, 64),
    ("Falcon-7B", 4544, 32, 71, 1, 64),
]
for name, d, layers, h, n_kv, dh in published:
    real, naive = kv_cache_bytes(layers, n_kv, dh), kv_cache_bytes(layers, n_kv, d // h)
    print(f"{name:<19} {real / 1024:6.1f} KiB   with d / h {naive / 1024:6.1f}   {h / n_kv:4.1f} times smaller than as MHA")
mla = mla_cache_bytes(61, kv_lora_rank=512, qk_rope_head_dim=64)
print(f"{'DeepSeek-V3 (MLA)':<19} {mla / 1024:6.1f} KiB   {2 * 128 * 128 / 576:24.1f} times, with keys and values of 128")
check_equal("KiB", [kv_cache_bytes(m[2], m[4], m[5]) / 1024 for m in published[:5]], [512, 128, 320, 504, 112])
print(f"gpt-oss-20b, 32 users: needed {needed / 2**30:.2f} GiB, every layer in full {full / 2**30:.1f} GiB")
check_equal("needed, in full", [needed, full], [6_543_114_240, 12_884_901_888])

# %% [markdown] slideshow={"slide_type": "notes"}
# Two rows differ in $d / h$: Qwen3-0.6B caches twice what it says, Mistral-Small-24B less. Nothing fails in either case. The last column runs from
# 1 (Llama-2-7B, which is MHA) to 71 (Falcon-7B).
#
# The two sizes of gpt-oss-20b are right answers to different questions: what the model **needs**, and what an engine **reserves** that gives every layer
# the full length ([alvarobartt/hf-mem#60](https://github.com/alvarobartt/hf-mem/issues/60), [#70](https://github.com/alvarobartt/hf-mem/issues/70)). A window layer's first token costs as much as any other layer's.
#
# ## 4 · On a card
#
# Weights are there once, the cache for every user. Choose a model, then raise context or users. Where does the cache outweigh the weights? Which
# model has room for the most users on 80 GiB?

# %% slideshow={"slide_type": "slide", "title": "On a card: raise context or users until the cache outweighs the weights"}
cache_explorer

# %% [markdown] slideshow={"slide_type": "slide", "title": "Speed: a step cannot be faster than its bytes over the bandwidth", "show": "formula", "text": "- it reads every weight that it multiplies with, and every number in the caches\n- of the look-up table one row; of a mixture of experts only the chosen ones"}
# One decode step gives every user one token. It reads every weight that it multiplies with (of the look-up table only a row; of a mixture of experts
# only the chosen ones) and every number in the caches. It cannot be faster than those bytes over the bandwidth:
#
# $$t_{step} \ge \frac{\text{weights read} + \text{users} \times \text{cache}}{\text{bytes per second}}$$
#
# **Exercise 2. Size a server.** How many users can a card serve, if each is promised `rate` tokens per second? `memory`, `weights` (held), `read` (weights
# that a step reads) and `each` (one user's cache) are bytes; `bandwidth` is bytes per second.

# %% tags=["exercise"]
def my_users(memory, bandwidth, weights, read, each, rate):
    ...

# %% tags=["check"]
check("05.server", my_users)

# %% tags=["solution"] jupyter={"source_hidden": true}
def users_solution(memory, bandwidth, weights, read, each, rate):
    fit = (memory - weights) // each
    quick = (bandwidth / rate - read) // each
    return max(0, int(min(fit, quick)))


check("05.server", users_solution)

# %% [markdown] slideshow={"slide_type": "subslide", "title": "Memory and the promised rate both limit the users", "show": "", "text": "Llama-3-8B's shape on a made-up card of 80 GiB, 3 TB/s, texts of 8,192.\n\n**Predict** how many times more users GQA-8 holds than MHA, at 10 tokens per second and at 60."}
# Take a round, made-up card: 80 GiB, 3 TB/s. On it, Llama-3-8B's shape with its 8 KV heads, and as MHA and MQA (the weights kept as they are).
# **Predict**: how many times more users of 8,192 tokens does GQA-8 hold than MHA, at 10 tokens per second? And how many times, if 60 are promised?

# %% slideshow={"slide_type": "-"}
users = mine("05.server")
MEMORY, BANDWIDTH, WEIGHTS = 80 * 2**30, 3e12, 8_030_261_248 * 2
READ = WEIGHTS - 128_256 * 4096 * 2  # without the look-up table
served = lambda n_kv, size, rate: users(MEMORY, BANDWIDTH, WEIGHTS, READ, kv_cache_bytes(32, n_kv, 128, 8192, 1, size), rate)
my_guess = {10: None, 60: None}
for rate in my_guess:
    predict(my_guess[rate], round(served(8, 2, rate) / served(32, 2, rate), 2), f"times, at {rate} tokens/s")

# %% slideshow={"slide_type": "subslide", "title": "One user's speed falls with context, MHA's first", "show": "picture"}
fig, ax = plt.subplots(figsize=(9, 4.2))
contexts = [1024 * 2**i for i in range(8)]
for kind, n_kv, color in (("MHA", 32, "old"), ("GQA-8", 8, "k"), ("MQA", 1, "v")):
    cells = [f"{served(n_kv, size, rate):>5}" for size in (2, 1) for rate in (10, 60, 120)]
    print(f"{kind:<6} users at 10, 60, 120 tokens/s: bf16{''.join(cells[:3])}   8 bits{''.join(cells[3:])}")
    speed = [BANDWIDTH / (READ + kv_cache_bytes(32, n_kv, 128, c)) for c in contexts]
    _ = ax.plot(contexts, speed, "o-", color=COLORS[color], label=f"{kind}: {speed[3]:.0f} at 8K")
speed_axes(ax)
plt.show()
check_equal("users, bf16, 10 tokens/s", [served(n, 2, 10) for n in (32, 8, 1)], [16, 65, 520])
for model in ("Llama-2-7B", "Llama-3-8B", "Llama-3-70B", "gpt-oss-20b", "DeepSeek-V3"):
    t = cache_explorer.table(model=model, users=1, device_gib=80)
    print(f"{model:<12} {t['weights_gib']:7.1f} GiB; as much cache at {t['crossover']:>7,} tokens; {t['fits']:>4} users of 4,096 on 80 GiB")

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: three curves start together at the speed that the weights alone allow. With more context MHA falls first, GQA-8 much later, MQA hardly.*
#
# A quarter of the cache holds 4.06 times the users: MHA loses more by rounding down. Where the promise is the limit, memory stays empty, and a smaller cache helps by being
# **read** faster. These are upper bounds: activations are left out, and with many users arithmetic is the limit
# ([chapter 06](06_mla.ipynb) draws that roof). In the last table weights count two bytes; the files of gpt-oss-20b and DeepSeek-V3 hold most of theirs in fewer
# (`quant_method` `mxfp4` and `fp8`), so their crossover comes earlier.
#
# ## 5 · Write one
#
# **Exercise 3.** One attention layer, fed a text in chunks, one call per chunk. `q` [B, h, T, dh], `k` and `v` [B, n_kv, T, dh] are the chunk's, not yet rotated.
# `cache` is a dict, empty at the first call; keep in it what you like. `rotate(x, start)` turns the tokens of `x` as positions start, start + 1, ..
# `window` is None or how many tokens a query sees, its own included; `pad` [B] says how many columns at the left of each row are padding, to be hidden
# (what a padding query returns does not matter). Return [B, h, T, dh]. The whole text in one call must give the same.

# %% tags=["exercise"]
import torch


def my_step(q, k, v, cache, rotate, window, pad):
    ...

# %% tags=["check"]
check("05.step", my_step)

# %% tags=["solution"] jupyter={"source_hidden": true}
def step_solution(q, k, v, cache, rotate, window, pad):
    start, T = cache.get("length", 0), q.shape[2]
    q, k = rotate(q, start), rotate(k, start)
    if start:
        k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
    cache.update(k=k, v=v, length=start + T)
    at = torch.arange(start + T)
    ago = at[start:, None] - at  # [T, S]
    see = (ago >= 0) & (ago < (window or start + T))
    see = see & (at >= pad[:, None, None, None]) | (ago == 0)  # a padding query sees itself
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5  # [B, h, T, S]
    return scores.masked_fill(~see, -torch.inf).softmax(-1) @ v


check("05.step", step_solution)

# %% slideshow={"slide_type": "slide", "title": "A model served by a step that keeps its own cache", "show": "code"}
import time

import lib
from lib import GQAttention, KVCache, LlamaStyleLM, apply_rope, attend, kv_bytes, rope_cache
from lib.config import MLA, Dense, Layer, ModelConfig

_ = torch.set_grad_enabled(False)
model, tokenizer = lib.load_model(lib.find_model(), torch.float32), lib.load_tokenizer(lib.find_model())
table, no_pad, step = rope_cache(256, 64, 100_000.0), torch.tensor([0]), mine("05.step")  # yours once it has passed
turn = lambda x, start: apply_rope(x, *(t[start : start + x.shape[2]] for t in table))


def logits_of(ids, caches, step=step):
    x = model.emb(ids)
    for block, cache in zip(model.blocks, caches):
        y, a = block.attn_norm(x), block.attn
        q, k, v = (w(y).unflatten(-1, (-1, 64)).transpose(1, 2) for w in (a.wq, a.wk, a.wv))
        x = x + a.wo(step(q, k, v, cache, turn, None, no_pad).transpose(1, 2).flatten(2))
        x = x + block.ffn(block.ffn_norm(x))
    return model.head(model.norm(x))[0]  # [T, V]

# %% [markdown] slideshow={"slide_type": "subslide", "title": "The same text, and fewer tokens through the model", "show": "", "text": "SmolLM2 reads 150 tokens and writes eight, with its caches and without.\n\n**Predict** how many tokens go through the model each way, the prompt included."}
# That is SmolLM2 with your step in all 30 layers. It reads 150 tokens and writes eight more, with its caches and without. **Predict** how many tokens go
# through the model each way, the prompt included.

# %% slideshow={"slide_type": "-", "show": "printed"}
from book.corpus import load_corpus

my_guess = {"with": None, "without": None}
prompt = torch.tensor([tokenizer.encode(load_corpus().decode()[200_000:201_000]).ids[:150]])
fresh, written, spent, fed = lambda: [{} for _ in model.blocks], {}, {}, {}
for way in my_guess:
    ids, new, caches, leads, fed[way] = prompt, prompt, fresh(), [], 0
    for i in range(8):
        begin = time.perf_counter()
        last = logits_of(new, caches)[-1].topk(2)
        spent[way] = spent.get(way, 0) + (time.perf_counter() - begin) * (i > 0)  # both must read the prompt
        fed[way] += new.shape[1]
        leads.append((last.values[0] - last.values[1]).item())
        ids = torch.cat([ids, last.indices[None, :1]], 1)
        new, caches = (ids[:, -1:], caches) if way == "with" else (ids, fresh())
    written[way] = tokenizer.decode(ids[0, 150:].tolist())
    predict(my_guess[way], fed[way], f"tokens, {way}")

# %% slideshow={"slide_type": "fragment", "show": "printed"}
check_equal("the same text", written["with"], written["without"])
print(f"{written['with']!r}, every lead above 0.01: {min(leads) > 0.01}")
check_equal("tokens fed", fed, {"with": 157, "without": 1228})
print("a step without caches takes more than twice as long:", spent["without"] > 2 * spent["with"])

# %% [markdown] slideshow={"slide_type": "slide", "title": "The formula is what a model holds, to the byte", "show": "", "text": "Small models, all sizes different, 2 rows of 23 tokens. **Predict** the MHA row: 3 layers, 6 heads of 10, float32.\n\nThen the same text in chunks of 5, 1, 9, 1 and 7."}
# The step that reads one token still reads every weight, so a cache saves less time than it saves tokens; the longer the text, the more.
#
# ## 6 · Real caches
#
# Is the formula what a model really holds? We build small models with random weights, all sizes different ($d_h$ is not $d / h$), feed 2 rows
# of 23 tokens, and add up the bytes of the tensors held. **Predict** the MHA row: 3 layers, 6 heads of 10, float32. Then the same text in **chunks** of
# 5, 1, 9, 1 and 7, which is how servers read a long prompt: the logits must not change.

# %% slideshow={"slide_type": "-", "show": "printed"}
my_guess = None  # bytes
_ = torch.manual_seed(0)
V, SHAPE = 97, {"d": 48, "n_layers": 3, "n_heads": 6, "d_ff": 64, "max_len": 40, "head_dim": 10}
models = {kind: LlamaStyleLM(V, n_kv_heads=n, **SHAPE) for kind, n in (("MHA", 6), ("GQA", 2), ("MQA", 1))}
models["window of 8"] = LlamaStyleLM(V, n_kv_heads=2, window=8, **SHAPE)
mla = MLA(n_heads=6, q_lora_rank=None, kv_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=4, v_head_dim=12)
models["MLA"] = LlamaStyleLM.from_config(ModelConfig(V, 48, (Layer(mla, Dense(64)),) * 3, max_len=40))
idx = torch.randint(0, V, (2, 23))
by_hand = (2 * 6 * 10 * 23, 2 * 2 * 10 * 23, 2 * 1 * 10 * 23, 2 * 2 * 10 * 8, (18 + 4) * 23)  # per layer and row
predict(my_guess, 3 * 2 * 4 * by_hand[0], "bytes, MHA")

# %% slideshow={"slide_type": "subslide", "title": "Bytes and logits of five kinds of cache", "show": "printed"}
for small in models.values():
    for parameter in small.parameters():
        if parameter.dim() == 1:
            _ = parameter.copy_(torch.rand_like(parameter) + 0.5)  # random gains
for (kind, small), numbers in zip(models.items(), by_hand):
    _ = small(idx, cache := small.new_cache(batch=2, max_len=40))
    check_equal(f"{kind:<11} held = 3 layers x 2 rows x 4 bytes x {numbers}", cache.nbytes, 3 * 2 * 4 * numbers)
    check_equal(f"{kind:<11} lib.kv_bytes", kv_bytes(small.config, 23, batch=2, bytes_per_element=4), cache.nbytes)
    whole, cache = small.double()(idx), small.new_cache(batch=2, max_len=40)
    check_close(f"{kind:<11} chunks", torch.cat([small(chunk, cache) for chunk in idx.split((5, 1, 9, 1, 7), 1)], 1), whole)
    _ = small.float()

# %% [markdown] slideshow={"slide_type": "slide", "title": "Repeat, not tile; and the last query aligns with the last key", "show": "", "ask": "Q12", "text": "Every value of KV head 0 is 0, of head 1 is 1. **Predict** what 4 query heads receive when the heads are tiled.\n\nTwo new queries, five keys, values 1 to 5. **Predict** what the queries receive with `is_causal=True`."}
# Equal to the byte, and nothing else is held. (The model reserves room for `max_len` tokens; that is `allocated_nbytes`.) In float64 chunks and whole agree
# to the last digits. In bf16 kernels add up in another order; [transformers#25420](https://github.com/huggingface/transformers/issues/25420) discusses differences of 0.125 in the logits of a 7B model, and such
# differences are regularly reported as a cache bug. Test a cache in float32 or float64.
#
# ## 7 · In pieces: heads, mask, positions, padding
#
# **Heads.** The cache keeps $n_{kv}$ heads; the scores need $h$. Each KV head is repeated **in place**, not **tiled**. Let every value of KV head 0
# be 0 and of head 1 be 1: what do 4 query heads receive when they are tiled?
#
# **The mask.** Two new queries, five cached and new keys, all scores equal, values 1 to 5: the first query is token 4 and sees four of them.
# PyTorch's `is_causal=True` aligns the **first query with the first key**. What do the two queries receive? **Predict** both lists.

# %% slideshow={"slide_type": "-", "show": "printed"}
my_guess = {"tiled": None, "is_causal": None}
q, k = torch.zeros(1, 4, 1, 2), torch.zeros(1, 2, 3, 2)  # [B, h, T, dh], [B, n_kv, S, dh]
v = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).expand(1, 2, 3, 1)
received, tiled = attend(q, k, v).flatten().tolist(), attend(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)).flatten().tolist()
q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.arange(1.0, 6).view(1, 1, 5, 1)
sdpa = torch.nn.functional.scaled_dot_product_attention
right, top_left = attend(q, k, v).flatten().tolist(), sdpa(q, k, v, is_causal=True).flatten().tolist()
predict(my_guess["tiled"], tiled, "(tiled)")
predict(my_guess["is_causal"], top_left, "(is_causal)")

# %% slideshow={"slide_type": "fragment", "show": "printed"}
check_equal("query head j reads KV head j // 2", received, [0.0, 0.0, 1.0, 1.0])
check_equal("tiled", tiled, [0.0, 1.0, 0.0, 1.0])
check_close("aligned to the end", right, [2.5, 3.0], 1e-6)
check_close("top left", top_left, [1.0, 1.5], 1e-6)
one = [attend(q[:, :, :1], k, v).item(), sdpa(q[:, :, :1], k, v, is_causal=True).item()]
print(f"one new token: {one[0]:.1f}, with is_causal {one[1]:.1f}")
from book.evidence import next_token_loss, rounded, share_left
from book.evidence import served as fed_through
from book.exercises.ch05_step import tiled as tiled_step
from book.exercises.ch05_step import unmasked_prompt

short = prompt[:, :40]
loss_right = next_token_loss(model(short)[0], short)
loss_tiled = next_token_loss(fed_through(model, short, tiled_step, [40]), short)
print(f"SmolLM2's loss {loss_right:.1f}, heads tiled {loss_tiled:.1f}; every token as likely: 10.8")
check_equal("tiled: worse than guessing", loss_tiled > 10.8, True)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Positions: the next one is the number of tokens ever fed", "show": "", "text": "Keys are rotated **before** they are cached, once. Three ways to get the next position wrong: start again at 0; add the prompt's length again; count the tokens *held*.\n\nA window of 5, a prompt of 6, six single steps: **predict** the last position under each rule."}
# Nothing fails, every shape is right. With `is_causal=True` a decoding model looks at its very first token, always
# ([pytorch#108108](https://github.com/pytorch/pytorch/issues/108108), [#144858](https://github.com/pytorch/pytorch/issues/144858)). A single new query needs no *causal* mask; padding and windows it still needs.
#
# **Positions.** Keys are rotated **before** they are cached, once. The next token's position is the number of tokens
# *ever fed*. Three ways to get it wrong: start again at 0; move on by the prompt's length $P$ instead of by 1 at the first step, so that all positions are
# $P - 1$ too large ([skyzh/tiny-llm#46](https://github.com/skyzh/tiny-llm/issues/46)); or count the tokens *held*, which stops growing when a window drops the oldest.
#
# One layer with a window of 5, a prompt of 6 tokens, then six single steps. **Predict** the last position under each rule.

# %% slideshow={"slide_type": "-", "show": "printed"}
my_guess = {"tokens ever fed": None, "always 0": None, "prompt's length again": None, "tokens held": None}
_ = torch.manual_seed(2)
layer = GQAttention(48, 6, 2, head_dim=10, window=5).double()
x = torch.randn(1, 12, 48, dtype=torch.float64)
cos, sin = rope_cache(80, 10)
whole, same, used, P = layer(x, cos[:12], sin[:12]), {}, {}, 6
rules = (lambda c: c.length, lambda c: 0, lambda c: c.length + (P - 1) * (c.length > P), lambda c: c.held)
for rule, position in zip(my_guess, rules):
    cache, outs, used[rule] = KVCache(1, 12, 2, 10, window=5, dtype=torch.float64), [], []
    for chunk in x.split([P, 1, 1, 1, 1, 1, 1], dim=1):
        p, T = position(cache), chunk.shape[1]
        used[rule].append(p)
        outs.append(layer(chunk, cos[p : p + T], sin[p : p + T], cache))
    same[rule] = bool((torch.cat(outs, 1) - whole).abs().max() / whole.abs().max() < TOLERANCES["float64"])
    predict(my_guess[rule], used[rule][-1], f"({rule})")

# %% slideshow={"slide_type": "subslide", "title": "One rule of four gives the same as the whole text; padding is hidden for good", "show": "printed", "text": "The positions that each rule gives to the prompt and the six steps. Below: left padding must be hidden at every later step; a row may be shifted **as a whole**, query and keys."}
for rule, given in used.items():
    check_equal(f"{rule:<21} {given}: same as the whole text", same[rule], rule == "tokens ever fed")
small, prompt_7 = models["GQA"], idx[:1, :7]  # left padding: row 0 has 4 pads and 7 tokens, row 1 has 11 tokens
batch = torch.cat([torch.cat([torch.zeros(1, 4, dtype=torch.int64), prompt_7], 1), idx[1:, :11]])
alone, cache = small(prompt_7), small.new_cache(2, 20)
check_close("a padded row = the same row alone", small(batch, cache, pad=torch.tensor([4, 0]))[0, 4:], alone[0])
later = small(idx[:, 11:12], cache)  # the cache remembers the padding
check_close("and one step later", later[0, 0], small(torch.cat([prompt_7, idx[:1, 11:12]], 1))[0, -1])
ignored = (small(batch)[0, 4:] - alone[0]).abs().max() < 0.01 * alone.abs().max()
check_equal("padding not masked: same logits", bool(ignored), False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Pooling the heads of a model is a start, not an equivalence", "show": "", "text": "SmolLM2, layer 15: replace its 3 value heads by their mean. 1 if they are equal, 1/3 if they have nothing in common.\n\n**Predict** the share that is left, as they are and turned as close to each other as they can be."}
# **Left padding** (the last three checks) must be hidden, for everyone, at every later step. Its positions do no harm: RoPE's scores
# depend on differences only, so a row may be shifted **as a whole**, query and keys.
#
# ### Where GQA models come from
#
# Most are trained so from the start. Ainslie et al. also **convert**: they replace the KV heads of a group by their mean, then train on for a small share
# of the original compute (5 % in the paper). How much survives before that? For $n$ heads with nothing in common, the mean has $1/n^2$ of their summed squares, and $n$ copies of
# it have $1/n$; equal heads keep all. **Predict** the share for SmolLM2's 3 value heads in layer 15. Heads could also be alike up to a
# rotation, which a model cannot tell apart for values: the second number turns each head as close to the others as it can.

# %% slideshow={"slide_type": "-", "show": "printed"}
my_guess = {"as they are": None, "turned": None}  # between 1/3 and 1
W_v = model.blocks[15].attn.wv.weight.double()
generator = torch.Generator().manual_seed(0)
rotations = [torch.linalg.qr(torch.randn(64, 64, generator=generator, dtype=torch.float64)).Q for _ in range(2)]
copies = torch.cat([W_v[:64], *(rotation @ W_v[:64] for rotation in rotations)])  # one head, and two rotations of it
for turned, name in enumerate(my_guess):
    predict(my_guess[name], round(share_left(W_v, 3, bool(turned)), 2), f"({name})")
random = torch.randn(192, 576, generator=generator, dtype=torch.float64)
for name, w in (("random heads", random), ("one head, turned", copies)):
    print(f"{name:<17} {share_left(w, 3):.2f} left, turned {share_left(w, 3, turned=True):.2f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "Prefill, pages, shared prefixes, quantised caches", "show": "", "text": "- **prefill** is limited by arithmetic, **decode** by bandwidth\n- **pages** of 16 tokens instead of the longest length\n- **shared prefixes** are kept once\n- **quantised**: keys have loud channels\n\n**Predict** how many times larger the error of 4-bit keys is with a scale per token than with one per channel; and of values."}
# No more than random heads leave. So pooling is a starting point and not an equivalence: the model must be trained on.
#
# ## 8 · On a server
#
# **Prefill and decode.** Reading the prompt (*prefill*) sends all its tokens through each weight at once; *decode* sends one. A weight of two bytes
# costs two FLOPs per token. On our card with $10^{15}$ FLOPs per second, the prompt is limited by arithmetic and the answer by bandwidth.
#
# **Pages.** If each text reserves its longest possible length, most of it stays empty; vLLM ([arXiv 2309.06180](https://arxiv.org/abs/2309.06180)) gives a text pages of 16 tokens as
# it grows, so that less than one page per text is wasted.
#
# **Shared prefixes.** Keys and values depend only on what came before, so equal beginnings, at equal positions, are kept once
# (SGLang, [arXiv 2312.07104](https://arxiv.org/abs/2312.07104)).
#
# **Quantised caches.** Eight bits instead of 16 halve the cache. With four it matters what shares a scale. Keys have a few *loud channels*, so KIVI
# ([arXiv 2402.02750](https://arxiv.org/abs/2402.02750)) gives each **channel** of the keys its own scale, and each **token** of the values. **Predict** how many times
# larger the error of 4-bit keys is with a scale per token than with one per channel, in SmolLM2; the values are the control.

# %% slideshow={"slide_type": "-", "show": "printed"}
my_guess = {"k": None, "v": None}
whole = model(prompt, cache := model.new_cache(1, 150))[0]  # lib's cache: what yours calls its parts is your affair
for part in my_guess:
    kept = [getattr(layer, part)[:, :, 1:150] for layer in cache.layers]  # all but the first token's
    errors = [[(rounded(x, 4, axis) - x).norm() for axis in (-1, -2)] for x in kept]
    ratio = torch.tensor([token / channel for token, channel in errors]).median().item()
    predict(my_guess[part], round(ratio, 1), f"times ({part})")

# %% slideshow={"slide_type": "subslide", "title": "What each of the four is worth", "show": "printed", "text": "Prefill is limited by arithmetic; a page wastes less than itself; an equal beginning is kept once; with four bits it matters what shares a scale."}
prefill, decode = 2048 * READ / 1e15, 2048 * READ / BANDWIDTH  # two bytes and two FLOPs per weight
print(f"2,048 tokens read in {prefill:.3f} s, written in {decode:.1f} s: {decode / prefill:.0f} times as long")
lengths = torch.randint(1, 2000, (1000,), generator=torch.Generator().manual_seed(1))
pages = -(-lengths // 16) * 16
print(f"in use: {lengths.sum() / (1000 * 8192):.0%} of 8,192 reserved, {lengths.sum() / pages.sum():.1%} of pages")
print(f"64 users, a prefix of 2,000 and 500 of their own: {64 * 2500 / (2000 + 64 * 500):.1f} times smaller when shared")


def kl_after(bits, axis):  # half of the text is cached in so few bits, the rest is fed after it
    _ = model(prompt[:, :75], cache := model.new_cache(1, 150))
    for c in cache.layers:
        c.k[:, :, :75], c.v[:, :, :75] = rounded(c.k[:, :, :75], bits, axis), rounded(c.v[:, :, :75], bits, -1)
    p, other = whole[75:].log_softmax(-1), model(prompt[:, 75:], cache)[0].log_softmax(-1)
    return (p.exp() * (p - other)).sum(-1).mean().item()


print("8 bits, KL below 0.001 nats:", int(1000 * kl_after(8, -1)) == 0)
print("4 bits, keys per channel: less than half the KL of keys per token:", kl_after(4, -2) < kl_after(4, -1) / 2)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A bug that shipped: no mask for the prompt", "show": "", "text": "`if cache is not None: no mask` is right for one new token.\n\n**Predict**: by how many nats does the loss on the prompt move, fed at once and fed token by token?"}
# ## 9 · A bug that shipped
#
# `if cache is not None: no mask` is right for one new token and wrong for the prompt, which then sees its own future ([Mikyx-1/TinyLLM#17](https://github.com/Mikyx-1/TinyLLM/issues/17)). Follow it through
# SmolLM2. **Predict**: does the loss on the prompt rise or fall, and by how many nats? And if the same prompt is fed token by token?

# %% slideshow={"slide_type": "-", "show": "printed"}
my_guess = {"at once": None, "token by token": None}
wrong = {"at once": [40], "token by token": [1] * 40}
for way, sizes in wrong.items():
    logits = fed_through(model, short, unmasked_prompt, sizes)
    wrong[way] = next_token_loss(logits, short) - loss_right, (logits.argmax(-1)[:-1] == short[0, 1:]).sum().item()
    predict(my_guess[way], round(wrong[way][0], 2) + 0.0, f"nats ({way})")
hits = (whole[:39].argmax(-1) == short[0, 1:]).sum().item()
print(f"next tokens said right, of 39: masked {hits}, unmasked at once {wrong['at once'][1]}, token by token {wrong['token by token'][1]}")

# %% [markdown] slideshow={"slide_type": "skip"}
# A fault that *improves* the number you watch, and hides when you feed one token at a time. The model has not become cleverer: it reads the answer from the
# next column. (In an untrained model the same step hardly moves the loss: nothing there has learned to copy.) Only the comparison of chunks with the whole text, masked, finds it.
#
# ## Exercises
#
# **4. From a config.** `config` is a dict as in config.json. It always has `num_hidden_layers`, `hidden_size` and `num_attention_heads`;
# `num_key_value_heads` and `head_dim` may be absent (then MHA, and $d / h$). No windows.

# %% tags=["exercise"]
def my_cache_bytes(config, tokens, batch, bytes_per_element):
    ...

# %% tags=["check"]
check("05.formula", my_cache_bytes)

# %% tags=["solution"] jupyter={"source_hidden": true}
def formula_solution(config, tokens, batch, bytes_per_element):
    h = config["num_attention_heads"]
    n_kv = config.get("num_key_value_heads", h)
    head_dim = config.get("head_dim", config["hidden_size"] // h)
    return 2 * config["num_hidden_layers"] * n_kv * head_dim * tokens * batch * bytes_per_element


check("05.formula", formula_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Which of these twelve published numbers are wrong?** Two bytes per number. Answer with a set, as `{2, 7}`.
#
# | | model | shape | for | published |
# |---|---|---|---|---|
# | 1 | Llama-2-7B | 32 layers, 32 KV heads of 128 | one token | 4,194,304 B |
# | 2 | a 70B | 80 layers, 8 KV heads of 128 | 4,096 tokens | 5 GB |
# | 3 | Mistral-Small-24B | 40 layers, 8 KV heads, `hidden_size` 5,120, 32 heads, `head_dim` 128 | one token | 204,800 B |
# | 4 | Qwen3-0.6B | 28 layers, 8 KV heads, `hidden_size` 1,024, 16 heads, `head_dim` 128 | one token | 114,688 B |
# | 5 | DeepSeek-V3 | 61 layers, latent 512, rope key 64 | one token | 70,272 B |
# | 6 | DeepSeek-V3 | `hidden_size` 7,168, 128 heads, 128 KV heads in the file | one token | 1,748,992 B |
# | 7 | Llama-2-7B | as above | 2,048 tokens | 1.00 GiB |
# | 8 | Llama-2-7B | as above | 2,048 tokens | 1.07 GB |
# | 9 | gpt-oss-20b | 24 layers, 8 KV heads of 64, 12 with window 128 | 32 users of 8,192, needed | 6.09 GiB |
# | 10 | gpt-oss-20b | as above | the first token | 24,576 B |
# | 11 | Llama 3 70B | 80 layers, 8 KV heads of 128 | 131,072 tokens | 40 GiB |
# | 12 | a 7B | 32 layers, 32 KV heads of 128 | 32,768 tokens | 512 MB |
#
# The wrong ones were published, among other places, in [jranaraki/vllm-fit#2](https://github.com/jranaraki/vllm-fit/issues/2), [NVIDIA/TensorRT-LLM#16707](https://github.com/NVIDIA/TensorRT-LLM/issues/16707), [NVIDIA/Model-Optimizer#2482](https://github.com/NVIDIA/Model-Optimizer/issues/2482) and
# [alvarobartt/hf-mem#60](https://github.com/alvarobartt/hf-mem/issues/60) (there for the 120b).

# %% tags=["exercise"]
my_wrong_ones = None

# %% tags=["check"]
check("05.twelve", my_wrong_ones)

# %% tags=["solution"] jupyter={"source_hidden": true}
def twelve_solution():
    said = {1: 4_194_304, 3: 204_800, 4: 114_688, 5: 70_272, 6: 1_748_992, 7: 2**30, 10: 24_576, 11: 40 * 2**30}
    said |= {2: 5e9, 8: 1.07e9, 9: 6.09 * 2**30, 12: 512e6}
    llama, v3 = kv_cache_bytes(32, 32, 128), mla_cache_bytes(61, 512, 64)
    true = {1: llama, 2: kv_cache_bytes(80, 8, 128, 4096), 3: kv_cache_bytes(40, 8, 128), 4: kv_cache_bytes(28, 8, 128)}
    true |= {5: v3, 6: v3, 7: 2048 * llama, 8: 2048 * llama, 9: cache_bytes("gpt-oss-20b", 8192, 32)}
    true |= {10: cache_bytes("gpt-oss-20b", 1), 11: kv_cache_bytes(80, 8, 128, 131_072), 12: 32_768 * llama}
    return {i for i in true if abs(said[i] / true[i] - 1) > 0.01}


check("05.twelve", twelve_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "In practice: five fields decide", "show": "table"}
# ## What you can do now
#
# You **computed** bytes per token from four fields, and met the fields that change the answer; **explained** what MHA, GQA, MQA and MLA keep;
# **wrote** a cache and served a model with it; **sized** a server; **spotted** wrong sizes. Proved equal here: the formula and the bytes
# really held, for MHA, GQA, MQA, a window and MLA; chunks and whole text.
#
# **In practice.**
#
# | field | what it does to the cache |
# |---|---|
# | `num_key_value_heads` | $n_{kv}$. Llama 3 has 8 at 8B, 70B and 405B, gpt-oss 8 of 64, Qwen3-235B-A22B 4 of 64, Gemma-3-1B 1 of 4 (MQA). Absent: MHA |
# | `head_dim` | wins over `hidden_size / num_attention_heads`; null or absent: that quotient |
# | `sliding_window`, `layer_types` | caps some layers. Qwen3-0.6B has `use_sliding_window: false`: no cap |
# | `kv_lora_rank`, `qk_rope_head_dim` | MLA: these two count, and `num_key_value_heads` says nothing ([chapter 06](06_mla.ipynb)) |
# | `multi_query: true` | Falcon-7B: one KV head, although its file also says `num_kv_heads: 71` |
#
# **Sources.** Shazeer 2019 ([arXiv 1911.02150](https://arxiv.org/abs/1911.02150)): MQA. Ainslie et al. 2023 ([arXiv 2305.13245](https://arxiv.org/abs/2305.13245)): GQA and conversion. Kwon et al. 2023, Zheng et al. 2023, Liu et al. 2024: section 8.
# The config.json files of the models named.

# %% slideshow={"slide_type": "skip"}
progress("05")
