"""Who works on what, as far as it lives in memory: the workers, their leases, and what they must stop.

A lease is counted in real time and is not on disk: a starting server gives every open run a full new one.
The registry learns of runs when their transaction is on disk, and tells maintenance which leases are over. It
knows no rows and no sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import LEASE_S_DEFAULT, WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.base.ping_secret import job_of_ping, ping_secret_of
from bedrockjobs.base.run_token import RunOfToken, run_of_token, run_token_of
from bedrockjobs.base.wire import stamp_ms
from bedrockjobs.commands import Heartbeat
from bedrockjobs.engine.events import (
    DrainsChanged,
    RunEnded,
    RunForgotten,
    RunKeyKnown,
    RunOpened,
    RunRestored,
    RunStopped,
    WorkerAsked,
)
from bedrockjobs.store.base import Unit
from bedrockjobs.store.sharing import ServerRow

LISTED_MAX = 100
"""Workers that an event about one of them lists: an event of each of very many must not list them all."""

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

    @property
    def names(self) -> list[str]:
        """Return all the names it asks for."""
        return sorted({name for names in self.asked for name in names})


def running(what: str, names: list[str]) -> str:
    """Return who is there, as events tell it: how many, and their names."""
    listed = sorted(names)[:LISTED_MAX]
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return f"{len(names)} {what}(s) now running [{' '.join(listed)}{more}]"


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
        self.news: list[tuple[str, str, str]] = []
        """Workers that came and went, as events for the next transaction: kind, name, who is there now."""
        self._run_key = ""
        self.on_news: Callable[[], None] = lambda: None
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
        if run.worker in self.workers:
            self.workers[run.worker].runs.add(run.run_id)

    def _ended_run(self, event: RunEnded | RunForgotten) -> None:
        run = self.runs.pop(event.run_id, None)
        if run is not None:
            if run.worker in self.workers:
                self.workers[run.worker].runs.discard(run.run_id)
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
        for name in [worker.name for worker in self.workers.values() if worker.until <= now]:
            self.leave(name)
        found = [run.run_id for run in self.runs.values() if run.lease_s and run.until <= now]
        moments = [run.until for run in self.runs.values() if run.lease_s]
        moments += [worker.until for worker in self.workers.values()]
        self.look_at = min(moments, default=inf)
        return found

    def sleep_s(self) -> float:
        """Return the seconds until it is time to ask who is ``overdue``; infinite where nobody can be."""
        return max(self.look_at - self._leases.monotonic(), 0.0)

    # --- workers -----------------------------------------------------------------------------------------

    def _asked(self, event: WorkerAsked) -> None:
        self.seen(
            event.worker,
            host=event.host,
            pid=event.pid,
            names=event.names,
            accepts=event.accepts,
            wait_s=event.wait_s,
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
    ) -> Worker:
        """Note that a worker is alive, and for ``wait_s`` seconds busy with waiting for an answer."""
        now = self._clock.now().isoformat(" ", "seconds")[:19]
        until = self._leases.monotonic() + LEASE_S_DEFAULT + wait_s
        worker = self.workers.get(name)
        if worker is None:
            worker = self.workers[name] = Worker(name, now, now, until)
            worker.runs = {run.run_id for run in self.runs.values() if run.worker == name}
            self.look_at = min(self.look_at, until)
            self._tell("worker joined", worker)
        worker.heartbeat, worker.until = now, max(until, worker.until)
        worker.host, worker.pid = host or worker.host, pid or worker.pid
        worker.accepts = tuple(accepts) or worker.accepts
        if asked := tuple(names):
            worker.asked[asked] = until
            if len(worker.asked) > 1:
                now_s = self._leases.monotonic()
                worker.asked = {names: end for names, end in worker.asked.items() if end > now_s}
        self._was_met(worker, LEASE_S_DEFAULT + wait_s)
        return worker

    def _was_met(self, worker: Worker, there_s: float) -> None:
        """Hear of a worker that is there, and counts as that for some seconds; others have to be told."""

    def told(self, count: int) -> None:
        """Note that the first ``count`` of the news are on disk."""
        del self.news[:count]

    def leave(self, name: str) -> None:
        """Note that a worker ended."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            self._tell("worker left", worker)

    def _tell(self, kind: str, worker: Worker) -> None:
        self.news.append((kind, worker.name, running("worker", list(self.workers))))
        self.on_news()

    def _drains_changed(self, event: DrainsChanged) -> None:
        changed, self.drains = self.drains ^ event.drains, event.drains
        for name in changed:
            self._wake(name)

    def status_of(self, worker: Worker) -> str:
        """Return whether a worker takes jobs."""
        if worker.name in self.drains:
            return "draining" if worker.runs else "drained"
        return "quiet" if worker.quiet else "active"

    def listing(self) -> str:
        """Return the live workers by name, as ListWorkers answers."""
        rows = [
            {
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
            for _, worker in sorted(self.workers.items())
        ]
        return jsontext.dump({"workers": rows})

    def servers_alive(self) -> list[ServerRow]:
        """Return the live servers by name: this one, which is so now."""
        now = stamp_ms(self._clock.now())
        return [server._replace(pulse=now, workers=len(self.workers)) for server in self.servers]

    # --- heartbeats --------------------------------------------------------------------------------------

    async def heartbeat(self, command: Heartbeat) -> str:
        """Renew leases; return what must stop, at once where that is news or nobody waits."""
        if any(run_id not in self.runs for run_id in command.run_ids):
            await self._learn()
        wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
        wait_s = min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting and not command.leaving else 0.0
        leases = [
            run.lease_s for run in map(self.runs.get, command.run_ids) if run is not None and run.lease_s
        ]
        wait_s = min(wait_s, min(leases, default=LEASE_S_DEFAULT) / BEATS_PER_LEASE)
        worker = self.seen(command.worker, host=command.host, pid=command.pid, names=command.names or ())
        worker.version, worker.slots = command.version or worker.version, command.slots or worker.slots
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
