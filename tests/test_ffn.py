"""SwiGLU and the 2019 MLP: numbers by hand, sizes, both activations of the family, and errors."""

import math

import pytest
import torch
from torch.nn import functional as F

from lib import GELUMLP, SwiGLU, swiglu, swiglu_width
from lib.config import Dense, MoE
from lib.ffn import ACTIVATION, make_ffn
from tolerances import as_printed, assert_close


def test_one_feature_by_hand():
    gate, up, one = torch.tensor([[1.0]]), torch.tensor([[2.0]]), torch.tensor([[1.0]])
    as_printed(swiglu(torch.ones(1), gate, up, one).item(), 1.462117, 7)  # silu(1) * 2
    as_printed(swiglu(torch.ones(1), up, gate, one).item(), 1.761594, 7)  # the two swapped


def test_module_is_the_function_and_the_formula():
    ffn, x = SwiGLU(10, 14).double(), torch.randn(3, 5, 10, dtype=torch.float64)
    w = ffn.w_gate.weight, ffn.w_up.weight, ffn.w_down.weight
    z = x @ w[0].T
    want = (z / (1 + torch.exp(-z)) * (x @ w[1].T)) @ w[2].T
    for got in (ffn(x), swiglu(x, *w)):
        assert_close(got, want, (10, 14))


def test_activations_at_one():
    one = torch.tensor([1.0, -1.0], dtype=torch.float64)
    sigmoid, phi = 1 / (1 + math.exp(-1)), 0.5 * (1 + math.erf(2**-0.5))
    tanh = 0.5 * (1 + math.tanh((2 / math.pi) ** 0.5 * 1.044715))
    want = {
        "silu": [sigmoid, sigmoid - 1],
        "gelu": [phi, phi - 1],
        "gelu_tanh": [tanh, tanh - 1],
        "relu": [1, 0],
        "relu2": [1, 0],
    }
    assert set(want) == set(ACTIVATION)
    for name, values in want.items():
        assert_close(ACTIVATION[name](one), torch.tensor(values, dtype=one.dtype), (1, 1), what=name)
    assert ACTIVATION["relu2"](torch.tensor(3.0)).item() == 9.0


@pytest.mark.parametrize("activation", sorted(ACTIVATION))
@pytest.mark.parametrize("gated", [True, False])
def test_make_ffn_with_random_biases(activation, gated):
    ffn = make_ffn(Dense(14, gated, activation, bias=True), 10)
    for p in ffn.parameters():
        torch.nn.init.normal_(p)
    x = torch.randn(3, 10)
    hidden = ACTIVATION[activation](x @ ffn.w_gate.weight.T + ffn.w_gate.bias) if gated else None
    up = x @ ffn.w_up.weight.T + ffn.w_up.bias
    want = (hidden * up if gated else ACTIVATION[activation](up)) @ ffn.w_down.weight.T + ffn.w_down.bias
    assert_close(ffn(x), want, (10, 14))


def test_sizes_three_matrices_at_8_3_cost_what_two_at_4d_cost():
    def size(module):
        return sum(p.numel() for p in module.parameters())

    assert size(GELUMLP(768, bias=False)) == 4_718_592 == size(SwiGLU(768, 2048))
    assert size(SwiGLU(768, 3072)) == 7_077_888  # 4d copied from a GELU config: half as much again
    assert size(GELUMLP(10)) == 2 * 10 * 40 + 40 + 10
    assert swiglu_width(4096) == 11_008


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_and_shape(dtype):
    for ffn in (SwiGLU(10, 14), GELUMLP(10, 14)):
        y = ffn.to(dtype)(torch.randn(3, 5, 10, dtype=dtype))
        assert (y.dtype, y.shape) == (dtype, (3, 5, 10))


def test_the_gate_closes():
    ffn = SwiGLU(10, 14)
    torch.nn.init.constant_(ffn.w_gate.weight, -30.0)
    assert not ffn(torch.ones(10)).any()  # silu(-300) = 0: nothing passes
    as_printed(F.silu(torch.tensor(-1.2785)).item(), -0.278465)  # its lowest value


def test_errors():
    with pytest.raises(ValueError, match="MoE is counted, not run"):
        make_ffn(MoE(8, 2, 14), 10)
    with pytest.raises(ValueError, match="activation = 'swish': expected one of silu"):
        SwiGLU(10, 14, activation="swish")
    with pytest.raises(ValueError, match="d_ff = 0"):
        GELUMLP(10, 0)
