"""Many jobs at once against a live server."""

from __future__ import annotations

from program import Program, asked, made, shown


def failed(bedrockjobs: Program, name: str, error: str) -> str:
    """Create a job that has failed."""
    job_id = made(bedrockjobs, name, "--tags", f"bulk,{error}")
    assert bedrockjobs("job", "get", name).returncode == 0
    assert bedrockjobs("job", "fail", job_id, "--error", f"{error} is away").returncode == 0
    return job_id


def test_retry_failed_jobs_with_one_command(bedrockjobs: Program) -> None:
    """Only matching FAILED jobs are retried."""
    disk, net = failed(bedrockjobs, "bulk/a", "disk"), failed(bedrockjobs, "bulk/b", "net")
    made(bedrockjobs, "bulk/c")
    would = bedrockjobs("job", "retry", "--name", "bulk/*", "--since", "2h", "--dry-run")
    assert would.stdout == "Would retry 2 jobs: 1 bulk/a, 1 bulk/b.\n"
    assert shown(bedrockjobs, disk)["state"] == "FAILED"
    did = bedrockjobs("job", "retry", "--name", "bulk/*", "--text", "DISK is", "--since", "yesterday", "-y")
    assert (did.returncode, did.stdout) == (0, "Queued 1 job.\n")
    assert [shown(bedrockjobs, each)["state"] for each in (disk, net)] == ["QUEUED", "FAILED"]
    changed = bedrockjobs("job", "update", "--tag", "disk", "--priority", "1000", "-y")
    assert changed.stdout == "Updated 1 job.\n"
    assert shown(bedrockjobs, disk)["priority"] == 1000
    deleted = bedrockjobs("job", "delete", "--name", "bulk/*", "--state", "queued", "-y", "-o", "name")
    assert len(deleted.stdout.split()) == 2
    assert [job["name"] for job in asked(bedrockjobs, "job", "list", "--name", "bulk/*")] == ["bulk/b"]


def test_refusals_are_reported_and_the_rest_is_done(bedrockjobs: Program) -> None:
    for _ in range(3):
        made(bedrockjobs, "busy/a")
    assert bedrockjobs("job", "get", "busy/a").returncode == 0
    did = bedrockjobs("job", "delete", "--name", "busy/*", "-y")
    assert did.returncode == 4
    assert did.stdout.startswith("Deleted 2 of 3 jobs; 1 refused: 405 Can't delete a RUNNING job")


def test_a_paused_queue_is_reported(bedrockjobs: Program) -> None:
    made(bedrockjobs, "piles/up")
    bedrockjobs("queue", "pause", "piles/*", "--reason", "no disk", "--by", "ann")
    assert "ann: no disk (piles/*)" in bedrockjobs("queue", "list", "piles/*").stdout
    assert [each["paused"] for each in asked(bedrockjobs, "queue", "list", "piles/*")] == [1]
    assert bedrockjobs("queue", "resume", "piles/*").stdout == "Resumed piles/*.\n"
    assert "no disk" not in bedrockjobs("queue", "list", "piles/*").stdout
