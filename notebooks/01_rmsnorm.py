# %% [markdown]
# # 01 · RMSNorm
#
# The norm of 2019 does two things to a vector. Today's does one of them. This chapter shows which, and in which number format it must be done.
#
# After it you will be able to
# - **write** RMSNorm, and say which step of LayerNorm it leaves out;
# - **explain** what the output and the gradient can never contain;
# - **predict** when a norm in fp16 silently returns zeros;
# - **tell apart** the conventions of real models: eps, the order of cast and gain, the 1 in front of the gain;
# - **say** what the place of the norm does to the residual stream.
#
# You need the GPT block of 2019 and a little linear algebra. About 40 minutes.

# %%
import math

import matplotlib.pyplot as plt
import torch
from safetensors import safe_open

import lib
from book import configs
from book.exercises import check, progress
from book.explore.ch01_rmsnorm import draw_dtypes, draw_spheres, scale_explorer
from book.figures import COLORS, style
from book.predict import check_close, check_equal, predict
from lib import RMSNorm, layer_norm, read_config, rms_norm

style()

# %% [markdown]
# ## 1 · One step fewer
#
# LayerNorm takes the vector of one token, subtracts its mean, divides by its standard deviation, then applies a learned gain and shift:
#
# $$\mathrm{LayerNorm}(x) = g \odot \frac{x - \bar x}{\sqrt{\mathrm{var}(x) + \epsilon}} + b, \qquad
# \mathrm{RMSNorm}(x) = g \odot \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} .$$
#
# RMSNorm (Zhang & Sennrich 2019, [arXiv 1910.07467](https://arxiv.org/abs/1910.07467), eq. 4) divides by the **root mean square** and does nothing else: no mean, no shift.
#
# Take $x = (1, 2, 3, 4)$, gain 1, eps 0. The squares are 1, 4, 9, 16. **Write down** the first entry of the output.

# %%
my_guess = None
x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
mean_square = x.pow(2).mean()
by_hand = x / mean_square.sqrt()
predict(my_guess, by_hand[0].item(), "= 1 / sqrt(7.5)")
print("RMSNorm  ", [round(v, 6) for v in by_hand.tolist()])
print("LayerNorm", [round(v, 6) for v in layer_norm(x, eps=0.0).tolist()])
check_close("lib.rms_norm", rms_norm(x, eps=0.0), [0.365148, 0.730297, 1.095445, 1.460593], 1e-6)

# %% [markdown]
# Both have root mean square 1. LayerNorm's entries also add up to 0; RMSNorm's keep their signs and their ratios.
#
# The whole component in four lines. The gain stands last, after a cast to the type that came in; why, section 3 shows. We compare with `lib` on random
# inputs with **random gains**: with gains of 1, a norm that forgets its gain would pass.

# %%
def my_rms_norm(x, weight, eps=1e-6):
    y = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean_square = y.pow(2).mean(-1, keepdim=True)
    y = y * torch.rsqrt(mean_square + eps)
    return y.to(x.dtype) * weight.to(x.dtype)


torch.manual_seed(0)
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    x, gain = torch.randn(3, 5, 7).to(dtype), torch.randn(7).to(dtype)
    norm = RMSNorm(7).to(dtype)
    _ = norm.load_state_dict({"weight": gain})
    out = norm(x).detach()
    check_close(f"{str(dtype)[6:]:<9} mine = lib", my_rms_norm(x, gain), out)
    assert out.dtype == dtype, "the output has the dtype of the input"

# %% [markdown]
# One vector of parameters fewer, one reduction fewer. In GPT-2 small that is 25 norms of width 768. The paper reports 7 to 64 % less running time for
# the models it tried, with comparable results; our own training comes in [chapter 09](09_full_block.ipynb).

