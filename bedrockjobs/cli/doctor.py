"""``bedrockjobs doctor``: looks for what usually goes wrong with a server and its file, and changes nothing.

Each check is a function that returns findings. What is asked of the server goes through the session, what is
read from the file through ``store.inspection``.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import Settings
from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.glob import glob
from bedrockjobs.base.wire import moment_of, stamp
from bedrockjobs.cli.database import size_text
from bedrockjobs.cli.looks import look
from bedrockjobs.cli.output import printable, styled, text_of, write_many
from bedrockjobs.cli.schedule_control import EVERYTHING, resume_command
from bedrockjobs.cli.serve import settings_from
from bedrockjobs.cli.session import FAILED, Failure, Session, built, pass_session, talks
from bedrockjobs.commands import ListWorkers, Query, Status
from bedrockjobs.job.lanes import parse_lane
from bedrockjobs.store import inspection, schema
from bedrockjobs.store.backup import CopyError

Level = Literal["ok", "warn", "fail"]

COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "red"}

CLOCK_WARN_S, CLOCK_FAIL_S = 2.0, 60.0
"""Differences of two clocks: stamps are whole seconds; schedules are by the minute."""

ROOM_WARN_BYTES, ROOM_FAIL_BYTES = 1024**3, 64 * 1024**2
"""Room on the disk: a day of a busy queue; a few of its write-ahead logs."""

WAL_WARN_BYTES, WAL_FAIL_BYTES = 256 * 1024**2, 2 * 1024**3
"""Sizes of the write-ahead log, which is a few MiB while nobody holds it back."""

WAITED_FAIL_S = 300.0
"""Time after which a job that no worker asks for is no longer a worker that is about to start."""

NAMES_SHOWN_MAX = 20
"""Names that are listed one by one; the rest is counted."""

DIFFERENCES_SHOWN_MAX = 10
"""Differences of a schema that are named."""


class Finding(NamedTuple):
    """What a check found, and what to do about it."""

    level: Level
    check: str
    words: str
    advice: str = ""

    @property
    def line(self) -> str:
        """Return it as one line."""
        advice = f" -> {self.advice}" if self.advice else ""
        return printable(f"{self.check:<9}{self.words}{advice}")


class Server(NamedTuple):
    """What the server said, and when it was asked."""

    status: dict[str, Any]
    asked: datetime
    took_s: float


def ask(session: Session) -> Server | Finding:
    """Ask the server how it is."""
    clock = SystemClock()
    begun = clock.monotonic()
    session.tries = 1
    try:
        status = session.record(Status())
    except Failure as failure:
        words = f"no server answers at {session.server}: {failure.message}"
        return Finding("fail", "server", words, "start `bedrockjobs serve`, or name it by --server")
    took_s = clock.monotonic() - begun
    return Server({key: jsontext.parse(value) for key, value in status.items()}, clock.now(), took_s)


def check_server(session: Session, server: Server) -> Iterator[Finding]:
    """Tell which server it is."""
    status = server.status
    words = f"{status['version']} at {session.server}, {status['state']}, durability {status['durability']}"
    if status["state"] != "serving":
        yield Finding("warn", "server", words, "it stops: wait, and start it again")
    else:
        yield Finding("ok", "server", words)


def check_clock(server: Server) -> Iterator[Finding]:
    """Compare the server's clock with this machine's."""
    apart_s = (moment_of(server.status["now"]) - server.asked).total_seconds()
    off_s = max(abs(apart_s) - server.took_s - 1, 0)  # its stamp is cut to a second
    words = f"the server's clock is {abs(apart_s):.0f} s {'ahead of' if apart_s > 0 else 'behind'} this one"
    advice = "let NTP set both clocks (timedatectl set-ntp true); not where it is a --test-clock"
    if off_s >= CLOCK_FAIL_S:
        yield Finding("fail", "clock", words, advice)
    elif off_s >= CLOCK_WARN_S:
        yield Finding("warn", "clock", words, advice)
    else:
        yield Finding("ok", "clock", "the server's clock and this one agree")


# --- the file --------------------------------------------------------------------------------------------


def check_schema(path: Path) -> Iterator[Finding]:
    """Look at how the database is made, and when it was last in use."""
    try:
        found = inspection.schema_of(path)
    except (CopyError, sqlite3.Error) as error:
        yield Finding(
            "fail", "schema", f"{path}: {error}", "restore a backup, or name the file by --database"
        )
        return
    if found.version > schema.VERSION:
        words = f"version {found.version}; this program knows up to {schema.VERSION}"
        yield Finding("fail", "schema", words, "use a newer bedrockjobs")
    elif found.version < schema.VERSION:
        words = f"version {found.version}, behind {schema.VERSION}"
        yield Finding("warn", "schema", words, "make a backup, stop the server, `bedrockjobs migrate`")
    elif found.differences:
        words = "; ".join(found.differences[:DIFFERENCES_SHOWN_MAX])
        more = len(found.differences) - DIFFERENCES_SHOWN_MAX
        words += f"; and {more} more" if more > 0 else ""
        yield Finding(
            "fail", "schema", words, "undo what was changed by hand, or copy the jobs to a new file"
        )
    else:
        yield Finding("ok", "schema", f"version {found.version}, as it should be")
    if found.journal_mode != "wal":
        words = f"the journal mode is {found.journal_mode}, not wal"
        yield Finding("warn", "schema", words, "start the server, which sets it")
    if found.seen > stamp(SystemClock().now()):
        words = f"a server wrote at {found.seen}, which is yet to come"
        yield Finding("warn", "clock", words, "the clock was set back: check it before schedules run twice")


def check_disk(path: Path) -> Iterator[Finding]:
    """Look at the room on the disk, and whether it is a disk of this machine."""
    free = shutil.disk_usage(path.parent).free
    size = path.stat().st_size
    words = f"{size_text(free)} free, the database has {size_text(size)}"
    advice = "make room: on a full disk no jobs are created"
    if free < ROOM_FAIL_BYTES:
        yield Finding("fail", "disk", words, advice)
    elif free < ROOM_WARN_BYTES:
        yield Finding("warn", "disk", words, advice)
    elif free < size:
        yield Finding("warn", "disk", words, "a backup does not fit here: write it elsewhere, or make room")
    else:
        yield Finding("ok", "disk", words)
    kind = inspection.file_system_of(path)
    if kind in inspection.NETWORK_FILE_SYSTEMS:
        words = f"the file system is {kind}"
        yield Finding("fail", "disk", words, "move the database to a local disk: locks and syncs need one")


def check_wal(path: Path) -> Iterator[Finding]:
    """Look at the size of the write-ahead log."""
    wal = path.with_name(f"{path.name}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    advice = "end what has been reading for long (a backup, sqlite3 on the file), then restart the server"
    if size >= WAL_FAIL_BYTES:
        yield Finding("fail", "wal", size_text(size), advice)
    elif size >= WAL_WARN_BYTES:
        yield Finding("warn", "wal", size_text(size), advice)
    else:
        yield Finding("ok", "wal", size_text(size))


def check_owner(path: Path, server: Server | None) -> Iterator[Finding]:
    """Look at whether one server, and the one that was asked, owns the database."""
    if path.stat().st_nlink > 1:
        words = f"{path} has {path.stat().st_nlink} names, and each could get a server of its own"
        yield Finding("fail", "owner", words, "remove the other hard links")
    try:
        owner = inspection.owner_of(path)
    except OSError as error:
        yield Finding("warn", "owner", f"the lock file: {error.strerror}", "run doctor as the server's user")
        return
    if owner is None:
        if server is None:
            yield Finding("warn", "owner", f"nobody owns {path}", "start `bedrockjobs serve`")
        else:
            words = f"nobody owns {path}, but a server answers"
            yield Finding("fail", "owner", words, "it has another file: name that by --database")
    elif server is not None and f"pid {server.status['pid']} " not in f"{owner} ":
        words = f"the server that answers has pid {server.status['pid']}; {path} is owned by {owner}"
        yield Finding("fail", "owner", words, "name the server and its database by --server and --database")
    else:
        yield Finding("ok", "owner", f"owned by {owner}, and by nobody else")


# --- what is due -----------------------------------------------------------------------------------------


_ACCEPTING = {"cmd": "--allow-shell", "argv": "--allow-cmd", "url": "--allow-cmd"}
"""The option by which a worker accepts a job's own command."""


