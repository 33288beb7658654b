"""The depth transformer's tensors: written, planned, read again."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from random_models import depth_config, random_depth_model

from fastcar.toolkit.bundle.tensor_file import TensorSpec, write_tensors
from fastcar.toolkit.bundle.tensors import model_tensors, planned_tensors, read_model
from fastcar.toolkit.config import DepthConfig
from fastcar.toolkit.errors import BundleError

DEPTHS = {
    "a codebook each": depth_config(),
    "shared codebook": depth_config(codes_per_position=4, shared_codebook=True, projector_layers=1),
}


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("depth", DEPTHS.values(), ids=DEPTHS)
def test_a_depth_transformer_is_read_as_it_was_written(tmp_path: Path, bits: int, depth: DepthConfig):
    model = random_depth_model(bits, depth=depth)
    tensors = model_tensors(model)
    write_tensors(tmp_path / "w", tensors)
    found = read_model(tmp_path / "w", model.config, model.layout, "post_rope", depth)[0]
    assert found.head is None and found.depth.config == depth
    assert [name for name, _ in found.linears()] == [name for name, _ in model.linears()]
    for name, linear in model.depth.linears():
        other = dict(found.depth.linears())[name]
        for field in fields(linear):
            np.testing.assert_array_equal(getattr(other, field.name), getattr(linear, field.name), name)
    again = model_tensors(found)
    assert again.keys() == tensors.keys()
    for name, array in tensors.items():
        assert again[name].dtype == array.dtype, name
        np.testing.assert_array_equal(again[name], array, name)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("depth", DEPTHS.values(), ids=DEPTHS)
def test_the_planned_tensors_are_those_of_the_model(bits: int, depth: DepthConfig):
    model = random_depth_model(bits, depth=depth)
    planned = planned_tensors(model.config, model.layout, model.layers[0].down.group_size, depth)
    assert planned == {name: TensorSpec.of(array) for name, array in model_tensors(model).items()}


def test_weights_of_another_model_are_refused(tmp_path: Path):
    model = random_depth_model()
    write_tensors(tmp_path / "w", model_tensors(model))
    with pytest.raises(BundleError, match=r"depth\.codebook \(111, 12\); expected 4 x 37 rows of 12"):
        read_model(tmp_path / "w", model.config, model.layout, "post_rope", depth_config(codes_per_position=4))
    with pytest.raises(BundleError, match=r"no tensor depth\.blocks\.2"):
        read_model(tmp_path / "w", model.config, model.layout, "post_rope", depth_config(layers=3))
    with pytest.raises(BundleError, match=r"no tensor head\.weight"):
        read_model(tmp_path / "w", model.config, model.layout, "post_rope")


def test_a_model_has_a_head_or_a_depth_transformer():
    model = random_depth_model()
    with pytest.raises(ValueError, match="neither of head and depth transformer"):
        type(model)(**{**vars(model), "depth": None})
    with pytest.raises(ValueError, match="both of head and depth transformer"):
        type(model)(**{**vars(model), "head": model.depth.classifier})
