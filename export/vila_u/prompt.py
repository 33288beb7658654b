"""The prompts of a VILA-U model: the conversation template of the release around a prompt's words, its tokenizer."""

from __future__ import annotations

from pathlib import Path

from ...toolkit.bundle.text_prompts import TextPrompts
from ...toolkit.errors import CheckpointError
from ..huggingface.config import read_object
from .config import LLM, VilaUConfig
from .tokenizer import read_tokenizer

__all__ = ["read_prompts"]

BEFORE = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions. USER:"
)
VIDEO_START = "<vi_start>"
AFTER = f"ASSISTANT: {VIDEO_START}"  # an empty answer, and a video begins
PHRASES = ("a boat sails on a calm lake", "a red car drives down a road", "clouds drift over the mountains")


def read_prompts(folder: Path, config: VilaUConfig) -> TextPrompts:
    """Rows are padded in front, masked there, as in the release.

    The release counts positions of the rotary embedding from a row's first token, here from the first slot: scores
    depend on distances alone (arXiv 2104.09864, eq. 16). CheckpointError for a tokenizer that is not there or of
    another vocabulary.
    """
    tokenizer = read_tokenizer(folder / LLM, config.llama.backbone.vocab)
    prompts = TextPrompts(
        start=_first_token(folder / LLM / "config.json", config.llama.backbone.vocab),
        before=BEFORE,
        after=AFTER,
        phrases=PHRASES,
        tokenizer=tokenizer,
    )
    found = prompts.tokens("")[-1]
    if found != config.video_start:
        fix = "Copy the tokenizer and the weights of one checkpoint."
        raise CheckpointError(folder / LLM, f"{VIDEO_START} is token {found}", f"token {config.video_start}", fix)
    return prompts


def _first_token(path: Path, vocab: int) -> int:
    """Of every text; 1 in all of LLaMA."""
    found = read_object(path).get("bos_token_id", 1)
    if type(found) is not int or not 0 <= found < vocab:
        raise CheckpointError(path, f"bos_token_id {found!r}", f"a token below {vocab}", "Copy it again.")
    return found
