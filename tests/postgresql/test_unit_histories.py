"""Random histories on PostgreSQL, one to thirteen commands a unit, get the replies of the model."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.store.postgresql import takes
from bedrockjobs.store.postgresql.statements import QUERIES
from tests.conformance import test_machine
from tests.conformance.engine import START, PostgreSQLQueue, Queue, postgresql_engine
from tests.conformance.scenario import Scenario
from tests.conformance.test_cases import RUNS
from tests.effort import examples
from tests.model import Outcome
from tests.postgresql.cluster import CLUSTER

EXAMPLES = int(os.environ.get("BEDROCKJOBS_TEST_EXAMPLES", examples(4, night=1_000)))
COMMANDS_MAX = 13


WALKED = takes.scanned_max


class Histories(test_machine.Histories):
    """The same commands on the server and the model, one command per unit."""

    def opened(self) -> Queue:
        """Return an empty queue."""
        clock = ManualClock(START)
        return PostgreSQLQueue(CLUSTER.engine(clock), self.mode, clock)

    def teardown(self) -> None:
        """Close it."""
        self.queue.store.close()


class Units(Histories):
    """The same commands on the server and the model, several commands per unit."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.gathered: list[c.Command[Any]] = []
        self.wanted = 1

    def both(self, kind: type[c.Command[Any]], **parameters: Any) -> Outcome:
        """Collect a command, and execute all of them when there are enough."""
        try:
            self.gathered.append(kind.read(test_machine.given(**parameters)))
        except CommandError:
            return Outcome(402, "", None)
        if len(self.gathered) >= self.wanted:
            self.done()
        return Outcome(200, "", None)

    @rule(wanted=st.integers(1, COMMANDS_MAX))
    def gather(self, wanted: int) -> None:
        """Set the number of commands in each following unit."""
        self.wanted = wanted

    @rule(seconds=st.sampled_from([0.001, 1, 59.75, 3600, 86_400]))
    def wait(self, seconds: float) -> None:
        """Let time pass between two units."""
        self.done()
        super().wait(seconds)

    def done(self) -> None:
        """Execute the collected commands on both and compare."""
        commands, self.gathered = self.gathered, []
        expected = [self.model.call(command) for command in commands]
        found = self.queue.call_together(commands) if commands else []
        assert found == expected, [(type(one).__name__, one.wire()) for one in commands]

    @invariant()
    def same_jobs(self) -> None:
        """Check that both show the same jobs, between two units."""
        if not self.gathered:
            listed = c.ListJobs.read({})
            assert self.queue.call(listed) == self.model.call(listed)


class DocumentHistories(Histories):
    """Histories in document mode."""

    mode = "document"


class CurrentUnits(Units):
    """Units in current mode; takes by pattern scan past two jobs only, then query each name."""

    mode = "current"
    walked = staticmethod(lambda _: 2)

    def opened(self) -> Queue:
        """Return an empty queue."""
        takes.scanned_max = self.walked
        return super().opened()

    def teardown(self) -> None:
        """Close it."""
        super().teardown()
        takes.scanned_max = WALKED


class DocumentUnits(Units):
    """Histories in document mode."""

    mode = "document"


class WorkflowUnits(Units, test_machine.WorkflowHistories):
    """Histories with workflows, several commands per unit."""

    mode = "document"

    @invariant()
    def same_workflows(self) -> None:
        """Check that both have the same workflows, between two units."""
        if not self.gathered:
            super().same_workflows()


LIMITS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=test_machine.STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestDocument = DocumentHistories.TestCase
TestDocument.settings = LIMITS
TestCurrentUnits = CurrentUnits.TestCase
TestCurrentUnits.settings = LIMITS
TestWorkflowUnits = WorkflowUnits.TestCase
TestWorkflowUnits.settings = settings(LIMITS, max_examples=examples(1, night=500))
TestDocumentUnits = DocumentUnits.TestCase
TestDocumentUnits.settings = LIMITS


# --- controls --------------------------------------------------------------------------------------------

FOUND_WITHIN = 200
"""Histories within which a store that forgets is found: mostly by the tenth, once by the fifty-fifth."""


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the store ignore changes of data."""
    monkeypatch.setitem(QUERIES, "save_data", f"{QUERIES['save_data']} AND false")


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("machine", [DocumentHistories, DocumentUnits])
def test_histories_find_a_store_that_forgets(machine: type[Histories]) -> None:
    found = settings(LIMITS, max_examples=FOUND_WITHIN, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=found)


def agrees(mode: Compatibility, case: Scenario) -> bool:
    """Return whether a scenario gets the expected replies."""
    with postgresql_engine(mode) as engine:
        try:
            for step in case.steps:
                step.run(engine)
        except AssertionError:
            return False
    return True


@pytest.mark.usefixtures("forgetful")
def test_a_scenario_finds_a_store_that_forgets() -> None:
    assert not all(agrees(mode, case) for _, mode, case in RUNS)
