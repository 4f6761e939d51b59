"""Servers that share a database: membership, notifications, and who does maintenance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, ManualClock, timestamp_ms
from bedrockjobs.base.config import AWAY_S, LEASE_S_DEFAULT, SERVER_GONE_S, WATCH_EVERY_S, WATCHED_EVERY_S
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine import batch, cluster, maintenance
from bedrockjobs.engine.cluster import (
    EXCHANGE_EVERY_S,
    NOTIFICATION_CHARS_MAX,
    NOTIFICATIONS_MERGED_S,
    ClusterMember,
)
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import EVENTS, Listeners, Notifier, output_topic
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.engine.workers import SharedWorkers
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.base import NameTaken
from bedrockjobs.store.postgresql.peers import PostgreSQLPeers
from tests.conformance.engine import START
from tests.pace import in_time
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.protocol.talk import DEADLINE_S
from tests.submitting import submit


class LivingClock(ManualClock):
    """A clock with a standing date and real monotonic seconds, so that timeouts expire."""

    monotonic = staticmethod(monotonic)


def rows(sql: str) -> list[Any]:
    """Return rows of the database, over a separate connection."""
    with CLUSTER.connection(SCHEMA) as connection:
        return connection.execute(sql).fetchall()


class Peer:
    """One of several servers, without a network."""

    def __init__(self, name: str, clock: Clock) -> None:
        """Connect it to the existing tables."""
        self.name = name
        self.engine = CLUSTER.another(clock)
        self.workers = SharedWorkers(clock, clock)
        self.notifier = Notifier()
        stats = Stats()
        listeners = Listeners([self.workers, stats, self.notifier])
        self.failed: list[Exception] = []
        self.dispatcher = Dispatcher(
            self.engine,
            clock,
            Settings(),
            self.failed.append,
            workers=self.workers,
            minutes=stats,
            listeners=listeners,
        )
        self.line = PostgreSQLPeers(CLUSTER.url, SCHEMA, name, self.engine.id, clock)
        self.neighbourhood = ClusterMember(
            self.line, self.workers, self.notifier, self.dispatcher.note_ready, self.dispatcher.poke
        )
        listeners.add(self.neighbourhood)

    async def start(self) -> None:
        """Join the others."""
        await self.neighbourhood.join(self.name, "1")
        self.dispatcher.start()
        await self.dispatcher.settle()

    async def stop(self) -> None:
        """Shut down like a server."""
        await self.neighbourhood.leave_cluster()
        self.workers.end()
        await self.dispatcher.drain()
        await self.dispatcher.end()
        self.engine.close()
        assert not self.failed

    async def die(self) -> None:
        """End like a killed server, without a message to the others."""
        self.neighbourhood._left = True
        assert self.neighbourhood._pulse is not None
        self.neighbourhood._pulse.cancel()
        await asyncio.wait({self.neighbourhood._pulse})
        await self.line.close()
        self.engine.session.end()  # a transaction that was under way does not connect again

    def send(self, command: c.Command[Any]) -> asyncio.Future[Outcome]:
        """Submit a command; the future gets its outcome."""
        return submit(self.dispatcher, command)

    async def ask(self, command: c.Command[Any]) -> Any:
        """Execute a command, which must succeed; return its body."""
        outcome = await asyncio.wait_for(self.send(command), DEADLINE_S)
        assert isinstance(outcome, Answer), outcome
        return jsontext.parse(outcome.body) if outcome.body else None

    async def take(self, name: str, worker: str) -> Any:
        """Take a job for a worker that sends heartbeats."""
        return await self.ask(c.GetJob(name=name, worker=worker, heartbeat=True))

    async def beat(self, worker: str, *runs: int, wait_ms: int = 0, by: str = "", **more: Any) -> Any:
        """Send a heartbeat by a token; return the reply."""
        command = c.Heartbeat(
            worker=worker, run_ids=runs, timeout=wait_ms, connection="wait" if wait_ms else None, **more
        )
        return jsontext.parse(await asyncio.wait_for(self.workers.heartbeat(command, by), DEADLINE_S))

    def told(self) -> list[Any]:
        """Return the events of the database: kind, name, detail."""
        return rows("SELECT kind, name, detail FROM events ORDER BY seq")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Yield to the event loop until a condition is true."""
        deadline = monotonic() + DEADLINE_S
        while not condition():
            assert monotonic() < deadline
            await asyncio.sleep(0.001)


