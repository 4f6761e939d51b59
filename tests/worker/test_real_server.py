"""The worker and the real server together: what the fake one could get wrong."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import pytest
from bedrock_worker import functions
from bedrock_worker.agent import Agent
from bedrock_worker.options import WorkerOptions
from bedrock_worker.policy.program import ProgramSelector

from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.settings import Settings
from bedrockjobs.client import AsyncClient, addresses_of
from bedrockjobs.commands import (
    CreateJob,
    CreateJobs,
    DeleteJob,
    GetJobs,
    ListJobs,
    ListRuns,
    QueryJob,
    QueryRun,
    ReadOutput,
    Status,
)
from bedrockjobs.server import Server
from tests.cli import warm
from tests.worker.fake_server import DEADLINE_S
from tests.worker.test_command_line import exit_status, logged, program


@asynccontextmanager
async def serving(folder, port=0, **more):
    """Run a server of one database."""
    server = Server(
        Settings(port=port, database=str(folder / "jobs.db"), wal_bytes=0, ballast_bytes=0, **more)
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def agent_for(server, script, *arguments, **more):
    """Return an agent that runs a script for ``Foo*``, at a server or at the addresses in a text."""
    argv = ("sh", "-c", script, *arguments)
    servers = addresses_of(server if isinstance(server, str) else f"127.0.0.1:{server.port}")
    return Agent(WorkerOptions(names=("Foo*",), argv=argv, servers=servers, **more))


async def test_jobs_from_one_end_to_the_other(tmp_path):
    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        jobs = [{"name": f"Foo/{n}", "data": {"exit": n}} for n in (0, 3, 75, 100)]
        await client.call(CreateJobs(jobs=jobs))
        script = 'echo "{\\"seen\\":2.50}" > "$BEDROCK_RESULT"; exit "${BEDROCK_NAME#Foo/}"'
        async with asyncio.timeout(DEADLINE_S):
            assert await agent_for(server, script, burst=True, concurrency=2).run_until_stopped() == 0
        left = {job.name: job for job in (await client.call(ListJobs())).jobs}
        assert {name: (job.state, job.data) for name, job in left.items()} == {
            "Foo/3": ("FAILED", {"seen": 2.5}),
            "Foo/75": ("QUEUED", {"seen": 2.5}),
            "Foo/100": ("FAILED", {"seen": 2.5}),
        }
        assert left["Foo/3"].error == "exit status 3"


async def test_output_arrives_as_it_was_printed(tmp_path, caplog):
    """Colours, and whatever else a line can hold: only the worker's own log and the error are escaped."""
    caplog.set_level("INFO", "bedrock_worker")
    every = "".join(map(chr, [*range(1, 10), *range(11, 32), 127, 133, 0x2028, 0x202E, 0x1F600]))
    script = f"""printf '\\033[31mred\\033[0m\\n'; printf '%s|\\0|\n' '{every}' >&2; exit 3"""
    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        job_id = (await client.call(CreateJob(name="Foo"))).job_id
        async with asyncio.timeout(DEADLINE_S):
            assert await agent_for(server, script, burst=True).run_until_stopped() == 0
        (run,) = (await client.call(ListRuns(job_id=job_id))).runs
        read = (await client.call(ReadOutput(run_id=run.run_id))).lines
        shown = (await client.call(QueryRun(run_id=run.run_id))).output
    expected = {"out": "\x1b[31mred\x1b[0m", "err": f"{every}|\ufffd|"}  # no engine's text holds a NUL
    assert {line.stream: line.line for line in read} == expected
    assert set(shown) == set(expected.values())
    assert "\\x1b[31mred\\x1b[0m" in run.error
    said = [record.getMessage() for record in caplog.records] + run.error.splitlines()
    assert not any(set(line) & set(every) - set("\t\U0001f600") for line in said)


async def test_work_over_a_unix_socket(tmp_path):
    """The command can use the address that it is given."""
    path = tmp_path / "s"
    script = '"$0" job create Bar --server "$BEDROCK_SERVER"'
    async with serving(tmp_path, unix=str(path)), AsyncClient(f"unix:{path}") as client:
        await client.call(CreateJob(name="Foo"))
        agent = agent_for(
            f"unix:{tmp_path}/none,unix:{path}", script, warm.program("bedrockjobs"), burst=True
        )
        async with asyncio.timeout(DEADLINE_S):
            assert await agent.run_until_stopped() == 0
        assert [job.name for job in (await client.call(ListJobs())).jobs] == ["Bar"]


async def test_result_with_the_mark_of_mocks_costs_its_job_only(tmp_path):
    """It is refused for good: the job fails and says why, the slot is free, and TERM ends the worker."""
    script = """case $BEDROCK_NAME in *bad) echo '{"mockRequest":true}' > "$BEDROCK_RESULT";; esac"""
    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.call(CreateJobs(jobs=[{"name": f"Foo/{n}bad", "retries": 5} for n in (1, 2)]))
        argv = ("--name", "Foo/*", "--", "sh", "-c", script)
        async with program(f"127.0.0.1:{server.port}", *argv) as worker:
            for _ in range(2):
                assert "Mock Mismatch" in await logged(worker, "report refused")
            await client.call(CreateJob(name="Foo/good"))
            await logged(worker, "reported job=3")
            worker.send_signal(signal.SIGTERM)
            assert await exit_status(worker) == 0
        left = (await client.call(ListJobs())).jobs
    words = "result: mockRequest must not be in it, as in the job (FinishJob was refused: 500 Mock Mismatch)"
    assert [(job.state, job.error) for job in left] == [("FAILED", words)] * 2


