"""Producers and workers that use a server which may die at any moment, and record what they see.

They use every part of the queue: families, repeats, unique jobs, retryAfter, thenGet, batches, retries and
failures. ``tests.history`` verifies the records.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.history import Ledger
from tests.reliability.wire import Answer, Cut, Wire

CLIENTS = 8
"""Producers, and as many workers."""

BACKLOG_MAX = 150
"""Jobs not yet ended above which producers pause: each job then lives through a few kills at most."""

SILENCE_S = 15.0
"""Time in which every request of the load must be answered or cut: far beyond the longest wait."""

PIPELINED = 5
"""Requests that a producer sometimes sends before it reads the first answer."""

LAST_WAIT_MS = 300
"""How long a worker that empties the queue waits for a job."""

NAMES = "abcdef"
PATTERNS = ("*", "*", "*", "[!u]*", "job/*", "job/a,job/b,job/c,child/x,parent/p,lease/l,again/r,unique/u")


class Load:
    """The clients of one test."""

    def __init__(
        self,
        ledger: Ledger,
        seed: int,
        leaving: float = 0.0,
        *,
        now: Callable[[], float] = time.monotonic,
        connect: Callable[[int], Awaitable[Wire]] = Wire.connect,
        leases: bool = True,
    ) -> None:
        """Prepare; ``seed`` decides what clients do, ``leaving`` is the share of takers that do not wait.

        ``now`` and ``connect`` are of another world in a simulation; ``leases`` tells whether there are jobs
        with a retryAfter.
        """
        self.ledger = ledger
        self.now = now
        self.connect = connect
        self._leases = leases
        self.leaving = leaving
        """Share of takers that are gone before their answer comes."""
        self._dice = random.Random(seed)
        self._up = asyncio.Event()
        self.port = 0
        """Where the server is, or was."""
        self._tokens = 0
        self._backlog = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.era = 0
        """How often the server was started; unique names change with it."""
        self.ending = False
        """Set when repeating jobs are to end."""
        self.stopping = False
        """Set when the clients are to end."""

    def server_is_at(self, port: int) -> None:
        """Let the clients connect to a server."""
        self.port = port
        self.era += 1
        self._up.set()

    def server_is_gone(self) -> None:
        """Let the clients wait for another server."""
        self._up.clear()
        self.ledger.killed(self.now())

    def start(self, *, producers: int = CLIENTS, workers: int = CLIENTS) -> None:
        """Start clients."""
        for number in range(producers):
            self._tasks.append(asyncio.create_task(self._produce(_Client(self, f"producer {number}"))))
        for number in range(workers):
            self._tasks.append(asyncio.create_task(self._work(_Client(self, f"worker {number}"))))

    @property
    def busy(self) -> bool:
        """Return whether clients are at work."""
        return bool(self._tasks)

    def fail_if_a_client_did(self) -> None:
        """Raise what ended a client that should still be at work."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Stop each client after it has finished its current work."""
        self.stopping = True
        await asyncio.gather(*self._tasks)
        self._tasks.clear()
        self.stopping = False

    # --- producers ---------------------------------------------------------------------------------------

    def _token(self, letter: str) -> str:
        self._tokens += 1
        return f"{letter}{self._tokens}"

    def _job(self) -> dict[str, Any]:
        """Return the parameters of a new job."""
        dice, kind = self._dice, self._dice.random()
        name = f"job/{dice.choice(NAMES)}"
        spec: dict[str, Any] = {"name": name, "data": {"token": self._token("j")}}
        if kind < 0.08:
            spec |= {"name": "parent/p", "data": {"token": self._token("p")}}
        elif kind < 0.13 and self._leases:
            spec |= {"name": "lease/l", "data": {"token": self._token("l")}, "retryAfter": "+1 SECONDS"}
        elif kind < 0.16:
            spec |= {"name": "again/r", "data": {"token": self._token("r")}, "repeat": "FINISHED, +1 SECONDS"}
        elif kind < 0.24:
            token = f"u{self.era}-{dice.randrange(3)}"
            spec |= {"name": f"unique/{token}", "data": {"token": token}, "unique": True}
        if dice.random() < 0.3:
            spec["jobPriority"] = dice.choice((0, 250, 750, 1000))
        return spec

    async def _produce(self, client: _Client) -> None:
        while not self.stopping:
            if self._backlog > BACKLOG_MAX:
                await asyncio.sleep(0.005)
                continue
            try:
                if self._dice.random() < 0.15:
                    jobs = [self._job() for _ in range(self._dice.randint(2, 6))]
                    jobs = [job for job in jobs if "unique" not in job]
                    await client.ask("CreateJobs", {"jobs": jobs})
                    self._backlog += len(jobs)
                elif self._dice.random() < 0.1:
                    jobs = [self._job() for _ in range(PIPELINED)]
                    await client.ask_all([("CreateJob", job) for job in jobs])
                    self._backlog += len(jobs)
                else:
                    await client.ask("CreateJob", self._job())
                    self._backlog += 1
            except Cut:
                continue

    # --- workers -----------------------------------------------------------------------------------------

    async def _work(self, client: _Client) -> None:
        while not self.stopping:
            wish: dict[str, Any] = {"name": self._dice.choice(PATTERNS)}
            if self._dice.random() < 0.8:
                wish |= {"connection": "wait", "timeout": self._dice.choice((20, 100, 300))}
            if self.ending:
                wish |= {"connection": "wait", "timeout": LAST_WAIT_MS}  # to ask again and again costs most
            if self._dice.random() < 0.5:
                wish["worker"] = client.name
            verb = "GetJob"
            if self._dice.random() < 0.2:
                verb, wish["numResults"] = "GetJobs", self._dice.randint(1, 5)
            if self._dice.random() < self.leaving:
                await client.ask_and_leave(verb, wish, self._dice.random() * 0.01)
                continue
            try:
                answer = await client.ask(verb, wish)
            except Cut:
                continue
            if answer.code != 200:
                await asyncio.sleep(0.002)
                continue
            jobs = [answer.reply] if verb == "GetJob" else answer.reply["jobs"]
            if len(jobs) > 1 and self._dice.random() < 0.5:
                await self._finish_together(client, jobs)
                continue
            for job in jobs:
                await self._handle(client, job)

    async def _finish_together(self, client: _Client, jobs: list[dict[str, Any]]) -> None:
        ends = [{"jobID": job["jobID"]} for job in jobs]
        await self._until_answered(lambda: client.ask("FinishJobs", {"jobs": ends}))
        self._backlog -= len(ends)

    async def _handle(self, client: _Client, job: dict[str, Any] | None) -> None:
        """Work on a job, and on the jobs that the replies to its end contain."""
        while job is not None:
            if self._dice.random() < 0.3:
                await asyncio.sleep(self._dice.random() * 0.003)
            if job["retryAfter"] and self._dice.random() < 0.15:
                return  # forgotten: it comes back after its retryAfter
            if job["name"] == "parent/p" and "finishedChildJobs" not in job:
                await self._give_birth(client, job)
            job = await self._end(client, job)

    async def _give_birth(self, client: _Client, job: dict[str, Any]) -> None:
        token = job["data"]["token"]
        children = [
            {"name": "child/x", "parentJobID": job["jobID"], "data": {"token": self._token(f"{token}.c")}}
            for _ in range(self._dice.randint(1, 3))
        ]
        try:
            if self._dice.random() < 0.5:
                await client.ask("CreateJobs", {"jobs": children})
            else:
                for child in children:
                    await client.ask("CreateJob", child)
            self._backlog += len(children)
        except Cut:
            return  # whether there are children the end will show

    async def _end(self, client: _Client, job: dict[str, Any]) -> dict[str, Any] | None:
        kind, wish = self._dice.random(), {"jobID": job["jobID"]}
        if "runID" in job:
            wish["runID"] = job["runID"]
        verb = "FinishJob"
        if kind < 0.06:
            verb = "RetryJob"
        elif kind < 0.09 and not job["repeat"]:
            verb = "FailJob"
        elif job["repeat"] and (self.ending or kind < 0.5):
            wish["data"] = {**job["data"], "delete": True}
        if not self.stopping and self._dice.random() < 0.4:
            wish["thenGet"] = self._dice.choice(PATTERNS)
            if self._dice.random() < 0.5:
                wish |= {"connection": "wait", "timeout": 50}
        answer = await self._until_answered(lambda: client.ask(verb, wish), wish)
        if verb != "RetryJob":
            self._backlog -= 1
        return answer.reply["job"] if answer.code == 200 and answer.reply else None

    async def _until_answered(
        self, ask: Callable[[], Awaitable[Answer]], wish: dict[str, Any] | None = None
    ) -> Answer:
        """Repeat a request until it is answered: the end of a taken job must be reported."""
        while True:
            try:
                answer = await ask()
            except Cut:
                if wish is not None:
                    wish.pop("thenGet", None)
                continue
            if answer.code not in (500, 503):
                return answer
            await asyncio.sleep(0.01)


