"""Any text in any attribute of any command, over both protocols, is stored or refused, without side effects.

On PostgreSQL two servers share the database; no text may stop their notifications.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin
from urllib.parse import quote, urlencode

import pytest
from pydantic import BaseModel

from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import COMMANDS
from bedrockjobs.server import Server
from tests.conftest import Live, begin
from tests.effort import examples
from tests.postgresql.test_peers import date, rows, start
from tests.postgresql.test_tokens_shared import pair_of
from tests.protocol.talk import DEADLINE_S, Reply, Talk

__all__ = ["date", "start"]

LONG_CHARS = examples(100_000, night=1_000_000)
"""Length of a text that is longer than any name may be, and than a line of a head."""

TEXTS = {
    "NUL": "w\0",
    "escape": "\x1b[2J",
    "line end": "a\nb: c",
    "lone surrogate": "\ud800x",
    "astral": "\u00a0\U0001f600",
    "very long": "x" * LONG_CHARS,
}

CONTROLS = {"return": "a\rb", "tab": "a\tb", "delete": "a\x7fb", "next line": "a\x85b"}
"""Other control characters: an attribute gets one of them in turn, by day every second one."""

KINDS = list(TEXTS)

AS_JSON = {kind: json.dumps(text) for kind, text in TEXTS.items()}
"""They are encoded once: for a very long text that takes as long as its request."""

ANY = "any text"
"""Stands for a text in a request that is encoded once for all."""

FREE = {
    "cmd",
    "argv",
    "note",
    "reason",
    "error",
    "unfit",
    "output",
    "lines",
    "data",
    "progress",
    "body",
    "query",
    "text",
    "jobs",
    "schedules",
    "rules",
    "token",
    "conditions",
    "connection",
    "repeat",
}
"""Attributes that are no names: programs, and texts of people and programs."""


AN_ELEMENT = {"name": "n", "on": ["failed"], "to": "https://example.org", "jobID": 1}
"""An element of any list of objects: names that it does not know are passed over."""


class Spot(NamedTuple):
    """A text attribute of a command, possibly nested."""

    command: str
    path: tuple[str | int, ...]

    @property
    def name(self) -> str:
        """Return the name of the innermost attribute."""
        return next(str(part) for part in reversed(self.path) if isinstance(part, str))

    def request(self, text: str) -> dict[str, Any]:
        """Return the command's example as a request, with a text at this spot."""
        given: Any = json.loads(json.dumps(COMMANDS[self.command].example.request))
        at, key = given, self.path[0]
        given.setdefault(key, None)
        for part in self.path[1:]:
            if isinstance(part, int):
                if not isinstance(at[key], list) or not at[key]:
                    at[key] = [dict(AN_ELEMENT)]
            elif not isinstance(at[key], dict):
                at[key] = {"url": "http://a"}
            at, key = at[key], part
            if isinstance(at, dict):
                at.setdefault(key, None)
        at[key] = text
        return given  # type: ignore[no-any-return]


def spots() -> Iterator[Spot]:
    """Yield every text attribute of every command."""
    for name, kind in COMMANDS.items():
        for path in _paths(kind):
            yield Spot(name, path)


def _paths(kind: type[BaseModel]) -> Iterator[tuple[str | int, ...]]:
    for field, info in kind.model_fields.items():
        for path in _inside(info.annotation):
            yield (wire_name(field), *path)


def _inside(annotation: Any) -> Iterator[tuple[str | int, ...]]:
    """Yield where texts may stand inside a value of a type."""
    if annotation in (str, Any):
        yield ()
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _paths(annotation)
    elif get_origin(annotation) in (list, tuple):
        first = get_args(annotation)[0]
        yield from ((0, *path) for path in _inside(first))
    elif get_origin(annotation) is dict:
        yield ("key",)
    else:
        found = dict.fromkeys(path for part in get_args(annotation) for path in _inside(part))
        yield from found


QUERIES = {
    **{kind: quote(text) for kind, text in TEXTS.items() if kind not in ("lone surrogate", "very long")},
    "surrogate in UTF-8": "%ED%A0%80x",
    "no UTF-8": "%FF",
    "no escape": "%zz%",
}
"""The same in the query string of a GET."""

AS_WRITTEN = {"astral", "tab", "next line", "surrogate in UTF-8", "no UTF-8", "no escape"}
"""Texts that a name may be; of a query string, what cannot be decoded is taken as it is written."""

LONG = "very long in a query"
"""It is refused before it was read; the end of the connection may overtake the answer."""


