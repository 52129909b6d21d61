# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "One decode step reads gigabytes to do work that a GPU finishes in microseconds. We write the block as GPU programs, run them on a CPU, and count every byte. After it you can"}
# # 11 · The block on a GPU, without a GPU
#
# One step of decoding reads gigabytes to do work that a GPU finishes in microseconds. This chapter writes the block as GPU programs, runs them on your CPU, and counts every byte.
#
# After it you will be able to
# - **say** which parts of a block wait for memory, on three cards;
# - **write** a kernel in Triton, and test it without a GPU;
# - **derive** the online softmax, and the second pass of a split decode;
# - **explain** how MLA's kernel turns one read into more work;
# - **read** what a compiler made of a kernel: registers, shared memory, how many run at a time.
#
# You need chapters 01, 05 and 06, and PyTorch; no GPU, no Triton before. About 60 minutes. The kernels need Triton, which exists for Linux on x86-64; on other
# machines the first cell says so, and the outputs below are those of a run.

# %% slideshow={"slide_type": "skip"}
import os

from lib import kernels

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported: kernels run on the CPU, step by step
if why := kernels.missing():
    raise RuntimeError(why)

# %% slideshow={"slide_type": "skip"}
import matplotlib.pyplot as plt
import torch
import triton
import triton.language as tl

from book.compiled import compiled
from book.configs import load
from book.exercises import check, progress
from book.explore.ch11_kernels import block_explorer, draw_roofline
from book.fence import fence
from book.figures import style
from book.predict import check_close, check_equal, predict
from book.traffic import pytorch_bytes
from lib import LlamaStyleLM, attend, read_config, rms_norm
from lib.kernels import attention, cards, costs, decode, latent, norms
from lib.kernels.counting import counting

style()
fence()  # a kernel that leaves its tensors raises here; on a card nothing stops it

# %% [markdown] slideshow={"slide_type": "slide", "title": "Which operations of a decode step wait for memory?", "show": "", "ask": "Q19", "text": "An A100 does 312 TFLOP/s in bfloat16 and reads 2.039 TB/s: it must do about 153 FLOP **per byte** to keep its arithmetic busy, the *ridge*.\n\nLlama-3-8B decodes one token for one user, after 4,096 others. **Predict:** how many of a layer's ten operations stand above it?"}
# ## 1 · What waits for what
#
# A card has two speeds: how fast it calculates, and how fast it reads its memory. An A100 does 312 TFLOP/s in bfloat16 and reads 2.039 TB/s ([data sheet](https://www.nvidia.com/en-us/data-center/a100/)).
# Divide them: it must do about 153 FLOP **per byte** to keep its arithmetic busy. This is the corner of the roofline in [chapter 06](06_mla.ipynb), called the *ridge*. Below it, an operation waits for memory.
#
# Llama-3-8B decodes one token for one user, after 4,096 others. **Predict**: how many of a layer's ten operations stand above an A100's ridge?

# %% slideshow={"slide_type": "subslide", "title": "One user: none of them reaches the ridge", "show": "printed"}
my_guess = None
llama = read_config(load("llama-3-8b"))
layer, d = llama.layers[0], llama.d
ops = costs.block_ops(d, layer, batch=1, context=4096)
above = sum(op.intensity > cards.A100.ridge for op in ops)
predict(my_guess, above, "operations above the ridge")
print(f"{'one layer, one token':<24}{'FLOPs':>12}{'bytes':>13}{'FLOP/byte':>11}")
for op in ops:
    print(f"{op.name:<24}{op.flops:>12,}{op.bytes:>13,}{op.intensity:>11.2f}")
for card in cards.CARDS:
    print(f"{card.name}: ridge {card.ridge:.0f} FLOP/byte, at least {sum(op.seconds(card) for op in ops) * 1e6:.0f} us per layer")
n, work, moved = len(llama.layers), sum(op.flops for op in ops), sum(op.bytes for op in ops)
print(f"all {n} layers: {moved * n / 1e9:.1f} GB moved; the arithmetic alone {work * n / cards.A100.flops * 1e6:.0f} us on an A100")

# %% [markdown] slideshow={"slide_type": "notes"}
# None. A matrix met by one vector does one multiply and one add per weight of two bytes: 1 FLOP per byte, on any card. Attention does four, because four query heads
# share each key. Time is bytes over bandwidth, so **fewer bytes is the whole game**.
#
# More users share the weights, not the caches. **Predict** which batch is the first that lifts the gate and up matrices above the A100's ridge: 16, 64 or 256?

