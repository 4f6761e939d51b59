"""A scoped view equals the view of a database without the other names: rows, pages, counts.

Two databases are compared: one with all rows, read with a scope, and one with only the rows in scope.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.vocabulary import CLOCK_SET
from bedrockjobs.commands import Command, ListChildren, ListJobs, ListRuns, ListSchedules, OverviewReply
from bedrockjobs.job.limits import AT_LIMIT
from bedrockjobs.job.rows import PauseRow
from bedrockjobs.store import schema
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.views import Views, find, queues, render, states
from bedrockjobs.views.states import Families
from tests.effort import crossed
from tests.views.table import AT, Table

NAMES = ("a", "a/b", "a/b/c", "a/x", "b", "b/a", "mail/1", "mail/12", "mail/2", "x/a")
SCOPES = (["a*"], ["a/*", "b"], ["a/*", "a/b*", "*/a"], ["mail/?", "mail/1*"], ["none"], ["*"], ["[am]*"])
PARENT = 1
COUNT = 400

Open = Callable[[str, Scope | None], Awaitable[Table]]


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[Open]:
    """Return a function that fills a database with the rows of a scope or with all rows."""
    opened: list[Table] = []

    async def start(label: str, only: Scope | None) -> Table:
        path, settings = tmp_path / f"{label}.db", Settings()
        db = sqlite3.connect(path, isolation_level=None)
        schema.apply(db)
        db.close()
        reader = SQLiteReader(path, settings)
        await reader.open()
        table = Table(path, reader, settings)
        opened.append(table)
        fill(table, only)
        return table

    yield start
    for table in opened:
        await table.reader.close()
        table.db.close()


def fill(table: Table, only: Scope | None) -> None:
    """Write random rows: only those in the scope, or all."""
    dice = Random(7)
    table.db.execute("BEGIN")
    for number in range(1, COUNT):
        name = dice.choice(NAMES)
        state = dice.choice(("QUEUED", "QUEUED", "FAILED", "PAUSED"))
        more: dict[str, Any] = {"repeat": "CRON 0 9 * * *"} if number % 5 == 0 else {}
        if number > PARENT and number % 3 == 0:
            more["parentJobID"] = PARENT
        due = f"2026-11-2{dice.randrange(1, 3)} 0{dice.randrange(10)}:00:00"
        status = dice.choice(("success", "fail", "running", "timeout"))
        if render.in_scope(only, name):
            table.job(number, name=name, state=state, **{**more, "nextRun": due})
            table.run(number, name=name, jobID=number, status=status)
            table.event(number, name=name, jobID=number)
    table.db.execute("COMMIT")


async def walked(page: Callable[..., Awaitable[Any]], rows: str, **asked: Any) -> list[Any]:
    """Return all rows of a search, page by page."""
    found: list[Any] = []
    before = None
    for _ in range(10 * COUNT):
        part = await page(before=before, limit=7, **asked)
        found += getattr(part, rows)
        if part.ended:
            return found
        assert before is None or part.reached < before
        before = part.reached
    raise AssertionError("it goes on and on")


@pytest.mark.parametrize(("patterns", "wanted"), crossed(SCOPES, [None, "a/*", "*a", "mail/1"]))
async def test_searches_find_what_is_seen(
    filled: Open, patterns: list[str], wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "STRETCH_MIN", 20)
    scope = Scope(patterns)
    whole, left = await filled("whole", None), await filled("left", scope)
    mine, theirs = whole.views.scoped(scope).find, left.views.find
    for state in (None, "FAILED", "PAUSED"):
        asked = {"state": state, "pattern": wanted}
        assert await walked(mine.jobs, "jobs", **asked) == await walked(theirs.jobs, "jobs", **asked)
    for statuses in ((), ("fail", "timeout")):
        asked = {"statuses": statuses, "pattern": wanted}
        assert await walked(mine.runs, "runs", **asked) == await walked(theirs.runs, "runs", **asked)
    assert await walked(mine.events, "rows", pattern=wanted) == await walked(
        theirs.events, "rows", pattern=wanted
    )
    assert await mine.schedules_ahead(wanted, AT, 1_000) == await theirs.schedules_ahead(wanted, AT, 1_000)
    assert await mine.schedules_that_failed(1_000) == await theirs.schedules_that_failed(1_000)
    for typed in ("", "a", "mail/"):
        assert await mine.names(typed, 5) == await theirs.names(typed, 5)


@pytest.mark.parametrize(("patterns", "wanted"), crossed(SCOPES, [None, "a/*", "*a"]))
async def test_lists_show_what_is_seen(filled: Open, patterns: list[str], wanted: str | None) -> None:
    scope = Scope(patterns)
    whole, left = await filled("whole", None), await filled("left", scope)
    mine = whole.views.scoped(scope)
    asked: list[Command[Any]] = [ListRuns(job_id=number) for number in range(1, 30)]
    for limit, after in ((5, 0), (5, 100), (1_000, 0)):
        asked += [ListSchedules(name=wanted, limit=limit, after=after), ListJobs(name=wanted, limit=limit)]
        asked += [ListRuns(name=wanted, limit=limit, before=COUNT - after)]
    for command in asked:
        answers = [(await views.answer(command)).body for views in (mine, left.views)]
        assert answers[0] == answers[1], command


@pytest.mark.parametrize("patterns", SCOPES)
async def test_counts_are_of_what_is_seen(
    filled: Open, patterns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope(patterns)
    whole, left = await filled("whole", None), await filled("left", scope)
    mine, theirs = whole.views.scoped(scope), left.views
    assert await mine.families.counts(PARENT) == await theirs.families.counts(PARENT)
    assert await mine.families.failed(PARENT, 9) == await theirs.families.failed(PARENT, 9)
    for length in (states.CHILDREN_COUNTED, 20):
        monkeypatch.setattr(states, "CHILDREN_COUNTED", length)
        assert await children(mine.families) == await children(theirs.families)
    assert without_all(await mine.standings.overview()) == without_all(await theirs.standings.overview())
    for under in ("", "a/", "mail/"):
        folds = [await rows_of(views, under) for views in (mine, theirs)]
        assert folds[0] == folds[1]


async def children(found: Families) -> list[int]:
    """Return all children of the parent, page by page."""
    ids: list[int] = []
    after = 0
    while True:
        page = await found.children(PARENT, after, 9)
        ids += [job.job_id for job in page.jobs]
        if page.ended:
            return ids
        assert page.reached > after
        after = page.reached


@pytest.mark.parametrize("time_is_over", [False, True])
async def test_children_behind_many_of_others_are_found(
    table: Table, monkeypatch: pytest.MonkeyPatch, *, time_is_over: bool
) -> None:
    """If the time runs out, a page returns a cursor, and the next page continues there."""
    assert (states.CHILDREN_COUNTED, states.FAMILY_S) == (10_000, 0.025)
    monkeypatch.setattr(states, "CHILDREN_COUNTED", 10)
    monkeypatch.setattr(states, "FAMILY_S", 0 if time_is_over else 60)
    table.job(PARENT, name="a")
    for job_id in range(2, 100):
        state = "FAILED" if job_id % 2 else "QUEUED"
        table.job(job_id, parentJobID=PARENT, state=state, name="b" if job_id < 70 else "a")
    mine = table.views.scoped(Scope(["a"])).families
    assert await children(mine) == list(range(70, 100))
    page, counts = await mine.children(PARENT, 0, 9), await mine.counts(PARENT)
    failed = [job.job_id for job in await mine.failed(PARENT, 3)]
    if time_is_over:
        assert (page, counts, failed) == (states.Children([], {}, 11, ended=False), ({}, True), [])
    else:
        assert ([job.job_id for job in page.jobs], page.reached) == (list(range(70, 79)), 78)
        assert (counts, failed) == (({"FAILED": 15, "QUEUED": 15}, False), [71, 73, 75])
    for limit, after, wanted in ((9, 0, range(70, 79)), (1_000, 72, range(73, 100)), (5, 98, range(99, 100))):
        asked = ListChildren(job_id=PARENT, after=after, limit=limit)
        answer = await table.views.scoped(Scope(["a"])).answer(asked)
        assert [job["jobID"] for job in json.loads(answer.body)["jobs"]] == list(wanted)


def without_all(reply: OverviewReply) -> dict[str, Any]:
    """Return an overview without its figures about the whole server."""
    return reply.model_dump(exclude={"newest_event", "workers", "taking"})


async def rows_of(views: Views, under: str) -> list[tuple[Any, ...]]:
    """Return the counts of the folders of queues."""
    folds = await (views.folder.some(f"{under}*", under, 100) if under else views.folder.all(100))
    counts = ("label", "names", "running", "failed", "more", "totals", "incoming", "outgoing", "took")
    return [tuple(getattr(fold, name) for name in counts) for fold in folds.rows]


async def test_very_many_names_are_counted_as_far_as_they_are_looked_at(
    filled: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply says that there are more, without reading more rows for that."""
    monkeypatch.setattr(queues, "NAMES_MAX", 2)
    whole = await filled("whole", None)
    overview = await whole.views.scoped(Scope(["a*"])).standings.overview()
    assert {"ready", "later"} <= set(overview.more)
    assert find.NAMES_WALKED == 5_000


