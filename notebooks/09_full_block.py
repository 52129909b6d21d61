# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "Eight chapters took the block apart. Here it is put together, held against the library, broken on purpose, and trained beside the block of 2019. After this chapter you can"}
# # 09 · The whole block
#
# Eight chapters took the block apart. Here you put it together, hold it against the library, break it on purpose, and train it beside GPT-2's block of 2019.
#
# After it you will be able to
# - **write** the block and the model around it, with a cache, in some thirty lines;
# - **count** its parameters;
# - **locate** a fault by the first stage at which two models differ;
# - **explain** what the norm's place does to the gradients;
# - **judge** what a small training run shows.
#
# You need chapters [01](01_rmsnorm.ipynb) to [05](05_kv_cache.ipynb) and [07](07_qk_norm.ipynb). About 70 minutes.

# %% slideshow={"slide_type": "skip"}
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import lib
from book.configs import load
from book.corpus import load_corpus
from book.evidence import start_gradients
from book.exercises import check, mine, progress
from book.experiments import TITLES, by_seed, effect, interval, load_results, table_curves, total_effect
from book.experiments.pictures import LOOKS, draw_cache, draw_upgrades
from book.explore.ch09_block import stream_explorer
from book.figures import COLORS, style
from book.predict import check_close, check_equal, check_shape, predict
from lib import GPT2LM, LlamaStyleLM, apply_rope, attend, repeat_kv, rms_norm, rope_cache, swiglu

style()
torch.manual_seed(0)
_ = torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "The wiring: read twice, add twice", "show": "", "text": "Each part reads a **normalised copy** of the residual stream and adds its answer to the stream itself, which is never normalised until the very end. That is *pre-norm*.\n\n$$x \\leftarrow x + \\mathrm{attention}(\\mathrm{norm}(x)), \\qquad x \\leftarrow x + \\mathrm{SwiGLU}(\\mathrm{norm}(x))$$\n\nNo matrix has a bias."}
# ## 1 · Write it
#
# Attention and the feed-forward layer each read a **normalised copy** of the residual stream and add their answer to the stream itself, which is normalised only at the very end. That is *pre-norm*.
#
# **Exercise 1. Wire it.** Let attention be $x A$ and the feed-forward layer $\tanh(x M)$. Write the pre-norm block around them: `x` [T, d], `A` and `M` [d, d], two gains [d]; use `rms_norm(x, gain)`.

# %% tags=["exercise"]
def my_wiring(x, A, M, attn_gain, ffn_gain):
    ...


# %% tags=["check"]
check("09.wiring", my_wiring)

# %% tags=["solution"] jupyter={"source_hidden": true}
def wiring_solution(x, A, M, attn_gain, ffn_gain):
    x = x + rms_norm(x, attn_gain) @ A
    return x + (rms_norm(x, ffn_gain) @ M).tanh()


check("09.wiring", wiring_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **Exercise 2. Attention, from a blank cell.** `x` [B, T, d] in, [B, T, d] out. `w` holds `wq` [h dh, d], `wk`, `wv` [n_kv dh, d], `wo` [d, h dh], and in some layers the gains `q_norm`, `k_norm` [dh]; no biases.
# `cos`, `sin` [T, dh / 2] are these tokens' rows of the table. `past` is None, or a list for this layer's keys and values [B, n_kv, S, dh]: empty at first, and yours to fill for the next call.
# Take `rms_norm` ([01](01_rmsnorm.ipynb)), `apply_rope(q, cos, sin)` ([03](03_rope.ipynb)) and `attend(q, k, v)` ([05](05_kv_cache.ipynb)), which repeats KV heads and masks later keys.

# %% tags=["exercise"]
def my_attention(x, w, cos, sin, past=None):
    ...


# %% tags=["check"]
check("09.attention", my_attention)

# %% slideshow={"slide_type": "subslide", "title": "Attention, whole: project, norm, rotate, remember, attend", "show": "code"} tags=["solution"] jupyter={"source_hidden": true}
def attention_solution(x, w, cos, sin, past=None):
    dh = 2 * cos.shape[-1]
    q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
    if "q_norm" in w:
        q, k = rms_norm(q, w["q_norm"]), rms_norm(k, w["k_norm"])
    q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)  # q and k only, never v
    if past is not None:
        if past:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        past[:] = k, v  # with n_kv heads, not h
    return attend(q, k, v).transpose(1, 2).flatten(2) @ w["wo"].T


check("09.attention", attention_solution)

# %% [markdown] slideshow={"slide_type": "notes"}
# From here on the chapter runs on **your** attention, once its check has passed. No position is added to the embedding: the rotation knows them, as long as the table starts where the cache ends. The weights to try it on are the library's, by name.

# %% slideshow={"slide_type": "subslide", "title": "The block and the model around it", "show": "code"}
attention = mine("09.attention")


def block(x, w, cos, sin, past=None, eps=1e-6):
    x = x + attention(rms_norm(x, w["attn_norm"], eps), w, cos, sin, past)
    return x + swiglu(rms_norm(x, w["ffn_norm"], eps), w["w_gate"], w["w_up"], w["w_down"])


def logits_of(idx, w, past=None):
    """Token ids [B, T] -> logits [B, T, V]; past: one list per layer, or None."""
    start = past[0][0].shape[2] if past and past[0] else 0
    cos, sin = rope_cache(idx.shape[1], w["dh"], w["base"], start=start)
    x = w["emb"][idx]  # [B, T, d]
    for i, layer in enumerate(w["blocks"]):
        x = block(x, layer, cos, sin, past and past[i], w["eps"])
    return rms_norm(x, w["norm"], w["eps"]) @ w["head"].T  # [B, T, V]


