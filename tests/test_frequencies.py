"""The frequencies of RoPE against numbers worked by hand and against transformers' own rules, kind by kind. Plain floats."""

import itertools
import math
import subprocess
import sys

import pytest

from lib import inv_freq, rope_attention_factor, wavelengths, yarn_mscale, yarn_range
from lib.config import Scaling
from lib.frequencies import dynamic_base
from tolerances import as_printed


def test_the_base_rule():
    assert inv_freq(8) == pytest.approx([1.0, 0.1, 0.01, 0.001])
    waves = wavelengths(128)
    assert waves[0] == pytest.approx(2 * math.pi)
    as_printed(waves[-1], 54_410, 4)
    assert all(isinstance(f, float) for f in inv_freq(8)) and len(inv_freq(14)) == 7


@pytest.mark.parametrize("width", [0, -2, 7, 8.0, None])
def test_an_odd_or_strange_width_is_refused(width):
    with pytest.raises(ValueError, match="expected an even whole number"):
        inv_freq(width)


@pytest.mark.parametrize("base", [1.0, 0.0, -5.0, float("nan")])
def test_a_base_of_at_most_one_is_refused(base):
    with pytest.raises(ValueError, match="expected a number above 1"):
        inv_freq(8, base)


def test_linear_divides_every_frequency():
    assert inv_freq(8, scaling=Scaling("linear", 4.0)) == pytest.approx([0.25, 0.025, 0.0025, 0.00025])


def test_dynamic_bases_by_length():
    s = Scaling("dynamic", 2.0, 2048)
    for length, base in {
        None: 1e4,
        7: 1e4,
        2048: 1e4,
        2049: 10009.92,
        4096: 30527.74,
        8192: 72195.86,
    }.items():
        as_printed(dynamic_base(128, 1e4, s, length), base)
        assert inv_freq(128, 1e4, s, length)[-1] == pytest.approx(base ** (-126 / 128), rel=1e-6)


def test_dynamic_scaling_needs_two_pairs():
    with pytest.raises(ValueError, match="dynamic scaling of a rotary width of 2"):
        inv_freq(2, scaling=Scaling("dynamic", 2.0, 16), length=17)


def test_llama3_bands():
    plain, s = inv_freq(64, 5e5), Scaling("llama3", 32.0, 8192, None, 1.0, 4.0)
    got = inv_freq(64, 5e5, s)
    assert got[:15] == plain[:15]
    as_printed(got[15:18], [0.001290548, 0.000429557, 0.000097083])
    assert got[18:] == [f / 32 for f in plain[18:]]


def test_yarn_ramp():
    s = Scaling("yarn", 32.0, 4096, truncate=False)
    as_printed(yarn_range(64, 150000.0, s), (8.0928, 17.398), 5)
    assert inv_freq(64, 150000.0, s)[12] == pytest.approx(0.006794959489732219, rel=1e-9)
    rounded = Scaling("yarn", 32.0, 4096)
    assert yarn_range(64, 150000.0, rounded) == (8, 18)
    plain, got = inv_freq(64, 150000.0), inv_freq(64, 150000.0, rounded)
    assert got[:9] == plain[:9] and got[18:] == pytest.approx([f / 32 for f in plain[18:]], rel=1e-12)
    assert all(b < a for a, b in itertools.pairwise(got))  # still ordered from fast to slow
    low, high = yarn_range(8, 1e4, Scaling("yarn", 4.0, 4096, beta_fast=1.0))  # both ends meet
    assert high - low > 0


