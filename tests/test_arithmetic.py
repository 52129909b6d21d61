"""lib.arithmetic: published figures, hand-computed numbers, and what must hold between them. No torch."""

import subprocess
import sys

import pytest

from lib import arithmetic as a
from lib.config import GQA, MLA, Counted, Dense, Layer, ModelConfig, MoE, Norm, llama_style

GIB = 2**30


def model(*layers, V=1000, d=64, **fields):
    return ModelConfig(V, d, tuple(layers), **fields)


def llama3_70b(n_kv_heads=8):
    return llama_style(
        128256, 8192, 80, 64, n_kv_heads, 28672, max_len=131072, rope_base=5e5, qk_norm=False, eps=1e-5
    )


def deepseek_like(n_layers=61):
    latent = MLA(128, 1536, 512, 128, 64, 128)
    return model(*(Layer(latent, Dense(18432)),) * n_layers, V=129280, d=7168, max_len=163840)


# ---- widths


@pytest.mark.parametrize(
    ("d", "multiplier", "multiple", "width"),
    [
        (4096, None, 256, 11008),
        (5120, None, 256, 13824),
        (8192, 1.3, 4096, 28672),
        (4096, 1.3, 1024, 14336),
        (512, None, 64, 1408),
    ],
)
def test_swiglu_width_of_published_models(d, multiplier, multiple, width):
    assert a.swiglu_width(d, multiplier, multiple) == width


def test_swiglu_at_that_width_costs_what_two_matrices_of_4d_cost():
    gated, plain = 3 * 4096 * a.swiglu_width(4096), 8 * 4096**2
    assert 1 < gated / plain < 1.01
    assert 3 * 768 * 2048 == 2 * 768 * 3072 == 4718592  # 8/3 d and 4d
    assert 3 * 768 * 3072 == 7077888  # 4d copied into three matrices: half as much again


# ---- the cache on bare numbers


@pytest.mark.parametrize(
    ("n_layers", "n_kv", "dh", "tokens", "expected"),
    [
        (32, 32, 128, 1, 524288),  # Llama-2-7B: K and V, no query, no extra factor of heads
        (80, 8, 128, 4096, 1.25 * GIB),
        (80, 8, 128, 32768, 10 * GIB),
        (80, 8, 128, 131072, 40 * GIB),
        (80, 64, 128, 131072, 320 * GIB),
        (80, 1, 128, 131072, 5 * GIB),
        (32, 32, 128, 2048, 1 * GIB),
        (32, 8, 128, 1, 131072),
    ],
)
def test_kv_cache_bytes(n_layers, n_kv, dh, tokens, expected):
    assert a.kv_cache_bytes(n_layers, n_kv, dh, tokens) == expected


def test_mla_cache_bytes_of_deepseek_v3():
    assert a.mla_cache_bytes(61, 512, 64) == 70272
    assert (
        a.mla_cache_bytes(1, 512, 64, tokens=65536, bytes_per_element=0.5) == 18874368
    )  # 4 bits: 18 MiB a layer
    assert round(a.mla_cache_bytes(61, 512, 64, 65536, bytes_per_element=0.5) / GIB, 4) == 1.0723
    as_heads = 61 * 128 * (192 + 128) * 2
    assert as_heads == 4997120
    assert round(as_heads / 70272, 1) == 71.1


def test_head_dim_comes_from_the_config_not_from_d_over_h():
    assert a.kv_cache_bytes(36, 8, 128) == 147456  # Qwen3-4B; d / h would be 80
    assert a.kv_cache_bytes(40, 8, 128) == 163840  # Mistral Small 24B; d / h would be 160
    assert a.kv_cache_bytes(24, 8, 64) == 49152  # gpt-oss-20b; d / h would be 45
    assert a.kv_cache_bytes(46, 16, 128, bytes_per_element=1) == 188416  # Gemma 2 27B at 8 bits


# ---- parameters


