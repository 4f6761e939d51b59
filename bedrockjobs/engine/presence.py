"""Who works on what: workers, leases and stops, as the handlers see them, wherever they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bedrockjobs.base.run_token import RunOfToken
from bedrockjobs.job.readiness import AskedNames


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


class Presence(Protocol):
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


class Nobody:
    """A presence without workers, for whoever has none."""

    workers: Mapping[str, PresentWorker] = {}
    asked = AskedNames()

    def run_token(self, run: RunOfToken) -> str:
        """Return none."""
        return ""

    def ping_secret(self, job_id: int) -> str:
        """Return none."""
        return ""
