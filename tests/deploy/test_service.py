"""A server run by systemd: its notifications, its sockets, its log, and its metrics."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bedrockjobs.client import Client
from bedrockjobs.commands import Ping
from bedrockjobs.observe import logs
from bedrockjobs.service import VERSION
from tests.cli import live_server, warm
from tests.conftest import Live

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60


class Service(NamedTuple):
    """A server that was started like by systemd."""

    process: subprocess.Popen[str]
    manager: socket.socket
    port: int

    def told(self, line: bytes) -> bytes:
        """Return the first message that contains a line; waits for it."""
        while True:
            message = self.manager.recv(4_096)
            if line in message.split(b"\n"):
                return message

    def stop(self) -> tuple[int, str]:
        """Stop the server; return its exit status, and its stdout and log."""
        self.process.send_signal(signal.SIGTERM)
        said, log = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said + log


def _environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("BEDROCKJOBS_")}
    return {**ours, "PYTHONPATH": str(ROOT)}


@contextmanager
def service(folder: Path, *arguments: str, host: str = "127.0.0.1") -> Iterator[Service]:
    """Start a server with a socket, a notification socket, and a watchdog."""
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(folder / "notify"))
    manager.settimeout(DEADLINE_S)
    listener = socket.create_server((host, 0))
    script = f'export LISTEN_PID=$$; exec "$@" 3<&{listener.fileno()}'
    command = [
        sys.executable,
        "-m",
        "bedrockjobs",
        "serve",
        "--database",
        str(folder / "jobs.db"),
        *("--wal-bytes", "0", "--ballast-bytes", "0"),
        *arguments,
    ]
    environment = _environment() | {
        "LISTEN_FDS": "1",
        "NOTIFY_SOCKET": str(folder / "notify"),
        "WATCHDOG_USEC": "600000",
    }
    process = subprocess.Popen(
        ["bash", "-c", script, "-", *command],
        env=environment,
        pass_fds=[listener.fileno()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with manager, listener:
        try:
            yield Service(process, manager, listener.getsockname()[1])
        finally:
            process.kill()
            process.communicate()


def test_a_server_under_systemd_says_how_it_is_and_listens_where_it_is_told(tmp_path: Path) -> None:
    with service(tmp_path, "--log-format", "json") as server:
        ready = server.told(b"READY=1")
        assert ready == f"READY=1\nSTATUS=listening on 127.0.0.1:{server.port}".encode()
        with Client(f"127.0.0.1:{server.port}") as client:
            client.call(Ping())
        server.told(b"WATCHDOG=1")
        status, log = server.stop()
        server.told(b"STOPPING=1")
    assert status == 0
    listens, stopping = map(json.loads, log.splitlines())
    assert listens["event"].startswith(f"bedrockjobs {VERSION} listens on 127.0.0.1:{server.port}, database ")
    assert (listens["level"], listens["source"]) == (stopping["level"], stopping["source"])
    assert stopping["event"] == "stopping"
    assert tuple(listens) == logs.KEYS


def test_a_server_that_cannot_start_says_so_in_the_form_of_its_log(tmp_path: Path) -> None:
    server = live_server.start(tmp_path / "jobs.db")
    port = server.address.rpartition(":")[2]
    try:
        refused: list[tuple[list[str], dict[str, str], int, str]] = [
            ([], {}, 69, f"is owned by the server with pid {server.pid}"),
            (["--host", "0.0.0.0"], {}, 2, "0.0.0.0 can be reached from other machines"),
            ([], {"BEDROCKJOBS_HEAD_S": "soon"}, 2, "BEDROCKJOBS_HEAD_S: expected a duration"),
            (["--unix", str(tmp_path / "no" / "x.sock")], {}, 1, "cannot listen: "),
            ([f"--port={port}"], {}, 1, f"127.0.0.1, port {port}: another program listens there"),
            (["--database", str(tmp_path)], {}, 2, f"{tmp_path} is a folder: expected a file in it"),
            (["--unix-role", "king"], {}, 2, "--unix-role: expected a comma list of the roles read"),
        ]
        for form, (arguments, environment, status, words) in [
            *(("json", each) for each in refused),
            *(("text", each) for each in refused[:2]),
        ]:
            database = tmp_path / ("jobs.db" if status == 69 else "other.db")
            command = [warm.program("bedrockjobs"), "serve", "--port=0", f"--database={database}"]
            done = subprocess.run(
                [*command, "--log-format", form, *arguments],
                env={**_environment(), **environment},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            assert (done.returncode, done.stdout) == (status, "")
            if form == "text":
                assert words in done.stderr
                continue
            events = [json.loads(line) for line in done.stderr.splitlines()]
            assert [event["level"] for event in events] == ["critical"]
            assert words in events[0]["event"]
    finally:
        live_server.stop(server.process)


def test_a_socket_that_others_can_reach_needs_the_word(tmp_path: Path) -> None:
    with service(tmp_path, host="0.0.0.0") as server:
        _, log = server.process.communicate(timeout=DEADLINE_S)
        assert server.process.returncode == 2
    assert "0.0.0.0 can be reached from other machines" in log


async def test_what_a_server_did_is_in_its_metrics(live: Live) -> None:
    for name in ("mail/a", "mail/b"):
        await live.http("CreateJob", {"name": name})
    job = (await live.http("GetJob", {"name": "mail/a", "worker": "w"})).json
    await live.http("FinishJob", {"jobID": job["jobID"], "runID": job["runID"]})
    async with await live.connect() as talk:
        talk.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = await talk.reply()
    assert reply.code == 200
    found = {}
    for family in text_string_to_metric_families(reply.body):
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    assert found["bedrockjobs_jobs_done_total", "created"] == 2
    assert found["bedrockjobs_jobs_done_total", "finished"] == 1
    assert found["bedrockjobs_runs_started_total", "queue"] == 1
    assert found["bedrockjobs_runs_ended_total", "success"] == 1
    assert found["bedrockjobs_run_wait_seconds_count",] == 1
    assert found["bedrockjobs_commit_seconds_count",] >= 4
    assert found["bedrockjobs_commit_commands_sum",] >= 4
    assert found["bedrockjobs_jobs", "mail", "ready"] == 1
    assert found["bedrockjobs_workers", "active"] == 1
    assert found["bedrockjobs_connections",] >= 1


@pytest.mark.parametrize(("schedule", "code"), [("", 200), ("?schedule=nightly", 200), ("?schedule=x", 404)])
async def test_health_over_the_wire(live: Live, schedule: str, code: int) -> None:
    await live.http("CreateJob", {"name": "nightly", "repeat": "CRON 0 3 * * *"})
    async with await live.connect() as talk:
        talk.send(f"GET /healthz{schedule} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await talk.reply()).code == code
