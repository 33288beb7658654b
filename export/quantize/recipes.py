"""Quantization recipes: what is decided about bits and methods, declared in one place and chosen by name."""

from __future__ import annotations

from dataclasses import dataclass

from ...toolkit.errors import UsageError

__all__ = ["RECIPES", "Equalization", "Recipe", "get_recipe"]

METHODS = ("nearest", "gptq")


@dataclass(frozen=True)
class Equalization:
    """How much of an activation's range moves into the weights, per place it can be folded; 0 leaves it alone.

    ``norm``: inputs of qkv and gate/up, folded into the norm gains. ``down``: inputs of the down projection, folded
    into the up projection. ``value``: inputs of the output projection, folded into the value projection.
    Each is the exponent alpha of arXiv 2211.10438, eq. 4, in 0..1. ValueError outside.
    """

    norm: float = 0.0
    down: float = 0.0
    value: float = 0.0

    def __post_init__(self) -> None:
        for place, alpha in vars(self).items():
            if not 0.0 <= alpha <= 1.0:
                raise ValueError(f"equalization {place} {alpha}; expected 0..1")

    @property
    def enabled(self) -> bool:
        return max(self.norm, self.down, self.value) > 0


@dataclass(frozen=True)
class Recipe:
    """Bits and methods of one quantization.

    Weights are ``weight_bit_width`` wide: 8 per output channel, or 4 in groups of ``group_size`` inputs with an
    integer multiplier. ``method`` is ``nearest`` or ``gptq`` (arXiv 2210.17323). The head always has 8 bits, queries,
    keys and values too, activations into linear layers 8 bits with a dynamic scale a row. Of the clips given for
    calibration the first ``calibration_clips`` are used. ValueError when fields contradict each other.
    """

    name: str
    weight_bit_width: int
    group_size: int | None = None
    method: str = "nearest"
    equalization: Equalization = Equalization()
    key_value_bit_width: int = 8
    calibration_clips: int = 8

    def __post_init__(self) -> None:
        if (self.weight_bit_width, self.group_size is None) not in ((8, True), (4, False)):
            raise ValueError(
                f"{self.name}: {self.weight_bit_width} bit with group size {self.group_size}; "
                f"expected 8 bit without or 4 bit with a group size"
            )
        if self.group_size is not None and self.group_size < 1:
            raise ValueError(f"{self.name}: group size {self.group_size}; expected at least 1")
        if self.method not in METHODS:
            raise ValueError(f"{self.name}: method {self.method!r}; expected one of {', '.join(METHODS)}")
        if self.calibration_clips < 1:
            raise ValueError(f"{self.name}: {self.calibration_clips} calibration clips; expected at least 1")
        if self.key_value_bit_width != 8:
            raise ValueError(f"{self.name}: keys and values of {self.key_value_bit_width} bit; expected 8")


# Costs a model without outlier channels nothing that can be measured, and brings one with them back: with channels
# 40 times too large, w8a8 is 25 times closer to the float model (Kullback-Leibler) with it than without.
# Equalizing values as well gave nothing beyond it.
_EQUALIZATION = Equalization(norm=0.5, down=0.5)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("w8a8", weight_bit_width=8, equalization=_EQUALIZATION),
        Recipe("w4a8", weight_bit_width=4, group_size=32, method="gptq", equalization=_EQUALIZATION),
        # GPTQ keeps an (in, in) matrix of every layer it observes and works off its columns one by one: of a model of
        # billions of weights that is GB and hours on a small workstation. This is a pass over the weights instead.
        Recipe("w4a8-nearest", weight_bit_width=4, group_size=32, equalization=_EQUALIZATION),
    )
}


def get_recipe(name: str) -> Recipe:
    """The recipe called ``name``; UsageError listing the known ones."""
    if name not in RECIPES:
        known = ", ".join(RECIPES)
        raise UsageError("recipe", repr(name), f"one of {known}", "Choose a listed recipe.")
    return RECIPES[name]
