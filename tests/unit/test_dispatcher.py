"""The dispatcher after faults: nothing uncommitted is acknowledged, and no other command is affected."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import NAMES_PER_COMMIT_MAX, PATTERNS_MAX, SLEEP_S_MAX
from bedrockjobs.base.errors import CommandError, NotFound, ServerFault, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command, CreateJob, CreateJobs, FinishJob, GetJob, GetJobs, JobSpec, QueryJob
from bedrockjobs.engine import batch, committer
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, RunOpened
from bedrockjobs.engine.handlers import failing
from bedrockjobs.engine.handlers.context import HANDLERS, Answer
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store import pattern_index, ready_queue
from bedrockjobs.store.base import StoreBroken
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.protocol.talk import DEADLINE_S
from tests.submitting import submit


class Bench:
    """A dispatcher on a database of its own."""

    def __init__(self, path: Path, settings: Settings) -> None:
        """Start it."""
        self.store = SQLiteEngine(path / "jobs.db", settings)
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        clock = SystemClock()
        self.workers, stats = WorkerRegistry(clock, clock), Stats()
        self.listeners = Listeners([self.workers, stats])
        self.dispatcher = Dispatcher(
            self.store,
            clock,
            settings,
            self.failed.set_result,
            workers=self.workers,
            minutes=stats,
            listeners=self.listeners,
        )
        self.dispatcher.start()

    def send(self, command: Command[Any], *, reachable: bool = True) -> asyncio.Future[Outcome]:
        """Submit a command; the future gets its outcome."""
        return submit(self.dispatcher, command, reachable=reachable)

    async def ask(self, command: Command[Any]) -> Outcome:
        """Submit a command and wait for its outcome."""
        return await asyncio.wait_for(self.send(command), DEADLINE_S)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Run a dispatcher."""
    bench = Bench(tmp_path, Settings(pending_max=100))
    yield bench
    if bench.dispatcher._commits.is_alive():
        await bench.dispatcher.drain()
        await bench.dispatcher.end()
    bench.store.close()


def body(outcome: Outcome) -> str:
    """Return the body of a successful reply."""
    assert isinstance(outcome, Answer), outcome
    return outcome.body


async def test_commands_of_one_turn_share_one_commit(bench: Bench) -> None:
    sent = [bench.send(CreateJob(name="a")) for _ in range(50)]
    assert [body(await one) for one in sent] == [f'{{"jobID":{n}}}' for n in range(1, 51)]
    assert bench.dispatcher.commits == 1


async def test_it_tells_which_turns_of_the_loop_are_its_own(bench: Bench) -> None:
    await bench.ask(CreateJob(name="a"))
    assert not bench.dispatcher.begins
    sent, begins = bench.send(CreateJob(name="a")), []
    while not sent.done():
        begins.append(bench.dispatcher.begins)
        await asyncio.sleep(0)
    assert begins[0], "the transaction is to begin"
    assert begins[1], "it looks for others"
    assert not bench.dispatcher.begins


async def test_what_arrives_while_a_transaction_is_open_shares_its_commit(bench: Bench) -> None:
    first = bench.send(CreateJob(name="a"))
    second = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: second.set_result(bench.send(CreateJob(name="b"))))
    assert [body(await first), body(await (await second))] == ['{"jobID":1}', '{"jobID":2}']
    assert bench.dispatcher.commits == 1


async def test_a_commit_that_was_to_be_shared_and_fails_loses_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(context: Any, command: Any) -> Answer:
        raise ZeroDivisionError

    monkeypatch.setitem(HANDLERS, QueryJob, crash)
    first = bench.send(CreateJob(name="a"))
    second = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: second.set_result(bench.send(QueryJob(job_id=1))))
    assert isinstance(await asyncio.wait_for(await second, DEADLINE_S), ServerFault)
    assert body(await first) == '{"jobID":1}'


async def test_a_wait_ends_though_the_loop_calls_early(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda seconds, *call: later(max(seconds - 0.005, 0), *call))
    for _ in range(50):
        waited = await bench.ask(GetJob(name="nobody's", connection="wait", timeout=10))
        assert isinstance(waited, NotFound)


