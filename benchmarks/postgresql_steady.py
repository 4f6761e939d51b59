"""Minutes of steady lifecycles on PostgreSQL: whether rate and times hold, and the tables stay as small."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg
from results import table, verdict

MINUTES = 3
PART_S = 10.0
"""Measured time of one load; so many make a minute."""
RATE_BAR = 0.9
"""Lifecycles of the last minute, of those of the first."""
TIME_BAR = 1.2
"""The same of PostgreSQL's time for one, and of p99."""
GROWTH_BAR = 1.05
"""Largest size of the table of jobs in the last minute, of that in the one before: in the first it grows
until ended rows are vacuumed, which PostgreSQL looks for once a minute. Indexes have no bar: pages that a
vacuum has emptied are used again after the next one, so that they grow until the fourth minute."""
SIZES = (
    "SELECT pg_table_size('bedrockjobs.jobs') / 1e6, pg_indexes_size('bedrockjobs.jobs') / 1e6, n_dead_tup,"
    " autovacuum_count FROM pg_stat_all_tables WHERE relid = 'bedrockjobs.jobs'::regclass"
)


class Part(NamedTuple):
    """What one load showed, or the loads of a minute: medians of the first four, the largest of the rest."""

    rate: float
    server_us: float
    database_us: float
    p99_ms: float
    table_mb: float
    indexes_mb: float
    dead: float
    vacuums: float


def steady(load: Callable[[], tuple[float, float, float, float]], url: str) -> list[Part]:
    """Return what each minute shows of a ``load``, which returns the first four figures of a part."""
    minutes = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(MINUTES):
            parts = [_part(load(), connection) for _ in range(int(60 / PART_S))]
            columns = list(zip(*parts, strict=True))
            minutes.append(Part(*map(statistics.median, columns[:4]), *map(max, columns[4:])))
    return minutes


def _part(figures: tuple[float, float, float, float], connection: psycopg.Connection[Any]) -> Part:
    sizes = connection.execute(SIZES).fetchone()
    assert sizes is not None
    return Part(*figures, *map(float, sizes))


def report(minutes: Sequence[Part], clients: int) -> str:
    """Return the table and the bars."""
    first, before, last = minutes[0], minutes[-2], minutes[-1]
    head = (
        "minute",
        "lifecycles/s",
        "our CPU µs each",
        "PostgreSQL's CPU µs each",
        "p99 ms of a request",
        "table of jobs, MB",
        "its indexes, MB",
        "ended rows",
        "vacuumed",
    )
    spelled = ("{:,.0f}", "{:.0f}", "{:.0f}", "{:.1f}", "{:.0f}", "{:.0f}", "{:,.0f}", "{:.0f}")
    rows = [
        (str(number), *(how.format(figure) for how, figure in zip(spelled, each, strict=True)))
        for number, each in enumerate(minutes, 1)
    ]
    lines = [
        verdict("lifecycles of the last minute, of the first's", part(last.rate, first.rate), RATE_BAR),
        *(
            verdict(f"{what} of the last minute, of {which}", part(of_last, of_other), bar, at_most=True)
            for what, which, of_last, of_other, bar in (
                ("PostgreSQL's time", "the first's", last.database_us, first.database_us, TIME_BAR),
                ("p99", "the first's", last.p99_ms, first.p99_ms, TIME_BAR),
                ("table", "the one before", last.table_mb, before.table_mb, GROWTH_BAR),
            )
        ),
    ]
    title = f"### Steady lifecycles, {clients} clients, {MINUTES} minutes\n\n"
    return title + table(head, rows) + "\n\n" + "\n".join(lines)


def part(some: float, whole: float) -> float:
    """Return a ratio; not a number, which reaches no bar, where there is nothing to compare with."""
    return some / whole if whole else float("nan")
