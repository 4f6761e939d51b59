"""The rules, and the program of a job: its own command if allowed, else a function, a rule, or COMMAND.

The operator decides what runs, not the job: a job fails permanently if its own command is not allowed, or if
the worker has no program for it.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from bedrock_worker.enqueuing import seconds_in
from bedrock_worker.options import FORK, REUSE, SPAWN, WorkerOptions
from bedrock_worker.policy.python_module import Function, PythonModule, load
from bedrock_worker.pull import TakenJob
from bedrockjobs.base import clock, jsontext
from bedrockjobs.base.config import ARGV_MAX, PATTERN_CHARS_MAX, PATTERNS_MAX
from bedrockjobs.base.glob import TooManyPatterns, glob, intersection, lies_within
from bedrockjobs.base.jsontext import toml_document

FETCH_URL = (sys.executable, "-P", "-X", "utf8", "-m", "bedrock_worker.run.fetch_url")
"""The command that performs the request of a job's ``url``; ``-P`` ignores modules in the current folder."""

PRIVATE_TOO = "--allow-private"
"""The argument of ``FETCH_URL`` that allows private addresses."""

SHELL = "/bin/sh"
"""The shell that runs the ``cmd`` of a job."""

NO_COMMAND = "no command: the job has none of its own, and this worker has none for it"
"""The error of a job for which there is no program, if the worker has no rules."""


@dataclass(frozen=True)
class Program:
    """A command to start, and its limits."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to those of every command."""
    cwd: Path | None = None
    timeout_s: float | None = None
    limits: ResourceLimits | None = None
    secrets: tuple[str, ...] = ()
    """Texts to redact in the output and the result."""
    function: Function | None = None
    """The Python function, if a process may be forked for it."""
    tells_progress: bool = False
    """True if the command reports progress through a pipe, as Python functions do."""
    on_loop: bool = False
    """True for an async function that runs in the process which async functions share."""
    is_single: bool = False
    """True if the process of the function serves only one run."""