Start = Callable[..., Any]


@pytest.fixture
def date() -> LivingClock:
    """Return the date of all servers."""
    return LivingClock(START)


@pytest.fixture
async def start(date: LivingClock) -> AsyncIterator[Start]:
    """Return a function that starts a server with a name, the first on an empty database."""
    peers: list[Peer] = []
    CLUSTER.empty(SCHEMA)

    async def start(*names: str) -> Any:
        begun = [Peer(name, date) for name in names]
        for peer in begun:
            await peer.start()
            peers.append(peer)
        for peer in begun:
            await peer.until(lambda peer=peer: {*names} <= {row.name for row in peer.workers.servers})  # type: ignore[misc]
        return begun if len(begun) > 1 else begun[0]

    yield start
    for peer in peers:
        if peer.engine.session.is_open:
            await peer.stop()


async def test_a_job_created_at_one_server_reaches_who_waits_at_another(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "poll", lambda *_: None)  # no server polls
    a, b = await start("a", "b")
    waiting = a.send(c.GetJob(name="mail*", connection="wait"))
    await a.until(lambda: a.dispatcher.waiting == 1)
    await b.ask(c.CreateJob(name="mail/1"))
    assert '"jobID":1,' in (await asyncio.wait_for(waiting, DEADLINE_S)).body


async def test_what_went_unheard_is_found_by_looking(start: Start) -> None:
    a, b = await start("a", "b")
    waiting = a.send(c.GetJob(name="mail*", connection="wait"))
    await a.until(lambda: a.dispatcher.waiting == 1)
    a.line.on_notification = lambda text: None
    began = monotonic()
    await b.ask(c.CreateJob(name="mail/1"))
    assert '"jobID":1,' in (await asyncio.wait_for(waiting, DEADLINE_S)).body
    assert in_time(monotonic() - began, WATCH_EVERY_S * 8)


async def test_what_is_resumed_at_one_server_is_served_at_another(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "poll", lambda *_: None)
    a, b = await start("a", "b")
    await b.ask(c.PauseJobs(name="mail*"))
    await b.ask(c.CreateJob(name="mail/1"))
    waiting = a.send(c.GetJob(name="mail*", connection="wait"))
    await a.until(lambda: a.dispatcher.waiting == 1)
    await b.ask(c.ResumeJobs(name="mail*"))
    assert '"jobID":1,' in (await asyncio.wait_for(waiting, DEADLINE_S)).body


async def test_waiters_of_two_servers_share_the_starts_of_a_key(start: Start, date: LivingClock) -> None:
    """Each server sees when the next start is, also where the other one has used the last."""
    a, b = await start("a", "b")
    await a.ask(c.SetLimit(name="api/*", starts="4/1m", burst=1, per_key=True))
    waiting = [peer.send(c.GetJob(name="api/*", connection="wait")) for peer in (a, a, b, b)]
    await a.until(lambda: a.dispatcher.waiting == b.dispatcher.waiting == 2)
    jobs = [{"name": "api/x", "concurrencyKey": "k", "concurrencyLimit": 9}] * 4
    await b.ask(c.CreateJobs.read({"jobs": jobs}))
    for number in range(1, 5):
        await a.until(lambda number=number: sum(each.done() for each in waiting) == number)  # type: ignore[misc]
        for peer in (a, b):
            await peer.ask(c.ListLimits())
        assert sum(each.done() for each in waiting) == number
        date.advance(15.001)
        a.dispatcher.poke()
        b.dispatcher.poke()
    assert sorted(jsontext.parse(each.result().body)["jobID"] for each in waiting) == [1, 2, 3, 4]


async def test_followers_hear_of_events_and_output_at_another_server(start: Start) -> None:
    a, b = await start("a", "b")
    await b.ask(c.CreateJob(name="x"))
    run = (await b.take("x", "w"))["runID"]
    with a.notifier.listen(EVENTS) as events, a.notifier.listen(output_topic(run)) as output:
        await b.ask(c.AppendOutput(run_id=run, lines=["hello"], seq=1))
        assert await output.wait(DEADLINE_S)
        await b.ask(c.PauseJobs(name="y"))
        assert await events.wait(DEADLINE_S)


