"""Fair limits: jobs of equal priority are taken in turn, by key or by the first part of their names."""

from __future__ import annotations

from itertools import groupby
from random import Random
from typing import Any

import pytest

from bedrockjobs.base.config import IN_TURN_MAX
from bedrockjobs.job.limits import Limit, fair_pattern, limits_from, text_of_limits
from tests.effort import examples
from tests.runs.rig import Site


@pytest.fixture
async def fair(site: Site) -> Site:
    """Return a server on which the jobs of t/* are taken in turn."""
    await site.ok("SetLimit", name="t/*", fair=True)
    return site


async def add(site: Site, *names: str, **more: Any) -> None:
    """Create a job of each name, in this order."""
    await site.ok("CreateJobs", jobs=[{"name": name, **more} for name in names])


async def add_keys(site: Site, keys: str, name: str = "t/x", **more: Any) -> None:
    """Create a job for each letter, which is its key; ``-`` has none."""
    own = [{} if key == "-" else {"concurrencyKey": key, "concurrencyLimit": 9} for key in keys]
    await site.ok("CreateJobs", jobs=[{"name": name, **key, **more} for key in own])


async def taken(site: Site, name: str = "*", count: int = 99, **more: Any) -> list[dict[str, Any]]:
    """Take jobs that are due, each by a request of its own; they stay RUNNING."""
    found = []
    while len(found) < count and (reply := await site.ask("GetJob", name=name, **more)).code == 200:
        found.append(reply.json)
    return found


def keys_of(jobs: list[dict[str, Any]]) -> str:
    """Return the keys of jobs."""
    return "".join(job.get("concurrencyKey", "-") for job in jobs)


def names_of(jobs: list[dict[str, Any]]) -> list[str]:
    """Return the names of jobs, without their beginning."""
    return [job["name"].removeprefix("t/") for job in jobs]


@pytest.mark.parametrize("name", ["*", "t/*", "t/a,t/b,t/c"])
async def test_names_take_turns(fair: Site, name: str) -> None:
    await add(fair, *["t/a"] * 5, "t/b", "t/b", "t/c")
    assert names_of(await taken(fair, name)) == [*"abcabaaa"]


async def test_names_of_a_long_list_take_turns(fair: Site) -> None:
    names = [f"t/{number:03}" for number in range(IN_TURN_MAX + 8)]
    await add(fair, *[names[0]] * 4, *[names[-1]] * 2)
    asked = ",".join(names)
    assert sorted(names_of(await taken(fair, asked, 3))) == ["000", "000", names[-1][2:]]


async def test_without_a_fair_limit_the_oldest_comes_first(site: Site) -> None:
    await add(site, *["t/a"] * 5, "t/b", "t/b", "t/c")
    assert names_of(await taken(site)) == [*"aaaaabbc"]
    await site.ok("SetLimit", name="t/*", fair=True)
    await site.ok("RemoveLimit", name="t/*")
    await add(site, "t/a", "t/a", "t/b")
    assert names_of(await taken(site)) == [*"aab"]


@pytest.mark.parametrize("name", ["*", "t/*", "t/x"])
async def test_keys_take_turns(fair: Site, name: str) -> None:
    await add_keys(fair, "aaaaabbc")
    assert keys_of(await taken(fair, name)) == "abcabaaa"


async def test_keys_take_turns_over_names(fair: Site) -> None:
    await add_keys(fair, "aaaa", "t/x")
    await add_keys(fair, "b", "t/y")
    await add_keys(fair, "a", "t/z")
    jobs = await taken(fair)
    assert keys_of(jobs) == "abaaaa"
    assert names_of(jobs) == [*"xyxxxz"]


async def test_the_first_part_of_the_names_has_the_turn(fair: Site) -> None:
    await add(fair, "t/a/mail", "t/a/mail", "t/a/report", "t/a/report", "t/b/mail", "t/ab/mail")
    expected = ["a/mail", "ab/mail", "b/mail", "a/mail", "a/report", "a/report"]
    assert names_of(await taken(fair)) == expected


