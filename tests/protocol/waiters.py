"""GetJobs that wait, for tests."""

from __future__ import annotations

from typing import Any

from tests.conftest import Live
from tests.protocol.talk import Talk, post, request

LONG_MS = 60_000


async def wait_for(live: Live, name: str, timeout: int = LONG_MS, **more: Any) -> Talk:
    """Let one more GetJob wait; return its connection."""
    before = live.server.dispatcher.waiting
    talk = await live.connect()
    talk.send(request("GetJob", name=name, Connection="wait", timeout=timeout, **more))
    await live.waiting(before + 1)
    return talk


async def http_wait_for(live: Live, **body: Any) -> Talk:
    """Let one more GetJob wait over HTTP; return its connection."""
    before = live.server.dispatcher.waiting
    talk = await live.connect()
    talk.send(post("GetJob", {"connection": "wait", "timeout": LONG_MS, **body}))
    await live.waiting(before + 1)
    return talk
