"""Reads a transcript and plays it against a live server.

A transcript is a text file:

* ``> text`` is a line to send, with CRLF (or as ``@ line ends LF`` says); ``>> text`` is sent without it.
  Lines that follow each other are sent in one write.
* ``< text`` are the lines of one answer: status line, headers, an empty ``<``, the body. ``{length}`` stands
  for the true length of the body, ``{time}`` for a moment, ``{time_ms}`` for one with milliseconds, ``{any}``
  for anything. JSON is compared with the order of its keys and the spelling of its numbers. Our answer may
  have an ``error:`` header more.
* ``@ advance 1.5`` moves the server's clock, ``@ waiting 1`` waits until so many GetJobs wait, ``@ closed``
  expects the end of the connection, ``@ half-close`` closes the sending half, ``@ new connection`` goes on
  with another, ``@ line ends LF`` says how lines end, ``@ compatibility current`` is for the server.
* ``#`` begins a comment; ``# Differs from Bedrock:`` says why our answer is not the recorded one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.conftest import Live
from tests.protocol.talk import Reply, Talk

FOLDER = Path(__file__).parent / "transcripts"

_ENDS = {"CRLF": b"\r\n", "LF": b"\n"}
_PLACES = {
    "{time}": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    "{time_ms}": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}",
    "{any}": r".*",
}
_PLACE = re.compile("|".join(map(re.escape, _PLACES)))


@dataclass(frozen=True)
class Step:
    """Something to send, to expect or to do, and where the transcript says so."""

    kind: str
    lines: tuple[str, ...]
    where: str


def read(path: Path) -> list[Step]:
    """Return the steps of a transcript."""
    numbered = list(enumerate(path.read_text().splitlines(), 1))
    steps = []
    for kind, group in groupby(numbered, lambda item: item[1][:1]):
        block = list(group)
        where = f"{path.name}:{block[0][0]}"
        lines = tuple(line for _, line in block)
        if kind == ">":
            steps.append(Step("send", lines, where))
        elif kind == "<":
            steps.append(Step("expect", tuple(line[2:] for line in lines), where))
        elif kind == "@":
            steps += [Step("do", tuple(line[2:].split()), where) for line in lines]
        else:
            assert kind in ("", "#"), f"{where}: expected >, <, @ or #"
    return steps


def compatibility(steps: list[Step]) -> str:
    """Return which Bedrock a transcript is of."""
    found = [step.lines[1] for step in steps if step.kind == "do" and step.lines[0] == "compatibility"]
    return found[0] if found else "document"


async def play(steps: list[Step], live: Live, *, dripping: bool) -> None:
    """Play a transcript; with ``dripping`` every byte is sent by itself."""
    talk = await live.connect()
    ends = b"\r\n"
    for step in steps:
        try:
            if step.kind == "send":
                data = b"".join(_bytes(line, ends) for line in step.lines)
                if dripping:
                    await talk.drip(data)
                else:
                    talk.send(data)
            elif step.kind == "expect":
                problem = difference(step.lines, await talk.reply())
                assert problem is None, problem
            else:
                talk, ends = await _do(step.lines, live, talk, ends)
        except (AssertionError, EOFError, TimeoutError) as error:
            raise AssertionError(f"{step.where}: {error!r}") from error
    await _nothing_more(talk)


async def _nothing_more(talk: Talk) -> None:
    """Fail if the server said more than the transcript expects."""
    if not talk.reader.at_eof():
        talk.send("Ping\r\nConnection: close\r\n\r\n")
        reply = await talk.reply()
        assert (reply.status, reply.body) == ("200 OK", ""), f"an answer too many: {reply}"


async def _do(words: tuple[str, ...], live: Live, talk: Talk, ends: bytes) -> tuple[Talk, bytes]:
    match words:
        case ("advance", seconds):
            live.advance(float(seconds))
        case ("waiting", count):
            await live.waiting(int(count))
        case ("closed",):
            rest = await talk.ended()
            assert rest == b"", f"expected the end of the connection, got {rest!r}"
        case ("half-close",):
            talk.end()
        case ("new", "connection"):
            await _nothing_more(talk)
            talk = await live.connect()
        case ("line", "ends", kind):
            ends = _ENDS[kind]
        case ("compatibility", _):
            pass
        case _:
            raise AssertionError(f"no such step: {' '.join(words)}")
    return talk, ends


def _bytes(line: str, ends: bytes) -> bytes:
    if line.startswith(">>"):
        return line[3:].encode()
    return line[2:].encode() + ends


def difference(expected: tuple[str, ...], reply: Reply) -> str | None:
    """Say how an answer differs from the expected lines; None where it does not."""
    status, *rest = expected
    at = rest.index("") if "" in rest else len(rest)
    headers, body = rest[:at], "\n".join(rest[at + 1 :])
    length = f"Content-Length: {len(reply.body.encode())}"
    wanted = [line.replace("Content-Length: {length}", length) for line in headers]
    found = [line for line in reply.lines if not line.startswith("error: ")]
    if (status, wanted) != (reply.status, found):
        return f"expected {status!r} {wanted}, got {reply}"
    if not _same(_value(body), _value(reply.body)):
        return f"expected the body {body!r}, got {reply.body!r}"
    return None


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_number, parse_float=_number, object_pairs_hook=_Pairs)
    except ValueError:
        return text.rstrip("\n")


class _Pairs(list[Any]):
    """The members of an object in their order; not equal to an array of pairs."""


def _number(text: str) -> tuple[str, str]:
    return ("number", text)


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, str) and isinstance(found, str):
        return re.fullmatch(_regex(expected), found, re.DOTALL) is not None
    if isinstance(expected, (list, tuple)):
        return (
            type(expected) is type(found)
            and len(expected) == len(found)
            and all(_same(one, other) for one, other in zip(expected, found, strict=True))
        )
    return type(expected) is type(found) and expected == found


def _regex(text: str) -> str:
    parts = _PLACE.split(text)
    places = [_PLACES[place] for place in _PLACE.findall(text)]
    return "".join(part for pair in zip(map(re.escape, parts), [*places, ""], strict=True) for part in pair)
