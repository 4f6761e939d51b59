"""What the worker receives from a reused process, and its reaction, without a server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from types import SimpleNamespace

import pytest
from bedrock_worker.run.kernel import NEVER, Alarm
from bedrock_worker.run.pipes import Pump
from bedrock_worker.run.watchdog_client import NeverBegan, PooledProcess, PooledRun

from tests.worker.conftest import until
from tests.worker.fake_server import DEADLINE_S


async def test_an_alarm_rings_when_it_is_set_to(monkeypatch):
    alarm, loop = Alarm(), asyncio.get_running_loop()
    rang = asyncio.Event()
    loop.add_reader(alarm.handle, rang.set)
    try:
        alarm.set(loop.time() + 1_000)
        alarm.set(loop.time() + 0.05)
        async with asyncio.timeout(DEADLINE_S):
            await rang.wait()
        assert int.from_bytes(os.read(alarm.handle, 8), "little") == 1
        alarm.set(loop.time() - 5)
        alarm.set(NEVER)
        with pytest.raises(BlockingIOError):
            os.read(alarm.handle, 8)
    finally:
        loop.remove_reader(alarm.handle)
        alarm.close()


async def test_a_process_that_is_dead_takes_no_run(tmp_path):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = PooledProcess(ours, 1, kind=b"", folder=str(tmp_path), data="before", runs=5)
    theirs.close()
    with pytest.raises(OSError, match="Broken pipe"):
        process.start_run(b"{}", "{}", NEVER, lambda _: None)
    process.close()
    assert not process.is_alive


async def test_the_alarm_of_a_process_that_is_let_go_of_does_not_ring(begun):
    """Its guard has it still."""
    kept = os.dup(begun.process.alarm.handle)
    try:
        begun.run.until(asyncio.get_running_loop().time() - 5)
        begun.process.close()
        with pytest.raises(BlockingIOError):
            os.read(kept, 8)
    finally:
        os.close(kept)


@pytest.fixture
async def begun(tmp_path):
    """Yield a run that was given to a process, with the process's end of the way, and what its guard says."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = PooledProcess(ours, 1, kind=b"", folder=str(tmp_path), data="before", runs=5)
    told, lines, (reads, prints) = [], [], os.pipe()
    guard = SimpleNamespace(process=process, pumps=[Pump(reads, "out")], on_message=None, send=told.append)
    watchdog = SimpleNamespace(expect_end=lambda *_: None)
    run = PooledRun(
        guard, watchdog, b"{}", '{"a": 1}', until=NEVER, listener=lambda _, line: lines.append(line)
    )
    with theirs, os.fdopen(prints, "wb", buffering=0) as output:
        yield SimpleNamespace(
            run=run,
            theirs=theirs,
            hear=guard.on_message,
            told=told,
            output=output,
            lines=lines,
            process=process,
        )
    guard.pumps[0].stop_reading()
    process.close()


def gone_with(status):
    return {"gone": 1, "ended": status, "signalled": False, "left": 0, "files": False}


async def test_a_later_run_prints_more_than_a_pipe_holds(begun):
    """Also where the first run was over so soon that its output was read at its end only."""
    os.set_blocking(begun.output.fileno(), False)
    left = memoryview(b"x" * 299_999 + b"\n")
    async with asyncio.timeout(DEADLINE_S):
        while left:
            left = left[begun.output.write(left) or 0 :]
            await asyncio.sleep(0)
        await until(lambda: begun.lines)


async def test_what_a_process_said_last_is_heard_before_its_end(begun):
    """Whichever of the two is read first."""
    assert begun.theirs.recv(1_000) == b'again {}\n{"a": 1}'
    begun.theirs.send(b'{"exit": 0, "files": false}\n{"b": 2}')
    begun.theirs.close()
    begun.hear(gone_with(0))
    assert (await begun.run.wait(), begun.run.result) == (0, '{"b": 2}')


@pytest.mark.parametrize("result", [b"", b'{"b": 2}'])
async def test_a_result_is_what_stands_behind_the_line(begun, result):
    """The function can write there as well."""
    begun.theirs.send(b'{"done": 0, "files": false, "result": 5}\n' + result)
    assert await begun.run.wait() == 0
    assert begun.run.result == (result.decode() or None)


async def test_a_run_that_its_process_never_read_has_not_begun(begun):
    begun.theirs.close()
    begun.hear(gone_with(-9))
    with pytest.raises(NeverBegan):
        await begun.run.wait()


@pytest.mark.parametrize("text", ["before", '{"a": 1}', "mine", None])
async def test_a_run_has_begun_once_its_job_is_in_the_folder(begun, tmp_path, text):
    """The kernel may read what a process was sent that it has killed."""
    begun.theirs.recv(1_000)
    if text is not None:
        (tmp_path / "job.json").write_text(text)
    begun.theirs.close()
    begun.hear(gone_with(-9))
    if text == "before":
        with pytest.raises(NeverBegan):
            await begun.run.wait()
    else:
        assert await begun.run.wait() == -9


async def test_a_run_of_the_same_job_may_have_begun(begun, tmp_path):
    """What is in the folder is as it would be if it had."""
    begun.theirs.recv(1_000)
    begun.theirs.send(b'{"done": 0, "files": false}\n')
    assert await begun.run.wait() == 0
    (tmp_path / "job.json").write_text('{"a": 1}')
    guard = begun.run._guard
    again = PooledRun(guard, None, b"{}", '{"a": 1}', until=NEVER, listener=lambda *_: None)
    begun.theirs.recv(1_000)
    begun.theirs.close()
    guard.on_message(gone_with(-9))
    assert await again.wait() == -9


async def test_a_run_that_was_read_has_begun(begun):
    begun.theirs.recv(1_000)
    begun.theirs.close()
    begun.hear(gone_with(-9))
    assert await begun.run.wait() == -9


async def test_a_run_that_was_signalled_before_it_was_read_has_ended(begun):
    begun.run.signal(signal.SIGKILL)
    assert begun.told == [b"signal 9"]
    begun.theirs.close()
    begun.hear({**gone_with(-9), "signalled": True})
    assert await begun.run.wait() == -9


@pytest.mark.parametrize("found", [None, gone_with(-9)])
async def test_the_folder_is_left_of_a_process_that_dies_just_after_its_run(begun, found):
    begun.theirs.send(b'{"done": 0, "files": false}\n')
    assert await begun.run.wait() == 0
    assert not begun.run.folder_left
    begun.hear(found)
    assert begun.run.folder_left
