"""``bedrockjobs import``: read schedules of another system, compare old and new times, write definitions.

The modules of ``bedrockjobs.imports`` parse the formats.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, moment_of, timestamp
from bedrockjobs.base.programs import WholeNumber
from bedrockjobs.base.wire import Timestamp, stamped
from bedrockjobs.cli.apply import Wanted, carry_out
from bedrockjobs.cli.output import Record, printable, write_many
from bedrockjobs.cli.parameters import Moment, SubcommandGroup, read_source
from bedrockjobs.cli.session import FAILED, Failure, Session, server_options
from bedrockjobs.cli.verbs import takes
from bedrockjobs.commands import CreateJob, SyncSchedules
from bedrockjobs.definitions import (
    BadDefinitions,
    Definition,
    definition_of,
    toml_comment,
    toml_entry,
    toml_text,
)
from bedrockjobs.imports import castle, cronken, crontab, ftl, kubernetes, luci, solid_queue, whenever
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import find_zone

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Wanted:
    """The options of an import: what to do with the imported schedules."""

    to: Path | None
    force: bool
    apply: bool
    yes: bool
    source: str
    skip_bad: bool
    times: int
    after: datetime
    by: str


@click.group("import", cls=SubcommandGroup)
def import_() -> None:
    """Import schedules from crontab, Kubernetes, whenever, Solid Queue, Cronken, castle-cron, FTL or LUCI.

    \b
    bedrockjobs import crontab --system /etc/crontab
    bedrockjobs import cronken jobs.json --weekday-0 monday --to jobs.toml

    Each schedule is shown with its old and new next times. --to writes a file for `bedrockjobs apply`.
    """


def _moment(_: click.Context, __: click.Parameter, value: str | timedelta | None) -> datetime:
    now = SystemClock().now()  # the clock of this machine: reading a file needs no server
    if value is None or isinstance(value, timedelta):
        return now + (value or timedelta())
    from pydantic import TypeAdapter, ValidationError

    try:
        return moment_of(stamped(TypeAdapter(Timestamp).validate_python(value), timestamp(now)))
    except ValidationError as error:
        raise click.BadParameter(f"expected {error.errors()[0]['msg']}") from None


def _zone(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        find_zone(value)
    except cron.BadSchedule as error:
        raise click.BadParameter(str(error)) from None
    return value


_zone_option = click.option(
    "--zone",
    default="UTC",
    show_default=True,
    callback=_zone,
    metavar="ZONE",
    help="Time zone of the machine that ran it.",
)


def _reader(command: F) -> F:
    """Add the argument and the options that all import commands share."""
    decorated: Any = command
    # By default three next times of each schedule, enough to notice a shifted weekday.
    for option in (
        click.argument("file", metavar="FILE"),
        click.option(
            "--to",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write definitions (TOML) to this file, for `bedrockjobs apply`.",
        ),
        click.option("--force", is_flag=True, help="Replace the file if it exists."),
        click.option("--apply", is_flag=True, help="Make them the server's schedules, as `apply` does."),
        click.option("-y", "--yes", is_flag=True, help="With --apply: do not ask for confirmation."),
        click.option(
            "--source",
            default="",
            metavar="NAME",
            help="Source that owns the schedules; default: FILE's name.",
        ),
        click.option("--skip-bad", is_flag=True, help="Skip entries that cannot be schedules here."),
        click.option(
            "--times",
            type=WholeNumber(0, 100),
            default=3,
            show_default=True,
            metavar="NUMBER",
            help="How many next times are shown.",
        ),
        click.option(
            "--after",
            type=Moment(),
            callback=_moment,
            metavar="TIME",
            help="Show times after this one; now if left out.",
        ),
        takes(SyncSchedules, "by"),
        server_options,
    )[::-1]:
        decorated = option(decorated)
    return cast("F", decorated)


@import_.command("crontab")
@click.option(
    "--system/--no-system",
    default=None,
    help="Whether each line has a user, as in /etc/crontab; guessed from path and names if left out.",
)
@click.option(
    "--cron",
    type=click.Choice(get_args(crontab.Cron)),
    help="Which cron ran it; by default only lines that Debian's cron and cronie read alike are accepted.",
)
@click.option("--prefix", default="", metavar="TEXT", help="Prefix of each name: 'web1/'.")
@_zone_option
@_reader
def import_crontab(
    session: Session,
    /,
    file: str,
    system: bool | None,
    cron: crontab.Cron | None,
    prefix: str,
    zone: str,
    **wanted: Any,
) -> None:
    """Read a crontab of Debian's cron, cronie or supercronic.

    Names come from the commands: `cd /srv && ./backup.sh` becomes backup, `restic backup /srv` restic-backup.
    """

    if system and cron == "supercronic":
        raise click.UsageError("--system: supercronic has no column of users")

    def read(text: str) -> list[ImportedSchedule]:
        users = system
        if users is None and (users := cron != "supercronic" and crontab.has_users(text, file)):
            click.echo("The sixth column is read as users; --no-system makes it part of commands.", err=True)
        entries = crontab.parse_crontab(text, zone=zone, system=bool(users), by=cron)
        return [entry._replace(name=f"{prefix}{entry.name}") for entry in entries]

    _import(session, "crontab", file, wanted, read)


@import_.command("cronken")
@click.option(
    "--weekday-0",
    type=click.Choice(["sunday", "monday"]),
    default="sunday",
    show_default=True,
    help="Read cronstrings like crontab(5), or like Cronken: 0 is Monday, both day fields must match.",
)
@_zone_option
@_reader
def import_cronken(
    session: Session, /, file: str, weekday_0: cronken.FirstDay, zone: str, **wanted: Any
) -> None:
    """Read Cronken's jobs: what `redis-cli --json HGETALL '{cronken}:jobs'` prints."""
    _import(
        session,
        "cronken",
        file,
        wanted,
        lambda text: cronken.parse_cronken(text, zone=zone, weekday_0=weekday_0),
    )


