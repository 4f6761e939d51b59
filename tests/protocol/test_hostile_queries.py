"""Hostile SQL ends in time, its process is replaced, and the server answers in the meantime."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, thread_time

import pytest

from bedrockjobs.base.config import QUERY_CHARS_MAX, QUERY_OVERTIME_S, QUERY_PROCESSES
from bedrockjobs.base.settings import Settings
from tests import late_queries
from tests.conftest import Live, Serve
from tests.effort import examples
from tests.engines import sqlite_only
from tests.pace import in_time, slowness
from tests.protocol import hostile_sql
from tests.protocol.talk import DEADLINE_S, post

pytestmark = [
    pytest.mark.asyncio(loop_factories=["uvloop"]),  # what becomes of a Query does not depend on it
    sqlite_only("about the processes that run SQLite's SQL; `test_free_query.py` tests PostgreSQL"),
]

BOUND_S = 1.5
"""Every Query has ended by then, whatever it says."""

PING_S = 0.25
"""Processor time that the loop may spend until it answers a Ping meanwhile."""

PING_EVERY_S = 0.02

TEXT_EACH = examples(10, night=1)
"""One in so many texts of each kind is tried: those of a kind end in the same ways."""

WORK_TICKS = 3
"""Hundredths of a second of processor time."""

STUCK = f"SELECT instr(hex(zeroblob({hostile_sql.LONG})), hex(zeroblob(4000000)) || '1');"
"""One call of one function, which SQLite never interrupts; it would take hours."""

ENDED = "query: it took longer than {:g} s, and its process was ended"


async def test_there_are_many_texts_and_the_bound_is_that_of_the_defaults() -> None:
    texts = [text for texts in hostile_sql.KINDS.values() for text in texts]
    assert len(set(texts)) == len(texts) >= 200
    assert max(map(len, texts)) == QUERY_CHARS_MAX
    assert Settings().query_s + 2 * QUERY_OVERTIME_S <= BOUND_S


@pytest.fixture(autouse=True)
def _as_many_as_by_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("bedrockjobs.store.reader.QUERY_PROCESSES", QUERY_PROCESSES)
    with late_queries.at_once():
        yield


def processes() -> set[int]:
    """Return the pids of the processes of Query that this process has."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in children if "store.sandbox" in _text(f"/proc/{pid}/cmdline")}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # it ended meanwhile
        return ""


def _has_a_database(pid: int) -> bool:
    with suppress(OSError):
        return any(str(file.readlink()).endswith(".db") for file in Path(f"/proc/{pid}/fd").iterdir())
    return False


async def replaced(live: Live, before: set[int]) -> set[int]:
    """Wait until there are as many processes as there should be, ready, none of ``before``; return them."""
    await live.until(
        lambda: (
            len(found := processes()) == QUERY_PROCESSES
            and not found & before
            and all(map(_has_a_database, found))
        )
    )
    return processes()


async def at_work(live: Live, pids: set[int]) -> None:
    """Wait until processes that were ready compute."""

    def ticks(pid: int) -> int:
        return int(_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[11])

    before = {pid: ticks(pid) for pid in pids}
    await live.until(lambda: all(ticks(pid) >= before[pid] + WORK_TICKS for pid in pids))


@pytest.mark.parametrize("kind", hostile_sql.KINDS)
async def test_every_text_ends_in_time_and_the_server_answers_meanwhile(serve: Serve, kind: str) -> None:
    live = await serve(query_s=0.1)
    for number in range(30):
        await live.ask("CreateJob", name=f"j{number}", data=f'{{"n":{number}}}')
    texts = iter(hostile_sql.KINDS[kind][::TEXT_EACH])
    took: list[tuple[float, str]] = []
    pings: list[float] = []

    async def ask() -> None:
        talk, beside = await live.connect(), await live.connect()
        for text in texts:
            began = monotonic()
            talk.send(post("Query", {"query": text}))
            reply = asyncio.ensure_future(talk.reply())
            while not reply.done():
                pinged = thread_time()
                assert (await beside.ask("Ping")).code == 200
                pings.append(thread_time() - pinged)
                await asyncio.wait({reply}, timeout=PING_EVERY_S)
            took.append((monotonic() - began, text[:80]))
            assert reply.result().code in (200, 400, 504), (text[:200], reply)
            assert "SIGKILL" not in reply.result().body, "it stops, or ends itself"

    await asyncio.gather(*(ask() for _ in range(QUERY_PROCESSES)))
    assert in_time(max(took)[0], BOUND_S), max(took)
    assert max(pings) / slowness() < PING_S
    assert (await live.ask("Query", query="SELECT count(*) FROM jobs;")).json == [[30]]