async def test_a_command_that_crashes_hurts_nobody_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(turn: Any, command: Any) -> Answer:
        turn.unit.insert(turn.unit.job(1)._replace(job_id=77))
        raise ZeroDivisionError

    await bench.ask(CreateJob(name="first"))
    waiter = bench.send(GetJob(name="wanted", connection="wait", timeout=5000))
    monkeypatch.setitem(HANDLERS, QueryJob, crash)
    before = bench.send(CreateJob(name="wanted"))
    crashed = bench.send(QueryJob(job_id=1))
    after = bench.send(CreateJob(name="b"))
    assert isinstance(await crashed, ServerFault)
    assert body(await before) == '{"jobID":2}'
    assert body(await after) == '{"jobID":3}'
    assert '"jobID":2' in body(await asyncio.wait_for(waiter, DEADLINE_S))
    assert bench.store.unit.job(77) is None
    assert "ZeroDivisionError" in caplog.text


async def test_what_time_asks_for_is_not_tried_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def broken() -> None:
        nonlocal tries
        tries += 1
        raise ValueError

    monkeypatch.setattr(bench.store, "commit", broken)
    for name in "abcde":
        assert isinstance(await bench.ask(CreateJob(name=name)), ServerFault)
    assert tries <= 2 * 5 + 1, "its own notes of the start fail as often as somebody asks for something"
    monkeypatch.undo()
    assert isinstance(await bench.ask(CreateJob(name="a")), Answer)