# %%
gpt2 = read_config(configs.path("gpt2"))
n_norms = 2 * len(gpt2.layers) + 1
as_layer, as_rms = n_norms * 2 * gpt2.d, n_norms * gpt2.d
print(f"GPT-2 small: {n_norms} norms of {gpt2.d}")
print(f"{as_layer:,} parameters as LayerNorm, {as_rms:,} as RMSNorm")
check_equal("LayerNorm's share of the model", f"{as_layer / lib.parameters(gpt2).total:.3%}", "0.031%")

# %% [markdown]
# The parameters are not the point; they are 0.03 % of the model.
#
# ### A sphere
#
# Without its gain, RMSNorm puts every vector on the sphere of radius $\sqrt d$. LayerNorm first drops the part along $(1, 1, \ldots, 1)$, the dashed axis; what is
# left lies in the plane across it, so in three dimensions a ring remains of the sphere.

# %%
fig, axes = plt.subplots(1, 3, figsize=(11, 4.2), subplot_kw={"projection": "3d"})
lengths = draw_spheres(axes)
plt.show()
print(lengths)
check_close("sqrt(3)", 3**0.5, 1.732, 0.0005)

# %% [markdown]
# *In words: left, a cloud of points. Middle, the same points, all on the sphere. Right, all on one ring of it, across the dashed axis.*
#
# **Exercise 1.** $y = \mathrm{RMSNorm}(x)$. What is $\mathrm{RMSNorm}(1000\,x)$, eps aside?
#
# - **a** 1,000 times $y$
# - **b** $y$
# - **c** about 31.6 times $y$
# - **d** $y$ with its mean removed

# %% tags=["exercise"]
my_choice = None

# %% tags=["check"]
check("01.scale", my_choice)

# %% tags=["solution"] jupyter={"source_hidden": true}
def scale_solution():
    return "b"


check("01.scale", scale_solution)

# %% [markdown]
# The size of $x$ is gone after the norm. So **no loss behind a norm can ask for a longer or shorter $x$**: the gradient has no part along $x$. Each
# entry of the second check is $x \cdot \partial L / \partial x$ for one token. A shift is another matter: adding 10 to every entry changes RMSNorm's output,
# and not LayerNorm's.

# %%
torch.manual_seed(1)
x = torch.randn(6, 9, dtype=torch.float64, requires_grad=True)
gain, target = torch.randn(9, dtype=torch.float64), torch.randn(6, 9, dtype=torch.float64)
y = rms_norm(x, gain, eps=0.0)
check_close("norm(1000 x) = norm(x)", rms_norm(1000 * x, gain, eps=0.0), y)
(y - target).pow(2).sum().backward()
sizes = x.norm(dim=-1) * x.grad.norm(dim=-1)
check_close("x . gradient = 0, all six tokens", (x * x.grad).sum(-1), torch.zeros(6), scale=sizes.max())
check_equal("the gradient itself is not 0", bool((x.grad.norm(dim=-1) > 0.1).all()), True)
moved = [bool((norm(x + 10) - norm(x)).abs().max() > 0.1) for norm in (rms_norm, layer_norm)]
check_equal("a shift of 10 moves RMSNorm, LayerNorm", moved, [True, False])

# %% [markdown]
# ## 2 · The statistics must be fp32
#
# Models run in 16 bits. fp16 holds numbers up to 65,504, so a square may be too large although the number is small.
#
# **Exercise 2.** A norm squares **in fp16** and casts later. Its input is a row of four 300s. What comes out?

# %% tags=["exercise"]
my_output = None  # one entry of it

# %% tags=["check"]
check("01.overflow", my_output)

# %% tags=["solution"] jupyter={"source_hidden": true}
def overflow_solution():
    x = torch.full((4,), 300.0, dtype=torch.float16)
    return (x * torch.rsqrt(x.pow(2).mean() + 1e-6))[0].item()


check("01.overflow", overflow_solution)

# %% [markdown]
# $300^2 = 90{,}000$ is more than fp16 holds, so the mean square is $\infty$. And $300/\infty$ is an ordinary 0: no error, no NaN ([skyzh/tiny-llm#288](https://github.com/skyzh/tiny-llm/issues/288)).
#
# One large entry is enough, because it makes the mean infinite. Draw entries at scale 100: about one in a hundred is above 256 and overflows when squared.
# **Predict** the share of *rows* that come out as all zeros, at $d = 64$ and at $d = 1024$.

