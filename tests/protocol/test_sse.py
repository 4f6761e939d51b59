"""Streams of server-sent events: their content, how they resume, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.protocol import sse
from bedrockjobs.views import Views, output_topic
from tests.protocol.streams import AT, STREAM, Block, Site, open_site
from tests.protocol.talk import DEADLINE_S

Open = Callable[..., Awaitable[Site]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Open]:
    """Return a function that starts a site; options of ``routes`` are its named arguments."""
    async with AsyncExitStack() as stack:
        yield partial(open_site, tmp_path / "jobs.db", stack)


@pytest.fixture
async def site(start: Open) -> Site:
    """Return a site as a server has it."""
    return await start()


# --- output ----------------------------------------------------------------------------------------------


async def test_a_stream_carries_what_there_is_what_comes_and_the_end(site: Site) -> None:
    site.run()
    site.line(1, 'one "1"\r\ntwo')
    stream = await site.stream("/runs/5/output")
    (first,) = await stream.blocks(1)
    assert (first["id"], first["event"]) == ("1", "line")
    assert first.data == {"seq": 1, "at": AT, "stream": "out", "line": 'one "1"\r\ntwo'}
    await site.listeners(1)
    site.line(2, "Grüße")
    site.line(3, "x")
    assert [block.data["line"] for block in await stream.blocks(2)] == ["Grüße", "x"]
    site.end("killed")
    (end,) = await stream.blocks(1)
    assert (end["event"], end.data) == ("end", {"status": "killed"})
    assert await stream.block() is None
    await site.listeners(0)


async def test_a_stream_of_a_run_that_is_over_ends_at_once(site: Site) -> None:
    site.run(status="fail")
    site.line(1, "a")
    stream = await site.stream("/runs/5/output")
    assert [block["event"] for block in await stream.blocks(2)] == ["line", "end"]
    assert await stream.block() is None


async def test_a_stream_goes_on_where_it_was_left(site: Site) -> None:
    site.run(status="success")
    for seq in range(1, 6):
        site.line(seq, f"{seq}")
    for where, headers, expected in (
        ("/runs/5/output?after=3", {}, ["4", "5"]),
        ("/runs/5/output", {"Last-Event-ID": "2"}, ["3", "4", "5"]),
        ("/runs/5/output?after=1", {"Last-Event-ID": "4"}, ["5"]),
        ("/runs/5/output", {"Last-Event-ID": "5"}, []),
    ):
        stream = await site.stream(where, **headers)
        found = await stream.blocks(len(expected) + 1)
        assert [block["id"] for block in found[:-1]] == expected
        assert found[-1]["event"] == "end"


async def test_a_long_output_is_written_page_by_page(site: Site) -> None:
    site.run(status="success")
    count = sse.STREAM_ROWS_MAX * 2 + 1
    site.lines([(n, "") for n in range(1, count + 1)])
    stream = await site.stream(f"/runs/5/output?limit={LIST_MAX}")
    found = await stream.blocks(count + 1)
    assert [block["id"] for block in found[:-1]] == [str(n) for n in range(1, count + 1)]
    assert found[-1]["event"] == "end"


async def test_a_slow_reader_holds_its_stream_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.run(status="success")
    lines = 20_000
    site.db.execute("BEGIN")
    rows = [(n, "x" * 1_000) for n in range(1, lines + 1)]
    site.lines(rows)
    site.db.execute("COMMIT")
    read: list[int] = []
    whole = Views.output

    async def output(views: Views, command: Any, **options: Any) -> Any:
        read.append(command.after)
        return await whole(views, command, **options)

    monkeypatch.setattr(Views, "output", output)
    stream = await site.stream("/runs/5/output")
    before = -1
    async with asyncio.timeout(DEADLINE_S):
        while len(read) != before:  # nothing is read from the stream: its pages come to a halt
            before = len(read)
            await asyncio.sleep(0.3)
    assert before * sse.STREAM_ROWS_MAX < lines * 0.75, "the server read on although its client did not"
    found = await stream.blocks(lines + 1)
    assert [found[-2]["id"], found[-1]["event"]] == [str(lines), "end"]


# --- events ----------------------------------------------------------------------------------------------


async def test_events_are_streamed_by_kind_and_number(site: Site) -> None:
    site.event(1, "server started")
    stream = await site.stream("/events")
    (first,) = await stream.blocks(1)
    assert (first["id"], first["event"]) == ("1", "server started")
    assert first.data == {
        "seq": 1,
        "at": AT,
        "kind": "server started",
        "name": "",
        "jobID": 0,
        "runID": 0,
        "by": "",
        "detail": "",
    }
    await site.listeners(1)
    site.event(2, "paused", "a*")
    (second,) = await stream.blocks(1)
    assert (second["id"], second.data["name"]) == ("2", "a*")


async def test_events_from_now_on_begin_with_where_that_is(site: Site) -> None:
    site.event(7)
    stream = await site.stream("/events?after=-1")
    assert await stream.block() == {"": "7", "id": "7"}
    site.event(8)
    assert (await stream.blocks(1))[0]["id"] == "8"


async def test_events_are_filtered_and_the_number_moves_on_all_the_same(start: Open) -> None:
    site = await start(keep_alive_s=0.05)
    site.event(1, "paused", "a")
    stream = await site.stream("/events?kind=lost&name=b*")
    assert (await stream.block() or Block())["id"] == "1"
    site.event(2, "lost", "a")
    site.event(3, "lost", "b/1")
    site.event(4, "paused", "b/1")
    (found,) = await stream.blocks(1)
    assert (found["id"], found["event"]) == ("3", "lost")
    while (await stream.block() or Block())["id"] != "4":
        pass


async def test_a_quiet_stream_is_kept_alive(start: Open) -> None:
    assert sse.KEEP_ALIVE_S == 15
    site = await start(keep_alive_s=0.02)
    site.run()
    site.line(1, "a")
    for where in ("/runs/5/output", "/events"):
        stream = await site.stream(where)
        found = [await stream.block() for _ in range(4)]
        assert all(block is not None for block in found)
        assert all("" in (block or {}) for block in found[1:])
        stream.response.close()


# --- ends and refusals -----------------------------------------------------------------------------------


async def test_a_drain_ends_the_streams(site: Site) -> None:
    site.run()
    output = await site.stream("/runs/5/output")
    events = await site.stream("/events")
    await site.listeners(2)
    site.notifier.end()
    for stream in (output, events):
        while (block := await stream.block()) is not None:
            assert "event" not in block
    late = await site.stream("/events")
    while await late.block() is not None:
        pass


async def test_a_client_that_goes_away_ends_its_stream(start: Open) -> None:
    site = await start(streams_max=1)
    stream = await site.stream("/events")
    await site.listeners(1)
    assert (await site.get("/events", **STREAM)).status == 429
    stream.response.close()
    await site.listeners(0)
    assert await site.stream("/events")


async def test_streams_are_limited(start: Open) -> None:
    assert sse.STREAMS_MAX >= 100
    site = await start(streams_max=2)
    site.run()
    for where in ("/events", "/runs/5/output"):
        await site.stream(where)
    refused = await site.get("/events", **STREAM)
    assert refused.status == 429
    assert (await refused.json(content_type=None))["reason"] == "Too many streams"
    assert (await site.get("/events")).status == 200, "a page is no stream"


async def test_a_run_that_goes_while_it_is_followed_ends_its_stream(site: Site) -> None:
    site.run()
    stream = await site.stream("/runs/5/output")
    await site.listeners(1)
    site.db.execute("DELETE FROM runs")
    site.notifier.notify(output_topic(5))
    assert await stream.block() == {"": "0", "id": "0"}
    assert await stream.block() is None
    gone = await site.get("/runs/5/output", **STREAM)
    assert gone.status == 404
    assert (await gone.json(content_type=None))["reason"] == "No run with this runID"


@pytest.mark.parametrize(
    ("where", "headers", "reason"),
    [
        ("/runs/x/output", {}, "Malformed runID"),
        ("/runs/5/output?after=-1", {}, "Malformed after"),
        ("/events?limit=0", {}, "Malformed limit"),
        ("/events?nonsense=1", {}, "Unknown attribute nonsense"),
        ("/events", {"Last-Event-ID": "1x"}, "Malformed Last-Event-ID"),
        ("/events", {"Last-Event-ID": "-1"}, "Malformed Last-Event-ID"),
        ("/events", {"Last-Event-ID": "1" * 19}, "Malformed Last-Event-ID"),
    ],
)
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
async def test_bad_requests_are_refused(
    site: Site, where: str, headers: dict[str, str], reason: str, accept: str
) -> None:
    refused = await site.get(where, Accept=accept, **headers)
    assert refused.status == 400
    assert (await refused.json(content_type=None))["reason"] == reason


async def test_who_asks_for_no_stream_gets_a_page(site: Site) -> None:
    site.run()
    site.line(1, "a")
    site.event(4)
    output = await (await site.get("/runs/5/output?runID=9")).json()
    assert (output["lines"][0]["line"], output["ended"]) == ("a", False)
    assert [event["seq"] for event in (await (await site.get("/events?limit=1")).json())["events"]] == [4]
    waited = await (await site.get("/events?after=4&connection=wait&timeout=10")).json()
    assert waited == {"events": []}
