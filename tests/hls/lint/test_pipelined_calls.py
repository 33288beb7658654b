"""A pipelined loop unrolls those of the functions it calls, so they are checked as its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastcar.hls.lint import Finding

CALLEE = """struct Register {
    int entry;
    void advance(int n, int) { wrap(n); }
    void wrap(int n) {
    wrap:
        while (entry >= n) {
#pragma HLS PIPELINE II=1
#pragma HLS LOOP_TRIPCOUNT min=0 max=4
            entry -= n;
        }
    }
    int operator()(int n) { wrap(n); return entry; }
};
struct Cursor {
    void advance(int n, int step = 1) {}
};
struct Holder { Register state[2]; };
"""

CALLER = """template <typename Sink>
void f(Register& state, Register states[4], Cursor& cursor, Holder& holder, Sink& sink) {{
loop: for (int i = 0; i < 4; i++) {{
{pragma}
    {call};
}} }}
"""


REACHING = [
    "state.advance(i, 2)",
    "states[3].advance(i, 2)",
    "holder.state[i].advance(i, 2)",
    "state(i)",
    "int x = sink(i)",
]
OTHERS = ["cursor.advance(i)", "cursor.advance(i, 2)", "other.wrap(i, 2)", "std::wrap(i)", "wrap(i)"]


@pytest.mark.parametrize("call", REACHING)
def test_loops_of_functions_called_in_a_pipeline(call: str, lint: Callable[..., list[Finding]]) -> None:
    """In another file, through a member and another function."""
    findings = lint(CALLEE, CALLER.format(pragma="#pragma HLS PIPELINE II=1", call=call))
    assert [(finding.rule, finding.line) for finding in findings] == [("loop-schedule", 6)]
    assert all("the pipelined loop loop of f" in str(finding) for finding in findings)
    assert lint(CALLEE, CALLER.format(pragma="// not pipelined: wrap is", call=call)) == []


@pytest.mark.parametrize("call", OTHERS)
def test_calls_that_do_not_reach_the_loop(call: str, rules: Callable[..., list[str]]) -> None:
    assert rules(CALLEE, CALLER.format(pragma="#pragma HLS PIPELINE II=1", call=call)) == []
