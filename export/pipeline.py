"""The export stage from end to end: checkpoint -> quantized layers -> graph -> bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..overlays import Engine, load_engine
from ..toolkit.bundle.bundle import DECODER, TOKENIZER, WEIGHTS, Bundle
from ..toolkit.bundle.depth_tensors import depth_tensors
from ..toolkit.bundle.manifest import Manifest
from ..toolkit.bundle.tensor_file import TensorWriter, read_tensor, stored_tensors
from ..toolkit.bundle.tensors import head_tensors, layer_tensors, planned_tensors, read_model, table_tensors
from ..toolkit.bundle.write import unfinished_folder, write_bundle
from ..toolkit.config import CRITERIA, TAS_HEADS, DepthConfig
from ..toolkit.errors import UsageError
from ..toolkit.numerics.decoder import IntegerDecoder
from ..toolkit.numerics.similarity import SIMILARITY_UNIT
from ..toolkit.numerics.tas import tas_unit
from ..toolkit.numerics.vqgan import VqganDecoder
from ..toolkit.output import check_output_folder
from .backbone import write_golden, write_graph
from .calibration_clips import calibrated_on, read_generated
from .clips import code_frames
from .decoder import quantize_decoder, write_decoder
from .imported import ImportedModel
from .importers import checkpoint_files, load_model
from .needs import Needs, needs_of
from .overlay.compile import write_packed
from .overlay.program import ProgramPlan, int4_linears
from .quantize.checks import check_before_quantizing
from .quantize.depth import check_depth, check_depth_groups
from .quantize.head_weights import HeadWeights, lost_heads, read_head_weights, weigh_heads
from .quantize.layers import LayerQuantizer, QuantizedHead
from .quantize.recipes import Recipe, get_recipe
from .unfinished import Journal, export_key, finished_layers

__all__ = ["Export", "export_model", "prepare_export"]

Progress = Callable[[str, int, int], None]
EVALUATED_CLIPS = 8
DECODER_FRAMES = 64


def export_model(model: str | Path, out: str | Path, *, on_progress: Progress | None = None, **options: Any) -> Bundle:
    """Quantize ``model`` (a built-in name or a checkpoint folder) by a recipe and write a bundle to ``out``.

    ``options`` are those of ``prepare_export``. An export that was killed or interrupted goes on where it was when
    it is asked for again.

    Example::

        bundle = fastcar.export_model("car", "car-w8a8", recipe="w8a8")
        print(bundle.manifest.record)
    """
    return prepare_export(model, out, **options).run(on_progress or (lambda stage, done, total: None))


def prepare_export(
    model: str | Path,
    out: str | Path,
    *,
    recipe: str = "w8a8",
    tas_query: str = "post_rope",
    criterion: str = "tas",
    tas_heads: str = "mean",
    tas_head_weights: str | Path | None = None,
    board: str | None = None,
    frame_layout: str | Path | None = None,
    layers: int | None = None,
    max_frames: int | None = None,
    calibration_clips: int | None = None,
    calibrate_on: str | Path | Sequence[str | Path] = (),
    evaluate: bool = True,
    overwrite: bool = False,
) -> Export:
    """Everything that can be checked without reading the weights: what it needs, then ``run``.

    ``tas_query``, ``tas_heads``: how TAS is computed, see ``IntegerModel``. ``tas_head_weights``: a file of weights for
    a mean that is weighted, see ``read_head_weights``.
    ``board``: also pack program and weights for the overlay of this name (``fastcar.overlays.engine_names``).
    ``frame_layout``: the file that says where the video lies, for checkpoints that have none of that name.
    ``layers``: only so many of the first decoder layers, for a quick trial. ``max_frames``: room for clips of so many
    frames; None: as many as the model was trained for. ``calibration_clips``: at most so many, instead of the recipe's
    number. ``calibrate_on``: folders that ``fastcar generate`` wrote, to calibrate with their clips instead of the
    checkpoint's or random codes. ``criterion``: what replay is decided by, one of ``CRITERIA``. ``evaluate`` records
    the held-out cross-entropy beside that of the float model.
    UsageError, CheckpointError or OutputError if an argument, the checkpoint or the place to write to cannot be used.
    """
    folders = [calibrate_on] if isinstance(calibrate_on, (str, Path)) else list(calibrate_on)
    _check_names(model=model, out=out, frame_layout=frame_layout or "")
    for folder in folders:
        _check_names(calibrate_on=folder)
    chosen = get_recipe(recipe)
    if calibration_clips is not None:
        if calibration_clips < 1:
            raise UsageError("--calibration-clips", str(calibration_clips), "at least 1", "Calibrate on some clips.")
        chosen = replace(chosen, calibration_clips=calibration_clips)
    if tas_query not in ("post_rope", "pre_rope"):
        raise UsageError("--tas-query", repr(tas_query), "post_rope or pre_rope", "Choose one of these.")
    _check_criterion(criterion, tas_query, board, tas_heads, tas_head_weights)
    engine = load_engine(board) if board is not None else None
    layout_file = Path(frame_layout) if frame_layout else None
    generated = [read_generated(Path(folder)) for folder in folders]
    imported = load_model(model, layout_file, layers, max_frames)
    if generated:
        imported = calibrated_on(imported, generated, chosen.calibration_clips)
    head_weights = read_head_weights(Path(tas_head_weights), imported.source.config) if tas_head_weights else None
    settings = {
        "version": __version__,
        "recipe": asdict(chosen),
        "tas_query": tas_query,
        "criterion": criterion,
        "tas_heads": tas_heads,
        "tas_head_weights": head_weights,
        "engine": engine.config.build_id if engine else None,
        "layers": layers,
        "max_frames": max_frames,
        "evaluate": evaluate,
        "calibration": hashlib.sha256(imported.calibration.numpy().tobytes()).hexdigest(),
    }
    key = export_key(settings, checkpoint_files(model, imported))
    scored = (tas_query, criterion, tas_heads, head_weights)
    export = Export(imported, Path(out), chosen, *scored, engine, evaluate, overwrite, key)
    export.check()
    return export


def _check_names(**names: str | Path) -> None:
    """UsageError for a name that is no UTF-8: the formats' own libraries open files by no other."""
    for option, name in names.items():
        try:
            str(name).encode()
        except UnicodeEncodeError:
            fix = "Rename it, or make a link of another name to it."
            raise UsageError(option.replace("_", "-"), ascii(str(name)), "a name in UTF-8", fix) from None


