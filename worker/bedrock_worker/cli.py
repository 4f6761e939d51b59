"""The command line of ``bedrock-worker``: options, settings file, signals, exit status."""

from __future__ import annotations

import asyncio
import gc
import os
import pwd
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from bedrock_worker import log
from bedrock_worker.agent import Agent
from bedrock_worker.options import (
    FORK,
    ISOLATIONS,
    PROCESS_JOBS_MAX,
    REUSE,
    SPAWN,
    VERSION,
    WorkerOptions,
    check_command,
    default_spool,
    name_patterns,
    seconds_of,
    variables_of,
    worker_name,
)
from bedrock_worker.policy.program import ProgramSelector, read_rules
from bedrock_worker.policy.python_module import BadModule
from bedrock_worker.run import kernel
from bedrockjobs.base.config import DEFAULT_PORT, JOBS_PER_GET_MAX, RUNS_PER_HEARTBEAT_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.programs import ProgramCommand, WholeNumber, runner
from bedrockjobs.base.settings_file import VARIABLE as CONFIG_VARIABLE
from bedrockjobs.base.settings_file import SettingsFileError, read_table, unknown_key, usual_file
from bedrockjobs.client import SERVER_VARIABLE, AsyncClient, addresses_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

EPILOG = """
\b
The command gets the job's JSON on stdin and in the file $BEDROCK_DATA_FILE,
and the variables BEDROCK_JOB_ID, BEDROCK_RUN_ID, BEDROCK_NAME,
BEDROCK_ATTEMPT, BEDROCK_SCHEDULED_FOR, BEDROCK_DEADLINE (with a timeout),
BEDROCK_SERVER, BEDROCK_TOKEN (a token for this run, if the worker itself has
one), TRACEPARENT if the job has one, and in a workflow BEDROCK_BEFORE_FILE,
a file with the results of the jobs before it. A JSON object that it writes
to the file $BEDROCK_RESULT becomes the job's data. What it prints is kept
with the run; a line "::progress 40 message::" on stdout is its progress.

\b
Its exit status decides:
    0     the job is finished
    75    the job is retried, after its backoff or 10 s
    100   the job has failed permanently
    101   the job is snoozed for the delay in the result: {"delay": 30}
    102   the job has failed, and is retried if retries are left (3 by
          default), after its backoff or the delay in the result
    103   the job is returned for a worker with other code
    else  the job has failed

\b
Signals: TERM and INT shut down gracefully, a second one at once; TSTP stops
taking jobs, CONT resumes; HUP reloads rules, token and certificates.

\b
Every option is also a variable, --timeout is BEDROCKJOBS_WORKER_TIMEOUT, and
a key of the settings file: timeout = "5m" below [worker].

\b
Examples:
    bedrock-worker --name 'mail/*' --concurrency 4 -- ./send-mail
    bedrock-worker --rules /etc/bedrock-worker/rules.toml
    bedrock-worker --module app.jobs
"""


def _checked(check: Callable[[Any], T]) -> Callable[[click.Context, click.Parameter, Any], T | None]:
    """Return an option callback that converts a value with ``check`` and reports its errors."""

    def convert(_: click.Context, __: click.Parameter, value: Any) -> T | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def _option(flag: str, *names: str, also: Sequence[str] = (), **attributes: Any) -> Callable[[F], F]:
    """Declare an option with an environment variable: ``--max-jobs`` is ``BEDROCKJOBS_WORKER_MAX_JOBS``."""
    variable = "BEDROCKJOBS_WORKER_" + flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *names, envvar=[variable, *also], **attributes)


def _file_option(flag: str, help_text: str) -> Callable[[F], F]:
    """Declare an option for a file of the client; the client reads the variable that the help names."""
    variable = "BEDROCKJOBS_" + flag.removeprefix("--").replace("-", "_").upper()
    return _option(flag, metavar="FILE", type=click.Path(path_type=Path), help=f"{help_text}  [{variable}]")


# --- ``--config``: the table ``[worker]`` of a settings file ---------------------------------------------
#
# A key is an option without its dashes: ``allow_cmd`` is ``--allow-cmd``.


class BadSettingsFile(click.UsageError):
    """A settings file that cannot be used."""

    exit_code = os.EX_CONFIG