async def test_jobs_with_and_without_a_key_take_turns(fair: Site) -> None:
    await add_keys(fair, "aaaa")
    await add_keys(fair, "----", "t/y")
    await add_keys(fair, "b")
    keys = keys_of(await taken(fair))
    assert sorted(keys) == sorted("aaaab----")
    assert keys[1] == "-", "the names come after the first key"
    assert "b" in keys[:4]


async def test_priority_comes_before_turns(fair: Site) -> None:
    await add(fair, *["t/a"] * 3, "t/b")
    await add(fair, *["t/b"] * 3, "t/a", priority=1000)
    assert names_of(await taken(fair)) == [*"abbb", *"abaa"]


async def test_names_that_the_limit_does_not_cover_keep_their_order(fair: Site) -> None:
    await add(fair, "t/a", "x/1", "x/1", "t/a", "x/2", "t/b")
    assert names_of(await taken(fair)) == ["a", "x/1", "x/1", "b", "a", "x/2"]


async def test_only_what_is_due_and_wanted_has_a_turn(fair: Site) -> None:
    await add(fair, "t/a", "t/a", "t/b")
    await add(fair, "t/c", firstRun="2099-01-01 00:00:00")
    await add(fair, "t/d")
    await fair.ok("PauseJobs", name="t/d")
    assert names_of(await taken(fair, "t/[acd]", 1)) == ["a"]
    assert names_of(await taken(fair)) == ["b", "a"]
    await fair.ok("ResumeJobs", name="t/d")
    assert names_of(await taken(fair)) == ["d"]


async def test_a_key_that_may_not_start_loses_its_turn(fair: Site) -> None:
    await fair.ok("CreateJobs", jobs=[{"name": "t/x", "lock": key} for key in "aabbc"])
    assert [job["jobID"] for job in await taken(fair)] == [1, 3, 5]
    await fair.ok("FinishJob", jobID=1)
    assert [job["jobID"] for job in await taken(fair)] == [2]


async def test_what_is_triggered_by_hand_comes_first(fair: Site) -> None:
    await fair.ok("PauseJobs", name="t/c")
    await add(fair, "t/a", "t/a", "t/b", "t/c")
    await taken(fair, count=1)
    await fair.ok("TriggerJob", jobID=4)
    assert [job["jobID"] for job in await taken(fair)] == [3, 2, 4]


async def test_waiters_get_jobs_in_turn(fair: Site) -> None:
    await add_keys(fair, "aaaa")
    await add_keys(fair, "b")
    jobs = (await fair.ok("GetJobs", name="t/*", numResults=3, worker="w"))["jobs"]
    assert keys_of(jobs) == "aba"


@pytest.mark.parametrize("more", [0, 1, 3 * IN_TURN_MAX])
async def test_very_many_names_without_due_jobs_cost_at_most_their_turns(fair: Site, more: int) -> None:
    """The first job in order is taken if none is found among as many as one take looks at."""
    for number in range(more):
        await add(fair, f"t/m{number:03}", firstRun="2099-01-01 00:00:00")
    await add(fair, "t/a", "t/a", "t/a", "t/a", "t/a", "t/a", "t/z")
    names = names_of(await taken(fair))
    assert sorted(names) == [*"aaaaaaz"]
    assert names.index("z") <= 2 + more // IN_TURN_MAX


@pytest.mark.parametrize("by", ["key", "name"])
async def test_no_key_and_no_name_waits_longer_than_a_round(fair: Site, by: str) -> None:
    """Whichever of many has the only job: each other one is served at most once before."""
    many = 2 * IN_TURN_MAX + 3
    for each in range(many):
        own = {"concurrencyKey": f"k{each:03}", "concurrencyLimit": 9} if by == "key" else {}
        count = 2 if each % 20 else 1
        name = "t/x" if by == "key" else f"t/k{each:03}"
        await fair.ok("CreateJobs", jobs=[{"name": name, **own}] * count)
    jobs = await taken(fair, count=2 * many)
    order = [job.get("concurrencyKey") or job["name"].removeprefix("t/") for job in jobs]
    assert order[:many] == sorted(set(order))
    assert len(order[many:]) == len(set(order[many:])) == many - 4