# %% slideshow={"slide_type": "skip"}
def weights_of(model):
    """A lib model's tensors as plain dicts: one for the model, one for each block."""
    layer = model.config.layers[0].attention
    blocks = [{key.split(".")[-2]: p for key, p in b.state_dict().items()} for b in model.blocks]
    w = {"emb": model.emb.weight, "norm": model.norm.weight, "head": model.head.weight, "blocks": blocks}
    return w | {"dh": layer.head_dim, "base": layer.rope.base, "eps": model.config.norm.eps}


seed_model = LlamaStyleLM(V=1000)
print(*weights_of(seed_model)["blocks"][0])

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 2 · Its size
#
# `LlamaStyleLM(V=1000)`: $d = 256$, 4 layers, 8 query heads and 2 KV heads of 32, $d_{ff} = 688$, untied, QK-norm on. **Predict** how many
# parameters it has.

# %% slideshow={"slide_type": "slide", "title": "Where do the parameters sit?", "text": "`LlamaStyleLM(V=1000)`: $d = 256$, 4 layers, 8 query heads and 2 KV heads of 32, $d_{ff} = 688$, untied, QK-norm on.\n\n**Predict** how many it has, and in which part most of them."}
my_guess = None
total = sum(p.numel() for p in seed_model.parameters())
predict(my_guess, total, "parameters")
logits = seed_model(torch.randint(0, 1000, (2, 16), generator=torch.Generator().manual_seed(0)))
check_shape("logits", logits, [2, 16, 1000])
by_part = {}
for name, p in seed_model.named_parameters():
    part = name.split(".")[2 if name.startswith("blocks") else 0]
    by_part[part] = by_part.get(part, 0) + p.numel()
for part, n in by_part.items():
    print(f"{part:<10}{n:>10,}  {n / total:6.1%}")
check_equal("8/3 of 256, rounded up to a multiple of 16", lib.swiglu_width(256, multiple_of=16), 688)
check_equal("as in chapter 00", total, 3_283_456)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 3 · The same as the library
#
# Random weights **and** random gains, every size different, float64: a dropped gain or a swapped axis cannot pass. Then the same through the cache: a prompt of 9 in one call, a chunk of 3, single tokens.

# %% slideshow={"slide_type": "slide", "title": "Thirty lines equal the library, at once and in pieces", "show": "printed", "text": "Random weights **and** random gains, every size different, float64. The same through the cache: a prompt of 9, a chunk of 3, then single tokens."}
config = lib.llama_style(97, d=48, n_layers=3, n_heads=6, n_kv_heads=2, d_ff=70, head_dim=10, max_len=64)
model = LlamaStyleLM.from_config(config).double()
g = torch.Generator().manual_seed(2)
for p in model.parameters():
    size = p.shape[-1] ** -0.5 if p.dim() > 1 else 1
    p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * size)
w = weights_of(model)
idx = torch.randint(0, 97, (2, 20), generator=g)
whole = logits_of(idx, w)
check_close("thirty lines = lib", whole, model(idx))
past, cache = [[] for _ in w["blocks"]], model.new_cache(2, 64)
pieces = idx.split([9, 3, *[1] * 8], dim=1)
steps = torch.cat([logits_of(piece, w, past) for piece in pieces], dim=1)
check_close("prefill, chunk, steps = at once", steps, whole)
theirs = torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)
check_close("lib through its cache", theirs, whole)
check_shape("what a layer keeps", past[0][0], [2, 2, 20, 10])

# %% [markdown] slideshow={"slide_type": "skip"}
# And is `lib` right? `tests/test_against_transformers.py` compares toy models of Llama, Qwen3 and many other families with the transformers library, with and without a cache.
#
# ## 4 · The block of 2019 beside it
#
# Same $d$, layers, heads and vocabulary. **Predict** how many parameters fewer the modern block has, at a context of 1,024 positions (negative if it has more).

# %% slideshow={"slide_type": "slide", "title": "The block of 2019 beside it: which is larger?", "show": "printed", "text": "Same $d$, layers, heads and vocabulary, 1,024 positions. **Predict** which of the two has more parameters."}
my_guess = None
old = GPT2LM(V=1000)
counts = {"2019": lib.parameters(old.config), "modern": lib.parameters(seed_model.config)}
predict(my_guess, counts["2019"].total - counts["modern"].total, "parameters")
print(f"{'':<12}{'2019':>12}{'modern':>12}")
for part in ("embedding", "counted", "attention", "ffn", "norms", "head", "total"):
    words = "positions" if part == "counted" else part
    print(f"{words:<12}{getattr(counts['2019'], part):>12,}{getattr(counts['modern'], part):>12,}")
check_equal("2019 by counting", sum(p.numel() for p in old.parameters()), counts["2019"].total)
check_equal("modern by counting", total, counts["modern"].total)
for name, m in (("2019", old), ("modern", seed_model)):
    biases, cache = sum("bias" in key for key in m.state_dict()), lib.kv_elements_per_token(m.config)
    print(f"{name:<6} biases: {biases:>2}   cache: {cache:>5,} numbers per token")

# %% [markdown] slideshow={"slide_type": "notes"}
# ## 5 · Take a part out
#
# To find the fault in a port, run both models, compare **every stage**, and look at the first that differs. So we write the model once more, each part exchangeable and each stage kept.

