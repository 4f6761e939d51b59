"""Rules and their messages: which events are sent to whom, after the commit, and retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bedrockjobs.commands.rules import RULES_MAX
from bedrockjobs.engine.events import HoldChanged
from bedrockjobs.engine.outage import Health
from bedrockjobs.job.delivery import FIRST_PAUSE_S, GIVE_UP_S, LONGEST_PAUSE_S
from tests.protocol.talk import DEADLINE_S
from tests.runs.conftest import Open
from tests.runs.restored import restored
from tests.runs.rig import Site


class Receiver:
    """Takes what is posted to it, or refuses it."""

    def __init__(self) -> None:
        """Take all."""
        self.status = 200
        self._came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.url = ""

    async def post(self, request: web.Request) -> web.Response:
        """Take a message."""
        self._came.put_nowait({"headers": dict(request.headers), **await request.json()})
        return web.Response(status=self.status)

    async def next(self) -> dict[str, Any]:
        """Return the next message that comes."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._came.get()

    @property
    def waiting(self) -> int:
        """Return how many have come that nobody asked for yet."""
        return self._came.qsize()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/", found.post)
    async with TestServer(app) as server:
        found.url = str(server.make_url("/"))
        yield found


async def failed(site: Site, name: str, error: str = "no disk") -> None:
    """Let a job of a name fail for good."""
    await site.create(name)
    await site.fail(await site.take(name), error=error)


