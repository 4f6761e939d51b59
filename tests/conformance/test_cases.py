"""Every scenario runs on every engine, and every rule of the notes has a scenario."""

from __future__ import annotations

from itertools import chain

import pytest

from bedrockjobs.base.settings import Compatibility
from tests.conformance import (
    cases_change,
    cases_create,
    cases_cron,
    cases_end,
    cases_family,
    cases_family_ends,
    cases_mock,
    cases_repeat,
    cases_retry_after,
    cases_take,
)
from tests.conformance.conftest import Open
from tests.conformance.engine import TRIED
from tests.conformance.scenario import ABSENT, BOTH, Scenario, different
from tests.effort import PROFILE

KINDS: dict[str, list[Scenario]] = {
    "create": cases_create.SCENARIOS,
    "take": cases_take.SCENARIOS,
    "change": cases_change.SCENARIOS,
    "end": cases_end.SCENARIOS,
    "family": cases_family.SCENARIOS,
    "family ends": cases_family_ends.SCENARIOS,
    "retryAfter": cases_retry_after.SCENARIOS,
    "repeat": cases_repeat.SCENARIOS,
    "mock": cases_mock.SCENARIOS,
    "cron": cases_cron.SCENARIOS,
}
SCENARIOS = [*chain.from_iterable(KINDS.values())]


def modes_on(engine: str, case: Scenario) -> tuple[Compatibility, ...]:
    """Return the modes in which a scenario runs on an engine.

    The handlers obey the mode, which the engine does not know: by day PostgreSQL, which takes longest, shows
    each scenario in one mode.
    """
    return case.modes[:1] if engine == "postgresql" and PROFILE != "random" else case.modes


RUNS = [(engine, mode, one) for one in SCENARIOS for engine in TRIED for mode in modes_on(engine, one)]

ON_THE_WIRE: dict[int | str, str] = {
    4: "unescaping of header values happens before a command exists",
    5: "Content-Length is the protocol's",
    6: "repeated and folded headers are the protocol's",
    "D06": "waiting is the dispatcher's; without it a GetJob is 404 at once",
    "D09": "Query is read by the store, not by the queue",
}
"""Rules that no engine can keep or break, with the reason; the protocol's tests hold them."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("name", TRIED)
def test_scenarios(name: str, mode: Compatibility, kind: str, opened: Open) -> None:
    """Every step of each scenario of a kind is answered as it says; to begin a test costs more than one."""
    wrong = {}
    for case in KINDS[kind]:
        if mode in modes_on(name, case):
            with opened(name, mode) as engine:
                try:
                    for step in case.steps:
                        step.run(engine)
                except AssertionError as error:
                    wrong[case.name] = str(error)
    assert not wrong


def test_every_rule_has_a_scenario() -> None:
    """The rules 1 to 41, the decisions in each mode, and the fixed faults."""
    told = {rule for one in SCENARIOS for rule in one.rules}
    wanted = {
        *range(1, 42),
        *(f"D0{number}" for number in range(1, 10)),
        "N07",
        "N08",
        "N09",
        "N22",
        "faults",
    }
    assert wanted - told == set(ON_THE_WIRE)


@pytest.mark.parametrize("decision", ["D02", "D03", "D04", "D07", "D08"])
def test_every_decision_is_shown_in_both_modes(decision: str) -> None:
    """A decision that depends on the mode has a scenario for each mode."""
    modes = {one.modes for one in SCENARIOS if decision in one.rules}
    assert {("document",), ("current",)} <= modes


def test_scenario_names_are_unique() -> None:
    """A failure names one scenario."""
    names = [one.name for one in SCENARIOS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"jobID": 1}, {"jobID": 2}),
        ({"jobID": 1}, {}),
        ({"jobID": 1}, None),
        ({"error": ABSENT}, {"error": "x"}),
        ({"data": {}}, {"data": {"more": 1}}),
        ({"jobs": [{"jobID": 1}]}, {"jobs": [{"jobID": 1}, {"jobID": 2}]}),
        ({"jobs": [{"jobID": 1}]}, {"jobs": [{"jobID": 2}]}),
        ({"job": {"jobID": 1}}, {"job": None}),
        ({"job": None}, {"job": {"jobID": 1}}),
        ({"job": {"runID": ABSENT}}, {"job": {"runID": 3}}),
    ],
)
def test_a_wrong_body_is_seen(expected: object, found: object) -> None:
    """The comparison of a scenario can fail."""
    assert different(expected, found)


def test_more_members_than_named_are_no_difference() -> None:
    """A scenario names only the members that matter."""
    found = {
        "jobID": 1,
        "data": {"a": 1},
        "job": {"jobID": 2, "name": "x"},
        "jobs": [{"jobID": 3, "name": "y"}],
    }
    assert different({"jobID": 1, "data": {"a": 1}, "job": {"jobID": 2}, "jobs": [{"jobID": 3}]}, found) == []
