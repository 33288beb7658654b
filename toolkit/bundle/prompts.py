"""The text side of a model's vocabulary."""

from __future__ import annotations

import difflib

import numpy as np

from ..config import Frozen
from ..errors import UsageError

__all__ = ["Prompts"]


class Prompts(Frozen):
    """``pad`` and ``start`` token ids, the id of every known word, and phrases the model was trained on."""

    pad: int
    start: int
    words: dict[str, int]
    phrases: tuple[str, ...]

    def encode(self, prompt: str, length: int) -> np.ndarray:
        """Token ids (length,) int64: the prompt's words, ``pad``, and ``start`` as the last one.

        UsageError for an empty prompt, an unknown word (the known ones are listed) or more words than fit.
        """
        words = prompt.lower().split()
        if not words:
            raise UsageError("--prompt", "an empty prompt", "words such as " + self._examples(), "Name a scene.")
        for word in words:
            if word not in self.words:
                near = difflib.get_close_matches(word, self.words, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Trained phrases: {', '.join(self.phrases)}."
                raise UsageError(
                    "--prompt", f"unknown word {word!r}", f"words of: {', '.join(sorted(self.words))}", hint
                )
        if len(words) >= length:
            raise UsageError("--prompt", f"{len(words)} words", f"at most {length - 1}", f"Shorten {prompt!r}.")
        return self._row([self.words[word] for word in words], length)

    def unconditional(self, length: int) -> np.ndarray:
        """Token ids (length,) of the prompt without words that guidance steers away from."""
        return self._row([], length)

    def _row(self, ids: list[int], length: int) -> np.ndarray:
        return np.array([*ids, *[self.pad] * (length - 1 - len(ids)), self.start], np.int64)

    def _examples(self) -> str:
        return ", ".join(repr(phrase) for phrase in self.phrases[:3])
