"""LPIPS: how far two videos are apart to the eye, frame by frame, by the features of a network that knows pictures.

Zhang, Isola, Efros, Shechtman and Wang, "The unreasonable effectiveness of deep features as a perceptual metric", CVPR
2018 (arXiv 1801.03924), version 0.1 with AlexNet, written out here: of five convolutions nothing else is needed, and
torchvision would be. Two files hold its numbers, and nothing is downloaded: the AlexNet that torchvision publishes, and
the linear heads, which ship inside the package `lpips` (their file is read; the package is not imported).
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..bundle.manifest import file_entry
from ..errors import UsageError
from .metrics import check_videos

if TYPE_CHECKING:
    import torch

__all__ = ["LPIPS_WEIGHTS", "Lpips", "missing_for_lpips", "open_lpips"]

LPIPS_WEIGHTS = "FASTCAR_LPIPS_WEIGHTS"  # environment variable: the path of AlexNet's file
PUBLISHED = "alexnet-owt-7be5be79.pth"  # torchvision's AlexNet_Weights.IMAGENET1K_V1; of its sha256 the first digits
FETCH = f"Fetch {PUBLISHED}, the AlexNet of torchvision, and give its path or set {LPIPS_WEIGHTS} to it."
INSTALL = "Install the package: pip install --no-deps lpips."

# Of AlexNet (arXiv 1404.5997), by the index among its ``features``: weight, stride, padding, whether pooled before.
CONVOLUTIONS = {
    0: ((64, 3, 11, 11), 4, 2, False),
    3: ((192, 64, 5, 5), 1, 2, True),
    6: ((384, 192, 3, 3), 1, 1, True),
    8: ((256, 384, 3, 3), 1, 1, False),
    10: ((256, 256, 3, 3), 1, 1, False),
}
SMALLEST = 31  # pixels: below, nothing is left after the second pooling
MEAN, DEVIATION = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of ImageNet's channels, pixels in -1 .. 1
EPSILON = 1e-10
BATCH = 16  # frames at a time


@dataclass(frozen=True)
class Lpips:
    """``lpips(reference, video)``. ``convolutions``: weight and bias of each; ``heads``: (channels,) of each.

    ``sha256``: of AlexNet's file, to tell which network measured.
    """

    convolutions: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    heads: tuple[torch.Tensor, ...]
    sha256: str

    @property
    def published(self) -> bool:
        """Whether AlexNet's file is the one that everybody's figures are made with."""
        return PUBLISHED.endswith(f"-{self.sha256[:8]}.pth")

    def __call__(self, reference: np.ndarray, video: np.ndarray) -> np.ndarray:
        """Distance of every frame, no unit, 0 for equal ones: (frames,) float64, the sum over five layers of the mean
        over a map's places of the weighted squared differences of unit-length features (equation 1 of the paper).

        ``reference``, ``video``: (frames, height, width, 3) uint8 RGB. In binary32, so the last digits depend on the
        machine. ValueError when shapes differ, the type is not uint8, or a side is too short for AlexNet.
        """
        import torch

        check_videos(reference, video)
        if min(reference.shape[1:3]) < SMALLEST:
            size = " x ".join(map(str, reference.shape[1:3]))
            raise ValueError(f"lpips: frames of {size} pixels; expected at least {SMALLEST} x {SMALLEST}")
        with torch.no_grad():
            batches = [slice(first, first + BATCH) for first in range(0, len(video), BATCH)]
            return np.concatenate([self._distances(reference[batch], video[batch]) for batch in batches])

    def _distances(self, reference: np.ndarray, video: np.ndarray) -> np.ndarray:
        total = np.zeros(len(video))
        pairs = zip(self._features(reference), self._features(video), self.heads, strict=True)
        for one, other, head in pairs:
            total += ((one - other).square() * head[:, None, None]).sum(1).double().mean((1, 2)).numpy()
        return total

    def _features(self, video: np.ndarray) -> list[torch.Tensor]:
        """After each ReLU, (frames, channels, height', width'), every place's channels of length 1."""
        import torch
        from torch.nn import functional as F

        pixels = torch.from_numpy(np.ascontiguousarray(video)).permute(0, 3, 1, 2).float() / 127.5 - 1
        x = (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]
        features = []
        for (weight, bias), (_, stride, padding, pooled) in zip(self.convolutions, CONVOLUTIONS.values(), strict=True):
            x = F.max_pool2d(x, 3, 2) if pooled else x
            x = F.conv2d(x, weight, bias, stride, padding).relu()
            features.append(x / (x.square().sum(1, keepdim=True).sqrt() + EPSILON))
        return features


