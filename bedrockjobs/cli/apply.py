"""``bedrockjobs apply``: apply schedules and rules from files, after showing the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import PRIORITY_DEFAULT
from bedrockjobs.base.glob import literal
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.wire import wire_name
from bedrockjobs.cli.output import Record, cell, number_of, printable, styled, text_of, write_many, write_one
from bedrockjobs.cli.parameters import read_source
from bedrockjobs.cli.session import REFUSED, Session, built, confirm, records_in, server_options
from bedrockjobs.cli.verbs import option_text, takes
from bedrockjobs.commands import JobSpec, ListJobs, ListRules, PauseJobs, SyncRules, SyncSchedules
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.commands.rules import RuleSpec
from bedrockjobs.definitions import FORMATS, BadDefinitions, Definition, Definitions, Format, format_of, read

Values = Mapping[str, str | None]
"""The JSON texts of values, by wire name; None for a value that is left out."""


def attributes_added(definition: Definition) -> list[str]:
    """Return a line for each attribute of a new schedule, such as ``retries: 2``."""
    wanted = _wanted_attributes(definition)
    usual = {"priority": str(PRIORITY_DEFAULT), "data": "{}"}
    return [f"{key}: {_shown(key, text)}" for key, text in wanted.items() if usual.get(key) != text]


def attributes_changed(definition: Definition, job: Record) -> list[str]:
    """Return a line for each attribute of a schedule that would change, such as ``retries: 2 -> 3``."""
    wanted = _wanted_attributes(definition)
    present = {key: job[key] for key in job if key in wanted or key in OPTIONS}
    return _changes(wanted, present)


def rule_added(rule: Definition) -> list[str]:
    """Return a line for each value of a new rule."""
    return [f"{key}: {cell(RawJSON(text))}" for key, text in _wanted_rule(rule).items() if key in rule.given]


def rule_changed(rule: Definition, existing: Record) -> list[str]:
    """Return a line for each value of a rule that would change."""
    wanted = _wanted_rule(rule)
    present = {key: jsontext.dump(jsontext.parse(existing[key])) for key in wanted if key in existing}
    return _changes({key: wanted[key] for key in wanted if key in rule.given or key in present}, present)


def _wanted_attributes(definition: Definition) -> dict[str, str]:
    spec = JobSpec.model_validate(definition.given)
    wanted = {"repeat": jsontext.dump(spec.repeat), "priority": str(spec.wanted_priority), **spec.chosen()}
    wanted = {key: text for key, text in wanted.items() if text != "null"}
    if "data" in spec.model_fields_set:
        wanted["data"] = spec.data
    return wanted


def _wanted_rule(rule: Definition) -> dict[str, str]:
    values = RuleSpec.model_validate(rule.given).model_dump(by_alias=True)
    return {key: jsontext.dump(value) for key, value in values.items() if key != "name"}


def _changes(wanted: Values, present: Values) -> list[str]:
    return list(
        _change_lines(
            (key, _shown(key, present.get(key)), _shown(key, wanted.get(key)))
            for key in dict.fromkeys((*wanted, *present))
            if present.get(key) != wanted.get(key)
        )
    )


def _change_lines(changes: Iterable[tuple[str, str, str]]) -> Iterable[str]:
    for key, old, new in changes:
        if len(key) + len(old) + len(new) <= 80:
            yield f"{key}: {old} -> {new}"
        else:
            yield f"{key}: {old}"
            yield f"{' ' * len(key)}  -> {new}"


def _shown(key: str, text: str | None) -> str:
    return "left out" if text is None else cell(option_text(key, RawJSON(text)))


CHANGES = (("added", "+", "green"), ("changed", "~", "yellow"), ("removed", "-", "red"))
"""The kinds of changes, each with the key in the server's reply, a sign and a colour."""

KEYS = (*(key for key, _, _ in CHANGES), "unchanged")


SYNCS: dict[str, type[SyncSchedules | SyncRules]] = {"schedule": SyncSchedules, "rule": SyncRules}
"""The command that applies each kind of definition."""


