# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "Nothing in attention limits how long queries and keys grow. QK-norm does, with two small vectors of gains per layer. After this chapter you can"}
# # 07 · QK-norm
#
# Nothing in attention limits how long queries and keys grow. QK-norm does, with two small vectors of gains per layer.
#
# After it you will be able to
# - **explain** what large logits do to a softmax, and why they grow;
# - **compute** the largest logit that QK-norm allows;
# - **say** when norm and rotation may change places, and prove it;
# - **tell** the two kinds of QK-norm apart, and write QK-Clip.
#
# You need chapters 01 (RMSNorm) and 03 (RoPE). About 40 minutes.

# %% slideshow={"slide_type": "skip"}
import math
from itertools import product

import matplotlib.pyplot as plt
import torch

import lib
from book.configs import load
from book.evidence import row_range
from book.exercises import check, mine, progress
from book.experiments import STATE, kicked, load_results, table_curves
from book.experiments.pictures import draw_rates
from book.explore.ch07_qk_norm import qk_explorer
from book.figures import COLORS, style
from book.predict import check_close, check_equal, check_shape, predict
from lib import GQAttention, apply_rope, attend, causal_mask, permute_heads, repeat_kv, rms_norm, rope_cache

style()
_ = torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A score has no ceiling: both gains times 16", "show": "", "ask": "Q16", "text": "A score is $q^\\top k / \\sqrt{d_h}$. The root keeps it near 1 **at the start of training**. Then $W_q$ and $W_k$ grow.\n\nLet both grow sixteenfold. **Write down** by what factor the logits grow, and what happens to the entropy over 4,096 keys; all alike would be 8.32 nats."}
# ## 1 · A score without a ceiling
#
# Before the softmax, a score is $q^\top k / \sqrt{d_h}$. The root keeps it near 1 **at the start of training**, when the entries of $q$ and $k$ have size 1. Then
# $W_q$ and $W_k$ grow.
#
# Let both grow sixteenfold. By what factor do the logits grow? **Write it down**, and guess what happens to the entropy of the weights over 4,096 keys;
# all alike would be $\ln 4096 = 8.32$ nats.

# %% slideshow={"slide_type": "-"}
my_guess = None  # a factor
g = torch.Generator().manual_seed(0)
dh, S = 128, 4096
q = torch.randn(256, dh, generator=g, dtype=torch.float64)  # 256 queries
k = torch.randn(S, dh, generator=g, dtype=torch.float64)


def look(q, k):
    s = q @ k.T / math.sqrt(q.shape[-1])  # [256, S]
    p = s.softmax(-1)
    entropy, passes = torch.special.entr(p).sum(-1).mean(), (p * (1 - p)).sum(-1).mean()
    return s.abs().max().item(), entropy.item(), passes.item()


grown = {gain: look(gain * q, gain * k) for gain in (1, 2, 4, 8, 16)}
predict(my_guess, grown[16][0] / grown[1][0], "times")
for gain, (largest, entropy, passes) in grown.items():
    spread = f"entropy {entropy:5.2f} nats   sum of p (1 - p) {passes:.3f}"
    print(f"gain {gain:>2}: largest {largest:8.1f}   {spread}")
check_close("factor of the logits", grown[16][0] / grown[1][0], 256)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Divide by the length, just before the product", "show": "formula", "text": "An RMSNorm on each head's $q$, another on each head's $k$, with learned gains:"}
# $16 \cdot 16 = 256$. At gain 1 a query looks at everything; at gain 16 at one key and nothing else.
#
# The last column says why that is bad news for training. The derivative of a weight by its own logit is $p\,(1-p)$. When one weight is 1 and the others 0, every
# such term is 0: the softmax is **saturated**, and whatever is wrong with its choice, hardly any gradient reaches the logits to change it.
#
# ## 2 · Divide by the length
#
# QK-norm is an RMSNorm on each head's $q$ and another on each head's $k$, with learned gains $g_q, g_k \in \mathbb{R}^{d_h}$, just before the product:
#
# $$\hat q = g_q \odot \frac{q}{\mathrm{rms}(q)}, \qquad \hat k = g_k \odot \frac{k}{\mathrm{rms}(k)}, \qquad \text{score} = \frac{\hat q^\top \hat k}{\sqrt{d_h}} .$$
#
# A vector whose entries have RMS 1 is $\sqrt{d_h}$ long. **Predict** the largest score of any $q$ and $k$ for $d_h = 128$: without gains, and with gains that are 1 except in one channel, where $g_q = 3$ and $g_k = 2$. Then the same growth once more.

# %% slideshow={"slide_type": "subslide", "title": "The largest score that is left", "text": "A vector whose entries have RMS 1 is $\\sqrt{d_h}$ long. **Predict** the largest score for $d_h = 128$: without gains, and with gains that are 1 except in one channel, where $g_q = 3$ and $g_k = 2$."}
my_guess = {"no gains": None, "one channel": None}
bound = math.sqrt(dh)
predict(my_guess, {"no gains": round(bound, 2), "one channel": round(6 * bound, 2)})
ones = torch.ones(1, dh, dtype=torch.float64)
check_close("q = k reaches it", look(rms_norm(3 * ones, eps=0), rms_norm(700 * ones, eps=0))[0], bound)
held = {gain: look(rms_norm(gain * q), rms_norm(gain * k)) for gain in (1, 2, 4, 8, 16)}
for gain, (largest, entropy, passes) in held.items():
    spread = f"entropy {entropy:5.2f} nats   sum of p (1 - p) {passes:.3f}"
    print(f"gain {gain:>2}: largest {largest:8.1f}   {spread}")
