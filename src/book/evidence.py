"""Measurements that a claim and its control share: the same function on the real thing and on what should not show it.

tests/test_controls.py asserts that each claim of the book holds on the first and fails on the second.
"""

import torch


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


def excerpts(text, tokenizer, n=8, length=320, start=200_000, every=20_000):
    """n pieces of a text [n, length] as token ids, far apart, and the tokens as words."""
    pieces = [tokenizer.encode(text[start + i * every :][: 6 * length]).ids[:length] for i in range(n)]
    return torch.tensor(pieces), [[tokenizer.decode([i]) for i in piece] for piece in pieces]