@dataclass(frozen=True)
class Wanted:
    """The definitions that a source should have, merged from all files of the source."""

    source: str
    kinds: dict[str, list[Definition]]
    """The definitions by kind: ``schedule``, and ``rule`` unless the files have no rules."""
    prune: bool = True
    by: str = ""
    take_over: bool = False
    """Whether to take over schedules and rules of the same names that belong to other sources."""

    def sync(self, session: Session, *, dry_run: bool) -> SyncPlan:
        """Send the definitions of each kind to the server; return the changes that the server reports."""
        more = ({} if self.prune else {"prune": False}) | ({"takeOver": True} if self.take_over else {})
        return SyncPlan(
            self,
            {
                kind: session.reply(
                    SYNCS[kind],
                    {
                        "source": self.source,
                        f"{kind}s": [definition.given for definition in definitions],
                        "by": self.by or None,
                        "dryRun": dry_run or None,
                        **more,
                    },
                )
                for kind, definitions in self.kinds.items()
            },
        )


@dataclass(frozen=True)
class SyncPlan:
    """The changes to a source that the server has made, or after a dry run would make."""

    wanted: Wanted
    replies: dict[str, Record]
    """The server's reply for each kind of definition."""

    def names(self, kind: str, key: str) -> list[str]:
        """Return the names of the definitions of a kind that have the change ``key``, such as ``added``."""
        return list(jsontext.parse(self.replies[kind][key]))

    def problem_texts(self, key: str) -> list[str]:
        """Return the ``problems`` or ``warnings`` in the server's replies, each with the line in the file."""
        return [
            _problem_text(problem, self.wanted.kinds[kind], kind)
            for kind, reply in self.replies.items()
            for problem in records_in(reply.get(key, "[]"))
        ]

    @property
    def changes(self) -> bool:
        """Return whether anything would change."""
        return any(self.names(kind, key) for kind in self.replies for key, _, _ in CHANGES)

    def record(self) -> Record:
        """Return the reply about schedules, with the reply about rules, if there is one, as ``rules``."""
        schedules, *rules = self.replies.values()
        return {**schedules, "rules": rules[0]} if rules else schedules

    def sentences(self) -> list[str]:
        """Return a sentence for each kind, with the number of definitions by change."""
        return [
            f"{kind.capitalize()}s of {self.wanted.source}: "
            f"{', '.join(f'{len(self.names(kind, key))} {key}' for key in KEYS)}."
            for kind in self.replies
        ]


def _problem_text(problem: Record, definitions: Sequence[Definition], what: str) -> str:
    """Return a problem that the server reports, with the line of the key in the file."""
    place, detail = int(problem["place"]), text_of(problem, "detail").replace("; takeOver ", "; --take-over ")
    entry = definitions[place].entry if place < len(definitions) else None
    if entry is None:
        return f"{what} {text_of(problem, 'name')}: {detail}"
    key = detail.partition(":")[0]
    field_name = next((name for name in JobSpec.model_fields if wire_name(name) == key), key)
    return entry.text(detail, key, field_name, *(("schedule",) if key == "repeat" else ()))


DATA_CHANGES = "data: follows the definition from now on"
"""Shown for a changed schedule none of whose attributes differ: a run may have changed the job's data."""

PAUSE_REASON = "added paused"


class ChangesRefused(click.ClickException):
    """The server would refuse the changes; the message has a line for each problem."""

    exit_code = REFUSED


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--source",
    metavar="NAME",
    help="Source that owns the schedules; default: the file's `source`, or its name.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of FILE; default: by its suffix.")