@dataclass(frozen=True)
class Export:
    """An export whose arguments were checked. ``key`` tells it from others into the same folder."""

    imported: ImportedModel
    out: Path
    recipe: Recipe
    tas_query: str
    criterion: str
    tas_heads: str
    head_weights: HeadWeights | None
    engine: Engine | None
    evaluate: bool
    overwrite: bool
    key: str

    def check(self) -> None:
        """UsageError or OutputError for what cannot be done or has no room."""
        if self._depth:
            check_depth_groups(self._depth, self.recipe)
        check_output_folder(self.out.parent, bytes_needed=self.needs.disk)

    @cached_property
    def needs(self) -> Needs:
        """Bytes of disk and memory, estimated. UsageError if the engine cannot run the model."""
        imported = self.imported
        packed = self.plan.bytes if self.plan else 0
        return needs_of(
            imported.source.config,
            imported.layout,
            self.recipe,
            imported.calibration,
            self._held_out,
            packed,
            self._depth,
        )

    def run(self, progress: Progress) -> Bundle:
        """CheckpointError for weights that are no numbers; OutputError if the bundle cannot be written.

        KeyboardInterrupt says, if it is so, what is kept of an interrupted export.
        """
        try:
            return write_bundle(
                self.out,
                lambda folder: self._fill(folder, progress),
                self.overwrite,
                self.key,
                keep=lambda folder: finished_layers(folder) > 0,
            )
        except KeyboardInterrupt:
            folder = unfinished_folder(self.out, self.key)
            if not folder.exists():
                raise
            found = f"{finished_layers(folder)} of {self.imported.source.config.layers} layers"
            told = f"{found} are finished and kept in {folder}: the same command goes on from there"
            raise KeyboardInterrupt(told) from None

    @property
    def _held_out(self) -> torch.Tensor | None:
        clips = self.imported.held_out
        return clips[:EVALUATED_CLIPS] if self.evaluate and clips is not None else None

    @cached_property
    def plan(self) -> ProgramPlan | None:
        """The program to be packed, if it is for a board. UsageError if the engine cannot run the model."""
        if self.engine is None:
            return None
        imported, depth = self.imported, self._depth
        config, engine = imported.source.config, self.engine.config
        return ProgramPlan(
            config,
            imported.layout,
            int4_linears(self.recipe.weight_bit_width, depth),
            engine,
            self.tas_query,
            tas_heads=self.tas_heads,
            depth=depth,
        )

    def _fill(self, folder: Path, progress: Progress) -> Manifest:
        imported, journal = self.imported, Journal(folder)
        config, layout = imported.source.config, imported.layout
        if not journal.layers:
            stage = lambda done, total: progress("checking weights", done, total)
            check_before_quantizing(imported.source, layout, self.recipe, imported.calibration, stage)
            if imported.depth:
                check_depth(imported.depth.transformer(), imported.depth.embedding(), self.recipe)
            write_decoder(folder / DECODER, self._decoder())  # quick, and it may refuse
        record = self._quantize(folder, journal, progress)
        scored = (self.tas_query, self._depth, self.criterion, self.tas_heads)
        write_graph(folder, config, layout, *scored)
        model, _ = read_model(folder / WEIGHTS, config, layout, *scored)
        if self.plan:
            write_packed(folder, model, self.plan, lambda done, total: progress("packing", done, total))
        write_golden(folder, model, imported.prompts, progress)
        (folder / TOKENIZER).write_text(imported.prompts.model_dump_json(indent=1) + "\n", "utf-8")
        journal.close()
        return self._manifest(self._units(folder / WEIGHTS), record)

    @property
    def _depth(self) -> DepthConfig | None:
        return self.imported.depth.config if self.imported.depth else None

    def _decoder(self) -> IntegerDecoder | VqganDecoder:
        imported = self.imported
        if imported.depth:
            return quantize_decoder(imported.pictures())
        frames = code_frames(imported.calibration, imported.layout)
        return quantize_decoder(imported.pictures(), frames[:: max(1, len(frames) // DECODER_FRAMES)])

    def _quantize(self, folder: Path, journal: Journal, progress: Progress) -> dict[str, Any]:
        """Into the weight file, layer by layer; what is to be recorded."""
        imported, config = self.imported, self.imported.source.config
        quantizer = LayerQuantizer(
            imported.source,
            imported.layout,
            self.recipe,
            imported.calibration,
            self._held_out,
            journal.spilled,
            self.tas_query,
            imported.depth.embedding() if imported.depth else None,
        )
        specs = planned_tensors(config, imported.layout, self.recipe.group_size, self._depth)
        writer = TensorWriter(folder / WEIGHTS, specs)
        progress("quantization", journal.layers, config.layers)
        if not journal.layers:
            quantizer.begin()
        for index in range(journal.layers, config.layers):
            layer = quantizer.layer(index)
            weights, notes = layer.weights, layer.notes
            if self.head_weights:
                weights = weigh_heads(weights, self.head_weights[index])
                notes = [*notes, *lost_heads(index, weights, self.head_weights[index])]
            writer.write(layer_tensors(index, weights, config))
            journal.finish_layer(notes)
            quantizer.drop(index)
            del layer, weights  # before the next one is read
            progress("quantization", index + 1, config.layers)
        writer.write(table_tensors(config, imported.layout))
        writer.write({"embedding": imported.source.embedding().half().numpy()})
        if imported.depth:
            stage = lambda done, total: progress("depth transformer", done, total)
            head = quantizer.depth(imported.depth.transformer(), stage)
            writer.write(depth_tensors(head.weights, imported.source.final_gain().numpy()))
        else:
            head = quantizer.head()
            writer.write(head_tensors(head.weights, head.final_gain.numpy()))
        record: dict[str, Any] = {"quantization_notes": [*imported.all_notes, *journal.notes, *head.notes]}
        if isinstance(head, QuantizedHead) and head.cross_entropies:
            before, after = head.cross_entropies
            record |= {
                "cross_entropy_fp32": before,
                "cross_entropy_quantized": after,
                "cross_entropy_change_percent": 100 * (after / before - 1),
            }
        return record

    def _units(self, weights: Path) -> tuple[float, ...]:
        """Of a score, a layer each."""
        config = self.imported.source.config
        if self.criterion == "mlp-input":
            return (SIMILARITY_UNIT,) * config.layers
        return tuple(tas_unit(scale, config.heads, config.head_dim) for scale in _tas_scales(weights, config.layers))

    def _manifest(self, units: tuple[float, ...], record: dict[str, Any]) -> Manifest:
        imported, config, engine = self.imported, self.imported.source.config, self.engine
        return Manifest(
            name=imported.name,
            fastcar=__version__,
            config=config,
            depth=self._depth,
            frame_layout=imported.layout,
            frame_rate=imported.frame_rate,
            recipe=asdict(self.recipe),
            sampling=imported.sampling,
            criterion=self.criterion,
            tas_query=self.tas_query,
            tas_heads=self.tas_heads,
            tas_head_weights=self.head_weights,
            tas_unit=units,
            thresholds=(None,) * config.layers,
            board=engine.board if engine else None,
            overlay=engine.config.name if engine else None,
            engine=engine.config if engine else None,
            record=record,
            files={},
        )


def _check_criterion(
    criterion: str, tas_query: str, board: str | None, tas_heads: str, tas_head_weights: str | Path | None
) -> None:
    if tas_heads not in TAS_HEADS:
        raise UsageError("--tas-heads", repr(tas_heads), f"one of {', '.join(TAS_HEADS)}", "Choose one of these.")
    if tas_head_weights and tas_heads != "mean":
        found, fix = f"--tas-heads {tas_heads} beside it", "Drop one of the two."
        raise UsageError("--tas-head-weights", found, "--tas-heads mean: only a mean is weighted", fix)
    if criterion not in CRITERIA:
        raise UsageError("--criterion", repr(criterion), " or ".join(CRITERIA), "Choose one of these.")
    if criterion == "tas":
        return
    if board:
        expected, fix = "--criterion tas, all that an overlay's engine decides by", "Drop --board or --criterion."
        raise UsageError("--board", f"--criterion {criterion} beside it", expected, fix)
    if tas_query != "post_rope":
        expected, fix = "--criterion tas: no other one has a query", "Drop --tas-query or --criterion."
        raise UsageError("--tas-query", f"--criterion {criterion} beside it", expected, fix)
    if tas_heads != "mean" or tas_head_weights:
        option = "--tas-head-weights" if tas_head_weights else "--tas-heads"
        expected, fix = "--criterion tas: no other one is of heads", f"Drop {option} or --criterion."
        raise UsageError(option, f"--criterion {criterion} beside it", expected, fix)


def _tas_scales(weights: Path, layers: int) -> list[float]:
    """A layer each, as they are stored."""
    stored = stored_tensors(weights)
    return [float(read_tensor(weights, stored[f"layers.{index}.tas_scale"])[0]) for index in range(layers)]
