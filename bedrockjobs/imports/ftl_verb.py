"""A function that FTL calls by a schedule, as the readers of Go and of Kotlin and Java find it.

It holds what the languages have in common: going through tokens, and what a cron verb may take and return.
"""

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
"""How the types end of what FTL gives a verb beside its request."""

REQUESTS = ("Req", "Request", "Input", "Payload", "Event", "Message", "Body", "Params", "Args")
"""How the types of requests end."""

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
"""Types of the languages and of FTL that only a request has, in small letters."""

_OPENING = {"(": ")", "[": "]", "{": "}"}
_ANGLES = {**_OPENING, "<": ">"}


@dataclass(frozen=True)
class Verb:
    """A directive with the function below it."""

    line: int
    """Of the directive."""
    said: str
    name: str = ""
    """As FTL's schema has it; empty where no function was found."""
    refused: str = ""
    warnings: tuple[str, ...] = ()


class Parameter(NamedTuple):
    """What a function takes."""

    type: str
    """The last word of its type's name; empty if it has none."""
    injected: bool = False
    """Whether the source says that FTL injects it."""


class Tokens:
    """Goes through tokens once, one ahead."""

    def __init__(self, tokens: list[Token]) -> None:
        """Begin with the first; the last one is an ``end``, which is never passed."""
        self._tokens = tokens
        self._at = 0

    @property
    def ahead(self) -> Token:
        """Return the next token."""
        return self._tokens[self._at]

    def next(self) -> Token:
        """Return the next token and pass it."""
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def took(self, text: str) -> bool:
        """Pass the next token if it is this word or mark."""
        if self.ahead.kind in ("word", "mark") and self.ahead.text == text:
            self.next()
            return True
        return False

    def group(self) -> list[Token]:
        """Pass what stands in brackets, the first of which is passed already; return it without the last."""
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
        """Pass type arguments in angle brackets; tell whether there were any."""
        depth = 0
        while self.ahead.kind != "end" and (depth or self.ahead.text == "<"):
            token = self.next()
            depth += (token.text == "<") - (token.text == ">")
            if not depth:
                return True
        return False

    def path(self) -> str:
        """Pass words with dots between them; return them so, empty where there is none."""
        words: list[str] = []
        while self.ahead.kind == "word":
            words.append(self.next().text)
            if not self.took("."):
                break
        return ".".join(words)


def parts(tokens: list[Token], *, angles: bool = False) -> list[list[Token]]:
    """Split what stands in brackets at its own commas; a last comma begins no part.

    With ``angles``, ``<`` and ``>`` are brackets too.
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
    """Return the last word of a dotted name that tokens begin with: ``Config`` of ``ftl.Config[T]``."""
    word = ""
    for at, token in enumerate(tokens):
        if token.kind == "word" and (at == 0 or tokens[at - 1].text == "."):
            word = token.text
        elif token.text != ".":
            break
    return word


def named(directives: list[Verb], name: str, refused: str, warnings: tuple[str, ...] = ()) -> list[Verb]:
    """Return the directives of one function, which may have one, with what is wrong with it or with them."""
    lines = " and ".join(f"line {one.line}" for one in directives[:PLACES_SHOWN_MAX])
    if len(directives) > 1:
        return [
            Verb(one.line, one.said, refused=f"{lines} are for one verb: expected a schedule once")
            for one in directives
        ]
    return [Verb(one.line, one.said, name, one.refused or refused, warnings) for one in directives]


def judged(parameters: list[Parameter]) -> tuple[str, tuple[str, ...]]:
    """Return why a cron verb cannot take these, and what is taken for something that FTL injects.

    A source file does not tell what a type of another file is. A verb that FTL has accepted has no request,
    so it must be a topic, a client or the like under a name of its own.
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
