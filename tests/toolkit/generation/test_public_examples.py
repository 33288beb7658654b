"""The examples in the docstrings of the public names run as they stand, on a small bundle."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from car_like import LAYOUT

import fastcar
from fastcar.export import importers
from fastcar.toolkit.bundle.bundle import Bundle


def example_of(thing: Any, marker: str = "Example::") -> str:
    """The indented block after ``marker`` in the docstring."""
    lines = inspect.getdoc(thing).split(marker)[1].splitlines()[1:]
    block = []
    for line in lines:
        if line.strip() and not line.startswith("    "):
            break
        block.append(line)
    return textwrap.dedent("\n".join(block))


@pytest.fixture
def folder(
    car_like: Path, bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], Path]:
    """A working directory where ``car`` is the small model, with its bundle if asked for."""

    def make(with_bundle: bool) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(importers.BUILT_IN, "car", str(car_like))
        if with_bundle:
            (tmp_path / "car-w8a8").symlink_to(bundle_w8a8)
        return tmp_path

    return make


@pytest.mark.parametrize("name", ["Bundle", "generate"])
def test_example_on_a_bundle(name: str, folder: Callable[[bool], Path], capsys: pytest.CaptureFixture[str]):
    folder(True)
    exec(example_of(getattr(fastcar, name)), {"fastcar": fastcar})
    printed = capsys.readouterr().out
    assert ("w8a8 ('straight', 'left turn'" if name == "Bundle" else f"(1, 4, {LAYOUT.tokens_per_frame})") in printed


def test_example_of_an_export(folder: Callable[[bool], Path], capsys: pytest.CaptureFixture[str]):
    folder(False)
    exec(example_of(fastcar.export_model), {"fastcar": fastcar})
    assert "cross_entropy_fp32" in capsys.readouterr().out
    Bundle.open("car-w8a8").verify()


def test_example_of_the_package(folder: Callable[[bool], Path]):
    folder(False)
    names: dict[str, Any] = {}
    exec(example_of(fastcar, "torch::"), names)
    assert names["generation"].codes.shape == (1, LAYOUT.frames, LAYOUT.tokens_per_frame)
    assert names["bundle"].path == Path("car-w8a8")


def test_the_built_in_model_is_a_folder_of_the_package():
    from importlib.resources import files

    for path in importers.BUILT_IN.values():
        assert str(files("fastcar.export").joinpath(path)).endswith(path)


def test_the_board_side_imports_nothing_heavy():
    code = """
import sys, fastcar
from fastcar.toolkit.cli.app import cli
fastcar.Bundle, fastcar.generate
import fastcar.toolkit.cli.generate, fastcar.toolkit.cli.inspect
heavy = {"torch", "brevitas", "onnx", "onnx_ir", "onnxruntime"} & set(sys.modules)
sys.exit(", ".join(heavy) or 0)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert result.returncode == 0, result.stderr


def test_public_names():
    assert set(fastcar.__all__) <= set(dir(fastcar))
    for name in fastcar.__all__:
        assert getattr(fastcar, name)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = fastcar.nonsense
