"""Clients with a token: over HTTP, and on raw connections."""

from __future__ import annotations

from typing import Any

from tests.conftest import Live
from tests.protocol.talk import Reply


class Bearer:
    """Somebody with a token, or without one, who talks to a server."""

    def __init__(self, live: Live, token: str = "") -> None:
        """Talk to ``live``."""
        self.live, self.token = live, token

    @property
    def headers(self) -> dict[str, str]:
        """Return what is sent of the token over HTTP."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    async def http(self, command: str, /, **body: Any) -> Reply:
        """Send a command over HTTP."""
        return await self.live.http(command, body, **self.headers)

    async def get(self, path: str, **headers: str) -> Reply:
        """Ask for a page."""
        lines = [f"GET {path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        return await self.live.answered("http", ("\r\n".join([*lines, "", ""])).encode())

    async def raw(self, command: str, /, **parameters: Any) -> Reply:
        """Send a command over a raw connection, with a header."""
        return await self.live.ask(command, **parameters, **self.headers)

    async def ok(self, command: str, /, **body: Any) -> Any:
        """Do a command that must be done; return its answer."""
        reply = await self.http(command, **body)
        assert reply.code == 200, reply
        return reply.json

    async def token_for(self, name: str, roles: str, names: str = "", **more: Any) -> Bearer:
        """Make a token; return who has it."""
        given = await self.ok("CreateToken", name=name, roles=roles, names=names, **more)
        return Bearer(self.live, given["token"])


async def admin_of(live: Live) -> Bearer:
    """Make the first token of a server, by the raw protocol as there may be a proxy; return who has it."""
    made = await Bearer(live).raw("CreateToken", name="root", roles="admin")
    assert made.code == 200, made
    return Bearer(live, made.json["token"])