# %% slideshow={"slide_type": "slide", "title": "To find a fault, keep every stage"}
def trace(idx, w, norm=rms_norm, qk_norm=rms_norm, rope=apply_rope, repeat=repeat_kv, scale=None,
          mask=None, gate=None):  # fmt: skip
    hide = mask or (lambda s: s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -torch.inf))
    gate = gate or (lambda a, b: F.silu(a) * b)
    seen, x, table = {}, w["emb"][idx], rope_cache(idx.shape[1], w["dh"], w["base"])
    for i, b in enumerate(w["blocks"]):
        y = norm(x, b["attn_norm"])
        q, k, v = ((y @ b[n].T).unflatten(-1, (-1, w["dh"])).transpose(1, 2) for n in ("wq", "wk", "wv"))
        q, k = rope(qk_norm(q, b["q_norm"]), *table), rope(qk_norm(k, b["k_norm"]), *table)
        group = q.shape[1] // k.shape[1]
        p = hide(q @ repeat(k, group).transpose(-1, -2) * (scale or w["dh"] ** -0.5)).softmax(-1)
        attn = (p @ repeat(v, group)).transpose(1, 2).flatten(2) @ b["wo"].T
        z = norm(x + attn, b["ffn_norm"])
        ffn = gate(z @ b["w_gate"].T, z @ b["w_up"].T) @ b["w_down"].T
        seen |= {f"norm {i}": y, f"q {i}": q, f"weights {i}": p, f"attn {i}": attn, f"ffn {i}": ffn}
        x = x + attn + ffn
    return seen | {"logits": rms_norm(x, w["norm"]) @ w["head"].T}


right = trace(idx, w)

# %% [markdown] slideshow={"slide_type": "skip"}
# **Exercise 3.** Which faults leave the logits of the **first token** right? A set of some of `"rope"`, `"mask"`, `"qk_norm"` (left out), `"tile"` (KV heads tiled), `"gate"` (swapped with up), `"scale"` (forgotten).

# %% tags=["exercise"]
my_hidden = None

# %% tags=["check"]
check("09.first_token", my_hidden)

# %% tags=["solution"] jupyter={"source_hidden": true}
def first_token_solution():
    return {"rope", "qk_norm", "scale"}


check("09.first_token", first_token_solution)

# %% slideshow={"slide_type": "subslide", "title": "Eight faults: where does each show first, and does the first token tell?", "show": "code"}
FAULTS = {
    "eps 1e-5 for 1e-6": {"norm": lambda x, gain: rms_norm(x, gain, 1e-5)},
    "no QK-norm": {"qk_norm": lambda x, gain: x},
    "no RoPE": {"rope": lambda x, cos, sin: x},
    "RoPE, the other layout": {"rope": lambda x, cos, sin: apply_rope(x, cos, sin, "adjacent")},
    "scale forgotten": {"scale": 1.0},
    "no mask": {"mask": lambda s: s},
    "KV heads tiled": {"repeat": lambda x, n: x.repeat(1, n, 1, 1)},
    "gate and up swapped": {"gate": lambda a, b: a * F.silu(b)},
}
check_close("the pieces = the whole", right["logits"], whole)
gap = lambda a, b: ((a - b).norm() / b.norm()).item()
strip, first, hidden = {}, {}, set()
for name, change in FAULTS.items():
    wrong = trace(idx, w, **change)
    strip[name] = [gap(wrong[stage], right[stage]) for stage in right]
    first[name] = next(stage for stage, value in zip(right, strip[name]) if value > 1e-9)
    hidden |= {name} if gap(wrong["logits"][:, 0], right["logits"][:, 0]) < 1e-9 else set()

# %% slideshow={"slide_type": "subslide", "title": "The first stage that differs names the part"}
fig, ax = plt.subplots(figsize=(11, 4.6))
grid = torch.tensor(list(strip.values())).clamp(1e-6, 10).log10()
image = ax.imshow(grid, aspect="auto", cmap="magma_r", vmin=-6, vmax=1)
stages = list(right)
_ = ax.plot([stages.index(stage) for stage in first.values()], range(len(first)), "o", ms=11, mfc="white", mec=COLORS["ink"])
_ = ax.set_yticks(range(len(strip)), strip)
_ = ax.set_xticks(range(len(right)), right, rotation=60, ha="right")
_ = ax.grid(visible=False)
_ = fig.colorbar(image, label="relative difference, power of ten")
plt.show()
for name, stage in first.items():
    print(f"{name:<27} first differs at {stage:<10} first token {'right' if name in hidden else 'wrong'}")
check_equal("hidden from the first token", len(hidden), 4)
shows = [first[name] for name in ("no RoPE", "no mask", "gate and up swapped")]
check_equal("rotation, mask, gate", shows, ["q 0", "weights 0", "ffn 0"])

# %% [markdown] slideshow={"slide_type": "slide", "title": "Before the first step: where to put the norm", "show": "", "text": "2017 normalised the **sum** after each part, the modern block what a part **reads**. Real attention and SwiGLU, random weights, one backward pass.\n\n**Predict:** how many times larger is the *first* layer's gradient in a post-norm model of 24 layers than in a pre-norm one?"}
# *In words: one row per fault, one column per stage, pale before the dot and dark behind it; the eps row is of a middle colour, paler at q 0 and weights 0.*
#
# The first stage that differs **names the part**. The size tells as well: a wrong part is wrong by its own size, an eps by less than a thousandth of that (in q 0 hardly at all: QK-norm divides it out). And four faults are right on the first token, which attends to one key, whose weight is 1 whatever the score: a port that is tested on one token passes with any of them.
#
# ## 6 · Where to put the norm
#
# The block of 2017 normalised the **sum** after each part: $x \leftarrow \mathrm{norm}(x + \mathrm{part}(x))$. The modern block normalises what a part **reads**. Why? Xiong et al. 2020 ([arXiv 2002.04745](https://arxiv.org/abs/2002.04745)) looked at the **gradients before the first step**. So do we: real attention and SwiGLU
# with random weights, one text, and the norm of the gradient of each layer's $W_{down}$. **Predict**: how many times larger is the *first* layer's in a post-norm model of 24 layers than in a pre-norm one?

