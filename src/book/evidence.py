"""Measurements that a claim and its control share: the same function on the real thing and on what should not show it.

tests/test_controls.py asserts that each claim of the book holds on the first and fails on the second.
"""

import torch

import lib


def same_size(w, seed):
    """A random Gaussian matrix with the row norms of w [rows, columns]: the control that differs from w in what it learned alone."""
    draw = torch.randn(w.shape, generator=torch.Generator().manual_seed(seed), dtype=w.dtype)
    return draw * w.norm(dim=1, keepdim=True) / draw.norm(dim=1, keepdim=True)


def shared_signs(z, a, b):
    """Of the features that are positive for row a or row b of z [rows, features], the share that is positive for both; and by chance."""
    opened = z > 0
    both, either = (opened[a] & opened[b]).sum(), (opened[a] | opened[b]).sum()
    p, q = opened[a].double().mean(), opened[b].double().mean()
    return (both / either).item(), (p * q / (p + q - p * q)).item()


def held_out_purity(features, wanted, k=10, best=10):
    """How well single features pick out the wanted tokens: chosen on the first half of a text, judged on the second.

    Shapes: features [tokens, n], wanted bool [tokens] -> (share in the first half, share in the second)
    A feature's purity is the share of wanted tokens among the k on which it is largest; both signs compete, and the `best` of the
    first half are judged on the second: the best of thousands look good on the text they were chosen on, whatever they are.
    """
    signed, half = torch.cat([features, -features], 1), len(features) // 2
    purity = wanted[:half][signed[:half].topk(k, 0).indices].double().mean(0)
    chosen = purity.topk(best).indices
    judged = wanted[half:][signed[half:, chosen].topk(k, 0).indices].double().mean(0)
    return purity[chosen].mean().item(), judged.mean().item()


def row_range(logits):
    """Largest minus smallest logit that each query may see, what saturates a softmax: [h, T, T], -inf where masked -> [h, T]."""
    seen = logits > -torch.inf
    return logits.amax(-1) - logits.masked_fill(~seen, torch.inf).amin(-1)


@torch.no_grad()
def layer_inputs(model, ids, layer):
    """What the feed-forward part of `layer` gets for each row of ids [B, T], normalised: [B, T, d]. Only the blocks below it run."""
    from lib import rope_table

    block, attention = model.blocks[layer], model.config.layers[layer].attention
    cos, sin = rope_table(attention.rope, attention.head_dim, ids.shape[1])
    x = model.emb(ids)
    for below in model.blocks[:layer]:
        x = below(x, cos, sin)
    return block.ffn_norm(x + block.attn(block.attn_norm(x), cos, sin))


