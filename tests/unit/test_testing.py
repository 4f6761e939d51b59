"""The server for tests of applications: months of schedules in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bedrockjobs.base.errors import NotFound
from bedrockjobs.client import Client, ServerUnreachable
from bedrockjobs.commands import CreateJob, FailJob, FinishJob, GetJob, ListTicks, Ping, QueryJob, Status
from bedrockjobs.testing import START, ServerUnderTest

TOP = Path(__file__).parents[2]


def runs_until(server: ServerUnderTest, name: str, end: str) -> list[str]:
    """Advance from one due time to the next; take and finish each run, and return the times."""
    found = []
    while (moment := server.next()) is not None and moment < datetime.fromisoformat(end).replace(tzinfo=UTC):
        job = server.client.call(GetJob(name=name, worker="test"))
        server.client.call(FinishJob(job_id=job.job_id, run_id=job.run_id))
        found.append(f"{moment:%Y-%m-%d %H:%M:%S}")
    return found


def test_a_nightly_job_over_a_month() -> None:
    with ServerUnderTest() as server:
        job_id = server.client.call(CreateJob(name="nightly", repeat="CRON 0 3 * * *")).job_id
        assert runs_until(server, "nightly", "2030-02-01") == [
            f"2030-01-{day:02d} 03:00:00" for day in range(1, 32)
        ]
        ticks = server.client.call(ListTicks(job_id=job_id)).ticks
        assert sum(tick.count for tick in ticks) == 31
        assert {tick.outcome for tick in ticks} == {"fired"}


def test_a_weekly_job() -> None:
    with ServerUnderTest() as server:
        server.client.call(CreateJob(name="weekly", repeat="CRON 30 9 * * 1"))
        mondays = [f"2030-01-{day:02d} 09:30:00" for day in (7, 14, 21, 28)]
        assert runs_until(server, "weekly", "2030-02-01") == mondays


def test_a_change_of_daylight_saving_time() -> None:
    """From the last Sunday of March 2030, 9 o'clock in Berlin is an hour earlier in UTC."""
    with ServerUnderTest("2030-03-30 00:00") as server:
        server.client.call(CreateJob(name="office", repeat="CRON TZ=Europe/Berlin 0 9 * * *"))
        assert runs_until(server, "office", "2030-04-02") == [
            "2030-03-30 08:00:00",
            "2030-03-31 07:00:00",
            "2030-04-01 07:00:00",
        ]


def test_ticks_that_nobody_took() -> None:
    with ServerUnderTest() as server:
        job_id = server.client.call(CreateJob(name="hourly", repeat="CRON 0 * * * *")).job_id
        server.advance("1d")
        job = server.client.call(GetJob(name="hourly", worker="test"))
        assert job.next_run == "2030-01-02 00:00:00"
        server.client.call(FinishJob(job_id=job_id, run_id=job.run_id))
        ticks = server.client.call(ListTicks(job_id=job_id)).ticks
        assert [(tick.outcome, tick.reason, tick.count) for tick in ticks] == [
            ("caught up", "", 1),
            ("skipped", "no worker", 23),
        ]


def test_retries() -> None:
    with ServerUnderTest() as server:
        job_id = server.client.call(CreateJob(name="a", retries=1, backoff="10m")).job_id
        job = server.client.call(GetJob(name="a", worker="test"))
        server.client.call(FailJob(job_id=job_id, run_id=job.run_id, error="no"))
        again = server.next()
        assert again is not None
        assert timedelta(minutes=10) <= again - START <= timedelta(minutes=12.5)
        assert server.client.call(GetJob(name="a", worker="test")).attempt == 2


@pytest.mark.parametrize("by", ["1h30m", 5_400, 5_400.0, timedelta(hours=1.5), "+90 MINUTES"])
def test_by_a_duration(by: str | float | timedelta) -> None:
    with ServerUnderTest() as server:
        assert server.now == START
        assert server.advance(by) == server.now == START + timedelta(minutes=90)
        assert server.client.call(Status()).now == "2030-01-01 01:30:00"


