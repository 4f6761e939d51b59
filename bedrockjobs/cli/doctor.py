"""``bedrockjobs doctor``: check a server and its database for common problems, without changing anything.

Each check is a function that yields findings. Checks of the server use the session, and checks of a database
file use ``store.offline``. Checks of a PostgreSQL database are in ``doctor_postgresql``.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, moment_of, timestamp
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.database import size_text
from bedrockjobs.cli.lookup import paged
from bedrockjobs.cli.output import (
    Record,
    number_of,
    one_line,
    text_of,
    with_local_times,
    write_many,
    write_wrapped,
)
from bedrockjobs.cli.queue import resume_command
from bedrockjobs.cli.schedule import split_repeat
from bedrockjobs.cli.session import FAILED, CommandRefused, Failure, Session, records_in, server_options
from bedrockjobs.cli.settings_sources import settings_from
from bedrockjobs.cli.verbs import rows
from bedrockjobs.commands import (
    ListSchedules,
    ListWorkflows,
    Overview,
    QueryWorkflow,
    Status,
    ValidateSchedule,
)
from bedrockjobs.schedule.cron import next_tick
from bedrockjobs.store import offline, schema
from bedrockjobs.store.files import owner_of
from bedrockjobs.store.transfer import TransferError
from bedrockjobs.views.problems import SPACE_LOW_BYTES, WHEN_FULL

Level = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """One result of a check, with advice on what to do about it."""

    level: Level
    check: str
    message: str
    advice: str = ""

    @property
    def line(self) -> str:
        """Return the message and the advice as one line."""
        return one_line(f"{self.message} -> {self.advice}" if self.advice else self.message)


COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "red"}

CLOCK_WARN_S, CLOCK_FAIL_S = 2.0, 60.0
"""Seconds between the clocks of the server and this machine from which the check warns, and from which it
fails: timestamps are whole seconds, schedules whole minutes."""

SPACE_FAIL_BYTES = 64 * 1024**2
"""Bytes of free disk space below which the check fails: the size of a few write-ahead logs."""

WAL_WARN_BYTES, WAL_FAIL_BYTES = 256 * 1024**2, 2 * 1024**3
"""Bytes of the write-ahead log from which the check warns, and from which it fails; it usually has a few
MiB."""

PROBE = "0 0 1 */3 *"
"""An expression whose next five ticks show more than a year of a zone's rules."""

DIFFERENCES_SHOWN_MAX = 10
"""Maximum number of schema differences that are listed, so that a line stays readable."""


class ServerStatus(NamedTuple):
    """The status of the server, this machine's time when it arrived, and how many seconds that took."""

    status: dict[str, Any]
    asked: datetime
    took_s: float


def ask(session: Session) -> ServerStatus | Finding:
    """Return the server's status, or a finding if the server does not answer or refuses commands."""
    clock = SystemClock()
    begun = clock.monotonic()
    session.tries = 1
    try:
        status = session.reply(Status)
    except Failure as failure:
        if isinstance(failure, CommandRefused) and isinstance(failure.error, Unavailable):
            message = f"the server at {session.server} refuses commands: {failure.message}"
            return Finding("fail", "server", message, "`/readyz` and its log say what it waits for")
        message = f"no server answers at {session.server}: {failure.message}"
        return Finding("fail", "server", message, "start `bedrockjobs serve`, or name it by --server")
    took_s = clock.monotonic() - begun
    return ServerStatus({key: jsontext.parse(value) for key, value in status.items()}, clock.now(), took_s)


def check_server(session: Session, server: ServerStatus) -> Iterator[Finding]:
    """Report which server answers."""
    status = server.status
    message = (
        f"{status['version']} at {session.answering}, {status['state']}, durability {status['durability']}"
    )
    if status["state"] != "serving":
        yield Finding("warn", "server", message, "it is stopping: wait, then start it again")
    else:
        yield Finding("ok", "server", message)


def check_clock(server: ServerStatus) -> Iterator[Finding]:
    """Compare the server's clock with the clock of this machine."""
    apart_s = (moment_of(server.status["now"]) - server.asked).total_seconds()
    off_s = max(abs(apart_s) - server.took_s - 1, 0)  # its timestamp is truncated to a second
    message = f"the server's clock is {abs(apart_s):.0f} s {'ahead of' if apart_s > 0 else 'behind'} this one"
    advice = "synchronize both clocks by NTP (timedatectl set-ntp true), unless it is a --test-clock"
    if off_s >= CLOCK_FAIL_S:
        yield Finding("fail", "clock", message, advice)
    elif off_s >= CLOCK_WARN_S:
        yield Finding("warn", "clock", message, advice)
    else:
        yield Finding("ok", "clock", "the server's clock and this one agree")


