"""Failures marked as seen: no longer counted, and new again when they fail again."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from bedrockjobs.base.config import FINGERPRINT_CHARS_MAX, SEEN_AT_ONCE_MAX, SEEN_MAX
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.store import records
from bedrockjobs.views.failures import GROUPS_SHOWN, LISTED_OF_GROUP
from tests.runs.bearer import Bearer
from tests.runs.rig import Site
from tests.unit.cli_fake import run


async def failed(site: Site, name: str = "a", error: str = "it broke", **more: Any) -> tuple[int, int]:
    """Let a job fail for good; return its jobID and the runID."""
    job_id = await site.create(name, **more)
    job = await site.take(name)
    await site.fail(job, error=error)
    return job_id, job["runID"]


async def fail_anew(site: Site, job_id: int, name: str = "a") -> int:
    """Revive a job and let it fail once more; return the runID."""
    await site.ok("RetryJob", jobID=job_id, revive=True)
    job = await site.take(name)
    await site.fail(job, error="it broke")
    return int(job["runID"])


async def unseen(site: Site) -> int:
    return int((await site.ok("Overview"))["unseen"])


async def problems(site: Site) -> list[str]:
    return [problem["detail"] for problem in (await site.ok("Overview"))["problems"]]


async def groups(site: Site, **given: Any) -> dict[str, list[tuple[str, str, int, list[int]]]]:
    """Return what ListFailures lists: state, line, how many are new, and the numbers."""
    found = await site.ok("ListFailures", **given)
    return {
        kind: [
            (group["name"], group["line"], group["unseen"], [one["id"] for one in group["failures"]])
            for group in found[kind]
        ]
        for kind in ("jobs", "runs")
    }


async def test_what_failed_alike_stands_together_the_new_first(site: Site) -> None:
    first, run = await failed(site)
    second, _ = await failed(site)
    other, _ = await failed(site, "b", "exit status 1\nno space")
    found = await groups(site)
    assert found["jobs"] == [("b", "no space", 1, [other]), ("a", "it broke", 2, [second, first])]
    assert found["runs"] == [], "a run that made its job FAILED counts with its job"
    assert await site.ok("MarkSeen", jobIDs=[other], by="ann") == {"jobs": 1, "runs": 0}
    assert [name for name, *_ in (await groups(site))["jobs"]] == ["a", "b"]
    assert (await groups(site, name="b"))["jobs"] == [("b", "no space", 0, [other])]
    (group,) = (await site.ok("ListFailures", name="b"))["jobs"]
    assert (group["failures"][0]["seenBy"], group["failures"][0]["seen"]) == ("ann", site.now[:19])
    await site.ok("RetryJob", jobID=first, revive=True)
    assert await groups(site, name="a") == {
        "jobs": [("a", "it broke", 1, [second])],
        "runs": [("a", "it broke", 1, [run])],
    }
    await site.ok("MarkSeen", runIDs=[run])
    assert (await groups(site, name="a"))["runs"] == [("a", "it broke", 0, [run])]


async def test_the_overview_counts_what_nobody_has_seen(site: Site) -> None:
    first, _ = await failed(site)
    second, _ = await failed(site)
    assert "2 jobs have failed" in await problems(site)
    await site.ok("MarkSeen", jobIDs=[first])
    assert "1 job has failed" in await problems(site)
    await site.ok("MarkSeen", jobIDs=[first, second])
    assert not [words for words in await problems(site) if "failed" in words]
    found = await site.ok("Overview")
    assert (found["failed"], found["unseen"]) == (2, 0)
    await site.ok("MarkSeen", jobIDs=[first], seen=False)
    assert await unseen(site) == 1


async def test_it_comes_back_when_it_fails_anew(site: Site) -> None:
    job_id, run = await failed(site)
    await site.ok("MarkSeen", jobIDs=[job_id])
    await site.restart()
    assert await unseen(site) == 0
    await fail_anew(site, job_id)
    assert await unseen(site) == 1
    assert await groups(site) == {
        "jobs": [("a", "it broke", 1, [job_id])],
        "runs": [("a", "it broke", 0, [run])],  # it was seen with its job
    }


async def test_a_schedule_whose_run_was_seen_is_no_problem_until_it_fails_anew(site: Site) -> None:
    job_id = await site.create("night", repeat="CRON * * * * *")
    await site.ok("TriggerJob", jobID=job_id)
    job = await site.take("night")
    await site.fail(job, error="x")
    assert "the last run of night failed" in await problems(site)
    await site.ok("MarkSeen", runIDs=[job["runID"]])
    assert not [words for words in await problems(site) if "last run" in words]
    await site.later(60)
    await site.fail(await site.take("night"), error="x")
    assert "the last run of night failed" in await problems(site)


async def test_a_schedule_that_was_mended_and_breaks_again_is_new(site: Site) -> None:
    job_id = await site.create("zone", repeat="CRON @daily")
    await site.change(
        f"UPDATE jobs SET state = 'FAILED', memory = '{{\"broken\":true}}' WHERE jobID = {job_id}"
    )
    await site.known()
    assert await site.ok("MarkSeen", jobIDs=[job_id]) == {"jobs": 1, "runs": 0}
    await site.ok("UpdateJob", jobID=job_id, repeat="CRON @hourly")
    assert await site.select("SELECT number FROM seen") == []


async def test_only_what_has_failed_is_marked_and_the_first_who_saw_it_counts(site: Site) -> None:
    queued = await site.create("q")
    job_id, run = await failed(site)
    answer = await site.ok("MarkSeen", jobIDs=[queued, job_id, 99], runIDs=[run, 99], by="ann")
    assert answer == {"jobs": 1, "runs": 1}
    await site.ok("MarkSeen", jobIDs=[job_id], by="bob")
    rows = await site.select('SELECT kind, number, "by" FROM seen ORDER BY kind')
    assert [tuple(row.values()) for row in rows] == [("job", job_id, "ann"), ("run", run, "ann")]


async def test_what_is_refused(site: Site) -> None:
    long = "f" * (FINGERPRINT_CHARS_MAX + 1)
    assert (await site.refused("ListFailures", fingerprint=long))[0] == 402
    assert await site.ok("MarkSeen") == {"jobs": 0, "runs": 0}
    many = list(range(1, SEEN_AT_ONCE_MAX + 2))
    assert await site.refused("MarkSeen", jobIDs=many) == (402, "Malformed jobIDs")


async def test_of_very_many_the_oldest_count_as_new_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SEEN_MAX == 10_000
    monkeypatch.setattr(records, "SEEN_MAX", 2)
    jobs = [(await failed(site))[0] for _ in range(3)]
    for job_id in jobs:
        await site.ok("MarkSeen", jobIDs=[job_id])
    rows = await site.select("SELECT number FROM seen WHERE kind = 'job' ORDER BY number")
    assert [row["number"] for row in rows] == jobs[1:]


async def test_a_schedule_that_somebody_has_killed_waits_for_nobody(site: Site) -> None:
    """What was killed is among no failures, so nobody could mark it as seen."""
    await site.create("nightly", repeat="CRON * * * * *", retries=0)
    for word, runs in (("KillRun", []), ("TerminateRun", []), ("", ["nightly"])):
        await site.later(60)
        job = await site.leased("nightly")
        if word:
            await site.ok(word, runID=job["runID"])
        await site.fail(job, error="it broke")
        assert [name for name, *_ in (await groups(site))["runs"]] == runs, word
        failing = [words for words in await problems(site) if "last run" in words]
        assert bool(failing) == bool(runs), (word, failing)


TRACEBACK = """Traceback (most recent call last):
  File "/srv/release-{number}/shop/orders.py", line {number}, in charge
    raise LookupError(number)
