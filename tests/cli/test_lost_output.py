"""Output that cannot be written: an error, an exit status, and no job is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from live_server import DEADLINE_S, Running, clean_environment
from program import Program, made, process_of, shown

from bedrockjobs.cli.output import OUTPUT_LOST
from tests.cli import warm

Opened = Callable[[ExitStack], int | None]


def full(stack: ExitStack) -> int:
    """Return a stdout on a full disk."""
    return stack.enter_context(Path("/dev/full").open("w")).fileno()


def unread(stack: ExitStack) -> int:
    """Return a pipe whose reader has gone, as with ``| true``."""
    reads, writes = os.pipe()
    os.close(reads)
    stack.callback(os.close, writes)
    return writes


def closed(_: ExitStack) -> None:
    """Return a closed stdout, as with ``>&-``."""


STDOUTS: dict[str, Opened] = {"full": full, "unread": unread, "closed": closed}
SAID = {
    "full": "The output was lost: No space left on device.",
    "unread": "The output was lost: the program that read it has ended.",
    "closed": "The output was lost: stdout is closed.",
}


def without_output(server: Running, how: str, *arguments: str) -> tuple[int, str]:
    """Run the program with such a stdout; return its exit status and stderr."""
    with ExitStack() as stack:
        stdout = STDOUTS[how](stack)
        command = [warm.program("bedrockjobs"), *arguments]
        if stdout is None:
            command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        done = subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env=clean_environment(BEDROCKJOBS_SERVER=server.address),
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("how", "more"),
    [*((how, []) for how in STDOUTS), *(("full", more) for more in (["--count", "2"], ["--worker", "w"]))],
)
def test_a_job_that_cannot_be_shown_is_returned(
    server: Running, bedrockjobs: Program, how: str, more: list[str]
) -> None:
    job_id = made(bedrockjobs, f"lost/{how}{''.join(more)}", "--repeat", "finished, +1 DAY")
    status, said = without_output(server, how, "job", "get", f"lost/{how}{''.join(more)}", *more)
    assert status == OUTPUT_LOST
    assert said == f"Job {job_id} was returned.\n{SAID[how]}\n"
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"
    assert bedrockjobs("job", "delete", job_id, "--yes").returncode == 0


COMMANDS = [
    ("--help",),
    ("--version",),
    ("job", "list"),
    ("job", "list", "-o", "jsonl"),
    ("schedule", "list", "-o", "json"),
    ("run", "list", "-o", "json"),
    ("queue", "list"),
    ("status",),
    ("events", "--limit", "1"),
    ("query", "SELECT 1;"),
    ("call", "Ping"),
    ("doctor",),
    ("config", "show"),
]
"""One command for each kind of output."""


@pytest.fixture(scope="module")
def something(server: Running) -> None:
    """Create rows for the lists."""
    made(partial(process_of, BEDROCKJOBS_SERVER=server.address), "something", "--repeat", "finished, +1 DAY")


@pytest.mark.usefixtures("something")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_exits_with_an_error_and_a_status(
    server: Running, bedrockjobs: Program, command: tuple[str, ...]
) -> None:
    assert bedrockjobs(*command).returncode in (0, 1), "the command itself"
    how = "unread" if "json" in command else "full"
    status, said = without_output(server, how, *command)
    assert (status, said.strip().splitlines()[-1:]) == (OUTPUT_LOST, [SAID[how]])
    assert "Traceback" not in said
