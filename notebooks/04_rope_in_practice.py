# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "RoPE has no parameters, and yet it is where ports go wrong. After this chapter you can"}
# # 04 · RoPE in practice
#
# RoPE has no parameters, and yet it is where ports go wrong. This chapter is about everything that two programs can disagree on while both rotate.
#
# After it you will be able to
# - **convert** weights from one RoPE layout to the other, biases and gains too, and fall into none of the known traps;
# - **say** why the wrong layout gets the first token right;
# - **compute** which wavelengths a model has seen, and what linear, NTK, llama3, YaRN and longrope scaling do to them;
# - **read** base, scaling, partial rotary and NoPE layers in a config;
# - **choose** the precision of positions and tables.
#
# You need [chapter 03](03_rope.ipynb) (the rotation and its frequencies). About 50 minutes.

# %% slideshow={"slide_type": "skip"}
from dataclasses import replace
from math import log, pi

import matplotlib.pyplot as plt
import torch

import lib
from book.exercises import check, progress
from book.explore.ch04_rope_practice import KINDS, PHI35, SHAPES, draw, draw_ribbons, setup, spectrum_explorer
from book.figures import COLORS, style
from book.predict import check_close, check_equal, predict
from lib import Scaling, apply_rope, inv_freq, layout_permutation, permute_heads, rope_cache

style()
_ = torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Two conventions of which dimensions make a pair", "show": "list", "text": "RoPE turns **pairs** of dimensions:"}
# ## 1 · Two layouts, one model
#
# RoPE turns **pairs** of dimensions. Which two make a pair is a convention:
#
# - **adjacent**: $2i$ with $2i+1$. The RoFormer paper, Meta's own checkpoints, DeepSeek.
# - **half-split**: $i$ with $i + d_h/2$. Most Hugging Face classes: Llama, Qwen, Mistral, Gemma. (Their classes for Cohere, GLM-4, ERNIE 4.5, Llama 4 and DeepSeek are adjacent: the layout
#   belongs to the class, not to the library.)
#
# The same vector at the same position comes out differently:

# %% slideshow={"slide_type": "subslide", "title": "The same vector at the same position comes out differently", "show": "code printed"}
x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 1, 4)
cos, sin = rope_cache(1, 4, start=1)
known = {"adjacent": [-1.14264, 1.922076, 2.959851, 4.0298], "half": [-1.984111, 1.959901, 2.462378, 4.0198]}
for layout, want in known.items():
    got = apply_rope(x, cos, sin, layout).flatten()
    print(f"{layout:<9}", [round(value, 5) for value in got.tolist()])
    check_close(layout, got, want, 1e-6)

# %% [markdown] slideshow={"slide_type": "skip"}
# Neither is wrong. A reader who compares the two expects equality, and files a bug ([transformers#25199](https://github.com/huggingface/transformers/issues/25199), [LLMs-from-scratch#838](https://github.com/rasbt/LLMs-from-scratch/issues/838)).
#
# But a checkpoint belongs to one of them: it was trained so that certain rows of $W_q$ and $W_k$ turn together. To run adjacent weights with
# half-split code, put the rows where that code looks for pairs. A head of 8 has the adjacent pairs (0,1), (2,3), (4,5), (6,7). Half-split code
# turns places 0 and 4, 1 and 5, 2 and 6, 3 and 7.
#
# **Write down** the new order: which row must stand at place 0, 1, 2, ... 7?

# %% slideshow={"slide_type": "slide", "title": "A checkpoint belongs to one layout: rows must move", "show": "picture", "text": "A head of 8 has the adjacent pairs (0,1), (2,3), (4,5), (6,7). Half-split code turns places 0 and 4, 1 and 5, 2 and 6, 3 and 7.\n\n**Write down** which row must stand at place 0, 1, 2, .. 7."}
my_guess = None  # a list of eight row numbers
order = layout_permutation(8, to="half").tolist()
predict(my_guess, order)
fig, ax = plt.subplots(figsize=(10, 4))
pairs = draw_ribbons(ax, order)
plt.show()
print(pairs)
check_equal("evens, then odds", order, [0, 2, 4, 6, 1, 3, 5, 7])

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: two ribbons of eight squares. Above, partners are neighbours and share a colour. Lines lead the even rows to the left half below and
# the odd rows to the right half, so that partners stand four places apart.*
#
# Permuting and then turning half-split is the same as turning adjacent and then permuting, to the last bit. And a score is a sum over
# dimensions: it does not care about their order, as long as $q$ and $k$ have the same one.

# %% slideshow={"slide_type": "subslide", "title": "A layout is a permutation of weights, not another model", "show": "printed", "text": "Permute, then turn half-split, is turn adjacent, then permute: to the last bit. A score is a sum over dimensions and does not care about their order, as long as $q$ and $k$ have the same one."}
torch.manual_seed(0)
q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
at_q, at_k = rope_cache(1, 8, start=7), rope_cache(1, 8, start=3)
one, other = apply_rope(q[..., order], *at_q, "half"), apply_rope(q, *at_q, "adjacent")[..., order]
check_equal("permute, then turn = turn, then permute", torch.equal(one, other), True)


def score(q, k, layout):
    return (apply_rope(q, *at_q, layout) * apply_rope(k, *at_k, layout)).sum().item()


