"""What servers of one database tell each other through it, beside the jobs: who is there, and what is new.

A ``Neighbours`` is one server's line to the others. What goes over it is no more than a hint, or is written
to tables that all servers read: nothing is lost with a server or a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from bedrockjobs.store.base import Unit

ServerState = Literal["starting", "serving", "stopping", "silent"]
"""What a server does; ``silent`` is one that the others have not heard of for a while."""


class ServerRow(NamedTuple):
    """A server that is alive."""

    name: str
    address: str
    """Where it listens; empty until it does."""
    started: str
    pulse: str
    """When it was last known to be alive."""
    version: str
    workers: int = 0
    """How many workers speak to it; one that speaks to several servers counts with each."""
    state: ServerState = "serving"


class WorkerRow(NamedTuple):
    """A worker that is alive, as the server knows it that it speaks to."""

    name: str
    joined: str
    heartbeat: str
    until: str
    """When it counts as gone."""
    host: str
    pid: int
    version: str
    asked: list[str]
    """The names it asks for."""
    accepts: list[str]
    slots: int
    quiet: bool


class OpenRunRow(NamedTuple):
    """A run in progress, on whatever server's worker."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    stop: str


class Told(NamedTuple):
    """What a server tells of its workers since it did so last."""

    workers: list[WorkerRow]
    left: list[str]
    """Workers that said that they end."""
    beats: list[int]
    """The runs whose workers gave a sign of life."""
    served: int = 0
    """How many workers speak to it."""


class Heard(NamedTuple):
    """Who is there, and what this exchange made of it."""

    joined: list[str]
    """Workers that no server knew before."""
    left: list[str]
    """Workers that are gone: they said so, or were silent for too long."""
    lost: list[str]
    """Servers that are gone, as they were silent for too long."""
    servers: list[ServerRow]
    workers: list[WorkerRow]
    runs: list[OpenRunRow]


class NameTaken(RuntimeError):
    """A living server has the name already."""


class Neighbours(Protocol):
    """One server's line to the others."""

    on_hint: Callable[[str], object]
    """Called with each hint of another server, on the event loop."""
    address: str
    """Where this server listens, once it does."""
    state: ServerState
    """What it does."""

    async def open(self, version: str) -> None:
        """Join the servers; raises NameTaken where one of this name lives, StoreError where it cannot."""
        ...

    async def exchange(self, told: Told) -> Heard:
        """Tell that this server is alive and what its workers did; return who is there. Raises StoreError."""
        ...

    async def move_clock(self, moment: str) -> str:
        """Move the test clock of the database, never back; return what it shows. Raises StoreError."""
        ...

    async def hint(self, text: str) -> None:
        """Give a hint to all other servers; raises StoreError where that cannot be done now."""
        ...

    async def close(self) -> None:
        """Speak and hear no more."""
        ...


class Watch(NamedTuple):
    """What a server finds when it looks at what time asks for."""

    mine: bool
    """Whether it is this server that does so now."""
    seen: str
    """When some server did so last; empty on a new database."""
    away: tuple[str, str]
    """The last time at which no server worked: from when to when; empty where there was none."""


class SharedUnit(Unit, Protocol):
    """A unit beside those of other servers."""

    def watch(self) -> Watch:
        """Try to be the one server that does what time asks for, until the unit ends."""
        ...

    def watched(self, now: str) -> None:
        """Note that time is looked after."""
        ...

    def was_away(self, since: str, until: str) -> None:
        """Note when no server worked, for all servers, and give each run in progress a new lease."""
        ...

    def leases_over(self, now: str, limit: int) -> list[int]:
        """Return the runs whose lease is over."""
        ...

    def due_names(self, names: Sequence[str], now: str, lately: str) -> list[str]:
        """Return those of some names of which a job is due, and all of which one became due ``lately``."""
        ...

    def left_ready(self) -> tuple[list[tuple[str, str]], bool]:
        """Return name and nextRun of the jobs that are left queued, and whether anybody may be served."""
        ...
