"""Parses protocol buffers in text format, without a schema.

A message is a list of fields in order, since a name may occur more than once. A value is a string, a word (an
enumeration value or a boolean), a number or a message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bedrockjobs.base.config import IMPORT_TOKENS_MAX
from bedrockjobs.base.jsontext import NumberTooLong, whole_number
from bedrockjobs.imports.imported import Unreadable, check_size, shortened

DEPTH_MAX = 32
"""Maximum depth of nested messages, since the parser is recursive; LUCI's files have four levels."""


class Word(str):
    """An unquoted value: ``true``, or the name of an enumeration value."""

    __slots__ = ()


class MessageField(NamedTuple):
    """A field of a message."""

    name: str
    value: Value
    line: int


Message = list[MessageField]
Value = str | int | float | list[MessageField]

_WORD = re.compile(
    r"""[ \t\r]*(?:(
    [:{}<>\],;]
    |\[[A-Za-z][\w./-]*\]|-?[A-Za-z_][\w.]*
    |"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*'
    |[-+]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]|\.[0-9])[0-9.]*(?:[eE][-+]?[0-9]+)?[fF]?)(?![\w.])
    |(?:[ \t\r\n]|\#[^\n]*)+
    |\[
    )|.+)""",
    re.VERBOSE | re.DOTALL,
)
"""Matches a token after blanks. An invalid token matches up to the end, so that no text is scanned twice."""
_KINDS = {
    **dict.fromkeys(" \t\r\n#", "blank"),
    **dict.fromkeys(":{}<>],;", "mark"),
    **dict.fromkeys("\"'", "text"),
    **dict.fromkeys("0123456789+.", "number"),
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", "word"),
    **dict.fromkeys("[-", "either"),
}
"""The kind of a token, by its first character."""
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_CLOSING = {"{": "}", "<": ">"}
_DIGITS = frozenset("0123456789.")

_OCTAL = re.compile(r"[-+]?0[0-7]+")


def parse(text: str) -> Message:
    """Parse a whole text; raises Unreadable, which names the line."""
    check_size(text)
    return _TextprotoParser(text).message("", 0)


def _bytes_of(literal: str, line: int) -> bytes:
    """Return the bytes of a string literal; a numeric escape is a byte, not a character."""
    if "\\" not in literal:
        return literal[1:-1].encode("utf-8", "surrogatepass")
    parts, at = [], 1
    for escape in _ESCAPE.finditer(literal, 1, len(literal) - 1):
        parts.append(literal[at : escape.start()].encode("utf-8", "surrogatepass"))
        parts.append(_escaped(escape[1], line))
        at = escape.end()
    return b"".join([*parts, literal[at:-1].encode("utf-8", "surrogatepass")])


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


class _TextprotoParser:
    """Parses a text in one pass; keeps only the current token, since there may be very many tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = iter(_WORD.findall(text))
        self._left = IMPORT_TOKENS_MAX
        self._kind = self._word = ""
        self._line = 1
        self._next()

    def _next(self) -> None:
        """Read the next token; after the last token, that is an ``end`` token."""
        for word in self._words:
            kind = _KINDS.get(word[:1], "")
            if kind == "blank":
                self._line += word.count("\n")
                continue
            if kind == "either":
                kind = "number" if word[1:2] in _DIGITS else "word"
                kind = "mark" if word == "[" else kind
            elif not kind:
                raise self._wrong()
            if not self._left:
                raise Unreadable(f"line {self._line}: expected at most {IMPORT_TOKENS_MAX} words and marks")
            self._left -= 1
            self._kind, self._word = kind, word
            return
        self._kind, self._word = "end", ""

    def _wrong(self) -> Unreadable:
        rest = next(match[0] for match in _WORD.finditer(self._text) if not match[1])
        found = shortened(rest.lstrip(" \t\r")[:20])
        return Unreadable(f"line {self._line}: expected text-format protocol buffers, not {found}")

    def message(self, closing: str, depth: int) -> Message:
        """Parse fields up to ``closing``, or to the end of the text if ``closing`` is empty."""
        fields: Message = []
        if depth > DEPTH_MAX:
            raise self._unexpected(f"at most {DEPTH_MAX} messages inside one another")
        while self._kind != "end":
            name, line = self._word, self._line
            if name == closing:
                self._next()
                return fields
            if self._kind != "word":
                raise self._unexpected("the name of a field")
            self._next()
            colon = self._word == ":"
            if colon:
                self._next()
            if self._word == "[":
                fields += [MessageField(name, value, line) for value in self._list(depth, colon)]
            else:
                fields.append(MessageField(name, self._value(depth, colon), line))
            if self._word == "," or self._word == ";":
                self._next()
        if closing:
            raise self._unexpected(closing)
        return fields

    def _list(self, depth: int, colon: bool) -> list[Value]:
        values: list[Value] = []
        self._next()
        if self._word == "]":
            self._next()
            return values
        while True:
            values.append(self._value(depth, colon))
            if self._word == "]":
                self._next()
                return values
            if self._word != ",":
                raise self._unexpected("a comma or ]")
            self._next()

    def _value(self, depth: int, colon: bool) -> Value:
        kind, word = self._kind, self._word
        if word in _CLOSING:
            self._next()
            return self.message(_CLOSING[word], depth + 1)
        if not colon:
            raise self._unexpected(": and a value, or a message in { }")
        if kind == "number":
            number = self._number(word)
            self._next()
            return number
        if kind == "text":
            return self._texts()
        if kind == "word":
            self._next()
            return Word(word)
        raise self._unexpected("a value")

    def _texts(self) -> str:
        """Parse adjacent string literals, which are one string, and return it."""
        line, parts = self._line, []
        while self._kind == "text":
            parts.append(_bytes_of(self._word, self._line))
            self._next()
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise Unreadable(f"line {line}: expected a string that is UTF-8") from None

    def _number(self, word: str) -> int | float:
        if len(word) <= 18 and word.isdecimal() and word[0] != "0":
            return int(word)
        try:
            return whole_number(word, 8 if _OCTAL.fullmatch(word) else 0)
        except NumberTooLong as error:
            if not word.isdecimal():  # a decimal one is a float
                raise Unreadable(f"line {self._line}: {error}") from None
        except ValueError:
            pass
        try:
            return float(word.rstrip("fF"))
        except ValueError:
            raise self._unexpected("a number") from None

    def _unexpected(self, expected: str) -> Unreadable:
        return Unreadable(f"line {self._line}: expected {expected}, not {shortened(self._word or 'the end')}")
