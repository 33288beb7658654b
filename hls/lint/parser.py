"""From tokens to namespaces, classes and functions: as much of C++ as kernels use, and no failure on the rest."""

from __future__ import annotations

from .declarations import closing, declared_in, parameters_of, split, template_names
from .pragmas import is_pragma, parse_pragma
from .statements import END, StatementParser
from .syntax import CLASS_WORDS, Class, Function, Source
from .tokens import Token, tokenize

__all__ = ["parse"]


def parse(text: str, path: str) -> Source:
    tokenized = tokenize(text)
    source = Source(path, tokenized.tokens, tokenized.comments)
    parser = _Parser(source)
    while parser.token is not END:  # more than once only past a brace too many
        parser.declarations(None)
    return source


class _Parser(StatementParser):
    def declarations(self, owner: Class | None) -> None:
        """Up to the brace that closes the scope, or the end."""
        while self.token is not END and self.token.text != "}":
            self.declaration(owner)
        self.take()

    def declaration(self, owner: Class | None) -> None:
        """One declaration or definition at namespace or class level."""
        template: list[str] = []
        head: list[Token] = []
        while self.token is not END and self.token.text != "}":
            token = self.token
            if token.kind == "directive":
                if is_pragma(self.take()):
                    self.source.stray.append(parse_pragma(token))
            elif token.text == "template" and not head:
                self.take()
                template += template_names(self.angles())
            elif token.text == ";":
                self.take()
                break
            elif token.text == ":" and [word.text for word in head] in (["public"], ["private"], ["protected"]):
                self.take()
                return
            elif token.text == "(":
                start = self.index
                self.group()
                head += self.tokens[start : self.index]
            elif token.text != "{":
                head.append(self.take())
            elif self.braces(head, template, owner):
                return
        self.note(head, owner)

    def angles(self) -> list[Token]:
        start, depth = self.index + 1, 0
        while self.token is not END:
            if self.token.text in ("(", "{"):
                self.group()
                continue
            depth += (self.token.text == "<") - (self.token.text == ">")
            self.take()
            if depth == 0:
                break
        return self.tokens[start : self.index - 1]

    def braces(self, head: list[Token], template: list[str], owner: Class | None) -> bool:
        """Act on the brace after ``head``; whether the declaration ends with its closing one."""
        words = [token.text for token in head]
        if "namespace" in words or (words[:1] == ["extern"] and len(words) == 2):
            self.take()
            self.declarations(owner)
        elif "enum" in words:
            for part in split(self.group(), ","):
                self.source.enumerators += [token.text for token in part[:1]]
            return False
        elif CLASS_WORDS & set(words) and "(" not in words and "=" not in words:
            self.class_(head, template)
            return False
        elif _parenthesis(head) is not None and not _is_initializer(head):
            self.source.functions.append(self.function(head, template, owner))
        else:
            start = self.index
            self.group()
            head += self.tokens[start : self.index]
            return False
        return True

    def class_(self, head: list[Token], template: list[str]) -> None:
        before_bases = (split(head, ":") or [[]])[0]
        names = [token.text for token in before_bases if token.kind == "identifier" and token.text != "final"]
        class_ = Class(names[-1] if names and names[-1] not in CLASS_WORDS else "", parameters=template)
        self.source.classes.append(class_)
        self.take()
        self.declarations(class_)
        head.clear()

    def note(self, head: list[Token], owner: Class | None) -> None:
        """Keep the variables that ``head`` declares; a function that is only declared has none."""
        for declarator in declared_in(head) if _parenthesis(head) is None or _is_initializer(head) else []:
            if owner is None:
                self.source.variables.append(declarator)
            elif "static" in declarator.words and declarator.words & {"constexpr", "const"}:
                owner.constants.append(declarator)
            else:
                owner.fields.append(declarator)

    def function(self, head: list[Token], template: list[str], owner: Class | None) -> Function:
        parenthesis = _parenthesis(head)
        assert parenthesis is not None
        before = head[:parenthesis]
        name = before[-1].text
        if "operator" in [token.text for token in before]:
            name = "operator" + "".join(token.text for token in before[-2:] if token.text != "operator")
        if owner is None and len(before) > 2 and before[-2].text == "::":
            owner = next((known for known in self.source.classes if known.name == before[-3].text), None)
        parameters = parameters_of(head[parenthesis + 1 : closing(head, parenthesis)])
        line, words = before[-1].line, {token.text for token in before}
        template = [*(owner.parameters if owner else []), *template]
        return Function(name, line, self.source.path, words, template, parameters, self.block(), owner)


def _parenthesis(head: list[Token]) -> int | None:
    """Where a function's parameters open; None if there are none."""
    for index, token in enumerate(head):
        before = [word.text for word in head[max(0, index - 3) : index]]
        named = bool(before) and (head[index - 1].kind == "identifier" or "operator" in before)
        if token.text == "(" and named and before[-1] != "operator":  # of operator() it is the second
            return index
    return None


def _is_initializer(head: list[Token]) -> bool:
    """Whether a brace after ``head`` initializes: of a variable, or of a member in a constructor's list."""
    outside = [part for part in split(head, "=") if part]
    if len(outside) > 1 and outside[0][-1].text != "operator":
        return True
    lists = split(head, ":")
    return len(lists) > 1 and head[-1].kind == "identifier" and head[-1].text not in ("const", "noexcept", "override")