def check_zones(session: Session) -> Iterator[Finding]:
    """Find schedules with a missing time zone, and compare the server's zone rules with this machine's."""
    names: dict[str, list[str]] = {}
    looked_at = paged(session, ListSchedules, {}, 10_000)  # a server is built for this many
    for row in looked_at:
        zone = split_repeat(text_of(row, "repeat"))[1]
        if zone and text_of(row, "state") != "FAILED":
            names.setdefault(zone, []).append(text_of(row, "name"))
    differs = False
    # Maximum number of time zones to ask the server about, one request each.
    for zone, schedules in list(names.items())[:100]:
        probe = f"CRON TZ={zone} {PROBE}"
        reply = session.record(ValidateSchedule(repeat=probe))
        users = schedules[0] if len(schedules) == 1 else f"{schedules[0]} and {len(schedules) - 1} more"
        if reply["valid"] != "true":
            differs = True
            message = f"the server has no time zone {zone}, which {users} uses"
            advice = (
                "install tzdata there, or give it a zone that exists: `bedrockjobs schedule update --zone`"
            )
            yield Finding("fail", "zones", message, advice)
            continue
        server_ticks = [str(tick) for tick in jsontext.parse(reply["next"])]
        try:
            local_ticks = [timestamp(tick) for tick in _ticks_here(zone, server_ticks)]
        except ValueError:
            continue  # this machine does not have the zone, and no schedule runs by its rules
        if local_ticks != server_ticks:
            differs = True
            message = f"the server's rules of {zone}, which {users} uses, differ from those of this machine"
            advice = "update tzdata on both; the server reads new rules at its start and once a day"
            yield Finding("warn", "zones", message, advice)
    if names and not differs:
        yield Finding("ok", "zones", f"the rules of {len(names)} time zones are the same as on this machine")


def _ticks_here(zone: str, server_ticks: list[str]) -> Iterator[datetime]:
    """Yield ticks of ``PROBE`` by this machine's rules: as many as the server's, from the same time on."""
    at: datetime | None = moment_of(server_ticks[0]) - timedelta(days=1)
    for _ in server_ticks:
        at = next_tick(PROBE, at, zone) if at is not None else None
        if at is not None:
            yield at


# --- the file --------------------------------------------------------------------------------------------


def check_schema(path: Path) -> Iterator[Finding]:
    """Check the schema and the journal mode, and that the database was not last used in the future."""
    try:
        schema_found = offline.schema_of(path)
    except (TransferError, sqlite3.Error) as error:
        yield Finding(
            "fail", "schema", f"{path}: {error}", "restore a backup, or name the file by --database"
        )
        return
    if schema_found.version > schema.VERSION:
        message = f"version {schema_found.version}; this program supports up to {schema.VERSION}"
        yield Finding("fail", "schema", message, "use a newer bedrockjobs")
    elif schema_found.version < schema.VERSION:
        message = f"version {schema_found.version}, behind {schema.VERSION}"
        yield Finding("warn", "schema", message, "make a backup, stop the server, `bedrockjobs migrate`")
    elif schema_found.differences:
        message = "; ".join(schema_found.differences[:DIFFERENCES_SHOWN_MAX])
        more = len(schema_found.differences) - DIFFERENCES_SHOWN_MAX
        message += f"; and {more} more" if more > 0 else ""
        yield Finding("fail", "schema", message, "revert manual changes, or copy the jobs to a new file")
    else:
        yield Finding("ok", "schema", f"version {schema_found.version}, as expected")
    if schema_found.journal_mode != "wal":
        message = f"the journal mode is {schema_found.journal_mode}, not wal"
        yield Finding("warn", "schema", message, "start the server, which sets it")
    if schema_found.seen > timestamp(SystemClock().now()):
        message = f"a server wrote at {schema_found.seen}, which is in the future"
        yield Finding("warn", "clock", message, "the clock was set back: check it before schedules run twice")