# %%
row = torch.full((4,), 300.0, dtype=torch.float16)
careless = row * torch.rsqrt(row.pow(2).mean() + 1e-6)
print("300 ** 2 in fp16:", row.pow(2)[0].item(), "  careless:", careless.tolist())
check_equal("careless: exactly 0", careless.tolist(), [0.0] * 4)
check_equal("upcast before squaring: exactly 1", rms_norm(row).tolist(), [1.0] * 4)
my_guess, zero = {64: None, 1024: None}, {}  # shares between 0 and 1
gen = torch.Generator().manual_seed(2)
for d in (64, 256, 1024):
    x = (100 * torch.randn(600, d, generator=gen)).half()
    out = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    zero[d] = (out == 0).all(-1).double().mean().item()
    squares = x.pow(2).isinf().double().mean().item()
    nan = bool(out.isnan().any())
    print(f"d = {d:>4}: {squares:.0%} of the squares overflow, {zero[d]:>4.0%} of the rows are 0, NaN: {nan}")
    assert abs(zero[d] - (1 - (1 - squares) ** d)) < 0.06
    assert rms_norm(x).float().pow(2).mean(-1).sub(1).abs().max() < 0.01, "lib is right on every row"
truth = {d: round(zero[d], 1) for d in my_guess}
predict(None if None in my_guess.values() else my_guess, truth, "of the rows")

# %% [markdown]
# At $d = 64$ half of the rows die, at 1,024 practically all.
#
# **bf16** cannot overflow here, its range is that of fp32. It has 8 bits of precision, so it loses digits instead. We round after every step, as a norm without
# upcast does, and compare with float64.

# %%
def bf16(x):
    return x.bfloat16().float()


gen = torch.Generator().manual_seed(3)
x = torch.randn(300, 1024, generator=gen).bfloat16()
exact = rms_norm(x.double(), eps=0.0)
square = bf16(bf16(x.float() ** 2).mean(-1, keepdim=True))
careless = bf16(x.float() / bf16(square.sqrt()))
errors = {}
for name, y in (("upcast, one rounding at the end", rms_norm(x, eps=0.0)), ("every step in bf16", careless)):
    errors[name] = ((y.double() - exact) / exact).abs().mean().item()
    print(f"{name:<32} mean relative error {errors[name]:.2%}")
one_end, every = errors.values()
check_close("in per cent", [100 * one_end, 100 * every], [0.14, 0.22], 0.05)

# %% [markdown]
# Half as much again, and of a worse kind: the rounding error of the divisor is **shared by the whole row**, so the vector comes out too long or too short.
# So `lib` takes the statistics in fp32, whatever the model's dtype, and rounds once at the end.
#
# ### Move the sliders
#
# The curve is the output's RMS against the input's. Three things to try: fp16, then the input past 100; the input down to 0.001, then eps; the mean up to 2,
# and watch the output's mean. Under the explorer, its curves for the three number formats side by side.

# %%
scale_explorer

# %%
stops = {"as it opens": {}, "small": {"scale": 1e-3, "eps": 1e-5}, "shifted": {"shift": 2.0}}
stops["fp16 at 251"] = {"scale": 251.0, "dtype": "fp16"}
for name, at in stops.items():
    t = scale_explorer.table(**at)
    print(f"{name:<12} output RMS {t['rms']:.4f} (LayerNorm {t['layer']:.4f}), mean {t['mean'] + 1e-9:.2f}")
check_equal("fp16 at 251: exactly zero", scale_explorer.table(**stops["fp16 at 251"])["rms"], 0.0)
fig, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True)
rows = draw_dtypes(axes)
plt.show()
print(rows)

