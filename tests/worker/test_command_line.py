"""``bedrock-worker`` as a process: its command line, its signals, its exit status."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from bedrock_worker.cli import main
from bedrock_worker.options import seconds_of, variables_of, worker_name
from click.testing import CliRunner

from bedrockjobs.base.config import PATTERN_CHARS_MAX, PATTERNS_MAX
from tests.cli import warm
from tests.effort import crossed
from tests.worker.conftest import ended
from tests.worker.fake_server import DEADLINE_S


class Forked:
    """A worker that was forked: its pid and its signals are its own, all else is its stand-in's."""

    def __init__(self, stand_in):
        """Take the process of the stand-in."""
        self._stand_in = stand_in

    def __getattr__(self, name):
        return getattr(self._stand_in, name)

    @functools.cached_property
    def pid(self):
        """Return the pid of the worker, which has begun."""
        found = warm.forked_by(self._stand_in.pid)
        assert found
        return found

    def send_signal(self, number):
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self):
        """Kill it."""
        self.send_signal(signal.SIGKILL)


@asynccontextmanager
async def program(server, *arguments, python=sys.executable, user=None, path=None, forked=True, **variables):
    """Run a worker for ``Foo*``; it is killed where the test has not ended it.

    ``path`` is a folder with modules of functions. It is forked where our Python runs it as we are, unless a
    test is about how the process begins.
    """
    forked = forked and python == sys.executable and user is None
    command = [warm.program("bedrock-worker")] if forked else [python, "-m", "bedrock_worker"]
    as_user = {} if user is None else {"user": user, "group": user, "extra_groups": [], "cwd": "/"}
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        env={
            **os.environ,
            "PYTHONPATH": module_path() if path is None else f"{path}{os.pathsep}{module_path()}",
            "BEDROCKJOBS_WORKER_NAME": "Foo*",
            "BEDROCKJOBS_SERVER": server if isinstance(server, str) else server.address,
            **variables,
        },
        stderr=asyncio.subprocess.PIPE,
        **as_user,
    )
    try:
        yield Forked(process) if forked else process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def module_path():
    """Return where another Python of this version finds what ours does, but for its own library."""
    return os.pathsep.join(path for path in sys.path if path and not path.startswith(sys.base_prefix))


@functools.cache
def python_of_nobody():
    """Return a Python with which ``nobody`` can run the worker; skips the test where there is none."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with suppress(OSError):
            tried = [python, "-c", "import bedrock_worker.cli"]
            done = subprocess.run(
                tried,
                user="nobody",
                cwd="/",
                env={"PYTHONPATH": module_path()},
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return python
    pytest.skip("nobody can run no Python that the worker runs with")


async def exit_status(process):
    async with asyncio.timeout(DEADLINE_S):
        return await process.wait()


async def logged(process, words):
    """Read the log up to the line that contains some words."""
    lines = []
    async with asyncio.timeout(DEADLINE_S):
        while line := (await process.stderr.readline()).decode():
            if words in line:
                return line
            lines.append(line)
    raise AssertionError(f"no line with {words!r} in {''.join(lines)}")


async def test_runs_a_job_and_ends(server):
    await server.add("Foo", '{"n":1.0}')
    script = 'cat > "$BEDROCK_RESULT"; echo heard'
    async with program(server, "--max-jobs", "1", "--echo", "--", "sh", "-c", script) as process:
        assert "job=1 run=101 out: heard" in await logged(process, " out: ")
        assert await exit_status(process) == 0
    assert '"data":{"n":1.0}' in server.reports[0].raw("data")


FAILING = """
from bedrock_worker import Fail, job

@job("Foo*")
def f(job):
    print("printed before")
    raise ValueError("no\\nbread")
