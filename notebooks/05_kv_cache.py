# %% [markdown] slideshow={"slide_type": "slide", "title": "05 · The KV cache", "show": "list", "text": "One formula says how much memory a conversation takes, how many users a card holds and how fast it can answer. After it you can"}
# # 05 · The KV cache
#
# One formula says how much memory a conversation takes, how many users a card holds and how fast it can answer. This chapter derives it, holds real
# caches against it, and shows what goes wrong when tokens are fed in pieces.
#
# After it you will be able to
# - **compute** the bytes per token of any model from four config fields, and say when four are not enough;
# - **explain** what MHA, GQA and MQA share, what that saves and what it does not;
# - **estimate** users, longest context and tokens per second of a card;
# - **feed** a model in chunks, with padding and with a window, and get the logits of the whole text;
# - **spot** six published cache sizes that are wrong.
#
# You need the attention of the 2019 block; [chapter 03](03_rope.ipynb) (RoPE) for section 8. About 50 minutes. Sections 1 to 5 need no torch.

# %% slideshow={"slide_type": "skip"}
import matplotlib.pyplot as plt

from book.exercises import check, progress
from book.explore.ch05_kv_cache import cache_bytes, cache_explorer, draw_wirings, speed_axes, wiring_explorer
from book.figures import COLORS, style
from book.predict import TOLERANCES, check_close, check_equal, check_shape, predict
from lib import kv_cache_bytes, mla_cache_bytes

style()

# %% [markdown] slideshow={"slide_type": "slide", "title": "A decoding loop makes the same keys and values again and again", "show": "", "text": "Each new token's query meets the keys of **all** tokens before it, and sums their values. The mask is causal: nothing that comes later changes them. A 2019 teaching loop makes all of them again at every step.\n\n**Write down:** 1,000 tokens after a one-token prompt. How many tokens go through the model that way? And how many if keys and values are kept?"}
# ## 1 · What a step needs
#
# A model writes one token at a time. Each new token's query meets the keys of **all** tokens before it, and sums their values. Those keys and values
# were made when their own tokens came by. The mask is causal, so nothing that comes later changes them.
#
# A 2019 teaching loop calls the model on the whole text for every new token and makes all of them again. **Write down**: to write 1,000 tokens after a
# one-token prompt, how many tokens go through the model that way? And how many if keys and values are kept?

# %% slideshow={"slide_type": "-"}
my_guess = {"again": None, "kept": None}
again = sum(range(1, 1001))  # the text has 1, 2, .. 1000 tokens when the next one is made
predict(None if None in my_guess.values() else my_guess, {"again": again, "kept": 1000})
check_equal("tokens through the model without a cache", again, 500_500)
print(f"{again / 1000:.1f} times the work")

# %% [markdown] slideshow={"slide_type": "slide", "title": "Bytes per token: one formula, four config fields", "show": "formula", "text": "- **2**: K and V (a query is used once and dropped)\n- $L$ layers, $n_{kv}$ heads that **have keys and values**, $d_h$ the width of a head\n- $b$ bytes of one number. Neither $d$ nor $d_{ff}$ nor the vocabulary enters"}
# ## 2 · One formula
#
# So keys and values are kept: the **KV cache**. For each token, each layer keeps a key and a value for each KV head:
#
# $$\text{bytes per token} = 2 \cdot L \cdot n_{kv} \cdot d_h \cdot b$$
#
# The 2 is K and V (a query is used once, by its own token, and dropped). $L$ is the number of layers, $n_{kv}$ the number of heads that **have keys
# and values**, $d_h$ the width of a head, $b$ the bytes of one number (not [chapter 03](03_rope.ipynb)'s base). Neither $d$ nor $d_{ff}$ nor the vocabulary enters.
#
# Llama-2-7B: `num_hidden_layers` 32, `num_key_value_heads` 32, heads of 4,096 / 32 = 128, fp16. **Predict** the bytes of one token.

# %% slideshow={"slide_type": "subslide", "title": "What does one token of Llama-2-7B cost?", "text": "`num_hidden_layers` 32, `num_key_value_heads` 32, heads of 4,096 / 32 = 128, fp16.\n\n**Predict** the bytes of one token."}
my_guess = None
token = kv_cache_bytes(n_layers=32, n_kv_heads=32, head_dim=128, bytes_per_element=2)
predict(my_guess, token, "bytes")
check_equal("2 * 32 * 32 * 128 * 2", token, 524_288)
print(f"{token / 1024:.0f} KiB a token")
text = kv_cache_bytes(32, 32, 128, tokens=2048)
print(f"2,048 tokens: {text:,} B = {text / 2**30:.4f} GiB = {text / 1e9:.4f} GB")
check_equal("one GiB exactly", text, 2**30)
print(f"4,096 tokens, its longest text: {kv_cache_bytes(32, 32, 128, tokens=4096) / 2**30:.0f} GiB")