def check_disk(path: Path) -> Iterator[Finding]:
    """Check the free disk space, and that the disk is local."""
    free = shutil.disk_usage(path.parent).free
    size = path.stat().st_size
    message = f"{size_text(free)} free, the database has {size_text(size)}"
    if free < SPACE_FAIL_BYTES:
        yield Finding("fail", "disk", message, f"make room: {WHEN_FULL}")
    elif free < SPACE_LOW_BYTES:
        yield Finding("warn", "disk", message, f"make room: {WHEN_FULL}")
    elif free < size:
        yield Finding("warn", "disk", message, "a backup does not fit here: write it elsewhere, or make room")
    else:
        yield Finding("ok", "disk", message)
    kind = offline.file_system_of(path)
    if kind in offline.NETWORK_FILE_SYSTEMS:
        message = f"the file system is {kind}"
        yield Finding("fail", "disk", message, "move the database to a local disk: locks and syncs need one")


def check_wal(path: Path) -> Iterator[Finding]:
    """Check that the write-ahead log is not too large."""
    wal = path.with_name(f"{path.name}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    advice = "end long-running reads (a backup, sqlite3 on the file), then restart the server"
    if size >= WAL_FAIL_BYTES:
        yield Finding("fail", "wal", size_text(size), advice)
    elif size >= WAL_WARN_BYTES:
        yield Finding("warn", "wal", size_text(size), advice)
    else:
        yield Finding("ok", "wal", size_text(size))


def check_damage(path: Path) -> Iterator[Finding]:
    """Read the whole database, and compare its indexes with its tables."""
    try:
        faults = offline.faults_of(path, whole=True)
    except (TransferError, sqlite3.Error) as error:
        yield Finding("fail", "damage", f"{path}: {error}", "run doctor as a user who may read the file")
        return
    if faults:
        advice = f"restore a backup, or save what can be read: `sqlite3 {path} .recover | sqlite3 new.db`"
        yield Finding("fail", "damage", "; ".join(faults), advice)
    else:
        yield Finding("ok", "damage", "the whole file was read, and no damage was found")


def check_owner(path: Path, server: ServerStatus | None) -> Iterator[Finding]:
    """Check that the server which answered, and no other, holds the lock of the database."""
    if path.stat().st_nlink > 1:
        message = f"{path} has {path.stat().st_nlink} hard links, and each could get a server of its own"
        yield Finding("fail", "owner", message, "remove the other hard links")
    try:
        owner = owner_of(path)
    except OSError as error:
        yield Finding("warn", "owner", f"the lock file: {error.strerror}", "run doctor as the server's user")
        return
    if owner is None:
        if server is None:
            yield Finding("warn", "owner", f"no server owns {path}", "start `bedrockjobs serve`")
        else:
            message = f"no server owns {path}, but a server answers"
            yield Finding("fail", "owner", message, "it serves another file: name that with --database")
    elif server is not None and f"pid {server.status['pid']} " not in f"{owner} ":
        message = f"the server that answers has pid {server.status['pid']}; {path} is owned by {owner}"
        yield Finding("fail", "owner", message, "name the server and its database by --server and --database")
    else:
        yield Finding("ok", "owner", f"owned by {owner} only")


# --- the jobs --------------------------------------------------------------------------------------------


_CHECKS = {
    "held": "paused",
    "disk low": "disk",
    "paused": "paused",
    "no worker": "workers",
    "own command": "workers",
    "drained": "workers",
}
"""The check under which each kind of problem is reported; all other kinds are reported under ``jobs``."""

_ADVICE = {
    "disk low": "make room",
    "no worker": "`bedrock-worker --name NAME -- COMMAND` starts one;"
    " `bedrockjobs worker list` shows which worker asks for what",
    "own command": "start a worker with --allow-shell for cmd, --allow-cmd for argv, or --allow-url for url",
    "drained": "`bedrockjobs worker drain --undo` lets it take jobs again",
    "late": "start more workers, or look at the running jobs: `bedrockjobs top`",
    "blocked": "look at the job that holds the lock: `bedrockjobs job show`",
    "failed": "`bedrockjobs failure list` shows them, and `failure seen` acknowledges them",
    "last run failed": "`bedrockjobs run list` shows why",
    "messages": "`bedrockjobs notify list` shows the rules, `bedrockjobs notify test` tries one",
}


def check_jobs(session: Session, server: ServerStatus, *, of_disk: bool) -> Iterator[Finding]:
    """Report the problems of the server's overview: pauses, jobs that no worker takes, and failures.

    With ``of_disk``, problems of the server's disk are included; leave it out if that disk was checked
    already.
    """
    try:
        overview = session.reply(Overview)
        problems = records_in(overview["problems"])
    except Failure as failure:
        yield Finding("warn", "jobs", f"could not be checked: {failure.message}", "try again later")
        return
    checks = [_finding(problem, overview, server) for problem in problems]
    taking, workers = text_of(overview, "taking"), text_of(overview, "workers")
    for well in (
        Finding("ok", "paused", "nothing is paused"),
        Finding(
            "ok", "workers", f"{taking} of {workers} take jobs; each ready job has a worker for its name"
        ),
    ):
        yield from [finding for finding in checks if finding.check == well.check] or [well]
    yield Finding("ok", "jobs", counts_text(overview))
    yield from (finding for finding in checks if finding.check == "jobs")
    if of_disk:
        yield from (finding for finding in checks if finding.check == "disk")


GOES_ON = frozenset({"QUEUED", "RUNNING", "RUNQUEUED"})
"""States in which a job goes on without help, and so does its workflow."""


def check_workflows(session: Session) -> Iterator[Finding]:
    """Report workflows that failed, and RUNNING workflows in which no job can go on."""
    failed = rows(session, ListWorkflows, {"state": "FAILED"})
    if failed:
        newest = text_of(failed[0], "workflowID")
        message = f"{number_of(len(failed), 'workflow')} failed, the newest is {newest}"
        advice = (
            f"`bedrockjobs workflow show {newest}` shows why, `workflow retry {newest}` starts again what did"
            f" not finish, `workflow cancel {newest}` gives it up"
        )
        yield Finding("warn", "jobs", message, advice)
    # the newest ones, because all jobs of each are read
    for one in session.rows(ListWorkflows, {"state": "RUNNING", "limit": 20}):
        number = text_of(one, "workflowID")
        jobs = [
            job for job in rows(session, QueryWorkflow, {"workflowID": number}) if not text_of(job, "ended")
        ]
        if jobs and not any(map(_goes_on, jobs)):
            message = f"workflow {number} ({text_of(one, 'name')}) is RUNNING, but none of its jobs can go on"
            advice = f"`bedrockjobs workflow show {number}`, then `bedrockjobs workflow cancel {number}`"
            yield Finding("warn", "jobs", message, advice)


def _goes_on(job: Record) -> bool:
    """Return whether a job is queued, runs, or waits only for its children."""
    state = text_of(job, "state")
    return state in GOES_ON or (state == "PAUSED" and text_of(job, "waits") == "0")


def counts_text(overview: Record) -> str:
    """Return the counts of jobs by state as a text; ``or more`` marks a count that reached its limit."""
    more = jsontext.parse(overview["more"])
    return ", ".join(
        f"{int(text_of(overview, name)):,}{' or more' if name in more else ''} {name}"
        for name in ("ready", "later", "running", "paused", "blocked", "mocked", "failed")
    )


def _finding(problem: Record, overview: Record, server: ServerStatus) -> Finding:
    kind, name = text_of(problem, "kind"), text_of(problem, "name")
    advice = _ADVICE.get(kind, "")
    level: Level = "warn"
    if kind == "paused":
        advice = f"`{resume_command(name)}` ends it" if name else "`bedrockjobs call ListPauses` shows them"
    elif kind in ("no worker", "own command") and int(text_of(overview, "workers")):
        since = text_of(problem, "since")
        waited_s = (moment_of(server.status["now"]) - moment_of(since)).total_seconds() if since else 0.0
        # Time after which an untaken job is a problem: a worker that is starting would have taken it.
        level = "fail" if waited_s >= 300.0 else "warn"
    return Finding(level, _CHECKS.get(kind, "jobs"), with_local_times(text_of(problem, "detail")), advice)


# --- the command -----------------------------------------------------------------------------------------


def database_of(database: str | None, server: ServerStatus | None) -> Settings:
    """Return settings with the database to check.

    It is the given one, else the configured one, else the server's, else the default.
    """
    named_settings = settings_from({"database": database})
    if database is None and server is not None and "database" not in named_settings.model_fields_set:
        settings = named_settings.model_copy(update={"database": server.status["database"]})
        if (
            settings.database
            and not settings.on_postgresql
            and not (path := settings.database_path()).is_absolute()
        ):
            path = _folder_of(server.status["pid"]) / path
            return named_settings.model_copy(update={"database": str(path)})
        return settings
    return named_settings


def _folder_of(pid: int) -> Path:
    """Return the working directory of a process, or of this process if that cannot be read."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return Path()


def findings(session: Session, database: str | None, *, scrub: bool) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    server_found = ask(session)
    server = None if isinstance(server_found, Finding) else server_found
    if isinstance(server_found, Finding):
        yield server_found
    else:
        yield from check_server(session, server_found)
        yield from check_clock(server_found)
    settings = database_of(database, server)
    if not settings.database:
        message = "the server shows its location only to clients without a scope"
        yield Finding("warn", "database", message, "name it by --database, or show a token for all names")
    elif settings.on_postgresql:
        yield from postgresql_findings(settings, server, scrub=scrub)
    else:
        yield from file_findings(settings.database_path(), server, scrub=scrub)
    if server is not None:
        try:
            yield from check_zones(session)
        except Failure as failure:
            yield Finding("warn", "zones", f"could not be checked: {failure.message}", "try again later")
        is_here = bool(settings.database) and not settings.on_postgresql and settings.database_path().exists()
        yield from check_jobs(session, server, of_disk=not is_here)
        try:
            yield from check_workflows(session)
        except Failure as failure:
            yield Finding(
                "warn", "jobs", f"workflows: could not be checked: {failure.message}", "try again later"
            )


def postgresql_findings(settings: Settings, server: ServerStatus | None, *, scrub: bool) -> Iterator[Finding]:
    """Yield the findings about a PostgreSQL database."""
    if ":***@" in settings.database or "=***" in settings.database:
        message = f"{settings.shown_database}: the server does not show its password"
        yield Finding("warn", "database", message, "give the whole URL by --database or BEDROCKJOBS_DATABASE")
        return
    try:
        from bedrockjobs.cli import doctor_postgresql
    except ImportError as error:
        if error.name != "psycopg":
            raise
        message = "the driver for PostgreSQL is not installed here"
        yield Finding("warn", "database", message, "pip install 'bedrockjobs[postgresql]'")
        return
    yield from doctor_postgresql.findings(settings, server and server.status["durability"])
    if scrub:
        yield Finding("warn", "damage", "--scrub is for files", "pg_amcheck reads a PostgreSQL database")


def file_findings(path: Path, server: ServerStatus | None, *, scrub: bool) -> Iterator[Finding]:
    """Yield the findings about a file."""
    if path.exists() and not path.is_file():
        message = f"{path} is not a file"
        yield Finding("fail", "database", message, "name the file by --database")
    elif path.exists():
        checks: list[Callable[[Path], Iterator[Finding]]] = [
            check_schema,
            check_disk,
            check_wal,
            partial(check_owner, server=server),
            *([check_damage] if scrub else []),
        ]
        for check in checks:
            yield from check(path)
    else:
        message = f"{path} is not on this machine"
        yield Finding("warn", "database", message, "run doctor where the server runs, or give --database")


@click.command()
@click.option(
    "--database",
    metavar="FILE|URL",
    allow_from_autoenv=False,
    help="The database.  [BEDROCKJOBS_DATABASE; default: that of the server]",
)
@click.option("--scrub", is_flag=True, help="Read all of the database for damage: minutes, if it is large.")
@server_options
def doctor(session: Session, database: str | None, scrub: bool) -> None:
    """Check for common problems, and advise; changes nothing.

    One line per finding: ok, warn or fail. Exits with 1 if a check failed. Run it as the server's user on the
    server's machine; elsewhere it does not check the file.
    """
    failed = False
    records = []
    for finding in findings(session, database, scrub=scrub):
        failed = failed or finding.level == "fail"
        if session.form == "table":
            write_wrapped(
                finding.line, (f"{finding.level:<5}", COLOURS[finding.level]), (f"{finding.check:<9}", "")
            )
        else:
            message = {"finding": finding.message, "advice": finding.advice}
            records.append({"check": finding.check, "level": finding.level, **message})
    if session.form != "table":
        write_many(records, session.form, identity="check")
    if failed:
        click.get_current_context().exit(FAILED)
