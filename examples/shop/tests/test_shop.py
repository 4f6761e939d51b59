"""The shop's tests: most need no server, one has a server with a clock of its own."""

import sqlite3
from pathlib import Path

import pytest

from bedrockjobs import JobFailed
from bedrockjobs.outbox import OutboxRelay, OutboxTable, connect
from bedrockjobs.testing import ServerUnderTest, capture, eager
from shop import database, jobs, orders


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a shop of its own."""
    monkeypatch.setattr(database, "FILE", tmp_path / "shop.db")
    monkeypatch.setattr(jobs, "REPORT", tmp_path / "report.txt")
    database.prepare()


def test_the_functions_alone() -> None:
    assert jobs.revenue("Emma") == 0
    assert jobs.report.checked([950, 1400], currency="USD") == "23.50 USD by 2 books"


def test_the_night_starts_a_report() -> None:
    with capture() as captured:
        jobs.nightly()
    captured.assert_enqueued(jobs.revenue, title="Emma")
    captured.assert_enqueued(jobs.publish)
    assert len(captured) == 4


def test_a_report_counts_orders() -> None:
    orders.place("Ann", "Emma")
    with eager():
        assert jobs.confirm.enqueue(1).wait() == "Ann gets Emma"
        with pytest.raises(JobFailed, match="there is no order 2"):
            jobs.confirm.enqueue(2).wait()
        path = jobs.sales().start().wait()
    assert Path(path).read_text() == "9.50 EUR by 2 books\n"


def test_an_order_and_its_job_are_committed_together(bedrockjobs_server: ServerUnderTest) -> None:
    orders.place("Ann", "Ulysses")
    with pytest.raises(sqlite3.IntegrityError):
        orders.place("Bob", "Ulysses")  # the last copy is sold: neither an order nor a job
    relay = OutboxRelay(str(database.FILE), bedrockjobs_server.client)
    shop = connect(str(database.FILE))
    assert relay.carry(OutboxTable(shop)).sent == 1
    shop.close()
    assert bedrockjobs_server.run_jobs("shop.jobs") == 1
    bedrockjobs_server.advance("1d")  # past 3 o'clock, when the night starts four jobs
    assert bedrockjobs_server.run_jobs("shop.jobs") == 5
    assert jobs.REPORT.read_text() == "14.00 EUR by 2 books\n"
