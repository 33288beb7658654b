"""Codes to RGB: one set of pixels from NumPy and from onnxruntime, near to those of the float decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from car_like import CONFIG, LAYOUT, PIXELS, random_clips, random_tokenizer

from fastcar.export.car.tokenizer import DecoderConfig, Stage, Tokenizer
from fastcar.export.decoder import quantize_decoder, write_decoder
from fastcar.export.importers import load_model
from fastcar.export.lower.decoder import lower_decoder
from fastcar.toolkit.backends.onnxruntime import open_session
from fastcar.toolkit.bundle.bundle import DECODER, Bundle
from fastcar.toolkit.errors import CheckpointError
from fastcar.toolkit.numerics.decoder import DecoderStage, IntegerConv, IntegerDecoder, decode_frames
from fastcar.toolkit.video.decode import FrameDecoder

BOUND_DB = 30.0


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return random_tokenizer()


@pytest.fixture(scope="module")
def calibration() -> torch.Tensor:
    return torch.from_numpy(random_clips(6, seed=1).codes.astype(np.int64).reshape(-1, *LAYOUT.grid))


@pytest.fixture(scope="module")
def decoder(tokenizer: Tokenizer, calibration: torch.Tensor) -> IntegerDecoder:
    return quantize_decoder(tokenizer, calibration)


def run_graph(
    decoder: IntegerDecoder, folder: Path, codes: np.ndarray, threads: int = 1, optimize: bool = True
) -> np.ndarray:
    ir.save(lower_decoder(decoder), folder / "decoder.onnx")
    return open_session(folder / "decoder.onnx", threads, optimize).run(["frames"], {"codes": codes})[0]


def codes_of(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, LAYOUT.codes, shape)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 2), (3, 1, 7), (1, 5, 3), (7, 3, 3)])
@pytest.mark.parametrize("optimize", [True, False])
def test_onnxruntime_gives_the_pixels_of_the_reference(
    decoder: IntegerDecoder, tmp_path: Path, shape: tuple[int, ...], optimize: bool
):
    codes = codes_of(shape)
    expected = decode_frames(decoder, codes)
    assert expected.shape == (shape[0], PIXELS * shape[1], PIXELS * shape[2], 3) and expected.dtype == np.uint8
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(run_graph(decoder, tmp_path, codes, optimize=optimize), expected)


def random_stage(random: np.random.Generator, op: str, inputs: int, outputs: int, kernel: int) -> DecoderStage:
    """Full-scale weights, and factors that keep activations within 0 .. 255."""
    convs = []
    for width in {"upsample": (), "residual": (inputs, outputs)}.get(op, (inputs,)):
        weight = random.integers(-127, 128, (outputs, width, kernel, kernel)).astype(np.int8)
        factor = random.uniform(0.5, 1.5, outputs) * 2e-2 / np.sqrt(weight[0].size)
        bias = random.normal(60, 40, outputs)
        convs.append(IntegerConv(weight, factor.astype(np.float32), bias.astype(np.float32)))
    return DecoderStage(op, tuple(convs), (np.float32(0.97),) * len(convs), np.float32(0.81))


@pytest.mark.parametrize("kernel", [1, 3])
def test_both_kernels_and_wide_maps_agree(tmp_path: Path, kernel: int):
    """48 channels: sums of some millions, whose scaling in another order would show."""
    random = np.random.default_rng(kernel)
    sizes = (("conv", 5, 48), ("upsample", 48, 48), ("residual", 48, 48), ("output", 48, 3))
    codebook = random.integers(-127, 128, (LAYOUT.codes, 5)).astype(np.int8)
    made = IntegerDecoder(codebook, tuple(random_stage(random, *size, kernel) for size in sizes))
    codes = codes_of((2, 5, 3))
    expected = decode_frames(made, codes)
    assert expected.std() > 20 and np.isin(expected, (0, 255)).mean() < 0.6
    np.testing.assert_array_equal(run_graph(made, tmp_path, codes), expected)


def single_conv(weight: np.ndarray, codebook: np.ndarray, factor: float, bias: float) -> IntegerDecoder:
    """A decoder that is only its last convolution, with output scale 1."""
    conv = IntegerConv(weight.astype(np.int8), np.full(3, factor, np.float32), np.full(3, bias, np.float32))
    return IntegerDecoder(codebook.astype(np.int8), (DecoderStage("output", (conv,), (np.float32(1),)),))


def test_half_values_round_to_even(tmp_path: Path):
    made = single_conv(np.ones((3, 1, 1, 1)), np.arange(24)[:, None], 1.0, 0.5)
    codes = np.arange(24).reshape(1, 4, 6)
    expected = 2 * ((np.arange(24) + 1) // 2)
    np.testing.assert_array_equal(decode_frames(made, codes)[..., 0].ravel(), expected)
    np.testing.assert_array_equal(run_graph(made, tmp_path, codes)[..., 0].ravel(), expected)


def test_scale_and_bias_are_rounded_one_after_the_other(tmp_path: Path):
    """A large sum that the bias takes away again: folding one into the other changes some of 98,304 values."""
    random = np.random.default_rng(0)
    codebook, weight = random.integers(-127, 128, (LAYOUT.codes, 5)), random.integers(-20, 21, (3, 5, 3, 3))
    codebook[:, 0] = weight[:, 0] = 127
    factor = 0.0157
    made = single_conv(weight, codebook, factor, 100 - 9 * 127 * 127 * factor)
    codes = codes_of((8, 64, 64))
    expected = decode_frames(made, codes)
    assert np.isin(expected, (0, 255)).mean() < 0.5
    np.testing.assert_array_equal(run_graph(made, tmp_path, codes), expected)


def test_threads_and_batches_change_no_pixel(decoder: IntegerDecoder, tmp_path: Path):
    codes = codes_of((5, 6, 4))
    one, two = (run_graph(decoder, tmp_path, codes, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    single = np.concatenate([run_graph(decoder, tmp_path, codes[index : index + 1]) for index in range(5)])
    np.testing.assert_array_equal(single, one)


def test_the_integer_decoder_is_near_the_float_one(tokenizer: Tokenizer, decoder: IntegerDecoder):
    codes = random_clips(4, seed=2).codes.astype(np.int64).reshape(-1, *LAYOUT.grid)
    wanted = tokenizer.decode(torch.from_numpy(codes)).numpy().astype(np.float64)
    found = decode_frames(decoder, codes).astype(np.float64)
    decibels = 10 * np.log10(255**2 / np.square(wanted - found).mean())
    assert decibels > BOUND_DB
    assert abs((wanted - found).mean()) < 1.0


def test_calibration_covers_what_it_has_seen(tokenizer: Tokenizer, calibration: torch.Tensor):
    """The scales come from maxima over all frames, in whatever batches they are seen."""
    import fastcar.export.decoder as module

    whole = module._peaks(tokenizer, calibration)
    parts = module._peaks(tokenizer, calibration, batch=4)
    assert whole.keys() == parts.keys()
    for index in whole:
        np.testing.assert_allclose(whole[index], parts[index], rtol=1e-5)


def test_quantization_leaves_the_tokenizer_as_it_was(calibration: torch.Tensor):
    tokenizer = random_tokenizer()
    before = {name: value.clone() for name, value in tokenizer.state_dict().items()}
    quantize_decoder(tokenizer, calibration)
    assert all(torch.equal(value, before[name]) for name, value in tokenizer.state_dict().items())


def test_an_all_zero_channel_is_only_its_bias(tokenizer: Tokenizer, calibration: torch.Tensor, tmp_path: Path):
    silent = random_tokenizer()
    with torch.no_grad():
        silent.decoder.stages[-1].weight[1] = 0
        silent.decoder.stages[-1].bias[1] = 0.5
        silent.decoder.stages[0].weight.zero_()
    made = quantize_decoder(silent, calibration)
    codes = codes_of((1, 2, 2))
    frames = decode_frames(made, codes)
    assert set(np.unique(frames[..., 1])) == {128}
    np.testing.assert_array_equal(run_graph(made, tmp_path, codes), frames)


def test_a_channel_that_could_leave_the_exact_integers_is_refused():
    """65793 * 255 is 2^24 - 1: the last that is exact."""

    def conv(total: int) -> IntegerConv:
        weight = np.zeros((2, 1100, 1, 1), np.int8)
        weight[1, : total // 127, 0, 0] = -127
        weight[1, -1, 0, 0] = total % 127
        return IntegerConv(weight, np.ones(2, np.float32), np.zeros(2, np.float32))

    conv(65793)
    with pytest.raises(ValueError, match="channel 1 can reach 16777470"):
        conv(65794)


def test_a_decoder_too_wide_is_an_error_of_the_checkpoint(calibration: torch.Tensor):
    config = DecoderConfig(
        embedding=6,
        stages=(Stage(op="conv", inputs=6, outputs=1024), Stage(op="conv", inputs=1024, outputs=3, relu=False)),
    )
    wide = Tokenizer(CONFIG.encoder, config, LAYOUT.codes)
    torch.nn.init.constant_(wide.decoder.stages[1].weight, 1.0)
    with pytest.raises(CheckpointError, match=r"decoder\.stages\.1: channel 0 can reach"):
        quantize_decoder(wide, calibration)


@pytest.mark.parametrize(
    ("stages", "place"),
    [
        ((("conv", 6, 4, False), ("conv", 4, 3, False)), 0),
        ((("conv", 6, 4, True), ("conv", 4, 3, True)), 1),
        ((("conv", 6, 4, True), ("conv", 4, 4, False)), 1),
        ((("conv", 6, 3, True), ("residual", 3, 3, True)), 1),
        ((("conv", 6, 3, True), ("upsample", 3, 3, True)), 1),
    ],
)
def test_stages_that_the_integers_do_not_cover_are_refused(calibration: torch.Tensor, stages: tuple, place: int):
    made = tuple(Stage(op=op, inputs=inputs, outputs=outputs, relu=relu) for op, inputs, outputs, relu in stages)
    tokenizer = Tokenizer(CONFIG.encoder, CONFIG.decoder, LAYOUT.codes)
    from fastcar.export.car.tokenizer import _build

    tokenizer.decoder.stages = torch.nn.ModuleList(_build(stage) for stage in made)
    with pytest.raises(CheckpointError, match=rf"decoder\.stages\.{place}"):
        quantize_decoder(tokenizer, calibration)


def test_the_bundle_holds_the_decoder_of_the_checkpoint(
    car_like: Path, bundle_w8a8: Path, calibration: torch.Tensor, tmp_path: Path
):
    made = quantize_decoder(load_model(car_like).pictures(), calibration)
    write_decoder(tmp_path / DECODER, made)
    assert (tmp_path / DECODER).read_bytes() == (bundle_w8a8 / DECODER).read_bytes()
    codes = codes_of((LAYOUT.frames, *LAYOUT.grid))
    for threads in (1, 2):
        found = FrameDecoder(Bundle.open(bundle_w8a8), threads)(codes)
        np.testing.assert_array_equal(found, decode_frames(made, codes))


def test_pixels_depend_on_every_part(decoder: IntegerDecoder):
    """The reference is not blind to a weight, a factor, a bias, a scale or the skip."""
    codes = codes_of((1, 3, 2))
    expected = decode_frames(decoder, codes)
    index = next(i for i, stage in enumerate(decoder.stages) if stage.op == "residual")
    stage = decoder.stages[index]
    conv = stage.convs[1]
    for changed in (
        replace(stage, skip=stage.skip * np.float32(1.3)),
        replace(stage, inverse_scales=(stage.inverse_scales[0] * np.float32(0.5), stage.inverse_scales[1])),
        replace(stage, convs=(stage.convs[0], replace(conv, bias=conv.bias + np.float32(0.3)))),
        replace(stage, convs=(stage.convs[0], replace(conv, weight=-conv.weight))),
    ):
        stages = (*decoder.stages[:index], changed, *decoder.stages[index + 1 :])
        assert not np.array_equal(decode_frames(replace(decoder, stages=stages), codes), expected)
