"""Reading protocol buffers in text format, without their schema.

A message is a list of fields in order, as names may repeat; a value is a text, a number, a boolean, the name
of an enumeration value (as text) or a message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bedrockjobs.imports.found import Unreadable

DEPTH_MAX = 32
"""Messages inside messages: LUCI's have four, and reading is recursive."""


class Field(NamedTuple):
    """One field of a message."""

    name: str
    value: Value
    line: int


Message = list[Field]
Value = str | int | float | bool | list[Field]

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>\[[A-Za-z][\w./-]*\]|[A-Za-z_][\w.]*)
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?f?))
    |(?P<mark>[:{}<>\[\],;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str) -> Message:
    """Return the fields of the whole text; raises Unreadable with the line."""
    reader = _Reader(_tokens(text))
    return reader.message("", 0)


def _tokens(text: str) -> list[_Token]:
    found = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unreadable(
                f"line {line}: expected text-format protocol buffers, not {text[at : at + 20]!r}"
            )
        if match.lastgroup != "blank":
            found.append(_Token(match.lastgroup or "", match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*found, _Token("end", "", line)]


def _unescaped(literal: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xu" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8))
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, literal[1:-1])


class _Reader:
    """Goes through the tokens once."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def message(self, closing: str, depth: int) -> Message:
        """Read fields up to ``closing``, or to the end where that is empty."""
        fields: Message = []
        if depth > DEPTH_MAX:
            raise self._unexpected(f"at most {DEPTH_MAX} messages inside one another")
        while not self._ends(closing):
            name = self._next()
            if name.kind != "word":
                raise self._unexpected("the name of a field", name)
            colon = self._took(":")
            for value in self._values(depth, colon):
                fields.append(Field(name.text, value, name.line))
            if not self._took(","):
                self._took(";")
        return fields

    def _ends(self, closing: str) -> bool:
        token = self._tokens[self._at]
        if token.kind == "end" or (closing and token.text == closing and token.kind == "mark"):
            if (token.kind == "end") == bool(closing):
                raise self._unexpected(closing, token)
            self._at += 1
            return True
        return False

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _took(self, mark: str) -> bool:
        token = self._tokens[self._at]
        if token.kind == "mark" and token.text == mark:
            self._at += 1
            return True
        return False

    def _values(self, depth: int, colon: bool) -> list[Value]:
        if not self._took("["):
            return [self._value(depth, colon)]
        found: list[Value] = []
        while not self._took("]"):
            found.append(self._value(depth, colon))
            if not self._took(",") and self._tokens[self._at].text != "]":
                raise self._unexpected("a comma or ]")
        return found

    def _value(self, depth: int, colon: bool) -> Value:
        token = self._next()
        if token.text in _CLOSING and token.kind == "mark":
            return self.message(_CLOSING[token.text], depth + 1)
        if not colon:
            raise self._unexpected(": and a value, or a message in { }", token)
        if token.kind == "text":
            found = _unescaped(token.text)
            while self._tokens[self._at].kind == "text":
                found += _unescaped(self._next().text)
            return found
        if token.kind == "word":
            return {"true": True, "false": False}.get(token.text, token.text)
        if token.kind == "number":
            return self._number(token)
        raise self._unexpected("a value", token)

    def _number(self, token: _Token) -> int | float:
        try:
            return int(token.text, 0)
        except ValueError:
            pass
        try:
            return float(token.text.rstrip("f"))
        except ValueError:
            raise self._unexpected("a number", token) from None

    def _unexpected(self, expected: str, token: _Token | None = None) -> Unreadable:
        token = token or self._tokens[self._at]
        return Unreadable(f"line {token.line}: expected {expected}, not {token.text or 'the end'!r}")
