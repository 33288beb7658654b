"""Each command, option and property the scripts use is one that the vendor documents, in every version supported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from tcl_runs import PHASES, TCL, TOOLS, Flow, Outcome

VOCABULARY = json.loads((TCL / "vocabulary.json").read_text("utf-8"))
VERSIONS = VOCABULARY["versions"]
SOURCE = re.compile(r"UG\d{3,4}|PG\d{3}|scripts of AMD")
Finished = tuple[Flow, dict[str, Outcome]]


def options(words: tuple[str, ...]) -> list[str]:
    """Words that are options: not negative numbers, not the value of the option before, not flags of a compiler."""
    return [word for word in words if re.fullmatch(r"-[a-z_]\w*", word) and word != "-pthread"]


def used(finished: Finished) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for phase in PHASES:
        for name, *words in finished[1][phase].commands:
            yield TOOLS[phase], name, tuple(words)


def lasts(entry: dict[str, str], version: str) -> bool:
    """Whether a version has it."""
    return entry.get("min", VERSIONS[0]) <= version <= entry.get("max", VERSIONS[-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_command_and_option_is_known_to_the_version(version: str, finished: Finished) -> None:
    for tool, name, words in used(finished):
        assert name in VOCABULARY[tool], f"{tool} {name}"
        entry = VOCABULARY[tool][name]
        assert lasts(entry, version), f"{name} in {version}"
        for option in options(words):
            assert option in entry.get("options", {}), f"{name} {option}"
            assert lasts(entry["options"][option], version), f"{name} {option} in {version}"


def test_versions_are_checked(monkeypatch: pytest.MonkeyPatch, finished: Finished) -> None:
    monkeypatch.setitem(VOCABULARY["hls"]["csim_design"]["options"]["-clean"], "max", "2023.2")
    test_every_command_and_option_is_known_to_the_version("2023.2", finished)
    with pytest.raises(AssertionError, match="csim_design -clean in 2024.1"):
        test_every_command_and_option_is_known_to_the_version("2024.1", finished)


def test_nothing_else_is_in_the_vocabulary(finished: Finished) -> None:
    """What no script uses any more; -blackbox is an argument that is not given by default."""
    seen: dict[str, dict[str, set[str]]] = {"hls": {}, "vivado": {}}
    for tool, name, words in used(finished):
        seen[tool].setdefault(name, set()).update(options(words))
    for tool, commands in seen.items():
        assert set(VOCABULARY[tool]) == set(commands)
        for name, entry in VOCABULARY[tool].items():
            extra = {"-blackbox"} if name == "add_files" and tool == "hls" else set()
            extra |= {"-from_step"} if name == "reset_runs" else set()
            assert set(entry.get("options", {})) == commands[name] | extra, name


def test_every_property_is_known(finished: Finished) -> None:
    flow, outcomes = finished
    names = set()
    for phase in PHASES:
        for words in outcomes[phase].of("set_property"):
            names |= set(words[1].split()[::2]) if words[0] == "-dict" else {words[0]}
        names |= {words[0] for words in outcomes[phase].of("get_property")}
    names |= {line.split()[1] for line in (flow.folder / "vivado/bitstream.xdc").read_text().splitlines()}
    known = set(VOCABULARY["properties"])
    assert names <= known
    assert {name for name in known - names if not name.startswith("CONFIG.PSU__SAXIGP")} == set()


def test_every_entry_says_where_it_is_from() -> None:
    for part in ("hls", "vivado", "properties", "values"):
        for name, entry in VOCABULARY[part].items():
            assert SOURCE.search(entry["source"]), name
            assert set(entry) <= {"source", "options", "note", "unverified", "seen", "names", "min", "max"}
            for option in entry.get("options", {}).values():
                assert set(option) <= {"note", "unverified", "min", "max"}
    assert VERSIONS == sorted(VERSIONS) and VERSIONS[0] == "2022.2"


@pytest.mark.parametrize("phase", PHASES)
def test_a_word_the_vendor_does_not_have_is_noticed(
    phase: str, copy: Callable[[], Flow], finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder takes whatever Tcl itself does not have, so the vocabulary sees it."""
    outcome = finished[1][phase]
    name = outcome.commands[-1][0]
    wrong = Outcome(0, "", "", ((f"{name}s_of", *outcome.commands[-1][1:]),))
    with pytest.raises(AssertionError, match=f"{name}s_of"):
        test_every_command_and_option_is_known_to_the_version("2024.1", (finished[0], {**finished[1], phase: wrong}))
    wrong = Outcome(0, "", "", ((name, "-fasts"),))
    with pytest.raises(AssertionError, match=f"{name} -fasts"):
        test_every_command_and_option_is_known_to_the_version("2024.1", (finished[0], {**finished[1], phase: wrong}))