class _Client:
    """One client with one connection at a time."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self.name = name
        self._wire: Wire | None = None
        self._era = 0

    async def ask(self, verb: str, asked: dict[str, Any]) -> Answer:
        """Send a request, record what becomes of it, and return the answer; raises Cut."""
        return (await self.ask_all([(verb, asked)]))[0]

    async def ask_all(self, requests: list[tuple[str, dict[str, Any]]]) -> list[Answer]:
        """Send requests at once, record what becomes of each, and return the answers; raises Cut."""
        wire, load = await self._connection(), self._load
        numbers = [self._send(wire, verb, asked) for verb, asked in requests]
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(SILENCE_S):
                for number in numbers:
                    answers.append(answer := await wire.receive())
                    load.ledger.answered(number, load.now(), answer.code, answer.reply)
        except Cut:
            for number in numbers[len(answers) :]:
                load.ledger.cut(number, load.now())
            self._close()
            raise
        if answers[-1].closing:
            self._close()
        return answers

    async def ask_and_leave(self, verb: str, asked: dict[str, Any], seconds: float) -> None:
        """Send a request, and disconnect before reading its reply."""
        number = self._send(await self._connection(), verb, asked)
        await asyncio.sleep(seconds)
        self._close()
        self._load.ledger.cut(number, self._load.now())

    def _send(self, wire: Wire, verb: str, asked: dict[str, Any]) -> int:
        number = self._load.ledger.sent(self._load.now(), self.name, verb, dict(asked))
        wire.send(verb, asked)
        return number

    async def _connection(self) -> Wire:
        while self._wire is None:
            await self._load._up.wait()
            try:
                self._wire = await self._load.connect(self._load.port)
            except OSError:
                await asyncio.sleep(0.005)
        return self._wire

    def _close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
