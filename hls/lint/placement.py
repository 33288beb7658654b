"""A pragma stands directly under the loop or function head it governs, or after the variable it names."""

from __future__ import annotations

from collections.abc import Iterator

from .findings import Finding
from .pragmas import Pragma
from .project import Project, Scope
from .syntax import Function, Loop, Node, Statement
from .vocabulary import vocabulary

__all__ = ["check_placement"]

_NAMING = ("variable", "port", "ports")
_WITHOUT_EFFECT = frozenset(["static_assert", "assert", "using", "typedef"])


def check_placement(project: Project) -> Iterator[Finding]:
    for source in project.sources:
        for pragma in source.stray:
            if pragma.name:
                yield _misplaced(source.path, pragma, "outside any function", "the body it governs")
    for function in project.functions:
        yield from _in_body(function.children, function, Scope(project, function))


def _in_body(nodes: list[Node], body: Function | Node, scope: Scope) -> Iterator[Finding]:
    for index, node in enumerate(nodes):
        if isinstance(node, Pragma):
            if node.name in vocabulary():
                yield from _names(node, scope)
                yield from _place(node, nodes[:index], body, scope)
        else:
            yield from _in_body(node.children, node, scope)


def _names(pragma: Pragma, scope: Scope) -> Iterator[Finding]:
    """Everything named must be declared in the function, a port be one of its parameters."""
    for option in _NAMING:
        for name in pragma.names(option):
            declared = scope.find(name, pragma.line) is not None or name in scope.fields
            if option != "variable":
                declared = name in scope.parameters or name == "return"
            if not declared:
                what = "a parameter or an earlier local" if option == "variable" else "a parameter, or return,"
                yield Finding(
                    scope.function.path,
                    pragma.line,
                    "pragma-variable",
                    f"#pragma {pragma.text}: {scope.function.name} declares no {name} before it",
                    f"{what} of the function",
                    "Correct the name or move the pragma after the declaration",
                )


def _place(pragma: Pragma, before: list[Node], body: Function | Node, scope: Scope) -> Iterator[Finding]:
    allowed = vocabulary()[pragma.name]["scope"]
    leads = all(isinstance(node, Pragma) for node in before)
    begins = all(isinstance(node, Pragma) or _declares(node) for node in before)
    fits = {
        "loop": isinstance(body, Loop) and leads,
        "function": isinstance(body, Function) and begins,
        "region": begins,
        "variable": _follows_declaration(pragma, before, body, scope),
    }
    if not any(fits[place] for place in allowed):
        places = {
            "loop": "the line under the loop's head",
            "function": "the start of the function's body, before its first statement",
            "region": "the start of the body it governs, before its first statement",
            "variable": "the lines after the variable's declaration, in the same braces",
        }
        expected = " or ".join(places[place] for place in allowed)
        yield _misplaced(scope.function.path, pragma, "not at its place", expected)


def _follows_declaration(pragma: Pragma, before: list[Node], body: Function | Node, scope: Scope) -> bool:
    """Whether only declarations and pragmas stand between the pragma and what it names."""
    names = {name for option in _NAMING for name in pragma.names(option)}
    for node in reversed(before):
        if isinstance(node, Statement):
            names -= {declarator.name for declarator in node.declared}
        if not names:
            return True
        if not isinstance(node, Pragma) and not _declares(node):
            return False
    return isinstance(body, Function) and names <= scope.parameters | scope.fields | {"return"}


def _declares(node: Node) -> bool:
    """Whether a node only declares."""
    return isinstance(node, Statement) and (
        bool(node.declared) or (bool(node.tokens) and node.tokens[0].text in _WITHOUT_EFFECT)
    )


def _misplaced(path: str, pragma: Pragma, found: str, expected: str) -> Finding:
    found = f"#pragma {pragma.text}: {found}"
    return Finding(path, pragma.line, "pragma-place", found, expected, "Move the pragma there")
