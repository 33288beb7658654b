"""The text side of the vocabulary: phrases of at most three words, right-padded, then the video's start token."""

from __future__ import annotations

from ...toolkit.bundle.prompts import Prompts
from .labels import PHRASES, WORDS

__all__ = ["CODE_OFFSET", "car_prompts"]

CODE_OFFSET = 32
"""Vocabulary entries kept for text; the codes follow. More than needed, so that the codes start on a round number."""


def car_prompts() -> Prompts:
    return Prompts(pad=0, start=1, words={word: 2 + i for i, word in enumerate(WORDS)}, phrases=PHRASES)
