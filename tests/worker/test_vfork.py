"""Programs started by ``vfork`` or by a fork: both begin alike, and die with their parent."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from bedrock_worker.policy.program import LIMITS, ResourceLimits
from bedrock_worker.run import begin as vfork
from bedrock_worker.run.begin import PATHS_MAX, VFork
from bedrock_worker.run.process import CannotStart, ChildProcess
from bedrock_worker.run.watchdog_client import CODE

from tests.worker.conftest import gone, until
from tests.worker.fake_server import DEADLINE_S

pytestmark = pytest.mark.usefixtures("own_watchdog")

SEEN = """
import json, os, resource, sys
status = open("/proc/self/status").read().splitlines()
fields = dict(line.split(":\\t", 1) for line in status if ":\\t" in line)
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), "input": sys.stdin.read(),
    "handles": sorted(os.listdir("/proc/self/fd"))[:-1],
    "session": os.getsid(0) == os.getpid(), "group": os.getpgrp() == os.getpid(), "nice": os.nice(0),
    **{name.lower(): resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
       for name in ("NOFILE", "CPU", "CORE")},
    **{name: fields[name] for name in ("SigIgn", "SigBlk", "NoNewPrivs")},
}))
"""
"""A program that tells what it finds."""


@pytest.fixture(params=["vfork", "fork"])
def way(request, monkeypatch):
    """Let guards start programs in one of the two ways."""
    if request.param == "fork":
        other = CODE.replace("\nmain(", "\nimport bedrock_worker.run.begin as it\nit.MACHINES = ()\nmain(")
        assert other != CODE
        monkeypatch.setattr("bedrock_worker.run.watchdog_client.CODE", other)


@pytest.fixture
def stdio():
    """Return handles of which a program reads nothing and to which it writes in vain."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    yield (nothing, nothing, nothing)
    os.close(nothing)


def start(program, stdio, *argv, paths=None, by=None, **more):
    given = {"argv": [program, *argv], "env": {}, "limits": [], "nice": 0, "privileges": False, **more}
    return (by or VFork()).start(given, stdio, None, [program] if paths is None else paths)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("new_privileges", [False, True])
async def test_what_a_program_finds(watchdog, tmp_path, new_privileges):
    heard = []
    odd = "é \udcff $X\n"
    env = {"ODD": odd, "EMPTY": "", "LC_ALL": "C.UTF-8"}
    child = ChildProcess(
        [sys.executable, "-I", "-S", "-c", SEEN, odd, ""],
        env=env,
        cwd=tmp_path,
        data='{"a":1}',
        folder=tmp_path / "run",
        listener=lambda _, line: heard.append(line),
        watchdog=watchdog,
        limits=ResourceLimits({"nofile": 64, "cpu": 7}, nice=3),
        new_privileges=new_privileges,
    )
    assert await child.wait() == 0
    child.release()
    found = json.loads("".join(heard))
    assert found == {
        "argv": [odd, ""],
        "cwd": str(tmp_path),
        "env": env,
        "input": '{"a":1}',
        "handles": ["0", "1", "2"],
        "session": True,
        "group": True,
        "nice": os.nice(0) + 3,
        "nofile": [64, 64],
        "cpu": [7, 8],
        "core": [0, 0],
        "NoNewPrivs": str(int(not new_privileges)),
        "SigBlk": f"{0:016x}",
        "SigIgn": f"{1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1:016x}",  # Python's own
    }


@pytest.mark.usefixtures("way")
async def test_why_a_program_cannot_be_started(watchdog, tmp_path):
    begin = partial(
        ChildProcess, env={}, folder=tmp_path / "run", data="", listener=lambda *_: None, watchdog=watchdog
    )
    for argv, cwd, words in (
        ("/none", tmp_path, "No such file"),
        (str(tmp_path), tmp_path, "Permission denied"),
        ("/bin/true", tmp_path / "none", "none: No such file"),
    ):
        child = begin([argv], cwd=cwd)
        with pytest.raises(CannotStart, match=words):
            await child.started()
        child.release()


def test_a_limit_that_may_not_be_set_is_none_that_is_passed_over(stdio):
    """Whoever tries it by a fork is told so."""
    _, ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert start("/bin/true", stdio, limits=[(resource.RLIMIT_NOFILE, ours, ours + 1)]) == 0
    pid = start("/bin/true", stdio, limits=[(resource.RLIMIT_NOFILE, ours, ours)])
    assert os.waitpid(pid, 0)[1] == 0


def test_the_first_that_can_be_started_is(stdio, tmp_path):
    kept = tmp_path / "no_program"
    kept.write_text("#!/bin/sh\n")
    paths = [str(tmp_path / "none"), str(kept), "/bin/sh", "/bin/false"]
    pid = start("sh", stdio, "-c", "exit 3", paths=paths)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def test_where_none_can_be_started_no_child_is_left(stdio, tmp_path):
    by, none = VFork(), [str(tmp_path / "none"), str(tmp_path)]
    before = children(os.getpid())
    for paths in (none, ["/bin/true"] * (PATHS_MAX + 1)):
        assert start("none", stdio, paths=paths, by=by) == 0
        assert set(children(os.getpid())) <= set(before)
    assert os.waitpid(start("/bin/true", stdio, by=by), 0)[1] == 0, "it does not hurt the next"


def test_as_many_arguments_limits_and_files_as_there_can_be(stdio):
    limits = [(resource.RLIMIT_CORE, 0, 0)] * (len(LIMITS) + 1)
    paths = [*["/none"] * (PATHS_MAX - 1), "/bin/sh"]
    pid = start("sh", stdio, "-c", "exit $#", "sh", *["x"] * 200, paths=paths, nice=1, limits=limits)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 200


def test_a_machine_that_is_not_known_has_none(monkeypatch):
    monkeypatch.setattr(vfork, "MACHINES", ())
    with pytest.raises(OSError, match="no contexts are known"):
        VFork()


PARENT = """
import os, sys, types
_, folder, program, group = sys.argv
package = sys.modules["bedrock_worker"] = types.ModuleType("bedrock_worker")
package.__path__ = [folder]
from bedrock_worker.run.begin import VFork
nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
start = VFork().start
print("ready", flush=True)
given = {"argv": [program, "1000"], "env": {}, "limits": [], "nice": 0, "privileges": False}
pid = start(given, [nothing] * 3, int(group) or None, [program])
print(pid, flush=True)
sys.stdin.read()
"""
"""A process that starts ``sleep``, and tells its id once it runs."""


def parent(group: int = 0) -> subprocess.Popen[str]:
    folder = str(Path(vfork.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PARENT, folder, "/bin/sleep", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(group,) if group else (),
    )


def children(pid: int) -> list[int]:
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_program_dies_with_whoever_started_it():
    with parent() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pid = int(process.stdout.readline())
        assert not gone(pid)
        process.kill()
        await until(lambda: gone(pid))


async def test_a_program_does_not_begin_once_whoever_starts_it_is_dead():
    """The child is held where it joins its group, which is before it asks to die with its parent."""
    reads, writes = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writes, False)
    while True:
        try:
            os.write(writes, bytes(4_096))
        except BlockingIOError:
            break
    os.set_blocking(writes, True)
    with parent(writes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        await until(lambda: bool(children(process.pid)))
        (pid,) = children(process.pid)
        handle = os.pidfd_open(pid)
        process.kill()
        process.wait(DEADLINE_S)
        assert not gone(pid)
        os.read(reads, 65_536)
        try:
            await until(lambda: gone(pid))
        finally:
            if not gone(pid):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            for each in (handle, reads, writes):
                os.close(each)