def defaults_from_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Use the values of the file as defaults, which options and variables override.

    Raises BadSettingsFile, which lists every problem with its line, its key and what is expected.
    """
    if path is None:
        return
    problems, values = read_settings(ctx, path)
    if problems:
        raise BadSettingsFile("\n".join(problems))
    ctx.default_map = values


def read_settings(ctx: click.Context, path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the problems of a file, and its values by parameter name.

    ``ctx`` is a context of the worker's command.
    """
    try:
        table = read_table(path, "worker")
    except SettingsFileError as error:
        return [str(error)], {}
    options = {
        each.opts[0].removeprefix("--").replace("-", "_"): each
        for each in ctx.command.params
        if isinstance(each, click.Option) and each.name not in ("config", "version")
    }
    problems, values = list(table.problems), dict[str, Any]()
    for key, entry in table.entries.items():
        option = options.get(key)
        fault = unknown_key(key, options) if option is None else _fault_of(ctx, option, entry.value)
        if fault:
            problems.append(f"{entry.place}: {key}: {fault}")
        elif option is not None and option.name is not None:
            values[option.name] = entry.value
    return problems, values


def file_faults(path: Path) -> list[str]:
    """Return the problems of the files (token, certificates, rules) that a valid table names."""
    entries = read_table(path, "worker").entries
    values = {key: str(entry.value) for key, entry in entries.items()}
    faults = []
    for keys, check in _FILE_CHECKS.items():
        first = next((key for key in keys if key in values), None)
        if first is None:
            continue
        try:
            check(values)
        except ValueError as error:
            key = str(error).partition(":")[0]
            faults.append(f"{entries[key if key in values else first].place}: {error}")
    return faults


def _check_token(values: Mapping[str, str]) -> None:
    AsyncClient(_NO_SERVER, token_file=values["token_file"], ca="", cert="", key="")


def _check_certificates(values: Mapping[str, str]) -> None:
    """Load the TLS files that the table names; environment variables are ignored."""
    ca, cert, key = (values.get(each, "") for each in ("ca", "cert", "key"))
    AsyncClient(_NO_SERVER, token="", ca=ca, cert=cert, key=key)


def _check_rules(values: Mapping[str, str]) -> None:
    read_rules(Path(values["rules"]).resolve())


_NO_SERVER = "https://localhost"
"""A server that is never contacted."""

_FILE_CHECKS: dict[tuple[str, ...], Callable[[Mapping[str, str]], None]] = {
    ("token_file",): _check_token,
    ("ca", "cert", "key"): _check_certificates,
    ("rules",): _check_rules,
}
"""The check of each group of files, by the options that name them; it raises ValueError."""


def _fault_of(ctx: click.Context, option: click.Option, value: Any) -> str:
    """Return what is wrong with a value, or an empty text."""
    if option.is_flag:
        return "" if isinstance(value, bool) else "expected true or false"
    if option.multiple:
        good, expected = (
            isinstance(value, list) and all(type(each) is str for each in value),
            "a list of texts",
        )
    elif isinstance(option.type, click.IntRange):
        good, expected = type(value) is int, "a whole number"
    elif isinstance(option.type, click.FloatRange):
        good, expected = type(value) in (int, float), "a number"
    else:
        good, expected = type(value) is str, "text in quotes"
    if not good:
        return f"expected {expected}"
    try:
        cast = option.type_cast_value(ctx, value)
        if option.callback is not None:
            option.callback(ctx, option, cast)
    except click.BadParameter as error:
        return error.message
    return ""


# --- the command -----------------------------------------------------------------------------------------


