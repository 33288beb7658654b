"""Tuning of a bundle's thresholds: towards a replay ratio, or to the largest ratio that keeps a quality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..bundle.bundle import MANIFEST, Bundle
from ..bundle.manifest import Manifest
from ..errors import OutputError, UsageError
from ..output import replacing
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings
from .quality import Quality, Target, mean_quality
from .search import Candidate, Follow, Measured, candidates, measure, sensitivity, uniform_threshold
from .teacher import Scene
from .workers import Followers

__all__ = ["Request", "Tuned", "store_thresholds", "tune"]

STEPS = 5  # of the bisection for a quality: the ratio is found to 1/32
NEAR = 0.02  # a candidate whose ratio is farther from the wanted one is no match for the others

Advance = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """``ratio`` of the eligible evaluations, or None and a ``target``. ``replay``: policy, limit on age, refresh;
    ``attention``: what the followers see; both are recorded.
    ``per_layer`` False: one threshold for all layers. The held-out scenes are not looked at before the end."""

    calibration: tuple[Scene, ...]
    held_out: tuple[Scene, ...]
    replay: ReplaySettings
    ratio: float | None = None
    target: Target | None = None
    per_layer: bool = True
    attention: AttentionSettings = FULL_ATTENTION


@dataclass(frozen=True)
class Tuned:
    """``chosen`` of the ``candidates``, measured on the calibration scenes; ``uniform`` is one of them. By name
    (``uniform``, ``chosen``): clips of the held-out scenes against dense ones. ``sensitivity`` (layers, points): nats a
    code when a layer alone replays a share of ``points``; empty when only a uniform threshold was looked for."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    held_out: dict[str, Quality]
    points: tuple[float, ...]
    sensitivity: tuple[tuple[float, ...], ...]

    def record(self, request: Request) -> dict[str, Any]:
        """What the bundle keeps of it."""
        return {
            "ratio": request.ratio,
            "target": asdict(request.target) if request.target else None,
            "policy": request.replay.policy,
            "max_age": request.replay.max_age,
            "refresh": request.replay.refresh,
            "attention": asdict(request.attention),
            "chosen": self.chosen.name,
            "candidates": {
                one.name: {
                    "thresholds": one.measured.thresholds,
                    "ratio": one.measured.ratio,
                    "shares": one.measured.shares.tolist(),
                    "divergence": one.measured.divergence,
                }
                for one in self.candidates
            },
            "held_out": {name: asdict(quality) for name, quality in self.held_out.items()},
            "points": self.points,
            "sensitivity": self.sensitivity,
            "scenes": [asdict(scene) for scene in request.calibration],
            "held_out_scenes": [asdict(scene) for scene in request.held_out],
        }


def tune(
    layers: int,
    followers: Followers,
    request: Request,
    advance: Advance = lambda *_: None,
    known: Tuned | None = None,
) -> Tuned:
    """Each candidate deals the ratio to the layers in another way (``search.candidates``); the one whose predictions
    diverge least from the dense ones is chosen. With a target the ratio is bisected first, by generating clips.

    ``known``: an earlier tuning on the same scenes, whose sensitivity is taken over. UsageError if even the least
    replay misses the target.
    """
    stage = ["measuring sensitivity", 0]

    def follow(jobs: Sequence[tuple[Scene, ReplaySettings]]) -> Any:
        def done() -> None:
            stage[1] += 1
            advance(stage[0], stage[1], max(stage[1], total))

        total = stage[1] + len(jobs)
        advance(stage[0], stage[1], total)
        return followers.follow(jobs, done)

    scenes, replay = request.calibration, request.replay
    curves = (np.zeros(0), np.zeros((0, 0)))
    if request.per_layer and known is not None:
        curves = np.array(known.points), np.array(known.sensitivity)
    elif request.per_layer:
        curves = sensitivity(follow, scenes, replay, layers)
    stage[:] = ["finding thresholds", 0]

    def at(ratio: float) -> list[Candidate]:
        if request.per_layer:
            return candidates(follow, scenes, replay, curves, ratio)
        return [Candidate("uniform threshold", uniform_threshold(follow, scenes, replay, ratio))]

    if request.target is None:
        found = at(request.ratio)
        chosen = _best(found, request.ratio)
    else:
        found, chosen = _reach(followers, follow, request, at)
    named = {"uniform": found[0].measured, "chosen": chosen.measured}
    stage[:] = ["held-out prompts", 0]
    held_out = {
        name: _quality(followers, follow, request.held_out, replay, measured) for name, measured in named.items()
    }
    return Tuned(chosen, tuple(found), held_out, tuple(curves[0].tolist()), tuple(map(tuple, curves[1].tolist())))


def store_thresholds(bundle: Bundle, tuned: Tuned, request: Request) -> None:
    """As the bundle's own, with their policy and record; the manifest is replaced at once. OutputError if it cannot, or
    if another bundle is there by now, whose manifest is kept."""
    now = Manifest.read(bundle.path / MANIFEST)
    if _untuned(now) != _untuned(bundle.manifest):
        found, expected = "another bundle since the tuning began", "the one that was tuned"
        raise OutputError(bundle.path, found, expected, "Tune it again.")
    manifest = now.model_copy(
        update={
            "thresholds": tuned.chosen.measured.thresholds,
            "policy": request.replay.policy,
            "record": {**now.record, "tuning": tuned.record(request)},
        }
    )
    with replacing(bundle.path / MANIFEST) as partial:
        manifest.write(partial)


def _untuned(manifest: Manifest) -> dict[str, Any]:
    return manifest.model_dump(exclude={"thresholds", "policy", "record"})


def _best(found: Sequence[Candidate], ratio: float) -> Candidate:
    """The least divergence of those near the ratio, which all are unless scores are too coarse for it."""
    nearest = min(abs(one.measured.ratio - ratio) for one in found)
    near = [one for one in found if abs(one.measured.ratio - ratio) <= max(NEAR, nearest)]
    return min(near, key=lambda one: one.measured.divergence)


def _reach(
    followers: Followers, follow: Follow, request: Request, at: Callable[[float], list[Candidate]]
) -> tuple[list[Candidate], Candidate]:
    """The candidates of the largest ratio found whose best one meets the target."""
    low, high, best = 0.0, 1.0, None
    nearest = None
    for _ in range(STEPS):
        ratio = (low + high) / 2
        found = at(ratio)
        chosen = _best(found, ratio)
        nearest = _quality(followers, follow, request.calibration, request.replay, chosen.measured)
        if request.target.met(nearest):
            low, best = ratio, (found, chosen)
        else:
            high = ratio
    if best is None:
        field, value = request.target.field, request.target.value
        reached = f"{getattr(nearest, field):.4g} at a replay ratio of {nearest.ratio:.2f}"
        raise UsageError(f"{field} {value:g}", reached, f"{value:g} or better", "Ask for less, or do not replay.")
    return best


def _quality(
    followers: Followers, follow: Follow, scenes: Sequence[Scene], replay: ReplaySettings, measured: Measured
) -> Quality:
    settings = replace(replay, thresholds=measured.thresholds)
    clips = followers.generate([(scene, settings) for scene in scenes])
    followed, _ = measure(follow, scenes, replay, measured.thresholds)
    return mean_quality([clip.compared for clip in clips], [clip.ratio for clip in clips], followed.divergence)
