"""Recursion is found, direct or through others; calls that only look like it are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastcar.hls.lint import Finding

GOOD = {
    "a chain": "void f() {}\nvoid g() { f(); }\nvoid h() { g(); f(); }",
    "an overload": "int f(int x) { return x; }\nint f(int x, int y) { return f(x) + y; }",
    "a method of an object": "struct A { Reader reader; int read() { return reader.read(); } };",
    "of another class": "struct A { static int f() { return 1; } };\nstruct B { int f() { return A::f(); } };",
    "a smaller instance": "template <int N> int sum(const int* x) { return x[0] + sum<N / 2>(x); }",
    "evaluated by the compiler": "constexpr int clog2(int n) { return n < 2 ? 0 : 1 + clog2(n / 2); }",
    "a name in a comment": "void f() { /* f(); */ }",
    "of the library": "int range(int x) { return hls::range(x); }",
}

BAD = {
    "direct": (["recursion:2"], "void f(int n) {\n    f(n - 1);\n}"),
    "in a condition": (["recursion:1"], "bool f(int n) { if (f(n)) return true; return false; }"),
    "mutual": (["recursion:1", "recursion:2"], "void f() { g(); }\nvoid g() { f(); }"),
    "a method": (["recursion:1"], "struct A { int f(int n) { return this->f(n - 1); } };"),
    "through a method": (["recursion:1"], "struct A { int f() { return g(); } int g() { return f(); } };"),
    "the same instance": (["recursion:1"], "template <int N> int f() { return f<N>(); }"),
}


@pytest.mark.parametrize("name", GOOD)
def test_no_recursion(name: str, rules: Callable[..., list[str]]) -> None:
    assert rules(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_recursion(name: str, rules: Callable[..., list[str]]) -> None:
    expected, text = BAD[name]
    assert sorted(set(rules(text))) == expected


def test_across_files(lint: Callable[..., list[Finding]]) -> None:
    findings = lint("void f() { g(); }", "void g() { h(); }", "void h() { f(); }")
    assert [finding.found for finding in findings] == [
        "f -> g -> h -> f calls itself",
        "g -> h -> f -> g calls itself",
        "h -> f -> g -> h calls itself",
    ]
