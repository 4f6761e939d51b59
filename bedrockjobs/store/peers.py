"""Cluster membership and notifications between the servers of one database.

``PeerLink`` connects a server to the others. A notification only says that something may have changed; the
state is in tables that all servers read, so nothing is lost if a server or a connection fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from bedrockjobs.job.rows import InboxRow
from bedrockjobs.store.base import Unit

ServerState = Literal["starting", "serving", "stopping", "silent"]
"""State of a server; ``silent``: without a recent heartbeat."""


class ServerRow(NamedTuple):
    """A server that is alive."""

    name: str
    address: str
    """The address on which the server listens; empty before it listens."""
    started: str
    pulse: str
    """The last heartbeat of the server."""
    version: str
    workers: int = 0
    """Number of connected workers; a worker that is connected to several servers counts for each server."""
    state: ServerState = "serving"


class WorkerRow(NamedTuple):
    """A live worker, as its server knows it."""

    name: str
    joined: str
    heartbeat: str
    until: str
    """When the worker is considered gone unless it sends another heartbeat."""
    host: str
    pid: int
    version: str
    asked: list[str]
    """The names and patterns that the worker requests."""
    accepts: list[str]
    slots: int
    quiet: bool
    by: str | None
    """The name of the token that the worker uses; empty if it uses none; None if an older server wrote the
    row."""


class OpenRunRow(NamedTuple):
    """A run in progress, on a worker of any server."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    stop: str


class WorkerChanges(NamedTuple):
    """Changes of a server's workers since its last ``PeerLink.exchange``."""

    workers: list[WorkerRow]
    left: list[tuple[str, str]]
    """Workers that shut down, each with its token."""
    beats: list[int]
    """runIDs of the runs whose workers sent a heartbeat."""
    served: int = 0
    """Number of connected workers."""


class PeerState(NamedTuple):
    """All servers, workers and runs of the cluster, and what changed since the last ``PeerLink.exchange``."""

    joined: list[str]
    """New workers."""
    left: list[str]
    """Workers that shut down or timed out."""
    lost: list[str]
    """Servers that timed out."""
    servers: list[ServerRow]
    workers: list[WorkerRow]
    runs: list[OpenRunRow]
    inbox: bool = False
    """Whether there are jobs to take in from the inbox."""


class NameTaken(RuntimeError):
    """A live server already has the name."""


class PeerLink(Protocol):
    """Connection of one server to the other servers of its database."""

    on_notification: Callable[[str], object]
    """Called on the event loop with each notification from another server."""
    address: str
    """The address of this server; empty until it listens."""
    state: ServerState
    """The state of this server."""

    async def connect(self, version: str) -> None:
        """Join the cluster; raises NameTaken if a live server has this name, StoreError."""

    async def exchange(self, changes: WorkerChanges) -> PeerState:
        """Store a heartbeat of this server and the changes of its workers; return the state of the cluster.

        Raises StoreError.
        """

    async def inbox(self) -> list[InboxRow]:
        """Return the next jobs to take in, which applications created in transactions; raises StoreError."""

    async def move_clock(self, moment: str) -> str:
        """Advance the test clock of the database; return its time. Raises StoreError."""

    async def publish(self, text: str) -> None:
        """Publish a notification to all other servers; raises StoreError if the database is unreachable."""

    async def close(self) -> None:
        """Stop publishing and listening."""


class Watch(NamedTuple):
    """Result of an attempt to become the maintenance leader."""

    mine: bool
    """Whether this server is the maintenance leader."""
    seen: str
    """When maintenance ran last; empty for a new database."""
    away: tuple[str, str]
    """Start and end of the last outage of all servers; empty if there was none."""


class SharedUnit(Unit, Protocol):
    """A unit on a database that other servers share."""

    def watch(self) -> Watch:
        """Try to become the maintenance leader for this unit."""

    def watched(self, now: str) -> None:
        """Store that maintenance has run."""

    def record_outage(self, since: str, until: str) -> None:
        """Store an outage of all servers and renew the lease of each run in progress."""

    def leases_over(self, now: str, limit: int) -> list[int]:
        """Return the runIDs of at most ``limit`` runs with an expired lease."""

    def due_names(self, names: Sequence[str], now: str, lately: str) -> list[str]:
        """Return which of ``names`` have a due job, and all names with a job due since ``lately``."""

    def left_ready(self) -> tuple[list[tuple[str, str]], bool]:
        """Return name and nextRun of the jobs that the unit made ready and that are still queued.

        The second value is whether all waiters must be checked again.
        """