# %% slideshow={"slide_type": "-"}
my_guess = None  # times
places, depths = ("before", "after"), (6, 24)
runs = {(place, L): torch.tensor([start_gradients(place, L, seed=seed) for seed in range(3)]).mean(0) for place in places for L in depths}
predict(my_guess, round((runs["after", 24][0] / runs["before", 24][0]).item()), "times")
for (place, L), sizes in runs.items():
    print(f"norm {place:<7} {L:>2} layers, three draws: first layer {sizes[0]:6.2f}   last layer {sizes[-1]:.2f}")
falls = (runs["before", 6][-1] / runs["before", 24][-1]).item()
print(f"norm before: the last layer's falls by {falls:.1f} from 6 to 24 layers; sqrt(24 / 6) is 2")
grows = {place: (runs[place, 24][0] / runs[place, 6][0]).item() for place in places}
check_equal("the first layer's grows with depth: before, after", [grows[place] > 4 for place in places], [False, True])
small = {place: start_gradients(place, 24, scaled=True) for place in places}
print("the same with W_o and W_down divided by sqrt(2 layers), first layer: " + "   ".join(f"{p} {sizes[0]:.2f}" for p, sizes in small.items()))
check_equal("control: nothing to see there", 0.8 < small["after"][0] / small["before"][0] < 1.25, True)

# %% [markdown] slideshow={"slide_type": "notes"}
# With post-norm every norm on the way back multiplies, so the gradient grows towards the first layers, and with depth. With pre-norm an untouched road leads from the loss to every layer; its price is that the last layer's gradient falls like one over the root of the depth (proved by Xiong et al.),
# since late parts add little to a large stream. With GPT-2's start, parts made small by $\sqrt{2L}$, the two are alike: what hurts is the place **with** full-sized parts. Post-norm can be trained: the model of 2017 was, its rate warmed up over 4,000 steps.
#
# The forward side, on a toy stream. Try "norm after" with full-sized parts, then the preset "GPT-2's start": whose words are left at the end?

# %% slideshow={"slide_type": "slide", "title": "Try \"norm after\" with full-sized parts, then GPT-2's start: whose words are left?"}
for scaled in ("no", "yes"):
    at = {place: stream_explorer.table(layers=12, place=place, branch=1.0, scaled=scaled) for place in ("before (today)", "after (2017)")}
    left = "   ".join(f"{place}: {t['embedding']:.1g}" for place, t in at.items())
    print(f"12 layers, scaled start {scaled:<4} the embedding's share of the final stream: {left}")
stream_explorer

# %% [markdown] slideshow={"slide_type": "slide", "title": "SmolLM2 runs through our lines", "show": "", "text": "SmolLM2-135M is this block without QK-norm, tied, 30 times. On the way we watch its stream.\n\n**Predict** the size (RMS) of the last token's stream after the last block; the embedding's is about 0.1."}
# ## 7 · A real model through our lines
#
# SmolLM2-135M is this block without QK-norm, tied, 30 times. **Predict** the size (RMS) of the last token's stream after the last block; the embedding's is about 0.1.

# %% slideshow={"slide_type": "skip"}
my_guess = None
folder = lib.find_model()
smol, tokenizer = lib.load_model(folder), lib.load_tokenizer(folder)
real = weights_of(smol)
ids = torch.tensor([tokenizer.encode(load_corpus()[300_000:302_000].decode()).ids[:200]])
cos, sin = rope_cache(ids.shape[1], real["dh"], real["base"])


def through(cut=None, w=real):
    """The stream [1, T, d] before each of the 30 blocks and at the end; cut: (token, channels) set to 0 after 12 blocks."""
    x, seen = w["emb"][ids], []
    for i, layer in enumerate(w["blocks"]):
        if cut and i == 12:
            x = x.clone()
            x[0, cut[0], cut[1]] = 0.0
        seen.append(x)
        x = block(x, layer, cos, sin, eps=w["eps"])
    return [*seen, x]


