"""The credentials that the clients present to a server, and how they verify it."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.client import AsyncClient, Client, ServerNotTrusted, ServerUnreachable
from bedrockjobs.client.address import TOKEN_FILE_BYTES_MAX
from bedrockjobs.commands import CreateJob, GetJobs, Ping
from tests.certificates import Authority
from tests.unit.client_kinds import Blocking
from tests.worker.fake_server import FakeServer

VARIABLES = ("TOKEN", "TOKEN_FILE", "CA", "CERT", "KEY")
OLD, NEW = "bj_old", "bj_new"


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr("bedrockjobs.client.base.BACKOFF_FIRST_S", 0.001)
    monkeypatch.delenv("BEDROCK_TOKEN", raising=False)
    for name in VARIABLES:
        monkeypatch.delenv(f"BEDROCKJOBS_{name}", raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return a certificate authority."""
    return Authority(tmp_path / "tls")


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[FakeServer]:
    """Yield a server with TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(*authority.serving().values())
    async with FakeServer(tls=context) as running:
        yield running


@pytest.fixture(params=[Blocking, AsyncClient], ids=["blocking", "async"])
def kind(request):
    """Yield both clients."""
    return request.param


def shown(server: FakeServer) -> list[list[str]]:
    """Return the header with the credentials of each request."""
    return [[line for line in each.head if line.startswith("Authorization")] for each in server.requests]


async def test_a_token_goes_with_each_request_over_a_verified_connection(server, kind, authority):
    async with kind(server.address, token=OLD, ca=authority.ca) as client:
        assert (await client.call(CreateJob(name="Foo", data={"a": "x" * 300_000}))).job_id == 1
        found = await client.call(GetJobs(names=["F*"], num_results=5, worker="w"))
        assert len(found.jobs[0].data["a"]) == 300_000
        await client.call(Ping())
    assert shown(server) == [[f"Authorization: Bearer {OLD}"]] * 3
    assert server.connections == 1


async def test_without_a_token_none_is_sent(server, kind, monkeypatch, authority):
    monkeypatch.setenv("BEDROCKJOBS_CA", str(authority.ca))
    async with kind(server.address) as client:
        await client.call(Ping())
    assert shown(server) == [[]]


async def test_one_that_is_not_trusted_is_told_at_once_and_sent_nothing(server, kind, authority, tmp_path):
    async with kind(server.address, token=OLD) as client:
        with pytest.raises(ServerNotTrusted, match=r"not trusted: .*certificate.*; --ca names the file"):
            await client.call(Ping())
    async with kind(server.address.replace("127.0.0.1", "127.0.0.2"), ca=authority.ca) as client:
        with pytest.raises(ServerUnreachable):
            await client.call(Ping())
    stranger = Authority(tmp_path / "other")
    async with kind(server.address, ca=stranger.ca, tries=50) as client:
        with pytest.raises(ServerNotTrusted):
            await client.call(Ping())
    assert not server.requests


async def test_the_name_of_the_server_is_verified(server, kind, authority):
    cert, key = authority.sign("elsewhere", "jobs.example.com")
    server.tls.load_cert_chain(cert, key)
    async with kind(server.address, ca=authority.ca) as client:
        with pytest.raises(ServerNotTrusted, match="IP address mismatch"):
            await client.call(Ping())


async def test_a_server_without_tls_is_no_server_with_tls(kind):
    async with FakeServer() as plain, kind(f"https://{plain.address}", tries=1) as client:
        with pytest.raises(ServerUnreachable, match=r"cannot connect to https://127\.0\.0\.1:"):
            await client.call(Ping())


async def test_a_certificate_of_the_client_is_shown(server, kind, authority):
    server.tls.verify_mode = ssl.CERT_REQUIRED
    cert, key = authority.sign("deploy")
    async with kind(server.address, ca=authority.ca, cert=cert, key=key) as client:
        await client.call(Ping())
    async with kind(server.address, ca=authority.ca, tries=1) as client:
        with pytest.raises(ConnectionError):
            await client.call(Ping())


async def test_a_file_with_another_token_is_tried_once_more(kind, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{OLD}\n")
    async with FakeServer() as server, kind(server.address, token_file=file) as client:
        server.refusals["Ping"] = deque(["403 Forbidden"] * 3)
        with pytest.raises(Forbidden):  # nothing has changed
            await client.call(Ping())
        file.write_text(NEW)
        with pytest.raises(Forbidden):  # once
            await client.call(Ping())
        await client.call(Ping())
        file.unlink()
        server.refusals["Ping"] = deque(["403 Forbidden"])
        with pytest.raises(Forbidden):
            await client.call(Ping())
    sent = [words[0].split()[-1] for words in shown(server)]
    assert sent == [OLD, OLD, NEW, NEW, NEW]


async def test_files_are_read_again_when_that_is_asked_for(server, authority, tmp_path):
    file = tmp_path / "token"
    file.write_text(OLD)
    async with AsyncClient(server.address, token_file=file, ca=authority.ca, tries=1) as client:
        await client.call(Ping())
        stranger = Authority(tmp_path / "other")
        file.write_text(NEW)
        kept = authority.ca.read_bytes()
        authority.ca.write_text("none")
        with pytest.raises(ValueError, match="expected a certificate in PEM"):
            client.renew()
        await client.call(Ping())
        authority.ca.write_bytes(stranger.ca.read_bytes())
        client.renew()
        client._pool.take(None)  # closes idle connections
        with pytest.raises(ServerNotTrusted):
            await client.call(Ping())
        authority.ca.write_bytes(kept)
        client.renew()
        await client.call(Ping())
    assert [words[0].split()[-1] for words in shown(server)] == [OLD, OLD, NEW]


@pytest.mark.parametrize(
    ("given", "variables", "sent"),
    [
        ({}, {"BEDROCKJOBS_TOKEN": "bj_a"}, "bj_a"),
        ({}, {"BEDROCKJOBS_TOKEN_FILE": "file"}, "bj_of_file"),
        ({}, {"BEDROCKJOBS_TOKEN": "bj_a", "BEDROCKJOBS_TOKEN_FILE": "file"}, "bj_a"),
        ({}, {"BEDROCK_TOKEN": "bj_run", "BEDROCKJOBS_TOKEN_FILE": "file"}, "bj_of_file"),
        ({}, {"BEDROCK_TOKEN": "bj_run"}, "bj_run"),
        ({"token": "bj_b"}, {"BEDROCKJOBS_TOKEN": "bj_a"}, "bj_b"),
        ({"token_file": "file"}, {"BEDROCKJOBS_TOKEN": "bj_a"}, "bj_of_file"),
        ({"token": ""}, {"BEDROCKJOBS_TOKEN": "bj_a"}, None),
    ],
)
async def test_where_a_token_comes_from(given, variables, sent, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("bj_of_file\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with FakeServer() as server, kind(server.address, **given) as client:
        await client.call(Ping())
    assert shown(server) == [[] if sent is None else [f"Authorization: Bearer {sent}"]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"token": "bj_a\r\nname: b"}, r"^token: expected one token like bj_… and nothing else$"),
        ({"token_file": "missing"}, r"^token file missing: cannot be read: No such file or directory$"),
        ({"token_file": "large"}, rf"^token file large: expected at most {TOKEN_FILE_BYTES_MAX} bytes$"),
        ({"token_file": "two"}, r"^token file two: expected one token like"),
        ({"ca": "two"}, r"^ca: two: expected a certificate in PEM, which begins with -----BEGIN CERTIFICATE"),
        ({"cert": "two"}, r"^cert: two: expected a certificate in PEM, which .*; there is none in it$"),
        ({"key": "two"}, r"^key: two: a key needs its certificate$"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_is_sent(given, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").write_text("x" * (TOKEN_FILE_BYTES_MAX + 1))
    (tmp_path / "two").write_text("bj_secret\nbj_other\n")
    with pytest.raises(ValueError, match=words) as caught:
        Client("https://127.0.0.1:1", **given)
    assert "secret" not in str(caught.value)
