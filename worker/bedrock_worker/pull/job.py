"""A job as the server gave it: its text, kept to the byte, and what the worker reads of it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.commands import JobReply


@dataclass(frozen=True, eq=False)
class Job:
    """One job that was taken, and its run."""

    text: str
    """The job's JSON as it came: numbers and the order of keys in ``data`` are as their author wrote them."""
    reply: JobReply

    @property
    def job_id(self) -> int:
        """Return the job's id."""
        return self.reply.job_id

    @property
    def run_id(self) -> int | None:
        """Return the id of this run, which fences its reports off from those of another run."""
        return self.reply.run_id


def jobs_of(body: bytes) -> list[Job]:
    """Return the jobs in an answer to GetJobs; raises ValueError where it is none."""
    return _jobs_in(body, None, "GetJobs")


def jobs_after(body: bytes) -> list[Job]:
    """Return the jobs in an answer to ``thenGet`` of several ends; raises ValueError where it is none.

    An older server answers without them.
    """
    return _jobs_in(body, "[]", "thenGet")


def job_after(body: bytes) -> Job | None:
    """Return the job in an answer to ``thenGet``, None where there is none; raises ValueError for no answer.

    An older server answers without a body.
    """
    try:
        text = jsontext.members(body.decode()).get("job", "null") if body else "null"
        return None if text == "null" else _job_of(text)
    except (ValidationError, StopIteration, TypeError) as error:
        raise ValueError(f"not an answer to thenGet: {error}") from error


def _jobs_in(body: bytes, missing: str | None, asked: str) -> list[Job]:
    try:
        members = jsontext.members(body.decode())
        text = members["jobs"] if missing is None else members.get("jobs", missing)
        return [_job_of(each) for each in jsontext.elements(text)]
    except (ValidationError, LookupError, StopIteration, TypeError) as error:
        raise ValueError(f"not an answer to {asked}: {error}") from error


def _job_of(text: str) -> Job:
    """Return a job; its command gets the token of its run as a variable, and not in what it may print."""
    reply = JobReply.model_validate_json(text)
    return Job(text if reply.run_token is None else jsontext.with_members(text, {"runToken": None}), reply)
