"""The workers in other languages: those for Bash and Node do jobs of a server, that in Go is compiled."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bedrockjobs import CreateJob, JobFailed
from bedrockjobs.testing import ServerUnderTest
from tests.cli.live_server import DEADLINE_S, clean_environment

PAGE = Path(__file__).parents[2] / "docs/how-to/worker-in-another-language.md"
FILES = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the programs of the page."""
    found = tmp_path_factory.mktemp("workers")
    for name, text in FILES.findall(PAGE.read_text()):
        (found / name).write_text(text)
    return found


@contextmanager
def running(folder: Path, *command: str, server: str) -> Iterator[None]:
    """Run a worker, and end it with all that it has started."""
    environment = clean_environment(BEDROCKJOBS_SERVER=server, TMPDIR=str(folder))
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.filterwarnings("ignore::bedrockjobs.NoWorkerTakes")  # a program may take long to start
@pytest.mark.parametrize(("program", "name"), [("bash", "worker.sh"), ("node", "worker.mjs")])
def test_a_worker_does_jobs(program: str, name: str, folder: Path) -> None:
    if program == "bash" and not shutil.which("jq"):
        pytest.skip("jq is not installed")
    with ServerUnderTest() as server, running(folder, program, name, server=server.address):
        client = server.client
        jobs = (CreateJob(name=f"greet/{program}", data=data) for data in ({"to": "Ann"}, {}))
        done, failed = (client.call(job).job_id for job in jobs)
        assert client.wait_for_job(done, DEADLINE_S).result == {"greeting": "Hello Ann"}
        with pytest.raises(JobFailed, match="nobody to greet"):
            client.wait_for_job(failed, DEADLINE_S)


@pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")
def test_the_worker_in_go_is_compiled(folder: Path, tmp_path: Path) -> None:
    command = ["go", "build", "-o", str(tmp_path / "worker"), "worker.go"]
    environment = {**os.environ, "GOCACHE": str(tmp_path / "cache")}
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=4 * DEADLINE_S)
