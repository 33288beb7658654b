"""What would fit where a model does not: a shorter clip, no guidance, fewer layers, fewer bits, another board.

To fit is both: the board's memory holds the clip, and its device the least engine that takes the model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from ...boards import Board, board_names, load_board
from ...hls.resources import is_within
from .memory_fit import MIB, largest, memory_need
from .program import RECIPES, shape_program
from .search import sized_engine
from .shapes import ModelShape, load_shape, shape_names
from .step import Rows

__all__ = ["nearest"]


def nearest(shape: ModelShape, recipe: str, rows: int | None, board: Board) -> list[str]:
    """Lines of text, the smallest change first; each was computed, none is a guess."""
    wanted = Rows.of(shape, rows).rows
    lines = list(_changes(shape, recipe, wanted, board))
    boards = [other for other in map(load_board, board_names()) if other.name != board.name]
    fitting = [_board_name(other) for other in boards if _size(shape, recipe, wanted, other) is not None]
    lines.append(f"as it is: on {', '.join(fitting)}" if fitting else "as it is: on no board that is known here")
    others = [name for name in shape_names() if name != shape.name and _fits_as_it_is(name, recipe, board)]
    if others:
        lines.append(f"other built-in shapes on {board.name}: {', '.join(others)}")
    return lines


def _changes(shape: ModelShape, recipe: str, rows: int, board: Board) -> Iterator[str]:
    layout, layers = shape.frame_layout, shape.backbone.layers
    if frames := _most(layout.room - 1, lambda frames: _size(_with(shape, frames=frames), recipe, rows, board)):
        size = _size(_with(shape, frames=frames), recipe, rows, board)
        yield f"{frames} frames instead of {layout.room}: {_mib(size)}"
    if rows > 1 and (size := _size(_with(shape, guided=False), recipe, 1, board)):
        yield f"one row, without guidance: {_mib(size)}"
    first_of = {bits: name for name, bits in reversed(RECIPES.items())}  # recipes of as many bits take as much
    for bits, other in first_of.items():
        if bits < RECIPES[recipe] and (size := _size(shape, other, rows, board)):
            yield f"recipe {other}: {_mib(size)}"
    smallest = min(RECIPES, key=lambda name: RECIPES[name])
    for frames, kept in dict.fromkeys([(layout.frames, rows), (layout.frames, 1), (1, 1)]):
        fewer = _with(shape, frames=frames, guided=shape.guided and kept > 1)
        if most := _most(layers - 1, lambda n, of=fewer, kept=kept: _size(_with(of, n), smallest, kept, board)):
            what = f"the first {most} of its {layers} layers in {smallest}, {frames} frame{'s' * (frames > 1)}"
            size = _size(_with(fewer, most), smallest, kept, board)
            yield f"{what}, {'one row' if kept == 1 else f'{kept} rows'}: {_mib(size)}"


def _most(limit: int, size: Callable[[int], int | None]) -> int:
    """The largest number up to ``limit`` of what fits; more of it never takes less. 0 if none does."""
    return bisect_left(range(1, limit + 1), True, key=lambda number: size(number) is None)


def _mib(size: int | None) -> str:
    return f"{(size or 0) / MIB:,.0f} MiB"


def _with(shape: ModelShape, layers: int | None = None, frames: int | None = None, **changes: object) -> ModelShape:
    if layers is not None:
        changes["backbone"] = shape.backbone.model_copy(update={"layers": layers})
    if frames is not None:
        changes["frame_layout"] = shape.frame_layout.of_frames(frames)
    return shape.model_copy(update=changes)


def _size(shape: ModelShape, recipe: str, rows: int, board: Board) -> int | None:
    """Bytes of its clip; None if the board's memory does not hold them, or its device no engine for it."""
    program = shape_program(shape, recipe)
    size = memory_need(program, Rows.of(shape, rows)).total
    if size > largest(board)[0]:
        return None
    return size if is_within(sized_engine("least", program, rows, board.overlay.clock_mhz), board) else None


def _fits_as_it_is(name: str, recipe: str, board: Board) -> bool:
    shape = load_shape(name)
    return _size(shape, recipe, Rows.of(shape, None).rows, board) is not None


def _board_name(board: Board) -> str:
    return f"{board.name} (estimates only)" if board.device.estimates_only else board.name
