"""Which job is meant: by its jobID, or by its name where one job alone has it."""

from __future__ import annotations

import re

from bedrockjobs.cli.output import text_of
from bedrockjobs.cli.pages import literal
from bedrockjobs.cli.session import NOT_FOUND, REFUSED, Failure, Session, built, records_in
from bedrockjobs.commands import ListJobs

NAMESAKES_SHOWN = 5
"""Jobs of one name that are told to choose from: enough to see that the name does not tell them apart."""

_NUMBER = re.compile(r"\s*[-+]?\d*\s*")
"""What is meant as a jobID, also where it cannot be one: that is for the command's class to say."""


def is_number(given: str) -> bool:
    """Tell whether a jobID is meant: a number, or nothing."""
    return _NUMBER.fullmatch(given) is not None


def job_id_of(session: Session, given: str) -> str:
    """Return the jobID of the job that is meant by its jobID or by its name.

    A number is always a jobID. Raises Failure where no job has the name, or more than one.
    """
    if is_number(given):
        return given
    asked = built(ListJobs, {"name": literal(given), "limit": NAMESAKES_SHOWN + 1})
    found = [text_of(job, "jobID") for job in records_in(session.record(asked)["jobs"])]
    if not found:
        raise Failure(f"there is no job {given!r}; `bedrockjobs job list` shows them", NOT_FOUND)
    if len(found) > 1:
        several = ", ".join(found[:NAMESAKES_SHOWN]) + (", ..." if len(found) > NAMESAKES_SHOWN else "")
        raise Failure(f"several jobs are named {given!r}: give one of the jobIDs {several}", REFUSED)
    return found[0]
