"""Guards are reused for the next command, and replaced if they are gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from bedrock_worker.run.guard import REPORT_AFTER_S
from bedrock_worker.run.process import GUARDS_MAX, CannotStart, ChildProcess

from tests.worker.conftest import ended, gone, until
from tests.worker.fake_server import DEADLINE_S


@pytest.fixture
def begin(watchdog, tmp_path):
    """Return what begins a command; it may say more of how."""
    numbers = iter(range(1_000))

    def begun(*argv, heard=None, **more):
        given = {"env": {"PATH": os.environ["PATH"]}, "cwd": None, **more}
        return ChildProcess(
            argv,
            folder=tmp_path / f"run{next(numbers)}",
            data="{}",
            watchdog=watchdog,
            **given,
            listener=lambda _, line: None if heard is None else heard.append(line),
        )

    return begun


async def end_of(child):
    async with asyncio.timeout(DEADLINE_S):
        return await child.wait()


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def guard_of(child):
    return parent(await child.started())


async def test_the_next_command_has_the_guard_of_the_last(begin, tmp_path):
    found = []
    for number in range(3):
        child = begin("sh", "-c", "cat > /dev/null; exec sleep 1000", heard=[])
        found.append(await guard_of(child))
        child.signal(signal.SIGKILL)
        await end_of(child)
        assert not child.folder_left
        assert not (tmp_path / f"run{number}").exists()
        child.release()
    assert len(set(found)) == 1


async def test_commands_at_once_have_guards_of_their_own(begin):
    first, second = begin("sleep", "1000"), begin("sleep", "1000")
    assert await guard_of(first) != await guard_of(second)
    for child in (first, second):
        child.release()
        await until(lambda child=child: gone(child.pid))


async def test_what_was_said_of_a_command_that_has_ended_does_not_hurt_the_next(begin):
    first = begin("true")
    await end_of(first)
    first.signal(signal.SIGKILL)
    first.until(0.0)
    first.release()
    second = begin("sh", "-c", "exit 3")
    assert await end_of(second) == 3
    second.release()


async def test_a_guard_that_is_killed_while_it_has_nothing_to_do_is_replaced(begin):
    first = begin("true")
    await first.started()
    guard = first._guard.pid
    await end_of(first)
    first.release()
    os.kill(guard, signal.SIGKILL)
    assert ended(guard)  # and nothing was heard of its death by now
    second = begin("sh", "-c", "exit 3")
    assert await end_of(second) == 3
    assert second._guard.pid != guard
    second.release()
    assert GUARDS_MAX == 8


async def test_a_command_that_cannot_start_costs_no_guard(begin, tmp_path):
    found = begin(str(tmp_path / "none"))
    with pytest.raises(CannotStart):
        await found.started()
    guard = found._guard
    found.release()
    second = begin("true")
    assert second._guard is guard
    assert await end_of(second) == 0
    second.release()


@pytest.mark.parametrize("near", ["bin", ".", ""])
async def test_a_relative_folder_of_programs_is_that_of_the_command(begin, tmp_path, near):
    """The guard, which looks where the program is, stands elsewhere."""
    for folder, says in ((tmp_path / near, "near"), (tmp_path / "far", "far")):
        folder.mkdir(exist_ok=True)
        (folder / "a-program").write_text(f"#!/bin/sh\necho {says}\n")
        (folder / "a-program").chmod(0o700)
    heard = []
    child = begin("a-program", heard=heard, cwd=tmp_path, env={"PATH": f"{near}:{tmp_path / 'far'}"})
    assert await end_of(child) == 0
    child.release()
    assert heard == ["near"]


async def test_a_folder_that_is_there_already_is_nobodys(begin, tmp_path):
    (tmp_path / "run0").mkdir()
    (tmp_path / "run0" / "kept").touch()
    child = begin("true")
    with pytest.raises(FileExistsError):
        await child.started()
    assert not child.folder_left
    child.release()
    assert (tmp_path / "run0" / "kept").exists()


async def test_each_run_has_its_own_output_to_the_last_line(begin):
    heard = []
    for number in range(3):
        child = begin("sh", "-c", f"printf 'a{number}\\nb{number}'", heard=heard)
        assert await end_of(child) == 0
        child.release()
    assert heard == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_a_start_is_told_once_and_not_behind_the_end(watchdog, tmp_path):
    """With the end, where the run is shorter than REPORT_AFTER_S; else by itself."""
    guard, heard, over = watchdog.take(), [], asyncio.Event()

    def hear(found):
        heard.append(found)
        if found is None or "ended" in found:
            over.set()

    for number, argv in enumerate((["true"], ["sh", "-c", "while ! rm go; do :; done 2>/dev/null"])):
        heard.clear()
        over.clear()
        head = {
            "until": None,
            "folder": str(tmp_path / f"told{number}"),
            "argv": argv,
            "cwd": str(tmp_path),
            "env": {"PATH": os.environ["PATH"]},
            "limits": [],
            "nice": 0,
            "privileges": False,
        }
        with Path(os.devnull).open("w") as nothing:
            guard.give(json.dumps(head).encode(), b"", "{}", [nothing.fileno()] * 2, hear)
        if number:  # it cannot end before we say so
            await until(lambda: heard)
            assert "ended" not in heard[0]
            (tmp_path / "go").touch()
        async with asyncio.timeout(DEADLINE_S):
            await over.wait()
        assert sum("started" in found for found in heard) == 1
        assert "started" in heard[0]
        assert heard[-1]["ended"] == 0
        assert len(heard) == 2 or not number
    guard.release()
    assert REPORT_AFTER_S == 0.01
