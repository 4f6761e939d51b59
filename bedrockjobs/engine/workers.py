"""The worker registry: live workers, leases of runs and stop signals, all of it in memory.

Leases are counted in real time and are not stored: a starting server gives every open run a full new lease.
The registry learns of runs after their transaction has committed, and reports expired leases to maintenance.
It knows no rows and no sockets.

Any client may invent workers, so the registry has a limit and a budget in bytes. When one is used up, it
evicts a worker of the token that uses most of the budget, preferring workers whose client has disconnected
and that never got a job. An evicted worker keeps its runs and is added again at its next request.

A worker belongs to the token that used its name first, at any server, until it leaves or is silent for a
lease. Requests of other tokens under its name do not change it; they only renew leases of runs, so that a
worker whose token was rotated loses none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from math import inf
from sys import getsizeof
from typing import Any, Protocol, cast

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import resolve
from bedrockjobs.base.clock import Clock, SystemClock, after_seconds, timestamp_ms
from bedrockjobs.base.config import (
    ASKED_PER_WORKER_MAX,
    BATCH_ANSWER_BYTES_MAX,
    LEASE_S_DEFAULT,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    WORKER_EVENTS_A_MINUTE,
    WORKERS_BYTES_MAX,
    WORKERS_MAX,
)
from bedrockjobs.base.glob import glob
from bedrockjobs.base.principal import RunOfToken, job_of_ping, ping_secret_of, run_of_token, run_token_of
from bedrockjobs.commands import Heartbeat
from bedrockjobs.engine.events import (
    DrainsChanged,
    RunEnded,
    RunForgotten,
    RunKeyKnown,
    RunOpened,
    RunRestored,
    RunStopped,
    WaitLeft,
    WorkerAsked,
)
from bedrockjobs.job.eligibility import RequestedNames
from bedrockjobs.store.base import (
    OpenRunRow,
    PeerState,
    ServerRow,
    SharedUnit,
    Unit,
    WorkerChanges,
    WorkerRow,
)

# The registry as handlers see it: interfaces and the null object.


class WorkerDirectory(Protocol):
    """The live workers of all servers of a database."""

    @property
    def workers(self) -> Mapping[str, Worker]:
        """Return the live workers by name."""

    @property
    def requested_names(self) -> RequestedNames:
        """Return which workers ask for which names."""

    def run_token(self, run: RunOfToken) -> str:
        """Return the token of a run, or empty if none can be made."""

    def ping_secret(self, job_id: int) -> str:
        """Return the secret for pings of a schedule, or empty if none can be made."""


class NoWorkers:
    """A worker directory without workers or tokens."""

    workers: Mapping[str, Worker] = {}
    requested_names = RequestedNames()

    def run_token(self, run: RunOfToken) -> str:
        """Return an empty token."""
        return ""

    def ping_secret(self, job_id: int) -> str:
        """Return an empty secret."""
        return ""


log = logging.getLogger(__name__)

LISTED_MAX = 100
"""Maximum number of workers listed in an event about one worker, so that a mass arrival does not list all
workers each time."""

LISTED_A_TURN_BYTES = 256 * 1024
"""Number of bytes of a worker list after which the event loop gets a turn: they take some milliseconds."""

EVENTS_RESUME_S = 60.0
"""Seconds for which events about single workers are merged after too many of them; then single events
resume."""

FEW = 1_000
"""Maximum number of workers and runs that are scanned as soon as one of them may have expired. If there are
more, scans have a minimum interval."""

BEATS_PER_LEASE = 3
"""Number of waiting heartbeats in one lease: each is answered after a third of it, so that one lost heartbeat
costs no run."""


@dataclass(slots=True)
class OpenRun:
    """A run in progress."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    """Maximum seconds between heartbeats; 0 means no limit."""
    until: float = 0.0
    """When its lease expires, in monotonic seconds."""
    stop: str = ""
    """TERM or KILL if it must stop, else empty."""
    reported_stop: str = ""
    """The stop signal that its worker has already received."""


@dataclass(slots=True)
class Worker:
    """A live worker and its state in the registry."""

    name: str
    joined: str
    heartbeat: str
    until: float
    """When it counts as gone, in monotonic seconds."""
    host: str = ""
    pid: int = 0
    version: str = ""
    asked: dict[tuple[str, ...], float] = field(default_factory=dict)
    """The lists of names that it asks for, each with the time at which the request expires."""
    accepts: tuple[str, ...] = ()
    """Which of jobs' own commands it can run: cmd, argv, url."""
    slots: int = 0
    quiet: bool = False
    """Whether it announced that it takes no more jobs for now."""
    drain_reported: bool = False
    """Whether its last heartbeat reply said that it is drained."""
    runs: set[int] = field(default_factory=set)
    by: str | None = ""
    """The name of the token that it belongs to, empty without one; None if an older server reported it."""
    elsewhere: bool = False
    """Whether it is known from other servers only."""
    served: bool = False
    """Whether it ever got a job."""
    size: int = 0
    """The memory in bytes that the budget counts for it."""

    @property
    def names(self) -> list[str]:
        """Return all patterns that it asks for, sorted and without repeats."""
        if len(self.asked) == 1:
            return sorted(set(next(iter(self.asked))))
        return sorted({name for names in self.asked for name in names})

    @property
    def share(self) -> str | None:
        """Return the token whose share of the budget it uses; None if only other servers know it."""
        return None if self.elsewhere else self.by

    def measured(self) -> int:
        """Return the memory that it takes now, in bytes as the budget counts them."""
        texts = (self.name, self.host, self.version, *(text for names in self.asked for text in names))
        patterns = len(texts) - 3
        # A worker takes 1,500 bytes without its texts, and a pattern 400 in addition to its text
        return 1_500 + 400 * patterns + sum(map(getsizeof, texts))


