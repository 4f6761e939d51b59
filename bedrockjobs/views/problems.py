"""Problems of the queue in words, the most urgent first; why workers are idle; why a job is not running.

The sentences have no initial capital and no full stop, so that pages, the terminal and logs can embed them;
their timestamps are in UTC.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from shlex import quote
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import moment_of, span
from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.glob import literal
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import ExplainJob
from bedrockjobs.commands.overview import Trouble
from bedrockjobs.job.delivery import delivery_of
from bedrockjobs.job.eligibility import (
    HOLD_PATTERN,
    RELEASE,
    EligibleWorkers,
    LockHolders,
    RequestedNames,
    Requirements,
    WorkerCapabilities,
    hold_text,
    need_of,
)
from bedrockjobs.job.lifecycle import held_key
from bedrockjobs.job.limits import AT_LIMIT, NEXT_START, Limit, fair_pattern, slots_of
from bedrockjobs.job.rows import EVERY_LANE, PING_LANE, Job, PauseRow, RuleRow, job_from, parse_lane
from bedrockjobs.job.take_request import how_to_ask
from bedrockjobs.schedule.repeat import NEVER, complaint, has_ticks, is_cron
from bedrockjobs.store.base import Reader
from bedrockjobs.views.queues import GROUPS_A_TURN, Held, QueuedGroup, Queues, QueueSnapshot, Totals
from bedrockjobs.views.render import in_scope

# Free space on the disk of the database, for the overview, notification rules and metrics.


SPACE_LOW_BYTES = 1024**3
"""Free bytes below which a warning is shown: what a busy queue uses in a day."""

WHEN_FULL = "when it is full no jobs are created"
"""What happens when the disk is full, as part of a message."""


def free_bytes(settings: Settings) -> int | None:
    """Return the free bytes on the disk of the database; None on PostgreSQL or if unknown."""
    if settings.on_postgresql:
        return None
    try:
        return shutil.disk_usage(settings.database_path().resolve().parent).free
    except OSError:
        return None


def low_space_warning(free: int | None) -> str:
    """Return a warning if few bytes are ``free``; empty if there are enough, or if the number is unknown."""
    if free is None or free >= SPACE_LOW_BYTES:
        return ""
    return f"{free / 1e6:,.0f} MB are free on the disk of the database: {WHEN_FULL}"


# Why live workers are idle, by one bounded snapshot of the queue for all workers.


_FIRST = {
    "ready": "jobs are ready for it: it has not asked for one",
    "blocked": "its jobs need a lock that another job holds",
    "key": "its jobs wait for the next start of their key",
    "paused": "its jobs are paused",
}
"""Idle reasons by the standing of the jobs that a worker could take; the first that applies is shown."""


async def why_idle(queues: Queues, workers: Sequence[WorkerCapabilities]) -> dict[str, str]:
    """Return the idle reason of each worker, by its name."""
    snapshot = await queues.snapshot()
    standings: dict[str, set[str]] = {worker.name: set() for worker in workers}
    requested = RequestedNames()
    for number, worker in enumerate(workers):
        if number % 10 == 9:  # each worker may have 1,600 patterns
            await asyncio.sleep(0)
        requested.put(worker.name, worker.names)
    takers = EligibleWorkers(workers, {}, requested)
    for number, group in enumerate(snapshot.groups):
        if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
            await asyncio.sleep(0)
        if group.due:
            stands: str = snapshot.held.standing(group, due=True)
            if stands == "blocked" and snapshot.held.lock_holder(group) is None:
                stands = "key"
            for name in takers.names_for(group.name, need_of(group.lane)):
                standings[name].add(stands)
    reasons = {}
    for worker in workers:
        first = (text for one, text in _FIRST.items() if one in standings[worker.name])
        if held_back := snapshot.held.takers.held_back(worker):
            reasons[worker.name] = f"it {held_back}"
        elif worker.names:
            reasons[worker.name] = next(first, "nothing is due for it")
        else:
            reasons[worker.name] = "it asks for no names"
    return reasons


LATE_S = 300
"""Seconds after which a ready job is a problem: a free worker would take it at once."""

PROBLEMS_MAX = 20
"""Maximum problems of one kind that are listed; the others are only counted."""

EVERYTHING = "*"


def short(name: str) -> str:
    """Return a name for use in a sentence; one of more than 60 characters loses its middle."""
    return name if len(name) <= 60 else f"{name[:30]}…{name[-29:]}"


async def problems(
    snapshot: QueueSnapshot,
    totals: Totals,
    on_all_hosts: Mapping[str, Requirements],
    failed: int,
    last_failed: list[str],
    rules: Iterable[RuleRow],
    free: int | None = None,
) -> list[Trouble]:
    """Return all problems; ``last_failed``: schedules whose last run failed, ``free``: bytes on disk."""
    text = low_space_warning(free)
    problems_found = [_problem("disk low", 0, text)] if text else []
    waiting = await _waiting_groups(snapshot)
    untaken = _untaken(snapshot.held, waiting.untaken, totals, on_all_hosts)
    problems_found += untaken if untaken else _late(snapshot.held, totals)
    problems_found += _blocked(snapshot.held, waiting.blocked)
    if failed:
        problems_found.append(_problem("failed", failed, f"{jobs(failed, 'has', 'have')} failed"))
    if last_failed:
        runs = "run" if len(last_failed) == 1 else "runs"
        text = f"the last {runs} of {_listed(last_failed)} failed"
        problems_found.append(_problem("last run failed", len(last_failed), text, name=last_failed[0]))
    problems_found += _unsent(rules) + _paused(snapshot, waiting.paused) + _drained(snapshot.held)
    return sorted(problems_found, key=lambda one: one.kind != "held")


def _unsent(rules: Iterable[RuleRow]) -> list[Trouble]:
    """Return problems for the notification rules whose last delivery failed.

    Only ``ListRules``, which is for admins, shows the reason: it may contain the destination.
    """
    troubles = []
    for rule in rules:
        delivery = delivery_of(rule)
        if delivery.tries:
            text = f"the rule {short(rule.name)} has failed to send its messages since {delivery.since[:19]}"
            troubles.append(_problem("messages", 1, text, name=rule.name, since=delivery.since))
        elif delivery.missed:
            text = f"the last message of the rule {short(rule.name)} did not reach all recipients"
            troubles.append(_problem("messages", 1, text, name=rule.name, since=delivery.last_sent))
    return troubles


def jobs(count: int, one: str, many: str, *, more: bool = False) -> str:
    """Return a number of jobs as text, with the verb ``one`` or ``many``."""
    if more:
        return f"{count:,} or more jobs {many}"
    return f"1 job {one}" if count == 1 else f"{count:,} jobs {many}"


def age_s(since: str, now: str) -> int:
    """Return the whole seconds between two timestamps; 0 if ``since`` is empty or not earlier."""
    if not since or since >= now:
        return 0
    return int((moment_of(now) - moment_of(since)).total_seconds())


def pause_text(pause: PauseRow) -> str:
    """Return a pause as a sentence: pattern, author, start and end."""
    if pause.by == AT_LIMIT:
        if pause.reason.startswith(NEXT_START):
            return f"{short(pause.pattern)} waits until {pause.until}"
        return f"{short(pause.pattern)} waits for the end of a run"
    text = f"{short(pause.pattern) if pause.pattern.strip(EVERYTHING) else 'everything'} has been paused"
    text += f" by {pause.by}" if pause.by else ""
    text += f" since {pause.since[:19]}"
    return text + (f", until {pause.until}" if pause.until else "")


def _problem(kind: str, count: int, detail: str, *, name: str = "", since: str = "") -> Trouble:
    return Trouble(kind=kind, name=name, count=count, since=since, detail=detail)


class _Untaken(NamedTuple):
    """Ready jobs of one name that no worker takes."""

    name: str
    need: Requirements
    jobs: int
    since: str


class _WaitingGroups(NamedTuple):
    """What the groups of a snapshot wait for."""

    untaken: dict[tuple[str, Requirements], _Untaken]
    """Ready jobs that no live worker takes; empty if no worker is alive."""
    blocked: dict[str, tuple[int, str]]
    """By lock: how many jobs are due, and since when the first of them has been due."""
    paused: dict[str, tuple[int, int, bool]]
    """By pattern of a pause: how many jobs are due and not due yet, and whether there are more."""


async def _waiting_groups(snapshot: QueueSnapshot) -> _WaitingGroups:
    """Return what the groups wait for; yields to the event loop from time to time."""
    found, held = _WaitingGroups({}, {}, {}), snapshot.held
    for number, group in enumerate(snapshot.groups):
        if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
            await asyncio.sleep(0)
        standing = held.standing(group, due=True)
        if standing == "paused":
            pause = held.pause_of(group)
            assert pause is not None, "its standing says so"
            due, later, more = found.paused.get(pause.pattern, (0, 0, False))
            found.paused[pause.pattern] = (due + group.due, later + group.later, more or group.more)
        elif standing == "blocked" and group.due and held.lock_holder(group) is not None:
            lock = parse_lane(group.lane).lock
            count, since = found.blocked.get(lock, (0, group.oldest))
            found.blocked[lock] = (count + group.due, min(since, group.oldest))
        elif standing == "ready" and group.due and not group.rest and len(held.takers):
            need = need_of(group.lane)
            if not held.takers.any_eligible(group.name, need):
                other = found.untaken.get((group.name, need), _Untaken(group.name, need, 0, group.oldest))
                since = min(filter(None, (other.since, group.oldest)), default="")
                total = other.jobs + group.due
                found.untaken[group.name, need] = _Untaken(group.name, need, total, since)
    return found


def _untaken(
    held: Held,
    untaken: Mapping[tuple[str, Requirements], _Untaken],
    totals: Totals,
    on_all_hosts: Mapping[str, Requirements],
) -> list[Trouble]:
    """Return problems for names that no worker takes, those that have waited longest first."""
    takers, now = held.takers, held.now
    troubles: list[Trouble] = []
    if totals.ready and not len(takers):
        text = f"{jobs(totals.ready, 'is', 'are', more='ready' in totals.more)} ready and no worker is alive"
        troubles.append(_problem("no worker", totals.ready, text, since=totals.oldest))
    else:
        waiting = sorted(untaken.values(), key=lambda one: one.since or now)
        for one in waiting[:PROBLEMS_MAX]:
            age = age_s(one.since, now)
            waited = f", due for {span(age)}" if age else ""
            text = f"no worker takes {short(one.name)}{waited}{_why_none(held, one.name, one.need)}"
            kind = "own command" if takers.is_requested(one.name, one.need) else "no worker"
            troubles.append(_problem(kind, one.jobs, text, name=one.name, since=one.since))
        if rest := waiting[PROBLEMS_MAX:]:
            text = f"no worker takes {len(rest):,} more names"
            troubles.append(_problem("no worker", sum(one.jobs for one in rest), text, since=rest[0].since))
    return troubles + _on_all_hosts(held, on_all_hosts)


def _why_none(held: Held, name: str, need: Requirements) -> str:
    """Return why no worker takes a name; empty within a scope, since the text may name other workers."""
    return f": {held.takers.why_none_eligible(name, need)}" if held.may_name_all else ""


def _on_all_hosts(held: Held, schedules: Mapping[str, Requirements]) -> list[Trouble]:
    """Return problems for schedules on all hosts whose next tick would create no job."""
    troubles = []
    for name, need in schedules.items():
        if (
            held.takers.any_eligible(name, need)
            or held.pause_of(QueuedGroup(EVERY_LANE, name, "")) is not None
        ):
            continue
        kind = "own command" if held.takers.is_requested(name, need) else "no worker"
        text = f"no worker takes {short(name)}, which runs on all hosts{_why_none(held, name, need)}"
        troubles.append(_problem(kind, 1, text, name=name))
    return troubles[:PROBLEMS_MAX]


def _late(held: Held, totals: Totals) -> list[Trouble]:
    waited = age_s(totals.oldest, held.now)
    if waited <= LATE_S:
        return []
    text = f"the oldest ready job has waited for {span(waited)}"
    return [_problem("late", totals.ready, text, since=totals.oldest)]


def _blocked(held: Held, waiting: Mapping[str, tuple[int, str]]) -> list[Trouble]:
    """Return problems for locks for which jobs wait longer than ``LATE_S``."""
    troubles = []
    for lock, (count, since) in sorted(waiting.items(), key=lambda item: item[1][1]):
        waited, holders = age_s(since, held.now), held.holders[lock]
        if waited > LATE_S:
            text = f"{jobs(count, 'waits', 'wait')} for the "
            if holders.slots > 1:
                text += f"key {short(lock)}, with {holders.running} of {holders.slots} running"
            else:
                text += f"lock {short(lock)}"
                text += f", which job {holders.first} holds" if held.may_name_all else ""
            text += f", the oldest for {span(waited)}"
            troubles.append(_problem("blocked", count, text, name=lock, since=since))
    return troubles[:PROBLEMS_MAX]


def _paused(snapshot: QueueSnapshot, waiting: Mapping[str, tuple[int, int, bool]]) -> list[Trouble]:
    """Return problems for pauses, with how many jobs each holds back: a hold first, then by age."""
    troubles = []
    for pause in sorted(snapshot.held.pauses.rows, key=_hold_first):
        due, later, more = waiting.get(pause.pattern, (0, 0, snapshot.more))
        waits = _waiting(due, later, more=more or snapshot.more)
        if pause.by == AT_LIMIT:  # a limit that works as intended
            continue
        if pause.pattern == HOLD_PATTERN:
            text = f"{hold_text(pause)}; {waits}; {RELEASE}"
            troubles.append(_problem("held", due + later, text, since=pause.since))
            continue
        text = f"{pause_text(pause)}: {waits}"
        text += f"; reason: {pause.reason}" if pause.reason else ""
        troubles.append(_problem("paused", due + later, text, name=pause.pattern, since=pause.since))
    if len(troubles) > PROBLEMS_MAX:
        text = f"{len(troubles) - PROBLEMS_MAX:,} more patterns are paused"
        troubles[PROBLEMS_MAX:] = [
            _problem("paused", sum(one.count for one in troubles[PROBLEMS_MAX:]), text)
        ]
    return troubles


def _hold_first(pause: PauseRow) -> tuple[bool, str, str]:
    return pause.pattern != HOLD_PATTERN, pause.since, pause.pattern


def _waiting(due: int, later: int, *, more: bool) -> str:
    if not due + later and not more:
        return "nothing waits"
    text = jobs(due + later, "waits", "wait", more=more)
    if not later:
        return text
    return f"{text}, not due yet" if not due else f"{text}, {later:,} of them not due yet"


def _drained(held: Held) -> list[Trouble]:
    """Return problems for live workers that are drained."""
    troubles = []
    for drain in held.drains.values():
        if drain.worker in held.takers and held.may_name_all:
            by = f", by {drain.by}" if drain.by else ""
            text = f"worker {short(drain.worker)} takes no jobs: it has been drained since {drain.since}{by}"
            troubles.append(_problem("drained", 0, text, name=drain.worker, since=drain.since))
    if len(troubles) > PROBLEMS_MAX:
        troubles[PROBLEMS_MAX:] = [
            _problem("drained", 0, f"{len(troubles) - PROBLEMS_MAX:,} more workers are drained")
        ]
    return troubles


def _listed(names: list[str]) -> str:
    """Join names for a sentence; those after the third are only counted."""
    shown, more = [short(name) for name in names[:3]], len(names[3:])
    if more:
        shown.append(f"{more:,} more schedule{'s' if more > 1 else ''}")
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


# ExplainJob: all reasons why a job is not running, the most decisive first.
#
# The reasons of a queued job are those of ``bedrockjobs.job.eligibility``.


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
                reasons += await self._ahead(row, held)
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

    async def _ahead(self, row: Job, held: Held) -> Reasons:
        parameters = {
            "lane": row.lane,
            "name": row.name,
            "priority": row.priority,
            "nextRun": row.next_run,
            "jobID": row.job_id,
            "now": held.now,
            "most": AHEAD_MAX,
        }
        ahead = (await self._reader.view("jobs_ahead", parameters, 1)).rows[0][0]
        count = f"{ahead} or more jobs" if ahead >= AHEAD_MAX else f"{ahead} jobs" if ahead > 1 else "1 job"
        pattern = fair_pattern(row.name, held.limits)
        turns = f"; the keys and names of {pattern} take turns" if pattern else ""
        return [("ahead", f"{count} of its name before it{turns}")] if ahead else []


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
    start = held.next_start(QueuedGroup(row.lane, row.name, "")) if row.options.concurrency_key else None
    if start is not None:
        reasons.append(("limit", start_text(*start, row, held.now)))
    return reasons


def start_text(start: str, limit: Limit, row: Job, now: str) -> str:
    """Return when the key of a job may start its next job, by a limit per key."""
    left_s = ceil((moment_of(start) - moment_of(now)).total_seconds())
    return f"next start in {span(left_s)} by {limit.starts} with key {row.options.concurrency_key}"


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


_ALLOWS = {"cmd": "--allow-shell", "argv": "--allow-cmd", "url": "--allow-url"}
"""The option of a worker with which it accepts each of ``OWN_COMMANDS`` as a job's own command."""


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
        names = quote(literal(name))
        started = f"bedrock-worker --name {names} {_ALLOWS[need.own]} {names}"
        words = f"no worker that asks for it accepts jobs with {need.own}; `{started}` starts one"
        reasons.append(("own command", words))
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
