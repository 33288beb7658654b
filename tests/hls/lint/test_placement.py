"""Pragmas stand under the head they govern or after the variable they name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

GOOD = {
    "under the loop": """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_FLATTEN off
    g(i);
} }""",
    "a loop without braces": """void f() {
loop: for (int i = 0; i < 4; i++)
#pragma HLS UNROLL
    g(i);
}""",
    "at the function's start": """void f(int x) {
    static_assert(1 < 2, "so");
    constexpr int N = 4;
#pragma HLS INLINE off
    g(x);
}""",
    "after the streams of a dataflow": """void f() {
    hls::stream<int> s("s");
#pragma HLS STREAM variable=s depth=8
    Program loaded = {};
    hls_thread_local hls::stream<int> t;
    assert(loaded.size > 0);
#pragma HLS DATAFLOW
    g(s);
    h(s);
}""",
    "after the declaration": """void f() {
    g();
    int a[4], b[4];
    const int c = g();
#pragma HLS ARRAY_PARTITION variable=a type=complete
#pragma HLS ARRAY_PARTITION variable=b type=complete
    g(c);
}""",
    "of a parameter": """void f(int x[4], int y[4]) {
    int a = 0;
#pragma HLS ARRAY_PARTITION variable=x,y type=complete
}""",
    "of a member": """struct Memory {
    int data[4];
    Memory() {
#pragma HLS ARRAY_PARTITION variable=data type=complete
    }
};""",
    "of a stream": """void f() {
    hls::stream<ap_uint<8>> s("s");
#pragma HLS STREAM variable=s depth=8
    static int t[4] = {1, 2, 3, 4};
#pragma HLS BIND_STORAGE variable=t type=rom_1p
}""",
}

BAD = {
    "after a statement of the loop": (
        "pragma-place:4",
        """void f() {
loop: for (int i = 0; i < 4; i++) {
    g(i);
#pragma HLS PIPELINE II=1
} }""",
    ),
    "above the loop": (
        "pragma-place:2",
        """void f() {
#pragma HLS UNROLL
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "between label and loop": (
        "pragma-place:3",
        """void f() {
loop:
#pragma HLS UNROLL
for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
} }""",
    ),
    "function pragma after a statement": (
        "pragma-place:3",
        """void f() {
    g();
#pragma HLS INLINE
}""",
    ),
    "function pragma in a loop": (
        "pragma-place:4",
        """void f() {
loop: for (int i = 0; i < 4; i++) {
#pragma HLS PIPELINE II=1
#pragma HLS INLINE
} }""",
    ),
    "far from the declaration": (
        "pragma-place:4",
        """void f() {
    int a[4];
    g(a);
#pragma HLS ARRAY_PARTITION variable=a type=complete
}""",
    ),
    "in other braces": (
        "pragma-place:4",
        """void f() {
    int a[4];
    if (g()) {
#pragma HLS ARRAY_PARTITION variable=a type=complete
        g(a);
    } }""",
    ),
    "before the declaration": (
        "pragma-variable:2",
        """void f() {
#pragma HLS STABLE variable=a
    int a[4];
}""",
    ),
    "outside a function": (
        "pragma-place:2",
        """int a[4];
#pragma HLS RESET variable=a
void f() {}""",
    ),
    "unknown port": (
        "pragma-variable:2",
        """void f(int x) {
#pragma HLS INTERFACE mode=s_axilite port=y
}""",
    ),
    "a local as port": (
        "pragma-variable:3",
        """void f(int x) {
    constexpr int y = 1;
#pragma HLS INTERFACE mode=s_axilite port=y
}""",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_at_its_place(name: str, rules: Callable[..., list[str]]) -> None:
    assert rules(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_misplaced(name: str, rules: Callable[..., list[str]]) -> None:
    expected, text = BAD[name]
    assert rules(text) == [expected]


def test_unknown_variable_is_one_of_both(rules: Callable[..., list[str]]) -> None:
    text = "void f() {\n    int a[4];\n#pragma HLS ARRAY_PARTITION variable=b type=complete\n}"
    assert set(rules(text)) == {"pragma-place:3", "pragma-variable:3"}