# %% [markdown] slideshow={"slide_type": "slide", "title": "The only factor that can shrink is the number of KV heads", "show": "list", "text": "Let several query heads read the same keys and values:"}
# Half a megabyte **for one token**. (A GiB is $2^{30}$ bytes, a GB $10^9$: two names for one size in the last lines. Cards are sold in GB.)
#
# ## 3 · MHA, GQA, MQA
#
# The only factor that can shrink without making the model smaller is $n_{kv}$. Let several query heads read the same keys and values:
#
# - **MHA**, multi-head attention: $n_{kv} = h$, each query head has its own;
# - **MQA**, multi-query (Shazeer 2019): $n_{kv} = 1$, all share one;
# - **GQA**, grouped-query (Ainslie et al. 2023): in between. Query head $j$ reads KV head $\lfloor j / (h / n_{kv}) \rfloor$.

# %% slideshow={"slide_type": "subslide", "title": "32 query heads read 32, 8 or 1 KV heads"}
fig, axes = plt.subplots(1, 3, figsize=(13, 3.6))
rows = draw_wirings(axes, (32, 8, 1))
plt.show()
print(rows)

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: 32 blue query heads on top; below, orange keys and green values: 32 of them, then 8 with four lines each, then one with all lines.*
#
# Llama 3 70B has 80 layers, 64 query heads, heads of 128 and 8 KV heads, in bf16. **Predict** its cache at 131,072 tokens if it were MHA, in GiB.

# %% slideshow={"slide_type": "slide", "title": "One conversation of a 70B as MHA would fill four 80 GB cards", "ask": "Q10", "text": "Llama 3 70B: 80 layers, 64 query heads, heads of 128, bf16.\n\n**Predict** its cache at 131,072 tokens if it were MHA, in GiB."}
my_guess = None
gib = {kind: kv_cache_bytes(80, n_kv, 128, tokens=131_072) / 2**30 for kind, n_kv in (("MHA", 64), ("GQA-8", 8), ("MQA", 1))}
predict(my_guess, gib["MHA"], "GiB")
for (kind, size), n_kv in zip(gib.items(), (64, 8, 1)):
    one = kv_cache_bytes(80, n_kv, 128)
    print(f"{kind:<6} {one:>9,} B a token = {one / 1024:>5,.0f} KiB   {size:>4.0f} GiB at 131,072 tokens")
check_equal("bytes per token", [kv_cache_bytes(80, n, 128) for n in (64, 8, 1)], [2_621_440, 327_680, 40_960])
weights = 70_553_706_496 * 2  # parameters, two bytes each
print(f"as MHA {kv_cache_bytes(80, 64, 128) / 2**20} MiB a token, {gib['MHA'] * 2**30 / 1e9:.1f} GB")
print(f"the weights beside it: {weights // 2:,} parameters, {weights / 1e9:.1f} GB, {weights / 2**30:.0f} GiB")
cards = {"A100": 81_920, "H100": 81_559}  # MiB of an "80 GB" card, as its driver reports them
for card_name, mib in cards.items():
    print(f"four {card_name} hold {4 * mib / 1024:.1f} GiB: {4 * mib / 1024 - gib['MHA']:+.1f} beside this cache")
check_equal("room left for weights on four of either", [4 * mib / 1024 > gib["MHA"] for mib in cards.values()], [False, False])

# %% [markdown] slideshow={"slide_type": "notes"}
# One conversation of a 70B as MHA fills four A100s to the byte, and four H100s miss it; neither holds a weight beside it. GQA-8 makes it 40 GiB.
#
# What does quality say? Ainslie et al. ([arXiv 2305.13245](https://arxiv.org/abs/2305.13245)) report that MQA loses some quality and can train unstably, and that GQA with 8 KV heads
# comes close to MHA. That is their claim; nothing here measures it.
#
# ### Move the sliders
#
# Left, whose keys each query head reads. Right, what is left of MHA's cache, of its four projections' weights, and of the FLOPs of its scores. Look at
# the third bar: **GQA does not make attention's arithmetic
# cheaper.** Every query head still meets every key. Then switch the order to *tile*: section 7 shows what that does.

# %% slideshow={"slide_type": "slide", "title": "GQA shrinks the cache, not the arithmetic: go from 32 KV heads to 8 to 1, then to tile", "ask": "Q11"}
wiring_explorer

# %% slideshow={"slide_type": "subslide", "title": "Every query head still meets every key", "show": "printed", "text": "Sharing shrinks what is stored and read; each of the 32 query heads still meets each key. What is left, in % of MHA:"}
print("% of MHA    cache  projection weights  score FLOPs")
for n_kv in (32, 8, 1):
    t = wiring_explorer.table(n_kv=n_kv)
    print(f"{t['kind']:<9} {t['cache_share']:7.2f} {t['projection_share']:19.2f} {t['score_share']:12.2f}")
shares = [wiring_explorer.table()[k] for k in ("cache_share", "projection_share")]
check_close("GQA-8 of 32 heads", shares, [25, 62.5])
tiled = wiring_explorer.table(how="tile")
print(f"tiled, {tiled['wrong']} of 32 query heads read another head's keys")
check_equal("wrong heads when tiled", tiled["wrong"], 28)

