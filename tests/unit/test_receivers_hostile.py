"""Hostile receivers of messages: they cost bounded time and memory, and cannot redirect elsewhere."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable

import pytest

from bedrockjobs.notify import channels
from bedrockjobs.notify.channels import NotSent
from bedrockjobs.notify.rule import message_of
from tests.protocol.talk import DEADLINE_S
from tests.unit.test_messages_sent import sending, told

MESSAGE = message_of("r", [told(3)], "")
MEMORY_BYTES = 4_000_000
"""What a receiver may make a server hold: some buffers."""

Answer = Callable[[], AsyncIterator[bytes]]


async def said(*parts: bytes) -> AsyncIterator[bytes]:
    """Yield some bytes."""
    for part in parts:
        yield part


async def for_ever(first: bytes, again: bytes, every_s: float = 0) -> AsyncIterator[bytes]:
    """Yield some bytes, then others endlessly."""
    yield first
    while True:
        yield again
        await asyncio.sleep(every_s)


async def post(answer: Answer, path: str = "/") -> int:
    """Post a message to a server that sends these bytes; return the number of connections. Raises NotSent."""
    came = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            async for words in answer():
                writer.write(words)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1") as server, asyncio.timeout(DEADLINE_S):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        await sending().send(MESSAGE, url, "", 0)
    return came


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: for_ever(b"", b"", 0.01), "no answer within"),
        (lambda: for_ever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.01), "no answer within"),
        (lambda: for_ever(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"), "no answer"),
        (lambda: for_ever(b"HTTP/1.1 200 ", b"x" * 100_000), "not HTTP"),
        (lambda: for_ever(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 4_000 + b"\r\n"), "not HTTP"),
        (lambda: for_ever(b"HTTP/1.1 500 No\r\n\r\n", b"x" * 100_000), "answered 500"),
        (lambda: said(b"\x00\xff\xfe\r\n\r\n"), "not HTTP"),
        (lambda: said(b""), "closed the connection"),
    ],
)
async def test_what_is_no_answer_costs_a_bounded_time_and_room(
    answer: Answer, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "SEND_S", 0.3)
    tracemalloc.start()
    try:
        with pytest.raises(NotSent, match=words):
            await post(answer)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES
    finally:
        tracemalloc.stop()


async def test_the_body_of_an_answer_is_not_read() -> None:
    assert await post(lambda: for_ever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 100_000)) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_is_led_to_another_address(status: int) -> None:
    """Such as to an internal address, which the receiver itself cannot reach."""
    called = asyncio.Event()

    async def inside(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()

    async with await asyncio.start_server(inside, "127.0.0.1") as secret:
        place = f"http://127.0.0.1:{secret.sockets[0].getsockname()[1]}/"
        head = f"HTTP/1.1 {status} There\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        with pytest.raises(NotSent, match=f"^answered {status}$"):
            await post(lambda: said(head.encode()))
        assert not called.is_set()
