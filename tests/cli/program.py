"""Helpers of the tests of the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

from live_server import DEADLINE_S, clean_environment

from tests.cli import warm


class Completed(NamedTuple):
    """The result of a run of the program."""

    returncode: int
    stdout: str
    stderr: str


Program = Callable[..., Completed]


def process_of(*arguments: str, **environment: str) -> Completed:
    """Run `bedrockjobs` as a process, one that is forked."""
    done = subprocess.run(
        [warm.program("bedrockjobs"), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=clean_environment(**environment),
    )
    return Completed(done.returncode, done.stdout, done.stderr)


def made(bedrockjobs: Program, *arguments: str) -> str:
    """Create a job and return its jobID."""
    result = bedrockjobs("job", "create", *arguments, "-o", "name")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def shown(bedrockjobs: Program, job_id: str) -> dict[str, Any]:
    """Return the output of `job show` for a job."""
    result = bedrockjobs("job", "show", job_id, "-o", "json")
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def asked(bedrockjobs: Program, *arguments: str) -> Any:
    """Return the JSON output of a command, which must succeed."""
    result = bedrockjobs(*arguments, "-o", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