# %% [markdown] slideshow={"slide_type": "slide", "title": "head_dim need not be hidden_size / heads", "show": "", "text": "If `head_dim` is absent it is `hidden_size` divided by the heads; **if it is there, it need not be that.**\n\nQwen3-0.6B: `hidden_size` 1,024, 16 heads, `head_dim` 128, 28 layers, 8 KV heads, bf16. **Predict** its KiB per token."}
# ## 4 · From config.json
#
# Four fields: `num_hidden_layers`, `num_attention_heads`, `num_key_value_heads`, `head_dim`. If `head_dim` is absent it is `hidden_size` divided by the
# heads; **if it is there, it need not be that.** Qwen3-0.6B has `hidden_size` 1,024, 16 heads and `head_dim` 128. **Predict** its KiB per token (28
# layers, 8 KV heads, bf16), then look at what $d / h$ would have said.
#
# The last row is another kind. MLA ([chapter 06](06_mla.ipynb)) keeps, in each layer, one latent of 512 numbers and one rope key of 64 a token, for all heads together:
# $L\,(512 + 64)\,b$ bytes, without a factor 2.
#
# The last column compares each model with **itself as MHA**. Where you read that today's caches are 4 to 60 times smaller, this column is meant: 4 for
# Llama-3-8B, 57 for DeepSeek-V3 (its MHA taken with keys and values of 128). It has exceptions at both ends.

# %% slideshow={"slide_type": "-"}
my_guess = None
predict(my_guess, kv_cache_bytes(28, 8, 128) / 1024, "KiB")
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
    sizes = f"{real / 1024:6.1f} KiB   with d / h {naive / 1024:6.1f}"
    print(f"{name:<19} {sizes}   {h / n_kv:4.1f} times smaller than MHA")
mla = mla_cache_bytes(61, 512, 64)
print(f"{'DeepSeek-V3 (MLA)':<19} {mla / 1024:6.1f} KiB   {2 * 128 * 128 / 576:24.1f} times, see chapter 06")
check_equal("KiB", [kv_cache_bytes(m[2], m[4], m[5]) / 1024 for m in published[:5]], [512, 128, 320, 504, 112])

# %% [markdown] slideshow={"slide_type": "slide", "title": "Windows: such a layer never needs more than its window", "show": "", "text": "gpt-oss-20b has 24 layers, every second one with a window of 128 (8 KV heads of 64).\n\n**Predict:** at 8,192 tokens, what share of the full cache does it need?"}
# Two rows differ: Qwen3-0.6B caches twice what $d / h$ says, Mistral-Small-24B less than it says. Nothing fails in either case.
#
# ### Windows
#
# Four fields are not enough when some layers look back only `sliding_window` tokens: such a layer never needs more than its window. gpt-oss-20b has
# 24 layers, every second one with a window of 128 (8 KV heads of 64). Gemma-3-1B has 26, of which 22 have a window of 512 (1 KV head of 256).
#
# **Predict**: at 8,192 tokens, what share of the full cache does gpt-oss-20b need?

# %% slideshow={"slide_type": "-"}
my_guess = None
needed, full = (cache_bytes("gpt-oss-20b", 8192, batch=32, windows=w) for w in (True, False))
predict(my_guess, round(needed / full, 3))
print(f"32 users: needed {needed:,} B = {needed / 2**30:.2f} GiB; every layer in full {full:,} B = {full / 2**30:.1f} GiB")
check_equal("needed, in full", [needed, full], [6_543_114_240, 12_884_901_888])
for tokens in (512, 4096, 32_768):
    some, every = (cache_bytes("Gemma-3-1B", tokens, windows=w) / 2**20 for w in (True, False))
    print(f"Gemma-3-1B, {tokens:>6,} tokens: {some:5.1f} MiB needed, {every:5.1f} in full, {some / every:.0%}")
    check_equal("anything saved", some < every, tokens > 512)

# %% [markdown] slideshow={"slide_type": "notes"}
# Both numbers are right answers, to different questions: what the model **needs**, and what an engine **reserves** that gives every layer the full
# length ([alvarobartt/hf-mem#60](https://github.com/alvarobartt/hf-mem/issues/60), [#70](https://github.com/alvarobartt/hf-mem/issues/70)). A window layer's first token costs as much as any other layer's.
#
# ## 5 · On a card
#
# Weights are there once, the cache for every user. Choose a model, then raise context or users. Where does the cache outweigh the weights? Which
# model has room for the most users on 80 GiB, which is what an "80 GB" card holds within 1 %?

# %% slideshow={"slide_type": "slide", "title": "On a card: raise context or users until the cache outweighs the weights"}
cache_explorer

# %% slideshow={"slide_type": "subslide", "title": "Where the cache is as large as the weights", "show": "printed", "text": "Weights are there once, the cache for every user. The crossover counts the tokens of **all users together**: a handful of full texts reaches it. 0 users: the weights alone do not fit."}
print("             weights, GiB   as much cache at   users of 4,096 on 80 GiB")
for model in ("Llama-2-7B", "Llama-3-8B", "Llama-3-70B", "gpt-oss-20b", "DeepSeek-V3"):
    t = cache_explorer.table(model=model)
    print(f"{model:<12} {t['weights_gib']:12.1f}   {t['crossover']:>10,} tokens {t['fits']:12}")
