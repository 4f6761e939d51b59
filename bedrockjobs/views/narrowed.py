"""The reads for whoever sees some names only, or no data: asked by narrower patterns, and looked through.

A list is asked for once for each pattern that is left of what was wanted, and the pages are put together.
What has another name, or cannot be told without others, does not come: it is answered as what is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from bedrockjobs import commands as c
from bedrockjobs.base import jsontext
from bedrockjobs.base.caller import Caller, Scope
from bedrockjobs.base.config import ANSWER_BYTES_MAX
from bedrockjobs.base.errors import Forbidden, NotFound
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import HANDLERS
from bedrockjobs.engine.notifier import EVENTS
from bedrockjobs.engine.render import event_as_unseen, job_as_unseen, without_data
from bedrockjobs.job.rows import Job
from bedrockjobs.views import EventsPage, OutputPage, Views
from bedrockjobs.views.overview import written
from bedrockjobs.views.visible import WIDE, patterns_within, sees, visible_pattern

Row = str
"""A row of a list, as JSON text."""

DESCENDING = frozenset({c.ListRuns})
"""Lists whose next page comes before the last row."""

WORDS = {
    "lock": "another job holds its lock",
    "no worker": "no live worker takes it",
    "own command": "no live worker takes it with the command that it brings along",
    "children": "its family has not ended",
}
"""What is told of a reason whose detail may name others."""

_P = TypeVar("_P")


class Narrowed:
    """What one caller may read of a server's views."""

    def __init__(self, views: Views, caller: Caller) -> None:
        """Read ``views`` for ``caller``."""
        self._views = views
        self._scope = caller.scope
        self._no_data = caller.grant.no_data
        (
            self.find, self.queues, self.folder, self.standings, self.explainer, self.states, self.families
        ) = views.sight(caller.scope, data=not self._no_data)  # fmt: skip

    @property
    def ended(self) -> bool:
        """Tell whether the server drains, so that nothing is waited for."""
        return self._views.ended

    async def answer(self, command: Command[Any]) -> Answer:
        """Answer a command whose ``where`` is ``reader``; raises CommandError. Cancelling ends its wait."""
        if self._no_data and isinstance(command, c.ListFailures):
            return await self.list_failures(command, None)
        if self._no_data and isinstance(command, c.Events):
            return self._views.answer_events(await self.events(command))
        if self._scope is None:
            answer = await self._views.answer(command)
        elif isinstance(command, c.Events):
            return self._views.answer_events(await self.events(command))
        elif isinstance(command, c.ReadOutput):
            return self._views.answer_output(await self.output(command))
        elif type(command) in _LISTS:
            answer = await self._list(command, self._scope)
        else:
            answer = await _OTHERS[type(command)](self, command, self._scope)
        return self._shown(command, answer) if self._no_data else answer

    def _shown(self, command: Command[Any], answer: Answer) -> Answer:
        """Return an answer without the data of jobs and runs."""
        if isinstance(command, c.QueryRun):
            return Answer(without_data(answer.body))
        rows = {c.ListJobs: "jobs", c.ListChildren: "jobs", c.ListRuns: "runs"}.get(type(command))
        if rows is None:
            return answer
        shown = [without_data(row) for row in jsontext.elements(jsontext.members(answer.body)[rows])]
        return Answer(f'{{"{rows}":[{",".join(shown)}]}}')

    # --- what is waited for ------------------------------------------------------------------------------

    async def output(
        self, command: c.ReadOutput, *, again: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> OutputPage:
        """Return lines of a run, as ``Views.output`` does."""
        self._check_output()
        if self._scope is not None and not again:
            await self._run(command.run_id, self._scope)
        return await self._views.output(command, again=again, bytes_max=bytes_max)

    def _check_output(self) -> None:
        if self._no_data:
            raise Forbidden(detail="output counts as data, which this token does not see")

    async def end_of_output(self, run_id: int) -> tuple[int, int]:
        """Return how far the output of a run goes, as ``Views.end_of_output`` does."""
        self._check_output()
        if self._scope is not None:
            await self._run(run_id, self._scope)
        return await self._views.end_of_output(run_id)

    async def beside_run(self, run_id: int) -> tuple[int | None, int | None, str]:
        """Return the neighbours of a run and its options, as ``Views.beside_run`` does."""
        if self._scope is not None:
            await self._run(run_id, self._scope)
        before, following, options = await self._views.beside_run(run_id)
        return before, following, without_data(options) if self._no_data else options

    async def stats(self, since: str, bucket_s: int) -> list[dict[str, Any]]:
        """Return what was done in each minute; it is known of all names together only. Raises Forbidden."""
        if self._scope is None:
            return await self._views.stats(since, bucket_s)
        raise Forbidden(detail="the numbers of what was done are kept for all names together")

    async def events(
        self, command: c.Events, *, again: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> EventsPage:
        """Return events, as ``Views.events`` does."""
        page = await self._events(command, again=again, bytes_max=bytes_max)
        if not self._no_data:
            return page
        return page._replace(events=list(map(event_as_unseen, page.events)))

    async def _events(self, command: c.Events, *, again: bool, bytes_max: int) -> EventsPage:
        if self._scope is None:
            return await self._views.events(command, again=again, bytes_max=bytes_max)
        scope, after = self._scope, command.after
        patterns = patterns_within(command.name, scope)

        async def look(again: bool) -> EventsPage:
            nonlocal after
            page = await self._views.events_of(command, after, patterns, again=again, bytes_max=bytes_max)
            after = page.reached
            return EventsPage([row for row in page.events if _tells_of_what_is_seen(row, scope)], after)

        return await self._views.until_found(command, EVENTS, look, lambda page: page.events, again)

    # --- lists -------------------------------------------------------------------------------------------

    async def _list(self, command: Command[Any], scope: Scope) -> Answer:
        """Return a page of what is seen."""
        assert command.paging is not None
        field = command.paging[0]
        if isinstance(command, c.ListSchedules):
            rows = _rows(await self._views.list_schedules(command, scope), field)
        elif isinstance(command, c.ListRuns) and command.job_id is not None:
            rows = _rows(await self._views.list_runs(command, scope), field)
        else:
            rows = await self._put_together(command, scope)
        seen = [_without_wide_pause(row, scope) for row in rows if scope.sees(_key(row, "name"))]
        return Answer(f'{{"{field}":[{",".join(seen)}]}}')

    async def _put_together(self, command: Command[Any], scope: Scope) -> list[Row]:
        """Return a page that is put together of one for each pattern."""
        assert command.paging is not None
        field, key, _ = command.paging
        pages = []
        for pattern in patterns_within(getattr(command, "name"), scope):  # noqa: B009 - each of them has one
            asked = command.with_value("name", pattern)
            if isinstance(asked, c.ListQueues):
                asked = asked.with_value("sort", "name")  # pages are put together by it
            answer = await self._views.answer(asked)
            rows = _rows(answer, field)
            pages.append([(_key(row, key), row) for row in rows])
            if len(rows) < getattr(command, "limit") and len(answer.body) >= ANSWER_BYTES_MAX:  # noqa: B009
                pages[-1].append((pages[-1][-1][0], ""))  # it goes on behind its last row
        return _merged(pages, getattr(command, "limit"), descending=type(command) in DESCENDING)  # noqa: B009

    async def _run(self, run_id: int, scope: Scope) -> None:
        """Raise NotFound for a run that is not seen, as for one that is not there."""
        rows = (await self._views.rows("name_of_run", {"runID": run_id})).rows
        if not rows or not scope.sees(rows[0][0]):
            raise NotFound("No run with this runID", f"there is no run {run_id}")

    async def job_is_there(self, job_id: int) -> bool:
        """Tell whether there is a job that is seen."""
        if self._scope is None:
            return await self._views.job_is_there(job_id)
        return await self._sees_job(job_id, self._scope)

    async def job(self, job_id: int) -> Job | None:
        """Return a job that is seen; None where there is none."""
        found = await self._views.job(job_id)
        if found is None or not sees(self._scope, found.name):
            return None
        return job_as_unseen(found) if self._no_data else found

    async def _sees_job(self, job_id: int, scope: Scope) -> bool:
        rows = (await self._views.rows("name_of_job", {"jobID": job_id})).rows
        return bool(rows) and scope.sees(rows[0][0])

    async def query_run(self, command: c.QueryRun, scope: Scope) -> Answer:
        """Show a run that is seen."""
        await self._run(command.run_id, scope)
        return await self._views.answer(command)

    async def list_ticks(self, command: c.ListTicks, scope: Scope) -> Answer:
        """Show the ticks of a schedule that is seen."""
        if not await self._sees_job(command.job_id, scope):
            raise NotFound(detail=f"there is no job {command.job_id}")
        return await self._views.answer(command)

    async def list_children(self, command: c.ListChildren, scope: Scope) -> Answer:
        """List the children that are seen, of a parent that is."""
        if not await self._sees_job(command.job_id, scope):
            return Answer('{"jobs":[]}')
        answer: Answer = await HANDLERS[c.ListChildren](self, command)
        return answer

    async def explain(self, command: c.ExplainJob, scope: Scope) -> Answer:
        """Say what a job that is seen waits for; of others it says no more than that there are some."""
        if not await self._sees_job(command.job_id, scope):
            raise NotFound("No job with this jobID", f"there is no job {command.job_id}")
        found = jsontext.parse(await self.explainer.explain(command))
        for wait in found["waitsFor"]:
            wait["detail"] = WORDS.get(wait["reason"], wait["detail"])
        return Answer(jsontext.dump(found))

    async def list_pauses(self, _: c.ListPauses, __: Scope) -> Answer:
        """List the pauses of names that are seen; of one that covers others too, only that it is there."""
        return Answer(written(await self.standings.pauses()))

    async def overview(self, _: c.Overview, __: Scope) -> Answer:
        """Tell how things stand with the names that are seen."""
        return Answer(written(await self.standings.overview()))

    async def list_failures(self, command: c.ListFailures, _: Scope | None) -> Answer:
        """List what failed of the names that are seen: its handler reads by what it is given."""
        answer: Answer = await HANDLERS[c.ListFailures](self, command)
        return answer


_LISTS = frozenset({c.ListJobs, c.ListRuns, c.ListSchedules, c.ListQueues})

_OTHERS: dict[type[Command[Any]], Callable[[Narrowed, Any, Scope], Awaitable[Answer]]] = {
    c.QueryRun: Narrowed.query_run,
    c.ListTicks: Narrowed.list_ticks,
    c.ListChildren: Narrowed.list_children,
    c.ExplainJob: Narrowed.explain,
    c.ListPauses: Narrowed.list_pauses,
    c.Overview: Narrowed.overview,
    c.ListFailures: Narrowed.list_failures,
}


def reads_of(views: Views, caller: Caller | None) -> Views | Narrowed:
    """Return what somebody may read: all of it, where nothing is kept from them."""
    return views if caller is None or caller.grant.whole else Narrowed(views, caller)


def _rows(answer: Answer, field: str) -> list[Row]:
    return jsontext.elements(jsontext.members(answer.body)[field])


def _key(row: Row, name: str) -> Any:
    return jsontext.parse(jsontext.members(row)[name])


def _without_wide_pause(row: Row, scope: Scope) -> Row:
    """Return a row without the words of a pause that covers other names too: it is told as ``*``."""
    for member in ("paused", "pausedBy"):
        pattern = jsontext.members(row).get(member, '""')
        if pattern.startswith('"') and visible_pattern(found := jsontext.parse(pattern), scope) != found:
            return jsontext.with_members(row, {member: jsontext.quoted(WIDE)})
    return row


def _tells_of_what_is_seen(row: Sequence[Any], scope: Scope) -> bool:
    """Tell whether an event whose name is seen is about a job, a run, or a pause of nothing but such names.

    Others have names of workers or tokens.
    """
    _, _, kind, name, job_id, run_id, *_ = row
    return bool(job_id or run_id) or (kind in ("paused", "resumed") and scope.holds(name))


def _merged(pages: Sequence[list[tuple[Any, Row]]], limit: int, *, descending: bool) -> list[Row]:
    """Return the first rows of some pages by their keys, each once.

    A page that goes on has an empty row behind its last one: nothing behind that is known to come next.
    """
    found: dict[Any, Row] = {}
    ends = []
    for page in pages:
        if page and not page[-1][1]:
            ends.append(page.pop()[0])
        found.update(page)
    keys = sorted(found, reverse=descending)
    if ends:
        end = max(ends) if descending else min(ends)
        keys = [key for key in keys if (key >= end if descending else key <= end)]
    return [found[key] for key in keys[:limit]]
