"""What a clip shows, in at most three words, decided from telemetry only."""

from __future__ import annotations

import numpy as np

__all__ = ["FIELDS", "PHRASES", "WORDS", "label"]

FIELDS = ("speed", "yaw", "slip", "steer", "gas", "brake", "off_track")
"""Columns of telemetry, one row a frame: speed and sideways slip of the hull (units/s), heading (rad, left positive,
unwrapped), the three controls, and the share of wheels that touch no road tile."""

PHRASES = (
    "straight",
    "left turn",
    "right turn",
    "sharp left turn",
    "sharp right turn",
    "accelerating",
    "braking",
    "slow",
    "off track",
    "sliding",
)
WORDS = tuple(dict.fromkeys(word for phrase in PHRASES for word in phrase.split()))

_SLIDE = 6.0  # mean sideways speed (units/s) from which a clip shows a slide
_OFF_TRACK = 0.6  # share of wheels beside the road, averaged over the clip
_SPEED_CHANGE = 14.0  # units/s gained or lost within the clip
_SLOW = 14.0  # units/s
_TURN, _SHARP = 0.13, 0.55  # rad of heading within the clip


def label(telemetry: np.ndarray) -> str:
    """telemetry (frames, len(FIELDS)) of one clip -> the phrase that describes it; the rarer event wins."""
    speed, yaw, slip, _, _, _, off_track = telemetry.T
    gain = speed[-3:].mean() - speed[:3].mean()
    heading = yaw[-1] - yaw[0]
    if np.abs(slip).mean() > _SLIDE:
        return "sliding"
    if off_track.mean() > _OFF_TRACK:
        return "off track"
    if abs(gain) > _SPEED_CHANGE:
        return "accelerating" if gain > 0 else "braking"
    if speed.mean() < _SLOW:
        return "slow"
    if abs(heading) < _TURN:
        return "straight"
    side = "left turn" if heading > 0 else "right turn"
    return f"sharp {side}" if abs(heading) > _SHARP else side