print(f"Llama-2-7B's 25,706 tokens are {25_706 / 4096:.1f} texts of 4,096")
cross = [cache_explorer.table(model=m)["crossover"] / 1000 for m in ("Llama-2-7B", "Llama-3-8B")]
check_close("crossover, thousand tokens", cross, [25.7, 122.5], 0.0005)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Speed: a step cannot be faster than its bytes over the bandwidth", "show": "formula", "text": "- it reads every weight that it multiplies with, and every number in the cache\n- of the look-up table one row; of a mixture of experts only the chosen ones\n- so a smaller cache buys three things: **more users, longer texts, faster tokens**"}
# Weights count two bytes a number here. The files of gpt-oss-20b and DeepSeek-V3 hold most of theirs in fewer (`quant_method` `mxfp4` and `fp8` in their
# configs), so their real crossover comes earlier. Where it says 0 users, the weights alone do not fit. The crossover of Llama-2-7B lies above the 4,096 tokens it was made for, but it counts tokens of
# **all users together**: a handful of full texts reaches it.
#
# ### Speed
#
# One decode step reads every weight that it multiplies with, and every number in the cache. It cannot be faster than those bytes over the bandwidth:
#
# $$t_{step} \ge \frac{\text{weights} + \text{users} \times \text{cache}}{\text{bytes per second}}$$
#
# (Of the look-up table it reads one row; of a mixture of experts, only the chosen ones.) Take a round, made-up card: 80 GiB, 3 TB/s. On it, Llama-3-8B's shape with its real 8 KV heads, and as MHA and MQA (the weights kept as they are).
# **Predict**: how many times more users of 8,192 tokens does GQA-8 hold than MHA?

# %% slideshow={"slide_type": "subslide", "title": "How many times more users does GQA-8 hold than MHA?", "show": "picture", "text": "Llama-3-8B's shape on a made-up card of 80 GiB, 3 TB/s, texts of 8,192. **Predict** the factor, then look at one user's speed."}
MEMORY, BANDWIDTH, WEIGHTS = 80 * 2**30, 3e12, 8_030_261_248 * 2
READ = WEIGHTS - 128_256 * 4096 * 2  # without the look-up table
contexts = [1024 * 2**i for i in range(8)]

def card(n_kv, tokens):  # users that fit, and tokens per second of one alone and of all together
    each = kv_cache_bytes(32, n_kv, 128, tokens)
    users = (MEMORY - WEIGHTS) // each
    return users, BANDWIDTH / (READ + each), users * BANDWIDTH / (READ + users * each)

my_guess = None
predict(my_guess, round(card(8, 8192)[0] / card(32, 8192)[0], 2), "times")
fig, ax = plt.subplots(figsize=(9, 4.2))
for kind, n_kv, color in (("MHA", 32, "old"), ("GQA-8", 8, "k"), ("MQA", 1, "v")):
    users, alone, together = card(n_kv, 8192)
    longest = (MEMORY - WEIGHTS) // kv_cache_bytes(32, n_kv, 128)
    print(f"{kind:<6} {users:>3} users, {together:>6,.0f} tokens/s; alone {alone:.0f}; longest text {longest:,}")
    _ = ax.plot(contexts, [card(n_kv, c)[1] for c in contexts], "o-", color=COLORS[color], label=kind)
speed_axes(ax)
plt.show()
check_equal("users", [card(n, 8192)[0] for n in (32, 8, 1)], [16, 65, 520])

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: three curves start together at the speed that the weights alone allow. With more context MHA falls first, GQA-8 much later, MQA hardly.*
#
# A quarter of the cache, and 4.06 times the users: there is no half user, and MHA loses more by rounding down.
#
# So a smaller cache buys three things: more users, longer texts, faster tokens, by holding and moving fewer bytes. (These are upper bounds: activations and
# the engine's own memory are left out, and with very many users arithmetic becomes the limit. [Chapter 06](06_mla.ipynb) draws that roof.)
#
# ## 6 · Real caches
#
# From here on we need torch. Is the formula what a model really holds? We build small models with random weights, all sizes different
# ($d_h$ is not $d / h$), feed 2 rows of 23 tokens, and add up the bytes of the tensors held. **Predict** the MHA row: 3 layers, 6 heads of 10, float32.

# %% slideshow={"slide_type": "slide", "title": "The formula is what a model holds, to the byte", "show": "printed", "text": "Small models, all sizes different, 2 rows of 23 tokens. **Predict** the MHA row: 3 layers, 6 heads of 10, float32."}
import torch

import lib
from lib import GQAttention, KVCache, LlamaStyleLM, apply_rope, attend, kv_bytes, rms_norm, rope_cache
from lib.config import MLA, Dense, Layer, ModelConfig

my_guess = None  # bytes
_ = torch.manual_seed(0), torch.set_grad_enabled(False)
V, SHAPE = 97, {"d": 48, "n_layers": 3, "n_heads": 6, "d_ff": 64, "max_len": 40, "head_dim": 10}
models = {kind: LlamaStyleLM(V, n_kv_heads=n, **SHAPE) for kind, n in (("MHA", 6), ("GQA", 2), ("MQA", 1))}
models["window of 8"] = LlamaStyleLM(V, n_kv_heads=2, window=8, **SHAPE)
latent = Layer(MLA(6, None, 18, 10, 4, 12), Dense(64))  # d_c = 18, d_R = 4
models["MLA"] = LlamaStyleLM.from_config(ModelConfig(V, 48, (latent,) * 3, max_len=40))
idx = torch.randint(0, V, (2, 23))
by_hand = (2 * 6 * 10 * 23, 2 * 2 * 10 * 23, 2 * 1 * 10 * 23, 2 * 2 * 10 * 8, (18 + 4) * 23)  # a layer and row
predict(my_guess, 3 * 2 * 4 * by_hand[0], "bytes, MHA")
for (kind, model), numbers in zip(models.items(), by_hand):
    _ = model(idx, cache := model.new_cache(batch=2, max_len=40))
    check_equal(f"{kind:<11} held = 3 layers x 2 rows x 4 bytes x {numbers}", cache.nbytes, 3 * 2 * 4 * numbers)
    check_equal(f"{kind:<11} lib.kv_bytes", kv_bytes(model.config, 23, batch=2, bytes_per_element=4), cache.nbytes)

