"""Text from a model: prefill, then one token a step against the cache. Greedy or sampled, one row or many."""

import torch

from lib.checks import check_ids
from lib.lengths import padding, trained_lengths

# SmolLM2's chat template, as its own file states it (tokenizer.chat_template).
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
PREFILL_TOKENS = 4096  # of all rows together in one call
COLDEST = 1e-6  # below it, logits / temperature can overflow


def chat_prompt(text, system=None):
    """One user turn in SmolLM2's chat template, up to where the assistant speaks. system None = the template's own."""
    turns = (("system", SYSTEM if system is None else system), ("user", text))
    return (
        "".join(f"{TURN_START}{role}\n{said}{TURN_END}\n" for role, said in turns)
        + f"{TURN_START}assistant\n"
    )


def left_pad(rows, fill=0):
    """Prompts of different lengths -> idx [B, T] and pad [B], for `generate(model, idx, n, pad=pad)`."""
    if not rows or not all(len(row) for row in rows):
        raise ValueError(
            f"{len(rows)} prompts, the shortest of {min(map(len, rows), default=0)} tokens: expected at least one token each"
        )
    T = max(len(row) for row in rows)
    pad = [T - len(row) for row in rows]
    return torch.tensor([[fill] * n + list(row) for n, row in zip(pad, rows)]), torch.tensor(pad)


def sample(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    """One token id a row: argmax at temperature 0, else a draw from softmax(logits / temperature), perhaps cut.

    Shapes: logits [B, V] -> [B]
    top_k keeps the k likeliest tokens; top_p the likeliest whose probabilities add up to at least p (the one that reaches p too).
    """
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.float() / temperature
    if top_p is not None and top_p < 1:
        logits, ids = logits.topk(min(top_k or logits.shape[-1], logits.shape[-1]), dim=-1)  # likeliest first
        p = logits.softmax(-1)
        p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0)
        return ids.gather(-1, torch.multinomial(p, 1, generator=generator)).squeeze(-1)
    if top_k is not None and top_k < logits.shape[-1]:
        logits, ids = logits.topk(top_k, dim=-1)
        return ids.gather(-1, torch.multinomial(logits.softmax(-1), 1, generator=generator)).squeeze(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def generate(
    model,
    idx,
    max_new_tokens,
    temperature=0.0,
    top_k=None,
    top_p=None,
    seed=None,
    stop=(),
    stream=None,
    pad=None,
):
    """Continue each row of idx by max_new_tokens, or until every row has said a token of `stop`.

    Shapes: idx int [B, T] -> [B, T + n], n <= max_new_tokens. A row that stopped repeats its stop token.
    temperature 0 is greedy; top_k and top_p cut the draw (see `sample`); seed makes it repeatable.
    stream: called after each step with the list of B new ids. pad: int [B], left padding of each row (see `left_pad`).
    Raises: ValueError for a prompt and answer that exceed the model's max_len, or a setting out of range.
    """
    check_ids(idx)
    _check(model, idx, max_new_tokens, temperature, top_k, top_p, seed)
    _check_pad(pad, idx)
    (B, T), device = idx.shape, idx.device
    out = torch.empty(B, T + max_new_tokens, dtype=idx.dtype, device=device)
    out[:, :T] = idx
    if max_new_tokens == 0:
        return out
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    stops = torch.tensor(sorted(stop), dtype=idx.dtype, device=device) if stop else None
    done = torch.zeros(B, dtype=torch.bool, device=device)
    with torch.no_grad():
        cache = model.new_cache(B, T + max_new_tokens - 1, text=T)  # the last token is said and never fed
        turns = {trained + n for trained in trained_lengths(model.config) for n in padding(pad, B)}
        logits = _prefill(model, idx, cache, pad)
        for at in range(T, T + max_new_tokens):
            new = sample(logits, temperature, top_k, top_p, generator)
            if stops is not None:
                new = torch.where(done, out[:, at - 1], new)
                done |= torch.isin(new, stops)
            out[:, at] = new
            if stream is not None:
                stream(new.tolist())
            if (stops is not None and bool(done.all())) or at + 1 == out.shape[1]:
                return out[:, : at + 1]
            if at in turns:  # a row's text outgrows its table (dynamic, longrope): all is encoded again
                cache.restart(text=at + 1)
                logits = _prefill(model, out[:, : at + 1], cache, pad)
            else:
                logits = model(out[:, at : at + 1], cache)[:, -1]  # [B, V]


def _prefill(model, idx, cache, pad):
    """The last position's logits [B, V]; in chunks, so that a long prompt's activations and masks stay small."""
    chunk = max(1, PREFILL_TOKENS // idx.shape[0])
    for start in range(0, idx.shape[1], chunk):
        logits = model(idx[:, start : start + chunk], cache, pad if start == 0 else None, last=True)[:, -1]
    return logits


def _check(model, idx, max_new_tokens, temperature, top_k, top_p, seed):
    low, high = int(idx.min()), int(idx.max())
    if low < 0 or high >= model.config.V:
        raise ValueError(
            f"token ids from {low} to {high}: this model's vocabulary has {model.config.V}; another model's tokenizer?"
        )
    T, longest = idx.shape[1], model.config.max_len
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ValueError(f"max_new_tokens = {max_new_tokens!r}: expected a whole number of at least 0")
    if T > longest:
        raise ValueError(f"the prompt has {T} tokens and the model's max_len is {longest}: shorten it")
    if T + max_new_tokens > longest:
        raise ValueError(
            f"a prompt of {T} tokens and {max_new_tokens} new ones need {T + max_new_tokens} positions, max_len is {longest}:"
            f" ask for at most {longest - T}"
        )
    if temperature != 0 and not COLDEST <= temperature < float("inf"):
        raise ValueError(
            f"temperature = {temperature!r}: expected 0 (greedy) or a positive number from {COLDEST:g}"
        )
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k = {top_k!r}: expected a whole number of at least 1, or None")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p = {top_p!r}: expected a number above 0 and at most 1, or None")
    if seed is not None and not (isinstance(seed, int) and abs(seed) < 2**63):
        raise ValueError(f"seed = {seed!r}: expected a whole number below 2 ** 63, or None")


def _check_pad(pad, idx):
    B, T = idx.shape
    if pad is not None and (list(pad.shape) != [B] or int(pad.min()) < 0 or int(pad.max()) >= T):
        raise ValueError(
            f"pad {pad.tolist()}: expected one count a row, [{B}], from 0 to {T - 1}: each row has a real token"
        )
