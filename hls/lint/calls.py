"""Who calls whom among the checked functions: for recursion, and for loops that a pipelined caller unrolls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .declarations import closing, split
from .findings import Finding
from .project import Project, Scope
from .syntax import Block, Function, Loop, Node, Statement, walk
from .tokens import Token

__all__ = ["Call", "calls_of", "check_recursion"]


@dataclass(frozen=True)
class Call:
    """``above``: the nodes around the call, outermost first; ``through``: the call is of an object's member."""

    callee: Function
    line: int
    above: tuple[Node, ...]
    through: bool
    shrinks: bool  # f<N / 2>(...): another instance of a template, so no recursion at run time


def calls_of(function: Function, project: Project) -> Iterator[Call]:
    scope = Scope(project, function)
    for node, above in walk(function.children):
        parts: list[list[Token]] = []
        if isinstance(node, Statement):
            parts, around = [node.tokens], above
        elif isinstance(node, Block):
            parts, around = [node.head], above
        elif isinstance(node, Loop):
            parts, around = [node.initial, node.condition, node.step], (*above, node)
        for tokens in parts:
            for index, token in enumerate(tokens):
                arguments, template = _after_name(tokens, index + 1)
                if token.kind != "identifier" or arguments is None:
                    continue
                count = len(split(tokens[arguments + 1 : closing(tokens, arguments)], ",", angles=True))
                shrinks = any(part.kind != "identifier" and part.text != "," for part in template)
                callees, through = _named(tokens, index, scope)
                for callee in callees:
                    fewest = sum(not parameter.value for parameter in callee.parameters)
                    if fewest <= count <= len(callee.parameters):
                        yield Call(callee, token.line, around, through, shrinks)


def _after_name(tokens: list[Token], index: int) -> tuple[int | None, list[Token]]:
    """Where the arguments open after a name, and the template arguments between."""
    if index < len(tokens) and tokens[index].text == "(":
        return index, []
    if index < len(tokens) and tokens[index].text == "<":
        depth = 0
        for end in range(index, len(tokens)):
            depth += (tokens[end].text == "<") - (tokens[end].text == ">")
            if depth == 0:
                opens = end + 1 < len(tokens) and tokens[end + 1].text == "("
                return (end + 1 if opens else None), tokens[index + 1 : end]
    return None, []


def _named(tokens: list[Token], index: int, scope: Scope) -> tuple[list[Function], bool]:
    """The functions that the name at ``index`` can call, and whether it does so through an object."""
    name, project, owner = tokens[index].text, scope.project, scope.function.owner
    functions = project.by_name.get(name, [])
    before = tokens[index - 1].text if index else ""
    previous = tokens[index - 2].text if index > 1 else ""
    if before in (".", "->") and previous != "this":
        return _of_object(functions, _object(tokens, index - 2), scope), True
    if before == "::":
        classes = {class_.name for class_ in project.classes}
        if previous in classes:
            return [function for function in functions if function.owner and function.owner.name == previous], False
        outside = previous in ("std", "hls")
        return [function for function in functions if function.owner is None and not outside], False
    if scope.find(name, tokens[index].line) is not None:  # an object that is called
        return _of_object(project.by_name.get("operator()", []), name, scope), True
    return [function for function in functions if function.owner is None or function.owner is owner], False


def _object(tokens: list[Token], index: int) -> str:
    """The name before a member's dot, past its indices: ``groups`` of ``groups[i].start``."""
    while index > 0 and tokens[index].text == "]":
        depth = 0
        while index > 0:
            depth += (tokens[index].text == "]") - (tokens[index].text == "[")
            index -= 1
            if depth == 0:
                break
    return tokens[index].text


def _of_object(functions: list[Function], name: str, scope: Scope) -> list[Function]:
    """Members of the object's class; of every class, if the object's type is a template parameter or not known."""
    declared = scope.find(name, max((local.line for local in scope.locals), default=0))
    fields = [field for class_ in scope.project.classes for field in class_.fields if field.name == name]
    words = declared.words if declared else set().union(*(field.words for field in fields))
    classes = {class_.name for class_ in scope.project.classes} & words
    members = [function for function in functions if function.owner]
    if classes:
        return [function for function in members if function.owner and function.owner.name in classes]
    return members if not words or words & {*scope.function.template, "auto"} else []


def check_recursion(project: Project) -> Iterator[Finding]:
    """A function that reaches itself, directly or through others, has no hardware of finite size."""
    graph: dict[int, list[tuple[Function, int]]] = {}
    for function in project.functions:
        graph[id(function)] = [
            (call.callee, call.line)
            for call in calls_of(function, project)
            if not call.through and not (call.shrinks and call.callee.template)
        ]
    for function in project.functions:
        path = None if function.compile_time else _way_back(function, graph)
        if path:
            names = " -> ".join([function.name, *(step.name for step, _ in path)])
            yield Finding(
                function.path,
                path[0][1] or function.line,
                "recursion",
                f"{names} calls itself",
                "a call tree without cycles",
                "Write the recursion as a loop with a bound",
            )


def _way_back(start: Function, graph: dict[int, list[tuple[Function, int]]]) -> list[tuple[Function, int]] | None:
    """The shortest chain of calls from ``start`` to itself."""
    queue: list[list[tuple[Function, int]]] = [[step] for step in graph[id(start)]]
    seen: set[int] = set()
    while queue:
        path = queue.pop(0)
        reached = path[-1][0]
        if reached is start:
            return path
        if id(reached) not in seen:
            seen.add(id(reached))
            queue += [[*path, step] for step in graph[id(reached)]]
    return None
