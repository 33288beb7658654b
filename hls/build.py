"""The C simulation's shared library: generated headers, the kernels, g++; kept by the hash of all that goes into it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..toolkit.errors import UsageError
from ..toolkit.program.engine import EngineConfig
from .codegen import write_headers

__all__ = [
    "COUNTING",
    "ENGINE",
    "FLAGS",
    "SANITIZERS",
    "arithmetic_headers",
    "build_library",
    "compile_with",
    "include_flags",
    "kernel_files",
]

HERE = Path(__file__).parent
# No contraction: a * b + c must round twice, as the contract says and as separate cores do.
FLAGS = (
    "-std=c++17",
    "-ffp-contract=off",
    "-DFASTCAR_SIMULATION",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Wno-unused-label",
)
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-sanitize=shift-base",  # the arithmetic headers shift negative numbers to the left
    "-fno-omit-frame-pointer",
)
COUNTING = ("sim/count.cpp",)  # the schedule and its counters, without the arithmetic
ENGINE = ("engine/engine.cpp", "sim/library.cpp", *COUNTING)


def build_library(
    config: EngineConfig, *, sources: tuple[str, ...] = ENGINE, optimize: str = "-O3", extra: tuple[str, ...] = ()
) -> Path:
    """Path of the library for this configuration, compiled if it is not in the cache yet.

    UsageError if g++ or the arithmetic headers are missing, or the compiler refuses.
    """
    flags = (*FLAGS, optimize, *extra)
    cache = cache_folder()
    library = cache / f"engine-{_key(config, (*sources, *flags))}.so"
    if _is_whole(library):
        return library
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as work:
            headers, output = Path(work) / "generated", Path(work) / library.name
            write_headers(headers, config)
            files = [str(HERE / source) for source in sources]
            compile_with([*flags, "-fPIC", "-shared", *include_flags(headers), *files, "-o", str(output), "-pthread"])
            digest = Path(work) / "digest"
            digest.write_text(_digest(output))
            os.replace(digest, _digest_file(library))
            os.replace(output, library)  # whole or not there, whoever else builds it
    except OSError as error:
        raise UsageError(
            "cache of compiled engines",
            f"{cache}: {error.strerror}",
            "a folder that can be written",
            "Set XDG_CACHE_HOME to another folder.",
        ) from error
    return library


def _is_whole(library: Path) -> bool:
    """A library that was cut short would kill the process that loads it."""
    try:
        return _digest(library) == _digest_file(library).read_text()
    except OSError:
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def compile_with(arguments: list[str]) -> None:
    """Run g++; UsageError with its first complaint."""
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise UsageError("C simulation", f"no {compiler}", "g++ 9 or newer", "apt-get install g++, or set CXX.")
    done = subprocess.run([compiler, *arguments], capture_output=True, text=True)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-500:])
        raise UsageError("C simulation", f"{compiler}: {complaint}", "the kernels to compile", "Use g++ 9 or newer.")


def include_flags(generated: Path) -> list[str]:
    return [
        "-isystem",
        str(arithmetic_headers()),
        f"-I{generated}",
        f"-I{HERE}",
        f"-I{HERE / 'include'}",
        f"-I{HERE / 'include/fastcar'}",
    ]


def arithmetic_headers() -> Path:
    """Folder of ``ap_int.h``: FASTCAR_AP_TYPES, Vitis HLS's own (XILINX_HLS), or the one hls4ml brings."""
    given = os.environ.get("FASTCAR_AP_TYPES")
    if given and not (Path(given) / "ap_int.h").exists():
        raise UsageError("FASTCAR_AP_TYPES", given, "a folder with ap_int.h", "Correct it, or unset it.")
    candidates = [given]
    if vitis := os.environ.get("XILINX_HLS"):
        candidates.append(str(Path(vitis) / "include"))
    spec = importlib.util.find_spec("hls4ml")  # found, not imported: its imports are many
    if spec and spec.submodule_search_locations:
        candidates.append(str(Path(next(iter(spec.submodule_search_locations))) / "templates/vivado/ap_types"))
    for candidate in candidates:
        if candidate and (Path(candidate) / "ap_int.h").exists():
            return Path(candidate)
    raise UsageError(
        "C simulation",
        "no ap_int.h",
        "the arithmetic headers of the package hls4ml",
        "pip install --no-deps hls4ml==1.3.0",
    )


def kernel_files() -> list[Path]:
    """Every source and header of the engine."""
    folders = ("include/fastcar", "engine", "sim")
    return sorted(path for folder in folders for path in (HERE / folder).glob("*.[hc]*") if path.name != "fuzz.cpp")


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fastcar"


def _key(config: EngineConfig, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr((config.model_dump(), flags, str(arithmetic_headers()))).encode())
    for path in (*kernel_files(), HERE / "codegen.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
