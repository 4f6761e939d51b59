"""What the commands share: which server they talk to, how they answer, and how a failure ends the process.

Only ``bedrockjobs.client`` is used to reach a server.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import DEFAULT_PORT
from bedrockjobs.base.errors import CommandError, Forbidden
from bedrockjobs.base.wire import RawJSON, moment_of, timestamp, wire_name
from bedrockjobs.cli.groups import WordChoice
from bedrockjobs.cli.output import (
    FORMS,
    WIDE,
    Form,
    Record,
    printable,
    raw_record,
    set_wide,
    tell_time_by,
    text_of,
)
from bedrockjobs.commands import Command, Status

if TYPE_CHECKING:
    from bedrockjobs.client import Answer, Client

DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"

OK, FAILED, USAGE, NOT_FOUND, REFUSED, FORBIDDEN = 0, 1, 2, 3, 4, 5
UNAVAILABLE, TIMED_OUT, INTERRUPTED = 69, 124, 130
"""Exit statuses: 69 is EX_UNAVAILABLE of sysexits.h, 124 is what timeout(1) says, 130 is 128 + SIGINT."""

NO_TOKEN = "no token was sent: name its file by --token-file, or set BEDROCKJOBS_TOKEN"  # noqa: S105  words
"""What is said beside a refusal where there was no token."""

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
    "RetryJob with revive": "`bedrockjobs job retry --revive`",
}
"""What the server advises, in commands of this program."""

NOBODY_THERE = "`bedrockjobs serve` starts a server, --server names another"
"""What is said where nobody listens."""

C = TypeVar("C", bound=Command[Any])
F = TypeVar("F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """Ends the process with a sentence on stderr and an exit status."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        """Say ``message`` and end with ``exit_code``."""
        super().__init__(printable(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click means an instance to have its own


def in_commands(words: str) -> str:
    """Return words of the server's, with commands of this program in the place of the protocol's."""
    for said, typed in IN_COMMANDS.items():
        words = words.replace(said, typed)
    return words


class Refusal(Failure):
    """The server refused a command."""

    def __init__(self, error: CommandError, advice: str = "") -> None:
        """Say the server's words, and ``advice``; the exit status follows from its code."""
        words = "; ".join(filter(None, (in_commands(str(error)), advice)))
        super().__init__(words, EXIT_BY_CODE.get(error.code, FAILED))
        self.error = error


def connect(server: str, tries: int | None = None, files: Mapping[str, Path] | None = None) -> Client:
    """Return a client of this server, which sends a command ``tries`` times or as often as clients do.

    ``files`` are parameters of the client. Raises ValueError for a bad address or file.
    """
    from bedrockjobs.client import Client  # `serve` and `--help` need none

    more: dict[str, Any] = {**(files or {})}
    return Client(server, **more) if tries is None else Client(server, tries=tries, **more)


@dataclass
class Session:
    """One run of the command line: the server's address, the form of the output, the open client."""

    server: str = DEFAULT_SERVER
    form: Form = "table"
    tries: int | None = None
    files: dict[str, Path] = field(default_factory=dict)
    """The files that were named of who we are and whom we trust, by their parameter of ``Client``."""
    _client: Client | None = field(default=None, repr=False)
    _looked: datetime | None = field(default=None, repr=False)

    def ask(self, command: Command[Any]) -> Answer:
        """Send a command and return the answer; raises Refusal or, where no server answers, Failure."""
        try:
            return self._connected().exchange(command)
        except Forbidden as error:
            raise Refusal(error, advice="" if self._connected().has_token else NO_TOKEN) from None
        except CommandError as error:
            raise Refusal(error) from None
        except UnicodeEncodeError:
            raise click.UsageError("an argument is not UTF-8") from None
        except OSError as error:
            words = error.strerror or str(error) or type(error).__name__
            advice = f"; {NOBODY_THERE}" if isinstance(error.__cause__, ConnectionRefusedError) else ""
            raise Failure(f"{words}{advice}", UNAVAILABLE) from None

    @property
    def answering(self) -> str:
        """Return what was given as the server; of several, once one has answered, the one that did."""
        several = "," in self.server
        return str(self._client.server) if several and self._client is not None else self.server

    def record(self, command: Command[Any]) -> dict[str, RawJSON]:
        """Send a command and return its reply as a record, spelled as the server sent it."""
        return record_of(self.ask(command))

    def moment(self, given: str | timedelta | None) -> str | None:
        """Return a moment that was given as one or as a time from now: by the server's clock, not by ours."""
        if not isinstance(given, timedelta):
            return given
        now = self.now()
        try:
            return timestamp(now + given)
        except OverflowError:
            raise click.UsageError(f"the server's clock shows {timestamp(now)}: years end at 9999") from None

    def now(self) -> datetime:
        """Return the moment that the server's clock shows."""
        return moment_of(text_of(self.record(Status()), "now"))

    def clock(self) -> datetime:
        """Return the server's moment as far as it tells, else this machine's; it is asked once."""
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
            tell_time_by(self.clock)
            # The root context closes it at the end, also after an error.
            self._client = click.get_current_context().find_root().with_resource(client)
        return self._client


