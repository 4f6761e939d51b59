"""Who works on what, as far as it lives in memory: the workers, their leases, and what they must stop.

A lease is counted in real time and is not on disk: a starting server gives every open run a full new one.
The registry learns of runs when their transaction is on disk, and tells maintenance which leases are over. It
knows no rows and no sockets.

Any client may invent workers, so the registry has a limit and a budget in bytes. When they are used up, it
forgets a worker of the token that takes most of the budget: first one whose client is gone and that never got
a job. A forgotten worker keeps its runs and is remembered again when it next asks.
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
from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import (
    ASKED_PER_WORKER_MAX,
    BATCH_ANSWER_BYTES_MAX,
    LEASE_S_DEFAULT,
    PATTERN_BYTES,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    WORKER_BYTES,
    WORKER_EVENTS_A_MINUTE,
    WORKERS_BYTES_MAX,
    WORKERS_MAX,
)
from bedrockjobs.base.glob import glob
from bedrockjobs.base.principal import RunOfToken, job_of_ping, ping_secret_of, run_of_token, run_token_of
from bedrockjobs.base.wire import after_seconds, timestamp_ms
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
from bedrockjobs.job.eligibility import AskedNames
from bedrockjobs.store.base import Unit
from bedrockjobs.store.peers import Heard, OpenRunRow, ServerRow, SharedUnit, WorkerChanges, WorkerRow

# Who works on what: workers, leases and stops, as the handlers see them, wherever they are kept.


class PresentWorker(Protocol):
    """A worker that is alive."""

    name: str
    accepts: tuple[str, ...]
    """Kinds of jobs' own commands that it runs: cmd, argv, url."""
    quiet: bool
    """Whether it said that it takes no more jobs for now."""
    by: str
    """The name of the token it uses; empty without one."""
    served: bool
    """Whether it was ever given a job."""
    joined: str

    @property
    def names(self) -> list[str]:
        """Return the name patterns it asks for."""
        ...


class WorkerDirectory(Protocol):
    """The workers of all servers of a database."""

    @property
    def workers(self) -> Mapping[str, PresentWorker]:
        """Return the live workers by name."""
        ...

    @property
    def asked(self) -> AskedNames:
        """Return which workers ask for which names."""
        ...

    def run_token(self, run: RunOfToken) -> str:
        """Return the token of a run; empty where none can be made."""
        ...

    def ping_secret(self, job_id: int) -> str:
        """Return what a ping of a schedule is sent with; empty where none can be made."""
        ...


class NoWorkers:
    """A presence without workers, for whoever has none."""

    workers: Mapping[str, PresentWorker] = {}
    asked = AskedNames()

    def run_token(self, run: RunOfToken) -> str:
        """Return none."""
        return ""

    def ping_secret(self, job_id: int) -> str:
        """Return none."""
        return ""


log = logging.getLogger(__name__)

LISTED_MAX = 100
"""Workers that an event about one of them lists: an event of each of very many must not list them all."""

LISTED_A_TURN_BYTES = 256 * 1024
"""Size of what a list of workers takes of one turn of the event loop: some milliseconds."""

LISTED_CHARS_MAX = 1_000
"""Characters of the names in such a list."""

NEWS_S = 60.0
"""Seconds after which events about single workers are written again, once there were too many of them."""

SCAN_S = 0.25
"""Seconds between two scans for silent workers and leases that are over, when there are many of them."""

FEW = 1_000
"""Workers and runs that are scanned as often as one of them may be over."""

BEATS_PER_LEASE = 3
"""A waiting heartbeat is answered after this part of a lease, so that one that is lost costs no run."""


