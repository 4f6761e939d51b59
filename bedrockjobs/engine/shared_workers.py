"""The workers of all servers that share a database, as one of them knows them.

Leases are in the database: a heartbeat that comes to any server is written there with the next exchange, and
whoever looks after time finds those that are over. What is in memory here follows the exchanges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from math import inf
from typing import Any, cast

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import LEASE_S_DEFAULT, WORKERS_BYTES_MAX, WORKERS_MAX
from bedrockjobs.base.wire import after_seconds, stamp_ms
from bedrockjobs.engine.events import RunEnded, RunForgotten
from bedrockjobs.engine.workers import OpenRun, Worker, WorkerRegistry, running
from bedrockjobs.store.base import Unit
from bedrockjobs.store.sharing import Heard, OpenRunRow, ServerRow, SharedUnit, Told, WorkerRow

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
        found = cast(SharedUnit, unit).leases_over(stamp_ms(self._leases.now()), ENDED_AT_ONCE_MAX)
        now = self._leases.monotonic()
        self._later = {run_id: until for run_id, until in self._later.items() if until > now}
        return [run_id for run_id in found if run_id not in self._later]

    def postpone(self, run_id: int, seconds: float) -> None:
        """Count a run as overdue again only after some seconds: it could not be taken away."""
        self._later[run_id] = self._leases.monotonic() + seconds

    # --- the exchange with the other servers -------------------------------------------------------------

    def to_tell(self) -> Told:
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
        told = Told(rows, sorted(parted), sorted(self._beaten), len(self._own))
        self._beaten = {}
        self._known, self._over = frozenset(self.runs), set()
        return told

    def tell_again(self, told: Told) -> None:
        """Tell what an exchange was to tell that failed with the next one, too."""
        self._met = {one.name: None for one in told.workers if one.name in self._own} | self._met
        parted = {name: None for name in told.left if name not in self.workers} | self._parted
        self._parted = dict.fromkeys(islice(parted, WORKERS_MAX))
        self._beaten = {run_id: None for run_id in told.beats if run_id in self.runs} | self._beaten

    def _row_of(self, worker: Worker) -> WorkerRow:
        there_s = self._own.get(worker.name, -inf) - self._leases.monotonic()
        until = after_seconds(stamp_ms(self._leases.now()), max(there_s, 0.0))
        return WorkerRow(
            worker.name, worker.joined, worker.heartbeat, until, worker.host, worker.pid, worker.version,
            worker.names, list(worker.accepts), worker.slots, worker.quiet,
        )  # fmt: skip

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
