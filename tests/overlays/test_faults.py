"""What the emulated device can be told to do wrong, and what it cannot."""

from __future__ import annotations

import pytest

from fastcar.overlays.emulated.faults import Faults, parse_faults
from fastcar.toolkit.errors import UsageError


def test_all_of_them_at_once() -> None:
    text = "hang=5, error=2,flip=3,leftover,no-interrupt,no-reset,by-calls,build=0xabcd,memory=0.5,pace=1.5,name=two"
    assert parse_faults(text) == Faults(5, 2, 3, True, True, True, True, 0xABCD, 1 << 19, 1.5, "two")
    assert parse_faults("") == Faults()


@pytest.mark.parametrize(
    "part",
    [
        *("hang=0", "hang=-1", "error=0", "flip=-3", "hang=x", "hang=", "hang"),
        *("memory=inf", "memory=nan", "memory=-1", "memory=1e300", "pace=inf", "pace=nan", "pace=-1", "pace=1e9"),
        *("build=-1", "build=fffffffff", "build=xyz", "name=", f"name={'n' * 300}", "leftover=1", "foo", "=", "=3"),
    ],
)
def test_none_that_could_not_come_about(part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_faults(f"no-reset,{part}")
    assert repr(part) in caught.value.found


@pytest.mark.parametrize("text", ["hang=3,hang=4", "no-reset,no_reset", "name=a,leftover,name=a"])
def test_each_once(text: str) -> None:
    with pytest.raises(UsageError, match="each once"):
        parse_faults(text)
