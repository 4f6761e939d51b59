"""kill -9 of workers and of the server at each stage of a run: no tick is lost, none fires twice.

The schedules run every second and catch up every tick, so the history must contain each second once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.effort import examples
from tests.history import Report
from tests.reliability.crew import BEGUN, ENDED, Crew, until
from tests.reliability.forgetful import EVERY, FAULTS
from tests.reliability.schedule_storm import ScheduleStorm
from tests.reliability.stalled import StallingDisk

pytestmark = pytest.mark.reliability

KILLS = int(os.environ.get("RELIABILITY_SCHEDULE_KILLS", examples(2, night=100)))
"""Kills at random moments; the nightly command does more."""

SHORT_LEASE_S = 4
"""Lease of schedules whose worker is killed: the run is lost after that."""

LONG_LEASE_S = 60
"""Lease of schedules whose server is killed: it lasts beyond a start of many seconds. A
worker ends its command ten seconds before."""

STOPPED_S = 5.0
"""Time in which a stopped worker that waits is given a job of a schedule of every second."""

STOPS_MAX = 20
"""How often a worker is stopped until it is stopped between two runs."""

MISSED_S = 1.2
"""Time a server stays away: at least one tick passes."""


# --- workers -------------------------------------------------------------------------------------------


async def before_the_take(crew: Crew, name: str) -> int | None:
    worker = await crew.work(name)
    await crew.more(name)
    await crew.at_rest(name)
    await worker.kill()
    return None


async def between_take_and_start(crew: Crew, name: str) -> int | None:
    worker = await crew.work(name)
    await crew.more(name)
    run_id = await stopped_with_a_job(crew, name, worker.send)
    await worker.kill()
    assert await crew.status(run_id) == "running"
    assert not [each for each in crew.seen(BEGUN, name) if each.run_id == run_id]
    return run_id


async def stopped_with_a_job(crew: Crew, name: str, send: Callable[[signal.Signals], None]) -> int:
    """Stop a waiting worker (SIGSTOP), and let the server hand it a job; return the run."""
    for _ in range(STOPS_MAX):
        await crew.at_rest(name)
        send(signal.SIGSTOP)
        begun = {effect.run_id for effect in crew.seen(BEGUN, name)}
        with suppress(TimeoutError):  # it has none where the worker had not asked for a job yet
            async with asyncio.timeout(STOPPED_S):
                run_id = await crew.open_run(name)
                if run_id not in begun:
                    return run_id
        send(signal.SIGCONT)
        await crew.more(name)
    raise AssertionError(f"the worker of {name} was never stopped while it waited")


async def during_the_command(crew: Crew, name: str) -> int | None:
    worker = await crew.work(name)
    run_id = await crew.held(name)
    await worker.kill()
    crew.gone.add(run_id)
    crew.release(name)
    assert not [each for each in crew.seen(ENDED, name) if each.run_id == run_id]
    return run_id


async def before_its_report(crew: Crew, name: str) -> int | None:
    worker = await crew.work(name)
    run_id = await crew.held(name)
    worker.send(signal.SIGSTOP)
    crew.release(name)
    await crew.effect(ENDED, run_id)
    await worker.kill()
    return run_id


Stage = Callable[[Crew, str], Coroutine[Any, Any, int | None]]
"""Starts a worker and kills it; returns the run that is lost by that."""

STAGES: dict[str, Stage] = {
    "waiting": before_the_take,
    "taken": between_take_and_start,
    "working": during_the_command,
    "done": before_its_report,
}


async def test_a_worker_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kill a worker at every stage at once, each with its own schedule; then start another in its place."""
    async with Crew(tmp_path) as crew:
        await crew.serve()
        for name in STAGES:
            await crew.schedule(name, SHORT_LEASE_S)
        async with asyncio.TaskGroup() as group:
            killing = [group.create_task(stage(crew, name)) for name, stage in STAGES.items()]
        await crew.work(*STAGES, slots=len(STAGES))
        lost = [run_id for task in killing if (run_id := task.result()) is not None]
        for run_id in lost:
            assert await crew.over(run_id) == "frozen"
        for name in STAGES:
            await crew.more(name)
        report = await crew.account()
    with capsys.disabled():
        print(f"\nworkers killed at {len(STAGES)} stages: {report}")
    assert not report.faults, report
    assert report.counts["caught up"], "ticks passed while a run was lost"
    assert len(lost) == len(STAGES) - 1, "who only waited had nothing to lose"


# --- the server ----------------------------------------------------------------------------------------


