"""Engine files: what an overlay is built for, found by name or by path, and checked against its board."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from ..boards import load_board
from ..boards.load import tomllib
from ..hls.resources import check_fits
from ..toolkit.config import Frozen
from ..toolkit.errors import UsageError
from ..toolkit.program.engine import EngineConfig

__all__ = ["Engine", "engine_names", "engine_text", "load_engine"]

FOLDER = Path(__file__).parent / "engines"
EXAMPLE = "kv260.toml"


class Engine(Frozen):
    """An engine and the board it is for: a name, or the path of a board file. ``note``: why it is as it is."""

    board: str
    config: EngineConfig
    note: str = ""


def engine_names() -> tuple[str, ...]:
    """The engines that come with the project, in alphabetical order."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def load_engine(name_or_path: str | Path) -> Engine:
    """An engine by its name, in any case, or by the path of a file ending in ``.toml``.

    UsageError if the file is unusable or the engine, by its estimate, does not fit its board.
    """
    if isinstance(name_or_path, Path) or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    elif name_or_path.lower() in engine_names():
        path = FOLDER / f"{name_or_path.lower()}.toml"
    else:
        raise UsageError(
            "engine",
            f"{name_or_path!r} is not known",
            f"one of {', '.join(engine_names())}",
            "For another engine, give the path of its .toml file.",
        )
    engine = _read(path)
    if engine.board.endswith(".toml"):
        engine = engine.model_copy(update={"board": str((path.parent / engine.board).resolve())})
    check_fits(engine.config, load_board(engine.board))
    return engine


def engine_text(engine: Engine) -> str:
    """The text of an engine file, as ``load_engine``, the build and ``fastcar export --board FILE`` read it."""
    fields = engine.config.model_dump()
    about = {"name": fields.pop("name"), "board": engine.board}
    note = {"note": engine.note.strip()} if engine.note else {}
    depth = fields.pop("depth")
    text = _lines({**about, **note, **fields})
    return text if depth is None else f"{text}\n[depth]\n{_lines(depth)}"


def _lines(pairs: dict[str, object]) -> str:
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in pairs.items())


def _read(path: Path) -> Engine:
    """``board``, ``note`` and the fields of EngineConfig, whose name is the file's unless the file says otherwise."""
    try:
        fields = {"name": path.stem, **tomllib.loads(path.read_text("utf-8"))}
        about = {key: fields.pop(key) for key in ("board", "note") if key in fields}
        config = EngineConfig.model_validate(fields, strict=True)
        return Engine.model_validate({**about, "config": config}, strict=True)
    except OSError as error:
        fix = f"Correct the path, or use one of {', '.join(engine_names())}."
        raise UsageError(path, f"cannot be read ({error.strerror})", "an engine file", fix) from error
    except ValidationError as error:
        raise UsageError(path, *_describe(error)) from error
    except (ValueError, RecursionError) as error:  # not TOML, not text
        found = f"is not TOML: {str(error).splitlines()[0]}"
        raise UsageError(path, found, f"keys as in {EXAMPLE}", "Correct the file.") from error


def _describe(error: ValidationError) -> tuple[str, str, str]:
    """What was found, what was expected and what to do, of the first fault."""
    fault = error.errors()[0]
    kind, key = fault["type"], ".".join(map(str, fault["loc"]))
    if kind == "missing":
        return f"{key} is missing", f"the keys of {EXAMPLE}", "Add it."
    if kind == "extra_forbidden":
        return f"{key} is not known", f"the keys of {EXAMPLE}", "Remove it or correct its spelling."
    if kind == "value_error":
        return f"dimensions that do not agree: {fault['ctx']['error']}", "dimensions that do", "Change one of them."
    return f"{key} is {fault['input']!r}", fault["msg"].removeprefix("Input should be "), f"Correct {key}."
