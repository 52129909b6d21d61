"""The whole model: blocks of attention and feed-forward around a residual stream, built from a ModelConfig."""

import torch
from torch import nn

from lib.attention import GQAttention, causal_mask
from lib.cache import ModelCache, compute_dtype
from lib.checks import check_call, check_ids, refusals, refuse_unsupported
from lib.config import MLA, Layer, ModelConfig, Norm, llama_style
from lib.ffn import make_ffn
from lib.lengths import by_length, rows_by_length
from lib.mla import MLAttention
from lib.norms import make_norm
from lib.rope import rope_table


class Block(nn.Module):
    """x + attn(norm(x)), then x + ffn(norm(x)). The four norms: which of them exist is the layer's `norms`."""

    def __init__(self, d, n_heads, n_kv_heads, d_ff):
        super().__init__()
        self._build(d, llama_style(1, d, 1, n_heads, n_kv_heads, d_ff).layers[0], Norm())

    @classmethod
    def from_layer(cls, d, layer: Layer, norm=Norm()):
        """The block that a config.Layer describes. Raises: ValueError naming what the block does not run."""
        block = cls.__new__(cls)
        nn.Module.__init__(block)
        block._build(d, layer, norm)
        return block

    def _build(self, d, layer, norm):
        refused = refusals(layer)
        if refused:
            raise ValueError(f"the block does not run {', '.join(refused)}; `lib.arithmetic` counts it")
        pre, post = layer.norms in ("pre", "sandwich"), layer.norms in ("post", "sandwich")
        module = MLAttention if isinstance(layer.attention, MLA) else GQAttention
        self.attn_norm = make_norm(norm, d) if pre else nn.Identity()
        self.attn = module(d, **vars(layer.attention), norm=norm)
        self.attn_post_norm = make_norm(norm, d) if post else nn.Identity()
        self.ffn_norm = make_norm(norm, d) if pre else nn.Identity()
        self.ffn = make_ffn(layer.ffn, d)
        self.ffn_post_norm = make_norm(norm, d) if post else nn.Identity()

    def forward(self, x, cos=None, sin=None, cache=None, mask=None):
        x = x + self.attn_post_norm(self.attn(self.attn_norm(x), cos, sin, cache, mask))
        return x + self.ffn_post_norm(self.ffn(self.ffn_norm(x)))


class LlamaStyleLM(nn.Module):
    """Token ids [B, T] -> logits [B, T, V]. `model.config` is the ModelConfig it was built from."""

    def __init__(
        self,
        V,
        d=256,
        n_layers=4,
        n_heads=8,
        n_kv_heads=2,
        d_ff=688,
        max_len=1024,
        rope_base=10000.0,
        tie=False,
        **fields,
    ):
        super().__init__()
        self._build(llama_style(V, d, n_layers, n_heads, n_kv_heads, d_ff, max_len, rope_base, tie, **fields))

    @classmethod
    def from_config(cls, config: ModelConfig, device=None, dtype=None):
        """The model that a config describes, with random weights. device "meta" allocates nothing.

        Raises: ValueError naming each feature that the block does not run (it is counted, not run).
        """
        refuse_unsupported(config)
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        with torch.device(device or "cpu"):
            model._build(config)
        return model if dtype is None else model.to(dtype)

    def _build(self, config):
        self.config = config
        self.emb = nn.Embedding(config.V, config.d)
        self.blocks = nn.ModuleList(Block.from_layer(config.d, layer, config.norm) for layer in config.layers)
        self.norm = make_norm(config.norm, config.d)
        self.head = nn.Linear(config.d, config.V, bias=False)
        if config.tied:
            self.head.weight = self.emb.weight  # one storage, two jobs
        self._tables = {}  # not buffers: model.to(bfloat16) would round them

    def new_cache(self, batch=1, max_len=None, text=0):
        """An empty cache for `batch` rows of at most max_len tokens (None = the model's own max_len).

        text: tokens that are sure to come, where a prompt is fed in parts. Only RoPE that depends on the length of the text
        (dynamic, longrope) asks: see `lib.lengths`.
        """
        max_len = self.config.max_len if max_len is None else max_len
        if max_len > self.config.max_len:
            raise ValueError(f"a cache of {max_len} tokens: this model's max_len is {self.config.max_len}")
        if not 0 <= text <= max_len:
            raise ValueError(
                f"text = {text}: expected how many tokens are sure to come, 0 to max_len = {max_len}"
            )
        weight = self.emb.weight
        return ModelCache(self.config, batch, max_len, compute_dtype(weight), weight.device, text)

    def forward(self, idx, cache=None, pad=None, last=False):
        """idx int [B, T] -> logits [B, T, V]; last: only the last token's, [B, 1, V] (a prefill wants no others).

        cache: continues after the tokens in it. pad: int [B], how many tokens at the left of each row are padding;
        given with the first call, the cache remembers it.
        Raises: ValueError for ids that are not [B, T] integers, a batch unlike the cache's, or more than max_len tokens.
        """
        check_ids(idx)
        call = check_call(self, idx, cache, pad)
        columns = torch.arange(call.start, call.start + idx.shape[1], device=idx.device)
        x = self.emb(idx)  # [B, T, d]; no position is added: RoPE turns q and k
        if self.config.embed_scale != 1.0:
            x = x * torch.tensor(self.config.embed_scale, dtype=x.dtype, device=x.device)
        masks, rows = {}, {}
        for i, (block, layer) in enumerate(zip(self.blocks, self.config.layers)):
            kv = cache.layers[i] if cache is not None else None
            window = getattr(layer.attention, "window", None)
            if window not in masks:
                masks[window] = self._mask(columns, kv, window, call.pad)
            if layer.attention not in rows:
                rows[layer.attention] = self._rows(layer.attention, columns, call)
            x = block(x, *rows[layer.attention], kv, masks[window])
        return self.head(self.norm(x[:, -1:] if last else x))  # [B, T, V]

    def _mask(self, columns, kv, window, pad):
        """None where plain causal attention, aligned to the end, is right."""
        keys = columns if kv is None else kv.columns(len(columns), columns.device)
        if pad is None and (window is None or len(columns) == 1):
            return None  # a window layer's cache holds nothing that a single query may not see
        return causal_mask(columns, keys, window, pad)

    def _rows(self, attention, columns, call):
        """The table rows of this call's positions, [T, r/2], or [B, 1, T, r/2] where rows are padded differently."""
        rope, pad = attention.rope, call.pad
        if rope is None:
            return None, None
        width = attention.qk_rope_head_dim if isinstance(attention, MLA) else attention.head_dim
        if by_length(rope):
            return rows_by_length(rope, rope.rotary_dim or width, columns, call)
        key = (rope, width, columns.device)
        end = call.start + len(columns) if columns.device.type == "cpu" else self.config.max_len
        if key not in self._tables or len(self._tables[key][0]) < end:
            rows = min(self.config.max_len, max(256, 1 << (end - 1).bit_length()))
            self._tables[key] = rope_table(rope, width, rows, device=columns.device)
        cos, sin = self._tables[key]
        if pad is None:
            return cos[columns], sin[columns]  # [T, r/2]
        positions = (columns - pad[:, None]).clamp(min=0)  # a row counts from its first real token; [B, T]
        return cos[positions][:, None], sin[positions][:, None]  # [B, 1, T, r/2]
