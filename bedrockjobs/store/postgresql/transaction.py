"""The open transaction: writes are remembered, and sent with the next read or with the commit.

Most units so take two round trips: one that locks and reads, one that writes and commits. What is remembered
is a list of statements in order; a part that is undone before it was sent leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.job.lifecycle import after_take
from bedrockjobs.job.rows import DamagedJob, Job, checksum_of, job_from
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.store.base import StoreConflict
from bedrockjobs.store.postgresql.session import DatabaseSession, Row, Statement, columns
from bedrockjobs.store.postgresql.statements import EVENTS
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

# The queued jobs among those that a unit knows, by who is next.
#
# An entry may be out of date: it is checked when it comes to the top. No statements, no clock.


Order = tuple[int, str, int]
"""How takes sort jobs: priority, highest first, then nextRun, then jobID."""

EVERYTHING: Order = (1, "", 0)
"""Behind the last job there may be."""

NOWHERE: Order = (-max(PRIORITIES) - 1, "", 0)
"""Before the first job there may be."""

_Classes = dict[int, list[tuple[str, int]]]
"""NextRun and jobID of queued jobs, a heap for each priority."""


def order_of(job: Job) -> Order:
    """Return where a job stands among those that are due."""
    return -job.priority, job.next_run, job.job_id


class Candidates:
    """Queued jobs by name, and by the patterns that they were asked for with."""

    def __init__(self) -> None:
        """Begin with none."""
        self._names: dict[str, _Classes] = {}
        self._patterns: dict[Names, _Classes] = {}

    def clear(self) -> None:
        """Begin anew with none."""
        self._names, self._patterns = {}, {}

    def offer(self, job: Job) -> None:
        """Note a job that was read or written, if it is queued."""
        if job.queued:
            _push(self._names.setdefault(job.name, {}), job)
            for names, classes in self._patterns.items():
                if names.match(job.name):
                    _push(classes, job)

    def first(
        self, request: TakeRequest, now: str, job: Callable[[int], Job | None], is_open: Callable[[Job], bool]
    ) -> Job | None:
        """Return the first that is due and asked for; ``job`` returns a row, ``is_open`` whether it may be
        taken where only its name and its lane count."""
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
        """Return all that some patterns match."""
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
    """Return the first of some jobs, see ``Candidates.first``."""
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


# The jobs that a unit has read, as it has them now and as the database has them; and the difference.
#
# No statement is sent here. What was read is locked, so what is written in sets is what the handlers saw.


_WIDTH = len(Job._fields)
_PARENTAL = _WIDTH + 1
"""Where a row says whether it had a child: behind the checksum."""
_CLAIMED = _PARENTAL + 1
"""Where a row of a claiming look says whether it was marked as taken."""
_PLAIN = Job("", 0, "", "", "")
_PLAIN_BEFORE, _PLAIN_BEHIND = _PLAIN[5:7], _PLAIN[8:]
"""What stands before and behind the data of a job of which nothing else was said: defaults of the table."""


def row_order(row: Row) -> Order:
    """Return where a row that was read stands among those that are due."""
    return -row[8], row[4], row[1]


class RowsSavepoint(NamedTuple):
    """The rows at some moment."""

    now: dict[int, Job | None]
    ahead: dict[int, Job | None]
    parental: frozenset[int]


class UnitRows:
    """The jobs of one unit by jobID; None stands for one that does not exist."""

    def __init__(self) -> None:
        """Begin with none."""
        self.now: dict[int, Job | None] = {}
        """As the unit has them."""
        self._stored: dict[int, Job | None] = {}
        self._touched: dict[int, None] = {}
        self._ahead: dict[int, Job | None] = {}
        """As the database has those that it took or ended in the first round trip, and no handler did yet."""
        self.parental: set[int] = set()
        """Those that had a child."""
        self._new_parents: set[int] = set()
        self.candidates = Candidates()
        """Those that are queued."""
        self.chars_read = 0

    def forget(self) -> None:
        """Begin anew with none."""
        self.now, self._stored, self._touched, self._ahead = {}, {}, {}, {}
        self.parental, self._new_parents = set(), set()
        self.candidates.clear()

    # --- what was read -----------------------------------------------------------------------------------

    def read(self, found: Iterable[Row], claimed: str = "") -> list[Job]:
        """Keep rows that were read and locked; return the jobs as the unit has them, without those gone.

        With ``claimed``, a timestamp, each row says whether it was marked as taken then.
        """
        jobs = []
        for row in found:
            job_id = row[1]
            if job_id not in self.now:
                job = job_from(row)
                self.chars_read += len(job.data)
                self.now[job_id] = self._stored[job_id] = job
                if row[_PARENTAL]:
                    self.parental.add(job_id)
                self.candidates.offer(job)
            known = self.now[job_id]
            if known is not None:
                jobs.append(known)
                if claimed and row[_CLAIMED]:
                    taken = type(known)._make(after_take(known, claimed, 0))
                    self._stored[job_id] = self._ahead[job_id] = taken
        return jobs

    def read_ended(self, found: Iterable[Row]) -> None:
        """Keep rows that were removed; for the handlers they are there until one ends them.

        Raises StoreConflict for a damaged one, as it could not be put back the way it was.
        """
        for job in self.read(found):
            if type(job) is DamagedJob:
                raise StoreConflict(f"job {job.job_id} is damaged: it is looked at before it is removed")
            self._stored[job.job_id] = self._ahead[job.job_id] = None

    def miss(self, job_ids: Iterable[int]) -> None:
        """Note that those of some jobs which were not found do not exist."""
        for job_id in job_ids:
            if job_id not in self.now:
                self.now[job_id] = self._stored[job_id] = None

    # --- what was written --------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Tell whether anything is different from what is stored."""
        return bool(self._touched or self._new_parents or self._ahead)

    def write(self, job: Job) -> None:
        """Have a job as it is now; one that is new is stored nowhere yet."""
        self._stored.setdefault(job.job_id, None)
        self.now[job.job_id] = job
        self._touched[job.job_id] = None
        self.candidates.offer(job)

    def note_child(self, parent_id: int) -> None:
        """Note that a job has a child from now on."""
        if parent_id not in self.parental:
            self.parental.add(parent_id)
            self._new_parents.add(parent_id)

    def remove(self, job_id: int) -> None:
        """Have a job no more."""
        self.now[job_id] = None
        self._touched[job_id] = None

    def queued(self) -> list[int]:
        """Return the jobs that are queued; the database finds them too, once all is written."""
        return [job_id for job_id, job in self.now.items() if job is not None and job.queued]

    def put_back(self) -> list[Job]:
        """Return the queued jobs that the database marked as taken and no handler took."""
        return [job for job_id in self._ahead if (job := self.now[job_id]) is not None and job.queued]

    # --- parts -------------------------------------------------------------------------------------------

    def mark(self) -> RowsSavepoint:
        """Return what ``undo`` needs; at this moment nothing differs but what the database is ahead in."""
        return RowsSavepoint(dict(self.now), dict(self._ahead), frozenset(self.parental))

    def undo(self, mark: RowsSavepoint) -> None:
        """Be as at the mark."""
        self.now, self._stored, self._ahead = dict(mark.now), {**mark.now, **mark.ahead}, dict(mark.ahead)
        self._touched, self.parental, self._new_parents = {}, set(mark.parental), set()
        self.candidates.clear()
        for job in self.now.values():
            if job is not None:
                self.candidates.offer(job)

    # --- the difference ----------------------------------------------------------------------------------

    def differences(self, *, last: bool = False) -> list[Statement]:
        """Return statements that store what is different, and take that as stored.

        With the ``last`` ones, what the database is ahead in and no handler did is put back.
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
                ("save_jobs", columns([_saved(job) for job in saved])),
                ("save_data", columns([(job.job_id, job.data, checksum_of(job.data)) for job in data])),
                ("note_parents", columns([(job_id,) for job_id in parents])),
                ("delete_jobs", columns([(job_id,) for job_id in gone])),
            )
            if parameters
        ]

    def _plain_first(self, new: list[Job]) -> tuple[list[object], list[Job]]:
        """Return what ``insert_plain_jobs`` is given, of nearly all new jobs, and the jobs that are left."""
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
    """Tell whether a job was taken and is otherwise as it was."""
    taken = before._replace(state=job.state, last_run=job.last_run, attempt=job.attempt, run_id=job.run_id)
    return job.state == "RUNNING" and job == taken


def _saved(job: Job) -> Row:
    """Return what can change in a job but its data, as ``save_jobs`` takes it."""
    return (
        job.job_id,
        job.state,
        job.name,
        job.next_run,
        job.last_run,
        job.repeat,
        job.priority,
        job.retry_after,
        job.attempt,
        job.run_id,
        job.expires,
        job.lane,
        job.options_json,
        job.memory_json,
    )


_PARTS = frozenset({SQL["savepoint"], SQL["release"], SQL["undo_part"]})
"""Statements that write nothing themselves."""


class Savepoint(NamedTuple):
    """Where a part began."""

    writes: int
    events: int


class ResultRows(list[Row]):
    """The rows of one statement, to be read as those of a cursor are."""

    def fetchone(self) -> Row | None:
        """Return the first row, or None."""
        return self[0] if self else None

    def fetchall(self) -> list[Row]:
        """Return all rows."""
        return self


class Transaction:
    """What one unit has written and not yet sent."""

    def __init__(self, session: DatabaseSession, differences: Callable[[bool], list[Statement]]) -> None:
        """Send over ``session``; ``differences`` returns what changed in rows since it was last asked.

        It is told whether that are the last ones.
        """
        self._session = session
        self._differences = differences
        self._writes: list[Statement] = []
        self._events: list[Row] = []
        self._mark: Savepoint | None = None
        """Where the open part began, if it is not known to the database."""
        self.wrote = False
        """Whether anything was sent that writes."""

    def begin(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Begin, and do what locks and reads."""
        self.forget()
        return self._session.run([(SQL["begin"], ()), *statements])[1:]

    @property
    def changed(self) -> bool:
        """Tell whether anything was written beside what changed in jobs."""
        return self.wrote or bool(self._events) or any(sql not in _PARTS for sql, _ in self._writes)

    # --- statements --------------------------------------------------------------------------------------

    def write(self, sql: str, *parameters: Any) -> None:
        """Remember a statement that writes."""
        self._writes.append((sql, parameters))

    def read(self, *statements: Statement) -> list[list[Row]]:
        """Do statements that see all that was written; return the rows of each."""
        pending = self._pending()
        return self._session.run([*pending, *statements])[len(pending) :]

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> ResultRows:
        """Do a statement that reads, or remember one that writes."""
        if sql.startswith("SELECT"):
            return ResultRows(self.read((sql, parameters))[0])
        if sql in EVENTS:
            self._events.append(tuple(parameters))
        else:
            self._writes.append((sql, parameters))
        return ResultRows()

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Remember a statement that writes, for each row."""
        self._writes += [(sql, row) for row in rows]

    def _pending(self) -> list[Statement]:
        """Return what is to be sent before anything can be read, and remember it no more."""
        self.collect()
        writes, self._writes = self._writes, []
        self.wrote = self.wrote or any(sql not in _PARTS for sql, _ in writes)
        if writes:
            self._mark = None  # the database knows of the part from now on
        return writes

    def collect(self) -> None:
        """Remember what changed in rows that are kept elsewhere: what follows is done after it."""
        self._writes += self._differences(False)

    # --- parts -------------------------------------------------------------------------------------------

    def savepoint(self) -> Savepoint:
        """Begin a part."""
        self.collect()
        self._mark = Savepoint(len(self._writes), len(self._events))
        self._writes.append((SQL["savepoint"], ()))
        return self._mark

    def release(self) -> None:
        """Keep the part."""
        if self._mark is None:
            self._writes.append((SQL["release"], ()))
        else:
            del self._writes[self._mark.writes]  # nobody has to know of it
            self._mark = None

    def undo(self, mark: Savepoint) -> None:
        """Undo the part that began at a mark; what changed in jobs is undone by who keeps them."""
        del self._events[mark.events :]
        if self._mark is None:
            self._session.script(SQL["undo_part"])
            self._writes = [(SQL["release"], ())]
        else:
            del self._writes[mark.writes :]
            self._mark = None

    def forget(self) -> None:
        """Remember nothing: the transaction is over."""
        self._writes, self._events, self._mark, self.wrote = [], [], None, False

    # --- the end -----------------------------------------------------------------------------------------

    def commit(
        self, before_events: Statement, last: Statement, reads: Sequence[Statement] = ()
    ) -> list[list[Row]]:
        """Send what is left, and commit; return what was read as it is then. Raises StoreError.

        ``before_events`` precedes the events, if there are any; ``last`` is done where anything was written.
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
        found = self._session.commit([*statements, (SQL["commit"], ())])
        self.forget()
        return found[first : first + len(reads)]
