"""``bedrockjobs apply``: make a server what files say, schedules and rules, after showing the difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from bedrockjobs.cli.difference import attributes_added, attributes_changed, rule_added, rule_changed
from bedrockjobs.cli.lookup import literal
from bedrockjobs.cli.output import Record, printable, styled, text_of, write_many, write_one
from bedrockjobs.cli.plan import CHANGES, SyncPlan, Wanted
from bedrockjobs.cli.session import REFUSED, Session, built, interactive, pass_session, records_in, talks
from bedrockjobs.cli.values import read_source
from bedrockjobs.cli.verbs import takes
from bedrockjobs.commands import ListJobs, ListRules, PauseJobs, SyncRules, SyncSchedules
from bedrockjobs.definitions import FORMATS, BadDefinitions, Definition, Definitions, Format, format_of, read

DATA_CHANGES = "data: as the definition has it from now on"
"""What changes where no attribute shows it: runs may have given the job other data than its definition."""

PAUSE_REASON = "added paused"

RULES_ASKED = 1_000
"""Rules that are looked at for what changes of them: a server has fewer."""


class Refused(click.ClickException):
    """A server would refuse it: says all of what, a line each."""

    exit_code = REFUSED


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--source", metavar="NAME", help="Whose schedules these are; a file's `source`, or its name.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What FILE is; its suffix tells.")
@click.option("--no-prune", is_flag=True, help="Leave what FILE does not have; it may say so itself.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Also take what has the same name and belongs to another source, or was added by hand.",
)
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@takes(SyncSchedules, "by")
@talks
@pass_session
def apply(
    session: Session,
    /,
    files: tuple[str, ...],
    source: str | None,
    form: Format | None,
    no_prune: bool,
    take_over: bool,
    dry_run: bool,
    yes: bool,
    by: str,
) -> None:
    """Make a source's schedules what FILE says, and its rules of who is told.

    FILE holds a list of schedules, and one of rules under `notify`, in TOML, YAML or JSON; - is stdin. All
    that it adds, changes or leaves out is shown first; then schedules are changed in one commit and rules in
    another. Those of other sources and those that were made by hand are left alone; so are all rules where
    FILE has no `notify`.

    What is wrong with the files is told at once, each error with its line. Files of the same source are taken
    together.
    """
    wanted = [
        replace(each, take_over=take_over) for each in _wanted(files, form, source, by, prune=not no_prune)
    ]
    carry_out(session, wanted, dry_run=dry_run, yes=yes)


def _wanted(
    files: Sequence[str], form: Format | None, source: str | None, by: str, *, prune: bool
) -> list[Wanted]:
    """Read all files, by source; raises click.UsageError with all that is wrong with them."""
    problems: list[str] = []
    found: dict[str, Wanted] = {}
    for file in files:
        try:
            definitions = _read(file, form)
        except BadDefinitions as error:
            problems += error.problems
            continue
        owner = source or definitions.source or ("" if file == "-" else Path(file).name)
        if not owner:
            raise click.UsageError("--source: stdin has no name: say whose schedules these are")
        one = Wanted(
            owner,
            definitions.schedules,
            definitions.rules,
            prune and definitions.prune,
            by,
            rule_entries=definitions.rule_entries,
        )
        if owner in found:
            one, names = _together(found[owner], one)
            problems += [
                f"{file}: {name}: an earlier file of the source {owner} has it too" for name in names
            ]
        found[owner] = one
    problems += _in_two_sources(list(found.values()))
    if problems:
        raise click.UsageError(_all_of(problems))
    return list(found.values())


def _in_two_sources(wanted: list[Wanted]) -> list[str]:
    """Return what is wrong with names that two sources have: a name is one source's."""
    owners: dict[str, str] = {}
    problems = []
    for one in wanted:
        rules = [(f"rule {rule['name']}", None) for rule in one.rules or []]
        for label, entry in (*((f"schedule {each.name}", each.entry) for each in one.schedules), *rules):
            other = owners.setdefault(label, one.source)
            if other != one.source:
                words = f"name: the source {other} has it too"
                problems.append(f"{label}: {words}" if entry is None else entry.text(words, "name"))
    return problems


