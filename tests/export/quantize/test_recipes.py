"""Recipes are found by name and cannot contradict themselves."""

from __future__ import annotations

import pytest

from fastcar.export.quantize import RECIPES, Equalization, Recipe, get_recipe
from fastcar.toolkit.errors import UsageError


def test_known_recipes():
    assert (get_recipe("w8a8").weight_bit_width, get_recipe("w4a8").weight_bit_width) == (8, 4)
    assert all(name == recipe.name for name, recipe in RECIPES.items())


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
