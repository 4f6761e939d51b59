"""The commands that only look: lists and views of runs, output, schedules, ticks and events, and Query.

Each is one bounded read of committed rows. Stored JSON is put into an answer as it is spelled. With
`Connection: wait` a read that finds nothing is done again when the notifier says that there may be something.
Nothing here knows of the writer or of a protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from bedrockjobs.base.caller import Scope
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import ANSWER_BYTES_MAX, JOB_ID_MAX, NAME_CHARS_MAX, WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.statuses import statuses_of
from bedrockjobs.base.wire import moment_of, stamp, stamp_ms
from bedrockjobs.commands import (
    Command,
    Events,
    ListJobs,
    ListRuns,
    ListSchedules,
    ListTicks,
    Query,
    QueryRun,
    ReadOutput,
    TickReply,
)
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import HANDLERS, handles
from bedrockjobs.engine.notifier import EVENTS, Notifier, Topic, output_topic
from bedrockjobs.engine.render import render_with_state
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.base import Page, Reader
from bedrockjobs.store.chunks import lines_of
from bedrockjobs.views import render
from bedrockjobs.views.room import free_bytes
from bedrockjobs.views.sight import sight_of
from bedrockjobs.views.tries import RUNS_LOOKED_AT, Ends, standing_of
from bedrockjobs.views.validate import words_of
from bedrockjobs.views.visible import filter_of, prefix_of_all

_P = TypeVar("_P")

MINUTES_MAX = 12_000
"""Minutes of which charts are made: a little over a week."""

READ_AT_ONCE_BYTES = 4_096
"""Output, as it is stored, that is read without a thread: less than a millisecond of work."""

_OUTCOME = list(TickReply.model_fields).index("outcome")

_ALWAYS = "~"
"""A text that comes after every stamp."""

_HIGHEST = "\U0010ffff" * NAME_CHARS_MAX
"""A text that comes after every name."""


class OutputPage(NamedTuple):
    """Lines of a run (seq, at, stream, line), its status, and whether no more lines follow."""

    lines: list[tuple[Any, ...]]
    status: str
    ended: bool


def _read_lines(
    chunks: list[tuple[int, str, bytes]], after: int, limit: int, bytes_max: int
) -> tuple[list[tuple[Any, ...]], bool]:
    found: list[tuple[Any, ...]] = []
    size = 0
    for first, codec, content in chunks:
        for seq, line in enumerate(lines_of(codec, content), start=first):
            if seq <= after:
                continue
            if len(found) == limit or size > bytes_max:
                return found, True
            found.append((seq, *line))
            size += len(line.text)
    return found, False


class EventsPage(NamedTuple):
    """Events (as in EventReply), and the number up to which there are no others that were asked for."""

    events: list[tuple[Any, ...]]
    reached: int


class Views:
    """Answers to the commands that only look."""

    def __init__(
        self,
        reader: Reader,
        notifier: Notifier,
        presence: WorkerRegistry,
        stats: Stats,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """Read from ``reader``, from ``presence`` and ``stats`` what no table has; wait for ``notifier``."""
        self._reader = reader
        self.sight = partial(sight_of, reader, presence, clock, partial(free_bytes, settings))
        """What somebody sees who sees the names of a scope, or all of them."""
        (
            self.find, self.queues, self.folder, self.standings, self.explainer, self.states, self.families
        ) = self.sight(None)  # fmt: skip
        self._unpacking = asyncio.Lock()
        """Held by whoever unpacks much output: a page may be megabytes, and many may be asked for at once."""
        self._stats = stats
        self._notifier = notifier
        self._clock = clock
        self.settings = settings

    @property
    def ended(self) -> bool:
        """Tell whether the server drains, so that nothing is waited for."""
        return self._notifier.ended

    async def answer(self, command: Command[Any]) -> Answer:
        """Answer a command whose ``where`` is ``reader``; raises CommandError. Cancelling ends its wait."""
        answer: Answer = await HANDLERS[type(command)](self, command)
        return answer

    # --- output and events: what is waited for -----------------------------------------------------------

    async def output(
        self, command: ReadOutput, *, again: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> OutputPage:
        """Return lines of a run; waits where the command says so. Raises NotFound.

        ``again`` reads for somebody who was let in before, however many read at the moment. Behind the line
        that exceeds ``bytes_max`` there is no other.
        """

        async def look(again: bool) -> OutputPage:
            given = {"runID": command.run_id, "after": command.after}
            page = await self._reader.view(
                "output_of_run", given, command.limit, again=again, bytes_max=bytes_max
            )
            if not page.rows:
                raise NotFound("No run with this runID", f"there is no run {command.run_id}")
            status = page.rows[0][0]
            chunks = [row[1:] for row in page.rows if row[1] is not None]
            lines, more = await self._lines(chunks, command.after, command.limit, bytes_max)
            return OutputPage(lines, status, ended=status != "running" and not page.more and not more)

        topic = output_topic(command.run_id)
        return await self.until_found(command, topic, look, lambda page: page.lines or page.ended, again)

    async def _lines(
        self, chunks: list[tuple[int, str, bytes]], after: int, limit: int, bytes_max: int
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Return lines of chunks (first number, codec, content) as in ``OutputPage``; whether there are more.

        What takes long is done by a thread, one page after the other.
        """
        if sum(len(content) for _, _, content in chunks) <= READ_AT_ONCE_BYTES:
            return _read_lines(chunks, after, limit, bytes_max)
        async with self._unpacking:
            return await asyncio.to_thread(_read_lines, chunks, after, limit, bytes_max)

    async def beside_run(self, run_id: int) -> tuple[int | None, int | None, str]:
        """Return the runs of the same name before and after a run, and the options that it was given."""
        rows = (await self._reader.view("beside_run", {"runID": run_id}, 1)).rows
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else (None, None, "{}")

    async def job_is_there(self, job_id: int) -> bool:
        """Tell whether there is a job."""
        return bool((await self._reader.view("name_of_job", {"jobID": job_id}, 1)).rows)

    async def job(self, job_id: int) -> Job | None:
        """Return a job; None where there is none."""
        rows = (await self._reader.view("job", {"jobID": job_id}, 1)).rows
        return job_from(rows[0]) if rows else None

    async def end_of_output(self, run_id: int) -> tuple[int, int]:
        """Return the number of a run's last line, and the bytes that it has printed."""
        page = await self._reader.view("end_of_output", {"runID": run_id}, 1)
        return (page.rows[0][0], page.rows[0][1]) if page.rows else (0, 0)

    async def events(
        self, command: Events, *, again: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> EventsPage:
        """Return events; waits where the command says so. The rest is as for ``output``."""
        after = command.after

        async def look(again: bool) -> EventsPage:
            nonlocal after
            newest = (await self._reader.view("newest_event", {}, 1, again=again)).rows[0][0]
            if after < 0:
                after = newest
            given = {"after": after, "kind": command.kind, "pattern": command.name}
            page = await self._reader.view("events", given, command.limit, again=True, bytes_max=bytes_max)
            after = page.rows[-1][0] if page.rows else max(after, newest)
            return EventsPage(page.rows, after)

        return await self.until_found(command, EVENTS, look, lambda page: page.events, again)

    async def events_of(
        self,
        command: Events,
        after: int,
        patterns: Sequence[str],
        *,
        again: bool,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> EventsPage:
        """Return the events behind ``after`` whose name matches one of some patterns; waits for nothing."""
        newest = (await self._reader.view("newest_event", {}, 1, again=again)).rows[0][0]
        after = newest if after < 0 else after
        reached, found = max(after, newest), dict[int, tuple[Any, ...]]()
        for pattern in patterns:
            given = {"after": after, "kind": command.kind, "pattern": pattern}
            page = await self._reader.view("events", given, command.limit, again=True, bytes_max=bytes_max)
            found.update((row[0], row) for row in page.rows)
            if page.more:
                reached = min(reached, page.rows[-1][0])
        numbers = [number for number in sorted(found) if number <= reached]
        if len(numbers) > command.limit:
            reached = numbers[command.limit - 1]
        return EventsPage([found[number] for number in numbers[: command.limit]], reached)

    async def rows(self, name: str, given: dict[str, Any]) -> Page:
        """Return the first row of a named statement."""
        return await self._reader.view(name, given, 1)

    async def page(self, name: str, given: dict[str, Any], limit: int, *, scans: bool = False) -> Page:
        """Return some rows of a named statement."""
        return await self._reader.view(name, given, limit, scans=scans)

    async def until_found(
        self,
        command: Command[Any],
        topic: Topic,
        look: Callable[[bool], Awaitable[_P]],
        found: Callable[[_P], Any],
        again: bool,
    ) -> _P:
        """Look until something is found, or the command waits no longer."""
        wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (min(wait_ms, WAIT_MS_MAX) / 1000 if command.waiting else 0)
        with self._notifier.listen(topic) as subscription:
            page = await look(again)
            while not found(page) and await subscription.wait(deadline - loop.time()):
                page = await look(True)
            return page

    @handles(ReadOutput)
    async def _read_output(self, command: ReadOutput) -> Answer:
        return self.answer_output(await self.output(command))

    @staticmethod
    def answer_output(page: OutputPage) -> Answer:
        """Return lines as they are answered."""
        lines = ",".join(render.line(row) for row in page.lines)
        ended = "true" if page.ended else "false"
        return Answer(f'{{"lines":[{lines}],"status":"{page.status}","ended":{ended}}}')

    @handles(Events)
    async def _events(self, command: Events) -> Answer:
        return self.answer_events(await self.events(command))

    @staticmethod
    def answer_events(page: EventsPage) -> Answer:
        """Return events as they are answered."""
        return Answer(f'{{"events":[{",".join(render.event(row) for row in page.events)}]}}')

    # --- what the pages show at first sight --------------------------------------------------------------

    async def stats(self, since: str, bucket_s: int) -> list[dict[str, Any]]:
        """Return what was done from a stamp on, in buckets of whole minutes, the oldest first.

        Each has ``minute`` (a stamp), the counts created, taken, finished, failed, retried, lost, and
        ``wait_ms``: how long a job had been due when it was taken, on average; None where none was.
        """
        rows = (await self._reader.view("minutes", {"since": since}, MINUTES_MAX)).rows
        unwritten = self._stats.open
        rows = [*rows, (unwritten.minute, *unwritten.counts())] if unwritten.minute >= since else rows
        step = max(bucket_s // 60, 1) * 60
        sums: dict[int, list[int]] = {}
        for minute, *counts in rows:
            at = int(moment_of(minute).timestamp())
            before = sums.setdefault(at - at % step, [0] * len(counts))
            sums[at - at % step] = [one + other for one, other in zip(before, counts, strict=True)]
        names = ("created", "taken", "finished", "failed", "retried", "lost")
        return [
            {
                "minute": stamp(datetime.fromtimestamp(at, UTC)),
                **dict(zip(names, counts, strict=False)),
                "wait_ms": counts[-1] / counts[-2] if counts[-2] else None,
            }
            for at, counts in sorted(sums.items())
        ]

    # --- lists -------------------------------------------------------------------------------------------

    @handles(QueryRun)
    async def _query_run(self, command: QueryRun) -> Answer:
        page = await self._reader.view("run", {"runID": command.run_id}, 1)
        if not page.rows:
            raise NotFound("No run with this runID", f"there is no run {command.run_id}")
        return Answer(render.run(page.rows[0]))

    @handles(ListRuns)
    async def _list_runs(self, command: ListRuns) -> Answer:
        return await self.list_runs(command)

    async def list_runs(self, command: ListRuns, scope: Scope | None = None) -> Answer:
        """List runs; those of one job as far as a scope sees them."""
        page = await self._runs(command, scope)
        return Answer(f'{{"runs":[{",".join(render.run(row) for row in page.rows)}]}}')

    async def _runs(self, command: ListRuns, scope: Scope | None) -> Page:
        """Read by the index that finds the fewest rows for what is asked."""
        pattern = None if command.name == "*" else command.name
        prefix = literal_prefix(pattern or "")
        given = {
            "before": JOB_ID_MAX if command.before is None else command.before,
            "jobID": command.job_id,
            "pattern": pattern,
            "statuses": " ".join(statuses_of(command.status)) or None,
            "worker": command.worker,
            "low": prefix,
            "high": prefix + _HIGHEST,
            "visible": filter_of(scope),
        }
        if command.job_id is not None:
            return await self._reader.view("runs_of_job", given, command.limit)
        if pattern is not None and prefix == pattern:
            return await self._reader.view("runs_of_name", given, command.limit)
        if command.status == "running":
            return await self._reader.view("runs_in_progress", given, command.limit)
        if prefix:
            return await self._reader.view("runs_of_names", given, command.limit, scans=True)
        filtered = pattern is not None or command.status is not None or command.worker is not None
        return await self._reader.view("runs", given, command.limit, scans=filtered)

    @handles(ListSchedules)
    async def _list_schedules(self, command: ListSchedules) -> Answer:
        return await self.list_schedules(command)

    async def list_schedules(self, command: ListSchedules, scope: Scope | None = None) -> Answer:
        """List schedules, as far as a scope sees them."""
        prefix = prefix_of_all(command.name, scope)
        given = {
            "after": command.after,
            "pattern": command.name,
            "source": command.source,
            "low": prefix,
            "high": prefix if command.name and prefix == command.name else prefix + _HIGHEST,
            "now": stamp_ms(self._clock.now()),
            "visible": filter_of(scope),
        }
        page = await self._reader.view("schedules", given, command.limit, scans=True)
        schedules = (render.schedule(row, words_of(row[render.REPEAT])) for row in page.rows)
        return Answer(f'{{"schedules":[{",".join(schedules)}]}}')

    @handles(ListTicks)
    async def _list_ticks(self, command: ListTicks) -> Answer:
        given = {"jobID": command.job_id, "before": command.before or _ALWAYS}
        page = await self._reader.view("ticks", given, command.limit)
        if not page.rows:
            raise NotFound(detail=f"there is no job {command.job_id}")
        tries = await self._reader.view("tries_of_schedule", {"jobID": command.job_id}, RUNS_LOOKED_AT)
        ends = Ends(tries.rows)
        ticks = ",".join(
            render.tick(row, *(ends.of(row[0], row[1]) if row[_OUTCOME] != "skipped" else ("", 0)))
            for row in page.rows
            if row[0] is not None
        )
        standing = standing_of(tries.rows)
        more = f',"failingSince":{quoted(standing.failing_since)}' if standing.failing_since else ""
        if not standing.has_succeeded and len(tries.rows) < RUNS_LOOKED_AT:
            (job,) = await self._reader.jobs(command.job_id - 1, None, None, 1)
            more += ',"neverSucceeded":true' if job.options.keep_success != 0 else ""
        return Answer(f'{{"ticks":[{ticks}]{more}}}')

    @handles(ListJobs)
    async def _list_jobs(self, command: ListJobs) -> Answer:
        rows = await self._reader.jobs(command.after, command.state, command.name, command.limit)
        bodies: list[str] = []
        size = 0
        for row in rows:
            if size >= ANSWER_BYTES_MAX:
                break
            bodies.append(render_with_state(row))
            size += len(bodies[-1])
        return Answer(f'{{"jobs":[{",".join(bodies)}]}}')

    @handles(Query)
    async def _query(self, command: Query) -> Answer:
        form = command.format or ("text" if self.settings.compatibility == "current" else "rows")
        body = await self._reader.query(command.query, form)
        return Answer(body, media="text/plain" if form == "text" else "application/json")
