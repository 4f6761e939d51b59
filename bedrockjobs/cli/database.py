"""``bedrockjobs backup``, ``migrate``, ``restore`` and ``move``: commands that open the database itself."""

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

from bedrockjobs.base.clock import SystemClock, duration_text, timestamp
from bedrockjobs.base.priority import give_way
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.output import Record, text_of, write_one
from bedrockjobs.cli.session import (
    FAILED,
    REFUSED,
    UNAVAILABLE,
    USAGE,
    Failure,
    Session,
    output_option,
    pass_session,
    server_options,
)
from bedrockjobs.cli.settings_sources import file_alone, settings_from
from bedrockjobs.cli.verbs import takes
from bedrockjobs.commands import ReleaseHold
from bedrockjobs.job.eligibility import RELEASE
from bedrockjobs.store import schema
from bedrockjobs.store import schema as schemas
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.bedrock_import import Findings, examine, import_jobs
from bedrockjobs.store.files import DatabaseLock, Lost, Owned, UnsafeFile
from bedrockjobs.store.schema import held_file, hold
from bedrockjobs.store.transfer import (
    BadName,
    BadRows,
    Copy,
    Hold,
    Moved,
    MoveOptions,
    Progress,
    Restored,
    TransferError,
    copy_before_migration,
    copy_database,
    open_for_writing,
    undo_move,
)
from bedrockjobs.store.transfer import restore as put_in_place

if TYPE_CHECKING:
    from bedrockjobs.store.postgresql.transfer import TransferDatabase

URLS = ("postgresql://", "postgres://")

schema_option = click.option(
    "--schema",
    metavar="NAME",
    allow_from_autoenv=False,
    help="PostgreSQL schema of the tables.  [BEDROCKJOBS_DATABASE_SCHEMA; default: bedrockjobs]",
)


def is_url(text: str) -> bool:
    """Return whether a database argument is a PostgreSQL URL."""
    return text.startswith(URLS)


def file_named(text: str | None) -> Path:
    """Return the path of a database file; for None, the path that ``serve`` would open. Raises UsageError."""
    return settings_from({}).database_path() if text is None else file_alone(text)


def database_named(url: str, schema: str | None) -> TransferDatabase:
    """Return a PostgreSQL database; if ``schema`` is None, with the schema of the settings.

    Raises BadSettings, and Failure if the driver is not installed.
    """
    try:
        from bedrockjobs.store.postgresql.transfer import TransferDatabase
    except ImportError:
        raise Failure(
            "PostgreSQL needs a driver that is not installed: pip install 'bedrockjobs[postgresql]'", USAGE
        ) from None
    return TransferDatabase(url, settings_from({}).database_schema if schema is None else schema)


F = TypeVar("F", bound=Callable[..., Any])


def _database_option(form: str) -> Callable[[F], F]:
    """Return the option --database; ``form`` is its metavar: FILE, or FILE|URL if a URL is accepted."""
    return click.option(
        "--database",
        metavar=form,
        allow_from_autoenv=False,
        help=f"The database.  [BEDROCKJOBS_DATABASE; default: {Settings.model_fields['database'].default}]",
    )


@contextmanager
def database_errors(file: str = "database") -> Iterator[None]:
    """Turn database errors into a message and an exit status; ``file`` names the database in messages."""
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
        message = " ".join(str(error).split())
        raise Failure(f"PostgreSQL: {message}; nothing was done", UNAVAILABLE if away else FAILED) from None
    except sqlite3.Error as error:
        raise Failure(f"{file}: {error}", FAILED) from None
    except OSError as error:
        advice = "; make room there" if error.errno == errno.ENOSPC else ""
        raise Failure(f"{error.filename or file}: {error.strerror or error}{advice}", FAILED) from None


@contextmanager
def locked(database: Path, command: str = "migrate") -> Iterator[None]:
    """Hold the lock of the database, so that no server uses it; raises as ``DatabaseLock.acquire`` does."""
    lock = DatabaseLock(database.resolve())
    lock.acquire()
    try:
        lock.describe(f"bedrockjobs {command} with pid {os.getpid()}")
        yield
    finally:
        lock.release()


@contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """Show a progress bar on stderr and yield a function that updates it; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def size_text(size: int) -> str:
    """Return a size as text: ``1.5 MiB``."""
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
@output_option
@pass_session
def backup(session: Session, file: Path, database: str | None, force: bool, schema: str | None) -> None:
    """Copy the database to FILE while the server keeps running.

    FILE is always a SQLite file, also of a database postgresql://...: a checked snapshot, readable by its
    owner only, which appears once it is complete. `bedrockjobs restore` restores it to a file, `bedrockjobs
    move` to PostgreSQL.
    """
    named = settings_from({}).database if database is None else database
    give_way()
    with database_errors(f"{named if not is_url(named) else 'database'} to {file}"):
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
@_database_option("FILE|URL")
@schema_option
@click.option(
    "--sql-functions",
    "functions",
    is_flag=True,
    help="On PostgreSQL: create the SQL function create_job, for applications that create jobs in their own"
    " transactions, or replace an older version; servers may run.",
)
@click.option(
    "--from-bedrock",
    "old",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Import the jobs of this Bedrock database, with their jobIDs.",
)
@click.option("--skip-bad", is_flag=True, help="With --from-bedrock: skip rows that cannot be imported.")
@click.option(
    "--migration-backup/--no-migration-backup",
    default=True,
    help="Copy the file first, in the same folder; the last two copies are kept.",
)
@output_option
@pass_session
def migrate(
    session: Session,
    database: str | None,
    schema: str | None,
    functions: bool,
    old: Path | None,
    skip_bad: bool,
    migration_backup: bool,
) -> None:
    """Migrate a database to this version's schema, or import a Bedrock database.

    No server may use the database meanwhile. A copy of the database is kept in the same folder. A PostgreSQL
    database is migrated by the servers themselves; --sql-functions adds what applications use there.
    """
    if skip_bad and old is None:
        raise click.UsageError("--skip-bad needs --from-bedrock")
    if functions:
        _install_functions(session, database, schema, others=old is not None)
        return
    if schema is not None:
        raise click.UsageError("--schema needs --sql-functions")
    path = file_named(database)
    with database_errors(str(path)):
        record, did = (
            _migrate(path, keep=migration_backup) if old is None else _import(old, path, skip_bad=skip_bad)
        )
    write_one(record, session.form, did)


def _install_functions(session: Session, database: str | None, schema: str | None, *, others: bool) -> None:
    """Create the SQL functions in a PostgreSQL database."""
    if others:
        raise click.UsageError("--sql-functions: expected nothing together with --from-bedrock")
    named = settings_from({}).database if database is None else database
    if not is_url(named):
        raise click.UsageError(
            "--sql-functions needs a database postgresql://...; for others, see `bedrockjobs outbox --help`"
        )
    with database_errors():
        target = database_named(named, schema)
        from bedrockjobs.store.postgresql.transfer import install_functions  # it needs the driver

        new = install_functions(target)
    function = f"{target.schema}.create_job"
    write_one(
        {"database": target.place, "function": function, "new": new},
        session.form,
        f"Created the function {function} in {target.place}. Let a role use it:"
        f" GRANT EXECUTE ON FUNCTION {function} TO the_role"
        if new
        else f"Replaced the function {function} in {target.place}; its rights are as before.",
    )


def _migrate(path: Path, *, keep: bool) -> tuple[Record, str]:
    """Migrate a database; return what was done, as a record and as a sentence."""
    if not path.is_file():
        raise TransferError(f"there is no database {path}; `bedrockjobs serve` makes one")
    with locked(path):
        copy = None
        if keep:
            with progress_bar(f"Copying {path}") as progress:
                copy = copy_before_migration(path, SystemClock().now(), progress)
        with closing(open_for_writing(path)) as connection:
            before, after, message = schema.apply(connection)
    did = (
        f"{path} is at schema version {after} already."
        if before == after
        else (" ".join((f"Migrated {path} from schema version {before} to {after}.", *message)))
    )
    if copy is not None:
        did += f" The previous database was copied to {copy}."
    return {"database": str(path), "before": before, "after": after, "copy": str(copy) if copy else ""}, did


def _import(old: Path, path: Path, *, skip_bad: bool) -> tuple[Record, str]:
    """Import the jobs of a Bedrock database; return what was done, as a record and as a sentence."""
    findings = examine(old)
    _complain(findings)
    if findings.bad and not skip_bad:
        raise TransferError(
            f"{len(findings.bad)} rows cannot be imported; fix them, or leave them out with --skip-bad"
        )
    with locked(path):
        count = import_jobs(old, path, findings)
    if findings.running:
        click.echo(
            f"{findings.running} jobs are RUNNING: end them, or queue them again by `bedrockjobs job retry`.",
            err=True,
        )
    return (
        {"database": str(path), "imported": count, "skipped": len(findings.bad)},
        f"Imported {count} jobs into {path}" + (f", left out {len(findings.bad)}." if findings.bad else "."),
    )


def _complain(findings: Findings) -> None:
    bad = list(findings.bad.items())
    for job_id, complaint in bad[:50]:
        click.echo(f"Job {job_id}: {complaint}", err=True)
    if bad[50:]:
        click.echo(f"... and {len(bad[50:])} more", err=True)


PREFER_OWN_TOOLS = (
    "a PostgreSQL database is restored by pg_restore or from its archive, a copy of `bedrockjobs backup` by"
    " `bedrockjobs move --from BACKUP --to URL`; `bedrockjobs restore --hold --database URL` holds it then"
)


@click.command()
@click.argument("backup", required=False, type=click.Path(dir_okay=False, path_type=Path))
@_database_option("FILE|URL")
@schema_option
@click.option("--force", is_flag=True, help="Rename an existing database, and restore in its place.")
@click.option("--no-hold", is_flag=True, help="Let jobs and schedules run as soon as a server starts.")
@click.option("--hold", "only_hold", is_flag=True, help="Hold a database that was restored by other means.")
@click.option("--release", is_flag=True, help="Release the queue of a server that is held.")
@takes(ReleaseHold, "by")
@server_options
def restore(
    session: Session,
    backup: Path | None,
    database: str | None,
    schema: str | None,
    force: bool,
    no_hold: bool,
    only_hold: bool,
    release: bool,
    by: str,
) -> None:
    """Replace the database with BACKUP, and hold the queue until --release.

    No server may use the database. BACKUP is checked first and stays unchanged; the database is replaced
    atomically. A server that is started on it accepts commands, but hands out no job, runs no schedule and
    sends no message until `bedrockjobs restore --release`.
    """
    actions = (backup is not None) + only_hold + release
    if actions != 1:
        advice = "give a BACKUP, or --hold, or --release"
        raise click.UsageError(f"{advice}; one of them at a time" if actions else advice)
    if (force or no_hold) and backup is None:
        raise click.UsageError("--force and --no-hold need a BACKUP")
    if release:
        _release(session, by)
        return
    target_name = settings_from({}).database if database is None else database
    give_way()
    if only_hold:
        _hold(session, target_name, schema, by)
    elif is_url(target_name):
        raise click.UsageError(PREFER_OWN_TOOLS)
    else:
        assert backup is not None
        _restore(session, backup, file_named(database), force=force, held=not no_hold, by=by)


def _restore(session: Session, backup: Path, target: Path, *, force: bool, held: bool, by: str) -> None:
    why = Hold(by, f"restored from {backup.name}") if held else None
    with database_errors(f"{backup} to {target}"), progress_bar(f"Restoring {target}") as progress:
        done = put_in_place(backup, target, held=why, force=force, now=_now(), progress=progress)
    write_one(
        {
            "database": str(target),
            "backup": str(backup),
            "jobs": sum(done.states.values()),
            "states": done.states,
            "schedules": done.schedules,
            "seen": done.seen,
            "held": held,
            "aside": str(done.aside) if done.aside else "",
        },
        session.form,
        _words(backup, target, done, held=held),
    )


def _words(backup: Path, target: Path, done: Restored, *, held: bool) -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in done.states.items()) or "no jobs"
    last = f" Its server was last seen at {done.seen} UTC." if done.seen else ""
    lines = [
        f"Restored {target} from {backup}: {states}, {done.schedules:,} of them repeating; checked.{last}",
        *done.told,
    ]
    if done.aside is not None:
        lines.append(f"The previous database is now {done.aside}.")
    if target.with_name(f".{target.name}-litestream").exists():
        lines.append(
            f"Move .{target.name}-litestream away before Litestream starts: it belongs to the old file."
        )
    if held:
        lines.append(f"The queue is held: start the server and check the jobs; {RELEASE}.")
    return "\n".join(lines)


def _hold(session: Session, target_name: str, schema: str | None, by: str) -> None:
    reason = "restored by other means"
    with database_errors():
        if is_url(target_name):
            database = database_named(target_name, schema)
            from bedrockjobs.store.postgresql.transfer import hold_queue  # it needs the driver

            place = database.place
            hold_queue(database, by, reason, _now())
        else:
            path = file_named(target_name)
            if not path.is_file():
                raise TransferError(f"there is no database {path}")
            place = str(path)
            with locked(path, "restore"), closing(held_file(path)) as connection:
                schemas.apply(connection)
                hold(connection, by, reason, _now())
    write_one({"database": place, "held": True}, session.form, f"{place} is held: start a server; {RELEASE}.")


def _release(session: Session, by: str) -> None:
    reply = session.reply(ReleaseHold, {"by": by or None})
    since, reason = text_of(reply, "since"), text_of(reply, "reason")
    why = f" ({reason})" if reason else ""
    write_one(reply, session.form, f"Released the queue, which was held since {since} UTC{why}.")


def _now() -> str:
    return timestamp(SystemClock().now())


@click.command()
@click.option("--from", "source", metavar="FILE|URL", required=True, help="A file, or postgresql://...")
@click.option(
    "--to", "target", metavar="FILE|URL", help="postgresql://..., or a file, which must not exist yet."
)
@schema_option
@click.option("--keep-damaged", is_flag=True, help="Also move jobs whose data is damaged.")
@click.option(
    "--replace-zeros",
    is_flag=True,
    help="Replace NUL characters in output and errors, which PostgreSQL cannot store.",
)
@click.option("--undo", is_flag=True, help="Allow servers on the queue at --from again after a move.")
@output_option
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
    """Move all jobs and runs from a SQLite file to PostgreSQL, or back.

    Stop the server first. Everything is copied in one transaction, read back and compared; then the source is
    marked as moved, and no server starts on it. If anything fails, source and target stay unchanged.
    """
    if undo:
        if target is not None:
            raise click.UsageError("--undo cannot be combined with --to")
        _undo(session, source, schema)
        return
    if target is None:
        raise click.UsageError("--to is missing: give the target of the move")
    _check_kinds(source, target)
    clock = SystemClock()
    begun = clock.monotonic()
    options = MoveOptions(keep_damaged=keep_damaged, replace_zeros=replace_zeros)
    with database_errors(target if is_url(source) else source), progress_bar("Moving") as progress:
        moved, places = (_to_postgresql if is_url(target) else _to_file)(
            source, target, schema, options, progress
        )
    seconds = round(clock.monotonic() - begun, 1)
    write_one(
        {"from": places[0], "to": places[1], **moved._asdict(), "seconds": seconds},
        session.form,
        f"Moved {moved.jobs} jobs and {moved.runs} runs, {moved.rows} rows in all, from {places[0]} to"
        f" {places[1]} in {duration_text(seconds)}. The rows that arrived were compared with"
        f" those that were sent. {places[0]} is marked as moved, and no server starts on it.",
    )


def _check_kinds(source: str, target: str) -> None:
    """Raise UsageError unless one of the two databases is a file and the other is a URL."""
    for text in (source, target):
        if not is_url(text):
            file_named(text)
    if is_url(source) == is_url(target):
        other = "pg_dump copies a database" if is_url(source) else "`bedrockjobs backup` copies a file"
        raise click.UsageError(f"one of --from and --to is a file, the other postgresql://...; {other}")


def _to_postgresql(
    source: str, target: str, schema: str | None, options: MoveOptions, progress: Progress | None
) -> tuple[Moved, tuple[str, str]]:
    """Move a queue from a file to PostgreSQL; return the counts, and the names of both databases."""
    database, path = database_named(target, schema), _existing(source)
    from bedrockjobs.store.postgresql import transfer  # it needs the driver

    place = database.place
    with locked(path, "move"):
        return transfer.to_postgresql(path, database, options, progress), (str(path), place)


def _to_file(
    source: str, target: str, schema: str | None, options: MoveOptions, progress: Progress | None
) -> tuple[Moved, tuple[str, str]]:
    """Move a queue from PostgreSQL to a file; return the counts, and the names of both databases."""
    database, path = database_named(source, schema), file_named(target)
    from bedrockjobs.store.postgresql import transfer

    return transfer.to_sqlite(database, path, options, progress), (database.place, str(path))


def _undo(session: Session, source: str, schema: str | None) -> None:
    with database_errors():
        if is_url(source):
            database = database_named(source, schema)
            from bedrockjobs.store.postgresql import transfer

            name, place = database.place, transfer.undo_move(database)
        else:
            path = _existing(source)
            with locked(path, "move"):
                name, place = str(path), undo_move(path)
    did = (
        f"{name} can be served again. It lacks all changes made at {place} since: start no server there."
        if place
        else f"{name} was not moved; it can be served."
    )
    write_one({"database": name, "movedTo": place}, session.form, did)


def _existing(text: str) -> Path:
    """Return the path of a database file; raises TransferError if the file does not exist.

    Without this check, taking the lock would create the file.
    """
    path = file_named(text)
    if not path.is_file():
        raise TransferError(f"there is no database {path}")
    return path
