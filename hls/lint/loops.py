"""Every loop has a name, a schedule that is written down, and a bound that is known or estimated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .calls import calls_of
from .findings import Finding
from .pragmas import Pragma
from .project import Project, Scope
from .syntax import Function, Loop, Node, walk

__all__ = ["check_loops", "induction", "is_fixed", "is_pipelined", "is_unrolled", "pipelined_callers"]

_REASON = re.compile(r"not pipelined:\s*\w")


def is_pipelined(node: Function | Node) -> bool:
    return isinstance(node, Function | Loop) and any(not pragma.off for pragma in node.pragmas("PIPELINE"))


def is_unrolled(loop: Loop) -> bool:
    """By its own pragma, completely or by a factor."""
    return any(not pragma.off for pragma in loop.pragmas("UNROLL"))


def induction(loop: Loop) -> set[str]:
    """The loop's own variables: declared in its head, or assigned there."""
    names = {declarator.name for declarator in loop.declared}
    if not names and len(loop.initial) > 1 and loop.initial[1].text == "=":
        names = {loop.initial[0].text}
    return names


def is_fixed(loop: Loop, above: tuple[Node, ...], scope: Scope, copied: bool) -> bool:
    """Whether the compiler knows the number of turns.

    Variables of the loops around are constants in it where each turn of those becomes hardware of its own: completely
    unrolled, inside a pipelined loop, or all of them if the function is ``copied`` into something pipelined.
    """
    if loop.ranged:
        return True
    if loop.keyword != "for" or not loop.condition:
        return False
    free = induction(loop)
    for node in above:
        whole = isinstance(node, Loop) and is_unrolled(node) and not _factor(node)
        if isinstance(node, Loop) and (copied or whole):
            free |= induction(node)
        copied = copied or is_pipelined(node)
    start = [token for declarator in loop.declared for token in declarator.value] if loop.declared else loop.initial
    return all(scope.compile_time(part, free) for part in (start, loop.condition, loop.step))


def _factor(loop: Loop) -> bool:
    return any("factor" in pragma.options for pragma in loop.pragmas("UNROLL"))


def pipelined_callers(project: Project) -> dict[int, str]:
    """Functions that are called inside something pipelined, by id, with the name of the latter."""
    calls = [(function, call) for function in project.functions for call in calls_of(function, project)]
    inside: dict[int, str] = {}
    grew = True
    while grew:
        grew = False
        for caller, call in calls:
            where = next((f"loop {node.name} of {caller.name}" for node in call.above if is_pipelined(node)), "")
            if not where and is_pipelined(caller):
                where = f"function {caller.name}"
            where = where or inside.get(id(caller), "")
            if where and id(call.callee) not in inside:
                inside[id(call.callee)] = where
                grew = True
    return inside


def check_loops(project: Project) -> Iterator[Finding]:
    callers = pipelined_callers(project)
    for function, scope in project.kernels():
        for pragma in function.pragmas("PIPELINE"):
            yield from _interval(pragma, function, function.line, function.path, project)
        for node, above in walk(function.children):
            if isinstance(node, Loop):
                outer = next((node for node in above if isinstance(node, Loop) and is_pipelined(node)), None)
                inside = f"function {function.name}" if is_pipelined(function) else callers.get(id(function), "")
                fixed = is_fixed(node, above, scope, copied=bool(inside))
                yield from _check(node, above, f"loop {outer.name}" if outer else inside, fixed, scope)


def _check(loop: Loop, above: tuple[Node, ...], pipeline: str, fixed: bool, scope: Scope) -> Iterator[Finding]:
    """``pipeline``: what is pipelined around the loop, if anything; ``fixed``: its number of turns is known."""
    path, project = scope.function.path, scope.project

    def finding(rule: str, found: str, expected: str, fix: str) -> Finding:
        return Finding(path, loop.line, rule, f"loop {loop.name} {found}", expected, fix)

    if not loop.label:
        yield finding("loop-label", "has no name", "`name: for (...)`", "Give it a label, which reports then use")
    if pipeline:
        if not fixed:
            found = f"has a run-time bound inside the pipelined {pipeline}, which unrolls it"
            fix = "Bound it by a constant and guard its body, or pipeline further inside"
            yield finding("loop-schedule", found, "a compile-time bound", fix)
        elif is_pipelined(loop):
            found, fix = f"is pipelined inside the pipelined {pipeline}", "Remove its PIPELINE or that of the outer one"
            yield finding("loop-schedule", found, "one PIPELINE in a nest", fix)
        return
    if is_pipelined(loop):
        for pragma in loop.pragmas("PIPELINE"):
            yield from _interval(pragma, loop, loop.line, path, project)
    elif is_unrolled(loop):
        if not fixed and not _factor(loop):
            fix = "Bound it by a constant and guard its body, or state a factor"
            yield finding("loop-schedule", "has a run-time bound and is to be unrolled", "a compile-time bound", fix)
            return
    elif not (loop.pragmas("DATAFLOW") or _holds_pipeline(loop) or _states_reason(loop, above, path, project)):
        expected = "PIPELINE with II, UNROLL, a pipelined loop inside, or `// not pipelined: reason`"
        yield finding("loop-schedule", "has no schedule", expected, "Add one of them under its head")
    if not fixed:
        yield from _trip_count(loop, finding)


def _interval(pragma: Pragma, owner: Function | Loop, first: int, path: str, project: Project) -> Iterator[Finding]:
    """PIPELINE states its II, and says why if it is not 1."""
    if pragma.off:
        return
    what = f"{'loop' if isinstance(owner, Loop) else 'function'} {owner.name}"
    if "ii" not in pragma.options:
        found = f"{what} is pipelined at no stated interval"
        yield Finding(path, pragma.line, "pipeline-ii", found, "II=...", "State II")
    elif pragma.value("ii") != "1" and not project.comment(path, first, pragma.line):
        found = f"{what} is pipelined with II={pragma.value('ii')} for no stated reason"
        expected = "a comment above the pragma, or behind it"
        yield Finding(path, pragma.line, "pipeline-ii", found, expected, "Say what keeps II above 1")


def _holds_pipeline(loop: Loop) -> bool:
    return any(is_pipelined(node) for node, _ in walk(loop.children))


def _states_reason(loop: Loop, above: tuple[Node, ...], path: str, project: Project) -> bool:
    """Above the loop and its label, behind its head, or before its first statement."""
    first = loop.line - 2
    if above and isinstance(above[-1], Loop) and _begins(above[-1]) == loop.line:
        first = loop.line  # what stands above is the reason of the loop around
    return bool(_REASON.search(project.comment(path, first, _begins(loop))))


def _begins(loop: Loop) -> int:
    """The line of the first statement in the body."""
    return min((node.line for node in loop.children if not isinstance(node, Pragma)), default=loop.line + 1)


def _trip_count(loop: Loop, finding: Callable[..., Finding]) -> Iterator[Finding]:
    pragmas = loop.pragmas("LOOP_TRIPCOUNT")
    if not any({"min", "max"} <= set(pragma.options) for pragma in pragmas):
        found = "has a run-time bound" + (" and LOOP_TRIPCOUNT without min and max" if pragmas else "")
        expected = "a compile-time bound, or LOOP_TRIPCOUNT with min and max"
        yield finding("loop-bound", found, expected, "State the fewest and the most turns")