def running(what: str, names: Iterable[str], count: int) -> str:
    """Return the text of an event: the number of live workers or servers, and the first names."""
    listed: list[str] = []
    chars = 0
    for name in nsmallest(LISTED_MAX, names):
        chars += len(name)
        # Maximum number of characters of names in such an event.
        if listed and chars > 1_000:
            break
        listed.append(name)
    more = f" and {count - len(listed)} more" if count > len(listed) else ""
    return f"{count} {what}(s) now running [{' '.join(listed)}{more}]"


class Share:
    """The workers of one token, least recently seen first."""

    __slots__ = ("served", "size", "unserved")

    def __init__(self) -> None:
        self.unserved: OrderedDict[str, None] = OrderedDict()
        """The workers that never got a job; workers whose client has disconnected come first."""
        self.served: OrderedDict[str, None] = OrderedDict()
        self.size = 0
        """The memory of these workers in bytes."""

    def line_of(self, worker: Worker) -> OrderedDict[str, None]:
        """Return the eviction order that contains a worker."""
        return self.served if worker.served else self.unserved


class MembershipEvents:
    """Joins and departures of workers and servers, as events to write; those beyond a limit are merged."""

    def __init__(self, clock: Clock, on_events: Callable[[], None]) -> None:
        """Count minutes by ``clock``; ``on_events`` is called when there is an event to write."""
        self._clock = clock
        self._on_events = on_events
        self.events: list[tuple[str, str, str]] = []
        """Kind, name and detail of each event to write."""
        self._since = -inf
        self._counts: dict[str, int] = {}

    def add(self, kind: str, name: str, there: Callable[[], str]) -> None:
        """Record one event, or only count it if there were too many; ``there`` lists who is alive now."""
        if self._clock.monotonic() - self._since >= EVENTS_RESUME_S:
            self.flush(there)
            self._since = self._clock.monotonic()
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= WORKER_EVENTS_A_MINUTE:
            self.events.append((kind, name, there()))
            self._on_events()

    def flush(self, there: Callable[[], str]) -> None:
        """Record how many events of the last minute were only counted."""
        counts, self._counts = self._counts, {}
        for kind, count in counts.items():
            if count > WORKER_EVENTS_A_MINUTE:
                more = f"{count - WORKER_EVENTS_A_MINUTE:,} more in a minute; {there()}"
                self.events.append((kind, "", more))
                self._on_events()

    @property
    def flush_at(self) -> float:
        """Return when to ``flush``, in monotonic seconds; infinite if nothing was merged."""
        unreported = any(count > WORKER_EVENTS_A_MINUTE for count in self._counts.values())
        return self._since + EVENTS_RESUME_S if unreported else inf

    def flush_if_due(self, there: Callable[[], str]) -> None:
        """Record the merged events if their minute is over."""
        if self.flush_at <= self._clock.monotonic():
            self.flush(there)