def missing_for_lpips(weights: Path | None = None, heads: Path | None = None) -> str:
    """What LPIPS cannot be computed without and is not here, and how to get it; "" if nothing is missing.

    ``weights``: AlexNet's file, by default what ``FASTCAR_LPIPS_WEIGHTS`` names; ``heads``: that of the linear heads,
    by default the one in the package `lpips`. UsageError for a file that is named and not there.
    """
    missing = [] if find_spec("torch") else ["No package torch: pip install 'fastcar-edge[export]'."]
    missing += [] if _weights(weights) else [f"No AlexNet weights. {FETCH}"]
    missing += [] if _heads(heads) else [f"No linear heads. {INSTALL}"]
    return " ".join(missing)


def open_lpips(weights: Path | None = None, heads: Path | None = None) -> Lpips | None:
    """From the files of :func:`missing_for_lpips`; None if that names any. Files are read as tensors only.

    UsageError for a file that is named and not there, cannot be read, or does not hold the tensors of its network.
    """
    if missing_for_lpips(weights, heads):
        return None
    path, of_heads = _weights(weights), _heads(heads)
    names = [f"features.{index}" for index in CONVOLUTIONS]
    shapes = dict(zip(names, (shape for shape, *_ in CONVOLUTIONS.values()), strict=True))
    kernels = {f"{name}.weight": shape for name, shape in shapes.items()}
    biases = {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    network = _read(path, kernels | biases, FETCH)
    linear = {f"lin{index}.model.1.weight": (1, shape[0], 1, 1) for index, shape in enumerate(shapes.values())}
    convolutions = tuple((network[f"{name}.weight"], network[f"{name}.bias"]) for name in names)
    rows = tuple(tensor.flatten() for tensor in _read(of_heads, linear, INSTALL).values())
    return Lpips(convolutions, rows, file_entry(path).sha256)


def _weights(given: Path | None) -> Path | None:
    named = given or os.environ.get(LPIPS_WEIGHTS)
    return _existing(Path(named), "LPIPS weights" if given else LPIPS_WEIGHTS, FETCH) if named else None


def _heads(given: Path | None) -> Path | None:
    if given:
        return _existing(given, "LPIPS heads", INSTALL)
    spec = find_spec("lpips")
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = [path for folder in folders if (path := Path(folder) / "weights/v0.1/alex.pth").is_file()]
    return found[0] if found else None


def _existing(path: Path, subject: str, fix: str) -> Path:
    if not path.is_file():
        raise UsageError(subject, f"no file {path}", "a file of PyTorch tensors", fix)
    return path


def _read(path: Path, shapes: dict[str, tuple[int, ...]], fix: str) -> dict[str, torch.Tensor]:
    """The tensors named in ``shapes``, float32; UsageError if one is missing, of another shape or not finite."""
    import torch

    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(path, f"cannot be read ({reason})", "a file of PyTorch tensors", fix) from error
    stored = stored if isinstance(stored, dict) else {}
    for name, shape in shapes.items():
        tensor = stored.get(name)
        if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape:
            found = f"is {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else "is missing"
            raise UsageError(path, f"tensor {name} {found}", f"{shape}", fix)
        if not tensor.isfinite().all():
            raise UsageError(path, f"tensor {name} holds a number that is none", "finite ones", fix)
    return {name: stored[name].float() for name in shapes}
