"""``bedrockjobs top``: the queue as it is now, drawn again each second.

This module gathers what ``bedrockjobs.cli.top_view`` draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.vocabulary import ANY_FAILURE
from bedrockjobs.cli.keys import waiting_for_the_end
from bedrockjobs.cli.output import Record, fits_terminal, text_of, write_one
from bedrockjobs.cli.session import (
    UNAVAILABLE,
    Failure,
    Refusal,
    Session,
    built,
    pass_session,
    records_in,
    talks,
)
from bedrockjobs.cli.top_view import Picture, frame
from bedrockjobs.cli.values import Duration
from bedrockjobs.cli.worker import workers
from bedrockjobs.commands import ListQueues, ListRuns, Overview, Status

if TYPE_CHECKING:
    from rich.console import Console

RUNS_SHOWN = 20
"""Running runs that are listed, the newest of them."""

FAILURES_SHOWN = 5
"""Runs that ended badly, the newest of them: the last minutes are what a view is for."""

COUNTING_PART = 0.1
"""Part of the time that counting the jobs may take: a huge table is counted less often than it is drawn."""

PLAIN_WIDTH = 100_000
"""Width for a frame in which nothing is cut or wrapped: more than the longest line."""

INTERVAL_LEAST_S = 0.2
"""The shortest time between two frames: a view is no load test."""


class Observer:
    """Gathers what a frame shows, and goes on where the server goes away."""

    def __init__(self, session: Session) -> None:
        """Look at the server of ``session``."""
        self._session = session
        self._clock = SystemClock()
        self._count_again = float("-inf")
        self._picture = Picture()

    def observe(self) -> Picture:
        """Return how things are now; raises Failure where the server does not tell."""
        session = self._session
        status = session.record(Status())
        now = text_of(status, "now")
        runs = records_in(session.record(built(ListRuns, {"status": "running", "limit": RUNS_SHOWN}))["runs"])
        picture = Picture(
            server=session.answering,
            status=status,
            now=now,
            overview=self._picture.overview,
            counted=self._picture.counted,
            names=self._picture.names,
            runs=runs,
            failures=self._failures(),
            workers=self._workers(),
        )
        begun = self._clock.monotonic()
        if begun >= self._count_again:
            picture = self._counted(picture)
            spent = self._clock.monotonic() - begun
            self._count_again = begun + spent / COUNTING_PART
        self._picture = picture
        return picture

    def _counted(self, picture: Picture) -> Picture:
        """Return the picture with what the server must count; a server that is too busy keeps the old."""
        try:
            overview = self._session.record(Overview())
            names = self._session.record(built(ListQueues, {"limit": LIST_MAX}))["queues"]
        except Failure as failure:
            if failure.exit_code == UNAVAILABLE:
                raise
            return picture._replace(counted=False)
        return picture._replace(overview=overview, names=records_in(names), counted=True)

    def _workers(self) -> list[Record]:
        """Return the workers; none where whoever looks sees some names only, and so no workers."""
        try:
            return workers(self._session)
        except Refusal as refusal:
            if refusal.error.code != Forbidden.code:
                raise
            return []

    def _failures(self) -> list[Record]:
        """Return the newest runs that ended badly, the newest first."""
        asked = built(ListRuns, {"status": ANY_FAILURE, "limit": FAILURES_SHOWN})
        return records_in(self._session.record(asked)["runs"])

    def away(self, failure: Failure) -> Picture:
        """Return the last picture with the word that the server is away."""
        self._picture = self._picture._replace(problem=failure.message)
        return self._picture


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and exit: for scripts.")
@click.option(
    "--interval", type=Duration(), default=1.0, metavar="DURATION", help="Time between two frames; 1s."
)
@talks
@pass_session
def top(session: Session, once: bool, interval: float) -> None:
    """Show live how jobs stand, what is wrong, what runs and failed, which names pile up. q ends it.

    Without a terminal it prints one frame, as with --once; with -o json the same as data.
    """
    if interval < INTERVAL_LEAST_S:
        raise click.UsageError(f"--interval: expected at least {INTERVAL_LEAST_S:g} s")
    from rich.console import Console

    console = Console()
    session.tries = 1  # whoever looks wants to know about this moment
    observer = Observer(session)
    picture = observer.observe()
    if session.form != "table":
        write_one(picture.record(), session.form, identity="ready")
    elif once or not console.is_terminal:
        if fits_terminal():
            console.print(frame(picture, console.width))
        else:
            Console(width=PLAIN_WIDTH).print(frame(picture), crop=False)
    else:
        _live(console, observer, picture, interval)


def _live(console: Console, observer: Observer, picture: Picture, interval: float) -> None:
    """Draw until somebody presses q, or interrupts."""
    from rich.live import Live

    try:
        with (
            waiting_for_the_end() as ended,
            Live(
                frame(picture, console.width, console.height),
                console=console,
                screen=True,
                auto_refresh=False,
            ) as live,
        ):
            while True:
                live.update(frame(picture, console.width, console.height), refresh=True)
                if ended(interval):
                    return
                try:
                    picture = observer.observe()
                except Failure as failure:
                    if failure.exit_code != UNAVAILABLE:
                        raise
                    picture = observer.away(failure)
    except KeyboardInterrupt:
        return
