"""What decoding keeps: keys and values (KVCache) or one latent and one rope key a token (LatentCache). Preallocated.

Positions are COLUMNS: column j is the j-th token ever fed, left padding included. A window layer keeps its last `window`
columns in a ring and remembers which column each slot holds, so that the mask never depends on the order of the slots.
"""

import torch

from lib.config import MLA, ModelConfig


def compute_dtype(weight):
    """The dtype that a Linear of these weights gives: autocast's inside torch.autocast (which leaves float64 alone)."""
    kind = weight.device.type
    mixed = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if mixed and weight.dtype != torch.float64 else weight.dtype


class _Cache:
    """Slots for tokens along one axis of its tensors. slots < max_len only in a window layer (then it is a ring)."""

    def __init__(self, batch, max_len, window=None):
        for name, size in (("batch", batch), ("max_len", max_len)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"cache {name} = {size!r}: expected a whole number of at least 1")
        self.batch, self.max_len, self.window = batch, max_len, window
        self.slots = min(window, max_len) if window else max_len
        self.length = 0  # columns ever fed
        self.tensors = ()  # each [B, .., slots, width]

    def columns(self, T, device=None):
        """The column of every key that `append` of T tokens returns, oldest first or in ring order: int64 [S]."""
        new = torch.arange(self.length, self.length + T, device=device)
        if self.window is None:
            return torch.arange(self.length + T, device=device)
        if T == 1:  # the ring after writing: slot s holds the newest column congruent to s
            slot = torch.arange(min(self.length + 1, self.slots), device=device)
            return self.length - (self.length - slot) % self.slots
        held = torch.arange(min(self.length, self.slots), device=device)
        return torch.cat([self.length - 1 - (self.length - 1 - held) % self.slots, new])

    def append(self, *new):
        """Store T new tokens, return everything that their queries may look at: past and new, in `columns` order.

        Raises: ValueError if a shape or dtype differs from the cache's, or if the tokens do not fit.
        """
        T = new[0].shape[-2]
        for held, x in zip(self.tensors, new, strict=True):
            if x.dtype != held.dtype:
                raise ValueError(
                    f"cache holds {held.dtype}, the new tokens are {x.dtype}: make the cache in the model's dtype, and inside"
                    " torch.autocast if the calls are"
                )
            if x.shape[:-2] + x.shape[-1:] != held.shape[:-2] + held.shape[-1:]:
                raise ValueError(
                    f"cache holds {list(held.shape)}, the new tokens are {list(x.shape)}: all but the token axis must agree"
                )
        if self.length + T > self.max_len:
            raise ValueError(
                f"cache of {self.max_len} tokens holds {self.length} and {T} more came: {self.length + T} rows are needed;"
                " make the cache longer (max_len)"
            )
        seen = self._write_ring(new, T) if self.window else self._write(new, T)
        self.length += T
        return seen

    def _write(self, new, T):
        for held, x in zip(self.tensors, new):
            held[..., self.length : self.length + T, :] = x
        return tuple(held[..., : self.length + T, :] for held in self.tensors)

    def _write_ring(self, new, T):
        kept = min(self.length, self.slots)
        seen = (
            None
            if T == 1
            else tuple(torch.cat([h[..., :kept, :], x], dim=-2) for h, x in zip(self.tensors, new))
        )
        last = min(T, self.slots)  # of a long chunk only the last `window` tokens stay
        slot = torch.arange(self.length + T - last, self.length + T, device=new[0].device) % self.slots
        for held, x in zip(self.tensors, new):
            held[..., slot, :] = x[..., T - last :, :]
        return seen or tuple(h[..., : min(self.length + 1, self.slots), :] for h in self.tensors)

    @property
    def held(self):
        """Tokens whose numbers are kept now: the length, or at most the window."""
        return min(self.length, self.slots)

    @property
    def nbytes(self):
        """Bytes of the tokens held now."""
        return sum(t[..., : self.held, :].numel() * t.element_size() for t in self.tensors)

    @property
    def allocated_nbytes(self):
        """Bytes set aside for max_len tokens (or for one window)."""
        return sum(t.numel() * t.element_size() for t in self.tensors)


class KVCache(_Cache):
    """Keys [B, n_kv, slots, dh] (rotated) and values [B, n_kv, slots, d_v] of one layer."""

    def __init__(
        self, batch, max_len, n_kv_heads, head_dim, v_head_dim=None, window=None, dtype=None, device=None
    ):
        super().__init__(batch, max_len, window)
        self.k = torch.empty(batch, n_kv_heads, self.slots, head_dim, dtype=dtype, device=device)
        self.v = torch.empty(
            batch, n_kv_heads, self.slots, v_head_dim or head_dim, dtype=dtype, device=device
        )
        self.tensors = (self.k, self.v)


class LatentCache(_Cache):
    """MLA's cache of one layer: per token the normalised latent (d_c) and the rotated shared key (d_R), side by side.

    One tensor [B, slots, d_c + d_R], so that the absorbed form reads it as one wide key without a copy.
    """

    def __init__(self, batch, max_len, kv_lora_rank, qk_rope_head_dim, dtype=None, device=None):
        super().__init__(batch, max_len)
        self.latent = torch.empty(
            batch, self.slots, kv_lora_rank + qk_rope_head_dim, dtype=dtype, device=device
        )
        self.tensors = (self.latent,)


class ModelCache:
    """One cache a layer, the left padding of each row, and how many tokens of text were announced (see `lib.lengths`).

    `model.new_cache(batch, max_len)` makes it.
    """

    def __init__(self, config: ModelConfig, batch, max_len, dtype=None, device=None, text=0):
        self.batch, self.max_len, self.pad, self.text = batch, max_len, None, text
        self.layers = [self._layer(layer.attention, dtype, device) for layer in config.layers]

    def _layer(self, attention, dtype, device):
        if isinstance(attention, MLA):
            return LatentCache(
                self.batch, self.max_len, attention.kv_lora_rank, attention.qk_rope_head_dim, dtype, device
            )
        a = attention
        return KVCache(
            self.batch, self.max_len, a.n_kv_heads, a.head_dim, a.v_head_dim, a.window, dtype, device
        )

    @property
    def length(self):
        """Tokens fed so far: the LAST layer's count, which moves only when a whole step is done."""
        return self.layers[-1].length

    def restart(self, text):
        """Empty, for a text of so many tokens: they are to be encoded again."""
        self.pad, self.text = None, text
        for layer in self.layers:
            layer.length = 0

    @property
    def nbytes(self):
        return sum(layer.nbytes for layer in self.layers)

    @property
    def allocated_nbytes(self):
        return sum(layer.allocated_nbytes for layer in self.layers)
