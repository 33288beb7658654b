"""Options that the commands which generate share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..backends.registry import DeviceChoice
from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..settings import POLICIES, AttentionSettings, ReplaySettings

__all__ = ["attention_of", "clip_options", "device_of", "device_options", "replay_of"]

Command = Callable[..., Any]

CLIP = (
    click.option("--prompt", "prompts", multiple=True, required=True, help="Scene; repeat for several clips."),
    click.option("--frames", type=int, help="Frames to generate  [default: as many as the model was trained for]"),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same video anywhere."),
    click.option(
        "--threshold", type=float, help="Replay where TAS (or the bundle's criterion) is above this, in every layer."
    ),
    click.option("--policy", default="independent", show_default=True, help=f"How rows decide: {', '.join(POLICIES)}."),
    click.option("--max-age", type=int, help="Replay a value at most this often in a row; 1: never twice."),
    click.option("--attention-window", type=int, help="Positions before its own that a position sees  [default: all]"),
    click.option("--attention-sinks", type=int, help="First positions seen beside those of the window  [default: 0]"),
    click.option("--guidance", type=float, help="Classifier-free guidance scale, 1 for none  [default: the bundle's]"),
)


def clip_options(command: Command) -> Command:
    """What clip to generate, and how its rows replay and attend."""
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


def attention_of(options: dict[str, Any]) -> AttentionSettings:
    return AttentionSettings(options["attention_sinks"] or 0, options["attention_window"])


def replay_of(bundle: Bundle, options: dict[str, Any]) -> ReplaySettings:
    """The options' threshold in every layer, or the bundle's own thresholds."""
    thresholds = bundle.manifest.thresholds
    if options["threshold"] is not None:
        thresholds = (options["threshold"],) * bundle.manifest.config.layers
    return ReplaySettings(thresholds, options["policy"], options["max_age"])
