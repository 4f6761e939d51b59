"""Commands go in one queue; one thread does all that is there in one transaction; answers follow its commit.

The event loop calls ``submit`` and gets each outcome back on the loop, after the commit that it depends on.
The writer thread owns the store and the waiters. Nothing here knows of protocols or SQL.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from bedrockjobs.clock import Clock
from bedrockjobs.commands import Command
from bedrockjobs.config import WAIT_MS_DEFAULT, WAIT_MS_MAX, Settings
from bedrockjobs.dispatcher.waiting import Waiter, Waiting
from bedrockjobs.errors import CommandError, ServerFault, Unavailable
from bedrockjobs.handlers import take
from bedrockjobs.handlers.dispatch import perform
from bedrockjobs.handlers.turn import Answer, Taken, TakeRequest, Turn
from bedrockjobs.store.sqlite import SQLiteStore
from bedrockjobs.wire import moment_of

log = logging.getLogger(__name__)

Outcome = Answer | CommandError

WAKE_LATE_S = 0.001
"""How much later than a job's nextRun the writer wakes: stamps are cut to milliseconds."""

SLEEP_S_MAX = 60.0
"""The longest sleep of an idle writer: a changed system clock is noticed after that."""


class Entry:
    """A command on its way, and who gets its outcome."""

    __slots__ = ("command", "deliver", "gone", "waiter")

    def __init__(self, command: Command[Any] | None, deliver: Callable[[Outcome], bool]) -> None:
        """Hold a command; ``deliver`` gets the outcome on the loop, and returns False if it went nowhere."""
        self.command = command
        self.deliver = deliver
        self.waiter: Waiter | None = None
        self.gone = False


class _PutBack(Entry):
    """Jobs whose answer went nowhere, on their way back."""

    __slots__ = ("taken",)

    def __init__(self, taken: list[Taken]) -> None:
        super().__init__(None, lambda _: True)
        self.taken = taken


class _Leave(Entry):
    """A waiter that waits no longer."""

    __slots__ = ("left",)

    def __init__(self, left: Entry) -> None:
        super().__init__(None, lambda _: True)
        self.left = left


