# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "A file of weights and a config.json: that is all one gets of a model. After this chapter you can"}
# # 10 · Real models
#
# A file of weights and a config.json: that is all one gets of a model. First you port a real one by hand into the block of this book; then you learn to read any
# config, and to see where it misleads.
#
# After this chapter you will be able to
# - **port** a checkpoint: names, layouts, ties, and the test that shows it is right;
# - **read** a config.json aloud: which block, how many parameters, how large a cache;
# - **catch** what the usual cache formula misses, and in how many of 53 published models;
# - **bound** the speed of decoding from bytes alone;
# - **correct** published numbers.
#
# You need chapters 04, 05, 06 and 08. About 60 minutes.

# %% slideshow={"slide_type": "skip"}
import json
import textwrap

import matplotlib.pyplot as plt
import torch

import lib
from book import configs
from book.bench import load_bench, race
from book.exercises import check, progress
from book.exercises.ch10 import mystery
from book.explore.ch10_frontier import draw_frontier, frontier_explorer
from book.figures import style
from book.predict import check_close, check_equal, predict
from book.wall import WALL
from lib import LlamaStyleLM, read_config
from lib.families.describe import page

style()
_ = torch.manual_seed(10), torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "A port needs a target: the logits of something known to be right", "show": "", "text": "- the target: `lib.load_model`, whose logits equal those of transformers to 1e-4 of the largest\n- for one prompt, all of them: 37 tokens, 49,152 words\n- text is compared **only as far as it is certain**: up to the first token that wins by less than 0.05\n- then three steps: **names, layouts, ties**"}
# # Part one: a port by hand
#
# ## 1 · What must come out
#
# A port needs a target: numbers from an implementation that is known to be right. Ours is `lib.load_model`, whose logits equal those of transformers to 1e-4 of the largest
# (the book's tests compare them). We take its logits for one prompt, and forget it again.
#
# `answer` decodes greedily and returns the text **only as far as it is certain**: up to the first token that wins by less than 0.05, where another
# machine's rounding could choose differently.

# %% slideshow={"slide_type": "skip"}
tokenizer = lib.load_tokenizer(lib.find_model())
prompt = lib.chat_prompt("What is the capital of France?")
idx = torch.tensor([tokenizer.encode(prompt).ids])


def answer(model, text, n):
    idx = torch.tensor([tokenizer.encode(text).ids])
    stop = {tokenizer.token_to_id("<|im_end|>")}
    new = lib.generate(model, idx, n, stop=stop)[0, idx.shape[1] :]
    best = model(torch.cat([idx[0], new[:-1]])[None])[0, idx.shape[1] - 1 :].topk(2).values
    certain = (best[:, 0] - best[:, 1] > 0.05).cumprod(0).sum()
    return tokenizer.decode(new[:certain].tolist(), skip_special_tokens=False)


target = lib.load_model(lib.find_model())(idx)
check_equal("logits", list(target.shape), [1, 37, 49152])

# %% [markdown] slideshow={"slide_type": "notes"}
# ## 2 · The file
#
# SmolLM2-135M-Instruct comes as one GGUF file: a table of metadata, then tensors, most of them in a few bits a number (the cell says which kinds). `lib.open_gguf` reads single tensors and turns
# them into float32. (The safetensors file of the other chapters was written from this one.)
#
# Every metadata field has its name in this book's vocabulary, so the configuration is one call. It is enough to build the model, here on PyTorch's `meta` device, where tensors have
# shapes and no numbers.
#
# The file has 98,362,432 bytes and the model 134,515,008 parameters. **Predict** the bits per parameter.

# %% slideshow={"slide_type": "slide", "title": "The file says the configuration in one call", "text": "The GGUF file has 98,362,432 bytes and the model 134,515,008 parameters.\n\n**Predict** the bits per parameter."}
from book.fetch_model import LICENCE, PACKAGE, VERSION

my_guess = None
file = lib.open_gguf(lib.find_model("gguf"))
predict(my_guess, round(98_362_432 * 8 / 134_515_008, 2), "bits")
for key, value in file.metadata.items():
    if key.startswith("llama.") and key != "llama.rope.dimension_count":
        print(f"{key:<40}{value:g}")
cfg = lib.llama_style(
    49152, d=576, n_layers=30, n_heads=9, n_kv_heads=3, d_ff=1536,
    max_len=8192, rope_base=100_000.0, eps=1e-5, tie=True, qk_norm=False,
)
model = LlamaStyleLM.from_config(cfg, device="meta")
check_equal("parameters", lib.parameters(cfg).total, 134_515_008)
kinds = ", ".join(sorted({file.kind(name) for name in file}))
check_close("bits without header and tokenizer", 96_576_768 * 8 / 134_515_008, 5.74, 0.005)
print(f"{PACKAGE} {VERSION}, {LICENCE}: {lib.find_model('gguf').stat().st_size / 1e6:.0f} MB in {kinds}")

# %% [markdown] slideshow={"slide_type": "notes"}
# In `Q4_1`, 32 numbers share a scale and an offset and have 4 bits each, 5 with their part of these two; in `Q8_0` it is 8.5. 5.85 is the whole file over the parameters; 1.8 MB of it are the tokenizer and the header, so the tensors average 5.74.
#
# ## 3 · Names
#
# Porting is mostly dictionary work: nine names in each of thirty layers, and two outside.
#
# **Predict**: our model has 273 names, the head's included. How many tensors has the file?

