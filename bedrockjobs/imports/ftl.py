"""Import cron jobs of FTL from Go, Kotlin and Java sources.

The source file is split into tokens, in which directives or annotations are found with their functions; their
expressions are parsed by FTL's rules. Only schedules are imported: a worker has to take the jobs and do what
the functions (FTL's verbs) did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from bedrockjobs.base.config import IMPORT_TOKENS_MAX
from bedrockjobs.imports import gorhill
from bedrockjobs.imports.imported import (
    PLACES_SHOWN_MAX,
    WEEKDAYS,
    ImportedSchedule,
    Unreadable,
    check_count,
    check_size,
    once,
    shortened,
)
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.expression import check_length

# A tokenizer for Go, Kotlin and Java: words, strings, comments and punctuation.


Language = Literal["go", "kotlin", "java"]
TokenKind = Literal["word", "text", "template", "mark", "comment", "newline", "end"]


class Token(NamedTuple):
    """A token of source code; the kind ``template`` is a string with interpolated values."""

    kind: TokenKind
    text: str
    """The source text of the token. For a string it is the string's value; for a block comment it is
    empty."""
    line: int
    first: bool = False
    """Whether the token is the first one in its line."""


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
    """Return the language of a file, to judge by its name, or else by its content."""
    if file.endswith((".kt", ".kts")):
        return "kotlin"
    if file.endswith(".java"):
        return "java"
    if file.endswith(".go") or _GO_SIGN.search(text):
        return "go"
    if _JAVA_SIGN.search(text):
        return "java"
    return "kotlin" if _KOTLIN_SIGN.search(text) else "go"


def source_tokens(text: str, language: Language) -> list[Token]:
    """Return all tokens except blanks; raises Unreadable, which names the line."""
    check_size(text)
    tokens: list[Token] = []
    for token in _CodeScanner(text, language).tokens():
        tokens.append(token)
        if len(tokens) > IMPORT_TOKENS_MAX:
            raise Unreadable(f"line {token.line}: expected at most {IMPORT_TOKENS_MAX} words and marks")
    return [*tokens, Token("end", "the end", tokens[-1].line if tokens else 1)]


class _CodeScanner:
    """Splits a source file into tokens in one pass.

    Kotlin strings may contain code with strings, so a stack holds the open strings.
    """

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
            kind, text, line = match.lastgroup, match[0], self._line
            if kind == "block":
                self._comment(match)
                token = Token("comment", "", line)
            elif self._language == "kotlin" and kind in ("raw", "text"):
                token = self._kotlin_text(match)
            else:
                self._advance(match)
                token = Token(_KINDS[kind or ""], text, line)
                if kind in ("raw", "text") and self._language == "java":
                    quotes = 3 if kind == "raw" else 1
                    inner = text[quotes:-quotes]
                    token = token._replace(
                        text=_JAVA_ESCAPE.sub(lambda escape: _java_meaning(escape[0]), inner)
                    )
                elif kind in ("raw", "text", "name"):
                    token = token._replace(text=text[1:-1])
            if kind != "blank":
                yield token._replace(first=first)
            first = kind == "newline" or (first and kind == "blank")

    def _piece(self) -> re.Match[str]:
        match = self._pieces.match(self._text, self._at)
        if match is None:
            raise self._unended()
        return match

    def _advance(self, match: re.Match[str]) -> None:
        self._line += match[0].count("\n")
        self._at = match.end()

    def _unended(self, at: int = -1, line: int = 0) -> Unreadable:
        at = self._at if at < 0 else at
        begun = shortened(self._text[at : at + 10])
        return Unreadable(f"line {line or self._line}: expected the end of what begins with {begun}")

    def _comment(self, begin: re.Match[str]) -> None:
        """Skip a block comment. Block comments nest in Kotlin."""
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
        """Read a Kotlin string and the code that is interpolated in it."""
        line = self._line
        inside: list[str | int] = []
        """What is open, innermost last: for a string its quotes, for interpolated code its depth of
        braces."""
        said: list[str] = []
        held = False
        match: re.Match[str] = begin
        while True:
            kind, piece = match.lastgroup, match[0]
            if kind == "block":
                self._comment(match)
            else:
                self._advance(match)
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
    """Return the character that a Java escape stands for; empty for an escaped line end."""
    if escape[1] == "u":
        return chr(int(escape[-4:], 16))
    if escape[1] in "01234567":
        return chr(int(escape[1:], 8))
    return {**_ESCAPES, "s": " ", "f": "\f", "\n": ""}.get(escape[1], escape[1])


def _meaning(escape: str) -> str:
    """Return the character that a Kotlin escape stands for."""
    if len(escape) > 2:
        return chr(int(escape[2:], 16))
    return _ESCAPES.get(escape[1], escape[1])


# Cron verbs of FTL: a token reader, and the rules for parameters, shared by the languages.


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
"""Suffixes of type names: FTL injects the values of parameters of such types."""

REQUESTS = ("Req", "Request", "Input", "Payload", "Event", "Message", "Body", "Params", "Args")
"""Suffixes of type names: a parameter of such a type is a request."""

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
"""Parameter types, in lower case, whose values come only from a request: FTL injects none of them."""

_OPENING = {"(": ")", "[": "]", "{": "}"}
_ANGLES = {**_OPENING, "<": ">"}


@dataclass(frozen=True)
class Verb:
    """A directive or annotation with a schedule, and the function (in FTL a verb) that it belongs to."""

    line: int
    """The line of the directive; the first line is 1."""
    directives: str
    name: str = ""
    """The name in FTL's schema; empty if no function was found."""
    refused: str = ""
    warnings: tuple[str, ...] = ()


