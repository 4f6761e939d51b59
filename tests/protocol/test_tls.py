"""TLS on the port of both protocols: detection by the first byte, and both protocols over it."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import warnings
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import CreateJob, GetJob
from bedrockjobs.databases import StartError
from bedrockjobs.tls.stream import CERTIFICATE_NAME
from tests.certificates import Authority
from tests.conftest import DEADLINE_S, Live, Serve
from tests.protocol.talk import Talk, post, request

ELSEWHERE = "127.0.0.2"
"""An address of this machine that a server does not know to be it."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return somebody who signs certificates."""
    return Authority(tmp_path / "tls")


async def connect(live: Live, context: ssl.SSLContext | None, **more: Any) -> Talk:
    """Return a connection, with TLS where there is a context."""
    name = {} if context is None else {"server_hostname": "localhost"}
    opened = await asyncio.open_connection(
        "127.0.0.1", live.port, ssl=context, limit=64 * 1024 * 1024, **name, **more
    )
    return Talk(*opened)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_protocols_go_over_it(serve: Serve, authority: Authority, version: ssl.TLSVersion) -> None:
    live = await serve(**authority.serving())
    async with await connect(live, authority.trusting(maximum_version=version)) as talk:
        assert (await talk.ask("CreateJob", name="a")).json == {"jobID": 1}
        talk.send(request("Ping") + request("QueryJob", jobID=1))
        assert [(await talk.reply()).code for _ in range(2)] == [200, 200]
    async with await connect(live, authority.trusting(maximum_version=version)) as talk:
        talk.send(post("QueryJob", {"jobID": 1}))
        assert (await talk.reply()).json["name"] == "a"
        talk.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await talk.reply()).code == 200
        talk.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            assert b"text/event-stream" in await talk.reader.readuntil(b"\r\n\r\n")
    await live.connections(0)


async def test_bytes_may_come_one_by_one(serve: Serve, authority: Authority) -> None:
    live = await serve(**authority.serving())
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    inside = authority.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")

    async def until_done(act: Any) -> Any:
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(0)
                incoming.write(await asyncio.wait_for(reader.read(65_536), DEADLINE_S))

    await until_done(inside.do_handshake)
    inside.write(request("Ping"))
    assert (await until_done(lambda: inside.read(1_000))).startswith(b"200 OK")
    writer.close()


async def test_older_versions_are_refused(serve: Serve, authority: Authority) -> None:
    live = await serve(**authority.serving())
    context = authority.trusting()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(live, context)


async def test_large_requests_and_answers_and_a_slow_reader(serve: Serve, authority: Authority) -> None:
    live = await serve(**authority.serving())
    text = os.urandom(1_500_000).hex()
    async with await connect(live, authority.trusting()) as talk:
        talk.writer.transport.pause_reading()
        talk.send(request("CreateJob", name="a", data={"text": text}))
        for _ in range(4):
            talk.send(request("QueryJob", jobID=1))
        await live.until(lambda: live.server._connections.memory.used > 0)  # nobody reads the answers
        talk.writer.transport.resume_reading()
        assert (await talk.reply()).code == 200
        for _ in range(4):
            assert (await talk.reply()).json["data"] == {"text": text}


async def test_plain_connections_of_this_machine_go_on_and_no_others(
    serve: Serve, authority: Authority
) -> None:
    live = await serve(**authority.serving())
    assert (await live.ask("Ping")).code == 200
    assert (await live.http("Ping")).code == 200
    async with await connect(live, None, local_addr=(ELSEWHERE, 0)) as talk:
        talk.send(request("CreateJob", name="a"))
        reply = await talk.reply()
        assert (reply.status, reply.headers["error"]) == (
            "403 TLS required",
            "this server takes plain connections from its own machine only; use TLS",
        )
        assert await talk.ended() == b""
    async with await connect(live, None, local_addr=(ELSEWHERE, 0)) as talk:
        talk.send(post("CreateJob", {"name": "a"}))
        reply = await talk.reply()
        assert (reply.code, reply.json["title"]) == (403, "TLS required")
        assert await talk.ended() == b""
    async with await connect(live, authority.trusting(), local_addr=(ELSEWHERE, 0)) as talk:
        assert (await talk.ask("QueryJob", jobID=1)).code == 404
    await live.connections(0)


async def test_without_a_certificate_a_client_with_tls_is_told_at_once(
    live: Live, authority: Authority
) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)alert handshake failure"):
        await connect(live, authority.trusting())
    await live.connections(0)


async def test_a_wait_over_tls_ends_when_its_client_has_said_all(serve: Serve, authority: Authority) -> None:
    live = await serve(**authority.serving())
    hurry = asyncio.Event()
    async with AsyncClient(f"https://localhost:{live.port}", ca=authority.ca) as client:
        waiting = asyncio.ensure_future(
            client.exchange(GetJob(name="a", connection="wait", timeout=60_000), hurry=hurry)
        )
        await live.waiting(1)
        hurry.set()
        with pytest.raises(Exception, match="404 No job found"):
            await waiting
        assert (await client.call(CreateJob(name="a"))).job_id == 1
    await live.connections(0)