async def rule_of(site: Site, **expected: Any) -> dict[str, Any]:
    """Wait until the first rule is as expected; return it."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            rule: dict[str, Any] = (await site.ok("ListRules"))["rules"][0]
            if all(rule[key] == value for key, value in expected.items()):
                return rule
            await asyncio.sleep(0)


def kinds(message: dict[str, Any]) -> list[tuple[str, str]]:
    """Return kind and name of each event that a message tells."""
    return [(event["kind"], event["name"]) for event in message["data"]["events"]]


async def test_a_failure_and_its_recovery_are_told(site: Site, receiver: Receiver) -> None:
    await failed(site, "backup/before")
    rule = {"name": "r", "on": ["failed", "recovered"], "names": ["backup/*"], "to": receiver.url}
    await site.ok("PutRule", **rule)
    await site.create("backup/a", repeat="CRON * * * * *")
    await failed(site, "other")
    await site.later(60)
    job = await site.take("backup/a")
    await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=["looking", "no disk"])
    await site.fail(job, error="no disk", exitCode=3)
    message = await receiver.next()
    assert (message["type"], message["subject"]) == ("bedrockjobs.failed", "backup/a failed")
    assert kinds(message) == [("failed", "backup/a")], "not what was before the rule, nor other names"
    (event,) = message["data"]["events"]
    assert (event["detail"], event["run"]["exitCode"]) == ("no disk", 3)
    assert event["run"]["output"] == ["looking", "no disk"]
    assert "| no disk" in message["data"]["text"]
    await site.later(60)
    await site.finish(await site.take("backup/a"))
    message = await receiver.next()
    assert (message["type"], message["subject"]) == ("bedrockjobs.recovered", "backup/a has recovered")
    assert (await rule_of(site, sent=2))["tries"] == 0


async def test_a_rule_without_data_sends_no_output(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", noData=True, to=receiver.url)
    await site.create("a")
    job = await site.leased("a")
    await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=["SECRET"])
    await site.fail(job, error="Exit status 1\nSECRET")
    shown = await site.ok("TestRule", name="r")
    message = await receiver.next()
    assert "SECRET" not in str(message) + str(shown)
    assert message["data"]["events"][0]["detail"] == "Exit status 1"
    assert (await rule_of(site))["noData"] is True


async def test_a_rule_may_be_about_jobs_with_a_tag(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", tags="night,money", to=receiver.url)
    for name, tags in (("a", ""), ("b", "day"), ("c", "day,money")):
        await site.create(name, tags=tags)
        await site.fail(await site.take(name), error="no disk")
    assert kinds(await receiver.next()) == [("failed", "c")]
    assert receiver.waiting == 0
    assert (await rule_of(site))["tags"] == ["night", "money"]


async def test_a_job_that_is_gone_had_its_tags(site: Site, receiver: Receiver) -> None:
    """One that failed and then ended well is over and gone: its run says which tags it had."""
    await site.ok("PutRule", name="r", on="recovered", tags="money", to=receiver.url)
    for name in ("a", "b"):
        job = await site.create(name, tags="money" if name == "b" else "day")
        await site.fail(await site.take(name), error="no disk")
        await site.ok("RetryJob", jobID=job, revive=True)
        await site.finish(await site.take(name))
        assert await site.refused("QueryJob", jobID=job) == (404, "No job with this jobID")
    assert kinds(await receiver.next()) == [("recovered", "b")]
    assert receiver.waiting == 0


async def test_whom_a_message_did_not_reach_is_a_problem_until_one_reaches_all(site: Site) -> None:
    await site.ok("PutRule", name="r", on="clock set", to="mailto:a@example.com")
    for error, problems in (("the mail server refused b", 1), (None, 0)):
        await failed(site, "a")
        (*_, event) = await site.events("failed")
        given = {"name": "r", "sender": "one", "upTo": event["seq"]}
        await site.ok("ClaimMessage", **given)
        told = {} if error is None else {"error": error, "partly": True}
        await site.ok("ReportDelivery", events=1, **given, **told)
        assert (await rule_of(site, cursor=event["seq"]))["missed"] == (error or "")
        found = [one for one in (await site.ok("Overview"))["problems"] if one["kind"] == "messages"]
        assert len(found) == problems
        if error:
            assert found[0]["detail"] == "the last message of the rule r did not reach all recipients"
    assert (await rule_of(site))["sent"] == 2


async def test_what_was_not_taken_is_tried_again_and_is_the_same_message(
    site: Site, receiver: Receiver
) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    receiver.status = 500
    await failed(site, "a")
    first = await receiver.next()
    rule = await rule_of(site, tries=1)
    assert (rule["sent"], rule["lastError"]) == (0, "answered 500")
    problems = (await site.ok("Overview"))["problems"]
    assert [one["detail"] for one in problems if one["kind"] == "messages"] == [
        "the rule r has failed to send its messages since 2026-11-21 03:29:56"
    ]
    await failed(site, "b")
    receiver.status = 204
    await site.later(FIRST_PAUSE_S)
    site.server.service.messenger.check_rules()
    second, third = await receiver.next(), await receiver.next()
    assert second["headers"]["Idempotency-Key"] == first["headers"]["Idempotency-Key"]
    assert kinds(second) == kinds(first) == [("failed", "a")]
    assert second["data"]["repeated"], "it may be a duplicate"
    assert kinds(third) == [("failed", "b")], "in order"
    assert (await rule_of(site, sent=2))["lastError"] == ""


async def test_a_message_is_given_up_after_a_day(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    receiver.status = 500
    await failed(site, "a")
    await rule_of(site, tries=1)
    await site.later(GIVE_UP_S)
    site.server.service.messenger.check_rules()
    rule = await rule_of(site, lost=1)
    assert (rule["tries"], rule["sent"]) == (0, 0)
    (event,) = await site.events("message lost")
    assert (event["name"], event["detail"]) == ("r", "1 events; ListRules has the reason")
    assert GIVE_UP_S > LONGEST_PAUSE_S


async def test_a_receiver_that_does_not_answer_keeps_nobody_else(site: Site, receiver: Receiver) -> None:
    """Its own messages wait; those of other rules go, one after the other."""
    silent = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silence, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for name, to in (("a", url), ("b", receiver.url), ("c", url)):
            await site.ok("PutRule", name=name, on="failed", to=to)
        for name in ("x", "y", "z"):
            await failed(site, name)
            assert kinds(await receiver.next()) == [("failed", name)]
        assert silent.is_set()
        sent = {rule["name"]: rule["sent"] for rule in (await site.ok("ListRules"))["rules"]}
        assert (sent["a"], sent["c"]) == (0, 0)


async def test_what_happens_together_is_one_message(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url, groupFor="5m")
    await failed(site, "a")
    assert kinds(await receiver.next()) == [("failed", "a")], "the first comes at once"
    await rule_of(site, sent=1)
    for name in "bcd":
        await failed(site, name)
    await site.later(299)
    site.server.service.messenger.check_rules()
    await site.settle()
    assert receiver.waiting == 0
    await site.later(1)
    site.server.service.messenger.check_rules()
    message = await receiver.next()
    assert (message["subject"], message["type"]) == ("b failed, and 2 more", "bedrockjobs.failed")
    assert kinds(message) == [("failed", "b"), ("failed", "c"), ("failed", "d")]


async def test_nothing_comes_in_quiet_hours_and_all_of_it_afterwards(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url, quiet="22:00-06:00 Europe/Berlin")
    await failed(site, "a")  # at half past four in Berlin
    await failed(site, "b")
    await site.settle()
    assert receiver.waiting == 0
    await site.until_time("2026-11-21 05:00:00")
    site.server.service.messenger.check_rules()
    assert kinds(await receiver.next()) == [("failed", "a"), ("failed", "b")]


async def test_what_happens_while_it_is_muted_is_counted_and_never_told(
    site: Site, receiver: Receiver
) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    await site.ok("MuteRule", name="r", until="2026-11-21 08:00:00")
    await failed(site, "a")
    await rule_of(site, dropped=1)
    await site.ok("MuteRule", name="r")
    await failed(site, "b")
    assert kinds(await receiver.next()) == [("failed", "b")]


async def group_of(site: Site, kind: str = "jobs") -> str:
    """Return the fingerprint of the only group of failures."""
    (group,) = (await site.ok("ListFailures"))[kind]
    return str(group["fingerprint"])


async def test_muted_failures_are_counted_and_not_told_until_the_mute_ends(
    site: Site, receiver: Receiver
) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    await failed(site, "a")
    await receiver.next()
    fingerprint = await group_of(site)
    await site.ok("MuteFailures", fingerprint=fingerprint, name="a*", until="1h")
    await failed(site, "a")
    await failed(site, "ab")
    await rule_of(site, sent=1, dropped=2)
    await failed(site, "a")
    await failed(site, "a", "another cause")
    assert kinds(await receiver.next()) == [("failed", "a")]
    await failed(site, "b")
    assert kinds(await receiver.next()) == [("failed", "b")], "the mute is of other names"
    await rule_of(site, sent=3, dropped=3)
    await site.ok("MuteFailures", fingerprint=fingerprint, name="a*", undo=True)
    await failed(site, "a")
    assert kinds(await receiver.next()) == [("failed", "a")]
    await site.ok("MuteFailures", fingerprint=fingerprint, until="1h")
    await failed(site, "a")
    await rule_of(site, sent=4, dropped=4)
    await site.later(3_600)
    await failed(site, "a")
    assert kinds(await receiver.next()) == [("failed", "a")], "its time is over"
    assert receiver.waiting == 0


async def test_a_muted_failure_is_told_in_a_new_release(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    await site.ok("Heartbeat", worker="w", version="1")
    await failed(site, "a")
    await receiver.next()
    await site.ok("MuteFailures", fingerprint=await group_of(site))
    await failed(site, "a")
    await rule_of(site, dropped=1)
    await site.ok("Heartbeat", worker="new", version="2")
    await site.create("a")
    await site.fail(await site.take("a", "new"), error="no disk")
    assert kinds(await receiver.next()) == [("failed", "a")]


async def test_every_kind_of_a_muted_failure_is_silent(site: Site, receiver: Receiver) -> None:
    """Also of jobs that are tried again, that take too long, and of one without a run."""

    async def all_of_them() -> None:
        await site.create("again", retries=1, backoff=0)
        for _ in range(2):
            await site.fail(await site.take("again"), error="no disk")
        await site.create("unnamed")
        await site.fail(await site.take("unnamed", None), error="no disk")
        slow = await site.create("slow", runTimeout="10s", grace="1s", onLost="fail")
        await site.leased("slow")
        for _ in range(3):  # TERM, KILL, and the end without the worker
            await site.later(60)
        assert await site.state(slow) == "FAILED"
        gone = await site.create("gone", onLost="fail")
        await site.leased("gone")
        await site.silence(60)
        assert await site.state(gone) == "FAILED"

    kinds_of = ["failed", "retried", "timeout", "lost"]
    await all_of_them()
    groups = await site.ok("ListFailures")
    for group in (*groups["jobs"], *groups["runs"]):
        await site.ok("MuteFailures", fingerprint=group["fingerprint"], until="1d")
    await site.ok("PutRule", name="r", on=",".join(kinds_of), to=receiver.url)
    await all_of_them()
    told = await site.events(*kinds_of)
    assert {event["kind"] for event in told} == set(kinds_of)
    await rule_of(site, dropped=len(told) // 2)
    await failed(site, "end", "another cause")
    assert kinds(await receiver.next()) == [("failed", "end")]
    assert receiver.waiting == 0


async def test_a_failure_that_was_only_marked_as_seen_is_told(site: Site, receiver: Receiver) -> None:
    """Also if it failed in the same second: only a mute keeps messages back, and only of later failures."""
    await site.ok("PutRule", name="r", on="failed", to=receiver.url, quiet="22:00-06:00 Europe/Berlin")
    await failed(site, "a")
    job = (await site.ok("ListJobs"))["jobs"][0]["jobID"]
    (run,) = await site.runs()
    await site.ok("MarkSeen", jobIDs=job, runIDs=run["runID"])
    await failed(site, "b")
    await site.ok("MuteFailures", fingerprint=await group_of(site), until="1d")
    await site.later(1)
    await failed(site, "c")
    await site.until_time("2026-11-21 05:00:00")
    site.server.service.messenger.check_rules()
    assert kinds(await receiver.next()) == [("failed", "a"), ("failed", "b")]
    await rule_of(site, dropped=1)


async def test_very_many_muted_failures_are_passed_over_for_good(
    site: Site, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In slices, and the next server does not read them again."""
    monkeypatch.setattr("bedrockjobs.notify.dispatcher.EVENTS_READ", 3)
    await failed(site, "a")
    await site.ok("MuteFailures", fingerprint=await group_of(site), until="1d")
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    for _ in range(10):
        await failed(site, "a")
    (*_, last) = await site.events("failed")
    assert (await rule_of(site, dropped=10))["cursor"] >= last["seq"]
    await site.restart()
    await failed(site, "b", "another cause")
    assert kinds(await receiver.next()) == [("failed", "b")]
    assert (await rule_of(site, sent=1))["dropped"] == 10


