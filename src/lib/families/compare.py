"""Two configurations side by side: python -m lib describe --compare A B."""

import textwrap
from itertools import zip_longest

from .. import arithmetic as a
from .describe import block_rows
from .implied import BANDWIDTH, Facts, added, cache_kinds, lengths, not_run


def _facts(cfg, tokens, batch, bandwidth, gpus):
    """Label -> lines, for the comparison: what the page says, short."""
    f, p = Facts(cfg), a.parameters(cfg)
    kinds, at = cache_kinds(cfg, tokens, batch, gpus), lengths(tokens)
    together, each = added(kinds, "bytes_at"), added(kinds, "bytes_at_per_gpu")
    rows = {"model_type": [cfg.model_type], "layers": [f"{cfg.n_layers}"], "d, V": [f"{cfg.d:,}, {cfg.V:,}"]}
    rows |= {label: texts for label, texts, _ in block_rows(f)}
    rows["parameters"] = [f"{p.total:,} ({a.format_count(p.total)})"]
    rows["active"] = [f"{p.active:,} ({a.format_count(p.active)})"]
    rows["cached"] = [f"{x['kind']}, {x['formula']}" for x in kinds] or ["nothing"]
    rows["per token"] = [
        f"{a.kv_elements_per_token(cfg):,} elements, {a.format_bytes(a.kv_bytes_per_token(cfg))}"
    ]
    for i, t in enumerate(at):
        rows[f"at {t:,}"] = [a.format_bytes(together[i]) if kinds else "0 B"]
    for i, t in enumerate(at):
        rows[f"at {t:,}, each of {gpus} GPUs"] = [
            a.format_bytes(each[i]) if each else "heads do not divide" if kinds else "0 B"
        ]
    step = a.decode_seconds(cfg, tokens, bandwidth, batch)
    rows[f"a step at {tokens:,}"] = [
        f"{a.format_bytes(a.decode_bytes(cfg, tokens, batch))} read, not below {1000 * step:.3g} ms"
    ]
    rows["this book's block"] = [f"does not run {name}" for name in not_run(cfg)] or ["runs it"]
    rows["read with care"] = list(cfg.warnings) or ["nothing"]
    return rows


def side_by_side(configs, tokens=131072, batch=1, bandwidth=BANDWIDTH, names=("A", "B"), gpus=8):
    """Two configurations, label by label; `=` marks what is the same in both."""
    left, right = (_facts(cfg, tokens, batch, bandwidth, gpus) for cfg in configs)
    width, column = max(map(len, left)), 52
    lines = [f"  {'':<{width}}    {names[0]:<{column}}  {names[1]}".rstrip()]
    for label, ours in left.items():
        mark = "=" if ours == right[label] else " "
        cells = [
            [line for text in texts for line in textwrap.wrap(text, column)] for texts in (ours, right[label])
        ]
        for i, (one, other) in enumerate(zip_longest(*cells, fillvalue="")):
            head = f"  {label:<{width}}  {mark}" if i == 0 else f"  {'':<{width}}   "
            lines.append(f"{head} {one:<{column}}  {other}".rstrip())
    who = "one sequence" if batch == 1 else f"{batch} sequences"
    return "\n".join([*lines, "", f"  cache of {who}, in bf16; = the same in both"])
