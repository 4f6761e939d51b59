"""A stall of the event loop is reported in the log and in the metrics, with its cause."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from bedrockjobs.base.config import LOOP_STALL_S
from bedrockjobs.commands import Command, CreateJob, ListQueues, Ping
from bedrockjobs.engine.handlers import control
from bedrockjobs.engine.handlers.context import HANDLERS
from bedrockjobs.observe import stats
from bedrockjobs.observe.stats import Measurements
from bedrockjobs.pages.site import Site
from bedrockjobs.protocol.raw import RawParser
from tests.conftest import Live, Serve
from tests.protocol.talk import DEADLINE_S

STOP_S = 3 * LOOP_STALL_S


def compute() -> None:
    """Compute for as long as counts as a stop, whatever else the machine does."""
    until = time.thread_time() + STOP_S
    while time.thread_time() < until:
        pass


def wait() -> None:
    """Keep the loop, and compute nothing: as where the machine is busy."""
    time.sleep(STOP_S)


def before(act: Callable[[], None], done: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``done`` with something before it."""

    def both(*given: Any, **named: Any) -> Any:
        act()
        return done(*given, **named)

    return both


async def page(live: Live, path: str) -> str:
    """Return what is at a path."""
    talk = await live.connect()
    talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return (await talk.ended()).decode()


async def metrics(live: Live) -> str:
    """Return what a scrape finds."""
    return await page(live, "/metrics")


async def told(live: Live, act: str) -> float:
    """Wait until the metrics tell of a stop in ``act``; return its seconds."""
    async with asyncio.timeout(DEADLINE_S):
        while not (
            found := re.search(rf'loop_stall_longest_seconds{{act="{act}"}} (\S+)', await metrics(live))
        ):
            await asyncio.sleep(0)
    return float(found[1])


async def late(live: Live) -> int:
    """Return how often the loop was late, as the metrics have it."""
    found = await metrics(live)
    within = re.search(rf'loop_stall_seconds_bucket{{le="{LOOP_STALL_S}"}} (\S+)', found)
    of_all = re.search(r"loop_stall_seconds_count (\S+)", found)
    assert within is not None
    assert of_all is not None
    return int(float(of_all[1]) - float(within[1]))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log warns of."""
    found = [one for one in caplog.records if one.name == stats.__name__]
    return [one.getMessage() for one in found if one.levelno == logging.WARNING]


async def test_a_loop_at_rest_is_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_s, waited = 0.0, list[float]()

    def look(seconds: float) -> bool:
        nonlocal cpu_s
        waited.append(seconds)
        if len(waited) == stats.RESTS + 3:  # it begins to work
            cpu_s = stats.AT_WORK_S
        return len(waited) > stats.RESTS + 5

    watch = stats.LoopWatch(Measurements())
    watch._loop = asyncio.get_running_loop()
    monkeypatch.setattr(watch._stopped, "wait", look)
    monkeypatch.setattr(watch, "_cpu", lambda: cpu_s, raising=False)
    watch._check()
    quick, slow = [stats.SAMPLE_S], [stats.SAMPLE_IDLE_S]
    assert waited == quick * stats.RESTS + slow * 3 + quick * 3


@pytest.mark.parametrize(
    ("kind", "given"),
    [(CreateJob, {"name": "a"}), (Ping, {}), (ListQueues, {})],
    ids=lambda given: getattr(given, "__name__", ""),
)
async def test_a_command_that_keeps_the_loop_is_named(
    live: Live, kind: type[Command[Any]], given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    name = kind.__name__
    assert (await live.ask(name, **given)).code == 200, "what takes no time is not told"
    assert f'act="{name}"' not in await metrics(live)
    monkeypatch.setitem(HANDLERS, kind, before(compute, HANDLERS[kind]))
    assert (await live.http(name, given)).code == 200
    assert await told(live, name) >= LOOP_STALL_S
    assert await late(live) >= 1
    (line,) = warnings(caplog)
    words = rf"the event loop was blocked for \d+\.\d+ s, computing 0\.\d+ s, in {name} at \S+"
    assert re.fullmatch(words, line)


async def test_a_command_that_is_kept_waiting_is_not_blamed(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setitem(HANDLERS, CreateJob, before(wait, HANDLERS[CreateJob]))
    assert (await live.ask("CreateJob", name="a")).code == 200
    async with asyncio.timeout(DEADLINE_S):
        while not await late(live):
            await asyncio.sleep(0)
    assert 'act="CreateJob"' not in await metrics(live)
    assert not warnings(caplog)
    assert "the event loop was delayed by 0." in caplog.text


async def test_what_time_asks_for_is_named_too(
    serve: Serve, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await serve(clock)
    assert (await live.ask("PauseJobs", name="a", until="2026-11-21 03:30:00")).code == 200
    monkeypatch.setattr(control, "resume", before(compute, control.resume))
    live.advance(10)
    assert await told(live, "maintenance") >= LOOP_STALL_S


async def test_what_is_no_command_is_named_by_its_part(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RawParser, "next_request", before(compute, RawParser.next_request))
    assert (await live.ask("Ping")).code == 200
    assert await told(live, "request") >= LOOP_STALL_S
    monkeypatch.undo()
    monkeypatch.setattr(Site, "show", before(compute, Site.show))
    assert "200 OK" in await page(live, "/ui/")
    assert await told(live, "page") >= LOOP_STALL_S


async def test_many_stops_are_one_line(
    live: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(HANDLERS, Ping, before(compute, HANDLERS[Ping]))
    for _ in range(3):
        assert (await live.ask("Ping")).code == 200
        await told(live, "Ping")
    assert await late(live) >= 3
    assert len(warnings(caplog)) == 1
