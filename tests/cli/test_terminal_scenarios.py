"""What an operator does at three in the morning by the terminal alone, in at most two commands.

The same scenarios by the pages alone are in ``tests/pages/test_scenarios.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from live_server import Running, start, stop
from program import Completed, Program

from bedrockjobs.cli import doctor

COMMANDS_MAX = 2


class Terminal:
    """Types commands, and counts them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.typed = 0

    def type(self, line: str) -> str:
        """Type a command, which must succeed; return what it prints."""
        self.typed += 1
        assert self.typed <= COMMANDS_MAX
        done: Completed = self.program(*line.split())
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a server whose clock a scenario moves."""
    running = start(tmp_path_factory.mktemp("server") / "jobs.db", "--test-clock")
    yield running
    assert stop(running.process) == 0


@pytest.fixture
def call(bedrockjobs: Program) -> Any:
    """Return a function that sends a command to prepare a scenario, which does not count."""

    def send(command: str, **parameters: Any) -> Any:
        words = {
            key: value if isinstance(value, str) else json.dumps(value) for key, value in parameters.items()
        }
        given = [f"{key}={value}" for key, value in words.items()]
        done = bedrockjobs("call", command, *given, "-o", "json")
        assert done.returncode == 0, done
        return json.loads(done.stdout) if done.stdout.strip() else {}

    return send


@pytest.fixture
def terminal(bedrockjobs: Program) -> Terminal:
    """Return a terminal."""
    return Terminal(bedrockjobs)


def fail(call: Any, name: str, error: str) -> int:
    """Let a job fail; return its jobID."""
    job = int(call("CreateJob", name=name)["jobID"])
    taken = call("GetJob", name=name, worker="w1")
    call("FailJob", jobID=job, runID=taken["runID"], error=error)
    return job


def test_a_failed_backup(terminal: Terminal, call: Any) -> None:
    job = fail(call, "backup/nas", "no space left on device")
    assert "no space left on device" in terminal.type("failure list backup/*")
    assert terminal.type("failure retry --name backup/nas --yes") == "Queued 1 job.\n"
    assert call("QueryJob", jobID=job)["state"] == "QUEUED"


def test_a_growing_queue(terminal: Terminal, call: Any) -> None:
    call("CreateJobs", jobs=[{"name": "export/csv"}] * 30)
    said = terminal.type("queue explain export/csv")
    assert "30" in said
    assert "No live worker takes it" in said


def test_a_hang_of_three_hours(terminal: Terminal, call: Any) -> None:
    call("CreateJob", name="hang")
    run = call("GetJob", name="hang", worker="w1", heartbeat=True)["runID"]
    assert re.search(
        rf"^{run} +running +hang ", terminal.type("run list --status running --name hang"), re.MULTILINE
    )
    terminal.type(f"run terminate {run}")
    assert call("QueryRun", runID=run)["stop"] == "TERM"


def test_a_pause_of_everything_beside_a_colleagues(terminal: Terminal, call: Any) -> None:
    call("PauseJobs", name="mail/*", by="ann", reason="the mail server is down")
    terminal.type("queue pause --all --reason moving")
    assert {row["pattern"] for row in call("ListPauses")["pauses"]} == {"*", "mail/*"}
    terminal.type("queue resume *")
    assert {row["pattern"] for row in call("ListPauses")["pauses"]} == {"mail/*"}
    call("ResumeJobs", name="mail/*")


def test_a_receipt_of_last_week(terminal: Terminal, call: Any) -> None:
    for order in (4710, 4711):
        call("CreateJob", name=f"mail/receipt/{order}", keep=1_000_000)
        job = call("GetJob", name="mail/receipt/*", worker="w1")
        call("AppendOutput", runID=job["runID"], seq=1, lines=[f"order {order}: sent"])
        call("FinishJob", jobID=job["jobID"], runID=job["runID"])
    found = terminal.type("run list --name mail/receipt/* --since yesterday --text 4711 -o name").split()
    assert len(found) == 1
    assert "order 4711: sent" in terminal.type(f"run show {found[0]}")


def test_the_failures_of_one_deploy_among_others(terminal: Terminal, call: Any) -> None:
    alike = [fail(call, "deploy/mail", f"KeyError: 'vat' in order {n}") for n in range(25)]
    other = fail(call, "deploy/mail", "no route to host")
    listed = terminal.type("failure list deploy/* -o jsonl")
    (group,) = [json.loads(line) for line in listed.splitlines() if "KeyError" in json.loads(line)["line"]]
    assert (group["count"], group["trend"]) == (25, "new")
    assert terminal.type(f"failure retry --fingerprint {group['fingerprint']} --yes") == "Queued 25 jobs.\n"
    assert {call("QueryJob", jobID=job)["state"] for job in alike} == {"QUEUED"}
    assert call("QueryJob", jobID=other)["state"] == "FAILED"


def test_a_full_disk(terminal: Terminal, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    little = SimpleNamespace(free=1_000, total=10**9, used=10**9)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: little)
    done = terminal.program("doctor", "--database", str(server.database))
    assert done.returncode == 1
    assert re.search(r"^fail +disk +1000 bytes free", done.stdout, re.MULTILINE), done.stdout


def test_a_night_of_daylight_saving(bedrockjobs: Program) -> None:
    for line in (
        "call AdvanceClock to=2027-03-27T12:00:00Z",
        "job create nightly --repeat CRON+TZ=Europe/Berlin+30+2+*+*+*",
        "call AdvanceClock to=2027-03-28T01:00:00Z",
        "call GetJob name=nightly worker=w1",
    ):
        done = bedrockjobs(*[word.replace("+", " ") for word in line.split()])
        assert done.returncode == 0, done
    said = Terminal(bedrockjobs).type("schedule show nightly --on 2027-03-28")
    assert "02:30 does not exist in Europe/Berlin, ran at 03:00" in " ".join(said.split())


def test_a_leaked_secret_and_a_read_only_colleague(
    bedrockjobs: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one, as the server asks for a token afterwards."""
    root = json.loads(bedrockjobs("token", "create", "root", "--role", "admin", "-o", "json").stdout)["token"]
    monkeypatch.setenv("BEDROCKJOBS_TOKEN", root)
    leaked = json.loads(bedrockjobs("token", "create", "ci", "--role", "produce", "-o", "json").stdout)[
        "token"
    ]
    made = Terminal(bedrockjobs).type("token create eve --role read -o json")
    Terminal(bedrockjobs).type("token revoke ci")
    monkeypatch.setenv("BEDROCKJOBS_TOKEN", leaked)
    assert bedrockjobs("job", "create", "a").returncode != 0
    monkeypatch.setenv("BEDROCKJOBS_TOKEN", json.loads(made)["token"])
    assert bedrockjobs("job", "list").returncode == 0
    assert bedrockjobs("job", "create", "a").returncode != 0
