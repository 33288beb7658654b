"""What would fit where a model does not: a shorter clip, no guidance, fewer layers, fewer bits, another board."""

from __future__ import annotations

from collections.abc import Iterator

from ...boards import Board, board_names, load_board
from .memory_fit import MIB, largest, memory_need
from .passes import RECIPES, int4_layers, passes
from .shapes import ModelShape, load_shape, shape_names
from .step import Rows

__all__ = ["nearest"]


def nearest(shape: ModelShape, recipe: str, rows: int | None, board: Board) -> list[str]:
    """Lines of text, the smallest change first; each was computed, none is a guess."""
    most, _ = largest(board)
    lines = list(_changes(shape, recipe, rows or (2 if shape.guided else 1), most))
    boards = [other for other in map(load_board, board_names()) if other.name != board.name]
    size = memory_need(passes(shape, int4_layers(recipe)), _rows(shape, rows or (2 if shape.guided else 1))).total
    fitting = [_board_name(other) for other in boards if size <= largest(other)[0]]
    lines.append(f"as it is: on {', '.join(fitting)}" if fitting else "as it is: on no board that is known here")
    others = [name for name in shape_names() if name != shape.name and _total(load_shape(name), recipe, None) <= most]
    if others:
        lines.append(f"other built-in shapes on {board.name}: {', '.join(others)}")
    return lines


def _changes(shape: ModelShape, recipe: str, rows: int, most: int) -> Iterator[str]:
    layout = shape.frame_layout
    for frames in range(layout.frames - 1, 0, -1):
        shorter = _with(shape, frames=frames)
        if (size := _total(shorter, recipe, rows)) <= most:
            yield f"{frames} frames instead of {layout.frames}: {size / MIB:,.0f} MiB"
            break
    if rows > 1 and (size := _total(_with(shape, guided=False), recipe, 1)) <= most:
        yield f"one row, without guidance: {size / MIB:,.0f} MiB"
    for other, bits in RECIPES.items():
        if bits < RECIPES[recipe] and (size := _total(shape, other, rows)) <= most:
            yield f"recipe {other}: {size / MIB:,.0f} MiB"
    smallest = min(RECIPES, key=lambda name: RECIPES[name])
    for frames, one_row in ((layout.frames, False), (layout.frames, True), (1, True)):
        for layers in range(shape.backbone.layers - 1, 0, -1):
            fewer = _with(shape, layers=layers, frames=frames, guided=shape.guided and not one_row)
            if (size := _total(fewer, smallest, 1 if one_row else rows)) <= most:
                what = f"the first {layers} of its {shape.backbone.layers} layers in {smallest}, "
                kept = "one row" if one_row else f"{rows} row{'s' * (rows > 1)}"
                yield f"{what}{frames} frame{'s' * (frames > 1)}, {kept}: {size / MIB:,.0f} MiB"
                break


def _with(shape: ModelShape, layers: int | None = None, frames: int | None = None, **changes: object) -> ModelShape:
    if layers is not None:
        changes["backbone"] = shape.backbone.model_copy(update={"layers": layers})
    if frames is not None:
        changes["frame_layout"] = shape.frame_layout.model_copy(update={"frames": frames})
    return shape.model_copy(update=changes)


def _total(shape: ModelShape, recipe: str, rows: int | None) -> int:
    return memory_need(passes(shape, int4_layers(recipe)), _rows(shape, rows or (2 if shape.guided else 1))).total


def _rows(shape: ModelShape, rows: int) -> Rows:
    each = 2 if shape.guided else 1
    return Rows(rows, rows // each if rows % each == 0 else rows)


def _board_name(board: Board) -> str:
    return f"{board.name} (estimates only)" if board.device.estimates_only else board.name