"""

LEVELS = {1: "WARNING", 0: "ERROR"}
"""The level by the retries that are left."""


@pytest.mark.parametrize(("isolation", "form"), crossed(["spawn", "fork", "reuse"], ["json", "text"]))
async def test_the_log_says_why_a_function_failed(server, tmp_path, isolation, form):
    """The level says whether it is tried again; all of an event is on one line."""
    (tmp_path / "failing.py").write_text(FAILING)
    argv = ["--module", "failing", "--isolation", isolation, "--log-format", form, "--max-jobs", "2"]
    for retries in LEVELS:
        await server.add(retries=retries)
    async with program(server, *argv, path=tmp_path) as process:
        for level in LEVELS.values():
            line = await logged(process, "ended")
            if form == "json":
                found = json.loads(line)
                assert (found["level"], found["error"]) == (level.lower(), "ValueError: no")
            else:
                assert f" {level} ended job=" in line
                assert line.endswith(' error="ValueError: no"\n')
        assert await exit_status(process) == 0


async def test_term_ends_in_good_order_and_tells_the_log(server):
    await server.add()
    async with program(server, "--grace", "0s", "--", "sleep", "1000") as process:
        await logged(process, "started job=1 run=101 attempt=1 name=Foo pid=")
        process.send_signal(signal.SIGTERM)
        assert await exit_status(process) == 0
    assert server.reports[0].given == {"jobID": 1, "runID": 101, "returned": True}


async def test_second_signal_ends_at_once(server):
    await server.add()
    async with program(server, "--", "sleep", "1000") as process:
        await logged(process, "started job=1")
        process.send_signal(signal.SIGINT)
        await logged(process, "stopping running=1")
        process.send_signal(signal.SIGINT)
        assert await exit_status(process) == 0
    assert server.reports[0].given["returned"] is True


async def test_idle_worker_ends_at_once(server):
    async with program(server, "--", "true") as process:
        await server.until(lambda: server.of("GetJobs"))
        process.send_signal(signal.SIGTERM)
        assert await exit_status(process) == 0


async def test_tstp_is_quiet_and_cont_goes_on(server):
    async with program(server, "--", "true") as process:
        await server.until(lambda: server.of("GetJobs"))
        process.send_signal(signal.SIGTSTP)
        await logged(process, "quiet")
        await server.until(lambda: not server.asking)
        await server.add()
        process.send_signal(signal.SIGCONT)
        assert (await server.report()).verb == "FinishJob"


async def test_no_command_survives_the_worker(server, tmp_path):
    await server.add()
    async with program(server, "--", "sleep", "1000") as process:
        pid = int((await logged(process, "started job=1")).rpartition("pid=")[2])
        process.kill()
        assert await exit_status(process) == -9
        assert ended(pid)


async def test_options_come_from_variables_too(server):
    more = {"NAME": "Foo* Bar", "CONCURRENCY": "4", "BURST": "1", "MAX_JOBS": "3", "WORKER_NAME": "w-%p"}
    variables = {f"BEDROCKJOBS_WORKER_{name}": value for name, value in more.items()}
    async with program(server, "true", forked=False, **variables) as process:
        assert await exit_status(process) == 0
    asked = server.of("GetJobs")[0].given
    assert {key: asked[key] for key in ("names", "numResults", "worker", "pid")} == {
        "names": ["Foo*", "Bar"],
        "numResults": 3,
        "worker": f"w-{process.pid}",
        "pid": process.pid,
    }


async def test_burst_without_a_server(server):
    await server.stop()
    async with program(server, "--burst", "--", "true") as process:
        assert await exit_status(process) == 69
        assert b"server away" in await process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "true"], "Missing option '--name'"),
        (["--name", "a"], "Missing argument '-- COMMAND'"),
        (["--name", "a", "no-such-program"], "expected a program that can be run, got 'no-such-program'"),
        (["--name", "a", "--cwd", "/", "etc"], "expected a program that can be run, got 'etc'"),
        (["--name", "a", "--max-jobs", "x", "true"], "'x' is not a valid whole number."),
        (["--rules", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["--name", "a", "./none"], "expected a program that can be run, got './none'"),
        (["--name", "", "true"], "Invalid value for '--name': expected a name pattern, got an empty one"),
        (["--name", "a", "--name", "", "true"], "Invalid value for '--name': expected a name pattern"),
        (["--name", "a" * (PATTERN_CHARS_MAX + 1), "true"], "Invalid value for '--name': expected a name"),
        (["--name", "a"] * (PATTERNS_MAX + 1) + ["true"], "'--name': expected at most"),
        (["--name", "a", "--server", "ftp://x", "true"], "expected host, host:port"),
        (["--name", "a", "--timeout", "soon", "true"], "expected a duration like 90s, 5m, 1h30m"),
        (["--name", "a", "--timeout", "0s", "true"], "expected more than 0s"),
        (["--name", "a", "--concurrency", "0", "true"], "0 is not in the range"),
        (["--name", "a", "--max-jobs", "0", "true"], "0 is not in the range"),
        (["--name", "a", "--env", "1=2", "true"], "expected NAME or NAME=VALUE, got '1=2'"),
        (["--name", "a", "--env", "BEDROCK_X=2", "true"], "BEDROCK_X: names that begin with BEDROCK_"),
        (["--name", "a", "--env", "NOT_SET_ANYWHERE", "true"], "NOT_SET_ANYWHERE: is not set here"),
        (["--name", "a", "--worker-name", "", "true"], "expected 1 to 255 printable characters"),
        (["--name", "a", "--cwd", "/nowhere", "true"], "does not exist"),
    ],
)
def test_bad_use(arguments, words):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


def test_durations():
    known = {"90s": 90, "5m": 300, "1h30m": 5400, "2.5s": 2.5, "7": 7, " 1H ": 3600, "2d": 172_800}
    assert {text: seconds_of(text) for text in known} == known
    for text in ("", "s", "5x", "-1s", "1m1h", "1e3s", "٣s"):
        with pytest.raises(ValueError, match="expected a duration"):
            seconds_of(text)


def test_variables(monkeypatch):
    monkeypatch.setenv("TOKEN", "t=1")
    assert variables_of(["TOKEN", "A=", "B=c=d"]) == {"TOKEN": "t=1", "A": "", "B": "c=d"}


def test_worker_name():
    assert worker_name("a-%p-%%h-%x") == f"a-{os.getpid()}-%h-%x"
    assert Path("/proc/sys/kernel/hostname").read_text().strip() in worker_name("%h")


@pytest.mark.parametrize("installed", [True, False])
async def test_the_quicker_event_loop_is_used_where_it_is_installed(server, tmp_path, installed):
    noting = (
        "import asyncio\ndef new_event_loop():\n"
        f"    open({str(tmp_path / 'used')!r}, 'w')\n    return asyncio.new_event_loop()\n"
    )
    (tmp_path / "uvloop.py").write_text(noting if installed else "raise ImportError")
    await server.add()
    paths = f"{tmp_path}{os.pathsep}{module_path()}"
    async with program(server, "--burst", "--", "true", forked=False, PYTHONPATH=paths) as worker:
        await server.report()
        await worker.communicate()
    assert (tmp_path / "used").exists() is installed
