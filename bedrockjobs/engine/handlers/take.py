"""GetJob, GetJobs, and the take that ``thenGet`` adds to the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import (
    ANSWER_BYTES_MAX,
    CRASHED_PER_TAKE_MAX,
    LOST_RUNS_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
)
from bedrockjobs.base.errors import BadArguments, NotFound
from bedrockjobs.base.glob import glob
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.commands import GetJob, GetJobs
from bedrockjobs.commands.jobs import Ending
from bedrockjobs.commands.take import TakeOptions
from bedrockjobs.engine.handlers import runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, Taken, TakeRequest, render, shown_options
from bedrockjobs.engine.handlers.families import fail_for_good
from bedrockjobs.engine.handlers.job_options import placed, with_options
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.engine.handlers.trigger import original_next_run
from bedrockjobs.job.rows import Job, Names, names_from
from bedrockjobs.schedule import repeat as repeats

MARKS = ("retryAfterCount", "originalNextRun")
"""What a take writes into the data of a retryAfter job."""

UNCOUNTED_PREFIX = "manual"
"""Names that begin so may be lost as often as they like, as in Bedrock."""


@handles(GetJob)
def get_job(context: Context, command: GetJob) -> Answer:
    """Take the next due job; refuses with 404 where there is none, or waits."""
    return _take_or_wait(context, command, _request(command, 1, "job"))


@handles(GetJobs)
def get_jobs(context: Context, command: GetJobs) -> Answer:
    """Take the next due jobs, one to numResults."""
    return _take_or_wait(context, command, _request(command, command.num_results, "jobs"))


def _request(command: GetJob | GetJobs, limit: int, shape: str) -> TakeRequest:
    names = names_from(command.name, tuple(command.names) if command.names else None)
    if names is None:
        raise BadArguments("Missing name", "name: expected a pattern, a comma list of names, or names")
    return _asked(command, names, command.job_priority, limit, shape)


def _asked(command: TakeOptions, names: Names, priority: int | None, limit: int, shape: str) -> TakeRequest:
    if command.worker is None and not command.accepts:
        return TakeRequest(names, command.get_mocked_jobs, priority, None, limit, shape)
    return TakeRequest(
        names, command.get_mocked_jobs, priority, command.worker, limit, shape,
        tuple(sorted(command.accepts)), command.heartbeat, command.host, command.pid,
    )  # fmt: skip


def then_get(context: Context, command: Ending, priority: int | None) -> Answer:
    """Answer the end of a run: with the next job where ``thenGet`` asks for one."""
    names = then_names(command)
    if names is None:
        return Answer()
    request = _asked(command, names, priority, 1, "then")
    _meet(context, command, request)
    answer = take(context, request)
    if answer is None:
        return Answer(waits_for=request) if command.waiting else nothing(request)
    return answer


def then_names(command: Ending) -> Names | None:
    """Return what ``thenGet`` asks for, None without it; raises BadArguments where it is malformed."""
    if not command.then_get:
        return None
    names = names_from(command.then_get, None)
    if names is None:
        raise BadArguments("Malformed thenGet", "thenGet: expected a name pattern or a comma list of names")
    return names


def _take_or_wait(context: Context, command: GetJob | GetJobs, request: TakeRequest) -> Answer:
    if request.worker is not None:
        _meet(context, command, request)
    answer = take(context, request)
    if answer is None:
        return Answer(waits_for=request) if command.waiting else nothing(request)
    return answer


def _meet(context: Context, command: GetJob | GetJobs | Ending, request: TakeRequest) -> None:
    """Let the presence know that a worker is there."""
    if request.worker is None:
        return
    wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
    context.after.append(
        partial(
            context.presence.met,
            request.worker,
            host=request.host,
            pid=request.pid,
            names=request.names.patterns or sorted(request.names.exact),
            accepts=request.accepts,
            wait_s=min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting else 0.0,
        )
    )


def nothing(request: TakeRequest) -> Answer:
    """Answer a request for which there is no job; raises NotFound but for thenGet."""
    if request.shape == "then":
        return Answer('{"job":null}')
    raise NotFound("No job found")


def take(context: Context, request: TakeRequest) -> Answer | None:
    """Take up to ``request.limit`` jobs; None where there is none."""
    if request.worker is not None and request.worker in context.tx.records.drains():
        return None
    taken: list[Taken] = []
    bodies: list[str] = []
    size = 0
    due_again: list[Job] = []
    while len(taken) < request.limit and size < ANSWER_BYTES_MAX:
        row = _next(context, request)
        if row is None:
            break
        after = _claim(context, row, request)
        if after.state == "RUNQUEUED" and after.next_run <= context.now_ms:
            due_again.append(after)  # a retryAfter of no time at all; one answer holds a job once
            context.tx.save(after._replace(state="RUNNING"))
        taken.append(Taken(row, after))
        bodies.append(render(row, _more(context, row, after)))
        size += len(bodies[-1])
    for row in due_again:
        context.tx.save(row)
    if not taken:
        return None
    if request.shape == "jobs":
        return Answer(f'{{"jobs":[{",".join(bodies)}]}}', taken)
    return Answer(bodies[0] if request.shape == "job" else f'{{"job":{bodies[0]}}}', taken)


def _next(context: Context, request: TakeRequest) -> Job | None:
    """Return the next job that may be handed out; those that may not are failed on the way.

    Differs from Bedrock: it answers ``200 {}`` when it fails one; here the look goes on.
    """
    crashed = context.tx.crash_patterns()
    for _ in range(CRASHED_PER_TAKE_MAX):
        row = context.tx.first_due(
            request.names,
            context.now_ms,
            mocked=request.mocked,
            priority=request.priority,
            accepts=request.accepts,
            worker=request.worker,
        )
        if row is None:
            return None
        crashes = crashed and any(glob(row.name, pattern) for pattern in crashed)
        if not crashes and lost_runs(row) < LOST_RUNS_MAX:
            if not row.repeat or not ticks.is_schedule(row):
                return row
            row = ticks.fire(context, row)
            if row is not None:
                return row
        else:
            runs.close(context, row, "frozen", error="Failed instead of handed out again")
            fail_for_good(context, row)
    return None


def lost_runs(row: Job) -> int:
    """Return how many deliveries of a retryAfter job were counted, 0 for one that is not counted."""
    if not row.retry_after or row.name.startswith(UNCOUNTED_PREFIX) or '"retryAfterCount"' not in row.data:
        return 0
    count = jsontext.members(row.data).get("retryAfterCount", "0")
    return int(count) if count.isdecimal() else 0


def _claim(context: Context, row: Job, request: TakeRequest) -> Job:
    if row.run_id:  # it was given out before, and nobody ended it in time
        runs.close(context, row, "frozen", error="Given out again after retryAfter")
    after = _claimed(context, row, context.tx.new_run_id() if request.worker else 0)
    if request.worker:
        runs.open_run(context, after, request)
    if row.repeat and ticks.is_schedule(row):
        ticks.fired(context, after, after.run_id)
    return after


def _claimed(context: Context, row: Job, run_id: int) -> Job:
    # Written out, as `_replace` takes as long as a statement and every take comes through here.
    after = Job(
        row.created, row.job_id, "RUNNING", row.name, row.next_run, context.now, row.repeat, row.data,
        row.priority, row.parent_job_id, row.retry_after, row.attempt + 1, run_id, row.expires, row.lane,
        row.options,
    )  # fmt: skip
    if row.options == "{}" and not (row.expires or row.retry_after or row.last_run or row.repeat):
        context.tx.claim(after)
        return after
    if row.options != "{}" or row.expires:
        after = after._replace(expires=runs.deadline(context, row, supervised=run_id != 0))
    if not row.retry_after and not row.last_run:
        context.tx.save(after)
        return after
    # What RetryJob `returned` puts back, where the row itself no longer tells.
    before = {"nextRun": quoted(row.next_run), "lastRun": quoted(row.last_run)}
    if row.retry_after:
        before |= {mark: text for mark, text in jsontext.members(row.data).items() if mark in MARKS}
    after = after._replace(options=jsontext.with_members(row.options, {"before": jsontext.join(before)}))
    if row.retry_after:
        after = _lost_unless_ended(context, after)
    context.tx.save(after)
    return after


def before_the_take(row: Job) -> dict[str, str]:
    """Return nextRun, lastRun and the marks in data that a taken job had before, as JSON texts."""
    text = jsontext.members(row.options).get("before") if row.options != "{}" else None
    return jsontext.members(text) if text else {"nextRun": quoted(row.next_run), "lastRun": '""'}


def with_due_before(row: Job) -> Job:
    """Return a taken job whose nextRun was updated, so that it has that nextRun if it is handed back."""
    before = jsontext.join({**before_the_take(row), "nextRun": quoted(row.next_run)})
    return row._replace(options=jsontext.with_members(row.options, {"before": before}))


def _lost_unless_ended(context: Context, row: Job) -> Job:
    """Return the row of a job that is given out again if nobody ends it within its retryAfter."""
    changes: dict[str, str | None] = {}
    if not row.name.startswith(UNCOUNTED_PREFIX):
        changes["retryAfterCount"] = str(lost_runs(row) + 1)
    lost_at = repeats.later(context.now_ms, repeats.parse_retry_after(row.retry_after)) or context.now_ms
    if (
        row.repeat
        and not row.mocked
        and repeats.parse_repeat(row.repeat, context.compatibility).base == "SCHEDULED"
    ):
        # Differs from Bedrock: it stores the time anew at each loss, so that the schedule drifts.
        first = original_next_run(row.data) or row.next_run
        changes["originalNextRun"] = quoted(first)
        slot = repeats.next_run(
            row.repeat,
            scheduled=first,
            started=context.now,
            finished=context.now_ms,
            compatibility=context.compatibility,
        )
        if slot is not None and slot > context.now_ms:
            lost_at = min(lost_at, slot)
    return row._replace(
        state="RUNQUEUED",
        next_run=lost_at,
        data=jsontext.with_members(row.data, changes) if changes else row.data,
    )


def _more(context: Context, row: Job, after: Job) -> dict[str, str]:
    """Return what an answer shows of a job's family and run, beside the row before the take."""
    more: dict[str, str] = {}
    if after.run_id:
        more = {"attempt": str(after.attempt), "runID": str(after.run_id)}
    if row.options != "{}":
        more |= shown_options(row)
    if after.expires:
        more["expires"] = f'"{after.expires}"'
    if row.parent_job_id:
        parent = context.tx.job(row.parent_job_id)
        if parent is not None:
            more["parentData"] = parent.data
    elif context.tx.has_children(row.job_id):
        ended = context.tx.children(row.job_id)
        lists = {
            state: [
                f'{{"data":{child.data},"jobID":{child.job_id}}}' for child in ended if child.state == state
            ]
            for state in ("FINISHED", "CANCELLED")
        }
        if any(lists.values()):
            more["finishedChildJobs"] = f"[{','.join(lists['FINISHED'])}]"
            more["cancelledChildJobs"] = f"[{','.join(lists['CANCELLED'])}]"
    return more


def put_back(context: Context, taken: Sequence[Taken]) -> None:
    """Undo the take of jobs whose answer could not be delivered, unless they went on since."""
    for before, after in taken:
        row = context.tx.job(before.job_id)
        if row is None or (row.state, row.attempt) != (after.state, after.attempt):
            continue
        runs.undo(context, row)
        back = row._replace(
            state=before.state,
            next_run=before.next_run,
            last_run=before.last_run,
            data=before.data if row.data == after.data else row.data,
            attempt=before.attempt,
            run_id=0,  # a run before this one is closed
            expires=before.expires,
        )
        if row.options != before.options:
            found = jsontext.members(before.options)
            back = with_options(back, {key: found.get(key) for key in ("before", "overtime")})
        context.tx.save(placed(back) if before.state == "QUEUED" else back)