def _read(file: str, form: Format | None) -> Definitions:
    chosen = form or format_of(file)
    if chosen is None:
        raise click.UsageError(f"--format: {file!r} does not end with .toml, .yaml or .json: say what it is")
    try:
        text = read_source(file)
    except ValueError as error:
        raise BadDefinitions(str(error)) from None
    return read(text, chosen, "stdin" if file == "-" else file)


def _together(first: Wanted, second: Wanted) -> tuple[Wanted, list[str]]:
    """Return what two files of one source want, and what stands in both."""
    names = {definition.name for definition in first.schedules}
    rules = {rule["name"] for rule in first.rules or []}
    twice = [f"schedule {each.name}" for each in second.schedules if each.name in names]
    twice += [f"rule {rule['name']}" for rule in second.rules or [] if rule["name"] in rules]
    both = replace(
        first,
        schedules=[*first.schedules, *second.schedules],
        rules=[*(first.rules or []), *(second.rules or [])]
        if first.rules is not None or second.rules is not None
        else None,
        prune=first.prune and second.prune,
        rule_entries=[*first.rule_entries, *second.rule_entries],
    )
    return both, twice


def _all_of(problems: list[str]) -> str:
    if len(problems) == 1:
        return printable(problems[0])
    lines = "\n".join(f"  {printable(problem)}" for problem in problems)
    return f"{len(problems)} problems; nothing was changed:\n{lines}"


def carry_out(session: Session, sources: list[Wanted], *, dry_run: bool = False, yes: bool = False) -> None:
    """Show all that would change, ask unless ``yes``, and change it; without ``prune`` nothing is removed.

    Raises click.UsageError where somebody has to be asked and nobody can be.
    """
    plans = [_planned(session, wanted) for wanted in sources]
    problems = [problem for plan in plans for problem in plan.problems()]
    if problems:
        raise Refused(_all_of(problems))
    for plan in plans:
        for warning in plan.warnings():
            click.echo(f"Warning: {printable(warning)}", err=True)
    if dry_run:
        _show(session, plans)
        return
    changed = [plan for plan in plans if plan.changes]
    if not changed:
        same = ", ".join(_same(plan) for plan in plans)
        _write(session, plans, [f"Nothing to change: {same} unchanged."])
        return
    if not yes:
        for plan in changed:
            _show_lines(session, plan, err=session.form != "table", titled=len(plans) > 1)
        if not interactive():
            raise click.UsageError("nobody is there to be asked: give --yes, or --dry-run to look only")
        owners = ", ".join(plan.wanted.source for plan in changed)
        click.confirm(f"Make this the {_what(changed)} of {printable(owners)}?", abort=True, err=True)
    done = [_done(session, plan) if plan.changes else plan for plan in plans]
    _write(session, done, [sentence for plan in done for sentence in plan.sentences()])


def _planned(session: Session, wanted: Wanted) -> SyncPlan:
    schedules = session.record(built(SyncSchedules, wanted.schedules_command(dry_run=True)))
    if wanted.rules is None:
        return SyncPlan(wanted, schedules)
    return SyncPlan(wanted, schedules, session.record(built(SyncRules, wanted.rules_command(dry_run=True))))


def _done(session: Session, plan: SyncPlan) -> SyncPlan:
    """Make it so, and return what was changed."""
    wanted, added = plan.wanted, plan.names("added")
    for definition in wanted.schedules:
        if definition.paused and definition.name in added:
            pause = {"name": literal(definition.name), "reason": PAUSE_REASON, "by": wanted.by or None}
            session.ask(built(PauseJobs, pause))
    schedules = session.record(built(SyncSchedules, wanted.schedules_command(dry_run=False)))
    rules = None
    if wanted.rules is not None:
        rules = session.record(built(SyncRules, wanted.rules_command(dry_run=False)))
    return SyncPlan(wanted, schedules, rules)


