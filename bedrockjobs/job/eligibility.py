"""Whether a queued job is ready, and which workers are eligible for it. Pure functions.

The readiness of a queued job is the first of these that applies:

- ``mocked``: only a GetJob with ``getMockedJobs`` takes it.
- ``paused``: a pause covers its name, and it was not triggered.
- ``later``: its nextRun is in the future. Schedules on all hosts always count as later: no worker takes them,
  the server creates jobs from them.
- ``blocked``: a running job holds its lock, the maximum number of jobs with its concurrency key run, or a
  limit of starts does not allow another job with the key yet.
- ``ready``: a worker that asks for it gets it, now or after the jobs before it.

``EligibleWorkers`` answers separately whether a worker that asks for it exists. A RUNQUEUED job runs until
its nextRun, and is then queued like any other. The overview, the metrics, ``top``, ``doctor`` and ExplainJob
all use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Literal, NamedTuple, Protocol

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import PATTERNS_PER_KEY_MAX
from bedrockjobs.base.glob import PatternSet, glob, is_plain, literal_prefix
from bedrockjobs.job.rows import (
    EVERY_LANE,
    MOCK_LANE,
    OPEN_LANE,
    PING_LANE,
    UNTAKEN,
    Job,
    Lane,
    PauseRow,
    parse_lane,
)
from bedrockjobs.job.take_request import LISTED_MAX

Readiness = Literal["ready", "later", "paused", "blocked", "mocked"]


class Pauses:
    """A snapshot of the pauses; each name is matched once."""

    def __init__(self, rows: Iterable[PauseRow]) -> None:
        self.rows = tuple(rows)
        self._known: dict[str, PauseRow | None] = {}

    def pause_for(self, name: str, lane: str) -> PauseRow | None:
        """Return the first pause that applies to a job; none applies to a triggered job."""
        if not self.rows or parse_lane(lane).now:
            return None
        if name not in self._known:
            self._known[name] = next((row for row in self.rows if glob(name, row.pattern)), None)
        return self._known[name]


class LockHolders(NamedTuple):
    """The running jobs that hold one lock, or have one concurrency key."""

    running: int
    first: int
    """The lowest jobID of the running jobs."""
    slots: int
    """How many jobs with the lock or key may run at once, by the options of the job ``first``."""


def lock_holder(lane: str, holders: Mapping[str, LockHolders]) -> int | None:
    """Return a running job that holds the lock of a lane; None if one more job with the lock may run."""
    lock = parse_lane(lane).lock
    held = holders.get(lock) if lock else None
    return None if held is None or held.running < held.slots else held.first


def readiness_of(
    name: str, lane: str, *, due: bool, pauses: Pauses, holders: Mapping[str, LockHolders], waits: bool
) -> Readiness:
    """Return the readiness of a queued job; ``waits``: whether its key may not start another job yet."""
    if lane == MOCK_LANE:
        return "mocked"
    if pauses.pause_for(name, lane) is not None:
        return "paused"
    if not due or lane in UNTAKEN:
        return "later"
    return "blocked" if waits or lock_holder(lane, holders) is not None else "ready"


class Requirements(NamedTuple):
    """What a job requires of its worker, apart from the name."""

    own: str = ""
    """The job's own command (``cmd``, ``argv`` or ``url``), which the worker must accept; empty if it has
    none."""
    worker: str = ""
    """The only worker that may take the job; empty if any worker may."""


def need_of(lane: str) -> Requirements:
    """Return the worker requirements of the jobs in a lane; empty for schedules on all hosts."""
    parts = parse_lane(lane)
    return Requirements(parts.own, parts.worker)


class Drain(NamedTuple):
    """A drained worker: it takes no more jobs."""

    worker: str
    by: str
    since: str


class WorkerCapabilities(Protocol):
    """The attributes of a live worker that decide which jobs it takes; a ``quiet`` one takes none."""

    quiet: bool

    @property
    def name(self) -> str:
        """Return the worker's name."""

    @property
    def names(self) -> Sequence[str]:
        """Return the name patterns that it asks for."""

    @property
    def accepts(self) -> Sequence[str]:
        """Return the kinds of jobs' own commands that it runs."""


