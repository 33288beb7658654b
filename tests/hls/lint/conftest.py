"""Checking a snippet instead of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fastcar.hls.lint import Finding, lint_files


@pytest.fixture
def lint(tmp_path: Path) -> Callable[..., list[Finding]]:
    """``lint(text, ...)``: the findings of one file for each text, all checked together."""

    def check(*texts: str) -> list[Finding]:
        paths = [tmp_path / f"snippet_{number}.h" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return lint_files(paths)

    return check


@pytest.fixture
def rules(lint: Callable[..., list[Finding]]) -> Callable[..., list[str]]:
    """The same, of each finding only ``rule:line``."""
    return lambda *texts: [f"{finding.rule}:{finding.line}" for finding in lint(*texts)]
