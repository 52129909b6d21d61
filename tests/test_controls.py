"""Every claim about behaviour beside its control: the claim's check passes on the real thing and FAILS on the control.

A control differs in what the claim names alone (same shapes, norms, data, seeds), and fails by value. `pytest tests/test_controls.py -s`
prints the table. About 35 s, most of it SmolLM2, the count tables and two small runs.
"""

import functools
import math

import pytest
import torch
from torch.nn import functional as F

import lib
from book.evidence import (
    careless,
    centre_writers,
    excerpts,
    fold_gains,
    held_out_purity,
    layer_inputs,
    next_token_loss,
    pair_sizes,
    random_gpt,
    rounded,
    row_range,
    run_norms,
    same_size,
    served,
    share_left,
    start_gradients,
    stream,
    unrotated,
    weight_back,
    with_rms_norms,
    without_feature,
)
from book.experiments import by_seed, interval, kicked, load_results, table_curves

ROWS = {}


def claim(chapter, text, control, threshold, *, below=False):
    """Registers function(which) -> value, which is "real" or "control". The claim is value > threshold, or < where `below`."""

    def keep(measure):
        ROWS[f"{chapter}-{measure.__name__}"] = (text, control, threshold, below, measure)
        return measure

    return keep


@functools.cache
def middle_layer():
    """Inputs of SmolLM2's ninth feed-forward part on eight excerpts, which tokens begin with a capital, and its gate."""
    from book.corpus import load_corpus

    folder = lib.find_model()
    model = lib.load_model(folder, torch.float32)
    ids, words = excerpts(load_corpus().decode(), lib.load_tokenizer(folder))
    x = layer_inputs(model, ids, 8)[:, 1:].flatten(0, 1).double()
    capital = torch.tensor([word.strip()[:1].isupper() for piece in words for word in piece[1:]])
    return x, capital, model.blocks[8].ffn.w_gate.weight.detach().double()


@claim(
    "02",
    "the trained gate's features pick capitals on a text they were not chosen on",
    "a random gate of the same row norms",
    0.5,
)
def gate(which):
    x, capital, w = middle_layer()
    return held_out_purity(x @ (w if which == "real" else same_size(w, 1)).T, capital)[1]


@functools.cache
def one_feature():
    """How far participles fall against past forms: where the feature is cut, and along three random directions."""
    from book.corpus import load_corpus

    folder = lib.find_model()
    model, tokenizer = lib.load_model(folder, torch.float32), lib.load_tokenizer(folder)
    ids, _ = excerpts(load_corpus().decode(), tokenizer)
    _, _, logits = without_feature(model, ids[4:], 26, 1361)
    pairs = (
        "taken took given gave eaten ate fallen fell written wrote broken broke gone went seen saw known knew"
    )
    words = torch.tensor([tokenizer.encode(f" {w}").ids[0] for w in pairs.split()]).view(-1, 2).T
    lead = {name: (s[:, words[0]] - s[:, words[1]]).mean().item() for name, s in logits.items()}
    return {name: lead["as it is"] - value for name, value in lead.items()}


@claim(
    "02", "cutting feature 1,361 of layer 26 takes participles down", "as much along random directions", 0.5
)
def feature(which):
    falls = one_feature()
    return (
        falls["cut"] if which == "real" else max(v for name, v in falls.items() if name.startswith("random"))
    )


@claim(
    "02",
    "two features multiply, at any size of the input",
    "16 GELU units fitted to the product",
    1e-9,
    below=True,
)
def product(which):
    g = torch.Generator().manual_seed(3)
    z, u = torch.randn(2, 2000, generator=g, dtype=torch.float64)
    if which == "real":
        made = F.silu(3 * z) * 3 * u - F.silu(-3 * z) * 3 * u
    else:
        w = torch.randn(2, 16, generator=g, dtype=torch.float64)
        x = torch.stack([z, u], 1)
        made = (F.gelu(3 * x @ w) @ torch.linalg.lstsq(F.gelu(x @ w), (z * u)[:, None]).solution)[:, 0]
    return ((made - 9 * z * u).norm() / (9 * z * u).norm()).item()


