"""The numbers of a run, recomputed here one evaluation at a time."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fastcar.toolkit.evaluation.metrics import psnr, ssim_per_frame
from fastcar.toolkit.report import ReportFacts, RunView, summary, summary_table
from fastcar.toolkit.report.arrays import frame_layer_ratio, layer_ratio, place_ratio, tas_bins
from fastcar.toolkit.report.embed import player_data


def test_ratios_count_each_evaluation(make_pair):
    replay, dense = make_pair(frames=4, clips=2)
    run = replay.generation
    replayed = evaluations = eligible = skipped = pairs = 0
    for frame, place, layer in np.ndindex(run.replay.shape[:3]):
        if (frame, place) == (3, 7):
            continue  # the last position never runs
        flags = run.replay[frame, place, layer]
        replayed, evaluations, pairs = replayed + int(flags.sum()), evaluations + len(flags), pairs + 1
        eligible += len(flags) if frame else 0
        skipped += bool(flags.all())
    numbers = summary(replay, dense)
    assert 0 < replayed < eligible
    assert numbers["replay_ratio"] == pytest.approx(replayed / evaluations)
    assert numbers["eligible_replay_ratio"] == pytest.approx(replayed / eligible)
    assert numbers["skipped_ratio"] == pytest.approx(skipped / pairs)


def test_separators_count_but_are_not_shown(make_pair):
    """Places 0 and 5 of eight hold separators; the picture has the six cells, ratios all places."""
    replay, _ = make_pair(frames=3)
    run = replay.generation
    cells = (1, 2, 3, 4, 6, 7)
    run = replace(run, codes=run.codes[:, :, list(cells)], grid=(2, 3), cell_places=cells)
    view = RunView(run, replay.frames)
    shares = place_ratio(run, (0, 1))
    assert shares.shape == (3, 2, 3)
    for frame, index in np.ndindex(3, 6):
        expected = run.replay[frame, cells[index]].mean()
        assert shares[frame, index // 3, index % 3] == pytest.approx(expected)
    assert summary(view)["replay_ratio"] == pytest.approx(run.replay.sum() / (23 * run.replay[0, 0].size))
    data = player_data(view, ReportFacts("m", "r", "b", "x"))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(data["bits"]), np.uint8))[: run.cell_replay.size]
    assert data["shape"] == [3, 6, 3, 2] and data["grid"] == [2, 3]
    assert (bits.reshape(data["shape"]) == run.replay[:, list(cells)]).all()
    with pytest.raises(ValueError, match="expected the same clips, frames and places"):
        RunView(replace(run, cell_places=cells[1:]), replay.frames)


def test_comparison_with_the_dense_run(make_pair):
    replay, dense = make_pair(frames=4)
    numbers = summary(replay, dense)
    assert numbers["speed_up"] == pytest.approx(2) and numbers["eligible_speed_up"] == pytest.approx(2)
    assert numbers["steps_per_second"] == pytest.approx(32) and numbers["dense_steps_per_second"] == pytest.approx(16)
    assert numbers["code_agreement"] == pytest.approx(1 - 3 / 32)  # one code of eight in three frames
    assert numbers["psnr_db"] == pytest.approx(psnr(dense.frames[0], replay.frames[0]), rel=1e-12)
    assert numbers["ssim"] == pytest.approx(ssim_per_frame(dense.frames[0], replay.frames[0]).mean())
    assert numbers["identical_frames"] == 1


def test_psnr_pools_over_clips(make_pair):
    replay, dense = make_pair(clips=3)
    flat = [view.frames.reshape(-1, *view.frames.shape[2:]) for view in (dense, replay)]
    assert summary(replay, dense)["psnr_db"] == pytest.approx(psnr(*flat), rel=1e-9)


@pytest.mark.parametrize(
    "shape",
    [
        {"frames": 1},
        {"thresholds": (None, None, None)},
        {"drift": 0},
        {"size": (6, 8)},
        {"guided": False},
        {"thresholds": (None, -2.0, 9.0)},
    ],
)
def test_every_number_is_strict_json(make_pair, shape):
    numbers = summary(*make_pair(**shape))
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert len(summary_table(numbers)) >= 8


def test_what_is_not_defined_is_none(make_pair):
    single = summary(*make_pair(frames=1))
    assert single["eligible_replay_ratio"] is None and single["eligible_speed_up"] is None and single["flicker"] is None
    identical = summary(*make_pair(drift=0))
    assert identical["psnr_db"] is None and identical["identical_frames"] == 4 and identical["ssim"] == pytest.approx(1)
    assert ("PSNR against dense", "identical") in summary_table(identical)
    assert summary(*make_pair(size=(6, 8)))["ssim"] is None
    alone = summary(make_pair()[0])
    assert "psnr_db" not in alone and alone["replay_ratio"] > 0


def test_table_has_units(make_pair):
    table = dict(summary_table(summary(*make_pair())))
    assert table["speed-up"] == "2.00 x" and table["steps/s"] == "32.0"
    assert table["PSNR against dense"].endswith(" dB") and table["replay ratio"].endswith(" %")


def test_maps_agree_with_the_flags(make_pair):
    replay, _ = make_pair(clips=2, thresholds=(-1.0, None, -3.0))
    run = replay.generation
    by_frame = frame_layer_ratio(run)
    assert by_frame.shape == (4, 3) and (by_frame[0] == 0).all() and (by_frame[:, 1] == 0).all()
    assert by_frame[2, 0] == pytest.approx(run.replay[2, :, 0].mean())
    assert by_frame[3, 2] == pytest.approx(run.replay[3, :7, 2].mean())  # the last place never runs
    assert layer_ratio(run)[2] == pytest.approx(run.replay[1:, :, 2].sum() / (23 * 4))
    assert replay.rows_of(1) == (1, 3)
    places = place_ratio(run, replay.rows_of(1))
    assert places.shape == (4, 2, 4)
    assert places[2, 1, 3] == pytest.approx(run.replay[2, 7][:, [1, 3]].mean())


@pytest.mark.parametrize("thresholds", [(-1.0,) * 3, (-0.5, None, -2.0), (None,) * 3, (50.0,) * 3])
def test_histogram_counts_every_score_once(make_pair, thresholds):
    run = make_pair(thresholds=thresholds)[0].generation
    bins = tas_bins(run)
    assert bins.computed.sum() + bins.replayed.sum() == np.isfinite(run.tas).sum()
    assert bins.replayed.sum() == run.replay.sum()
    if len(set(thresholds)) == 1 and thresholds[0] == -1.0:
        edge = int(np.flatnonzero(np.isclose(bins.edges, -1.0))[0])
        assert bins.replayed[:, :edge].sum() == 0 and bins.computed[:, edge:].sum() == 0


def test_no_score_no_histogram(make_pair):
    assert tas_bins(make_pair(frames=1)[0].generation) is None
    assert math.isnan(layer_ratio(make_pair(frames=1)[0].generation)[0])


def test_runs_that_do_not_match_are_refused(make_pair):
    replay, _ = make_pair(frames=4)
    with pytest.raises(ValueError, match="two runs of one shape"):
        summary(replay, make_pair(frames=3)[1])
    with pytest.raises(ValueError, match="the same clips, frames and places"):
        RunView(replay.generation, replay.frames[:, :3])
    with pytest.raises(ValueError, match="uint8 RGB"):
        RunView(replay.generation, replay.frames.astype(np.float32))
