"""The reference model against SQLite's dates and GLOB, against RFC 7396, and its own invariants."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bedrockjobs.base.settings import Compatibility
from bedrockjobs.commands import Command, command_named
from tests import model_data, model_repeat
from tests.effort import examples
from tests.model import Model, Outcome, Row

NOW = datetime(2026, 1, 5, 10, 0, 0, 250_000, tzinfo=UTC)
MODEL_FILES = ("model.py", "model_data.py", "model_repeat.py", "model_table.py")


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    """Open a private SQLite, as an oracle."""
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


# --- moments -------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.builds(
        "{}{} {}".format,
        st.sampled_from("+-"),
        st.integers(0, 999),
        st.sampled_from(["SECONDS", "MINUTE", "HOURS", "DAY", "DAYS", "MONTHS", "MONTH", "YEAR"]),
    ),
    st.builds("START OF {}".format, st.sampled_from(["DAY", "MONTH", "YEAR"])),
    st.builds("WEEKDAY {}".format, st.integers(0, 6)),
)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2100, 12, 31))


@given(MOMENTS, st.lists(STEPS, min_size=1, max_size=5))
@settings(max_examples=examples(25, night=1_000), deadline=None)
def test_modifiers_move_a_moment_as_sqlite_does(
    sqlite: sqlite3.Connection, moment: datetime, steps: list[str]
) -> None:
    """Any chain of modifiers that stays within the years 1 to 9999 gives the date that SQLite gives."""
    start = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    found = model_repeat.moved(start, steps)
    marks = ", ".join("?" for _ in steps)
    timestamp = start.isoformat(sep=" ", timespec="milliseconds")
    (expected,) = sqlite.execute(f"SELECT datetime(?, {marks})", (timestamp, *steps)).fetchone()
    if found is not None:
        assert model_repeat.whole(found) == expected


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [
        ("2026-01-31 00:00:00", "+1 MONTH", "2026-03-03 00:00:00"),
        ("2024-01-31 00:00:00", "+1 MONTH", "2024-03-02 00:00:00"),
        ("2024-02-29 00:00:00", "+1 YEAR", "2025-03-01 00:00:00"),
        ("2026-03-31 00:00:00", "-1 MONTH", "2026-03-03 00:00:00"),
        ("2026-01-05 10:20:30.400", "START OF HOUR", "2026-01-05 10:00:00"),
        ("2026-01-04 10:20:30", "WEEKDAY 0", "2026-01-04 10:20:30"),
        ("2026-01-05 10:20:30", "WEEKDAY 0", "2026-01-11 10:20:30"),
    ],
)
def test_one_modifier(start: str, step: str, expected: str) -> None:
    """The overflow of months, and modifiers that SQLite does not have."""
    found = model_repeat.moved(model_repeat.moment_of(start), [step])
    assert found is not None
    assert model_repeat.whole(found) == expected


def test_a_moment_beyond_the_calendar_is_none() -> None:
    """Year 10000 and year 0 are no dates."""
    assert model_repeat.moved(datetime(9999, 12, 31, tzinfo=UTC), ["+1 DAY"]) is None
    assert model_repeat.moved(datetime(9500, 1, 1, tzinfo=UTC), ["+500 YEARS"]) is None
    assert model_repeat.moved(datetime(1, 1, 1, tzinfo=UTC), ["-1 MONTH"]) is None


@given(st.integers(1, 3 * 3600), st.integers(1, 40 * 86400))
@settings(max_examples=examples(32, night=200), deadline=None)
def test_a_jump_keeps_the_phase_and_leaves_no_slot_out(period: int, behind: int) -> None:
    """In current mode a late run moves to the first time after now that keeps the interval's phase."""
    slot = NOW - timedelta(seconds=behind)
    text = f"SCHEDULED, +{period} SECONDS"
    found = model_repeat.next_run(text, "current", scheduled=model_repeat.with_ms(slot), started="", now=NOW)
    assert found is not None
    gap = model_repeat.moment_of(found) - slot.replace(microsecond=0)
    assert gap.total_seconds() % period == 0
    # The timestamp has no milliseconds, so the slot may lie up to one second before it.
    assert timedelta(seconds=-1) < model_repeat.moment_of(found) - NOW
    assert model_repeat.moment_of(found) - NOW <= timedelta(seconds=period)


