"""``bedrockjobs move``: a queue goes from a SQLite file to PostgreSQL, or back."""

from __future__ import annotations

from pathlib import Path

import click

from bedrockjobs.base.clock import SystemClock, duration_text
from bedrockjobs.cli.database import owned, progress_bar, told
from bedrockjobs.cli.output import write_one
from bedrockjobs.cli.places import database_named, file_named, is_url, schema_option
from bedrockjobs.cli.session import Session, answers, pass_session
from bedrockjobs.store.transfer import Moved, MoveOptions, Progress, TransferError, undo_move


@click.command()
@click.option("--from", "source", metavar="FILE|URL", required=True, help="A file, or postgresql://...")
@click.option(
    "--to", "target", metavar="FILE|URL", help="The other of the two; a file must not be there yet."
)
@schema_option
@click.option("--keep-damaged", is_flag=True, help="Take jobs along whose data is not what was stored.")
@click.option(
    "--replace-zeros",
    is_flag=True,
    help="Replace the character 0 in output and errors, as PostgreSQL cannot store it.",
)
@click.option("--undo", is_flag=True, help="Let the queue at --from be served again after it was moved.")
@answers
@pass_session
def move(
    session: Session,
    source: str,
    target: str | None,
    schema: str | None,
    keep_damaged: bool,
    replace_zeros: bool,
    undo: bool,
) -> None:
    """Move a queue from a SQLite file to PostgreSQL, or back.

    Stop the server first. All is copied in one transaction, read again and compared; then the old queue is
    marked, and no server starts on it any more. Where anything fails, both are as they were.
    """
    if undo:
        if target is not None:
            raise click.UsageError("--undo has a meaning without --to only")
        _undo(session, source, schema)
        return
    if target is None:
        raise click.UsageError("--to is missing: where the queue is to be")
    _check_kinds(source, target)
    clock = SystemClock()
    begun = clock.monotonic()
    options = MoveOptions(keep_damaged=keep_damaged, replace_zeros=replace_zeros)
    with told(target if is_url(source) else source), progress_bar("Moving") as progress:
        moved, places = (_in if is_url(target) else _out)(source, target, schema, options, progress)
    seconds = round(clock.monotonic() - begun, 1)
    write_one(
        {"from": places[0], "to": places[1], **moved._asdict(), "seconds": seconds},
        session.form,
        f"Moved {moved.jobs} jobs and {moved.runs} runs, {moved.rows} rows in all, from {places[0]} to"
        f" {places[1]} in {duration_text(seconds)}. What has arrived was compared with what was sent."
        f" {places[0]} is marked and not served any more.",
    )


def _check_kinds(source: str, target: str) -> None:
    """Raise UsageError unless one is a file and the other a URL."""
    for text in (source, target):
        if not is_url(text):
            file_named(text)
    if is_url(source) == is_url(target):
        other = "pg_dump copies a database" if is_url(source) else "`bedrockjobs backup` copies a file"
        raise click.UsageError(f"one of --from and --to is a file, the other postgresql://...; {other}")


def _in(
    source: str, target: str, schema: str | None, options: MoveOptions, progress: Progress | None
) -> tuple[Moved, tuple[str, str]]:
    """Move a file to PostgreSQL; return how much, and what both are called."""
    database, path = database_named(target, schema), _existing(source)
    from bedrockjobs.store.postgresql import transfer  # it needs the driver

    place = database.place
    with owned(path, "move"):
        return transfer.to_postgresql(path, database, options, progress), (str(path), place)


def _out(
    source: str, target: str, schema: str | None, options: MoveOptions, progress: Progress | None
) -> tuple[Moved, tuple[str, str]]:
    """Move a queue on PostgreSQL to a file; return how much, and what both are called."""
    database, path = database_named(source, schema), file_named(target)
    from bedrockjobs.store.postgresql import transfer

    return transfer.to_sqlite(database, path, options, progress), (database.place, str(path))


def _undo(session: Session, source: str, schema: str | None) -> None:
    with told():
        if is_url(source):
            database = database_named(source, schema)
            from bedrockjobs.store.postgresql import transfer

            name, place = database.place, transfer.undo_move(database)
        else:
            path = _existing(source)
            with owned(path, "move"):
                name, place = str(path), undo_move(path)
    did = (
        f"{name} can be served again. What was done at {place} since is not in it: no server may go on there."
        if place
        else f"{name} was not moved; it can be served."
    )
    write_one({"database": name, "movedTo": place}, session.form, did)


def _existing(text: str) -> Path:
    """Return the path of a file that is there: to own one would make it."""
    path = file_named(text)
    if not path.is_file():
        raise TransferError(f"there is no database {path}")
    return path
