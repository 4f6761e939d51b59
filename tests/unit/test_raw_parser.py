"""The raw parser: bytes whole, one at a time or cut anywhere give the same; it raises only refusals."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.errors import BadRequest, NotFound, TooLarge
from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol import raw
from tests.effort import examples

SMALL = Settings(body_bytes_max=1_024, headers_max=8)

Event = tuple[str, dict[str, str], str] | str


def events(pieces: list[bytes], limits: Settings = SMALL) -> list[Event]:
    """Return the requests, and the refusal that ends them, of bytes that come in pieces."""
    parser, found = raw.RawParser(limits), list[Event]()
    for piece in pieces:
        parser.feed(piece)
        while True:
            try:
                request = parser.next_request()
            except (BadRequest, TooLarge) as error:
                found.append(error.status_line)
                break
            if request is None:
                break
            found.append((request.verb, request.headers, request.body))
    assert parser.broken is any(isinstance(each, str) for each in found)
    return found


def whole(text: str | bytes) -> list[Event]:
    data = text.encode() if isinstance(text, str) else text
    found = events([data])
    assert found == events([data[at : at + 1] for at in range(len(data))]), "byte by byte it is the same"
    return found


def one(text: str | bytes) -> tuple[str, dict[str, str], str]:
    (event,) = whole(text)
    assert not isinstance(event, str)
    return event


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_request(end: str) -> None:
    text = end.join(["CreateJob", "name: foo", 'data: {"a":1}', "", ""])
    assert one(text) == ("CreateJob", {"name": "foo", "data": '{"a":1}'}, "")


def test_mixed_line_ends() -> None:
    assert one("Ping\na: b\r\n\nGet")[:2] == ("Ping", {"a": "b"})


@pytest.mark.parametrize(
    ("line", "header"),
    [
        ("name:foo", ("name", "foo")),
        ("name :  a b  ", ("name", "a b")),
        ("NAME: x", ("name", "x")),
        ("name:", ("name", "")),
        ("name: a: b", ("name", "a: b")),
        ("name: a\\tb", ("name", "a\tb")),
        ('name: say \\"hi\\"', ("name", 'say "hi"')),
        ("name: \\\\", ("name", "\\")),
        ("name: \\u00e9", ("name", "é")),
        ("name: \\ud83d\\ude00", ("name", "😀")),
        ("name: \\x", ("name", "x")),
        ("name: end\\", ("name", "end\\")),
        ("name: smörgås", ("name", "smörgås")),
    ],
)
def test_header_lines(line: str, header: tuple[str, str]) -> None:
    assert one(f"Ping\r\n{line}\r\n\r\n")[1] == dict([header])


def test_odd_headers() -> None:
    assert one("Ping\r\nname: d1\r\nname: d2\r\n\r\n")[1] == {"name": "d2"}
    assert one("Ping\r\nname: fold\r\n ed\r\n\tagain\r\n\r\n")[1] == {"name": "fold ed again"}
    assert one("Ping\r\ngarbage\r\nname: x\r\n\r\n")[1] == {"name": "x"}
    assert one("Ping\r\n folded onto nothing\r\n\r\n")[1] == {}


@pytest.mark.parametrize(
    ("line", "verb"),
    [
        ("Ping", "Ping"),
        ("CreateJob foo bar", "CreateJob"),
        ("GetJob / HTTP/1.1", "GetJob"),
        (" Ping ", "Ping"),
    ],
)
def test_verbs(line: str, verb: str) -> None:
    assert one(f"{line}\r\n\r\n")[0] == verb


def test_a_query_as_the_method_line() -> None:
    assert one("Query: SELECT 1;\r\nformat: json\r\n\r\n") == (
        "Query",
        {"query": "SELECT 1;", "format": "json"},
        "",
    )


def test_blank_lines_before_a_request() -> None:
    assert [event[0] for event in whole("\r\n\n\r\nPing\r\n\r\n\r\n\r\nPing\n\n\n\n")] == ["Ping", "Ping"]


def test_bodies() -> None:
    assert one("Ping\r\nContent-Length: 5\r\n\r\nab\r\nc")[2] == "ab\r\nc"
    assert one("Ping\r\nContent-Length: 0\r\n\r\n")[2] == ""
    assert one("Ping\r\nContent-Length:\r\n\r\n")[2] == ""
    assert one("Ping\r\nContent-Length: 4\r\n\r\n😀")[2] == "😀"
    assert (
        one("Ping\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n")[2]
        == "a0123456789"
    )
    assert one("Ping\nTransfer-Encoding: chunked\n\n2\nab\n0\n\n")[2] == "ab"


def test_requests_behind_each_other() -> None:
    two = "Ping\r\nContent-Length: 2\r\n\r\nabCreateJob\r\nname: x\r\n\r\n"
    assert [event[0] for event in whole(two * 3)] == ["Ping", "CreateJob"] * 3


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"P" * 1_027, "413 Request too large"),
        (b"Ping\r\na: " + b"x" * 1_100 + b"\r\n\r\n", "413 Request too large"),
        (b"Ping\r\n" + b"a: b\r\n" * 9 + b"\r\n", "400 Too many headers"),
        (b"Ping\r\nContent-Length: 1025\r\n\r\n", "413 Request too large"),
        (b"Ping\r\nContent-Length: abc\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nContent-Length: +1\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nContent-Length: 1\r\nx: y\r\ncontent-length: 1\r\n\r\na", "400 Malformed Content-Length"),
        (b"Ping\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n", "400 Malformed chunk"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n", "413 Request too large"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "400 Malformed chunk"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1;" + b"x" * 1_100, "400 Malformed chunk"),
        (b"\xff\r\n\r\n", "400 Malformed request"),
        (b"Ping\r\nContent-Length: 1\r\n\r\n\xff", "400 Malformed request"),
    ],
)
def test_what_breaks_a_connection(data: bytes, line: str) -> None:
    assert whole(data)[-1] == line
    assert whole(data + request_behind)[-1] == line, "nothing behind it is read"


request_behind = b"\r\n\r\nPing\r\n\r\n"


def test_limits_are_exact() -> None:
    head = b"Ping\r\na: " + b"x" * (1_024 - 9)
    assert not isinstance(whole(head + b"\n\n")[0], str)
    assert whole(head + b"x\n\n") == ["413 Request too large"]
    assert not isinstance(whole(b"Ping\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1_024)[0], str)
    chunked = b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + b"x" * 1_024 + b"\r\n0\r\n\r\n"
    assert not isinstance(whole(chunked)[0], str)


def test_a_broken_parser_keeps_nothing() -> None:
    parser = raw.RawParser(SMALL)
    parser.feed(b"\xff\n\n")
    with pytest.raises(BadRequest):
        parser.next_request()
    parser.feed(b"x" * 10_000)
    assert not parser.buffer
    assert parser.next_request() is None


def test_what_is_awaited() -> None:
    parser = raw.RawParser(SMALL)
    for data, awaits in ((b"\r\n", ""), (b"Pi", "head"), (b"ng\r\nContent-Length: 1\r\n\r\n", "body")):
        parser.feed(data)
        assert parser.next_request() is None
        assert parser.awaits == awaits
    parser.feed(b"x\r\n")
    assert parser.next_request() is not None
    assert parser.next_request() is None
    assert parser.awaits == ""


parts = st.sampled_from(
    [
        b"Ping",
        b"CreateJob",
        b"\r\n",
        b"\n",
        b"\r",
        b"name: x",
        b": ",
        b"Content-Length: 3",
        b"Content-Length: 0",
        b"Transfer-Encoding: chunked",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"abc",
        b"\\u00e9",
        b"\\ud800",
        b"\xff",
        b"\xc3\xa9",
        b"\x00",
        b" ",
        b"\t",
        b"\r\n\r\n",
        b"Query: SELECT 1;",
        b"a:b",
        b"POST / HTTP/1.1",
        b"x" * 300,
    ]
)


@given(
    st.lists(st.one_of(parts, st.binary(max_size=4)), max_size=25), st.lists(st.integers(0, 500), max_size=6)
)
@settings(max_examples=examples(48, night=1_000), deadline=None)
def test_however_it_is_cut(chosen: list[bytes], cuts: list[int]) -> None:
    data = b"".join(chosen)
    at = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in pairwise(at)]
    expected = events([data])
    assert events(pieces) == expected
    assert events([data[n : n + 1] for n in range(len(data))]) == expected


def test_answers() -> None:
    assert raw.answer("") == b"200 OK\r\nContent-Length: 0\r\n\r\n"
    assert raw.answer('"é"', "close") == b'200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"\xc3\xa9"'


def test_refusals() -> None:
    assert raw.refusal(NotFound("No job found")) == b"404 No job found\r\nContent-Length: 0\r\n\r\n"
    assert raw.refusal(NotFound("x", "a\r\nSet: evil\r\n\r\nb"), "close") == (
        b"404 x\r\nConnection: close\r\nerror: a Set: evil b\r\nContent-Length: 0\r\n\r\n"
    )
    assert len(raw.refusal(NotFound("x", "y" * 100_000))) < 1_100
    assert b"\xed" not in raw.refusal(NotFound("x", "\ud800"))
