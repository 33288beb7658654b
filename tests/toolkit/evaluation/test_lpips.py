"""LPIPS with random weights against the formula of its paper, written with torch's own layers."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation import lpips
from fastcar.toolkit.evaluation.lpips import LPIPS_WEIGHTS, missing_for_lpips, open_lpips

CHANNELS = (64, 192, 384, 256, 256)
CLIP = np.random.default_rng(0).integers(0, 256, (19, 40, 33, 3), dtype=np.uint8)  # more than a batch, not square
NOISY = (CLIP + np.random.default_rng(1).normal(0, 20, CLIP.shape)).clip(0, 255).astype(np.uint8)


def alexnet() -> nn.Sequential:
    """The features of AlexNet as published; indices are those of its file."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, padding=2), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2), nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a tensor of the classifier, which the published file has, too."""
    path = tmp_path_factory.mktemp("alexnet") / "alexnet.pth"
    features = {f"features.{name}": tensor for name, tensor in alexnet().state_dict().items()}
    torch.save(features | {"classifier.1.bias": torch.zeros(9)}, path)
    return path


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("heads") / "alex.pth"
    torch.save({f"lin{i}.model.1.weight": torch.rand(1, width, 1, 1) for i, width in enumerate(CHANNELS)}, path)
    return path


@torch.no_grad()
def by_the_paper(weights: Path, heads: Path, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Equation 1 in binary64, a place at a time, over AlexNet as torch's own layers."""
    network, linear = alexnet().double(), torch.load(heads, weights_only=True)
    stored = torch.load(weights, weights_only=True)
    network.load_state_dict({k.removeprefix("features."): v for k, v in stored.items() if k.startswith("features")})
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    maps = []
    for video in (one, other):
        x = 2 * torch.from_numpy(video.astype(np.float64)) / 255 - 1
        x, taken = ((x - shift.double()) / scale.double()).permute(0, 3, 1, 2), []
        for index, layer in enumerate(network[:12]):
            x = layer(x)
            if index in (1, 4, 7, 9, 11):
                taken.append(nn.functional.normalize(x, dim=1, eps=1e-10))
        maps.append(taken)
    total = torch.zeros(len(one), dtype=torch.float64)
    for layer, (a, b) in enumerate(zip(*maps, strict=True)):
        w = linear[f"lin{layer}.model.1.weight"].double()
        for row in range(a.shape[2]):
            for column in range(a.shape[3]):
                difference = w[0, :, 0, 0].sqrt() * (a - b)[:, :, row, column]
                total += difference.norm(dim=1) ** 2 / (a.shape[2] * a.shape[3])
    return total.numpy()


def test_as_in_the_paper(weights: Path, heads: Path):
    found = open_lpips(weights, heads)(CLIP, NOISY)
    assert found.shape == (19,) and found.dtype == np.float64 and len(np.unique(found)) == 19
    assert found == pytest.approx(by_the_paper(weights, heads, CLIP, NOISY), rel=1e-4)
    assert found[3] == pytest.approx(open_lpips(weights, heads)(CLIP[3:4], NOISY[3:4])[0], rel=1e-5)


def test_equal_frames_are_at_distance_zero(weights: Path, heads: Path):
    measure = open_lpips(weights, heads)
    assert (measure(CLIP, CLIP) == 0).all()
    assert measure(CLIP, NOISY) == pytest.approx(measure(NOISY, CLIP), rel=1e-5)
    assert not measure.published and len(measure.sha256) == 64


def test_videos_that_do_not_fit_are_refused(weights: Path, heads: Path):
    measure = open_lpips(weights, heads)
    assert measure(CLIP[:1, :31, :31], NOISY[:1, :31, :31]) > 0
    with pytest.raises(ValueError, match="30 x 33 pixels; expected at least 31 x 31"):
        measure(CLIP[:, :30], NOISY[:, :30])
    with pytest.raises(ValueError, match="expected uint8"):
        measure(CLIP, NOISY.astype(np.float32))


def test_the_environment_names_the_weights(weights: Path, heads: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LPIPS_WEIGHTS, str(weights))
    assert missing_for_lpips(heads=heads) == ""
    assert open_lpips(heads=heads)(CLIP[:1], NOISY[:1]) == open_lpips(weights, heads)(CLIP[:1], NOISY[:1])
    monkeypatch.setenv(LPIPS_WEIGHTS, "/nowhere/alexnet.pth")
    with pytest.raises(UsageError, match=r"FASTCAR_LPIPS_WEIGHTS: no file /nowhere/alexnet.pth; expected .*Fetch alex"):
        open_lpips(heads=heads)


def test_what_is_missing_is_told(weights: Path, heads: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(LPIPS_WEIGHTS, raising=False)
    told = missing_for_lpips(heads=heads)
    assert told.startswith("No AlexNet weights. Fetch alexnet-owt-7be5be79.pth") and LPIPS_WEIGHTS in told
    assert open_lpips(heads=heads) is None
    monkeypatch.setattr(lpips, "find_spec", lambda name: None if name == "lpips" else find_spec(name))
    assert missing_for_lpips(weights) == "No linear heads. Install the package: pip install --no-deps lpips."
    assert open_lpips(weights) is None
    monkeypatch.setattr(lpips, "find_spec", lambda name: None)
    assert missing_for_lpips(weights, heads).startswith("No package torch") and open_lpips(weights, heads) is None


@pytest.mark.skipif(not find_spec("lpips"), reason="the package lpips is not installed")
def test_the_heads_of_the_package_are_found_without_importing_it(weights: Path):
    """They are weights of squares, hence not negative."""
    measure = open_lpips(weights)
    assert [len(head) for head in measure.heads] == list(CHANNELS)
    assert all(head.min() >= 0 and head.max() > 0.1 for head in measure.heads)
    assert measure(CLIP[:1], NOISY[:1]) > 0 and "lpips" not in sys.modules


def changed(path: Path, out: Path, **tensors: torch.Tensor | None) -> Path:
    stored = torch.load(path, weights_only=True) | {k.replace("_", "."): v for k, v in tensors.items()}
    torch.save({name: tensor for name, tensor in stored.items() if tensor is not None}, out)
    return out


def test_files_that_cannot_be_used_are_named(weights: Path, heads: Path, tmp_path: Path):
    file = tmp_path / "x.pth"
    with pytest.raises(UsageError, match="tensor features.3.bias is missing"):
        open_lpips(changed(weights, file, features_3_bias=None), heads)
    with pytest.raises(UsageError, match=r"features.10.weight is \(2,\); expected \(256, 256, 3, 3\)"):
        open_lpips(changed(weights, file, features_10_weight=torch.zeros(2)), heads)
    with pytest.raises(UsageError, match="features.0.bias holds a number that is none"):
        open_lpips(changed(weights, file, features_0_bias=torch.full((64,), torch.nan)), heads)
    with pytest.raises(UsageError, match="lin0.model.1.weight is missing"):
        open_lpips(weights, weights)
    file.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UsageError, match=r"x.pth: cannot be read"):
        open_lpips(file, heads)
    torch.save(nn.Linear(2, 2), file)  # a pickled object: its code would run
    with pytest.raises(UsageError, match=r"x.pth: cannot be read .*Weights only"):
        open_lpips(file, heads)
    with pytest.raises(UsageError, match="LPIPS heads: no file"):
        open_lpips(weights, tmp_path / "none.pth")
