"""The order of a raw connection, without a socket: what begins when, what is answered, what is lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bedrockjobs.base.config import Settings
from bedrockjobs.base.errors import NotFound
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.protocol.first_line import HTTP_METHODS, FirstLine
from bedrockjobs.protocol.pipeline import Exchange, Pipeline

SMALL = Settings(body_bytes_max=1_024, headers_max=8, pipelined_max=4)

REQUESTS: dict[str, bytes] = {
    "write": b"CreateJob\r\nname: a\r\n\r\n",
    "body": b'CreateJob\r\nContent-Length: 13\r\n\r\n{"name":"ab"}',
    "take": b"GetJob\r\nname: a\r\n\r\n",
    "wait": b"GetJob\nname: a\nConnection: wait\n\n",
    "read": b"Query\r\nquery: SELECT 1;\r\n\r\n",
    "presence": b"ListWorkers\n\n",
    "at once": b"\r\n\r\nPing\r\n\r\n",
    "close": b"CreateJob\r\nname: a\r\nConnection: close\r\n\r\n",
    "close read": b"Query\r\nquery: SELECT 1;\r\nConnection: Close\r\n\r\n",
    "forget": b"GetJob\r\nname: a\r\nConnection: forget\r\n\r\n",
    "unknown": b"Nonsense\r\n\r\n",
    "bad": b"CreateJob\r\n\r\n",
    "bad forget": b"CreateJob\r\nConnection: forget\r\n\r\n",
    "broken": b"Ping\r\nContent-Length: x\r\n\r\n",
}
"""One request of each kind that the order knows."""

REFUSED = {"unknown": b"430 ", "bad": b"402 ", "bad forget": b"202 ", "broken": b"400 "}
"""The kinds that have no command, with what they are answered."""

ELSEWHERE = {"read", "presence", "close read"}
CLOSES = {"close", "close read", "forget", "bad forget", "broken"}
BLOCKS = ELSEWHERE | CLOSES | {"wait"}
OFTEN = [*REQUESTS, *3 * ["write", "body", "take", "take", "wait", "read", "presence", "at once"]]
"""What a client asks for: mostly what leaves the connection open."""


class Peer:
    """Whoever has the socket: feeds a pipeline, and answers its commands when it is told to."""

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
    """Feed pieces, then answer the open command that ``choose`` picks, until none is open."""
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
    [*REQUESTS.values(), b"\r\n", b"\n", b"Ping", b"GetJob", b"name: x", b": ", b"Connection: close",
     b"Content-Length: 3", b"Transfer-Encoding: chunked", b"3\r\nabc\r\n", b"0\r\n\r\n", b"\xff", b"\x00",
     b"x" * 300]
)  # fmt: skip
whole_requests = st.lists(st.sampled_from(list(REQUESTS)), max_size=12)


@given(
    st.lists(st.one_of(fragments, st.binary(max_size=4)), max_size=20),
    st.lists(st.integers(0, 1_000), max_size=6),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_however_it_is_cut(chosen: list[bytes], cuts: list[int], at_once: bool) -> None:
    data = b"".join(chosen)
    expected = run([data], at_once=at_once)
    assert run(cut(data, cuts), at_once=at_once) == expected
    assert run([data[n : n + 1] for n in range(len(data))], at_once=at_once) == expected


@given(whole_requests, st.data())
@settings(max_examples=400, deadline=None)
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


SOME = 2
"""Answers that a connection of the machine has had before it may end, so that most have a life."""


class Connection(RuleBasedStateMachine):
    """A connection to which everything happens that can; every taken job is accounted for once."""

    def __init__(self) -> None:
        super().__init__()
        self.pipeline = Pipeline(SMALL)
        self.kinds: list[str] = []
        """What the client has asked for."""
        self.unfed = b""
        self.asked = b""
        self.fed = 0
        self.begun: list[str] = []
        self.open: list[tuple[int, str, Exchange]] = []
        self.done: set[int] = set()
        self.written: list[bytes] = []
        self.tokens = 0
        self.kept: list[str] = []
        """Jobs that the pipeline has to deliver or to give back."""
        self.buffered: list[str] = []
        """Jobs whose answers are written and not known to be sent."""
        self.stalls = self.ended = self.lost = self.expired = self.draining = False

    # --- the client --------------------------------------------------------------------------------------

    @rule(kinds=st.lists(st.sampled_from(OFTEN), min_size=1, max_size=4), sent=st.booleans())
    def ask(self, kinds: list[str], sent: bool) -> None:
        data = b"".join(REQUESTS[kind] for kind in kinds)
        self.kinds += kinds
        self.asked += data
        self.unfed += data
        if sent and not self.ended and not self.lost:
            self.send(len(self.unfed))

    @precondition(lambda self: self.unfed and not self.ended and not self.lost)
    @rule(count=st.integers(1, 120))
    def send(self, count: int) -> None:
        self.pipeline.feed(self.unfed[:count])
        self.fed += len(self.unfed[:count])
        self.unfed = self.unfed[count:]
        self._turn()

    @precondition(lambda self: not self.ended and not self.lost)
    @rule()
    def end(self) -> None:
        self.ended = True
        assert self.pipeline.eof() == [each for _, kind, each in self.open if kind == "wait"]
        self._turn()

    @rule()
    def stop_reading(self) -> None:
        """The next answer is not sent whole."""
        self.stalls = True

    @precondition(lambda self: self.pipeline.paused)
    @rule()
    def read(self) -> None:
        self.stalls = False
        self.buffered.clear()
        self.pipeline.resume()
        self._turn()

    # --- the server --------------------------------------------------------------------------------------

    @precondition(lambda self: self.open)
    @rule(data=st.data(), takes=st.sampled_from([True, True, False]), waited=st.booleans())
    def answer(self, data: st.DataObject, takes: bool, waited: bool) -> None:
        number, kind, exchange = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.done.add(number)
        self.tokens += 1
        token = f"job{self.tokens}"
        outcome = Answer(f'{{"n":{number},"token":"{token}"}}', taken=(token,) if takes else ())  # type: ignore[arg-type]
        delivered = self.pipeline.answer(exchange, outcome, waited=waited and kind == "wait")
        if kind == "forget" or self.lost:
            assert not delivered
        elif self.ended and waited and kind == "wait" and takes:
            assert not delivered, "who has left gets no job"
        else:
            assert delivered
            if takes:
                self.kept.append(token)
        self._write()
        if self.pipeline.wants_turn:
            self._turn()

    @precondition(lambda self: len(self.written) >= SOME)
    @rule()
    def drain(self) -> None:
        self.pipeline.draining = self.draining = True

    @precondition(lambda self: len(self.written) >= SOME)
    @rule()
    def finish(self) -> None:
        self.pipeline.finish()

    @precondition(lambda self: not self.pipeline.paused and len(self.written) >= SOME)
    @rule()
    def time_out(self) -> None:
        part = "" if self.pipeline.closing else self.pipeline.awaits
        before = len(self.written)
        self.pipeline.time_out()
        self._write()
        if part:
            assert len(self.written) == before + 1
            assert self.written[-1].startswith(b"555 ")
            assert part.encode() in self.written[-1]
            assert self.pipeline.finished
            self.expired = True
        else:
            assert len(self.written) == before

    @precondition(lambda self: not self.lost and len(self.written) >= SOME)
    @rule()
    def lose(self) -> None:
        begun, unsent = self.pipeline.lose()
        self.lost = True
        assert {each for _, kind, each in self.open if kind != "forget"} == set(begun)
        assert [each for outcome in unsent for each in outcome.taken] == self.buffered + self.kept
        self.kept.clear()
        self.buffered.clear()
        self._turn()

    def teardown(self) -> None:
        """Answer everything; then nothing may be left."""
        if self.lost:
            return
        self.stalls = False
        if self.pipeline.paused:
            self.read()
        while self.open:
            number, _, exchange = self.open.pop()
            self.done.add(number)
            self.pipeline.answer(exchange, NotFound("No job found"))
            self._write()
            if self.pipeline.wants_turn:
                self._turn()
        assert self.kept == []
        assert len(self.written) == len(self.begun) + self.expired
        if self.ended:
            assert self.pipeline.finished
        assert self.pipeline.lose() == ([], [])

    # --- what whoever has the socket does ----------------------------------------------------------------

    def _turn(self) -> None:
        while (exchange := self.pipeline.begin()) is not None:
            number, kind = len(self.begun), self.kinds[len(self.begun)]
            assert not self.lost
            self._check_order(number, kind)
            self.begun.append(kind)
            if kind in REFUSED:
                assert exchange.command is None
                self.done.add(number)
            else:
                assert exchange.command is not None
                self.open.append((number, kind, exchange))
            self._write()
        self.pipeline.wants_turn = False

    def _check_order(self, number: int, kind: str) -> None:
        assert self.fed >= sum(len(REQUESTS[each]) for each in self.kinds[: number + 1])
        assert not self.pipeline.paused
        assert len(self.open) <= SMALL.pipelined_max
        assert not CLOSES & set(self.begun), "nothing begins behind what closes"
        for before, other in enumerate(self.begun):
            assert before in self.done or other not in BLOCKS
        if kind in ELSEWHERE:
            assert len(self.written) == number, "a read begins when all before it is answered"

    def _write(self) -> None:
        while self.pipeline.writable:
            if not self.pipeline.paused:
                assert self.buffered == []
            data = self.pipeline.next_bytes()
            number = len(self.written)
            self.written.append(data)
            if number < len(self.begun):
                self._check_answer(number, data)
            token = data.partition(b'"token":"')[2].partition(b'"')[0].decode()
            if self.stalls and not self.pipeline.paused:
                self.pipeline.pause()
            if token in self.kept:
                assert self.kept.count(token) == 1
                self.kept.remove(token)
                if self.pipeline.paused:
                    self.buffered.append(token)

    def _check_answer(self, number: int, data: bytes) -> None:
        kind = self.begun[number]
        if kind in CLOSES:
            assert b"\r\nConnection: close\r\n" in data
        if kind in REFUSED:
            assert data.startswith(REFUSED[kind])
        elif kind == "forget":
            assert data.startswith(b"202 ")
        else:
            assert number in self.done
            assert data.startswith(b"404 ") or b'{"n":%d,' % number in data

    # --- what always holds -------------------------------------------------------------------------------

    @invariant()
    def limits_hold(self) -> None:
        assert len(self.begun) - len(self.written) + self.expired <= SMALL.pipelined_max
        if len(self.begun) - len(self.written) == SMALL.pipelined_max or self.pipeline.paused:
            assert self.pipeline.ahead or self.lost

    @invariant()
    def what_may_begin_is_begun(self) -> None:
        place = len(self.begun)
        if self.pipeline.paused or self.pipeline.closing or place == len(self.kinds):
            return
        blocked = any(kind in BLOCKS and at not in self.done for at, kind in enumerate(self.begun))
        full = place - len(self.written) == SMALL.pipelined_max
        held = self.kinds[place] in ELSEWHERE and len(self.written) < place
        if not (blocked or full or held or CLOSES & set(self.begun)):
            assert self.fed < sum(len(REQUESTS[kind]) for kind in self.kinds[: place + 1])

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Where nothing hinders it, every request that has come whole is begun, and the next is awaited."""
        pipeline = self.pipeline
        if len(self.written) < len(self.begun) or pipeline.paused or pipeline.closing:
            return
        reached = 0
        for place, kind in enumerate(self.kinds):
            end = reached + len(REQUESTS[kind])
            if self.fed < end:
                assert len(self.begun) == place
                inside = self.asked[reached : self.fed].lstrip(b"\r\n")
                assert pipeline.awaits == ("body" if b"\r\n\r\n" in inside else "head" if inside else "")
                return
            reached = end
        assert len(self.begun) == len(self.kinds)
        assert pipeline.awaits == ""


