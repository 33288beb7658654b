"""``fastcar boards``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...boards import Board, board_names, load_board
from ..board.fit import Fit, engines_for, fit_bundle, weight_widths
from ..board.meminfo import HOW
from ..bundle.bundle import Bundle
from .console import emit, examples, json_option, say, table

__all__ = ["command"]

MIB, GB = 1 << 20, 1 << 30


@click.command("boards", epilog=examples("fastcar boards", "fastcar boards car-kv260", "fastcar boards --json"))
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@json_option
def command(bundle: Path | None, as_json: bool) -> None:
    """List the boards and their engines; with BUNDLE, on which of them it runs, after what, or why not.

    For a whole clip with guidance. Nothing is asked of a board: memory is what its system has by default.
    """
    boards = [load_board(name) for name in board_names()]
    result: dict[str, Any] = {"boards": [_facts(board) for board in boards]}
    if bundle is not None:
        opened = Bundle.open(bundle)
        int4 = weight_widths(opened)
        result |= {"bundle": str(bundle), "boot_arguments": HOW}
        for entry, board in zip(result["boards"], boards, strict=True):
            entry["bundle"] = _fit(fit_bundle(opened, board, int4))
    emit(result, as_json, _show)


def _facts(board: Board) -> dict[str, Any]:
    engines = [] if board.device.estimates_only else engines_for(board)
    return {
        "name": board.name,
        "title": board.device.title,
        "estimates_only": board.device.estimates_only,
        "memory_bytes": board.ddr.bytes,
        "memory_type": board.ddr.type,
        "peak_gb_s": board.ddr.peak_gb_s,
        "sustained_gb_s": board.ddr.sustained_gb_s,
        "resources": {name: getattr(board.resources, name) for name in ("lut", "ff", "dsp", "bram36", "uram")},
        "cma_bytes": board.linux.cma_bytes if board.linux else None,
        "engines": [engine.config.name for engine in engines],
    }


def _fit(fit: Fit) -> dict[str, Any]:
    memory = {**vars(fit.memory), "total": fit.memory.total} if fit.memory else None
    return {
        "runs": fit.runs,
        "engines": list(fit.engines),
        "packed_for": fit.packed_for,
        "memory": memory,
        "steps": list(fit.steps),
        "reasons": list(fit.reasons),
    }


def _show(result: dict[str, Any]) -> None:
    header = ("board", "GB", "GB/s", "LUT, DSP, BRAM, URAM", "contiguous", "engines")
    table("Boards", [_row(entry) for entry in result["boards"]], header)
    say("GB/s: peak and sustained; contiguous: what pynq.allocate has by the system's default settings")
    if "bundle" not in result:
        return
    rows = []
    for entry in result["boards"]:
        verdict, why = _verdict(entry["bundle"])
        rows.append((entry["name"], verdict, why))
    table(f"{result['bundle']}, a whole clip with guidance", rows, ("board", "runs", "first, or why not"))
    if any("boot with" in why for _, _, why in rows):
        say(f"boot arguments: {HOW}")


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    resources = entry["resources"]
    cma = "not known" if entry["cma_bytes"] is None else f"{entry['cma_bytes'] / MIB:.0f} MB"
    engines = "estimates only" if entry["estimates_only"] else ", ".join(entry["engines"]) or "none"
    return (
        entry["name"],
        f"{entry['memory_bytes'] / GB:.0f}",
        f"{entry['peak_gb_s']:.1f}, {entry['sustained_gb_s']:.1f}",
        f"{resources['lut'] / 1000:.0f}k, {resources['dsp']}, {resources['bram36']}, {resources['uram']}",
        cma,
        engines,
    )


def _verdict(fit: dict[str, Any]) -> tuple[str, str]:
    if not fit["runs"]:
        return "no", "; ".join(fit["reasons"])
    packed = [f"packed for {fit['packed_for']}"] if fit["packed_for"] else []
    room = [f"{fit['memory']['total'] / MIB:.1f} MiB of contiguous memory"]
    return "yes, after" if fit["steps"] else "yes", "; ".join(fit["steps"] or packed + room)
