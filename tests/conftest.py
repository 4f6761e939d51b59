"""Fixtures for all tests: a live server in the test's own event loop, and connections to it."""

from __future__ import annotations

import asyncio
import builtins
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings

from bedrockjobs.base.clock import Clock, ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import COLLECT_AFTER, Server
from bedrockjobs.store import reader
from tests import engines, late_queries, leaks
from tests.effort import LONG, PROFILE, dealt
from tests.postgresql.cluster import CLUSTER
from tests.protocol.talk import DEADLINE_S, Reply, Talk, post, request
from tests.run import SLASH

# The same examples in each run: a change is judged by what it changed. A nightly run looks for others.
hypothesis_settings.register_profile("same", derandomize=True, deadline=None, max_examples=40)
hypothesis_settings.register_profile("random", derandomize=False, deadline=None)
hypothesis_settings.register_profile("fast", derandomize=True, deadline=None, max_examples=10)
hypothesis_settings.load_profile(PROFILE)

# Tests may run as root, and so may the workers they start, which refuse it unless told.
os.environ.setdefault("BEDROCKJOBS_WORKER_AS_ROOT", "1")

# A process takes more to start than a server, and hardly a test has two Queries at once, most have none.
reader.QUERY_PROCESSES = 1
late_queries.begin()

_modules = pytest.StashKey[dict[Path, Any]]()

gc.disable()  # while tests are collected: all that is made then stays

START = datetime(2026, 11, 21, 3, 29, 56, 332_000, UTC)
"""Where a ManualClock of these tests stands at first: the moment of the recording."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the engine be chosen that tests of servers run on."""
    words = "what tests of servers run on; without it on files, and some of them on PostgreSQL too"
    parser.addoption("--engine", choices=["sqlite", "postgresql"], default="sqlite", help=words)
    words = "share the test files that this folder names with other processes; see tests/run.py"
    parser.addoption("--dealt", metavar="FOLDER", type=Path, help=words)


def pytest_collection(session: pytest.Session) -> bool | None:
    """Find the files that are shared, without a look into them: in each process that takes half a minute."""
    folder = session.config.getoption("--dealt")
    if folder is None:
        return None
    files = [place.name.replace(SLASH, "/") for place in folder.iterdir()]
    found = session.perform_collect(files, genitems=False)
    session.config.stash[_modules] = {module.path: module for module in found}
    return True


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Take one of the files that are shared after the other, and run its tests.

    Only fixtures of the session stay from file to file.
    """
    config, collected = session.config, 0
    modules = config.stash.get(_modules, None)
    if modules is None:
        return None
    for file in dealt(config.getoption("--dealt")):
        items = list(session.genitems(modules[config.rootpath / file]))
        config.hook.pytest_collection_modifyitems(session=session, config=config, items=items)
        pytest_collection_finish()
        collected += len(items)
        for item, following in pairwise([*items, session]):  # none if a file cannot be imported
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                raise session.Interrupted(session.shouldfail or session.shouldstop)
    session.testscollected = collected
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of servers on the engines that it is for."""
    engines.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the chosen engine is not for; put the longest files first, the others in their order."""
    engines.select(config, items)
    places = {file: place for place, file in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_collection_finish() -> None:
    """Let collections of garbage pass over what was imported and collected: a million objects, which stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()


class Live:
    """A server that listens, with what a test needs to talk to it."""

    def __init__(self, server: Server, stack: AsyncExitStack, *, keeps: bool = False) -> None:
        """Hold a started server; connections made here are closed with ``stack``.

        With ``keeps``, those of single requests stay open for the next: to connect costs twice as much.
        """
        self.server = server
        self.keeps = keeps
        self.clock: Any = server.clock
        self._stack = stack
        self._idle: dict[tuple[str, int], list[Talk]] = {}

    @property
    def port(self) -> int:
        """Return the port of both protocols."""
        return self.server.port

    async def connect(self, host: str = "127.0.0.1", source: str | None = None) -> Talk:
        """Return a new connection, from another address of this machine if ``source`` is given."""
        return await self._stack.enter_async_context(await Talk.open(self.port, host, source))

    def client_socket(self) -> socket.socket:
        """Return a new socket for a client that is not polite; it is closed at the end, whatever happens."""
        made = socket.socket()
        self._stack.callback(made.close)
        return made

    async def ask(self, verb: str, **parameters: Any) -> Reply:
        """Send one raw request that leaves nothing behind on its connection."""
        return await self.answered("raw", request(verb, **parameters))

    async def http(self, command: str, body: Any = None, **headers: str) -> Reply:
        """Send one HTTP request."""
        return await self.answered("http", post(command, body, headers))

    async def answered(self, protocol: str, asked: bytes) -> Reply:
        """Send one request over a connection that no other request uses meanwhile; return the answer."""
        if not self.keeps:
            async with await Talk.open(self.port) as talk:
                talk.send(asked)
                return await talk.reply()
        idle = self._idle.setdefault((protocol, self.port), [])
        while idle and idle[-1].reader.at_eof():
            await idle.pop().close()
        talk = idle.pop() if idle else await self.connect()
        try:
            talk.send(asked)
            reply = await talk.reply()
        except BaseException:
            talk.reset()
            raise
        told = reply.headers
        if "content-length" not in told or told.get("connection", "").lower() == "close":
            await talk.close()  # also where the body comes in chunks, which are not read
        else:
            idle.append(talk)
        return reply

    async def settle(self) -> None:
        """Wait until the writer has done all that was sent to it before."""
        assert (await self.ask("ListLimits")).code == 200

    async def row(self, job_id: int) -> dict[str, Any]:
        """Return a job's whole row, as the table has it."""
        await self.settle()
        reply = await self.ask("Query", query=f"SELECT * FROM jobs WHERE jobID = {job_id};", format="json")
        assert reply.code == 200, reply
        found = reply.json
        assert len(found["rows"]) == 1, f"there is no job {job_id}"
        return dict(zip(found["headers"], found["rows"][0], strict=True))

    async def waiting(self, count: int) -> None:
        """Wait until so many GetJobs wait."""
        await self.until(lambda: self.server.dispatcher.waiting == count)

    async def connections(self, count: int) -> None:
        """Wait until the server has so many connections."""
        await self.until(lambda: self.server.service.connections == count)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the event loop turn until a condition holds."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.001)

    def advance(self, seconds: float) -> None:
        """Move a ManualClock and let the writer look at it."""
        self.clock.advance(seconds)
        self.server.dispatcher.poke()


