"""What a command can learn about its worker, and its permissions."""

from __future__ import annotations

import os

import pytest
from bedrock_worker.cli import main
from click.testing import CliRunner

from tests.worker.test_command_line import exit_status, module_path, program, python_of_nobody

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

LOOK_UP = """
pid=$PPID
while [ "$(awk '/^Uid:/ { print $2 }' /proc/$pid/status)" = "$(id -u)" ]; do
    echo "looked at $pid"
    cat /proc/$pid/environ > /dev/null && exit 3
    cat /proc/$pid/maps > /dev/null && exit 4
    pid=$(awk '/^PPid:/ { print $2 }' /proc/$pid/status)
done
exit 5
"""
"""A command that looks into all of its user's processes that are above it."""


@as_root
@pytest.mark.parametrize("becomes", [True, False])
async def test_a_command_cannot_look_into_what_is_above_it(server, becomes):
    """Neither into its guard nor the watchdog, nor into the worker, whose environment may hold a token."""
    await server.add()
    more = ("--user", "nobody") if becomes else ()
    who = {"python": python_of_nobody(), "user": None if becomes else 65534}
    argv = (*more, "--max-jobs", "1", "--cwd", "/", "--", "sh", "-c", LOOK_UP)
    async with program(server, *argv, **who, SECRET="hunter2", TMPDIR="/tmp") as worker:
        report = await server.report()
        assert await exit_status(worker) == 0
    assert report.given["exitCode"] == 5, report.given
    assert report.given["error"].count("looked at") == 3


@pytest.mark.parametrize(("more", "shown"), [([], "1"), (["--allow-new-privileges"], "0")])
async def test_a_command_gains_no_rights_unless_it_may(server, more, shown):
    await server.add()
    script = (
        """awk '/^NoNewPrivs:/ { printf "{\\"is\\": \\"%s\\"}", $2 }' /proc/self/status > $BEDROCK_RESULT"""
    )
    async with program(server, *more, "--max-jobs", "1", "--", "sh", "-c", script) as worker:
        assert (await server.report()).given["data"] == {"is": shown}
        assert await exit_status(worker) == 0


@as_root
async def test_the_command_runs_as_the_user_with_its_home_and_groups(server):
    await server.add()
    script = """printf '{"is": "%s %s %s %s"}' $(id -u) $(id -g) $(id -G) $HOME > $BEDROCK_RESULT"""
    argv = ("--user", "nobody", "--max-jobs", "1", "--cwd", "/", "--", "sh", "-c", script)
    async with program(
        server, *argv, python=python_of_nobody(), TMPDIR="/tmp", BEDROCKJOBS_WORKER_AS_ROOT=""
    ) as worker:
        assert (await server.report()).given["data"] == {"is": "65534 65534 65534 /nonexistent"}
        assert await exit_status(worker) == 0


@as_root
def test_root_is_refused_unless_it_is_meant(monkeypatch):
    monkeypatch.delenv("BEDROCKJOBS_WORKER_AS_ROOT", raising=False)
    result = CliRunner().invoke(main, ["--name", "a", "true"])
    assert result.exit_code == 2
    assert "expected --user NAME to run them as, or --as-root" in " ".join(result.output.split())
    result = CliRunner().invoke(main, ["--name", "a", "--user", "root", "true"])
    assert "commands would run as root" in " ".join(result.output.split())


def test_a_user_that_there_is_not():
    result = CliRunner().invoke(main, ["--name", "a", "--user", "no-such-user", "true"])
    assert result.exit_code == 2
    assert "--user: expected the name of a user, got 'no-such-user'" in " ".join(result.output.split())


@as_root
async def test_only_root_can_become_another(server):
    """The program is the worker's own, started by a worker that is nobody."""
    await server.add()
    words = f'PYTHONPATH={module_path()} "$@" --user daemon --name a true'
    argv = ("--user", "nobody", "--max-jobs", "1", "--cwd", "/", "--", "sh", "-c", words, "sh")
    python = python_of_nobody()
    own = (python, "-m", "bedrock_worker")
    async with program(server, *argv, *own, python=python, TMPDIR="/tmp") as worker:
        report = await server.report()
        assert await exit_status(worker) == 0
    assert report.given["exitCode"] == 2
    assert "--user: only root can become daemon" in report.given["error"]
