"""What the checker reports: one sentence with its place, its rule, what was expected and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, order=True)
class Finding:
    """``path:line: rule: found; expected ... Fix.``"""

    path: str
    line: int
    rule: str
    found: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.found}; expected {self.expected}. {self.fix}"
