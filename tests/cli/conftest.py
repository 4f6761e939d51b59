"""A server for the tests of a module, and the program as its client."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from live_server import Running, start, stop
from program import Completed, Program

from bedrockjobs.cli import main


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a server for the tests of a module; it must shut down cleanly."""
    running = start(tmp_path_factory.mktemp("server") / "jobs.db")
    yield running
    assert stop(running.process) == 0


@pytest.fixture
def bedrockjobs(server: Running, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Run `bedrockjobs` against the module's server, in this process, as starting a process takes long."""
    for name in [name for name in os.environ if name.startswith("BEDROCKJOBS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BEDROCKJOBS_SERVER", server.address)

    def run(*arguments: str, stdin: str = "") -> Completed:
        result = CliRunner().invoke(main, arguments, input=stdin, prog_name="bedrockjobs")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Completed(result.exit_code, result.stdout, result.stderr)

    return run
