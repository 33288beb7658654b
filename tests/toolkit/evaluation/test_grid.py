"""Settings of a sweep, from lists and from a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation import grid
from fastcar.toolkit.evaluation.grid import Grid, read_settings
from fastcar.toolkit.evaluation.setting import Setting
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, ReplaySettings

INF = float("inf")


def test_the_grid_is_every_combination_once() -> None:
    made = Grid(
        thresholds=(1.5,),
        replay_ratios=(0.5,),
        policies=("all", "mean"),
        max_ages=(None, 1),
        refreshes=(None, 4),
        attentions=(FULL_ATTENTION, AttentionSettings(4, 64)),
        baselines=grid.baselines("--baseline", ["random:0.5", "layers:2,0", "layers:0,2"]),
    ).settings()
    assert made[0].is_reference and sum(setting.is_reference for setting in made) == 1
    assert len(made) == 2 * (1 + (2 * 2 + 2) * 2 * 2) and len({setting.title for setting in made}) == len(made)
    titles = {setting.title for setting in made}
    assert {"dense", "dense, window 64+4", "ratio 0.5 mean, age 1, refresh 4, window 64+4", "layers 0,2"} <= titles


def test_settings_become_those_of_a_run() -> None:
    assert Setting(layers=(0, 2), policy="all").replay(3) == ReplaySettings((-INF, None, -INF), "all")
    assert Setting(random=0.5).replay(3) == ReplaySettings(random=0.5)
    assert Setting(threshold=1.5, max_age=2, refresh=3).replay(2) == ReplaySettings((1.5, 1.5), max_age=2, refresh=3)
    assert Setting(threshold=(1.0, 2.0)).replay(2).thresholds == (1.0, 2.0)
    assert Setting(replay_ratio=0.5).replay(2, 0.25).thresholds == (0.25, 0.25)
    assert Setting(hold_replay_ratio=0.5).replay(2) == ReplaySettings(hold=0.5)


def test_lists_are_parsed() -> None:
    assert grid.numbers("-", "0.2, 1e-1,-3") == (0.2, 0.1, -3.0)
    assert grid.optional_integers("-", "none,4") == (None, 4) and grid.optional_integers("-", None) == (None,)
    assert grid.attentions("-", "full,16,256+4") == (
        FULL_ATTENTION,
        AttentionSettings(0, 16),
        AttentionSettings(4, 256),
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: grid.numbers("--thresholds", "1,x"), "--thresholds: '1,x'"),
        (lambda: grid.policies("--policies", "all,some"), "'some'"),
        (lambda: grid.baselines("--baseline", ["layer:1"]), "layers:1,2,3"),
        (lambda: grid.baselines("--baseline", ["layers:1,b"]), "'1,b'"),
        (lambda: grid.attentions("--attention", "16+x"), "WINDOW"),
        (lambda: grid.attentions("--attention", "0"), "window 0"),
        (lambda: Setting(layers=(3,)).check(3, 4), "layers 0 to 2"),
        (lambda: Setting(threshold=(1.0, 2.0)).check(3, 4), "2 thresholds"),
        (lambda: Setting(replay_ratio=1.5).check(3, 4), "ratio 1.5 independent': replay_ratio"),
        (lambda: Setting(replay_ratio=0.9, max_age=1).check(3, 16), "at most"),
        (lambda: Setting(random=2.0).check(3, 4), "random"),
        (lambda: Setting(threshold=1.0, policy="any").check(3, 4), "policy"),
        (
            lambda: Setting(threshold=1.0, attention_sinks=4).check(3, 4),
            "attention_sinks 4 without a window; expected attention_window",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(call, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("+", r"\+")):
        call()


def test_a_file_names_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[[setting]]\nname = "fast"\nreplay_ratio = 0.87\npolicy = "all"\nattention_window = 16\nattention_sinks = 4\n'
        '[[setting]]\nname = "by layer"\nthreshold = [1, inf]\n'
    )
    dense, fast, layers = read_settings(file)
    assert dense.is_reference and (fast.title, layers.title) == ("fast", "by layer")
    assert fast.replay(2, 1.0) == ReplaySettings((1.0, 1.0), "all") and fast.attention == AttentionSettings(4, 16)
    assert layers.threshold == (1.0, INF)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[setting]", "TOML"),
        ("", "no .*setting"),
        ("x = 1\n[[setting]]\nname='a'", "x"),
        ("[[setting]]\nrandom = 0.5", "without a name"),
        ("[[setting]]\nname='a'\nrandom=0.5\nthreshold=1.0", "threshold and random at once"),
        ("[[setting]]\nname='a'\nratio=0.5", "ratio"),
        ("[[setting]]\nname='a'\nrandom=0.5\n[[setting]]\nname='a'\nrandom=0.6", "two settings named 'a'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_fault(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words) as error:
        read_settings(file)
    assert str(file) in str(error.value)
    with pytest.raises(UsageError, match="No such file"):
        read_settings(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        (Setting(threshold=float("nan")), "setting 'threshold nan independent': threshold nan; expected a number"),
        (Setting(threshold=(1.0, 2.0)), "setting 'threshold 1.0,2.0 independent': 2 thresholds; expected 1 or 3"),
        (Setting(threshold=1.0, max_age=-1), "age -1': max_age -1; expected a positive number"),
        (Setting(threshold=1.0, refresh=1), "refresh 1': refresh 1; expected 2"),
        (Setting(random=2.0), "setting 'random 2.0': random 2.0; expected a ratio, 0 to 1"),
        (Setting(hold_replay_ratio=float("nan")), "setting 'hold nan independent': hold_replay_ratio nan"),
        (Setting(hold_replay_ratio=0.9, max_age=1), "hold_replay_ratio 0.9; expected at most 0.50 with max_age 1"),
        (Setting(random=0.9, max_age=1), "random 0.9; expected at most 0.50 with max_age 1"),
        (Setting(replay_ratio=1.5), "setting 'ratio 1.5 independent': replay_ratio 1.5; expected 0 (dense) to 1"),
        (Setting(attention_window=0), "attention_window 0; expected a positive number"),
    ],
)
def test_what_no_run_can_have_is_told_of_its_setting(setting: Setting, found: str) -> None:
    with pytest.raises(UsageError) as error:
        setting.check(3, 5)
    assert found in str(error.value) and error.value.subject == f"setting {setting.title!r}"


def test_windows_are_refused_under_the_option_of_the_list() -> None:
    for text, found in (("0", "window 0;"), ("8+-1", "sinks -1;"), ("8:99", "columns 99;")):
        with pytest.raises(UsageError, match=f"--attention: '{re.escape(text)}', {found}"):
            grid.attentions("--attention", f"full,{text}")


def test_nothing_but_the_reference_is_named_dense(tmp_path: Path) -> None:
    """Their rows would be taken for runs of one setting."""
    (tmp_path / "s.toml").write_text('[[setting]]\nname = "a"\n[[setting]]\nname = "dense"\nreplay_ratio = 0.5\n')
    with pytest.raises(UsageError, match="setting 2, a replay_ratio one, named 'dense'"):
        read_settings(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text('[[setting]]\nname = "dense"\n')
    assert [setting.is_reference for setting in read_settings(tmp_path / "s.toml")] == [True]
