"""Functions, loops, declarations and constants are found in what kernels look like; other C++ breaks nothing."""

from __future__ import annotations

import pytest

from fastcar.hls.lint.parser import parse
from fastcar.hls.lint.project import Project, Scope
from fastcar.hls.lint.syntax import Loop, Source, walk

KERNEL = """
namespace fastcar {
constexpr int LANES = 4, WIDE = LANES * 2;
enum Mode { FIRST, SECOND = 3 };
int counter;
template <typename T, int N = LANES, template <int> class Sink>
struct Buffer : Base<T> {
    static constexpr int SIZE = N + 1;
    T values[N];
    Buffer(int a) : values{}, count{a} { reset(); }
    int at(int i) const { return values[i]; }
    bool operator()(int x) const { return x > 0; }
private:
    int count;
};
template <int ROWS>
inline void kernel(hls::stream<ap_uint<8>>& in, const float x[ROWS][LANES], int (&flat)[ROWS], float* out, int n) {
    const int half = n / 2, whole = 2 * half;
    ap_int<20> sum0, sum1 = 0;
    auto [first, second] = pair(n);
row:
    for (int row = 0; row < ROWS; row++) {
        if (row < n) {
        lane: for (int lane = 0; lane < LANES; lane++) out[lane] = x[row][lane];
        } else do { n--; } while (n > 3);
    }
    apply([&](int k) {
    inner:
        while (k > 0) { k--; }
    });
    switch (n) { case FIRST: break; default: for (auto& f : flat) f = 0; }
}
}
"""


@pytest.fixture(scope="module")
def source() -> Source:
    return parse(KERNEL, "kernel.h")


def test_declarations(source: Source) -> None:
    assert [variable.name for variable in source.variables] == ["LANES", "WIDE", "counter"]
    assert source.enumerators == ["FIRST", "SECOND"]
    (buffer,) = source.classes
    assert (buffer.name, buffer.parameters) == ("Buffer", ["T", "N", "Sink"])
    assert [field.name for field in buffer.fields] == ["values", "count"]
    assert [constant.name for constant in buffer.constants] == ["SIZE"]


def test_functions(source: Source) -> None:
    assert [(function.name, function.line) for function in source.functions] == [
        ("Buffer", 10),
        ("at", 11),
        ("operator()", 12),
        ("kernel", 17),
    ]
    kernel = source.functions[-1]
    assert kernel.template == ["ROWS"]
    assert [(parameter.name, len(parameter.dimensions)) for parameter in kernel.parameters] == [
        ("in", 0),
        ("x", 2),
        ("flat", 1),
        ("out", 0),
        ("n", 0),
    ]


def test_loops(source: Source) -> None:
    loops = [(node, above) for node, above in walk(source.functions[-1].children) if isinstance(node, Loop)]
    assert [(loop.label, loop.keyword, loop.ranged) for loop, _ in loops] == [
        ("row", "for", False),
        ("lane", "for", False),
        ("", "do", False),
        ("inner", "while", False),
        ("", "for", True),
    ]
    assert [sum(isinstance(outer, Loop) for outer in above) for _, above in loops] == [0, 1, 1, 0, 0]


def test_locals(source: Source) -> None:
    scope = Scope(Project([source]), source.functions[-1])
    names = [local.name for local in scope.locals]
    assert names[5:11] == ["half", "whole", "sum0", "sum1", "first", "second"]


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" { void f() {} }',
        'extern "C" void f() {}',
        "namespace a::b { inline namespace c { void f() {} } }",
        "static const int table[2] = {1, 2};\nvoid f() {}",
        "struct {int x;} value;\nvoid f() {}",
        "void f(int x = 3) noexcept {}",
        "auto f() -> int { return 1; }",
        "struct A { void f() const; }; void A::f() const {}",
        "}\nvoid f() {}",
    ],
)
def test_forms_of_functions(text: str) -> None:
    assert [function.name for function in parse(text, "f.h").functions] == ["f"]


@pytest.mark.parametrize(
    ("expression", "known", "value"),
    [
        ("8", True, 8),
        ("WIDE - 1", True, 7),
        ("(LANES + WIDE) / 5 % 4", True, 2),
        ("1 << LANES", True, 16),
        ("ROWS", True, None),
        ("ROWS * LANES", True, None),
        ("FIRST", True, None),
        ("Other::COUNT", True, None),
        ("clog2(ROWS)", True, None),
        ("n", False, None),
        ("half", False, None),
        ("clog2(n)", False, None),
        ("counter", False, None),
        ("in.size()", False, None),
    ],
)
def test_constants(source: Source, expression: str, known: bool, value: int | None) -> None:
    scope = Scope(Project([source]), source.functions[-1])
    tokens = parse("", "").tokens + [type(token)(token.kind, token.text, 99) for token in parse(expression, "").tokens]
    assert scope.compile_time(tokens) is known
    assert scope.integer(tokens) == value


@pytest.mark.parametrize(
    "text", ["}", "{", "void f(", "for", "template <", "struct {", "void f() { for (", "#if\n#else", "a ? b"]
)
def test_broken_text_is_no_error(text: str) -> None:
    parse(text, "broken.h")
    parse("void f() {" + text, "broken.h")
