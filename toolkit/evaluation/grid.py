"""The settings of a sweep: every combination of lists of values, or those that a TOML file names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ...boards.load import tomllib
from ..errors import UsageError
from ..settings import FULL_ATTENTION, POLICIES, AttentionSettings
from ..validation import first_fault
from .setting import DENSE, Setting

__all__ = ["Grid", "attentions", "baselines", "numbers", "optional_integers", "policies", "read_settings"]

T = TypeVar("T")
NONE = ("none", "full")


@dataclass(frozen=True)
class Grid:
    """Lists to combine: each threshold, ratio and held ratio with each policy; those and each baseline with each limit
    on age, refresh and attention. Each attention but the full one is run dense, too."""

    thresholds: Sequence[float] = ()
    replay_ratios: Sequence[float] = ()
    hold_replay_ratios: Sequence[float] = ()
    policies: Sequence[str] = ("independent",)
    max_ages: Sequence[int | None] = (None,)
    refreshes: Sequence[int | None] = (None,)
    attentions: Sequence[AttentionSettings] = (FULL_ATTENTION,)
    baselines: Sequence[Setting] = ()

    def settings(self) -> tuple[Setting, ...]:
        """The dense reference first; each once."""
        rules: list[dict[str, Any]] = [
            {name: value, "policy": policy}
            for name, values in (
                ("threshold", self.thresholds),
                ("replay_ratio", self.replay_ratios),
                ("hold_replay_ratio", self.hold_replay_ratios),
            )
            for value, policy in product(values, self.policies)
        ]
        rules += [baseline.model_dump(include={"random", "layers", "policy"}) for baseline in self.baselines]
        seen = {"attention_window": None, "attention_sinks": 0, "attention_columns": 0}
        found = [DENSE]
        for attention in self.attentions:
            seen = {
                "attention_window": attention.window,
                "attention_sinks": attention.sinks,
                "attention_columns": attention.columns,
            }
            found.append(Setting(**seen))
            for rule, age, refresh in product(rules, self.max_ages, self.refreshes):
                found.append(Setting(**rule, **seen, max_age=age, refresh=refresh))
        return tuple(dict.fromkeys(found))


def numbers(option: str, text: str | None) -> tuple[float, ...]:
    """``1.5,2``. UsageError for what is no number, as all functions here."""
    return _parsed(option, text, float, "numbers separated by commas, such as 0.2,0.5")


def optional_integers(option: str, text: str | None) -> tuple[int | None, ...]:
    """``none,4``; (None,) without a text."""
    expected = "whole numbers or none, separated by commas, such as none,4"
    return _parsed(option, text, lambda word: None if word in NONE else int(word), expected) or (None,)


def policies(option: str, text: str) -> tuple[str, ...]:
    found = _parsed(option, text, str, "")
    if unknown := [name for name in found if name not in POLICIES]:
        raise UsageError(option, repr(unknown[0]), f"of {', '.join(POLICIES)}", "Choose listed policies.")
    return found


def attentions(option: str, text: str | None) -> tuple[AttentionSettings, ...]:
    """``full,256,256+4,128:2``: all positions, a window, one with sinks, one with columns of so many frames."""

    def one(word: str) -> AttentionSettings:
        if word in NONE:
            return FULL_ATTENTION
        rest, _, columns = word.partition(":")
        window, _, sinks = rest.partition("+")
        parts = int(sinks or 0), int(window), int(columns or 0)
        try:
            return AttentionSettings(*parts)
        except UsageError as error:
            found = f"{word!r}, {error.subject.removeprefix('--attention-')} {error.found}"
            raise UsageError(option, found, error.expected, f"Correct {option}.") from None

    expected = "full, WINDOW, WINDOW+SINKS or WINDOW:COLUMNS, such as full,256+4,128:2"
    return _parsed(option, text, one, expected) or (FULL_ATTENTION,)


def baselines(option: str, texts: Iterable[str]) -> tuple[Setting, ...]:
    """``random:0.5``: drawn by lot; ``layers:1,2,3``: these layers always, the others never."""
    found = []
    for text in texts:
        kind, _, value = text.partition(":")
        if kind == "random" and value:
            shares = numbers(option, value)
            found += [Setting(random=share, policy="all") for share in shares]
        elif kind == "layers" and value:
            chosen = _parsed(option, value, int, "layers:1,2,3")
            found.append(Setting(layers=tuple(sorted(set(chosen))), policy="all"))
        else:
            raise UsageError(option, repr(text), "random:SHARE or layers:1,2,3", "Write it like these.")
    return tuple(found)


def read_settings(path: Path) -> tuple[Setting, ...]:
    """``[[setting]]`` tables with the fields of ``Setting``, each with a ``name``; the dense reference is put first.

    UsageError for a file that cannot be read, an unknown key, a value out of range, or a name that is there twice.
    """
    expected, fix = "[[setting]] tables with a name and, say, replay_ratio and policy", "Correct the file."
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(path, f"cannot be read as TOML ({reason})", expected, fix) from error
    entries = content.get("setting")
    if set(content) != {"setting"} or not isinstance(entries, list) or not entries:
        found = ", ".join(sorted(set(content) - {"setting"})) or "no [[setting]]"
        raise UsageError(path, found, expected, fix)
    found = [_entry(path, number, entry) for number, entry in enumerate(entries, 1)]
    names = [setting.name for setting in found]
    if wrong := [one for one in found if one.title == DENSE.title and not one.is_reference]:
        named = f"setting {found.index(wrong[0]) + 1}, a {wrong[0].kind} one, named {DENSE.title!r}"
        raise UsageError(path, named, "that name for the dense reference alone", fix)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(path, f"two settings named {twice[0]!r}", "a name each", fix)
    return tuple(found) if any(setting.is_reference for setting in found) else (DENSE, *found)


def _entry(path: Path, number: int, entry: Any) -> Setting:
    fix = "Correct the file."
    try:
        setting = Setting.model_validate(entry)
    except ValidationError as error:
        where, why = first_fault(error)
        keys = ", ".join(Setting.model_fields)
        raise UsageError(path, f"setting {number}: {where} {why}", f"of {keys}", fix) from error
    if not setting.name.strip():
        raise UsageError(path, f"setting {number} without a name", "a name each", fix)
    return setting


def _parsed(option: str, text: str | None, parse: Callable[[str], T], expected: str) -> tuple[T, ...]:
    if text is None:
        return ()
    try:
        values = [parse(word.strip()) for word in text.split(",")]
    except UsageError:
        raise
    except ValueError:
        raise UsageError(option, repr(text), expected, "Write it like these.") from None
    return tuple(dict.fromkeys(values))