class Dispatcher:
    """The queue, the writer thread and the waiters of one database."""

    def __init__(
        self, store: SQLiteStore, clock: Clock, settings: Settings, on_failure: Callable[[Exception], None]
    ) -> None:
        """Serve ``store``; ``on_failure`` is called on the loop when the disk no longer keeps promises."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[list[Entry] | None] = SimpleQueue()
        self._gathered: list[Entry] = []
        self._waiting = Waiting()
        self._seq = 0
        self._draining = False
        self._parked: list[Waiter] = []
        self._served: list[Waiter] = []
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self.pending = 0
        """Commands that were submitted and not yet answered, without those that wait for a job."""
        self.commands = 0
        """Commands done since the start."""
        self.commits = 0
        """Transactions committed since the start."""

    # --- on the event loop -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return how many GetJobs wait."""
        return len(self._waiting)

    def submit(self, command: Command[Any], deliver: Callable[[Outcome], bool]) -> Entry:
        """Queue a command; raises Unavailable when the queue is full or the server stops.

        All commands submitted in one turn of the loop are handed to the writer together, in order.
        """
        if self._draining:
            raise Unavailable("Server is stopping", "try again in a moment")
        if self.pending >= self._settings.pending_max:
            raise Unavailable("Too many commands are waiting", "try again in a moment")
        entry = Entry(command, deliver)
        self.pending += 1
        self._send(entry)
        return entry

    def leave(self, entry: Entry) -> None:
        """Let a waiting GetJob end: it is answered at once, with 404 unless a job is on its way to it."""
        entry.gone = True
        self._send(_Leave(entry))

    def put_back(self, taken: list[Taken]) -> None:
        """Undo takes whose answer did not reach anybody."""
        self._send(_PutBack(taken))

    def poke(self) -> None:
        """Let the writer look at the clock; for a clock that was moved."""
        self._inbox.put([])

    def _send(self, entry: Entry) -> None:
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(entry)

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._inbox.put(gathered)

    def _deliver(self, outcomes: list[tuple[Entry, Outcome]]) -> None:
        for entry, outcome in outcomes:
            if entry.command is not None and entry.waiter is None:
                self.pending -= 1
            delivered = False
            try:
                delivered = entry.deliver(outcome)
            except Exception:
                log.exception("an answer could not be delivered")
            if not delivered and isinstance(outcome, Answer) and outcome.taken:
                self.put_back(outcome.taken)

    def _unpark(self, count: int) -> None:
        self.pending -= count

    async def drain(self) -> None:
        """Refuse new commands, answer the waiters, finish what is queued, and end the writer."""
        self._draining = True
        self._flush()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # lets the last answers go out
        left, self._gathered = self._gathered, []
        while not self._inbox.empty():
            left += self._inbox.get_nowait() or []
        if left:
            self._batch(left)  # what could not be delivered goes back before the file is closed

    # --- on the writer thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._round():
                pass
            self._answer_all_waiters()
        except Exception as error:
            log.critical("the writer stopped: %s", error)
            self._loop.call_soon_threadsafe(self._on_failure, error)

    def _round(self) -> bool:
        """Do one batch; return False when the server stops."""
        entries: list[Entry] = []
        goes_on = True
        try:
            found = self._inbox.get(timeout=self._sleep_s())
            while True:
                if found is None:
                    goes_on = False
                    break
                entries += found
                if len(entries) >= self._settings.batch_max:
                    break
                found = self._inbox.get_nowait()
        except Empty:
            pass
        if entries or self._somebody_is_due():
            most = self._settings.batch_max
            for first in range(0, max(len(entries), 1), most):  # one turn of the loop may bring more
                self._batch(entries[first : first + most])
        self._answer_overdue()
        return goes_on

    def _sleep_s(self) -> float:
        sleep = SLEEP_S_MAX
        due = self._waiting.next_due()
        if due is not None:
            until = (moment_of(due or "0001-01-01 00:00:00") - self._clock.now()).total_seconds()
            sleep = min(sleep, until + WAKE_LATE_S)
        deadline = self._waiting.next_deadline()
        if deadline is not None:
            sleep = min(sleep, deadline - self._clock.monotonic())
        return max(sleep, 0.0)

    def _somebody_is_due(self) -> bool:
        due = self._waiting.next_due()
        return due is not None and (not due or moment_of(due) <= self._clock.now())

    def _batch(self, entries: list[Entry]) -> None:
        """Do commands in one transaction; if that fails, each in its own, so that one hurts nobody else."""
        try:
            outcomes = self._transaction(entries)
        except Exception as error:
            self._undo(error)
            if len(entries) > 1:
                for entry in entries:
                    self._batch([entry])
                return
            outcomes = [(entry, _refusal(error)) for entry in entries]
            self._restore_lost_puts(entries)
        if outcomes:
            self._loop.call_soon_threadsafe(self._deliver, outcomes)

    def _transaction(self, entries: list[Entry]) -> list[tuple[Entry, Outcome]]:
        self._parked.clear()
        self._served.clear()
        store = self._store
        outcomes: list[tuple[Entry, Outcome]] = []
        store.begin()
        turn = Turn(store, self._clock.now(), self._settings.compatibility)
        for entry in entries:
            outcome = self._one(turn, entry)
            if isinstance(outcome, Answer) and outcome.waits_for is not None:
                outcome = self._park(turn, entry, outcome)
            if outcome is not None:
                outcomes.append((entry, outcome))
            if store.freed:
                if self._waiting:
                    self._serve(turn, outcomes)
                store.freed.clear()
        if self._waiting:
            self._serve_due(turn, outcomes)
        store.commit()
        self.commits += 1
        self.commands += len(entries)
        if self._parked:
            self._loop.call_soon_threadsafe(self._unpark, len(self._parked))
        return outcomes

    def _one(self, turn: Turn, entry: Entry) -> Outcome | None:
        command = entry.command
        if command is None:
            self._internal(turn, entry)
            return None
        return perform(turn, command)

    def _internal(self, turn: Turn, entry: Entry) -> None:
        if isinstance(entry, _PutBack):
            take.put_back(turn, entry.taken)
        elif isinstance(entry, _Leave):
            self._let_go(entry.left)

    def _park(self, turn: Turn, entry: Entry, answer: Answer) -> Outcome | None:
        """Let a command wait for a job; return its outcome at once where it may not wait."""
        request = answer.waits_for
        assert request is not None
        assert entry.command is not None
        wait_ms = entry.command.timeout if entry.command.timeout is not None else WAIT_MS_DEFAULT
        if entry.gone or wait_ms <= 0 or self._draining:
            return _empty(entry, request)
        self._seq += 1
        deadline = self._clock.monotonic() + min(wait_ms, WAIT_MS_MAX) / 1000
        entry.waiter = waiter = Waiter(entry, request, self._seq, deadline)
        group = self._waiting.add(waiter)
        self._parked.append(waiter)
        if len(group.waiters) == 1:
            soonest = turn.tx.soonest(request.names, turn.now_ms, mocked=request.mocked)
            if soonest is not None:
                self._waiting.note_due(group, soonest)
        return None

    def _serve(self, turn: Turn, outcomes: list[tuple[Entry, Outcome]]) -> None:
        """Hand jobs that became ready to those who have waited longest for them."""
        for row in self._store.freed:  # grows: a taken retryAfter job will be ready again
            groups = self._waiting.groups_for(row)
            if row.next_run > turn.now_ms:
                for group in groups:
                    self._waiting.note_due(group, row.next_run)
                continue
            while groups:
                waiter = min((group.oldest() for group in groups), key=lambda waiter: waiter.seq)
                answer = take.take(turn, waiter.request)
                if answer is None:
                    break
                self._hand_over(waiter, answer, outcomes)
                if any(taken.before.job_id == row.job_id for taken in answer.taken):
                    break
                groups = [group for group in groups if group.waiters]

    def _serve_due(self, turn: Turn, outcomes: list[tuple[Entry, Outcome]]) -> None:
        """Hand out jobs that have become due since the last turn."""
        groups = self._waiting.due_groups(turn.now_ms)
        while groups:
            waiter = min((group.oldest() for group in groups), key=lambda waiter: waiter.seq)
            answer = take.take(turn, waiter.request)
            group = waiter.group
            assert group is not None
            if answer is None:
                groups.remove(group)
                request = group.request
                soonest = turn.tx.soonest(request.names, turn.now_ms, mocked=request.mocked)
                if soonest is not None:
                    self._waiting.note_due(group, soonest)
                continue
            self._hand_over(waiter, answer, outcomes)
            groups = [group for group in groups if group.waiters]
        for row in self._store.freed:
            for group in self._waiting.groups_for(row):
                self._waiting.note_due(group, row.next_run)
        self._store.freed.clear()

    def _hand_over(self, waiter: Waiter, answer: Answer, outcomes: list[tuple[Entry, Outcome]]) -> None:
        self._waiting.remove(waiter)
        self._served.append(waiter)
        outcomes.append((waiter.entry, answer))

    def _let_go(self, entry: Entry) -> None:
        if entry.waiter is not None and self._waiting.remove(entry.waiter):
            self._say_nothing(entry.waiter)

    def _answer_overdue(self) -> None:
        for waiter in self._waiting.overdue(self._clock.monotonic()):
            if self._waiting.remove(waiter):
                self._say_nothing(waiter)

    def _answer_all_waiters(self) -> None:
        for waiter in self._waiting.everyone():
            self._waiting.remove(waiter)
            self._say_nothing(waiter)

    def _say_nothing(self, waiter: Waiter) -> None:
        outcome = _empty(waiter.entry, waiter.request)
        self._loop.call_soon_threadsafe(self._deliver, [(waiter.entry, outcome)])

    # --- when the database fails -------------------------------------------------------------------------

    def _undo(self, error: Exception) -> None:
        """Bring rows and waiters back to before the transaction; raises where the disk cannot be trusted."""
        if isinstance(error, sqlite3.OperationalError) and "FSYNC" in error.sqlite_errorname:
            raise error  # after a failed fsync nobody knows what is on disk; a new start finds out
        if not isinstance(error, sqlite3.OperationalError):
            log.exception("a command failed", exc_info=error)
        else:
            log.error("the database refused: %s (%s)", error, error.sqlite_errorname)
        for waiter in self._parked:
            self._waiting.remove(waiter)
            waiter.entry.waiter = None
        parked = set(self._parked)
        self._waiting.restore([waiter for waiter in self._served if waiter not in parked])
        self._parked.clear()
        self._served.clear()
        self._store.rollback()

    def _restore_lost_puts(self, entries: list[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, _PutBack):
                log.error("jobs %s stay RUNNING: they could not be put back", _ids(entry.taken))


def _ids(taken: list[Taken]) -> str:
    return ", ".join(str(item.before.job_id) for item in taken)


def _empty(entry: Entry, request: TakeRequest) -> Outcome:
    try:
        return take.nothing(request)
    except CommandError as error:
        return error


def _refusal(error: Exception) -> CommandError:
    """Return what a client is told when its transaction failed; nothing of it was committed."""
    if isinstance(error, sqlite3.OperationalError):
        name = error.sqlite_errorname
        if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
            return Unavailable("Disk full", "nothing was done; the database cannot grow")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return Unavailable("Database busy", "nothing was done; another process keeps the database locked")
    return ServerFault(detail="nothing was done; the server's log tells more")
