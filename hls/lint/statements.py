"""The bodies of functions: blocks, branches, loops with their labels, pragmas, and simple statements."""

from __future__ import annotations

import itertools

from .declarations import closing, declared_in, split
from .pragmas import is_pragma, parse_pragma
from .syntax import CLASS_WORDS, Block, Class, Loop, Node, Source, Statement
from .tokens import Token

__all__ = ["END", "StatementParser"]

END = Token("operator", "", 0)


class StatementParser:
    """A place in the tokens of a source, and what to make of those from there."""

    def __init__(self, source: Source) -> None:
        self.source, self.tokens, self.index = source, source.tokens, 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index] if self.index < len(self.tokens) else END

    def take(self) -> Token:
        token = self.token
        self.index += 1
        return token

    def group(self) -> list[Token]:
        """What stands between the bracket here and its closing one, both taken."""
        end = closing(self.tokens, self.index)
        inside = self.tokens[self.index + 1 : end]
        self.index = end + 1
        return inside

    def declaration(self, owner: Class | None) -> None:
        """Classes in a function are read as those outside."""
        raise NotImplementedError

    def block(self) -> list[Node]:
        self.take()
        nodes: list[Node] = []
        while self.token is not END and self.token.text != "}":
            nodes += self.statement()
        self.take()
        return nodes

    def body(self) -> list[Node]:
        """Of a loop or branch: a block, or the one statement (with the pragmas before it) that stands for it."""
        if self.token.text == "{":
            return self.block()
        nodes: list[Node] = []
        while self.token.kind == "directive":
            nodes += self.statement()
        return nodes + self.statement()

    def statement(self) -> list[Node]:
        token = self.token
        if token.kind == "directive":
            return [parse_pragma(token)] if is_pragma(self.take()) else []
        if token.text == ";":
            self.take()
            return []
        if token.text == "{":
            return [Block(token.line, self.block())]
        if token.text in ("case", "default"):
            while self.token is not END and self.take().text != ":":
                pass
            return []
        if token.kind == "identifier" and self.ahead().text == ":":
            return self.labelled()
        if token.text in ("for", "while", "do"):
            return [self.loop("")]
        if token.text in ("if", "switch"):
            return self.branch()
        if token.text in CLASS_WORDS and self.defines_class():
            self.declaration(None)
            return []
        return [self.simple()]

    def ahead(self) -> Token:
        return self.tokens[self.index + 1] if self.index + 1 < len(self.tokens) else END

    def defines_class(self) -> bool:
        following = (token.text for token in self.tokens[self.index :])
        return next((text for text in following if text in "{;=("), "") == "{"

    def labelled(self) -> list[Node]:
        label = self.take().text
        self.take()
        pragmas: list[Node] = []
        while self.token.kind == "directive":
            pragmas += self.statement()
        if self.token.text in ("for", "while", "do"):
            return [*pragmas, self.loop(label)]
        return [*pragmas, *self.statement()] if self.token.text != "}" else pragmas

    def loop(self, label: str) -> Loop:
        keyword = self.take()
        loop = Loop(keyword.line, keyword.text, label)
        if keyword.text == "do":
            loop.children = self.body()
            self.take()  # while
            loop.condition = self.group()
            self.take()
            return loop
        head = self.group()
        parts = split(head, ";")
        if keyword.text == "while":
            loop.condition = head
        elif len(parts) == 3:
            loop.initial, loop.condition, loop.step = parts
        else:
            parts, loop.ranged = split(head, ":", angles=True), True
        if keyword.text == "for" and parts:
            loop.declared = declared_in(parts[0])
        loop.children = self.body()
        return loop

    def branch(self) -> list[Node]:
        keyword = self.take()
        if self.token.text == "constexpr":
            self.take()
        nodes: list[Node] = []
        head = self.group()
        nodes.append(Block(keyword.line, self.body(), head))
        if self.token.text == "else":
            line = self.take().line
            nodes.append(Block(line, self.body()))
        return nodes

    def simple(self) -> Statement:
        start, line = self.index, self.token.line
        children: list[Node] = []
        while self.token is not END and self.token.text not in (";", "}"):
            if self.token.text in ("(", "["):
                children += self.lambdas()
            elif self.token.text == "{" and _opens_lambda(self.tokens[start : self.index]):
                children += self.block()
            elif self.token.text == "{":
                self.group()
            else:
                self.take()
        tokens = [token for token in self.tokens[start : self.index] if token.kind != "directive"]
        if self.token.text == ";":
            self.take()
        return Statement(line, tokens, declared_in(tokens), children)

    def lambdas(self) -> list[Node]:
        """Past the group here; the statements of the lambdas among the arguments."""
        end, nodes = closing(self.tokens, self.index), []
        start = self.index
        self.take()
        while self.index < end:
            if self.token.text == "{" and _opens_lambda(self.tokens[start : self.index]):
                nodes += self.block()
            else:
                self.take()
        self.index = end + 1
        return nodes


def _opens_lambda(before: list[Token]) -> bool:
    """Whether a brace after ``before`` is the body of a lambda: [captures] (parameters) or [captures] alone."""
    texts = [token.text for token in before]
    if not texts or texts[-1] not in (")", "]", "mutable"):
        return False
    return ("]", "(") in itertools.pairwise(texts) or texts[-1] == "]"
