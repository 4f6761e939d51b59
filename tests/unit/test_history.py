"""The history checker: correct histories pass, and each kind of fault is found and named."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tests.history import Ledger, judge, matched


class Story:
    """A ledger written call by call; each call takes one second by default."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.now = 0.0
        self._ids = 0
        self._specs: dict[int, dict[str, Any]] = {}

    def call(self, verb: str, code: int = 200, reply: Any = None, **asked: Any) -> None:
        """Record a call that was answered."""
        number = self.ledger.sent(self.now, "somebody", verb, asked)
        self.ledger.answered(number, self.now + 1, code, reply)
        self.now += 2

    def lost(self, verb: str, **asked: Any) -> None:
        """Record a call whose answer was lost with the server."""
        number = self.ledger.sent(self.now, "somebody", verb, asked)
        self.ledger.killed(self.now + 0.5)
        self.ledger.cut(number, self.now + 1)
        self.now += 2

    def create(self, token: str, job_id: int = 0, **more: Any) -> int:
        """Record the creation of a job."""
        self._ids = job_id or self._ids + 1
        spec = {"name": "job", "data": {"token": token}, **more}
        self._specs[self._ids] = spec
        self.call("CreateJob", reply={"jobID": self._ids}, **spec)
        return self._ids

    def take(self, job_id: int, token: str = "", **more: Any) -> None:
        """Record that a job was handed out."""
        self.call("GetJob", reply=self.job(job_id, token) | more, name="*")

    def job(self, job_id: int, token: str = "") -> dict[str, Any]:
        """Return a job as in a reply."""
        data = {"token": token} if token else self._specs[job_id]["data"]
        return {"jobID": job_id, "data": data}

    def finish(self, job_id: int, code: int = 200) -> None:
        """Record the end of a run."""
        self.call("FinishJob", code, jobID=job_id)

    def look(self, **states: str) -> None:
        """Record a list of all jobs: ``j1="QUEUED"`` for job 1."""
        jobs = [self.job(int(key[1:])) | {"state": state} for key, state in states.items()]
        self.call("Look", reply={"jobs": jobs}, whole=True)

    def faults(self) -> set[str]:
        """Return the kinds of faults found."""
        return set(judge(self.ledger).faults)


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_honest_life(story: Story) -> None:
    job = story.create("a")
    story.take(job)
    story.call("RetryJob", jobID=job)
    story.take(job)
    story.finish(job)
    story.finish(job, 404)
    story.look()
    report = judge(story.ledger)
    assert not report.faults, report
    assert (report.counts["created"], report.counts["handed out"], report.counts["refused"]) == (1, 2, 1)


def test_lost_answers_are_unknown(story: Story) -> None:
    story.lost("CreateJob", name="job", data={"token": "never"})
    story.lost("CreateJob", name="job", data={"token": "perhaps"})
    story.take(7, "perhaps")
    story.lost("FinishJob", jobID=7)
    story.finish(7, 404)
    taken = story.create("taken", 8)
    story.lost("GetJob", name="*")
    story.look(j8="RUNNING")
    story.call("RequeueJobs", jobIDs=[taken])
    story.take(taken)
    story.finish(taken)
    story.look()
    report = judge(story.ledger)
    assert not report.faults, report
    assert report.counts["hand-outs lost with their answer"] == 1


def test_calls_that_overlap_may_have_happened_in_any_order(story: Story) -> None:
    job = story.create("a")
    waiting = story.ledger.sent(0.0, "waiter", "GetJob", {"name": "*"})
    story.take(job)
    story.call("RetryJob", jobID=job)
    story.ledger.answered(waiting, story.now, 200, story.job(job))
    story.now += 1
    story.finish(job)
    assert not story.faults()


