"""One way of replaying that a sweep measures, and its name in tables."""

from __future__ import annotations

import re

from pydantic import model_validator

from ..config import Frozen
from ..errors import UsageError
from ..generation.calibrate import check_ratio
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings

__all__ = ["DENSE", "Setting"]

RULES = ("threshold", "replay_ratio", "hold_replay_ratio", "random", "layers")


class Setting(Frozen):
    """At most one of ``RULES`` says what replays; none of them: dense.

    ``threshold``: in units of TAS, one for all layers or one a layer. ``replay_ratio``: of the eligible evaluations;
    the threshold is found by calibration. ``hold_replay_ratio``: of every frame. ``random``: a share drawn by lot, and
    ``layers``: these replay always, the others never: what TAS is compared with. ValueError for more than one rule.
    """

    name: str = ""
    threshold: float | tuple[float, ...] | None = None
    replay_ratio: float | None = None
    hold_replay_ratio: float | None = None
    random: float | None = None
    layers: tuple[int, ...] | None = None
    policy: str = "independent"
    max_age: int | None = None
    refresh: int | None = None
    attention_window: int | None = None
    attention_sinks: int = 0
    attention_columns: int = 0

    @model_validator(mode="after")
    def _one_rule(self) -> Setting:
        given = [rule for rule in RULES if getattr(self, rule) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} at once; one of them decides")
        return self

    @property
    def kind(self) -> str:
        """The rule, or ``dense``."""
        return next((rule for rule in RULES if getattr(self, rule) is not None), "dense")

    @property
    def attention(self) -> AttentionSettings:
        return AttentionSettings(self.attention_sinks, self.attention_window, self.attention_columns)

    @property
    def is_reference(self) -> bool:
        """Dense with full attention: what the others are compared with."""
        return self.kind == "dense" and self.attention == FULL_ATTENTION

    @property
    def wanted_ratio(self) -> float | None:
        """What is asked for, of whatever share: None where a threshold or layers decide."""
        return getattr(self, self.kind) if self.kind in ("replay_ratio", "hold_replay_ratio", "random") else None

    @property
    def title(self) -> str:
        """The name, or one made of all that is not the default."""
        return self.name or ", ".join(self._words())

    def _words(self) -> list[str]:
        value = getattr(self, self.kind, None)
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        word = {"replay_ratio": "ratio", "hold_replay_ratio": "hold"}.get(self.kind, self.kind)
        words = [f"{word} {','.join(map(str, values))}".strip()]
        if self.kind in ("threshold", "replay_ratio", "hold_replay_ratio"):
            words[0] += f" {self.policy}"
        words += [f"age {self.max_age}"] if self.max_age else []
        words += [f"refresh {self.refresh}"] if self.refresh else []
        if self.attention_window:
            sinks = f"+{self.attention_sinks}" if self.attention_sinks else ""
            columns = f":{self.attention_columns}" if self.attention_columns else ""
            words.append(f"window {self.attention_window}{sinks}{columns}")
        return words

    def replay(self, layers: int, found: float | None = None) -> ReplaySettings:
        """For a model of ``layers``; ``found``: the threshold of a calibrated ratio. UsageError for unusable values."""
        thresholds: tuple[float | None, ...] = ()
        if self.kind == "replay_ratio" and found is not None:
            thresholds = (found,) * layers
        elif self.kind == "threshold":
            given = self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)
            if len(given) not in (1, layers):
                raise self._unusable(f"{len(given)} thresholds", f"1 or {layers}, one a layer")
            thresholds = given * (layers if len(given) == 1 else 1)
        elif self.kind == "layers":
            if outside := [layer for layer in self.layers if not 0 <= layer < layers]:
                raise self._unusable(f"layer {outside[0]}", f"layers 0 to {layers - 1}")
            thresholds = tuple(float("-inf") if layer in self.layers else None for layer in range(layers))
        hold, lots = self.hold_replay_ratio, self.random
        return ReplaySettings(thresholds, self.policy, self.max_age, self.refresh, hold, lots)

    def check(self, layers: int, frames: int) -> None:
        """UsageError if no run of ``frames`` can have this setting."""
        try:
            self.replay(layers)
            _ = self.attention
            if self.wanted_ratio is not None:
                check_ratio(self.wanted_ratio, frames, self.max_age, self.refresh, f"--{self.kind.replace('_', '-')}")
        except UsageError as error:  # of one run's options, under which a sweep's are not known
            if error.subject.startswith("setting ") or error.subject == "--frames":
                raise
            raise self._unusable(_as_keys(f"{error.subject} {error.found}"), _as_keys(error.expected)) from None

    def _unusable(self, found: str, expected: str) -> UsageError:
        return UsageError(f"setting {self.title!r}", found, expected, "Correct it.")


def _as_keys(text: str) -> str:
    """With the names of fields for those of a run's options."""
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda option: option[1].replace("-", "_"), text)


DENSE = Setting()
