"""Read-only commands: lists and views of jobs, runs, output, schedules, ticks and events, and Query.

Each is one bounded read of committed rows. Stored JSON is copied into replies verbatim. With
`Connection: wait`, a read that finds nothing is repeated when the notifier reports something new.
For a token with a scope, or one that may see no data, reads go through a ``Views`` with the same limits:
statements filter by the patterns of the scope, as if rows outside of it did not exist.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from bedrockjobs.base.clock import Clock, timestamp_ms
from bedrockjobs.base.config import (
    ANSWER_BYTES_MAX,
    JOB_ID_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    WORKFLOW_EDGES_MAX,
)
from bedrockjobs.base.errors import Forbidden, NotFound
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.base.jsontext import dump, quoted
from bedrockjobs.base.principal import Principal, Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.vocabulary import statuses_of
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import (
    Command,
    Events,
    ExplainJob,
    ListChildren,
    ListJobs,
    ListPauses,
    ListQueues,
    ListRuns,
    ListSchedules,
    ListTicks,
    ListWorkflows,
    Overview,
    Query,
    QueryRun,
    QueryWorkflow,
    QueueHistory,
    ReadOutput,
    Reply,
    TickReply,
    WorkflowJobReply,
    WorkflowReply,
)
from bedrockjobs.engine.events import EVENTS, Notifier, Topic, output_topic
from bedrockjobs.engine.handlers.context import HANDLERS, Answer, handles
from bedrockjobs.engine.render import error_kind, event_as_unseen, render_with_state, without_data
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.lifecycle import held_key, split_holds
from bedrockjobs.job.limits import Mute, mutes_from
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.base import Page, Reader
from bedrockjobs.store.chunks import lines_of
from bedrockjobs.views import render
from bedrockjobs.views.find import Finder
from bedrockjobs.views.name_tree import NameTree
from bedrockjobs.views.overview import Histories, OverviewBuilder
from bedrockjobs.views.problems import Explainer
from bedrockjobs.views.queues import Queues
from bedrockjobs.views.render import filter_of, in_scope, name_range, prefix_of_all, visible_pattern
from bedrockjobs.views.schedules import RUNS_EXAMINED, TickOutcomes, standing_of, words_of
from bedrockjobs.views.states import Families, States

_P = TypeVar("_P")

_WORKFLOW, _WORKFLOW_JOB = render.keys_of(WorkflowReply), render.keys_of(WorkflowJobReply)
_STATE = _WORKFLOW.index("state")

WORKFLOWS_COUNTED = 1_000
"""Maximum workflows of a state that are counted: more would cost each page and scrape milliseconds."""

_OUTCOME = list(TickReply.model_fields).index("outcome")

_ALWAYS = "~"
"""In place of a timestamp: a text that sorts after every timestamp, so that nothing is left out."""


class PlaceInWorkflow(NamedTuple):
    """The workflow of a job, and the job's ``ref`` in it; ``state`` is empty until the job has ended."""

    workflow_id: int
    name: str
    ref: str
    state: str


class OutputPage(NamedTuple):
    """Output lines (seq, at, stream, line), the status of the run, and whether these are its last lines."""

    lines: list[tuple[Any, ...]]
    status: str
    ended: bool


def _read_lines(
    chunks: list[tuple[int, str, bytes]], after: int, limit: int, bytes_max: int
) -> tuple[list[tuple[Any, ...]], bool]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for first, codec, content in chunks:
        for seq, line in enumerate(lines_of(codec, content), start=first):
            if seq <= after:
                continue
            if len(rows) == limit or size > bytes_max:
                return rows, True
            rows.append((seq, *line))
            size += len(line.text)
    return rows, False


class EventsPage(NamedTuple):
    """Events (as in EventReply), and the number of the last event that was examined."""

    events: list[tuple[Any, ...]]
    reached: int


