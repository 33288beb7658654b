"""Settings that no run could use are refused where they are made."""

from __future__ import annotations

import pytest

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, window_positions


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "--attention-window: 0; expected a positive number"),
        ({"window": -4}, "--attention-window: -4"),
        ({"window": (1 << 30) + 1}, "--attention-window"),
        ({"sinks": -1}, "--attention-sinks: -1; expected 0"),
        ({"sinks": -1, "window": 4}, "--attention-sinks: -1"),
        ({"sinks": (1 << 30) + 1, "window": 4}, "--attention-sinks"),
        ({"columns": -1, "window": 4}, "--attention-columns: -1; expected 0"),
        ({"columns": 65, "window": 4}, "--attention-columns: 65; expected 0 .none. or up to 64 earlier frames"),
        ({"columns": 2}, "--attention-columns: 2 without a window; expected --attention-window.*or drop"),
        ({"sinks": 4}, "--attention-sinks: 4 without a window; expected --attention-window.*or drop"),
    ],
)
def test_attention_settings_that_are_refused(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        AttentionSettings(**settings)


def test_attention_settings_that_are_not():
    assert AttentionSettings() == AttentionSettings(0, None) == FULL_ATTENTION
    for sinks, window, columns in ((0, 1, 0), (1, 1, 64), (1 << 30, 1 << 30, 1), (9, 2, 0)):
        expected = {"sinks": sinks, "window": window, "columns": columns}
        assert vars(AttentionSettings(sinks, window, columns)) == expected


@pytest.mark.parametrize(
    ("text", "positions"),
    [("1", 1), ("96", 96), ("1f", 20), ("2f", 40), ("007f", 140), (str(1 << 30), 1 << 30), ("53687091f", 1073741820)],
)
def test_a_window_in_positions_or_frames(text: str, positions: int):
    assert window_positions(text, 20) == positions


@pytest.mark.parametrize(
    "text",
    ["", "f", "0", "0f", "-3", "-1f", "1.5f", "1.5", "2F", "2 f", "2ff", "2frames", "all", "٣f", "1e2", "9" * 30,
     str((1 << 30) + 1), "53687092f"],
)  # fmt: skip
def test_a_window_that_is_neither(text: str):
    with pytest.raises(UsageError, match="--attention-window: .*; expected a positive number of positions.*such as 2f"):
        window_positions(text, 20)