@pytest.mark.parametrize("seed", range(examples(3, night=200)))
async def test_of_two_that_wait_none_is_served_twice_before_the_other(fair: Site, seed: int) -> None:
    """In random histories of creates and takes; keys take turns with keys, and names with names."""
    random = Random(seed)
    waiting: dict[str, int] = {}
    served: dict[tuple[str, str], int] = {}
    """How often the second one was served while the first one waited."""
    for _ in range(60):
        if random.random() < 0.5:
            for each in random.choices("abcd", k=random.choice((1, 1, 9))):
                if random.random() < 0.5:
                    await add_keys(fair, each, random.choice(("t/x", "t/y")))
                    waiting[f"key {each}"] = waiting.get(f"key {each}", 0) + 1
                else:
                    await add(fair, f"t/{each}/{random.choice('mn')}")
                    waiting[f"name {each}"] = waiting.get(f"name {each}", 0) + 1
        for job in await taken(fair, random.choice(("*", "t/*")), random.randrange(6)):
            key = job.get("concurrencyKey")
            now = f"key {key}" if key else f"name {job['name'].split('/')[1]}"
            kind = now.partition(" ")[0]
            waiting[now] -= 1
            for other in waiting:
                if other != now and waiting[other] and other.startswith(kind):
                    served[other, now] = served.get((other, now), 0) + 1
                    assert served[other, now] <= 1, (other, now)
            served = {pair: count for pair, count in served.items() if pair[0] != now}
            await fair.ok("FinishJob", jobID=job["jobID"])


async def test_a_key_of_very_many_jobs_delays_another_by_one(fair: Site) -> None:
    await add_keys(fair, "a" * 500)
    await taken(fair, count=3)
    await add_keys(fair, "b")
    assert "b" in keys_of(await taken(fair, count=2))


async def test_the_longest_fair_pattern_applies(fair: Site) -> None:
    limits = [Limit(name, 0, 0, 0, "", "", fair=True) for name in ("*", "t/*", "t/a/*")]
    limits.append(Limit("t/a/b/*", 5, 0, 0, "", ""))
    names = ["x", "t/b", "t/a/b/c"]
    assert [fair_pattern(name, limits) for name in names] == ["*", "t/*", "t/a/*"]
    assert fair_pattern("x", limits[1:]) is None
    assert limits_from(text_of_limits(limits)) == tuple(limits)
    assert len(text_of_limits(limits[3:])) < len(text_of_limits(limits[:1]))


async def test_it_is_shown_and_survives_a_restart(fair: Site) -> None:
    (limit,) = (await fair.ok("ListLimits"))["limits"]
    assert limit["fair"]
    assert await fair.refused("SetLimit", name="u/*", fair=False) == (402, "Missing limit")
    await add_keys(fair, "aaab")
    await fair.restart()
    assert keys_of(await taken(fair, count=2)) == "ab"


async def test_an_explanation_names_the_turns(fair: Site) -> None:
    await add(fair, "t/a", "t/a", "t/b")
    waits = (await fair.ok("ExplainJob", jobID=2))["waitsFor"]
    text = "1 job of its name before it; the keys and names of t/* take turns"
    assert {"reason": "ahead", "detail": text} in waits


async def test_a_fair_limit_may_have_others(fair: Site) -> None:
    await fair.ok("SetLimit", name="t/*", running=2, perKey=True, fair=True)
    await fair.ok("CreateJobs", jobs=[{"name": "t/x", "concurrencyKey": key} for key in "aaaab"])
    keys = keys_of(await taken(fair))
    assert keys == "aba"
    assert [len([*same]) for _, same in groupby(keys)] == [1, 1, 1]