def test_attention_factors():
    assert rope_attention_factor(None) == 1.0 == rope_attention_factor(Scaling("linear", 4.0))
    assert rope_attention_factor(Scaling("llama3", 8.0, 8192)) == 1.0
    for factor, value in {4: 1.1386294, 16: 1.2772589, 32: 1.3465736, 40: 1.3688879, 128: 1.485203}.items():
        as_printed(yarn_mscale(factor), value, 7)
        as_printed(rope_attention_factor(Scaling("yarn", float(factor), 4096)), value, 7)
    assert yarn_mscale(0.5) == 1.0 == yarn_mscale(1.0)
    assert (
        rope_attention_factor(Scaling("yarn", 64.0, 4096, attention_factor=1.0)) == 1.0
    )  # final, never re-logged
    equal = Scaling("yarn", 40.0, 4096, mscale=1.0, mscale_all_dim=1.0)
    assert rope_attention_factor(equal) == 1.0
    apart = Scaling("yarn", 40.0, 4096, mscale=1.0, mscale_all_dim=0.707)
    as_printed(rope_attention_factor(apart), 1.3688879 / (0.0707 * math.log(40) + 1))
    long = Scaling("longrope", 32.0, 4096, short_factor=(1.0,) * 4, long_factor=(2.0,) * 4)
    assert rope_attention_factor(long) == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))


def test_longrope_takes_one_list_by_the_declared_length():
    s = Scaling("longrope", 32.0, 4096, short_factor=(1.0, 1.1, 1.2, 1.3), long_factor=(2.0, 4.0, 8.0, 16.0))
    plain = inv_freq(8)
    for length, factors in {None: s.short_factor, 4096: s.short_factor, 4097: s.long_factor}.items():
        assert inv_freq(8, 1e4, s, length) == [f / c for f, c in zip(plain, factors)]
    with pytest.raises(ValueError, match="4 factors: expected one per pair, 5 for a rotary width of 10"):
        inv_freq(10, 1e4, s)


THEIRS = {
    "linear": ({"rope_type": "linear", "factor": 3.0}, Scaling("linear", 3.0)),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.5}, Scaling("dynamic", 2.5, 512)),
    "yarn": (
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 20.0},
        Scaling("yarn", 8.0, 64, beta_fast=20.0),
    ),
    "yarn_real_ends": (
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "truncate": False},
        Scaling("yarn", 8.0, 64, truncate=False),
    ),
    "yarn_given": (
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.3},
        Scaling("yarn", 8.0, 64, attention_factor=1.3),
    ),
    "yarn_mscales": (
        {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "mscale": 1.0,
            "mscale_all_dim": 0.6,
        },
        Scaling("yarn", 8.0, 64, mscale=1.0, mscale_all_dim=0.6),
    ),
    "longrope": (
        {
            "rope_type": "longrope",
            "short_factor": [1 + i / 9 for i in range(9)],
            "long_factor": [2.0 + i for i in range(9)],
            "original_max_position_embeddings": 128,
        },
        Scaling(
            "longrope",
            4.0,
            128,
            short_factor=tuple(1 + i / 9 for i in range(9)),
            long_factor=tuple(2.0 + i for i in range(9)),
        ),
    ),
    "llama3": (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
        Scaling("llama3", 8.0, 64, None, 1.0, 4.0),
    ),
}


@pytest.mark.parametrize("length", [None, 100, 700])
@pytest.mark.parametrize("partial", [1.0, 0.5])
@pytest.mark.parametrize("name", sorted(THEIRS))
def test_equal_to_transformers(name, partial, length):
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    theirs, ours = THEIRS[name]
    width = 18
    rope = {"rope_theta": 70_000.0, "partial_rotary_factor": partial, **theirs}
    config = LlamaConfig(
        hidden_size=60,
        num_attention_heads=5,
        head_dim=int(width / partial),
        max_position_embeddings=512,
        rope_parameters=rope,
    )
    want, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, None, seq_len=length)
    got = inv_freq(width, 70_000.0, ours, length)
    assert got == pytest.approx(want.tolist(), rel=2e-6)
    assert rope_attention_factor(ours, length) == pytest.approx(factor, rel=1e-12)


def test_no_torch_is_needed():
    code = "import sys; from lib import inv_freq; inv_freq(8); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