class Parameter(NamedTuple):
    """A parameter of a function."""

    type: str
    """The last word of the name of the parameter's type; empty if the type is not a name."""
    injected: bool = False
    """Whether the source marks the parameter as injected."""


class Tokens:
    """Reads tokens one after another, with one token of lookahead."""

    def __init__(self, tokens: list[Token]) -> None:
        """Begin with the first token. The last token must be an ``end``, which is never consumed."""
        self._tokens = tokens
        self._at = 0

    @property
    def peek(self) -> Token:
        """Return the next token."""
        return self._tokens[self._at]

    def next(self) -> Token:
        """Return and consume the next token."""
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def took(self, text: str) -> bool:
        """Consume the next token if it is ``text``; return whether it was."""
        if self.peek.kind in ("word", "mark") and self.peek.text == text:
            self.next()
            return True
        return False

    def group(self) -> list[Token]:
        """Consume the rest of a bracketed group; return the tokens in it."""
        inside: list[Token] = []
        depth = 1
        while self.peek.kind != "end":
            token = self.next()
            if token.kind == "mark":
                depth += (token.text in _OPENING) - (token.text in _OPENING.values())
            if not depth:
                break
            inside.append(token)
        return inside

    def angles(self) -> bool:
        """Consume type arguments in angle brackets, if there are any; return whether there were."""
        depth = 0
        while self.peek.kind != "end" and (depth or self.peek.text == "<"):
            token = self.next()
            depth += (token.text == "<") - (token.text == ">")
            if not depth:
                return True
        return False

    def path(self) -> str:
        """Consume a dotted name and return it; empty if the next token is not a word."""
        words: list[str] = []
        while self.peek.kind == "word":
            words.append(self.next().text)
            if not self.took("."):
                break
        return ".".join(words)


def parts(tokens: list[Token], *, angles: bool = False) -> list[list[Token]]:
    """Split the content of a bracketed group at its top-level commas; a trailing comma is ignored.

    With ``angles``, ``<`` and ``>`` also count as brackets.
    """
    opening = _ANGLES if angles else _OPENING
    lists: list[list[Token]] = [[]]
    depth, before = 0, ""
    for token in tokens:
        if token.kind in ("newline", "comment"):
            continue
        mark = token.text if token.kind == "mark" else ""
        if not (mark == ">" and before == "-"):
            depth += (mark in opening) - (mark in opening.values())
        before = mark
        if mark == "," and not depth:
            lists.append([])
        else:
            lists[-1].append(token)
    return lists if lists[-1] else lists[:-1]


