"""Programs against the graph they are compiled from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from random_models import depth_config, random_depth_model, save_graph
from small_engine import small_engine

from fastcar.export.overlay.compile import node_names, pack_model
from fastcar.export.overlay.program import ProgramPlan
from fastcar.toolkit.bundle.bundle import BACKBONE, Bundle
from fastcar.toolkit.errors import BundleError, UsageError
from fastcar.toolkit.program.descriptors import MODEL, NODE, Opcode
from fastcar.toolkit.program.packed import Packed


@pytest.mark.parametrize("name", ["bundle_w8a8", "bundle_w4a8"])
def test_program_stands_for_the_nodes_of_the_graph(name: str, request: pytest.FixtureRequest) -> None:
    bundle = Bundle.open(request.getfixturevalue(name))
    graph = onnx.load(bundle.path / BACKBONE, load_external_data=False).graph
    functions = [node.op_type for node in graph.node if node.domain == "ai.fastcar"]
    known = [name.removesuffix("Int4G32") for name in functions]
    assert known == node_names(bundle.manifest.config.layers)


@pytest.mark.parametrize(("codes", "projector"), [(3, 2), (1, 1)])
def test_program_stands_for_the_nodes_of_a_depth_transformer(tmp_path: Path, codes: int, projector: int) -> None:
    """A residual code begins with its input, the loop's body ends with that of the next."""
    depth = depth_config(codes_per_position=codes, projector_layers=projector)
    model = random_depth_model(depth=depth)
    path = save_graph(model, tmp_path)
    backbone, outside, body = (
        [node.op_type.removesuffix("Bias") for node in nodes if node.domain == "ai.fastcar"]
        for nodes in (graph_nodes(path), graph_nodes(path.with_name("depth.onnx")), loop_nodes(path.parent))
    )
    assert [*backbone, *outside, *body[-2:], *body[:-2]] == node_names(model.config.layers, depth)


def graph_nodes(path: Path) -> list[onnx.NodeProto]:
    return list(onnx.load(path, load_external_data=False).graph.node)


def loop_nodes(folder: Path) -> list[onnx.NodeProto]:
    (loop,) = (node for node in graph_nodes(folder / "depth.onnx") if node.op_type == "Loop")
    return list(loop.attribute[0].g.node)


@pytest.mark.parametrize("name", ["bundle_w8a8", "bundle_w4a8"])
def test_weights_lie_one_behind_the_other(name: str, request: pytest.FixtureRequest) -> None:
    model, _ = Bundle.open(request.getfixturevalue(name)).model()
    packed = pack_model(model, small_engine())
    nodes = [NODE.unpack(words) for words in packed.program[1:]]
    header = MODEL.unpack(packed.program[0])
    end = header["rotary"] + model.layout.positions * model.config.head_dim // 2
    for node in nodes:
        assert node["address"] == end
        end += 4 * node["beats"]
    assert end == len(packed.weights)
    embedding = packed.weights[: header["rotary"]].reshape(-1).view(np.float16)
    assert np.array_equal(embedding.reshape(model.embedding.shape), model.embedding)
    assert packed.padding < 0.03  # of a model whose matrices are a few beats; of car: tests/test_car_deployed.py


def test_program_of_another_engine_has_another_build() -> None:
    assert small_engine().build_id != small_engine(groups=4).build_id


@pytest.mark.parametrize(
    "change, message",
    [({"max_mlp": 32}, "mlp 64; expected at most 32"), ({"max_layers": 1}, "layers"), ({"max_codes": 8}, "codes")],
)
def test_engine_that_is_too_small(bundle_w8a8: Path, change: dict[str, int], message: str) -> None:
    model, _ = Bundle.open(bundle_w8a8).model()
    with pytest.raises(UsageError, match=message):
        ProgramPlan(model.config, model.layout, {}, small_engine(**change))


def test_packed_files(bundle_w8a8: Path, tmp_path: Path) -> None:
    model, _ = Bundle.open(bundle_w8a8).model()
    packed = pack_model(model, small_engine())
    packed.write(tmp_path)
    again = Packed.read(tmp_path)
    assert np.array_equal(again.program, packed.program) and np.array_equal(again.weights, packed.weights)
    assert again.build_id == small_engine().build_id
    assert Opcode(NODE.unpack(again.program[1])["opcode"]) == Opcode.EMBED
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.truncate(17)
    with pytest.raises(BundleError, match="17 bytes; expected a multiple of 16"):
        Packed.read(tmp_path)
    (tmp_path / "program.bin").unlink()
    with pytest.raises(BundleError, match="program.bin: no such file"):
        Packed.read(tmp_path)
