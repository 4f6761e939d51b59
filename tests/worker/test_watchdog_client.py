"""The processes between a worker and its commands: nothing outlives its run, whichever of them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path

import bedrock_worker
import pytest
from bedrock_worker.run.process import CannotStart, ChildProcess
from bedrock_worker.run.watchdog_client import CODE

from tests.effort import PROFILE
from tests.pace import in_time
from tests.worker.conftest import children, gone, until
from tests.worker.fake_server import DEADLINE_S
from tests.worker.test_command_line import logged, program, python_of_nobody

pytestmark = pytest.mark.usefixtures("own_watchdog")

STAY = 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 1000'
"""A process that writes down its id and stays."""

PYTHON = """
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for handle in range(3): os.close(handle)
os.execv("/bin/sh", ["sh", "-c", *sys.argv[1:]])
"""
"""A daemon as it is in the book."""

WAYS = {
    "group": 'sh -c "$S" "$D/group" &',
    "stubborn": 'sh -c \'trap "" TERM; echo $$ > "$0"; while :; do sleep 1; done\' "$D/stubborn" &',
    "setsid": 'setsid sh -c "$S" "$D/setsid" &',
    "double": '(setsid sh -c "$S" "$D/double" & )',
    "nohup": 'nohup setsid sh -c "$S" "$D/nohup" > /dev/null 2>&1 &',
    "env": '(env -i /usr/bin/setsid -f /bin/sh -c "$S" "$D/env" < /dev/null > /dev/null 2>&1 & )',
    "daemon": '/usr/bin/python3 -I -S -c "$P" "$S" "$D/daemon"',
}
"""Ways out of a run."""

COMMAND = "\n".join([*WAYS.values(), *(f'until [ -s "$D/{name}" ]; do sleep 0.01; done' for name in WAYS)])
"""A command that takes them all, and ends when all are taken."""


USERS = {"as we are": [], "nobody": ["--user", "nobody"]}
"""Arguments by which a worker becomes a user: ``nobody`` has no control group to write to."""

_turns = cycle(USERS)


def pytest_generate_tests(metafunc):
    """Run a test as each of the users at night, by day as one of them in turn."""
    if "user" in metafunc.fixturenames:
        users = USERS if PROFILE == "random" else [next(_turns)]
        metafunc.parametrize("user", [USERS[name] for name in users], ids=users)


@pytest.fixture
def folder(tmp_path):
    """Return a folder that every user can write to and reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as found:
        Path(found).chmod(0o777)
        yield Path(found)


def variables(folder):
    return {"D": str(folder), "S": STAY, "P": PYTHON}


def names(folder):
    return [f"--env={name}" for name in variables(folder)]


@asynccontextmanager
async def escaping(server, folder, user, *, then="sleep 1000", job=None, more=()):
    """Run a worker whose command has taken every way out; yield it and who must end."""
    await server.add(**(job or {}))
    argv = [*user, *names(folder), "--cwd", "/", *more, "--", "sh", "-c", f"{COMMAND}\n{then}"]
    given = {**variables(folder), "TMPDIR": str(folder)}
    python = python_of_nobody() if user else sys.executable
    async with program(server, *argv, python=python, **given) as worker:
        await until(lambda: all((folder / name).exists() for name in WAYS))
        pids = [int((folder / name).read_text()) for name in WAYS]
        try:
            yield worker, pids
        finally:
            for pid in pids:
                if not gone(pid):
                    os.kill(pid, signal.SIGKILL)


async def soon(holds, bar_s):
    """Wait until something holds, which must be within a time."""
    began = time.monotonic()
    await until(holds)
    assert in_time(time.monotonic() - began, bar_s)


async def test_nobody_outlives_the_run(server, folder, user):
    async with escaping(server, folder, user, then="exit 0", more=["--max-jobs", "1"]) as (worker, pids):
        assert (await server.report()).verb == "FinishJob"
        assert gone(*pids)
        assert await worker.wait() == 0


async def test_nobody_outlives_the_worker_for_two_seconds(server, folder, user):
    async with escaping(server, folder, user) as (worker, pids):
        assert list(folder.glob("bedrock-job-*"))
        worker.kill()
        await soon(lambda: gone(*pids) and not list(folder.glob("bedrock-job-*")), 2.0)


async def test_nobody_outlives_the_worker_whose_watchdog_was_killed_before(server, folder, user):
    async with escaping(server, folder, user) as (worker, pids):
        (first,) = children(worker.pid)
        await asyncio.get_running_loop().run_in_executor(None, os.kill, first, signal.SIGKILL)
        await logged(worker, "watchdog was ended")
        await until(lambda: len(children(worker.pid)) == 2)  # another one, and the guard of what runs
        assert not gone(*pids)
        worker.kill()
        await soon(lambda: gone(*pids) and not list(folder.glob("bedrock-job-*")), 2.0)


async def test_watchdog_and_guard_of_a_dead_worker_end(server, folder, user):
    """They are told by nobody: the worker's ends of their sockets are closed."""
    async with escaping(server, folder, user) as (worker, _):
        (watchdog,) = children(worker.pid)
        guards = children(watchdog)
        assert guards
        worker.kill()
        await until(lambda: gone(watchdog, *guards))


