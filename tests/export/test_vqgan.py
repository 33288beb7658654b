"""Residual codes to RGB: one set of pixels from NumPy and from onnxruntime, near to those of PyTorch."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from vqgan_like import float_frames, random_codes, random_vqgan

from fastcar.export.decoder import quantize_decoder
from fastcar.export.lower.decoder import lower_decoder
from fastcar.export.vqgan import FloatStage, FloatVqgan
from fastcar.toolkit.backends.onnxruntime import open_session
from fastcar.toolkit.bundle.bundle import DECODER
from fastcar.toolkit.errors import CheckpointError
from fastcar.toolkit.numerics.decoder import decode_frames
from fastcar.toolkit.numerics.vqgan import VqganDecoder
from fastcar.toolkit.video.decode import FollowingDecoder, FrameDecoder

BOUND_DB = 35.0
FIELDS = {"convs": ("weight", "scale", "bias"), "norms": ("gain", "bias")}
MODELS = {
    "residual codes": {},
    "one code a place": {"depth": 1, "code_shape": (5, 3)},
    "one codebook": {"codebooks": 1, "depth": 3, "blocks": 2},
    "resized": {"code_shape": (3, 3), "latent_shape": (5, 7), "attention_levels": (0, 1)},
    "resized, one code": {"depth": 1, "code_shape": (6, 5), "latent_shape": (4, 3)},
    "no blocks but one": {"blocks": 0, "widths": (32,)},
    "three levels": {"widths": (96, 64, 32), "attention_levels": (1,), "code_shape": (2, 3)},
    "other groups": {"groups": 4, "widths": (12, 20, 8), "code_shape": (1, 5)},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> FloatVqgan:
    return random_vqgan(**MODELS[request.param])


@pytest.fixture(scope="module")
def decoder(model: FloatVqgan) -> VqganDecoder:
    return quantize_decoder(model)


def small() -> FloatVqgan:
    return random_vqgan(widths=(32,), blocks=0, code_shape=(2, 2))


def write(decoder: VqganDecoder, folder: Path) -> Path:
    path = folder / DECODER
    ir.save(lower_decoder(decoder), path)
    onnx.checker.check_model(str(path), full_check=True)
    return path


def as_bundle(folder: Path) -> SimpleNamespace:
    """What of a bundle the decoders of frames look at."""
    return SimpleNamespace(path=folder)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_onnxruntime_gives_the_pixels_of_the_reference(
    model: FloatVqgan, decoder: VqganDecoder, tmp_path: Path, threads: int, optimize: bool
):
    codes = random_codes(model, 3)
    expected = decode_frames(decoder, codes)
    assert expected.shape == (3, *decoder.picture_shape, 3) and expected.dtype == np.uint8
    assert len(np.unique(expected)) > 20 and np.isin(expected, (0, 255)).mean() < 0.5
    session = open_session(write(decoder, tmp_path), threads, optimize)
    found = np.concatenate([session.run(["frames"], {"codes": codes[index : index + 1]})[0] for index in range(3)])
    np.testing.assert_array_equal(found, expected)


def test_the_integer_decoder_is_near_the_float_one(model: FloatVqgan, decoder: VqganDecoder):
    codes = random_codes(model, 4, seed=1)
    wanted, found = float_frames(model, codes), decode_frames(decoder, codes).astype(np.float64)
    assert wanted.std() > 20, "a picture, not one colour"
    decibels = 10 * np.log10(255**2 / np.square(wanted - found).mean())
    assert decibels > BOUND_DB
    assert abs((wanted - found).mean()) < 1.0


def test_a_frame_is_the_same_in_any_company(tmp_path: Path):
    model = small()
    codes = random_codes(model, 5)
    write(quantize_decoder(model), tmp_path)
    frames = FrameDecoder(as_bundle(tmp_path), threads=1)
    together = frames(codes)
    assert together.shape == (5, 2, 2, 3)
    np.testing.assert_array_equal(np.concatenate([frames(codes[i : i + 1]) for i in range(5)]), together)
    np.testing.assert_array_equal(frames(codes[::-1]), together[::-1])
    following = FollowingDecoder(as_bundle(tmp_path))
    for frame in codes.reshape(1, 5, 2, 2, 4).swapaxes(0, 1):
        following.add(frame)
    np.testing.assert_array_equal(following.finish()[0], together)


def test_codes_of_each_depth_count():
    """Exchanging two depths' codes exchanges their codebooks; with one codebook for all it changes nothing."""
    codes = random_codes(random_vqgan(), 1)
    swapped = codes[..., [1, 0, 2, 3]]
    apart, shared = (quantize_decoder(random_vqgan(codebooks=number)) for number in (4, 1))
    books = apart.codebooks
    exchanged = replace(apart, codebooks=(books[1], books[0], *books[2:]))
    assert not np.array_equal(decode_frames(apart, codes), decode_frames(apart, swapped))
    np.testing.assert_array_equal(decode_frames(exchanged, swapped), decode_frames(apart, codes))
    np.testing.assert_array_equal(decode_frames(shared, swapped), decode_frames(shared, codes))