class ProgramSelector:
    """Selects the program of each job from the options, the rules and the module."""

    def __init__(self, options: WorkerOptions) -> None:
        """Read the rules and import the module; raises ValueError if one of the two is bad."""
        self._options = options
        self._rules: Rules | None = None
        self._calls: dict[Function, Program] = {}
        """The programs of functions, cached."""
        self.names: tuple[str, ...] = ()
        """The name patterns to request: those of the options, or else of the rules and the module."""
        self._names_of: dict[bool, tuple[str, ...]] = {}
        """The results of ``names_of``, cached."""
        self._kinds: dict[str, frozenset[bool]] = {}
        """The results of ``kinds_of``, cached."""
        self.module: PythonModule | None = None if options.module is None else load(options.module)
        self.read_rules()

    def names_of(self, on_loop: bool) -> tuple[str, ...]:
        """Return the name patterns whose jobs all run on the shared event loop, or never if False."""
        found = self._names_of.get(on_loop)
        if found is None:
            found = tuple(name for name in self.names if self.kinds_of(name) == {on_loop})
            self._names_of[on_loop] = found
        return found

    def read_rules(self) -> None:
        """Reload the rules; raises BadRules and then keeps the old ones."""
        if self._options.rules_file is not None:
            self._rules = read_rules(self._options.rules_file)
        declared = [part.names for part in (self._rules, self.module) if part is not None]
        found = tuple(dict.fromkeys(name for names in declared for name in names))
        self.names = self._options.names or found
        self._kinds, self._names_of = {}, {}

    @property
    def has_loop(self) -> bool:
        """Return whether any function runs on the shared event loop."""
        return any(map(self._is_on_loop, self._functions))

    def kinds_of(self, pattern: str) -> frozenset[bool]:
        """Return whether jobs of a pattern run on the shared event loop: a set of True, False or both."""
        found = self._kinds.get(pattern)
        if found is None:
            found = self._kinds[pattern] = self._find_kinds(pattern)
        return found

    def is_on_loop(self, job: TakenJob) -> bool:
        """Return whether a job runs on the shared event loop."""
        reply = job.reply
        if self.module is None or not (reply.cmd is None and reply.argv is None and reply.url is None):
            return False
        function = self.module.function_for(reply.name)
        return function is not None and self._is_on_loop(function)

    @property
    def _functions(self) -> tuple[Function, ...]:
        return () if self.module is None else self.module.functions

    def _is_on_loop(self, function: Function) -> bool:
        return function.is_async and not function.isolation and self._options.isolation == REUSE

    def _find_kinds(self, pattern: str) -> frozenset[bool]:
        options, functions = self._options, self._functions
        shared = [each.pattern for each in functions if self._is_on_loop(each)]
        own = [each.pattern for each in functions if not self._is_on_loop(each)]
        own += (*options.allow_cmd, *options.allow_shell, *options.allow_url)
        if not lies_within(pattern, (each.pattern for each in functions)):
            own += self._rules.names if self._rules is not None else ()
            own += ("*",) if options.argv else ()
        if not _meets(pattern, shared):
            return frozenset((False,))
        return frozenset((False, True) if _meets(pattern, own) else (True,))

    def program_for(self, job: TakenJob) -> Program:
        """Return the program of a job.

        Raises JobRefused if this worker may never run the job, and ValueError if something is missing on this
        machine, such as a secret.
        """
        name = job.reply.name
        own = self._command_of(job)
        if own is not None:
            return Program(own, cwd=self._options.cwd)
        if self.module is not None and (function := self.module.function_for(name)):
            return self._call(self.module, function)
        if self._rules is not None and (rule := self._rules.rule_for(name)):
            return self._fill(rule, job)
        if self._options.argv:
            return Program(self._options.argv, cwd=self._options.cwd)
        raise JobRefused(NO_COMMAND if self._rules is None else NO_RULE)

    def _command_of(self, job: TakenJob) -> Sequence[str] | None:
        """Return the job's own command (``cmd``, ``argv``, ``url``), or None; raises JobRefused."""
        reply, options = job.reply, self._options
        if reply.cmd is not None:
            self._check(job, "cmd", options.allow_shell, "--allow-shell")
            return (SHELL, "-c", reply.cmd)
        if reply.argv is not None:
            self._check(job, "argv", (*options.allow_cmd, *options.allow_shell), "--allow-cmd")
            return reply.argv
        if reply.url is not None:
            self._check(job, "url", options.allow_url, "--allow-url")
            return (*FETCH_URL, PRIVATE_TOO) if options.allow_private else FETCH_URL
        return None

    @staticmethod
    def _check(job: TakenJob, member: str, patterns: Sequence[str], option: str) -> None:
        if not any(glob(job.reply.name, pattern) for pattern in patterns):
            raise JobRefused(
                f"{member}: expected a name that {option} of this worker allows, got {job.reply.name}"
            )

    def _call(self, module: PythonModule, function: Function) -> Program:
        call = self._calls.get(function)
        if call is None:
            call = self._calls[function] = Program(
                function.argv,
                env=module.environment,
                cwd=self._options.cwd,
                timeout_s=function.timeout_s,
                function=None if SPAWN in (function.isolation, self._options.isolation) else function,
                tells_progress=True,
                on_loop=self._is_on_loop(function),
                is_single=function.isolation == FORK,
            )
        return call

    def _fill(self, rule: Rule, job: TakenJob) -> Program:
        secrets = rule.read_secrets()
        return Program(
            rule.fill(jsontext.members(job.text)["data"]),
            env={**rule.env, **secrets},
            cwd=rule.cwd or self._options.cwd,
            timeout_s=rule.timeout_s,
            limits=rule.limits,
            secrets=tuple(secrets.values()),
        )


def _meets(pattern: str, others: Sequence[str]) -> bool:
    """Return whether some name matches both a pattern and one of the ``others``; True if that is unknown."""
    try:
        return any(intersection(pattern, other) for other in others)
    except TooManyPatterns:
        return True


