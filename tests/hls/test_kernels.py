"""Every kernel against its test bench: golden vectors of the NumPy reference, then seeded cases with an own reference.

A bench is only worth something if it fails: each must notice results that differ in their last bit, and a kernel with
one expression changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fastcar
from fastcar.hls.build import FLAGS, SANITIZERS, arithmetic_headers, compile_with, include_flags
from fastcar.hls.codegen import write_headers
from fastcar.hls.golden import KERNELS, encoded, golden_cases
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.program.engine import EngineConfig

HLS = Path(fastcar.__file__).parent / "hls"
# The engine's own takes programs, not vectors: test_engine_bench.py.
BENCHES = sorted({path.name.removesuffix("_tb.cpp") for path in (HLS / "tb").glob("*_tb.cpp")} - {"engine"})
CONFIG = EngineConfig(
    name="bench", groups=8, vector=8, rows=32, max_layers=2, max_hidden=64, max_mlp=64, max_heads=4, max_kv_heads=2,
    max_group=4, max_head_dim=32, max_slots=128, max_codes=64, weight_fifo_beats=64, clock_mhz=200,
)  # fmt: skip
RUN_SECONDS = 120

# The vendor's headers shift negative numbers. Every other report ends the run.
RECOVER = ("-fsanitize-recover=shift",)
SUPPRESSIONS = "shift-base:ap_private.h\n"

RESULTS = {
    "attention": "y",
    "drs": "row",
    "float32": "root",
    "gelu": "y",
    "layer_norm": "values",
    "processing_group": "sums",
    "quant_linear": "y",
    "quantize_rows": "scale",
    "replay_decision": "replays",
    "replay_mlp": "bits",
    "rms_norm": "scale",
    "rotary_embedding": "values",
    "sample": "codes",
    "swiglu": "y",
    "temporal_attention_score": "score",
    "visible": "seen",
}
MUTATIONS = {
    "attention": ("visible.sees(block, lane + 1) && sum1", "sum1"),  # the peak of what is not seen
    "drs": ("if (entry[group] >= count)", "if (entry[group] > count)"),
    "float32": ("rest == half && (whole & 1u)", "rest == half"),
    "gelu": ("PHI_TABLE[activation_index(x)]", "PHI_TABLE[activation_index(x) ^ 1]"),
    "layer_norm": ("n * squares - sum * sum", "n * squares"),
    "processing_group": ("x_unsigned ? 255 : -1", "x_unsigned ? 127 : -1"),
    "quant_linear": ("ends_tile && drain_entry < count;", "false;"),  # a bank overwritten before it is drained
    "quantize_rows": ("if (index < n)", "if (index <= n)"),
    "replay_decision": ("sum > threshold * rows", "sum >= threshold * rows"),
    "replay_mlp": ("if (output + 1 < outputs)", "if (output < outputs)"),
    "rms_norm": ("eps / (step * step)", "eps / step"),
    "rotary_embedding": ("clamp(round_half_even(x / scale), -128", "clamp(round_half_even(x / scale), -127"),
    "sample": ("before * 65536 >=", "before * 65536 >"),
    "swiglu": ("round_half_even(limited)", "(int32_t)limited"),
    "temporal_attention_score": ("member == group", "member == heads"),
    "visible": ("slot >= row_begin", "slot > row_begin"),  # the first slot behind the padding
}
"""One expression of each kernel's header, and what it becomes."""


def arithmetic_is_installed() -> bool:
    try:
        return arithmetic_headers().exists() and shutil.which(os.environ.get("CXX") or "g++") is not None
    except UsageError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not arithmetic_is_installed(), reason="no C++ compiler, or no ap_int.h: pip install hls4ml"),
]


def compile_checked(kernel: str, folder: Path) -> Path:
    return compile_bench(kernel, folder, folder / f"{kernel}-checked", ["-O1", *SANITIZERS, *RECOVER])


