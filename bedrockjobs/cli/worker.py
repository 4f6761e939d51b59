"""``bedrockjobs worker`` and ``server``: live workers and their draining, and the servers of a database."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, duration_text
from bedrockjobs.base.config import ANSWER_BYTES_MAX, LIST_MAX
from bedrockjobs.base.glob import literal
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli.lookup import worker_names
from bedrockjobs.cli.output import Record, number_of, text_of, write_many, write_one
from bedrockjobs.cli.parameters import Duration, SubcommandGroup
from bedrockjobs.cli.session import REFUSED, TIMED_OUT, Failure, Session, server_options
from bedrockjobs.cli.verbs import listing, takes, typed, typed_command
from bedrockjobs.commands import DrainWorker, ListServers, ListWorkers

LIST_COLUMNS = ("name", "status", "runs", "slots", "host", "pid", "names", "heartbeat", "version")

NONE = "No workers: `bedrock-worker --name NAME -- COMMAND` starts one."

POLL_S = 1.0
"""Seconds between two requests while the command waits for a worker to drain."""

_drained = takes(DrainWorker, typed("worker", "name", metavar="NAME", shell_complete=worker_names), "undo")


@click.group(cls=SubcommandGroup)
def worker() -> None:
    """List the live workers, and drain them.

    \b
    bedrockjobs worker list
    bedrockjobs worker drain cron-1 --wait --timeout 5m
    bedrockjobs worker drain cron-1 --undo
    """


def workers(session: Session, name: str | None = None) -> list[Record]:
    """Return the live workers by name: all workers, or only the worker with this name."""
    records: list[Record] = []
    while True:
        after = text_of(records[-1], "name") if records else ""
        parameters = {
            "name": None if name is None else literal(name),
            "after": after or None,
            "limit": LIST_MAX,
        }
        page = session.rows(ListWorkers, parameters)
        records += [record for record in page if name is None or text_of(record, "name") == name]
        size = sum(len(text) for record in page for text in record.values())
        if len(page) != LIST_MAX and size < ANSWER_BYTES_MAX // 2:  # not cut, by limit or size
            return records


def run_count(record: Record) -> int:
    """Return the number of runs of a worker."""
    return len(jsontext.elements(record.get("runIDs") or RawJSON("[]")))


def worker_row(record: Record) -> Record:
    """Return a worker as a table row."""
    names = jsontext.parse(record["names"]) if "names" in record else []
    return {**record, "runs": run_count(record), "names": " ".join(names)}


@worker.command("list")
@server_options
def list_workers(session: Session) -> None:
    """List the live workers by name."""
    records = workers(session)
    if session.form == "table":
        records = [worker_row(record) for record in records]
    write_many(records, session.form, LIST_COLUMNS, none=NONE, identity="name")


@worker.command()
@_drained
@takes(DrainWorker, "by")
@server_options
def quiet(session: Session, /, name: str, undo: bool, **_: Any) -> None:
    """Stop a worker from taking jobs, and return at once.

    Its runs continue. `worker drain --wait` waits for them.
    """
    session.send(typed_command(session, DrainWorker))
    outcome = "active" if undo else "quiet"
    did = "takes jobs again" if undo else "takes no more jobs"
    write_one({"name": name, "outcome": outcome}, session.form, f"Worker {name} {did}.")


@worker.command()
@_drained
@click.option("--wait", is_flag=True, help="Wait until its runs have ended.")
@click.option(
    "--timeout",
    type=Duration(),
    metavar="DURATION",
    help="With --wait: maximum time to wait; exit status 124 if it is exceeded.",
)
@takes(DrainWorker, "by")
@server_options
def drain(session: Session, /, name: str, undo: bool, wait: bool, timeout: float | None, **_: Any) -> None:
    """Drain a worker: it finishes its runs and takes no more jobs, so that it can be stopped."""
    if undo and wait:
        raise click.UsageError("--undo cannot be combined with --wait")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    session.send(typed_command(session, DrainWorker))
    if undo:
        write_one({"name": name, "outcome": "active"}, session.form, f"Worker {name} takes jobs again.")
        return
    if not wait:
        sentence = (
            f"Worker {name} takes no more jobs; `bedrockjobs worker list` shows how many runs are left."
        )
        write_one({"name": name, "outcome": "draining"}, session.form, sentence)
        return
    outcome = _until_drained(session, name, timeout)
    sentence = f"Worker {name} is drained." if outcome == "drained" else f"Worker {name} has left."
    write_one({"name": name, "outcome": outcome}, session.form, sentence)


def _until_drained(session: Session, name: str, timeout: float | None) -> str:
    clock = SystemClock()
    begun = clock.monotonic()
    with _progress(name) as show_left:
        while True:
            live = workers(session, name)
            left = sum(map(run_count, live))
            if not live:
                return "left"
            if text_of(live[0], "status") == "active":
                raise Failure(f"{name} was made active again", REFUSED)
            if not left:
                return "drained"
            show_left(left)
            spent = clock.monotonic() - begun
            if timeout is not None and spent >= timeout:
                raise Failure(f"{number_of(left, 'run')} left after {duration_text(timeout)}", TIMED_OUT)
            time.sleep(POLL_S if timeout is None else min(POLL_S, timeout - spent))


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None]]:
    """Show how many runs of a worker are left: a bar on a terminal, or else a line for each change."""
    if not sys.stderr.isatty():
        last: list[int] = []

        def say(left: int) -> None:
            if last != [left]:
                click.echo(f"{number_of(left, 'run')} left", err=True)
                last[:] = [left]

        yield say
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Draining {escape(name)}", total=None)
        most = 0

        def show(left: int) -> None:
            nonlocal most
            most = max(most, left)
            text = f"Draining {escape(name)}: {number_of(left, 'run')} left"
            bar.update(task, description=text, completed=most - left, total=most)

        yield show


@click.group(cls=SubcommandGroup)
def server() -> None:
    """List the servers that share the database."""


listing(
    server,
    ListServers,
    columns=("name", "address", "started", "pulse", "version", "workers", "state"),
    none="No servers.",
    text="List the live servers by name; an SQLite file has one.",
)