class Due(NamedTuple):
    """A name of which a job is due."""

    lane: str
    name: str
    since: str


@cache
def _statement() -> str:
    text = Path(__file__).with_name("doctor.sql").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if not line.startswith("--")]
    return " ".join(line for line in lines if line)


def check_paused(session: Session, server: Server) -> Iterator[Finding]:
    """Tell what somebody paused: what is due and held back looks like a server that does nothing."""
    try:
        held = look(session, "pauses", stamp(moment_of(server.status["now"])))
    except Failure as failure:
        yield Finding("warn", "paused", f"could not be looked at: {failure.message}", "try again later")
        return
    for pause in held[:NAMES_SHOWN_MAX]:
        pattern, by, reason, since, until = (
            text_of(pause, key) for key in ("pattern", "by", "reason", "since", "until")
        )
        words = f"{'everything' if pattern == EVERYTHING else pattern} is paused"
        words += f" by {by}" if by else ""
        words += f" since {since[:19]} UTC"
        words += f" until {until[:19]} UTC" if until else ""
        words += f": {reason}" if reason else ""
        yield Finding("warn", "paused", words, f"`{resume_command(pattern)}` ends it")
    if len(held) > NAMES_SHOWN_MAX:
        words = f"{len(held) - NAMES_SHOWN_MAX} more patterns"
        yield Finding("warn", "paused", words, "`bedrockjobs events --kind paused` tells who paused what")
    if not held:
        yield Finding("ok", "paused", "nothing is paused")


