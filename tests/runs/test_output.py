"""The output of runs: appended, read while it grows, and its last lines kept with the run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bedrockjobs.base.config import (
    LIST_MAX,
    OUTPUT_KEPT_S,
    OUTPUT_LINE_CHARS_MAX,
    OUTPUT_LINES_PER_APPEND_MAX,
)
from tests.protocol.talk import Talk
from tests.runs.rig import LONG_MS, Site


@pytest.fixture
async def run(site: Site) -> dict[str, Any]:
    """Return a run in progress, the first."""
    await site.create("a")
    return await site.take("a")


async def append(site: Site, seq: int, *lines: Any) -> int:
    """Append lines to run 1; return the answer's seq."""
    return int((await site.ok("AppendOutput", runID=1, seq=seq, lines=list(lines)))["seq"])


async def read(site: Site, after: int = 0, **more: Any) -> dict[str, Any]:
    """Read run 1."""
    await site.settle()
    return dict(await site.ok("ReadOutput", runID=1, after=after, **more))


def numbered(answer: dict[str, Any]) -> list[tuple[int, str]]:
    """Return numbers and lines of an answer."""
    return [(line["seq"], line["line"]) for line in answer["lines"]]


async def test_lines_are_numbered_from_seq_on(site: Site, run: dict[str, Any]) -> None:
    assert await append(site, 1, "one", "two") == 2
    assert await append(site, 3, {"line": "three", "stream": "err"}, {"line": "four"}) == 4
    answer = await read(site)
    assert numbered(answer) == [(1, "one"), (2, "two"), (3, "three"), (4, "four")]
    assert [line["stream"] for line in answer["lines"]] == ["out", "out", "err", "out"]
    assert {line["at"][:19] for line in answer["lines"]} == {"2026-11-21 03:29:56"}
    assert (answer["status"], answer["ended"]) == ("running", False)


async def test_raw_requests_give_lines_too(site: Site, run: dict[str, Any]) -> None:
    reply = await site.ask("AppendOutput", runID=1, seq=1, lines='["a: b","c"]')
    assert (reply.status, reply.json) == ("200 OK", {"seq": 2})
    assert numbered(await read(site)) == [(1, "a: b"), (2, "c")]


