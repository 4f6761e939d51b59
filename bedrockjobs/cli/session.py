"""The session of one run of the program: the client, the output form, and errors with exit statuses.

Servers are reached through ``bedrockjobs.client`` only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click
from click.core import ParameterSource

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, moment_of, timestamp
from bedrockjobs.base.config import DEFAULT_PORT
from bedrockjobs.base.errors import CommandError, Forbidden, NotFound
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.vocabulary import called
from bedrockjobs.cli.output import (
    FORMS,
    WIDE,
    Form,
    Record,
    local_text,
    printable,
    raw_record,
    set_wide,
    text_of,
    times_by,
)
from bedrockjobs.cli.parameters import WordChoice

if TYPE_CHECKING:
    from bedrockjobs.client import Client, Response
    from bedrockjobs.commands import Command

DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"

OK, FAILED, USAGE, NOT_FOUND, REFUSED, FORBIDDEN = 0, 1, 2, 3, 4, 5
UNAVAILABLE, TIMED_OUT, INTERRUPTED = 69, 124, 130
"""Exit statuses: 69 is EX_UNAVAILABLE of sysexits.h, 124 as of timeout(1), 130 is 128 + SIGINT."""

NO_TOKEN = "no token was sent: give --token-file, or set BEDROCKJOBS_TOKEN"  # noqa: S105  a sentence
"""Advice for a command that was refused and was sent without a token."""

EXIT_BY_CODE = {
    400: USAGE,
    401: USAGE,
    402: USAGE,
    403: FORBIDDEN,
    404: NOT_FOUND,
    405: REFUSED,
    413: USAGE,
    429: UNAVAILABLE,
    503: UNAVAILABLE,
    555: TIMED_OUT,
}

IN_COMMANDS = {
    "see ListWorkers": "`bedrockjobs worker list` shows them",
    "see ListTokens": "`bedrockjobs token list` shows them",
    "see RotateToken": "`bedrockjobs token rotate` renews its secret",
    "RetryJob with revive": "`bedrockjobs job retry`",
}
"""Phrases in messages of the server, each with the CLI command that people should use instead."""

NO_SERVER_ADVICE = "`bedrockjobs serve` starts a server, --server or BEDROCKJOBS_SERVER names another"
"""Advice if no server listens."""

C = TypeVar("C", bound="Command[Any]")
F = TypeVar("F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """An error that ends the program with a message on stderr and an exit status."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(printable(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click means instances to set it


def in_commands(message: str) -> str:
    """Return a message of the server in which CLI commands replace commands of the protocol."""
    for phrase, typed in IN_COMMANDS.items():
        message = message.replace(phrase, typed)
    return message


_SAYS_IT_ALL = re.compile(
    r"(?:(?:jobID|runID|workflowID|name|worker|schedule): )?"
    r"((?:there is no|no live worker|job \d+ (?:has ended|is gone)|job \d+ is in no workflow)\b.*)",
    re.DOTALL,
)
"""Matches details of a 404 that its reason only repeats."""


def _for_people(error: CommandError) -> str:
    """Return the message of an error, without a reason that says the same as the detail."""
    detail = _SAYS_IT_ALL.fullmatch(error.detail) if isinstance(error, NotFound) else None
    return in_commands(detail[1] if detail else str(error))


class CommandRefused(Failure):
    """The server refused a command."""

    def __init__(self, error: CommandError, advice: str = "") -> None:
        """Show the server's message and ``advice``; the code of ``error`` decides the exit status."""
        message_ = "; ".join(filter(None, (_for_people(error), advice)))
        super().__init__(message_, EXIT_BY_CODE.get(error.code, FAILED))
        self.error = error


def connect(server: str, tries: int | None = None, files: Mapping[str, Path] | None = None) -> Client:
    """Return a client that tries each command ``tries`` times; None means the client's default.

    ``files`` has files with credentials, by parameter of ``Client``. Raises ValueError for a bad address or
    file.
    """
    from bedrockjobs.client import Client  # `serve` and `--help` need none

    more: dict[str, Any] = {**(files or {})}
    return Client(server, **more) if tries is None else Client(server, tries=tries, **more)


