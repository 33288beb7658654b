"""What a sweep has finished, a file a run, so that it goes on where it was; and the table of all of it."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from ..bundle.manifest import Manifest
from ..errors import OutputError, UsageError
from ..output import replacing
from .run import Measured, Run, Subject

__all__ = ["COLUMNS", "Store", "identity", "key_of", "require_polars", "write_table"]

FORMAT = 1  # of a run's file; part of its key
ENDLESS = {"Infinity": math.inf, "-Infinity": -math.inf}

TEXT, WHOLE, REAL, REALS = "text", "whole", "real", "reals"
COLUMNS = {
    "bundle": TEXT, "recipe": TEXT, "setting": TEXT, "kind": TEXT, "policy": TEXT, "max_age": WHOLE, "refresh": WHOLE,
    "attention_window": WHOLE, "attention_sinks": WHOLE, "attention_columns": WHOLE, "wanted_ratio": REAL,
    "thresholds": REALS, "prompt": TEXT, "seed": TEXT, "frames": WHOLE, "steps": WHOLE,
    "seconds": REAL, "dense_seconds": REAL, "speed_up": REAL,
    "steps_per_second": REAL, "bytes_per_step": REAL, "dense_bytes_per_step": REAL, "replay_ratio": REAL,
    "eligible_replay_ratio": REAL, "skipped_ratio": REAL, "psnr_db": REAL, "psnr_per_frame": REALS,
    "identical_frames": WHOLE, "ssim": REAL, "code_agreement": REAL, "nll": REAL, "dense_nll": REAL, "flicker": REAL,
    "dense_flicker": REAL, "processes": WHOLE, "key": TEXT,
}  # fmt: skip
"""Of ``runs.parquet`` and ``runs.csv``. ``seed`` is text: it may have 64 bits without a sign. Seconds, dB, nats a code,
bytes; ``processes``: that shared the machine while the run was timed; ``thresholds``: null where a layer never replays;
PSNR is infinite where the frames are identical."""


def key_of(kind: str, *parts: Any) -> str:
    """Name of a result: a hash of all that decides it."""
    text = json.dumps([FORMAT, kind, *(asdict(p) if hasattr(p, "__dataclass_fields__") else p for p in parts)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def identity(manifest: Manifest) -> str:
    """A hash of the bundle's files and settings, not of when and where it was made."""
    return hashlib.sha256(manifest.model_dump_json(exclude={"record"}).encode()).hexdigest()


def run_key(subject: Subject, run: Run) -> str:
    return key_of("run", _of(subject), run.replay, run.attention, run.prompt, str(run.seed))


def calibration_key(subject: Subject, ratio: float, *settings: Any) -> str:
    return key_of("calibration", _of(subject), ratio, *settings)


def _of(subject: Subject) -> dict[str, Any]:
    """The bundle by what is in it: it may lie elsewhere the next time."""
    return {name: value for name, value in asdict(subject).items() if name != "path"}


class Store:
    """A folder ``runs`` with KEY.json, what was measured, and KEY.safetensors, the codes; each complete or absent."""

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, out / "runs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One sweep at a time in a folder. UsageError if there is another; frees itself with the process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found, fix = f"another sweep works in {self.out}", "Wait for it, or choose another folder."
                raise UsageError("--out", found, "one sweep a folder", fix) from None
            for partial in self.folder.glob(".*.partial"):  # of a sweep that was killed
                partial.unlink(missing_ok=True)
            yield

    def load(self, key: str) -> dict[str, Any] | None:
        """None if there is no such result, or it is not whole."""
        try:
            found = json.loads((self.folder / f"{key}.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or found.get("key") != key:
            return None
        if found.get("codes") and not (self.folder / f"{key}.safetensors").is_file():
            return None
        return {name: value if name == "prompt" else _value(value) for name, value in found.items()}

    def codes(self, key: str) -> np.ndarray:
        """(frames, cells[, D]) int32."""
        return load_file(self.folder / f"{key}.safetensors")["codes"]

    def save(self, key: str, measured: Measured, **more: Any) -> None:
        """The codes first: a result that can be loaded has them."""
        if measured.codes is not None:
            with replacing(self.folder / f"{key}.safetensors") as partial:
                partial.write_bytes(save({"codes": np.ascontiguousarray(measured.codes)}))
        values = {"key": key, "codes": measured.codes is not None, **more, **measured.values}
        text = json.dumps({name: _plain(value) for name, value in values.items()}, indent=1)
        with replacing(self.folder / f"{key}.json") as partial:
            partial.write_text(text + "\n", "utf-8")


def require_polars() -> Any:
    """UsageError without the package that writes Parquet."""
    try:
        import polars
    except ImportError:
        fix = "pip install 'fastcar-edge[evaluate]'"
        raise UsageError("sweep", "no polars", "the package that writes runs.parquet", fix) from None
    return polars


def write_table(out: Path, rows: Sequence[dict[str, Any]]) -> list[Path]:
    """``runs.parquet`` and ``runs.csv``, the same rows in ``COLUMNS``; lists are separated by spaces in the latter."""
    polars = require_polars()
    kinds = {TEXT: polars.String, WHOLE: polars.Int64, REAL: polars.Float64, REALS: polars.List(polars.Float64)}
    columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
    frame = polars.DataFrame(columns, schema={name: kinds[kind] for name, kind in COLUMNS.items()})
    parquet, text = out / "runs.parquet", out / "runs.csv"
    with replacing(parquet) as partial:
        try:
            frame.write_parquet(partial)
        except polars.exceptions.PolarsError as error:
            raise OutputError(parquet, str(error), "a file that can be written", "Choose another --out.") from error
    with replacing(text) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([_cell(row.get(name)) for name in COLUMNS] for row in rows)
    return [parquet, text]


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join("null" if item is None else repr(item) for item in value)
    return repr(value) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    """For strict JSON: what is not a number is None, and infinities are words."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    return ENDLESS.get(value, value) if isinstance(value, str) else value
