"""What `/metrics` and `/healthz` tell of a database and of a server's memory, and what they cost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import Settings
from bedrockjobs.base.errors import NotFound, TimedOut
from bedrockjobs.engine.events import DrainsChanged, Listeners, RunEnded, RunOpened, TicksEntered
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe import prometheus as module
from bedrockjobs.observe.measurements import BATCH, Histogram, Measurements
from bedrockjobs.observe.prometheus import OTHER, Metrics, routes
from bedrockjobs.observe.stats import Stats
from bedrockjobs.protocol.http import problem
from bedrockjobs.store import schema, statements
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.views import Views, queues

NOW = datetime(2026, 11, 21, 3, 0, 0, tzinfo=UTC)
DUE, LATER = "2026-11-21 02:59:00", "2026-11-21 04:00:00"
OLD = "2026-11-21 01:00:00"

Samples = dict[str, dict[tuple[str, ...], float]]


def run_ended(status: str, took_s: float) -> RunEnded:
    """Return a run that ended."""
    return RunEnded(1, 1, "a", 1, "retry", "w", "", "", status, None, "", "", took_s)


class Work:
    """Stands for the dispatcher."""

    pending, commands, commits, waiting = 3, 1_000, 40, 7


class Site:
    """A database, what a server would know beside it, and its metrics."""

    def __init__(self, path: Path, reader: SQLiteReader, settings: Settings) -> None:
        """Write to the database at ``path``, read it by ``reader``."""
        self.db = sqlite3.connect(path, isolation_level=None)
        self.clock = ManualClock(NOW)
        self.presence, self.measurements, self.notifier = (
            WorkerRegistry(self.clock, self.clock),
            Measurements(),
            Notifier(),
        )
        self.views = Views(reader, self.notifier, self.presence, Stats(), self.clock, settings)
        self.metrics = Metrics(
            reader,
            self.views,
            Work(),
            self.presence,
            self.measurements,
            lambda: {"created": 5},
            settings,
        )
        self._number = 0

    def job(self, name: str, next_run: str = DUE, **more: Any) -> int:
        """Add a queued job."""
        self._number += 1
        row = {"created": OLD, "jobID": self._number, "state": "QUEUED", "name": name, "nextRun": next_run}
        self.add("jobs", **{**row, **more})
        return self._number

    def add(self, table: str, **row: Any) -> None:
        """Add a row."""
        columns = ", ".join(f'"{column}"' for column in row)
        marks = ", ".join("?" * len(row))
        self.db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))

    def schedule(self, name: str = "nightly", **more: Any) -> int:
        """Add a schedule."""
        return self.job(name, LATER, repeat="CRON 0 3 * * *", **more)

    def run(self, run_id: int, job_id: int, status: str = "success", **more: Any) -> None:
        """Add a run of a schedule, which ended if it does."""
        row = {
            "runID": run_id, "jobID": job_id, "name": "nightly", "attempt": 1, "cause": "schedule",
            "scheduledFor": OLD, "started": OLD, "worker": "w", "status": status,
            "ended": "" if status == "running" else f"{OLD}.000",
        }  # fmt: skip
        self.add("runs", **{**row, **more})

    def tick(self, job_id: int, tick: str, outcome: str, reason: str = "") -> None:
        """Add a row of the ledger."""
        self.add("ticks", jobID=job_id, tick=tick, until=tick, count=1, outcome=outcome, reason=reason)

    async def samples(self) -> Samples:
        """Return what a scrape tells: name, then values of labels, then value."""
        self.metrics._found = None  # as after FRESH_S
        found: Samples = {}
        for family in await self.metrics.scrape():
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sample.labels.values())] = float(sample.value)
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Return an empty database with its metrics."""
    path = tmp_path / "jobs.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    schema.apply(db)
    db.close()
    settings = Settings(database=str(path))
    reader = SQLiteReader(str(path), settings)
    await reader.open()
    found = Site(path, reader, settings)
    yield found
    await reader.close()
    found.db.close()


# --- the queue -------------------------------------------------------------------------------------------


