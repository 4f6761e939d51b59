"""``bedrockjobs restore``: a backup in the place of the database, held until somebody releases it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from bedrockjobs.base.background import give_way
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.wire import timestamp
from bedrockjobs.cli.database import owned, progress_bar, told
from bedrockjobs.cli.output import text_of, write_one
from bedrockjobs.cli.places import database_named, file_named, is_url, schema_option
from bedrockjobs.cli.session import Session, built, pass_session, talks
from bedrockjobs.cli.settings_sources import settings_from
from bedrockjobs.cli.verbs import takes
from bedrockjobs.commands import ReleaseHold
from bedrockjobs.job.quarantine import RELEASE
from bedrockjobs.store import schema as schemas
from bedrockjobs.store.schema import held_file, hold
from bedrockjobs.store.transfer import Hold, Restored, TransferError
from bedrockjobs.store.transfer import restore as put_in_place

PREFER_OWN_TOOLS = (
    "a PostgreSQL database is restored by pg_restore or from its archive, a copy of `bedrockjobs backup` by"
    " `bedrockjobs move --from BACKUP --to URL`; `bedrockjobs restore --hold --database URL` holds it then"
)


@click.command()
@click.argument("backup", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--database",
    metavar="FILE|URL",
    allow_from_autoenv=False,
    help="The database.  [BEDROCKJOBS_DATABASE; default: jobs.db]",
)
@schema_option
@click.option("--force", is_flag=True, help="Put a database aside that is there, and restore in its place.")
@click.option("--no-hold", is_flag=True, help="Let jobs and schedules run as soon as a server starts.")
@click.option("--hold", "only_hold", is_flag=True, help="Hold a database that was restored by other means.")
@click.option("--release", is_flag=True, help="Let a server go on whose queue is held.")
@takes(ReleaseHold, "by")
@talks
@pass_session
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
    """Put BACKUP in the place of the database, and hold it until --release.

    No server may use the database. BACKUP is checked first and stays as it is; the database appears at once
    or not at all. A server that is started on it takes commands, but hands out no job, runs no schedule and
    sends no message until `bedrockjobs restore --release` reaches it.
    """
    given = (backup is not None) + only_hold + release
    if given != 1:
        words = "give a BACKUP, or --hold, or --release"
        raise click.UsageError(f"{words}; one of them at a time" if given else words)
    if (force or no_hold) and backup is None:
        raise click.UsageError("--force and --no-hold have a meaning with a BACKUP only")
    if release:
        _release(session, by)
        return
    named = settings_from({}).database if database is None else database
    give_way()
    if only_hold:
        _hold(session, named, schema, by)
    elif is_url(named):
        raise click.UsageError(PREFER_OWN_TOOLS)
    else:
        assert backup is not None
        _restore(session, backup, file_named(database), force=force, held=not no_hold, by=by)


def _restore(session: Session, backup: Path, target: Path, *, force: bool, held: bool, by: str) -> None:
    why = Hold(by, f"restored from {backup.name}") if held else None
    with told(f"{backup} to {target}"), progress_bar(f"Restoring {target}") as progress:
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
        lines.append(f"The database that was there is {done.aside}.")
    if target.with_name(f".{target.name}-litestream").exists():
        lines.append(f"Move .{target.name}-litestream away before Litestream starts: it is the old file's.")
    if held:
        lines.append(f"It is held: start the server, look at it, and {RELEASE}.")
    return "\n".join(lines)


def _hold(session: Session, named: str, schema: str | None, by: str) -> None:
    reason = "restored by other means"
    with told():
        if is_url(named):
            database = database_named(named, schema)
            from bedrockjobs.store.postgresql.transfer import hold_queue  # it needs the driver

            place = database.place
            hold_queue(database, by, reason, _now())
        else:
            path = file_named(named)
            if not path.is_file():
                raise TransferError(f"there is no database {path}")
            place = str(path)
            with owned(path, "restore"), closing(held_file(path)) as connection:
                schemas.apply(connection)
                hold(connection, by, reason, _now())
    write_one(
        {"database": place, "held": True}, session.form, f"{place} is held: start a server, and {RELEASE}."
    )


def _release(session: Session, by: str) -> None:
    reply = session.record(built(ReleaseHold, {"by": by or None}))
    since, reason = text_of(reply, "since"), text_of(reply, "reason")
    why = f" ({reason})" if reason else ""
    write_one(reply, session.form, f"Released what was held since {since} UTC{why}.")


def _now() -> str:
    return timestamp(SystemClock().now())
