"""Where the time of a step goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from car_like import LAYOUT
from cli_runs import run
from depth_bundle import depth_bundle

from fastcar.export.pipeline import export_model
from fastcar.toolkit.backends.step_profile import _by_step, profile_steps
from fastcar.toolkit.bundle.bundle import Bundle

NODES = {"Attention", "QuantLinear", "QuantizeRows", "RMSNorm", "ReplayDecision", "ReplayMLP", "RotaryEmbedding"}


@pytest.fixture(scope="module")
def bundle(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_model(car_like, tmp_path_factory.mktemp("profile") / "b", evaluate=False)


def test_nodes_of_a_step_are_told_and_take_no_longer_than_the_step(bundle: Bundle) -> None:
    profile = profile_steps(bundle, steps=3, threads=1)
    assert profile.position == LAYOUT.frame_start(LAYOUT.frames // 2)
    assert (profile.dense.replayed, profile.all_replayed.replayed) == (0.0, 1.0)
    for step in (profile.dense, profile.all_replayed):
        assert set(step.nodes) >= {*NODES, "TemporalAttentionScore", "Sample"}
        assert all(seconds >= 0 for seconds in step.nodes.values())
        assert 0 < sum(step.nodes.values()) < 3 * step.total  # of means and a median
    assert profile.ratio == profile.dense.total / profile.all_replayed.total


def test_a_depth_transformer_is_a_part_of_the_step(tmp_path: Path) -> None:
    profile = profile_steps(depth_bundle(tmp_path / "d"), steps=2, threads=1)
    for step in (profile.dense, profile.all_replayed):
        assert step.nodes["depth transformer"] > 0 and set(step.nodes) >= NODES


def test_time_is_of_the_step_it_was_spent_in_and_of_subgraphs_once() -> None:
    def event(name: str, at: int, took: int, kind: str = "Node", operator: str = "Add") -> dict:
        return {"name": name, "ts": at, "dur": took, "cat": kind, "args": {"op_name": operator}}

    runs = [event("model_run", 100, 50, "Session"), event("model_run", 200, 50, "Session")]
    nodes = [
        event("_inlfunc_RMSNorm_Mul_1_kernel_time", 110, 2_000_000),
        event("_inlfunc_RMSNorm_Add_1_kernel_time", 120, 1_000_000),
        event("_inlfunc_QuantLinearInt4G32_Mul_1_kernel_time", 210, 4_000_000),
        event("Add_3_kernel_time", 220, 500_000),
        event("loop_kernel_time", 230, 9_000_000, operator="Loop"),
        event("Add_3_fence_before", 215, 7_000_000),
    ]
    assert _by_step([runs + nodes]) == [{"RMSNorm": 3.0}, {"QuantLinear": 4.0, "others": 0.5}]
    assert _by_step([runs + nodes, runs + nodes[:1]])[0] == {"RMSNorm": 3.0, "depth transformer": 2.0}


def test_the_command_tells_and_refuses(bundle: Bundle) -> None:
    result = run("profile", bundle.path, "--steps", 1, "--threads", 1, "--json")
    told = json.loads(result.stdout)
    assert result.code == 0 and told["dense"]["nodes"].keys() == told["all_replayed"]["nodes"].keys()
    assert told["peak_resident_bytes"] > 50_000_000
    result = run("profile", bundle.path, "--steps", 0)
    assert result.code == 2 and result.error.startswith("fastcar: --steps: 0; expected at least 1")
