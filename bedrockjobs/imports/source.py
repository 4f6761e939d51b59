"""A tokenizer for Go, Kotlin and Java: words, strings, comments and punctuation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from bedrockjobs.base.config import IMPORT_TOKENS_MAX
from bedrockjobs.imports.found import Unreadable, check_size, shortened

Language = Literal["go", "kotlin", "java"]
TokenKind = Literal["word", "text", "template", "mark", "comment", "newline", "end"]


class Token(NamedTuple):
    """A token of source code; a ``template`` is a string with interpolated values."""

    kind: TokenKind
    text: str
    """The source text; for a string its value; empty for a block comment."""
    line: int
    first: bool = False
    """Whether it is the first token in its line."""


_PIECE = r"""(?P<blank>[ \t\r\f]+)
    |(?P<newline>\n)
    |(?P<comment>//[^\n]*)
    |(?P<block>/\*)
    |(?P<rune>'(?:[^'\\\n]|\\.)+')
    |(?P<word>\w+)
    |(?P<mark>[^\s`"'])"""
_GO = re.compile(rf'(?P<raw>`[^`]*`)|(?P<text>"(?:[^"\\\n]|\\.)*")|{_PIECE}', re.VERBOSE)
_KOTLIN = re.compile(rf'(?P<raw>"{{3}})|(?P<text>")|(?P<name>`[^`\n]+`)|{_PIECE}', re.VERBOSE)

_JAVA = re.compile(
    rf'(?P<raw>"{{3}}(?:[^"\\]|\\.|"(?!""))*"{{3}})|(?P<text>"(?:[^"\\\n]|\\.)*")|{_PIECE}',
    re.VERBOSE | re.DOTALL,
)
_PIECES = {"go": _GO, "kotlin": _KOTLIN, "java": _JAVA}

_COMMENT_EDGE = re.compile(r"/\*|\*/")
_IN_TEXT = re.compile(
    r'(?P<end>")|(?P<code>\$\{)|(?P<value>\$[A-Za-z_`])|(?P<escape>\\(?:u[0-9a-fA-F]{4}|.))'
    r'|(?P<said>[^"\\$\n]+|\$)'
)
_IN_RAW = re.compile(r'(?P<end>"{3,})|(?P<code>\$\{)|(?P<value>\$[A-Za-z_`])|(?P<said>[^"$]+|\$|"{1,2})')
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r"}

_GO_SIGN = re.compile(r"^func[ \t(]", re.MULTILINE)
_KOTLIN_SIGN = re.compile(r"\bfun[ \t]|@")
_JAVA_SIGN = re.compile(r"^(?:package|import)[ \t][\w.* \t]+;|\bvoid[ \t]+\w+[ \t]*\(", re.MULTILINE)
_JAVA_ESCAPE = re.compile(r"\\(?:u+[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)


def language_of(text: str, file: str = "") -> Language:
    """Detect the language of a file by its name, else by its content."""
    if file.endswith((".kt", ".kts")):
        return "kotlin"
    if file.endswith(".java"):
        return "java"
    if file.endswith(".go") or _GO_SIGN.search(text):
        return "go"
    if _JAVA_SIGN.search(text):
        return "java"
    return "kotlin" if _KOTLIN_SIGN.search(text) else "go"


def tokens(text: str, language: Language) -> list[Token]:
    """Return all tokens except whitespace; raises Unreadable with the line."""
    check_size(text)
    found: list[Token] = []
    for token in _Scanner(text, language).tokens():
        found.append(token)
        if len(found) > IMPORT_TOKENS_MAX:
            raise Unreadable(f"line {token.line}: expected at most {IMPORT_TOKENS_MAX} words and marks")
    return [*found, Token("end", "the end", found[-1].line if found else 1)]


class _Scanner:
    """Tokenizes in one pass. Kotlin strings may contain code with strings, so it keeps a stack."""

    def __init__(self, text: str, language: Language) -> None:
        self._text = text
        self._language = language
        self._pieces = _PIECES[language]
        self._at = 0
        self._line = 1

    def tokens(self) -> Iterator[Token]:
        """Yield tokens in order."""
        first = True
        while self._at < len(self._text):
            match = self._piece()
            kind, said, line = match.lastgroup, match[0], self._line
            if kind == "block":
                self._comment(match)
                token = Token("comment", "", line)
            elif self._language == "kotlin" and kind in ("raw", "text"):
                token = self._kotlin_text(match)
            else:
                self._go_on(match)
                token = Token(_KINDS[kind or ""], said, line)
                if kind in ("raw", "text") and self._language == "java":
                    quotes = 3 if kind == "raw" else 1
                    inner = said[quotes:-quotes]
                    token = token._replace(
                        text=_JAVA_ESCAPE.sub(lambda found: _java_meaning(found[0]), inner)
                    )
                elif kind in ("raw", "text", "name"):
                    token = token._replace(text=said[1:-1])
            if kind != "blank":
                yield token._replace(first=first)
            first = kind == "newline" or (first and kind == "blank")

    def _piece(self) -> re.Match[str]:
        match = self._pieces.match(self._text, self._at)
        if match is None:
            raise self._unended()
        return match

    def _go_on(self, match: re.Match[str]) -> None:
        self._line += match[0].count("\n")
        self._at = match.end()

    def _unended(self, at: int = -1, line: int = 0) -> Unreadable:
        at = self._at if at < 0 else at
        begun = shortened(self._text[at : at + 10])
        return Unreadable(f"line {line or self._line}: expected the end of what begins with {begun}")

    def _comment(self, begin: re.Match[str]) -> None:
        """Skip a block comment; in Kotlin they nest."""
        at, depth = begin.end(), 1
        while depth:
            edge = _COMMENT_EDGE.search(self._text, at)
            if edge is None:
                raise self._unended()
            at = edge.end()
            if edge[0] == "*/":
                depth -= 1
            elif self._language == "kotlin":
                depth += 1
            else:
                at -= 1  # in Go and Java, /*/ ends a comment
        self._line += self._text.count("\n", self._at, at)
        self._at = at

    def _kotlin_text(self, begin: re.Match[str]) -> Token:
        """Read a string with its interpolated code."""
        line = self._line
        inside: list[str | int] = []
        """Open contexts, innermost last: a quote, or the brace depth of interpolated code."""
        said: list[str] = []
        held = False
        match: re.Match[str] = begin
        while True:
            kind, piece = match.lastgroup, match[0]
            if kind == "block":
                self._comment(match)
            else:
                self._go_on(match)
            top = inside[-1] if inside else 0
            if isinstance(top, int):
                if kind in ("raw", "text"):
                    inside.append(piece)
                elif piece in ("{", "}"):
                    inside[-1] = top + (1 if piece == "{" else -1)
                    if not inside[-1]:
                        inside.pop()
            elif kind == "end":
                inside.pop()
                said.append(piece[3:])  # quotes before the last three belong to the raw string
                if not inside:
                    return Token("template" if held else "text", "".join(said), line)
            elif kind == "code":
                inside.append(1)
                held = True
            elif kind == "value":
                held = True
            else:
                said.append(_meaning(piece) if kind == "escape" else piece)
            pieces = _IN_TEXT if inside[-1] == '"' else _KOTLIN if isinstance(inside[-1], int) else _IN_RAW
            following = pieces.match(self._text, self._at)
            if following is None:
                raise self._unended(begin.start(), line)
            match = following


_KINDS: dict[str, TokenKind] = {
    "raw": "text",
    "text": "text",
    "rune": "text",
    "name": "word",
    "word": "word",
    "mark": "mark",
    "comment": "comment",
    "newline": "newline",
    "blank": "newline",
}


def _java_meaning(escape: str) -> str:
    """Return the character of a Java escape; empty for an escaped line end."""
    if escape[1] == "u":
        return chr(int(escape[-4:], 16))
    if escape[1] in "01234567":
        return chr(int(escape[1:], 8))
    return {**_ESCAPES, "s": " ", "f": "\f", "\n": ""}.get(escape[1], escape[1])


def _meaning(escape: str) -> str:
    """Return the character of a Kotlin escape."""
    if len(escape) > 2:
        return chr(int(escape[2:], 16))
    return _ESCAPES.get(escape[1], escape[1])