def last_word(tokens: list[Token]) -> str:
    """Return the last word of the dotted name at the beginning: ``Config`` for ``ftl.Config[T]``."""
    word = ""
    for at, token in enumerate(tokens):
        if token.kind == "word" and (at == 0 or tokens[at - 1].text == "."):
            word = token.text
        elif token.text != ".":
            break
    return word


def named(directives: list[Verb], name: str, refused: str, warnings: tuple[str, ...] = ()) -> list[Verb]:
    """Return the directives of one function with its name and problems; if there are several, refuse all."""
    lines = " and ".join(f"line {one.line}" for one in directives[:PLACES_SHOWN_MAX])
    if len(directives) > 1:
        return [
            Verb(one.line, one.directives, refused=f"{lines} are for one verb: expected a schedule once")
            for one in directives
        ]
    return [Verb(one.line, one.directives, name, one.refused or refused, warnings) for one in directives]


def check_parameters(parameters: list[Parameter]) -> tuple[str, tuple[str, ...]]:
    """Return why a cron verb cannot have these parameters, and a warning for each type that is a guess.

    Types that are declared in other files are unknown. A cron verb that FTL accepts has no request, so a
    parameter of an unknown type must be something that FTL injects, such as a topic or a client.
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


# ``//ftl:cron`` directives in Go: in the comment directly above a function.


_DIRECTIVE = re.compile(r"//ftl:cron(?![\w-])(?P<said>.*)", re.DOTALL)
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^A-Za-z0-9]+")


def read_go(tokens: list[Token]) -> tuple[str, list[Verb]]:
    """Return the name of the package, and its directives, each with its function."""
    reader = _GoReader(Tokens(tokens), _types(tokens))
    reader.parse()
    return reader.package, reader.verbs


def schema_name(name: str) -> str:
    """Return the name of a function in FTL's schema: ``SQLBackup`` becomes ``sqlBackup``."""
    first, *others = _NAME_PART.findall(name) or [""]
    return str(first.lower() + "".join(other[:1].upper() + other[1:].lower() for other in others))


