"""The open transaction: rows in memory, buffered writes, and the jobs that takes choose from.

Writes are sent with the next read or with the commit. So most units need two round trips: one locks and reads
rows, the other writes and commits. The buffer is a list of statements in order. If a savepoint is rolled back
before it was sent, its statements are removed from the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.job.lifecycle import after_take
from bedrockjobs.job.rows import DamagedJob, Job, checksum_of, job_from, saved_columns
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.base import StoreConflict
from bedrockjobs.store.postgresql.session import DatabaseSession, Row, Statement, columns
from bedrockjobs.store.postgresql.statements import EVENTS
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

# The queued jobs known to a unit, in the order of takes. An entry may be outdated, and is verified when it is
# the first one.


Order = tuple[int, str, int]
"""Sort key of takes: negated priority, nextRun, jobID."""

EVERYTHING: Order = (1, "", 0)
"""A position that sorts after every job."""

NOWHERE: Order = (-max(PRIORITIES) - 1, "", 0)
"""A position that sorts before every job."""

_Classes = dict[int, list[tuple[str, int]]]
"""A heap of nextRun and jobID of queued jobs for each priority."""


def order_of(job: Job) -> Order:
    """Return the sort key of a job."""
    return -job.priority, job.next_run, job.job_id


class Candidates:
    """The queued jobs known to a unit, by name and by the patterns that were requested."""

    def __init__(self) -> None:
        self._names: dict[str, _Classes] = {}
        self._patterns: dict[Names, _Classes] = {}

    def clear(self) -> None:
        """Drop all jobs."""
        self._names, self._patterns = {}, {}

    def offer(self, job: Job) -> None:
        """Add a job that was read or written, if it is queued."""
        if job.queued:
            _push(self._names.setdefault(job.name, {}), job)
            for names, classes in self._patterns.items():
                if names.match(job.name):
                    _push(classes, job)

    def first(
        self, request: TakeRequest, now: str, job: Callable[[int], Job | None], is_open: Callable[[Job], bool]
    ) -> Job | None:
        """Return the first due job for a request; ``job`` reads a row, ``is_open`` checks pause and lock."""
        names = request.names
        if not names.exact:
            return _first_of(self._matching(names), request, now, job, is_open)
        if names.single is not None:  # nearly all of them
            classes = self._names.get(names.single)
            return None if classes is None else _first_of(classes, request, now, job, is_open)
        known = names.exact & self._names.keys()
        firsts = (_first_of(self._names[name], request, now, job, is_open) for name in known)
        return min((each for each in firsts if each is not None), key=order_of, default=None)

    def _matching(self, names: Names) -> _Classes:
        """Return the heaps of all jobs that match some patterns."""
        found = self._patterns.get(names)
        if found is None:
            found = self._patterns[names] = {}
            for name, classes in self._names.items():
                if names.match(name):
                    for priority, heap in classes.items():
                        found.setdefault(priority, []).extend(heap)
            for heap in found.values():
                heapify(heap)
        return found


def _first_of(
    classes: _Classes,
    request: TakeRequest,
    now: str,
    job: Callable[[int], Job | None],
    is_open: Callable[[Job], bool],
) -> Job | None:
    """Return the first due job of some heaps, see ``Candidates.first``."""
    for priority in PRIORITIES:
        heap, closed, found = classes.get(priority), [], None
        while heap and heap[0][0] <= now and found is None:
            next_run, job_id = heap[0]
            known = job(job_id)
            if known is None or not known.queued or order_of(known) != (-priority, next_run, job_id):
                heappop(heap)
            elif request.fits(known) and is_open(known):
                found = known
            else:
                closed.append(heappop(heap))
        if heap is not None:
            for entry in closed:
                heappush(heap, entry)
        if found is not None:
            return found
    return None


def _push(classes: _Classes, job: Job) -> None:
    heappush(classes.setdefault(job.priority, []), (job.next_run, job.job_id))


# The jobs that a unit has read, as changed in memory and as stored, and the difference to write.
#
# All rows read are locked, so writing them in sets stores exactly what the handlers saw. Nothing is sent
# here.


_WIDTH = len(Job._fields)
"""Index in a row of the checksum. Behind it are whether the job ever had a child, and whether the query
marked it as taken."""
_PLAIN = Job("", 0, "", "", "")
_PLAIN_BEFORE, _PLAIN_BEHIND = _PLAIN[5:7], _PLAIN[8:]
"""Default values of the columns before and after ``data``. ``insert_plain_jobs`` inserts only jobs that have
these values."""


def row_order(row: Row) -> Order:
    """Return the sort key of a row."""
    return -row[8], row[4], row[1]


class RowsSavepoint(NamedTuple):
    """The state of the rows at a savepoint."""

    now: dict[int, Job | None]
    ahead: dict[int, Job | None]
    parental: frozenset[int]


class UnitRows:
    """The jobs of one unit by jobID; None for a job that does not exist."""

    def __init__(self) -> None:
        self.now: dict[int, Job | None] = {}
        """The jobs as the unit has changed them."""
        self._stored: dict[int, Job | None] = {}
        self._touched: dict[int, None] = {}
        self._ahead: dict[int, Job | None] = {}
        """Jobs that the first round trip took or deleted before a handler did so, as the database has them
        now."""
        self.parental: set[int] = set()
        """Jobs that ever had a child."""
        self._new_parents: set[int] = set()
        self.candidates = Candidates()
        """The queued jobs among the jobs of the unit."""
        self.chars_read = 0

    def forget(self) -> None:
        """Drop all jobs."""
        self.now, self._stored, self._touched, self._ahead = {}, {}, {}, {}
        self.parental, self._new_parents = set(), set()
        self.candidates.clear()

    # --- what was read -----------------------------------------------------------------------------------

    def add_rows(self, rows: Iterable[Row], claimed: str = "") -> list[Job]:
        """Add rows that were read and locked; return their jobs as changed in memory, without deleted jobs.

        With ``claimed``, a timestamp, each row also says whether the query marked the job as taken then.
        """
        jobs = []
        for row in rows:
            job_id = row[1]
            if job_id not in self.now:
                job = job_from(row)
                self.chars_read += len(job.data)
                self.now[job_id] = self._stored[job_id] = job
                if row[_WIDTH + 1]:
                    self.parental.add(job_id)
                self.candidates.offer(job)
            known = self.now[job_id]
            if known is not None:
                jobs.append(known)
                if claimed and row[_WIDTH + 2]:
                    taken = type(known)._make(after_take(known, claimed, 0))
                    self._stored[job_id] = self._ahead[job_id] = taken
        return jobs

    def read_ended(self, rows: Iterable[Row]) -> None:
        """Add rows that the first round trip has deleted; handlers see each job until they delete it too.

        Raises StoreConflict for a damaged job, since it could not be restored unchanged.
        """
        for job in self.add_rows(rows):
            if type(job) is DamagedJob:
                raise StoreConflict(f"job {job.job_id} is damaged: it is looked at before it is removed")
            self._stored[job.job_id] = self._ahead[job.job_id] = None

    def miss(self, job_ids: Iterable[int]) -> None:
        """Record, for jobIDs that were requested, that the jobs that were not found do not exist."""
        for job_id in job_ids:
            if job_id not in self.now:
                self.now[job_id] = self._stored[job_id] = None

    # --- what was written --------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Return whether anything differs from the database."""
        return bool(self._touched or self._new_parents or self._ahead)

    def write(self, job: Job) -> None:
        """Set the present value of a job, which may be new."""
        self._stored.setdefault(job.job_id, None)
        self.now[job.job_id] = job
        self._touched[job.job_id] = None
        self.candidates.offer(job)

    def note_child(self, parent_id: int) -> None:
        """Record that a job has a child."""
        if parent_id not in self.parental:
            self.parental.add(parent_id)
            self._new_parents.add(parent_id)

    def remove(self, job_id: int) -> None:
        """Delete a job."""
        self.now[job_id] = None
        self._touched[job_id] = None

    def queued(self) -> list[int]:
        """Return the jobIDs of the queued jobs, which a query would find again."""
        return [job_id for job_id, job in self.now.items() if job is not None and job.queued]

    def put_back(self) -> list[Job]:
        """Return the queued jobs that the database marked as taken and no handler took."""
        return [job for job_id in self._ahead if (job := self.now[job_id]) is not None and job.queued]

    # --- savepoints -----------------------------------------------------------------------------------------

    def mark(self) -> RowsSavepoint:
        """Return the state for ``undo``; all differences must have been collected."""
        return RowsSavepoint(dict(self.now), dict(self._ahead), frozenset(self.parental))

    def undo(self, mark: RowsSavepoint) -> None:
        """Restore the state at the mark."""
        self.now, self._stored, self._ahead = dict(mark.now), {**mark.now, **mark.ahead}, dict(mark.ahead)
        self._touched, self.parental, self._new_parents = {}, set(mark.parental), set()
        self.candidates.clear()
        for job in self.now.values():
            if job is not None:
                self.candidates.offer(job)

    # --- the difference ----------------------------------------------------------------------------------

    def differences(self, *, last: bool = False) -> list[Statement]:
        """Return the statements that write all jobs changed in memory; the changes then count as stored.

        With ``last``, also restore the jobs that the first statements of the unit took or deleted in advance
        and that no handler then took or deleted.
        """
        if last:
            self._touched.update(dict.fromkeys(self._ahead))
        new: list[Job] = []
        claims: list[Job] = []
        saved: list[Job] = []
        data: list[Job] = []
        gone: list[int] = []
        for job_id in self._touched:
            before, job = self._stored[job_id], self.now[job_id]
            self._stored[job_id] = job
            self._ahead.pop(job_id, None)
            if before == job and type(before) is type(job):
                continue
            if job is None:
                gone.append(job_id)
            elif before is None:
                new.append(job)
            else:
                if before.data != job.data or type(before) is not type(job):
                    data.append(job)
                if _is_claimed(before, job):
                    claims.append(job)
                elif before._replace(data="") != job._replace(data=""):
                    saved.append(job)
        new_ids = {job.job_id for job in new}
        parents = [job_id for job_id in sorted(self._new_parents) if self.now.get(job_id) is not None]
        parents = [job_id for job_id in parents if job_id not in new_ids]
        plain, new = self._plain_first(new)
        self._touched, self._new_parents = {}, set()
        return [
            (SQL[name], parameters)
            for name, parameters in (
                ("insert_plain_jobs", plain),
                ("insert_jobs", columns([self._inserted(job) for job in new])),
                ("claim_jobs", columns([(j.job_id, j.last_run, j.attempt, j.run_id) for j in claims])),
                ("save_jobs", columns([(job.job_id, *saved_columns(job)) for job in saved])),
                ("save_data", columns([(job.job_id, job.data, checksum_of(job.data)) for job in data])),
                ("note_parents", columns([(job_id,) for job_id in parents])),
                ("delete_jobs", columns([(job_id,) for job_id in gone])),
            )
            if parameters
        ]

    def _plain_first(self, new: list[Job]) -> tuple[list[object], list[Job]]:
        """Return the parameters of ``insert_plain_jobs``, for nearly all new jobs, and the remaining jobs."""
        plain, others = list[Job](), list[Job]()
        for job in new:
            alike = job.state == "QUEUED" and job[5:7] == _PLAIN_BEFORE and job[8:] == _PLAIN_BEHIND
            if alike and (not plain or (job.created, job.next_run) == (plain[0].created, plain[0].next_run)):
                (others if job.job_id in self.parental else plain).append(job)
            else:
                others.append(job)
        if not plain:
            return [], others
        rows = [(job.job_id, job.name, job.data, checksum_of(job.data)) for job in plain]
        return [plain[0].created, plain[0].next_run, *columns(rows)], others

    def _inserted(self, job: Job) -> Row:
        return (*job, checksum_of(job.data), job.job_id in self.parental)


