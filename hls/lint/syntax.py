"""The parts of a C++ source that the rules look at: functions, loops, blocks, statements, pragmas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .pragmas import Pragma
from .tokens import Token

__all__ = ["CLASS_WORDS", "Block", "Class", "Declarator", "Function", "Loop", "Node", "Source", "Statement", "walk"]

CLASS_WORDS = frozenset(["class", "struct", "union"])


@dataclass(frozen=True)
class Declarator:
    """One declared name. ``value`` and ``dimensions`` are the tokens of its initializer and of each ``[...]``."""

    name: str
    line: int
    type: tuple[Token, ...] = ()
    dimensions: tuple[tuple[Token, ...], ...] = ()
    value: tuple[Token, ...] = ()

    @property
    def words(self) -> set[str]:
        return {token.text for token in self.type}


@dataclass(eq=False)
class Statement:
    """A simple statement without its semicolon; ``declared`` is empty unless it declares variables."""

    line: int
    tokens: list[Token]
    declared: list[Declarator] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)  # the body of a lambda


@dataclass(eq=False)
class Block:
    """Braces, or the branches of an if or switch; ``head`` is what stands in the parentheses."""

    line: int
    children: list[Node]
    head: list[Token] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """``initial``, ``condition`` and ``step`` are the three parts of a for; a while has only a condition."""

    line: int
    keyword: str  # for, while, do
    label: str = ""
    declared: list[Declarator] = field(default_factory=list)
    initial: list[Token] = field(default_factory=list)
    condition: list[Token] = field(default_factory=list)
    step: list[Token] = field(default_factory=list)
    ranged: bool = False  # for (x : array)
    children: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.label or f"of line {self.line}"

    def pragmas(self, name: str) -> list[Pragma]:
        """Those directly in the body, wherever they stand in it."""
        return [node for node in self.children if isinstance(node, Pragma) and node.name == name]


Node = Statement | Block | Loop | Pragma


@dataclass(eq=False)
class Class:
    """A struct, class or union with its data members; ``constants`` are the static ones among them."""

    name: str
    fields: list[Declarator] = field(default_factory=list)
    constants: list[Declarator] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)  # of its template


@dataclass(eq=False)
class Function:
    """A function with a body."""

    name: str
    line: int
    path: str
    words: set[str]  # of its head: inline, constexpr, virtual, the return type
    template: list[str]
    parameters: list[Declarator]
    children: list[Node]
    owner: Class | None = None

    def pragmas(self, name: str) -> list[Pragma]:
        return [node for node in self.children if isinstance(node, Pragma) and node.name == name]

    @property
    def compile_time(self) -> bool:
        """A constexpr function of values: it has neither memories nor streams and is evaluated by the compiler."""
        return "constexpr" in self.words and not any(
            parameter.dimensions or parameter.words & {"*", "&", "stream"} for parameter in self.parameters
        )


@dataclass(eq=False)
class Source:
    """One file. ``variables`` are those of namespaces; ``enumerators`` the names of every enum."""

    path: str
    tokens: list[Token]
    comments: dict[int, str]
    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    variables: list[Declarator] = field(default_factory=list)
    enumerators: list[str] = field(default_factory=list)
    stray: list[Pragma] = field(default_factory=list)  # pragmas outside functions


def walk(nodes: list[Node], above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Every node in order, each with those around it, outermost first."""
    for node in nodes:
        yield node, above
        if not isinstance(node, Pragma):
            yield from walk(node.children, (*above, node))
