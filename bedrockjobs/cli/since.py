"""``--since``: from when on, as people say it: ``yesterday``, ``2h``, ``2026-11-22``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any, TypeVar

import click

from bedrockjobs.base.config import DURATION_S_MAX
from bedrockjobs.base.duration import seconds_of
from bedrockjobs.base.wire import stamp

DAYS_AGO = {"today": 0, "yesterday": 1}
"""Words for the beginning of a day."""

WORDS = "yesterday, today, a time ago like 2h, or a day like 2026-11-22"

Given = timedelta | datetime | str
"""A time ago, a moment (without a zone: by this machine's clock), or a word of ``DAYS_AGO``."""

F = TypeVar("F", bound=Callable[..., Any])


class Since(click.ParamType[Given]):
    """A moment in the past."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Given:
        """Return what was meant; the moment itself needs a server's clock (``since_stamp``)."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # it was converted before
        text = value.strip().lower()
        if text in DAYS_AGO:
            return text
        seconds = seconds_of(text.removesuffix(" ago").removesuffix("ago"))
        if seconds is not None and seconds <= DURATION_S_MAX:
            return timedelta(seconds=seconds)
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"expected {WORDS}, got {value!r}", param, ctx)


def since_stamp(given: Given, now: datetime, option: str = "--since") -> str:
    """Return a moment as the server stores them; days begin by this machine's clock.

    Raises click.UsageError for what lies before the years there are.
    """
    try:
        if isinstance(given, timedelta):
            return stamp(now - given)
        if isinstance(given, str):
            day = now.astimezone().date() - timedelta(days=DAYS_AGO[given])
            given = datetime.combine(day, time())
        return stamp(given.astimezone(now.tzinfo))
    except (OverflowError, ValueError):
        raise click.UsageError(f"{option}: expected {WORDS}") from None


def since_option(what: str, name: str = "since", **more: Any) -> Callable[[F], F]:
    """Return --since; ``what`` begins its help: ``Only runs that began since``."""
    return click.option("--since", name, type=Since(), metavar="WHEN", help=f"{what} then: {WORDS}.", **more)
