"""The watchdog: nothing that a worker started outlives it, or its lease."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bedrock_worker.run.process import CannotStart, ChildProcess
from bedrock_worker.run.watchdog import NEVER, Watchdog

from tests.worker.conftest import gone, until
from tests.worker.fake_server import DEADLINE_S
from tests.worker.test_command_line import logged, program

FAMILY = 'trap "" TERM; sh -c "sleep 1000 & wait" & echo $$ $! > "$0.new"; mv "$0.new" "$0"; wait; wait'
"""A command with a child and a grandchild."""


def group_of(path):
    """Return the members of the process group that a command wrote down."""
    leader = int(path.read_text().split()[0])
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == leader:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return found


@pytest.fixture
async def child(watchdog, tmp_path):
    """Yield a running command under watch."""
    (tmp_path / "in").touch()
    argv = ["sh", "-c", "sleep 1000 & wait"]
    env = {"PATH": os.environ["PATH"]}
    found = ChildProcess(
        argv, env=env, cwd=None, stdin=tmp_path / "in", listener=lambda *_: None, watchdog=watchdog
    )
    yield found
    found.signal(signal.SIGKILL)
    await found.wait()


async def test_no_process_and_no_data_survive_the_worker_for_two_seconds(server, tmp_path, scratch):
    loop = asyncio.get_running_loop()
    command = ("sh", "-c", FAMILY, str(tmp_path / "pids"))
    async with program(server, "--", *command, TMPDIR=str(scratch)) as worker:
        await server.add()
        await until((tmp_path / "pids").exists)
        await until(lambda: len(group_of(tmp_path / "pids")) == 3)
        pids = group_of(tmp_path / "pids")
        assert list(scratch.iterdir())
        worker.kill()
        dead_at = loop.time()
        await until(lambda: gone(*pids) and not list(scratch.iterdir()))
        assert loop.time() - dead_at < 2.0


async def test_no_process_survives_the_lease_of_a_worker_that_stands_still(server, tmp_path):
    """Nothing of the worker runs, so it can do nothing itself; afterwards it reports nothing."""
    loop = asyncio.get_running_loop()
    async with program(server, "--max-jobs", "1", "--", "sh", "-c", FAMILY, str(tmp_path / "pids")) as worker:
        await server.add(lease=2)
        await until((tmp_path / "pids").exists)
        pids = group_of(tmp_path / "pids")
        worker.send_signal(signal.SIGSTOP)
        stopped_at = loop.time()
        await until(lambda: gone(*pids))
        assert loop.time() - stopped_at < 2.0
        worker.send_signal(signal.SIGCONT)
        await logged(worker, "ended job=1 run=101 how=SIGKILL")
        assert await worker.wait() == 0
    assert server.reports == []


async def test_group_is_killed_at_its_moment(watchdog, child):
    now = asyncio.get_running_loop().time()
    child.until(now + 1_000.0)
    child.until(now + 0.1)
    async with asyncio.timeout(DEADLINE_S):
        await child._exited()
    assert asyncio.get_running_loop().time() >= now + 0.1


async def test_supervisors_signals_do_not_end_it(watchdog, child):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        watchdog._process.send_signal(number)
    child.until(0.0)
    async with asyncio.timeout(DEADLINE_S):
        await child._exited()
    assert watchdog._process.poll() is None


async def test_another_is_started_where_one_was_ended(watchdog, child, tmp_path):
    watchdog._process.kill()
    watchdog._process.wait()
    child.until(NEVER)  # a broken pipe is no error
    number, _, _ = watchdog.expect()
    assert number > 1
    child.until(0.0)  # the new one knows what runs already
    async with asyncio.timeout(DEADLINE_S):
        await child._exited()


def test_another_knows_the_folders_too(watchdog, scratch):
    with watchdog.folder("kept-"), watchdog.folder("removed-") as removed:
        (removed / "file").touch()
        watchdog.expect()
        watchdog._process.kill()
        watchdog._process.wait()
        watchdog.expect()
        (kept,) = scratch.glob("kept-*")
        watchdog.close()  # it takes us for dead
        assert not kept.exists()
        assert not removed.exists()


async def test_command_that_ended_is_forgotten(watchdog, tmp_path):
    (tmp_path / "in").touch()
    given = {
        "env": {},
        "cwd": None,
        "stdin": tmp_path / "in",
        "listener": lambda *_: None,
        "watchdog": watchdog,
    }
    child = ChildProcess(["/bin/true"], **given)
    assert watchdog._groups == {1: child.pid}
    async with asyncio.timeout(DEADLINE_S):
        assert await child.wait() == 0
    with pytest.raises(CannotStart):
        ChildProcess([str(tmp_path / "none")], **given)
    assert watchdog._groups == {}


def test_what_the_watchdog_hears(monkeypatch, tmp_path):
    killed = []
    monkeypatch.setattr("bedrock_worker.run.watchdog.os.killpg", lambda group, _: killed.append(group))
    watchdog = Watchdog()
    watchdog.hear(b"run 1 77")
    watchdog.hear(b"1\nrun 2 88\nuntil 1 50.5\nuntil 2 inf\nrun 3 99\nov")
    watchdog.hear(b"er 3\nover 4\nuntil 5 1.0\n")
    for folder in (tmp_path / "kept", tmp_path / "removed"):
        folder.mkdir()
        watchdog.hear(b"folder %s\n" % bytes(folder).hex().encode())
    watchdog.hear(b"removed %s\n" % bytes(tmp_path / "removed").hex().encode())
    watchdog.end_late(40.0)
    assert killed == []
    assert watchdog.end_late(50.0) == 0.5
    assert watchdog.end_late(50.5) == NEVER
    assert killed == [771]
    watchdog.end_all()
    assert killed == [771, 771, 88]
    assert [folder.name for folder in tmp_path.iterdir() if folder.name != "scratch"] == ["removed"]


def test_watchdog_of_a_dead_worker_ends(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    argv = [sys.executable, "-I", "-S", "worker/bedrock_worker/run/watchdog.py", str(dead.pid)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as watchdog:
        assert watchdog.wait(DEADLINE_S) == 0