@pytest.fixture
def always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a moved date from looking like an outage of all servers."""
    monkeypatch.setattr(maintenance, "AWAY_S", 1e6)


@pytest.mark.usefixtures("always_there")
async def test_a_heartbeat_may_come_to_any_server(start: Start, date: LivingClock) -> None:
    a, b = await start("a", "b")
    await a.ask(c.CreateJob(name="x"))
    run = (await a.take("x", "w"))["runID"]
    assert (await b.beat("w", run))["stop"] == []  # it asks before it calls it lost
    assert (await b.beat("w", run + 1))["stop"] == [{"runID": run + 1, "signal": "LOST"}]
    for _ in range(3):  # more than a lease, with a sign of life at the other server in between
        date.advance(LEASE_S_DEFAULT * 0.7)
        await b.beat("w", run)
        await b.neighbourhood._await_exchange()
        await a.dispatcher.settle()
    assert not [kind for kind, _, _ in a.told() if kind == "job lost"]
    assert (await a.beat("w", run))["stop"] == []


@pytest.mark.usefixtures("always_there")
async def test_a_lease_that_is_over_ends_the_run_once(start: Start, date: LivingClock) -> None:
    a, b = await start("a", "b")
    await a.ask(c.CreateJob(name="x"))
    run = (await a.take("x", "w"))["runID"]
    date.advance(LEASE_S_DEFAULT + 2)
    await asyncio.gather(a.dispatcher.settle(), b.dispatcher.settle())
    await a.until(lambda: run not in a.workers.runs)
    assert rows("SELECT status FROM runs") == [("frozen",)]
    await b.until(lambda: run not in b.workers.runs)


async def test_a_stop_at_one_server_reaches_the_worker_at_another(start: Start) -> None:
    a, b = await start("a", "b")
    await a.ask(c.CreateJob(name="x"))
    run = (await a.take("x", "w"))["runID"]
    await b.neighbourhood._await_exchange()
    beat = asyncio.ensure_future(b.beat("w", run, wait_ms=10_000))
    await b.until(lambda: "w" in b.workers._changed)
    await a.ask(c.TerminateRun(run_id=run))
    assert (await beat)["stop"] == [{"runID": run, "signal": "TERM"}]


async def test_servers_tell_who_joined_and_left_with_the_sorted_list(start: Start, date: LivingClock) -> None:
    b, a = await start("b", "a")
    dead = await start("c")
    await dead.die()
    for _ in range(2):
        date.advance(SERVER_GONE_S / 2 + 1)
        await asyncio.gather(a.neighbourhood._await_exchange(), b.neighbourhood._await_exchange())
    await a.until(lambda: [row.name for row in a.workers.servers] == ["a", "b"])
    await a.until(lambda: "server left" in [kind for kind, _, _ in a.told()])
    await b.stop()
    await a.until(lambda: [row.name for row in a.workers.servers] == ["a"])
    await a.until(lambda: len([0 for kind, *_ in a.told() if kind.startswith("server ")]) >= 5)
    assert [each for each in a.told() if each[0].startswith("server ")] == [
        ("server joined", "b", "1 server(s) now running [b]"),
        ("server joined", "a", "2 server(s) now running [a b]"),
        ("server joined", "c", "3 server(s) now running [a b c]"),
        ("server left", "c", "2 server(s) now running [a b]"),
        ("server left", "b", "1 server(s) now running [a]"),
    ]


async def test_a_name_that_a_living_server_has_is_refused(start: Start, date: LivingClock) -> None:
    await start("a")
    twin = Peer("a", date)
    with pytest.raises(NameTaken, match="server_name: a live server of this database has the name a"):
        await twin.start()
    await twin.line.close()
    twin.engine.close()


async def test_a_worker_joins_once_whichever_servers_it_asks(start: Start) -> None:
    a, b = await start("a", "b")
    await asyncio.gather(a.beat("w"), b.beat("w"), a.beat("v"))
    await asyncio.gather(a.neighbourhood._await_exchange(), b.neighbourhood._await_exchange())
    await asyncio.gather(a.dispatcher.settle(), b.dispatcher.settle())
    assert sorted(a.workers.workers) == ["v", "w"]
    await b.until(lambda: sorted(b.workers.workers) == ["v", "w"])
    joined = sorted(name for kind, name, _ in a.told() if kind == "worker joined")
    assert joined == ["v", "w"]


OWNED = "SELECT host, quiet, by FROM workers WHERE name = 'w'"


async def exchanged(*peers: Peer) -> None:
    """Let each server tell the others of its workers, one after the other."""
    for peer in peers:
        await peer.neighbourhood._await_exchange()


@pytest.mark.parametrize("known", [True, False], ids=["known", "not known yet"])
@pytest.mark.parametrize(
    "more", [{"host": "other", "quiet": True}, {"leaving": True}], ids=["changes", "leaves"]
)
async def test_a_name_belongs_to_the_token_that_used_it_first_at_any_server(
    start: Start, known: bool, more: dict[str, Any]
) -> None:
    """Another token neither changes nor removes its worker through another server."""
    a, b = await start("a", "b")
    await a.beat("w", by="own", host="h")
    await exchanged(a, b) if known else await a.neighbourhood._await_exchange()
    await b.beat("w", by="other", **more)
    await exchanged(b, a)
    assert rows(OWNED) == [("h", False, "own")]
    for peer in (a, b):
        worker = peer.workers.workers["w"]
        assert (worker.host, worker.quiet, worker.by) == ("h", False, "own")
    await b.beat("w", by="own", host="new")
    await exchanged(b, a)
    assert rows(OWNED) == [("new", False, "own")]
    await a.beat("w", by="own", leaving=True)
    await a.beat("w", by="other", host="third")
    await exchanged(a, b)
    assert rows(OWNED) == [("third", False, "other")], "it left, and the name is free"
    assert {peer.workers.workers["w"].by for peer in (a, b)} == {"other"}


async def test_a_worker_told_of_by_an_older_server_belongs_to_the_first_token(start: Start) -> None:
    a, b = await start("a", "b")
    await a.beat("w", by="own")
    await exchanged(a)
    await asyncio.to_thread(CLUSTER.do, f"UPDATE {SCHEMA}.workers SET by = NULL")
    await exchanged(b)
    await b.beat("w", by="second", host="h")
    await exchanged(b, a)
    assert rows(OWNED) == [("h", False, "second")]
    assert {peer.workers.workers["w"].by for peer in (a, b)} == {"second"}


async def test_a_worker_that_the_database_refuses_holds_up_nobody(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await start("a", "b")
    await a.ask(c.CreateJob(name="x"))
    run = (await a.take("x", "w"))["runID"]
    odd = f"ALTER TABLE {SCHEMA}.workers ADD CONSTRAINT odd CHECK (name <> 'odd')"
    await asyncio.to_thread(CLUSTER.do, odd)  # it waits for transactions that this loop has to end
    try:
        for _ in range(2):
            await asyncio.gather(a.beat("odd"), a.beat("w", run), a.beat("v"))
            await a.neighbourhood._await_exchange()
        assert rows("SELECT beat <> '' FROM runs") == [(True,)]
        await b.until(lambda: sorted(b.workers.workers) == ["v", "w"])
    finally:
        await asyncio.to_thread(CLUSTER.do, f"ALTER TABLE {SCHEMA}.workers DROP CONSTRAINT odd")
    assert sum("'odd'" in words for words in caplog.messages) == 1


BAD_HINTS = (
    "{",
    "5",
    "[]",
    '{"due": 5}',
    '{"due": {"x": "when"}}',
    '{"due": {"x": 5}}',
    '{"output": 5}',
    '{"output": ["x"]}',
    "[" * NOTIFICATION_CHARS_MAX,
    "9" * NOTIFICATION_CHARS_MAX,
)


async def test_a_hint_that_makes_no_sense_counts_as_an_empty_one(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await start("a", "b")
    waiting = a.send(c.GetJob(name="x", connection="wait", timeout=60_000))
    heard: list[str] = []
    hear = a.line.on_notification
    a.line.on_notification = lambda text: (heard.append(text), hear(text))
    for text in BAD_HINTS:
        await b.line.publish(text)
    await a.until(lambda: len(heard) >= len(BAD_HINTS))
    await b.ask(c.CreateJob(name="x"))
    assert isinstance(await asyncio.wait_for(waiting, DEADLINE_S), Answer)
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_worker_that_is_silent_is_gone_everywhere(start: Start, date: LivingClock) -> None:
    a, b = await start("a", "b")
    await a.beat("w")
    await b.until(lambda: "w" in b.workers.workers)
    date.advance(LEASE_S_DEFAULT + 1)
    await b.until(lambda: "w" not in b.workers.workers)
    await a.until(lambda: "w" not in a.workers.workers)
    await a.until(lambda: ("worker left", "w", "0 worker(s) now running []") in a.told())


async def test_where_no_server_was_there_leases_begin_anew(
    start: Start, date: LivingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start("a")
    await first.ask(c.CreateJob(name="x"))
    run = (await first.take("x", "w"))["runID"]
    await first.die()
    date.advance(10 * LEASE_S_DEFAULT + AWAY_S)
    second = await start("b")
    await second.dispatcher.settle()
    assert run in second.workers.runs
    assert rows("SELECT status FROM runs") == [("running",)]
    monkeypatch.setattr(maintenance, "AWAY_S", 1e6)
    date.advance(LEASE_S_DEFAULT + 2)
    await second.until(lambda: run not in second.workers.runs)


@pytest.mark.parametrize("moved_s", [3 * LEASE_S_DEFAULT, -3 * LEASE_S_DEFAULT])
async def test_a_clock_that_is_set_ends_no_run(start: Start, date: LivingClock, moved_s: float) -> None:
    a = await start("a")
    await a.ask(c.CreateJob(name="x"))
    run = (await a.take("x", "w"))["runID"]
    date.advance(moved_s)
    await a.dispatcher.settle()
    await a.ask(c.CreateJob(name="y"))
    await a.dispatcher.settle()
    assert rows("SELECT status FROM runs") == [("running",)]
    await a.beat("w", run)
    await a.neighbourhood._await_exchange()
    assert rows("SELECT beat FROM runs") == [(timestamp_ms(date.now()),)]


@pytest.mark.parametrize(("away_s", "noted"), [(AWAY_S - WATCHED_EVERY_S, False), (AWAY_S + 1, True)])
async def test_a_stretch_of_time_in_which_no_server_worked_is_noted(
    start: Start, date: LivingClock, away_s: float, noted: bool
) -> None:
    first = await start("a")
    await first.die()
    ((seen,),) = rows("SELECT value FROM meta WHERE key = 'seen'")
    date.advance(away_s)
    second = await start("b")
    await second.dispatcher.settle()
    expected = [(f"{seen} to {timestamp_ms(date.now())}",)] if noted else []
    assert rows("SELECT value FROM meta WHERE key = 'away'") == expected


async def test_a_date_that_was_ahead_does_not_hide_that_nobody_worked(
    start: Start, date: LivingClock
) -> None:
    date.advance(3600)
    first = await start("a")
    await first.stop()
    date.advance(-3600)
    second = await start("b")
    await second.dispatcher.settle()
    assert rows("SELECT value FROM meta WHERE key = 'seen'") == [(timestamp_ms(date.now()),)]


async def test_a_tick_fires_once_however_many_servers_ask(start: Start, date: LivingClock) -> None:
    peers = await start("a", "b", "c")
    await peers[0].ask(c.CreateJob(name="tick", repeat="SCHEDULED, +1 MINUTE"))
    waits = [peer.send(c.GetJob(name="tick", connection="wait", timeout=200)) for peer in peers]
    taken = [one for one in await asyncio.gather(*waits) if isinstance(one, Answer)]
    assert len(taken) == 1


async def test_a_hint_that_is_too_long_says_that_anything_may_be_new(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "poll", lambda *_: None)
    monkeypatch.setattr(cluster, "NOTIFICATION_CHARS_MAX", 10)
    a, b = await start("a", "b")
    waiting = a.send(c.GetJob(name="mail*", connection="wait"))
    await a.until(lambda: a.dispatcher.waiting == 1)
    await b.ask(c.CreateJob(name="mail/1"))
    assert isinstance(await asyncio.wait_for(waiting, DEADLINE_S), Answer)


async def test_a_line_that_breaks_is_opened_again(start: Start) -> None:
    a, b = await start("a", "b")
    assert rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    waiting = a.send(c.GetJob(name="mail*", connection="wait"))
    await a.until(lambda: a.dispatcher.waiting == 1)
    await b.ask(c.CreateJob(name="mail/1"))
    assert isinstance(await asyncio.wait_for(waiting, DEADLINE_S), Answer)
    await a.neighbourhood._await_exchange()
    await a.until(lambda: len(a.workers.servers) == 2)


def test_times_fit_together() -> None:
    assert (
        NOTIFICATIONS_MERGED_S < WATCH_EVERY_S < EXCHANGE_EVERY_S <= WATCHED_EVERY_S < AWAY_S < SERVER_GONE_S
    )
    assert SERVER_GONE_S < LEASE_S_DEFAULT
