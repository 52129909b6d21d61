# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "The norm of 2019 does two things to a vector. Today's does one of them. After this chapter you can"}
# # 01 · RMSNorm
#
# The norm of 2019 does two things to a vector. Today's does one of them. This chapter shows which, and in which number format it may be done.
#
# After it you will be able to
# - **write** RMSNorm and its gradient;
# - **say** what a number format does to a norm, and to its model;
# - **tell apart** the conventions of real models;
# - **prove** when the mean, and when the gain, can be left out without changing one logit.
#
# You need the GPT block of 2019 and a little linear algebra. About 40 minutes.

# %% slideshow={"slide_type": "skip"}
import math

import matplotlib.pyplot as plt
import torch

import lib
from book import configs, evidence
from book.exercises import check, mine, progress
from book.explore.ch01_rmsnorm import draw_spheres, scale_explorer
from book.figures import COLORS, style
from book.predict import check_close, check_equal, predict
from lib import RMSNorm, layer_norm, read_config, rms_norm

style()

# %% [markdown] slideshow={"slide_type": "slide", "title": "One step fewer: no mean, no shift", "show": "formula", "text": "RMSNorm divides by the **root mean square** and does nothing else.\n\n$x = (1, 2, 3, 4)$, gain 1, eps 0. **Write down** the first entry of each output."}
# ## 1 · One step fewer
#
# LayerNorm takes the vector of one token, subtracts its mean, divides by its standard deviation, then applies a learned gain and shift:
#
# $$\mathrm{LayerNorm}(x) = g \odot \frac{x - \bar x}{\sqrt{\mathrm{var}(x) + \epsilon}} + s, \qquad
# \mathrm{RMSNorm}(x) = g \odot \frac{x}{\sqrt{\mathrm{mean}(x^2) + \epsilon}} .$$
#
# RMSNorm (Zhang & Sennrich 2019, [arXiv 1910.07467](https://arxiv.org/abs/1910.07467), eq. 4) divides by the **root mean square** and does nothing else: no mean, no shift.
#
# Take $x = (1, 2, 3, 4)$, gain 1, eps 0. **Write down** the first entry of each output.

# %% slideshow={"slide_type": "-"}
my_guess = {"RMSNorm": None, "LayerNorm": None}
x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
outputs = {"RMSNorm": x / x.pow(2).mean().sqrt(), "LayerNorm": layer_norm(x, eps=0.0)}
for name, out in outputs.items():
    predict(my_guess[name], round(out[0].item(), 3), f"({name})")

# %% slideshow={"slide_type": "-"}
for name, out in outputs.items():
    print(f"{name:<10}", [round(v, 6) for v in out.tolist()])
check_close("lib.rms_norm", rms_norm(torch.arange(1.0, 5.0), eps=0.0), [0.365148, 0.730297, 1.095445, 1.460593], 1e-6)

# %% [markdown] slideshow={"slide_type": "notes"}
# Both have root mean square 1. LayerNorm's entries also add up to 0; RMSNorm's keep their signs and ratios.
#
# **Exercise 1. Write RMSNorm.** Any float dtype, statistics in fp32, output in the dtype of `x`. Cast back first, then multiply by the gain, as Llama does. The chapter
# goes on with your function as soon as it passes, and with `lib`'s until then.

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

# %% slideshow={"slide_type": "skip"}
norm = mine("01.rms_norm")  # gains are random below: with gains of 1 a norm that forgets its gain would pass
torch.manual_seed(0)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    x, gain = torch.randn(3, 5, 7).to(dtype), torch.randn(7).to(dtype)
    module = RMSNorm(7).to(dtype)
    _ = module.load_state_dict({"weight": gain})
    check_close(f"{str(dtype)[6:]:<9} yours = lib", norm(x, gain, 1e-6), module(x).detach())
    assert norm(x, gain, 1e-6).dtype == dtype

# %% [markdown] slideshow={"slide_type": "skip"}
# **Is it faster?** The paper reports 7 to 64 % less running time, for norms whose steps ran one by one. Fused into one kernel, both norms read $x$ once and write $y$ once, and the memory sets the time
# ([chapter 11](11_kernels.ipynb) counts those bytes).
#
# ### A sphere
#
# Without its gain, RMSNorm puts every vector on the sphere of radius $\sqrt d$. LayerNorm first drops the part along $(1, 1, \ldots, 1)$, the dashed axis; what is
# left lies in the plane across it, so in three dimensions a ring of the sphere remains.

