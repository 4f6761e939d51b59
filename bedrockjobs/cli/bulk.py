"""One command for many jobs: how many and which, a question, job by job, and what happened in a line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from bedrockjobs.cli.choosing import Chosen
from bedrockjobs.cli.output import Record, printable, write_many, write_one
from bedrockjobs.cli.session import NOT_FOUND, OK, REFUSED, Failure, Refusal, Session, interactive

NAMES_SHOWN = 5
"""Names that are told of the jobs that were chosen, those with most jobs first."""

REASONS_SHOWN = 3
"""Reasons of refusals that the last line tells, the most frequent ones."""

Act = Callable[[str], str]
"""Does it to one jobID and returns the outcome, such as ``deleted``; raises Failure where it is refused."""


def counted(found: list[Chosen]) -> str:
    """Return how many jobs there are, and their names: ``3 jobs: 2 mail/welcome, 1 mail/digest``."""
    names = Counter(job.name for job in found).most_common()
    words = ", ".join(f"{count:,} {name}" for name, count in names[:NAMES_SHOWN])
    more = f", and {len(names) - NAMES_SHOWN:,} more names" if len(names) > NAMES_SHOWN else ""
    return f"{jobs(len(found))}: {words}{more}"


def jobs(count: int) -> str:
    """Return a number of jobs in words."""
    return f"{count:,} job" if count == 1 else f"{count:,} jobs"


def for_each(
    session: Session, verb: str, found: list[Chosen], act: Act, *, dry_run: bool = False, yes: bool = False
) -> None:
    """Do something to each job, after a question unless ``yes``; ``verb`` names it, such as ``delete``.

    Jobs are done one by one: each is refused for itself, and what was done before an interrupt stays. The
    exit status is 4 where any was refused. Raises click.UsageError where nobody can be asked.
    """
    if not found and session.form == "table":
        click.echo(f"No job to {verb}: none matches.", err=True)
        return
    if dry_run:
        _would(session, verb, found)
        return
    if found and not yes:
        click.echo(printable(counted(found)), err=True)
        if not interactive():
            raise click.UsageError("nobody is there to be asked: give --yes, or --dry-run to look only")
        click.confirm(f"{verb.capitalize()} {jobs(len(found))}?", abort=True, err=True)
    outcomes: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    try:
        with _progress(len(found)) as tell:
            for job in found:
                try:
                    outcomes[act(job.job_id)] += 1
                    if session.form == "name":
                        click.echo(job.job_id)
                except Failure as failure:
                    if not (isinstance(failure, Refusal) or failure.exit_code in (NOT_FOUND, REFUSED)):
                        raise
                    refused[failure.message] += 1
                tell()
    finally:  # what was done is told also where the server went away or somebody interrupted
        _write(session, verb, len(found), outcomes, refused)
    click.get_current_context().exit(REFUSED if refused else OK)


def _would(session: Session, verb: str, found: list[Chosen]) -> None:
    if session.form == "table":
        click.echo(printable(f"Would {verb} {counted(found)}."))
    else:
        write_many([{"jobID": int(job.job_id), "name": job.name} for job in found], session.form)


def _write(session: Session, verb: str, total: int, outcomes: Counter[str], refused: Counter[str]) -> None:
    if session.form != "name":
        record: Record = {"command": verb, "jobs": total, **outcomes, "refused": sum(refused.values())}
        write_one(record, session.form, _sentence(verb, total, outcomes, refused))


def _sentence(verb: str, total: int, outcomes: Counter[str], refused: Counter[str]) -> str:
    """Return what happened: ``Deleted 2 of 3 jobs; 1 refused: 405 Can't delete a RUNNING job.``"""
    done = ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common())
    of = f" of {jobs(total)}" if sum(outcomes.values()) != total or len(outcomes) > 1 else ""
    if not of:
        of = " job" if total == 1 else " jobs"
    words = f"{done.capitalize()}{of}" if done else f"None of {jobs(total)} to {verb}"
    if refused:
        reasons = "; ".join(reason for reason, _ in refused.most_common(REASONS_SHOWN))
        words += f"; {sum(refused.values()):,} refused: {reasons}"
    left = total - sum(outcomes.values()) - sum(refused.values())
    return f"{words}; {left:,} not tried." if left else f"{words}."


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show how far it is, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=total, file=sys.stderr) as bar:
        yield lambda: bar.update(1)
