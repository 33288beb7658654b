"""Loops are named and have a schedule that is written down."""

from __future__ import annotations

from collections.abc import Callable

import pytest

GOOD = {
    "pipelined": """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
} }""",
    "II with a reason above": """void f() {
loop: for (int i = 0; i < 4; i++) {
// one port
#pragma HLS PIPELINE II=2
} }""",
    "II with a reason behind": """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=2  // one port
} }""",
    "unrolled": """constexpr int N = 4;
void f() {
loop: for (int i = 0; i < N; i++) {
#pragma HLS UNROLL
} }""",
    "inside a pipelined loop": """template <int N> void f() {
outer: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
inner: for (int j = 0; j < N; j++) g(j);
} }""",
    "inside a pipelined function": """void f() {
#pragma HLS PIPELINE II=1
loop: for (int i = 0; i < 4; i++) g(i);
}""",
    "around a pipelined loop": """void f() {
outer: for (int i = 0; i < 4; i++) {
    if (i > 2) {
inner: for (int j = 0; j < 4; j++) {
#pragma HLS PIPELINE II=1
} } } }""",
    "with a reason": """void f() {
loop:
    for (int i = 0; i < 4; i++) {
// not pipelined: g is
        g(i);
    } }""",
    "with a reason above": """void f() {
// not pipelined: g is
loop:
    for (int i = 0; i < 4; i++) {
        g(i);
    } }""",
    "of a dataflow region": """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS DATAFLOW
    g(i);
    h(i);
} }""",
    "evaluated by the compiler": """constexpr int clog2(int n) {
    int bits = 0;
    for (int rest = n - 1; rest > 0; rest /= 2) bits++;
    return bits;
}""",
}

BAD = {
    "no name": (
        ["loop-label:2"],
        """void f() {
for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "no schedule": (
        ["loop-schedule:2"],
        """void f() {
loop: for (int i = 0; i < 4; i++) g(i);
}""",
    ),
    "schedule switched off": (
        ["loop-schedule:2"],
        """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE off
} }""",
    ),
    "no reason after the colon": (
        ["loop-schedule:2"],
        """void f() {
loop: for (int i = 0; i < 4; i++) {
// not pipelined:
    g(i);
} }""",
    ),
    "around an unrolled loop only": (
        ["loop-schedule:2"],
        """void f() {
outer: for (int i = 0; i < 4; i++) {
inner: for (int j = 0; j < 4; j++) {
#pragma HLS UNROLL
} } }""",
    ),
    "the reason of the loop around": (
        ["loop-schedule:4"],
        """void f() {
outer: for (int i = 0; i < 4; i++) {
// not pipelined: inner is not
inner: for (int j = 0; j < 4; j++) {
    g(j);
} } }""",
    ),
    "no II": (
        ["pipeline-ii:3"],
        """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE
} }""",
    ),
    "II above 1 without a reason": (
        ["pipeline-ii:3"],
        """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=2
    g(i);  // not about the interval
} }""",
    ),
    "II of a template without a reason": (
        ["pipeline-ii:3"],
        """template <int II> void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=II
} }""",
    ),
    "function without II": (
        ["pipeline-ii:2"],
        """void f() {
#pragma HLS PIPELINE
}""",
    ),
    "a pipeline in a pipeline": (
        ["loop-schedule:4"],
        """void f() {
outer: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
inner: for (int j = 0; j < 4; j++) {
#pragma HLS PIPELINE II=1
} } }""",
    ),
    "constexpr of memories": (
        ["loop-label:2", "loop-schedule:2"],
        """constexpr void f(int* x) {
    for (int i = 0; i < 4; i++) x[i] = 0;
}""",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str, rules: Callable[..., list[str]]) -> None:
    assert rules(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str, rules: Callable[..., list[str]]) -> None:
    expected, text = BAD[name]
    assert rules(text) == expected
