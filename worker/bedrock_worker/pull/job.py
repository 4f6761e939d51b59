"""A job as received: its exact JSON text, and the fields that the worker reads."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from bedrockjobs.base import jsontext
from bedrockjobs.commands import JobReply


@dataclass(frozen=True, eq=False)
class TakenJob:
    """One job that was taken, for one run."""

    text: str
    """The job's JSON as received, with numbers and key order in ``data`` as the author wrote them."""
    reply: JobReply

    @property
    def job_id(self) -> int:
        """Return the job's id."""
        return self.reply.job_id

    @property
    def run_id(self) -> int | None:
        """Return the id of this run, by which the server refuses reports of an earlier run."""
        return self.reply.run_id

    @property
    def before(self) -> tuple[int, int] | None:
        """Return where in the encoded text the results of earlier jobs begin and end, or None."""
        if self.reply.before is None:
            return None
        results = jsontext.members(self.text)["before"]
        begin = len(self.text[: self.text.index(results)].encode())
        return begin, begin + len(results.encode())


def jobs_of(body: bytes) -> list[TakenJob]:
    """Return the jobs in a reply to GetJobs; raises ValueError."""
    return _jobs_in(body, None, "GetJobs")


def jobs_after(body: bytes) -> list[TakenJob]:
    """Return the jobs in a reply to FinishJobs with ``thenGet``; raises ValueError.

    An older server sends no jobs.
    """
    return _jobs_in(body, "[]", "thenGet")


def job_after(body: bytes) -> TakenJob | None:
    """Return the job in a reply to a report with ``thenGet``, or None; raises ValueError.

    An older server sends no body.
    """
    try:
        text = jsontext.members(body.decode()).get("job", "null") if body else "null"
        return None if text == "null" else _job_of(text)
    except (ValidationError, StopIteration, TypeError) as error:
        raise ValueError(f"not an answer to thenGet: {error}") from error


def _jobs_in(body: bytes, missing: str | None, verb: str) -> list[TakenJob]:
    try:
        members = jsontext.members(body.decode())
        text = members["jobs"] if missing is None else members.get("jobs", missing)
        return [_job_of(each) for each in jsontext.elements(text)]
    except (ValidationError, LookupError, StopIteration, TypeError) as error:
        raise ValueError(f"not an answer to {verb}: {error}") from error


def _job_of(text: str) -> TakenJob:
    """Parse a job; its run token is removed from the text, since the command gets the token in a variable."""
    reply = JobReply.model_validate_json(text)
    return TakenJob(
        text if reply.run_token is None else jsontext.with_members(text, {"runToken": None}), reply
    )
