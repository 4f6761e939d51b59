"""``reference/errors.md``: every error class, and every status line that the code can write."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import bedrockjobs
from bedrockjobs.base import errors
from bedrockjobs.base.errors import ERRORS, CommandError
from bedrockjobs.cli.session import EXIT_BY_CODE, FAILED
from bedrockjobs.client.base import NOT_DONE
from bedrockjobs.protocol.http_answers import HTTP_STATUS
from docs.generator import NOTE
from docs.generator.markdown import code, table

_INTRO = """\
# Errors

A refused command has had no effect, with one exception: a `GetJob` or `GetJobs` that answers 404 may have
failed jobs that must not be given out.

A refusal is:

* on the [Bedrock protocol](protocol.md) a status line and a header `error` that names the attribute and
  what was expected;
* over HTTP `application/problem+json` (RFC 9457) with `code`, `reason` and `detail`;
* in Python an exception of `bedrockjobs` with `.code`, `.reason`, `.detail` and `.retryable`;
* on the command line a message on stderr and an exit status.

Retryable means that the same request may succeed later. Other refusals repeat until the request,
or the job that it names, changes.

| code | meaning | Python | HTTP | exit status | retryable | repeated by the clients |
| --- | --- | --- | --- | --- | --- | --- |"""

_CONNECTIONS = """\
## Errors of the connection

Only the Python clients raise these; all are a `ConnectionError`.

| class | meaning |
| --- | --- |
| `ServerUnreachable` | No connection could be made. Nothing was sent. |
| `ConnectionLost` | No reply came. The command may have been executed or not. |
| `UnreadableAnswer` | The reply could not be parsed. The command may have been executed or not. |"""

_LINES = """\
## Status lines

Every status line that the server sends. `{…}` stands for the name of an attribute or another word of the
request."""


def page() -> str:
    """Return the page."""
    rows = "\n".join(
        f"| {kind.code} | {_meaning(kind)} | `{kind.__name__}` | {HTTP_STATUS[kind.code]} "
        f"| {EXIT_BY_CODE.get(kind.code, FAILED)} | {_yes(kind.retryable)} | {_yes(kind in NOT_DONE)} |"
        for kind in ERRORS
    )
    reasons = reasons_of_code()
    lines = table(
        ("code", "words"),
        ((str(number), " · ".join(code(words) for words in reasons[number])) for number in sorted(reasons)),
    )
    return "\n\n".join([NOTE, f"{_INTRO}\n{rows}", _LINES, lines, _CONNECTIONS]) + "\n"


def _meaning(kind: type[CommandError]) -> str:
    return (kind.__doc__ or "").strip().replace("``", "`")


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def reasons_of_code() -> dict[int, list[str]]:
    """Return the words of every status line in the code, by status code, sorted."""
    kinds = {
        kind.__name__: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, CommandError)
    }
    found: defaultdict[int, set[str]] = defaultdict(set)
    for kind in {*kinds.values()} - {CommandError}:
        found[kind.code].add(kind.default_reason)
    package = Path(bedrockjobs.__file__).parent
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in ("cli", "client"):
            continue
        text = path.read_text()
        if not any(f"{name}(" in text for name in (*kinds, "TokenShares", "refused")):
            continue
        nodes = [*ast.walk(ast.parse(text))]
        named = _named_texts(nodes)
        for node in nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            first = node.args[0]
            words = set(named.get(first.id, [])) if isinstance(first, ast.Name) else set(_texts(first))
            if node.func.id in kinds:
                found[kinds[node.func.id].code] |= words - {""}
            elif node.func.id == "TokenShares":
                found[429] |= words - {""}
            elif node.func.id == "refused":
                codes = [key.value for key in node.keywords if key.arg == "code"]
                number = codes[0].value if codes and isinstance(codes[0], ast.Constant) else 402
                found[int(str(number))] |= words - {""}
    found[402] |= {"Missing {…}", "Malformed {…}"}
    return {number: sorted(words) for number, words in found.items()}


def _named_texts(nodes: list[ast.AST]) -> dict[str, list[str]]:
    """Return the texts that are given to a name ``reason`` before it becomes a refusal."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name == "reason":
                found[name] += _texts(node.value)
    return found


def _texts(node: ast.expr) -> list[str]:
    """Return the texts that an expression of strings may have."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values]
        text = "".join(parts)
        return [] if text.startswith("{…} {…}") else [text]
    return []
