"""Reading protocol buffers in text format, without their schema.

A message is a list of fields in order, as names may repeat; a value is a text, a word (an enumeration value
or a boolean), a number or a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bedrockjobs.base.config import IMPORT_TOKENS_MAX
from bedrockjobs.imports.found import Unreadable, check_size, shortened

DEPTH_MAX = 32
"""Messages inside messages: LUCI's have four, and reading is recursive."""


class Word(str):
    """A value that stands there without quotes: ``true``, or the name of an enumeration value."""

    __slots__ = ()


class Field(NamedTuple):
    """One field of a message."""

    name: str
    value: Value
    line: int


Message = list[Field]
Value = str | int | float | list[Field]

_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r\n]+|\#[^\n]*)+)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>\[[A-Za-z][\w./-]*\]|-?[A-Za-z_][\w.]*)
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]|\.[0-9])[0-9.]*(?:[eE][-+]?[0-9]+)?[fF]?)(?![\w.]))
    |(?P<mark>[:{}<>\[\],;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
            "\\": "\\", "'": "'", '"': '"', "?": "?"}  # fmt: skip
_CLOSING = {"{": "}", "<": ">"}
_OCTAL = re.compile(r"[-+]?0[0-7]+")


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str) -> Message:
    """Return the fields of the whole text; raises Unreadable with the line."""
    check_size(text)
    return _Reader(_tokens(text)).message("", 0)


def _tokens(text: str) -> Iterator[_Token]:
    at, line, count = 0, 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            found = shortened(text[at : at + 20])
            raise Unreadable(f"line {line}: expected text-format protocol buffers, not {found}")
        kind = match.lastgroup or ""
        if kind == "blank":
            line += match[0].count("\n")
        else:
            count += 1
            if count > IMPORT_TOKENS_MAX:
                raise Unreadable(f"line {line}: expected at most {IMPORT_TOKENS_MAX} words and marks")
            yield _Token(kind, match[0], line)
        at = match.end()
    yield _Token("end", "", line)


def _bytes_of(literal: str, line: int) -> bytes:
    """Return what a literal stands for: an escape by number is a byte, and several may be one letter."""
    if "\\" not in literal:
        return literal[1:-1].encode("utf-8", "surrogatepass")
    found, at = [], 1
    for escape in _ESCAPE.finditer(literal, 1, len(literal) - 1):
        found.append(literal[at : escape.start()].encode("utf-8", "surrogatepass"))
        found.append(_escaped(escape[1], line))
        at = escape.end()
    return b"".join([*found, literal[at:-1].encode("utf-8", "surrogatepass")])


def _escaped(code: str, line: int) -> bytes:
    if code in _ESCAPES:
        return _ESCAPES[code].encode()
    kind, digits = (code[0], code[1:]) if code[0] in "xuU" and len(code) > 1 else ("", code)
    if kind == "" and digits[0] not in "01234567":
        raise Unreadable(f"line {line}: expected an escape such as \\n or \\x41, not {shortened(code)}")
    value = int(digits, 16 if kind else 8)
    if kind in ("u", "U"):
        if value > 0x10FFFF:
            raise Unreadable(f"line {line}: expected a character of Unicode, not {shortened(code)}")
        return chr(value).encode("utf-8", "surrogatepass")
    if value > 0xFF:
        raise Unreadable(f"line {line}: expected a byte of at most \\377, not {shortened(code)}")
    return bytes([value])


class _Reader:
    """Goes through the tokens once, one ahead."""

    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = tokens
        self._ahead = next(tokens)

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
        token = self._ahead
        if token.kind == "end":
            if closing:
                raise self._unexpected(closing)
            return True
        if closing and token.kind == "mark" and token.text == closing:
            self._next()
            return True
        return False

    def _next(self) -> _Token:
        token = self._ahead
        self._ahead = next(self._tokens, token)
        return token

    def _took(self, mark: str) -> bool:
        if self._ahead.kind == "mark" and self._ahead.text == mark:
            self._next()
            return True
        return False

    def _values(self, depth: int, colon: bool) -> list[Value]:
        if not self._took("["):
            return [self._value(depth, colon)]
        found: list[Value] = []
        if self._took("]"):
            return found
        while True:
            found.append(self._value(depth, colon))
            if self._took("]"):
                return found
            if not self._took(","):
                raise self._unexpected("a comma or ]")

    def _value(self, depth: int, colon: bool) -> Value:
        token = self._next()
        if token.kind == "mark" and token.text in _CLOSING:
            return self.message(_CLOSING[token.text], depth + 1)
        if not colon:
            raise self._unexpected(": and a value, or a message in { }", token)
        if token.kind == "text":
            return self._text(token)
        if token.kind == "word":
            return Word(token.text)
        if token.kind == "number":
            return self._number(token)
        raise self._unexpected("a value", token)

    def _text(self, token: _Token) -> str:
        """Return a text with those that follow it at once, which belong to it."""
        parts = [_bytes_of(token.text, token.line)]
        while self._ahead.kind == "text":
            following = self._next()
            parts.append(_bytes_of(following.text, following.line))
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise Unreadable(f"line {token.line}: expected a text that is UTF-8") from None

    def _number(self, token: _Token) -> int | float:
        try:
            return int(token.text, 8 if _OCTAL.fullmatch(token.text) else 0)
        except ValueError:
            pass
        try:
            return float(token.text.rstrip("fF"))
        except ValueError:
            raise self._unexpected("a number", token) from None

    def _unexpected(self, expected: str, token: _Token | None = None) -> Unreadable:
        token = token or self._ahead
        return Unreadable(f"line {token.line}: expected {expected}, not {shortened(token.text or 'the end')}")
