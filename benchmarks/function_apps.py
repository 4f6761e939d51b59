"""The same two functions for each queue of ``functions.py``, declared as its documentation recommends.

A worker of the queue imports this module in the interpreter in which that queue is installed. The variables
``FUNCTIONS_QUEUE``, ``FUNCTIONS_PORT`` and ``FUNCTIONS_PIPE`` name the queue, its server, and the pipe into
which each run writes one byte.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

WAIT_S = 0.01
"""What the longer function waits, as for a reply of another service."""

QUEUE, PORT = os.environ.get("FUNCTIONS_QUEUE", ""), os.environ.get("FUNCTIONS_PORT", "")
REDIS = f"redis://127.0.0.1:{PORT}/0"

_opened: tuple[int, int] = (0, -1)


def note() -> int:
    """Write one byte into the pipe, which each process opens once."""
    global _opened
    if _opened[0] != os.getpid():
        _opened = os.getpid(), os.open(os.environ["FUNCTIONS_PIPE"], os.O_WRONLY)
    return os.write(_opened[1], b".")


def _empty() -> int:
    return note()


def _wait() -> int:
    time.sleep(WAIT_S)
    return note()


Enqueue = Callable[[str], Any]
"""Enqueues the function with this name, ``empty`` or ``wait``, and returns what ``result`` takes."""

enqueue: Enqueue
enqueue_many: Callable[[str, int], Any] | None = None
"""Enqueues so many at once; None if the queue has nothing for that."""
result: Callable[[Any], Any] | None = None
"""Waits for what a function returns; None if the queue keeps no results."""


def _named(functions: Iterable[Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {function.__name__.rpartition("_")[2]: function for function in functions}


SYNC = _named((_empty, _wait))

if QUEUE == "celery":
    celery: Any = importlib.import_module("celery")
    app = celery.Celery("functions", broker=REDIS, backend=REDIS)
    tasks = {name: app.task(function, name=name) for name, function in SYNC.items()}
    enqueue = lambda name: tasks[name].delay()  # noqa: E731
    result = lambda sent: sent.get(timeout=30)  # noqa: E731
elif QUEUE == "rq":
    rq: Any = importlib.import_module("rq")
    queue = rq.Queue(connection=importlib.import_module("redis").Redis.from_url(REDIS))
    enqueue = lambda name: queue.enqueue(f"function_apps._{name}")  # noqa: E731

    def _rq_many(name: str, count: int) -> Any:
        prepared = [rq.Queue.prepare_data(f"function_apps._{name}") for _ in range(count)]
        return queue.enqueue_many(prepared)

    enqueue_many = _rq_many

    def _rq_result(job: Any) -> Any:
        return job.latest_result(timeout=30).return_value

    result = _rq_result
elif QUEUE == "dramatiq":
    dramatiq: Any = importlib.import_module("dramatiq")
    broker = importlib.import_module("dramatiq.brokers.redis").RedisBroker(url=REDIS)
    backend = importlib.import_module("dramatiq.results.backends.redis").RedisBackend(url=REDIS)
    broker.add_middleware(importlib.import_module("dramatiq.results").Results(backend=backend))
    dramatiq.set_broker(broker)
    actors = {
        name: dramatiq.actor(function, actor_name=name, store_results=True) for name, function in SYNC.items()
    }
    enqueue = lambda name: actors[name].send()  # noqa: E731
    result = lambda message: message.get_result(block=True, timeout=30_000)  # noqa: E731
elif QUEUE == "huey":
    huey = importlib.import_module("huey").RedisHuey("functions", url=REDIS)
    called = {name: huey.task(name=name)(function) for name, function in SYNC.items()}
    enqueue = lambda name: called[name]()  # noqa: E731
    result = lambda handle: handle.get(blocking=True, timeout=30)  # noqa: E731
elif QUEUE == "procrastinate":
    procrastinate: Any = importlib.import_module("procrastinate")
    conninfo = f"postgresql://postgres@127.0.0.1:{PORT}/postgres"
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo))
    deferred = {name: app.task(function, name=name) for name, function in SYNC.items()}
    opened: list[Any] = []

    def _defer(name: str) -> Any:
        """Defer by the synchronous connector, which is opened once."""
        if not opened:
            opened.append(app.open())
        return deferred[name].defer()

    def _defer_many(name: str, count: int) -> Any:
        return deferred[name].batch_defer(*[{}] * count)

    enqueue = _defer
    enqueue_many = _defer_many
elif QUEUE in ("ours", "ours-async"):
    job: Any = importlib.import_module("bedrock_worker").job

    @job("empty")
    def _job_empty() -> int:
        return note()

    @job("wait")
    def _job_wait() -> int:
        time.sleep(WAIT_S)
        return note()

    @job("async/empty")
    async def _job_async_empty() -> int:
        return note()

    @job("async/wait")
    async def _job_async_wait() -> int:
        await asyncio.sleep(WAIT_S)
        return note()

    known = (
        {"empty": _job_empty, "wait": _job_wait}
        if QUEUE == "ours"
        else {"empty": _job_async_empty, "wait": _job_async_wait}
    )
    enqueue = lambda name: known[name].enqueue()  # noqa: E731
    enqueue_many = lambda name, count: known[name].enqueue_many([{}] * count)  # noqa: E731
    result = lambda handle: handle.wait(timeout=30)  # noqa: E731
