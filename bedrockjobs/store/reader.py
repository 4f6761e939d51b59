"""Reads outside of the writer: the views of ``views.sql`` on sandboxed connections, and Query."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite
from typing_extensions import override

from bedrockjobs.base.config import JSON_DEPTH_MAX, QUERY_MEMORY_BYTES_MAX, QUERY_OVERTIME_S, QUERY_PROCESSES
from bedrockjobs.base.errors import BadQuery, CommandError, TimedOut, Unavailable, error_for
from bedrockjobs.base.priority import give_way
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.base import Page, Parameters, PendingReads, Reader, StoreDamaged
from bedrockjobs.store.sandbox import Limits, SandboxedConnection, is_damage, refusal
from bedrockjobs.store.sqlite_unit import is_undecodable, replacing
from bedrockjobs.store.statements import METRICS, QUEUES, VIEWS

# Query runs in a pool of processes, each of which runs the SQL of one Query at a time; see ``sandbox``.
#
# A process that exceeds its time is killed, a process that exits is replaced, and Query is refused if no
# process can be started.


PAUSE_S, PAUSE_S_MAX = 0.1, 30.0
"""First and maximum delay in seconds before an idle process that exited is replaced."""

_PACKAGES = str(Path(__file__).parents[2])
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from bedrockjobs.store.sandbox import main; main()"


class _Ended(Exception):
    """The process exited before it answered."""


class _Process:
    """One process of the pool."""

    def __init__(self, limits: Limits) -> None:
        """Start the process; raises OSError."""
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
        """Whether the process has ever run a Query."""
        self.has_ended = False
        """Whether the process can no longer be used."""

    async def serve(self, on_ready: Callable[[_Process], object]) -> str:
        """Read the answers of the process until it exits; return how it exited.

        ``on_ready`` is called once the process can run a Query.
        """
        # A hundred times the usual time, for an overloaded machine
        late = asyncio.get_running_loop().call_later(30.0, self.kill)
        try:
            reader, self._writer = await asyncio.open_unix_connection(sock=self._ours)
            self._send(self._limits._asdict())
            await self._receive(reader)
            late.cancel()
            on_ready(self)
            while True:
                reply = await self._receive(reader)
                if self._reply is None or self._reply.done():
                    break  # an answer without a question
                self._reply.set_result(reply)
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            pass  # it exited, or sent an invalid answer
        finally:
            late.cancel()
            self.kill()
            if self._writer is not None:
                self._writer.close()
        how = await asyncio.to_thread(self._wait)
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(_Ended(how))
        return how

    async def _receive(self, reader: asyncio.StreamReader) -> tuple[dict[str, Any], str]:
        head = json.loads(await reader.readline())
        if not 0 <= head["bytes"] <= self._limits.bytes:
            raise ValueError(head)
        return head, (await reader.readexactly(head["bytes"])).decode()

    def _wait(self) -> str:
        """Wait for the exit; return the name of the signal or the exit status."""
        try:
            # Time to wait for a killed process; one that hangs on a dead disk is abandoned.
            status = self._child.wait(1.0)
        except subprocess.TimeoutExpired:
            return "not yet, though it was killed"
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    async def run_query(self, sql: str, form: str) -> tuple[dict[str, Any], str]:
        """Run a Query; return the head and the rows as text. Raises _Ended, or TimeoutError when killed."""
        self._reply = asyncio.get_running_loop().create_future()
        self.was_asked = True
        self._send([sql, form])
        try:
            async with asyncio.timeout(self._limits.seconds_max + QUERY_OVERTIME_S):
                head, body = await self._reply
        except TimeoutError:
            self.kill()
            raise
        self.has_ended = self.has_ended or "leaves" in head
        return head, body

    def _send(self, message: Any) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\n")

    def kill(self) -> None:
        """Kill the process if it is running."""
        self.has_ended = True
        with suppress(ProcessLookupError):
            self._child.kill()


class Queries:
    """The process pool of one server and its waiting Queries."""

    def __init__(self, database: Path, settings: Settings, on_damage: Callable[[Exception], object]) -> None:
        """Prepare to read ``database``; ``start_processes`` must be called before the first Query.

        ``on_damage`` is called if a Query finds that the file is damaged.
        """
        self._limits = Limits(
            database=f"{database.absolute().as_uri()}?mode=ro",
            seconds=settings.query_s,
            seconds_max=settings.query_s + QUERY_OVERTIME_S,
            # An answer is in memory several times: as rows, as texts, as one text and as bytes.
            memory_bytes=QUERY_MEMORY_BYTES_MAX + 8 * settings.query_bytes_max,
            rows=settings.query_rows_max,
            bytes=settings.query_bytes_max,
            levels=JSON_DEPTH_MAX,
        )
        self._reads = PendingReads(settings.query_waiting_max)
        self._on_damage = on_damage
        self._keepers: list[asyncio.Task[None]] = []
        self._running: set[_Process] = set()
        self._idle: deque[_Process] = deque()
        self._waiting: deque[asyncio.Future[_Process]] = deque()
        self._refusal: CommandError | None = None
        self._closing = asyncio.Event()

    @property
    def pending(self) -> int:
        """Return the number of running and waiting Queries."""
        return self._reads.count

    def start_processes(self) -> None:
        """Start the processes; a Query waits until one is ready."""
        self._keepers = [asyncio.create_task(self._keep_process()) for _ in range(QUERY_PROCESSES)]

    def refuse(self) -> None:
        """Refuse new and waiting Queries, since the server is stopping; running Queries may finish."""
        self._closing.set()
        self._turn_away(Unavailable("Server is stopping", "try again in a moment"))

    async def cancel_all(self) -> None:
        """Kill the processes."""
        self.refuse()
        for process in self._running:
            process.kill()
        await asyncio.gather(*self._keepers)

    async def run_query(self, sql: str, form: str) -> str:
        """Run one SELECT; return its rows as text.

        Raises CommandError: BadArguments, BadQuery, TimedOut, TooMany if too many wait, Unavailable if no
        process can be started.
        """
        if self._refusal is not None:
            raise self._refusal
        return await self._reads.run(lambda: self._in_turn(sql, form))

    async def _in_turn(self, sql: str, form: str) -> str:
        try:
            process = await self._next_process()
            try:
                head, body = await process.run_query(sql, form)
            finally:
                if not process.has_ended:
                    self._free(process)
        except TimeoutError:
            raise self._late() from None
        except _Ended as ended:
            if str(ended) == signal.SIGALRM.name:
                raise self._late() from None
            raise BadQuery("Query aborted", f"query: the process that ran it ended: {ended}") from None
        if "damage" in head:
            self._on_damage(StoreDamaged(head["damage"]))
        if "refused" in head:
            raise error_for(*head["refused"])
        return body

    def _late(self) -> TimedOut:
        text = f"query: it took longer than {self._limits.seconds:g} s, and its process was ended"
        return TimedOut("Timeout", text)

    # --- whose turn it is --------------------------------------------------------------------------------

    async def _next_process(self) -> _Process:
        while True:
            if self._idle:
                process = self._idle.popleft()
            else:
                turn: asyncio.Future[_Process] = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                process = await turn
            if not process.has_ended:
                return process

    def _free(self, process: _Process) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(process)
        else:
            self._idle.append(process)

    def _turn_away(self, refusal: CommandError) -> None:
        """Refuse waiting and new Queries."""
        self._refusal = refusal
        while self._waiting:
            self._waiting.popleft().set_exception(refusal)

    # --- supervision -------------------------------------------------------------------------------------

    def _ready(self, process: _Process) -> None:
        if not self._closing.is_set():
            self._refusal = None
            self._free(process)

    async def _keep_process(self) -> None:
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
                log.info("a Query process exited (%s) and is replaced", how)
                continue
            pause_s = min(max(pause_s * 2, PAUSE_S), PAUSE_S_MAX)
            log.warning("a Query process exited unexpectedly (%s); another starts in %g s", how, pause_s)
            if not self._running:
                self._turn_away(Unavailable("No process for Query", f"none can be started: {how}"))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)


# Views use connections of this process.


SEEKS_WAITING_MAX = 1_000
"""Maximum number of running and waiting index seeks; at well under a millisecond each, less than a second of
work."""

_VIEWS = {**VIEWS, **METRICS, **QUEUES}


class _ReadConnection:
    """One read-only connection; its reads run one after another."""

    def __init__(
        self, path: Path, seconds: float, waiting_max: int, on_damage: Callable[[Exception], object]
    ) -> None:
        self._path = path
        self._on_damage = on_damage
        self._seconds = seconds
        self._pending = PendingReads(waiting_max)
        self._turn = asyncio.Lock()
        self._guarded: SandboxedConnection | None = None
        self._connection: aiosqlite.Connection | None = None
        self._closed = False

    async def open(self) -> None:
        self._connection = await aiosqlite.connect(
            f"{self._path.absolute().as_uri()}?mode=ro", uri=True, factory=self._connect, isolation_level=None
        )

    def _connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        give_way()  # this is the thread of the connection
        self._guarded = SandboxedConnection(*args, **kwargs)
        return self._guarded

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None and self._guarded is not None:
            self._guarded.interrupt()  # running reads are cancelled
            await self._connection.close()

    async def fetch(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int, *, again: bool = False
    ) -> tuple[list[str], Page]:
        """Return the column names and at most ``rows_max`` rows, up to the row that exceeds ``bytes_max``.

        Raises TooMany if too many reads wait, unless ``again``; Unavailable once the connection is closed.
        """
        return await self._pending.run(
            lambda: self._in_turn(sql, parameters, rows_max, bytes_max), again=again
        )

    async def _in_turn(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int
    ) -> tuple[list[str], Page]:
        async with self._turn:
            if self._closed:
                raise Unavailable("Server is stopping", "try again in a moment")
            return await self._fetch(sql, parameters, rows_max, bytes_max)

    async def _fetch(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int
    ) -> tuple[list[str], Page]:
        guarded = self._guarded
        assert guarded is not None
        # Reads give way to all other work: on a busy machine a view of a tenth of a second takes more than a
        # second, so the elapsed time may be ten times the CPU time
        guarded.limit(self._seconds, self._seconds * 10, bytes_max)
        try:
            names, rows = await self._rows(sql, parameters, rows_max)
        except (sqlite3.Error, sqlite3.Warning) as error:
            if is_damage(error):
                self._on_damage(StoreDamaged(str(error)))
            if not is_undecodable(error):
                raise refusal(error) from None
            guarded.text_factory = replacing
            names, rows = await self._rows(sql, parameters, rows_max)
        finally:
            guarded.unlimit()
            guarded.text_factory = str
        more = guarded.cut or len(rows) > rows_max
        return names, Page([tuple(row) for row in rows[:rows_max]], more)

    async def _rows(self, sql: str, parameters: Parameters, rows_max: int) -> tuple[list[str], list[Any]]:
        assert self._connection is not None
        async with self._connection.execute(sql, parameters) as cursor:
            rows = list(await cursor.fetchmany(rows_max + 1))
            return [column[0] for column in cursor.description or ()], rows


class SQLiteReader(Reader):
    """Reads a database file for one server; the SQL of Query runs in separate processes."""

    _seeks: _ReadConnection
    _scans: _ReadConnection
    queries: Queries

    def __init__(
        self, path: Path, settings: Settings, on_damage: Callable[[Exception], object] = lambda error: None
    ) -> None:
        """Read the database at ``path``; call ``open`` before use.

        ``on_damage`` is called if the file is damaged.
        """
        seconds = settings.query_s
        self._seeks = _ReadConnection(path, seconds, SEEKS_WAITING_MAX, on_damage)
        self._scans = _ReadConnection(path, seconds, settings.query_waiting_max, on_damage)
        self.queries = Queries(path, settings, on_damage)

    @override
    async def open(self) -> None:
        await self._seeks.open()
        await self._scans.open()
        self.queries.start_processes()

    async def _page(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        bytes_max: int,
        *,
        scans: bool,
        again: bool,
    ) -> Page:
        connection = self._scans if scans else self._seeks
        _, page = await connection.fetch(_VIEWS[name], parameters, limit, bytes_max, again=again)
        return page


log = logging.getLogger(__name__)
