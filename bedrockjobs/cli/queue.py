"""``bedrockjobs queue``, ``limit`` and ``kept``: counts of jobs by name, pauses, limits and retention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import days_text, duration_text
from bedrockjobs.base.glob import literal
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli.job import write_reasons
from bedrockjobs.cli.lookup import Completer, job_names, paged
from bedrockjobs.cli.output import (
    Record,
    local_text,
    number_of,
    one_line,
    printable,
    raw_record,
    rough_text,
    text_of,
    write_many,
    write_one,
)
from bedrockjobs.cli.parameters import Size, SubcommandGroup
from bedrockjobs.cli.session import NOT_FOUND, Failure, Session, built, confirm, records_in, server_options
from bedrockjobs.cli.verbs import GLOB, act, limit_option, listing, takes, typed, typed_command, typed_values
from bedrockjobs.commands import (
    ExplainJob,
    ListJobs,
    ListLimits,
    ListPauses,
    ListQueues,
    ListRetention,
    PauseJobs,
    QueueHistory,
    RemoveLimit,
    RemoveRetention,
    ResumeJobs,
    SetLimit,
    SetRetention,
)
from bedrockjobs.job.limits import AT_LIMIT

F = TypeVar("F", bound=Callable[..., Any])

EVERYTHING = "*"

COUNTS = ("ready", "running", "failed", "later", "paused", "blocked")
"""The counts that are shown for a name; ``paused`` counts jobs that are not taken because of a pause."""


@click.group(cls=SubcommandGroup)
def queue() -> None:
    """Show which queues are long and why; pause and resume them.

    \b
    bedrockjobs queue list
    bedrockjobs queue explain mail/welcome
    bedrockjobs queue history mail/welcome --range 24h
    bedrockjobs queue pause 'mail/*' --reason 'the mail server is down' --until 2h
    """


@queue.command("list")
@takes(ListQueues, GLOB)
@limit_option("names")
@takes(
    ListQueues,
    typed("after", metavar="NAME"),
    typed("sort", "--sort", "order", default="jobs", show_default=True, type=click.Choice(("jobs", "name"))),
)
@server_options
def list_queues(session: Session, /, limit: int, **_: Any) -> None:
    """List job names with counts of ready, running and failed jobs, and pauses, the most ready jobs first.

    `oldest` is how long the oldest ready job has been due, `workers` how many live workers take the name. A
    count with a + is a minimum. With very many jobs the counts are cached; the list says how old they are.
    """
    queues = paged(session, ListQueues, typed_values(session, ListQueues), limit)
    if session.form != "table":
        write_many(queues, session.form, identity="name")
        return
    pauses: dict[str, Record] = {}
    if any(text_of(each, "pausedBy") for each in queues):
        pauses = {text_of(pause, "pattern"): pause for pause in _pauses(session)}
    rows = [_row(each, pauses) for each in queues]
    age = max((int(text_of(each, "countedAge") or 0) for each in queues), default=0)
    if age:
        click.echo(f"Queued jobs were counted {age} s ago.", err=True)
    write_many(rows, "table", none="No jobs: `bedrockjobs job create NAME` makes the first one.")


@queue.command()
@click.argument("name", metavar="NAME", shell_complete=job_names)
@server_options
def explain(session: Session, /, name: str) -> None:
    """Show the counts of NAME, and why its first queued job does not run."""
    rows = session.rows(ListQueues, {"name": literal(name), "limit": 1})
    if not rows:
        raise Failure(f"there is no queue {name!r}; `bedrockjobs queue list` shows them", NOT_FOUND)
    queued = session.rows(ListJobs, {"name": literal(name), "state": "QUEUED", "limit": 1})
    reply = session.reply(ExplainJob, {"jobID": queued[0]["jobID"]}) if queued else None
    if session.form != "table":
        reasons = reply["waitsFor"] if reply else RawJSON("[]")
        write_one({**rows[0], "waitsFor": reasons}, session.form, identity="name")
        return
    pattern = text_of(rows[0], "pausedBy")
    pauses = {text_of(pause, "pattern"): pause for pause in _pauses(session)} if pattern else {}
    write_one({key: value for key, value in _row(rows[0], pauses).items() if value}, "table")
    if reply is None:
        click.echo("No job of this name is queued.")
    else:
        write_reasons(reply)


@queue.command()
@click.argument("name", metavar="NAME", shell_complete=job_names)
@takes(QueueHistory, "range")
@server_options
def history(session: Session, /, name: str, **_: Any) -> None:
    """Show what happened to the jobs of NAME, the newest step first: counts, waits, durations and depth.

    `new` counts the created jobs. `wait` is the time between due and taken, `took` that of a run: median and
    95th percentile, estimated. A table leaves out the steps in which nothing happened.
    """
    reply = session.record(typed_command(session, QueueHistory, name=name))
    steps = records_in(reply["steps"])[::-1]
    if session.form != "table":
        write_many(steps, session.form, identity="at")
        return
    busy = [step for step in steps if any(text_of(step, key) != "0" for key in _HAPPENED)]
    none = f"Nothing happened to jobs of {name} in that time."
    write_many([_happened(step) for step in busy], "table", none=printable(none))
    if busy:
        write_one(_happened(raw_record(reply["total"])), "table")


_HAPPENED = ("created", "taken", "finished", "failed", "retried", "lost")


def _happened(step: Record) -> Record:
    counts = {"new" if key == "created" else key: f"{int(text_of(step, key)):,}" for key in _HAPPENED}
    spans = {key: _spread(step, key) for key in ("wait", "took")}
    return {
        **({"at": step["at"]} if "at" in step else {}),
        **counts,
        **spans,
        "depth": text_of(step, "depth"),
    }


def _spread(step: Record, key: str) -> str:
    """Return the median and the 95th percentile, such as ``1.2s · 3.1s``; empty if they are unknown."""
    spans = [text_of(step, f"{key}{percentile}") for percentile in ("P50", "P95")]
    return " · ".join(duration_text(float(span)) for span in spans if span)


def _row(record: Record, pauses: dict[str, Record]) -> Record:
    more = "+" if text_of(record, "more") == "true" else ""
    counts = {key: f"{int(text_of(record, key)):,}" for key in COUNTS}
    pattern = text_of(record, "pausedBy")
    return {
        "name": text_of(record, "name"),
        **{key: f"{count}{more}" if count != "0" else "0" for key, count in counts.items()},
        "oldest": rough_text(float(text_of(record, "age"))) if text_of(record, "oldestReady") else "",
        "workers": f"{int(text_of(record, 'workers')):,}",
        "paused by": pause_text(pattern, pauses.get(pattern, {})) if pattern else "",
    }


def _pauses(session: Session) -> list[Record]:
    return session.rows(ListPauses)


# --- pause and resume, of queues and of schedules ----------------------------------------------------------


def add_pausing(group: click.Group, names: Completer) -> None:
    """Add the commands ``pause`` and ``resume`` to a group; ``names`` completes their argument."""
    pattern = click.argument("pattern", metavar="[NAME|GLOB]", required=False, shell_complete=names)

    @group.command()
    @pattern
    @click.option("--all", "everything", is_flag=True, help="Pause everything.")
    @takes(PauseJobs, "reason", "until", "by")
    @server_options
    def pause(session: Session, /, pattern: str | None, everything: bool, **_: Any) -> None:
        """Pause all jobs and schedules whose name matches, so that no worker takes them.

        Runs in progress continue. Pausing the same pattern again changes its reason and its end.
        """
        name = _pattern(pattern, everything)
        command = typed_command(session, PauseJobs, name=name)
        session.send(command)
        ends = str(command.until or "")
        how = f" until {local_text(ends)}" if ends else f"; `{resume_command(name, str(group.name))}` ends it"
        record = {"name": name, "outcome": "paused", "until": command.until}
        write_one(record, session.form, f"Paused {'everything' if name == EVERYTHING else name}{how}.")
        matching = built(ListJobs, {"name": name, "limit": 1})
        if name != EVERYTHING and not records_in(session.record(matching)["jobs"]):
            click.echo("No job matches at the moment.", err=True)

    @group.command()
    @pattern
    @click.option("--all", "everything", is_flag=True, help="End every pause.")
    @click.option("-y", "--yes", is_flag=True, help="With --all: do not ask for confirmation.")
    @takes(ResumeJobs, "by")
    @server_options
    def resume(session: Session, /, pattern: str | None, everything: bool, yes: bool, **_: Any) -> None:
        """End the pause with this pattern: '*' only ends the pause of '*'.

        Ticks of schedules during the pause are skipped. --all lists the pauses and asks first.
        """
        name = _pattern(pattern, everything)
        if everything and not yes:
            _ask_to_end_all(session)
        what: dict[str, Any] = {"all": True} if everything else {"name": name}
        resumed = jsontext.parse(session.record(typed_command(session, ResumeJobs, **what))["resumed"])
        if session.form == "table":
            click.echo(printable(f"Resumed {', '.join(resumed)}.") if resumed else "Nothing was paused.")
        else:
            write_many([{"name": each, "outcome": "resumed"} for each in resumed], session.form)


def _pattern(pattern: str | None, everything: bool) -> str:
    """Return the pattern to act on; raises click.UsageError unless either a pattern or --all is given."""
    if everything and pattern is not None:
        raise click.UsageError("give a name or --all, not both")
    if everything:
        return EVERYTHING
    if not pattern:
        raise click.UsageError("give a name or a pattern like 'report*', or --all")
    return pattern


def resume_command(pattern: str, group: str = "schedule") -> str:
    """Return the command that ends the pause of a pattern."""
    # Another user may have chosen the pattern: quoted, it cannot inject a command into the reader's shell.
    quoted = "'" + pattern.replace("'", "'\"'\"'") + "'"
    return f"bedrockjobs {group} resume {quoted}"


def pause_text(pattern: str, pause: Record) -> str:
    """Return who paused a pattern, why and until when: ``ada: moving the disks (mail/*)``."""
    by, reason = text_of(pause, "by"), text_of(pause, "reason")
    if by == AT_LIMIT:
        return f"its limit: {reason} ({pattern})"
    until = local_text(text_of(pause, "until"))
    text = ": ".join(filter(None, (by or "unknown", reason)))
    return f"{text} ({pattern}{f' until {until}' if until else ''})"


def _ask_to_end_all(session: Session) -> None:
    """List the current pauses, and ask whether to end all of them; raises click.Abort after a no."""
    ending = [pause for pause in _pauses(session) if text_of(pause, "by") != AT_LIMIT]
    if not ending:
        return
    for pause in ending:
        click.echo(one_line(pause_text(text_of(pause, "pattern"), pause)), err=True)
    confirm(f"End {number_of(len(ending), 'pause')}?", "give --yes to end all of these pauses")


add_pausing(queue, job_names)


# --- ``bedrockjobs limit`` -------------------------------------------------------------------------------


@click.group(cls=SubcommandGroup)
def limit() -> None:
    """Limit how many jobs of a name are queued, created a second (more is refused with 429), started and run,
    or take those of many keys or names in turn.

    \b
    bedrockjobs limit set 'mail/*' --running 4
    bedrockjobs limit set 'tenant/*' --running 3 --per-key
    bedrockjobs limit set 'api/*' --starts 100/1m
    bedrockjobs limit set 'tenant/*' --starts 100/1m --per-key
    bedrockjobs limit set 'tenant/*' --fair
    bedrockjobs limit set 'import/*' --queued 10000 --per-second 50
    bedrockjobs limit list
    """


act(
    limit,
    "set",
    SetLimit,
    *("name", "queued", "per_second", "running", "per_key"),
    *(typed("starts", metavar="NUMBER/DURATION"), "burst", "fair", "by"),
    text="Limit the names that match GLOB, which share the limit; replaces the former limit of GLOB.",
    outcome="limited",
    sentence="Limited {name}.",
    needs="nothing to limit: give --queued, --per-second, --running, --starts or --fair",
)
act(
    limit,
    "remove",
    RemoveLimit,
    *("name", "by"),
    text="Remove the limit of GLOB.",
    outcome="removed",
    sentence="Removed the limit of {name}.",
)


def _limit_row(record: Record) -> Record:
    """Return the row of a limit, with ``-`` for what is not limited: 0 would look like a limit of 0."""
    numbers = ("queued", "perSecond", "running", "starts", "burst")
    row = {**record, **{key: "-" for key in numbers if text_of(record, key) in ("", "0")}}
    flags = {key: "yes" if text_of(record, key) == "true" else "" for key in ("perKey", "fair")}
    return {**row, **flags, "runs": "" if row["running"] == "-" else record["runs"]}


listing(
    limit,
    ListLimits,
    row=_limit_row,
    columns=(
        "name",
        "queued",
        "perSecond",
        "running",
        "perKey",
        "runs",
        "starts",
        "burst",
        "fair",
        "refused",
        "lastRefused",
        "by",
    ),
    none="No limits: `bedrockjobs limit set GLOB` sets one.",
)


# --- ``bedrockjobs kept``: limits of retention -----------------------------------------------------------


@click.group(cls=SubcommandGroup)
def kept() -> None:
    """Limit how long runs, output, events and the history of schedules are kept, and see how much there is.

    \b
    bedrockjobs kept list
    bedrockjobs kept set 'import/*' --runs-for 7d --output-bytes 1M
    bedrockjobs kept remove 'import/*'
    """


def _retention_row(row: Record) -> Record:
    seconds, count = jsontext.parse(row["seconds"]), jsontext.parse(row["count"])
    return {
        **row,
        "for": None if seconds is None else days_text(seconds),
        "oldest of all": row["oldest"],
        "count": f"{count}+" if jsontext.parse(row["more"]) else count,
    }


listing(
    kept,
    ListRetention,
    columns=("name", "kind", "for", "bytes", "most", "count", "used", "oldest of all", "by"),
    row=_retention_row,
    text="List retention and its current use: the server's, then by pattern.\n\nCounts stop at 50,000.",
)
_RETENTION_KINDS = ("runs", "output", "events", "ticks")
act(
    kept,
    "set",
    SetRetention,
    "name",
    *(typed(kind, f"--{kind}-for") for kind in _RETENTION_KINDS),
    *(typed(f"{kind}_bytes", type=Size(), metavar="SIZE") for kind in _RETENTION_KINDS),
    "by",
    text="Set the retention of names that match GLOB.\n\n"
    "For each name and kind, the longest matching GLOB applies; * applies to all others.",
    outcome="limited",
    sentence="Set the retention of {name}.",
    needs="nothing to limit: give at least one option; --help lists them",
)
act(
    kept,
    "remove",
    RemoveRetention,
    *("name", "by"),
    text="Remove the retention limits of GLOB.",
    outcome="removed",
    sentence="Removed the retention of {name}.",
)
