"""``bedrockjobs backup`` and ``migrate``: commands that open the database itself, as ``move`` does."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bedrockjobs.base.background import give_way
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.output import write_one
from bedrockjobs.cli.places import database_named, file_named, is_url, schema_option
from bedrockjobs.cli.session import FAILED, REFUSED, UNAVAILABLE, Failure, Session, answers, pass_session
from bedrockjobs.cli.settings_sources import settings_from
from bedrockjobs.store import schema
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.bedrock_import import Findings, examine, import_jobs
from bedrockjobs.store.files import DatabaseLock, Lost, Owned, UnsafeFile
from bedrockjobs.store.transfer import (
    BadName,
    BadRows,
    Copy,
    Progress,
    TransferError,
    copy_before_migration,
    copy_database,
    open_for_writing,
)

if TYPE_CHECKING:
    from bedrockjobs.store.postgresql.transfer import TransferDatabase

F = TypeVar("F", bound=Callable[..., Any])

COMPLAINTS_SHOWN_MAX = 50
"""Bad rows that are listed one by one; the rest is counted."""


def _database_option(form: str) -> Callable[[F], F]:
    """Return --database, which takes ``form``: a file alone, or a URL of PostgreSQL as well."""
    return click.option(
        "--database",
        metavar=form,
        allow_from_autoenv=False,
        help=f"The database.  [BEDROCKJOBS_DATABASE; default: {Settings.model_fields['database'].default}]",
    )


@contextmanager
def told(file: str = "database") -> Iterator[None]:
    """Context what can go wrong with a database into a sentence and an exit status; ``file`` begins some."""
    try:
        yield
    except BadName as error:
        raise click.UsageError(str(error)) from None
    except (TransferError, Owned, Lost, UnsafeFile, schema.SchemaError) as error:
        for complaint in error.complaints if isinstance(error, BadRows) else ():
            click.echo(complaint, err=True)
        raise Failure(str(error), REFUSED) from None
    except StoreError as error:
        away = error.reason in ("Database away", "Database busy")
        words = " ".join(str(error).split())
        raise Failure(f"PostgreSQL: {words}; nothing was done", UNAVAILABLE if away else FAILED) from None
    except sqlite3.Error as error:
        raise Failure(f"{file}: {error}", FAILED) from None
    except OSError as error:
        advice = "; make room there" if error.errno == errno.ENOSPC else ""
        raise Failure(f"{error.filename or file}: {error.strerror or error}{advice}", FAILED) from None


@contextmanager
def owned(database: Path, command: str = "migrate") -> Iterator[None]:
    """Own the database as a server does, so that none uses it meanwhile; raises what `acquire` raises."""
    lock = DatabaseLock(database.resolve())
    lock.acquire()
    try:
        lock.describe(f"bedrockjobs {command} with pid {os.getpid()}")
        yield
    finally:
        lock.release()


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """Show a bar on stderr while work is done, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def size_text(size: int) -> str:
    """Return a size for people: ``1.5 MiB``."""
    amount, unit = float(size), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_database_option("FILE|URL")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@schema_option
@answers
@pass_session
def backup(session: Session, file: Path, database: str | None, force: bool, schema: str | None) -> None:
    """Copy the database to FILE while the server goes on.

    FILE is a SQLite file, also of a database postgresql://...: one snapshot, checked, readable by its owner
    only, and there when it is whole. `bedrockjobs restore` puts it in the place of a file, `bedrockjobs
    move` takes it back to PostgreSQL.
    """
    named = settings_from({}).database if database is None else database
    give_way()
    with told(f"{named if not is_url(named) else 'database'} to {file}"):
        if is_url(named):
            copy = _copy_of(database_named(named, schema), file, force)
        else:
            source = file_named(database)
            with progress_bar(f"Copying {source}") as progress:
                copy = copy_database(source, file, overwrite=force, progress=progress)
    write_one(
        {"file": str(file), "bytes": copy.size, "jobs": copy.jobs},
        session.form,
        f"Wrote {file}: {size_text(copy.size)}, {copy.jobs} jobs.",
    )


def _copy_of(source: TransferDatabase, file: Path, force: bool) -> Copy:
    from bedrockjobs.store.postgresql.transfer import copy_to_file  # it needs the driver

    with progress_bar(f"Copying {source.place}") as progress:
        return copy_to_file(source, file, overwrite=force, progress=progress)


@click.command()
@_database_option("FILE")
@click.option(
    "--from-bedrock",
    "old",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Copy the jobs of an original Bedrock database into ours, with their jobIDs.",
)
@click.option(
    "--skip-bad", is_flag=True, help="With --from-bedrock: leave out rows that cannot be jobs of ours."
)
@click.option(
    "--migration-backup/--no-migration-backup",
    default=True,
    help="Copy the file beside itself first; the last two such copies are kept.",
)
@answers
@pass_session
def migrate(
    session: Session, database: str | None, old: Path | None, skip_bad: bool, migration_backup: bool
) -> None:
    """Bring a database to this version's schema, or a Bedrock database into ours.

    No server may own the database meanwhile. What it was before is kept in a copy beside it.
    """
    if skip_bad and old is None:
        raise click.UsageError("--skip-bad has a meaning with --from-bedrock only")
    path = file_named(database)
    with told(str(path)):
        if old is None:
            _migrate(session, path, keep=migration_backup)
        else:
            _import(session, old, path, skip_bad)


def _migrate(session: Session, path: Path, *, keep: bool) -> None:
    if not path.is_file():
        raise TransferError(f"there is no database {path}; `bedrockjobs serve` makes one")
    with owned(path):
        copy = None
        if keep:
            with progress_bar(f"Copying {path}") as progress:
                copy = copy_before_migration(path, SystemClock().now(), progress)
        with closing(open_for_writing(path)) as connection:
            before, after, told = schema.apply(connection)
    did = (
        f"{path} is at schema version {after} already."
        if before == after
        else (" ".join((f"Brought {path} from schema version {before} to {after}.", *told)))
    )
    if copy is not None:
        did += f" What it was before is {copy}."
    write_one(
        {"database": str(path), "before": before, "after": after, "copy": str(copy) if copy else ""},
        session.form,
        did,
    )


def _import(session: Session, old: Path, path: Path, skip_bad: bool) -> None:
    findings = examine(old)
    _complain(findings)
    if findings.bad and not skip_bad:
        raise TransferError(
            f"{len(findings.bad)} rows cannot be imported; mend them, or leave them out by --skip-bad"
        )
    with owned(path):
        count = import_jobs(old, path, findings)
    if findings.running:
        click.echo(
            f"{findings.running} jobs are RUNNING: end them, or queue them again by `bedrockjobs job retry`.",
            err=True,
        )
    write_one(
        {"database": str(path), "imported": count, "skipped": len(findings.bad)},
        session.form,
        f"Imported {count} jobs into {path}" + (f", left out {len(findings.bad)}." if findings.bad else "."),
    )


def _complain(findings: Findings) -> None:
    for job_id, complaint in list(findings.bad.items())[:COMPLAINTS_SHOWN_MAX]:
        click.echo(f"Job {job_id}: {complaint}", err=True)
    more = len(findings.bad) - COMPLAINTS_SHOWN_MAX
    if more > 0:
        click.echo(f"... and {more} more", err=True)