class Views:
    """The handlers of the read-only commands, and the reads that pages and commands share."""

    def __init__(
        self,
        reader: Reader,
        notifier: Notifier,
        presence: WorkerRegistry,
        stats: Stats,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """Create views without limits; ``scoped`` returns limited ones."""
        self._reader = reader
        self._notifier = notifier
        self._presence = presence
        self._stats = stats
        self._clock = clock
        self.settings = settings
        self._decoding = asyncio.Lock()
        """Held while large output is decoded: a page may have megabytes, and many clients may ask at once."""
        self._limit_to(None, data=True)

    @property
    def now_ms(self) -> str:
        """Return the server's time as a timestamp."""
        return timestamp_ms(self._clock.now())

    def scoped(self, scope: Scope | None, *, data: bool = True) -> Views:
        """Return views limited to a scope; without ``data``, the views hide job data, results and output."""
        if scope is None and data:
            return self
        views = copy.copy(self)
        views._limit_to(scope, data=data)
        return views

    def seen_by(self, caller: Principal | None) -> Views:
        """Return these views with the limits of a caller's token."""
        return self if caller is None else self.scoped(caller.scope, data=not caller.grant.no_data)

    def _limit_to(self, scope: Scope | None, *, data: bool) -> None:
        reader, clock = self._reader, self._clock
        self._scope = scope
        self._data = data
        self._visible = filter_of(scope)
        self.find = Finder(reader, scope, data=data)
        self.queues = Queues(reader, self._presence, clock, scope)
        self.folder = NameTree(reader, self.queues, clock, scope)
        self.standings = OverviewBuilder(reader, self.queues, self.find, clock, self.settings, scope)
        self.histories = Histories(reader, self._stats, clock, scope)
        self.explainer = Explainer(reader, self.queues, scope)
        self.states = States(reader, scope, data=data)
        self.families = Families(reader, scope, data=data)
        self._children = Families(reader, scope)
        """Reads children with their data, which ``_shown`` hides if need be."""

    @property
    def ended(self) -> bool:
        """Return whether the server is draining, so that no read waits."""
        return self._notifier.ended

    async def answer(self, command: Command[Any]) -> Answer:
        """Execute a command whose ``where`` is ``reader``; raises CommandError. May be cancelled."""
        answer: Answer = await HANDLERS[type(command)](self, command)
        return answer

    # --- output and events, for which reads can wait -----------------------------------------------------

    async def output(
        self, command: ReadOutput, *, again: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> OutputPage:
        """Return output lines of a run, waiting for them if the command says so. Raises NotFound, Forbidden.

        A stream sets ``again`` after its first page, so that its reads are not refused while many reads are
        queued.
        The page ends with the first line that exceeds ``bytes_max``.
        """
        self._check_output()
        if not again:
            await self._check_run(command.run_id)

        async def look(repeated: bool) -> OutputPage:
            parameters = {"runID": command.run_id, "after": command.after}
            page = await self._reader.view(
                "output_of_run", parameters, command.limit, again=repeated, bytes_max=bytes_max
            )
            if not page.rows:
                raise _no_run(command.run_id)
            status = page.rows[0][0]
            chunks = [row[1:] for row in page.rows if row[1] is not None]
            lines, more = await self._lines(chunks, command.after, command.limit, bytes_max)
            return OutputPage(lines, status, ended=status != "running" and not page.more and not more)

        topic = output_topic(command.run_id)
        return await self._until_found(command, topic, look, lambda page: page.lines or page.ended, again)

    async def _lines(
        self, chunks: list[tuple[int, str, bytes]], after: int, limit: int, bytes_max: int
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Decode chunks (first number, codec, content) into lines; also return whether there are more.

        Large pages are decoded in a thread, one at a time.
        """
        # Maximum bytes of stored output that are decoded without a thread: less than a millisecond of work.
        if sum(len(content) for _, _, content in chunks) <= 4_096:
            return _read_lines(chunks, after, limit, bytes_max)
        async with self._decoding:
            return await asyncio.to_thread(_read_lines, chunks, after, limit, bytes_max)

    def _check_output(self) -> None:
        if not self._data:
            raise Forbidden(detail="output counts as data, which this token may not see")

    async def _check_run(self, run_id: int) -> None:
        """Raise NotFound for a run outside of the scope, the same error as for a nonexistent run."""
        if self._scope is not None:
            rows = (await self.rows("name_of_run", {"runID": run_id})).rows
            if not rows or not self._scope.covers(rows[0][0]):
                raise _no_run(run_id)

    async def adjacent_runs(self, run_id: int) -> tuple[int | None, int | None, str]:
        """Return the previous and the next runID of the same name, or None, and the options of this run."""
        await self._check_run(run_id)
        rows = (await self.rows("adjacent_runs", {"runID": run_id})).rows
        if not rows:
            return None, None, "{}"
        before, following, options = rows[0]
        return before, following, options if self._data else without_data(options)

    async def job_exists(self, job_id: int) -> bool:
        """Return whether a job exists within the scope."""
        rows = (await self.rows("name_of_job", {"jobID": job_id})).rows
        return bool(rows) and in_scope(self._scope, rows[0][0])

    async def job(self, job_id: int) -> str | None:
        """Return a job as JSON text, or None if there is none within the scope."""
        shown_job = await self._job(job_id)
        return None if shown_job is None else self._shown(render_with_state(shown_job))

    async def _job(self, job_id: int) -> Job | None:
        rows = (await self.rows("job", {"jobID": job_id})).rows
        job = job_from(rows[0]) if rows else None
        return job if job is not None and in_scope(self._scope, job.name) else None

    async def end_of_output(self, run_id: int) -> tuple[int, int]:
        """Return the number of a run's last output line, and the size of its output in bytes."""
        self._check_output()
        await self._check_run(run_id)
        rows = (await self.rows("end_of_output", {"runID": run_id})).rows
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    async def events(
        self, command: Events, *, again: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> EventsPage:
        """Return events, waiting for them if the command says so; the parameters are those of ``output``."""
        after = command.after

        async def look(repeated: bool) -> EventsPage:
            nonlocal after
            newest = (await self._reader.view("newest_event", {}, 1, again=repeated)).rows[0][0]
            if after < 0:
                after = newest
            parameters = {
                "after": after,
                "kind": command.kind,
                "pattern": command.name,
                "visible": self._visible,
            }
            page = await self._reader.view(
                "events", parameters, command.limit, again=True, bytes_max=bytes_max
            )
            after = page.rows[-1][0] if page.rows else max(after, newest)
            return EventsPage([self._shown_event(row) for row in page.rows if self._is_seen(row)], after)

        return await self._until_found(command, EVENTS, look, lambda page: page.events, again)

    def _is_seen(self, row: Sequence[Any]) -> bool:
        """Return whether an event may be shown; a scope hides events about workers and tokens."""
        _, _, kind, name, job_id, run_id, *_ = row
        about_jobs = bool(job_id or run_id)
        return (
            self._scope is None
            or about_jobs
            or (kind in _ABOUT_PATTERNS and self._scope.includes_pattern(name))
        )

    def _shown_event(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return row if self._data else event_as_unseen(row)

    async def rows(self, name: str, parameters: dict[str, Any]) -> Page:
        """Return a page with the first row of a named statement, if there is one."""
        return await self._reader.view(name, parameters, 1)

    async def mutes(self) -> list[Mute]:
        """Return the mutes of failures in force, except mutes that also apply to hidden names."""
        page = await self.rows("mutes", {})
        now = self.now_ms
        return [
            mute
            for mute in (mutes_from(page.rows[0][0]) if page.rows else ())
            if (not mute.until or now < mute.until)
            and (self._scope is None or self._scope.includes_pattern(mute.pattern))
        ]

    async def page(self, name: str, parameters: dict[str, Any], limit: int, *, scans: bool = False) -> Page:
        """Return at most ``limit`` rows of a named statement."""
        return await self._reader.view(name, parameters, limit, scans=scans)

    async def _until_found(
        self,
        command: Command[Any],
        topic: Topic,
        read: Callable[[bool], Awaitable[_P]],
        has_rows: Callable[[_P], Any],
        again: bool,
    ) -> _P:
        """Read, again after each event of ``topic``, until a read finds something or the timeout is over."""
        wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting else 0)
        with self._notifier.listen(topic) as subscription:
            page = await read(again)
            while not has_rows(page) and await subscription.wait(deadline - loop.time()):
                page = await read(True)
            return page

    @handles(ReadOutput)
    async def _read_output(self, command: ReadOutput) -> Answer:
        page = await self.output(command)
        lines = ",".join(render.line(row) for row in page.lines)
        ended = "true" if page.ended else "false"
        return Answer(f'{{"lines":[{lines}],"status":"{page.status}","ended":{ended}}}')

    @handles(Events)
    async def _events(self, command: Events) -> Answer:
        page = await self.events(command)
        return Answer(f'{{"events":[{",".join(render.event(row) for row in page.events)}]}}')

    # --- jobs, runs and schedules ------------------------------------------------------------------------

    @handles(QueryRun)
    async def _query_run(self, command: QueryRun) -> Answer:
        await self._check_run(command.run_id)
        rows = (await self.rows("run", {"runID": command.run_id})).rows
        if not rows:
            raise _no_run(command.run_id)
        return Answer(self._shown(render.render_run(rows[0])))

    def _shown(self, text: str) -> str:
        """Return the JSON text of a job or run, without its data if the token may not see data."""
        return text if self._data else without_data(text)

    @handles(ListRuns)
    async def _list_runs(self, command: ListRuns) -> Answer:
        page = await self._runs(command)
        return Answer(f'{{"runs":[{",".join(self._shown(render.render_run(row)) for row in page.rows)}]}}')

    async def _runs(self, command: ListRuns) -> Page:
        """Return matching runs, read by the index that leaves the fewest rows."""
        pattern = None if command.name == "*" else command.name
        prefix = prefix_of_all(pattern, self._scope)
        parameters = {
            "before": JOB_ID_MAX if command.before is None else command.before,
            "jobID": command.job_id,
            "pattern": pattern,
            "statuses": " ".join(statuses_of(command.status)) or None,
            "worker": command.worker,
            **render.raised(command.error_type),
            **name_range(prefix),
            "visible": self._visible,
        }
        if command.error_type is not None and not self._data:
            raise Forbidden(detail="errorType: this token may not see the data that would be searched")
        if command.job_id is not None:
            return await self._reader.view("runs_of_job", parameters, command.limit)
        if pattern is not None and literal_prefix(pattern) == pattern:
            return await self._reader.view("runs_of_name", parameters, command.limit)
        if command.status == "running":
            return await self._reader.view("runs_in_progress", parameters, command.limit)
        if prefix:
            return await self._reader.view("runs_of_names", parameters, command.limit, scans=True)
        filtered = any(
            parameters[name] is not None for name in ("pattern", "statuses", "worker", "visible", "raised")
        )
        return await self._reader.view("runs", parameters, command.limit, scans=filtered)

    @handles(ListSchedules)
    async def _list_schedules(self, command: ListSchedules) -> Answer:
        prefix = prefix_of_all(command.name, self._scope)
        parameters = {
            "after": command.after,
            "pattern": command.name,
            "source": command.source,
            **name_range(prefix, exact=bool(command.name) and prefix == command.name),
            "now": self.now_ms,
            "visible": self._visible,
        }
        page = await self._reader.view("schedules", parameters, command.limit, scans=True)
        schedules = [
            render.schedule(
                row, words_of(row[render.REPEAT]), visible_pattern(row[render.PAUSED], self._scope)
            )
            for row in page.rows
        ]
        return Answer(f'{{"schedules":[{",".join(schedules)}]}}')

    @handles(ListTicks)
    async def _list_ticks(self, command: ListTicks) -> Answer:
        parameters = {"jobID": command.job_id, "before": stamped(command.before, self.now_ms) or _ALWAYS}
        page = await self._reader.view("ticks", parameters, command.limit)
        if not page.rows or (self._scope is not None and not await self.job_exists(command.job_id)):
            raise NotFound(detail=f"there is no job {command.job_id}")
        tries = await self._reader.view("tries_of_schedule", {"jobID": command.job_id}, RUNS_EXAMINED)
        ends = TickOutcomes(tries.rows)
        ticks = ",".join(
            render.tick(row, *(ends.summarize(row[0], row[1]) if row[_OUTCOME] != "skipped" else ("", 0)))
            for row in page.rows
            if row[0] is not None
        )
        standing = standing_of(tries.rows)
        more = f',"failingSince":{quoted(standing.failing_since)}' if standing.failing_since else ""
        if not standing.has_succeeded and len(tries.rows) < RUNS_EXAMINED:
            job = await self._job(command.job_id)
            more += ',"neverSucceeded":true' if job and job.options.keep_success != 0 else ""
        return Answer(f'{{"ticks":[{ticks}]{more}}}')

    @handles(ListJobs)
    async def _list_jobs(self, command: ListJobs) -> Answer:
        parameters = {
            "after": command.after,
            "state": command.state,
            "pattern": command.name,
            "visible": self._visible,
        }
        page = await self._reader.view("jobs", parameters, command.limit, scans=True)
        bodies: list[str] = []
        size, now = 0, self.now_ms
        for row in page.rows:
            if size >= ANSWER_BYTES_MAX:
                break
            bodies.append(self._shown(_with_key(job_from(row), row[-1], now)))
            size += len(bodies[-1])
        return Answer(f'{{"jobs":[{",".join(bodies)}]}}')

    @handles(ListChildren)
    async def _list_children(self, command: ListChildren) -> Answer:
        if self._scope is not None and not await self.job_exists(command.job_id):
            return Answer('{"jobs":[]}')
        page = await self._children.children(command.job_id, command.after, command.limit, full=True)
        now = timestamp_ms(self._clock.now())
        jobs = ",".join(
            self._shown(_with_key(child, page.keys.get(child.job_id), now)) for child in page.jobs
        )
        return Answer(f'{{"jobs":[{jobs}]}}')

    @handles(ExplainJob)
    async def _explain_job(self, command: ExplainJob) -> Answer:
        return Answer(self._shown(await self.explainer.explain(command)))

    # --- workflows ---------------------------------------------------------------------------------------

    @handles(ListWorkflows)
    async def _list_workflows(self, command: ListWorkflows) -> Answer:
        parameters = {
            "state": command.state,
            "before": JOB_ID_MAX if command.before is None else command.before,
            "pattern": command.name,
            "visible": self._visible,
        }
        name = "workflows" if command.state is None else "workflows_in_state"
        page = await self._reader.view(name, parameters, command.limit, scans=True)
        shown = ",".join(dump(dict(zip(_WORKFLOW, row, strict=True))) for row in page.rows)
        return Answer(f'{{"workflows":[{shown}]}}')

    async def workflow_of(self, job_id: int) -> PlaceInWorkflow | None:
        """Return the workflow of a job, also of a deleted job; None if the job is in no workflow."""
        page = await self._reader.view("workflow_of_job", {"jobID": job_id}, 1)
        for workflow_id, name, job_name, ref, state in page.rows:
            if in_scope(self._scope, name) and in_scope(self._scope, job_name):
                return PlaceInWorkflow(workflow_id, name, ref, state)
        return None

    async def workflows_counted(self, state: str, pattern: str | None = None) -> tuple[int, bool]:
        """Return the number of workflows in a state, up to a maximum, and whether there are more."""
        parameters = {
            "state": state,
            "pattern": pattern,
            "most": WORKFLOWS_COUNTED + 1,
            "visible": self._visible,
        }
        scans = pattern is not None or self._visible is not None
        page = await self._reader.view("workflows_counted", parameters, 1, scans=scans)
        count = page.rows[0][0] if page.rows else 0
        return min(count, WORKFLOWS_COUNTED), count > WORKFLOWS_COUNTED

    @handles(QueryWorkflow)
    async def _query_workflow(self, command: QueryWorkflow) -> Answer:
        async def look(repeated: bool) -> tuple[Any, ...]:
            parameters = {"workflowID": command.workflow_id, "visible": self._visible}
            rows = (await self._reader.view("workflow", parameters, 1, again=repeated)).rows
            if not rows:
                raise NotFound(
                    "No workflow with this workflowID",
                    f"workflowID: there is no workflow {command.workflow_id}",
                )
            return rows[0]

        row = await self._until_found(command, EVENTS, look, lambda found: found[_STATE] != "RUNNING", False)
        jobs = await self._jobs_of_workflow(command)
        head = dump(dict(zip(_WORKFLOW, row, strict=False)))
        return Answer(f'{head[:-1]},"jobs":[{",".join(jobs)}]}}')

    async def _jobs_of_workflow(self, command: QueryWorkflow) -> list[str]:
        parameters = {
            "workflowID": command.workflow_id,
            "after": command.after,
            "results": int(command.results and self._data),
            "visible": self._visible,
        }
        page = await self._reader.view("jobs_of_workflow", parameters, command.limit, again=True)
        if not page.rows:
            return []
        span = {"low": page.rows[0][0], "high": page.rows[-1][0], "workflowID": command.workflow_id}
        edges = await self._reader.view("edges_of_workflow", span, WORKFLOW_EDGES_MAX, again=True)
        before: dict[int, list[str]] = {}
        for job_id, ref, name in edges.rows:
            if in_scope(self._scope, name):
                before.setdefault(job_id, []).append(ref)
        jobs = []
        for *columns, result in page.rows:
            values = [*columns, before.get(columns[0], [])]
            shown = dict(zip(_WORKFLOW_JOB, values, strict=False))
            if not self._data:
                shown["reason"] = error_kind(shown["reason"])
            text = dump(shown)
            jobs.append(f'{text[:-1]},"result":{result}}}' if result else text)
        return jobs

    # --- the queue ---------------------------------------------------------------------------------------

    @handles(Overview)
    async def _overview(self, _: Overview) -> Answer:
        return _encoded(await self.standings.overview())

    @handles(ListQueues)
    async def _list_queues(self, command: ListQueues) -> Answer:
        return _encoded(await self.standings.queues(command))

    @handles(QueueHistory)
    async def _queue_history(self, command: QueueHistory) -> Answer:
        return _encoded(await self.histories.of_name(command.name, command.range))

    @handles(ListPauses)
    async def _list_pauses(self, _: ListPauses) -> Answer:
        return _encoded(await self.standings.pauses())

    @handles(Query)
    async def _query(self, command: Query) -> Answer:
        form = command.format or ("text" if self.settings.compatibility == "current" else "rows")
        body = await self._reader.query(command.query, form)
        return Answer(body, media="text/plain" if form == "text" else "application/json")


_ABOUT_PATTERNS = ("paused", "resumed", "muted", "unmuted")
"""The kinds of events whose ``name`` is a pattern, not the name of a job."""


def _with_key(job: Job, stored: str | None, now: str) -> str:
    """Return the JSON text of a job with the unique key that it holds, ``stored`` as in ``Children.keys``."""
    held = None if stored is None else held_key(split_holds(stored), job, now)
    return render_with_state(job, None if held is None else held.members)


def _no_run(run_id: int) -> NotFound:
    return NotFound("No run with this runID", f"there is no run {run_id}")


def _encoded(reply: Reply) -> Answer:
    return Answer(dump(reply.model_dump(by_alias=True)))
