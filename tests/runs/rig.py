"""A server whose wall clock and lease clock a test moves, and which it can restart.

It talks over the wire alone, and knows of the server's inside only how to start, stop and wake it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.workers import SharedWorkers
from bedrockjobs.server import Server
from tests.conftest import START, Live, begin
from tests.engines import Databases
from tests.protocol.talk import Reply, Talk, post, request

LONG_MS = 600_000
"""A wait that no test sits out."""


class Site(Live):
    """A live server, its two clocks, and short ways to say what tests of runs say often."""

    def __init__(
        self, server: Server, stack: AsyncExitStack, leases: ManualClock, databases: Databases
    ) -> None:
        """Hold a server on one of ``databases``, whose leases run by ``leases``."""
        super().__init__(server, stack, keeps=True)
        self.leases = leases
        self.databases = databases

    # --- time ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> str:
        """Return the wall clock's time as a timestamp."""
        return timestamp(self.clock.now())

    async def rest(self) -> None:
        """Wait until the server has done what time alone asks of it."""
        for _ in range(3):
            self.server.dispatcher.poke()  # again, as a unit in progress may have looked before
            await self.settle()

    async def later(self, seconds: float) -> None:
        """Move the wall clock; leases stand still."""
        await self._move(date_s=seconds)

    async def until_time(self, text: str) -> None:
        """Move the wall clock to a timestamp."""
        await self.later((moment(text) - self.clock.now()).total_seconds())

    async def silence(self, seconds: float) -> None:
        """Let the leases run; the wall clock stands still."""
        await self._move(leases_s=seconds)

    async def both(self, seconds: float) -> None:
        """Move both clocks, as real time does."""
        await self._move(date_s=seconds, leases_s=seconds)

    async def _move(self, *, date_s: float = 0, leases_s: float = 0) -> None:
        """Move both clocks, each by some seconds, and let the server do what this brings."""
        await self.known()
        database, now = self.server.settings.database, self.clock.now()

        def advance() -> None:
            self.leases.advance(leases_s)
            self.clock.advance(date_s)

        await self.databases.move(database, now, advance, date_s=date_s, leases_s=leases_s)
        await self.rest()
        await self.known()

    async def known(self) -> None:
        """Wait until the database has what this server knows of workers: others may need it."""
        presence = self.server.service.presence
        if isinstance(presence, SharedWorkers):
            await presence.add_runs()
            await self.rest()

    # --- restarts -----------------------------------------------------------------------------------------

    async def restart(self, *, down: float = 0, leases: float = 0) -> None:
        """Stop the server, and start another one on the same file after ``down`` seconds."""
        settings = self.server.settings
        await self.known()
        await self.server.stop()
        await self._start(settings, down, leases)

    async def crash(self, *, down: float = 0, leases: float = 0) -> None:
        """Start another server on the database as a killed server would leave it at this moment."""
        await self.rest()
        await self.known()
        settings = self.server.settings
        database = await self.databases.crash(settings.database, self.server.stop)
        await self._start(settings.model_copy(update={"database": database}), down, leases)

    async def _start(self, settings: Settings, down: float, leases: float) -> None:
        self.clock.advance(down)
        self.leases.advance(leases)
        again = self.databases.settings(settings.database)
        leases_by = self.databases.lease_clock(self.clock, self.leases)
        self.server = Server(settings.model_copy(update=again), self.clock, leases_by)
        await begin(self.server)
        await self.rest()

    async def change(self, sql: str) -> None:
        """Change the database by other hands than the server's, which has no transaction in progress."""
        await self.server.dispatcher.settle()
        self.databases.change(self.server.settings.database, sql)

    # --- commands -----------------------------------------------------------------------------------------

    async def ok(self, command: str, **body: Any) -> Any:
        """Do a command over HTTP; return its answer, which must be 200."""
        reply = await self.http(command, body)
        assert reply.code == 200, reply
        return reply.json

    async def refused(self, command: str, **body: Any) -> tuple[int, str]:
        """Do a command over HTTP that must be refused; return Bedrock's code and the reason."""
        reply = await self.http(command, body)
        assert reply.code >= 400, reply
        assert reply.json["code"] != 500, reply
        return reply.json["code"], reply.json["reason"]

    async def create(self, name: str, **more: Any) -> int:
        """Create a job; return its jobID."""
        return int((await self.ok("CreateJob", name=name, **more))["jobID"])

    async def take(self, name: str = "*", worker: str | None = "w", **more: Any) -> dict[str, Any]:
        """Take a job that must be there."""
        who = {} if worker is None else {"worker": worker}
        found: dict[str, Any] = await self.ok("GetJob", name=name, **who, **more)
        return found

    async def leased(self, name: str = "*", worker: str = "w", **more: Any) -> dict[str, Any]:
        """Take a job under a lease."""
        return await self.take(name, worker, heartbeat=True, **more)

    async def nothing(self, name: str = "*", **more: Any) -> bool:
        """Tell whether there is no job to take."""
        reply = await self.http("GetJob", {"name": name, **more})
        assert reply.code in (200, 404), reply
        return reply.code == 404 and reply.json["reason"] == "No job found"

    async def finish(self, job: dict[str, Any], **more: Any) -> None:
        """Finish a taken job, with its runID if it has one."""
        await self.end("FinishJob", job, **more)

    async def fail(self, job: dict[str, Any], **more: Any) -> None:
        """Fail a taken job."""
        await self.end("FailJob", job, **more)

    async def end(self, command: str, job: dict[str, Any], **more: Any) -> None:
        """End a taken job's run in one of the three ways."""
        run = {"runID": job["runID"]} if "runID" in job else {}
        await self.ok(command, jobID=job["jobID"], **run, **more)

    async def beat(self, *run_ids: int, worker: str = "w", **more: Any) -> dict[str, Any]:
        """Send a Heartbeat that does not wait; return its answer."""
        found: dict[str, Any] = await self.ok("Heartbeat", worker=worker, runIDs=list(run_ids), **more)
        return found

    async def waiting_beat(
        self, *run_ids: int, worker: str = "w", timeout: int = LONG_MS, **more: Any
    ) -> Talk:
        """Send a Heartbeat that waits; return its connection."""
        body = {"worker": worker, "runIDs": list(run_ids), "connection": "wait", "timeout": timeout, **more}
        return await self.posted("Heartbeat", **body)

    async def posted(self, command: str, **body: Any) -> Talk:
        """Send a command over HTTP on a connection of its own, whose answer the test reads later."""
        talk = await self.connect()
        talk.send(post(command, body))
        return talk

    async def asking(self, name: str, worker: str = "w", **more: Any) -> Talk:
        """Let a worker's GetJob wait; return its connection."""
        before = self.server.dispatcher.waiting
        talk = await self.connect()
        talk.send(request("GetJob", name=name, worker=worker, Connection="wait", timeout=LONG_MS, **more))
        await self.waiting(before + 1)
        await self.settle()  # that it waits is known before its transaction has ended
        return talk

    # --- what there is ------------------------------------------------------------------------------------

    async def select(self, query: str) -> list[dict[str, Any]]:
        """Return rows of the database by name of column."""
        await self.settle()
        reply = await self.ask("Query", query=f"{query};", format="json")
        assert reply.code == 200, reply
        return [dict(zip(reply.json["headers"], row, strict=True)) for row in reply.json["rows"]]

    async def state(self, job_id: int) -> str:
        """Return a job's state, `(deleted)` where it is gone."""
        found = await self.select(f"SELECT state FROM jobs WHERE jobID = {job_id}")
        return str(found[0]["state"]) if found else "(deleted)"

    async def due(self, job_id: int) -> str:
        """Return a job's nextRun without milliseconds that are zero."""
        return str((await self.row(job_id))["nextRun"]).removesuffix(".000")

    async def options(self, job_id: int) -> dict[str, Any]:
        """Return a job's column ``options``, read."""
        return dict((await self.row(job_id))["options"])

    async def memory(self, job_id: int) -> dict[str, Any]:
        """Return a job's column ``memory``, read."""
        return dict((await self.row(job_id))["memory"])

    async def run(self, run_id: int) -> dict[str, Any]:
        """Return a run as QueryRun shows it."""
        await self.settle()
        return dict(await self.ok("QueryRun", runID=run_id))

    async def runs(self, **which: Any) -> list[dict[str, Any]]:
        """Return runs as ListRuns shows them, the newest first."""
        await self.settle()
        return list((await self.ok("ListRuns", **which))["runs"])

    async def ticks(self, job_id: int) -> list[tuple[str, str, int, str, str]]:
        """Return the ledger, the oldest first: tick, until, count, outcome, reason."""
        await self.settle()
        rows = (await self.ok("ListTicks", jobID=job_id, limit=1000))["ticks"]
        return [(r["tick"], r["until"], r["count"], r["outcome"], r["reason"]) for r in reversed(rows)]

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of these kinds."""
        await self.settle()
        await self.known()
        found = (await self.ok("Events", limit=1000))["events"]
        return [event for event in found if not kinds or event["kind"] in kinds]

    async def detail(self, command: str, **body: Any) -> str:
        """Do a command that must be refused; return the sentence of the refusal."""
        reply: Reply = await self.http(command, body)
        assert reply.code >= 400, reply
        return str(reply.json["detail"])


def moment(text: str) -> datetime:
    """Return the moment of a timestamp."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def timestamp(at: datetime) -> str:
    """Return a moment as the wire has it."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def between(text: str, low: float, high: float, since: datetime) -> bool:
    """Tell whether a timestamp is ``low`` to ``high`` seconds after a moment, to a millisecond."""
    return low - 0.001 <= (moment(text) - since).total_seconds() <= high + 0.001


async def failed_once_more(site: Site, name: str = "a", **more: object) -> str:
    """Wait until the job is due, take it and fail it; return its new nextRun."""
    (row,) = await site.select(f"SELECT jobID, nextRun FROM jobs WHERE name = '{name}'")
    if row["nextRun"] > site.now:
        await site.until_time(row["nextRun"])
    await site.fail(await site.take(name), **more)
    return str((await site.row(row["jobID"]))["nextRun"])


__all__ = ["LONG_MS", "START", "Site", "between", "failed_once_more", "moment", "timestamp"]