class RequestedNames:
    """An index from names to the workers that ask for them.

    Patterns are indexed by the plain text at their beginning and end, so that a name is matched against few
    of them. Patterns whose ends are shared by many others are indexed by other parts of their text.
    """

    def __init__(self) -> None:
        self._names_of: dict[str, tuple[str, ...]] = {}
        self._plain: dict[str, dict[str, None]] = {}
        self._globs: dict[str, dict[str, None]] = {}
        self._files: dict[tuple[int, int], dict[tuple[str, str], dict[str, None]]] = {}
        self._crowded: PatternSet[str] = PatternSet()
        """Patterns whose beginning and end too many other patterns share."""

    def put(self, worker: str, names: Sequence[str]) -> None:
        """Set the names and patterns that a worker asks for, replacing its previous ones."""
        before, now = self._names_of.get(worker, ()), tuple(names)
        if before == now:
            return
        for pattern in set(before) - set(now):
            self._discard(worker, pattern)
        for pattern in set(now) - set(before):
            self._add(worker, pattern)
        self._names_of[worker] = now

    def remove(self, worker: str) -> None:
        """Remove a worker."""
        for pattern in self._names_of.pop(worker, ()):
            self._discard(worker, pattern)

    def patterns_of(self, name: str) -> tuple[str, ...]:
        """Return the patterns that match a name."""
        patterns = [name] if name in self._plain else []
        size = len(name)
        for (before, after), files in self._files.items():
            if before + after <= size:
                some = files.get((name[:before], name[size - after :]))
                if some:
                    patterns += [pattern for pattern in some if glob(name, pattern)]
        return (*patterns, *self._crowded.matching(name)) if self._crowded else tuple(patterns)

    def workers(self, pattern: str) -> Mapping[str, None]:
        """Return the workers that ask for exactly this name or pattern."""
        return (self._plain if is_plain(pattern) else self._globs).get(pattern, {})

    def _add(self, worker: str, pattern: str) -> None:
        if is_plain(pattern):
            self._plain.setdefault(pattern, {})[worker] = None
            return
        if pattern not in self._globs:
            self._globs[pattern] = {}
            sizes, ends = _ends_of(pattern)
            with_ends = self._files.setdefault(sizes, {}).setdefault(ends, {})
            if len(with_ends) < PATTERNS_PER_KEY_MAX:
                with_ends[pattern] = None
            else:
                self._crowded.add(pattern, pattern)
        self._globs[pattern][worker] = None

    def _discard(self, worker: str, pattern: str) -> None:
        patterns = self._plain if is_plain(pattern) else self._globs
        askers = patterns[pattern]
        askers.pop(worker, None)
        if askers:
            return
        del patterns[pattern]
        if patterns is self._globs:
            sizes, ends = _ends_of(pattern)
            if pattern in self._crowded:
                self._crowded.discard(pattern, pattern)
                return
            files = self._files[sizes]
            del files[ends][pattern]
            if not files[ends]:
                del files[ends]
            if not files:
                del self._files[sizes]


def _ends_of(pattern: str) -> tuple[tuple[int, int], tuple[str, str]]:
    """Return the lengths and the texts of the fixed beginning and end of a pattern."""
    before, after = literal_prefix(pattern), pattern[max(map(pattern.rfind, "*?[]")) + 1 :]
    return (len(before), len(after)), (before, after)


class EligibleWorkers:
    """Which live workers are eligible for jobs: they ask for the name, accept the job and are not drained.

    A worker that leaves while the object is in use is left out of the results.
    """

    def __init__(
        self,
        workers: Iterable[WorkerCapabilities] | Mapping[str, WorkerCapabilities],
        drains: Mapping[str, Drain],
        asked: RequestedNames | None = None,
    ) -> None:
        """Take the workers, the drained ones, and optionally the index of the names they ask for."""
        found = workers if isinstance(workers, Mapping) else {worker.name: worker for worker in workers}
        self._workers: Mapping[str, WorkerCapabilities] = found
        self._drains = drains
        if asked is None:
            asked = RequestedNames()
            for name, worker in found.items():
                asked.put(name, worker.names)
        self._by_names = asked
        self._known: dict[tuple[tuple[str, ...], Requirements], frozenset[str]] = {}

    def __contains__(self, worker: str) -> bool:
        """Return whether a worker is alive."""
        return worker in self._workers

    def __len__(self) -> int:
        """Return the number of live workers."""
        return len(self._workers)

    @property
    def count_active(self) -> int:
        """Return the number of live workers that are neither drained nor quiet."""
        return sum(not self.held_back(worker) for worker in self._workers.values())

    def names_for(self, name: str, need: Requirements) -> frozenset[str]:
        """Return the names of the eligible workers."""
        patterns = self._by_names.patterns_of(name)
        found = self._known.get((patterns, need))
        if found is None:
            asking = self._requesting(patterns, need)
            found = frozenset(worker.name for worker in asking if not self._why_not(worker, need))
            self._known[patterns, need] = found
        return found

    def any_eligible(self, name: str, need: Requirements) -> bool:
        """Return whether any worker is eligible; unlike ``names_for``, stop at the first one."""
        patterns = self._by_names.patterns_of(name)
        return any(not self._why_not(worker, need) for worker in self._requesting(patterns, need))

    def is_requested(self, name: str, need: Requirements) -> bool:
        """Return whether an active worker asks for the name, even if it does not accept the jobs' command."""
        return any(
            not self.held_back(worker) for worker in self._requesting(self._by_names.patterns_of(name), need)
        )

    def why_none_eligible(self, name: str, need: Requirements) -> str:
        """Explain in plain words why no worker is eligible."""
        if not self._workers:
            return "no worker is alive"
        asking = {worker.name: worker for worker in self._requesting(self._by_names.patterns_of(name), need)}
        if need.worker and not asking:
            why = "does not ask for it" if need.worker in self._workers else "is not alive"
            return f"worker {need.worker}, for which it is reserved, {why}"
        if not asking:
            if len(self._workers) == 1:
                return f"the only live worker, {next(iter(self._workers))}, does not ask for it"
            return f"none of {len(self._workers)} live workers asks for it"
        sentences = [
            f"{worker} asks for it but {self._why_not(asking[worker], need)}"
            for worker in nsmallest(LISTED_MAX, asking)
        ]
        if len(asking) > LISTED_MAX:
            sentences.append(f"and so on for {len(asking) - LISTED_MAX} more")
        return "; ".join(sentences)

    def _requesting(self, patterns: tuple[str, ...], need: Requirements) -> Iterator[WorkerCapabilities]:
        """Yield the workers that ask for one of the patterns and may take the job, some repeatedly."""
        for pattern in patterns:
            askers = self._by_names.workers(pattern)
            for name in askers if not need.worker else (need.worker,) if need.worker in askers else ():
                worker = self._workers.get(name)
                if worker is not None:
                    yield worker

    def held_back(self, worker: WorkerCapabilities) -> str:
        """Return why a worker takes no jobs at all, by whom and since when; empty if it takes jobs."""
        drain = self._drains.get(worker.name)
        if drain is not None:
            return f"has been drained since {drain.since}" + (f", by {drain.by}" if drain.by else "")
        return "is quiet" if worker.quiet else ""

    def _why_not(self, worker: WorkerCapabilities, need: Requirements) -> str:
        """Return why a worker that asks for a job is not eligible; empty if it is."""
        held_back = self.held_back(worker)
        if not held_back and need.own and need.own not in worker.accepts:
            return f"does not accept jobs with {need.own}"
        return held_back