def compile_mutated(kernel: str, folder: Path) -> Path:
    """Without sanitizers: the bench itself has to notice."""
    include = folder / f"{kernel}-mutated" / "include"
    shutil.copytree(HLS / "include", include)
    header = include / "fastcar" / f"{kernel}.h"
    text = header.read_text()
    before, after = MUTATIONS[kernel]
    assert text.count(before) == 1, f"{header.name} has no longer one {before!r}; choose another mutation"
    header.write_text(text.replace(before, after))
    return compile_bench(kernel, folder, include.parent / kernel, ["-O1", f"-I{include}", f"-I{include / 'fastcar'}"])


def compile_bench(kernel: str, folder: Path, program: Path, flags: list[str]) -> Path:
    source = HLS / "tb" / f"{kernel}_tb.cpp"
    include = include_flags(folder / "generated")
    compile_with([*FLAGS, *flags, *include, str(source), "-o", str(program), "-pthread"])
    return program


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Compiler and kernel -> program. What the selected tests need is compiled at once, a job a core."""
    folder = tmp_path_factory.mktemp("benches")
    write_headers(folder / "generated", CONFIG)
    compilers = {"test_bench": compile_checked, "test_mutation": compile_mutated}
    selected = [
        (compilers[item.originalname], item.callspec.params["kernel"])
        for item in request.session.items
        if item.path == request.path and item.originalname in compilers
    ]
    pool = ThreadPoolExecutor(os.cpu_count())
    futures: dict[tuple, Future[Path]] = {key: pool.submit(*key, folder) for key in selected}
    yield lambda *key: futures[key].result()
    pool.shutdown(cancel_futures=True)


def run_bench(program: Path, golden: Path) -> subprocess.CompletedProcess[str]:
    suppressions = golden.with_name("suppressions")
    suppressions.write_text(SUPPRESSIONS)
    options = f"halt_on_error=1:suppressions='{suppressions}'"  # quoted: a path may hold a colon
    environment = os.environ | {"UBSAN_OPTIONS": options}
    return subprocess.run([program, golden], capture_output=True, text=True, timeout=RUN_SECONDS, env=environment)


@pytest.mark.parametrize("kernel", BENCHES)
def test_bench(kernel, programs, tmp_path):
    """No difference under the sanitizers; a file cut short, and results one bit off, are refused in one line."""
    cases = golden_cases(kernel)
    golden = tmp_path / f"{kernel}.golden"
    golden.write_bytes(encoded(kernel, cases))
    program = programs(compile_checked, kernel)
    done = run_bench(program, golden)
    assert done.returncode == 0 and not done.stderr, done.stderr[:2000]
    assert f"{len(cases)} golden cases equal" in done.stdout

    golden.write_bytes(golden.read_bytes()[:-1])
    done = run_bench(program, golden)
    assert (done.returncode, done.stderr) == (1, f"{kernel}: golden file cut short\n")

    last = list(cases)[-1]
    key = RESULTS[kernel]
    cases[last] = cases[last] | {key: one_bit_off(cases[last][key])}
    golden.write_bytes(encoded(kernel, cases))
    done = run_bench(program, golden)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"{kernel}: {last}"), done.stderr
    assert "index" in done.stderr and "got" in done.stderr and "expected" in done.stderr


def one_bit_off(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    bits = array.view(f"u{array.itemsize}") ^ array.view(f"u{array.itemsize}").dtype.type(1)
    return bits.view(array.dtype)


@pytest.mark.parametrize("kernel", BENCHES)
def test_mutation(kernel, programs, tmp_path):
    golden = tmp_path / f"{kernel}.golden"
    golden.write_bytes(encoded(kernel, golden_cases(kernel)))
    done = run_bench(programs(compile_mutated, kernel), golden)
    assert done.returncode != 0, f"{kernel} passes with {MUTATIONS[kernel]}"


def test_every_kernel_has_a_bench_golden_vectors_and_a_mutation():
    assert BENCHES and BENCHES == sorted(KERNELS) == sorted(RESULTS) == sorted(MUTATIONS)