async def test_a_failed_commit_is_not_acknowledged(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    await bench.dispatcher.settle()
    monkeypatch.setattr(bench.store, "commit", full)
    outcome = await bench.ask(CreateJob(name="a"))
    assert isinstance(outcome, Unavailable)
    assert outcome.status_line == "503 Disk full"
    monkeypatch.undo()
    assert bench.store.tight, "no jobs are created until the reserve is there again"
    assert isinstance(await bench.ask(CreateJob(name="a")), Unavailable)
    assert body(await bench.ask(CreateJob(name="a"))) == '{"jobID":1}'


async def test_a_waiter_served_by_a_failed_commit_waits_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = bench.send(GetJob(name="a", connection="wait", timeout=5000))
    await bench.ask(QueryJob(job_id=1))  # the waiter is parked now

    def busy() -> None:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorname = "SQLITE_BUSY"
        raise error

    monkeypatch.setattr(bench.store, "commit", busy)
    outcome = await bench.ask(CreateJob(name="a"))
    assert isinstance(outcome, Unavailable)
    assert outcome.status_line == "503 Database busy"
    assert not waiter.done()
    monkeypatch.undo()
    await bench.ask(CreateJob(name="a"))
    assert '"jobID":1' in body(await asyncio.wait_for(waiter, DEADLINE_S))


async def test_a_failed_fsync_ends_the_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    monkeypatch.setattr(bench.store, "commit", broken)
    answer = bench.send(CreateJob(name="a"))
    assert isinstance(await asyncio.wait_for(bench.failed, DEADLINE_S), StoreBroken)
    assert not answer.done()
    with pytest.raises(Unavailable):
        bench.send(CreateJob(name="a"))


async def test_a_look_whose_client_is_gone_is_not_done(bench: Bench) -> None:
    def nobody(outcome: Outcome) -> bool:
        raise AssertionError("it was answered")

    look = bench.dispatcher.submit(QueryJob(job_id=1), nobody)
    created = bench.dispatcher.submit(CreateJob(name="a"), lambda outcome: False)
    bench.dispatcher.leave(look)
    bench.dispatcher.leave(created)
    assert '"name":"a"' in body(await bench.ask(QueryJob(job_id=1)))
    assert bench.dispatcher.pending == 0


async def test_a_job_that_reached_nobody_goes_back_as_it_was(bench: Bench) -> None:
    await bench.ask(CreateJob(name="a", retry_after="+1 HOUR", data={"k": 1}))
    before = bench.store.unit.job(1)
    bench.send(GetJob(name="a"), reachable=False)
    answer = body(await bench.ask(QueryJob(job_id=1)))
    while "RUNQUEUED" in answer:
        answer = body(await bench.ask(QueryJob(job_id=1)))
    assert bench.store.unit.job(1) == before


async def test_an_answer_that_may_have_arrived_is_not_undone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Delivery may fail after the reply was sent: the job stays with its client."""
    sent: list[Outcome] = []

    def send(outcome: Outcome) -> bool:
        sent.append(outcome)
        raise ArithmeticError

    for name in ("a", "b"):
        await bench.ask(CreateJob(name=name))
    bench.dispatcher.submit(GetJob(name="a", worker="w"), send)
    bench.dispatcher.submit(GetJob(name="b", worker="w"), lambda _: False)  # the control: it goes back
    while "QUEUED" not in body(await bench.ask(QueryJob(job_id=2))):
        pass
    assert '"runID":1' in body(sent[0])
    assert '"state":"RUNNING"' in body(await bench.ask(QueryJob(job_id=1)))
    assert "may not have been delivered" in caplog.text


async def test_too_many_commands_are_refused(bench: Bench) -> None:
    sent = [bench.send(CreateJob(name="a")) for _ in range(100)]
    with pytest.raises(Unavailable):
        bench.send(CreateJob(name="a"))
    for one in sent:
        assert isinstance(await one, Answer)
    assert bench.dispatcher.pending == 0


async def test_takes_of_very_many_names_keep_nobody_else_waiting(bench: Bench) -> None:
    """Whether their clients stay connected or not."""
    order: list[str] = []

    def ask(number: int) -> Submission:
        names = [f"{number}/{at}/*" for at in range(PATTERNS_MAX)]
        command = GetJobs.read(
            {"names": names, "numResults": 1, "worker": f"w{number}", "connection": "wait", "timeout": 1}
        )
        return bench.dispatcher.submit(command, lambda _: order.append("take") is None)

    takes = [ask(number) for number in range(40)]
    for take in takes[::2]:
        bench.dispatcher.leave(take)
    for _ in range(3):
        await bench.ask(CreateJob.read({"name": "a"}))
        order.append("create")
    assert bench.dispatcher.commits >= 3
    assert 0 < order.index("create") <= NAMES_PER_COMMIT_MAX // PATTERNS_MAX
    async with asyncio.timeout(DEADLINE_S):
        while len(order) < 43:
            await asyncio.sleep(0)
            bench.dispatcher.poke()
    assert not bench.dispatcher.waiting
    assert bench.dispatcher.pending == 0


async def test_names_that_wait_for_the_writer_are_limited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "NAMES_QUEUED_MAX", 10 * PATTERNS_MAX)
    refused = 0
    for number in range(60):
        names = [f"{number}/{at}/*" for at in range(PATTERNS_MAX)]
        try:
            bench.dispatcher.submit(GetJobs.read({"names": names, "numResults": 1}), lambda _: True)
        except Unavailable:
            refused += 1
        if number % 20 == 19:
            await bench.ask(CreateJob.read({"name": "a"}))
    assert refused


async def test_waiters_do_not_count_as_pending(bench: Bench) -> None:
    waiters = [bench.send(GetJob(name="a", connection="wait")) for _ in range(90)]
    await bench.ask(QueryJob(job_id=1))
    assert bench.dispatcher.waiting == 90
    assert bench.dispatcher.pending == 0
    await bench.dispatcher.drain()
    for one in waiters:
        outcome = await one
        assert isinstance(outcome, NotFound)


async def test_a_stopping_server_accepts_nothing(bench: Bench) -> None:
    await bench.dispatcher.drain()
    with pytest.raises(CommandError, match="stopping"):
        bench.send(CreateJob(name="a"))


async def test_a_wait_ends_in_time_though_commands_never_stop_coming(bench: Bench) -> None:
    waiter = bench.send(GetJob(name="a", connection="wait", timeout=50))

    def again(_: Outcome) -> bool:
        if not waiter.done():
            bench.dispatcher.submit(CreateJob(name="b"), again)
        return True

    bench.dispatcher.submit(CreateJob(name="b"), again)
    assert isinstance(await asyncio.wait_for(waiter, DEADLINE_S), NotFound)


async def test_a_wait_that_runs_out_during_a_commit_that_fails_is_answered_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()

    def slow_and_full() -> None:
        held.wait(DEADLINE_S)
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorname = "SQLITE_BUSY"
        raise error

    monkeypatch.setattr(bench.store, "commit", slow_and_full)
    created = bench.send(CreateJob(name="b"))
    waiter = bench.send(GetJob(name="a", connection="wait", timeout=1))  # parked in the same transaction
    while bench.dispatcher.waiting == 0:
        await asyncio.sleep(0)
    while bench.dispatcher._waiting.next_deadline() > bench.dispatcher._clock.monotonic():  # type: ignore[operator]
        await asyncio.sleep(0)
    bench.dispatcher.poke()
    assert not waiter.done(), "its transaction is still open"
    held.set()
    monkeypatch.undo()
    await asyncio.wait_for(
        asyncio.wait([created, waiter]), DEADLINE_S
    )  # a second answer would raise in `send`
    assert isinstance(waiter.result(), NotFound)


async def test_what_follows_a_commit_may_fail_and_all_are_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(*_: object) -> None:
        raise ZeroDivisionError

    class Bad:
        def event_handlers(self) -> dict[type, Any]:
            return {RunOpened: bad}

    bench.listeners.add(Bad())
    await bench.ask(CreateJob(name="a"))
    assert '"runID":1' in body(await bench.ask(GetJob(name="a", worker="w")))
    assert body(await bench.ask(CreateJob(name="b"))) == '{"jobID":2}'
    assert "ZeroDivisionError" in caplog.text
    assert not bench.failed.done()


async def test_one_job_whose_time_cannot_be_kept_hurts_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = failing.time_over

    def bad(turn: Any, row: Any) -> None:
        if row.job_id == 1:
            turn.unit.delete(row.job_id)
            raise ZeroDivisionError
        real(turn, row)

    monkeypatch.setattr(failing, "time_over", bad)
    old = "2026-01-01 00:00:00"
    for name in "ab":
        await bench.ask(CreateJob(name=name, first_run=old, expire_after=1))
    while bench.store.unit.job(2) is not None:
        await bench.ask(QueryJob(job_id=1))
    left = bench.store.unit.job(1)
    assert left is not None, "what it did until it failed is undone"
    assert left.expires > "2026-01-02", "it is not tried again at once"
    assert body(await bench.ask(CreateJob(name="c"))) == '{"jobID":3}'
    assert caplog.text.count("maintenance failed") == 1
    with closing(sqlite3.connect(bench.store.path)) as seen:
        told = seen.execute("SELECT jobID FROM events WHERE kind = 'maintenance failed'").fetchall()
    assert told == [(1,)], "and it is told once"


async def test_a_stopping_server_does_not_spin(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.ask(CreateJob(name="a"))
    monkeypatch.setattr(bench.dispatcher._maintenance, "sleep_s", lambda: 0.0)
    assert bench.dispatcher._due_in_s() < 1
    bench.dispatcher._draining = True
    assert bench.dispatcher._due_in_s() >= SLEEP_S_MAX, "what time asks for is left to the next server"


async def test_a_fault_of_the_database_while_nobody_asks_for_anything_is_got_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.ask(CreateJob(name="a"))
    asked = 0

    def broken() -> None:
        nonlocal asked
        asked += 1
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_READ"
        raise error

    monkeypatch.setattr(bench.store, "next_moment", broken)
    bench.dispatcher.poke()
    assert isinstance(await bench.ask(CreateJob(name="b")), Unavailable)
    assert asked
    monkeypatch.undo()
    assert body(await bench.ask(CreateJob(name="b"))) == '{"jobID":2}'
    assert not bench.failed.done()


# --- searches that take more than one transaction --------------------------------------------------------


@pytest.fixture
def slow_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each transaction to very few names."""
    for module in (ready_queue, pattern_index):
        monkeypatch.setattr(module, "SEARCHED_AT_ONCE", 5)
    monkeypatch.setattr(pattern_index, "SEARCHED_UNIT_MAX", 5)
    monkeypatch.setattr(pattern_index, "STEPS_FREE", 0)


async def fill(bench: Bench, count: int) -> None:
    """Create jobs, each with its own name, and a last one."""
    await bench.ask(CreateJobs(jobs=[JobSpec(name=f"n{number:04}/x") for number in range(count)]))
    await bench.ask(CreateJob(name="zz/y"))


@pytest.mark.usefixtures("slow_search")
@pytest.mark.parametrize("waits", [False, True])
async def test_others_are_served_while_a_new_pattern_is_searched_for(bench: Bench, waits: bool) -> None:
    await fill(bench, 200)
    asked = GetJob(name="*/y", connection="wait") if waits else GetJob(name="*/y")
    take = bench.send(asked)
    commits = bench.dispatcher.commits
    for _ in range(5):
        assert '"jobID"' in body(await bench.ask(CreateJob(name="other/x")))
        assert '"n0000/x"' in body(await bench.ask(QueryJob(job_id=1)))
    assert not take.done()
    assert bench.dispatcher.commits >= commits + 10
    assert '"zz/y"' in body(await asyncio.wait_for(take, DEADLINE_S))


@pytest.mark.usefixtures("slow_search")
async def test_a_search_goes_on_without_an_alarm(bench: Bench) -> None:
    await fill(bench, 200)
    bench.dispatcher._alarm._wake = lambda: None
    assert '"zz/y"' in body(await asyncio.wait_for(bench.send(GetJob(name="*/y", connection="wait")), 10))


@pytest.mark.usefixtures("slow_search")
async def test_a_search_that_finds_nothing_is_answered(bench: Bench) -> None:
    await fill(bench, 100)
    first = [bench.send(GetJob(name=f"*/{end}")) for end in ("a", "b", "c", "a")]
    waits = bench.send(GetJob(name="*/a", connection="wait", timeout=60_000))
    for outcome in await asyncio.wait_for(asyncio.gather(*first), 10):
        assert isinstance(outcome, NotFound)
    assert bench.dispatcher.waiting == 1
    await bench.ask(CreateJob(name="late/a"))
    assert '"late/a"' in body(await asyncio.wait_for(waits, DEADLINE_S))
    assert bench.dispatcher.pending == 0


@pytest.mark.usefixtures("slow_search")
async def test_a_search_goes_on_after_a_transaction_that_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(bench, 200)
    take = bench.send(GetJob(name="*/y"))
    await bench.ask(CreateJob(name="other/x"))

    def crash(*_: object) -> object:
        raise RuntimeError("on purpose")

    monkeypatch.setitem(HANDLERS, QueryJob, crash)
    assert isinstance(await bench.ask(QueryJob(job_id=1)), ServerFault)
    assert '"zz/y"' in body(await asyncio.wait_for(take, DEADLINE_S))


@pytest.mark.usefixtures("slow_search")
async def test_the_next_job_behind_an_end_is_searched_for(bench: Bench) -> None:
    await fill(bench, 200)
    first = json.loads(body(await bench.ask(GetJob(name="n0000/x"))))
    ended = await bench.ask(FinishJob(job_id=first["jobID"], then_get="*/y"))
    assert json.loads(body(ended))["job"]["name"] == "zz/y"


@pytest.mark.usefixtures("slow_search")
async def test_a_search_that_takes_too_long_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SEARCH_S_MAX", 0.01)
    monkeypatch.setattr(pattern_index, "SEARCH_BURST", 0)  # so that it never continues
    await fill(bench, 200)
    outcome = await bench.ask(GetJob(name="*/y"))
    assert isinstance(outcome, Unavailable)
    assert outcome.reason == "Still searching"
