"""GetJob, GetJobs, and the take that ``thenGet`` adds to the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.config import (
    ANSWER_BYTES_MAX,
    CRASHED_PER_TAKE_MAX,
    LOST_RUNS_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
)
from bedrockjobs.base.errors import BadArguments, Forbidden, NotFound
from bedrockjobs.base.glob import TooManyPatterns, glob
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.principal import Principal, RunOfToken
from bedrockjobs.commands import FinishJobs, GetJob, GetJobs
from bedrockjobs.commands.jobs import RunEnd
from bedrockjobs.engine.events import WorkerAsked
from bedrockjobs.engine.handlers import families, graph, runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, Taken, handles, plan_take, request_of
from bedrockjobs.engine.handlers.failing import make_failed, set_aside, stop_schedule, stopped
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, DueTick, original_next_run
from bedrockjobs.engine.render import render, shown_options
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import RETRY_AFTER_KEYS, BeforeTake, DamagedJob, Job, is_plain
from bedrockjobs.job.take_request import Names, TakeRequest, names_from, names_within
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import StillSearching


class LockedElsewhere(NotFound):
    """Refuses a take because another server has locked all matching jobs, and may release them again."""

    default_reason = "No job found"


Outcome = Answer | NotFound

UNCOUNTED_PREFIX = "manual"
"""Prefix of names whose lost runs are not limited, as in Bedrock."""


@handles(GetJob, plan=lambda command: plan_take(command, 1))
def get_job(context: Context, command: GetJob) -> Answer | NotFound:
    """Take the next due job; if there is none, wait or refuse with 404."""
    return _take_or_wait(context, command, _request(context, command, 1, "job"))


@handles(GetJobs, plan=lambda command: plan_take(command, command.num_results))
def get_jobs(context: Context, command: GetJobs) -> Answer | NotFound:
    """Take up to numResults due jobs; if there is none, wait or refuse with 404."""
    return _take_or_wait(context, command, _request(context, command, command.num_results, "jobs"))


def _request(context: Context, command: GetJob | GetJobs, limit: int, shape: str) -> TakeRequest:
    names = names_from(command.name, tuple(command.names) if command.names else None)
    if names is None:
        raise BadArguments("Missing name", "name: expected a pattern, a comma list of names, or names")
    request = request_of(command, names, command.job_priority, limit, shape)
    return request if context.caller is None else _narrowed(request, context.caller)


def _narrowed(request: TakeRequest, caller: Principal) -> TakeRequest:
    """Return a request limited to the caller's scope; raise Forbidden if that takes too many patterns."""
    scope = caller.scope
    try:
        names = request.names if scope is None else names_within(request.names, scope)
    except TooManyPatterns as error:
        raise Forbidden(detail=f"names: cannot be narrowed to {scope}: {error}") from None
    return request.of_caller(names, scope, caller.name)


def then_get(context: Context, command: RunEnd, priority: int | None) -> Answer:
    """Return the reply to the end of a run, with the next job if ``thenGet`` asks for one."""
    names = then_names(command)
    if names is None:
        return Answer()
    return _take_after_end(context, command, request_of(command, names, priority, 1, "then"))


def then_get_jobs(context: Context, command: FinishJobs, results: str) -> Answer:
    """Return the reply to the ends of several runs, with the next jobs if ``thenGet`` asks for them."""
    names = then_names(command)
    if names is None:
        return Answer(f"{{{results}}}")
    request = request_of(command, names, command.job_priority, command.num_results, "then jobs")
    return _take_after_end(context, command, replace(request, results=results))


def _take_after_end(context: Context, command: RunEnd | FinishJobs, asked: TakeRequest) -> Answer:
    request = asked if context.caller is None else _narrowed(asked, context.caller)
    _meet(context, command, request)
    return after_end(context, request, waiting=command.waiting)


def after_end(context: Context, request: TakeRequest, *, waiting: bool) -> Answer:
    """Take the next job for the end of a run; return the reply, which waits for a job if ``waiting``."""
    answer = take(context, request)
    if answer is None:
        return Answer(waits_for=request) if waiting else Answer(_answered(request, []))
    return answer


def then_names(command: RunEnd | FinishJobs) -> Names | None:
    """Return the names of ``thenGet``, or None without it; raise BadArguments if it is malformed."""
    if not command.then_get:
        return None
    names = names_from(command.then_get, None)
    if names is None:
        raise BadArguments("Malformed thenGet", "thenGet: expected a name pattern or a comma list of names")
    return names


