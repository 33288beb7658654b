"""The tokenizer: shapes, what the decoder may consist of, how the codebook follows the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from fastcar.export.car.tokenizer import Codebook, Conv, DecoderConfig, EncoderConfig, Residual, Stage, Tokenizer
from fastcar.export.car.train_tokenizer import DECODER, TokenizerRecipe, new_tokenizer, psnr, train_tokenizer


def small() -> Tokenizer:
    torch.manual_seed(0)
    return Tokenizer(
        EncoderConfig(patch=4, channels=(8, 8), blocks=(1, 1)), DecoderConfig.pyramid(4, (8, 8, 8, 8), (1, 0, 0, 0)), 16
    )


def test_shapes() -> None:
    tokenizer = small().eval()
    frames = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8)
    codes = tokenizer.encode(frames)
    assert codes.shape == (3, 8, 8) and codes.dtype == torch.int64
    assert 0 <= int(codes.min()) and int(codes.max()) < 16
    decoded = tokenizer.decode(codes)
    assert decoded.shape == (3, 64, 64, 3) and decoded.dtype == torch.uint8
    reconstruction, flat, commitment = tokenizer(frames.permute(0, 3, 1, 2).float() / 255)
    assert reconstruction.shape == (3, 3, 64, 64) and torch.equal(flat.view(3, 8, 8), codes) and commitment.ndim == 0


def test_decoder_holds_only_what_integer_arithmetic_can_run() -> None:
    allowed = (Conv, Residual, torch.nn.Upsample)
    stages = new_tokenizer().decoder.stages
    assert all(isinstance(stage, allowed) for stage in stages)
    assert [stage.op for stage in DECODER.stages].count("upsample") == 3
    last = DECODER.stages[-1]
    assert (last.op, last.outputs, last.relu) == ("conv", 3, False)
    width = DECODER.embedding
    for stage in DECODER.stages:
        assert stage.inputs == width
        width = stage.outputs


def test_residual_stage_is_the_documented_formula() -> None:
    torch.manual_seed(1)
    block, x = Residual(4), torch.rand(2, 4, 6, 6)
    torch.nn.init.normal_(block.second.weight)
    first, second = ((part.weight, part.bias) for part in (block.first, block.second))
    expected = F.relu(x + F.conv2d(F.relu(F.conv2d(x, *first, padding=1)), *second, padding=1))
    assert torch.equal(block(x.clone()), expected)


def test_stage_rejects_unknown_operations() -> None:
    with pytest.raises(ValidationError):
        Stage(op="attention", inputs=4, outputs=4)
    with pytest.raises(ValidationError):
        Stage(op="conv", inputs=4, outputs=4, kernel=5)


def test_codebook_restarts_dead_codes() -> None:
    torch.manual_seed(0)
    book = Codebook(8, 4, decay=0.5)
    vectors = F.normalize(torch.randn(256, 4), dim=1)
    before = book.nearest(vectors).unique().numel()
    book.weight.copy_(F.normalize(torch.tensor([[1.0, 0, 0, 0]]).repeat(8, 1) + 1e-3 * torch.randn(8, 4), dim=1))
    for _ in range(20):
        book.follow(vectors, book.nearest(vectors))
    assert book.nearest(vectors).unique().numel() == 8 >= before
    assert torch.allclose(book.weight.norm(dim=1), torch.ones(8), atol=1e-5)


def test_psnr() -> None:
    black = np.zeros((1, 2, 2, 3), np.uint8)
    assert psnr(black, black + 255) == pytest.approx(0)
    assert psnr(black, black + 16) == pytest.approx(24.05, abs=0.01)
    assert psnr(black, black) > 100


def test_training_reduces_the_error_and_repeats() -> None:
    frames = np.full((4, 64, 64, 3), (200, 30, 90), np.uint8)
    recipe, seen = TokenizerRecipe(steps=16, batch=2, warm_up=2), []
    first = train_tokenizer(frames, recipe, 0, lambda step, db: seen.append(db))
    again = train_tokenizer(frames, recipe, 0)
    assert len(seen) == 16 and seen[-1] > seen[0] + 3
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True))
