"""``bedrockjobs apply``: make the server's schedules what a file says, after showing the difference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.cli.difference import attributes_changed
from bedrockjobs.cli.options import by_option
from bedrockjobs.cli.output import Record, printable, styled, write_one
from bedrockjobs.cli.pages import literal
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.values import read_source
from bedrockjobs.commands import ListJobs, PauseJobs, SyncRules, SyncSchedules
from bedrockjobs.definitions import FORMATS, BadDefinitions, Definition, Format, format_of, read

CHANGES = (("added", "+", "green"), ("changed", "~", "yellow"), ("removed", "-", "red"))
"""Parts of a difference: the key of the answer, its sign and its colour."""

DATA_CHANGES = "data: as the definition has it from now on"
"""What changes where no attribute shows it: runs may have given the job other data than its definition."""

PAUSE_REASON = "added paused"


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--source", metavar="NAME", help="Whose schedules these are; the file's `source`, or its name.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What FILE is; its suffix tells.")
@click.option("--no-prune", is_flag=True, help="Leave what FILE does not have; it may say so itself.")
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@by_option
@talks
@pass_session
def apply(
    session: Session,
    /,
    file: str,
    source: str | None,
    form: Format | None,
    no_prune: bool,
    dry_run: bool,
    yes: bool,
    by: str,
) -> None:
    """Make a source's schedules what FILE says, and its rules of who is told.

    FILE holds a list of schedules, and one of rules under `notify`, in TOML, YAML or JSON; - is stdin. Those
    it adds, changes or leaves out are shown first; then they are added, changed and removed, schedules in one
    commit and rules in another. Those of other sources and those that were made by hand are left alone; so
    are all rules where FILE has no `notify`.
    """
    chosen = form or format_of(file)
    if chosen is None:
        raise click.UsageError(f"--format: {file!r} does not end with .toml, .yaml or .json: say what it is")
    name = "stdin" if file == "-" else file
    try:
        definitions = read(read_source(file), chosen, name)
    except BadDefinitions as error:
        raise click.UsageError(printable(str(error))) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    owner = source or definitions.source or ("" if file == "-" else Path(file).name)
    if not owner:
        raise click.UsageError("--source: stdin has no name: say whose schedules these are")
    prune = definitions.prune and not no_prune
    synchronize(session, owner, definitions.schedules, by=by, prune=prune, dry_run=dry_run, yes=yes)
    if definitions.rules is not None:
        synchronize_rules(session, owner, definitions.rules, by=by, prune=prune, dry_run=dry_run, yes=yes)


def synchronize(
    session: Session,
    source: str,
    schedules: list[Definition],
    *,
    by: str,
    prune: bool = True,
    dry_run: bool = False,
    yes: bool = False,
) -> None:
    """Show what would change, ask unless ``yes``, and change it; without ``prune`` nothing is removed.

    Raises click.UsageError where somebody has to be asked and nobody can be.
    """
    wanted = [definition.given for definition in schedules]
    given: dict[str, Any] = {"source": source, "schedules": wanted, "by": by or None}
    if not prune:
        given["prune"] = False
    difference = session.record(built(SyncSchedules, {**given, "dryRun": True}))
    if dry_run:
        _show(session, difference, schedules)
        return
    names = {key: jsontext.parse(difference[key]) for key, _, _ in CHANGES}
    if not any(names.values()):
        write_one(
            difference, session.form, f"Nothing to change: {_counted(difference, 'unchanged')} unchanged."
        )
        return
    if not yes:
        _show_lines(session, difference, schedules, err=session.form != "table")
        if not interactive():
            raise click.UsageError("nobody is there to be asked: give --yes, or --dry-run to look only")
        click.confirm(f"Make this the schedules of {printable(source)}?", abort=True, err=True)
    for definition in schedules:
        if definition.paused and definition.name in names["added"]:
            pause = {"name": literal(definition.name), "reason": PAUSE_REASON, "by": by or None}
            session.ask(built(PauseJobs, pause))
    reply = session.record(built(SyncSchedules, given))
    did = ", ".join(f"{len(jsontext.parse(reply[key]))} {key}" for key in (*names, "unchanged"))
    write_one(reply, session.form, f"Schedules of {source}: {did}.")


def synchronize_rules(
    session: Session,
    source: str,
    rules: list[dict[str, Any]],
    *,
    by: str,
    prune: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Do the same with rules of who is told."""
    given: dict[str, Any] = {"source": source, "rules": rules, "by": by or None, "prune": prune}
    difference = session.record(built(SyncRules, {**given, "dryRun": True}))
    names = {key: jsontext.parse(difference[key]) for key, _, _ in CHANGES}
    if dry_run or any(names.values()):
        _show_rules(session, names, err=session.form != "table" or not dry_run)
    if dry_run or not any(names.values()):
        write_one(difference, session.form, f"Rules of {source}: {_rules_counted(difference)}.")
        return
    if not yes:
        if not interactive():
            raise click.UsageError("nobody is there to be asked: give --yes, or --dry-run to look only")
        click.confirm(f"Make this the rules of {printable(source)}?", abort=True, err=True)
    reply = session.record(built(SyncRules, given))
    write_one(reply, session.form, f"Rules of {source}: {_rules_counted(reply)}.")


def _rules_counted(reply: Record) -> str:
    keys = (*(key for key, _, _ in CHANGES), "unchanged")
    return ", ".join(f"{len(jsontext.parse(reply[key]))} {key}" for key in keys)


def _show_rules(session: Session, names: dict[str, list[str]], *, err: bool) -> None:
    if session.form not in ("table", "name"):
        return
    for key, sign, colour in CHANGES:
        for name in names[key]:
            click.echo(styled(f"{sign} rule {printable(name)}", err=err, fg=colour), err=err)


def interactive() -> bool:
    """Tell whether somebody is there to answer a question."""
    return sys.stdin.isatty()


def _counted(reply: Record, key: str) -> str:
    count = len(jsontext.parse(reply[key]))
    return f"{count} schedule" if count == 1 else f"{count} schedules"


def _show(session: Session, difference: Record, schedules: list[Definition]) -> None:
    if session.form == "table":
        _show_lines(session, difference, schedules, err=False)
    elif session.form == "name":
        for key, _, _ in CHANGES:
            for name in jsontext.parse(difference[key]):
                click.echo(printable(name))
    else:
        write_one(difference, session.form)


def _attributes(session: Session, definition: Definition) -> list[str]:
    """Return what would change of a schedule; a job that is gone meanwhile has nothing to compare with."""
    named = built(ListJobs, {"name": literal(definition.name), "limit": 1})
    there = records_in(session.record(named)["jobs"])
    return attributes_changed(definition, there[0]) or [DATA_CHANGES] if there else []


def _show_lines(session: Session, difference: Record, schedules: list[Definition], *, err: bool) -> None:
    """Write a line for each schedule that would change, and below it what of it."""
    defined = {definition.name: definition for definition in schedules}
    for key, sign, colour in CHANGES:
        for name in jsontext.parse(difference[key]):
            click.echo(styled(f"{sign} {printable(name)}", err=err, fg=colour), err=err)
            if key == "changed":
                for line in _attributes(session, defined[name]):
                    click.echo(f"    {line}", err=err)
    click.echo(f"{_counted(difference, 'unchanged')} unchanged.", err=err)