async def test_ended_wait_takes_nothing(tmp_path):
    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        hurry = asyncio.Event()
        wait = GetJobs(names=["Foo*"], num_results=2, worker="w", connection="wait", timeout=60_000)
        waiting = asyncio.ensure_future(client.call(wait, hurry=hurry))
        async with asyncio.timeout(DEADLINE_S):
            while not (await client.call(Status())).waiting:
                await asyncio.sleep(0)
        hurry.set()
        with pytest.raises(NotFound):
            await waiting
        job_id = (await client.call(CreateJob(name="Foo"))).job_id
        assert (await client.call(QueryJob(job_id=job_id))).state == "QUEUED"


async def test_stop_hands_back_as_if_never_taken(tmp_path):
    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        before = await client.call(QueryJob(job_id=(await client.call(CreateJob(name="Foo"))).job_id))
        agent = agent_for(server, "sleep 1000", grace_s=0.0)
        working = asyncio.ensure_future(agent.run_until_stopped())
        async with asyncio.timeout(DEADLINE_S):
            while not agent._runs:
                await asyncio.sleep(0)
            agent.stop()
            assert await working == 0
        after = await client.call(QueryJob(job_id=before.job_id))
        assert (after.state, after.next_run, after.attempt) == ("QUEUED", before.next_run, before.attempt)


async def test_result_survives_a_restart(tmp_path):
    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.call(CreateJob(name="Foo", repeat="FINISHED, +1 DAY"))
        script = 'until [ -e "$0/go" ]; do sleep 0.01; done; echo "{\\"done\\":1}" > "$BEDROCK_RESULT"'
        agent = agent_for(server, script, str(tmp_path), jobs_max=1)
        working = asyncio.ensure_future(agent.run_until_stopped())
        async with asyncio.timeout(DEADLINE_S):
            while not agent._runs:
                await asyncio.sleep(0)
        port = server.port
    (tmp_path / "go").touch()
    async with asyncio.timeout(DEADLINE_S):
        while agent._runs:
            await asyncio.sleep(0)
        async with serving(tmp_path, port) as server, AsyncClient(f"127.0.0.1:{port}") as client:
            assert await working == 0
            (job,) = (await client.call(ListJobs())).jobs
            assert (job.state, job.data) == ("QUEUED", {"done": 1})


NEW_SCHEDULES = """
from bedrock_worker import cron

@cron("0 9 * * *", name="daily")
def daily(): pass

@cron("0 10 * * *", name="new")
def new(): pass
"""
OLD_SCHEDULES = NEW_SCHEDULES.replace("0 9", "0 8").replace("new", "old")


async def test_a_worker_with_older_code_that_restarts_leaves_the_newer_schedules(
    tmp_path, monkeypatch, caplog
):
    """And one with --no-sync leaves all as it is; what somebody removed comes back by itself."""
    # Both texts have one size and may have one mtime, which is all that a cached .pyc is compared by.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    caplog.set_level("INFO", "bedrock_worker")
    monkeypatch.setattr("bedrockjobs.engine.handlers.sync.REDECLARE_S", 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    file = tmp_path / "their_schedules.py"

    def load(text):
        """Return what a worker loads while the file holds this text."""
        functions._declared.pop(file.stem, None)
        sys.modules.pop(file.stem, None)
        file.write_text(text)
        found = WorkerOptions(names=(), argv=(), servers=addresses, module=file.stem)
        return ProgramSelector(found)

    async def names():
        return sorted(job.name for job in (await client.call(ListJobs())).jobs)

    async def until(*expected):
        async with asyncio.timeout(DEADLINE_S):
            while await names() != sorted(expected):
                await client.call(ListJobs())

    async with serving(tmp_path) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        addresses = addresses_of(f"127.0.0.1:{server.port}")

        def begin(name, text, **more):
            options = WorkerOptions(
                names=(), argv=(), servers=addresses, module=file.stem, worker=name, **more
            )
            agent = Agent(options, load(text))
            return agent, asyncio.ensure_future(agent.run_until_stopped())

        workers = [begin("old", OLD_SCHEDULES)]
        await until("daily", "old")
        workers.append(begin("new", NEW_SCHEDULES))
        await until("daily", "new", "old")
        for more in ({}, {"no_sync": True}):
            workers[0][0].stop()
            await workers[0][1]
            said = len(caplog.records)
            workers[0] = begin("old", OLD_SCHEDULES, **more)
            async with asyncio.timeout(DEADLINE_S):
                while not more and "schedules kept" not in str(caplog.records[said:]):
                    await client.call(ListJobs())
            assert await names() == ["daily", "new", "old"]
        assert {job.name: job.repeat for job in (await client.call(ListJobs())).jobs}[
            "daily"
        ] == "CRON 0 9 * * *"
        (job_id,) = [job.job_id for job in (await client.call(ListJobs())).jobs if job.name == "new"]
        await client.call(DeleteJob(job_id=job_id))
        await until("daily", "new", "old")
        for agent, task in workers:
            agent.stop()
            assert await task == 0
