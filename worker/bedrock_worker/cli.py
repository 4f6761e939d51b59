"""The command line of ``bedrock-worker``: options, signals, exit status. ``agent`` does the work."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from bedrock_worker import log
from bedrock_worker.agent import Agent
from bedrock_worker.options import (
    FORK,
    GRACE_S,
    PROCESS_JOBS_MAX,
    SPAWN,
    Options,
    check_command,
    default_spool,
    name_patterns,
    seconds_of,
    variables_of,
    worker_name,
)
from bedrock_worker.policy.program import ProgramSelector
from bedrock_worker.policy.python_module import BadModule
from bedrock_worker.rights import settle
from bedrock_worker.settings_file import defaults_from_file
from bedrockjobs.base.command_line import OneCommand, WholeNumber
from bedrockjobs.base.config import DEFAULT_PORT, JOBS_PER_GET_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.event_loop import runner
from bedrockjobs.base.settings_file import VARIABLE as CONFIG_VARIABLE
from bedrockjobs.base.settings_file import usual_file
from bedrockjobs.client import SERVER_VARIABLE, addresses_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

EPILOG = """
\b
The command gets the job's JSON on stdin and in the file $BEDROCK_DATA_FILE,
and the variables BEDROCK_JOB_ID, BEDROCK_RUN_ID, BEDROCK_NAME,
BEDROCK_ATTEMPT, BEDROCK_SCHEDULED_FOR, BEDROCK_DEADLINE (with a timeout),
BEDROCK_SERVER, BEDROCK_TOKEN (a token of this run, where the worker has one
itself), and TRACEPARENT where the job has one. A JSON object that it writes
to the file $BEDROCK_RESULT becomes the job's data. What it prints is kept
with the run; a line "::progress 40 message::" on stdout is its progress.

\b
Its exit status decides:
    0     the job is finished
    75    the job is tried again, after its backoff or 10 s
    100   the job has failed for good
    101   the job is put off for the delay in the result: {"delay": 30}
    102   the job has failed, and is tried again if retries are left (3 if it
          has no number), after its backoff or the delay in the result
    103   the job is given back for a worker with other code
    else  the job has failed

\b
Signals: TERM and INT end in good order, a second one at once; TSTP takes no
more jobs, CONT does again; HUP reads rules, token and certificates anew.

\b
Every option is also a variable: --timeout is BEDROCKJOBS_WORKER_TIMEOUT. And
it is a key of the settings file: timeout = "5m" below [worker].

\b
Examples:
    bedrock-worker --name 'mail/*' --concurrency 4 -- ./send-mail
    bedrock-worker --rules /etc/bedrock-worker/rules.toml
    bedrock-worker --module app.jobs
