"""A raw server with one list of jobs, for tests of the client and of the worker.

It knows as much of the protocol as they need, keeps every request it got, and fails where a test asks it to.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from bedrockjobs.base import jsontext

DEADLINE_S = 60.0
"""How long a test waits for something that should happen at once."""

ENDINGS = ("FinishJob", "RetryJob", "FailJob")

TAKING = ("thenGet", "worker", "heartbeat", "host", "pid", "accepts", "getMockedJobs")
"""Parameters of the end of a run that say which job is to come next."""


@dataclass
class Request:
    """What a client sent."""

    verb: str
    text: str
    head: tuple[str, ...] = ()
    """The lines of its head."""

    @property
    def given(self) -> dict[str, object]:
        """Return the parameters, without those of a take that is asked for beside."""
        found = json.loads(self.text)
        return {key: found[key] for key in found if self.verb not in ENDINGS or key not in TAKING}

    @property
    def then_get(self) -> dict[str, object]:
        """Return the parameters of the take that is asked for with the end of a run."""
        found = json.loads(self.text)
        return {key: found[key] for key in found if key in TAKING}

    def raw(self, name: str) -> str:
        """Return one parameter as it was spelled."""
        return jsontext.members(self.text)[name]


@dataclass
class FakeServer:
    """Start it with ``async with``; ``address`` is where it listens, also after ``restart``."""

    requests: list[Request] = field(default_factory=list)
    refusals: dict[str, deque[str]] = field(default_factory=dict)
    """Heads of answers (``503 Service Unavailable``) to give to a verb instead of doing it."""
    lost: dict[str, int] = field(default_factory=dict)
    """How many answers to a verb to lose: it is done, and the connection is closed."""
    silent: set[str] = field(default_factory=set)
    """Verbs that are never answered."""
    answers: dict[str, bytes] = field(default_factory=dict)
    """Whole answers, as bytes, to a verb."""
    answers_at_the_end: bool = False
    """Whether a wait that the client ends is answered with what is there: it crossed with the answer."""
    waits: int = 0
    """How many requests for jobs had to wait."""
    asking: int = 0
    """How many requests for jobs wait at the moment."""
    beats_waiting: int = 0
    """How many Heartbeats wait at the moment."""
    drained: bool = False
    tls: ssl.SSLContext | None = None
    """What handshakes need, where connections begin with one."""
    output: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """The lines of each run, with their streams."""
    connections: int = 0
    _stops: dict[int, str] = field(default_factory=dict)
    _told: set[tuple[int, str]] = field(default_factory=set)
    _told_drained: bool = False
    _options: dict[int, str] = field(default_factory=dict)
    _queue: list[tuple[int, str, str]] = field(default_factory=list)
    _running: dict[int, int] = field(default_factory=dict)
    _ids: int = 0
    _port: int = 0

    async def __aenter__(self) -> FakeServer:
        self._change = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, limit=64 * 2**20, ssl=self.tls
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection; jobs stay."""
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self.until(lambda: not self._writers)

    @property
    def open_connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._writers)

    @property
    def address(self) -> str:
        """Return the address to connect to."""
        return f"{'' if self.tls is None else 'https://'}127.0.0.1:{self._port}"

    async def add(self, name: str = "Foo", data: str = "{}", **options: object) -> int:
        """Queue a job with options by wire name and return its id."""
        async with self._change:
            self._ids += 1
            self._options[self._ids] = "".join(
                f",{json.dumps(key)}:{json.dumps(options[key])}" for key in options
            )
            self._queue.append((self._ids, name, data))
            self._change.notify_all()
        return self._ids

    async def stop_run(self, run_id: int, signal: str) -> None:
        """Want a run stopped by ``TERM``, ``KILL``, or as ``LOST``: then it is another's."""
        async with self._change:
            if signal == "LOST":
                self._running = {job: run for job, run in self._running.items() if run != run_id}
            else:
                self._stops[run_id] = signal
            self._change.notify_all()

    async def drain(self, drained: bool = True) -> None:
        """Want the worker quiet, or no longer."""
        async with self._change:
            self.drained = drained
            self._change.notify_all()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; fails after ``DEADLINE_S``."""
        async with asyncio.timeout(DEADLINE_S), self._change:
            await self._change.wait_for(holds)

    def of(self, *verbs: str) -> list[Request]:
        """Return the requests with these verbs."""
        return [request for request in self.requests if request.verb in verbs]

    @property
    def reports(self) -> list[Request]:
        """Return the requests that ended runs; one that ended several counts as one for each."""
        found = []
        for request in self.of(*ENDINGS, "FinishJobs"):
            if request.verb == "FinishJobs":
                ends = jsontext.elements(request.raw("jobs"))
                found += [Request("FinishJob", text, request.head) for text in ends]
            else:
                found.append(request)
        return found

    async def report(self, count: int = 1) -> Request:
        """Wait for so many reports and return the last of them."""
        await self.until(lambda: len(self.reports) >= count)
        return self.reports[count - 1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    verb, length = (
                        head.split("\r\n")[0],
                        int(head.split("Content-Length: ")[1].split("\r\n")[0]),
                    )
                    lines = tuple(head.rstrip().split("\r\n"))
                    request = Request(verb, (await reader.readexactly(length)).decode(), lines)
                    await self._note(request)
                    if verb in self.silent:
                        await reader.read(1)
                        break
                    answer = await self._answer(request, reader)
                    if self.lost.get(verb):
                        self.lost[verb] -= 1
                        break
                    writer.write(answer)
                    await writer.drain()
                    if b"Connection: close" in answer:
                        break
        finally:
            writer.close()
            async with self._change:
                self._writers.discard(writer)
                self._change.notify_all()

    async def _note(self, request: Request) -> None:
        async with self._change:
            self.requests.append(request)
            self._change.notify_all()

    async def _answer(self, request: Request, reader: asyncio.StreamReader) -> bytes:
        if self.refusals.get(request.verb):
            return f"{self.refusals[request.verb].popleft()}\r\nContent-Length: 0\r\n\r\n".encode()
        if request.verb in self.answers:
            return self.answers[request.verb]
        if request.verb == "GetJobs":
            return await self._get_jobs(request, reader)
        if request.verb in ENDINGS:
            async with self._change:
                self._change.notify_all()
                return self._end(request)
        if request.verb == "FinishJobs":
            async with self._change:
                self._change.notify_all()
                return self._end_several(request)
        if request.verb == "Heartbeat":
            return await self._heartbeat(request, reader)
        if request.verb == "AppendOutput":
            return self._append(request)
        if request.verb == "SyncSchedules":
            return _ok('{"added":["a"],"changed":[],"removed":[],"unchanged":[]}')
        if request.verb == "CreateJob":
            given = request.given
            job_id = await self.add(str(given["name"]), jsontext.members(request.text).get("data", "{}"))
            return _ok(f'{{"jobID":{job_id}}}')
        return _ok("")

    async def _get_jobs(self, request: Request, reader: asyncio.StreamReader) -> bytes:
        given = request.given
        found = self._take(given)
        if not found and given.get("connection") == "wait":
            ended = asyncio.ensure_future(reader.read(1))
            woken = asyncio.ensure_future(self._wait_for(given))
            await asyncio.wait((ended, woken), return_when=asyncio.FIRST_COMPLETED)
            for waiter in (ended, woken):
                waiter.cancel()
            await asyncio.gather(ended, woken, return_exceptions=True)
            left = not ended.cancelled()
            found = [] if left and not self.answers_at_the_end else self._take(given)
        if not found:
            return b"404 No job found\r\nContent-Length: 0\r\n\r\n"
        return _ok(f'{{"jobs":[{",".join(found)}]}}')

    async def _wait_for(self, given: dict[str, object]) -> None:
        async with self._change:
            self.waits += 1
            self.asking += 1
            self._change.notify_all()
            try:
                await self._change.wait_for(lambda: any(self._matches(given, job) for job in self._queue))
            finally:
                self.asking -= 1
                self._change.notify_all()

    @staticmethod
    def _matches(given: dict[str, object], job: tuple[int, str, str]) -> bool:
        names = given["names"]
        assert isinstance(names, list)
        return any(fnmatchcase(job[1], pattern) for pattern in names)

    def _take(self, given: dict[str, object]) -> list[str]:
        taken = [job for job in self._queue if self._matches(given, job)][: int(str(given["numResults"]))]
        found = []
        for job in taken:
            self._queue.remove(job)
            job_id, name, data = job
            run_id = 100 + job_id
            self._running[job_id] = run_id
            found.append(
                f'{{"created":"2026-11-21 03:29:56","data":{data},"jobID":{job_id},"lastRun":"",'
                f'"name":{json.dumps(name)},"nextRun":"2026-11-21 03:29:56.332","priority":500,"repeat":"",'
                f'"retryAfter":"","attempt":1,"runID":{run_id}{self._options.get(job_id, "")}}}'
            )
        return found

    async def _heartbeat(self, request: Request, reader: asyncio.StreamReader) -> bytes:
        given = request.given
        run_ids = given["runIDs"]
        assert isinstance(run_ids, list)

        def stops() -> set[tuple[int, str]]:
            lost = {(run, "LOST") for run in run_ids if run not in self._running.values()}
            wanted = {(run, how) for run, how in self._stops.items() if run in run_ids}
            return lost | {(run, how) for run, how in wanted if (run, "LOST") not in lost}

        if given.get("connection") == "wait":
            ended = asyncio.ensure_future(reader.read(1))
            news = asyncio.ensure_future(self._news(stops))
            await asyncio.wait(
                (ended, news), timeout=int(str(given["timeout"])) / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            for waiter in (ended, news):
                waiter.cancel()
            await asyncio.gather(ended, news, return_exceptions=True)
        found = stops()
        self._told |= found
        self._told_drained = self.drained
        stop = [{"runID": run, "signal": how} for run, how in sorted(found)]
        return _ok(json.dumps({"stop": stop, "quiet": self.drained}))

    async def _news(self, stops: Callable[[], set[tuple[int, str]]]) -> None:
        async with self._change:
            self.beats_waiting += 1
            self._change.notify_all()
            try:
                await self._change.wait_for(
                    lambda: stops() - self._told or self.drained != self._told_drained
                )
            finally:
                self.beats_waiting -= 1

    def _append(self, request: Request) -> bytes:
        given = request.given
        run_id, seq, lines = int(str(given["runID"])), int(str(given["seq"])), given["lines"]
        assert isinstance(lines, list)
        if run_id not in self._running.values():
            return b"405 Run is over\r\nContent-Length: 0\r\n\r\n"
        kept = self.output.setdefault(run_id, [])
        if seq > len(kept) + 1:
            detail = f"seq: expected {len(kept) + 1}"
            return f"405 Gap in output\r\nerror: {detail}\r\nContent-Length: 0\r\n\r\n".encode()
        for line in lines[len(kept) + 1 - seq :]:
            kept.append(("out", line) if isinstance(line, str) else (line["stream"], line["line"]))
        return _ok(json.dumps({"seq": len(kept)}))

    def _end_several(self, request: Request) -> bytes:
        results = []
        for text in jsontext.elements(request.raw("jobs")):
            end, refusals = Request("FinishJob", text), self.refusals.get("FinishJob")
            head = refusals.popleft() if refusals else self._end(end).decode().partition("\r\n")[0]
            code, _, reason = head.partition(" ")
            results.append({"jobID": end.given["jobID"], "code": int(code), "reason": reason})
        found = f'"results":{json.dumps(results)}'
        if "thenGet" in request.then_get:
            listed = str(request.then_get["thenGet"]).split(",")
            jobs = self._take({"names": listed, "numResults": json.loads(request.text)["numResults"]})
            found += f',"jobs":[{",".join(jobs)}]'
        return _ok(f"{{{found}}}")

    def _end(self, request: Request) -> bytes:
        given = request.given
        run_id = self._running.get(int(str(given["jobID"])))
        if run_id is None:
            return b"404 No job with this jobID\r\nContent-Length: 0\r\n\r\n"
        if given.get("runID") != run_id:
            return b"405 Run is over\r\nContent-Length: 0\r\n\r\n"
        del self._running[int(str(given["jobID"]))]
        if "thenGet" not in request.then_get:
            return _ok("")
        listed = str(request.then_get["thenGet"]).split(",")
        return _ok(f'{{"job":{"".join(self._take({"names": listed, "numResults": 1})) or "null"}}}')


def _ok(body: str) -> bytes:
    return b"200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body.encode()), body.encode())
