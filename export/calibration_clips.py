"""Clips that a model generated itself, to calibrate it with: folders that ``fastcar generate`` wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ValidationError

from ..toolkit.config import PADDING
from ..toolkit.errors import UsageError
from ..toolkit.validation import first_fault
from .clips import WHOLE, positions_of_codes
from .imported import ImportedModel
from .shards import TensorStore

__all__ = ["GeneratedClips", "calibrated_on", "read_generated"]

EXPECTED = "a folder that `fastcar generate` wrote"
FIX = "Generate clips with a bundle of this checkpoint, and give their folder."


class _Result(BaseModel):
    """Of ``result.json`` what is needed here; ``grid``: cells of a frame as (height, width)."""

    model: str
    recipe: str
    prompts: tuple[str, ...]
    grid: tuple[int, int]


@dataclass(frozen=True)
class GeneratedClips:
    """What one run left in ``folder``: ``codes`` (clips, frames, cells) or (clips, frames, cells, D) int64, a prompt
    for each clip, and which ``model`` in which ``recipe`` made them."""

    folder: Path
    model: str
    recipe: str
    prompts: tuple[str, ...]
    grid: tuple[int, int]
    codes: np.ndarray


def read_generated(folder: Path) -> GeneratedClips:
    """UsageError for what is no such folder, or whose files do not agree; CheckpointError for a damaged file."""
    if not folder.is_dir():
        found = "is a file" if folder.is_file() else "no such folder"
        raise UsageError(folder, found, EXPECTED, "Correct --calibrate-on.")
    result, path = _read_result(folder / "result.json"), folder / "run.safetensors"
    if not path.is_file():
        raise UsageError(path, "no such file", EXPECTED, FIX)
    store = TensorStore(path)
    info = store.tensors.get("codes")
    cells = result.grid[0] * result.grid[1]
    if info is None or len(info.shape) not in (3, 4) or info.shape[2] != cells or info.dtype not in WHOLE:
        found = "no codes" if info is None else f"codes are {info.shape} of {info.dtype}"
        raise UsageError(path, found, f"whole numbers (clips, frames, {cells}), or with residual codes behind", FIX)
    if 0 in info.shape:
        found = f"codes are {info.shape}: the run was stopped before a frame was finished, or wrote none"
        raise UsageError(path, found, "at least one frame", FIX)
    if len(result.prompts) != info.shape[0]:
        found = f"{len(result.prompts)} prompts for {info.shape[0]} clips in run.safetensors"
        raise UsageError(folder / "result.json", found, "both files of one run", FIX)
    codes = store.read("codes").to(torch.int64).numpy()
    return GeneratedClips(folder, result.model, result.recipe, result.prompts, result.grid, codes)


def calibrated_on(imported: ImportedModel, folders: Sequence[GeneratedClips], most: int) -> ImportedModel:
    """The model with the first ``most`` of these clips, in the order given, in place of its own ``calibration``.

    All are cut to the shortest, and to the frames the model was trained for. UsageError for clips of another frame
    layout, prompts the model cannot encode, and a clip that quality is to be measured on.
    """
    for clips in folders:
        _check_layout(imported, clips)
    rows = [row for clips in folders for row in _rows(imported, clips)]
    used = rows[:most]
    length = min(map(len, used))
    calibration = torch.from_numpy(np.stack([row[:length] for row in used]))
    _check_apart(imported.held_out, calibration, folders)
    return replace(imported, calibration=calibration, calibrated_on=_told(imported, folders, len(used), len(rows)))


def _read_result(path: Path) -> _Result:
    try:
        return _Result.model_validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise UsageError(path, f"cannot be read ({error.strerror})", EXPECTED, "Correct --calibrate-on.") from error
    except ValidationError as error:
        where, why = first_fault(error)
        found = f"{where or 'the file'}: {why}"
        raise UsageError(path, found, "model, recipe, prompts and grid of a run", FIX) from error


def _check_layout(imported: ImportedModel, clips: GeneratedClips) -> None:
    layout, path = imported.layout, clips.folder / "run.safetensors"
    residual = (imported.depth.config.codes_per_position,) if imported.depth else ()
    found, expected = _frames(clips.grid, clips.codes.shape[3:]), _frames(layout.grid, residual)
    if found != expected:
        raise UsageError(path, f"{found}, by {clips.model}", f"{expected}, as {imported.name} has", FIX)
    low, high = int(clips.codes.min()), int(clips.codes.max())
    if low < 0 or high >= layout.codes:
        found = f"code {low if low < 0 else high}, by {clips.model}"
        raise UsageError(path, found, f"0 to {layout.codes - 1}, as {imported.name} has", FIX)


def _frames(grid: tuple[int, int], residual: tuple[int, ...]) -> str:
    """``residual``: (D,) of a model with a depth transformer."""
    return (
        f"frames of {grid[0]} x {grid[1]} " + "".join(f"positions of {codes} residual " for codes in residual) + "codes"
    )


def _rows(imported: ImportedModel, clips: GeneratedClips) -> Iterator[np.ndarray]:
    """(positions,) of each clip, or (positions, 1 + D) behind a prompt without padding."""
    layout = imported.layout
    for prompt, codes in zip(clips.prompts, clips.codes[:, : layout.frames], strict=True):
        try:
            ids = imported.prompts.encode(prompt, layout.prompt_length)
        except UsageError as error:
            found = f"prompt {prompt!r}: {error.found}"
            raise UsageError(clips.folder / "result.json", found, error.expected, FIX) from error
        if imported.depth:
            yield positions_of_codes(ids[ids != PADDING], codes.reshape(-1, codes.shape[-1]))
        else:
            yield np.concatenate([ids, layout.flattened(codes[None])[0]])


def _check_apart(held_out: torch.Tensor | None, calibration: torch.Tensor, folders: Sequence[GeneratedClips]) -> None:
    """What was calibrated on is no measure of quality."""
    if held_out is None:
        return
    length = min(held_out.shape[1], calibration.shape[1])
    same = (calibration[:, None, :length] == held_out[None, :, :length]).all(2).any(1)
    if same.any():
        folder = [clips.folder for clips in folders for _ in clips.prompts][int(same.int().argmax())]
        found = "holds a held-out clip of the checkpoint, which quality is measured on"
        raise UsageError(folder, found, "clips that were generated", "Leave it out.")


def _told(imported: ImportedModel, folders: Sequence[GeneratedClips], used: int, given: int) -> str:
    """Of the used clips: how many, how long, from where. Names of folders, not whose they are."""
    counts = [len(clips.prompts) for clips in folders]
    first = [clips for clips, before in zip(folders, np.cumsum([0, *counts]), strict=False) if before < used]
    frames = min(imported.layout.frames, *(clips.codes.shape[1] for clips in first))
    number = f"{used} clip{'s' if used > 1 else ''}" if used == given else f"the first {used} of {given} clips"
    names = ", ".join(clips.folder.resolve().name for clips in first)
    makers = ", ".join(dict.fromkeys(f"{clips.model} in {clips.recipe}" for clips in first))
    return f"{number} of {frames} frame{'s' if frames > 1 else ''} in {names}, generated by {makers}"
