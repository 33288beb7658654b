"""Options that the commands which generate share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..backends.registry import DeviceChoice
from ..bundle.bundle import Bundle
from ..bundle.manifest import Manifest
from ..config import FrameLayout
from ..errors import UsageError
from ..settings import POLICIES, AttentionSettings, ReplaySettings, window_positions

__all__ = [
    "attention_of",
    "attention_options",
    "clip_options",
    "device_of",
    "device_options",
    "replay_of",
    "setting_words",
    "tuned_notice",
]

Command = Callable[..., Any]
NAMED = {"never": None, "always": float("-inf")}


class ThresholdList(tuple[float | None, ...]):
    """As an option's value: written as it is given."""

    def __str__(self) -> str:
        return ",".join("never" if value is None else str(value) for value in self)


class Thresholds(click.ParamType):
    """Numbers in units of TAS, ``never`` or ``always``, separated by commas: a tuple, of one for all layers."""

    name = "tau[,tau...]"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> tuple[float | None, ...]:
        if isinstance(value, tuple):
            return value
        try:
            parts = [part.strip() for part in value.split(",")]
            return ThresholdList([NAMED[part] if part in NAMED else float(part) for part in parts])
        except ValueError:
            self.fail(f"{value!r}; expected numbers, never or always, separated by commas", param, context)


ATTENTION = (
    click.option(
        "--attention-window", help="Positions before its own that a position sees, or frames: 2f  [default: all]"
    ),
    click.option("--attention-sinks", type=int, help="First positions seen beside those of the window  [default: 0]"),
    click.option(
        "--attention-columns", type=int, help="Last frames whose same place is seen beside the window  [default: 0]"
    ),
)


def attention_options(command: Command) -> Command:
    """Which positions of its past a position sees."""
    for option in reversed(ATTENTION):
        command = option(command)
    return command


CLIP = (
    click.option("--prompt", "prompts", multiple=True, required=True, help="Scene; repeat for several clips."),
    click.option("--frames", type=int, help="Frames to generate  [default: as many as the model was trained for]"),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same video anywhere."),
    click.option(
        "--threshold",
        type=Thresholds(),
        help="Replay where TAS (or the bundle's criterion) is above this: one number, or one a layer such as "
        "-1,never,always,2.5.",
    ),
    click.option("--policy", help=f"How rows decide: {', '.join(POLICIES)}  [default: the bundle's]"),
    click.option("--max-age", type=int, help="Replay a value at most this often in a row; 1: never twice."),
    click.option("--refresh", type=int, help="Every so many frames one computes everything  [default: never]"),
    click.option("--guidance", type=float, help="Classifier-free guidance scale, 1 for none  [default: the bundle's]"),
)


HELD = ("hold_replay_ratio", "hold_frame_time")
HOLD = (
    click.option(
        "--hold-replay-ratio", type=float, help="Move the thresholds from frame to frame to replay this share of each."
    ),
    click.option(
        "--hold-frame-time",
        type=float,
        help="The same for a frame's seconds on the overlay that the bundle is packed for, estimated by the plan.",
    ),
)


def hold_options(command: Command) -> Command:
    """What is held while generating."""
    for option in reversed(HOLD):
        command = option(command)
    return command


def clip_options(command: Command) -> Command:
    """What clip to generate, and how its rows replay and attend."""
    command = attention_options(command)
    for option in reversed(CLIP):
        command = option(command)
    return command


DEVICE = (
    click.option(
        "--overlay", type=click.Path(path_type=Path), help="Bitstream (.bit, its .hwh beside it) for --backend pynq."
    ),
    click.option("--device", help="For --backend pynq: board, or emulated[:FAULT,...]  [default: board]"),
    click.option("--deadline", type=float, help="Seconds a frame may take on the device  [default: by its bytes]"),
)


def device_options(command: Command) -> Command:
    """Which device the pynq back end runs on."""
    for option in reversed(DEVICE):
        command = option(command)
    return command


def device_of(options: dict[str, Any], clips: int = 1, guided: bool = True) -> DeviceChoice:
    """UsageError for device options without ``--backend pynq``."""
    given = [name for name in ("overlay", "device", "deadline") if options[name] is not None]
    if given and options["backend"] != "pynq":
        raise UsageError(f"--{given[0]}", f"--backend {options['backend']}", "--backend pynq", "Add it, or drop this.")
    if options["deadline"] is not None and not options["deadline"] > 0:
        raise UsageError("--deadline", str(options["deadline"]), "a positive number of seconds", "Correct it.")
    return DeviceChoice(options["device"] or "board", options["overlay"], options["deadline"], clips, guided)


def attention_of(options: dict[str, Any], layout: FrameLayout) -> AttentionSettings:
    """``layout``: of the model, for a window given in frames. UsageError for what no run could use."""
    window = options["attention_window"]
    if window is not None:
        window = window_positions(window, layout.tokens_per_frame)
    return AttentionSettings(options["attention_sinks"] or 0, window, options["attention_columns"] or 0)


def _holds(options: dict[str, Any]) -> bool:
    return any(options.get(name) is not None for name in ("hold_replay_ratio", "hold_frame_time"))


def replay_of(bundle: Bundle, options: dict[str, Any]) -> ReplaySettings:
    """The options' thresholds, one a layer or one for all, or the bundle's own; what is to be held with the options of
    ``hold_options``, which starts without thresholds where the bundle has none: from `never` nothing could be moved.
    UsageError for another number of thresholds."""
    thresholds, layers = bundle.manifest.thresholds, bundle.manifest.config.layers
    if given := options["threshold"]:
        if len(given) not in (1, layers):
            raise UsageError("--threshold", f"{len(given)} values", f"1 or {layers}, one a layer", "List one a layer.")
        thresholds = given * (layers if len(given) == 1 else 1)
    elif _holds(options) and all(threshold is None for threshold in thresholds):
        thresholds = ()
    policy = bundle.manifest.policy if options["policy"] is None else options["policy"]
    return ReplaySettings(thresholds, policy, options["max_age"], options["refresh"])


def setting_words(replay: ReplaySettings, attention: AttentionSettings) -> str:
    """The options, but for thresholds, that give these settings: none for what is the default."""
    given = {
        "--max-age": replay.max_age,
        "--refresh": replay.refresh,
        "--attention-window": attention.window,
        "--attention-sinks": attention.sinks,
        "--attention-columns": attention.columns,
    }
    return " ".join(f"{option} {value}" for option, value in given.items() if value)


def tuned_notice(
    manifest: Manifest, options: dict[str, Any], replay: ReplaySettings, attention: AttentionSettings
) -> str | None:
    """A line for the user if the run replays by the bundle's thresholds, but otherwise than they were tuned for."""
    record = manifest.record.get("tuning")
    others = any(options.get(name) is not None for name in ("threshold", "replay_ratio", *HELD))
    if not isinstance(record, dict) or others or not replay.thresholds:
        return None
    tuned = ReplaySettings((), record.get("policy", "independent"), record.get("max_age"), record.get("refresh"))
    seen = AttentionSettings(**record.get("attention", {}))
    if (tuned.policy, setting_words(tuned, seen)) == (replay.policy, setting_words(replay, attention)):
        return None
    one, other = (
        f"--policy {settings.policy} {setting_words(settings, sees)}".strip()
        for settings, sees in ((tuned, seen), (replay, attention))
    )
    return f"note: the bundle's thresholds were tuned with {one}; this run has {other}: its replay ratio is another"