class WorkerRegistry:
    """The workers of one server and their open runs; used on the event loop only."""

    def __init__(self, clock: Clock | None = None, lease_clock: Clock | None = None) -> None:
        """Show dates of ``clock``; count leases by the monotonic ``lease_clock``."""
        self._clock = clock or SystemClock()
        self._leases = lease_clock or SystemClock()
        self.workers: dict[str, Worker] = {}
        self.runs: dict[int, OpenRun] = {}
        self.drains: frozenset[str] = frozenset()
        self.servers: list[ServerRow] = []
        """The live servers, as far as they are known."""
        self.on_events: Callable[[], None] = lambda: None
        self._membership = MembershipEvents(self._leases, lambda: self.on_events())
        self.pending_events = self._membership.events
        """The events to write in the next transaction: kind, name and detail; always the same list."""
        self.requested_names = RequestedNames()
        """Which workers ask for which names."""
        self._runs_of: dict[str, set[int]] = {}
        """Open runs by the name of their worker."""
        self._shares: dict[str | None, Share] = {}
        """The workers by token."""
        self._size = 0
        """The memory of all workers in bytes."""
        self._forgotten = 0
        self._forgotten_reported = -inf
        self._run_key = ""
        self._changed: dict[str, set[asyncio.Future[None]]] = {}
        self._ended = False
        self.next_check_at = inf
        """When ``overdue`` has to be called next, on the lease clock in monotonic seconds."""

    def lease_moment(self) -> datetime:
        """Return the current time of the lease clock, which a test clock does not move."""
        return self._leases.now()

    # --- runs --------------------------------------------------------------------------------------------

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handler for each event type."""
        return {
            RunOpened: self._opened,
            RunRestored: self._restored,
            RunEnded: self._ended_run,
            RunForgotten: self._ended_run,
            RunStopped: self._stopped,
            WorkerAsked: self._on_jobs_requested,
            WaitLeft: self._wait_left,
            DrainsChanged: self._drains_changed,
            RunKeyKnown: lambda event: self.set_run_key(event.key),
        }

    def set_run_key(self, key: str) -> None:
        """Set the key of the database, which signs run tokens and ping secrets."""
        self._run_key = key

    def run_token(self, run: RunOfToken) -> str:
        """Return the token of a run, or empty while the key is not known yet."""
        return run_token_of(self._run_key, run) if self._run_key else ""

    def ping_secret(self, job_id: int) -> str:
        """Return the secret for pings of a schedule, or empty while the key is not known yet."""
        return ping_secret_of(self._run_key, job_id) if self._run_key else ""

    def job_of_ping(self, secret: str) -> int | None:
        """Return the jobID that a ping secret is for, or None if it is wrong; the job may be deleted."""
        return job_of_ping(self._run_key, secret)

    def run_of_token(self, token: str) -> RunOfToken | None:
        """Return the run that a token is for, or None if it is invalid; the run may have ended."""
        return run_of_token(self._run_key, token)

    def _opened(self, event: RunOpened) -> None:
        self._open(OpenRun(event.run_id, event.job_id, event.worker, event.lease_s))

    def _restored(self, event: RunRestored) -> None:
        stop = event.stop.split()[0] if event.stop else ""
        self._open(OpenRun(event.run_id, event.job_id, event.worker, event.lease_s, stop=stop))

    def _open(self, run: OpenRun) -> None:
        """Add a run that was committed, with a new lease."""
        self._renew(run)
        self.runs[run.run_id] = run
        if run.lease_s:
            self.next_check_at = min(self.next_check_at, run.until)
        runs = self._runs_of.setdefault(run.worker, set())
        runs.add(run.run_id)
        worker = self.workers.get(run.worker)
        if worker is not None:
            worker.runs = runs
            if not worker.served:
                self._on_first_job(worker)

    def _on_first_job(self, worker: Worker) -> None:
        """Record that a worker got its first job: workers that never got one are evicted before it."""
        share = self._shares.get(worker.share)
        if share is not None and worker.name in share.unserved:
            del share.unserved[worker.name]
            share.served[worker.name] = None
        worker.served = True

    def _ended_run(self, event: RunEnded | RunForgotten) -> None:
        run = self.runs.pop(event.run_id, None)
        if run is not None:
            runs = self._runs_of.get(run.worker)
            if runs is not None:
                runs.discard(run.run_id)
                if not runs:
                    del self._runs_of[run.worker]
            self._wake(run.worker)  # even a worker that counts as gone, as its heartbeat may be waiting

    def _stopped(self, event: RunStopped) -> None:
        run = self.runs.get(event.run_id)
        if run is not None:
            run.stop = event.signal
            self._wake(run.worker)

    def postpone(self, run_id: int, seconds: float) -> None:
        """Extend the lease of a run by some seconds because ending it failed."""
        run = self.runs.get(run_id)
        if run is not None:
            run.until = self._leases.monotonic() + seconds
            self.next_check_at = min(self.next_check_at, run.until)

    def overdue(self, unit: Unit) -> list[int]:
        """Return the runs whose lease has expired, and remove silent workers.

        Expired leases are found in memory; on a shared database, in ``unit``.
        """
        now = self._leases.monotonic()
        if now < self.next_check_at:
            return []
        for name in [worker.name for worker in self.workers.values() if worker.until <= now]:
            self.remove_worker(name)
        self._membership.flush_if_due(self._there)
        found = [run.run_id for run in self.runs.values() if run.lease_s and run.until <= now]
        moments = [run.until for run in self.runs.values() if run.lease_s]
        moments += [worker.until for worker in self.workers.values()]
        next_at = min(moments, default=inf)
        if len(moments) > FEW:  # many expire at nearly the same time
            # Minimum interval between scans for silent workers and expired leases when there are many of
            # them.
            next_at = max(next_at, now + 0.25)
        self.next_check_at = min(next_at, self._membership.flush_at)
        return found

    def sleep_s(self) -> float:
        """Return the seconds until ``overdue`` has to be called; infinite if nothing can expire."""
        return max(self.next_check_at - self._leases.monotonic(), 0.0)

    # --- workers -----------------------------------------------------------------------------------------

    def discard_events(self, count: int) -> None:
        """Discard the first ``count`` events, which have been committed."""
        del self.pending_events[:count]

    def _on_jobs_requested(self, event: WorkerAsked) -> None:
        self.record_contact(
            event.worker,
            host=event.host,
            pid=event.pid,
            names=event.names,
            accepts=event.accepts,
            wait_s=event.wait_s,
            by=event.by,
        )

    def record_contact(
        self,
        name: str,
        *,
        host: str = "",
        pid: int = 0,
        names: Iterable[str] = (),
        accepts: Iterable[str] = (),
        wait_s: float = 0.0,
        version: str = "",
        by: str = "",
    ) -> Worker:
        """Record a sign of life of a worker, which may wait for a reply for ``wait_s`` seconds more.

        Return the worker even if there is no room to add it, or if its name belongs to another token.
        """
        now = self._clock.now().isoformat(" ", "seconds")[:19]
        now_s = self._leases.monotonic()
        until = now_s + LEASE_S_DEFAULT + wait_s
        worker = self.workers.get(name)
        if worker is None:
            return self._joined(
                Worker(
                    name,
                    now,
                    now,
                    until,
                    host,
                    pid,
                    version,
                    accepts=tuple(accepts),
                    by=by,
                    asked={asked: until} if (asked := tuple(names)) else {},
                )
            )
        if worker.by not in (by, None):
            return Worker(name, now, now, until, by=by, drain_reported=name in self.drains)
        if worker.elsewhere:
            self._move(worker, by)
        worker.heartbeat, worker.until = now, max(until, worker.until)
        worker.pid = pid or worker.pid
        worker.accepts = tuple(accepts) or worker.accepts
        changed = (host and host != worker.host) or (version and version != worker.version)
        if changed:
            worker.host, worker.version = host or worker.host, version or worker.version
        if asked := tuple(names):
            changed = changed or asked not in worker.asked
            worker.asked[asked] = until
            if len(worker.asked) > 1:
                changed = self._drop_asked(worker, now_s) or changed
        share = self._shares.get(by)
        if share is not None and name in (line := share.line_of(worker)):
            line.move_to_end(name)
        if changed:
            self._measure(worker)
        self._was_met(worker)
        return worker

    @staticmethod
    def _drop_asked(worker: Worker, now_s: float) -> bool:
        """Drop expired requests of a worker, and the oldest of too many; return True if any was dropped."""
        before = len(worker.asked)
        worker.asked = {names: end for names, end in worker.asked.items() if end > now_s}
        while len(worker.asked) > ASKED_PER_WORKER_MAX:
            del worker.asked[min(worker.asked, key=worker.asked.__getitem__)]
        return len(worker.asked) != before

    def _joined(self, worker: Worker) -> Worker:
        """Add a new worker if there is room; return it in any case."""
        worker.runs = self._runs_of.get(worker.name, worker.runs)
        worker.served = bool(worker.runs)
        if self._add(worker):
            self._add_event("worker joined", worker)
            self._was_met(worker)
        return worker

    def _add(self, worker: Worker) -> bool:
        """Add a worker; return False if there is no room."""
        size = worker.measured()
        if not self._make_room(worker, size):
            return False
        worker.size = size
        share = self._shares.setdefault(worker.share, Share())
        share.line_of(worker)[worker.name] = None
        share.size += size
        self._size += size
        self.workers[worker.name] = worker
        self.requested_names.put(worker.name, worker.names)
        self.next_check_at = min(self.next_check_at, worker.until)
        return True

    def _remove(self, name: str) -> Worker | None:
        """Remove and return a worker without an event."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            share = self._shares[worker.share]
            del share.line_of(worker)[name]
            share.size -= worker.size
            if not (share.served or share.unserved):
                del self._shares[worker.share]
            self._size -= worker.size
            self.requested_names.remove(name)
        return worker

    def _move(self, worker: Worker, by: str) -> None:
        """Charge a worker that only other servers knew to the budget of the token that uses it here."""
        self._remove(worker.name)
        worker.by, worker.elsewhere = by, False
        if not self._add(worker):
            self._was_forgotten(worker)

    def _measure(self, worker: Worker) -> None:
        """Charge the new size of a worker to the budget, and evict others if the budget is exceeded."""
        if worker.name not in self.workers:
            return
        size = worker.measured()
        self._shares[worker.share].size += size - worker.size
        self._size += size - worker.size
        worker.size = size
        self.requested_names.put(worker.name, worker.names)
        while self._size > WORKERS_BYTES_MAX and self.workers:
            self._forget_one()

    def _make_room(self, newcomer: Worker, size: int) -> bool:
        """Evict workers until ``size`` more bytes fit; return False if the newcomer must not be added.

        A newcomer that never got a job does not evict workers of the same token that had one.
        """
        while len(self.workers) >= WORKERS_MAX or self._size + size > WORKERS_BYTES_MAX:
            share = self._largest()
            own = share is self._shares.get(newcomer.share)
            if own and not newcomer.served and not share.unserved:
                self._was_forgotten(newcomer)
                return False
            self._forget_one()
        return True

    def _largest(self) -> Share:
        return max(self._shares.values(), key=lambda share: share.size)

    def _forget_one(self) -> None:
        """Evict the least needed worker of the token that uses most of the budget."""
        share = self._largest()
        worker = self._remove(next(iter(share.unserved or share.served)))
        assert worker is not None
        self._was_forgotten(worker)

    def _was_forgotten(self, worker: Worker) -> None:
        """Log the number of evicted workers, at most once a minute."""
        self._forgotten += 1
        now = self._leases.monotonic()
        if now - self._forgotten_reported >= EVENTS_RESUME_S:
            log.warning(
                "%d worker(s) removed from memory, the last of token %r: the limit is %d in %d MiB",
                self._forgotten,
                worker.by,
                WORKERS_MAX,
                WORKERS_BYTES_MAX // 2**20,
            )
            self._forgotten, self._forgotten_reported = 0, now

    def _wait_left(self, event: WaitLeft) -> None:
        """Record that a worker stopped waiting: it counts as gone after a lease and is evicted first."""
        worker = self.workers.get(event.worker)
        if worker is None or worker.by not in (event.by, None):
            return
        until = self._leases.monotonic() + LEASE_S_DEFAULT
        worker.until = min(worker.until, until)
        worker.asked = {names: min(end, until) for names, end in worker.asked.items()}
        self.next_check_at = min(self.next_check_at, worker.until)
        if not worker.served:
            self._shares[worker.share].unserved.move_to_end(worker.name, last=False)

    def _was_met(self, worker: Worker) -> None:
        """Do nothing on a sign of life; with a shared database, the subclass informs the other servers."""

    def remove_worker(self, name: str) -> None:
        """Remove a worker that ended."""
        worker = self._remove(name)
        if worker is not None:
            self._add_event("worker left", worker)

    def _there(self) -> str:
        return running("worker", self.workers, len(self.workers))

    def _add_event(self, kind: str, worker: Worker) -> None:
        self._membership.add(kind, worker.name, self._there)
        self.next_check_at = min(self.next_check_at, self._membership.flush_at)

    def _drains_changed(self, event: DrainsChanged) -> None:
        changed, self.drains = self.drains ^ event.drains, event.drains
        for name in changed:
            self._wake(name)

    def status_of(self, worker: Worker) -> str:
        """Return the status shown for a worker."""
        if worker.name in self.drains:
            return "draining" if worker.runs else "drained"
        return "quiet" if worker.quiet else "active"

    def by_name(self, after: str = "", pattern: str | None = None) -> Iterator[Worker]:
        """Yield the live workers after a name in order; with ``pattern``, only workers whose name matches."""
        names = (name for name in self.workers if name > after and (pattern is None or glob(name, pattern)))
        return map(self.workers.__getitem__, sorted(names))

    async def listing(self, after: str, pattern: str | None, limit: int) -> str:
        """Return a page of live workers by name, as the reply of ListWorkers; large workers make it shorter.

        It yields to the event loop in between; a worker that leaves meanwhile is shown as it was.
        """
        rows: list[str] = []
        size = turn_size = 0
        for worker in list(islice(self.by_name(after, pattern), limit)):
            if size >= BATCH_ANSWER_BYTES_MAX:
                break
            if turn_size >= LISTED_A_TURN_BYTES:
                turn_size = 0
                await asyncio.sleep(0)
            rows.append(jsontext.dump(self._present(worker)))
            size += len(rows[-1])
            turn_size += len(rows[-1])
        return f'{{"workers":[{",".join(rows)}]}}'

    def _present(self, worker: Worker) -> dict[str, Any]:
        return {
            "name": worker.name,
            "host": worker.host,
            "pid": worker.pid,
            "version": worker.version,
            "names": worker.names,
            "accepts": list(worker.accepts),
            "slots": worker.slots,
            "joined": worker.joined,
            "heartbeat": worker.heartbeat,
            "status": self.status_of(worker),
            "runIDs": sorted(worker.runs),
        }

    def servers_alive(self) -> list[ServerRow]:
        """Return the live servers by name; this server's own row is updated to now."""
        now = timestamp_ms(self._clock.now())
        return [server._replace(pulse=now, workers=len(self.workers)) for server in self.servers]

    # --- heartbeats --------------------------------------------------------------------------------------

    async def heartbeat(self, command: Heartbeat, by: str = "") -> str:
        """Renew leases and return the runs to stop; a waiting command returns early if a new run must stop.

        ``by`` is the name of the token that sends it.
        """
        if any(run_id not in self.runs for run_id in command.run_ids):
            await self._load_unknown_runs()
        wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
        wait_s = min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting and not command.leaving else 0.0
        leases = [
            run.lease_s for run in map(self.runs.get, command.run_ids) if run is not None and run.lease_s
        ]
        wait_s = min(wait_s, min(leases, default=LEASE_S_DEFAULT) / BEATS_PER_LEASE)
        worker = self._beat(command, by)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while (
                    wait_s > 0
                    and not self._ended
                    and not self._has_new_stop(command)
                    and worker.drain_reported == (command.worker in self.drains)
                ):
                    await self._change(command.worker)
        worker.drain_reported = command.worker in self.drains
        return self._answer(command)

    def heartbeat_at_once(self, command: Heartbeat, by: str = "") -> str | None:
        """Do what ``heartbeat`` does if the command neither waits nor names an unknown run; else return None.

        This saves a task, which needs two more turns of a busy event loop.
        """
        if command.waiting or any(run_id not in self.runs for run_id in command.run_ids):
            return None
        self._beat(command, by).drain_reported = command.worker in self.drains
        return self._answer(command)

    def _beat(self, command: Heartbeat, by: str) -> Worker:
        """Renew the leases of a worker's runs; update the worker if it belongs to the token."""
        worker = self.record_contact(
            command.worker,
            host=command.host,
            pid=command.pid,
            names=command.names or (),
            version=command.version,
            by=by,
        )
        worker.slots = command.slots or worker.slots
        worker.quiet = command.quiet
        for run_id in command.run_ids:
            run = self.runs.get(run_id)
            if run is not None and run.worker == command.worker:
                self._renew(run)
        if command.leaving and worker is self.workers.get(command.worker):
            self.remove_worker(command.worker)
        return worker

    async def _load_unknown_runs(self) -> None:
        """Do nothing; with a shared database, the subclass learns of runs that other servers opened."""

    def _renew(self, run: OpenRun) -> None:
        """Start a new lease of a run."""
        run.until = self._leases.monotonic() + run.lease_s

    def standing(self, command: Heartbeat) -> str:
        """Return the current stop signals for a heartbeat that no longer waits; renew nothing."""
        return jsontext.dump({"stop": self._stops(command), "quiet": command.worker in self.drains})

    def _signal(self, command: Heartbeat, run_id: int) -> str:
        run = self.runs.get(run_id)
        return "LOST" if run is None or run.worker != command.worker else run.stop

    def _has_new_stop(self, command: Heartbeat) -> bool:
        """Return True if there is a stop signal that the worker has not received."""
        for run_id in command.run_ids:
            signal = self._signal(command, run_id)
            if signal == "LOST" or (signal and self.runs[run_id].reported_stop != signal):
                return True
        return False

    def _stops(self, command: Heartbeat) -> list[dict[str, Any]]:
        signals = [(run_id, self._signal(command, run_id)) for run_id in command.run_ids]
        return [{"runID": run_id, "signal": signal} for run_id, signal in signals if signal]

    def _answer(self, command: Heartbeat) -> str:
        for stop in self._stops(command):
            if stop["signal"] != "LOST":
                self.runs[stop["runID"]].reported_stop = stop["signal"]
        return self.standing(command)

    async def _change(self, worker: str) -> None:
        """Wait until a worker's run ends or must stop, its drain changes, or the server stops."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._changed.setdefault(worker, set())
        waiting.add(changed)
        try:
            await changed
        finally:
            waiting.discard(changed)
            if not waiting:
                self._changed.pop(worker, None)

    def _wake(self, worker: str) -> None:
        for changed in self._changed.get(worker, ()):
            resolve(changed)

    def end(self) -> None:
        """Answer all waiting heartbeats because the server stops."""
        self._ended = True
        for worker in list(self._changed):
            self._wake(worker)


# The workers of all servers that share a database, as one of the servers knows them. Leases are stored in the
# database: each exchange writes the heartbeats that arrived at this server, and the server that does
# maintenance finds expired leases there. The registry in memory follows the exchanges.


WORKERS_PER_EXCHANGE_MAX = 1_000
"""Maximum number of workers reported to other servers in one exchange: more than send a heartbeat in one
second."""


class SharedWorkers(WorkerRegistry):
    """The workers and open runs of all servers; used on the event loop only."""

    def __init__(self, clock: Clock, lease_clock: Clock) -> None:
        """Show dates of ``clock``; ``lease_clock`` is the same on all servers."""
        super().__init__(clock, lease_clock)
        self.add_runs: Callable[[], Any] = lambda: asyncio.sleep(0)
        """Awaits an exchange with the other servers, which makes their new runs known here."""
        self.exchange_soon: Callable[[], object] = lambda: None
        """Schedules an exchange soon."""
        self._own: dict[str, float] = {}
        """The workers connected to this server, each with the time until which other servers count it as
        alive."""
        self._met: dict[str, None] = {}
        self._parted: dict[str, str] = {}
        """The workers that left since the last exchange, each with its token."""
        self._beaten: dict[int, None] = {}
        self._known: frozenset[int] = frozenset()
        """The runs that were known at the start of the current exchange."""
        self._over: set[int] = set()
        """The runs that have ended since the start of the current exchange."""
        self._later: dict[int, float] = {}
        """Runs that could not be ended, each with the time of the next attempt."""

    # --- changes on this server --------------------------------------------------------------------------

    def _was_met(self, worker: Worker) -> None:
        if worker.name not in self._own:
            self._own[worker.name] = -inf
            self.exchange_soon()
        self._met[worker.name] = None
        if self._parted.get(worker.name) == worker.by:  # otherwise another token's worker has left
            del self._parted[worker.name]

    def remove_worker(self, name: str) -> None:
        """Remove a worker that ended, and inform the other servers."""
        worker = self._remove(name)
        if worker is not None:
            self._part(worker)
            self.exchange_soon()

    def _was_forgotten(self, worker: Worker) -> None:
        super()._was_forgotten(worker)
        if worker.name in self._own:
            self._part(worker)

    def _part(self, worker: Worker) -> None:
        """Note that a worker has left, so that the next exchange tells the other servers to remove it."""
        self._met.pop(worker.name, None)
        self._own.pop(worker.name, None)
        if len(self._parted) < WORKERS_MAX:  # otherwise other servers remove it after a lease
            self._parted[worker.name] = worker.by or ""

    def _add_event(self, kind: str, worker: Worker) -> None:
        """Record nothing: the exchange determines which server records the event."""

    async def _load_unknown_runs(self) -> None:
        await self.add_runs()

    def _renew(self, run: OpenRun) -> None:
        super()._renew(run)
        self._beaten[run.run_id] = None

    def _open(self, run: OpenRun) -> None:
        super()._open(run)
        self._beaten.pop(run.run_id, None)  # a new run needs no renewal

    def _ended_run(self, event: RunEnded | RunForgotten) -> None:
        super()._ended_run(event)
        self._over.add(event.run_id)
        self._beaten.pop(event.run_id, None)
        self._later.pop(event.run_id, None)

    # --- leases ------------------------------------------------------------------------------------------

    def overdue(self, unit: Unit) -> list[int]:
        """Return the runs whose lease has expired in the database."""
        # Maximum number of runs with an expired lease that one transaction ends.
        found = cast(SharedUnit, unit).leases_over(timestamp_ms(self._leases.now()), 100)
        now = self._leases.monotonic()
        self._later = {run_id: until for run_id, until in self._later.items() if until > now}
        return [run_id for run_id in found if run_id not in self._later]

    def postpone(self, run_id: int, seconds: float) -> None:
        """Leave a run alone for some seconds because ending it failed."""
        self._later[run_id] = self._leases.monotonic() + seconds

    # --- the exchange with the other servers -------------------------------------------------------------

    def changes_to_send(self) -> WorkerChanges:
        """Begin an exchange and return the changes since the last one.

        Only a limited number of workers is reported at a time; if there are more, another exchange follows
        soon. A worker that waits for a long time is reported repeatedly, like one that sends heartbeats, so
        that other servers remove it soon after the worker or this server fails.
        """
        now_s = self._leases.monotonic()
        for name, known_until in list(self._own.items()):
            worker = self.workers.get(name)
            if worker is None:
                del self._own[name]
            elif known_until - now_s < LEASE_S_DEFAULT / 2 and worker.until > known_until:
                self._met[name] = None
        met = list(islice(self._met, WORKERS_PER_EXCHANGE_MAX))
        parted = list(islice(self._parted.items(), WORKERS_PER_EXCHANGE_MAX))
        for name in met:
            del self._met[name]
            self._own[name] = min(self.workers[name].until, now_s + LEASE_S_DEFAULT)
        for name, _ in parted:
            del self._parted[name]
        if self._met or self._parted:
            self.exchange_soon()
        rows = [self._row_of(self.workers[name]) for name in sorted(met)]
        changes = WorkerChanges(rows, sorted(parted), sorted(self._beaten), len(self._own))
        self._beaten = {}
        self._known, self._over = frozenset(self.runs), set()
        return changes

    def resend_changes(self, changes: WorkerChanges) -> None:
        """Add the changes of a failed exchange to the next one."""
        self._met = {one.name: None for one in changes.workers if one.name in self._own} | self._met
        here = {(name, worker.by) for name, _ in changes.left if (worker := self.workers.get(name))}
        parted = {name: by for name, by in changes.left if (name, by) not in here} | self._parted
        self._parted = dict(islice(parted.items(), WORKERS_MAX))
        self._beaten = {run_id: None for run_id in changes.beats if run_id in self.runs} | self._beaten

    def _row_of(self, worker: Worker) -> WorkerRow:
        there_s = self._own.get(worker.name, -inf) - self._leases.monotonic()
        until = after_seconds(timestamp_ms(self._leases.now()), max(there_s, 0.0))
        return WorkerRow(
            worker.name,
            worker.joined,
            worker.heartbeat,
            until,
            worker.host,
            worker.pid,
            worker.version,
            worker.names,
            list(worker.accepts),
            worker.slots,
            worker.quiet,
            worker.by,
        )

    def apply_exchange(self, state: PeerState) -> None:
        """Apply the state of all servers that an exchange returned, and complete the exchange."""
        self.servers = state.servers
        for row in state.workers:
            if row.name not in self._parted:
                self._give_up_foreign(row)
                if row.name not in self._met:
                    self._update_worker(row)
        there = {row.name for row in state.workers}
        whole = len(there) < WORKERS_MAX  # otherwise the list is cut off, and may lack workers of this server
        for name in [name for name in self.workers if name not in there and name not in self._met]:
            if whole or name not in self._own:
                self._remove(name)
                self._own.pop(name, None)
        for run in state.runs:
            self._update_run(run)
        for run_id in self._known - {run.run_id for run in state.runs}:
            super()._ended_run(RunForgotten(run_id))
        for kind, names in (("worker joined", state.joined), ("worker left", state.left)):
            for name in names:
                self._membership.add(kind, name, self._there)
        for name in state.lost:
            self._membership.add("server left", name, self._servers_there)
        self._membership.flush_if_due(self._there)

    def joined(self, name: str) -> None:
        """Record the event that this server has joined."""
        self._membership.add("server joined", name, self._servers_there)

    def _servers_there(self) -> str:
        return running("server", [server.name for server in self.servers], len(self.servers))

    def servers_alive(self) -> list[ServerRow]:
        """Return the live servers by name, each as of its last exchange."""
        newest = max((server.pulse for server in self.servers), default="")
        # A server is silent if three exchanges are missing
        return [
            server._replace(state="silent") if after_seconds(server.pulse, 3.0) < newest else server
            for server in self.servers
        ]

    def _give_up_foreign(self, row: WorkerRow) -> None:
        """Remove a worker of this server if another token used its name first, at another server."""
        worker = self.workers.get(row.name)
        if worker is not None and row.by is not None and worker.by not in (row.by, None):
            self._remove(row.name)
            self._own.pop(row.name, None)
            self._met.pop(row.name, None)

    def _update_worker(self, row: WorkerRow) -> None:
        worker = self.workers.get(row.name)
        if worker is None:
            worker = Worker(row.name, row.joined, row.heartbeat, inf, elsewhere=True)
            worker.runs = self._runs_of.get(row.name, worker.runs)
            worker.served = bool(worker.runs)
            full = len(self.workers) >= WORKERS_MAX or self._size + worker.measured() > WORKERS_BYTES_MAX
            if full or not self._add(worker):
                return  # workers of this server are not evicted for others
        if worker.elsewhere:
            worker.by = row.by
        worker.joined, worker.heartbeat = row.joined, row.heartbeat
        worker.host, worker.pid, worker.version = row.host, row.pid, row.version
        worker.accepts, worker.slots, worker.quiet = tuple(row.accepts), row.slots, row.quiet
        asked = tuple(row.asked)
        if row.name not in self._own and list(worker.asked) != [asked]:  # else this server has newer data
            worker.asked = {asked: inf}
            self._measure(worker)

    def _update_run(self, row: OpenRunRow) -> None:
        run = self.runs.get(row.run_id)
        stop = row.stop.split()[0] if row.stop else ""
        if run is None:
            if row.run_id not in self._over:
                self._open(OpenRun(row.run_id, row.job_id, row.worker, row.lease_s, stop=stop))
        elif stop and stop != run.stop:
            run.stop = stop
            self._wake(run.worker)
