"""Pragmas, options, required options and values are those of UG1399."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fastcar.hls.lint import Finding
from fastcar.hls.lint import vocabulary as module
from fastcar.hls.lint.vocabulary import vocabulary

KERNEL = """void kernel(int x[8], int n) {{
    #pragma {pragma}
    int y[8];
    #pragma HLS ARRAY_PARTITION variable=y type=complete
}}
"""

GOOD = [
    "HLS INLINE",
    "HLS inline off",
    "HLS INLINE off=true",
    "HLS PIPELINE II=1",
    "HLS PIPELINE II = 1 style=flp",
    "HLS ARRAY_PARTITION variable=x type=cyclic factor=4 dim=1",
    "HLS ARRAY_PARTITION variable=x type=CYCLIC factor=(N + 1) * 2 dim=1",
    "HLS ARRAY_PARTITION variable=x dim=0",
    "HLS BIND_STORAGE variable=x type=ram_2p impl=uram latency=2",
    "HLS BIND_OP variable=x op=mul impl=dsp latency=-1",
    "HLS INTERFACE mode=m_axi port=x bundle=gmem0 offset=slave depth=64 max_read_burst_length=64",
    "HLS INTERFACE mode=s_axilite port=return",
    "HLS DATAFLOW disable_start_propagation",
    "HLS DEPENDENCE variable=x type=inter direction=RAW dependent=false",
    "HLS DEPENDENCE variable=x type=inter false",
    "HLS ALLOCATION operation instances=mul limit=4",
    "HLS STABLE variable=n",
]

BAD = [
    ("HLS PIPLINE II=1", "pragma-name", "PIPELINE"),
    ("HSL PIPELINE II=1", "pragma-name", "#pragma HLS"),
    ("GCC unroll 4", "pragma-name", "#pragma HLS"),
    ("HLS", "pragma-name", "#pragma HLS"),
    ("HLS PIPELINE II=1 rewnd", "pragma-option", "rewind"),
    ("HLS PIPELINE II=1 depth=3", "pragma-option", "depth"),
    ("HLS INLINE region", "pragma-option", "recursive"),
    ("HLS ARRAY_PARTITION variable=x complete", "pragma-option", "type=complete"),
    ("HLS INTERFACE m_axi port=x", "pragma-option", "mode=m_axi"),
    ("HLS ARRAY_PARTITION variable=x type=complete factor=2", "pragma-option", "factor"),
    ("HLS PIPELINE II=0", "pragma-value", "at least 1"),
    ("HLS PIPELINE II=1.5", "pragma-value", "integer"),
    ("HLS PIPELINE II", "pragma-value", "II=..."),
    ("HLS PIPELINE II=1 style=fast", "pragma-value", "stp, frp, flp"),
    ("HLS INLINE off=maybe", "pragma-value", "true or false"),
    ("HLS ARRAY_PARTITION variable=4 type=complete", "pragma-value", "names"),
    ("HLS BIND_STORAGE variable=x type=ram_3p", "pragma-value", "ram_2p"),
    ("HLS INTERFACE port=x", "pragma-required", "mode"),
    ("HLS INTERFACE mode=m_axi", "pragma-required", "port"),
    ("HLS ARRAY_PARTITION type=complete", "pragma-required", "variable"),
    ("HLS ARRAY_PARTITION variable=x type=cyclic", "pragma-required", "factor"),
    ("HLS ARRAY_RESHAPE variable=x type=block", "pragma-required", "factor"),
    ("HLS BIND_STORAGE variable=x", "pragma-required", "type"),
    ("HLS BIND_OP variable=x impl=dsp", "pragma-required", "op"),
    ("HLS ALLOCATION operation instances=mul", "pragma-required", "limit"),
]


@pytest.mark.parametrize("pragma", GOOD)
def test_known(pragma: str, rules: Callable[..., list[str]]) -> None:
    assert rules(KERNEL.format(pragma=pragma)) == []


@pytest.mark.parametrize(("pragma", "rule", "word"), BAD)
def test_refused(pragma: str, rule: str, word: str, lint: Callable[..., list[Finding]]) -> None:
    (finding,) = [one for one in lint(KERNEL.format(pragma=pragma)) if one.rule.startswith("pragma-")]
    assert (finding.rule, finding.line) == (rule, 2)
    assert word in str(finding)
    assert "expected" in str(finding)
    assert str(finding)[-1] != "."  # the remedy closes the sentence


def test_once_is_no_finding(rules: Callable[..., list[str]]) -> None:
    assert rules("#pragma once\n") == []


def test_pragmas_of_the_simulation_are_not_read(rules: Callable[..., list[str]]) -> None:
    assert rules("#ifdef FASTCAR_SIMULATION\n#pragma GCC diagnostic push\n#endif\n") == []


def test_the_vocabulary_is_consistent() -> None:
    """The data file names its source; every kind, scope and rule in it is one the checks know."""
    data = json.loads(Path(module.__file__).with_name("pragmas.json").read_text("utf-8"))
    assert "UG1399" in data["source"] and data["url"].startswith("https://docs.amd.com/")
    assert len(vocabulary()) > 25
    for name, pragma in vocabulary().items():
        assert name == name.upper()
        assert set(pragma) <= {"scope", "options", "requires", "excludes"}
        assert pragma["scope"] and set(pragma["scope"]) <= {"loop", "function", "region", "variable"}
        for key, option in pragma["options"].items():
            assert key == key.lower()
            assert option["kind"] in {"integer", "name", "names", "word", "text", "flag"}
            assert ("values" in option) == (option["kind"] == "word")
        for rule in [*pragma.get("requires", []), *pragma.get("excludes", [])]:
            assert {rule["option"], rule["where"]} <= set(pragma["options"])
            assert set(rule["is"]) <= {"", *pragma["options"][rule["where"]]["values"]}
