"""Decode steps whose position is a number in memory and not in Python: the same operations on the same memory at every position.

So a step can be recorded once and replayed for a whole text, on CUDA as a graph: one launch a step instead of hundreds.
"""

from functools import partial

import torch

from lib.attention import causal_mask
from lib.checks import check_call, check_ids
from lib.lengths import by_length
from lib.rope import rope_table


def _write(kv, slot, *new):
    """Stores one token in the slot [1] of each tensor and returns all slots, written or not."""
    return [held.index_copy_(-2, slot, x) for held, x in zip(kv.tensors, new)]


class StaticDecode:
    """One text's steps on a cache of fixed size: static(idx [B, 1]) -> logits [B, 1, V], `fast`'s own. The cache moves on by one.

    Every step reads all slots of the cache, masked by comparison, so make the cache no longer than the text. It is made for the
    cache's padding; a prefill and plain steps may come between its steps. The logits are overwritten by the next step.
    fast: a `lib.fast_decode(model)`, on the CPU or CUDA.
    Raises: ValueError for RoPE that follows the length of the text (dynamic, longrope), and as the plain model for a bad call.
    """

    def __init__(self, fast, cache):
        device, attentions = fast.emb.weight.device, {layer.attention for layer in fast.config.layers}
        if any(by_length(a.rope) for a in attentions):
            raise ValueError(
                "StaticDecode has one table for the whole text, and this model's RoPE follows the length of the text: decode with `fast`"
            )
        self.fast, self.cache, self.pad, self.graph = fast, cache, cache.pad, None
        self.idx = torch.zeros(cache.batch, 1, dtype=torch.int64, device=device)
        self.at = torch.full((1,), cache.length, device=device)  # the column of idx
        self.whole = {
            a: rope_table(a.rope, a.head_dim, cache.max_len, device=device) for a in attentions if a.rope
        }
        for kv in cache.layers:
            for x in kv.tensors:  # memory never written may hold NaN, and 0 * NaN is NaN
                x.narrow(-2, kv.held, kv.slots - kv.held).zero_()

    def step(self):
        """What is recorded: idx and at in, the token's slots written, logits out."""
        masks, appends = {}, []
        for layer, kv in zip(self.fast.config.layers, self.cache.layers):
            appends.append(partial(_write, kv, self.at % kv.slots))
            window = layer.attention.window
            if window not in masks:
                masks[window] = self._mask(kv.slots)
        tables = {layer.attention: (None, None) for layer in self.fast.config.layers}
        tables |= {a: self._rows(*table) for a, table in self.whole.items()}
        return self.fast.through(self.idx, tables, masks, appends)

    def _mask(self, slots):
        """True for a slot that has been written. It holds the newest column, up to this one, that is its number modulo `slots`."""
        slot = torch.arange(slots, device=self.at.device)
        columns = self.at - (self.at - slot) % slots  # [S], below zero where nothing has come yet
        return causal_mask(self.at, columns, None, self.pad) & (columns >= 0)

    def _rows(self, cos, sin):
        position = self.at if self.pad is None else (self.at - self.pad).clamp(min=0)  # [1] or [B]
        rows = [table.index_select(0, position) for table in (cos, sin)]
        return rows if self.pad is None else [row[:, None, None] for row in rows]  # [B, 1, 1, r/2]

    @torch.no_grad()
    def capture(self):
        """Records the step as a CUDA graph, which every later call replays. -> self

        Recording runs the step at the cache's next column, which the next call writes again.
        Raises: ValueError away from CUDA, or for a cache without room for a step.
        """
        if self.at.device.type != "cuda":
            raise ValueError(f"a graph is captured on CUDA, and this model is on {self.at.device}")
        if self.cache.length == self.cache.max_len:
            raise ValueError(
                f"the cache of {self.cache.max_len} tokens is full: capture before its last step"
            )
        self.at.fill_(self.cache.length)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries make their workspaces outside the graph
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.step()
        return self

    @torch.no_grad()
    def __call__(self, idx):
        check_ids(idx)
        if idx.shape[1] != 1:
            raise ValueError(
                f"{idx.shape[1]} tokens a row: a step takes one; feed a prompt to the model itself"
            )
        call = check_call(self.fast.plain, idx, self.cache, None)
        if call.pad is not self.pad:
            raise ValueError(
                "the cache has other left padding than when these steps were made: make them after the prefill"
            )
        self.idx.copy_(idx)
        self.at.fill_(call.start)
        if self.graph is None:
            self.logits = self.step()
        else:
            self.graph.replay()
        for kv in self.cache.layers:
            kv.length += 1
        return self.logits
