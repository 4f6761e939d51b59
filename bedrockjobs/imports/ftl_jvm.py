"""Find ``@Cron("...")`` annotations of functions in Kotlin and Java, in all of their syntactic forms."""

from __future__ import annotations

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
from bedrockjobs.imports.source import Language, Token

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
"""Annotations of parameters that FTL injects."""
_ARGUMENT = 'expected @Cron("0 0 * * *"), with one text'


def read(tokens: list[Token], language: Language) -> tuple[str, list[Verb]]:
    """Return the module and the annotations with their functions."""
    passed = Tokens([token for token in tokens if token.kind not in ("comment", "newline")])
    reader = _Java(passed) if language == "java" else _Reader(passed)
    reader.read()
    return reader.module, reader.found


class _Reader:
    def __init__(self, tokens: Tokens) -> None:
        self.module = ""
        self.found: list[Verb] = []
        self._tokens = tokens
        self._names = {FULL_NAME, "Cron"}
        """Names of the annotation in this file, including import aliases."""
        self._pending: list[Verb] = []

    def read(self) -> None:
        tokens = self._tokens
        while (token := tokens.ahead).kind != "end":
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
        self._leave()

    def _declaration(self, token: Token) -> None:
        """Skip a modifier or another declaration, or read a function."""
        if self._tokens.took("fun"):
            self._function()
            return
        if not (token.kind == "word" and token.text in _MODIFIERS):
            self._leave()
        self._tokens.next()

    def _import(self) -> None:
        path = self._tokens.path()
        name = self._tokens.next().text if self._tokens.took("as") else path.rpartition(".")[2]
        if path == FULL_NAME:
            self._names.add(name)
        elif name == "Cron":
            self._names.discard(name)

    def _annotations(self) -> None:
        """Read one annotation after the ``@``, or several in brackets."""
        tokens = self._tokens
        target = ""
        if tokens.ahead.text in _TARGETS:
            target = tokens.next().text
            tokens.took(":")
        if not tokens.took("["):
            self._annotation(target)
            return
        while tokens.ahead.kind != "end" and not tokens.took("]"):
            if not self._annotation(target):
                tokens.next()

    def _annotation(self, target: str) -> bool:
        """Read one annotation; return whether there was one."""
        tokens = self._tokens
        line = tokens.ahead.line
        name = tokens.path()
        tokens.angles()
        arguments = tokens.group() if name and tokens.took("(") else None
        if name in self._names:
            said, refused = _expression(arguments)
            self._pending.append(Verb(line, said, refused=refused or (NO_VERB if target else "")))
        return bool(name)

    def _leave(self) -> None:
        """Refuse the pending annotations: no function follows."""
        self.found += [Verb(one.line, one.said, refused=one.refused or NO_VERB) for one in self._pending]
        self._pending = []

    def _function(self) -> None:
        tokens = self._tokens
        generic = tokens.angles()
        name = tokens.path()
        if not name:
            return  # an anonymous function, or not Kotlin
        parameters = parts(tokens.group(), angles=True) if tokens.took("(") else None
        result = tokens.path() if tokens.took(":") else "Unit"
        more = tokens.ahead.kind == "mark" and tokens.ahead.text in "<?(" and not tokens.ahead.first
        warnings: tuple[str, ...] = ()
        if generic or "." in name or parameters is None:
            why = "expected a function of its own name, not of a class and not a generic one"
        else:
            why, warnings = judged([_parameter(part, kotlin=True) for part in parameters])
            if result not in ("Unit", "kotlin.Unit") or more:
                why = NO_REQUEST
        self.found += named(self._pending, name, why, warnings)
        self._pending = []


class _Java(_Reader):
    """Reads Java, in which a method's type precedes its name."""

    def _declaration(self, token: Token) -> None:
        tokens = self._tokens
        if token.kind == "word" and token.text in _JAVA_MODIFIERS:
            tokens.next()
        elif (
            not self._pending or token.text in _JAVA_TYPES or not (token.kind == "word" or token.text == "<")
        ):
            self._leave()
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
            self._leave()  # a field, or a constructor
            return
        why, warnings = judged(
            [_parameter(part, kotlin=False) for part in parts(tokens.group(), angles=True)]
        )
        if generic:
            why = "expected a method, not a generic one"
        elif result != "void" or more:
            why = NO_REQUEST
        self.found += named(self._pending, name, why, warnings)
        self._pending = []


def _parameter(part: list[Token], *, kotlin: bool) -> Parameter:
    """Return the type of a parameter, and whether it has an annotation for injection."""
    reader = Tokens([*part, Token("end", "", 0)])
    injected = False
    while reader.took("@"):
        injected |= reader.path().rpartition(".")[2] in _INJECTING
        if reader.took("("):
            reader.group()
    rest: list[Token] = []
    while reader.ahead.kind != "end":
        rest.append(reader.next())
    if kotlin:
        at = next((at for at, token in enumerate(rest) if token.kind == "mark" and token.text == ":"), -1)
        rest = rest[at + 1 :]
    elif rest and rest[0].text == "final":
        rest = rest[1:]
    return Parameter(last_word(rest), injected)


def _expression(arguments: list[Token] | None) -> tuple[str, str]:
    """Return the expression of an annotation, and an error message."""
    given = parts(arguments or [])
    if not given:
        return "", f"{_ARGUMENT}, not none"
    if len(given) > 1:
        return "", f"{_ARGUMENT}, not {len(given)} arguments"
    (argument,) = given
    if len(argument) > 2 and argument[0].kind == "word" and argument[1].text == "=":
        argument = argument[2:]
    if len(argument) == 1 and argument[0].kind == "text":
        said = argument[0].text.strip()
        return said, "" if said else f"{_ARGUMENT}, not an empty one"
    if any(token.kind == "template" for token in argument):
        return "", f"{_ARGUMENT}, not one with a value in it"
    if any(token.kind == "mark" and token.text == "+" for token in argument):
        return "", f"{_ARGUMENT}, not texts joined by +"
    return "", f"{_ARGUMENT}, not {argument[0].text[:40]!r}"