# %% [markdown] slideshow={"slide_type": "skip"}
# Equal to the byte, and nothing else is held. (The model reserves room for `max_len` tokens; that is `allocated_nbytes`.)
#
# ### Same logits?
#
# A cache must not change the answer. We feed the same text whole; then in **chunks** of 5, 1, 9, 1, 7, a chunk being how servers read a long prompt. The
# norms' gains are random. In float64 the two agree to the last digits. In fewer bits the kernels add up in another order, and logits differ;
# [transformers#25420](https://github.com/huggingface/transformers/issues/25420) discusses 0.02 for fp16 and 0.125 for bf16 on a 7B model, and such differences are regularly reported as a cache bug.

# %% slideshow={"slide_type": "slide", "title": "Fed in chunks, the same logits as the whole text", "show": "printed", "text": "Chunks of 5, 1, 9, 1, 7; the norms' gains are random. In float64 they agree to the last digits; in fewer bits the kernels add up in another order. Test a cache in float32 or float64; in bf16 compare the next token."}
def in_chunks(model, idx, sizes=(5, 1, 9, 1, 7)):
    cache = model.new_cache(batch=idx.shape[0], max_len=idx.shape[1])
    return torch.cat([model(chunk, cache) for chunk in idx.split(sizes, dim=1)], dim=1)  # [B, T, V]


_ = torch.manual_seed(1)
for model in models.values():
    for parameter in model.parameters():
        if parameter.dim() == 1:
            _ = parameter.copy_(torch.rand_like(parameter) + 0.5)
for kind, model in models.items():
    check_close(f"{kind:<11} float64", in_chunks(model.double(), idx), model(idx))
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    model = models["GQA"].to(dtype)
    check_close(f"GQA         {str(dtype)[6:]}", in_chunks(model, idx), model(idx))

# %% [markdown] slideshow={"slide_type": "slide", "title": "Repeat, not tile: query head j reads KV head ⌊j / (h / n_kv)⌋", "show": "", "text": "The cache keeps $n_{kv}$ heads, the scores need $h$. Two orders to repeat: each **in place**, or the whole row **tiled**.\n\nEvery value of KV head 0 is 0, of head 1 is 1. **Predict** what 4 query heads receive, both ways."}
# Test a cache in float32 or float64. In bf16 compare the next token, and only where its lead is larger than that error.
#
# ## 7 · Repeat, not tile
#
# The cache keeps $n_{kv}$ heads; the scores need $h$. So each KV head is repeated, and there are two orders to do it: repeat each **in place**, or **tile**
# the whole row of heads again and again. By section 3's formula query head $j$ reads KV head $\lfloor j / (h / n_{kv}) \rfloor$. Let every value of KV head 0
# be 0 and of head 1 be 1. **Predict** what 4 query heads receive in the right order, and in the other.

# %% slideshow={"slide_type": "-"}
my_guess = {"in place": None, "tiled": None}
q, k = torch.zeros(1, 4, 1, 2), torch.zeros(1, 2, 3, 2)  # [B, h, T, dh], [B, n_kv, S, dh]
v = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).expand(1, 2, 3, 1)  # [B, n_kv, S, 1]
received = attend(q, k, v).flatten().tolist()
tiled = attend(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)).flatten().tolist()
predict(None if None in my_guess.values() else my_guess, {"in place": received, "tiled": tiled})
check_equal("query head j reads KV head j // 2", received, [0.0, 0.0, 1.0, 1.0])
check_equal("tiled", tiled, [0.0, 1.0, 0.0, 1.0])
check_shape("repeat_interleave on the head axis", k.repeat_interleave(2, dim=1), [1, 4, 3, 2])
on_tokens = k.repeat_interleave(2, dim=2)
check_shape("on the token axis (PrimeIntellect-ai/prime-rl#2681)", on_tokens, [1, 2, 6, 2])

# %% [markdown] slideshow={"slide_type": "notes"}
# Both run, both have the right shape. A model trained one way and run the other speaks nonsense. With MQA or MHA nobody notices: there the two
# orders are the same.
#
# ### Where GQA models come from
#
# Most are trained so from the start. Ainslie et al. also **convert**: replace the KV heads of a group by their mean, then train on for a small share
# of the original compute (5 % in the paper). If the heads of a group are alike, the mean changes nothing. Are they, in a real model?
#
# SmolLM2-135M has 3 KV heads. We read layer 15's own matrices from its file, and only the shapes of the rest; seven word embeddings fill its cache, to
# count bytes. Then we put the mean of the 3 key heads in the place of all three. **Predict** the share of the sum of squared weights that is left: 1 if the
# heads are equal, 1/3 if they have nothing in common.

