"""The parts of the clients: replies in pieces, addresses, idle connections, errors by status."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bedrockjobs.base.errors import (
    ERRORS,
    CommandError,
    MockMismatch,
    NotFound,
    ServerFault,
    UnexpectedAnswer,
    error_for,
)
from bedrockjobs.client import Address, UnixAddress, addresses_of, backoff_s
from bedrockjobs.client.base import BACKOFF_MAX_S, IDLE_MAX, Pool
from bedrockjobs.client.exchange import AnswerReader, MalformedAnswer, answer_s, request_bytes
from bedrockjobs.commands import CreateJob, GetJobs

ANSWER = b"404 No job found\r\nContent-Length: 3\r\nerror: a: b\r\nConnection: close\r\n\r\n{ }"


@pytest.mark.parametrize("size", [1, 2, 7, len(ANSWER)])
def test_answer_in_pieces(size):
    reader = AnswerReader()
    read = [reader.feed(ANSWER[at : at + size]) for at in range(0, len(ANSWER), size)]
    assert read[:-1] == [None] * (len(read) - 1)
    answer = read[-1]
    assert (answer.code, answer.reason, answer.body, answer.closing) == (404, "No job found", b"{ }", True)
    with pytest.raises(NotFound, match="404 No job found: a: b"):
        answer.check()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "expected a status line like '200 OK', got 'HTTP/1.1 200 OK'"),
        (b"\r\n\r\n", "expected a status line"),
        (b"200 OK\r\nno colon\r\n\r\n", "a header line has no colon: 'no colon'"),
        (b"200 OK\r\n\r\n", "expected Content-Length with a number, got ''"),
        (b"200 OK\r\nContent-Length: -1\r\n\r\n", "expected Content-Length with a number, got '-1'"),
        (b"200 OK\r\nContent-Length: 1001\r\n\r\n", "its 1001 bytes are over the limit of 1000"),
        (b"200 OK\r\nContent-Length: 2\r\n\r\n{}200", "3 bytes came after the answer"),
        (b"x" * 70_000, "its head is larger than 65536 bytes"),
    ],
)
def test_malformed_answers(data, words):
    reader = AnswerReader(1000)
    with pytest.raises(MalformedAnswer, match=words):
        _ = [reader.feed(data[at : at + 5_000]) for at in range(0, len(data), 5_000)]


def test_request():
    command = CreateJob(name="é", data='{"a":2.50}')
    body = '{"data":{"a":2.50},"name":"é"}'.encode()
    assert request_bytes(command) == b"CreateJob\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 30),
        ({"timeout": 5_000}, 30),
        ({"connection": "Wait"}, 90),
        ({"connection": "wait", "timeout": 500}, 30.5),
    ],
)
def test_time_for_an_answer(given, seconds):
    assert answer_s(GetJobs(names=["a"], num_results=1, **given)) == seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:1", [Address("localhost", 1)]),
        ("http://h:2/", [Address("h", 2)]),
        ("h", [Address("h", 8888)]),
        ("bedrock://h", [Address("h", 8888)]),
        ("https://h,HTTPS://[::1]:443/", [Address("h", 8888, tls=True), Address("::1", 443, tls=True)]),
        ("bedrocks://h:1, h:1", [Address("h", 1, tls=True), Address("h", 1)]),
        ("[::1]:3", [Address("::1", 3)]),
        ("::1", [Address("::1", 8888)]),
        ("a, b:2", [Address("a", 8888), Address("b", 2)]),
        (["a", "b:2"], [Address("a", 8888), Address("b", 2)]),
        ("unix:8", [Address("unix", 8)]),
        ("unix:/run/j.sock", [UnixAddress("/run/j.sock")]),
        ("UNIX:///run/my jobs, h", [UnixAddress("/run/my jobs"), Address("h", 8888)]),
        (f"unix:/{'x' * 106}", [UnixAddress(f"/{'x' * 106}")]),
    ],
)
def test_addresses(text, found):
    assert list(addresses_of(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://h",
        "h:0",
        "h:65536",
        "h:1/path",
        "h:x",
        "a@b",
        "a,,b",
        " ",
        [],
        "unix:",
        "unix:/",
        "unix:j.sock",
        "unix:/folder/",
        "unix:/a\0b",
        f"unix:/{'x' * 107}",
        "/run/j.sock",
    ],
)
def test_bad_addresses(text):
    with pytest.raises(ValueError, match=r"^server: expected "):
        addresses_of(text)


def test_bad_addresses_name_every_form():
    with pytest.raises(ValueError, match=r"host:port, .* or unix:/path, got 'unix:j.sock'$"):
        addresses_of("unix:j.sock")
    assert [str(address) for address in addresses_of("h:1,unix:/run/j.sock,https://[::1]")] == [
        *("h:1", "unix:/run/j.sock", "https://[::1]:8888")
    ]


def test_address_from_the_environment(monkeypatch):
    monkeypatch.delenv("BEDROCKJOBS_SERVER", raising=False)
    monkeypatch.delenv("BEDROCK_SERVER", raising=False)
    assert addresses_of() == (Address("127.0.0.1", 8888),)
    monkeypatch.setenv("BEDROCK_SERVER", "https://h:9")
    assert addresses_of() == (Address("h", 9, tls=True),)
    monkeypatch.setenv("BEDROCKJOBS_SERVER", "[::1]:9")
    assert [str(address) for address in addresses_of()] == ["[::1]:9"]


def test_backoff_grows_to_its_limit():
    assert all(0.05 <= backoff_s(1) <= 0.1 for _ in range(50))
    assert all(BACKOFF_MAX_S / 2 <= backoff_s(1_000_000) <= BACKOFF_MAX_S for _ in range(50))


HERE = Address("a", 1)


@dataclass(eq=False)
class Kept:
    """A fake idle connection."""

    address: Address = HERE
    is_reusable: bool = True
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def test_pool_gives_the_connection_used_last_to_the_address_asked_for():
    pool: Pool[Kept] = Pool()
    older, newer, stale, elsewhere = Kept(), Kept(), Kept(), Kept(Address("b", 1))
    for connection in (older, newer, stale, elsewhere):
        pool.give_back(connection, reusable=True)
    stale.is_reusable = False
    assert [pool.take(HERE) for _ in range(3)] == [newer, older, None]
    assert (stale.closed, elsewhere.closed) == (True, True)
    assert (older.closed, newer.closed) == (False, False)


def test_pool_keeps_what_is_reusable_up_to_a_number_and_nothing_once_it_is_closed():
    pool: Pool[Kept] = Pool()
    broken, *kept, one_more, late = [Kept() for _ in range(IDLE_MAX + 3)]
    pool.give_back(broken, reusable=False)
    for connection in (*kept, one_more):
        pool.give_back(connection, reusable=True)
    assert [it.closed for it in (broken, one_more, *kept)] == [True, True, *[False] * IDLE_MAX]
    pool.close()
    pool.give_back(late, reusable=True)
    assert all(it.closed for it in (*kept, late))
    with pytest.raises(RuntimeError, match="closed"):
        pool.take(HERE)


def test_error_for_a_status_line_is_the_one_that_the_server_raised():
    """Two errors share the code 500: a fault of the server, and a refusal of the command."""
    for kind in ERRORS:
        assert type(error_for(kind.code, kind.default_reason)) is kind
    assert type(error_for(500, "Anything else")) is ServerFault
    assert type(error_for(999, "Mock Mismatch")) is UnexpectedAnswer


def test_retryable_are_the_errors_that_say_nothing_of_the_command():
    retryable = {kind.code for kind in ERRORS if kind.retryable}
    assert retryable == {429, 500, 503, 555}
    assert not any(kind.retryable for kind in (CommandError, MockMismatch, UnexpectedAnswer))
