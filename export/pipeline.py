"""The export stage from end to end: checkpoint -> quantized model -> graph -> bundle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from .. import __version__
from ..overlays import Engine, load_engine
from ..toolkit.backends.golden import record_golden
from ..toolkit.backends.golden_nodes import record_nodes
from ..toolkit.backends.reference import ReferenceBackend
from ..toolkit.bundle.bundle import (
    BACKBONE,
    DECODER,
    GOLDEN,
    GOLDEN_NODES,
    TOKENIZER,
    WEIGHTS,
    Bundle,
    write_bundle,
)
from ..toolkit.bundle.manifest import Manifest
from ..toolkit.bundle.tensors import model_tensors, stored_tensors, write_tensors
from ..toolkit.errors import UsageError
from ..toolkit.numerics.decoder import IntegerDecoder
from ..toolkit.numerics.rope import rotary_tables
from ..toolkit.numerics.tas import tas_unit
from ..toolkit.numerics.weights import IntegerModel
from ..toolkit.output import check_output_folder
from .decoder import quantize_decoder
from .importers import ImportedModel, load_model
from .lower.decoder import lower_decoder
from .lower.graph import lower_backbone
from .overlay.compile import pack_model
from .quantize.evaluate import cross_entropy
from .quantize.pipeline import Quantized, quantize_with_report
from .quantize.recipes import Recipe, get_recipe

__all__ = ["export_model"]

Progress = Callable[[str, int, int], None]
EVALUATED_CLIPS = 8
DECODER_FRAMES = 64


def export_model(
    model: str | Path,
    out: str | Path,
    *,
    recipe: str = "w8a8",
    tas_query: str = "post_rope",
    board: str | None = None,
    frame_layout: str | Path | None = None,
    evaluate: bool = True,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Bundle:
    """Quantize ``model`` (a built-in name or a checkpoint folder) by a recipe and write a bundle to ``out``.

    ``board``: also pack program and weights for the overlay of this name (``fastcar.overlays.engine_names``).
    ``frame_layout``: the file that says where the video lies, for checkpoints that have none of that name.
    ``evaluate`` records the held-out cross-entropy beside that of the float model. UsageError, CheckpointError or
    OutputError before any work if an argument, the checkpoint or the place to write to cannot be used.

    Example::

        bundle = fastcar.export_model("car", "car-w8a8", recipe="w8a8")
        print(bundle.manifest.record)
    """
    progress = on_progress or (lambda stage, done, total: None)
    chosen = get_recipe(recipe)
    if tas_query not in ("post_rope", "pre_rope"):
        raise UsageError("--tas-query", repr(tas_query), "post_rope or pre_rope", "Choose one of these.")
    engine = load_engine(board) if board else None
    out = Path(out)
    imported = load_model(model, Path(frame_layout) if frame_layout else None)
    if engine:
        engine.config.check(imported.llama.config, imported.layout)
    check_output_folder(out.parent, bytes_needed=4 * sum(p.numel() for p in imported.llama.parameters()))

    def fill(folder: Path) -> Manifest:
        codes = imported.calibration[:, imported.layout.prompt_length :] - imported.layout.code_offset
        frames = codes.reshape(-1, *imported.layout.grid)
        spread = frames[:: max(1, len(frames) // DECODER_FRAMES)]
        write_decoder(folder, quantize_decoder(imported.tokenizer, spread))  # first: quick, and it may refuse
        quantized = quantize_with_report(
            imported.llama, imported.layout, chosen, imported.calibration, tas_query=tas_query, progress=progress
        )
        record: dict[str, float | list[str]] = {"quantization_notes": [*imported.notes, *quantized.report.notes]}
        if evaluate and imported.held_out is not None:
            record = _cross_entropies(imported, quantized, progress) | record
        write_backbone(folder, quantized.model)
        if engine:
            pack_model(quantized.model, engine.config).write(folder)
        write_golden(folder, quantized.model, imported, progress)
        (folder / TOKENIZER).write_text(imported.prompts.model_dump_json(indent=1) + "\n", "utf-8")
        return _manifest(imported, chosen, quantized.model, record, engine)

    return write_bundle(out, fill, overwrite)


def write_backbone(folder: Path, model: IntegerModel) -> None:
    """The step graph and its weights, which the graph reads in place; checked by onnx's full check."""
    write_tensors(folder / WEIGHTS, model_tensors(model))
    stored = stored_tensors(folder / WEIGHTS)
    ir.save(lower_backbone(model.config, model.layout, stored, WEIGHTS, model.tas_query), folder / BACKBONE)
    onnx.checker.check_model(str(folder / BACKBONE), full_check=True)


def write_golden(folder: Path, model: IntegerModel, imported: ImportedModel, progress: Progress) -> None:
    """A few steps of the NumPy reference, for every back end to be compared with; the nodes of some for engines."""
    progress("golden clip", 0, 1)
    prompts, length = imported.prompts, imported.layout.prompt_length
    tokens = np.stack([prompts.encode(prompts.phrases[0], length), prompts.unconditional(length)])
    backend = ReferenceBackend(model, *rotary_tables(model.config, model.layout.positions))
    record_golden(backend, tokens, folder / GOLDEN)
    record_nodes(backend, folder / GOLDEN, folder / GOLDEN_NODES)
    progress("golden clip", 1, 1)


def write_decoder(folder: Path, decoder: IntegerDecoder) -> None:
    ir.save(lower_decoder(decoder), folder / DECODER)
    onnx.checker.check_model(str(folder / DECODER), full_check=True)


def _cross_entropies(imported: ImportedModel, quantized: Quantized, progress: Progress) -> dict[str, float]:
    """Held-out cross-entropy in nats a code of the float and the quantized model."""
    held_out = imported.held_out[:EVALUATED_CLIPS]
    progress("held-out cross-entropy", 0, 2)
    before = cross_entropy(imported.llama, held_out, imported.layout)
    progress("held-out cross-entropy", 1, 2)
    after = cross_entropy(quantized.network, held_out, imported.layout)
    progress("held-out cross-entropy", 2, 2)
    return {
        "cross_entropy_fp32": before,
        "cross_entropy_quantized": after,
        "cross_entropy_change_percent": 100 * (after / before - 1),
    }


def _manifest(
    imported: ImportedModel,
    recipe: Recipe,
    model: IntegerModel,
    record: dict,
    engine: Engine | None,
) -> Manifest:
    config = model.config
    return Manifest(
        name=imported.name,
        fastcar=__version__,
        config=config,
        frame_layout=imported.layout,
        frame_rate=imported.frame_rate,
        recipe=asdict(recipe),
        sampling=imported.sampling,
        tas_query=model.tas_query,
        tas_unit=tuple(tas_unit(layer.tas_scale, config.heads, config.head_dim) for layer in model.layers),
        thresholds=(None,) * config.layers,
        board=engine.board if engine else None,
        overlay=engine.config.name if engine else None,
        engine=engine.config if engine else None,
        record=record,
        files={},
    )
