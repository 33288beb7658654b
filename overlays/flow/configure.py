"""The first phase: everything that follows from the configuration alone, as files for the tools and for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ...hls.codegen import write_headers
from ...hls.engine_golden import write_engine_golden
from ...hls.resources import placement
from ...toolkit.output import replacing
from ..design_tcl import design_tcl
from ..load import engine_text
from .layout import Build

__all__ = ["DESIGN", "DIRECTIVES", "ENGINE_TOML", "FILES", "GOLDEN", "HEADERS", "configure", "directives_tcl"]

HEADERS = ("config.h", "descriptor.h", "tables.h")
ENGINE_JSON, ENGINE_TOML, DESIGN, GOLDEN = "engine.json", "engine.toml", "design.tcl", "engine.golden"
DIRECTIVES = "directives.tcl"
FILES = (*HEADERS, ENGINE_JSON, ENGINE_TOML, DESIGN, DIRECTIVES, GOLDEN)
ARRAYS_OF = "Executor::Executor"  # where the engine's arrays have their pragmas; unverified as a directive's place


def configure(build: Build) -> None:
    """``FILES`` into the build's ``config``. OutputError if one cannot be written."""
    config = build.engine.config
    build.config.mkdir(parents=True, exist_ok=True)
    build.link_package()
    write_headers(build.config, config)
    _write(build.config / ENGINE_JSON, json.dumps(_facts(build), indent=1) + "\n")
    _write(build.config / ENGINE_TOML, f"# Build {config.build_id:08x}.\n{engine_text(build.engine)}")
    _write(build.config / DESIGN, design_tcl(build.design))
    _write(build.config / DIRECTIVES, directives_tcl(placement(config, build.board)))
    write_engine_golden(build.config / GOLDEN, config)


def directives_tcl(bound: Mapping[str, str]) -> str:
    """What csynth is told beside the pragmas; ``bound``: kind of memory by array, from ``hls.resources.placement``."""
    lines = ["# Arrays bound to another kind of memory, so that the block RAMs suffice by the estimate."]
    for variable, kind in bound.items():
        lines.append(f'set_directive_bind_storage -type ram_2p -impl {kind} "{ARRAYS_OF}" {variable}')
    return "\n".join(lines) + "\n"


def _facts(build: Build) -> dict[str, object]:
    device = build.board.device
    return {
        "engine": build.engine.config.name,
        "build_id": f"{build.engine.config.build_id:08x}",
        "board": build.board.name,
        "part": device.part,
        "board_part": device.board_part,
        "clock_ns": round(build.clock_ns, 6),
        "config": build.engine.config.model_dump(exclude={"name"}),
    }


def _write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, "utf-8")
