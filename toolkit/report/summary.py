"""The numbers of a run: as a plain dictionary for machines, and as lines of text for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ..evaluation.metrics import WINDOW, code_agreement, flicker, psnr_per_frame, ssim_per_frame
from .view import RunView, check_comparable

__all__ = ["pooled_psnr", "summary", "summary_table"]

Number = int | float | None

LABELS = {
    "steps_per_second": "steps/s",
    "dense_steps_per_second": "steps/s, dense",
    "speed_up": "speed-up",
    "eligible_speed_up": "speed-up, frames after the first",
    "replay_ratio": "replay ratio",
    "eligible_replay_ratio": "replay ratio, of eligible",
    "skipped_ratio": "skipped for all rows at once",
    "psnr_db": "PSNR against dense",
    "ssim": "SSIM against dense",
    "code_agreement": "codes equal to dense",
    "flicker": "flicker",
    "dense_flicker": "flicker, dense",
}


def summary(replay: RunView, dense: RunView | None = None) -> dict[str, Number]:
    """The numbers of a replay run and, where ``dense`` is given, of its comparison with the dense run.

    Plain int, float and None, fit for strict JSON: what is not defined (a ratio of eligible in a single frame, any
    comparison without ``dense``, SSIM of frames under 11 pixels) is None, and so is ``psnr_db`` when all frames are
    identical, which ``identical_frames`` tells. Units: steps/s, s, dB, fractions, flicker in levels of 255. PSNR
    pools the MSE over frames and clips; SSIM, code agreement and flicker are means. ValueError when the two runs do
    not show the same clips.
    """
    check_comparable(replay, dense)
    run = replay.generation
    numbers: dict[str, Number] = {
        "clips": replay.clips,
        "frames": replay.frame_count,
        "layers": replay.layers,
        "rows": run.rows,
        "seconds": _number(run.seconds.sum()),
        "steps_per_second": _rate(replay),
        "replay_ratio": _number(run.replay_ratio),
        "eligible_replay_ratio": _number(run.eligible_replay_ratio),
        "skipped_ratio": _number(run.skipped_ratio),
        "flicker": _number(np.mean([flicker(clip) for clip in replay.frames])),
    }
    return numbers | (_comparison(replay, dense) if dense else {})


def summary_table(numbers: Mapping[str, Number], keys: Iterable[str] = tuple(LABELS)) -> list[tuple[str, str]]:
    """(label, value with unit) of the numbers in ``keys``, in that order; undefined ones are left out."""
    lines = []
    for key in keys:
        if numbers.get(key) is not None:
            lines.append((LABELS[key], _text(key, numbers[key])))
        elif key == "psnr_db" and numbers.get("identical_frames"):
            lines.append((LABELS[key], "identical"))
    return lines


def pooled_psnr(frame_psnr: np.ndarray) -> float:
    """PSNR in dB of the frames' mean MSE, from their own PSNR in dB; inf when all are."""
    error = float(np.mean(10.0 ** (-np.asarray(frame_psnr) / 10)))
    return -10 * math.log10(error) if error else math.inf


def _comparison(replay: RunView, dense: RunView) -> dict[str, Number]:
    """The keys that need a dense run."""
    run, other = replay.generation, dense.generation
    pairs = list(zip(dense.frames, replay.frames, strict=True))
    decibels = np.array([psnr_per_frame(*pair) for pair in pairs])
    wide = min(replay.frames.shape[2:4]) >= WINDOW
    return {
        "dense_seconds": _number(other.seconds.sum()),
        "dense_steps_per_second": _rate(dense),
        "speed_up": _ratio(other.seconds, run.seconds),
        "eligible_speed_up": _ratio(other.seconds[1:], run.seconds[1:]),
        "psnr_db": _number(pooled_psnr(decibels)),
        "ssim": _number(np.mean([ssim_per_frame(*pair) for pair in pairs])) if wide else None,
        "code_agreement": code_agreement(other.codes, run.codes),
        "identical_frames": int(np.isinf(decibels).sum()),
        "dense_flicker": _number(np.mean([flicker(clip) for clip in dense.frames])),
    }


def _rate(run: RunView) -> Number:
    return _number(run.generation.steps_per_second) if run.generation.seconds.sum() > 0 else None


def _ratio(dense_seconds: np.ndarray, replay_seconds: np.ndarray) -> Number:
    total = float(replay_seconds.sum())
    return _number(dense_seconds.sum() / total) if total > 0 else None


def _number(value: float) -> Number:
    return float(value) if math.isfinite(value) else None


def _text(key: str, value: float) -> str:
    if key.endswith("speed_up"):
        return f"{value:.2f} x"
    if key.endswith("ratio") or key == "code_agreement":
        return f"{100 * value:.1f} %"
    if key == "psnr_db":
        return f"{value:.2f} dB"
    if key.endswith("flicker"):
        return f"{value:.2f} of 255"
    return f"{value:.3f}" if key == "ssim" else f"{value:,.1f}"
