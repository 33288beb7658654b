"""``fastcar inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..bundle.bundle import Bundle
from ..report.settings_table import threshold_text
from .console import emit, examples, json_option, record_rows, table

__all__ = ["command"]

CRITERION_NAMES = {"tas": "TAS", "mlp-input": "mlp-input: the cosine of MLP inputs"}


@click.command("inspect", epilog=examples("fastcar inspect car-w8a8", "fastcar inspect car-w8a8 --json"))
@click.argument("bundle", type=click.Path(path_type=Path))
@json_option
def command(bundle: Path, as_json: bool) -> None:
    """Show what is in BUNDLE, after comparing every file with the manifest."""
    opened = Bundle.open(bundle)
    emit(_facts(opened), as_json, _show)


def _facts(bundle: Bundle) -> dict[str, Any]:
    manifest = bundle.manifest
    packed = bundle.packed()
    linears = [(name, linear) for name, linear in bundle.model()[0].linears()]
    return {
        "path": str(bundle.path),
        "name": manifest.name,
        "fastcar": manifest.fastcar,
        "recipe": manifest.recipe,
        "config": manifest.config.model_dump(),
        "depth": manifest.depth and manifest.depth.model_dump(),
        "frame_layout": manifest.frame_layout.model_dump(),
        "criterion": manifest.criterion,
        "tas_query": manifest.tas_query,
        "tas_heads": manifest.tas_heads,
        "tas_head_weights": manifest.tas_head_weights,
        "board": manifest.board,
        "overlay": manifest.overlay,
        "build_id": None if packed is None else f"{packed.build_id:08x}",
        "thresholds": manifest.thresholds,
        "policy": manifest.policy,
        "sampling": vars(manifest.sampling),
        "phrases": bundle.prompts.known,
        "words": sorted(bundle.prompts.words),
        "record": manifest.record,
        "linear_layers": {name: _linear(linear) for name, linear in linears},
        "files": {name: entry.model_dump() for name, entry in manifest.files.items()},
        "verified": True,
    }


def _linear(linear: Any) -> dict[str, Any]:
    inputs, outputs = linear.values.shape
    multipliers = 0 if linear.multiplier is None else linear.multiplier.nbytes
    bias = 0 if linear.bias is None else linear.bias.nbytes
    size = inputs * outputs * linear.bit_width // 8 + multipliers + linear.scale.nbytes + bias
    return {"shape": [inputs, outputs], "bit_width": linear.bit_width, "group_size": linear.group_size, "bytes": size}


def _engine(facts: dict[str, Any]) -> str:
    """With the build by which an overlay tells that it is the one."""
    if facts["overlay"] is None:
        return "no overlay (fastcar export --board)"
    return f"{facts['overlay']}, build {facts['build_id']}"


def _show(facts: dict[str, Any]) -> None:
    config, layout = facts["config"], facts["frame_layout"]
    height, width = layout["grid"]
    parts = {"before a frame": "before_frame", "after a row": "after_row", "after a frame": "after_frame"}
    room = f" (room for {layout['max_frames']})" if layout["max_frames"] else ""
    separators = [f"{name} {', '.join(map(str, layout[key]))}" for name, key in parts.items() if layout[key]]
    shape = ", ".join(f"{key} {config[key]}" for key in ("layers", "hidden", "heads", "kv_heads", "mlp"))
    table(
        f"{facts['name']} ({facts['path']})",
        [
            ("recipe", str(facts["recipe"].get("name"))),
            ("backbone", shape),
            *([("depth transformer", _depth(facts["depth"]))] if facts["depth"] else []),
            ("video", f"{layout['frames']} frames{room} of {height} x {width} codes out of {layout['codes']}"),
            *([("separators", "; ".join(separators))] if separators else []),
            ("replay by", CRITERION_NAMES[facts["criterion"]]),
            *(_score_lines(facts) if facts["criterion"] == "tas" else []),
            ("packed for", _engine(facts)),
            ("thresholds", threshold_text(facts["thresholds"])),
            *_tuning_lines(facts),
            ("prompts", ", ".join(facts["phrases"])),
            *record_rows({key: value for key, value in facts["record"].items() if key != "tuning"}),
        ],
    )
    layers = facts["linear_layers"]
    bits = sorted({entry["bit_width"] for entry in layers.values()})
    rows = [
        (f"{width} bit", str(sum(e["bit_width"] == width for e in layers.values())),
         f"{sum(e['bytes'] for e in layers.values() if e['bit_width'] == width):,}")
        for width in bits
    ]  # fmt: skip
    table("Linear layers", rows, ("weights", "layers", "bytes"))
    files = [(name, f"{entry['bytes']:,}", entry["sha256"][:16]) for name, entry in facts["files"].items()]
    table("Files, all as the manifest says", files, ("file", "bytes", "sha256"))


def _depth(depth: dict[str, Any]) -> str:
    sizes = ", ".join(f"{key} {depth[key]}" for key in ("layers", "hidden", "heads", "mlp"))
    return f"{sizes}; {depth['codes_per_position']} codes a position"


def _score_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    weighted = ", weighted" if facts["tas_head_weights"] else ""
    return [("TAS query", facts["tas_query"]), ("TAS of the heads", facts["tas_heads"] + weighted)]


def _tuning_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    tuning = facts["record"].get("tuning")
    if tuning is None:
        return []
    ratio = tuning["candidates"][tuning["chosen"]]["ratio"]
    return [("tuned for", f"{100 * ratio:.1f} % of the eligible, policy {facts['policy']}")]