def test_a_code_that_is_none_is_refused(tmp_path: Path):
    """Not taken from the next depth's codebook."""
    model = small()
    codes = random_codes(model, 1)
    codes[0, 0, 0, 0] = len(model.codebooks[0])
    session = open_session(write(quantize_decoder(model), tmp_path), 1)
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(["frames"], {"codes": codes})


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 2, 2, 3), (1, 2, 3, 4)])
def test_codes_of_another_shape_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"expected \(frames, 2, 2, 4\)"):
        decode_frames(quantize_decoder(small()), np.zeros(shape, np.int64))


def test_weights_stay_bytes_on_disk_and_in_the_graph(tmp_path: Path):
    model = random_vqgan(widths=(96, 64))
    path = write(quantize_decoder(model), tmp_path)
    weights = sum(conv.weight.numel() for stage in model.stages for conv in stage.convs)
    assert path.stat().st_size < weights + 700_000  # tables and names
    kinds = {x.data_type for x in onnx.load(path).graph.initializer if x.name.endswith(".weight")}
    assert kinds == {onnx.TensorProto.UINT8}


def test_functions_are_called_by_name(tmp_path: Path):
    called = {node.op_type for node in onnx.load(write(quantize_decoder(small()), tmp_path)).graph.node}
    assert {"GroupNorm", "SiLUBytes", "WordBytes", "MapAttention", "ConvBytes3x3", "ConvWords1x1"} <= called


def changed(model: FloatVqgan, index: int, stage: FloatStage) -> FloatVqgan:
    return replace(model, stages=(*model.stages[:index], stage, *model.stages[index + 1 :]))


def test_pixels_depend_on_every_part():
    """The reference is not blind to a weight, a scale, a bias or a gain of any stage."""
    model = random_vqgan(widths=(96, 64))
    decoder, codes = quantize_decoder(model), random_codes(model, 1)
    expected = decode_frames(decoder, codes)
    tried = 0
    for index, stage in enumerate(decoder.stages):
        for kind in ("convs", "norms"):
            for place, field in product(range(len(getattr(stage, kind))), FIELDS[kind]):
                if (stage.op, kind, place, field) == ("attention", "convs", 1, "bias"):
                    continue  # the keys' is one for all places: softmax does not see it
                parts = list(getattr(stage, kind))
                old = getattr(parts[place], field)
                moved = -old if field == "weight" else old * 2 if field == "scale" else old + np.float32(1)
                moved[1::2] = old[1::2]  # what is one for all channels of a group, a norm takes away
                parts[place] = replace(parts[place], **{field: moved})
                other = replace(stage, **{kind: tuple(parts)})
                stages = (*decoder.stages[:index], other, *decoder.stages[index + 1 :])
                found = decode_frames(replace(decoder, stages=stages), codes)
                assert not np.array_equal(found, expected), (index, kind, place, field)
                tried += 1
    assert tried > 80


def test_quantization_leaves_the_model_as_it_was():
    model, same = random_vqgan(), random_vqgan()
    quantize_decoder(model)
    pairs = [
        (a, b)
        for stage, other in zip(model.stages, same.stages, strict=True)
        for part, counterpart in zip((*stage.convs, *stage.norms), (*other.convs, *other.norms), strict=True)
        for a, b in zip(part, counterpart, strict=True)
    ]
    assert pairs and all(torch.equal(a, b) for a, b in pairs)


def without_stage(model: FloatVqgan, index: int) -> FloatVqgan:
    return replace(model, stages=(*model.stages[:index], *model.stages[index:][1:]))


BROKEN = {
    r"decoder\.stages\.2: 48 channels; expected a multiple of the 32 groups": lambda m: random_vqgan(widths=(48, 32)),
    r"decoder\.stages\.1: stage 'pool'": lambda m: changed(m, 1, replace(m.stages[1], op="pool")),
    r"decoder\.stages\.3: attention of 1 norms and 3 conv": lambda m: changed(
        m, 3, replace(m.stages[3], convs=m.stages[3].convs[:3])
    ),
    r"decoder\.stages\.2: residual: the second norm has 64": lambda m: changed(
        m, 2, replace(m.stages[2], norms=(m.stages[2].norms[0], random_vqgan(widths=(64,)).stages[2].norms[1]))
    ),
    r"decoder: stage 1, residual: 32 channels; expected 6": lambda m: without_stage(m, 1),
    r"decoder: the last stage is not output": lambda m: without_stage(m, len(m.stages) - 1),
    r"decoder: the last stage is not output, to 3": lambda m: replace(m, stages=()),
    r"decoder: stage 6, output: not the last": lambda m: replace(m, stages=(*m.stages, m.stages[-1])),
    r"decoder: 3 codebooks for 4 codes": lambda m: replace(m, codebooks=m.codebooks[:3]),
    r"decoder: attention over 65536 places": lambda m: replace(m, latent_shape=(256, 256)),
    r"decoder: residual: 8392609 values a group": lambda m: replace(m, latent_shape=(2897, 2897)),
    r"decoder\.stages\.0: weights that are not finite": lambda m: changed(
        m, 0, replace(m.stages[0], convs=(m.stages[0].convs[0]._replace(bias=torch.full((6,), torch.nan)),))
    ),
    r"codebooks: values that are not finite": lambda m: replace(m, codebooks=(m.codebooks[0] / 0,)),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_the_integers_do_not_cover_is_refused(message: str):
    model = small() if "48" not in message else None
    with pytest.raises(CheckpointError, match=message):
        quantize_decoder(BROKEN[message](model))
