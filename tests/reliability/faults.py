"""Planted faults of a server, which the checker must find: the negative controls.

Each function patches the classes of its own process; the launcher calls it in a forked child.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from time import sleep
from typing import Any

from bedrockjobs.base.errors import Unavailable
from bedrockjobs.commands import CreateJob
from bedrockjobs.engine.handlers import change, end, failing, graph
from bedrockjobs.job.rows import Job
from bedrockjobs.outbox import OutboxRelay
from bedrockjobs.store import outbox
from bedrockjobs.store.base import AccessPlan
from bedrockjobs.store.outbox import OutboxRow, OutboxTable
from bedrockjobs.store.ready_queue import ReadyQueue
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.sqlite_unit import Identifiers, SQLiteUnit
from tests.effort import examples
from tests.reliability import forgetful

DROPPED = 1 / examples(10, night=50)
"""Share of commits that ``dropped_commit`` throws away: by day more, so that fewer kills find it."""

BLIND = 1 / examples(10, night=50)
"""Share of takes in which ``blind_take`` does not look at the state."""

LOST_ENDS = 0.5
"""Share of the ends of jobs of workflows that ``lost_ends`` throws away."""

FORGOTTEN = 0.5
"""Share of resumed parents that ``forgotten_parent`` forgets."""

REFUSED = 0.2
"""Share of rows of an outbox whose first attempt ``relay_overtakes`` refuses."""

TAKES_BY_NAME = "take_by_name", "claim_by_name", "take_in_open_lane", "claim_in_open_lane"
"""The statements on PostgreSQL with which jobs are taken by their names."""

SLOW_S = 0.05
"""The longest that ``slow_takes`` and ``unordered_events`` wait: as long as some units of others take."""


def answer_before_commit(seed: int) -> None:
    """Send replies before their transaction is committed; the next transaction commits it."""
    begin, commit = SQLiteEngine.begin, SQLiteEngine.commit
    late: list[SQLiteEngine] = []

    def begin_late(self: SQLiteEngine, plans: Iterable[AccessPlan] = ()) -> SQLiteUnit:
        if late:
            commit(late.pop())
        return begin(self, plans)

    def commit_later(self: SQLiteEngine) -> None:
        late.append(self)

    SQLiteEngine.begin = begin_late  # type: ignore[method-assign]
    SQLiteEngine.commit = commit_later  # type: ignore[method-assign]


def dropped_commit(seed: int) -> None:
    """Roll back some transactions after their replies were sent."""
    dice = random.Random(seed)
    _drop_commits(SQLiteEngine, lambda: dice.random() < DROPPED)


def _drop_commits(engine: Any, chosen: Callable[[], bool]) -> None:
    commit = engine.commit

    def dropping(self: Any) -> None:
        if chosen():
            self.rollback()
        else:
            commit(self)

    engine.commit = dropping


def blind_take(seed: int) -> None:
    """Hand out jobs that are already running."""
    first_due, dice = ReadyQueue.first_due, random.Random(seed)

    def blind(self: ReadyQueue, *args: Any, **options: Any) -> Job | None:
        if dice.random() < BLIND:
            row = self._execute("SELECT jobID FROM jobs WHERE state = 'RUNNING' LIMIT 1").fetchone()
            if row is not None:
                return self.job(row[0])
        return first_due(self, *args, **options)

    ReadyQueue.first_due = blind  # type: ignore[method-assign]


def reused_ids(seed: int) -> None:
    """Allocate jobIDs after the highest in the table, as a table without a counter does."""

    def one_more(self: Identifiers) -> int:
        row = self._execute("SELECT coalesce(max(jobID), 0) + 1 FROM jobs").fetchone()
        return int(row[0])

    Identifiers.new_job = one_more  # type: ignore[method-assign]


def forgotten_parent(seed: int) -> None:
    """Sometimes leave a parent PAUSED when its last child has ended."""
    resume, dice = failing.resume_parent, random.Random(seed)

    def forgetful(turn: Any, job_id: int) -> None:
        if dice.random() >= FORGOTTEN:
            resume(turn, job_id)

    for module in (failing, end, change):
        module.resume_parent = forgetful


def late_start(seed: int) -> None:
    """Start the jobs after one that has ended only in the commit of the next end."""
    start_after, late = graph._start_after, list[int]()

    def later(context: Any, job_id: int) -> None:
        late.append(job_id)
        if len(late) > 1:
            start_after(context, late.pop(0))

    graph._start_after = later


def early_start(seed: int) -> None:
    """Start all jobs after one that has ended, whatever else they wait for."""

    def early(context: Any, job_id: int) -> None:
        after = [each for each, _ in context.unit.records.waiting_after(job_id)]
        context.unit.records.wait_in_workflow([(each, 0) for each in after])
        graph.start(context, after)

    graph._start_after = early


def lost_ends(seed: int, engine: Any = SQLiteEngine) -> None:
    """Roll back some ends of jobs of workflows after their replies were sent."""
    moved, dice, lost = graph.moved, random.Random(seed), list[int]()

    def losing(context: Any, job: Job, result: str | None) -> None:
        moved(context, job, result)
        if result is not None and dice.random() < LOST_ENDS:
            lost.append(job.job_id)

    def chosen() -> bool:
        found = bool(lost)
        lost.clear()
        return found

    graph.moved = losing
    _drop_commits(engine, chosen)


# --- with PostgreSQL -------------------------------------------------------------------------------------


def shared_dropped_commit(seed: int) -> None:
    """Roll back some units after their replies were sent."""
    from bedrockjobs.store.postgresql.engine import PostgreSQLEngine

    dice = random.Random(seed)
    _drop_commits(PostgreSQLEngine, lambda: dice.random() < DROPPED)


def _without(words: str, *names: str) -> None:
    """Remove some words from statements."""
    from bedrockjobs.store.postgresql.statements import QUERIES

    for name in names:
        assert words in QUERIES[name]
        QUERIES[name] = QUERIES[name].replace(words, "")


def shared_lost_ends(seed: int) -> None:
    """Roll back some ends of jobs of workflows after their replies were sent."""
    from bedrockjobs.store.postgresql.engine import PostgreSQLEngine

    lost_ends(seed, PostgreSQLEngine)


def unlocked_workflows(seed: int) -> None:
    """End jobs of a workflow without its lock, in units that take so long that they overlap."""
    from bedrockjobs.store.postgresql.statements import QUERIES

    _without(" FOR UPDATE", "lock_workflows", "lock_workflow")
    QUERIES["lock_workflows"] = QUERIES["lock_workflows"].replace(
        " ORDER BY", f" AND pg_sleep({SLOW_S}) IS NOT NULL ORDER BY"
    )


def unlocked_takes(seed: int) -> None:
    """Take jobs without a row lock, so that another server may take them at the same time."""
    takes = "take_with_lock", "take_in_order", "take_behind_heads", "claim_behind_heads"
    _without(" FOR UPDATE SKIP LOCKED", *TAKES_BY_NAME, *takes)


def unordered_events(seed: int) -> None:
    """Commit events without the lock that orders their numbers by commit, and delay some of them.

    The delay lets commits overtake each other even if servers hardly run in parallel.
    """
    from bedrockjobs.store.postgresql.transaction import Transaction

    commit = Transaction.commit

    def without_lock(self: Transaction, lock: Any, note: Any, reads: Any) -> Any:
        sql, parameters = note
        late = sql.replace("$3", f"$3 || pg_sleep({SLOW_S} * random())::text")
        assert late != sql
        return commit(self, ("SELECT 1", ()), (late, parameters), reads)

    Transaction.commit = without_lock  # type: ignore[method-assign]


def never_looks_again(seed: int) -> None:
    """Answer 404 to a take that found only jobs locked by other servers."""
    from bedrockjobs.store.postgresql.takes import Takes

    Takes.skipped_locked = lambda *_: False  # type: ignore[method-assign]


def slow_takes(seed: int) -> None:
    """Delay PostgreSQL's read of the queue after the snapshot of a take.

    This happens on an overloaded machine.
    """
    from bedrockjobs.store.postgresql.statements import QUERIES

    for name in TAKES_BY_NAME:
        assert " AS paused" in QUERIES[name]
        QUERIES[name] = QUERIES[name].replace(
            " AS paused", f" AS paused, pg_sleep({SLOW_S} * random()) AS slept"
        )


def deaf(seed: int) -> None:
    """Drop notifications of other servers, and never poll for waiters."""
    from bedrockjobs.engine import batch
    from bedrockjobs.engine.dispatcher import Dispatcher

    batch.poll = lambda *_: None
    Dispatcher.note_ready = lambda self, due: None  # type: ignore[method-assign]


def undone_deliveries(seed: int) -> None:
    """Undo some takes after their replies were sent."""
    from bedrockjobs.protocol.connection import RawConnection

    answered, dice = RawConnection.answered, random.Random(seed)

    def undone(self: RawConnection, exchange: Any, outcome: Any) -> bool:
        return answered(self, exchange, outcome) and dice.random() >= DROPPED

    RawConnection.answered = undone  # type: ignore[method-assign]


def endless_units(seed: int) -> None:
    """Remove the idle timeout, so that PostgreSQL keeps the unit of a silent server open."""
    from bedrockjobs.store.postgresql.session import SessionRequirements

    parameters = SessionRequirements.parameters

    def endless(self: SessionRequirements, schema: str) -> dict[str, str]:
        return parameters(self, schema) | {"idle_in_transaction_session_timeout": "0"}

    SessionRequirements.parameters = endless  # type: ignore[method-assign]


def endless_patience(seed: int) -> None:
    """Let shutdown wait a minute for the database."""
    from bedrockjobs.engine import cluster, dispatcher

    dispatcher.UNIT_DRAINED_S = cluster.LEAVE_S_MAX = 60.0


# --- of the relay of an outbox -----------------------------------------------------------------------------


def relay_deletes_first(seed: int) -> None:
    """Delete the rows of an outbox before they are sent."""
    next_rows = OutboxTable.next_rows

    def deleted(self: OutboxTable, now: str) -> list[OutboxRow]:
        rows = next_rows(self, now)
        for row in rows:
            self.delete(row)
        return rows

    OutboxTable.next_rows = deleted  # type: ignore[method-assign]


def relay_without_keys(seed: int) -> None:
    """Send rows of an outbox without an idempotency key, and delete them a while later."""
    delete = OutboxTable.delete

    def send(self: OutboxRelay, row: OutboxRow) -> None:
        assert self._client is not None
        self._client.call(CreateJob.read(CreateJob.parameters_in(row.job)))

    def delete_later(self: OutboxTable, row: OutboxRow) -> None:
        sleep(SLOW_S)
        delete(self, row)

    OutboxRelay._send = send  # type: ignore[method-assign]
    OutboxTable.delete = delete_later  # type: ignore[method-assign]


def relay_overtakes(seed: int) -> None:
    """Postpone some rows of an outbox without holding back later rows of the same key."""
    dice, send = random.Random(seed), OutboxRelay._send
    kept = " AND (order_key = '' OR NOT EXISTS"
    before, found, rest = outbox._NEXT.partition(kept)
    assert found
    outbox._NEXT = f"{before} AND again <= {{1}}{rest[rest.rindex(' ORDER BY') :]}"

    def refused(self: OutboxRelay, row: OutboxRow) -> None:
        if not row.attempts and dice.random() < REFUSED:
            raise Unavailable
        send(self, row)

    OutboxRelay._send = refused  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[int], None]] = {
    "answer before commit": answer_before_commit,
    "dropped commit": dropped_commit,
    "blind take": blind_take,
    "reused ids": reused_ids,
    "forgotten parent": forgotten_parent,
}
"""Faults of a queue, on any database that the simulation and the kills have."""

OTHERS: dict[str, Callable[[int], None]] = {
    "late start": late_start,
    "early start": early_start,
    "lost ends": lost_ends,
    "shared lost ends": shared_lost_ends,
    "unlocked workflows": unlocked_workflows,
    "tick lost": lambda seed: forgetful.tick_lost(),
    "tick twice": lambda seed: forgetful.tick_twice(),
    "shared dropped commit": shared_dropped_commit,
    "unlocked takes": unlocked_takes,
    "unordered events": unordered_events,
    "never looks again": never_looks_again,
    "slow takes": slow_takes,
    "deaf": deaf,
    "undone deliveries": undone_deliveries,
    "endless units": endless_units,
    "endless patience": endless_patience,
    "deletes first": relay_deletes_first,
    "without keys": relay_without_keys,
    "overtakes": relay_overtakes,
}
"""Faults of workflows, of schedules, of servers that share a database, and of the relay of an outbox."""
