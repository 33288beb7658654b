"""Helpers shared by the tests lie in tests/support, which is put on the path here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(scope="session")
def car_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint folder with random weights; not to be modified."""
    from car_like import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "car-like")


@pytest.fixture(scope="session")
def bundle_w8a8(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle folder exported from ``car_like``; not to be modified."""
    return _export(car_like, tmp_path_factory.mktemp("bundle") / "w8a8")


@pytest.fixture(scope="session")
def bundle_w4a8(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with 4-bit weights."""
    return _export(car_like, tmp_path_factory.mktemp("bundle") / "w4a8")


def _export(checkpoint: Path, out: Path) -> Path:
    """On one thread: the float sums of calibration, and with them the scales, may depend on their number."""
    import torch

    from fastcar.export.pipeline import export_model

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return export_model(checkpoint, out, recipe=out.name).path
    finally:
        torch.set_num_threads(before)