def test_the_seed_model_has_3283456_parameters():
    p = a.parameters(llama_style(1000))
    assert p == a.Parameters(3283456, 256000, 256000, 655616, 2113536, 2304, 0, 3283456)


def test_parameters_of_llama_3_70b():
    assert a.parameters(llama3_70b()).total == 70553706496


@pytest.mark.parametrize(
    ("V", "d", "n_layers", "h", "d_ff", "expected"),
    [
        (32000, 288, 6, 6, 768, 15191712),
        (32000, 512, 8, 8, 1376, 41689600),
        (32000, 768, 12, 12, 2048, 109529856),
    ],
)
def test_a_tied_matrix_counts_once(V, d, n_layers, h, d_ff, expected):
    """The small story models of llama2.c: their state dict holds the tied matrix twice."""
    cfg = llama_style(V, d, n_layers, h, h, d_ff, qk_norm=False, tie=True)
    assert a.parameters(cfg).total == expected
    assert a.parameters(cfg.replace(tied=False)).total == expected + V * d
    assert a.parameters(cfg).head == 0


def test_parts_sum_to_the_total_with_every_kind_of_part():
    layers = (
        Layer(
            GQA(6, 2, 10, v_head_dim=14, qk_norm=True, bias=True, out_bias=True),
            Dense(50, bias=True),
            "sandwich",
        ),
        Layer(GQA(6, 2, 10, qk_norm="width"), MoE(5, 2, 30, 20), counted=(Counted("sinks", 6),)),
        Layer(MLA(4, 12, 16, 8, 6, 10, bias=True), Dense(50, gated=False, bias=True), "parallel"),
        Layer(None, Dense(40), counted=(Counted("experts", 90, active=30),)),
    )
    p = a.parameters(model(*layers, V=100, counted=(Counted("positions", 7),), norm=Norm("layer", bias=True)))
    gqa_1 = 64 * (60 + 20 + 28 + 84) + (60 + 20 + 28) + 64 + 2 * 10
    gqa_2 = 64 * (60 + 20 + 20 + 60) + (60 + 20)
    mla = 64 * 12 + 12 + 12 * 4 * 14 + 64 * 22 + 16 + 16 * 4 * 18 + 4 * 10 * 64 + (12 + 22 + 64)
    assert p.attention == gqa_1 + gqa_2 + mla
    dense = (3 * 64 * 50 + 100 + 64) + (2 * 64 * 50 + 50 + 64) + 3 * 64 * 40
    moe = 3 * 64 * (5 * 30 + 20) + 64 * 5
    assert p.ffn == dense + moe
    assert p.norms == 2 * 64 * (4 + 2 + 1 + 1 + 1)
    assert p.counted == 6 + 90 + 7
    assert p.total == p.embedding + p.head + p.attention + p.ffn + p.norms + p.counted
    assert p.total - p.active == 3 * 3 * 64 * 30 + 60  # three idle experts, and what Counted says is idle


# ---- the cache of a model


def test_windows_cap_their_own_layers_only():
    """gpt-oss-20b: 12 of 24 layers see 128 tokens."""
    window, full = GQA(64, 8, 64, window=128), GQA(64, 8, 64)
    cfg = model(*(Layer(window, Dense(10)), Layer(full, Dense(10))) * 12, d=2880)
    assert a.kv_bytes_per_token(cfg) == 49152
    assert a.kv_bytes(cfg, 8192, batch=32) == 6543114240
    assert a.kv_bytes(cfg, 8192, batch=32, capped=False) == 12 * GIB
    assert a.kv_bytes(cfg, 1) == a.kv_bytes_per_token(cfg)
    assert a.kv_bytes(cfg, 0) == 0


