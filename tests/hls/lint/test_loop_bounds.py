"""The number of turns is known to the compiler, or estimated; what is unrolled must be known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

GOOD = {
    "unrolled by a factor, bound of run time": """void f(int n) {
loop: for (int i = 0; i < n; i++) {
#pragma HLS UNROLL factor=4
#pragma HLS LOOP_TRIPCOUNT min=1 max=64
} }""",
    "run-time bound with a trip count": """void f(int n) {
loop: for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=64
} }""",
    "while with a trip count": """void f(int n) {
loop: while (n > 0) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=1 max=64
    n--;
} }""",
    "triangle, both unrolled": """void f() {
outer: for (int i = 0; i < 4; i++) {
#pragma HLS UNROLL
inner: for (int j = 0; j < i; j++) {
#pragma HLS UNROLL
} } }""",
    "triangle in a pipelined function": """void f() {
#pragma HLS PIPELINE II=1
outer: for (int i = 0; i < 4; i++)
inner: for (int j = 0; j < i; j++) g(i, j);
}""",
    "triangle in a pipelined loop": """void f() {
loop: for (int k = 0; k < 4; k++) {
#pragma HLS PIPELINE II=1
outer: for (int i = 0; i < 4; i++)
inner: for (int j = 0; j < i; j++) g(i, j);
} }""",
    "a tree": """template <int N> void f() {
outer: for (int width = N / 2; width > 0; width /= 2) {
#pragma HLS UNROLL
} }""",
    "local and member constants": """struct S {
    static constexpr int N = 4;
    void f() {
        const int half = N / 2;
loop: for (int i = 0; i < half; i++) {
#pragma HLS UNROLL
} } };""",
}

BAD = {
    "run-time bound in a pipeline": (
        ["loop-schedule:4"],
        """void f(int n) {
outer: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
inner: for (int j = 0; j < n; j++) {
#pragma HLS LOOP_TRIPCOUNT min=1 max=4
} } }""",
    ),
    "while in a pipeline": (
        ["loop-schedule:3"],
        """void f(int n) {
#pragma HLS PIPELINE II=1
loop: while (n > 0) n--;
}""",
    ),
    "run-time bound to unroll": (
        ["loop-schedule:2"],
        """void f(int n) {
loop: for (int i = 0; i < n; i++) {
#pragma HLS UNROLL
} }""",
    ),
    "run-time bound": (
        ["loop-bound:2"],
        """void f(int n) {
loop: for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "trip count without min": (
        ["loop-bound:2"],
        """void f(int n) {
loop: for (int i = 0; i < n; i++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT max=4
} }""",
    ),
    "run-time start": (
        ["loop-bound:2"],
        """void f(int n) {
loop: for (int i = n; i < 4; i++) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "run-time step": (
        ["loop-bound:2"],
        """void f(int n) {
loop: for (int i = 0; i < 4; i += n) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "bound of a local": (
        ["loop-bound:3"],
        """void f(int n) {
    const int half = n / 2;
loop: for (int i = 0; i < half; i++) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "triangle": (
        ["loop-bound:3"],
        """void f() {
outer: for (int i = 0; i < 4; i++) {
inner: for (int j = 0; j < i; j++) {
#pragma HLS PIPELINE II=1
} } }""",
    ),
    "triangle, the outer unrolled in part": (
        ["loop-schedule:4"],
        """void f() {
outer: for (int i = 0; i < 8; i++) {
#pragma HLS UNROLL factor=2
inner: for (int j = 0; j < i; j++) {
#pragma HLS UNROLL
} } }""",
    ),
    "triangle below the pipelined loop itself": (
        ["loop-schedule:4"],
        """void f() {
outer: for (int i = 0; i < 8; i++) {
#pragma HLS PIPELINE II=1
inner: for (int j = 0; j < i; j++) g(i, j);
} }""",
    ),
    "endless": (
        ["loop-bound:2"],
        """void f() {
loop: for (;;) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "while without a trip count": (
        ["loop-bound:2"],
        """void f(int n) {
loop: while (n > 0) {
#pragma HLS PIPELINE II=1
    n--;
} }""",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str, rules: Callable[..., list[str]]) -> None:
    assert rules(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str, rules: Callable[..., list[str]]) -> None:
    expected, text = BAD[name]
    assert rules(text) == expected


def test_bounds_by_constants_of_another_file(rules: Callable[..., list[str]]) -> None:
    loop = "void f() {\nloop: for (int i = 0; i < N; i++) {\n#pragma HLS UNROLL\n} }"
    assert rules("constexpr int N = 4;", loop) == []
    assert rules("int N;", loop) == ["loop-schedule:2"]