@claim("02", "a feature's value changes across its gate's direction", "a GELU unit", 1.0)
def saddle(which):
    t = torch.linspace(-1, 1, 41, dtype=torch.float64)
    x1, x2 = 1 + 0.5 * t, 0.5 - t
    z = x1 + 0.5 * x2
    value = F.silu(z) * (0.5 * x1 - x2) if which == "real" else F.gelu(z)
    return (value.max() - value.min()).item()


# ---- norms


@functools.cache
def lighthouse():
    """SmolLM2 in float32, a sentence of 30 tokens, its logits and what its 61 norms are given."""
    folder = lib.find_model()
    model = lib.load_model(folder, torch.float32)
    text = (
        "The old lighthouse keeper climbed the stairs every evening. When the light was burning,"
        " he wrote one line in his book about the ships that had passed."
    )
    idx = torch.tensor([lib.load_tokenizer(folder).encode(text).ids])
    return model, idx, *run_norms(model, idx, lib.rms_norm)


@claim(
    "01",
    "a norm that squares in fp16 makes the model uniform (|loss - ln 49,152|)",
    "the same norm in bf16",
    1e-3,
    below=True,
)
def uniform(which):
    model, idx, _, _ = lighthouse()
    broken, _ = run_norms(model, idx, careless(torch.float16 if which == "real" else torch.bfloat16))
    return abs(next_token_loss(broken, idx) - math.log(49152))


@claim(
    "01",
    "a norm that squares in bf16 hardly changes the loss",
    "the same norm in fp16",
    0.01,
    below=True,
)
def precaution(which):
    model, idx, logits, _ = lighthouse()
    out, _ = run_norms(model, idx, careless(torch.bfloat16 if which == "real" else torch.float16))
    return abs(next_token_loss(out, idx) - next_token_loss(logits, idx))


@claim(
    "01",
    "SmolLM2's stream outgrows the root law (last RMS over first)",
    "60 random sub-layers whose outputs have the size of the first stream",
    30,
)
def stream_growth(which):
    _, _, _, stream = lighthouse()
    if which == "control":
        g = torch.Generator().manual_seed(4)
        stream = torch.randn(stream.shape, generator=g).cumsum(0)
    size = stream.pow(2).mean(-1).sqrt()[:, 1:].median(1).values
    return (size[-1] / size[0]).item()


@claim(
    "01",
    "SmolLM2's stream has no larger mean than independent entries have (|mean| / RMS)",
    "the same stream, its signs dropped",
    math.sqrt(2 / math.pi / 576),
    below=True,
)
def mean_share(which):
    _, _, _, stream = lighthouse()
    stream = stream[:, 1:] if which == "real" else stream[:, 1:].abs()
    return (stream.mean(-1).abs() / stream.pow(2).mean(-1).sqrt()).mean().item()


@claim(
    "01",
    "60 gains folded into the next matrices leave the logits (relative change)",
    "gains set to 1 without the fold",
    1e-4,
    below=True,
)
def folded(which):
    _, idx, logits, _ = lighthouse()
    model = lib.load_model(lib.find_model(), torch.float32)
    fold_gains(model, (lambda w, gain: w * gain) if which == "real" else (lambda w, gain: w))
    with torch.no_grad():
        return ((model(idx)[0] - logits).abs().max() / logits.abs().max()).item()


@claim(
    "01",
    "GPT-2's block with centred writers runs on RMSNorm (relative change)",
    "writers as they were",
    1e-12,
    below=True,
)
def centred(which):
    gpt, idx = random_gpt()
    with torch.no_grad():
        want = gpt(idx)
    if which == "real":
        centre_writers(gpt)
    return ((with_rms_norms(gpt, idx) - want).abs().max() / want.abs().max()).item()


def last_gradient(depth, place, d=256):
    """Size of the last matrix's gradient in a stack of random sub-layers."""
    g = torch.Generator().manual_seed(4)
    Ws = [(torch.randn(d, d, generator=g) / d**0.5).requires_grad_() for _ in range(depth)]
    x = lib.rms_norm(torch.randn(32, d, generator=g))
    for W in Ws:
        x = x + lib.rms_norm(x) @ W if place == "pre" else lib.rms_norm(x + x @ W)
    (lib.rms_norm(x) * torch.randn(32, d, generator=g)).sum().backward()
    return Ws[-1].grad.norm().item()


@claim(
    "01",
    "in pre-norm the last matrix's gradient falls with the depth (64 sub-layers over 16)",
    "post-norm",
    0.6,
    below=True,
)
def last_matrix(which):
    place = "pre" if which == "real" else "post"
    return last_gradient(64, place) / last_gradient(16, place)


