"""Lists that a server gives page by page, and the patterns that choose from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from bedrockjobs.cli.output import Record
from bedrockjobs.cli.session import Session, built, records_in
from bedrockjobs.cli.values import WholeNumber
from bedrockjobs.commands import Command

LIST_DEFAULT = 100
"""Records that a list shows unless told otherwise."""

F = TypeVar("F", bound=Callable[..., Any])

_GLOB = re.compile(r"[*?\[]")


class Listing(NamedTuple):
    """How a list is asked for: its command, the reply's list, and the parameter that names the next page."""

    kind: type[Command[Any]]
    key: str
    cursor: str
    """Parameter that takes up where a page ended; an option of the same name exists."""
    last: str
    """Key of the record whose value of the last one is the cursor."""
    page_max: int


def paged(
    session: Session,
    listing: Listing,
    asked: Mapping[str, Any],
    limit: int,
    *,
    fits: Callable[[Record], bool] | None = None,
    until: Callable[[Record], bool] | None = None,
) -> list[Record]:
    """Return up to ``limit`` records; says on stderr how to go on where there may be more.

    Those that do not ``fit`` are passed over; the first for which ``until`` is true ends the list.
    """
    asked = dict(asked)
    found: list[Record] = []
    while len(found) < limit:
        page = listing.page_max if fits else min(limit - len(found), listing.page_max)
        reply = session.record(built(listing.kind, {**asked, "limit": page}))
        records = records_in(reply[listing.key])
        for at, record in enumerate(records, 1):
            if until is not None and until(record):
                return found
            if fits is None or fits(record):
                found.append(record)
            if len(found) == limit and at < len(records):
                break
        else:
            if len(records) < page:
                return found
        asked[listing.cursor] = records[-1][listing.last]
    click.echo(f"There may be more: --{listing.cursor} {found[-1][listing.last]}", err=True)
    return found


def literal(name: str) -> str:
    """Return the GLOB pattern that matches this name alone."""
    return _GLOB.sub(lambda found: f"[{found.group()}]", name)


def limit_option(what: str, default: int = LIST_DEFAULT) -> Callable[[F], F]:
    """Return --limit for a list of ``what``."""
    return click.option(
        "--limit",
        type=WholeNumber(min=1),
        default=default,
        show_default=True,
        metavar="NUMBER",
        help=f"How many {what}.",
    )
