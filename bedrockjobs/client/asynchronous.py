"""The client for asyncio. A call takes an idle connection or makes one, so none queues behind a wait."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import Any, Self, TypeVar, cast

from bedrockjobs.base.errors import CommandError
from bedrockjobs.client.address import Address, AnyAddress, UnixAddress
from bedrockjobs.client.base import CONNECT_S, BaseClient
from bedrockjobs.client.ending import Told, end_of_job, own_run
from bedrockjobs.client.exchange import (
    Answer,
    AnswerReader,
    ConnectionLost,
    MalformedAnswer,
    ServerUnreachable,
    UnreadableAnswer,
    answer_s,
    unreachable,
)
from bedrockjobs.client.tries import LOOK_S
from bedrockjobs.commands import Command, Ping, Reply, RunReply
from bedrockjobs.tls.stream import TLSStream

HURRY_S = 5.0
"""Time a server has for the answer once a wait was ended, as it has nothing left to wait for, or once it was
left as it is silent."""

R = TypeVar("R", bound=Reply)


class _Connection(asyncio.Protocol):
    """One connection, used by one call at a time."""

    def __init__(self, address: AnyAddress, bytes_max: int) -> None:
        """Belong to this address; no answer may be larger than ``bytes_max``."""
        self.address = address
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._command: Command[Any] = Ping()
        self._limit: asyncio.Timeout | None = None
        self._limit_s = 0.0

    @property
    def fresh(self) -> bool:
        """Tell whether the connection can take another request."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, command: Command[Any], request: bytes, hurry: asyncio.Event | None) -> Answer:
        """Send a request and return its answer; raises ConnectionLost."""
        assert self._transport is not None
        self._command, self._reader = command, AnswerReader(self._bytes_max)
        self._answer = asyncio.get_running_loop().create_future()
        self._limit_s = answer_s(command)
        self._transport.write(request)
        try:
            async with asyncio.timeout(self._limit_s) as self._limit:
                if hurry is not None and not await self._answered_before(hurry):
                    self._transport.write_eof()
                    self.hurry()
                return await self._answer
        except TimeoutError:
            why = f"nothing came within {self._limit_s:g} s"
            raise ConnectionLost(self._command, self.address, why) from None
        finally:
            self._limit = None
            self._answer.cancel()  # where the call was cancelled, nobody waits for it any more

    def hurry(self) -> None:
        """Wait no longer than ``HURRY_S`` for the answer from now on."""
        if self._limit is None or self._limit.expired():
            return
        until = asyncio.get_running_loop().time() + HURRY_S
        if (self._limit.when() or until) >= until:
            self._limit.reschedule(until)
            self._limit_s = HURRY_S

    async def _answered_before(self, hurry: asyncio.Event) -> bool:
        """Wait for the answer or for ``hurry``, and tell whether it was the answer."""
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
            with suppress(RuntimeError):  # its event loop is closed
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by the event loop)."""
        self._transport = cast("asyncio.Transport", transport)  # other loops have classes of their own

    def data_received(self, data: bytes) -> None:
        """Read the answer that is awaited; a connection that speaks unasked is closed."""
        if self._reader is None or self._answer is None or self._answer.done():
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except MalformedAnswer as error:
            self._fail(UnreadableAnswer(self._command, self.address, str(error)))
            self.close()
            return
        if answer is not None:
            self._reader = None
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the call that waits (called by the event loop)."""
        self._fail(ConnectionLost(self._command, self.address, str(exc or "the connection was closed")))

    def _fail(self, error: ConnectionLost) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class AsyncClient(BaseClient[_Connection]):
    """Calls commands on a server, any number of them at once.

    >>> async with AsyncClient("localhost:8888") as client:
    ...     job = await client.call(GetJob(name="foo*", connection="wait", timeout=60_000))

    It belongs to one event loop at a time. In another one it makes new connections, so that a client may be
    kept from one ``asyncio.run`` to the next; after a fork too.
    """

    _loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    async def call(self, command: Command[R], *, hurry: asyncio.Event | None = None) -> R:
        """Send a command and return its typed reply.

        Once ``hurry`` is set a waiting command waits no longer: it is answered at once with what there is,
        and nothing it took is lost, as it could be if the call were cancelled. Raises the CommandError of a
        refusal, ServerUnreachable where nothing was sent, and ConnectionLost where the outcome is unknown.
        """
        return self._reply(command, await self.exchange(command, hurry=hurry))

    async def exchange(self, command: Command[Any], *, hurry: asyncio.Event | None = None) -> Answer:
        """Send a command and return the answer as it came; otherwise as ``call``."""
        self._join_loop()
        tries = self._tries(command)
        await self._look_back()
        while True:
            address = self._route.current
            try:
                return await self._exchange_once(command, self._request(command), address, hurry)
            except (ConnectionError, CommandError) as error:
                pause = self._pause_after(tries, error, address)
            await asyncio.sleep(pause)

    async def wait_for_job(self, job_id: int, timeout: float | None = None) -> RunReply:  # noqa: ASYNC109
        """Wait until a job has ended well and return its last run, as ``Client.wait_for_job`` does."""
        asking, began = end_of_job(job_id, timeout, own_run()), self._clock.monotonic()
        asked = next(asking)
        while True:
            told: Told = 0.0
            if isinstance(asked, float):
                await asyncio.sleep(asked)
            else:
                try:
                    told = await self.call(asked)
                except CommandError as error:
                    told = error
            try:
                asked = asking.send((told, self._clock.monotonic() - began))
            except StopIteration as ended:
                return cast("RunReply", ended.value)

    def leave(self, server: AnyAddress) -> bool:
        """Use the next address from now on, as ``BaseClient`` does; calls that wait for the other hurry."""
        left = super().leave(server)
        for connection in self._busy if left else ():
            if connection.address == server:
                connection.hurry()
        return left

    async def close(self) -> None:
        """Close the idle connections; a call after this is an error."""
        self._pool.close()
        await asyncio.sleep(0)  # lets the event loop finish closing them

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    def _join_loop(self) -> None:
        """Let go of the connections of another event loop, where nothing can be done on them."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            if self._loop is not None:
                self._pool.drop()
                self._busy.clear()
            self._loop = weakref.ref(loop)

    async def _exchange_once(
        self, command: Command[Any], request: bytes, address: AnyAddress, hurry: asyncio.Event | None
    ) -> Answer:
        connection = self._pool.take(address) or await self._connected(address)
        reusable = False
        self._busy.add(connection)
        try:
            answer = await connection.exchange(command, request, hurry)
            reusable = not answer.closing and not (hurry is not None and hurry.is_set())
        finally:
            self._busy.discard(connection)
            self._pool.give_back(connection, reusable=reusable)
        answer.check()
        return answer

    async def _look_back(self) -> None:
        """Use the first server again if it is time to look and it answers; nothing else is sent to see it."""
        first = self._route.to_look_at(self._clock.monotonic())
        if first is None:
            return
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(LOOK_S):
                connection = await self._connected(first)
                good = False
                try:
                    answer = await connection.exchange(Ping(), self._request(Ping()), None)
                    good = answer.code == 200 and not answer.closing
                finally:
                    self._pool.give_back(connection, reusable=good)
                if good:
                    self._route.come_back()

    async def _connected(self, address: AnyAddress) -> _Connection:
        loop, made = asyncio.get_running_loop(), _Connection(address, self._answer_bytes_max)
        try:
            async with asyncio.timeout(CONNECT_S):
                if isinstance(address, UnixAddress):
                    await loop.create_unix_connection(lambda: made, address.path)
                elif address.tls:
                    await self._encrypted(made, address)
                else:
                    await loop.create_connection(lambda: made, address.host, address.port)
        except TimeoutError:
            raise ServerUnreachable(
                f"cannot connect to {address}: nothing came within {CONNECT_S:g} s"
            ) from None
        except (OSError, ValueError) as error:
            raise unreachable(address, error) from error
        return made

    async def _encrypted(self, made: _Connection, address: Address) -> None:
        """Connect and shake hands; raises what went wrong."""
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