class _GoReader:
    def __init__(self, tokens: Tokens, types: dict[str, str]) -> None:
        self.package = ""
        self._types = types
        self.verbs: list[Verb] = []
        self._tokens = tokens
        self._pending: list[Verb] = []
        """Directives of the comment that was read last, whose function is not known yet."""

    def parse(self) -> None:
        tokens, depth = self._tokens, 0
        while (token := tokens.peek).kind != "end":
            if token.kind == "comment":
                self._comment(tokens.next(), inside=depth > 0)
            elif token.kind == "newline":
                self._line_end()
            elif depth == 0 and tokens.took("package"):
                self._refuse_pending(NO_VERB)
                self.package = tokens.next().text
            elif depth == 0 and token.first and tokens.took("func"):
                self._function()
            else:
                self._refuse_pending(NO_VERB)
                if token.kind == "mark":
                    depth = max(0, depth + (token.text in "({[") - (token.text in ")}]"))
                tokens.next()
        self._refuse_pending(NO_VERB)

    def _comment(self, token: Token, *, inside: bool) -> None:
        directive = _DIRECTIVE.fullmatch(token.text)
        if directive is None or not token.first:
            return
        expression = directive["said"].strip()
        refused = ""
        if directive["said"][:1] not in ("", " ", "\t") or not expression:
            refused = "expected an expression after //ftl:cron and a blank, such as //ftl:cron 0 0 * * *"
        elif inside:
            refused = NO_VERB
        self._pending.append(Verb(token.line, expression, refused=refused))

    def _line_end(self) -> None:
        """Skip the end of a line; if an empty line follows, the comment above belongs to no function."""
        tokens = self._tokens
        tokens.next()
        if tokens.peek.kind == "newline":
            self._refuse_pending(f"{NO_VERB}, without an empty line between them")

    def _refuse_pending(self, why: str) -> None:
        """Refuse the pending directives, because no function follows."""
        self.verbs += [Verb(one.line, one.directives, refused=one.refused or why) for one in self._pending]
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
        while tokens.peek.kind != "end" and not (tokens.peek.kind == "newline" or tokens.peek.text == "{"):
            result.append(tokens.next())
            if result[-1].kind == "mark" and result[-1].text == "(":
                result += [*tokens.group(), Token("mark", ")", result[-1].line)]
        if not self._pending:
            return
        warnings: tuple[str, ...] = ()
        if method or generic or parameters is None:
            why = "expected a function, not a method and not a generic one"
        else:
            why, warnings = check_parameters(self._parameters(parameters))
            if not _is_nothing(result):
                why = NO_REQUEST
        self.verbs += named(self._pending, schema_name(name), why, warnings)
        self._pending = []

    def _parameters(self, groups: list[list[Token]]) -> list[Parameter]:
        """Return the parameters with their types; ``a, b T`` are two parameters of one type."""
        parameters: list[Parameter] = []
        for part in reversed(groups):
            if len(part) > 1 and part[0].kind == "word" and part[1].text != ".":
                part = part[1:]
            elif parameters and len(part) == 1 and part[0].text[:1].islower():
                parameters.append(parameters[-1])
                continue
            parameters.append(self._parameter(last_word(part)))
        return parameters

    def _parameter(self, name: str) -> Parameter:
        """Return a parameter of the type ``name``; a type that this file declares is resolved."""
        declared = self._types.get(name, name)
        # FTL generates a function type for each verb that may be called.
        return Parameter(declared, injected=declared == "func" and name != "func")


def _types(tokens: list[Token]) -> dict[str, str]:
    """Return the types that a file declares, each with the last word of its definition (``struct``)."""
    types: dict[str, str] = {}
    words = [token for token in tokens if token.kind not in ("comment", "newline")]
    for at, token in enumerate(words):
        if token.first and token.kind == "word" and token.text == "type" and at + 3 < len(words):
            begin = at + 3 if words[at + 2].text == "=" else at + 2
            types[words[at + 1].text] = last_word(words[begin : begin + 9])
    return types


def _is_nothing(result: list[Token]) -> bool:
    """Return whether a function has no result, or only an error."""
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


# ``@Cron("...")`` annotations of functions in Kotlin and Java, in all of their syntactic forms.


FULL_NAME = "xyz.block.ftl.Cron"

_MODIFIERS = (
    "public",
    "private",
    "internal",
    "protected",
    "open",
    "final",
    "override",
    "abstract",
    "suspend",
    "inline",
    "external",
    "tailrec",
    "operator",
    "infix",
    "actual",
    "expect",
)
_TARGETS = ("file", "property", "field", "get", "set", "receiver", "param", "setparam", "delegate")
_JAVA_MODIFIERS = (
    "public",
    "private",
    "protected",
    "static",
    "final",
    "abstract",
    "synchronized",
    "native",
    "default",
    "strictfp",
)
_JAVA_TYPES = ("class", "interface", "enum", "record")
_INJECTING = ("Config", "Secret", "Egress")
"""Annotations by which a parameter is marked as injected by FTL."""
_ARGUMENT = 'expected @Cron("0 0 * * *"), with one text'


def read_jvm(tokens: list[Token], language: Language) -> tuple[str, list[Verb]]:
    """Return the name of the module, and its annotations, each with its function."""
    passed = Tokens([token for token in tokens if token.kind not in ("comment", "newline")])
    reader = _Java(passed) if language == "java" else _JVMReader(passed)
    reader.parse()
    return reader.module, reader.verbs