# %% slideshow={"slide_type": "slide", "title": "Pooling the heads of a model is a start, not an equivalence", "text": "SmolLM2-135M, layer 15: put the mean of the 3 key heads in the place of all three. 1 if they are equal, 1/3 if they have nothing in common.\n\n**Predict** what share of the squared weights is left."}
from safetensors import safe_open

my_guess = None  # between 1/3 and 1
with safe_open(lib.find_model() / "model.safetensors", "pt") as file:
    name = "model.layers.{}.self_attn.{}_proj.weight"
    widths = [file.get_slice(name.format(layer, part)).get_shape()[0] for layer in range(30) for part in "kv"]
    W_k, W_v = (file.get_tensor(name.format(15, part)).double() for part in "kv")
    x = file.get_slice("model.embed_tokens.weight")[1000:1007].double()  # any seven words
print(f"{sum(widths):,} numbers a token, {2 * sum(widths):,} B in bf16 = {2 * sum(widths) / 1024:.1f} KiB")
check_equal("elements per token, from the file's own shapes", sum(widths), 11_520)
cache = KVCache(1, 100, 3, 64, dtype=torch.bfloat16)
k, v = ((rms_norm(x) @ w.T).unflatten(-1, (3, 64)).transpose(0, 1)[None] for w in (W_k, W_v))  # [1, 3, T, 64]
_ = cache.append(k.bfloat16(), v.bfloat16())
check_equal("7 tokens, bytes held in layer 15", cache.nbytes, 7 * 2 * sum(widths) // 30)
keys, values = (3 * w.view(3, 64, 576).mean(0).square().sum() / w.square().sum() for w in (W_k, W_v))
predict(my_guess, round(keys.item(), 2), "of the squared weights")
print(f"of the 3 value heads' {values:.0%} is left; of unrelated heads' it would be {1 / 3:.0%}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "The mask: the last query aligns with the last key", "show": "", "ask": "Q12", "text": "Two new queries, three cached keys, all scores equal, values 1 to 5. The first query is token 4.\n\nPyTorch's `is_causal=True` aligns the **first query with the first key**. **Predict** both results."}
# About what unrelated heads leave. So pooling heads is a starting point and not an equivalence: the model must be trained on.
#
# ## 8 · Feeding in pieces
#
# Three things must be right when tokens come in pieces: mask, positions, padding. The chunks of section 6 had them right.
#
# **The mask.** Two new queries, three cached keys, all scores equal, values 1 to 5. The first query is token 4 and sees four of them.
# PyTorch's `is_causal=True` aligns the **first query with the first key**. **Predict** both results.

# %% slideshow={"slide_type": "-"}
my_guess = {"right": None, "is_causal": None}
q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4)
v = torch.arange(1.0, 6).view(1, 1, 5, 1)
sdpa = torch.nn.functional.scaled_dot_product_attention
right, top_left = attend(q, k, v).flatten().tolist(), sdpa(q, k, v, is_causal=True).flatten().tolist()
predict(None if None in my_guess.values() else my_guess, {"right": right, "is_causal": top_left})
check_close("aligned to the end", right, [2.5, 3.0], 1e-6)
check_close("top left", top_left, [1.0, 1.5], 1e-6)
one = [attend(q[:, :, :1], k, v).item(), sdpa(q[:, :, :1], k, v, is_causal=True).item()]
print(f"one new token: {one[0]:.1f}, with is_causal {one[1]:.1f}")
check_close("one new token", one, [3.0, 1.0], 1e-6)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Positions: the next one is the number of tokens ever fed", "show": "", "text": "Keys are rotated **before** they are cached, each at its own position, once. Three ways to get the next position wrong: start again at 0; add the prompt's length again; count the tokens *held*, which stops growing with a window.\n\nA window of 5, a prompt of 6, six single steps: **predict** the positions each rule uses."}
# With `is_causal=True`, a decoding model looks at its very first token, always ([pytorch#108108](https://github.com/pytorch/pytorch/issues/108108), [#144858](https://github.com/pytorch/pytorch/issues/144858)). A single new query needs no mask at all.
#
# **Positions.** Keys are rotated **before** they are cached, each at its own position, once. The next token's position is the number of tokens
# *ever fed*. Three ways to get it wrong: start again at 0; move on by the prompt's length instead of by 1 after the first step ([skyzh/tiny-llm#46](https://github.com/skyzh/tiny-llm/issues/46)); or count
# the tokens *held*, which stops growing when a window drops the oldest.
#
# One layer with a window of 5, a prompt of 6 tokens, then six single steps. **Predict** the positions that each rule uses.

# %% slideshow={"slide_type": "fragment", "show": "printed"}
_ = torch.manual_seed(2)
layer = GQAttention(48, 6, 2, head_dim=10, window=5).double()
x = torch.randn(1, 12, 48, dtype=torch.float64)
cos, sin = rope_cache(80, 10)
whole = layer(x, cos[:12], sin[:12])
rules = {
    "tokens ever fed": lambda c: c.length,
    "always 0": lambda c: 0,
    "prompt's length again": lambda c: c.length + 5 * (c.length > 6),
    "tokens held": lambda c: c.held,
}
for rule, position in rules.items():
    cache, outs, at = KVCache(1, 12, 2, 10, window=5, dtype=torch.float64), [], []
    for chunk in x.split([6, 1, 1, 1, 1, 1, 1], dim=1):
        p, T = position(cache), chunk.shape[1]
        at.append(p)
        outs.append(layer(chunk, cos[p : p + T], sin[p : p + T], cache))
    error = (torch.cat(outs, 1) - whole).abs().max() / whole.abs().max()
    check_equal(f"{rule:<21} {at}: same as the whole text", bool(error < TOLERANCES["float64"]), rule == "tokens ever fed")

# %% [markdown] slideshow={"slide_type": "slide", "title": "Padding on the left: masked for good; a row may be shifted only as a whole", "show": "", "text": "- pads must be masked, for everyone, at every later step\n- RoPE's scores depend on differences: shift query **and** keys of a row together"}
# **Left padding.** In a batch, shorter prompts get padding on the left. It must be masked, for everyone, at every later step. And its positions?
# RoPE's scores depend on differences only, so a row may be shifted **as a whole**: query and keys. Shift the query alone and the score changes.

# %% slideshow={"slide_type": "-", "show": "printed"}
model = models["GQA"].double()
prompt = idx[:1, :7]
padded = torch.cat([torch.zeros(1, 4, dtype=torch.int64), prompt], dim=1)
batch = torch.cat([padded, idx[1:, :11]])  # row 0: 4 pads and 7 tokens, row 1: 11 tokens
alone, cache = model(prompt), model.new_cache(2, 20)
with_pad = model(batch, cache, pad=torch.tensor([4, 0]))
check_close("a padded row = the same row alone", with_pad[0, 4:], alone[0])
step = model(idx[:, 11:12], cache)  # the cache remembers the padding
check_close("and one step later", step[0, 0], model(torch.cat([prompt, idx[:1, 11:12]], 1))[0, -1])
ignored = model(batch)[0, 4:]
check_equal("padding not masked: same logits", bool((ignored - alone[0]).abs().max() < 0.01 * alone.abs().max()), False)

cos, sin = rope_cache(40, 64)  # in float32
q, k = torch.randn(2, 1, 1, 1, 64, dtype=torch.float64)
score = {}
for m, n in ((9, 4), (14, 9), (14, 4)):
    turned = apply_rope(q, cos[m : m + 1], sin[m : m + 1]), apply_rope(k, cos[n : n + 1], sin[n : n + 1])
    score[m, n] = (turned[0] * turned[1]).sum()
check_close("query and key both shifted by 5", score[9, 4], score[14, 9], 1e-5, q.norm() * k.norm())
check_equal("the query alone shifted: same score", bool((score[14, 4] - score[9, 4]).abs() < 0.1), False)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 9 · Bugs that shipped
#
# **No mask because there is a cache.** `if cache is not None: no mask` is right for one new token and wrong for the prompt, which then sees its
# own future ([Mikyx-1/TinyLLM#17](https://github.com/Mikyx-1/TinyLLM/issues/17)). Three tokens, equal scores, values 1, 2, 3.
#
# **Bits in another type.** A bf16 model wrote into an fp16 cache; the bits were reinterpreted, not converted ([vllm#54338](https://github.com/vllm-project/vllm/issues/54338)).
#
# **Bytes times bytes.** A course multiplied `.nbytes`, which is bytes already, by the item size ([TrenTorch#192](https://github.com/TrenTorch/TrenTorch/issues/192)); an illustrated guide counted Q as a
# third cached tensor ([jalammar.github.io#36](https://github.com/jalammar/jalammar.github.io/issues/36)).

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: no mask for the prompt, bits in another type, bytes times bytes", "show": "printed", "text": "- `if cache is not None: no mask` is right for one new token, wrong for the prompt\n- a bf16 model wrote into an fp16 cache: reinterpreted, not converted\n- `.nbytes` multiplied by the item size; Q counted as a third cached tensor"}
q = k = torch.zeros(1, 1, 3, 4)
v = torch.arange(1.0, 4).view(1, 1, 3, 1)
print(f"prompt of 3: masked {attend(q, k, v).flatten().tolist()}, unmasked {sdpa(q, k, v).flatten().tolist()}")
check_close("masked", attend(q, k, v).flatten(), [1.0, 1.5, 2.0], 1e-6)
check_close("unmasked", sdpa(q, k, v).flatten(), [2.0, 2.0, 2.0], 1e-6)
number = torch.tensor(0.162109375, dtype=torch.bfloat16)
print(f"bf16 {number.item()}, its bits read as fp16 {number.view(torch.float16).item()}")
check_equal("the same sixteen bits", number.view(torch.float16).item(), 1.537109375)
try:
    _ = KVCache(1, 4, 2, 8, dtype=torch.float16).append(*torch.zeros(2, 1, 2, 1, 8, dtype=torch.bfloat16))
except ValueError as error:
    print(f"lib refuses: {error}")
array = torch.zeros(2, 4, 8, 16)
print(f"nbytes {array.nbytes:,}, times the item size {array.nbytes * array.element_size():,}")
print(f"with Q, Llama-2-7B would have {3 * 32 * 32 * 128 * 2:,} B a token for {kv_cache_bytes(32, 32, 128):,}")
check_equal("2 x 4 x 8 x 16 float32", array.nbytes, 4_096)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# **1.** A model has $L = 32$, $h = 32$, $d_h = 128$, GQA with $n_{kv} = 8$ and an fp16 cache. How many bytes is one token, and how many GiB are 32,768?

# %% tags=["exercise"]
my_cache = {"bytes per token": None, "GiB at 32,768": None}

# %% tags=["check"]
check("05.seed", my_cache)

# %% tags=["solution"] jupyter={"source_hidden": true}
def seed_solution():
    token = 2 * 32 * 8 * 128 * 2
    return {"bytes per token": token, "GiB at 32,768": token * 32_768 / 2**30}


check("05.seed", seed_solution)
answer = seed_solution()
print(f"{answer['bytes per token'] / 1024:.0f} KiB a token, {answer['GiB at 32,768']:.0f} GiB for 32,768 tokens")

# %% [markdown] slideshow={"slide_type": "skip"}
# **2. From a config.** `config` is a dict as in config.json. It always has `num_hidden_layers`, `hidden_size` and `num_attention_heads`;
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
# **3. Which of these twelve published numbers are wrong?** Two bytes a number unless it says otherwise. Answer with a set, as `{2, 7}`.
#
# | | model | shape | for | published |
# |---|---|---|---|---|
# | 1 | Llama-2-7B | 32 layers, 32 KV heads of 128 | a token | 4,194,304 B |
# | 2 | a 70B | 80 layers, 8 KV heads of 128 | 4,096 tokens | 5 GB |
# | 3 | Mistral-Small-24B | 40 layers, 8 KV heads, `hidden_size` 5,120, 32 heads, `head_dim` 128 | a token | 204,800 B |
# | 4 | Qwen3-0.6B | 28 layers, 8 KV heads, `hidden_size` 1,024, 16 heads, `head_dim` 128 | a token | 114,688 B |
# | 5 | DeepSeek-V3 | 61 layers, latent 512, rope key 64 | a token | 70,272 B |
# | 6 | DeepSeek-V3 | `hidden_size` 7,168, 128 heads, 128 KV heads in the file | a token | 1,748,992 B |
# | 7 | Llama-2-7B | as above | 2,048 tokens | 1.00 GiB |
# | 8 | Llama-2-7B | as above | 2,048 tokens | 1.07 GB |
# | 9 | gpt-oss-20b | 24 layers, 8 KV heads of 64, 12 with window 128 | 32 users of 8,192, needed | 6.09 GiB |
# | 10 | gpt-oss-20b | as above | the first token | 24,576 B |
# | 11 | Llama 3 70B | 80 layers, 8 KV heads of 128 | 131,072 tokens | 40 GiB |
# | 12 | a 7B | 32 layers, 32 KV heads of 128 | 32,768 tokens | 512 MB |
#
# The wrong ones were published, among other places, in jranaraki/vllm-fit#2, [NVIDIA/TensorRT-LLM#16707](https://github.com/NVIDIA/TensorRT-LLM/issues/16707), [NVIDIA/Model-Optimizer#2482](https://github.com/NVIDIA/Model-Optimizer/issues/2482) and
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

# %% [markdown] slideshow={"slide_type": "skip"}
# **4. Repeat.** Make $h$ = $n_{kv}$ times `group_size` heads of `x` [B, n_kv, S, dh], so that query head $j$ finds its own at index $j$.

# %% tags=["exercise"]
def my_repeat(x, group_size):
    ...

# %% tags=["check"]
check("05.repeat", my_repeat)

# %% tags=["solution"] jupyter={"source_hidden": true}
def repeat_solution(x, group_size):
    return x.repeat_interleave(group_size, dim=1)


check("05.repeat", repeat_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Find the fault.** `T` new queries are the last of `S` keys. True means *may look*. This mask trains well and decodes nonsense. Mend it.

# %% tags=["exercise"]
def my_mask(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()

# %% tags=["check"]
check("05.mask", my_mask)

# %% tags=["solution"] jupyter={"source_hidden": true}
def mask_solution(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)


check("05.mask", mask_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "In practice: five fields decide", "show": "table"}
# ## What you can do now
#
# You **computed** bytes per token from four fields, and met the fields that change the answer (`head_dim`, windows, MLA); **explained** what GQA shares
# and that it leaves the score FLOPs alone; **estimated** users, context and speed of a card; **fed** models in chunks, with padding and windows;
# **spotted** six wrong sizes. Proved equal here: the formula and the bytes really held, for MHA, GQA, MQA, a window and MLA; chunks and whole text.
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
# **Sources.** Shazeer 2019, Fast Transformer Decoding ([arXiv 1911.02150](https://arxiv.org/abs/1911.02150)): MQA. Ainslie et al. 2023, GQA ([arXiv 2305.13245](https://arxiv.org/abs/2305.13245)): grouped heads, conversion by
# mean pooling, the quality claims. The config.json files of the models named. Public reports as named in sections 4 and 6 to 9.

# %% slideshow={"slide_type": "skip"}
progress("05")