def test_a_family(story: Story) -> None:
    parent = story.create("p")
    story.take(parent)
    first = story.create("p.1", parentJobID=parent)
    second = story.create("p.2", parentJobID=parent)
    story.look(j1="RUNNING", j2="PAUSED", j3="PAUSED")
    story.finish(parent)
    story.look(j1="PAUSED", j2="QUEUED", j3="QUEUED")
    story.take(first)
    story.take(second)
    story.finish(first)
    story.call("FailJob", jobID=second)
    story.look(j1="QUEUED", j2="FINISHED", j3="FAILED")
    story.take(parent)
    story.finish(parent)
    story.look(j3="FAILED")
    assert not story.faults()


def test_a_failed_parent_cancels_its_unstarted_children(story: Story) -> None:
    parent = story.create("p")
    story.take(parent)
    story.create("p.1", parentJobID=parent)
    story.call("FailJob", jobID=parent)
    story.look(j1="FAILED", j2="CANCELLED")
    assert not story.faults()


def test_repeating_and_unique_jobs(story: Story) -> None:
    job = story.create("r", repeat="FINISHED, +1 SECONDS")
    story.take(job)
    story.finish(job)
    story.take(job)
    story.call("FinishJob", jobID=job, data={"token": "r", "delete": True})
    only = story.create("u", unique=True)
    story.create("u", only, unique=True)
    story.take(only)
    story.finish(only)
    again = story.create("u", unique=True)
    story.take(again)
    story.finish(again)
    story.look()
    assert not story.faults()


def test_a_lost_job_comes_back_after_its_retry_after(story: Story) -> None:
    job = story.create("l", retryAfter="+3 SECONDS")
    story.take(job)
    story.now += 2
    story.take(job)
    story.finish(job)
    story.look()
    assert not story.faults()


def test_a_refusal_that_did_nothing_is_nothing(story: Story) -> None:
    story.call("CreateJob", 503, name="job", data={"token": "a"})
    story.look()
    assert not story.faults()


# --- one story for each fault -----------------------------------------------------------------------------


def hand_out(story: Story, job: int, run: int) -> None:
    story.call("GetJob", reply={**story.job(job), "runID": run, "attempt": run}, name="*")


def test_who_speaks_for_an_earlier_run_may_be_refused(story: Story) -> None:
    job = story.create("a")
    hand_out(story, job, 1)
    story.lost("RetryJob", jobID=job, runID=1)  # executed, though its reply was lost
    hand_out(story, job, 2)
    story.call("RetryJob", 405, jobID=job, runID=1)
    story.call("FinishJob", jobID=job, runID=2)
    assert not story.faults(), judge(story.ledger)


def owner_of_a_run_refused(story: Story) -> None:
    job = story.create("a")
    hand_out(story, job, 1)
    story.call("FinishJob", 405, jobID=job, runID=1)


def lost(story: Story) -> None:
    story.create("a")
    story.look()


def came_back(story: Story) -> None:
    job = story.create("a")
    story.take(job)
    story.finish(job)
    story.look(j1="RUNNING")


def given_out_after_its_end(story: Story) -> None:
    job = story.create("a")
    story.take(job)
    story.finish(job)
    story.take(job)


def two_owners(story: Story) -> None:
    job = story.create("a")
    story.take(job)
    story.take(job)


def two_owners_too_early(story: Story) -> None:
    job = story.create("a", retryAfter="+9 SECONDS")
    story.take(job)
    story.take(job)


def finished_twice(story: Story) -> None:
    job = story.create("a")
    story.take(job)
    story.finish(job)
    story.finish(job)


def ended_without_an_owner(story: Story) -> None:
    story.finish(story.create("a"))


def owner_refused(story: Story) -> None:
    job = story.create("a")
    story.take(job)
    story.finish(job, 404)


def invented(story: Story) -> None:
    story.take(5, "nobody's")


def invented_by_a_refusal(story: Story) -> None:
    story.call("CreateJob", 503, name="job", data={"token": "a"})
    story.take(1, "a")


def reused(story: Story) -> None:
    job = story.create("a", 1)
    story.take(job)
    story.finish(job)
    story.create("b", 1)


def reused_by_a_unique_job(story: Story) -> None:
    for _ in range(2):
        job = story.create("a", 1, unique=True)
        story.take(job)
        story.finish(job)


