"""``bedrockjobs top``: a live view of the queue, refreshed each second.

An observer reads records from the server, and ``frame`` draws them without a server or a clock.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.base.errors import Forbidden, line_of
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.vocabulary import ANY_FAILURE, called
from bedrockjobs.cli.output import (
    NOT_SHOWN,
    Grid,
    Record,
    away_text,
    countdown_text,
    drawn,
    fits_terminal,
    fitted,
    hidden_in,
    local_text,
    one_line,
    printable,
    rough_text,
    seconds_between,
    text_of,
    with_local_times,
    write_one,
)
from bedrockjobs.cli.parameters import Duration
from bedrockjobs.cli.session import (
    UNAVAILABLE,
    CommandRefused,
    Failure,
    Session,
    built,
    records_in,
    server_options,
)
from bedrockjobs.cli.worker import run_count, workers
from bedrockjobs.commands import ListQueues, ListRuns, Overview, Status

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

END_KEYS = frozenset(b"qQ\x1b\x04")
"""Keys that quit the view: q, Escape, and Ctrl-D (end of input)."""


@contextmanager
def quit_key() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds, and returns whether a quit key was pressed.

    If stdin is not a terminal, the function only waits.
    """
    if not sys.stdin.isatty():
        yield _asleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda seconds: _pressed(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _asleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _pressed(terminal: int, seconds: float) -> bool:
    """Wait for a key up to ``seconds``; return whether it was one of ``END_KEYS``. Any key ends the wait."""
    ready, _, _ = select.select([terminal], [], [], seconds)
    if not ready:
        return False
    pressed = os.read(terminal, 1)
    return not pressed or pressed[0] in END_KEYS


ERROR_CHARS = 200
"""Maximum characters of the text of a problem in a frame."""

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
"""Counts in the reply to Overview that a frame shows, each with its colour."""

HIDDEN_IF_ZERO = frozenset({"blocked", "mocked", "untaken", "children"})
"""Counts that are left out if they are 0."""


class Snapshot(NamedTuple):
    """The state of the queue at one time."""

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
        """Return a count of jobs."""
        return int(text_of(self.overview, name) or 0)

    @property
    def more(self) -> list[str]:
        """Return the names of the counts that reached their limit: there may be more jobs."""
        return list(jsontext.parse(self.overview.get("more") or "[]"))

    @property
    def schedules(self) -> list[Record]:
        """Return the next schedules."""
        return records_in(self.overview.get("next") or RawJSON("[]"))

    @property
    def problems(self) -> list[Record]:
        """Return the problems."""
        return records_in(self.overview.get("problems") or RawJSON("[]"))

    def record(self) -> Record:
        """Return the state as a record."""
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


def frame(snapshot: Snapshot, width: int | None = None, height: int | None = None) -> Group:
    """Return a frame that fits a terminal; without ``width`` or ``height``, that dimension is not limited."""
    from rich.console import Group
    from rich.text import Text

    tables = _tables(snapshot)
    # At most seven lines are at the top, and five around the rows of each table.
    most = max((height - 7) // len(tables) - 5, 2) if height else None
    parts: list[Any] = [_head(snapshot), _counts(snapshot)]
    parts += [
        Text(one_line(with_local_times(text_of(problem, "detail"))[:ERROR_CHARS]), style="yellow")
        for problem in snapshot.problems[:3]  # the most urgent
    ]
    if more := snapshot.problems[3:]:
        parts.append(Text(f"and {len(more)} more: bedrockjobs doctor shows all of them", style="yellow"))
    if snapshot.problem:
        parts.append(Text(one_line(snapshot.problem[:ERROR_CHARS]), style="bold red"))
    parts += [_table(title, columns, rows, width, most) for title, columns, rows in tables]
    return Group(*parts)


def _tables(snapshot: Snapshot) -> list[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Return the tables of a frame; the tables of failed runs and of names are left out if they are empty."""
    failures = ("Failed lately", ("run", "name", "status", "ended", "error"), _failure_rows(snapshot))
    names = ("Names", ("name", "ready", "running", "failed", "oldest", "paused by"), _name_rows(snapshot))
    return [
        ("Running", ("run", "name", "for", "progress", "worker"), _run_rows(snapshot)),
        *([failures] if failures[2] else []),
        *([names] if names[2] else []),
        ("Next", ("schedule", "in", "at", "paused by"), _schedule_rows(snapshot)),
        ("Workers", ("worker", "status", "runs", "slots", "host", "names"), _worker_rows(snapshot)),
    ]


def _failure_rows(snapshot: Snapshot) -> list[list[str]]:
    rows = []
    for run in snapshot.failures:
        ago = seconds_between(text_of(run, "ended"), snapshot.now)
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


def _name_rows(snapshot: Snapshot) -> list[list[str]]:
    def jobs(row: Record) -> tuple[int, int]:
        ready, paused, failed = (int(text_of(row, key) or 0) for key in ("ready", "paused", "failed"))
        return ready + paused, failed

    piled = sorted((row for row in snapshot.names if any(jobs(row))), key=jobs, reverse=True)[:8]
    return [
        [
            text_of(row, "name"),
            *(f"{int(text_of(row, key)):,}" for key in ("ready", "running", "failed")),
            rough_text(float(text_of(row, "age"))) if text_of(row, "oldestReady") else "",
            text_of(row, "pausedBy"),
        ]
        for row in piled
    ]


def _head(snapshot: Snapshot) -> Text:
    from rich.text import Text

    started = text_of(snapshot.status, "started")
    up = seconds_between(started, snapshot.now)
    parts = [
        f"bedrockjobs {text_of(snapshot.status, 'version')}",
        snapshot.server,
        f"up {rough_text(up)}" if up is not None else "",
        local_text(snapshot.now[:19]),
    ]
    return Text(printable("  ".join(part for part in parts if part)), style="bold")


def _counts(snapshot: Snapshot) -> Text:
    from rich.text import Text

    text = Text()
    if not snapshot.overview and not snapshot.counted:
        return Text("The jobs could not be counted in time.")
    for name, colour in COUNTS:
        number = snapshot.count(name)
        if not number and name in HIDDEN_IF_ZERO:
            continue
        text.append(f"{name} ", style="")
        more = "+" if name in snapshot.more else ""
        text.append(f"{number:,}{more}", style=f"bold {colour}" if number else "bright_black")
        text.append("   ")
    if not snapshot.counted:
        text.append("(counted some time ago)", style="bright_black")
    return text


def _run_rows(snapshot: Snapshot) -> list[list[str]]:
    rows = []
    for run in snapshot.runs:
        spent = seconds_between(text_of(run, "started"), snapshot.now)
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
    """Return the progress of a run: a bar if it has ``percent``, and its ``message``."""
    stop = text_of(run, "stop")
    ending = f"stopping ({stop})" if stop else ""
    if "progress" in hidden_in(run):
        return " ".join(part for part in (NOT_SHOWN, ending) if part)
    progress = jsontext.parse(run.get("progress") or "null")
    if not isinstance(progress, dict):
        return ending
    parts = []
    percent = progress.get("percent")
    if isinstance(percent, (int, float)) and not isinstance(percent, bool):
        full = round(min(max(percent, 0), 100) / 100 * 10)
        parts.append(f"{'█' * full}{'░' * (10 - full)} {percent:g} %")
    parts.append(str(progress.get("message") or ""))
    return " ".join(part for part in (*parts, ending) if part)


def _schedule_rows(snapshot: Snapshot) -> list[list[str]]:
    return [
        [
            text_of(row, "name"),
            countdown_text(snapshot.now, text_of(row, "nextRun")),
            local_text(text_of(row, "nextRun")),
            text_of(row, "paused"),
        ]
        for row in snapshot.schedules
    ]


def _worker_rows(snapshot: Snapshot) -> list[list[str]]:
    return [
        [
            text_of(row, "name"),
            text_of(row, "status"),
            str(run_count(row)),
            text_of(row, "slots"),
            text_of(row, "host"),
            " ".join(jsontext.parse(row.get("names") or "[]")),
        ]
        for row in snapshot.workers
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


INTERVAL_LEAST_S = 0.2
"""Minimum seconds between two frames, so that a view puts little load on the server."""


class Observer:
    """Reads the data of each frame, and keeps the last data while the server does not answer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._clock = SystemClock()
        self._count_again = float("-inf")
        self._last_snapshot = Snapshot()

    def snapshot(self) -> Snapshot:
        """Return the current state; raises Failure if the server does not answer."""
        session = self._session
        status = session.reply(Status)
        now = text_of(status, "now")
        runs = session.rows(ListRuns, {"status": "running", "limit": 20})  # the newest
        snapshot = Snapshot(
            server=session.answering,
            status=status,
            now=now,
            overview=self._last_snapshot.overview,
            counted=self._last_snapshot.counted,
            names=self._last_snapshot.names,
            runs=runs,
            failures=self._failures(),
            workers=self._workers(),
        )
        begun = self._clock.monotonic()
        if begun >= self._count_again:
            snapshot = self._counted(snapshot)
            spent = self._clock.monotonic() - begun
            # Counting takes at most a tenth of the time: a huge table is counted less often than it is drawn.
            self._count_again = begun + spent * 10
        self._last_snapshot = snapshot
        return snapshot

    def _counted(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with new counts, or with the earlier counts if the server is too busy."""
        try:
            overview = self._session.reply(Overview)
            names = self._session.reply(ListQueues, {"limit": LIST_MAX})["queues"]
        except Failure as failure:
            if failure.exit_code == UNAVAILABLE:
                raise
            return snapshot._replace(counted=False)
        return snapshot._replace(overview=overview, names=records_in(names), counted=True)

    def _workers(self) -> list[Record]:
        """Return the workers; empty if the token is limited to some names, and so sees no workers."""
        try:
            return workers(self._session)
        except CommandRefused as refusal:
            if refusal.error.code != Forbidden.code:
                raise
            return []

    def _failures(self) -> list[Record]:
        """Return the newest failed runs, the newest first."""
        # Maximum number of failed runs, the newest: the view is about the last minutes.
        query = built(ListRuns, {"status": ANY_FAILURE, "limit": 5})
        return records_in(self._session.record(query)["runs"])

    def away(self, failure: Failure) -> Snapshot:
        """Return the last snapshot with the failure as its problem, because the server does not answer."""
        self._last_snapshot = self._last_snapshot._replace(problem=failure.message)
        return self._last_snapshot


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and exit: for scripts.")
@click.option(
    "--interval", type=Duration(), default=1.0, metavar="DURATION", help="Time between two frames; 1s."
)
@server_options
def top(session: Session, once: bool, interval: float) -> None:
    """Show a live view of jobs, problems, running and failed runs, and long queues. q quits.

    Without a terminal it prints one frame, as with --once; with -o json as data.
    """
    if interval < INTERVAL_LEAST_S:
        raise click.UsageError(f"--interval: expected at least {INTERVAL_LEAST_S:g} s")
    from rich.console import Console

    console = Console()
    session.tries = 1  # a retry would show an old state
    observer = Observer(session)
    snapshot = observer.snapshot()
    if session.form != "table":
        write_one(snapshot.record(), session.form, identity="ready")
    elif once or not console.is_terminal:
        fits = fits_terminal()
        # Width of a frame that is neither cut nor wrapped: more than the longest line.
        printer = console if fits else Console(width=100_000)
        with printer.capture() as printed:  # a console would exit silently if the reader has gone
            printer.print(frame(snapshot, console.width) if fits else frame(snapshot), crop=fits)
        click.echo(printed.get(), nl=False)
    else:
        _live(console, observer, snapshot, interval)


def _live(console: Console, observer: Observer, snapshot: Snapshot, interval: float) -> None:
    """Draw frames until a quit key is pressed or the program is interrupted."""
    from rich.live import Live

    try:
        with (
            quit_key() as ended,
            Live(
                frame(snapshot, console.width, console.height),
                console=console,
                screen=True,
                auto_refresh=False,
            ) as live,
        ):
            while True:
                live.update(frame(snapshot, console.width, console.height), refresh=True)
                if ended(interval):
                    return
                try:
                    snapshot = observer.snapshot()
                except Failure as failure:
                    if failure.exit_code != UNAVAILABLE:
                        raise
                    snapshot = observer.away(failure)
    except KeyboardInterrupt:
        return
