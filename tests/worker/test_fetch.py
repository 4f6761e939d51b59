"""Jobs that are an HTTP request: what is sent, which statuses are success, and the limits."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, ip_network
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from bedrock_worker.policy.program import FETCH_URL, PRIVATE_TOO
from bedrock_worker.pull import TakenJob
from bedrock_worker.report.reporter import TIMED_OUT, CompletedCommand, report_of
from bedrock_worker.run.fetch_url import BODY_SHOWN_BYTES, AddressFilter, is_own, is_public, main, perform
from pydantic import ValidationError

from bedrockjobs.commands import FailJob, JobReply
from bedrockjobs.commands.options import Fetch


class Site:
    """A site that remembers what it was asked."""

    def __init__(self) -> None:
        """Answer with what ``answer`` makes."""
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.answer: Callable[[web.Request], Any] = lambda _: web.Response(text="hello")
        self.url = ""

    async def handle(self, request: web.Request) -> Any:
        """Answer one request."""
        body = await request.text()
        self.asked.append((request.method, request.path_qs, dict(request.headers), body))
        found = self.answer(request)
        return await found if asyncio.iscoroutine(found) else found


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Yield a running site."""
    running = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", running.handle)
    async with TestServer(app) as server:
        running.url = str(server.make_url("/"))
        yield running


async def fetched(url: str, **more: Any) -> int:
    return await perform(Fetch.model_validate({"url": url, **more}), private=True)


async def test_a_get(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert await fetched(f"{site.url}a?b=c") == 0
    ((method, path, headers, body),) = site.asked
    assert (method, path, body) == ("GET", "/a?b=c", "")
    assert headers["User-Agent"].startswith("bedrockjobs/")
    assert headers["Accept-Encoding"] == "identity"
    assert capsys.readouterr() == ("HTTP 200 OK\nhello\n", "")


async def test_everything_that_can_be_said(site: Site) -> None:
    headers = {"X-Token": "t", "user-agent": "mine", "Content-Type": "application/json"}
    assert await fetched(site.url, method="PUT", headers=headers, body='{"ä":1}', timeout="5s") == 0
    ((method, _, sent, body),) = site.asked
    assert (method, body) == ("PUT", '{"ä":1}')
    assert sent["X-Token"] == "t"
    assert [value for name, value in sent.items() if name.lower() == "user-agent"] == ["mine"]
    assert sent["Content-Type"] == "application/json"


@pytest.mark.parametrize("method", ["HEAD", "POST", "PATCH", "DELETE"])
async def test_methods(site: Site, method: str) -> None:
    assert await fetched(site.url, method=method) == 0
    assert site.asked[0][0] == method


@pytest.mark.parametrize(
    ("answered", "expected", "status"),
    [
        (200, [], 0),
        (204, [], 0),
        (299, [], 0),
        (404, [], 1),
        (500, [], 1),
        (404, [404], 0),
        (200, [404, 410], 1),
    ],
)
async def test_which_statuses_are_success(
    site: Site, capsys: pytest.CaptureFixture[str], answered: int, expected: list[int], status: int
) -> None:
    site.answer = lambda _: web.Response(status=answered)
    assert await fetched(site.url, status=expected) == status
    wanted = ", ".join(map(str, expected)) or "2xx"
    assert capsys.readouterr().err == (f"status {answered}, expected {wanted}\n" if status else "")


@pytest.mark.parametrize("size", [BODY_SHOWN_BYTES, BODY_SHOWN_BYTES + 1, 5_000_000])
async def test_the_beginning_of_a_large_body(
    site: Site, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    site.answer = lambda _: web.Response(body=b"x" * size)
    assert await fetched(site.url) == 0
    cut = "\n[cut]" if size > BODY_SHOWN_BYTES else ""
    assert capsys.readouterr().out == f"HTTP 200 OK\n{'x' * BODY_SHOWN_BYTES}{cut}\n"


async def test_a_body_without_an_end(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"y" * 4_096)

    site.answer = endless
    assert await fetched(site.url, timeout=20) == 0
    assert capsys.readouterr().out.endswith("y\n[cut]\n")


async def test_a_packed_body_is_not_unpacked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    site.answer = lambda _: web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
    assert await fetched(site.url) == 0
    assert capsys.readouterr().out == "HTTP 200 OK\n[body not shown: gzip]\n"


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"\xe9", "text/plain; charset=latin-1", "é"),
        (b"\xff", "text/plain; charset=utf-8", "\ufffd"),
        (b"a", "text/plain; charset=no-such", "a"),
        ("é".encode(), "application/json", "é"),
    ],
)
async def test_charsets(
    site: Site, capsys: pytest.CaptureFixture[str], body: bytes, kind: str, text: str
) -> None:
    site.answer = lambda _: web.Response(body=body, headers={"Content-Type": kind})
    assert await fetched(site.url) == 0
    assert capsys.readouterr().out == f"HTTP 200 OK\n{text}\n"


