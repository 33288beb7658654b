"""Text to tokens by ``tokenizer.model``, against SentencePiece itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Tokenizer

from fastcar.export.vila_u.config import read_config
from fastcar.export.vila_u.prompt import read_prompts
from fastcar.export.vila_u.synthetic import write_checkpoint
from fastcar.export.vila_u.tokenizer import read_tokenizer
from fastcar.toolkit.errors import CheckpointError

WORDS = "a boat red car drives sails on calm lake road down clouds drift over mountains Mountain sunset rain".split()  # noqa: SIM905
SPECIAL = ("<im_start>", "<im_end>", "<vi_start>", "<vi_end>")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer.model of 400 pieces."""
    folder = tmp_path_factory.mktemp("pieces")
    rng = random.Random(0)
    text = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + rng.choice(".,!?") for _ in range(500)]
    SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return folder


def test_tokens_are_those_of_sentencepiece(trained: Path) -> None:
    pieces = SentencePieceProcessor(model_file=str(trained / "tokenizer.model"))
    tokenizer = Tokenizer.from_str(json.dumps(read_tokenizer(trained, 400)))
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS, k=9)) for _ in range(100)]
    texts += ["".join(rng.choices("abcdeorst .,éß漢🚗", k=30)) for _ in range(100)]
    texts += ["two  spaces", "A chat between a curious user", "x"]
    for text in texts:
        assert tokenizer.encode(text, add_special_tokens=False).ids == pieces.encode(text), text


@pytest.mark.parametrize("file", ["tokenizer_config.json", "added_tokens.json"])
def test_added_tokens_are_those_of_the_file_beside_it(trained: Path, tmp_path: Path, file: str) -> None:
    folder = checkpoint(tmp_path / "c", trained, file)
    config = read_config(folder)
    prompts = read_prompts(folder, config)
    pieces = SentencePieceProcessor(model_file=str(trained / "tokenizer.model"))
    before, after = prompts.text("a red car").split("<vi_start>")
    assert prompts.tokens("a red car") == [1, *pieces.encode(before), config.video_start] and after == ""


def checkpoint(folder: Path, trained: Path, file: str) -> Path:
    """Whose vocabulary is that of the pieces and four tokens more."""
    write_checkpoint(folder, "tiny")
    (folder / "llm/tokenizer.json").unlink()
    (folder / "llm/tokenizer.model").write_bytes((trained / "tokenizer.model").read_bytes())
    path = folder / "llm/config.json"
    size = SentencePieceProcessor(model_file=str(trained / "tokenizer.model")).get_piece_size()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": size + 4}))
    ids = {token: size + index for index, token in enumerate(SPECIAL)}
    decoder = {"added_tokens_decoder": {str(index): {"content": token} for token, index in ids.items()}}
    (folder / "llm" / file).write_text(json.dumps(ids if file == "added_tokens.json" else decoder))
    return folder


def test_files_that_cannot_be_read_are_named(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: is missing, and tokenizer\.model too"):
        read_tokenizer(tmp_path, 400)
    (tmp_path / "tokenizer.model").write_bytes((trained / "tokenizer.model").read_bytes()[:500])
    with pytest.raises(CheckpointError, match=r"tokenizer\.model: cannot be read"):
        read_tokenizer(tmp_path, 400)
    (tmp_path / "tokenizer.model").write_bytes((trained / "tokenizer.model").read_bytes())
    (tmp_path / "added_tokens.json").write_text('{"<vi_start>": "many"}')
    with pytest.raises(CheckpointError, match=r"added_tokens\.json: cannot be read"):
        read_tokenizer(tmp_path, 400)


def test_a_token_beyond_the_vocabulary_is_named(trained: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.model: '.+' is token 399; expected tokens below vocab_size 399"
    ):
        read_tokenizer(trained, 399)


def test_texts_are_neither_cut_nor_filled_up(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", "tiny")
    path = tmp_path / "c/llm/tokenizer.json"
    before = read_tokenizer(path.parent, 288)
    tokenizer = Tokenizer.from_str(path.read_text())
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=600)
    tokenizer.save(str(path))
    assert read_tokenizer(path.parent, 288) == before