# --- what is shown -----------------------------------------------------------------------------------------


def _write(session: Session, plans: list[SyncPlan], sentences: Iterable[str]) -> None:
    """Write what was done: a sentence each, or one document."""
    if session.form == "table":
        for sentence in sentences:
            click.echo(printable(sentence))
    elif session.form == "name":
        _show_names(plans)
    elif len(plans) == 1:
        write_one(plans[0].record(), session.form)
    else:
        write_many([{"source": plan.wanted.source, **plan.record()} for plan in plans], session.form)


def _show(session: Session, plans: list[SyncPlan]) -> None:
    if session.form != "table":
        _write(session, plans, ())
        return
    for plan in plans:
        _show_lines(session, plan, err=False, titled=len(plans) > 1)


def _show_names(plans: list[SyncPlan]) -> None:
    for plan in plans:
        for key, _, _ in CHANGES:
            for name in (*plan.names(key), *plan.rule_names(key)):
                click.echo(printable(name))


def _what(plans: list[SyncPlan]) -> str:
    return "schedules" if all(plan.rules is None for plan in plans) else "schedules and rules"


def _same(plan: SyncPlan) -> str:
    words = _number(len(plan.names("unchanged")), "schedule")
    return (
        words if plan.rules is None else f"{words} and {_number(len(plan.rule_names('unchanged')), 'rule')}"
    )


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _show_lines(session: Session, plan: SyncPlan, *, err: bool, titled: bool) -> None:
    """Write a line for each schedule and rule that would change, and below it all that changes of it."""
    if titled:
        click.echo(styled(f"{printable(plan.wanted.source)}:", err=err, bold=True), err=err)
    defined = {definition.name: definition for definition in plan.wanted.schedules}
    rules = {rule["name"]: rule for rule in plan.wanted.rules or []}
    there = _rules_there(session) if plan.rule_names("changed") else {}
    for key, sign, colour in CHANGES:
        for name in plan.names(key):
            more = []
            if key != "removed":
                more = _attributes(session, defined[name], plan.wanted, new=key == "added")
            _lines(f"{sign} {printable(name)}", colour, more, err=err)
    for key, sign, colour in CHANGES:
        for name in plan.rule_names(key):
            more = rule_added(rules[name]) if key == "added" else []
            if key == "changed" and name in there:
                more = rule_changed(rules[name], there[name])
            _lines(f"{sign} rule {printable(name)}", colour, more, err=err)
    click.echo(f"{_same(plan)} unchanged.", err=err)


def _lines(head: str, colour: str, more: list[str], *, err: bool) -> None:
    click.echo(styled(head, err=err, fg=colour), err=err)
    for line in more:
        click.echo(f"    {printable(line)}", err=err)


def _attributes(session: Session, definition: Definition, wanted: Wanted, *, new: bool) -> list[str]:
    """Return what there is or would change of a schedule; one that is gone has nothing to compare with."""
    if new:
        return [*attributes_added(definition), *(["paused"] if definition.paused else [])]
    named = built(ListJobs, {"name": literal(definition.name), "limit": 1})
    there = records_in(session.record(named)["jobs"])
    if not there:
        return []
    owner = text_of(there[0], "source")
    taken = [f"source: {owner or 'none'} -> {wanted.source}"] if wanted.take_over else []
    taken = [] if owner == wanted.source else taken
    return [*taken, *attributes_changed(definition, there[0])] or [DATA_CHANGES]


def _rules_there(session: Session) -> dict[str, Record]:
    reply = session.record(built(ListRules, {"limit": RULES_ASKED}))
    return {text_of(rule, "name"): rule for rule in records_in(reply["rules"])}
