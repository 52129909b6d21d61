# %% [markdown] slideshow={"slide_type": "slide", "show": "list", "text": "The block of 2019 adds a learned vector to each token. Today's block **rotates** queries and keys. We ask for one thing, that scores depend on distance only, and find that rotations are the answer. Then you can"}
# # 03 · RoPE, derived
#
# The block of 2019 adds a learned vector to each token to say where it stands. Today's block **rotates** queries and keys. This chapter asks for one thing,
# that scores depend on distance only, and finds that rotations are the answer.
#
# After it you will be able to
# - **derive** RoPE from the demand for relative scores;
# - **write** its frequencies and its rotation, and check both;
# - **read** `rope_theta` and `head_dim` in a config as a set of wavelengths;
# - **say** what is rotated, what is not, and why.
#
# You need the attention of 2019 and 2-D vectors. About 45 minutes.

# %% slideshow={"slide_type": "skip"}
import math

import matplotlib.pyplot as plt
import torch

import lib
from book import evidence
from book.corpus import load_corpus
from book.exercises import check, mine, progress
from book.explore.ch03_rope import clock_explorer, distance_explorer, draw_clocks
from book.figures import COLORS, style
from book.predict import check_close, check_equal, predict
from lib import apply_rope, attend, inv_freq, rope_cache, wavelengths

style()
_ = torch.set_grad_enabled(False)

# %% [markdown] slideshow={"slide_type": "slide", "title": "An added position changes the score of the same two words", "show": "", "text": "\"Look at the word before this one\" should work at position 5 and at position 500. In 2019 the query is made from $x_m + p_m$, the key from $x_n + p_n$, with $p$ from a table.\n\n**Predict:** the same two words, three apart, at (5, 2) and at (40, 37). Is the score the same?"}
# ## 1 · What added positions do to a score
#
# "Look at the word before this one" should work at position 5 and at position 500. In the block of 2019 the query is made from
# $x_m + p_m$ and the key from $x_n + p_n$, with $p$ from a table. Take the same two words, three apart, at two places of the text.
# **Predict**: is the score the same at both?

# %% slideshow={"slide_type": "-"}
my_guess = None  # "same" or "different"
g = torch.Generator().manual_seed(0)
word_a, word_b = torch.randn(2, 8, generator=g, dtype=torch.float64)
p = 0.5 * torch.randn(64, 8, generator=g, dtype=torch.float64)  # a table of positions
W_q, W_k = torch.randn(2, 8, 8, generator=g, dtype=torch.float64) / 8**0.5


def added(m, n):
    return ((W_q @ (word_a + p[m])) @ (W_k @ (word_b + p[n]))).item()


predict(my_guess, "same" if math.isclose(added(5, 2), added(40, 37)) else "different")
print(f"score(5, 2) = {added(5, 2):.4f}   score(40, 37) = {added(40, 37):.4f}")

# %% [markdown] slideshow={"slide_type": "slide", "title": "So we ask for it: the score may know the distance only", "show": "formula", "text": "We look for functions that put the position into the vectors, such that for all $q$, $k$, $m$, $n$ the formula below holds. Two assumptions:\n\n- $f$ is linear in the vector: $f(q, m) = A_m q$\n- it is the same $f$ for queries and keys"}
# Different: each pair of places has a score of its own, and the model has to learn from data that they mean the same. A place beyond the table has none.
#
# So we **ask** for it. We look for functions $f(q, m)$ and $f(k, n)$ that put the position into the vectors, such that
#
# $$\langle f(q, m),\, f(k, n) \rangle = g(q, k, n - m)$$
#
# for all $q$, $k$, $m$, $n$. Two assumptions: $f$ is linear in the vector, $f(q, m) = A_m q$, and it is the **same** $f$ for queries and keys. (xPos, [arXiv 2212.10554](https://arxiv.org/abs/2212.10554), drops the
# second: queries grow with their position and keys shrink, so that scores also fade.)
#
# ## 2 · The demand leaves rotations only
#
# With $f(q, m) = A_m q$ the demand reads $q^\top A_m^\top A_n\, k = g(q, k, n - m)$ for all $q$ and $k$: **$A_m^\top A_n$ depends on $n - m$ only.** We start at $A_0 = I$:
# position 0 changes nothing. (An orthogonal matrix $A$ has $A^\top A = I$: it keeps lengths and angles.) Then, step by step:
#
# - $n = m$: $A_m^\top A_m = A_0^\top A_0 = I$, so every $A_m$ is orthogonal, and position makes no token loud or quiet;
# - $m = 0$: $A_0^\top A_n = A_n$, so the matrix for offset $n$ is $A_n$ itself;
# - any $m$: $A_m^\top A_n = A_{n-m}$, that is $A_n = A_m A_{n-m}$;
# - one step at a time: $A_n = (A_1)^n$.
#
# **One orthogonal matrix, applied once per token.** Is that enough? Take any orthogonal matrix at all and try.

