"""What a server remembers of its clients is bounded, however many strangers come with ever new words."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MethodType, ModuleType

import pytest

from bedrockjobs.base.config import (
    GLOB_CHARS_MAX,
    NAMES_KEPT_MAX,
    PATTERNS_MAX,
    WORKER_CHARS_MAX,
    WORKERS_BYTES_MAX,
)
from bedrockjobs.engine import workers
from tests.conftest import Serve
from tests.effort import PROFILE, examples
from tests.engines import sqlite_only
from tests.protocol.spent import LOOP_S_MAX, Spender, watched
from tests.protocol.talk import Talk, post, request

pytestmark = [pytest.mark.asyncio(loop_factories=["uvloop"]), pytest.mark.timeout(600)]

AT_NIGHT = PROFILE == "random"
WORKERS = 2_000 if AT_NIGHT else 120
"""Workers that come and go: with their patterns, three times what the registry may hold."""
BUDGET = WORKERS_BYTES_MAX if AT_NIGHT else 3_000_000
TOGETHER = 20
"""Connections at once."""
GROWTH_MAX = 256 * 1024 * 1024 if AT_NIGHT else 64 * 1024 * 1024
LOOK_S_MAX = 5.0 if AT_NIGHT else LOOP_S_MAX
"""Processor time of a list or page of all workers that are left; it is made in turns."""
FILE_MAX = 64 * 1024 * 1024
"""What the database with its log may take in the end; the log alone begins with 20 MiB."""


def long_ask(number: int) -> bytes:
    """Return a GetJobs of a new worker with the longest name, which waits for the longest patterns."""
    worker = f"{number:06}".ljust(WORKER_CHARS_MAX, "w")
    names = [f"{number:06}/{each:03}/".ljust(GLOB_CHARS_MAX - 1, "n") + "*" for each in range(PATTERNS_MAX)]
    return request("GetJobs", names=names, numResults=1, worker=worker, connection="wait", timeout=600_000)


async def flood(server: Spender) -> float:
    """Let workers come and go; return the longest time that a new client computed at the server's loop."""
    longest_s = 0.0
    for first in range(0, WORKERS, TOGETHER):
        async with AsyncExitStack() as stack:
            for number in range(first, first + TOGETHER):
                talk = await stack.enter_async_context(await Talk.open(server.port))
                talk.send(long_ask(number))
            await server.settled()
            _, spent_s = await server.ask(request("Ping"))
            longest_s = max(longest_s, spent_s)
    await server.settled()
    return longest_s


@asynccontextmanager
async def served(
    serve: Serve, tmp_path: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Spender, Path]]:
    """Return a server: by day in this process with a smaller registry, at night one as users have it."""
    if AT_NIGHT:
        with watched(tmp_path / "jobs.db") as server:
            yield server, tmp_path / "jobs.db"
        return
    patch.setattr(workers, "WORKERS_BYTES_MAX", BUDGET)
    live = await serve()
    yield Spender(os.getpid(), live.port), Path(live.server.settings.database)
    registry = live.server.service.presence
    assert 0 < len(registry.workers) < WORKERS / 2, "most are forgotten"
    assert registry._size <= BUDGET


