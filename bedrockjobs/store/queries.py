"""The server's end of the processes that run the SQL of Query: started beforehand, one Query each at a time.

What such a process does is in ``query_process``. One that is late is killed, one that ended for whatever
reason is replaced at once, and Query is refused where none can be started. Nothing here knows SQL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bedrockjobs.base.config import JSON_DEPTH_MAX, QUERY_MEMORY_BYTES_MAX, QUERY_OVERTIME_S, QUERY_PROCESSES
from bedrockjobs.base.errors import BadQuery, CommandError, TimedOut, TooMany, Unavailable, error_for
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.faults import StoreDamaged
from bedrockjobs.store.query_process import Limits

log = logging.getLogger(__name__)

START_S = 30.0
"""Time a process may take to be ready: a hundred times what it takes, for a machine in trouble."""

REAP_S = 1.0
"""Time a killed process may take to be gone; one that waits for a dead disk is left alone."""

PAUSE_S, PAUSE_S_MAX = 0.1, 30.0
"""Time until a process that ended unasked is replaced, doubled each time; and the longest."""

ROWS_IN_MEMORY = 8
"""How many times an answer may be in memory: as rows, as texts, as one text, as bytes."""

_PACKAGES = str(Path(__file__).parents[2])
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from bedrockjobs.store.query_process import main; main()"
)


class _Ended(Exception):
    """The process ended before it answered."""


class _Process:
    """One process, from its start to its end."""

    def __init__(self, limits: Limits) -> None:
        """Start it; raises OSError."""
        self._limits = limits
        self._ours, its = socket.socketpair()
        try:
            with its:
                self._child = subprocess.Popen(  # noqa: S603  our own module
                    [sys.executable, "-I", "-S", "-c", _PROGRAM, _PACKAGES],
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            self._ours.close()
            raise
        self._writer: asyncio.StreamWriter | None = None
        self._reply: asyncio.Future[tuple[dict[str, Any], str]] | None = None
        self.was_asked = False
        """Whether it has ever had a Query."""
        self.gone = False
        """Whether it can be asked no more."""

    async def serve(self, on_ready: Callable[[_Process], object]) -> str:
        """Hear what it says until it ends; return how. ``on_ready`` is called once it can be asked."""
        late = asyncio.get_running_loop().call_later(START_S, self.kill)
        try:
            reader, self._writer = await asyncio.open_unix_connection(sock=self._ours)
            self._send(self._limits._asdict())
            await self._hear(reader)
            late.cancel()
            on_ready(self)
            while True:
                reply = await self._hear(reader)
                if self._reply is None or self._reply.done():
                    break  # nobody asked
                self._reply.set_result(reply)
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            pass  # it ended, or says what nobody understands
        finally:
            late.cancel()
            self.kill()
            if self._writer is not None:
                self._writer.close()
        how = await asyncio.to_thread(self._wait)
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(_Ended(how))
        return how

    async def _hear(self, reader: asyncio.StreamReader) -> tuple[dict[str, Any], str]:
        head = json.loads(await reader.readline())
        if not 0 <= head["bytes"] <= self._limits.bytes:
            raise ValueError(head)
        return head, (await reader.readexactly(head["bytes"])).decode()

    def _wait(self) -> str:
        """Wait until it is gone; return how it ended, as the name of its signal where there was one."""
        try:
            status = self._child.wait(REAP_S)
        except subprocess.TimeoutExpired:
            return "not yet, though it was killed"
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    async def ask(self, sql: str, form: str) -> tuple[dict[str, Any], str]:
        """Return the head of an answer, and rows as text; raises _Ended, TimeoutError where it was killed."""
        self._reply = asyncio.get_running_loop().create_future()
        self.was_asked = True
        self._send([sql, form])
        try:
            async with asyncio.timeout(self._limits.seconds_max + QUERY_OVERTIME_S):
                head, body = await self._reply
        except TimeoutError:
            self.kill()
            raise
        self.gone = self.gone or "leaves" in head
        return head, body

    def _send(self, message: Any) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\n")

    def kill(self) -> None:
        """End it, if it still runs."""
        self.gone = True
        with suppress(ProcessLookupError):
            self._child.kill()


class Queries:
    """The processes of one server, and the Queries that wait for one."""

    def __init__(self, database: Path, settings: Settings, on_damage: Callable[[Exception], object]) -> None:
        """Read ``database``; ``open`` before use. ``on_damage`` is told where the file turns out damaged."""
        self._limits = Limits(
            database=f"{database.absolute().as_uri()}?mode=ro",
            seconds=settings.query_s,
            seconds_max=settings.query_s + QUERY_OVERTIME_S,
            memory_bytes=QUERY_MEMORY_BYTES_MAX + ROWS_IN_MEMORY * settings.query_bytes_max,
            rows=settings.query_rows_max,
            bytes=settings.query_bytes_max,
            levels=JSON_DEPTH_MAX,
        )
        self._waiting_max = settings.query_waiting_max
        self._on_damage = on_damage
        self._keepers: list[asyncio.Task[None]] = []
        self._running: set[_Process] = set()
        self._idle: deque[_Process] = deque()
        self._waiting: deque[asyncio.Future[_Process]] = deque()
        self._refusal: CommandError | None = None
        self._closing = asyncio.Event()
        self.pending = 0
        """Queries that run or wait."""

    def open(self) -> None:
        """Start the processes; a Query waits until one is ready."""
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(QUERY_PROCESSES)]

    def refuse(self) -> None:
        """Begin nothing more, and let those who wait go: the server stops. What runs may end."""
        self._closing.set()
        self._turn_away(Unavailable("Server is stopping", "try again in a moment"))

    async def close(self) -> None:
        """End the processes."""
        self.refuse()
        for process in self._running:
            process.kill()
        await asyncio.gather(*self._keepers)

    async def run(self, sql: str, form: str) -> str:
        """Run one SELECT; return its rows as text.

        Raises CommandError: BadArguments, BadQuery, TimedOut where it was too late, TooMany where many wait,
        Unavailable where no process can be had. A Query whose caller is cancelled keeps its place until it
        has ended, so that the limits go on to count.
        """
        if self._refusal is not None:
            raise self._refusal
        if self.pending >= self._waiting_max:
            raise TooMany("Too many queries", f"expected at most {self._waiting_max} at once")
        self.pending += 1
        return await asyncio.shield(self._in_turn(sql, form))

    async def _in_turn(self, sql: str, form: str) -> str:
        try:
            process = await self._next()
            try:
                head, body = await process.ask(sql, form)
            finally:
                if not process.gone:
                    self._free(process)
        except TimeoutError:
            raise self._late() from None
        except _Ended as ended:
            if str(ended) == signal.SIGALRM.name:
                raise self._late() from None
            raise BadQuery("Query aborted", f"query: the process that ran it ended: {ended}") from None
        finally:
            self.pending -= 1
        if "damage" in head:
            self._on_damage(StoreDamaged(head["damage"]))
        if "refused" in head:
            raise error_for(*head["refused"])
        return body

    def _late(self) -> TimedOut:
        words = f"query: it took longer than {self._limits.seconds:g} s, and its process was ended"
        return TimedOut("Timeout", words)

    # --- whose turn it is --------------------------------------------------------------------------------

    async def _next(self) -> _Process:
        while True:
            if self._idle:
                process = self._idle.popleft()
            else:
                turn: asyncio.Future[_Process] = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                process = await turn
            if not process.gone:
                return process

    def _free(self, process: _Process) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(process)
        else:
            self._idle.append(process)

    def _turn_away(self, refusal: CommandError) -> None:
        """Refuse those who wait, and those who come."""
        self._refusal = refusal
        while self._waiting:
            self._waiting.popleft().set_exception(refusal)

    # --- keeping them ------------------------------------------------------------------------------------

    def _ready(self, process: _Process) -> None:
        if not self._closing.is_set():
            self._refusal = None
            self._free(process)

    async def _keep(self) -> None:
        """Keep one process running."""
        pause_s = 0.0
        while not self._closing.is_set():
            unasked, how = True, ""
            try:
                process = _Process(self._limits)
            except OSError as error:
                how = str(error)
            else:
                self._running.add(process)
                how = await process.serve(self._ready)
                self._running.discard(process)
                unasked = not process.was_asked
            if self._closing.is_set():
                return
            if not unasked:
                pause_s = 0.0
                log.info("a process of Query ended (%s) and is replaced", how)
                continue
            pause_s = min(max(pause_s * 2, PAUSE_S), PAUSE_S_MAX)
            log.warning("a process of Query ended unasked (%s); another is started in %g s", how, pause_s)
            if not self._running:
                self._turn_away(Unavailable("No process for Query", f"none can be started: {how}"))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)