def doubled(story: Story) -> None:
    story.create("a", 1)
    story.take(2, "a")


def unique_doubled(story: Story) -> None:
    story.create("a", 1, unique=True)
    story.create("a", 2, unique=True)


def torn(story: Story) -> None:
    specs = [{"name": "job", "data": {"token": token}} for token in "ab"]
    story.lost("CreateJobs", jobs=specs)
    story.take(1, "a")


def orphaned(story: Story) -> None:
    parent = story.create("p")
    story.take(parent)
    child = story.create("p.1", parentJobID=parent)
    story.finish(parent)
    story.take(child)
    story.finish(child)
    story.look(j1="PAUSED", j2="FINISHED")


def given_out_while_paused(story: Story) -> None:
    parent = story.create("p")
    story.take(parent)
    story.take(story.create("p.1", parentJobID=parent))


def child_first(story: Story) -> None:
    parent = story.create("p")
    story.take(parent)
    child = story.create("p.1", parentJobID=parent)
    story.finish(parent)
    story.take(child)
    story.call("RequeueJobs", jobIDs=[parent])
    story.finish(child)


def unanswered(story: Story) -> None:
    story.ledger.sent(0.0, "waiter", "GetJob", {"name": "*"})


def run_twice(story: Story) -> None:
    job = story.create("a")
    story.take(job, attempt=1, runID=5)
    story.call("RetryJob", jobID=job)
    story.take(job, attempt=1, runID=6)


def running_without_a_reason(story: Story) -> None:
    story.create("a")
    story.look(j1="RUNNING")


def taken_by_nobody(story: Story) -> None:
    story.create("a")
    story.create("b")
    story.lost("GetJob", name="*")
    story.look(j1="RUNNING", j2="RUNNING")


@pytest.mark.parametrize(
    ("tell", "fault"),
    [
        (lost, "lost"),
        (came_back, "came back"),
        (given_out_after_its_end, "given out after its end"),
        (two_owners, "two owners"),
        (two_owners_too_early, "two owners"),
        (finished_twice, "finished twice"),
        (ended_without_an_owner, "ended without an owner"),
        (owner_refused, "owner refused"),
        (owner_of_a_run_refused, "owner refused"),
        (invented, "invented"),
        (invented_by_a_refusal, "given out before it was created"),
        (reused, "jobID reused"),
        (reused_by_a_unique_job, "jobID reused"),
        (doubled, "doubled"),
        (unique_doubled, "unique job doubled"),
        (torn, "torn"),
        (orphaned, "orphaned"),
        (given_out_while_paused, "given out while paused"),
        (child_first, "child ended before its parent paused"),
        (unanswered, "unanswered"),
        (run_twice, "run twice"),
        (running_without_a_reason, "RUNNING without a reason"),
        (taken_by_nobody, "taken by nobody"),
    ],
)
def test_a_fault_is_found(story: Story, tell: Any, fault: str) -> None:
    tell(story)
    assert fault in story.faults(), judge(story.ledger)


def test_lost_hand_outs_are_matched_with_lost_answers() -> None:
    assert matched([[0, 1], [0]], {0: 1, 1: 1}) == 2, "the first one moves to make room"
    assert matched([[0], [0]], {0: 1}) == 1
    assert matched([[3]], {}) == 0


def test_a_ledger_is_written_line_by_line() -> None:
    file = io.StringIO()
    ledger = Ledger(file)
    number = ledger.sent(1.0, "somebody", "Ping", {})
    ledger.answered(number, 2.0, 200, None)
    ledger.killed(3.0)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines == [
        ["sent", 1, 1.0, "somebody", "Ping", {}],
        ["answered", 1, 2.0, 200, None],
        ["killed", 0, 3.0],
    ]


def test_a_report_tells_counts_and_faults(story: Story) -> None:
    lost(story)
    report = str(judge(story.ledger))
    assert "created 1" in report
    assert "faults: {'lost': 1}" in report
    assert "look a (absent) (job 0, call 2)" in report