# --- rules: which command runs for which job, and which arguments come from its data ---------------------
#
# A job can only fill the open arguments of its rule (``{source}``): each is replaced as a whole by a value
# that matches the rule's pattern.


# Resource limits of a command: kernel limits and priority.


LIMITS = {
    "cpu": resource.RLIMIT_CPU,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "fsize": resource.RLIMIT_FSIZE,
    "as": resource.RLIMIT_AS,
}
"""Kernel limits, named as in ``setrlimit(2)``. Address space is set last: then allocations may fail."""

LIMIT_MAX = 2**62
"""Maximum value of a kernel limit: with one second of ``cpu`` added, it must still be below 2^63."""


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of one command, inherited by its children."""

    values: Mapping[str, int] = field(default_factory=dict)
    """The limits by name: seconds (``cpu``), bytes (``as``, ``fsize``), numbers (``nofile``, ``nproc``)."""
    nice: int = 0
    """Increment of the nice value, 0 to 19."""

    def soft_and_hard(self) -> list[tuple[int, int, int]]:
        """Return the soft and hard limit of each kind, to be set before the command starts.

        No limit exceeds that of the worker. Core files are disabled, since they would contain the secrets.
        """
        limits = [(resource.RLIMIT_CORE, 0, 0)]
        for name, kind in LIMITS.items():
            if name not in self.values:
                continue
            soft = self.values[name]
            hard = soft + 1 if name == "cpu" else soft  # a second from SIGXCPU to KILL
            _, ours = resource.getrlimit(kind)
            if ours != resource.RLIM_INFINITY:
                soft, hard = min(soft, ours), min(hard, ours)
            limits.append((kind, soft, hard))
        return limits


NO_RULE = "no rule"
"""The error of a job that no rule covers."""

VALUE_BYTES_MAX = 4_096
"""Maximum bytes of a value in an argument: the longest path on Linux. Larger data is read from stdin."""

MATCH_S = 0.2
"""Maximum seconds of CPU time for matching one value: some patterns would take years for malicious texts."""

SECRET_CHARS_MIN = 8
"""Minimum characters of a secret: a shorter one would be redacted inside of words, and could be guessed."""

SECRET_BYTES_MAX = 65_536
"""Maximum bytes of a secret: enough for keys and certificates, and they fit into a command's environment."""

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\}")
"""An open argument: ``{source}``, or ``{size.width}`` for a nested member."""


class JobRefused(ValueError):
    """This worker may not run a job, for example since its data does not fit; the job fails permanently."""


@dataclass(frozen=True)
class Secret:
    """The location of a secret: a variable of the worker's environment, or a file."""

    variable: str = ""
    file: Path | None = None

    def read_secret(self) -> str:
        """Return the secret without its trailing newline; raises ValueError."""
        if self.file is None:
            if self.variable not in os.environ:
                raise ValueError(f"expected {self.variable} in the worker's environment")
            secret = os.environ[self.variable]
        else:
            try:
                with self.file.open("rb") as file:
                    secret = file.read(SECRET_BYTES_MAX + 1).decode().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"expected a file of UTF-8 text that can be read: {error}") from None
        if len(secret) < SECRET_CHARS_MIN:
            raise ValueError(f"expected a secret of at least {SECRET_CHARS_MIN} characters")
        if len(secret.encode("utf-8", "surrogateescape")) > SECRET_BYTES_MAX or "\0" in secret:
            raise ValueError(f"expected a secret of at most {SECRET_BYTES_MAX} bytes, without NUL")
        return secret