async def test_no_answer_in_time(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.answer = lambda _: asyncio.Event().wait()
    assert await fetched(site.url, timeout=1) == TIMED_OUT
    assert capsys.readouterr() == ("", "no answer within 1 s\n")


async def test_no_time_at_all(site: Site) -> None:
    assert await fetched(site.url, timeout=0) == TIMED_OUT


async def test_nobody_there(unused_tcp_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert await fetched(f"http://127.0.0.1:{unused_tcp_port}/") == 1
    assert capsys.readouterr().err.startswith("ClientConnectorError: ")


def moved(*targets: str) -> Callable[[web.Request], Any]:
    """Return answers that lead on, then one that does not."""
    left = list(targets)
    return lambda _: (
        web.Response(status=302, headers={"Location": left.pop(0)}) if left else web.Response(text="there")
    )


async def test_redirects_are_followed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.answer = moved("/b", f"{site.url}c")
    assert await fetched(f"{site.url}a") == 0
    assert [path for _, path, _, _ in site.asked] == ["/a", "/b", "/c"]
    assert capsys.readouterr().out == "HTTP 200 OK\nthere\n"


@pytest.mark.parametrize(
    "target", ["https://127.0.0.1:1/", "file:///etc/passwd", "ftp://127.0.0.1/", "data:,x"]
)
async def test_redirects_to_another_scheme_are_not(
    site: Site, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    site.answer = moved(target)
    assert await fetched(f"{site.url}a") == 1
    assert len(site.asked) == 1
    assert f"redirected from http to {target.partition(':')[0]}" in capsys.readouterr().err


async def test_redirects_have_an_end(site: Site) -> None:
    site.answer = lambda _: web.Response(status=302, headers={"Location": "/"})
    assert await fetched(site.url) == 1
    assert len(site.asked) == 5


async def test_a_redirect_that_is_expected(site: Site) -> None:
    site.answer = moved("/b")
    assert await fetched(f"{site.url}a", status=[302]) == 0
    assert len(site.asked) == 1


@pytest.mark.parametrize("more", [{"headers": {"a b": "c"}}, {"url": "http://[::1"}])
async def test_a_request_that_cannot_be_made(
    site: Site, capsys: pytest.CaptureFixture[str], more: dict[str, Any]
) -> None:
    assert await fetched(**{"url": site.url, **more}) in (1, 100)
    assert not site.asked
    assert capsys.readouterr().err


def test_a_header_brings_no_other_along() -> None:
    with pytest.raises(ValidationError):
        Fetch.model_validate({"url": "http://localhost", "headers": {"X": "a\r\nY: b"}})


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({}, "url: url is required"),
        ({"url": {"url": "ftp://x"}}, "url: url: expected"),
        ({"url": {"url": "http://x", "method": "TRACE"}}, "url: method: expected"),
    ],
)
def test_a_job_without_a_request_fails_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: Any, words: str
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    monkeypatch.setenv("BEDROCK_DATA_FILE", str(file))
    assert main() == 100
    assert capsys.readouterr().err.startswith(words)


async def test_as_a_process_it_is_strict_unless_told_otherwise(site: Site) -> None:
    job = json.dumps({"jobID": 1, "url": {"url": site.url}}).encode()
    done = await asyncio.to_thread(
        subprocess.run, FETCH_URL, input=job, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (100, b"")
    assert b"expected a public address, got 127.0.0.1" in done.stderr


async def test_as_a_process_which_takes_no_module_from_the_current_folder(site: Site, tmp_path: Path) -> None:
    assert FETCH_URL[0] == sys.executable
    for planted in ("json", "aiohttp", "bedrockjobs"):
        (tmp_path / f"{planted}.py").write_text("raise SystemExit('planted')\n")
    job = json.dumps({"jobID": 1, "url": {"url": site.url, "status": [200]}}).encode()
    done = await asyncio.to_thread(
        subprocess.run,
        (*FETCH_URL, PRIVATE_TOO),
        input=job,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"HTTP 200 OK\nhello\n", b"")


# --- only to public addresses ----------------------------------------------------------------------------


async def strict(url: str, **more: Any) -> int:
    return await perform(Fetch.model_validate({"url": url, **more}))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%lo",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:db8::1",
        "2001:0:5db8:d822::1",
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:ec2::254",
        "fec0::1",
        "::7f00:1",
        "::8.8.8.8",
        "64:ff9b:1::7f00:1",
        "64:ff9b::a83f:8110",
        "::ffff:168.63.129.16",
    ],
)
def test_addresses_that_are_not_public(host: str) -> None:
    assert not is_public(host)


