"""The engine to build: a file's, for the board asked for, with what the command line changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ...boards import Board, load_board
from ...hls.resources import check_fits
from ...toolkit.errors import UsageError
from ...toolkit.program.engine import EngineConfig
from ..load import Engine, engine_names, load_engine

__all__ = ["OPTIONS", "choose_engine"]

OPTIONS = {
    field: "--" + ("clock" if field == "clock_mhz" else field.replace("_", "-"))
    for field in EngineConfig.model_fields
    if field not in ("name", "depth")
}
"""Field of the configuration, one number each -> the option that changes it. What is no number a file says."""


def choose_engine(board: str | None, engine: str | None, changes: Mapping[str, float]) -> tuple[Engine, Board]:
    """``board``: name or file, by default the engine's; ``engine``: likewise, by default the one called as the board.

    ``changes``: new values by field. They give an engine of its own, with a name and a build id of its own. UsageError
    if there is no such engine or board, a value is out of its range, or the estimate exceeds the board.
    """
    if board is None and engine is None:
        raise UsageError("--board", "not given", "a board, or an engine for one", "Add --board, such as kv260.")
    chosen = load_engine(engine) if engine else _of_board(board)
    target = load_board(board or chosen.board)
    if target.device.estimates_only:
        raise UsageError(target.name, "has no overlay", "a board that one is built for", "It is for estimates only.")
    place = str(Path(board).resolve()) if board and board.endswith(".toml") else board
    if place is not None and (place.endswith(".toml") or place.lower() != chosen.board):
        chosen = chosen.model_copy(update={"board": place if place.endswith(".toml") else place.lower()})
    if changed := {key: value for key, value in changes.items() if value != getattr(chosen.config, key)}:
        chosen = chosen.model_copy(update={"config": _changed(chosen.config, changed), "note": ""})
    check_fits(chosen.config, target)
    return chosen, target


def _of_board(board: str) -> Engine:
    name = Path(board).stem.lower()
    if name not in engine_names():
        load_board(board)  # what is no board at all is told first
        known = ", ".join(engine_names())
        raise UsageError("--engine", f"none for {name}", f"one of {known}, or a file", "Add --engine.")
    return load_engine(name)


def _changed(config: EngineConfig, changes: Mapping[str, float]) -> EngineConfig:
    """The name says what was changed: it is that of the folder, and in the bundle that is packed for it."""
    words = [f"{key.replace('_', '')}{value:g}" for key, value in changes.items()]
    fields = config.model_dump() | dict(changes) | {"name": "-".join([config.name, *words])}
    try:
        return EngineConfig.model_validate(fields, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        if fault["loc"]:
            expected = fault["msg"].removeprefix("Input should be ")
            raise UsageError(OPTIONS[str(fault["loc"][0])], str(fault["input"]), expected, "Correct it.") from error
        found = f"dimensions that do not agree: {fault['ctx']['error']}"
        raise UsageError("engine", found, "dimensions that do", "Change one of them.") from error
