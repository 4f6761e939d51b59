"""CreateWorkflow, AddToWorkflow, CancelWorkflow and RetryWorkflow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import WORKFLOW_EDGES_MAX, WORKFLOW_JOBS_MAX
from bedrockjobs.base.errors import BadArguments, CommandError, NotFound, WrongState
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import AddToWorkflow, CancelWorkflow, CreateWorkflow, RetryWorkflow, WorkflowJob
from bedrockjobs.commands.workflows import NOT_IN_WORKFLOWS
from bedrockjobs.engine.handlers import families, graph
from bedrockjobs.engine.handlers.change import cancel_or_stop
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.create import check_retry_after, create
from bedrockjobs.engine.handlers.end import check_run, existing, without
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import WORKFLOW_RUNS, Job, JobOfKey, WorkflowJobRow, WorkflowRow
from bedrockjobs.store.base import AccessPlan


def _plan_create(command: CreateWorkflow) -> AccessPlan:
    key = () if command.idempotency_key is None else (str(command.own_key), command.own_key.before)
    names = tuple(job.name for job in command.jobs)
    return AccessPlan(keys=key, creates=names, new_jobs=len(names) + 1)


@handles(CreateWorkflow, plan=_plan_create)
def create_workflow(context: Context, command: CreateWorkflow) -> Answer:
    """Create a workflow with its jobs; reply with their IDs."""
    records = context.unit.records
    if command.idempotency_key is not None:
        known = records.job_of_key(str(command.own_key), after_seconds(context.now_ms, -records.keys_kept_s))
        if known is not None:
            return _known(context, command, known)
    _check_alone(context, command.jobs)
    places = _check_graph(command.jobs, {})
    # A nightly workflow is kept until the next night
    workflow = WorkflowRow(
        context.unit.new_job_id(),
        command.name,
        WORKFLOW_RUNS,
        context.now_ms,
        keep=int(max(records.keep_finished_s, 24 * 3_600)) if command.keep is None else command.keep,
        open=len(command.jobs),
        by=context.by or command.by,
    )
    records.add_workflow(workflow)
    added = _add(context, workflow, command.jobs, {}, places)
    if command.idempotency_key is not None:
        key = JobOfKey(workflow.workflow_id, command.name)
        records.put_key(str(command.own_key), key, context.now_ms)
    job_ids = {row.ref: row.job_id for row in added}
    return Answer(jsontext.dump({"workflowID": workflow.workflow_id, "jobIDs": job_ids}))


def _known(context: Context, command: CreateWorkflow, known: JobOfKey) -> Answer:
    """Return the reply to a request with a known idempotency key."""
    jobs = {row.ref: row.job_id for row in context.unit.records.jobs_of_workflow(known.job_id)}
    wanted = [job.ref for job in command.jobs]
    if known.name != command.name or not jobs.keys() >= set(wanted):
        raise WrongState(
            "Key is used",
            f"idempotencyKey: it was used for {known.job_id}, {known.name}; expected that name and its refs,"
            " or another key",
        )
    return Answer(jsontext.dump({"workflowID": known.job_id, "jobIDs": {ref: jobs[ref] for ref in wanted}}))


@handles(
    AddToWorkflow,
    plan=lambda command: AccessPlan(
        jobs=(command.job_id,) if command.job_id else (),
        workflows=(command.workflow_id,) if command.workflow_id else (),
        creates=tuple(job.name for job in command.jobs),
        new_jobs=len(command.jobs),
    ),
)
def add_to_workflow(context: Context, command: AddToWorkflow) -> Answer:
    """Add jobs to a running workflow; reply with their jobIDs."""
    _check_alone(context, command.jobs)
    workflow = (
        _own(context, command) if command.workflow_id is None else _visible(context, command.workflow_id)
    )
    if workflow.ended or workflow.cancelled:
        state = workflow.state if workflow.ended else "being cancelled"
        raise WrongState("Workflow has ended", f"workflowID: it is {state}; see RetryWorkflow")
    rows = {row.ref: row for row in context.unit.records.jobs_of_workflow(workflow.workflow_id)}
    keeps = command.existing == "keep"
    new = [job for job in command.jobs if not (keeps and job.ref in rows)]
    if len(rows) + len(new) > WORKFLOW_JOBS_MAX:
        raise BadArguments("Malformed jobs", f"jobs: expected at most {WORKFLOW_JOBS_MAX} in a workflow")
    places = _check_graph(new, rows, command.jobs)
    added = _add(context, workflow, new, rows, places)
    rows |= {row.ref: row for row in added}
    return Answer(jsontext.dump({"jobIDs": {job.ref: rows[job.ref].job_id for job in command.jobs}}))


def _own(context: Context, command: AddToWorkflow) -> WorkflowRow:
    """Return the workflow of the job that sends the command."""
    if command.job_id is None:
        raise BadArguments("Missing workflowID", "expected workflowID or jobID")
    job = existing(context, command.job_id)
    check_run(job, command.run_id)
    workflow = context.unit.records.lock_workflow(job.memory.workflow) if job.memory.workflow else None
    if workflow is None:
        raise NotFound("No job with this jobID", f"jobID: job {job.job_id} is in no workflow")
    return workflow


def _visible(context: Context, workflow_id: int, *, whole: bool = False) -> WorkflowRow:
    """Return a workflow that the caller may see, if ``whole`` with all its jobs; raise NotFound."""
    workflow = context.unit.records.lock_workflow(workflow_id)
    scope = context.scope
    if workflow is None or not context.sees(workflow.name):
        raise NotFound("No workflow with this workflowID", f"workflowID: there is no workflow {workflow_id}")
    if scope is not None and whole:
        rows = context.unit.records.jobs_of_workflow(workflow_id)
        if not all(scope.covers(row.name) for row in rows):
            raise NotFound(
                "Outside of the token's names", f"workflowID: expected one whose jobs are within {scope}"
            )
    return workflow


# --- the graph -------------------------------------------------------------------------------------------


def _check_alone(context: Context, jobs: Sequence[WorkflowJob]) -> None:
    """Check what can be checked without the workflow: attributes, and that no two jobs have the same ref."""
    refs = set[str]()
    for place, job in enumerate(in_slices(jobs)):
        for field in NOT_IN_WORKFLOWS:
            if getattr(job, field):
                name = wire_name(field)
                raise BadArguments(
                    f"Malformed {name}", f"jobs[{place}].{name}: expected nothing for a job of a workflow"
                )
        if job.ref in refs:
            raise _used_ref(place, job)
        refs.add(job.ref)
        with _at(place):
            _ = job.wanted_priority  # raises
            if job.retry_after:
                check_retry_after(context, job)


def _used_ref(place: int, job: WorkflowJob) -> BadArguments:
    return BadArguments(
        "Malformed ref", f"jobs[{place}].ref: expected another one, {job.ref} is there already"
    )


@contextmanager
def _at(place: int) -> Iterator[None]:
    """Add the position of the job to errors about its attributes."""
    try:
        yield
    except CommandError as error:
        error.detail = f"jobs[{place}].{error.detail}"
        raise


def _check_graph(
    jobs: Sequence[WorkflowJob],
    known: Mapping[str, WorkflowJobRow],
    sent: Sequence[WorkflowJob] | None = None,
) -> dict[str, int]:
    """Check that ``jobs`` can be added to the ``known`` jobs of a workflow; raise BadArguments.

    Return, by ref, the position with which errors name each of the jobs: in the list that the client has
    ``sent``, or in ``jobs`` if ``sent`` is None.
    """
    places = {id(job): place for place, job in enumerate(jobs if sent is None else sent)}
    new: dict[str, int] = {}
    edges = 0
    for job in in_slices(jobs):
        if job.ref in known:
            raise _used_ref(places[id(job)], job)
        new[job.ref] = places[id(job)]
        edges += len(job.after)
    if edges > WORKFLOW_EDGES_MAX:
        raise BadArguments("Malformed after", f"jobs: expected at most {WORKFLOW_EDGES_MAX} edges")
    for job in in_slices(jobs):
        for ref in job.after:
            if ref not in new and ref not in known:
                raise BadArguments(
                    "Malformed after",
                    f"jobs[{places[id(job)]}].after: expected refs of the workflow, there is no {ref[:100]}",
                )
    if circle := _circle(jobs, new):
        raise BadArguments(
            "Malformed after",
            f"jobs[{new[circle[0]]}].after: expected no circle: {' waits for '.join([*circle, circle[0]])}",
        )
    return new


def _circle(jobs: Sequence[WorkflowJob], new: Mapping[str, int]) -> list[str]:
    """Return the refs of jobs that wait for each other in a circle, each for the next; empty if none do."""
    before = {job.ref: [ref for ref in dict.fromkeys(job.after) if ref in new] for job in jobs}
    after: dict[str, list[str]] = {}
    for ref, refs in before.items():
        for each in refs:
            after.setdefault(each, []).append(ref)
    counts = {ref: len(refs) for ref, refs in before.items()}
    ready = deque(ref for ref, count in counts.items() if not count)
    while ready:
        ref = ready.popleft()
        del counts[ref]
        for each in after.get(ref, ()):
            counts[each] -= 1
            if not counts[each]:
                ready.append(each)
    if not counts:
        return []
    ref, path = next(iter(counts)), list[str]()
    seen: dict[str, int] = {}
    while ref not in seen:  # each that is left waits for another one that is left
        seen[ref] = len(path)
        path.append(ref)
        ref = next(each for each in before[ref] if each in counts)
    # Maximum number of refs of a circle that an error names
    return path[seen[ref] :][:10]


def _add(
    context: Context,
    workflow: WorkflowRow,
    jobs: Sequence[WorkflowJob],
    known: Mapping[str, WorkflowJobRow],
    places: Mapping[str, int],
) -> list[WorkflowJobRow]:
    """Create jobs of a workflow with their edges, as if they had been in the workflow from the start."""
    new_refs = {job.ref for job in jobs}
    merging = jsontext.Merging()
    rows: dict[str, WorkflowJobRow] = {}
    doomed: list[tuple[WorkflowJob, WorkflowJobRow]] = []
    for job in in_slices(jobs):
        waits = 0
        for ref in dict.fromkeys(job.after):
            if ref in new_refs or not known[ref].state:
                waits += 1
            elif not known[ref].lets_pass:
                doomed.append((job, known[ref]))
        waits = max(waits, 1) if doomed and doomed[-1][0] is job else waits
        with _at(places[job.ref]):
            job_id = create(context, job, merging, place=graph.Place(workflow.workflow_id, job.ref, waits))
        rows[job.ref] = WorkflowJobRow(job_id, workflow.workflow_id, job.ref, job.name, job.on_failure, waits)
    edges = [
        ((rows.get(ref) or known[ref]).job_id, rows[job.ref].job_id)
        for job in jobs
        for ref in dict.fromkeys(job.after)
    ]
    records = context.unit.records
    added = list(rows.values())
    records.add_workflow_jobs(added, edges)
    context.created += [row.name for row in added]
    if known:
        workflow = workflow._replace(open=workflow.open + len(added))
        for job, before in doomed:
            its = records.workflow_job(rows[job.ref].job_id)
            if its is not None and not its.state:
                workflow = graph.cancel_with_those_behind(context, workflow, its, before)
        graph.save(context, workflow)
    return added


# --- cancel and retry ------------------------------------------------------------------------------------

_BY_ID = AccessPlan(everything=True)
"""A plan that locks everything, since it is unknown which jobs change before the workflow is read."""


@handles(CancelWorkflow, plan=lambda _: _BY_ID)
def cancel_workflow(context: Context, command: CancelWorkflow) -> Answer:
    """Cancel the jobs that have not ended; a FAILED workflow becomes CANCELLED, and its retention begins."""
    records = context.unit.records
    workflow = _visible(context, command.workflow_id, whole=True)
    stopping = 0
    if workflow.state == "FAILED":
        graph.save(context, workflow._replace(state=WORKFLOW_RUNS, ended="", cancelled=1))
    elif not workflow.ended:
        rows = [row for row in records.jobs_of_workflow(workflow.workflow_id) if not row.state]
        waiting = [row for row in rows if row.waits]
        graph.cancel_waiting(context, waiting, "The workflow was cancelled")
        workflow = workflow._replace(
            cancelled=1, open=workflow.open - len(waiting), failed=workflow.failed + len(waiting)
        )
        graph.save(context, workflow)
        for row in in_slices(rows):
            job = None if row.waits else context.unit.job(row.job_id)
            if job is not None:
                stopping += cancel_or_stop(context, job)
    after = records.lock_workflow(command.workflow_id)
    state = "CANCELLED" if after is None else after.state
    return Answer(jsontext.dump({"state": state, "stopping": stopping}))


@handles(RetryWorkflow, plan=lambda _: _BY_ID)
def retry_workflow(context: Context, command: RetryWorkflow) -> Answer:
    """Start failed and cancelled jobs again, each after the jobs before it; reply with their number."""
    records = context.unit.records
    workflow = _visible(context, command.workflow_id, whole=True)
    rows = {row.job_id: row for row in records.jobs_of_workflow(workflow.workflow_id)}
    bad = [row for row in rows.values() if row.state in ("FAILED", "CANCELLED")]
    again: dict[int, Job] = {}
    for row in in_slices(bad):
        job = context.unit.job(row.job_id)
        if job is not None and lifecycle.allows("workflow retries", job.state):
            again[row.job_id] = job
    if not again:
        raise WrongState("Nothing to retry", f"workflowID: it is {workflow.state}")
    waits = dict.fromkeys(again, 0)
    longer: dict[int, int] = {}
    for before, job_id in in_slices(records.edges_of_workflow(workflow.workflow_id)):
        if job_id in again:
            waits[job_id] += before in again or not rows[before].state
        elif before in again and not rows[job_id].state and rows[job_id].waits:
            longer[job_id] = longer.get(job_id, rows[job_id].waits) + rows[before].lets_pass
    for job_id, job in in_slices(again.items()):
        facts: tuple[lifecycle.Fact, ...] = ("waits for others",) if waits[job_id] else ()
        families.delete_reported_children(context, job)
        records.delete_seen("job", job_id)
        notes = job.memory.after_run().after_end()._replace(cause="retry" if job.attempt else "")
        data = without(job.data, "retryAfterCount")
        changed = lifecycle.move(
            job.remembering(notes), "workflow retries", *facts, next_run=context.now_ms, expires="", data=data
        )
        context.unit.save(placed(changed, context.now_ms))
    reset = [
        rows[job_id]._replace(waits=count, state="", started="", ended="", reason="")
        for job_id, count in waits.items()
    ]
    records.end_workflow_jobs(reset)
    records.wait_in_workflow(list(longer.items()))
    gone = sum(row.counts_as_failed for row in bad if row.job_id not in again)
    graph.save(
        context,
        workflow._replace(
            state=WORKFLOW_RUNS, ended="", kept="", open=workflow.open + len(again), failed=gone, cancelled=0
        ),
    )
    return Answer(jsontext.dump({"retried": len(again)}))