@pytest.mark.parametrize(
    "host", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_addresses_that_are(host: str) -> None:
    assert is_public(host)


REACHABLE_V4 = ["192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24"]
REACHABLE_V6 = ["2620:4f:8000::/48"]
"""Special networks that IANA calls globally reachable."""

SPECIAL_V4 = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
]
SPECIAL_V6 = [
    *("::/128", "::1/128", "::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/32"),
    *("2001:2::/48", "2001:10::/28", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7"),
    *("fe80::/10", "fec0::/10", "ff00::/8"),
]
"""All other networks of IANA's registries of special and multicast addresses."""


def some_of(networks: list[str]) -> list[Any]:
    """Return the first address of each network, one in its middle, and the last."""
    found = map(ip_network, networks)
    return [one[at] for one in found for at in {0, one.num_addresses // 2, one.num_addresses - 1}]


def forms(address: IPv4Address) -> list[str]:
    """Return an IPv4 address in each way in which it can be reached."""
    high, low = divmod(int(address), 65_536)
    inside = f"{high:x}:{low:x}"
    return [str(address), f"::ffff:{address}", f"64:ff9b::{inside}", f"2002:{inside}::1"]


def test_no_special_address_is_public_in_any_form() -> None:
    special = [form for address in some_of(SPECIAL_V4) for form in forms(address)]
    special += map(str, some_of(SPECIAL_V6))
    assert [host for host in special if is_public(host)] == []
    reachable = [form for address in some_of(REACHABLE_V4) for form in forms(address)]
    reachable += map(str, some_of(REACHABLE_V6))
    assert [host for host in reachable if not is_public(host)] == [], "a control"


def test_an_address_of_this_machine_is_its_own_in_any_form() -> None:
    for host in forms(IPv4Address("127.0.0.1")):
        assert is_own(info(host)), host
    for host in forms(IPv4Address("192.0.2.1")):
        assert not is_own(info(host)), host


def test_of_several_addresses_of_a_name_only_public_ones_are_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bedrock_worker.run.fetch_url.is_own", lambda _: False)
    for hosts in permutations(["10.0.0.1", "93.184.216.34", "::ffff:127.0.0.1"]):
        door = AddressFilter(private=False)
        for host in hosts:
            if "93." in host:
                door.open_socket(info(host)).close()
                assert not door.refused
            else:
                with pytest.raises(PermissionError):
                    door.open_socket(info(host))
                assert door.refused == host


def info(host: str) -> Any:
    family, kind, protocol, name, where = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)[0]
    return family, kind, protocol, name, where


def test_an_address_of_this_machine_is_its_own() -> None:
    """Whether it is public or not: the control is one of another machine."""
    assert is_own(info("127.0.0.1"))
    assert is_own(info("127.9.9.9"))
    assert not is_own(info("192.0.2.1"))


async def test_a_public_address_of_this_machine_is_refused(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrock_worker.run.fetch_url.is_public", lambda _: True)
    assert await strict(site.url) == 100
    assert not site.asked
    assert "expected a public address, got 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "0x7f.1"])
async def test_a_name_is_judged_by_the_address_behind_it(
    site: Site, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert await strict(site.url.replace("127.0.0.1", name)) == 100
    assert not site.asked
    assert "expected a public address, got " in capsys.readouterr().err


async def test_a_redirect_is_judged_too(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first address counts as public here, and as another machine's; what it leads to does not."""
    monkeypatch.setattr("bedrock_worker.run.fetch_url.is_own", lambda _: False)
    monkeypatch.setattr("bedrock_worker.run.fetch_url.is_public", lambda host: host == "127.0.0.1")
    site.answer = moved(site.url.replace("127.0.0.1", "127.0.0.2"))
    assert await strict(site.url) == 100
    assert len(site.asked) == 1
    assert "expected a public address, got 127.0.0.2" in capsys.readouterr().err


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--allow-everything"]) == 100
    assert "got --allow-everything" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "completed", "timed_out"),
    [
        (None, CompletedCommand(-9, timed_out_s=5.0), True),
        (None, CompletedCommand(TIMED_OUT), False),
        (Fetch(url="http://localhost"), CompletedCommand(TIMED_OUT), True),
        (Fetch(url="http://localhost"), CompletedCommand(1), False),
    ],
)
def test_a_time_that_the_worker_set_is_told(
    url: Fetch | None, completed: CompletedCommand, timed_out: bool
) -> None:
    job = TakenJob("", JobReply.model_construct(job_id=1, run_id=101, url=url))
    report = report_of(job, completed, None)
    assert isinstance(report, FailJob)
    assert report.timed_out is timed_out