@click.option("--no-prune", is_flag=True, help="Keep what is not in FILE; the file may set this itself.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Also take over entries of the same name that belong to another source, or were added by hand.",
)
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@takes(SyncSchedules, "by")
@server_options
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
    """Apply the schedules and notification rules of FILE to its source.

    FILE has a list of schedules, and a list of rules under `notify`, in TOML, YAML or JSON; - is stdin. All
    additions, changes and removals are shown first; then the schedules are changed in one commit, and the
    rules in another. Schedules and rules of other sources, and those made by hand, stay unchanged; so do all
    rules if FILE has no `notify`.

    All errors of the files are reported together, with their lines. Files of the same source are merged.
    """
    wanted = _wanted(files, form, source, by, prune=not no_prune, take_over=take_over)
    carry_out(session, wanted, dry_run=dry_run, yes=yes)


def _wanted(
    files: Sequence[str], form: Format | None, source: str | None, by: str, *, prune: bool, take_over: bool
) -> list[Wanted]:
    """Read all files, and merge the files of each source; raises click.UsageError with all errors."""
    problems: list[str] = []
    by_source: dict[str, Wanted] = {}
    for file in files:
        try:
            definitions = _read(file, form)
        except BadDefinitions as error:
            problems += error.problems
            continue
        owner = source or definitions.source or ("" if file == "-" else Path(file).name)
        if not owner:
            raise click.UsageError("--source: stdin has no name; name the source of the schedules")
        kinds = {"schedule": definitions.schedules}
        if definitions.rules is not None:
            kinds["rule"] = definitions.rules
        one = Wanted(owner, kinds, prune and definitions.prune, by, take_over)
        if owner in by_source:
            one, names = _together(by_source[owner], one)
            problems += [
                f"{file}: {name}: an earlier file of the source {owner} defines it too" for name in names
            ]
        by_source[owner] = one
    problems += _in_two_sources(list(by_source.values()))
    if problems:
        raise click.UsageError(_all_of(problems))
    return list(by_source.values())


def _in_two_sources(wanted: list[Wanted]) -> list[str]:
    """Return the errors for names that occur in two sources."""
    owners: dict[str, str] = {}
    problems = []
    for one in wanted:
        for kind, definitions in one.kinds.items():
            for each in definitions:
                label = f"{kind} {each.name}"
                other = owners.setdefault(label, one.source)
                if other != one.source:
                    problem = f"name: the source {other} defines it too"
                    problems.append(each.entry.text(problem, "name") if each.entry else f"{label}: {problem}")
    return problems


class TextFile(NamedTuple):
    """The text of a file in TOML, YAML or JSON, with the file's name in messages."""

    text: str
    form: Format
    label: str


def text_file(file: str, form: Format | None) -> TextFile:
    """Return a file, or stdin for ``-``; without ``form``, its suffix says the format.

    Raises ValueError if the file cannot be read, and click.UsageError if its format is unknown.
    """
    chosen = form or format_of(file)
    if chosen is None:
        raise click.UsageError(
            f"--format: {file!r} expected a name that ends with .toml, .yaml or .json, or this option"
        )
    return TextFile(read_source(file), chosen, "stdin" if file == "-" else file)


def _read(file: str, form: Format | None) -> Definitions:
    try:
        source = text_file(file, form)
    except ValueError as error:
        raise BadDefinitions(str(error)) from None
    return read(*source)


def _together(first: Wanted, second: Wanted) -> tuple[Wanted, list[str]]:
    """Merge the definitions of two files of one source; return the result, and names that both files have."""
    kinds = dict(first.kinds)
    twice = []
    for kind, definitions in second.kinds.items():
        names = {definition.name for definition in kinds.get(kind, [])}
        twice += [f"{kind} {each.name}" for each in definitions if each.name in names]
        kinds[kind] = [*kinds.get(kind, []), *definitions]
    return replace(first, kinds=kinds, prune=first.prune and second.prune), twice


def _all_of(problems: list[str]) -> str:
    if len(problems) == 1:
        return printable(problems[0])
    lines = "\n".join(f"  {printable(problem)}" for problem in problems)
    return f"{len(problems)} problems; nothing was changed:\n{lines}"