def requests(spot: Spot, turn: int) -> Iterator[tuple[str, bytes]]:
    """Yield requests with each text at a spot, over both protocols: as JSON, header, form and query string.

    ``turn`` decides which protocol takes a text as JSON, and which text stands in a header; at night both
    protocols take each, and each stands there.
    """
    verb = spot.command.encode()
    begin, end = json.dumps(spot.request(ANY)).split(json.dumps(ANY))
    for at, (kind, text) in enumerate(TEXTS.items(), turn):
        body = f"{begin}{AS_JSON[kind]}{end}".encode()
        # A raw body that is not JSON is ignored.
        both = (posted(verb, body), posted(verb, body) if kind == "lone surrogate" else raw(verb, body))
        yield from ((kind, both[(at + more) % 2]) for more in range(examples(1, night=2)))
        if kind == "very long":
            continue
        if len(spot.path) == 1 and at % 3 < examples(1, night=3):
            name = spot.name.encode()
            yield kind, b"%s\r\n%s: %s\r\n\r\n" % (verb, name, AS_JSON[kind][1:-1].encode())
        if len(spot.path) == 1 and kind == "NUL":
            yield kind, b"%s\r\n%s: %s\r\n\r\n" % (verb, spot.name.encode(), text.encode())
            form = urlencode({spot.name: text}).encode()
            yield kind, posted(verb, form, b"Content-Type: application/x-www-form-urlencoded\r\n")
    if turn % 2 < examples(1, night=2):
        control = list(CONTROLS)[turn // 2 % len(CONTROLS)]
        yield control, posted(verb, f"{begin}{json.dumps(CONTROLS[control])}{end}".encode())
    if COMMANDS[spot.command].reads and len(spot.path) == 1:
        name = str(spot.path[0])
        required = {key: value for key, value in spot.request("").items() if key != name}
        for kind, query in QUERIES.items():
            yield kind, got(verb, f"{urlencode(required)}&{name}={query}")
        if spot.path == next(_paths(COMMANDS[spot.command])):  # it is refused whatever the attribute
            yield LONG, got(verb, f"{name}={TEXTS['very long']}")
    for header in COMMANDS[spot.command].headers:
        yield "byte", posted(verb, b"{}", b"%s: \xff\r\n" % header.encode())


def raw(verb: bytes, body: bytes) -> bytes:
    """Return a raw request."""
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (verb, len(body), body)


def posted(verb: bytes, body: bytes, lines: bytes = b"Content-Type: application/json\r\n") -> bytes:
    """Return an HTTP request."""
    head = b"POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n"
    return head % (verb, len(body), lines) + body


def got(verb: bytes, query: str) -> bytes:
    """Return a GET."""
    return b"GET /%s?%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (verb, query.encode())


class Asker:
    """A client of one server, with one connection for each protocol."""

    def __init__(self, live: Live) -> None:
        """Connect with the first request."""
        self._live = live
        self._talks: dict[bool, Talk] = {}

    async def ask(self, data: bytes) -> Reply:
        """Send a request and return its reply; a closed connection is opened again for the next request."""
        if data.startswith(b"GET ") and len(data) > len(TEXTS["very long"]):
            return await self._refused(data)
        http = data.startswith(b"GET ") or b"HTTP/1.1" in data[:100]
        if http not in self._talks:
            self._talks[http] = await self._live.connect()
        self._talks[http].send(data)
        reply = await self._talks[http].reply()
        if reply.headers.get("connection") == "close":
            del self._talks[http]
        return reply

    async def _refused(self, data: bytes) -> Reply:
        """Send a request whose first line is too long."""
        talk = await self._live.connect()
        try:
            talk.send(data)
            return await talk.reply()
        except ConnectionError:
            return Reply("HTTP/1.0 400 Bad Request", (), "")
        finally:
            await talk.close()


async def walk(servers: list[Live], *, first: int) -> None:
    """Send every text in every attribute, to the servers alternately, and check that names are refused.

    Each text takes the other protocol than the one before. By day a walk sends two texts out of four, which
    ``first`` chooses: another walk sends the others.
    """
    wrong = []
    count = 0
    askers = [Asker(live) for live in servers]
    for turn, spot in enumerate(spots(), first):
        for kind, data in requests(spot, turn):
            if kind in TEXTS and (turn + KINDS.index(kind)) % 4 >= examples(2, night=4):
                continue
            count += 1
            reply = await askers[count % len(askers)].ask(data)
            failed = reply.code >= 500 and spot.command != "Query"  # whose refusals are 502
            refusable = (
                spot.name not in FREE and kind not in AS_WRITTEN and (spot.name, kind) != ("key", "very long")
            )
            if failed or (refusable and reply.code not in (400, 401, 402, 414)):
                wrong.append(f"{spot} {kind}: {reply.status} to {data[:40]!r}")
        if spot.command == "PauseJobs":
            for live in servers:
                await live.ask("ResumeJobs", all="true")
    hint = "give the attribute a type such as OneLine, or add it to FREE if it may be any text"
    assert not wrong, "\n".join([f"{len(wrong)} of {count}: {hint}", *wrong[:50]])
    assert count > 1_000
    for live in servers:
        assert (await live.ask("Ping")).code == 200


FAULTS = ("cannot be reached", "an exchange with the other servers failed", "was lost", "are not told of")
"""What a server logs that does not get through to the others."""


async def test_no_text_stops_two_servers_on_postgresql(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        servers = await pair_of(stack)
        await walk(servers, first=0)
        await passes_heartbeats_on(servers, "mine")
        await passes_heartbeats_on(servers[::-1], "yours")
    assert not [each for each in caplog.messages if any(words in each for words in FAULTS)]


async def passes_heartbeats_on(servers: list[Live], name: str) -> None:
    """Check that a heartbeat at one server reaches the other."""
    one, other = servers
    await one.ask("CreateJob", name=name)
    taken = await one.ask("GetJob", name=name, worker=f"steady/{name}", heartbeat=True)
    run_id = taken.json["runID"]
    sql = f"SELECT beat FROM runs WHERE runID = {run_id}"
    assert (await other.ask("Heartbeat", worker=f"steady/{name}", runIDs=run_id)).code == 200
    async with asyncio.timeout(DEADLINE_S):
        while rows(sql) == [("",)]:
            await asyncio.sleep(0.05)
        while f"steady/{name}" not in (await other.ask("ListWorkers")).body:
            await asyncio.sleep(0.05)


async def test_no_text_stops_a_server_on_a_file(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = Server(Settings(port=0, database=str(tmp_path / "jobs.db")))
        await begin(server)
        stack.push_async_callback(server.stop)
        await walk([Live(server, stack)], first=2)