def control_groups_of(guard):
    """Return the control groups of a guard; others come and go meanwhile."""
    return [folder for folder, *_ in os.walk("/sys/fs/cgroup") if folder.endswith(f"/bedrock-run-{guard}")]


@pytest.mark.parametrize("also_watchdog", [False, True])
async def test_nobody_outlives_a_guard_that_was_killed(server, folder, user, also_watchdog):
    async with escaping(server, folder, user, more=["--max-jobs", "1"]) as (worker, pids):
        (watchdog,) = children(worker.pid)
        (guard,) = children(watchdog)
        for pid in (watchdog, guard)[not also_watchdog :]:
            os.kill(pid, signal.SIGKILL)
        report = await server.report()
        assert report.given["error"].startswith("SIGKILL")
        await until(lambda: gone(*pids))
        if not also_watchdog:
            await until(lambda: not control_groups_of(guard))
        assert await worker.wait() == 0


async def test_nobody_outlives_the_lease_of_a_worker_that_stands_still(server, folder, user):
    """Nothing of the worker runs, so it can do nothing itself; afterwards it reports nothing."""
    more, lease = ["--max-jobs", "1"], 4
    async with escaping(server, folder, user, job={"lease": lease}, more=more) as (worker, pids):
        worker.send_signal(signal.SIGSTOP)
        await soon(lambda: gone(*pids), lease + 2.0)
        worker.send_signal(signal.SIGCONT)
        await logged(worker, "ended job=1 run=101 how=SIGKILL")
        assert await worker.wait() == 0
    assert server.reports == []


STOPS = {
    "the guard": "kill -STOP $PPID",
    "the guard for ever": "while :; do kill -STOP $PPID; done",
    "the watchdog for ever": "while :; do kill -STOP $W; done",
}
"""What a command may do to the processes that are to end it; ``W`` is its watchdog."""


@pytest.mark.parametrize("stop", STOPS)
async def test_nobody_outlives_the_worker_although_a_guard_was_stopped(server, folder, stop):
    then = f"read -r _ _ _ W _ < /proc/$PPID/stat; {STOPS[stop]}\nsleep 1000"
    async with escaping(server, folder, [], then=then) as (worker, pids):
        worker.kill()
        await soon(lambda: gone(*pids) and not list(folder.glob("bedrock-job-*")), 5.0)


async def test_who_may_live_on_does(server, folder):
    more = ["--max-jobs", "1", "--allow-daemons"]
    async with escaping(server, folder, [], then="exit 0", more=more) as (worker, pids):
        assert (await server.report()).verb == "FinishJob"
        lives = {name for name, pid in zip(WAYS, pids, strict=True) if not gone(pid)}
        assert lives == set(WAYS) - {"group", "stubborn"}
        assert await worker.wait() == 0


async def test_a_control_group_for_each_run_where_there_can_be(server, once, tmp_path):
    """A shell without children sees its own; there is none left afterwards."""
    await once('cat /proc/self/cgroup > "$0"', str(tmp_path / "seen"))
    (line,) = [line for line in (tmp_path / "seen").read_text().splitlines() if line.startswith("0::")]
    if "/bedrock-run-" not in line:
        pytest.skip("no control group that can be written to")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    (mount,) = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    assert not Path(mount + line.removeprefix("0::")).exists()


# --- its two ends ----------------------------------------------------------------------------------------


@pytest.fixture
async def child(watchdog, tmp_path):
    """Yield a running command under watch."""
    found = ChildProcess(
        ["sh", "-c", "sleep 1000 & wait"],
        env={"PATH": os.environ["PATH"]},
        cwd=None,
        folder=tmp_path / "run",
        data="",
        listener=lambda *_: None,
        watchdog=watchdog,
    )
    await found.started()
    yield found
    found.release()


async def end_of(child):
    async with asyncio.timeout(DEADLINE_S):
        return await child.wait()


async def test_command_is_killed_at_its_moment(child):
    now = asyncio.get_running_loop().time()
    child.until(now + 1_000.0)
    child.until(now + 0.1)
    assert await end_of(child) == -signal.SIGKILL
    assert asyncio.get_running_loop().time() >= now + 0.1


@pytest.mark.parametrize("asked", [True, False])
async def test_a_guard_that_does_not_answer_is_killed_with_its_run(child, monkeypatch, asked):
    """Nobody sees that it stands still, so it counts that it does not do as it is told."""
    monkeypatch.setattr("bedrock_worker.run.kernel.STOPPED", ())
    monkeypatch.setattr("bedrock_worker.run.watchdog_client.KILL_WITHIN_S", 0.1 if asked else 1_000.0)
    monkeypatch.setattr("bedrock_worker.run.watchdog_client.PING_WITHIN_S", 0.1)
    (watchdog,) = [pid for pid in children(os.getpid()) if b"run.guard" in cmdline(pid)]
    (guard,) = children(watchdog)
    for pid in (watchdog, guard):
        os.kill(pid, signal.SIGSTOP)
    child.signal(signal.SIGKILL)
    end = asyncio.ensure_future(child.wait())
    if asked:
        assert await end == -signal.SIGKILL
        await until(lambda: gone(guard, child.pid))
        os.kill(watchdog, signal.SIGCONT)
    else:  # the control: without that it is not ended
        done, _ = await asyncio.wait((end,), timeout=1.0)
        assert not done
        assert not gone(guard, child.pid)
        for pid in (watchdog, guard):
            os.kill(pid, signal.SIGCONT)
        await end