# Placement of a queued job: its lane and its expiry, derived from its options and memory.


PING_GRACE_S_DEFAULT = 300
"""Default number of seconds that a ping may be late: the usual duration of a nightly crontab job."""


def placed(job: Job, now: str = "") -> Job:
    """Return a queued job with the lane and the expiry that its options require.

    The time to expiry counts from its nextRun, or from ``now`` if that is later.
    """
    plain = job.options_json == "{}" and job.memory_json == "{}"
    if plain and not job.expires and job.lane in (OPEN_LANE, MOCK_LANE):
        return job
    expires, limit = "", job.options.expire_after
    if job.options.expect:
        limit = ping_grace_s(job)
    if limit is not None and job.memory.trigger is None:
        expires = after_seconds(max(job.next_run, now), limit)
    return job._replace(lane=job.lane if job.mocked else lane_of(job), expires=expires)


def placed_if_waiting(before: Job, changed: Job) -> Job:
    """Return a changed job with its lane derived again, and if it is QUEUED or PAUSED also its expiry."""
    there = placed(changed)
    waits = changed.state in ("QUEUED", "PAUSED")
    return there if waits else changed._replace(lane=there.lane, expires=before.expires)


def lane_of(job: Job) -> str:
    """Return the lane of a job that is not mocked."""
    options, memory = job.options, job.memory
    if options.hosts:
        return EVERY_LANE
    if options.expect:
        return PING_LANE
    # A retry does not bypass pauses. A job bound to its worker has no trigger, only the cause.
    now = not memory.cause if memory.trigger is not None else memory.cause == "manual"
    lock = job.name if options.lock is True else options.lock or options.concurrency_key or ""
    return str(Lane(now, options.own_command, lock, memory.bound_to))


def ping_grace_s(job: Job) -> int:
    """Return the seconds that a ping may be late, and that work announced by a start ping may take."""
    grace = job.options.ping_grace
    return PING_GRACE_S_DEFAULT if grace is None else grace


# The hold on a restored queue: nothing is taken and no message is sent until it is released.
#
# A hold is a pause of every name, under a pattern that clients cannot use. So takes, waits, ticks and
# explanations treat it as any pause on both engines, and a queue without one has no overhead.


HOLD_PATTERN = "***"
"""The pattern of the hold's pause: PauseJobs and ResumeJobs read it as ``*``."""

RELEASE = "`bedrockjobs restore --release` ends this"
"""How to end a hold."""


def plain_pattern(pattern: str) -> str:
    """Return a pattern in the form that users may pause: the pattern of a hold becomes ``*``."""
    return "*" if pattern == HOLD_PATTERN else pattern


def hold_of(pauses: Iterable[PauseRow]) -> PauseRow | None:
    """Return the hold among the pauses; None if there is none."""
    return next((pause for pause in pauses if pause.pattern == HOLD_PATTERN), None)


def hold_text(hold: PauseRow) -> str:
    """Describe a hold, without advice."""
    by = f" by {hold.by}" if hold.by else ""
    reason = f": {hold.reason}" if hold.reason else ""
    return f"everything has been held{by} since {hold.since[:19]}{reason}"


def without_trigger(job: Job) -> Job:
    """Return a queued job as it was before it was triggered, since a trigger bypasses the hold.

    A schedule gets back its regular next run; any other job stays due.
    """
    memory = job.memory
    if memory.trigger is None:
        return placed(job.noting(cause="retry" if memory.cause == "manual" else memory.cause))
    own = memory.trigger or job.next_run
    return placed(job.noting(trigger=None)._replace(next_run=own))
