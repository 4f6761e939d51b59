"""How jobs appear in replies: JSON text with sorted keys, and data exactly as it was stored."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SECONDS
from bedrockjobs.base.errors import ERROR_TYPE_CHARS_MAX, line_of, type_of_error
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.job.lifecycle import KEPT
from bedrockjobs.job.rows import Job, RunGiven, RunRow, WorkflowJobRow


def render(row: Job, more: dict[str, str] | None = None) -> str:
    """Return a job as JSON text with sorted keys; ``more`` holds further members as JSON text.

    Differs from Bedrock: Bedrock returns names like ``1234567`` or ``null`` as bare numbers and words.
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
    """Return the options that replies show, as JSON texts."""
    return {} if row.options_json == "{}" else jsontext.members(row.options_json)


_DATA = (
    "data",
    "parentData",
    "finishedChildJobs",
    "cancelledChildJobs",
    "failedChildJobs",
    "url",
    "uniqueKey",
    "result",
    "progress",
    "output",
    "before",
)
"""Members of a job or run that count as data."""


def without_data(text: str) -> str:
    """Return a job or run (JSON text) as shown to a token that may not see data.

    Members that count as data are left out and listed in ``hidden``, so that they do not look empty.
    """
    found = jsontext.members(text)
    hidden = [key for key in _DATA if key in found]
    shown: dict[str, str | None] = dict.fromkeys(hidden)
    if hidden:
        shown["hidden"] = jsontext.dump(hidden)
    if found.get("error", "null") != "null":
        kind = error_kind(jsontext.parse(found["error"]))
        shown["error"] = quoted(kind)
        if "errorType" in found:
            shown["errorType"] = quoted(kind) if type_of_error(kind) else None
    return jsontext.with_members(text, shown)


NOT_SHOWN = "not shown"
"""Replaces an error if its kind cannot be told apart from text that the command printed."""

_HOW_IT_ENDED = re.compile(
    r"(timed out after [0-9.]+ s \()?([Ee]xit status [0-9]+|SIG[A-Z0-9]+|signal [0-9]+)\)?"
)
_BY_SERVER = re.compile(
    r"Run lost: worker .* was silent for \d+ s$|Run over its time: \d+ s$"
    r"|Run did not end after its job was cancelled$|Its job was cancelled(?: before anybody had it)?$"
    r"|The job was (?:cancelled|deleted|requeued)$|Lost too often$|Its name is on the crash list$"
    r"|Given out again after retryAfter$|Failed instead of handed out again$"
    r"|No worker could run it in \d+ tries(?=: )|Child job \d+ \(.*?\) failed(?=: )"
    r"|Job \d+ \(.*?\) before it (?:failed(?=: |$)|was cancelled$)"
    r"|It was not started in time$|The workflow was cancelled$"
)
"""Errors written by the server; three may end with an error that a worker reported, which is cut off."""
_EXCEPTION = re.compile(
    r"((?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z0-9_]*(?:Error|Exception|Exit|Interrupt))(?::|$)"
)


def error_kind(error: str) -> str:
    """Return the kind of an error, without any text that the job's command printed."""
    lines = [line for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    if _HOW_IT_ENDED.fullmatch(lines[0]):
        return lines[0]
    if by_server := _BY_SERVER.match(lines[0]):
        return by_server[0]
    found = next(filter(None, map(_EXCEPTION.match, (line_of(error), lines[-1], lines[0]))), None)
    return found[1][:ERROR_TYPE_CHARS_MAX] if found else NOT_SHOWN


def job_as_unseen(row: Job) -> Job:
    """Return a job without data and error text, as shown to a token that may not see data."""
    error = row.memory.error if row.memory_json != "{}" else None
    shown = job_without_data(row)
    return shown if error is None else shown.noting(error=error_kind(error))


_PRINTED = frozenset({"failed", "timeout", "handed back"})
"""Kinds of events whose detail is an error as its worker reported it."""

_KIND, _DETAIL = 2, 7
"""Positions of the kind and the detail in a row that has the columns of EventReply."""


def event_as_unseen(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an event row with the columns of EventReply, without text that a command printed."""
    return (*row[:_DETAIL], printed_detail(row[_KIND], row[_DETAIL]), *row[_DETAIL + 1 :])


def printed_detail(kind: str, detail: str) -> str:
    """Return the detail of an event without text that a job's command printed."""
    return error_kind(detail) if kind in _PRINTED else detail


def job_without_data(row: Job) -> Job:
    """Return a job without data, as shown to a token that may not see data."""
    options = jsontext.with_members(row.options_json, {"url": None})
    return row._replace(data="{}", options_json=options)


def entity_tag(text: str) -> str:
    """Return the entity tag of a reply, a hash of its text."""
    return f'"{sha256(text.encode()).hexdigest()[:32]}"'


def render_with_state(row: Job, also: dict[str, str] | None = None) -> str:
    """Return a job as QueryJob and ListJobs show it: with its state and the result of its last run.

    ``also`` are members that are not in the row, as JSON texts.
    """
    more = {"state": f'"{row.state}"', **shown_options(row), **(also or {})}
    if row.memory_json != "{}":
        memory = row.memory
        if memory.error is not None:
            more["error"] = quoted(memory.error)
        if memory.exit_code is not None:
            more["exitCode"] = str(memory.exit_code)
    if row.expires:
        more["expires"] = f'"{row.expires}"'
    return render(row, more)


def render_kept(run: RunRow, run_input: RunGiven, also: dict[str, str]) -> str:
    """Return an ended job of which only a run is stored, as QueryJob shows it, with the members ``also``."""
    row = Job(
        run.created,
        run.job_id,
        KEPT,
        run.name,
        run.scheduled_for,
        run.started,
        data=run_input.data or "{}",
        priority=run_input.priority,
        options_json=run_input.options_json,
    )
    more = {
        **shown_options(row),
        **also,
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


def render_ended(its: WorkflowJobRow, result: str) -> str:
    """Return a job whose only record is in its workflow, as QueryJob shows it."""
    row = Job(
        its.started[:SECONDS] or its.ended[:SECONDS],
        its.job_id,
        its.state,
        its.name,
        its.started,
        its.started,
    )
    more = {
        "state": f'"{its.state}"',
        "workflowID": str(its.workflow_id),
        "ref": quoted(its.ref),
        "finished": f'"{its.ended}"',
    }
    if result:
        more["result"] = result
    if its.reason:
        more["error"] = quoted(its.reason)
    return render(row, more)