@import_.command("castle")
@_zone_option
@_reader
def import_castle(session: Session, /, file: str, zone: str, **wanted: Any) -> None:
    """Read castle-cron's jobs: its znodes' JSON, or the lines `castle-cron add NAME SCHEDULE CMD ...`."""
    _import(session, "castle", file, wanted, lambda text: castle.parse_castle(text, zone=zone))


@import_.command("ftl")
@_reader
def import_ftl(session: Session, /, file: str, **wanted: Any) -> None:
    """Read the `//ftl:cron` directives of a Go source file, or `@Cron` of a Kotlin or Java one."""
    _import(session, "ftl", file, wanted, lambda text: ftl.parse_ftl(text, file=file))


@import_.command("luci")
@_reader
def import_luci(session: Session, /, file: str, **wanted: Any) -> None:
    """Read the jobs in a luci-scheduler.cfg."""
    _import(session, "luci", file, wanted, luci.parse_luci)


@import_.command("kubernetes")
@_zone_option
@_reader
def import_kubernetes(session: Session, /, file: str, zone: str, **wanted: Any) -> None:
    """Read CronJob manifests of Kubernetes: a YAML file, or what `kubectl get cronjobs -o yaml` prints."""
    _import(session, "kubernetes", file, wanted, lambda text: kubernetes.parse_kubernetes(text, zone=zone))


_environment_option = click.option(
    "--environment", default="production", show_default=True, metavar="NAME", help="Environment of Rails."
)


