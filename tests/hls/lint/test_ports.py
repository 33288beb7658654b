"""Unroll factors fit the cyclic partitions of the arrays they index."""

from __future__ import annotations

from collections.abc import Callable

import pytest

KERNEL = """constexpr int FOUR = 4;
template <int P> void f(int n) {{
    int a[64]{dimensions};
#pragma HLS ARRAY_PARTITION variable=a type=cyclic factor={factor} dim={dim}
loop: for (int i = 0; i < {bound}; i++) {{
#pragma HLS {schedule}
    {body}
}} }}
"""
DEFAULTS = {
    "dimensions": "",
    "factor": "4",
    "dim": "1",
    "bound": "64",
    "schedule": "UNROLL factor=4",
    "body": "a[i] = 0;",
}


def kernel(**changes: str) -> str:
    return KERNEL.format(**{**DEFAULTS, **changes})


GOOD = {
    "as many": {},
    "half as many": {"schedule": "UNROLL factor=2"},
    "the same name": {"schedule": "UNROLL factor=P", "factor": "P"},
    "a constant": {"schedule": "UNROLL factor=FOUR"},
    "an expression": {"schedule": "UNROLL factor=FOUR", "factor": "2*FOUR"},
    "not known": {"schedule": "UNROLL factor=P"},
    "all of four": {"schedule": "UNROLL", "bound": "4"},
    "another dimension": {"schedule": "UNROLL factor=3", "dimensions": "[8]", "body": "a[n][i] = 0;"},
    "a scaled index": {"schedule": "UNROLL factor=3", "body": "a[4 * i] = 0;"},
    "another array": {"schedule": "UNROLL factor=3", "body": "b.a[i] = 0;"},
    "not unrolled": {"schedule": "PIPELINE II=1"},
}

BAD = {
    "three of four": {"schedule": "UNROLL factor=3"},
    "more than banks": {"schedule": "UNROLL factor=8"},
    "a constant": {"schedule": "UNROLL factor=FOUR", "factor": "6"},
    "all of eight": {"schedule": "UNROLL", "bound": "8"},
    "an offset": {"schedule": "UNROLL factor=3", "body": "a[n + i] = 0;"},
    "a read in a condition": {"schedule": "UNROLL factor=3", "body": "if (a[i] > 0) n++;"},
    "second dimension": {"schedule": "UNROLL factor=3", "dimensions": "[8]", "dim": "2", "body": "a[n][i] = 0;"},
    "all dimensions": {"schedule": "UNROLL factor=3", "dim": "0"},
}


@pytest.mark.parametrize("name", GOOD)
def test_fits(name: str, rules: Callable[..., list[str]]) -> None:
    assert rules(kernel(**GOOD[name])) == []


@pytest.mark.parametrize("name", BAD)
def test_does_not_fit(name: str, rules: Callable[..., list[str]]) -> None:
    assert rules(kernel(**BAD[name])) == ["ports:5"]


@pytest.mark.parametrize(("bound", "expected"), [("4", []), ("8", ["ports:5"])])
def test_unrolled_by_the_pipeline_around(bound: str, expected: list[str], rules: Callable[..., list[str]]) -> None:
    text = f"""void f(int a[64]) {{
#pragma HLS ARRAY_PARTITION variable=a type=cyclic factor=4
outer: for (int o = 0; o < 8; o++) {{
#pragma HLS PIPELINE II=1
inner: for (int i = 0; i < {bound}; i++) a[o + i] = 0;
}} }}"""
    assert rules(text) == expected
