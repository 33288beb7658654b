"""Quantization with Brevitas: a float decoder becomes the integer model that every back end computes from."""

from __future__ import annotations

from .evaluate import cross_entropy
from .pipeline import Progress, Quantized, quantize, quantize_with_report
from .recipes import RECIPES, Equalization, Recipe, get_recipe
from .report import QuantizationReport

__all__ = [
    "RECIPES",
    "Equalization",
    "Progress",
    "QuantizationReport",
    "Quantized",
    "Recipe",
    "cross_entropy",
    "get_recipe",
    "quantize",
    "quantize_with_report",
]
