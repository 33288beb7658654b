"""Two runs that differ: the first node is found, in a record or in what a step left in the caches."""

from __future__ import annotations

import numpy as np
import pytest
import random_models
from random_models import Run, generate_clip, layout, random_model, reference_backend

from fastcar.toolkit.generation.agreement import Recorder, first_difference
from fastcar.toolkit.numerics.tas import NEVER

MODEL = random_model(8, shape=random_models.config(), frames=layout())


def recorded(backend) -> Recorder:
    recorder = Recorder(backend)
    generate_clip(recorder, Run(thresholds=(-NEVER,) * MODEL.config.layers))  # what is cached is used again
    return recorder


def faulty(change, at: int):
    """A reference whose step at position ``at`` has its outputs changed before they are kept."""
    backend = reference_backend(MODEL)
    run_step = backend.run_step

    def step():
        outputs = run_step()
        if backend.state.position == at:
            change(outputs)
        return outputs

    backend.run_step = step
    return backend


def test_equal_runs() -> None:
    assert first_difference(recorded(reference_backend(MODEL)), recorded(reference_backend(MODEL))) is None


def flip(name: str, layer: int, within: tuple[int, ...]):
    """Changes one value of the stacked outputs (layers * rows, ...) of row 1."""

    def change(outputs) -> None:
        index = (2 * layer + 1, *within)
        value = outputs[name]
        value[index] = ~value[index] if value.dtype == np.bool_ else value[index] ^ (128 if name == "mlp_output" else 1)

    return change


@pytest.mark.parametrize(
    "name, layer, within, node, index",
    [
        ("k", 1, (1, 3), "RotaryEmbedding (k)", (1, 1, 3)),
        ("v", 0, (0, 9), "RotaryEmbedding (v)", (1, 0, 9)),
        ("mlp_output", 2, (17,), "ReplayMLP (bfloat16 bits)", (1, 17)),
    ],
)
def test_what_a_step_leaves_behind(name, layer, within, node, index) -> None:
    """The record shows it steps later, in another node: the position and node of the fault itself are named."""
    where = MODEL.layout
    at = where.frame_start(1) + 2
    expected = recorded(reference_backend(MODEL))
    difference = first_difference(recorded(faulty(flip(name, layer, within), at)), expected)
    assert difference is not None
    later = where.tokens_per_frame if name == "mlp_output" else 0  # replayed there, and kept again
    assert (difference.frame, difference.position, difference.layer) == (2 if later else 1, at + later, layer)
    assert (difference.node, difference.index) == (node, index)
    assert difference.found != difference.expected


@pytest.mark.parametrize("name, node", [("tas", "TemporalAttentionScore"), ("replay", "ReplayDecision")])
def test_what_a_step_records(name, node) -> None:
    at = MODEL.layout.frame_start(2)
    expected = recorded(reference_backend(MODEL))
    difference = first_difference(recorded(faulty(flip(name, 1, ()), at)), expected)
    assert (difference.frame, difference.position, difference.layer, difference.node) == (2, at, 1, node)
    assert difference.index == (1,)


def test_logits_and_codes() -> None:
    def change(outputs) -> None:
        outputs["logits"][0, 5] += 1

    at = MODEL.layout.frame_start(1)
    expected = recorded(reference_backend(MODEL))
    difference = first_difference(recorded(faulty(change, at)), expected)
    assert (difference.position, difference.layer, difference.node) == (at, None, "QuantLinear (head)")
    assert difference.index == (0, 5) and difference.found == difference.expected + 1
    assert str(difference).startswith(f"frame 1, position {at}, QuantLinear (head)[0, 5]: ")


def test_a_fault_in_the_prompt_is_found_there() -> None:
    expected = recorded(reference_backend(MODEL))
    difference = first_difference(recorded(faulty(flip("k", 0, (0, 0)), 1)), expected)
    assert (difference.frame, difference.position, difference.layer) == (0, 1, 0)
