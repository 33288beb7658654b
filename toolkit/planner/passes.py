"""What is run for a position of a clip: the backbone's step, and what some models have beside it, as counted programs.

A pass is a program of the engine with operations left out. What the engine has no operation for is counted as what
moves the same: a depth transformer's GELU MLP as SwiGLU of two thirds of its width, which has as many weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...export.overlay.compile import ProgramPlan
from ...hls.counting import ANY_ENGINE
from ..config import BackboneConfig, FrameLayout
from ..errors import UsageError
from ..program.descriptors import Opcode
from .shapes import DepthTransformer, ModelShape, Projection

__all__ = ["BACKBONE", "LINEARS", "PROJECTION", "RECIPES", "Pass", "int4_layers", "passes", "projection_pass"]

BACKBONE, DEPTH, PROJECTION = "backbone", "depth transformer", "projections"
ENDING = frozenset({Opcode.LINEAR_LOGITS, Opcode.SAMPLE})
LINEARS = ("qkv", "output", "gate_up", "down", "head")
RECIPES = {"w8a8": 8, "w4a8": 4, "w4a8-nearest": 4}
"""Bits of the weights, but the head's, which has 8: ``export/quantize/recipes.py`` makes them so."""
STUB_CODES = 8  # of a backbone whose head is left out


@dataclass(frozen=True)
class Pass:
    """``times`` a position, each a start of ``steps`` steps from position ``first``; None: the clip's position.

    ``plan``: program and addresses, on an engine of any size.
    """

    name: str
    config: BackboneConfig
    layout: FrameLayout
    int4: dict[str, bool]
    omitted: frozenset[Opcode] = frozenset()
    times: int = 1
    steps: int = 1
    first: int | None = None

    @property
    def plan(self) -> ProgramPlan:
        return ProgramPlan(self.config, self.layout, self.int4, ANY_ENGINE)

    @property
    def weight_bytes(self) -> int:
        """In memory, as packed: embedding and rotary tables too, unless the pass leaves them out."""
        plan = self.plan
        first = plan.rotary if Opcode.EMBED in self.omitted else 0
        left_out = sum(4 * node["beats"] for node in plan.nodes if node["opcode"] in self.omitted)
        return int(plan.end - first - left_out) * 16


def int4_layers(recipe: str) -> dict[str, bool]:
    """Whether a linear layer has 4-bit weights. UsageError for an unknown recipe."""
    if recipe not in RECIPES:
        raise UsageError("recipe", repr(recipe), f"one of {', '.join(RECIPES)}", "Choose a listed recipe.")
    return {name: RECIPES[recipe] == 4 and name != "head" for name in LINEARS}


def passes(shape: ModelShape, int4: dict[str, bool]) -> tuple[Pass, ...]:
    """The backbone's first. UsageError if the formats of the program cannot hold the model."""
    config, layout = shape.backbone, shape.frame_layout
    if shape.depth is None:
        backbone = Pass(BACKBONE, config, layout, int4)
    else:  # its head is the depth transformer's, and codes are embedded by a projection
        config, layout = _without_codes(config, layout)
        backbone = Pass(BACKBONE, config, layout, int4, ENDING)
    every = [backbone]
    if shape.depth is not None:
        every.append(_depth(shape.depth, int4))
    every += [projection_pass(projection, int4) for projection in shape.projections]
    for one in every:
        try:
            ANY_ENGINE.check(one.config, one.layout)
        except UsageError as error:
            found = f"{one.name}: {error.found}"
            raise UsageError(shape.name, found, error.expected, "No engine of this kind holds it.") from error
    return tuple(every)


def _without_codes(config: BackboneConfig, layout: FrameLayout) -> tuple[BackboneConfig, FrameLayout]:
    """Their embedding left out; the separators' rows follow what is left of them."""
    end = layout.code_offset + STUB_CODES
    row = {token: end + index for index, token in enumerate(sorted(layout.separators))}
    names = ("before_frame", "after_row", "after_frame")
    moved = {name: tuple(row[token] for token in getattr(layout, name)) for name in names}
    return (
        config.model_copy(update={"vocab": end + len(row)}),
        layout.model_copy(update={"codes": STUB_CODES, **moved}),
    )


def _depth(depth: DepthTransformer, int4: dict[str, bool]) -> Pass:
    config = BackboneConfig(
        hidden=depth.hidden,
        layers=depth.layers,
        heads=depth.heads,
        kv_heads=depth.heads,
        head_dim=depth.hidden // depth.heads,
        mlp=round(depth.mlp * 2 / 3 / 8) * 8,
        vocab=depth.codes,
    )
    grid = (1, depth.codes_per_position)
    layout = FrameLayout(prompt_length=1, frames=1, grid=grid, code_offset=0, codes=depth.codes)
    return Pass(DEPTH, config, layout, int4, frozenset({Opcode.EMBED}), steps=depth.codes_per_position, first=0)


def projection_pass(projection: Projection, int4: dict[str, bool]) -> Pass:
    """One linear layer, of the recipe's weights, in the place of a head."""
    config = BackboneConfig(
        hidden=projection.inputs, layers=1, heads=1, kv_heads=1, head_dim=16, mlp=32, vocab=projection.outputs
    )
    layout = FrameLayout(prompt_length=1, frames=1, grid=(1, 1), code_offset=0, codes=projection.outputs)
    omitted = frozenset(Opcode) - {Opcode.LINEAR_LOGITS}
    weights = int4 | {"head": int4["qkv"]}
    return Pass(PROJECTION, config, layout, weights, omitted, times=projection.times, first=0)