# %% slideshow={"slide_type": "subslide", "title": "One orthogonal matrix, applied once per token, is enough: any one"}
g = torch.Generator().manual_seed(1)
A1 = torch.linalg.qr(torch.randn(6, 6, generator=g, dtype=torch.float64))[0]
A1[:, 0] *= torch.linalg.det(A1).sign()  # a rotation, not a mirror image: determinant +1
q, k = torch.randn(2, 6, generator=g, dtype=torch.float64)


def score(m, n):
    return ((torch.linalg.matrix_power(A1, m) @ q) @ (torch.linalg.matrix_power(A1, n) @ k)).item()


check_close("score(5, 2) = score(40, 37)", score(5, 2), score(40, 37))
check_close("score(10, 10) = score(0, 0)", score(10, 10), score(0, 0))
check_equal("another offset is another score", abs(score(5, 2) - score(5, 3)) > 0.01, True)

# %% [markdown] slideshow={"slide_type": "notes"}
# It works with a **random** orthogonal matrix. What does such a matrix do? Its eigenvalues lie on the unit circle, in conjugate pairs $e^{\pm i\theta}$ (and
# perhaps some $\pm 1$): in the right basis it is a set of **2-D rotations**, one angle $\theta$ per pair.

# %% slideshow={"slide_type": "subslide", "title": "In the right basis it is a set of 2-D rotations, an angle per pair", "text": "Eigenvalues lie on the unit circle, in conjugate pairs $e^{\\pm i\\theta}$:"}
eigen = torch.linalg.eigvals(A1)
check_close("all on the unit circle", eigen.abs(), torch.ones(6))
angles = sorted(round(a, 4) for a in eigen.angle().tolist())
print("angles in radians:", angles)
check_close("they come in pairs +a, -a", angles, [-a for a in reversed(angles)])

# %% [markdown] slideshow={"slide_type": "skip"}
# The change of basis costs nothing: $A_1 = U R\, U^\top$ gives $(A_1^m q)^\top (A_1^n k) = (R^m U^\top q)^\top (R^n U^\top k)$, and $U^\top$ is absorbed by the learned
# $W_q$ and $W_k$. What is left to choose are **the angles**. That is RoPE: split the head into pairs, turn each pair by its own angle per token.
#
# ## 3 · Two dimensions
#
# One pair, one angle. $R(\alpha)$ turns a vector by $\alpha$:
#
# $$R(\alpha) = \begin{pmatrix} \cos\alpha & -\sin\alpha \\ \sin\alpha & \cos\alpha \end{pmatrix}, \qquad R(\alpha)^\top = R(-\alpha), \qquad R(\alpha) R(\beta) = R(\alpha + \beta).$$

# %% [markdown] slideshow={"slide_type": "skip"}
# **Exercise 1. Which line proves that the score depends on $n - m$ only?**
#
# - a. $(R(m\theta)q)^\top R(n\theta)k = q^\top R(m\theta) R(n\theta)\,k = q^\top R((n+m)\theta)\,k$
# - b. $(R(m\theta)q)^\top R(n\theta)k = q^\top R(mn\theta^2)\,k$
# - c. $(R(m\theta)q)^\top R(n\theta)k = q^\top R(-m\theta) R(n\theta)\,k = q^\top R((n-m)\theta)\,k$, and the full score is a sum over pairs
# - d. $|R(m\theta)q| = |q|$ and $|R(n\theta)k| = |k|$, so the score cannot depend on $m$ and $n$

# %% tags=["exercise"]
my_line = None

# %% tags=["check"]
check("03.proof", my_line)

# %% tags=["solution"] jupyter={"source_hidden": true}
def proof_solution():
    return "c"