def _is_claimed(before: Job, job: Job) -> bool:
    """Return whether a job was taken and is otherwise unchanged."""
    taken = before._replace(state=job.state, last_run=job.last_run, attempt=job.attempt, run_id=job.run_id)
    return job.state == "RUNNING" and job == taken


_PARTS = frozenset({SQL["savepoint"], SQL["release"], SQL["undo_part"]})
"""Statements for savepoints, which write nothing themselves."""


class Savepoint(NamedTuple):
    """The numbers of writes and events in the buffer at a savepoint."""

    writes: int
    events: int


class ResultRows(list[Row]):
    """The rows of one statement, with the interface of a cursor."""

    def fetchone(self) -> Row | None:
        """Return the first row, or None."""
        return self[0] if self else None

    def fetchall(self) -> list[Row]:
        """Return all rows."""
        return self


class Transaction:
    """The buffered writes of one unit."""

    def __init__(self, session: DatabaseSession, differences: Callable[[bool], list[Statement]]) -> None:
        """Send over ``session``; ``differences`` returns the statements for rows changed since its last call.

        The argument of ``differences`` is whether this is the last call of the unit.
        """
        self._session = session
        self._differences = differences
        self._writes: list[Statement] = []
        self._events: list[Row] = []
        self._mark: Savepoint | None = None
        """The open savepoint while it has not been sent to the database, else None."""
        self.wrote = False
        """Whether any write was sent."""

    def begin(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Begin the transaction and run statements."""
        self.forget()
        return self._session.run_statements([(SQL["begin"], ()), *statements])[1:]

    @property
    def changed(self) -> bool:
        """Return whether anything was written, apart from changes to jobs in memory."""
        return self.wrote or bool(self._events) or any(sql not in _PARTS for sql, _ in self._writes)

    # --- statements --------------------------------------------------------------------------------------

    def write(self, sql: str, *parameters: Any) -> None:
        """Buffer a statement that writes."""
        self._writes.append((sql, parameters))

    def run_statements(self, *statements: Statement) -> list[list[Row]]:
        """Send buffered writes, then run statements; return the rows of each."""
        pending = self._pending()
        return self._session.run_statements([*pending, *statements])[len(pending) :]

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> ResultRows:
        """Run a statement that reads and return its rows, or buffer a statement that writes."""
        if sql.startswith("SELECT"):
            return ResultRows(self.run_statements((sql, parameters))[0])
        if sql in EVENTS:
            self._events.append(tuple(parameters))
        else:
            self._writes.append((sql, parameters))
        return ResultRows()

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Buffer a statement that writes, for each row."""
        self._writes += [(sql, row) for row in rows]

    def _pending(self) -> list[Statement]:
        """Return and clear the writes to send before the next read."""
        self.collect()
        writes, self._writes = self._writes, []
        self.wrote = self.wrote or any(sql not in _PARTS for sql, _ in writes)
        if writes:
            self._mark = None  # the savepoint is sent now
        return writes

    def collect(self) -> None:
        """Buffer the changes to rows, so that later statements run after them."""
        self._writes += self._differences(False)

    # --- savepoints -----------------------------------------------------------------------------------------

    def savepoint(self) -> Savepoint:
        """Begin a savepoint."""
        self.collect()
        self._mark = Savepoint(len(self._writes), len(self._events))
        self._writes.append((SQL["savepoint"], ()))
        return self._mark

    def release(self) -> None:
        """Release the savepoint."""
        if self._mark is None:
            self._writes.append((SQL["release"], ()))
        else:
            del self._writes[self._mark.writes]  # it was not sent yet
            self._mark = None

    def undo(self, mark: Savepoint) -> None:
        """Roll back to the savepoint; changes to jobs are undone by ``UnitRows``."""
        del self._events[mark.events :]
        if self._mark is None:
            self._session.script(SQL["undo_part"])
            self._writes = [(SQL["release"], ())]
        else:
            del self._writes[mark.writes :]
            self._mark = None

    def forget(self) -> None:
        """Drop the buffer: the transaction has ended."""
        self._writes, self._events, self._mark, self.wrote = [], [], None, False

    # --- the end -----------------------------------------------------------------------------------------

    def commit(
        self, before_events: Statement, last: Statement, reads: Sequence[Statement] = ()
    ) -> list[list[Row]]:
        """Send the remaining writes and commit; return the rows of ``reads``. Raises StoreError.

        ``before_events`` precedes the events, if there are any; ``last`` runs if anything was written.
        """
        self._writes += self._differences(True)
        statements = self._pending()
        first = len(statements)
        statements += reads
        if self._events:
            statements += [before_events, (SQL["add_events"], columns(self._events))]
            self.wrote = True
        if self.wrote:
            statements.append(last)
        results = self._session.commit([*statements, (SQL["commit"], ())])
        self.forget()
        return results[first : first + len(reads)]
