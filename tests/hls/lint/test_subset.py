"""What has no hardware, or other bits in other tools, is refused; what only looks like it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastcar.hls.lint import Finding

GOOD = [
    "#include <ap_int.h>",
    "#include <cstdint>",
    '#include "types.h"',
    "#ifndef FASTCAR_TYPES_H\n#define FASTCAR_TYPES_H\n#endif",
    "#ifdef FASTCAR_SIMULATION\n#include <thread>\n#define TRACE 1\n#endif",
    "struct A { A(const A&) = delete; };",
    '// new double goto 1.0\n/* throw */ const char* text = "double 1.0 sqrt(2)";',
    "float f(float x) { return x * 1.5f + 2e-3f; }",
    "unsigned g() { return 0x1E5u + 0x2B800000u + 1'000; }",
    "float f(const float exp[4], const float sin[4], int i) { return exp[i] * sin[i]; }",
    "float exp(float x) { return x; }\nfloat f(float x) { return fastcar::exp(x); }",
    "float f(Table& table) { return table.exp(3) + table.free(); }",
    "template <int N> void f() { int a[N][2 * N]; constexpr int M = 4; int b[M]; }",
    "int f(int (*x)[4], int (&y)[4]) { return (*x)[1] * (y[0]); }",
    "struct F { int operator()(int x) const { return (*this)(x, 1); } };",
    "std::size_t f() { return 1; }",
    "void f() {\nclock:\n    while (g()) {\n#pragma HLS PIPELINE II=1\n#pragma HLS LOOP_TRIPCOUNT min=1 max=2\n    } }",
]

BAD = [
    ("int* f() { return new int[4]; }", "new"),
    ("void f(int* x) { delete[] x; }", "delete"),
    ("void* f() { return malloc(4); }", "malloc"),
    ("void f(void* x) { std::free(x); }", "free"),
    ("double f();", "double"),
    ("float f() { return 1.0; }", "1.0f"),
    ("float f() { return 1e3; }", "1e3f"),
    ("float f() { return .5; }", ".5f"),
    ("float f() { return 1.0L; }", "1.0f"),
    ("float f() { return 0x1p-3; }", "0x1p-3f"),
    ("#include <cmath>", "<cmath>"),
    ("#include <hls_math.h>", "<hls_math.h>"),
    ('#include "hls_math.h"', "hls_math.h"),
    ("#include <cstdio>", "<cstdio>"),
    ("#include <thread>", "<thread>"),
    ("#include <vector>", "<vector>"),
    ("float f(float x) { return sqrt(x); }", "sqrt"),
    ("float f(float x) { return hls::exp(x); }", "exp"),
    ("float f(float x) { return std::floor(x); }", "floor"),
    ("float exp(float x) { return hls::exp(x); }", "exp"),
    ("float f(float x) { return rintf(x); }", "rintf"),
    ('void f() { printf("x"); }', "printf"),
    ("void f() { exit(1); }", "exit"),
    ("void f() { goto end; end: g(); }", "goto"),
    ("void f() { throw 1; }", "throw"),
    ("struct A { virtual void f(); };", "virtual"),
    ("void f() { std::vector<int> x; }", "std::vector"),
    ("void f(std::function<int(int)> g);", "std::function"),
    ("void f(int (*g)(int));", "pointer to a function"),
    ("using F = int (*)(int);", "pointer to a function"),
    ("void f(int n) { int a[n]; }", "n at run time"),
    ("void f(int n) { const int m = 2 * n; int a[4][m]; }", "m at run time"),
    ("#define LANES 16", "LANES"),
    ("#define FASTCAR_TYPES_H 1", "FASTCAR_TYPES_H"),
    ("#define MAX(a, b) ((a) > (b) ? (a) : (b))", "MAX"),
]


@pytest.mark.parametrize("text", GOOD)
def test_allowed(text: str, rules: Callable[..., list[str]]) -> None:
    assert rules(text) == []


@pytest.mark.parametrize(("text", "word"), BAD)
def test_refused(text: str, word: str, lint: Callable[..., list[Finding]]) -> None:
    (finding,) = lint(text)
    assert (finding.rule, finding.line) == ("subset", 1)
    assert word in str(finding)


def test_exceptions(rules: Callable[..., list[str]]) -> None:
    assert rules("void f() {\n    try {\n        g();\n    } catch (int x) {\n    }\n}") == ["subset:2", "subset:4"]