def carry_out(session: Session, sources: list[Wanted], *, dry_run: bool = False, yes: bool = False) -> None:
    """Show the changes, ask for confirmation unless ``yes``, and apply the changes.

    Nothing is removed from a source without ``prune``. Raises click.UsageError if no terminal is there to
    ask.
    """
    plans = [wanted.sync(session, dry_run=True) for wanted in sources]
    problems = [problem for plan in plans for problem in plan.problem_texts("problems")]
    if problems:
        raise ChangesRefused(_all_of(problems))
    for plan in plans:
        for warning in plan.problem_texts("warnings"):
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
        owners = ", ".join(plan.wanted.source for plan in changed)
        confirm(f"Make this the {_what(changed)} of {printable(owners)}?")
    done = [_done(session, plan) if plan.changes else plan for plan in plans]
    _write(session, done, [sentence for plan in done for sentence in plan.sentences()])


def _done(session: Session, plan: SyncPlan) -> SyncPlan:
    """Apply a plan; return the changes that the server made."""
    wanted, added = plan.wanted, plan.names("schedule", "added")
    for definition in wanted.kinds["schedule"]:
        if definition.paused and definition.name in added:
            pause = {"name": literal(definition.name), "reason": PAUSE_REASON, "by": wanted.by or None}
            session.reply(PauseJobs, pause)
    return wanted.sync(session, dry_run=False)


# --- output ------------------------------------------------------------------------------------------------


def _write(session: Session, plans: list[SyncPlan], sentences: Iterable[str]) -> None:
    """Write the result of applying: as a table the sentences, otherwise the server's replies."""
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
            for kind in plan.replies:
                for name in plan.names(kind, key):
                    click.echo(printable(name))


def _what(plans: list[SyncPlan]) -> str:
    return "schedules and rules" if any("rule" in plan.replies for plan in plans) else "schedules"


def _same(plan: SyncPlan) -> str:
    return " and ".join(number_of(len(plan.names(kind, "unchanged")), kind) for kind in plan.replies)


def _show_lines(session: Session, plan: SyncPlan, *, err: bool, titled: bool) -> None:
    """Write a line for each changed definition, followed by a line for each changed attribute."""
    if titled:
        click.echo(styled(f"{printable(plan.wanted.source)}:", err=err, bold=True), err=err)
    for kind, definitions in plan.wanted.kinds.items():
        defined = {definition.name: definition for definition in definitions}
        existing = _rules_there(session) if kind == "rule" and plan.names(kind, "changed") else {}
        for key, sign, colour in CHANGES:
            for name in plan.names(kind, key):
                label, more = name, []
                if kind == "rule":
                    label = f"rule {name}"
                    if key == "added":
                        more = rule_added(defined[name])
                    elif name in existing and key == "changed":
                        more = rule_changed(defined[name], existing[name])
                elif key != "removed":
                    more = _attributes(session, defined[name], plan.wanted, new=key == "added")
                click.echo(styled(f"{sign} {printable(label)}", err=err, fg=colour), err=err)
                for line in more:
                    click.echo(f"    {printable(line)}", err=err)
    click.echo(f"{_same(plan)} unchanged.", err=err)


def _attributes(session: Session, definition: Definition, wanted: Wanted, *, new: bool) -> list[str]:
    """Return lines for all attributes of a new schedule, or for changed attributes of an existing one."""
    if new:
        return [*attributes_added(definition), *(["paused"] if definition.paused else [])]
    query = built(ListJobs, {"name": literal(definition.name), "limit": 1})
    existing = records_in(session.record(query)["jobs"])
    if not existing:
        return []
    owner = text_of(existing[0], "source")
    lines = [f"source: {owner or 'none'} -> {wanted.source}"] if wanted.take_over else []
    lines = [] if owner == wanted.source else lines
    return [*lines, *attributes_changed(definition, existing[0])] or [DATA_CHANGES]


def _rules_there(session: Session) -> dict[str, Record]:
    # Maximum number of rules to compare: a server has fewer.
    reply = session.reply(ListRules, {"limit": 1_000})
    return {text_of(rule, "name"): rule for rule in records_in(reply["rules"])}
