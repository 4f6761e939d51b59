"""The worker over TLS with a token, which no command can see."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections import deque
from pathlib import Path

import pytest
from bedrock_worker import Workflow
from bedrock_worker.agent import Agent
from bedrock_worker.cli import main
from bedrock_worker.options import WorkerOptions
from click.testing import CliRunner

from bedrockjobs import WorkflowFailed
from bedrockjobs.client import AsyncClient, addresses_of
from bedrockjobs.commands import CreateJob, CreateToken, ListJobs, ListRuns, ReadOutput
from tests.certificates import Authority
from tests.cli import warm
from tests.worker import workflow_jobs
from tests.worker.conftest import agent_at_work
from tests.worker.fake_server import DEADLINE_S, FakeServer
from tests.worker.test_real_server import serving

TOKEN = "bj_secret_of_the_worker"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return somebody who signs certificates."""
    return Authority(tmp_path / "tls")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Return a file with a token."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


async def worked(agent: Agent) -> int:
    """Let an agent work until it ends; return its exit status."""
    async with asyncio.timeout(DEADLINE_S):
        return await agent.run_until_stopped()


async def test_jobs_are_done_over_tls_and_commands_can_use_the_server(tmp_path, authority):
    """Its command talks to the server that its job came from: the address and the signers are known."""
    script = '"$0" job create Bar'
    async with serving(tmp_path, **authority.serving()) as server:
        where = f"https://localhost:{server.port}"
        async with AsyncClient(where, ca=authority.ca) as client:
            job_id = (await client.call(CreateJob(name="Foo"))).job_id
            options = WorkerOptions(
                names=("Foo*",),
                argv=("sh", "-c", script, warm.program("bedrockjobs")),
                servers=addresses_of(where),
                ca=authority.ca,
                burst=True,
                env={"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            assert await worked(Agent(options)) == 0
            assert [job.name for job in (await client.call(ListJobs())).jobs] == ["Bar"]
            (run,) = (await client.call(ListRuns(job_id=job_id))).runs
            assert run.status == "success"


async def test_requests_carry_the_token_and_commands_do_not(authority, token_file, tmp_path, monkeypatch):
    monkeypatch.setenv("BEDROCKJOBS_TOKEN", TOKEN)
    found = tmp_path / "found"
    script = f'env > {found}; for file in /proc/self/fd/*; do readlink "$file" >> {found}; done; true'
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.serving().values())
    async with FakeServer(tls=context) as server:
        await server.add("Foo", heartbeat=1)
        options = WorkerOptions(
            names=("Foo*",),
            argv=("sh", "-c", script),
            servers=addresses_of(server.address),
            ca=authority.ca,
            token_file=token_file,
            burst=True,
        )
        assert await worked(Agent(options)) == 0
    assert len(server.requests) > 2
    assert all(f"Authorization: Bearer {TOKEN}" in request.head for request in server.requests)
    text = found.read_text()
    assert "BEDROCK_JOB_ID" in text
    assert TOKEN not in text
    assert "BEDROCKJOBS_TOKEN" not in text
    assert str(token_file) not in text


async def test_a_command_gets_the_token_of_its_run(tmp_path, authority, token_file):
    """It comes as a variable, not in the job's text, and what is printed of it is masked."""
    found, script = tmp_path / "found", 'cat; echo; echo "$BEDROCK_TOKEN" > {found}; echo "$BEDROCK_TOKEN"'
    async with serving(tmp_path, **authority.serving()) as server:
        where = f"https://localhost:{server.port}"
        async with AsyncClient(where, ca=authority.ca) as client:
            job_id = (await client.call(CreateJob(name="Foo"))).job_id
            options = WorkerOptions(
                names=("Foo*",),
                argv=("sh", "-c", script.format(found=found)),
                servers=addresses_of(where),
                ca=authority.ca,
                token_file=token_file,
                burst=True,
            )
            assert await worked(Agent(options)) == 0
            (run,) = (await client.call(ListRuns(job_id=job_id))).runs
            token = found.read_text().strip()
            assert server.service.presence.run_of_token(token) == (run.run_id, job_id, "")
            given, printed = [line.line for line in (await client.call(ReadOutput(run_id=run.run_id))).lines]
    assert json.loads(given)["runID"] == run.run_id
    assert "runToken" not in given
    assert printed == "***"


async def test_a_command_reports_and_has_children_with_it_and_does_nothing_else(tmp_path, monkeypatch):
    """The worker's own token is of the role that work needs; the command has that of its run by itself."""
    script = """
        alias call='"$0" call'
        call UpdateJob jobID=$BEDROCK_JOB_ID progress='{"percent":40}' || exit 3
        call CreateJob name=Child parentJobID=$BEDROCK_JOB_ID || exit 4
        call CreateJob name=Other; test $? = 5 || exit 6
    """
    async with serving(tmp_path) as server:
        where = f"127.0.0.1:{server.port}"
        async with AsyncClient(where) as anybody:
            root = (await anybody.call(CreateToken(name="root", roles=["admin"]))).token
        async with AsyncClient(where, token=root) as client:
            monkeypatch.setenv(
                "BEDROCKJOBS_TOKEN", (await client.call(CreateToken(name="w", roles=["work"]))).token
            )
            job_id = (await client.call(CreateJob(name="Foo"))).job_id
            options = WorkerOptions(
                names=("Foo",),
                argv=("sh", "-c", script, warm.program("bedrockjobs")),
                servers=addresses_of(where),
                burst=True,
                env={"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            assert await worked(Agent(options)) == 0
            (run,) = (await client.call(ListRuns(job_id=job_id))).runs
            assert (run.status, run.error) == ("success", "")
            assert run.progress == {"percent": 40}
            assert [job.name for job in (await client.call(ListJobs())).jobs if job.parent_job_id] == [
                "Child"
            ]


async def test_a_function_adds_to_its_workflow_with_the_token_of_its_run(tmp_path, monkeypatch):
    """It may not start another workflow."""
    async with serving(tmp_path) as server:
        where = f"127.0.0.1:{server.port}"
        async with AsyncClient(where) as anybody:
            root = (await anybody.call(CreateToken(name="root", roles=["admin"]))).token
        async with AsyncClient(where, token=root) as client:
            roles = ["work", "operate"]  # the latter for the schedule of the module
            token = (await client.call(CreateToken(name="w", roles=roles))).token
            monkeypatch.setenv("BEDROCKJOBS_TOKEN", token)
            fan = await workflow_jobs.fan.s(2).astart(client=client)
            starter = await workflow_jobs.starter.s(2).astart(client=client)
            options = WorkerOptions(
                names=(), argv=(), servers=addresses_of(where), module=workflow_jobs.__name__
            )
            async with agent_at_work(options):
                assert await fan.wait(DEADLINE_S) == 2
                with pytest.raises(WorkflowFailed, match=r"Forbidden: .*a run token permits only") as failed:
                    await starter.wait(DEADLINE_S)
            assert failed.value.error_type.endswith("Forbidden")
            added = await Workflow.ahandle(fan.workflow_id, client=client).wait()
            assert added["fan/total"] == {"result": 1}


async def test_a_worker_without_a_token_asks_for_none(monkeypatch):
    monkeypatch.delenv("BEDROCKJOBS_TOKEN", raising=False)
    options = WorkerOptions(names=("a",), argv=("true",), servers=addresses_of("h"))
    assert "run_token" not in options.taker


async def test_hup_reads_its_files_again_and_a_bad_one_is_told(authority, token_file, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    servers = addresses_of("https://localhost:1")
    agent = Agent(
        WorkerOptions(names=("a",), argv=("true",), servers=servers, ca=authority.ca, token_file=token_file)
    )
    for content, told in (("bj_new", "reloaded"), ("two words", "not reloaded"), ("bj_newer", "reloaded")):
        token_file.write_text(content)
        caplog.clear()
        agent.reload()
        assert caplog.records[-1].getMessage().startswith(told)
    assert agent._client._credentials.header == b"Authorization: Bearer bj_newer\r\n"


async def test_a_worker_that_is_not_let_in_tells_so_and_keeps_its_reports(token_file, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    async with FakeServer() as server:
        server.refusals["GetJobs"] = deque(["403 Forbidden"])
        server.refusals["FinishJob"] = deque(["403 Forbidden"] * 2)
        await server.add("Foo")
        options = WorkerOptions(
            names=("Foo*",),
            argv=("true",),
            servers=addresses_of(server.address),
            token_file=token_file,
            jobs_max=1,
        )
        assert await worked(Agent(options)) == 0
        assert len(server.of("FinishJob")) == 3
    assert any("not authorised" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--token-file", "none"), "token file none: cannot be read: No such file or directory"),
        (("--server", "https://127.0.0.1:1", "--ca", "none"), "none: cannot be read: No such file"),
        (("--token", TOKEN), "No such option"),
    ],
)
def test_what_cannot_be_used_is_told_at_the_start(arguments, words):
    said = CliRunner().invoke(main, ["--as-root", "--name", "a", *arguments, "--", "true"])
    assert (said.exit_code, words in said.output) == (2, True), said.output