TestConnection = Connection.TestCase
TestConnection.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)


def test_a_take_whose_client_has_left_is_told_that_there_is_nothing() -> None:
    for body, told in (('{"jobID":1}', b"404 No job found\r\n"), ('{"job":{"jobID":1}}', b'{"job":null}')):
        pipeline = Pipeline(SMALL)
        pipeline.feed(REQUESTS["wait"])
        exchange = pipeline.begin()
        assert exchange is not None
        assert pipeline.eof() == [exchange]
        assert not pipeline.answer(exchange, Answer(body, taken=("job",)), waited=True)  # type: ignore[arg-type]
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


def spoken(pieces: list[bytes]) -> tuple[bool | None, bytes]:
    """Return what the first line tells, and the bytes up to the piece that told it."""
    first_line = FirstLine()
    verdict = None
    for piece in pieces:
        verdict = first_line.feed(piece)
        if verdict is not None:
            break
    return verdict, first_line.data


words = st.sampled_from(
    [*HTTP_METHODS, b"Ping", b"GE", b"get", b"CONNECT", b"POSTS", b" ", b"\r\n", b"\n", b"/"]
)


@given(
    st.lists(st.one_of(words, st.binary(max_size=3)), max_size=6), st.lists(st.integers(0, 40), max_size=5)
)
@settings(max_examples=600, deadline=None)
def test_the_protocol_however_the_first_line_is_cut(chosen: list[bytes], cuts: list[int]) -> None:
    data = b"".join(chosen)
    text = data.lstrip(b"\r\n")
    told, kept = spoken([data])
    assert kept == text
    assert spoken(cut(data, cuts) or [b""])[0] is told
    assert spoken([data[n : n + 1] for n in range(len(data))] or [b""])[0] is told
    if any(text.startswith(method + b" ") for method in HTTP_METHODS):
        assert told is True
    elif any(method.startswith(text) for method in HTTP_METHODS):
        assert told is None
    else:
        assert told is False


@pytest.mark.parametrize("method", sorted(HTTP_METHODS))
def test_every_method_of_http(method: bytes) -> None:
    assert spoken([method]) == (None, method)
    assert spoken([method + b" "]) == (True, method + b" ")
    assert spoken([method.lower() + b" "])[0] is False
