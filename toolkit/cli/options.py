"""Options that the commands which generate share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..bundle.bundle import Bundle
from ..settings import POLICIES, AttentionSettings, ReplaySettings

__all__ = ["attention_of", "clip_options", "replay_of"]

Command = Callable[..., Any]

CLIP = (
    click.option("--prompt", "prompts", multiple=True, required=True, help="Scene; repeat for several clips."),
    click.option("--frames", type=int, help="Frames to generate  [default: as many as the model was trained for]"),
    click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same video anywhere."),
    click.option("--threshold", type=float, help="Replay where TAS is above this value, in every layer."),
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


def attention_of(options: dict[str, Any]) -> AttentionSettings:
    return AttentionSettings(options["attention_sinks"] or 0, options["attention_window"])


def replay_of(bundle: Bundle, options: dict[str, Any]) -> ReplaySettings:
    """The options' threshold in every layer, or the bundle's own thresholds."""
    thresholds = bundle.manifest.thresholds
    if options["threshold"] is not None:
        thresholds = (options["threshold"],) * bundle.manifest.config.layers
    return ReplaySettings(thresholds, options["policy"], options["max_age"])
