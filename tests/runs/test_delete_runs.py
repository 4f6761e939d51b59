"""DeleteRuns removes ended runs with a leaked secret and everything that contains it, and nothing else."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from bedrockjobs.base.config import (
    DELETED_TEXT_CHARS_MAX,
    RUN_BYTES_DELETED_AT_ONCE,
    RUNS_DELETED_AT_ONCE_MAX,
)
from tests.conftest import Live
from tests.engines import sqlite_only
from tests.runs.bearer import admin_of
from tests.runs.rig import Site
from tests.runs.two_kinds import Place

SECRET = "hunter2-\u00e9"
ESCAPED = json.dumps(SECRET)[1:-1]
"""The same as many programs spell it in JSON."""


async def ended(site: Site, name: str = "a", *, lines: Any = (), **end: Any) -> int:
    """Let a job run and fail; return the runID. ``data`` is what it was given."""
    await site.create(name, **({"data": end.pop("data")} if "data" in end else {}))
    job = await site.take(name, heartbeat=True)
    if lines:
        await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=list(lines))
    if "progress" in end:
        await site.ok("UpdateJob", jobID=job["jobID"], runID=job["runID"], progress=end.pop("progress"))
    await site.fail(job, **end)
    await site.ok("DeleteJob", jobID=job["jobID"])
    return int(job["runID"])


async def deleted(site: Site, **asked: Any) -> list[int]:
    """Delete runs, request by request; return their numbers."""
    found: list[int] = []
    before = None
    while True:
        reply = await site.ok("DeleteRuns", **asked, **({} if before is None else {"before": before}))
        found += [run["runID"] for run in reply["runs"]]
        assert before is None or reply["before"] is None or reply["before"] < before
        before = reply["before"]
        if before is None:
            return found


async def runs(site: Live) -> list[int]:
    return [run["runID"] for run in (await site.ask("ListRuns")).json["runs"]]


async def test_runs_are_deleted_by_number_with_their_output_and_are_told(site: Site) -> None:
    first = await ended(site, lines=["one"], error=f"no {SECRET}")
    second = await ended(site, "b")
    await site.ok("MarkSeen", runIDs=[first])
    would = await site.ok("DeleteRuns", runIDs=[first, 999], dryRun=True)
    assert [run["runID"] for run in would["runs"]] == [first]
    assert await runs(site) == [second, first], "nothing was deleted"
    reply = await site.ok("DeleteRuns", runIDs=[first, first, 999], by="ann")
    assert [(run["runID"], run["name"], run["status"]) for run in reply["runs"]] == [(first, "a", "fail")]
    assert (reply["running"], reply["before"]) == (0, None)
    assert reply["events"] >= 1, "the event of its failure had the error"
    for verb in ("QueryRun", "ReadOutput"):
        assert await site.refused(verb, runID=first) == (404, "No run with this runID")
    assert await runs(site) == [second]
    events = (await site.ok("Events", name="a"))["events"]
    assert SECRET not in json.dumps(events, ensure_ascii=False)
    told = events[-1]
    assert (told["kind"], told["by"], told["detail"]) == ("runs deleted", "ann", f"run {first}")
    assert (await site.ok("DeleteRuns", runIDs=[first]))["runs"] == [], "as often as one likes"


async def test_a_run_in_progress_is_refused_by_number_and_passed_over_by_name(site: Site) -> None:
    over = await ended(site)
    await site.create("a", data={"word": SECRET})
    job = await site.leased("a")
    reply = await site.http("DeleteRuns", {"runIDs": [over, job["runID"]]})
    assert (reply.json["code"], reply.json["reason"]) == (405, "Run is running")
    assert f"run {job['runID']}" in reply.json["detail"]
    assert await runs(site) == [job["runID"], over], "all or nothing"
    assert (await site.ok("DeleteRuns", text=SECRET))["running"] == 1
    found = await site.ok("DeleteRuns", name="a")
    assert ([run["runID"] for run in found["runs"]], found["running"]) == ([over], 1)
    await site.finish(job)
    assert await deleted(site, text=SECRET) == [job["runID"]]


PLACES: dict[str, dict[str, Any]] = {
    "data": {"data": {"deep": [{"word": SECRET}]}},
    "key of data": {"data": {SECRET: 1}},
    "error": {"error": f"Traceback:\n  {SECRET}!"},
    "result": {"data_of_end": {"x": f"is {SECRET}"}},
    "progress": {"progress": {"message": SECRET}},
    "output": {"lines": ["first", {"line": f"token={SECRET}", "stream": "err"}]},
    "output that is long": {"lines": [*["x" * 1000] * 40, SECRET, *["x" * 1000] * 40]},
}
"""Each place where a run may hold a text."""


async def in_place(site: Site, given: dict[str, Any]) -> int:
    """Let a run hold the text in a place; return its number."""
    given = dict(given)
    if "data_of_end" not in given:
        return await ended(site, "s/x", **given)
    await site.create("s/x")
    job = await site.take("s/x")
    await site.finish(job, data=given["data_of_end"])
    return int(job["runID"])


async def test_a_text_is_found_wherever_a_run_holds_it(site: Site) -> None:
    other = await ended(site, "s/x", lines=["nothing"], data={"word": "hunter"}, error="hunter2")
    made = {place: await in_place(site, given) for place, given in PLACES.items()}
    raw = await site.http("CreateJob", {"name": "s/x", "data": f'{{"word":"{ESCAPED}"}}'})
    assert raw.code == 200
    job = await site.take("s/x")
    await site.fail(job)
    made["data with escapes"] = job["runID"]
    would = await deleted(site, text=SECRET, dryRun=True)
    assert {place for place, run in made.items() if run not in would} == set()
    assert await deleted(site, text=SECRET) == sorted(made.values(), reverse=True)
    assert await runs(site) == [other]
    assert await deleted(site, text=SECRET) == []


async def test_a_text_of_several_lines_is_found_across_chunks(site: Site) -> None:
    await site.create("a")
    job = await site.take("a", heartbeat=True)
    for seq, line in enumerate(("BEGIN KEY", "abc", "END KEY"), 1):
        await site.ok("AppendOutput", runID=job["runID"], seq=seq, lines=[line])
    await site.fail(job, error="x")
    assert await deleted(site, text="BEGIN KEY\nabd") == []
    assert await deleted(site, text="abc\nEND") == [job["runID"]]


async def test_filters_are_met_together(site: Site) -> None:
    early = [await ended(site, name, error=error) for name, error in (("a/x", SECRET), ("a/y", "no"))]
    await site.later(60)
    late = [await ended(site, name, error=SECRET) for name in ("a/x", "b")]
    assert await deleted(site, name="a/*", text=SECRET, dryRun=True) == [late[0], early[0]]
    assert await deleted(site, name="a/x", dryRun=True) == [late[0], early[0]]
    assert await deleted(site, endedBefore=site.now, dryRun=True) == early[::-1]
    assert await deleted(site, runIDs=[*early, *late], name="a/x", endedBefore=site.now, dryRun=True) == [
        early[0]
    ]
    assert await deleted(site, endedBefore=site.now, name="a/*", text=SECRET) == [early[0]]
    assert await runs(site) == [late[1], late[0], early[1]]


async def test_a_request_without_a_choice_is_refused(site: Site) -> None:
    assert await site.refused("DeleteRuns") == (402, "Missing runIDs")
    assert await site.refused("DeleteRuns", dryRun=True, before=7) == (402, "Missing runIDs")
    many = list(range(1, RUNS_DELETED_AT_ONCE_MAX + 2))
    assert await site.refused("DeleteRuns", runIDs=many) == (402, "Malformed runIDs")
    assert await site.refused("DeleteRuns", text="") == (402, "Missing text")
    for text in ("x" * (DELETED_TEXT_CHARS_MAX + 1), "a\0"):
        assert await site.refused("DeleteRuns", text=text) == (402, "Malformed text")


async def test_many_and_large_runs_take_several_requests(site: Site) -> None:
    """Each of them is bounded in runs and in bytes, also those by number."""
    count = RUNS_DELETED_AT_ONCE_MAX + 5
    made = []
    for first in range(0, count, 50):
        specs = [{"name": f"n/{number}"} for number in range(first, min(first + 50, count))]
        await site.ok("CreateJobs", jobs=specs)
        taken = (await site.ok("GetJobs", name="n/*", numResults=50, worker="w"))["jobs"]
        made += [job["runID"] for job in taken]
        await site.ok("FinishJobs", jobs=[{"jobID": job["jobID"], "runID": job["runID"]} for job in taken])
    reply = await site.ok("DeleteRuns", name="n/*", dryRun=True)
    assert len(reply["runs"]) == RUNS_DELETED_AT_ONCE_MAX
    assert reply["before"] == reply["runs"][-1]["runID"]
    assert await deleted(site, name="n/*") == sorted(made, reverse=True)
    large = [await ended(site, data={"text": "x" * (RUN_BYTES_DELETED_AT_ONCE // 2 + 1)}) for _ in range(3)]
    reply = await site.ok("DeleteRuns", runIDs=large, dryRun=True)
    assert [run["runID"] for run in reply["runs"]] == [large[2], large[1]]
    assert await deleted(site, runIDs=large) == large[::-1]


async def test_others_are_served_while_runs_are_searched(site: Site) -> None:
    """A search through all events and many runs leaves its turn to others, and loses nothing of theirs."""
    for number in range(30):
        await ended(site, f"n/{number}", error=f"{SECRET} {number}")
    asked = [site.create("other"), site.ok("DeleteRuns", text=SECRET), site.ok("Ping"), site.create("other")]
    _, reply, _, _ = await asyncio.gather(*asked)
    assert len(reply["runs"]) == 30
    assert len((await site.ok("ListJobs", name="other"))["jobs"]) == 2


async def test_events_of_jobs_lose_the_text_too(site: Site) -> None:
    await site.ok("PauseJobs", name="p", reason=f"since {SECRET} leaked")
    reply = await site.ok("DeleteRuns", text=SECRET)
    assert (reply["runs"], reply["events"]) == ([], 1)
    assert SECRET not in json.dumps((await site.ok("Events"))["events"], ensure_ascii=False)


async def test_the_audit_tells_who_deleted_and_not_what_was_sought(live: Live) -> None:
    root = await admin_of(live)
    operator = await root.token_for("op", "operate")
    for more in ({}, {"dryRun": True}):
        await operator.ok("DeleteRuns", text=SECRET, **more)
    rows = [row for row in (await root.ok("ListAudit"))["entries"] if row["command"] == "DeleteRuns"]
    assert [row["by"] for row in rows] == ["op"], "a look changes nothing"
    assert SECRET not in json.dumps(rows, ensure_ascii=False)


async def test_each_token_deletes_runs_of_its_names_and_by_what_it_sees(place: Place) -> None:
    """Whoever sees some names only deletes nothing else, and leaves the events of others alone."""
    root = place.root
    await root.ok("CreateJob", name="mine/plain")
    plain = (await root.ok("GetJob", name="mine/plain", worker="w"))["runID"]
    await root.ok("FailJob", jobID=(await root.ok("QueryRun", runID=plain))["jobID"], error="SECRET")
    everything = [run["runID"] for run in (await root.ok("ListRuns"))["runs"]]
    theirs = [run["runID"] for run in (await root.ok("ListRuns", name="theirs/*"))["runs"]]
    for role in ("read", "produce", "work"):
        asker = await root.token_for(role, role)
        assert (await asker.http("DeleteRuns", name="*")).code == 403
    blind = await root.token_for("blind", "read", noData=True)
    assert (await blind.http("DeleteRuns", text="x")).code == 403, "it would tell what is not shown"
    narrow = await root.token_for("narrow", "operate", "mine/*")
    assert (await narrow.ok("DeleteRuns", runIDs=theirs))["runs"] == [], "as what does not exist"
    told = await narrow.ok("DeleteRuns", text="SECRET", dryRun=True)
    assert ([run["runID"] for run in told["runs"]], told["running"]) == ([plain], 0)
    events = [event["detail"] for event in (await root.ok("Events", name="theirs/*"))["events"]]
    await narrow.ok("DeleteRuns", name="*")
    left = [run["runID"] for run in (await root.ok("ListRuns"))["runs"]]
    assert set(theirs) <= set(left) < set(everything)
    assert plain not in left
    assert [event["detail"] for event in (await root.ok("Events", name="theirs/*"))["events"]] == events
    assert (await root.ok("DeleteRuns", name="theirs/*"))["runs"]


def bytes_of(database: str) -> bytes:
    """Return all that stands in the files of a database."""
    files = [Path(f"{database}{end}") for end in ("", "-wal")]
    return b"".join(file.read_bytes() for file in files if file.exists())


@sqlite_only("about the bytes of the file; on PostgreSQL, VACUUM removes dead rows")
async def test_nothing_of_the_text_is_left_in_the_file_or_its_log(site: Site) -> None:
    """Small and large, as data of jobs that are gone, as output that was packed since, and in events."""
    database = site.server.settings.database
    word = "hunter2hunter2"
    for number in range(20):
        size = 10 ** (number % 5)
        await ended(
            site,
            f"n/{number % 3}",
            data={"pad": "x" * size, "word": word},
            lines=[f"{word} {line}" + "y" * (size % 4_000) for line in range(10)],
            error=f"{'z' * (size % 3_000)}{word}",
            progress={"message": word, "pad": "p" * (size // 20)},
        )
        await ended(site, f"n/{number % 3}", data={"pad": "x" * size}, error="other")
    await site.settle()
    assert word.encode() in bytes_of(database)
    assert len(await deleted(site, text=word)) == 20
    assert word.encode() not in bytes_of(database)
    assert len(await runs(site)) == 20
    await ended(site, "n/1", error="it goes on")
    await site.restart()
    assert word.encode() not in bytes_of(database)
    assert len(await runs(site)) == 21


@sqlite_only("about the log of the file")
async def test_a_log_that_somebody_reads_is_emptied_by_a_later_commit(site: Site) -> None:
    database = site.server.settings.database
    run = await ended(site, error="hunter2hunter2")
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        await site.ok("DeleteRuns", runIDs=[run])
        assert b"hunter2hunter2" in bytes_of(database), "it is still being read"
        await site.create("b")
    await site.later(1.0)
    await site.create("c")
    assert b"hunter2hunter2" not in bytes_of(database)
