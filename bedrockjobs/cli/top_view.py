"""One frame of ``bedrockjobs top``: records in, something that rich can draw out. No server, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.base.wire import RawJSON, called
from bedrockjobs.cli.output import Grid, Record, drawn, fitted, one_line, printable, text_of
from bedrockjobs.cli.session import records_in
from bedrockjobs.cli.time_text import (
    away_text,
    countdown_text,
    local_text,
    rough_text,
    seconds_between,
    with_local_times,
)
from bedrockjobs.cli.worker import run_count

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

BAR_CELLS = 10
"""Width of the bar of a run's progress."""

ERROR_CHARS = 200
"""Characters of a problem that are shown."""

PROBLEMS_SHOWN = 3
"""Problems that a frame shows, the most pressing ones."""

TOP_LINES, TABLE_LINES = 7, 5
"""Lines of a frame beside the rows of its tables: two to seven on top, five around each table."""

NAMES_SHOWN = 8
"""Names that a frame shows, those with the most ready jobs."""

COUNTS = (
    ("ready", "cyan"),
    ("later", ""),
    ("running", "green"),
    ("paused", "yellow"),
    ("blocked", "yellow"),
    ("mocked", ""),
    ("untaken", "red"),
    ("failed", "red"),
    ("children", ""),
)
"""The counts of Overview that are shown, and their colours."""

SELDOM = frozenset({"blocked", "mocked", "untaken", "children"})
"""Those that are left out where they are 0."""


class Picture(NamedTuple):
    """How things are at one moment."""

    server: str = ""
    status: Record = {}
    now: str = ""
    overview: Record = {}
    counted: bool = False
    runs: Sequence[Record] = ()
    workers: Sequence[Record] = ()
    failures: Sequence[Record] = ()
    names: Sequence[Record] = ()
    problem: str = ""

    def count(self, name: str) -> int:
        """Return how many jobs stand somewhere, as far as they were counted."""
        return int(text_of(self.overview, name) or 0)

    @property
    def more(self) -> list[str]:
        """Return the counts that ended at a limit."""
        return list(jsontext.parse(self.overview.get("more") or "[]"))

    @property
    def schedules(self) -> list[Record]:
        """Return the schedules that fire next."""
        return records_in(self.overview.get("next") or RawJSON("[]"))

    @property
    def problems(self) -> list[Record]:
        """Return what is wrong."""
        return records_in(self.overview.get("problems") or RawJSON("[]"))

    def record(self) -> Record:
        """Return the picture as data."""
        return {
            **{name: self.count(name) for name, _ in COUNTS},
            "more": self.more,
            "problems": self.problems,
            "now": self.now,
            "runs": self.runs,
            "schedules": self.schedules,
            "workers": self.workers,
            "failures": self.failures,
            "names": self.names,
        }


