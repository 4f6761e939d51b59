"""What a handler works with, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import Compatibility
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import stamp, stamp_ms
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.lanes import EVERY_LANE, parse_lane
from bedrockjobs.job.rows import Job, Names
from bedrockjobs.observe.measurements import Measurements
from bedrockjobs.store.base import Transaction

Topic = tuple[str, int]
"""What somebody may wait for a change of: ``("output", runID)`` or ``EVENTS``."""

EVENTS: Topic = ("events", 0)

SHOWN = OPTIONS | {"source"}
"""The members of a job's options that its answers show."""


class Context:
    """One open transaction, and the moment at which all its commands happen."""

    __slots__ = (
        "after",
        "caught_up",
        "compatibility",
        "lost",
        "measurements",
        "moment",
        "now",
        "now_ms",
        "presence",
        "retried",
        "seen",
        "since",
        "topics",
        "tx",
    )

    def __init__(
        self,
        tx: Transaction,
        moment: datetime,
        compatibility: Compatibility,
        *,
        presence: WorkerRegistry | None = None,
        measurements: Measurements | None = None,
        since: str = "",
        seen: str = "",
    ) -> None:
        """Open a turn; the server runs since ``since``, and its forerunner was ``seen`` last."""
        self.tx = tx
        self.moment = moment
        self.now = stamp(moment)
        self.now_ms = stamp_ms(moment)
        self.compatibility = compatibility
        self.caught_up = False
        """Whether the run of the schedule that is being taken makes up for ticks that were missed."""
        self.lost = 0
        """Runs that were taken away from their workers."""
        self.retried = 0
        """Jobs that were queued again because they have retries left."""
        self.since = since
        self.seen = seen
        self.presence = presence or WorkerRegistry()
        """Who works on what; it is told by ``after``, never from within a transaction."""
        self.measurements = measurements or Measurements()
        """What is measured; it is told by ``after`` as well."""
        self.after: list[Callable[[], object]] = []
        """What is done once the transaction is on disk."""
        self.topics: set[Topic] = set()
        """Who is woken then."""

    def note(
        self, kind: str, *, name: str = "", job_id: int = 0, run_id: int = 0, by: str = "", detail: str = ""
    ) -> None:
        """Tell what happened, as an event."""
        self.tx.records.add_event(
            self.now_ms, kind, name=name, job_id=job_id, run_id=run_id, by=by, detail=detail
        )
        self.topics.add(EVENTS)


class Taken(NamedTuple):
    """A job that was handed out: its row before and after, so that it can go back as it was."""

    before: Job
    after: Job


@dataclass(slots=True)
class TakeRequest:
    """Which jobs somebody asks for, and how the answer is to look."""

    names: Names
    mocked: bool
    priority: int | None
    worker: str | None
    limit: int
    shape: str
    """``job``: the job itself; ``jobs``: a list; ``then``: the job, or null, under ``job``."""
    accepts: tuple[str, ...] = ()
    """Kinds of commands that a job may bring along."""
    leased: bool = False
    """Whether the worker sends heartbeats."""
    host: str = ""
    pid: int = 0

    def fits(self, row: Job) -> bool:
        """Tell whether a queued job is one of those asked for."""
        return (
            (self.priority is None or self.priority == row.priority)
            and (self.mocked or not row.mocked)
            and self.names.match(row.name)
            and (not row.lane or row.mocked or self._may_take(row.lane))
        )

    def _may_take(self, lane: str) -> bool:
        parts = parse_lane(lane)
        return lane != EVERY_LANE and parts.own in ("", *self.accepts) and parts.worker in ("", self.worker)


@dataclass(slots=True)
class Answer:
    """What a command gives back: JSON text (empty: no body), and the jobs it handed out."""

    body: str = ""
    taken: Sequence[Taken] = ()
    waits_for: TakeRequest | None = None
    """Set where the command is done but its answer waits for a job."""
    media: str = "application/json"
    """What the body is; only Query can answer with something else."""


def render(row: Job, more: dict[str, str] | None = None) -> str:
    """Return a job as JSON text with its keys in order; ``more`` holds further members as JSON text.

    Differs from Bedrock: names like ``1234567`` or ``null`` come back from it as bare numbers and words.
    """
    if not more and not row.parent_job_id:
        return (
            f'{{"created":"{row.created}","data":{row.data},"jobID":{row.job_id},'
            f'"lastRun":"{row.last_run}","name":{quoted(row.name)},"nextRun":"{row.next_run}",'
            f'"priority":{row.priority},"repeat":{quoted(row.repeat)},'
            f'"retryAfter":{quoted(row.retry_after)}}}'
        )
    parts = {
        "created": f'"{row.created}"',
        "data": row.data,
        "jobID": str(row.job_id),
        "lastRun": f'"{row.last_run}"',
        "name": quoted(row.name),
        "nextRun": f'"{row.next_run}"',
        "priority": str(row.priority),
        "repeat": quoted(row.repeat),
        "retryAfter": quoted(row.retry_after),
        **(more or {}),
    }
    if row.parent_job_id:
        parts["parentJobID"] = str(row.parent_job_id)
    return "{" + ",".join(f'"{key}":{parts[key]}' for key in sorted(parts)) + "}"


def shown_options(row: Job) -> dict[str, str]:
    """Return the options of a job that its answers show, as JSON texts."""
    if row.options == "{}":
        return {}
    return {key: text for key, text in jsontext.members(row.options).items() if key in SHOWN}


def entity_tag(text: str) -> str:
    """Return the entity tag of an answer: the same as long as the answer is."""
    return f'"{sha256(text.encode()).hexdigest()[:32]}"'


def render_with_state(row: Job) -> str:
    """Return a job as QueryJob and ListJobs show it: with its state and what its last end left behind."""
    more = {"state": f'"{row.state}"', **shown_options(row)}
    if row.options != "{}":
        left = jsontext.members(row.options)
        more |= {key: left[key] for key in ("error", "exitCode") if key in left}
    if row.expires:
        more["expires"] = f'"{row.expires}"'
    return render(row, more)
