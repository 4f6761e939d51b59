"""The benchmark against other queues: its client against fakes, its servers, and its evaluation of figures.

Nothing here is timed: the runs are too short for that.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.effort import crossed, examples

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHORT = ("--seconds", "0.05")


@pytest.fixture
def load_modules() -> Iterator[Any]:
    """Return a function that imports benchmark modules, which import each other by their bare names."""
    sys.path.insert(0, str(BENCHMARKS))  # before the folders of tests, where there is a `load` as well
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


class FakeQueue:
    """A server of another queue, in memory."""

    def __init__(self, *, losing: bool = False, leaving: bool = False) -> None:
        """With ``losing``, finished jobs are unknown; with ``leaving``, the connection ends after a take."""
        self.queued: deque[tuple[bytes, bytes]] = deque()
        self.taken: set[bytes] = set()
        self.waiting: list[FakeConnection] = []
        self.finished = 0
        self.created = 0
        self.leaving = leaving
        self._losing = losing

    def create(self, job: bytes, data: bytes) -> None:
        """Queue a job."""
        self.created += 1
        self.queued.append((job, data))
        self.serve()

    def finish(self, job: bytes) -> bool:
        """End a job that was taken."""
        if self._losing:
            return False
        self.taken.remove(job)
        self.finished += 1
        return True

    def serve(self) -> None:
        """Hand jobs to waiting clients."""
        while self.queued and self.waiting:
            job, data = self.queued.popleft()
            self.taken.add(job)
            self.waiting.pop(0).give(job, data)


class FakeConnection(asyncio.Protocol):
    """One client of a fake; its requests come whole."""

    def __init__(self, queue: FakeQueue) -> None:
        self.queue = queue
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.queue.waiting:
            self.queue.waiting.remove(self)

    def data_received(self, data: bytes) -> None:
        lines = deque(data.split(b"\r\n")[:-1])
        while lines:
            if self.queue.leaving and self.queue.taken:
                self.transport.close()
            self.request(lines)

    def wait(self) -> None:
        """Wait for a job."""
        self.queue.waiting.append(self)
        self.queue.serve()

    def request(self, lines: deque[bytes]) -> None:
        """Execute the request that begins with the first line, and consume its lines."""
        raise NotImplementedError

    def give(self, job: bytes, data: bytes) -> None:
        """Reply with a job."""
        raise NotImplementedError


class FakeRedis(FakeConnection):
    def request(self, lines: deque[bytes]) -> None:
        count = int(lines.popleft()[1:])
        match [(lines.popleft(), lines.popleft())[1] for _ in range(count)]:
            case [b"LPUSH", b"queue", job]:
                self.transport.write(b":1\r\n")
                self.queue.create(job, job)
            case [b"BLMOVE", b"queue", _, b"RIGHT", b"LEFT", b"0"]:
                self.wait()
            case [b"LREM", _, b"1", job]:
                self.transport.write(b":%d\r\n" % self.queue.finish(job))

    def give(self, job: bytes, data: bytes) -> None:
        self.transport.write(b"$%d\r\n%b\r\n" % (len(data), data))


class FakeBeanstalkd(FakeConnection):
    def request(self, lines: deque[bytes]) -> None:
        match lines.popleft().split():
            case [b"put", b"0", b"0", b"60", size]:
                data = lines.popleft()
                assert len(data) == int(size)
                job = b"%d" % (self.queue.created + 1)
                self.transport.write(b"INSERTED %b\r\n" % job)
                self.queue.create(job, data)
            case [b"reserve"]:
                self.wait()
            case [b"delete", job]:
                self.transport.write(b"DELETED\r\n" if self.queue.finish(job) else b"NOT_FOUND\r\n")

    def give(self, job: bytes, data: bytes) -> None:
        self.transport.write(b"RESERVED %b %d\r\n%b\r\n" % (job, len(data), data))


FAKES: dict[str, type[FakeConnection]] = {"redis": FakeRedis, "beanstalkd": FakeBeanstalkd}


async def load(queue: FakeQueue, peer: str, *options: str) -> tuple[int, str, str]:
    """Run the benchmark's load on a fake briefly; return the exit status and the output."""
    server = await asyncio.get_running_loop().create_server(partial(FAKES[peer], queue), "127.0.0.1", 0)
    async with server:
        port = str(server.sockets[0].getsockname()[1])
        command = [str(BENCHMARKS / "peer_load.py"), peer, "--port", port, "--pid", str(os.getpid())]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *SHORT, "--warm", "0.02", *options, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize(("peer", "options"), crossed(FAKES, [(), ("--together",)]))