# %% slideshow={"slide_type": "slide", "title": "A sphere; with the mean taken away, a ring"}
fig, axes = plt.subplots(1, 3, figsize=(11, 4.2), subplot_kw={"projection": "3d"})
print(draw_spheres(axes))
plt.show()

# %% [markdown] slideshow={"slide_type": "slide", "title": "The size of x is gone, and so is its gradient's along x", "show": "", "text": "RMSNorm(1,000 $x$) = RMSNorm($x$), eps aside.\n\n- no loss behind a norm can ask for a longer or a shorter $x$: $x \\cdot \\partial L / \\partial x = 0$\n- the longer $x$ is, the smaller its gradient: exercise `01.scale` asks by how much\n- `01.backward`: write the gradient; $x_j$ is in the divisor of every $y_i$"}
# *In words: left, a cloud of points; middle, the same points on the sphere; right, all on one ring, across the dashed axis.*
#
# So the size of $x$ is gone: RMSNorm(1,000 $x$) = RMSNorm($x$), eps aside.
#
# **Exercise 2.** A loss $L$ is computed from $y = \mathrm{RMSNorm}(x)$. Replace $x$ by 1,000 $x$. What becomes of the gradient $\partial L / \partial x$?
#
# - **a** it stays the same, as $y$ does
# - **b** a thousandth of it is left
# - **c** it is 1,000 times as large
# - **d** it is 0

# %% tags=["exercise"]
my_choice = None

# %% tags=["check"]
check("01.scale", my_choice)

# %% tags=["solution"] jupyter={"source_hidden": true}
def scale_solution():
    return "b"


