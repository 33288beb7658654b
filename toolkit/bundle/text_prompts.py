"""Prompts in any words: a template around them, and the tokenizer of the checkpoint."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import PADDING, Frozen
from ..errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["TextPrompts"]


class TextPrompts(Frozen):
    """``start``: the token in front of every text, then ``before``, the words between spaces, and ``after``.

    ``tokenizer``: the content of a tokenizer.json. ``phrases``: examples. Rows are padded in front, with ``PADDING``.
    """

    start: int
    before: str
    after: str
    phrases: tuple[str, ...]
    tokenizer: dict[str, Any]

    @property
    def known(self) -> tuple[str, ...]:
        """Prompts to choose from; any others will do as well."""
        return self.phrases

    @property
    def words(self) -> dict[str, int]:
        """None are listed: a tokenizer takes all."""
        return {}

    def text(self, prompt: str) -> str:
        """A prompt without words leaves no space between ``before`` and ``after``."""
        words = prompt.strip()
        return f"{self.before}{f' {words} ' if words else ''}{self.after}"

    def encode(self, prompt: str, length: int) -> np.ndarray:
        """Token ids (length,) int64. UsageError for an empty prompt, one that names a special token, or more tokens
        than fit, or without the package that reads the tokenizer."""
        if not prompt.strip():
            example = f"words such as {self.phrases[0]!r}" if self.phrases else "words"
            raise UsageError("--prompt", "an empty prompt", example, "Describe a scene.")
        if any("\ud800" <= character <= "\udfff" for character in prompt):
            raise UsageError("--prompt", ascii(prompt), "text in UTF-8", "Write it in the terminal's encoding.")
        for token in self._loaded.get_added_tokens_decoder().values():
            if token.special and token.content in prompt:
                raise UsageError("--prompt", f"{token.content!r} in it", "words", "Leave the special token out.")
        return self._row(prompt, length)

    def unconditional(self, length: int) -> np.ndarray:
        """Token ids (length,) of the template without words, which guidance steers away from."""
        return self._row("", length)

    def tokens(self, prompt: str) -> list[int]:
        """Of the template with the prompt in it, without padding."""
        return [self.start, *self._loaded.encode(self.text(prompt), add_special_tokens=False).ids]

    def _row(self, prompt: str, length: int) -> np.ndarray:
        ids = self.tokens(prompt)
        if len(ids) > length:
            found = f"{len(ids)} tokens with its template"
            raise UsageError("--prompt", found, f"at most {length}", f"Shorten {prompt!r}.")
        return np.array([PADDING] * (length - len(ids)) + ids, np.int64)

    @cached_property
    def _loaded(self) -> Tokenizer:
        try:
            from tokenizers import Tokenizer  # only here: no other model needs the package
        except ImportError:
            fix = "pip install 'fastcar-edge[text]'"
            raise UsageError("--prompt", "a model with a tokenizer", "the package tokenizers installed", fix) from None
        return Tokenizer.from_str(json.dumps(self.tokenizer))