# %% slideshow={"slide_type": "fragment", "show": "picture"}
stream = through()
ours = rms_norm(stream[-1][:, -50:], real["norm"], real["eps"]) @ real["head"].T  # [1, 50, V]
check_close("SmolLM2 by our block = lib, the last 50 tokens", ours, smol(ids)[:, -50:])
size = torch.stack([x[0].square().mean(-1).sqrt() for x in stream])  # [31, T]
predict(my_guess, round(size[-1, -1].item(), 1))
fig, ax = plt.subplots(figsize=(9, 4.2))
_ = ax.plot(size[:, 0], color=COLORS["old"], ls="--", label="first token")
_ = ax.plot(size[:, -1], color=COLORS["new"], label="last token")
_ = ax.set(yscale="log", xlabel="blocks passed", ylabel="RMS of the stream")
_ = ax.legend()
plt.show()
for at in (0, 1, 11, 12, 20, 28, 30):
    print(f"after {at:>2} blocks: first token {size[at, 0]:8.2f}   last token {size[at, -1]:6.2f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "One number carries the sink", "show": "", "text": "Nearly all of the first token's size is **one number**, a *massive activation*. Set it to zero after block 12, and let the model go on.\n\n**Predict** the loss; it was about 2.2, and a model that knows nothing has 10.8."}
# *In words: both lines rise on a logarithmic axis; the first token's jumps in the twelfth block and falls at the end.*
#
# The last norm brings the stream back to size 1 before the head. The first token's size is nearly all **one number**, a *massive activation* (Sun et al. 2024, [arXiv 2402.17762](https://arxiv.org/abs/2402.17762)). What is it for? Set it, one of 576 in each of 200 tokens, to zero after block 12. **Predict** the loss;
# it was about 2.2, and a model that knows nothing has ln 49,152 = 10.8.

# %% slideshow={"slide_type": "-"}
my_guess = None
jump, other = stream[12][0, 0], stream[12][0, 50].abs().topk(2).indices
channel = int(jump.abs().argmax())
print(f"first token after 12 blocks: channel {channel} holds {jump[channel]:,.0f}, {jump[channel] ** 2 / (jump**2).sum():.1%} of its squared size")
cuts = {"as it is": None, "that number set to 0": (0, [channel]), "two others of the first token": (0, [100, 400]), "the largest two of token 50": (50, other)}
losses = {}
for words, cut in cuts.items():
    logits = rms_norm(through(cut)[-1], real["norm"], real["eps"]) @ real["head"].T  # [1, 200, V]
    losses[words] = F.cross_entropy(logits[0, :-1], ids[0, 1:]).item()
    print(f"{words:<31} loss {losses[words]:.2f}")
predict(my_guess, round(losses["that number set to 0"], 1), "nats per token")
check_equal("one number: all is lost", losses["that number set to 0"] > losses["as it is"] + 6, True)
near = [abs(losses[words] - losses["as it is"]) < 0.05 for words in list(cuts)[2:]]
check_equal("controls: nothing happens", near, [True, True])
del smol, real, stream, through

# %% [markdown] slideshow={"slide_type": "slide", "title": "Trained side by side, against tables without any learning", "show": "", "text": "Four models of 1.04M parameters, every byte of 1,028,733 read once, the same order for each, four seeds. The yardstick: how often each byte followed the last one, two, three ..\n\n**Predict:** after how many thousand bytes, if ever, does the 2019 block predict held-out text better than the **bigram** table?"}
# The heads that need it are the attention sinks of [chapter 07](07_qk_norm.ipynb): the huge number makes the first token's normalised copy, and so its key, always the same.
#
# ## 8 · Trained side by side
#
# Both blocks, and two between them: the 2019 block with RoPE, the modern block with learned positions. 1.04M parameters each (equal within 1 %: $d_{ff}$ takes up the difference); 1,028,733 bytes of English chat written by SmolLM2, read once, 512 per update, in the same order; AdamW,
# a peak rate of 3e-3; four seeds. The vocabulary is the 256 bytes, so the loss is in **bits per byte**: how many yes-no questions the next byte still costs.
#
# The yardstick is a table without any learning: how often each byte followed the last one (bigrams), two (trigrams), three .. in exactly the bytes that the run has read. **Predict**: after how many thousand bytes, if ever, does the 2019 block predict held-out text better than the **bigram** table?

# %% slideshow={"slide_type": "-"}
my_guess = None  # thousands of bytes, or "never"
epoch = load_results("epoch")
runs = {v: [r for r in epoch["runs"] if r["variant"] == v] for v in ("2019", "learned", "+rope", "modern")}
steps = [step for step, _ in runs["2019"][0]["held_out"]]
curve = {v: torch.tensor([[bits for _, bits in r["held_out"]] for r in rs]) for v, rs in runs.items()}  # [seeds, points]
tables = torch.tensor(table_curves(steps))  # [points, 6]: orders 0 to 5
read = [512 * step / 1000 for step in steps]
passed = {v: next((k for k, m, b in zip(read, c.mean(0), tables[:, 1]) if m < b), None) for v, c in curve.items()}
predict(my_guess, round(passed["2019"]), "thousand bytes (at the first point measured)")
print("thousand bytes read " + "".join(f"{read[i]:>8.0f}" for i in (5, 9, 13, 17)))
for v, c in curve.items():
    print(f"{TITLES[v]:<34}"[:20] + "".join(f"{c.mean(0)[i]:8.2f}" for i in (5, 9, 13, 17)))
for order, name in ((1, "bigram table"), (2, "trigram table"), (3, "4-gram table")):
    print(f"{name:<20}" + "".join(f"{tables[i, order]:8.2f}" for i in (5, 9, 13, 17)))

# %% slideshow={"slide_type": "subslide", "title": "When each finds out that earlier bytes matter"}
fig, ax = plt.subplots(figsize=(10, 5))
for order, name in enumerate(("bytes", "bigrams", "trigrams", "4-grams", "5-grams")):
    _ = ax.plot(read, tables[:, order], color=COLORS["faint"], lw=1.5)
    _ = ax.text(1050, tables[-1, order], name, va="center", fontsize=12, color="#666666")
for v, (color, dashes) in LOOKS.items():
    _ = ax.plot(read, curve[v].mean(0), color=COLORS[color], ls=dashes, label=TITLES[v])
    _ = ax.fill_between(read, curve[v].amin(0), curve[v].amax(0), color=COLORS[color], alpha=0.25)
_ = ax.set(xlabel="thousand bytes read", ylabel="held-out bits per byte", ylim=(1.7, 4.6), xlim=(0, 1180))
_ = ax.legend(loc="upper right", bbox_to_anchor=(0.88, 1))
plt.show()
ends = {v: c[:, -1] for v, c in curve.items()}
n = len(ends["modern"])
check_equal("every modern run below every 2019 run", bool(ends["modern"].max() < ends["2019"].min()), True)
check_equal("at 129,000 bytes the 2019 block is behind the bigram table", bool(curve["2019"][:, 3].min() > tables[3, 1]), True)
check_equal("at the end past the trigram table, not the 4-grams", [bool(ends["2019"].mean() < tables[-1, k]) for k in (2, 3)], [True, False])
check_equal("the modern block ends past the 4-grams, not the 5-grams", [bool(ends["modern"].mean() < tables[-1, k]) for k in (3, 4)], [True, False])

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: grey count tables fall slowly. The two blocks without RoPE lie on the bigram line for 400,000 bytes, then leave it. The two with RoPE leave it early; the modern block ends lowest.*
#
# The gap is a matter of **when** each finds out that earlier bytes matter; at the end the 2019 block is still coming. On this text, at this size, over this epoch, the modern block learns faster. Which is better after a thousand times as much, the figure does not say.
#
# ### How many bytes back does it read?
#
# A loss does not say what a model looks at. So keep the last $n$ bytes before each held-out byte, replace everything before them by bytes from elsewhere, and measure again: where the loss stops falling with $n$, the model has stopped reading. **Predict** for the modern block at the end of the epoch: how many
# bytes back until it is within 0.05 bit of its best?

# %% slideshow={"slide_type": "slide", "title": "How many bytes back does it read?", "show": "picture", "text": "Keep the last $n$ bytes, replace what is before. **Predict** $n$ for the modern block at the end: within 0.05 bit of its best."}
my_guess = None  # bytes
reach = {v: torch.tensor([[[bits for _, bits in row] for _, row in r["reach"]] for r in rs]).mean(0) for v, rs in runs.items()}
kept = [k for k, _ in runs["modern"][0]["reach"][0][1]]  # 1, 2, 4 .. 128 bytes
within = {v: kept[int((row[-1] < row[-1].min() + 0.05).int().argmax())] for v, row in reach.items()}
predict(my_guess, within["modern"], "bytes")
fig, ax = plt.subplots(figsize=(9, 4.2))
for v, (color, dashes) in LOOKS.items():
    _ = ax.plot(kept, reach[v][-1], "o" + dashes, color=COLORS[color], label=TITLES[v])
_ = ax.set(xscale="log", xlabel="bytes of true context kept (log)", ylabel="bits per byte")
_ = ax.set_xticks(kept, kept)
_ = ax.legend()
plt.show()
print("at the end of the epoch, bytes kept  " + "".join(f"{k:>7}" for k in kept))
for v, row in reach.items():
    print(f"{TITLES[v]:<36} " + "".join(f"{b:7.2f}" for b in row[-1]) + f"   reads about {within[v]}")
worth = {v: (row[:, 0] - row.min(1).values) for v, row in reach.items()}  # [4 points in time]: what more than one byte is worth
print("worth of more than one byte, 2019, along the run: " + "  ".join(f"{w:.2f}" for w in worth["2019"]))
check_equal("a quarter into the epoch the 2019 block gains little from context", bool(worth["2019"][0] < 0.15), True)

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: four falling curves that flatten. With one true byte the stronger models are worse off: they trust a context that is no longer there.*
#
# Whether a run has found the previous byte yet can make every bar of a small comparison. So ask of any ablation: *what was the baseline reading?*
#
# ### At which rate?
#
# The rate came from a scan of 512 steps, which saw no difference between 1e-3 and 3e-3; the tie went to the higher. A whole epoch sees one. **Before you run:** which of the four will gain from the lower rate?

# %% slideshow={"slide_type": "slide", "title": "A comparison at one rate flatters somebody", "show": "printed"}
low = load_results("low_rate")
better, arms = {}, ("2019", "+rope", "learned", "modern")
for v in arms:
    at = {3e-3: list(by_seed(epoch, v).values()), 1e-3: list(by_seed(low, v, lr=1e-3).values())}
    better[v] = min(at, key=lambda rate: sum(at[rate]) / len(at[rate]))
    print(f"{TITLES[v]:<35}" + "".join(f"  {rate:g}: {sum(b) / len(b):.2f} ({len(b)} seed{'s' * (len(b) > 1)})" for rate, b in at.items()))
check_equal("better at", list(better.values()), [3e-3, 3e-3, 1e-3, 1e-3])
lower = {r["variant"]: r["bits_per_byte"] for r in low["runs"] if r["lr"] == 3e-4}
check_equal("3e-4 is not better still (one seed)", [lower[v] > min(by_seed(low, v, lr=1e-3).values()) for v in ("learned", "modern")], [True, True])
best = {v: by_seed(epoch if better[v] == 3e-3 else low, v, lr=better[v]) for v in arms}
for v, base in (("+rope", "2019"), ("modern", "+rope"), ("learned", "modern"), ("modern", "2019")):
    at_one = effect(epoch, v, base)
    at_best = interval([best[v][seed] - best[base][seed] for seed in best[v].keys() & best[base].keys()])
    print(f"{TITLES[v]:<35} against {TITLES[base]:<13}  all at 3e-3 {at_one}   each at its better {at_best}")
gains = {v: sum(best[base].values()) / len(best[base]) - sum(best[v].values()) / len(best[v]) for v, base in (("+rope", "2019"), ("modern", "2019"))}
check_equal("RoPE alone above half of the whole", gains["+rope"] > gains["modern"] / 2, True)

# %% [markdown] slideshow={"slide_type": "skip"}
# A comparison at one rate flatters somebody: at 3e-3 the modern block without RoPE loses to that of 2019, at its better rate it wins. What survives both: the modern block ends lowest, and RoPE makes most of the difference. What does not: how much RoPE is worth when it is taken away.
#
# ### One upgrade at a time
#
# Each upgrade from two sides: **added** to 2019 + RoPE, and **taken back** from the modern block; 768 steps, three seeds, paired by seed (the same batches; each variant draws its own initial weights). An interval that contains 0 is **not resolved**. **Predict** how many of the seven upgrades, taken back one at
# a time, cost anything that is resolved.

# %% slideshow={"slide_type": "slide", "title": "One upgrade at a time, added and taken back", "show": "picture", "text": "An interval that contains 0 is **not resolved**. **Predict** how many of the seven upgrades, taken back, cost anything that is resolved."}
my_guess = None  # of seven
up = load_results("upgrades")
fig, axes = plt.subplots(1, 2, figsize=(13, 4.6), sharex=True)
added, taken = draw_upgrades(axes, up)
plt.show()
predict(my_guess, sum(it.low > 0 for it in taken.values()), "of the seven taken back")
for v, it in (added | taken).items():
    print(f"{TITLES[v]:<35} {it}")
others = [v for v in taken if v != "learned"]
print(f"the six together: {effect(up, 'modern', '+rope')}   added up, one by one: {total_effect(up, list(added), '+rope')}")
print(f"taken back, added up, less is more: {total_effect(up, others, 'modern')}")
yard = table_curves([768], "upgrades")[0]
ends = {v: sum(by_seed(up, v).values()) / 3 for v in ("+rope", "modern")}
print(f"on the same bytes: bigrams {yard[1]:.2f}, trigrams {yard[2]:.2f}; 2019 + RoPE {ends['+rope']:.2f}, modern {ends['modern']:.2f}")
check_equal("both ends past the trigram table", [end < yard[2] for end in ends.values()], [True, True])

# %% [markdown] slideshow={"slide_type": "skip"}
# *In words: one bar per change, its 95 % interval, dots for the seeds. Left, only SwiGLU is clearly below zero; right, learned positions are far above it, SwiGLU and QK-norm a little.*
#
# - **SwiGLU** helps from both sides. **RoPE** is worth most; its bar depends on the rate, as above.
# - **QK-norm** is missed when taken back, and not resolved when added: what an upgrade does depends on what is there already.
# - **RMSNorm** and **2 KV heads** are not resolved from either side, as promised: less work, a smaller cache, no loss to be seen.
# - **Untied** is worse from both sides, **without biases** slightly worse in the modern block: at a vocabulary of 256 and this size nothing speaks for the modern choice.
#
# What a change buys at a hundred billion parameters, no run on a laptop tells.
#
# ### What does a smaller cache cost?
#
# **How much loss, at equal parameters?** Eight heads of 16, their keys and values kept in seven ways: MHA, GQA, MQA, and MLA with three latents, each caching exactly as much as one of the others. One epoch, three seeds.

# %% slideshow={"slide_type": "slide", "title": "What does a smaller cache cost, at equal parameters?"}
cache = load_results("cache")
fig, ax = plt.subplots(figsize=(9, 4.6))
numbers = draw_cache(ax, cache)
plt.show()
for v, n in numbers.items():
    print(f"{TITLES[v]:<18}{n:>4} numbers per token and layer   {sum(by_seed(cache, v).values()) / 3:.3f}" + (f"   against MHA {effect(cache, v, 'kv8')}" if v != "kv8" else ""))
for one, other in (("mla120", "kv4"), ("mla56", "kv2"), ("mla24", "kv1")):
    print(f"{TITLES[one]} against {TITLES[other]}, the same cache: {effect(cache, one, other)}")

# %% [markdown] slideshow={"slide_type": "skip"}
# *In words: circles (MHA, GQA, MQA) on a flat line from 256 cached numbers down to 32; squares (MLA) a little above it, flat as well.*
#
# **Sharing heads costs nothing that three seeds resolve**, down to an eighth of the cache; the intervals leave room for 0.03 to 0.07 bit. MLA is behind MHA at all three latents, and behind MQA at the same cache: at this size it buys nothing. That is no verdict on MLA: its case is many wide heads behind one latent (128 of 128
# in DeepSeek-V3); here there are eight of 16, none with QK-norm. What the figure refutes is that a smaller cache *must* cost loss.
#
# ## 9 · Bugs that shipped
#
# **One counter for all layers.** A cache counted its tokens once for the whole model: layer 0 stored its keys and raised the counter, and every deeper layer rotated at one position too far ([fla-org/flash-linear-attention#766](https://github.com/fla-org/flash-linear-attention/issues/766)). Five tokens are cached, the sixth comes:

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: one counter for all layers"}
def sixth_token(positions):
    past = [[] for _ in w["blocks"]]
    logits_of(idx[:, :5], w, past)
    x = w["emb"][idx[:, 5:6]]
    for layer, kept, position in zip(w["blocks"], past, positions):
        x = block(x, layer, *rope_cache(1, 10, start=position), kept)
    return rms_norm(x, w["norm"]) @ w["head"].T


check_close("three layers at position 5", sixth_token([5, 5, 5]), whole[:, 5:6])
off = gap(sixth_token([5, 6, 6]), whole[:, 5:6])
print(f"positions 5, 6, 6: logits off by {off:.0%} of their size")
check_equal("more than a tenth", off > 0.1, True)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 10 · In practice
#
# "Everyone uses pre-RMSNorm, SwiGLU, RoPE and no biases" is a good first guess and no law. Fields of real files that say otherwise:

# %% slideshow={"slide_type": "slide", "title": "In practice: \"everyone\" is a good first guess and no law", "show": "printed", "text": "Fields of real files that say otherwise. Qwen2.5 has biases on q, k and v and no field for them: they follow from `model_type`."}
print(f"{'':<14} {'attention_bias':<17}{'biases: q, k, v':<17}{'W_o':<7}{'norms':<18}{'feed-forward'}")
for name in ("glm-4.5", "gpt-oss-20b", "qwen2.5-7b", "command-r-v01", "olmo-2-7b", "llama-3-8b"):
    config = lib.read_config(load(name))
    layer, field = config.layers[-1], load(name).get("attention_bias", "not in the file")
    norms = f"{config.norm.kind}, {layer.norms}"
    bias, out_bias = str(layer.attention.bias), str(layer.attention.out_bias)
    print(f"{name:<14} {field!s:<17}{bias:<17}{out_bias:<7}{norms:<18}{type(layer.ffn).__name__}")

# %% [markdown] slideshow={"slide_type": "skip"}
# Qwen2.5's biases have no field: they follow from `model_type`. OLMo 2 norms what a part adds ("post"); Command-R has one LayerNorm for both parts ("parallel"). A mixture of experts (MoE) this book counts and does not run.
#
# ## Exercises
#
# **4. Count.** Parameters of an untied `LlamaStyleLM` with QK-norm, from its sizes ($d_h = d / h$).

# %% tags=["exercise"]
def my_parameters(V, d, n_layers, n_heads, n_kv_heads, d_ff):
    ...


# %% tags=["check"]
check("09.parameters", my_parameters)

# %% tags=["solution"] jupyter={"source_hidden": true}
def parameters_solution(V, d, n_layers, n_heads, n_kv_heads, d_ff):
    dh = d // n_heads
    attention = 2 * d * d + 2 * d * n_kv_heads * dh + 2 * dh  # W_q, W_o; W_k, W_v; two gains
    return 2 * V * d + n_layers * (attention + 3 * d * d_ff + 2 * d) + d


check("09.parameters", parameters_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Read a table of seeds.** Thousandths of a bit per byte against the base, three seeds per row, of a table that no run made. Which rows are resolved at 95 %? A set of letters. (With three seeds, $t$ = 4.303.)

# %% tags=["exercise"]
rows = {"A": [31, 12, 45], "B": [-52, -47, -60], "C": [210, 20, 90], "D": [4, -3, 2], "E": [18, 21, 19]}
my_resolved = None

# %% tags=["check"]
check("09.resolved", my_resolved)

# %% tags=["solution"] jupyter={"source_hidden": true}
def resolved_solution():
    rows = {"A": [31, 12, 45], "B": [-52, -47, -60], "C": [210, 20, 90], "D": [4, -3, 2], "E": [18, 21, 19]}
    return {name for name, values in rows.items() if interval(values).resolved}


check("09.resolved", resolved_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **6. Five faults.** A whole block, one fault from each earlier theme: norm (01), gate (02), rotation (03, 04), mask (05), QK-norm (07). It runs. Mend it, and run both cells after each change; `check` counts the mended and asks about the next. (They take over names: to run an earlier section again, start at the top.)

# %% slideshow={"slide_type": "skip"}
def norm(x, gain, eps=1e-6):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale).type_as(x) * gain


def ffn(x, gate, up, down):
    return (x @ gate.T * F.silu(x @ up.T)) @ down.T


def turn(x, cos, sin):  # x [B, heads, T, dh], half-split layout
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def attend(q, k, v):  # q [B, h, T, dh], k and v [B, n_kv, S, dh]
    T, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = torch.ones(T, S, dtype=torch.bool).tril()
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v

# %% slideshow={"slide_type": "slide", "title": "Five faults in a block that runs: find them, in pairs", "show": "code", "text": "Exercise `09.faults`: one fault from each earlier theme, in two cells. Which test would have found each?"} tags=["exercise"]
def heads(x, w, cos, sin):
    dh = w["q_norm"].numel()
    q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    return norm(q, w["q_norm"]), norm(k, w["k_norm"]), v


def block(x, w, cos, sin, past=None):  # past: the keys and values of earlier tokens
    q, k, v = heads(norm(x, w["attn_norm"]), w, cos, sin)
    if past is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
    x = x + attend(q, k, v).transpose(1, 2).flatten(2) @ w["wo"].T
    return x + ffn(norm(x, w["ffn_norm"]), w["w_gate"], w["w_up"], w["w_down"])


my_block = {"norm": norm, "ffn": ffn, "turn": turn, "attend": attend, "heads": heads, "block": block}

# %% tags=["check"]
check("09.faults", my_block)

# %% tags=["solution"] jupyter={"source_hidden": true}
def faults_solution():
    def mended_norm(x, gain, eps=1e-6):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).type_as(x) * gain

    def mended_turn(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def mended_heads(x, w, cos, sin):
        dh = w["q_norm"].numel()
        q, k, v = ((x @ w[name].T).unflatten(-1, (-1, dh)).transpose(1, 2) for name in ("wq", "wk", "wv"))
        q, k = mended_norm(q, w["q_norm"]), mended_norm(k, w["k_norm"])
        return mended_turn(q, cos, sin), mended_turn(k, cos, sin), v

    right = {"norm": mended_norm, "turn": mended_turn, "heads": mended_heads}
    from_lib = {"ffn": lambda *args: swiglu(*args), "attend": lambda *args: lib.attend(*args)}
    return my_block | right | from_lib


check("09.faults", faults_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A port is shown by every stage, a block by its control", "show": "", "text": "- thirty lines: equal to `lib` with random gains, at once and through the cache\n- a fault is located by the first stage that differs; the first token hides half of them\n- pre-norm keeps a road from the embedding to the head\n- a small run: beside count tables, with seeds and intervals, and by how far back it reads"}
# ## What you can do now
#
# You **wrote** the block and the model; **counted** their parameters; **located** eight faults; **explained** what pre-norm keeps; and **judged** small runs beside count tables, by how far back they read, with intervals. Proved equal: our lines and `lib`, with random gains, through the cache, and on SmolLM2's weights.
#
# **Sources.** Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762)): post-norm. Chowdhery et al. 2022, PaLM ([arXiv 2204.02311](https://arxiv.org/abs/2204.02311)), section 2: SwiGLU, RoPE and no biases in one model. Touvron et al. 2023, LLaMA ([arXiv 2302.13971](https://arxiv.org/abs/2302.13971)), section 2.2.
# The training runs are this book's own.

# %% slideshow={"slide_type": "skip"}
progress("09")
