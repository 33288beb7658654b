"""Building the simulation: what is cached is whole, and what is missing is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from small_engine import small_engine

from fastcar.hls import build
from fastcar.hls.library import EngineLibrary
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.program.engine import DepthCapacity, EngineConfig

ENGINE = small_engine(rows=1, max_layers=1, max_hidden=32, max_mlp=32, max_slots=64, max_codes=32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fastcar"


def test_a_library_that_was_cut_short_is_built_again(cache: Path) -> None:
    library = build.build_library(ENGINE, optimize="-O0")
    made = library.read_bytes()
    stamp = library.stat().st_mtime_ns
    assert build.build_library(ENGINE, optimize="-O0").stat().st_mtime_ns == stamp
    library.write_bytes(made[:1000])
    assert build.build_library(ENGINE, optimize="-O0").stat().st_size == len(made)
    library.unlink()
    assert EngineLibrary(ENGINE, build.build_library(ENGINE, optimize="-O0")).config == ENGINE
    assert sorted(path.suffix for path in cache.iterdir()) == [".sha256", ".so"]  # nothing half-built is left


def test_missing_tools_and_places(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setenv("CXX", "no-such-compiler")
        with pytest.raises(UsageError, match="no no-such-compiler; expected g"):
            build.build_library(ENGINE)
    with monkeypatch.context() as context:
        context.setenv("FASTCAR_AP_TYPES", str(tmp_path / "nowhere"))
        with pytest.raises(UsageError, match="FASTCAR_AP_TYPES: .*nowhere; expected a folder with ap_int.h"):
            build.build_library(ENGINE)
    with monkeypatch.context() as context:
        context.delenv("FASTCAR_AP_TYPES", raising=False)
        context.delenv("XILINX_HLS", raising=False)
        context.setattr(build.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UsageError, match="no ap_int.h; .*pip install --no-deps hls4ml"):
            build.build_library(ENGINE)
    occupied = tmp_path / "file"
    occupied.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    with pytest.raises(UsageError, match="cache of compiled engines: .*Set XDG_CACHE_HOME"):
        build.build_library(ENGINE)


def test_the_engine_as_synthesis_sees_it_compiles(tmp_path: Path) -> None:
    """Without the simulation's streams and processes: Vitis HLS's own streams, here those of the headers' package."""
    build.write_headers(tmp_path, ENGINE)
    flags = [flag for flag in build.FLAGS if flag != "-DFASTCAR_SIMULATION"]
    include = build.include_flags(tmp_path)
    build.compile_with([*flags, "-w", "-fsyntax-only", *include, str(build.HERE / "engine/engine.cpp")])


def symbols(folder: Path, config: EngineConfig) -> str:
    """Of the optimized engine: what is reached."""
    build.write_headers(folder, config)
    target = folder / "engine.o"
    source = str(build.HERE / "engine/engine.cpp")
    build.compile_with([*build.FLAGS, "-O2", "-w", "-c", *build.include_flags(folder), source, "-o", str(target)])
    return subprocess.run(["nm", "-C", target], capture_output=True, text=True, check=True).stdout


def test_an_engine_without_depth_transformers_has_nothing_of_them(tmp_path: Path) -> None:
    """The compiler finds that no path leads there: what is never reached becomes no hardware either."""
    depth = DepthCapacity(layers=1, codes_per_position=2, code_dim=32)
    without = symbols(tmp_path / "without", ENGINE)
    with_depth = symbols(tmp_path / "with", ENGINE.model_copy(update={"depth": depth}))
    assert "PHI_TABLE" in with_depth and "SIGMOID_TABLE" in without
    for name in ("PHI_TABLE", "gelu", "layer_norm", "add_code", "read_codes", "deep_heads", "depth_input", "project("):
        assert name not in without, name
