"""``bedrockjobs ping``: ping the server, or report a run of a schedule that is executed elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import click

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.cli.lookup import schedule_names
from bedrockjobs.cli.output import printable, write_one
from bedrockjobs.cli.session import INTERRUPTED, Session, server_options
from bedrockjobs.client.address import UnixAddress, addresses_of
from bedrockjobs.commands import GetPingSecret, Ping, PingSchedule
from bedrockjobs.commands.control import PING_OUTPUT_CHARS_MAX


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=schedule_names)
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--start", is_flag=True, help="Report that it has started.")
@click.option("--fail", is_flag=True, help="Report that it has failed.")
@server_options
def ping(session: Session, /, name: str | None, command: tuple[str, ...], start: bool, fail: bool) -> None:
    """Check that the server answers; or send a ping for the schedule NAME, which expects pings.

    With a COMMAND it pings the start, runs the command, and pings its result and output; the output also
    goes to stdout, and the exit status is that of COMMAND, which runs even if the server does not answer.
    Without COMMAND it reports a success.
    """
    if name is None:
        if start or fail:
            raise click.UsageError("give the name of a schedule")
        _check_alive(session)
        return
    if command:
        if start or fail:
            raise click.UsageError("give a COMMAND, or --start or --fail")
        click.get_current_context().exit(_wrapped(session, name, command))
    if start and fail:
        raise click.UsageError("give --start or --fail, not both")
    event = "start" if start else "fail" if fail else "success"
    reply = session.reply(PingSchedule, {"name": name, "event": event, "host": _host()})
    event_text = {"start": "has started", "success": "has succeeded", "fail": "has failed"}[event]
    write_one(reply, session.form, f"Run {reply['runID']} of {printable(name)} {event_text}.")


def _check_alive(session: Session) -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    session.tries = 1  # a retry would hide that the server does not answer now
    session.reply(Ping)
    took_ms = round((clock.monotonic() - begun) * 1000, 1)
    sentence = f"{session.answering} answered in {took_ms} ms."
    write_one({"server": session.answering, "ms": took_ms}, session.form, sentence)


def _host() -> str:
    return socket.gethostname()[:255]


def _send_ping(session: Session, name: str, **parameters: object) -> None:
    """Send a ping; if that fails, warn and continue, since running the command is more important."""
    try:
        session.reply(PingSchedule, {"name": name, "host": _host(), **parameters})
    except click.ClickException as error:
        click.echo(f"bedrockjobs ping: cannot report {name}: {printable(error.format_message())}", err=True)


def _wrapped(session: Session, name: str, command: tuple[str, ...]) -> int:
    """Run a command between two pings; return its exit status.

    Raises OSError, after the second ping, if the command's output could not be written to stdout.
    """
    _send_ping(session, name, event="start")
    try:
        status, output, lost = _run(command)
    except KeyboardInterrupt:
        _send_ping(session, name, event="fail", exitCode=INTERRUPTED)
        raise
    tail = output.decode(errors="replace").replace("\0", "\ufffd")[-PING_OUTPUT_CHARS_MAX:]
    _send_ping(session, name, event="fail" if status else "success", exitCode=status, output=tail)
    if lost is not None:
        raise lost
    return status


def _run(command: tuple[str, ...]) -> tuple[int, bytes, OSError | None]:
    """Return the exit status of a command (128 + signal if it was killed), its last output, and an error.

    The error says why output could not be written to stdout, without which the command runs on; it is None if
    all output was written.
    """
    output, lost = bytearray(), None
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603  the caller's own
    except OSError as error:
        click.echo(f"bedrockjobs ping: {command[0]}: {error.strerror}", err=True)
        argv = f"{command[0]}: {error.strerror}".encode()
        # The exit statuses of a shell for a command that is missing, and for one that is not executable.
        return (127 if isinstance(error, FileNotFoundError) else 126), argv, None
    with process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 65_536):
            try:
                if lost is None:
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
            except OSError as error:
                lost = error
            output += piece
            del output[: -4 * PING_OUTPUT_CHARS_MAX]
    code = process.returncode
    return (code if code >= 0 else 128 - code), bytes(output), lost


@click.command("ping-url")
@click.argument("name", metavar="NAME", shell_complete=schedule_names)
@server_options
def ping_url(session: Session, /, name: str) -> None:
    """Print the URL to ping a schedule without a token; anybody who has the URL can ping it.

    `curl -X POST URL` reports a success; URL/start starts a run, URL/fail and URL/<exit status> end it.
    """
    reply = session.reply(GetPingSecret, {"name": name})
    path = reply["path"].strip('"')
    write_one(reply, session.form, f"{_server_url(session)}{path}")


def _server_url(session: Session) -> str:
    """Return the base URL of the server; if several servers are given, of the first server."""
    address = addresses_of(session.server)[0]
    if isinstance(address, UnixAddress):
        return "http://localhost"
    return str(address) if address.tls else f"http://{address}"
