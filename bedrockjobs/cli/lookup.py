"""Finds records on the server: pages of lists, jobs by jobID or name, names for completion, long polling.

Shell completion must not hang or print: if the server is away or slow, nothing is completed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.glob import literal
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli import session as session_module
from bedrockjobs.cli.output import Record, text_of
from bedrockjobs.cli.session import NOT_FOUND, REFUSED, UNAVAILABLE, Failure, Session, built, records_in
from bedrockjobs.commands import Command, ListJobs, ListRuns, ListSchedules, ListWorkers


def paged(
    session: Session,
    command_class: type[Command[Any]],
    parameters: Mapping[str, Any],
    limit: int,
    *,
    fits: Callable[[Record], bool] | None = None,
    until: Callable[[Record], bool] | None = None,
    hint: bool = True,
) -> list[Record]:
    """Return up to ``limit`` rows of a list; with ``hint``, say on stderr how to get more, if any.

    Rows for which ``fits`` returns False are skipped. The first row for which ``until`` returns True ends the
    list.
    """
    paging = command_class.paging
    assert paging is not None
    page_max = next(
        bound.le for bound in command_class.model_fields["limit"].metadata if hasattr(bound, "le")
    )
    parameters = dict(parameters)
    shown: list[Record] = []
    while len(shown) < limit:
        page = page_max if fits else min(limit - len(shown), page_max)
        reply = session.reply(command_class, {**parameters, "limit": page})
        records = records_in(reply[paging.rows])
        for at, record in enumerate(records, 1):
            if until is not None and until(record):
                return shown
            if fits is None or fits(record):
                shown.append(record)
            if len(shown) == limit and at < len(records):
                break
        else:
            if len(records) < page:
                return shown
        parameters[paging.cursor] = records[-1][paging.key]
    if hint:
        click.echo(f"There may be more: --{paging.cursor} {shown[-1][paging.key]}", err=True)
    return shown


NAMESAKES_SHOWN = 5
"""Maximum number of jobIDs that are listed if several jobs have the same name."""

_NUMBER = re.compile(r"\s*[-+]?\d*\s*")
"""Matches a text that is meant as a jobID, even if it is not valid: the command class validates it."""


def is_number(text: str) -> bool:
    """Return whether a text is meant as a jobID: a number, or empty."""
    return _NUMBER.fullmatch(text) is not None


def job_id_of(session: Session, id_or_name: str, *, first: bool = False) -> str:
    """Return the jobID of a job that is given by its jobID or by its name.

    A number is always a jobID. Raises Failure if no job has the name, or if several jobs have it; with
    ``first``, the first queued job of these is chosen instead.
    """
    if is_number(id_or_name):
        return id_or_name
    query = built(ListJobs, {"name": literal(id_or_name), "limit": NAMESAKES_SHOWN + 1})
    job_ids = [text_of(job, "jobID") for job in records_in(session.record(query)["jobs"])]
    if not job_ids:
        raise Failure(f"there is no job {id_or_name!r}; `bedrockjobs job list` shows them", NOT_FOUND)
    if len(job_ids) > 1 and first:
        queued = session.rows(ListJobs, {"name": literal(id_or_name), "state": "QUEUED", "limit": 1})
        return text_of(queued[0], "jobID") if queued else job_ids[0]
    if len(job_ids) > 1:
        several = ", ".join(job_ids[:NAMESAKES_SHOWN]) + (", ..." if len(job_ids) > NAMESAKES_SHOWN else "")
        raise Failure(f"several jobs are named {id_or_name!r}: give one of the jobIDs {several}", REFUSED)
    return job_ids[0]


TIMEOUT_S = 0.7
"""Maximum seconds for which completion waits for the server: people notice longer waits after TAB."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _answered(ctx: click.Context, command: Command[Any]) -> str:
    """Return the body of the server's answer; empty if there was no answer in time."""
    session = ctx.find_object(Session) or Session()
    bodies: list[str] = []

    def ask() -> None:
        # An error here must not disturb the user's command line.
        try:
            with session_module.connect(session.server, 1, session.files) as client:
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


def _completer(command_class: type[Command[Any]], list_key: str, key: str, about: str = "") -> Completer:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        parameters: dict[str, Any] = {}
        if "limit" in command_class.model_fields:
            parameters["limit"] = 200  # maximum number of records to collect names from
        if key == "name" and "name" in command_class.model_fields:
            parameters["name"] = f"{literal(incomplete)}*"
        candidates: dict[str, str] = {}
        for record in _records(ctx, built(command_class, parameters), list_key):
            candidates.setdefault(text_of(record, key), text_of(record, about) if about else "")
        return [
            CompletionItem(name, help=described or None)
            for name, described in candidates.items()
            if name.startswith(incomplete)
        ]

    return complete


job_names = _completer(ListJobs, "jobs", "name")
schedule_names = _completer(ListSchedules, "schedules", "name", "words")
run_ids = _completer(ListRuns, "runs", "runID", "name")
worker_names = _completer(ListWorkers, "workers", "name", "status")


WAIT_MS = 30_000
"""Milliseconds for which one polling request waits: less than the idle timeout of most proxies and
firewalls."""

EARLY_EMPTY_MAX = 30
"""Maximum number of empty answers in a row that came early; after that, the server counts as unavailable."""

PAUSE_S = 1.0
"""Seconds to sleep after an empty answer that came early."""


class Pace:
    """The pace at which a command polls the server for output or events that it follows."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._requests = 0.0
        self._early_empty = 0

    def next_parameters(self) -> dict[str, object]:
        """Return the parameters of the next polling request."""
        self._requests = self._clock.monotonic()
        return {"connection": "wait", "timeout": WAIT_MS}

    def answered(self, *, something: bool) -> None:
        """Note an answer; sleep if it was empty and came early, and raise Failure after too many of these."""
        # An empty answer that arrives sooner means that the server did not wait.
        if something or self._clock.monotonic() - self._requests >= 1.0:
            self._early_empty = 0
            return
        self._early_empty += 1
        if self._early_empty >= EARLY_EMPTY_MAX:
            raise Failure("the server does not wait", UNAVAILABLE)
        time.sleep(PAUSE_S)
