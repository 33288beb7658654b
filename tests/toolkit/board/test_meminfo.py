"""Contiguous memory as the kernel tells it, and the advice where there is too little."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_board import MEMORY

from fastcar.toolkit.board.meminfo import LARGEST_BYTES, advice, boot_argument, contiguous_memory

MIB = 1 << 20


def test_reads_the_kernel_s_table(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text(MEMORY)
    assert contiguous_memory(file) == (981_120 * 1024, 1_024_000 * 1024)
    file.write_text("CmaTotal:              0 kB\nCmaFree:               0 kB\n")
    assert contiguous_memory(str(file)) == (0, 0)


@pytest.mark.parametrize(
    "text", ["", "MemTotal: 1 kB\n", "CmaTotal: 5 kB\n", "CmaTotal:\nCmaFree:\n", "CmaTotal: x\nCmaFree: y"]
)
def test_tells_if_the_kernel_does_not(tmp_path: Path, text: str) -> None:
    file = tmp_path / "meminfo"
    file.write_text(text)
    assert contiguous_memory(file) is None
    assert contiguous_memory(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("needed", "argument"),
    [
        (1, "cma=64M"),
        (60 * MIB, "cma=64M"),
        (62 * MIB, "cma=128M"),
        (1400 * MIB, "cma=1472M"),
        (1460 * MIB, "cma=1536M"),
        (LARGEST_BYTES, "cma=1900M"),
    ],
)
def test_boot_argument_is_above_the_need_by_a_twentieth(needed: int, argument: str) -> None:
    assert boot_argument(needed) == argument
    assert int(re.search(r"\d+", argument)[0]) * MIB >= min(1.05 * needed, LARGEST_BYTES)


def test_advice_to_boot_with_more() -> None:
    for total in (0, 1000 * MIB):
        text = advice(1400 * MIB, total)
        assert text.startswith("Boot with cma=1472M or more: ") and "/etc/default/flash-kernel" in text
        assert "sudo flash-kernel" in text and "reboot" in text


def test_advice_where_others_hold_it() -> None:
    text = advice(200 * MIB, 1000 * MIB)
    assert "in use" in text and "reboot" in text and "cma=1280M" in text


def test_advice_where_no_boot_argument_helps() -> None:
    text = advice(LARGEST_BYTES + 1, 1000 * MIB)
    assert "1900 MB cannot be reserved" in text and "cma=" not in text
