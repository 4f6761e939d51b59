"""``bedrockjobs ping``: a sign of life of the server, or one for it of a schedule that is done here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import click

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.cli.lookup import schedule_names
from bedrockjobs.cli.output import printable, write_one
from bedrockjobs.cli.session import INTERRUPTED, Session, built, pass_session, talks
from bedrockjobs.client.address import UnixAddress, addresses_of
from bedrockjobs.commands import GetPingSecret, Ping, PingSchedule
from bedrockjobs.commands.control import PING_OUTPUT_CHARS_MAX

READ_BYTES = 65_536

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""What a shell answers for a command that is not there, or that is no program."""


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=schedule_names)
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--start", is_flag=True, help="Say that it has begun.")
@click.option("--fail", is_flag=True, help="Say that it has failed.")
@talks
@pass_session
def ping(session: Session, /, name: str | None, command: tuple[str, ...], start: bool, fail: bool) -> None:
    """Ask the server for a sign of life; or give one for the schedule NAME, which expects pings.

    With a COMMAND it says that it begins, runs it, and says how it ended and what it printed; its output
    goes on to stdout, and its exit status is this one's. Where the server does not answer, COMMAND is run
    all the same. Without one it says that it has ended well.
    """
    if name is None:
        if start or fail:
            raise click.UsageError("give the name of a schedule")
        _ask_for_life(session)
        return
    if command:
        if start or fail:
            raise click.UsageError("give a COMMAND, or --start or --fail")
        click.get_current_context().exit(_wrapped(session, name, command))
    if start and fail:
        raise click.UsageError("give --start or --fail, not both")
    event = "start" if start else "fail" if fail else "success"
    reply = session.record(built(PingSchedule, {"name": name, "event": event, "host": _host()}))
    words = {"start": "has begun", "success": "has ended well", "fail": "has failed"}[event]
    write_one(reply, session.form, f"Run {reply['runID']} of {printable(name)} {words}.")


def _ask_for_life(session: Session) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    session.tries = 1  # whoever asks for a sign of life wants to know about this moment
    session.ask(Ping())
    took_ms = round((clock.monotonic() - begun) * 1000, 1)
    sentence = f"{session.answering} answered in {took_ms} ms."
    write_one({"server": session.answering, "ms": took_ms}, session.form, sentence)


def _host() -> str:
    return socket.gethostname()[:255]


def _tell(session: Session, name: str, **said: object) -> None:
    """Send a ping; where that fails, say so and go on: the command matters more."""
    try:
        session.ask(built(PingSchedule, {"name": name, "host": _host(), **said}))
    except click.ClickException as error:
        click.echo(f"bedrockjobs ping: {name} is not told: {printable(error.format_message())}", err=True)


def _wrapped(session: Session, name: str, command: tuple[str, ...]) -> int:
    """Run a command between two pings; return its exit status."""
    _tell(session, name, event="start")
    try:
        status, output = _run(command)
    except KeyboardInterrupt:
        _tell(session, name, event="fail", exitCode=INTERRUPTED)
        raise
    tail = output.decode(errors="replace").replace("\0", "\ufffd")[-PING_OUTPUT_CHARS_MAX:]
    _tell(session, name, event="fail" if status else "success", exitCode=status, output=tail)
    return status


def _run(command: tuple[str, ...]) -> tuple[int, bytes]:
    """Return the exit status of a command, 128 and the signal where one ended it, and its last output."""
    kept = bytearray()
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603  the caller's own
    except OSError as error:
        click.echo(f"bedrockjobs ping: {command[0]}: {error.strerror}", err=True)
        words = f"{command[0]}: {error.strerror}".encode()
        return (NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE), words
    with process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), READ_BYTES):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            kept += piece
            del kept[: -4 * PING_OUTPUT_CHARS_MAX]
    code = process.returncode
    return (code if code >= 0 else 128 - code), bytes(kept)


@click.command("ping-url")
@click.argument("name", metavar="NAME", shell_complete=schedule_names)
@talks
@pass_session
def ping_url(session: Session, /, name: str) -> None:
    """Print where a machine without a token pings a schedule; whoever has the address can ping it.

    `curl -X POST URL` ends a run well; URL/start begins one, URL/fail and URL/<exit status> end it.
    """
    reply = session.record(built(GetPingSecret, {"name": name}))
    path = reply["path"].strip('"')
    write_one(reply, session.form, f"{_server_url(session)}{path}")


def _server_url(session: Session) -> str:
    """Return the server that was named, the first of several, as the beginning of a URL."""
    address = addresses_of(session.server)[0]
    if isinstance(address, UnixAddress):
        return "http://localhost"
    return str(address) if address.tls else f"http://{address}"
