"""Bytes: what the kernels load and store in the interpreter against the formulas of lib.kernels.costs. About 5 s of one core."""

import pytest
import torch
from test_kernels import changed

from book.traffic import pytorch_bytes
from lib import apply_rope, rms_norm, rope_cache
from lib.arithmetic import flops_per_token
from lib.config import GQA, Dense, Layer, ModelConfig
from lib.kernels import cards, costs, decode, ffn, latent, norms, rope
from lib.kernels.counting import counting
from tolerances import assert_close

B, H, N_KV, S, DH, DV, C, R = 2, 20, 4, 37, 14, 10, 18, 6


def ran(launches):
    with counting() as traffic:
        for launch in launches:
            launch.run()
    both = {
        name: traffic.loaded.get(name, 0) + traffic.stored.get(name, 0)
        for name in {**traffic.loaded, **traffic.stored}
    }
    return both, traffic


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_pass_each(dtype):
    size = dtype.itemsize
    x, w = torch.randn(3, 5, 70).to(dtype), torch.randn(70).to(dtype)
    with counting() as traffic:
        norms.rms_norm(x, w)
    assert traffic.bytes == costs.norm_bytes(15, 70, size) and traffic.programs == 15
    assert traffic.loaded == {"X": 15 * 70 * size, "W": 15 * 70 * size} and traffic.stored == {
        "Y": 15 * 70 * size
    }
    with counting() as traffic:
        norms.add_rms_norm(x, x.clone(), w)
    assert traffic.bytes == costs.norm_bytes(15, 70, size, residual=True)
    with counting() as traffic:
        ffn.silu_mul(x, x.clone())
    assert traffic.bytes == costs.silu_mul_bytes(15, 70, size)
    with counting() as traffic:
        rope.apply_rope(x.view(3, 5, 7, 10).transpose(1, 2), *rope_cache(5, 10))
    assert traffic.bytes == costs.rope_bytes(15, 7, 10, size)


@pytest.mark.parametrize(("parts", "rows"), [(1, 16), (3, 16)])
def test_decode_reads_keys_and_values_once_per_kv_head(parts, rows):
    q, k, v = torch.randn(B, H, 1, DH), torch.randn(B, N_KV, S, DH), torch.randn(B, N_KV, S, DV)
    both, _ = ran(decode.plan(q, k, v, keys=16, parts=parts)[0])
    assert both == costs.decode_kernel_bytes(B, H, N_KV, S, DH, DV, parts, rows, 4)
    assert both["K"] == k.nbytes and both["V"] == v.nbytes


@pytest.mark.parametrize(("parts", "rows"), [(1, 16), (3, 16), (2, 32)])
def test_each_latent_is_read_once_per_block_of_heads(parts, rows):
    q, latents = torch.randn(B, H, 1, C + R), torch.randn(B, S, C + R)
    both, _ = ran(latent.plan(q, latents, C, rows=rows, keys=16, parts=parts)[0])
    assert both == costs.decode_kernel_bytes(B, H, 1, S, C + R, C, parts, rows, 4, shared=True)
    blocks = -(-H // rows)
    assert both["LATENT"] == B * blocks * S * (C + R) * 4


def test_a_kernel_that_reads_the_value_again_is_seen(tmp_path):
    """The same numbers, and S * c more elements per program: keys and values loaded separately."""
    again = "out = out * keep[:, None] + tl.dot(p.to(DOT), tl.load(at + n[:, None] * l1 + i[None, :] * l2, "
    again += "mask=(s < end)[:, None] & (i < c)[None, :], other=0.0).to(DOT)"
    copy = changed(latent, "out = out * keep[:, None] + tl.dot(p.to(DOT), latent", again, tmp_path)
    q, latents = torch.randn(B, 5, 1, C + R), torch.randn(B, S, C + R)
    right, _ = ran(latent.plan(q, latents, C, keys=16, parts=2)[0])
    launches, y = copy.plan(q, latents, C, keys=16, parts=2)
    wrong, _ = ran(launches)
    assert_close(y, latent.attend_latent(q, latents, C), (C + R, S, S))
    assert wrong["LATENT"] == right["LATENT"] + B * S * C * 4
    assert {n: b for n, b in wrong.items() if n != "LATENT"} == {
        n: b for n, b in right.items() if n != "LATENT"
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_unfused_is_what_pytorch_does(dtype):
    x, w = torch.randn(15, 70).to(dtype), torch.randn(70).to(dtype)
    assert pytorch_bytes(rms_norm, x, w) == costs.norm_bytes(15, 70, fused=False)
    assert pytorch_bytes(lambda: rms_norm(x + x, w)) == costs.norm_bytes(15, 70, fused=False, residual=True)
    assert pytorch_bytes(lambda: torch.nn.functional.silu(x) * x) == costs.silu_mul_bytes(15, 70, fused=False)
    x, tables = (
        torch.randn(3, 7, 5, 10).to(dtype),
        [t.expand(3, 1, 5, 5).contiguous() for t in rope_cache(5, 10)],
    )
    for layout in ("half", "adjacent"):
        assert pytorch_bytes(apply_rope, x, *tables, layout) == costs.rope_bytes(15, 7, 10, fused=False)


def test_ops_of_the_block_add_up():
    layer = Layer(GQA(6, 2, 14, v_head_dim=10), Dense(44))
    cfg = ModelConfig(97, 60, (layer,) * 3, max_len=64)
    for fused in (True, False):
        ops = costs.block_ops(60, layer, 1, 20, fused=fused)
        heavy = sum(
            op.flops for op in ops if op.name in ("q, k, v", "attention", "output", "gate, up", "down")
        )
        assert 3 * heavy + 2 * 97 * 60 == flops_per_token(cfg, 20)
    names = [op.name for op in costs.block_ops(60, layer)]
    assert names[0] == "add + attention norm" and len(names) == 10
    assert sum(op.bytes for op in costs.block_ops(60, layer, fused=False)) > sum(
        op.bytes for op in costs.block_ops(60, layer)
    )
    windowed = Layer(GQA(6, 2, 14, window=5), Dense(44))
    assert costs.block_ops(60, windowed, 1, 500)[4] == costs.block_ops(60, windowed, 1, 5)[4]
    with pytest.raises(ValueError, match="block_ops counts a pre-norm layer of GQA"):
        costs.block_ops(60, Layer(GQA(6, 2, 14, qk_norm=True), Dense(44)))


def test_intensity_of_the_latent_kernel():
    assert costs.latent_intensity(128, 512, 64, 4096, 128) == pytest.approx(2 * 128 * 1088 / (576 * 2))
    assert costs.latent_intensity(128, 512, 64, 4096, 16) == pytest.approx(2 * 16 * 1088 / (576 * 2))


def test_cards_and_residency():
    assert [round(card.ridge) for card in cards.CARDS] == [153, 295, 164]
    assert (
        cards.resident(cards.A100, 32, 0, 128) == (16, "registers")
        or cards.resident(cards.A100, 32, 0, 128)[0] == 16
    )
    assert cards.resident(cards.A100, 128, 20_480, 128) == (
        4,
        "registers",
    )  # 128 * 128 registers: 4 of 65,536
    assert cards.resident(cards.A100, 97, 0, 256)[0] == 2  # 97 is handed out as 104
    assert cards.resident(cards.A100, 32, 100_000, 256) == (1, "shared memory")
    assert cards.resident(cards.RTX_4090, 32, 110_000, 256) == (0, "shared memory")
    assert cards.resident(cards.H100, 16, 0, 32) == (32, "programs")
    assert cards.occupancy(cards.H100, 128, 0, 128) == 4 * 128 / 2048
