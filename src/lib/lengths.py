"""Scalings that look at the length of the text (dynamic, longrope): for which length each row of a batch is turned.

Within the trained length every text has the short (or unscaled) table, whatever room its cache has. Beyond it one sequence
has one table, made for the length that was declared: the text itself without a cache, the cache's max_len with one. Keys
that were cached on the short table do not fit the other: `decoding.generate` encodes them again, a bare call refuses.
"""

from typing import NamedTuple

import torch

from lib.rope import rope_cache


class Call(NamedTuple):
    """Where one call of the model stands in its sequences, in columns (left padding included).

    start: columns in the cache before it; text: columns that the text has, this call's or more if more were announced;
    declared: columns that it may reach; pad: left padding of each row, int [B], or None.
    """

    start: int
    text: int
    declared: int
    pad: torch.Tensor | None


def by_length(rope):
    """Whether the table of a config.Rope depends on the length of the text."""
    return rope is not None and rope.scaling is not None and rope.scaling.kind in ("dynamic", "longrope")


def trained_lengths(config):
    """The text lengths past which a table of this model changes: a set, empty for most models."""
    ropes = [getattr(layer.attention, "rope", None) for layer in config.layers]
    return {rope.scaling.original_max_len for rope in ropes if by_length(rope)}


def padding(pad, batch):
    """The left padding of each row as plain numbers (on "meta" there are none to read: 0)."""
    return [0] * batch if pad is None or pad.is_meta else pad.tolist()


def rows_by_length(rope, width, columns, call):
    """cos, sin of a call's columns, each row turned for its own length: [T, r/2], or [B, 1, T, r/2] with padding."""

    def rows(skip):
        longer = call.text - skip > rope.scaling.original_max_len
        length, start = call.declared - skip if longer else None, call.start - skip
        return rope_cache(len(columns), width, rope.base, rope.scaling, start, length, columns.device)

    if call.pad is None:
        return rows(0)
    cos, sin = zip(*map(rows, padding(call.pad, len(call.pad))))
    return torch.stack(cos)[:, None], torch.stack(sin)[:, None]  # [B, 1, T, r/2]


def check_crossing(config, cache, call):
    """Raises: ValueError where a row has tokens in the cache on the short table and this call makes its text a long one."""
    for trained in trained_lengths(config) if call.start else ():
        for row, skip in enumerate(padding(call.pad, cache.batch)):
            before, after = max(call.start, cache.text) - skip, call.text - skip
            if call.start > skip and before <= trained < after:
                raise ValueError(
                    f"row {row} has {call.start - skip} tokens in the cache, turned as in a text of up to {trained}, and this call"
                    f" makes it {after}: one sequence has one table. `generate` encodes the tokens again; to feed a longer text in"
                    f" parts, say first how long it is: new_cache(batch, max_len, text={call.text})"
                )
