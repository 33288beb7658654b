"""Settings that no run could use are refused where they are made."""

from __future__ import annotations

import pytest

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "--attention-window: 0; expected a positive number"),
        ({"window": -4}, "--attention-window: -4"),
        ({"window": (1 << 30) + 1}, "--attention-window"),
        ({"sinks": -1}, "--attention-sinks: -1; expected 0"),
        ({"sinks": -1, "window": 4}, "--attention-sinks: -1"),
        ({"sinks": (1 << 30) + 1, "window": 4}, "--attention-sinks"),
        ({"sinks": 4}, "--attention-sinks: 4 without a window; expected --attention-window.*or drop"),
    ],
)
def test_attention_settings_that_are_refused(settings: dict, message: str):
    with pytest.raises(UsageError, match=message):
        AttentionSettings(**settings)


def test_attention_settings_that_are_not():
    assert AttentionSettings() == AttentionSettings(0, None) == FULL_ATTENTION
    for sinks, window in ((0, 1), (1, 1), (1 << 30, 1 << 30), (9, 2)):
        assert vars(AttentionSettings(sinks, window)) == {"sinks": sinks, "window": window}
