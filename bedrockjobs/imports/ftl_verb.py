"""A function that FTL calls by a schedule, as the readers of Go and of Kotlin find it.

It holds what both languages have in common: going through tokens, and what a cron verb may take and return.
"""

from __future__ import annotations

from dataclasses import dataclass

from bedrockjobs.imports.found import PLACES_SHOWN_MAX
from bedrockjobs.imports.source import Token

NO_VERB = "expected a verb below the directive"
NO_REQUEST = "a cron verb has no request and no response (FTL refuses it too)"

_OPENING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Verb:
    """A directive with the function below it."""

    line: int
    """Of the directive."""
    said: str
    name: str = ""
    """As FTL's schema has it; empty where no function was found."""
    refused: str = ""


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


def parts(tokens: list[Token]) -> list[list[Token]]:
    """Split what stands in brackets at its own commas; a last comma begins no part."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind in ("newline", "comment"):
            continue
        mark = token.text if token.kind == "mark" else ""
        depth += (mark in _OPENING) - (mark in _OPENING.values())
        if mark == "," and not depth:
            found.append([])
        else:
            found[-1].append(token)
    return found if found[-1] else found[:-1]


def named(directives: list[Verb], name: str, refused: str) -> list[Verb]:
    """Return the directives of one function, which may have one, with what is wrong with it or with them."""
    lines = " and ".join(f"line {one.line}" for one in directives[:PLACES_SHOWN_MAX])
    if len(directives) > 1:
        return [
            Verb(one.line, one.said, refused=f"{lines} are for one verb: expected a schedule once")
            for one in directives
        ]
    return [Verb(one.line, one.said, name, one.refused or refused) for one in directives]


def is_request(parameters: list[list[Token]]) -> bool:
    """Tell whether parameters hold more than a context and clients of other verbs."""
    types = [parameter[-1] if parameter else None for parameter in parameters]
    return any(
        last is None or last.kind != "word" or not last.text.endswith(("Context", "Client")) for last in types
    )