def frame(picture: Picture, width: int | None = None, height: int | None = None) -> Group:
    """Return a frame that fits a terminal; without ``width`` or ``height`` it is as large as it must be."""
    from rich.console import Group
    from rich.text import Text

    tables = _tables(picture)
    most = max((height - TOP_LINES) // len(tables) - TABLE_LINES, 2) if height else None
    parts: list[Any] = [_head(picture), _counts(picture)]
    parts += [
        Text(one_line(with_local_times(text_of(problem, "detail"))[:ERROR_CHARS]), style="yellow")
        for problem in picture.problems[:PROBLEMS_SHOWN]
    ]
    if (more := len(picture.problems) - PROBLEMS_SHOWN) > 0:
        parts.append(Text(f"and {more} more: bedrockjobs doctor tells all of them", style="yellow"))
    if picture.problem:
        parts.append(Text(one_line(picture.problem[:ERROR_CHARS]), style="bold red"))
    parts += [_table(title, columns, rows, width, most) for title, columns, rows in tables]
    return Group(*parts)


def _tables(picture: Picture) -> list[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Return the tables of a frame; what failed and what piles up are left out if nothing did."""
    failures = ("Failed lately", ("run", "name", "status", "ended", "error"), _failure_rows(picture))
    names = ("Names", ("name", "ready", "running", "failed", "oldest", "paused by"), _name_rows(picture))
    return [
        ("Running", ("run", "name", "for", "progress", "worker"), _run_rows(picture)),
        *([failures] if failures[2] else []),
        *([names] if names[2] else []),
        ("Next", ("schedule", "in", "at", "paused by"), _schedule_rows(picture)),
        ("Workers", ("worker", "status", "runs", "slots", "host", "names"), _worker_rows(picture)),
    ]


def _failure_rows(picture: Picture) -> list[list[str]]:
    rows = []
    for run in picture.failures:
        ago = seconds_between(text_of(run, "ended"), picture.now)
        rows.append(
            [
                text_of(run, "runID"),
                text_of(run, "name"),
                called(text_of(run, "status")),
                "" if ago is None else away_text(-ago),
                line_of(text_of(run, "error")),
            ]
        )
    return rows


def _name_rows(picture: Picture) -> list[list[str]]:
    def jobs(row: Record) -> tuple[int, int]:
        ready, paused, failed = (int(text_of(row, key) or 0) for key in ("ready", "paused", "failed"))
        return ready + paused, failed

    piled = sorted((row for row in picture.names if any(jobs(row))), key=jobs, reverse=True)[:NAMES_SHOWN]
    return [
        [
            text_of(row, "name"),
            *(f"{int(text_of(row, key)):,}" for key in ("ready", "running", "failed")),
            rough_text(float(text_of(row, "age"))) if text_of(row, "oldestReady") else "",
            text_of(row, "pausedBy"),
        ]
        for row in piled
    ]


def _head(picture: Picture) -> Text:
    from rich.text import Text

    started = text_of(picture.status, "started")
    up = seconds_between(started, picture.now)
    words = [
        f"bedrockjobs {text_of(picture.status, 'version')}",
        picture.server,
        f"up {rough_text(up)}" if up is not None else "",
        local_text(picture.now[:19]),
    ]
    return Text(printable("  ".join(word for word in words if word)), style="bold")


def _counts(picture: Picture) -> Text:
    from rich.text import Text

    text = Text()
    if not picture.overview and not picture.counted:
        return Text("The jobs could not be counted in time.")
    for name, colour in COUNTS:
        number = picture.count(name)
        if not number and name in SELDOM:
            continue
        text.append(f"{name} ", style="")
        more = "+" if name in picture.more else ""
        text.append(f"{number:,}{more}", style=f"bold {colour}" if number else "bright_black")
        text.append("   ")
    if not picture.counted:
        text.append("(counted some time ago)", style="bright_black")
    return text


def _run_rows(picture: Picture) -> list[list[str]]:
    rows = []
    for run in picture.runs:
        spent = seconds_between(text_of(run, "started"), picture.now)
        where = "@".join(part for part in (text_of(run, "worker"), text_of(run, "host")) if part)
        rows.append(
            [
                text_of(run, "runID"),
                text_of(run, "name"),
                rough_text(max(spent or 0, 0)),
                progress_text(run),
                where,
            ]
        )
    return rows


def progress_text(run: Record) -> str:
    """Return how far a run is: a bar where its progress has ``percent``, and its ``message``."""
    stop = text_of(run, "stop")
    ending = f"stopping ({stop})" if stop else ""
    progress = jsontext.parse(run.get("progress") or "null")
    if not isinstance(progress, dict):
        return ending
    parts = []
    percent = progress.get("percent")
    if isinstance(percent, (int, float)) and not isinstance(percent, bool):
        full = round(min(max(percent, 0), 100) / 100 * BAR_CELLS)
        parts.append(f"{'█' * full}{'░' * (BAR_CELLS - full)} {percent:g} %")
    parts.append(str(progress.get("message") or ""))
    return " ".join(part for part in (*parts, ending) if part)


def _schedule_rows(picture: Picture) -> list[list[str]]:
    return [
        [
            text_of(row, "name"),
            countdown_text(picture.now, text_of(row, "nextRun")),
            local_text(text_of(row, "nextRun")),
            text_of(row, "paused"),
        ]
        for row in picture.schedules
    ]


def _worker_rows(picture: Picture) -> list[list[str]]:
    return [
        [
            text_of(row, "name"),
            text_of(row, "status"),
            str(run_count(row)),
            text_of(row, "slots"),
            text_of(row, "host"),
            " ".join(jsontext.parse(row.get("names") or "[]")),
        ]
        for row in picture.workers
    ]


def _table(
    title: str, columns: Sequence[str], rows: list[list[str]], width: int | None, most: int | None
) -> Table:
    from rich.text import Text

    shown = rows if most is None else rows[:most]
    more = len(rows) - len(shown)
    grid = Grid(columns, columns, [list(map(printable, row)) for row in shown])
    if width is not None:
        grid, _ = fitted(grid, width)
    table = drawn(
        grid,
        title=Text(f"\n{title}", style="bold"),
        title_justify="left",
        caption=f"and {more} more" if more else None,
        caption_justify="left",
    )
    if not rows:
        table.add_row(Text("none", style="bright_black"))
    return table