# %% slideshow={"slide_type": "slide", "title": "A batch lifts the matrices; attention stays where it is", "text": "More users share the weights, not the caches.\n\n**Predict** the first batch that lifts the gate and up matrices above the A100's ridge: 16, 64 or 256?"}
my_guess = None
batches = (1, 16, 64, 256)
table = {b: {op.name: op.intensity for op in costs.block_ops(d, layer, b, 4096)} for b in batches}
over = min(b for b in batches if table[b]["gate, up"] > cards.A100.ridge)
predict(my_guess, over, "users")
for name in ("gate, up", "attention", "RoPE"):
    print(f"{name:<10}" + "".join(f"{table[b][name]:>10.2f}" for b in batches))
check_close("attention does not move with the batch", table[256]["attention"], table[1]["attention"], 1e-12)

# %% [markdown] slideshow={"slide_type": "skip"}
# A batch lifts the matrices. Attention stays where it is, because every user brings a cache; so does RoPE, whose vectors are each user's own.
#
# ## 2 · What fusion saves
#
# PyTorch runs `rms_norm` as it is written: cast, square, mean, add, root, multiply, cast, multiply. Each step reads its input from memory and writes its output back, the middle ones in float32. A
# *fused* kernel reads $x$ once, keeps the row in *registers*, the few fast numbers beside the arithmetic, and writes once.
#
# Take $x$ of [4, 576] in bfloat16: 4,608 bytes. **Predict** how many bytes the steps move, all together.

# %% slideshow={"slide_type": "slide", "title": "A fused kernel reads once and writes once", "text": "PyTorch runs `rms_norm` as it is written: cast, square, mean, add, root, multiply, cast, multiply; each step goes through memory, the middle ones in float32.\n\n$x$ of [4, 576] in bfloat16 is 4,608 bytes. **Predict** how many bytes the steps move."}
my_guess = None
gen = torch.Generator().manual_seed(0)
x, w = torch.randn(4, 576, generator=gen).bfloat16(), torch.randn(576, generator=gen).bfloat16()
steps = pytorch_bytes(rms_norm, x, w)
predict(my_guess, steps, "bytes")
check_equal("counted = formula", steps, costs.norm_bytes(4, 576, fused=False))
fused = costs.norm_bytes(4, 576)
print(f"fused, by formula {fused:,}: {steps / fused:.1f} times fewer")

# %% [markdown] slideshow={"slide_type": "slide", "title": "A kernel is one program, run many times at once", "show": "", "text": "- each **program** asks for its number (`program_id`) and works on **blocks** of numbers, with `load` and `store`\n- the **grid** says how many there are; they start in any order on the card's *multiprocessors* (an A100 has 108)\n- a tensor arrives as a **pointer**: address plus offsets\n- blocks have a power of two of numbers; a **mask** keeps the surplus away"}
# The formula for the fused one is a promise: $x$ in, the gain in, $y$ out. We keep it in the next section and count.
#
# ## 3 · A kernel
#
# A **kernel** is a function that a GPU runs many times at once. In Triton each run is a **program**: it asks for its number (`program_id`), works on **blocks** of numbers, and
# moves them with `load` and `store`. The **grid** says how many programs there are; they start in any order, on the card's *multiprocessors* (an A100 has 108), each worked
# on by a few *warps* of 32 threads, which Triton arranges. A tensor arrives as a **pointer**, the address of its first number; an address per number is the pointer plus offsets, here for rows that lie one after the other. Blocks have
# a power of two of numbers; a **mask** keeps the surplus away. A `tl.constexpr` is known when the kernel is compiled.
#
# RMSNorm: one program per row.