check("01.scale", scale_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **Exercise 3. Write the gradient.** `upstream` is $\partial L / \partial y$. Return $\partial L / \partial x$ in float64. ($x_j$ is in the divisor of every $y_i$.)

# %% tags=["exercise"]
def my_backward(x, weight, eps, upstream):
    ...

# %% tags=["check"]
check("01.backward", my_backward)

# %% tags=["solution"] jupyter={"source_hidden": true}
def backward_solution(x, weight, eps, upstream):
    r = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    into = upstream * weight
    return r * into - r**3 * x * (into * x).mean(-1, keepdim=True)


check("01.backward", backward_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# PyTorch's `gradcheck` compares such a formula with finite differences.

# %% slideshow={"slide_type": "subslide", "title": "gradcheck compares the formula with finite differences"}
backward = mine("01.backward")
torch.manual_seed(1)
x, gain, upstream = (torch.randn(*shape, dtype=torch.float64) for shape in ((6, 9), (9,), (6, 9)))
check_equal("gradcheck", evidence.gradcheck_norm(backward, x, gain), True)
slope = backward(x, gain, 0.0, upstream)
size = (x.norm(dim=-1) * slope.norm(dim=-1)).max()
check_close("x . gradient = 0, six tokens", (x * slope).sum(-1), torch.zeros(6), scale=size)
check_close("1,000 x: gradient", backward(1000 * x, gain, 0.0, upstream), slope / 1000)

# %% [markdown] slideshow={"slide_type": "slide", "title": "In which number format? Four copies of 300 in fp16", "show": "", "ask": "Q1", "text": "Models run in 16 bits. fp16 holds numbers up to 65,504, so a square may be too large although the number is small.\n\nA norm squares **in fp16** and casts later. Its input is a row of four 300s. **What comes out?**"}
# **No loss behind a norm can ask for a longer or a shorter $x$**, and the longer $x$ is, the smaller its gradient.
#
# ## 2 · In which number format?
#
# Models run in 16 bits. fp16 holds numbers up to 65,504, so a square may be too large although the number is small.
#
# **Exercise 4.** A norm squares **in fp16** and casts later. Its input is a row of four 300s. What comes out?

# %% tags=["exercise"]
my_output = None  # one entry of it

# %% tags=["check"]
check("01.overflow", my_output)

# %% tags=["solution"] jupyter={"source_hidden": true}
def overflow_solution():
    x = torch.full((4,), 300.0, dtype=torch.float16)
    return (x * torch.rsqrt(x.pow(2).mean() + 1e-6))[0].item()


check("01.overflow", overflow_solution)

# %% [markdown] slideshow={"slide_type": "fragment", "show": "", "text": "$300^2 = 90{,}000$ is $\\infty$ in fp16, and $300 / \\infty$ is an ordinary **0**: no error, no NaN. One entry above 256 is enough for a whole row."}
# $300^2 = 90{,}000$ is more than fp16 holds: the mean square is $\infty$, and no error, no NaN tells of it
# ([skyzh/tiny-llm#288](https://github.com/skyzh/tiny-llm/issues/288)). One entry above 256 is enough for a whole row.
#
# Now SmolLM2 itself, with such a careless norm in all 61 places; everything else stays in fp32. **Predict** how many of the 30 tokens of a sentence become zeros
# at the first norm, the 31st and the last, and the loss in nats per token (4.03 with the right norm; 49,152 tokens in the vocabulary).

# %% slideshow={"slide_type": "subslide", "title": "SmolLM2 with a careless norm in all 61 places", "text": "**Predict** how many of the 30 tokens of a sentence become zeros at the first norm, the 31st and the last, and the loss in nats per token (4.03 with the right norm; 49,152 tokens in the vocabulary)."}
folder = lib.find_model()
model, tokenizer = lib.load_model(folder, torch.float32), lib.load_tokenizer(folder)
text = "The old lighthouse keeper climbed the stairs every evening. When the light was burning,"
text += " he wrote one line in his book about the ships that had passed."
idx = torch.tensor([tokenizer.encode(text).ids])
logits, stream = evidence.run_norms(model, idx, norm)
check_close("your norm in all 61 places", logits, model(idx)[0].detach())

my_guess = {"norm 1": None, "norm 31": None, "norm 61": None, "loss": None}
broken, given = evidence.run_norms(model, idx, evidence.careless(torch.float16))
half, _ = evidence.run_norms(model, idx, evidence.careless(torch.bfloat16))
runs = {"fp32": logits, "careless fp16": broken, "careless bf16": half}
loss = {name: evidence.next_token_loss(out, idx) for name, out in runs.items()}
dead = (given.abs().amax(-1) > 256).sum(-1).tolist()  # the square of such an entry overflows
truth = dict(zip(my_guess, (dead[0], dead[30], dead[60], round(loss["careless fp16"], 2))))
for name in my_guess:
    predict(my_guess[name], truth[name], f"({name})")

# %% slideshow={"slide_type": "subslide", "title": "Careless fp16 makes every token as likely; bf16 hardly moves", "show": "printed", "text": "Loss in nats per token, and where it starts: the largest entries of the stream."}
print("  ".join(f"{name} {value:.{1 if 'bf16' in name else 2}f}" for name, value in loss.items()))
check_close("fp16: every token as likely, ln 49,152", loss["careless fp16"], math.log(49152), 1e-6)
check_equal("bf16: moves by less than 0.01", abs(loss["careless bf16"] - loss["fp32"]) < 0.01, True)
row = torch.full((4,), 300.0, dtype=torch.float16)
check_equal("four 300s, careless", evidence.careless(torch.float16)(row, torch.ones(4), 1e-6).tolist(), [0.0] * 4)
check_equal("four 300s, upcast first", norm(row, torch.ones(4).half(), 1e-6).tolist(), [1.0] * 4)
first, others = stream[:, 0].abs().amax(-1), stream[:, 1:].abs().amax((1, 2))
print(f"largest entry: first token {first.max():,.0f}, any other {others.max():.0f}")

# %% [markdown] slideshow={"slide_type": "notes"}
# The model is exactly uniform, and nothing complained. The first token dies early: some of its entries are in the thousands, a **massive activation** (Sun et al. 2024, [arXiv 2402.17762](https://arxiv.org/abs/2402.17762)).
# It comes with the **attention sink** (Xiao et al. 2023, [arXiv 2309.17453](https://arxiv.org/abs/2309.17453)): many heads park their weight on that token ([chapter 07](07_qk_norm.ipynb)). The others follow because the stream grows with depth (section 5).
#
# **bf16** has the range of fp32 and 8 bits of precision. Its careless norm makes a row a little too long or too short, and here the loss hardly moves. So fp32 statistics
# are a must in fp16 and a precaution in bf16. They are free: a kernel widens $x$ after reading it.
#
# ### Move the sliders
#
# Try: the input past 100 in fp16, then in bf16; mean 0, the input down to 0.001, then eps; the mean from 0 to 2, and watch the output's mean.

# %% slideshow={"slide_type": "slide", "title": "Which norm moves when the mean does? And past 100 in fp16?", "ask": "Q2"}
scale_explorer

# %% slideshow={"slide_type": "subslide", "title": "Three places to stop at", "show": "code printed"}
stops = {"small": {"scale": 1e-3, "eps": 1e-5, "dtype": "fp32", "shift": 0.0}}
stops["fp16 at 251"], stops["bf16 at 251"] = ({"scale": 251.0, "dtype": d} for d in ("fp16", "bf16"))
for name, at in stops.items():
    t = scale_explorer.table(**at)
    print(f"{name:<12} output RMS {t['rms']:.2f} (LayerNorm {t['layer']:.2f}), mean {t['mean'] + 1e-9:.2f}")
check_equal("fp16 at 251: exactly zero", scale_explorer.table(**stops["fp16 at 251"])["rms"], 0.0)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 3 · Four conventions
#
# **One: eps.** It is added **inside** the root, to the mean square, and keeps a zero vector from dividing by zero.
#
# **Exercise 5.** Eight copies of 0.001, gain 1. What comes out with eps 1e-6, and with eps 1e-5?

# %% tags=["exercise"]
my_outputs = {"1e-6": None, "1e-5": None}

# %% tags=["check"]
check("01.eps", my_outputs)

# %% tags=["solution"] jupyter={"source_hidden": true}
def eps_solution():
    return {"1e-6": 1e-3 / (1e-6 + 1e-6) ** 0.5, "1e-5": 1e-3 / (1e-6 + 1e-5) ** 0.5}


check("01.eps", eps_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# The config says which eps, under a different name in each family. PyTorch's own `rms_norm`, left alone, takes the machine epsilon of the dtype it computes in, so
# a port that leaves eps to the framework runs a slightly different model ([pytorch#155527](https://github.com/pytorch/pytorch/issues/155527)).

# %% slideshow={"slide_type": "slide", "title": "Convention one: eps stands inside the root, and the config says which", "show": "printed", "text": "Eight copies of 0.001. PyTorch's own `rms_norm`, left alone, takes the machine epsilon: a port that leaves eps to the framework runs a slightly different model."}
small = torch.full((8,), 1e-3)
outs = [rms_norm(small, eps=1e-6), rms_norm(small, eps=1e-5), torch.nn.functional.rms_norm(small, (8,))]
for name, out in zip(("eps 1e-6", "eps 1e-5", "eps left to PyTorch"), outs):
    print(f"{name:<20} {out[0].item():.6f}")
check_close("all three", [out[0].item() for out in outs], [0.707107, 0.301511, 0.945245], 1e-6)
for name in ("llama-2-7b", "qwen3-0.6b", "gpt2", "glm-4-9b-chat"):
    field, eps = next((key, value) for key, value in configs.load(name).items() if "_eps" in key)
    print(f"{name:<14} {field:<19} {eps:.3g}")

# %% [markdown] slideshow={"slide_type": "skip"}
# **Two: cast, then gain, or gain, then cast.** Llama rounds the normalised vector to 16 bits and multiplies by the gain in 16 bits. Gemma, OLMo 2 and
# gpt-oss multiply in fp32 and round once, at the end (`gain_last` in `lib`), as a LayerNorm does. In exact arithmetic it is the same; in bf16 a quarter of the entries differ in their last bit.

# %% slideshow={"slide_type": "slide", "title": "Convention two: cast then gain, or gain then cast", "show": "printed", "text": "Llama rounds the normalised vector and multiplies in 16 bits; Gemma, OLMo 2 and gpt-oss multiply in fp32 and round once. In bf16 a quarter of the entries differ in their last bit."}
x = torch.tensor([-1.375, 1.25, 0.625, 1.75], dtype=torch.bfloat16)
gain = torch.tensor([1.25, 1.40625, 1.953125, 1.59375], dtype=torch.bfloat16)
gemma = lambda x, gain: rms_norm(x, gain - 1, unit_offset=True, gain_last=True)  # stored as gain - 1
orders = {"cast, gain (Llama)": rms_norm(x, gain), "gain, cast (Gemma)": gemma(x, gain)}
for name, out in orders.items():
    print(name, out.tolist())
torch.manual_seed(0)
x, gain = torch.randn(500, 576).bfloat16(), torch.randn(576).bfloat16()
differ = (rms_norm(x, gain) != rms_norm(x, gain, gain_last=True)).double().mean()
check_close("share of entries that differ", differ, 0.25, 0.1)

# %% [markdown] slideshow={"slide_type": "skip"}
# The wrong order does not break a model; it makes a port that should agree bit for bit agree only roughly
# ([transformers#29402](https://github.com/huggingface/transformers/issues/29402), Gemma).
#
# **Three: 1 + w.** Gemma's files store the gain **minus 1**, so a fresh model starts from zeros. **Four: no gain at all.** nanochat's `norm` calls
# `F.rms_norm` without a weight. Neither is in a config.json: the first follows from `model_type`, the second from the code. `lib` keeps a table of the
# families it reads:

# %% slideshow={"slide_type": "slide", "title": "Conventions three and four are in no config.json: 1 + w, no gain at all", "show": "printed"}
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

# %% [markdown] slideshow={"slide_type": "notes"}
# Falcon and Command-R keep LayerNorm, Command-R without the shift. Their attention and feed-forward run in `parallel`: both read one
# norm of $x$, and both are added to $x$. `sandwich` is a norm before each of the two and another after it.
#
# ## 4 · Before or after the addition
#
# The last column: the Transformer of 2017 normalised the sum, **post-norm**: $x \leftarrow \mathrm{norm}(x + f(x))$. GPT-2 and every Llama normalise what goes
# into a sub-layer and leave the stream alone, **pre-norm**: $x \leftarrow x + f(\mathrm{norm}(x))$. (OLMo 2's `post` normalises $f$'s output before
# the addition.)
#
# Put random matrices in place of the sub-layers: each adds something of RMS 1 in a random direction, to a stream that starts at RMS 1.
# **Predict** the stream's RMS after 64 of them, in pre-norm. Then: from 16 sub-layers to 64, by what factor does the gradient of the **last** matrix change, in pre-norm and in post-norm? (Exercise 2 helps.)

# %% slideshow={"slide_type": "slide", "title": "Before or after the addition: what does depth do?", "text": "Random matrices for the sub-layers, each adding something of RMS 1 to a stream that starts at 1. **Predict** the stream's RMS after 64 of them, in pre-norm.\n\nAnd from 16 sub-layers to 64: by what factor does the gradient of the **last** matrix change, in pre-norm and in post-norm?"}
my_guess = {"RMS": None, "pre": None, "post": None}


def sublayers(depth, place, d=256):
    gen = torch.Generator().manual_seed(4)
    Ws = [(torch.randn(d, d, generator=gen) / d**0.5).requires_grad_() for _ in range(depth)]
    x, sizes = rms_norm(torch.randn(32, d, generator=gen), eps=0.0), []
    for W in Ws:
        x = x + rms_norm(x, eps=0.0) @ W if place == "pre" else rms_norm(x + x @ W, eps=0.0)
        sizes.append(x.detach().pow(2).mean().sqrt().item())
    (rms_norm(x, eps=0.0) * torch.randn(32, d, generator=gen)).sum().backward()
    return torch.tensor(sizes), torch.stack([W.grad.norm() for W in Ws])


growth, _ = sublayers(64, "pre")
last = {place: [sublayers(n, place)[1][-1].item() for n in (16, 64)] for place in ("pre", "post")}
predict(my_guess["RMS"], round(growth[-1].item()), "(RMS)")
for place, (shallow, deep) in last.items():
    predict(my_guess[place], round(deep / shallow, 1), f"times, {place}-norm", tol=0.1)

# %% slideshow={"slide_type": "-"}
check_close("pre-norm RMS = sqrt(1 + depth)", growth, (1 + torch.arange(1, 65)).sqrt(), 0.05)
check_close("last matrix, 16 -> 64: pre, post", [b / a for a, b in last.values()], [0.5, 1.0], 0.1)

# %% [markdown] slideshow={"slide_type": "notes"}
# Mean squares of independent vectors add up: $\sqrt{65} = 8.06$. Pre-norm never shrinks what was written; post-norm divides it by about $\sqrt 2$ at every step.
# In pre-norm the last matrix writes into a long stream, so its gradient falls like one over the root of the depth. In post-norm it does not fall, however deep the model: Xiong et al. 2020
# ([arXiv 2002.04745](https://arxiv.org/abs/2002.04745)) show this at initialisation and explain post-norm's need of a warm-up by it. [Chapter 09](09_full_block.ipynb) looks at real blocks. Because the pre-norm stream has no fixed size, one more norm comes before the head.
#
# ## 5 · SmolLM2's own norms
#
# After 60 sub-layers that add vectors of one size, the stream would be $\sqrt{61} = 7.8$ times what it was. **Predict** the factor in SmolLM2 (a median token, first norm to last).

# %% slideshow={"slide_type": "slide", "title": "A trained model writes louder into a longer stream", "text": "Vectors of one size would make the stream $\\sqrt{61} = 7.8$ times as long after 60 sub-layers.\n\n**Predict** the factor in SmolLM2: a median token, first norm to last."}
my_guess = None
size = stream.pow(2).mean(-1).sqrt()  # [61, T]
typical = size[:, 1:].median(1).values  # the first token aside
predict(my_guess, round(typical[-1].item() / typical[0].item(), -2), "times", tol=0.2)
print("RMS of the stream:", "  ".join(f"norm {i + 1}: {typical[i]:.1f}" for i in (0, 20, 40, 60)))

# %% slideshow={"slide_type": "subslide", "title": "The stream grows, and so do the gains"}
gains = torch.stack([block.attn_norm.weight.abs().mean() for block in model.blocks])
fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4))
_ = left.plot(range(1, 62), typical / typical[0], color=COLORS["new"], label="SmolLM2")
_ = left.plot(range(1, 62), torch.arange(1, 62).sqrt(), color=COLORS["old"], ls="--", label="outputs of one size")
_ = left.set(yscale="log", xlabel="norm", ylabel="stream's RMS / its first", title="the stream grows")
_ = right.plot(range(1, 31), gains, "o-", color=COLORS["new"])
_ = right.set(xlabel="layer", ylabel="mean |gain|", ylim=(0, 0.5), title="gains before attention")
_ = left.legend(loc="lower right")
plt.show()
early, late = gains[:10].mean().item(), gains[20:].mean().item()
print(f"mean |gain|: layer 1 {gains[0]:.3f}; layers 1-10 {early:.2f}, layers 21-30 {late:.2f}")
check_equal("over 20 times the root law", bool(typical[-1] / typical[0] > 20 * 61**0.5), True)
check_equal("the gains grow with depth", late > 1.5 * early, True)

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: left, the stream leaps in the first layers, then climbs to some 300 times its start; the root law ends at 8. Right, the mean gain climbs from 0.03 to 0.41.*
#
# The root law holds for random matrices of one size. A trained model writes louder into a longer stream, and its gains grow with depth too. But what does a gain of 0.03 mean?
#
# ### The gain can be folded away
#
# **Exercise 6.** Behind a norm comes a matrix: $W (g \odot \hat x)$, with $W$ [out, d]. Write the matrix $W'$ for which $W' \hat x$ is the same.

# %% tags=["exercise"]
def my_fold(W, gain):
    ...

# %% tags=["check"]
check("01.fold", my_fold)

# %% tags=["solution"] jupyter={"source_hidden": true}
def fold_solution(W, gain):
    return W * gain


check("01.fold", fold_solution)

# %% slideshow={"slide_type": "slide", "title": "A gain means nothing by itself: it folds into the next matrix"}
forgot, _ = evidence.run_norms(model, idx, lambda x, w, eps: norm(x, torch.ones_like(w), eps))
evidence.fold_gains(model, mine("01.fold"))
check_close("all 60 gains folded: the same logits", model(idx)[0].detach(), logits)
print(f"gains forgotten instead: loss {evidence.next_token_loss(forgot, idx):.1f}, was {loss['fp32']:.1f}")
del model
model = lib.load_model(folder, torch.float32)  # with its gains in their places

# %% [markdown] slideshow={"slide_type": "skip"}
# A gain means nothing by itself; only its product with the next matrix does. (The last norm's gain would go into the head, and break the tie with the embedding.)
#
# ### And the mean
#
# Take from everything that writes into the stream (embeddings, positions, the last matrix and bias of each sub-layer) its mean over the features. LayerNorm would have removed it
# anyway, so nothing changes; and now RMSNorm, with LayerNorm's shift, does the same (Jiang et al. 2023, [arXiv 2305.14858](https://arxiv.org/abs/2305.14858)). A random GPT-2, untied, because the head needs the embedding as it was:

# %% slideshow={"slide_type": "slide", "title": "The mean folds away as well: centre what writes into the stream"}
gpt, tokens = evidence.random_gpt()
want = gpt(tokens).detach()
off = (evidence.with_rms_norms(gpt, tokens) - want).abs().max() / want.abs().max()
print(f"RMSNorm in place of LayerNorm, writers as they were: {'more' if off > 0.01 else 'less'} than 1 % off")
evidence.centre_writers(gpt)
check_close("writers centred: the same logits", evidence.with_rms_norms(gpt, tokens), want, 1e-12)

share, chance = (stream.mean(-1).abs() / size)[:, 1:].mean().item(), math.sqrt(2 / math.pi / 576)
print(f"SmolLM2's stream: |mean| / RMS {share:.1%}; 576 independent entries have {chance:.1%}")
check_equal("no more than by chance", share < chance, True)

# %% [markdown] slideshow={"slide_type": "skip"}
# And SmolLM2, which nobody centred, has next to no mean to remove: no more than independent entries have by chance.
#
# ## 6 · Bugs that shipped
#
# **The order of cast and gain.** transformers ran OLMo 2 in Llama's order and disagreed with OLMo's own code in 16 bits until [transformers#38131](https://github.com/huggingface/transformers/issues/38131): section 3, convention two.
#
# **One eps for all.** llama.cpp had 1e-6 built in, which is right for Llama 1. Llama-2-7B wants 1e-5, and its perplexity on wikitext was 5.8986 in place of 5.8283 ([ggml-org/llama.cpp#2374](https://github.com/ggml-org/llama.cpp/pull/2374)): no error, and fluent text.
# Follow it through SmolLM2, whose eps is also 1e-5:

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: one eps for all, and no test on one model finds it", "show": "printed", "text": "llama.cpp had 1e-6 built in; Llama-2-7B wants 1e-5: perplexity 5.8986 in place of 5.8283, and fluent text. SmolLM2, whose eps is also 1e-5, with other values:"}
part = [1e-5 / typical[i].item() ** 2 for i in (0, -1)]
print("eps is", " and ".join(f"{p:.0e}" for p in part), "of the mean square, at the first norm and the last")
changed = {}
for eps in (1e-6, 1e-3, 1e-2):
    out, _ = evidence.run_norms(model, idx, lambda x, weight, _: rms_norm(x, weight, eps))
    changed[eps] = evidence.next_token_loss(out, idx) - loss["fp32"]
    print(f"eps {eps:.0e}: loss {changed[eps]:+.2f}".replace("-0.00", "+0.00"))
check_equal("1e-6 changes less than 0.001", round(abs(changed[1e-6]), 3), 0.0)

# %% [markdown] slideshow={"slide_type": "slide", "title": "In practice: read eps, square in fp32, know where the 1 is", "show": "", "text": "- `rms_norm_eps`: 1e-5 for Llama 2 and 3, 1e-6 for Llama 1, Qwen3 and Gemma; never a default\n- square in fp32: a must in fp16, a precaution in bf16\n- in a Gemma file, find out whether the 1 has been added\n- `post_attention_layernorm` in a Llama checkpoint is the **pre**-norm of the feed-forward\n- to take home: `01.rms_norm`, `01.backward`, `01.fold`"}
# SmolLM2 would have hidden the fault. No test on one model finds such a bug in another; the config names the right value for each.
#
# ## What you can do now
#
# You **wrote** RMSNorm and its gradient; **saw** what fp16 and bf16 do to a norm and its model; **told apart** four conventions; **proved** that gains and means fold into the matrices around them.
#
# **In practice.** Read `rms_norm_eps` (1e-5 for Llama 2 and 3, 1e-6 for Llama 1, Qwen3 and Gemma), never leave it to a default. Square in fp32. In a Gemma file, find out
# whether the 1 has been added. `post_attention_layernorm` in a Llama checkpoint is the **pre**-norm of the feed-forward layer.
#
# **Sources.** Zhang & Sennrich 2019 ([arXiv 1910.07467](https://arxiv.org/abs/1910.07467)). Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762)), section 3.1: post-norm. Ba et al. 2016, LayerNorm ([arXiv 1607.06450](https://arxiv.org/abs/1607.06450)). Touvron et al. 2023, LLaMA ([arXiv 2302.13971](https://arxiv.org/abs/2302.13971)), section 2.2. The
# config.json files named above; karpathy/nanochat, `nanochat/gpt.py`.

# %% slideshow={"slide_type": "skip"}
progress("01")
