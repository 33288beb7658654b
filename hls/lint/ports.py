"""As many copies of a loop's body as run at once must find their elements in different banks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .declarations import closing
from .findings import Finding
from .loops import induction, is_pipelined, is_unrolled
from .pragmas import Pragma
from .project import Project, Scope
from .syntax import Block, Loop, Node, Statement, walk
from .tokens import Token

__all__ = ["check_ports"]

_SCALING = frozenset(["*", "/", "%", "<<", ">"])


@dataclass(frozen=True)
class _Partition:
    factor: tuple[Token, ...]
    dimension: int  # 0: all


def check_ports(project: Project) -> Iterator[Finding]:
    for function, scope in project.kernels():
        partitions: dict[str, list[_Partition]] = {}
        for node, _ in walk(function.children):
            if isinstance(node, Pragma) and node.name == "ARRAY_PARTITION" and node.value("type").lower() == "cyclic":
                dimension = scope.integer(node.options.get("dim", ()))
                for name in node.names("variable"):
                    partition = _Partition(node.options.get("factor", ()), 1 if dimension is None else dimension)
                    partitions.setdefault(name, []).append(partition)
        for node, above in walk(function.children) if partitions else ():
            if isinstance(node, Loop):
                copies = _copies(node, above, is_pipelined(function))
                yield from _check(node, copies, partitions, scope) if copies else ()


def _copies(loop: Loop, above: tuple[Node, ...], pipelined: bool) -> Sequence[Token]:
    """How many copies of the body run at once: the factor, or the bound of a loop that counts from 0 by 1."""
    for pragma in loop.pragmas("UNROLL"):
        if "factor" in pragma.options and not pragma.off:
            return pragma.options["factor"]
    if not is_unrolled(loop) and not pipelined and not any(is_pipelined(node) for node in above):
        return ()
    starts = [token.text for declarator in loop.declared for token in declarator.value]
    counts = "++" in [token.text for token in loop.step]
    if starts == ["0"] and counts and len(loop.condition) > 2 and loop.condition[1].text == "<":
        return loop.condition[2:]
    return ()


def _check(
    loop: Loop, copies: Sequence[Token], partitions: dict[str, list[_Partition]], scope: Scope
) -> Iterator[Finding]:
    for name in sorted(partitions):
        for dimension in sorted(_indexed_dimensions(loop, name)):
            for partition in partitions[name]:
                if partition.dimension in (0, dimension) and _conflict(copies, partition.factor, scope):
                    width = "".join(token.text for token in copies)
                    banks = "".join(token.text for token in partition.factor)
                    yield Finding(
                        scope.function.path,
                        loop.line,
                        "ports",
                        f"loop {loop.name} takes {width} elements of {name} at once from {banks} cyclic banks",
                        f"an unroll factor that is {banks} or divides it",
                        "Make the partition's factor a multiple of the unroll factor",
                    )


def _conflict(copies: Sequence[Token], factor: Sequence[Token], scope: Scope) -> bool:
    """Whether two copies meet in a bank; only if both numbers are known."""
    if [token.text for token in copies] == [token.text for token in factor]:
        return False
    width, banks = scope.integer(copies), scope.integer(factor)
    return bool(width and banks) and banks % width != 0  # type: ignore[operator]


def _indexed_dimensions(loop: Loop, name: str) -> set[int]:
    """The dimensions of array ``name``, from 1, in which the loop's variable steps from element to element."""
    found: set[int] = set()
    variables = induction(loop)
    for node, _ in walk(loop.children):
        tokens: list[Token] = []
        if isinstance(node, Statement):
            tokens = node.tokens
        elif isinstance(node, Block):
            tokens = node.head
        elif isinstance(node, Loop):
            tokens = [*node.initial, *node.condition, *node.step]
        for index, token in enumerate(tokens):
            if token.text == name and (index == 0 or tokens[index - 1].text not in (".", "->")):
                found |= {
                    dimension
                    for dimension, inside in enumerate(_indices(tokens, index + 1), 1)
                    if _steps(inside, variables)
                }
    return found


def _indices(tokens: Sequence[Token], index: int) -> Iterator[Sequence[Token]]:
    while index < len(tokens) and tokens[index].text == "[":
        end = closing(tokens, index)
        yield tokens[index + 1 : end]
        index = end + 1


def _steps(inside: Sequence[Token], variables: set[str]) -> bool:
    """Whether an index grows by one with the variable: it is a term of its own, not scaled."""
    for index, token in enumerate(inside):
        around = {part.text for part in inside[max(0, index - 1) : index + 2]}
        if token.text in variables and not around & _SCALING and ")" not in around:
            return True
    return False
