"""Find ``//ftl:cron`` directives in Go: in the comment directly above a function."""

from __future__ import annotations

import re

from bedrockjobs.imports.ftl_verb import (
    NO_REQUEST,
    NO_VERB,
    Parameter,
    Tokens,
    Verb,
    judged,
    last_word,
    named,
    parts,
)
from bedrockjobs.imports.source import Token

_DIRECTIVE = re.compile(r"//ftl:cron(?![\w-])(?P<said>.*)", re.DOTALL)
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^A-Za-z0-9]+")


def read(tokens: list[Token]) -> tuple[str, list[Verb]]:
    """Return the package and the directives with their functions."""
    reader = _Reader(Tokens(tokens), _types(tokens))
    reader.read()
    return reader.package, reader.found


def schema_name(name: str) -> str:
    """Return the name of a function in FTL's schema: ``SQLBackup`` becomes ``sqlBackup``."""
    first, *others = _NAME_PART.findall(name) or [""]
    return str(first.lower() + "".join(other[:1].upper() + other[1:].lower() for other in others))


class _Reader:
    def __init__(self, tokens: Tokens, types: dict[str, str]) -> None:
        self.package = ""
        self._types = types
        self.found: list[Verb] = []
        self._tokens = tokens
        self._pending: list[Verb] = []
        """Directives of the current comment."""

    def read(self) -> None:
        tokens, depth = self._tokens, 0
        while (token := tokens.ahead).kind != "end":
            if token.kind == "comment":
                self._comment(tokens.next(), inside=depth > 0)
            elif token.kind == "newline":
                self._line_end()
            elif depth == 0 and tokens.took("package"):
                self._leave(NO_VERB)
                self.package = tokens.next().text
            elif depth == 0 and token.first and tokens.took("func"):
                self._function()
            else:
                self._leave(NO_VERB)
                if token.kind == "mark":
                    depth = max(0, depth + (token.text in "({[") - (token.text in ")}]"))
                tokens.next()
        self._leave(NO_VERB)

    def _comment(self, token: Token, *, inside: bool) -> None:
        directive = _DIRECTIVE.fullmatch(token.text)
        if directive is None or not token.first:
            return
        said = directive["said"].strip()
        refused = ""
        if directive["said"][:1] not in ("", " ", "\t") or not said:
            refused = "expected an expression behind //ftl:cron and a blank, such as //ftl:cron 0 0 * * *"
        elif inside:
            refused = NO_VERB
        self._pending.append(Verb(token.line, said, refused=refused))

    def _line_end(self) -> None:
        """Skip the end of a line; a blank line separates a comment from the code below."""
        tokens = self._tokens
        tokens.next()
        if tokens.ahead.kind == "newline":
            self._leave(f"{NO_VERB}, without an empty line between them")

    def _leave(self, why: str) -> None:
        """Refuse the pending directives: no function follows."""
        self.found += [Verb(one.line, one.said, refused=one.refused or why) for one in self._pending]
        self._pending = []

    def _function(self) -> None:
        tokens = self._tokens
        method = tokens.took("(")
        if method:
            tokens.group()
        name = tokens.next().text
        generic = tokens.took("[")
        if generic:
            tokens.group()
        parameters = parts(tokens.group()) if tokens.took("(") else None
        result: list[Token] = []
        while tokens.ahead.kind != "end" and not (tokens.ahead.kind == "newline" or tokens.ahead.text == "{"):
            result.append(tokens.next())
            if result[-1].kind == "mark" and result[-1].text == "(":
                result += [*tokens.group(), Token("mark", ")", result[-1].line)]
        if not self._pending:
            return
        warnings: tuple[str, ...] = ()
        if method or generic or parameters is None:
            why = "expected a function, not a method and not a generic one"
        else:
            why, warnings = judged(self._parameters(parameters))
            if not _is_nothing(result):
                why = NO_REQUEST
        self.found += named(self._pending, schema_name(name), why, warnings)
        self._pending = []

    def _parameters(self, given: list[list[Token]]) -> list[Parameter]:
        """Return the types of parameters; ``a, b T`` are two parameters of one type."""
        found: list[Parameter] = []
        for part in reversed(given):
            if len(part) > 1 and part[0].kind == "word" and part[1].text != ".":
                part = part[1:]
            elif found and len(part) == 1 and part[0].text[:1].islower():
                found.append(found[-1])
                continue
            found.append(self._parameter(last_word(part)))
        return found

    def _parameter(self, name: str) -> Parameter:
        """Return a parameter by the name of its type, resolved if this file declares it."""
        declared = self._types.get(name, name)
        # FTL generates a function type for each verb that may be called.
        return Parameter(declared, injected=declared == "func" and name != "func")


def _types(tokens: list[Token]) -> dict[str, str]:
    """Return the types that a file declares: the last word of the underlying type, or ``struct``."""
    found: dict[str, str] = {}
    words = [token for token in tokens if token.kind not in ("comment", "newline")]
    for at, token in enumerate(words):
        if token.first and token.kind == "word" and token.text == "type" and at + 3 < len(words):
            begin = at + 3 if words[at + 2].text == "=" else at + 2
            found[words[at + 1].text] = last_word(words[begin : begin + 9])
    return found


def _is_nothing(result: list[Token]) -> bool:
    """Tell whether a function returns only an error, or nothing."""
    words = [token for token in result if token.kind not in ("comment", "newline")]
    names = 1
    if words and words[0].text == "(":
        results, names = parts(words[1:-1]), 2
        if len(results) > 1:
            return False
        words = results[0] if results else []
    if any(token.kind != "word" for token in words) or len(words) > names:
        return False
    return not words or words[-1].text == "error"
