"""The validated options of a worker."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bedrockjobs.base import clock
from bedrockjobs.base.config import PATTERN_CHARS_MAX, PATTERNS_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.wire import wire_name
from bedrockjobs.client import CA_VARIABLE, RUN_SERVER_VARIABLE, AnyAddress, AsyncClient
from bedrockjobs.commands import GetJobs

REUSE, FORK, SPAWN = ISOLATIONS = ("reuse", "fork", "spawn")
"""What runs a Python function: one process for many runs, a fork per run, a new interpreter per run."""

PROCESS_JOBS_MAX = 1_000_000
"""Maximum of ``process_jobs_max``, so that every process is replaced at some time."""

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TZ")
"""Variables of the worker's environment that a command inherits; its TMPDIR is the folder of the run."""


def _version() -> str:
    for distribution in ("bedrockjobs", "bedrockjobs-client"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return ""  # started from its folder without an installation


VERSION = _version()
"""The version of the worker, which heartbeats report to the server."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class WorkerOptions:
    """The options of a worker, which ``bedrock_worker/cli.py`` describes."""

    names: tuple[str, ...]
    """Name patterns of the jobs to take; if empty, those of the rules or the module."""
    argv: tuple[str, ...]
    """Default command and arguments; if empty, jobs without another program fail."""
    servers: tuple[AnyAddress, ...]
    concurrency: int = 1
    async_slots: int = 100
    """Maximum async functions that run at a time, on the event loop that they share; they mostly wait."""
    worker: str = "worker"
    timeout_s: float | None = None
    grace_s: float = 25.0
    """Seconds that running commands get at shutdown; by default, with all later steps, less than the 30 s
    after which supervisors usually kill."""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    log_format: str = "text"
    no_sync: bool = False
    burst: bool = False
    jobs_max: int | None = None
    mocked: bool = False
    echo: bool = False
    allow_cmd: tuple[str, ...] = ()
    allow_shell: tuple[str, ...] = ()
    allow_url: tuple[str, ...] = ()
    allow_private: bool = False
    new_privileges: bool = False
    daemons: bool = False
    rules_file: Path | None = None
    module: str | None = None
    isolation: str = REUSE
    """How runs of functions are separated: ``REUSE``, ``FORK`` or ``SPAWN``."""
    process_jobs_max: int = 100
    """Maximum runs of a process with ``REUSE``, which is then replaced, so that leaks stay small."""
    load_max: float | None = None
    version_watch: Path | None = None
    spool: Path | None = None
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    """The key of the client certificate ``cert``."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    @property
    def accepts(self) -> list[str]:
        """Return which kinds of own commands (``argv``, ``cmd``, ``url``) jobs of some names may have."""
        allowed = {"argv": self.allow_cmd or self.allow_shell, "cmd": self.allow_shell, "url": self.allow_url}
        return [kind for kind, patterns in allowed.items() if patterns]

    @cached_property
    def taker(self) -> Mapping[str, Any]:
        """Return the parameters of a request for jobs that say who asks and which jobs the worker accepts."""
        options: dict[str, Any] = {
            "worker": self.worker,
            "heartbeat": True,
            "host": self.host,
            "pid": self.pid,
        }
        if self.accepts:
            options["accepts"] = tuple(self.accepts)
        if self.mocked:
            options["get_mocked_jobs"] = True
        if self.client().is_identified:  # if the server requires tokens, commands need them too
            options["run_token"] = True
        return options

    def take(self, free: int, names: Sequence[str]) -> GetJobs:
        """Return a request for up to ``free`` jobs with matching ``names``; raises CommandError."""
        parameters = {wire_name(key): value for key, value in self.taker.items()}
        parameters |= {"names": list(names), "numResults": free}
        if not self.burst:
            # Maximum milliseconds that a request waits: so a dead server is noticed within two minutes.
            parameters |= {"connection": "wait", "timeout": 60_000}
        return GetJobs.read(parameters)

    def client(self) -> AsyncClient:
        """Return a client that tries each server once; raises ValueError for a bad token or file."""
        addresses = [str(address) for address in self.servers]
        return AsyncClient(
            addresses, tries=1, token_file=self.token_file, ca=self.ca, cert=self.cert, key=self.key
        )

    @cached_property
    def base_environment(self) -> Mapping[str, str]:
        """Return the environment that all commands share."""
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        servers = ",".join(map(str, self.servers))
        ca = str(self.ca or os.environ.get(CA_VARIABLE, ""))
        trusted = {CA_VARIABLE: str(Path(ca).resolve())} if ca else {}
        return {"PATH": os.defpath, **kept, **trusted, **self.env, RUN_SERVER_VARIABLE: servers}


def default_spool() -> Path:
    """Return the default folder for undelivered reports: in the service's state folder, else the user's."""
    service = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if service:
        return Path(service) / "reports"
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local/state") / "bedrock-worker"


def seconds_of(text: str) -> float:
    """Return the seconds of a duration; raises ValueError."""
    seconds = clock.seconds_of(text)
    if seconds is None:
        raise ValueError(f"expected {clock.WORDS}, got {text!r}")
    return seconds


def worker_name(text: str) -> str:
    """Return the worker's name: ``%h`` is the host, ``%p`` the process, ``%%`` a percent sign."""
    known = {"%h": socket.gethostname(), "%p": str(os.getpid()), "%%": "%"}
    name = re.sub(r"%.", lambda match: known.get(match[0], match[0]), text)
    if not 1 <= len(name) <= WORKER_CHARS_MAX or not name.isprintable():
        raise ValueError(f"expected 1 to {WORKER_CHARS_MAX} printable characters, got {name!r}")
    return name


def name_patterns(texts: Sequence[str]) -> tuple[str, ...]:
    """Check name patterns before any command has them, so that the error names the option."""
    if len(texts) > PATTERNS_MAX:
        raise ValueError(f"expected at most {PATTERNS_MAX} name patterns, got {len(texts)}")
    for text in texts:
        if not text:
            raise ValueError("expected a name pattern, got an empty one")
        if len(text) > PATTERN_CHARS_MAX:
            raise ValueError(f"expected a name pattern of at most {PATTERN_CHARS_MAX} characters")
    return tuple(texts)


def variables_of(texts: Iterable[str]) -> dict[str, str]:
    """Return variables given as ``NAME=VALUE``, or as ``NAME`` with the value in our environment."""
    variables: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"expected NAME or NAME=VALUE, got {text!r}")
        if name.startswith("BEDROCK_"):
            raise ValueError(f"{name}: names that begin with BEDROCK_ are reserved")
        if not equals and name not in os.environ:
            raise ValueError(f"{name}: is not set here, and no value is given (NAME=VALUE)")
        variables[name] = value if equals else os.environ[name]
    return variables


def check_command(options: WorkerOptions) -> None:
    """Raise ValueError if the program of the default command does not exist or is not executable."""
    if not options.argv:
        return
    program, folder = options.argv[0], options.cwd or Path.cwd()
    if "/" in program:
        path = folder / program
        good = path.is_file() and os.access(path, os.X_OK)
    else:
        good = shutil.which(program, path=options.base_environment["PATH"]) is not None
    if not good:
        raise ValueError(f"expected a program that can be run, got {program!r}")