def test_tensor_parallelism_leaves_each_gpu_its_heads():
    cfg = a.ModelConfig(
        97, 60, (Layer(GQA(12, 4, 14, 10, window=5), Dense(44)), Layer(GQA(12, 2, 14), Dense(44)))
    )
    each = {gpus: a.kv_bytes_per_gpu(cfg, 7, gpus) for gpus in (1, 2, 4)}
    assert each[1] == a.kv_bytes(cfg, 7)
    assert each[2] == 2 * (2 * 24 * 5 + 1 * 28 * 7)
    assert each[4] == 2 * (1 * 24 * 5 + 1 * 28 * 7)  # two KV heads on four GPUs: each is there twice
    with pytest.raises(
        ValueError, match="12 query heads and 4 KV heads do not divide evenly over 6 GPUs; over 4 they would"
    ):
        a.kv_bytes_per_gpu(cfg, 7, 6)


def test_a_latent_cache_has_no_heads_and_no_factor_2():
    assert a.kv_bytes_per_token(deepseek_like()) == 70272
    assert a.kv_bytes(deepseek_like(), 131072) == 9210691584
    assert a.naive_kv_elements_per_token(deepseek_like()) == 874496


def test_state_and_extra_keys_stand_beside_the_cache():
    part = Counted("linear", 10, kv_elements=3, state_elements=500)
    cfg = model(Layer(GQA(4, 2, 8), Dense(10)), Layer(None, Dense(10), counted=(part,)))
    assert (a.kv_elements_per_token(cfg), a.extra_kv_elements_per_token(cfg), a.state_elements(cfg)) == (
        32,
        3,
        500,
    )
    assert a.sequence_bytes(cfg, 10, batch=3) == 2 * 3 * (32 * 10 + 3 * 10 + 500)


# ---- FLOPs and time


def test_the_head_costs_flops_tied_or_not_and_the_embedding_none():
    cfg = llama_style(128256, 2048, 1, 32, 8, 8192, qk_norm=False)
    bigger = llama_style(128257, 2048, 1, 32, 8, 8192, qk_norm=False)
    assert a.flops_per_token(bigger) - a.flops_per_token(cfg) == 2 * 2048
    assert a.flops_per_token(cfg) == a.flops_per_token(cfg.replace(tied=True))
    assert 2 * 128256 * 2048 == 525336576


def test_gqa_shrinks_the_cache_not_the_score_flops():
    per_key = a.flops_per_token(llama3_70b(), 1000) - a.flops_per_token(llama3_70b(), 999)
    assert per_key == a.flops_per_token(llama3_70b(64), 1000) - a.flops_per_token(llama3_70b(64), 999)
    assert per_key == 2 * 80 * 64 * 2 * 128


def test_prefill_is_the_sum_of_its_tokens():
    """Token by token, the head only once: what a causal prompt costs."""
    layers = Layer(GQA(6, 2, 10, window=4), Dense(50)), Layer(GQA(6, 3, 14), MoE(4, 2, 30))
    cfg = model(*layers, V=100)
    one_by_one = sum(a.flops_per_token(cfg, t) for t in range(9))
    assert a.prefill_flops(cfg, 9) == one_by_one - 8 * 2 * 100 * 64
    assert a.prefill_flops(cfg, 9, batch=3) == 3 * a.prefill_flops(cfg, 9)


def test_absorbed_latents_cost_more_per_key_and_nothing_to_expand():
    cfg = deepseek_like(1)
    absorbed = a.flops_per_token(cfg, 1000) - a.flops_per_token(cfg, 999)
    assert absorbed == 2 * 128 * (2 * 512 + 64)
    assert (
        a.prefill_flops(cfg, 2) - 2 * (a.prefill_flops(cfg, 1) - 2 * 129280 * 7168) - 2 * 129280 * 7168
        == 2 * 128 * 320
    )


