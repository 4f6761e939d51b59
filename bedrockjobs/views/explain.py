"""ExplainJob: all reasons why a job is not running, the most decisive first.

The reasons of a queued job are those of ``bedrockjobs.job.eligibility``.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.principal import Scope
from bedrockjobs.commands import ExplainJob
from bedrockjobs.job.eligibility import (
    HOLD_PATTERN,
    RELEASE,
    EligibleWorkers,
    LockHolders,
    Requirements,
    hold_text,
    need_of,
)
from bedrockjobs.job.lifecycle import held_key
from bedrockjobs.job.limits import AT_LIMIT, slots_of
from bedrockjobs.job.rows import EVERY_LANE, PING_LANE, Job, job_from, parse_lane
from bedrockjobs.job.take_request import how_to_ask
from bedrockjobs.schedule.repeat import NEVER, complaint, has_ticks, is_cron
from bedrockjobs.store.base import Reader
from bedrockjobs.views.problems import pause_text
from bedrockjobs.views.queues import Held, Queues
from bedrockjobs.views.render import in_scope

AHEAD_MAX = 1_000
"""Maximum jobs that are counted before a job in its queue, and maximum children that are counted."""

_WITHOUT_NAMES = {
    "lock": "another job holds its lock",
    "no worker": "no live worker takes it",
    "own command": "no live worker accepts the command it brings",
    "children": "its parent or children have not ended",
}
"""Details by reason for tokens with a scope: other details may name jobs or workers outside of the scope."""

Reasons = list[tuple[str, str]]


class Explainer:
    """Explains why jobs wait, limited to a scope."""

    def __init__(self, reader: Reader, queues: Queues, scope: Scope | None = None) -> None:
        """Explain jobs of the scope by reads through ``reader`` and ``queues``, which have the same scope."""
        self._reader = reader
        self._queues = queues
        self._scope = scope

    async def explain(self, command: ExplainJob) -> str:
        """Return the reply as JSON text, with no reasons if the job can run; raises NotFound."""
        row = await self._job(command.job_id)
        hidden = {} if self._scope is None else _WITHOUT_NAMES
        waits = [
            {"reason": reason, "detail": hidden.get(reason, detail)}
            for reason, detail in await self._reasons(row)
        ]
        reply = {"jobID": row.job_id, "state": row.state, "name": row.name, "waitsFor": waits}
        held = held_key(await self._unique_key(row.job_id), row, self._queues.now)
        if held is not None:
            reply |= {"uniqueKey": held.key, "uniqueUntil": held.until}
        return jsontext.dump(reply)

    async def _unique_key(self, job_id: int) -> tuple[str, str] | None:
        rows = (await self._reader.view("unique_key_of", {"jobID": job_id}, 1)).rows
        return (rows[0][0], rows[0][1]) if rows else None

    async def _job(self, job_id: int) -> Job:
        """Return a job without its data, which is not needed and may have 4 MiB; raises NotFound."""
        rows = (await self._reader.view("job", {"jobID": job_id}, 1)).rows
        job = job_from(rows[0])._replace(data="") if rows else None
        if job is not None and in_scope(self._scope, job.name):
            return job
        row = None if job is not None else await self._unique_key(job_id)
        held = held_key(row, None, self._queues.now)
        if held is not None and in_scope(self._scope, held.name):
            raise NotFound("No job with this jobID", held.after_end(job_id))
        raise NotFound("No job with this jobID", f"there is no job {job_id}")

    async def _reasons(self, row: Job) -> Reasons:
        if row.state == "PAUSED":
            if row.memory.workflow and (waits := await self._workflow(row)):
                return [("workflow", waits)]
            return [("children", await self._family(row))]
        held = await self._queues.held()
        if row.state != "QUEUED" and not (row.state == "RUNQUEUED" and row.next_run <= held.now):
            return [("state", _state(row))]
        reasons = _before_workers(row, held)
        if row.lane == PING_LANE:
            text = f"no worker runs it; a ping has to end its tick by {row.expires[:19]}"
            return [*reasons, ("ping", text)]
        if row.lane == EVERY_LANE:
            return reasons + _workers(row.name, Requirements(row.options.own_command), held.takers)
        if not row.mocked:
            reasons += _workers(row.name, need_of(row.lane), held.takers)
            if row.next_run <= held.now:
                reasons += await self._ahead(row, held.now)
        return reasons

    async def _workflow(self, row: Job) -> str:
        """Return for which jobs of its workflow a job waits, as text; empty if it waits for none."""
        page = await self._reader.view("waits_in_workflow", {"jobID": row.job_id}, 10)
        if not page.rows:
            return ""
        refs = [ref for ref, name, _ in page.rows if in_scope(self._scope, name)]
        words = ", ".join(refs) + (" and others" if page.more else "") if refs else "other jobs"
        name = page.rows[0][2]
        return f"{words} of workflow {name}" if in_scope(self._scope, name) else f"{words} of its workflow"

    async def _family(self, row: Job) -> str:
        if row.parent_job_id:
            return f"its parent, job {row.parent_job_id}, has to finish its own work first"
        parameters = {"jobID": row.job_id, "most": AHEAD_MAX}
        pending = (await self._reader.view("pending_children", parameters, 1)).rows[0][0]
        return f"{pending}{' or more' if pending >= AHEAD_MAX else ''} children have not ended"

    async def _ahead(self, row: Job, now: str) -> Reasons:
        parameters = {
            "lane": row.lane,
            "name": row.name,
            "priority": row.priority,
            "nextRun": row.next_run,
            "jobID": row.job_id,
            "now": now,
            "most": AHEAD_MAX,
        }
        ahead = (await self._reader.view("jobs_ahead", parameters, 1)).rows[0][0]
        more = " or more" if ahead >= AHEAD_MAX else ""
        return [("ahead", f"{ahead}{more} jobs of its name come first")] if ahead else []


def _before_workers(row: Job, held: Held) -> Reasons:
    """Return the reasons that do not depend on workers."""
    reasons: Reasons = []
    if row.mocked:
        reasons.append(("mocked", "it is a mocked job: only a GetJob with getMockedJobs takes it"))
    pause = held.pauses.pause_for(row.name, row.lane)
    because = f": {pause.reason}" if pause is not None and pause.reason else ""
    if pause is not None and pause.pattern == HOLD_PATTERN:
        reasons.append(("held", f"{hold_text(pause)}; {RELEASE}"))
    elif pause is not None and pause.by == AT_LIMIT:
        reasons.append(("limit", pause_text(pause) + because))
    elif pause is not None:
        reasons.append(("paused", pause_text(pause) + because))
    if row.next_run == NEVER and is_cron(row.repeat):
        reasons.append(("no tick", _no_tick(row.repeat)))
    elif row.next_run > held.now:
        reasons.append(("nextRun", f"it is due at {row.next_run}"))
    slots = slots_of(row, held.limits)
    holders = held.holders.get(parse_lane(row.lane).lock)
    if holders is not None and holders.running >= slots:
        reasons.append(_held(row, holders, slots))
    return reasons


def _held(row: Job, holders: LockHolders, slots: int) -> tuple[str, str]:
    lock, options = parse_lane(row.lane).lock, row.options
    if options.concurrency_key:
        words = f"{holders.running} of {slots} running with key {lock}"
        return "concurrency", words
    return "lock", f"job {holders.first} holds the lock {lock}"


def _no_tick(repeat: str) -> str:
    """Return why a schedule has no next run."""
    try:
        why = "the last one has passed" if has_ticks(repeat) else "it never fires by itself"
    except ValueError as error:
        return complaint(error)
    return f"{why}; it runs only after TriggerJob, or UpdateJob with nextRun"


def _workers(name: str, need: Requirements, takers: EligibleWorkers) -> Reasons:
    """Return why no worker takes a job of this name and requirement."""
    if takers.any_eligible(name, need):
        return []
    asked_for = takers.is_requested(name, need)
    reasons: Reasons = []
    if not asked_for and (asking := how_to_ask(name)) is not None:
        wrong, right = asking
        reasons.append(("name", f"a GetJob for {name} asks for {wrong}; ask for {right}"))
    if need.own and not asked_for:
        reasons.append(("own command", f"no worker that asks for it accepts jobs with {need.own}"))
    return [*reasons, ("own command" if asked_for else "no worker", takers.why_none_eligible(name, need))]


def _state(row: Job) -> str:
    if row.state == "RUNNING":
        return f"it has been running since {row.last_run}" + (f", run {row.run_id}" if row.run_id else "")
    if row.state == "RUNQUEUED":
        running = f"it has been running since {row.last_run}"
        return f"{running}, and is handed out again at {row.next_run} unless it ends before"
    if row.state == "FAILED":
        return "it has failed; RetryJob with revive queues it again"
    kept = (
        f"; its record is kept until {row.expires[:19]}" if row.state == "CANCELLED" and row.expires else ""
    )
    return f"it is {row.state}; it does not run again{kept}"
