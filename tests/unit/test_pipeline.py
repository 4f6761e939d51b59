"""The order of a raw connection, without a socket: which commands start when, and which replies are lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.config import NAMES_AT_ONCE, READS_PIPELINED_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.waiters import Waiter
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.protocol.pipeline import Exchange, Pipeline
from tests.effort import examples

SMALL = Settings(body_bytes_max=1_024, headers_max=8, pipelined_max=4)

REQUESTS: dict[str, bytes] = {
    "write": b"CreateJob\r\nname: a\r\n\r\n",
    "body": b'CreateJob\r\nContent-Length: 13\r\n\r\n{"name":"ab"}',
    "take": b"GetJob\r\nname: a\r\n\r\n",
    "take of many": b"GetJob\nname: %b\n\n" % b",".join([b"a"] * (NAMES_AT_ONCE + 1)),
    "wait": b"GetJob\nname: a\nConnection: wait\n\n",
    "read": b"Query\r\nquery: SELECT 1;\r\n\r\n",
    "presence": b"ListWorkers\n\n",
    "at once": b"\r\n\r\nPing\r\n\r\n",
    "close": b"CreateJob\r\nname: a\r\nConnection: close\r\n\r\n",
    "close read": b"Query\r\nquery: SELECT 1;\r\nConnection: Close\r\n\r\n",
    "forget": b"GetJob\r\nname: a\r\nConnection: forget\r\n\r\n",
    "unknown": b"Nonsense\r\n\r\n",
    "foreign": b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bad": b"CreateJob\r\n\r\n",
    "bad forget": b"CreateJob\r\nConnection: forget\r\n\r\n",
    "broken": b"Ping\r\nContent-Length: x\r\n\r\n",
}
"""One request of each kind that the order knows."""

REFUSED = {"unknown": b"430 ", "foreign": b"430 ", "bad": b"402 ", "bad forget": b"202 ", "broken": b"400 "}
"""The kinds that have no command, with what they are answered."""

ELSEWHERE = {"read", "presence", "close read"}
CLOSES = {"close", "close read", "forget", "bad forget", "broken", "foreign"}
BLOCKS = ELSEWHERE | CLOSES | {"wait", "take of many"}


class Peer:
    """The owner of the socket: feeds a pipeline, and answers its commands on request."""

    def __init__(self, at_once: bool = False, limits: Settings = SMALL) -> None:
        """With ``at_once`` each command is answered as soon as it is submitted."""
        self.pipeline = Pipeline(limits)
        self.at_once = at_once
        self.submitted: list[Any] = []
        self.open: list[tuple[int, Exchange]] = []
        self.answers: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self.pipeline.feed(data)
        self.turn()

    def turn(self) -> None:
        while (exchange := self.pipeline.begin()) is not None:
            if exchange.command is not None:
                self.open.append((len(self.submitted), exchange))
                self.submitted.append(exchange.command)
                if self.at_once:
                    self.answer(0, turn=False)
            self.write()
        self.pipeline.wants_turn = False

    def answer(self, place: int, *, turn: bool = True) -> None:
        number, exchange = self.open.pop(place)
        self.pipeline.answer(exchange, Answer(f'{{"n":{number}}}'))
        self.write()
        if turn and self.pipeline.wants_turn:
            self.turn()

    def write(self) -> None:
        while self.pipeline.writable:
            self.answers.append(self.pipeline.next_bytes())

    def seen(self) -> tuple[list[Any], list[bytes], bool, str]:
        return self.submitted, self.answers, self.pipeline.finished, self.pipeline.awaits


def run(
    pieces: list[bytes], choose: Callable[[int], int] = lambda _: 0, *, at_once: bool = False
) -> tuple[list[Any], list[bytes], bool, str]:
    """Feed pieces, then answer the open commands in the order that ``choose`` decides."""
    peer = Peer(at_once)
    for piece in pieces:
        peer.feed(piece)
    while peer.open:
        assert len(peer.open) <= SMALL.pipelined_max
        peer.answer(choose(len(peer.open)))
    return peer.seen()


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(at)]


fragments = st.sampled_from(
    [
        *REQUESTS.values(),
        b"\r\n",
        b"\n",
        b"Ping",
        b"GetJob",
        b"name: x",
        b": ",
        b"Connection: close",
        b"Content-Length: 3",
        b"Transfer-Encoding: chunked",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"\xff",
        b"\x00",
        b"x" * 300,
    ]
)
whole_requests = st.lists(st.sampled_from(list(REQUESTS)), max_size=12)


@given(
    st.lists(st.one_of(fragments, st.binary(max_size=4)), max_size=20),
    st.lists(st.integers(0, 1_000), max_size=6),
    st.booleans(),
)
@settings(max_examples=examples(60, night=400), deadline=None)
def test_however_it_is_cut(chosen: list[bytes], cuts: list[int], at_once: bool) -> None:
    data = b"".join(chosen)
    expected = run([data], at_once=at_once)
    assert run(cut(data, cuts), at_once=at_once) == expected
    assert run([data[n : n + 1] for n in range(len(data))], at_once=at_once) == expected


@given(whole_requests, st.data())
@settings(max_examples=examples(60, night=400), deadline=None)
def test_outcomes_in_any_order_give_the_same_answers(kinds: list[str], data: st.DataObject) -> None:
    pieces = [b"".join(REQUESTS[kind] for kind in kinds)]
    chosen = run(pieces, lambda count: data.draw(st.integers(0, count - 1)))
    assert chosen == run(pieces)
    assert chosen == run(pieces, at_once=True), "a pipeline does what its commands would do one by one"


@given(whole_requests)
def test_each_request_has_one_answer_up_to_the_one_that_closes(kinds: list[str]) -> None:
    last = next((place for place, kind in enumerate(kinds) if kind in CLOSES), None)
    expected = kinds if last is None else kinds[: last + 1]
    submitted, answers, finished, _ = run([b"".join(REQUESTS[kind] for kind in kinds)])
    assert len(submitted) == sum(kind not in REFUSED for kind in expected)
    assert len(answers) == len(expected)
    assert finished is (last is not None)
    assert [b"Connection: close" in answer for answer in answers] == [kind in CLOSES for kind in expected]


def test_a_take_whose_client_has_left_is_told_that_there_is_nothing() -> None:
    for shape, told in (
        ("job", b"404 No job found\r\n"),
        ("jobs", b"404 No job found\r\n"),
        ("then", b'{"job":null}'),
        ("then jobs", b'{"results":[{}],"jobs":[]}'),
    ):
        asked = TakeRequest(Names(frozenset("a"), ()), shape=shape, results='"results":[{}]')
        pipeline = Pipeline(SMALL)
        pipeline.feed(REQUESTS["wait"])
        exchange = pipeline.begin()
        assert exchange is not None
        assert pipeline.eof() == [exchange]
        outcome = Answer('{"jobID":1}', taken=("job",))  # type: ignore[arg-type]
        assert not pipeline.answer(exchange, outcome, waiter=Waiter(exchange, asked, 1, 0.0))
        assert told in pipeline.next_bytes()
        assert pipeline.lose() == ([], [])


def test_a_held_read_at_the_end_of_the_input_is_begun_and_must_not_wait() -> None:
    peer = Peer()
    peer.feed(REQUESTS["write"] + b"Heartbeat\nworker: w\nConnection: wait\n\n")
    (held,) = peer.pipeline.eof()
    assert held.held
    assert len(peer.open) == 1
    peer.answer(0)
    assert peer.open[0][1] is held
    assert peer.pipeline.ended


def test_the_part_that_is_awaited_behind_a_command_that_was_under_way() -> None:
    peer = Peer()
    peer.feed(REQUESTS["write"] + b"CreateJob\r\nContent-Length: 13\r\n\r\n")
    assert peer.pipeline.awaits == "", "the client has an answer to wait for"
    peer.pipeline.wants_turn = False
    number, exchange = peer.open.pop()
    peer.pipeline.answer(exchange, Answer(f"{number}"))
    peer.write()
    assert peer.pipeline.wants_turn, "whoever keeps deadlines must look"
    assert peer.pipeline.awaits == "body"


def test_a_client_too_far_ahead_is_not_read() -> None:
    peer = Peer()
    peer.feed(REQUESTS["wait"] + b"x" * SMALL.body_bytes_max)
    assert not peer.pipeline.ahead
    peer.feed(b"x")
    assert peer.pipeline.ahead


def test_few_looks_of_one_connection_are_under_way() -> None:
    """Each reply may be large, and the client may not read them."""
    pipeline = Pipeline(Settings())
    pipeline.feed(b"QueryJob\njobID: 1\n\n" * 10)
    answered = 0
    while answered < 10:
        begun = []
        while (exchange := pipeline.begin()) is not None:
            begun.append(exchange)
        assert 1 <= len(begun) <= READS_PIPELINED_MAX
        for exchange in begun:
            pipeline.answer(exchange, Answer("{}"))
            answered += 1
        while pipeline.writable:
            pipeline.next_bytes()
