"""What the command of a run may do with the token of that run: tell its progress, print, and have children.

It knows no tokens: who comes with one is found elsewhere. Whether the run is still open is looked up in the
unit in which the command is done.
"""

from __future__ import annotations

from typing import Any

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.run_token import RunOfToken
from bedrockjobs.commands import AppendOutput, Command, CreateJob, CreateJobs, QueryJob, UpdateJob
from bedrockjobs.store.side_tables import Records

WORDS = (
    "a run's token is for UpdateJob with its jobID and progress alone, QueryJob with its jobID, AppendOutput"
    " with its runID, and CreateJob and CreateJobs with its jobID as parentJobID"
)
"""What somebody is told who wants anything else with it."""


def check(run: RunOfToken, command: Command[Any]) -> None:
    """Raise Forbidden for a command that is not one of this run."""
    if not _is_of(run, command):
        raise Forbidden(detail=WORDS)


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