@dataclass(frozen=True)
class Rule:
    """One valid rule."""

    name: str
    """The GLOB pattern of the names of its jobs."""
    argv: tuple[str, ...]
    fields: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """The pattern of each open argument, by its path in the job's data."""
    timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Where each secret is found, by the variable in which the command gets it."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    cwd: Path | None = None

    def fill(self, data: str) -> list[str]:
        """Return the command for a job's data, the text of a JSON object; raises JobRefused.

        Main thread only: a signal enforces the time limit of the patterns.
        """
        argv: list[str] = []
        for argument in self.argv:
            open_for = PLACEHOLDER.fullmatch(argument)
            argv.append(self._value(open_for[1], data, argv) if open_for else argument)
        return argv

    def read_secrets(self) -> dict[str, str]:
        """Read the secrets and return them by variable; raises ValueError that names a missing one."""
        secrets = {}
        for variable, secret in self.secrets.items():
            try:
                secrets[variable] = secret.read_secret()
            except ValueError as error:
                raise ValueError(f"secrets.{variable}: {error}") from None
        return secrets

    def _value(self, path: str, data: str, before: Sequence[str]) -> str:
        value = _text_at(path, data)
        if "\0" in value:
            raise JobRefused(f"field {path}: expected no NUL character")
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise JobRefused(f"field {path}: expected at most {VALUE_BYTES_MAX} bytes")
        if not _matches(self.fields[path], value, path):
            raise JobRefused(f"field {path}: expected text that matches {self.fields[path].pattern}")
        if value.startswith("-") and "--" not in before[1:]:
            raise JobRefused(f"field {path}: expected text that does not begin with a hyphen")
        return value


class Rules:
    """The rules of a file, in order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name patterns of the rules."""
        return tuple(rule.name for rule in self.rules)

    def rule_for(self, name: str) -> Rule | None:
        """Return the first rule that covers a job name, or None."""
        return next((rule for rule in self.rules if glob(name, rule.name)), None)


def _text_at(path: str, data: str) -> str:
    """Return the string, number or boolean at a path, as text; a number stays as the job spells it."""
    raw = data
    try:
        for key in path.split("."):
            members = jsontext.members(raw) if raw.startswith("{") else {}
            if key not in members:
                raise JobRefused(f"field {path}: expected a value, the job has none")
            raw = members[key]
        if raw.startswith(("{", "[", "n")):
            raise JobRefused(f"field {path}: expected a string, a number, true or false")
        return str(jsontext.parse(raw)) if raw.startswith('"') else raw
    except ValueError as error:
        raise JobRefused(f"field {path}: {error}") from None


class _TooLong(Exception):
    """A pattern exceeded its time limit."""


def _matches(pattern: re.Pattern[str], value: str, path: str) -> bool:
    """Return whether the whole of a value matches a pattern; raises JobRefused after the time limit."""
    timing = True

    def time_out(_: int, __: object) -> None:
        if timing:
            raise _TooLong

    before = signal.signal(signal.SIGVTALRM, time_out)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MATCH_S)
        try:
            return pattern.fullmatch(value) is not None
        finally:
            timing = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        raise JobRefused(f"field {path}: its pattern took more than {MATCH_S} s for this value") from None
    finally:
        signal.signal(signal.SIGVTALRM, before)


# Reading a rules file (TOML). The error for an unsafe rule names the file, the rule and the reason.


FILE_BYTES_MAX = 1024 * 1024
"""Maximum bytes of a rules file: about a thousand times the size of a typical file."""

RULES_MAX = PATTERNS_MAX
"""Maximum rules in a file: as many patterns as one request for jobs may have."""