class _JVMReader:
    def __init__(self, tokens: Tokens) -> None:
        self.module = ""
        self.verbs: list[Verb] = []
        self._tokens = tokens
        self._names = {FULL_NAME, "Cron"}
        """Names of the annotation ``@Cron`` in this file, including aliases of its import."""
        self._pending: list[Verb] = []

    def parse(self) -> None:
        tokens = self._tokens
        while (token := tokens.peek).kind != "end":
            if tokens.took("@"):
                self._annotations()
            elif token.kind == "word" and token.first and token.text == "package":
                tokens.next()
                self.module = tokens.path().rpartition(".")[2]
            elif token.kind == "word" and token.first and token.text == "import":
                tokens.next()
                self._import()
            else:
                self._declaration(token)
        self._refuse_pending()

    def _declaration(self, token: Token) -> None:
        """Read a function, or skip one token of anything else."""
        if self._tokens.took("fun"):
            self._function()
            return
        if not (token.kind == "word" and token.text in _MODIFIERS):
            self._refuse_pending()
        self._tokens.next()

    def _import(self) -> None:
        path = self._tokens.path()
        name = self._tokens.next().text if self._tokens.took("as") else path.rpartition(".")[2]
        if path == FULL_NAME:
            self._names.add(name)
        elif name == "Cron":
            self._names.discard(name)

    def _annotations(self) -> None:
        """Read what follows an ``@``: one annotation, or several in brackets."""
        tokens = self._tokens
        target = ""
        if tokens.peek.text in _TARGETS:
            target = tokens.next().text
            tokens.took(":")
        if not tokens.took("["):
            self._annotation(target)
            return
        while tokens.peek.kind != "end" and not tokens.took("]"):
            if not self._annotation(target):
                tokens.next()

    def _annotation(self, target: str) -> bool:
        """Read one annotation; return whether there was one."""
        tokens = self._tokens
        line = tokens.peek.line
        name = tokens.path()
        tokens.angles()
        arguments = tokens.group() if name and tokens.took("(") else None
        if name in self._names:
            expression, refused = _expression(arguments)
            self._pending.append(Verb(line, expression, refused=refused or (NO_VERB if target else "")))
        return bool(name)

    def _refuse_pending(self) -> None:
        """Refuse the pending annotations, because no function follows."""
        self.verbs += [
            Verb(one.line, one.directives, refused=one.refused or NO_VERB) for one in self._pending
        ]
        self._pending = []

    def _function(self) -> None:
        tokens = self._tokens
        generic = tokens.angles()
        name = tokens.path()
        if not name:
            return  # an anonymous function, or not Kotlin
        parameters = parts(tokens.group(), angles=True) if tokens.took("(") else None
        result = tokens.path() if tokens.took(":") else "Unit"
        more = tokens.peek.kind == "mark" and tokens.peek.text in "<?(" and not tokens.peek.first
        warnings: tuple[str, ...] = ()
        if generic or "." in name or parameters is None:
            why = "expected a function of its own name, not of a class and not a generic one"
        else:
            why, warnings = check_parameters([_parameter(part, kotlin=True) for part in parameters])
            if result not in ("Unit", "kotlin.Unit") or more:
                why = NO_REQUEST
        self.verbs += named(self._pending, name, why, warnings)
        self._pending = []


class _Java(_JVMReader):
    """Reads Java, in which a method's type precedes its name."""

    def _declaration(self, token: Token) -> None:
        tokens = self._tokens
        if token.kind == "word" and token.text in _JAVA_MODIFIERS:
            tokens.next()
        elif (
            not self._pending or token.text in _JAVA_TYPES or not (token.kind == "word" or token.text == "<")
        ):
            self._refuse_pending()
            tokens.next()
        else:
            self._method()

    def _method(self) -> None:
        tokens = self._tokens
        generic = tokens.angles()
        result = tokens.path()
        more = tokens.angles()
        while tokens.took("["):
            more = True
            tokens.took("]")
        name = tokens.path()
        if not name or not tokens.took("("):
            self._refuse_pending()  # a field, or a constructor
            return
        why, warnings = check_parameters(
            [_parameter(part, kotlin=False) for part in parts(tokens.group(), angles=True)]
        )
        if generic:
            why = "expected a method, not a generic one"
        elif result != "void" or more:
            why = NO_REQUEST
        self.verbs += named(self._pending, name, why, warnings)
        self._pending = []