async def test_every_job_is_created_taken_and_finished(peer: str, options: tuple[str, ...]) -> None:
    queue = FakeQueue()
    status, output, errors = await load(queue, peer, *options)
    assert status == 0, errors
    found = json.loads(output)
    assert list(found["phases"]) == ["enqueue", "drain", "1x1", "4x4", "16x16"]
    assert all(rate > 0 and cpu > 0 for rate, cpu, _ in found["phases"].values())
    assert found["p50_ms"] > 0
    assert found["failed"] == 0
    assert not queue.queued
    assert not queue.taken
    assert queue.created == queue.finished == found["jobs"] > 100


@pytest.mark.parametrize("peer", FAKES)
async def test_a_refused_finish_is_no_figure(peer: str) -> None:
    status, output, errors = await load(FakeQueue(losing=True), peer)
    assert status == 1
    assert not output
    assert {"redis": ":0", "beanstalkd": "NOT_FOUND"}[peer] in errors


async def test_a_server_that_goes_away_is_noticed() -> None:
    status, output, errors = await load(FakeQueue(leaving=True), "redis")
    assert status == 1
    assert not output
    assert "the server closed a connection" in errors


def test_answers_in_pieces_are_awaited(load_modules: Any) -> None:
    wires = load_modules("peer_wire").WIRES
    answers = {
        "redis": b'$8\r\n{"id":1}\r\n',
        "beanstalkd": b'RESERVED 7 8\r\n{"id":1}\r\n',
        "raw": b'200 OK\r\nContent-Length: 11\r\n\r\n{"jobID":7}',
        "http": b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"jobID":7}',
    }
    for name, answer in answers.items():
        for end in range(len(answer)):
            assert wires[name].parse(b"x" + answer[:end], 1) is None, (name, end)
        end, found = wires[name].parse(b"x" + answer + b"more", 1)
        assert (end, found.ok) == (len(answer) + 1, True), name
        assert found.job == (b'{"id":1}' if name == "redis" else b"7"), name


OURS = {"raw-then": "| ours, raw: `thenGet`", "http": "| ours, HTTP: one request a step"}
"""Rows of ours, and how they begin in the table."""


def test_ours_is_measured_and_a_part_of_the_table_is_not_written() -> None:
    rows = [*OURS][: examples(1, night=2)]
    page = (BENCHMARKS / "results.md").read_text()
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "peers.py", *SHORT, "--rounds", "1", "--rows", *rows],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ours, ")]
    assert [line.split(" (")[0] for line in lines] == [OURS[row] for row in rows]
    assert (BENCHMARKS / "results.md").read_text() == page


def test_each_of_ours_is_compared_with_the_best_peer_of_the_column(load_modules: Any) -> None:
    peers = load_modules("peers")
    result = peers.Result
    results = {
        "redis": result((1000.0, 500.0, 100.0, 100.0, 100.0), 0.5, (1.0,) * 5, 0.2),
        "beanstalkd": result((500.0, 1000.0, 100.0, 100.0, 100.0), 0.4, (1.0,) * 5, 0.2),
        "raw-then": result((990.0, 1300.0, 80.0, 79.0, 90.0), 0.52, (1.0,) * 5, 0.2),
    }
    comparison = peers.Comparison("", "raw-then", ("redis", "beanstalkd", "pgqueuer"), peers.TOP)
    assert peers.compare(comparison, results) == [
        "0.99 (redis), **missed** (≥ 1)",
        "1.30 (beanstalkd), reached (≥ 1.3)",
        "0.80 (redis), reached (≥ 0.8)",
        "0.79 (redis), **missed** (≥ 1)",
        "0.90 (redis), reached (≥ 0.9)",
        "1.30 (beanstalkd), reached (≤ 1.3)",
    ]
    text = peers.section(results, {"redis": "1", "beanstalkd": "2", "full": "3"}, ["pgqueuer: not there"])
    assert "**Left out:** pgqueuer: not there." in text
    assert "HTTP" not in text.partition("### Ours")[2]


def test_what_is_not_installed_says_how_to_install_it(
    load_modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = load_modules("peer_servers")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(servers.Missing, match="apt install redis-server"):
        servers.RedisServer(tmp_path)


@pytest.mark.parametrize("command", ["false", "no-such-program"])
def test_a_server_that_does_not_start_leaves_nothing(
    load_modules: Any, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = load_modules("peer_servers").Server(tmp_path)
    monkeypatch.setattr(server, "command", lambda: [command])
    with pytest.raises((RuntimeError, FileNotFoundError)), server:
        pass
    assert not list(tmp_path.iterdir())


def test_processor_time_is_that_of_the_children_too(load_modules: Any) -> None:
    machine = load_modules("machine")
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    shell = ["/bin/sh", "-c", '"$0" -c "$1"; exit', sys.executable, burn]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pids = machine.family(process.pid)
        assert len(pids) == 2
        assert machine.cpu_s(pids) >= 0.2
        assert machine.cpu_s([process.pid]) < 0.1
        process.communicate(b"\n")
