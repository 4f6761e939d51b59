"""One server and the workers of its schedules, as processes that a test kills, and their traces.

A restarted server keeps its port, which the workers know. Each schedule has a worker whose
command writes a line at its beginning and at its end, and in between waits while a certain file exists.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from bedrockjobs.base.clock import timestamp_ms
from tests.cli import warm
from tests.history import Report
from tests.postgresql.cluster import quiet_port
from tests.reliability.accounts import Effect, effects_of, judge_schedules
from tests.reliability.servers import TOP, Forked, Server
from tests.reliability.wire import Wire

PATIENCE_S = 120.0
"""Time for anything that has to happen, on a busy machine too: a lease of a minute may have to pass."""

POLL_S = 0.02

ORPHANS_S = 10.0
"""Time after a worker's death in which everything it started is gone: two seconds, and a busy machine's."""

REST_S = 0.3
"""Minimum time until the next tick of an idle schedule, for the test's next step."""

SAID_MAX = 3_000
"""Characters of each log that an error repeats."""

BEGUN, HELD, ENDED = "begin", "held", "end"

COMMAND = """
line="$BEDROCK_NAME $BEDROCK_RUN_ID $BEDROCK_SCHEDULED_FOR"
echo "begin $line" >> "$EFFECTS/log"
if [ -e "$EFFECTS/hold-$BEDROCK_NAME" ]; then
    echo "held $line" >> "$EFFECTS/log"
    while [ -e "$EFFECTS/hold-$BEDROCK_NAME" ]; do sleep 0.02; done
fi
echo "end $line" >> "$EFFECTS/log"
"""

EVERY_SECOND = "CRON * * * * * *"


async def until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait until a condition is true."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(POLL_S)


class Worker:
    """A `bedrock-worker` process of one schedule."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        """Hold a started process."""
        self.process = process
        self.name = name

    def pid(self) -> int:
        """Return its pid."""
        return warm.forked_by(self.process.pid) or self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still is."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid(), number)

    async def ended(self) -> int:
        """Return its exit status."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)

    async def kill(self) -> None:
        """Kill it; the processes that it started must end soon."""
        family = _family(self.pid())
        self.send(signal.SIGKILL)
        await self.ended()
        await until(
            lambda: not [pid for pid, born in family.items() if _born(pid) == born],
            f"the end of what the worker {self.name} started, {sorted(family)}",
            ORPHANS_S,
        )


