"""Each setting over its prompts and seeds, and the settings that no other one beats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["MEASURES", "pareto", "setting_rows"]

MEASURES = (
    "eligible_replay_ratio", "replay_ratio", "skipped_ratio", "seconds", "steps_per_second", "speed_up",
    "bytes_per_step", "psnr_db", "ssim", "code_agreement", "nll", "flicker",
)  # fmt: skip


def setting_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One a bundle and setting, in the order of ``rows``.

    Each of ``MEASURES``: ``mean`` and ``spread`` (standard deviation, n - 1; 0 of one run) of its finite values, None
    where there is none. ``runs``; ``identical``: runs without any difference from dense, whose PSNR is infinite.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["bundle"], row["setting"]), []).append(row)
    return [_setting(group) for group in groups.values()]


def _setting(group: list[dict[str, Any]]) -> dict[str, Any]:
    first = group[0]
    facts = {name: first[name] for name in ("bundle", "recipe", "setting", "kind", "policy", "wanted_ratio")}
    facts["thresholds"] = first["thresholds"]
    facts["runs"] = len(group)
    facts["identical"] = sum(row["psnr_db"] == math.inf for row in group)
    for name in MEASURES:
        values = [row[name] for row in group if row.get(name) is not None and math.isfinite(row[name])]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        facts[name] = {"mean": float(np.mean(values)), "spread": spread} if values else None
    return facts


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices, by rising x, of the points (x, y) that no other one equals or beats in both: greater is better."""
    order = sorted(range(len(points)), key=lambda index: (-points[index][0], -points[index][1]))
    front, best = [], -math.inf
    for index in order:
        if points[index][1] > best:
            front.append(index)
            best = points[index][1]
    return front[::-1]