def _parameter(part: list[Token], *, kotlin: bool) -> Parameter:
    """Return a parameter with its type, and whether an annotation marks it as injected."""
    reader = Tokens([*part, Token("end", "", 0)])
    injected = False
    while reader.took("@"):
        injected |= reader.path().rpartition(".")[2] in _INJECTING
        if reader.took("("):
            reader.group()
    rest: list[Token] = []
    while reader.peek.kind != "end":
        rest.append(reader.next())
    if kotlin:
        at = next((at for at, token in enumerate(rest) if token.kind == "mark" and token.text == ":"), -1)
        rest = rest[at + 1 :]
    elif rest and rest[0].text == "final":
        rest = rest[1:]
    return Parameter(last_word(rest), injected)


def _expression(arguments: list[Token] | None) -> tuple[str, str]:
    """Return the expression in an annotation's arguments, and an error message, or empty texts."""
    groups = parts(arguments or [])
    if not groups:
        return "", f"{_ARGUMENT}, not none"
    if len(groups) > 1:
        return "", f"{_ARGUMENT}, not {len(groups)} arguments"
    (argument,) = groups
    if len(argument) > 2 and argument[0].kind == "word" and argument[1].text == "=":
        argument = argument[2:]
    if len(argument) == 1 and argument[0].kind == "text":
        expression = argument[0].text.strip()
        return expression, "" if expression else f"{_ARGUMENT}, not an empty one"
    if any(token.kind == "template" for token in argument):
        return "", f"{_ARGUMENT}, not one with a value in it"
    if any(token.kind == "mark" and token.text == "+" for token in argument):
        return "", f"{_ARGUMENT}, not texts joined by +"
    return "", f"{_ARGUMENT}, not {argument[0].text[:40]!r}"


# Conversion to definitions, and FTL's cron expressions.


OPTIONS = {"run_timeout": "5m", "grace": "1m"}
"""Options of an imported job: FTL ends a call after 5 minutes, and frees the job 1 minute later even if the
call has not ended."""

FORMS = "five to seven fields of numbers, * , - and /, a duration such as 30s, or a weekday such as Mon"

CHECKED_FROM = datetime(2020, 1, 1)
"""The date after which an expression must have a tick; FTL refuses it otherwise."""

_FTL_PIECE = re.compile(
    r"\s+|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[*,/-])", re.ASCII
)
_UNITS = {"s": "*/{} * * * * * *", "m": "0 */{} * * * * *", "h": "0 0 */{} * * * *"}


def parse_ftl(text: str, *, file: str = "") -> list[ImportedSchedule]:
    """Parse the directives of one source file; a job is named ``module.verb``, as in FTL's schema.

    Raises Unreadable if a comment or a string is not terminated.
    """
    language = language_of(text, file)
    tokens = source_tokens(text, language)
    module, verbs = read_go(tokens) if language == "go" else read_jvm(tokens, language)
    check_count(verbs, f"line {tokens[-1].line}")
    return once([_imported(module, verb) for verb in sorted(verbs, key=lambda verb: verb.line)])


def reading_of(expression: str) -> gorhill.Reading:
    """Parse an expression by FTL's grammar, then by the rules of hashicorp's library. Raises BadSchedule."""
    check_length(expression)
    seven = _seven(expression, _pieces(expression))
    schedule, notes = gorhill.evaluate(seven, gorhill.HASHICORP, expression, CHECKED_FROM)
    return gorhill.written(gorhill.Reading(schedule, " ".join(expression.split()), tuple(notes)))