@import_.command("whenever")
@click.option(
    "--cron",
    type=click.Choice(["debian", "cronie"]),
    help="Which cron ran it; by default only lines that Debian's cron and cronie read alike are accepted.",
)
@click.option("--path", default="", metavar="DIR", help="The application's folder, where set :path is not.")
@_environment_option
@_zone_option
@_reader
def import_whenever(
    session: Session,
    /,
    file: str,
    cron: crontab.Cron | None,
    path: str,
    environment: str,
    zone: str,
    **wanted: Any,
) -> None:
    """Read config/schedule.rb of whenever: set, env, and every with command, rake, runner or script."""
    _import(
        session,
        "whenever",
        file,
        wanted,
        lambda text: whenever.parse_whenever(text, zone=zone, by=cron, path=path, environment=environment),
    )


@import_.command("solid-queue")
@_environment_option
@_zone_option
@_reader
def import_solid_queue(session: Session, /, file: str, environment: str, zone: str, **wanted: Any) -> None:
    """Read config/recurring.yml of Solid Queue."""
    _import(
        session,
        "solid-queue",
        file,
        wanted,
        lambda text: solid_queue.parse_solid_queue(text, zone=zone, environment=environment),
    )


def _import(
    session: Session,
    kind: str,
    file: str,
    options: dict[str, Any],
    read: Callable[[str], list[ImportedSchedule]],
) -> None:
    wanted = _Wanted(**{**options, "source": options["source"] or (kind if file == "-" else Path(file).name)})
    if wanted.to is not None and wanted.to.exists() and not wanted.force:
        raise click.UsageError(f"{wanted.to} exists; --force replaces it")
    try:
        entries = _checked(read(read_source(file)))
    except Unreadable as error:
        raise click.UsageError(f"{file}: {printable(str(error))}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _report(session, entries, wanted)
    refused = [entry for entry in entries if entry.refused]
    if not entries and (wanted.to is not None or wanted.apply):
        raise Failure(f"{printable(file)} has no schedule of {kind}. Nothing was written.", FAILED)
    if refused and not wanted.skip_bad:
        done = " Nothing was written." if wanted.to is not None or wanted.apply else ""
        raise Failure(
            f"{len(refused)} of {len(entries)} cannot be imported; --skip-bad leaves them out.{done}", FAILED
        )
    accepted = [entry for entry in entries if not entry.refused]
    if wanted.to is not None:
        _write(wanted.to, kind, accepted, wanted.source, refused)
    if wanted.apply:
        _apply(session, accepted, wanted, prune=not refused)


def entry_of(schedule: ImportedSchedule) -> dict[str, Any]:
    """Return the entry of a definitions file for an imported schedule."""
    entry: dict[str, Any] = {"name": schedule.name, "schedule": schedule.expression}
    if schedule.zone != "UTC":
        entry["zone"] = schedule.zone
    if schedule.paused:
        entry["paused"] = True
    return {**entry, **schedule.options}


def _checked(entries: list[ImportedSchedule]) -> list[ImportedSchedule]:
    """Return the schedules; a schedule that a definitions file cannot express is marked as refused."""
    judged = []
    for entry in entries:
        if not entry.refused:
            try:
                definition_of({**entry_of(entry), "schedule": entry.expression or "@never"}, entry.place)
            except BadDefinitions as error:
                entry = entry._replace(refused=str(error).removeprefix(f"{entry.place}: "))
        judged.append(entry)
    return judged


# --- output ------------------------------------------------------------------------------------------------


def _report(session: Session, entries: list[ImportedSchedule], wanted: _Wanted) -> None:
    records = [_record(entry, wanted) for entry in entries]
    if session.form != "table":
        write_many(records, session.form, identity="name")
        return
    if not records:
        click.echo("No schedules.", err=True)
    for number, record in enumerate(records):
        click.echo("\n".join([*([""] if number else []), *map(printable, _lines(record))]))


def _record(schedule: ImportedSchedule, wanted: _Wanted) -> Record:
    return {
        "name": schedule.name,
        "place": schedule.place,
        "was": schedule.source_text,
        "repeat": schedule.repeat,
        "there": [timestamp(at) for at in schedule.old_times(wanted.after, wanted.times)],
        "here": [timestamp(at) for at in schedule.our_times(wanted.after, wanted.times)],
        "differs": schedule.differs,
        "warnings": list(schedule.warnings),
        "refused": schedule.refused,
    }


def _lines(record: Record) -> list[str]:
    lines = [f"{record['name']} ({record['place']})", f"  there: {record['was']}"]
    if record["refused"]:
        lines.append(f"  refused: {record['refused']}")
    else:
        lines.append(f"  here:  {record['repeat']}")
    there, here = record["there"], record["here"]
    if there and here:
        lines.append(f"  {'there (UTC)':19}  here (UTC)")
        for at in range(max(len(there), len(here))):
            old, new = (times[at] if at < len(times) else "" for times in (there, here))
            lines.append(f"  {old:19}  {new:19}{'  differs' if old != new else ''}")
    return [*lines, *(f"  warning: {warning}" for warning in record["warnings"])]


# --- the definitions file, and the server ------------------------------------------------------------------


def definitions_text(
    kind: str, entries: list[ImportedSchedule], source: str, refused: Sequence[ImportedSchedule] = ()
) -> str:
    """Return the text of a definitions file.

    A job that repeats after its own end is no schedule, so it becomes a comment with a command that creates
    it. Entries in ``refused`` are listed, and then applying the file removes nothing.
    """
    head = (
        f"# Schedules imported from {kind}. `bedrockjobs apply` adds them to the server.\n"
        f"source = {toml_text(source)}\n"
    )
    if refused:
        head += "prune = false  # some were skipped, which the server keeps\n"
    for entry in refused:
        head += toml_comment(f"left out: {entry.name} ({entry.place}): {entry.refused}") + "\n"
    parts = [head]
    schedules = [toml_entry(entry_of(entry), entry.warnings) for entry in entries if entry.expression]
    for entry in entries:
        if not entry.expression:
            pairs = [f"{name}={value}" for name, value in _loop(entry).items()]
            comments = "".join(f"{toml_comment(warning)}\n" for warning in entry.warnings)
            parts.append(
                f"# Repeats after the end of its last run, so it is not a schedule: create it once.\n"
                f"{comments}{toml_comment(shlex.join(['bedrockjobs', 'call', 'CreateJob', *pairs]))}\n"
            )
    return "\n".join([*parts, *(schedules or ["schedules = []\n"])])


def _loop(schedule: ImportedSchedule) -> dict[str, str]:
    """Return the parameters of CreateJob for a job that repeats after its own end."""
    definition = definition_of({**entry_of(schedule), "schedule": "@never"}, schedule.place)
    parameters = {**definition.given, "repeat": schedule.repeat, "unique": True}
    return {
        key: value if isinstance(value, str) else jsontext.dump(value) for key, value in parameters.items()
    }


def _write(
    to: Path, kind: str, entries: list[ImportedSchedule], source: str, refused: list[ImportedSchedule]
) -> None:
    try:
        to.write_text(definitions_text(kind, entries, source, refused))
    except OSError as error:
        raise Failure(f"{to}: {error.strerror or error}", FAILED) from None
    click.echo(f"Wrote {printable(str(to))}; `bedrockjobs apply` applies it.", err=True)


def _apply(session: Session, entries: list[ImportedSchedule], wanted: _Wanted, *, prune: bool) -> None:
    """Apply the schedules to the server; without ``prune``, nothing is removed from the source."""
    schedules: list[Definition] = [
        definition_of(entry_of(entry), entry.place) for entry in entries if entry.expression
    ]
    carry_out(session, [Wanted(wanted.source, {"schedule": schedules}, prune, wanted.by)], yes=wanted.yes)
    if not prune:
        click.echo("Nothing was removed: some schedules of the file were left out.", err=True)
    for entry in entries:
        if not entry.expression:
            reply = session.reply(CreateJob, _loop(entry))
            click.echo(f"Job {reply['jobID']} is {printable(entry.name)}: {entry.repeat}.", err=True)