@dataclass
class Session:
    """One run of the command line: the server's address, the output form, and the client."""

    server: str = DEFAULT_SERVER
    form: Form = "table"
    tries: int | None = None
    files: dict[str, Path] = field(default_factory=dict)
    """Files with credentials and CA certificates, by parameter of ``Client``."""
    _client: Client | None = field(default=None, repr=False)
    _looked: datetime | None = field(default=None, repr=False)

    def send(self, command: Command[Any]) -> Response:
        """Send a command and return the answer; raises CommandRefused, or Failure if no server answers."""
        with self.errors_shown():
            try:
                return self._connected().exchange(command)
            except NotFound as error:
                raise self._ended_job(command, error) or error from None

    def _ended_job(self, command: Command[Any], error: NotFound) -> NotFound | None:
        """Return the refusal of a command for a job that is gone but whose last run is kept, otherwise None.

        ``run list`` and often ``job show`` show it, so other commands may not say that there is no such job.
        """
        from bedrockjobs.commands import ListRuns

        job_id = getattr(command, "job_id", None)
        if not error.detail.endswith(f"there is no job {job_id}"):
            return None
        try:
            answer = self._connected().exchange(ListRuns(job_id=job_id, limit=1))
            run = next(iter(records_in(record_of(answer)["runs"])), {})
        except (CommandError, OSError, Failure, KeyError):  # also a token that may not see the run
            return None
        run_id, ended, status = (text_of(run, key) for key in ("runID", "ended", "status"))
        if not ended:
            return None
        what = f"job {job_id} {'has ended' if status == 'success' else 'is gone'}"
        last = f"its last run, {run_id}, ended with {called(status)} at {local_text(ended)}"
        return NotFound(error.reason, f"{what}: {last}; `bedrockjobs run again {run_id}` repeats it")

    @contextmanager
    def errors_shown(self) -> Iterator[None]:
        """Turn the errors of a client into CommandRefused, or if no server answers into Failure."""
        try:
            yield
        except Forbidden as error:
            raise CommandRefused(error, advice="" if self._connected().has_token else NO_TOKEN) from None
        except CommandError as error:
            raise CommandRefused(error) from None
        except UnicodeEncodeError:
            raise click.UsageError("an argument is not UTF-8") from None
        except OSError as error:
            message = error.strerror or str(error) or type(error).__name__
            advice = f"; {NO_SERVER_ADVICE}" if isinstance(error.__cause__, ConnectionRefusedError) else ""
            raise Failure(f"{message}{advice}", UNAVAILABLE) from None

    @property
    def client(self) -> Client:
        """Return the client, made at first use; raises UsageError for a bad address or file."""
        return self._connected()

    @property
    def answering(self) -> str:
        """Return the address of the server; if several were given, of the server that has answered."""
        several = "," in self.server
        return str(self._client.server) if several and self._client is not None else self.server

    def record(self, command: Command[Any]) -> dict[str, RawJSON]:
        """Send a command and return its reply as a record of raw JSON values."""
        return record_of(self.send(command))

    def reply(
        self, command_class: type[Command[Any]], parameters: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, RawJSON]:
        """Send a command with these parameters (wire names), and return its reply as a record."""
        return self.record(built(command_class, parameters))

    def rows(
        self, command_class: type[Command[Any]], parameters: Mapping[str, Any] = MappingProxyType({})
    ) -> list[Record]:
        """Send a command that returns a list, and return the rows of its reply."""
        return records_in(self.reply(command_class, parameters)[rows_key(command_class)])

    def parse_time(self, value: str | timedelta | None) -> str | None:
        """Return a timestamp; a timedelta is added to the time of the server's clock. Raises UsageError."""
        if not isinstance(value, timedelta):
            return value
        now = self.now()
        try:
            return timestamp(now + value)
        except OverflowError:
            raise click.UsageError(f"the server's clock shows {timestamp(now)}: years end at 9999") from None

    def now(self) -> datetime:
        """Return the time of the server's clock."""
        from bedrockjobs.commands.server import Status  # many calls need no time

        return moment_of(text_of(self.record(Status()), "now"))

    def clock(self) -> datetime:
        """Return the server's time at the first call; this machine's time if the server does not answer."""
        if self._looked is None:
            try:
                self._looked = self.now()
            except (click.ClickException, KeyError, ValueError):
                self._looked = SystemClock().now()
        return self._looked

    def _connected(self) -> Client:
        if self._client is None:
            try:
                client = connect(self.server, self.tries, self.files)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            # The root context leaves both, also after an error.
            root = click.get_current_context().find_root()
            self._client = root.with_resource(client)
            root.with_resource(times_by(self.clock))
        return self._client


def record_of(answer: Response) -> dict[str, RawJSON]:
    """Return an answer as a record; empty if it has no body."""
    try:
        return raw_record(answer.body.decode() or "{}")
    except (ValueError, IndexError):
        raise Failure("the server's answer is not a JSON object") from None


def rows_key(command_class: type[Command[Any]]) -> str:
    """Return the key of the rows in a reply: the key that is paged, or else the only key."""
    if command_class.paging is not None:
        return command_class.paging.rows
    from bedrockjobs.base.wire import wire_name

    (key,) = map(wire_name, command_class.reply.model_fields)
    return key


def records_in(listed: RawJSON) -> list[Record]:
    """Return a JSON array of objects as records."""
    return [raw_record(text) for text in jsontext.elements(listed)]


