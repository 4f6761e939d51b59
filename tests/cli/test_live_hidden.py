"""Data that a token may not see, on the command line: each format marks it instead of showing it empty."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from live_server import Running, start, stop
from program import Completed, made

from bedrockjobs.cli import main

NOT_SHOWN = "not shown to this token"


class Blind:
    """A server with a job, a run and a schedule, and tokens for it."""

    def __init__(self, running: Running) -> None:
        """Fill the server, and make the tokens."""
        self.address, self.token = running.address, ""
        url = json.dumps({"url": "http://127.0.0.1:9/SECRET"})
        self.job = made(self, "mail/welcome", "--data", '{"to":"SECRET"}', "--url", url)
        self.schedule = made(self, "report", "--data", '{"to":"SECRET"}', "--repeat", "CRON 0 0 1 1 *")
        ended = made(self, "ended", "--data", '{"to":"SECRET"}')
        taken = json.loads(self("-o", "json", "call", "GetJob", "name=ended", "worker=w").stdout)
        self.run = str(taken["runID"])
        lines = ["SECRET"]
        self("call", "AppendOutput", f"runID={self.run}", "seq=1", f"lines={json.dumps(lines)}")
        self("job", "update", ended, "--progress", '{"percent":7,"message":"SECRET"}')
        assert self("job", "fail", ended, "--error", "exit status 3\nSECRET").returncode == 0
        root = json.loads(self("-o", "json", "call", "CreateToken", "name=root", "roles=admin").stdout)[
            "token"
        ]
        given = {}
        for name, more in (("whole", ()), ("blind", ("noData=true",))):
            self.token = root
            made_for = self("-o", "json", "call", "CreateToken", f"name={name}", "roles=read", *more)
            given[name] = json.loads(made_for.stdout)["token"]
        self.whole, self.blind = given["whole"], given["blind"]

    def __call__(self, *arguments: str) -> Completed:
        """Run the program in this process."""
        variables = {"BEDROCKJOBS_SERVER": self.address, "BEDROCKJOBS_TOKEN": self.token or None}
        result = CliRunner().invoke(main, arguments, prog_name="bedrockjobs", env=variables)
        return Completed(result.exit_code, result.stdout, result.stderr)

    def told(self, token: str, *arguments: str) -> Completed:
        """Run the program with a token."""
        self.token = token
        return self(*arguments)


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blind]:
    """Return a server that knows tokens."""
    folder: Path = tmp_path_factory.mktemp("server")
    running = start(folder / "jobs.db")
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("BEDROCKJOBS_")]:
                patch.delenv(name)
            yield Blind(running)
    finally:
        assert stop(running.process) == 0


LOOKS: dict[str, tuple[str, int]] = {
    "job show {job}": ("data, url", 2),
    "run show {run}": ("data, result, progress, output", 4),
    "schedule show report": ("data", 1),
}
"""Commands for people that show data, and how often they say that something is not shown."""

LISTS = (
    "job list",
    "run list",
    "failure list",
    "schedule list",
    "queue list",
    "events --limit 100",
    "top --once",
    "job explain {job}",
    "call QueryJob jobID={job}",
    "call ListJobs",
    "call ListRuns",
)
"""Other commands that read jobs and runs."""


def words(asker: Blind, line: str) -> list[str]:
    return line.format(job=asker.job, run=asker.run).split()


@pytest.mark.parametrize("line", LOOKS)
def test_a_page_for_people_says_what_is_not_shown(asker: Blind, line: str) -> None:
    members, times = LOOKS[line]
    shown = asker.told(asker.blind, *words(asker, line), "-o", "table")
    assert (shown.returncode, shown.stdout.count(NOT_SHOWN)) == (0, times), (members, shown)
    assert "SECRET" in asker.told(asker.whole, *words(asker, line), "-o", "table").stdout


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "wide"])
@pytest.mark.parametrize("line", [*LOOKS, *LISTS])
def test_no_form_shows_it_or_shows_it_empty(asker: Blind, line: str, form: str) -> None:
    shown = asker.told(asker.blind, "-o", form, *words(asker, line))
    assert shown.returncode == 0, shown
    assert "SECRET" not in shown.stdout
    for each in objects(shown.stdout):
        hidden = set(each.get("hidden", ()))
        assert hidden.isdisjoint(each), line
        if "jobID" in each and "priority" in each:
            assert "data" in hidden, line
        if "runID" in each and "scheduledFor" in each:
            assert {"result", "progress", "output"} <= hidden, line


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Return all JSON objects of an output; none if it is not JSON."""
    parts = [text, *text.splitlines()]
    for part in parts:
        try:
            yield from inside(json.loads(part))
        except ValueError:
            continue


def inside(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inside(item)


def test_hidden_data_is_not_searched(asker: Blind) -> None:
    """A search would report that there are none."""
    refused = asker.told(asker.blind, "job", "list", "--text", "SECRET")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "this token may not read data of jobs" in refused.stderr
    assert asker.told(asker.whole, "job", "list", "--text", "SECRET", "-o", "name").stdout.split() != []
