"""Engines built from a changed copy of the kernels, and runs in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree

from fastcar.hls import build
from fastcar.hls.codegen import write_headers
from fastcar.toolkit.program.engine import EngineConfig

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from random_models import Run, assert_same_bits, generate_clip, reference_backend
import pathlib
import test_csim
from small_engine import small_engine
from fastcar.hls.library import EngineLibrary
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings
for bits in (8, 4):
    model = test_csim.model_of(bits)
    run = test_csim.replaying(model, Run(clips=2, attention=AttentionSettings(3, 40)))
    library = EngineLibrary(small_engine(), pathlib.Path(sys.argv[1]))
    backend = test_csim.CSimBackend(library, test_csim.pack_model(model, small_engine()), model.config, model.layout)
    expected = generate_clip(reference_backend(model), run, frames=2)
    assert_same_bits(generate_clip(backend, run, frames=2), expected)
print("equal")
"""


def build_mutant(folder: Path, config: EngineConfig, header: str, before: str, after: str) -> Path:
    """The library from kernels in which ``before`` (once in ``header``) is ``after``."""
    return build_mutants(folder, config, [(header, before, after)])


def build_mutants(folder: Path, config: EngineConfig, changes: Sequence[tuple[str, str, str]]) -> Path:
    """The same with several changes: (header, before, after)."""
    source = folder / "hls"
    copytree(build.HERE, source, ignore=lambda *_: ["rtl", "tb", "lint", "checks", "__pycache__"])
    for header, before, after in changes:
        path = source / "include/fastcar" / header
        text = path.read_text()
        assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in {header}"
        path.write_text(text.replace(before, after))
    write_headers(folder / "generated", config)
    library = folder / "mutant.so"
    include = [flag.replace(str(build.HERE), str(source)) for flag in build.include_flags(folder / "generated")]
    sources = [str(source / name) for name in build.ENGINE]
    build.compile_with(
        [*build.FLAGS, "-O1", "-w", "-fPIC", "-shared", *include, *sources, "-o", str(library), "-pthread"]
    )
    return library


def build_with_blackbox(folder: Path, config: EngineConfig) -> Path:
    """The library whose kernels call the function of the RTL blackbox, as synthesis does."""
    write_headers(folder / "generated", config)
    library = folder / "blackbox.so"
    sources = [str(build.HERE / name) for name in (*build.ENGINE, "rtl/processing_group.cpp")]
    flags = [*build.FLAGS, "-O2", "-w", "-fPIC", "-shared", "-DFASTCAR_RTL_BLACKBOX"]
    build.compile_with([*flags, *build.include_flags(folder / "generated"), *sources, "-o", str(library), "-pthread"])
    return library


def run_in_process(folder: Path, config: EngineConfig, sanitizers: tuple[str, ...]) -> None:
    """Two clips through a sanitized library; the sanitizers' runtime must be loaded before Python itself."""
    library = build.build_library(config, optimize="-O1", extra=sanitizers)
    runtime = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "toolkit/backends"), *sys.path]),
    }
    command = [sys.executable, "-c", SCRIPT, str(library), str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip().endswith("equal"), done.stderr[-3000:]