# %% slideshow={"slide_type": "slide", "title": "Names: two dictionaries", "show": "code"}
INSIDE = {"attn_norm": "attn_norm", "attn_q": "attn.wq", "attn_k": "attn.wk", "attn_v": "attn.wv"}
INSIDE |= {"attn_output": "attn.wo"}
INSIDE |= {"ffn_norm": "ffn_norm", "ffn_gate": "ffn.w_gate", "ffn_up": "ffn.w_up", "ffn_down": "ffn.w_down"}
OUTSIDE = {"token_embd.weight": "emb.weight", "output_norm.weight": "norm.weight"}


def ours(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, layer, part, _ = name.split(".")  # blk.7.attn_q.weight
    return f"blocks.{layer}.{INSIDE[part]}.weight"


my_guess = None
predict(my_guess, len(file))
raw = {ours(name): file[name] for name in file}
missing = set(model.state_dict()) - set(raw)
check_equal("names of ours that the file lacks", missing, {"head.weight"})
check_equal("names that we do not have", set(raw) - set(model.state_dict()), set())

# %% [markdown] slideshow={"slide_type": "slide", "title": "Layouts: one transpose, and nothing complains when it is forgotten", "show": "", "text": "GGUF keeps q and k of a Llama in **adjacent** pairs, row $2i$ with $2i+1$; our block turns row $i$ with row $i + d_h/2$. The shape stays."}
# One is missing: the head. The model ties it ([chapter 08](08_tied_embeddings.ipynb)), so the file stores the matrix once. A loader that fills the gap with random numbers runs and talks gibberish.
# A loader that **counts** what is missing, as above, cannot.
#
# ## 4 · Layouts
#
# GGUF keeps q and k of a Llama in **adjacent** pairs, row $2i$ with $2i+1$. Our block turns row $i$ with row $i + d_h/2$ ([chapter 04](04_rope_in_practice.ipynb)). So the rows of every head move: even rows first, then
# odd ones. The shape stays, which is why nobody notices when it is forgotten.
#
# Then fill: `assign=True` puts the tensors in place without a copy. The tie is made last, by hand: one parameter, two names.

# %% slideshow={"slide_type": "-", "show": "code"}
def to_half(w, n_heads):
    pairs = w.view(n_heads, 32, 2, -1)  # [n, pair, member, d]
    return pairs.transpose(1, 2).reshape(w.shape)


q = raw["blocks.0.attn.wq.weight"]  # 9 heads of 64 rows
check_equal("as lib does it", to_half(q, 9), lib.permute_heads(q, 9, to="half"))
weights = dict(raw)
for i in range(30):
    for part, n_heads in (("wq", 9), ("wk", 3)):  # k has 3 heads
        name = f"blocks.{i}.attn.{part}.weight"
        weights[name] = to_half(raw[name], n_heads)

# %% slideshow={"slide_type": "slide", "title": "Fill, tie, compare: every logit"}
left_over = model.load_state_dict(weights, strict=False, assign=True)
check_equal("still without numbers", left_over.missing_keys, ["head.weight"])
model.head.weight = model.emb.weight
check_close("logits, by hand against lib", model(idx), target)
print(answer(model, prompt, 10))

# %% [markdown] slideshow={"slide_type": "skip"}
# Two dictionaries, one transpose, one assignment: that is a port. The comparison of **all** logits is what shows it, not the text. Look why.
#
# ## 5 · The same weights in the wrong layout
#
# Now put the raw rows of q and k back, as if the second step had been forgotten. Every shape fits, and nothing is missing. **Write down** what you expect:
# an error, noise, or sentences?

# %% slideshow={"slide_type": "slide", "title": "The same weights in the wrong layout: error, noise or sentences?", "text": "Put the raw rows of q and k back, as if the transpose had been forgotten. Every shape fits, nothing is missing. **Write down** what you expect."}
my_guess = None  # "error", "noise" or "sentences"
texts = {"The capital of France is": 2, "Once upon a time": 14, prompt: 10}
right = {text: answer(model, text, n) for text, n in texts.items()}
for name, w in raw.items():
    if name.endswith(("wq.weight", "wk.weight")):
        model.get_parameter(name).copy_(w)
wrong = {text: answer(model, text, n) for text, n in texts.items()}
predict(my_guess, "sentences")
for text in texts:
    print(f"{'(the chat)' if text == prompt else text}\n  right: {right[text]!r}\n  wrong: {wrong[text]!r}")
check_equal("the port is refuted by its logits", bool((model(idx) - target).abs().max() > 1), True)

# %% [markdown] slideshow={"slide_type": "notes"}
# The first line is right in both layouts. The story is English and runs in a circle. In the chat the wrong model ends its turn (`<|im_end|>`) without a word. A wrong rotation leaves each token's own
# content alone and garbles **where** things are, so the model speaks and does not listen. Reading a few lines of output is no test of a port.
#
# ## 6 · How fast can it be?
#
# A decode step reads every weight it multiplies with once, and the cache of its sequences. It cannot take less time than a plain read of these bytes does. `make bench-decode` times one step beside such reads
# (a sum, a maximum, a dot product, a loop in C++) in one run, in turn; `limit` is the bytes over the fastest of them. *plain* is the model of this chapter; *fast* the same in fewer and larger PyTorch calls; *compiled*
# one step in C++ (`load_model(.., decode="compiled")`). **Predict** which share of the limit the plain model reaches in float32 on one thread.

# %% slideshow={"slide_type": "slide", "title": "How fast can it be? A step cannot beat a plain read of its bytes", "text": "**Predict** which share of the limit *plain*, the model of this chapter, reaches in float32 on one thread."}
del model, raw, weights, target, q  # no weights are needed from here on
my_guess = None
bench = load_bench("decode")
p = bench["provenance"]
print(f"{p['date']}, {p['cpu']}, torch {p['torch']}, transformers {p['transformers']}; one thread, 64 tokens of context")
RACE = ("limit", "compiled", "fast", "plain", "transformers", "llama.cpp")
cells = [(dtype, batch) for dtype in ("float32", "bfloat16") for batch in (1, 8)]
ms = {(d, b): race(bench, RACE, dtype=d, batch=b, context=64, threads=1) for d, b in cells}
share = {cell: {name: at["limit"] / at[name] for name in RACE} for cell, at in ms.items()}
calls = {row["variant"]: row["ms_least"] for row in bench["calls"] if row["dtype"] == "float32"}
print(f"the same calls on weights of next to nothing: plain {calls['plain']:.0f} ms, fast {calls['fast']:.0f} ms")
gain = {name: ms["float32", 1][name] / ms["bfloat16", 1][name] for name in ("limit", "compiled", "plain")}
print("half the bytes: " + ", ".join(f"{name} {value:.1f} times faster" for name, value in gain.items()))
predict(my_guess, round(share["float32", 1]["plain"], 2), "of the limit")
check_equal("nobody beats the limit", all(s <= 1 for at in share.values() for s in at.values()), True)
check_equal("compiled gains more from bfloat16 than plain", gain["compiled"] > gain["plain"] + 0.3, True)
lower = [share[d, 8]["compiled"] < share[d, 1]["compiled"] for d in ("float32", "bfloat16")]
check_equal("compiled's share is lower at batch 8", lower, [True, True])

# %% [markdown] slideshow={"slide_type": "slide", "title": "Calls, width and batch come between a step and its limit", "show": "", "text": "- **calls**: thirty layers are hundreds of PyTorch calls, and they take their time even where the weights are tiny\n- **width**: half the bytes halve the read, but a bfloat16 weight has to be widened before it is added up\n- **batch**: eight sequences read the weights once; but each weight meets eight rows of arithmetic, and the caches are not shared"}
# Three things come between a step and its limit. **Calls**: thirty layers are hundreds of PyTorch calls, and they take their time even where the weights are tiny. **Width**: half the bytes halve the read, but a
# bfloat16 weight has to be widened to float32 before it is added up. The C++ step does that in registers and keeps most of the gain; PyTorch's product with one row keeps little of it.
# **Batch**: eight sequences read the weights once, so the limit per token falls almost eightfold; but each weight now meets eight rows of arithmetic, and nobody's reading stays as steady as a plain
# loop's. The caches are not shared by a batch at all ([chapter 05](05_kv_cache.ipynb)).
#
# On a GPU the read is fast (NVIDIA's data sheet says 3.35 TB/s for an H100 SXM: 0.16 ms for the float32 bytes above), so the calls *are* the time unless a step is captured once and replayed as a graph; where
# a GPU is, `make gpu` measures that. The race on your own machine takes a minute: `make bench-decode BENCH_ARGS=--quick`.
#
# # Part two: the config detective
#
# ## 7 · Four files, read aloud
#
# The files are copies of published ones; `lib.read_config` makes the list of layers that this book calls a model.
#
# **Llama 3 8B** has no trap: `hidden_size` over `num_attention_heads` is 128, and so is a head. **Qwen3 0.6B** looks alike: 28 layers, 8 KV heads, 16 query heads on a stream of 1,024; its file says `head_dim` 128.
# **Falcon 7B** writes `num_kv_heads` 71, but also `multi_query` true, and then the model has one: 32 layers, heads of 64. **DeepSeek-V3** writes `num_key_value_heads` 128, but `kv_lora_rank` 512, and then heads
# do not enter ([chapter 06](06_mla.ipynb)). **Predict** what Qwen3 and Falcon cache per token, in numbers.

# %% slideshow={"slide_type": "slide", "title": "Four files: Llama 3 8B has no trap, Qwen3, Falcon and DeepSeek-V3 have one each", "text": "Llama 3 8B: `hidden_size` over `num_attention_heads` is 128, and so is a head. Qwen3 0.6B: 28 layers, 8 KV heads, `head_dim` 128. Falcon 7B: 32 layers, heads of 64, `num_kv_heads` 71, but `multi_query` true. DeepSeek-V3: `num_key_value_heads` 128, but `kv_lora_rank` 512.\n\n**Predict** what Qwen3 and Falcon cache per token, in numbers."}
def read(name, *fields):
    raw = configs.load(name)
    print(f"{name}: " + ", ".join(f"{field} {json.dumps(raw.get(field, 'not there'))}" for field in fields))
    return read_config(raw)


SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
llama, qwen = read("llama-3-8b", *SHAPE), read("qwen3-0.6b", *SHAPE)
falcon = read("falcon-7b", "multi_query", "num_kv_heads", "num_attention_heads")
v3 = read("deepseek-v3", "num_key_value_heads", "kv_lora_rank", "qk_rope_head_dim", "num_hidden_layers")
my_guess = {"Qwen3": None, "Falcon": None}
for name, c in (("Qwen3", qwen), ("Falcon", falcon)):
    predict(my_guess[name], lib.kv_elements_per_token(c), f"numbers per token, {name}")
for name, c in (("llama-3-8b", llama), ("qwen3-0.6b", qwen), ("falcon-7b", falcon), ("deepseek-v3", v3)):
    usual, size = lib.naive_kv_elements_per_token(c), lib.kv_elements_per_token(c)
    print(f"{name}: {size:,} numbers; the usual 2 L n_kv (d / h) says {usual:,}, {usual / size:.3g} times that")
check_equal("Qwen3-0.6B", lib.kv_elements_per_token(qwen), 2 * 28 * 8 * 128)
check_equal("Falcon, bytes per token", lib.kv_bytes_per_token(falcon), 2 * 32 * 1 * 64 * 2)
check_equal("V3's parameters", lib.parameters(v3).total, 671_026_404_352)

# %% [markdown] slideshow={"slide_type": "notes"}
# ## 8 · What the configs of 2025 and 2026 name
#
# Seven mechanisms that the block of this book does not have, each with its formula, what it keeps, its fields, and lines that run.
#
# **Mixture of experts.** $y = \sum_{i \in \text{top-}k} w_i\, E_i(x)$, with $w$ the softmax of the router's $k$ largest scores (some divide sigmoids instead). It caches nothing; all experts have to be in
# memory. Fields: `num_local_experts`, `num_experts_per_tok` (gpt-oss); `n_routed_experts`, `n_shared_experts`, `moe_intermediate_size` (GLM-4.5, DeepSeek). GLM-4.5 has 353 billion parameters; in 89 of 92
# layers a token meets 9 experts of $3 \cdot 5120 \cdot 1536$. **Predict** how many billions it uses.

# %% slideshow={"slide_type": "subslide", "title": "Mixture of experts: all weights in memory, a few in use", "text": "$y = \\sum_{i \\in \\text{top-}k} w_i\\, E_i(x)$\n\nGLM-4.5 has 353 billion parameters; in 89 of 92 layers a token meets 9 experts of $3 \\cdot 5120 \\cdot 1536$.\n\n**Predict** how many billions it uses."}
glm = read("glm-4.5", "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "first_k_dense_replace")
my_guess = None
predict(my_guess, round(lib.parameters(glm).active / 1e9, 1), "billion", tol=0.05)


def routed(x, router, experts, k):
    top, chosen = (x @ router.T).topk(k)  # [T, k]
    w, y, rows = top.softmax(-1), torch.zeros_like(x), 0
    for i, expert in enumerate(experts):
        token, place = (chosen == i).nonzero(as_tuple=True)  # who chose expert i
        y[token] += w[token, place, None] * (x[token] @ expert)
        rows += len(token)
    return y, rows


x, router, experts = torch.randn(9, 6), torch.randn(8, 6), torch.randn(8, 6, 6)
dense = ((x @ router.T).softmax(-1)[..., None] * (x @ experts).transpose(0, 1)).sum(1)
check_close("all 8 chosen: the dense mixture", routed(x, router, experts, 8)[0], dense)
check_equal("2 of 8 chosen: rows that experts multiply, of 72", routed(x, router, experts, 2)[1], 9 * 2)

# %% [markdown] slideshow={"slide_type": "notes"}
# **Windows beside full layers.** A window layer keeps $2\,n_{kv} d_h \min(T, W)$ numbers, in a ring: token $t$ is written over token $t - W$. Fields: `sliding_window` with `layer_types`, or with
# `sliding_window_pattern` 6 as in Gemma 3 1B: five layers of every six see 512 tokens. **Predict** how many of its 26 layers keep everything.

# %% slideshow={"slide_type": "subslide", "title": "Windows beside full layers: a ring holds what the window sees", "text": "Gemma 3 1B: `sliding_window_pattern` 6, five layers of every six see 512 tokens.\n\n**Predict** how many of its 26 layers keep everything."}
gemma = read("gemma-3-1b", "num_hidden_layers", "sliding_window", "sliding_window_pattern")
mistral = read("mistral-7b-v0.1", "num_hidden_layers", "sliding_window", "max_position_embeddings")
my_guess = None
predict(my_guess, sum(layer.attention.window is None for layer in gemma.layers), "layers")
for name, c in (("mistral-7b-v0.1", mistral), ("gemma-3-1b", gemma)):
    kept, full = (lib.format_bytes(lib.kv_bytes(c, 131072, capped=capped)) for capped in (True, False))
    print(f"{name}: {kept} at 131,072 tokens; {full} in an engine that ignores windows")
check_equal("Mistral's cap, MiB", lib.kv_bytes(mistral, 131072) / 2**20, 512.0)
q, k, v = torch.randn(3, 11, 8)  # eleven tokens, one head
ring_k, ring_v = torch.zeros(2, 4, 8)  # a window of four
for t in range(11):
    ring_k[t % 4], ring_v[t % 4] = k[t], v[t]
want = (k[7:] @ q[10]).softmax(0) @ v[7:]
check_close("a ring of four holds what the window sees", (ring_k @ q[10]).softmax(0) @ ring_v, want)

# %% [markdown] slideshow={"slide_type": "notes"}
# **Shared KV layers.** Layer $l \ge L - n$ makes no keys: $K_l, V_l$ are those of the last layer of its kind before $L - n$. It keeps nothing. Field: `num_kv_shared_layers`, 15 of 35 in the class of Gemma 3n, 0 in
# the file of Gemma 4 26B-A4B.

# %% slideshow={"slide_type": "subslide", "title": "Shared KV layers keep nothing of their own", "text": "Gemma 3n: `num_kv_shared_layers` 15 of 35."}
kinds = ["full" if (i + 1) % 5 == 0 else "window" for i in range(35)]  # Gemma 3n
first = 35 - 15
own = [i if i < first else max(j for j in range(first) if kinds[j] == kinds[i]) for i in range(35)]
print(f"layers 20 to 34 read the keys of layers {sorted(set(own[first:]))}")
kept, otherwise = (lib.kv_cache_bytes(n, 2, 256) for n in (len(set(own)), 35))
print(f"{kept:,} bytes per token in place of {otherwise:,}, while the windows fill")
check_equal("layers that read keys of another kind", [i for i in range(35) if kinds[own[i]] != kinds[i]], [])

# %% [markdown] slideshow={"slide_type": "notes"}
# **Learned sinks.** $a_s = e^{z_s} / (e^b + \sum_r e^{z_r})$, one $b$ per head, so the weights may add up to less than 1 (why a head would want that: [chapter 07](07_qk_norm.ipynb)). It keeps nothing per token. No field: `model_type` gpt_oss
# implies it. **Predict** the sum of the weights over seven scores of 0 with $b = 3$.

# %% slideshow={"slide_type": "subslide", "title": "Learned sinks: weights that add up to less than 1", "text": "gpt-oss: $a_s = e^{z_s} / (e^b + \\sum_r e^{z_r})$\n\n**Predict** the sum of the weights over seven scores of 0 with $b = 3$."}
def with_sink(z, b):
    return torch.cat([z, b[:, None]], 1).softmax(1)[:, :-1]  # z [heads, keys], b [heads]


oss = read("gpt-oss-20b", "num_hidden_layers", "num_attention_heads")
my_guess = None
predict(my_guess, round(with_sink(torch.zeros(1, 7), torch.tensor([3.0])).sum().item(), 2), tol=0.05)
z, b, v = torch.randn(4, 7), torch.randn(4), torch.randn(7, 8)
gate = torch.sigmoid(z.logsumexp(1) - b)[:, None]
check_close("a gate on the head's output", with_sink(z, b) @ v, gate * (z.softmax(1) @ v))
print(f"gpt-oss-20b: {lib.kv_bytes_per_token(oss):,} bytes per token, none of them for its {24 * 64:,} sinks")

# %% [markdown] slideshow={"slide_type": "notes"}
# **Linear attention and state space.** $S_t = a_t S_{t-1} + k_t v_t^\top$, $o_t = S_t^\top q_t$: per head $d_k d_v$ numbers whatever the length, nothing per token. (Mamba-2 and lightning attention are this; gated
# DeltaNet also takes out what $S$ held for $k_t$.) Fields: `hybrid_override_pattern`, `mamba_num_heads`, `mamba_head_dim`, `ssm_state_size` (Nemotron); `linear_num_value_heads`, `linear_key_head_dim`
# (Qwen3-Next). Nemotron 3 Nano's 23 M layers each hold $64 \cdot 64 \cdot 128$ numbers and a little for a convolution. **Predict** how many tokens of its six attention layers' cache (2 KV heads of 128) weigh as much.

# %% slideshow={"slide_type": "subslide", "title": "A state in the place of keys: nothing per token", "text": "$S_t = a_t S_{t-1} + k_t v_t^\\top$, $o_t = S_t^\\top q_t$\n\nNemotron 3 Nano: 23 layers hold $64 \\cdot 64 \\cdot 128$ numbers each, whatever the length; six attention layers have 2 KV heads of 128.\n\n**Predict** how many tokens of cache weigh as much as the state."}
nemotron = read("nemotron-3-nano-30b-a3b", "mamba_num_heads", "mamba_head_dim", "ssm_state_size")
state, per_token = 2 * lib.state_elements(nemotron), lib.kv_bytes_per_token(nemotron)
my_guess = None
predict(my_guess, round(state / per_token), "tokens", tol=0.1)
print(f"{lib.format_bytes(state)} of state in 16 bits, {per_token:,} bytes per token beside it")
q, k, v = torch.randn(3, 9, 4, dtype=torch.float64)
a, S, out = torch.rand(9).double(), torch.zeros(4, 4).double(), []
for t in range(9):
    S = a[t] * S + torch.outer(k[t], v[t])
    out.append(q[t] @ S)
left = a.cumprod(0)[:, None] / a.cumprod(0)  # of token s at token t
check_close("one state, or all pairs without a softmax", torch.stack(out), (q @ k.T * left).tril() @ v)

# %% [markdown] slideshow={"slide_type": "notes"}
# **Sparse indexers.** $I_{t,s} = \sum_j w_{t,j}\, \mathrm{ReLU}(q_{t,j} \cdot k_s)$; attention reads the `index_topk` keys with the largest $I$. It keeps one small key per token and layer **beside** the cache: `index_head_dim` 128 in DeepSeek-V3.2, next
# to a latent of 576. **Predict** how many times fewer numbers a step then reads at 131,072 tokens, of which it picks 2,048.

# %% slideshow={"slide_type": "subslide", "title": "A sparse indexer reads every small key, and few large ones", "text": "$I_{t,s} = \\sum_j w_{t,j}\\, \\mathrm{ReLU}(q_{t,j} \\cdot k_s)$\n\nDeepSeek-V3.2: `index_head_dim` 128 beside a latent of 576, `index_topk` 2,048.\n\n**Predict** how many times fewer numbers a step reads at 131,072 tokens."}
v32 = read("deepseek-v3.2", "index_n_heads", "index_head_dim", "index_topk")
T, index, latent = 131072, lib.extra_kv_elements_per_token(v32) // 61, lib.kv_elements_per_token(v32) // 61
my_guess = None
predict(my_guess, round(T * latent / (T * index + 2048 * latent), 1), "times fewer")
held = [lib.format_bytes(lib.sequence_bytes(c, T)) for c in (v3, v32)]
print(f"{index} beside {latent} per token and layer: {held[1]} in 16 bits, against V3's {held[0]}")


def picked(q, k, w, n):
    score = w @ (q @ k.T).relu()  # q [heads, d], k [T, d], w [heads] -> [T]
    return score.topk(min(n, len(k))).indices


q, k, v, small_k = torch.randn(8), torch.randn(40, 8), torch.randn(40, 8), torch.randn(40, 4)
at = picked(torch.randn(3, 4), small_k, torch.rand(3), 64)
check_close("40 tokens, 64 allowed: nothing is lost", (k[at] @ q).softmax(0) @ v[at], (k @ q).softmax(0) @ v)
nearest = picked(small_k[7:8], small_k / small_k.norm(dim=1, keepdim=True), torch.ones(1), 1)
check_equal("one allowed: the key that the query resembles most", nearest.item(), 7)

# %% [markdown] slideshow={"slide_type": "notes"}
# **Multi-token heads.** $h'_t = \mathrm{block}(W[\mathrm{norm}(h_t), \mathrm{norm}(e_{t+1})])$ guesses token $t + 2$ with the same head: one more layer, used in training, or to draft. As a draft it keeps its own layer's keys and
# values; left out, as transformers does, nothing. Field: `num_nextn_predict_layers`, 1 in GLM-4.5 and DeepSeek-V3. GLM-4.5's card says 355 billion parameters, its config 353. **Predict** how many billions
# the extra layer has: an MoE layer, $W$ and three norms.

# %% slideshow={"slide_type": "subslide", "title": "Multi-token heads: 353 or 355 billion?", "text": "$h'_t = \\mathrm{block}(W[\\mathrm{norm}(h_t), \\mathrm{norm}(e_{t+1})])$ guesses token $t + 2$.\n\nGLM-4.5's card says 355 billion parameters, its config 353. **Predict** how many billions the extra layer has."}
p, longer = lib.parameters(glm), glm.replace(layers=(*glm.layers, glm.layers[-1]))
extra = lib.parameters(longer).total - p.total + 2 * glm.d**2 + 3 * glm.d
my_guess = None
predict(my_guess, round(extra / 1e9, 2), "billion", tol=0.05)
print(f"the config's {p.total / 1e9:.1f}, with the layer {(p.total + extra) / 1e9:.1f},", end=" ")
print(f"without embedding and head {(p.total + extra - p.embedding - p.head) / 1e9:.1f} billion")
print(f"as a draft it keeps {lib.kv_bytes_per_token(longer) - lib.kv_bytes_per_token(glm):,} bytes per token")
after = [(21 * t + 8) % 50 for t in range(50)]  # a model: token -> next token
guess = [after[after[t]] if t % 3 else 0 for t in range(50)]  # its extra head: two in three are right
text, plain, steps = [7], [7], 0
while len(text) < 61:
    one = after[text[-1]]  # the model reads its own token and the guess in one step
    text += [one, after[one]] if guess[text[-1]] == after[one] else [one]
    steps += 1
while len(plain) < 61:
    plain.append(after[plain[-1]])
check_equal("the drafted text is the plain one", text[:61], plain)
print(f"{steps} steps for 60 tokens")

# %% [markdown] slideshow={"slide_type": "slide", "title": "One page for any file: python -m lib describe PATH", "show": "", "text": "- the block beside that of 2019, parameters, the cache of each kind of layer on one GPU and on eight\n- the usual figure and **why** it differs; one decode step; the fields that the numbers came from\n- PATH is a config.json, a model folder or a GGUF file; `--compare A B` puts two side by side\n- what the file does not say is **listed**, not guessed: a reader that guesses is how wrong numbers are made"}
# The config's own count is 353 billion, 357 with the extra layer. 355 counts the layer and leaves out the embedding and the head, as the note to Table 1 of the model's report says
# ([arXiv 2508.06471](https://arxiv.org/abs/2508.06471)).
#
# ## 9 · One page for any file
#
# `python -m lib describe PATH` puts all of this on a page: the block beside that of 2019, parameters, the cache of each kind of layer on one GPU and on eight, the usual figure and **why** it differs,
# one decode step, and the fields that the numbers came from. PATH is a config.json, a model folder or a GGUF file; `--compare A B` puts two side by side. In Python it is `page(read_config(..))`. Paste any
# config.json between the quotes; empty, it is gpt-oss-20b, whose makers give 3.6 billion active parameters: they leave out the embedding table.
#
# The last lines of the page matter as much as the first: what the block cannot run is named, and what the file does not say is listed rather than guessed. So three broken files at the end get an error instead of a number.

# %% slideshow={"slide_type": "skip"}
my_config = """ """
shown = json.loads(my_config) if my_config.strip() else configs.load("gpt-oss-20b")
print(page(read_config(shown), name=shown.get("model_type", "mine")))
p = lib.parameters(oss)
check_equal("active parameters of gpt-oss-20b", p.active, 4_187_440_704)
print(f"without the embedding table, which a token looks up and does not multiply: {p.active - p.embedding:,}")
for broken in (
    {"model_type": "my_own_net"},
    {"model_type": "llama", "hidden_size": 4096},
    {**configs.load("llama-3-8b"), "num_key_value_heads": 7},
):
    try:
        read_config(broken)
    except ValueError as error:
        print(f"{str(error)[:118]} ..")

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 10 · How often is the usual formula wrong?
#
# The book carries a table of 53 published models, made by `lib` from their config files. The usual calculator takes four fields: $2\,L\,n_{kv}\,(d / h)$ numbers per token, times tokens. **Predict** for how many of
# the 53 it is wrong, per token and at 131,072 tokens.

# %% slideshow={"slide_type": "slide", "title": "How often is the usual formula wrong?", "show": "", "text": "The usual calculator takes four fields: $2\\,L\\,n_{kv}\\,(d / h)$ numbers per token, times tokens. The book has a table of 53 published models, made from their config files.\n\n**Predict** for how many of the 53 it is wrong, per token and at 131,072 tokens."}
rows = configs.frontier()
my_guess = {"per token": None, "at 131,072": None}
per_token = [row for row in rows if row.naive != row.elements]
at_128k = [row for row in rows if row.naive_bytes(131072) != row.cache_bytes(131072)]
for where, found in (("per token", per_token), ("at 131,072", at_128k)):
    predict(my_guess[where], len(found), f"of {len(rows)}, {where}")
for row in sorted(at_128k, key=lambda row: -row.naive_bytes(131072) / row.cache_bytes(131072)):
    factor = row.naive_bytes(131072) / row.cache_bytes(131072)
    print(f"{row.name:<25}{factor:>7.3g} times  {row.kind:<28}{'windows' if row.windowed else ''}".rstrip())
check_equal("wrong", (len(per_token), len(at_128k), len(rows)), (21, 26, 53))

# %% [markdown] slideshow={"slide_type": "fragment", "show": "", "text": "**21** per token, **26** at 131,072 tokens: from 71 times too much to 2.4 times too little. Four causes: a head is not $d/h$ wide; not every layer keeps everything; KV heads are written elsewhere; there are no KV heads (MLA)."}
# From 71 times too much to 2.4 times too little (some of them beyond the length that their file declares). Four causes: a head is not $d/h$ wide, not every layer keeps everything, KV heads are written elsewhere, or there are no KV heads (MLA).
#
# ## 11 · The frontier
#
# Every dot is a model: parameters to the right, what **one** sequence keeps upwards. The dashed line joins the models that no larger one undercuts. Move the context. Which dots stay behind, and why?
#
# Then switch to the usual formula and look at the line.

# %% slideshow={"slide_type": "slide", "title": "Move the context: which dots stay behind, and why?"}
frontier_explorer

# %% slideshow={"slide_type": "subslide", "title": "Parameters to the right, one sequence's cache upwards"}
fig, axes = plt.subplots(1, 3, figsize=(14, 4.6), sharey=True)
lines = draw_frontier(axes, (4096, 131072, 1048576))
_ = axes[0].set_ylabel("kept for one sequence")
plt.show()
print(lines)
by_name = {row.name: row for row in rows}
same = by_name["mistral-7b-v0.1"].cache_bytes(4096) == by_name["mistral-7b-v0.1"].cache_bytes(1_048_576)
check_equal("a model whose every layer has a window stops growing at it", same, True)

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: all dots rise with the context, in parallel, except the triangles: models with windows slow down or stop. Squares (MHA) lie highest. The lowest edge is made of windows, of hybrids with few
# caching layers (Nemotron, Qwen3-Next, MiniMax-M1) and, at the largest size, of MLA.*
#
# What one sequence keeps is counted whole: keys and values, an indexer's keys (DeepSeek-V3.2), and the state of layers that keep no tokens, in 16 bits (some configs ask for float32 there). Switch to the parameters that one token uses: mixtures of experts move left, and
# the line changes. Whether a model whose layers all forget is any good at a million tokens, a memory count does not say.
#
# ## 12 · A wall of published numbers
#
# Each of these was printed by a calculator, a table or a count, at the address beside it. The formula that gives it is rebuilt, and the right value computed. **Predict** the largest factor by which one of the six is off.

# %% slideshow={"slide_type": "slide", "title": "A wall of published numbers: name the mistake", "show": "printed"}
my_guess = None  # times
for w in WALL:
    print(f"{w.key}  {w.what:<33}{w.said:>14,}  right: {w.right:>13,}  {w.said / w.right:6.3g} times")
    print(f"   {w.mistake} ({w.source})")
predict(my_guess, round(max(w.said / w.right for w in WALL)), "times")
check_close("factors", [w.said / w.right for w in WALL], [8, 1.25, 0.703, 1.78, 24.9, 1.21], 0.001)
size = lib.kv_bytes(read_config(configs.path("llama-2-7b")), 2048)
print(f"Llama-2-7B, 2,048 tokens: {size:,} bytes = {size / 2**30:.3f} GiB = {size / 1e9:.3f} GB")

# %% [markdown] slideshow={"slide_type": "slide", "title": "What is said of today's models, and the field that shows it", "show": "", "text": "- `num_key_value_heads`: Llama 3 has 8 at every size, gpt-oss 8 of 64, Qwen3-235B-A22B 4 of 64\n- `kv_lora_rank`: MLA in DeepSeek-V2, V3, R1 and Kimi K2\n- `no_rope_layers`, where 1 **has** RoPE: Llama 4, SmolLM3\n- `rope_theta`; in files of transformers 5 `rope_parameters.rope_theta`\n- **no field**, `model_type` implies it: QK-norm (OLMo 2, Qwen3, Gemma 3), norms after each part (OLMo 2), biases (Qwen2.5), a tied head (Command-R)"}
# Not one of them failed a type check. Two habits find them all: compute the same quantity a second way (bytes of a real cache, `sum(p.numel())` over unique tensors), and write the unit: the last line has been printed as
# "1.00 GB" ([alvarobartt/hf-mem#33](https://github.com/alvarobartt/hf-mem/issues/33)).
#
# ## 13 · In practice
#
# | said of today's models | the field that shows it |
# |---|---|
# | Llama 3: 8 KV heads at every size | `num_key_value_heads` 8 in 8B, 70B and 3.2-1B; the 405B's too |
# | Qwen3-235B-A22B: 64 query heads, 4 KV heads | `num_attention_heads` 64, `num_key_value_heads` 4 |
# | gpt-oss: 64 and 8 | `num_attention_heads` 64, `num_key_value_heads` 8, in the 20b and the 120b |
# | MLA: DeepSeek-V2, V3, R1, Kimi K2 | `kv_lora_rank` |
# | QK-norm: OLMo 2, Qwen3, Gemma 3 | none: `model_type` implies it |
# | layers without RoPE: Llama 4, SmolLM3 | `no_rope_layers`, where 1 **has** RoPE ([huggingface/transformers#43756](https://github.com/huggingface/transformers/issues/43756)), or every fourth layer by the class |
# | norms after each part: OLMo 2 | none: `model_type` olmo2 implies it |
# | biases: Qwen2.5 on q, k and v | none: `model_type` qwen2 implies them |
# | Command-R, 35 billion parameters, ties | none: its class does; a reader who takes silence for "untied" counts 2,097,152,000 too many |
# | RoPE bases grow: 10,000, 500,000, 1,000,000 | `rope_theta`; in files of transformers 5 `rope_parameters.rope_theta` |
#
# ## Exercises
#
# **1. The formula, mended.** `config` is a dict with `num_hidden_layers`, `hidden_size`, `num_attention_heads`, and perhaps `num_key_value_heads` and `head_dim` (they may be absent or null). Return the numbers that
# the model caches per token. All layers are alike, no windows, no MLA.

# %% tags=["exercise"]
def my_elements(config):
    ...

# %% tags=["check"]
check("10.elements", my_elements)

# %% tags=["solution"] jupyter={"source_hidden": true}
def elements_solution(config):
    h = config["num_attention_heads"]
    n_kv = config.get("num_key_value_heads") or h
    head_dim = config.get("head_dim") or config["hidden_size"] // h
    return 2 * config["num_hidden_layers"] * n_kv * head_dim


check("10.elements", elements_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **2. Three mystery configs.** The fields that name the family are taken out. Where would the usual formula stumble? For each: `"names"` (its fields have other names), `"layers"` (not every layer
# keeps a cache), `"width"` (a head is not $d/h$ wide) or `"windows"`. One has two traps: give the larger.
# (In B's pattern M is Mamba, E experts, and * attention.)

# %% slideshow={"slide_type": "skip"}
for letter in "ABC":
    print(textwrap.fill(f"{letter} {json.dumps(mystery(letter))}", 100, break_on_hyphens=False))

# %% tags=["exercise"]
my_traps = {"A": None, "B": None, "C": None}

# %% tags=["check"]
check("10.traps", my_traps)

# %% tags=["solution"] jupyter={"source_hidden": true}
def traps_solution():
    return {"A": "names", "B": "layers", "C": "width"}


check("10.traps", traps_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **3.** And how many numbers per token does each of them cache? Which families are they? The solution says.

# %% tags=["exercise"]
my_caches = {"A": None, "B": None, "C": None}

# %% tags=["check"]
check("10.mystery_cache", my_caches)

# %% tags=["solution"] jupyter={"source_hidden": true}
def mystery_cache_solution():
    glm4 = 2 * 40 * 2 * 128  # multi_query_group_num 2, kv_channels 128: GLM-4-9B-Chat
    nemotron = 2 * 6 * 2 * 128  # six of 52 layers: Nemotron-3-Nano-30B-A3B
    ernie = 2 * 18 * 2 * 128  # head_dim 128, not 1024 / 16: ERNIE-4.5-0.3B
    return {"A": glm4, "B": nemotron, "C": ernie}


check("10.mystery_cache", mystery_cache_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4.** The bytes of Gemma 3 1B's cache for one sequence of 131,072 tokens in bf16, windows used. (26 layers, one KV head of 256, window 512, every sixth layer sees everything.)

# %% tags=["exercise"]
my_gemma_bytes = None

# %% tags=["check"]
check("10.windows", my_gemma_bytes)

# %% tags=["solution"] jupyter={"source_hidden": true}
def windows_solution():
    full, windowed = 26 // 6, 26 - 26 // 6
    return 2 * 256 * (full * 131072 + windowed * 512) * 2


check("10.windows", windows_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **5. Find the fault.** Most tokens per second, all sequences together, that a bandwidth allows. The function is right for one sequence. Mend it for a batch. (`cache_bytes` is that of one sequence.)

# %% tags=["exercise"]
def my_bound(weight_bytes, cache_bytes, batch, bandwidth):
    moved = batch * (weight_bytes + cache_bytes)
    return batch * bandwidth / moved

# %% tags=["check"]
check("10.bound", my_bound)

# %% tags=["solution"] jupyter={"source_hidden": true}
def bound_solution(weight_bytes, cache_bytes, batch, bandwidth):
    return batch * bandwidth / (weight_bytes + batch * cache_bytes)


check("10.bound", bound_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Compute it a second way, and write the unit", "show": "", "text": "- a port: two dictionaries, one transpose, one assignment; only **all** logits prove it\n- a config: what the file says, what `model_type` implies, and what nobody says\n- the usual cache formula is wrong in 26 of 53 models at 131,072 tokens\n- GiB or GB: it has been printed wrong"}
# ## What you can do now
#
# You **ported** a real checkpoint with two dictionaries and a transpose, and saw why only logits prove it; **read** four configs aloud and seven mechanisms; **caught** the usual formula in 26 of 53 models; **bounded** a decode step by its
# bytes; **corrected** six published numbers. Proved equal: your port and `lib.load_model` in every logit; the table of 53 models and `lib` (a test compares each row).
#
# **Sources.** The config.json files named above, in `src/book/data` with their origin. Reports are named where they are used. Llama Team 2024 ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783)) and DeepSeek-AI 2024 ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434)) for the shapes
# of their models.

# %% slideshow={"slide_type": "skip"}
progress("10")
