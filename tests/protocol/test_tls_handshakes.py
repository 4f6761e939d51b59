"""Slow, broken or too many handshakes cost bounded time and memory; certificates are reloaded."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.protocol import connection, connections
from bedrockjobs.tls import BadCertificate, certificate_name, stream
from tests.certificates import Authority
from tests.conftest import Live, Serve
from tests.protocol.talk import Talk, request

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The first bytes of a record with a ClientHello of 508 bytes, which never comes."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return somebody who signs certificates."""
    return Authority(tmp_path / "tls")


@pytest.fixture(autouse=True)
def _frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)


async def greeted(live: Live, authority: Authority) -> tuple[Talk, ssl.SSLObject]:
    """Return a new connection with TLS."""
    opened = await asyncio.open_connection(
        "127.0.0.1", live.port, ssl=authority.trusting(), server_hostname="localhost"
    )
    return Talk(*opened), opened[1].get_extra_info("ssl_object")


async def test_one_that_does_not_end_is_closed_in_time(serve: Serve, authority: Authority) -> None:
    live = await serve(**authority.serving(), handshake_s=0.2)
    slow = await live.connect()
    slow.send(HELLO)
    await live.connections(1)
    assert await slow.ended() == b""
    await live.connections(0)
    talk, _ = await greeted(live, authority)
    assert (await talk.ask("Ping")).code == 200
    await talk.close()