# ---- SmolLM2's attention


@functools.cache
def attention_rows(learned=True):
    """Weights of SmolLM2's 270 heads on a short text, the length of every token's stream before each block, and the widest rows with and
    without a norm on q and k. learned=False: every W_q and W_k is random, its row norms kept."""
    folder = lib.find_model()
    model = lib.load_model(folder)
    for i, block in enumerate(() if learned else model.blocks):
        for j, w in enumerate((block.attn.wq.weight, block.attn.wk.weight)):
            w.data = same_size(w.data, 2 * i + j)
    text = "The old lighthouse keeper climbed the stairs every evening. When the light was burning, he wrote one line in his book."
    idx = torch.tensor([lib.load_tokenizer(folder).encode(text).ids])
    T = idx.shape[1]
    cos, sin = lib.rope_cache(T, 64, 100_000.0)
    mask = lib.causal_mask(torch.arange(T), torch.arange(T))
    x, weights, streams, wide = model.emb(idx), [], [], []
    with torch.no_grad():
        for block in model.blocks:
            q, k, _ = block.attn.project(block.attn_norm(x), cos, sin)
            s, normed = (
                (a @ lib.repeat_kv(b, 3).transpose(-1, -2) / 8)[0].masked_fill(~mask, -torch.inf)
                for a, b in ((q, k), (lib.rms_norm(q), lib.rms_norm(k)))
            )
            wide.append([row_range(s).max().item(), row_range(normed).max().item()])
            weights.append(s.softmax(-1)[:, T // 2 :])
            streams.append(x[0].square().mean(-1).sqrt())
            x = block(x, cos, sin)
    return torch.stack(weights), torch.stack(streams), torch.tensor(wide)


@claim(
    "07", "a third of the heads put more than half of their weight on the first token", "the second token", 60
)
def sinks(which):
    weights = attention_rows()[0]
    return float((weights[..., 0 if which == "real" else 1].mean(-1) > 0.5).sum())


@claim(
    "07",
    "those heads have learned it (heads with more than half of their weight on the first token)",
    "random W_q and W_k of the same row norms",
    60,
)
def sinks_learned(which):
    weights = attention_rows(which == "real")[0]
    return float((weights[..., 0].mean(-1) > 0.5).sum())


@claim(
    "07",
    "some row of SmolLM2's logits is wider than a norm with gain 1 allows",
    "the same q, k, normalised",
    16,
)
def wide_rows(which):
    return attention_rows()[2].amax(0)[0 if which == "real" else 1].item()


@claim(
    "07",
    "with QK-norm a step moves the logits less, the larger W_q and W_k are (16 times as large, against once)",
    "without QK-norm",
    0.25,
    below=True,
)
def braked(which):
    one, grown = kicked("modern" if which == "real" else "no_qk_norm", factors=(1, 16), steps=40)
    return grown["moved"] / one["moved"]


@claim("07", "one token's stream is far longer than the others' from the middle on", "the second token's", 20)
def massive(which):
    streams = attention_rows()[1]
    return (streams[15, 0 if which == "real" else 1] / streams[15, 2:].median()).item()


# ---- the cache


@functools.cache
def in_pieces(step="_step"):
    """SmolLM2's logits on the lighthouse text, fed as half of it and then token by token, through a step of exercise 05.step."""
    from book.exercises import ch05_step

    model, idx, _, _ = lighthouse()
    half = idx.shape[1] // 2
    return served(model, idx, getattr(ch05_step, step), [half] + [1] * (idx.shape[1] - half))


def loss_moved(step):
    """By how much the loss of the whole text moves when it is fed in pieces."""
    _, idx, logits, _ = lighthouse()
    return abs(next_token_loss(in_pieces(step), idx) - next_token_loss(logits, idx))


@claim("05", "a cache does not change the loss", "RoPE's position starts again at 0", 1e-3, below=True)
def positions(which):
    return loss_moved("_step" if which == "real" else "restarted")


@functools.cache
def alike(which):
    """SmolLM2, or the same shapes untrained, with the loss of the lighthouse text under each of three steps."""
    from book.exercises import ch05_step

    model, idx, _, _ = lighthouse()
    if which == "control":
        torch.manual_seed(5)
        model = lib.LlamaStyleLM.from_config(model.config)
        for p in model.parameters():
            p.data = torch.ones_like(p) if p.dim() == 1 else torch.randn_like(p) * 0.02
    steps = {"right": ch05_step._step, "future": ch05_step.unmasked_prompt, "tiled": ch05_step.tiled}
    return {name: next_token_loss(served(model, idx, step, [30]), idx) for name, step in steps.items()}


@claim(
    "05",
    "a prompt that sees its own future has a lower loss (nats)",
    "the same shapes, untrained",
    1,
)
def future(which):
    loss = alike(which)
    return loss["right"] - loss["future"]


@claim("05", "tiled heads ruin a trained model (nats)", "the same shapes, untrained", 3)
def tiling(which):
    loss = alike(which)
    return loss["tiled"] - loss["right"]


@claim(
    "05",
    "keys have loud channels: 4 bits with a scale per token err more than with one per channel (times)",
    "the values of the same tokens",
    2,
)
def loud_channels(which):
    model, idx, _, _ = lighthouse()
    cache = model.new_cache(1, 30)
    with torch.no_grad():
        model(idx, cache)
    ratios = []
    for layer in cache.layers:
        x = (layer.k if which == "real" else layer.v)[:, :, 1:30]
        token, channel = ((rounded(x, 4, axis) - x).norm() for axis in (-1, -2))
        ratios.append(token / channel)
    return torch.stack(ratios).median().item()


@claim(
    "05",
    "no rotation makes a layer's three value heads alike (share left by their mean)",
    "one head and two rotations of it",
    0.6,
    below=True,
)
def pooled(which):
    w = lighthouse()[0].blocks[15].attn.wv.weight.detach().double()
    if which == "control":
        g = torch.Generator().manual_seed(0)
        turns = [torch.linalg.qr(torch.randn(64, 64, generator=g, dtype=torch.float64)).Q for _ in range(2)]
        w = torch.cat([w[:64], *(turn @ w[:64] for turn in turns)])
    return share_left(w, 3, turned=True)


# ---- the training runs


def ends(name, variant, lr=None):
    runs = load_results(name, quiet=True)["runs"]
    return torch.tensor(
        [r["bits_per_byte"] for r in runs if r["variant"] == variant and lr in (None, r["lr"])]
    )


def at_step(name, variant, step):
    """Mean held-out bits at a step, and the bigram table of the bytes read until then."""
    runs = [r for r in load_results(name, quiet=True)["runs"] if r["variant"] == variant]
    return sum(dict(map(tuple, r["held_out"]))[step] for r in runs) / len(runs), table_curves([step], name)[
        0
    ][1]


@claim(
    "07",
    "with QK-norm a rate ten times too large still beats a bigram table (bits below it)",
    "without QK-norm",
    0.0,
)
def rate(which):
    return (
        table_curves([256], "rates")[0][1]
        - ends("rates", "modern" if which == "real" else "no_qk_norm", 3e-2).mean().item()
    )


@claim(
    "09",
    "today's block ends an epoch below the table that knows three bytes back (bits below it)",
    "the 2019 block",
    0.0,
)
def four_grams(which):
    runs = [
        r["bits_per_byte"]
        for r in load_results("epoch", quiet=True)["runs"]
        if r["variant"] == ("modern" if which == "real" else "2019")
    ]
    return table_curves([2009])[0][3] - max(runs)


@claim(
    "09",
    "after 129,000 bytes a block has left the bigram table behind (bits below it)",
    "the block with a learned table",
    0.1,
)
def plateau(which):
    bits, bigram = at_step("epoch", "modern" if which == "real" else "learned", 251)
    return bigram - bits


def worth_of_context(variant, point):
    """Bits that two true bytes lack against sixteen, mean over seeds: is more than the last two bytes read?"""
    runs = [r for r in load_results("epoch", quiet=True)["runs"] if r["variant"] == variant]
    rows = [dict(map(tuple, r["reach"][point][1])) for r in runs]
    return sum(row[2] - row[16] for row in rows) / len(rows)


@claim(
    "09",
    "the modern block reads further back than two bytes (bits that the bytes before them are worth)",
    "the 2019 block a quarter into its epoch",
    0.5,
)
def reach(which):
    return worth_of_context("modern", -1) if which == "real" else worth_of_context("2019", 0)


@claim(
    "09",
    "a rule for three seeds seldom finds an effect that is not there (share of rows without one)",
    "all three seeds agree",
    0.1,
    below=True,
)
def verdicts(which):
    draws = torch.randn(4000, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    if which == "real":
        found = [interval(row).resolved for row in draws.tolist()]
        return sum(found) / len(found)
    return ((draws > 0).all(1) | (draws < 0).all(1)).double().mean().item()


@claim(
    "09",
    "RoPE added to the 2019 block helps: the whole interval lies below zero (its upper end)",
    "the same runs, the two names swapped in two of four seeds",
    -0.1,
    below=True,
)
def rope_added(which):
    results = load_results("epoch", quiet=True)
    a, b = (by_seed(results, v) for v in ("+rope", "2019"))
    sign = dict(zip(a, (1, -1, -1, 1) if which == "control" else (1, 1, 1, 1), strict=True))
    return interval([sign[s] * (a[s] - b[s]) for s in a]).high


@claim(
    "09",
    "before the first step, post-norm's first layer of 24 gets a gradient far larger than pre-norm's (times)",
    "the same with parts made small by the root of twice the depth, as GPT-2 starts",
    5,
)
def post_norm(which):
    after, before = (
        start_gradients(place, 24, scaled=which == "control")[0] for place in ("after", "before")
    )
    return after / before


@functools.cache
def stream_of_smollm2():
    """(loss of a text when some numbers of one token's stream are set to 0 after 12 blocks, the largest channel of its first token)"""
    from book.corpus import load_corpus

    folder = lib.find_model()
    model = lib.load_model(folder, torch.float32)
    ids = torch.tensor([lib.load_tokenizer(folder).encode(load_corpus()[300_000:302_000].decode()).ids[:100]])
    cos, sin = lib.rope_table(model.config.layers[0].attention.rope, 64, 100)

    @torch.no_grad()
    def through(channels=None):
        x, at = model.emb(ids), None
        for i, block in enumerate(model.blocks):
            if i == 12:
                at = x[0, 0].abs().argmax().item()
                if channels:
                    x[0, 0, channels(at)] = 0.0
            x = block(x, cos, sin)
        return F.cross_entropy(model.head(model.norm(x))[0, :-1], ids[0, 1:]).item()

    return through


@claim(
    "09",
    "SmolLM2 needs one number of its first token's stream (loss without it, nats per token)",
    "two other numbers of the same token",
    5,
)
def one_number(which):
    return stream_of_smollm2()((lambda at: [at]) if which == "real" else (lambda at: [100, 400]))


@claim(
    "09",
    "two rates, four seeds and three: today's block ends below 2019 + RoPE, each at its better rate (upper end of the interval)",
    "the modern block without RoPE in its place",
    0.0,
    below=True,
)
def better_rates(which):
    low, epoch = load_results("low_rate", quiet=True), load_results("epoch", quiet=True)
    own = by_seed(low, "modern" if which == "real" else "learned", lr=1e-3)
    base = by_seed(epoch, "+rope")
    return interval([own[seed] - base[seed] for seed in own]).high


@functools.cache
def smollm2_narrowed():
    """(rank, which, random) -> how much loss SmolLM2 loses on a text when keys or values go through `rank` numbers in every layer."""
    from book.corpus import load_corpus
    from book.evidence import kept_by, narrowed

    folder = lib.find_model()
    model, tokenizer = lib.load_model(folder, torch.float32), lib.load_tokenizer(folder)
    seen, unseen = (
        torch.tensor([tokenizer.encode(load_corpus()[at : at + 2000].decode()).ids[:n]])
        for at, n in ((100_000, 300), (500_000, 100))
    )
    kept, own = kept_by(model, seen), {name: w.clone() for name, w in model.state_dict().items()}

    @torch.no_grad()
    def lost(*how):
        narrowed(model, kept, *how) if how else None
        loss = F.cross_entropy(model(unseen)[0, :-1], unseen[0, 1:]).item()
        model.load_state_dict(own)
        return loss

    whole = lost()
    return functools.cache(lambda *how: lost(*how) - whole)


@claim(
    "06",
    "a third of the directions of SmolLM2's keys is enough (nats per token lost)",
    "random directions",
    0.5,
    below=True,
)
def narrow_keys(which):
    return smollm2_narrowed()(64, "keys", which == "control")


@claim(
    "06",
    "keys need fewer directions than values (nats per token lost)",
    "values through as many",
    0.3,
    below=True,
)
def keys_not_values(which):
    return smollm2_narrowed()(64, "keys" if which == "real" else "values", False)


@claim(
    "06",
    "on eight GPUs each keeps fewer bytes of GQA-8 than of MLA at DeepSeek-V3's size (ratio)",
    "on one GPU",
    1,
    below=True,
)
def one_latent_for_all(which):
    from dataclasses import replace

    from book import configs

    v3 = lib.read_config(configs.path("deepseek-v3"))
    grouped = v3.replace(layers=tuple(replace(x, attention=lib.GQA(128, 8, 192, 128)) for x in v3.layers))
    gpus = 8 if which == "real" else 1
    return lib.kv_bytes_per_gpu(grouped, 1, gpus) / lib.kv_bytes_per_gpu(v3, 1, gpus)


# ---- positions


@claim(
    "03", "moving a whole text changes no output (relative change)", "values rotated too", 1e-5, below=True
)
def moved(which):
    q, k, v = torch.randn(3, 1, 2, 7, 8, generator=torch.Generator().manual_seed(6), dtype=torch.float64)

    def out(start):
        cos, sin = lib.rope_cache(7, 8, start=start)
        w = lib.apply_rope(v, cos, sin) if which == "control" else v
        return lib.attend(lib.apply_rope(q, cos, sin), lib.apply_rope(k, cos, sin), w)

    return ((out(0) - out(100)).norm() / out(0).norm()).item()


@claim(
    "03",
    "both positions moved by 448, RoPE adds the same to a score (relative change over 64 distances)",
    "a sinusoid added to the input, through the same random W_q and W_k",
    1e-9,
    below=True,
)
def added_by_position(which):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 64, generator=g, dtype=torch.float64)
    w_q, w_k = torch.randn(2, 64, 64, generator=g, dtype=torch.float64) / 8
    theta = torch.tensor(lib.inv_freq(64), dtype=torch.float64)

    def sinusoid(m):
        return torch.stack([(m * theta).sin(), (m * theta).cos()], -1).flatten()

    def turned(v, m):
        return torch.view_as_complex(v.view(32, 2)) * torch.polar(torch.ones_like(theta), m * theta)

    def adds(m, n):
        plain = (w_q @ x) @ (w_k @ y)
        if which == "control":
            return (w_q @ (x + sinusoid(m))) @ (w_k @ (y + sinusoid(n))) - plain
        return (turned(w_q @ x, m) * turned(w_k @ y, n).conj()).real.sum() - plain

    early, late = (torch.stack([adds(m, m - back) for back in range(65)]) for m in (64, 512))
    return ((late - early).norm() / early.norm()).item()


@functools.cache
def layer_16(learned=True):
    """Queries and keys of SmolLM2's layer 16 on two excerpts, before RoPE."""
    from book.corpus import load_corpus

    folder = lib.find_model()
    ids, _ = excerpts(load_corpus().decode(), lib.load_tokenizer(folder), n=2)
    return unrotated(lighthouse()[0], ids, 16, learned)


@claim(
    "03",
    "40 times one word: after 30 layers with RoPE the rows are still equal (spread as a share of their length)",
    "a sinusoid of the word's own length added to the input",
    1e-3,
    below=True,
)
def no_trace(which):
    model, tokenizer = lighthouse()[0], lib.load_tokenizer(lib.find_model())
    ids = torch.full((1, 40), tokenizer.token_to_id("Ġword"))
    angles = torch.outer(torch.arange(40), torch.tensor(lib.inv_freq(576)))
    sines = torch.cat([angles.sin(), angles.cos()], -1) * model.emb(ids).norm(dim=-1).mean().item() / 288**0.5
    x = stream(model, ids, added=sines if which == "control" else 0.0)
    return ((x - x.mean(1, keepdim=True)).norm() / x.norm()).item()


@functools.cache
def loss_when(*starts):
    """SmolLM2's loss on an excerpt; starts: (layer, position of the first token, or None: it does not rotate)."""
    from book.corpus import load_corpus

    ids, _ = excerpts(load_corpus().decode(), lib.load_tokenizer(lib.find_model()), n=1, length=160)
    model, others = lighthouse()[0], dict(starts)
    with torch.no_grad():
        x = stream(model, ids, lambda layer: others.get(layer, 0))
        return next_token_loss(model.head(model.norm(x))[0], ids)


@claim("03", "layer 16 without RoPE (nats on top)", "layer 16 counts from position 100", 0.1)
def one_layer(which):
    return loss_when((16, None if which == "real" else 100)) - loss_when()


@claim(
    "03",
    "four of 32 pairs carry more than half of |q_i||k_i| (the head with the least)",
    "random W_q and W_k of the same row norms",
    0.5,
)
def loud_pairs(which):
    return pair_sizes(*layer_16(which == "real")).topk(4).values.sum(-1).min().item()


@claim(
    "03",
    "a head that looks one token back needs its eight fastest pairs (share left of its weight there when they stop)",
    "the sixteen slowest stop",
    0.25,
    below=True,
)
def fast_pairs(which):
    q, k = layer_16()
    stop = range(8) if which == "real" else range(16, 32)
    return (weight_back(q, k, 1, stop)[0] / weight_back(q, k)[0]).item()


@claim(
    "04",
    "weights permuted into the other layout give the same scores (relative change)",
    "the same weights, not permuted",
    1e-5,
    below=True,
)
def layout(which):
    g = torch.Generator().manual_seed(4)
    x, wq, wk = (
        torch.randn(1, 40, 24, generator=g),
        torch.randn(32, 24, generator=g),
        torch.randn(16, 24, generator=g),
    )
    cos, sin = lib.rope_cache(40, 8)

    def scores(wq, wk, layout):
        q, k = ((x @ w.T).unflatten(-1, (-1, 8)).transpose(1, 2) for w in (wq, wk))
        q, k = lib.apply_rope(q, cos, sin, layout), lib.apply_rope(k, cos, sin, layout)
        return q @ lib.repeat_kv(k, 2).transpose(-1, -2)

    want = scores(wq, wk, "adjacent")
    if which == "real":
        wq, wk = lib.permute_heads(wq, 4), lib.permute_heads(wk, 2)
    return ((scores(wq, wk, "half") - want).norm() / want.norm()).item()


@functools.cache
def port_curves():
    """{fault: (KL, loss above the right model's)} of SmolLM2 by position, on one excerpt of chapter 04's chart."""
    from book import ports
    from book.corpus import load_corpus

    folder = lib.find_model()
    model = lib.load_model(folder)
    ids, _ = excerpts(load_corpus().decode(), lib.load_tokenizer(folder), n=1, length=288)
    return ports.curves(
        model,
        ids,
        {fault: ports.run(model, ids, fault) for fault in ports.FAULTS if fault != "scaling left out"},
    )


@claim(
    "04",
    "the wrong layout moves a text's end by nats (KL)",
    "a base a tenth",
    1.0,
)
def wrong_layout(which):
    return port_curves()["wrong layout" if which == "real" else "base a tenth"][0][-1].item()


@claim(
    "04",
    "a restarted cache heals (KL behind the prompt over KL at the end)",
    "the wrong layout",
    5.0,
)
def restarted(which):
    kl = port_curves()["cache restarted" if which == "real" else "wrong layout"][0]
    return (kl[7] / kl[-1]).item()


@claim(
    "04",
    "positions in bf16 change nothing up to token 257 (largest KL there over the largest of all)",
    "a base a tenth",
    0.01,
    below=True,
)
def rounded_positions(which):
    kl = port_curves()["positions in bf16" if which == "real" else "base a tenth"][0]
    return (kl[:11].max() / kl.max()).item()


@claim(
    "04",
    "a base a tenth hardly shows in the loss (nats above the right model's, mean over positions)",
    "the wrong layout",
    0.3,
    below=True,
)
def quiet_base(which):
    return port_curves()["base a tenth" if which == "real" else "wrong layout"][1].mean().abs().item()


@claim(
    "04",
    "a text's loss tells the layout (nats between the two)",
    "the first prediction alone",
    0.1,
)
def told_by_loss(which):
    loss = port_curves()["wrong layout"][1]
    return (loss.mean() if which == "real" else loss[0]).abs().item()


@claim(
    "04",
    "at base 10,000 the mean cosine of 64 pairs is below 0 at many distances up to 131,072 (share)",
    "base 1,000,000",
    0.3,
)
def below_zero(which):
    theta = torch.tensor(lib.inv_freq(128, 1e4 if which == "real" else 1e6), dtype=torch.float64)
    mean = torch.outer(torch.arange(1, 131_073, dtype=torch.float64), theta).cos().mean(1)
    return (mean < 0).double().mean().item()


@claim(
    "04",
    "keys cached under a moving base give other scores than one pass (relative difference)",
    "a text that ends at the trained length",
    0.01,
)
def moving_base(which):
    from book.exercises import ALL

    T = 24 if which == "real" else 16
    q, k = torch.randn(2, T, 8, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    exercise = ALL["04.dynamic"]
    right, cached = (f(q, k, 2.0, 16, 1e4) for f in (exercise.reference, exercise.mistakes[0].wrong))
    return ((right - cached).norm() / right.norm()).item()


@claim(
    "08",
    "a tied head is still the embedding after a step of training (relative difference)",
    "a copied head",
    1e-12,
    below=True,
)
def tie(which):
    torch.manual_seed(0)
    lm = lib.LlamaStyleLM(31, d=16, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=24, tie=which == "real")
    if which == "control":
        lm.head.weight.data.copy_(lm.emb.weight.data)
    idx = torch.randint(0, 31, (2, 9))
    step = torch.optim.SGD(lm.parameters(), lr=0.5)
    F.cross_entropy(lm(idx[:, :-1]).flatten(0, 1), idx[:, 1:].flatten()).backward()
    step.step()
    return ((lm.head.weight - lm.emb.weight).norm() / lm.emb.weight.norm()).item()


@functools.cache
def embedding():
    """The first 8,192 rows of SmolLM2's embedding, a random matrix with the same row lengths, the final gain, the tokenizer."""
    from safetensors import safe_open

    folder = lib.find_model()
    with safe_open(folder / "model.safetensors", "pt") as file:
        E = file.get_slice("model.embed_tokens.weight")[:8192].double()
        gain = file.get_tensor("model.norm.weight").double()
    return E, same_size(E, 0), gain, lib.load_tokenizer(folder)


@claim(
    "08",
    "the rows nearest to a number word are number words (share of the four nearest, six words)",
    "a random matrix with the same row lengths",
    0.9,
)
def neighbours(which):
    E, other, _, tokenizer = embedding()
    matrix = E if which == "real" else other
    words = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    ids = torch.tensor([tokenizer.encode(" " + word, add_special_tokens=False).ids[0] for word in words])
    unit = matrix / matrix.norm(dim=1, keepdim=True)
    near = (unit[ids[1:7]] @ unit.T).topk(5).indices[:, 1:]
    return torch.isin(near, ids).double().mean().item()


@claim(
    "08",
    "fed straight to the head, many rows say another token than their own (share)",
    "a random matrix with the same row lengths",
    0.25,
)
def says_another(which):
    E, other, gain, _ = embedding()
    matrix = E if which == "real" else other
    said = torch.cat(
        [(lib.rms_norm(rows, gain, eps=1e-5) @ matrix.T).argmax(1) for rows in matrix[::8].split(256)]
    )
    return (said != torch.arange(0, 8192, 8)).double().mean().item()


@claim(
    "08",
    "tokens of the 100 longest rows never occur in 92,000 tokens (share)",
    "100 rows drawn at random",
    0.9,
)
def unseen(which):
    from book.corpus import load_corpus

    E, _, _, tokenizer = embedding()
    seen = torch.tensor(tokenizer.encode(load_corpus().decode()[:400_000]).ids).bincount(minlength=49152)[
        :8192
    ]
    drawn = torch.randperm(8192, generator=torch.Generator().manual_seed(0))[:100]
    return (seen[E.norm(dim=1).topk(100).indices if which == "real" else drawn] == 0).double().mean().item()


@pytest.mark.parametrize("name", ROWS)
def test_the_claim_holds_and_its_control_fails(name):
    text, control, threshold, below, measure = ROWS[name]
    real, other = measure("real"), measure("control")
    print(
        f"\n{name:<14} {real:10.3g} {'<' if below else '>'} {threshold:g} : {text}\n{'':<14} {other:10.3g}     control: {control}"
    )
    assert (real < threshold) if below else (real > threshold)
    assert not ((other < threshold) if below else (other > threshold))
    assert math.isfinite(other), "a control fails by its value"
