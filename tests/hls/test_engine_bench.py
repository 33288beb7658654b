"""The engine's test bench: golden starts of the whole engine, as C simulation and co-simulation run it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_engine import small_engine

import fastcar
from fastcar.hls.build import FLAGS, arithmetic_headers, build_library, compile_with, include_flags
from fastcar.hls.codegen import config_header, write_headers
from fastcar.hls.engine_bench import bench_model
from fastcar.hls.engine_golden import engine_cases, write_engine_golden
from fastcar.hls.golden import encoded
from fastcar.overlays import engine_names, load_engine
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.program.engine import DepthCapacity, EngineConfig
from fastcar.toolkit.program.register_map import POINTERS
from fastcar.toolkit.program.registers import CONTROL

HLS = Path(fastcar.__file__).parent / "hls"
SMALLEST = small_engine(
    groups=1, vector=1, rows=1, max_layers=1, max_hidden=32, max_mlp=32, max_heads=1, max_kv_heads=1, max_group=1,
    max_head_dim=16, max_slots=64, max_codes=8, weight_fifo_beats=64,
)  # fmt: skip
CONFIG = small_engine()
DEEP = small_engine(depth=DepthCapacity(layers=2, codes_per_position=3, code_dim=32))
SMALLEST_DEEP = SMALLEST.model_copy(update={"depth": DepthCapacity(layers=1, codes_per_position=1, code_dim=32)})


def arithmetic_is_installed() -> bool:
    try:
        return arithmetic_headers().exists() and shutil.which(os.environ.get("CXX") or "g++") is not None
    except UsageError:
        return False


compiled = pytest.mark.skipif(not arithmetic_is_installed(), reason="no C++ compiler, or no ap_int.h")


@pytest.fixture(scope="module", params=[CONFIG, DEEP], ids=["head", "depth"])
def engine(request: pytest.FixtureRequest) -> EngineConfig:
    """Without and with depth transformers."""
    return request.param


@pytest.fixture(scope="module")
def bench(engine: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, linked with the engine's library: compiled once for all tests of that engine."""
    return compiled_bench(engine, tmp_path_factory.mktemp("engine"))


def compiled_bench(engine: EngineConfig, folder: Path) -> Path:
    write_headers(folder, engine)
    library, program = build_library(engine), folder / "engine_tb"
    source = str(HLS / "tb/engine_tb.cpp")
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-pthread"]
    compile_with([*FLAGS, "-Werror", "-O0", *include_flags(folder), source, "-o", str(program), *link])
    return program


def run(program: Path, golden: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, golden], capture_output=True, text=True, timeout=60)


@compiled
def test_the_engine_equals_the_reference(engine: EngineConfig, bench: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "engine.golden"
    write_engine_golden(path, engine)
    done = run(bench, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "engine: seeded and 11 golden cases equal\n"


@compiled
def test_the_smallest_engine_with_depth_transformers(tmp_path: Path) -> None:
    write_engine_golden(tmp_path / "golden", SMALLEST_DEEP)
    done = run(compiled_bench(SMALLEST_DEEP, tmp_path), tmp_path / "golden")
    assert (done.returncode, done.stderr) == (0, "")


@compiled
@pytest.mark.parametrize("array", ["codes", "replay", "scores", "logits"])
def test_a_difference_of_one_bit_is_named(array: str, engine: EngineConfig, bench: Path, tmp_path: Path) -> None:
    cases = engine_cases(engine)
    last = list(cases)[-1]
    changed = cases[last][array].copy()
    bits = changed.reshape(-1).view(f"u{changed.itemsize}")
    bits[-1:] ^= bits.dtype.type(1)
    (tmp_path / "golden").write_bytes(encoded("engine", cases | {last: cases[last] | {array: changed}}))
    done = run(bench, tmp_path / "golden")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"engine: {last} {array}, index {changed.size - 1}: got")


@compiled
@pytest.mark.parametrize("array", ["tokens", "uniforms", "thresholds", "padding"])
def test_what_the_host_writes_matters(array: str, engine: EngineConfig, bench: Path, tmp_path: Path) -> None:
    cases = engine_cases(engine)
    for name, arrays in cases.items():
        if name.startswith("frame 1"):
            low = np.zeros_like(arrays[array]) if array != "thresholds" else np.full_like(arrays[array], -(1 << 40))
            cases[name] = arrays | {array: low}
    (tmp_path / "golden").write_bytes(encoded("engine", cases))
    assert run(bench, tmp_path / "golden").returncode == 1


@compiled
def test_given_codes_and_their_own_start_matter(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """Of an engine with depth transformers: other codes in the prompt, or one start too few for the last code."""
    program = compiled_bench(DEEP, tmp_path_factory.mktemp("deep"))
    prompt = engine_cases(DEEP)["prompt 1"]
    uniforms = prompt["uniforms"].copy()
    uniforms.flat[0] ^= 1  # of the first code, which the logits of the second depend on
    for name, change in (("prompt 1", {"uniforms": uniforms}), ("frame 0, place 0", {"starts": np.array([2])})):
        cases = engine_cases(DEEP)
        (tmp_path / "golden").write_bytes(encoded("engine", cases | {name: cases[name] | change}))
        done = run(program, tmp_path / "golden")
        assert done.returncode == 1 and done.stderr.startswith(f"engine: {name} logits"), done.stderr


@compiled
def test_golden_starts_of_another_engine_are_refused(engine: EngineConfig, bench: Path, tmp_path: Path) -> None:
    path = tmp_path / "golden"
    write_engine_golden(path, SMALLEST)
    assert "program: golden vectors of another engine" in run(bench, path).stderr
    write_engine_golden(path, engine.model_copy(update={"groups": 2}))  # as large, but of another build
    assert "prompt 0 status, index 0: got 1, expected 0" in run(bench, path).stderr


@pytest.mark.parametrize(
    "engine", [CONFIG, SMALLEST, DEEP, SMALLEST_DEEP, *(load_engine(name).config for name in engine_names())]
)
def test_depths_are_the_buffers_sizes(engine: EngineConfig) -> None:
    """Of every pointer of the interface; the bench allocates as many beats, co-simulation copies as many."""
    cases = engine_cases(engine)
    depths = bench_model(engine).depths(engine)
    assert depths["PROGRAM_DEPTH"] * 16 == cases["model"]["program"].nbytes
    assert depths["WEIGHT_DEPTH"] * 16 == cases["model"]["weights"].nbytes
    controls = [CONTROL.unpack(arrays["control"]) for name, arrays in cases.items() if name != "model"]
    assert {control["state_beats"] for control in controls} == {depths["STATE_DEPTH"]}
    header = config_header(engine)
    assert all(f"constexpr int {name} = {value};" in header for name, value in depths.items())
    assert {control["steps"] for control in controls} == {1}  # of a start


def test_every_memory_pointer_has_a_depth() -> None:
    text = (HLS / "engine/engine.cpp").read_text()
    depths = dict(re.findall(r"#pragma HLS INTERFACE mode=m_axi port=(\w+) .*\bdepth=(\w+)_DEPTH", text))
    kinds = {"program": "PROGRAM", "tables": "WEIGHT", "weights": "WEIGHT", "state": "STATE"}
    assert depths == {port: kinds[port.rstrip("0123")] for port in POINTERS}


def test_the_clip_replays_rows_alone_and_together(engine: EngineConfig) -> None:
    masks = {int(mask) for arrays in engine_cases(engine).values() for mask in arrays.get("replay", ())}
    assert {0, 3} < masks and masks & {1, 2}