async def test_supervisors_signals_end_neither_watchdog_nor_guard(child):
    (watchdog,) = [pid for pid in children(os.getpid()) if b"run.guard" in cmdline(pid)]
    (guard,) = children(watchdog)
    for pid in (watchdog, guard):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(pid, number)
    child.signal(signal.SIGTERM)
    assert await end_of(child) == -signal.SIGTERM
    assert not gone(watchdog, guard)


async def test_signal_that_comes_too_late_is_told(watchdog, tmp_path):
    child = ChildProcess(
        ["true"],
        env={"PATH": os.environ["PATH"]},
        cwd=None,
        folder=tmp_path / "run",
        data="",
        listener=lambda *_: None,
        watchdog=watchdog,
    )
    pid = await child.started()
    await until(lambda: gone(pid))
    child.signal(signal.SIGTERM)
    assert await end_of(child) == 0
    assert not child.was_signalled
    child.release()


async def test_folder_of_a_worker_that_lets_go_is_removed(child, tmp_path):
    child.release()
    await until(lambda: not (tmp_path / "run").exists())


async def test_orphans_are_reaped_while_the_command_runs(watchdog, tmp_path):
    heard = []
    child = ChildProcess(
        ["sh", "-c", "for i in 1 2 3 4 5; do (sleep 0 & echo $!); done; sleep 1000"],
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path / "run",
        folder=tmp_path / "run",
        data="",
        listener=lambda _, line: heard.append(line),
        watchdog=watchdog,
    )
    await child.started()
    await until(lambda: len(heard) == 5)
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in heard))
    child.release()


async def test_a_command_gets_no_other_handles(once, tmp_path):
    await once(
        'ls -l /proc/self/fd | grep -v "/proc/[0-9]*/fd" | grep -c " -> " > "$0"', str(tmp_path / "seen")
    )
    assert (tmp_path / "seen").read_text() == "3\n"


async def test_command_that_cannot_start_says_why(watchdog, tmp_path):
    child = ChildProcess(
        [str(tmp_path / "none")],
        env={},
        cwd=None,
        folder=tmp_path / "run",
        data="",
        listener=lambda *_: None,
        watchdog=watchdog,
    )
    with pytest.raises(CannotStart, match="No such file or directory"):
        await child.started()
    child.release()


def cmdline(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_a_command_ignores_no_signal(once):
    """The worker's helpers do, and exec leaves ignored what is."""
    masks = 'masks=$(grep -E "Sig(Ign|Blk)" /proc/self/status | tr -d "\\n\\t")'
    report = await once(masks + '; printf "{\\"masks\\": \\"%s\\"}" "$masks" > "$BEDROCK_RESULT"')
    assert report.given["data"] == {"masks": f"SigBlk:{0:016x}SigIgn:{0:016x}"}


def test_watchdog_and_guards_import_little():
    """What each fork of a guard costs is what it has in memory."""
    asked = CODE.replace("from bedrock_worker.run.guard import main", "import bedrock_worker.run.guard")
    code = asked.partition("main(")[0] + "print(*sys.modules)"
    folder = str(Path(bedrock_worker.__file__).parent)
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, folder, "adopts"], capture_output=True, text=True, check=True
    )
    imported = set(found.stdout.split())
    assert "bedrock_worker.run.guard" in imported
    assert not imported & {"bedrock_worker.functions", "dataclasses", "inspect", "pathlib", "threading"}


LEFT = """
import os, signal, socket, time
from bedrock_worker.run import guard

class Killed(guard.Watchdog):
    def _guard(self, control, folder):
        for _ in range(3):
            if os.fork():
                break
            os.setsid()
            os.write(1, b"%d " % os.getpid())
        else:
            os.write(1, b"\\n")
            os.write(tells, b"all there")
        if os.getppid() == parent:
            os.read(told, 1)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1000)

parent = os.getpid()
told, tells = os.pipe()
guard.ROUND_S, guard.ROUNDS_MAX = 0.0, 10**9  # each is over after its first look, as on a busy machine
worker, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
socket.send_fds(ours, [b"guard"], [tells])
ours.close()
Killed(worker, adopts=True).fork_guards()
"""
"""A guard that is killed while its run has children, which have children, as its worker dies."""


def test_what_a_killed_guard_left_is_killed_however_long_it_takes_to_end(tmp_path):
    code = CODE.partition("from bedrock_worker.run.guard")[0] + LEFT
    folder = str(Path(bedrock_worker.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", code, folder, "adopts"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        left = []
        try:
            left = [int(pid) for pid in process.stdout.readline().split()]
            assert len(left) == 3
            assert process.wait(DEADLINE_S) == 0
            assert gone(*left)
        finally:
            process.kill()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
