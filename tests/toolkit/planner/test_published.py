"""Published designs and the paper's own table, beside the planner's figures."""

from __future__ import annotations

import pytest

from fastcar.hls.counting import counter_of_any_engine
from fastcar.toolkit.planner.paper import DENSE_SECONDS, PUBLISHED, Row, compare_with_paper, implied_mlp_share
from fastcar.toolkit.planner.published import CLOSE, Comparison, compare, published_designs


@pytest.fixture(scope="module")
def rows() -> list[Comparison]:
    return [compare(design, counter_of_any_engine()) for design in published_designs()]


@pytest.fixture(scope="module")
def paper() -> dict[tuple[float, int | None], Row]:
    return {(row.ratio, row.window): row for row in compare_with_paper(counter_of_any_engine())}


def test_designs_that_have_to_be_reproduced(rows: list[Comparison]) -> None:
    must = [row for row in rows if row.design.must]
    assert [(row.design.work[:16], row.design.board) for row in must] == [
        ("arXiv:2502.10659", "KV260"), ("arXiv:2507.03308", "KV260"), ("arXiv:2507.03308", "ZCU104"),
    ]  # fmt: skip
    assert all(row.stated and abs(row.error) <= CLOSE for row in must)


def test_what_is_missed_is_explained(rows: list[Comparison]) -> None:
    assert len(rows) == 10
    assert all(row.design.note for row in rows)
    missed = {row.design.model_name for row in rows if not row.reproduced}
    assert missed == {"TinyLlama 1.1B", "OPT-1.3B", "BitNet 0.73B", "Qwen2.5-0.5B", "LLaMA2-7B"}


def test_every_row_of_the_table(rows: list[Comparison]) -> None:
    """Megabytes a token and tokens a second, as the README shows them."""
    table = [
        (3654, 4.43), (4028, 4.46), (4028, 7.86), (1040, 13.96), (1366, 10.04),
        (148, 73.5), (148, 23.0), (148, 73.5), (266, 8.66), (2953, 14.9),
    ]  # fmt: skip
    assert [row.bytes_per_token / 1e6 for row in rows] == pytest.approx([size for size, _ in table], rel=0.01)
    assert [row.predicted for row in rows] == pytest.approx([rate for _, rate in table], rel=0.02)


def test_bytes_a_token_by_hand(rows: list[Comparison]) -> None:
    """LLaMA2-7B: 6.61 G weights of 4.25 bits with the head, and 512 positions of keys and values of 8 bits."""
    by_hand = (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000) * 17 / 32 + 2 * 32 * 4096 * 512
    assert rows[0].bytes_per_token == pytest.approx(by_hand, rel=0.01)
    heads_in_parts = (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256) * 17 / 32
    for row in rows[1:3]:
        assert row.bytes_per_token == pytest.approx(heads_in_parts + 2 * 32 * 1024 * 512, rel=0.01)
    use = rows[0].bytes_per_token * rows[0].predicted / 19.2e9
    assert 0.97 * 0.845 < use <= 0.845


@pytest.mark.slow
def test_the_papers_table(paper: dict[tuple[float, int | None], Row]) -> None:
    """Windows within 3 %; replay between the prediction with the depth transformer and the one without, or above."""
    assert list(paper) == [(ratio, window) for ratio, window, _ in PUBLISHED]
    for window in (256, 16):
        assert abs(paper[0.0, window].error) < 0.03
    for ratio in (0.2, 0.5, 0.8):
        row = paper[ratio, None]
        assert row.with_depth < row.backbone and abs(row.error) < 0.15
        assert row.with_depth == pytest.approx(1 / (1 - ratio * 0.43), rel=0.03), "43 % of the bytes are the MLPs'"
    assert paper[0.8, None].with_depth < paper[0.8, None].published < paper[0.8, None].backbone
    assert paper[0.87, 256].with_depth < paper[0.87, 16].with_depth
    assert all(row.seconds < DENSE_SECONDS for row in paper.values())


def test_the_papers_rows_do_not_agree_with_each_other() -> None:
    """If the MLPs alone shrink, they take 96 % of the dense time at 20 % replay and 54 % at 80 %."""
    shares = [implied_mlp_share(ratio, seconds) for ratio, window, seconds in PUBLISHED if ratio and window is None]
    assert [round(share, 2) for share in shares] == [0.96, 0.62, 0.54]