@pytest.mark.parametrize(
    ("microsecond", "expected"),
    [(0, "2026-01-05 10:00:00"), (999, "2026-01-05 10:00:00"), (5_999, "2026-01-05 10:00:00.005")],
)
def test_milliseconds_are_written_where_there_are_any(microsecond: int, expected: str) -> None:
    """A timestamp is cut, never rounded up."""
    assert model_repeat.exact(NOW.replace(microsecond=microsecond)) == expected


# --- names and data ------------------------------------------------------------------------------------


@given(st.text("abc[]^-*?", max_size=8), st.text("abc[]^-", max_size=5))
@example("[]-?]?", "-[")
@example("[c-a]", "c")
@example("[a-b-c]", "-")
@example("[^]a]", "]")
@settings(max_examples=examples(25, night=1_000), deadline=None)
def test_glob_matches_as_sqlite_does(sqlite: sqlite3.Connection, pattern: str, name: str) -> None:
    """Every pattern, the malformed ones too."""
    (expected,) = sqlite.execute("SELECT ? GLOB ?", (name, pattern)).fetchone()
    assert model_data.glob(pattern, name) == bool(expected)


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples(target: Any, patch: Any, expected: Any) -> None:
    """The examples of RFC 7396's appendix whose target and patch are objects."""
    assert model_data.merged(target, patch) == expected


def test_a_merge_leaves_its_target_alone() -> None:
    """A refused CreateJobs must be able to restore the old data."""
    target = {"a": {"b": 1}}
    model_data.merged(target, {"a": {"b": 2}})
    assert target == {"a": {"b": 1}}


def test_text_that_needs_no_change_keeps_its_spelling() -> None:
    """2.50 stays 2.50 if the queue changes nothing."""
    text = '{ "z": 2.50, "a": 12345678901234567890 }'
    assert model_data.without(text, "retryAfterCount") == text
    assert model_data.keeping_mark(text, False) == text
    assert model_data.keeping_mark('{"a":1}', True) == '{"a":1,"mockRequest":true}'


# --- the model as a whole ------------------------------------------------------------------------------

JOB = st.integers(1, 4)
PARAMETERS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "CreateJob": st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "manual"])},
        optional={
            "parentJobID": JOB,
            "retryAfter": st.just("+5 SECONDS"),
            "repeat": st.sampled_from(["FINISHED, +1 MINUTE", "SCHEDULED, +10 SECONDS"]),
            "unique": st.booleans(),
            "mockRequest": st.booleans(),
            "jobPriority": st.sampled_from([0, 1000]),
            "data": st.sampled_from([{"x": 1}, {"x": None}]),
        },
    ),
    "CreateJobs": st.fixed_dictionaries(
        {"jobs": st.just([{"name": "a", "unique": True, "data": {"n": 1}}, {"name": "b", "parentJobID": 1}])}
    ),
    "GetJob": st.fixed_dictionaries(
        {"name": st.sampled_from(["*", "a", "b"])},
        optional={"getMockedJobs": st.booleans(), "worker": st.just("w")},
    ),
    "FinishJob": st.fixed_dictionaries({"jobID": JOB}, optional={"thenGet": st.just("*")}),
    "RetryJob": st.fixed_dictionaries(
        {"jobID": JOB}, optional={"returned": st.booleans(), "revive": st.booleans(), "delay": st.just(5)}
    ),
    "FailJob": st.fixed_dictionaries({"jobID": JOB}),
    "CancelJob": st.fixed_dictionaries({"jobID": JOB}),
    "DeleteJob": st.fixed_dictionaries({"jobID": JOB}),
    "RequeueJobs": st.fixed_dictionaries({"jobIDs": st.lists(JOB, min_size=1, max_size=2)}),
    "CrashBedrockJob": st.just({"names": ["b"]}),
    "ClearCrashedBedrockJobs": st.just({}),
}


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[float, Command[Any]]]:
    """Draw commands with the seconds that pass before each, perhaps after a family was made."""
    family: list[tuple[str, dict[str, Any]]] = [
        ("CreateJob", {"name": "a", **draw(st.sampled_from([{}, {"retryAfter": "+5 SECONDS"}]))}),
        ("GetJob", {"name": "a"}),
        ("CreateJob", {"name": "a", "parentJobID": 1}),
        ("CreateJob", {"name": "b", "parentJobID": 1}),
        ("FinishJob", {"jobID": 1}),
    ]
    opening = family[: draw(st.sampled_from([0, 4, 5]))]
    steps = [(0.0, command_named(verb).read(given)) for verb, given in opening]
    for verb in draw(st.lists(st.sampled_from(sorted(PARAMETERS)), max_size=40)):
        command = command_named(verb).read(draw(PARAMETERS[verb]))
        steps.append((draw(st.sampled_from([0.0, 0.0, 0.75, 6.0, 60.0])), command))
    return steps