async def test_a_server_that_looked_before_it_was_muted_begins_no_message(site: Site) -> None:
    await site.ok("PutRule", name="r", on="clock set", to="mailto:a@example.com")
    await failed(site, "a")
    (event,) = await site.events("failed")
    await site.ok("MuteRule", name="r", until="2026-11-21 08:00:00")
    claim = {"name": "r", "sender": "one", "upTo": event["seq"]}
    assert await site.refused("ClaimMessage", **claim) == (405, "Rule is muted")
    await site.ok("MuteRule", name="r")
    await site.ok("ClaimMessage", **claim)


async def test_what_happens_after_a_mute_is_told_though_the_server_looked_before(site: Site) -> None:
    await site.ok("PutRule", name="r", on="clock set", to="mailto:a@example.com")
    await failed(site, "a")
    (event,) = await site.events("failed")
    told = {"name": "r", "sender": "one", "upTo": event["seq"], "events": 1, "muted": True}
    assert await site.refused("ReportDelivery", **told) == (405, "Rule is not muted")
    await site.ok("MuteRule", name="r", until="2026-11-21 08:00:00")
    await site.ok("ReportDelivery", **told)


async def test_what_was_not_sent_before_the_server_ended_is_sent_by_the_next(
    open_site: Open, receiver: Receiver
) -> None:
    site = await open_site()
    await site.ok("PutRule", name="r", on="failed", to="${BEDROCKJOBS_NOTIFY_NOWHERE}")
    await failed(site, "a")
    rule = await rule_of(site, tries=1)
    assert rule["lastError"].startswith("neither BEDROCKJOBS_NOTIFY_NOWHERE nor")
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    assert kinds(await receiver.next()) == [("failed", "a")], "a rule that is replaced goes on where it was"
    receiver.status = 500
    await failed(site, "b")
    await receiver.next()
    await rule_of(site, tries=1)
    receiver.status = 200
    await site.restart(down=600)
    message = await receiver.next()
    assert kinds(message) == [("failed", "b")]
    assert message["data"]["repeated"]