def _take_or_wait(context: Context, command: GetJob | GetJobs, request: TakeRequest) -> Answer | NotFound:
    if request.worker is not None:
        _meet(context, command, request)
    return or_wait(context, request, waiting=command.waiting)


def or_wait(context: Context, request: TakeRequest, *, waiting: bool) -> Answer | NotFound:
    """Return the reply to a take; if there is no job and ``waiting`` is set, the reply waits for a job."""
    answer = take(context, request)
    if answer is not None:
        return answer
    if waiting:
        return Answer(waits_for=request)
    skipped_locked = not _drained(context, request) and context.unit.skipped_locked(request, context.now_ms)
    return LockedElsewhere() if skipped_locked else nothing(request)


def _drained(context: Context, request: TakeRequest) -> bool:
    return request.worker is not None and request.worker in context.unit.records.drains()


def _meet(context: Context, command: GetJob | GetJobs | RunEnd | FinishJobs, request: TakeRequest) -> None:
    """Publish that a worker asked for jobs."""
    if request.worker is None:
        return
    wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
    context.emit(
        WorkerAsked(
            request.worker,
            request.host,
            request.pid,
            tuple(request.names.patterns or sorted(request.names.exact)),
            request.accepts,
            min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting else 0.0,
            context.by,
        )
    )


def nothing(request: TakeRequest) -> Answer | NotFound:
    """Return the reply to a take without a job.

    A refusal is returned and not raised, since the search may have made jobs FAILED.
    """
    return Answer(_answered(request, [])) if request.after_end else NotFound("No job found")


def _answered(request: TakeRequest, bodies: Sequence[str]) -> str:
    """Return the reply text of any shape but ``job``; only a take by ``thenGet`` may have no jobs."""
    if request.shape == "then":
        return f'{{"job":{bodies[0] if bodies else "null"}}}'
    before = f"{request.results}," if request.after_end else ""
    return f'{{{before}"jobs":[{",".join(bodies)}]}}'


def take(context: Context, request: TakeRequest, only: Job | None = None) -> Answer | None:
    """Take up to ``request.limit`` jobs; return None if there is none.

    ``only`` is the job to take if it is already known; then no other job is taken. If the store does not know
    yet whether there is a job, the Answer returned is ``searching``.
    """
    if request.worker is None and request.limit == 1:
        try:
            only = only or context.unit.first_due(request, context.now_ms)
        except StillSearching:
            return Answer(waits_for=request, searching=True)
        if only is None:
            return None
        unit = context.unit
        special = unit.crash_patterns() or unit.has_children(only.job_id) or unit.records.limits()
        if is_plain(only) and not special:
            return _taken_plain(context, request, only)
    elif _drained(context, request):
        return None
    taken: list[Taken] = []
    bodies: list[str] = []
    size = 0
    due_again: list[Job] = []
    while len(taken) < request.limit and size < ANSWER_BYTES_MAX:
        try:
            due = _next(context, request, only)
        except StillSearching:
            if not taken:
                return Answer(waits_for=request, searching=True)
            break
        if due is None:
            break
        before, caught_up = due
        after = _claim(context, before, request, caught_up=caught_up)
        if after.state == "RUNQUEUED" and after.next_run <= context.now_ms:
            due_again.append(after)  # retryAfter is zero; a reply must not contain a job twice
            context.unit.save(after._replace(next_run=repeats.NEVER))
        taken.append(Taken(before, after))
        bodies.append(_shown(context, request, taken[-1]))
        size += len(bodies[-1])
        if only is not None:
            break
    for job in due_again:
        context.unit.save(job)
    return _handed_out(context, request, taken, bodies) if taken else None


def _taken_plain(context: Context, request: TakeRequest, job: Job) -> Answer:
    """Take a plain job for a request without a worker."""
    after = lifecycle.after_take(job, context.now, 0)  # lifecycle.QUICK_TAKE
    context.unit.claim(after)
    context.taken.append((job.name, job.next_run))
    body = render(job)
    return Answer(body if request.shape == "job" else _answered(request, [body]), (Taken(job, after),))


def _shown(context: Context, request: TakeRequest, taken: Taken) -> str:
    return render(taken.before, _more(context, taken.before, taken.after, request))