def check_workers(session: Session, server: Server) -> Iterator[Finding]:
    """Look for names that are queued and due, and that no live worker asks for."""
    now = server.status["now"]
    query = built(Query, {"query": _statement().replace("{now}", stamp(moment_of(now))), "format": "json"})
    try:
        workers = jsontext.parse(session.record(ListWorkers())["workers"])
        due = [Due(*row) for row in jsontext.parse(session.record(query)["rows"])]
    except Failure as failure:
        yield Finding("warn", "workers", f"could not be looked at: {failure.message}", "try again later")
        return
    active = [worker for worker in workers if worker["status"] == "active"]
    alone = sorted(
        {row.name: row for row in due if not _asked_for(row, active)}.values(), key=lambda d: d.since
    )
    for row in alone[:NAMES_SHOWN_MAX]:
        yield _unreached(row, now, len(workers))
    if len(alone) > NAMES_SHOWN_MAX:
        words = f"{len(alone) - NAMES_SHOWN_MAX} more names that no live worker asks for"
        yield Finding("warn", "workers", words, "`bedrockjobs worker list` shows who asks for what")
    if not alone:
        yield Finding(
            "ok", "workers",
            f"{len(active)} of {len(workers)} take jobs; every due name that is not paused is asked for",
        )  # fmt: skip


def _asked_for(row: Due, workers: list[dict[str, Any]]) -> bool:
    """Tell whether a worker asks for a job, and accepts the command that it may bring."""
    lane = parse_lane(row.lane)
    return any(
        lane.worker in ("", worker["name"])
        and lane.own in ("", *worker["accepts"])
        and any(glob(row.name, pattern) for pattern in worker["names"])
        for worker in workers
    )


def _unreached(row: Due, now: str, workers: int) -> Finding:
    waited_s = (moment_of(now) - moment_of(row.since)).total_seconds()
    lane = parse_lane(row.lane)
    if lane.worker:
        who = f"worker {lane.worker} does not ask for it"
    else:
        who = f"none of {workers} live workers asks for it"
    if lane.own:
        who += f" with {_ACCEPTING[lane.own]}, which its {lane.own} needs"
    words = f"{row.name} is due for {duration_text(max(int(waited_s), 0))}, and {who}"
    accepting = f" {_ACCEPTING[lane.own]} {row.name!r}" if lane.own else ""
    advice = f"start one with --name {row.name!r}{accepting}; clients without a worker name are not seen here"
    return Finding("fail" if workers and waited_s >= WAITED_FAIL_S else "warn", "workers", words, advice)


# --- the command -----------------------------------------------------------------------------------------


def database_of(given: str | None, server: Server | None) -> Path:
    """Return the database: as it is named, else as the server says, else the default."""
    named = settings_from({"database": given})
    if given is None and server is not None and "database" not in named.model_fields_set:
        path = Settings(database=server.status["database"]).database_path()
        return path if path.is_absolute() else _folder_of(server.status["pid"]) / path
    return named.database_path()


def _folder_of(pid: int) -> Path:
    """Return where a process works; this folder where it is not to be seen."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return Path()


def findings(session: Session, database: str | None) -> Iterator[Finding]:
    """Yield what is found, check after check."""
    found = ask(session)
    server = None if isinstance(found, Finding) else found
    if isinstance(found, Finding):
        yield found
    else:
        yield from check_server(session, found)
        yield from check_clock(found)
    path = database_of(database, server)
    if path.exists():
        checks: list[Callable[[Path], Iterator[Finding]]] = [
            check_schema, check_disk, check_wal, partial(check_owner, server=server),
        ]  # fmt: skip
        for check in checks:
            yield from check(path)
    else:
        words = f"{path} is not here"
        yield Finding("warn", "database", words, "run doctor where the server runs, or give --database")
    if server is not None:
        yield from check_paused(session, server)
        yield from check_workers(session, server)


@click.command()
@click.option(
    "--database", metavar="FILE", allow_from_autoenv=False,
    help="The database.  [BEDROCKJOBS_DATABASE; default: what the server says]",
)  # fmt: skip
@talks
@pass_session
def doctor(session: Session, database: str | None) -> None:
    """Look for what usually goes wrong, and say what to do; changes nothing.

    One line a finding: ok, warn or fail. Ends with 1 if anything failed. Run it as the server's user where
    the server runs; elsewhere it leaves the file alone.
    """
    failed = False
    rows = []
    for finding in findings(session, database):
        failed = failed or finding.level == "fail"
        if session.form == "table":
            click.echo(f"{styled(f'{finding.level:<5}', fg=COLOURS[finding.level])}{finding.line}")
        else:
            words = {"finding": finding.words, "advice": finding.advice}
            rows.append({"check": finding.check, "level": finding.level, **words})
    if session.form != "table":
        write_many(rows, session.form, identity="check")
    if failed:
        click.get_current_context().exit(FAILED)
