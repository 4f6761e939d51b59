"""The asyncio client. Each call uses an idle connection or makes one, so that no call waits for another."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import Any, Self, TypeVar, cast

from bedrockjobs.client.address import Address, AnyAddress, UnixAddress
from bedrockjobs.client.base import BaseClient, Connect, SendRequest, Steps
from bedrockjobs.client.exchange import AnswerReader, MalformedAnswer, Response
from bedrockjobs.commands import Command, Reply, RunReply
from bedrockjobs.tls.stream import TLSStream

HURRY_S = 5.0
"""Maximum seconds to wait for an answer once ``hurry`` was set, or once the client has moved on to another
server."""

R = TypeVar("R", bound=Reply)
V = TypeVar("V")


class _AsyncConnection(asyncio.Protocol):
    """A connection, used by one call at a time."""

    def __init__(self, address: AnyAddress, bytes_max: int) -> None:
        """Create a connection that accepts answers of at most ``bytes_max`` bytes."""
        self.address = address
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._limit: asyncio.Timeout | None = None
        self._limit_s = 0.0

    @property
    def is_reusable(self) -> bool:
        """Return whether the connection can take another request."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, limit_s: float, hurry: asyncio.Event | None) -> Response:
        """Send a request and return its answer; raises OSError and MalformedAnswer.

        Once ``hurry`` is set, half-close the connection, so that the server answers a waiting command
        immediately.
        """
        assert self._transport is not None
        self._reader = AnswerReader(self._bytes_max)
        self._answer = asyncio.get_running_loop().create_future()
        self._limit_s = limit_s
        self._transport.write(request)
        try:
            async with asyncio.timeout(self._limit_s) as self._limit:
                if hurry is None or await self._answered_before(hurry):
                    return await self._answer
                self._transport.write_eof()
                self.shorten_deadline()
                answer = await self._answer
                self.close()
                return answer
        except TimeoutError:
            raise TimeoutError(f"nothing was received within {self._limit_s:g} s") from None
        finally:
            self._limit = None
            self._answer.cancel()  # the call may have been cancelled

    def shorten_deadline(self) -> None:
        """Wait for the answer at most ``HURRY_S`` from now on."""
        if self._limit is None or self._limit.expired():
            return
        until = asyncio.get_running_loop().time() + HURRY_S
        if (self._limit.when() or until) >= until:
            self._limit.reschedule(until)
            self._limit_s = HURRY_S

    async def _answered_before(self, hurry: asyncio.Event) -> bool:
        """Wait for the answer or for ``hurry``; return whether the answer came."""
        assert self._answer is not None
        hurried = asyncio.ensure_future(hurry.wait())
        try:
            await asyncio.wait((self._answer, hurried), return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        return self._answer.done()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            with suppress(RuntimeError):  # the event loop may be closed
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport (called by the event loop)."""
        self._transport = cast("asyncio.Transport", transport)  # other event loops have their own classes

    def data_received(self, data: bytes) -> None:
        """Read the pending answer; close the connection if the server sends anything else."""
        if self._reader is None or self._answer is None or self._answer.done():
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except MalformedAnswer as error:
            self._answer.set_exception(error)
            self.close()
            return
        if answer is not None:
            self._reader = None
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending call (called by the event loop)."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(str(exc or "the connection was closed")))


class AsyncClient(BaseClient[_AsyncConnection]):
    """Calls commands on a server, any number of them concurrently.

    >>> async with AsyncClient("localhost:8888") as client:
    ...     job = await client.call(GetJob(name="foo*", connection="wait", timeout=60_000))

    A client belongs to one event loop at a time. In another loop, or after a fork, it makes new connections,
    so that it can be used in one ``asyncio.run`` after another.
    """

    _loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
    _busy: set[_AsyncConnection]
    """Connections with a pending call."""

    async def call(self, command: Command[R], *, hurry: asyncio.Event | None = None) -> R:
        """Send a command and return its typed reply.

        Setting ``hurry`` ends the wait of a waiting command early: the server answers immediately with what
        it has. No job is lost, as could happen if the call were cancelled. Raises the server's CommandError,
        ServerUnreachable if nothing was sent, and ConnectionLost if the outcome is unknown.
        """
        return self._reply(command, await self.exchange(command, hurry=hurry))

    async def exchange(self, command: Command[Any], *, hurry: asyncio.Event | None = None) -> Response:
        """Send a command and return the raw answer; ``hurry`` and errors are as for ``call``."""
        return await self._perform(self._exchange_steps(command), hurry)

    async def wait_for_job(self, job_id: int, timeout: float | None = None) -> RunReply:  # noqa: ASYNC109
        """Wait until a job has ended successfully and return its last run, like ``Client.wait_for_job``."""
        return await self._perform(self._wait_steps(job_id, timeout))

    def leave_server(self, server: AnyAddress) -> bool:
        """Move on to the next address, as ``BaseClient`` does; calls to ``server`` get shorter deadlines."""
        left = super().leave_server(server)
        for connection in self._busy if left else ():
            if connection.address == server:
                connection.shorten_deadline()
        return left

    async def close(self) -> None:
        """Close the idle connections; the client can no longer be used."""
        self._pool.close()
        await asyncio.sleep(0)  # lets the event loop finish closing them

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    async def _perform(self, steps: Steps[V], hurry: asyncio.Event | None = None) -> V:
        """Perform the I/O steps of an operation and return its result."""
        self._join_loop()
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._perform_step(step, hurry)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as ended:
            result: V = ended.value
            return result

    async def _perform_step(
        self, step: Connect | SendRequest | float, hurry: asyncio.Event | None
    ) -> Response | _AsyncConnection | None:
        if isinstance(step, SendRequest):
            connection: _AsyncConnection = step.connection
            self._busy.add(connection)
            try:
                return await connection.exchange(step.request, step.limit_s, None if step.is_probe else hurry)
            finally:
                self._busy.discard(connection)
        if isinstance(step, Connect):
            return await self._connected(step.address, step.limit_s)
        await asyncio.sleep(step)
        return None

    def _join_loop(self) -> None:
        """Drop connections that were made in another event loop, since the current one cannot use them."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            if self._loop is not None:
                self._pool.close_idle()
            self._busy = set()
            self._loop = weakref.ref(loop)

    async def _connected(self, address: AnyAddress, limit_s: float) -> _AsyncConnection:
        loop, made = asyncio.get_running_loop(), _AsyncConnection(address, self._answer_bytes_max)
        try:
            async with asyncio.timeout(limit_s):
                if isinstance(address, UnixAddress):
                    await loop.create_unix_connection(lambda: made, address.path)
                elif address.tls:
                    await self._encrypted(made, address)
                else:
                    await loop.create_connection(lambda: made, address.host, address.port)
        except TimeoutError:
            raise TimeoutError(f"nothing was received within {limit_s:g} s") from None
        return made

    async def _encrypted(self, made: _AsyncConnection, address: Address) -> None:
        """Connect and complete the TLS handshake."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def ready(stream: TLSStream) -> None:
            stream.set_protocol(made)
            made.connection_made(stream)
            if not done.done():
                done.set_result(None)

        def failed(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        stream = TLSStream(self._credentials.context, ready, failed, address.host)
        try:
            await loop.create_connection(lambda: stream, address.host, address.port)
            await done
        except BaseException:
            stream.abort()
            raise