@dataclass(slots=True)
class OpenRun:
    """A run in progress."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    """Seconds it may be without a heartbeat; 0: as long as it likes."""
    until: float = 0.0
    """When its lease is over, in monotonic seconds."""
    stop: str = ""
    """TERM or KILL, once it must stop."""
    told: str = ""
    """What its worker has been told of that."""


@dataclass(slots=True)
class Worker:
    """A worker that is alive."""

    name: str
    joined: str
    heartbeat: str
    until: float
    """When it counts as gone, in monotonic seconds."""
    host: str = ""
    pid: int = 0
    version: str = ""
    asked: dict[tuple[str, ...], float] = field(default_factory=dict)
    """The names it asks for, and until when each of its requests counts."""
    accepts: tuple[str, ...] = ()
    slots: int = 0
    quiet: bool = False
    told_drained: bool = False
    """Whether it was told last that it is drained."""
    runs: set[int] = field(default_factory=set)
    by: str = ""
    """The name of the token it uses; empty without one."""
    served: bool = False
    """Whether it was ever given a job."""
    size: int = 0
    """The memory it takes, as the budget counts it."""

    @property
    def names(self) -> list[str]:
        """Return all the names it asks for."""
        if len(self.asked) == 1:
            return sorted(set(next(iter(self.asked))))
        return sorted({name for names in self.asked for name in names})

    def measured(self) -> int:
        """Return the memory it takes, as the budget counts it."""
        texts = (self.name, self.host, self.version, *(text for names in self.asked for text in names))
        patterns = len(texts) - 3
        return WORKER_BYTES + PATTERN_BYTES * patterns + sum(map(getsizeof, texts))


def running(what: str, names: Iterable[str], count: int) -> str:
    """Return who is there, as events tell it: how many, and the names of the first."""
    listed: list[str] = []
    chars = 0
    for name in nsmallest(LISTED_MAX, names):
        chars += len(name)
        if listed and chars > LISTED_CHARS_MAX:
            break
        listed.append(name)
    more = f" and {count - len(listed)} more" if count > len(listed) else ""
    return f"{count} {what}(s) now running [{' '.join(listed)}{more}]"


class Share:
    """The workers of one token, the one that was seen longest ago first."""

    __slots__ = ("served", "size", "unserved")

    def __init__(self) -> None:
        """Begin without workers."""
        self.unserved: OrderedDict[str, None] = OrderedDict()
        """Those that never got a job; those whose client is gone come first."""
        self.served: OrderedDict[str, None] = OrderedDict()
        self.size = 0
        """The memory they take."""

    def line_of(self, worker: Worker) -> OrderedDict[str, None]:
        """Return the line in which a worker stands."""
        return self.served if worker.served else self.unserved


class News:
    """What happened to workers and servers, as events for the next transaction; many become one."""

    def __init__(self, clock: Clock, on_news: Callable[[], None]) -> None:
        """Count minutes by ``clock``; ``on_news`` is called when there is an event to write."""
        self._clock = clock
        self._on_news = on_news
        self.events: list[tuple[str, str, str]] = []
        """Kind, name and detail of each event."""
        self._since = -inf
        self._counts: dict[str, int] = {}

    def add(self, kind: str, name: str, there: Callable[[], str]) -> None:
        """Tell one thing; ``there`` says who is there now."""
        if self._clock.monotonic() - self._since >= NEWS_S:
            self.flush(there)
            self._since = self._clock.monotonic()
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= WORKER_EVENTS_A_MINUTE:
            self.events.append((kind, name, there()))
            self._on_news()

    def flush(self, there: Callable[[], str]) -> None:
        """Tell how many more there were in the minute before."""
        counts, self._counts = self._counts, {}
        for kind, count in counts.items():
            if count > WORKER_EVENTS_A_MINUTE:
                more = f"{count - WORKER_EVENTS_A_MINUTE:,} more in a minute; {there()}"
                self.events.append((kind, "", more))
                self._on_news()

    @property
    def flush_at(self) -> float:
        """Return when it is time to ``flush``, in monotonic seconds; infinite if all was told."""
        untold = any(count > WORKER_EVENTS_A_MINUTE for count in self._counts.values())
        return self._since + NEWS_S if untold else inf

    def flush_if_due(self, there: Callable[[], str]) -> None:
        """Tell what was counted, if its minute is over."""
        if self.flush_at <= self._clock.monotonic():
            self.flush(there)


class WorkerRegistry:
    """The workers of one server and their open runs; belongs to the event loop."""

    def __init__(self, clock: Clock | None = None, lease_clock: Clock | None = None) -> None:
        """Show times of ``clock``, and count leases in the monotonic seconds of ``lease_clock``."""
        self._clock = clock or SystemClock()
        self._leases = lease_clock or SystemClock()
        self.workers: dict[str, Worker] = {}
        self.runs: dict[int, OpenRun] = {}
        self.drains: frozenset[str] = frozenset()
        self.servers: list[ServerRow] = []
        """The servers that are alive, as far as others are known."""
        self.on_news: Callable[[], None] = lambda: None
        self._news = News(self._leases, lambda: self.on_news())
        self.asked = AskedNames()
        """Which workers ask for which names."""
        self._runs_of: dict[str, set[int]] = {}
        """Open runs by the name of their worker."""
        self._shares: dict[str, Share] = {}
        """The workers by token."""
        self._size = 0
        """The memory that all workers take."""
        self._forgotten = 0
        self._forgotten_told = -inf
        self._run_key = ""
        self._changed: dict[str, set[asyncio.Future[None]]] = {}
        self._ended = False
        self.look_at = inf
        """When it is time to ask who is ``overdue``, in seconds of the clock of leases."""

    def lease_moment(self) -> datetime:
        """Return the present moment as leases are counted: a test clock does not move it."""
        return self._leases.now()

    # --- runs --------------------------------------------------------------------------------------------

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what the registry does with each event that it hears of."""
        return {
            RunOpened: self._opened,
            RunRestored: self._restored,
            RunEnded: self._ended_run,
            RunForgotten: self._ended_run,
            RunStopped: self._stopped,
            WorkerAsked: self._asked,
            WaitLeft: self._wait_left,
            DrainsChanged: self._drains_changed,
            RunKeyKnown: lambda event: self.know_run_key(event.key),
        }

    def know_run_key(self, key: str) -> None:
        """Make tokens of runs and secrets of pings with a key, the one of the database."""
        self._run_key = key

    def run_token(self, run: RunOfToken) -> str:
        """Return the token of a run; empty where the server has not begun yet."""
        return run_token_of(self._run_key, run) if self._run_key else ""

    def ping_secret(self, job_id: int) -> str:
        """Return what a ping of a schedule is sent with; empty where the server has not begun yet."""
        return ping_secret_of(self._run_key, job_id) if self._run_key else ""

    def job_of_ping(self, secret: str) -> int | None:
        """Return the schedule that a ping is for, which may be gone by now; None for a wrong secret."""
        return job_of_ping(self._run_key, secret)

    def run_of_token(self, token: str) -> RunOfToken | None:
        """Return what a token is for, which may be over by now; None for a wrong one."""
        return run_of_token(self._run_key, token)

    def _opened(self, event: RunOpened) -> None:
        self._open(OpenRun(event.run_id, event.job_id, event.worker, event.lease_s))

    def _restored(self, event: RunRestored) -> None:
        stop = event.stop.split()[0] if event.stop else ""
        self._open(OpenRun(event.run_id, event.job_id, event.worker, event.lease_s, stop=stop))

    def _open(self, run: OpenRun) -> None:
        """Note a run that is on disk; its lease begins."""
        self._renew(run)
        self.runs[run.run_id] = run
        if run.lease_s:
            self.look_at = min(self.look_at, run.until)
        runs = self._runs_of.setdefault(run.worker, set())
        runs.add(run.run_id)
        worker = self.workers.get(run.worker)
        if worker is not None:
            worker.runs = runs
            if not worker.served:
                self._served(worker)

    def _served(self, worker: Worker) -> None:
        """Note that a worker was given its first job: it is forgotten later than those that never were."""
        share = self._shares.get(worker.by)
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
            self._wake(run.worker)  # also one that counts as gone: it may be waiting to hear of it

    def _stopped(self, event: RunStopped) -> None:
        run = self.runs.get(event.run_id)
        if run is not None:
            run.stop = event.signal
            self._wake(run.worker)

    def postpone(self, run_id: int, seconds: float) -> None:
        """Count a run as overdue again only after some seconds: it could not be taken away."""
        run = self.runs.get(run_id)
        if run is not None:
            run.until = self._leases.monotonic() + seconds
            self.look_at = min(self.look_at, run.until)

    def overdue(self, unit: Unit) -> list[int]:
        """Return the runs whose lease is over, and let go of workers that were silent for too long.

        Memory knows them; where servers share a database, the ``unit`` does.
        """
        now = self._leases.monotonic()
        if now < self.look_at:
            return []
        for name in [worker.name for worker in self.workers.values() if worker.until <= now]:
            self.leave(name)
        self._news.flush_if_due(self._there)
        found = [run.run_id for run in self.runs.values() if run.lease_s and run.until <= now]
        moments = [run.until for run in self.runs.values() if run.lease_s]
        moments += [worker.until for worker in self.workers.values()]
        next_at = min(moments, default=inf)
        if len(moments) > FEW:  # many are over at nearly the same time
            next_at = max(next_at, now + SCAN_S)
        self.look_at = min(next_at, self._news.flush_at)
        return found

    def sleep_s(self) -> float:
        """Return the seconds until it is time to ask who is ``overdue``; infinite where nobody can be."""
        return max(self.look_at - self._leases.monotonic(), 0.0)

    # --- workers -----------------------------------------------------------------------------------------

    @property
    def news(self) -> list[tuple[str, str, str]]:
        """Return who came and went, as events for the next transaction: kind, name, who is there now."""
        return self._news.events

    def told(self, count: int) -> None:
        """Note that the first ``count`` of the news are on disk."""
        del self._news.events[:count]

    def _asked(self, event: WorkerAsked) -> None:
        self.seen(
            event.worker,
            host=event.host,
            pid=event.pid,
            names=event.names,
            accepts=event.accepts,
            wait_s=event.wait_s,
            by=event.by,
        )

    def seen(
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
        """Note that a worker is alive, and for ``wait_s`` seconds busy with waiting for an answer.

        Returns it, even if there is no room to remember it.
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
        if by != worker.by:
            self._move(worker, by)
        else:
            self._shares[by].line_of(worker).move_to_end(name)
        if changed:
            self._measure(worker)
        self._was_met(worker)
        return worker

    @staticmethod
    def _drop_asked(worker: Worker, now_s: float) -> bool:
        """Forget old requests of a worker, and the oldest of too many; tell whether it did."""
        before = len(worker.asked)
        worker.asked = {names: end for names, end in worker.asked.items() if end > now_s}
        while len(worker.asked) > ASKED_PER_WORKER_MAX:
            del worker.asked[min(worker.asked, key=worker.asked.__getitem__)]
        return len(worker.asked) != before

    def _joined(self, worker: Worker) -> Worker:
        """Remember a new worker if there is room for it; return it."""
        worker.runs = self._runs_of.get(worker.name, worker.runs)
        worker.served = bool(worker.runs)
        if self._add(worker):
            self._tell("worker joined", worker)
            self._was_met(worker)
        return worker

    def _add(self, worker: Worker) -> bool:
        """Remember a worker; return False if there is no room for it."""
        size = worker.measured()
        if not self._make_room(worker, size):
            return False
        worker.size = size
        share = self._shares.setdefault(worker.by, Share())
        share.line_of(worker)[worker.name] = None
        share.size += size
        self._size += size
        self.workers[worker.name] = worker
        self.asked.put(worker.name, worker.names)
        self.look_at = min(self.look_at, worker.until)
        return True

    def _drop(self, name: str) -> Worker | None:
        """Forget a worker, without a word."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            share = self._shares[worker.by]
            del share.line_of(worker)[name]
            share.size -= worker.size
            if not (share.served or share.unserved):
                del self._shares[worker.by]
            self._size -= worker.size
            self.asked.remove(name)
        return worker

    def _move(self, worker: Worker, by: str) -> None:
        """Let a worker count for another token, the one it uses now."""
        self._drop(worker.name)
        worker.by = by
        if not self._add(worker):
            self._was_forgotten(worker)

    def _measure(self, worker: Worker) -> None:
        """Count the memory of a worker that changed, and forget others if it takes too much."""
        if worker.name not in self.workers:
            return
        size = worker.measured()
        self._shares[worker.by].size += size - worker.size
        self._size += size - worker.size
        worker.size = size
        self.asked.put(worker.name, worker.names)
        while self._size > WORKERS_BYTES_MAX and self.workers:
            self._forget_one()

    def _make_room(self, newcomer: Worker, size: int) -> bool:
        """Forget workers until there is room for one more of ``size`` bytes; return whether there is.

        A newcomer that never got a job displaces none of its own token's workers that did.
        """
        while len(self.workers) >= WORKERS_MAX or self._size + size > WORKERS_BYTES_MAX:
            share = self._largest()
            own = share is self._shares.get(newcomer.by)
            if own and not newcomer.served and not share.unserved:
                self._was_forgotten(newcomer)
                return False
            self._forget_one()
        return True

    def _largest(self) -> Share:
        return max(self._shares.values(), key=lambda share: share.size)

    def _forget_one(self) -> None:
        """Forget the worker that is needed least, of the token that takes most of the budget."""
        share = self._largest()
        worker = self._drop(next(iter(share.unserved or share.served)))
        assert worker is not None
        self._was_forgotten(worker)

    def _was_forgotten(self, worker: Worker) -> None:
        """Say in the log, once a minute, how many workers there was no room for."""
        self._forgotten += 1
        now = self._leases.monotonic()
        if now - self._forgotten_told >= NEWS_S:
            log.warning(
                "%d worker(s) forgotten, the last of token %r: a server remembers %d in %d MiB",
                self._forgotten,
                worker.by,
                WORKERS_MAX,
                WORKERS_BYTES_MAX // 2**20,
            )
            self._forgotten, self._forgotten_told = 0, now

    def _wait_left(self, event: WaitLeft) -> None:
        """Note that a worker waits no longer: it counts as gone after a lease, and is forgotten first."""
        worker = self.workers.get(event.worker)
        if worker is None:
            return
        until = self._leases.monotonic() + LEASE_S_DEFAULT
        worker.until = min(worker.until, until)
        worker.asked = {names: min(end, until) for names, end in worker.asked.items()}
        self.look_at = min(self.look_at, worker.until)
        if not worker.served:
            self._shares[worker.by].unserved.move_to_end(worker.name, last=False)

    def _was_met(self, worker: Worker) -> None:
        """Hear of a sign of life of a worker, of which other servers have to be told."""

    def leave(self, name: str) -> None:
        """Note that a worker ended."""
        worker = self._drop(name)
        if worker is not None:
            self._tell("worker left", worker)

    def _there(self) -> str:
        return running("worker", self.workers, len(self.workers))

    def _tell(self, kind: str, worker: Worker) -> None:
        self._news.add(kind, worker.name, self._there)
        self.look_at = min(self.look_at, self._news.flush_at)

    def _drains_changed(self, event: DrainsChanged) -> None:
        changed, self.drains = self.drains ^ event.drains, event.drains
        for name in changed:
            self._wake(name)

    def status_of(self, worker: Worker) -> str:
        """Return whether a worker takes jobs."""
        if worker.name in self.drains:
            return "draining" if worker.runs else "drained"
        return "quiet" if worker.quiet else "active"

    def by_name(self, after: str = "", pattern: str | None = None) -> Iterator[Worker]:
        """Yield the live workers behind a name in order, all or those whose names match a pattern."""
        names = (name for name in self.workers if name > after and (pattern is None or glob(name, pattern)))
        return map(self.workers.__getitem__, sorted(names))

    async def listing(self, after: str, pattern: str | None, limit: int) -> str:
        """Return a page of the live workers by name, as ListWorkers answers; fewer if they are large.

        Others have their turns in between. A worker that leaves meanwhile is shown as it was.
        """
        rows: list[str] = []
        size = turn_size = 0
        for worker in list(islice(self.by_name(after, pattern), limit)):
            if size >= BATCH_ANSWER_BYTES_MAX:
                break
            if turn_size >= LISTED_A_TURN_BYTES:
                turn_size = 0
                await asyncio.sleep(0)
            rows.append(jsontext.dump(self._shown(worker)))
            size += len(rows[-1])
            turn_size += len(rows[-1])
        return f'{{"workers":[{",".join(rows)}]}}'

    def _shown(self, worker: Worker) -> dict[str, Any]:
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
        """Return the live servers by name: this one, which is so now."""
        now = timestamp_ms(self._clock.now())
        return [server._replace(pulse=now, workers=len(self.workers)) for server in self.servers]

    # --- heartbeats --------------------------------------------------------------------------------------

    async def heartbeat(self, command: Heartbeat, by: str = "") -> str:
        """Renew leases; return what must stop, at once if that is news or nobody waits.

        ``by`` is the name of the token that sends it.
        """
        if any(run_id not in self.runs for run_id in command.run_ids):
            await self._learn()
        wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
        wait_s = min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting and not command.leaving else 0.0
        leases = [
            run.lease_s for run in map(self.runs.get, command.run_ids) if run is not None and run.lease_s
        ]
        wait_s = min(wait_s, min(leases, default=LEASE_S_DEFAULT) / BEATS_PER_LEASE)
        worker = self.seen(
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
        if command.leaving:
            self.leave(command.worker)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while (
                    wait_s > 0
                    and not self._ended
                    and not self._is_news(command)
                    and worker.told_drained == (command.worker in self.drains)
                ):
                    await self._change(command.worker)
        worker.told_drained = command.worker in self.drains
        return self._answer(command)

    async def _learn(self) -> None:
        """Hear of runs that other servers have begun; one server alone knows all."""

    def _renew(self, run: OpenRun) -> None:
        """Begin a new lease of a run, as its worker gave a sign of life."""
        run.until = self._leases.monotonic() + run.lease_s

    def standing(self, command: Heartbeat) -> str:
        """Return what must stop as things stand, to one who waits no longer; it renews nothing."""
        return jsontext.dump({"stop": self._stops(command), "quiet": command.worker in self.drains})

    def _signal(self, command: Heartbeat, run_id: int) -> str:
        run = self.runs.get(run_id)
        return "LOST" if run is None or run.worker != command.worker else run.stop

    def _is_news(self, command: Heartbeat) -> bool:
        """Tell whether something must stop that the worker has not been told of."""
        for run_id in command.run_ids:
            signal = self._signal(command, run_id)
            if signal == "LOST" or (signal and self.runs[run_id].told != signal):
                return True
        return False

    def _stops(self, command: Heartbeat) -> list[dict[str, Any]]:
        signals = [(run_id, self._signal(command, run_id)) for run_id in command.run_ids]
        return [{"runID": run_id, "signal": signal} for run_id, signal in signals if signal]

    def _answer(self, command: Heartbeat) -> str:
        for stop in self._stops(command):
            if stop["signal"] != "LOST":
                self.runs[stop["runID"]].told = stop["signal"]
        return self.standing(command)

    async def _change(self, worker: str) -> None:
        """Wait until something changed for a worker."""
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
            if not changed.done():
                changed.set_result(None)

    def end(self) -> None:
        """Let every waiting heartbeat be answered: the server stops."""
        self._ended = True
        for worker in list(self._changed):
            self._wake(worker)


# The workers of all servers that share a database, as one of them knows them.
#
# Leases are in the database: a heartbeat that comes to any server is written there with the next exchange,
# and whoever looks after time finds those that are over. What is in memory here follows the exchanges.


ENDED_AT_ONCE_MAX = 100
"""Runs whose lease is over that one transaction ends."""

TOLD_AT_ONCE_MAX = 1_000
"""Workers that one exchange tells the other servers of: more than have a heartbeat in a second."""

SILENT_S = 3.0
"""Time without a sign of life after which a server is shown as silent: three exchanges."""


class SharedWorkers(WorkerRegistry):
    """The workers and open runs of all servers; belongs to the event loop."""

    def __init__(self, clock: Clock, lease_clock: Clock) -> None:
        """Show times of ``clock``; ``lease_clock`` tells who is there, on all servers alike."""
        super().__init__(clock, lease_clock)
        self.learn: Callable[[], Any] = lambda: asyncio.sleep(0)
        """Does an exchange, and waits for it."""
        self.exchange_soon: Callable[[], object] = lambda: None
        """Lets an exchange follow soon."""
        self._own: dict[str, float] = {}
        """The workers that speak to this server, and until when the others know that they are there."""
        self._met: dict[str, None] = {}
        self._parted: dict[str, None] = {}
        self._beaten: dict[int, None] = {}
        self._known: frozenset[int] = frozenset()
        """The runs that were known when the exchange began that is under way."""
        self._over: set[int] = set()
        """Those that have ended since."""
        self._later: dict[int, float] = {}
        """Runs that could not be taken away, and until when they are left alone."""

    # --- what this server hears of its own workers -------------------------------------------------------

    def _was_met(self, worker: Worker) -> None:
        if worker.name not in self._own:
            self._own[worker.name] = -inf
            self.exchange_soon()
        self._met[worker.name] = None
        self._parted.pop(worker.name, None)

    def leave(self, name: str) -> None:
        """Note that a worker ended."""
        self._drop(name)
        self._part(name)
        self.exchange_soon()

    def _was_forgotten(self, worker: Worker) -> None:
        super()._was_forgotten(worker)
        if worker.name in self._own:
            self._part(worker.name)

    def _part(self, name: str) -> None:
        """Let the other servers forget a worker."""
        self._met.pop(name, None)
        self._own.pop(name, None)
        if len(self._parted) < WORKERS_MAX:  # the others forget it after a lease anyway
            self._parted[name] = None

    def _tell(self, kind: str, worker: Worker) -> None:
        """Tell nothing: the exchange finds out for whom it is news."""

    async def _learn(self) -> None:
        await self.learn()

    def _renew(self, run: OpenRun) -> None:
        super()._renew(run)
        self._beaten[run.run_id] = None

    def _open(self, run: OpenRun) -> None:
        super()._open(run)
        self._beaten.pop(run.run_id, None)  # it has just begun

    def _ended_run(self, event: RunEnded | RunForgotten) -> None:
        super()._ended_run(event)
        self._over.add(event.run_id)
        self._beaten.pop(event.run_id, None)
        self._later.pop(event.run_id, None)

    # --- leases ------------------------------------------------------------------------------------------

    def overdue(self, unit: Unit) -> list[int]:
        """Return the runs whose lease is over, as the database knows."""
        found = cast(SharedUnit, unit).leases_over(timestamp_ms(self._leases.now()), ENDED_AT_ONCE_MAX)
        now = self._leases.monotonic()
        self._later = {run_id: until for run_id, until in self._later.items() if until > now}
        return [run_id for run_id in found if run_id not in self._later]

    def postpone(self, run_id: int, seconds: float) -> None:
        """Count a run as overdue again only after some seconds: it could not be taken away."""
        self._later[run_id] = self._leases.monotonic() + seconds

    # --- the exchange with the other servers -------------------------------------------------------------

    def to_tell(self) -> WorkerChanges:
        """Return what happened since this was last asked; the exchange begins.

        The others hear of a limited number of workers at a time; the next exchange follows soon. They hear of
        a worker that waits for long again and again, as of one that sends heartbeats: they forget it soon
        after it, or this server, is gone.
        """
        now_s = self._leases.monotonic()
        for name, known_until in list(self._own.items()):
            worker = self.workers.get(name)
            if worker is None:
                self._part(name)
            elif known_until - now_s < LEASE_S_DEFAULT / 2 and worker.until > known_until:
                self._met[name] = None
        met = list(islice(self._met, TOLD_AT_ONCE_MAX))
        parted = list(islice(self._parted, TOLD_AT_ONCE_MAX))
        for name in met:
            del self._met[name]
            self._own[name] = min(self.workers[name].until, now_s + LEASE_S_DEFAULT)
        for name in parted:
            del self._parted[name]
        if self._met or self._parted:
            self.exchange_soon()
        rows = [self._row_of(self.workers[name]) for name in sorted(met)]
        told = WorkerChanges(rows, sorted(parted), sorted(self._beaten), len(self._own))
        self._beaten = {}
        self._known, self._over = frozenset(self.runs), set()
        return told

    def tell_again(self, told: WorkerChanges) -> None:
        """Tell what an exchange was to tell that failed with the next one, too."""
        self._met = {one.name: None for one in told.workers if one.name in self._own} | self._met
        parted = {name: None for name in told.left if name not in self.workers} | self._parted
        self._parted = dict.fromkeys(islice(parted, WORKERS_MAX))
        self._beaten = {run_id: None for run_id in told.beats if run_id in self.runs} | self._beaten

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
        )

    def hear(self, heard: Heard) -> None:
        """Know what all servers know; the exchange is over."""
        self.servers = heard.servers
        for row in heard.workers:
            if row.name not in self._met and row.name not in self._parted:
                self._know_worker(row)
        there = {row.name for row in heard.workers}
        whole = len(there) < WORKERS_MAX  # else there may be more, and those of this server among them
        for name in [name for name in self.workers if name not in there and name not in self._met]:
            if whole or name not in self._own:
                self._drop(name)
                self._own.pop(name, None)
        for run in heard.runs:
            self._know_run(run)
        for run_id in self._known - {run.run_id for run in heard.runs}:
            super()._ended_run(RunForgotten(run_id))
        for kind, names in (("worker joined", heard.joined), ("worker left", heard.left)):
            for name in names:
                self._news.add(kind, name, self._there)
        for name in heard.lost:
            self._news.add("server left", name, self._servers_there)
        self._news.flush_if_due(self._there)

    def joined(self, name: str) -> None:
        """Tell that this server has joined the others."""
        self._news.add("server joined", name, self._servers_there)

    def _servers_there(self) -> str:
        return running("server", [server.name for server in self.servers], len(self.servers))

    def servers_alive(self) -> list[ServerRow]:
        """Return the live servers by name, each as it was at its last exchange."""
        newest = max((server.pulse for server in self.servers), default="")
        return [
            server._replace(state="silent") if after_seconds(server.pulse, SILENT_S) < newest else server
            for server in self.servers
        ]

    def _know_worker(self, row: WorkerRow) -> None:
        worker = self.workers.get(row.name)
        if worker is None:
            worker = Worker(row.name, row.joined, row.heartbeat, inf)
            worker.runs = self._runs_of.get(row.name, worker.runs)
            worker.served = bool(worker.runs)
            full = len(self.workers) >= WORKERS_MAX or self._size + worker.measured() > WORKERS_BYTES_MAX
            if full or not self._add(worker):
                return  # those that speak to this server are not forgotten for others
        worker.joined, worker.heartbeat = row.joined, row.heartbeat
        worker.host, worker.pid, worker.version = row.host, row.pid, row.version
        worker.accepts, worker.slots, worker.quiet = tuple(row.accepts), row.slots, row.quiet
        asked = tuple(row.asked)
        if row.name not in self._own and list(worker.asked) != [asked]:  # else this server knows better
            worker.asked = {asked: inf}
            self._measure(worker)

    def _know_run(self, row: OpenRunRow) -> None:
        run = self.runs.get(row.run_id)
        stop = row.stop.split()[0] if row.stop else ""
        if run is None:
            if row.run_id not in self._over:
                self._open(OpenRun(row.run_id, row.job_id, row.worker, row.lease_s, stop=stop))
        elif stop and stop != run.stop:
            run.stop = stop
            self._wake(run.worker)