def _handed_out(
    context: Context, request: TakeRequest, taken: Sequence[Taken], bodies: Sequence[str]
) -> Answer:
    context.taken += [(before.name, before.next_run) for before, _ in taken]
    return Answer(bodies[0] if request.shape == "job" else _answered(request, bodies), taken)


def _next(context: Context, request: TakeRequest, only: Job | None) -> DueTick | None:
    """Return the next job that may be taken, ``only`` first; make found jobs FAILED that may not be taken.

    Differs from Bedrock: Bedrock replies ``200 {}`` when it fails a job; here the search continues.
    """
    crashed, limits = context.unit.crash_patterns(), context.unit.records.limits()
    for _ in in_slices(range(CRASHED_PER_TAKE_MAX)):
        job, only = only or context.unit.first_due(request, context.now_ms), None
        if job is None:
            return None
        if limits and families.pause_at_limit(context, job, named=request.worker is not None):
            continue
        if type(job) is DamagedJob:
            set_aside(context, job)
            continue
        if job.memory_json != "{}" and job.memory.cancelled:  # due again because its nextRun was changed
            runs.close(context, job, "fail", error="Its job was cancelled")
            stopped(context, job)
            continue
        crashes = crashed and any(glob(job.name, pattern) for pattern in crashed)
        if crashes or lost_runs(job) >= LOST_RUNS_MAX:
            reason = "Its name is on the crash list" if crashes else "Lost too often"
            runs.close(context, job, "timeout", error="Failed instead of handed out again")
            # Bedrock's jobs have no error then; jobs of workflows pass theirs on.
            noted = job.noting(error=reason) if job.memory.workflow else job
            make_failed(context, noted, "crash", reason)
        elif not job.repeat or not ticks.is_schedule(job):
            return job, False
        else:
            try:
                due = ticks.fire(context, job)
            except CannotEvaluate as error:
                stop_schedule(context, job, error)
            else:
                if due is not None:
                    return due
    return None


def lost_runs(job: Job) -> int:
    """Return how many deliveries of a retryAfter job were counted, or 0 if they are not counted."""
    if not job.retry_after or job.name.startswith(UNCOUNTED_PREFIX) or '"retryAfterCount"' not in job.data:
        return 0
    count = jsontext.members(job.data).get("retryAfterCount", "0")
    return int(count) if count.isdecimal() else 0


def _claim(context: Context, job: Job, request: TakeRequest, *, caught_up: bool) -> Job:
    if job.run_id:  # taken before and not ended in time
        runs.close(context, job, "timeout", error="Given out again after retryAfter")
    if context.unit.records.limits():
        families.note_start(context, job)
    after = _claimed(context, job, context.unit.new_run_id() if request.worker else 0)
    if request.worker:
        runs.open_run(context, after, request, job.data)
    if job.repeat and ticks.is_schedule(job):
        ticks.enter_fired(context, after, after.run_id, caught_up=caught_up)
    return after


def _claimed(context: Context, job: Job, run_id: int) -> Job:
    after = lifecycle.after_take(job, context.now, run_id)
    plain = job.options_json == "{}" and job.memory_json == "{}" and not job.expires
    if plain and not (job.retry_after or job.last_run or job.repeat):
        context.unit.claim(after)  # lifecycle.QUICK_TAKE
        return after
    if not plain:
        after = after._replace(expires=runs.deadline(context, job, supervised=run_id != 0))
    if job.retry_after or job.last_run:
        keys: tuple[tuple[str, str], ...] = ()
        if job.retry_after:
            data = jsontext.members(job.data)
            keys = tuple((key, data[key]) for key in RETRY_AFTER_KEYS if key in data)
        takes = job.memory.takes
        if not run_id and (takes or job.last_run == context.now):
            takes += 1
        after = after.noting(before=BeforeTake(job.next_run, job.last_run, keys), takes=takes)
    if job.retry_after:
        after = _lost_unless_ended(context, after)
    context.unit.save(after)
    return after


def before_the_take(job: Job) -> BeforeTake:
    """Return nextRun, lastRun and the data keys that a taken job had before the take."""
    return job.memory.before or BeforeTake(job.next_run, "")


def with_due_before(job: Job) -> Job:
    """Return a taken job whose new nextRun is also the one that it gets if it is requeued."""
    return job.noting(before=before_the_take(job)._replace(next_run=job.next_run))


