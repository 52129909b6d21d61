"""Bytes and FLOPs of the block, op by op. Plain integers, no torch; `counting` finds the bytes of the kernels equal to these.

An op reads its inputs from memory and writes its outputs; weights are inputs. fused=False: each step that the pure functions
write is an op of its own, as PyTorch runs them one by one; fused=True: the kernels of this folder. size: bytes per number, 2 for
bfloat16. Work in float32 inside an unfused op counts with 4 bytes: that is what PyTorch writes to memory between two steps.
"""

from dataclasses import dataclass

from lib.config import GQA, Dense


@dataclass(frozen=True)
class Op:
    """FLOPs and bytes moved; intensity in FLOPs per byte."""

    name: str
    flops: int
    bytes: int

    @property
    def intensity(self):
        return self.flops / self.bytes

    def seconds(self, card):
        """Least seconds on a card: the larger of FLOPs over its rate and bytes over its bandwidth."""
        return max(self.flops / card.flops, self.bytes / card.bandwidth)


def norm_bytes(rows, d, size=2, fused=True, residual=False):
    """RMSNorm of [rows, d], in bytes. Fused: x in, y out, the gain in each row (residual: two in, the sum and y out).

    Unfused, the steps of `lib.rms_norm`: to float32, square, mean, add eps, root, multiply, cast, times the gain; the sum before.
    """
    n = rows * d
    if fused:
        return size * n * (5 if residual else 3)
    add = 3 * size * n if residual else 0
    statistics = (8 * n) + (4 * n + 4 * rows) + 8 * rows + 8 * rows
    return add + (size + 4) * n + statistics + (8 * n + 4 * rows) + (4 + size) * n + size * (2 * n + d)


def silu_mul_bytes(rows, d_ff, size=2, fused=True):
    """silu(gate) * up, in bytes. Fused: two in, one out. Unfused: silu(gate) is written and read again."""
    return size * rows * d_ff * (3 if fused else 5)


def rope_bytes(rows, heads, dh, size=2, fused=True):
    """RoPE over whole heads of [rows, heads, dh], one table row per token, in bytes; the kernel's heads fit one program
    (heads * dh / 2 at most 4,096).

    Unfused, the steps of `lib.apply_rope`: to float32, four products of halves, a difference, a sum, joined, cast.
    """
    n, table = rows * heads * dh, 4 * rows * dh // 2
    if fused:
        return 2 * size * n + 2 * table
    return (size + 4) * n + 4 * (4 * n + table) + 2 * 6 * n + 8 * n + (4 + size) * n


def attention_bytes(rows, a, keys, size=2, fused=True):
    """One query per row against `keys` keys, in bytes: q, K, V in, the result out. Unfused: the scores are written and read, the
    weights too (all in `size`, and K and V never repeated: the kindest way to do it in three steps)."""
    ends = rows * size * (a.n_heads * (a.head_dim + a.d_v) + keys * a.n_kv_heads * (a.head_dim + a.d_v))
    return ends if fused else ends + 4 * rows * size * a.n_heads * keys


def decode_kernel_bytes(batch, heads, kv_heads, keys, dh, d_v, parts, rows, size=2, shared=False):
    """{argument: bytes} of both passes of the decode kernels: per block of `rows` query heads every key and value once.

    shared=True: the latent kernel, where kv_heads is 1 and the d_v numbers of the value are the first of the dh of the key.
    """
    blocks = -(-(heads // kv_heads) // rows)
    left = 4 * batch * heads * parts
    moved = {"Q": batch * heads * dh * parts * size, "Y": batch * heads * d_v * size, "PART": 2 * left * d_v}
    moved["BEST"] = moved["TOTAL"] = left * (1 + -(-d_v // 128))
    read = batch * kv_heads * blocks * keys * size
    return moved | ({"LATENT": read * dh} if shared else {"K": read * dh, "V": read * d_v})


def latent_intensity(heads, c, r, keys, rows, size=2):
    """FLOPs per byte of latents that the kernel asks for, with `rows` query heads per program: more heads, more work per read."""
    return 2 * heads * keys * (2 * c + r) / (-(-heads // rows) * keys * (c + r) * size)


def block_ops(d, layer, batch=1, context=0, size=2, fused=True):
    """[Op] of one decode step of one layer: `batch` sequences, each with `context` tokens before this one.

    Raises: ValueError for a layer that is not RMSNorm before GQA without QK-norm, and before a gated feed-forward layer.
    """
    a, f = layer.attention, layer.ffn
    plain = isinstance(a, GQA) and isinstance(f, Dense) and f.gated and layer.norms == "pre"
    if not plain or a.qk_norm or a.rope is None:
        raise ValueError(
            "block_ops counts a pre-norm layer of GQA with RoPE, without QK-norm, and a gated feed-forward layer"
        )
    q, kv = a.n_heads * a.head_dim, a.n_kv_heads * (a.head_dim + a.d_v)
    keys = min(context + 1, a.window) if a.window else context + 1

    def matrix(name, inside, out):
        return Op(name, 2 * batch * inside * out, size * (inside * out + batch * (inside + out)))

    def norm(name):
        if fused:
            return [Op(f"add + {name}", 5 * batch * d, norm_bytes(batch, d, size, True, True))]
        add = Op("add", batch * d, 3 * size * batch * d)
        return [add, Op(name, 4 * batch * d, norm_bytes(batch, d, size, False))]

    rope = sum(rope_bytes(batch, n, a.head_dim, size, fused) for n in (a.n_heads, a.n_kv_heads))
    turned = batch * a.head_dim * (a.n_heads + a.n_kv_heads)
    scores = 2 * batch * a.n_heads * keys * (a.head_dim + a.d_v)
    return [
        *norm("attention norm"),
        matrix("q, k, v", d, q + kv),
        Op("RoPE", 3 * turned, rope),
        Op("into the cache", 0, 2 * size * batch * kv),
        Op("attention", scores, attention_bytes(batch, a, keys, size, fused)),
        matrix("output", a.n_heads * a.d_v, d),
        *norm("feed-forward norm"),
        matrix("gate, up", d, 2 * f.d_ff),
        Op("silu x up", 5 * batch * f.d_ff, silu_mul_bytes(batch, f.d_ff, size, fused)),
        matrix("down", f.d_ff, d),
    ]
