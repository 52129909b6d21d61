# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "The feed-forward layer got a third matrix, and its width became a strange number like 11,008. After this chapter you can"}
# # 02 · SwiGLU and its width
#
# The feed-forward layer got a third matrix, and its width became a strange number like 11,008. This chapter shows where both come from.
#
# After it you will be able to
# - **write** SwiGLU, say what its gate does, and **test** such a claim against a control;
# - **compute** the width that makes it as large as the layer of 2019, and the width that Llama really uses;
# - **read** `intermediate_size` and `hidden_act` in a config, and say what they do not tell;
# - **spot** four published faults.
#
# You need the GPT block of 2019. About 35 minutes. The arithmetic needs no torch; the layers at the end do.

# %% slideshow={"slide_type": "skip"}
import matplotlib.pyplot as plt

from book.exercises import check, mine, progress
from book.explore.ch02_swiglu import draw_matrices, draw_swiglu, width_explorer
from book.figures import style
from book.predict import check_close, check_equal, check_shape, predict
from lib import swiglu_width

style()

# %% [markdown] slideshow={"slide_type": "notes"}
# ## 1 · Two matrices, then three
#
# The feed-forward layer of 2019 widens $d$ to $4d$, applies a GELU, and comes back: two matrices of $d \times 4d$, so $8d^2$ parameters (biases
# aside). At $d = 768$:

# %% slideshow={"slide_type": "skip"}
d = 768
gelu_mlp = 2 * d * (4 * d)
print(f"GELU MLP: 2 x {d} x {4 * d} = {gelu_mlp:,} parameters")

# %% [markdown] slideshow={"slide_type": "slide", "title": "SwiGLU: one matrix makes features, one gates them, one brings them back", "show": "formula", "text": "The layer of 2019 widens $d$ to $4d$, applies a GELU, and comes back: two matrices, $8d^2$ parameters. SwiGLU has a third: two of them look at $x$ side by side. $\\sigma$ is the sigmoid, $\\odot$ the product entry by entry."}
# SwiGLU (Shazeer 2020, [arXiv 2002.05202](https://arxiv.org/abs/2002.05202)) has a third matrix. Two of them look at $x$ side by side:
#
# $$\mathrm{SwiGLU}(x) = W_{down}\left(\mathrm{silu}(W_{gate}\, x) \odot W_{up}\, x\right), \qquad \mathrm{silu}(z) = z \cdot \sigma(z).$$
#
# ($\sigma$ is the sigmoid, $\odot$ the product entry by entry.) One makes the $d_{ff}$ features ($W_{up}$), the other decides how much of each passes ($W_{gate}$, the **gate**), and $W_{down}$ brings
# the product back to $d$.

# %% slideshow={"slide_type": "subslide", "title": "Two ways up, one product, one way down"}
fig, ax = plt.subplots(figsize=(11, 3.4))
print(draw_swiglu(ax))
plt.show()

# %% [markdown] slideshow={"slide_type": "skip"}
# *In words: $x$ goes up twice to width $d_{ff}$. The gate's branch passes a silu, the two are multiplied entry by entry, and one matrix leads back to width $d$.*
#
# Somebody takes a GPT config and swaps the layer, keeping $d_{ff} = 4d$. **Write down** how many parameters that layer has at $d = 768$.

# %% slideshow={"slide_type": "subslide", "title": "Keep d_ff = 4d, and what happens to the parameters?", "show": "printed", "ask": "Q3", "text": "The layer of 2019 at $d = 768$ has 4,718,592 parameters. Somebody takes a GPT config, swaps the layer, and keeps $d_{ff} = 4d$. No error, no warning.\n\n**Write down** how many parameters that layer has."}
my_guess = None
copied = 3 * d * (4 * d)
predict(my_guess, copied, "parameters")
print(f"{copied / gelu_mlp - 1:+.0%} against the GELU MLP")
check_equal("4d copied into SwiGLU", copied, 7_077_888)
check_equal("the layer it replaced", gelu_mlp, 4_718_592)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Equal parameters ask for a width of 8/3 d", "show": "formula", "text": "To compare the two layers fairly they must have the same number of parameters. FLOPs follow parameters: every weight meets every token once, a multiplication and an addition. So one width makes both equal:"}
# Half as many again, without an error anywhere. To compare the two layers fairly they must have the same number of parameters:
#
# $$3\, d\, d_{ff} = 8\, d^2 \quad\Longrightarrow\quad d_{ff} = \tfrac{8}{3}\, d .$$

