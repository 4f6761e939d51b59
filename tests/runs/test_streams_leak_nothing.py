"""Every stream against every role and name scope: of what a token may not see, nothing comes on any."""

from __future__ import annotations

import asyncio

import pytest

from bedrockjobs.base.principal import roles_held
from bedrockjobs.commands import ALL
from bedrockjobs.job.delivery import GIVE_UP_S
from tests.effort import crossed
from tests.protocol.talk import DEADLINE_S, Talk
from tests.runs.bearer import Bearer
from tests.runs.rig import Site
from tests.runs.test_nothing_leaks import asked_by, bodies, paths_of, words_of
from tests.runs.two_kinds import ROLES, SECRET, Place, place_of


async def streamed(who: Bearer, path: str, until: str) -> str:
    """Return what comes on a stream up to some words."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
    lines += [f"{name}: {value}" for name, value in who.headers.items()]
    async with await Talk.open(who.live.port) as talk:
        talk.send("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(DEADLINE_S):
            return (await talk.reader.readuntil(until.encode())).decode()


@pytest.mark.parametrize("names", ["", "mine/*"])
@pytest.mark.parametrize("role", ROLES)
async def test_no_stream_tells_of_other_names(place: Place, role: str, names: str) -> None:
    """Neither of what was before it began, nor of what happens while it is read; with all names it does."""
    asker = await place.root.token_for("asker", role, names)
    reads = "read" in roles_held(role)
    last = "the last of all"
    streams = {
        "/events?after=0": last if reads else "403",
        f"/runs/{place.mine['run']}/output": "line open" if reads else "403",
        f"/runs/{place.theirs['run']}/output": "403" if not reads else "404" if names else f"line {SECRET}",
    }
    reading = {path: asyncio.ensure_future(streamed(asker, path, words)) for path, words in streams.items()}
    for who, word in (("theirs", SECRET), ("mine", "open")):
        numbers = place.theirs if who == "theirs" else place.mine
        await place.root.ok("FailJob", jobID=numbers["running"], error=f"error {word} {last}")
    for path, came in reading.items():
        assert (SECRET in await came) == (
            reads and not names and path != f"/runs/{place.mine['run']}/output"
        ), path


LEAKED = "hunter2"
SENDER = {"sender": "me", "upTo": 1_000_000_000}


async def delivery_errors(site: Site) -> Place:
    """Make rules whose messages fail, reach only some, or are lost, all with LEAKED in the reason."""
    place = await place_of(site)
    for name in ("fails", "partly", "lost"):
        to = f"https://hooks.example/{LEAKED}"
        await place.root.ok("PutRule", name=name, on="damaged", to=to)
    ends = [("lost", {}), ("fails", {}), ("partly", {"partly": True})]
    for at, (name, more) in enumerate([("lost", {}), *ends]):
        await place.root.ok("ClaimMessage", name=name, **SENDER)
        error = f"answered 500: {LEAKED}"
        await place.root.ok("ReportDelivery", name=name, **SENDER, events=1, error=error, **more)
        if at == 0:
            site.advance(GIVE_UP_S)
    return place


@pytest.mark.parametrize(("names", "role"), crossed(["", "mine/*"], [*ROLES, "read,produce,work"]))
async def test_no_look_but_an_admin_s_shows_why_a_message_was_not_sent(
    site: Site, role: str, names: str
) -> None:
    """Every command and page, over each protocol, and the streams; the control is an admin."""
    place = await delivery_errors(site)
    root, asker = place.root, await place.root.token_for("asker", role, names)
    asked = [
        (kind, body)
        for kind in ALL
        if kind.reads or kind.role in ("read", "admin")
        for body in bodies(kind, place.theirs, "*")
    ]
    for (kind, body), way in crossed(asked, ["http", "raw", "get"]):
        reply = await asked_by(asker, way, kind, body)
        assert LEAKED not in words_of(reply), (kind, body, way)
    paths = {path for _, path in paths_of(place, place.theirs)} | {"/ui/notifications", "/ui/"}
    for path, accept in crossed(sorted(paths), ["text/html", "application/json"]):
        assert LEAKED not in words_of(await asker.get(path, Accept=accept)), path
    if "read" in roles_held(role):
        last = "the last of all"
        reading = asyncio.ensure_future(streamed(asker, "/events?after=0", last))
        await root.ok("FailJob", jobID=place.mine["running"], error=last)
        came = await reading
        assert LEAKED not in came
        assert ("message lost" in came) == (not names)
    shown = (await root.ok("ListRules"))["rules"]
    assert sum(LEAKED in rule["lastError"] for rule in shown) >= 2, "an admin sees it"
    assert LEAKED in (await root.get("/ui/notifications", Accept="text/html")).body
