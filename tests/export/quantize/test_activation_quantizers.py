"""Dynamic rows and static heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from brevitas.nn import QuantIdentity

from fastcar.export.quantize.activation_quantizers import Int8DynamicActPerRow, Int8StaticActPerHead
from fastcar.export.quantize.brevitas_graph import calibration_mode
from fastcar.export.quantize.calibrate import quantizer_scaling
from fastcar.toolkit.numerics.linear import quantize_rows


@pytest.mark.parametrize("width", [1, 37, 704])
def test_dynamic_rows_equal_the_reference_arithmetic(width):
    x = torch.randn(2, 5, width, generator=torch.Generator().manual_seed(width)) * torch.logspace(-6, 3, 5)[:, None]
    expected = quantize_rows(x.view(-1, width).numpy())
    got = QuantIdentity(act_quant=Int8DynamicActPerRow, return_quant_tensor=True).eval()(x)
    assert np.array_equal(got.int().view(-1, width).numpy(), expected.values)
    np.testing.assert_allclose(got.scale.view(-1, 1).numpy(), expected.scale, rtol=2e-7)


def test_zero_row_is_zero():
    assert not QuantIdentity(act_quant=Int8DynamicActPerRow)(torch.zeros(3, 8)).any()


def test_heads_are_calibrated_by_a_running_maximum():
    quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=3).eval()
    batches = [torch.randn(2, 3, 7, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(9)]
    with torch.no_grad(), calibration_mode(quant):
        for batch in batches:
            assert torch.equal(quant(batch), batch)
    scaling = quantizer_scaling(quant)
    assert torch.equal(scaling.peak.flatten(), torch.cat(batches).abs().amax(dim=(0, 2, 3)))
    quant(100 * batches[0])
    assert scaling.peak.max() < 10


def test_statistics_do_not_grow_with_the_number_of_batches():
    def size(batches: int) -> int:
        quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=3).eval()
        with torch.no_grad(), calibration_mode(quant):
            for _ in range(batches):
                quant(torch.randn(2, 3, 7, 4))
        return sum(tensor.numel() for module in quant.modules() for tensor in vars(module)["_buffers"].values())

    assert size(1) == size(20) < 100


def test_heads_are_clipped_to_their_own_scale():
    quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=2, return_quant_tensor=True).eval()
    quantizer_scaling(quant).set_scale(torch.tensor([0.5, 0.25]))
    got = quant(torch.tensor([1.2, -1000.0]).expand(1, 2, 1, 2))
    assert got.int().flatten().tolist() == [2, -128, 5, -128]
