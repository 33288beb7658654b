"""The tokenizer of a checkpoint's folder as the content of a tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...toolkit.errors import CheckpointError

__all__ = ["SPACE", "bpe_tokenizer", "read_tokenizer"]

EXPECTED = "the tokenizer of the checkpoint"
COPY_AGAIN = "Copy it again."
SPACE = "▁"  # what SentencePiece writes for a space


def read_tokenizer(folder: Path, vocab: int) -> dict[str, Any]:
    """``tokenizer.json``, else SentencePiece's ``tokenizer.model`` with the added tokens of the files beside it.

    Texts are neither cut nor filled up, whatever the file says of that. CheckpointError if there is neither file, one
    that cannot be read, or a token that is not below ``vocab``.
    """
    fast, pieces = folder / "tokenizer.json", folder / "tokenizer.model"
    if fast.is_file():
        return _checked(fast, lambda: fast.read_text("utf-8"), vocab)
    if not pieces.is_file():
        raise CheckpointError(fast, "is missing, and tokenizer.model too", EXPECTED, "Copy one of them.")
    return _checked(pieces, lambda: json.dumps(_of_pieces(pieces)), vocab)


def _checked(path: Path, content: Callable[[], str], vocab: int) -> dict[str, Any]:
    from tokenizers import Tokenizer  # only here: nothing else of an export needs the package

    try:
        tokenizer = Tokenizer.from_str(content())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        made, ids = json.loads(tokenizer.to_str()), tokenizer.get_vocab(with_added_tokens=True)
    except CheckpointError:
        raise
    except Exception as error:  # the packages raise no class of their own
        raise CheckpointError(path, f"cannot be read ({error})", EXPECTED, COPY_AGAIN) from error
    token = max(ids, key=lambda word: ids[word], default="")
    if ids and ids[token] >= vocab:
        fix = "Copy the tokenizer and the weights of one checkpoint."
        raise CheckpointError(path, f"{token!r} is token {ids[token]}", f"tokens below vocab_size {vocab}", fix)
    return made


def _of_pieces(path: Path) -> dict[str, Any]:
    """Of a model of byte-pair encoding."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(path))
    size = model.get_piece_size()
    vocab = {model.id_to_piece(index): index for index in range(size)}
    special = {index for index in range(size) if model.is_control(index) or model.is_unknown(index)}
    scores = {
        piece: model.get_score(index)
        for piece, index in vocab.items()
        if index not in special and not model.is_byte(index)
    }
    added = {index: model.id_to_piece(index) for index in sorted(special)} | _added_tokens(path.parent)
    return bpe_tokenizer(vocab, _merges(scores), model.id_to_piece(model.unk_id()), added)


def bpe_tokenizer(
    vocab: dict[str, int], merges: list[tuple[str, str]], unknown: str, added: dict[int, str]
) -> dict[str, Any]:
    """As LLaMA has it: bytes for unknown characters, ``SPACE`` in front of a text. ``added``: special tokens by id."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": content, **flags} for index, content in sorted(added.items())],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, spaces]},
        "model": {
            "type": "BPE",
            "unk_token": unknown,
            "byte_fallback": True,
            "fuse_unk": True,
            "vocab": vocab,
            "merges": merges,
        },
    }


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Two pieces become one in the order of the scores of what they become; every way to split it is one of them."""
    ranked = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    splits = ((piece[:cut], piece[cut:]) for piece in ranked for cut in range(1, len(piece)))
    return [pair for pair in splits if pair[0] in scores and pair[1] in scores]


def _added_tokens(folder: Path) -> dict[int, str]:
    """By ``tokenizer_config.json``, or ``added_tokens.json`` of older files."""
    path = folder / "tokenizer_config.json"
    decoder = _json(path).get("added_tokens_decoder", {})
    try:
        by_id = {int(index): token["content"] for index, token in decoder.items()}
        path = folder / "added_tokens.json"
        return by_id | {int(index): content for content, index in _json(path).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(path, f"cannot be read ({error!r})", "added tokens with their ids", COPY_AGAIN) from error


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(path, f"cannot be read ({error})", "a JSON file", COPY_AGAIN) from error
    return content if isinstance(content, dict) else {}