@pytest.mark.parametrize("to", ["2030-01-02 03:04:05.500", "2030-01-02T04:04:05.500+01:00"])
def test_to_a_moment(to: str) -> None:
    with ServerUnderTest() as server:
        assert server.advance_to(to) == datetime(2030, 1, 2, 3, 4, 5, 500_000, UTC)
        assert server.advance_to(datetime(2030, 1, 3)) == datetime(2030, 1, 3, tzinfo=UTC)
        assert server.advance_to(server.now) == server.now


def test_what_cannot_be_done() -> None:
    with ServerUnderTest() as server:
        with pytest.raises(ValueError, match="by: expected a duration"):
            server.advance("soon")
        with pytest.raises(ValueError, match="by: expected a duration"):
            server.advance(-1)
        with pytest.raises(ValueError, match="expected one from 2030-01-01"):
            server.advance_to("2029-12-31")
        with pytest.raises(ValueError, match="expected a moment like"):
            server.advance_to("soon")
        assert server.now == START
    with pytest.raises(ValueError, match="expected a moment like"):
        ServerUnderTest("soon")


def test_nothing_to_come() -> None:
    with ServerUnderTest() as server:
        assert server.next() is None
        server.client.call(CreateJob(name="a"))
        server.client.call(GetJob(name="a"))
        assert server.next() is None
        assert server.now == START


def test_both_protocols_and_its_end() -> None:
    with ServerUnderTest("2031-05-06 07:08") as server:
        with urllib.request.urlopen(f"{server.url}/Status", data=b"{}") as answer:
            assert json.load(answer)["now"] == "2031-05-06 07:08:00"
        with Client(server.address) as other:
            other.call(Ping())
        address = server.address
    with Client(address, tries=1) as late, pytest.raises(ServerUnreachable):
        late.call(Ping())


def test_two_at_once_are_apart() -> None:
    with ServerUnderTest() as one, ServerUnderTest() as other:
        job_id = one.client.call(CreateJob(name="a")).job_id
        with pytest.raises(NotFound):
            other.client.call(QueryJob(job_id=job_id))
        one.advance("1h")
        assert other.now == START


USER_TESTS = """
import pytest
from bedrockjobs import CreateJob, GetJob, NotFound

def test_at_first(bedrockjobs_server):
    assert str(bedrockjobs_server.now) == "2030-01-01 00:00:00+00:00"
    bedrockjobs_server.client.call(CreateJob(name="a", firstRun="2030-01-01 12:00:00"))
    with pytest.raises(NotFound):
        bedrockjobs_server.client.call(GetJob(name="a"))
    bedrockjobs_server.advance("12h")
    assert bedrockjobs_server.client.call(GetJob(name="a")).name == "a"

class TestElsewhere:
    @pytest.fixture
    def bedrockjobs_start(self):
        return "2028-02-28"

    def test_leap_year(self, bedrockjobs_server):
        assert str(bedrockjobs_server.advance("1d"))[:10] == "2028-02-29"
"""


def test_the_fixture_in_a_project_of_others(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USER_TESTS)
    options = ["-q", "-W", "error", "-p", "no:cacheprovider"]
    others = ["-p", "no:asyncio", "-p", "no:timeout", "-p", "no:schemathesis"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *others, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_pytest_is_needed_by_the_fixture_alone() -> None:
    code = "import sys; sys.modules['pytest'] = None; import bedrockjobs.testing, bedrockjobs.cli"
    subprocess.run([sys.executable, "-c", code], cwd=TOP, check=True)


def test_the_plugin_loads_nothing_before_it_is_used() -> None:
    loaded = "[name for name in sys.modules if name.startswith('bedrockjobs.')]"
    code = f"import sys, bedrockjobs.pytest_plugin; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['bedrockjobs.pytest_plugin']"
