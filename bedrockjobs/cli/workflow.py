"""``bedrockjobs workflow``: create workflows, show their jobs by layer, retry and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import timestamp
from bedrockjobs.base.errors import line_of
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.vocabulary import called
from bedrockjobs.base.wire import wire_name
from bedrockjobs.cli.apply import text_file
from bedrockjobs.cli.output import (
    Record,
    number_of,
    printable,
    text_of,
    took_text,
    write_many,
    write_one,
    write_wrapped,
)
from bedrockjobs.cli.parameters import STATES_ALSO, SubcommandGroup, WordChoice
from bedrockjobs.cli.session import Session, server_options
from bedrockjobs.cli.verbs import GLOB, act, listing, takes, typed, typed_values
from bedrockjobs.commands import (
    CancelWorkflow,
    CreateWorkflow,
    ListWorkflows,
    QueryWorkflow,
    RetryWorkflow,
    WorkflowJob,
)
from bedrockjobs.commands.workflows import WORKFLOW_STATES
from bedrockjobs.definitions import FORMATS, Format, document_of
from bedrockjobs.job.layers import ENDED_STATES, layers

SHOW_COLUMNS = ("step", "ref", "state", "jobID", "name", "started", "took", "reason")

_STATES_ALSO = {word: state for word, state in STATES_ALSO.items() if state in WORKFLOW_STATES}

WORKFLOW = typed("workflow_id", metavar="ID")


@click.group(cls=SubcommandGroup)
def workflow() -> None:
    """Create and follow workflows: jobs of which some start after others have ended.

    \b
    bedrockjobs workflow create nightly.yaml
    bedrockjobs workflow list --state failed
    bedrockjobs workflow show 7
    bedrockjobs workflow retry 7
    """


@workflow.command()
@click.argument("file", metavar="FILE")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of FILE; default: by its suffix.")
@takes(CreateWorkflow, typed("name", "--name", "called", help="Instead of the name in FILE."))
@takes(CreateWorkflow, "keep", "idempotency_key", "by")
@server_options
def create(session: Session, /, file: str, form: Format | None, **_: Any) -> None:
    """Create the workflow of FILE and print its workflowID.

    FILE has a `name` and a list of `jobs` in YAML, JSON or TOML; - is stdin. Each job has a `ref`, a `name`,
    what it comes `after`, and other attributes of a job.
    """
    given = {key: value for key, value in typed_values(session, CreateWorkflow).items() if value is not None}
    reply = session.reply(CreateWorkflow, {**_read(file, form), **given})
    jobs = number_of(len(jsontext.members(reply["jobIDs"])), "job")
    write_one(
        reply, session.form, f"Created workflow {reply['workflowID']} with {jobs}.", identity="workflowID"
    )


def _read(file: str, form: Format | None) -> dict[str, Any]:
    """Return the parameters in a file; raises click.UsageError."""
    try:
        source = text_file(file, form)
        document = document_of(*source)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise click.UsageError(f"{source.label}: expected a name and a list of jobs")
    jobs = [_spelled(job, WorkflowJob.model_fields) if isinstance(job, dict) else job for job in jobs]
    return {**_spelled(document, CreateWorkflow.model_fields), "jobs": jsontext.dump(jobs)}


def _spelled(values: dict[str, Any], fields: Any) -> dict[str, Any]:
    """Return the values of a file by wire name; the file may also use the names of the Python client."""
    return {wire_name(key) if key in fields else key: value for key, value in values.items()}


def _row(record: Record) -> Record:
    jobs, left = int(text_of(record, "jobs")), int(text_of(record, "open"))
    return {
        "workflowID": record["workflowID"],
        "state": record["state"],
        "name": record["name"],
        "done": f"{jobs - left:,} of {jobs:,}",
        "failed": f"{int(text_of(record, 'failed')):,}",
        "created": record["created"],
        "took": took_text(text_of(record, "created"), text_of(record, "ended")),
    }


listing(
    workflow,
    ListWorkflows,
    GLOB,
    typed("state", type=WordChoice(WORKFLOW_STATES, _STATES_ALSO, case_sensitive=False)),
    "before",
    what="workflows",
    row=_row,
    identity="workflowID",
    text="List workflows, newest first.\n\n`done` is how many of its jobs have ended, `failed` how many did"
    " not finish and count for its state.",
    none="No workflow matches.",
    none_at_all="No workflows: `bedrockjobs workflow create FILE` makes one.",
)


@workflow.command()
@takes(QueryWorkflow, WORKFLOW, "results")
@server_options
def show(session: Session, /, **_: Any) -> None:
    """Show a workflow and its jobs, those that start first at the top.

    `step` counts what has to end before: jobs of the same step do not wait for each other. `reason` is what
    a job waits for, or why it failed.
    """
    whole = _whole(session)
    if session.form != "table":
        write_one(whole[0] | {"jobs": whole[1]}, session.form, identity="workflowID")
        return
    head, jobs = whole
    for sentence in _sentences(head, jobs):
        write_wrapped(printable(sentence))
    click.echo()
    write_many(
        _rows(jobs, timestamp(session.clock())),
        "table",
        SHOW_COLUMNS,
        none="No job of it is within the token's names.",
    )


def _whole(session: Session) -> tuple[dict[str, Any], list[Record]]:
    """Return a workflow and all its jobs, reading page by page."""
    parameters = typed_values(session, QueryWorkflow)
    limit = QueryWorkflow.model_fields["limit"].default
    jobs: list[Record] = []
    while True:
        after = {"after": text_of(jobs[-1], "jobID")} if jobs else {}
        head: dict[str, Any] = session.reply(QueryWorkflow, {**parameters, **after})
        page = [jsontext.members(text) for text in jsontext.elements(head["jobs"])]
        jobs += [{key: RawJSON(value) for key, value in job.items()} for job in page]
        if len(page) < limit:
            return head, jobs


def _sentences(head: Record, jobs: Sequence[Record]) -> list[str]:
    """Return sentences about the progress of a workflow and, if it failed, the command to go on."""
    number, state = text_of(head, "workflowID"), text_of(head, "state")
    done = sum(text_of(job, "state") in ENDED_STATES for job in jobs)
    failed = sum(text_of(job, "state") == "FAILED" for job in jobs)
    took = took_text(text_of(head, "created"), text_of(head, "ended"))
    parts = [f"{done:,} of {number_of(len(jobs), 'job')} ended"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"took {took}"] if took else []
    sentences = [f"Workflow {number} ({text_of(head, 'name')}) is {state}: {', '.join(parts)}."]
    if state == "FAILED":
        sentences.append(f"`bedrockjobs workflow retry {number}` starts again what did not finish.")
    return sentences


def _rows(jobs: Sequence[Record], now: str) -> list[Record]:
    """Return the rows of the jobs by layer, first the jobs that wait for none; within a layer by creation."""
    after = {text_of(job, "ref"): list(jsontext.parse(job["after"])) for job in jobs}
    open_refs = {text_of(job, "ref") for job in jobs if text_of(job, "state") not in ENDED_STATES}
    layer = layers(after)
    shown: list[Record] = []
    step = 0
    for job in sorted(jobs, key=lambda each: layer[text_of(each, "ref")]):
        ref = text_of(job, "ref")
        new, step = layer[ref] + 1 != step, layer[ref] + 1
        waits = text_of(job, "waits") != "0" and ref in open_refs
        running = text_of(job, "state") == "RUNNING"
        reason = line_of(text_of(job, "reason"))
        if waits:
            reason = f"waits for {_listed([each for each in after[ref] if each in open_refs])}"
        shown.append(
            {
                "step": f"{step}" if new else "",
                "ref": ref,
                "state": "waiting" if waits else called(text_of(job, "state")),
                "jobID": job["jobID"],
                "name": job["name"],
                "started": job["started"],
                "took": took_text(text_of(job, "started"), now if running else text_of(job, "ended")),
                "reason": reason,
            }
        )
    return shown


def _listed(refs: list[str]) -> str:
    if not refs:
        return "jobs out of sight"
    return ", ".join(refs[:3]) + (f" and {len(refs[3:]):,} more" if refs[3:] else "")


act(
    workflow,
    "retry",
    RetryWorkflow,
    WORKFLOW,
    sentence="Workflow {workflowID} goes on; jobs that start or wait again: {retried}.",
)
act(
    workflow,
    "cancel",
    CancelWorkflow,
    WORKFLOW,
    sentence="Workflow {workflowID} is {state}; runs that workers were asked to stop: {stopping}.",
)
