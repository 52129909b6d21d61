"""RMSNorm and LayerNorm: hand-computed numbers, conventions, dtypes, and the two geometric properties."""

import pytest
import torch
from torch.nn import functional as F

from lib import LayerNorm, RMSNorm, layer_norm, make_norm, rms_norm
from lib.config import Norm
from tolerances import as_printed, assert_close, distance


def test_the_worked_numbers():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    as_printed(rms_norm(x, eps=0.0), [0.365148, 0.730297, 1.095445, 1.460593], 7)
    tiny = torch.full((8,), 1e-3)
    as_printed(rms_norm(tiny, eps=1e-6)[0].item(), 0.707107)  # eps inside the root
    as_printed(rms_norm(tiny, eps=1e-5)[0].item(), 0.301511)


def test_layer_norm_by_hand():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])  # mean 2.5, variance 1.25 (divided by 4, not by 3)
    want = (x - 2.5) / 1.25**0.5
    assert_close(layer_norm(x, eps=0.0), want, (4, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_pytorch_with_random_gains(dtype):
    x, w, b = torch.randn(3, 5, 14, dtype=dtype), torch.randn(14, dtype=dtype), torch.randn(14, dtype=dtype)
    assert_close(rms_norm(x, w, 1e-5), F.rms_norm(x, (14,), w, 1e-5), (14,))
    assert_close(layer_norm(x, w, b, 1e-5), F.layer_norm(x, (14,), w, b, 1e-5), (14, 14))


def test_orders_of_cast_and_gain():
    x = torch.tensor([-1.375, 1.25, 0.625, 1.75]).bfloat16()
    gain = torch.tensor([1.25, 1.40625, 1.953125, 1.59375]).bfloat16()
    assert rms_norm(x, gain).tolist() == [-1.3125, 1.34375, 0.9296875, 2.109375]
    assert rms_norm(x, gain, gain_last=True).tolist() == [-1.3046875, 1.3359375, 0.9296875, 2.125]
    assert rms_norm(x, gain - 1, gain_last=True, unit_offset=True).tolist() == [
        -1.3046875,
        1.3359375,
        0.9296875,
        2.125,
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("gain_last", [False, True])
def test_output_has_the_input_s_dtype_even_with_wider_gains(dtype, gain_last):
    x = torch.randn(2, 6).to(dtype)
    assert rms_norm(x, torch.randn(6), gain_last=gain_last).dtype == dtype
    assert layer_norm(x, torch.randn(6), torch.randn(6)).dtype == dtype


def test_fp16_is_squared_in_float32():
    x = torch.full((4,), 300.0, dtype=torch.float16)  # 300**2 is inf in float16
    assert rms_norm(x).tolist() == [1.0] * 4
    assert layer_norm(torch.tensor([-300.0, 300.0], dtype=torch.float16)).tolist() == [-1.0, 1.0]


def test_float64_statistics_stay_float64():
    x = torch.randn(3, 14, dtype=torch.float64)
    want = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    assert_close(rms_norm(x), want, (14,))  # float32 anywhere would cost 1e-7


@pytest.mark.parametrize("a", [1e-2, 3.0, 1e6])
def test_scale_invariance_holds_for_both_and_shift_only_for_layer_norm(a):
    x, w = torch.randn(4, 14, dtype=torch.float64), torch.randn(14, dtype=torch.float64)
    assert_close(rms_norm(a * x, w, 0.0), rms_norm(x, w, 0.0), (14,))
    assert_close(layer_norm(a * x, w, None, 0.0), layer_norm(x, w, None, 0.0), (14, 14))
    # x + a is rounded to the spacing of numbers at a
    assert_close(
        layer_norm(x + a, w), layer_norm(x, w), (14, 14), scale=max(1, a) * layer_norm(x, w).abs().max()
    )
    assert distance(rms_norm(x + a, w), rms_norm(x, w)) > 0.001


def test_the_gradient_is_orthogonal_to_x():
    x = torch.randn(5, 14, dtype=torch.float64, requires_grad=True)
    (
        rms_norm(x, torch.randn(14, dtype=torch.float64), 0.0) * torch.randn(5, 14, dtype=torch.float64)
    ).sum().backward()
    size = x.grad.norm(dim=-1).max() * x.norm(dim=-1).max()
    assert_close(
        (x.grad * x).sum(-1), torch.zeros_like(x[:, 0]), (14, 14, 14), scale=size
    )  # growing x along itself changes nothing


def test_gradients_agree_with_finite_differences():
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, w: rms_norm(x, w, 1e-6, unit_offset=True, gain_last=True), (x, w)
    )
    assert torch.autograd.gradcheck(lambda x, w: layer_norm(x, w, w, 1e-5), (x, w))


def test_modules_hold_the_gain_and_start_as_the_identity_gain():
    x = torch.randn(3, 6)
    for module in (RMSNorm(6, 1e-5), RMSNorm(6, 1e-5, unit_offset=True, gain_last=True)):
        assert_close(module(x), rms_norm(x, None, 1e-5), (6,))
        with torch.no_grad():
            module.weight.normal_()
        gain = 1 + module.weight if module.unit_offset else module.weight
        assert_close(module(x), rms_norm(x, None, 1e-5) * gain, (6,))
    assert [name for name, _ in LayerNorm(6, bias=False).named_parameters()] == ["weight"]
    assert "eps=1e-05" in repr(RMSNorm(6, 1e-5))


def test_make_norm():
    assert make_norm(Norm("layer", 1e-5, bias=True), 6).bias.shape == (6,)
    assert make_norm(Norm("layer", 1e-5), 6).bias is None
    gemma = make_norm(Norm(eps=1e-5, unit_offset=True, gain_last=True), 6)
    assert (gemma.eps, gemma.unit_offset, gemma.gain_last) == (1e-5, True, True)
    with pytest.raises(ValueError, match="gainless norm is counted, not run"):
        make_norm(Norm(gain=False), 6)


def test_errors():
    with pytest.raises(ValueError, match=r"weight has shape \[5\] and x has shape \[2, 6\]: expected \[6\]"):
        rms_norm(torch.randn(2, 6), torch.ones(5))
    with pytest.raises(ValueError, match="bias has shape"):
        layer_norm(torch.randn(2, 6), torch.ones(6), torch.ones(1))
    with pytest.raises(ValueError, match=r"torch.int64: expected a floating-point tensor"):
        rms_norm(torch.tensor([1, 2, 3, 4]))
