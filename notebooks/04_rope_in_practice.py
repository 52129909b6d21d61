# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "RoPE has no parameters, and yet it is where ports go wrong. After this chapter you can"}
# # 04 · RoPE in practice
#
# RoPE has no parameters, and yet it is where ports go wrong: two programs can disagree on a good deal while both rotate.
#
# After it you will be able to
# - **convert** a layer from one RoPE layout to the other;
# - **recognise** a fault in a port by the curve that it draws;
# - **compute** which angles a model has seen, and **write** llama3 and YaRN scaling;
# - **read** base, scaling, partial rotary and NoPE layers in a config;
# - **choose** the precision of positions and tables.
#
# You need [chapter 03](03_rope.ipynb) (the rotation and its frequencies). About 60 minutes.

# %% slideshow={"slide_type": "skip"}
from math import log, pi

import matplotlib.pyplot as plt
import torch

import lib
from book import configs, evidence, ports
from book.corpus import load_corpus
from book.exercises import check, mine, progress
from book.explore import ch04_rope_practice as pictures
from book.explore.ch04_rope_practice import PHI35, SHAPES, spectrum_explorer
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
# - **half-split**: $i$ with $i + d_h/2$. Most Hugging Face classes: Llama, Qwen, Mistral, Gemma. (Those for Cohere, GLM-4, ERNIE 4.5, Llama 4 and DeepSeek are adjacent: the layout
#   belongs to the class, not to the library.)
#
# A checkpoint was trained so that certain rows of $W_q$ and $W_k$ turn together. To run adjacent weights with
# half-split code, put the rows where that code looks for pairs. A head of 8 has the adjacent pairs (0,1), (2,3), (4,5), (6,7); half-split code
# turns places 0 and 4, 1 and 5, 2 and 6, 3 and 7.
#
# **Write down** the new order: which row must come to place 0, 1, 2, ... 7?

# %% slideshow={"slide_type": "slide", "title": "A checkpoint belongs to one layout: rows must move", "show": "picture", "text": "A head of 8 has the adjacent pairs (0,1), (2,3), (4,5), (6,7). Half-split code turns places 0 and 4, 1 and 5, 2 and 6, 3 and 7.\n\n**Write down** which row must come to place 0, 1, 2, .. 7."}
my_guess = None  # a list of eight row numbers
order = layout_permutation(8, to="half").tolist()
predict(my_guess, order)
fig, ax = plt.subplots(figsize=(10, 4))
pairs = pictures.draw_ribbons(ax, order)
plt.show()
print(pairs)
x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 1, 4)
for layout in ("adjacent", "half"):
    got = apply_rope(x, *rope_cache(1, 4, start=1), layout).flatten().tolist()
    print(f"1, 2, 3, 4 at position 1, {layout:<9}", [round(value, 5) for value in got])
torch.manual_seed(0)
q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
at_q, at_k, score = rope_cache(1, 8, start=7), rope_cache(1, 8, start=3), {}
whole = range(8)
for words, rows, layout in (("adjacent", whole, "adjacent"), ("permuted", order, "half"), ("not permuted", whole, "half")):
    score[words] = (apply_rope(q[..., rows], *at_q, layout) * apply_rope(k[..., rows], *at_k, layout)).sum()
    print(f"a score, {words + ', ' + layout:<19} {score[words]:+.4f}")
check_close("permuted, half-split = adjacent", score["permuted"], score["adjacent"])

# %% [markdown] slideshow={"slide_type": "slide", "title": "A layout is a permutation of weights, not another model", "show": "", "text": "- the same vector comes out differently, and neither result is wrong\n- a score is a sum over dimensions: their order does not matter, as long as $q$ and $k$ have the same one\n- permuted weights in one layout give the scores of the other"}
# *In words: two ribbons of eight squares. Above, partners are neighbours and share a colour. Lines lead the even rows to the left half below and
# the odd rows to the right half, so that partners lie four places apart.*
#
# The same vector comes out differently, and neither result is wrong ([transformers#25199](https://github.com/huggingface/transformers/issues/25199)). A score is a sum over
# dimensions; it does not depend on their order, as long as $q$ and $k$ have the same one. So a layout is **a permutation of weights, not another model**.
#
# ## 2 · Everything that has rows
#
# **Exercise 1. Convert.** `w_k` is the keys' weight $[n_{kv} d_h, d]$ or their bias $[n_{kv} d_h]$, in adjacent order. Return it in half-split order. The chapter goes on with your function
# once it passes.

# %% tags=["exercise"]
def my_permute(w_k, n_heads, n_kv_heads):
    ...

# %% tags=["check"]
check("04.permute", my_permute)

# %% tags=["solution"] jupyter={"source_hidden": true}
def permute_solution(w_k, n_heads, n_kv_heads):
    per_head = w_k.unflatten(0, (n_kv_heads, -1))  # [n_kv, dh, d]
    order = torch.arange(per_head.shape[1])
    return per_head[:, torch.cat([order[0::2], order[1::2]])].flatten(0, 1)


