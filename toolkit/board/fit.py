"""Does a bundle run on a board: an engine of the board that takes its shape, and contiguous memory for a clip."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...boards import Board
from ...export.overlay.program import ProgramPlan
from ...overlays.load import Engine, engine_names, load_engine
from ..backends.engine import state_layout
from ..bundle.bundle import WEIGHTS, Bundle
from ..bundle.tensor_file import stored_tensors
from ..errors import BundleError, UsageError
from ..program.engine import EngineConfig
from ..program.memory import BEAT_BYTES
from ..program.packed import Packed
from ..program.plan import MemoryPlan, plan_memory
from .meminfo import LARGEST_BYTES, boot_argument, with_slack

__all__ = ["Fit", "clip_memory", "engines_for", "fit_bundle", "memory_shortage", "weight_widths"]

MIB = 1 << 20
GUIDED_ROWS = 2  # a clip and its unconditional twin
SYSTEM_BYTES = 512 * MIB
"""Left to Linux, PYNQ and the decoding of pictures. An assumption: not measured on a board."""


@dataclass(frozen=True)
class Fit:
    """``engines``: of the board, those that take the bundle. ``packed_for``: the one of them it is packed for.

    ``memory``: contiguous bytes of a whole clip with guidance. ``steps``: what to do first; ``reasons``: why it does
    not run, in words, none if it does.
    """

    board: str
    engines: tuple[str, ...] = ()
    packed_for: str | None = None
    memory: MemoryPlan | None = None
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = field(default=("no engine for this board comes with the project",))

    @property
    def runs(self) -> bool:
        return not self.reasons


def engines_for(board: Board) -> list[Engine]:
    """The engines that come with the project for this board, in alphabetical order."""
    return [engine for engine in map(load_engine, engine_names()) if engine.board == board.name]


def weight_widths(bundle: Bundle) -> dict[str, bool]:
    """Whether a linear layer has 4-bit weights, by its name; no weights are read."""
    stored = stored_tensors(bundle.path / WEIGHTS)
    names = [name.removesuffix(".scale") for name in stored if name.endswith(".scale")]
    return {name: f"{name}.multiplier" in stored for name in names}


def fit_bundle(bundle: Bundle, board: Board, int4: dict[str, bool] | None = None) -> Fit:
    """Whether the bundle runs on the board, after which steps, or why not. ``int4``: the weights' widths, if known."""
    if board.device.estimates_only:
        return Fit(board.name, reasons=("for estimates only: no overlay is built for this board",))
    try:
        bundle.require_for_engine()
    except BundleError as error:
        return Fit(board.name, reasons=(f"{error.found}, expected {error.expected}",))
    packed_for, stale = _packed_for(bundle, board)
    known = [engine.config for engine in engines_for(board)]
    if packed_for and packed_for.build_id not in {config.build_id for config in known}:
        known.append(packed_for)  # an engine of the user's own
    refusals = {config: _refusal(bundle, config) for config in known}
    accepting = [config for config in known if refusals[config] is None]
    if not accepting:
        reasons = tuple(refusal for refusal in refusals.values() if refusal)
        return Fit(board.name, reasons=reasons) if reasons else Fit(board.name)
    chosen = packed_for if packed_for in accepting else accepting[0]
    memory = clip_memory(bundle, chosen, int4)
    steps = [] if packed_for in accepting else [_export_step(bundle, chosen, stale)]
    memory_steps, reasons = _memory(memory.total, board)
    return Fit(
        board.name,
        tuple(config.name for config in accepting),
        packed_for.name if packed_for in accepting else None,
        memory,
        (*steps, *memory_steps),
        reasons,
    )


def clip_memory(bundle: Bundle, engine: EngineConfig, int4: dict[str, bool] | None = None) -> MemoryPlan:
    """Contiguous memory of a whole clip with guidance, as the bundle is packed or would be packed for ``engine``.

    UsageError if the engine is too small for the model.
    """
    manifest = bundle.manifest
    packed = bundle.packed()
    if packed is None or packed.build_id != engine.build_id:
        packed = _planned(bundle, engine, weight_widths(bundle) if int4 is None else int4)
    config, layout = manifest.config, manifest.frame_layout
    return plan_memory(packed, state_layout(config, layout, GUIDED_ROWS, 1, layout.positions, depth=manifest.depth))


def memory_shortage(plan: ProgramPlan, board: Board) -> tuple[str, ...]:
    """Why a whole clip with guidance will not fit the board, of a model that is not packed yet; nothing if it does."""
    layout = plan.layout
    state = state_layout(plan.config, layout, GUIDED_ROWS, 1, layout.positions, depth=plan.depth)
    return _memory(plan_memory(_without_weights(plan), state).total, board)[1]


def _planned(bundle: Bundle, engine: EngineConfig, int4: dict[str, bool]) -> Packed:
    manifest = bundle.manifest
    layout, query, heads = manifest.frame_layout, manifest.tas_query, manifest.tas_heads
    plan = ProgramPlan(manifest.config, layout, int4, engine, query, tas_heads=heads, depth=manifest.depth)
    return _without_weights(plan)


def _without_weights(plan: ProgramPlan) -> Packed:
    """Of the right size."""
    return Packed(plan.program(), np.broadcast_to(np.zeros(1, np.uint8), (plan.end, BEAT_BYTES)))


def _packed_for(bundle: Bundle, board: Board) -> tuple[EngineConfig | None, bool]:
    """The engine the bundle is packed for, if it is of this board and of today; whether it is of an older build."""
    manifest, packed = bundle.manifest, bundle.packed()
    if packed is None or manifest.engine is None or manifest.board != board.name:
        return None, False
    if packed.build_id != manifest.engine.build_id:
        return None, True
    return manifest.engine, False


def _refusal(bundle: Bundle, engine: EngineConfig) -> str | None:
    """Why the engine does not take the bundle."""
    try:
        engine.check(bundle.manifest.config, bundle.manifest.frame_layout, bundle.manifest.depth)
    except UsageError as error:
        return f"{error.subject}: {error.found}, {error.expected}"
    if engine.rows < GUIDED_ROWS:
        return f"engine {engine.name}: guidance takes {GUIDED_ROWS} rows, at most {engine.rows}"
    return None


def _export_step(bundle: Bundle, engine: EngineConfig, stale: bool) -> str:
    export = f"export with --board {engine.name}"
    if stale:
        return f"{export} again: it is packed for an older build of the engine"
    overlay, board = bundle.manifest.overlay, bundle.manifest.board
    if overlay:
        return f"{export}: it is packed for {overlay}" + ("" if overlay == board else f" of {board}")
    return export


def _memory(needed: int, board: Board) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Steps to have that much contiguous memory, and reasons why it cannot be had."""
    size = f"{needed / MIB:.1f} MiB"
    need = f"{size} of contiguous memory"
    most = min(LARGEST_BYTES, board.ddr.bytes - SYSTEM_BYTES)
    if needed > most:
        ddr = f"{board.ddr.bytes / MIB:.0f} MiB of DDR"
        return (), (f"a clip takes {need}, and about {most / MIB:.0f} MiB of its {ddr} can be reserved",)
    if board.linux is None:
        return (f"see that CmaTotal in /proc/meminfo is above {size}: its default is not known",), ()
    if with_slack(needed) <= board.linux.cma_bytes:
        return (), ()
    default = f"{board.linux.cma_bytes / MIB:.0f} MiB by default"
    return (f"boot with {boot_argument(needed)}: a clip takes {need}, there is {default}",), ()