# %% slideshow={"slide_type": "subslide", "title": "Two tall rectangles, three short ones, the same area"}
equal = 3 * d * (8 * d // 3)
print(f"SwiGLU at 8/3 d = {8 * d // 3}: {equal:,} parameters")
check_equal("equal", equal, gelu_mlp)
fig, axes = plt.subplots(1, 2, figsize=(11, 5))
areas = draw_matrices(axes)
plt.show()
print(areas)

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: left, two grey rectangles, one $d$ wide and $4d$ tall. Right, three shorter ones of height $8/3\,d$, the gate in blue. Both sides cover
# $8d^2$.*
#
# FLOPs follow parameters: every weight meets every token once, a multiplication and an addition. So $8/3\,d$ makes FLOPs equal too.
#
# ## 2 · From 10,922.67 to 11,008
#
# Llama 7B has $d = 4096$, and $8/3\,d$ is not even a whole number. Matrix units like round sizes, so Llama's code rounds **up** to a multiple of 256
# (`multiple_of`). Up, not to the nearest.
#
# **Predict**: by how many per cent does that make the layer larger than the GELU MLP?

# %% slideshow={"slide_type": "slide", "title": "From 10,922.67 to 11,008: round up, not to the nearest", "ask": "Q4", "text": "Llama 7B has $d = 4096$, and $8/3\\,d$ is no whole number. Its code rounds **up** to a multiple of 256.\n\n**Predict:** by how many per cent is the layer then larger than the GELU MLP?"}
my_guess = None  # per cent
size_gelu, size_swi = 8 * 4096**2, 3 * 4096 * swiglu_width(4096, multiple_of=256)
predict(my_guess, round(100 * (size_swi / size_gelu - 1), 1), "per cent")
print(f"8/3 x 4096 = {8 / 3 * 4096:,.2f}; 43 x 256 = {43 * 256:,}")
check_equal("Llama 7B", swiglu_width(4096), 11_008)
print(f"GELU MLP {size_gelu / 1e6:.1f}M, SwiGLU {size_swi / 1e6:.1f}M per layer")
check_close("millions", [size_gelu / 1e6, size_swi / 1e6], [134.2, 135.3], 0.0005)

# %% [markdown] slideshow={"slide_type": "skip"}
# The whole rule has three steps: truncate $8/3\,d$; apply an optional multiplier and truncate again; round up.
#
# **Exercise 1. The rule.** Write it. The chapter goes on with your function once it passes.

# %% tags=["exercise"]
def my_width(d, multiplier, multiple_of):
    ...

# %% tags=["check"]
check("02.width", my_width)

# %% slideshow={"slide_type": "subslide", "title": "The whole rule: truncate, multiply and truncate, round up", "show": "code", "text": "Published sizes do not tell whether both truncations matter; a small model does. At $d = 448$, multiplier 1.3, multiple of 8 the rule gives 1,552; truncating once gives 1,560."} tags=["solution"] jupyter={"source_hidden": true}
def width_solution(d, multiplier, multiple_of):
    d_ff = int(2 * 4 * d / 3)
    d_ff = int(multiplier * d_ff)
    return multiple_of * ((d_ff + multiple_of - 1) // multiple_of)


check("02.width", width_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# Do both truncations matter? Published sizes do not tell; a small model does. There, truncating only once gives another multiple.

# %% slideshow={"slide_type": "skip"}
width = mine("02.width")
for case in ((512, 1.0, 64), (4096, 1.0, 256), (8192, 1.3, 4096), (448, 1.3, 8)):
    check_equal(f"d, multiplier, multiple_of = {case}", width(*case), swiglu_width(*case))

once = 8 * -(-int(1.3 * 8 * 448 / 3) // 8)
print(f"d = 448, multiplier 1.3, multiple of 8: the rule gives {width(448, 1.3, 8):,}, truncating once {once:,}")
check_equal("the rule", width(448, 1.3, 8), 1_552)
check_equal("truncating once", once, 1_560)

# %% [markdown] slideshow={"slide_type": "notes"}
# ## 3 · Which models follow it
#
# Below, `hidden_size` and `intermediate_size` stand in the models' config.json files. The multiplier and the multiple do not; the ones in the cell
# are a pair that gives the published width. The last column is the size of the layer against a GELU MLP at $4d$. **Predict** first: is Llama 3 8B above
# or below 1?

# %% slideshow={"slide_type": "slide", "title": "Which models follow it?", "text": "The last column is the size of the layer against a GELU MLP at $4d$. **Predict:** is Llama 3 8B above or below 1?"}
my_guess = None  # "above" or "below"
published = [  # name, hidden_size, multiplier, multiple_of, intermediate_size
    ("Llama 1 and 2, 7B", 4096, 1.0, 256, 11008),
    ("Llama-2-70B, Llama-3-70B", 8192, 1.3, 4096, 28672),
    ("Llama-3-8B", 4096, 1.3, 1024, 14336),
    ("Llama-3.1-405B", 16384, 1.2, 4096, 53248),
    ("Llama-3.2-1B", 2048, 1.5, 256, 8192),
    ("Llama-3.2-3B", 3072, 1.0, 256, 8192),
    ("SmolLM2-135M", 576, 1.0, 256, 1536),
]
for name, d_model, multiplier, multiple, d_ff in published:
    assert swiglu_width(d_model, multiplier, multiple) == d_ff, name
    ratio = 3 * d_model * d_ff / (8 * d_model**2)
    print(f"{name:<25} {d_model:>6} -> {d_ff:>6}   {d_ff / d_model:.4f} d   {ratio:.4f} of 8 d^2")
ratios = {name: round(3 * d_ff / (8 * d_model), 4) for name, d_model, _, _, d_ff in published}
check_equal("7B, 8B, 405B", [list(ratios.values())[i] for i in (0, 2, 3)], [1.0078, 1.3125, 1.2188])
predict(my_guess, "above" if ratios["Llama-3-8B"] > 1 else "below")
check_equal("1B, 3B", [list(ratios.values())[i] for i in (4, 5)], [1.5, 1.0])
for d_model, d_ff in ((6656, 17920), (8192, 22016)):
    check_equal(f"d = {d_model}", swiglu_width(d_model), d_ff)

# %% [markdown] slideshow={"slide_type": "notes"}
# So "$d_{ff} = 8/3\,d$" is the **starting point** of the rule. Llama 3's 8B, 70B, 405B and 1B are wider, the 8B with 3.5 $d$ instead of 2.67 $d$; the 3B and
# SmolLM2 sit on it exactly. The first Llama's two largest sizes ($d$ = 6656 and 8192) follow without a multiplier; $d = 5120$
# is left for exercise 3.
#
# ### Move the sliders
#
# The staircase is the rule, the dashed line what it would give without rounding. Right, how much of the width is rounding. Try a multiple of 4,096
# with a small $d$: who pays?

# %% slideshow={"slide_type": "slide", "title": "Try a multiple of 4,096 with a small d: who pays?"}
width_explorer

# %% slideshow={"slide_type": "subslide", "title": "How much of the width is rounding", "show": "code printed"}
for d_model, multiple in ((4096, 256), (4096, 4096), (512, 256), (512, 4096)):
    t = width_explorer.table(d=d_model, multiple_of=multiple)
    rounding = f"{t['share']:.1%} of it is rounding"
    print(f"d = {d_model}, multiple of {multiple:>4}: d_ff = {t['d_ff']:>6,}, {rounding}")
check_equal("d = 512, multiple of 4096", width_explorer.table(d=512, multiple_of=4096)["d_ff"], 4096)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 4 · The gate at work
#
# From here on we need torch.
#
# **Exercise 2. The layer.** Write SwiGLU from its three weights: `x` [T, d], `w_gate` and `w_up` [d_ff, d], `w_down` [d, d_ff] (rows are outputs, as `nn.Linear` stores them). The chapter goes on with yours.

# %% tags=["exercise"]
def my_layer(x, w_gate, w_up, w_down):
    ...

# %% tags=["check"]
check("02.swiglu", my_layer)

# %% slideshow={"slide_type": "slide", "title": "The layer in three lines", "show": "code", "text": "$x$ [T, $d$] goes up twice to [T, $d_{ff}$], the two are multiplied entry by entry, and one matrix leads back. Rows of a weight are outputs, as `nn.Linear` stores them."} tags=["solution"] jupyter={"source_hidden": true}
def swiglu_solution(x, w_gate, w_up, w_down):
    z = x @ w_gate.T  # [T, d_ff]
    opened = z * z.sigmoid()  # silu
    return (opened * (x @ w_up.T)) @ w_down.T  # [T, d]


check("02.swiglu", swiglu_solution)

# %% slideshow={"slide_type": "skip"}
import torch

from lib import SwiGLU, swiglu

by_hand = mine("02.swiglu")
torch.manual_seed(0)
layer = SwiGLU(6, 11).double()
x = torch.randn(4, 6, dtype=torch.float64)
weights = [w.weight.detach() for w in (layer.w_gate, layer.w_up, layer.w_down)]
check_close("by hand = lib.swiglu", by_hand(x, *weights), swiglu(x, *weights))
check_close("by hand = lib.SwiGLU", by_hand(x, *weights), layer(x).detach())

# %% [markdown] slideshow={"slide_type": "skip"}
# **Why is it called a gate?** Write silu out: $\mathrm{silu}(z)\,u = \sigma(z) \cdot z\,u$. The sigmoid lies between 0 and 1; it opens and closes, as in the gated linear unit
# that SwiGLU descends from. But what it lets through is not $u$: it is the **product** $z\,u$ of two projections of $x$. Take two features with gates $z$ and $-z$ and the same $u$, and
# subtract the second from the first. **Predict** what is left, as a formula.

# %% slideshow={"slide_type": "slide", "title": "Two features multiply, exactly and at any size", "text": "$\\mathrm{silu}(z)\\,u = \\sigma(z) \\cdot z\\,u$: what the gate lets through is the **product** of two projections of $x$.\n\nTwo features with gates $z$ and $-z$, the same $u$. Subtract the second from the first. **Predict** what is left, as a formula."}
my_guess = None  # such as "z + u"
silu, gelu = torch.nn.functional.silu, torch.nn.functional.gelu
g = torch.Generator().manual_seed(3)
z, u = torch.randn(2, 2000, generator=g, dtype=torch.float64)
predict(my_guess, "z u")
check_close("silu(z) u - silu(-z) u = z u", silu(z) * u - silu(-z) * u, z * u)

w = torch.randn(2, 16, generator=g, dtype=torch.float64)  # the control: 16 GELU units, fitted to z u
fit = torch.linalg.lstsq(gelu(torch.stack([z, u], 1) @ w), (z * u)[:, None]).solution
for times in (1, 3):
    rest = gelu(times * torch.stack([z, u], 1) @ w) @ fit - times**2 * (z * u)[:, None]
    miss = (rest.norm() / (times**2 * z * u).norm()).item()
    print(f"16 GELU units miss {miss:.0%} of z u on inputs {times} times those they were fitted to")
check_equal("a third or more of it missed there", miss > 0.33, True)

# %% [markdown] slideshow={"slide_type": "skip"}
# Two features **multiply**, exactly and at any size; GELU units approach a product where they were fitted, and lose it outside. Seen from above, over two inputs, that is the difference between a ridge and a saddle.

# %% slideshow={"slide_type": "subslide", "title": "A GELU feature is a ridge, a SwiGLU feature a saddle"}
axis = torch.linspace(-3, 3, 121, dtype=torch.float64)
x1, x2 = torch.meshgrid(axis, axis, indexing="xy")
along, across = x1 + 0.5 * x2, 0.5 * x1 - x2  # two directions at right angles
units = {"one GELU feature: a ridge": gelu(along), "one SwiGLU feature: a saddle": silu(along) * across}
fig, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
for ax, (title, values) in zip(axes, units.items()):
    limit = values.abs().max()
    _ = ax.imshow(values, extent=(-3, 3, -3, 3), origin="lower", cmap="PuOr", vmin=-limit, vmax=limit)
    _ = ax.set(title=title, xlabel="$x_1$")
_ = axes[0].set_ylabel("$x_2$")
plt.show()
t = torch.linspace(-1, 1, 41, dtype=torch.float64)  # a walk at right angles to the gate's direction, through (1, 1/2)
walk = torch.stack([1 + 0.5 * t, 0.5 - t])
spread = [f(walk[0] + 0.5 * walk[1], 0.5 * walk[0] - walk[1]) for f in (lambda a, b: gelu(a), lambda a, b: silu(a) * b)]
print(f"across the gate's direction: GELU changes by {spread[0].max() - spread[0].min():.2f}, SwiGLU by {spread[1].max() - spread[1].min():.2f}")
check_equal("ridge, saddle", [bool((s.max() - s.min()) > 1) for s in spread], [False, True])

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: left, colour changes in one direction only. Right, it changes sign four times around the middle: the value depends on both inputs together.*
#
# ### Does the gate pick features? A claim and its control
#
# Now a real model. SmolLM2-135M has $d = 576$ and $d_{ff} = 1536$, exactly $8/3\,d$. We read one layer's three matrices from its file, and nothing
# else of it but a few rows of the embedding.

# %% slideshow={"slide_type": "skip"}
import json

from safetensors import safe_open

import lib
from book.evidence import excerpts, held_out_purity, layer_inputs, same_size, shared_signs, without_feature

folder = lib.find_model()
words = ["Paris", "London", "seven", "eight", "because"]
vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
ids = [vocabulary["Ġ" + word] for word in words]  # Ġ stands for the space before a word
del vocabulary
with safe_open(folder / "model.safetensors", "pt") as file:
    name = "model.layers.0.mlp.{}_proj.weight"
    gate, up, down = (file.get_tensor(name.format(part)) for part in ("gate", "up", "down"))
    norm = file.get_tensor("model.layers.0.post_attention_layernorm.weight")
    embedding = file.get_slice("model.embed_tokens.weight")
    rows = lib.rms_norm(torch.cat([embedding[i : i + 1] for i in ids]), norm, eps=1e-5)
check_shape("gate", gate, [1536, 576])
check_close("SmolLM2's own layer, by hand and by lib", swiglu(rows, gate, up, down), by_hand(rows, gate, up, down))

# %% [markdown] slideshow={"slide_type": "skip"}
# Each word goes through the gate of layer 0. Call a feature open where $z = W_{gate}\, x$ is above zero, and ask of two words: of the features that are open for either, how many are open
# for both? Two cities, two numbers. It is tempting to read a high share as "the gate picks the same features for the same kind of word". So put a **random** matrix with
# the same row norms in the gate's place. **Predict**: what share do *seven* and *eight* have with that one, if the trained gate gives 77 %?

# %% slideshow={"slide_type": "slide", "title": "Does the gate pick features? A claim and its control", "text": "Layer 0 of SmolLM2: of the features open for either of two words, how many are open for both? *seven* and *eight* share 77 %. In the gate's place, a **random** matrix with the same row norms.\n\n**Predict** what they share with that one."}
my_guess = None  # per cent
table = {"trained gate": gate, **{f"random gate {seed}": same_size(gate, seed) for seed in (1, 2, 3)}}
shares = {}
for kind, w in table.items():
    shares[kind] = [shared_signs(rows @ w.T, a, b) for a, b in ((2, 3), (0, 1))]
    text = "   ".join(f"{pair} {s:.0%} (chance {c:.0%})" for pair, (s, c) in zip(("seven/eight", "Paris/London"), shares[kind]))
    print(f"{kind:<14} {text}")
excess = {kind: [s - c for s, c in pairs] for kind, pairs in shares.items()}
predict(my_guess, round(100 * sum(shares[k][0][0] for k in list(table)[1:]) / 3), "per cent, over three random gates", tol=0.05)
check_equal("above chance with a random gate too", [min(pair) > 0.05 for pair in excess.values()], [True] * 4)
alike = torch.nn.functional.cosine_similarity(rows[[2, 0]], rows[[3, 1]])
print(f"cosine of the inputs themselves: seven/eight {alike[0]:.2f}, Paris/London {alike[1]:.2f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "What was measured is that the inputs are alike", "show": "", "text": "Any linear map keeps that. **A check that passes on its control says nothing about the thing it is named after.**\n\nA fairer question: over a text, does a feature pick one kind of token? Choose the ten features that most often fall on capitals; judge them on **another** text."}
# The random gate does as well: its excess over chance is even larger. What we measured is that the **inputs** are alike, and any linear map keeps that. A check that passes on its control
# says nothing about the thing it is named after; most stories about single features have not met theirs.
#
# A fairer question: over a **text**, does a feature of a middle layer pick out one kind of token? We take words that begin with a capital, choose the ten features (of 1,536, either sign) whose ten
# largest values fall on capitals most often, and judge them on **another** text. The control is again the random gate with everything else in place, and the chosen-on text shows
# what choosing alone can do.

# %% slideshow={"slide_type": "fragment", "show": "printed"}
from book.corpus import load_corpus

model, tokenizer = lib.load_model(folder, torch.float32), lib.load_tokenizer(folder)
ids, tokens = excerpts(load_corpus().decode(), tokenizer)
x = layer_inputs(model, ids, 8)[:, 1:].flatten(0, 1).double()  # without each excerpt's first token (chapter 07)
capital = torch.tensor([word.strip()[:1].isupper() for piece in tokens for word in piece[1:]])
trained = model.blocks[8].ffn.w_gate.weight.detach().double()
print(f"{len(x):,} tokens; {capital.double().mean():.0%} of them begin with a capital")
found = {"trained gate": held_out_purity(x @ trained.T, capital)}
for seed in (1, 2, 3):
    found[f"random gate {seed}"] = held_out_purity(x @ same_size(trained, seed).T, capital)
for kind, (chosen, judged) in found.items():
    print(f"{kind:<14} capitals among the top ten: {chosen:.1f} where chosen, {judged:.1f} on the other text")
judged = [j for _, j in found.values()]
check_equal("trained above one half, each random one below", [judged[0] > 0.5, max(judged[1:]) < 0.5], [True, True])

# %% [markdown] slideshow={"slide_type": "notes"}
# On the text they were chosen on, random directions look impressive too: the best ten of three thousand always do. On the other text the trained gate's features go on picking capitals, and the random
# ones fall back. So here the gate **has** learned something, and we know it because the same test fails without it.
#
# ### One feature, cut
#
# Feature 1,361 of layer 26 is one that we found by looking: on the first four excerpts it adds much to the stream, on few tokens. On the other four: where is it largest? Which words does its column of $W_{down}$ raise, read through the head? And what changes when it is **cut** on its twenty largest tokens?
# If it asks for a participle, then *taken* must fall against *took*, over 14 irregular verbs. The control takes out as much along a random direction. **Predict** by how many nats participles fall.

# %% slideshow={"slide_type": "slide", "title": "One feature, cut: taken falls against took", "show": "printed", "text": "Feature 1,361 of layer 26 of SmolLM2, on its twenty largest tokens. The control takes out as much along a random direction.\n\n**Predict** by how many nats participles fall against past forms."}
my_guess = None  # nats
others = ids[4:]
places, values, cut = without_feature(model, others, 26, 1361)
print("largest on", sorted({tokens[4 + i][t].strip() for i, t in places.T.tolist()}))
raised = model.norm.weight * model.blocks[26].ffn.w_down.weight[:, 1361] * values.mean().sign()
print("raises", [tokenizer.decode([i]).strip() for i in (model.emb.weight @ raised).topk(6).indices.tolist()])
verbs = "taken took given gave eaten ate flown flew thrown threw fallen fell chosen chose spoken spoke written wrote broken broke driven drove gone went seen saw known knew"
participles, pasts = torch.tensor([tokenizer.encode(f" {verb}").ids[0] for verb in verbs.split()]).view(14, 2).T
lead = {name: (s.log_softmax(-1)[:, participles] - s.log_softmax(-1)[:, pasts]).mean(1) for name, s in cut.items()}
after = others[places[0], places[1] + 1]
loss = {name: torch.nn.functional.cross_entropy(s, after, reduction="none") for name, s in cut.items()}
falls = {name: (lead["as it is"] - each).mean().item() for name, each in lead.items()}
predict(my_guess, round(falls["cut"], 2), "nats")
for name in list(cut)[1:]:
    change = loss[name] - loss["as it is"]
    print(f"{name:<9} participles fall by {falls[name]:5.2f}   loss {change.mean():+.2f}, standard error {change.std() / 20**0.5:.2f}")
del model

# %% slideshow={"slide_type": "skip"}
check_equal("cut: by more than half a nat; no random direction does", [v > 0.5 for v in list(falls.values())[1:]], [True, False, False, False])

# %% [markdown] slideshow={"slide_type": "notes"}
# It is largest on *had*, *has* and *'ve*, its column names participles, and they fall when it is cut, several times as far as along any random direction. The **loss** on the same twenty tokens tells nothing: its change lies among those of the random directions. A readable effect need not be a measurable gain.
#
# **Why is this better than a GELU?** Nobody has derived it. Shazeer's paper reports lower loss for the gated variants at equal parameters and FLOPs, lowest with GELU or Swish (silu) as the gate (table 1), and in
# its conclusions offers no explanation but divine benevolence ([arXiv 2002.05202](https://arxiv.org/abs/2002.05202), section 4). [Chapter 09](09_full_block.ipynb) trains both.
#
# ## 5 · Conventions
#
# - **The gate's activation.** `hidden_act: silu` is SwiGLU (Llama, Qwen, SmolLM2). Gemma 2 has `hidden_activation: gelu_pytorch_tanh` and also three
#   matrices: GeGLU.
# - **The number of matrices is not in the file.** StarCoder2-7B has `hidden_act: gelu_pytorch_tanh` and **two** matrices
#   (`intermediate_size` 18,432 = 4 $d$); Nemotron-Mini-4B has `relu2` and two. It follows from `model_type`, which is why [chapter 10](10_real_models.ipynb)'s reader keeps a table.
# - **Fused tensors.** Some files store gate and up in one tensor. Which half is the gate, or whether the rows alternate, is a convention of that file.

# %% slideshow={"slide_type": "slide", "title": "Conventions: the number of matrices is not in the file", "show": "printed", "text": "- `hidden_act: silu` is SwiGLU; Gemma 2 has GeGLU, also three matrices\n- StarCoder2-7B has **two**: it follows from `model_type`\n- gate and up may be one tensor; which half is the gate is that file's convention"}
configs = [
    ("Llama-3-8B", 4096, 14336, 3),
    ("Gemma-2-2B", 2304, 9216, 3),
    ("Gemma-2B", 2048, 16384, 3),
    ("StarCoder2-7B", 4608, 18432, 2),
]
for name, hidden_size, intermediate_size, matrices in configs:
    size = matrices * hidden_size * intermediate_size / (8 * hidden_size**2)
    print(f"{name:<14} {intermediate_size / hidden_size:.2f} d, {matrices} matrices: {size:.2f} of the 2019 layer")
check_equal("Gemma-2B's ratio", 16384 / 2048, 8.0)

# %% [markdown] slideshow={"slide_type": "skip"}
# No rule of this chapter gives Gemma-2B's 8 $d$: with three matrices its layer is three times the one of 2019.
#
# ## 6 · Bugs that shipped
#
# **Nearest instead of up.** An answer in [transformers#27139](https://github.com/huggingface/transformers/issues/27139) explains 11,008 as the closest multiple of 128. Compute it:

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: nearest instead of up", "show": "code printed", "text": "An answer in [transformers#27139](https://github.com/huggingface/transformers/issues/27139) explains 11,008 as the closest multiple of 128:"}
nearest = 128 * round(8 / 3 * 4096 / 128)
print(f"closest multiple of 128: {nearest:,}   the checkpoint: {swiglu_width(4096):,}")
check_equal("it is another number", nearest, 10_880)

# %% [markdown] slideshow={"slide_type": "skip"}
# **A report with the wrong widths.** The first version of the Llama 3 report printed feed-forward widths of 6,144, 12,288 and 20,480 ([meta-llama/llama3#283](https://github.com/meta-llama/llama3/issues/283)).
# The weights say otherwise:

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: a report with the wrong widths", "show": "printed", "text": "The first version of the Llama 3 report printed feed-forward widths of 6,144, 12,288 and 20,480. No rule of this chapter gives them, and the weights say otherwise:"}
sizes = [
    ("8B", 4096, 1.3, 1024, 6144, 14336),
    ("70B", 8192, 1.3, 4096, 12288, 28672),
    ("405B", 16384, 1.2, 4096, 20480, 53248),
]
for name, d_model, multiplier, multiple, said, held in sizes:
    print(f"{name:>4}: report {said:>6} = {said / d_model:.2f} d    weights {held:>6} = {held / d_model:.2f} d")
    check_equal(f"{name:>4}, the rule", swiglu_width(d_model, multiplier, multiple), held)

# %% [markdown] slideshow={"slide_type": "skip"}
# **The halves swapped.** A fused tensor read up-first instead of gate-first, or cut in halves although its rows alternate ([vllm#29273](https://github.com/vllm-project/vllm/issues/29273)). Shapes
# agree, nothing fails. With one feature, a gate input of 1 and an up value of 2:

# %% slideshow={"slide_type": "subslide", "title": "Bugs that shipped: the halves swapped, and nothing fails", "text": "A fused tensor read up-first instead of gate-first. A gate input of 1, an up value of 2:"}
one, two = torch.tensor(1.0), torch.tensor(2.0)
right = (torch.nn.functional.silu(one) * two).item()
swapped = (torch.nn.functional.silu(two) * one).item()
print(f"gate first {right:.6f}   swapped {swapped:.6f}")
check_close("both", [right, swapped], [1.462117, 1.761594], 1e-6)

# %% [markdown] slideshow={"slide_type": "skip"}
# **The guide that had it backwards.** A training guide asked for 4 $d$ with three matrices and 8/3 $d$ with two ([ml-engineering#45](https://github.com/stas00/ml-engineering/issues/45)). You know what that costs: section 1.
#
# ## Exercises
#
# **3.** A SwiGLU model has $d = 5120$. Which $d_{ff}$ matches the parameters of a GELU layer at $4d$, as Llama would round it (multiple of 256)?

# %% tags=["exercise"]
my_d_ff = None

# %% tags=["check"]
check("02.d5120", my_d_ff)

# %% tags=["solution"] jupyter={"source_hidden": true}
def d5120_solution():
    return 256 * -(-(8 * 5120 // 3) // 256)


check("02.d5120", d5120_solution)
print(f"8/3 x 5120 = {8 / 3 * 5120:,.0f}; rounded up {d5120_solution() // 256} x 256 = {d5120_solution():,}")

# %% [markdown] slideshow={"slide_type": "skip"}
# **4.** How many parameters has a SwiGLU layer at $d = 1600$ (GPT-2 XL's) whose $d_{ff}$ was copied from a GELU config ($4d$)?

# %% tags=["exercise"]
my_parameters = None

# %% tags=["check"]
check("02.copied", my_parameters)

# %% tags=["solution"] jupyter={"source_hidden": true}
def copied_solution():
    return 3 * 1600 * (4 * 1600)


check("02.copied", copied_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Find the fault.** This file stores gate and up in one tensor whose rows **alternate**: gate of feature 0, up of feature 0, gate of feature 1, ... The
# function below runs and is wrong. Mend it.

# %% tags=["exercise"]
def my_fused(x, w_fused):
    gate, up = w_fused.chunk(2, dim=0)
    z = x @ gate.T
    return z * z.sigmoid() * (x @ up.T)

# %% tags=["check"]
check("02.fused", my_fused)

# %% tags=["solution"] jupyter={"source_hidden": true}
def fused_solution(x, w_fused):
    gate, up = w_fused[0::2], w_fused[1::2]
    z = x @ gate.T
    return z * z.sigmoid() * (x @ up.T)


check("02.fused", fused_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Divide intermediate_size by hidden_size and compare with 2.67", "show": "", "text": "- three matrices for two: $8/3\\,d$ makes parameters and FLOPs equal\n- the rule: truncate, multiply and truncate, round **up**: 11,008, 14,336, 28,672 from one rule\n- a pair of gated features multiplies exactly; no single-feature story without its control\n- to take home: `02.width` and `02.swiglu`"}
# ## What you can do now
#
# You **wrote** SwiGLU and saw that two of its features multiply exactly; **tested** what a real gate picks against a random one; **computed** $8/3\,d$ and Llama's 11,008, 13,824, 14,336 and 28,672
# from one rule; **read** widths of real configs and what they do not tell; **spotted** four published faults. Proved equal: your layer and `lib` with random
# weights, and SmolLM2's own layer by hand = by `lib`.
#
# **In practice.** `intermediate_size` is $d_{ff}$; divide it by `hidden_size` and compare with 2.67. In mixture-of-experts models it may be the width of one
# expert, of the dense layers only, or unused ([chapter 10](10_real_models.ipynb)).
#
# **Sources.** Shazeer 2020, GLU Variants Improve Transformer ([arXiv 2002.05202](https://arxiv.org/abs/2002.05202)), eq. 6 and section 4. Touvron et al. 2023, LLaMA ([arXiv 2302.13971](https://arxiv.org/abs/2302.13971)), section 2.2:
# "2/3 4d instead of 4d". The config.json files of the models named. [meta-llama/llama#1019](https://github.com/meta-llama/llama/issues/1019) for the rule in code.

# %% slideshow={"slide_type": "skip"}
progress("02")
