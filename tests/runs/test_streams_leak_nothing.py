"""Every stream against every role and name scope: of what a token may not see, nothing comes on any."""

from __future__ import annotations

import asyncio

import pytest

from bedrockjobs.base.principal import roles_held
from tests.protocol.talk import DEADLINE_S, Talk
from tests.runs.bearer import Bearer
from tests.runs.two_kinds import ROLES, SECRET, Place


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