check_close("nothing moved", held[16], held[1], 1e-4)

# %% [markdown] slideshow={"slide_type": "slide", "title": "The bound, with a rotation in between", "show": "formula", "text": "- without a rotation: $\\sqrt{d_h}\\,\\max_i |g_{q,i}\\, g_{k,i}|$, a vector in one channel gets all of its gain\n- RoPE can turn one channel of a pair into the other: the larger gain of $q$ in a pair meets the larger gain of $k$"}
# The norm divides the gain out again ($\mathrm{norm}(a x) = \mathrm{norm}(x)$, [chapter 01](01_rmsnorm.ipynb)). How large may a score get? Cauchy and Schwarz allow $\sqrt{d_h}\cdot\sqrt{d_h}$, and the scale takes one root away. With gains, a vector that lies in one channel only gets all of that channel's gain, so without a rotation the largest score is
# $\sqrt{d_h}\,\max_i |g_{q,i}\, g_{k,i}|$. RoPE can turn one channel of a pair into the other: then the larger gain of $q$ in a pair meets the larger gain of $k$,
#
# $$|\text{score}| \le \sqrt{d_h}\; \max_{\text{pairs}}\bigl(\max|g_q| \cdot \max|g_k|\bigr) .$$
#
# Random gains; both limits are reached.

# %% slideshow={"slide_type": "subslide", "title": "Both limits are reached", "show": "printed", "text": "Random gains. Without a rotation: all of $q$ and $k$ in the one channel with the largest product of gains. With RoPE: in the two channels of one pair, turned onto each other by a quarter. The two largest gains alone would promise more than any vector can reach."}
def one_hot(i):
    return torch.eye(dh, dtype=torch.float64)[i, None]


