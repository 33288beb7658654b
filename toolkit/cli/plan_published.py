"""``fastcar plan --published``: what others published, beside what the planner says of it."""

from __future__ import annotations

from typing import Any

from ...hls.counting import counter_of_any_engine
from ..planner.paper import DENSE_SECONDS, Row, compare_with_paper
from ..planner.published import Comparison, compare, published_designs
from .console import emit, say, table

__all__ = ["show_published"]


def show_published(as_json: bool) -> None:
    counter = counter_of_any_engine()
    result = {
        "estimated": True,
        "designs": [_design(compare(design, counter)) for design in published_designs()],
        "arXiv:2505.14709": [_paper(row) for row in compare_with_paper(counter)],
    }
    emit(result, as_json, _show)


def _design(one: Comparison) -> dict[str, Any]:
    return {
        **one.design.model_dump(include={"work", "board", "model_name", "weight_bits", "clock_mhz", "note"}),
        "bandwidth_use": one.use,
        "bandwidth_use_stated": one.stated,
        "bytes_per_token": one.bytes_per_token,
        "published_tokens_per_second": one.design.tokens_per_second,
        "predicted_tokens_per_second": one.predicted,
        "error": one.error,
        "reproduced": one.reproduced,
    }


def _paper(row: Row) -> dict[str, Any]:
    return {**vars(row), "error": row.error}


def _show(result: dict[str, Any]) -> None:
    titles = ("work, board, model, weights", "use", "MB", "published", "predicted", "error")
    rows = []
    for one in result["designs"]:
        rows.append(
            (
                f"{one['work']}\n  {one['board']}, {one['model_name']}, {one['weight_bits']:g} bit",
                f"{one['bandwidth_use']:.1%}" + ("" if one["bandwidth_use_stated"] else "?"),
                f"{one['bytes_per_token'] / 1e6:,.0f}",
                f"{one['published_tokens_per_second']:g}",
                f"{one['predicted_tokens_per_second']:.2f}",
                f"{one['error']:+.0%}" + ("" if one["reproduced"] else " miss"),
            )
        )
    table("Tokens a second of published designs; use: of the peak bandwidth, ? assumed; MB: a token", rows, titles)
    for one in result["designs"]:
        say(f"{one['work']}, {one['board']}: {' '.join(one['note'].split())}")
    titles = ("replay, window", "published", "predicted", "error", "backbone", "MLP share")
    rows = [("dense", "1.00", "fitted", "", "1.00", "")]
    for row in result["arXiv:2505.14709"]:
        share = "" if row["mlp_share"] is None else f"{row['mlp_share']:.0%}"
        window = "" if row["window"] is None else f", window {row['window']}"
        rows.append(
            (
                f"{row['ratio']:.0%}{window}",
                f"{row['published']:.2f}",
                f"{row['with_depth']:.2f}",
                f"{row['error']:+.1%}",
                f"{row['backbone']:.2f}",
                share,
            )
        )
    table("Speed-up of VILA-U 7B over dense, arXiv 2505.14709 (U280)", rows, titles)
    say(f"fitted: one rate of the memory, at which the dense clip takes the published {DENSE_SECONDS} s")
    say("backbone: predicted without the depth transformer")
    say("MLP share: of the dense time, if the published speed-up came from the MLPs alone; a model has one such share")