@pytest.mark.parametrize("patterns", SCOPES)
async def test_failures_of_others_do_not_bound_those_that_are_seen(
    filled: Open, patterns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures of other names do not count: only those with the scope's prefix are examined."""
    assert queues.SET_ASIDE_SCANNED == 50_000
    whole = await filled("whole", None)
    before = await whole.views.scoped(Scope(patterns)).standings.overview()
    monkeypatch.setattr(queues, "RUNNING_COUNTED_MAX", 1)
    after = await whole.views.scoped(Scope(patterns)).standings.overview()
    for name in ("failed", "children"):
        count = getattr(before, name)
        assert (getattr(after, name), name in after.more) == (count, False), name


def test_what_is_told_of_pauses() -> None:
    scope = Scope(["mail/*"])
    given = [PauseRow(one, "ann", "why", AT, "") for one in ("mail/1*", "m*", "other")]
    limit = PauseRow("*", AT_LIMIT, "2 of 2 run", AT, "")
    told = render.visible_pauses([*given, limit], scope)
    assert [(pause.pattern, pause.by, pause.reason) for pause in told] == [
        ("mail/1*", "ann", "why"),
        ("m*", "", ""),
        ("*", AT_LIMIT, ""),
    ]
    assert [render.visible_pattern(one, scope) for one in ("", "mail/1*", "m*")] == ["", "mail/1*", "*"]
    assert render.visible_pauses(given, None) == tuple(given)


def test_what_cannot_be_worded_is_refused() -> None:
    with pytest.raises(Forbidden, match="cannot be narrowed"):
        render.patterns_within("[ab]*", Scope(["[bc]*"]))
    assert render.prefix_of_all("mail/", Scope(["mail/a*", "mail/b"])) == "mail/"
    assert render.prefix_of_all(None, Scope(["mail/a*", "mail/ab"])) == "mail/a"
    assert render.prefix_of_all("x", None) == "x"


async def test_a_history_within_a_scope_has_the_clock_that_was_set(filled: Open) -> None:
    """And nothing else without a name: the page needs it for the order of all others."""
    table = await filled("few", Scope(["no/such"]))
    table.job(1, name="a/x")
    for number, kind, name in ((1, "paused", "a/x"), (2, CLOCK_SET, ""), (3, "server started", "")):
        table.event(number, kind, name=name, jobID=1 if name else 0, detail="from 09:00 to 08:00")
    table.event(4, "paused", name="b/x", jobID=1)
    for seen in (table.views.scoped(Scope(["a/*"]), data=data) for data in (True, False)):
        found = await seen.find.events_of(1)
        assert [(row[2], row[7]) for row in found] == [
            (CLOCK_SET, "from 09:00 to 08:00"),
            ("paused", "from 09:00 to 08:00"),
        ]