# %% slideshow={"slide_type": "subslide", "title": "RMSNorm: one program per row"}
@triton.jit
def norm_kernel(X, W, Y, d, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < d
    x = tl.load(X + row * d + col, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(W + col, mask=inside, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / d + eps)
    tl.store(Y + row * d + col, y.to(W.dtype.element_ty) * w, mask=inside)  # element_ty: the gain's dtype


x32, w32, y = x.float(), w.float(), torch.empty(4, 576)
norm_kernel[(4,)](x32, w32, y, 576, 1e-6, BLOCK=1024)  # [(4,)] is the grid: four programs
check_close("nine lines = lib", y, rms_norm(x32, w32))

# %% [markdown] slideshow={"slide_type": "skip"}
# `other=0.0` matters: the masked places take part in the sum, so they must add nothing. The division is by $d$, not by the block.
#
# `lib.kernels.norms` has the same kernel for any strides and dtypes, beside `lib.rms_norm`. Triton's **interpreter** runs it here: every `load` becomes a NumPy copy, so we can count the bytes of each.
# **Predict** how many bytes are loaded through the gain's pointer, for the four rows of $x$.

# %% slideshow={"slide_type": "subslide", "title": "Counted to the byte: the interpreter sees every load", "text": "Four rows of $x$, one program per row. Every `load` is a NumPy copy here, so bytes can be counted; a fused kernel promises $x$ in, the gain in, $y$ out.\n\n**Predict** how many bytes are loaded through the gain's pointer."}
my_guess = None
with counting() as traffic:
    norms.rms_norm(x, w)
predict(my_guess, traffic.loaded["W"], "bytes of the gain")
print("loaded", traffic.loaded, "stored", traffic.stored, "programs", traffic.programs)
check_equal("counted = formula", traffic.bytes, costs.norm_bytes(4, 576))
with counting() as both:
    norms.add_rms_norm(x, x.clone(), w)
apart = 3 * x.nbytes + traffic.bytes
print(f"residual add and norm: fused {both.bytes:,}, add apart {apart:,} bytes")
check_equal("fusing the add saves one read of the sum", apart - both.bytes, x.nbytes)

# %% [markdown] slideshow={"slide_type": "notes"}
# Each program asks for the gain: four times 1,152 bytes. On a card the second read mostly comes from its cache; the count says what is **asked for**.
#
# ## 4 · Two halves of a row
#
# Attention reads keys in blocks, but a softmax needs the largest score of the whole row before its first exponential, unless a sum can be corrected afterwards. Take one half of scores $s$, with its own
# maximum $m_1$, sum $t_1$ and weighted values $o_1$; then the other half. With the common maximum $m$ every
# exponential of that half is $e^{s - m} = e^{s - m_1}\, e^{m_1 - m}$: the second factor is the same for all, so it corrects $t_1$ and $o_1$ afterwards.

# %% slideshow={"slide_type": "slide", "title": "Two halves of a row, joined into one softmax", "show": "code printed", "text": "Each half leaves its maximum, its sum and its weighted values."}
gen = torch.Generator().manual_seed(1)
s, v = torch.randn(10, generator=gen, dtype=torch.float64), torch.randn(10, 3, generator=gen, dtype=torch.float64)
parts = [(a.max(), (a - a.max()).exp().sum(), (a - a.max()).exp() @ b) for a, b in ((s[:4], v[:4]), (s[4:], v[4:]))]
m = max(part[0] for part in parts)
total = sum((m_i - m).exp() * t_i for m_i, t_i, _ in parts)
out = sum((m_i - m).exp() * o_i for m_i, _, o_i in parts) / total
check_close("two halves = one softmax", out, s.softmax(0) @ v, 1e-12)

# %% [markdown] slideshow={"slide_type": "skip"}
# This is the **online softmax** ([Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867)), and the heart of [FlashAttention](https://arxiv.org/abs/2205.14135). Block after block, the kernel keeps three things per query: the
# maximum so far, the sum, the weighted values. The scores are never written to memory. One query, one head:

# %% slideshow={"slide_type": "slide", "title": "The online softmax: three numbers per query, no scores in memory"}
@triton.jit
def online_kernel(Q, K, V, Y, S, scale, D: tl.constexpr, KEYS: tl.constexpr):
    i, n = tl.arange(0, D), tl.arange(0, KEYS)
    q = tl.load(Q + i)
    best, total, out = -float("inf"), 0.0, tl.zeros((D,), tl.float32)
    for start in range(0, S, KEYS):
        at, here = (start + n)[:, None] * D + i[None, :], start + n < S
        k = tl.load(K + at, mask=here[:, None], other=0.0)
        v = tl.load(V + at, mask=here[:, None], other=0.0)
        s = tl.where(here, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        new = tl.maximum(best, tl.max(s, axis=0))
        p, keep = tl.exp(s - new), tl.exp(best - new)
        total = total * keep + tl.sum(p, axis=0)
        out = out * keep + tl.sum(p[:, None] * v, axis=0)
        best = new
    tl.store(Y + i, out / total)


# %% [markdown] slideshow={"slide_type": "skip"}
# Masked scores become $-\infty$, whose exponential is 0. A masked score of 0 would weigh $e^{0 - m}$. Before the first block the maximum is $-\infty$ as well: `keep` is 0, and nothing is carried over. The check uses 37 keys in blocks of 16, so the last block is not full.

# %% slideshow={"slide_type": "subslide", "title": "The last block is not full, and the kernel is right", "show": "printed", "text": "37 keys in blocks of 16. Masked scores become $-\\infty$, whose exponential is 0; a masked score of 0 would weigh $e^{0-m}$. Before the first block the maximum is $-\\infty$ as well: `keep` is 0, and nothing is carried over."}
gen = torch.Generator().manual_seed(2)
q, k, v = (torch.randn(1, 1, n, 16, generator=gen) for n in (1, 37, 37))
y = torch.empty(16)
online_kernel[(1,)](q, k, v, y, 37, 0.25, D=16, KEYS=16)
check_close("online = softmax", y, attend(q, k, v).flatten())
q = torch.randn(1, 6, 40, 16, generator=gen)
k, v = torch.randn(1, 2, 40, 16, generator=gen), torch.randn(1, 2, 40, 16, generator=gen)
check_close("prefill kernel = attend", attention.attend(q, k, v), attend(q, k, v))

# %% [markdown] slideshow={"slide_type": "skip"}
# `lib.kernels.prefill` is this loop for a block of queries at a time, as reading a prompt needs it: the products become `tl.dot`, a product of matrices, for which a card has units of its own (*tensor cores*);
# the loop ends where the causal mask does.
#
# ## 5 · One query, many programs
#
# Decoding has one query per head. SmolLM2 has 3 KV heads: with one program per KV head, an A100 would use 3 of its 108 multiprocessors. So the **keys are split**: each
# program takes a part, leaves its three numbers, and a second kernel joins the parts ([Flash-Decoding](https://pytorch.org/blog/flash-decoding/)). It needs a second pass because no program can count on another having run.
#
# 9 query heads of 64, 3 KV heads, 96 keys, 4 parts, float32. **Predict** how many bytes of keys are loaded: once, three times (once per query head of a group), or four times (once per part)?

# %% slideshow={"slide_type": "slide", "title": "One query, many programs: the keys are split, a second pass joins", "ask": "Q20", "text": "SmolLM2 has 3 KV heads: one program each would use 3 of an A100's 108 multiprocessors. 9 query heads of 64, 3 KV heads, 96 keys, 4 parts.\n\n**Predict:** are the keys loaded once, three times or four times?"}
my_guess = None
gen = torch.Generator().manual_seed(3)
q = torch.randn(1, 9, 1, 64, generator=gen)
k, v = torch.randn(1, 3, 96, 64, generator=gen), torch.randn(1, 3, 96, 64, generator=gen)
launches, y = decode.plan(q, k, v, keys=16, parts=4)
with counting() as traffic:
    for launch in launches:
        launch.run()
predict(my_guess, traffic.loaded["K"] / k.nbytes, "reads of the keys")
print("grids:", [launch.grid for launch in launches], "left for the second pass:", f"{traffic.stored['PART']:,} bytes")
expected = costs.decode_kernel_bytes(1, 9, 3, 96, 64, 64, parts=4, rows=16, size=4)  # tl.dot takes 16 rows at least
check_equal("counted = formula", traffic.bytes, sum(expected.values()))
check_close("split and joined = attend", y, attend(q, k, v))

# %% [markdown] slideshow={"slide_type": "subslide", "title": "Who reads which keys: one program per part and KV head", "show": "", "text": "- the heads of a group are in one program and look at the same keys; the parts are disjoint\n- first grid: 4 parts \u00d7 1 block of heads \u00d7 3 KV heads\n- second grid: 9 query heads, each joined whole"}
# Once. The heads of a group are in one program and look at the same keys; the parts are disjoint. The first grid is 4 parts × 1 block of heads × 3 KV heads; the second 9 query heads, each joined whole.
#
# ## 6 · One read, more work
#
# In MLA's absorbed form ([chapter 06](06_mla.ipynb)) **all** heads look at the same latents, and the value is the first part of the key. A kernel that holds 16 heads reads a block of latents once, as key and as value, for 16 heads.
# 128 heads are 8 such programs. **Predict** the bytes of latents asked for: 40 heads, 16 per program, 33 latents of 24 + 8 numbers, float32.

# %% slideshow={"slide_type": "slide", "title": "MLA: one read of a latent, work for as many heads as a program holds", "text": "The absorbed form lets **all** heads look at the same latents; the value is the first part of the key. 40 heads, 16 per program, 33 latents of 24 + 8 numbers, float32.\n\n**Predict** the bytes of latents asked for."}
my_guess = None
gen = torch.Generator().manual_seed(4)
q, cached = torch.randn(1, 40, 1, 32, generator=gen), torch.randn(1, 33, 32, generator=gen)
launches, y = latent.plan(q, cached, 24, rows=16, keys=16, parts=1)
with counting() as traffic:
    for launch in launches:
        launch.run()
predict(my_guess, traffic.loaded["LATENT"], "bytes of latents")
check_equal("three blocks of heads, S (c + r) numbers each", traffic.loaded["LATENT"], 3 * 33 * 32 * 4)
key = cached[:, None]
check_close("latent kernel = attend", y, attend(q, key, key[..., :24]))

# %% [markdown] slideshow={"slide_type": "skip"}
# The last block has 8 heads and reads as much as a full one. So the heads per program decide how much work a byte gets. DeepSeek-V3, 4,096 tokens, under the roofs of an A100 and an H100:

# %% slideshow={"slide_type": "subslide", "title": "More heads per program climb the roof"}
v3 = {rows: costs.latent_intensity(128, 512, 64, 4096, rows) for rows in (16, 32, 64, 128)}
plain = {op.name: op.intensity for op in ops}["attention"]
dots = {"Llama-3-8B's GQA": (plain, "k")} | {f"MLA, {rows} heads per program": (x, "latent") for rows, x in v3.items()}
fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
reach = [draw_roofline(ax, card, dots) for ax, card in zip(axes, (cards.A100, cards.H100))]
plt.show()
print(f"{'':<30}{'FLOP/byte':>10}{'A100':>8}{'H100':>8}   TFLOP/s, at most")
for name, (intensity, _) in dots.items():
    print(f"{name:<30}{intensity:>10.1f}{reach[0][name]:>8.0f}{reach[1][name]:>8.0f}")
check_equal("128 x 512 numbers are all registers of a multiprocessor", 128 * 512, cards.A100.registers)
check_equal("on an A100 128 heads pass the ridge, 64 do not", [x > cards.A100.ridge for x in v3.values()], [False, False, False, True])

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: two rooflines. GQA sits low on the slope; MLA climbs it as one program holds more heads, and with all 128 reaches the A100's roof, not quite the H100's.*
#
# So on an A100 an MLA kernel can turn attention from memory-bound to compute-bound. It is hard: 128 heads keep a result of 128 × 512 numbers while they read, which is every register of a multiprocessor. The count is
# pessimistic where one program holds fewer: another that reads the same latents soon after may find them in the card's cache.
#
# ## 7 · What the compiler made
#
# Triton compiles for a card that is not there. The cubin, the card's machine code, says how many **registers** a thread has and how much **shared memory**, the fast memory that its threads have in common, a program takes; a multiprocessor has a fixed stock of
# both, which limits how many programs are **resident** at a time. The process of this notebook interprets, so another one compiles, for compute capability 8.0 (A100) and 9.0 (H100).

# %% slideshow={"slide_type": "slide", "title": "What the compiler made: registers, shared memory, programs resident", "show": "printed"}
names = ["add_rms_norm 7168", "silu_mul 1536", "decode SmolLM2", "latent DeepSeek-V3"]
found = compiled("--targets", "80,90", "--only", ",".join(names))
print(f"{'':<20}{'card':<15}{'registers':>10}{'spilled':>9}{'shared':>9}{'resident':>10}{'occupancy':>11}  limit")
for name in names:
    for card in (cards.A100, cards.H100):
        r = found[str(card.capability)][name]
        use = r["registers"], r["shared"], r["threads"]
        fits, limit = cards.resident(card, *use)
        share = f"{cards.occupancy(card, *use):.0%}"
        print(f"{name:<20}{card.name:<15}{r['registers']:>10}{r['stack']:>9}{r['shared']:>9,}{fits:>10}{share:>11}  {limit}")

# %% [markdown] slideshow={"slide_type": "notes"}
# *Occupancy* is resident threads over the most that a multiprocessor takes; where two limits tie, one is named. High occupancy hides waiting: while one program waits for memory, another calculates. The latent kernel has few programs, each with much to hold: low occupancy,
# high reuse. Which is better, only a clock on a card tells: `make gpu` measures, where there is one.
#
# **Predict**, then drag: which bars pass their limit at 128 heads per program?

# %% slideshow={"slide_type": "slide", "title": "Which bars pass their limit at 128 heads per program?"}
block_explorer

# %% [markdown] slideshow={"slide_type": "notes"}
# On an A100 the intensity passes the ridge, and on both cards the registers run out: the compiler **spills** them to memory, kilobytes per thread, and the shared memory exceeds what a program may have. A kernel lives between those walls.
#
# ## 8 · The whole model
#
# `lib.kernels.use(model, "triton")` sends the norms, SwiGLU, RoPE and attention of a model through the kernels; `"sdpa"` goes back to PyTorch. (MLA's rotation stays in PyTorch.) Here they run in the interpreter; on a card the same call compiles them.

# %% slideshow={"slide_type": "slide", "title": "The whole model through the kernels: the same logits"}
torch.manual_seed(0)
lm = LlamaStyleLM(V=50, d=32, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=48).requires_grad_(False)
for name, p in lm.named_parameters():
    if name.endswith("norm.weight"):
        p.uniform_(0.5, 1.5)
idx = torch.randint(0, 50, (1, 7))
plain = lm(idx)
cache = kernels.use(lm).new_cache(1)
steps = torch.cat([lm(idx[:, :5], cache=cache), lm(idx[:, 5:6], cache=cache), lm(idx[:, 6:], cache=cache)], dim=1)
check_close("kernels, through the cache = PyTorch, one call", steps, plain)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 9 · Bugs that shipped
#
# **The block in which nobody looks.** If the first block of a row is masked entirely, the maximum so far is $-\infty$, and $e^{-\infty - (-\infty)}$ is NaN, which no later block repairs ([vllm#48364](https://github.com/vllm-project/vllm/issues/48364)).
#
# **The row in which nobody looks, with a large number for infinity.** Then the difference is 0 and its exponential 1: masked keys get full weight, without a NaN. A key that may be seen would scale them to 0 later, but in a row masked entirely none comes ([TensorRT-LLM#17477](https://github.com/NVIDIA/TensorRT-LLM/issues/17477)).
#
# **Offsets of 32 bits.** A program's number times a stride is a 32-bit product; past $2^{31}$ it wraps and reads another place ([flash-linear-attention#1080](https://github.com/fla-org/flash-linear-attention/issues/1080)).

# %% slideshow={"slide_type": "slide", "title": "Bugs that shipped: rows in which nobody looks, and offsets of 32 bits", "show": "printed", "text": "- a first block masked entirely: $e^{-\\infty - (-\\infty)}$ is NaN, and no later block repairs it\n- a large number for infinity: the difference is 0, masked keys get full weight, without a NaN\n- a program's number times a stride in 32 bits wraps past $2^{31}$"}
def first_block(worst):
    """Weights of a row whose first block is masked with `worst`, its running maximum starting there."""
    scores = torch.full((4,), worst)
    best = torch.maximum(torch.tensor(worst), scores.max())
    return (scores - best).exp().tolist()


print("masked with -inf:", first_block(float("-inf")), " with -3.4e38:", first_block(-3.4e38))
wrapped = (torch.tensor(131_072, dtype=torch.int32) * 16_384).item()
print(f"token 131,072 at a stride of 16,384, in 32 bits: {wrapped:,}; right: {131_072 * 16_384:,}")
late, nobody = torch.arange(32) >= 16, torch.zeros(32, dtype=torch.bool)  # blocks of 16: the first masked; both
q, k = torch.ones(2, 1, 1, 16), torch.ones(2, 1, 32, 16)
v = torch.where(late[:, None], 1.0, 9.0).expand(2, 1, 32, 16)  # no 9 may be seen
launches, y = decode.plan(q, k, v, torch.stack([late, nobody])[:, None, None], keys=16, parts=1)
for launch in launches:
    launch.run()
check_close("ours: only what is seen counts, and nobody's row is 0", y[..., 0].flatten(), torch.tensor([1.0, 0.0]))

# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# **1. RMSNorm.** Write a kernel (above your function, in the same cell) and launch it: `x` [n, d] float32 and contiguous, `weight` [d]; return [n, d]. `triton.next_power_of_2(d)` gives the block.

# %% tags=["exercise"]
def my_rms_norm(x, weight, eps):
    ...

# %% tags=["check"]
check("11.rms_norm", my_rms_norm)

# %% tags=["solution"] jupyter={"source_hidden": true}
def rms_norm_solution(x, weight, eps):
    y, d = torch.empty(x.shape), x.shape[1]
    norm_kernel[(len(x),)](x.contiguous(), weight, y, d, eps, BLOCK=triton.next_power_of_2(d))
    return y


check("11.rms_norm", rms_norm_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **2. The online softmax.** `scores` [S], `values` [S, D] with $D$ a power of two; one program, `block` scores at a time (a power of two; the last block may not be full). Return softmax(scores) · values, [D].

# %% tags=["exercise"]
def my_online(scores, values, block):
    ...

# %% tags=["check"]
check("11.online", my_online)

# %% tags=["solution"] jupyter={"source_hidden": true}
def online_solution(scores, values, block):
    S, D = values.shape
    y, keys = torch.empty(D), torch.zeros(S, D)
    keys[:, 0] = scores  # a query of one number: its score with a key is the key's first
    query = torch.zeros(D)
    query[0] = 1
    online_kernel[(1,)](query, keys, values.contiguous(), y, S, 1.0, D=D, KEYS=block)
    return y


check("11.online", online_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **3. Find the fault.** The second pass of a decode kernel, in PyTorch: per part its maximum `best` [P], its sum `total` [P] and its weighted values `part` [P, D]. It is right where all maxima are equal. Mend it.

# %% tags=["exercise"]
def my_join(best, total, part):
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / total.sum()

# %% tags=["check"]
check("11.join", my_join)

# %% tags=["solution"] jupyter={"source_hidden": true}
def join_solution(best, total, part):
    share = (best - best.max()).exp()
    return (share[:, None] * part).sum(0) / (share * total).sum()


check("11.join", join_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# **4. Count.** DeepSeek-V3's latent kernel with 32 heads per program, 8,192 tokens, bfloat16: how many bytes of latents does one layer ask for?

# %% tags=["exercise"]
my_bytes = None

# %% tags=["check"]
check("11.latent_bytes", my_bytes)

# %% tags=["solution"] jupyter={"source_hidden": true}
def latent_bytes_solution():
    return 128 // 32 * 8192 * (512 + 64) * 2


check("11.latent_bytes", latent_bytes_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Fewer bytes is the whole game", "show": "", "text": "- at one user every operation of a decode step waits for memory\n- fusion reads once and writes once; the online softmax keeps three numbers per query\n- MLA's kernel turns one read into work for many heads, until registers and shared memory end\n- to take home: `11.rms_norm`, `11.online`, `11.join`, `11.latent_bytes`"}
# ## What you can do now
#
# You **said** which operations wait for memory: at one user, all; **wrote** two kernels and tested them without a GPU; **derived** the online softmax from two halves, and the second pass from its three numbers; **explained** MLA's kernel by the heads that
# share a read; and **read** registers and residency from a cubin. Proved equal here: kernels = pure functions, parts = whole, counted bytes = formulas.
#
# **In practice.** Llama-3-8B's [config.json](https://huggingface.co/meta-llama/Meta-Llama-3-8B) has `num_key_value_heads` 8 for 32 heads: four query heads per read of a key. DeepSeek-V3's `kv_lora_rank` 512 and `qk_rope_head_dim` 64 are the row that its kernel reads.
#
# **Sources.** [Tillet et al. 2019](https://doi.org/10.1145/3315508.3329973): Triton. [Milakov and Gimelshein 2018](https://arxiv.org/abs/1805.02867): the online softmax. [Dao et al. 2022](https://arxiv.org/abs/2205.14135): FlashAttention.
# [Williams et al. 2009](https://doi.org/10.1145/1498765.1498785): the roofline. [DeepSeek-AI 2024](https://arxiv.org/abs/2405.04434): MLA. Cards: the data sheets and tables named in `lib.kernels.cards`.

# %% slideshow={"slide_type": "skip"}
progress("11")