right, permuted = score(q, k, "adjacent"), score(q[..., order], k[..., order], "half")
print(f"adjacent {right:+.4f}   permuted, half-split {permuted:+.4f}")
print(f"half-split without the permutation {score(q, k, 'half'):+.4f}")
check_close("score at positions 7 and 3", permuted, right)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Everything that feeds the rotation has rows to move", "show": "", "text": "The rows of $W_q$ and $W_k$, their **biases** (Qwen2.5) and the **gains of QK-norm** (Qwen3). A forgotten gain is the quietest: on a fresh model it does nothing.\n\n**Predict** which conversions give the same layer: weights alone, weights and biases, or all three."}
# So a layout is **a permutation of weights, not another model**. A model that is trained from scratch may use either, without any permutation at
# run time: training puts the rows where they are needed ([nanochat#264](https://github.com/karpathy/nanochat/issues/264) is a false alarm of this kind).
#
# ## 2 · Everything that has rows
#
# The permutation belongs to whatever feeds the rotation: the rows of $W_q$ and $W_k$, their **biases** if there are any (Qwen2.5 has them), and the
# **gains of QK-norm** (Qwen3 has them). We build a layer with all three, all random, and convert more and more of it.
#
# **Predict** which of the three conversions give the same layer: weights alone, weights and biases, or all three.

# %% slideshow={"slide_type": "fragment", "show": "printed"}
torch.manual_seed(1)
shape = {"d": 24, "n_heads": 6, "n_kv_heads": 2, "head_dim": 10, "qk_norm": True, "bias": True}
adjacent, half = (lib.GQAttention(**shape, rope=lib.Rope(layout=w)).double() for w in ("adjacent", "half"))
weights = {name: torch.randn_like(w) for name, w in adjacent.state_dict().items()}
_ = adjacent.load_state_dict(weights)
x, table = torch.randn(1, 40, 24, dtype=torch.float64), rope_cache(40, 10)
heads = {"wq": 6, "wk": 2, "q_norm": 1, "k_norm": 1}


def converted(parts):
    half.load_state_dict(weights | {n: permute_heads(weights[n], heads[n.split(".")[0]]) for n in parts})
    right = adjacent(x, *table)
    return ((half(x, *table) - right).abs().max() / right.abs().max()).item()


w, b, g = ["wq.weight", "wk.weight"], ["wq.bias", "wk.bias"], ["q_norm.weight", "k_norm.weight"]
errors = {"weights": converted(w), "and biases": converted(w + b), "and gains": converted(w + b + g)}
for words, error in errors.items():
    print(f"{words:<11} {'same layer, below 1e-12' if error < 1e-12 else 'another layer'}")
check_equal("errors above 0.01", [error > 0.01 for error in errors.values()], [True, True, False])

# %% [markdown] slideshow={"slide_type": "skip"}
# A forgotten gain is the quietest of these: with gains of one, as a fresh model has them, it does nothing, so a test on a fresh model passes.
# ([vllm#55335](https://github.com/vllm-project/vllm/issues/55335) folds the permutation into weights *and* norms.)
#
# ### The trap of the KV heads
#
# The permutation acts inside each head, and $W_k$ has $n_{kv}$ heads. A converter used $h / n_{kv}$ instead, the group size ([llama.cpp#3364](https://github.com/ggml-org/llama.cpp/issues/3364)).
# TinyLlama's config has 32 heads, 4 KV heads and heads of 64, so its $W_k$ has 256 rows. **Predict** how many of them end in a wrong place.

