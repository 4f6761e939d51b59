"""Completion of names by the shell, as far as the server tells them quickly.

A shell that completes must not hang or print: a server that is away or slow completes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli import session as sessions
from bedrockjobs.cli.output import Record, text_of
from bedrockjobs.cli.pages import literal
from bedrockjobs.cli.session import Session, built, records_in
from bedrockjobs.commands import Command, ListJobs, ListRuns, ListSchedules, ListWorkers

TIMEOUT_S = 0.7
"""Time within which the server must have answered: what a person bears after pressing TAB."""

ASKED_MAX = 200
"""Records that are looked at for names."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _answered(ctx: click.Context, command: Command[Any]) -> str:
    """Return the body of an answer, or empty where none came in time."""
    session = ctx.find_object(Session) or Session()
    bodies: list[str] = []

    def ask() -> None:
        # Whatever goes wrong here must leave the user's command line alone.
        try:
            with sessions.connect(session.server, 1, session.files) as client:
                bodies.append(client.exchange(command).body.decode())
        except (OSError, ValueError, CommandError):
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return bodies[0] if bodies else ""


def _records(ctx: click.Context, command: Command[Any], key: str) -> list[Record]:
    try:
        members = jsontext.members(_answered(ctx, command) or "{}")
        return records_in(RawJSON(members.get(key, "[]")))
    except (ValueError, IndexError):
        return []


def _completer(kind: type[Command[Any]], list_key: str, key: str, about: str = "") -> Completer:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        asked: dict[str, Any] = {}
        if "limit" in kind.model_fields:
            asked["limit"] = ASKED_MAX
        if key == "name" and "name" in kind.model_fields:
            asked["name"] = f"{literal(incomplete)}*"
        found: dict[str, str] = {}
        for record in _records(ctx, built(kind, asked), list_key):
            found.setdefault(text_of(record, key), text_of(record, about) if about else "")
        return [
            CompletionItem(name, help=words or None)
            for name, words in found.items()
            if name.startswith(incomplete)
        ]

    return complete


job_names = _completer(ListJobs, "jobs", "name")
schedule_names = _completer(ListSchedules, "schedules", "name", "words")
run_ids = _completer(ListRuns, "runs", "runID", "name")
worker_names = _completer(ListWorkers, "workers", "name", "status")
