"""Comments, strings, preprocessor lines and conditions are told apart as a compiler does."""

from __future__ import annotations

import pytest

from fastcar.hls.lint.tokens import tokenize


def texts(source: str) -> list[str]:
    return [token.text for token in tokenize(source).tokens]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a // new double\nb", ["a", "b"]),
        ("a /* new\n double */ b", ["a", "b"]),
        ('"// no comment" x', ['"// no comment"', "x"]),
        (r'"\"" x', [r'"\""', "x"]),
        ('R"t(" // )" )t" x', ['R"t(" // )" )t"', "x"]),
        ("'\"' x", ["'\"'", "x"]),
        ("ap_uint<ap<8>> x", ["ap_uint", "<", "ap", "<", "8", ">", ">", "x"]),
        ("1.5e-3f+0x7FFFu", ["1.5e-3f", "+", "0x7FFFu"]),
        ("1'000'000 x", ["1'000'000", "x"]),
        ("a->b::c <<= d", ["a", "->", "b", "::", "c", "<<=", "d"]),
        ("#pragma  HLS \\\n  UNROLL // why\nx", ["#pragma HLS UNROLL", "x"]),
        ("  # define A /* x */ 1\nx", ["# define A 1", "x"]),
        ("x # y", ["x", "#", "y"]),
    ],
)
def test_lexemes(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_lines_and_comments() -> None:
    source = tokenize("a // one\n/* two\n * three */ b\n#pragma HLS \\\n UNROLL // four\nc")
    assert [(token.text, token.line) for token in source.tokens] == [
        ("a", 1),
        ("b", 3),
        ("#pragma HLS UNROLL", 4),
        ("c", 6),
    ]
    assert source.comments == {1: "one", 2: "two", 3: "three", 5: "four"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#ifdef FASTCAR_SIMULATION\na\n#else\nb\n#endif\nc", ["b", "c"]),
        ("#ifndef FASTCAR_SIMULATION\na\n#else\nb\n#endif\nc", ["a", "c"]),
        ("#if defined(FASTCAR_SIMULATION)\na\n#endif\nc", ["c"]),
        ("#if !defined(FASTCAR_SIMULATION)\na\n#endif\nc", ["a", "c"]),
        ("#if defined FASTCAR_SIMULATION\na\n#else\nb\n#endif", ["b"]),
        ("#ifdef OTHER\na\n#else\nb\n#endif", ["a", "b"]),
        ("#ifdef FASTCAR_SIMULATION\n#ifdef OTHER\na\n#endif\nb\n#else\nc\n#endif", ["c"]),
        ("#ifdef OTHER\n#ifdef FASTCAR_SIMULATION\na\n#else\nb\n#endif\nc\n#endif", ["b", "c"]),
        ("#ifdef FASTCAR_SIMULATION\n#include <thread>\n// new\n#endif\nc", ["c"]),
        ("#if defined(FASTCAR_SIMULATION) && defined(OTHER)\na\n#else\nb\n#endif", ["a", "b"]),
    ],
)
def test_the_branch_of_synthesis_is_kept(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_comments_of_the_simulation_are_dropped() -> None:
    assert tokenize("#ifdef FASTCAR_SIMULATION\n// not pipelined: no\n#endif").comments == {}