def everything(model: Model) -> Any:
    """Return the whole state of a model."""
    return {key: vars(row).copy() for key, row in model.jobs.items()}, model.next_job_id, model.next_run_id


def waits_for_something(model: Model, row: Row) -> bool:
    """Return whether a PAUSED job can still be resumed."""
    pending = any(
        child.state in ("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED") for child in model.children(row)
    )
    parent = model.jobs.get(row.parentJobID)
    return pending or (parent is not None and parent.state in ("QUEUED", "RUNNING", "RUNQUEUED"))


@given(stories(), st.sampled_from(["document", "current"]))
@settings(max_examples=examples(32, night=150), deadline=None)
def test_whatever_comes_the_table_makes_sense(
    story: list[tuple[float, Command[Any]]], mode: Compatibility
) -> None:
    """Refusals change nothing, IDs only grow, runs belong to running jobs, and no job waits forever."""
    model, now = Model(mode), NOW
    for seconds, command in story:
        now += timedelta(seconds=seconds)
        before = everything(model)
        outcome = model.call(command, now)
        nothing_found = (outcome.code, outcome.reason) == (404, "No job found")
        if outcome.code != 200 and not nothing_found:
            assert everything(model) == before
        assert model.next_job_id >= before[1]
        assert all(key < model.next_job_id for key in model.jobs)
        for row in model.jobs.values():
            assert row.runID is None or row.state in ("RUNNING", "RUNQUEUED")
            assert row.state != "PAUSED" or waits_for_something(model, row), command
            assert not (row.parentJobID and row.repeat)


def test_a_model_answers_with_equal_outcomes() -> None:
    """Two models with the same commands are equal: nothing depends on the outside."""
    story: list[tuple[str, dict[str, Any]]] = [
        ("CreateJob", {"name": "a", "data": {"x": 1}}),
        ("GetJob", {"name": "a", "worker": "w"}),
        ("FinishJob", {"jobID": 1, "runID": 1}),
        ("QueryJob", {"jobID": 1}),
    ]
    one, other = Model(), Model()
    for verb, parameters in story:
        command = command_named(verb).read(parameters)
        assert one.call(command, NOW) == other.call(command, NOW)
    assert one.call(command_named("QueryJob").read({"jobID": 1}), NOW) == Outcome(
        404, "No job with this jobID"
    )


@pytest.mark.parametrize("name", MODEL_FILES)
def test_the_model_is_independent(name: str) -> None:
    """A model that shared code with the server would share its faults."""
    allowed = {"bedrockjobs", "bedrockjobs.commands", "bedrockjobs.commands.take", "bedrockjobs.base.config"}
    allowed.add("bedrockjobs.schedule.cron")  # has oracles of its own
    tree = ast.parse((Path(__file__).parents[1] / name).read_text())
    named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in named if module.startswith("bedrockjobs")} <= allowed
