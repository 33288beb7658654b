"""The first phase: everything that follows from the configuration alone, as files for the tools and for people."""

from __future__ import annotations

import json
from pathlib import Path

from ...hls.codegen import write_headers
from ...hls.engine_golden import write_engine_golden
from ...toolkit.output import replacing
from ..design_tcl import design_tcl
from ..load import Engine
from .layout import Build

__all__ = ["DESIGN", "ENGINE_TOML", "FILES", "GOLDEN", "HEADERS", "configure", "engine_toml"]

HEADERS = ("config.h", "descriptor.h", "tables.h")
ENGINE_JSON, ENGINE_TOML, DESIGN, GOLDEN = "engine.json", "engine.toml", "design.tcl", "engine.golden"
FILES = (*HEADERS, ENGINE_JSON, ENGINE_TOML, DESIGN, GOLDEN)


def configure(build: Build) -> None:
    """``FILES`` into the build's ``config``. OutputError if one cannot be written."""
    config = build.engine.config
    write_headers(build.config, config)
    _write(build.config / ENGINE_JSON, json.dumps(_facts(build), indent=1) + "\n")
    _write(build.config / ENGINE_TOML, engine_toml(build.engine))
    _write(build.config / DESIGN, design_tcl(build.design))
    write_engine_golden(build.config / GOLDEN, config)


def engine_toml(engine: Engine) -> str:
    """An engine file, as ``load_engine`` reads it and ``fastcar export --board FILE`` packs for it."""
    fields = engine.config.model_dump()
    about = {"name": fields.pop("name"), "board": engine.board}
    note = {"note": engine.note.strip()} if engine.note else {}
    lines = [f"# Build {engine.config.build_id:08x}."]
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in {**about, **note, **fields}.items()]
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
