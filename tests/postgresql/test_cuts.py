"""Connections that break, most of them at a commit whose reply is dropped: nothing is done twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.engine.handlers.context import Answer, Context, Taken
from bedrockjobs.engine.handlers.take import LockedElsewhere, put_back
from bedrockjobs.engine.unit import perform
from bedrockjobs.store.base import StoreAway
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from tests.conformance.engine import START
from tests.effort import examples
from tests.postgresql.cluster import CLUSTER, SCHEMA, url_of
from tests.postgresql.conftest import Server
from tests.postgresql.proxy import Proxy
from tests.protocol.talk import DEADLINE_S

CUTS = examples(40, night=1_000)
"""Answers that are swallowed in one run; the nightly command does more."""

OTHERS_EACH = 5
"""Answers that are swallowed for each other cut."""

CUT_WITHIN_S = 0.002
"""About the time of a commit, so that random cuts fall before, into and after it."""


class Cut:
    """A server behind a proxy."""

    def __init__(self, seed: int = 1) -> None:
        """Start it on an empty database; ``seed`` determines the times of cuts."""
        clock = ManualClock(START)
        CLUSTER.engine(clock).close()
        self.proxy = Proxy(CLUSTER.port)
        self.server = Server(PostgreSQLEngine(url_of(self.proxy.port), clock, name=SCHEMA), "document", clock)
        self.rng = random.Random(seed)
        self.lost = 0
        """Units that broke and were not done."""

    def create(self, name: str, kind: str) -> None:
        """Create a job, with one cut of a kind."""
        command = c.CreateJob(name=name)
        self.acknowledged(lambda context: perform(context, command), kind, command)

    def take(self, name: str, kind: str) -> Taken:
        """Take a job, with one cut of a kind. A session that was cut may hold its locks for a moment."""
        command = c.GetJob(name=name)
        deadline = monotonic() + DEADLINE_S
        while isinstance(
            answer := self.acknowledged(lambda context: perform(context, command), kind, command),
            LockedElsewhere,
        ):
            assert monotonic() < deadline, "the job stays locked"
        assert isinstance(answer, Answer)
        (taken,) = answer.taken
        return taken

    def acknowledged(self, act: Callable[[Context], Any], kind: str, *commands: c.Command[Any]) -> Any:
        """Repeat a function like the dispatcher until it is acknowledged, with one cut of a kind."""
        for attempt in range(10):
            try:
                result = act(self.server.open(*commands))
                if not attempt:
                    self._cut(kind)
                self.server.commit()
            except StoreAway:
                self.lost += 1
                self.server.store.rollback()
            else:
                return result
        raise AssertionError("it was never acknowledged")

    def _cut(self, kind: str) -> None:
        if kind == "answer":
            self.proxy.cut_when_answered()
        elif kind == "request":
            self.proxy.swallow("up")
            self.proxy.cut()
        else:
            self.proxy.cut(self.rng.random() * CUT_WITHIN_S)

    def doubled(self) -> list[str]:
        """Return the names that do not have exactly one job."""
        counts = Counter(name for (name,) in CLUSTER.do(f"SELECT name FROM {SCHEMA}.jobs"))
        return [name for name, count in counts.items() if count != 1]

    def often(self, cuts: int) -> None:
        """Drop a number of replies, and break connections in other ways; each job must exist once."""
        others = cuts // OTHERS_EACH
        kinds = ["answer"] * cuts + ["request", "any"] * (others // 2)
        for number, kind in enumerate(kinds):
            self.create(f"j{number}", kind)
        assert self.doubled() == []
        assert CLUSTER.do(f"SELECT count(*), count(DISTINCT jobID) FROM {SCHEMA}.jobs") == [(len(kinds),) * 2]
        assert others // 2 <= self.lost < cuts // 2 + others, "most of the answers belonged to commits"

    def close(self) -> None:
        """End both."""
        self.server.store.close()
        self.proxy.close()


@pytest.fixture
def cut() -> Iterator[Cut]:
    """Return a server behind a proxy."""
    cut = Cut()
    yield cut
    cut.close()


def test_no_commit_is_lost_or_done_twice_whose_answer_was_swallowed(cut: Cut) -> None:
    cut.often(CUTS)


def test_without_the_number_of_the_unit_commits_would_be_doubled(
    cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a server that repeats an unacknowledged unit with new IDs."""

    _guess_that_it_was_not_done(cut, monkeypatch)
    for number in range(10):
        cut.create(f"j{number}", "answer")
    assert cut.doubled()


KINDS = ["answer", "request", "any"] * 5


def _guess_that_it_was_not_done(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    def guess(_: StoreAway) -> bool:
        cut.server.store.unit.committed()
        return False

    monkeypatch.setattr(cut.server.store, "_was_committed", guess)


@pytest.mark.parametrize("knows", [True, False], ids=["", "control"])
def test_a_take_whose_commit_was_not_answered_has_one_client(
    cut: Cut, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    """The job does not run twice, and no job stays RUNNING unless a client has received it."""
    for _ in range(2 * len(KINDS)):
        cut.server.do(c.CreateJob, name="a")
    if not knows:
        _guess_that_it_was_not_done(cut, monkeypatch)
    told = [cut.take("a", kind).before.job_id for kind in KINDS]
    runs = [job for (job,) in CLUSTER.do(f"SELECT jobID FROM {SCHEMA}.jobs WHERE state = 'RUNNING'")]
    assert (sorted(runs) == sorted(told)) is knows
    assert set(told) <= set(runs)
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("kind", ["answer", "request"])
@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_a_take_is_undone_once_though_its_commit_was_not_answered(cut: Cut, kind: str, earlier: int) -> None:
    """Another client takes the job in the same second, and keeps it."""
    cut.server.do(c.CreateJob, name="a")
    for _ in range(earlier):
        cut.server.do(c.GetJob, name="a")
        cut.server.do(c.RetryJob, jobID=1)
    lost = cut.take("a", kind)
    cut.acknowledged(lambda context: put_back(context, [lost]), kind)
    assert CLUSTER.do(f"SELECT state, attempt FROM {SCHEMA}.jobs") == [("QUEUED", earlier)]
    kept = cut.take("a", kind)
    if earlier:  # repeating a committed unit changes nothing
        cut.server.do(c.RetryJob, jobID=1)
        later = cut.take("a", kind)
        cut.acknowledged(lambda context: put_back(context, [kept]), kind)
        assert later.before.job_id == 1
    assert CLUSTER.do(f"SELECT state FROM {SCHEMA}.jobs") == [("RUNNING",)]


def test_a_database_that_does_not_answer_counts_as_away(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    cut.server.opened(c.CreateJob(name="a"))
    cut.proxy.swallow("up", "down")
    with monkeypatch.context() as brief:
        brief.setattr(cut.server.store.session._connection, "answer_s", 0.2)
        with pytest.raises(StoreAway, match="no answer within"):
            cut.server.store.session.run_statements([("SELECT 1", ())])
    cut.server.store.rollback()
    cut.proxy.swallow()
    assert cut.server.do(c.CreateJob, name="a") == {"jobID": 1}


def test_numbers_of_a_unit_whose_answer_was_lost_are_not_used_again(cut: Cut) -> None:
    cut.create("a", "answer")
    cut.server.opened(c.CreateJob(name="b"))
    cut.server.store.rollback()
    assert cut.server.do(c.CreateJob, name="c") == {"jobID": 2}