@contextmanager
def returned_unless_written(session: Session, jobs: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Return taken jobs to the queue if what the block writes does not reach stdout."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        from bedrockjobs.commands.jobs import RetryJob

        for record in jobs:
            run = {"jobID": record["jobID"], "runID": record.get("runID"), "delay": 0, "ignoreRepeat": True}
            try:
                session.reply(RetryJob, run)
            except click.ClickException as failure:
                message = f"Job {record['jobID']} is still RUNNING: {failure.format_message()}"
                click.echo(printable(message), err=True)
            else:
                click.echo(f"Job {record['jobID']} was returned.", err=True)
        raise


def built(command_class: type[C], parameters: Mapping[str, Any]) -> C:
    """Return a command with these parameters, by wire name; a value of None counts as left out.

    Raises click.UsageError, which names the parameter and what was expected.
    """
    try:
        return command_class.read({name: value for name, value in parameters.items() if value is not None})
    except CommandError as error:
        raise click.UsageError(_as_typed(error.detail or error.reason)) from None


_PARAMETER = re.compile(r"([A-Za-z]+)(?:\.\w+)*(?=: | is required)")
"""Matches the beginning of a validation error: the parameter, perhaps followed by a part of its value."""


def _as_typed(fault: str) -> str:
    """Return a validation error that names the parameter as it was typed: ``--run-timeout: ...``."""
    from bedrockjobs.base.wire import wire_name

    context, match = click.get_current_context(silent=True), _PARAMETER.match(fault)
    for parameter in context.command.params if context and match else ():
        wanted = match[1] if match else ""
        if (
            f"--{wanted}" not in parameter.opts
            and wire_name(getattr(parameter, "field", "") or parameter.name or "") != wanted
        ):
            continue
        message = fault.removeprefix(match[0] if match else "")
        if isinstance(parameter, click.Argument):
            return f"{(parameter.make_metavar(context) if context else wanted).strip('[]')}{message}"
        return f"{max(parameter.opts, key=len)}{message}"
    return fault


def interactive() -> bool:
    """Return whether a person can answer a question: stdin is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str, advice: str = "give --yes, or --dry-run to preview") -> None:
    """Ask a question; raises click.Abort if the answer is no, and click.UsageError without a terminal."""
    if not interactive():
        raise click.UsageError(f"stdin is not a terminal: {advice}")
    click.confirm(question, abort=True, err=True)


def _set_server(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).server = value


def _set_form(ctx: click.Context, _: click.Parameter, value: Form | Literal["wide"] | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).form = "table" if value == WIDE else value
        set_wide(ctx, wide=value == WIDE)


def _note_file(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    name = parameter.name
    # The client reads environment variables itself, as a token wins over a token file.
    if value is None or name is None or ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
        return
    ctx.ensure_object(Session).files[name] = value


FILES = {
    "token_file": "File with the token that is sent; BEDROCKJOBS_TOKEN may be the token itself.",
    "ca": "CA certificates (PEM) to verify the server with, for https://; those of the system if left out.",
    "cert": "Client certificate (PEM).",
    "key": "Key of the client certificate (PEM), if it is in another file.",
}
"""Help of the options for credentials and CA certificates, by parameter of ``Client``."""


def _file_options(command: F, *, of_program: bool) -> F:
    """Add an option for each of ``FILES`` to a command.

    Only the program's own options are listed in the help and can be set by environment variables.
    """
    for name, help_text in reversed(FILES.items()):
        variable: dict[str, Any] = (
            {"envvar": f"BEDROCKJOBS_{name.upper()}", "show_envvar": True} if of_program else {}
        )
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar="FILE",
            type=click.Path(path_type=Path),
            help=help_text,
            expose_value=False,
            callback=_note_file,
            allow_from_autoenv=False,
            hidden=not of_program,
            **variable,
        )(command)
    return command


def _form_option(**attributes: Any) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        type=WordChoice((*FORMS, WIDE)),
        expose_value=False,
        callback=_set_form,
        help="How results are written; a table that fits the terminal if left out; wide shows all of it.",
        **attributes,
    )


def _server_option(**attributes: Any) -> Callable[[F], F]:
    return click.option(
        "-s",
        "--server",
        metavar="ADDRESS[,ADDRESS]",
        expose_value=False,
        callback=_set_server,
        help="Server to talk to: host:port or unix:/path; in a list, the next one is tried if one"
        f" does not answer. Default: {DEFAULT_SERVER}.",
        **attributes,
    )


def global_options(command: F) -> F:
    """Add --server, --output and the file options to the program, with environment variables."""
    shown = {"show_envvar": True}
    form = _form_option(envvar="BEDROCKJOBS_OUTPUT", **shown)
    return _server_option(envvar=["BEDROCKJOBS_SERVER", "BEDROCK_SERVER"], **shown)(
        form(_file_options(command, of_program=True))
    )


def output_option(command: F) -> F:
    """Add --output to a command; this option wins over --output of the program."""
    return _form_option(allow_from_autoenv=False)(command)


pass_session = click.make_pass_decorator(Session, ensure=True)


def server_options(command: F) -> F:
    """Pass the session to a command, and add --server, --output and the file options.

    These options win over the same options of the program. Only the program's help lists the file options.
    """
    with_files = _file_options(cast("F", pass_session(command)), of_program=False)
    return _server_option(allow_from_autoenv=False)(output_option(with_files))
