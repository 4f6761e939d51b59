"""PauseJobs and ResumeJobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, BeforeValidator

from bedrockjobs.base.config import PAUSES_MAX, REASON_CHARS_MAX
from bedrockjobs.commands import COMMANDS
from bedrockjobs.commands.take import NamePattern, Pattern, Patterns
from tests.runs.rig import Site


async def test_jobs_whose_name_matches_are_not_handed_out(site: Site) -> None:
    for name in ("a/1", "a/2", "b"):
        await site.create(name)
    await site.ok("PauseJobs", name="a/*", by="ann", reason="a flood")
    assert (await site.take("*"))["name"] == "b"
    assert await site.nothing("*")
    assert await site.nothing("a/1", worker="w")
    assert (await site.http("GetJobs", {"name": "*", "numResults": 5})).code == 404
    assert await site.state(1) == "QUEUED"


async def test_a_waiting_worker_gets_nothing_until_it_is_resumed(site: Site) -> None:
    await site.ok("PauseJobs", name="a")
    talk = await site.asking("a")
    await site.create("a")
    assert await talk.silent()
    await site.ok("ResumeJobs", name="a")
    assert (await talk.reply()).json["name"] == "a"


async def test_thenget_gets_nothing_paused(site: Site) -> None:
    for _ in range(2):
        await site.create("a")
    job = await site.take("a")
    await site.ok("PauseJobs", name="a")
    answer = await site.ok("FinishJob", jobID=1, runID=job["runID"], thenGet="a", worker="w")
    assert answer == {"job": None}


async def test_all_if_the_name_is_left_out(site: Site) -> None:
    await site.create("a")
    await site.ok("PauseJobs")
    assert await site.nothing("*")
    assert (await site.ok("ResumeJobs"))["resumed"] == ["*"]
    assert (await site.take("*"))["name"] == "a"


async def test_a_run_in_progress_goes_on(site: Site) -> None:
    await site.create("a", repeat="FINISHED, +1 SECOND")
    job = await site.leased("a")
    await site.ok("PauseJobs", name="a")
    assert (await site.beat(job["runID"])) == {"stop": [], "quiet": False}
    await site.ok("UpdateJob", jobID=1, runID=job["runID"], data={"x": 1})
    await site.finish(job)
    await site.later(2)
    assert await site.nothing("a")


async def test_nextrun_stays(site: Site) -> None:
    await site.create("a", firstRun="2026-11-21 03:30:00")
    await site.create("s", repeat="CRON * * * * *")
    await site.ok("PauseJobs")
    await site.later(600)
    assert await site.due(1) == "2026-11-21 03:30:00"
    assert await site.due(2) == "2026-11-21 03:30:00"
    assert await site.nothing("*")


async def test_other_jobs_are_simply_due_when_resumed(site: Site) -> None:
    await site.create("a", firstRun="2026-11-21 03:30:00")
    await site.ok("PauseJobs", name="a")
    await site.later(600)
    await site.ok("ResumeJobs", name="a")
    assert (await site.take("a"))["nextRun"] == "2026-11-21 03:30:00"


async def test_overdue_ticks_are_skipped_as_paused(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *")
    await site.ok("PauseJobs", name="s")
    await site.until_time("2026-11-21 03:33:30")
    await site.ok("ResumeJobs", name="s")
    assert await site.due(1) == "2026-11-21 03:34:00"
    assert await site.ticks(1) == [("2026-11-21 03:30:00", "2026-11-21 03:33:00", 4, "skipped", "paused")]
    assert await site.nothing("s")
    await site.until_time("2026-11-21 03:34:00")
    await site.take("s")


@pytest.mark.parametrize("catchup", ["all", "skip", "once"])
async def test_whatever_catchup_says(site: Site, catchup: str) -> None:
    await site.create("s", repeat="CRON * * * * *", catchup=catchup)
    await site.ok("PauseJobs", name="s")
    await site.until_time("2026-11-21 03:31:00")
    await site.ok("ResumeJobs", name="s")
    assert await site.due(1) == "2026-11-21 03:32:00"
    assert [tick[2:] for tick in await site.ticks(1)] == [(2, "skipped", "paused")]


async def test_resume_removes_exactly_that_pattern(site: Site) -> None:
    await site.create("a/1")
    await site.ok("PauseJobs", name="a/*")
    await site.ok("PauseJobs", name="a/1")
    assert await site.refused("ResumeJobs", name="a/?") == (404, "Not paused")
    assert (await site.ok("ResumeJobs", name="a/*"))["resumed"] == ["a/*"]
    assert await site.nothing("a/1"), "the other pattern still holds it"
    assert (await site.ok("ResumeJobs", name="a/1"))["resumed"] == ["a/1"]
    assert (await site.take("*"))["name"] == "a/1"


async def test_a_name_that_a_wider_pattern_holds_is_not_resumed_alone(site: Site) -> None:
    await site.create("a")
    await site.ok("PauseJobs", name="*")
    reply = await site.http("ResumeJobs", {"name": "a"})
    assert reply.code == 404
    assert reply.json["detail"] == "name: the pattern a is not paused, but * is, which holds it"
    assert await site.nothing("a")


@pytest.mark.parametrize("given", [{}, {"name": "*"}, {"name": "***"}])
async def test_a_star_ends_the_pause_of_a_star_and_no_other(site: Site, given: dict[str, str]) -> None:
    for name in ("a", "b*", "*"):
        await site.ok("PauseJobs", name=name, by="ann")
    assert (await site.ok("ResumeJobs", **given))["resumed"] == ["*"]
    reply = await site.http("ResumeJobs", given)
    assert reply.code == 404
    assert reply.json["detail"] == "name: the pattern * is not paused, but 2 others are: all ends every pause"
    left = (await site.ok("ListPauses"))["pauses"]
    assert [pause["pattern"] for pause in left] == ["a", "b*"]


async def test_all_ends_every_pause_and_takes_no_name(site: Site) -> None:
    assert (await site.ok("ResumeJobs", all=True))["resumed"] == []
    for name in ("a", "b*", "*"):
        await site.ok("PauseJobs", name=name)
    assert await site.refused("ResumeJobs", all=True, name="a") == (402, "Malformed all")
    assert sorted((await site.ok("ResumeJobs", all=True))["resumed"]) == ["*", "a", "b*"]
    assert await site.select("SELECT * FROM pauses") == []


STAR: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "PauseJobs": ("ResumeJobs", {"reason": "star"}, {}),
    "SetLimit": ("RemoveLimit", {"queued": 7}, {}),
    "SetRetention": ("RemoveRetention", {"runs": "7d"}, {}),
    "MuteFailures": ("MuteFailures", {"fingerprint": "a"}, {"fingerprint": "a", "undo": True}),
}
"""Commands that file something under a pattern, with the one that takes it back."""

SEARCHES = {
    "GetJob": "asks for any matching job",
    "GetJobs": "asks for any matching job",
    "FinishJob": "thenGet asks for any matching job",
    "RetryJob": "thenGet asks for any matching job",
    "FailJob": "thenGet asks for any matching job",
    "FinishJobs": "thenGet asks for any matching job",
    "Heartbeat": "says which jobs a worker takes",
    "DeleteRuns": "deletes what it finds; the program and the pages show it first and ask",
    "CreateToken": "says what a token may see",
    "AllowAnonymous": "says what clients without a token may see",
    "PutRule": "says what a rule is about; a rule is removed by its name",
    "SyncRules": "the same",
    "CrashBedrockJob": "its list has a test of its own",
    "ClearCrashedBedrockJobs": "its list has a test of its own",
}
"""Commands whose patterns stand for names, with the reason."""


def metadata_of(annotation: Any) -> Iterator[Any]:
    """Yield what a type is annotated with, at any depth."""
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        yield from metadata_of(part)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for field in annotation.model_fields.values():
            yield from (*field.metadata, *metadata_of(field.annotation))
            if "GLOB" in (field.description or ""):
                yield Pattern.__metadata__[0]


def test_each_command_that_takes_a_pattern_is_walked() -> None:
    marks = (mark for kind in (Pattern, NamePattern, Patterns) for mark in kind.__metadata__)
    of_patterns = [mark for mark in marks if isinstance(mark, BeforeValidator)]
    taking = {
        name
        for name, kind in COMMANDS.items()
        if not kind.reads and any(mark in of_patterns for mark in metadata_of(kind))
    }
    assert taking == {*STAR, *(takes_back for takes_back, *_ in STAR.values()), *SEARCHES}


async def test_a_star_that_is_taken_off_the_crash_list_takes_nothing_else_with_it(site: Site) -> None:
    for name in ("a", "c"):
        await site.create(name)
    await site.ok("CrashBedrockJob", names=["a", "b*", "*"])
    await site.ok("ClearCrashedBedrockJobs", names=["*"])
    assert (await site.take("c"))["name"] == "c"
    assert await site.nothing("a")
    assert await site.state(1) == "FAILED"


@pytest.mark.parametrize("sets", STAR)
async def test_a_star_that_is_taken_back_takes_nothing_else_with_it(site: Site, sets: str) -> None:
    """A pattern under which something is filed is a name, not a search."""
    takes_back, given, back = STAR[sets]
    for name in ("a", "b*"):
        await site.ok(sets, name=name, **given)
    assert (await site.refused(takes_back, name="*", **back))[0] == 404
    await site.ok(sets, name="*", **given)
    await site.ok(takes_back, name="*", **back)
    for name in ("a", "b*"):
        await site.ok(takes_back, name=name, **back)


async def test_a_schedule_under_two_pauses_is_resumed_by_the_last(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * *")
    await site.ok("PauseJobs", name="s")
    await site.ok("PauseJobs", name="*")
    await site.until_time("2026-11-21 03:31:30")
    await site.ok("ResumeJobs", name="s")
    assert await site.due(1) == "2026-11-21 03:30:00"
    assert await site.ticks(1) == []
    await site.until_time("2026-11-21 03:33:30")
    await site.ok("ResumeJobs", name="*")
    assert await site.due(1) == "2026-11-21 03:34:00"
    assert [tick[2:] for tick in await site.ticks(1)] == [(4, "skipped", "paused")]


async def test_until(site: Site) -> None:
    await site.create("a")
    await site.create("s", repeat="CRON * * * * *")
    await site.ok("PauseJobs", name="*", until="2026-11-21 03:31:30")
    talk = await site.asking("a")
    await site.until_time("2026-11-21 03:31:29")
    assert await talk.silent()
    await site.later(1.1)
    assert (await talk.reply()).json["name"] == "a"
    assert await site.select("SELECT * FROM pauses") == []
    assert await site.due(2) == "2026-11-21 03:32:00"
    assert [tick[2:] for tick in await site.ticks(2)] == [(2, "skipped", "paused")]
    assert len(await site.events("resumed")) == 1


async def test_who_why_and_since_when(site: Site) -> None:
    await site.ok("PauseJobs", name="a*", by="ann", reason="a flood", until="2026-12-01 00:00:00")
    (row,) = await site.select("SELECT * FROM pauses")
    assert (row["pattern"], row["by"], row["reason"]) == ("a*", "ann", "a flood")
    assert (row["since"][:19], row["until"]) == ("2026-11-21 03:29:56", "2026-12-01 00:00:00")
    (event,) = await site.events("paused")
    assert (event["name"], event["by"]) == ("a*", "ann")
    assert "a flood" in event["detail"]
    await site.ok("ResumeJobs", name="a*", by="bob")
    (event,) = await site.events("resumed")
    assert (event["name"], event["by"]) == ("a*", "bob")


async def test_pausing_again_changes_the_pause(site: Site) -> None:
    await site.ok("PauseJobs", name="a", reason="one", until="2026-11-21 03:40:00")
    await site.ok("PauseJobs", name="a", reason="two")
    (row,) = await site.select("SELECT * FROM pauses")
    assert (row["reason"], row["until"]) == ("two", "")
    await site.create("a")
    await site.later(3600)
    assert await site.nothing("a")


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_pauses_survive_a_restart(site: Site, how: str) -> None:
    await site.create("a")
    await site.create("s", repeat="CRON * * * * *")
    await site.ok("PauseJobs", name="*")
    await getattr(site, how)(down=300)
    assert await site.nothing("*")
    assert await site.due(2) == "2026-11-21 03:30:00"
    await site.ok("ResumeJobs")
    assert (await site.take("*"))["name"] == "a"
    assert {tick[3:] for tick in await site.ticks(2)} == {("skipped", "paused")}


async def test_until_passes_while_the_server_is_down(site: Site) -> None:
    await site.create("a")
    await site.ok("PauseJobs", name="a", until="2026-11-21 03:31:00")
    await site.restart(down=300)
    assert (await site.take("a"))["name"] == "a"


async def test_a_rename_moves_a_job_under_and_out_of_a_pause(site: Site) -> None:
    await site.create("a")
    await site.ok("PauseJobs", name="b")
    await site.end("RetryJob", await site.take("a"), name="b")
    assert await site.nothing("*")
    await site.ok("ResumeJobs", name="b")
    await site.ok("PauseJobs", name="a")
    assert (await site.take("*"))["name"] == "b"


async def test_jobs_under_a_lock_and_with_own_commands_are_paused_too(site: Site) -> None:
    await site.create("a", lock="x")
    await site.create("a", cmd="ls")
    await site.create("a", mockRequest=True)
    await site.ok("PauseJobs", name="a")
    assert await site.nothing("*", worker="w", accepts=["cmd"], getMockedJobs=True)


async def test_limits(site: Site) -> None:
    assert (await site.refused("PauseJobs", name=""))[0] == 402
    too_long = "r" * (REASON_CHARS_MAX + 1)
    assert await site.refused("PauseJobs", name="a", reason=too_long) == (402, "Malformed reason")
    assert await site.refused("PauseJobs", name="a", until="soon") == (402, "Malformed until")
    for number in range(PAUSES_MAX):
        assert (await site.ask("PauseJobs", name=f"p{number}")).code == 200
    reply = await site.ask("PauseJobs", name="one more")
    assert reply.code in (402, 405, 429), reply
    assert (await site.ask("PauseJobs", name="p0", reason="again")).code == 200
    assert len((await site.ok("ResumeJobs", all=True))["resumed"]) == PAUSES_MAX
