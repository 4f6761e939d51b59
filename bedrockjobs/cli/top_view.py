"""One frame of ``bedrockjobs top``: records in, something that rich can draw out. No server, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.cli.output import STATE_COLOURS, Record, printable, text_of
from bedrockjobs.cli.time_text import countdown_text, local_text, rough_text, seconds_between
from bedrockjobs.cli.worker import run_count

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

BAR_CELLS = 10
"""Width of the bar of a run's progress."""

ERROR_CHARS = 200
"""Characters of a problem that are shown."""

FIXED_LINES = 18
"""Lines of a frame beside the rows of its tables: two or three on top, five around each table."""


class Picture(NamedTuple):
    """How things are at one moment."""

    server: str = ""
    status: Record = {}
    now: str = ""
    states: Sequence[Record] = ()
    counted: bool = False
    runs: Sequence[Record] = ()
    schedules: Sequence[Record] = ()
    workers: Sequence[Record] = ()
    problem: str = ""

    def count(self, state: str, what: str = "jobs") -> int:
        """Return how many jobs are in a state."""
        return sum(int(text_of(row, what) or 0) for row in self.states if text_of(row, "state") == state)

    def record(self) -> Record:
        """Return the picture as data."""
        return {
            "ready": self.count("QUEUED", "due"),
            "waiting": self.count("QUEUED") - self.count("QUEUED", "due"),
            "running": self.count("RUNNING") + self.count("RUNQUEUED"),
            "failed": self.count("FAILED"),
            "paused": self.count("PAUSED"),
            "now": self.now,
            "runs": self.runs,
            "schedules": self.schedules,
            "workers": self.workers,
        }


def drawn(picture: Picture, height: int | None = None) -> Group:
    """Return a frame; ``height`` is the lines there are, None for as many as it takes."""
    from rich.console import Group
    from rich.text import Text

    most = max((height - FIXED_LINES) // 3, 2) if height else None
    parts: list[Any] = [_head(picture), _counts(picture)]
    if picture.problem:
        parts.append(Text(printable(picture.problem[:ERROR_CHARS]), style="bold red"))
    parts += [
        _table("Running", ("run", "name", "for", "progress", "worker"), _run_rows(picture), most),
        _table("Next", ("schedule", "in", "at", "paused by"), _schedule_rows(picture), most),
        _table(
            "Workers", ("worker", "status", "runs", "slots", "host", "names"), _worker_rows(picture), most
        ),
    ]
    return Group(*parts)


def _head(picture: Picture) -> Text:
    from rich.text import Text

    started = text_of(picture.status, "started")
    up = seconds_between(started, picture.now)
    words = [
        f"bedrockjobs {text_of(picture.status, 'version')}", picture.server,
        f"up {rough_text(up)}" if up is not None else "", local_text(picture.now[:19]),
    ]  # fmt: skip
    return Text(printable("  ".join(word for word in words if word)), style="bold")


def _counts(picture: Picture) -> Text:
    from rich.text import Text

    record = picture.record()
    text = Text()
    if not picture.states and not picture.counted:
        return Text("The jobs could not be counted in time.")
    for key, colour in (
        ("ready", "cyan"), ("waiting", ""), ("running", "green"), ("paused", "yellow"), ("failed", "red"),
    ):  # fmt: skip
        number = record[key]
        text.append(f"{key} ", style="")
        text.append(f"{number:,}", style=f"bold {colour}" if number else "bright_black")
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
                text_of(run, "runID"), text_of(run, "name"), rough_text(max(spent or 0, 0)),
                progress_text(run), where,
            ]
        )  # fmt: skip
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
            text_of(row, "name"), countdown_text(picture.now, text_of(row, "nextRun")),
            local_text(text_of(row, "nextRun")), text_of(row, "paused"),
        ]
        for row in picture.schedules
    ]  # fmt: skip


def _worker_rows(picture: Picture) -> list[list[str]]:
    return [
        [
            text_of(row, "name"), text_of(row, "status"), str(run_count(row)), text_of(row, "slots"),
            text_of(row, "host"), " ".join(jsontext.parse(row.get("names") or "[]")),
        ]
        for row in picture.workers
    ]  # fmt: skip


def _table(title: str, columns: Sequence[str], rows: list[list[str]], most: int | None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = rows if most is None else rows[:most]
    more = len(rows) - len(shown)
    table = Table(
        title=Text(f"\n{title}", style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False,
        show_edge=False, caption=f"and {more} more" if more else None, caption_justify="left",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in shown:
        table.add_row(*(Text(printable(text), style=STATE_COLOURS.get(text, "")) for text in row))
    if not rows:
        table.add_row(Text("none", style="bright_black"))
    return table
