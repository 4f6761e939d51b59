"""Random events on a raw connection without a socket: no job is lost or handed out twice.

Requests come in pieces; outcomes come in any order; the client stops reading, ends its input or goes
away; the server drains or closes.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs.base.errors import NotFound
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.waiters import Waiter
from bedrockjobs.job.take_request import Names, TakeRequest
from bedrockjobs.protocol.pipeline import Exchange, Pipeline
from tests.effort import examples
from tests.unit.test_pipeline import BLOCKS, CLOSES, ELSEWHERE, REFUSED, REQUESTS, SMALL

OFTEN = [*REQUESTS, *3 * ["write", "body", "take", "take", "wait", "read", "presence", "at once"]]
"""What a client asks for: mostly what leaves the connection open."""

LIFE = [*8 * ["ask"], *5 * ["send"], *8 * ["answer"], "stop_reading", "stop_reading", "read"]
"""What happens while a connection lives."""

ENDS = ["end", "drain", "finish", "time_out", "lose"]
"""What makes it end, each of which may be followed by more."""


class Connection:
    """A connection under all possible events; every taken job is accounted for once."""

    def __init__(self) -> None:
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
        self.stalls = self.ended = self.lost = self.expired = False

    # --- the client --------------------------------------------------------------------------------------

    def ask(self, kind: str) -> None:
        if not self.ended:
            self.kinds.append(kind)
            self.asked += REQUESTS[kind]
            self.unfed += REQUESTS[kind]

    def send(self, count: int) -> None:
        if self.lost or self.ended:
            return
        self.pipeline.feed(self.unfed[:count])
        self.fed += len(self.unfed[:count])
        self.unfed = self.unfed[count:]
        self._turn()

    def end(self) -> None:
        if self.lost or self.ended:
            return
        self.ended = True
        assert self.pipeline.eof() == [each for _, kind, each in self.open if kind == "wait"]
        self._turn()

    def stop_reading(self) -> None:
        """Send the next reply only in part."""
        self.stalls = True

    def read(self) -> None:
        self.stalls = False
        if self.lost or not self.pipeline.paused:
            return
        self.buffered.clear()
        self.pipeline.resume()
        self._write()
        self._turn()

    # --- the server --------------------------------------------------------------------------------------

    def answer(self, place: int, *, takes: bool, waited: bool) -> None:
        if not self.open:
            return
        number, kind, exchange = self.open.pop(place % len(self.open))
        self.done.add(number)
        self.tokens += 1
        token = f"job{self.tokens}"
        outcome = Answer(f'{{"n":{number},"token":"{token}"}}', taken=(token,) if takes else ())  # type: ignore[arg-type]
        asked = TakeRequest(Names(frozenset("a"), ()))
        waiter = Waiter(exchange, asked, number, 0.0) if waited and kind == "wait" else None
        delivered = self.pipeline.answer(exchange, outcome, waiter=waiter)
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

    def drain(self) -> None:
        self.pipeline.draining = True

    def finish(self) -> None:
        self.pipeline.finish()

    def time_out(self) -> None:
        if self.lost or self.pipeline.paused:
            return
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

    def lose(self) -> None:
        if self.lost:
            return
        begun, unsent = self.pipeline.lose()
        self.lost = True
        assert {each for _, kind, each in self.open if kind != "forget"} == set(begun)
        back = [str(each) for outcome in unsent for each in outcome.taken]
        assert sorted(back) == sorted(self.buffered + self.kept)
        self.kept.clear()
        self.buffered.clear()
        self._turn()

    def settle(self) -> None:
        """Answer all commands; then none may remain open."""
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
        while self.pipeline.writable and not self.pipeline.paused:
            assert self.buffered == []
            data = self.pipeline.next_bytes()
            number = len(self.written)
            self.written.append(data)
            if number < len(self.begun):
                self._check_answer(number, data)
            token = data.partition(b'"token":"')[2].partition(b'"')[0].decode()
            if self.stalls:
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

    def check(self) -> None:
        self.limits_hold()
        self.what_may_begin_is_begun()
        self.nothing_is_forgotten()

    def limits_hold(self) -> None:
        assert len(self.begun) - len(self.written) + self.expired <= SMALL.pipelined_max
        if len(self.begun) - len(self.written) == SMALL.pipelined_max or self.pipeline.paused:
            assert self.pipeline.ahead or self.lost

    def what_may_begin_is_begun(self) -> None:
        place = len(self.begun)
        if self.pipeline.paused or self.pipeline.closing or place == len(self.kinds):
            return
        blocked = any(kind in BLOCKS and at not in self.done for at, kind in enumerate(self.begun))
        full = place - len(self.written) == SMALL.pipelined_max
        held = self.kinds[place] in ELSEWHERE and len(self.written) < place
        if not (blocked or full or held or CLOSES & set(self.begun)):
            assert self.fed < sum(len(REQUESTS[kind]) for kind in self.kinds[: place + 1])

    def nothing_is_forgotten(self) -> None:
        """Check that every complete request has begun, unless reading is paused, and the next is read."""
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


steps = st.tuples(st.sampled_from(LIFE), st.integers(0, 200), st.booleans(), st.booleans())
ends = st.tuples(st.sampled_from([*ENDS, *LIFE]), st.integers(0, 200), st.booleans(), st.booleans())


@given(st.lists(steps, min_size=8, max_size=40), st.lists(ends, max_size=12))
@settings(max_examples=examples(32, night=2_000), deadline=None)
def test_every_taken_job_is_sent_or_goes_back(
    life: list[tuple[str, int, bool, bool]], end: list[tuple[str, int, bool, bool]]
) -> None:
    connection = Connection()
    for what, number, first, second in life + end:
        match what:
            case "ask":
                connection.ask(OFTEN[number % len(OFTEN)])
                if first:
                    connection.send(len(connection.unfed))
            case "send":
                connection.send(number)
            case "answer":
                connection.answer(number, takes=first, waited=second)
            case _:
                getattr(connection, what)()
        connection.check()
    connection.settle()
