"""How a job looks in an answer: JSON text with its keys in order, its data as it was spelled."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.fingerprints import line_of
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.job.lifecycle import KEPT
from bedrockjobs.job.rows import Job, RunGiven, RunRow


def render(row: Job, more: dict[str, str] | None = None) -> str:
    """Return a job as JSON text with its keys in order; ``more`` holds further members as JSON text.

    Differs from Bedrock: names like ``1234567`` or ``null`` come back from it as bare numbers and words.
    """
    if not more and not row.parent_job_id:
        return (
            f'{{"created":"{row.created}","data":{row.data},"jobID":{row.job_id},'
            f'"lastRun":"{row.last_run}","name":{quoted(row.name)},"nextRun":"{row.next_run}",'
            f'"priority":{row.priority},"repeat":{quoted(row.repeat)},'
            f'"retryAfter":{quoted(row.retry_after)}}}'
        )
    parts = {
        "created": f'"{row.created}"',
        "data": row.data,
        "jobID": str(row.job_id),
        "lastRun": f'"{row.last_run}"',
        "name": quoted(row.name),
        "nextRun": f'"{row.next_run}"',
        "priority": str(row.priority),
        "repeat": quoted(row.repeat),
        "retryAfter": quoted(row.retry_after),
        **(more or {}),
    }
    if row.parent_job_id:
        parts["parentJobID"] = str(row.parent_job_id)
    return "{" + ",".join(f'"{key}":{parts[key]}' for key in sorted(parts)) + "}"


def shown_options(row: Job) -> dict[str, str]:
    """Return the options of a job that its answers show, as JSON texts."""
    return {} if row.options_json == "{}" else jsontext.members(row.options_json)


_DATA = {
    "data": "{}",
    "parentData": None,
    "finishedChildJobs": None,
    "cancelledChildJobs": None,
    "url": None,
    "result": None,
    "progress": None,
    "output": "[]",
}
"""Members of a job or a run that count as data, and what stands there instead; None: they are left out."""


def without_data(text: str) -> str:
    """Return a job or a run, as JSON text, as somebody is shown it who sees no data."""
    found = jsontext.members(text)
    shown = {key: value for key, value in _DATA.items() if key in found}
    if found.get("error", "null") != "null":
        shown["error"] = quoted(error_kind(jsontext.parse(found["error"])))
    return jsontext.with_members(text, shown)


NOT_SHOWN = "not shown"
"""What stands for an error whose kind cannot be told from what a command has printed."""

_HOW_IT_ENDED = re.compile(
    r"(timed out after [0-9.]+ s \()?(exit status [0-9]+|SIG[A-Z0-9]+|signal [0-9]+)\)?"
)
_EXCEPTION = re.compile(
    r"((?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z0-9_]*(?:Error|Exception|Exit|Interrupt))(?::|$)"
)


def error_kind(error: str) -> str:
    """Return what kind of error it was, for somebody who must not see what the command has printed."""
    lines = [line for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    if _HOW_IT_ENDED.fullmatch(lines[0]):
        return lines[0]
    found = next(filter(None, map(_EXCEPTION.match, (line_of(error), lines[-1], lines[0]))), None)
    return found[1][:ERROR_KIND_CHARS_MAX] if found else NOT_SHOWN


ERROR_KIND_CHARS_MAX = 100
"""Length of the name of an exception: a command may print anything that looks like one."""


def job_as_unseen(row: Job) -> Job:
    """Return a job as somebody is shown it who sees no data, and so no words of its error."""
    error = row.memory.error if row.memory_json != "{}" else None
    shown = job_without_data(row)
    return shown if error is None else shown.noting(error=error_kind(error))


_KIND, _DETAIL = 2, 7
"""Where an event, as EventReply has it, says what happened, and more of it."""


def event_as_unseen(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an event, as EventReply has it, without words that a command has printed."""
    if row[_KIND] not in ("failed", "timeout"):
        return row
    return (*row[:_DETAIL], error_kind(row[_DETAIL]), *row[_DETAIL + 1 :])


def job_without_data(row: Job) -> Job:
    """Return a job as somebody is shown it who sees no data."""
    return row._replace(data="{}", options_json=without_data(row.options_json))


def entity_tag(text: str) -> str:
    """Return the entity tag of an answer: the same as long as the answer is."""
    return f'"{sha256(text.encode()).hexdigest()[:32]}"'


def render_with_state(row: Job) -> str:
    """Return a job as QueryJob and ListJobs show it: with its state and what its last end left behind."""
    more = {"state": f'"{row.state}"', **shown_options(row)}
    if row.memory_json != "{}":
        memory = row.memory
        if memory.error is not None:
            more["error"] = quoted(memory.error)
        if memory.exit_code is not None:
            more["exitCode"] = str(memory.exit_code)
    if row.expires:
        more["expires"] = f'"{row.expires}"'
    return render(row, more)


def render_kept(run: RunRow, given: RunGiven) -> str:
    """Return a job that has ended, and that is kept as a run, as QueryJob shows it."""
    row = Job(
        run.created,
        run.job_id,
        KEPT,
        run.name,
        run.scheduled_for,
        run.started,
        data=given.data or "{}",
        priority=given.priority,
        options_json=given.options_json,
    )
    more = {
        **shown_options(row),
        "state": f'"{KEPT}"',
        "attempt": str(run.attempt),
        "runID": str(run.run_id),
        "finished": f'"{run.ended}"',
    }
    if run.result:
        more["result"] = run.result
    if run.exit_code is not None:
        more["exitCode"] = str(run.exit_code)
    return render(row, more)