"""


def _checked(check: Callable[[Any], T]) -> Callable[[click.Context, click.Parameter, Any], T | None]:
    """Return a callback that turns a value by ``check`` and says what is wrong in its words."""

    def convert(_: click.Context, __: click.Parameter, value: Any) -> T | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def _option(flag: str, *names: str, also: Sequence[str] = (), **attributes: Any) -> Callable[[F], F]:
    """Declare an option that is a variable too: ``--max-jobs`` is ``BEDROCKJOBS_WORKER_MAX_JOBS``."""
    variable = "BEDROCKJOBS_WORKER_" + flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *names, envvar=[variable, *also], **attributes)


def _file_option(flag: str, words: str) -> Callable[[F], F]:
    """Declare an option for a file of the client, which reads the variable of all programs by itself."""
    variable = "BEDROCKJOBS_" + flag.removeprefix("--").replace("-", "_").upper()
    return _option(flag, metavar="FILE", type=click.Path(path_type=Path), help=f"{words}  [{variable}]")


@click.command(
    cls=OneCommand,
    context_settings={
        "allow_interspersed_args": False,
        "help_option_names": ["-h", "--help"],
    },
    epilog=EPILOG,
)
@_option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), also=(CONFIG_VARIABLE,), is_eager=True,
    expose_value=False, callback=defaults_from_file, default=usual_file,
    help="Settings file (TOML): its table [worker] sets what neither an option nor a variable does.",
)  # fmt: skip
@_option(
    "--name", "names", multiple=True, metavar="GLOB", callback=_checked(name_patterns),
    help="Jobs to take, by name; repeatable. If left out: those of the rules or of the module.",
)  # fmt: skip
@_option(
    "--server", "servers", metavar="ADDRESS[,ADDRESS]",
    also=(SERVER_VARIABLE,),
    default=f"127.0.0.1:{DEFAULT_PORT}", show_default=True, callback=_checked(addresses_of),
    help="Server, host:port or unix:/path, or several: the next one is used where one does not answer.",
)  # fmt: skip
@_file_option("--token-file", "File with the token that is sent; BEDROCKJOBS_TOKEN may be the token itself.")
@_file_option("--ca", "Certificates (PEM) of who signs the server's, for https://; the system's if left out.")
@_file_option("--cert", "Certificate (PEM) that is shown to the server.")
@_file_option("--key", "Key of that certificate (PEM), where it is not in the same file.")
@_option(
    "--concurrency", type=WholeNumber(1, JOBS_PER_GET_MAX), default=1, show_default=True, metavar="NUMBER",
    help="Jobs that may run at once.",
)  # fmt: skip
@_option(
    "--worker-name", "worker", default="%h-%p", show_default=True, metavar="NAME",
    callback=_checked(worker_name),
    help="Name that the server knows this worker by; %h is the host, %p the process.",
)  # fmt: skip
@_option(
    "--timeout", "timeout_s", metavar="DURATION", callback=_checked(seconds_of),
    help="Time one run may take, like 90s or 5m; no limit if left out.",
)  # fmt: skip
@_option(
    "--grace", "grace_s", default=f"{GRACE_S:g}s", show_default=True, metavar="DURATION",
    callback=_checked(seconds_of), help="Time that running commands get before they are ended.",
)  # fmt: skip
@_option(
    "--env", multiple=True, metavar="NAME[=VALUE]", callback=_checked(variables_of),
    help="Variable for the command, beside PATH, HOME, LANG, TZ and TMPDIR; repeatable.",
)  # fmt: skip
@_option(
    "--cwd", type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path), metavar="DIR",
    help="Folder to run the command in.",
)  # fmt: skip
@_option("--burst", is_flag=True, help="End as soon as there is no job.")
@_option("--max-jobs", "jobs_max", type=WholeNumber(1), metavar="NUMBER", help="End after so many jobs.")
@_option(
    "--rules", "rules_file", metavar="FILE", type=click.Path(path_type=Path, resolve_path=True),
    help="Rules (TOML) that say which command runs for which names; read anew on HUP.",
)  # fmt: skip
@_option(
    "--module", metavar="MODULE", help="Python module whose @job and @cron functions run, like app.jobs."
)
@_option(
    "--start-method", type=click.Choice([SPAWN, FORK]), default=SPAWN, show_default=True,
    help="How a function of --module gets its process: a new Python that imports the module (spawn), or a"
    " fork of one that has imported it (fork).",
)  # fmt: skip
@_option(
    "--max-jobs-per-process", "process_jobs_max", type=WholeNumber(1, PROCESS_JOBS_MAX), default=1,
    show_default=True, metavar="NUMBER",
    help="With --start-method fork: how many jobs a process runs before it is replaced.",
)  # fmt: skip
@_option(
    "--no-sync", is_flag=True,
    help="With --module: leave the server's schedules as they are, as for a branch that is only tried.",
)  # fmt: skip
@_option(
    "--allow-cmd", multiple=True, metavar="GLOB", callback=_checked(name_patterns),
    help="Jobs that may bring their own argv, by name; repeatable.",
)  # fmt: skip
@_option(
    "--allow-shell", multiple=True, metavar="GLOB", callback=_checked(name_patterns),
    help="Jobs that may bring a command for the shell (cmd), or argv, by name; repeatable.",
)  # fmt: skip
@_option(
    "--allow-url", multiple=True, metavar="GLOB", callback=_checked(name_patterns),
    help="Jobs that may bring a url to be fetched, by name; repeatable.",
)  # fmt: skip
@_option(
    "--allow-private", is_flag=True,
    help="Let a url lead to this machine and to networks that are not public, too.",
)  # fmt: skip
@_option(
    "--allow-daemons", "daemons", is_flag=True,
    help="Let what a command starts in a session of its own live on after the run.",
)  # fmt: skip
@_option(
    "--allow-new-privileges", "new_privileges", is_flag=True,
    help="Let commands gain rights that the worker has not, as by sudo.",
)  # fmt: skip
@_option(
    "--user", metavar="NAME",
    help="Become this user before anything but the settings file is read; only root can.",
)  # fmt: skip
@_option("--as-root", is_flag=True, help="Run commands as root, which is refused otherwise.")
@_option(
    "--max-load", "load_max", type=click.FloatRange(0, min_open=True), metavar="LOAD",
    help="Load per processor above which fewer jobs run at once, at least one.",
)  # fmt: skip
@_option(
    "--version-watch", metavar="FILE", type=click.Path(path_type=Path),
    help="Take no more and end, when this file's content changes.",
)  # fmt: skip
@_option(
    "--spool", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Where reports are kept that no server takes; if left out, below $STATE_DIRECTORY of the service"
    " or $XDG_STATE_HOME of the user.",
)  # fmt: skip
@_option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How the log is written: lines for people, or one JSON object for each event.",
)  # fmt: skip
@_option("--echo", is_flag=True, help="Log what commands print too; the server has it anyway.")
@_option("--get-mocked-jobs", "mocked", is_flag=True, help="Take mocked jobs too.")
@click.version_option(package_name="bedrockjobs", prog_name="bedrock-worker", message="%(prog)s %(version)s")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
def main(user: str | None, as_root: bool, **given: Any) -> None:
    """Pull jobs from a bedrockjobs server and run a command for each.

    It is COMMAND, run without a shell, unless --rules, --module or an allowed job say otherwise.
    """
    if given["timeout_s"] == 0:
        raise click.BadParameter("expected more than 0s", param_hint="--timeout")
    try:
        settle(user, as_root=as_root, daemons=given["daemons"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    options = Options(**{**given, "spool": given["spool"] or default_spool()})
    _check(options)
    try:
        options.client()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        selector = ProgramSelector(options)
        options.take(1, selector.names)
    except BadModule as error:
        raise click.UsageError(f"--module {error}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except CommandError as error:
        raise click.UsageError(error.detail or error.reason) from None
    log.begin(options.log_format)
    with runner() as running:
        raise SystemExit(running.run(_work(options, selector)))


def _check(options: Options) -> None:
    """Raise UsageError where there is nothing to take, nothing to run, or COMMAND cannot be run."""
    declared = options.rules_file is not None or options.module is not None
    if not options.names and not declared:
        raise click.UsageError("Missing option '--name'; only --rules and --module know names of their own.")
    if not options.argv and not declared and not options.accepts:
        raise click.UsageError(
            "Missing argument '-- COMMAND', or --rules, --module, --allow-cmd, --allow-shell or --allow-url."
        )
    if options.start_method == FORK and options.module is None:
        raise click.UsageError("--start-method fork is for --module.")
    if options.no_sync and options.module is None:
        raise click.UsageError("--no-sync is for --module.")
    if options.start_method == FORK and options.daemons:
        raise click.UsageError("--start-method fork: expected none with --allow-daemons.")
    if options.process_jobs_max > 1 and options.start_method != FORK:
        raise click.UsageError("--max-jobs-per-process: expected 1, or --start-method fork with it.")
    try:
        check_command(options)
    except ValueError as error:
        raise click.UsageError(f"COMMAND: {error}") from None


async def _work(options: Options, selector: ProgramSelector) -> int:
    gc.freeze()  # what was imported stays: no collection need look at it again
    agent, loop = Agent(options, selector, alone=True), asyncio.get_running_loop()
    for number, act in (
        (signal.SIGTERM, agent.stop),
        (signal.SIGINT, agent.stop),
        (signal.SIGTSTP, agent.quiet),
        (signal.SIGCONT, agent.resume),
        (signal.SIGHUP, agent.reload),
    ):
        loop.add_signal_handler(number, act)
    return await agent.run()