async def test_the_name_of_a_client_is_known_where_its_certificate_is_good(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    live = await serve(**authority.serving(), tls_client_ca=str(authority.ca))

    def names() -> list[str]:
        transports = [each._transport for each in live.server._connections.open]
        return [transport.get_extra_info(CERTIFICATE_NAME, "") for transport in transports]

    async with await connect(
        live, authority.trusting()
    ) as talk:  # without one it is let in, and needs a token
        assert (await talk.ask("Ping")).code == 200
        assert names() == [""]
    await live.connections(0)
    context = authority.trusting()
    context.load_cert_chain(*authority.sign("deploy"))
    async with await connect(live, context) as talk:
        assert (await talk.ask("Ping")).code == 200
        assert names() == ["deploy"]
    await live.connections(0)
    stranger = authority.trusting()
    stranger.load_cert_chain(*Authority(tmp_path / "other").sign("deploy"))
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
        async with await connect(live, stranger) as talk:
            await talk.ask("Ping")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls_cert": "missing.pem"}, r"tls_cert: missing.pem: cannot be read: No such file"),
        ({"tls_key": "key.pem"}, "tls_cert: expected the server's certificate together with tls_key"),
        (
            {"tls_cert": str(Path(__file__).with_name("talk.py"))},
            r"^tls_cert: .*talk.py: expected a certificate in PEM, which begins with -----BEGIN"
            r" CERTIFICATE-----; there is none in it$",
        ),
    ],
)
async def test_what_cannot_be_used_is_told_at_the_start(
    serve: Serve, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(StartError, match=words) as caught:
        await serve(**settings)
    assert caught.value.status == 2


async def test_files_that_do_not_fit_are_told_with_their_option(serve: Serve, authority: Authority) -> None:
    """OpenSSL alone would say ``PEM lib``."""
    cert, key = authority.sign("one", "localhost")
    _, other = authority.sign("two", "localhost")
    folder = authority.folder
    der, missing, locked, damaged = (folder / name for name in ("a.der", "none.key", "locked.key", "bad.pem"))
    der.write_bytes(
        ssl.PEM_cert_to_DER_cert(cert.read_text().partition("-----END")[0] + "-----END CERTIFICATE-----\n")
    )
    damaged.write_text("-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n")
    locking = ("-aes256", "-passout", "pass:secret")
    locked.write_bytes(await output_of("openssl", "pkey", "-in", str(key), *locking))
    older = folder / "older.key"
    older.write_text(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n-----END RSA PRIVATE KEY-----\n"
    )
    pem = r"in PEM, which begins with -----BEGIN"
    for given, words in (
        (
            {"tls_cert": der, "tls_key": key},
            rf"tls_cert: {der}: expected a certificate {pem} .*; it is in DER",
        ),
        ({"tls_cert": cert}, rf"tls_key: {cert}: expected a key {pem} PRIVATE KEY-----; there is none in it"),
        ({"tls_cert": cert, "tls_key": cert}, rf"tls_key: {cert}: expected a key {pem}"),
        ({"tls_cert": cert, "tls_key": missing}, rf"tls_key: {missing}: cannot be read: No such file"),
        ({"tls_cert": cert, "tls_key": locked}, rf"tls_key: {locked}: expected a key without a passphrase"),
        ({"tls_cert": cert, "tls_key": older}, rf"tls_key: {older}: expected a key without a passphrase"),
        (
            {"tls_cert": cert, "tls_key": other},
            rf"tls_key: {other}: expected the key of the certificate {cert}; it is that of another one",
        ),
        ({"tls_cert": damaged, "tls_key": key}, rf"tls_cert: {damaged} and {key}: .*; the content is dam"),
        (
            {"tls_cert": cert, "tls_key": key, "tls_client_ca": key},
            rf"tls_client_ca: {key}: expected a certificate {pem}",
        ),
        ({"tls_cert": cert, "tls_key": key, "tls_client_ca": folder}, "tls_client_ca: .*: Is a directory"),
    ):
        with pytest.raises(StartError, match=f"^{words}"):
            await serve(**{name: str(path) for name, path in given.items()})


async def test_curl_and_openssl(serve: Serve, authority: Authority) -> None:
    live = await serve(**authority.serving(), tls_client_ca=str(authority.ca))
    cert, key = authority.sign("deploy")
    files = ["--cacert", str(authority.ca), "--cert", str(cert), "--key", str(key)]
    url = f"https://localhost:{live.port}/CreateJob"
    assert await output_of("curl", "-sS", *files, url, "-d", '{"name":"a"}') == b'{"jobID":1}'
    files = ["-CAfile", str(authority.ca), "-verify_return_error", "-cert", str(cert), "-key", str(key)]
    where = f"localhost:{live.port}"
    asked = b"QueryJob\r\njobID: 1\r\nConnection: close\r\n\r\n"
    printed = await output_of("openssl", "s_client", "-quiet", "-connect", where, *files, given=asked)
    assert printed.startswith(b"200 OK\r\nConnection: close\r\n")


async def output_of(program: str, *arguments: str, given: bytes = b"") -> bytes:
    """Return what a program prints."""
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}")
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        # A program that reads nothing may end before a pipe could be written.
        stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(given or None), DEADLINE_S)
    assert out, errors
    return out
