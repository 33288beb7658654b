"""The program of a model that is counted: its own, on an engine as large as the formats allow; no weights."""

from __future__ import annotations

from ...export.overlay.program import ProgramPlan, int4_linears
from ...hls.counting import ANY_ENGINE
from ..errors import UsageError
from .shapes import ModelShape

__all__ = ["RECIPES", "recipe_bits", "shape_program"]

RECIPES = {"w8a8": 8, "w4a8": 4, "w4a8-nearest": 4}
"""Bits of the weights, but of those that have 8 always: ``export/quantize/recipes.py`` makes them so."""


def recipe_bits(recipe: str) -> int:
    """Of the weights. UsageError for an unknown recipe."""
    if recipe not in RECIPES:
        raise UsageError("recipe", repr(recipe), f"one of {', '.join(RECIPES)}", "Choose a listed recipe.")
    return RECIPES[recipe]


def shape_program(shape: ModelShape, recipe: str) -> ProgramPlan:
    """UsageError for an unknown recipe, or if the formats of the program cannot hold the model."""
    int4 = int4_linears(recipe_bits(recipe), shape.depth)
    try:
        return ProgramPlan(shape.backbone, shape.frame_layout, int4, ANY_ENGINE, depth=shape.depth)
    except UsageError as error:
        raise UsageError(shape.name, error.found, error.expected, "No engine of this kind holds it.") from error
