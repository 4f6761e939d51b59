"""Copies all rows of a queue from one engine to another, and compares what has arrived with what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from bedrockjobs.store.backup import Progress
from bedrockjobs.store.inspector import Inspector, Rules
from bedrockjobs.store.moved import MoveError
from bedrockjobs.store.tables import Row, Sum, Table, tables

ROWS_PER_REPORT = 1_000
"""Rows copied between two reports of progress: a few milliseconds of work."""


class Numbers(NamedTuple):
    """The first jobID and the first runID that were never given out."""

    job: int
    run: int


class Rows(Protocol):
    """All rows of one queue, within one transaction of its engine."""

    def read(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table in the order of their keys."""
        ...

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows to a table that has none."""
        ...

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        ...

    def remembered(self) -> list[tuple[str, str]]:
        """Return what ``meta`` holds that no engine has for itself alone, by its keys."""
        ...

    def numbers(self) -> Numbers:
        """Return the numbers that come next, behind all rows that there are."""
        ...

    def remember(self, rows: list[tuple[str, str]], numbers: Numbers) -> None:
        """Write ``meta`` and the numbers that come next."""
        ...


class Moved(NamedTuple):
    """How much was copied."""

    jobs: int
    runs: int
    rows: int


def copy_all(source: Rows, target: Rows, rules: Rules, progress: Progress | None = None) -> Moved:
    """Copy all rows, a table at a time, and compare; raises BadRows, and MoveError where the two differ."""
    meter = _Meter(source, progress)
    inspector = Inspector(rules)
    sums: dict[str, Sum] = {}
    for table in tables():
        sent = sums[table.name] = Sum()
        target.write(table, sent.of(inspector.sound(table, meter.of(source.read(table)))))
    inspector.end()
    remembered, numbers = source.remembered(), source.numbers()
    target.remember(remembered, numbers)
    for table in tables():
        _compare(table, sums[table.name], meter.of(target.read(table)))
    if (target.remembered(), target.numbers()) != (remembered, numbers):
        raise MoveError("meta: what has arrived is not what was sent; nothing was moved")
    rows = sum(each.rows for each in sums.values())
    return Moved(sums["jobs"].rows, sums["runs"].rows, rows)


def _compare(table: Table, sent: Sum, rows: Iterable[Row]) -> None:
    """Raise MoveError unless the rows that are read again are those that were sent."""
    found = Sum()
    for row in rows:
        found.add(row)
    if found != sent:
        raise MoveError(
            f"{table.name}: what has arrived is not what was sent ({found.rows} rows of {sent.rows}, sum"
            f" {found.digest} for {sent.digest}); nothing was moved"
        )


class _Meter:
    """Tells how far a copy is: each row counts when it is sent, and when it is compared."""

    def __init__(self, source: Rows, progress: Progress | None) -> None:
        self._progress = progress
        self._total = 2 * sum(source.count(table) for table in tables()) if progress is not None else 0
        self._done = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Count rows as they are passed on."""
        if self._progress is None:
            yield from rows
            return
        for row in rows:
            yield row
            self._done += 1
            if self._done % ROWS_PER_REPORT == 0 or self._done == self._total:
                self._progress(self._done, self._total)
