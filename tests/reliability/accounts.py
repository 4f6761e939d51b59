"""Verify schedules that run every second: compare the server's tick history with their commands' own records.

It reads the database of a stopped server, and the file to which each command wrote its beginning and end.
It knows nothing of kills, processes or sockets.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tests.history import Report

RAN = ("fired", "caught up")
"""Outcomes of a tick that had a run."""

SECOND = timedelta(seconds=1)


class Effect(NamedTuple):
    """The records that one command wrote."""

    step: str
    """``begin``, ``held`` or ``end``."""
    name: str
    run_id: int
    tick: str
    """When it was to begin."""


class Run(NamedTuple):
    """A row of the table ``runs``."""

    run_id: int
    name: str
    cause: str
    tick: str
    status: str


def effects_of(path: Path) -> list[Effect]:
    """Return what commands have written so far."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        step, name, run_id, tick = line.split(" ", 3)
        found.append(Effect(step, name, int(run_id), tick[:19]))
    return found


def judge_schedules(database: Path, effects: Path) -> Report:
    """Verify all schedules of a database; each must run every second and catch up all ticks."""
    with closing(sqlite3.connect(database)) as file:
        report = judge_tables(lambda sql: file.execute(sql).fetchall(), effects_of(effects))
        found = [row[0] for row in file.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            report.fault("damaged", "; ".join(found))
    return report


def judge_tables(rows_of: Callable[[str], list[tuple[Any, ...]]], effects: list[Effect]) -> Report:
    """Verify all schedules of a database that ``rows_of`` reads, like ``judge_schedules``."""
    report = Report()
    runs = [
        Run(*row)
        for row in rows_of("SELECT runID, name, cause, substr(scheduledFor, 1, 19), status FROM runs")
    ]
    told = {row[0] for row in rows_of("SELECT runID FROM events WHERE kind = 'lost'")}
    runs_of: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        runs_of[run.name].append(run)
    ledger: defaultdict[int, list[tuple[str, str, int, str]]] = defaultdict(list)
    for job_id, *row in rows_of("SELECT jobID, tick, until, count, outcome FROM ticks ORDER BY jobID, tick"):
        ledger[job_id].append((row[0], row[1], row[2], row[3]))
    for job_id, name, created, next_run, state in rows_of(
        "SELECT jobID, name, created, nextRun, state FROM jobs"
    ):
        if state != "QUEUED":
            report.fault("not queued", f"{name} is {state}")
        ticks = _ticks(name, created, next_run, ledger[job_id], report)
        _judge_runs(name, ticks, runs_of[name], report)
    _judge_effects(runs, effects, told, report)
    return report


def _moment(timestamp: str) -> datetime:
    return datetime.fromisoformat(timestamp[:19])


def _ticks(
    name: str, created: str, next_run: str, rows: Iterable[tuple[str, str, int, str]], report: Report
) -> dict[str, str]:
    """Return the outcome of each tick; the rows must contain each second exactly once."""
    outcomes: dict[str, str] = {}
    expected = _moment(created) + SECOND
    for tick, until, count, outcome in rows:
        first, last = _moment(tick), _moment(until)
        if first > expected:
            report.fault("tick lost", f"{name}: nothing of {expected} to {first - SECOND}")
        if first < expected:
            report.fault("tick twice", f"{name}: {first} is in two rows")
        seconds = (last - first) // SECOND + 1
        if count < seconds:
            report.fault("tick lost", f"{name}: {count} ticks from {first} to {last}")
        if count > seconds:
            report.fault("tick twice", f"{name}: {count} ticks from {first} to {last}")
        while first <= last:
            outcomes[str(first)] = outcome
            report.counts[outcome] += 1
            first += SECOND
        expected = last + SECOND
    if _moment(next_run) > expected:
        report.fault("tick lost", f"{name}: nothing of {expected}, the next is {next_run}")
    if _moment(next_run) < expected:
        report.fault("tick twice", f"{name}: {next_run} is in the ledger and still to come")
    return outcomes


def _judge_runs(name: str, ticks: dict[str, str], runs: list[Run], report: Report) -> None:
    """Check that each fired tick has one run, and each run its tick."""
    own = Counter(run.tick for run in runs if run.cause == "schedule")
    for tick, outcome in ticks.items():
        if outcome in RAN and tick not in own:
            report.fault("fired without a run", f"{name}: {tick}")
    for tick, count in own.items():
        if ticks.get(tick) not in RAN:
            report.fault("run without a tick", f"{name}: {tick}")
        if count > 1:
            report.fault("fired twice", f"{name}: {tick} has {count} runs")


def _judge_effects(runs: list[Run], effects: list[Effect], told: set[int], report: Report) -> None:
    """Check that a successful run has one effect, and a lost run at most one and an event."""
    ends = Counter(effect.run_id for effect in effects if effect.step == "end")
    by_tick: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for effect in effects:
        if effect.step == "end":
            by_tick[effect.name, effect.tick].append(effect.run_id)
    for (name, tick), run_ids in by_tick.items():
        if len(run_ids) > 1:
            report.fault("done twice", f"{name}: {tick} by the runs {run_ids}")
    known = {run.run_id for run in runs}
    for run_id in ends.keys() - known:
        report.fault("done without a run", f"run {run_id}")
    for run in runs:
        report.counts[run.status] += 1
        if run.status == "success":
            if ends[run.run_id] != 1:
                report.fault("success without its effect", f"run {run.run_id} of {run.name}: {run.tick}")
        elif run.status != "frozen":
            report.fault("ended badly", f"run {run.run_id} of {run.name} is {run.status}")
        elif run.run_id not in told:
            report.fault("lost in silence", f"run {run.run_id} of {run.name}: {run.tick}")