@sqlite_only("about the size of the file")
async def test_a_flood_of_invented_workers_leaves_room_and_time_for_others(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(serve, tmp_path, monkeypatch) as (server, database):
        before = server.memory_bytes()
        assert await flood(server) < LOOP_S_MAX
        grew = server.memory_bytes() - before
        size = sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))
        for look in (post("ListWorkers", {}), b"GET /ui/workers HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            reply, spent_s = await server.least(server.ask, look)
            print(f"{look[:20]!r}: {spent_s * 1000:.0f} ms, {len(reply.body):,} characters")
            assert reply.code == 200
            assert spent_s < LOOK_S_MAX
        print(f"{WORKERS} workers: memory grew by {grew / 1e6:.0f} MB, the files have {size / 1e6:.0f} MB")
        assert grew < GROWTH_MAX
        assert size < FILE_MAX


STRANGERS = examples(125, night=150)
"""Each says every word for the first time."""

MOST = 40
"""The bound of each registry here."""

BOUNDS = (
    "store.ready_queue.NAMES_CACHED_MAX",
    "store.records.COUNTED_MAX",
    "store.postgresql.heads.FLOORS_KEPT_MAX",
    "engine.workers.WORKERS_MAX",
    "observe.stats.STATS_COUNTED_MAX",
    "protocol.raw.REQUESTS_CACHED_MAX",
)
"""Bounds of registries that strangers fill, beside the settings and those of ``lru_cache``."""


async def come_and_go(server: Spender) -> None:
    """Let strangers say new words in every place where a server might remember one, and leave nothing."""
    async with await Talk.open(server.port) as talk:
        for number in range(STRANGERS):
            word, worker = f"x{number}", f"w{number}"
            job = {
                "name": f"{word}/a",
                "uniqueKey": word,
                "idempotencyKey": word,
                "tags": f'["{word}"]',
                "lock" if number % 2 else "concurrencyKey": f"{word}/{number % 2}",
                "runTimeout": number + 1,
                "repeat": f"CRON {number % 60} {number // 60} * * *",
                "worker": worker,
            }
            made = await talk.ask("CreateJob", **job)
            assert made.code == 200, made
            job_id = made.json["jobID"]
            assert (await talk.ask("CreateJob", name=f"{word}/c")).code == 200
            taken = await talk.ask("GetJob", name=f"{word}/c", worker=worker, heartbeat="true")
            done = {"jobID": taken.json["jobID"], "runID": taken.json["runID"], "data": f'{{"{word}":1}}'}
            assert (await talk.ask("FinishJob", **done)).code == 200
            for verb, asked in {
                "GetJob": {"name": f"{word}/b", "worker": worker, "host": f"h{number}"},
                "GetJobs": {"names": f'["{word}*b", "?{word}?"]', "numResults": 1, "worker": worker},
                "Heartbeat": {"worker": worker, "names": f'["{word}"]', "version": word},
                "ExplainJob": {"jobID": job_id},
                "ListJobs": {"name": f"{word}*"},
                "ListTicks": {"jobID": job_id},
                "PauseJobs": {"name": f"{word}*"},
                "ResumeJobs": {"name": f"{word}*"},
                "Query": {"query": f"SELECT {number};"} if number < 3 else {},
                "DeleteJob": {"jobID": job_id},
                f"Unknown{number}": {"x": word},
            }.items():
                if asked:
                    reply = await talk.ask(verb, **asked)
                    assert reply.code < 500, reply
            wrong = await talk.ask("Ping", Authorization=f"Bearer {word}")
            assert wrong.code in (200, 401, 429), wrong


def unbounded_caches() -> dict[str, int]:
    """Return the sizes of the caches of functions without a maximum, such as one of each command."""
    return {
        f"{module}.{name}": value.cache_info().currsize
        for module, its in [*sys.modules.items()]
        if module.startswith("bedrockjobs")
        for name, value in vars(its).items()
        if hasattr(value, "cache_info") and value.cache_info().maxsize is None
    }


def grown(root: object, least: int) -> dict[str, int]:
    """Return the containers in the product's objects with at least so many items, by class and attribute."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    modules = [module for name, module in sys.modules.items() if name.startswith("bedrockjobs")]
    todo: list[tuple[str, object]] = [("", root)]
    for module in modules:
        short = module.__name__.removeprefix("bedrockjobs.")
        todo += [(f"{short}.{name}", value) for name, value in vars(module).items() if not callable(value)]
    while todo:
        name, thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType):
            continue
        seen.add(id(thing))
        if isinstance(thing, Mapping | list | tuple | set | frozenset | deque):
            if len(thing) >= least:
                found[name] = max(found.get(name, 0), len(thing))
            inner = thing.values() if isinstance(thing, Mapping) else thing
            todo += [(f"{name}[]", value) for value in list(inner)]
        elif type(thing).__module__.startswith("bedrockjobs"):
            kind = type(thing).__name__
            named = dict(getattr(thing, "__dict__", {}))
            for parent in type(thing).__mro__:
                slots = getattr(parent, "__slots__", ())
                named |= {slot: getattr(thing, slot) for slot in slots if hasattr(thing, slot)}
            todo += [(f"{kind}.{attribute}", value) for attribute, value in named.items()]
        elif isinstance(thing, MethodType):
            todo.append((name, thing.__self__))
    return found


async def test_what_is_remembered_of_each_stranger_has_a_bound(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in BOUNDS:
        monkeypatch.setattr(f"bedrockjobs.{bound}", MOST)
    # A server that stood still for so long on a busy machine would forget its workers, with room for them.
    monkeypatch.setattr("bedrockjobs.store.postgresql.peers.SERVER_GONE_S", 600)
    live = await serve(patterns_cached_max=MOST)
    before, sizes = grown(live.server, MOST), unbounded_caches()
    await come_and_go(Spender(os.getpid(), live.port))
    found = {name: size for name, size in grown(live.server, MOST).items() if size > before.get(name, 0)}
    for name, size in unbounded_caches().items():
        assert size < sizes.get(name, 0) + MOST, f"{name} has no bound"
    print(found)
    kept = found.pop("job.take_request._in_use", 0) - before.get("job.take_request._in_use", 0)
    assert kept <= 2 * NAMES_KEPT_MAX + 2 * MOST, "they are in use by one of the caches"
    assert {name for name, size in found.items() if size - before.get(name, 0) >= STRANGERS} == set()
    full = {"RequestCache._whole", "Share.served", "RequestedNames._names_of"}
    if not live.server.settings.on_postgresql:
        full |= {"NextJobs._lines", "PatternIndex._patterns"}
    assert full <= found.keys(), "they are found and full"
