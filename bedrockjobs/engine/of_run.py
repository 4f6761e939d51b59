"""What the command of a run may do with the token of that run: tell its progress, print, and have children.

It knows no tokens: who comes with one is found elsewhere. Whether the run is still open is looked up in the
unit in which the command is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.run_token import RunOfToken
from bedrockjobs.commands import AppendOutput, Command, CreateJob, CreateJobs, JobSpec, QueryJob, UpdateJob
from bedrockjobs.job.lanes import OWN_COMMANDS
from bedrockjobs.store.records import Records

WORDS = (
    "a run's token is for UpdateJob with its jobID and progress alone, QueryJob with its jobID, AppendOutput"
    " with its runID, and CreateJob and CreateJobs with its jobID as parentJobID"
)
"""What somebody is told who wants anything else with it."""


def check(run: RunOfToken, command: Command[Any], roles: frozenset[str]) -> None:
    """Raise Forbidden for a command that is not one of this run, whose worker has some ``roles``.

    A worker that creates nothing by its own token must not do so by that of a run, with a command that it
    chooses; children without one run what workers of their name run anyway.
    """
    if not _is_of(run, command):
        raise Forbidden(detail=WORDS)
    if "produce" in roles:
        return
    specs: Sequence[JobSpec] = ()
    if isinstance(command, CreateJobs):
        specs = command.jobs
    elif isinstance(command, CreateJob):
        specs = (command,)
    for spec in specs:
        for option in OWN_COMMANDS:
            if getattr(spec, option):  # an empty one is none
                raise Forbidden(
                    detail=f"{option}: children with a command of their own need the role produce in the"
                    " token that the job was taken with"
                )


def check_open(run: RunOfToken, records: Records) -> None:
    """Raise Forbidden for a run that is over: its token counts no more."""
    found = records.run(run.run_id)
    if found is None or found.status != "running" or found.job_id != run.job_id:
        raise Forbidden(detail="the run of this token is over")


def _is_of(run: RunOfToken, command: Command[Any]) -> bool:
    if isinstance(command, UpdateJob):
        return command.job_id == run.job_id and command.model_fields_set <= {"job_id", "progress"}
    if isinstance(command, QueryJob):
        return command.job_id == run.job_id
    if isinstance(command, AppendOutput):
        return command.run_id == run.run_id
    if isinstance(command, CreateJobs):
        return all(spec.parent_job_id == run.job_id for spec in command.jobs)
    return isinstance(command, CreateJob) and command.parent_job_id == run.job_id