# %% [markdown]
# *In words: in all three panels the curve climbs from 0 to 1 where the input is small, later for the larger eps. Then it stays at 1; only in the fp16 panel it
# falls to 0, before it reaches 100.*
#
# ## 3 · Four conventions
#
# **One: eps.** It stands **inside** the root, beside the mean square, and keeps a zero vector from dividing by zero. Its size matters where the mean square is
# as small as itself.
#
# **Exercise 3.** Eight copies of 0.001, gain 1. What comes out with eps 1e-6, and with eps 1e-5?

# %% tags=["exercise"]
my_outputs = {"1e-6": None, "1e-5": None}

# %% tags=["check"]
check("01.eps", my_outputs)

# %% tags=["solution"] jupyter={"source_hidden": true}
def eps_solution():
    return {"1e-6": 1e-3 / (1e-6 + 1e-6) ** 0.5, "1e-5": 1e-3 / (1e-6 + 1e-5) ** 0.5}


check("01.eps", eps_solution)

# %% [markdown]
# Which eps, the config says, under a different name in each family. PyTorch's own `rms_norm` has a third default: without an eps it takes the machine
# epsilon of the dtype it computes in. A port that leaves eps to the framework runs a slightly other model ([pytorch#155527](https://github.com/pytorch/pytorch/issues/155527)).

# %%
small = torch.full((8,), 1e-3)
outs = [rms_norm(small, eps=1e-6), rms_norm(small, eps=1e-5), torch.nn.functional.rms_norm(small, (8,))]
for name, out in zip(("eps 1e-6", "eps 1e-5", "eps left to PyTorch"), outs):
    print(f"{name:<20} {out[0].item():.6f}")
check_close("all three", [out[0].item() for out in outs], [0.707107, 0.301511, 0.945245], 1e-6)
for name in ("llama-2-7b", "qwen3-0.6b", "gpt2", "glm-4-9b-chat"):
    field, eps = next((key, value) for key, value in configs.load(name).items() if "_eps" in key)
    print(f"{name:<14} {field:<19} {eps:.3g}")

# %% [markdown]
# **Two: cast, then gain, or gain, then cast.** Llama rounds the normalised vector to 16 bits and multiplies by the gain there. Gemma, OLMo 2 and
# gpt-oss multiply in fp32 and round once, at the end, as a LayerNorm does. In exact arithmetic it is the same; in bf16 the last bit differs.

# %%
x = torch.tensor([-1.375, 1.25, 0.625, 1.75], dtype=torch.bfloat16)
gain = torch.tensor([1.25, 1.40625, 1.953125, 1.59375], dtype=torch.bfloat16)
llama, gemma = rms_norm(x, gain), rms_norm(x, gain - 1, unit_offset=True, gain_last=True)
print("Llama's order", llama.tolist())
print("Gemma's order", gemma.tolist())
check_equal("Llama", llama, torch.tensor([-1.3125, 1.34375, 0.9296875, 2.109375]))
check_equal("Gemma", gemma, torch.tensor([-1.3046875, 1.3359375, 0.9296875, 2.125]))

# %% [markdown]
# Three of four entries differ. The wrong order does not break a model; it makes a port that should agree bit for bit agree only roughly
# ([transformers#29402](https://github.com/huggingface/transformers/issues/29402) for Gemma; [transformers#38131](https://github.com/huggingface/transformers/issues/38131) for OLMo 2, which had run in Llama's order).
#
# **Three: 1 + w.** Gemma's files store the gain **minus 1**, so a fresh model starts from zeros. **Four: no gain at all.** nanochat's `norm` calls
# `F.rms_norm` without a weight. Neither stands in a config.json: the first follows from `model_type`, the second from the code. `lib` keeps a table of the
# families it reads:

