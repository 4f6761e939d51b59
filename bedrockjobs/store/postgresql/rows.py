"""The jobs that a unit has read, as it has them now and as the database has them; and the difference.

No statement is sent here. What was read is locked, so what is written in sets is what the handlers saw.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bedrockjobs.job.lifecycle import after_take
from bedrockjobs.job.rows import DamagedJob, Job, checksum_of, job_from
from bedrockjobs.store.faults import StoreConflict
from bedrockjobs.store.postgresql.candidates import Candidates, Order
from bedrockjobs.store.postgresql.pipeline import Row, Statement, columns
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

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


class Mark(NamedTuple):
    """The rows at some moment."""

    now: dict[int, Job | None]
    ahead: dict[int, Job | None]
    parental: frozenset[int]


class Rows:
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

        With ``claimed``, a stamp, each row says whether it was marked as taken then.
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

    def mark(self) -> Mark:
        """Return what ``undo`` needs; at this moment nothing differs but what the database is ahead in."""
        return Mark(dict(self.now), dict(self._ahead), frozenset(self.parental))

    def undo(self, mark: Mark) -> None:
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
        job.job_id, job.state, job.name, job.next_run, job.last_run, job.repeat, job.priority,
        job.retry_after, job.attempt, job.run_id, job.expires, job.lane, job.options_json, job.memory_json,
    )  # fmt: skip
