"""Recipes are found by name and cannot contradict themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastcar.export.quantize import RECIPES, Equalization, Recipe, get_recipe
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.planner.program import RECIPES as PLANNED


def test_known_recipes():
    assert (get_recipe("w8a8").weight_bit_width, get_recipe("w4a8").weight_bit_width) == (8, 4)
    assert all(name == recipe.name for name, recipe in RECIPES.items())


def test_planning_knows_the_bits_of_every_recipe():
    """The planner, which is installed without torch, has its own list."""
    assert {name: recipe.weight_bit_width for name, recipe in RECIPES.items()} == PLANNED


def test_nearest_is_w4a8_without_gptq():
    assert replace(get_recipe("w4a8"), name="w4a8-nearest", method="nearest") == get_recipe("w4a8-nearest")


def test_unknown_recipe_lists_the_known():
    with pytest.raises(UsageError, match="'w3a8'; expected one of w8a8, w4a8"):
        get_recipe("w3a8")


@pytest.mark.parametrize(
    "fields",
    [
        {"weight_bit_width": 4},
        {"weight_bit_width": 8, "group_size": 32},
        {"weight_bit_width": 6},
        {"weight_bit_width": 4, "group_size": 0},
        {"weight_bit_width": 8, "method": "magic"},
        {"weight_bit_width": 8, "key_value_bit_width": 4},
        {"weight_bit_width": 8, "calibration_clips": 0},
    ],
)
def test_contradicting_fields(fields):
    with pytest.raises(ValueError, match="^x: "):
        Recipe("x", **fields)


def test_equalization_range():
    assert not Equalization().enabled
    assert Equalization(down=0.5).enabled
    with pytest.raises(ValueError, match="norm 1.5"):
        Equalization(norm=1.5)