# %% slideshow={"slide_type": "slide", "title": "The trap of the KV heads: W_k has n_kv heads, not h / n_kv", "ask": "Q8", "text": "A converter used $h / n_{kv}$, the group size (llama.cpp#3364). TinyLlama has 32 heads, 4 KV heads, heads of 64: $W_k$ has 256 rows. **Predict** how many end in a wrong place."}
def misplaced(n_heads, n_kv_heads, head_dim):
    rows = torch.arange(n_kv_heads * head_dim)
    right, wrong = (permute_heads(rows, blocks) for blocks in (n_kv_heads, n_heads // n_kv_heads))
    return int((right != wrong).sum())


my_guess = None
predict(my_guess, misplaced(32, 4, 64), "rows of 256")
shapes = {"TinyLlama-1.1B": (32, 4, 64), "Llama-3-8B": (32, 8, 128)}
shapes |= {"Llama-2-70B": (64, 8, 128), "SmolLM2-135M": (9, 3, 64)}
for name, (h, n_kv, dh) in shapes.items():
    count = f"{misplaced(h, n_kv, dh):>3} of {n_kv * dh:>4} rows misplaced"
    print(f"{name:<15} h / n_kv = {h // n_kv}, n_kv = {n_kv}: {count}")
check_equal("TinyLlama", misplaced(32, 4, 64), 128)
check_equal("Llama-2-70B, SmolLM2", [misplaced(64, 8, 128), misplaced(9, 3, 64)], [0, 0])

# %% [markdown] slideshow={"slide_type": "notes"}
# On Llama-2-70B the wrong number is right by luck: 64 / 8 = 8. SmolLM2 hides the fault too, 9 / 3 = 3. Test a
# conversion on a shape where $h$, $n_{kv}$ and $h/n_{kv}$ all differ.
#
# ## 3 · Why the first token looks right
#
# Take random queries and keys of width 64 and compare their scores in the right and the wrong layout. (Everything is
# in float64, tables too, so that rounding cannot hide behind layout.) **Predict**: for a query and a key at the *same* position, how large is the error?

# %% slideshow={"slide_type": "slide", "title": "The first token looks right in either layout", "show": "printed", "ask": "Q7", "text": "Random queries and keys of width 64, right against wrong layout. **Predict** the error for a query and a key at the *same* position."}
torch.manual_seed(2)
q, k = torch.randn(2, 1, 2000, 1, 64, dtype=torch.float64)
angles = torch.outer(torch.arange(64).double(), torch.tensor(inv_freq(64)).double())


def scores(m, n, layout):
    turn = [(angles[p : p + 1].cos(), angles[p : p + 1].sin()) for p in (m, n)]
    return (apply_rope(q, *turn[0], layout) * apply_rope(k, *turn[1], layout)).sum(-1)


my_guess = None
error = {m: (scores(m, 5, "half") - scores(m, 5, "adjacent")).abs() for m in (5, 6, 9, 21, 37)}
predict(my_guess, round(error[5].mean().item(), 6))
for m in (6, 9, 21, 37):
    size = scores(m, 5, "half").abs().mean()
    print(f"distance {m - 5:>2}: mean error of a score {error[m].mean():.1f}, scores themselves {size:.1f}")
check_close("distance 0", scores(5, 5, "half"), scores(5, 5, "adjacent"))
check_equal("grows with the distance", bool(error[6].mean() < error[9].mean() < error[21].mean()), True)

# %% [markdown] slideshow={"slide_type": "notes"}
# A token's score with **itself** is $q^\top k$ in every layout: both are turned by the same angle. So the first token of a text, which can look at
# itself only, is computed perfectly. A test on one token passes. At distance 1 the error is about a third of a score, and it grows to the
# size of the scores themselves.
#
# What does that look like in a real model? SmolLM2's file is in half-split order. We run it as it is, then tell it that its layout is adjacent.
# Nothing else changes: same weights, same tables. Below is how far the model's distribution of the next token moves (KL divergence in
# nats, 0 = not at all) after 1, 2, 3 ... tokens of a text.

# %% slideshow={"slide_type": "subslide", "title": "SmolLM2 told the wrong layout: how far its next token moves", "show": "printed", "text": "Its file is in half-split order. We run it as it is, then tell it that its layout is adjacent; nothing else changes. KL divergence in nats of the next token's distribution, after 1, 2, 3 .. tokens of a text."}
folder = lib.find_model()
model, tokenizer = lib.load_model(folder), lib.load_tokenizer(folder)


def use(layout):
    for block in model.blocks:
        fields = block.attn.fields
        block.attn.fields = replace(fields, rope=replace(fields.rope, layout=layout))


text = "Water boils at 100 degrees Celsius and freezes at zero degrees. "
ids = torch.tensor([tokenizer.encode(text + "The sun rises in the east and sets in the").ids])
logp = {}
for layout in ("half", "adjacent"):
    use(layout)
    logp[layout] = model(ids)[0].log_softmax(-1)  # [T, V]
kl = (logp["half"].exp() * (logp["half"] - logp["adjacent"])).sum(-1)
print("after token 1:", "below 0.00001" if kl[0].abs() < 1e-5 else "moved")
print("after tokens 2, 3, .. 8:", [round(value, 1) for value in kl[1:8].tolist()])
check_equal("worse in the second half of the text", bool(kl[13:].mean() > kl[:12].mean()), True)

# %% [markdown] slideshow={"slide_type": "skip"}
# **Predict** before the next cell: how does the sentence go on in the wrong layout? Right away with nonsense, or sensibly at first?

# %% slideshow={"slide_type": "subslide", "title": "Fluent for two tokens, then garbage, and no error anywhere", "show": "printed", "text": "**Predict:** how does \"The sun rises in the east and sets in the\" go on in the wrong layout? And \"five, six, seven,\" after a count?"}
def goes_on(layout, ids, n):
    """n greedy tokens as text; each leads the second choice by more than any CPU's rounding."""
    use(layout)
    out = lib.generate(model, ids, n)
    top = model(out)[0, ids.shape[1] - 1 : -1].topk(2).values
    assert (top[:, 0] - top[:, 1]).min() > 0.01
    return tokenizer.decode(out[0, ids.shape[1] :].tolist())


text = "One, two, three, four, five, six, seven, eight, nine, ten, one, two, three, four, five, six, seven,"
prompts = {"sun": ids, "count": torch.tensor([tokenizer.encode(text).ids])}
for name, prompt in prompts.items():
    words = {layout: goes_on(layout, prompt, 8) for layout in ("half", "adjacent")}
    for layout in words:
        print(f"{name:<6} {layout:<9} {words[layout]!r}")
    check_equal(f"{name}: begins alike", words["half"][:6] == words["adjacent"][:6], name == "sun")
print(f"SmolLM2's own base: {model.config.layers[0].attention.rope.base:,.0f}")
model = None  # its memory is free again

# %% [markdown] slideshow={"slide_type": "notes"}
# The sun still sets in the west; then only line breaks come. The count is lost at once, for that one needs to know which word is where. This is the
# well-known picture of a wrong port: **fluent for two tokens and then garbage**, and no error anywhere. So a layout test compares scores at
# positions of 32 and more, never at 0, and on layers that have RoPE.
#
# ## 4 · Positions and precision
#
# Positions may shift, if all shift together: padding at the left of a row makes 5, 6, 7 of its 0, 1, 2, and every score stays. A shift on one side
# only is another matter: queries counted from the padded start, cached keys from the text's ([unsloth#4078](https://github.com/unslothai/unsloth/issues/4078)).
#
# What positions may not do is lose digits. Models run in bfloat16, which has 8 significant bits. **Predict**: of the positions 0 to 4,095, how many different
# ones are left in bfloat16?

# %% slideshow={"slide_type": "slide", "title": "Positions may shift together; they may not lose digits", "text": "bfloat16 has 8 significant bits. **Predict** how many of the positions 0 to 4,095 are left distinct in it."}
my_guess = None
positions = torch.arange(4096)
rounded = positions.bfloat16().long()
predict(my_guess, rounded.unique().numel())
first = int((rounded != positions).nonzero()[0])
print(f"first to go: {first} becomes {rounded[first].item()}; position 4095 becomes {rounded[4095].item()}")
check_equal("distinct", rounded.unique().numel(), 769)
theta = torch.tensor(inv_freq(128), dtype=torch.float64)
off = 4095 * (theta.bfloat16().double() - theta).abs()
print(f"frequencies in bfloat16: pair {int(off.argmax())} is {off.max():.1f} rad off at position 4095")
check_close("radians", off.max(), 5.0, 0.01)
check_close("both shifted by 5: same scores", scores(14, 9, "half"), scores(9, 4, "half"))
moved = (scores(14, 4, "half") - scores(9, 4, "half")).abs().mean()
check_equal("the query alone: scores move by more than 1 on average", bool(moved > 1), True)
near, far = torch.tensor([1.0, 6.0]).cos().tolist()
print(f"one pair, frequency 1, distance 1: {near:.4f}; with the query shifted by 5: {far:.4f}")

# %% [markdown] slideshow={"slide_type": "notes"}
# 257 and 256 are the same place ([transformers#29285](https://github.com/huggingface/transformers/issues/29285)). With exact positions and rounded frequencies the angle drifts: 5 radians is most of
# a turn. `lib.rope_cache` makes positions, angles, cos and sin in float32 whatever the model's dtype, and `lib.LlamaStyleLM` keeps its tables out of
# `model.to(bfloat16)`.
#
# ## 5 · The base, and what the model has seen
#
# $\theta_i = b^{-2i/d_h}$: the fastest pair turns by one radian a token at every base $b$. A larger base slows the others down, the last one most.
#
# **Predict**: over 131,072 tokens, how many full turns does the slowest pair of a head of 128 make at base 10,000? At 500,000?

# %% slideshow={"slide_type": "slide", "title": "The base decides which turns a model has seen", "ask": "Q9", "text": "$\\theta_i = b^{-2i/d_h}$: the fastest pair turns by one radian a token at every base.\n\n**Predict:** over 131,072 tokens, how many full turns does the slowest pair of a head of 128 make at base 10,000? At 500,000?"}
my_guess = None  # [turns at 10,000, turns at 500,000]
slowest = {base: lib.wavelengths(128, base)[-1] for base in (1e4, 5e5, 1e6)}
predict(my_guess, [round(131072 / slowest[base], 2) for base in (1e4, 5e5)])
for base, tokens in slowest.items():
    print(f"base {base:>9,.0f}: one turn of the slowest pair takes {tokens:>9,.0f} tokens")
for base, length, known in ((1e4, 4096, 46), (5e5, 8192, 35)):
    n = sum(tokens <= length for tokens in lib.wavelengths(128, base))
    print(f"base {base:>9,.0f}: {n} of 64 pairs complete a turn within {length:,} tokens, {64 - n} do not")
    check_equal("turned over", n, known)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A longer text meets angles that no weight has seen", "show": "", "text": "- at base 10,000 every hand has gone round more than twice at 131,072 tokens: no pair tells far from near\n- at 500,000 the slow ones stay unambiguous: a **larger base helps long contexts**\n- but a pair that completed no turn in training (18 of 64 at base 10,000 and 4,096 tokens) then turns on into **new angles**; a larger base does not change that\n- two ways out: train on longer texts, or **scale** the frequencies"}
# At base 10,000 every hand of the clock has gone round more than twice at 131,072 tokens: no pair is left whose angle tells far from near. At
# 500,000 the slow ones have barely moved, and stay unambiguous. That is why a **larger base helps long contexts**.
#
# The second count is about training. A pair that completed a turn has shown the model all its angles. One that did not, 18 of 64 at base 10,000 and 4,096
# tokens, has shown a part of the circle. On a longer text it turns on **into angles that no weight has ever met**. A larger base alone does not change
# that: Llama 3's 29 unfinished pairs are more, not fewer.
#
# So there are two ways to a longer context: train on it, at a base that suits it; or **scale** the frequencies so that longer texts stay inside the known
# angles.
#
# Move the sliders. On the left, grey is before scaling, and orange crosses are pairs that meet new angles at the tested length. Try each kind of scaling at 16,384 tokens, and see on the right what it
# does to the fast pairs. (Trained length 4,096, heads of 128; section 6 derives each kind.)

# %% slideshow={"slide_type": "slide", "title": "Try each kind of scaling at 16,384 tokens: which pairs meet new angles?"}
spectrum_explorer

# %% slideshow={"slide_type": "subslide", "title": "None, NTK, YaRN: what each does to the 64 pairs", "show": "printed", "text": "Heads of 128, trained on 4,096, tested at 16,384:"}
fig = plt.figure(figsize=(11, 13))
for part, kind in zip(fig.subfigures(3, 1), ("none", "NTK", "yarn")):
    draw(setup(part), spectrum_explorer.table(kind=kind))
    _ = part.suptitle(f"scaling: {kind}", fontweight="bold", color=COLORS["new"])
plt.show()
new = {}
for kind in KINDS:
    t = spectrum_explorer.table(kind=kind)
    new[kind] = t["n_new"]
    counts = f"{t['n_kept']:>2} pairs kept, {t['n_divided']:>2} divided by 4"
    print(f"{kind:<18} {counts}, {t['n_new']:>2} meet new angles")
check_equal("new angles", list(new.values()), [18, 0, 17, 0, 0, 0])
slow = [spectrum_explorer.table(kind=kind)["divided_by"][-1] for kind in ("NTK", "dynamic, factor 2")]
print(f"the last pair is divided by {slow[0]:.0f}, and by {slow[1]:.0f} under dynamic with factor 2")

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: wavelengths rise from about 6 to 54,410 tokens, a straight line on a log scale. Without scaling, the 18 pairs above the trained length are orange crosses. NTK tilts the
# line so that the last pair is stretched by 4; the 17 before it are stretched by less and still leave the known angles. YaRN keeps the fast pairs, stretches the slow ones by 4, and bends between; no cross is left.*
#
# "Dynamic, factor 2" is what a config like InternLM2.5's asks for at this length: the base rises so fast that no pair leaves the known angles. Its price is paid by no short text,
# because it starts at the trained length, and by every cached key, which was turned with another base (section 8).
#
# ## 6 · Five kinds of scaling
#
# **Linear** (`"linear"`, position interpolation): every frequency divided by $s$. No new angles, but neighbours now differ by $1/s$ radian in the fastest pair.
#
# **NTK** raises the base instead, so that the slowest pair is divided by $s$ and the fastest stays: $b' = b\, s^{d_h/(d_h-2)}$. **Predict** $b'$ for $s = 4$, $b = 10{,}000$,
# $d_h = 128$. **Dynamic** NTK (`"dynamic"`) does this at each length $L$ of the text beyond the trained $L_0$, with $s \frac{L}{L_0} - (s - 1)$ in the place of $s$:

# %% slideshow={"slide_type": "slide", "title": "Linear divides every frequency; NTK raises the base", "text": "NTK: the slowest pair is divided by $s$, the fastest stays: $b' = b\\, s^{d_h/(d_h-2)}$. Dynamic NTK does so at each length.\n\n**Predict** $b'$ for $s = 4$, $b = 10{,}000$, $d_h = 128$."}
my_guess = None
predict(my_guess, round(10_000 * 4 ** (128 / 126)), "instead of 40,000")
linear = inv_freq(128, scaling=Scaling("linear", 4.0))
check_close("linear, position 100, first pair", 100 * linear[0], 25.0)
dynamic = Scaling("dynamic", factor=2.0, original_max_len=2048, max_len=8192)
bases = {}
for length in (2048, 2049, 4096, 8192):
    ratio = inv_freq(128, scaling=dynamic, length=length)[-1]  # base ** (-126/128)
    bases[length] = ratio ** (-128 / 126)
    print(f"factor 2, trained 2,048, text of {length:,}: base {bases[length]:,.2f}")
check_close("published", list(bases.values()), [10000, 10009.92, 30527.74, 72195.86], 1e-6)
by_length = inv_freq(128, scaling=replace(dynamic, factor=1.0), length=8192)
check_close("factor 1, text 4 times as long", by_length, inv_freq(128, 10_000 * 4 ** (128 / 126)))

# %% [markdown] slideshow={"slide_type": "skip"}
# InternLM2.5-7B names `"dynamic"` with `factor` 2.0. A static version, evaluated once at the maximum, gives short texts another model ([vllm#3488](https://github.com/vllm-project/vllm/issues/3488)). And since the base moves while
# the text grows, keys cached under an earlier base no longer fit.
#
# **llama3** (Llama 3.1 and later) looks at each pair's turns within the original length: more than `high_freq_factor` (4) turns, keep; fewer than
# `low_freq_factor` (1), divide by `factor`; between, blend. In code, against the library. **Predict** how many of the 64 pairs Llama-3.1-8B keeps.

# %% slideshow={"slide_type": "slide", "title": "llama3 keeps fast pairs, divides slow ones, blends between", "show": "code"}
def llama3(theta, s):
    turns = s.original_max_len * theta / (2 * pi)
    keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    keep = min(max(keep, 0.0), 1.0)
    return keep * theta + (1 - keep) * theta / s.factor


my_guess = None
llama31_8b, llama32_1b = Scaling("llama3", 8.0, 8192, 131072), Scaling("llama3", 32.0, 8192, 131072)
bands = {}
for name, dh, s in (("Llama-3.1-8B", 128, llama31_8b), ("Llama-3.2-1B", 64, llama32_1b)):
    plain, scaled = inv_freq(dh, 5e5), [llama3(theta, s) for theta in inv_freq(dh, 5e5)]
    check_close(f"{name}: by hand = lib", scaled, inv_freq(dh, 5e5, s))
    kept = sum(a == b for a, b in zip(plain, scaled))
    divided = sum(a / s.factor == b for a, b in zip(plain, scaled))
    bands[name] = (kept, dh // 2 - kept - divided, divided)
predict(my_guess, bands["Llama-3.1-8B"][0], "pairs kept by Llama-3.1-8B")
check_equal("kept, blended, divided", bands, {"Llama-3.1-8B": (29, 6, 29), "Llama-3.2-1B": (15, 3, 14)})

# %% [markdown] slideshow={"slide_type": "slide", "title": "YaRN draws the line by pair number and adds a temperature", "show": "", "text": "- pairs that turn more than `beta_fast` (32) times in training are kept, fewer than `beta_slow` (1) divided, a ramp between\n- a longer text spreads the softmax over more keys: cos and sin times $0.1 \\ln s + 1$, so scores by its square\n- DeepSeek's `mscale_all_dim` acts on the softmax scale instead\n- **longrope** (Phi-3.5) names a divisor for each pair, found by search"}
# **YaRN** (`"yarn"`: DeepSeek, gpt-oss, OLMo 3) draws the same line by pair number: pairs that turn more than `beta_fast` (32) times in training are kept, fewer than
# `beta_slow` (1) times divided, with a straight ramp over the pairs between. It adds a **temperature**: a longer text spreads the softmax over more keys, and
# larger scores sharpen it again. gpt-oss and OLMo 3 multiply cos and sin by $0.1 \ln s + 1$, so scores by its square. DeepSeek's configs have `mscale` and `mscale_all_dim`: the ratio of the two factors goes on cos and sin (1
# for V3), and the square of the second on the softmax scale. In MLA that is not the same thing, since only a part of a score is rotated ([chapter 06](06_mla.ipynb)).
#
# **longrope** (Phi-3.5) names a divisor for each pair, found by search: `short_factor` for texts of up to the original length, `long_factor` beyond. `PHI35` holds both lists of
# Phi-3.5-mini's config (heads of 96, from 4,096 to 131,072 tokens).

# %% slideshow={"slide_type": "skip"}
yarn = Scaling("yarn", factor=40.0, original_max_len=4096, max_len=163840)
v3 = replace(yarn, mscale=1.0, mscale_all_dim=1.0)  # as DeepSeek-V3's config.json has them; 64 rotary dimensions
print("V3's ramp runs from pair", *lib.yarn_range(64, 1e4, v3))
print("cos and sin times", {s: round(0.1 * log(s) + 1, 4) for s in (4, 16, 32, 40, 64)})
check_close("without these two fields", lib.rope_attention_factor(yarn), 0.1 * log(40) + 1)
check_equal("V3's cos and sin times", lib.rope_attention_factor(v3), 1.0)
print(f"V3's softmax scale times {lib.yarn_mscale(40, 1.0) ** 2:.4f}")
print("long_factor:", *PHI35["long_factor"][:4], "..", *PHI35["long_factor"][-3:])
phi = Scaling("longrope", factor=32.0, original_max_len=4096, max_len=131072, **PHI35)
for length in (4096, 4097):
    divisors = [a / b for a, b in zip(inv_freq(96), inv_freq(96, scaling=phi, length=length))]
    print(f"text of {length:,}: first pair divided by {divisors[0]:.2f}, last by {divisors[-1]:.2f}")
print(f"cos and sin times sqrt(1 + ln 32 / ln 4096) = {lib.rope_attention_factor(phi):.4f}")
check_close("longrope's factor", lib.rope_attention_factor(phi), (1 + log(32) / log(4096)) ** 0.5)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Not every dimension turns", "show": "", "text": "`partial_rotary_factor`, `rotary_pct`, `rotary_dim`: only the first part of each head turns, the rest carries content. The exponent runs over the **rotary** width."}
# The list must be chosen once per text: a long prompt that is fed in chunks would otherwise get two rotations in one cache, one before the boundary and one after it ([vllm#27431](https://github.com/vllm-project/vllm/issues/27431)).
#
# ## 7 · Not every dimension, not every layer, not one base
#
# **Partial rotary.** Some models turn only the first part of each head; the rest carries content without position. The field has many names:
# `partial_rotary_factor` (GLM-4.5 0.5, Qwen3-Next 0.25), `rotary_pct` (Pythia 0.25), `rotary_dim` (MiniMax-M2.5: 64 of 128). The exponent then runs
# over the **rotary** width, and so do the pairs. A head of 8 with 4 rotary dimensions, $x = 1 \ldots 8$, position 3:

# %% slideshow={"slide_type": "-", "show": "printed"}
x = torch.arange(1.0, 9.0, dtype=torch.float64).view(1, 1, 1, 8)
out = apply_rope(x, *rope_cache(1, 4, start=3)).flatten()  # a table of width 4 turns four dimensions
print([round(value, 4) for value in out.tolist()])
check_close("first four turned", out[:4], [-1.413353, 1.879118, -2.828857, 4.058191], 1e-6)
check_equal("last four untouched", out[4:].tolist(), [5, 6, 7, 8])
shares = {"Qwen3-Next-80B-A3B": (256, 0.25), "GLM-4.5": (128, 0.5), "Pythia-410m": (64, 0.25)}
for name, (head_dim, share) in shares.items():
    print(f"{name:<19} turns {int(head_dim * share):>2} of {head_dim} dimensions of a head")

# %% [markdown] slideshow={"slide_type": "skip"}
# **Two bases.** Gemma 3 has sliding-window layers with one base (`rope_local_base_freq`) and global ones with another (`rope_theta`).
#
# **NoPE layers.** SmolLM3 and Llama 4 leave RoPE out of some layers altogether. SmolLM3's field is called `no_rope_layers` and holds 1, 1, 1, 0, nine times over; **a 1 means
# RoPE**, whatever the name says. We read both configs: sizes from `SHAPES`, the fields of interest in the cell. **Predict**: how many of SmolLM3's 36 layers have no RoPE?

# %% slideshow={"slide_type": "slide", "title": "Not every layer rotates, and not with one base", "text": "SmolLM3's `no_rope_layers` holds 1, 1, 1, 0, nine times over; **a 1 means RoPE**. **Predict** how many of its 36 layers have no RoPE."}
rhythm = [1, 1, 1, 0] * 9
smollm3 = lib.read_config(SHAPES["SmolLM3-3B"] | {"rope_theta": 5000000.0, "no_rope_layers": rhythm})
without = [i for i, layer in enumerate(smollm3.layers) if layer.attention.rope is None]
my_guess = None
predict(my_guess, len(without), "NoPE layers of 36")
print("layers without RoPE:", without)
check_equal("ones are RoPE", len(without), rhythm.count(0))
bases = {"rope_theta": 1000000, "rope_local_base_freq": 10000}
windows = {"sliding_window": 512, "sliding_window_pattern": 6}
gemma3 = lib.read_config(SHAPES["Gemma-3-1B"] | bases | windows)
for i in (0, 4, 5, 6):
    attention = gemma3.layers[i].attention
    print(f"Gemma-3-1B layer {i}: base {attention.rope.base:>9,.0f}, window {attention.window}")

# %% [markdown] slideshow={"slide_type": "notes"}
# A NoPE layer knows order only from the causal mask and from what earlier layers wrote into the stream. A layout test on such a layer passes whatever the layout.
# Why leave positions out? To reach longer texts than those of training: Kazemnejad et al. report it of small decoders ([arXiv 2305.19466](https://arxiv.org/abs/2305.19466)); nothing here tests it.
# Llama 4 Scout has SmolLM3's rhythm, which its config.json does not spell out: its class adds `no_rope_layers` with every fourth entry 0.
#
# ### Where did `rope_theta` go?
#
# transformers 5 writes the base **inside** `rope_parameters`, and its config objects no longer have `rope_theta`. Code that asks for the old field with a default of
# 10,000 gets 10,000, without a word ([DeepSpeed#8345](https://github.com/deepspeedai/DeepSpeed/issues/8345), [vllm#42624](https://github.com/vllm-project/vllm/issues/42624)). For Llama 3 that is 50 times off. `lib.read_config` knows both, and says so when a file names no base:

# %% slideshow={"slide_type": "slide", "title": "Where did rope_theta go? A default of 10,000, without a word", "show": "printed", "text": "transformers 5 writes the base **inside** `rope_parameters`. Code that asks for the old field with a default gets 10,000: for Llama 3 that is 50 times off. A reader has to know both spellings, and to say so when a file names no base."}
llama = SHAPES["Llama-3-8B"]
spellings = {
    "old": {"rope_theta": 500000.0, "rope_scaling": None},
    "new": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "silent": {},
}
for name, fields in spellings.items():
    right = lib.read_config(llama | fields).layers[0].attention.rope.base
    careless = fields.get("rope_theta", 10000.0)
    angle = 1000 * inv_freq(4, careless)[1]  # exponent 1/2
    print(f"{name:<7} lib {right:>7,.0f}   careless {careless:>7,.0f}: {angle:.6f} rad at position 1000")
print(lib.read_config(llama).warnings[0])
check_close("right angle", 1000 * inv_freq(4, 5e5)[1], 1.414214, 1e-6)
check_close("the silent error", 1000 * inv_freq(4, 1e4)[1], 10.0)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 8 · Bugs that shipped
#
# **Parsed and never applied; applied the wrong way round.** Loaders read `rope_scaling` of Llama 3.1+ and rotated with the plain frequencies ([felafax#59](https://github.com/felafax/felafax/issues/59), tiny-vllm#1);
# short prompts look fine. A draft for another library blended wavelengths, with the weights reversed ([mlx-examples#907](https://github.com/ml-explore/mlx-examples/issues/907)). Pair 15 of Llama-3.2-1B:

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: scaling not applied, or the wrong way round", "show": "printed", "text": "Loaders read `rope_scaling` of Llama 3.1+ and rotated with the plain frequencies: short prompts look fine. A draft blended wavelengths with the weights reversed. Pair 15 of Llama-3.2-1B:"}
theta = inv_freq(64, 5e5)[15]
length = 2 * pi / theta
share = (length - 8192 / 4) / (8192 / 1 - 8192 / 4)
draft = 2 * pi / (share * length + (1 - share) * 32 * length)
right = inv_freq(64, 5e5, llama32_1b)[15]
print(f"right {right:.9f}   not applied {theta:.9f}   draft {draft:.9f}")
check_close("all three", [right, theta, draft], [0.001290548, 0.002131120, 0.000077615], 1e-6)

# %% [markdown] slideshow={"slide_type": "skip"}
# **The factor that was final.** A config may name `attention_factor` for YaRN: that **is** the multiplier of cos and sin. Code has ignored it, multiplied it with the
# default again, or put it through the logarithm ([mlx-lm#1507](https://github.com/ml-explore/mlx-lm/issues/1507), [vllm#46280](https://github.com/vllm-project/vllm/issues/46280), [sglang#33558](https://github.com/sgl-project/sglang/issues/33558)). OLMo-3-7B's file gives 1.2079441541679836 with `factor` 8:
#
# **A base that follows the buffer.** A textbook multiplied the base by new length over old when it allocated a shorter buffer ([LLMs-from-scratch#419](https://github.com/rasbt/LLMs-from-scratch/issues/419)). The base is part of
# the trained model; memory is not. Llama-3.2-1B, buffer cut from 131,072 to 8,192, pair 16 before scaling:

# %% slideshow={"slide_type": "subslide", "title": "Bugs that shipped: the factor that was final, the base that followed a buffer", "show": "printed", "text": "`attention_factor` **is** the multiplier of cos and sin; code has ignored it, doubled it, put it through the logarithm. The base is part of the trained model; memory is not."}
olmo = Scaling("yarn", factor=8.0, original_max_len=8192, attention_factor=1.2079441541679836)
right, default = lib.rope_attention_factor(olmo), 0.1 * log(8) + 1
print(f"OLMo-3: right {right:.4f}   twice {right * default:.4f}   through the log {0.1 * log(right) + 1:.4f}")
given = lib.rope_attention_factor(replace(olmo, factor=64.0, attention_factor=1.0))
print(f"factor 64, attention_factor 1.0: right {given:.4f}   ignored {0.1 * log(64) + 1:.4f}")
check_close("final", [right, given], [default, 1.0])
rescaled = inv_freq(64, 5e5 * 8192 / 131072)[16]
print(f"pair 16: base 500,000 {inv_freq(64, 5e5)[16]:.8f}   base {5e5 * 8192 / 131072:,.0f} {rescaled:.8f}")
check_close("pair 16", [inv_freq(64, 5e5)[16], rescaled], [0.00141421, 0.00565685], 1e-5)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# **1. Convert.** `w_k` [n_kv · d_h, d] is a key weight in adjacent order. Return it in half-split order. (`layout_permutation` gives the order of one head.)

# %% tags=["exercise"]
def my_permute(w_k, n_heads, n_kv_heads):
    ...

# %% tags=["check"]
check("04.permute", my_permute)

# %% tags=["solution"] jupyter={"source_hidden": true}
def permute_solution(w_k, n_heads, n_kv_heads):
    per_head = w_k.unflatten(0, (n_kv_heads, -1))  # [n_kv, dh, d]
    return per_head[:, layout_permutation(per_head.shape[1], to="half")].flatten(0, 1)


check("04.permute", permute_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **2. Why does increasing the RoPE base help long contexts?** Choose one.
#
# - **a** The fast pairs turn faster, so neighbouring tokens are told apart better.
# - **b** Keys that are far away become longer, so their scores do not fade.
# - **c** The slow pairs turn more slowly, so far apart their angle is still less than a turn and stays unambiguous.
# - **d** A trained model with a larger base needs no training on longer texts.

# %% tags=["exercise"]
my_choice = None

# %% tags=["check"]
check("04.why_base", my_choice)

# %% tags=["solution"] jupyter={"source_hidden": true}
def why_base_solution():
    return "c"


check("04.why_base", why_base_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **3. Read the base.** `config` is a dict as in a config.json: the base may stand in `rope_theta`, in `rope_parameters`, there per kind of layer (take
# `full_attention`), or in `rotary_emb_base`. Where a nested and an old field are both there, the nested one counts. Where there is none, return `None`.

# %% tags=["exercise"]
def my_base(config):
    ...

# %% tags=["check"]
check("04.read_base", my_base)

# %% tags=["solution"] jupyter={"source_hidden": true}
def read_base_solution(config):
    nested = config.get("rope_parameters") or {}
    nested = nested.get("full_attention", nested)
    return nested.get("rope_theta", config.get("rope_theta", config.get("rotary_emb_base")))


check("04.read_base", read_base_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4. Find the fault.** Partial rotary, half-split, for one head vector `x` [d_h]. It is right at position 0 and drifts from there. Mend it.

# %% tags=["exercise"]
def my_partial(x, rotary_dim, position, base):
    theta = base ** (-torch.arange(0, rotary_dim, 2).double() / x.shape[-1])
    cos, sin = (position * theta).cos(), (position * theta).sin()
    a, b = x[: rotary_dim // 2], x[rotary_dim // 2 : rotary_dim]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, x[rotary_dim:]])

# %% tags=["check"]
check("04.partial", my_partial)

# %% tags=["solution"] jupyter={"source_hidden": true}
def partial_solution(x, rotary_dim, position, base):
    theta = base ** (-torch.arange(0, rotary_dim, 2).double() / rotary_dim)
    cos, sin = (position * theta).cos(), (position * theta).sin()
    a, b = x[: rotary_dim // 2], x[rotary_dim // 2 : rotary_dim]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, x[rotary_dim:]])


check("04.partial", partial_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "The file does not say the layout: it follows from the format and the class", "show": "", "text": "- test a conversion where $h$, $n_{kv}$ and $h/n_{kv}$ all differ; compare scores at positions of 32 and more, never at 0\n- which pairs has training seen? 46 of 64 at base 10,000 and 4,096 tokens, 35 at 500,000 and 8,192\n- read base and scaling wherever the file keeps them; a default of 10,000 is no reading\n- positions and tables in float32\n- to take home: `04.permute`, `04.why_base`, `04.read_base`"}
# ## What you can do now
#
# You **converted** a layer with biases and QK-norm between the layouts, exactly, and counted the rows that the KV-head trap misplaces; **said** why the first token survives
# the wrong layout, and saw SmolLM2 do it; **computed** the pairs that training has seen (46 and 35 of 64), and what each kind of scaling does to them; **read** base, scaling, partial
# rotary and NoPE layers from configs; **chose** float32 for positions and tables. Proved equal: permuted weights in one layout = the others in the other; the llama3 rule by hand = `lib`.
#
# **In practice.** Bases have grown. Llama-2-7B's config.json names none (its class default is 10,000); Llama 3 has `rope_theta` 500,000, Qwen3 1,000,000, SmolLM2-135M 100,000, Gemma 3 1,000,000 in
# its global layers and 10,000 in the local ones. The scaling is in `rope_scaling` or `rope_parameters`, its kind under `rope_type` or, in older files, `type`. The layout is in no field
# of these files: it follows from the format and the class. GGUF files of Llama models are in adjacent order, their Hugging Face twins half-split.
#
# **Sources.** Su et al. 2021, RoFormer ([arXiv 2104.09864](https://arxiv.org/abs/2104.09864)), eq. 15. Chen et al. 2023, Position Interpolation ([arXiv 2306.15595](https://arxiv.org/abs/2306.15595)): linear. Peng et al. 2023, YaRN ([arXiv 2309.00071](https://arxiv.org/abs/2309.00071)), eq. 22 for the temperature; it also
# describes NTK-aware and dynamic scaling. Ding et al. 2024, LongRoPE ([arXiv 2402.13753](https://arxiv.org/abs/2402.13753)). Kazemnejad et al. 2023 ([arXiv 2305.19466](https://arxiv.org/abs/2305.19466)) on NoPE. The issues named above, by repository and number.

# %% slideshow={"slide_type": "skip"}
progress("04")