def _status(pid: int) -> list[str]:
    """Return the words of a process's status after its name: state, parent, …; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> str:
    """Return the start time of a running process; a zombie does not count as running."""
    words = _status(pid)
    return words[19] if words and words[0] not in "ZX" else ""


def _family(pid: int) -> dict[int, str]:
    """Return the descendants of a process with their start times."""
    parents = {int(path.name): _status(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found: dict[int, str] = {}
    news = {pid}
    while news:
        news = {child for child, words in parents.items() if words and int(words[1]) in news}
        found |= {child: parents[child][19] for child in news if parents[child][0] not in "ZX"}
    return found


class Crew:
    """A server and its workers; use it with ``async with``."""

    def __init__(self, folder: Path, *command: str) -> None:
        """Keep all files below ``folder``; ``command`` starts a server other than the usual one."""
        self.folder = folder
        self.database = folder / "jobs.db"
        self.effects = folder / "log"
        self._command = command
        self._server: Server | None = None
        self.port = quiet_port()
        self._wire: Wire | None = None
        self._asking = asyncio.Lock()
        self._workers: list[Worker] = []
        self.gone: set[int] = set()
        """Runs whose command was killed."""

    async def __aenter__(self) -> Self:
        """Enter without a server or worker."""
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Kill all remaining processes; an error then tells what they did and said."""
        if error is not None and self._server is not None:
            with suppress(Exception):
                error.add_note(f"jobs: {await self.select('SELECT * FROM jobs')}")
                error.add_note(f"runs: {await self.select('SELECT * FROM runs ORDER BY runID DESC LIMIT 5')}")
        for worker in self._workers:
            worker.send(signal.SIGCONT)
            worker.send(signal.SIGKILL)
            await worker.ended()
        if self._server is not None:
            await self.end_server(signal.SIGKILL)
        if error is not None:
            for file in (self.folder / name for name in ("log", "workers.log", "server.log")):
                if file.exists():
                    error.add_note(f"{file.name}: …{file.read_text(errors='replace')[-SAID_MAX:]}")

    # --- the server --------------------------------------------------------------------------------------

    async def serve(self, **environment: str) -> None:
        """Start a server and wait until it listens."""
        options = ["--port", str(self.port), "--wal-bytes", "0", "--ballast-bytes", "0"]
        self._server = (Server if self._command else Forked)(self.database, *options, **environment)
        if self._command:
            self._server._command[1:4] = self._command
        await self._server.__aenter__()
        await self._server.listening()

    async def kill_server(self) -> None:
        """Kill the server."""
        await self.end_server(signal.SIGKILL)

    async def end_server(self, number: signal.Signals | None = None) -> int:
        """Send the server a signal, if any, and return its exit status and log."""
        assert self._server is not None
        if number is not None:
            self._server.send(number)
        status, log = await self._server.ended()
        with (self.folder / "server.log").open("a") as file:
            file.write(log)
        await self._server.__aexit__(None)
        self._server, self._wire = None, None
        return status

    async def ask(self, verb: str, **asked: Any) -> Any:
        """Send a request to the server, which must succeed."""
        async with self._asking, asyncio.timeout(PATIENCE_S):
            if self._wire is None:
                self._wire = await Wire.connect(self.port)
            try:
                answer = await self._wire.ask(verb, **asked)
            except asyncio.CancelledError:  # its answer would be taken for the next one's
                self._wire.close()
                self._wire = None
                raise
        assert answer.code == 200, answer
        return answer.reply

    async def select(self, query: str) -> list[list[Any]]:
        """Return rows of the database by a Query."""
        rows: list[list[Any]] = (await self.ask("Query", query=f"{query};", format="json"))["rows"]
        return rows

    async def schedule(self, name: str, lease_s: int) -> None:
        """Create a schedule that runs every second and catches up each tick."""
        await self.ask(
            "CreateJob",
            name=name,
            repeat=EVERY_SECOND,
            catchup="all",
            overlap="queue",
            lease=lease_s,
            keepSuccess=10_000,
            keepFail=10_000,
        )

    # --- workers -----------------------------------------------------------------------------------------

    async def work(self, *names: str, slots: int = 1) -> Worker:
        """Start a worker for some schedules."""
        wanted = [word for name in names for word in ("--name", name)]
        with (self.folder / "workers.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                warm.program("bedrock-worker"),
                *wanted,
                "--as-root",
                "--spool",
                str(self.folder / "spool"),
                "--server",
                f"127.0.0.1:{self.port}",
                "--concurrency",
                str(slots),
                "--env",
                f"EFFECTS={self.folder}",
                "--",
                shutil.which("sh") or "/bin/sh",
                "-c",
                COMMAND,
                cwd=TOP,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        worker = Worker(process, names[0])
        self._workers.append(worker)
        return worker

    def hold(self, name: str) -> None:
        """From now on, block the end of a schedule's commands."""
        (self.folder / f"hold-{name}").touch()

    def release(self, name: str) -> None:
        """Let blocked commands end."""
        (self.folder / f"hold-{name}").unlink(missing_ok=True)

    def seen(self, step: str, name: str) -> list[Effect]:
        """Return the records of a schedule's commands."""
        return [each for each in effects_of(self.effects) if (each.step, each.name) == (step, name)]

    async def held(self, name: str) -> int:
        """Wait until a blocked command has begun; return its run."""
        found: list[int] = []

        def one_is() -> bool:
            over = {effect.run_id for effect in self.seen(ENDED, name)} | self.gone
            found[:] = [effect.run_id for effect in self.seen(HELD, name) if effect.run_id not in over]
            return bool(found)

        self.hold(name)
        await until(one_is, f"a command of {name} is held")
        return found[-1]

    async def effect(self, step: str, run_id: int) -> None:
        """Wait until the command of a run has written a record."""
        await until(
            lambda: any((each.step, each.run_id) == (step, run_id) for each in effects_of(self.effects)),
            f"run {run_id} writes {step}",
        )

    async def more(self, name: str, count: int = 1) -> None:
        """Wait until further commands of a schedule have ended."""
        before = len(self.seen(ENDED, name))
        await until(lambda: len(self.seen(ENDED, name)) >= before + count, f"{count} more runs of {name}")

    async def status(self, run_id: int) -> str:
        """Return the status of a run."""
        rows = await self.select(f"SELECT status FROM runs WHERE runID = {run_id}")
        return str(rows[0][0]) if rows else "(never was)"

    async def open_run(self, name: str) -> int:
        """Wait until a schedule has a run; return it."""
        began = time.monotonic()
        while not (
            rows := await self.select(f"SELECT runID FROM runs WHERE status = 'running' AND name = '{name}'")
        ):
            assert time.monotonic() - began < PATIENCE_S, f"{name} has no run"
            await asyncio.sleep(POLL_S)
        return int(rows[0][0])

    async def over(self, run_id: int) -> str:
        """Wait until a run has ended; return its status."""
        began = time.monotonic()
        while (status := await self.status(run_id)) == "running":
            assert time.monotonic() - began < PATIENCE_S, f"run {run_id} does not end"
            await asyncio.sleep(POLL_S)
        return status

    async def at_rest(self, name: str) -> None:
        """Wait until a schedule has no run and is not due for ``REST_S``."""
        began = time.monotonic()
        while True:
            rows = await self.select(f"SELECT nextRun FROM jobs WHERE name = '{name}' AND state = 'QUEUED'")
            if rows and rows[0][0] > timestamp_ms(datetime.now(UTC) + timedelta(seconds=REST_S)):
                return
            assert time.monotonic() - began < PATIENCE_S, f"{name} is never at rest"
            await asyncio.sleep(POLL_S)

    async def caught_up(self, moment: str) -> None:
        """Wait until every schedule has passed a given time."""
        began = time.monotonic()
        while True:
            rows = await self.select(
                f"SELECT count(*) FROM jobs WHERE nextRun <= '{moment}' OR state <> 'QUEUED'"
            )
            if not rows[0][0]:
                return
            assert time.monotonic() - began < PATIENCE_S, f"{rows[0][0]} schedules do not get past {moment}"
            await asyncio.sleep(POLL_S)

    async def now(self) -> str:
        """Return the server's time."""
        return str((await self.ask("Status"))["now"])

    # --- the end -----------------------------------------------------------------------------------------

    async def account(self) -> Report:
        """Wait until all schedules have passed the present time, shut down cleanly, and verify."""
        await self.caught_up(await self.now())
        await self.ask("PauseJobs", name="*")  # or a worker may get the job that it just returned
        await self.caught_up("")
        await self.close()
        report = judge_schedules(self.database, self.effects)
        left = self.left_over()
        if left:
            report.fault("orphan", f"processes {left} outlived their workers")
        return report

    async def close(self) -> None:
        """Shut down the workers, then the server."""
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        for worker in self._workers:
            await worker.ended()
        assert await self.end_server(signal.SIGTERM) == 0

    def left_over(self) -> list[int]:
        """Return the commands that are still running."""
        mark, found = f"EFFECTS={self.folder}".encode(), []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (path / "environ").read_bytes().split(b"\0") and _born(int(path.name)):
                    found.append(int(path.name))
        return found


__all__ = ["BEGUN", "ENDED", "HELD", "Crew", "Worker", "until"]