def not_0(samples: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Return the samples that are not 0."""
    return {labels: value for labels, value in samples.items() if value}


async def test_an_empty_queue_has_no_prefix_and_no_age(site: Site) -> None:
    found = await site.samples()
    assert "bedrockjobs_jobs" not in found
    assert found["bedrockjobs_queue_latency_seconds"] == {(): 0}
    assert found["bedrockjobs_queue_read_ok"] == {(): 1}


async def test_jobs_count_by_the_beginning_of_their_names(site: Site) -> None:
    site.job("mail/send")
    site.job("mail/send", LATER)
    site.job("mail/bounce/soft", OLD)
    site.job("mail")
    site.job("mail-merge")
    site.job("/odd")
    found = await site.samples()
    assert not_0(found["bedrockjobs_jobs"]) == {
        ("ready", ""): 1, ("ready", "mail"): 3, ("later", "mail"): 1, ("ready", "mail-merge"): 1,
    }  # fmt: skip
    assert {state for state, _ in found["bedrockjobs_jobs"]} == set(module.STANDINGS)
    assert found["bedrockjobs_oldest_ready_seconds"] == {("mail",): 7200, ("mail-merge",): 60, ("",): 60}
    assert found["bedrockjobs_queue_latency_seconds"] == {(): 7200}


async def test_a_job_that_is_not_due_has_no_age(site: Site) -> None:
    site.job("mail", LATER)
    found = await site.samples()
    assert not_0(found["bedrockjobs_jobs"]) == {("later", "mail"): 1}
    assert found["bedrockjobs_oldest_ready_seconds"] == {("mail",): 0}


async def test_lanes_add_up_and_each_job_counts_where_it_stands(site: Site) -> None:
    site.job("mail/a")
    site.job("mail/b", lane="lock printer")
    site.job("mail/c", lane="mock")
    site.job("mail/d", LATER, lane="every")
    site.job("mail/f", lane="lock disk")
    site.job("mail/e", state="RUNNING", lane="lock disk")
    site.job("post", lane="url")
    site.job("held/a")
    site.job("held/b", LATER)
    site.job("held/c", lane="now")
    site.add("pauses", pattern="held/*", since=OLD)
    found = await site.samples()
    assert not_0(found["bedrockjobs_jobs"]) == {
        ("ready", "mail"): 2, ("mocked", "mail"): 1, ("later", "mail"): 1, ("blocked", "mail"): 1,
        ("ready", "post"): 1, ("paused", "held"): 2, ("ready", "held"): 1,
    }  # fmt: skip
    assert found["bedrockjobs_pauses"] == {(): 1}


async def test_jobs_that_nobody_takes_are_counted(site: Site) -> None:
    site.job("mail/a")
    site.job("mail/b")
    site.job("post")
    site.presence.seen("w", names=["mail/a", "post"])
    assert not_0((await site.samples())["bedrockjobs_jobs_untaken"]) == {("mail",): 1}
    Listeners([site.presence]).tell([DrainsChanged(frozenset({"w"}))])
    site.add("drains", worker="w", since=OLD)
    assert not_0((await site.samples())["bedrockjobs_jobs_untaken"]) == {("mail",): 2, ("post",): 1}


async def test_names_beyond_the_cap_are_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PREFIXES_MAX", 3)
    for number in range(6):
        site.job(f"n{number}/x", OLD if number == 5 else DUE)
    site.job("zz", lane="mock")
    found = await site.samples()
    assert {prefix for _, prefix in found["bedrockjobs_jobs"]} == {"n0", "n1", "n2", OTHER}
    assert found["bedrockjobs_jobs"][("ready", OTHER)] == 3
    assert found["bedrockjobs_oldest_ready_seconds"][(OTHER,)] == 7200


async def test_a_count_ends_at_its_limit_and_the_oldest_is_found_behind_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "COUNTED_MAX", 10)
    for _ in range(20):
        site.job("mail/a")
    site.job("mail/b", OLD)
    found = await site.samples()
    assert not_0(found["bedrockjobs_jobs"]) == {("ready", "mail"): 11}
    assert found["bedrockjobs_oldest_ready_seconds"] == {("mail",): 7200}


async def test_the_age_is_found_in_any_priority(site: Site) -> None:
    site.job("mail", priority=1000)
    site.job("mail", OLD, priority=0)
    assert (await site.samples())["bedrockjobs_oldest_ready_seconds"] == {("mail",): 7200}


async def test_failed_jobs_are_counted(site: Site) -> None:
    site.job("mail", state="FAILED")
    assert (await site.samples())["bedrockjobs_jobs_failed"] == {(): 1}


async def test_a_look_that_takes_too_long_leaves_the_rest(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: Any, **__: Any) -> Any:
        raise TimedOut("Timeout", "query: it took too long")

    monkeypatch.setattr(site.metrics._reader, "view", slow)
    found = await site.samples()
    assert found["bedrockjobs_queue_read_ok"] == {(): 0}
    assert "bedrockjobs_jobs" not in found
    assert found["bedrockjobs_commands_total"] == {(): 1_000}


async def test_many_scrapers_cost_one_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr(site.metrics, "_monotonic", lambda: moment)
    looks = 0
    look = site.metrics._look

    async def counted() -> Any:
        nonlocal looks
        looks += 1
        return await look()

    monkeypatch.setattr(site.metrics, "_look", counted)
    for _ in range(3):
        await site.metrics.scrape()
    assert looks == 1
    moment += module.FRESH_S
    await site.metrics.scrape()
    assert looks == 2


def test_a_health_check_finds_its_rows_by_an_index() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.apply(db)
    sql = statements.METRICS["health_of_schedule"]
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", {"limit": 1, "name": "x"})]
    db.close()
    tables = ("jobs", "runs", "ended", "ticks", "newest")
    on_tables = [step for step in steps if step.startswith(("SEARCH", "SCAN")) and step.split()[1] in tables]
    assert len(on_tables) == len(tables)
    assert not [step for step in on_tables if step.startswith("SCAN")]
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps)


# --- what is in memory -----------------------------------------------------------------------------------


async def test_a_scrape_tells_what_the_server_knows(site: Site) -> None:
    site.metrics.connections = lambda: 12
    site.presence.seen("one")
    site.presence.seen("two")
    Listeners([site.presence]).tell([DrainsChanged(frozenset({"two"}))])
    Listeners([site.presence]).tell([RunOpened(1, 1, "one", 45, "schedule", 0.0)])
    found = await site.samples()
    assert found["bedrockjobs_connections"] == {(): 12}
    assert found["bedrockjobs_long_polls"] == {(): 7}
    assert found["bedrockjobs_commands_pending"] == {(): 3}
    assert found["bedrockjobs_commits_total"] == {(): 40}
    assert found["bedrockjobs_runs_open"] == {(): 1}
    assert found["bedrockjobs_jobs_done_total"] == {("created",): 5}
    assert found["bedrockjobs_draining"] == {(): 0}
    assert found["bedrockjobs_workers"] == {("active",): 1, ("drained",): 1, ("draining",): 0, ("quiet",): 0}
    assert found["bedrockjobs_database_bytes"][()] > 4_096
    assert found["bedrockjobs_disk_free_bytes"][()] > 0
    assert list(found["bedrockjobs_build_info"].values()) == [1]


async def test_a_scrape_tells_what_was_measured(site: Site) -> None:
    site.measurements.committed(0.003, 20)
    Listeners([site.measurements]).tell(
        [
            RunOpened(1, 1, "w", 45, "retry", 0.2),
            run_ended("frozen", 30),
            run_ended("success", 2),
            TicksEntered("fired", 1, 0),
            TicksEntered("skipped", 4, 0),
        ]
    )
    found = await site.samples()
    assert found["bedrockjobs_runs_lost_total"] == {(): 1}
    assert found["bedrockjobs_retries_total"] == {(): 1}
    assert found["bedrockjobs_runs_ended_total"] == {("frozen",): 1, ("success",): 1}
    assert found["bedrockjobs_ticks_total"] == {("fired",): 1, ("skipped",): 4}
    assert found["bedrockjobs_tick_late_seconds_count"] == {(): 1}
    assert found["bedrockjobs_run_seconds_sum"] == {(): 32}
    assert found["bedrockjobs_commit_seconds_bucket"][("0.0025",)] == 0
    assert found["bedrockjobs_commit_seconds_bucket"][("0.005",)] == 1
    assert found["bedrockjobs_commit_commands_bucket"][("32",)] == 1
    assert found["bedrockjobs_run_wait_seconds_count"] == {(): 1}


def test_a_histogram_counts_a_value_at_its_bound_and_beyond_the_last() -> None:
    found = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 2.5):
        found.add(value)
    assert list(found.up_to()) == [(1, 2), (2, 4), (float("inf"), 5)]
    assert found.sum == 7.5


def test_a_batch_of_the_largest_size_has_a_bound() -> None:
    assert Settings.model_fields["batch_max"].default in BATCH


# --- health ----------------------------------------------------------------------------------------------


async def test_an_unknown_schedule_is_not_found(site: Site) -> None:
    site.job("nightly", repeat="FINISHED, +1 DAY")
    with pytest.raises(NotFound, match="No such schedule"):
        await site.metrics.health("nightly")


async def test_a_schedule_that_has_not_run_is_well(site: Site) -> None:
    site.schedule()
    assert await site.metrics.health("nightly") == (True, "no run has ended yet")


async def test_the_last_run_that_ended_decides(site: Site) -> None:
    job = site.schedule()
    site.run(1, job, "fail", exitCode=3)
    assert await site.metrics.health("nightly") == (
        False, f"run 1 ended {OLD}.000: fail, exit status 3",
    )  # fmt: skip
    site.run(2, job)
    site.run(3, job, "running")
    assert await site.metrics.health("nightly") == (True, f"run 2 ended {OLD}.000: success")


@pytest.mark.parametrize(
    ("reason", "well"), [("no worker", False), ("server down", False), ("paused", True), ("running", True)]
)
async def test_a_skipped_tick_is_unhealthy_where_nobody_meant_it(site: Site, reason: str, well: bool) -> None:
    job = site.schedule()
    site.run(1, job)
    site.tick(job, DUE, "skipped", reason)
    found, why = await site.metrics.health("nightly")
    assert found is well
    if not well:
        assert why == f"the tick of {DUE} was skipped: {reason}"


async def test_a_run_after_a_skipped_tick_makes_it_well(site: Site) -> None:
    job = site.schedule()
    site.tick(job, "2026-11-21 00:00:00", "skipped", "no worker")
    site.run(1, job)
    assert (await site.metrics.health("nightly"))[0] is True


async def test_a_schedule_that_ended_is_not_well(site: Site) -> None:
    job = site.schedule(state="FAILED")
    assert await site.metrics.health("nightly") == (False, f"job {job} is FAILED: it has no further ticks")


async def test_one_of_several_of_a_name_is_enough(site: Site) -> None:
    site.run(1, site.schedule(), "timeout")
    site.run(2, site.schedule())
    assert (await site.metrics.health("nightly"))[0] is False


# --- over HTTP -------------------------------------------------------------------------------------------


@web.middleware
async def _told(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        return await handler(request)  # type: ignore[no-any-return]
    except NotFound as error:
        return problem(error)


@pytest.fixture
async def client(site: Site) -> AsyncIterator[aiohttp.ClientSession]:
    """Return a client of an application with these routes alone."""
    app = web.Application(middlewares=[_told])
    app.router.add_routes(routes(site.metrics, lambda: 2))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TestServer(app))
        yield await stack.enter_async_context(aiohttp.ClientSession(base_url=server.make_url("/")))


def _families(text: str) -> Iterable[Any]:
    return text_string_to_metric_families(text)


async def test_the_text_is_read_by_prometheus_own_parser(site: Site, client: aiohttp.ClientSession) -> None:
    site.job('we"ird\\/x')
    async with client.get("/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        families = {family.name: family for family in _families(await response.text())}
    assert families["bedrockjobs_connections"].samples[0].value == 2
    assert families["bedrockjobs_jobs"].samples[0].labels == {"state": "ready", "prefix": 'we"ird\\'}
    assert families["process_open_fds"].samples[0].value > 0
    for family in families.values():
        assert family.documentation, family.name


async def test_openmetrics_is_spoken_to_who_asks_for_it(client: aiohttp.ClientSession) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with client.get("/metrics", headers=accept) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        assert (await response.text()).endswith("# EOF\n")


async def test_health_over_http(site: Site, client: aiohttp.ClientSession) -> None:
    async def ask(**query: str) -> tuple[int, Any]:
        async with client.get("/healthz", params=query) as response:
            return response.status, json.loads(await response.text())

    assert await ask() == (200, {"status": "ok", "reason": "serving"})
    job = site.schedule()
    assert (await ask(schedule="nightly"))[0] == 200
    site.run(1, job, "killed")
    assert await ask(schedule="nightly") == (
        503,
        {"status": "failing", "reason": f"run 1 ended {OLD}.000: killed", "schedule": "nightly"},
    )
    status, body = await ask(schedule="unknown")
    assert (status, body["code"]) == (404, 404)
    site.notifier.end()
    assert await ask() == (503, {"status": "failing", "reason": "stopping"})