def test_a_decode_step_reads_weights_and_cache_once():
    cfg = llama3_70b()
    p = a.parameters(cfg)
    assert a.decode_bytes(cfg, 4096, batch=8) == 2 * (p.total - p.embedding) + 8 * a.kv_bytes(cfg, 4096)
    assert a.weight_bytes_per_step(cfg.replace(tied=True)) == a.weight_bytes_per_step(cfg)
    assert a.decode_seconds(cfg, 4096, 2e12) == a.decode_bytes(cfg, 4096) / 2e12
    assert a.decode_tokens_per_second(cfg, 4096, 2e12, batch=8) == 8 / a.decode_seconds(
        cfg, 4096, 2e12, batch=8
    )
    assert 0.9 < a.arithmetic_intensity(cfg, 1) < 1.1  # two FLOPs for each 2-byte weight
    assert a.arithmetic_intensity(cfg, 1, batch=64) > 50


def test_experts_are_read_as_far_as_the_batch_reaches():
    cfg = model(Layer(GQA(4, 2, 8), MoE(8, 2, 100)), tied=True)
    one_expert = 2 * 3 * 64 * 100
    reads = [a.weight_bytes_per_step(cfg, batch) for batch in (1, 2, 3, 4, 5, 100)]
    assert [(x - reads[0]) // one_expert for x in reads] == [0, 2, 4, 6, 6, 6]


def test_users_and_context_fit_and_one_more_does_not():
    cfg = llama3_70b()
    device = 4 * 80 * 10**9
    users = a.users_per_device(cfg, device, 8192)
    weights = 2 * a.parameters(cfg).total
    assert weights + users * a.kv_bytes(cfg, 8192) <= device < weights + (users + 1) * a.kv_bytes(cfg, 8192)
    tokens = a.longest_context(cfg, device, batch=2)
    assert weights + a.kv_bytes(cfg, tokens, 2) <= device < weights + a.kv_bytes(cfg, tokens + 1, 2)
    assert a.users_per_device(cfg, 80 * 10**9, 8192) == a.longest_context(cfg, 80 * 10**9) == 0


# ---- units, refusals, and no torch


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (70272, "68.6 KiB"),
        (327680, "320 KiB"),
        (40 * GIB, "40 GiB"),
    ],
)
def test_format_bytes_is_binary(n, text):
    assert a.format_bytes(n) == text


def test_a_gibibyte_is_not_a_gigabyte():
    assert a.format_bytes_decimal(GIB) == "1.07 GB"
    assert a.format_bytes(83 * 10**9) == "77.3 GiB"
    assert a.format_bytes_decimal(320 * GIB) == "344 GB"
    assert a.format_count(596049920) == "596 million"
    assert a.format_count(999885952) == "1 billion"


CFG = llama_style(1000)
REFUSED = [
    (lambda: a.swiglu_width(-1), "d = -1"),
    (lambda: a.swiglu_width(4096, float("inf")), "multiplier = inf"),
    (lambda: a.kv_cache_bytes(32, 8, 128.0), r"head_dim = 128\.0"),
    (lambda: a.kv_cache_bytes(32, True, 128), "n_kv_heads = True"),
    (lambda: a.kv_cache_bytes(32, 8, 128, tokens=10**12), "tokens = 1000000000000"),
    (lambda: a.kv_cache_bytes(32, 8, 128, bytes_per_element=0), "bytes_per_element = 0"),
    (lambda: a.mla_cache_bytes(61, "512", 64), "kv_lora_rank = '512'"),
    (lambda: a.kv_bytes(CFG, -5), "tokens = -5"),
    (lambda: a.kv_bytes(CFG, 5, batch=0), "batch = 0"),
    (lambda: a.flops_per_token(CFG, 1.5), r"context = 1\.5"),
    (lambda: a.prefill_flops(CFG, 0), "tokens = 0"),
    (lambda: a.decode_seconds(CFG, 5, 0), "bandwidth = 0"),
    (lambda: a.users_per_device(CFG, 80e9, 5), r"device_bytes = 80000000000\.0"),
    (lambda: a.parameters({"hidden_size": 5}), "expected a ModelConfig"),
    (lambda: a.users_per_device(model(Layer(None, Dense(5))), 10**9, 5), "no cache and no state"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_wrong_input_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_arithmetic_never_loads_torch():
    code = "import sys, lib.arithmetic, lib.families; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
