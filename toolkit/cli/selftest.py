"""``fastcar selftest``."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..backends.engine import EngineBackend
from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..selftest import SelfTestReport, self_test
from .console import emit, examples, json_option, progress, say, table
from .options import device_of, device_options

__all__ = ["command"]


@click.command("selftest", epilog=examples("fastcar selftest car-kv260", "fastcar selftest car-kv260 --json"))
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--backend", default="csim", show_default=True, help="What runs the engine: csim, or pynq.")
@device_options
@json_option
def command(bundle: Path, backend: str, as_json: bool, **options: Any) -> None:
    """Compare the engine with the reference node by node, in steps recorded in BUNDLE, and name the first that differs.

    Then the bundle's golden clip: as recorded, the same twice, and whatever memory held before. Exit code 1 if anything
    differs.
    """
    opened = Bundle.open(bundle)
    with progress() as advance:
        advance("opening the engine", 0, 1)
        engine = open_backend(backend, opened, check=False, device=device_of({**options, "backend": backend}))
        if not isinstance(engine, EngineBackend):
            raise UsageError("--backend", backend, "a back end that runs the engine, as csim", "Choose another one.")
        advance("opening the engine", 1, 1)
        with closing(engine) if hasattr(engine, "close") else nullcontext():
            report = self_test(engine, opened, advance)
            registers = engine.registers() if report.failure and hasattr(engine, "registers") else ""
    emit(_result(opened, engine, report), as_json, _show)
    if report.failure:
        if registers:
            click.echo(registers, err=True)
        say(f"differs: {report.failure}")
        raise click.exceptions.Exit(1)


def _result(bundle: Bundle, engine: EngineBackend, report: SelfTestReport) -> dict[str, Any]:
    return {
        "bundle": str(bundle.path),
        "backend": engine.name,
        "engine": engine.engine.name,
        "build_id": f"{engine.engine.build_id:08x}",
        "passed": report.passed,
        "positions": report.positions,
        "first_difference": None if report.first is None else asdict(report.first),
        "checks": [asdict(check) for check in report.checks],
        "nodes": [asdict(node) | {"equal": node.equal} for node in report.nodes],
    }


def _show(result: dict[str, Any]) -> None:
    """A line a kind of node, not a node: models have many layers."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for node in result["nodes"]:
        kinds.setdefault(node["kind"], []).append(node)
    rows = []
    for kind, nodes in kinds.items():
        counts = (f"{sum(node[count] for node in nodes):,}" for count in ("values", "differing"))
        rows.append((kind, *counts, _where([node for node in nodes if not node["equal"]])))
    positions = ", ".join(map(str, result["positions"]))
    title = f"{result['engine']} ({result['backend']}), build {result['build_id']}: nodes at positions {positions}"
    table(title, rows, ("node, of all layers", "values", "differ", "result"))
    checks = [(check["name"], "yes" if check["passed"] else "NO") for check in result["checks"]]
    table(f"Self-test of {result['bundle']}", checks, ("", ""))


def _where(wrong: list[dict[str, Any]]) -> str:
    """``DIFFERS in layer 1, 2``; ``DIFFERS in code 0 layer 1; code 2`` of a depth transformer's."""
    layers: dict[int | None, list[str]] = {}
    for node in wrong:
        layers.setdefault(node["code"], []).extend([] if node["layer"] is None else [str(node["layer"])])
    places = []
    for code, own in layers.items():
        parts = [f"code {code}"] if code is not None else []
        parts += ["layer " + ", ".join(own)] if own else []
        places.append(" ".join(parts))
    if not wrong:
        return "equal"
    return f"DIFFERS in {'; '.join(places)}" if any(places) else "DIFFERS"
