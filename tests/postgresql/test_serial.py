"""``--isolation serial``: servers that work in parallel reply as the model does, in the order of commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.workers import NoWorkers
from bedrockjobs.store.postgresql.heads import RAISED_EVERY_S
from bedrockjobs.store.postgresql.session import SessionRequirements
from tests.conformance import test_machine
from tests.conformance.engine import START, Queue
from tests.effort import examples
from tests.model import Model, Outcome
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import Server, until_blocked
from tests.protocol.talk import DEADLINE_S

SERVERS = 3
EXAMPLES = examples(4, night=2_000)
UNIT_MAX = 5
"""Commands in one unit, so that several units of each server run at the same time."""

Beside = Callable[[Callable[[], Any]], "Future[Any]"]


class Done(NamedTuple):
    """An executed unit."""

    commands: Sequence[c.Command[Any]]
    outcomes: list[Outcome]


class Numbered(Model):
    """The model, with the jobIDs that the servers allocated, since they allocate them outside of units."""

    numbers: tuple[int, ...] = ()

    @property
    def next_job_id(self) -> int:
        """Return the next jobID."""
        return self.numbers[0] if self.numbers else 0

    @next_job_id.setter
    def next_job_id(self, number: int) -> None:
        if self.numbers and number == self.numbers[0] + 1:
            self.numbers = self.numbers[1:]

    def replay(self, done: Done, clock: ManualClock) -> list[Outcome]:
        """Execute the commands of a unit; return the outcomes."""
        found = []
        for command, outcome in zip(*done, strict=True):
            body = outcome.body if isinstance(outcome.body, dict) else {}
            given = body.get("jobIDs", [body.get("jobID")]) if isinstance(command, CREATES) else []
            self.numbers = tuple(number for number in given if number and number not in self.jobs)
            found.append(self.call(command, clock.now()))
        return found


CREATES = (c.CreateJob, c.CreateJobs)


class Several:
    """Some servers on one empty database, and their units in the order of their beginnings."""

    def __init__(self, mode: Any, *, serial: bool) -> None:
        """Start them."""
        self.clock = ManualClock(START)
        CLUSTER.engine(self.clock).close()
        terms = SessionRequirements(serial=serial)
        self.servers = [Server(CLUSTER.another(self.clock, terms), mode, self.clock) for _ in range(SERVERS)]
        self.order: list[Done] = []

    def begin(self, server: Server, commands: Sequence[c.Command[Any]]) -> None:
        """Execute the commands of a unit without its commit."""
        context = Context(server.begin(*commands), server.compatibility, NoWorkers(), moment=self.clock.now())
        done = Done(commands, [])
        self.order.append(done)  # a serial unit has the lock by now, and keeps it until its commit
        done.outcomes.extend(server._done(context, command) for command in commands)

    def work(self, server: Server, units: Sequence[Sequence[c.Command[Any]]]) -> None:
        """Execute units one after the other."""
        for commands in units:
            self.begin(server, commands)
            server.commit()

    def differences(self, model: Numbered) -> list[tuple[Any, ...]]:
        """Return the replies in which the model differs, for the same order of units."""
        found = []
        for done in self.order:
            expected = model.replay(done, self.clock)
            each = zip(done.commands, done.outcomes, expected, strict=True)
            found += [(one.wire(), is_so, is_to_be) for one, is_so, is_to_be in each if is_so != is_to_be]
        self.order.clear()
        return found

    def close(self) -> None:
        """Stop them."""
        for server in self.servers:
            server.store.close()


class Parallel(test_machine.Histories):
    """Commands are collected for three servers, which then execute them at the same time."""

    mode = "document"

    def opened(self) -> Queue:
        """Return one of the servers."""
        self.several = Several(self.mode, serial=True)
        self.numbered = Numbered(self.mode)
        self.gathered: list[list[c.Command[Any]]] = [[] for _ in range(SERVERS)]
        self.threads = ThreadPoolExecutor(SERVERS)
        self.turn = 0
        return self.several.servers[0]

    def both(self, kind: type[c.Command[Any]], **parameters: Any) -> Outcome:
        """Collect a command, without a worker name: runIDs too are allocated outside of units."""
        parameters.pop("worker", None)
        parameters.pop("heartbeat", None)
        try:
            self.gathered[self.turn % SERVERS].append(kind.read(test_machine.given(**parameters)))
        except CommandError:
            return Outcome(402, "", None)
        self.turn += 1
        return Outcome(200, "", None)

    @rule(names=st.lists(st.tuples(test_machine.NAMES, test_machine.REPEATS), min_size=1, max_size=3))
    def create_several(self, names: list[tuple[str, str]]) -> None:
        """Create all or none, without children, since the jobIDs of refused creates are unknown."""
        self.both(c.CreateJobs, jobs=[{"name": name, "repeat": repeat} for name, repeat in names])

    @rule(seconds=st.sampled_from([0.001, 1, 59.75, 3600, 86_400]))
    def wait(self, seconds: float) -> None:
        """Let time pass between units."""
        self.done()
        self.several.clock.advance(seconds)

    def done(self) -> None:
        """Execute the collected commands, and compare."""
        running = []
        for server, commands in zip(self.several.servers, self.gathered, strict=True):
            units = [commands[at : at + UNIT_MAX] for at in range(0, len(commands), UNIT_MAX)]
            running.append(self.threads.submit(self.several.work, server, units))
        self.gathered = [[] for _ in range(SERVERS)]
        for one in running:
            one.result(DEADLINE_S)
        assert self.several.differences(self.numbered) == []
        listed = c.ListJobs.read({})
        assert self.queue.call(listed) == self.numbered.call(listed, self.several.clock.now())

    @invariant()
    def same_jobs(self) -> None:
        """Do nothing: the servers are compared after each execution."""

    def teardown(self) -> None:
        """Execute the remaining commands, and stop the servers."""
        try:
            self.done()
        finally:
            self.threads.shutdown()
            self.several.close()


TestParallel = Parallel.TestCase
TestParallel.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=test_machine.STEPS,
    deadline=None,
    phases=[Phase.generate],  # what went on at the same time comes only once
    suppress_health_check=list(HealthCheck),
)


def test_without_it_the_same_check_finds_a_difference() -> None:
    """The control: a unit does not see the changes of an earlier unit that is still open."""
    several = Several("document", serial=False)
    one, other, _ = several.servers
    several.begin(one, [c.CreateJob(name="a")])
    several.begin(other, [c.GetJob(name="a")])
    one.commit()
    other.commit()
    ((asked, found, expected),) = several.differences(Numbered("document"))
    assert (found.code, expected.code) == (404, 200), asked
    several.close()


def test_a_serial_unit_waits_for_any_other(beside: Beside) -> None:
    several = Several("document", serial=True)
    one, other, watcher = several.servers
    several.begin(one, [c.CreateJob(name="a")])
    work = beside(lambda: several.work(other, [[c.GetJob(name="a")]]))
    until_blocked(watcher)
    one.commit()
    work.result(DEADLINE_S)
    assert [done.outcomes[0].code for done in several.order] == [200, 200]
    assert several.differences(Numbered("document")) == []
    several.close()


def test_nothing_is_remembered_of_where_jobs_begin() -> None:
    """Notifications of other servers come after their commit; here none comes at all."""
    several = Several("document", serial=True)
    one, other, _ = several.servers
    asks = [[c.GetJob(name="a")], [c.GetJob(name="a*")]]
    model = Numbered("document")
    several.work(one, [[c.CreateJob(name="a")] * 6])
    for _ in range(2):  # repeated requests are cached
        several.work(other, asks)
        assert several.differences(model) == []
        several.clock.advance(RAISED_EVERY_S + 1)
    several.work(one, [[c.CreateJob(name="a", first_run="2020-01-01 00:00:00", job_priority=1000)] * 2])
    several.work(other, asks)
    assert several.differences(model) == []
    several.close()


def test_it_is_a_setting_for_postgresql_alone() -> None:
    assert Settings().isolation == "units"
    assert SessionRequirements.from_settings(Settings(isolation="serial", database="postgresql://x/y")).serial
    assert not SessionRequirements.from_settings(Settings(database="postgresql://x/y")).serial
    with pytest.raises(ValueError, match="isolation: serial is for PostgreSQL, a file has one server"):
        Settings(isolation="serial").database_path()