async def test_a_message_is_claimed_by_one_server(site: Site) -> None:
    await site.server.service.messenger.close()  # this server would claim it too
    await site.ok("PutRule", name="r", on="clock set", to="mailto:a@example.com")
    await failed(site, "a")
    (event,) = await site.events("failed")
    claim = {"name": "r", "upTo": event["seq"]}
    await site.ok("ClaimMessage", sender="one", **claim)
    claimed = (405, "Message is claimed")
    assert await site.refused("ClaimMessage", sender="two", **claim) == claimed
    assert await site.refused("ReportDelivery", sender="two", events=1, **claim) == claimed
    for events in (0, 1):  # of a message whose events were deleted, or of a rule that was muted
        answer = await site.refused("ReportDelivery", sender="two", events=events, muted=True, **claim)
        assert answer == claimed
    await site.later(61)
    await site.ok("ClaimMessage", sender="two", **claim)
    assert await site.refused("ReportDelivery", sender="one", events=1, **claim) == claimed
    await site.ok("ReportDelivery", sender="two", events=1, **claim)
    assert await site.refused("ReportDelivery", sender="two", events=1, **claim) == claimed
    assert await site.refused("ClaimMessage", sender="one", **claim) == claimed, "it was sent"
    assert (await rule_of(site))["cursor"] == event["seq"]