# %%
print(f"{'model':<14} {'kind':<6} {'eps':>7}  {'1 + w':<6} {'gain last':<10} {'shift':<6} place")
older = ("gpt2", "falcon-7b", "command-r-v01")
newer = ("llama-3-8b", "qwen3-0.6b", "olmo-2-7b", "gpt-oss-20b", "gemma-3-1b")
for name in older + newer:
    cfg = read_config(configs.path(name))
    n = cfg.norm
    last = n.gain_last or n.kind == "layer"
    flags = f"{n.unit_offset!s:<6} {last!s:<10} {n.bias!s:<6}"
    print(f"{name:<14} {n.kind:<6} {n.eps:>7.0e}  {flags} {cfg.layers[0].norms}")
check_equal("Gemma, the last one: 1 + w and gain last", [n.unit_offset, n.gain_last], [True, True])

# %% [markdown]
# Not everyone left LayerNorm: Falcon and Command-R keep it, Command-R without the shift. In their layers attention and feed-forward stand in `parallel`: both read one
# norm of $x$, and both are added to $x$. `sandwich` is a norm before each of the two and another behind it.
#
# ## 4 · Where the norm stands
#
# The last column: the Transformer of 2017 normalised the sum, **post-norm**: $x \leftarrow \mathrm{norm}(x + f(x))$. GPT-2 and every Llama normalise what goes
# into a sub-layer and leave the stream alone, **pre-norm**: $x \leftarrow x + f(\mathrm{norm}(x))$. (OLMo 2's `post` is a third way: it normalises $f$'s output before
# the addition.)
#
# We put random matrices in place of the sub-layers, so that each adds something of RMS 1, in a random direction: mean squares add up. The stream starts at RMS 1.
# **Predict** its RMS after 64 of them, in pre-norm.

# %%
my_guess = None
gen = torch.Generator().manual_seed(4)
d = 512
pre = rms_norm(torch.randn(8, d, generator=gen), eps=0.0)
post, left = pre, torch.ones(8, 1)  # left: the factor that still stands before the token's own embedding
seen = {}
for depth in range(1, 65):
    W = torch.randn(d, d, generator=gen) / d**0.5
    pre = pre + rms_norm(pre, eps=0.0) @ W
    total = post + post @ W
    left = left / total.pow(2).mean(-1, keepdim=True).sqrt()
    post = rms_norm(total, eps=0.0)
    seen[depth] = [t.pow(2).mean().sqrt().item() for t in (pre, post)] + [left.mean().item()]
predict(my_guess, round(seen[64][0]), "(the root of 65 is 8.06)")
print("sub-layers   pre-norm RMS   post-norm RMS   factor before the embedding, post-norm")
for depth in (1, 4, 16, 64):
    a, b, factor = seen[depth]
    print(f"{depth:>10} {a:>14.1f} {b:>15.1f} {f'2^{math.log2(factor):.1f}':>15}")

# %%
depths = torch.arange(1, 65)
growth = torch.tensor([seen[int(t)][0] for t in depths])
off = (growth / (1 + depths).sqrt() - 1).abs().max()
check_equal("pre-norm: sqrt(1 + depth), within 5 %", bool(off < 0.05), True)
fig, ax = plt.subplots(figsize=(9, 4.2))
_ = ax.plot(depths, growth, color=COLORS["new"], label="pre-norm")
_ = ax.plot(depths, (1 + depths).sqrt(), color=COLORS["faint"], ls="--", label="square root of 1 + depth")
_ = ax.plot(depths, [seen[int(t)][1] for t in depths], color=COLORS["old"], label="post-norm")
_ = ax.set(xlabel="sub-layers passed", ylabel="RMS of the stream", ylim=(0, 9))
_ = ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# *In words: the pre-norm stream grows like the square root of the depth, from 1.4 to 8; the post-norm stream stays at 1.*
#
# In pre-norm nothing ever shrinks what was written: the token's own embedding stays in the sum with factor 1, and so does its gradient path. The price is that
# later layers add a smaller **share** of a larger stream. In post-norm each step divides everything before it by about $\sqrt 2$; after 64 steps the
# embedding itself is gone (last column). And because the pre-norm stream has no fixed size, one more norm stands before the head.
#
# ## 5 · SmolLM2's own norms
#
# 30 layers, two norms in each, and one at the end. We read only these vectors and five rows of the embedding. **Predict**: is a trained gain near 1?