@pytest.mark.parametrize("garbage", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16" + os.urandom(70_000)])
async def test_garbage_ends_it(serve: Serve, authority: Authority, garbage: bytes) -> None:
    live = await serve(**authority.serving(), handshake_s=0.2)
    talk = await live.connect()
    talk.send(garbage)
    assert len(await talk.ended()) < 100  # an alert
    await live.connections(0)


async def test_one_of_too_many_bytes_is_ended(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream, "HANDSHAKE_BYTES_MAX", 10)
    live = await serve(**authority.serving())
    talk = await live.connect()
    with caplog.at_level(logging.INFO):
        talk.send(HELLO)
        assert await talk.ended() == b""
        await live.connections(0)
    assert "a TLS handshake with 127.0.0.1 failed: it is larger than 10 bytes" in caplog.text


async def test_of_too_many_at_once_the_oldest_give_way(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HANDSHAKES_MAX", 3)
    live = await serve(**authority.serving())
    slow = []
    for _ in range(5):
        slow.append(await live.connect())
        slow[-1].send(HELLO)
        await live.connections(min(len(slow), 3))
        await live.until(lambda: len(live.server._listener._sniffer._under_way) == min(len(slow), 3))
    assert [await each.ended() for each in slow[:2]] == [b"", b""]
    talk, _ = await greeted(live, authority)
    assert await slow[2].ended() == b""
    assert (await talk.ask("Ping")).code == 200
    assert await slow[4].silent()
    await talk.close()


FLOOD = 300
"""Connections of one address that come at once."""


def hello(authority: Authority) -> bytes:
    """Return the whole first message of a client, for which a server signs."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def connecting(source: str, port: int) -> socket.socket:
    """Return a connection from an address of this machine; the server may accept it later."""
    client = socket.socket()
    client.setblocking(False)
    client.bind((source, 0))
    client.connect_ex(("127.0.0.1", port))
    return client


class Steps:
    """Counts the steps of handshakes of a server; each takes a millisecond of its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
        """Count from now on."""
        self.taken = 0
        step = stream.TLSStream._shake_hands

        def counted(shaken: stream.TLSStream) -> None:
            self.taken += 1
            clock.advance(0.001)
            step(shaken)

        monkeypatch.setattr(stream.TLSStream, "_shake_hands", counted)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> Steps:
    """Return what counts the steps of handshakes."""
    return Steps(monkeypatch, clock)


async def flooded(live: Live, authority: Authority, steps: Steps, other: str) -> int:
    """Let 127.0.0.2 begin many handshakes at once; return how many steps come before another one is done."""
    begun = steps.taken
    first = hello(authority)
    with ExitStack() as flood:
        for _ in range(FLOOD):
            client = flood.enter_context(connecting("127.0.0.2", live.port))
            client.send(first)
        opened = await asyncio.open_connection(
            "127.0.0.1",
            live.port,
            ssl=authority.trusting(),
            server_hostname="localhost",
            local_addr=(other, 0),
        )
        done = steps.taken - begun
        async with Talk(*opened) as talk:
            assert (await talk.ask("Ping")).code == 200
        await live.until(lambda: steps.taken - begun >= FLOOD)
    await live.connections(0)
    return done


async def test_a_flood_of_handshakes_of_an_address_lets_others_pass(
    serve: Serve, clock: ManualClock, authority: Authority, steps: Steps
) -> None:
    """They take turns with it; those of the same address wait behind it."""
    live = await serve(**authority.serving())
    live.server._connections.clock = clock
    assert await flooded(live, authority, steps, "127.0.0.3") < FLOOD / 2
    assert await flooded(live, authority, steps, "127.0.0.2") >= FLOOD


async def test_other_work_comes_between_the_steps_of_handshakes(
    serve: Serve, clock: ManualClock, authority: Authority, steps: Steps
) -> None:
    live = await serve(**authority.serving())
    live.server._connections.clock = clock
    first = hello(authority)
    most = 0
    with ExitStack() as flood:
        for _ in range(FLOOD):
            flood.enter_context(connecting("127.0.0.2", live.port)).send(first)
        while steps.taken < FLOOD:
            before = steps.taken
            await asyncio.sleep(0)
            most = max(most, steps.taken - before)
    assert 1 < most <= connection.HANDSHAKES_TURN_S / 0.001 + 1
    await live.connections(0)


async def test_of_too_many_handshakes_one_of_the_address_with_most_gives_way(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the oldest of all, which may be that of a slow client elsewhere."""
    monkeypatch.setattr(connection, "HANDSHAKES_MAX", 3)
    begun: list[connection.Handshake] = []
    begin = connection.Handshake.begin
    monkeypatch.setattr(
        connection.Handshake, "begin", lambda self, *given: (begun.append(self), begin(self, *given))
    )
    live = await serve(**authority.serving())
    slow = await live.connect(source="127.0.0.3")
    slow.send(HELLO)
    await live.until(lambda: len(live.server._listener._sniffer._under_way) == 1)
    many = []
    for number in range(5):
        many.append(await live.connect(source="127.0.0.2"))
        many[-1].send(HELLO)
        await live.until(lambda number=number: len(begun) == number + 2)
    assert [await each.ended() for each in many[:3]] == [b""] * 3
    assert await slow.silent()
    assert await many[-1].silent()


async def test_what_comes_while_a_handshake_waits_for_its_turn_is_kept(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request behind the last message of a handshake, however long, and the end of the client's input."""
    waiting: list[Callable[[], object]] = []
    monkeypatch.setattr(connection.TLSSniffer, "in_turn", lambda _, __, step: waiting.append(step))
    live = await serve(**authority.serving())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    talk = await live.connect()
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    talk.send(outgoing.read())
    await live.until(lambda: bool(waiting))
    waiting.pop()()
    while True:
        incoming.write(await talk.reader.read(100_000))
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            continue
        break
    client.write(request("CreateJob", name="a", data={"x": "x" * 4 * stream.HANDSHAKE_BYTES_MAX}))
    with suppress(ssl.SSLWantReadError):
        client.unwrap()
    talk.send(outgoing.read())
    talk.end()
    await live.until(lambda: bool(waiting))
    for _ in range(100):
        await asyncio.sleep(0)
    waiting.pop()()
    assert await talk.reader.read(), "the reply, and the end"
    await live.connections(0)
    assert not waiting
    assert [job["name"] for job in (await live.ask("ListJobs")).json["jobs"]] == ["a"]


@pytest.mark.parametrize("end", [b"", b"\x16\x03\x01\x00\x05hello"])
async def test_an_end_while_a_handshake_waits_for_its_turn_ends_it(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    waiting: list[Callable[[], object]] = []
    monkeypatch.setattr(connection.TLSSniffer, "in_turn", lambda _, __, step: waiting.append(step))
    live = await serve(**authority.serving())
    talk = await live.connect()
    talk.send(hello(authority)[:100] + end)
    talk.end()
    await live.until(lambda: bool(waiting))
    for _ in range(100):
        await asyncio.sleep(0)
    await live.connections(1)
    waiting.pop()()
    await talk.ended()
    await live.connections(0)


async def test_failures_are_told_some_times_a_minute(
    serve: Serve, authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "FAILURES_LOGGED_MAX", 2)
    live = await serve(**authority.serving())

    async def fail(times: int) -> None:
        for _ in range(times):
            talk = await live.connect()
            talk.send(b"\x16\x03\x01\x00\x05hello")
            await talk.ended()
        await live.connections(0)

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "TLS" in each.getMessage()]

    with caplog.at_level(logging.INFO):
        await fail(5)
        assert [words.split(":")[0] for words in told()] == ["a TLS handshake with 127.0.0.1 failed"] * 2
        monkeypatch.setattr(live.server._listener._sniffer, "_log_again_at", 0.0)
        await fail(1)
        assert told()[2] == "3 more TLS handshakes failed"


async def test_certificates_are_read_again_and_a_bad_one_is_not_taken(
    serve: Serve, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    settings = authority.serving()
    live = await serve(**settings)

    async def shown() -> int:
        talk, inside = await greeted(live, authority)
        await talk.close()
        certificate = inside.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)

    before, (kept, _) = await shown(), await greeted(live, authority)
    authority.serving()  # writes the same files again
    assert await shown() == before
    with caplog.at_level(logging.INFO):
        await live.server.reloads.run()
    assert "certificates reloaded" in caplog.text
    renewed = await shown()
    assert renewed != before
    assert (await kept.ask("Ping")).code == 200  # no connection is lost

    Path(settings["tls_key"]).write_text("no key")
    await live.server.reloads.run()
    assert "certificates not reloaded, the previous ones stay in use: " in caplog.text
    assert await shown() == renewed
    assert (await kept.ask("Ping")).code == 200
    await kept.close()


async def test_other_certificates_are_taken_from_settings_that_are_read_again(
    serve: Serve, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Their paths may change, who signs clients may come and go; without any certificate it is a restart."""
    live = await serve(**authority.serving())
    given = live.server.settings
    other = authority.serving("other")

    async def name() -> str:
        talk, inside = await greeted(live, authority)
        await talk.close()
        return certificate_name(inside.getpeercert())

    async def take(**found: str) -> str:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            await live.server.take(given.model_copy(update=found))
            await live.server.reloads.run()  # the files of all certificates, as HUP does
        return caplog.text

    kept, _ = await greeted(live, authority)
    assert await name() == "server"
    assert "settings: changed: tls_cert, tls_key" in await take(**other)
    assert await name() == "other"
    with pytest.raises(
        BadCertificate, match=r"^tls_key: .*: expected the key of the certificate .*other.pem"
    ):
        await take(tls_cert=other["tls_cert"], tls_key=str(authority.sign("third")[1]), smtp="smtp://b:25")
    assert (await name(), live.server.settings.smtp) == ("other", "")
    assert "changed: tls_client_ca" in await take(**other, tls_client_ca=str(authority.ca))
    stranger = Authority(authority.folder / "strangers")
    cert, key = stranger.sign("eve")
    context = authority.trusting()
    context.load_cert_chain(cert, key)
    talk = Talk(
        *await asyncio.open_connection("127.0.0.1", live.port, ssl=context, server_hostname="localhost")
    )
    with pytest.raises((AssertionError, OSError)):
        await talk.ask("Ping")
    assert "changed: tls_client_ca" in await take(**other, tls_client_ca="")
    assert "changed: nothing; different, but only after a restart: tls_cert, tls_key" in await take(
        tls_cert="", tls_key=""
    )
    assert await name() == "other"
    assert (await kept.ask("Ping")).code == 200  # no connection is lost
    await kept.close()


async def test_a_server_without_tls_begins_with_it_after_a_restart(
    serve: Serve, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    live = await serve()
    with caplog.at_level(logging.INFO):
        await live.server.take(live.server.settings.model_copy(update=authority.serving()))
    assert "different, but only after a restart: tls_cert, tls_key" in caplog.text
