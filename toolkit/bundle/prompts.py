"""The text side of a model's vocabulary."""

from __future__ import annotations

import difflib

import numpy as np
from pydantic import Field, model_validator

from ..config import Frozen
from ..errors import UsageError

__all__ = ["Prompts"]


class Prompts(Frozen):
    """``pad`` and ``start`` token ids, the id of every known word, and phrases the model was trained on.

    ``sequences``: whole prompts by name, token by token, such as the context frames that a clip continues. A name is a
    prompt like a phrase. ValueError if it could be read as words as well.
    """

    pad: int
    start: int
    words: dict[str, int]
    phrases: tuple[str, ...]
    sequences: dict[str, tuple[int, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_are_no_words(self) -> Prompts:
        for name in self.sequences:
            if name != name.strip() or all(word in self.words for word in name.lower().split()):
                raise ValueError(f"sequence {name!r}: its name is empty, has spaces around it, or is made of words")
        return self

    @property
    def known(self) -> tuple[str, ...]:
        """Prompts to choose from: phrases, then names of sequences."""
        return (*self.phrases, *self.sequences)

    def encode(self, prompt: str, length: int) -> np.ndarray:
        """Token ids (length,) int64: the prompt's words, ``pad``, and ``start`` as the last one; or those of the
        sequence of that name.

        UsageError for an empty prompt, an unknown word (the known ones are listed), more words than fit, or a sequence
        of another length.
        """
        if (ids := self.sequences.get(prompt.strip())) is not None:
            if len(ids) != length:
                raise UsageError("--prompt", f"sequence {prompt!r} of {len(ids)} tokens", f"{length}", "Correct it.")
            return np.array(ids, np.int64)
        words = prompt.lower().split()
        if not words:
            raise UsageError("--prompt", "an empty prompt", "words such as " + self._examples(), "Name a scene.")
        for word in words:
            if word not in self.words:
                near = difflib.get_close_matches(prompt.strip(), self.sequences, n=1)
                near = near or difflib.get_close_matches(word, self.words, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"Known prompts: {', '.join(self.known)}."
                known = (("words of", sorted(self.words)), ("one of", self.sequences))
                expected = ", or ".join(f"{kind}: {', '.join(names)}" for kind, names in known if names)
                raise UsageError("--prompt", f"unknown word {word!r}", expected, hint)
        if len(words) >= length:
            raise UsageError("--prompt", f"{len(words)} words", f"at most {length - 1}", f"Shorten {prompt!r}.")
        return self._row([self.words[word] for word in words], length)

    def unconditional(self, length: int) -> np.ndarray:
        """Token ids (length,) of the prompt without words that guidance steers away from."""
        return self._row([], length)

    def _row(self, ids: list[int], length: int) -> np.ndarray:
        return np.array([*ids, *[self.pad] * (length - 1 - len(ids)), self.start], np.int64)

    def _examples(self) -> str:
        return ", ".join(repr(phrase) for phrase in self.known[:3])