async def test_the_server_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each stage has a schedule and a worker, which continues and reports its run."""
    async with Crew(tmp_path) as crew:
        await crew.serve()
        workers = {}
        for name in STAGES:
            await crew.schedule(name, LONG_LEASE_S)
            workers[name] = await crew.work(name)
        for name in STAGES:
            await until(lambda name=name: bool(crew.seen(ENDED, name)), f"a run of {name}")  # type: ignore[misc]
        runs = {name: await crew.held(name) for name in ("working", "done")}
        runs["taken"] = await stopped_with_a_job(crew, "taken", workers["taken"].send)
        workers["done"].send(signal.SIGSTOP)  # last, since its lease is no longer renewed
        crew.release("done")
        await crew.effect(ENDED, runs["done"])
        await crew.at_rest("waiting")
        await crew.kill_server()

        workers["done"].send(signal.SIGCONT)
        workers["taken"].send(signal.SIGCONT)
        await asyncio.sleep(MISSED_S)
        await crew.serve()
        assert await crew.status(runs["working"]) == "running"
        crew.release("working")
        for run_id in runs.values():
            assert await crew.over(run_id) == "success"
        report = await crew.account()
    with capsys.disabled():
        print(f"\nthe server killed at {len(STAGES)} stages: {report}")
    assert not report.faults, report
    assert report.counts["caught up"] >= len(STAGES), "ticks passed while the server was away"


async def test_the_server_is_killed_during_a_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk hangs within a commit: first of a take, then of an end."""
    name = "every-second"
    async with Crew(tmp_path) as crew:
        disk = StallingDisk(tmp_path, crew.database)
        turning = asyncio.create_task(turn_for_ever(disk))
        await crew.serve(**disk.environment)
        await crew.schedule(name, LONG_LEASE_S)
        await crew.work(name)
        await crew.more(name)

        await crew.at_rest(name)
        begun = len(crew.seen(BEGUN, name))
        turning.cancel()
        await until(lambda: disk.stalled, "a commit of a take stands still")
        await crew.kill_server()
        assert len(crew.seen(BEGUN, name)) == begun, "nobody hears of a take before its commit"
        disk.turn()
        turning = asyncio.create_task(turn_for_ever(disk))
        await crew.serve(**disk.environment)
        await crew.more(name)

        run_id = await crew.held(name)
        while await committing(crew):
            pass
        turning.cancel()
        crew.release(name)
        await crew.effect(ENDED, run_id)
        await until(lambda: disk.stalled, "a commit of an end stands still")
        await crew.kill_server()
        disk.close()
        await crew.serve()
        assert await crew.over(run_id) == "success"
        report = await crew.account()
    with capsys.disabled():
        print(f"\nthe server killed during commits: {report}")
    assert not report.faults, report
    assert set(report.counts) <= {"fired", "caught up", "success"}, "no run is lost: nobody heard of its take"


async def turn_for_ever(disk: StallingDisk) -> None:
    """Let the disk's writes continue until cancelled."""
    while True:
        disk.turn()
        await asyncio.sleep(0.001)


async def committing(crew: Crew) -> bool:
    """Return whether the server is committing."""
    before = (await crew.ask("Status"))["commits"]
    await asyncio.sleep(0.1)
    return bool((await crew.ask("Status"))["commits"] != before)


# --- at random, and what must be found -----------------------------------------------------------------


async def test_killed_at_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = await ScheduleStorm(tmp_path, KILLS).run()
    with capsys.disabled():
        print(f"\n{KILLS} kills of server and workers: {report}")
    assert not report.faults, report
    assert report.counts["kills"] == KILLS
    assert report.counts["success"], "there must have been runs"


FOUND = {
    "tick lost": {"tick lost"},
    "tick twice": {"fired twice", "done twice", "tick twice"},
    "unwritten": {"tick lost", "run without a tick"},
}
"""What must be found of a server with a fault: one of them, as its rows fall."""


async def test_faults_are_found(tmp_path: Path) -> None:
    async def judged(fault: str) -> Report:
        folder = tmp_path / fault.replace(" ", "-")
        folder.mkdir()
        async with Crew(folder, "-m", "tests.reliability.forgetful", fault, "serve") as crew:
            await crew.serve()
            await crew.schedule("every-second", LONG_LEASE_S)
            await crew.work("every-second")
            await crew.more("every-second", EVERY + 1)
            return await crew.account()

    async with asyncio.TaskGroup() as group:
        judging = {fault: group.create_task(judged(fault)) for fault in FAULTS}
    for fault, task in judging.items():
        report = task.result()
        assert report.faults.keys() & FOUND[fault], f"{fault}: {report}"