# %%
folder = lib.find_model()
my_guess = None  # the mean |gain| of layer 0's first norm
words = [" the", " Paris", " seven", " because", " London"]
tokenizer = lib.load_tokenizer(folder)
ids = [tokenizer.encode(word, add_special_tokens=False).ids[0] for word in words]
with safe_open(folder / "model.safetensors", "pt") as file:
    read = lambda name: file.get_tensor(f"model.{name}.weight")
    attn = [read(f"layers.{i}.input_layernorm") for i in range(30)]
    ffn = [read(f"layers.{i}.post_attention_layernorm") for i in range(30)]
    last = read("norm")
    table = file.get_slice("model.embed_tokens.weight")
    rows = torch.cat([table[i : i + 1] for i in ids])
sizes = [g.abs().mean().item() for g in attn]
predict(my_guess, round(sizes[0], 3))
for i in (0, 1, 10, 20, 29):
    print(f"layer {i:>2}: mean |gain| {sizes[i]:.3f}, from {attn[i].min():6.3f} to {attn[i].max():.3f}")
print(f"before the head: mean {last.mean():.2f}, from {last.min():.2f} to {last.max():.2f}")

# %%
fig, ax = plt.subplots(figsize=(9, 4.2))
_ = ax.plot(sizes, "o-", color=COLORS["new"], label="before attention")
_ = ax.plot([g.abs().mean().item() for g in ffn], "s--", color=COLORS["weights"], label="before the FFN")
_ = ax.set(xlabel="layer", ylabel="mean |gain|", ylim=(0, 0.5))
_ = ax.legend(loc="lower right")
plt.show()
early, late = sum(sizes[:10]) / 10, sum(sizes[20:]) / 10
print(f"mean |gain| before attention: layers 0-9 {early:.2f}, layers 20-29 {late:.2f}")
check_equal("no layer's gains are near 1", max(sizes) < 0.5, True)
check_equal("they grow with depth", late > 1.5 * early, True)

# %% [markdown]
# *In words: both curves lie below one half; the one before attention climbs from 0.03 in layer 0 to 0.41 in the last.*
#
# The gains are learned scales, not decoration. What happens in layer 0 without them, and what do the mean and eps matter for real embeddings?

# %%
gain = attn[0]
right = rms_norm(rows, gain, eps=1e-5)
size = lambda t: t.pow(2).mean().sqrt().item()
gap = lambda t: ((t - right).norm() / right.norm()).item()
print(f"embedding rows: RMS {size(rows):.2f}; after the norm {size(right):.3f}")
print(f"without the gain {size(rms_norm(rows, eps=1e-5)):.1f}")
print(f"mean subtracted first: {gap(layer_norm(rows, gain, eps=1e-5)):.1%} off")
print(f"eps 1e-6 instead of 1e-5: {gap(rms_norm(rows, gain, eps=1e-6)):.2%} off")
check_close("four lines = lib, on SmolLM2's own gain", my_rms_norm(rows, gain, 1e-5), right)
check_equal("eps in its config", configs.load("smollm2-135m")["rms_norm_eps"], 1e-5)
check_equal("without its gain, more than 20 times too large", size(rms_norm(rows)) / size(right) > 20, True)

# %% [markdown]
# On these five words the mean is small beside the RMS: to leave it in, as RMSNorm does, moves the output by a few per cent. eps hardly counts. A forgotten gain
# would feed the first attention an input twenty times too large.
#
# ## 6 · Bugs that shipped
#
# **The wrong divisor.** Course code divided by the standard deviation, and a book's formula took the root twice ([stanford-cs336/assignment1-basics#93](https://github.com/stanford-cs336/assignment1-basics/issues/93),
# [rasbt/LLMs-from-scratch#369](https://github.com/rasbt/LLMs-from-scratch/issues/369)). On $x = (1, 2, 3, 4)$:

# %%
x = torch.tensor([1.0, 2.0, 3.0, 4.0])
right = rms_norm(x, eps=0.0)
deviation = x / x.std()
double_root = x / x.pow(2).mean().sqrt().sqrt()
for name, out in (("right", right), ("standard deviation", deviation), ("root of the root", double_root)):
    print(f"{name:<19}", [round(v, 6) for v in out.tolist()])
check_close("as reported", deviation, [0.774597, 1.549193, 2.32379, 3.098387], 1e-5)
check_close("as reported", double_root, [0.604275, 1.20855, 1.812825, 2.4171], 1e-5)

# %% [markdown]
# **The 1 added twice.** One file format stores Gemma's gains with the 1 already in them; a reader added it again ([utensils/mold#1078](https://github.com/utensils/mold/issues/1078)). For a stored weight of
# 8.6856:

# %%
stored = 8.6856
x = torch.tensor([1.0])
right = rms_norm(x, torch.tensor([stored]), eps=0.0, unit_offset=True, gain_last=True).item()
twice = rms_norm(x, torch.tensor([stored + 1]), eps=0.0, unit_offset=True, gain_last=True).item()
print(f"right {right:.4f}   added twice {twice:.4f}   {twice / right - 1:.1%} too large at every norm")
check_close("both", [right, twice], [9.6856, 10.6856], 1e-5)

# %% [markdown]
# ## Exercises
#
# Three stood along the way. Two more:
#
# **4. Write RMSNorm.** Any float dtype, output in the dtype of `x`. Llama's order: cast back, then the gain. (The checker lets the other order pass: it differs in the
# last bit.)

# %% tags=["exercise"]
def my_norm(x, weight, eps):
    ...

# %% tags=["check"]
check("01.rms_norm", my_norm)

# %% tags=["solution"] jupyter={"source_hidden": true}
def rms_norm_solution(x, weight, eps):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight


check("01.rms_norm", rms_norm_solution)

# %% [markdown]
# **5. Find the fault.** This norm casts to fp32 and still returns zeros for the four 300s. Mend it.

# %% tags=["exercise"]
def my_mended(x, weight, eps):
    mean_square = x.pow(2).mean(-1, keepdim=True).float()
    y = x.float() * (mean_square + eps).rsqrt()
    return y.to(x.dtype) * weight

# %% tags=["check"]
check("01.fault", my_mended)

# %% tags=["solution"] jupyter={"source_hidden": true}
def fault_solution(x, weight, eps):
    mean_square = x.float().pow(2).mean(-1, keepdim=True)
    y = x.float() * (mean_square + eps).rsqrt()
    return y.to(x.dtype) * weight


check("01.fault", fault_solution)

# %% [markdown]
# ## What you can do now
#
# You **wrote** RMSNorm and left out one step, the mean; **explained** that its output keeps no size and its gradient no part along $x$; **predicted** zeros
# where fp16 overflows; **told apart** four conventions; **saw** what pre-norm and post-norm do to the stream. Proved equal: four lines = `lib` with random gains in four
# number formats, and on SmolLM2's first norm.
#
# **In practice.** Read `rms_norm_eps` (1e-5 for Llama 2 and 3, 1e-6 for Llama 1, Qwen3 and Gemma), never leave it to a default. Square in fp32. In a Gemma file, know
# whether the 1 is in. `post_attention_layernorm` in a Llama checkpoint is the **pre**-norm of the feed-forward layer.
#
# **Sources.** Zhang & Sennrich 2019 ([arXiv 1910.07467](https://arxiv.org/abs/1910.07467)). Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762)), section 3.1: post-norm. Ba et al. 2016, LayerNorm ([arXiv 1607.06450](https://arxiv.org/abs/1607.06450)). Touvron et al. 2023, LLaMA ([arXiv 2302.13971](https://arxiv.org/abs/2302.13971)), section 2.2. The
# config.json files named above; karpathy/nanochat, `nanochat/gpt.py`; the issues named above.

# %%
progress("01")
