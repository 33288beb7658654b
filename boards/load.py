"""Board files: found by name or by path, and validated before any work."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import ValidationError

from ..toolkit.errors import UsageError
from .model import Board

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["board_names", "load_board"]

FOLDER = Path(__file__).parent
EXAMPLE = "kv260.toml"


def board_names() -> tuple[str, ...]:
    """The boards that come with the project, in alphabetical order."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def load_board(name_or_path: str | Path) -> Board:
    """A board by its name, in any case, or by the path of a file ending in ``.toml``; UsageError if unusable."""
    if isinstance(name_or_path, Path) or name_or_path.endswith(".toml"):
        return _read(Path(name_or_path))
    name = name_or_path.lower()
    if name not in board_names():
        raise UsageError(
            "board",
            f"{name_or_path!r} is not known",
            f"one of {', '.join(board_names())}",
            "For another board, give the path of its .toml file.",
        )
    return _read(FOLDER / f"{name}.toml")


def _read(path: Path) -> Board:
    try:
        return Board.model_validate({"name": path.stem, **tomllib.loads(path.read_text("utf-8"))})
    except OSError as error:
        fix = f"Correct the path, or use one of {', '.join(board_names())}."
        raise UsageError(path, f"cannot be read ({error.strerror})", "a board file", fix) from error
    except ValidationError as error:
        raise UsageError(path, *_describe(error)) from error
    except (ValueError, RecursionError) as error:  # not TOML, not text
        raise UsageError(path, f"is not TOML: {error}", f"tables as in {EXAMPLE}", "Correct the file.") from error


def _describe(error: ValidationError) -> tuple[str, str, str]:
    """What was found, what was expected and what to do, of the first fault."""
    fault = error.errors()[0]
    kind, where, key = fault["type"], ".".join(map(str, fault["loc"])), str(fault["loc"][-1])
    found = f"{where} is missing" if kind == "missing" else f"{where} is {fault['input']!r}"
    if key.endswith("source"):
        expected = "where its values come from: a vendor's document number or an arXiv id"
        return found, expected, f'Add {where} = "...".'
    if kind == "missing":
        return found, f"the tables and keys of {EXAMPLE}", "Add it, with its source."
    if kind == "extra_forbidden":
        return f"{where} is not known", f"the tables and keys of {EXAMPLE}", "Remove it or correct its spelling."
    if kind == "value_error":
        return f"{where}: {fault['ctx']['error']}", "values that agree", f"Correct [{where}] from its source."
    expected = "a table" if kind == "model_type" else fault["msg"].removeprefix("Input should be ")
    return found, expected, f"Correct {where} from its source."
