"""Run the command line against a client that answers from a list: no server, no socket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedrockjobs.cli import main, session
from bedrockjobs.client import Response
from bedrockjobs.commands import Command, Status

Answering = Response | Exception | Callable[[Command[Any]], Response]


NOW = "2026-11-23 12:00:00"
"""What the clock of the fake shows, where nothing is prepared."""


class FakeServer:
    """A fake ``Client``: records each command and returns the next prepared reply for its verb."""

    def __init__(self) -> None:
        """Start without prepared replies: each command gets 200 without a body."""
        self.asked: list[Command[Any]] = []
        self.addresses: list[str] = []
        self.tries: list[int | None] = []
        self.files: list[dict[str, Path]] = []
        self.has_token = False
        self.closed = 0
        self._answers: dict[str, list[Answering]] = {}

    def will(self, verb: str, *answers: Answering | dict[str, Any] | str) -> None:
        """Prepare replies for a verb: errors to raise, or bodies as JSON text or as objects."""
        for answer in answers:
            if isinstance(answer, dict):
                answer = json.dumps(answer)
            self._answers.setdefault(verb, []).append(
                Response(200, "OK", {}, answer.encode()) if isinstance(answer, str) else answer
            )

    def connect(
        self, server: str, tries: int | None = None, files: Mapping[str, Path] | None = None
    ) -> FakeServer:
        """Replace ``session.connect``."""
        self.addresses.append(server)
        self.files.append(dict(files or {}))
        self.tries.append(tries)
        return self

    def exchange(self, command: Command[Any]) -> Response:
        """Replace ``Client.exchange``."""
        prepared = self._answers.get(type(command).__name__)
        if isinstance(command, Status) and not prepared:
            return Response(200, "OK", {}, json.dumps({"now": NOW}).encode())  # a table asks what time it is
        self.asked.append(command)
        answer: Answering = prepared.pop(0) if prepared else Response(200, "OK")
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Response) else answer(command)

    def __enter__(self) -> FakeServer:
        """Open the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Record that the client was closed."""
        self.closed += 1

    @property
    def wired(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the commands as they would have been sent."""
        return [(type(command).__name__, json.loads(command.wire())) for command in self.asked]


def fake_server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Replace every client of the command line by a fake."""
    fake = FakeServer()
    monkeypatch.setenv("TZ", "UTC")  # tables show local times
    time.tzset()
    monkeypatch.setattr(session, "connect", fake.connect)
    return fake


def run(*arguments: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
    """Run `bedrockjobs` with these arguments; unhandled exceptions are raised here."""
    result = CliRunner().invoke(main, arguments, input=stdin, env=env, prog_name="bedrockjobs")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def sent(server: FakeServer, verb: str) -> list[dict[str, Any]]:
    """Return the commands sent with a verb."""
    return [given for name, given in server.wired if name == verb]