async def test_numbers_already_stored_are_ignored(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one", "two")
    assert await append(site, 1, "ONE", "TWO") == 2
    assert await append(site, 2, "TWO", "three") == 3
    assert await append(site, 1) == 3
    assert numbered(await read(site)) == [(1, "one"), (2, "two"), (3, "three")]


async def test_a_gap_is_refused_with_the_expected_seq(site: Site, run: dict[str, Any]) -> None:
    assert await site.refused("AppendOutput", runID=1, seq=2, lines=["x"]) == (405, "Gap in output")
    await append(site, 1, *"abcdef")
    assert await site.refused("AppendOutput", runID=1, seq=8, lines=["x"]) == (405, "Gap in output")
    assert "7" in await site.detail("AppendOutput", runID=1, seq=9, lines=["x"])
    assert len((await read(site))["lines"]) == 6


async def test_refusals(site: Site, run: dict[str, Any]) -> None:
    assert (await site.refused("AppendOutput", runID=9, seq=1, lines=["x"]))[0] == 404
    assert await site.refused("ReadOutput", runID=9) == (404, "No run with this runID")
    assert await site.refused("AppendOutput", runID=1, seq=0, lines=["x"]) == (402, "Malformed seq")
    assert await site.refused("AppendOutput", runID=1, lines=["x"]) == (402, "Missing seq")
    assert await site.refused("AppendOutput", runID=1, seq=1) == (402, "Missing lines")
    assert await site.refused("AppendOutput", runID=1, seq=1, lines=[7]) == (402, "Malformed lines")
    bad = [{"line": "x", "stream": "log"}]
    assert await site.refused("AppendOutput", runID=1, seq=1, lines=bad) == (402, "Malformed lines")


@pytest.mark.parametrize("end", ["FinishJob", "FailJob", "RetryJob", "RequeueJobs"])
async def test_a_run_that_is_over_takes_no_more(site: Site, run: dict[str, Any], end: str) -> None:
    await append(site, 1, "one")
    if end == "RequeueJobs":
        await site.ok(end, jobIDs=[1])
    else:
        await site.end(end, run)
    assert await site.refused("AppendOutput", runID=1, seq=2, lines=["x"]) == (405, "Run is over")
    assert await site.refused("AppendOutput", runID=1, seq=1, lines=["one"]) == (405, "Run is over")
    answer = await read(site)
    assert numbered(answer) == [(1, "one")]
    assert answer["ended"] is True
    assert answer["status"] != "running"


async def test_reading_page_by_page(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, *(str(number) for number in range(1, 8)))
    assert [seq for seq, _ in numbered(await read(site, limit=3))] == [1, 2, 3]
    assert [seq for seq, _ in numbered(await read(site, 3, limit=3))] == [4, 5, 6]
    await site.finish(run)
    page = await read(site, 3, limit=3)
    assert ([seq for seq, _ in numbered(page)], page["ended"]) == ([4, 5, 6], False), "a line follows"
    page = await read(site, 6, limit=3)
    assert ([seq for seq, _ in numbered(page)], page["ended"]) == ([7], True)
    assert (await read(site, 7))["ended"] is True
    assert await site.refused("ReadOutput", runID=1, limit=LIST_MAX + 1) == (402, "Malformed limit")


async def tail(site: Site, after: int, timeout: int = LONG_MS) -> Talk:
    """Let a reader of run 1 wait."""
    return await site.posted("ReadOutput", runID=1, after=after, connection="wait", timeout=timeout)


async def test_a_waiting_reader_gets_the_next_line(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one")
    talk = await tail(site, 1)
    assert await talk.silent()
    await append(site, 2, "two", "three")
    answer = (await talk.reply()).json
    assert numbered(answer) == [(2, "two"), (3, "three")]
    assert answer["ended"] is False


async def test_what_is_there_is_read_at_once_also_with_wait(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one", "two")
    assert numbered((await (await tail(site, 1)).reply()).json) == [(2, "two")]


async def test_a_waiting_reader_is_not_woken_by_other_runs(site: Site, run: dict[str, Any]) -> None:
    await site.create("b")
    other = await site.take("b")
    talk = await tail(site, 0)
    await site.ok("AppendOutput", runID=other["runID"], seq=1, lines=["x"])
    await site.finish(other)
    assert await talk.silent()
    await append(site, 1, "mine")
    assert numbered((await talk.reply()).json) == [(1, "mine")]


@pytest.mark.parametrize("end", ["FinishJob", "FailJob", "RetryJob"])
async def test_a_waiting_reader_hears_of_the_end(site: Site, run: dict[str, Any], end: str) -> None:
    talk = await tail(site, 0)
    assert await talk.silent()
    await site.end(end, run)
    answer = (await talk.reply()).json
    assert (answer["lines"], answer["ended"]) == ([], True)
    assert answer["status"] == ("success" if end == "FinishJob" else "fail")


async def test_a_waiting_reader_hears_that_the_run_was_lost(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    talk = await tail(site, 0)
    assert await talk.silent()
    await site.silence(46)
    answer = (await talk.reply()).json
    assert (answer["status"], answer["ended"]) == ("frozen", True)


async def test_a_readers_wait_runs_out(site: Site, run: dict[str, Any]) -> None:
    talk = await tail(site, 0, timeout=2_000)
    await site.both(1.9)
    assert await talk.silent()
    await site.both(0.2)
    reply = await talk.reply()
    assert (reply.code, reply.json) == (200, {"lines": [], "status": "running", "ended": False})


async def test_many_readers_of_one_run(site: Site, run: dict[str, Any]) -> None:
    talks = [await tail(site, 0) for _ in range(20)]
    assert await talks[-1].silent()
    await append(site, 1, "one")
    for talk in talks:
        assert numbered((await talk.reply()).json) == [(1, "one")]


async def test_the_run_keeps_its_last_lines(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, *(f"line {number}" for number in range(1, 26)))
    await site.finish(run)
    kept = (await site.run(1))["output"]
    assert kept == [f"line {number}" for number in range(16, 26)]
    (row,) = await site.select("SELECT output || '' AS text FROM runs")
    assert json.loads(row["text"]) == kept


@pytest.mark.parametrize("count", [0, 3, 50])
async def test_output_lines_says_how_many(site: Site, count: int) -> None:
    await site.create("a", outputLines=count)
    job = await site.take("a")
    await append(site, 1, *(str(number) for number in range(1, 21)))
    await site.fail(job)
    assert (await site.run(1))["output"] == [str(n) for n in range(1, 21)][20 - min(count, 20) :]


async def test_a_lost_run_keeps_its_last_lines_too(site: Site) -> None:
    await site.create("a")
    await site.leased("a")
    await append(site, 1, "last words")
    await site.silence(46)
    assert (await site.run(1))["output"] == ["last words"]


async def test_a_long_line_is_cut(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "x" * (OUTPUT_LINE_CHARS_MAX + 1), "y" * OUTPUT_LINE_CHARS_MAX)
    lines = (await read(site))["lines"]
    assert [len(line["line"]) for line in lines] == [OUTPUT_LINE_CHARS_MAX] * 2


async def test_lines_are_kept_as_they_are(site: Site, run: dict[str, Any]) -> None:
    lines = ["", " ", "tab\there", "ü € 𝄞", 'quote " and \\', "\x1b[31mred\x1b[0m", "a\rb", "\u2028"]
    await append(site, 1, *lines)
    assert [line for _, line in numbered(await read(site))] == lines


async def test_lines_of_one_append(site: Site, run: dict[str, Any]) -> None:
    assert await append(site, 1, *["x"] * OUTPUT_LINES_PER_APPEND_MAX) == OUTPUT_LINES_PER_APPEND_MAX
    many = ["x"] * (OUTPUT_LINES_PER_APPEND_MAX + 1)
    assert await site.refused("AppendOutput", runID=1, seq=1, lines=many) == (402, "Malformed lines")


async def test_output_is_kept_for_a_day_after_the_end(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one")
    await site.later(3 * OUTPUT_KEPT_S)
    assert len((await read(site))["lines"]) == 1, "a run in progress keeps its lines"
    await site.finish(run)
    await site.later(OUTPUT_KEPT_S - 10)
    assert numbered(await read(site)) == [(1, "one")]
    await site.later(OUTPUT_KEPT_S)
    await site.finish(await site.take("b") if await site.create("b") else run)
    await site.later(OUTPUT_KEPT_S)
    assert await site.select("SELECT * FROM output WHERE runID = 1") == []
    assert (await site.run(1))["output"] == ["one"]


async def test_output_survives_a_crash(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one", "two")
    await site.crash()
    assert numbered(await read(site)) == [(1, "one"), (2, "two")]
    assert await append(site, 2, "two", "three") == 3


async def test_a_reader_sees_what_was_acknowledged(site: Site, run: dict[str, Any]) -> None:
    for number in range(1, 50):
        await append(site, number, str(number))
        assert (await site.ok("ReadOutput", runID=1, after=number - 1))["lines"][0]["seq"] == number


# --- server-sent events ----------------------------------------------------------------------------------


async def stream(site: Site, path: str, last: str = "") -> tuple[Talk, str]:
    """Open a stream of events; return the connection and the head of the answer."""
    talk = await site.connect()
    resume = f"Last-Event-ID: {last}\r\n" if last else ""
    talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{resume}\r\n")
    head = (await talk.reader.readuntil(b"\r\n\r\n")).decode()
    return talk, head


async def chunk_with(talk: Talk, *words: str) -> str:
    """Read a stream until all the words came."""
    text = ""
    while not all(word in text for word in words):
        data = await talk.reader.read(65_536)
        assert data, f"the stream ended after {text!r}"
        text += data.decode()
    return text


async def test_a_stream_of_output(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one", "two")
    talk, head = await stream(site, "/runs/1/output")
    assert " 200 " in head.splitlines()[0]
    assert "text/event-stream" in head
    text = await chunk_with(talk, "one", "two")
    assert "id: 1\n" in text.replace("\r", "")
    assert "id: 2\n" in text.replace("\r", "")
    await append(site, 3, "three")
    assert "id: 3\n" in (await chunk_with(talk, "three")).replace("\r", "")


async def test_a_stream_of_output_is_resumed(site: Site, run: dict[str, Any]) -> None:
    await append(site, 1, "one", "two", "three")
    talk, _ = await stream(site, "/runs/1/output", "2")
    text = await chunk_with(talk, "three")
    assert "one" not in text
    assert "two" not in text


async def test_a_stream_of_events(site: Site) -> None:
    await site.ok("PauseJobs", name="a*", by="ann")
    talk, head = await stream(site, "/events")
    assert "text/event-stream" in head
    await site.ok("ResumeJobs", name="a*")
    await chunk_with(talk, "resumed")


async def test_a_stream_of_events_is_resumed(site: Site) -> None:
    await site.ok("PauseJobs", name="a*")
    (event,) = await site.events("paused")
    await site.ok("PauseJobs", name="b*")
    talk, _ = await stream(site, "/events", str(event["seq"]))
    text = await chunk_with(talk, "b*")
    assert "a*" not in text
