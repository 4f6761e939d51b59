"""Let servers of tests start their Query processes with the first Query; a server starts them at once.

Most test servers execute no Query, and a process costs more than the rest of a server. Tests of the
processes themselves use ``at_once``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from bedrockjobs.store.queries import Queries

_open, _run = Queries.start_processes, Queries.run_query
_opened: WeakSet[Queries] = WeakSet()


def _not_yet(_: Queries) -> None:
    """Start nothing."""


async def _first_opened(queries: Queries, sql: str, form: str) -> str:
    if queries not in _opened:
        _opened.add(queries)
        _open(queries)
    return await _run(queries, sql, form)


def begin() -> None:
    """From now on, start processes with the first Query."""
    Queries.start_processes = _not_yet  # type: ignore[method-assign]
    Queries.run_query = _first_opened  # type: ignore[method-assign]


@contextmanager
def at_once() -> Iterator[None]:
    """Within the context, start processes when the server starts."""
    Queries.start_processes, Queries.run_query = _open, _run  # type: ignore[method-assign]
    try:
        yield
    finally:
        begin()