def _lost_unless_ended(context: Context, job: Job) -> Job:
    """Return a job that becomes due again if its run does not end within retryAfter."""
    changes: dict[str, str | None] = {}
    if not job.name.startswith(UNCOUNTED_PREFIX):
        changes["retryAfterCount"] = str(lost_runs(job) + 1)
    lost_at = repeats.later(context.now_ms, repeats.parse_retry_after(job.retry_after)) or context.now_ms
    if (
        job.repeat
        and not job.mocked
        and repeats.parse_repeat(job.repeat, context.compatibility).base == "SCHEDULED"
    ):
        # Differs from Bedrock: Bedrock stores the time at each loss, so that the schedule drifts.
        first = original_next_run(job.data) or job.next_run
        changes["originalNextRun"] = quoted(first)
        slot = repeats.next_run(
            job.repeat,
            scheduled=first,
            started=context.now,
            finished=context.now_ms,
            compatibility=context.compatibility,
        )
        if slot is not None and slot > context.now_ms:
            lost_at = min(lost_at, slot)
    return job._replace(
        next_run=lost_at, data=jsontext.with_members(job.data, changes) if changes else job.data
    )


def _more(context: Context, job: Job, after: Job, request: TakeRequest) -> dict[str, str]:
    """Return the members of a reply in addition to the job's row: run, options and visible family."""
    scope = request.scope
    more: dict[str, str] = {}
    if after.run_id:
        more = {"attempt": str(after.attempt), "runID": str(after.run_id)}
        run = RunOfToken(after.run_id, after.job_id, request.by)
        if request.tokens and (token := context.presence.run_token(run)):
            more["runToken"] = f'"{token}"'
    if job.options_json != "{}":
        more |= shown_options(job)
    if job.memory_json != "{}":
        more |= graph.of_workflow(context.unit.records, job)
    if after.expires:
        more["expires"] = f'"{after.expires}"'
    if job.parent_job_id:
        parent = context.unit.shown(job.parent_job_id)
        if parent is not None and (scope is None or scope.covers(parent.name)):
            more["parentData"] = parent.data
    elif context.unit.has_children(job.job_id):
        ended = context.unit.children(job.job_id)
        failed = families.failed_children(context, job)
        if scope is not None:
            ended = [child for child in ended if scope.covers(child.name)]
            failed = [child for child in failed if scope.covers(child.name)]
        lists = {
            state: [
                f'{{"data":{child.data},"jobID":{child.job_id}}}' for child in ended if child.state == state
            ]
            for state in ("FINISHED", "CANCELLED")
        }
        if failed:
            more["failedChildJobs"] = f"[{','.join(map(_failed_child, failed))}]"
        if any(lists.values()):
            more["finishedChildJobs"] = f"[{','.join(lists['FINISHED'])}]"
            more["cancelledChildJobs"] = f"[{','.join(lists['CANCELLED'])}]"
    return more


def _failed_child(child: Job) -> str:
    error = quoted(child.memory.error or "")
    return f'{{"data":{child.data},"error":{error},"jobID":{child.job_id}}}'


def _identity(job: Job) -> tuple[str, int, int, str, int]:
    """Return the identity of a job's current take: no other take of the job has the same."""
    return job.state, job.attempt, job.run_id, job.last_run, job.memory.takes


def put_back(context: Context, taken: Sequence[Taken]) -> None:
    """Requeue jobs whose reply could not be delivered, unless they have changed state since."""
    for before, after in taken:
        job = context.unit.job(before.job_id)
        if job is None or _identity(job) != _identity(after):
            continue
        if job.memory.cancelled:
            runs.close(context, job, "fail", error="Its job was cancelled before anybody had it")
            stopped(context, job)
            continue
        runs.undo(context, job)
        changed = job._replace(
            next_run=before.next_run,
            last_run=before.last_run,
            data=before.data if job.data == after.data else job.data,
            attempt=before.attempt,
            expires=before.expires,
        )
        if job.memory_json != before.memory_json:
            known = before.memory
            changed = changed.noting(before=known.before, overtime=known.overtime, takes=known.takes)
        if before.state == "RUNQUEUED":
            context.save(lifecycle.move(changed, "return", "was lost"))
        else:
            context.save(placed(lifecycle.move(changed, "return")))