SHELLS = frozenset({"sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "tcsh", "zsh"})
"""Programs that execute the argument after ``-c`` as a command line."""

RELAYS = frozenset({"parallel", "runuser", "ssh", "su", "watch"})
"""Programs that join their arguments into a command line for a shell."""

LAUNCHERS = frozenset(
    {
        *("awk", "gawk", "lua", "mawk", "node", "nodejs", "perl", "php", "python", "ruby", "tclsh"),
        *(
            "busybox",
            "chroot",
            "doas",
            "env",
            "nice",
            "nohup",
            "setsid",
            "stdbuf",
            "sudo",
            "timeout",
            "xargs",
        ),
    }
)
"""Programs that execute their first argument, or the argument after an option, as a program or as code."""

_CODE_OPTIONS = frozenset({"-c", "-e", "-E", "-r", "--eval", "--execute", "--run"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"([0-9]{1,15}) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class BadRules(ValueError):
    """A rules file cannot be used; names the file, the rule and the reason."""


def read_rules(path: Path) -> Rules:
    """Read a file; raises BadRules, also if it cannot be read."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise BadRules(f"{path}: expected a file that not everybody can write (chmod o-w)")
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadRules(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise BadRules(f"{path}: expected at most {FILE_BYTES_MAX} bytes")
    try:
        document = toml_document(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRules(f"{path}: expected TOML: {error}") from None
    if unknown := document.keys() - {"rule"}:
        raise BadRules(f"{path}: unknown key {min(unknown)}, expected [[rule]]")
    tables = document.get("rule")
    if not isinstance(tables, list) or not 1 <= len(tables) <= RULES_MAX:
        raise BadRules(f"{path}: expected 1 to {RULES_MAX} tables [[rule]]")
    rules: list[Rule] = []
    for number, table in enumerate(tables, 1):
        name = table.get("name") if isinstance(table, dict) else None
        where = f"{path}: rule {number}" + (f" ({name})" if isinstance(name, str) else "")
        try:
            rules.append(_rule(table, {rule.name for rule in rules}))
        except ValidationError as error:
            raise BadRules(f"{where}: {_words(error)}") from None
        except ValueError as error:
            raise BadRules(f"{where}: {error}") from None
    return Rules(rules)


# Validation of the contents.


def _expected(expected: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "expected {words}", {"words": expected})


def _seconds(value: Any) -> float:
    if not (seconds := seconds_in(value)):
        raise _expected(f"{clock.WORDS}, more than 0")
    return seconds


def _whole_seconds(value: Any) -> int:
    return -int(-_seconds(value) // 1)


def _bytes(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or not int(match[1]):
        raise _expected("a size like 512M or 2G, or a number of bytes")
    return int(match[1]) * _UNITS[match[2].upper()]


def _pattern(value: Any) -> re.Pattern[str]:
    try:
        return re.compile(value, re.ASCII)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise _expected(f"a regular expression: {error}") from None


def _text(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise _expected("no NUL character")
    return value


def _variable(value: Any) -> Any:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise _expected("the name of a variable: letters, digits and _")
    if value.startswith("BEDROCK_"):
        raise _expected("another name: those that begin with BEDROCK_ are reserved")
    return value


def _folder(value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or not Path(value).is_dir():
        raise _expected("a folder that exists, from / on")
    return Path(value)


def _file(value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise _expected("a file, from / on")
    return Path(value)


_Text = Annotated[str, BeforeValidator(_text)]
_Variable = Annotated[str, BeforeValidator(_variable)]
_Whole = Annotated[int, Field(gt=0)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class _FieldTable(_Table):
    match: Annotated[re.Pattern[str], BeforeValidator(_pattern)]


class _SecretTable(_Table):
    env: Annotated[str, Field(min_length=1)] = ""
    file: Annotated[Path | None, BeforeValidator(_file)] = None


class _LimitsTable(_Table):
    cpu: Annotated[int | None, BeforeValidator(_whole_seconds)] = None
    nofile: _Whole | None = None
    nproc: _Whole | None = None
    fsize: Annotated[int | None, BeforeValidator(_bytes)] = None
    as_: Annotated[int | None, BeforeValidator(_bytes)] = Field(None, alias="as")


class _RuleTable(_Table):
    name: Annotated[_Text, Field(min_length=1, max_length=PATTERN_CHARS_MAX)]
    argv: Annotated[list[_Text], Field(min_length=1, max_length=ARGV_MAX)]
    fields: dict[str, _FieldTable] = {}
    timeout: Annotated[float | None, BeforeValidator(_seconds)] = None
    env: dict[_Variable, _Text] = {}
    secrets: dict[_Variable, _SecretTable] = {}
    limits: _LimitsTable = _LimitsTable()
    nice: Annotated[int, Field(ge=0, le=19)] = 0
    cwd: Annotated[Path | None, BeforeValidator(_folder)] = None


def _words(error: ValidationError) -> str:
    """Describe the first error, with its key."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part != "[key]")
    kind, words = first["type"], first["msg"]
    if kind == "extra_forbidden":
        return f"unknown key {where}"
    if kind == "missing":
        return f"{where}: is required"
    return f"{where}: {words.replace('Input should be', 'expected')}" if where else words


def _rule(content: Any, earlier: set[str]) -> Rule:
    """Return the rule in a table of the file; raises ValueError if it is invalid or unsafe."""
    table = _RuleTable.model_validate(content)
    if hidden := earlier & {"*", table.name}:
        raise ValueError(f"name: expected one that the earlier rule {min(hidden)} does not cover")
    argv = tuple(table.argv)
    _check_argv(argv, table.fields)
    secrets = {}
    for variable, secret in table.secrets.items():
        if bool(secret.env) == bool(secret.file):
            raise ValueError(f"secrets.{variable}: expected either env or file")
        if variable in table.env:
            raise ValueError(f"secrets.{variable}: expected a variable that env does not set")
        secrets[variable] = Secret(secret.env, secret.file)
    rlimits = {name: getattr(table.limits, "as_" if name == "as" else name) for name in LIMITS}
    limits = {name: value for name, value in rlimits.items() if value is not None}
    for name, value in limits.items():
        if value > LIMIT_MAX:
            raise ValueError(f"limits.{name}: expected at most {LIMIT_MAX}")
    rule = Rule(
        table.name,
        argv,
        fields={path: rlimits.match for path, rlimits in table.fields.items()},
        timeout_s=table.timeout,
        env=table.env,
        secrets=secrets,
        limits=ResourceLimits(limits, table.nice),
        cwd=table.cwd,
    )
    rule.read_secrets()
    return rule


# Detection of unsafe rules.


def _check_argv(argv: tuple[str, ...], fields: Mapping[str, object]) -> None:
    program = argv[0]
    if PLACEHOLDER.search(program):
        raise ValueError("argv: expected a program that is the same for every job, not a field")
    if not program.startswith("/"):
        raise ValueError(f"argv: expected the program's path from / on, got {program!r}")
    if not Path(program).is_file() or not os.access(program, os.X_OK):
        raise ValueError(f"argv: expected a program that can be run, got {program!r}")
    used = set()
    for argument in argv:
        if match := PLACEHOLDER.fullmatch(argument):
            used.add(match[1])
            if match[1] not in fields:
                raise ValueError(f'argv: {argument} has no pattern, expected fields."{match[1]}".match')
        elif match := PLACEHOLDER.search(argument):
            raise ValueError(f"argv: expected {match[0]} as a whole argument, got {argument!r}")
    if unused := sorted(fields.keys() - used):
        raise ValueError(f"fields.{unused[0]}: expected {{{unused[0]}}} in argv")
    for at, argument in enumerate(argv):
        _check_interpreter(Path(argument).name, argv[at + 1 :])


def _check_interpreter(program: str, arguments: tuple[str, ...]) -> None:
    """Raise ValueError if open arguments let a job choose what a shell or an interpreter executes."""
    kind = re.sub(r"[0-9.]+$", "", program)
    is_open = [PLACEHOLDER.fullmatch(argument) is not None for argument in arguments]
    if kind not in SHELLS | RELAYS | LAUNCHERS or not any(is_open):
        return
    if kind in RELAYS or (kind in SHELLS and any(re.match("-[A-Za-z]*c", word) for word in arguments)):
        raise ValueError(f"argv: expected no field after {program}, a shell interprets its arguments")
    fixed = next((at for at, word in enumerate(arguments) if word[:1] not in "-+{"), len(arguments))
    if any(is_open[:fixed]) or any(map(_is_code, arguments, is_open[1:])):
        raise ValueError(f"argv: expected a fixed program after {program}, not one that the job chooses")


def _is_code(option: str, next_is_open: bool) -> bool:
    return next_is_open and option in _CODE_OPTIONS