async def test_a_function_that_never_stops_is_ended_and_its_process_replaced(serve: Serve) -> None:
    live = await serve(query_s=0.1)
    assert (await live.ask("Query", query="SELECT 1;")).code == 200
    before = await replaced(live, set())
    stuck = [asyncio.ensure_future(live.ask("Query", query=STUCK)) for _ in before]
    waiting = asyncio.ensure_future(live.ask("Query", query="SELECT 2;"))
    for reply in await asyncio.gather(*stuck):
        assert (reply.status, reply.headers["error"]) == ("555 Timeout", ENDED.format(0.1))
    assert (await waiting).json == [[2]], "who waited gets a new process"
    await replaced(live, before)
    assert (await live.http("Query", {"query": STUCK})).code == 504


async def test_a_text_that_is_only_slow_is_stopped_and_its_process_stays(serve: Serve) -> None:
    live = await serve(query_s=0.2)
    before = await replaced(live, set())
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n;"
    for _ in range(2):
        reply = await live.ask("Query", query=endless)
        assert (reply.status, reply.headers["error"]) == ("555 Timeout", "query: it took too long")
    assert processes() == before


async def test_an_error_does_not_quote_a_whole_text(live: Live) -> None:
    reply = await live.ask("Query", query=f"SELECT {'x' * 90_000};")
    assert reply.status == "402 Bad query"
    assert reply.headers["error"].startswith("no such column: xxx")
    assert len(reply.headers["error"]) < 1_000


async def test_memory_is_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.reader.QUERY_MEMORY_BYTES_MAX", 32 * 1024 * 1024)
    live = await serve()
    large = f"SELECT length(hex(zeroblob({hostile_sql.LONG})));"
    reply = await live.ask("Query", query=large)
    assert reply.status == "502 Query aborted"
    assert reply.headers["error"] == "query: expected a SELECT that takes less memory"
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]
    for pid in await replaced(live, set()):
        (limit,) = [
            line.split()
            for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
            if line.startswith("Max address space")
        ]
        assert int(limit[3]) < 2 * 32 * 1024 * 1024


async def test_what_is_large_is_within_the_usual_memory(live: Live) -> None:
    large = f"SELECT length(hex(zeroblob({hostile_sql.LONG})));"
    assert (await live.ask("Query", query=large)).json == [[2 * hostile_sql.LONG]]


async def test_processes_that_somebody_kills_are_replaced(live: Live) -> None:
    before = await replaced(live, set())
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    between = await replaced(live, before)
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]
    stuck = [asyncio.ensure_future(live.ask("Query", query=STUCK)) for _ in between]
    await at_work(live, between)
    for pid in between:
        os.kill(pid, signal.SIGKILL)
    for reply in await asyncio.gather(*stuck):
        words = "query: the process that ran it ended: SIGKILL"
        assert (reply.status, reply.headers["error"]) == ("502 Query aborted", words)
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]


async def test_a_process_that_stands_still_is_replaced(serve: Serve) -> None:
    live = await serve(query_s=2)
    before = await replaced(live, set())
    asked = [asyncio.ensure_future(live.ask("Query", query=STUCK)) for _ in before]
    await at_work(live, before)
    for pid in before:
        os.kill(pid, signal.SIGSTOP)  # it does not end itself any more
    for reply in await asyncio.gather(*asked):
        assert (reply.status, reply.headers["error"]) == ("555 Timeout", ENDED.format(2))
    await replaced(live, before)
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]


async def test_without_processes_there_is_no_query_and_all_else_goes_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    live = await serve()
    reply = await live.ask("Query", query="SELECT 1;")
    assert (reply.status, reply.headers["error"]) == (
        "503 No process for Query",
        "none can be started: exit status 1",
    )
    assert (await live.ask("CreateJob", name="a")).json == {"jobID": 1}
    assert len((await live.ask("ListJobs")).json["jobs"]) == 1
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while (await live.ask("Query", query="SELECT count(*) FROM jobs;")).status != "200 OK":
            await asyncio.sleep(0)


async def test_modules_in_the_current_folder_are_not_run(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "resource", "bedrockjobs", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    live = await serve()
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]
    assert not (tmp_path / "ran").exists()


async def test_a_server_that_stops_refuses_who_waits_and_leaves_no_process(serve: Serve) -> None:
    live = await serve(query_s=1)
    before = await replaced(live, set())
    asked = [asyncio.ensure_future(live.ask("Query", query=STUCK)) for _ in range(5)]
    await live.until(lambda: live.server.service.connections == len(asked))
    await at_work(live, before)
    async with asyncio.timeout(DEADLINE_S):
        await live.server.stop()
    found = sorted(reply.status for reply in await asyncio.gather(*asked))
    assert found == ["503 Server is stopping"] * 3 + ["555 Timeout"] * 2
    assert not processes()
