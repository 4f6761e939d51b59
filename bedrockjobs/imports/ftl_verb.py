"""Cron verbs of FTL: a token reader, and the rules for parameters, shared by the languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bedrockjobs.imports.found import PLACES_SHOWN_MAX
from bedrockjobs.imports.source import Token

NO_VERB = "expected a verb below the directive"
NO_REQUEST = "a cron verb has no request and no response (FTL refuses it too)"

INJECTED = (
    "Context",
    "Client",
    "Topic",
    "Handle",
    "Database",
    "DB",
    "Datasource",
    "DataSource",
    "Config",
    "Secret",
    "Egress",
    "Lease",
)
"""Suffixes of types that FTL injects."""

REQUESTS = ("Req", "Request", "Input", "Payload", "Event", "Message", "Body", "Params", "Args")
"""Suffixes of request types."""

PLAIN = frozenset(
    {
        "any",
        "array",
        "bool",
        "boolean",
        "byte",
        "char",
        "collection",
        "complex64",
        "complex128",
        "double",
        "error",
        "float",
        "float32",
        "float64",
        "func",
        "instant",
        "int",
        "int8",
        "int16",
        "int32",
        "int64",
        "integer",
        "interface",
        "iterable",
        "list",
        "long",
        "map",
        "nothing",
        "number",
        "object",
        "rune",
        "set",
        "short",
        "string",
        "struct",
        "uint",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "uintptr",
        "unit",
        "void",
    }
)
"""Types that only a request can have, in lower case."""

_OPENING = {"(": ")", "[": "]", "{": "}"}
_ANGLES = {**_OPENING, "<": ">"}


@dataclass(frozen=True)
class Verb:
    """A directive with its function."""

    line: int
    """The line of the directive."""
    said: str
    name: str = ""
    """The name in FTL's schema; empty if no function was found."""
    refused: str = ""
    warnings: tuple[str, ...] = ()


class Parameter(NamedTuple):
    """A parameter of a function."""

    type: str
    """The last word of its type's name, or empty."""
    injected: bool = False
    """Whether the source marks it as injected."""


class Tokens:
    """A token reader with one token of lookahead."""

    def __init__(self, tokens: list[Token]) -> None:
        """Begin with the first token; the last one is an ``end``, which is never consumed."""
        self._tokens = tokens
        self._at = 0

    @property
    def ahead(self) -> Token:
        """Return the next token."""
        return self._tokens[self._at]

    def next(self) -> Token:
        """Return and consume the next token."""
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def took(self, text: str) -> bool:
        """Consume the next token if it has this text; return whether it did."""
        if self.ahead.kind in ("word", "mark") and self.ahead.text == text:
            self.next()
            return True
        return False

    def group(self) -> list[Token]:
        """Consume the rest of a bracketed group; return its content."""
        found: list[Token] = []
        depth = 1
        while self.ahead.kind != "end":
            token = self.next()
            if token.kind == "mark":
                depth += (token.text in _OPENING) - (token.text in _OPENING.values())
            if not depth:
                break
            found.append(token)
        return found

    def angles(self) -> bool:
        """Consume type arguments in angle brackets; return whether there were any."""
        depth = 0
        while self.ahead.kind != "end" and (depth or self.ahead.text == "<"):
            token = self.next()
            depth += (token.text == "<") - (token.text == ">")
            if not depth:
                return True
        return False

    def path(self) -> str:
        """Consume a dotted name; return it, or an empty text."""
        words: list[str] = []
        while self.ahead.kind == "word":
            words.append(self.next().text)
            if not self.took("."):
                break
        return ".".join(words)


def parts(tokens: list[Token], *, angles: bool = False) -> list[list[Token]]:
    """Split the content of a bracketed group at its top-level commas; a trailing comma is ignored.

    With ``angles``, ``<`` and ``>`` also count as brackets.
    """
    opening = _ANGLES if angles else _OPENING
    found: list[list[Token]] = [[]]
    depth, before = 0, ""
    for token in tokens:
        if token.kind in ("newline", "comment"):
            continue
        mark = token.text if token.kind == "mark" else ""
        if not (mark == ">" and before == "-"):
            depth += (mark in opening) - (mark in opening.values())
        before = mark
        if mark == "," and not depth:
            found.append([])
        else:
            found[-1].append(token)
    return found if found[-1] else found[:-1]


def last_word(tokens: list[Token]) -> str:
    """Return the last word of a leading dotted name: ``Config`` for ``ftl.Config[T]``."""
    word = ""
    for at, token in enumerate(tokens):
        if token.kind == "word" and (at == 0 or tokens[at - 1].text == "."):
            word = token.text
        elif token.text != ".":
            break
    return word


def named(directives: list[Verb], name: str, refused: str, warnings: tuple[str, ...] = ()) -> list[Verb]:
    """Return the directives of one function with its name and problems; only one is allowed."""
    lines = " and ".join(f"line {one.line}" for one in directives[:PLACES_SHOWN_MAX])
    if len(directives) > 1:
        return [
            Verb(one.line, one.said, refused=f"{lines} are for one verb: expected a schedule once")
            for one in directives
        ]
    return [Verb(one.line, one.said, name, one.refused or refused, warnings) for one in directives]


def judged(parameters: list[Parameter]) -> tuple[str, tuple[str, ...]]:
    """Return why a cron verb cannot have these parameters, and warnings for assumed injections.

    Types of other files are unknown. A cron verb that FTL accepts has no request, so an unknown type must be
    an injected topic, client or the like.
    """
    guessed = []
    for parameter in parameters:
        if parameter.injected or parameter.type.endswith(INJECTED):
            continue
        if not parameter.type or parameter.type.lower() in PLAIN or parameter.type.endswith(REQUESTS):
            return NO_REQUEST, ()
        guessed.append(
            f"{parameter.type} is taken for something that FTL injects, such as a topic or a client"
        )
    return "", tuple(guessed)