check("03.proof", proof_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Two dimensions: the rotations cancel down to the difference", "show": "formula", "text": "The change of basis is absorbed by the learned $W_q$ and $W_k$. Left to choose: **the angles**. $R(m\\theta)$ turns the query at position $m$, $R(n\\theta)$ the key at $n$. $R(\\alpha)^\\top = R(-\\alpha)$ and $R(\\alpha) R(\\beta) = R(\\alpha + \\beta)$, so"}
# So, with the query at position $m$ turned by $m\theta$ and the key at $n$ by $n\theta$,
#
# $$\left(R(m\theta) q\right)^\top \left(R(n\theta) k\right) = q^\top R(-m\theta) R(n\theta)\, k = q^\top R\left((n - m)\theta\right) k .$$
#
# Two hands of a clock, each turned by its own position; their score knows the angle **between** them.

# %% slideshow={"slide_type": "subslide", "title": "Position 0 changes nothing, lengths stay, the difference decides"}
def R(angle):
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


q, k, theta = torch.tensor([0.9, -0.3], dtype=torch.float64), torch.tensor([1.0, 0.4], dtype=torch.float64), 0.1
m, n = 5, 2
turned = (R(m * theta) @ q) @ (R(n * theta) @ k)
check_close("q^T R((n - m) theta) k", turned, q @ R((n - m) * theta) @ k)
check_close("length kept", (R(m * theta) @ q).norm(), q.norm())
check_equal("position 0 changes nothing", torch.equal(R(0.0) @ q, q), True)

# %% [markdown] slideshow={"slide_type": "skip"}
# ### Move the hands
#
# The axis counts how many tokens **back** the key is, $m - n$; what lies left of 0 is masked. Move m and n together: the hands turn, the dot stays. Move one:
# the dot walks along the curve. This pair likes a key seven tokens back best. Then change the frequency.

# %% slideshow={"slide_type": "slide", "title": "Move m and n together: the hands turn, the dot stays", "ask": "Q5"}
clock_explorer

# %% slideshow={"slide_type": "subslide", "title": "Equal offsets, equal scores", "show": "code printed"}
for m, n in ((5, 2), (40, 37), (10, 10), (0, 0)):
    t = clock_explorer.table(m=m, n=n)
    print(f"m = {m:>2}, n = {n:>2}: {t['offset']} tokens back, score {t['score']:.6f}")
near, far = (clock_explorer.table(m=m, n=n)["score"] for m, n in ((5, 2), (40, 37)))
check_close("equal offsets", near, far)
print(f"the best offset of this pair: {clock_explorer.table()['peak']:.2f} tokens back")

# %% [markdown] slideshow={"slide_type": "notes"}
# ### How equal is equal?
#
# In exact arithmetic shifting both positions changes nothing. In floating point the **angle** loses digits when the position is large. We take a head of 64
# numbers, 32 pairs, each with an angle of its own (`inv_freq`, section 4), the fastest 1 radian per token. **Predict** the size of the error in float64 when both
# positions move by one million.

# %% slideshow={"slide_type": "slide", "title": "A large position costs digits", "show": "printed", "text": "In exact arithmetic shifting both positions changes nothing. In floating point the **angle** loses digits. A head of 64, float64.\n\n**Predict** the size of the error when both positions move by one million: 1e-16, 1e-13, 1e-10 or 1e-7?"}
my_guess = None  # 1e-16, 1e-13, 1e-10, 1e-7?
g = torch.Generator().manual_seed(4)
q64, k64 = torch.randn(2, 64, generator=g, dtype=torch.float64)
freq = torch.tensor(inv_freq(64), dtype=torch.float64)


def at(x, position):
    z = torch.view_as_complex(x.view(32, 2)) * torch.polar(torch.ones(32, dtype=torch.float64), position * freq)
    return torch.view_as_real(z).flatten()


here = at(q64, 7) @ at(k64, 3)
shifted = {s: abs((at(q64, 7 + s) @ at(k64, 3 + s) - here).item()) for s in (1_000, 1_000_000)}
predict(my_guess, 10.0 ** math.ceil(math.log10(shifted[1_000_000])), "bounds it, to a power of ten")
check_equal("a thousand: below 1e-11", shifted[1_000] < 1e-11, True)
check_equal("a million: below 1e-8, above 1e-12", 1e-12 < shifted[1_000_000] < 1e-8, True)

# %% [markdown] slideshow={"slide_type": "skip"}
# A rounding of $10^{6}\,\theta$ is a thousand times coarser than one of $10^{3}\,\theta$. [Chapter 04](04_rope_in_practice.ipynb) does it in half precision.
#
# ## 4 · Many dimensions
#
# A head of $d_h$ dimensions has $d_h/2$ pairs, counted from $i = 0$, each with a frequency of its own. The first turns by one radian per token, and each next one is slower by
# the same factor, so chosen that pair $d_h/2$, one beyond the last, would turn by $1/b$. $b$ is the **base**.
#
# **Exercise 2. Frequencies.** Return the list of $d_h/2$ frequencies, in radians per token. The chapter goes on with your function once it passes, and with `lib`'s until then.

# %% tags=["exercise"]
def my_inv_freq(dh, base):
    ...


# %% tags=["check"]
check("03.inv_freq", my_inv_freq)

# %% tags=["solution"] jupyter={"source_hidden": true}
def inv_freq_solution(dh, base):
    return [base ** (-2 * i / dh) for i in range(dh // 2)]


check("03.inv_freq", inv_freq_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Many dimensions: each pair has a frequency, and a wavelength", "show": "formula", "text": "- $b$ is the **base**: `rope_theta`, 10,000 in the paper\n- the first pair turns by one radian per token; the last hardly moves\n- a full turn takes $2\\pi/\\theta_i$ tokens: the **wavelength**"}
# As a formula, for $i = 0 \ldots d_h/2 - 1$:
#
# $$\theta_i = b^{-2i/d_h} .$$
#
# A config calls $b$ `rope_theta`; the paper takes 10,000. The time for a full turn is the
# **wavelength** $2\pi/\theta_i$. For $d_h = 128$ and $b = 10{,}000$, **predict** the longest one.

# %% slideshow={"slide_type": "subslide", "title": "How long is the longest wavelength?", "text": "A head of 128 dimensions has 64 pairs: 64 clocks, one frequency each. The first makes a turn in 6.28 tokens, the last is the slowest.\n\n$d_h = 128$, $b = 10{,}000$. **Predict** how many tokens the slowest pair needs for a full turn."}
my_guess = None  # tokens
frequencies = mine("03.inv_freq")
waves = [2 * math.pi / theta for theta in frequencies(128, 10_000.0)]
predict(my_guess, round(waves[-1]), "tokens")
print(f"fastest pair {waves[0]:.4f} tokens, slowest {waves[-1]:,.0f}, bound 2 pi b = {2 * math.pi * 10_000:,.0f}")
check_close("yours = lib", waves, wavelengths(128, 10_000.0))
check_close("2 pi 10000^(126/128)", waves[-1], 2 * math.pi * 10_000 ** (126 / 128), 1e-6)
check_equal("rounded", round(waves[-1]), 54_410)
print("d_h = 8:", [round(theta, 6) for theta in frequencies(8, 10_000.0)], "radians per token")

# %% [markdown] slideshow={"slide_type": "skip"}
# Here are eight pairs of a head of 16, as clocks, at position 100. The fast ones tell neighbours apart; the slow ones tell near from far.

# %% slideshow={"slide_type": "slide", "title": "Eight clocks at position 100: fast ones tell neighbours, slow ones near from far"}
fig, axes = plt.subplots(2, 4, figsize=(10, 5.4))
rows = draw_clocks(axes.flat, position=100)
plt.show()
for i, wave, turns in rows:
    print(f"pair {i}: one turn in {wave:>9,.1f} tokens, {turns:6.2f} turns by position 100")

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: eight clocks whose hands started pointing right and turn counter-clockwise. Pair 0 has gone round almost sixteen times, pair 3 half a turn, and
# pair 7 has hardly left its start.*
#
# ### In code
#
# **Exercise 3. Rotate.** One vector `x` [dh] at one `position`, pairs of **neighbours** (0, 1), (2, 3), ..; `theta` is the list of frequencies.

# %% tags=["exercise"]
def my_rotate(x, position, theta):
    ...


# %% tags=["check"]
check("03.rotate", my_rotate)

# %% tags=["solution"] jupyter={"source_hidden": true}
def rotate_solution(x, position, theta):
    angle = position * torch.tensor(theta, dtype=x.dtype)
    a, b = x[0::2], x[1::2]
    pair = (a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos())
    return torch.stack(pair, dim=-1).flatten()


check("03.rotate", rotate_solution)

# %% [markdown] slideshow={"slide_type": "skip"}
# For a whole tensor: a table of cos and sin for all positions, and two lines. Here pair $i$ is made of the dimensions $i$ and $i + d_h/2$, as most Hugging Face classes lay
# them out; the paper pairs neighbours. [Chapter 04](04_rope_in_practice.ipynb) is about that difference.

# %% slideshow={"slide_type": "slide", "title": "In code: a table of cos and sin, and two lines that rotate", "show": "code"}
def my_rope_cache(T, dh, base=10_000.0):
    theta = base ** (-torch.arange(0, dh, 2).float() / dh)  # [dh/2]
    angles = torch.outer(torch.arange(T).float(), theta)  # [T, dh/2]
    return angles.cos(), angles.sin()


def my_apply_rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)  # [B, heads, T, dh/2]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)  # [B, heads, T, dh]


cos, sin = rope_cache(40, 6)
x = torch.randn(2, 3, 40, 6, generator=torch.Generator().manual_seed(2))
check_close("tables", torch.stack(my_rope_cache(40, 6)), torch.stack([cos, sin]))
check_close("rotation, positions 0 to 39", my_apply_rope(x, cos, sin), apply_rope(x, cos, sin))
rotate, theta = mine("03.rotate"), frequencies(6, 10_000.0)
halves = torch.tensor([0, 3, 1, 4, 2, 5])  # pair i of the table's layout, as neighbours
yours = torch.stack([rotate(x[1, 2, m, halves], m, theta) for m in range(40)])
check_close("yours = complex numbers", rotate(q64, 7, freq.tolist()), at(q64, 7))
check_close("your neighbours = its halves", yours, apply_rope(x, cos, sin)[1, 2][:, halves])

# %% slideshow={"slide_type": "subslide", "title": "The check to run on your own code: equal offsets, equal scores", "show": "code"}
torch.manual_seed(0)
cos, sin = rope_cache(64, 8)
q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)


def head_score(m, n):
    q_m = apply_rope(q, cos[m : m + 1], sin[m : m + 1])
    k_n = apply_rope(k, cos[n : n + 1], sin[n : n + 1])
    return (q_m * k_n).sum().item()


print(f"score(5, 2) = {head_score(5, 2):.4f}    score(40, 37) = {head_score(40, 37):.4f}")
print(f"score(10, 10) = {head_score(10, 10):.4f}   score(0, 0) = {head_score(0, 0):.4f}")
check_close("three back", head_score(5, 2), head_score(40, 37), 1e-5, q.norm() * k.norm())
check_close("offset 0", head_score(10, 10), head_score(0, 0), 1e-5, q.norm() * k.norm())

# %% [markdown] slideshow={"slide_type": "notes"}
# ### Why many frequencies
#
# One pair alone repeats: a turn takes 6.28 tokens, so after 44 tokens the hand has gone round seven times and the score is back. Many pairs agree at distance 0
# only. Slide the number of pairs down to one, then up again.

# %% slideshow={"slide_type": "slide", "title": "Many pairs agree at distance 0 only: slide the pairs down to one, then up"}
distance_explorer

# %% slideshow={"slide_type": "subslide", "title": "More pairs, less comes back", "show": "printed", "text": "One pair repeats: a turn takes 6.28 tokens, so after 44 tokens the hand has gone round seven times and the score is back. Many pairs agree at distance 0 only."}
for pairs in (1, 4, 16, 64):
    t = distance_explorer.table(pairs=pairs)
    print(f"{pairs:>2} pairs: beyond 512 tokens the score comes back to {t['tail']:.2f} of its value at 0, at {t['tail_at']:,}")
print(f"one pair at distance 44: {math.cos(44):.3f} of its value at 0")
tails = [distance_explorer.table(pairs=pairs)["tail"] for pairs in (1, 4, 16, 64)]
check_equal("more pairs, less coming back", tails == sorted(tails, reverse=True), True)

# %% [markdown] slideshow={"slide_type": "notes"}
# The fading is a property of **equal** vectors. A head is free to learn a query and a key that peak at another distance, as in the clock.
#
# ### Three ways on one axis
#
# The **sinusoid** of Vaswani et al. 2017 ([arXiv 1706.03762](https://arxiv.org/abs/1706.03762), section 3.5) is added to the input, once. **ALiBi**
# ([arXiv 2108.12409](https://arxiv.org/abs/2108.12409), section 3) adds $-s$ per token of distance to each score, with a slope $s$ for each head: 1/2, 1/4 .. 1/256 for eight. **RoPE** turns
# queries and keys. One word asks another, through random $W_q$, $W_k$: what does position add to their score, from position 64 and from position 512?
# **Predict** for which of the three the answers agree.

# %% slideshow={"slide_type": "skip"}
my_guess = None  # a set of "sinusoid", "ALiBi", "RoPE"
g = torch.Generator().manual_seed(0)
asks, answers = torch.randn(2, 64, generator=g, dtype=torch.float64)
W_q, W_k = torch.randn(2, 64, 64, generator=g, dtype=torch.float64) / 8


def sinusoid(position):  # entries 2i and 2i + 1: sin and cos of position * freq[i]
    return torch.stack([(position * freq).sin(), (position * freq).cos()], dim=-1).flatten()


def position_adds(m, n):
    plain = (W_q @ asks) @ (W_k @ answers) / 8
    moved = (W_q @ (asks + sinusoid(m))) @ (W_k @ (answers + sinusoid(n))) / 8
    slope_row = 2.0**-4 * torch.arange(-m, 1)  # the fourth of eight heads, keys 0 to m
    turned = at(W_q @ asks, m) @ at(W_k @ answers, n) / 8
    return {"sinusoid": moved - plain, "ALiBi": slope_row[n], "RoPE": turned - plain}


early, late = ([position_adds(m, m - back) for back in range(65)] for m in (64, 512))
early, late = ({name: torch.stack([row[name] for row in rows]) for name in rows[0]} for rows in (early, late))

# %% slideshow={"slide_type": "slide", "title": "Three ways on one axis: two know the distance alone", "show": "picture printed", "text": "What position adds to the score of two words, seen from position 64 (lines) and 512 (dots). Random $W_q$, $W_k$, the same for all three."}
fig, ax = plt.subplots(figsize=(9, 4.4))
for name, color in (("sinusoid", COLORS["old"]), ("ALiBi", COLORS["ink"]), ("RoPE", COLORS["rope"])):
    _ = ax.plot(range(65), early[name], color=color, label=name)
    _ = ax.plot(range(0, 65, 2), late[name][::2], "o", ms=5, mfc="none", color=color)
_ = ax.plot([], [], "o", ms=5, mfc="none", color=COLORS["ink"], label="dots: from position 512")
_ = ax.set(xlabel="m − n: how many tokens back the key is", ylabel="added to the score")
_ = ax.legend()
plt.show()
change = {name: ((late[name] - early[name]).abs().max() / early[name].abs().max()).item() for name in early}
predict(my_guess, {name for name in change if change[name] < 0.1})
print({name: "agree" if change[name] < 0.1 else "differ" for name in change})

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: the dots of ALiBi (a falling line) and RoPE (a swing) lie on their lines; those of the sinusoid do not.*
#
# The sinusoid was meant to be relative, and $p_m \cdot p_n$ is: the very curve of the explorer. $W_q$ and $W_k$ come in between. RoPE rotates **after** them.

# %% slideshow={"slide_type": "skip"}
check_close("ALiBi: position 512 = position 64", late["ALiBi"], early["ALiBi"])
check_close("RoPE: position 512 = position 64", late["RoPE"], early["RoPE"], 1e-10)
check_equal("sinusoid: differs by more than half its size", change["sinusoid"] > 0.5, True)
relative = [sinusoid(100) @ sinusoid(100 - back) for back in range(1, 65)]
curve = distance_explorer.table(pairs=32, base=10_000.0)["curve"][:64]
check_close("without W_q and W_k the sinusoid is relative", relative, 32 * curve, 1e-10)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## 5 · What is rotated
#
# **Exercise 4. Find the fault.** This attention runs. But move a whole text by 100 positions, and its output changes. Mend it.

# %% tags=["exercise"]
def my_attention(q, k, v, cos, sin):
    from lib import apply_rope, attend

    q, k, v = (apply_rope(x, cos, sin) for x in (q, k, v))
    return attend(q, k, v)


# %% tags=["check"]
check("03.fault", my_attention)

# %% tags=["solution"] jupyter={"source_hidden": true}
def fault_solution(q, k, v, cos, sin):
    return attend(apply_rope(q, cos, sin), apply_rope(k, cos, sin), v)


check("03.fault", fault_solution)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Queries and keys are rotated, values are not", "show": "", "ask": "Q6", "text": "The scores say *how much* to take from a token. A rotated value would change *what* is taken, by the place it stands at.\n\nMove the whole text by 100 positions and compare:"}
# Queries and keys, before their product, in every layer. **Not the values.** The scores say *how much* to take from a token; a rotated value would change *what* is
# taken, by the place it stands at. Move the whole text by 100 positions and compare.

# %% slideshow={"slide_type": "-", "show": "printed"}
g = torch.Generator().manual_seed(6)
q, k, v = torch.randn(3, 1, 2, 7, 8, generator=g, dtype=torch.float64)


def attention(start, rotate_values=False):
    cos, sin = rope_cache(7, 8, start=start)
    vv = apply_rope(v, cos, sin) if rotate_values else v
    return attend(apply_rope(q, cos, sin), apply_rope(k, cos, sin), vv)


check_close("q and k rotated: a move by 100 changes nothing", attention(0), attention(100), 1e-5)
moved = (attention(0, True) - attention(100, True)).abs().max().item()
print(f"v rotated too: the output changes by {moved:.1f}")
check_equal("by more than a tenth", moved > 0.1, True)

# %% [markdown] slideshow={"slide_type": "notes"}
# ### Why in every layer, when the sinusoid is added once?
#
# What is added to the input stays in the stream, and every later layer can read it. Rotated queries and keys are gone once their score is taken, and the values
# were never rotated. Does RoPE leave a trace of the position in the stream? Give SmolLM2 one word 40 times: its 40 rows start equal. **Predict** how
# much they differ after 30 layers, as a share of their length: with RoPE alone, and with a sinusoid, as long as the word's vector, added to the input.

# %% slideshow={"slide_type": "skip"}
my_guess = {"RoPE": None, "sinusoid": None}  # 0 to 1
folder = lib.find_model()
model, tokenizer = lib.load_model(folder, torch.float32), lib.load_tokenizer(folder)
forty = torch.full((1, 40), tokenizer.token_to_id("Ġword"))
angles = torch.outer(torch.arange(40), torch.tensor(inv_freq(576)))
sines = torch.cat([angles.sin(), angles.cos()], dim=-1) * model.emb(forty).norm(dim=-1).mean() / 288**0.5
rows = {"RoPE": evidence.stream(model, forty), "sinusoid": evidence.stream(model, forty, added=sines)}
spread = {name: ((x - x.mean(1, keepdim=True)).norm() / x.norm()).item() for name, x in rows.items()}
for name, share in spread.items():
    predict(my_guess[name], round(share, 1), f"({name})", tol=0.2)

# %% slideshow={"slide_type": "skip"}
first = rows["RoPE"][:, :1]
check_close("RoPE alone: 40 equal rows", rows["RoPE"], first.expand_as(rows["RoPE"]), 1e-4)
check_equal("with the sinusoid: by more than half of their length", spread["sinusoid"] > 0.5, True)

# %% [markdown] slideshow={"slide_type": "notes"}
# RoPE by itself leaves none: each layer must be told anew. On real text SmolLM2's loss is 2.2 nats. **Predict** it when its first layer alone rotates, and the other 29 do not. The control: one layer
# rotates as before, but counts its positions from 100.

# %% slideshow={"slide_type": "skip"}
my_guess = None  # nats
ids, _ = evidence.excerpts(load_corpus().decode(), tokenizer, n=2)
starts = {
    "every layer rotates": lambda layer: 0,
    "only the first": lambda layer: 0 if layer == 0 else None,
    "none": lambda layer: None,
    "all but layer 16": lambda layer: None if layer == 16 else 0,
    "layer 16 from position 100": lambda layer: 100 if layer == 16 else 0,
}
loss = {}
for name, start in starts.items():
    logits = model.head(model.norm(evidence.stream(model, ids[:1], start)))[0]
    loss[name] = evidence.next_token_loss(logits, ids[:1])
    print(f"{name:<27} {loss[name]:.2f}")
predict(my_guess, round(loss["only the first"], 1), "nats", tol=0.1)

# %% slideshow={"slide_type": "skip"}
usual, once, none, without, moved_on = loss.values()
check_close("the first layer alone: as bad as none", once, none, 0.02)
check_equal("and worse than all by more than 2 nats", once - usual > 2, True)
check_equal("one layer without: worse by more than 0.1", without - usual > 0.1, True)
check_close("one layer counted from 100: the same", moved_on, usual, 1e-4)

# %% [markdown] slideshow={"slide_type": "notes"}
# SmolLM2 was trained with RoPE in every layer; some models are trained without it in a few ([chapter 04](04_rope_in_practice.ipynb), NoPE layers).
#
# RoPE has no parameters and no table that could end: the angle of position 1,000,000 is as well defined as that of position 1. (Whether the model has ever *seen*
# such an angle is another matter, and [chapter 04](04_rope_in_practice.ipynb)'s.)
#
# **Does the direction matter?** nanochat rotates by $-\theta$. Mirroring each pair, $F = \mathrm{diag}(1, -1)$, turns one into the other: $R(-\theta) = F R(\theta) F$. So a model
# trained with $-\theta$ is one trained with $+\theta$ whose weights are mirrored. For a **given** set of weights it matters very much.

# %% slideshow={"slide_type": "subslide", "title": "Does the direction matter? Not to training, very much to given weights", "show": "printed", "text": "nanochat rotates by $-\\theta$. Mirroring each pair, $F = \\mathrm{diag}(1, -1)$, turns one into the other: $R(-\\theta) = F R(\\theta) F$. A model trained with $-\\theta$ is one trained with $+\\theta$ whose weights are mirrored."}
cos, sin = rope_cache(12, 8, start=33)
q1, k1 = torch.randn(2, 1, 1, 12, 8, generator=g, dtype=torch.float64)
mirror = torch.tensor([1.0] * 4 + [-1.0] * 4, dtype=torch.float64)  # flips the second entry of every pair
minus = apply_rope(q1, cos, -sin) @ apply_rope(k1, cos, -sin).transpose(-1, -2)
plus_mirrored = apply_rope(q1 * mirror, cos, sin) @ apply_rope(k1 * mirror, cos, sin).transpose(-1, -2)
plus = apply_rope(q1, cos, sin) @ apply_rope(k1, cos, sin).transpose(-1, -2)
check_close("minus theta = mirrored weights", minus, plus_mirrored)
check_equal("same weights, other direction: another model", bool((minus - plus).abs().max() > 0.1), True)

# %% [markdown] slideshow={"slide_type": "slide", "title": "In SmolLM2, which pairs does a head use?", "show": "", "text": "A pair adds at most $|q_i||k_i|$ to a score. Layer 16: of all 270 heads, its head 0 looks hardest at the token just before.\n\n**Predict:** which share of $|q_i||k_i|$ do the loudest four of 32 pairs carry?"}
# ## 6 · In a real model
#
# SmolLM2-135M has `head_dim` 64 (576 / 9) and `rope_theta` 100,000: 32 pairs. Which ones does a head use? The weights $W_q$ alone do not say; a pair adds at most
# $|q_i||k_i|$ to a score, so we measure that product on real text, as Barbero et al. 2024 do for Gemma 7B ([arXiv 2410.06205](https://arxiv.org/abs/2410.06205)).
# We take layer 16 because its head 0, of all 270 heads, gives the most weight to the token just before. **Predict** the share that the loudest four of its 32 pairs carry. The control: random $W_q$ and $W_k$ with the same row norms.

# %% slideshow={"slide_type": "subslide", "title": "Four of 32 pairs carry most, in every head", "show": "printed", "text": "SmolLM2, layer 16 (its head 0 looks one token back more than any other head), two excerpts of real text, keys and queries before RoPE.\n\n- What share of $|q_i||k_i|$ do a head's four loudest pairs of 32 carry? By chance it would be an eighth.\n- Control: random $W_q$ and $W_k$ with the same row norms.\n- Do the loud pairs lie among the fast ones or the slow ones?"}
my_guess = None  # per cent
q, k = evidence.unrotated(model, ids, 16)  # [9, B, T, 64], before RoPE
use = evidence.pair_sizes(q, k)  # [9, 32]
random_use = evidence.pair_sizes(*evidence.unrotated(model, ids, 16, learned=False))
top, chance = (u.topk(4).values.sum(-1) for u in (use, random_use))
predict(my_guess, round(100 * top[0].item()), "per cent", tol=0.05)
print(f"loudest four: {top.min():.0%} to {top.max():.0%}, random {chance.min():.0%} to {chance.max():.0%}")
print(f"slower sixteen, heads 0 to 8: {[f'{s:.0%}' for s in use[:, 16:].sum(1)]}")
check_equal("every head above one half, no random one", [bool(top.min() > 0.5), bool(chance.max() > 0.5)], [True, False])

# %% [markdown] slideshow={"slide_type": "notes"}
# The loudest pairs are 23 to 25, whose hands need tens of thousands of tokens for a turn and hardly move within a text. Even head 0 has 64 % on the slower half. So do its slow pairs do the work?
# Its weight on the token before is 0.72. **Predict** what is left when (a) the eight fastest pairs do not turn at all, (b) the sixteen slowest do not.

# %% slideshow={"slide_type": "slide", "title": "Loud is not what looks one token back: stop some pairs", "show": "printed", "text": "Head 0's weight on the token before is 0.72. **Predict** what is left when (a) the eight fastest pairs do not turn at all, (b) the sixteen slowest do not."}
my_guess = {"a": None, "b": None}
left = {name: evidence.weight_back(q, k, 1, s)[0].item() for name, s in (("a", range(8)), ("b", range(16, 32)))}
for name, value in left.items():
    predict(my_guess[name], round(value, 2), f"({name})", tol=0.2)

# %% slideshow={"slide_type": "subslide", "title": "Score against distance: a head of fast pairs, a head of slow ones", "show": "picture"}
check_close("all turn, a, b", [evidence.weight_back(q, k)[0].item(), *left.values()], [0.72, 0.04, 0.72], 0.03)
cos, sin = rope_cache(ids.shape[1], 64, 100_000.0)
scores = apply_rope(q, cos, sin) @ apply_rope(k, cos, sin).transpose(-1, -2) / 8
fig, (left_ax, right_ax) = plt.subplots(1, 2, figsize=(11, 4))
for head, color in ((0, COLORS["rope"]), (3, COLORS["old"])):
    _ = left_ax.plot(range(32), 100 * use[head], "o-", color=color, label=f"head {head}")
    far = [scores[head][:, 1:, 1:].diagonal(-b, -2, -1).mean() for b in range(65)]
    _ = right_ax.plot(range(65), far, color=color, label=f"head {head}")
_ = left_ax.set(xlabel="pair, fast to slow", ylabel="share of $|q_i||k_i|$, %")
_ = right_ax.set(xlabel="tokens back", ylabel="mean score")
_ = left_ax.legend()
plt.show()

# %% [markdown] slideshow={"slide_type": "notes"}
# *In words: left, both heads peak at pairs 23 to 25. Right, head 0's score is highest one token back and then swings; head 3's falls slowly.*
#
# The slow pairs are loud, but nearly the same at every distance: they compare what the tokens are. The quieter fast pairs find the token before.
#
# ## 7 · Bugs that shipped
#
# **Rotated along the wrong axis.** The tensor was [B, T, heads, dh] and the rotation expected [B, heads, T, dh] (open_lm#4). With as many heads as tokens nothing fails:
# every *head* gets a position, and all tokens the same. And **a table kept by length alone** ([rotary-embedding-torch#11](https://github.com/lucidrains/rotary-embedding-torch/issues/11)): a later call of the same length at another offset
# gets the first call's angles. Both in three lines:

# %% slideshow={"slide_type": "subslide", "title": "Bugs that shipped: the wrong axis, and a table kept by length alone"}
same = torch.ones(1, 3, 3, 4)  # 3 tokens, 3 heads, all equal
cos3, sin3 = rope_cache(3, 4)
wrong = apply_rope(same, cos3, sin3)  # axis 1 is tokens here, axis 2 heads
check_equal("tokens 0 and 2 came out equal", torch.equal(wrong[0, 0], wrong[0, 2]), True)
table = {}
kept = [table.setdefault(1, rope_cache(1, 2, start=start))[0].item() for start in (0, 5)]
asked = [rope_cache(1, 2, start=start)[0].item() for start in (0, 5)]
print(f"cos at offsets 0 and 5: kept {kept[0]:.6f} {kept[1]:.6f}, right {asked[0]:.6f} {asked[1]:.6f}")
check_close("the second", asked[1], 0.283662, 1e-5)

# %% [markdown] slideshow={"slide_type": "skip"}
# ## One more exercise
#
# **Exercise 5.** SmolLM2 has $d_h = 64$ and base 100,000. How many tokens does its slowest pair need for a full turn?

# %% tags=["exercise"]
my_slowest = None

# %% tags=["check"]
check("03.slowest", my_slowest)

# %% tags=["solution"] jupyter={"source_hidden": true}
def slowest_solution():
    return 2 * math.pi * 100_000 ** (62 / 64)


check("03.slowest", slowest_solution)
check_equal("tokens", round(slowest_solution()), 438_460)

# %% [markdown] slideshow={"slide_type": "slide", "title": "Distance only, linear, lengths kept: nothing but rotations is left", "show": "", "text": "- relative scores need the powers of one orthogonal matrix: a set of 2-D rotations\n- a base and a head's width are a set of wavelengths: 6.28 to 54,410 tokens at $b$ = 10,000, $d_h$ = 128\n- queries and keys, in every layer, before their product; values stay\n- no parameters, no table that could end\n- to take home: `03.inv_freq`, `03.rotate`, `03.proof`, `03.fault`, `03.slowest`"}
# ## What you can do now
#
# You **derived** that relative scores need powers of one orthogonal matrix, and that this is a set of rotations; **wrote** frequencies and rotation and checked them; **read**
# a base as wavelengths from 6.28 to 54,410 tokens; and **said** why values stay as they are.
#
# **In practice.** `rope_theta` is the base and `head_dim` the number of dimensions that it is spread over (or `hidden_size / num_attention_heads` where no `head_dim` is given).
# The paper: 10,000; Llama-3-8B: 500,000; Qwen3-0.6B: 1,000,000. Why, and what else can be in the file: [chapter 04](04_rope_in_practice.ipynb).
#
# **Sources.** Su et al. 2021, RoFormer ([arXiv 2104.09864](https://arxiv.org/abs/2104.09864)), sections 3.2 and 3.4: the demand, the 2-D solution, the frequencies. Config fields from the models' config.json. nanochat's direction: karpathy/nanochat, `gpt.py`.

# %% slideshow={"slide_type": "skip"}
progress("03")