@click.command(
    cls=ProgramCommand,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@_option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    also=(CONFIG_VARIABLE,),
    is_eager=True,
    expose_value=False,
    callback=defaults_from_file,
    default=usual_file,
    help="Settings file (TOML) whose table [worker] supplies defaults for options and variables.",
)
@_option(
    "--name",
    "names",
    multiple=True,
    metavar="GLOB",
    callback=_checked(name_patterns),
    help="Jobs to take, by name; repeatable. Default: those of the rules or the module.",
)
@_option(
    "--server",
    "servers",
    metavar="ADDRESS[,ADDRESS]",
    also=(SERVER_VARIABLE,),
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    callback=_checked(addresses_of),
    help="Server, host:port or unix:/path, or a list: if one does not answer, the next is used."
    f"  [{SERVER_VARIABLE}]",
)
@_file_option("--token-file", "File with the token to send; BEDROCKJOBS_TOKEN may hold the token itself.")
@_file_option("--ca", "CA bundle (PEM) for the server's certificate with https://; default: the system's.")
@_file_option("--cert", "Client certificate (PEM) to present to the server.")
@_file_option("--key", "Key of that certificate (PEM), if it is not in the same file.")
@_option(
    "--concurrency",
    type=WholeNumber(1, JOBS_PER_GET_MAX),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="Maximum number of jobs that run at once.",
)
@_option(
    "--async-slots",
    type=WholeNumber(1, RUNS_PER_HEARTBEAT_MAX),
    metavar="NUMBER",
    help="Maximum number of async functions of --module that run at once, on one event loop, in addition to"
    f" --concurrency; default: {WorkerOptions.async_slots}.",
)
@_option(
    "--worker-name",
    "worker",
    default="%h-%p",
    show_default=True,
    metavar="NAME",
    callback=_checked(worker_name),
    help="Name of this worker on the server; %h is the host, %p the process.",
)
@_option(
    "--timeout",
    "timeout_s",
    metavar="DURATION",
    callback=_checked(seconds_of),
    help="Time limit of one run, like 90s or 5m; default: no limit.",
)
@_option(
    "--grace",
    "grace_s",
    default=f"{WorkerOptions.grace_s:g}s",
    show_default=True,
    metavar="DURATION",
    callback=_checked(seconds_of),
    help="Time that running commands get to finish at shutdown.",
)
@_option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    callback=_checked(variables_of),
    help="Variable for the command, in addition to PATH, HOME, LANG, TZ and TMPDIR; repeatable.",
)
@_option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    metavar="DIR",
    help="Working directory of the command.",
)
@_option("--burst", is_flag=True, help="Exit as soon as there is no job.")
@_option("--max-jobs", "jobs_max", type=WholeNumber(1), metavar="NUMBER", help="Exit after this many jobs.")
@_option(
    "--rules",
    "rules_file",
    metavar="FILE",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Rules (TOML) that map names to commands; reloaded on HUP.",
)
@_option(
    "--module", metavar="MODULE", help="Python module whose @job and @cron functions run, like app.jobs."
)
@_option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    help="What runs a function of --module: a process that has imported the module and serves many runs"
    " (reuse, the default), a fork of such a process for each run (fork), or a new Python that imports the"
    " module for each run (spawn; the default with --allow-daemons).",
)
@_option("--start-method", type=click.Choice([SPAWN, FORK]), hidden=True)
@_option(
    "--max-jobs-per-process",
    "process_jobs_max",
    type=WholeNumber(1, PROCESS_JOBS_MAX),
    metavar="NUMBER",
    help="Jobs that a process runs with --isolation reuse before it is replaced;"
    f" default: {WorkerOptions.process_jobs_max}.",
)
@_option(
    "--no-sync",
    is_flag=True,
    help="With --module: leave the server's schedules unchanged, for example to try a branch.",
)
@_option(
    "--allow-cmd",
    multiple=True,
    metavar="GLOB",
    callback=_checked(name_patterns),
    help="Jobs that may bring their own argv, by name; repeatable.",
)
@_option(
    "--allow-shell",
    multiple=True,
    metavar="GLOB",
    callback=_checked(name_patterns),
    help="Jobs that may bring a command for the shell (cmd), or argv, by name; repeatable.",
)
@_option(
    "--allow-url",
    multiple=True,
    metavar="GLOB",
    callback=_checked(name_patterns),
    help="Jobs that may bring a url to fetch, by name; repeatable.",
)
@_option("--allow-private", is_flag=True, help="Allow a url to lead to this machine and to private networks.")
@_option(
    "--allow-daemons",
    "daemons",
    is_flag=True,
    help="Let processes that a command starts in a session of their own outlive the run.",
)
@_option(
    "--allow-new-privileges",
    "new_privileges",
    is_flag=True,
    help="Let commands gain privileges that the worker lacks, for example by sudo.",
)
@_option("--user", metavar="NAME", help="Switch to this user after reading the settings file; requires root.")
@_option("--as-root", is_flag=True, help="Allow running commands as root.")
@_option(
    "--max-load",
    "load_max",
    type=click.FloatRange(0, min_open=True),
    metavar="LOAD",
    help="Load per CPU above which fewer jobs run at once, but at least one.",
)
@_option(
    "--version-watch",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Shut down gracefully when this file's content changes. Its only line, or a hash, is the release.",
)
@_option(
    "--spool",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for undelivered reports; default: below $STATE_DIRECTORY of the service or"
    " $XDG_STATE_HOME of the user.",
)
@_option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log format: lines of text, or one JSON object per event.",
)
@_option("--echo", is_flag=True, help="Also log the output of commands; the server gets it anyway.")
@_option("--get-mocked-jobs", "mocked", is_flag=True, help="Take mocked jobs too.")
@click.version_option(VERSION, prog_name="bedrock-worker", message="%(prog)s %(version)s")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
def main(user: str | None, as_root: bool, **values: Any) -> None:
    """Pull jobs from a bedrockjobs server and run a command for each.

    It is COMMAND, run without a shell, unless --rules, --module or an allowed job say otherwise.
    """
    if values["timeout_s"] == 0:
        raise click.BadParameter("expected more than 0s", param_hint="--timeout")
    try:
        switch_user(user, as_root=as_root, daemons=values["daemons"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    values |= _isolation(values)
    options = WorkerOptions(**{**values, "spool": values["spool"] or default_spool()})
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
    log.start_logging(options.log_format)
    with runner() as running:
        raise SystemExit(running.run(_work(options, selector)))


def switch_user(user: str | None, *, as_root: bool, daemons: bool) -> None:
    """Switch to a user, if one is given; raises ValueError if commands would run as root without ``as_root``.

    Call it before rules, modules and jobs are read. Afterwards, other processes of the same user cannot read
    our environment and memory. Orphans of commands become our children, except with ``daemons``, which lets
    them outlive the run.
    """
    if user is not None:
        _become(user)
    if os.geteuid() == 0 and not as_root:
        raise ValueError("commands would run as root: expected --user NAME to run them as, or --as-root")
    kernel.protect()
    if not daemons:
        kernel.become_subreaper()


def _become(name: str) -> None:
    """Become a user: set the ids, the groups and the variable ``HOME``; raises ValueError."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"--user: expected the name of a user, got {name!r}") from None
    if os.geteuid() == user.pw_uid:
        return
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except PermissionError:
        raise ValueError(f"--user: only root can become {name}") from None
    os.environ["HOME"] = user.pw_dir


def _isolation(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options on how functions are isolated, with their defaults; raises UsageError.

    ``--start-method`` is the earlier name of ``--isolation``. Its value ``fork`` means ``reuse`` if
    ``--max-jobs-per-process`` is above 1.
    """
    isolation, earlier, jobs = values["isolation"], values.pop("start_method"), values["process_jobs_max"]
    if values["module"] is None and (isolation or earlier == FORK or jobs):
        flag = "--isolation" if isolation else "--start-method" if earlier else "--max-jobs-per-process"
        raise click.UsageError(f"{flag} is for --module.")
    if isolation is None and earlier == FORK:
        isolation = REUSE if jobs and jobs > 1 else FORK
    elif isolation is None:
        isolation = earlier or (SPAWN if values["daemons"] else REUSE)
    if values["daemons"] and isolation != SPAWN:
        raise click.UsageError(f"--isolation {isolation}: expected spawn with --allow-daemons.")
    if jobs and jobs > 1 and isolation != REUSE:
        raise click.UsageError(f"--max-jobs-per-process: expected --isolation reuse, got {isolation}.")
    return {
        "isolation": isolation,
        "process_jobs_max": jobs or (WorkerOptions.process_jobs_max if isolation == REUSE else 1),
        "async_slots": _async_slots(values, isolation),
    }


def _async_slots(values: dict[str, Any], isolation: str) -> int:
    """Return the number of slots for async functions; raises UsageError."""
    slots: int | None = values["async_slots"]
    if slots is not None and values["module"] is None:
        raise click.UsageError("--async-slots is for --module.")
    if slots is not None and isolation != REUSE:
        raise click.UsageError(f"--async-slots: expected --isolation reuse, got {isolation}.")
    rest = RUNS_PER_HEARTBEAT_MAX - values["concurrency"]
    if slots is not None and slots > rest:
        raise click.UsageError(
            f"--async-slots: expected at most {RUNS_PER_HEARTBEAT_MAX} together with --concurrency."
        )
    return max(1, min(WorkerOptions.async_slots, rest)) if slots is None else slots


def _check(options: WorkerOptions) -> None:
    """Raise UsageError if no option gives names or programs, or if COMMAND cannot be run."""
    declared = options.rules_file is not None or options.module is not None
    if not options.names and not declared:
        raise click.UsageError("Missing option '--name'; only --rules and --module know names of their own.")
    if not options.argv and not declared and not options.accepts:
        raise click.UsageError(
            "Missing argument '-- COMMAND', or --rules, --module, --allow-cmd, --allow-shell or --allow-url."
        )
    if options.no_sync and options.module is None:
        raise click.UsageError("--no-sync is for --module.")
    try:
        check_command(options)
    except ValueError as error:
        raise click.UsageError(f"COMMAND: {error}") from None


async def _work(options: WorkerOptions, selector: ProgramSelector) -> int:
    gc.freeze()  # imported modules stay: exclude them from garbage collection
    agent, loop = Agent(options, selector, alone=True), asyncio.get_running_loop()
    for number, act in (
        (signal.SIGTERM, agent.stop),
        (signal.SIGINT, agent.stop),
        (signal.SIGTSTP, agent.stop_taking),
        (signal.SIGCONT, agent.resume),
        (signal.SIGHUP, agent.reload),
    ):
        loop.add_signal_handler(number, act)
    return await agent.run_until_stopped()