def record_of(answer: Answer) -> dict[str, RawJSON]:
    """Return an answer as a record; empty where it has no body."""
    try:
        return raw_record(answer.body.decode() or "{}")
    except (ValueError, IndexError):
        raise Failure("the server's answer is no JSON object") from None


def records_in(listed: RawJSON) -> list[Record]:
    """Return the JSON array of objects in a reply as records."""
    return [raw_record(text) for text in jsontext.elements(listed)]


def built(kind: type[C], given: Mapping[str, Any]) -> C:
    """Return a command with these parameters (wire names); None counts as left out.

    Raises click.UsageError, which names the parameter and what was expected.
    """
    try:
        return kind.read({name: value for name, value in given.items() if value is not None})
    except CommandError as error:
        raise click.UsageError(_as_typed(error.detail or error.reason)) from None


_PARAMETER = re.compile(r"([A-Za-z]+)(?:\.\w+)*(?=: | is required)")
"""What a fault of a command begins with: the parameter, and perhaps what is in it."""


def _as_typed(fault: str) -> str:
    """Return what is wrong with a parameter, called as it was typed: ``--run-timeout: expected ...``."""
    context, named = click.get_current_context(silent=True), _PARAMETER.match(fault)
    for parameter in context.command.params if context and named else ():
        wanted = named[1] if named else ""
        if (
            f"--{wanted}" not in parameter.opts
            and wire_name(getattr(parameter, "field", "") or parameter.name or "") != wanted
        ):
            continue
        words = fault.removeprefix(named[0] if named else "")
        if parameter.type.name == "time":
            words = words.replace("expected a date", "expected a time from now like 5m, or a date")
        if isinstance(parameter, click.Argument):
            return f"{(parameter.make_metavar(context) if context else wanted).strip('[]')}{words}"
        return f"{max(parameter.opts, key=len)}{words}"
    return fault


def interactive() -> bool:
    """Tell whether somebody is there to answer a question."""
    return sys.stdin.isatty()


def _set_server(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).server = value


def _set_form(ctx: click.Context, _: click.Parameter, value: Form | Literal["wide"] | None) -> None:
    if value is not None:
        ctx.ensure_object(Session).form = "table" if value == WIDE else value
        set_wide(ctx, wide=value == WIDE)


def _note_file(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    name = parameter.name
    # What is a variable the client reads itself: it knows that a token goes before a file with one.
    if value is None or name is None or ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
        return
    ctx.ensure_object(Session).files[name] = value


FILES = {
    "token_file": "File with the token that is sent; BEDROCKJOBS_TOKEN may be the token itself.",
    "ca": "Certificates (PEM) of who signs the server's, for https://; those of the system if left out.",
    "cert": "Certificate (PEM) that is shown to the server.",
    "key": "Key of that certificate (PEM), where it is not in the same file.",
}
"""The files of who we are and whom we trust, by their parameter of ``Client``."""


def _file_options(command: F, *, of_program: bool) -> F:
    """Add an option for each of ``FILES``; the program's own are shown, and are variables."""
    for name, words in reversed(FILES.items()):
        variable: dict[str, Any] = (
            {"envvar": f"BEDROCKJOBS_{name.upper()}", "show_envvar": True} if of_program else {}
        )
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            metavar="FILE",
            type=click.Path(path_type=Path),
            help=words,
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
        help="Server to talk to: host:port or unix:/path, or several: the next one is used where one does"
        f" not answer. {DEFAULT_SERVER} if left out.",
        **attributes,
    )


def global_options(command: F) -> F:
    """Add --server, --output and the files to the program itself, with their environment variables."""
    shown = {"show_envvar": True}
    form = _form_option(envvar="BEDROCKJOBS_OUTPUT", **shown)
    return _server_option(envvar=["BEDROCKJOBS_SERVER", "BEDROCK_SERVER"], **shown)(
        form(_file_options(command, of_program=True))
    )


def answers(command: F) -> F:
    """Add --output to a command, where it wins over the program's own."""
    return _form_option(allow_from_autoenv=False)(command)


def talks(command: F) -> F:
    """Add --server, --output and the files to a command, where they win over the program's own.

    The files are told in the help of the program alone.
    """
    return _server_option(allow_from_autoenv=False)(answers(_file_options(command, of_program=False)))


pass_session = click.make_pass_decorator(Session, ensure=True)