g_q, g_k = torch.randn(2, dh, generator=g, dtype=torch.float64) * 2
i = int((g_q * g_k).abs().argmax())
still = bound * (g_q * g_k).abs().max()
check_close("no rotation: all in one channel", look(rms_norm(one_hot(i), g_q, eps=0), rms_norm(one_hot(i), g_k, eps=0))[0], still)
pairs_q, pairs_k = (gain.abs().view(2, dh // 2) for gain in (g_q, g_k))  # half-split: channels j and j + 64
j = int((pairs_q.amax(0) * pairs_k.amax(0)).argmax())
at_q, at_k = (j + dh // 2 * int(pair[:, j].argmax()) for pair in (pairs_q, pairs_k))
quarter = [torch.full((1, dh // 2), v, dtype=torch.float64) for v in ((1, 0) if at_q == at_k else (0, 1))]  # cos, sin
turned = apply_rope(rms_norm(one_hot(at_k), g_k, eps=0), *quarter)
limit = bound * (pairs_q.amax(0) * pairs_k.amax(0)).max()
check_close("with RoPE: one pair, turned by a quarter", look(rms_norm(one_hot(at_q), g_q, eps=0), turned)[0], limit)
print(f"reached without rotation {still:.1f}, with {limit:.1f}; from the two largest gains alone {bound * g_q.abs().max() * g_k.abs().max():.1f}")

# %% [markdown] slideshow={"slide_type": "notes"}
# So the model can still make logits large, but only through $2 d_h$ gains that all tokens share, and no longer by accident, in single tokens, through $W_q$ and $W_k$. The ceiling has a price at long context: without gains, the largest
# possible weight on one of 131,072 keys is 0.986 with heads of 64 (all others at $-8$), but 0.38 with heads of 32.
#
# ### Move the sliders
#
# Left, the largest logit in size; in the middle, the entropy (new draws, 8 queries); right, the twelve largest weights of one query. Raise the gain without QK-norm, then switch it on. Then raise the
# **norm's own** gain: what does QK-norm not prevent?

# %% slideshow={"slide_type": "slide", "title": "Raise the gain without QK-norm, then switch it on"}
qk_explorer

# %% [markdown] slideshow={"slide_type": "notes"}
# With a gain of its own of 4 (bound 181) the softmax saturates as well: training may raise the ceiling, but a few numbers per layer now show where it is.
#
# ## 3 · In six lines
#
# Split into heads, normalise, rotate, attend; random gains, six query and two KV heads of 10, positions from 33 on.

# %% slideshow={"slide_type": "slide", "title": "Split, normalise, rotate, attend", "show": "code"}
def my_attention(x, layer, cos, sin):
    heads = (x @ layer[name].T for name in ("wq", "wk", "wv"))
    q, k, v = (y.unflatten(-1, (-1, 10)).transpose(1, 2) for y in heads)  # [B, heads, T, dh]
    q, k = rms_norm(q, layer["q_norm"]), rms_norm(k, layer["k_norm"])  # each head by its own RMS
    q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
    return attend(q, k, v).transpose(1, 2).flatten(2) @ layer["wo"].T


torch.manual_seed(1)
module = GQAttention(24, 6, 2, qk_norm=True, head_dim=10).double()
for p in module.parameters():
    p.copy_(torch.randn_like(p))
weights = {name.removesuffix(".weight"): p for name, p in module.named_parameters()}
x = torch.randn(2, 7, 24, dtype=torch.float64)
cos, sin = rope_cache(7, 10, start=33)
check_close("by hand = lib", my_attention(x, weights, cos, sin), module(x, cos, sin))
check_shape("one gain for all heads of q", weights["q_norm"], [10])

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 4 · Before or after the rotation?
#
# RoPE keeps lengths, so dividing by the RMS gives the same before and after. **Predict** for each of three cases whether the order
# matters: no gain; one gain per channel; a gain that is equal in the two channels of a pair.

# %% slideshow={"slide_type": "slide", "title": "Before or after the rotation?", "ask": "Q17", "text": "RoPE keeps lengths, so dividing by the RMS gives the same before and after.\n\n**Predict** for each whether the order matters: no gain; one gain per channel; a gain that is equal in the two channels of a pair."}
my_guess = {"no gain": None, "free gain": None, "pair-tied gain": None}  # True = the order matters
g = torch.Generator().manual_seed(1)
q40 = torch.randn(1, 1, 40, dh, generator=g, dtype=torch.float64)
cos, sin = (t.double() for t in rope_cache(40, dh, start=33))
length = (cos**2 + sin**2).sqrt()  # a float32 table is a rotation to 7 digits; this makes it one to 16
cos, sin = cos / length, sin / length
free = 2 * torch.rand(dh, generator=g, dtype=torch.float64)
gains = {"no gain": None, "free gain": free, "pair-tied gain": free[: dh // 2].repeat(2)}
apart = {}
for name, gain in gains.items():
    first, last = apply_rope(rms_norm(q40, gain), cos, sin), rms_norm(apply_rope(q40, cos, sin), gain)
    apart[name] = (first - last).abs().max().item()
predict(my_guess, {name: value > 0.1 for name, value in apart.items()})
check_close("no gain", apart["no gain"], 0.0, scale=first.abs().max())
check_equal("a free gain: apart by more than 1", apart["free gain"] > 1, True)
check_close("pair-tied gain", apart["pair-tied gain"], 0.0, scale=first.abs().max())

# %% [markdown] slideshow={"slide_type": "slide", "title": "The order is a part of the model", "show": "formula", "text": "Within a pair the rotation is $R$ and the gain $\\mathrm{diag}(a, b)$. They commute for every angle only if\n\n- Qwen3 and Gemma 3 norm first; Hunyuan rotates first\n- neither order trains better: port it as it was trained"}
# The reason is two lines. Within a pair the rotation by an angle $\alpha$ is $R$ and the gain is $\mathrm{diag}(a, b)$; they commute for every angle only if
#
# $$\mathrm{diag}(a,b)\,R - R\,\mathrm{diag}(a,b) = (a - b)\,\sin\alpha \begin{pmatrix} 0 & -1 \\ -1 & 0 \end{pmatrix} = 0, \quad\text{that is } a = b .$$
#
# **The order is a part of the model**. Qwen3 and Gemma 3 norm first; Hunyuan rotates first, and code that takes one order for granted runs it wrongly
# ([vllm-metal#660](https://github.com/vllm-project/vllm-metal/issues/660)). One pair by hand: $x = [3, 4]$, gain $[1, 2]$, an angle of one radian.

# %% slideshow={"slide_type": "subslide", "title": "One pair by hand", "show": "printed", "text": "$x = [3, 4]$, gain $[1, 2]$, an angle of one radian. With a gain the two orders part; without one they do not. Code that takes one order for granted runs the other kind of model wrongly, without an error:"}
pair, gain = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.tensor([1.0, 2.0], dtype=torch.float64)
c, s = torch.tensor([[math.cos(1)]], dtype=torch.float64), torch.tensor([[math.sin(1)]], dtype=torch.float64)
before = apply_rope(rms_norm(pair, gain, eps=0), c, s)[0]
after = rms_norm(apply_rope(pair, c, s), gain, eps=0)[0]
print("norm, then RoPE", [round(v, 6) for v in before.tolist()])
print("RoPE, then norm", [round(v, 6) for v in after.tolist()])
check_close("norm first", before, [-1.44557, 1.936576], 1e-6)
check_close("RoPE first", after, [-0.493554, 2.650588], 1e-6)
without = rms_norm(apply_rope(pair, c, s), eps=0)[0]
print("no gain, either", [round(v, 6) for v in without.tolist()])
check_close("no gain, either order", without, apply_rope(rms_norm(pair, eps=0), c, s)[0])
check_close("its value", without, [-0.493554, 1.325294], 1e-6)

# %% [markdown] slideshow={"slide_type": "skip"}
# Whether the order matters is often asked ([karpathy/nanochat#743](https://github.com/karpathy/nanochat/issues/743), [meta-pytorch/torchtune#2809](https://github.com/meta-pytorch/torchtune/issues/2809)). In nanochat it does not: its norm has no gain. Nor has Llama 4's,
# after RoPE. Neither order trains better: in one comparison the loss was 3.8104 norm first, 3.8126 RoPE first, and 3.4339 and 3.4338 in a larger model ([marin#5114](https://github.com/marin-community/marin/issues/5114)). Port it as it was trained.
#
# ## 5 · Each head, or the whole width
#
# OLMo 2 normalises the **whole** projection, before the split into heads. Take $q = [1, 1, 10, 10]$, two heads of 2. **Predict** both results. Below them, one of OLMo-2-7B's 32 heads shouts and the others are silent.

# %% slideshow={"slide_type": "slide", "title": "Each head, or the whole width", "text": "OLMo 2 normalises the **whole** projection, before the split into heads: a loud head stays louder than a quiet one, and the bound is weaker for it.\n\n$q = [1, 1, 10, 10]$, two heads of 2. **Predict** both results. Below: one of OLMo-2-7B's 32 heads shouts, the others are silent."}
my_guess = {"each head": None, "whole width": None}
loud = torch.tensor([[[1.0, 1.0, 10.0, 10.0]]], dtype=torch.float64)  # [B, T, h dh]
per_head = rms_norm(loud.unflatten(-1, (2, 2)), eps=0).flatten(-2)[0, 0]
whole = rms_norm(loud, eps=0)[0, 0]
truth = {"each head": per_head.tolist(), "whole width": [round(v, 6) for v in whole.tolist()]}
predict(my_guess, truth)
print("whole width:", *(f"{v:.6f}" for v in whole.tolist()))
check_close("each head", per_head, [1.0, 1.0, 1.0, 1.0])
check_close("whole width", whole, [0.14072, 0.14072, 1.407195, 1.407195], 1e-6)
wide = GQAttention(24, 6, 2, qk_norm="width", head_dim=10)
check_shape("gain of k: the KV heads' width", wide.k_norm.weight, [20])
h, n_kv, width = 32, 32, 128
shout = torch.zeros(1, h * width, dtype=torch.float64)
shout[:, :width] = 1.0  # head 0 only, in q and in k
head = rms_norm(shout, eps=0)[:, :width]
largest = look(head, head)[0]
print(f"whole width: up to {largest:.0f}    each head: up to {math.sqrt(width):.2f}")
check_close("the weaker bound is reached", largest, math.sqrt(h * n_kv * width))

# %% [markdown] slideshow={"slide_type": "slide", "title": "A real model without it: how far apart does a row's logits lie?", "show": "", "text": "A softmax does not see a common shift; what saturates it is the **range** of a row's logits. SmolLM2-135M has no QK-norm: 30 blocks, 9 query and 3 KV heads of 64.\n\n**Predict** the widest range of a row in a text of some 40 tokens."}
# Over the whole width a loud head stays louder than a quiet one, and the bound is weaker for it: a single head may hold all the length. For $h$ query and $n_{kv}$ KV heads
# it is $\sqrt{h\,n_{kv}\,d_h}$ instead of $\sqrt{d_h}$.
#
# ## 6 · A real model without it
#
# SmolLM2-135M has no QK-norm. What should one look at in its logits? A softmax does not see a common shift: add 100 to every logit of a row and no weight moves. What saturates it
# is how far the row's logits lie **apart**: their range, largest minus smallest.
#
# We walk through the 30 blocks (9 query and 3 KV heads of 64) by hand. **Predict** the widest range of a row in a text of some 40 tokens.

# %% slideshow={"slide_type": "-"}
my_guess = None
folder = lib.find_model()
model = lib.load_model(folder)
story = """The old lighthouse keeper climbed the stairs every evening. When the light was burning, he wrote
one line in his book: the weather, the ships, and what he had been thinking about. Nobody ever read it."""
idx = torch.tensor([lib.load_tokenizer(folder).encode(story).ids])
T = idx.shape[1]
cos, sin = rope_cache(T, 64, 100_000.0)
mask = causal_mask(torch.arange(T), torch.arange(T))
x, layers = model.emb(idx), []
for block in model.blocks:
    real_q, real_k, _ = block.attn.project(block.attn_norm(x), cos, sin)
    both = ((real_q, real_k), (rms_norm(real_q), rms_norm(real_k)))
    s, normed = ((a @ repeat_kv(b, 3).transpose(-1, -2) / 8)[0].masked_fill(~mask, -math.inf) for a, b in both)
    layers.append({"logits": s, "p": s.softmax(-1), "normed": normed, "stream": x[0].square().mean(-1).sqrt()})  # s [h, T, T]
    x = block(x, cos, sin)
check_close("our walk = the model", model.head(model.norm(x)), model(idx))
predict(my_guess, round(max(row_range(row["logits"]).max().item() for row in layers), 1))

# %% [markdown] slideshow={"slide_type": "skip"}
# Per layer: the largest logit, the widest range, the entropy of the lowest-entropy head (later half of the text); last, the widest range that the same $q$ and $k$ give after a norm with gain 1, at most $2\sqrt{64} = 16$.

# %% slideshow={"slide_type": "skip"}
del model  # half a gigabyte that nothing below needs
s = layers[18]["logits"][0, -1]
check_close("a row plus 100: the same weights", (s + 100).softmax(-1), s.softmax(-1))
for i, row in enumerate(layers):
    row["range"], row["entropy"] = row_range(row["logits"]).amax(1), torch.special.entr(row["p"][:, T // 2 :]).sum(-1).mean(1)
    if i in (0, 6, 12, 16, 18, 20, 24, 29):
        words = f"largest logit {row['logits'].max():5.1f}   widest range {row['range'].max():5.1f}"
        print(f"layer {i:>2}: {words}   lowest entropy {row['entropy'].min():.2f} nats   normalised {row_range(row['normed']).max():4.1f}")
ranges = torch.stack([row["range"].max() for row in layers])
normed = torch.stack([row_range(row["normed"]).max() for row in layers])
print(f"largest logit of any layer: {max(row['logits'].max().item() for row in layers):.1f}")
check_equal("the layer with the widest", int(ranges.argmax()), 18)
check_equal("normalised: every layer below 16", bool((normed < 16).all()), True)

# %% slideshow={"slide_type": "subslide", "title": "Layer by layer: the widest range, and the entropy"}
fig, axes = plt.subplots(1, 2, figsize=(11, 4.2))
_ = axes[0].bar(range(30), ranges, color=COLORS["old"], label="SmolLM2")
_ = axes[0].plot(range(30), normed, "o", ms=7, color=COLORS["new"], label="same q, k, normalised")
_ = axes[0].axhline(16, color=COLORS["cached"], ls=":")
_ = axes[0].set(xlabel="layer", title="widest range of a row")
_ = axes[0].legend()
entropy = torch.stack([row["entropy"] for row in layers])  # [30, h]
_ = axes[1].plot(range(30), entropy.mean(1), color=COLORS["old"], label="mean of 9 heads")
_ = axes[1].plot(range(30), entropy.amin(1), color=COLORS["ink"], ls="--", label="lowest head")
_ = axes[1].set(xlabel="layer", title="entropy, nats", ylim=(-0.1, None))
_ = axes[1].legend()
plt.show()

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: left, one bar per layer, the highest in layer 18; the dots, normalised, all below 16. Right, mean entropy between 1 and 3 nats; the lowest head near 0 in layer 18.*
#
# **Predict** how many of the 270 heads put more than half of their weight on the first token.

# %% slideshow={"slide_type": "subslide", "title": "Attention sinks: where saturated heads look", "text": "**Predict** how many of the 270 heads put more than half of their weight on the first token."}
my_guess = None
head = int(entropy[18].argmin())
last = layers[18]["logits"][head, T - 1]
print(f"layer 18, head {head}: weight on the first token at least {layers[18]['p'][head, :, 0].min():.3f}, of every query")
print(f"its last query: logit of the first token {last[0]:.0f}, of the others at most {last[1:].max():.0f}")
on = {n: torch.stack([row["p"][:, T // 2 :, n].mean(1) for row in layers]) for n in (0, 1, 2)}  # [30, h]
sinks = {n: int((weight > 0.5).sum()) for n, weight in on.items()}
predict(my_guess, sinks[0], "of 270")
print(f"on the second token: {sinks[1]}; on the third: {sinks[2]}")
stream = [float(row["stream"][0] / row["stream"][1:].median()) for row in layers]
born = next(i for i, ratio in enumerate(stream) if ratio > 20)
print(f"the first token's stream: up to {max(stream):.0f} times the others', above 20 times from the input of block {born} on")
check_equal("many heads on the first token, none on the second", [sinks[0] > 60, sinks[1]], [True, 0])

# %% [markdown] slideshow={"slide_type": "notes"}
# Those heads are **attention sinks** (Xiao et al. 2023, [arXiv 2309.17453](https://arxiv.org/abs/2309.17453)): a softmax always sums to 1, so weight that has nowhere to go is parked on the first token. The token that receives it carries a **massive
# activation** (Sun et al. 2024, [arXiv 2402.17762](https://arxiv.org/abs/2402.17762)): its stream is many times as long as the others', which [chapter 09](09_full_block.ipynb) meets again. A sliding window that drops the first token takes the sink away;
# gpt-oss learns a sink logit per head instead.
#
# So a saturated head need not be a broken one: SmolLM2 works.
#
# ## 7 · What it is good for
#
# The experiment, after Wortsman et al. 2023 ([arXiv 2309.14322](https://arxiv.org/abs/2309.14322)): the same small model (1.04M parameters; bytes of English chat written by SmolLM2) with and without QK-norm at six
# learning rates, three seeds each, 256 steps of 512 bytes. The yardstick is a bigram table of the same bytes ([chapter 09](09_full_block.ipynb)). **Predict**: at the best rate of each, by how many bits per byte does QK-norm help?

# %% slideshow={"slide_type": "slide", "title": "What it buys: a wider range of usable rates", "show": "picture", "text": "**Predict:** at the best rate of each, by how many bits per byte does QK-norm help? Three seeds, 256 steps, a bigram table as the yardstick."}
my_guess = None
results = load_results("rates")
rates, kinds = results["settings"]["rates"], {"no_qk_norm": "without", "modern": "with"}
at, bits, wide = STATE.index("range") + 1, {}, {}  # a probe is [step, *STATE]
for v, lr in product(kinds, rates):
    of = [r for r in results["runs"] if (r["variant"], r["lr"]) == (v, lr)]
    bits[v, lr] = torch.tensor([r["bits_per_byte"] or math.inf for r in of])
    wide[v, lr] = max(probe[at] or 0 for r in of for probe in r["probes"])
bigram = float(table_curves([256], "rates")[0][1])
best = {v: min(rates, key=lambda lr: bits[v, lr].mean()) for v in kinds}
predict(my_guess, round((bits["no_qk_norm", best["no_qk_norm"]].mean() - bits["modern", best["modern"]].mean()).item(), 2), "bits per byte")
fig, axes = plt.subplots(1, 2, figsize=(11, 4.4))
draw_rates(axes, rates, bits, wide, bigram)
plt.show()
usable = {v: [lr for lr in rates if bits[v, lr].mean() < bigram] for v in kinds}
for v, words in kinds.items():
    print(f"rates that beat the bigram table {words} QK-norm: {', '.join(f'{lr:g}' for lr in usable[v])}")
check_equal("a wider usable range with QK-norm", len(usable["modern"]) > len(usable["no_qk_norm"]), True)
check_equal("wider rows without, at every rate from 1e-3", [wide["no_qk_norm", r] > wide["modern", r] for r in rates[1:]], [True] * 5)

# %% [markdown] slideshow={"slide_type": "fragment", "show": "", "text": "All six rates beat the bigram table with it, three without. At the best rate of both: **not resolved**."}
# *In words: left, two valleys; the violet one stays low over more rates. Right, both rise with the rate, the grey one to hundreds of times the violet one.*
#
# - QK-norm buys a **wider range of usable rates**: with it all six rates beat the bigram table, without it three. At the best rate of both the difference is **not resolved** over three seeds.
# - Without it the rows' ranges grow with the rate, past any softmax.
# - At low rates the norm helps too. There its rows start with a range of 6.8, without it 0.4: the likely reason, untested.
# - No run diverged or spiked, as larger models are reported to: without the norm the loss **freezes** near the bigram table, attention collapsed to one key.
#
# Why do they grow? A step in $W_q$ moves the logits by the step times $|k|$. **Predict**: all $W_q$ and $W_k$ of a trained model times 16, then one step of the size that Adam takes. How many times as far do the logits move, without the norm and with it?

# %% slideshow={"slide_type": "subslide", "title": "Without the norm growth feeds itself; with it, it brakes", "text": "All $W_q$ and $W_k$ of a trained model times 16, then one step of the size that Adam takes. **Predict** how many times as far the logits move, without the norm and with it."}
my_guess = {"without": None, "with": None}
nearest = lambda ratio: 2.0 ** round(math.log2(ratio))  # a power of 2: what any machine agrees on
torch.set_grad_enabled(True)
rows = {words: kicked(v, factors=(1, 4, 16)) for v, words in kinds.items()}
_ = torch.set_grad_enabled(False)
far = {words: nearest(three[2]["moved"] / three[0]["moved"]) for words, three in rows.items()}
predict(my_guess, far)
for words, three in rows.items():
    moved, spread = ([nearest(r[key] / three[0][key]) for r in three] for key in ("moved", "range"))
    print(f"{words:<8} weights times 1, 4, 16: logits move {', '.join(f'{m:g}' for m in moved)} times as far; range {', '.join(f'{s:g}' for s in spread)} times as wide")
check_equal("without, growth feeds itself; with, it brakes", [far["without"] > 4, far["with"] < 0.25], [True, True])

# %% [markdown] slideshow={"slide_type": "notes"}
# Without the norm growth feeds itself. With it, the scores depend on the direction of $W_q$'s output alone, and a step turns a long matrix less than a short one: the effective rate falls by itself.
# The gradient of the matrices does not vanish in the saturated model; the loss just no longer falls along it. Henry et al. 2020 ([arXiv 2010.04245](https://arxiv.org/abs/2010.04245)) normalised queries and keys first, to keep the softmax from "arbitrary saturation".
#
# These are small runs. At 22 billion parameters, Dehghani et al. report that training diverged, with very large logits and almost no entropy, and that normalising $q$ and $k$ cured it (ViT-22B, [arXiv 2302.05442](https://arxiv.org/abs/2302.05442), section 2).
#
# ## 8 · Bugs that shipped
#
# **The gain left behind.** Converting a checkpoint between the two RoPE layouts permutes the rows of $W_q$ and $W_k$ ([chapter 04](04_rope_in_practice.ipynb)). The **gain** belongs to the same channels and must go with
# them ([vllm#55335](https://github.com/vllm-project/vllm/issues/55335), [ooples/AiDotNet#2074](https://github.com/ooples/AiDotNet/issues/2074)). Head of 8, gains from 0.5 to 2, one query at position 7, one key at position 3:

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: the gain left behind", "show": "printed", "text": "Converting between the two RoPE layouts permutes the rows of $W_q$ and $W_k$. The **gain** belongs to the same channels and must go with them. Head of 8, gains from 0.5 to 2, one query at position 7, one key at position 3:"}
g = torch.Generator().manual_seed(3)
pair = torch.randn(2, 1, 8, generator=g, dtype=torch.float64)  # q and k of one token each, half-split rows
gain = torch.linspace(0.5, 2, 8, dtype=torch.float64)


def score(q, k, gain, layout):
    turn = lambda y, at: apply_rope(rms_norm(y, gain), *rope_cache(1, 8, start=at), layout)[0]
    return (turn(q, 7) @ turn(k, 3)).item()


moved = [permute_heads(y.T, 1, to="adjacent").T for y in pair]
moved_gain = permute_heads(gain, 1, to="adjacent")
print("rows of the other layout:", permute_heads(torch.arange(8), 1, to="adjacent").tolist())
right, wrong = score(*moved, moved_gain, "adjacent"), score(*moved, gain, "adjacent")
before = score(*pair, gain, "half")
print(f"gain permuted too {right:.4f}, as before {before:.4f}; gain left behind {wrong:.4f}")
check_close("the same model", right, score(*pair, gain, "half"))
check_equal("another model", abs(wrong - right) > 0.1, True)

# %% [markdown] slideshow={"slide_type": "skip"}
# The other kind of norm at least stops loudly: an engine that applied OLMo 3's whole-width gain after the split raised a `ValueError` ([vllm-metal#691](https://github.com/vllm-project/vllm-metal/issues/691)).
#
# ## 9 · In practice
#
# Is it in the config? Mostly not: it follows from `model_type`, and `lib.read_config` knows which types have it.

# %% slideshow={"slide_type": "slide", "title": "In practice: mostly not in the config", "show": "printed"}
print(f"{'':<15}{'model_type':<13}{'in the file':<31}{'read as'}")
for name in ("qwen3-0.6b", "gemma-3-1b", "olmo-2-7b", "glm-4.5", "llama-3-8b", "smollm2-135m"):
    fields = load(name)
    said = [f"{key}: {fields[key]}" for key in ("use_qk_norm", "attn_logit_softcapping") if key in fields]
    read = lib.read_config(fields).layers[0].attention.qk_norm
    words = {True: "each head", "width": "whole width", False: "none"}[read]
    print(f"{name:<15}{fields['model_type']:<13}{', '.join(said) or '-':<31}{words}")
off = lib.read_config({**load("glm-4.5"), "use_qk_norm": False}).layers[0].attention.qk_norm
check_equal("the same model_type with use_qk_norm false", off, False)

# %% [markdown] slideshow={"slide_type": "notes"}
# - **Qwen3** and **Gemma 3** normalise each head, before RoPE; **OLMo 2** the whole width. None of the three files says so.
# - **GLM-4.5** says `use_qk_norm: true`, and its smaller sister GLM-4.5-Air says `false`, with the same `model_type`. Llama 4 and Command-R+ have a `use_qk_norm` too.
# - **Gemma 2** has `attn_logit_softcapping: 50` instead, and bends every logit to $50\tanh(s/50)$; Gemma 3 carries the field as `null`.
# - **DeepSeek-V3** and **Kimi K2** have MLA and neither. Absorbed decoding never makes the keys, so a norm on them costs: its divisor, one more cached number per head and token ([chapter 06](06_mla.ipynb)). The norms in their files are on latents.
#
# Kimi K2 shrinks weights instead (QK-Clip, [arXiv 2507.20534](https://arxiv.org/abs/2507.20534)): after a training step, each head whose largest logit $m$ passed a threshold $\tau$ is scaled so that it would have been $\tau$. An MLA logit is a sum,
# $(q^C_i \cdot k^C_i + q^R_i \cdot k^R)/\sqrt{d}$: $q^C_i, k^C_i, q^R_i$ belong to head $i$, the rotated key $k^R$ to all heads at once.
#
# **Exercise 1. QK-Clip.** Weights per head `w_qc` [h, dn, c], `w_kc` [h, dn, c2], `w_qr` [h, dr, c], and `w_kr` [dr, d]; `largest` [h]. Return the four after the clip: the loud heads at the threshold, every other head as it was, what q and k of a head share evenly halved between them.

# %% tags=["exercise"]
def my_clip(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    ...


# %% tags=["check"]
check("07.clip", my_clip)

# %% tags=["solution"] jupyter={"source_hidden": true}
def clip_solution(w_qc, w_kc, w_qr, w_kr, largest, threshold):
    shrink = (threshold / largest.clamp(min=threshold))[:, None, None]  # 1 where the head is quiet
    return w_qc * shrink.sqrt(), w_kc * shrink.sqrt(), w_qr * shrink, w_kr


check("07.clip", clip_solution)

# %% slideshow={"slide_type": "slide", "title": "QK-Clip: Kimi K2 shrinks weights instead", "show": "printed", "text": "MLA never makes the keys that a norm would divide. After a step, each head whose largest logit passed a threshold is scaled so that it would have been the threshold. The rotated key belongs to **all** heads: taking the root of everything moves the quiet ones too."}
clip = mine("07.clip")  # yours once it has passed; below, beside the shortcut that takes the root of everything, k^R too
draw = lambda *shape: torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)
x, w = draw(9, 24), [draw(4, 8, 24), draw(4, 8, 24), draw(4, 6, 24), draw(6, 24)]  # as if both latents were x
w[0][1] *= 9  # head 1 shouts


def top_logits(w_qc, w_kc, w_qr, w_kr):
    content = torch.einsum("thn,shn->hts", *(torch.einsum("tc,hnc->thn", x, m) for m in (w_qc, w_kc)))
    rotary = torch.einsum("thr,sr->hts", torch.einsum("tc,hrc->thr", x, w_qr), x @ w_kr.T)
    return ((content + rotary) / math.sqrt(14)).amax((1, 2))


largest = top_logits(*w)
threshold = largest.sort().values[2].item() * 1.1  # only head 1 is above it
root = (threshold / largest[1]).sqrt()
short = [torch.cat([m[:1], m[1:2] * root, m[2:]]) for m in w[:3]] + [w[3] * root]
for words, weights_now in (("before", w), ("clipped", clip(*w, largest, threshold)), ("all by the root", short)):
    print(f"{words:<16} largest logit per head, of the threshold:", *(f"{v:.2f}" for v in top_logits(*weights_now) / threshold))

# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# **2. Scores.** `q`, `k` [1, h, T, dh] fresh from the projection, gains [dh], tables of the T positions. Return the scaled scores [1, h, T, T] of a layer with QK-norm and RoPE (half-split; no
# mask, no softmax; eps 1e-6).

# %% tags=["exercise"]
def my_scores(q, k, g_q, g_k, cos, sin):
    ...


# %% tags=["check"]
check("07.scores", my_scores)

# %% tags=["solution"] jupyter={"source_hidden": true}
def scores_solution(q, k, g_q, g_k, cos, sin):
    q, k = apply_rope(rms_norm(q, g_q), cos, sin), apply_rope(rms_norm(k, g_k), cos, sin)
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


check("07.scores", scores_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **3. The bound.** Heads of 4, half-split (pairs of channels 0, 2 and 1, 3); $g_q = [0.5, 1.2, 2, 2.5]$, $g_k = [3, 2, 0.5, 1]$. What is the largest score possible with RoPE, at any positions?

# %% tags=["exercise"]
my_bound = None

# %% tags=["check"]
check("07.bound", my_bound)

# %% tags=["solution"] jupyter={"source_hidden": true}
def bound_solution():
    return math.sqrt(4) * max(2 * 3, 2.5 * 2)


check("07.bound", bound_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4. Which gains may move?** Three gains for a head of 4: $A = [0.5, 2, 0.5, 2]$, $B = [0.5, 0.5, 2, 2]$, $C = [0.5, 2, 2, 0.5]$. Where does norm after rotation give what norm before it gives?
# a. $A$ in the half-split layout, $B$ in the adjacent one. b. $B$ in the half-split layout, $A$ in the adjacent one. c. $A$ and $B$ in both. d. All three in both. e. Nowhere.

# %% tags=["exercise"]
my_places = None

# %% tags=["check"]
check("07.movable", my_places)

# %% tags=["solution"] jupyter={"source_hidden": true}
def movable_solution():
    return "a"


check("07.movable", movable_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Find the fault.** The queries of a Qwen3-style layer; the model runs, and its text is slightly off. `gain` is the `q_norm`'s. Mend it.

# %% tags=["exercise"]
def my_queries(x, w_q, gain, cos, sin):
    from lib import apply_rope, rms_norm

    q = (x @ w_q.T).unflatten(-1, (-1, gain.numel())).transpose(1, 2)
    q = apply_rope(q, cos, sin)
    return rms_norm(q, gain)


# %% tags=["check"]
check("07.project", my_queries)

# %% tags=["solution"] jupyter={"source_hidden": true}
def project_solution(x, w_q, gain, cos, sin):
    q = (x @ w_q.T).unflatten(-1, (-1, gain.numel())).transpose(1, 2)
    return apply_rope(rms_norm(q, gain), cos, sin)


check("07.project", project_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **6. OLMo 2's way.** `q` [B, T, h dh] straight from $W_q$, `gain` [h dh]. Normalise the whole width, then return the heads [B, h, T, dh].

# %% tags=["exercise"]
def my_width_norm(q, gain, n_heads):
    ...


# %% tags=["check"]
check("07.width", my_width_norm)

# %% tags=["solution"] jupyter={"source_hidden": true}
def width_solution(q, gain, n_heads):
    return rms_norm(q, gain).unflatten(-1, (n_heads, -1)).transpose(1, 2)


check("07.width", width_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Two vectors of gains, and a ceiling one can read off", "show": "", "text": "- without gains no score exceeds $\\sqrt{d_h}$: 11.31 for 128\n- norm and rotation commute only if a pair shares its gain\n- each head or the whole width: `model_type` decides\n- not a better loss at the best rate, but more rates that work\n- to take home: `07.clip`"}
# ## What you can do now
#
# You **explained** why logits of 1,000 stop a softmax from learning, and why they grow; **computed** the largest score, 11.31 for 128 without gains, and reached it; **said** when norm and rotation commute; **told** the two
# kinds apart; and **wrote** QK-Clip.
#
# **Sources.** The papers and reports linked above; the models' config.json; transformers' `modeling_llama4.py` and `modeling_cohere.py`.

# %% slideshow={"slide_type": "skip"}
progress("07")