check("04.permute", permute_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Everything that feeds the rotation has rows to move", "show": "", "text": "A layer with biases and QK-norm, all random. **Predict** how many of its tensors must be permuted."}
# A layer with biases and QK-norm, all random: **predict** how many of its tensors must be permuted. We then convert all of these but one kind, for each kind in turn.
#
# A converter once took $h / n_{kv}$ for the number of heads in $W_k$ ([llama.cpp#3364](https://github.com/ggml-org/llama.cpp/issues/3364)). TinyLlama's config has 32 heads, 4 KV heads and heads of 64, so its $W_k$ has 256
# rows. **Predict** how many of them end in a wrong place.

# %% slideshow={"slide_type": "fragment", "show": "printed"}
permute = mine("04.permute")
torch.manual_seed(1)
shape = {"d": 24, "n_heads": 6, "n_kv_heads": 2, "head_dim": 10, "qk_norm": True, "bias": True}
adjacent, half = (lib.GQAttention(**shape, rope=lib.Rope(layout=w)).double() for w in ("adjacent", "half"))
weights = {name: torch.randn_like(w) for name, w in adjacent.state_dict().items()}
_ = adjacent.load_state_dict(weights)
x, table = torch.randn(1, 40, 24, dtype=torch.float64), rope_cache(40, 10)
heads = {"wq.weight": 6, "wk.weight": 2, "wq.bias": 6, "wk.bias": 2, "q_norm.weight": 1, "k_norm.weight": 1}
my_guess = None
predict(my_guess, len(heads), f"of {len(weights)} tensors")


def error_without(kind):
    moved = {n: permute(weights[n], 6, count) for n, count in heads.items() if kind not in n}
    half.load_state_dict(weights | moved)
    return ((half(x, *table) - adjacent(x, *table)).abs().max() / adjacent(x, *table).abs().max()).item()


errors = {kind: error_without(kind) for kind in ("wq.w", "wk.w", "bias", "norm", "nothing")}
check_equal("left out, another layer", [k for k, e in errors.items() if e > 0.01], ["wq.w", "wk.w", "bias", "norm"])

# %% slideshow={"slide_type": "slide", "title": "The trap of the KV heads: W_k has n_kv heads, not h / n_kv", "ask": "Q8", "text": "A converter used $h / n_{kv}$, the group size ([llama.cpp#3364](https://github.com/ggml-org/llama.cpp/issues/3364)). TinyLlama has 32 heads, 4 KV heads, heads of 64: $W_k$ has 256 rows. **Predict** how many end in a wrong place."}
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

# %% [markdown] slideshow={"slide_type": "notes"}
# Whatever feeds the rotation has rows to move: weights, biases, and the gains of QK-norm. A forgotten gain is the quietest: a fresh model's gains are all 1, so a test on
# one passes ([vllm#55335](https://github.com/vllm-project/vllm/issues/55335)). And $h / n_{kv}$ is right by luck on Llama-2-70B and SmolLM2. Test where $h$, $n_{kv}$ and $h/n_{kv}$
# differ, with random gains.
#
# ## 3 · The port doctor
#
# Take random queries and keys of width 64, and their scores in the right and the wrong layout, in float64. **Predict** the mean error for a query and
# a key at the *same* position.
#
# Then SmolLM2, whose file is half-split, continues two prompts as it is and as if it were adjacent: "The sun rises in the east and sets in the", and a count to ten that
# starts again. **Predict** how many of the first eight tokens agree.

# %% slideshow={"slide_type": "slide", "title": "The first token looks right in either layout", "show": "printed", "ask": "Q7", "text": "Random queries and keys of width 64, right against wrong layout. **Predict** the error for a query and a key at the *same* position."}
def turn(x, position, theta, layout="half"):
    """x [.., d_h] at one position, in the precision of x."""
    angles = (position * theta)[None]
    return apply_rope(x[..., None, :], angles.cos(), angles.sin(), layout)[..., 0, :]


torch.manual_seed(2)
q, k = torch.randn(2, 2000, 64, dtype=torch.float64)
theta = torch.tensor(inv_freq(64), dtype=torch.float64)
scores = {(m, n, w): (turn(q, m, theta, w) * turn(k, n, theta, w)).sum(-1)
          for m, n in ((5, 5), (6, 5), (9, 5), (21, 5), (37, 5), (14, 10), (14, 5)) for w in ("half", "adjacent")}  # fmt: skip
error = {m: (scores[m, 5, "half"] - scores[m, 5, "adjacent"]).abs().mean().item() for m in (5, 6, 9, 21, 37)}
my_guess = None
predict(my_guess, round(error[5], 6))
size = scores[37, 5, "half"].abs().mean()
print("distance", {m - 5: f"{error[m]:.1f}" for m in (6, 9, 21, 37)}, f"of scores of {size:.1f}")
check_close("query and key both 5 later: same scores", scores[14, 10, "half"], scores[9, 5, "half"])
check_equal("query alone: moved by more than 1", bool((scores[14, 5, "half"] - scores[9, 5, "half"]).abs().mean() > 1), True)

# %% slideshow={"slide_type": "subslide", "title": "Fluent for two tokens, then garbage, and no error anywhere", "show": "printed", "text": "SmolLM2 in the wrong layout. **Predict** how many of the first eight tokens agree after \"The sun rises in the east and sets in the\", and after a count."}
model, tokenizer = (load(lib.find_model()) for load in (lib.load_model, lib.load_tokenizer))


def goes_on(prompt, fault):
    """Eight greedy tokens; each leads the second choice by more than any CPU's rounding."""
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    for _ in range(8):
        logits = ports.run(model, ids, fault)[:, -1] @ model.emb.weight.T
        best = logits.topk(2)
        assert best.values[0, 0] - best.values[0, 1] > 0.01
        ids = torch.cat([ids, best.indices[:, :1]], 1)
    return ids[0, -8:].tolist()


prompts = ["Water boils at 100 degrees Celsius and freezes at zero degrees. The sun rises in the east and sets in the",
           "One, two, three, four, five, six, seven, eight, nine, ten, one, two, three, four, five, six, seven,"]  # fmt: skip
said = [[goes_on(prompt, fault) for fault in ("right", "wrong layout")] for prompt in prompts]
my_guess = None  # [sun, count]
predict(my_guess, [([a == b for a, b in zip(*pair)] + [False]).index(False) for pair in said])
_ = [print(repr(tokenizer.decode(right)), "  adjacent:", repr(tokenizer.decode(wrong))) for right, wrong in said]

# %% [markdown] slideshow={"slide_type": "notes"}
# A token's score with **itself** is $q^\top k$ in every layout, so the first token of a text, which sees itself only, is computed perfectly. From distance 1 on
# the error grows to the size of the scores. Positions may shift if all shift together, as left padding does; a shift of the queries alone is a fault ([unsloth#4078](https://github.com/unslothai/unsloth/issues/4078)).
#
# The sun still sets in the west, then only line breaks come. The count, which must know which word is where, is lost at once. That port is known: **fluent for two tokens and then
# garbage**. No shape tells the layout, but the loss does:
#
# **Exercise 2. A layout detector.** `logits` maps `"half"` and `"adjacent"` to what a model gives in that layout $[T, V]$ for the tokens `ids` $[T]$. Return the layout with the smaller mean next-token
# loss, or `None` where the two are within 0.1 nats: not resolved.

# %% tags=["exercise"]
def my_layout(logits, ids):
    ...

# %% tags=["check"]
check("04.detect", my_layout)

# %% tags=["solution"] jupyter={"source_hidden": true}
def detect_solution(logits, ids):
    loss = {}
    for layout, each in logits.items():
        loss[layout] = torch.nn.functional.cross_entropy(each[:-1], ids[1:]).item()
    return min(loss, key=loss.get) if abs(loss["half"] - loss["adjacent"]) > 0.1 else None


check("04.detect", detect_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Five faults of a port, one at a time", "show": "list", "text": "How far the next-token distribution moves (KL, nats), and the loss, by position. **Predict** the KL at the end for the first two."}
# Five faults in one chart: how far the next-token distribution moves (KL divergence, nats), and the loss, by position, averaged over two excerpts of 288 tokens.
#
# - **wrong layout**; **base a tenth**: 10,000 for SmolLM2's 100,000; **positions in bf16**;
# - **cache restarted**: after a prompt of 64 tokens, positions begin at 0 again;
# - **scaling left out**: SmolLM2 has none, so we pretend: its 12 slowest pairs, those that turn less than once in 8,192 tokens, run 8 times too fast, as where a
#   loader ignores a llama3 factor of 8 (section 6).
#
# **Predict** the KL at the end for the first two, to a tenth of a nat. Which of the five does the *loss* show?

# %% slideshow={"slide_type": "slide", "title": "The port doctor's chart", "show": "picture"}
ids, _ = evidence.excerpts(load_corpus().decode(), tokenizer, n=2, length=288, every=40_000)
states = {fault: ports.run(model, ids, fault) for fault in ports.FAULTS}
curves = ports.curves(model, ids, states)
my_guess = None  # [wrong layout, base a tenth]
predict(my_guess, [round(curves[fault][0][-1].item(), 1) for fault in ports.FAULTS[1:3]], "nats")
fig = plt.figure(figsize=(12, 5.2))
table = pictures.draw_port_chart(fig, curves, ports.GROUPS)
plt.show()
print(table)
detect, layouts = mine("04.detect"), {"half": "right", "adjacent": "wrong layout"}
for length in (2, 128):
    logits = {w: states[fault][0, :length] @ model.emb.weight.T for w, fault in layouts.items()}
    print(f"layout told from {length} tokens: {detect(logits, ids[0, :length])}")
model = states = logits = None  # their memory is free again

# %% slideshow={"slide_type": "skip"}
kl, loss = ({fault: pair[i] for fault, pair in curves.items()} for i in (0, 1))
check_equal("the right model: 0 everywhere", bool(kl["right"].abs().max() == 0), True)
early = {fault: round((values[:11].max() / values.max()).item(), 1) for fault, values in kl.items() if fault != "right"}
check_equal("bf16: nothing up to token 257", early["positions in bf16"], 0.0)
healed = {fault: bool(values[-1] < values.max() / 5) for fault, values in kl.items() if fault != "right"}
check_equal("heals", [fault for fault in healed if healed[fault]], ["cache restarted"])
seen = [fault for fault in loss if loss[fault].max() > 1]
check_equal("loss more than 1 nat up somewhere", seen, ["wrong layout", "cache restarted"])

# %% [markdown] slideshow={"slide_type": "slide", "title": "Hold your port's curve beside it", "show": "", "text": "- wrong from the second token on: **layout**\n- a jump at the prompt's end that heals: **positions restarted**\n- a clean start and a slow rise: **base or scaling**, hardly visible in the loss\n- nothing up to token 257: **positions in bf16**"}
# *In words: by position, on a log scale. Left, KL: the wrong layout rises from 0 to several nats; a wrong base and scaling left out creep up below it; bf16 leaves 0 after 257 tokens; the
# restarted cache jumps after token 64 and comes down. Right, the loss: two curves leave the zero line, three stay near it.*
#
# Hold your port's curve beside it. Wrong from the second token on: layout. A jump at the prompt's end that heals as the text grows: positions restarted. A clean start and a slow rise: base or scaling, **hardly visible in the
# loss**; compare logits with the reference at a few hundred tokens.
#
# ## 4 · Positions and precision
#
# Models run in bfloat16, which has 8 significant bits. **Predict**: of the positions 0 to 4,095, how many different ones are left in bfloat16?

# %% slideshow={"slide_type": "slide", "title": "Positions may shift together; they may not lose digits", "text": "bfloat16 has 8 significant bits. **Predict** how many of the positions 0 to 4,095 are left distinct in it."}
my_guess = None
positions = torch.arange(4096)
rounded = positions.bfloat16().long()
predict(my_guess, rounded.unique().numel())
first = int((rounded != positions).nonzero()[0])
print(f"first to go: {first} becomes {rounded[first].item()}; position 4095 becomes {rounded[4095].item()}")
theta = torch.tensor(inv_freq(128), dtype=torch.float64)
off = 4095 * (theta.bfloat16().double() - theta).abs()
print(f"frequencies in bfloat16: pair {int(off.argmax())} is {off.max():.1f} rad off at position 4095")

# %% [markdown] slideshow={"slide_type": "notes"}
# 257 and 256 are the same place ([transformers#29285](https://github.com/huggingface/transformers/issues/29285)). Rounded frequencies are no better: the angle drifts by most of
# a turn. `lib.rope_cache` computes all of it in float32, and `lib.LlamaStyleLM` keeps its tables out of `model.to(bfloat16)`.
#
# ## 5 · The base, and what the model has seen
#
# $\theta_i = b^{-2i/d_h}$: the fastest pair turns by one radian per token at every base $b$; a larger base slows the others, the last one most.
#
# **Predict**: over 131,072 tokens, how many full turns does the slowest pair of a head of 128 make at base 10,000? At 500,000?
#
# One hand of the clock comes round again; all 64 together do not. A query that meets a key equal to itself scores $|q|^2$ times the mean of their
# cosines, where all pairs are equally long. **Predict** the first distance at which it falls below 0, for base 10,000.

# %% slideshow={"slide_type": "slide", "title": "The base decides how far near is told from far", "show": "picture", "ask": "Q9", "text": "The fastest pair turns by one radian per token at every base. **Predict:** over 131,072 tokens, how many turns does the slowest pair of a head of 128 make at base 10,000? At 500,000? Where does the mean cosine fall below 0?"}
my_guess = None  # [turns at 10,000, turns at 500,000, first distance below 0]
distances = torch.arange(1, 131_073, dtype=torch.float64)
turns, below = {}, {}
ax = plt.figure(figsize=(10, 4.2)).add_subplot()
for base, name in ((1e6, "v"), (5e5, "k"), (1e4, "q")):
    mean = torch.outer(distances, torch.tensor(inv_freq(128, base), dtype=torch.float64)).cos().mean(1)
    turns[base], below[base] = 131_072 / lib.wavelengths(128, base)[-1], (mean < 0).double()
    _ = ax.semilogx(distances, mean, lw=1, color=COLORS[name], label=f"base {base:,.0f}")
_ = ax.axhline(0, color=COLORS["ink"], lw=1)
ax.set(xlabel="distance, tokens", ylabel="mean cosine of 64 pairs", xlim=(1, 131_072)), ax.legend(loc="upper right")
plt.show()
predict(my_guess, [round(turns[1e4], 2), round(turns[5e5], 2), int(below[1e4].argmax()) + 1])
for base, at in sorted(below.items()):
    print(f"base {base:>9,.0f}: slowest pair {2 * pi / inv_freq(128, base)[-1]:>9,.0f} tokens per turn; mean below 0 "
          f"first at {int(at.argmax()) + 1:>6,} tokens, at {at.mean():.0%} of the distances")  # fmt: skip
for base, length in ((1e4, 4096), (5e5, 8192)):
    n = sum(tokens <= length for tokens in lib.wavelengths(128, base))
    print(f"base {base:,.0f}: {n} of 64 pairs complete a turn within {length:,} tokens, {64 - n} do not")

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: three curves fall from 1 with the logarithm of the distance, in growing ripples. That of 10,000 reaches 0 first, the others more than ten times farther out.*
#
# **Exercise 3. Why does a larger RoPE base help long contexts?** Choose, and give the first distance at which the mean cosine is below 0 for SmolLM2: heads of 64, base 100,000.
#
# - **a** The fast pairs turn faster, so neighbouring tokens are told apart better.
# - **b** Keys that are far away become longer, so their scores do not fade.
# - **c** The slow pairs turn more slowly, so a near key still scores above a far one, on average, out to longer distances.
# - **d** A trained model with a larger base needs no training on longer texts.
# - **e** More pairs complete a turn in training, so fewer angles are new.

# %% tags=["exercise"]
my_choice = {"why": None, "tokens": None}

# %% tags=["check"]
check("04.why_base", my_choice)

# %% tags=["solution"] jupyter={"source_hidden": true}
def why_base_solution():
    cosines = torch.outer(torch.arange(40_000).double(), torch.tensor(inv_freq(64, 1e5)).double()).cos()
    return {"why": "c", "tokens": int((cosines.mean(1) < 0).double().argmax())}


check("04.why_base", why_base_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A longer text meets angles that no weight has seen", "show": "", "text": "- a pair that completed a turn in training has shown all its angles\n- one that did not (18 of 64 at base 10,000 and 4,096 tokens) turns on into **new angles**; a larger base leaves more of these\n- two ways out: train on longer texts, or **scale** the frequencies"}
# A second argument is about training. A pair that completed a turn has shown all its angles. One that did not, 18 of 64 at base 10,000 and 4,096
# tokens, turns on a longer text **into angles that no weight has ever met**; Llama 3's base of 500,000 has more of these, 29. Both
# arguments are partial: Men et al. ([arXiv 2405.14591](https://arxiv.org/abs/2405.14591)) report that a model kept from new angles alone handles long contexts only superficially, and derive from the mean cosine the smallest base for a length.
#
# So either train on longer texts, at a base that suits them, or **scale** the frequencies so that longer texts stay inside known angles.
#
# Move the sliders (heads of 128, base 10,000, trained on 4,096 tokens). On the left, grey is before scaling; orange crosses meet new angles at the tested length. Try each kind at 16,384 tokens, and see right what it
# does to fast pairs. Section 6 derives each.

# %% slideshow={"slide_type": "slide", "title": "Try each kind of scaling at 16,384 tokens: which pairs meet new angles?"}
spectrum_explorer

# %% [markdown] slideshow={"slide_type": "notes"}
# ## 6 · Scaling, derived
#
# A model trained on $L_0$ tokens is to read $s L_0$.
#
# **Linear**: divide every frequency by $s$. No angle is new, but neighbours now differ by $1/s$ radian in the fastest pair, which told them apart.
#
# **NTK**: divide the slowest pair by $s$, the fastest by 1, and the others by something between: raise the base. The slowest frequency is
# $b^{-(d_h-2)/d_h}$; set $b'^{-(d_h-2)/d_h} = b^{-(d_h-2)/d_h}/s$ and solve: $b' = b\, s^{d_h/(d_h-2)}$. (Named after neural tangent kernels: a network that
# loses high frequencies loses fine detail.)
#
# **Dynamic NTK** lets the stretch follow the text's length $L$. At $L_0$ it must be 1; from there it rises by $s$ per further $L_0$: $1 + s\,(L/L_0 - 1)$.
#
# **Predict** $b'$ for $s = 4$, $b = 10{,}000$, $d_h = 128$; and by how much dynamic NTK with factor 2 divides the slowest pair at $L = 4 L_0$.

# %% slideshow={"slide_type": "slide", "title": "Linear divides every frequency; NTK raises the base", "show": "printed", "text": "NTK: the slowest pair is divided by $s$, the fastest stays: $b' = b\\, s^{d_h/(d_h-2)}$. Dynamic NTK stretches by $1 + s\\,(L/L_0 - 1)$.\n\n**Predict** $b'$ for $s = 4$, $b = 10{,}000$, $d_h = 128$."}
my_guess = None  # [NTK base, dynamic divides by]
dynamic = Scaling("dynamic", factor=2.0, original_max_len=2048, max_len=8192)
bases = {n: inv_freq(128, scaling=dynamic, length=n)[-1] ** (-128 / 126) for n in (2048, 2049, 4096, 8192)}
slowest = inv_freq(128)[-1] / inv_freq(128, scaling=dynamic, length=8192)[-1]
predict(my_guess, [round(10_000 * 4 ** (128 / 126)), round(slowest, 2)])
for length, base in bases.items():
    print(f"dynamic, factor 2, trained 2,048, text of {length:,}: base {base:,.2f}")
for kind in pictures.KINDS:
    t = spectrum_explorer.table(kind=kind)
    counts = f"{t['n_kept']:>2} pairs kept, {t['n_divided']:>2} divided by 4 or more"
    print(f"{kind:<18} {counts}, {t['n_new']:>2} meet new angles")

# %% [markdown] slideshow={"slide_type": "slide", "title": "llama3 keeps fast pairs, divides slow ones, blends between", "show": "", "text": "How often did a pair turn within the original length?\n\n- more than `high` times: keep\n- fewer than `low` times: divide by the factor\n- between: keep a share that rises evenly with the turns, divide the rest"}
# NTK stretches only the last pair by 4; 17 before it are stretched by less and still leave the known angles. Dynamic with factor 2 leaves none.
#
# **llama3** (Llama 3.1 and later) looks at each pair's turns within the original length: more than `high`, keep; fewer than `low`, divide by the factor; between, keep a share of the frequency that rises from 0 to 1
# evenly with the turns, and divide the rest.
#
# **Exercise 4. Write llama3 scaling.** `theta` is a tensor of frequencies, fast to slow; return the scaled ones.

# %% tags=["exercise"]
def my_llama3(theta, factor, original, low, high):
    ...

# %% tags=["check"]
check("04.llama3", my_llama3)

# %% tags=["solution"] jupyter={"source_hidden": true} slideshow={"slide_type": "-", "show": "code"}
def llama3_solution(theta, factor, original, low, high):
    turns = original * theta / (2 * pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * theta + (1 - keep) * theta / factor


check("04.llama3", llama3_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "YaRN draws the line by the number of a pair", "show": "formula", "text": "The pair that turns $n$ times in training; kept up to the one, divided from the other, a ramp between:"}
# **YaRN** draws the same line by the *number* of a pair. Pair $i$ turns $n = L_0\, b^{-2i/d_h} / 2\pi$ times; solved for $i$, the pair that turns $n$ times is
#
# $$i(n) = \frac{d_h \ln (L_0 / 2\pi n)}{2 \ln b} .$$
#
# Pairs up to $i(\text{fast})$, rounded down, are kept; from $i(\text{slow})$, rounded up, they are divided; between the two numbers the share divided rises evenly from 0 to 1.
#
# **Exercise 5. Write YaRN's frequencies**, `theta` as before.

# %% tags=["exercise"]
def my_yarn(theta, factor, original, base, fast, slow):
    ...

# %% tags=["check"]
check("04.yarn", my_yarn)

# %% tags=["solution"] jupyter={"source_hidden": true} slideshow={"slide_type": "-", "show": "code"}
def yarn_solution(theta, factor, original, base, fast, slow):
    from math import ceil, floor

    pairs = len(theta)
    low = floor(pairs * log(original / (fast * 2 * pi)) / log(base))
    high = ceil(pairs * log(original / (slow * 2 * pi)) / log(base))
    divide = ((torch.arange(pairs) - low) / (high - low)).clamp(0, 1)
    return (1 - divide) * theta + divide * theta / factor


check("04.yarn", yarn_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Temperature: more keys, larger scores", "show": "", "text": "- over $s$ times as many keys a softmax spreads its weight: cos and sin times $0.1 \\ln s + 1$, so scores by its square; fitted, not derived\n- DeepSeek-V3 puts the square on the softmax scale instead\n- **longrope** (Phi-3.5) names a divisor for each pair, found by search\n\n**Predict** how many pairs stay as they are: of Llama-3.1-8B's 64, and of DeepSeek-V3's 32."}
# **Temperature.** Over $s$ times as many keys a softmax spreads its weight; larger scores concentrate it again. YaRN multiplies cos and sin by $0.1 \ln s + 1$, so scores by
# its square: not derived, but fitted to LLaMA's perplexity (its eq. 22). DeepSeek-V3 puts the square on the softmax scale instead, and 1 on cos and sin; in MLA that differs, since only a
# part of a score is rotated ([chapter 06](06_mla.ipynb)).
#
# **longrope** (Phi-3.5) names a divisor for each pair, found by search: one list up to the original length, another beyond. Choose it once per text, or a prompt fed in
# chunks gets two rotations in one cache ([vllm#27431](https://github.com/vllm-project/vllm/issues/27431)). Its temperature is $\sqrt{1 + \ln s / \ln L_0}$.
#
# **Predict** how many pairs stay as they are: of Llama-3.1-8B's 64 (factor 8, original 8,192, low 1, high 4, base 500,000), and of DeepSeek-V3's 32 (YaRN, factor 40, 4,096, fast 32, slow 1, base 10,000).

# %% slideshow={"slide_type": "fragment", "show": "printed"}
llama3, yarn = mine("04.llama3"), mine("04.yarn")
v3 = lib.read_config(configs.path("deepseek-v3")).layers[0].attention.rope
llama31, llama32 = (Scaling("llama3", factor, 8192, 131072) for factor in (8.0, 32.0))
models = {"Llama-3.1-8B": (128, 5e5, llama31), "Llama-3.2-1B": (64, 5e5, llama32), "DeepSeek-V3": (64, v3.base, v3.scaling)}
bands, scaled = {}, {}
for name, (dh, base, s) in models.items():
    theta, limits = torch.tensor(inv_freq(dh, base), dtype=torch.float64), (s.low_freq_factor, s.high_freq_factor)
    own, more = (yarn, (base, s.beta_fast, s.beta_slow)) if s.kind == "yarn" else (llama3, limits)
    scaled[name] = own(theta, s.factor, s.original_max_len, *more)
    check_close(f"{name}: equal to lib's", scaled[name], inv_freq(dh, base, s), 1e-6)
    by = theta / scaled[name]
    kept, divided = int((by < 1.0001).sum()), int((by * 1.0001 > s.factor).sum())
    bands[name] = (kept, dh // 2 - kept - divided, divided)
my_guess = None  # [Llama-3.1-8B, DeepSeek-V3]
predict(my_guess, [bands[name][0] for name in ("Llama-3.1-8B", "DeepSeek-V3")])

# %% slideshow={"slide_type": "subslide", "title": "Kept, blended, divided: three models", "show": "printed"}
for name, counts in bands.items():
    print(f"{name:<13} kept, blended, divided: {counts}")
print("YaRN's cos and sin times", {s: round(0.1 * log(s) + 1, 4) for s in (4, 16, 32, 40, 64)})
check_equal("V3's cos and sin times", lib.rope_attention_factor(v3.scaling), 1.0)
print(f"V3's softmax scale times {lib.yarn_mscale(40, 1.0) ** 2:.4f}")
phi = Scaling("longrope", factor=32.0, original_max_len=4096, max_len=131072, **PHI35)
last = {n: inv_freq(96)[-1] / inv_freq(96, scaling=phi, length=n)[-1] for n in (4096, 4097)}
print("Phi-3.5, last pair divided by", {n: round(by, 2) for n, by in last.items()})
print(f"its cos and sin times {lib.rope_attention_factor(phi):.4f}")
olmo = Scaling("yarn", factor=8.0, original_max_len=8192, attention_factor=1.2079441541679836)
print(f"OLMo-3-7B's attention_factor is final: {lib.rope_attention_factor(olmo):.4f}")
print(f"pair 15 of Llama-3.2-1B: {scaled['Llama-3.2-1B'][15]:.9f}; scaling left out: {inv_freq(64, 5e5)[15]:.9f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "Dynamic NTK beside a cache: the base moves, cached keys do not", "show": "", "text": "A decoder caches each key as it comes, turned with the base of that moment. Up to the trained length it is right. **What is wrong beyond it?** (`04.dynamic`)"}
# **Exercise 6. Find the fault: dynamic NTK with a cache.** A decoder of one head caches each key as it comes and scores the last query `q[-1]` against all keys; `q` and `k` are $[T, d_h]$. Up to the trained
# length it is right; beyond, its scores are not those of a single pass over the whole text. Mend it. (`turn` is section 3's.)

# %% tags=["exercise"] slideshow={"slide_type": "-", "show": "code"}
def my_scores(q, k, factor, trained, base):
    cached, d_h = [], k.shape[-1]
    for t in range(len(k)):
        stretch = max(1.0, 1 + factor * ((t + 1) / trained - 1))
        theta = torch.tensor(inv_freq(d_h, base * stretch ** (d_h / (d_h - 2))), dtype=q.dtype)
        cached.append(turn(k[t], t, theta))
    return torch.stack(cached) @ turn(q[-1], t, theta)

# %% tags=["check"]
check("04.dynamic", my_scores)

# %% tags=["solution"] jupyter={"source_hidden": true}
def dynamic_solution(q, k, factor, trained, base):
    T, d_h = k.shape
    stretch = max(1.0, 1 + factor * (T / trained - 1))
    theta = torch.tensor(inv_freq(d_h, base * stretch ** (d_h / (d_h - 2))), dtype=q.dtype)
    keys = torch.stack([turn(k[t], t, theta) for t in range(T)])  # cached before the rotation, turned when read
    return keys @ turn(q[-1], T - 1, theta)


check("04.dynamic", dynamic_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Not every dimension turns", "show": "", "text": "Partial rotary: only the first part of each head turns, the rest carries content. It is right at position 0 and drifts from there: which width did somebody take for which? (`04.partial`)"}
# ## 7 · Not every dimension, not every layer, not one base
#
# **Partial rotary.** Some models turn only the first part of each head; the rest carries content without position.
#
# **Exercise 7. Find the fault.** Partial rotary, half-split, for one head vector `x` $[d_h]$. It is right at position 0 and drifts from there. Mend it.

# %% tags=["exercise"] slideshow={"slide_type": "-", "show": "code"}
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

# %% [markdown] slideshow={"slide_type": "skip"}
# **Two bases.** Gemma 3 has one base in its sliding-window layers (`rope_local_base_freq`) and another in its global ones (`rope_theta`).
#
# **NoPE layers.** SmolLM3 and Llama 4 leave RoPE out of some layers. SmolLM3's `no_rope_layers` holds 1, 1, 1, 0, nine times over. **Predict** how many of its 36 layers have no RoPE.

# %% slideshow={"slide_type": "slide", "title": "Not every layer rotates, and not with one base", "show": "printed", "text": "SmolLM3's `no_rope_layers` holds 1, 1, 1, 0, nine times over. **Predict** how many of its 36 layers have no RoPE."}
rhythm = [1, 1, 1, 0] * 9
smollm3 = lib.read_config(SHAPES["SmolLM3-3B"] | {"rope_theta": 5000000.0, "no_rope_layers": rhythm})
without = [i for i, layer in enumerate(smollm3.layers) if layer.attention.rope is None]
my_guess = None
predict(my_guess, len(without), "NoPE layers of 36")
print("layers without RoPE:", without)
bases = {"rope_theta": 1000000, "rope_local_base_freq": 10000}
gemma3 = lib.read_config(SHAPES["Gemma-3-1B"] | bases | {"sliding_window": 512, "sliding_window_pattern": 6})
for i in (0, 4, 5, 6):
    attention = gemma3.layers[i].attention
    print(f"Gemma-3-1B layer {i}: base {attention.rope.base:>9,.0f}, window {attention.window}")
silent = lib.read_config(SHAPES["Llama-3-8B"])
print(silent.warnings[0])
angles = [1000 * inv_freq(4, base)[1] for base in (5e5, 1e4)]
print(f"Llama 3 at position 1000, exponent 1/2: {angles[0]:.6f} rad, with the default base {angles[1]:.1f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "Where did rope_theta go? A default of 10,000, without a word", "show": "", "text": "transformers 5 writes the base **inside** `rope_parameters`. Code that asks for the old field with a default gets 10,000: for Llama 3 that is 50 times off. A reader has to know both spellings, and to say so when a file names no base."}
# A 1 means RoPE. A NoPE layer knows order only from the causal mask and from earlier layers; a layout test on it always passes. The hope is longer texts, as
# Kazemnejad et al. report of small decoders ([arXiv 2305.19466](https://arxiv.org/abs/2305.19466)); nothing here tests it.
#
# **Where did `rope_theta` go?** transformers 5 writes the base **inside** `rope_parameters`. Code that asks for the old field with a default of
# 10,000 gets 10,000, without a word ([DeepSpeed#8345](https://github.com/deepspeedai/DeepSpeed/issues/8345)): for Llama 3, 50 times off. `lib.read_config` warns.
#
# **Exercise 8. Read the base.** `config` is a dict as in a config.json: the base may be in `rope_theta`, in `rope_parameters`, there per kind of layer (take
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

# %% [markdown] slideshow={"slide_type": "slide", "title": "The file does not say the layout: it follows from the format and the class", "show": "", "text": "- test a conversion where $h$, $n_{kv}$ and $h/n_{kv}$ differ, with random gains\n- compare with the reference at a few hundred tokens, in KL, not in loss\n- read base and scaling wherever the file keeps them; a default of 10,000 is no reading\n- positions and tables in float32\n- to take home: `04.permute`, `04.llama3`, `04.yarn`, `04.dynamic`"}
# ## 8 · Bugs that shipped
#
# **One fault, followed.** Loaders parsed `rope_scaling` of Llama 3.1+ and rotated with the plain frequencies ([felafax#59](https://github.com/felafax/felafax/issues/59)). The shapes fit, short prompts look fine. Section 6
# printed pair 15 of Llama-3.2-1B with and without it, section 3's chart what such a fault does to a text. One number would have found it: the slowest pair's angle at the last trained position.
#
# In the same family: wavelengths blended, weights reversed ([mlx-examples#907](https://github.com/ml-explore/mlx-examples/issues/907)); a given `attention_factor` ignored, although it is final ([mlx-lm#1507](https://github.com/ml-explore/mlx-lm/issues/1507)); a dynamic base fixed at its maximum ([vllm#3488](https://github.com/vllm-project/vllm/issues/3488)); a base that
# followed the buffer's length ([LLMs-from-scratch#419](https://github.com/rasbt/LLMs-from-scratch/issues/419)).
#
# ## What you can do now
#
# You **converted** a layer between the layouts; **recognised** five faults by their curves; **computed** what training has seen, and **wrote** llama3 and YaRN as `lib` has them; **read** base, partial
# rotary and NoPE layers; **chose** float32 for positions and tables.
#
# **In practice.** The scaling is in `rope_scaling` or `rope_parameters`, its kind under `rope_type` or, in older files, `type`; `factor` and `original_max_position_embeddings` go with most:
#
# | kind | further fields | models |
# |---|---|---|
# | `linear` | | global layers of Gemma 3 from 4B on |
# | `dynamic` | | InternLM2.5 (`factor` 2.0) |
# | `llama3` | `low_freq_factor`, `high_freq_factor` | Llama 3.1 and later |
# | `yarn` | `beta_fast`, `beta_slow`, `truncate`, `attention_factor`, `mscale`, `mscale_all_dim` | gpt-oss, OLMo 3, DeepSeek |
# | `longrope` | `short_factor`, `long_factor` | Phi-3.5 |
# | partial | `partial_rotary_factor`, `rotary_pct`, `rotary_dim` | GLM-4.5 0.5, Pythia 0.25, MiniMax-M2.5 64 of 128 |
#
# The layout is in no field; format and class say it. GGUF files of Llama models are adjacent, their Hugging Face twins half-split.
#
# **Sources.** Su et al. 2021, RoFormer ([arXiv 2104.09864](https://arxiv.org/abs/2104.09864)), eq. 15. Chen et al. 2023, Position Interpolation ([arXiv 2306.15595](https://arxiv.org/abs/2306.15595)): linear. Peng et al. 2023, YaRN ([arXiv 2309.00071](https://arxiv.org/abs/2309.00071)); it also
# describes NTK-aware and dynamic scaling. Ding et al. 2024, LongRoPE ([arXiv 2402.13753](https://arxiv.org/abs/2402.13753)). Men et al. 2024, on the base ([arXiv 2405.14591](https://arxiv.org/abs/2405.14591)).

# %% slideshow={"slide_type": "skip"}
progress("04")