@torch.no_grad()
def without_feature(model, ids, layer, feature, top=20, seeds=(1, 2, 3)):
    """What a SwiGLU feature does on the `top` tokens of ids [B, T] where it is largest in size (each text's first and last token apart).

    Its part of the stream, its value times its column of w_down, is taken out after the block, or as much along random directions.
    Returns places [2, top] (text, position), values [top], and logits [top, V]: {"as it is", "cut", "random 1", ..}.
    """
    from lib import rope_table

    block, attention = model.blocks[layer], model.config.layers[layer].attention
    cos, sin = rope_table(attention.rope, attention.head_dim, ids.shape[1])
    x = model.emb(ids)
    for below in model.blocks[: layer + 1]:
        before, x = x, below(x, cos, sin)
    h = block.ffn_norm(before + block.attn(block.attn_norm(before), cos, sin))
    f = block.ffn
    z = h @ f.w_gate.weight[feature]
    values = torch.nn.functional.silu(z) * (h @ f.w_up.weight[feature])  # [B, T]
    places = values[:, 1:-1].abs().flatten().topk(top).indices
    places = torch.stack([places // (ids.shape[1] - 2), places % (ids.shape[1] - 2) + 1])
    column = f.w_down.weight[:, feature]
    cuts = {"as it is": 0 * column, "cut": column}
    for seed in seeds:
        random = torch.randn(len(column), generator=torch.Generator().manual_seed(seed))
        cuts[f"random {seed}"] = random / random.norm() * column.norm()
    logits = {}
    for name, taken in cuts.items():
        y = x - values[..., None] * taken
        for above in model.blocks[layer + 1 :]:
            y = above(y, cos, sin)
        logits[name] = model.head(model.norm(y[tuple(places)]))
    return places, values[tuple(places)], logits


def excerpts(text, tokenizer, n=8, length=320, start=200_000, every=20_000):
    """n pieces of a text [n, length] as token ids, far apart, and the tokens as words."""
    pieces = [tokenizer.encode(text[start + i * every :][: 6 * length]).ids[:length] for i in range(n)]
    return torch.tensor(pieces), [[tokenizer.decode([i]) for i in piece] for piece in pieces]


@torch.no_grad()
def run_norms(model, idx, norm):
    """The model on idx [1, T] with norm(x, weight, eps) in the place of each of its RMSNorms; the model itself stays as it is.

    Returns logits [T, V] and what each norm was given, in the order in which they run: [norms, T, d], both float32.
    """
    from lib import RMSNorm

    norms, given = [m for m in model.modules() if isinstance(m, RMSNorm)], []

    def forward(module, x):
        given.append(x[0].float())
        return norm(x, module.weight, module.eps)

    try:
        for module in norms:
            module.forward = forward.__get__(module)
        return model(idx)[0].float(), torch.stack(given)
    finally:
        for module in norms:
            module.__dict__.pop("forward", None)


def next_token_loss(logits, idx):
    """Mean cross-entropy in nats of logits [T, V] on the tokens that follow in idx [1, T]."""
    return torch.nn.functional.cross_entropy(logits[:-1], idx[0, 1:]).item()


def careless(dtype):
    """norm(x, weight, eps) that squares, averages and multiplies in `dtype`: no upcast."""

    def norm(x, weight, eps):
        y = x.to(dtype)
        return (y * (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight.to(dtype)).to(x.dtype)

    return norm


@torch.no_grad()
def centre_writers(gpt):
    """Take the mean over the stream's features out of all that a GPT2LM adds to its stream. In place; the head must be untied."""
    for table in (gpt.emb.weight, gpt.pos.weight):
        table -= table.mean(-1, keepdim=True)
    for block in gpt.blocks:
        for last in (block.attn.wo, block.ffn.w_down):  # rows are features of the stream
            last.weight -= last.weight.mean(0)
            last.bias -= last.bias.mean()


@torch.no_grad()
def random_gpt():
    """A GPT2LM in float64, untied, every gain, shift and bias random: (model, token ids [2, 15])."""
    from lib import GPT2LM

    g = torch.Generator().manual_seed(8)
    gpt = GPT2LM(V=50, d=32, n_layers=3, n_heads=4, max_len=20, tie=False).double()
    for p in gpt.parameters():
        p.copy_(0.3 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return gpt, torch.randint(0, 50, (2, 15), generator=g)


@torch.no_grad()
def with_rms_norms(gpt, idx):
    """Logits of a GPT2LM whose LayerNorms do not subtract the mean: RMSNorm, then the shift."""
    from lib import LayerNorm, rms_norm

    def forward(module, x):
        return rms_norm(x, module.weight, module.eps) + module.bias

    norms = [m for m in gpt.modules() if isinstance(m, LayerNorm)]
    try:
        for m in norms:
            m.forward = forward.__get__(m)
        return gpt(idx)
    finally:
        for m in norms:
            m.__dict__.pop("forward", None)


@torch.no_grad()
def fold_gains(model, fold):
    """fold(W, gain) for each matrix behind a norm of a model's blocks, and gains of 1 left. In place."""
    for block in model.blocks:
        readers = {
            block.attn_norm: (block.attn.wq, block.attn.wk, block.attn.wv),
            block.ffn_norm: (block.ffn.w_gate, block.ffn.w_up),
        }
        for norm, matrices in readers.items():
            for matrix in matrices:
                matrix.weight.copy_(fold(matrix.weight, norm.weight))
            norm.weight.fill_(1)


def gradcheck_norm(backward, x, weight):
    """torch's gradcheck of backward(x, weight, eps, upstream) against finite differences of lib's RMSNorm, in float64."""
    from lib import rms_norm

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return rms_norm(x, weight, eps=1e-9)

        @staticmethod
        def backward(ctx, upstream):
            return backward(*ctx.saved_tensors, 1e-9, upstream), None

    return torch.autograd.gradcheck(Norm.apply, (x.clone().requires_grad_(), weight))


# ---- a model served in pieces, by a step that keeps its own cache (chapter 05's exercise)


def served(model, idx, step, sizes, after=None):
    """Logits [T, V] of a text that `step` (the function of exercise 05.step) is fed in chunks. after: called on the caches per chunk."""
    table = lib.rope_cache(idx.shape[1], 64, 100_000.0)
    caches, outs, pad = [{} for _ in model.blocks], [], torch.zeros(1, dtype=torch.int64)

    def turn(x, start):
        return lib.apply_rope(x, *(t[start : start + x.shape[-2]] for t in table))

    with torch.no_grad():
        for chunk in idx.split(sizes, dim=1):
            x = model.emb(chunk)
            for block, cache in zip(model.blocks, caches, strict=True):
                y, a = block.attn_norm(x), block.attn
                q, k, v = (w(y).unflatten(-1, (-1, 64)).transpose(1, 2) for w in (a.wq, a.wk, a.wv))
                x = x + a.wo(step(q, k, v, cache, turn, None, pad).transpose(1, 2).flatten(2))
                x = x + block.ffn(block.ffn_norm(x))
            outs.append(model.head(model.norm(x))[0])
            for cache in caches if after else ():
                after(cache)
    return torch.cat(outs)


def rounded(x, bits, axis):
    """x in 2**bits levels between the least and the largest entry along an axis: of each token (-1), or of each channel (-2)."""
    low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    grain = (high - low) / (2**bits - 1)
    return ((x - low) / grain).round() * grain + low


def share_left(w, n_kv, turned=False):
    """How much of the squared weights is left when n_kv heads are replaced by their mean: 1/n_kv for unrelated ones, 1 for equal ones.

    turned: each head is first rotated, within its own space, to lie as close to the others as it can.
    """
    heads = w.unflatten(0, (n_kv, -1)).clone()  # [n_kv, dh, d]
    for i in [*range(n_kv)] * (30 if turned else 0):
        u, _, vt = torch.linalg.svd((heads.sum(0) - heads[i]) @ heads[i].T)
        heads[i] = u @ vt @ heads[i]
    return (n_kv * heads.mean(0).square().sum() / heads.square().sum()).item()


def start_gradients(place, layers, scaled=False, seed=0, d=128):
    """Norms of the loss's gradient by W_down of each layer before the first step: a list of `layers` numbers.

    place: "before" (pre-norm, with one norm at the end) or "after" (each sum normalised, as in 2017). The blocks are lib's attention
    and SwiGLU with random weights that keep the size of what goes in; scaled: W_o and W_down divided by sqrt(2 layers), as GPT-2 starts.
    The text is the book's corpus, 4 windows of 64 bytes.
    """
    from book.corpus import load_corpus
    from lib import apply_rope, attend, rms_norm, rope_cache, swiglu

    g, dh, d_ff = torch.Generator().manual_seed(seed), d // 4, 8 * d // 3

    def draw(rows, columns, size=1.0):
        return (torch.randn(rows, columns, generator=g) * size * columns**-0.5).requires_grad_()

    small = (2 * layers) ** -0.5 if scaled else 1.0
    rows = {"wq": d, "wk": d, "wv": d, "w_gate": d_ff, "w_up": d_ff}
    blocks = [
        {name: draw(n, d) for name, n in rows.items()}
        | {"wo": draw(d, d, small), "w_down": draw(d, d_ff, small)}
        for _ in range(layers)
    ]
    ids = torch.tensor(list(load_corpus()[1000 : 1000 + 4 * 65])).view(4, 65)
    x, cos_sin = torch.randn(256, d, generator=g)[ids[:, :-1]], rope_cache(64, dh, 1e4)

    def attention(x, w):
        q, k, v = ((x @ w[n].T).unflatten(-1, (-1, dh)).transpose(1, 2) for n in ("wq", "wk", "wv"))
        return (
            attend(apply_rope(q, *cos_sin), apply_rope(k, *cos_sin), v).transpose(1, 2).flatten(2) @ w["wo"].T
        )

    with torch.enable_grad():
        for w in blocks:
            for part in (attention, lambda x, w: swiglu(x, w["w_gate"], w["w_up"], w["w_down"])):
                x = x + part(rms_norm(x), w) if place == "before" else rms_norm(x + part(x, w))
        x = rms_norm(x) if place == "before" else x
        logits = x @ draw(256, d).T
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    return [w["w_down"].grad.norm().item() for w in blocks]


@torch.no_grad()
def unrotated(model, ids, layer, learned=True):
    """Queries and keys [heads, B, T, dh] of a block on real text, before RoPE turns them; each query head with its group's keys.

    learned=False: W_q and W_k are random, their row norms kept (the inputs are those of the trained model).
    """
    x, T = model.emb(ids), ids.shape[1]
    cos, sin = lib.rope_cache(T, 64, 100_000.0)
    for block in model.blocks[:layer]:
        x = block(x, cos, sin)
    block = model.blocks[layer]
    x, a, pair = block.attn_norm(x), block.attn, []
    for seed, w in enumerate((a.wq.weight, a.wk.weight)):
        w = w if learned else same_size(w, seed)
        pair.append((x @ w.T).unflatten(-1, (-1, 64)).movedim(2, 0))
    return pair[0], pair[1].repeat_interleave(3, 0)


def pair_sizes(q, k):
    """Share of |q_i||k_i| per frequency pair [heads, 32], over all tokens but the first (its key is a sink's)."""
    size = [x[:, :, 1:].unflatten(-1, (2, 32)).norm(dim=-2).mean((1, 2)) for x in (q, k)]
    return size[0] * size[1] / (size[0] * size[1]).sum(-1, keepdim=True)


def weight_back(q, k, back=1, stop=()):
    """A head's mean weight on the token `back` tokens back [heads]; the pairs in `stop` are not turned at all."""
    T = q.shape[-2]
    cos, sin = lib.rope_cache(T, 64, 100_000.0)
    cos[:, list(stop)], sin[:, list(stop)] = 1.0, 0.0
    s = lib.apply_rope(q, cos, sin) @ lib.apply_rope(k, cos, sin).transpose(-1, -2) / 8
    s = s.masked_fill(~lib.causal_mask(torch.arange(T), torch.arange(T)), -torch.inf)
    return s.softmax(-1).diagonal(-back, -2, -1).mean((1, 2))


@torch.no_grad()
def stream(model, ids, start=lambda layer: 0, added=0.0):
    """SmolLM2's stream [B, T, d] after its last block, with `added` [T, d] on its input.

    start(layer): the position that this layer gives the first token; None: it does not rotate.
    """
    x, T = model.emb(ids) + added, ids.shape[1]
    for layer, block in enumerate(model.blocks):
        first = start(layer)
        cos, sin = lib.rope_cache(T, 64, 100_000.0, start=first or 0)
        x = block(x, torch.ones_like(cos), torch.zeros_like(sin)) if first is None else block(x, cos, sin)
    return x


def kept_by(model, ids):
    """What attention stores of a text before RoPE, by layer: [(keys [tokens, n_kv dh], values [tokens, n_kv dh])], float64."""
    seen = []
    hooks = [
        block.attn.wk.register_forward_hook(lambda m, given, out: seen.append(given[0][0]))
        for block in model.blocks
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    return [
        tuple((x @ m.weight.T).double() for m in (b.attn.wk, b.attn.wv)) for x, b in zip(seen, model.blocks)
    ]


def narrowed(model, kept, rank, which, random=False):
    """Puts keys, values or both through `rank` numbers per token, in every layer, in place; -> the share of their squares that is kept.

    which: "keys", "values" or "both" (scaled to one size, then narrowed together). The subspace is that of the largest squares over
    `kept` (see kept_by), or a random one: the control. The model must have its own weights: each call starts from what is there.
    """
    shares = []
    for i, (block, (k, v)) in enumerate(zip(model.blocks, kept)):
        parts = {"keys": [(block.attn.wk, k)], "values": [(block.attn.wv, v)]}.get(which)
        parts = parts or [(block.attn.wk, k), (block.attn.wv, v)]
        scale = torch.cat([torch.full((x.shape[1],), 1 / x.norm().item(), dtype=x.dtype) for _, x in parts])
        x = torch.cat([x for _, x in parts], 1) * scale
        if random:
            draw = torch.randn(len(scale), rank, dtype=x.dtype, generator=torch.Generator().manual_seed(i))
            basis = torch.linalg.qr(draw)[0]
        else:
            basis = torch.linalg.eigh(x.T @ x)[1][:, -rank:]
        through = basis @ basis.T
        shares.append(((x @ through).square().sum() / x.square().sum()).item())
        w = torch.cat([m.weight.detach().double() for m, _ in parts])
        w = ((through * scale) @ w) / scale[:, None]
        for (m, _), rows in zip(parts, w.split([m.out_features for m, _ in parts])):
            m.weight.data[:] = rows
    return sum(shares) / len(shares)