LookupError: order {number} of '{number}@example.com' is not in /var/spool/{number}/orders
"""


async def all_groups(site: Site, **given: Any) -> dict[str, list[dict[str, Any]]]:
    """Return all groups, page by page; of one group the failures of all pages are put together."""
    found: dict[str, list[dict[str, Any]]] = {"jobs": [], "runs": []}
    for kind, cursor in (("jobs", "before"), ("runs", "runsBefore")):
        before = 0
        while before is not None:
            page = await site.ok("ListFailures", **given, **{cursor: before})
            found[kind] += page[kind]
            before = page[cursor]
    return found


async def test_counts_are_those_of_all_failures_and_all_are_in_reach(site: Site) -> None:
    specs = [{"name": f"n{number % 3}"} for number in range(230)]
    jobs = (await site.ok("CreateJobs", jobs=specs))["jobIDs"]
    taken = (await site.ok("GetJobs", name="n*", numResults=230, worker="w"))["jobs"]
    assert [job["jobID"] for job in taken] == jobs
    for number, job in enumerate(taken):
        await site.fail(job, error=TRACEBACK.format(number=number))
    for error in ("exit status 1\ncannot connect", "no room left"):
        await failed(site, "other", error)
    (mail,) = (await site.ok("ListFailures", name="n*"))["jobs"]
    assert (mail["count"], mail["names"], mail["unseen"]) == (230, 3, 230)
    assert mail["line"] == "LookupError: order 229 of '229@example.com' is not in /var/spool/229/orders"
    assert [one["id"] for one in mail["failures"]] == jobs[:-21:-1]
    assert (mail["first"], mail["last"]) == (site.now[:19], mail["failures"][0]["at"])
    pages = (await all_groups(site, fingerprint=mail["fingerprint"]))["jobs"]
    assert [one["id"] for page in pages for one in page["failures"]] == jobs[::-1]
    assert {page["count"] for page in pages} == {230}
    assert [one["count"] for one in (await all_groups(site, name="n1"))["jobs"]] == [77]
    await site.ok("MarkSeen", jobIDs=jobs[:50])
    assert [group["unseen"] for group in (await all_groups(site))["jobs"]] == [1, 1, 180]
    found = await site.ok("Overview")
    assert (found["failed"], found["unseen"]) == (232, 182)


async def test_as_many_groups_as_there_are_causes_are_in_reach(site: Site) -> None:
    words = [f"{first}{second} broke" for first in "abcdefgh" for second in "ijklmnopq"]
    for word in words:
        await failed(site, "a", word)
    assert len((await site.ok("ListFailures"))["jobs"]) == GROUPS_SHOWN < len(words)
    found = (await all_groups(site))["jobs"]
    assert [group["line"] for group in found] == words[::-1]


ALIKE = [
    ("order 17 not found", "order 18 not found"),
    ("no such file: '/srv/a'", "no such file: '/srv/b/c'"),
    ("cannot read /srv/r1/app/x.csv: gone", "cannot read /srv/r2/app/y.csv: gone"),
    ("no row 0f8fad5b-d9cb-469f-a165-70867728950e", "no row 7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("object at 0x7f3a is gone", "object at 0x81b2c is gone"),
    ("commit deadbeef1 is missing", "commit 1234abcd is missing"),
    ("GET https://a.example/x?y=1 failed", "GET https://b.example/ failed"),
    ("exit status 1\nstarting 4\nno disk 4", "exit status 1\nno disk 5"),
    (TRACEBACK.format(number=1), TRACEBACK.format(number=2)),
    ("exit status 1\n" + TRACEBACK.format(number=1), "exit status 1\nhello\n" + TRACEBACK.format(number=2)),
    ("Run lost: worker a was silent for 45 s", "Run lost: worker b c was silent for 60 s"),
]
DIFFERENT = [
    ("no disk", "no room"),
    ("exit status 1", "exit status 2"),
    ("ValueError: x", "TypeError: x"),
    ("SIGKILL\nworking", "exit status 1\nworking"),
    ("timed out after 5 s (SIGTERM)\nworking", "exit status 1\nworking"),
    (TRACEBACK.format(number=1), TRACEBACK.format(number=1).replace("in charge", "in refund")),
    (TRACEBACK.format(number=1), TRACEBACK.format(number=1).replace("LookupError", "ValueError")),
]


async def test_errors_are_alike_but_for_what_is_data(site: Site) -> None:
    """Each pair is sent by two workers; what differs in a number, a path or a quoted text is one group."""
    for pairs, expected in ((ALIKE, 1), (DIFFERENT, 2)):
        for one, other in pairs:
            jobs = [(await failed(site, "pair", error))[0] for error in (one, other)]
            found = (await site.ok("ListFailures", name="pair"))["jobs"]
            assert len(found) == expected, (one, other, found)
            assert sum(group["count"] for group in found) == 2
            for job_id in jobs:
                await site.ok("DeleteJob", jobID=job_id)


async def test_every_way_to_fail_is_grouped_and_counts_once(site: Site) -> None:
    """Failed tries, timeouts, lost runs, broken schedules, clients without a name: each is in one group."""
    tried = await site.create("tried", retries=1, backoff=0)
    for _ in range(2):
        await site.later(5)
        await site.fail(await site.take("tried"), error="it broke")
    assert await groups(site) == {
        "jobs": [("tried", "it broke", 1, [tried])],
        "runs": [("tried", "it broke", 1, [1])],
    }
    nameless = await site.create("nameless")
    job = await site.take("nameless", None)
    await site.ok("FailJob", jobID=job["jobID"], error="it broke")
    (group,) = (await site.ok("ListFailures"))["jobs"]
    assert (group["count"], group["names"]) == (2, 2)
    assert [one["id"] for one in group["failures"]] == [nameless, tried]
    await site.create("night", repeat="CRON * * * * *")
    await site.later(60)
    await site.fail(await site.take("night"), error="it broke")
    (runs,) = (await site.ok("ListFailures"))["runs"]
    assert (runs["count"], runs["names"]) == (2, 2)
    await site.create("slow", onLost="fail")
    await site.leased("slow")
    await site.silence(46)
    (lost,) = (await site.ok("ListFailures", name="slow"))["jobs"]
    assert lost["line"].startswith("Run lost: ")
    assert lost["count"] == 1
    for row in await site.select("SELECT status, fingerprint FROM runs"):
        assert len(row["fingerprint"]) == (16 if row["status"] in FAILED_STATUSES else 0), row
    for row in await site.select("SELECT state, fingerprint FROM jobs"):
        assert len(row["fingerprint"]) == (16 if row["state"] == "FAILED" else 0), row


async def test_a_long_error_keeps_its_end_which_says_what_was_wrong(site: Site) -> None:
    head, _, tail = TRACEBACK.format(number=1).partition("\n")
    long = "\n".join([head, *['  File "/srv/a.py", line 1, in f'] * 2_000, *tail.splitlines()])
    await failed(site, "long", long)
    (group,) = (await site.ok("ListFailures", name="long"))["jobs"]
    assert group["line"].startswith("LookupError: order 1 of ")
    assert group["failures"][0]["error"].rstrip().endswith(group["line"])


async def test_totals_of_thousands_are_true_wherever_they_are_told(site: Site) -> None:
    first, _ = await failed(site, "order", TRACEBACK.format(number=1))
    for error in ("no disk", "no room"):
        await failed(site, "other", error)
    columns = "created, state, name, nextRun, lastRun, priority, attempt, options, memory, fingerprint"
    await site.change(
        f"INSERT INTO jobs (jobID, {columns}) WITH RECURSIVE numbers (n) AS"
        " (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 5099)"
        f" SELECT jobID + 1000 + n, {columns} FROM jobs CROSS JOIN numbers WHERE jobID = {first}"
    )
    await site.rest()
    found = (await site.ok("ListFailures"))["jobs"]
    assert [(group["count"], group["unseen"], len(group["failures"])) for group in found] == [
        (5_100, 5_100, LISTED_OF_GROUP),
        (1, 1, 1),
        (1, 1, 1),
    ]
    overview = await site.ok("Overview")
    assert (overview["failed"], overview["unseen"]) == (5_102, 5_102)
    page = re.sub(r"<[^>]*>", "", (await Bearer(site).get("/ui/failures")).body)
    assert set(re.findall(r"[\d,]+ jobs?\b", page)) == {"5,100 jobs", "1 job"}
    told = await asyncio.to_thread(run, "failure", "list", "--server", f"127.0.0.1:{site.port}", "-o", "json")
    assert told.exit_code == 0, told.output
    assert [group["count"] for group in json.loads(told.stdout)] == [5_100, 1, 1]