def _imported(module: str, verb: Verb) -> ImportedSchedule:
    name = f"{module}.{verb.name}".lstrip(".") if verb.name else f"line-{verb.line}"
    schedule = ImportedSchedule(name, f"line {verb.line}", verb.directives)
    if verb.refused:
        return schedule._replace(refused=verb.refused)
    try:
        reading = reading_of(verb.directives)
    except cron.BadSchedule as error:
        return schedule._replace(refused=str(error))
    return schedule._replace(options=dict(OPTIONS)).with_reading(*reading).with_warning(*verb.warnings)


def _pieces(expression: str) -> list[tuple[str, str]]:
    """Split an expression into pieces as FTL does: whitespace only separates numbers."""
    pieces: list[tuple[str, str]] = []
    at = 0
    while at < len(expression):
        piece = _FTL_PIECE.match(expression, at)
        if piece is None:
            raise cron.BadSchedule("expression", expression, FORMS)
        if piece.lastgroup:
            pieces.append((piece.lastgroup, piece[0]))
        at = piece.end()
    return pieces


def _seven(expression: str, pieces: list[tuple[str, str]]) -> list[str]:
    """Return the seven fields, from second to year, that FTL passes to its cron library."""
    kinds, words = [kind for kind, _ in pieces], [word for _, word in pieces]
    if kinds == ["number", "word"] and words[1] in _UNITS and words[0].isdigit() and len(words[0]) < 10:
        count = int(words[0])
        return (_UNITS[words[1]].format(count) if count else "0 0 0 * * * *").split()
    if kinds == ["word"] and words[0].lower() in WEEKDAYS:
        return ["0", "0", "0", "*", "*", str(WEEKDAYS.index(words[0].lower())), "*"]
    fields = _Fields(expression, pieces).largest_numbers()
    if not 5 <= len(fields) <= 7:
        raise cron.BadSchedule("expression", expression, f"5 to 7 fields, not {len(fields)}: {FORMS}")
    if len(fields) == 7:
        return [text for text, _ in fields]
    texts = [text for text, _ in fields]
    if len(fields) == 5:
        return ["0", *texts, "*"]
    # FTL reads a sixth field with a number of at least four digits as the year.
    return ["0", *texts] if fields[5][1] >= 1_000 else [*texts, "*"]


class _Fields:
    """Parses fields with Go's rules for numbers: 010 is eight, and 09 is invalid."""

    def __init__(self, said: str, pieces: list[tuple[str, str]]) -> None:
        self._numbers = said
        self._pieces = [*pieces, ("end", "")]
        self._at = 0

    def largest_numbers(self) -> list[tuple[str, int]]:
        """Return each field with the largest number in it."""
        largest: list[tuple[str, int]] = []
        while self._pieces[self._at][0] != "end":
            terms, numbers = [], [0]
            while True:
                term, values = self._term()
                terms.append(term)
                numbers += values
                if not self._took(","):
                    break
            largest.append((",".join(terms), max(numbers)))
        return largest

    def _term(self) -> tuple[str, list[int]]:
        values: list[int] = []
        if not self._took("*"):
            values.append(self._number())
            if self._took("-"):
                values.append(self._number())
        text = "-".join(map(str, values)) or "*"
        return (f"{text}/{self._number()}" if self._took("/") else text), values

    def _took(self, mark: str) -> bool:
        if self._pieces[self._at] == ("mark", mark):
            self._at += 1
            return True
        return False

    def _number(self) -> int:
        kind, text = self._pieces[self._at]
        if kind != "number":
            raise cron.BadSchedule("expression", self._numbers, FORMS)
        self._at += 1
        try:
            return int(text, 8 if len(text) > 1 and text[0] == "0" else 10) if len(text) < 10 else int("x")
        except ValueError:
            expected = f"numbers as Go reads them: without a zero before them, not {text[:20]}"
            raise cron.BadSchedule("expression", self._numbers, expected) from None
