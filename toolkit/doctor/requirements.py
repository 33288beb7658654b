"""Requirements of packages, as far as this needs them: versions in numbers, the markers that are in use here."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Requirement", "numbers"]

LINE = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
PYTHON = re.compile(r"""python_version\s*(<=|>=|<|>|==)\s*["']([^"']+)["']""")
ANY_MARKER = re.compile(r"\b(extra|python_version)\b")
BOUND = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*([\w.*+!-]+)\s*$")

Numbers = tuple[int, ...]


def numbers(version: str) -> Numbers:
    """(2, 13, 0) of 2.13.0+cpu: the release only, so that a pre-release counts as what it leads to."""
    release = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in release[1].split(".")) if release else ()


@dataclass(frozen=True)
class Requirement:
    """``bounds``: as written, such as >=1.26,<2; ``extra``: the one it belongs to; ``applies``: to the Python given."""

    name: str
    bounds: str
    extra: str | None
    applies: bool

    @classmethod
    def parse(cls, line: str, python: Numbers) -> Requirement | None:
        """None if the line is none. One with a marker that is not understood does not apply."""
        found = LINE.match(line)
        if not found:
            return None
        name, bounds, marker = found[1], found[2].strip(), found[3] or ""
        extra = EXTRA.search(marker)
        tests = PYTHON.findall(marker)
        understood = len(ANY_MARKER.findall(marker)) == len(re.findall(r"==|<=|>=|!=|~=|<|>|\bin\b", marker))
        applies = understood and " or " not in marker and all(_holds(python, *test) for test in tests)
        return cls(name.lower().replace("_", "-"), bounds, extra[1] if extra else None, applies)

    def allows(self, version: str) -> bool:
        """Whether the version is within all bounds; a bound that is not understood allows any."""
        have = numbers(version)
        bounds = [BOUND.match(part) for part in self.bounds.split(",") if part.strip()]
        return all(_holds(have, found[1], found[2]) for found in bounds if found)

    def __str__(self) -> str:
        return self.name + self.bounds.replace(" ", "")


def _holds(have: Numbers, operator: str, bound: str) -> bool:
    want = numbers(bound)
    if bound.endswith(".*") or operator == "~=":
        head = want if bound.endswith(".*") else want[:-1]
        same = have[: len(head)] == head
        if operator == "~=":
            return same and _padded(have, want) >= _padded(want, have)
        return same if operator == "==" else not same
    left, right = _padded(have, want), _padded(want, have)
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
    }[operator]


def _padded(version: Numbers, other: Numbers) -> Numbers:
    """1.2 and 1.2.0 are the same."""
    return version + (0,) * (len(other) - len(version))