async def test_a_test_shows_a_message_and_sends_it(site: Site, receiver: Receiver) -> None:
    await site.ok("PutRule", name="r", on="failed", names="backup/*", to=receiver.url)
    shown = await site.ok("TestRule", name="r")
    assert (shown["subject"], shown["sent"]) == ("Test: backup/example failed", False)
    await site.ok("TestRule", name="r", send=True)
    assert (await receiver.next())["data"]["test"]
    receiver.status = 404
    assert await site.refused("TestRule", name="r", send=True) == (405, "Message was not sent")
    assert await site.refused("TestRule", name="x") == (404, "No such rule")
    assert (await rule_of(site))["sent"] == 0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"on": ""}, "Malformed on"),
        ({"to": "ftp://x"}, "Malformed to"),
        ({"to": "mailto:nobody"}, "Malformed to"),
        ({"to": "${HOME}"}, "Malformed to"),
        ({"quiet": "22-7"}, "Malformed quiet"),
        ({"quiet": "22:00-07:00 Mars/Base"}, "Malformed quiet"),
        ({"secret": "in the clear"}, "Malformed secret"),
        ({"name": "a b"}, "Malformed name"),
    ],
)
async def test_what_is_no_rule_is_refused(site: Site, given: dict[str, str], reason: str) -> None:
    whole = {"name": "r", "on": "failed", "to": "mailto:a@example.com", **given}
    assert await site.refused("PutRule", **whole) == (402, reason)


async def test_there_are_so_many_rules(site: Site) -> None:
    assert RULES_MAX == 100
    for number in range(RULES_MAX):
        await site.ok("PutRule", name=f"r{number}", on="clock set", to="mailto:a@example.com")
    more = {"on": "clock set", "to": "mailto:a@example.com"}
    assert await site.refused("PutRule", name="more", **more) == (429, "Too many rules")
    await site.ok("PutRule", name="r7", **more)
    await site.ok("RemoveRule", name="r7")
    await site.ok("PutRule", name="more", **more)
    assert await site.refused("RemoveRule", name="r7") == (404, "No such rule")
    assert await site.refused("MuteRule", name="r7") == (404, "No such rule")
    assert json.dumps(await site.ok("ListRules", limit=1)).count('"name"') == 1


async def test_what_was_not_sent_before_a_restore_waits_for_its_release(
    site: Site, receiver: Receiver
) -> None:
    await site.ok("PutRule", name="r", on="failed", to=receiver.url)
    receiver.status = 500
    await failed(site, "a")
    await receiver.next()
    await rule_of(site, tries=1)
    receiver.status = 200
    await restored(site, down=600)
    looked: list[str] = []
    messenger = site.server.service.messenger
    find = messenger.rules

    async def seen() -> Any:
        found = await find()
        looked.append(site.server.service.hold)
        return found

    messenger.rules = seen  # type: ignore[method-assign]
    async with asyncio.timeout(DEADLINE_S):
        while len(looked) < 2:
            messenger.check_rules()
            await site.rest()
    assert all(looked), "it is held from its first look on"
    assert (receiver.waiting, (await rule_of(site))["sent"]) == (0, 0)
    await site.ok("ReleaseHold")
    assert kinds(await receiver.next()) == [("failed", "a")]


async def test_nothing_is_sent_before_it_is_known_whether_it_is_held(site: Site) -> None:
    health = Health(site.server._engine, site.clock)
    assert health.hold is None
    site.server.dispatcher.health.hold = None
    assert site.server.service.hold
    health.event_handlers()[HoldChanged](HoldChanged(None))
    assert health.hold == ""