async def begin(server: Server) -> None:
    """Start a server, and wait for its own first commit: that it started is an event like any other."""
    await server.start()
    await server.dispatcher.settle()


@pytest.fixture(scope="session", autouse=True)
def no_cluster_is_left() -> Iterator[None]:
    """Stop the PostgreSQL that tests of this process have started."""
    yield
    CLUSTER.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which tests fail: what they leave open is not asked for."""
    report = yield
    leaks.note(item, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let go of what a failed test has left open, so that no later test fails by it."""
    done = yield
    if leaks.has_failed(item):
        leaks.let_go()
    return done


@pytest.fixture(autouse=True)
def connections_are_closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a connection to PostgreSQL open."""
    before = leaks.connections()
    yield
    left = {each: where for each, where in leaks.connections().items() if each not in before}
    for connection in left:
        leaks.close(connection)
    assert not left or leaks.has_failed(request.node), "left open, made at:\n" + "\n".join(left.values())


@pytest.fixture(scope="module", autouse=True)
def process_stays_as_it_was() -> Iterator[None]:
    """Fail a module that leaves the process changed to the tests after it."""
    before = _process()
    yield
    changed = sorted({name for name, _ in before ^ _process()} - {"PYTEST_CURRENT_TEST"})
    assert not changed, f"use monkeypatch, or its context in a fixture of a module, to change {changed}"


def _process() -> set[tuple[str, object]]:
    """Return what tests may change by mistake, as a module does that a worker imports into this process."""
    return {
        *os.environ.items(),
        ("the folder", str(Path.cwd())),
        ("tempfile.tempdir", tempfile.gettempdir()),
        ("sys.setrecursionlimit", sys.getrecursionlimit()),
        ("sys.excepthook", sys.excepthook),
        ("gc.enable", gc.isenabled()),
        ("logging.root", logging.root.level),
        *(
            (f"{module.__name__}.{name}", value)
            for module in (builtins, os, signal, socket, subprocess, tempfile, threading, time)
            for name, value in vars(module).items()
            if callable(value)
        ),
    }


@pytest.fixture
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> engines.Databases:
    """Return where the servers of a test keep their jobs, on the engine that it runs on."""
    return engines.databases_of(getattr(request, "param", "sqlite"), tmp_path)


Serve = Callable[..., Awaitable[Live]]


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock(START)


@pytest.fixture
def keeps_connections() -> bool:
    """Whether servers of a test keep connections (``Live``): not where connections are the subject."""
    return False


@pytest.fixture
async def serve(databases: engines.Databases, keeps_connections: bool) -> AsyncIterator[Serve]:
    """Return a function that starts a server; settings are its named arguments."""
    async with AsyncExitStack() as stack:

        async def start(clock: Clock | None = None, *, database: str = "", **settings: Any) -> Live:
            server = Server(Settings(port=0, **{**databases.settings(database), **settings}), clock)
            await begin(server)
            stack.push_async_callback(server.stop)
            return Live(server, stack, keeps=keeps_connections)

        yield start


@pytest.fixture
async def live(serve: Serve) -> Live:
    """Return a server with the machine's clock."""
    return await serve()


@pytest.fixture
async def still(serve: Serve, clock: ManualClock) -> Live:
    """Return a server whose clock stands still until the test moves it."""
    return await serve(clock)
