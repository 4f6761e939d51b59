"""`/metrics`: the values about a database and a server's memory, and their cost."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scraped import DUE, LATER, OLD, Site, run_ended, scraped

from bedrockjobs import views
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.events import DrainsChanged, Listeners, RunOpened, TicksEntered
from bedrockjobs.observe import prometheus as module
from bedrockjobs.observe.prometheus import OTHER
from bedrockjobs.observe.stats import Histogram, Measurements
from bedrockjobs.store import schema, statements
from bedrockjobs.store.base import ServerRow
from bedrockjobs.views import queues


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Return an empty database with its metrics."""
    async with scraped(tmp_path / "jobs.db") as found:
        yield found


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
        ("ready", ""): 1,
        ("ready", "mail"): 3,
        ("later", "mail"): 1,
        ("ready", "mail-merge"): 1,
    }
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
        ("ready", "mail"): 2,
        ("mocked", "mail"): 1,
        ("later", "mail"): 1,
        ("blocked", "mail"): 1,
        ("ready", "post"): 1,
        ("paused", "held"): 2,
        ("ready", "held"): 1,
    }
    assert found["bedrockjobs_pauses"] == {(): 1}


async def test_workflows_are_counted_by_state_up_to_a_limit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, state in enumerate(("RUNNING", "FAILED", "FAILED", "FINISHED"), 1):
        site.add("workflows", workflowID=number, name="w", state=state, created=OLD, keep=1)
    found = (await site.samples())["bedrockjobs_workflows"]
    assert found == {("RUNNING",): 1, ("FAILED",): 2}
    monkeypatch.setattr(views, "WORKFLOWS_COUNTED", 1)
    found = (await site.samples())["bedrockjobs_workflows"]
    assert found == {("RUNNING",): 1, ("FAILED",): 1}


async def test_jobs_that_nobody_takes_are_counted(site: Site) -> None:
    site.job("mail/a")
    site.job("mail/b")
    site.job("post")
    site.presence.record_contact("w", names=["mail/a", "post"])
    assert not_0((await site.samples())["bedrockjobs_jobs_untaken"]) == {("mail",): 1}
    Listeners([site.presence]).publish([DrainsChanged(frozenset({"w"}))])
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
    monkeypatch.setattr(queues, "COUNT_S", 0)
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


async def test_what_is_wrong_is_counted_by_kind(site: Site) -> None:
    site.job("mail", state="FAILED")
    site.job("post")
    site.presence.record_contact("w", names=["mail"])
    site.add("pauses", pattern="held/*", since=OLD)
    site.add("drains", worker="w", since=OLD)
    found = (await site.samples())["bedrockjobs_problems"]
    assert not_0(found) == {("no worker",): 1, ("failed",): 1, ("paused",): 1, ("drained",): 1}
    assert found[("disk low",)] == 0, "a rule can tell 0 from nothing known"


async def test_a_look_that_takes_too_long_leaves_the_rest(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: Any, **__: Any) -> Any:
        raise TimedOut("Timeout", "query: it took too long")

    monkeypatch.setattr(site.reader, "view", slow)
    found = await site.samples()
    assert found["bedrockjobs_queue_read_ok"] == {(): 0}
    assert "bedrockjobs_jobs" not in found
    assert found["bedrockjobs_commands_total"] == {(): 1_000}


async def test_many_scrapers_cost_one_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    view = site.reader.view

    async def counted(*given: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return await view(*given, **more)

    monkeypatch.setattr(site.reader, "view", counted)
    monkeypatch.setattr(module, "FRESH_S", 3_600.0)
    await site.metrics.scrape()
    one_look = reads
    for _ in range(3):
        await site.metrics.scrape()
    assert reads == one_look > 0
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    await site.metrics.scrape()
    assert reads == 2 * one_look


def test_a_health_check_finds_its_rows_by_an_index() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.apply(db)
    sql = statements.METRICS["health_of_schedule"]
    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", {"limit": 1, "name": "x"})]
    db.close()
    tables = ("jobs", "runs", "ended", "before", "earlier", "begun", "ticks", "newest")
    on_tables = [step for step in steps if step.startswith(("SEARCH", "SCAN")) and step.split()[1] in tables]
    assert len(on_tables) == len(tables)
    assert not [step for step in on_tables if step.startswith("SCAN")]
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps)


# --- what is in memory -----------------------------------------------------------------------------------


async def test_each_server_of_the_database_is_told(site: Site) -> None:
    row = ServerRow("a", "127.0.0.1:4000", "2026-11-21 02:00:00.000", "2026-11-21 03:00:00.500", "1.0", 3)
    site.presence.servers = [row]
    site.presence.record_contact("one")
    found = await site.samples()
    assert found["bedrockjobs_servers"] == {
        ("serving",): 1,
        ("silent",): 0,
        ("starting",): 0,
        ("stopping",): 0,
    }
    assert sorted(next(iter(found["bedrockjobs_server_info"]))) == ["1.0", "127.0.0.1:4000", "a"]
    assert found["bedrockjobs_server_workers"] == {("a",): 1}, "all workers of a file speak to its server"
    began = datetime(2026, 11, 21, 2, tzinfo=UTC).timestamp()
    assert found["bedrockjobs_server_start_time_seconds"] == {("a",): began}
    assert found["bedrockjobs_server_pulse_time_seconds"] == {("a",): began + 3_600}


async def test_a_scrape_tells_what_the_server_knows(site: Site) -> None:
    site.metrics.connections = lambda: 12
    site.presence.record_contact("one")
    site.presence.record_contact("two")
    Listeners([site.presence]).publish([DrainsChanged(frozenset({"two"}))])
    Listeners([site.presence]).publish([RunOpened(1, 1, "one", 45, "schedule", 0.0)])
    found = await site.samples()
    assert found["bedrockjobs_connections"] == {(): 12}
    assert found["bedrockjobs_long_polls"] == {(): 7}
    assert found["bedrockjobs_commands_pending"] == {(): 3}
    assert found["bedrockjobs_commits_total"] == {(): 40}
    assert found["bedrockjobs_runs_open"] == {(): 1}
    assert found["bedrockjobs_jobs_done_total"] == {("created",): 5}
    assert found["bedrockjobs_draining"] == {(): 0}
    assert found["bedrockjobs_workers"] == {("active",): 1, ("drained",): 1, ("draining",): 0, ("quiet",): 0}
    assert set(found["bedrockjobs_servers"].values()) == {0}
    assert found["bedrockjobs_database_bytes"][()] > 4_096
    assert found["bedrockjobs_disk_free_bytes"][()] > 0
    assert list(found["bedrockjobs_build_info"].values()) == [1]


async def test_a_scrape_tells_what_was_measured(site: Site) -> None:
    site.measurements.committed(0.003, 20)
    Listeners([site.measurements]).publish(
        [
            RunOpened(1, 1, "w", 45, "retry", 0.2),
            run_ended("frozen", 30),
            run_ended("success", 2),
            TicksEntered("fired", 1, 0),
            TicksEntered("skipped", 4, 0, "lock held"),
        ]
    )
    found = await site.samples()
    assert found["bedrockjobs_runs_lost_total"] == {(): 1}
    assert found["bedrockjobs_retries_total"] == {(): 1}
    assert found["bedrockjobs_runs_ended_total"] == {("frozen",): 1, ("success",): 1}
    assert found["bedrockjobs_ticks_total"] == {("fired",): 1, ("skipped",): 4}
    assert found["bedrockjobs_ticks_skipped_total"] == {("lock held",): 4}
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
    assert Settings.model_fields["batch_max"].default in Measurements().batch.bounds
