"""What a run is asked to do: sampling, replay and attention settings, validated before any work."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import UsageError

__all__ = [
    "FULL_ATTENTION",
    "MAX_COLUMNS",
    "POLICIES",
    "AttentionSettings",
    "ReplaySettings",
    "SamplingSettings",
    "window_positions",
]

POLICIES = ("independent", "mean", "all")
LARGEST = 1 << 30  # positions of a window, or sinks
MAX_COLUMNS = 64  # earlier frames whose same place is seen; what an engine has room for


@dataclass(frozen=True)
class SamplingSettings:
    """``top_k`` 0 and ``top_p`` 1 keep every code; ``temperature`` 0 is greedy; ``guidance`` 1 is none."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    guidance: float = 1.0

    def __post_init__(self) -> None:
        usable = self.temperature == 0 or 1e-3 <= self.temperature < 1e3  # a smaller one takes logits to infinity
        _check("temperature", self.temperature, usable, "0 (greedy) or 0.001 to 1000")
        _check("top-k", self.top_k, 0 <= self.top_k < 1 << 31, "0 (all codes) or a positive number of codes")
        _check("top-p", self.top_p, 2**-16 <= self.top_p <= 1, "a probability above 0 and up to 1")
        _check("guidance", self.guidance, 0 <= self.guidance < 1e3, "1 (none) or a scale such as 3")

    @property
    def guided(self) -> bool:
        """Whether an unconditional row has to run beside each clip's own."""
        return self.guidance != 1.0


@dataclass(frozen=True)
class ReplaySettings:
    """``thresholds`` one a layer in units of TAS, None where the layer never replays; empty: dense everywhere.

    ``max_age``: how often in a row a value may be replayed; None: without limit; 1: never twice in a row. ``refresh``:
    every how many frames one computes everything; None: never. ``hold``: the wanted share of a frame's evaluations, for
    all frames or one a frame (the first is not looked at); the thresholds are then moved together between frames.
    ``random``: a share to replay by drawing lots instead, for all rows of a step and layer: to compare TAS with.
    """

    thresholds: tuple[float | None, ...] = ()
    policy: str = "independent"
    max_age: int | None = None
    refresh: int | None = None
    hold: float | tuple[float, ...] | None = None
    random: float | None = None

    def __post_init__(self) -> None:
        _check("policy", self.policy, self.policy in POLICIES, f"one of {', '.join(POLICIES)}")
        valid_age = self.max_age is None or 1 <= self.max_age < 1 << 31
        _check("max-age", self.max_age, valid_age, "a positive number of frames")
        valid_refresh = self.refresh is None or 1 < self.refresh < 1 << 31
        _check("refresh", self.refresh, valid_refresh, "2 (every other frame computes) or more frames")
        for share in self.hold if isinstance(self.hold, tuple) else (self.hold,):
            _check("hold-replay-ratio", share, share is None or 0 <= share <= 1, "a ratio, 0 to 1")
        _check("random", self.random, self.random is None or 0 <= self.random <= 1, "a ratio, 0 to 1")
        if self.random is not None and (self.thresholds or self.hold is not None):
            raise UsageError("random replay", "thresholds beside it", "the one or the other", "Drop one.")
        for threshold in self.thresholds:
            _check("threshold", threshold, threshold is None or threshold == threshold, "a number")

    @classmethod
    def uniform(
        cls, threshold: float | None, layers: int, policy: str = "independent", max_age: int | None = None
    ) -> ReplaySettings:
        """The same threshold for every layer."""
        return cls((threshold,) * layers, policy, max_age)

    def refreshed(self, frame: int) -> bool:
        """Whether ``frame`` computes everything whatever the scores."""
        return frame == 0 or (self.refresh is not None and frame % self.refresh == 0)


@dataclass(frozen=True)
class AttentionSettings:
    """Which slots of its past a step at position t sees: s < ``sinks`` and s >= t - ``window``, and always itself.

    ``window`` None: all of them; in positions (see ``window_positions`` for frames). Sinks keep attention stable when
    the first positions leave the window (arXiv 2309.17453, section 3.2).

    ``columns``: of as many earlier frames also the same place, s = t - k * tokens_per_frame for k = 1 .. ``columns``:
    the slots that replay compares with. They are those of frames: a slot of the prompt is seen by sinks and window
    alone, for its place is in no frame.

    The cache keeps every slot, so TAS reads the one a frame before whatever is seen.
    """

    sinks: int = 0
    window: int | None = None
    columns: int = 0

    def __post_init__(self) -> None:
        valid_window = self.window is None or 1 <= self.window <= LARGEST
        _check("attention-window", self.window, valid_window, "a positive number of positions")
        _check("attention-sinks", self.sinks, 0 <= self.sinks <= LARGEST, "0 (none) or a number of first positions")
        valid_columns = 0 <= self.columns <= MAX_COLUMNS
        _check("attention-columns", self.columns, valid_columns, f"0 (none) or up to {MAX_COLUMNS} earlier frames")
        for name, value in (("--attention-sinks", self.sinks), ("--attention-columns", self.columns)):
            if value and self.window is None:
                raise UsageError(
                    name,
                    f"{value} without a window",
                    "--attention-window beside it: without one every position is seen",
                    f"Add --attention-window, or drop {name}.",
                )


def window_positions(text: str, tokens_per_frame: int) -> int:
    """Positions of a window given as such (``"96"``) or in frames of ``tokens_per_frame`` positions (``"2f"``).

    UsageError for what is neither.
    """
    expected = f"a positive number of positions, at most {LARGEST}, or of frames, such as 2f"
    parts = re.fullmatch(r"(-?[0-9]{1,18})(f?)", text)
    if parts is None:
        raise UsageError("--attention-window", repr(text), expected, "Give another --attention-window.")
    positions = int(parts[1]) * (tokens_per_frame if parts[2] else 1)
    _check("attention-window", text, 1 <= positions <= LARGEST, expected)
    return positions


def _check(name: str, value: object, valid: bool, expected: str) -> None:
    if not valid:
        raise UsageError(f"--{name}", str(value), expected, f"Give another --{name}.")


FULL_ATTENTION = AttentionSettings()  # every position sees all before it
